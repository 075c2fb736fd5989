//! Values, on the wire and in memory: MessagePack. The host reads only numbers, booleans, text and bytes; a pickled value is an
//! extension type that the host never decodes.

use millrace_wire::{Code, Error, Result};
use rmp::{Marker, decode, encode};
use std::borrow::Cow;

/// The maximum nesting of arrays and maps.
const DEPTH_MAX: usize = 32;
const INFALLIBLE: &str = "writing to memory does not fail";

/// Nil.
pub fn nil() -> Vec<u8> {
    vec![Marker::Null.to_u8()]
}

/// A boolean.
pub fn boolean(value: bool) -> Vec<u8> {
    vec![if value { Marker::True } else { Marker::False }.to_u8()]
}

/// An integer.
pub fn int(value: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(9);
    encode::write_sint(&mut out, value).expect(INFALLIBLE);
    out
}

/// A count.
pub fn count(value: usize) -> Vec<u8> {
    int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A floating-point number.
pub fn float(value: f64) -> Vec<u8> {
    let mut out = Vec::with_capacity(9);
    encode::write_f64(&mut out, value).expect(INFALLIBLE);
    out
}

/// Text.
pub fn text(value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 5);
    encode::write_str(&mut out, value).expect(INFALLIBLE);
    out
}

/// Bytes.
pub fn bytes(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 5);
    encode::write_bin(&mut out, value).expect(INFALLIBLE);
    out
}

/// Values that are encoded already, as one array.
pub fn array<'v>(values: impl ExactSizeIterator<Item = &'v [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    encode::write_array_len(&mut out, u32::try_from(values.len()).unwrap_or(u32::MAX)).expect(INFALLIBLE);
    values.for_each(|value| out.extend_from_slice(value));
    out
}

/// The value as an integer, if it is one.
pub fn as_int(value: &[u8]) -> Option<i64> {
    let mut rest = value;
    decode::read_int(&mut rest).ok()
}

/// The value as a number, if it is one.
pub fn as_float(value: &[u8]) -> Option<f64> {
    let mut rest = value;
    match decode::read_marker(&mut rest).ok()? {
        Marker::F64 => Some(f64::from_be_bytes(rest.first_chunk().copied()?)),
        Marker::F32 => Some(f32::from_be_bytes(rest.first_chunk().copied()?).into()),
        _ => as_int(value).map(|whole| whole as f64),
    }
}

/// The value as a boolean, if it is one.
pub fn as_bool(value: &[u8]) -> Option<bool> {
    match value {
        [marker] if *marker == Marker::True.to_u8() => Some(true),
        [marker] if *marker == Marker::False.to_u8() => Some(false),
        _ => None,
    }
}

/// The value as bytes, if it is a byte string.
pub fn as_bytes(value: &[u8]) -> Option<&[u8]> {
    let mut rest = value;
    let length = decode::read_bin_len(&mut rest).ok()? as usize;
    rest.get(..length)
}

/// The value as text, if it is one.
pub fn as_text(value: &[u8]) -> Option<&str> {
    let mut rest = value;
    let length = decode::read_str_len(&mut rest).ok()? as usize;
    rest.get(..length).and_then(|text| std::str::from_utf8(text).ok())
}

/// Whether the value is nil.
pub fn is_nil(value: &[u8]) -> bool {
    value == [Marker::Null.to_u8()]
}

/// The elements of an array, or keys and values of a map, each as it is encoded; nothing else may follow.
pub fn elements(value: &[u8]) -> Result<Vec<&[u8]>> {
    let mut rest = value;
    let count = match decode::read_marker(&mut rest).map_err(|_| malformed())? {
        Marker::FixArray(count) => count as usize,
        Marker::Array16 => taken(&mut rest, 2)?,
        Marker::Array32 => taken(&mut rest, 4)?,
        Marker::FixMap(count) => 2 * count as usize,
        Marker::Map16 => 2 * taken(&mut rest, 2)?,
        Marker::Map32 => 2 * taken(&mut rest, 4)?,
        _ => return Err(malformed()),
    };
    // Each takes at least a byte, so a client cannot cause a larger allocation than it sent.
    let mut found = Vec::with_capacity(count.min(rest.len()));
    for _ in 0..count {
        let length = extent(rest, DEPTH_MAX)?;
        let (element, behind) = rest.split_at(length);
        found.push(element);
        rest = behind;
    }
    if rest.is_empty() { Ok(found) } else { Err(malformed()) }
}

