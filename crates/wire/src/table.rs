//! Tables: what may be asked of one, how it is answered, and the attributes of one.
//!
//! A table is a log whose records have keys. Requests and answers have the same bytes in frames between a client and a host and between
//! a host and its workers (`spec/protocol/table.md`). All numbers are little-endian.

use crate::{Code, DatabaseName, Error, EventId, Result, TableMode};
use serde::{Deserialize, Serialize};

/// Most bytes of a key.
pub const KEY_MAX_BYTES: usize = 1024;
/// Most entries of one answer to a scan.
pub const SCAN_MAX: u32 = 1000;
/// An answer to a scan ends with the entry that makes it as long as this.
pub const SCAN_MAX_BYTES: usize = 1 << 20;
/// Most versions of a key that one answer lists.
pub const VERSIONS_MAX: u32 = 1000;

/// What the keys of a table are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyType {
    /// Text in UTF-8.
    #[default]
    Text,
    /// Any bytes.
    Bytes,
}

/// What the values of a table are. A codec never changes bytes: it refuses those that it does not permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableCodec {
    /// Any bytes.
    Bytes,
    /// Text in UTF-8.
    Text,
    /// One value of JSON.
    #[default]
    Json,
}

/// The attributes of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableOptions {
    /// What its keys are.
    pub keys: KeyType,
    /// What its values are.
    pub codec: TableCodec,
    /// After how many milliseconds a value that is put without a lifetime expires; 0 if never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ttl_ms: u64,
    /// The database to which the table is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseName>,
    /// Whether answers wait for the database.
    #[serde(default, skip_serializing_if = "TableMode::is_external")]
    pub mode: TableMode,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl TableOptions {
    /// Refuses a key that the table cannot have.
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        let invalid = |why: &str| Err(Code::TableKeyInvalid.error(format!("key '{}' {why}", show_key(key))));
        if key.is_empty() || key.len() > KEY_MAX_BYTES {
            return Err(
                Code::TableKeyInvalid.error(format!("a key of {} bytes; a key has 1 to {KEY_MAX_BYTES}", key.len()))
            );
        }
        if self.keys == KeyType::Text && std::str::from_utf8(key).is_err() {
            return invalid("is not UTF-8, and the table's keys are text");
        }
        if self.keys == KeyType::Text && key.contains(&0) {
            return invalid("contains a NUL character");
        }
        Ok(())
    }

    /// Refuses a value that the table cannot have.
    pub fn check_value(&self, value: &[u8]) -> Result<()> {
        let invalid = |why: String| Err(Code::TableValueInvalid.error(why));
        match self.codec {
            TableCodec::Bytes => Ok(()),
            TableCodec::Text => match std::str::from_utf8(value) {
                Err(_) => invalid("the value is not UTF-8, and the table's values are text".into()),
                Ok(text) if self.database.is_some() && text.contains('\0') => {
                    invalid("the value contains a NUL character, which no database keeps in text".into())
                }
                Ok(_) => Ok(()),
            },
            // A database refuses more than JSON does, and a refused write stops all that follow it.
            TableCodec::Json if self.database.is_some() => match serde_json::from_slice::<serde_json::Value>(value) {
                Err(error) => invalid(format!("the value is not JSON that a database keeps: {error}")),
                Ok(value) if is_refused(&value) => {
                    invalid("the value contains a NUL character or a huge number, which no database keeps".into())
                }
                Ok(_) => Ok(()),
            },
            TableCodec::Json => match serde_json::from_slice::<serde::de::IgnoredAny>(value) {
                Err(error) => invalid(format!("the value is not JSON: {error}")),
                Ok(_) => Ok(()),
            },
        }
    }
}

/// Whether a text in a value, or the name of a field, contains a NUL character, or a number is too large. The reader of JSON has bounded the depth.
fn is_refused(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains('\0'),
        serde_json::Value::Array(all) => all.iter().any(is_refused),
        serde_json::Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains('\0') || is_refused(value))
        }
        serde_json::Value::Number(number) => number.as_f64().is_none(),
        _ => false,
    }
}

