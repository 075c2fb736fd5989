//! One record: from its log's index to its bytes.

use super::correct::{is_record, stands_for};
use crate::{
    catalog::Log,
    entry::{
        ALIGN_BYTES, Entry, HEADER_BYTES, Header, Kind, Position,
        imported::device_clock,
        map::Map,
        payload::{Replaced, headers, open_without_seed, original, own_extension, replaced, split_extension},
    },
    journal::{Inner, Journal},
    store::slot::{Foreign, WRONG},
};
use millrace_wire::{Code, Error, EventId, Headers, Hlc, NamespaceId, Result};
use std::sync::atomic::{Ordering, fence};

/// The attributes of a record, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// Its event id.
    pub id: EventId,
    /// When it was appended: in the device, if it was imported from one.
    pub hlc: Hlc,
    /// Its cause.
    pub cause: EventId,
    /// The position at which it was first written.
    pub position: Position,
    /// The position up to which the journal must be durable before the record may be sent.
    pub safe: Position,
    /// The record that it replaces, if a repair wrote it.
    pub replaced: Option<Replaced>,
    /// What its client said beside its bytes.
    pub headers: Headers,
}

impl Inner {
    /// Reads record `seqno` into `payload`, if it is before `snapshot`.
    #[inline]
    pub(crate) fn get(&self, log: &Log, seqno: u64, snapshot: Position, payload: &mut Vec<u8>) -> Result<RecordMeta> {
        match self.get_once(log, seqno, snapshot, payload) {
            Err(error) if self.look_again(log, seqno, error.code())? => self.get_once(log, seqno, snapshot, payload),
            found => found,
        }
    }

    /// When a record was appended; see [`Journal::clock_of`].
    pub(crate) fn clock_of(&self, log: &Log, seqno: u64) -> Result<Hlc> {
        match self.clock_of_header(log, seqno) {
            Some(clock) => Ok(clock),
            None => self.get(log, seqno, Position(u64::MAX), &mut Vec::new()).map(|meta| meta.hlc),
        }
    }

    /// The clock in the header of a record; none unless all is as it mostly is.
    fn clock_of_header(&self, log: &Log, seqno: u64) -> Option<Hlc> {
        if !(log.earliest().max(1)..=log.latest()).contains(&seqno) {
            return None;
        }
        let slot = log.index().unpack(seqno, log.index().word(seqno)).ok()??;
        if slot.by_reference || !self.stands_at(log, seqno, slot.position).ok()? {
            return None;
        }
        let header = self.segments.header(slot.position).ok()?;
        let is_plain = is_record(&header, log, seqno) && !header.is_extended() && slot.admits(u64::from(header.length));
        let is_intact = header.is_plausible(self.segments.room(slot.position))
            && !self.segments.is_unreadable(slot.position, HEADER_BYTES)
            && self.check_kept(slot.position).is_ok();
        (is_plain && is_intact).then(|| Hlc::from_bits(header.hlc))
    }

    /// Whether a failed read of a record has to be repeated: the record was being committed and now is, a commit was interrupted, or the
    /// index was wrong and was corrected.
    #[cold]
    fn look_again(&self, log: &Log, seqno: u64, code: Code) -> Result<bool> {
        let is_known = (log.earliest()..=log.index().latest()).contains(&seqno);
        if !is_known || !matches!(code, Code::AboveTail | Code::EntryDamaged) || self.is_view {
            return Ok(false);
        }
        if self.write_lock().has_dead_owner() {
            drop(self.lock()?); // Makes the entries that it committed visible.
            return Ok(true);
        }
        let position = log.index().position(seqno);
        let is_below = position < self.tail();
        if is_below && code == Code::AboveTail {
            return Ok(true); // Committed since the read.
        }
        if !self.write_lock().is_free() && !is_below && position != WRONG {
            return Ok(false); // About to be committed.
        }
        self.correct_index(log, seqno)
    }

