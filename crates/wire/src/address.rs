//! Addresses: `mr://host:port/namespace` and, for a log there, `mr://host:port/namespace/log…`.

use crate::{Code, Error, LogName, Name, Result};
use std::{fmt, str::FromStr};

/// The prefix of an address.
pub const SCHEME: &str = "mr://";
/// The port of an address that names none.
pub const DEFAULT_PORT: u16 = 7070;
/// The longest host name, as in DNS.
const HOST_MAX_BYTES: usize = 253;

/// Where a namespace is: a host and the name under which it serves the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// A host name, an IPv4 address, or an IPv6 address without its brackets.
    pub host: Box<str>,
    /// The TCP port.
    pub port: u16,
    /// The name of the namespace on that host.
    pub namespace: Name,
}

/// The location of a namespace or of one of its logs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The namespace.
    pub peer: Peer,
    /// The log in it, if the address names one.
    pub log: Option<LogName>,
}

impl Address {
    /// Whether `text` claims to be an address; a log's name never does.
    pub fn claims(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let shown = || text.chars().take(120).flat_map(char::escape_debug).collect::<String>();
        let fault = |fault: &str| Code::AddressInvalid.error(format!("'{}' is not an address: {fault}", shown()));
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| fault("it does not start with mr://"))?;
        let (authority, path) = rest.split_once('/').ok_or_else(|| fault("it does not name a namespace"))?;
        let (host, port) = split_authority(authority).map_err(fault)?;
        let (namespace, log) = match path.split_once('/') {
            Some((namespace, log)) => (namespace, Some(log)),
            None => (path, None),
        };
        Ok(Address {
            peer: Peer { host: host.into(), port, namespace: namespace.parse().map_err(|e: Error| fault(e.detail()))? },
            log: log.map(LogName::from_str).transpose().map_err(|e| fault(e.detail()))?,
        })
    }
}

fn split_authority(authority: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a bracket is not closed")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("there is no IPv6 address between the brackets");
            }
            (host, port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let odd = |c: char| !(c.is_ascii_alphanumeric() || ".-_".contains(c));
            if host.is_empty() || host.len() > HOST_MAX_BYTES || host.contains(odd) {
                return Err("it does not name a host");
            }
            (host, port)
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host, DEFAULT_PORT)),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .map(|port| (host, port))
            .ok_or("a port is a number from 1 to 65535"),
        _ => Err("a port is a number from 1 to 65535"),
    }
}

impl Peer {
    /// `host:port`, as a socket wants it.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.authority(), self.namespace)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.fmt(f)?;
        self.log.as_ref().map_or(Ok(()), |log| write!(f, "/{log}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in [
            "mr://127.0.0.1:7070/farm",
            "mr://edge.example:1/farm/raw/kitchen",
            "mr://[::1]:65535/a/b",
            "mr://my_host:99/x",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("mr://edge/farm".parse::<Address>().unwrap().peer.port, DEFAULT_PORT);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "mr://",
            "mr:///x",
            "http://a/b",
            "mr://a",
            "mr://a/",
            "mr://a:0/x",
            "mr://a:70000/x",
            "mr://a:/x",
            "mr://a:+1/x",
            "mr://:1/x",
            "mr://[::1/x",
            "mr://[a]:1/x",
            "mr://[::1]x/x",
            "mr://a b/x",
            "mr://a/../x",
            "mr://a/x/",
            "mr://a/x//y",
            "mr://u@a/x",
            "mr://a/.x",
            "mr://a/x/.y",
            "mr://\u{1b}[31m/x",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.code(), Code::AddressInvalid, "{text}");
            assert!(!error.to_string().contains('\x1b'));
        }
    }
}
