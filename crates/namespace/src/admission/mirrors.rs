//! Mirrors: a log with the records of a topic, each under its index in the topic. No other records are appended to it.
//!
//! ```text
//!  _mirror/LOG   LOG is a mirror: its topic, and how many records the topic had lost before
//!  _mirrors      notes for people: which mirrors were begun and ended
//! ```

use super::{Publish, Room, Stage};
use crate::{
    Namespace,
    gate::{Gated, Shows, Site},
    names::note,
};
use millrace_journal::{Catalog, Log, Transaction};
use millrace_wire::{Code, Error, EventId, LogName, Result};
use serde::{Deserialize, Serialize};

const PREFIX: &str = "_mirror/";
/// This log exists once there has been a mirror: a namespace without it is not searched for mirrors.
const NOTES: &str = "_mirrors";
const NOTES_HISTORY: u64 = 64;
const STATE_HISTORY: u64 = 4;

/// The state of a mirror, without its records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// The topic.
    pub topic: String,
    /// How many of its oldest records had left its history before the mirror was begun.
    pub missed: u64,
    /// The number of the topic, which distinguishes topics of the same name.
    #[serde(default)]
    pub born: u64,
}

#[derive(Serialize)]
struct Change<'a> {
    log: &'a str,
    topic: &'a str,
    change: &'static str,
}

/// The log that marks this one as a mirror.
fn state_of(log: &LogName) -> Result<LogName> {
    let unfit = |error: Error| {
        let detail = format!("log '{log}' cannot be a mirror: log '{PREFIX}{log}': {}", error.detail());
        Code::LogNameInvalid.error(detail)
    };
    format!("{PREFIX}{log}").parse().map_err(unfit)
}

/// Every mirror, with the log that marks it.
pub fn all(catalog: &Catalog) -> impl Iterator<Item = (&Log, &Log)> {
    let states = catalog.log(NOTES).map(|_| catalog.logs()).into_iter().flatten();
    states.filter_map(move |state| Some((catalog.log(state.name().strip_prefix(PREFIX)?)?, state)))
}

/// The state of a mirror.
pub fn read(namespace: &Namespace, state: &Log) -> Result<Mirror> {
    let mut payload = Vec::new();
    namespace.journal().get(state, state.latest(), &mut payload)?;
    let damaged = |error| Code::GroupLogDamaged.error(format!("log '{}': {error}", state.name()));
    serde_json::from_slice(&payload).map_err(damaged)
}

fn internal<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Code::HostInternal.error(error.to_string()))
}

fn noted(tx: &mut Transaction<'_>, log: &LogName, topic: &str, change: &'static str) -> Result<()> {
    note(tx, &crate::names::internal(NOTES), NOTES_HISTORY, &internal(&Change { log, topic, change })?)
}

/// Begins a mirror in a new log; an existing one with the same settings is left as it is. `born` distinguishes topics of the same name. The
/// result waits at the gate.
pub fn begin(namespace: &Namespace, log: &LogName, (topic, born): (&str, u64), history: u64) -> Result<Gated<()>> {
    crate::names::check_public(log)?;
    let name = state_of(log)?;
    let committed = namespace.journal().commit(|tx| {
        let (state, found) = (tx.catalog().log(&name).cloned(), tx.catalog().log(log).cloned());
        match (state, found) {
            (Some(state), Some(found)) => {
                let known = read(namespace, &state)?;
                if (&*known.topic, known.born) == (topic, born) && found.history() == history {
                    return Ok(());
                }
                let mut detail = format!("log '{log}' is a mirror of topic '{}' with another history", known.topic);
                if known.topic == topic && known.born != born {
                    detail = format!("log '{log}' is a mirror of a topic '{topic}' that was removed");
                }
                return Err(Code::MirrorExists.error(detail));
            }
            (_, Some(_)) => return Err(Code::MirrorExists.error(format!("log '{log}' already exists"))),
            _ => {}
        }
        tx.create_log(log, history)?;
        note(tx, &name, STATE_HISTORY, &internal(&Mirror { topic: topic.to_owned(), missed: 0, born })?)?;
        noted(tx, log, topic, "begun")
    })?;
    Ok(namespace.gate().hold(Site::CreateLog, (), Shows::Report(committed.end), None))
}

/// Ends a mirror: its log keeps its records, and becomes an ordinary log.
pub fn end(namespace: &Namespace, log: &LogName, topic: &str) -> Result<Gated<()>> {
    let name = state_of(log)?;
    let committed = namespace.journal().commit(|tx| {
        let missing =
            || Code::MirrorNotFound.error(format!("log '{log}' of this host is not a mirror of topic '{topic}'"));
        let state = tx.catalog().log(&name).cloned().ok_or_else(missing)?;
        if read(namespace, &state)?.topic != topic {
            return Err(missing());
        }
        tx.remove_log(&name)?;
        noted(tx, log, topic, "ended")
    })?;
    Ok(namespace.gate().hold(Site::RemoveLog, (), Shows::Report(committed.end), None))
}

/// The log of a mirror in a batch that appends record `next`; `None` if the mirror has ended, or has that record.
fn open(tx: &mut Transaction<'_>, log: &LogName, next: u64) -> Result<Option<Log>> {
    let catalog = tx.catalog();
    let is_mirror = catalog.log(&state_of(log)?).is_some();
    Ok(catalog.log(log).filter(|found| is_mirror && found.latest() + 1 == next).cloned())
}

