//! `millrace device dump`: what an image of a device's flash has.

use crate::{args::DumpArgs, out::Out, report::Outcome, show};
use millrace_device::{Event, IDENTITY_MAX_BYTES, Identity, Image, Sector, What};
use millrace_node::{Code, Result};
use serde_json::{Value, json};
use std::{fs::File, io::Read, path::Path};

/// The largest flash, and as much again for what an image may have around it.
const IMAGE_BYTES_MAX: u64 = 4 << 30;
/// How much of a record is printed in a line.
const RECORD_CHARS_MAX: usize = 100;

pub fn run(args: &DumpArgs, out: &mut Out) -> Outcome {
    let bytes = read(&args.image)?;
    let identity = identity(&bytes);
    let image = match Image::read(&bytes) {
        // What `flash-image` made has no sector of a journal before the device starts.
        Err(error) if error.code() == Code::NotANamespace && matches!(identity, Some(Ok(_))) => None,
        Err(error) if error.code() == Code::NotANamespace => {
            return Err(Code::DeviceImageInvalid.error(format!("{}: {}", args.image.display(), error.detail())).into());
        }
        image => Some(image.map_err(|error| error.within(args.image.display()))?),
    };
    if let Some(identity) = &identity {
        print_identity(identity, out)?;
    }
    let Some(image) = image else {
        return match out.json() {
            true => Ok(()),
            false => Ok(out.line("journal       empty: no device has started with this flash")?),
        };
    };
    if args.log.is_none() {
        print_image(&image, out)?;
    }
    if args.sectors {
        return Ok(());
    }
    let (mut records, mut known) = (0, false);
    for event in image.events() {
        let is_wanted = match (&args.log, &event.what) {
            (None, _) => true,
            (Some(wanted), What::Append { log, .. }) => wanted == log,
            _ => false,
        };
        if is_wanted {
            known = true;
            records += u64::from(matches!(event.what, What::Append { .. }));
            print_event(&event, out)?;
        }
    }
    if let (Some(log), false) = (&args.log, known) {
        let logs = image.logs();
        let there = if logs.contains(log) { "has no record of this log" } else { "has no such log" };
        let detail = format!("{}: the image {there} ('{log}'); it has {}", args.image.display(), logs.join(", "));
        return Err(Code::LogNotFound.error(detail).into());
    }
    if !out.json() && args.log.is_none() {
        out.line(format!(
            "{} in {}",
            show::count(records, "record"),
            show::count(image.sectors.len() as u64, "sector")
        ))?;
    }
    Ok(())
}

/// The bytes of an image.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Code::FileUnreadable.error(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > IMAGE_BYTES_MAX {
        let detail =
            format!("{} has more than {IMAGE_BYTES_MAX} bytes; a device's flash has at most 2 GiB", path.display());
        return Err(Code::ValueInvalid.error(detail));
    }
    Ok(bytes)
}

/// The identity at the start of a sector, if there is one; the reason, if every copy is damaged.
fn identity(bytes: &[u8]) -> Option<Result<Identity>> {
    let copies = (0..bytes.len()).step_by(1024).map(|at| &bytes[at..bytes.len().min(at + IDENTITY_MAX_BYTES)]);
    let mut damaged = None;
    for copy in copies.filter(|copy| copy.starts_with(b"MRDI")) {
        match Identity::decode(copy) {
            Ok(identity) => return Some(Ok(identity)),
            Err(error) => damaged = Some(Err(error)),
        }
    }
    damaged
}

/// What may be shown of an identity: neither its key nor its capability.
pub(super) fn identity_object(identity: &Identity) -> Value {
    json!({
        "kind": "identity",
        "device": identity.name,
        "namespace": identity.namespace.to_string(),
        "host": identity.host,
        "capability": identity.token.is_some(),
        "key": identity.key.is_some(),
    })
}

fn print_identity(identity: &Result<Identity>, out: &mut Out) -> Outcome {
    let identity = match identity {
        Ok(identity) => identity,
        Err(error) if out.json() => {
            return Ok(out.object(&json!({ "kind": "identity", "code": error.code().id(), "error": error.detail() }))?);
        }
        Err(error) => return Ok(out.line(format!("identity      damaged: {}", error.detail()))?),
    };
    if out.json() {
        return Ok(out.object(&identity_object(identity))?);
    }
    let host = identity.host.as_deref().unwrap_or("none, for a serial line");
    let token = if identity.token.is_some() { "a capability" } else { "no capability: it sends without encryption" };
    let key = if identity.key.is_some() { "a key" } else { "no key: it does not verify who sends commands" };
    out.line(format!("identity      device {}, namespace {}", identity.name, identity.namespace))?;
    out.line(format!("host          {host}"))?;
    Ok(out.line(format!("secrets       {token}; {key}"))?)
}

fn print_image(image: &Image, out: &mut Out) -> Outcome {
    if let Some(newest) = image.sectors.last() {
        let header = &newest.header;
        let (sectors, bytes) = (header.sectors, header.sector_bytes);
        if out.json() {
            out.object(&json!({
                "kind": "journal", "namespace": header.namespace.to_string(), "sectors": sectors, "sector_bytes": bytes,
                "unit": header.unit, "grain": header.grain, "offset": image.offset, "newest_sector": header.serial,
            }))?;
        } else {
            out.line(format!(
                "journal       namespace {}, {sectors} sectors of {bytes} bytes from 0x{:x} on, {} in use, unit {}, grain {}",
                header.namespace,
                image.offset,
                image.sectors.len(),
                header.unit,
                header.grain
            ))?;
        }
    }
    for sector in &image.sectors {
        print_sector(sector, out)?;
    }
    for (at, why) in &image.damaged {
        match out.json() {
            true => out.object(&json!({ "kind": "damaged", "at": at, "error": why }))?,
            false => out.line(format!("damaged       0x{at:<8x} {why}"))?,
        }
    }
    Ok(())
}

