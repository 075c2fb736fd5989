//! Records of a log as a file in Parquet, which is written as the client reads it.

use crate::{
    documents::{Query, invalid, moment},
    http::{
        ParquetWriter,
        api::{Rationed, bytes_of, durability, rationed},
        connection::watched::Activity,
        response::{Content, Response, put},
        session::Session,
    },
    memory::{self, Reservation},
};
use futures_util::stream;
use hyper::{
    Request,
    body::Bytes,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, VARY},
};
use millrace_documents::observed_us;
use millrace_node::{Access, Durability, Log, Namespace, Resource, Right, TimeField};
use millrace_wire::{Code, Error, Result};
use std::sync::Arc;
use tokio::sync::watch;

/// The media type.
pub(in crate::http) const PARQUET: &str = "application/vnd.apache.parquet";
/// A row group has this number of bytes: they are in memory, besides one step.
const GROUP_BYTES: usize = 1 << 20;
/// Records read at once, and bytes of them unless one alone has more.
const STEP_RECORDS: u32 = 1024;
const STEP_BYTES: usize = 256 << 10;

struct Rows {
    access: Access,
    log: Log,
    next: u64,
    /// The last record.
    until: u64,
    durability: Option<Durability>,
    time: Option<TimeField>,
    /// None once the end is written.
    writer: Option<ParquetWriter<Vec<u8>>>,
    stopped: watch::Receiver<bool>,
    activity: Arc<Activity>,
    /// Memory for the group that is being written, and for what was sent last.
    _group: Option<Reservation>,
    reserved: Option<Reservation>,
}

/// Sends the records of a log from one to another, by default all that there are now.
pub(in crate::http) async fn read<B>(
    session: &Session,
    namespace: &str,
    name: &str,
    request: &Request<B>,
) -> Result<Response> {
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let (from, until) = (query.number("from", 1, u64::MAX)?, query.number("until", 1, u64::MAX)?);
    let count = query.number("count", 1, u64::MAX)?;
    let at = moment(&mut query, "at")?;
    if from.is_some() && at.is_some() {
        return Err(invalid("'from' and 'at' cannot both be given"));
    }
    let durability = durability(request.headers(), &mut query)?;
    query.finish()?;
    let access = session.access(namespace)?;
    let log = access.log(name, durability).await?;
    let from = match (from, at) {
        (Some(from), _) => from,
        (None, Some(at)) => access.seqno_at(&log, at, durability).await?,
        (None, None) => log.earliest().max(1),
    };
    // One that is below the history is refused before anything is sent.
    if log.latest() >= from {
        access.range_of(&log, from, 1, 1, durability).await?;
    }
    let last = count.map_or(u64::MAX, |count| from.saturating_add(count - 1));
    let until = until.unwrap_or(u64::MAX).min(last).min(log.latest());
    let of_log = log.clone();
    let look = move |namespace: &Namespace| namespace.time_field(&of_log);
    let time = access.inspect_with(Right::Read, Resource::log(name), look).await?;
    let writer = ParquetWriter::new(Vec::new(), time.is_some(), GROUP_BYTES).map_err(failed)?;
    let rows = Rows {
        access,
        log,
        next: from,
        until,
        durability,
        time,
        writer: Some(writer),
        stopped: session.stopped.clone(),
        activity: session.activity.clone(),
        _group: Reservation::of(GROUP_BYTES + STEP_BYTES)?,
        reserved: None,
    };
    let account = memory::current();
    let parts = stream::unfold(rows, move |mut rows| {
        account.clone().within(async move {
            match rows.part().await {
                Ok(Some(part)) => Some((part, rows)),
                Ok(None) => None,
                // The file has no end, so nobody takes it for whole.
                Err(error) => {
                    let code = error.code().id();
                    tracing::warn!(target: "requests", code, "records in Parquet end too early: {}", error.detail());
                    None
                }
            }
        })
    });
    let mut response = hyper::Response::new(Content::stream(parts));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PARQUET));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    put(headers, "millrace-next", &until.saturating_add(1).max(from).to_string());
    Ok(response)
}

impl Rows {
    /// The next bytes; none at the end.
    async fn part(&mut self) -> Result<Option<Bytes>> {
        self.reserved = None;
        loop {
            let Some(writer) = &mut self.writer else { return Ok(None) };
            let written = std::mem::take(writer.inner());
            if !written.is_empty() {
                return self.send(written).await.map(Some);
            }
            if *self.stopped.borrow() {
                return Err(Code::HostStopping.error("the host is stopping"));
            }
            if self.next > self.until {
                let writer = self.writer.take().expect("it was there");
                let written = writer.end().map_err(failed)?;
                return self.send(written).await.map(Some);
            }
            self.step().await?;
        }
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<Bytes> {
        loop {
            match Reservation::of(bytes.len()) {
                Ok(reserved) => {
                    self.reserved = reserved;
                    self.activity.answers(bytes.len() as u64);
                    return Ok(bytes.into());
                }
                Err(_) => memory::room_for(bytes.len()).await?,
            }
        }
    }

    async fn step(&mut self) -> Result<()> {
        let count = (self.until - self.next).saturating_add(1).min(STEP_RECORDS.into()) as u32; // at most 1024
        let held = self.access.range_of(&self.log, self.next, count, STEP_BYTES, self.durability);
        let Rationed { value, reserved: _reserved, bytes } = rationed(held, |records| bytes_of(records)).await;
        let records = match value {
            Err(error) if error.code() == Code::HttpMemoryShort => return memory::room_for(bytes).await,
            records => records?,
        };
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for record in records.iter().filter(|record| record.seqno <= self.until) {
            let observed = self.time.as_ref().and_then(|time| observed_us(&record.payload, time));
            writer.put(record, observed).map_err(failed)?;
        }
        // Nothing is left if what follows is void.
        self.next = records.last().map_or(self.until, |last| last.seqno).saturating_add(1);
        Ok(())
    }
}

fn failed(error: std::io::Error) -> Error {
    Code::HostInternal.error(format!("records cannot be written as Parquet: {error}"))
}
