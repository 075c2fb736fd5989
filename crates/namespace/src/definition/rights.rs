//! The rights of a function: which logs it may read and append to, where it may send, and which secrets it may read.
//!
//! A scope is one name, or with a trailing `/` a subtree by whole segments: `raw/` is `raw` and all logs below it, `/` every log. Whether
//! one scope lies within another can be decided, unlike for patterns; a grant of a capability is written the same way.

use millrace_wire::{Address, Code, Error, LogName, Name, Peer, Result};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Most scopes of one kind that a function may list.
pub const SCOPES_MAX: usize = 4096;
/// Most secrets of one function.
pub const SECRETS_MAX: usize = 64;

/// Logs: one, or a subtree. The runtime's own are in none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogScope {
    /// The log, or the root of the subtree; none is the root of all logs.
    name: Option<LogName>,
    subtree: bool,
}

impl LogScope {
    /// Whether the log is in it.
    pub fn covers(&self, log: &str) -> bool {
        if LogName::is_internal(log) {
            return false;
        }
        let Some(name) = &self.name else { return true };
        match log.strip_prefix(&**name) {
            Some("") => true,
            Some(below) => self.subtree && below.starts_with('/'),
            None => false,
        }
    }

    /// The log or the root of the subtree, which is empty if it is the root of all logs; and whether it is a subtree.
    pub fn parts(&self) -> (&str, bool) {
        (self.name.as_deref().unwrap_or_default(), self.subtree)
    }
}

impl From<LogName> for LogScope {
    fn from(name: LogName) -> Self {
        Self { name: Some(name), subtree: false }
    }
}

impl FromStr for LogScope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "/" {
            return Ok(Self { name: None, subtree: true });
        }
        let (name, subtree) = text.strip_suffix('/').map_or((text, false), |name| (name, true));
        let name: LogName = name.parse()?;
        crate::names::check_public(&name)?;
        Ok(Self { name: Some(name), subtree })
    }
}

impl fmt::Display for LogScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or_default())?;
        f.write_str(if self.subtree { "/" } else { "" })
    }
}

/// Logs of another namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SendScope {
    peer: Peer,
    logs: LogScope,
}

impl SendScope {
    /// Whether a message to this address is permitted.
    pub fn covers(&self, to: &Address) -> bool {
        self.peer == to.peer && to.log.as_ref().is_some_and(|log| self.logs.covers(log))
    }

    /// What a capability's grant on peers names it by, `HOST:PORT/NAMESPACE/LOG`, and whether it is a subtree.
    pub fn parts(&self) -> (String, bool) {
        let text = self.to_string();
        let name = text.split_once("://").map_or(&*text, |(_, name)| name);
        (name.trim_end_matches('/').to_owned(), self.logs.subtree)
    }
}

impl FromStr for SendScope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (text, subtree) = text.strip_suffix('/').map_or((text, false), |text| (text, true));
        let Address { peer, log } = text.parse()?;
        if let Some(log) = &log {
            crate::names::check_public(log)?;
        }
        // An address without a log is of a namespace, whose logs are meant.
        let logs = LogScope { subtree: subtree || log.is_none(), name: log };
        Ok(Self { peer, logs })
    }
}

impl fmt::Display for SendScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.logs.name.is_some() { "/" } else { "" };
        write!(f, "{}{slash}{}", self.peer, self.logs)
    }
}

/// In definitions, a scope is a text.
macro_rules! as_text {
    ($scope:ty) => {
        impl TryFrom<String> for $scope {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl From<$scope> for String {
            fn from(scope: $scope) -> Self {
                scope.to_string()
            }
        }
    };
}

as_text!(LogScope);
as_text!(SendScope);

/// The rights of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    /// Logs that it may read; every one if nothing is said. The record that it runs for it is given in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<LogScope>>,
    /// Logs that it may append to; every one if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appends: Option<Vec<LogScope>>,
    /// Where it may send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sends: Vec<SendScope>,
    /// Secrets that it is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Name>,
}

