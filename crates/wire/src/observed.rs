//! Which field of a log's records has the time of the observation.

use crate::{Code, Error, Result};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::fmt;

/// The longest pointer to a field.
pub const FIELD_MAX_BYTES: usize = 1024;

/// What the numbers in a field count, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
}

impl TimeUnit {
    /// All of them, as they are written.
    pub const ALL: [(&'static str, TimeUnit); 3] =
        [("s", TimeUnit::Seconds), ("ms", TimeUnit::Milliseconds), ("us", TimeUnit::Microseconds)];

    /// The unit with this name.
    pub fn parse(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, unit)| unit).ok_or_else(|| {
            let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
            Code::ValueInvalid.error(format!("'{shown}' is not a unit of time: s, ms or us"))
        })
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
        }
    }

    /// How many microseconds one of it has.
    pub fn us(self) -> i64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Milliseconds => 1000,
            Self::Microseconds => 1,
        }
    }
}

/// The field that has the time of the observation. A text in it is a time in the form of RFC 3339; a number is a time only if the unit is
/// given, so that no number has two meanings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeField {
    field: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<TimeUnit>,
}

impl TimeField {
    /// The field that this JSON pointer (RFC 6901) names.
    pub fn new(field: impl Into<String>, unit: Option<TimeUnit>) -> Result<Self> {
        let field = field.into();
        check(&field)?;
        Ok(Self { field, unit })
    }

    /// The JSON pointer.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What a number in the field counts.
    pub fn unit(&self) -> Option<TimeUnit> {
        self.unit
    }
}

fn check(field: &str) -> Result<()> {
    let refused = |why: &str| -> Error {
        let shown: String = field.chars().take(40).flat_map(char::escape_debug).collect();
        Code::ValueInvalid.error(format!("'{shown}' is not a JSON pointer to a field, such as /observed_at: {why}"))
    };
    if field.len() > FIELD_MAX_BYTES {
        return Err(refused(&format!("it has {} bytes; the limit is {FIELD_MAX_BYTES}", field.len())));
    }
    if !field.starts_with('/') {
        return Err(refused("it does not begin with '/'"));
    }
    if field.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
        return Err(refused("'~' is written ~0 in it, and '/' within a name ~1"));
    }
    Ok(())
}

impl fmt::Display for TimeField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        self.unit.map_or(Ok(()), |unit| write!(f, " ({})", unit.name()))
    }
}

/// A pointer, or an object with the members `field` and `unit`.
impl<'de> Deserialize<'de> for TimeField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members {
            field: String,
            #[serde(default)]
            unit: Option<TimeUnit>,
        }
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = TimeField;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON pointer such as \"/observed_at\", or an object with `field` and `unit`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeField, E> {
                TimeField::new(text, None).map_err(|error| E::custom(error.detail()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TimeField, A::Error> {
                let Members { field, unit } = Members::deserialize(MapAccessDeserializer::new(map))?;
                TimeField::new(field, unit).map_err(|error| de::Error::custom(error.detail()))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_a_pointer_or_an_object_with_a_unit() {
        let read = |json: &str| serde_json::from_str::<TimeField>(json);
        let plain = TimeField::new("/a~1b/c~0", None).unwrap();
        assert_eq!(read(r#""/a~1b/c~0""#).unwrap(), plain);
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"field":"/a~1b/c~0"}"#);
        let counted = read(r#"{"field": "/t", "unit": "ms"}"#).unwrap();
        assert_eq!((counted.unit(), counted.to_string()), (Some(TimeUnit::Milliseconds), "/t (ms)".into()));
        assert_eq!(read(&serde_json::to_string(&counted).unwrap()).unwrap(), counted);
        for json in
            [r#""t""#, r#""""#, r#""/a~2""#, r#""/a~""#, "1", r#"{"unit":"s"}"#, r#"{"field":"/t","unit":"ns"}"#]
        {
            assert!(read(json).is_err(), "{json}");
        }
        assert!(read(r#"{"field":"/t","zone":"x"}"#).is_err());
    }

    #[test]
    fn a_bad_pointer_is_named_with_the_rule() {
        for (field, why) in [("t", "does not begin"), ("/~", "written ~0"), ("", "does not begin")] {
            let error = TimeField::new(field, None).unwrap_err();
            assert_eq!(error.code(), Code::ValueInvalid);
            assert!(error.detail().contains(why), "{error}");
        }
        assert!(TimeField::new(format!("/{}", "x".repeat(FIELD_MAX_BYTES)), None).is_err());
        assert_eq!(TimeUnit::parse("ns").unwrap_err().code(), Code::ValueInvalid);
        assert!(TimeUnit::ALL.iter().all(|(name, unit)| unit.name() == *name));
    }
}