    fn get_once(&self, log: &Log, seqno: u64, snapshot: Position, payload: &mut Vec<u8>) -> Result<RecordMeta> {
        payload.clear();
        // The index may already have records that are not visible yet: their positions are behind the tail. Until they are visible, the
        // oldest record can still be read.
        let is_out = |latest: u64| seqno == 0 || seqno > latest || seqno < log.earliest_at(latest);
        if is_out(log.index().latest()) && is_out(log.latest()) {
            return Err(out_of_range(log, seqno));
        }
        match self.read_record(log, seqno, log.index().word(seqno), payload) {
            Ok(meta) if meta.position < snapshot => Ok(meta),
            Ok(_) => {
                payload.clear();
                Err(above_tail(log, seqno))
            }
            Err(error) => {
                payload.clear();
                // The record may have left the history while it was read; then this is the error.
                log.check_exists()?;
                let is_kept = (log.earliest()..=log.latest()).contains(&seqno);
                Err(if is_kept { error } else { out_of_range(log, seqno) })
            }
        }
    }

    #[inline]
    fn read_record(&self, log: &Log, seqno: u64, word: u64, payload: &mut Vec<u8>) -> Result<RecordMeta> {
        let (position, slot) = match log.index().unpack(seqno, word) {
            Ok(Some(slot)) => (slot.position, Some(slot)),
            Ok(None) => {
                return Err(Code::EntryDamaged.error(format!(
                    "record {seqno} of log '{}' was lost to damage; see `millrace namespace check`",
                    log.name()
                )));
            }
            Err(Foreign) => (WRONG, None),
        };
        if let Some(slot) = slot {
            self.segments.fetch(position, slot.bytes_max());
        }
        let is_below = position < self.tail();
        if slot.is_some() && !is_below {
            return Err(above_tail(log, seqno)); // It is being committed: there is nothing yet that could be damaged.
        }
        // A slot without a valid checksum may point anywhere.
        let found = if is_below { self.valid_entry_at(position)? } else { None };
        let admitted = |header: &Header| slot.is_some_and(|slot| slot.admits(u64::from(header.length)));
        let Some((header, slot)) = found.filter(admitted).zip(slot) else {
            // Retention may have moved it since the index was read.
            let moved = log.index().word(seqno);
            if moved != word {
                return self.read_record(log, seqno, moved, payload);
            }
            return Err(match slot {
                Some(slot) => self.damaged_at(slot.position, format!("record {seqno} of log '{}'", log.name())),
                None => Code::EntryDamaged.error(format!("the position of record {seqno} of log '{}'", log.name())),
            });
        };
        let is_its = if slot.by_reference { stands_for } else { is_record };
        if !is_its(&header, log, seqno) {
            return Err(damaged(
                position,
                format!("another record is at the position of record {seqno} of log '{}'", log.name()),
            ));
        }
        let bytes = self.segments.payload(position, &header)?;
        let owner = self.owner_of(header.epoch);
        let extension = if header.is_extended() { split(bytes).0 } else { Map::default() };
        let (replaced, device_clock, headers) = (replaced(extension), device_clock(extension), headers(extension));
        let (id, original, bytes) = split_carried(&header, header.id(owner), position, bytes);
        payload.extend_from_slice(bytes);
        // A page that could be read for the checksum may have been unreadable for the copy.
        if self.segments.is_unreadable(position, u64::from(header.length)) {
            return Err(self.damaged_at(position, format!("record {seqno} of log '{}'", log.name())));
        }
        self.check_kept(position)?;
        if replaced.is_some_and(|replaced| replaced.void) {
            return Err(void(log, seqno));
        }
        let hlc = device_clock.unwrap_or(Hlc::from_bits(header.hlc));
        let (hlc, position) = (hlc, replaced.map_or(Position(original), |it| it.position));
        let (hlc, safe) = match &replaced {
            None => (hlc, position.just_after()),
            // It is visible from the GENERATION on that refers to it, which comes after it.
            Some(replaced) => (replaced.clock, Position(self.tail())),
        };
        Ok(RecordMeta { id, hlc, cause: header.cause(owner), position, safe, replaced, headers })
    }

