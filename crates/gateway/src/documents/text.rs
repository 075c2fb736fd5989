//! Moments, ids and bytes as they stand in documents.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use jiff::Timestamp;
use millrace_node::Record;
use millrace_wire::{EventId, Hlc};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::fmt::Display;

/// RFC 3339 in UTC with microseconds.
pub(super) fn rfc3339(hlc: Hlc) -> String {
    let moment = i64::try_from(hlc.wall_us()).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    format!("{:.6}", moment.unwrap_or_default())
}

/// An id, or none.
pub(crate) fn id_text(id: EventId) -> Option<String> {
    (!id.is_none()).then(|| id.to_string())
}

/// A list of names.
pub(super) fn names<T: Display>(names: &[T]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Bytes as two possible fields: `data` if they are text, else `base64`. For use with `serde(flatten)`.
pub(super) struct Bytes<'b>(pub &'b [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match std::str::from_utf8(self.0) {
            Ok(text) => map.serialize_entry("data", text)?,
            Err(_) => map.serialize_entry("base64", &BASE64.encode(self.0))?,
        }
        map.end()
    }
}

/// A record with its bytes.
#[derive(Serialize)]
pub(crate) struct RecordDoc<'r> {
    log: &'r str,
    seqno: u64,
    id: Option<String>,
    time: String,
    cause: Option<String>,
    #[serde(flatten)]
    data: Bytes<'r>,
}

impl<'r> RecordDoc<'r> {
    pub fn of(log: &'r str, record: &'r Record) -> Self {
        Self {
            log,
            seqno: record.seqno,
            id: id_text(record.id),
            time: rfc3339(record.hlc),
            cause: id_text(record.cause),
            data: Bytes(&record.payload),
        }
    }
}

/// When a record was appended, as a header says it.
pub(crate) fn time_text(hlc: Hlc) -> String {
    rfc3339(hlc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_text_or_base64() {
        let record = |payload: &[u8]| Record {
            seqno: 3,
            id: EventId::from_bits(1 << 80 | 7),
            hlc: Hlc::from_wall_us(1_700_000_000_123_456),
            cause: EventId::NONE,
            payload: payload.into(),
        };
        let json = |payload: &[u8]| serde_json::to_string(&RecordDoc::of("raw", &record(payload))).unwrap();
        let head =
            r#"{"log":"raw","seqno":3,"id":"000000000001-0-7","time":"2023-11-14T22:13:20.123456Z","cause":null,"#;
        assert_eq!(json("é\n".as_bytes()), format!("{head}\"data\":\"é\\n\"}}"));
        assert_eq!(json(b"\xff\x00"), format!("{head}\"base64\":\"/wA=\"}}"));
    }
}
