//! `millrace device …`: devices whose journals are imported.

use crate::{
    args::{DeviceCommand, Global, SimArgs},
    out::{Out, Style, Table},
    place::{
        Place,
        docs::{FunctionDoc, LogDoc, Reason},
    },
    report::Outcome,
    show,
};
use millrace_device::Identity;
use millrace_node::{
    Code, Hlc, LogName, NamespaceId, Result,
    devices::{
        self, Device, KnownBy, REFUSED_LOG, RefusedDevice, commands,
        updates::{self, Firmware, Stage},
    },
};
use millrace_wire::units;
use serde_json::json;
use std::{process::Command, time::Duration};

/// The logs with the states of devices: `_device/NAME`.
const PREFIX: &str = "_device/";
/// For how many functions it is asked what their devices have not run.
const FUNCTIONS_MAX: usize = 16;

pub fn run(command: &DeviceCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        DeviceCommand::Ls => ls(&Place::find(global)?, out),
        DeviceCommand::Show(args) => show_one(&Place::find(global)?, &args.name, out),
        DeviceCommand::Rm(args) => rm(&Place::find(global)?, &args.name, out),
        DeviceCommand::Provision(args) => super::provision::run(args, global, out),
        DeviceCommand::FlashImage(args) => super::provision::flash_image(args, out),
        DeviceCommand::Dump(args) => super::dump::run(args, out),
        DeviceCommand::Send(args) => super::send::run(args, global, out),
        DeviceCommand::Get(args) => super::ask::run(args, global, out),
        DeviceCommand::Update(args) => super::update::run(args, global, out),
        DeviceCommand::Verify(args) => super::verify::run(args, global, out),
        DeviceCommand::Sim(args) => sim(args),
        DeviceCommand::Attach(args) => super::attach::run(args, global, out),
    }
}

fn all(place: &Place) -> Result<Vec<Device>> {
    let remote = match place {
        Place::Local(namespace) => return devices::all(namespace),
        Place::Remote(remote, _) => remote,
    };
    let (logs, all_refused) = (place.logs()?, refused(place)?);
    let mut found = Vec::new();
    for name in logs.iter().filter_map(|log| log.name.strip_prefix(PREFIX)) {
        let record = remote.newest(&format!("{PREFIX}{name}"))?;
        let odd = |error| Code::DocumentUnknown.error(format!("the state of device '{name}': {error}"));
        let state = serde_json::from_slice(&record.payload).map_err(odd)?;
        let prefix = format!("{name}/");
        let own = |log: &&LogDoc| log.name.starts_with(&prefix);
        let named = |name: LogName| logs.iter().find(|log| log.name == *name);
        let commands_waiting = named(commands::log_of(name)?).map_or(0, |log| log.records);
        let refusals = named(commands::refusals_of(name)?).filter(|log| log.records > 0);
        let refusal = refusals.map(|log| remote.newest(&log.name)).transpose()?;
        let commands_refused = refusal.and_then(|record| serde_json::from_slice(&record.payload).ok());
        let newest = |name: LogName| match named(name).filter(|log| log.latest > 0) {
            Some(log) => remote.newest(&log.name).ok().map(|record| record.payload),
            None => None,
        };
        let (noted, reported) = (newest(updates::notes_of(name)?), newest(updates::reports_of(name)?));
        let firmware = updates::firmware(noted.as_deref(), reported.as_deref());
        let logs = logs.iter().filter(own).map(|log| (log.name.clone(), log.latest)).collect();
        let refused = all_refused.iter().filter(|refused| refused.device == name).cloned().collect();
        let kept = newest(devices::kept_of(name)?).map_or_else(Vec::new, |record| devices::kept_in(&record));
        let name = name.to_owned();
        found.push(Device { name, state, logs, commands_waiting, commands_refused, firmware, kept, refused });
    }
    Ok(found)
}

/// Every device that is refused, also those that never were accepted.
fn refused(place: &Place) -> Result<Vec<RefusedDevice>> {
    match place {
        Place::Local(namespace) => devices::refused(namespace),
        Place::Remote(remote, _) => match remote.newest(REFUSED_LOG) {
            Ok(record) => Ok(devices::refused_in(&record.payload)),
            Err(error) if error.code() == Code::LogNotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        },
    }
}

fn last(device: &Device) -> String {
    match device.state.clock {
        0 => "nothing yet".into(),
        clock => show::ago(Hlc::from_bits(clock), show::now_us()),
    }
}

/// When a device will connect that does so at regular intervals; nothing of one that is late.
fn expected(device: &Device) -> String {
    let now_ms = show::now_us() / 1000;
    let at = devices::expected_ms(&device.state.came).filter(|at| *at > now_ms);
    at.map_or_else(String::new, |at| format!("in {}", units::show_duration(Duration::from_millis(at - now_ms))))
}

