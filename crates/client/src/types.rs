//! Answers, with owned data.

use millrace_wire::{Durability, EventId, Headers, Hlc, protocol};

/// The location of an appended record.
pub type Receipt = protocol::Appended;

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its sequence number in its log.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
    /// When it was appended.
    pub hlc: Hlc,
    /// Its cause.
    pub cause: EventId,
    /// Its bytes.
    pub data: Vec<u8>,
    /// What its client said beside them.
    pub headers: Headers,
}

impl From<&protocol::Record<'_>> for Record {
    fn from(record: &protocol::Record<'_>) -> Self {
        let protocol::Record { seqno, id, hlc, cause, data, headers } = *record;
        // Malformed ones are from a host that is newer than this client.
        let headers = Headers::read(headers).unwrap_or_default();
        Self { seqno, id, hlc, cause, data: data.to_vec(), headers }
    }
}

/// Where to resume reading a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The incarnation of the log; 0 if unknown.
    pub incarnation: u32,
    /// The next record's sequence number.
    pub next: u64,
}

/// Records of one log, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The records.
    pub records: Vec<Record>,
    /// Where to resume after them.
    pub cursor: Cursor,
}

impl From<protocol::Records<'_>> for Batch {
    fn from(records: protocol::Records<'_>) -> Self {
        Self {
            cursor: Cursor { incarnation: records.incarnation, next: records.next },
            records: records.records.iter().map(Record::from).collect(),
        }
    }
}

/// The properties of the host and of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name and version.
    pub host: String,
    /// The namespace's name there.
    pub name: String,
    /// The namespace's identity.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The longest frame that the host takes.
    pub frame_max_bytes: u32,
    /// The longest record that the namespace takes.
    pub record_max_bytes: u32,
    /// How many requests may be unanswered.
    pub requests_max: u32,
    /// The default durability of appends.
    pub durability: Durability,
}
