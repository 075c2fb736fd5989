//! What an event caused, and what it came from.

use crate::KeyText;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

/// A part of the tree of an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceDoc {
    /// The event.
    pub event: String,
    /// `effects` or `causes`.
    pub direction: String,
    /// The branches; the first is the event itself, and each comes after the one above it.
    pub branches: Vec<TraceBranchDoc>,
    /// How many records the tree has, shown or not.
    pub records: u64,
    /// How many runs.
    pub runs: u64,
    /// How many causes are not among the entries that were read.
    pub unknown: u64,
    /// How many entries were read.
    pub entries: u64,
    /// Where to go on, if the journal has more entries behind those that were read.
    pub next: Option<u64>,
}

/// A record or a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceBranchDoc {
    /// Its id.
    pub id: String,
    /// How it hangs on the branch above: `triggered`, `read`, `appended`, `forwarded` or `claimed`; of the first, none.
    pub link: Option<String>,
    /// The number of that branch; of the first, none.
    pub above: Option<usize>,
    /// When it was.
    pub time: String,
    /// The record, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<TracedRecordDoc>,
    /// The run, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<TracedRunDoc>,
    /// How many records and runs below it are not shown.
    pub more: u64,
}

/// A record of a tree, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedRecordDoc {
    /// Its log, unless that was removed.
    pub log: Option<String>,
    /// Its number.
    pub seqno: u64,
    /// Of a record of a table, the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyText>,
    /// Whether the key has no value from here on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// The repair in force that gave it its value, or removed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<u64>,
    /// Whether that repair removed it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
    /// Its value.
    #[serde(flatten)]
    pub value: ValueDoc,
    /// Its value before the repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<ValueDoc>,
}

/// The beginning of a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValueDoc {
    /// How many bytes it has.
    pub bytes: u64,
    /// Whether the data is only the beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// It, as text; missing also if nobody may read it, or it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// It, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// A run of a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedRunDoc {
    /// Its function, unless that was removed.
    pub function: Option<String>,
    /// Its state; nothing if the entries that tell it are gone.
    pub state: Option<String>,
    /// How many attempts there were.
    pub attempts: u64,
    /// When the last one began.
    pub began: Option<String>,
    /// When it ended.
    pub ended: Option<String>,
    /// The error for which it was given up.
    pub code: Option<String>,
    /// The repair that replayed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<u64>,
}

impl ValueDoc {
    /// Longest shown beginning of a value, in bytes.
    pub const SHOWN_MAX: usize = 4096;

    /// A value that cannot be shown.
    pub fn hidden(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// A value of so many bytes that begins with these.
    pub fn new(known: &[u8], bytes: u64) -> Self {
        let mut shown = known.len().min(Self::SHOWN_MAX);
        // A text that is cut stays a text.
        while shown < known.len() && known[shown] & 0xC0 == 0x80 && shown > Self::SHOWN_MAX - 4 {
            shown -= 1;
        }
        let (data, base64) = match std::str::from_utf8(&known[..shown]) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(BASE64_STANDARD.encode(&known[..shown]))),
        };
        Self { bytes, cut: (shown as u64) < bytes, data, base64 }
    }

    /// Its beginning, if it can be shown.
    pub fn shown(&self) -> Option<Vec<u8>> {
        match (&self.data, &self.base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).ok(),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_text_or_base64_and_a_cut_text_stays_one() {
        let euros = "€".repeat(2000);
        let cut = ValueDoc::new(euros.as_bytes(), 6000);
        assert_eq!((cut.data.as_deref(), cut.cut), (Some(&*"€".repeat(1365)), true));
        let bytes = ValueDoc::new(b"\xff\x00", 2);
        assert_eq!(
            (bytes.base64.as_deref(), bytes.cut, bytes.shown()),
            (Some("/wA="), false, Some(b"\xff\0".to_vec()))
        );
        let record = TracedRecordDoc { value: bytes, ..TracedRecordDoc::default() };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(text, r#"{"log":null,"seqno":0,"bytes":2,"base64":"/wA="}"#);
        assert_eq!(serde_json::from_str::<TracedRecordDoc>(&text).unwrap(), record);
        assert_eq!(ValueDoc::hidden(3).shown(), None);
    }
}
