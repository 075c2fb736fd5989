//! Records with their bytes, and entries of the journal.

use super::tables::KeyText;
use crate::{ErrorDoc, rfc3339};
use millrace_wire::{Headers, Hlc, JsonBytes};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

/// A record.
#[derive(Clone, Debug, Serialize)]
pub struct RecordDoc<'r> {
    /// Its log.
    pub log: &'r str,
    /// Its number.
    pub seqno: u64,
    /// Its id.
    pub id: Option<String>,
    /// When it was appended.
    pub time: String,
    /// What caused it.
    pub cause: Option<String>,
    /// Its headers.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: &'r Headers,
    /// Its bytes, as `data` or `base64`.
    #[serde(flatten)]
    pub data: JsonBytes<'r>,
}

/// A record of a topic.
#[derive(Clone, Debug, Serialize)]
pub struct TopicRecordDoc<'r> {
    topic: &'r str,
    index: u64,
    time: String,
    #[serde(flatten)]
    data: JsonBytes<'r>,
}

impl<'r> TopicRecordDoc<'r> {
    /// The record with this index.
    pub fn of(topic: &'r str, index: u64, hlc: Hlc, bytes: &'r [u8]) -> Self {
        Self { topic, index, time: rfc3339(hlc), data: JsonBytes(bytes) }
    }
}

/// An entry of the journal, or the place of a damaged one.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum EntryDoc {
    /// Its checksum is wrong.
    Damaged {
        /// Its position.
        position: u64,
        /// What is wrong.
        error: ErrorDoc,
    },
    /// It is sound.
    Whole(Box<WholeEntryDoc>),
}

/// A sound entry.
#[derive(Clone, Debug, Serialize)]
pub struct WholeEntryDoc {
    /// Its position.
    pub position: u64,
    /// Its kind, such as `APPEND`.
    pub kind: &'static str,
    /// Its id.
    pub id: Option<String>,
    /// When it was committed.
    pub time: String,
    /// Its clock, as text: a number of JSON loses digits where numbers are doubles.
    pub hlc: String,
    /// Its cause.
    pub cause: Option<String>,
    /// The log or function that it is about.
    pub subject: Option<String>,
    /// The number of the log or function.
    pub subject_id: u32,
    /// Its number there.
    pub seqno: u64,
    /// Its place in the batch.
    pub ordinal: u16,
    /// Whether it ends the batch.
    pub last_of_batch: bool,
    /// Whether it is a copy of an older one.
    pub carried: bool,
    /// Whether its cause is what a client said.
    pub claimed: bool,
    /// Of a shadow entry, the repair that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<u64>,
    /// Of a record of a table, its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyText>,
    /// Of a record of a table, what it does to its key: `put`, `delete` or `increment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    /// Of a record of a table that restates what its key has since a repair: the record whose value that is; 0 if the key has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restates: Option<u64>,
    /// Whether it makes its slot void.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
    /// The length of its payload.
    pub bytes: usize,
    /// Whether only the beginning of the payload is shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Its payload.
    #[serde(flatten)]
    pub payload: PayloadDoc,
}

/// What is shown of a payload, as `data` or `base64`.
#[derive(Clone, Debug)]
pub enum PayloadDoc {
    /// These bytes.
    Shown(Vec<u8>),
    /// Nothing: no client may read it.
    Secret,
}

impl Serialize for PayloadDoc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Shown(bytes) => JsonBytes(bytes).serialize(serializer),
            Self::Secret => serializer.serialize_map(Some(0))?.end(),
        }
    }
}

/// Entries of the journal, in order. A reader takes each as it came: a later version may know more of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntriesDoc<E = Value> {
    /// The entries.
    pub entries: Vec<E>,
    /// Where to continue.
    pub next: u64,
    /// Where the journal ended when it was read.
    pub tail: u64,
}
