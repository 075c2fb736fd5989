// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Links between hosts.

use crate::{EventId, Hlc, protocol::Message};
use serde::{Deserialize, Serialize};

/// Opens a stream into the connection's namespace. Its request number names the stream in DELIVER. Answered with [`super::Linked`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link<'b> {
    /// The stream's name, unique within the sending namespace.
    pub stream: &'b str,
    /// The identity of that namespace.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The log that all items go to; none if each names its own.
    pub target: Option<&'b str>,
    /// The logs that the stream's items passed through, the farthest first.
    pub path: Vec<PathStep>,
    /// The life of the sending namespace; none from a version that counts none.
    pub life: Option<Life>,
    /// The life in the answer to an earlier request is none of the sender's: the receiver has records of another copy of the namespace.
    pub forked: bool,
}

impl Message for Link<'_> {
    const TYPE: u8 = 48;
}

/// The answer to [`super::Link`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The number of the last committed item; 0 if none.
    pub number: u64,
    /// The receiving namespace's identity.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The life of the sending namespace in which that item was sent, if it is known.
    pub life: Option<Life>,
}

impl Message for Linked {
    const TYPE: u8 = 49;
}

/// The next items of a stream. Answered with [`super::Delivered`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deliver<'b> {
    /// The request number of its LINK.
    pub link: u64,
    /// The number of the first item; the others follow without gap.
    pub first: u64,
    /// Items before the first one were lost at the source.
    pub gap: bool,
    /// The items.
    pub items: Vec<Item<'b>>,
}

impl Message for Deliver<'_> {
    const TYPE: u8 = 50;
}

/// Everything up to this number is committed and durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The number of the last item that is committed.
    pub number: u64,
    /// Why the next one was refused.
    pub refused: Option<Refused>,
}

impl Message for Delivered {
    const TYPE: u8 = 51;
}

/// The batches that changed any of these tables behind an entry of the journal, in order. If there is none yet, the answer comes when there
/// is one, or after a while. Answered with [`super::TableBatches`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowTables<'b> {
    /// The tables, at most 64; read on each is required.
    pub tables: Vec<&'b str>,
    /// The entry behind which to begin, as `upto` of an earlier answer; missing for the newest.
    pub after: EventId,
    /// How long the host waits for a batch.
    pub wait_ms: u32,
}

impl Message for FollowTables<'_> {
    const TYPE: u8 = 156;
}

/// The answer to [`super::FollowTables`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableBatches<'b> {
    /// The tables, in the order of the request.
    pub tables: Vec<FollowedTable<'b>>,
    /// The records, in the order of the journal.
    pub records: Vec<TableRecord<'b>>,
    /// The entry up to which the answer goes: the last one of a batch, or within one whose other records follow.
    pub upto: EventId,
    /// There was nothing behind it.
    pub is_newest: bool,
}

impl Message for TableBatches<'_> {
    const TYPE: u8 = 157;
}

/// The newest records of the keys of a table that have values, as of an entry of the journal, in the order of their seqnos. Answered with
/// [`super::LoadedTable`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadTable<'b> {
    /// The table; read on it is required.
    pub table: &'b str,
    /// The entry.
    pub at: EventId,
    /// Only records with a higher seqno.
    pub above: u64,
}

impl Message for LoadTable<'_> {
    const TYPE: u8 = 158;
}

/// The answer to [`super::LoadTable`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedTable<'b> {
    /// The table; `latest` is that of its newest record as of the entry.
    pub table: FollowedTable<'b>,
    /// The records.
    pub records: Vec<TableRecord<'b>>,
    /// There are others with higher seqnos.
    pub more: bool,
}

impl Message for LoadedTable<'_> {
    const TYPE: u8 = 159;
}

/// One log that a stream's records came through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathStep {
    /// The namespace's identity.
    pub namespace: u64,
    /// The log in it.
    pub log: String,
}

/// One of the lives of a namespace: every start of its host begins one. Copies of a namespace have different lives from the moment when
/// they were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Life {
    /// How many lives there were up to this one.
    pub number: u64,
    /// A random number, which no other life has.
    pub id: u64,
}

/// A record on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item<'b> {
    /// The log that it goes to.
    pub log: &'b str,
    /// Its bytes.
    pub data: &'b [u8],
    /// Its id at the source, which is its cause at the target.
    pub id: EventId,
    /// When it was appended at the source.
    pub hlc: Hlc,
    /// A function that runs for it, in addition to those bound to its log.
    pub function: Option<&'b str>,
    /// It has a number and no content: its record is a dead letter at the source.
    pub void: bool,
}

/// Why an item was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The stable code, such as MR2101.
    pub code: String,
    /// The description of the error.
    pub detail: String,
    /// When it makes sense to try again; never, if it is missing.
    pub retry_after_ms: Option<u32>,
}

/// A table that is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedTable<'b> {
    /// Which table of its name it is.
    pub incarnation: u32,
    /// The seqno of its newest record.
    pub latest: u64,
    /// Its attributes as JSON.
    pub options: &'b str,
}

/// A record of a table that is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRecord<'b> {
    /// Which table of the request, from 0 on.
    pub table: u32,
    /// Its number in the table's log, which is the version of the key.
    pub seqno: u64,
    /// Its id, which is its cause in a replica.
    pub id: EventId,
    /// When it was appended.
    pub hlc: Hlc,
    /// The key.
    pub key: &'b [u8],
    /// The value.
    pub data: &'b [u8],
    /// The key has no value from here on.
    pub is_deletion: bool,
    /// When the value expires, in microseconds since 1970; 0: never.
    pub expires_us: u64,
    /// The records of its batch end with it.
    pub ends: bool,
}
