//! The bytes between host and worker, as `spec/protocol/worker.md` defines them. All numbers are little-endian.
//!
//! ```text
//! offset  0        4      5      6          8            16
//!        +--------+------+------+----------+------------+------------------------------+
//!        | length | kind | zero | name len |   number   | body: length bytes           |
//!        |  u32   |  u8  |  u8  |   u16    |    u64     | [RUN: 32 bytes] name, payload |
//!        +--------+------+------+----------+------------+------------------------------+
//! RUN's 32 bytes: seqno u64, run id u128, attempt u32, flags u32
//! ```

use crate::{Code, Error, Invocation, Result};

/// The newest version; a worker of version 1 knows no streamed runs.
pub(super) const PROTOCOL_VERSION: u64 = 3;
/// The first version with streamed runs.
pub(super) const STREAMED_VERSION: u64 = 2;
pub(super) const HEAD_BYTES: usize = 16;
const RUN_FIXED_BYTES: usize = 32;
/// RUN's flag of a streamed run.
const STREAMED: u32 = 1;
/// The longest body: a record of 16 MiB and what goes with it.
pub(super) const BODY_MAX_BYTES: usize = (16 << 20) + 4096;

// From the host.
const RUN: u8 = 1;
const ANSWER: u8 = 2;
const RETURN: u8 = 3;
const REENTER: u8 = 4;

/// The messages of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 16,
    Refuse = 17,
    Append = 18,
    Done = 19,
    Get = 20,
    Latest = 21,
    Now = 22,
    Random = 23,
    Output = 24,
    Call = 25,
    Reentered = 26,
}

const KINDS: [Kind; 11] = [
    Kind::Hello,
    Kind::Refuse,
    Kind::Append,
    Kind::Done,
    Kind::Get,
    Kind::Latest,
    Kind::Now,
    Kind::Random,
    Kind::Output,
    Kind::Call,
    Kind::Reentered,
];

/// One frame of a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) name: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes` and its length, or `None` if more bytes are needed.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [l0, l1, l2, l3, kind, zero, n0, n1, number @ ..] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let name_length = usize::from(u16::from_le_bytes([n0, n1]));
        let known = KINDS.into_iter().find(|known| *known as u8 == kind && zero == 0);
        let (Some(kind), true) = (known, name_length <= length && length <= BODY_MAX_BYTES) else {
            return Err(not_a_frame(head));
        };
        let Some(body) = bytes[HEAD_BYTES..].get(..length) else {
            return Ok(None);
        };
        let (name, payload) = body.split_at(name_length);
        Ok(Some((Frame { kind, number: u64::from_le_bytes(number), name, payload }, HEAD_BYTES + length)))
    }
}

fn not_a_frame(head: &[u8]) -> Error {
    Code::WorkerProtocol.error(format!("no frame begins with \"{}\"", head.escape_ascii()))
}

pub(super) fn put_head(to: &mut Vec<u8>, kind: u8, number: u64, name_length: usize, length: usize) {
    to.extend_from_slice(&u32::try_from(length).expect("records are bounded").to_le_bytes());
    to.extend_from_slice(&[kind, 0]);
    to.extend_from_slice(&u16::try_from(name_length).expect("log names are bounded").to_le_bytes());
    to.extend_from_slice(&number.to_le_bytes());
}

/// How many bytes the RUN frame of this invocation has.
pub(super) fn run_bytes(invocation: &Invocation<'_>) -> usize {
    HEAD_BYTES + RUN_FIXED_BYTES + invocation.log.len() + invocation.payload.len()
}

/// Writes the RUN frame with this serial number.
pub(super) fn put_run(to: &mut Vec<u8>, serial: u64, invocation: &Invocation<'_>) {
    put_head(to, RUN, serial, invocation.log.len(), run_bytes(invocation) - HEAD_BYTES);
    to.extend_from_slice(&invocation.seqno.to_le_bytes());
    to.extend_from_slice(&invocation.run.get().to_le_bytes());
    to.extend_from_slice(&invocation.attempt.to_le_bytes());
    to.extend_from_slice(&if invocation.streamed { STREAMED } else { 0 }.to_le_bytes());
    to.extend_from_slice(invocation.log.as_bytes());
    to.extend_from_slice(invocation.payload);
}

/// Writes the REENTER of a call that runs within the run.
pub(super) fn put_reenter(to: &mut Vec<u8>, number: u32, call: &[u8]) {
    put_head(to, REENTER, u64::from(number), 0, call.len());
    to.extend_from_slice(call);
}

/// Writes the RETURN of a call that has a number: its answer, or the error's code and what was wrong.
pub(super) fn put_return(to: &mut Vec<u8>, number: u64, answer: Result<&[u8]>) {
    let (code, payload) = match &answer {
        Ok(payload) => ("", *payload),
        Err(error) => (error.code().id(), error.detail().as_bytes()),
    };
    put_head(to, RETURN, number, code.len(), code.len() + payload.len());
    to.extend_from_slice(code.as_bytes());
    to.extend_from_slice(payload);
}

/// Writes the ANSWER to a call: what it asked for, or the number of the error's code and what was wrong.
pub(super) fn put_answer(to: &mut Vec<u8>, answer: Result<&[u8]>) {
    match answer {
        Ok(payload) => {
            put_head(to, ANSWER, 0, 0, payload.len());
            to.extend_from_slice(payload);
        }
        Err(error) => {
            let number = error.code().id()[2..].parse().expect("a code is MR and four digits");
            put_head(to, ANSWER, number, 0, error.detail().len());
            to.extend_from_slice(error.detail().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, name: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_head(&mut bytes, kind, 7, name.len(), name.len() + payload.len());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn a_frame_is_parsed_when_it_is_whole() {
        let mut bytes = frame(Kind::Append as u8, b"log", b"payload");
        let whole = bytes.len();
        bytes.extend_from_slice(&frame(Kind::Done as u8, b"", b""));
        for cut in 0..whole {
            assert_eq!(Frame::parse(&bytes[..cut]), Ok(None), "{cut}");
        }
        let (parsed, length) = Frame::parse(&bytes).unwrap().unwrap();
        assert_eq!(parsed, Frame { kind: Kind::Append, number: 7, name: b"log", payload: b"payload" });
        assert_eq!(length, whole);
    }

    #[test]
    fn what_is_no_frame_is_refused_at_its_head() {
        let long_name = {
            let mut bytes = frame(Kind::Append as u8, b"log", b"");
            bytes[6] = 200;
            bytes
        };
        for bytes in [&b"Hello, world, hello"[..], &[0; 16], &frame(RUN, b"", b""), &frame(27, b"", b""), &long_name] {
            assert_eq!(Frame::parse(bytes).unwrap_err().code(), Code::WorkerProtocol, "{bytes:?}");
        }
    }
}
