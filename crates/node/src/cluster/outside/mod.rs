//! Topics whose records something outside of the cluster keeps: their group has the definition alone.
//!
//! ```text
//!  Cluster ──> Keeper ──> the group of the topic
//!                └──────> Streams: NATS          publish, get, follow     the index of a record is the number that it has there
//!                             ^── feed           one record of a log after the other, behind the last one that is there
//!                             └── deliver        a Follower for each subscription of this host
//! ```

pub(super) mod feed;

use super::{Cluster, MAIN, Reply, Shared, locked};
use crate::Record;
use millrace_group::{Action, Durability, Engine, Stamp, Topics};
use millrace_wire::{Code, Error, Result};
use serde::Serialize;
use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// How long reports of topics wait for what is outside.
const REPORT_PATIENCE: Duration = Duration::from_secs(2);

/// Which records of a topic can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// The oldest; one more than the newest if there is none.
    pub earliest: u64,
    /// The newest; 0 if there is none.
    pub latest: u64,
}

/// A log of a host that feeds a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The host.
    pub host: u64,
    /// The entry that began the feed.
    pub since: u64,
    /// The log.
    pub log: String,
}

/// A record of such a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FedRecord {
    /// Its number there.
    pub seqno: u64,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Its bytes.
    pub data: Vec<u8>,
    /// Its time, and what it comes from: itself.
    pub stamp: Stamp,
}

/// The position of such a feed: the number of the record in the log, and its index in the topic; 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// The number.
    pub seqno: u64,
    /// The index.
    pub index: u64,
}

/// Keeps the records of topics. Calls return at once, and failures have the codes of what keeps them.
pub trait Streams: Send + Sync {
    /// Has room for a topic; an existing one with the same history is left as it is.
    fn create(&self, topic: &str, history: u64, reply: Reply<()>);
    /// Keeps a record; one with a key that is remembered is there already. The reply has its index.
    fn publish(&self, topic: &str, record: (Vec<u8>, Stamp), key: Option<&str>, reply: Reply<u64>);
    /// Keeps a record of a log, unless the last one of that log is not at the index `behind`.
    fn feed(&self, topic: &str, source: &Source, behind: u64, record: FedRecord, reply: Reply<u64>);
    /// The position of a feed, from the records in the topic's history.
    fn fed(&self, topic: &str, source: &Source, reply: Reply<Fed>);
    /// Which records can be read.
    fn bounds(&self, topic: &str, reply: Reply<Bounds>);
    /// A record, 0 for the newest.
    fn get(&self, topic: &str, index: u64, reply: Reply<Record>);
    /// At most `count` records from `from` on, and at most `bytes_max` bytes unless the first alone has more.
    fn range(&self, topic: &str, from: u64, count: u32, bytes_max: usize, reply: Reply<Vec<Record>>);
    /// The newest index once it is above `above`, or what it is after so much time.
    fn grown(&self, topic: &str, above: u64, within: Duration, reply: Reply<u64>);
    /// Follows a topic from an index on; `wake` is called when there is something.
    fn follow(&self, topic: &str, from: u64, wake: Box<dyn Fn() + Send + Sync>) -> Box<dyn Follower>;
    /// The longest record.
    fn record_max_bytes(&self) -> usize;
    /// Why requests fail at present.
    fn trouble(&self) -> Option<String>;
}

/// The records of a topic from an index on.
pub trait Follower: Send {
    /// The next records from `from` on, which are those behind the ones that were taken before. They stay until records behind them are
    /// asked for. If the first one is not `from`, the ones between have left the history.
    fn records(&self, from: u64, count: usize, bytes_max: usize) -> Result<Vec<Record>>;
}

/// The engine of a topic.
pub enum Keeper {
    /// Its group: what is read here is what it was when this was asked, or newer.
    Group,
    /// Something outside.
    Outside(Arc<dyn Streams>),
}

/// Refuses a durability that is not that of a topic outside.
pub(super) fn check_durability(topic: &str, durability: Option<Durability>) -> Result<()> {
    if durability == Some(Durability::Leader) {
        let detail =
            format!("durability 'leader' for topic '{topic}': NATS acknowledges a record only when a majority has it");
        return Err(Code::NatsUnsupported.error(detail));
    }
    Ok(())
}

fn not_configured() -> Error {
    Code::NatsNotConfigured.error("this host was started without --nats")
}

impl Shared {
    /// The engine of topics that are not in groups.
    pub fn streams(&self) -> Result<&Arc<dyn Streams>> {
        self.streams.as_ref().ok_or_else(not_configured)
    }

    /// The engine of a topic, as far as is known here. A topic never changes its engine.
    pub fn engine_of(&self, topic: &str) -> Option<Engine> {
        let group = self.group_of(topic).ok()?;
        let replica = locked(&group.replica);
        replica.topics().topic(topic).ok().map(|topic| topic.engine)
    }

