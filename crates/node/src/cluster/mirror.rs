//! Copies topics into logs of this host, each record under the index that it has in its topic.
//!
//! The log itself shows how far the copy is, so a host that ends at any instruction continues after the last record of the log. Only
//! records that the group has committed are copied, from the log of the group on this disk.

use super::{Cluster, PATIENCE, Shared, groups::Group, is_led, locked, recreated};
use crate::{Gated, Namespace};
use millrace_group::{Place, Stamp};
use millrace_journal::Log;
use millrace_namespace::admission::mirrors;
use millrace_wire::{Code, LogName, Result};
use serde::Serialize;
use std::{
    cmp::Ordering::{Equal, Greater, Less},
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// The maximum number of records in one batch, and of their bytes unless the first alone has more.
const RECORDS_MAX: u64 = 64;
const BYTES_MAX: usize = 256 << 10;
/// The maximum number of records in one batch that the topic had lost before the mirror began.
const PASSED_OVER_MAX: u64 = 1024;

/// The report about a mirror.
#[derive(Clone, Debug, Serialize)]
pub struct MirrorStat {
    /// The log.
    pub log: String,
    /// The topic.
    pub topic: String,
    /// The oldest record that the log has.
    pub earliest: u64,
    /// The last record that was copied.
    pub copied: u64,
    /// How many records it lacks, as far as this host knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// How many of the topic's oldest records had left its history before the mirror was begun.
    pub missed: u64,
    /// Why it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The mirrors of this host as of a version of the catalog, and when it last asked to follow a group.
#[derive(Default)]
pub(super) struct Known {
    version: u64,
    mirrors: Vec<(Log, mirrors::Mirror)>,
    asked: Option<Instant>,
}

/// The result of one turn.
#[derive(Default)]
pub(super) struct Turned {
    /// There may be more to copy.
    pub more: bool,
    /// A record could not be copied.
    pub refused: bool,
}

/// Copies the next records of each mirror.
pub(super) fn turn(shared: &Arc<Shared>, known: &mut Known) -> Turned {
    let mut turned = Turned::default();
    if let Err(error) = look(shared, known) {
        tracing::warn!(target: "topics", code = error.code().id(), "mirrors cannot be read: {}", error.detail());
        return Turned { refused: true, ..turned };
    }
    let Known { mirrors, asked, .. } = known;
    for (log, mirrors::Mirror { topic, born, .. }) in mirrors.iter() {
        let key = (log.name().to_string(), topic.clone());
        match attended(shared, topic, asked).and_then(|group| copy(shared, &group, (topic, *born), log)) {
            Ok(more) => {
                turned.more |= more;
                locked(&shared.mirroring).remove(&key);
            }
            Err(error) => {
                turned.refused = true;
                let log = &**log.name();
                tracing::debug!(target: "topics", topic, log, code = error.code().id(), "not copied: {}", error.detail());
                locked(&shared.mirroring).insert(key, format!("{}: {}", error.code().id(), error.detail()));
            }
        }
    }
    turned
}

/// Finds the mirrors, if the catalog has changed.
fn look(shared: &Shared, known: &mut Known) -> Result<()> {
    let catalog = shared.namespace.journal().catalog()?;
    if catalog.version() == known.version {
        return Ok(());
    }
    let read = |(log, state): (&Log, &Log)| Ok((log.clone(), mirrors::read(&shared.namespace, state)?));
    known.mirrors = mirrors::all(&catalog).map(read).collect::<Result<_>>()?;
    known.version = catalog.version();
    locked(&shared.mirroring).clear();
    Ok(())
}

/// The group of a topic, if this host follows it; otherwise the host requests to follow it.
fn attended(shared: &Arc<Shared>, topic: &str, asked: &mut Option<Instant>) -> Result<Arc<Group>> {
    let found = shared.group_of(topic);
    if found.as_ref().is_ok_and(|group| group.is_placed.load(Ordering::Relaxed)) {
        return found;
    }
    is_led(&shared.main)?;
    if asked.is_none_or(|asked| asked.elapsed() > PATIENCE) {
        *asked = Some(Instant::now());
        // The next turn sees the result.
        shared.find(topic, Box::new(|_| ()));
    }
    found
}

/// The topic that a log of this host is a mirror of.
pub(super) fn topic_of(namespace: &Namespace, log: &str) -> Result<Option<String>> {
    let catalog = namespace.journal().catalog()?;
    let found = mirrors::all(&catalog).find(|(known, _)| **known.name() == *log);
    found.map(|(_, state)| mirrors::read(namespace, state).map(|mirror| mirror.topic)).transpose()
}

/// Copies the next records; returns whether there are more.
fn copy(shared: &Shared, group: &Group, (topic, born): (&str, u64), log: &Log) -> Result<bool> {
    let (namespace, next) = (&shared.namespace, log.latest() + 1);
    let (earliest, latest, places) = {
        let replica = locked(&group.replica);
        let found = replica.topics().topic(topic)?;
        match found.born.cmp(&born) {
            Greater => return Err(recreated(topic)),
            // After a start the topics are not up to date yet.
            Less => return Ok(false),
            Equal => {}
        }
        let place = |index| replica.place(found.entry(topic, index)?).ok_or_else(|| replica.absent(topic, index));
        let upto = (next + RECORDS_MAX).min(found.latest + 1);
        let has_next = found.earliest() <= next;
        let places = if has_next { (next..upto).map(place).collect::<Result<Vec<Place>>>()? } else { Vec::new() };
        (found.earliest(), found.latest, places)
    };
    if latest < next {
        return Ok(false);
    }
    if earliest > next {
        if log.latest() > 0 && log.earliest() <= log.latest() {
            let last = earliest - 1;
            return Err(Code::MirrorGap.error(format!("topic '{topic}' no longer has records {next} to {last}")));
        }
        mirrors::pass_over(namespace, log.name(), next, (earliest - next).min(PASSED_OVER_MAX))?;
        return Ok(true);
    }
    let (mut records, mut bytes) = (Vec::new(), 0);
    for place in places {
        let (_, Stamp { cause, .. }, data) = group.store.record(place)?;
        bytes += data.len();
        if bytes > BYTES_MAX && !records.is_empty() {
            break;
        }
        records.push((cause, data));
    }
    let copied = mirrors::copy(namespace, log.name(), next, &records)?;
    // Without a group the mirror has ended.
    Ok(copied > 0 && next + copied <= latest)
}

impl Cluster {
    /// Begins a mirror of a topic in a new log, which keeps as many records as the topic unless a number is given. The topic has to be
    /// known here: see [`Cluster::fresh`].
    pub fn begin_mirror(&self, topic: &str, log: &str, history: Option<u64>) -> Result<Gated<()>> {
        let (shared, log) = (&self.shared, log.parse::<LogName>()?);
        let group = shared.group_of(topic)?;
        let (of_topic, born, engine) = {
            let replica = locked(&group.replica);
            let found = replica.topics().topic(topic)?;
            (found.history, found.born, found.engine)
        };
        if !engine.is_builtin() {
            let detail = format!("{} keeps the records of topic '{topic}', so it cannot be mirrored", engine.name());
            return Err(Code::NatsUnsupported.error(detail));
        }
        let known = || shared.namespace.log(&log).ok().map(|log| log.history());
        let begun = mirrors::begin(&shared.namespace, &log, (topic, born), history.or_else(known).unwrap_or(of_topic))?;
        *locked(&shared.changed.0) += 1;
        shared.changed.1.notify_all();
        Ok(begun)
    }

    /// Ends a mirror. Its log stays.
    pub fn end_mirror(&self, topic: &str, log: &str) -> Result<Gated<()>> {
        mirrors::end(&self.shared.namespace, &log.parse()?, topic)
    }

    /// The index of the newest record of a topic, if it has this number.
    fn latest_of(&self, topic: &str, born: u64) -> Option<u64> {
        let group = self.shared.group_of(topic).ok()?;
        let replica = locked(&group.replica);
        replica.topics().topic(topic).ok().filter(|topic| topic.born == born).map(|topic| topic.latest)
    }

    /// The mirrors of this host, by log.
    pub fn mirrors(&self) -> Result<Vec<MirrorStat>> {
        let shared = &self.shared;
        let catalog = shared.namespace.journal().catalog()?;
        let mut stats = Vec::new();
        for (log, state) in mirrors::all(&catalog) {
            let mirrors::Mirror { topic, missed, born } = mirrors::read(&shared.namespace, state)?;
            let (earliest, copied) = (log.earliest(), log.latest());
            let lag = self.latest_of(&topic, born).map(|latest| latest.saturating_sub(copied));
            let trouble = locked(&shared.mirroring).get(&(log.name().to_string(), topic.clone())).cloned();
            stats.push(MirrorStat { log: log.name().to_string(), topic, earliest, copied, lag, missed, trouble });
        }
        stats.sort_by(|a, b| a.log.cmp(&b.log));
        Ok(stats)
    }
}
