//! The facts that a host knows about its cluster before it reaches the others: the newest record of the log `_cluster`.

use crate::{
    Namespace,
    secrets::{ClusterSecret, random_id},
};
use millrace_group::Member;
use millrace_namespace::names;
use millrace_wire::{Code, LogName, Result};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// The log's name. Each start of the host adds a record.
const LOG: &str = "_cluster";
/// The newest one has the facts; the others tell which starts this directory knows of.
const HISTORY: u64 = 16;

/// A host's membership in a cluster, recorded when it joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The cluster's id, as 16 hexadecimal digits.
    pub cluster: String,
    /// The namespace that joined: a copy of it has another identity.
    pub host: u64,
    /// The site it is at.
    pub site: String,
    /// The hosts that the group began with.
    pub founders: Vec<u64>,
    /// The hosts that were there when this one joined.
    pub members: Vec<KnownMember>,
    /// The cluster whose id the streams of topics in NATS have, if it is not this one: this cluster was recovered from it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub streams: String,
}

/// The number of a start, and what the directory knows of earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// This start. It is greater than any before, and no other start of this host has it, not even one of an older copy of the directory.
    pub boot: u64,
    /// The earlier ones that are known, the oldest first.
    pub earlier: Vec<u64>,
    /// A start of this host that others knew of and that this directory did not: it was replaced by an older copy. 0 if there is none.
    pub missing: u64,
}

/// A record of the log.
#[derive(Serialize, Deserialize)]
struct Start {
    #[serde(flatten)]
    facts: Facts,
    /// The number of the start; in records of earlier versions, the number of the record is that of the start.
    #[serde(default)]
    boot: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    missing: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A host, as another host described it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownMember {
    /// The identity of its namespace.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The name of its namespace there.
    pub name: String,
    /// Its site.
    pub site: String,
}

impl From<&Member> for KnownMember {
    fn from(member: &Member) -> Self {
        let Member { id, address, name, site } = member.clone();
        Self { id, address, name, site }
    }
}

impl From<KnownMember> for Member {
    fn from(member: KnownMember) -> Self {
        let KnownMember { id, address, name, site } = member;
        Self { id, address, name, site }
    }
}

fn log() -> LogName {
    names::internal(LOG)
}

impl Facts {
    /// Makes a namespace the first host of a new cluster, which has a new secret or this one.
    pub fn begin(namespace: &Namespace, site: &str, secret: Option<ClusterSecret>) -> Result<Facts> {
        Self::check_free(namespace)?;
        let secret = secret.map_or_else(ClusterSecret::make, Ok)?;
        let host = namespace.journal().namespace().get();
        let (cluster, site, founders) = (secret.id().to_string(), site.to_owned(), vec![host]);
        let facts = Facts { cluster, host, site, founders, members: Vec::new(), streams: String::new() };
        secret.keep(namespace.dir())?;
        facts.note(namespace)?;
        Ok(facts)
    }

    /// Refuses a namespace that belongs to a cluster.
    pub fn check_free(namespace: &Namespace) -> Result<()> {
        match Self::load(namespace)? {
            Some(facts) => Err(Code::ClusterExists.error(format!("it belongs to cluster {}", facts.cluster))),
            None => Ok(()),
        }
    }

    /// The facts of a namespace; `None` if it belongs to no cluster.
    pub fn load(namespace: &Namespace) -> Result<Option<Facts>> {
        let Some(facts) = Self::of_any(namespace)? else { return Ok(None) };
        let own = namespace.journal().namespace().get();
        if facts.host != own {
            let detail =
                format!("host {:016x} joined cluster {}, and this namespace is {own:016x}", facts.host, facts.cluster);
            return Err(Code::ClusterCopied.error(detail));
        }
        Ok(Some(facts))
    }

    /// The same, also of a copy of the namespace that joined.
    pub(super) fn of_any(namespace: &Namespace) -> Result<Option<Facts>> {
        let journal = namespace.journal();
        let catalog = journal.catalog()?;
        let Some(found) = catalog.log(&log()).filter(|log| log.latest() > 0) else { return Ok(None) };
        let mut payload = Vec::new();
        journal.get(found, found.latest(), &mut payload)?;
        let damaged = |error| Code::GroupLogDamaged.error(format!("log '{LOG}': {error}"));
        serde_json::from_slice(&payload).map_err(damaged).map(Some)
    }

    /// The id under which the streams of topics in NATS are found.
    pub fn streams(&self) -> &str {
        if self.streams.is_empty() { &self.cluster } else { &self.streams }
    }

