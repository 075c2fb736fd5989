//! MessagePack, written and read as the protocol demands it: text only for text, bytes only for bytes, maps for structures. Unknown keys are
//! passed over, whatever their values; a known key that comes twice, or is missing, is refused.
//!
//! The messages, which are generated, have one [`Encode`] and one [`Decode`] each, without code that is made again for each type of value.

use crate::{Durability, EventId, Hlc};
use serde_bytes::Bytes;
use std::fmt;

/// How deeply a message may nest: ours nest three deep.
const DEPTH_MAX: u32 = 8;
/// Most memory that the announced length of an array is trusted with.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// What can be written as a value.
pub trait Encode {
    /// Appends it.
    fn encode(&self, out: &mut Vec<u8>);
}

/// What can be read from a message, from which it may borrow.
pub trait Decode<'b>: Sized {
    /// Takes it off the front.
    ///
    /// # Errors
    ///
    /// What stands there is something else.
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed>;
}

/// What is wrong with a message, and at which key.
#[derive(Debug)]
pub struct Malformed {
    what: &'static str,
    key: String,
}

impl Malformed {
    #[cold]
    fn new(what: &'static str) -> Self {
        Self { what, key: String::new() }
    }

    /// A key that has to be there is not.
    #[cold]
    pub fn missing(key: &str) -> Self {
        Self::new("it is missing").at(key)
    }

    #[cold]
    fn at(self, key: &str) -> Self {
        let key = if self.key.is_empty() { key.escape_debug().to_string() } else { format!("{key}.{}", self.key) };
        Self { key, ..self }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.key {
            "" => f.write_str(self.what),
            key => write!(f, "'{key}': {}", self.what),
        }
    }
}

/// Reads values from bytes.
pub struct MessageReader<'b> {
    rest: &'b [u8],
    depth: u32,
}

/// How many bytes of a length follow a marker, for the three widest forms of a type.
fn width(marker: u8, first: u8) -> usize {
    1 << (marker - first)
}

