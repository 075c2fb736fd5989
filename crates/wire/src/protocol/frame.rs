//! Frames: how messages follow one another in a byte stream.
//!
//! ```text
//! +----------------+----------------------------------------------------+
//! | length, u32 LE | [ type, request, hlc, cause, message ]  MessagePack |
//! +----------------+----------------------------------------------------+
//! ```
//!
//! `length` counts the bytes after it. `cause` is nil or the 16 bytes of an event id; `message` is a map. A sixth element names the
//! capability that the request uses, by its slot on the connection, 1 to 15. Without it, this is slot 0.

use super::{
    SLOTS,
    codec::{Decode, Encode, MessageReader},
};
use crate::{Code, Error, EventId, Hlc, Result};
use rmp::Marker;

/// The first bytes of a client, before its first frame. No HTTP request begins with them, so one port serves both.
pub const PREFACE: [u8; 4] = *b"MR/2";
/// The longest frame: a record of 16 MiB, and its surroundings.
pub const FRAME_MAX_BYTES: usize = (16 << 20) + FRAME_OVERHEAD_BYTES;
/// Room in a frame for everything but the records in it.
pub const FRAME_OVERHEAD_BYTES: usize = 64 << 10;
/// The longest frame before the handshake is over.
pub const HELLO_MAX_BYTES: usize = 16 << 10;

const LENGTH_BYTES: usize = 4;
const ELEMENTS: u32 = 5;

/// A message that a frame can have.
pub trait Message: Encode {
    /// Its number in the protocol.
    const TYPE: u8;
}

/// The fields of every frame, without the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// The request that it makes or answers; 0 concerns the whole connection.
    pub request: u64,
    /// The sender's hybrid logical clock; zero if it has none.
    pub hlc: Hlc,
    /// Its cause.
    pub cause: EventId,
    /// Which of the connection's capabilities asks, 0 to 15.
    pub slot: u8,
}

/// A frame as it is in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'b> {
    /// [`Message::TYPE`] of what it holds.
    pub kind: u8,
    /// The fields besides the message.
    pub heading: Heading,
    body: &'b [u8],
}

impl<'b> Frame<'b> {
    /// The message, which must be of the right type and fill the frame.
    pub fn message<M: Message + Decode<'b>>(&self) -> Result<M> {
        if self.kind != M::TYPE {
            return Err(Code::MessageUnexpected.error(format!("message of type {} instead of {}", self.kind, M::TYPE)));
        }
        let mut reader = MessageReader::new(self.body);
        let message = M::decode(&mut reader).and_then(|message| reader.end().map(|()| message));
        message.map_err(|wrong| malformed(format!("message of type {}: {wrong}", self.kind)))
    }
}

/// Appends a frame to `out`.
pub fn encode<M: Message>(out: &mut Vec<u8>, heading: Heading, message: &M) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let infallible = "writing to memory does not fail";
    rmp::encode::write_array_len(out, ELEMENTS + u32::from(heading.slot != 0)).expect(infallible);
    rmp::encode::write_uint(out, u64::from(M::TYPE)).expect(infallible);
    rmp::encode::write_uint(out, heading.request).expect(infallible);
    rmp::encode::write_uint(out, heading.hlc.get()).expect(infallible);
    if heading.cause.is_none() {
        rmp::encode::write_nil(out).expect(infallible);
    } else {
        rmp::encode::write_bin(out, &heading.cause.get().to_le_bytes()).expect(infallible);
    }
    message.encode(out);
    if heading.slot != 0 {
        rmp::encode::write_uint(out, u64::from(heading.slot)).expect(infallible);
    }
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// The first frame in `bytes` and how many bytes it takes, or `None` if it is not all there yet.
///
/// # Errors
///
/// `FrameTooLong` as soon as the length says more than `max_bytes`; `FrameMalformed` if it is not a frame.
pub fn split(bytes: &[u8], max_bytes: usize) -> Result<Option<(Frame<'_>, usize)>> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > max_bytes {
        return Err(Code::FrameTooLong.error(format!("a frame of {length} bytes; the limit here is {max_bytes}")));
    }
    if rest.len() < length {
        return Ok(None);
    }
    Ok(Some((parse(&rest[..length])?, LENGTH_BYTES + length)))
}

fn parse(bytes: &[u8]) -> Result<Frame<'_>> {
    let mut rest = bytes;
    let elements = rmp::decode::read_array_len(&mut rest).map_err(|_| malformed("it is not an array"))?;
    if !(ELEMENTS..=ELEMENTS + 1).contains(&elements) {
        return Err(malformed(format!("{elements} elements instead of {ELEMENTS}")));
    }
    let mut number = |what: &str| -> Result<u64> {
        rmp::decode::read_int(&mut rest).map_err(|_| malformed(format!("its {what} is not a whole number")))
    };
    let kind = number("type")?;
    let kind = u8::try_from(kind).map_err(|_| Code::MessageUnknown.error(format!("message of type {kind}")))?;
    let request = number("request")?;
    let hlc = Hlc::from_bits(number("clock")?);
    let cause = read_cause(&mut rest)?;
    let (slot, body) = match elements {
        ELEMENTS => (0, rest),
        // It comes after the message, in one byte.
        _ => match rest.split_last() {
            Some((slot, body)) if (1..SLOTS as u8).contains(slot) => (*slot, body),
            _ => return Err(malformed("its slot is not from 1 to 15")),
        },
    };
    Ok(Frame { kind, heading: Heading { request, hlc, cause, slot }, body })
}

