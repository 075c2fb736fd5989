//! Runs a function for existing records.

use crate::{
    Namespace,
    admission::Room,
    gate::{Shows, Site},
    namespace::{found, named},
};
use millrace_journal::{Function, Kind, Log, Origin, Position};
use millrace_wire::{Code, EventId, Name, Result};
use std::{collections::HashSet, time::Duration};

/// Records in one commit, so that others append between two of them.
const BATCH_MAX: u64 = 256;

/// The result of a backfill, or its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backfilled {
    /// Runs that were started.
    pub runs: u64,
    /// The last record that was given a run; 0 if none was.
    pub upto: u64,
    /// Records that left the log's history, or were found damaged, before they were reached.
    pub missing: u64,
    /// Records that got no run because their append had started one.
    pub ran: u64,
}

/// Which records of a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretch {
    /// The first one, by default the oldest that is kept.
    pub from: Option<u64>,
    /// The last one, by default the newest when the backfill begins.
    pub to: Option<u64>,
    /// Without the records whose append started a run of the function.
    pub missed: bool,
}

impl Namespace {
    /// Runs `function`, and no other function, once for each record of a stretch of `log`, oldest first, whether or not it ran for
    /// that record before. No record is appended. `patience` is how long to wait for room while too many runs of the function are
    /// pending; `progress` is called for each batch once it is safe. When this fails, what `progress` heard of last stays: a further call
    /// continues behind it.
    pub fn backfill(
        &self,
        function: &Name,
        log: &str,
        stretch: Stretch,
        patience: Duration,
        progress: &mut dyn FnMut(Backfilled),
    ) -> Result<Backfilled> {
        let (mut done, of) = (Backfilled::default(), self.log(log)?);
        let newest = of.latest();
        let to = stretch.to.unwrap_or(newest);
        if to > newest {
            return Err(Code::AboveTail.error(format!("record {to} of log '{log}'; the newest is {newest}")));
        }
        let mut next = match stretch.from {
            Some(from) if from > to => {
                return Err(Code::ValueInvalid
                    .error(format!("from record {from} to record {to}: the first record is after the last one")));
            }
            Some(from) if from < of.earliest() => {
                let reported = format!("record {from} of log '{log}'; the oldest is {}", of.earliest());
                return Err(Code::BelowHistory.error(reported));
            }
            from => from.unwrap_or(of.earliest()).max(1),
        };
        while next <= to {
            let last = to.min(next + BATCH_MAX - 1);
            let committed =
                self.with_patience(patience, || self.start(function, log, (next, last, stretch.missed), done))?;
            let end;
            (done, next, end) = committed;
            self.settle(Site::AppendBatch, Shows::Batch(end), None)?;
            progress(done);
        }
        Ok(done)
    }

    /// Starts runs for as many records of a batch as there is room for, at least one; what is done then, the record to continue with,
    /// and where the journal ends.
    fn start(
        &self,
        function: &Name,
        log: &str,
        (first, last, missed): (u64, u64, bool),
        before: Backfilled,
    ) -> Result<(Backfilled, u64, Position)> {
        // Outside the commit, which holds the journal's lock. An id is that of its place in the log forever.
        let (of, mut payload, mut ids) = (self.log(log)?, Vec::new(), Vec::new());
        for seqno in first..=last {
            ids.push(match self.journal().get(&of, seqno, &mut payload) {
                Ok(meta) => Some(meta.id),
                Err(error) if matches!(error.code(), Code::BelowHistory | Code::EntryDamaged) => None,
                Err(error) => return Err(error),
            });
        }
        let ran = if missed { self.started(&of, function, (first, last))? } else { HashSet::new() };
        let committed = self.journal().commit(|tx| {
            let (catalog, bindings) = (tx.catalog().clone(), self.bindings_of(tx));
            let bound = named(&catalog, &bindings, function)?;
            let now = found(catalog.log(log), log)?;
            if now.id() != of.id() {
                return Err(Code::LogNotFound.error(format!("log '{log}' was deleted and recreated meanwhile")));
            }
            let (mut done, mut next) = (before, first);
            for id in &ids {
                if ran.contains(&next) {
                    done.ran += 1;
                } else if let Some(id) = id {
                    let pending = tx.pending(bound.function);
                    if pending >= Room::Outside.most(bound) {
                        if next == first {
                            return Err(Room::Outside.refusal(log, function, pending));
                        }
                        break;
                    }
                    let cause: EventId = *id;
                    tx.trigger(bound.function, cause, now, next, Origin::Backfill)?;
                    (done.runs, done.upto) = (done.runs + 1, next);
                } else {
                    done.missing += 1;
                }
                next += 1;
            }
            Ok((done, next))
        })?;
        let (done, next) = committed.value;
        Ok((done, next, committed.end))
    }

    /// The records whose append started a run of the function: both are in one batch. Of a record that was carried to a later segment
    /// this is no longer known.
    fn started(&self, log: &Log, function: &Name, (first, last): (u64, u64)) -> Result<HashSet<u64>> {
        let (journal, catalog) = (self.journal(), self.journal().catalog()?);
        let Some(function) = catalog.function(function).map(Function::id) else { return Ok(HashSet::new()) };
        let (mut started, mut read) = (HashSet::new(), Position::default());
        for seqno in first..=last {
            let position = journal.position(log, seqno);
            // The batch of an earlier record has this one, too.
            if position < read || position == Position::default() {
                continue;
            }
            journal.visit(position, journal.tail(), &mut |entry| {
                let is_ours = entry.kind == Kind::Trigger && entry.subject == function;
                let record = entry.trigger_record().filter(|(of, _)| is_ours && *of == log.id());
                started.extend(record.map(|(_, seqno)| seqno));
                read = entry.end;
                !entry.last
            })?;
        }
        Ok(started)
    }
}
