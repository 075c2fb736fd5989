//! The place of a namespace, for a client that connects to it.

use millrace_wire::{Address, Code, Error, Peer, Result};
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The prefix of the text form of a Unix socket.
const UNIX: &str = "unix:";

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A host and the name of a namespace on it.
    Tcp(Peer),
    /// The Unix socket of a host that serves one namespace.
    Unix(PathBuf),
}

impl Place {
    /// Whether `text` claims to be a place that one connects to, rather than a directory.
    pub fn claims(text: &str) -> bool {
        Address::claims(text) || text.starts_with(UNIX)
    }

    /// The name of the namespace to ask for; empty for the only one.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Place::Tcp(peer) => &peer.namespace,
            Place::Unix(_) => "",
        }
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Place::Unix(path.into())
    }
}

impl From<&Address> for Place {
    fn from(address: &Address) -> Self {
        Place::Tcp(address.peer.clone())
    }
}

impl FromStr for Place {
    type Err = Error;

    /// `mr://HOST[:PORT]/NAMESPACE` or `unix:PATH`.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix(UNIX) {
            if path.is_empty() {
                return Err(Code::AddressInvalid.error("'unix:' must be followed by a path"));
            }
            return Ok(Place::Unix(path.into()));
        }
        let address: Address = text.parse()?;
        match address.log {
            None => Ok(Place::Tcp(address.peer)),
            Some(log) => {
                Err(Code::AddressInvalid
                    .error(format!("log '{log}' is given where only a namespace's address is allowed")))
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(peer) => peer.fmt(f),
            Place::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_as_they_were() {
        for text in ["mr://127.0.0.1:7070/farm", "unix:/run/a b/socket", "unix:socket"] {
            assert!(Place::claims(text));
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in ["", "unix:", "farm", "mr://a/farm/raw", "http://a/b"] {
            assert_eq!(text.parse::<Place>().unwrap_err().code(), Code::AddressInvalid, "{text}");
        }
        assert!(!Place::claims("./farm") && !Place::claims("farm"));
    }
}
