//! Reads as of a position: the state of a namespace at that position, even if records were appended, or left a log's history, since.
//!
//! ```text
//!  journal:  [ … records … ]|[ later ones ]
//!                           ^ upto
//! ```

use crate::namespace::found;
use millrace_journal::{Catalog, Journal, Kind, Log, Position};
use millrace_wire::{Code, Result};
use std::{collections::HashMap, sync::Arc};

/// A namespace as of a position of its journal.
pub struct View<'j> {
    journal: &'j Journal,
    catalog: Arc<Catalog>,
    upto: Position,
    /// By log: the newest record, once asked for.
    newest: HashMap<u32, u64>,
    /// By log: where records stand that have left its index since, once looked for.
    passed: HashMap<u32, HashMap<u64, Position>>,
}

impl<'j> View<'j> {
    /// A view of the entries before `upto`, with the definitions of `catalog`.
    pub fn new(journal: &'j Journal, catalog: Arc<Catalog>, upto: Position) -> Self {
        Self { journal, catalog, upto, newest: HashMap::new(), passed: HashMap::new() }
    }

    /// The log of this name.
    pub fn log(&self, name: &str) -> Result<Log> {
        found(self.catalog.log(name), name).cloned()
    }

    /// The seqno of the newest record that the log had then, 0 if it had none.
    pub fn latest(&mut self, log: &Log) -> Result<u64> {
        if let Some(newest) = self.newest.get(&log.id()) {
            return Ok(*newest);
        }
        let newest = self.journal.latest_before(log, self.upto)?;
        self.newest.insert(log.id(), newest);
        Ok(newest)
    }

    /// The newest record up to `seqno`, passing over what repairs took away.
    pub fn newest(&self, log: &Log, seqno: u64) -> Result<u64> {
        self.journal.newest_upto(log, seqno)
    }

    /// A record that the log had then: also one that has left its history since, as long as its bytes are kept.
    pub fn get(&mut self, log: &Log, seqno: u64) -> Result<Vec<u8>> {
        let newest = self.latest(log)?;
        let mut payload = Vec::new();
        let error = match self.journal.get_before(log, seqno, self.upto, &mut payload) {
            Ok(_) => return Ok(payload),
            Err(error) => error,
        };
        // The log was trimmed meanwhile if it has less than its history.
        let trimmed = log.earliest() > log.latest().saturating_sub(log.history()) + 1;
        if error.code() != Code::BelowHistory || trimmed || seqno + log.history() <= newest {
            return Err(error);
        }
        let position = self.journal.position(log, seqno);
        self.entry(log, seqno, position)
            .or_else(|| {
                let position = *self.passed_records(log, newest)?.get(&seqno)?;
                self.entry(log, seqno, position)
            })
            .ok_or(error)
    }

    /// The record, if it exists.
    fn entry(&self, log: &Log, seqno: u64, position: Position) -> Option<Vec<u8>> {
        let entry = self.journal.entry_at(position).ok()?;
        let found = (entry.kind, entry.subject, entry.seqno) == (Kind::Append, log.id(), seqno);
        (found && entry.written < self.upto).then_some(entry.payload)
    }

    /// Where the records of a log stand that it had then, found by reading the journal up to there: only that knows
    /// where they are once the log's index has passed them.
    fn passed_records(&mut self, log: &Log, newest: u64) -> Option<&HashMap<u64, Position>> {
        if !self.passed.contains_key(&log.id()) {
            let (mut scan, mut found) = (self.journal.scan(Position::default()), HashMap::new());
            while scan.position() < self.upto {
                match scan.next() {
                    Ok(Some(entry)) => {
                        let kept = entry.seqno + log.history() > newest && entry.seqno <= newest;
                        if entry.kind == Kind::Append && entry.subject == log.id() && kept {
                            found.insert(entry.seqno, entry.position);
                        }
                    }
                    Ok(None) => break,
                    Err(error) if error.code() == Code::EntryDamaged => {}
                    Err(_) => return None,
                }
            }
            self.passed.insert(log.id(), found);
        }
        self.passed.get(&log.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppendOptions, CreateOptions, Durability, Namespace};

    #[test]
    fn what_was_there_is_read_although_the_log_has_moved_on() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
        namespace.create_log(&"short".parse().unwrap(), 1).unwrap();
        let append = |data: &[u8]| namespace.append("short", data, AppendOptions::default()).unwrap();
        append(b"one");
        append(b"two");
        let journal = namespace.journal();
        let mut view = View::new(journal, journal.catalog().unwrap(), journal.tail());
        append(b"three");
        let log = view.log("short").unwrap();
        assert_eq!((view.latest(&log).unwrap(), namespace.latest("short").unwrap()), (2, 3));
        assert_eq!(view.get(&log, 2).unwrap(), b"two");
        assert_eq!(view.get(&log, 1).unwrap_err().code(), Code::BelowHistory, "it had left before");
        assert_eq!(view.get(&log, 3).unwrap_err().code(), Code::AboveTail, "it came after");
        assert_eq!(view.log("none").unwrap_err().code(), Code::LogNotFound);
    }
}
