//! Names of namespaces, logs and functions, and the only code that validates them.
//!
//! A segment is 1 to 64 of `[A-Za-z0-9_.-]`, not starting with a dot. A [`Name`] is one segment; a [`LogName`] is 1 to 8 of them joined by
//! `/`, at most 255 bytes. So no name can leave a directory, be a hidden file, or look like another name.

use crate::{Code, Error, Result};
use std::{fmt, ops::Deref, str::FromStr};

/// The longest segment of a name.
pub const SEGMENT_MAX_BYTES: usize = 64;
/// The most segments in a log's name.
pub const SEGMENTS_MAX: usize = 8;
/// The longest log name.
pub const LOG_NAME_MAX_BYTES: usize = 255;

/// The error of a segment, or `None` if it is valid.
fn segment_fault(segment: &str) -> Option<String> {
    if segment.is_empty() {
        return Some("it has an empty segment".into());
    }
    if segment.starts_with('.') {
        return Some(format!("segment '{}' starts with a dot", segment.escape_debug()));
    }
    if let Some(odd) = segment.chars().find(|c| !(c.is_ascii_alphanumeric() || "_.-".contains(*c))) {
        return Some(format!("'{}' is not one of A-Z a-z 0-9 _ . -", odd.escape_debug()));
    }
    (segment.len() > SEGMENT_MAX_BYTES)
        .then(|| format!("a segment has {} bytes; the limit is {SEGMENT_MAX_BYTES}", segment.len()))
}

/// A refused name as an error may show it: escaped, and not longer than a line.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        shown.push('…');
    }
    shown
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Box<str>);

        impl Deref for $type {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

name_type! {
    /// The name of a namespace, a function or a monitor: one segment.
    Name
}
name_type! {
    /// The name of a log: one to eight segments joined by `/`.
    LogName
}

impl LogName {
    /// Whether a log of this name belongs to the runtime: its first segment starts with `_`.
    pub fn is_internal(name: &str) -> bool {
        name.starts_with('_')
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match segment_fault(text) {
            None => Ok(Self(text.into())),
            Some(fault) => Err(Code::NameInvalid.error(format!("'{}' is not a name: {fault}", shown(text)))),
        }
    }
}

impl FromStr for LogName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fault = if text.len() > LOG_NAME_MAX_BYTES {
            Some(format!("it has {} bytes; the limit is {LOG_NAME_MAX_BYTES}", text.len()))
        } else if text.split('/').count() > SEGMENTS_MAX {
            Some(format!("it has more than {SEGMENTS_MAX} segments"))
        } else {
            text.split('/').find_map(segment_fault)
        };
        match fault {
            None => Ok(Self(text.into())),
            Some(fault) => Err(Code::LogNameInvalid.error(format!("'{}' is not a log name: {fault}", shown(text)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_names() {
        for text in ["a", "raw/kitchen", "A-b_c.d/9", &["x"; 8].join("/"), &"x".repeat(64)] {
            assert_eq!(&*text.parse::<LogName>().unwrap(), text);
        }
    }

    #[test]
    fn names_that_could_climb_hide_or_confuse_are_refused() {
        let long = vec!["x".repeat(60); 5].join("/");
        let wide = "x".repeat(65);
        let deep = ["x"; 9].join("/");
        for text in [
            "", "/", "a/", "/a", "a//b", ".", "..", "../x", "a/../b", "a/.b", ".hidden", "a b", "a\0b", "a\nb", "é",
            "лог", "a\\b", "~", "a:b", &long, &wide, &deep,
        ] {
            assert_eq!(text.parse::<LogName>().unwrap_err().code(), Code::LogNameInvalid, "{text:?}");
            assert_eq!(text.parse::<Name>().unwrap_err().code(), Code::NameInvalid, "{text:?}");
        }
        assert_eq!("a/b".parse::<Name>().unwrap_err().code(), Code::NameInvalid);
    }

    #[test]
    fn a_refused_name_is_shown_escaped_and_short() {
        let error = format!("\x1b[31m{}", "z".repeat(5000)).parse::<LogName>().unwrap_err();
        assert!(!error.to_string().contains('\x1b') && error.to_string().chars().count() < 400, "{error}");
    }
}
