//! Entries of the journal, as documents represent them.

use super::docs::EntriesDoc;
use crate::{report, show};
use millrace_journal::{Catalog, Entry, Journal, Kind};
use millrace_node::{Position, Result};
use serde_json::{Value, json};

/// Entries and bytes of payload read at once.
pub const PAGE_ENTRIES_MAX: usize = 1000;
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this position.
    Position(u64),
    /// This many entries before the end.
    Last(usize),
}

/// A page of entries; shadow entries among them only if they are wanted.
pub fn page(journal: &Journal, start: Start, shadows: bool) -> Result<EntriesDoc> {
    let (tail, catalog) = (journal.tail(), journal.catalog()?);
    let from = match start {
        Start::Position(position) => Position::named(position)?,
        Start::Last(count) => journal.newest(count as u64)?,
    };
    let mut scan = if shadows { journal.scan_all(from) } else { journal.scan(from) };
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while scan.position() < tail && entries.len() < PAGE_ENTRIES_MAX && bytes < PAGE_BYTES_MAX {
        let at = scan.position();
        match scan.next() {
            Ok(Some(entry)) => {
                bytes += entry.payload.len();
                entries.push(object(entry, &catalog));
            }
            Ok(None) => break,
            // A damaged entry is reported in its place, and what follows is shown all the same.
            Err(error) => {
                entries.push(json!({ "position": at.get(), "error": report::object(&error)["error"] }));
            }
        }
    }
    Ok(EntriesDoc { entries, next: scan.position().get(), tail: tail.get() })
}

/// The name of what an entry is about: a log or a function.
fn subject(entry: &Entry, catalog: &Catalog) -> Option<String> {
    match entry.kind {
        Kind::Append | Kind::Trim => catalog.log_by_id(entry.subject).map(|log| log.name().to_string()),
        Kind::Trigger | Kind::Fired | Kind::Read | Kind::Done | Kind::Call => {
            catalog.function_by_id(entry.subject).map(|function| function.name().to_string())
        }
        _ => None,
    }
}

fn object(entry: &Entry, catalog: &Catalog) -> Value {
    let mut object = json!({
        "position": entry.position.get(), "kind": entry.kind.name(), "id": show::id(entry.id),
        "time": show::rfc3339(entry.hlc), "hlc": entry.hlc.get().to_string(), "cause": show::id(entry.cause),
        "subject": subject(entry, catalog), "subject_id": entry.subject, "seqno": entry.seqno, "ordinal": entry.ordinal,
        "last_of_batch": entry.last, "carried": entry.carried, "claimed": entry.claimed, "bytes": entry.payload.len(),
    });
    if let Some(repair) = entry.repair().filter(|_| entry.shadow) {
        object["repair"] = json!(repair);
        object["void"] = json!(entry.replaced().is_some_and(|replaced| replaced.void));
    }
    if let Some(restates) = entry.row().and_then(|row| row.restates) {
        object["restates"] = json!(restates.seqno);
    }
    show::put_data(&mut object, &entry.payload);
    object
}
