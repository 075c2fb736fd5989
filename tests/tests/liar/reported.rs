//! What was told, and whether it is still true.

use millrace_node::{
    AppendOptions, Code, EventId, Name, Namespace, Position, RecordRef,
    links::{Links, Peer},
};
use millrace_wire::table::TableRequest;
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Something that somebody was told by a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// This record is there.
    Record { log: String, seqno: u64, data: Vec<u8>, id: Option<String> },
    /// A record with these bytes is there.
    Kept { log: String, data: Vec<u8> },
    /// The log reaches at least so far.
    Reaches { log: String, latest: u64 },
    /// The key of the table has had this version.
    Version { key: String, version: u64 },
    /// The log is there.
    Is { log: String },
    /// This incarnation of it is there.
    Incarnation { log: String, incarnation: u32 },
    /// There is no such log any more.
    Gone { log: String },
    /// The log has no records before this one.
    Trimmed { log: String, before: u64 },
    /// The key belongs to an append that became this record.
    Key { key: String, seqno: u64 },
    /// The key belongs to an append of something else.
    Conflict { key: String },
    /// The function was triggered so often.
    Triggered { function: String, count: u64 },
    /// So many runs of it have ended.
    Ended { function: String, count: u64 },
    /// The run is known.
    Run { id: String, ended: bool },
    /// The run was told these records, and published those, before anything else.
    Calls { id: String, reads: Vec<(String, u64)>, appends: Vec<(String, u64)> },
    /// This entry is in the journal.
    Entry { position: u64, id: String },
    /// The journal reaches so far.
    Tail { position: u64 },
    /// There is such a function.
    Function { name: String },
    /// There is none.
    NoFunction { name: String },
    /// There is such a relay, standing still or not.
    Relay { name: String, stopped: bool },
    /// There is none.
    NoRelay { name: String },
    /// There is such a peer, and its outbox was begun so often.
    Peer { name: String, generation: u32 },
    /// There is none.
    NoPeer { name: String },
    /// A stream has come to this number.
    Stream { log: String, number: u64 },
}

/// Facts about one namespace. Only what is told before it dies counts.
#[derive(Default)]
pub struct Reported {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    facts: BTreeSet<Fact>,
    /// Since the flushes are held back.
    pressed: u64,
    deaf: bool,
}

impl Reported {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, fact: Fact) {
        let mut inner = self.inner();
        if !inner.deaf && inner.facts.insert(fact) {
            inner.pressed += 1;
        }
    }

    /// From now on nothing more counts: the namespace is about to die.
    pub fn deafen(&self) {
        self.inner().deaf = true;
    }

    pub fn listen(&self) {
        self.inner().deaf = false;
    }

    pub fn press(&self) {
        self.inner().pressed = 0;
    }

    pub fn pressed(&self) -> u64 {
        self.inner().pressed
    }

    pub fn count(&self) -> u64 {
        self.inner().facts.len() as u64
    }

    /// What is not true of the recovered namespace.
    pub fn lies(&self, namespace: &Namespace) -> Vec<String> {
        let facts = self.inner().facts.clone();
        let holds = |fact: &Fact| holds(namespace, fact).unwrap_or(false);
        facts.iter().filter(|fact| !holds(fact)).map(|fact| format!("told, and not true: {fact:?}")).collect()
    }
}