    /// Publishes to a topic outside.
    pub fn publish_outside(
        &self,
        topic: &str,
        record: (Vec<u8>, Stamp),
        (key, durability): (Option<&str>, Option<Durability>),
        reply: Reply<u64>,
    ) {
        match check_durability(topic, durability).and_then(|()| self.streams()) {
            Ok(streams) => streams.publish(topic, record, key, reply),
            Err(error) => reply(Err(error)),
        }
    }

    /// Refuses a record that is too long to be published later.
    pub fn check_outside(&self, topic: &str, bytes: usize) -> Result<()> {
        let is_outside = self.engine_of(topic).is_some_and(|engine| !engine.is_builtin());
        match self.streams.as_ref().filter(|_| is_outside).map(|streams| streams.record_max_bytes()) {
            Some(most) if bytes > most => {
                Err(Code::NatsPayload
                    .error(format!("a record of {bytes} bytes; the limit of the NATS servers is {most}")))
            }
            _ => Ok(()),
        }
    }

    /// Subscribes a function of this host to a topic outside, for the records behind those that are there.
    pub fn subscribe_outside(self: &Arc<Self>, streams: &dyn Streams, topic: &str, function: &str, reply: Reply<u64>) {
        let (shared, topic_name, function) = (self.clone(), topic.to_owned(), function.to_owned());
        let subscribe = move |bounds: Result<Bounds>| {
            let found = bounds.and_then(|bounds| Ok((bounds.latest + 1, shared.group_of(&topic_name)?)));
            match found {
                Ok((first, group)) => {
                    let host = shared.facts.host;
                    let action = Action::SubscribeOutside { topic: topic_name, function, host, first };
                    shared.submit(group.id, action, Vec::new(), Durability::Quorum, reply);
                }
                Err(error) => reply(Err(error)),
            }
        };
        streams.bounds(topic, Box::new(subscribe));
    }

    /// The bounds of topics outside, as far as they are known in time.
    pub fn bounds_outside(&self, topics: &[&str]) -> Vec<Result<Bounds>> {
        let streams = match self.streams() {
            Ok(streams) => streams,
            Err(error) => return topics.iter().map(|_| Err(error.clone())).collect(),
        };
        if let Some(trouble) = streams.trouble() {
            return topics.iter().map(|_| Err(Code::NatsUnreachable.error(trouble.clone()))).collect();
        }
        let asked = topics.iter().map(|topic| {
            let (sender, receiver) = mpsc::channel();
            // Nobody may listen any more.
            streams.bounds(topic, Box::new(move |bounds| drop(sender.send(bounds))));
            receiver
        });
        let (asked, until) = (asked.collect::<Vec<_>>(), Instant::now() + REPORT_PATIENCE);
        let late = || Code::NatsUnreachable.error(format!("no answer within {} s", REPORT_PATIENCE.as_secs()));
        let answer = |receiver: mpsc::Receiver<Result<Bounds>>| {
            receiver.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_else(|_| Err(late()))
        };
        asked.into_iter().map(answer).collect()
    }

    /// The problems of topics with another engine, if there are such topics. The caller has the replica of the first group.
    pub fn why_outside(&self, main: &Topics, why: &mut Vec<String>) {
        let trouble = match &self.streams {
            Some(streams) => streams.trouble(),
            None => Some(not_configured().detail().to_owned()),
        };
        let Some(trouble) = trouble else { return };
        let count = |topics: &Topics| topics.all().filter(|(_, topic)| !topic.engine.is_builtin()).count();
        let others = self.kept().into_iter().filter(|group| group.id != MAIN);
        let of_others: usize = others.map(|group| count(locked(&group.replica).topics())).sum();
        let topics = count(main) + of_others;
        if topics > 0 {
            why.push(format!("NATS keeps {topics} topics, and they cannot be used here: {trouble}"));
        }
    }
}

impl Cluster {
    /// Finds what has the records of a topic. What its group has is then up to date here.
    pub fn keeper(&self, topic: &str, reply: Reply<Keeper>) {
        let (shared, name) = (self.shared.clone(), topic.to_owned());
        let keeper = move |shared: &Shared, engine: Option<Engine>| match engine {
            Some(Engine::Nats) => shared.streams().cloned().map(Keeper::Outside),
            _ => Ok(Keeper::Group),
        };
        // The definition of such a topic does not change, so no majority is needed to read it.
        if let engine @ Some(Engine::Nats) = shared.engine_of(topic) {
            return reply(keeper(&shared, engine));
        }
        let fresh = move |fresh: Result<()>| reply(fresh.and_then(|()| keeper(&shared, shared.engine_of(&name))));
        self.fresh(topic, Box::new(fresh));
    }
}
