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

pub mod batch;
mod sorted;
pub mod view;

use millrace_journal::{Entry, Journal, Log, Position, Row};
use millrace_wire::{
    Code, Result,
    table::{KeyRange, TableEntry},
};
use std::{
    collections::{BinaryHeap, HashMap},
    sync::{Arc, Mutex, PoisonError, RwLock},
};
use view::{Found, View};

/// Most keys of a table.
pub const KEYS_MAX: usize = 1 << 26;

/// The views of a namespace's tables in this process.
#[derive(Default)]
pub struct Tables {
    views: Mutex<HashMap<u32, Arc<RwLock<View>>>>,
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

impl Tables {
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
        let mut has_moved = false;
        for attempt in 0.. {
            {
                let seen = view.read().unwrap_or_else(PoisonError::into_inner);
                if seen.is_current(log) {
                    match look(&seen) {
                        Err(error) if error.code() == Code::BelowHistory && attempt < 4 => has_moved = true,
                        found => return found,
                    }
                }
            }
            let mut behind = view.write().unwrap_or_else(PoisonError::into_inner);
            behind.catch_up(journal, log, has_moved)?;
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
            let entry = view::record_at(journal, log, found.position)?;
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
            for key in view.keys(range) {
                let Some(found) = view.find(journal, log, key, when.upto)? else { continue };
                if !found.has_value(when.now_us) {
                    continue;
                }
                if scanned.entries.len() == limit || bytes >= bytes_max {
                    scanned.more = true;
                    break;
                }
                let mut entry = TableEntry {
                    key: key.to_vec(),
                    version: found.seqno,
                    expires_us: found.expires_us,
                    time_us: 0,
                    value: Some(Vec::new()),
                };
                if !keys_only {
                    let record = view::record_at(journal, log, found.position)?;
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

    /// The newest records of keys with values, in the order of their seqnos, above one of them; at most `limit` and, unless the first alone is
    /// longer, `bytes_max` bytes. Expired values count as values until their keys are deleted.
    pub fn above(
        &self,
        journal: &Journal,
        log: &Log,
        above: u64,
        (limit, bytes_max): (usize, usize),
        upto: Position,
    ) -> Result<Scanned> {
        self.looked(journal, log, |view| {
            // The least ones, the greatest of them first.
            let (mut least, mut more) = (BinaryHeap::with_capacity(limit + 1), false);
            for key in view.keys(KeyRange::default()) {
                let Some(found) = view.find(journal, log, key, Some(upto))? else { continue };
                if !found.is_value || found.seqno <= above {
                    continue;
                }
                least.push((found.seqno, found.position, found.expires_us, key));
                if least.len() > limit {
                    least.pop();
                    more = true;
                }
            }
            let (mut scanned, mut bytes) = (Scanned { more, ..Scanned::default() }, 0);
            for (version, position, expires_us, key) in least.into_sorted_vec() {
                if bytes >= bytes_max {
                    scanned.more = true;
                    break;
                }
                let record = view::record_at(journal, log, position)?;
                bytes += key.len() + record.payload.len();
                let (time_us, value) = (record.hlc.wall_us(), Some(record.payload));
                scanned.entries.push(TableEntry { key: key.to_vec(), version, expires_us, time_us, value });
            }
            Ok(scanned)
        })
    }

    /// How many keys have a record, deleted ones included that are still remembered.
    pub fn keys(&self, journal: &Journal, log: &Log) -> Result<usize> {
        self.looked(journal, log, |view| Ok(view.len()))
    }

    /// Keys whose values have expired by a time, at most `limit`.
    pub fn expired(&self, journal: &Journal, log: &Log, now_us: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        self.looked(journal, log, |view| Ok(view.expired(now_us, limit)))
    }

    /// Whether a record is the newest version of its key, and a value: then retention has to keep it. The position does not matter: this process may
    /// not know yet where the copy of the record stands that another one made.
    pub fn is_live(&self, journal: &Journal, log: &Log, record: &Entry) -> Result<bool> {
        let Some(Row { key, .. }) = record.row() else { return Ok(false) };
        // Of a table that cannot be read, nothing is dropped.
        Ok(self.looked(journal, log, |view| Ok(view.is_value(key, record.seqno))).unwrap_or(true))
    }
}
