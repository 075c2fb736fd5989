//! A namespace as programs use it: append, read, define. Every process may do this at once, with or without a host.

mod appends;
mod fences;
mod flows;
mod logs;
mod room;
pub(crate) mod tables;
mod times;

use crate::{
    admission::{self, Publish, Room, Stage},
    bindings::{Bindings, BindingsCache, Bound},
    dead_letters::DeadLetters,
    definition::Definition,
    fence::Fence,
    gate::{Gate, Gated, Shows, Site},
    holder::{self, Holder},
    keys::Keys,
    names,
    outbox::NewMessage,
    runs::{flows::Flows, printed::Printed},
};
pub use appends::{AppendOptions, NewRecord, Receipt};
use millrace_journal::{
    Appended, Catalog, CreateOptions, Durability, Journal, Log, OpenOptions, Position, Transaction,
};
use millrace_tables::Tables;
use millrace_wire::{
    Address, Code, Error, EventId, Headers, Hlc, LogName, Name, RETRY_AFTER_MS, Result, Transient, histogram::Measures,
};
use serde::Serialize;
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
pub use tables::{Note, TOKEN_PATIENCE, TableStat, check_request as check_table_request, now_us};

/// Where an application's directory has its namespace, unless it says otherwise.
pub const FOLDER: &str = ".millrace";
/// The file that makes a directory a namespace.
const MANIFEST: &str = "manifest";
/// Most records that [`Namespace::append_many`] commits at once.
pub const BATCH_RECORDS_MAX: usize = 1024;
/// Most bytes it commits at once; a single longer record is a batch of its own.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// One open namespace. Clones share it.
#[derive(Clone)]
pub struct Namespace {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    journal: Journal,
    bindings: BindingsCache,
    gate: Arc<Gate>,
    keys: Keys,
    fence: Fence,
    measures: Measures,
    flows: Flows,
    tables: Tables,
    printed: Printed,
    pub(crate) owners: crate::replicas::LiveOwners,
    pub(crate) marks: std::sync::OnceLock<Arc<crate::databases::DatabaseMarks>>,
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
    /// Its cause: a run, or none.
    pub cause: EventId,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// What its client said beside them.
    pub headers: Headers,
}

/// A log and how full it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogStat {
    /// Its name.
    pub name: LogName,
    /// How many of its newest records can be read.
    #[serde(with = "millrace_wire::history")]
    pub history: u64,
    /// The oldest record that can be read; 0 if there never was one, one more than the newest if all were trimmed.
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
    /// Its dead letters, with those of the functions that share their log.
    pub dead_letters: DeadLetters,
}

impl FunctionStat {
    /// Runs that have not ended.
    pub fn pending(&self) -> u64 {
        self.triggered.saturating_sub(self.done)
    }
}

/// The journal's directory of the namespace that a user names by a directory.
pub fn journal_dir(dir: &Path) -> PathBuf {
    let inner = dir.join(FOLDER);
    // One of another user, whose directory cannot be searched, is reported as that.
    let found = std::fs::symlink_metadata(inner.join(MANIFEST));
    let is_there = found.map_or_else(|error| error.kind() == ErrorKind::PermissionDenied, |_| true);
    if is_there && !dir.join(MANIFEST).exists() { inner } else { dir.to_owned() }
}

impl Namespace {
    /// Creates a namespace in `dir`, which must be absent or empty.
    pub fn create(dir: &Path, options: &CreateOptions) -> Result<Self> {
        check_directory(dir)?;
        Ok(Self::over(Journal::create(dir, options)?))
    }

    /// Opens the namespace in `dir`, or the one that an application's directory holds as `.millrace`.
    pub fn open(dir: &Path) -> Result<Self> {
        check_directory(dir)?;
        Ok(Self::over(Journal::open(&journal_dir(dir), &OpenOptions::default())?))
    }

    /// The namespace of a journal opened with other options.
    pub fn over(journal: Journal) -> Self {
        let gate = Gate::new(journal.clone());
        let (bindings, keys, fence) = (BindingsCache::default(), Keys::default(), Fence::default());
        let (measures, flows, printed) = (Measures::default(), Flows::default(), Printed::default());
        let (tables, owners, marks) = (Tables::default(), Default::default(), std::sync::OnceLock::new());
        let inner = Inner { journal, bindings, gate, keys, fence, measures, flows, printed, tables, owners, marks };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The same namespace as long as somebody else has it open.
    pub fn downgrade(&self) -> impl Fn() -> Option<Namespace> + Send + Sync + use<> {
        let inner = Arc::downgrade(&self.inner);
        move || Some(Namespace { inner: inner.upgrade()? })
    }

    /// The one gate that holds what leaves.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.inner.gate
    }