/// The version that runs, and the update that is under way.
fn version(firmware: &Firmware) -> String {
    let running = firmware.running.clone().unwrap_or_default();
    match firmware.update.as_ref().filter(|update| !update.state.is_end()) {
        Some(update) => format!("{running} → {} {}", update.version, word(update.state)).trim_start().to_owned(),
        None => running,
    }
}

fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Storing => "incomplete",
        Stage::Waiting => "waits",
        Stage::Receiving => "is received",
        Stage::Ready => "is received and verified",
        Stage::Trial => "is on trial",
        Stage::Confirmed => "is confirmed",
        Stage::Reverted => "was reverted",
        Stage::Refused => "was refused",
    }
}

fn show_firmware(firmware: &Firmware, out: &mut Out) -> Outcome {
    let room = firmware
        .slot_bytes
        .map_or_else(String::new, |bytes| format!(", room for {} bytes", show::grouped(bytes.into())));
    let running = firmware.running.as_deref().unwrap_or("not known yet");
    out.line(format!("firmware      {running}{room}"))?;
    let Some(update) = &firmware.update else { return Ok(()) };
    let (sent, size) = (show::grouped(update.sent.into()), show::grouped(update.size.into()));
    let (number, version) = (update.number, &update.version);
    out.line(format!("update        {number} to {version} {}, {sent} of {size} bytes sent", word(update.state)))?;
    if let Some(code) = &update.code {
        let said = format!("{code}: {}", update.detail.as_deref().unwrap_or_default());
        let said = out.styled(Style::Bad, &said);
        out.line(format!("              {said}"))?;
    }
    Ok(())
}

fn ls(place: &Place, out: &mut Out) -> Outcome {
    let (devices, refused) = (all(place)?, refused(place)?);
    if out.json() {
        devices.iter().try_for_each(|device| out.object(&json!(device)))?;
        // Those that are no devices of this namespace.
        let is_unknown = |refused: &&RefusedDevice| devices.iter().all(|device| device.name != refused.device);
        return Ok(refused
            .iter()
            .filter(is_unknown)
            .try_for_each(|refused| out.object(&json!({ "refused": [refused] })))?);
    }
    let mut table = Table::new(&[
        "device",
        "records>",
        "runs>",
        "given up>",
        "lost records>",
        "starts>",
        "newest entry",
        "expected",
        "firmware",
    ]);
    for device in &devices {
        let state = &device.state;
        let numbers = [state.records, state.runs, state.dead, state.lost_records, state.starts].map(show::grouped);
        let firmware = device.firmware.as_ref().map_or_else(String::new, version);
        table.row(
            [device.name.clone()]
                .into_iter()
                .chain(numbers)
                .chain([last(device), expected(device), firmware])
                .collect(),
        );
    }
    if table.is_empty() {
        out.line("no device has sent records")?;
    } else {
        out.table(&table)?;
    }
    refused.iter().try_for_each(|refused| show_refused(refused, out))
}

/// Why a device is refused, who says so, and what to do.
fn show_refused(refused: &RefusedDevice, out: &mut Out) -> Outcome {
    let name = &refused.device;
    let who = match refused.known_by {
        KnownBy::Right => name.clone(),
        KnownBy::Claim => format!("a device that calls itself {name}"),
        KnownBy::Capability => format!("a connection that names the capability of {name}, and proves nothing,"),
    };
    let (code, detail) = (&refused.refusal.code, &refused.refusal.detail);
    out.line(out.styled(Style::Bad, &format!("{who} is refused: {code}: {detail}")))?;
    let when = match refused.times {
        1 => format!("once, at {}", refused.last),
        times => format!("{} times from {} to {}", show::grouped(times), refused.first, refused.last),
    };
    let address =
        refused.address.as_ref().map_or_else(|| "this machine".into(), |address| format!("address {address}"));
    let capability = match &refused.capability {
        Some(id) => format!("with capability {id}"),
        None => "without a capability".into(),
    };
    let identity = refused.identity.as_ref().map_or_else(String::new, |identity| format!(", identity {identity}"));
    out.line(format!("  {when}, from {address}, {capability}{identity}"))?;
    Ok(out.line(format!("  {}", refused.remedy))?)
}

