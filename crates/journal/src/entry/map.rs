//! Small binary maps: what payloads of TRIGGER, FIRED, READ and DONE and the extension of any entry are made of.
//!
//! ```text
//! +-----+----------------+-------+-----+--------+-------+- …
//! | key | length, LEB128 | value | key | length | value |
//! +-----+----------------+-------+-----+--------+-------+- …
//! ```
//!
//! Keys ascend, so each occurs once. Integers are little-endian without trailing zero bytes, so 0 is an empty value; so is a flag. Every
//! length is written in as few bytes as possible. So the encoding of a map is unique. A reader that does not know a key ignores it if its
//! bit 7 is set, and otherwise must refuse the entry. Reading allocates nothing.

/// Set in keys that a reader may ignore.
pub const IGNORABLE: u8 = 0x80;

/// Bytes of the longest map of integers: see [`Fields`].
const FIELDS_MAX_BYTES: usize = 64;
/// A length takes at most 4 bytes of LEB128: no payload is longer than 2^28.
const LENGTH_MAX_BYTES: usize = 4;

/// A well-formed map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Map<'b>(&'b [u8]);

impl<'b> Map<'b> {
    /// The map that these bytes are; `None` if they are not one.
    #[inline]
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        Self::parse_each(bytes, |_| ())
    }

    /// The same; `each` gets the keys.
    #[inline]
    fn parse_each(bytes: &'b [u8], mut each: impl FnMut(u8)) -> Option<Self> {
        let (mut rest, mut least) = (bytes, 0);
        while !rest.is_empty() {
            let (key, _, behind) = field(rest)?;
            if u16::from(key) < least {
                return None;
            }
            each(key);
            (rest, least) = (behind, u16::from(key) + 1);
        }
        Some(Self(bytes))
    }

    /// Whether these bytes are a map; then, the first key that a reader who knows only `known` must not ignore.
    #[inline]
    pub fn check(bytes: &'b [u8], known: &[u8]) -> Option<Option<u8>> {
        let mut unknown = None;
        Self::parse_each(bytes, |key| {
            if key & IGNORABLE == 0 && unknown.is_none() && !known.contains(&key) {
                unknown = Some(key);
            }
        })?;
        Some(unknown)
    }

    /// The fields in the order of their keys.
    #[inline]
    pub fn fields(self) -> impl Iterator<Item = (u8, &'b [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (key, value, behind) = field(rest)?;
            rest = behind;
            Some((key, value))
        })
    }

    /// The value of a key.
    pub fn get(self, key: u8) -> Option<&'b [u8]> {
        self.fields().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// The integer that a key has; `None` also if its value is none.
    pub fn int(self, key: u8) -> Option<u64> {
        int(self.get(key)?)
    }

    /// The first key that a reader who knows only these must not ignore.
    pub fn unknown(self, known: &[u8]) -> Option<u8> {
        self.fields().map(|(key, _)| key).find(|key| key & IGNORABLE == 0 && !known.contains(key))
    }
}

