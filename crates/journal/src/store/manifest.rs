//! The manifest: the namespace's identity and where its journal starts.
//!
//! One line of text with a checksum, then JSON:
//!
//! ```text
//! millrace-manifest FORMAT CRC32C LENGTH\n
//! { … }\n
//! ```
//!
//! `CRC32C` is 8 hexadecimal digits over the LENGTH bytes after the first line. The file is replaced as a whole; it is
//! what makes a directory a namespace, and it is written last when one is created.

use super::json::{self, Unread};
use crate::{
    catalog::Pin,
    checksum::crc32c,
    entry::{ReplaySeed, Salt},
};
use millrace_wire::{Code, Durability, Error, LogName, Name, NamespaceId, Result, table::TableOptions};
use serde::{Deserialize, Serialize};

/// The format this version reads and writes.
pub const FORMAT: u32 = 3;
/// The longest manifest that is read: room for a hundred thousand definitions.
const MANIFEST_MAX_BYTES: usize = 64 << 20;
const MAGIC: &str = "millrace-manifest";

/// The content of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The namespace's identity.
    #[serde(with = "namespace_text")]
    pub namespace: NamespaceId,
    /// The secret salt of entries; see [`Salt`].
    #[serde(with = "salt_text")]
    pub salt: Salt,
    /// The seed of the random numbers of atomic runs: see [`ReplaySeed`].
    #[serde(with = "seed_text")]
    pub replay_seed: ReplaySeed,
    /// Raised at every unclean open.
    pub epoch: u32,
    /// Segment size, a power of two.
    pub segment_bytes: u64,
    /// Bytes of segments that are kept although nothing needs them.
    pub retain_bytes: u64,
    /// How long segments are kept that nothing needs, unless `retain_bytes` is exceeded.
    pub retain_age_ms: Option<u64>,
    /// Default durability of appends.
    pub durability: Durability,
    /// When the namespace was created, microseconds since 1970.
    pub created_us: u64,
    /// The oldest segment that is kept.
    pub first_segment: u64,
    /// The definitions below include every DEFINE up to this position.
    pub defined: u64,
    /// The id that the next log or function gets; never used twice.
    pub next_id: u32,
    /// Logs, by id.
    pub logs: Vec<LogRow>,
    /// Functions, by id.
    pub functions: Vec<FunctionRow>,
    /// Pins, which protect parts of the journal from retention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<Pin>,
    /// The identities that this namespace had before it was restored, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<Ancestor>,
    /// What a reader must know to open the namespace at all, by name: each kind, flag or key that entries have and the first
    /// version of the format did not. This version knows none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

/// The namespace that this one was restored from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ancestor {
    /// Its identity: that of the events up to `epoch`.
    #[serde(with = "namespace_text")]
    pub namespace: NamespaceId,
    /// The last epoch that is its.
    pub epoch: u32,
}

/// A log in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogRow {
    /// Never reused.
    pub id: u32,
    /// Unique among the namespace's logs.
    pub name: LogName,
    /// Records kept; 0 if they are kept until they are trimmed.
    pub history: u64,
    /// At least this many records were appended.
    pub latest: u64,
    /// Records before this seqno were trimmed; left out if none was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trimmed: u64,
    /// Its attributes as a table; left out if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableOptions>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A function in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionRow {
    /// Never reused.
    pub id: u32,
    /// Unique among the namespace's functions.
    pub name: Name,
    /// Attributes that the layers above store, as JSON; opaque here.
    pub attributes: String,
    /// How many definitions of it there were.
    pub revision: u32,
    /// At least this many runs were triggered.
    pub triggered: u64,
    /// At least this many runs ended.
    pub done: u64,
}

