//! Reads as of a position: the state of a namespace at that position, even if records were appended, or left a log's history, since.
//!
//! ```text
//!  journal:  [ … records … ]|[ later ones ]
//!                           ^ upto
//! ```

use crate::{definition::Checked, namespace::found, replicas};
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

    /// The definitions.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The log of this name, which a run may read or append to.
    pub fn log(&self, checked: impl Checked) -> Result<Log> {
        let name = checked.name();
        found(self.catalog.log(name), name).cloned()
    }

    /// Refuses to read a table that is the replica of one of another namespace and was not loaded then.
    pub fn check_loaded(&mut self, table: &Log) -> Result<()> {
        let Some(mark) = replicas::mark(&self.catalog, table.name()).cloned() else { return Ok(()) };
        let latest = self.latest(&mark)?;
        replicas::check_note(table.name(), &self.get(&mark, latest)?)
    }

    /// Whether another namespace owns a table.
    pub fn is_replica(&self, table: &Log) -> bool {
        replicas::mark(&self.catalog, table.name()).is_some()
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

    /// The newest record while `seqno` was the newest one, passing over what repairs took away.
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
        // What was trimmed meanwhile, or has left a history that is shorter now, is gone.
        if error.code() != Code::BelowHistory || !log.extent_at(newest).has(seqno) {
            return Err(error);
        }
        let position = self.journal.position(log, seqno);
        if let Some(found) = self.entry(log, seqno, position) {
            return found;
        }
        let passed = self.passed_records(log, newest).and_then(|passed| passed.get(&seqno).copied());
        passed.and_then(|position| self.entry(log, seqno, position)).unwrap_or(Err(error))
    }

    /// The record at a position, if it is this one.
    fn entry(&self, log: &Log, seqno: u64, position: Position) -> Option<Result<Vec<u8>>> {
        let entry = self.journal.entry_at(position).ok()?;
        let found = (entry.kind, entry.subject, entry.seqno) == (Kind::Append, log.id(), seqno);
        let replaced = entry.replaced();
        let written = replaced.map_or(entry.written, |replaced| replaced.position);
        if !found || written >= self.upto {
            return None;
        }
        if replaced.is_some_and(|replaced| replaced.void) {
            let name = log.name();
            return Some(Err(
                Code::RecordVoid.error(format!("log '{name}' no longer has record {seqno}: a repair removed it"))
            ));
        }
        Some(Ok(entry.payload))
    }

    /// Where the records of a log stand that it had then, found by reading the journal up to there: only that knows
    /// where they are once the log's index has passed them.
    fn passed_records(&mut self, log: &Log, newest: u64) -> Option<&HashMap<u64, Position>> {
        if !self.passed.contains_key(&log.id()) {
            let (mut scan, mut found) = (self.journal.scan(Position::default()), HashMap::new());
            let extent = log.extent_at(newest);
            while scan.position() < self.upto {
                match scan.next() {
                    Ok(Some(entry)) if entry.kind == Kind::Append => {
                        if entry.subject == log.id() && extent.has(entry.seqno) {
                            found.insert(entry.seqno, entry.position);
                        }
                    }
                    // A repair has replaced records.
                    Ok(Some(entry)) if entry.kind == Kind::Generation => {
                        let of_log = |(id, seqno, _): &(u32, u64, Position)| *id == log.id() && extent.has(*seqno);
                        found.extend(entry.generation_rows().filter(of_log).map(|(_, seqno, at)| (seqno, at)));
                    }
                    Ok(Some(_)) => {}
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
    use crate::{AppendOptions, CreateOptions, Durability, Namespace, definition::Rights};
    use millrace_journal::Replaced;
    use millrace_wire::EventId;

    #[test]
    fn a_record_that_has_left_its_log_since_is_what_a_repair_had_made_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
        namespace.create_log(&"short".parse().unwrap(), 2).unwrap();
        let append = || namespace.append("short", b"old", AppendOptions::default()).unwrap();
        append();
        append();
        let journal = namespace.journal();
        let log = namespace.log("short").unwrap();
        let mut payload = Vec::new();
        let rows = [(1, false), (2, true)].map(|(seqno, void)| {
            let meta = journal.get(&log, seqno, &mut payload).unwrap();
            let replaced = Replaced { repair: 7, origin: meta.id, clock: meta.hlc, void, position: meta.position };
            let mut scan = journal.scan_all(journal.tail());
            let slot = (log.id(), seqno);
            journal.commit(|tx| tx.shadow_append(slot, b"new", (EventId::NONE, 0), &replaced)).unwrap();
            (slot.0, slot.1, scan.next().unwrap().unwrap().position)
        });
        journal.commit(|tx| tx.generation(7, &rows)).unwrap();
        let mut view = View::new(journal, journal.catalog().unwrap(), journal.tail());
        // So many that the index no longer has them.
        (0..100).for_each(|_| _ = append());
        assert_eq!(view.get(&log, 1).unwrap(), b"new");
        assert_eq!(view.get(&log, 2).unwrap_err().code(), Code::RecordVoid);
    }

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
        let rights = Rights::default();
        let log = view.log(rights.readable("short", None).unwrap()).unwrap();
        assert_eq!((view.latest(&log).unwrap(), namespace.latest("short").unwrap()), (2, 3));
        assert_eq!(view.get(&log, 2).unwrap(), b"two");
        assert_eq!(view.get(&log, 1).unwrap_err().code(), Code::BelowHistory, "it had left before");
        assert_eq!(view.get(&log, 3).unwrap_err().code(), Code::AboveTail, "it came after");
        assert_eq!(view.log(rights.writable("none", None).unwrap()).unwrap_err().code(), Code::LogNotFound);
    }
}
