//! The definitions of a namespace: its logs and functions, folded from DEFINE entries.

use crate::{
    extent::Extent,
    persistent::{Hashed, Keyed, Sorted, Table},
    store::{
        arena::{self, Arena},
        control::Control,
        index::{Index, Item, Role},
        json::{self, Unread},
        manifest,
        segments::io_error,
        slot::WRONG,
    },
};
use millrace_wire::{Code, HISTORY_ALL, HISTORY_MAX, LogName, Name, Result, table::TableOptions};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Refuses a history that no log can have.
pub(crate) fn check_history(log: &LogName, history: u64) -> Result<()> {
    if history != HISTORY_ALL && !(1..=HISTORY_MAX).contains(&history) {
        return Err(Code::HistoryInvalid.error(format!("a history of {history} records for log '{log}'")));
    }
    Ok(())
}

/// A history as definitions encode it: 0 means [`HISTORY_ALL`].
pub(crate) fn defined_history(history: u64) -> u64 {
    if history == HISTORY_ALL { 0 } else { history }
}

pub(crate) fn history_of(defined: u64) -> u64 {
    if defined == 0 { HISTORY_ALL } else { defined }
}

/// The payload of a DEFINE entry, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "define", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Definition {
    Log {
        id: u32,
        name: LogName,
        history: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<TableOptions>,
    },
    LogHistory {
        id: u32,
        history: u64,
    },
    RemoveLog {
        id: u32,
    },
    Function {
        id: u32,
        name: Name,
        attributes: String,
        revision: u32,
        #[serde(rename = "before?", default, skip_serializing_if = "Option::is_none")]
        before: Option<Before>,
    },
    RemoveFunction {
        id: u32,
        #[serde(rename = "before?", default, skip_serializing_if = "Option::is_none")]
        before: Option<Before>,
    },
    Pin {
        id: u32,
        from: u64,
        bytes_max: u64,
        until_us: u64,
        owner: String,
    },
    RemovePin {
        id: u32,
    },
}

/// The definition of a function that another DEFINE replaces. Runs of it may be kept for longer than its own DEFINE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Before {
    pub name: Name,
    pub attributes: String,
    pub revision: u32,
}

/// Protects the journal after a position from retention; see [`crate::Journal::pin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Never reused.
    pub id: u32,
    /// Everything from this position on is kept.
    pub from: u64,
    /// It ends when the journal from `from` on is longer than this.
    pub bytes_max: u64,
    /// It ends at this time, in microseconds since 1970.
    pub until_us: u64,
    /// Its owner and purpose.
    pub owner: String,
}

impl Pin {
    pub(crate) fn definition(&self) -> Definition {
        let Pin { id, from, bytes_max, until_us, owner } = self.clone();
        Definition::Pin { id, from, bytes_max, until_us, owner }
    }
}

/// The key of the definition that a DEFINE replaces: a reader that does not know it needs it only for repairs.
const BEFORE: &str = "before?";

impl Definition {
    /// A function, and its definition before.
    pub fn of_function(id: u32, name: &Name, attributes: &str, revision: u32, before: Option<Before>) -> Self {
        Self::Function { id, name: name.clone(), attributes: attributes.to_owned(), revision, before }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always serialises")
    }

    pub fn decode(payload: &[u8]) -> Result<Self> {
        json::decode_with(payload, &[BEFORE]).map_err(|error| match error {
            Unread::TooNew(what) => Code::FormatVersion.error(format!("a definition: {what}")),
            Unread::Malformed(what) => Code::EntryDamaged.error(format!("a definition: {what}")),
        })
    }
}

/// The changes of the transaction in progress to a log's or function's counters.
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
    fn new(index: Index) -> Self {
        Self { index, staged: Staged::default() }
    }

    fn enter(&self, transaction: u64) -> &Staged {
        if self.staged.transaction.swap(transaction, Ordering::Relaxed) != transaction {
            self.staged.latest.store(self.index.latest(), Ordering::Relaxed);
            self.staged.done.store(self.index.ended(), Ordering::Relaxed);
        }
        &self.staged
    }

    /// The next number within this transaction, with a place in the index.
    #[inline]
    fn next(&self, transaction: u64) -> io::Result<u64> {
        let latest = &self.enter(transaction).latest;
        let next = latest.load(Ordering::Relaxed) + 1;
        self.index.make_room(next)?;
        latest.store(next, Ordering::Relaxed);
        Ok(next)
    }
}