    /// The entry with which a repair replaced the first version in a slot, if any.
    pub(crate) fn replaced(&self, log: &Log, seqno: u64) -> Result<Option<Replaced>> {
        let position = log.index().position(seqno);
        if position == 0 || position == WRONG {
            return Ok(None);
        }
        match self.valid_entry_at(position)? {
            Some(header) if header.is_extended() && stands_for(&header, log, seqno) => {
                let found = replaced(split(self.segments.payload(position, &header)?).0);
                self.check_kept(position)?;
                Ok(found)
            }
            _ => Ok(None),
        }
    }

    /// The newest record that is not void while `seqno` is the newest; see [`crate::Extent::newest`].
    pub(crate) fn newest(&self, log: &Log, seqno: u64) -> Result<u64> {
        let is_void = |seqno| Ok(self.replaced(log, seqno)?.is_some_and(|replaced| replaced.void));
        log.extent_at(seqno).newest(is_void)
    }

    /// The end of the committed journal.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.control.published.tail.load(Ordering::Acquire)
    }

    /// The entry's header, if a complete entry with a correct checksum is at this position and retention has not dropped it.
    #[inline]
    pub(crate) fn valid_entry_at(&self, position: u64) -> Result<Option<Header>> {
        if self.check_kept(position).is_err() {
            return Ok(None);
        }
        match self.segments.valid_entry(position) {
            // Retention has dropped it meanwhile, and its file no longer exists.
            Err(_) if self.check_kept(position).is_err() => Ok(None),
            found => found,
        }
    }

    /// The entry at a position; `None` instead of an error if retention has dropped it, because its file may no longer exist.
    pub(crate) fn unless_passed<T>(&self, position: u64, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(_) if self.check_kept(position).is_err() => Ok(None),
            read => read.map(Some),
        }
    }

    /// Returns an error if retention has dropped the position: then the bytes that were read may belong to another entry.
    #[inline]
    pub(crate) fn check_kept(&self, position: u64) -> Result<()> {
        fence(Ordering::Acquire);
        if position < self.control.upkeep.first.load(Ordering::Acquire) {
            return Err(Code::BelowHistory.error(format!("position {} is no longer kept", Position(position))));
        }
        Ok(())
    }

    /// The newest seqno that was appended before `snapshot`, 0 if there is none, as far as the log's history shows it.
    pub(crate) fn latest_before(&self, log: &Log, snapshot: Position) -> Result<Before> {
        log.check_exists()?;
        let newest = log.latest();
        let mut seqno = newest;
        while seqno > 0 && seqno + log.history() > log.latest() {
            let mut position = log.index().position(seqno);
            if position != 0 && !self.is_view && !self.stands_at(log, seqno, position)? {
                self.correct_index(log, seqno)?;
                position = log.index().position(seqno);
            }
            if position != 0 && position < snapshot.0 {
                return Ok(Before::Known(seqno));
            }
            if position == WRONG {
                break; // Its entry is not in the journal, so the time of its append is unknown.
            }
            // Trimmed: its position is forgotten, and it may be older or newer than the snapshot.
            if position == 0 && seqno < log.index().floor() {
                return Ok(Before::Trimmed { newest });
            }
            // At or after the snapshot, unless it is a copy of an earlier record, or replaces one.
            if let Some(header) = self.valid_entry_at(position)?
                && header.is_extended()
            {
                let bytes = self.segments.payload(position, &header)?;
                let (_, original, _) = split_carried(&header, EventId::NONE, position, bytes);
                let original = replaced(split(bytes).0)
                    .filter(|replaced| replaced.position.0 > 0)
                    .map_or(original, |it| it.position.0);
                self.segments.check_readable(position, u64::from(header.length))?;
                if original < snapshot.0 {
                    return Ok(Before::Known(seqno));
                }
            }
            seqno -= 1;
        }
        Ok(if seqno == 0 { Before::Known(0) } else { Before::Later })
    }

    /// The entry at a position.
    pub(crate) fn entry_at(&self, position: u64) -> Result<Entry> {
        let tail = self.control.published.tail.load(Ordering::Acquire);
        let aligned = position.is_multiple_of(ALIGN_BYTES);
        if position >= tail || !aligned || self.segments.offset(position) < HEADER_BYTES {
            return Err(Code::AboveTail.error(format!("there is no entry at {}", Position(position))));
        }
        super::note_visit();
        self.check_kept(position)?;
        let Some(header) = self.valid_entry_at(position)? else {
            self.check_kept(position)?; // Retention may have dropped it meanwhile.
            return Err(self.damaged_at(position, "entry"));
        };
        let Some(kind) = Kind::from_u8(header.kind) else {
            let at = Position(position);
            return Err(Code::FormatVersion.error(format!("the entry at {at} is of kind {}", header.kind)));
        };
        self.entry_of(position, &header, kind)
    }

    /// The entry of a verified header.
    pub(crate) fn entry_of(&self, position: u64, header: &Header, kind: Kind) -> Result<Entry> {
        let mut entry = Entry::of(Position(position), header, kind);
        self.fill(&mut entry, header)?;
        self.check_kept(position)?;
        Ok(entry)
    }

    /// The namespace to which an epoch belongs: in a restored copy, earlier epochs belong to its ancestors.
    #[inline]
    pub(crate) fn owner_of(&self, epoch: u32) -> NamespaceId {
        let ancestor = self.lineage.iter().find(|ancestor| epoch <= ancestor.epoch);
        ancestor.map_or(self.namespace, |ancestor| ancestor.namespace)
    }

    /// Gives an entry its id, its cause and its bytes.
    pub(crate) fn fill(&self, entry: &mut Entry, header: &Header) -> Result<()> {
        let position = entry.position.0;
        let bytes = self.segments.payload(position, header)?;
        let owner = self.owner_of(header.epoch);
        let (id, written, payload) = split_carried(header, header.id(owner), position, bytes);
        (entry.id, entry.cause) = (id, header.cause(owner));
        entry.written = Position(written);
        entry.extension.clear();
        if header.is_extended() {
            entry.extension = own_extension(split(bytes).0);
        }
        entry.payload.clear();
        match entry.kind {
            Kind::Open => entry.payload = open_without_seed(payload),
            // A CATALOG has content that readers of entries must not see.
            Kind::Catalog => {}
            _ => entry.payload.extend_from_slice(payload),
        }
        if self.segments.is_unreadable(position, u64::from(header.length)) {
            return Err(self.damaged_at(position, "entry"));
        }
        Ok(())
    }
}

