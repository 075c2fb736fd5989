//! Runs functions for the records of topics that they are subscribed to on this host.
//!
//! A record goes into the log `_topic/FUNCTION/TOPIC` of this host's namespace, in one batch with the run that it triggers and with the
//! cursor of the subscription. So each record triggers one run, even after crashes. Its cause is the record or the run that it comes from, as
//! its publisher says.

use super::{Follower, Shared, groups::Group, locked, mirror};
use millrace_group::{Engine, Place, Stamp, Subscription};
use millrace_namespace::{
    admission::{Publish, Room, Stage},
    named,
    names::note,
};
use millrace_wire::{Code, Error, EventId, LogName, RETRY_AFTER_MS, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

/// The maximum number of records in one batch, and of their bytes unless the first alone has more.
const RECORDS_MAX: u64 = 64;
const BYTES_MAX: usize = 256 << 10;
/// How many delivered records stay readable.
const HISTORY: u64 = 1024;
const CURSOR_HISTORY: u64 = 4;
/// The prefix of the name of the log with a subscription's records; the function and the topic follow.
pub const DELIVERED: &str = "_topic/";
/// How long the thread sleeps without a notification about topics.
const REST: Duration = Duration::from_secs(2);
/// The pause after a refusal.
const AGAIN: Duration = Duration::from_millis(RETRY_AFTER_MS as u64);

/// The cursor of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    /// The number of the topic, which distinguishes topics of the same name.
    #[serde(default)]
    born: u64,
    /// The entry that created the subscription.
    since: u64,
    /// The last record that was delivered.
    delivered: u64,
    /// The number of records that had left the topic before they could be delivered.
    missed: u64,
}

/// One subscription of this host, and its pending records.
struct Work {
    group: Arc<Group>,
    topic: String,
    function: String,
    first: u64,
    since: u64,
    born: u64,
    latest: u64,
    engine: Engine,
}

/// The records of topics with another engine, by topic and function, with the entry that subscribed the function.
type Followers = HashMap<(String, String), (u64, Box<dyn Follower>)>;

enum Progress {
    /// There are no more records.
    Done,
    /// There may be more.
    More,
}

