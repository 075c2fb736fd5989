//! Runs whose TRIGGER was lost to damage, and which are still counted as pending. Each is ended with a dead letter, so that nothing waits
//! for it forever.

use crate::DeadLetter;
use millrace_journal::{Function, Journal, Kind, Position, Run, Transaction};
use millrace_namespace::{
    Namespace,
    admission::{Publish, Room, Stage},
    found,
    runs::{
        Ending,
        pending::{Pending, pending},
    },
};
use millrace_wire::{Code, Error, EventId, Name, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most runs that are ended in one batch.
const BATCH_RUNS_MAX: u64 = 64;

/// The remaining information about the lost runs of a journal.
#[derive(Default)]
pub(crate) struct Traces(BTreeMap<u32, Trace>);

/// The remaining information about those of one function.
#[derive(Default)]
struct Trace {
    /// The last TRIGGER: its number, its record, its run.
    before: Option<(u64, (u32, u64), EventId)>,
    /// Whether there was damage behind it.
    damaged: bool,
    gaps: Vec<Gap>,
    pending: HashSet<EventId>,
    /// Ends of runs whose TRIGGER was not met.
    ended: BTreeSet<EventId>,
    /// How many lost runs were ended before.
    settled: usize,
}

/// TRIGGERs that are missing between two of one function.
struct Gap {
    runs: (EventId, EventId),
    log: u32,
    /// The records between the ones on both sides, if they are as many as the TRIGGERs that are missing.
    records: Option<(u64, u64)>,
}

impl Traces {
    /// Reads a journal that may be damaged.
    pub fn of(journal: &Journal) -> Result<Self> {
        let (mut traces, tail) = (Self::default(), journal.tail());
        let mut scan = journal.scan(Position::default());
        let mut damages = 0_u64;
        let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
        while scan.position() < tail {
            let entry = match scan.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) if error.code() == Code::EntryDamaged => {
                    damages += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match entry.kind {
                Kind::Trigger => {
                    let damaged = seen.insert(entry.subject, damages).unwrap_or(0) < damages;
                    let trace = traces.0.entry(entry.subject).or_default();
                    trace.damaged |= damaged;
                    let record = entry.trigger_record().unwrap_or_default();
                    trace.triggered(entry.seqno, record, entry.id);
                }
                Kind::Done => {
                    let trace = traces.0.entry(entry.subject).or_default();
                    if entry.cause == EventId::NONE {
                        trace.settled += 1;
                    } else if !trace.pending.remove(&entry.cause) {
                        trace.ended.insert(entry.cause);
                    }
                }
                _ => {}
            }
        }
        Ok(traces)
    }

    /// The records of a function's lost runs, if it is certain which these are.
    fn records(&self, function: u32, lost: u64) -> Vec<(u32, u64)> {
        let Some(trace) = self.0.get(&function) else { return Vec::new() };
        let mut records = Vec::new();
        for gap in &trace.gaps {
            let (before, behind) = gap.runs;
            let Some((from, to)) = gap.records.filter(|_| before < behind) else { return Vec::new() };
            match trace.ended.range(before..behind).count() as u64 {
                0 => records.extend((from..=to).map(|seqno| (gap.log, seqno))),
                ended if ended == to + 1 - from => {}
                _ => return Vec::new(), // Some of them have ended, and nothing says which.
            }
        }
        let records = records.split_off(trace.settled.min(records.len()));
        if records.len() as u64 == lost { records } else { Vec::new() }
    }
}

impl Trace {
    fn triggered(&mut self, number: u64, record: (u32, u64), run: EventId) {
        // One that was carried forward numbers back.
        if self.before.is_some_and(|(before, ..)| number <= before) {
            self.pending.insert(run);
            return;
        }
        let (before, (log, seqno), first) = self.before.unwrap_or((0, (record.0, 0), EventId::NONE));
        if self.damaged && number > before + 1 {
            let is_dense = log == record.0 && record.1 > seqno && record.1 - seqno == number - before;
            let records = is_dense.then(|| (seqno + 1, record.1 - 1));
            self.gaps.push(Gap { runs: (first, run), log, records });
        }
        self.damaged = false;
        self.before = Some((number, record, run));
        self.pending.insert(run);
    }
}

/// Ends every run that is counted but missing; `reported` is called for each. `traces` is the journal that lost them.
///
/// There is only one caller: a host, or a process that makes a copy. Others may append meanwhile.
pub fn settle(
    namespace: &Namespace,
    damaged: &Journal,
    reported: &mut dyn FnMut(&Name, &Error),
) -> Result<BTreeMap<Name, u64>> {
    let journal = namespace.journal();
    let mut traces: Option<Traces> = None;
    let mut lost = BTreeMap::new();
    for function in journal.catalog()?.functions() {
        let id = function.id();
        // Runs that are pending by the index, which leads to no entry of them. Runs that begin from now on can be read.
        let unread = pending(journal, function, 1).filter_map(|run| match run {
            Ok(Pending::Run(_)) => None,
            Ok(Pending::Lost(number)) => Some(Ok(number)),
            Err(error) => Some(Err(error)),
        });
        let unread: Vec<u64> = unread.collect::<Result<_>>()?;
        let mut records: Option<std::vec::IntoIter<(u32, u64)>> = None;
        loop {
            // Once what is missing is known, where it was is looked up; under the lock it is only counted.
            let mut told_of = Vec::new();
            let missing = journal.commit(|tx| {
                let is_open = |number: &u64| function.run(*number).is_some_and(|item| item.closed == 0);
                let unread: Vec<u64> = unread.iter().copied().filter(is_open).collect();
                let there = function.count_pending(1, u64::MAX) - unread.len() as u64;
                let missing = tx.pending(id).saturating_sub(there);
                if let Some(records) = records.as_mut().filter(|_| missing > 0) {
                    told_of = Ends { namespace, tx, function }.stage(records, unread, missing)?;
                } else if missing == 0 {
                    let error = Code::RunLost
                        .error("the entry that ended a run was damaged; this entry only corrects the number of runs");
                    tx.recount(id, there, &Ending::dead(&error, &[]).to_end())?;
                }
                Ok(missing)
            })?;
            let missing = missing.value;
            if missing == 0 {
                break;
            }
            if records.is_none() {
                let traces = match &mut traces {
                    Some(traces) => traces,
                    none => none.insert(Traces::of(damaged)?),
                };
                records = Some(traces.records(id, missing).into_iter());
                continue;
            }
            *lost.entry(function.name().clone()).or_insert(0) += told_of.len() as u64;
            told_of.iter().for_each(|error| reported(function.name(), error));
        }
    }
    journal.sync(journal.tail())?;
    Ok(lost)
}

/// A batch of ends.
struct Ends<'a, 'j> {
    namespace: &'a Namespace,
    tx: &'a mut Transaction<'j>,
    function: &'a Function,
}

impl Ends<'_, '_> {
    /// Stages ends and dead letters for as many of the missing runs as a batch takes; says of each what was wrong.
    fn stage(
        &mut self,
        records: &mut dyn Iterator<Item = (u32, u64)>,
        unread: Vec<u64>,
        missing: u64,
    ) -> Result<Vec<Error>> {
        let mut reported = Vec::new();
        let (mut bytes, room) = (0, self.namespace.journal().record_max_bytes());
        // It is unknown which of the runs without an index item it was; the newest are taken.
        let mut numbers = unread.into_iter().chain(self.function.unknown());
        while bytes < room / 4 && (reported.len() as u64) < missing.min(BATCH_RUNS_MAX) {
            let (error, letter) = self.letter(records.next(), room / 2)?;
            let ending = Ending::dead(&error, &[]);
            bytes += letter + error.detail().len() + 256;
            let run = Run { id: EventId::NONE, number: numbers.next().unwrap_or(0) };
            self.tx.done(self.function.id(), run, &ending.to_end())?;
            reported.push(error);
        }
        Ok(reported)
    }

    /// Stages one dead letter, if it is known where to; returns its size.
    fn letter(&mut self, record: Option<(u32, u64)>, letter_max: usize) -> Result<(Error, usize)> {
        let name = self.function.name();
        let catalog = self.tx.catalog().clone();
        let log = record.and_then(|(log, _)| catalog.log_by_id(log).cloned());
        let seqno = record.map_or(0, |(_, seqno)| seqno);
        let mut payload = Vec::new();
        let is_whole = log.as_ref().is_some_and(|log| self.namespace.journal().get(log, seqno, &mut payload).is_ok());
        let error = Code::RunLost.error(match (&log, is_whole) {
            (Some(log), true) => format!("the run of record {seqno} of log '{}', which is intact", log.name()),
            (Some(log), false) => format!("the run of record {seqno} of log '{}', which is lost, too", log.name()),
            (None, _) => "the run of an unknown record".into(),
        });
        let bindings = self.namespace.bindings_of(self.tx);
        let Some(definition) = bindings.definition(self.function.id()) else { return Ok((error, 0)) };
        let of_log = log.as_ref().map_or("", |log| log.name());
        let letter = |payload| DeadLetter::new(EventId::NONE, name, (of_log, seqno, payload), 0, &error).to_bytes();
        let mut bytes = letter(is_whole.then_some(&payload[..]));
        if bytes.len() > letter_max {
            bytes = letter(None);
        }
        let ending = Some(self.function.id());
        let stage = Stage { cause: EventId::NONE, ordinal: 0, room: Room::DeadLetter, named: None, ending };
        let publish = Publish::new(self.namespace, self.tx);
        let to = &definition.spec.dead_letter;
        match publish.dead_letter(self.tx, to, &bytes, stage) {
            // The limits of functions bound to the log do not block a dead letter.
            Err(refused) if refused.code() == Code::RoomExhausted => {
                let to = found(self.tx.catalog().log(to), to)?.clone();
                self.tx.append(&to, &bytes, EventId::NONE, 0).map(drop)?;
            }
            appended => drop(appended?),
        }
        Ok((error, bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::NamespaceId;

    #[test]
    fn between_runs_whose_ids_do_not_rise_nothing_is_certain() {
        let id = |sequence| EventId::new(NamespaceId::new(7).unwrap(), 1, sequence);
        for (before, behind, records) in [(1, 5, vec![(3, 2)]), (5, 1, vec![]), (5, 5, vec![])] {
            let mut trace = Trace::default();
            trace.triggered(1, (3, 1), id(before));
            trace.damaged = true;
            trace.triggered(3, (3, 3), id(behind));
            let traces = Traces(BTreeMap::from([(0, trace)]));
            assert_eq!(traces.records(0, 1), records);
        }
    }
}
