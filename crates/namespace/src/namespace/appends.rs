//! What appends take and return.

use millrace_journal::{Durability, Position};
use millrace_wire::{EventId, Headers, Hlc, protocol::Fence};
use std::time::Duration;

/// How a record is appended.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendOptions<'a> {
    /// A function that this record is to run besides those bound to its log.
    pub function: Option<&'a str>,
    /// When the append counts as done; by default as the namespace says.
    pub durability: Option<Durability>,
    /// What caused it; none from outside.
    pub cause: EventId,
    /// The clock of the caller: the record is dated after it.
    pub clock: Hlc,
    /// The idempotency key: a repeated append with the same key gets the first answer.
    pub key: Option<&'a str>,
    /// A token of a lock: the append is refused if a higher one was used under its name.
    pub fence: Option<Fence<'a>>,
    /// What the caller says beside the bytes.
    pub headers: Option<&'a Headers>,
    /// How long to wait for room while too many runs are pending, before `Busy` is returned.
    pub patience: Duration,
    /// Of a read of a table: the answer shows at least what the answer with this token showed or changed.
    pub after: EventId,
}

/// A record to be appended by [`Namespace::append_many`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// The log's name.
    pub log: String,
    /// The record's bytes.
    pub payload: Vec<u8>,
}

/// What an append returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The record's sequence number in its log.
    pub seqno: u64,
    /// The record's id.
    pub id: EventId,
    /// The end of the batch that holds it.
    pub end: Position,
}
