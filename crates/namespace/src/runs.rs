//! Runs as the journal tells them: which there were, what caused them, what they read and appended, how they ended.
//!
//! Everything here is found by reading the journal from its oldest entry on. That costs time in proportion to the journal
//! and memory in proportion to the answer, and is the price of keeping no second truth beside it.

pub mod call;

use crate::Namespace;
use millrace_journal::{Catalog, End, Entry, Journal, Kind, Outcome, Position, ReadFrom, Run, Scan};
use millrace_wire::{Code, Error, EventId, Hlc, LogName, Name, Result};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, HashMap};

/// Most reads and most appends that a view lists.
const LISTED_MAX: usize = 10_000;

/// Which runs to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this function.
    pub function: Option<Name>,
    /// Only runs that a record of this log caused.
    pub log: Option<LogName>,
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Only runs that were called for before this one.
    pub before: Option<EventId>,
    /// The most runs to list; the newest are listed.
    pub limit: usize,
}

impl Default for RunFilter {
    fn default() -> Self {
        Self { function: None, log: None, state: None, before: None, limit: 100 }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Triggered, never tried.
    Pending,
    /// Tried at least once: in progress, or to be tried again.
    Started,
    /// Ended well.
    Done,
    /// Ended as a dead letter, or dropped with its function.
    Dead,
}

/// A record, named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordRef {
    /// The log's name; `None` if the log is gone.
    pub log: Option<LogName>,
    /// The record's place in it.
    pub seqno: u64,
}

/// One attempt at a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// 1 for the first.
    pub attempt: u64,
    /// When it was claimed.
    #[serde(serialize_with = "as_text")]
    pub at: Hlc,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunView {
    /// Its id: that of its TRIGGER.
    #[serde(serialize_with = "as_text")]
    pub id: EventId,
    /// Its function; `None` if that is gone.
    pub function: Option<Name>,
    /// How far it is.
    pub state: RunState,
    /// The record that caused it.
    pub record: RecordRef,
    /// The id of that record's APPEND; of a run that came of a dead letter, the id of the letter's.
    #[serde(serialize_with = "as_text")]
    pub cause: EventId,
    /// The run that appended that record or left that letter, or none if it came from outside, whatever it claims.
    #[serde(serialize_with = "as_text")]
    pub caused_by: EventId,
    /// When it was triggered.
    #[serde(serialize_with = "as_text")]
    pub triggered: Hlc,
    /// When it ended.
    #[serde(serialize_with = "as_optional_text")]
    pub ended: Option<Hlc>,
    /// Its attempts, oldest first; those that journal retention has taken are missing.
    pub attempts: Vec<Attempt>,
    /// The records it read.
    pub reads: Vec<RecordRef>,
    /// The records it appended.
    pub appends: Vec<RecordRef>,
    /// The run that came of its dead letter, if its record was run again.
    #[serde(serialize_with = "as_optional_text")]
    pub retried_as: Option<EventId>,
    /// How it ended, once it has.
    pub ending: Option<Ending>,
}

impl RunView {
    /// One that was met already has been carried forward.
    fn attempted(&mut self, attempt: Attempt) {
        let place = self.attempts.partition_point(|other| other.at < attempt.at);
        if self.attempts.get(place) != Some(&attempt) {
            self.attempts.insert(place, attempt);
        }
        if self.state == RunState::Pending {
            self.state = RunState::Started;
        }
    }
}

fn as_text<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_optional_text<T: std::fmt::Display, S: Serializer>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => s.collect_str(value),
        None => s.serialize_none(),
    }
}

/// How a run ended: what its DONE says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Why it is dead; `None` if it ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<Death>,
    /// What it printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Why a run was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// The error's code.
    pub code: String,
    /// What was wrong.
    pub error: String,
}

impl Ending {
    /// The end of a run that ended well.
    pub fn well(output: &[u8]) -> Self {
        Self { dead: None, output: String::from_utf8_lossy(output).into_owned() }
    }