/// The same bytes for all values that are equal in Python: a boolean, and a floating-point number without a fraction, become integers, also
/// in arrays and tuples. Everything else is unchanged.
pub(crate) fn canonical(value: &[u8]) -> Cow<'_, [u8]> {
    canonical_within(value, DEPTH_MAX)
}

fn canonical_within(value: &[u8], depth: usize) -> Cow<'_, [u8]> {
    let Some(marker) = value.first().copied().map(Marker::from_u8) else { return value.into() };
    match marker {
        Marker::True => int(1).into(),
        Marker::False => int(0).into(),
        Marker::F32 | Marker::F64 => as_float(value).map_or(value.into(), |number| {
            // From the least to below 2^63, where every whole number of a double is one of 64 bits.
            let fits = number.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&number);
            if fits { int(number as i64).into() } else { float(number).into() }
        }),
        Marker::FixPos(_) | Marker::FixNeg(_) => value.into(),
        Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 | Marker::I8 | Marker::I16 | Marker::I32 | Marker::I64 => {
            as_int(value).map_or(value.into(), |whole| int(whole).into())
        }
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 if depth > 0 => match elements(value) {
            Ok(parts) => {
                let parts: Vec<_> = parts.into_iter().map(|part| canonical_within(part, depth - 1)).collect();
                array(parts.iter().map(|part| &**part)).into()
            }
            Err(_) => value.into(),
        },
        Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32
        | Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
            if depth > 0 =>
        {
            let mut rest = value;
            match decode::read_ext_meta(&mut rest) {
                Ok(meta) if meta.typeid == TUPLE => {
                    let inner = canonical_within(rest, depth - 1);
                    let mut out = Vec::with_capacity(inner.len() + 6);
                    let length = u32::try_from(inner.len()).unwrap_or(u32::MAX);
                    encode::write_ext_meta(&mut out, length, TUPLE).expect(INFALLIBLE);
                    out.extend_from_slice(&inner);
                    out.into()
                }
                _ => value.into(),
            }
        }
        _ => value.into(),
    }
}

/// Whether two values have the same [`canonical`] form.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    one == other || canonical(one) == canonical(other)
}

/// The extension type of a tuple, whose data are an array.
const TUPLE: i8 = 2;

/// Whether decoding a value runs no code: it consists of nil, numbers, booleans, text, bytes, and arrays, maps and tuples of these.
pub fn is_plain(value: &[u8]) -> bool {
    is_plain_within(value, DEPTH_MAX)
}

fn is_plain_within(value: &[u8], depth: usize) -> bool {
    let Some(marker) = value.first().copied().map(Marker::from_u8) else { return false };
    let mut rest = value;
    match marker {
        _ if depth == 0 => false,
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 | Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
            elements(value)
                .is_ok_and(|elements| elements.into_iter().all(|element| is_plain_within(element, depth - 1)))
        }
        Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => decode::read_ext_meta(&mut rest).is_ok_and(|meta| {
            meta.typeid == TUPLE && meta.size as usize == rest.len() && is_plain_within(rest, depth - 1)
        }),
        _ => extent(value, DEPTH_MAX).is_ok_and(|length| length == value.len()),
    }
}

fn malformed() -> Error {
    Code::FrameMalformed.error("a value is not complete MessagePack")
}

