//! Records that wait on this host to be published: those that were published with the durability `local`.
//!
//! ```text
//!  publish ── _publish/TOPIC, flushed ── answer            (the group of the topic may be out of reach)
//!                   └──> the feed `_publish` of the topic, agreed on by its group ──> the topic ──> trimmed here
//! ```
//!
//! The feed is made once the group can be reached. From then on the topic knows the last record of it that it has, as of any feed.

use super::flights::Flights;
use crate::{
    Gated, Namespace,
    cluster::{Cluster, Shared, calls::check_key, groups::Group, is_led, locked},
};
use millrace_group::{Action, Durability, check_topic};
use millrace_journal::Log;
use millrace_namespace::{
    gate::{Shows, Site},
    outbox::{
        topics::{self, NewPublish},
        waiting,
    },
};
use millrace_wire::{Code, Hlc, Result};
use serde::Serialize;
use std::{collections::HashSet, sync::Arc};

/// The name of the feed in the group. No log has this name, because there is one log for each topic.
pub(in crate::cluster) const FEED: &str = "_publish";
/// The maximum overhead of the command for such a record: the topic's name, the key, and the fields of the feed.
const AROUND_MAX_BYTES: usize = 768;

/// The report about records that wait on this host.
#[derive(Clone, Debug, Serialize)]
pub struct BufferStat {
    /// The topic.
    pub topic: String,
    /// How many records wait.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the oldest of them was published here, in milliseconds since 1970.
    pub since_ms: u64,
    /// Why they wait, unless they are on their way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The logs in which records may wait, as of a version of the catalog.
#[derive(Default)]
pub struct Known {
    version: u64,
    logs: Vec<(String, Log)>,
}

/// Whether records wait in a log.
fn waits(log: &Log) -> bool {
    log.latest() > 0 && log.earliest() <= log.latest()
}

/// Makes the feeds of topics for which records wait and that know nothing of this host's; whether one could not be made.
pub(super) fn attach(
    shared: &Arc<Shared>,
    feeds: &[(Arc<Group>, String, String)],
    known: &mut Known,
    flights: &mut Flights,
) -> bool {
    if let Ok(catalog) = shared.namespace.journal().catalog()
        && catalog.version() != known.version
        && let Ok(logs) = topics::all(&shared.namespace)
    {
        *known = Known { version: catalog.version(), logs };
    }
    let attached: HashSet<&str> =
        feeds.iter().filter(|(_, _, log)| log == FEED).map(|(_, topic, _)| &**topic).collect();
    let mut refused = false;
    for (topic, _) in known.logs.iter().filter(|(topic, log)| !attached.contains(&**topic) && waits(log)) {
        if shared.is_stopping() {
            break;
        }
        let key = (topic.clone(), FEED.to_owned());
        match begin(shared, topic, flights) {
            Ok(()) => drop(locked(&shared.feeding).remove(&key)),
            Err(error) => {
                refused = true;
                tracing::debug!(target: "topics", topic, code = error.code().id(), "not published: {}", error.detail());
                locked(&shared.feeding).insert(key, format!("{}: {}", error.code().id(), error.detail()));
            }
        }
    }
    refused
}

/// Creates the feed in the group of a topic. It is submitted once, and again after a refusal.
fn begin(shared: &Arc<Shared>, topic: &str, flights: &mut Flights) -> Result<()> {
    let key = (topic.to_owned(), FEED.to_owned());
    if flights.is_open(&key) {
        return flights.step(&key, 0).map(drop);
    }
    is_led(&shared.group_of(topic).unwrap_or_else(|_| shared.main.clone()))?;
    let (reply, submitting, host) = (flights.reply(shared, &key, 1, 0), shared.clone(), shared.facts.host);
    let (topic, log) = key;
    let action = Action::Feed { topic: topic.clone(), host, log, after: 0 };
    let found = move |found: Result<Arc<Group>>| match found.and_then(|group| is_led(&group).map(|()| group.id)) {
        Ok(group) => submitting.submit(group, action, Vec::new(), Durability::Quorum, reply),
        Err(error) => reply(Err(error)),
    };
    shared.find(&topic, Box::new(found));
    Ok(())
}

impl Cluster {
    /// Keeps a record on this disk until it is published. The answer waits at the gate until the record is on disk.
    pub fn publish_later(&self, record: NewPublish<'_>, clock: Hlc) -> Result<Gated<()>> {
        let (shared, topic) = (&self.shared, record.topic);
        check_topic(topic)?;
        // It would wait forever.
        shared.removed().map_or(Ok(()), Err)?;
        let most = shared.namespace.journal().record_max_bytes().saturating_sub(AROUND_MAX_BYTES);
        let bytes = record.data.len();
        if bytes > most {
            return Err(Code::RecordTooLong
                .error(format!("a record of {bytes} bytes; the limit for topics on this host is {most}")));
        }
        shared.check_outside(topic, bytes)?;
        check_key(record.key)?;
        // A host that was started a moment ago may not have heard of a topic for which it keeps records.
        let log = topics::log_of(topic)?;
        if shared.locate(topic).is_none() && shared.namespace.journal().catalog()?.log(&log).is_none() {
            let shown: String = topic.chars().take(80).flat_map(char::escape_debug).collect();
            let detail =
                format!("this host does not know topic '{shown}'; records can wait only for topics that it knows");
            return Err(Code::TopicNotFound.error(detail));
        }
        topics::keep(&shared.namespace, record, clock)
    }

    /// Discards the records that wait on this host for a topic. Those that are on their way may be published all the same.
    pub fn discard_waiting(&self, topic: &str) -> Result<Gated<()>> {
        let (namespace, name) = (&self.shared.namespace, topics::log_of(topic)?);
        let none = || Code::TopicNotFound.error(format!("no record waits on this host for topic '{topic}'"));
        let committed = namespace.journal().commit(|tx| {
            let log = tx.catalog().log(&name).filter(|log| waits(log)).cloned().ok_or_else(none)?;
            tx.trim(&log, log.latest() + 1)
        })?;
        Ok(namespace.gate().hold(Site::Trim, (), Shows::Report(committed.end), None))
    }

    /// The records that wait on this host, by topic.
    pub fn buffers(&self) -> Result<Vec<BufferStat>> {
        let logs = topics::all(&self.shared.namespace)?;
        logs.into_iter().filter_map(|(topic, log)| self.shared.buffered(topic, &log).transpose()).collect()
    }
}

impl Shared {
    /// The records that wait in a log; nothing if there are none.
    fn buffered(&self, topic: String, log: &Log) -> Result<Option<BufferStat>> {
        loop {
            if !waits(log) {
                return Ok(None);
            }
            let found = waiting(&self.namespace, log)?;
            match oldest_ms(&self.namespace, log) {
                Ok(since_ms) => {
                    let trouble = locked(&self.feeding).get(&(topic.clone(), FEED.to_owned())).cloned();
                    let (records, bytes) = (found.records, found.bytes);
                    return Ok(Some(BufferStat { topic, records, bytes, since_ms, trouble }).filter(|_| records > 0));
                }
                // It was published just now.
                Err(error) if error.code() == Code::BelowHistory => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn oldest_ms(namespace: &Namespace, log: &Log) -> Result<u64> {
    let mut payload = Vec::new();
    let meta = namespace.journal().get(log, log.earliest(), &mut payload)?;
    Ok(meta.hlc.wall_us() / 1000)
}
