//! Sums: an increment after a version that changes comes to another sum.
//!
//! The sums of a key are made again in the order of its versions, each once, as the replay gets there: before a run is examined, all sums
//! that it can have seen are right. A cursor for each key says up to where.

use super::{LAST, Lookup, Place, Version};
use crate::{open::BATCH_BYTES, session::Session, settle::RowOf};
use millrace_journal::{Log, Operation, Position};
use millrace_namespace::tables::batch::Sight;
use millrace_wire::{Code, EventId, Result};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// The sum in a slot, as it is to be.
struct Sum {
    slot: u64,
    bytes: Vec<u8>,
    row: RowOf,
    cause: (EventId, u16),
    previous: Position,
}

/// The sums that are to be made again.
#[derive(Default)]
pub struct Sums {
    /// By table and key: up to which place they are right.
    cursors: HashMap<(u32, Arc<[u8]>), Place>,
    /// The keys with versions behind their cursors: each with the first of them, or one before.
    due: BTreeSet<(Place, u32, Arc<[u8]>)>,
    /// The end of the journal when the others were looked at.
    looked: Position,
    /// The last run that had ended by then.
    ended: u64,
}

impl Sums {
    fn start(&mut self, log: u32, key: Arc<[u8]>, place: Place) {
        let cursor = self.cursors.entry((log, key.clone())).or_insert(place);
        *cursor = place.min(*cursor);
        self.due.insert((*cursor, log, key));
    }
}