impl<'b> MessageReader<'b> {
    /// Reads from these bytes.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes, depth: 0 }
    }

    /// Nothing is left.
    ///
    /// # Errors
    ///
    /// Something is.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::new("bytes follow it")) }
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| Malformed::new("it is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn marker(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    /// A number of so many bytes, big-endian.
    fn wide(&mut self, bytes: usize) -> Result<u64, Malformed> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Malformed> {
        // Of at most four bytes, and `usize` has as many.
        self.wide(bytes).map(|length| length as usize)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let odd = || Malformed::new("it is not a whole number from 0 on");
        match self.marker()? {
            small @ 0..=0x7f => Ok(small.into()),
            marker @ 0xcc..=0xcf => self.wide(width(marker, 0xcc)),
            // A signed form, which must not be negative.
            marker @ 0xd0..=0xd3 => {
                let bytes = width(marker, 0xd0);
                let number = self.wide(bytes)?;
                if number >> (8 * bytes - 1) == 0 { Ok(number) } else { Err(odd()) }
            }
            _ => Err(odd()),
        }
    }

    fn text(&mut self) -> Result<&'b str, Malformed> {
        let length = match self.marker()? {
            marker @ 0xa0..=0xbf => (marker & 0x1f).into(),
            marker @ 0xd9..=0xdb => self.length(width(marker, 0xd9))?,
            _ => return Err(Malformed::new("it is not text")),
        };
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed::new("it is not UTF-8"))
    }

    fn bytes(&mut self) -> Result<&'b [u8], Malformed> {
        let length = match self.marker()? {
            marker @ 0xc4..=0xc6 => self.length(width(marker, 0xc4))?,
            _ => return Err(Malformed::new("it is not bytes")),
        };
        self.take(length)
    }

    fn enter(&mut self) -> Result<(), Malformed> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(Malformed::new("it nests too deeply")) } else { Ok(()) }
    }

    fn array<T: Decode<'b>>(&mut self) -> Result<Vec<T>, Malformed> {
        let count = match self.marker()? {
            marker @ 0x90..=0x9f => (marker & 0xf).into(),
            marker @ 0xdc..=0xdd => self.length(2 * width(marker, 0xdc))?,
            _ => return Err(Malformed::new("it is not an array")),
        };
        self.enter()?;
        // An element has at least one byte.
        let likely = count.min(self.rest.len()).min(RESERVED_BYTES_MAX / size_of::<T>().max(1));
        let mut all = Vec::with_capacity(likely);
        for _ in 0..count {
            all.push(T::decode(self)?);
        }
        self.depth -= 1;
        Ok(all)
    }

    /// Reads a map: `take` gets each key and takes its value.
    ///
    /// # Errors
    ///
    /// It is no map, or `take` fails.
    pub fn map(&mut self, mut take: impl FnMut(&mut Self, &'b str) -> Result<(), Malformed>) -> Result<(), Malformed> {
        for _ in 0..self.map_length()? {
            let key = self.text().map_err(|wrong| wrong.at("a key"))?;
            take(self, key).map_err(|wrong| wrong.at(key))?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn map_length(&mut self) -> Result<usize, Malformed> {
        let count = match self.marker()? {
            marker @ 0x80..=0x8f => (marker & 0xf).into(),
            marker @ 0xde..=0xdf => self.length(2 * width(marker, 0xde))?,
            _ => return Err(Malformed::new("it is not a map")),
        };
        self.enter().map(|()| count)
    }

    /// Takes the value of a key, which must not have come before.
    ///
    /// # Errors
    ///
    /// It has, or the value is of another type.
    pub fn set<T: Decode<'b>>(&mut self, field: &mut Option<T>) -> Result<(), Malformed> {
        if field.is_some() {
            return Err(Malformed::new("it comes twice"));
        }
        *field = Some(T::decode(self)?);
        Ok(())
    }

    /// Passes over a value of any type.
    ///
    /// # Errors
    ///
    /// It is none, or it nests too deeply.
    pub fn skip(&mut self) -> Result<(), Malformed> {
        let marker = self.marker()?;
        let (bytes, values) = match marker {
            0x00..=0x7f | 0xc0 | 0xc2..=0xc3 | 0xe0..=0xff => (0, 0),
            0x80..=0x8f => (0, 2 * usize::from(marker & 0xf)),
            0x90..=0x9f => (0, usize::from(marker & 0xf)),
            0xa0..=0xbf => (usize::from(marker & 0x1f), 0),
            0xc1 => return Err(Malformed::new("a marker is reserved")),
            0xc4..=0xc6 => (self.length(width(marker, 0xc4))?, 0),
            // An extension has its type before its bytes.
            0xc7..=0xc9 => (self.length(width(marker, 0xc7))?.saturating_add(1), 0),
            0xca..=0xcb => (4 * width(marker, 0xca), 0),
            0xcc..=0xcf => (width(marker, 0xcc), 0),
            0xd0..=0xd3 => (width(marker, 0xd0), 0),
            0xd4..=0xd8 => (width(marker, 0xd4) + 1, 0),
            0xd9..=0xdb => (self.length(width(marker, 0xd9))?, 0),
            0xdc..=0xdd => (0, self.length(2 * width(marker, 0xdc))?),
            0xde..=0xdf => (0, self.length(2 * width(marker, 0xde))?.saturating_mul(2)),
        };
        self.take(bytes)?;
        let nests = matches!(marker, 0x80..=0x9f | 0xc7..=0xc9 | 0xd4..=0xd8 | 0xdc..=0xdf);
        if nests {
            self.enter()?;
            for _ in 0..values {
                self.skip()?;
            }
            self.depth -= 1;
        }
        Ok(())
    }
}

/// Writes the keys of a map, one after the other.
pub struct Fields<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    count: u16,
}

impl<'o> Fields<'o> {
    /// Begins a map.
    pub fn begin(out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        out.push(0x80);
        Self { out, start, count: 0 }
    }

    /// Ends the map.
    pub fn end(self) {
        match self.count {
            few @ 0..=15 => self.out[self.start] |= few as u8,
            // Hardly a message has so many.
            many => drop(self.out.splice(self.start..=self.start, [0xde, (many >> 8) as u8, many as u8])),
        }
    }

    /// A key and its value.
    pub fn put<T: Encode + ?Sized>(&mut self, key: &str, value: &T) {
        self.count += 1;
        text(self.out, key);
        value.encode(self.out);
    }

