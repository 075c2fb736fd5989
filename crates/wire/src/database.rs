//! The databases to which tables are written: their names, and how answers depend on them.

use crate::{Code, Error, Name, Result};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Deref, str::FromStr};

/// The longest name of a database.
pub const DATABASE_NAME_MAX_BYTES: usize = 32;

/// The name of a database in one namespace: a [`Name`] of at most 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DatabaseName {
    bytes: [u8; DATABASE_NAME_MAX_BYTES],
    length: u8,
}

impl FromStr for DatabaseName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name: Name = text.parse()?;
        if name.len() > DATABASE_NAME_MAX_BYTES {
            let length = name.len();
            let detail = format!("a database's name of {length} bytes; the limit is {DATABASE_NAME_MAX_BYTES}");
            return Err(Code::NameInvalid.error(detail));
        }
        let mut bytes = [0; DATABASE_NAME_MAX_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { bytes, length: name.len() as u8 }) // at most DATABASE_NAME_MAX_BYTES
    }
}

impl Deref for DatabaseName {
    type Target = str;

    fn deref(&self) -> &str {
        // It was made from text.
        std::str::from_utf8(&self.bytes[..self.length.into()]).unwrap_or_default()
    }
}

impl TryFrom<String> for DatabaseName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<DatabaseName> for String {
    fn from(name: DatabaseName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for DatabaseName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self)
    }
}

impl fmt::Debug for DatabaseName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "DatabaseName({})", &**self)
    }
}

/// How answers depend on what a table's database has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableMode {
    /// What depends on a write leaves the host once the write is in the database.
    #[default]
    External,
    /// No answer waits for the database.
    Asynchronous,
    /// As external; also, no run starts because of a write, and no run reads it, before it is in the database.
    Synchronous,
}

impl TableMode {
    /// Whether answers wait for the writes.
    pub fn waits(&self) -> bool {
        *self != Self::Asynchronous
    }

    /// Whether it is the default.
    pub fn is_external(&self) -> bool {
        *self == Self::External
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_and_a_long_one_is_refused() {
        for text in ["main", "a", "x".repeat(32).as_str()] {
            let name: DatabaseName = text.parse().unwrap();
            assert_eq!((&*name, name.to_string().as_str()), (text, text));
            assert_eq!(serde_json::from_str::<DatabaseName>(&serde_json::to_string(&name).unwrap()).unwrap(), name);
        }
        for text in ["", "a/b", ".a", "x".repeat(33).as_str()] {
            assert!(text.parse::<DatabaseName>().is_err(), "{text}");
        }
    }
}
