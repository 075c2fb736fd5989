//! The cluster's topics as somebody outside meets them: a topic takes the rights on the log `topics/NAME`.
//!
//! What is answered passes no gate: the group has it on the disks of a majority before it says anything.

use super::{Door, Served};
use crate::cluster::Cluster;
use millrace_access::{Resource, Right};
use millrace_wire::{Code, Result};
use std::sync::Arc;

impl Served {
    /// The namespace's part in its cluster, once it takes part.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.inner.cluster.get()
    }

    /// Has the namespace take part in its cluster; once.
    pub fn set_cluster(&self, cluster: Arc<Cluster>) {
        let _ = self.inner.cluster.set(cluster);
    }
}

impl Door {
    /// The cluster, for whoever has this right on a topic.
    pub fn topics(&self, right: Right, topic: &str) -> Result<&Arc<Cluster>> {
        self.check(right, Resource::log(&as_log(topic)))?;
        self.of_cluster()
    }

    /// The cluster, for whoever may publish so many bytes.
    pub fn topics_to_publish(&self, topic: &str, bytes: usize) -> Result<&Arc<Cluster>> {
        self.check_append(&as_log(topic), bytes, None)?;
        self.of_cluster()
    }

    /// The cluster, for whoever may have a function run for a topic's records.
    pub fn topics_to_subscribe(&self, topic: &str, function: &str) -> Result<&Arc<Cluster>> {
        self.check(Right::Run, Resource::function(function))?;
        self.topics(Right::Read, topic)
    }

    /// The cluster, for whoever may have a log's records published to a topic.
    pub fn topics_to_feed(&self, topic: &str, log: &str) -> Result<&Arc<Cluster>> {
        self.check(Right::Read, Resource::log(log))?;
        self.topics_to_publish(topic, 0)
    }

    /// The cluster, for whoever may change its hosts.
    pub fn cluster_to_change(&self) -> Result<&Arc<Cluster>> {
        self.check(Right::Admin, Resource::NAMESPACE)?;
        self.of_cluster()
    }

    /// The cluster, for another host of it.
    pub fn cluster_of_peer(&self) -> Result<&Arc<Cluster>> {
        let refused = || Code::CapabilityRefused.error("only hosts of the cluster say that to each other");
        let secret = self.served.keys().cluster().ok_or_else(refused)?;
        let parts = self.caller.chain().map(|chain| &*chain.parts).unwrap_or_default();
        if parts.is_empty() || parts.iter().any(|part| part.authority != secret.id()) {
            return Err(refused());
        }
        self.check(Right::Link, Resource::NAMESPACE)?;
        self.of_cluster()
    }

    /// The cluster that the namespace belongs to.
    pub fn of_cluster(&self) -> Result<&Arc<Cluster>> {
        self.served
            .cluster()
            .ok_or_else(|| Code::NotInCluster.error(format!("namespace '{}' is in no cluster", self.served.name())))
    }
}

fn as_log(topic: &str) -> String {
    format!("topics/{topic}")
}
