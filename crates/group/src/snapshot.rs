//! The snapshot that replaces the trimmed beginning of a group's log, and how a replica gets it from another one.
//!
//! A snapshot consists of the topics as of an entry, and of the entries before the log's new beginning whose records those topics have. A
//! replica writes its own snapshots into its log; one that lacks what others have trimmed asks for theirs in chunks.

use crate::{Form, Leaders, Machine, Proposal, Topics};
use millrace_wire::{Code, Error, Result};
use raft::eraftpb::{ConfState, Snapshot};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, io::Cursor};

/// The bytes of topics in one part, and the approximate size of a chunk.
pub const PART_MAX_BYTES: usize = 256 << 10;
pub const CHUNK_MAX_BYTES: usize = 512 << 10;
/// The maximum size of the topics of a group.
pub const TOPICS_MAX_BYTES: usize = 1 << 30;

/// The state that a snapshot replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The topics are those after this entry.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The log begins with this entry, at most the one after `index`.
    pub first: u64,
    /// The term of the entry before that one.
    pub before: u64,
    /// The voters after entry `index`.
    pub voters: Vec<u64>,
    /// The followers without a vote.
    pub learners: Vec<u64>,
}

impl Mark {
    /// As Raft has it.
    pub fn as_message(&self) -> Snapshot {
        let (voters, learners) = (self.voters.clone(), self.learners.clone());
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.index, self.term);
        metadata.set_conf_state(ConfState { voters, learners, ..ConfState::default() });
        snapshot
    }

    /// Decodes the offer of another replica; `None` if it is invalid.
    pub fn of_message(snapshot: &Snapshot) -> Option<Self> {
        let metadata = snapshot.get_metadata();
        let conf = metadata.get_conf_state();
        let (voters, learners) = (conf.voters.clone(), conf.learners.clone());
        let distinct: BTreeSet<u64> = voters.iter().chain(&learners).copied().collect();
        let is_plain = conf.voters_outgoing.is_empty() && conf.learners_next.is_empty() && !conf.auto_leave;
        let is_sound = metadata.index > 0
            && metadata.index < u64::MAX
            && metadata.term > 0
            && snapshot.data.is_empty()
            && is_plain
            && !voters.is_empty()
            && distinct.len() == voters.len() + learners.len()
            && !distinct.contains(&0);
        let (index, term) = (metadata.index, metadata.term);
        is_sound.then_some(Self { index, term, first: index + 1, before: term, voters, learners })
    }

    /// Whether it is valid in a log.
    pub fn check(&self) -> Result<()> {
        if self.index > 0 && self.first > 0 && self.first <= self.index + 1 && !self.voters.is_empty() {
            return Ok(());
        }
        Err(Code::GroupLogDamaged.error(format!("a snapshot as of entry {} begins with {}", self.index, self.first)))
    }
}

/// An item that is to be written, in the order of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// An entry of the log.
    Entry(Proposal),
    /// Begins a snapshot. The parts of an earlier incomplete one are discarded.
    Begin,
    /// Some of the bytes of its topics.
    Part(Vec<u8>),
    /// An entry whose record its topics have. It is not an entry of the log, which begins after it.
    Kept(Proposal),
    /// Completes the snapshot, which replaces everything before its first entry.
    End(Mark),
    /// Who led in the terms of entries: before the first entry of such a term, and again behind a snapshot.
    Led(Leaders),
}

impl Write {
    /// Its size in bytes, without overhead.
    pub fn bytes(&self) -> usize {
        match self {
            Write::Entry(entry) | Write::Kept(entry) => entry.data.len(),
            Write::Part(bytes) => bytes.len(),
            Write::Begin | Write::End(_) | Write::Led(_) => 0,
        }
    }
}

/// The progress of a replica that fetches the snapshot of another one: bytes of topics, then entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    pub bytes: u64,
    pub entries: u64,
}

/// A request for a part of another replica's snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    pub from: u64,
    pub to: u64,
    pub index: u64,
    pub term: u64,
    pub reached: Reached,
}

/// An entry in a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub index: u64,
    pub term: u64,
    #[serde(with = "bytes")]
    pub data: Vec<u8>,
}

impl From<Carried> for Proposal {
    fn from(Carried { index, term, data }: Carried) -> Self {
        // Topics hold commands only.
        Proposal { term, index, form: Form::Command, data }
    }
}

