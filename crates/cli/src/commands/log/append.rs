//! `millrace log append`: one record, or a stream of them.

use super::transfer::fields::{Fields, compact};
use crate::{
    args::{AppendArgs, Durability as Level},
    out::Out,
    place::{Place, Receipt, docs::AmendmentsDoc},
    report::Outcome,
    show,
};
use indicatif::{ProgressBar, ProgressStyle};
use millrace_node::{
    Address, AppendOptions, Code, Durability, Error, NewRecord, Result,
    application::units,
    repairs::{Amendments, Correction},
};
use millrace_wire::protocol::Fence;
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Read},
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

/// The longest record any namespace takes.
pub const RECORD_MAX_BYTES: usize = 16 << 20;
/// Read at once; what is read together is committed together.
const READ_BYTES: usize = 256 << 10;
/// How long a stream waits for room by default: as long as functions make progress it flows at their speed.
const STREAM_PATIENCE: Duration = Duration::from_secs(30);

pub fn run(place: &Place, args: &AppendArgs, out: &mut Out) -> Outcome {
    let streaming = args.lines || args.ndjson;
    let options = AppendOptions {
        function: args.function.as_deref(),
        key: args.key.as_deref(),
        fence: args.fence.as_deref().map(Fence::parse).transpose()?,
        durability: args.durability.map(durability),
        patience: args.busy_timeout.unwrap_or(if streaming { STREAM_PATIENCE } else { Duration::ZERO }),
        ..AppendOptions::default()
    };
    if let Some(first) = args.amends {
        return amend(place, args, first, out);
    }
    if streaming {
        return Stream::new(args, out).run(place, options);
    }
    let log = args.log.as_deref().unwrap_or_default();
    // A missing log is reported before the user types a record for it.
    if !Address::claims(log) {
        place.bounds(log)?;
    }
    let payload = match &args.data {
        Some(data) => data.as_bytes().to_vec(),
        None => whole_input()?,
    };
    if args.wait {
        if Address::claims(log) {
            let detail = format!("--wait waits only for runs of this namespace, and log '{log}' is in another one");
            return Err(Code::UsageInvalid.error(detail).into());
        }
        let receipt = place.append(log, &payload, options)?;
        return crate::commands::function::invoke::result(place, (log, receipt.seqno), None, args.timeout, out);
    }
    let receipt = place.append(log, &payload, options)?;
    match (args.quiet, out.json()) {
        (true, _) => {}
        (false, true) => out.object(&receipt_object(log, &receipt))?,
        (false, false) => out.line(receipt.seqno.to_string())?,
    }
    // A script gets the number alone. At an address there is a host.
    if Address::claims(log)
        && let Place::Local(_) = place
        && io::stderr().is_terminal()
        && place.host()?.is_none()
    {
        crate::feed::stderr(
            "millrace: the message waits in the outbox, because no host is running (`millrace serve`)\n",
        );
    }
    Ok(())
}

/// Amends a record, or one after the other from the first on.
fn amend(place: &Place, args: &AppendArgs, first: u64, out: &mut Out) -> Outcome {
    let log = args.log.as_deref().unwrap_or_default().parse()?;
    let input = match &args.data {
        Some(data) => data.as_bytes().to_vec(),
        // No line, and not an empty one: this is refused below.
        None if args.lines => {
            whole_input().or_else(|error| if error.code() == Code::InputEmpty { Ok(Vec::new()) } else { Err(error) })?
        }
        None => whole_input()?,
    };
    if args.lines && input.len() > RECORD_MAX_BYTES {
        return Err(Code::UsageInvalid.error("--amends with --lines reads at most 16 MiB").into());
    }
    let corrections = match args.lines {
        true if input.is_empty() => Vec::new(),
        true => {
            let lines = input.strip_suffix(b"\n").unwrap_or(&input).split(|byte| *byte == b'\n');
            (first..).zip(lines).map(|(seqno, line)| Correction { seqno, value: Some(line.to_vec()) }).collect()
        }
        false => vec![Correction { seqno: first, value: Some(input) }],
    };
    let waiting = place.amend(Amendments { log, corrections })?;
    match (args.quiet, out.json()) {
        (true, _) => {}
        (false, true) => out.object(&json!(waiting))?,
        (false, false) => {
            let AmendmentsDoc { log, waiting, count, .. } = &waiting;
            out.line(format!("{waiting} of {count} amendments of log '{log}' wait for a repair"))?;
        }
    }
    Ok(())
}

/// The durability of an append, as the node's type.
pub fn durability(level: Level) -> Durability {
    match level {
        Level::Memory => Durability::Memory,
        Level::Disk => Durability::Disk,
    }
}