fn show_one(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let Some(device) = all(place)?.into_iter().find(|device| device.name == name) else {
        return show_unknown(name, &refused(place)?, out);
    };
    if out.json() {
        return Ok(out.object(&json!(device))?);
    }
    let state = &device.state;
    let identity = NamespaceId::new(state.namespace).map_or_else(String::new, |id| id.to_string());
    out.line(format!("device        {name}"))?;
    out.line(format!("identity      {identity}"))?;
    out.line(format!("newest entry  {} of epoch {}, {}", show::grouped(state.sequence), state.epoch, last(&device)))?;
    let expected = Some(expected(&device)).filter(|expected| !expected.is_empty());
    expected.map_or(Ok(()), |expected| {
        out.line(format!("expected      {expected}, as it connects at regular intervals"))
    })?;
    out.line(format!("records       {}", show::grouped(state.records)))?;
    out.line(format!("runs          {}, and {} given up", show::grouped(state.runs), show::grouped(state.dead)))?;
    out.line(format!("starts        {}", show::grouped(state.starts)))?;
    let (records, entries) = (show::count(state.lost_records, "record"), show::grouped(state.lost_entries));
    out.line(format!(
        "lost          {records}, of {entries} entries that the device had dropped before they were imported"
    ))?;
    out.line(format!("commands      {} waiting", show::grouped(device.commands_waiting)))?;
    if let Some(refusal) = &device.commands_refused {
        let said = out.styled(Style::Bad, &format!("it refuses commands: {}: {}", refusal.code, refusal.detail));
        out.line(format!("              {said}"))?;
    }
    if let Some(firmware) = &device.firmware {
        show_firmware(firmware, out)?;
    }
    for (log, latest) in &device.logs {
        out.line(format!("log           {log}, up to record {latest}"))?;
    }
    for pending in
        not_run(place, |_, log| log.split_once('/').is_some_and(|(device, _)| device == name)).unwrap_or_default()
    {
        out.line(format!("pending       {pending}"))?;
    }
    device.refused.iter().try_for_each(|refused| show_refused(refused, out))
}

/// A name of no device here, which one uses that is refused.
fn show_unknown(name: &str, all_refused: &[RefusedDevice], out: &mut Out) -> Outcome {
    let refused: Vec<_> = all_refused.iter().filter(|refused| refused.device == name).collect();
    if refused.is_empty() {
        return Err(devices::missing(name, all_refused).into());
    }
    if out.json() {
        return Ok(out.object(&json!({ "name": name, "refused": refused }))?);
    }
    out.line(format!("device        {name}, which is no device of this namespace"))?;
    refused.into_iter().try_for_each(|refused| show_refused(refused, out))
}

/// What devices have not run, in words, for the functions and logs that are wanted. Who may list runs or devices need not have the right to ask this.
pub fn not_run(place: &Place, wanted: impl Fn(&str, &str) -> bool) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let is_wanted = |function: &FunctionDoc| {
        let definition = function.definition.as_ref().filter(|definition| definition.at.is_some());
        definition.is_some_and(|definition| definition.on.iter().any(|log| wanted(&function.name, log)))
    };
    for function in place.functions()?.iter().filter(|function| is_wanted(function)).take(FUNCTIONS_MAX) {
        for doc in place.why(&function.name)?.reasons {
            if matches!(&doc.reason, Reason::OnDevice { log, .. } if wanted(&function.name, log)) {
                found.push(doc.text);
            }
        }
    }
    Ok(found)
}

fn rm(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let Place::Local(namespace) = place else {
        let detail = "a device is removed by a command with access to the files of the namespace";
        return Err(Code::LocalOnly.error(detail).into());
    };
    let functions = devices::remove(namespace, name)?;
    if out.json() {
        return Ok(out.object(&json!({ "device": name, "change": "removed", "functions": functions }))?);
    }
    out.line(format!("removed device {name}; its logs stay"))?;
    for function in functions {
        out.line(format!(
            "its function {function} stays with its runs, and nothing runs it; `millrace function rm {function}` removes it"
        ))?;
    }
    Ok(())
}

fn sim(args: &SimArgs) -> Outcome {
    let mut command = Command::new(&args.program);
    let name = match (&args.identity, &args.name) {
        (Some(file), name) => {
            let identity = Identity::decode(&super::dump::read(file)?).map_err(|error| error.within(file.display()))?;
            if let Some(name) = name.as_ref().filter(|name| **name != identity.name) {
                let detail =
                    format!("{} is the identity of device '{}', not of '{name}'", file.display(), identity.name);
                return Err(Code::ValueInvalid.error(detail).into());
            }
            identity.name
        }
        (None, name) => name.clone().unwrap_or_default(), // clap requires it
    };
    command.arg(args.flash.clone().unwrap_or_else(|| format!("{name}.flash").into()));
    if let Some(host) = &args.host {
        command.args(["--host", host]);
    }
    match &args.identity {
        Some(file) => command.arg("--provisioned").arg(file),
        None => command.args(["--name", &name]),
    };
    command.args(&args.more);
    let failed = |what: String| Code::Io.error(format!("{}: {what}", args.program.display()));
    let status = command.status().map_err(|error| failed(error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(format!("the device ended with {status}")).into()) }
}