struct LogInner {
    id: u32,
    name: LogName,
    table: Option<TableOptions>,
    counters: Counters,
    /// The word with the end of the committed journal.
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
    pub(crate) fn new(id: u32, name: LogName, table: Option<TableOptions>, index: Index, control: Control) -> Self {
        let (counters, removed) = (Counters::new(index), AtomicBool::new(false));
        Self(Arc::new(LogInner { id, name, table, counters, control, removed }))
    }

    /// Whether it belongs to the journal that has this control page open.
    pub(crate) fn is_of(&self, control: &Control) -> bool {
        self.0.control.is(control)
    }

    /// Unique in the namespace, and never reused.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The log's name.
    pub fn name(&self) -> &LogName {
        &self.0.name
    }

    /// Its attributes as a table; `None` if its records have no keys.
    pub fn table(&self) -> Option<&TableOptions> {
        self.0.table.as_ref()
    }

    /// How many of its newest records a log keeps; [`HISTORY_ALL`] if they are kept until they are trimmed. It may change at any
    /// time, and every process sees the change with the commit that makes it.
    #[inline]
    pub fn history(&self) -> u64 {
        self.index().history()
    }

    /// The newest record's seqno, 0 if there is none.
    #[inline]
    pub fn latest(&self) -> u64 {
        let latest = self.index().latest();
        if self.is_visible(latest) { latest } else { self.latest_slowly(latest) }
    }

    /// A commit updates the index before it makes the batch visible: entries after the tail do not exist yet.
    fn is_visible(&self, seqno: u64) -> bool {
        let position = if seqno == 0 { 0 } else { self.index().position(seqno) };
        // A damaged slot hides no record: its reader corrects it.
        position < self.0.control.published.tail.load(Ordering::Acquire) || position == WRONG
    }

    #[cold]
    fn latest_slowly(&self, latest: u64) -> u64 {
        let oldest = latest.saturating_sub(self.index().capacity());
        (oldest + 1..=latest).rev().find(|seqno| self.is_visible(*seqno)).unwrap_or(oldest)
    }

    /// The oldest kept record's seqno; 0 if there never was a record, and one more than the newest if all were trimmed.
    pub fn earliest(&self) -> u64 {
        match self.latest() {
            0 => 0,
            latest => self.earliest_at(latest),
        }
    }

    /// What can be read while `latest` is the newest record, with the history that the log has now, and after the trims until now.
    #[inline]
    pub fn extent_at(&self, latest: u64) -> Extent {
        Extent { latest, history: self.history(), floor: self.index().floor() }
    }

    /// The oldest seqno that is kept while `latest` is the newest.
    #[inline]
    pub(crate) fn earliest_at(&self, latest: u64) -> u64 {
        self.extent_at(latest).earliest()
    }

    pub(crate) fn index(&self) -> &Index {
        &self.0.counters.index
    }

    pub(crate) fn next_seqno(&self, transaction: u64) -> Result<u64> {
        self.0.counters.next(transaction).map_err(|error| io_error(arena::NAME, &error))
    }

    /// Has the next record within this transaction this number, which no earlier one has.
    pub(crate) fn go_on_with(&self, transaction: u64, seqno: u64) -> Result<()> {
        let latest = &self.0.counters.enter(transaction).latest;
        let before = latest.load(Ordering::Relaxed);
        if seqno <= before {
            let detail = format!("record {seqno} of log '{}', whose newest record is {before}", self.name());
            return Err(Code::ValueInvalid.error(detail));
        }
        latest.store(seqno - 1, Ordering::Relaxed);
        Ok(())
    }

    /// Records within this transaction that records before `before` are trimmed; returns whether this is a change.
    pub(crate) fn trim_to(&self, transaction: u64, before: u64) -> Result<bool> {
        let staged = self.0.counters.enter(transaction);
        let next = staged.latest.load(Ordering::Relaxed) + 1;
        if before > next {
            return Err(Code::AboveTail.error(format!(
                "log '{}' cannot be trimmed before record {before}: its next record is {next}, and {next} trims all records",
                self.name()
            )));
        }
        Ok(staged.done.fetch_max(before, Ordering::Relaxed) < before)
    }