fn read_cause(rest: &mut &[u8]) -> Result<EventId> {
    let bad = || malformed("its cause is neither nil nor 16 bytes");
    match rmp::decode::read_marker(rest).map_err(|_| bad())? {
        Marker::Null => Ok(EventId::NONE),
        Marker::Bin8 => {
            let (length, after) = rest.split_first().ok_or_else(bad)?;
            let (id, after) = after.split_first_chunk::<16>().filter(|_| *length == 16).ok_or_else(bad)?;
            *rest = after;
            Ok(EventId::from_bits(u128::from_le_bytes(*id)))
        }
        _ => Err(bad()),
    }
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Code::FrameMalformed.error(format!("malformed frame: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Append, Get, Ping};

    fn framed<M: Message>(message: &M) -> Vec<u8> {
        let mut out = Vec::new();
        encode(
            &mut out,
            Heading { request: 7, hlc: Hlc::from_bits(9), cause: EventId::from_bits(1 << 100), slot: 0 },
            message,
        );
        out
    }

    #[test]
    fn a_slot_stands_behind_the_message() {
        let mut bytes = Vec::new();
        encode(&mut bytes, Heading { request: 7, slot: 15, ..Heading::default() }, &Ping {});
        let (frame, _) = split(&bytes, FRAME_MAX_BYTES).unwrap().unwrap();
        assert_eq!((frame.heading.slot, frame.message::<Ping>().unwrap()), (15, Ping {}));
        for slot in [0, 16, 0x80, 0xc0] {
            *bytes.last_mut().unwrap() = slot;
            assert_eq!(split(&bytes, FRAME_MAX_BYTES).unwrap_err().code(), Code::FrameMalformed, "{slot}");
        }
    }

    #[test]
    fn a_frame_comes_back_as_it_was_whatever_the_cut() {
        let append = Append { log: "raw", data: &[1, 2, 3], ..Append::default() };
        let bytes = framed(&append);
        for cut in 0..bytes.len() {
            assert_eq!(split(&bytes[..cut], FRAME_MAX_BYTES), Ok(None));
        }
        let (frame, used) = split(&bytes, FRAME_MAX_BYTES).unwrap().unwrap();
        assert_eq!((used, frame.heading.request, frame.heading.hlc.get()), (bytes.len(), 7, 9));
        assert_eq!(frame.heading.cause, EventId::from_bits(1 << 100));
        assert_eq!(frame.message::<Append<'_>>().unwrap(), append);
        assert_eq!(frame.message::<Get<'_>>().unwrap_err().code(), Code::MessageUnexpected);
    }

    #[test]
    fn lies_are_refused() {
        let refused = |bytes: &[u8]| match split(bytes, 1 << 10) {
            Err(error) => error.code(),
            Ok(Some((frame, _))) => frame.message::<Append<'_>>().unwrap_err().code(),
            Ok(None) => panic!("waits for more: {bytes:?}"),
        };
        let frame = |body: &[u8]| [&(body.len() as u32).to_le_bytes()[..], body].concat();
        assert_eq!(refused(&u32::MAX.to_le_bytes()), Code::FrameTooLong);
        assert_eq!(refused(&frame(&[])), Code::FrameMalformed);
        assert_eq!(refused(&frame(b"\xc0")), Code::FrameMalformed, "not an array");
        assert_eq!(refused(&frame(b"\x94\x10\x01\x00\xc0")), Code::FrameMalformed, "four elements");
        assert_eq!(refused(&frame(b"\x95\xff\x01\x00\xc0\x80")), Code::FrameMalformed, "negative type");
        assert_eq!(refused(&frame(b"\x95\xcd\x01\x00\x01\x00\xc0\x80")), Code::MessageUnknown, "type 256");
        assert_eq!(refused(&frame(b"\x95\x10\x01\x00\xc4\x0f\x00\x80")), Code::FrameMalformed, "cause of 15 bytes");
        assert_eq!(refused(&frame(b"\x95\x10\x01\x00\xc0\x80")), Code::FrameMalformed, "no log");
        assert_eq!(refused(&frame(b"\x95\x10\x01\x00\xc0\x82\xa3log\xa1a\xa3log\xa1a")), Code::FrameMalformed, "twice");
        assert_eq!(
            refused(&frame(b"\x95\x10\x01\x00\xc0\x82\xa3log\x05\xa4data\xc4\x00")),
            Code::FrameMalformed,
            "type"
        );
        let mut trailing = framed(&Append { log: "a", ..Append::default() });
        trailing.push(0xc0);
        trailing[0] += 1;
        assert_eq!(refused(&trailing), Code::FrameMalformed);
        // An unknown field that nests a thousand deep.
        let mut deep = b"\x95\x10\x01\x00\xc0\x83\xa3log\xa1a\xa4data\xc4\x00\xa1x".to_vec();
        deep.extend_from_slice(&[0x91; 900]);
        deep.push(0xc0);
        assert_eq!(refused(&frame(&deep)), Code::FrameMalformed);
    }

    #[test]
    fn fields_of_a_later_minor_version_are_passed_over() {
        let bytes = b"\x13\x00\x00\x00\x95\x04\x01\x00\xc0\x81\xa6future\x92\x01\xa2ab\xc0"; // one byte too many
        assert!(split(bytes, 100).unwrap().unwrap().0.message::<Ping>().is_err());
        let bytes = b"\x12\x00\x00\x00\x95\x04\x01\x00\xc0\x81\xa6future\x92\x01\xa2ab";
        assert_eq!(split(bytes, 100).unwrap().unwrap().0.message::<Ping>().unwrap(), Ping {});
    }
}