    /// The end of a run that was given up.
    pub fn dead(error: &Error, output: &[u8]) -> Self {
        let death = Death { code: error.code().id().into(), error: error.detail().into() };
        Self { dead: Some(death), ..Self::well(output) }
    }

    /// What its DONE says, but for what led to it.
    pub fn to_end(&self) -> End<'_> {
        let end = End { output: &self.output, ..End::default() };
        match &self.dead {
            None => end,
            Some(death) => End { outcome: Outcome::Dead, code: &death.code, error: &death.error, ..end },
        }
    }

    /// What a DONE says.
    pub fn of(end: &End<'_>) -> Self {
        let death = || Death { code: end.code.into(), error: end.error.into() };
        Self { dead: (end.outcome != Outcome::Done).then(death), output: end.output.into() }
    }
}

/// The record that a CALL asked for: its log, if that is a name, and its seqno.
fn read_by_call(entry: &Entry) -> Option<(Option<LogName>, u64)> {
    let call = call::Call::decode(entry.seqno, &entry.payload)?;
    match (&call.question, &call.answer) {
        (call::Question::Get { log, seqno }, _) => Some((log.parse().ok(), *seqno)),
        (call::Question::Latest { log }, call::Answer::Number(seqno)) => Some((log.parse().ok(), *seqno)),
        _ => None,
    }
}

impl Namespace {
    /// The newest runs that the filter admits, newest first.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>> {
        let catalog = self.journal().catalog()?;
        let function = filter
            .function
            .as_ref()
            .map(|name| catalog.function(name).map(|f| f.id()).ok_or_else(|| crate::namespace::no_function(name)));
        let log = filter.log.as_ref().map(|name| crate::namespace::found(catalog.log(name), name).map(|l| l.id()));
        let (function, log) = (function.transpose()?, log.transpose()?);
        let wanted = |entry: &Entry| {
            filter.before.is_none_or(|before| entry.id < before)
                && function.is_none_or(|id| id == entry.subject)
                && log.is_none_or(|id| entry.trigger_record().is_some_and(|(log, _)| log == id))
        };
        let mut story = Story::new(&catalog, filter.state, filter.limit);
        story.read(self.journal(), &wanted)?;
        let mut runs: Vec<RunView> = story.runs.into_values().rev().filter(|run| story.state.admits(run)).collect();
        runs.truncate(filter.limit);
        Ok(runs)
    }

    /// One run.
    pub fn run(&self, id: EventId) -> Result<RunView> {
        let catalog = self.journal().catalog()?;
        let mut story = Story::new(&catalog, None, 1);
        story.read(self.journal(), &|entry| entry.id == id)?;
        story.runs.remove(&id).ok_or_else(|| Code::RunNotFound.error(format!("no run {id}")))
    }
}

/// The state asked for.
#[derive(Clone, Copy)]
struct StateFilter(Option<RunState>);

impl StateFilter {
    fn admits(self, run: &RunView) -> bool {
        self.0.is_none_or(|state| state == run.state)
    }
}

/// The runs met so far while the journal is read.
struct Story<'a> {
    catalog: &'a Catalog,
    state: StateFilter,
    limit: usize,
    runs: BTreeMap<EventId, RunView>,
    /// The last APPEND read, and its cause, unless that is only claimed: triggers follow the append that caused them.
    append: (EventId, EventId),
    /// The runs that were given up, by the APPEND of their dead letter.
    letters: HashMap<EventId, EventId>,
}

impl<'a> Story<'a> {
    fn new(catalog: &'a Catalog, state: Option<RunState>, limit: usize) -> Self {
        let (state, append, letters) = (StateFilter(state), Default::default(), HashMap::new());
        Self { catalog, state, limit, runs: BTreeMap::new(), append, letters }
    }

    fn read(&mut self, journal: &Journal, wanted: &dyn Fn(&Entry) -> bool) -> Result<()> {
        // Up to the tail as it is now: a busy journal would otherwise keep us reading.
        let tail = journal.tail();
        let mut scan = journal.scan(Position::default());
        while scan.position() < tail {
            match scan.next() {
                Ok(Some(entry)) => self.tell(entry, wanted),
                Ok(None) => break,
                Err(error) => skip_damaged(error)?,
            }
        }
        Ok(())
    }

