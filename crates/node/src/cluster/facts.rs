//! The facts that a host knows about its cluster before it reaches the others: the newest record of the log `_cluster`.

use crate::{
    Namespace,
    secrets::{ClusterSecret, random_id},
};
use millrace_group::Member;
use millrace_namespace::names;
use millrace_wire::{Code, LogName, Result};
use serde::{Deserialize, Serialize};

/// The log's name. Each start of the host adds a record, and the record's number counts the starts.
const LOG: &str = "_cluster";
/// Only the newest one is used; the others document earlier starts.
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
        let facts = Facts { cluster, host, site, founders, members: Vec::new() };
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
        let journal = namespace.journal();
        let catalog = journal.catalog()?;
        let Some(found) = catalog.log(&log()).filter(|log| log.latest() > 0) else { return Ok(None) };
        let mut payload = Vec::new();
        journal.get(found, found.latest(), &mut payload)?;
        let damaged = |error| Code::GroupLogDamaged.error(format!("log '{LOG}': {error}"));
        let facts: Facts = serde_json::from_slice(&payload).map_err(damaged)?;
        let own = journal.namespace().get();
        if facts.host != own {
            let detail =
                format!("host {:016x} joined cluster {}, and this namespace is {own:016x}", facts.host, facts.cluster);
            return Err(Code::ClusterCopied.error(detail));
        }
        Ok(Some(facts))
    }

    /// Records it once more; returns the number of this start of the host once that is durable.
    pub fn note(&self, namespace: &Namespace) -> Result<u64> {
        let payload = serde_json::to_vec(self).map_err(|error| Code::HostInternal.error(error.to_string()))?;
        let committed = namespace.journal().commit(|tx| names::note(tx, &log(), HISTORY, &payload))?;
        namespace.journal().sync(committed.end)?;
        namespace.log(&log()).map(|log| log.latest())
    }

    /// A random seed for this host's election timeouts.
    pub fn seed() -> Result<u64> {
        random_id().map(u64::from_le_bytes)
    }
}