    /// A key and its value, if there is one.
    pub fn put_some<T: Encode>(&mut self, key: &str, value: &Option<T>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    /// A key and its value, unless that is 0, false or empty.
    pub fn put_if<T: Encode>(&mut self, is_there: bool, key: &str, value: &T) {
        if is_there {
            self.put(key, value);
        }
    }
}

/// A length, behind one of the markers for lengths of one, two and four bytes; without the first if that is 0.
fn length(out: &mut Vec<u8>, length: usize, markers: [u8; 3]) {
    // A frame is shorter than 4 GiB.
    let length = length as u32;
    if length <= 0xff && markers[0] != 0 {
        out.extend_from_slice(&[markers[0], length as u8]);
    } else if length <= 0xffff {
        out.push(markers[1]);
        out.extend_from_slice(&(length as u16).to_be_bytes());
    } else {
        out.push(markers[2]);
        out.extend_from_slice(&length.to_be_bytes());
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        short @ 0..=31 => out.push(0xa0 | short as u8),
        long => length(out, long, [0xd9, 0xda, 0xdb]),
    }
    out.extend_from_slice(text.as_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, bytes.len(), [0xc4, 0xc5, 0xc6]);
    out.extend_from_slice(bytes);
}

fn number(out: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    match number {
        0..=0x7f => out.push(bytes[7]),
        0x80..=0xff => out.extend_from_slice(&[0xcc, bytes[7]]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&bytes[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&bytes);
        }
    }
}

macro_rules! numbers {
    ($($of:ident)*) => { $(
        impl Encode for $of {
            fn encode(&self, out: &mut Vec<u8>) {
                number(out, u64::from(*self));
            }
        }

        impl Decode<'_> for $of {
            fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
                Self::try_from(reader.number()?).map_err(|_| Malformed::new("the number is too large"))
            }
        }
    )* };
}

numbers! { u8 u16 u32 u64 }

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(0xc2 | u8::from(*self));
    }
}

impl Decode<'_> for bool {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        match reader.marker()? {
            0xc2 => Ok(false),
            0xc3 => Ok(true),
            _ => Err(Malformed::new("it is neither true nor false")),
        }
    }
}

impl Encode for &str {
    fn encode(&self, out: &mut Vec<u8>) {
        text(out, self);
    }
}

impl<'b> Decode<'b> for &'b str {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        reader.text()
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        text(out, self);
    }
}

impl Decode<'_> for String {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.text().map(str::to_owned)
    }
}

impl Encode for &[u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        bytes(out, self);
    }
}

impl<'b> Decode<'b> for &'b [u8] {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        reader.bytes()
    }
}

impl Encode for &Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        bytes(out, self);
    }
}

impl<'b> Decode<'b> for &'b Bytes {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        reader.bytes().map(Bytes::new)
    }
}

/// The 16 bytes of an id.
impl Encode for EventId {
    fn encode(&self, out: &mut Vec<u8>) {
        bytes(out, &self.get().to_le_bytes());
    }
}

impl Decode<'_> for EventId {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let bytes = reader.bytes()?.try_into().map_err(|_| Malformed::new("it does not have 16 bytes"))?;
        Ok(EventId::from_bits(u128::from_le_bytes(bytes)))
    }
}

impl Encode for Hlc {
    fn encode(&self, out: &mut Vec<u8>) {
        number(out, self.get());
    }
}

impl Decode<'_> for Hlc {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.number().map(Hlc::from_bits)
    }
}

impl Encode for Durability {
    fn encode(&self, out: &mut Vec<u8>) {
        text(
            out,
            match self {
                Self::Memory => "memory",
                Self::Disk => "disk",
            },
        );
    }
}

impl Decode<'_> for Durability {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        match reader.text()? {
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            _ => Err(Malformed::new("it is neither 'memory' nor 'disk'")),
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self.len() {
            few @ 0..=15 => out.push(0x90 | few as u8),
            many => length(out, many, [0, 0xdc, 0xdd]),
        }
        self.iter().for_each(|element| element.encode(out));
    }
}

impl<'b, T: Decode<'b>> Decode<'b> for Vec<T> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        reader.array()
    }
}

