//! What a device that is connected tells, as documents: `devices/kitchen/live/raw?seqno=7`.

use super::{Query, invalid, text};
use crate::{
    Hosted,
    wire::{RemoteAnswer, RemoteRequest},
};
use millrace_documents::RecordDoc;
use millrace_node::{Access, Record, devices::commands::COMMAND_MAX_BYTES, documents::whole_record, manage::Managed};
use millrace_wire::{Code, Result};
use serde::Serialize;

/// Records of one request for a range; an answer of a device has about ten.
const COUNT_MAX: u64 = 1000;

/// Records of a device, and where to continue.
#[derive(Serialize)]
struct Records<'r> {
    log: &'r str,
    records: Vec<RecordDoc<'r>>,
    next: u64,
}

#[derive(Serialize)]
struct Newest<'r> {
    log: &'r str,
    latest: u64,
}

/// What the query asks of a log: its newest record, the one with `seqno`, `count` from `from` on, or only the number of the newest (`latest`).
pub(super) fn of(log: String, query: &mut Query) -> Result<RemoteRequest> {
    let seqno = query.number("seqno", 1, u64::MAX)?;
    let from = query.number("from", 1, u64::MAX)?;
    let count = query.number("count", 1, COUNT_MAX)?;
    let latest = query.flag("latest")?;
    match (seqno, from, count, latest) {
        (seqno, None, None, false) => Ok(RemoteRequest::Get { log, seqno: seqno.unwrap_or(0) }),
        (None, Some(from), count, false) => {
            Ok(RemoteRequest::Range { log, from, count: count.unwrap_or(COUNT_MAX) as u32 })
        } // at most 1000
        (None, None, None, true) => Ok(RemoteRequest::Latest { log }),
        _ => Err(invalid("of 'seqno', 'from' and 'latest', only one can be given, and 'count' with 'from'")),
    }
}

pub(super) async fn answer(hosted: &Hosted, access: &Access, device: &str, ask: RemoteRequest) -> Result<String> {
    let log = format!("{device}/{}", ask.log());
    match hosted.devices.ask(access, device, ask).await? {
        RemoteAnswer::Record(record) => text(&whole_record(&log, &record)),
        RemoteAnswer::Records(records, next) => {
            let records = records.iter().map(|record: &Record| whole_record(&log, record)).collect();
            text(&Records { log: &log, records, next })
        }
        RemoteAnswer::Latest(latest) => text(&Newest { log: &log, latest }),
        RemoteAnswer::Appended { .. } => Err(Code::MessageUnexpected.error("a read is answered as an append")),
    }
}

/// Appends a record to a log of a device.
pub(super) async fn append(
    hosted: &Hosted,
    access: &Access,
    device: String,
    log: String,
    data: Vec<u8>,
) -> Result<String> {
    if data.len() > COMMAND_MAX_BYTES {
        let detail = format!("a record of {} bytes for a device; the limit is {COMMAND_MAX_BYTES}", data.len());
        return access.refuse(Code::ValueInvalid.error(detail), None).await;
    }
    match hosted.devices.ask(access, &device, RemoteRequest::Append { log: log.clone(), data }).await? {
        RemoteAnswer::Appended { seqno, id } => text(&Managed::OnDevice { device, log, seqno, id }),
        _ => Err(Code::MessageUnexpected.error("an append is answered as a read")),
    }
}
