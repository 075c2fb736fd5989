//! What one process knows of a table: where the newest record of each key stands.

use crate::{
    frozen::{Frozen, Reach, range_of},
    sorted::{Freezing, Keys, Sorted},
};
use millrace_journal::{Entry, Journal, Kind, Log, Position};
use millrace_wire::{
    Code, Result,
    table::{KeyRange, show_key},
};
use std::sync::Arc;

/// So many records are read on an event loop.
const FEW: u64 = 1000;
/// After so many records, the view is written to a file by default.
pub(crate) const FREEZE_RECORDS: u64 = 65_536;
/// The same after so many bytes of the journal that a process would have to read.
const FREEZE_BYTES: u64 = 256 << 20;
/// A view that could not be written is tried again after so many records.
const TRY_AGAIN: u64 = 4096;

/// A version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The seqno of its record.
    pub seqno: u64,
    /// Where the record, or the copy that retention made of it, stands.
    pub position: Position,
    /// Where the record was first written.
    pub written: Position,
    /// When it expires, in microseconds since 1970; 0 if never.
    pub expires_us: u64,
    /// Whether the key has a value; otherwise it was deleted with this version.
    pub is_value: bool,
}

impl Found {
    fn of(record: &Entry) -> Option<Self> {
        let row = record.row()?;
        Some(Self {
            seqno: record.seqno,
            position: record.position,
            written: record.written,
            expires_us: row.expires_us,
            is_value: row.is_value(),
        })
    }

    /// Whether the key has a value at this time.
    pub fn has_value(&self, now_us: u64) -> bool {
        self.is_value && (self.expires_us == 0 || self.expires_us > now_us)
    }
}

/// The newest versions of all keys up to some point of the journal.
#[derive(Default)]
pub struct View {
    keys: Sorted,
    /// All records of the log up to this one are in it.
    seen: u64,
    /// All records of the log before this position are in it.
    upto: Position,
    /// All copies that retention made before this position are in it; `None` if the journal was not read yet.
    copies: Option<Position>,
    /// Up to where its files are.
    frozen: Reach,
    /// How many records and copies it has taken since.
    taken: u64,
    /// With so many it is looked at whether it is to be written to a file.
    look_at: u64,
    /// How often it was made anew.
    made: u64,
}

impl View {
    /// Whether it has all records that the log has now.
    pub fn is_current(&self, log: &Log) -> bool {
        self.copies.is_some() && self.seen == log.latest() && !self.keys.is_damaged()
    }

    /// Whether it is made, and has only few records to read.
    pub fn is_at_hand(&self, log: &Log) -> bool {
        self.copies.is_some() && log.latest().saturating_sub(self.seen) <= FEW
    }

    /// How many keys it has, deleted ones included; about, while it has files.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what was committed since. `moved` says how often a position was found since then that retention has dropped.
    pub fn catch_up(&mut self, journal: &Journal, log: &Log, moved: u32) -> Result<()> {
        match self.advance(journal, log, moved) {
            Err(_) if self.keys.is_damaged() => self.read_anew(journal, log),
            advanced => advanced,
        }
    }

    fn advance(&mut self, journal: &Journal, log: &Log, moved: u32) -> Result<()> {
        if self.copies.is_none() {
            self.open(journal, log, 0);
        }
        let Some(copies) = self.copies.filter(|_| moved < 2 && !self.keys.is_damaged()) else {
            return self.read_anew(journal, log);
        };
        if !self.follow(journal, log)? {
            // They have left the log's history; the journal has the newest of each key nevertheless. But of a key that was deleted meanwhile
            // it may have nothing.
            if self.upto < journal.first() {
                return self.read_anew(journal, log);
            }
            self.read(journal, log, self.upto)?;
        }
        match moved {
            0 => Ok(()),
            _ if copies < journal.tail() => self.read(journal, log, copies),
            _ => self.read_anew(journal, log),
        }
    }

    /// Takes the newer records by their numbers; false if one is not in the log any more.
    fn follow(&mut self, journal: &Journal, log: &Log) -> Result<bool> {
        let tail = journal.tail();
        let latest = log.latest();
        if self.seen < latest && self.seen + 1 < log.earliest() {
            return Ok(false);
        }
        for seqno in self.seen + 1..=latest {
            let position = journal.position(log, seqno);
            let record = match position.get() {
                0 => None,
                _ => match record_at(journal, log, position) {
                    Err(error) if error.code() == Code::BelowHistory => None,
                    found => Some(found?),
                },
            };
            let Some(record) = record.filter(|record| record.seqno == seqno) else { return Ok(false) };
            self.take(log, &record)?;
            self.seen = seqno;
        }
        self.upto = tail;
        self.keys.forget_before(journal.first());
        Ok(true)
    }

    fn read_anew(&mut self, journal: &Journal, log: &Log) -> Result<()> {
        *self = Self { made: self.made + 1, ..Self::default() };
        self.read(journal, log, Position::default())
    }

