//! Tables: the newest record of each key of a log, now or as of a position of the journal.
//!
//! ```text
//!   log of a table:  PUT a=1   PUT b=1   PUT a=2   DELETE b   …
//!   its view:        a -> the third record; b has no value
//! ```
//!
//! The journal is the only truth. Each process that uses a table keeps a [`view::View`] of it, which says where the newest record of each key
//! stands; the values are read from the journal. A view is made by reading the journal once, and then follows the table's log. Older versions of a
//! key are found by the hint in each record that says where the version before it stands.
//!
//! From time to time the view is written to a file ([`freeze`]), so that the next process need not read the journal. In memory it then has
//! only what has changed since.

pub mod batch;
mod freeze;
mod frozen;
mod load;
mod sorted;
pub mod view;

use freeze::Freezer;
use load::Passes;
use millrace_journal::{Entry, Journal, Log, Position, Row};
use millrace_wire::{
    Code, Result,
    table::{KeyRange, TableEntry},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};
use view::{Found, View};

/// Most keys of a table.
pub const KEYS_MAX: usize = 1 << 26;

/// So many of the newest records are read to find out whether a range has changed, before its keys are.
const RECENT: usize = 1000;

/// The views of a namespace's tables in this process.
pub struct Tables {
    views: Mutex<HashMap<u32, Arc<RwLock<View>>>>,
    freezer: Freezer,
    passes: Passes,
}

fn is_within(range: KeyRange<'_>, key: &[u8]) -> bool {
    key >= range.from && (range.to.is_empty() || key < range.to)
}

/// When a table is looked at.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// What was written before this position counts; `None`: all of it.
    pub upto: Option<Position>,
    /// Versions that expire at this time or before are none any more; microseconds since 1970.
    pub now_us: u64,
}

/// What a scan found.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// The entries, in the order of their keys.
    pub entries: Vec<TableEntry>,
    /// The positions up to which the journal must be durable for them to be.
    pub shown: Vec<Position>,
    /// Whether there are more.
    pub more: bool,
}

impl Default for Tables {
    fn default() -> Self {
        Self::with_files_after(view::FREEZE_RECORDS)
    }
}

impl Tables {
    /// The views of which each is written to a file after so many records.
    pub fn with_files_after(records: u64) -> Self {
        Self { views: Mutex::default(), freezer: Freezer::after(records), passes: Passes::default() }
    }

    /// Writes what a view has to a file now, or waits until a thread of this process has.
    pub fn freeze(&self, journal: &Journal, log: &Log) -> Result<()> {
        let freeze = || {
            self.looked(journal, log, |_| Ok(()))?;
            self.freezer.wait();
            freeze::freeze(journal, log, &self.view(log))
        };
        // A file that it had was damaged: now it has none.
        freeze().or_else(|_| freeze())
    }

