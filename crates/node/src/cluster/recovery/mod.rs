//! Makes one host, or a copy of its namespace, the first host of a new cluster that has what this one knows of the old one.
//!
//! ```text
//!  1. secrets/cluster   a new secret, and with it the id of the new cluster: hosts of the old one are refused from then on
//!  2. _group/N          this host is the only replica of each of its groups; the first group forgets the other hosts and groups
//!  3. _cluster          the new cluster's id
//! ```
//!
//! A host whose secret is of another cluster than its log `_cluster` does not serve: the recovery was interrupted, and is repeated.

mod abandon;

use super::{
    Facts, KnownMember, MAIN, MAIN_NAME, VOTERS_MAX,
    groups::log_of,
    objects::{GroupObjects, OfGroup},
    shown,
    store::{PROPOSE_HEAD_BYTES, Store},
};
use crate::{Namespace, secrets::ClusterSecret};
use millrace_group::{GroupSpec, Limits, Options, Replica, Written};
use millrace_namespace::holder::{self, HostLock};
use millrace_wire::{Code, Result};
use serde::Serialize;
use std::sync::Arc;

/// A topic that continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecoveredTopic {
    /// Its name.
    pub topic: String,
    /// The newest record that this host has; 0 for none.
    pub latest: u64,
    /// Whether NATS keeps its records.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

/// A group that continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecoveredGroup {
    /// Its name.
    pub group: String,
    /// The last entry of its log that this host has.
    pub last: u64,
    /// The last that it knows to be committed.
    pub committed: u64,
    /// Whether the host had a vote: otherwise others could decide without it.
    pub voted: bool,
    /// Its topics.
    pub topics: Vec<RecoveredTopic>,
    /// Topics of this group. The host has no replica of it, and so none of their records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A group without a replica on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostGroup {
    /// Its name.
    pub group: String,
    /// Its topics.
    pub topics: Vec<String>,
}

struct Kept {
    store: Store,
    replica: Replica,
    id: u32,
}

/// What a recovery would do. No host can serve the namespace meanwhile.
pub struct Recovery {
    namespace: Namespace,
    facts: Facts,
    own: u64,
    boot: super::Starts,
    kept: Vec<Kept>,
    /// The groups that continue.
    pub groups: Vec<RecoveredGroup>,
    /// Those that are lost.
    pub lost: Vec<LostGroup>,
    /// The hosts that are forgotten.
    pub forgotten: Vec<KnownMember>,
    /// Whether this host had been removed from the cluster.
    pub was_removed: bool,
    _lock: HostLock,
}

fn not_in_cluster(namespace: &Namespace) -> millrace_wire::Error {
    Code::NotInCluster.error(format!("'{}' never belonged to a cluster", namespace.dir().display()))
}

impl Recovery {
    /// Finds out what this host has. Nothing is changed.
    pub fn plan(namespace: &Namespace) -> Result<Recovery> {
        let lock = holder::lock(namespace.dir())?;
        let facts = Facts::of_any(namespace)?.ok_or_else(|| not_in_cluster(namespace))?;
        let own = namespace.journal().namespace().get();
        let boot = Facts::next(namespace)?;
        let main = Self::open(namespace, own, boot.boot, (MAIN, facts.founders.clone(), VOTERS_MAX))?
            .ok_or_else(|| not_in_cluster(namespace))?;
        let topics = main.replica.topics();
        let members = topics.members().map(KnownMember::from);
        let reported = facts.members.iter().filter(|known| topics.member(known.id).is_none()).cloned();
        let left = topics.left();
        let forgotten: Vec<KnownMember> = members
            .chain(reported)
            .filter(|known| ![own, facts.host].contains(&known.id) && !left.contains(&known.id))
            .collect();
        let was_removed = left.contains(&facts.host);
        let specs: Vec<(String, GroupSpec)> =
            topics.directory().groups().map(|(name, spec)| (name.to_owned(), spec.clone())).collect();
        let mut groups = vec![Self::seen(MAIN_NAME, &main, facts.host)];
        let (mut kept, mut lost) = (vec![main], Vec::new());
        for (name, spec) in specs {
            let voters_max = spec.founders.len();
            match Self::open(namespace, own, boot.boot, (spec.id, spec.founders, voters_max))? {
                Some(group) => {
                    let directory = kept[0].replica.topics().directory();
                    let is_absent = |topic: &&str| group.replica.topics().topic(topic).is_err();
                    let missing = directory.topics_of(spec.id).filter(is_absent).map(str::to_owned).collect();
                    groups.push(RecoveredGroup { missing, ..Self::seen(&name, &group, facts.host) });
                    kept.push(group);
                }
                None => {
                    let topics = kept[0].replica.topics().directory().topics_of(spec.id).map(str::to_owned).collect();
                    lost.push(LostGroup { group: name, topics });
                }
            }
        }
        let namespace = namespace.clone();
        Ok(Recovery { namespace, facts, own, boot, kept, groups, lost, forgotten, was_removed, _lock: lock })
    }

