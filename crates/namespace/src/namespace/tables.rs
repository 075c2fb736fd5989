//! Tables: logs whose records have keys.

use super::{AppendOptions, Namespace, Outside, Receipt, fences, found};
use crate::{
    admission::{Publish, Room, Stage},
    gate::{Gated, Shows, Site},
    names,
};
use millrace_journal::{Appended, Entry, Log, Position, Transaction};
use millrace_tables::{Scanned, Tables, When};
use millrace_wire::{
    Code, Durability, EventId, LogName, Result,
    table::{
        Condition, KeyRange, KeyType, SCAN_MAX, SCAN_MAX_BYTES, TableAnswer, TableCodec, TableEntry, TableOptions,
        TableRequest, VERSIONS_MAX,
    },
};
use std::time::{Duration, SystemTime};

/// How many expired keys are deleted in one batch of the journal.
const EXPIRED_AT_ONCE: usize = 256;
/// Records of a table of the runtime that can be read as a log.
const INTERNAL_HISTORY: u64 = 16;
/// How long a note of an append is kept: a day longer than the longest session.
const NOTE_TTL_MS: u64 = 31 * 24 * 3600 * 1000;
/// How long a read waits until a replica has what its token names.
pub const TOKEN_PATIENCE: Duration = Duration::from_secs(1);
/// How many such batches of a table one call makes.
const EXPIRED_BATCHES: usize = 64;

/// A table and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStat {
    /// Its name.
    pub name: LogName,
    /// Its attributes.
    pub options: TableOptions,
    /// How many of its newest records can be read as a log.
    pub history: u64,
    /// The seqno of its newest record.
    pub latest: u64,
}

impl Namespace {
    /// The views of the tables.
    pub fn tables(&self) -> &Tables {
        &self.inner.tables
    }

    /// Makes a table; one with the same attributes is left as it is. Of each key the newest record is kept, and the `history` newest records
    /// of all.
    pub fn create_table(&self, name: &LogName, history: u64, options: TableOptions) -> Result<Log> {
        self.out(self.create_table_gated(name, history, options), None)
    }

    /// [`Namespace::create_table`], still held at the gate.
    pub fn create_table_gated(&self, name: &LogName, history: u64, options: TableOptions) -> Result<Gated<Log>> {
        names::check_public(name)?;
        self.check_table_database(name, &options)?;
        let committed = self.journal().commit(|tx| {
            self.begin_database(tx, &options)?;
            tx.create_table(name, history, options)
        })?;
        Ok(self.gate().hold(Site::CreateLog, committed.value, Shows::Report(committed.end), None))
    }

