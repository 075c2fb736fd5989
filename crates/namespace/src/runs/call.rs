//! The payload of a CALL entry: a call of a streamed run, and its answer.
//!
//! ```text
//!   what (1)  answer (1)  name length (2)  name (log or address)  body
//! ```
//!
//! `spec/formats/journal.md` is normative. The entry's `seqno` is the one asked for (get) or answered (append).

use millrace_journal::Entry;
use millrace_wire::{Code, Error, Hex, LogName};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A record that is longer is not repeated in the entry: it is read again from its log.
pub const INLINE_MAX_BYTES: usize = 64 << 10;
/// So much of an appended record is kept to be shown, should the run diverge.
const BEGINNING_BYTES: usize = 64;

const GET: u8 = 1;
const LATEST: u8 = 2;
const NOW: u8 = 3;
const RANDOM: u8 = 4;
const APPEND: u8 = 5;

const VALUE: u8 = 0;
const REFUSED: u8 = 1;
const STORED: u8 = 2;

/// The kind of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The record of a log with this seqno.
    Get {
        /// The log.
        log: String,
        /// The record's number there.
        seqno: u64,
    },
    /// The newest seqno of a log.
    Latest {
        /// The log.
        log: String,
    },
    /// The time.
    Now,
    /// Random bytes.
    Random {
        /// How many.
        bytes: usize,
    },
    /// An append to a log or an address.
    Append {
        /// The log or address.
        to: String,
        /// The record's bytes, as far as they are kept.
        data: Fingerprint,
    },
}

/// The kind of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A record, or random bytes.
    Bytes(Vec<u8>),
    /// A time, or a seqno.
    Number(u64),
    /// The record that is in the log.
    Stored,
    /// A refusal.
    Refused(Error),
}

/// Tells appended records apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    length: u64,
    sha256: [u8; 32],
    beginning: Vec<u8>,
}

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(data: &[u8]) -> Self {
        let beginning = data[..data.len().min(BEGINNING_BYTES)].to_vec();
        Self { length: data.len() as u64, sha256: Sha256::digest(data).into(), beginning }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)?;
        let beginning = String::from_utf8_lossy(&self.beginning);
        if self.length as usize <= BEGINNING_BYTES {
            return write!(f, " '{}'", beginning.escape_debug());
        }
        write!(f, " '{}…' (SHA-256 ", beginning.escape_debug())?;
        write!(f, "{}…)", Hex(&self.sha256[..8]))
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Question::Get { log, seqno } => write!(f, "get of record {seqno} of '{log}'"),
            Question::Latest { log } => write!(f, "latest of '{log}'"),
            Question::Now => f.write_str("now"),
            Question::Random { bytes } => write!(f, "random of {bytes} bytes"),
            Question::Append { to, data } => write!(f, "append to '{to}' of {data}"),
        }
    }
}

/// A call as it is in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The call.
    pub question: Question,
    /// The answer.
    pub answer: Answer,
}

impl Call {
    /// The entry's seqno and payload.
    pub fn encode(&self) -> (u64, Vec<u8>) {
        let (what, name, asked) = match &self.question {
            Question::Get { log, seqno } => (GET, &**log, *seqno),
            Question::Latest { log } => (LATEST, &**log, 0),
            Question::Now => (NOW, "", 0),
            Question::Random { .. } => (RANDOM, "", 0),
            Question::Append { to, .. } => (APPEND, &**to, 0),
        };
        let kind = match &self.answer {
            Answer::Bytes(_) | Answer::Number(_) => VALUE,
            Answer::Stored => STORED,
            Answer::Refused(_) => REFUSED,
        };
        let mut payload = vec![what, kind];
        payload.extend_from_slice(&(name.len() as u16).to_le_bytes()); // names and addresses are far shorter
        payload.extend_from_slice(name.as_bytes());
        let mut seqno = asked;
        match (&self.question, &self.answer) {
            (Question::Append { data, .. }, Answer::Number(number)) => {
                seqno = *number;
                payload.extend_from_slice(&data.length.to_le_bytes());
                payload.extend_from_slice(&data.sha256);
                payload.extend_from_slice(&data.beginning);
            }
            (_, Answer::Number(number)) => payload.extend_from_slice(&number.to_le_bytes()),
            (_, Answer::Bytes(bytes)) => payload.extend_from_slice(bytes),
            (_, Answer::Stored) => {}
            (_, Answer::Refused(error)) => {
                payload.extend_from_slice(error.code().id().as_bytes());
                payload.extend_from_slice(error.detail().as_bytes());
            }
        }
        (seqno, payload)
    }