fn holds(namespace: &Namespace, fact: &Fact) -> millrace_node::Result<bool> {
    Ok(match fact {
        Fact::Record { log, seqno, data, id } => match namespace.get(log, *seqno) {
            Ok(record) => record.payload == *data && id.as_ref().is_none_or(|id| *id == record.id.to_string()),
            Err(error) => error.code() == Code::BelowHistory,
        },
        Fact::Kept { log, data } => {
            let log = namespace.log(log)?;
            let mut payload = Vec::new();
            let has = |seqno| namespace.journal().get(&log, seqno, &mut payload).is_ok() && payload == *data;
            // One that has left the history is not missed.
            log.earliest() > 1 || (1..=log.latest()).any(has)
        }
        Fact::Reaches { log, latest } => namespace.latest(log)? >= *latest,
        Fact::Version { key, version } => {
            let request = TableRequest::Get { key: key.as_bytes() };
            let answer = namespace.ask_table("table", &request, AppendOptions::default())?;
            answer.entries.first().is_some_and(|entry| entry.version >= *version)
        }
        Fact::Is { log } => namespace.log(log).is_ok(),
        Fact::Incarnation { log, incarnation } => namespace.log(log)?.id() == *incarnation,
        Fact::Gone { log } => namespace.log(log).is_err(),
        Fact::Trimmed { log, before } => namespace.log(log)?.earliest() >= *before,
        Fact::Key { key, seqno } => keyed(namespace, key, key.as_bytes())?.is_some_and(|answer| answer == *seqno),
        Fact::Conflict { key } => keyed(namespace, key, b"what nobody appended under this key")?.is_none(),
        Fact::Triggered { function, count } => function_counts(namespace, function)?.0 >= *count,
        Fact::Ended { function, count } => function_counts(namespace, function)?.1 >= *count,
        Fact::Run { id, ended } => namespace.run(id.parse()?)?.ended.is_some() >= *ended,
        Fact::Calls { id, reads, appends } => {
            let run = namespace.run(id.parse()?)?;
            named(&run.reads).starts_with(reads) && named(&run.appends).starts_with(appends)
        }
        Fact::Entry { position, id } => {
            namespace.journal().entry_at(Position::from_bytes(*position))?.id == id.parse::<EventId>()?
        }
        Fact::Tail { position } => namespace.journal().tail().get() >= *position,
        Fact::Function { name } => has_function(namespace, name)?,
        Fact::NoFunction { name } => !has_function(namespace, name)?,
        Fact::Relay { name, stopped } => Links::of(namespace).relay(name)?.course.stopped.is_some() == *stopped,
        Fact::NoRelay { name } => Links::of(namespace).relay(name).is_err(),
        Fact::Peer { name, generation } => peer(namespace, name)?.course.generation >= *generation,
        Fact::NoPeer { name } => peer(namespace, name).is_err(),
        Fact::Stream { log, number } => number_of(namespace, log) >= *number,
    })
}

fn named(records: &[RecordRef]) -> Vec<(String, u64)> {
    let log = |record: &RecordRef| record.log.as_ref().map(ToString::to_string).unwrap_or_default();
    records.iter().map(|record| (log(record), record.seqno)).collect()
}

/// What the append with this key was answered; none if it was another append.
fn keyed(namespace: &Namespace, key: &str, data: &[u8]) -> millrace_node::Result<Option<u64>> {
    match namespace.append("raw", data, AppendOptions { key: Some(key), ..AppendOptions::default() }) {
        Ok(receipt) => Ok(Some(receipt.seqno)),
        Err(error) if error.code() == Code::KeyConflict => Ok(None),
        Err(error) => Err(error),
    }
}

fn function_counts(namespace: &Namespace, name: &str) -> millrace_node::Result<(u64, u64)> {
    let function = namespace.functions()?.into_iter().find(|function| &*function.name == name);
    Ok(function.map_or((0, 0), |function| (function.triggered, function.done)))
}

fn has_function(namespace: &Namespace, name: &str) -> millrace_node::Result<bool> {
    let name: Name = name.parse()?;
    Ok(namespace.functions()?.iter().any(|function| function.name == name))
}

pub fn peer(namespace: &Namespace, name: &str) -> millrace_node::Result<Peer> {
    Links::of(namespace).peer(name)
}

/// The last number of a stream that came in, as its log says.
pub fn number_of(namespace: &Namespace, log: &str) -> u64 {
    let Some(text) = newest(namespace, log) else { return 0 };
    serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|mark| mark["number"].as_u64()).unwrap_or(0)
}

/// The newest record of a log as it is there now, safe or not.
pub fn newest(namespace: &Namespace, log: &str) -> Option<String> {
    let (log, mut payload) = (namespace.log(log).ok()?, Vec::new());
    let newest = log.latest();
    namespace.journal().get(&log, newest, &mut payload).ok()?;
    String::from_utf8(payload).ok()
}