mod salt_text {
    use super::{Salt, bytes_text};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(salt: &Salt, serializer: S) -> Result<S::Ok, S::Error> {
        bytes_text::serialize(salt.to_bytes(), serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Salt, D::Error> {
        bytes_text::deserialize(deserializer).map(Salt::from_bytes)
    }
}

pub(super) mod seed_text {
    use super::{ReplaySeed, bytes_text};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(seed: &ReplaySeed, serializer: S) -> Result<S::Ok, S::Error> {
        bytes_text::serialize(seed.0, serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ReplaySeed, D::Error> {
        bytes_text::deserialize(deserializer).map(ReplaySeed)
    }
}

mod bytes_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: [u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(bytes)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32);
        let number = number.ok_or_else(|| D::Error::custom("16 bytes are 32 hexadecimal digits"))?;
        Ok(number.to_be_bytes())
    }
}

pub(super) mod namespace_text {
    use super::NamespaceId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(id: &NamespaceId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NamespaceId, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .ok()
            .and_then(NamespaceId::new)
            .ok_or_else(|| D::Error::custom("not a namespace id"))
    }
}

/// A later version wrote something that this one must not ignore.
fn too_new(what: &str) -> Error {
    let here = env!("CARGO_PKG_VERSION");
    Code::FormatVersion.error(format!("the manifest has an entry that Millrace {here} does not know: {what}"))
}

impl Manifest {
    /// The namespace, and what it was before.
    pub fn owners(&self) -> impl Iterator<Item = NamespaceId> {
        self.lineage.iter().map(|ancestor| ancestor.namespace).chain([self.namespace])
    }

    /// The manifest's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = serde_json::to_vec_pretty(self).expect("plain data always serialises");
        body.push(b'\n');
        let crc = crc32c(&body);
        let mut bytes = format!("{MAGIC} {FORMAT} {crc:08x} {}\n", body.len()).into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    }

    /// The manifest that these bytes hold.
    pub fn decode(bytes: &[u8]) -> Result<Manifest> {
        let damaged = |what: &str| Code::ManifestDamaged.error(format!("manifest: {what}"));
        if bytes.len() > MANIFEST_MAX_BYTES {
            return Err(damaged("it is longer than a manifest can be"));
        }
        let end = bytes.iter().take(80).position(|byte| *byte == b'\n').ok_or_else(|| damaged("no first line"))?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged("its first line is not text"))?;
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(Code::NotANamespace.error("the manifest was not written by Millrace"));
        }
        let format: u32 =
            words.next().and_then(|w| w.parse().ok()).ok_or_else(|| damaged("it does not name a format"))?;
        if format != FORMAT {
            return Err(Code::FormatVersion.error(format!(
                "the namespace has format {format}; this is Millrace {}, which reads format {FORMAT}",
                env!("CARGO_PKG_VERSION")
            )));
        }
        let crc = words.next().and_then(|w| u32::from_str_radix(w, 16).ok()).ok_or_else(|| damaged("no checksum"))?;
        let length: usize = words.next().and_then(|w| w.parse().ok()).ok_or_else(|| damaged("no length"))?;
        let body = &bytes[end + 1..];
        if body.len() != length {
            return Err(damaged(&format!("it should have {length} bytes, and has {}", body.len())));
        }
        if crc32c(body) != crc {
            return Err(damaged("the checksum does not match"));
        }
        let manifest: Manifest = json::decode(body).map_err(|error| match error {
            Unread::TooNew(what) => too_new(&what),
            Unread::Malformed(what) => damaged(&what),
        })?;
        if let Some(name) = manifest.requires.first() {
            return Err(too_new(&format!("it requires the feature '{name}'")));
        }
        manifest.validate().map_err(|what| damaged(&what))?;
        Ok(manifest)
    }

    /// Whether the values can be those of a namespace; a checksum proves who wrote them, not that they make sense.
    fn validate(&self) -> Result<(), String> {
        if !self.segment_bytes.is_power_of_two()
            || !(SEGMENT_MIN_BYTES..=SEGMENT_MAX_BYTES).contains(&self.segment_bytes)
        {
            return Err(format!("segments of {} bytes", self.segment_bytes));
        }
        if self.first_segment >= u64::MAX / self.segment_bytes {
            return Err(format!("first segment {}", self.first_segment));
        }
        if self.epoch > millrace_wire::EventId::EPOCH_MAX {
            return Err(format!("epoch {}", self.epoch));
        }
        let epochs = || self.lineage.iter().map(|ancestor| ancestor.epoch);
        if !epochs().is_sorted_by(|a, b| a < b) || epochs().any(|epoch| epoch > self.epoch) {
            return Err("the epochs of its lineage do not increase".into());
        }
        let mut ids = std::collections::HashSet::new();
        let mut names = std::collections::HashSet::new();
        for row in &self.logs {
            if row.history > crate::HISTORY_MAX {
                return Err(format!("log '{}' with a history of {}", row.name, row.history));
            }
            if row.trimmed > row.latest.saturating_add(1) {
                return Err(format!("log '{}' trimmed up to {} of {}", row.name, row.trimmed, row.latest));
            }
            if row.id >= self.next_id || !ids.insert(row.id) || !names.insert((true, &*row.name)) {
                return Err(format!("log '{}' is listed twice, or has an id that was never assigned", row.name));
            }
        }
        for row in &self.functions {
            if row.id >= self.next_id || !ids.insert(row.id) || !names.insert((false, &*row.name)) {
                return Err(format!("function '{}' is listed twice, or has an id that was never assigned", row.name));
            }
        }
        for pin in &self.pins {
            if pin.id >= self.next_id || !ids.insert(pin.id) {
                return Err(format!("pin {} is listed twice, or has an id that was never assigned", pin.id));
            }
        }
        Ok(())
    }
}

