//! An entry of a journal, as a table stores it: from a scan of the journal itself, or from a host's document.

use millrace_journal::{Entry, Kind};
use millrace_wire::{EventId, Hlc};

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
            payload: &entry.payload,
            payload_bytes: entry.payload.len() as u64,
        }
    }
}
