//! What follows the store that commits a batch: indexes and the tail, by whoever gets to it first.

use crate::{
    entry::{ALIGN_BYTES, HEADER_BYTES, Header},
    journal::Inner,
};
use millrace_wire::Result;
use std::sync::atomic::Ordering;

impl Inner {
    /// The entry that ends the journal, and where it ends.
    #[inline]
    pub(crate) fn last_entry(&self, last: u64) -> Result<(Header, u64)> {
        let segments = &self.segments;
        let offset = segments.offset(last);
        if !last.is_multiple_of(ALIGN_BYTES)
            || !(HEADER_BYTES..=segments.bytes() - HEADER_BYTES).contains(&offset)
            || last >= self.control.upkeep.ready.load(Ordering::Acquire)
        {
            return Err(self.control.contradicted());
        }
        let header = segments.header(last)?;
        segments.check_readable(last, HEADER_BYTES)?; // Of the look that was just had, too.
        if !header.is_plausible(segments.room(last)) || !header.is_last() {
            return Err(self.control.contradicted());
        }
        Ok((header, last + header.span()))
    }

    /// Clears what the disk has of a batch that it refused, up to `end`. The caller has the lock.
    pub(crate) fn clear_refused(&self, end: u64) -> Result<()> {
        let writer = &self.control.writer;
        let start = writer.refused.load(Ordering::Acquire);
        if start > 0 && start < end {
            self.segments.clear(start, end)?;
        }
        writer.intent.store(0, Ordering::SeqCst);
        writer.refused.store(0, Ordering::SeqCst);
        Ok(())
    }

    /// Brings the indexes up to date with the committed entries between two positions of one segment.
    #[inline]
    pub(crate) fn apply_batch(&self, from: u64, to: u64) -> Result<()> {
        let catalog = self.catalog.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut position = from;
        while position < to {
            let header = self.segments.header(position)?;
            self.segments.check_readable(position, HEADER_BYTES)?;
            self.apply(&catalog, position, &header);
            position += header.span();
        }
        Ok(())
    }

    /// Lets readers see everything before `tail`.
    pub(crate) fn publish(&self, tail: u64) {
        self.control.published.tail.store(tail, Ordering::Release);
    }
}
