//! Publishes the records of logs of this host that feed topics.
//!
//! The topic knows the last record of each of its feeds, so each record is published once and in order, even after crashes. While the group
//! cannot be reached, records wait in the log, up to its history. The records that wait here to be published
//! ([`buffer`]) are a feed of their topic, too.
//!
//! One thread serves all feeds, and waits for no group: what it has submitted is under way ([`flights`]) while it serves the others.

pub(super) mod buffer;
mod flights;
mod sources;

use super::{
    Cluster, Shared,
    driver::Input,
    groups::Group,
    is_led, locked,
    outside::{
        FedRecord,
        feed::{Feeding, Turn},
    },
};
use crate::Record;
use flights::{FeedStep, Flights};
use millrace_group::{Action, Durability, Engine, Stamp};
use millrace_journal::Log;
use millrace_namespace::{
    names::check_public,
    outbox::{not_forwarded, topics},
};
use millrace_wire::{Code, RETRY_AFTER_MS, Result};
use sources::Sources;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// While more are published, so many published records are trimmed at once.
const TRIM_EVERY: u64 = 64;
/// How long the thread sleeps without a commit.
const REST: Duration = Duration::from_secs(1);
/// The pause while a feed waits for a database.
const WRITTEN_LOOK: Duration = Duration::from_millis(20);
/// The pause after a refusal.
const AGAIN: Duration = Duration::from_millis(RETRY_AFTER_MS as u64);

/// A feed of this host.
struct Work {
    group: u32,
    topic: String,
    log: String,
    since: u64,
    /// The number of the topic, which distinguishes topics of the same name.
    born: u64,
    last: u64,
    engine: Engine,
}

impl Cluster {
    /// Fails if a topic has not received all of these records of a log that feeds it.
    ///
    /// # Errors
    ///
    /// [`Code::LogNotForwarded`].
    pub fn check_fed(&self, log: &str, first: u64, last: u64) -> Result<()> {
        for (group, topic, _) in find(&self.shared).iter().filter(|(_, _, fed)| fed == log) {
            let Some(work) = work(&self.shared, group, topic, log) else { continue };
            let first = first.max(work.last + 1);
            if first <= last {
                return Err(not_forwarded(&format!("topic '{topic}' has not received"), (first, last), log));
            }
        }
        Ok(())
    }
}

/// Feeds until the host stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let journal = shared.namespace.journal();
    let (mut known, mut buffers) = ((0, Vec::new()), buffer::Known::default());
    let (mut sources, mut flights) = (Sources::default(), Flights::default());
    while !shared.is_stopping() {
        let seen = journal.tail();
        look(shared, &mut known);
        let (mut more, mut refused) = (false, buffer::attach(shared, &known.1, &mut buffers, &mut flights));
        let mut is_unwritten = false;
        for (group, topic, log) in &known.1 {
            let key = (topic.clone(), log.clone());
            let fed = work(shared, group, topic, log)
                .map(|work| is_led(group).and_then(|()| feed(shared, &work, &mut sources, &mut flights)));
            match fed.unwrap_or(Ok(false)) {
                Ok(some) => {
                    more |= some;
                    locked(&shared.feeding).remove(&key);
                }
                Err(error) => {
                    refused = true;
                    is_unwritten |= error.code() == Code::WritesWaiting;
                    tracing::debug!(target: "topics", topic, log, code = error.code().id(), "not fed: {}", error.detail());
                    locked(&shared.feeding).insert(key, format!("{}: {}", error.code().id(), error.detail()));
                }
            }
        }
        if !more && !shared.is_stopping() {
            // An answer that arrives before this thread waits does not wake it.
            let is_busy = is_busy(shared) || flights.any();
            let pause = match (is_unwritten, refused || is_busy) {
                (true, _) => WRITTEN_LOOK,
                (false, true) => AGAIN,
                (false, false) => REST,
            };
            journal.wait(seen, pause);
        }
    }
}

/// Whether a record is being sent to a topic with another engine.
fn is_busy(shared: &Shared) -> bool {
    locked(&shared.fed_outside).values().any(|progress| locked(progress).is_busy())
}

