//! What one process knows of a table: where the newest record of each key stands.

use crate::sorted::Sorted;
use millrace_journal::{Entry, Journal, Kind, Log, Position};
use millrace_wire::{
    Code, Result,
    table::{KeyRange, show_key},
};

/// So many records are read on an event loop.
const FEW: u64 = 1000;

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
}

impl View {
    /// Whether it has all records that the log has now.
    pub fn is_current(&self, log: &Log) -> bool {
        self.copies.is_some() && self.seen == log.latest()
    }

    /// Whether it is made, and has only few records to read.
    pub fn is_at_hand(&self, log: &Log) -> bool {
        self.copies.is_some() && log.latest().saturating_sub(self.seen) <= FEW
    }

    /// How many keys it has, deleted ones included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what was committed since; `moved` if a position was found that retention has dropped.
    pub fn catch_up(&mut self, journal: &Journal, log: &Log, moved: bool) -> Result<()> {
        let tail = journal.tail();
        match self.copies {
            Some(copies) if moved && tail > copies => self.read(journal, log, copies)?,
            Some(_) if !moved => {}
            _ => return self.read_anew(journal, log),
        }
        let latest = log.latest();
        for seqno in self.seen + 1..=latest {
            let position = journal.position(log, seqno);
            let record = match position.get() {
                0 => None,
                _ => match record_at(journal, log, position) {
                    Err(error) if error.code() == Code::BelowHistory => None,
                    found => Some(found?),
                },
            };
            // It has left the log's history; the journal has it nevertheless if it is the newest of its key.
            let Some(record) = record.filter(|record| record.seqno == seqno) else {
                return self.read(journal, log, self.upto);
            };
            self.take(log, &record)?;
            self.seen = seqno;
        }
        self.upto = tail;
        self.keys.forget_before(journal.first());
        Ok(())
    }

    fn read_anew(&mut self, journal: &Journal, log: &Log) -> Result<()> {
        *self = Self::default();
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
        (self.upto, self.copies) = (tail, Some(tail));
        Ok(())
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
        // What a copy of an old version says is not true of the key any more.
        if !row.superseded && self.keys.get(row.key).is_none_or(|known| known.seqno <= found.seqno) {
            self.keys.insert(row.key, found);
        }
        Ok(())
    }

    /// The newest version of a key that was written before a position.
    pub fn find(&self, journal: &Journal, log: &Log, key: &[u8], upto: Option<Position>) -> Result<Option<Found>> {
        let mut found = self.keys.get(key);
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
    pub fn keys<'v>(&'v self, range: KeyRange<'_>) -> impl Iterator<Item = &'v [u8]> {
        self.keys.range(range)
    }

    /// Whether a key's newest version is this one, and a value.
    pub fn is_value(&self, key: &[u8], seqno: u64) -> bool {
        self.keys.get(key).is_some_and(|found| found.is_value && found.seqno == seqno)
    }

    /// Keys whose values have expired by a time.
    pub fn expired(&self, now_us: u64, limit: usize) -> Vec<Vec<u8>> {
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
