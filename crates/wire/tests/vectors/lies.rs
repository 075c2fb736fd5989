//! Frames that must be refused, and frames that must be read although nobody of ours writes them so.

use super::{Case, cases};
use crate::lent;
use millrace_wire::{Code, Durability, EventId, Hlc, Result, message_of_type, protocol::*};

/// A frame that must be refused.
pub struct Lie {
    pub name: &'static str,
    pub code: Code,
    pub bytes: Vec<u8>,
}

impl Lie {
    /// The code with which it is refused, if it is.
    pub fn refused_with(&self) -> Option<Code> {
        match split(&self.bytes, FRAME_MAX_BYTES) {
            Err(error) => Some(error.code()),
            Ok(None) => None,
            Ok(Some((frame, _))) => read(frame).err().map(|error| error.code()),
        }
    }
}

fn read(frame: Frame<'_>) -> Result<()> {
    macro_rules! read {
        ($type:ident) => {
            frame.message::<$type>().map(drop)
        };
    }
    message_of_type!(frame.kind, read, panic!("no lie is told with type {}", frame.kind))
}

/// Puts the length before a body.
fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

/// A frame of this type, request 1, without clock and cause.
fn frame(kind: u8, message: &[u8]) -> Vec<u8> {
    framed(&[&[0x95, kind, 1, 0, 0xc0], message].concat())
}

const ID: &[u8] = &[7; 16];

