//! The bytes between host and worker, as `spec/protocol/worker.md` defines them. All numbers are little-endian.
//!
//! ```text
//! offset  0        4      5       6          8       12       16
//!        +--------+------+-------+----------+-------+--------+-------------------------------+
//!        | length | kind | flags | name len | work  | number | body: length bytes            |
//!        |  u32   |  u8  |  u8   |   u16    | u32   |  u32   | [WORK: 32 bytes] name, payload |
//!        +--------+------+-------+----------+-------+--------+-------------------------------+
//! WORK's 32 bytes: seqno u64, id u128, attempt u32, flags u32
//! ```

use crate::{Code, Error, Invocation, Result, output::head};

/// The version that this host and its workers speak.
pub(super) const PROTOCOL_VERSION: u32 = 4;
pub(super) const HEAD_BYTES: usize = 16;
const WORK_FIXED_BYTES: usize = 32;
/// The flag of a streamed run.
const STREAMED: u32 = 1;
/// The longest detail of an error that ends a stream.
const DETAIL_MAX_BYTES: usize = 8 << 10;
/// The longest body: a record of 16 MiB and what goes with it.
pub(super) const BODY_MAX_BYTES: usize = (16 << 20) + 4096;

// From the host.
const WORK: u8 = 1;
const ANSWER: u8 = 2;
const CALLBACK: u8 = 3;
const CANCEL: u8 = 4;
const WELCOME: u8 = 5;

/// The most bytes of a stream in one frame.
pub(super) const DATA_MAX_BYTES: usize = 1 << 20;

/// What the host has a worker do. A worker's HELLO has a bit for each kind that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum WorkKind {
    /// A run of the function for a record.
    Run = 1,
    /// A method of a shared object.
    Step = 2,
    /// A stream of bytes.
    Stream = 3,
}

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
    CalledBack = 26,
    Fields = 27,
    Class = 28,
    Table = 29,
    Data = 40,
    Credit = 42,
    End = 43,
    Reset = 44,
}

const KINDS: [Kind; 18] = [
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
    Kind::CalledBack,
    Kind::Fields,
    Kind::Class,
    Kind::Table,
    Kind::Data,
    Kind::Credit,
    Kind::End,
    Kind::Reset,
];