#[inline]
fn field(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (key, bytes) = bytes.split_first()?;
    // Most values are short.
    if let [length @ ..0x80, bytes @ ..] = bytes {
        let (value, rest) = bytes.split_at_checked((*length).into())?;
        return Some((*key, value, rest));
    }
    let (length, bytes) = varint(bytes, LENGTH_MAX_BYTES)?;
    let (value, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    Some((*key, value, rest))
}

/// The integer of a value; `None` if it is none.
#[inline]
pub(crate) fn int(value: &[u8]) -> Option<u64> {
    let is_one = value.len() <= 8 && value.last() != Some(&0);
    is_one.then(|| value.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Splits a LEB128 integer of limited size off the front.
pub(crate) fn varint(bytes: &[u8], most: usize) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (at, byte) in bytes.iter().take(most).enumerate() {
        let bits = u64::from(byte & 0x7F);
        number |= bits.checked_shl(7 * at as u32).filter(|shifted| shifted >> (7 * at) == bits)?;
        if byte & 0x80 == 0 {
            return (at == 0 || *byte != 0).then_some((number, &bytes[at + 1..]));
        }
    }
    None
}

/// Appends an integer as LEB128.
pub(crate) fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Appends a field whose key is above those before it.
pub fn push(map: &mut Vec<u8>, key: u8, value: &[u8]) {
    debug_assert!(Map(map).fields().all(|(other, _)| other < key));
    map.push(key);
    push_varint(map, value.len() as u64);
    map.extend_from_slice(value);
}

/// A map of integers in the making, without allocation.
#[derive(Clone, Copy)]
pub struct Fields {
    bytes: [u8; FIELDS_MAX_BYTES],
    length: usize,
}

impl Default for Fields {
    fn default() -> Self {
        Self { bytes: [0; FIELDS_MAX_BYTES], length: 0 }
    }
}

impl Fields {
    /// Adds an integer under a key above those before it; 0 is left out, for that is what a missing one is.
    #[must_use]
    pub fn int(self, key: u8, number: u64) -> Self {
        if number == 0 {
            return self;
        }
        let bytes = 8 - number.leading_zeros() as usize / 8;
        self.field(key, &number.to_le_bytes()[..bytes])
    }

    /// Adds a flag, if it is set.
    #[must_use]
    pub fn flag(self, key: u8, is_set: bool) -> Self {
        if is_set { self.field(key, &[]) } else { self }
    }

    fn field(mut self, key: u8, value: &[u8]) -> Self {
        let end = self.length + 2 + value.len(); // lengths below 128 take one byte
        self.bytes[self.length] = key;
        self.bytes[self.length + 1] = value.len() as u8;
        self.bytes[self.length + 2..end].copy_from_slice(value);
        self.length = end;
        self
    }

    /// The map's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_map_comes_back_as_it_was_written(
            fields in proptest::collection::btree_map(any::<u8>(), proptest::collection::vec(any::<u8>(), 0..300), 0..8)
        ) {
            let mut bytes = Vec::new();
            fields.iter().for_each(|(key, value)| push(&mut bytes, *key, value));
            let map = Map::parse(&bytes).unwrap();
            let read: BTreeMap<u8, Vec<u8>> = map.fields().map(|(key, value)| (key, value.to_vec())).collect();
            prop_assert_eq!(read, fields);
        }

        #[test]
        fn integers_come_back_in_as_few_bytes_as_possible(numbers in proptest::collection::vec(any::<u64>(), 4), shift in 0..64u32) {
            let mut fields = Fields::default();
            for (key, number) in numbers.iter().enumerate() {
                fields = fields.int(key as u8 + 1, number >> shift);
            }
            let map = Map::parse(fields.bytes()).unwrap();
            for (key, number) in numbers.iter().enumerate() {
                prop_assert_eq!(map.int(key as u8 + 1).unwrap_or(0), number >> shift);
            }
            prop_assert!(map.fields().all(|(_, value)| value.last().is_some_and(|byte| *byte != 0)));
        }

        #[test]
        fn bytes_that_are_a_map_are_written_so_again(bytes in proptest::collection::vec(0..6u8, 0..40)) {
            if let Some(map) = Map::parse(&bytes) {
                let mut again = Vec::new();
                map.fields().for_each(|(key, value)| push(&mut again, key, value));
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn every_varint_comes_back(number: u64, behind: u8) {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, number);
            bytes.push(behind);
            prop_assert_eq!(varint(&bytes, 10), Some((number, &[behind][..])));
        }
    }

    #[test]
    fn what_could_be_written_otherwise_is_no_map() {
        assert!(Map::parse(&[1, 1, 7, 2, 0]).is_some());
        assert_eq!(Map::parse(&[2, 0, 1, 0]), None, "keys that descend");
        assert_eq!(Map::parse(&[1, 0, 1, 0]), None, "a key twice");
        assert_eq!(Map::parse(&[1, 0x80, 0]), None, "a length with a byte too many");
        assert_eq!(Map::parse(&[1, 2, 0]), None, "a value that is cut short");
        assert_eq!(Map::parse(&[1]), None, "a key without a length");
        assert_eq!(Map::parse(&[1, 2, 7, 0]).unwrap().int(1), None, "an integer with a zero byte at its end");
        assert_eq!(varint(&[0xFF; 10], 10), None, "more than 64 bits");
    }

    #[test]
    fn only_keys_without_bit_7_must_be_known() {
        let mut bytes = Vec::new();
        [1, 5, 0x80, 0xFF].iter().for_each(|key| push(&mut bytes, *key, b"x"));
        let map = Map::parse(&bytes).unwrap();
        assert_eq!(map.unknown(&[1, 5]), None);
        assert_eq!(map.unknown(&[1]), Some(5));
        assert_eq!(map.unknown(&[5]), Some(1));
    }
}