    /// Takes all records of the log from a position on.
    fn read(&mut self, journal: &Journal, log: &Log, from: Position) -> Result<()> {
        // Records up to here are committed, so the scan meets all of them that the journal has.
        let (latest, tail) = (log.latest(), journal.tail());
        let mut scan = journal.scan(from);
        let mut damaged = None;
        while scan.position() < tail {
            match scan.next() {
                Ok(Some(entry)) if entry.kind == Kind::Append && entry.subject == log.id() => self.take(log, entry)?,
                Ok(Some(_)) => {}
                Ok(None) => break,
                // It may be an entry of another log.
                Err(error) if error.code() == Code::EntryDamaged => damaged = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = damaged {
            // A key of a record that cannot be read would seem to have the version before it.
            let mut seqnos = log.earliest().max(1)..=latest;
            if seqnos.any(|seqno| record_at(journal, log, journal.position(log, seqno)).is_err()) {
                return Err(error);
            }
        }
        self.keys.forget_before(journal.first());
        self.seen = self.seen.max(latest);
        self.upto = tail;
        if self.copies.is_none_or(|copies| from <= copies) {
            self.copies = Some(tail);
        }
        Ok(())
    }

    /// Uses the files that some process has written, if they have more than this record and are sound. Whether it does.
    fn open(&mut self, journal: &Journal, log: &Log, beyond: u64) -> bool {
        let names = journal.sealed().names().unwrap_or_default();
        let mut ranges: Vec<(u64, u64, &str)> =
            names.iter().filter_map(|name| range_of(name, log).map(|(since, seen)| (since, seen, &**name))).collect();
        // The one with the most first.
        ranges.sort_unstable_by_key(|(_, seen, _)| std::cmp::Reverse(*seen));
        let newest = |since| {
            let files = ranges.iter().filter(|(of, ..)| *of == since);
            files.filter_map(|(.., name)| Frozen::open(journal, log, name)).next()
        };
        let Some(first) = newest(0) else { return false };
        let second = if first.head().reach.seen == 0 { None } else { newest(first.head().reach.seen) };
        let reach = second.as_ref().unwrap_or(&first).head().reach;
        if reach.seen <= beyond {
            return false;
        }
        let files = [Some(first), second].into_iter().flatten().map(Arc::new).collect();
        let (keys, made) = (Sorted::of(files), self.made + 1);
        let Reach { seen, upto, copies } = reach;
        *self = Self { keys, seen, upto, copies: Some(copies), frozen: reach, taken: 0, look_at: 0, made };
        true
    }

    /// Whether it is to be written to a file after so many records, or another process has just done so and it continues from there.
    pub(crate) fn is_due(&mut self, journal: &Journal, log: &Log, records: u64) -> bool {
        if self.taken < self.look_at || self.keys.is_freezing() {
            return false;
        }
        let unread = self.upto.get().saturating_sub(self.frozen.upto.max(journal.first()).get());
        let has_many = self.taken >= records;
        // What the log still has need not be found in the journal.
        let is_long = unread >= FREEZE_BYTES && (self.frozen.seen == 0 || self.taken > log.history() / 2);
        if !has_many && !is_long {
            return false;
        }
        self.look_at = self.taken + TRY_AGAIN;
        if self.open(journal, log, self.frozen.seen + records / 2) {
            return false;
        }
        let is_being_written = |name: &String| name.starts_with(&crate::frozen::prefix(log)) && name.contains('.');
        let names = journal.sealed().names().unwrap_or_default();
        // Another process may be at it; if it does not come to an end, this one is.
        self.taken >= 2 * records.max(TRY_AGAIN) || !names.iter().any(is_being_written)
    }

    /// What is to be written to a file, up to where it will be, and which making of the view it belongs to.
    pub(crate) fn freeze(&mut self) -> Option<(Freezing, Reach, u64)> {
        let copies = self.copies?;
        let freezing = self.keys.freeze()?;
        (self.taken, self.look_at) = (0, 0);
        Some((freezing, Reach { seen: self.seen, upto: self.upto, copies }, self.made))
    }

    /// It is written, unless `file` is `None`. False if the view was made anew meanwhile.
    pub(crate) fn frozen(&mut self, freezing: &Freezing, file: Option<Frozen>, made: u64) -> bool {
        if self.made != made {
            return false;
        }
        match file {
            Some(file) => {
                self.frozen = file.head().reach;
                self.keys.frozen(freezing.kept.len(), Arc::new(file));
            }
            None => {
                self.keys.thaw();
                self.look_at = self.taken + TRY_AGAIN;
            }
        }
        true
    }

    /// The names of its files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.keys.files().iter().map(|file| file.name())
    }

    fn take(&mut self, log: &Log, record: &Entry) -> Result<()> {
        // A repair took it away, and says in a record of its own what the key has.
        if record.replaced().is_some_and(|replaced| replaced.void) {
            return Ok(());
        }
        let Some((row, found)) = record.row().zip(Found::of(record)) else {
            let (seqno, name) = (record.seqno, log.name());
            return Err(Code::EntryDamaged.error(format!("record {seqno} of table '{name}' has no key")));
        };
        self.taken += 1;
        // What a copy of an old version says is not true of the key any more.
        let is_newest =
            found.seqno > self.seen || self.keys.get(row.key)?.is_none_or(|known| known.seqno <= found.seqno);
        if !row.superseded && is_newest {
            self.keys.insert(row.key, found, row.previous == Position::default());
        }
        Ok(())
    }

    /// The newest version of a key that was written before a position.
    pub fn find(&self, journal: &Journal, log: &Log, key: &[u8], upto: Option<Position>) -> Result<Option<Found>> {
        let newest = self.keys.get(key)?;
        self.find_from(journal, log, (key, newest), upto)
    }

    /// [`View::find`], if its newest version is known.
    pub fn find_from(
        &self,
        journal: &Journal,
        log: &Log,
        (key, newest): (&[u8], Option<Found>),
        upto: Option<Position>,
    ) -> Result<Option<Found>> {
        let mut found = newest;
        if upto.is_some_and(|upto| upto < journal.first() && found.is_none_or(|version| version.written >= upto)) {
            // Retention has dropped what was deleted or replaced since.
            let (key, name) = (show_key(key), log.name());
            return Err(
                Code::TableVersionGone.error(format!("key '{key}' of table '{name}' as it was at an earlier time"))
            );
        }
        if let Some(version) = found.filter(|version| version.is_value && version.position < journal.first()) {
            // Who changes the key now names this position: it has to be that of the copy.
            return Err(Code::BelowHistory.error(format!("position {} is no longer kept", version.position)));
        }
        while let (Some(version), Some(upto)) = (found, upto) {
            if version.written < upto {
                break;
            }
            let record = record_at(journal, log, version.position)?;
            found = before(journal, log, key, &record).map_err(|error| match error.code() {
                Code::BelowHistory => {
                    let (key, name) = (show_key(key), log.name());
                    Code::TableVersionGone
                        .error(format!("key '{key}' of table '{name}' as it was before version {}", version.seqno))
                }
                _ => error,
            })?;
        }
        Ok(found)
    }

    /// The keys of a range, in order.
    pub(crate) fn keys(&self, range: KeyRange<'_>) -> Result<Keys<'_>> {
        self.keys.range(range)
    }

    /// Whether a key's newest version is this one, and a value.
    pub fn is_value(&self, key: &[u8], seqno: u64) -> Result<bool> {
        Ok(self.keys.get(key)?.is_some_and(|found| found.is_value && found.seqno == seqno))
    }

    /// Keys whose values have expired by a time.
    pub fn expired(&self, now_us: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        self.keys.expired(now_us, limit)
    }
}

/// The record of a table at a position.
pub fn record_at(journal: &Journal, log: &Log, position: Position) -> Result<Entry> {
    let entry = journal.entry_at(position)?;
    if (entry.kind, entry.subject) != (Kind::Append, log.id()) {
        let detail = format!("there is no record of table '{}' at {position}", log.name());
        return Err(Code::EntryDamaged.error(detail));
    }
    Ok(entry)
}

/// The record of a version that was found.
pub(crate) fn record_of(journal: &Journal, log: &Log, found: &Found) -> Result<Entry> {
    let record = record_at(journal, log, found.position)?;
    if record.seqno == found.seqno {
        return Ok(record);
    }
    // What says so is a file that a view was read from.
    Err(Code::BelowHistory.error(format!("there is another record than {} at {}", found.seqno, found.position)))
}

/// What stands in the place of a record now: itself, or what a repair put there.
pub fn now_at(journal: &Journal, log: &Log, record: &Entry) -> Result<Entry> {
    let position = journal.position(log, record.seqno);
    if position == Position::default() || position == record.position {
        return Ok(record.clone());
    }
    match record_at(journal, log, position) {
        // Its log does not have it any more.
        Err(error) if error.code() == Code::BelowHistory => Ok(record.clone()),
        now => Ok(if now.as_ref().is_ok_and(|now| now.seqno == record.seqno) { now? } else { record.clone() }),
    }
}

/// The version of a key before the one that a record is.
pub fn before(journal: &Journal, log: &Log, key: &[u8], record: &Entry) -> Result<Option<Found>> {
    let previous = record.row().map_or(Position::default(), |row| row.previous);
    if previous == Position::default() {
        return Ok(None);
    }
    // The position is a hint: of a journal that was salvaged into this one, it has no meaning here.
    let unknown = || {
        let (key, name) = (show_key(key), log.name());
        let detail = format!("the version of key '{key}' of table '{name}' before {} is not known", record.seqno);
        Code::BelowHistory.error(detail)
    };
    let older = match record_at(journal, log, previous) {
        Err(error) if matches!(error.code(), Code::EntryDamaged | Code::AboveTail | Code::FormatVersion) => {
            return Err(unknown());
        }
        older => older?,
    };
    let is_its = older.seqno < record.seqno && older.row().is_some_and(|row| row.key == key);
    if is_its { Ok(Found::of(&older)) } else { Err(unknown()) }
}