    /// A group whose log is on this host.
    fn open(
        namespace: &Namespace,
        own: u64,
        boot: u64,
        (id, founders, voters_max): (u32, Vec<u64>, usize),
    ) -> Result<Option<Kept>> {
        if namespace.journal().catalog()?.log(&log_of(id)).is_none() {
            return Ok(None);
        }
        let store = Store::open(namespace, id)?;
        let recovered = store.recover(founders.clone())?;
        let entry_max_bytes = namespace.journal().record_max_bytes().saturating_sub(PROPOSE_HEAD_BYTES);
        let limits = Limits { entry_max_bytes, ..Limits::default() };
        let options = Options { id: own, boot, founders, seed: 0, voters_max, limits };
        let machine = OfGroup(Arc::new(GroupObjects::new(Arc::default())));
        let replica = Replica::to_the_end(options, recovered, Box::new(machine))?;
        Ok(Some(Kept { store, replica, id }))
    }

    fn seen(name: &str, Kept { replica, .. }: &Kept, host: u64) -> RecoveredGroup {
        let topic = |(topic, known): (&str, &millrace_group::Topic)| RecoveredTopic {
            topic: topic.to_owned(),
            latest: known.latest,
            outside: !known.engine.is_builtin(),
        };
        RecoveredGroup {
            group: name.to_owned(),
            last: replica.progress().2,
            committed: replica.committed_before(),
            voted: replica.replicas().0.contains(&host),
            topics: replica.topics().all().map(topic).collect(),
            missing: Vec::new(),
        }
    }

    /// The id of the old cluster.
    pub fn cluster(&self) -> &str {
        &self.facts.cluster
    }

    /// The id of the host, as it was in the old cluster.
    pub fn host(&self) -> String {
        shown(self.facts.host)
    }

    /// Whether the namespace is a copy of that of the host, such as a restored backup.
    pub fn is_copy(&self) -> bool {
        self.own != self.facts.host
    }

    /// Makes this host the first one of a new cluster, and returns the facts about it. If it is interrupted, it can be repeated.
    pub fn carry_out(self) -> Result<Facts> {
        let dir = self.namespace.dir();
        let made = ClusterSecret::load(dir)?.filter(|secret| secret.id().to_string() != self.facts.cluster);
        let secret = match made {
            // Of a recovery that was interrupted.
            Some(secret) => secret,
            None => ClusterSecret::make()?,
        };
        secret.keep(dir)?;
        let groups: Vec<u32> = self.kept.iter().map(|kept| kept.id).collect();
        // The first group, which says which groups there are, comes last: until then a repetition finds them all.
        for Kept { store, replica, id } in self.kept.iter().rev() {
            let turn = replica.recover(self.facts.host, (*id == MAIN).then(|| groups.clone()))?;
            let end = store.write(&turn, &mut Written::default())?;
            self.namespace.journal().sync(end)?;
        }
        let facts = Facts {
            cluster: secret.id().to_string(),
            host: self.own,
            members: Vec::new(),
            streams: self.facts.streams().to_owned(),
            ..self.facts
        };
        facts.begin_anew(&self.namespace, &self.boot)?;
        Ok(facts)
    }
}

/// Gives a namespace the secret that its cluster has by now. No host may serve it meanwhile.
pub fn use_secret(namespace: &Namespace, secret: &ClusterSecret) -> Result<()> {
    let _lock = holder::lock(namespace.dir())?;
    let facts = Facts::load(namespace)?.ok_or_else(|| not_in_cluster(namespace))?;
    if secret.id().to_string() != facts.cluster {
        let detail =
            format!("the file has the secret of cluster {}, and this host is of {}", secret.id(), facts.cluster);
        return Err(Code::ClusterSecretOther.error(detail));
    }
    secret.keep(namespace.dir())
}
