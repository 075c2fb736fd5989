// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Records.

use super::{Decode, Encode, Fields, Malformed, Reader};
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

impl Encode for Append<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("data", &self.data);
        fields.put_some("durability", &self.durability);
        fields.put_some("function", &self.function);
        fields.put_some("key", &self.key);
        fields.put_some("fence", &self.fence);
        fields.end();
    }
}

impl<'b> Decode<'b> for Append<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut data = None;
        let mut durability = None;
        let mut function = None;
        let mut key = None;
        let mut fence = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "data" => reader.set(&mut data),
            "durability" => reader.set(&mut durability),
            "function" => reader.set(&mut function),
            "key" => reader.set(&mut key),
            "fence" => reader.set(&mut fence),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            durability: durability.unwrap_or_default(),
            function: function.unwrap_or_default(),
            key: key.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
        })
    }
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

impl Encode for Appended {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("seqno", &self.seqno);
        fields.put("id", &self.id);
        fields.end();
    }
}

impl Decode<'_> for Appended {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut seqno = None;
        let mut id = None;
        reader.map(|reader, member| match member {
            "seqno" => reader.set(&mut seqno),
            "id" => reader.set(&mut id),
            _ => reader.skip(),
        })?;
        Ok(Self {
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
        })
    }
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

impl Encode for AppendMany<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("records", &self.records);
        fields.put_some("durability", &self.durability);
        fields.put_some("key", &self.key);
        fields.put_some("fence", &self.fence);
        fields.end();
    }
}

impl<'b> Decode<'b> for AppendMany<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut records = None;
        let mut durability = None;
        let mut key = None;
        let mut fence = None;
        reader.map(|reader, member| match member {
            "records" => reader.set(&mut records),
            "durability" => reader.set(&mut durability),
            "key" => reader.set(&mut key),
            "fence" => reader.set(&mut fence),
            _ => reader.skip(),
        })?;
        Ok(Self {
            records: records.ok_or_else(|| Malformed::missing("records"))?,
            durability: durability.unwrap_or_default(),
            key: key.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
        })
    }
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

impl Encode for AppendedMany {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("records", &self.records);
        fields.end();
    }
}

impl Decode<'_> for AppendedMany {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut records = None;
        reader.map(|reader, member| match member {
            "records" => reader.set(&mut records),
            _ => reader.skip(),
        })?;
        Ok(Self { records: records.ok_or_else(|| Malformed::missing("records"))? })
    }
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

impl Encode for Get<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("seqno", &self.seqno);
        fields.put("wait_ms", &self.wait_ms);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Get<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut seqno = None;
        let mut wait_ms = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "seqno" => reader.set(&mut seqno),
            "wait_ms" => reader.set(&mut wait_ms),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            wait_ms: wait_ms.unwrap_or_default(),
            durability: durability.unwrap_or_default(),
        })
    }
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

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("seqno", &self.seqno);
        fields.put("id", &self.id);
        fields.put("hlc", &self.hlc);
        fields.put_if(!self.cause.is_none(), "cause", &self.cause);
        fields.put("data", &self.data);
        fields.put_if(!self.headers.is_empty(), "headers", &self.headers);
        fields.end();
    }
}

impl<'b> Decode<'b> for Record<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut seqno = None;
        let mut id = None;
        let mut hlc = None;
        let mut cause = None;
        let mut data = None;
        let mut headers = None;
        reader.map(|reader, member| match member {
            "seqno" => reader.set(&mut seqno),
            "id" => reader.set(&mut id),
            "hlc" => reader.set(&mut hlc),
            "cause" => reader.set(&mut cause),
            "data" => reader.set(&mut data),
            "headers" => reader.set(&mut headers),
            _ => reader.skip(),
        })?;
        Ok(Self {
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
            hlc: hlc.ok_or_else(|| Malformed::missing("hlc"))?,
            cause: cause.unwrap_or_default(),
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            headers: headers.unwrap_or_default(),
        })
    }
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

impl Encode for Range<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("from", &self.from);
        fields.put("count", &self.count);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Range<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut from = None;
        let mut count = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "from" => reader.set(&mut from),
            "count" => reader.set(&mut count),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            from: from.ok_or_else(|| Malformed::missing("from"))?,
            count: count.ok_or_else(|| Malformed::missing("count"))?,
            durability: durability.unwrap_or_default(),
        })
    }
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

impl Encode for Records<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("incarnation", &self.incarnation);
        fields.put("records", &self.records);
        fields.put("next", &self.next);
        fields.end();
    }
}

impl<'b> Decode<'b> for Records<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut incarnation = None;
        let mut records = None;
        let mut next = None;
        reader.map(|reader, member| match member {
            "incarnation" => reader.set(&mut incarnation),
            "records" => reader.set(&mut records),
            "next" => reader.set(&mut next),
            _ => reader.skip(),
        })?;
        Ok(Self {
            incarnation: incarnation.ok_or_else(|| Malformed::missing("incarnation"))?,
            records: records.ok_or_else(|| Malformed::missing("records"))?,
            next: next.ok_or_else(|| Malformed::missing("next"))?,
        })
    }
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

impl Encode for Latest<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("above", &self.above);
        fields.put("wait_ms", &self.wait_ms);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Latest<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut above = None;
        let mut wait_ms = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "above" => reader.set(&mut above),
            "wait_ms" => reader.set(&mut wait_ms),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            above: above.unwrap_or_default(),
            wait_ms: wait_ms.unwrap_or_default(),
            durability: durability.unwrap_or_default(),
        })
    }
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