/// Appends records of the topic with what they come from, starting at index `next`, and triggers the functions that are bound to the log. Returns how
/// many were appended: as many as the functions have room for, but at least one, or none if the mirror has ended or has record `next`.
pub fn copy(namespace: &Namespace, log: &LogName, next: u64, records: &[(EventId, Vec<u8>)]) -> Result<u64> {
    let committed = namespace.journal().commit(|tx| {
        let Some(found) = open(tx, log, next)? else { return Ok(0) };
        let publish = Publish::new(namespace, tx);
        let mut copied = 0;
        for (cause, data) in records {
            let stage = Stage { cause: *cause, ordinal: 0, room: Room::Mirror, named: None, ending: None };
            match publish.append(tx, &found, data, stage) {
                Err(error) if error.code() == Code::Busy && copied > 0 => break,
                appended => appended?,
            };
            copied += 1;
        }
        Ok(copied)
    });
    Ok(committed?.value)
}

/// Skips this many records, which the topic had lost before the mirror had any: their numbers are not used for other records.
pub fn pass_over(namespace: &Namespace, log: &LogName, next: u64, count: u64) -> Result<()> {
    let committed = namespace.journal().commit(|tx| {
        let Some(found) = open(tx, log, next)? else { return Ok(()) };
        let name = state_of(log)?;
        let state = tx.catalog().log(&name).cloned();
        let Some(mut known) = state.map(|state| read(namespace, &state)).transpose()? else { return Ok(()) };
        for _ in 0..count {
            tx.append(&found, &[], EventId::NONE, 0)?;
        }
        // They cannot be read: the batch that appends them also trims them.
        tx.trim(&found, next + count)?;
        known.missed += count;
        note(tx, &name, STATE_HISTORY, &internal(&known)?)
    });
    committed.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AppendOptions;
    use millrace_journal::CreateOptions;

    #[test]
    fn a_mirror_has_the_numbers_of_its_topic_and_takes_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ns");
        let namespace = Namespace::create(&path, &CreateOptions::default()).unwrap();
        let (log, other): (LogName, LogName) = ("copy/t".parse().unwrap(), "other".parse().unwrap());
        let code = |held: Result<Gated<()>>| held.and_then(Gated::wait).map_err(|error| error.code());
        namespace.create_log(&other, 10).unwrap();
        assert_eq!(code(begin(&namespace, &other, ("t", 0), 10)), Err(Code::MirrorExists));
        assert_eq!(code(begin(&namespace, &"_x".parse().unwrap(), ("t", 0), 10)), Err(Code::LogInternal));
        assert_eq!(code(begin(&namespace, &log, ("t", 0), 100)), Ok(()));
        assert_eq!(code(begin(&namespace, &log, ("t", 0), 100)), Ok(()), "it is there");
        assert_eq!(code(begin(&namespace, &log, ("u", 0), 100)), Err(Code::MirrorExists));
        assert_eq!(code(begin(&namespace, &log, ("t", 7), 100)), Err(Code::MirrorExists), "another topic of this name");
        let cause = "00000000000b-1-23".parse().unwrap();
        // The first six had left the topic.
        pass_over(&namespace, &log, 1, 4).unwrap();
        pass_over(&namespace, &log, 5, 2).unwrap();
        copy(&namespace, &log, 7, &[(cause, b"seven".to_vec()), (EventId::NONE, b"eight".to_vec())]).unwrap();
        copy(&namespace, &log, 7, &[(EventId::NONE, b"again".to_vec())]).unwrap();
        drop(namespace);
        let namespace = Namespace::open(&path).unwrap();
        let found = namespace.log(&log).unwrap();
        assert_eq!((found.earliest(), found.latest()), (7, 8));
        let seven = namespace.get(&log, 7).unwrap();
        assert_eq!((&*seven.payload, seven.cause), (&b"seven"[..], cause));
        assert_eq!(namespace.get(&log, 6).unwrap_err().code(), Code::BelowHistory);
        let catalog = namespace.journal().catalog().unwrap();
        let known: Vec<Mirror> = all(&catalog).map(|(_, state)| read(&namespace, state).unwrap()).collect();
        assert_eq!(known, [Mirror { topic: "t".into(), missed: 6, born: 0 }]);
        let append = || namespace.append(&log, b"x", AppendOptions::default()).map(drop).map_err(|error| error.code());
        assert_eq!(append(), Err(Code::LogIsMirror));
        assert_eq!(namespace.remove_log(&log).map_err(|error| error.code()), Err(Code::LogInUse));
        assert_eq!(code(end(&namespace, &log, "u")), Err(Code::MirrorNotFound));
        assert_eq!(code(end(&namespace, &log, "t")), Ok(()));
        assert_eq!(code(end(&namespace, &log, "t")), Err(Code::MirrorNotFound));
        copy(&namespace, &log, 9, &[(EventId::NONE, b"late".to_vec())]).unwrap();
        assert_eq!((append(), namespace.latest(&log)), (Ok(()), Ok(9)), "it is a log like any other");
    }
}