/// Removes a length of this number of bytes from the front.
fn taken(rest: &mut &[u8], bytes: usize) -> Result<usize> {
    let (length, behind) = rest.split_at_checked(bytes).ok_or_else(malformed)?;
    *rest = behind;
    Ok(length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
}

/// How many bytes the first value has.
fn extent(bytes: &[u8], depth: usize) -> Result<usize> {
    let mut rest = bytes;
    let marker = decode::read_marker(&mut rest).map_err(|_| malformed())?;
    let (skip, within) = match marker {
        Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => (0, 0),
        Marker::U8 | Marker::I8 => (1, 0),
        Marker::U16 | Marker::I16 => (2, 0),
        Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
        Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
        Marker::FixStr(length) => (length as usize, 0),
        Marker::Str8 | Marker::Bin8 => (taken(&mut rest, 1)?, 0),
        Marker::Str16 | Marker::Bin16 => (taken(&mut rest, 2)?, 0),
        Marker::Str32 | Marker::Bin32 => (taken(&mut rest, 4)?, 0),
        Marker::FixExt1 => (2, 0),
        Marker::FixExt2 => (3, 0),
        Marker::FixExt4 => (5, 0),
        Marker::FixExt8 => (9, 0),
        Marker::FixExt16 => (17, 0),
        Marker::Ext8 => (taken(&mut rest, 1)? + 1, 0),
        Marker::Ext16 => (taken(&mut rest, 2)? + 1, 0),
        Marker::Ext32 => (taken(&mut rest, 4)? + 1, 0),
        Marker::FixArray(count) => (0, count as usize),
        Marker::Array16 => (0, taken(&mut rest, 2)?),
        Marker::Array32 => (0, taken(&mut rest, 4)?),
        Marker::FixMap(count) => (0, 2 * count as usize),
        Marker::Map16 => (0, 2 * taken(&mut rest, 2)?),
        Marker::Map32 => (0, 2 * taken(&mut rest, 4)?),
        Marker::Reserved => return Err(malformed()),
    };
    rest = rest.get(skip..).ok_or_else(malformed)?;
    if within > 0 && depth == 0 {
        return Err(Code::FrameMalformed.error(format!("a value nests deeper than {DEPTH_MAX}")));
    }
    for _ in 0..within {
        rest = &rest[extent(rest, depth - 1)?..];
    }
    Ok(bytes.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        for number in [0, 1, -1, 127, 128, -32, -33, 65_536, i64::MAX, i64::MIN] {
            assert_eq!(as_int(&int(number)), Some(number));
        }
        assert_eq!(as_float(&float(0.25)), Some(0.25));
        assert_eq!(
            (as_bool(&boolean(true)), as_bool(&boolean(false)), as_bool(&int(1))),
            (Some(true), Some(false), None)
        );
        assert_eq!(as_bytes(&bytes(b"abc")), Some(&b"abc"[..]));
        assert!(is_nil(&nil()) && as_int(&text("1")).is_none());
    }

    #[test]
    fn an_array_is_taken_apart_and_nothing_may_be_missing_or_follow() {
        let values = [int(7), text("seven"), array([&*int(1), &*nil()].into_iter()), bytes(&[0; 300]), float(0.5)];
        let whole = array(values.iter().map(|value| &**value));
        assert_eq!(elements(&whole).unwrap(), values);
        for cut in 0..whole.len() {
            assert!(elements(&whole[..cut]).is_err(), "{cut}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(elements(&longer).is_err());
    }

    #[test]
    fn a_pickle_is_found_wherever_it_is() {
        let tuple = |of: &[u8]| [&[0xc7, of.len() as u8, 2][..], of].concat();
        let list = |of: &[u8]| [&[0x91][..], of].concat();
        let (pickle, number) = ([0xc7, 1, 1, b'.'], [7]);
        for plain in [&number[..], &list(&number), &tuple(&list(&number)), &[0x81, 0xa1, b'k', 0xc3], &bytes(&pickle)] {
            assert!(is_plain(plain), "{plain:?}");
        }
        let nested = |depth: usize| (0..depth).fold(list(&number), |inner, _| tuple(&list(&inner)));
        assert!(is_plain(&nested(10)) && !is_plain(&nested(20)), "no depth that a thread has no room for");
        let java = [0xd4, 3, 0];
        for other in
            [&pickle[..], &list(&pickle), &tuple(&list(&pickle)), &[0x81, 0xa1, b'k', 0xd4, 1, 0], &java, &[], &[7, 7]]
        {
            assert!(!is_plain(other), "{other:?}");
        }
        assert!(!is_plain(&[0xc7, 9, 2, 0x91, 7]), "a tuple that is cut off");
    }

    #[test]
    fn hostile_lengths_and_depths_are_refused() {
        assert!(elements(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err(), "an array of four thousand million");
        assert!(elements(&[&[0x91; 64][..], &[0xc0]].concat()).is_err(), "too deep");
        assert!(elements(&[0x91, 0xc6, 0xff, 0xff, 0xff, 0xff]).is_err(), "bytes that are not there");
        assert!(elements(&[0x91, 0xc1]).is_err(), "no marker");
    }
}
