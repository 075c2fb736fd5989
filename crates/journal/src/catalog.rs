//! What a namespace defines: its logs and functions, folded from DEFINE entries.

use crate::{
    medium::Medium,
    store::{
        control::Control,
        index::{self, Index},
        json::{self, Unread},
        manifest,
        segments::io_error,
    },
};
use millrace_wire::{Code, LogName, Name, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The longest history of a log.
pub const HISTORY_MAX: u64 = 1 << 28;

/// What a DEFINE entry's payload says, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "define", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Definition {
    Log { id: u32, name: LogName, history: u64 },
    RemoveLog { id: u32 },
    Function { id: u32, name: Name, attributes: String, revision: u32 },
    RemoveFunction { id: u32 },
    Pin { id: u32, from: u64, bytes_max: u64, until_us: u64, owner: String },
    RemovePin { id: u32 },
}

/// What keeps the journal from a position on from retention; see [`crate::Journal::pin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Never reused.
    pub id: u32,
    /// Everything from this position on is kept.
    pub from: u64,
    /// It ends when there are more bytes than this from `from` to the journal's end.
    pub bytes_max: u64,
    /// It ends then, in microseconds since 1970.
    pub until_us: u64,
    /// Who wants it, and what for.
    pub owner: String,
}

impl Pin {
    pub(crate) fn definition(&self) -> Definition {
        let Pin { id, from, bytes_max, until_us, owner } = self.clone();
        Definition::Pin { id, from, bytes_max, until_us, owner }
    }
}

impl Definition {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always serialises")
    }

    pub fn decode(payload: &[u8]) -> Result<Self> {
        json::decode(payload).map_err(|error| match error {
            Unread::TooNew(what) => Code::FormatVersion.error(format!("a definition: {what}")),
            Unread::Malformed(what) => Code::EntryDamaged.error(format!("a definition: {what}")),
        })
    }
}

/// What the transaction in progress has done to a log's or function's counters, before it is committed.
#[derive(Default)]
struct Staged {
    transaction: AtomicU64,
    latest: AtomicU64,
    done: AtomicU64,
}

struct Counters {
    index: Index,
    /// Only touched under the journal's lock.
    staged: Staged,
}

impl Counters {
    fn new(index: Index) -> Arc<Self> {
        Arc::new(Self { index, staged: Staged::default() })
    }

    fn enter(&self, transaction: u64) -> &Staged {
        if self.staged.transaction.swap(transaction, Ordering::Relaxed) != transaction {
            self.staged.latest.store(self.index.latest(), Ordering::Relaxed);
            self.staged.done.store(self.index.done(), Ordering::Relaxed);
        }
        &self.staged
    }

    /// The next number of `word`, within this transaction.
    fn next(word: &AtomicU64) -> u64 {
        let next = word.load(Ordering::Relaxed) + 1;
        word.store(next, Ordering::Relaxed);
        next
    }
}

struct LogInner {
    id: u32,
    name: LogName,
    history: u64,
    counters: Arc<Counters>,
    /// Where the end of the committed journal stands.
    control: Control,
    removed: AtomicBool,
}

/// A log, ready for use. Cheap to clone; stays valid while the log exists.
#[derive(Clone)]
pub struct Log(Arc<LogInner>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({} '{}')", self.0.id, self.0.name)
    }
}

impl Log {
    pub(crate) fn new(id: u32, name: LogName, history: u64, index: Index, control: Control) -> Self {
        let (counters, removed) = (Counters::new(index), AtomicBool::new(false));
        Self(Arc::new(LogInner { id, name, history, counters, control, removed }))
    }

    /// Whether it was handed out by the journal that has this control page open.
    pub(crate) fn is_of(&self, control: &Control) -> bool {
        self.0.control.is(control)
    }

    /// Unique in the namespace, for ever.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The log's name.
    pub fn name(&self) -> &LogName {
        &self.0.name
    }

    /// How many of its newest records a log keeps.
    pub fn history(&self) -> u64 {
        self.0.history
    }