    /// Marks the handles of a log as removed.
    pub(crate) fn mark_removed(&self) {
        self.0.removed.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the log was removed.
    pub fn check_exists(&self) -> Result<()> {
        if self.0.removed.load(Ordering::Relaxed) || self.index().role().is_none() {
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
        let counters = Arc::new(Counters::new(index));
        Self(Arc::new(FunctionInner { id, name, attributes, revision, counters }))
    }

    fn redefined(&self, attributes: String, revision: u32) -> Self {
        let (name, counters) = (self.0.name.clone(), self.0.counters.clone());
        Self(Arc::new(FunctionInner { id: self.0.id, name, attributes, revision, counters }))
    }

    /// Unique in the namespace, and never reused.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The function's name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Opaque attributes of the definition; the journal does not interpret them.
    pub fn attributes(&self) -> &str {
        &self.0.attributes
    }

    /// Counts its definitions, from 1 on: a FIRED names the one that runs.
    pub fn revision(&self) -> u32 {
        self.0.revision
    }

    /// What the DEFINE that replaces it says of it.
    pub(crate) fn as_before(&self) -> Before {
        Before { name: self.name().clone(), attributes: self.attributes().to_owned(), revision: self.revision() }
    }

    /// How many runs were ever triggered.
    pub fn triggered(&self) -> u64 {
        self.index().latest()
    }

    /// How many runs have ended permanently.
    pub fn done(&self) -> u64 {
        self.index().ended()
    }

    /// How many runs are pending.
    pub fn pending(&self) -> u64 {
        self.triggered().saturating_sub(self.done())
    }

    pub(crate) fn index(&self) -> &Index {
        &self.0.counters.index
    }

    pub(crate) fn next_trigger(&self, transaction: u64) -> Result<u64> {
        self.0.counters.next(transaction).map_err(|error| io_error(arena::NAME, &error))
    }

    /// How many items are closed after the one with this number is closed in this transaction.
    pub(crate) fn next_done(&self, transaction: u64, number: u64, has_ended: bool) -> Result<u64> {
        let staged = self.0.counters.enter(transaction);
        if has_ended {
            return Ok(staged.done.load(Ordering::Relaxed));
        }
        // A run that was lost to damage has an item from now on.
        self.index().make_room(number).map_err(|error| io_error(arena::NAME, &error))?;
        Ok(staged.done.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The position of a run's newest entry, by its number; `None` if it is no longer known.
    pub fn run(&self, number: u64) -> Option<Item> {
        self.index().read_item(number)
    }

    /// The number of the first run from this one on that the index still knows.
    pub fn next_known(&self, number: u64) -> Option<u64> {
        self.index().next_gated(number)
    }

    /// The number of the last run up to this one that the index still knows.
    pub fn previous_known(&self, number: u64) -> Option<u64> {
        self.index().previous_gated(number)
    }

    /// The number of the first run from this one on that is pending.
    pub fn next_pending(&self, number: u64) -> Option<u64> {
        self.index().next_open(number)
    }

    /// The number of the last run up to this one that is pending.
    pub fn previous_pending(&self, number: u64) -> Option<u64> {
        self.index().previous_open(number)
    }

    /// How many runs are pending among those numbered from `from` on and before `to`, as the index says: no entry is read.
    pub fn count_pending(&self, from: u64, to: u64) -> u64 {
        self.index().count_open(from, to)
    }

    /// Numbers of runs that are neither pending nor known to have ended, the newest first.
    pub fn unknown(&self) -> impl Iterator<Item = u64> {
        let index = self.index();
        (1..=index.latest())
            .rev()
            .filter(|n| index.read_item(*n).is_none_or(|item| item.opened == 0 && item.closed == 0))
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

    /// Frees its index, after it was removed. The caller has the journal's lock.
    pub fn remove(&self) {
        if let Subject::Log(log) = self {
            log.mark_removed();
        }
        self.index().remove();
    }
}

/// How a catalog gets the indexes of its logs and functions.
pub(crate) struct Indexes<'a> {
    pub arena: &'a Arc<Arena>,
    pub control: &'a Control,
    /// Whether to create empty indexes; otherwise the existing ones are used.
    pub fresh: bool,
    /// Known logs and functions keep their counters: a process has one set of counters for each id, or two handles in one batch would
    /// assign a number twice.
    pub known: Option<&'a Catalog>,
}

impl Indexes<'_> {
    fn index(&self, id: u32, role: Role) -> Result<Index> {
        let index =
            if self.fresh { Index::create(self.arena.clone(), id, role) } else { Index::open(self.arena.clone(), id) };
        index.map_err(|error| io_error(arena::NAME, &error))
    }
}

impl Keyed for Log {
    type Key = str;
    fn key(&self) -> &str {
        self.name()
    }
}

impl Keyed for Function {
    type Key = str;
    fn key(&self) -> &str {
        self.name()
    }
}

/// All logs and functions of a namespace at one moment. A copy is cheap, and so is a change of it.
#[derive(Clone, Default)]
pub struct Catalog {
    version: u64,
    next_id: u32,
    logs: Sorted<Log>,
    logs_by_name: Hashed<Log>,
    functions: Sorted<Function>,
    pins: BTreeMap<u32, Pin>,
    by_id: Table<Subject>,
}

impl Catalog {
    /// Grows with every definition; equal versions are equal catalogs.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The logs, by name.
    pub fn logs(&self) -> impl Iterator<Item = &Log> {
        self.logs.iter()
    }

    /// The functions, by name.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter()
    }

    /// The pins, by id; one that has ended stays until retention removes it.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.values()
    }

    pub(crate) fn pin(&self, id: u32) -> Option<&Pin> {
        self.pins.get(&id)
    }

    /// The log of this name.
    pub fn log(&self, name: &str) -> Option<&Log> {
        if self.logs.is_small() { self.logs.get(name) } else { self.logs_by_name.get(name) }
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
        self.by_id.get(id)
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    pub(crate) fn next_id(&self) -> u32 {
        self.next_id
    }

    /// The catalog a manifest describes.
    pub(crate) fn from_manifest(manifest: &manifest::Manifest, indexes: &Indexes<'_>) -> Result<Self> {
        let mut catalog = Catalog { version: manifest.defined, next_id: manifest.next_id, ..Default::default() };
        for row in &manifest.logs {
            let definition =
                Definition::Log { id: row.id, name: row.name.clone(), history: row.history, table: row.table };
            catalog.apply(&definition, manifest.defined, indexes)?;
        }
        for row in &manifest.functions {
            let (name, attributes) = (row.name.clone(), row.attributes.clone());
            let definition =
                Definition::Function { id: row.id, name, attributes, revision: row.revision, before: None };
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
                subject.index().raise_ended(done);
            }
        }
        Ok(catalog)
    }

    /// Folds one definition that is at `position`.
    pub(crate) fn apply(&mut self, definition: &Definition, position: u64, indexes: &Indexes<'_>) -> Result<()> {
        match definition {
            Definition::Log { id, name, history, table } => {
                let log = match indexes.known.and_then(|known| known.log_by_id(*id)) {
                    Some(log) => log.clone(),
                    None => {
                        let history = history_of(*history);
                        let index = indexes.index(*id, Role::Log { history })?;
                        Log::new(*id, name.clone(), *table, index, indexes.control.clone())
                    }
                };
                self.insert_log(log);
            }
            // The history is in the index, which all processes share: the commit of this entry changes it there.
            Definition::LogHistory { .. } => {}
            Definition::Function { id, name, attributes, revision, .. } => {
                let known = indexes.known.and_then(|known| known.function_by_id(*id));
                let function = match self.function_by_id(*id).or(known) {
                    Some(function) => function.redefined(attributes.clone(), *revision),
                    None => {
                        let index = indexes.index(*id, Role::Function)?;
                        Function::new(*id, name.clone(), attributes.clone(), *revision, index)
                    }
                };
                self.insert_function(function);
            }
            Definition::RemoveLog { id } => {
                if let Some(log) = self.log_by_id(*id).cloned() {
                    self.logs.remove(log.key());
                    self.logs_by_name.remove(log.key());
                    self.by_id.set(*id, None);
                }
            }
            Definition::Pin { id, from, bytes_max, until_us, owner } => {
                let (id, from, bytes_max, until_us) = (*id, *from, *bytes_max, *until_us);
                self.pins.insert(id, Pin { id, from, bytes_max, until_us, owner: owner.clone() });
                self.next_id = self.next_id.max(id + 1);
            }
            Definition::RemovePin { id } => drop(self.pins.remove(id)),
            Definition::RemoveFunction { id, .. } => {
                if let Some(function) = self.function_by_id(*id).cloned() {
                    self.functions.remove(function.key());
                    self.by_id.set(*id, None);
                }
            }
        }
        self.version = self.version.max(position);
        Ok(())
    }

    pub(crate) fn insert_log(&mut self, log: Log) {
        self.by_id.set(log.id(), Some(Subject::Log(log.clone())));
        self.next_id = self.next_id.max(log.id() + 1);
        self.logs_by_name.insert(log.clone());
        self.logs.insert(log);
    }

    pub(crate) fn insert_function(&mut self, function: Function) {
        self.by_id.set(function.id(), Some(Subject::Function(function.clone())));
        self.next_id = self.next_id.max(function.id() + 1);
        self.functions.insert(function);
    }
}
