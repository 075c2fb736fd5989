// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Records.

use crate::{Durability, EventId, Hlc, protocol::Message};

/// Appends one record. Answered with [`super::Appended`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append<'b> {
    /// The log.
    pub log: &'b str,
    /// The record's bytes.
    pub data: &'b [u8],
    /// The durability that the answer requires; by default the namespace's.
    pub durability: Option<Durability>,
    /// A function that runs for the record, in addition to those bound to its log.
    pub function: Option<&'b str>,
    /// The idempotency key, 1 to 128 bytes: an append with a known key gets the answer of the earlier append.
    pub key: Option<&'b str>,
    /// A token of a lock: the request is refused if a higher one was seen.
    pub fence: Option<Fence<'b>>,
}

impl Message for Append<'_> {
    const TYPE: u8 = 16;
}

/// The answer to [`super::Append`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The record's sequence number.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
}

impl Message for Appended {
    const TYPE: u8 = 17;
}

/// Appends all of these records, or none. Answered with [`super::AppendedMany`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendMany<'b> {
    /// The records, 1 to 1024.
    pub records: Vec<NewRecord<'b>>,
    /// The durability that the answer requires; by default the namespace's.
    pub durability: Option<Durability>,
    /// The idempotency key of the batch, 1 to 128 bytes.
    pub key: Option<&'b str>,
    /// A token of a lock: the request is refused if a higher one was seen.
    pub fence: Option<Fence<'b>>,
}

impl Message for AppendMany<'_> {
    const TYPE: u8 = 18;
}

/// The answer to [`super::AppendMany`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendedMany {
    /// The results, in the order of the records.
    pub records: Vec<Appended>,
}

impl Message for AppendedMany {
    const TYPE: u8 = 19;
}

/// Reads one record, or waits for it. Answered with [`super::Record`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Get<'b> {
    /// The log.
    pub log: &'b str,
    /// The record; 0 for the newest.
    pub seqno: u64,
    /// How long to wait for it, if it does not exist yet.
    pub wait_ms: u32,
    /// The durability that the answer requires; by default the namespace's.
    pub durability: Option<Durability>,
}

impl Message for Get<'_> {
    const TYPE: u8 = 20;
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record<'b> {
    /// Its sequence number in its log.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
    /// When it was appended.
    pub hlc: Hlc,
    /// Its cause.
    pub cause: EventId,
    /// The record's bytes.
    pub data: &'b [u8],
    /// Its headers: of each, the length of its name (2 bytes, little-endian) and the name, then the same of its value, both UTF-8.
    pub headers: &'b [u8],
}

impl Message for Record<'_> {
    const TYPE: u8 = 21;
}

/// Reads a range of records. Answered with [`super::Records`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range<'b> {
    /// The log.
    pub log: &'b str,
    /// The first record; an error if it has left the log's history.
    pub from: u64,
    /// The maximum number of records; the answer has as many as fit a frame, and the position at which to continue.
    pub count: u32,
    /// The durability that the answer requires; by default the namespace's.
    pub durability: Option<Durability>,
}

impl Message for Range<'_> {
    const TYPE: u8 = 22;
}

/// Records of one log, in order. Answers RANGE once, and TAIL again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records<'b> {
    /// Which log of this name it is: a log that was deleted and recreated has another number.
    pub incarnation: u32,
    /// The records.
    pub records: Vec<Record<'b>>,
    /// The sequence number at which to continue.
    pub next: u64,
}

impl Message for Records<'_> {
    const TYPE: u8 = 23;
}

/// Requests the newest sequence number, or waits until it is above a given one. Answered with [`super::Seqno`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latest<'b> {
    /// The log.
    pub log: &'b str,
    /// Wait until it is above this.
    pub above: u64,
    /// How long to wait at most; then the answer is the current number.
    pub wait_ms: u32,
    /// The durability that the answer requires; by default the namespace's.
    pub durability: Option<Durability>,
}

impl Message for Latest<'_> {
    const TYPE: u8 = 24;
}

/// The answer to [`super::Latest`] and [`super::PublishTopic`] and [`super::LatestTopic`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seqno {
    /// The newest sequence number, 0 if there is none.
    pub seqno: u64,
}

impl Message for Seqno {
    const TYPE: u8 = 25;
}

/// Creates a log; an existing one with the same attributes is left as it is. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateLog<'b> {
    /// The log.
    pub log: &'b str,
    /// How many of its newest records stay readable: at most 16777216, or 2^62 to keep records until they are trimmed.
    pub history: u64,
}

impl Message for CreateLog<'_> {
    const TYPE: u8 = 30;
}

/// The request was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {}

impl Message for Done {
    const TYPE: u8 = 31;
}

/// Removes a log and its records. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoveLog<'b> {
    /// The log.
    pub log: &'b str,
}

impl Message for RemoveLog<'_> {
    const TYPE: u8 = 32;
}

/// Requests a document: the answer of HTTP to `GET /v1/namespaces/NAME/…`, except records and tails. Answered with [`super::Document`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Show<'b> {
    /// The path after the namespace's name, with its query: `logs`, `runs?limit=10`, `functions/smooth`.
    pub path: &'b str,
}

impl Message for Show<'_> {
    const TYPE: u8 = 34;
}

/// A document, as over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document<'b> {
    /// The JSON text.
    pub json: &'b str,
}

impl Message for Document<'_> {
    const TYPE: u8 = 35;
}

/// Asks a table, or changes it. Answered with [`super::OfTable`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table<'b> {
    /// The table's name.
    pub table: &'b str,
    /// The request, as table.md defines it.
    pub request: &'b [u8],
    /// The durability that the answer requires; by default the namespace's.
    pub durability: Option<Durability>,
    /// A token of a lock: the request is refused if a higher one was seen.
    pub fence: Option<Fence<'b>>,
    /// A token: the answer to a read shows at least what the answer with this token showed or changed.
    pub after: EventId,
}

impl Message for Table<'_> {
    const TYPE: u8 = 56;
}

/// The answer to [`super::Table`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfTable<'b> {
    /// The answer, as table.md defines it.
    pub answer: &'b [u8],
    /// The entry of the table's owner up to which the answer shows or changes something; missing if there is none.
    pub token: EventId,
}

impl Message for OfTable<'_> {
    const TYPE: u8 = 57;
}

/// A request about repairs. Answered with [`super::Document`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair<'b> {
    /// The JSON text, as in the body of `POST /v1/namespaces/NAME/repairs`.
    pub json: &'b str,
}

impl Message for Repair<'_> {
    const TYPE: u8 = 84;
}

/// Changes the settings of a log. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetLog<'b> {
    /// The log.
    pub log: &'b str,
    /// How many of its newest records stay readable from now on, as in CREATE LOG.
    pub history: u64,
}

impl Message for SetLog<'_> {
    const TYPE: u8 = 140;
}

/// Cancels a run that has not ended. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CancelRun {
    /// The run's id.
    pub run: EventId,
}

impl Message for CancelRun {
    const TYPE: u8 = 141;
}

/// A token that the receiver of an append or a call compares with the highest that it has seen under this name. It refuses a lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence<'b> {
    /// The name, usually the key of a lock.
    pub name: &'b str,
    /// The token, from 1.
    pub token: u64,
}

/// A record to be appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'b> {
    /// The log.
    pub log: &'b str,
    /// The record's bytes.
    pub data: &'b [u8],
}