    /// The newest record's seqno, 0 if there is none.
    #[inline]
    pub fn latest(&self) -> u64 {
        let latest = self.index().latest();
        if self.is_visible(latest) { latest } else { self.latest_slowly(latest) }
    }

    /// A commit brings the index up to date before it shows the batch: what stands behind the tail is not there yet.
    fn is_visible(&self, seqno: u64) -> bool {
        seqno == 0 || self.index().position(seqno) < self.0.control.published.tail.load(Ordering::Acquire)
    }

    #[cold]
    fn latest_slowly(&self, latest: u64) -> u64 {
        let oldest = latest.saturating_sub(self.index().slots());
        (oldest + 1..=latest).rev().find(|seqno| self.is_visible(*seqno)).unwrap_or(oldest)
    }

    /// The oldest kept record's seqno; 0 if there never was a record, and one more than the newest if all were trimmed.
    pub fn earliest(&self) -> u64 {
        match self.latest() {
            0 => 0,
            latest => self.earliest_at(latest),
        }
    }

    /// The oldest seqno that is kept while `latest` is the newest.
    #[inline]
    pub(crate) fn earliest_at(&self, latest: u64) -> u64 {
        (latest.saturating_sub(self.history()) + 1).max(self.index().floor())
    }

    pub(crate) fn index(&self) -> &Index {
        &self.0.counters.index
    }

    pub(crate) fn next_seqno(&self, transaction: u64) -> u64 {
        Counters::next(&self.0.counters.enter(transaction).latest)
    }

    /// Notes within this transaction that records before `before` are trimmed; whether that is news.
    pub(crate) fn trim_to(&self, transaction: u64, before: u64) -> Result<bool> {
        let staged = self.0.counters.enter(transaction);
        let next = staged.latest.load(Ordering::Relaxed) + 1;
        if before > next {
            return Err(Code::AboveTail.error(format!(
                "log '{}' cannot be trimmed up to record {before}: its next one is {next}",
                self.name()
            )));
        }
        Ok(staged.done.fetch_max(before, Ordering::Relaxed) < before)
    }

    /// An error if the log was removed.
    pub fn check_exists(&self) -> Result<()> {
        if self.0.removed.load(Ordering::Relaxed) {
            return Err(Code::LogNotFound.error(format!("log '{}' was removed", self.name())));
        }
        Ok(())
    }
}

struct FunctionInner {
    id: u32,
    name: Name,
    attributes: String,
    revision: u32,
    counters: Arc<Counters>,
}

/// A function's definition and counters.
#[derive(Clone)]
pub struct Function(Arc<FunctionInner>);

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} '{}')", self.0.id, self.0.name)
    }
}

impl Function {
    pub(crate) fn new(id: u32, name: Name, attributes: String, revision: u32, index: Index) -> Self {
        Self(Arc::new(FunctionInner { id, name, attributes, revision, counters: Counters::new(index) }))
    }

    fn redefined(&self, attributes: String, revision: u32) -> Self {
        let (name, counters) = (self.0.name.clone(), self.0.counters.clone());
        Self(Arc::new(FunctionInner { id: self.0.id, name, attributes, revision, counters }))
    }

    /// Unique in the namespace, for ever.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The function's name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// What the definer said of it; opaque to the journal.
    pub fn attributes(&self) -> &str {
        &self.0.attributes
    }

    /// Counts its definitions, from 1 on: a FIRED names the one that runs.
    pub fn revision(&self) -> u32 {
        self.0.revision
    }

    /// How many runs were ever triggered.
    pub fn triggered(&self) -> u64 {
        self.index().latest()
    }

    /// How many runs have ended for good.
    pub fn done(&self) -> u64 {
        self.index().done()
    }

    /// How many runs are pending.
    pub fn pending(&self) -> u64 {
        self.triggered().saturating_sub(self.done())
    }

    pub(crate) fn index(&self) -> &Index {
        &self.0.counters.index
    }

    pub(crate) fn next_trigger(&self, transaction: u64) -> u64 {
        Counters::next(&self.0.counters.enter(transaction).latest)
    }

