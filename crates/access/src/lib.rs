//! The access check: the one place that decides who may do what. Nothing that comes from outside acts without it.
//!
//! ```text
//!  connection --> Caller (who asks, and how it is known) --check--> Action { right, resource } --> allowed, or an error
//! ```
//!
//! So far there is one kind of caller, the owner: over the Unix socket as the namespace's owner (or root), or over a loopback
//! address. The owner may read logs of the runtime (`_inbox/…`), and nobody may write them. Nobody reads the log of idempotency
//! keys either: with the key of another client one could answer for it.
//!
//! Nothing here reads a file or a clock, so every decision can be tested by itself.

use millrace_wire::{Code, LogName, Result};
use std::{fmt, net::IpAddr};

/// The log of idempotency keys.
const KEYS_LOG: &str = "_keys";

/// Where a request comes from, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A user of this machine, over a Unix socket; the kernel says which.
    User(u32),
    /// An address, over TCP.
    Address(IpAddr),
}

/// The author of a request, after admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    peer: Peer,
}

impl Caller {
    /// The caller at the other end of a Unix socket: `uid` as the kernel says, `owner` as the namespace's directory does.
    pub fn of_user(uid: u32, owner: u32) -> Result<Caller> {
        if uid == owner || uid == 0 {
            return Ok(Caller { peer: Peer::User(uid) });
        }
        Err(Code::NotAdmitted.error(format!("user {uid} is not the owner of this namespace")))
    }

    /// The caller at the other end of a TCP connection.
    pub fn of_address(address: IpAddr) -> Result<Caller> {
        if address.to_canonical().is_loopback() {
            return Ok(Caller { peer: Peer::Address(address) });
        }
        Err(Code::NotAdmitted.error(format!("connections from {address} are not admitted")))
    }

    /// Where it asks from.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether it may do this. Callers exist only for the owner, whose rights end where the runtime's own logs begin.
    pub fn check(&self, action: Action<'_>) -> Result<()> {
        let Action { right, resource } = action;
        match resource {
            Resource::Log(log) if is_secret(log) => {
                Err(Code::LogInternal.error(format!("nobody may {right} log '{log}'")))
            }
            Resource::Log(log) if right != Right::Read && LogName::is_internal(log) => {
                Err(Code::LogInternal.error(format!("nobody may {right} log '{}'", log.escape_debug())))
            }
            Resource::Log(_) | Resource::Namespace => Ok(()),
        }
    }
}

/// What is done, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action<'a> {
    /// What is done.
    pub right: Right,
    /// What it is done to.
    pub resource: Resource<'a>,
}

/// What an action is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The namespace as a whole.
    Namespace,
    /// The log of this name; an address names one elsewhere.
    Log(&'a str),
}

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read records and what is known about logs, functions and runs.
    Read,
    /// Append records.
    Append,
    /// Make and remove logs.
    Define,
    /// Deliver records from another namespace.
    Deliver,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Read => "read",
            Right::Append => "append to",
            Right::Define => "make or remove",
            Right::Deliver => "deliver to",
        })
    }
}

impl Right {
    /// This right to a log.
    pub fn to(self, log: &str) -> Action<'_> {
        Action { right: self, resource: Resource::Log(log) }
    }

    /// This right to the namespace as a whole.
    pub fn to_namespace(self) -> Action<'static> {
        Action { right: self, resource: Resource::Namespace }
    }
}

/// Whether the records of this log are nobody's to read.
pub fn is_secret(log: &str) -> bool {
    log == KEYS_LOG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_loopback_are_admitted() {
        assert!(Caller::of_user(1000, 1000).is_ok() && Caller::of_user(0, 1000).is_ok());
        assert_eq!(Caller::of_user(1001, 1000).unwrap_err().code(), Code::NotAdmitted);
        for admitted in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(Caller::of_address(admitted.parse().unwrap()).is_ok(), "{admitted}");
        }
        for refused in ["10.0.0.1", "0.0.0.0", "::", "fe80::1", "::ffff:10.0.0.1", "128.0.0.1"] {
            assert_eq!(Caller::of_address(refused.parse().unwrap()).unwrap_err().code(), Code::NotAdmitted);
        }
    }

    #[test]
    fn logs_of_the_runtime_are_read_only() {
        let owner = Caller::of_user(0, 0).unwrap();
        assert!(owner.check(Right::Read.to("_links")).is_ok());
        assert_eq!(owner.check(Right::Read.to("_keys")).unwrap_err().code(), Code::LogInternal);
        for right in [Right::Append, Right::Define, Right::Deliver] {
            assert!(owner.check(right.to("raw/_x")).is_ok());
            assert_eq!(owner.check(right.to("_inbox/x")).unwrap_err().code(), Code::LogInternal);
        }
    }
}