    /// How long appends and runs take in this process.
    pub fn measures(&self) -> &Measures {
        &self.inner.measures
    }

    /// The journal underneath.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// The directory that it is.
    pub fn dir(&self) -> &Path {
        self.journal().dir()
    }

    /// The process that is this namespace's host, if it has one now.
    pub fn host(&self) -> Result<Option<Holder>> {
        holder::holder(self.dir())
    }

    /// The definitions as of a transaction.
    pub fn bindings_of(&self, tx: &mut Transaction<'_>) -> Arc<Bindings> {
        self.inner.bindings.get(tx.catalog())
    }

    /// The definitions as of now.
    pub fn bindings(&self) -> Result<Arc<Bindings>> {
        Ok(self.inner.bindings.get(&*self.journal().catalog()?))
    }

    /// Appends one record, and triggers the functions bound to its log in the same batch.
    ///
    /// `log` may be an address of a log elsewhere (`mr://…`): then this is done when the message is safe in the outbox, and
    /// the receipt names the message.
    pub fn append(&self, log: &str, payload: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
        self.out(self.append_gated(log, payload, options), options.durability)
    }

    /// [`Namespace::append`], whose answer is still held at the gate.
    pub fn append_gated(&self, log: &str, payload: &[u8], options: AppendOptions<'_>) -> Result<Gated<Receipt>> {
        names::check_public(log)?;
        if options.key.is_some() {
            let held = self.append_many_gated(&[(log, payload)], options)?;
            return Ok(held.map(|receipts| receipts[0]));
        }
        let committed = self.with_patience(options.patience, || {
            self.journal().commit(|tx| Outside::new(self, tx, &options)?.append(tx, log, payload, 0))
        })?;
        let (Appended { seqno, id }, end) = (committed.value, committed.end);
        Ok(self.gate().hold(Site::Append, Receipt { seqno, id, end }, Shows::Batch(end), options.durability))
    }

    /// [`Namespace::append_many_gated`] to logs of the runtime.
    pub(crate) fn append_internal_gated(
        &self,
        records: &[(&str, &[u8])],
        options: AppendOptions<'_>,
    ) -> Result<Gated<Vec<Receipt>>> {
        let receipts = self.with_patience(options.patience, || self.append_whole(records, options))?;
        let end = receipts[0].end;
        Ok(self.gate().hold(Site::AppendMany, receipts, Shows::Batch(end), options.durability))
    }

    /// Appends records in one commit, all or none; the answer is still held at the gate.
    pub fn append_many_gated(
        &self,
        records: &[(&str, &[u8])],
        options: AppendOptions<'_>,
    ) -> Result<Gated<Vec<Receipt>>> {
        if records.is_empty() || records.len() > BATCH_RECORDS_MAX {
            let count = records.len();
            return Err(
                Code::ValueInvalid.error(format!("{count} records in one batch; a batch has 1 to {BATCH_RECORDS_MAX}"))
            );
        }
        let receipts = self.with_patience(options.patience, || self.append_at_once(records, options))?;
        let end = receipts[0].end;
        let site = if options.key.is_some() { Site::Keyed } else { Site::AppendMany };
        Ok(self.gate().hold(site, receipts, Shows::Batch(end), options.durability))
    }