/// A key as messages show it: as text if it is, else in hexadecimal.
pub fn show_key(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => format!("0x{}", key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

/// What must be true of a key for a change to take effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// It has no value.
    Absent,
    /// Its value has this version.
    Version(u64),
}

const ALWAYS: u64 = u64::MAX;

impl Condition {
    fn number(self) -> u64 {
        match self {
            Self::Always => ALWAYS,
            Self::Absent => 0,
            Self::Version(version) => version,
        }
    }

    fn of(number: u64) -> Self {
        match number {
            ALWAYS => Self::Always,
            0 => Self::Absent,
            version => Self::Version(version),
        }
    }
}

/// Keys from one on, in the order of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRange<'b> {
    /// The first key that belongs to it, if there is one.
    pub from: &'b [u8],
    /// The first key that does not; empty if all do.
    pub to: &'b [u8],
}

/// The first bytes that come after everything with this prefix; empty if nothing does.
pub fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|byte| *byte != 0xFF).map_or(0, |last| last + 1);
    let mut end = prefix[..kept].to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// What is asked of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableRequest<'b> {
    /// The value of a key.
    Get {
        /// The key.
        key: &'b [u8],
    },
    /// A new value of a key.
    Put {
        /// The key.
        key: &'b [u8],
        /// Its value.
        value: &'b [u8],
        /// When it takes effect.
        condition: Condition,
        /// After how many milliseconds it expires; 0: as the table says.
        ttl_ms: u64,
    },
    /// A key is to have no value.
    Delete {
        /// The key.
        key: &'b [u8],
        /// When it takes effect.
        condition: Condition,
    },
    /// A number is to be added to a key's value, which is a whole number in decimal digits; none counts as 0.
    Increment {
        /// The key.
        key: &'b [u8],
        /// The number.
        amount: i64,
    },
    /// Keys in order, and their values.
    Scan {
        /// Which keys.
        range: KeyRange<'b>,
        /// How many, at most.
        limit: u32,
        /// Whether values are left out.
        keys_only: bool,
    },
    /// The version that a record of the table's log is.
    Record {
        /// The record.
        seqno: u64,
    },
    /// The attributes of the table, as JSON in the value of one entry.
    Describe,
    /// Within a run: wait until databases have everything that the run has read.
    Externalize,
    /// The versions of a key, the newest first, as far as the journal has them.
    Versions {
        /// The key.
        key: &'b [u8],
        /// Those below this version; 0: all.
        below: u64,
        /// How many, at most.
        limit: u32,
    },
}