/// Smallest segment.
pub const SEGMENT_MIN_BYTES: u64 = 1 << 20;
/// Largest segment; an entry's length must fit in 32 bits with room to spare.
pub const SEGMENT_MAX_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Manifest {
        Manifest {
            namespace: NamespaceId::new(0xABC).unwrap(),
            salt: Salt([0x1234, 0xABCD]),
            replay_seed: ReplaySeed(*b"sixteen bytes 16"),
            epoch: 3,
            segment_bytes: 1 << 20,
            retain_bytes: 1 << 30,
            retain_age_ms: None,
            durability: Durability::Disk,
            created_us: 1,
            first_segment: 0,
            defined: 64,
            next_id: 3,
            logs: vec![LogRow {
                id: 1,
                name: "raw/a".parse().unwrap(),
                history: 10,
                latest: 4,
                trimmed: 2,
                table: None,
            }],
            functions: vec![FunctionRow {
                id: 2,
                name: "f".parse().unwrap(),
                attributes: "{}".into(),
                revision: 3,
                triggered: 1,
                done: 0,
            }],
            pins: vec![Pin { id: 0, from: 64, bytes_max: 1 << 30, until_us: 7, owner: "a test".into() }],
            lineage: vec![Ancestor { namespace: NamespaceId::new(0xDEF).unwrap(), epoch: 2 }],
            requires: Vec::new(),
        }
    }

    /// The sample with a key more in its body.
    fn with(key: &str) -> Vec<u8> {
        let text = String::from_utf8(sample().encode()).unwrap();
        let body = text.split_once('\n').unwrap().1.replacen('{', &format!("{{{key}:[1],"), 1);
        let crc = crc32c(body.as_bytes());
        format!("{MAGIC} {FORMAT} {crc:08x} {}\n{body}", body.len()).into_bytes()
    }

    #[test]
    fn unknown_keys_are_refused_by_name_unless_they_end_in_a_question_mark() {
        assert_eq!(Manifest::decode(&with("\"later?\"")).unwrap(), sample());
        let error = Manifest::decode(&with("\"later\"")).unwrap_err();
        assert_eq!(error.code(), Code::FormatVersion);
        assert!(error.detail().contains("`later`"), "{error}");
        let requires = Manifest { requires: vec!["kind 13".into()], ..sample() };
        let error = Manifest::decode(&requires.encode()).unwrap_err();
        assert_eq!(error.code(), Code::FormatVersion);
        assert!(error.detail().contains("'kind 13'"), "{error}");
    }

    #[test]
    fn comes_back_as_written() {
        assert_eq!(Manifest::decode(&sample().encode()).unwrap(), sample());
    }

    #[test]
    fn another_format_is_named() {
        let text = String::from_utf8(sample().encode()).unwrap().replacen("manifest 3", "manifest 9", 1);
        let error = Manifest::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error.code(), Code::FormatVersion);
        assert!(error.detail().contains("format 9"), "{error}");
    }

    #[test]
    fn impossible_values_are_refused_although_their_checksum_holds() {
        type Spoil = fn(&mut Manifest);
        let spoils: [Spoil; 6] = [
            |m| m.segment_bytes = 3 << 20,
            |m| m.segment_bytes = 0,
            |m| m.next_id = 2,
            |m| m.logs[0].history = crate::HISTORY_MAX + 1,
            |m| m.functions[0].id = 1,
            |m| m.first_segment = u64::MAX,
        ];
        for (n, spoil) in spoils.iter().enumerate() {
            let mut manifest = sample();
            spoil(&mut manifest);
            assert_eq!(Manifest::decode(&manifest.encode()).unwrap_err().code(), Code::ManifestDamaged, "{n}");
        }
    }

    proptest! {
        #[test]
        fn one_changed_byte_is_noticed(at in 0usize..10_000, flip in 1u8..) {
            let mut bytes = sample().encode();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            // A flip in the case of a checksum digit spells the same number; nothing else may pass.
            prop_assert!(Manifest::decode(&bytes).map_or(true, |manifest| manifest == sample()));
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Manifest::decode(&bytes).is_err());
        }
    }
}