impl Inner {
    /// The error for an entry that fails its checksum; it says whether the disk cannot read it.
    #[cold]
    fn damaged_at(&self, position: u64, what: impl std::fmt::Display) -> Error {
        let room = self.segments.room(position);
        let is_place = position < self.tail() && position.is_multiple_of(ALIGN_BYTES) && room >= HEADER_BYTES;
        let header = if is_place { self.segments.header(position).ok() } else { None };
        let header = header.filter(|header| header.is_plausible(room));
        let bytes = header.map_or(HEADER_BYTES, |header| u64::from(header.length)).min(room);
        if self.segments.is_unreadable(position, bytes) {
            return damaged(position, format!("{what}, which the disk cannot read,"));
        }
        damaged(position, what)
    }
}

/// What a log's history shows of its newest record at a snapshot.
pub(crate) enum Before {
    /// Its seqno; 0 if there was none.
    Known(u64),
    /// Every record that the history still has is newer.
    Later,
    /// Records were trimmed, and none that is left is older. `newest` is the seqno of the newest record now.
    Trimmed { newest: u64 },
}

/// The newest seqno that was appended before `snapshot`; 0 if there is none.
pub(crate) fn latest_before(journal: &Journal, log: &Log, snapshot: Position) -> Result<u64> {
    let if_none_is_newer = match journal.0.latest_before(log, snapshot)? {
        Before::Known(seqno) => return Ok(seqno),
        Before::Later => None,
        Before::Trimmed { newest } => Some(newest),
    };
    // The first record since the snapshot has the number after the result.
    let mut scan = journal.scan(snapshot);
    let is_whole = loop {
        let Some(entry) = scan.next()? else { break !scan.gap() };
        let (found, seqno) = (entry.kind == Kind::Append && entry.subject == log.id() && !entry.carried, entry.seqno);
        if scan.gap() {
            break false;
        }
        if found {
            return Ok(seqno - 1);
        }
    };
    if let Some(newest) = if_none_is_newer.filter(|_| is_whole) {
        return Ok(newest);
    }
    Err(Code::BelowHistory
        .error(format!("the newest record of log '{}' at position {snapshot} is no longer known", log.name())))
}