fn receipt_object(log: &str, receipt: &Receipt) -> Value {
    json!({ "log": log, "seqno": receipt.seqno, "id": show::id(receipt.id) })
}

fn unreadable(error: &io::Error) -> Error {
    Code::InputUnreadable.error(format!("cannot read standard input: {error}"))
}

/// All of standard input, or as much of it as proves that it is too long. Without a byte it is refused: a command in front of the pipe
/// that fails writes nothing.
pub fn whole_input() -> Result<Vec<u8>> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        eprintln!("millrace: type the record, and end it with Ctrl-D on an empty line");
    }
    let mut payload = Vec::new();
    let limit = RECORD_MAX_BYTES as u64 + 1;
    stdin.by_ref().take(limit).read_to_end(&mut payload).map_err(|error| unreadable(&error))?;
    match payload.is_empty() {
        true => Err(Code::InputEmpty.error("standard input is empty")),
        false => Ok(payload),
    }
}

/// Appends a stream line by line: all lines that could be read at once are committed together, so that a fast producer is batched and a
/// slow one does not wait.
struct Stream<'a> {
    args: &'a AppendArgs,
    out: &'a mut Out,
    progress: Option<ProgressBar>,
    started: Instant,
    line: u64,
    bytes: u64,
    /// Records appended, and the first and last seqno, of each log.
    appended: BTreeMap<String, (u64, u64, u64)>,
}

impl<'a> Stream<'a> {
    fn new(args: &'a AppendArgs, out: &'a mut Out) -> Self {
        // A progress bar would disturb a user who is typing.
        let watched = io::stderr().is_terminal() && !io::stdin().is_terminal() && !args.quiet && !out.json();
        let progress = watched.then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        Self { args, out, progress, started: Instant::now(), line: 0, bytes: 0, appended: BTreeMap::new() }
    }

    fn run(mut self, place: &Place, options: AppendOptions<'_>) -> Outcome {
        let result = self.copy(place, options);
        if let Some(progress) = self.progress.take() {
            progress.finish_and_clear();
        }
        let summary = self.summary();
        result.and(summary)
    }

    fn copy(&mut self, place: &Place, options: AppendOptions<'_>) -> Outcome {
        let mut stdin = io::stdin().lock();
        let mut pending = Vec::new();
        let mut chunk = vec![0; READ_BYTES];
        loop {
            let read = match stdin.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| unreadable(&error))?,
            };
            pending.extend_from_slice(&chunk[..read]);
            let end = match pending.iter().rposition(|byte| *byte == b'\n') {
                _ if read == 0 => pending.len(),
                Some(newline) => newline + 1,
                None if pending.len() > RECORD_MAX_BYTES => pending.len(),
                None => continue,
            };
            self.append(place, &pending[..end], options)?;
            pending.drain(..end);
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Appends whole lines.
    fn append(&mut self, place: &Place, text: &[u8], options: AppendOptions<'_>) -> Outcome {
        let mut records = Vec::new();
        // The log and the line of each record, because records are counted without the blank lines between them.
        let mut origins = Vec::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            self.line += 1;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let record = match self.record(line) {
                Ok(None) => continue,
                Ok(Some(record)) => Ok(record),
                Err(error) => Err(error),
            };
            let wrong = record.is_err();
            origins.extend(record.iter().map(|record| (record.log.clone(), self.line)));
            records.push(record);
            if wrong {
                break;
            }
        }
        self.bytes += text.len() as u64;
        let mut receipts = Vec::with_capacity(origins.len());
        let result = place.append_many(records, options, &mut |batch| receipts.extend_from_slice(batch));
        for ((log, _), receipt) in origins.iter().zip(&receipts) {
            if self.out.json() && !self.args.quiet {
                self.out.object(&receipt_object(log, receipt))?;
            }
            let (count, _, last) = match self.appended.get_mut(log) {
                Some(counts) => counts,
                None => self.appended.entry(log.clone()).or_insert((0, receipt.seqno, 0)),
            };
            *count += 1;
            *last = receipt.seqno;
        }
        if self.out.json() {
            self.out.flush()?;
        }
        if let Some(progress) = &self.progress {
            progress.tick();
            progress.set_message(self.pace());
        }
        // An input error names its line itself.
        let failed_line = origins.get(receipts.len()).map(|(_, line)| *line);
        result.map_err(|error| match failed_line {
            Some(line) => error.within(format!("line {line} of standard input")).into(),
            None => error.into(),
        })
    }

    /// The record of a line; blank lines between objects have none.
    fn record(&self, line: &[u8]) -> Result<Option<NewRecord>> {
        let log = self.args.log.as_deref();
        if self.args.lines {
            return Ok(Some(NewRecord { log: log.unwrap_or_default().into(), payload: line.to_vec() }));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        from_object(line, log)
            .map(Some)
            .map_err(|fault| Code::InputInvalid.error(format!("line {} of standard input: {fault}", self.line)))
    }

    /// How much was appended so far, and how fast.
    fn pace(&self) -> String {
        let records: u64 = self.appended.values().map(|(count, ..)| count).sum();
        let took = self.started.elapsed();
        let per_second = (records as f64 / took.as_secs_f64().max(1e-6)) as u64;
        let (records, size) = (show::count(records, "record"), units::show_size(self.bytes));
        format!("{records}, {size} in {}, {}/s", units::show_duration(took), show::grouped(per_second))
    }

    fn summary(&mut self) -> Outcome {
        if self.args.quiet || self.out.json() {
            return Ok(());
        }
        for (log, (count, first, last)) in &self.appended {
            let records = show::count(*count, "record");
            let span = if count == &1 { format!("{first}") } else { format!("{first} to {last}") };
            self.out.line(format!("{log}: {records}, {span}"))?;
        }
        if self.appended.is_empty() {
            self.out.line("no records")?;
        }
        if io::stderr().is_terminal() {
            eprintln!("{}", self.pace());
        }
        Ok(())
    }
}

