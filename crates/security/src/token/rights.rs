//! Rights, the resources that they apply to, and grants of the one on the other.

use millrace_wire::{Code, Error, Result};
use std::{fmt, str::FromStr};

/// What a caller may do with a resource. The number of each is its bit in a GRANT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Right {
    /// Read records, code and payloads.
    Read = 0,
    /// Append records, publish, write, deliver.
    Append = 1,
    /// Create logs and objects.
    Create = 2,
    /// Remove and trim logs; delete objects.
    Delete = 3,
    /// Bind functions to a log, subscribe, deploy.
    Bind = 4,
    /// Run a function on records.
    Run = 5,
    /// Call a function or an object and change its state.
    Call = 6,
    /// See attributes, status, runs and metrics.
    Observe = 7,
    /// Apply and roll back repairs.
    Repair = 8,
    /// Open a stream from another namespace.
    Link = 9,
    /// Settings, limits, quotas, backup and peers.
    Admin = 10,
    /// Issue, rotate and revoke capabilities.
    Grant = 11,
}

impl Right {
    /// Every right, in the order of their bits.
    pub const ALL: [Right; 12] = [
        Right::Read,
        Right::Append,
        Right::Create,
        Right::Delete,
        Right::Bind,
        Right::Run,
        Right::Call,
        Right::Observe,
        Right::Repair,
        Right::Link,
        Right::Admin,
        Right::Grant,
    ];

    /// The right's name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Append => "append",
            Right::Create => "create",
            Right::Delete => "delete",
            Right::Bind => "bind",
            Right::Run => "run",
            Right::Call => "call",
            Right::Observe => "observe",
            Right::Repair => "repair",
            Right::Link => "link",
            Right::Admin => "admin",
            Right::Grant => "grant",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|right| right.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Right::name).join(", ");
            Code::CapabilityRuleInvalid
                .error(format!("'{}' is not a right; the rights are {known}", text.escape_debug()))
        })
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rights(u16);

impl Rights {
    /// No right.
    pub const NONE: Rights = Rights(0);
    /// Every right.
    pub const ALL: Rights = Rights((1 << Right::ALL.len()) - 1);

    /// The set with these bits, unless one of them means no right.
    pub fn from_bits(bits: u16) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }

    /// The set as bits.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `right` is in the set.
    pub fn has(self, right: Right) -> bool {
        self.0 >> right as u8 & 1 == 1
    }

    /// The rights in both sets.
    pub fn and(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }

    /// The rights in either set.
    pub fn or(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// The rights in the set, in the order of their bits.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        rights.into_iter().fold(Self::NONE, |set, right| Rights(set.0 | 1 << right as u8))
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Right::name).collect();
        f.write_str(&names.join(","))
    }
}

/// The kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The namespace; a grant on it covers everything in it.
    Namespace = 0,
    /// A log or a topic.
    Log = 1,
    /// A function.
    Function = 2,
    /// An object.
    Object = 3,
    /// A path of a store.
    Store = 4,
    /// Another namespace.
    Peer = 5,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Kind; 6] = [Kind::Namespace, Kind::Log, Kind::Function, Kind::Object, Kind::Store, Kind::Peer];

    /// The kind's name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Namespace => "namespace",
            Kind::Log => "log",
            Kind::Function => "function",
            Kind::Object => "object",
            Kind::Store => "store",
            Kind::Peer => "peer",
        }
    }
}

/// What an action is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its name; empty for the namespace.
    pub name: &'a str,
}

impl<'a> Resource<'a> {
    /// The namespace as a whole.
    pub const NAMESPACE: Resource<'static> = Resource { kind: Kind::Namespace, name: "" };

    /// A log or topic.
    pub fn log(name: &'a str) -> Self {
        Self { kind: Kind::Log, name }
    }

    /// A function.
    pub fn function(name: &'a str) -> Self {
        Self { kind: Kind::Function, name }
    }

    /// A shared object, named by its type and key: `AtomicInt/hits`.
    pub fn object(name: &'a str) -> Self {
        Self { kind: Kind::Object, name }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Namespace => f.write_str("the namespace"),
            kind => write!(f, "{} '{}'", kind.name(), self.name.escape_debug()),
        }
    }
}

/// Longest name in a grant.
pub const GRANT_NAME_MAX_BYTES: usize = 252;

/// Rights on one resource, or on it and everything below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// The kind of resource.
    pub kind: Kind,
    /// The resource's name. A subtree of the empty name is every resource of the kind.
    pub name: Box<[u8]>,
    /// Whether the grant also covers what is below the name, by whole segments.
    pub subtree: bool,
    /// What may be done.
    pub rights: Rights,
}

impl Grant {
    /// A grant of rights on the whole namespace.
    pub fn namespace(rights: Rights) -> Self {
        Self { kind: Kind::Namespace, name: Box::default(), subtree: false, rights }
    }

