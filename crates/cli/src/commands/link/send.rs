//! `millrace device send`: a command for a device.

use crate::{
    args::{DeviceSendArgs, Global},
    out::Out,
    place::{Found, Place},
    report::{Failure, Outcome},
};
use millrace_node::{
    Code, EventId, Result,
    devices::commands::{self, COMMAND_MAX_BYTES, DEAD_COMMANDS, DeadCommand, Fate},
    manage::{Order, RecordForDevice},
};
use serde::Deserialize;
use serde_json::json;
use std::{
    io::{Read, stdin},
    thread,
    time::{Duration, Instant},
};

/// How often it is looked whether the device has the command.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The exit code if the time was over before the device had the command.
const TRY_LATER: u8 = 75;
/// How many of the newest dead letters are looked through for a command.
const DEAD_LOOKED_MAX: u64 = 1000;

#[derive(Deserialize)]
struct Accepted {
    number: u64,
    id: EventId,
}

pub fn run(args: &DeviceSendArgs, global: &Global, out: &mut Out) -> Outcome {
    let record = match &args.record {
        Some(record) => record.clone().into_bytes(),
        None => from_stdin()?,
    };
    if args.live {
        return super::ask::append(args, &record, global, out);
    }
    let (place, began) = (Place::find(global)?, Instant::now());
    let Accepted { number, id } = send(&place, args, &record)?;
    let fate = match args.wait {
        Some(wait) => wait_for(&place, &args.name, number, began + wait).map_err(|error| {
            let detail = format!(
                "command {number} was accepted, and must not be sent again; how it ends cannot be seen: {}",
                error.detail()
            );
            error.code().error(detail)
        })?,
        None => Fate::Waits,
    };
    let (name, log) = (&args.name, &args.log);
    match fate {
        Fate::Refused(refusal) => {
            let code = Code::from_id(&refusal.code).unwrap_or(Code::HostCodeUnknown);
            return Err(code
                .error(format!("device '{name}' did not take command {number}: {}", refusal.detail))
                .into());
        }
        Fate::Waits | Fate::Delivered => {}
    }
    let is_delivered = fate == Fate::Delivered;
    if out.json() {
        let id = id.to_string();
        let object = json!({ "device": name, "log": log, "number": number, "id": id, "delivered": is_delivered });
        out.object(&object)?;
    } else {
        let said = if is_delivered { format!("is in the flash of {name}") } else { format!("waits for {name}") };
        out.line(format!("command {number} {said}; its id is {id}"))?;
    }
    // No error: sent again, the device would get it twice.
    if args.wait.is_some() && !is_delivered { Err(Failure::Said(TRY_LATER)) } else { Ok(()) }
}

fn from_stdin() -> Result<Vec<u8>> {
    let mut record = Vec::new();
    // One byte more than is possible is refused with the limit.
    let read = stdin().lock().take(COMMAND_MAX_BYTES as u64 + 1).read_to_end(&mut record);
    read.map_err(|error| Code::Io.error(format!("cannot read standard input: {error}")))?;
    Ok(record)
}

fn send(place: &Place, args: &DeviceSendArgs, record: &[u8]) -> Result<Accepted> {
    match place {
        Place::Local(namespace) => {
            let sent = commands::send(namespace, &args.name, &args.log, record)?;
            namespace.journal().sync(sent.end)?;
            Ok(Accepted { number: sent.value.number, id: sent.value.id })
        }
        Place::Remote(remote, _) => {
            remote.manage(&Order::SendCommand(RecordForDevice::new(&args.name, &args.log, record)))
        }
    }
}

/// What a command came to, by a time.
fn wait_for(place: &Place, device: &str, number: u64, until: Instant) -> Result<Fate> {
    let log = commands::log_of(device)?;
    loop {
        let found = place.log(&log)?;
        // What is delivered or refused is trimmed.
        if found.records == 0 || found.earliest > number {
            return fate_of(place, device, number);
        }
        if Instant::now() >= until {
            return Ok(Fate::Waits);
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn fate_of(place: &Place, device: &str, number: u64) -> Result<Fate> {
    let Some(dead) = place.logs()?.into_iter().find(|log| log.name == DEAD_COMMANDS && log.records > 0) else {
        return Ok(Fate::Delivered);
    };
    let mut fate = Fate::Delivered;
    let from = dead.earliest.max(dead.latest.saturating_sub(DEAD_LOOKED_MAX));
    let read = place.read(DEAD_COMMANDS, from, dead.latest, &mut |_, found| {
        if let Found::Record(record) = found
            && let Ok(letter) = serde_json::from_slice::<DeadCommand>(&record.payload)
            && (&*letter.device, letter.number) == (device, number)
        {
            fate = Fate::Refused(letter.refusal);
        }
        Ok(())
    });
    read.map_err(|_| Code::DocumentUnknown.error(format!("log '{DEAD_COMMANDS}' cannot be read")))?;
    Ok(fate)
}
