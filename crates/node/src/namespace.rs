//! A namespace as programs use it: append, read, define. Every process may do this at once, with or without a host.

use crate::{
    admission::{self, RETRY_AFTER_MS, Room, Stage},
    bindings::{Bindings, BindingsCache, Bound},
    definition::Definition,
    host,
    runs::Pending,
};
use millrace_journal::{
    Appended, Catalog, CreateOptions, Durability, Journal, Log, OpenOptions, Position, Transaction,
};
use millrace_wire::{Code, EventId, Hlc, LogName, Name, Result};
use serde::Serialize;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Most records that [`Namespace::append_many`] commits at once.
const BATCH_RECORDS_MAX: usize = 1024;
/// Most bytes it commits at once; a single longer record is a batch of its own.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// One open namespace. Clones share it.
#[derive(Clone)]
pub struct Namespace {
    inner: Arc<Inner>,
}

struct Inner {
    journal: Journal,
    bindings: BindingsCache,
}

/// How a record is appended.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendOptions<'a> {
    /// A function that this record is to run besides those bound to its log.
    pub function: Option<&'a str>,
    /// When the append counts as done; by default as the namespace says.
    pub durability: Option<Durability>,
    /// What caused it; none from outside.
    pub cause: EventId,
    /// How long to wait for room while too many runs are pending, before `Busy` is returned.
    pub patience: Duration,
}

/// A record to be appended by [`Namespace::append_many`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// The log's name.
    pub log: String,
    /// The record's bytes.
    pub payload: Vec<u8>,
}

/// What an append returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The record's sequence number in its log.
    pub seqno: u64,
    /// The record's id.
    pub id: EventId,
    /// The end of the batch that holds it.
    pub end: Position,
}

/// A record as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its sequence number in its log.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
    /// When it was appended.
    pub hlc: Hlc,
    /// What caused it: a run, or nothing recorded.
    pub cause: EventId,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// A log and how full it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogStat {
    /// Its name.
    pub name: LogName,
    /// How many of its newest records can be read.
    pub history: u64,
    /// The oldest record that can be read, 0 if there is none.
    pub earliest: u64,
    /// The newest record, 0 if there is none.
    pub latest: u64,
    /// The functions bound to it.
    pub functions: Vec<Name>,
}

/// A function and how much it has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionStat {
    /// Its name.
    pub name: Name,
    /// Its definition, or why that cannot be read.
    pub definition: Result<Arc<Definition>>,
    /// Runs ever triggered.
    pub triggered: u64,
    /// Runs ever ended, well or as dead letters.
    pub done: u64,
}

impl FunctionStat {
    /// Runs that have not ended.
    pub fn pending(&self) -> u64 {
        self.triggered.saturating_sub(self.done)
    }
}

impl Namespace {
    /// Creates a namespace in `dir`, which must be absent or empty.
    pub fn create(dir: &Path, options: &CreateOptions) -> Result<Self> {
        Ok(Self::over(Journal::create(dir, options)?))
    }

