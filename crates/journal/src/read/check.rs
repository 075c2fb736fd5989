//! Verifying a journal from its first entry to its tail.

use crate::{
    catalog::{Function, Log},
    entry::{Header, Kind, Position},
    journal::{Inner, MANIFEST},
    read::get::damaged,
    store::{
        index::{Index, JOURNAL_ID, SEQUENCE_STEP},
        manifest::Manifest,
        segments::io_error,
        slot::{Slot, WRONG},
    },
    write::committed::sequence_item,
};
use millrace_wire::{Error, Result};
use std::{collections::BTreeMap, sync::atomic::Ordering};

/// The findings of [`crate::Journal::check`].
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Entries that passed, by kind.
    pub entries: BTreeMap<&'static str, u64>,
    /// Batches that passed.
    pub batches: u64,
    /// Bytes looked at.
    pub bytes: u64,
    /// Failures; at most [`FAULTS_MAX`] are kept.
    pub faults: Vec<Error>,
    /// How many did not pass.
    pub fault_count: u64,
    /// Worth knowing, though nothing is damaged: the clock of an event was wrong.
    pub warnings: Vec<Error>,
}

/// How a report calls entries of all kinds that this version does not know and may ignore.
const IGNORED: &str = "IGNORED";
/// Faults a report keeps.
pub const FAULTS_MAX: usize = 100;

impl CheckReport {
    fn fault(&mut self, error: Error) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(error);
        }
    }
}