impl Encode for Seqno {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("seqno", &self.seqno);
        fields.end();
    }
}

impl Decode<'_> for Seqno {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut seqno = None;
        reader.map(|reader, member| match member {
            "seqno" => reader.set(&mut seqno),
            _ => reader.skip(),
        })?;
        Ok(Self { seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))? })
    }
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

impl Encode for CreateLog<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("history", &self.history);
        fields.end();
    }
}

impl<'b> Decode<'b> for CreateLog<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut history = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "history" => reader.set(&mut history),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            history: history.ok_or_else(|| Malformed::missing("history"))?,
        })
    }
}

impl Message for CreateLog<'_> {
    const TYPE: u8 = 30;
}

/// The request was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {}

impl Encode for Done {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Done {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Message for Done {
    const TYPE: u8 = 31;
}

/// Removes a log and its records. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoveLog<'b> {
    /// The log.
    pub log: &'b str,
}

impl Encode for RemoveLog<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveLog<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            _ => reader.skip(),
        })?;
        Ok(Self { log: log.ok_or_else(|| Malformed::missing("log"))? })
    }
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

impl Encode for Show<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("path", &self.path);
        fields.end();
    }
}

impl<'b> Decode<'b> for Show<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut path = None;
        reader.map(|reader, member| match member {
            "path" => reader.set(&mut path),
            _ => reader.skip(),
        })?;
        Ok(Self { path: path.ok_or_else(|| Malformed::missing("path"))? })
    }
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

impl Encode for Document<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("json", &self.json);
        fields.end();
    }
}

impl<'b> Decode<'b> for Document<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut json = None;
        reader.map(|reader, member| match member {
            "json" => reader.set(&mut json),
            _ => reader.skip(),
        })?;
        Ok(Self { json: json.ok_or_else(|| Malformed::missing("json"))? })
    }
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
}

impl Encode for Table<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("table", &self.table);
        fields.put("request", &self.request);
        fields.put_some("durability", &self.durability);
        fields.put_some("fence", &self.fence);
        fields.end();
    }
}

impl<'b> Decode<'b> for Table<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut table = None;
        let mut request = None;
        let mut durability = None;
        let mut fence = None;
        reader.map(|reader, member| match member {
            "table" => reader.set(&mut table),
            "request" => reader.set(&mut request),
            "durability" => reader.set(&mut durability),
            "fence" => reader.set(&mut fence),
            _ => reader.skip(),
        })?;
        Ok(Self {
            table: table.ok_or_else(|| Malformed::missing("table"))?,
            request: request.ok_or_else(|| Malformed::missing("request"))?,
            durability: durability.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
        })
    }
}

impl Message for Table<'_> {
    const TYPE: u8 = 56;
}

/// The answer to [`super::Table`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfTable<'b> {
    /// The answer, as table.md defines it.
    pub answer: &'b [u8],
}

impl Encode for OfTable<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("answer", &self.answer);
        fields.end();
    }
}

impl<'b> Decode<'b> for OfTable<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut answer = None;
        reader.map(|reader, member| match member {
            "answer" => reader.set(&mut answer),
            _ => reader.skip(),
        })?;
        Ok(Self { answer: answer.ok_or_else(|| Malformed::missing("answer"))? })
    }
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

impl Encode for Repair<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("json", &self.json);
        fields.end();
    }
}

impl<'b> Decode<'b> for Repair<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut json = None;
        reader.map(|reader, member| match member {
            "json" => reader.set(&mut json),
            _ => reader.skip(),
        })?;
        Ok(Self { json: json.ok_or_else(|| Malformed::missing("json"))? })
    }
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

impl Encode for SetLog<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("history", &self.history);
        fields.end();
    }
}

impl<'b> Decode<'b> for SetLog<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut history = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "history" => reader.set(&mut history),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            history: history.ok_or_else(|| Malformed::missing("history"))?,
        })
    }
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

impl Encode for CancelRun {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("run", &self.run);
        fields.end();
    }
}

impl Decode<'_> for CancelRun {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut run = None;
        reader.map(|reader, member| match member {
            "run" => reader.set(&mut run),
            _ => reader.skip(),
        })?;
        Ok(Self { run: run.ok_or_else(|| Malformed::missing("run"))? })
    }
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

impl Encode for Fence<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("name", &self.name);
        fields.put("token", &self.token);
        fields.end();
    }
}

impl<'b> Decode<'b> for Fence<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut name = None;
        let mut token = None;
        reader.map(|reader, member| match member {
            "name" => reader.set(&mut name),
            "token" => reader.set(&mut token),
            _ => reader.skip(),
        })?;
        Ok(Self {
            name: name.ok_or_else(|| Malformed::missing("name"))?,
            token: token.ok_or_else(|| Malformed::missing("token"))?,
        })
    }
}

/// A record to be appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'b> {
    /// The log.
    pub log: &'b str,
    /// The record's bytes.
    pub data: &'b [u8],
}

impl Encode for NewRecord<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("data", &self.data);
        fields.end();
    }
}

impl<'b> Decode<'b> for NewRecord<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut data = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "data" => reader.set(&mut data),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
        })
    }
}
