//! An entry of a journal, as a table stores it: from a scan of the journal itself, or from a host's document.

use millrace_journal::{Entry, Kind, Operation, Row};
use millrace_wire::{EventId, Hlc};

/// What a record of a table says of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedEvent {
    /// A hash of the key: that of another key may be equal.
    pub hash: u64,
    /// The record that has the value in the history since a repair, if the record restates it; 0 if it is of its own.
    pub restates: u64,
    /// Whether it adds to the value before it.
    pub is_sum: bool,
    /// Whether the key has no value from here on.
    pub is_deletion: bool,
}

impl KeyedEvent {
    /// That of a row.
    pub fn of(row: &Row<'_>) -> Self {
        Self::new(row.key, row.operation, row.restates.map_or(0, |restates| restates.seqno))
    }

    /// That of a record which does this to a key.
    pub fn new(key: &[u8], operation: Operation, restates: u64) -> Self {
        let (is_sum, is_deletion) = (operation == Operation::Increment, operation == Operation::Delete);
        Self { hash: hash_of_key(key), restates, is_sum, is_deletion }
    }
}

/// The hash of a key: FNV-1a.
pub fn hash_of_key(key: &[u8]) -> u64 {
    key.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// One entry. A carried entry has the id and the position of its original.
#[derive(Clone, Copy, Debug)]
pub struct Event<'b> {
    /// Its id.
    pub id: EventId,
    /// Where it can be read.
    pub position: u64,
    /// Its kind.
    pub kind: Kind,
    /// When it happened.
    pub hlc: Hlc,
    /// Its cause.
    pub cause: EventId,
    /// The log or function it is about.
    pub subject: u32,
    /// Its number within the subject.
    pub seqno: u64,
    /// Its number among the appends of its run, its attempt, or the origin of a run: see [`Kind`].
    pub ordinal: u16,
    /// Whether it is the copy of an entry whose segment was dropped.
    pub carried: bool,
    /// Whether its cause is only what the client that appended it claims.
    pub claimed: bool,
    /// The repair that wrote it, if it is a shadow entry.
    pub repair: Option<u64>,
    /// Of a shadow APPEND: whether it says that there is no record.
    pub void: bool,
    /// Of an APPEND to a table: its key, and what it says of it. An empty key is not known.
    pub key: Option<(&'b [u8], KeyedEvent)>,
    /// Its payload, or its beginning.
    pub payload: &'b [u8],
    /// The length of the whole payload.
    pub payload_bytes: u64,
}

impl<'b> From<&'b Entry> for Event<'b> {
    fn from(entry: &'b Entry) -> Self {
        Self {
            id: entry.id,
            position: entry.position.get(),
            kind: entry.kind,
            hlc: entry.hlc,
            cause: entry.cause,
            subject: entry.subject,
            seqno: entry.seqno,
            ordinal: entry.ordinal,
            carried: entry.carried,
            claimed: entry.claimed,
            repair: if entry.shadow { entry.repair() } else { None },
            void: entry.shadow && entry.replaced().is_some_and(|replaced| replaced.void),
            key: entry.row().map(|row| (row.key, KeyedEvent::of(&row))),
            payload: &entry.payload,
            payload_bytes: entry.payload.len() as u64,
        }
    }
}
