//! Records that wait on this host to be published to a topic: one outbox for each topic.
//!
//! A record is a [`message::Message`] whose log is its idempotency key, or empty. The host publishes them in order, and trims those that the topic
//! has.

use super::{
    OUTBOX_BYTES_MAX, OUTBOX_RECORDS_MAX, Outgoing, Staged, Waiting,
    message::{self, Message},
    waiting,
};
use crate::{
    Namespace,
    admission::{self, Publish, Room, mirrors},
    gate::{Gated, Shows, Site},
    names,
};
use millrace_journal::{Appended, Durability, HISTORY_ALL, Log, Transaction};
use millrace_wire::{Code, Error, EventId, Hlc, LogName, Result};
use serde::Deserialize;

/// The log in which a host notes which logs feed topics.
pub const FEEDS: &str = "_feeds";
/// The prefix of the names of these logs.
const PREFIX: &str = "_publish/";
/// Most topics for which records wait at once, or have waited.
pub const TOPICS_MAX: usize = 256;

/// A record for a topic.
#[derive(Clone, Copy, Debug)]
pub struct NewPublish<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The idempotency key.
    pub key: Option<&'a str>,
    /// Its bytes.
    pub data: &'a [u8],
    /// Its cause.
    pub cause: EventId,
    /// Which one it is of the records of its cause.
    pub ordinal: u16,
}

/// The log of the records that wait for a topic. Not every topic's name leaves room for it.
pub fn log_of(topic: &str) -> Result<LogName> {
    let unfit = |error: Error| {
        let detail = format!("no record can wait for topic '{topic}': log '{PREFIX}{topic}': {}", error.detail());
        Code::TopicNameInvalid.error(detail)
    };
    format!("{PREFIX}{topic}").parse().map_err(unfit)
}

/// The topic whose records wait in this log.
pub fn topic_of(log: &str) -> Option<&str> {
    log.strip_prefix(PREFIX)
}

/// The key and the bytes of a record that waits.
pub fn decode(payload: &[u8]) -> Result<(Option<&str>, &[u8])> {
    let Message { log: key, data, .. } = message::decode(payload)?;
    Ok((Some(key).filter(|key| !key.is_empty()), data))
}

/// The logs in which records wait, or have waited, with their topics.
pub fn all(namespace: &Namespace) -> Result<Vec<(String, Log)>> {
    let catalog = namespace.journal().catalog()?;
    let known = |log: &Log| topic_of(log.name()).map(|topic| (topic.to_owned(), log.clone()));
    Ok(catalog.logs().filter_map(known).collect())
}

/// A topic with copies of a log's records, or whose records a log copies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicOfLog {
    /// The number of the log.
    pub id: u32,
    /// Its name.
    pub log: String,
    /// The topic.
    pub topic: String,
}

/// A note of a feed, as far as it matters here.
#[derive(Deserialize)]
struct Feed {
    topic: String,
    log: String,
    id: u32,
}