    /// Why this cannot stand in a token, or `None`.
    pub fn fault(&self) -> Option<&'static str> {
        let unnamed = self.name.is_empty();
        if self.kind == Kind::Namespace && (!unnamed || self.subtree) {
            return Some("a grant on the namespace cannot have a name or a subtree");
        }
        if self.kind != Kind::Namespace && unnamed && !self.subtree {
            return Some("a grant on one resource needs its name");
        }
        if self.name.len() > GRANT_NAME_MAX_BYTES {
            return Some("a name in a grant is at most 252 bytes; grant the subtree above it");
        }
        self.rights.is_empty().then_some("a grant needs at least one right")
    }

    /// Whether the grant permits `right` on `resource`.
    pub fn covers(&self, right: Right, resource: Resource<'_>) -> bool {
        if !self.rights.has(right) {
            return false;
        }
        if self.kind == Kind::Namespace {
            return true;
        }
        // Logs of the runtime are the namespace's: a grant on all logs does not open them.
        let internal = resource.kind == Kind::Log && resource.name.starts_with('_');
        self.kind == resource.kind && !internal && self.contains(resource.name.as_bytes())
    }

    /// Whether the grant permits `right` on `resource` and on whatever is or will be below it.
    pub fn covers_all_below(&self, right: Right, resource: Resource<'_>) -> bool {
        self.covers(right, resource) && (self.subtree || self.kind == Kind::Namespace)
    }

    /// Whether `name` is the grant's, or below it if the grant is of a subtree.
    pub(super) fn contains(&self, name: &[u8]) -> bool {
        match name.strip_prefix(&*self.name) {
            Some([]) => true,
            Some([next, ..]) => self.subtree && (self.name.is_empty() || *next == b'/'),
            None => false,
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_ascii();
        match (self.kind, self.subtree) {
            (Kind::Namespace, _) => write!(f, "{} on the namespace and everything in it", self.rights),
            (kind, true) if self.name.is_empty() => write!(f, "{} on every {}", self.rights, kind.name()),
            (kind, true) => write!(f, "{} on {} {name} and everything below it", self.rights, kind.name()),
            (kind, false) => write!(f, "{} on {} {name}", self.rights, kind.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(kind: Kind, name: &str, subtree: bool) -> Grant {
        Grant { kind, name: name.as_bytes().into(), subtree, rights: [Right::Read].into_iter().collect() }
    }

    #[test]
    fn a_subtree_ends_at_whole_segments() {
        let raw = grant(Kind::Log, "raw", true);
        for (name, covered) in
            [("raw", true), ("raw/kitchen", true), ("raw/a/b", true), ("rawness", false), ("ra", false)]
        {
            assert_eq!(raw.covers(Right::Read, Resource::log(name)), covered, "{name}");
        }
        assert!(!raw.covers(Right::Append, Resource::log("raw")));
        assert!(!raw.covers(Right::Read, Resource::function("raw")));
        assert!(!grant(Kind::Log, "raw", false).covers(Right::Read, Resource::log("raw/kitchen")));
    }

    #[test]
    fn a_subtree_is_covered_by_one_that_holds_it_and_by_no_single_name() {
        let covers = |grant: Grant, name| grant.covers_all_below(Right::Read, Resource::log(name));
        assert!(covers(grant(Kind::Log, "raw", true), "raw") && covers(grant(Kind::Log, "raw", true), "raw/a"));
        assert!(covers(grant(Kind::Log, "", true), "") && covers(grant(Kind::Namespace, "", false), ""));
        assert!(!covers(grant(Kind::Log, "raw", false), "raw"), "one log is not what is below it");
        assert!(!covers(grant(Kind::Log, "raw/a", true), "raw") && !covers(grant(Kind::Log, "raw", true), ""));
    }

    #[test]
    fn only_the_namespace_covers_logs_of_the_runtime() {
        assert!(grant(Kind::Namespace, "", false).covers(Right::Read, Resource::log("_links")));
        for name in ["", "_links"] {
            assert!(!grant(Kind::Log, name, true).covers(Right::Read, Resource::log("_links")), "{name}");
        }
        assert!(grant(Kind::Log, "", true).covers(Right::Read, Resource::log("raw/_x")));
    }

    #[test]
    fn rights_are_read_as_they_are_written() {
        for right in Right::ALL {
            assert_eq!(right.name().parse::<Right>().unwrap(), right);
            assert!(Rights::ALL.has(right) && !Rights::NONE.has(right));
        }
        assert_eq!(Rights::from_bits(1 << 12), None);
        assert_eq!("write".parse::<Right>().unwrap_err().code(), Code::CapabilityRuleInvalid);
    }
}
