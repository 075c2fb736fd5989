//! Times, ids and bytes as documents represent them.

use millrace_documents::{id_text, rfc3339};
use millrace_node::Record;
use millrace_wire::{Headers, Hlc, JsonBytes};
use serde::Serialize;

/// A record with its bytes.
#[derive(Serialize)]
pub(crate) struct RecordDoc<'r> {
    log: &'r str,
    seqno: u64,
    id: Option<String>,
    time: String,
    cause: Option<String>,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    headers: &'r Headers,
    #[serde(flatten)]
    data: JsonBytes<'r>,
}

impl<'r> RecordDoc<'r> {
    pub fn of(log: &'r str, record: &'r Record) -> Self {
        Self {
            log,
            seqno: record.seqno,
            id: id_text(record.id),
            time: rfc3339(record.hlc),
            cause: id_text(record.cause),
            headers: &record.headers,
            data: JsonBytes(&record.payload),
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
    use millrace_wire::EventId;

    #[test]
    fn records_are_text_or_base64() {
        let record = |payload: &[u8]| Record {
            seqno: 3,
            id: EventId::from_bits(1 << 80 | 7),
            hlc: Hlc::from_wall_us(1_700_000_000_123_456),
            cause: EventId::NONE,
            payload: payload.into(),
            headers: Headers::default(),
        };
        let json = |payload: &[u8]| serde_json::to_string(&RecordDoc::of("raw", &record(payload))).unwrap();
        let head =
            r#"{"log":"raw","seqno":3,"id":"000000000001-0-7","time":"2023-11-14T22:13:20.123456Z","cause":null,"#;
        assert_eq!(json("é\n".as_bytes()), format!("{head}\"data\":\"é\\n\"}}"));
        assert_eq!(json(b"\xff\x00"), format!("{head}\"base64\":\"/wA=\"}}"));
    }
}
