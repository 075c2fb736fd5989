//! Entries of the journal, as documents represent them.

use super::docs::EntriesDoc;
use millrace_documents::PayloadDoc;
use millrace_journal::Journal;
use millrace_node::{Position, Result, documents};
use serde_json::json;

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
                entries.push(json!(documents::entry(entry, &catalog, |payload, _| PayloadDoc::Shown(payload.into()))));
            }
            Ok(None) => break,
            // A damaged entry is reported in its place, and what follows is shown all the same.
            Err(error) => {
                entries.push(json!(documents::damaged(at, &error)));
            }
        }
    }
    Ok(EntriesDoc { entries, next: scan.position().get(), tail: tail.get() })
}