/// Nil is none.
impl<'b, T: Decode<'b>> Decode<'b> for Option<T> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        if reader.rest.first() == Some(&0xc0) {
            reader.marker()?;
            return Ok(None);
        }
        T::decode(reader).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AppendMany, Appended, NewRecord, Ping};

    fn read<'b, T: Decode<'b>>(bytes: &'b [u8]) -> Result<T, String> {
        let mut reader = MessageReader::new(bytes);
        let value = T::decode(&mut reader).and_then(|value| reader.end().map(|()| value));
        value.map_err(|wrong| wrong.to_string())
    }

    fn written(value: &impl Encode) -> Vec<u8> {
        let mut out = Vec::new();
        value.encode(&mut out);
        out
    }

    #[test]
    fn numbers_and_lengths_have_their_shortest_form_and_come_back() {
        for bits in 0..64 {
            for number in [1 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let bytes = written(&number);
                assert_eq!((read(&bytes), rmp::decode::read_int(&mut &*bytes).unwrap()), (Ok(number), number));
                let mut shortest = Vec::new();
                rmp::encode::write_uint(&mut shortest, number).unwrap();
                assert_eq!(bytes, shortest);
            }
        }
        for length in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
            let (text, all) = ("x".repeat(length), vec![true; length]);
            let mut shortest = Vec::new();
            rmp::encode::write_str(&mut shortest, &text).unwrap();
            rmp::encode::write_bin(&mut shortest, text.as_bytes()).unwrap();
            rmp::encode::write_array_len(&mut shortest, length as u32).unwrap();
            let bytes = [written(&text), written(&text.as_bytes()), written(&all)].concat();
            assert_eq!(bytes[..shortest.len()], shortest, "{length}");
            assert_eq!(read(&written(&text)), Ok(&*text));
            assert_eq!(read(&written(&text.as_bytes())), Ok(text.as_bytes()));
            assert_eq!(read(&written(&all)), Ok(all));
        }
    }

    /// What a library for any type would take for something else, and what a part of a value would hide.
    #[test]
    fn a_value_of_another_type_is_refused_and_named() {
        let refused = |bytes: &[u8], why: &str| assert_eq!(read::<AppendMany<'_>>(bytes).unwrap_err(), why);
        refused(b"\x81\xa7records\xc4\x00", "'records': it is not an array");
        refused(b"\x81\xa7records\x91\x82\xa3log\xa1a\xa4data\xa1\xff", "'records.data': it is not bytes");
        refused(b"\x81\xa7records\x91\x81\xa3log\xa1a", "'records.data': it is missing");
        refused(b"\x81\xa7records\xdd\xff\xff\xff\xff", "'records': it is cut off");
        refused(b"\x81\x01\x01", "'a key': it is not text");
        // Bytes behind the message, also if they are the beginning of a value.
        for more in [&b"\xc0"[..], b"\x81", b"\x91\x91"] {
            assert_eq!(read::<Ping>(&[b"\x80", more].concat()).unwrap_err(), "bytes follow it");
        }
        // The length of an array is not trusted.
        assert!(read::<Vec<Appended>>(b"\xdd\x7f\xff\xff\xff\x80").is_err());
    }

    #[test]
    fn unknown_values_of_every_type_are_passed_over() {
        let known = written(&NewRecord { log: "a", data: b"b" });
        let values: [&[u8]; 16] = [
            b"\xc0",
            b"\xc2",
            b"\xff",
            b"\x7f",
            b"\xcf\0\0\0\0\0\0\0\0",
            b"\xd3\0\0\0\0\0\0\0\0",
            b"\xca\0\0\0\0",
            b"\xcb\0\0\0\0\0\0\0\0",
            b"\xa1\xff",
            b"\xda\0\x01x",
            b"\xc6\0\0\0\x01x",
            b"\x81\x01\x92\x02\x03",
            b"\xde\0\x01\xc0\xdc\0\x01\xc3",
            b"\xd4\x05x",
            b"\xd8\x050123456789abcdef",
            b"\xc8\0\x02\x05xy",
        ];
        for value in values {
            let bytes = [b"\x83\xa1x", value, &known[1..]].concat();
            assert_eq!(read(&bytes), Ok(NewRecord { log: "a", data: b"b" }), "{value:x?}");
            for cut in 1..value.len() {
                assert!(read::<NewRecord<'_>>(&[b"\x81\xa1x", &value[..cut]].concat()).is_err(), "{value:x?}");
            }
        }
        assert!(read::<NewRecord<'_>>(&[b"\x83\xa1x\xc1", &known[1..]].concat()).is_err());
    }
}