/// The topics that logs of this namespace feed or mirror. Feeds that have ended count: the topic has the records.
pub fn of_logs(namespace: &Namespace) -> Result<Vec<TopicOfLog>> {
    let feeds = names::newest_note(namespace, FEEDS)?;
    let damaged = |error| Code::GroupLogDamaged.error(format!("log '{FEEDS}': {error}"));
    let feeds: Vec<Feed> = feeds.map_or(Ok(Vec::new()), |note| serde_json::from_slice(&note).map_err(damaged))?;
    let mut all: Vec<_> = feeds.into_iter().map(|Feed { topic, log, id }| TopicOfLog { id, log, topic }).collect();
    let catalog = namespace.journal().catalog()?;
    for (log, state) in mirrors::all(&catalog) {
        let topic = mirrors::read(namespace, state)?.topic;
        all.push(TopicOfLog { id: log.id(), log: log.name().to_string(), topic });
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Commits a record that is to be published. It leaves the gate once it is on this disk, whatever the durability of the namespace.
pub fn keep(namespace: &Namespace, record: NewPublish<'_>, clock: Hlc) -> Result<Gated<()>> {
    let committed = namespace.journal().commit(|tx| {
        tx.observe(clock);
        Publish::new(namespace, tx).publish(tx, Room::Outside, record)
    })?;
    Ok(namespace.gate().hold(Site::Append, (), Shows::Batch(committed.end), Some(Durability::Disk)))
}

impl Outgoing {
    /// Stages a record for a topic; nothing if there is no room for it.
    pub fn publish(
        &mut self,
        namespace: &Namespace,
        tx: &mut Transaction<'_>,
        room: Room,
        record: NewPublish<'_>,
    ) -> Result<Appended> {
        let NewPublish { topic, key, data, cause, ordinal } = record;
        let (name, key) = (log_of(topic)?, key.unwrap_or_default());
        if !self.staged.contains_key(&*name) {
            let staged = open(namespace, tx, &name)?;
            self.staged.insert(name.to_string(), staged);
        }
        let staged = self.staged.get_mut(&*name).expect("inserted above");
        let bytes = message::bytes(key, None, data);
        let share = if room == Room::Outside { 2 } else { 1 };
        if staged.waiting >= OUTBOX_RECORDS_MAX / share || staged.waiting_bytes + bytes > OUTBOX_BYTES_MAX / share {
            let (records, bytes) = (staged.waiting, staged.waiting_bytes);
            return Err(
                Code::PublishBufferFull.error(format!("{records} records of {bytes} bytes wait for topic '{topic}'"))
            );
        }
        message::encode(&mut self.scratch, staged.total + bytes, key, None, data);
        let appended = admission::record(tx, room, &staged.log, &self.scratch, (cause, ordinal))?;
        staged.total += bytes;
        staged.waiting += 1;
        staged.waiting_bytes += bytes;
        Ok(appended)
    }
}

/// The log as it is committed; a new one if this is the first record that ever waits for the topic here.
fn open(namespace: &Namespace, tx: &mut Transaction<'_>, name: &LogName) -> Result<Staged> {
    if let Some(log) = tx.catalog().log(name).cloned() {
        let Waiting { records, bytes, total } = waiting(namespace, &log)?;
        return Ok(Staged { log, waiting: records, waiting_bytes: bytes, total });
    }
    let known = tx.catalog().logs().filter(|log| topic_of(log.name()).is_some()).count();
    if known >= TOPICS_MAX {
        return Err(Code::PublishBufferFull
            .error(format!("records of {known} topics wait on this host, or have waited; this is the limit")));
    }
    // None leaves it before it is published.
    let log = tx.create_log(name, HISTORY_ALL)?;
    Ok(Staged { log, waiting: 0, waiting_bytes: 0, total: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_journal::CreateOptions;

    fn record<'a>(topic: &'a str, key: Option<&'a str>, data: &'a [u8]) -> NewPublish<'a> {
        NewPublish { topic, key, data, cause: EventId::NONE, ordinal: 0 }
    }

    #[test]
    fn records_wait_in_order_until_they_are_trimmed_and_their_bytes_are_counted_after_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        keep(&namespace, record("t", Some("k"), b"one"), Hlc::default()).unwrap().wait().unwrap();
        // Two in one batch.
        let staged = |tx: &mut Transaction<'_>| {
            let mut publish = Publish::new(&namespace, tx);
            publish.publish(tx, Room::Run, record("t", None, b"two"))?;
            publish.publish(tx, Room::Run, record("t", None, b"three"))
        };
        namespace.journal().commit(staged).unwrap();
        drop(namespace);
        let namespace = Namespace::open(&dir.path().join("ns")).unwrap();
        let logs = all(&namespace).unwrap();
        let [(topic, log)] = &logs[..] else { panic!("{} logs", logs.len()) };
        assert_eq!((&**topic, log.latest()), ("t", 3));
        let kept = [("k", "one"), ("", "two"), ("", "three")];
        let bytes: u64 = kept.iter().map(|(key, data)| message::bytes(key, None, data.as_bytes())).sum();
        assert_eq!(waiting(&namespace, log).unwrap(), Waiting { records: 3, bytes, total: bytes });
        let read = |seqno| namespace.get(log.name(), seqno).unwrap().payload;
        assert_eq!(decode(&read(1)).unwrap(), (Some("k"), &b"one"[..]));
        assert_eq!(decode(&read(3)).unwrap(), (None, &b"three"[..]));
        namespace.journal().commit(|tx| tx.trim(log, 4)).unwrap();
        assert_eq!(waiting(&namespace, log).unwrap(), Waiting::default());
    }

    #[test]
    fn a_full_outbox_of_a_topic_refuses_records_from_outside_before_those_of_runs() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        let keep = |topic: &str| {
            let kept = keep(&namespace, record(topic, None, b"x"), Hlc::default());
            kept.map(drop).map_err(|error| error.code())
        };
        keep("t").unwrap();
        let log = namespace.log("_publish/t").unwrap();
        // As if records of half of the room had come between.
        let mut far = Vec::new();
        message::encode(&mut far, OUTBOX_BYTES_MAX / 2, "", None, b"x");
        namespace.journal().commit(|tx| tx.append(&log, &far, EventId::NONE, 0)).unwrap();
        assert_eq!(keep("t"), Err(Code::PublishBufferFull));
        let of_run =
            |tx: &mut Transaction<'_>| Publish::new(&namespace, tx).publish(tx, Room::Run, record("t", None, b"x"));
        namespace.journal().commit(of_run).unwrap();
        assert_eq!(keep("a/b/c/d/e/f/g/h"), Err(Code::TopicNameInvalid));
        for number in 1..TOPICS_MAX {
            keep(&format!("more/{number}")).unwrap();
        }
        assert_eq!(keep("another"), Err(Code::PublishBufferFull));
        namespace.journal().commit(|tx| tx.trim(&log, 4)).unwrap();
        assert_eq!(keep("t"), Ok(()), "there is room again");
    }
}