    /// The call that an entry carries; `None` if it is none that this version writes.
    pub fn decode(seqno: u64, payload: &[u8]) -> Option<Self> {
        let (&[what, kind], rest) = payload.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (name, body) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let question = match what {
            GET => Question::Get { log: name, seqno },
            LATEST => Question::Latest { log: name },
            NOW => Question::Now,
            RANDOM => Question::Random { bytes: body.len() },
            APPEND => {
                let (length, body) = body.split_first_chunk::<8>()?;
                let (sha256, beginning) = body.split_first_chunk::<32>()?;
                let length = u64::from_le_bytes(*length);
                let data = Fingerprint { length, sha256: *sha256, beginning: beginning.to_vec() };
                return (kind == VALUE)
                    .then_some(Self { question: Question::Append { to: name, data }, answer: Answer::Number(seqno) });
            }
            _ => return None,
        };
        let answer = match (kind, what) {
            (VALUE, GET | RANDOM) => Answer::Bytes(body.to_vec()),
            (VALUE, _) => Answer::Number(u64::from_le_bytes(body.try_into().ok()?)),
            (STORED, GET) => Answer::Stored,
            (REFUSED, GET | LATEST) => {
                let (code, detail) = body.split_at_checked(6)?;
                let code = Code::from_id(std::str::from_utf8(code).ok()?)?;
                Answer::Refused(code.error(std::str::from_utf8(detail).ok()?))
            }
            _ => return None,
        };
        Some(Self { question, answer })
    }
}

/// The record that a CALL asked for: its log, if that is a name, and its seqno.
pub(super) fn read_by(entry: &Entry) -> Option<(Option<LogName>, u64)> {
    let call = Call::decode(entry.seqno, &entry.payload)?;
    match (&call.question, &call.answer) {
        (Question::Get { log, seqno }, _) => Some((log.parse().ok(), *seqno)),
        (Question::Latest { log }, Answer::Number(seqno)) => Some((log.parse().ok(), *seqno)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn calls() -> impl Strategy<Value = Call> {
        let name = "[a-z/]{1,20}";
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        let refusal = || "[a-z ]{0,30}".prop_map(|detail| Answer::Refused(Code::AboveTail.error(detail)));
        prop_oneof![
            (name, any::<u64>(), prop_oneof![bytes().prop_map(Answer::Bytes), Just(Answer::Stored), refusal()])
                .prop_map(|(log, seqno, answer)| Call { question: Question::Get { log, seqno }, answer }),
            (name, prop_oneof![any::<u64>().prop_map(Answer::Number), refusal()])
                .prop_map(|(log, answer)| Call { question: Question::Latest { log }, answer }),
            any::<u64>().prop_map(|ns| Call { question: Question::Now, answer: Answer::Number(ns) }),
            bytes().prop_map(|bytes| Call {
                question: Question::Random { bytes: bytes.len() },
                answer: Answer::Bytes(bytes)
            }),
            (name, bytes(), any::<u64>()).prop_map(|(to, data, seqno)| Call {
                question: Question::Append { to, data: Fingerprint::of(&data) },
                answer: Answer::Number(seqno),
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_call_comes_back_from_its_entry(call in calls()) {
            let (seqno, payload) = call.encode();
            prop_assert_eq!(Call::decode(seqno, &payload), Some(call));
        }

        #[test]
        fn bytes_that_are_no_call_are_none(seqno: u64, payload in proptest::collection::vec(0..8u8, 0..60)) {
            if let Some(call) = Call::decode(seqno, &payload) {
                let (_, again) = call.encode();
                prop_assert_eq!(Call::decode(seqno, &again), Some(call));
            }
        }
    }

    #[test]
    fn both_versions_can_be_told_apart_by_a_reader() {
        let of = |text: &str| Question::Append { to: "out".into(), data: Fingerprint::of(text.as_bytes()) }.to_string();
        assert_eq!(of("a\n"), r"append to 'out' of 2 bytes 'a\n'");
        let (one, other) = (of(&"x".repeat(100)), of(&format!("{}y", "x".repeat(99))));
        assert!(one != other && one.starts_with("append to 'out' of 100 bytes 'xxx"), "{one} {other}");
    }
}
