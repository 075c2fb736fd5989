//! Corrects an index that disagrees with the journal.

use crate::{
    catalog::Log,
    entry::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, payload},
    journal::Inner,
    store::slot::{Slot, WRONG},
};
use millrace_wire::{Code, Result};
use std::sync::atomic::Ordering;

/// The maximum number of records whose search failed and is remembered; beyond that, no more searches are made.
const LOST_MAX: usize = 65_536;

pub(crate) fn is_record(header: &Header, log: &Log, seqno: u64) -> bool {
    header.folded() == Some(Kind::Append) && header.subject == log.id() && header.seqno == seqno
}

/// The same, also for an entry of a repair that replaces the record.
pub(crate) fn stands_for(header: &Header, log: &Log, seqno: u64) -> bool {
    header.kind == Kind::Append as u8 && header.subject == log.id() && header.seqno == seqno
}

impl Inner {
    /// Whether the entry at a position has this record's log and seqno. Its checksum is not verified.
    pub(crate) fn stands_at(&self, log: &Log, seqno: u64, position: u64) -> Result<bool> {
        let segments = &self.segments;
        Ok(position < self.tail()
            && position.is_multiple_of(ALIGN_BYTES)
            && segments.offset(position) >= HEADER_BYTES
            && segments.room(position) >= HEADER_BYTES
            && self.check_kept(position).is_ok()
            && self.unless_passed(position, segments.header(position))?.is_some_and(|it| stands_for(&it, log, seqno)))
    }

    /// Searches for a record in the journal itself and corrects the index; returns whether the index changed. It reads the whole journal,
    /// once for each record.
    #[cold]
    pub(crate) fn correct_index(&self, log: &Log, seqno: u64) -> Result<bool> {
        let wrong = log.index().word(seqno);
        let record = (log.id(), seqno);
        {
            let lost = self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // Recovery stores 0 if there is none.
            if wrong == 0 || lost.len() >= LOST_MAX || lost.contains(&record) {
                return Ok(false);
            }
        }
        let (tail, first) = (self.tail(), self.control.upkeep.first.load(Ordering::Acquire));
        let (mut position, mut found) = (first, None);
        loop {
            match self.entry_from(&mut position, tail) {
                Ok(Some((at, header))) => {
                    if is_record(&header, log, seqno) {
                        // A later entry is a copy, which exists longer than the original.
                        found = Some(Slot::own(at, u64::from(header.length)));
                    }
                    if header.folded() == Some(Kind::Generation) {
                        let payload = self.unless_passed(at, self.segments.payload(at, &header))?.unwrap_or_default();
                        let mut rows = payload::generation_rows(payload);
                        let row = rows.find(|(id, n, to)| (*id, *n) == record && *to >= first && *to < at);
                        found = row.map(|(id, n, to)| self.slot_of_row(id, n, to)).or(found);
                    }
                    position = at + header.span();
                }
                Ok(None) => break,
                Err(error) if error.code() == Code::EntryDamaged => {}
                Err(error) => return Err(error),
            }
        }
        match found {
            Some(slot) => log.index().correct(seqno, wrong, slot),
            None if self.control.upkeep.first.load(Ordering::Acquire) == first => {
                self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(record);
            }
            None => {} // Retention dropped it during the search.
        }
        Ok(log.index().word(seqno) != wrong)
    }

    /// The position of a record, from an index that is corrected if necessary; 0 if there is none.
    pub(crate) fn position_of(&self, log: &Log, seqno: u64) -> u64 {
        let position = log.index().position(seqno);
        if position != WRONG {
            return position;
        }
        let corrected = !self.is_view && self.correct_index(log, seqno).unwrap_or(false);
        if corrected { log.index().position(seqno) } else { 0 }
    }
}
