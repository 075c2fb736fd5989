//! Entries of the journal.

use super::{Bounded, Query, query::invalid};
use millrace_documents::{ErrorDoc, id_text, rfc3339};
use millrace_node::{Namespace, Position, is_secret};
use millrace_wire::{JsonBytes, Result};
use serde::{Serialize, ser::SerializeMap};

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

#[derive(Serialize)]
pub(super) struct Entries {
    entries: Vec<EntryDoc>,
    /// Where the next page begins.
    next: u64,
    tail: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum EntryDoc {
    Damaged { position: u64, error: ErrorDoc },
    Whole(Box<Whole>),
}

#[derive(Serialize)]
struct Whole {
    position: u64,
    kind: &'static str,
    id: Option<String>,
    time: String,
    /// As text: a number of JSON loses digits where numbers are doubles.
    hlc: String,
    cause: Option<String>,
    subject: Option<String>,
    subject_id: u32,
    seqno: u64,
    ordinal: u16,
    last_of_batch: bool,
    carried: bool,
    claimed: bool,
    /// Of a shadow entry, the repair that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<u64>,
    /// The record whose value it restates since a repair; 0 if its key has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    restates: Option<u64>,
    /// Whether it makes its slot void.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    void: bool,
    bytes: usize,
    /// For a long payload, `bytes` is the length, and the rest is its beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    #[serde(flatten)]
    payload: Payload,
}

/// The shown part of a payload; nothing if no client may read it.
enum Payload {
    Shown(Vec<u8>),
    Secret,
}

impl Payload {
    fn of(payload: &[u8], subject: Option<&str>) -> Payload {
        if subject.is_some_and(is_secret) {
            return Payload::Secret;
        }
        let mut length = payload.len().min(PAYLOAD_MAX_BYTES);
        // A text that is cut stays a text.
        while length < payload.len() && payload[length] & 0xC0 == 0x80 && length > PAYLOAD_MAX_BYTES - 4 {
            length -= 1;
        }
        Payload::Shown(payload[..length].into())
    }
}

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Payload::Shown(bytes) => JsonBytes(bytes).serialize(serializer),
            Payload::Secret => serializer.serialize_map(Some(0))?.end(),
        }
    }
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
    pub fn read(self, namespace: &Namespace, check: impl Fn() -> Result<()>) -> Result<Entries> {
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
                Err(error) => EntryDoc::Damaged { position: at.get(), error: (&error).into() },
                Ok(Some(entry)) => {
                    let subject = match entry.kind.name() {
                        "APPEND" | "TRIM" => catalog.log_by_id(entry.subject).map(|log| log.name().to_string()),
                        "TRIGGER" | "FIRED" | "READ" | "DONE" | "CALL" => {
                            catalog.function_by_id(entry.subject).map(|function| function.name().to_string())
                        }
                        _ => None,
                    };
                    let bytes = entry.payload.len();
                    let payload = Payload::of(&entry.payload, subject.as_deref());
                    let shown = match &payload {
                        Payload::Shown(shown) => shown.len(),
                        Payload::Secret => 0,
                    };
                    EntryDoc::Whole(Box::new(Whole {
                        position: entry.position.get(),
                        kind: entry.kind.name(),
                        id: id_text(entry.id),
                        time: rfc3339(entry.hlc),
                        hlc: entry.hlc.get().to_string(),
                        cause: id_text(entry.cause),
                        subject,
                        subject_id: entry.subject,
                        seqno: entry.seqno,
                        ordinal: entry.ordinal,
                        last_of_batch: entry.last,
                        carried: entry.carried,
                        claimed: entry.claimed,
                        repair: if entry.shadow { entry.repair() } else { None },
                        restates: entry.row().and_then(|row| Some(row.restates?.seqno)),
                        void: entry.shadow && entry.replaced().is_some_and(|replaced| replaced.void),
                        bytes,
                        cut: shown < bytes,
                        payload,
                    }))
                }
            };
            if !bounded.admits(&document) {
                break;
            }
            entries.push(document);
            next = scan.position();
        }
        // Behind the last entry there may be free space up to the tail.
        let next = if entries.len() < self.count && scan.position() >= tail { tail } else { next };
        Ok(Entries { entries, next: next.get(), tail: tail.get() })
    }
}
