//! `millrace journal …`: entries of the journal.

use crate::{
    args::{Global, JournalCommand, JournalShowArgs},
    out::{Out, Style},
    place::{Place, docs::ErrorDoc, entries::Start, remote},
    report::Outcome,
    show,
};
use millrace_journal::{Attempt, End, Outcome as Ended, ReadFrom, ReadRow, Reads, What, trigger_record};
use serde_json::Value;
use std::{borrow::Cow, collections::HashMap, time::Duration};

/// Characters of a payload in the list.
const PAYLOAD_CHARS_MAX: usize = 60;
/// The longest single wait for new entries; `--follow` repeats it.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub fn run(command: &JournalCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        JournalCommand::Show(args) => show_entries(&Place::find(global)?, args, out),
    }
}

fn show_entries(place: &Place, args: &JournalShowArgs, out: &mut Out) -> Outcome {
    let mut start = args.from.map_or(Start::Last(usize::try_from(args.last).unwrap_or(usize::MAX)), Start::Position);
    let mut header_due = !out.json();
    let mut logs = Logs { place, names: HashMap::new() };
    loop {
        let page = place.entries(start)?;
        for entry in &page.entries {
            if let Some(error) = entry.get("error") {
                let error: ErrorDoc = serde_json::from_value(error.clone()).unwrap_or_default();
                out.flush()?;
                crate::report::say(&remote::error(&error), out.json());
                continue;
            }
            if std::mem::take(&mut header_due) {
                let header = row("position", "time", "kind", "id", "subject", "seqno", "cause", "payload");
                let header = out.styled(Style::Dim, &header.to_uppercase());
                out.line(header)?;
            }
            if out.json() { out.object(entry)? } else { out.line(line(entry, &mut logs))? }
        }
        let goes_on = start != Start::Position(page.next) && page.next < page.tail && !page.entries.is_empty();
        start = Start::Position(page.next);
        if goes_on {
            continue;
        }
        if !args.follow {
            return Ok(());
        }
        out.flush()?;
        place.wait_entries(page.tail, WAIT_MAX);
    }
}

/// The names of logs by their ids in entries.
struct Logs<'a> {
    place: &'a Place,
    names: HashMap<u32, String>,
}

impl Logs<'_> {
    fn name(&mut self, id: u32) -> &str {
        if !self.names.contains_key(&id) {
            let logs = self.place.logs().unwrap_or_default();
            self.names.extend(logs.into_iter().map(|log| (log.incarnation, log.name)));
        }
        self.names.entry(id).or_insert_with(|| "(removed log)".into())
    }
}

fn attempt(fired: &Attempt) -> String {
    match fired.waits {
        true => format!("attempt {} has ended; the run waits for its next attempt", fired.attempt),
        false => format!("attempt {}, revision {}", fired.attempt, fired.revision),
    }
}

fn read(row: &ReadRow<'_>, logs: &mut Logs) -> String {
    let log = match row.log {
        ReadFrom::Log(id) => logs.name(id),
        ReadFrom::Name(name) => name,
    };
    let last = row.from.saturating_add(row.count.saturating_sub(1));
    let records = if row.count > 1 { format!("{log} {} to {last}", row.from) } else { format!("{log} {}", row.from) };
    match row.what {
        What::Record => records,
        What::Latest => format!("latest of {records}"),
        What::Absent => format!("{records} (did not exist yet)"),
        What::BelowHistory => format!("{records} (had left the history)"),
        What::Refused(_) => format!("{records} (refused)"),
    }
}

fn end(end: &End<'_>) -> String {
    let first = |text: &str| show::headline(text, PAYLOAD_CHARS_MAX);
    match end.outcome {
        Ended::Done if end.output.is_empty() => "done".into(),
        Ended::Done => format!("done, printed {}", first(end.output)),
        Ended::Dead => format!("failed: {} {}", end.code, first(end.error)),
        Ended::Cancelled => "cancelled".into(),
    }
}

#[expect(clippy::too_many_arguments, reason = "one for each column")]
fn row(
    position: &str,
    time: &str,
    kind: &str,
    id: &str,
    subject: &str,
    seqno: &str,
    cause: &str,
    payload: &str,
) -> String {
    format!("{position:>10}  {time:<12}  {kind:<10}  {id:<20}  {subject:<16}  {seqno:>6}  {cause:<20}  {payload}")
}

fn line(entry: &Value, logs: &mut Logs) -> String {
    let text = |key: &str| entry[key].as_str().unwrap_or("");
    let number = |key: &str| entry[key].as_u64().unwrap_or(0).to_string();
    let bytes = match &entry["base64"] {
        Value::String(base64) => Cow::Owned(show::from_base64(base64).unwrap_or_default()),
        _ => Cow::Borrowed(text("data").as_bytes()),
    };
    let payload = match text("kind") {
        "TRIGGER" => trigger_record(&bytes).map(|(log, seqno)| format!("for {} {seqno}", logs.name(log))),
        "FIRED" => Some(attempt(&Attempt::decode(entry["ordinal"].as_u64().unwrap_or(0) as u16, &bytes))),
        "READ" => Some(Reads::decode(&bytes).map(|row| read(&row, logs)).collect::<Vec<_>>().join(", ")),
        "DONE" => Some(end(&End::decode(&bytes))),
        _ => None,
    };
    let payload = payload.unwrap_or_else(|| show::brief(&bytes, PAYLOAD_CHARS_MAX));
    let time = show::moment(text("time")).map(show::clock).unwrap_or_default();
    let id = |key: &str| entry[key].as_str().unwrap_or("-").to_string();
    let (subject, kind) = (text("subject"), text("kind"));
    let line = row(&number("position"), &time, kind, &id("id"), subject, &number("seqno"), &id("cause"), &payload);
    line.trim_end().to_string()
}