/// The answer: the next chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub from: u64,
    pub to: u64,
    pub index: u64,
    pub term: u64,
    /// The chunk follows this progress.
    pub behind: Reached,
    /// The progress with the chunk; `None` if the snapshot is no longer offered.
    pub reached: Option<Reached>,
    #[serde(with = "bytes")]
    pub part: Vec<u8>,
    pub entries: Vec<Carried>,
    /// Whether it is the last one.
    pub is_last: bool,
}

/// The leader informs a host that a command of that host is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    pub from: u64,
    pub to: u64,
    pub boot: u64,
    pub serial: u64,
}

/// A message between replicas.
pub enum Said {
    Raft(Box<raft::eraftpb::Message>),
    Fetch(Fetch),
    Chunk(Chunk),
    Stored(Stored),
}

const RAFT: u8 = 0;
const FETCH: u8 = 1;
const CHUNK: u8 = 2;
const STORED: u8 = 3;

impl Said {
    /// Decodes a message; nothing if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        use protobuf::Message as _;
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            RAFT => raft::eraftpb::Message::parse_from_bytes(rest).ok().map(|message| Said::Raft(Box::new(message))),
            FETCH => rmp_serde::from_slice(rest).ok().map(Said::Fetch),
            CHUNK => rmp_serde::from_slice(rest).ok().map(Said::Chunk),
            STORED => rmp_serde::from_slice(rest).ok().map(Said::Stored),
            _ => None,
        }
    }

    /// Encodes it. This can fail only for lack of memory.
    pub fn bytes(&self) -> Vec<u8> {
        use protobuf::Message as _;
        let (kind, rest) = match self {
            Said::Raft(message) => (RAFT, message.write_to_bytes().unwrap_or_default()),
            Said::Fetch(fetch) => (FETCH, rmp_serde::to_vec(fetch).unwrap_or_default()),
            Said::Chunk(chunk) => (CHUNK, rmp_serde::to_vec(chunk).unwrap_or_default()),
            Said::Stored(stored) => (STORED, rmp_serde::to_vec(stored).unwrap_or_default()),
        };
        let mut bytes = Vec::with_capacity(1 + rest.len());
        bytes.push(kind);
        bytes.extend_from_slice(&rest);
        bytes
    }
}

/// The bytes of topics, followed by those of the machine.
pub fn encode(topics: &Topics, machine: &dyn Machine) -> Result<Vec<u8>> {
    let failed = |error| Code::HostInternal.error(format!("the topics cannot be encoded: {error}"));
    let mut bytes = rmp_serde::to_vec_named(topics).map_err(failed)?;
    bytes.extend(machine.encode());
    Ok(bytes)
}

/// The topics of these bytes, and the bytes of the machine, which are checked.
pub fn decode<'b>(bytes: &'b [u8], machine: &dyn Machine) -> Result<(Topics, &'b [u8])> {
    let damaged = |error| Code::GroupLogDamaged.error(format!("the topics of a snapshot: {error}"));
    let mut reader = Cursor::new(bytes);
    let topics: Topics = rmp_serde::from_read(&mut reader).map_err(damaged)?;
    let rest = usize::try_from(reader.position()).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    machine.check(rest)?;
    Ok((topics.completed(), rest))
}

/// Encodes bytes as a byte string, which is shorter than an array of numbers.
mod bytes {
    use serde::{Deserializer, Serializer, de::Visitor};
    use std::fmt;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Outcomes, including errors, as a snapshot encodes them.
pub mod outcomes {
    use super::{Code, Error, Result};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    #[derive(Serialize, Deserialize)]
    enum Reported {
        Done(u64),
        Refused(String, String),
    }

    pub fn serialize<S: Serializer>(
        all: &BTreeMap<u64, Result<u64>>,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let reported = |outcome: &Result<u64>| match outcome {
            Ok(done) => Reported::Done(*done),
            Err(error) => Reported::Refused(error.code().id().to_owned(), error.detail().to_owned()),
        };
        let all: Vec<(u64, Reported)> = all.iter().map(|(serial, outcome)| (*serial, reported(outcome))).collect();
        all.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<BTreeMap<u64, Result<u64>>, D::Error> {
        let outcome = |reported| match reported {
            Reported::Done(done) => Ok(done),
            Reported::Refused(code, detail) => Err(refused(&code, detail)),
        };
        let all: Vec<(u64, Reported)> = Vec::deserialize(deserializer)?;
        Ok(all.into_iter().map(|(serial, reported)| (serial, outcome(reported))).collect())
    }

    fn refused(code: &str, detail: String) -> Error {
        Code::from_id(code).unwrap_or(Code::HostCodeUnknown).error(detail)
    }
}
