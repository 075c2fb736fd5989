//! Tables.

use crate::rfc3339;
use millrace_wire::{
    DatabaseName, Hlc, JsonBytes, JsonBytesRead, LogName, TableMode, history,
    table::{KeyType, TableCodec, TableEntry},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDoc {
    /// Its name, which is that of its log.
    pub table: LogName,
    /// What its keys are.
    pub keys: KeyType,
    /// What its values are.
    pub codec: TableCodec,
    /// After how many milliseconds a value expires that is put without a lifetime; 0: never.
    pub ttl_ms: u64,
    /// The database to which it is written, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseName>,
    /// Whether answers wait for the database.
    #[serde(default, skip_serializing_if = "TableMode::is_external")]
    pub mode: TableMode,
    /// How many of its newest records can be read as a log.
    #[serde(with = "history")]
    pub history: u64,
    /// The seqno of its newest record, which is the newest version of a key; 0 if there is none.
    pub latest: u64,
    /// Of a replica: whose it is, and how far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<ReplicaDoc>,
}

/// How far a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaDoc {
    /// The address of the table at its owner.
    pub owner: String,
    /// `new`, `loading` or `following`.
    pub stage: String,
    /// Whether the owner answers.
    pub connected: bool,
    /// The entry of the owner's journal up to which all of its replicas here are imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// How many records it lacks, as the owner last said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// For how many milliseconds it may have lacked something; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Why nothing is imported, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleDoc>,
}

/// A version of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableEntryDoc<'e> {
    key: TableKeyDoc<'e>,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    #[serde(flatten)]
    value: Option<JsonBytes<'e>>,
}

impl<'e> TableEntryDoc<'e> {
    /// This version, with its value or without.
    pub fn of(entry: &'e TableEntry, keys_only: bool) -> Self {
        Self {
            key: TableKeyDoc::of(&entry.key),
            version: entry.version,
            time: moment_of(entry.time_us),
            expires: moment_of(entry.expires_us),
            deleted: entry.value.is_none(),
            value: entry.value.as_deref().filter(|_| !keys_only).map(JsonBytes),
        }
    }
}

/// A key that is text, or its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TableKeyDoc<'e> {
    /// Text.
    Text(&'e str),
    /// Other bytes.
    Bytes(JsonBytes<'e>),
}

impl<'e> TableKeyDoc<'e> {
    /// This key.
    pub fn of(key: &'e [u8]) -> Self {
        std::str::from_utf8(key).map_or(Self::Bytes(JsonBytes(key)), Self::Text)
    }
}

/// The same, with bytes of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyText(pub Vec<u8>);

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        TableKeyDoc::of(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Read {
            Text(String),
            Bytes(JsonBytesRead),
        }
        match Read::deserialize(deserializer)? {
            Read::Text(text) => Ok(Self(text.into_bytes())),
            Read::Bytes(bytes) => Ok(Self(bytes.bytes().map_err(D::Error::custom)?.unwrap_or_default())),
        }
    }
}

/// A moment in microseconds since 1970; 0 is none.
pub fn moment_of(us: u64) -> Option<String> {
    (us > 0).then(|| rfc3339(Hlc::from_wall_us(us)))
}

/// Why nothing is written to a database at present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TroubleDoc {
    /// The code of the error.
    pub code: String,
    /// Its description.
    pub error: String,
    /// Whether the stream has stopped until somebody does something about it.
    pub stopped: bool,
}

/// A database to which tables are written, and what it does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseDoc {
    /// Its name.
    pub database: DatabaseName,
    /// Its address.
    pub url: String,
    /// The secret with its password.
    #[serde(default)]
    pub secret: Option<String>,
    /// Its tables.
    pub tables: Vec<LogName>,
    /// The kind and version of the server, if the host has reached it.
    #[serde(default)]
    pub server: Option<String>,
    /// Rows that are not written.
    pub unwritten: u64,
    /// Bytes of their keys and values.
    pub unwritten_bytes: u64,
    /// For how many milliseconds the oldest has waited.
    #[serde(default)]
    pub oldest_ms: Option<u64>,
    /// Answers that wait.
    pub waiting: u64,
    /// Transactions that were written since the host started.
    pub transactions: u64,
    /// Their rows.
    pub rows: u64,
    /// Writes that were not sent, because a later one of the same key was in their transaction.
    pub coalesced: u64,
    /// Transactions that the database refused.
    pub refused: u64,
    /// Why nothing is written, if that is so.
    #[serde(default)]
    pub trouble: Option<TroubleDoc>,
}