/// One frame of a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    /// The work that it is about; 0 if it is about the worker.
    pub(super) work: u32,
    /// Of a request: names it, so that its answer can have the same number.
    pub(super) number: u32,
    pub(super) name: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes` and its length, or `None` if more bytes are needed.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [l0, l1, l2, l3, kind, flags, n0, n1, w0, w1, w2, w3, number @ ..] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let name_length = usize::from(u16::from_le_bytes([n0, n1]));
        let known = KINDS.into_iter().find(|known| *known as u8 == kind && flags == 0);
        let (Some(kind), true) = (known, name_length <= length && length <= BODY_MAX_BYTES) else {
            return Err(not_a_frame(head));
        };
        let Some(body) = bytes[HEAD_BYTES..].get(..length) else {
            return Ok(None);
        };
        let (name, payload) = body.split_at(name_length);
        let (work, number) = (u32::from_le_bytes([w0, w1, w2, w3]), u32::from_le_bytes(number));
        Ok(Some((Frame { kind, work, number, name, payload }, HEAD_BYTES + length)))
    }
}

fn not_a_frame(head: &[u8]) -> Error {
    Code::WorkerProtocol.error(format!("no frame begins with \"{}\"", head.escape_ascii()))
}

/// Writes a head: the kind, the work and number, and the lengths of the name and of the whole body.
pub(super) fn put_head(to: &mut Vec<u8>, kind: u8, (work, number): (u32, u32), name_length: usize, length: usize) {
    to.extend_from_slice(&u32::try_from(length).expect("records are bounded").to_le_bytes());
    to.extend_from_slice(&[kind, 0]);
    to.extend_from_slice(&u16::try_from(name_length).expect("log names are bounded").to_le_bytes());
    to.extend_from_slice(&work.to_le_bytes());
    to.extend_from_slice(&number.to_le_bytes());
}

/// How many bytes the WORK frame of this invocation has.
pub(super) fn work_bytes(invocation: &Invocation<'_>) -> usize {
    HEAD_BYTES + WORK_FIXED_BYTES + invocation.log.len() + invocation.payload.len()
}

/// Writes the WORK frame with this id.
pub(super) fn put_work(to: &mut Vec<u8>, work: u32, kind: WorkKind, invocation: &Invocation<'_>) {
    put_head(to, WORK, (work, kind as u32), invocation.log.len(), work_bytes(invocation) - HEAD_BYTES);
    to.extend_from_slice(&invocation.seqno.to_le_bytes());
    to.extend_from_slice(&invocation.run.get().to_le_bytes());
    to.extend_from_slice(&invocation.attempt.to_le_bytes());
    to.extend_from_slice(&if invocation.streamed { STREAMED } else { 0 }.to_le_bytes());
    to.extend_from_slice(invocation.log.as_bytes());
    to.extend_from_slice(invocation.payload);
}

/// Writes the CALLBACK of a call that runs within the work.
pub(super) fn put_callback(to: &mut Vec<u8>, about: (u32, u32), call: &[u8]) {
    put_head(to, CALLBACK, about, 0, call.len());
    to.extend_from_slice(call);
}

/// Writes a frame of a stream that is only a head, with this number.
pub(super) fn put_bare(to: &mut Vec<u8>, kind: Kind, work: u32, number: u32) {
    put_head(to, kind as u8, (work, number), 0, 0);
}

/// Writes bytes of a stream.
pub(super) fn put_data(to: &mut Vec<u8>, work: u32, bytes: &[u8]) {
    put_head(to, Kind::Data as u8, (work, 0), 0, bytes.len());
    to.extend_from_slice(bytes);
}

/// Writes that the bytes of a stream have ended too early.
pub(super) fn put_reset(to: &mut Vec<u8>, work: u32, error: &Error) {
    let (code, detail) = (error.code().id().as_bytes(), head(error.detail(), DETAIL_MAX_BYTES).into_bytes());
    put_head(to, Kind::Reset as u8, (work, 0), code.len(), code.len() + detail.len());
    to.extend_from_slice(code);
    to.extend_from_slice(&detail);
}

/// Writes that a stream is to end.
pub(super) fn put_cancel(to: &mut Vec<u8>, work: u32) {
    put_head(to, CANCEL, (work, 0), 0, 0);
}

/// Writes the WELCOME of a worker that offers features: those of them that this host uses.
pub(super) fn put_welcome(to: &mut Vec<u8>, features: u32) {
    put_head(to, WELCOME, (0, PROTOCOL_VERSION), 0, 4);
    to.extend_from_slice(&features.to_le_bytes());
}

/// Writes the ANSWER to a request: what it asked for, or the error's code as the name and what was wrong.
pub(super) fn put_answer(to: &mut Vec<u8>, about: (u32, u32), answer: Result<&[u8], &Error>) {
    let (code, payload) = match answer {
        Ok(payload) => ("", payload),
        Err(error) => (error.code().id(), error.detail().as_bytes()),
    };
    put_head(to, ANSWER, about, code.len(), code.len() + payload.len());
    to.extend_from_slice(code.as_bytes());
    to.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, name: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_head(&mut bytes, kind, (6, 7), name.len(), name.len() + payload.len());
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
        assert_eq!(parsed, Frame { kind: Kind::Append, work: 6, number: 7, name: b"log", payload: b"payload" });
        assert_eq!(length, whole);
    }

    #[test]
    fn what_is_no_frame_is_refused_at_its_head() {
        let long_name = {
            let mut bytes = frame(Kind::Append as u8, b"log", b"");
            bytes[6] = 200;
            bytes
        };
        for bytes in [&b"Hello, world, hello"[..], &[0; 16], &frame(WORK, b"", b""), &frame(30, b"", b""), &long_name] {
            assert_eq!(Frame::parse(bytes).unwrap_err().code(), Code::WorkerProtocol, "{bytes:?}");
        }
    }

    /// One of the golden frames that implementations in all languages are compared with.
    struct Golden {
        name: String,
        fields: serde_json::Value,
    }

    impl Golden {
        fn text(&self, field: &str) -> &str {
            self.fields[field].as_str().unwrap_or_default()
        }

        fn number(&self, field: &str) -> u32 {
            self.fields[field].as_u64().unwrap().try_into().unwrap()
        }

        fn bytes(&self, field: &str) -> Vec<u8> {
            let digits = self.text(field);
            (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
        }
    }

    #[test]
    fn frames_have_the_golden_bytes() {
        let file = include_str!("../../../../spec/vectors/worker.json");
        let file: serde_json::Value = serde_json::from_str(file).unwrap();
        let frames = file["frames"].as_array().unwrap().iter();
        let goldens: Vec<Golden> = frames
            .map(|fields| Golden { name: fields["frame"].as_str().unwrap().to_owned(), fields: fields.clone() })
            .collect();
        let mut kinds: Vec<u8> = Vec::new();
        for golden in &goldens {
            let (bytes, payload) = (golden.bytes("bytes"), golden.bytes("payload"));
            let about = (golden.number("work"), golden.number("number"));
            let kind = golden.number("kind") as u8;
            let mut ours = Vec::new();
            match (golden.text("from"), kind) {
                ("worker", kind) => {
                    let (parsed, length) = Frame::parse(&bytes).unwrap().unwrap();
                    let expected = (kind, about, golden.text("name").as_bytes(), &payload[..]);
                    assert_eq!(
                        (parsed.kind as u8, (parsed.work, parsed.number), parsed.name, parsed.payload),
                        expected,
                        "{}",
                        golden.name
                    );
                    assert_eq!(length, bytes.len());
                    kinds.push(kind);
                    continue;
                }
                (_, WORK) => {
                    let fixed = golden.bytes("fixed");
                    let invocation = Invocation {
                        log: golden.text("name"),
                        seqno: u64::from_le_bytes(fixed[..8].try_into().unwrap()),
                        payload: &payload,
                        run: crate::EventId::from_bits(u128::from_le_bytes(fixed[8..24].try_into().unwrap())),
                        attempt: u32::from_le_bytes(fixed[24..28].try_into().unwrap()),
                        streamed: fixed[28] == 1,
                    };
                    let kinds = [WorkKind::Run, WorkKind::Step, WorkKind::Stream];
                    let kind = kinds.into_iter().find(|kind| *kind as u32 == about.1).unwrap();
                    put_work(&mut ours, about.0, kind, &invocation);
                    assert_eq!(work_bytes(&invocation), bytes.len());
                }
                (_, ANSWER) => {
                    let refused = Code::from_id(golden.text("name"))
                        .map(|code| code.error(String::from_utf8(payload.clone()).unwrap()));
                    put_answer(
                        &mut ours,
                        about,
                        match &refused {
                            Some(error) => Err(error),
                            None => Ok(&payload),
                        },
                    );
                }
                (_, CALLBACK) => put_callback(&mut ours, about, &payload),
                (_, WELCOME) => put_welcome(&mut ours, 0),
                (_, CANCEL) => put_cancel(&mut ours, about.0),
                (_, kind) if kind == Kind::Data as u8 => put_data(&mut ours, about.0, &payload),
                (_, kind) if kind == Kind::Credit as u8 => put_bare(&mut ours, Kind::Credit, about.0, about.1),
                (_, kind) if kind == Kind::End as u8 => put_bare(&mut ours, Kind::End, about.0, 0),
                (_, kind) if kind == Kind::Reset as u8 => {
                    let code = Code::from_id(golden.text("name")).unwrap();
                    put_reset(&mut ours, about.0, &code.error(String::from_utf8(payload.clone()).unwrap()));
                }
                (from, kind) => panic!("kind {kind} from {from}"),
            }
            assert_eq!(ours, bytes, "{}", golden.name);
        }
        kinds.dedup();
        assert_eq!(kinds, KINDS.map(|kind| kind as u8), "each kind has a golden frame");
    }
}