    /// Records it once more, as a start of the host, which is durable then.
    pub fn note(&self, namespace: &Namespace) -> Result<Starts> {
        let starts = Self::next(namespace)?;
        self.record(namespace, &starts)?;
        Ok(starts)
    }

    /// The next start of the host, which is not recorded yet.
    pub(super) fn next(namespace: &Namespace) -> Result<Starts> {
        let (earlier, missing) = recorded(namespace)?;
        let [a, b, ..] = random_id()?;
        let boot = boot_of(earlier.last().copied().unwrap_or(0), now_ms(), u16::from_le_bytes([a, b]));
        Ok(Starts { boot, earlier, missing })
    }

    /// Records it as a start after which the directory lacks none: what others know of earlier ones no longer counts.
    pub(super) fn begin_anew(&self, namespace: &Namespace, starts: &Starts) -> Result<()> {
        self.record(namespace, &Starts { missing: 0, ..starts.clone() })
    }

    /// Records which start this directory does not know of: it will not take part any more.
    pub fn note_missing(&self, namespace: &Namespace, starts: &Starts, missing: u64) -> Result<()> {
        self.record(namespace, &Starts { missing, ..starts.clone() })
    }

    fn record(&self, namespace: &Namespace, Starts { boot, missing, .. }: &Starts) -> Result<()> {
        let start = Start { facts: self.clone(), boot: *boot, missing: *missing };
        let payload = serde_json::to_vec(&start).map_err(|error| Code::HostInternal.error(error.to_string()))?;
        let committed = namespace.journal().commit(|tx| names::note(tx, &log(), HISTORY, &payload))?;
        namespace.journal().sync(committed.end)
    }

    /// A random seed for this host's election timeouts.
    pub fn seed() -> Result<u64> {
        random_id().map(u64::from_le_bytes)
    }
}

/// The starts that were recorded, the oldest first, and the one that is known to be missing.
fn recorded(namespace: &Namespace) -> Result<(Vec<u64>, u64)> {
    let journal = namespace.journal();
    let catalog = journal.catalog()?;
    let (mut starts, mut missing) = (Vec::new(), 0);
    let Some(found) = catalog.log(&log()) else { return Ok((starts, missing)) };
    let mut payload = Vec::new();
    for seqno in found.earliest().max(1)..=found.latest() {
        payload.clear();
        journal.get(found, seqno, &mut payload)?;
        let damaged = |error| Code::GroupLogDamaged.error(format!("record {seqno} of log '{LOG}': {error}"));
        let start: Start = serde_json::from_slice(&payload).map_err(damaged)?;
        starts.push(if start.boot == 0 { seqno } else { start.boot });
        missing = start.missing;
    }
    Ok((starts, missing))
}

/// The number of a start after another one: milliseconds, if the clock goes on, and chance, so that a copy of a directory starts with other
/// numbers than the original.
fn boot_of(last: u64, now_ms: u64, chance: u16) -> u64 {
    (now_ms << 16).max(last + 1).saturating_add(chance.into())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64) // until the year 584 million
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_journal::CreateOptions;

    #[test]
    fn starts_have_growing_numbers_whatever_the_clock_does_and_know_of_each_other() {
        assert!(boot_of(7, 0, 0) > 7);
        assert!(boot_of(1 << 60, 5, 9) > 1 << 60);
        assert_ne!(boot_of(7, 0, 1), boot_of(7, 0, 2));
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        let facts = Facts::begin(&namespace, "lab", None).unwrap();
        let first = facts.note(&namespace).unwrap();
        let second = facts.note(&namespace).unwrap();
        assert!(second.boot > first.boot);
        assert_eq!(second.earlier.last(), Some(&first.boot));
        assert_eq!(second.missing, 0);
        facts.note_missing(&namespace, &second, 99).unwrap();
        // Whatever else is recorded, it stays.
        for _ in 0..2 * HISTORY {
            assert_eq!(facts.note(&namespace).unwrap().missing, 99);
        }
        assert_eq!(Facts::load(&namespace).unwrap(), Some(facts));
    }

    #[test]
    fn the_starts_of_an_earlier_version_are_numbered_by_their_records() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        let host = namespace.journal().namespace().get();
        let (cluster, site) = ("0".repeat(16), "lab".to_owned());
        let founders = vec![host];
        let facts = Facts { cluster, host, site, founders, members: Vec::new(), streams: String::new() };
        let payload = serde_json::to_vec(&facts).unwrap();
        for _ in 0..3 {
            namespace.journal().commit(|tx| names::note(tx, &log(), HISTORY, &payload)).unwrap();
        }
        let starts = facts.note(&namespace).unwrap();
        assert_eq!(starts.earlier, [1, 2, 3]);
        assert!(starts.boot > 3);
    }
}