    /// Every table, by name.
    pub fn table_stats(&self) -> Result<Vec<TableStat>> {
        let catalog = self.journal().catalog()?;
        let stat = |log: &Log| {
            let (name, history, latest) = (log.name().clone(), log.history(), log.latest());
            Some(TableStat { name, options: *log.table()?, history, latest })
        };
        let mut stats: Vec<TableStat> = catalog.logs().filter_map(stat).collect();
        stats.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(stats)
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Result<Log> {
        let log = self.log(name)?;
        match log.table() {
            Some(_) => Ok(log),
            None => Err(Code::NotATable.error(format!("log '{name}' is no table"))),
        }
    }

    /// Asks a table, or changes it; what it answers is released once it is safe.
    pub fn ask_table(
        &self,
        table: &str,
        request: &TableRequest<'_>,
        options: AppendOptions<'_>,
    ) -> Result<TableAnswer> {
        if !request.changes() {
            let waited = self.table(table).and_then(|_| self.wait_reached(table, options.after, TOKEN_PATIENCE));
            if let Err(error) = waited {
                return self.out(Err(error), options.durability);
            }
        }
        self.out(self.ask_table_gated(table, request, options), options.durability)
    }

    /// [`Namespace::ask_table`], still held at the gate.
    pub fn ask_table_gated(
        &self,
        table: &str,
        request: &TableRequest<'_>,
        options: AppendOptions<'_>,
    ) -> Result<Gated<TableAnswer>> {
        let log = self.table(table)?;
        check_request(&log, request)?;
        if request.changes() {
            let answers = match self.change_tables_gated(&[(table, *request)], options) {
                // It says what the key has now.
                Err(error) if matches!(error.code(), Code::TableVersionDiffers | Code::TableNotCounter) => {
                    let shows = Shows::Log { log: log.id(), upto: self.journal().tail() };
                    return Ok(self.gate().refuse_showing(error, shows, options.durability));
                }
                answers => answers?,
            };
            return Ok(answers.map(|mut answers| answers.pop().unwrap_or_default()));
        }
        let (mut answer, shown) = self.read_table(&log, request, When { upto: None, now_us: now_us() })?;
        // Behind the read: it may have seen what came meanwhile.
        if answer.token.is_none() || self.bindings()?.is_replica(log.id()) {
            answer.token = self.token_of(&log)?;
        }
        let upto = shown.iter().copied().max();
        let shows = match request {
            TableRequest::Describe => Shows::Report(self.journal().tail()),
            // Which keys it does not show depends on all records, and so does the answer that there is nothing.
            TableRequest::Scan { .. } => Shows::Log { log: log.id(), upto: upto.unwrap_or_default() },
            _ if shown.is_empty() => Shows::Log { log: log.id(), upto: self.journal().tail() },
            _ => Shows::Records(&shown),
        };
        Ok(self.gate().hold(Site::Table, answer, shows, options.durability))
    }

    /// Answers a request that reads, and the positions up to which the journal must be durable for what it shows.
    pub fn read_table(
        &self,
        log: &Log,
        request: &TableRequest<'_>,
        when: When,
    ) -> Result<(TableAnswer, Vec<Position>)> {
        let (tables, journal) = (self.tables(), self.journal());
        self.check_loaded(log)?;
        let scanned = match *request {
            TableRequest::Get { key } => {
                let found = tables.get(journal, log, key, when)?;
                let shown = found.iter().map(|(found, _)| found.written.just_after()).collect();
                let token = found.as_ref().map_or(EventId::NONE, |(_, record)| record.id);
                let entry = found.map(|(found, record)| entry_of(key, found.expires_us, record));
                return Ok((TableAnswer { token, ..TableAnswer::one(entry) }, shown));
            }
            TableRequest::Scan { range, limit, keys_only } => {
                let bounds = (limit.min(SCAN_MAX) as usize, SCAN_MAX_BYTES, keys_only);
                tables.scan(journal, log, range, bounds, when)?
            }
            TableRequest::Versions { key, below, limit } => {
                tables.versions(journal, log, (key, below, limit.min(VERSIONS_MAX) as usize), when)?
            }
            TableRequest::Record { seqno } => {
                let (entry, shown) = tables.record(journal, log, seqno)?;
                return Ok((TableAnswer::one(Some(entry)), vec![shown]));
            }
            TableRequest::Describe => {
                let options = log.table().copied().unwrap_or_default();
                return Ok((TableAnswer::description(&options), vec![journal.tail()]));
            }
            _ => Scanned::default(),
        };
        let Scanned { entries, mut shown, more } = scanned;
        if matches!(request, TableRequest::Scan { .. }) {
            // Which keys it does not show depends on all records.
            shown.push(journal.tail());
        }
        Ok((TableAnswer { entries, more, ..TableAnswer::default() }, shown))
    }

    /// Changes tables in one batch: all of the changes, or none. The answers say which versions the keys have now, in the order of the
    /// changes; a deletion of a key without a value has an empty answer.
    pub fn change_tables_gated(
        &self,
        changes: &[(&str, TableRequest<'_>)],
        options: AppendOptions<'_>,
    ) -> Result<Gated<Vec<TableAnswer>>> {
        for (table, request) in changes {
            names::check_public(table)?;
            check_request(&self.table(table)?, request)?;
        }
        let now_us = now_us();
        let committed = self.with_patience(options.patience, || {
            self.journal().commit(|tx| {
                tx.observe(options.clock);
                if let Some(fence) = options.fence {
                    fences::pass(self.journal(), tx, fence)?;
                }
                let catalog = tx.catalog().clone();
                let mut publish = Publish::new(self, tx);
                let mut answers = Vec::with_capacity(changes.len());
                for (ordinal, (table, request)) in changes.iter().enumerate() {
                    let log = found(catalog.log(table), table)?;
                    let ordinal = ordinal as u16; // bounded by the caller's frame
                    let stage = Stage { cause: options.cause, ordinal, room: Room::Outside, named: None, ending: None };
                    let changed = publish.change(tx, log, request, now_us, stage)?;
                    let time_us = tx.clock().wall_us();
                    let token = changed.as_ref().map_or(EventId::NONE, |(appended, _)| appended.id);
                    let one = TableAnswer::one(changed.map(|(appended, change)| TableEntry {
                        key: key_of(request).to_vec(),
                        version: appended.seqno,
                        expires_us: change.expires_us,
                        time_us,
                        value: match request {
                            TableRequest::Increment { .. } => Some(change.value),
                            TableRequest::Delete { .. } => None,
                            _ => Some(Vec::new()),
                        },
                    }));
                    answers.push(TableAnswer { token, ..one });
                }
                Ok(answers)
            })
        })?;
        // An answer that says nothing but what the caller has done depends on that alone.
        let says_more = |request: &TableRequest<'_>| {
            !matches!(request, TableRequest::Put { condition: millrace_wire::table::Condition::Always, .. })
        };
        let shows = match changes {
            [(table, request)] if says_more(request) => {
                Shows::Log { log: self.table(table)?.id(), upto: committed.end }
            }
            changes if changes.iter().any(|(_, request)| says_more(request)) => Shows::All(committed.end),
            _ => Shows::Batch(committed.end),
        };
        Ok(self.gate().hold(Site::Table, committed.value, shows, options.durability))
    }

    /// Changes a table of the runtime, which comes into being if need be, in one batch. Without changes it waits for those before.
    pub fn change_internal_table_gated(
        &self,
        table: &str,
        changes: &[TableRequest<'_>],
        durability: Option<Durability>,
    ) -> Result<Gated<()>> {
        let end = match changes {
            [] => self.journal().tail(),
            changes => {
                let now_us = now_us();
                let commit = |tx: &mut Transaction<'_>| {
                    let table = internal_table(tx, table)?;
                    let mut publish = Publish::new(self, tx);
                    changes.iter().enumerate().try_for_each(|(ordinal, change)| {
                        publish.change(tx, &table, change, now_us, by_runtime(ordinal as u16)).map(drop) // bounded by the caller
                    })
                };
                self.journal().commit(commit)?.end
            }
        };
        Ok(self.gate().hold(Site::Table, (), Shows::Batch(end), durability))
    }

    /// Appends a record together with a note of it in a table of the runtime, in one batch. None if the note says that this was done before.
    pub fn append_noted_gated(
        &self,
        log: &str,
        payload: &[u8],
        options: AppendOptions<'_>,
        (table, note): (&str, Note<'_>),
    ) -> Result<Gated<Option<Receipt>>> {
        names::check_public(log)?;
        let now_us = now_us();
        let committed = self.with_patience(options.patience, || {
            self.journal().commit(|tx| {
                let table = internal_table(tx, table)?;
                let mut outside = Outside::new(self, tx, &options)?;
                let (key, is_there) = match note {
                    Note::Once(key) => (key, true),
                    Note::Takes(key) => (key, false),
                };
                if outside.publish.current(&table, key, (now_us, false))?.has_value == is_there {
                    return Ok(None);
                }
                let appended = outside.append(tx, log, payload, 0)?;
                let change = match note {
                    Note::Once(key) => {
                        TableRequest::Put { key, value: b"", condition: Condition::Always, ttl_ms: NOTE_TTL_MS }
                    }
                    Note::Takes(key) => TableRequest::Delete { key, condition: Condition::Always },
                };
                outside.publish.change(tx, &table, &change, now_us, by_runtime(1))?;
                Ok(Some(appended))
            })
        })?;
        let end = committed.end;
        let receipt = committed.value.map(|Appended { seqno, id }| Receipt { seqno, id, end });
        Ok(self.gate().hold(Site::AppendMany, receipt, Shows::Batch(end), options.durability))
    }

    /// Every key of a table of the runtime that has a value, with the value; none if there is no such table.
    pub fn internal_table(&self, table: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let catalog = self.journal().catalog()?;
        let Some(log) = catalog.log(table) else { return Ok(Vec::new()) };
        let (mut all, mut from) = (Vec::new(), Vec::new());
        loop {
            let range = KeyRange { from: &from, to: b"" };
            let request = TableRequest::Scan { range, limit: SCAN_MAX, keys_only: false };
            let (answer, _) = self.read_table(log, &request, When { upto: None, now_us: now_us() })?;
            let Some(last) = answer.entries.last() else { return Ok(all) };
            from = [&last.key, &b"\0"[..]].concat();
            all.extend(answer.entries.into_iter().map(|entry| (entry.key, entry.value.unwrap_or_default())));
            if !answer.more {
                return Ok(all);
            }
        }
    }

    /// Deletes keys whose values have expired, in a few batches. Returns how many.
    pub fn expire_tables(&self) -> Result<usize> {
        let mut deleted = 0;
        let bindings = self.bindings()?;
        // The owner of a replica deletes its keys.
        let own = |log: &&Log| log.table().is_some() && !bindings.is_replica(log.id());
        for table in self.journal().catalog()?.logs().filter(own) {
            for _ in 0..EXPIRED_BATCHES {
                let expired = self.tables().expired(self.journal(), table, now_us(), EXPIRED_AT_ONCE)?;
                if expired.is_empty() {
                    break;
                }
                deleted += self.expire(table, &expired)?;
            }
        }
        Ok(deleted)
    }

    fn expire(&self, table: &Log, expired: &[Vec<u8>]) -> Result<usize> {
        let committed = self.journal().commit(|tx| {
            let now_us = now_us();
            let mut publish = Publish::new(self, tx);
            let mut staged = 0;
            for (ordinal, key) in expired.iter().enumerate() {
                let stage = Stage {
                    cause: EventId::NONE,
                    ordinal: ordinal as u16, // at most EXPIRED_AT_ONCE
                    room: Room::Run,
                    named: None,
                    ending: None,
                };
                staged += usize::from(publish.expire(tx, table, key, now_us, stage)?);
            }
            Ok(staged)
        })?;
        Ok(committed.value)
    }
}

/// What a table of the runtime notes of an append.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    /// The key comes into being; an append whose key is there was done before.
    Once(&'a [u8]),
    /// The key goes; an append whose key is gone was done before, or is not to be done any more.
    Takes(&'a [u8]),
}

pub(crate) fn internal_table(tx: &mut Transaction<'_>, name: &str) -> Result<Log> {
    match tx.catalog().log(name) {
        Some(log) => Ok(log.clone()),
        None => {
            let options = TableOptions { keys: KeyType::Bytes, codec: TableCodec::Bytes, ..TableOptions::default() };
            tx.create_table(&names::internal(name), INTERNAL_HISTORY, options)
        }
    }
}

fn by_runtime(ordinal: u16) -> Stage {
    Stage { cause: EventId::NONE, ordinal, room: Room::Run, named: None, ending: None }
}

fn entry_of(key: &[u8], expires_us: u64, record: Entry) -> TableEntry {
    let (version, time_us) = (record.seqno, record.hlc.wall_us());
    TableEntry { key: key.to_vec(), version, expires_us, time_us, value: Some(record.payload) }
}

fn key_of<'b>(request: &TableRequest<'b>) -> &'b [u8] {
    match *request {
        TableRequest::Get { key }
        | TableRequest::Put { key, .. }
        | TableRequest::Delete { key, .. }
        | TableRequest::Increment { key, .. }
        | TableRequest::Versions { key, .. } => key,
        TableRequest::Scan { range: KeyRange { from, .. }, .. } => from,
        TableRequest::Describe | TableRequest::Record { .. } | TableRequest::Externalize => &[],
    }
}

/// Refuses keys and values that the table cannot have.
pub fn check_request(log: &Log, request: &TableRequest<'_>) -> Result<()> {
    let options = log.table().copied().unwrap_or_default();
    match *request {
        TableRequest::Scan { limit: 0, .. } | TableRequest::Versions { limit: 0, .. } => {
            Err(Code::ValueInvalid.error("a limit of 0 entries"))
        }
        TableRequest::Scan { .. } | TableRequest::Describe | TableRequest::Record { .. } => Ok(()),
        TableRequest::Externalize => {
            Err(Code::HostCallInvalid.error("only a run waits like this; a client sends `externalize` with MANAGE"))
        }
        TableRequest::Put { key, value, .. } => options.check_key(key).and_then(|()| options.check_value(value)),
        _ => options.check_key(key_of(request)),
    }
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