/// Delivers, and copies topics to their mirrors, until the host stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let (mut seen, mut known, mut mirrors) = (0, (0, Vec::new()), mirror::Known::default());
    let mut followers = Followers::new();
    while !shared.is_stopping() {
        let mirror::Turned { mut more, mut refused } = mirror::turn(shared, &mut mirrors);
        if look(shared, &mut known) {
            followers.retain(|(topic, function), (since, _)| {
                let is = |known: &Subscription| (&known.function, known.since) == (&*function, *since);
                known.1.iter().any(|(_, of, known)| of == topic && is(known))
            });
        }
        for (group, topic, subscription) in &known.1 {
            let key = (topic.clone(), subscription.function.clone());
            match work(group, topic, subscription)
                .map_or(Ok(Progress::Done), |work| deliver(shared, &work, &mut followers))
            {
                Ok(progress) => {
                    more |= matches!(progress, Progress::More);
                    locked(&shared.troubles).remove(&key);
                }
                Err(error) => {
                    refused = true;
                    let (function, code) = (&*subscription.function, error.code().id());
                    tracing::debug!(target: "topics", topic, function, code, "not delivered: {}", error.detail());
                    locked(&shared.troubles).insert(key, format!("{}: {}", error.code().id(), error.detail()));
                }
            }
        }
        if more {
            continue;
        }
        let rest = if refused { AGAIN } else { REST };
        let changed = locked(&shared.changed.0);
        let waited = shared.changed.1.wait_timeout_while(changed, rest, |changed| *changed == seen);
        seen = *waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The revision of the topics, and the subscriptions of this host at that revision.
type Known = (u64, Vec<(Arc<Group>, String, Subscription)>);

/// Finds the subscriptions of this host, if they have changed; returns whether they may have.
fn look(shared: &Shared, known: &mut Known) -> bool {
    let revision = shared.revision.load(Ordering::Relaxed);
    if known.0 == revision {
        return false;
    }
    known.0 = revision;
    known.1.clear();
    for group in shared.kept() {
        let replica = locked(&group.replica);
        for (name, topic) in replica.topics().all() {
            let own = topic.subscriptions.iter().filter(|known| known.host == shared.facts.host);
            known.1.extend(own.map(|known| (group.clone(), name.to_owned(), known.clone())));
        }
    }
    locked(&shared.troubles).clear();
    locked(&shared.missed).clear();
    true
}

/// The pending records of a subscription.
fn work(group: &Arc<Group>, name: &str, known: &Subscription) -> Option<Work> {
    let (latest, born, engine) = {
        let replica = locked(&group.replica);
        let found = replica.topics().topic(name).ok()?;
        // There may be another topic of the name by now.
        found.subscriptions.iter().find(|of_topic| *of_topic == known)?;
        (found.latest, found.born, found.engine)
    };
    let (group, topic, function) = (group.clone(), name.to_owned(), known.function.clone());
    Some(Work { group, topic, function, first: known.first, since: known.since, born, latest, engine })
}

/// The logs of a subscription: its records and its cursor. The name of a topic may be too long for them.
pub(super) fn logs(topic: &str, function: &str) -> Result<[LogName; 2]> {
    let log = |kind| {
        let name = format!("{kind}/{function}/{topic}");
        let unfit = |error: Error| {
            let detail = format!("no function '{function}' can run for it: log '{name}': {}", error.detail());
            Code::TopicNameInvalid.error(detail)
        };
        name.parse::<LogName>().map_err(unfit)
    };
    Ok([log(DELIVERED.trim_end_matches('/'))?, log("_delivered")?])
}

fn deliver(shared: &Arc<Shared>, work: &Work, followers: &mut Followers) -> Result<Progress> {
    let namespace = &shared.namespace;
    let [log, cursor_log] = logs(&work.topic, &work.function)?;
    let found = cursor(shared, &cursor_log)?;
    let of_work = (work.born, work.since);
    if found.as_ref().is_some_and(|cursor| (cursor.born, cursor.since) > of_work) {
        // After a start the topics are not up to date yet: the function may have been subscribed again since, to another topic of this name.
        return Ok(Progress::Done);
    }
    let found = found.filter(|cursor| (cursor.born, cursor.since) == of_work);
    let (born, since) = of_work;
    let mut cursor = found.unwrap_or(Cursor { born, since, delivered: work.first - 1, missed: 0 });
    let key = (work.topic.clone(), work.function.clone());
    locked(&shared.missed).insert(key, cursor.missed);
    let records = match work.engine {
        Engine::Builtin => of_group(work, &mut cursor)?,
        Engine::Nats => of_streams(shared, work, &mut cursor, followers)?,
    };
    if records.is_empty() {
        return Ok(Progress::Done);
    }
    let before = cursor.delivered;
    let committed = namespace.journal().commit(|tx| {
        let catalog = tx.catalog().clone();
        let publish = Publish::new(namespace, tx);
        let bound = named(&catalog, publish.bindings(), &work.function)?;
        let log = match catalog.log(&log) {
            Some(log) => log.clone(),
            None => tx.create_log(&log, HISTORY)?,
        };
        let mut cursor = cursor;
        for (cause, data) in &records {
            // Another host says what the record comes from, so that is a claim.
            let stage = Stage { cause: *cause, ordinal: 0, room: Room::Outside, named: Some(bound), ending: None };
            match publish.append(tx, &log, data, stage) {
                // The function has room for the records before this one, or for none.
                Err(error) if error.code() == Code::Busy && cursor.delivered > before => break,
                appended => appended?,
            };
            cursor.delivered += 1;
        }
        let note_of = serde_json::to_vec(&cursor).map_err(|error| Code::HostInternal.error(error.to_string()))?;
        note(tx, &cursor_log, CURSOR_HISTORY, &note_of)?;
        Ok(cursor)
    })?;
    let cursor = committed.value;
    let is_more = cursor.delivered < work.latest || !work.engine.is_builtin();
    Ok(if is_more { Progress::More } else { Progress::Done })
}

/// The next records of a topic that the group keeps.
fn of_group(work: &Work, cursor: &mut Cursor) -> Result<Vec<(EventId, Vec<u8>)>> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    if cursor.delivered >= work.latest {
        return Ok(records);
    }
    for place in places(work, cursor)? {
        let (_, Stamp { cause, .. }, data) = work.group.store.record(place)?;
        bytes += data.len();
        if bytes > BYTES_MAX && !records.is_empty() {
            break;
        }
        records.push((cause, data));
    }
    Ok(records)
}