/// The revision of the topics, and the feeds of this host at that revision: group, topic and log.
type Known = (u64, Vec<(Arc<Group>, String, String)>);

/// Finds the feeds of this host.
fn find(shared: &Shared) -> Vec<(Arc<Group>, String, String)> {
    let mut feeds = Vec::new();
    for group in shared.kept() {
        let replica = locked(&group.replica);
        for (name, topic) in replica.topics().all() {
            let own = topic.feeds.iter().filter(|feed| feed.host == shared.facts.host);
            feeds.extend(own.map(|feed| (group.clone(), name.to_owned(), feed.log.clone())));
        }
    }
    feeds
}

/// Finds the feeds of this host, if they have changed.
fn look(shared: &Shared, known: &mut Known) {
    let revision = shared.revision.load(Ordering::Relaxed);
    if known.0 == revision {
        return;
    }
    *known = (revision, find(shared));
    locked(&shared.feeding).clear();
    locked(&shared.unfed).retain(|(topic, log), _| known.1.iter().any(|(_, of, fed)| (of, fed) == (topic, log)));
    locked(&shared.fed_outside)
        .retain(|(topic, log, _), _| known.1.iter().any(|(_, of, fed)| (of, fed) == (topic, log)));
}

/// The position of a feed; `None` if it has ended.
fn work(shared: &Shared, group: &Group, topic: &str, log: &str) -> Option<Work> {
    let replica = locked(&group.replica);
    let found = replica.topics().topic(topic).ok()?;
    let (mut feeds, engine) = (found.feeds.iter(), found.engine);
    let feed = feeds.find(|feed| feed.host == shared.facts.host && feed.log == log)?;
    let (topic, log) = (topic.to_owned(), log.to_owned());
    Some(Work { group: group.id, topic, log, since: feed.since, born: found.born, last: feed.last, engine })
}

/// Submits the next records, as many as may be unanswered; returns whether some were answered since the last time.
fn feed(shared: &Arc<Shared>, work: &Work, sources: &mut Sources, flights: &mut Flights) -> Result<bool> {
    let key = (work.topic.clone(), work.log.clone());
    let room = match flights.step(&key, work.last)? {
        FeedStep::Wait => return Ok(false),
        FeedStep::Again => return Ok(true),
        FeedStep::Submit { behind, records, bytes } => (behind, records, bytes),
    };
    let more = submit(shared, work, sources, flights, room);
    flights.rest(&key);
    more
}

/// Submits records behind this one, at most so many and so many bytes.
fn submit(
    shared: &Arc<Shared>,
    work: &Work,
    sources: &mut Sources,
    flights: &mut Flights,
    (mut behind, records, bytes): (u64, usize, usize),
) -> Result<bool> {
    let key = (work.topic.clone(), work.log.clone());
    let is_buffer = work.log == buffer::FEED;
    let name = if is_buffer {
        topics::log_of(&work.topic)?.to_string()
    } else {
        // The runtime's own logs are never published, even if the group agreed on such a feed.
        check_public(&work.log)?;
        work.log.clone()
    };
    let log = shared.namespace.log(&name).map_err(|error| Code::FeedStopped.error(error.detail().to_owned()))?;
    if log.latest() < work.last {
        let detail = format!("log '{name}' has only {} records, but {} were published", log.latest(), work.last);
        return Err(Code::FeedStopped.error(detail));
    }
    if !is_buffer {
        sources.check(&shared.namespace, work, &log)?;
    }
    let (is_open, excess) = (flights.is_open(&key), (work.last + 1).saturating_sub(log.earliest()));
    if is_buffer && excess > if is_open { TRIM_EVERY } else { 0 } {
        // The topic already has these records.
        shared.namespace.journal().commit(|tx| tx.trim(&log, work.last + 1))?;
    }
    if !work.engine.is_builtin() {
        if is_open {
            return Ok(false);
        }
        return feed_outside(shared, work, &log, flights, (records, bytes));
    }
    for FedRecord { seqno, key: of_record, data, stamp } in load(shared, work, &log, behind, (records, bytes))? {
        // A record that has more bytes than there is room for is submitted alone.
        if is_open && data.len() > bytes {
            break;
        }
        let action = work.fed(shared.facts.host, behind, seqno, of_record);
        behind = seqno;
        let reply = flights.reply(shared, &key, seqno, data.len());
        let (group, durability) = (work.group, Durability::Quorum);
        if let Err(refused) = shared.queue(Input::Submit { group, action, data, stamp, durability, reply }) {
            refused.0.refuse(refused.1);
            break;
        }
    }
    Ok(false)
}