impl Session<'_> {
    /// That versions of a key change from a place on.
    pub(crate) fn unsettle(&mut self, log: u32, key: Arc<[u8]>, place: Place) {
        self.sums.start(log, key, place);
    }

    /// The keys that have versions behind their cursors and are not due: somebody has changed them since.
    fn changed_since(&self) -> impl Iterator<Item = (Place, u32, Arc<[u8]>)> {
        let lookup = Lookup { past: &self.past, overlay: Some(&self.overlay) };
        let is_behind = move |((log, key), from): &(&(u32, Arc<[u8]>), &Place)| {
            lookup.versions(*log, key, **from..LAST).next().is_some()
        };
        let behind = self.sums.cursors.iter().filter(is_behind);
        behind.map(|((log, key), from)| (*from, *log, key.clone()))
    }

    /// Whether there are versions whose sums were not looked at. Under the lock of the journal.
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.sums.due.is_empty() || self.past.position() != self.sums.looked && self.changed_since().next().is_some()
    }

    fn look(&mut self) {
        if !self.sums.cursors.is_empty() && self.past.position() != self.sums.looked {
            let due: Vec<_> = self.changed_since().collect();
            self.sums.due.extend(due);
        }
        self.sums.looked = self.past.position();
        self.sums.ended = self.past.runs.last().map_or(0, |run| run.done);
    }

    /// Makes the sums again that a run can have seen or added to.
    pub(crate) fn settle_sums_of(&mut self, at: usize) -> Result<()> {
        if self.sums.cursors.is_empty() {
            return Ok(());
        }
        let run = &self.past.runs[at];
        let (done, published) = (run.done, self.past.published(run));
        if done > self.sums.ended {
            self.look();
        }
        self.settle_sums(published)
    }

    /// Makes all sums again.
    pub(crate) fn settle_all_sums(&mut self) -> Result<()> {
        self.look();
        self.settle_sums(u64::MAX)
    }

    /// Makes the sums again that stand before a sequence.
    fn settle_sums(&mut self, upto: u64) -> Result<()> {
        while self.sums.due.first().is_some_and(|(place, ..)| place.0 < upto) {
            let Some((_, log, key)) = self.sums.due.pop_first() else { break };
            let Some(from) = self.sums.cursors.get(&(log, key.clone())).copied() else { continue };
            let lookup = Lookup { past: &self.past, overlay: Some(&self.overlay) };
            let mut versions: Vec<Version> = lookup.versions(log, &key, from..(upto, 0)).copied().collect();
            versions.reverse();
            let next = lookup.versions(log, &key, from.max((upto, 0))..LAST).last().map(|next| next.place);
            if let Some(last) = versions.last() {
                let behind = (last.place.0, last.place.1 + 1);
                self.settle_key((log, &key), &versions)?;
                self.sums.cursors.insert((log, key.clone()), behind);
            }
            if let Some(next) = next {
                self.sums.due.insert((next, log, key));
            }
        }
        Ok(())
    }

    fn settle_key(&mut self, (log, key): (u32, &[u8]), versions: &[Version]) -> Result<()> {
        let journal = self.namespace.journal().clone();
        let lookup = Lookup { past: &self.past, overlay: Some(&self.overlay) };
        let catalog = journal.catalog()?;
        let options = catalog.log_by_id(log).and_then(Log::table).copied().unwrap_or_default();
        let first = versions[0].place;
        let mut last = lookup.find(log, key, first, |_| true).version.copied();
        // The sum so far, if it is not in the journal yet.
        let mut known: Option<Sight> = None;
        let mut sums = Vec::new();
        for version in versions.iter().filter(|version| version.restates.is_none() && !version.is_expiry) {
            if version.operation != Operation::Increment {
                (last, known) = (Some(*version), None);
                continue;
            }
            let mut sight = match known.take() {
                Some(sight) => sight,
                None => {
                    let value = last.filter(|last| last.operation != Operation::Delete);
                    let entry = value.map(|last| journal.entry_at(last.at)).transpose()?;
                    let expires_us = value.map_or(0, |last| last.expires_us);
                    Sight { value: entry.map(|entry| entry.payload), expires_us, ..Sight::default() }
                }
            };
            if sight.expires_us != 0 && sight.expires_us <= version.time_us {
                (sight.value, sight.expires_us) = (None, 0);
            }
            let of = (Operation::Increment, &b""[..], 0, version.amount);
            sight.apply(key, &options, of, version.time_us).map_err(|error| {
                let (slot, table) = (version.slot, self.name(log));
                Code::RepairUnsupported.error(format!("record {slot} of {table} adds to a value: {}", error.detail()))
            })?;
            let entry = journal.entry_at(version.at)?;
            // What is appended in the end gets its sum then.
            if version.slot < super::LATE && sight.value.as_ref() != Some(&entry.payload) {
                // Nobody calls it a correction, which a replay would leave alone.
                let is_of_run = !entry.claimed && entry.cause != EventId::NONE;
                let cause = if is_of_run { (entry.cause, entry.ordinal) } else { (EventId::NONE, 0) };
                let bytes = sight.value.clone().unwrap_or_default();
                let row = RowOf {
                    key: key.to_vec(),
                    operation: Operation::Increment,
                    expires_us: version.expires_us,
                    amount: version.amount,
                };
                let previous = last.map_or_else(Default::default, |last| last.at);
                sums.push(Sum { slot: version.slot, bytes, row, cause, previous });
            }
            (last, known) = (Some(*version), Some(sight));
        }
        self.write_sums(log, &sums)
    }

    fn write_sums(&mut self, log: u32, sums: &[Sum]) -> Result<()> {
        // Without a repair, nothing is written.
        let mut rest = if self.repair == 0 { &[][..] } else { sums };
        while !rest.is_empty() {
            let replaced = rest.iter().map(|sum| self.replaces((log, sum.slot), false)).collect::<Result<Vec<_>>>()?;
            let written = self.namespace.journal().commit(|tx| {
                let (mut bytes, mut written) = (0, 0);
                for (sum, replaced) in rest.iter().zip(&replaced) {
                    let row = sum.row.keyed(sum.previous);
                    tx.shadow_row((log, sum.slot), (&sum.bytes, Some(&row)), sum.cause, replaced)?;
                    (bytes, written) = (bytes + 128 + sum.bytes.len() + sum.row.key.len(), written + 1);
                    if bytes > BATCH_BYTES {
                        break;
                    }
                }
                Ok(written)
            })?;
            rest = &rest[written.value..];
            let cursors = std::mem::take(&mut self.sums);
            self.follow()?;
            self.sums = cursors;
        }
        Ok(())
    }
}