    fn tell(&mut self, entry: &Entry, wanted: &dyn Fn(&Entry) -> bool) {
        // What is bound to a log of dead letters is triggered with the letter, before the end of the run that left it.
        if entry.kind == Kind::Trigger
            && let Some(dead) = self.letters.get(&entry.cause)
            && let Some(run) = self.runs.get_mut(dead)
        {
            run.retried_as = Some(entry.id);
        }
        match entry.kind {
            Kind::Trigger if wanted(entry) => self.triggered(entry),
            Kind::Append if entry.claimed => self.append = (entry.id, EventId::NONE),
            Kind::Append => {
                self.append = (entry.id, entry.cause);
                let record = self.record(entry.subject, entry.seqno);
                self.of(entry, |run| listed(&mut run.appends, record));
            }
            Kind::Read => {
                for row in entry.reads() {
                    let log = match row.log {
                        ReadFrom::Log(id) => self.record(id, 0).log,
                        ReadFrom::Name(name) => name.parse().ok(),
                    };
                    let seqnos = row.from..row.from.saturating_add(row.count.min(LISTED_MAX as u64));
                    self.of(entry, |run| {
                        seqnos.for_each(|seqno| listed(&mut run.reads, RecordRef { log: log.clone(), seqno }));
                    });
                }
            }
            Kind::Call => {
                if let Some((log, seqno)) = read_by_call(entry) {
                    self.of(entry, |run| listed(&mut run.reads, RecordRef { log, seqno }));
                }
            }
            Kind::Fired => {
                if let Some(attempt) = entry.attempt().filter(|attempt| !attempt.waits) {
                    self.of(entry, |run| run.attempted(Attempt { attempt: attempt.attempt.into(), at: entry.hlc }));
                }
            }
            Kind::Done => {
                let ending = Ending::of(&entry.ending().unwrap_or_default());
                if ending.dead.is_some() && self.append.1 == entry.cause {
                    self.letters.insert(self.append.0, entry.cause);
                }
                self.of(entry, |run| {
                    run.state = if ending.dead.is_some() { RunState::Dead } else { RunState::Done };
                    run.ended = Some(entry.hlc);
                    run.ending = Some(ending);
                });
                if self.runs.get(&entry.cause).is_some_and(|run| !self.state.admits(run)) {
                    self.runs.remove(&entry.cause);
                }
            }
            _ => {}
        }
    }

    fn triggered(&mut self, entry: &Entry) {
        let (log, seqno) = entry.trigger_record().unwrap_or_default();
        let caused_by = match self.letters.get(&entry.cause) {
            Some(dead) => *dead,
            None if self.append.0 == entry.cause => self.append.1,
            None => EventId::NONE,
        };
        let view = RunView {
            id: entry.id,
            function: self.catalog.function_by_id(entry.subject).map(|function| function.name().clone()),
            state: RunState::Pending,
            record: self.record(log, seqno),
            cause: entry.cause,
            caused_by,
            triggered: entry.hlc,
            ended: None,
            attempts: Vec::new(),
            reads: Vec::new(),
            appends: Vec::new(),
            retried_as: None,
            ending: None,
        };
        self.runs.entry(entry.id).or_insert(view); // it is there already if it was carried forward
        if self.runs.len() > self.limit {
            // The oldest that is to be listed has dropped out; those not (yet) in the state asked for are no more than
            // the pending runs.
            let oldest = self.runs.values().find(|run| self.state.admits(run)).map(|run| run.id);
            let listed = self.runs.values().filter(|run| self.state.admits(run)).take(self.limit + 1).count();
            if let Some(oldest) = oldest.filter(|_| listed > self.limit) {
                self.runs.remove(&oldest);
            }
        }
    }

    fn of(&mut self, entry: &Entry, tell: impl FnOnce(&mut RunView)) {
        if let Some(run) = self.runs.get_mut(&entry.cause) {
            tell(run);
        }
    }

