//! `millrace device …`: devices whose journals are imported.

use crate::{
    args::{DeviceCommand, Global, SimArgs},
    out::{Out, Style, Table},
    place::{
        Place,
        docs::{FunctionDoc, Reason},
    },
    report::Outcome,
    show,
};
use millrace_device::Identity;
use millrace_node::{
    Code, Hlc, NamespaceId, Result,
    application::units,
    devices::{
        self, Device, KnownBy, RefusedDevice,
        updates::{Firmware, Stage},
    },
};
use serde_json::json;
use std::{process::Command, time::Duration};

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

/// All devices that have sent entries, and those that are refused. The host also says which are connected.
fn all(place: &Place) -> Result<(Vec<Device>, Vec<RefusedDevice>)> {
    match place {
        Place::Remote(remote, _) => remote.devices(),
        Place::Local(namespace) => match place.host_here().map(|host| host.devices()) {
            Some(Ok(found)) => Ok(found),
            // It ends now, or is another version; the files have the rest.
            Some(Err(_)) | None => Ok((devices::all(namespace)?, devices::refused(namespace)?)),
        },
    }
}

fn last(device: &Device) -> String {
    match device.state.clock {
        0 => "nothing yet".into(),
        clock => show::ago(Hlc::from_bits(clock), show::now_us()),
    }
}

/// Whether the device is connected, or when it was or will be. Without a host, it is known only when it will, if it does so regularly.
fn connected(device: &Device) -> String {
    let now_us = show::now_us();
    let presence = device.presence.clone().unwrap_or_default();
    let at = |text: &Option<String>| text.as_deref().and_then(show::moment);
    if presence.connected {
        let since =
            at(&presence.since).map_or_else(String::new, |since| format!(", since {}", show::ago(since, now_us)));
        return format!("yes{since}");
    }
    let expected_us = match &device.presence {
        Some(presence) => at(&presence.expected).map(Hlc::wall_us),
        None => devices::expected_ms(&device.state.came).map(|ms| ms * 1000),
    };
    match (expected_us.and_then(|expected| expected.checked_sub(now_us)), at(&presence.until)) {
        (Some(us), _) => format!("asleep, expected in {}", units::show_duration(Duration::from_micros(us))),
        (None, Some(until)) => format!("until {}", show::ago(until, now_us)),
        (None, None) if device.presence.is_some() => "not since the host started".into(),
        (None, None) => String::new(),
    }
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
    let (devices, refused) = all(place)?;
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
        "connected",
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
                .chain([last(device), connected(device), firmware])
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
    let (devices, refused) = all(place)?;
    let Some(device) = devices.into_iter().find(|device| device.name == name) else {
        return show_unknown(name, &refused, out);
    };
    if out.json() {
        return Ok(out.object(&json!(device))?);
    }
    let state = &device.state;
    let identity = NamespaceId::new(state.namespace).map_or_else(String::new, |id| id.to_string());
    out.line(format!("device        {name}"))?;
    out.line(format!("identity      {identity}"))?;
    out.line(format!("newest entry  {} of epoch {}, {}", show::grouped(state.sequence), state.epoch, last(&device)))?;
    let connected = connected(&device);
    if !connected.is_empty() {
        out.line(format!("connected     {connected}"))?;
    }
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