/// Counts records that left the log before they could be published.
fn pass_over(shared: &Shared, work: &Work, behind: u64, from: u64) {
    let mut unfed = locked(&shared.unfed);
    let (missed, upto) = unfed.entry((work.topic.clone(), work.log.clone())).or_insert((0, 0));
    let lost = from.saturating_sub((*upto).max(behind + 1));
    if lost > 0 {
        let (topic, log) = (&*work.topic, &*work.log);
        tracing::warn!(target: "topics", topic, log, lost, "records had left the log before they could be published");
        (*missed, *upto) = (*missed + lost, from);
    }
}

/// The records of a log after a given one.
fn load(
    shared: &Shared,
    work: &Work,
    log: &Log,
    behind: u64,
    (records_max, bytes_max): (usize, usize),
) -> Result<Vec<FedRecord>> {
    let (from, is_buffer) = (log.earliest().max(behind + 1), work.log == buffer::FEED);
    // Records that wait to be published leave the log only when they are discarded.
    if from > behind + 1 && !is_buffer {
        pass_over(shared, work, behind, from);
    }
    if from > log.latest() {
        return Ok(Vec::new());
    }
    // A record that waits for a database keeps back the later ones of its feed, and no other feed.
    let records_max = shared.namespace.count_written(log, from, records_max as u32)?;
    // Records wait at the gate, so that only durable ones are sent. Records that wait to be published were acknowledged as durable, and
    // their numbers are never reused, whatever the durability of the namespace.
    let durability = is_buffer.then_some(millrace_journal::Durability::Disk);
    let records = shared.namespace.range_of_gated(log, from, records_max, bytes_max, durability)?.wait()?;
    let read = |record: &Record| {
        let (key, data) = if is_buffer { topics::decode(&record.payload)? } else { (None, &*record.payload) };
        let (key, data, stamp) = (key.map(str::to_owned), data.to_vec(), Stamp { time: record.hlc, cause: record.id });
        Ok(FedRecord { seqno: record.seqno, key, data, stamp })
    };
    records.iter().map(read).collect()
}

/// Publishes the next records to a topic with another engine, and reports the position of the feed to the group.
fn feed_outside(
    shared: &Arc<Shared>,
    work: &Work,
    log: &Log,
    flights: &mut Flights,
    room: (usize, usize),
) -> Result<bool> {
    let feeding = Feeding::of(shared, &work.topic, &work.log, work.since)?;
    let Turn::Behind(last) = feeding.turn(work.last)? else { return Ok(false) };
    let loaded = load(shared, work, log, last, room);
    let refused = match loaded {
        Ok(records) if records.is_empty() => None,
        Ok(records) => {
            feeding.publish(records);
            None
        }
        Err(error) => Some(error),
    };
    if last > work.last {
        let action = work.fed(shared.facts.host, work.last, last, None);
        let reply = flights.reply(shared, &(work.topic.clone(), work.log.clone()), last, 0);
        shared.submit(work.group, action, Vec::new(), Durability::Quorum, reply);
    }
    refused.map_or(Ok(false), Err)
}

impl Work {
    /// Reports that the topic has a record of the log, after another one.
    fn fed(&self, host: u64, behind: u64, seqno: u64, key: Option<String>) -> Action {
        let (topic, log, since) = (self.topic.clone(), self.log.clone(), self.since);
        Action::Fed { topic, host, log, since, behind, seqno, key }
    }
}
