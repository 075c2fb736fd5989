//! The steps after the store that commits a batch: indexes and the tail, by the first process that reaches them.

use crate::{
    catalog::{Definition, history_of},
    entry::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, payload},
    journal::Inner,
    store::{
        arena,
        index::{Index, JOURNAL_ID, Role, SEQUENCE_STEP},
        part::first_part,
        segments::io_error,
        slot::Slot,
    },
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
        let mut position = from;
        while position < to {
            let header = self.segments.header(position)?;
            self.segments.check_readable(position, HEADER_BYTES)?;
            self.apply(position, &header);
            position += header.span();
        }
        Ok(())
    }

    /// Brings the indexes up to date with one committed entry, and the control page. Doing it twice is the same as doing it once.
    #[inline]
    pub(crate) fn apply(&self, position: u64, header: &Header) {
        self.index_entry(position, header);
        match header.folded() {
            Some(Kind::Define) => self.control.writer.defined.store(position, Ordering::Release),
            Some(Kind::Catalog) if header.ordinal == 0 => {
                let number = self.segments.number(first_part(header, position));
                self.control.upkeep.cataloged.fetch_max(number, Ordering::AcqRel);
            }
            Some(Kind::Mark) => self.control.note_mark(header.seqno, position + header.span()),
            // A recovery makes everything durable before it begins the new epoch.
            Some(Kind::Open) => self.control.note_mark(position, position + header.span()),
            _ => {}
        }
    }

    /// The same of the indexes alone. All of it has a place there, made before the entry was committed.
    #[inline]
    pub(crate) fn index_entry(&self, position: u64, header: &Header) {
        self.index_sequence(position, header);
        let slot = || Slot::own(position, u64::from(header.length));
        if header.folded() == Some(Kind::Generation) {
            // Readers of the journal detect an entry that cannot be read here.
            let _ = self.lead_elsewhere(position, header);
            return;
        }
        if header.folded() == Some(Kind::Define) {
            self.change_history(position, header);
            return;
        }
        use Kind::{Append, Done, Fired, Trigger, Trim};
        let Some(kind @ (Append | Trigger | Fired | Done | Trim)) = header.folded() else { return };
        let Some(index) = Index::find(&*self.arena, header.subject) else { return };
        match (kind, index.role()) {
            (Append, Some(Role::Log { .. })) => index.set(header.seqno, slot()),
            (Trim, Some(Role::Log { .. })) => index.trim(header.seqno),
            (Trigger, Some(Role::Function)) => index.open_item(header.seqno, slot()),
            (Fired, Some(Role::Function)) => index.note_item(header.seqno, slot()),
            (Done, Some(Role::Function)) => {
                index.close_item(header.seqno, slot(), payload::ended(header.seqno, header.ordinal));
            }
            _ => {}
        }
    }

    /// The same of the journal's own index alone, which leads from sequences to positions.
    #[inline]
    pub(crate) fn index_sequence(&self, position: u64, header: &Header) {
        if header.sequence.is_multiple_of(SEQUENCE_STEP)
            && let Some(index) = Index::find(&*self.arena, JOURNAL_ID)
        {
            index.set(sequence_item(header.sequence), Slot::own(position, u64::from(header.length)));
        }
    }

    /// Sets the history of a log from a DEFINE. Readers of the journal detect one that cannot be read.
    #[cold]
    fn change_history(&self, position: u64, header: &Header) {
        if let Some(index) = Index::find(&*self.arena, header.subject)
            && matches!(index.role(), Some(Role::Log { .. }))
            && let Ok(payload) = self.segments.payload(position, header)
            && let Ok(Definition::LogHistory { history, .. }) = Definition::decode(payload)
        {
            index.set_history(history_of(history));
        }
    }

    /// Has slots lead where a GENERATION says.
    #[cold]
    fn lead_elsewhere(&self, position: u64, header: &Header) -> Result<()> {
        let first = self.control.upkeep.first.load(Ordering::Acquire);
        for (log, seqno, at) in payload::generation_rows(self.segments.payload(position, header)?) {
            // Of what retention has dropped there is a copy behind this, if it is needed.
            if at >= first
                && at < position
                && let Some(index) = Index::find(&*self.arena, log)
            {
                index.replace(seqno, self.slot_of_row(log, seqno, at));
            }
        }
        Ok(())
    }

    /// The slot of a row: the entry there is the record itself, or one that replaces it. If it cannot be read, a reader of the record
    /// detects that.
    pub(crate) fn slot_of_row(&self, log: u32, seqno: u64, at: u64) -> Slot {
        let target = self.segments.header(at);
        let target = target.and_then(|target| self.segments.check_readable(at, HEADER_BYTES).map(|()| target));
        let is_own =
            |target: &Header| target.folded() == Some(Kind::Append) && (target.subject, target.seqno) == (log, seqno);
        let own = target.ok().filter(is_own);
        own.map_or_else(|| Slot::by_reference(at), |target| Slot::own(at, u64::from(target.length)))
    }

    /// Makes a place for an entry in the index of its subject. Under the lock, before it is committed.
    pub(crate) fn make_place(&self, kind: Kind, subject: u32, seqno: u64) -> Result<()> {
        if matches!(kind, Kind::Append | Kind::Trigger)
            && let Some(index) = Index::find(&*self.arena, subject)
        {
            index.make_room(seqno).map_err(|error| io_error(arena::NAME, &error))?;
        }
        Ok(())
    }

    /// Makes a place for an entry that is found by its sequence.
    #[cold]
    pub(crate) fn make_sequence_place(&self, sequence: u64) -> Result<()> {
        let failed = |error: std::io::Error| io_error(arena::NAME, &error);
        let index = match Index::find(&*self.arena, JOURNAL_ID) {
            Some(index) => index,
            None => Index::create(&*self.arena, JOURNAL_ID, Role::Journal).map_err(failed)?,
        };
        index.make_room(sequence_item(sequence)).map_err(failed)
    }

    /// Lets readers see everything before `tail`.
    pub(crate) fn publish(&self, tail: u64) {
        self.control.published.tail.store(tail, Ordering::Release);
    }
}

/// The item of the journal's own index for an entry with this sequence, or for the last one before it that has an item.
pub(crate) fn sequence_item(sequence: u64) -> u64 {
    sequence / SEQUENCE_STEP + 1
}
