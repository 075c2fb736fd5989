//! Several records of a log, in JSON or one line of JSON each.

use super::{Rationed, WAIT_MAX_MS, accepts, bytes_of, durability, rationed, tail::parquet, wait_of};
use crate::{
    documents::{Query, invalid, moment},
    http::{
        response::{self, Response, put},
        session::Session,
    },
};
use hyper::{Request, StatusCode, header::HeaderValue};
use millrace_documents::RecordDoc;
use millrace_node::{Record, documents::whole_record};
use millrace_wire::{Code, Result};
use serde::Serialize;
use tokio::time::timeout;

/// The maximum and the default number of records in one answer.
pub(super) const COUNT_MAX: u64 = 10_000;
pub(super) const COUNT: u64 = 100;
/// The maximum length of the records of one answer in bytes; a first record that is longer is returned alone.
pub(super) const RECORDS_MAX_BYTES: usize = 1 << 20;
/// One record per line.
const NDJSON: &str = "application/x-ndjson";

#[derive(Serialize)]
struct Records<'r> {
    log: &'r str,
    incarnation: u32,
    records: Vec<RecordDoc<'r>>,
    next: u64,
}

/// Reads records from a seqno on; if there is none yet, the request may wait for it.
pub(in crate::http) async fn read<B>(
    session: &Session,
    namespace: &str,
    name: &str,
    request: &Request<B>,
) -> Result<Response> {
    if accepts(request.headers(), parquet::PARQUET) {
        return parquet::read(session, namespace, name, request).await;
    }
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let from = query.number("from", 1, u64::MAX)?;
    let at = moment(&mut query, "at")?;
    if from.is_some() && at.is_some() {
        return Err(invalid("'from' and 'at' cannot both be given"));
    }
    let count = query.number("count", 1, COUNT_MAX)?.unwrap_or(COUNT);
    let until = query.number("until", 1, u64::MAX)?.unwrap_or(u64::MAX);
    let wait = wait_of(query.number("wait_ms", 0, WAIT_MAX_MS)?);
    let durability = durability(request.headers(), &mut query)?;
    query.finish()?;
    let access = session.access(namespace)?;
    let log = access.log(name, durability).await?;
    let mut from = match (from, at) {
        (Some(from), _) => from,
        (None, Some(at)) => access.seqno_at(&log, at, durability).await?,
        (None, None) => log.earliest().max(1),
    };
    let count = count.min(until.saturating_sub(from).saturating_add(u64::from(until >= from))) as u32; // at most 10000
    if !wait.is_zero() && log.latest() < from {
        let mut stopped = session.stopped.clone();
        tokio::select! {
            _ = timeout(wait, access.growth(&log, from - 1)) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }
    let (records, _reserved) = loop {
        let held = access.range_of(&log, from, count, RECORDS_MAX_BYTES, durability);
        let Rationed { value, reserved, .. } = rationed(held, |records| bytes_of(records)).await;
        match value {
            // Anyone who asks for the oldest gets what is the oldest by now.
            Err(error) if error.code() == Code::BelowHistory && !names_from(request) => {
                from = log.earliest().max(from + 1)
            }
            read => break (read?, reserved),
        }
    };
    let next = records.last().map_or(from, |last| last.seqno.saturating_add(1));
    let text = match accepts(request.headers(), NDJSON) {
        true => lines(name, &records),
        false => {
            let records = records.iter().map(|record| whole_record(name, record)).collect();
            serde_json::to_vec(&Records { log: name, incarnation: log.id(), records, next })
        }
    };
    let text =
        text.map_err(|error| Code::HostInternal.error(format!("the records cannot be written as JSON: {error}")))?;
    let kind = if accepts(request.headers(), NDJSON) { HeaderValue::from_static(NDJSON) } else { response::JSON };
    let mut response = response::typed(StatusCode::OK, kind, text);
    put(response.headers_mut(), "millrace-next", &next.to_string());
    put(response.headers_mut(), "millrace-incarnation", &log.id().to_string());
    response.headers_mut().insert("vary", HeaderValue::from_static("accept"));
    response.headers_mut().insert("cache-control", HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

fn names_from<B>(request: &Request<B>) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("from=")))
}

fn lines(log: &str, records: &[Record]) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    for record in records {
        serde_json::to_writer(&mut text, &whole_record(log, record))?;
        text.push(b'\n');
    }
    Ok(text)
}