/// An entry's id, first position and payload: a carried entry has those of its original in its extension.
fn split_carried<'b>(header: &Header, id: EventId, position: u64, bytes: &'b [u8]) -> (EventId, u64, &'b [u8]) {
    if !header.is_extended() {
        return (id, position, bytes);
    }
    let (extension, bytes) = split(bytes);
    let (id, position) = original(extension).filter(|_| header.is_carried()).unwrap_or((id, position));
    (id, position, bytes)
}

/// The extension and the payload of an extended entry, which was verified before; retention may have dropped it since.
fn split(bytes: &[u8]) -> (Map<'_>, &[u8]) {
    split_extension(bytes).unwrap_or_default()
}

pub(crate) fn damaged(position: u64, what: impl std::fmt::Display) -> Error {
    Code::EntryDamaged.error(format!("{what} at position {}", Position(position)))
}

#[cold]
fn void(log: &Log, seqno: u64) -> Error {
    Code::RecordVoid.error(format!(
        "log '{}' no longer has record {seqno}: a repair removed it, or its device had dropped it",
        log.name()
    ))
}

fn above_tail(log: &Log, seqno: u64) -> Error {
    Code::AboveTail.error(format!("log '{}' has no record {seqno} yet; the newest is {}", log.name(), log.latest()))
}

#[cold]
fn out_of_range(log: &Log, seqno: u64) -> Error {
    if let Err(error) = log.check_exists() {
        return error;
    }
    if seqno == 0 {
        return Code::SeqnoInvalid.error("0 is not a sequence number; sequence numbers start at 1");
    }
    if seqno > log.latest() {
        return above_tail(log, seqno);
    }
    let earliest = log.earliest();
    Code::BelowHistory.error(format!("log '{}' no longer has record {seqno}; the oldest is {earliest}", log.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Durability, store::slot::Slot};

    #[test]
    fn a_record_that_is_being_committed_is_not_there_yet_and_not_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { segment_bytes: 1 << 20, durability: Durability::Memory, ..Default::default() };
        let journal = Journal::create(dir.path(), &options).unwrap();
        let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 10)).unwrap().value;
        journal.commit(|batch| batch.append(&log, b"one", EventId::NONE, 0)).unwrap();
        let (inner, mut payload) = (&journal.0, Vec::new());
        log.index().make_room(2).unwrap();
        // A commit writes the position into the index before it moves the tail past it.
        log.index().set(2, Slot::own(inner.tail(), 64));
        let read = inner.read_record(&log, 2, log.index().word(2), &mut payload);
        assert_eq!(read.unwrap_err().code(), Code::AboveTail);
        // By now the tail is behind it: nothing has to be corrected, and it is read once more.
        assert!(inner.look_again(&log, 1, Code::AboveTail).unwrap());
        inner.get(&log, 1, Position(inner.tail()), &mut payload).unwrap();
        assert_eq!(payload, b"one");
    }
}
