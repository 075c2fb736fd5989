//! Pending runs, as the indexes of their functions know them: each costs the reading of its TRIGGER and of its last FIRED.

use super::fold::{Fold, Found};
use crate::{Namespace, names::REPAIRS};
use millrace_journal::{Function, Journal, Kind, Log, Position};
use millrace_wire::{Code, EventId, LogName, Name, Result};
use std::collections::BTreeSet;

/// A pending run, or what is left of one.
#[derive(Debug)]
pub enum Pending {
    /// A run.
    Run(Box<Fold>),
    /// The number of a run that is counted as pending and whose TRIGGER cannot be read.
    Lost(u64),
}

impl Pending {
    /// The run, unless it is lost.
    pub fn found(self) -> Option<Fold> {
        match self {
            Pending::Run(fold) => Some(*fold),
            Pending::Lost(_) => None,
        }
    }
}

/// The pending runs of a function from a number on, in the order of their numbers. Runs that begin or end meanwhile may be among
/// them or not.
pub fn pending<'a>(
    journal: &'a Journal,
    function: &'a Function,
    from: u64,
) -> impl Iterator<Item = Result<Pending>> + 'a {
    let mut next = function.next_pending(from);
    std::iter::from_fn(move || {
        loop {
            let number = next?;
            next = function.next_pending(number + 1);
            match Fold::of(journal, function, number, false) {
                Ok(Found::Run(fold)) if fold.outcome().is_none() => return Some(Ok(Pending::Run(fold))),
                Ok(Found::Lost) => return Some(Ok(Pending::Lost(number))),
                Ok(Found::Run(_) | Found::Nothing) => {} // Over meanwhile, or not begun yet.
                Err(error) => return Some(Err(error)),
            }
        }
    })
}

/// The record of a run, and the run's view of it.
#[derive(Clone, Copy, Debug)]
pub struct RecordOf<'a> {
    /// The run's function and its number there.
    pub run: (u32, u64),
    /// The cause of the run.
    pub cause: EventId,
    /// The log.
    pub log: &'a Log,
    /// The record's place in it.
    pub seqno: u64,
}

impl Namespace {
    /// The logs of the records of a function's pending runs; `None` if there are more than `looked_max` runs, or if a log is gone.
    pub fn logs_of_pending(&self, function: &Name, looked_max: usize) -> Result<Option<BTreeSet<LogName>>> {
        let catalog = self.journal().catalog()?;
        let Some(function) = catalog.function(function) else { return Ok(Some(BTreeSet::new())) };
        let mut ids = BTreeSet::new();
        for (looked, run) in pending(self.journal(), function, 1).enumerate() {
            if looked == looked_max {
                return Ok(None);
            }
            ids.extend(run?.found().map(|fold| fold.record.0));
        }
        Ok(ids.into_iter().map(|id| Some(catalog.logs().find(|log| log.id() == id)?.name().clone())).collect())
    }

    /// The bytes of a pending run's record, even after it left the log's history; for a retry, the copy in the dead letter.
    pub fn record_of_run(&self, of: RecordOf<'_>) -> Result<Vec<u8>> {
        let (journal, mut payload) = (self.journal(), Vec::new());
        let read = journal.get(of.log, of.seqno, &mut payload);
        if read.as_ref().is_ok_and(|meta| meta.id == of.cause) {
            return Ok(payload);
        }
        // A repair may have put another record in its place, or none. The slot is still known for some time after the log has left it
        // behind.
        let is_held = read.as_ref().err().is_none_or(|error| error.code() != Code::BelowHistory);
        match journal.replaced(of.log, of.seqno) {
            Ok(Some(replaced)) if is_held && replaced.origin == of.cause => return read.map(|_| payload),
            _ => {}
        }
        if let Some(repaired) = self.record_repaired(of)? {
            return repaired;
        }
        if let Some(payload) = self.record_kept(of)? {
            return Ok(payload);
        }
        let gone = |why: String| Code::RecordGone.error(format!("record {} of the run: {why}", of.seqno));
        match self.record_of_letter(of.cause) {
            Ok(Some((_, payload))) => Ok(payload),
            Ok(None) => Err(gone(
                read.err().map_or_else(|| "another record is at its position".into(), |error| error.to_string()),
            )),
            Err(error) => Err(gone(error.to_string())),
        }
    }

    /// The entry of the last repair that replaced the record, if the record has left its log since.
    fn record_repaired(&self, of: RecordOf<'_>) -> Result<Option<Result<Vec<u8>>>> {
        let (journal, (function, number)) = (self.journal(), of.run);
        let catalog = journal.catalog()?;
        let run = catalog.function_by_id(function).and_then(|function| function.run(number));
        let (Some(run), Some(notes)) = (run, catalog.log(REPAIRS)) else { return Ok(None) };
        // A repair that was applied since has left a note since.
        if notes.latest() == 0 || journal.position(notes, notes.latest()) < Position::from_bytes(run.opened) {
            return Ok(None);
        }
        let (mut scan, mut found) = (journal.scan(Position::from_bytes(run.opened)), None);
        while let Some(entry) = scan.next()? {
            if entry.kind == Kind::Generation {
                let its = |(log, seqno, _): &(u32, u64, Position)| (*log, *seqno) == (of.log.id(), of.seqno);
                found = entry.generation_rows().filter(its).map(|(.., position)| position).last().or(found);
            }
        }
        let Some(position) = found.filter(|position| *position >= journal.first()) else { return Ok(None) };
        let entry = journal.entry_at(position)?;
        Ok(match entry.replaced() {
            Some(replaced) if replaced.origin != of.cause => None,
            Some(replaced) if replaced.void => {
                let error = format!("log '{}' no longer has record {}: a repair removed it", of.log.name(), of.seqno);
                Some(Err(Code::RecordVoid.error(error)))
            }
            // A rollback has the slot lead to the first version again.
            Some(_) => Some(Ok(entry.payload)),
            None => (entry.id == of.cause).then_some(Ok(entry.payload)),
        })
    }

    /// The record that is kept for the run's sake.
    fn record_kept(&self, of: RecordOf<'_>) -> Result<Option<Vec<u8>>> {
        let (journal, (function, number)) = (self.journal(), of.run);
        let catalog = journal.catalog()?;
        let Some(item) = catalog.function_by_id(function).and_then(|function| function.run(number)) else {
            return Ok(None);
        };
        let Ok(trigger) = journal.entry_at(Position::from_bytes(item.opened)) else { return Ok(None) };
        let is_its = |entry: &millrace_journal::Entry| {
            (entry.kind, entry.subject, entry.seqno, entry.id) == (Kind::Append, of.log.id(), of.seqno, of.cause)
        };
        Ok(journal.record_of(&trigger)?.filter(is_its).map(|entry| entry.payload))
    }
}
