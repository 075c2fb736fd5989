//! `millrace journal …`: what stands under the logs.

use crate::{
    args::{Global, JournalCommand, JournalShowArgs},
    out::{Out, Style},
    place,
    report::{Failure, Outcome},
    show,
};
use indicatif::{ProgressBar, ProgressStyle};
use millrace_journal::{Catalog, Entry, Kind, Scan};
use millrace_node::{Namespace, Position, application::units};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    io::{self, IsTerminal},
    time::Duration,
};

/// Characters of a payload in the list.
const PAYLOAD_CHARS_MAX: usize = 60;
/// A wait in the kernel is repeated at least so often.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub fn run(command: &JournalCommand, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    match command {
        JournalCommand::Show(args) => show_entries(&namespace, args, out),
        JournalCommand::Check => check(&namespace, out),
    }
}

fn show_entries(namespace: &Namespace, args: &JournalShowArgs, out: &mut Out) -> Outcome {
    let journal = namespace.journal();
    let from = match args.from {
        Some(from) => Position::from_bytes(from),
        None => start_of_last(journal.scan(Position::default()), journal.tail(), args.last),
    };
    let mut scan = journal.scan(from);
    let mut header_due = !out.json();
    loop {
        let tail = journal.tail();
        let catalog = journal.catalog()?;
        while scan.position() < tail {
            let entry = match scan.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // A damaged entry is reported in its place, and what follows is shown all the same.
                Err(error) => {
                    out.flush()?;
                    crate::report::say(&error, out.json());
                    continue;
                }
            };
            if std::mem::take(&mut header_due) {
                let header = row("position", "time", "kind", "id", "subject", "seqno", "cause", "payload");
                let header = out.styled(Style::Dim, &header.to_uppercase());
                out.line(header)?;
            }
            if out.json() { out.object(&object(entry, &catalog))? } else { out.line(line(entry, &catalog))? }
        }
        if !args.follow {
            return Ok(());
        }
        out.flush()?;
        journal.wait(tail, WAIT_MAX);
    }
}

/// Where the newest `count` entries begin. The journal can only be read forwards, so it is read once to count.
fn start_of_last(mut scan: Scan, tail: Position, count: usize) -> Position {
    let mut starts = VecDeque::with_capacity(count.min(1024));
    while scan.position() < tail {
        let at = scan.position();
        match scan.next() {
            Ok(Some(entry)) => starts.push_back(entry.position),
            Ok(None) => break,
            Err(_) => starts.push_back(at),
        }
        if starts.len() > count {
            starts.pop_front();
        }
    }
    starts.front().copied().unwrap_or(tail)
}

/// The name of what an entry is about: a log or a function.
fn subject(entry: &Entry, catalog: &Catalog) -> Option<String> {
    match entry.kind {
        Kind::Append | Kind::Read => catalog.log_by_id(entry.subject).map(|log| log.name().to_string()),
        Kind::Trigger | Kind::Fired | Kind::Done => {
            catalog.function_by_id(entry.subject).map(|function| function.name().to_string())
        }
        _ => None,
    }
}

fn object(entry: &Entry, catalog: &Catalog) -> Value {
    let mut object = json!({
        "position": entry.position.get(), "kind": entry.kind.name(), "id": show::id(entry.id),
        "time": show::rfc3339(entry.hlc), "hlc": entry.hlc.get(), "cause": show::id(entry.cause),
        "subject": subject(entry, catalog), "subject_id": entry.subject, "seqno": entry.seqno, "ordinal": entry.ordinal,
        "last_of_batch": entry.last, "carried": entry.carried, "bytes": entry.payload.len(),
    });
    show::put_data(&mut object, &entry.payload);
    object
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

fn line(entry: &Entry, catalog: &Catalog) -> String {
    let payload = match entry.kind {
        Kind::Trigger => match entry.trigger_record() {
            Some((log, seqno)) => {
                let log = catalog.log_by_id(log).map_or("(removed log)".into(), |log| log.name().to_string());
                format!("for {log} {seqno}")
            }
            None => String::new(),
        },
        _ => show::brief(&entry.payload, PAYLOAD_CHARS_MAX),
    };
    let (position, seqno) = (entry.position.get().to_string(), entry.seqno.to_string());
    let (id, cause) = (entry.id.to_string(), entry.cause.to_string());
    let subject = subject(entry, catalog).unwrap_or_default();
    let line = row(&position, &show::clock(entry.hlc), entry.kind.name(), &id, &subject, &seqno, &cause, &payload);
    line.trim_end().to_string()
}

fn check(namespace: &Namespace, out: &mut Out) -> Outcome {
    let journal = namespace.journal();
    let bar = progress_bar();
    let report = journal.check(&mut |done, total| {
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    })?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let recovery = journal.recovery();
    if out.json() {
        let faults: Vec<Value> =
            report.faults.iter().map(|fault| crate::report::object(fault)["error"].clone()).collect();
        out.object(&json!({
            "sound": report.fault_count == 0, "batches": report.batches, "entries": report.entries, "bytes": report.bytes,
            "fault_count": report.fault_count, "faults": faults,
            "first": journal.first().get(), "tail": journal.tail().get(), "durable": journal.durable().get(),
            "namespace": journal.namespace().to_string(), "epoch": journal.epoch(),
            "recovery": { "scanned": recovery.scanned, "discarded_bytes": recovery.discarded_bytes },
        }))?;
    } else {
        let entries: u64 = report.entries.values().sum();
        let kinds: Vec<String> =
            report.entries.iter().map(|(kind, n)| format!("{kind} {}", show::grouped(*n))).collect();
        out.line(format!("namespace  {} (epoch {})", journal.namespace(), journal.epoch()))?;
        out.line(format!("journal    {} from position {}", units::show_size(report.bytes), journal.first().get()))?;
        out.line(format!("entries    {} in {}", show::grouped(entries), batches(report.batches)))?;
        out.line(format!("kinds      {}", kinds.join(", ")))?;
        if recovery.discarded_bytes > 0 {
            let bytes = units::show_size(recovery.discarded_bytes);
            out.line(format!("recovery   this open discarded {bytes} that were never acknowledged"))?;
        }
        for fault in &report.faults {
            let fault = out.styled(Style::Bad, &format!("damaged    {fault}"));
            out.line(fault)?;
        }
        let verdict = match report.fault_count {
            0 => out.styled(Style::Good, "sound      every checksum, link and index agrees"),
            n => out.styled(Style::Bad, &format!("unsound    {}", show::count(n, "fault"))),
        };
        out.line(verdict)?;
    }
    if report.fault_count == 0 { Ok(()) } else { Err(Failure::Said(1)) }
}

fn batches(n: u64) -> String {
    format!("{} batch{}", show::grouped(n), if n == 1 { "" } else { "es" })
}

fn progress_bar() -> Option<ProgressBar> {
    io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("checking {bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
        ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    })
}
