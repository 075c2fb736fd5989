//! `millrace device …`: devices whose journals are imported.

use crate::{
    args::{DeviceCommand, Global, SimArgs},
    out::{Out, Table},
    place::{Place, docs::LogDoc},
    report::Outcome,
    show,
};
use millrace_node::{
    Code, Hlc, NamespaceId, Result,
    devices::{self, Device},
};
use serde_json::json;
use std::process::Command;

/// The logs with the states of devices: `_device/NAME`.
const PREFIX: &str = "_device/";

pub fn run(command: &DeviceCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        DeviceCommand::Ls => ls(&all(&Place::find(global)?)?, out),
        DeviceCommand::Show(args) => show_one(&Place::find(global)?, &args.name, out),
        DeviceCommand::Rm(args) => rm(&Place::find(global)?, &args.name, out),
        DeviceCommand::Sim(args) => sim(args),
        DeviceCommand::Attach(args) => super::attach::run(args, global, out),
    }
}

fn all(place: &Place) -> Result<Vec<Device>> {
    let remote = match place {
        Place::Local(namespace) => return devices::all(namespace),
        Place::Remote(remote, _) => remote,
    };
    let logs = place.logs()?;
    let mut found = Vec::new();
    for name in logs.iter().filter_map(|log| log.name.strip_prefix(PREFIX)) {
        let record = remote.newest(&format!("{PREFIX}{name}"))?;
        let odd = |error| Code::DocumentUnknown.error(format!("the state of device '{name}': {error}"));
        let state = serde_json::from_slice(&record.payload).map_err(odd)?;
        let prefix = format!("{name}/");
        let own = |log: &&LogDoc| log.name.starts_with(&prefix);
        let logs = logs.iter().filter(own).map(|log| (log.name.clone(), log.latest)).collect();
        found.push(Device { name: name.to_owned(), state, logs });
    }
    Ok(found)
}

fn last(device: &Device) -> String {
    match device.state.clock {
        0 => "nothing yet".into(),
        clock => show::ago(Hlc::from_bits(clock), show::now_us()),
    }
}

fn ls(devices: &[Device], out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(devices.iter().try_for_each(|device| out.object(&json!(device)))?);
    }
    let mut table =
        Table::new(&["device", "records>", "runs>", "given up>", "lost records>", "starts>", "newest entry"]);
    for device in devices {
        let state = &device.state;
        let numbers = [state.records, state.runs, state.dead, state.lost_records, state.starts].map(show::grouped);
        table.row([device.name.clone()].into_iter().chain(numbers).chain([last(device)]).collect());
    }
    if table.is_empty() { Ok(out.line("no device has sent records")?) } else { Ok(out.table(&table)?) }
}

fn show_one(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let missing = || Code::DeviceNotFound.error(format!("no device '{name}' has sent entries to this namespace"));
    let device = all(place)?.into_iter().find(|device| device.name == name).ok_or_else(missing)?;
    if out.json() {
        return Ok(out.object(&json!(device))?);
    }
    let state = &device.state;
    let identity = NamespaceId::new(state.namespace).map_or_else(String::new, |id| id.to_string());
    out.line(format!("device        {name}"))?;
    out.line(format!("identity      {identity}"))?;
    out.line(format!("newest entry  {} of epoch {}, {}", show::grouped(state.sequence), state.epoch, last(&device)))?;
    out.line(format!("records       {}", show::grouped(state.records)))?;
    out.line(format!("runs          {}, and {} given up", show::grouped(state.runs), show::grouped(state.dead)))?;
    out.line(format!("starts        {}", show::grouped(state.starts)))?;
    let (records, entries) = (show::count(state.lost_records, "record"), show::grouped(state.lost_entries));
    out.line(format!(
        "lost          {records}, of {entries} entries that the device had dropped before they were imported"
    ))?;
    for (log, latest) in &device.logs {
        out.line(format!("log           {log}, up to record {latest}"))?;
    }
    Ok(())
}

fn rm(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let Place::Local(namespace) = place else {
        let detail = "a device can be removed only by a command with access to the files of the namespace";
        return Err(Code::CapabilityDenied.error(detail).into());
    };
    devices::remove(namespace, name)?;
    if out.json() {
        return Ok(out.object(&json!({ "device": name, "change": "removed" }))?);
    }
    Ok(out.line(format!("removed device {name}; its logs stay"))?)
}

fn sim(args: &SimArgs) -> Outcome {
    let flash = args.flash.clone().unwrap_or_else(|| format!("{}.flash", args.name).into());
    let mut command = Command::new(&args.program);
    command.arg(flash).args(["--host", &args.host, "--name", &args.name]).args(&args.more);
    let failed = |what: String| Code::Io.error(format!("{}: {what}", args.program.display()));
    let status = command.status().map_err(|error| failed(error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(format!("the device ended with {status}")).into()) }
}