const GET: u8 = 0;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const INCREMENT: u8 = 3;
const SCAN: u8 = 4;
const VERSIONS: u8 = 5;
const DESCRIBE: u8 = 6;
const RECORD: u8 = 7;
const EXTERNALIZE: u8 = 8;

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// Bytes behind their length of two bytes.
    fn key(&mut self) -> Option<&'b [u8]> {
        let length = u16::from_le_bytes(self.bytes(2)?.try_into().ok()?);
        self.bytes(length.into())
    }

    fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }

    fn ends(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// A key longer than its length can say is longer than any key, so its beginning is refused like it.
fn push_key(bytes: &mut Vec<u8>, key: &[u8]) {
    let key = &key[..key.len().min(usize::from(u16::MAX))];
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(key);
}

impl<'b> TableRequest<'b> {
    /// The request's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match *self {
            Self::Get { key } => {
                bytes.push(GET);
                push_key(&mut bytes, key);
            }
            Self::Put { key, value, condition, ttl_ms } => {
                bytes.push(PUT);
                push_key(&mut bytes, key);
                bytes.extend_from_slice(&condition.number().to_le_bytes());
                bytes.extend_from_slice(&ttl_ms.to_le_bytes());
                bytes.extend_from_slice(value);
            }
            Self::Delete { key, condition } => {
                bytes.push(DELETE);
                push_key(&mut bytes, key);
                bytes.extend_from_slice(&condition.number().to_le_bytes());
            }
            Self::Increment { key, amount } => {
                bytes.push(INCREMENT);
                push_key(&mut bytes, key);
                bytes.extend_from_slice(&amount.to_le_bytes());
            }
            Self::Scan { range, limit, keys_only } => {
                bytes.push(SCAN);
                push_key(&mut bytes, range.from);
                push_key(&mut bytes, range.to);
                bytes.extend_from_slice(&limit.to_le_bytes());
                bytes.push(keys_only.into());
            }
            Self::Record { seqno } => {
                bytes.push(RECORD);
                bytes.extend_from_slice(&seqno.to_le_bytes());
            }
            Self::Describe => bytes.push(DESCRIBE),
            Self::Externalize => bytes.push(EXTERNALIZE),
            Self::Versions { key, below, limit } => {
                bytes.push(VERSIONS);
                push_key(&mut bytes, key);
                bytes.extend_from_slice(&below.to_le_bytes());
                bytes.extend_from_slice(&limit.to_le_bytes());
            }
        }
        bytes
    }

    /// The request that these bytes are.
    pub fn decode(bytes: &'b [u8]) -> Result<Self> {
        Self::read(&mut Reader(bytes)).ok_or_else(|| malformed("request to a table"))
    }

    fn read(from: &mut Reader<'b>) -> Option<Self> {
        let request = match from.u8()? {
            GET => Self::Get { key: from.key()? },
            PUT => {
                let (key, condition, ttl_ms) = (from.key()?, Condition::of(from.u64()?), from.u64()?);
                Self::Put { key, condition, ttl_ms, value: from.rest() }
            }
            DELETE => Self::Delete { key: from.key()?, condition: Condition::of(from.u64()?) },
            INCREMENT => Self::Increment { key: from.key()?, amount: from.u64()? as i64 },
            SCAN => {
                let range = KeyRange { from: from.key()?, to: from.key()? };
                Self::Scan { range, limit: from.u32()?, keys_only: from.u8().filter(|byte| *byte < 2)? == 1 }
            }
            RECORD => Self::Record { seqno: from.u64()? },
            DESCRIBE => Self::Describe,
            EXTERNALIZE => Self::Externalize,
            VERSIONS => Self::Versions { key: from.key()?, below: from.u64()?, limit: from.u32()? },
            _ => return None,
        };
        from.ends().map(|()| request)
    }

    /// Whether it changes the table.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Delete { .. } | Self::Increment { .. })
    }
}

fn malformed(what: &str) -> Error {
    Code::ValueInvalid.error(format!("the bytes are no {what}"))
}

/// One version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The version: the seqno of its record in the table's log.
    pub version: u64,
    /// When it expires, in microseconds since 1970; 0 if never.
    pub expires_us: u64,
    /// When it was written, in microseconds since 1970.
    pub time_us: u64,
    /// The value; empty if values were left out, `None` if it was deleted with this version.
    pub value: Option<Vec<u8>>,
}

/// What a table answers: entries, and whether there are more.
///
/// Of a GET, the entry, or none if the key has no value. Of a change by a client, the entry with its new version, without its value; the
/// result of an increment has one. Changes by a run are answered without entries: their versions are not known before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableAnswer {
    /// The entries.
    pub entries: Vec<TableEntry>,
    /// Whether there are more behind them.
    pub more: bool,
    /// The entry of the owner's journal up to which it shows or changes something, if that is known. It is no part of the answer's bytes.
    pub token: EventId,
}

const DELETED: u8 = 1;

impl TableAnswer {
    /// An answer of at most one entry.
    pub fn one(entry: Option<TableEntry>) -> Self {
        Self { entries: entry.into_iter().collect(), ..Self::default() }
    }