impl Rights {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses a read that is not granted, whether or not the log exists. Invalid names are refused elsewhere.
    pub fn check_read(&self, log: &str) -> Result<()> {
        check(self.reads.as_deref(), log, "read")
    }

    /// The same of an append.
    pub fn check_append(&self, log: &str) -> Result<()> {
        check(self.appends.as_deref(), log, "append to")
    }

    /// Refuses a message that is not granted.
    pub fn check_send(&self, to: &Address) -> Result<()> {
        match self.sends.iter().any(|scope| scope.covers(to)) {
            true => Ok(()),
            false => Err(Code::RightMissing.error(format!("the function may not send to '{to}'"))),
        }
    }
}

fn check(scopes: Option<&[LogScope]>, log: &str, what: &str) -> Result<()> {
    let granted = match scopes {
        Some(scopes) => scopes.iter().any(|scope| scope.covers(log)),
        None => !LogName::is_internal(log),
    };
    match granted {
        true => Ok(()),
        false => Err(Code::RightMissing.error(format!("the function may not {what} log '{}'", log.escape_debug()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> LogScope {
        text.parse().unwrap()
    }

    #[test]
    fn a_scope_ends_at_whole_segments_and_holds_no_log_of_the_runtime() {
        for (scope, covered, not) in [
            ("raw", &["raw"][..], &["raw/a", "ra", "raws"][..]),
            ("raw/", &["raw", "raw/a", "raw/a/b"], &["rawness", "ra", "_raw"]),
            ("raw/a", &["raw/a"], &["raw", "raw/a/b", "raw/ab"]),
            ("/", &["raw", "raw/a"], &["_outbox/x", "_keys"]),
        ] {
            assert_eq!(log(scope).to_string(), scope);
            covered.iter().for_each(|name| assert!(log(scope).covers(name), "{scope} has {name}"));
            not.iter().for_each(|name| assert!(!log(scope).covers(name), "{scope} does not have {name}"));
        }
        for wrong in ["", "//", "raw//", "_keys", "_keys/", "raw/*", "*"] {
            assert!(wrong.parse::<LogScope>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_goes_to_a_log_of_a_namespace_that_is_named() {
        let to = |text: &str| text.parse::<Address>().unwrap();
        for (scope, shown) in [
            ("mr://edge/farm", "mr://edge:7070/farm/"),
            ("mr://edge:7070/farm/", "mr://edge:7070/farm/"),
            ("mr://edge/farm/raw", "mr://edge:7070/farm/raw"),
            ("mr://edge/farm/raw/", "mr://edge:7070/farm/raw/"),
        ] {
            let scope: SendScope = scope.parse().unwrap();
            assert_eq!(scope.to_string(), shown);
            assert_eq!(shown.parse(), Ok(scope.clone()));
            assert!(scope.covers(&to("mr://edge/farm/raw")), "{shown}");
            assert_eq!(scope.covers(&to("mr://edge/farm/raw/a")), shown.ends_with('/'), "{shown}");
            for elsewhere in
                ["mr://edge:7071/farm/raw", "mr://edge/farmer/raw", "mr://other/farm/raw", "mr://edge/farm"]
            {
                assert!(!scope.covers(&to(elsewhere)), "{shown} {elsewhere}");
            }
        }
        for wrong in ["edge/farm", "mr://edge", "mr://edge/farm/_keys", "mr://edge//", "mr://*/farm"] {
            assert!(wrong.parse::<SendScope>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_said_is_every_log_of_the_user_and_no_address() {
        let rights = Rights::default();
        assert!(rights.check_read("raw").is_ok() && rights.check_append("dead/f").is_ok());
        for refused in [
            rights.check_read("_keys"),
            rights.check_append("_keys"),
            rights.check_send(&"mr://a/b/c".parse().unwrap()),
            Rights { reads: Some(vec![log("raw")]), ..Rights::default() }.check_read("other"),
            Rights { appends: Some(Vec::new()), ..Rights::default() }.check_append("raw"),
        ] {
            assert_eq!(refused.unwrap_err().code(), Code::RightMissing);
        }
    }
}