    /// Appends records as they come, many to a commit; `progress` is called for each batch once it is as durable as asked.
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
                    self.settle(Site::AppendBatch, Shows::Batch(receipts[0].end), options.durability)?;
                    progress(&receipts);
                    batch = &batch[receipts.len()..];
                }
                Err(error) if part.len() > 1 && (lacks_room(&error) || error.code() == Code::BatchTooLarge) => {
                    most = part.len() / 2;
                }
                Err(error) => return self.gate().refuse(error, options.durability).wait(),
            }
        }
        Ok(())
    }

    /// All of the records in one commit, or none.
    fn append_at_once(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Result<Vec<Receipt>> {
        for (log, _) in records {
            names::check_public(log)?;
        }
        self.append_whole(records, options)
    }

    fn append_whole(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Result<Vec<Receipt>> {
        let enter = |key| self.inner.keys.enter(self.journal(), key, records, options.function);
        let mut keyed = options.key.map(enter).transpose()?;
        let committed = self.journal().commit(|tx| {
            if let Some(keyed) = &mut keyed
                && let Some(answered) = keyed.answer(self.journal(), tx)?
            {
                return Ok(answered);
            }
            let mut outside = Outside::new(self, tx, &options)?;
            let append = |(ordinal, (log, payload)): (usize, &(&str, &[u8]))| {
                let appended = outside.append(tx, log, payload, ordinal as u16); // fewer than 65536
                let Appended { seqno, id } = appended.map_err(|error| outside.refusal(records, error))?;
                Ok(Receipt { seqno, id, end: Position::default() })
            };
            let receipts = records.iter().enumerate().map(append).collect::<Result<Vec<_>>>()?;
            if let Some(keyed) = &keyed {
                keyed.note(tx, receipts.iter().map(|receipt| (receipt.seqno, receipt.id)).collect())?;
            }
            Ok(receipts)
        })?;
        let mut receipts = committed.value;
        receipts.iter_mut().for_each(|receipt| receipt.end = committed.end);
        Ok(receipts)
    }

    /// Reads the idempotency keys, so that the first append with a key need not. That append reports keys that cannot be read.
    pub fn read_keys(&self) {
        drop(self.inner.keys.caught_up(self.journal()));
    }

    /// Tries again while there is no room and `patience` lasts.
    pub fn with_patience<R>(&self, patience: Duration, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        let journal = self.journal();
        let mut refused: Option<Instant> = None; // An append that finds room does not look at the clock.
        let mut reclaimed = false;
        loop {
            let seen = journal.tail();
            match attempt() {
                Err(error) if lacks_room(&error) && refused.get_or_insert_with(Instant::now).elapsed() < patience => {
                    // Any commit since then may have made room, so wait for one rather than for the clock.
                    journal.wait(seen, Duration::from_millis(RETRY_AFTER_MS.into()).min(patience));
                }
                // Without a host, nobody else drops what is no longer needed.
                Err(error) if error.code() == Code::DiskFull && !reclaimed && self.reclaim_alone() => reclaimed = true,
                answer => return answer,
            }
        }
    }

    /// Returns once what is shown may leave, on the disk as durably as asked, by default as the namespace says.
    pub fn settle(&self, site: Site, shows: Shows<'_>, durability: Option<Durability>) -> Result<()> {
        self.gate().hold(site, (), shows, durability).wait()
    }

    /// Waits at the gate; so do errors.
    pub(crate) fn out<T>(&self, result: Result<Gated<T>>, durability: Option<Durability>) -> Result<T> {
        result.unwrap_or_else(|error| self.gate().refuse(error, durability)).wait()
    }

    /// Inspects the namespace as a whole. The result is released once all of it is safe.
    ///
    /// Every display of [`Namespace::logs`], [`Namespace::functions`], runs, reasons or links uses this call, because those methods do not
    /// wait for the disk.
    pub fn inspect<T>(&self, look: impl FnOnce(&Namespace) -> Result<T>) -> Result<T> {
        let seen =
            look(self).map(|seen| self.gate().hold(Site::Inspect, seen, Shows::Report(self.journal().tail()), None));
        self.out(seen, None)
    }

    /// The record of `log` with this seqno; in a namespace on disk, once it is durable.
    pub fn get(&self, log: &str, seqno: u64) -> Result<Record> {
        if seqno == 0 {
            return Err(Code::SeqnoInvalid.error(format!("log '{log}' has no record 0")));
        }
        self.out(self.get_gated(log, seqno, None), None)
    }

    /// The newest record of a log that no repair made void.
    pub fn newest(&self, log: &str) -> Result<Record> {
        self.out(self.get_gated(log, 0, None), None)
    }

    /// A record, 0 for the newest, still held at the gate.
    pub fn get_gated(&self, log: &str, seqno: u64, durability: Option<Durability>) -> Result<Gated<Record>> {
        let log = self.log(log)?;
        let newest = || Ok(self.journal().newest_upto(&log, log.latest())?.max(1));
        let (record, position) = self.read(&log, if seqno == 0 { newest()? } else { seqno })?;
        Ok(self.gate().hold(Site::Get, record, Shows::Record(position), durability))
    }

    /// A record, and the position up to which the journal must be durable for it to be.
    fn read(&self, log: &Log, seqno: u64) -> Result<(Record, Position)> {
        let mut payload = Vec::new();
        let meta = self.journal().get(log, seqno, &mut payload)?;
        let record = Record { seqno, id: meta.id, hlc: meta.hlc, cause: meta.cause, payload, headers: meta.headers };
        Ok((record, meta.safe))
    }

    /// At most `count` records of `log` from `from` on, and at most `bytes_max` bytes unless the first alone has more.
    pub fn range(&self, log: &str, from: u64, count: u32, bytes_max: usize) -> Result<Vec<Record>> {
        let found = self.log(log);
        self.out(found.and_then(|log| self.range_of_gated(&log, from, count, bytes_max, None)), None)
    }

    /// [`Namespace::range`] of a log that was looked up before, still held at the gate.
    pub fn range_of_gated(
        &self,
        log: &Log,
        from: u64,
        count: u32,
        bytes_max: usize,
        durability: Option<Durability>,
    ) -> Result<Gated<Vec<Record>>> {
        if from == 0 {
            return Err(Code::SeqnoInvalid.error(format!("log '{}' has no record 0", log.name())));
        }
        log.check_exists()?;
        let (mut records, mut bytes, mut shown) = (Vec::new(), 0, Vec::new());
        for seqno in from..=log.latest() {
            if records.len() == count as usize {
                break;
            }
            let (record, position) = match self.read(log, seqno) {
                Err(error) if error.code() == Code::RecordVoid => continue,
                read => read?,
            };
            bytes += record.payload.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            shown.push(position);
            records.push(record);
        }
        let shows = match shown.is_empty() {
            true => Shows::Report(self.journal().tail()), // It says that there is such a log, and where it ends.
            false => Shows::Records(&shown),
        };
        Ok(self.gate().hold(Site::Range, records, shows, durability))
    }

    /// The seqno of the newest record of `log`, 0 if it has none; in a namespace on disk, once that is durable.
    pub fn latest(&self, log: &str) -> Result<u64> {
        self.out(self.latest_gated(log, None), None)
    }

    /// [`Namespace::latest`], still held at the gate.
    pub fn latest_gated(&self, log: &str, durability: Option<Durability>) -> Result<Gated<u64>> {
        let log = self.log(log)?;
        let latest = self.journal().newest_upto(&log, log.latest())?;
        // The answer that there is no record reveals that the log exists.
        let none = latest == 0;
        let shows = match none {
            true => Shows::Report(self.journal().tail()),
            false => Shows::Record(self.journal().position(&log, latest).just_after()),
        };
        Ok(self.gate().hold(Site::Latest, latest, shows, durability))
    }

    /// Where a tail from `from` on begins, still held at the gate.
    pub fn cursor_gated(&self, log: &Log, from: u64, durability: Option<Durability>) -> Result<Gated<u64>> {
        log.check_exists()?;
        let (earliest, latest, name) = (log.earliest(), log.latest(), log.name());
        let next = if from == 0 { latest + 1 } else { from };
        if next < earliest {
            return Err(
                Code::BelowHistory.error(format!("log '{name}' no longer has record {next}; the oldest is {earliest}"))
            );
        }
        if next > latest + 1 {
            return Err(Code::AboveTail.error(format!("log '{name}' has no record {next} yet; the newest is {latest}")));
        }
        Ok(self.gate().hold(Site::Cursor, next, Shows::Report(self.journal().tail()), durability))
    }

    /// The first seqno from `next` on that no repair made void; one after the newest if there is none. Tails continue there.
    pub fn beyond_voids(&self, log: &Log, mut next: u64) -> Result<u64> {
        while next <= log.latest() && self.journal().replaced(log, next)?.is_some_and(|replaced| replaced.void) {
            next += 1;
        }
        Ok(next)
    }

    /// The fence, which delays runs that have used a record that a repair replaces.
    pub fn fence(&self) -> &Fence {
        &self.inner.fence
    }

    /// The log of this name.
    pub fn log(&self, name: &str) -> Result<Log> {
        found(self.journal().catalog()?.log(name), name).cloned()
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
            .map(|function| {
                let definition = Definition::from_attributes(function.name(), function.attributes()).map(Arc::new);
                let dead_letters = definition.as_ref().map_or_else(
                    |_| DeadLetters::default(),
                    |definition| DeadLetters::of(&catalog, &definition.spec.dead_letter),
                );
                FunctionStat {
                    name: function.name().clone(),
                    definition,
                    // Ends are read first: read the other way round, a busy function could seem to have ended more than began.
                    done: function.done(),
                    triggered: function.triggered(),
                    dead_letters,
                }
            })
            .collect();
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(functions)
    }

    /// Waits until no run is pending, and what the runs have done is safe.
    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        let journal = self.journal();
        loop {
            let seen = journal.tail();
            let Some((name, pending)) = self.busiest()? else {
                return self.settle(Site::Idle, Shows::Report(journal.tail()), None);
            };
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let hint = if self.host()?.is_none() { "; no host is running" } else { "" };
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

/// Refuses text that looks like an address: it is not meant as a directory.
pub fn check_directory(dir: &Path) -> Result<()> {
    let text = dir.to_string_lossy();
    if text.contains("://") || text.starts_with("mr:/") {
        let shown: String = text.chars().take(120).flat_map(char::escape_debug).collect();
        return Err(Code::AddressInvalid.error(format!("'{shown}' is an address; a directory is required")));
    }
    let is_port = |(host, port): (&str, &str)| !host.contains('/') && port.parse::<u16>().is_ok();
    if text.rsplit_once(':').is_some_and(is_port) && !dir.exists() {
        let shown = format!("there is no directory '{text}'; the address of a host has the form mr://{text}/NAMESPACE");
        return Err(Code::AddressInvalid.error(shown));
    }
    Ok(())
}

/// A batch of appends from outside: the definitions they meet, the function they name, and what goes to other namespaces.
struct Outside<'a> {
    catalog: Arc<Catalog>,
    function: Option<&'a str>,
    cause: EventId,
    headers: Option<&'a Headers>,
    publish: Publish<'a>,
}

impl<'a> Outside<'a> {
    fn new(namespace: &'a Namespace, tx: &mut Transaction<'_>, options: &AppendOptions<'a>) -> Result<Self> {
        tx.observe(options.clock);
        if let Some(fence) = options.fence {
            fences::pass(namespace.journal(), tx, fence)?;
        }
        let catalog = tx.catalog().clone();
        let publish = Publish::new(namespace, tx);
        Ok(Self { catalog, function: options.function, cause: options.cause, headers: options.headers, publish })
    }

    fn append(&mut self, tx: &mut Transaction<'_>, log: &str, payload: &[u8], ordinal: u16) -> Result<Appended> {
        if Address::claims(log) {
            let (to, function) = (log.parse()?, self.function.map(str::parse::<Name>).transpose()?);
            let (function, cause) = (function.as_ref(), self.cause);
            let letter = NewMessage { to: &to, function, data: payload, cause, ordinal };
            return self.publish.send(tx, Room::Outside, letter);
        }
        let log = found(self.catalog.log(log), log)?;
        let named = self.function.map(|name| named(&self.catalog, self.publish.bindings(), name)).transpose()?;
        let stage = Stage { cause: self.cause, ordinal, room: Room::Outside, named, ending: None };
        match self.headers {
            Some(headers) => self.publish.append_headed(tx, log, payload, headers, stage),
            None => self.publish.append(tx, log, payload, stage),
        }
    }

    /// The refusal of a batch.
    fn refusal(&self, records: &[(&str, &[u8])], error: Error) -> Error {
        let bindings = self.publish.bindings();
        let named = self.function.and_then(|name| named(&self.catalog, bindings, name).ok());
        let logs = records.iter().filter_map(|(log, _)| self.catalog.log(log));
        if error.code() == Code::Busy { admission::too_large(bindings, logs, named).unwrap_or(error) } else { error }
    }
}

/// Whether there will be room again without intervention.
fn lacks_room(error: &Error) -> bool {
    error.code().transient() == Some(Transient::Room)
}

/// The function that an append names.
pub fn named(catalog: &Catalog, bindings: &Bindings, name: &str) -> Result<Bound> {
    let function = catalog.function(name).ok_or_else(|| no_function(name))?;
    match bindings.definition(function.id()) {
        Some(definition) if definition.spec.at.is_some() => Err(Code::FunctionOnDevices
            .error(format!("function '{name}' runs on devices, for the records of its logs there"))),
        Some(definition) if !definition.removing => {
            Ok(Bound { function: function.id(), pending_max: definition.spec.pending_max })
        }
        _ => Err(no_function(name)),
    }
}

/// The log a name was looked up for; a name that cannot be one says why.
pub fn found<'a>(log: Option<&'a Log>, name: &str) -> Result<&'a Log> {
    log.ok_or_else(|| match name.parse::<LogName>() {
        Ok(name) => Code::LogNotFound.error(format!("no log '{name}'")),
        Err(error) => error,
    })
}

/// The refusal of a function that is not there; a name that cannot be one says why.
pub fn no_function(name: &str) -> millrace_wire::Error {
    match name.parse::<Name>() {
        Ok(name) => Code::FunctionNotFound.error(format!("no function '{name}'")),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_waits_for_room_and_for_nothing_else() {
        let of_appends = [Code::Busy, Code::OutboxFull, Code::PublishBufferFull, Code::DatabaseBacklog];
        // No append from outside is refused with these.
        let of_runs = [Code::RoomExhausted, Code::RepairWaits, Code::MountBusy, Code::DeviceCommandsFull];
        for (code, ..) in millrace_wire::catalogue() {
            let waits = of_appends.contains(&code) || of_runs.contains(&code);
            assert_eq!(lacks_room(&code.error("")), waits, "{code:?}");
        }
    }
}