    pub(crate) fn next_done(&self, transaction: u64) -> u64 {
        Counters::next(&self.0.counters.enter(transaction).done)
    }

    pub(crate) fn pending_in(&self, transaction: u64) -> u64 {
        let staged = self.0.counters.enter(transaction);
        staged.latest.load(Ordering::Relaxed).saturating_sub(staged.done.load(Ordering::Relaxed))
    }
}

#[derive(Clone)]
pub(crate) enum Subject {
    Log(Log),
    Function(Function),
}

impl Subject {
    pub fn index(&self) -> &Index {
        match self {
            Subject::Log(log) => log.index(),
            Subject::Function(function) => function.index(),
        }
    }
}

/// How a catalog comes by the indexes of what it defines.
pub(crate) struct Indexes<'a> {
    pub medium: &'a dyn Medium,
    pub control: &'a Control,
    /// Whether empty ones are made; otherwise those are used that are there.
    pub fresh: bool,
    /// What is known already keeps its counters: of each id there is one set in a process, or two handles in one batch
    /// would give out one number twice.
    pub known: Option<&'a Catalog>,
    /// Ids that a later definition removes: their indexes may be gone.
    pub removed: HashSet<u32>,
}

impl Indexes<'_> {
    fn index(&self, id: u32, history: u64) -> Result<Index> {
        let index =
            if self.fresh { Index::create(self.medium, id, history) } else { Index::open(self.medium, id, history) };
        index.map_err(|error| io_error(index::name(id), &error))
    }
}

/// All logs and functions of a namespace at one moment.
#[derive(Clone, Default)]
pub struct Catalog {
    version: u64,
    next_id: u32,
    logs: BTreeMap<LogName, Log>,
    functions: BTreeMap<Name, Function>,
    pins: BTreeMap<u32, Pin>,
    by_id: Vec<Option<Subject>>,
}

impl Catalog {
    /// Grows with every definition; equal versions are equal catalogs.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The logs, by name.
    pub fn logs(&self) -> impl Iterator<Item = &Log> {
        self.logs.values()
    }