pub fn all() -> Vec<Lie> {
    let lie = |name, code, bytes| Lie { name, code, bytes };
    let malformed = |name, bytes| lie(name, Code::FrameMalformed, bytes);
    let appended = |id: &[u8]| frame(17, &[b"\x82\xa5seqno\x01\xa2id", id].concat());
    let deep = |depth: usize| [b"\x81\xa1x".as_slice(), &vec![0x91; depth], b"\xc0"].concat();
    vec![
        lie("length.longest", Code::FrameTooLong, u32::MAX.to_le_bytes().to_vec()),
        lie("length.one-too-long", Code::FrameTooLong, (FRAME_MAX_BYTES as u32 + 1).to_le_bytes().to_vec()),
        malformed("body.empty", framed(&[])),
        malformed("body.nil", framed(b"\xc0")),
        malformed("body.map", framed(b"\x80")),
        malformed("body.text", framed(b"HTTP/1.1")),
        malformed("elements.four", framed(b"\x94\x04\x01\x00\xc0")),
        malformed("elements.six", framed(b"\x96\x04\x01\x00\xc0\x80\xc0")),
        malformed("slot.0", framed(b"\x96\x04\x01\x00\xc0\x80\x00")),
        malformed("slot.16", framed(b"\x96\x04\x01\x00\xc0\x80\x10")),
        malformed("elements.cut", framed(b"\x95\x04\x01")),
        malformed("type.negative", framed(b"\x95\xff\x01\x00\xc0\x80")),
        malformed("type.text", framed(b"\x95\xa1\x04\x01\x00\xc0\x80")),
        malformed("type.fraction", framed(b"\x95\xca\x40\x80\x00\x00\x01\x00\xc0\x80")),
        lie("type.256", Code::MessageUnknown, framed(b"\x95\xcd\x01\x00\x01\x00\xc0\x80")),
        malformed("request.nil", framed(b"\x95\x04\xc0\x00\xc0\x80")),
        malformed("request.negative", framed(b"\x95\x04\xd0\x80\x00\xc0\x80")),
        malformed("hlc.negative", framed(b"\x95\x04\x01\xff\xc0\x80")),
        malformed("cause.short", framed(&[b"\x95\x04\x01\x00\xc4\x0f", &ID[..15], b"\x80"].concat())),
        malformed("cause.text", framed(&[b"\x95\x04\x01\x00\xb0", ID, b"\x80"].concat())),
        malformed("cause.number", framed(b"\x95\x04\x01\x00\x07\x80")),
        malformed("cause.cut", framed(b"\x95\x04\x01\x00\xc4\x10\x00")),
        malformed("message.missing", framed(b"\x95\x04\x01\x00\xc0")),
        malformed("message.nil", frame(4, b"\xc0")),
        malformed("message.array", frame(20, b"\x92\xa1a\x01")),
        malformed("message.followed", frame(4, b"\x80\xc0")),
        malformed("message.cut", frame(20, b"\x82\xa3log\xa1")),
        malformed("key.missing", frame(16, b"\x81\xa3log\xa1a")),
        malformed("key.twice", frame(20, b"\x83\xa3log\xa1a\xa5seqno\x01\xa3log\xa1a")),
        malformed("key.number", frame(4, b"\x81\x01\x01")),
        malformed("key.bytes", frame(20, b"\x82\xc4\x03log\xa1a\xa5seqno\x01")),
        malformed("text.number", frame(20, b"\x82\xa3log\x05\xa5seqno\x01")),
        malformed("text.bytes", frame(20, b"\x82\xa3log\xc4\x01a\xa5seqno\x01")),
        malformed("text.not-utf-8", frame(20, b"\x82\xa3log\xa1\xff\xa5seqno\x01")),
        malformed("text.longer-than-frame", frame(20, b"\x82\xa3log\xdb\xff\xff\xff\xff")),
        malformed("bytes.text", frame(16, b"\x82\xa3log\xa1a\xa4data\xa1x")),
        malformed("bytes.array", frame(16, b"\x82\xa3log\xa1a\xa4data\x91\x01")),
        malformed("bytes.longer-than-frame", frame(16, b"\x82\xa3log\xa1a\xa4data\xc6\xff\xff\xff\xff")),
        malformed("number.negative", frame(20, b"\x82\xa3log\xa1a\xa5seqno\xff")),
        malformed("number.fraction", frame(20, b"\x82\xa3log\xa1a\xa5seqno\xca\x3f\x80\x00\x00")),
        malformed("number.text", frame(20, b"\x82\xa3log\xa1a\xa5seqno\xa11")),
        malformed(
            "number.33-bits",
            frame(20, b"\x83\xa3log\xa1a\xa5seqno\x01\xa7wait_ms\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
        ),
        malformed("durability.unknown", frame(20, b"\x83\xa3log\xa1a\xa5seqno\x01\xaadurability\xa4tape")),
        malformed("durability.number", frame(20, b"\x83\xa3log\xa1a\xa5seqno\x01\xaadurability\x01")),
        malformed("id.15-bytes", appended(&[b"\xc4\x0f", &ID[..15]].concat())),
        malformed("id.17-bytes", appended(&[b"\xc4\x11", ID, b"\x07"].concat())),
        malformed("id.text", appended(&[b"\xb0", ID].concat())),
        malformed("id.array", appended(&[b"\xdc\x00\x10", ID].concat())),
        malformed("id.nil", appended(b"\xc0")),
        malformed("array.longer-than-frame", frame(18, b"\x81\xa7records\xdd\xff\xff\xff\xff")),
        malformed("array.map", frame(18, b"\x81\xa7records\x80")),
        malformed("record.array", frame(18, b"\x81\xa7records\x91\x92\xa1a\xc4\x00")),
        malformed("records.cut", frame(23, b"\x83\xabincarnation\x01\xa7records\x92\x80")),
        malformed("refused.nil-code", frame(51, b"\x82\xa6number\x01\xa7refused\x82\xa4code\xc0\xa6detail\xa0")),
        malformed("depth.9", frame(4, &deep(9))),
        malformed("depth.900", frame(4, &deep(900))),
        malformed("reserved-marker", frame(4, b"\x81\xa1x\xc1")),
    ]
}

/// Frames of a later minor version, or of a writer who does not choose the shortest form.
pub fn readable() -> Vec<Case> {
    let heading = |request| Heading { request, hlc: Hlc::default(), cause: EventId::NONE, slot: 0 };
    let get = |durability| Get { log: "a", seqno: 1, wait_ms: 0, durability };
    let known = |name, bytes| lent!(@case name, bytes, heading(1), Get, get(None));
    vec![
        known("order.other", frame(20, b"\x83\xa7wait_ms\x00\xa5seqno\x01\xa3log\xa1a")),
        known("optional.left-out", frame(20, b"\x82\xa3log\xa1a\xa5seqno\x01")),
        known("number.wide", frame(20, b"\x82\xa3log\xa1a\xa5seqno\xcf\x00\x00\x00\x00\x00\x00\x00\x01")),
        known("number.signed", frame(20, b"\x82\xa3log\xa1a\xa5seqno\xd3\x00\x00\x00\x00\x00\x00\x00\x01")),
        known("text.wide", frame(20, b"\x82\xa3log\xdb\x00\x00\x00\x01a\xd9\x05seqno\x01")),
        known("map.wide", frame(20, b"\xdf\x00\x00\x00\x02\xa3log\xa1a\xa5seqno\x01")),
        known(
            "heading.wide",
            framed(b"\xdc\x00\x05\xcc\x14\xcf\0\0\0\0\0\0\0\x01\xd0\x00\xc0\x82\xa3log\xa1a\xa5seqno\x01"),
        ),
        known("key.unknown", frame(20, b"\x83\xa3log\xa1a\xa5seqno\x01\xa6future\x92\xca\x3f\x80\x00\x00\x81\x01\xc0")),
        known("key.unknown-extension", frame(20, b"\x83\xa3log\xa1a\xa5seqno\x01\xa6future\xd6\xff\x00\x00\x00\x00")),
        lent!(@case "durability.memory", frame(20, b"\x83\xa3log\xa1a\xa5seqno\x01\xaadurability\xa6memory"), heading(1), Get,
            get(Some(Durability::Memory))),
        Case {
            name: "key.unknown-in-ping",
            bytes: frame(4, b"\x81\xa1x\x91\x91\xc0"),
            ..cases::owned("", heading(1), Ping {})
        },
    ]
}
