//! A namespace that is reached through its host.
//!
//! A command sends one request after the other, so its own thread writes and reads the socket.

use super::{
    Found, Receipt, check_incarnation,
    docs::{
        AmendmentsDoc, ChangesDoc, EntriesDoc, FailuresDoc, FunctionDoc, LinkDoc, LinksDoc, LogDoc, ObjectDoc,
        ObjectsDoc, OutputDoc, RepairDoc, RunDoc, RunsDoc, WhyDoc, state_word,
    },
    entries::Start,
};
use crate::report::Outcome;
use millrace_client::{
    AppendOptions as Asked, Options, Wait,
    blocking::{Client, Pipeline},
};
use millrace_node::{
    AppendOptions, Code, Error, EventId, Hlc, HostStatus, Name, NewRecord, RETRY_AFTER_MS, Record, Result, RunFilter,
    devices::{Device, DevicesDoc, RefusedDevice},
    repairs::Ask,
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    fmt::Write,
    thread,
    time::{Duration, Instant},
};

/// Records of one request, at most; the protocol's bound for appends.
const BATCH_RECORDS_MAX: usize = 1024;
/// Bytes of one request, about; well within a frame. A single longer record goes alone.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Most runs that a host lists at once.
const RUNS_MAX: usize = 1000;
/// The interval for polling events that the host does not push.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A connection.
pub struct Remote {
    client: Client,
}

/// How to connect.
pub fn options() -> Options {
    Options { name: concat!("millrace/", env!("CARGO_PKG_VERSION")).into(), ..Options::default() }
}

#[derive(Deserialize)]
struct Logs {
    logs: Vec<LogDoc>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Functions {
    functions: Vec<FunctionDoc>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Repairs {
    repairs: Vec<RepairDoc>,
    #[serde(default)]
    amendments: Vec<AmendmentsDoc>,
    #[serde(default)]
    next: Option<u64>,
}

#[derive(Deserialize)]
struct Status {
    host: Option<HostStatus>,
}

/// A name as a segment of a path, or as a value of a query.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

impl Remote {
    pub fn connect(place: &millrace_client::Place, options: &Options) -> Result<Self> {
        Ok(Self { client: Client::connect(place, options)? })
    }

    /// The connection itself.
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn document<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let text = self.client.show(path)?;
        serde_json::from_str(&text)
            .map_err(|error| Code::DocumentUnknown.error(format!("the host's document '{path}': {error}")))
    }

    /// Appends in flight, over a connection of their own.
    pub fn pipeline(&self, window: u32) -> Result<Pipeline> {
        self.client.pipeline(window)
    }

    /// All items of a list that comes in parts.
    fn list<T: DeserializeOwned, I>(
        &self,
        path: &str,
        mut part: impl FnMut(T) -> (Vec<I>, Option<String>),
    ) -> Result<Vec<I>> {
        let (mut items, mut asked) = (Vec::new(), path.to_owned());
        loop {
            let (more, next) = part(self.document(&asked)?);
            items.extend(more);
            let Some(next) = next else { return Ok(items) };
            let sign = if path.contains('?') { '&' } else { '?' };
            asked = format!("{path}{sign}after={}", segment(&next));
        }
    }

    /// All devices, and those that are refused.
    pub fn devices(&self) -> Result<(Vec<Device>, Vec<RefusedDevice>)> {
        let mut refused = Vec::new();
        let devices = self.list("devices", |page: DevicesDoc| {
            refused = page.refused;
            (page.devices, page.next)
        })?;
        Ok((devices, refused))
    }

    pub fn logs(&self) -> Result<Vec<LogDoc>> {
        self.list("logs?newest=true", |list: Logs| (list.logs, list.next))
    }

    pub fn ask_repair<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T> {
        let text = self.client.repair(&ask.text()?)?;
        serde_json::from_str(&text).map_err(|error| Code::DocumentUnknown.error(format!("the host's repair: {error}")))
    }

    pub fn repairs(&self) -> Result<Vec<RepairDoc>> {
        self.list("repairs", |list: Repairs| (list.repairs, list.next.map(|next| next.to_string())))
    }

    pub fn amendments(&self) -> Result<Vec<AmendmentsDoc>> {
        Ok(self.document::<Repairs>("repairs")?.amendments)
    }

    pub fn repair(&self, number: u64) -> Result<RepairDoc> {
        self.document(&format!("repairs/{number}"))
    }

    pub fn repair_changes(&self, number: u64, log: Option<&str>, after: u64) -> Result<ChangesDoc> {
        let of_log = log.map(|log| format!("&log={}", segment(log))).unwrap_or_default();
        self.document(&format!("repairs/{number}/diff?after={after}{of_log}"))
    }

    pub fn log(&self, name: &str) -> Result<LogDoc> {
        self.document(&format!("logs/{}", segment(name)))
    }

    pub fn bounds(&self, log: &str) -> Result<(u64, u64)> {
        let LogDoc { earliest, latest, .. } = self.log(log)?;
        Ok((earliest, latest))
    }

    pub fn create_log(&self, name: &str, history: u64) -> Result<bool> {
        let existed = match self.log(name) {
            Ok(_) => true,
            Err(error) if error.code() == Code::LogNotFound => false,
            Err(error) => return Err(error),
        };
        self.client.create_log(name, history)?;
        Ok(existed)
    }

    pub fn remove_log(&self, name: &str) -> Result<()> {
        self.client.remove_log(name)
    }

    pub fn append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
        let receipt = self.patiently(options.patience, || self.client.append(log, data, asked(&options)))?;
        Ok(Receipt { seqno: receipt.seqno, id: receipt.id })
    }

