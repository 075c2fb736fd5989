//! Finds an entry by its id.

use crate::{
    catalog::{Function, Log},
    entry::{ALIGN_BYTES, Entry, HEADER_BYTES, Header, Kind, Position},
    journal::{Inner, Journal},
    store::index::{Index, JOURNAL_ID},
    write::committed::sequence_item,
};
use millrace_wire::{Code, EventId, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// The positions at which entries were last found by their sequence, one for each of several ranges of the journal. A reader of a backlog
/// finds the next entry a few entries further on, instead of walking to it from the nearest item of the index.
#[derive(Default)]
pub struct Found([Place; FOUND]);

const FOUND: usize = 16;

/// Two words that are written one after the other: they belong together only if the entry at the position has the sequence.
#[derive(Default)]
struct Place {
    sequence: AtomicU64,
    position: AtomicU64,
}

impl Found {
    fn place(&self, sequence: u64) -> &Place {
        &self.0[sequence_item(sequence) as usize % FOUND]
    }

    fn put(&self, sequence: u64, position: u64) {
        let place = self.place(sequence);
        place.sequence.store(sequence, Ordering::Relaxed);
        place.position.store(position, Ordering::Relaxed);
    }

    /// The last entry that was found between the index item before this sequence and the sequence.
    fn before(&self, sequence: u64) -> Option<(u64, u64)> {
        let place = self.place(sequence);
        let known = place.sequence.load(Ordering::Relaxed);
        let is_near = known <= sequence && known > 0 && sequence_item(known) == sequence_item(sequence);
        is_near.then(|| (known, place.position.load(Ordering::Relaxed)))
    }
}

impl Journal {
    /// The entry with this id, if it still exists: the original, or its copy. Only copies of records and of entries of pending runs can be
    /// found.
    pub fn find(&self, id: EventId) -> Result<Option<Entry>> {
        self.inner().find(id)
    }

    /// The entry with this sequence, if it is still at its original position.
    pub fn entry_of_sequence(&self, sequence: u64) -> Result<Option<Entry>> {
        self.inner().find_sequence(sequence)
    }

    /// Passes entries in their order to `visit`, from one position on until it returns false, at most up to `to`. Damaged entries are
    /// skipped.
    pub fn visit(&self, from: Position, to: Position, visit: &mut dyn FnMut(&Entry) -> bool) -> Result<()> {
        let mut scan = self.scan(from);
        while scan.position() < to {
            match scan.next() {
                Ok(Some(entry)) if entry.position < to && visit(entry) => {}
                Ok(_) => break,
                Err(error) if error.code() == Code::EntryDamaged => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The position of the first of the `count` entries before the one at a position.
    pub fn in_front(&self, position: Position, count: u64) -> Result<Position> {
        self.inner().in_front(position.0, count).map(Position)
    }

    /// The record that caused a TRIGGER, also if it is kept only for the run.
    pub fn record_of(&self, trigger: &Entry) -> Result<Option<Entry>> {
        let inner = self.inner();
        match inner.find_written(trigger.cause)? {
            Some(record) => Ok(Some(record)),
            None => inner.find_beside(trigger),
        }
    }
}

/// A copy of a TRIGGER follows the copy of its record, with at most this many other copies of that record's entries in between.
const TRIGGERS_MAX: u64 = 1024;

impl Inner {
    fn find(&self, id: EventId) -> Result<Option<Entry>> {
        if id.namespace() != Some(self.owner_of(id.epoch())) {
            return Ok(None);
        }
        match self.find_written(id)? {
            Some(entry) => Ok(Some(entry)),
            None => self.find_copy(id),
        }
    }

    /// The start of the entries that contain a sequence, if it is still at its original position.
    fn before_sequence(&self, sequence: u64) -> u64 {
        let (first, tail) = (self.control.upkeep.first.load(Ordering::Acquire), self.tail());
        let index = Index::find(&*self.arena, JOURNAL_ID);
        let positions = (1..=sequence_item(sequence)).rev().map_while(|item| Some(index.as_ref()?.position(item)));
        // A damaged entry costs a longer walk.
        let known =
            positions.take_while(|position| *position == 0 || *position >= first).find(|position| *position != 0);
        known.filter(|position| *position < tail).unwrap_or(first)
    }

    fn find_written(&self, id: EventId) -> Result<Option<Entry>> {
        Ok(self.find_sequence(id.sequence())?.filter(|entry| entry.id == id))
    }

    fn find_sequence(&self, sequence: u64) -> Result<Option<Entry>> {
        let tail = self.tail();
        let mut position = match self.found_before(sequence, tail)? {
            Some(position) => position,
            None => self.before_sequence(sequence),
        };
        loop {
            let Some((at, header)) = self.next_header(position, tail)? else { return Ok(None) };
            if header.sequence > sequence {
                return Ok(None);
            }
            if header.sequence == sequence {
                return match self.entry_at(at) {
                    Ok(entry) => {
                        self.found.put(sequence, at);
                        Ok(Some(entry))
                    }
                    Err(error) if matches!(error.code(), Code::EntryDamaged | Code::BelowHistory) => Ok(None),
                    Err(error) => Err(error),
                };
            }
            position = at + header.span();
        }
    }

    /// The position of a recently found entry at or shortly before a sequence, if the entry is still there.
    fn found_before(&self, sequence: u64, tail: u64) -> Result<Option<u64>> {
        let Some((known, position)) = self.found.before(sequence) else { return Ok(None) };
        // The words may belong to two entries, or the entry may no longer exist.
        if position >= tail || !position.is_multiple_of(ALIGN_BYTES) || self.check_kept(position).is_err() {
            return Ok(None);
        }
        // Its header is not checked, like those of the entries in between.
        let room = self.segments.room(position);
        if self.segments.offset(position) < HEADER_BYTES || room < HEADER_BYTES {
            return Ok(None);
        }
        let Ok(header) = self.segments.header(position) else { return Ok(None) };
        Ok((header.sequence == known && header.is_plausible(room)).then_some(position))
    }

    fn in_front(&self, position: u64, count: u64) -> Result<u64> {
        let Some(header) = self.valid_entry_at(position)? else { return Ok(position) };
        let first = header.sequence.saturating_sub(count);
        let mut at = self.before_sequence(first);
        while let Some((found, header)) = self.next_header(at, position)? {
            at = found;
            if header.sequence >= first {
                break;
            }
            at = found + header.span();
        }
        Ok(at)
    }

    /// The next entry's header. It is not checked as long as each header leads to another one.
    fn next_header(&self, mut position: u64, tail: u64) -> Result<Option<(u64, Header)>> {
        let segments = &self.segments;
        if segments.offset(position) < HEADER_BYTES {
            position = segments.first_entry(segments.number(position));
        }
        if position < tail && segments.room(position) >= HEADER_BYTES && self.check_kept(position).is_ok() {
            super::note_visit();
            let header = self.unless_passed(position, segments.header(position))?;
            if let Some(header) = header.filter(|header| header.is_plausible(segments.room(position))) {
                return Ok(Some((position, header)));
            }
        }
        loop {
            position = position.max(self.control.upkeep.first.load(Ordering::Acquire));
            match self.entry_from(&mut position, tail) {
                Err(error) if error.code() == Code::EntryDamaged => {}
                Ok(None) if self.check_kept(position).is_err() => {} // Retention has dropped it meanwhile.
                found => return found,
            }
        }
    }

    /// The copy of an entry whose segment was dropped.
    fn find_copy(&self, id: EventId) -> Result<Option<Entry>> {
        let catalog = self.fresh_catalog()?;
        for log in catalog.logs() {
            if let Some(entry) = self.find_record(log, id) {
                return Ok(Some(entry));
            }
        }
        Ok(catalog.functions().find_map(|function| self.find_pending(function, id)))
    }

    fn copy_at(&self, position: u64) -> Option<Entry> {
        if position == 0 { None } else { self.entry_at(position).ok() }
    }

    /// The copy of a TRIGGER's record, which was carried forward with it.
    fn find_beside(&self, trigger: &Entry) -> Result<Option<Entry>> {
        let Some(header) = self.valid_entry_at(trigger.position.0)?.filter(|header| header.is_carried()) else {
            return Ok(None);
        };
        let mut position = self.before_sequence(header.sequence.saturating_sub(TRIGGERS_MAX));
        let mut found = None;
        while let Some((at, header)) = self.next_header(position, trigger.position.0)? {
            if header.folded() == Some(Kind::Append)
                && header.is_carried()
                && let Some(entry) = self.copy_at(at).filter(|entry| entry.id == trigger.cause)
            {
                found = Some(entry);
            }
            position = at + header.span();
        }
        Ok(found)
    }

    /// A log's records have ids in the order of their seqnos.
    fn find_record(&self, log: &Log, id: EventId) -> Option<Entry> {
        let order = |id: EventId| (id.epoch(), id.sequence());
        let (mut from, mut to) = (log.earliest().max(1), log.latest() + 1);
        while from < to {
            let middle = from + (to - from) / 2;
            // Damaged entries are skipped.
            let known = (middle..to).find_map(|seqno| Some((seqno, self.copy_at(log.index().position(seqno))?)));
            match known {
                Some((_, entry)) if entry.id == id => return Some(entry),
                // An entry of a repair has the place of the record that it replaces.
                Some((seqno, entry)) if order(entry.replaced().map_or(entry.id, |it| it.origin)) < order(id) => {
                    from = seqno + 1;
                }
                _ => to = middle,
            }
        }
        None
    }

    fn find_pending(&self, function: &Function, id: EventId) -> Option<Entry> {
        let mut next = function.next_pending(1);
        while let Some(number) = next {
            let item = function.run(number).unwrap_or_default();
            for entry in [item.opened, item.noted].into_iter().filter_map(|position| self.copy_at(position)) {
                if entry.id == id {
                    return Some(entry);
                }
                if entry.kind == Kind::Trigger && entry.cause == id {
                    return self.find_beside(&entry).ok().flatten();
                }
            }
            next = function.next_pending(number + 1);
        }
        None
    }
}

impl Journal {
    /// The position of the first of this many newest entries; found by the index, so it takes at most 256 steps.
    pub fn newest(&self, count: u64) -> Result<Position> {
        let inner = self.inner();
        let last = inner.control.writer.last.load(Ordering::Acquire);
        let newest = inner.last_entry(last)?.0.sequence;
        let from = (newest + 1).saturating_sub(count);
        let (mut position, tail) = (inner.before_sequence(from), inner.tail());
        loop {
            match inner.entry_from(&mut position, tail) {
                Ok(Some((at, header))) if header.sequence < from => position = at + header.span(),
                Ok(Some((at, _))) => return Ok(Position(at)),
                Ok(None) => return Ok(Position(tail)),
                Err(error) if error.code() == Code::EntryDamaged => {}
                Err(error) => return Err(error),
            }
        }
    }
}
