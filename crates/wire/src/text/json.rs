//! Bytes in JSON: a field `data` if they are UTF-8, else a field `base64`.

use base64::{DecodeError, Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

/// A record's bytes as a field of an object; for use with `serde(flatten)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonBytes<'b>(pub &'b [u8]);

impl Serialize for JsonBytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match std::str::from_utf8(self.0) {
            Ok(text) => map.serialize_entry("data", text)?,
            Err(_) => map.serialize_entry("base64", &BASE64_STANDARD.encode(self.0))?,
        }
        map.end()
    }
}

/// The output of [`JsonBytes`]; for use with `serde(flatten)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct JsonBytesRead {
    data: Option<String>,
    base64: Option<String>,
}

impl JsonBytesRead {
    /// The bytes, if the object has any.
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, DecodeError> {
        match (&self.data, &self.base64) {
            (Some(text), _) => Ok(Some(text.as_bytes().to_vec())),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).map(Some),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_text_and_other_bytes_are_base64() {
        let json = |bytes: &[u8]| serde_json::to_string(&JsonBytes(bytes)).unwrap();
        assert_eq!(json("é\n".as_bytes()), r#"{"data":"é\n"}"#);
        assert_eq!(json(b"\xff\x00"), r#"{"base64":"/wA="}"#);
        assert_eq!(json(b""), r#"{"data":""}"#);
        assert_eq!(serde_json::from_str::<JsonBytesRead>("{}").unwrap().bytes(), Ok(None));
        assert!(serde_json::from_str::<JsonBytesRead>(r#"{"base64":"?"}"#).unwrap().bytes().is_err());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(bytes in prop_oneof![any::<Vec<u8>>(), any::<String>().prop_map(String::into_bytes)]) {
            let json = serde_json::to_string(&JsonBytes(&bytes)).unwrap();
            prop_assert_eq!(serde_json::from_str::<JsonBytesRead>(&json).unwrap().bytes(), Ok(Some(bytes)));
        }
    }
}
