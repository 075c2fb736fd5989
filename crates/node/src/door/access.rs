//! The access check: the one place that decides who may do what. Nothing that comes from outside acts without it.
//!
//! So far it knows one principal, the owner: whoever comes over the Unix socket as the namespace's owner (or root), or
//! over a loopback address. Logs of the runtime (`_inbox/…`) may be read by the owner and written by nobody; the log of
//! idempotency keys is not read either: whoever knows another client's key could answer for it.

use millrace_wire::{Code, LogName, Name, Result};
use std::{fmt, net::IpAddr};

/// On whose behalf something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal(());

impl Principal {
    /// Whoever is at the other end of a Unix socket: `uid` as the kernel says, `owner` as the namespace's directory does.
    pub fn of_user(uid: u32, owner: u32) -> Result<Principal> {
        if uid == owner || uid == 0 {
            return Ok(Principal(()));
        }
        Err(Code::NotAdmitted.error(format!("user {uid} is not the owner of this namespace")))
    }

    /// Whoever is at the other end of a TCP connection.
    pub fn of_address(address: IpAddr) -> Result<Principal> {
        if address.to_canonical().is_loopback() {
            return Ok(Principal(()));
        }
        Err(Code::NotAdmitted.error(format!("connections from {address} are not admitted")))
    }
}

/// What somebody wants to do.
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

/// Whether `principal` may do this with `log`, or with the namespace as a whole.
pub(crate) fn check(_principal: Principal, right: Right, log: Option<&str>) -> Result<()> {
    // A principal exists only for the owner, whose rights end where the runtime's own logs begin.
    match log {
        Some(log) if is_secret(log) => Err(Code::LogInternal.error(format!("nobody may {right} log '{log}'"))),
        Some(log) if right != Right::Read && LogName::is_internal(log) => {
            Err(Code::LogInternal.error(format!("nobody may {right} log '{}'", log.escape_debug())))
        }
        _ => Ok(()),
    }
}

/// Whether the records of this log are nobody's to read.
pub fn is_secret(log: &str) -> bool {
    log == millrace_namespace::keys::LOG
}

/// The name under which a namespace is served: the directory's that holds it, where that can be a name.
pub fn default_name(dir: &std::path::Path) -> Name {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let own = dir.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    let parent = || dir.parent()?.file_name()?.to_str();
    let name = own.or_else(parent).and_then(|name| name.parse().ok());
    name.unwrap_or_else(|| "main".parse().expect("`main` is a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_loopback_are_admitted() {
        assert!(Principal::of_user(1000, 1000).is_ok() && Principal::of_user(0, 1000).is_ok());
        assert_eq!(Principal::of_user(1001, 1000).unwrap_err().code(), Code::NotAdmitted);
        for admitted in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(Principal::of_address(admitted.parse().unwrap()).is_ok(), "{admitted}");
        }
        for refused in ["10.0.0.1", "0.0.0.0", "::", "fe80::1", "::ffff:10.0.0.1", "128.0.0.1"] {
            assert_eq!(Principal::of_address(refused.parse().unwrap()).unwrap_err().code(), Code::NotAdmitted);
        }
    }

    #[test]
    fn logs_of_the_runtime_are_read_only() {
        let owner = Principal::of_user(0, 0).unwrap();
        assert!(check(owner, Right::Read, Some("_links")).is_ok());
        assert_eq!(check(owner, Right::Read, Some("_keys")).unwrap_err().code(), Code::LogInternal);
        for right in [Right::Append, Right::Define, Right::Deliver] {
            assert!(check(owner, right, Some("raw/_x")).is_ok());
            assert_eq!(check(owner, right, Some("_inbox/x")).unwrap_err().code(), Code::LogInternal);
        }
    }
}