    /// Asks again while the host is busy and patience lasts.
    pub fn patiently<T>(&self, patience: Duration, ask: impl Fn() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            match ask() {
                Err(error) if error.code() == Code::Busy && start.elapsed() < patience => {
                    let after_ms = error.retry_after_ms().unwrap_or(RETRY_AFTER_MS);
                    thread::sleep(Duration::from_millis(after_ms.into()).min(patience));
                }
                answer => return answer,
            }
        }
    }

    pub fn append_many(
        &self,
        records: Vec<Result<NewRecord>>,
        options: AppendOptions<'_>,
        progress: &mut dyn FnMut(&[Receipt]),
    ) -> Result<()> {
        let mut batch: Vec<NewRecord> = Vec::new();
        let mut bytes = 0;
        let mut end = Ok(());
        for record in records {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    end = Err(error);
                    break;
                }
            };
            let full = batch.len() == BATCH_RECORDS_MAX || bytes + record.payload.len() > BATCH_BYTES_MAX;
            if full && !batch.is_empty() {
                self.append_batch(&batch, options, progress)?;
                batch.clear();
                bytes = 0;
            }
            bytes += record.payload.len();
            batch.push(record);
        }
        self.append_batch(&batch, options, progress)?;
        end
    }

    /// Appends a batch at once; where there is room for a part of it only, in several.
    fn append_batch(
        &self,
        mut batch: &[NewRecord],
        options: AppendOptions<'_>,
        progress: &mut dyn FnMut(&[Receipt]),
    ) -> Result<()> {
        // Only single appends name a function.
        let mut most = if options.function.is_some() { 1 } else { batch.len() };
        while !batch.is_empty() {
            let part = &batch[..most.min(batch.len())];
            let appended = match part {
                [only] => self.append(&only.log, &only.payload, options).map(|receipt| vec![receipt]),
                part => {
                    let records: Vec<(&str, &[u8])> =
                        part.iter().map(|record| (&*record.log, &*record.payload)).collect();
                    let receipts = self.client.append_many(&records, asked(&options));
                    let receipt = |receipt: millrace_client::Receipt| Receipt { seqno: receipt.seqno, id: receipt.id };
                    receipts.map(|receipts| receipts.into_iter().map(receipt).collect())
                }
            };
            match appended {
                Ok(receipts) => {
                    progress(&receipts);
                    batch = &batch[part.len()..];
                }
                Err(error) if part.len() > 1 && matches!(error.code(), Code::Busy | Code::BatchTooLarge) => {
                    most = part.len() / 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn get(&self, log: &str, seqno: u64) -> Result<Record> {
        if seqno == 0 {
            return Err(Code::SeqnoInvalid.error(format!("log '{log}' has no record 0")));
        }
        self.client.get(log, seqno, Wait::default()).map(record)
    }

    pub fn newest(&self, log: &str) -> Result<Record> {
        self.client.get(log, 0, Wait::default()).map(record)
    }

    pub fn incarnation(&self, log: &str) -> Result<Option<u32>> {
        Ok(Some(self.log(log)?.incarnation).filter(|incarnation| *incarnation != 0))
    }

    /// Fails if the log is not this one now.
    fn still_is(&self, log: &str, incarnation: Option<u32>) -> Result<()> {
        incarnation.map_or(Ok(()), |_| check_incarnation(log, incarnation, self.incarnation(log)?))
    }

    pub fn read(
        &self,
        log: &str,
        incarnation: Option<u32>,
        (from, to): (u64, u64),
        visit: &mut dyn FnMut(u64, Found) -> Outcome,
    ) -> Outcome {
        let mut next = from;
        while next <= to {
            let count = u32::try_from(to - next + 1).unwrap_or(u32::MAX).min(BATCH_RECORDS_MAX as u32);
            let read = self.client.range(log, next, count, None);
            match &read {
                Ok(batch) => check_incarnation(log, incarnation, Some(batch.cursor.incarnation))?,
                Err(_) => self.still_is(log, incarnation)?,
            }
            match read {
                // Repairs took away what there is from here on.
                Ok(batch) if batch.records.is_empty() && self.bounds(log)?.1 >= next => return Ok(()),
                Ok(batch) if batch.records.is_empty() => {
                    let detail = format!("record {next} of log '{log}' has left the log's history");
                    return Err(Code::AboveTail.error(detail).into());
                }
                Ok(batch) => {
                    for record in batch.records.into_iter().map(record).take_while(|record| record.seqno <= to) {
                        next = record.seqno + 1;
                        visit(record.seqno, Found::Record(record))?;
                    }
                }
                Err(error) if error.code() == Code::BelowHistory => {
                    let earliest = self.bounds(log)?.0;
                    let missed = earliest.clamp(next + 1, to.saturating_add(1).max(next + 1)) - next;
                    visit(next, Found::Missed(missed))?;
                    next += missed;
                }
                // One of them is; those before it are read one by one.
                Err(error) if error.code() == Code::EntryDamaged => {
                    let got = self.get(log, next);
                    self.still_is(log, incarnation)?;
                    match got {
                        Ok(record) => visit(next, Found::Record(record))?,
                        Err(error) if error.code() == Code::EntryDamaged => visit(next, Found::Damaged(error))?,
                        Err(error) => return Err(error.into()),
                    }
                    next += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub fn wait_above(&self, log: &str, seen: u64, timeout: Duration) -> Result<u64> {
        self.client.latest(log, seen, Wait::ms(millis(timeout)))
    }

    pub fn functions(&self) -> Result<Vec<FunctionDoc>> {
        self.list("functions", |list: Functions| (list.functions, list.next))
    }

    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunDoc>> {
        Ok(self.runs_page(filter)?.runs)
    }

    pub fn runs_page(&self, filter: &RunFilter) -> Result<RunsDoc> {
        let mut path = format!("runs?limit={}", filter.limit.clamp(1, RUNS_MAX));
        let function = filter.function.as_ref().map(|function| ("function", segment(function)));
        let log = filter.log.as_ref().map(|log| ("log", segment(log)));
        let state = filter.state.map(|state| ("state", state_word(state).to_string()));
        let before = filter.before.map(|before| ("before", before.to_string()));
        for (name, value) in function.into_iter().chain(log).chain(state).chain(before) {
            let _ = write!(path, "&{name}={value}");
        }
        let mut page: RunsDoc = self.document(&path)?;
        page.runs.truncate(filter.limit);
        Ok(page)
    }

    pub fn run(&self, id: EventId) -> Result<RunDoc> {
        self.document(&format!("runs/{id}"))
    }

    pub fn output(&self, id: &str, from: u64) -> Result<OutputDoc> {
        self.document(&format!("runs/{}/output?from={from}", segment(id)))
    }

    pub fn failures(&self, since: Option<Hlc>, function: Option<&Name>) -> Result<FailuresDoc> {
        let since = since.map(|since| format!("since={}", segment(&crate::show::rfc3339(since))));
        let function = function.map(|function| format!("function={}", segment(function)));
        let query: Vec<String> = since.into_iter().chain(function).collect();
        self.document(&format!("failures?{}", query.join("&")))
    }

    pub fn wait_run(&self, id: EventId, timeout: Duration) -> Result<RunDoc> {
        let start = Instant::now();
        loop {
            let run = self.run(id)?;
            let left = timeout.saturating_sub(start.elapsed());
            if run.ended.is_some() || left.is_zero() {
                return Ok(run);
            }
            thread::sleep(left.min(ASK_EVERY));
        }
    }

    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let functions = self.functions()?;
            let busiest = functions.iter().filter(|f| f.pending > 0).max_by_key(|function| function.pending);
            let Some(FunctionDoc { name, pending, .. }) = busiest else { return Ok(()) };
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let time_ms = timeout.as_millis();
                let detail = format!("after {time_ms} ms, {pending} runs of function '{name}' are pending");
                return Err(Code::WaitTimeout.error(detail));
            }
            thread::sleep(left.min(ASK_EVERY));
        }
    }

    pub fn why(&self, target: &str) -> Result<WhyDoc> {
        if target.is_empty() { self.document("why") } else { self.document(&format!("why/{}", segment(target))) }
    }

    pub fn host(&self) -> Result<Option<HostStatus>> {
        self.document::<Status>("status").map(|status| status.host)
    }

    /// Outboxes and relays; none if the host does not report them.
    pub fn links(&self) -> Result<Vec<LinkDoc>> {
        match self.list("links", |list: LinksDoc| (list.links, list.next)) {
            Ok(links) => Ok(links),
            Err(error) if error.code() == Code::HttpPathUnknown => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The shared objects of the host.
    pub fn objects(&self) -> Result<Vec<ObjectDoc>> {
        self.list("objects", |list: ObjectsDoc| (list.objects, list.next))
    }

    pub fn object(&self, key: &str) -> Result<ObjectDoc> {
        self.document(&format!("objects/{}", segment(key)))
    }

    pub fn entries(&self, start: Start, shadows: bool) -> Result<EntriesDoc> {
        let part = match start {
            Start::Position(position) => format!("from={position}&count={}", super::entries::PAGE_ENTRIES_MAX),
            Start::Last(count) => format!("last={count}"),
        };
        let shadows = if shadows { "&shadows=true" } else { "" };
        self.document(&format!("journal?{part}{shadows}"))
    }

    /// Returns after the time, or a short pause, because the host does not push entries.
    pub fn pause(&self, timeout: Duration) {
        thread::sleep(timeout.min(ASK_EVERY));
    }
}

fn asked<'a>(options: &AppendOptions<'a>) -> Asked<'a> {
    let AppendOptions { durability, function, key, fence, cause, .. } = *options;
    Asked { durability, function, key, fence, cause, ..Asked::default() }
}

fn record(record: millrace_client::Record) -> Record {
    let millrace_client::Record { seqno, id, hlc, cause, data, headers } = record;
    Record { seqno, id, hlc, cause, payload: data, headers }
}

/// The error of a document, as the host meant it.
pub fn error(doc: &super::docs::ErrorDoc) -> Error {
    let code = Code::from_id(&doc.code).unwrap_or(Code::EntryDamaged);
    code.error(doc.detail.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_segments() {
        assert_eq!(segment("raw/kitchen.1"), "raw%2Fkitchen.1");
        assert_eq!(segment("ä ?&"), "%C3%A4%20%3F%26");
    }
}
