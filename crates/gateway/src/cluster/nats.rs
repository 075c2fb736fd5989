//! Topics that NATS keeps, as a cluster asks for them.

use millrace_nats::{Source as Log, Stream};
use millrace_node::{
    EventId, Headers, Record, Result,
    cluster::{Bounds, Fed, FedRecord, Follower, Reply, Source, Stamp, Streams},
};
use std::{sync::Arc, time::Duration};

pub use millrace_nats::{Nats, Options};

/// The topics of one cluster in NATS.
pub struct OfCluster {
    nats: Arc<Nats>,
    cluster: String,
}

struct Followed(millrace_nats::Follower);

/// A record as logs have it; NATS gives it a number, and no id.
fn shown(record: millrace_nats::Record) -> Record {
    let millrace_nats::Record { index, time, cause, data } = record;
    Record { seqno: index, id: EventId::NONE, hlc: time, cause, payload: data, headers: Headers::default() }
}

/// Changes what a reply gets.
fn of<T: 'static, U: 'static>(reply: Reply<U>, change: impl FnOnce(T) -> U + Send + 'static) -> Reply<T> {
    Box::new(move |outcome: Result<T>| reply(outcome.map(change)))
}

impl OfCluster {
    /// Those of the cluster with this id.
    pub fn new(nats: Arc<Nats>, cluster: &str) -> Self {
        Self { nats, cluster: cluster.to_owned() }
    }

    fn stream(&self, topic: &str) -> Stream {
        Stream::of(&self.cluster, topic)
    }
}

fn log(source: &Source) -> Log {
    Log { host: source.host, since: source.since, log: source.log.clone() }
}

impl Streams for OfCluster {
    fn create(&self, topic: &str, history: u64, reply: Reply<()>) {
        self.nats.create(&self.stream(topic), history, reply);
    }

    fn publish(&self, topic: &str, record: (Vec<u8>, Stamp), key: Option<&str>, reply: Reply<u64>) {
        let (data, Stamp { time, cause }) = record;
        let stamp = millrace_nats::Stamp { time, cause };
        self.nats.publish(&self.stream(topic), (data, key, stamp), reply);
    }

    fn feed(&self, topic: &str, source: &Source, behind: u64, record: FedRecord, reply: Reply<u64>) {
        let FedRecord { seqno, key, data, stamp: Stamp { time, cause } } = record;
        let record = (data, key.as_deref(), millrace_nats::Stamp { time, cause });
        self.nats.feed(&self.stream(topic), (&log(source), seqno), behind, record, reply);
    }

    fn fed(&self, topic: &str, source: &Source, reply: Reply<Fed>) {
        let fed = |millrace_nats::Fed { seqno, index }| Fed { seqno, index };
        self.nats.fed(&self.stream(topic), &log(source), of(reply, fed));
    }

    fn bounds(&self, topic: &str, reply: Reply<Bounds>) {
        let bounds = |millrace_nats::Bounds { earliest, latest }| Bounds { earliest, latest };
        self.nats.bounds(&self.stream(topic), of(reply, bounds));
    }

    fn get(&self, topic: &str, index: u64, reply: Reply<Record>) {
        self.nats.get(&self.stream(topic), index, of(reply, shown));
    }

    fn range(&self, topic: &str, from: u64, count: u32, bytes_max: usize, reply: Reply<Vec<Record>>) {
        let all = |records: Vec<millrace_nats::Record>| records.into_iter().map(shown).collect();
        self.nats.range(&self.stream(topic), from, count, bytes_max, of(reply, all));
    }

    fn grown(&self, topic: &str, above: u64, within: Duration, reply: Reply<u64>) {
        self.nats.grown(&self.stream(topic), above, within, reply);
    }

    fn follow(&self, topic: &str, from: u64, wake: Box<dyn Fn() + Send + Sync>) -> Box<dyn Follower> {
        Box::new(Followed(self.nats.follow(&self.stream(topic), from, wake)))
    }

    fn record_max_bytes(&self) -> usize {
        self.nats.record_max_bytes()
    }

    fn trouble(&self) -> Option<String> {
        self.nats.trouble()
    }
}

impl Follower for Followed {
    fn records(&self, from: u64, count: usize, bytes_max: usize) -> Result<Vec<Record>> {
        Ok(self.0.records(from, count, bytes_max)?.into_iter().map(shown).collect())
    }
}