fn print_sector(sector: &Sector, out: &mut Out) -> Outcome {
    let (header, bursts) = (&sector.header, sector.bursts.len() as u64);
    let torn = sector.torn.then_some(sector.end);
    if out.json() {
        return Ok(out.object(&json!({
            "kind": "sector", "serial": header.serial, "at": sector.at, "epoch": header.epoch, "first": header.sequence,
            "bursts": bursts, "bytes": sector.end, "torn_at": torn,
        }))?);
    }
    let torn =
        torn.map_or_else(String::new, |at| format!("; torn: bytes that are no burst follow at 0x{:x}", sector.at + at));
    Ok(out.line(format!(
        "sector {:<6} 0x{:<8x} epoch {}, from entry {} on, {}, {} bytes{torn}",
        header.serial,
        sector.at,
        header.epoch,
        header.sequence,
        show::count(bursts, "burst"),
        show::grouped(sector.end as u64)
    ))?)
}

/// The reason of a start, as `millrace_device.h` numbers them.
fn reason(number: u8) -> &'static str {
    match number {
        1 => "power",
        2 => "brown-out",
        3 => "watchdog",
        4 => "software",
        5 => "reset pin",
        _ => "unknown reason",
    }
}

fn outcome(number: u8) -> &'static str {
    match number {
        0 => "done",
        1 => "dead",
        2 => "cancelled",
        _ => "unknown outcome",
    }
}

/// The number of an error as its code.
fn code(number: Option<u64>) -> Option<String> {
    number.map(|number| format!("MR{number:04}"))
}

fn print_event(event: &Event, out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(out.object(&event_object(event))?);
    }
    let what = match &event.what {
        What::Append { log, seqno, payload, .. } => {
            let cause = if event.cause.is_none() { String::new() } else { format!("  (by {})", event.cause) };
            format!("{log}@{seqno}  {}{cause}", show::brief(payload, RECORD_CHARS_MAX))
        }
        // A run is one line: its end.
        What::Trigger { .. } | What::Read { .. } => return Ok(()),
        What::Fired { attempt: 1, .. } => return Ok(()),
        What::Fired { function, attempt } => format!("run of {function}: attempt {attempt}"),
        What::Done { function, outcome: number, code: error, log, seqno, .. } => {
            let error = code(*error).map_or_else(String::new, |code| format!(" ({code})"));
            format!("run of {function} for {log}@{seqno}: {}{error}", outcome(*number))
        }
        What::Open { reason: number, epoch, lost } => {
            let lost = if *lost > 0 { format!(", {} are torn", show::count(*lost, "byte")) } else { String::new() };
            format!("start, epoch {epoch} ({}){lost}", reason(*number))
        }
        What::Jump { ms } => format!("the clock was set {ms} ms ahead"),
        What::Note { what, body } => note(*what, body),
        What::Missing { to } => {
            format!("entries {} to {to} are damaged or were dropped", event.id.sequence())
        }
    };
    Ok(out.line(format!("{:>8}  {}  {what}", event.id.sequence(), show::rfc3339(event.hlc)))?)
}

fn note(what: u8, body: &[u8]) -> String {
    let name = match what {
        0 => "TRIM",
        1 => "STREAM: a command arrived",
        2 => "KEY",
        3 => "LOST",
        4 => "DAMAGED: entries of the newest sector",
        5 => "SENT",
        6 => "GAP",
        _ => "a note of a later version",
    };
    format!("{name} ({} bytes)", body.len())
}

fn event_object(event: &Event) -> Value {
    let mut object = json!({ "kind": "", "id": show::id(event.id), "time": show::rfc3339(event.hlc), "cause": show::id(event.cause) });
    let kind = match &event.what {
        What::Append { log, seqno, payload, .. } => {
            (object["log"], object["seqno"]) = (json!(log), json!(seqno));
            show::put_data(&mut object, payload);
            "record"
        }
        What::Trigger { function, log, seqno } => {
            (object["function"], object["log"], object["seqno"]) = (json!(function), json!(log), json!(seqno));
            "trigger"
        }
        What::Fired { function, attempt } => {
            (object["function"], object["attempt"]) = (json!(function), json!(attempt));
            "attempt"
        }
        What::Read { function, rows } => {
            (object["function"], object["ranges"]) = (json!(function), json!(rows.len()));
            "read"
        }
        What::Done { function, outcome: number, code: error, log, seqno, .. } => {
            (object["function"], object["log"], object["seqno"]) = (json!(function), json!(log), json!(seqno));
            (object["outcome"], object["code"]) = (json!(outcome(*number)), json!(code(*error)));
            "end"
        }
        What::Open { reason: number, epoch, lost } => {
            (object["epoch"], object["reason"], object["torn_bytes"]) =
                (json!(epoch), json!(reason(*number)), json!(lost));
            "start"
        }
        What::Jump { ms } => {
            object["ms"] = json!(ms);
            "clock"
        }
        What::Note { what, body } => {
            (object["note"], object["bytes"]) = (json!(what), json!(body.len()));
            "note"
        }
        What::Missing { to } => {
            object["to"] = json!(to);
            "missing"
        }
    };
    object["kind"] = json!(kind);
    object
}
