//! JSON that later versions may extend: definitions and the manifest.
//!
//! An unknown key that ends in `?` may be ignored. Any other unknown key, and an unknown value of a tag, must not be ignored.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why JSON is not read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    /// It has a critical addition that this version does not know.
    TooNew(String),
    /// It is not what it should be.
    Malformed(String),
}

/// The value that JSON holds. The type denies unknown fields, and this accepts those that may be ignored.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unread> {
    decode_with(bytes, &[])
}

/// [`decode`] for a type that knows some of the keys that may be ignored: these of the outermost object are kept.
pub fn decode_with<T: DeserializeOwned>(bytes: &[u8], known: &[&str]) -> Result<T, Unread> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else {
        return Err(Unread::Malformed(error.to_string()));
    };
    remove_ignorable(&mut value, known);
    serde_json::from_value(value).map_err(|error| {
        let reported = error.to_string();
        // Serde's message for an unknown field or variant.
        let is_unknown = reported.starts_with("unknown field") || reported.starts_with("unknown variant");
        if is_unknown { Unread::TooNew(reported) } else { Unread::Malformed(reported) }
    })
}

fn remove_ignorable(value: &mut Value, known: &[&str]) {
    match value {
        Value::Object(object) => {
            object.retain(|key, _| !key.ends_with('?') || known.contains(&&**key));
            object.values_mut().for_each(|value| remove_ignorable(value, &[]));
        }
        Value::Array(array) => array.iter_mut().for_each(|value| remove_ignorable(value, &[])),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        id: u32,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(tag = "define", rename_all = "kebab-case", deny_unknown_fields)]
    enum Tagged {
        Log { rows: Vec<Row> },
    }

    fn read(text: &str) -> Result<Tagged, Unread> {
        decode(text.as_bytes())
    }

    #[test]
    fn only_keys_that_end_in_a_question_mark_may_be_unknown() {
        let one = Ok(Tagged::Log { rows: vec![Row { id: 1 }] });
        assert_eq!(read(r#"{"define":"log","rows":[{"id":1}]}"#), one);
        assert_eq!(read(r#"{"define":"log","new?":{"a":1},"rows":[{"id":1,"x?":[]}]}"#), one);
        for (text, name) in [
            (r#"{"define":"log","rows":[],"new":1}"#, "`new`"),
            (r#"{"define":"log","rows":[{"id":1,"use":"images"}]}"#, "`use`"),
            (r#"{"define":"topic","rows":[]}"#, "`topic`"),
        ] {
            assert!(matches!(read(text), Err(Unread::TooNew(why)) if why.contains(name)), "{text}");
        }
        for text in [r#"{"define":"log"}"#, r#"{"define":"log","rows":[{"id":"x"}]}"#, r#"{"define":"#, "1"] {
            assert!(matches!(read(text), Err(Unread::Malformed(_))), "{text}");
        }
    }
}