    /// The answer to DESCRIBE.
    pub fn description(options: &TableOptions) -> Self {
        let value = serde_json::to_vec(options).expect("plain data always serialises");
        Self::one(Some(TableEntry { value: Some(value), ..TableEntry::default() }))
    }

    /// The answer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.more.into()];
        for entry in &self.entries {
            push_key(&mut bytes, &entry.key);
            for number in [entry.version, entry.expires_us, entry.time_us] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.push(if entry.value.is_none() { DELETED } else { 0 });
            let value = entry.value.as_deref().unwrap_or_default();
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes()); // a record has at most 16 MiB
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// The answer that these bytes are.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(&mut Reader(bytes)).ok_or_else(|| malformed("answer of a table"))
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let more = from.u8().filter(|byte| *byte < 2)? == 1;
        let mut entries = Vec::new();
        while from.ends().is_none() {
            let key = from.key()?.to_vec();
            let (version, expires_us, time_us) = (from.u64()?, from.u64()?, from.u64()?);
            let deleted = from.u8().filter(|byte| *byte < 2)? == DELETED;
            let length = usize::try_from(from.u32()?).ok()?;
            let value = from.bytes(length)?;
            if deleted && !value.is_empty() {
                return None;
            }
            let value = (!deleted).then(|| value.to_vec());
            entries.push(TableEntry { key, version, expires_us, time_us, value });
        }
        Some(Self { entries, more, ..Self::default() })
    }
}

/// The whole number that a counter's value is.
pub fn counter(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    // One text for each number, as JSON has it.
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..most)
    }

    proptest! {
        #[test]
        fn a_request_comes_back(key in bytes(40), value in bytes(60), to in bytes(9), number: u64, other: u64, limit: u32, flag: bool) {
            let condition = Condition::of(number);
            let requests = [
                TableRequest::Get { key: &key },
                TableRequest::Put { key: &key, value: &value, condition, ttl_ms: other },
                TableRequest::Delete { key: &key, condition },
                TableRequest::Increment { key: &key, amount: other as i64 },
                TableRequest::Scan { range: KeyRange { from: &key, to: &to }, limit, keys_only: flag },
                TableRequest::Versions { key: &key, below: number, limit },
                TableRequest::Describe,
                TableRequest::Externalize,
                TableRequest::Record { seqno: number },
            ];
            for request in requests {
                let bytes = request.encode();
                prop_assert_eq!(TableRequest::decode(&bytes).unwrap(), request);
            }
        }

        #[test]
        fn an_answer_comes_back(
            rows in proptest::collection::vec((bytes(20), any::<u64>(), any::<u64>(), any::<u64>(), proptest::option::of(bytes(30))), 0..5),
            more: bool,
        ) {
            let entries = rows.into_iter().map(|(key, version, expires_us, time_us, value)| TableEntry { key, version, expires_us, time_us, value });
            let answer = TableAnswer { entries: entries.collect(), more, ..TableAnswer::default() };
            let bytes = answer.encode();
            prop_assert_eq!(TableAnswer::decode(&bytes).unwrap(), answer);
        }

        #[test]
        fn any_bytes_are_answered(bytes in bytes(80)) {
            let _ = (TableRequest::decode(&bytes), TableAnswer::decode(&bytes));
        }

        #[test]
        fn what_has_a_prefix_is_before_its_end(prefix in bytes(5), more in bytes(5), other in bytes(7)) {
            let end = after_prefix(&prefix);
            let is_inside = |key: &[u8]| key >= &*prefix && (end.is_empty() || key < &*end);
            prop_assert!(is_inside(&[prefix.clone(), more].concat()));
            prop_assert_eq!(is_inside(&other), other.starts_with(&prefix));
        }
    }

    #[test]
    fn a_counter_has_one_text() {
        assert_eq!(
            [counter(b"0"), counter(b"-7"), counter(b"+1"), counter(b"01"), counter(b"")],
            [Some(0), Some(-7), None, None, None]
        );
    }
}
