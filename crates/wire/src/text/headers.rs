//! Headers of a record: names with values, which whoever appended it has given beside its bytes.

use crate::{Code, Error, Result};
use serde::{Serialize, Serializer};

/// Bytes of all headers of a record, as they are written.
pub const HEADERS_MAX_BYTES: usize = 4096;

/// Names with values, in their order; a name may occur several times. They are kept as they are written: of each, the length of its name in
/// two bytes and the name, then the same of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Headers(Vec<u8>);

impl Headers {
    /// Those that were written as these bytes; none if they are not well formed.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = split(rest)?;
        }
        Some(Self(bytes.to_vec()))
    }

    /// Adds one.
    ///
    /// # Errors
    /// All together would be longer than [`HEADERS_MAX_BYTES`].
    pub fn push(&mut self, name: &str, value: &str) -> Result<()> {
        let bytes = self.0.len() + 4 + name.len() + value.len();
        if bytes > HEADERS_MAX_BYTES {
            return Err(too_long(bytes));
        }
        for text in [name, value] {
            self.0.extend_from_slice(&(text.len() as u16).to_le_bytes()); // at most 4096
            self.0.extend_from_slice(text.as_bytes());
        }
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As they are written.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Each with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (header, behind) = split(rest)?;
            rest = behind;
            Some(header)
        })
    }
}

/// Pairs of texts, since a name may occur several times.
impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

fn too_long(bytes: usize) -> Error {
    Code::RecordTooLong.error(format!("headers of {bytes} bytes; the limit is {HEADERS_MAX_BYTES}"))
}

fn split(bytes: &[u8]) -> Option<((&str, &str), &[u8])> {
    let (name, rest) = text(bytes)?;
    let (value, rest) = text(rest)?;
    Some(((name, value), rest))
}

fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_have_a_limit() {
        let mut headers = Headers::default();
        headers.push("unit", "C").unwrap();
        let error = headers.push("long", &"x".repeat(HEADERS_MAX_BYTES)).unwrap_err();
        assert_eq!(error.code(), Code::RecordTooLong);
        assert_eq!(serde_json::to_string(&headers).unwrap(), r#"[["unit","C"]]"#);
    }

    proptest! {
        #[test]
        fn headers_come_back(pairs in proptest::collection::vec((".{0,9}", ".{0,9}"), 0..9)) {
            let mut headers = Headers::default();
            for (name, value) in &pairs {
                headers.push(name, value).unwrap();
            }
            let read = Headers::read(headers.bytes()).unwrap();
            prop_assert!(read.iter().eq(pairs.iter().map(|(name, value)| (&**name, &**value))));
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(headers) = Headers::read(&bytes) {
                prop_assert!(headers.iter().count() * 4 <= bytes.len());
            }
        }
    }
}