    fn view(&self, log: &Log) -> Arc<RwLock<View>> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.entry(log.id()).or_default().clone()
    }

    /// Whether the view of a table exists and has only few records to read.
    pub fn is_at_hand(&self, log: &Log) -> bool {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let view = views.get(&log.id()).and_then(|view| view.try_read().ok().map(|view| view.is_at_hand(log)));
        view.unwrap_or(false)
    }

    /// Forgets the view of a table that was removed.
    pub fn forget(&self, log: u32) {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).remove(&log);
    }

    /// Calls `look` with a view that has all that is committed now. If it finds a position that retention has dropped, the view is brought
    /// up to date with the copies, and `look` is called again.
    fn looked<R>(&self, journal: &Journal, log: &Log, look: impl Fn(&View) -> Result<R>) -> Result<R> {
        if log.table().is_none() {
            return Err(Code::NotATable.error(format!("log '{}' is no table", log.name())));
        }
        log.check_exists()?;
        let view = self.view(log);
        let mut moved = 0;
        for attempt in 0.. {
            {
                let seen = view.read().unwrap_or_else(PoisonError::into_inner);
                if seen.is_current(log) {
                    match look(&seen) {
                        Err(error) if error.code() == Code::BelowHistory && attempt < 4 => moved += 1,
                        found => return found,
                    }
                }
            }
            let mut behind = view.write().unwrap_or_else(PoisonError::into_inner);
            behind.catch_up(journal, log, moved)?;
            if behind.is_due(journal, log, self.freezer.records()) {
                self.freezer.start(journal, log, &view);
            }
        }
        unreachable!("the loop ends with an answer")
    }

    /// The newest version of a key, also one that says that the key was deleted, without its value.
    pub fn newest(&self, journal: &Journal, log: &Log, key: &[u8], when: When) -> Result<Option<Found>> {
        self.looked(journal, log, |view| view.find(journal, log, key, when.upto))
    }

    /// The value of a key and its record; `None` if it has none.
    pub fn get(&self, journal: &Journal, log: &Log, key: &[u8], when: When) -> Result<Option<(Found, Entry)>> {
        self.looked(journal, log, |view| {
            let Some(found) = view.find(journal, log, key, when.upto)?.filter(|found| found.has_value(when.now_us))
            else {
                return Ok(None);
            };
            let entry = view::record_of(journal, log, &found)?;
            Ok(Some((found, entry)))
        })
    }

    /// The keys of a range that have values, at most `limit` and, unless the first alone is longer, `bytes_max` bytes.
    pub fn scan(
        &self,
        journal: &Journal,
        log: &Log,
        range: KeyRange<'_>,
        (limit, bytes_max, keys_only): (usize, usize, bool),
        when: When,
    ) -> Result<Scanned> {
        self.looked(journal, log, |view| {
            let (mut scanned, mut bytes) = (Scanned::default(), 0);
            let (mut keys, mut key) = (view.keys(range)?, Vec::new());
            while let Some(newest) = keys.next_into(&mut key)? {
                let Some(found) = view.find_from(journal, log, (&key, Some(newest)), when.upto)? else { continue };
                if !found.has_value(when.now_us) {
                    continue;
                }
                if scanned.entries.len() == limit || bytes >= bytes_max {
                    scanned.more = true;
                    break;
                }
                let mut entry = TableEntry {
                    key: key.clone(),
                    version: found.seqno,
                    expires_us: found.expires_us,
                    time_us: 0,
                    value: Some(Vec::new()),
                };
                if !keys_only {
                    let record = view::record_of(journal, log, &found)?;
                    entry.time_us = record.hlc.wall_us();
                    entry.value = Some(record.payload);
                }
                bytes += key.len() + entry.value.as_ref().map_or(0, Vec::len);
                scanned.shown.push(found.written.just_after());
                scanned.entries.push(entry);
            }
            Ok(scanned)
        })
    }

    /// The versions of a key, the newest first, as far as the journal has them.
    pub fn versions(
        &self,
        journal: &Journal,
        log: &Log,
        (key, below, limit): (&[u8], u64, usize),
        when: When,
    ) -> Result<Scanned> {
        self.looked(journal, log, |view| {
            let mut scanned = Scanned::default();
            let mut next = view.find(journal, log, key, when.upto)?;
            while let Some(found) = next {
                let original = view::record_at(journal, log, found.position)?;
                // In the place of a record that a repair replaced stands what it says now.
                let record = view::now_at(journal, log, &original)?;
                let is_its = record.row().is_some_and(|row| row.key == key);
                if is_its && (below == 0 || found.seqno < below) {
                    if scanned.entries.len() == limit {
                        scanned.more = true;
                        break;
                    }
                    let row = record.row().unwrap_or_default();
                    let value = row.is_value().then(|| record.payload.clone());
                    let clock = record.replaced().map_or(record.hlc, |replaced| replaced.clock);
                    let (version, expires_us, time_us) = (found.seqno, row.expires_us, clock.wall_us());
                    scanned.entries.push(TableEntry { key: key.to_vec(), version, expires_us, time_us, value });
                    scanned.shown.push(found.written.just_after());
                }
                next = match view::before(journal, log, key, &original) {
                    Err(error) if error.code() == Code::BelowHistory => None,
                    found => found?,
                };
            }
            Ok(scanned)
        })
    }

    /// The version that a record is.
    pub fn record(&self, journal: &Journal, log: &Log, seqno: u64) -> Result<(TableEntry, Position)> {
        let position = journal.position(log, seqno);
        let record = match position == Position::default() {
            true => None,
            false => Some(view::record_at(journal, log, position)?).filter(|record| record.seqno == seqno),
        };
        let Some((record, row)) = record.as_ref().and_then(|record| Some((record, record.row()?))) else {
            let name = log.name();
            return Err(Code::TableVersionGone.error(format!("record {seqno} of table '{name}'")));
        };
        let entry = TableEntry {
            key: row.key.to_vec(),
            version: seqno,
            expires_us: row.expires_us,
            time_us: record.hlc.wall_us(),
            value: row.is_value().then(|| record.payload.clone()),
        };
        Ok((entry, record.written.just_after()))
    }

    /// Whether no key of a range has changed since a position of the journal.
    pub fn is_unchanged(&self, journal: &Journal, log: &Log, range: KeyRange<'_>, since: Position) -> Result<bool> {
        // Mostly, few records have been written since.
        for seqno in (1..=log.latest()).rev().take(RECENT) {
            match view::record_at(journal, log, journal.position(log, seqno)) {
                Ok(record) if record.seqno != seqno => break,
                Ok(record) if record.written < since => return Ok(true),
                Ok(record) if record.row().is_some_and(|row| is_within(range, row.key)) => return Ok(false),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.looked(journal, log, |view| {
            let (mut keys, mut key) = (view.keys(range)?, Vec::new());
            while let Some(newest) = keys.next_into(&mut key)? {
                if newest.written >= since {
                    return Ok(false);
                }
            }
            // Deletions may have been dropped with their segments.
            Ok(log.latest() == 0 || since >= journal.first())
        })
    }

    /// How many files the view of a table has.
    pub fn files(&self, journal: &Journal, log: &Log) -> Result<usize> {
        self.looked(journal, log, |view| Ok(view.files().count()))
    }

    /// How many keys have a record, deleted ones included that are still remembered.
    pub fn keys(&self, journal: &Journal, log: &Log) -> Result<usize> {
        self.looked(journal, log, |view| Ok(view.len()))
    }

    /// Keys whose values have expired by a time, at most `limit`.
    pub fn expired(&self, journal: &Journal, log: &Log, now_us: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        self.looked(journal, log, |view| view.expired(now_us, limit))
    }

    /// Whether a record is the newest version of its key, and a value: then retention has to keep it. The position does not matter: this process may
    /// not know yet where the copy of the record stands that another one made.
    pub fn is_live(&self, journal: &Journal, log: &Log, record: &Entry) -> Result<bool> {
        let Some(Row { key, .. }) = record.row() else { return Ok(false) };
        // Of a table that cannot be read, nothing is dropped.
        Ok(self.looked(journal, log, |view| view.is_value(key, record.seqno)).unwrap_or(true))
    }
}
