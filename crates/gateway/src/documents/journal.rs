//! Entries of the journal.

use super::{Bounded, Query, query::invalid};
use millrace_documents::{EntriesDoc, EntryDoc, PayloadDoc};
use millrace_node::{Namespace, Position, documents, is_secret};
use millrace_wire::Result;

/// Most entries of one answer, and how many there are by default.
const COUNT_MAX: u64 = 1000;
const COUNT: u64 = 100;
/// Of a longer payload, this is shown: a document has to fit a frame, and a log has its records whole.
const PAYLOAD_MAX_BYTES: usize = 64 << 10;

/// Which entries are asked for.
pub(super) struct Part {
    from: From,
    count: usize,
    shadows: bool,
}

enum From {
    Position(Position),
    /// The number of the newest entries.
    Last(usize),
}

/// The shown part of a payload; nothing if no client may read it.
fn shown(payload: &[u8], subject: Option<&str>) -> PayloadDoc {
    if subject.is_some_and(is_secret) {
        return PayloadDoc::Secret;
    }
    let mut length = payload.len().min(PAYLOAD_MAX_BYTES);
    // A text that is cut stays a text.
    while length < payload.len() && payload[length] & 0xC0 == 0x80 && length > PAYLOAD_MAX_BYTES - 4 {
        length -= 1;
    }
    PayloadDoc::Shown(payload[..length].into())
}

impl Part {
    pub fn of(query: &mut Query) -> Result<Part> {
        let from = query.number("from", 0, u64::MAX)?;
        let last = query.number("last", 1, COUNT_MAX)?;
        let count = query.number("count", 1, COUNT_MAX)?.unwrap_or(last.unwrap_or(COUNT));
        let from = match (from, last) {
            (Some(_), Some(_)) => return Err(invalid("'from' and 'last' cannot both be given")),
            (from, None) => From::Position(Position::named(from.unwrap_or(0))?),
            (None, Some(last)) => From::Last(last as usize), // at most 1000
        };
        Ok(Part { from, count: count as usize, shadows: query.flag("shadows")? })
    }

    /// Reads the entries; `check` fails once the caller no longer waits.
    pub fn read(self, namespace: &Namespace, check: impl Fn() -> Result<()>) -> Result<EntriesDoc<EntryDoc>> {
        let journal = namespace.journal();
        let (tail, catalog) = (journal.tail(), journal.catalog()?);
        let from = match self.from {
            From::Position(position) => position,
            From::Last(count) => journal.newest(count as u64)?, // at most 1000
        };
        let mut scan = if self.shadows { journal.scan_all(from) } else { journal.scan(from) };
        let (mut entries, mut bounded) = (Vec::new(), Bounded::new());
        let mut next = scan.position();
        while scan.position() < tail && entries.len() < self.count {
            check()?;
            let at = scan.position();
            let document = match scan.next() {
                Ok(None) => break,
                Err(error) => documents::damaged(at, &error),
                Ok(Some(entry)) => documents::entry(entry, &catalog, shown),
            };
            if !bounded.admits(&document) {
                break;
            }
            entries.push(document);
            next = scan.position();
        }
        // Behind the last entry there may be free space up to the tail.
        let next = if entries.len() < self.count && scan.position() >= tail { tail } else { next };
        Ok(EntriesDoc { entries, next: next.get(), tail: tail.get() })
    }
}
