//! Topics, as any host of the cluster answers requests about them.

use millrace_node::{
    Record,
    cluster::{Cluster, Durability, Engine, GROWTH_MAX, Keeper, Reply},
};
use millrace_wire::{Code, Error, Result};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{sync::oneshot, time::timeout};

/// The durability of a record that is acknowledged once it is on the disk of this host, and published later.
pub const LOCAL: &str = "local";

/// The reply of the cluster to a call, as a future.
pub fn replied<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> impl Future<Output = Result<T>> + Send + 'static {
    let (sender, receiver) = oneshot::channel();
    // The client may be gone.
    call(Box::new(move |outcome| drop(sender.send(outcome))));
    async { receiver.await.unwrap_or_else(|_| Err(Code::HostStopping.error("the host is stopping"))) }
}

/// A record that this host has. An existing record never changes as long as its topic is there; only the absence of a record, and the
/// newest index, have to be confirmed by the group.
pub fn known(cluster: &Cluster, topic: &str, index: u64) -> Option<Record> {
    Some(index).filter(|index| *index > 0).and_then(|index| cluster.get(topic, index).ok())
}

/// A record of a topic; the newest one if the index is 0.
pub async fn get(cluster: &Arc<Cluster>, topic: &str, index: u64) -> Result<Record> {
    if let Some(record) = known(cluster, topic, index) {
        return Ok(record);
    }
    match replied(|reply| cluster.keeper(topic, reply)).await? {
        Keeper::Group => cluster.get(topic, index),
        Keeper::Outside(streams) => replied(|reply| streams.get(topic, index, reply)).await,
    }
}

/// Records from an index on; from the oldest one if it is `None`. And the index of the next one.
pub async fn range(
    cluster: &Arc<Cluster>,
    topic: &str,
    from: Option<u64>,
    count: u32,
    bytes_max: usize,
) -> Result<(Vec<Record>, u64)> {
    let (records, from) = match replied(|reply| cluster.keeper(topic, reply)).await? {
        Keeper::Outside(streams) if from != Some(0) => {
            let from = match from {
                Some(from) => from,
                None => earliest(cluster, topic).await?,
            };
            (replied(|reply| streams.range(topic, from, count, bytes_max, reply)).await?, from)
        }
        _ => {
            let oldest = || cluster.earliest(topic).map(|earliest| earliest.max(1));
            let from = from.map_or_else(oldest, Ok)?;
            (cluster.range(topic, from, count, bytes_max)?, from)
        }
    };
    let next = records.last().map_or(from, |last| last.seqno + 1);
    Ok((records, next))
}

/// The oldest index of a topic; that of the next record if there is none.
pub async fn earliest(cluster: &Arc<Cluster>, topic: &str) -> Result<u64> {
    let earliest = match replied(|reply| cluster.keeper(topic, reply)).await? {
        Keeper::Outside(streams) => replied(|reply| streams.bounds(topic, reply)).await?.earliest,
        Keeper::Group => cluster.earliest(topic)?,
    };
    Ok(earliest.max(1))
}

/// The newest index of a topic, once it is above `above` or the time has passed.
pub async fn latest(cluster: &Arc<Cluster>, topic: &str, above: u64, wait: Duration) -> Result<u64> {
    let wait = wait.min(GROWTH_MAX);
    if let Keeper::Outside(streams) = replied(|reply| cluster.keeper(topic, reply)).await? {
        return replied(|reply| streams.grown(topic, above, wait, reply)).await;
    }
    if !wait.is_zero() && cluster.latest(topic)? <= above {
        // Whether or not the time has passed, the newest index is returned.
        let grown = replied(|reply| cluster.growth(topic, above, wait, reply));
        if let Ok(grown) = timeout(wait, grown).await {
            grown?;
        }
    }
    cluster.latest(topic)
}

fn unknown(what: &str, other: &str, known: &str) -> Error {
    let shown: String = other.chars().take(40).flat_map(char::escape_debug).collect();
    Code::ValueInvalid.error(format!("{what} '{shown}' is unknown: it is {known}"))
}

/// The hosts that must have a record on disk before its publish is acknowledged.
pub fn durability(named: Option<&str>) -> Result<Option<Durability>> {
    match named {
        None => Ok(None),
        Some("quorum") => Ok(Some(Durability::Quorum)),
        Some("leader") => Ok(Some(Durability::Leader)),
        Some(other) => Err(unknown("durability", other, "quorum or leader, or for a publish also local")),
    }
}

/// The engine of a new topic.
pub fn engine(named: Option<&str>) -> Result<Engine> {
    match named {
        None | Some("builtin") => Ok(Engine::Builtin),
        Some("nats") => Ok(Engine::Nats),
        Some(other) => Err(unknown("engine", other, "builtin or nats")),
    }
}
