//! `millrace device get` and `device send --live`: requests to a device that is connected, through its host.

use crate::{
    args::{DeviceGetArgs, DeviceSendArgs, Global},
    out::{Out, Style},
    place::{
        Place,
        remote::{Remote, segment},
    },
    report::Outcome,
    show,
};
use millrace_node::{
    Code, EventId, Result,
    manage::{Order, RecordForDevice},
};
use millrace_wire::JsonBytesRead;
use serde::Deserialize;
use serde_json::{Value, json};

/// What is read of a record; the rest is passed on as it is.
#[derive(Deserialize)]
struct DeviceRecord {
    seqno: u64,
    time: String,
    #[serde(flatten)]
    bytes: JsonBytesRead,
}

#[derive(Deserialize)]
struct DevicePart {
    records: Vec<Value>,
    next: u64,
}

#[derive(Deserialize)]
struct Newest {
    latest: u64,
}

#[derive(Deserialize)]
struct Appended {
    seqno: u64,
    id: EventId,
}

pub fn run(args: &DeviceGetArgs, global: &Global, out: &mut Out) -> Outcome {
    let seqno = args.seqno.as_deref().map(super::super::log::parse_seqno).transpose()?;
    let from = args.from.as_deref().map(super::super::log::parse_seqno).transpose()?;
    let host = Place::find(global)?.connect()?;
    let path = format!("devices/{}/live/{}", segment(&args.name), segment(&args.log));
    if args.latest {
        let newest: Value = host.document(&format!("{path}?latest=true"))?;
        if out.json() {
            return Ok(out.object(&newest)?);
        }
        let Newest { latest } = read(newest)?;
        return Ok(out.line(latest.to_string())?);
    }
    if let Some(from) = from {
        return range(&host, &path, (from, args.count), args, out);
    }
    let record: Value = host.document(&seqno.map_or(path.clone(), |seqno| format!("{path}?seqno={seqno}")))?;
    if out.json() {
        return Ok(out.object(&record)?);
    }
    let bytes = bytes(&read::<DeviceRecord>(record)?)?;
    if args.raw {
        return Ok(out.bytes(&bytes)?);
    }
    let text = show::whole(&bytes);
    Ok(out.line(text.strip_suffix('\n').unwrap_or(&text))?)
}

/// An answer of a device has about ten records, so a range takes several.
fn range(host: &Remote, path: &str, (mut from, mut left): (u64, u64), args: &DeviceGetArgs, out: &mut Out) -> Outcome {
    let now_us = show::now_us();
    while left > 0 {
        let DevicePart { records, next } = host.document(&format!("{path}?from={from}&count={}", left.min(1000)))?;
        if records.is_empty() || next <= from {
            break;
        }
        left = left.saturating_sub(records.len() as u64);
        from = next;
        for record in records {
            if out.json() {
                out.object(&record)?;
                continue;
            }
            let record: DeviceRecord = read(record)?;
            let bytes = bytes(&record)?;
            if args.raw {
                out.bytes(&bytes)?;
                out.bytes(b"\n")?;
                continue;
            }
            let time = show::moment(&record.time).map_or_else(String::new, |time| show::ago(time, now_us));
            let when = out.styled(Style::Dim, &format!("{time:>8}"));
            out.line(format!("{}  {when}  {}", record.seqno, show::one_line(&bytes)))?;
        }
    }
    Ok(())
}

fn read<T: for<'de> Deserialize<'de>>(document: Value) -> Result<T> {
    serde_json::from_value(document)
        .map_err(|error| Code::DocumentUnknown.error(format!("what the host says of the device: {error}")))
}

fn bytes(record: &DeviceRecord) -> Result<Vec<u8>> {
    let odd = || Code::DocumentUnknown.error(format!("record {} has no bytes", record.seqno));
    record.bytes.bytes().ok().flatten().ok_or_else(odd)
}

/// Appends a record to a log of the device, which is connected now.
pub fn append(args: &DeviceSendArgs, record: &[u8], global: &Global, out: &mut Out) -> Outcome {
    let host = Place::find(global)?.connect()?;
    let (name, log) = (&args.name, &args.log);
    let Appended { seqno, id } = host.manage(&Order::AppendOnDevice(RecordForDevice::new(name, log, record)))?;
    if out.json() {
        let object = json!({ "device": name, "log": log, "seqno": seqno, "id": id.to_string(), "delivered": true });
        return Ok(out.object(&object)?);
    }
    Ok(out.line(format!("record {seqno} of log {log} is in the flash of {name}; its id is {id}"))?)
}
