//! An index that disagrees with the journal: the journal is right, and the index is corrected.

use crate::{
    catalog::Log,
    entry::{ALIGN_BYTES, HEADER_BYTES, Header, Kind},
    journal::Inner,
};
use millrace_wire::{Code, Result};
use std::sync::atomic::Ordering;

/// Records that were looked for in vain and are remembered; beyond that, nothing is looked for any more.
const LOST_MAX: usize = 65_536;

pub(crate) fn is_record(header: &Header, log: &Log, seqno: u64) -> bool {
    header.folded() == Some(Kind::Append) && header.subject == log.id() && header.seqno == seqno
}

impl Inner {
    /// Whether the entry at a position says that it is this record. Its checksum is not looked at.
    pub(crate) fn stands_at(&self, log: &Log, seqno: u64, position: u64) -> Result<bool> {
        let segments = &self.segments;
        Ok(position < self.tail()
            && position.is_multiple_of(ALIGN_BYTES)
            && segments.offset(position) >= HEADER_BYTES
            && segments.room(position) >= HEADER_BYTES
            && self.check_kept(position).is_ok()
            && is_record(&segments.header(position)?, log, seqno))
    }

    /// Looks for a record in the journal itself and corrects the index; whether the index says something else now. It reads
    /// all of the journal, once for each record.
    #[cold]
    pub(crate) fn correct_index(&self, log: &Log, seqno: u64) -> Result<bool> {
        let wrong = log.index().position(seqno);
        let record = (log.id(), seqno);
        {
            let lost = self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // Recovery notes 0 where there is none.
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
                        found = Some(at); // A later one is a copy, which outlives the original.
                    }
                    position = at + header.span();
                }
                Ok(None) => break,
                Err(error) if error.code() == Code::EntryDamaged => {}
                Err(error) => return Err(error),
            }
        }
        match found {
            Some(at) => log.index().correct(seqno, wrong, at),
            None if self.control.upkeep.first.load(Ordering::Acquire) == first => {
                self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(record);
            }
            None => {} // Retention went on under the search.
        }
        Ok(log.index().position(seqno) != wrong)
    }
}