    /// Opens the namespace in `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self::over(Journal::open(dir, &OpenOptions::default())?))
    }

    /// The namespace of a journal opened with other options.
    pub fn over(journal: Journal) -> Self {
        Self { inner: Arc::new(Inner { journal, bindings: BindingsCache::default() }) }
    }

    /// The journal underneath.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// The directory that it is.
    pub fn dir(&self) -> &Path {
        self.journal().dir()
    }

    /// The definitions as of a transaction.
    pub(crate) fn bindings_of(&self, tx: &mut Transaction<'_>) -> Arc<Bindings> {
        self.inner.bindings.get(tx.catalog())
    }

    /// The definitions as of now.
    pub(crate) fn bindings(&self) -> Result<Arc<Bindings>> {
        Ok(self.inner.bindings.get(&*self.journal().catalog()?))
    }

    /// Appends one record, and triggers the functions bound to its log in the same batch.
    pub fn append(&self, log: &str, payload: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
        let committed = self.with_patience(options.patience, || {
            self.journal().commit(|tx| Outside::new(self, tx, &options)?.append(tx, log, payload, 0))
        })?;
        self.settle(committed.end, options.durability)?;
        let Appended { seqno, id } = committed.value;
        Ok(Receipt { seqno, id, end: committed.end })
    }

    /// Appends records as they come, many to a commit; `progress` hears of each batch once it is as durable as asked.
    ///
    /// When it returns an error, the records whose receipts `progress` was given are appended, and no others.
    pub fn append_many(
        &self,
        records: impl IntoIterator<Item = Result<NewRecord>>,
        options: AppendOptions<'_>,
        mut progress: impl FnMut(&[Receipt]),
    ) -> Result<()> {
        let mut batch: Vec<NewRecord> = Vec::new();
        let mut batch_bytes = 0;
        for record in records {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    self.append_batch(&batch, options, &mut progress)?;
                    return Err(error);
                }
            };
            if !batch.is_empty() && batch_bytes + record.payload.len() > BATCH_BYTES_MAX {
                self.append_batch(&batch, options, &mut progress)?;
                batch.clear();
                batch_bytes = 0;
            }
            batch_bytes += record.payload.len();
            batch.push(record);
            if batch.len() == BATCH_RECORDS_MAX {
                self.append_batch(&batch, options, &mut progress)?;
                batch.clear();
                batch_bytes = 0;
            }
        }
        self.append_batch(&batch, options, &mut progress)
    }

    /// Appends a batch in one commit; where there is room for a part of it only, in several.
    fn append_batch(
        &self,
        mut batch: &[NewRecord],
        options: AppendOptions<'_>,
        progress: &mut impl FnMut(&[Receipt]),
    ) -> Result<()> {
        let mut most = batch.len();
        while !batch.is_empty() {
            let part: Vec<(&str, &[u8])> =
                batch.iter().take(most).map(|record| (&*record.log, &*record.payload)).collect();
            // Patience only makes sense for a part that cannot be made smaller.
            let patience = if part.len() == 1 { options.patience } else { Duration::ZERO };
            match self.with_patience(patience, || self.append_at_once(&part, options)) {
                Ok(receipts) => {
                    if let Some(last) = receipts.last() {
                        self.settle(last.end, options.durability)?;
                    }
                    progress(&receipts);
                    batch = &batch[receipts.len()..];
                }
                Err(error) if part.len() > 1 && matches!(error.code(), Code::Busy | Code::BatchTooLarge) => {
                    most = part.len() / 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// All of the records in one commit, or none.
    fn append_at_once(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Result<Vec<Receipt>> {
        let committed = self.journal().commit(|tx| {
            let outside = Outside::new(self, tx, &options)?;
            let append = |(ordinal, (log, payload)): (usize, &(&str, &[u8]))| {
                outside.append(tx, log, payload, ordinal as u16) // at most BATCH_RECORDS_MAX
            };
            records.iter().enumerate().map(append).collect::<Result<Vec<_>>>()
        })?;
        let end = committed.end;
        Ok(committed.value.into_iter().map(|Appended { seqno, id }| Receipt { seqno, id, end }).collect())
    }

    /// Tries again while the answer is `Busy` and `patience` lasts.
    fn with_patience<R>(&self, patience: Duration, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        let (start, journal) = (Instant::now(), self.journal());
        loop {
            let seen = journal.tail();
            match attempt() {
                Err(error) if error.code() == Code::Busy && start.elapsed() < patience => {
                    // Any commit since then may have made room, so wait for one rather than for the clock.
                    journal.wait(seen, Duration::from_millis(RETRY_AFTER_MS).min(patience));
                }
                answer => return answer,
            }
        }
    }

    /// The gate: returns once everything before `end` is as durable as asked, by default as the namespace says.
    pub(crate) fn settle(&self, end: Position, durability: Option<Durability>) -> Result<()> {
        match durability.unwrap_or(self.journal().durability()) {
            Durability::Memory => Ok(()),
            Durability::Disk => self.journal().sync(end),
        }
    }

    /// The record of `log` with this seqno; in a namespace on disk, once it is durable.
    pub fn get(&self, log: &str, seqno: u64) -> Result<Record> {
        if seqno == 0 {
            return Err(Code::SeqnoInvalid.error(format!("0 names no record of log '{log}'")));
        }
        let mut payload = Vec::new();
        let journal = self.journal();
        let meta = journal.get(&self.log(log)?, seqno, &mut payload)?;
        if meta.position >= journal.durable() {
            self.settle(journal.tail(), None)?;
        }
        Ok(Record { seqno, id: meta.id, hlc: meta.hlc, cause: meta.cause, payload })
    }

    /// The seqno of the newest record of `log`, 0 if it has none.
    pub fn latest(&self, log: &str) -> Result<u64> {
        Ok(self.log(log)?.latest())
    }

    /// The log of this name.
    pub fn log(&self, name: &str) -> Result<Log> {
        found(self.journal().catalog()?.log(name), name).cloned()
    }

    /// Makes a log that keeps its `history` newest records readable; one with the same attributes is left as it is.
    pub fn create_log(&self, name: &LogName, history: u64) -> Result<Log> {
        let committed = self.journal().commit(|tx| tx.create_log(name, history))?;
        self.settle(committed.end, None)?;
        Ok(committed.value)
    }

    /// Removes a log that no function is bound to and no pending run was caused by.
    pub fn remove_log(&self, name: &LogName) -> Result<()> {
        // Read before the lock is taken: reading the whole journal under it would hold everybody up.
        let mut pending = Pending::of(self.journal())?;
        let committed = self.journal().commit(|tx| {
            let catalog = tx.catalog().clone();
            let log = found(catalog.log(name), name)?;
            pending.catch_up(tx.tail())?;
            if let Some(user) = self.user_of(tx, log, &pending) {
                return Err(Code::LogInUse.error(format!("log '{name}' is in use: {user}")));
            }
            tx.remove_log(name)
        })?;
        self.settle(committed.end, None)
    }

    /// Who needs this log, if anybody does.
    fn user_of(&self, tx: &mut Transaction<'_>, log: &Log, pending: &Pending) -> Option<String> {
        let bindings = self.bindings_of(tx);
        for (function, definition) in bindings.functions() {
            if let Ok(definition) = definition {
                let spec = &definition.spec;
                if spec.on.contains(log.name()) {
                    return Some(format!("function '{}' is bound to it", spec.name));
                }
                if spec.dead_letter == *log.name() && tx.pending(function) > 0 {
                    return Some(format!(
                        "function '{}' has pending runs and leaves its dead letters there",
                        spec.name
                    ));
                }
            }
        }
        pending.of_log(log.id()).map(|run| format!("run {run}, which one of its records caused, is pending"))
    }

    /// Every log, by name.
    pub fn logs(&self) -> Result<Vec<LogStat>> {
        let catalog = self.journal().catalog()?;
        let bindings = self.inner.bindings.get(&catalog);
        let stat = |log: &Log| LogStat {
            name: log.name().clone(),
            history: log.history(),
            earliest: log.earliest(),
            latest: log.latest(),
            functions: bindings
                .of_log(log.id())
                .iter()
                .filter_map(|bound| Some(bindings.definition(bound.function)?.spec.name.clone()))
                .collect(),
        };
        let mut logs: Vec<LogStat> = catalog.logs().map(stat).collect();
        logs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(logs)
    }

    /// Every function, by name.
    pub fn functions(&self) -> Result<Vec<FunctionStat>> {
        let catalog = self.journal().catalog()?;
        let mut functions: Vec<FunctionStat> = catalog
            .functions()
            .map(|function| FunctionStat {
                name: function.name().clone(),
                definition: Definition::from_attributes(function.name(), function.attributes()).map(Arc::new),
                // Ends are read first: read the other way round, a busy function could seem to have ended more than began.
                done: function.done(),
                triggered: function.triggered(),
            })
            .collect();
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(functions)
    }

    /// Waits until no run is pending.
    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        let journal = self.journal();
        loop {
            let seen = journal.tail();
            let Some((name, pending)) = self.busiest()? else { return Ok(()) };
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let hint = if host::holder(self.dir())?.is_none() { "; no host is running" } else { "" };
                let time_ms = timeout.as_millis();
                return Err(Code::WaitTimeout
                    .error(format!("after {time_ms} ms, {pending} runs of function '{name}' are pending{hint}")));
            }
            journal.wait(seen, left.min(Duration::from_secs(1)));
        }
    }

    /// The function with most pending runs, or `None` if no run is pending at one moment.
    fn busiest(&self) -> Result<Option<(Name, u64)>> {
        let busiest = self.functions()?.into_iter().max_by_key(FunctionStat::pending);
        if let Some(function) = busiest.filter(|function| function.pending() > 0) {
            return Ok(Some((function.name.clone(), function.pending())));
        }
        // The counters were read one after the other, and a run may have moved on between two of them: nothing moves
        // under the lock.
        let committed = self.journal().commit(|tx| {
            let catalog = tx.catalog().clone();
            let mut functions = catalog.functions().map(|f| (f.name().clone(), tx.pending(f.id())));
            Ok(functions.find(|(_, pending)| *pending > 0))
        })?;
        Ok(committed.value)
    }
}

/// A batch of appends from outside: the definitions they meet, and the function they name.
struct Outside {
    catalog: Arc<Catalog>,
    bindings: Arc<Bindings>,
    named: Option<Bound>,
    cause: EventId,
}

impl Outside {
    fn new(namespace: &Namespace, tx: &mut Transaction<'_>, options: &AppendOptions<'_>) -> Result<Self> {
        let catalog = tx.catalog().clone();
        let bindings = namespace.inner.bindings.get(&catalog);
        let named = options.function.map(|name| named(&catalog, &bindings, name)).transpose()?;
        Ok(Self { catalog, bindings, named, cause: options.cause })
    }

    fn append(&self, tx: &mut Transaction<'_>, log: &str, payload: &[u8], ordinal: u16) -> Result<Appended> {
        let log = found(self.catalog.log(log), log)?;
        let stage = Stage { cause: self.cause, ordinal, room: Room::Outside, named: self.named, ending: None };
        admission::append(tx, &self.bindings, log, payload, stage)
    }
}

/// The function that an append names.
fn named(catalog: &Catalog, bindings: &Bindings, name: &str) -> Result<Bound> {
    let function = catalog.function(name).ok_or_else(|| no_function(name))?;
    match bindings.definition(function.id()) {
        Some(definition) if !definition.removing => {
            Ok(Bound { function: function.id(), pending_max: definition.spec.pending_max })
        }
        _ => Err(no_function(name)),
    }
}

/// The log a name was looked up for; a name that cannot be one says why.
pub(crate) fn found<'a>(log: Option<&'a Log>, name: &str) -> Result<&'a Log> {
    log.ok_or_else(|| match name.parse::<LogName>() {
        Ok(name) => Code::LogNotFound.error(format!("no log '{name}'")),
        Err(error) => error,
    })
}

pub(crate) fn no_function(name: &str) -> millrace_wire::Error {
    match name.parse::<Name>() {
        Ok(name) => Code::FunctionNotFound.error(format!("no function '{name}'")),
        Err(error) => error,
    }
}