    fn record(&self, log: u32, seqno: u64) -> RecordRef {
        RecordRef { log: self.catalog.log_by_id(log).map(|log| log.name().clone()), seqno }
    }
}

/// A damaged entry is passed over: the scan goes on behind it, and `journal check` tells where it is.
fn skip_damaged(error: Error) -> Result<()> {
    if error.code() == Code::EntryDamaged { Ok(()) } else { Err(error) }
}

fn listed(list: &mut Vec<RecordRef>, record: RecordRef) {
    if list.len() < LISTED_MAX {
        list.push(record);
    }
}

/// The pending runs of a namespace, found by reading its journal, and kept up with it.
pub struct Pending {
    scan: Scan,
    runs: BTreeMap<EventId, PendingRun>,
    /// The newest record that was passed: triggers follow theirs.
    newest: (u32, u64, Position),
    /// Attempts of runs whose TRIGGER has not been met, because it was carried forward past them. They leave with their DONE.
    ahead: HashMap<EventId, u32>,
}

/// What is known of a pending run.
#[derive(Clone, Copy)]
pub struct PendingRun {
    /// Its id.
    pub id: EventId,
    /// Its number among the runs of its function.
    pub number: u64,
    /// Its function.
    pub function: u32,
    /// The log of its record.
    pub log: u32,
    /// The place of its record there.
    pub seqno: u64,
    /// Attempts so far.
    pub attempts: u32,
    /// Where its record stands, as far as the journal tells.
    pub record: Option<Position>,
}

impl PendingRun {
    /// The run, as the journal names it.
    pub fn run(&self) -> Run {
        Run { id: self.id, number: self.number }
    }
}

impl Pending {
    /// Reads the whole journal.
    pub fn of(journal: &Journal) -> Result<Self> {
        let newest = (0, 0, Position::default());
        let (scan, runs, ahead) = (journal.scan(Position::default()), BTreeMap::new(), HashMap::new());
        let mut pending = Self { scan, runs, newest, ahead };
        pending.catch_up(journal.tail())?;
        Ok(pending)
    }

    /// Reads on to `tail`; under the journal's lock that is a matter of the few entries since the last time.
    pub fn catch_up(&mut self, tail: Position) -> Result<()> {
        while self.scan.position() < tail {
            let entry = match self.scan.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    skip_damaged(error)?;
                    continue;
                }
            };
            match entry.kind {
                Kind::Append => self.newest = (entry.subject, entry.seqno, entry.position),
                Kind::Trigger => {
                    let (log, seqno) = entry.trigger_record().unwrap_or_default();
                    let record = ((self.newest.0, self.newest.1) == (log, seqno)).then_some(self.newest.2);
                    let known = self.runs.get(&entry.id).map(|run| run.attempts);
                    let attempts = known.or_else(|| self.ahead.remove(&entry.id)).unwrap_or(0);
                    let (id, number) = (entry.id, entry.seqno);
                    let run = PendingRun { id, number, function: entry.subject, log, seqno, attempts, record };
                    self.runs.insert(entry.id, run);
                }
                Kind::Fired => {
                    let Some(attempt) = entry.attempt().filter(|attempt| !attempt.waits) else { continue };
                    let known = self.runs.get_mut(&entry.cause).map(|run| &mut run.attempts);
                    let attempts = known.unwrap_or_else(|| self.ahead.entry(entry.cause).or_default());
                    *attempts = (*attempts).max(attempt.attempt);
                }
                Kind::Done => {
                    self.runs.remove(&entry.cause);
                    self.ahead.remove(&entry.cause);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether this run is pending.
    pub fn contains(&self, run: EventId) -> bool {
        self.runs.contains_key(&run)
    }

    /// The oldest pending run that a record of this log caused.
    pub fn of_log(&self, log: u32) -> Option<EventId> {
        self.runs.values().find(|run| run.log == log).map(|run| run.id)
    }

    /// The pending runs of this function, oldest first.
    pub fn of_function(&self, function: u32) -> impl Iterator<Item = PendingRun> {
        self.runs.values().filter(move |run| run.function == function).copied()
    }
}