/// The record of an object `{"log": …, "data": …}`, or its error.
pub fn from_object(line: &[u8], log: Option<&str>) -> Result<NewRecord, String> {
    let fields: Fields<'_> = match serde_json::from_slice::<&RawValue>(line) {
        Err(error) => return Err(format!("it is not JSON: {error}")),
        Ok(json) => serde_json::from_str(json.get()).map_err(|_| "it is not an object {\"log\": …, \"data\": …}")?,
    };
    // Of a repeated key the last counts.
    let get = |name: &str| fields.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.get());
    let text = |json: &str| serde_json::from_str::<String>(json);
    let log = match get("log").map(text) {
        Some(Ok(log)) => log,
        Some(Err(_)) => return Err("\"log\" is not a string".into()),
        None => log.ok_or("it has no \"log\", and none was given on the command line")?.into(),
    };
    let payload = match (get("data"), get("base64")) {
        (Some(_), Some(_)) => return Err("it has both \"data\" and \"base64\"".into()),
        // Numbers keep their digits.
        (Some(value), None) => text(value).unwrap_or_else(|_| compact(value)).into_bytes(),
        (None, Some(value)) => {
            let value = text(value).map_err(|_| "\"base64\" is not a string")?;
            show::from_base64(&value).ok_or("its \"base64\" is not base64")?
        }
        (None, None) => return Err("it has neither \"data\" nor \"base64\"".into()),
    };
    Ok(NewRecord { log, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(line: &str) -> Result<Vec<u8>, String> {
        from_object(line.as_bytes(), Some("default")).map(|record| record.payload)
    }

    #[test]
    fn objects_carry_text_json_or_bytes() {
        assert_eq!(payload(r#"{"data": "a\nb"}"#).unwrap(), b"a\nb");
        assert_eq!(payload(r#"{"data": {"t":  21.5}}"#).unwrap(), br#"{"t":21.5}"#);
        assert_eq!(payload(r#"{"data": null}"#).unwrap(), b"null");
        assert_eq!(
            payload(r#"{"data": [12345678901234567890123, 21.50, "a \" b"]}"#).unwrap(),
            br#"[12345678901234567890123,21.50,"a \" b"]"#
        );
        assert_eq!(payload(r#"{"base64": "/wA="}"#).unwrap(), b"\xff\x00");
        assert_eq!(from_object(br#"{"data": 1}"#, Some("l")).unwrap().log, "l");
        assert_eq!(from_object(br#"{"data": 1, "log": "k", "seqno": 7}"#, Some("l")).unwrap().log, "k");
    }

    #[test]
    fn lines_that_carry_nothing_say_why() {
        for (line, fault) in [
            ("{", "not JSON"),
            ("3", "not an object"),
            ("{}", "neither"),
            (r#"{"data":1,"base64":""}"#, "both"),
            (r#"{"base64":"%"}"#, "not base64"),
            (r#"{"base64":1}"#, "not a string"),
            (r#"{"log":1,"data":1}"#, "not a string"),
        ] {
            assert!(payload(line).unwrap_err().contains(fault), "{line}");
        }
        assert!(from_object(br#"{"data":1}"#, None).unwrap_err().contains("no \"log\""));
    }
}