impl Inner {
    /// Reads every kept entry: checksums, the chain, sequence numbers, whole batches, and that indexes agree.
    pub(crate) fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let catalog = self.fresh_catalog()?;
        // The journal's own value is known at its end.
        let claimed: Vec<(&Log, u64)> = catalog.logs().map(|log| (log, log.latest())).collect();
        let mut newest = self.newest_in_manifest()?;
        let first = self.control.upkeep.first.load(Ordering::Acquire);
        let tail = self.control.published.tail.load(Ordering::Acquire);
        for number in self.segments.number(first)..=self.segments.number(tail - 1) {
            self.segments.probe(number)?;
            if self.segments.segment_header(number)?.is_none() {
                report.fault(damaged(self.segments.start(number), format!("the header of segment {number}")));
            }
        }
        let mut position = first;
        let mut before: Option<crate::entry::Header> = None;
        loop {
            let (at, header) = match self.entry_from(&mut position, tail) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    report.fault(error);
                    before = None;
                    continue;
                }
            };
            if let Some(before) = before {
                if header.sequence != before.sequence + 1 || header.prev != before.crc {
                    report.fault(damaged(at, format!("entry {} does not follow {}", header.sequence, before.sequence)));
                }
                if header.epoch < before.epoch {
                    report.fault(damaged(at, "an earlier epoch follows a later one"));
                }
            }
            let name = Kind::from_u8(header.kind).map_or(IGNORED, Kind::name);
            *report.entries.entry(name).or_default() += 1;
            report.batches += u64::from(header.is_last());
            let kind = header.folded();
            if matches!(kind, Some(Kind::Append | Kind::Trim)) {
                let seqno = if kind == Some(Kind::Append) { header.seqno } else { header.seqno.saturating_sub(1) };
                let newest = newest.entry(header.subject).or_default();
                *newest = seqno.max(*newest);
            }
            if kind == Some(Kind::Append)
                && let Some(log) = catalog.log_by_id(header.subject)
                && !self.is_indexed(log, &header, at)?
            {
                let (name, seqno) = (log.name(), header.seqno);
                report.fault(damaged(at, format!("the index of log '{name}' lacks record {seqno}")));
            }
            if let Some(kind @ (Kind::Trigger | Kind::Fired | Kind::Done)) = kind
                && let Some(function) = catalog.function_by_id(header.subject)
                && !self.is_told(function, kind, &header, at)?
            {
                let (name, number, kind) = (function.name(), header.seqno, kind.name());
                let what = format!("the index of function '{name}' lacks the {kind} of run {number}");
                report.fault(damaged(at, what));
            }
            if header.sequence.is_multiple_of(SEQUENCE_STEP) && !self.is_sequenced(&header, at)? {
                report.fault(damaged(at, format!("the index of the journal lacks entry {}", header.sequence)));
            }
            before = Some(header);
            position = at + header.span();
            if report.batches.is_multiple_of(4096) {
                progress(position - first, tail - first);
            }
        }
        for (log, claimed) in claimed {
            let newest = newest.get(&log.id()).copied().unwrap_or(0);
            if claimed > newest && log.check_exists().is_ok() {
                let what = format!("the index of log '{}' has record {claimed}; the newest is {newest},", log.name());
                report.fault(damaged(tail, what));
            }
        }
        for function in catalog.functions() {
            let _guard = self.lock()?;
            if function.index().find_open() {
                let what =
                    format!("the index of function '{}' was wrong about which runs are pending,", function.name());
                report.fault(damaged(tail, what));
            }
        }
        if before.is_some_and(|header| !header.is_last()) {
            report.fault(damaged(Position(tail).0, "the journal ends within a batch"));
        }
        report.warnings.extend(self.check_clock().err());
        report.bytes = tail - first;
        progress(tail - first, tail - first);
        Ok(report)
    }

    /// The newest seqnos by the manifest, by log.
    fn newest_in_manifest(&self) -> Result<BTreeMap<u32, u64>> {
        let bytes = self.medium.read(MANIFEST).map_err(|error| io_error(MANIFEST, &error))?;
        let rows = Manifest::decode(&bytes)?.logs.into_iter();
        Ok(rows.map(|row| (row.id, row.latest.max(row.trimmed.saturating_sub(1)))).collect())
    }

    /// Whether a function's index leads to this entry of a run, or to a later one that takes its place, or no longer has the run.
    /// If not, it is corrected.
    fn is_told(&self, function: &Function, kind: Kind, header: &Header, at: u64) -> Result<bool> {
        let is_right = || {
            function.run(header.seqno).is_none_or(|item| match kind {
                Kind::Trigger => item.opened == at || item.opened > at && item.opened != WRONG,
                // Its TRIGGER was dropped with an older segment, and is not needed.
                _ if item.opened == 0 => true,
                Kind::Fired => item.noted == at || item.noted > at && item.noted != WRONG,
                _ => item.closed != 0 && item.closed != WRONG,
            })
        };
        if is_right() {
            return Ok(true);
        }
        let _guard = self.lock()?;
        let found = is_right();
        if !found {
            self.index_entry(at, header);
        }
        Ok(found)
    }

    /// Whether the journal's own index leads to this entry. If not, it is corrected.
    fn is_sequenced(&self, header: &Header, at: u64) -> Result<bool> {
        let Some(index) = Index::find(&*self.arena, JOURNAL_ID) else { return Ok(false) };
        let position = || index.position(sequence_item(header.sequence));
        if position() == at || self.check_kept(at).is_err() {
            return Ok(true);
        }
        let _guard = self.lock()?;
        let found = position() == at;
        if !found {
            self.index_sequence(at, header);
        }
        Ok(found)
    }

    /// Whether the index leads to this record, here or where it was copied to, or the log no longer has it. If not, the index
    /// is corrected.
    fn is_indexed(&self, log: &Log, header: &Header, at: u64) -> Result<bool> {
        let (seqno, index) = (header.seqno, log.index());
        let word = index.word(seqno);
        let position = index.unpack(seqno, word).map_or(WRONG, |slot| slot.map_or(0, |slot| slot.position));
        if seqno < log.earliest() || position == at {
            return Ok(true);
        }
        if position > at && self.stands_at(log, seqno, position)? {
            return Ok(true);
        }
        // Overwritten by a newer record since, or by one that is about to be committed.
        if seqno < log.earliest() || index.word(seqno) != word || !self.write_lock().is_free() {
            return Ok(true);
        }
        index.correct(seqno, word, Slot::own(at, u64::from(header.length)));
        Ok(false)
    }
}
