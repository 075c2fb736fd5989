//! Live output of a namespace: new records, ended runs, their appends and output.
//!
//! It is read from the journal, so it shows what other processes append as well. If there is more output than anyone can read, only
//! failures are shown one by one, and everything else is counted.

use crate::{
    out::{Out, Style},
    report::Outcome,
    show,
};
use millrace_journal::{Catalog, Entry, Journal, Kind, Scan};
use millrace_node::{Ending, EventId, Hlc, LogName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of lines per report, about a screenful.
const LINES_MAX: usize = 40;
/// Maximum number of runs remembered between their trigger and their end; for others, the record and the duration are not printed.
const RUNS_MAX: usize = 100_000;
/// Characters of a record in a line.
const RECORD_CHARS_MAX: usize = 80;
/// Maximum number of printed lines of a run's output; `run show` has all of it.
const OUTPUT_LINES_MAX: usize = 20;

/// A run that has not ended yet.
struct Pending {
    record: String,
    triggered: Hlc,
    appended: Vec<String>,
}

/// Something worth a line.
struct Event {
    text: Vec<(Style, String)>,
    object: Value,
    /// The text after the number of a group of lines: "runs of f done".
    kind: String,
    failure: bool,
}

/// Follows a namespace's journal.
pub struct Live {
    journal: Journal,
    scan: Scan,
    quiet: bool,
    pending: HashMap<EventId, Pending>,
}

impl Live {
    /// Prints events from now on; with `quiet`, failures only.
    pub fn new(journal: &Journal, quiet: bool) -> Self {
        let scan = journal.scan(journal.tail());
        Self { journal: journal.clone(), scan, quiet, pending: HashMap::new() }
    }

    /// Prints the events since the last call; returns whether there were any.
    pub fn tell(&mut self, out: &mut Out) -> Outcome<bool> {
        let tail = self.journal.tail();
        if self.scan.position() >= tail {
            return Ok(false);
        }
        let catalog = self.journal.catalog()?;
        let mut reported = 0;
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        while self.scan.position() < tail {
            let event = match self.scan.next()? {
                None => break,
                Some(entry) => fold(&mut self.pending, entry, &catalog),
            };
            match event {
                None => {}
                Some(Event { failure: false, .. }) if self.quiet => {}
                Some(event) if out.json() => out.object(&event.object)?,
                Some(event) if event.failure || reported < LINES_MAX => {
                    reported += event.text.len();
                    for (style, text) in event.text {
                        let line = out.styled(style, &text);
                        out.line(line)?;
                    }
                }
                Some(event) => *counted.entry(event.kind).or_default() += 1,
            }
        }
        if !counted.is_empty() {
            let parts: Vec<String> = counted.iter().map(|(what, n)| format!("{} {what}", show::grouped(*n))).collect();
            let line = out.styled(Style::Dim, &format!("{:12}  … and {}", "", parts.join(", ")));
            out.line(line)?;
        }
        out.flush()?;
        Ok(true)
    }
}

fn fold(pending: &mut HashMap<EventId, Pending>, entry: &Entry, catalog: &Catalog) -> Option<Event> {
    match entry.kind {
        // Records of the runtime's own logs, such as idempotency keys and the state of links, are no events of the application.
        Kind::Append if entry.cause.is_none() => {
            (!LogName::is_internal(&log_name(entry.subject, catalog))).then(|| arrived(entry, catalog))
        }
        Kind::Append => {
            let record = record(entry, catalog);
            if let Some(run) = pending.get_mut(&entry.cause) {
                run.appended.push(record);
            }
            None
        }
        Kind::Trigger if !entry.carried && pending.len() < RUNS_MAX => {
            let record = entry.trigger_record().map(|(log, seqno)| format!("{} {seqno}", log_name(log, catalog)));
            let run = Pending { record: record.unwrap_or_default(), triggered: entry.hlc, appended: Vec::new() };
            pending.insert(entry.id, run);
            None
        }
        Kind::Done => Some(ended(entry, pending.remove(&entry.cause), catalog)),
        _ => None,
    }
}

fn log_name(id: u32, catalog: &Catalog) -> String {
    catalog.log_by_id(id).map_or("(removed log)".into(), |log| log.name().to_string())
}

fn record(entry: &Entry, catalog: &Catalog) -> String {
    let brief = show::brief(&entry.payload, RECORD_CHARS_MAX);
    format!("{} {}  {brief}", log_name(entry.subject, catalog), entry.seqno)
}

fn arrived(entry: &Entry, catalog: &Catalog) -> Event {
    let log = log_name(entry.subject, catalog);
    let mut object = json!({
        "event": "append", "log": log, "seqno": entry.seqno, "id": show::id(entry.id), "time": show::rfc3339(entry.hlc),
    });
    show::put_data(&mut object, &entry.payload);
    let line = format!("{}  {}", show::clock(entry.hlc), record(entry, catalog));
    Event { text: vec![(Style::Plain, line)], object, kind: format!("appended to {log}"), failure: false }
}

fn ended(entry: &Entry, run: Option<Pending>, catalog: &Catalog) -> Event {
    let function = catalog.function_by_id(entry.subject).map_or("(removed)".into(), |f| f.name().to_string());
    let ending = entry.ending().map(|end| Ending::of(&end)).unwrap_or_default();
    let took = run.as_ref().and_then(|run| show::between(run.triggered, entry.hlc));
    let cause = run.as_ref().map_or_else(String::new, |run| run.record.clone());
    let indent = " ".repeat(14);
    let after = took.as_ref().map_or(String::new(), |took| format!(" after {took}"));
    let head = format!("{}  {function}({cause})", show::clock(entry.hlc));
    let mut text = Vec::new();
    match &ending.dead {
        None => {
            text.push((Style::Good, format!("{head} done{after}")));
            let appended = run.iter().flat_map(|run| &run.appended);
            text.extend(appended.map(|record| (Style::Plain, format!("{indent}-> {record}"))));
        }
        Some(death) => {
            text.push((
                Style::Bad,
                format!("{head} failed for good{after}: {} {}", death.code, first_line(&death.error)),
            ));
            let rest = death.error.lines().skip(1).take(OUTPUT_LINES_MAX);
            text.extend(rest.map(|line| (Style::Bad, format!("{indent}{}", show::one_line(line.as_bytes())))));
            // The dead letter repeats all of this, so its place is enough.
            let dead_letters = run.iter().flat_map(|run| &run.appended).filter_map(|record| record.split("  ").next());
            text.extend(dead_letters.map(|place| (Style::Plain, format!("{indent}-> {place}"))));
        }
    }
    let printed = ending.output.lines().take(OUTPUT_LINES_MAX);
    text.extend(printed.map(|line| (Style::Dim, format!("{indent}| {}", show::one_line(line.as_bytes())))));
    let dead = ending.dead.as_ref();
    let object = json!({
        "event": "run", "run": show::id(entry.cause), "function": function, "state": if dead.is_some() { "dead" } else { "done" },
        "time": show::rfc3339(entry.hlc), "record": cause, "output": ending.output,
        "error": dead.map(|death| json!({ "code": death.code, "detail": death.error })),
    });
    Event { text, object, kind: format!("runs of {function} done"), failure: dead.is_some() }
}

fn first_line(text: &str) -> String {
    show::one_line(text.lines().next().unwrap_or("").as_bytes())
}
