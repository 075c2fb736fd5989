//! Runs functions for the records of topics that they are subscribed to on this host.
//!
//! A record goes into the log `_topic/FUNCTION/TOPIC` of this host's namespace, in one batch with the run that it triggers and with the
//! cursor of the subscription. So each record triggers one run, even after crashes.

use super::{Shared, groups::Group, locked, mirror};
use millrace_group::{Place, Subscription};
use millrace_namespace::{
    admission::{Publish, Room, Stage},
    named,
    names::note,
};
use millrace_wire::{Code, Error, EventId, LogName, RETRY_AFTER_MS, Result};
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

/// Records of one batch, and their bytes unless the first alone has more.
const RECORDS_MAX: u64 = 64;
const BYTES_MAX: usize = 256 << 10;
/// How many delivered records stay readable.
const HISTORY: u64 = 1024;
const CURSOR_HISTORY: u64 = 4;
/// What the log of the records of a subscription begins with; the function and the topic follow.
pub const DELIVERED: &str = "_topic/";
/// How long the thread sleeps without a notification about topics.
const REST: Duration = Duration::from_secs(2);
/// How soon it looks again at what was refused.
const AGAIN: Duration = Duration::from_millis(RETRY_AFTER_MS as u64);

/// How far a subscription is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    /// Which subscription: the entry that made it.
    since: u64,
    /// The last record that was delivered.
    delivered: u64,
    /// Records that had left the topic before they could be.
    missed: u64,
}

/// One subscription of this host, and what there is for it.
struct Work {
    group: Arc<Group>,
    topic: String,
    function: String,
    first: u64,
    since: u64,
    latest: u64,
}

enum Progress {
    /// There is nothing left.
    Done,
    /// There may be more.
    More,
}

/// Delivers, and copies topics to their mirrors, until the host stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let (mut seen, mut known, mut mirrors) = (0, (0, Vec::new()), mirror::Known::default());
    while !shared.is_stopping() {
        let mirror::Turned { mut more, mut refused } = mirror::turn(shared, &mut mirrors);
        look(shared, &mut known);
        for (group, topic, subscription) in &known.1 {
            let key = (topic.clone(), subscription.function.clone());
            match work(group, topic, subscription).map_or(Ok(Progress::Done), |work| deliver(shared, &work)) {
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

/// Finds the subscriptions of this host, if they have changed.
fn look(shared: &Shared, known: &mut Known) {
    let revision = shared.revision.load(Ordering::Relaxed);
    if known.0 == revision {
        return;
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
}

/// The pending records of a subscription.
fn work(group: &Arc<Group>, name: &str, known: &Subscription) -> Option<Work> {
    let latest = locked(&group.replica).topics().topic(name).ok()?.latest;
    let (group, topic, function) = (group.clone(), name.to_owned(), known.function.clone());
    Some(Work { group, topic, function, first: known.first, since: known.since, latest })
}

/// The logs of a subscription: its records, and how far it is. Not every topic's name leaves room for them.
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

fn deliver(shared: &Shared, work: &Work) -> Result<Progress> {
    let namespace = &shared.namespace;
    let [log, cursor_log] = logs(&work.topic, &work.function)?;
    let found = cursor(shared, &cursor_log)?;
    if found.as_ref().is_some_and(|cursor| cursor.since > work.since) {
        // After a start the topics are not up to date yet, and the function may have been subscribed again since.
        return Ok(Progress::Done);
    }
    let found = found.filter(|cursor| cursor.since == work.since);
    let mut cursor = found.unwrap_or(Cursor { since: work.since, delivered: work.first - 1, missed: 0 });
    let key = (work.topic.clone(), work.function.clone());
    locked(&shared.missed).insert(key, cursor.missed);
    if cursor.delivered >= work.latest {
        return Ok(Progress::Done);
    }
    let places = places(work, &mut cursor)?;
    let before = cursor.delivered;
    let (mut records, mut bytes) = (Vec::new(), 0);
    for place in places {
        let (_, data) = work.group.store.record(place)?;
        bytes += data.len();
        if bytes > BYTES_MAX && !records.is_empty() {
            break;
        }
        records.push(data);
    }
    let committed = namespace.journal().commit(|tx| {
        let catalog = tx.catalog().clone();
        let publish = Publish::new(namespace, tx);
        let bound = named(&catalog, publish.bindings(), &work.function)?;
        let log = match catalog.log(&log) {
            Some(log) => log.clone(),
            None => tx.create_log(&log, HISTORY)?,
        };
        let mut cursor = cursor;
        for data in &records {
            let stage =
                Stage { cause: EventId::NONE, ordinal: 0, room: Room::Outside, named: Some(bound), ending: None };
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
    Ok(if cursor.delivered < work.latest { Progress::More } else { Progress::Done })
}

/// Where the next records stand. Those that have left the topic are counted and passed over.
fn places(work: &Work, cursor: &mut Cursor) -> Result<Vec<Place>> {
    let replica = locked(&work.group.replica);
    let topic = replica.topics().topic(&work.topic)?;
    if topic.earliest() > cursor.delivered + 1 {
        let missed = topic.earliest() - cursor.delivered - 1;
        let (name, function) = (&*work.topic, &*work.function);
        tracing::warn!(target: "topics", topic = name, function, missed, "records had left the topic before they could be delivered");
        cursor.missed += missed;
        cursor.delivered += missed;
    }
    let next = cursor.delivered + 1..(cursor.delivered + 1 + RECORDS_MAX).min(topic.latest + 1);
    let place = |index| {
        let entry = topic.entry(&work.topic, index)?;
        replica.place(entry).ok_or_else(|| super::is_gone(&work.topic, index))
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