    /// The functions, by name.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// The pins, by id; one that is over stays until retention removes it.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.values()
    }

    pub(crate) fn pin(&self, id: u32) -> Option<&Pin> {
        self.pins.get(&id)
    }

    /// The log of this name.
    pub fn log(&self, name: &str) -> Option<&Log> {
        self.logs.get(name)
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// The log with this id.
    pub fn log_by_id(&self, id: u32) -> Option<&Log> {
        match self.subject(id) {
            Some(Subject::Log(log)) => Some(log),
            _ => None,
        }
    }

    /// The function with this id.
    pub fn function_by_id(&self, id: u32) -> Option<&Function> {
        match self.subject(id) {
            Some(Subject::Function(function)) => Some(function),
            _ => None,
        }
    }

    pub(crate) fn subject(&self, id: u32) -> Option<&Subject> {
        self.by_id.get(id as usize)?.as_ref()
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Tells the handles of logs that another catalog does not have. Returns the ids of logs and functions that it lacks.
    pub(crate) fn mark_removed(&self, other: &Catalog) -> Vec<u32> {
        for log in self.logs.values().filter(|log| other.log_by_id(log.id()).is_none()) {
            log.0.removed.store(true, Ordering::Relaxed);
        }
        let ids = (0..self.by_id.len() as u32).filter(|id| self.subject(*id).is_some());
        ids.filter(|id| other.subject(*id).is_none()).collect()
    }

    /// A checksum of all counters.
    pub(crate) fn counters_mark(&self) -> u64 {
        let mut bytes = Vec::with_capacity(self.by_id.len() * 20);
        for (id, subject) in self.by_id.iter().enumerate() {
            if let Some(subject) = subject {
                bytes.extend_from_slice(&(id as u32).to_le_bytes());
                bytes.extend_from_slice(&subject.index().latest().to_le_bytes());
                bytes.extend_from_slice(&subject.index().done().to_le_bytes());
            }
        }
        u64::from(crc_fast::crc32_iscsi(&bytes))
    }

    pub(crate) fn next_id(&self) -> u32 {
        self.next_id
    }

    /// The catalog a manifest describes.
    pub(crate) fn from_manifest(manifest: &manifest::Manifest, indexes: &Indexes<'_>) -> Result<Self> {
        let mut catalog = Catalog { version: manifest.defined, next_id: manifest.next_id, ..Default::default() };
        for row in &manifest.logs {
            let definition = Definition::Log { id: row.id, name: row.name.clone(), history: row.history };
            catalog.apply(&definition, manifest.defined, indexes)?;
        }
        for row in &manifest.functions {
            let (name, attributes) = (row.name.clone(), row.attributes.clone());
            let definition = Definition::Function { id: row.id, name, attributes, revision: row.revision };
            catalog.apply(&definition, manifest.defined, indexes)?;
        }
        for pin in &manifest.pins {
            catalog.apply(&pin.definition(), manifest.defined, indexes)?;
        }
        for (id, latest, done) in manifest
            .logs
            .iter()
            .map(|row| (row.id, row.latest, row.trimmed))
            .chain(manifest.functions.iter().map(|row| (row.id, row.triggered, row.done)))
        {
            if let Some(subject) = catalog.subject(id) {
                subject.index().raise_latest(latest);
                subject.index().raise_done(done);
            }
        }
        Ok(catalog)
    }

    /// Folds one definition that stands at `position`.
    pub(crate) fn apply(&mut self, definition: &Definition, position: u64, indexes: &Indexes<'_>) -> Result<()> {
        match definition {
            Definition::Log { id, .. } | Definition::Function { id, .. } if indexes.removed.contains(id) => {
                self.next_id = self.next_id.max(id + 1);
            }
            Definition::Log { id, name, history } => {
                let log = match indexes.known.and_then(|known| known.log_by_id(*id)) {
                    Some(log) => log.clone(),
                    None => {
                        let index = indexes.index(*id, *history)?;
                        Log::new(*id, name.clone(), *history, index, indexes.control.clone())
                    }
                };
                self.insert_log(log);
            }
            Definition::Function { id, name, attributes, revision } => {
                let known = indexes.known.and_then(|known| known.function_by_id(*id));
                let function = match self.function_by_id(*id).or(known) {
                    Some(function) => function.redefined(attributes.clone(), *revision),
                    None => Function::new(*id, name.clone(), attributes.clone(), *revision, indexes.index(*id, 0)?),
                };
                self.insert_function(function);
            }
            Definition::RemoveLog { id } => {
                if let Some(log) = self.log_by_id(*id).cloned() {
                    self.logs.remove(&**log.name());
                    self.by_id[*id as usize] = None;
                }
            }
            Definition::Pin { id, from, bytes_max, until_us, owner } => {
                let (id, from, bytes_max, until_us) = (*id, *from, *bytes_max, *until_us);
                self.pins.insert(id, Pin { id, from, bytes_max, until_us, owner: owner.clone() });
                self.next_id = self.next_id.max(id + 1);
            }
            Definition::RemovePin { id } => drop(self.pins.remove(id)),
            Definition::RemoveFunction { id } => {
                if let Some(function) = self.function_by_id(*id).cloned() {
                    self.functions.remove(&**function.name());
                    self.by_id[*id as usize] = None;
                }
            }
        }
        self.version = self.version.max(position);
        Ok(())
    }

    pub(crate) fn insert_log(&mut self, log: Log) {
        self.place(log.id(), Subject::Log(log.clone()));
        self.logs.insert(log.name().clone(), log);
    }

    pub(crate) fn insert_function(&mut self, function: Function) {
        self.place(function.id(), Subject::Function(function.clone()));
        self.functions.insert(function.name().clone(), function);
    }

    fn place(&mut self, id: u32, subject: Subject) {
        let at = id as usize;
        if self.by_id.len() <= at {
            self.by_id.resize(at + 1, None);
        }
        self.by_id[at] = Some(subject);
        self.next_id = self.next_id.max(id + 1);
    }
}