/// Those of the next records of a topic with another engine that have arrived here.
fn of_streams(
    shared: &Arc<Shared>,
    work: &Work,
    cursor: &mut Cursor,
    followers: &mut Followers,
) -> Result<Vec<(EventId, Vec<u8>)>> {
    let (streams, key) = (shared.streams()?, (work.topic.clone(), work.function.clone()));
    let next = cursor.delivered + 1;
    let (_, follower) = followers.entry(key).or_insert_with(|| {
        let woken = Arc::downgrade(shared);
        let wake = move || {
            if let Some(shared) = woken.upgrade() {
                *locked(&shared.changed.0) += 1;
                shared.changed.1.notify_all();
            }
        };
        (work.since, streams.follow(&work.topic, next, Box::new(wake)))
    });
    let found = follower.records(next, RECORDS_MAX as usize, BYTES_MAX)?; // 64
    if let Some(first) = found.first() {
        cursor.pass_over(work, first.seqno);
    }
    // After a gap, a new batch begins.
    let dense = found.into_iter().zip(cursor.delivered + 1..).take_while(|(record, next)| record.seqno == *next);
    Ok(dense.map(|(record, _)| (record.cause, record.payload)).collect())
}

impl Cursor {
    /// Counts the records before this one that were not delivered.
    fn pass_over(&mut self, work: &Work, earliest: u64) {
        let missed = earliest.saturating_sub(self.delivered + 1);
        if missed > 0 {
            let (name, function) = (&*work.topic, &*work.function);
            tracing::warn!(target: "topics", topic = name, function, missed, "records had left the topic before they could be delivered");
            self.missed += missed;
            self.delivered += missed;
        }
    }
}

/// The positions of the next records. Those that have left the topic are counted and skipped.
fn places(work: &Work, cursor: &mut Cursor) -> Result<Vec<Place>> {
    let replica = locked(&work.group.replica);
    let topic = replica.topics().topic(&work.topic)?;
    if topic.born != work.born {
        return Err(super::recreated(&work.topic));
    }
    cursor.pass_over(work, topic.earliest());
    let next = cursor.delivered + 1..(cursor.delivered + 1 + RECORDS_MAX).min(topic.latest + 1);
    let place = |index| {
        let entry = topic.entry(&work.topic, index)?;
        replica.place(entry).ok_or_else(|| replica.absent(&work.topic, index))
    };
    next.map(place).collect()
}

fn cursor(shared: &Shared, log: &LogName) -> Result<Option<Cursor>> {
    let journal = shared.namespace.journal();
    let catalog = journal.catalog()?;
    let Some(found) = catalog.log(log).filter(|log| log.latest() > 0) else { return Ok(None) };
    let mut payload = Vec::new();
    journal.get(found, found.latest(), &mut payload)?;
    let damaged = |error| Code::GroupLogDamaged.error(format!("log '{log}': {error}"));
    serde_json::from_slice(&payload).map(Some).map_err(damaged)
}
