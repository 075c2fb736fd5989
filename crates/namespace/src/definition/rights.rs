//! The rights of a function: which logs it may read and append to, where it may send, and which secrets it may read.
//!
//! A scope is one name, or with a trailing `/` a subtree by whole segments: `raw/` is `raw` and all logs below it, `/` every log. Whether
//! one scope lies within another can be decided, unlike for patterns; a grant of a capability is written the same way.

use crate::{names::check_public, runs::tasks::Pool};
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
        check_public(&name)?;
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
            check_public(log)?;
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

    /// The name of a log that the function may read; an error if it may not, whether or not the log exists. A task may also read the bodies
    /// of its pool.
    pub fn readable<'n>(&self, log: &'n str, pool: Option<&Pool>) -> Result<Readable<'n>> {
        if !pool.is_some_and(|pool| pool.reads(log)) {
            let name: LogName = log.parse()?;
            check(self.reads.as_deref(), &name, "read")?;
        }
        Ok(Readable(log))
    }

    /// The name of a log of this namespace that the function may append to; an error if it may not, whether or not the log exists. A task may
    /// also append to the results of its pool.
    pub fn writable<'n>(&self, log: &'n str, pool: Option<&Pool>) -> Result<Writable<'n>> {
        if !pool.is_some_and(|pool| pool.appends(log)) {
            check_public(log)?;
            let name: LogName = log.parse()?;
            check(self.appends.as_deref(), &name, "append to")?;
        }
        Ok(Writable(log))
    }

    /// Refuses a message that is not granted.
    pub fn check_send(&self, to: &Address) -> Result<()> {
        match self.sends.iter().any(|scope| scope.covers(to)) {
            true => Ok(()),
            false => Err(Code::RightMissing.error(format!("the function may not send to '{to}'"))),
        }
    }
}

/// The name of a log that a run may read.
///
/// Only a check of rights makes one, and what reads a log for a run takes one: code that forgets the check does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readable<'n>(&'n str);

impl Readable<'_> {
    /// The log of a read that an earlier attempt of the same run was granted, as the journal says. A streamed run repeats the answers that it
    /// got, whatever the rights are now.
    pub fn granted_before(log: &str) -> Readable<'_> {
        Readable(log)
    }
}

/// The name of a log that a run may append to, made and used like a [`Readable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writable<'n>(&'n str);

impl Writable<'_> {
    /// The dead-letter log of a function: its host appends to it, whatever the function may do.
    pub fn of_dead_letters(spec: &super::FunctionSpec) -> Writable<'_> {
        Writable(&spec.dead_letter)
    }
}

/// The name of a log after a check of rights: [`Readable`] or [`Writable`].
pub trait Checked: sealed::Sealed {
    /// The name.
    fn name(&self) -> &str;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Readable<'_> {}
    impl Sealed for super::Writable<'_> {}
}

impl Checked for Readable<'_> {
    fn name(&self) -> &str {
        self.0
    }
}

impl Checked for Writable<'_> {
    fn name(&self) -> &str {
        self.0
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
        assert_eq!(rights.readable("raw", None).unwrap().name(), "raw");
        assert_eq!(rights.writable("dead/f", None).unwrap().name(), "dead/f");
        for refused in [
            rights.readable("_keys", None).map(drop),
            rights.check_send(&"mr://a/b/c".parse().unwrap()),
            Rights { reads: Some(vec![log("raw")]), ..Rights::default() }.readable("other", None).map(drop),
            Rights { appends: Some(Vec::new()), ..Rights::default() }.writable("raw", None).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().code(), Code::RightMissing);
        }
        assert_eq!(rights.writable("_keys", None).unwrap_err().code(), Code::LogInternal);
        for wrong in ["", "a//b", "a/"] {
            assert_eq!(rights.readable(wrong, None).unwrap_err().code(), Code::LogNameInvalid, "{wrong}");
            assert_eq!(rights.writable(wrong, None).unwrap_err().code(), Code::LogNameInvalid, "{wrong}");
        }
    }

    #[test]
    fn a_task_reads_the_bodies_of_its_pool_and_appends_its_results() {
        let nothing = Rights { reads: Some(Vec::new()), appends: Some(Vec::new()), ..Rights::default() };
        let pool = Pool::of("_tasks/p").unwrap();
        assert_eq!(nothing.readable("_bodies/p", Some(&pool)).unwrap().name(), "_bodies/p");
        assert_eq!(nothing.writable("_results/p", Some(&pool)).unwrap().name(), "_results/p");
        for log in ["_bodies/q", "_results/p", "_tasks/p", "raw"] {
            assert_eq!(nothing.readable(log, Some(&pool)).unwrap_err().code(), Code::RightMissing, "{log}");
        }
        for (log, code) in
            [("_results/q", Code::LogInternal), ("_bodies/p", Code::LogInternal), ("raw", Code::RightMissing)]
        {
            assert_eq!(nothing.writable(log, Some(&pool)).unwrap_err().code(), code, "{log}");
        }
        assert_eq!(nothing.readable("_bodies/p", None).unwrap_err().code(), Code::RightMissing);
    }
}
