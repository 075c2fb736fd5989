//! Recovery: finds the longest valid prefix of the journal, and rebuilds everything else from it.
//!
//! It is needed in two cases. When no process has the namespace open and the last end was not clean, [`recover`] reads all segments and
//! rebuilds control page and indexes. When a process died with the lock while others are alive, the next owner runs [`Inner::repair`],
//! which does the same for the one batch that was being written.
//!
//! A batch is valid if all its entries pass their checksums, link to the previous one, have the next number, and the last one is marked as
//! the last. The bytes after the last valid batch were never acknowledged, and are discarded and counted; with one exception: if something
//! after them proves that they were on disk, they *were* acknowledged and have been damaged since. Then the namespace is refused, with the
//! position, and nothing is discarded. The proof is the durable watermark of the control page, if there is one, and every MARK and OPEN
//! after the position: each records what was durable when it was written, and that stays true. After a torn tail there is none, because
//! nothing after it was durable.
//!
//! A view ([`crate::Journal::view`]) steps over the damage instead, on a copy, and shows what remains.

mod ahead;

use self::ahead::{Ahead, reading_ahead};
use crate::{
    catalog::{Catalog, Definition},
    copy::Rebuilt,
    entry::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, Position, payload},
    journal::Inner,
    store::{
        control::Remains,
        index::{Index, SEQUENCE_STEP},
        manifest::Manifest,
        part::first_part,
        segments::{self, FOLDER, Segments, io_error},
        slot::Slot,
    },
};
use millrace_wire::{Code, Error, Result};
use std::{collections::HashMap, ops::Range, sync::atomic::Ordering};

/// The findings of an open after an unclean end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the journal was read as a whole; false after a clean end, or if other processes had it open.
    pub scanned: bool,
    /// Entries found.
    pub entries: u64,
    /// Bytes behind the last whole batch that had been begun and were discarded.
    pub discarded_bytes: u64,
    /// Ranges that were acknowledged as durable and no longer pass their checksums; only a view has any.
    pub damaged: Vec<(Position, Position)>,
    /// Everything before this was once durable, as the control page or a mark proves.
    pub proven: Position,
    /// Where the journal ended.
    pub tail: Position,
    /// Records behind its end, by log and seqno; only a view has any.
    pub unproven: Vec<(u32, u64)>,
    /// The recreated parts of the manifest and of definitions; only a view recreates any.
    pub rebuilt: Option<Rebuilt>,
}

/// Where a chain of entries continues, and what its next entry must look like.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    position: u64,
    sequence: u64,
    prev: u32,
    epoch: u32,
}

/// A whole batch.
pub(crate) struct Batch {
    /// Its entries' positions and headers.
    pub entries: Vec<(u64, Header)>,
    /// Where it ends.
    pub end: u64,
}

impl Chain {
    fn behind(position: u64, header: &Header) -> Self {
        Self {
            position: position + header.span(),
            sequence: header.sequence + 1,
            prev: header.crc,
            epoch: header.epoch,
        }
    }

    fn admits(&self, header: &Header) -> bool {
        header.sequence == self.sequence && header.prev == self.prev && header.epoch >= self.epoch
    }

    /// The whole batch at this place, or at the start of the next segment. Of some entries it may be known that they are whole.
    fn next(&self, segments: &Segments, is_known: &impl Fn(u64) -> bool, batch: &mut Batch) -> Result<bool> {
        if segments.offset(self.position) >= HEADER_BYTES && self.read_batch(segments, is_known, batch)? {
            return Ok(true);
        }
        let number = segments.number(self.position - 1) + 1;
        if !segments.exists(number) {
            return Ok(false);
        }
        // The entries themselves show whether they continue the chain, so a damaged segment header loses nothing.
        Chain { position: segments.first_entry(number), ..*self }.read_batch(segments, is_known, batch)
    }

    fn read_batch(mut self, segments: &Segments, is_known: &impl Fn(u64) -> bool, batch: &mut Batch) -> Result<bool> {
        batch.entries.clear();
        let number = segments.number(self.position);
        let whole = |position: u64| match is_known(position) {
            true => segments.header(position).map(Some),
            false => segments.valid_entry(position),
        };
        while segments.number(self.position) == number
            && let Some(header) = whole(self.position)?.filter(|header| self.admits(header))
        {
            batch.entries.push((self.position, header));
            self = Chain::behind(self.position, &header);
            if header.is_last() {
                batch.end = self.position;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The journal as recovery found it.
pub(crate) struct Recovered {
    pub catalog: Catalog,
    pub report: Recovery,
    /// Position of the last entry; 0 if there are none.
    pub last: u64,
    pub tail: u64,
    pub hlc: u64,
    /// The newest segment in which a whole CATALOG begins.
    pub cataloged: u64,
}

/// Folds batches into a catalog with fresh indexes.
struct Fold<'i> {
    inner: &'i Inner,
    state: Recovered,
    /// The newest FIRED of runs, by function and number, whose TRIGGER was not met: retention copied that one to where it is met
    /// behind it. Those of runs that are over leave with their DONE.
    ahead: HashMap<(u32, u64), Slot>,
}

impl Fold<'_> {
    fn entry(&mut self, position: u64, header: &Header) -> Result<()> {
        let state = &mut self.state;
        state.report.entries += 1;
        state.last = position;
        state.tail = position + header.span();
        state.hlc = state.hlc.max(header.hlc);
        let kind = header.folded();
        let is_known = kind == Some(Kind::Define) && position <= state.catalog.version();
        if kind == Some(Kind::Define) && !is_known {
            let definition = Definition::decode(self.inner.segments.payload(position, header)?)?;
            if let Definition::RemoveLog { id } | Definition::RemoveFunction { id, .. } = &definition
                && let Some(subject) = state.catalog.subject(*id)
            {
                subject.remove();
            }
            state.catalog.apply(&definition, position, &self.inner.indexes(true))?;
        }
        if kind == Some(Kind::Catalog) && header.ordinal == 0 {
            state.cataloged = self.inner.segments.number(first_part(header, position)).max(state.cataloged);
        }
        if header.sequence.is_multiple_of(SEQUENCE_STEP) {
            self.inner.make_sequence_place(header.sequence)?;
        }
        if let Some(kind) = kind {
            self.inner.make_place(kind, header.subject, header.seqno)?;
        }
        if kind == Some(Kind::Generation) {
            // The first version of a record may be gone: it made no place then.
            let first = self.inner.control.upkeep.first.load(Ordering::Acquire);
            for (log, seqno, at) in payload::generation_rows(self.inner.segments.payload(position, header)?) {
                if (first..position).contains(&at) {
                    self.inner.make_place(Kind::Append, log, seqno)?;
                }
            }
        }
        if is_known {
            // The manifest has its result. An older history of a log would leave records without a place that a later one keeps.
            self.inner.index_sequence(position, header);
        } else {
            self.inner.index_entry(position, header);
        }
        self.note_ahead(kind, position, header);
        Ok(())
    }

    fn note_ahead(&mut self, kind: Option<Kind>, position: u64, header: &Header) {
        let run = (header.subject, header.seqno);
        match kind {
            Some(Kind::Fired) => {
                let index = Index::find(&*self.inner.arena, header.subject);
                let item = index.and_then(|index| index.read_item(header.seqno));
                if item.is_none_or(|item| item.opened == 0) {
                    self.ahead.insert(run, Slot::own(position, u64::from(header.length)));
                }
            }
            Some(Kind::Done) => drop(self.ahead.remove(&run)),
            Some(Kind::Trigger) => {
                if let Some(slot) = self.ahead.remove(&run)
                    && let Some(index) = Index::find(&*self.inner.arena, header.subject)
                {
                    index.note_item(header.seqno, slot);
                }
            }
            _ => {}
        }
    }
}

/// How to handle damage to durable data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Refuse the namespace.
    Refuse,
    /// Show what remains of what was durable up to here at least.
    StepOver { durable: u64 },
}

/// Reads the whole journal. The caller is the only process; the control page is blank but for `first`.
pub(crate) fn recover(inner: &Inner, manifest: &Manifest, remains: &Remains, on_damage: Damage) -> Result<Recovered> {
    let numbers = map_all(inner, manifest, remains, on_damage)?;
    reading_ahead(&inner.segments, numbers, |ahead| follow(inner, manifest, remains, on_damage, ahead))
}

/// Follows the chain from the first segment on.
fn follow(
    inner: &Inner,
    manifest: &Manifest,
    remains: &Remains,
    on_damage: Damage,
    ahead: &Ahead<'_>,
) -> Result<Recovered> {
    let segments = &inner.segments;
    ahead.pass(manifest.first_segment)?;
    let catalog = Catalog::from_manifest(manifest, &inner.indexes(true))?;
    let report = Recovery { scanned: true, ..Recovery::default() };
    let start = segments.first_entry(manifest.first_segment);
    let state = Recovered { catalog, report, last: 0, tail: start, hlc: 0, cataloged: 0 };
    let mut fold = Fold { inner, state, ahead: HashMap::new() };
    let mut chain = first_chain(inner, manifest, start)?;
    let mut batch = Batch { entries: Vec::new(), end: 0 };
    // Where segments end before their file does. Nothing is cleared there before all was read and may be opened.
    let mut left = Vec::new();
    let is_known = |position| ahead.knows(segments, position);
    loop {
        while ahead
            .pass(segments.number(chain.position - 1))
            .and_then(|()| chain.next(segments, &is_known, &mut batch))?
        {
            if segments.number(batch.end - 1) != segments.number(chain.position - 1) {
                left.push(chain.position);
            }
            for (position, header) in &batch.entries {
                fold.entry(*position, header)?;
            }
            let (position, header) = batch.entries.last().expect("a batch has an entry");
            chain = Chain::behind(*position, header);
        }
        ahead.finish()?;
        let behind = look_behind(inner, chain.position)?;
        let proven = remains.durable.max(behind.proven);
        fold.state.report.proven = fold.state.report.proven.max(Position(proven));
        if chain.position >= proven {
            if on_damage != Damage::Refuse {
                fold.state.report.unproven = behind.records;
            }
            break;
        }
        if on_damage == Damage::Refuse {
            return Err(refusal(inner, chain, proven)?);
        }
        match step_over_damage(inner, &chain, proven)? {
            Some((position, header)) => {
                // The damage may begin within the batch: then its first entries are still whole.
                if position > chain.position {
                    fold.state.report.damaged.push((Position(chain.position), Position(position)));
                }
                // The rest of the damaged batch was committed with it.
                fold.entry(position, &header)?;
                chain = Chain::behind(position, &header);
                chain = finish_damaged_batch(&mut fold, chain, header)?;
            }
            None => {
                fold.state.report.damaged.push((Position(chain.position), Position(proven)));
                break;
            }
        }
    }
    for end in left {
        forget_entries(inner, end)?;
    }
    fold.state.report.tail = Position(fold.state.tail);
    fold.state.report.discarded_bytes = discard_rest(inner, fold.state.tail)?;
    let (tail, discarded_bytes) = (fold.state.tail, fold.state.report.discarded_bytes);
    tracing::info!(target: "journal", tail, discarded_bytes, "recovered");
    Ok(fold.state)
}

/// The chain that the first segment's header begins.
fn first_chain(inner: &Inner, manifest: &Manifest, start: u64) -> Result<Chain> {
    let number = manifest.first_segment;
    let header = inner.segments.segment_header(number)?;
    if let Some(header) = header
        && !manifest.owners().any(|owner| header.namespace == owner.get())
    {
        return Err(Code::NamespaceIncomplete.error(format!(
            "{} belongs to namespace {:012x}",
            segments::name(number),
            header.namespace
        )));
    }
    Ok(match header {
        Some(header) => Chain { position: start, sequence: header.base_sequence, prev: header.prev, epoch: 0 },
        // A damaged header loses no entry: the first entry itself continues the chain.
        None => match inner.segments.valid_entry(start)? {
            Some(entry) => Chain { position: start, sequence: entry.sequence, prev: entry.prev, epoch: 0 },
            None => Chain { position: start, sequence: 0, prev: 0, epoch: 0 },
        },
    })
}

/// The data after the end of the chain.
#[derive(Default)]
struct Behind {
    /// The position up to which the journal was once durable, from the MARKs and OPENs there.
    proven: u64,
    records: Vec<(u32, u64)>,
}

/// Looks at every valid entry behind `position`.
fn look_behind(inner: &Inner, position: u64) -> Result<Behind> {
    let segments = &inner.segments;
    let numbers = segment_numbers(inner)?;
    let mut behind = Behind::default();
    for number in numbers.into_iter().filter(|number| *number >= segments.number(position - 1)) {
        let start = segments.start(number);
        let region = segments.map(number, false)?;
        let mut at = position.max(start);
        while at < start + segments.bytes() {
            let (data, hole) = inner.medium.next_data(&region, at - start);
            let limit = start + (hole + 1).saturating_sub(HEADER_BYTES);
            at = inner.segments.resync((start + data).max(at) - ALIGN_BYTES, limit)?;
            while at < limit
                && let Some(header) = segments.valid_entry(at)?
            {
                match header.folded() {
                    Some(Kind::Mark) => behind.proven = behind.proven.max(header.seqno),
                    Some(Kind::Open) => behind.proven = behind.proven.max(at),
                    Some(Kind::Append) => behind.records.push((header.subject, header.seqno)),
                    _ => {}
                }
                at = inner.segments.resync(at + header.span() - ALIGN_BYTES, limit)?;
            }
            at = (start + hole).max(at + ALIGN_BYTES);
        }
    }
    Ok(behind)
}

/// Why a journal with damage where `chain` ends is not opened.
fn refusal(inner: &Inner, mut chain: Chain, proven: u64) -> Result<Error> {
    let segments = &inner.segments;
    let number = segments.number(chain.position - 1);
    let ends_segment = |header: Header| header.crc == 0 && header.length == 0;
    let skipped = segments.offset(chain.position) == 0
        || segments.room(chain.position) < HEADER_BYTES
        || ends_segment(segments.header(chain.position)?);
    if skipped && segments.exists(number + 1) {
        chain.position = segments.first_entry(number + 1); // The damaged batch is the first of its segment.
    }
    // The first entries of the damaged batch may be whole.
    while let Some(header) = inner.segments.valid_entry(chain.position)?.filter(|header| chain.admits(header)) {
        chain = Chain::behind(chain.position, &header);
    }
    let position = chain.position;
    let next = inner.segments.resync(position - ALIGN_BYTES, proven)?;
    let (number, offset) = (inner.segments.number(position), inner.segments.offset(position));
    Ok(Code::JournalDamaged.error(format!(
        "at position {} (byte {offset} of {}) and up to {}; it was durable up to {}",
        Position(position),
        segments::name(number),
        Position(next),
        Position(proven)
    )))
}

/// The first valid entry behind damage where `chain` ends and before what was durable.
fn step_over_damage(inner: &Inner, chain: &Chain, durable: u64) -> Result<Option<(u64, Header)>> {
    let mut next = inner.segments.resync(chain.position - ALIGN_BYTES, durable)?;
    while next < durable {
        // An entry that was rolled back may still pass its checksum, but its number does not follow.
        let header = inner.segments.valid_entry(next)?;
        if let Some(header) = header.filter(|found| found.sequence >= chain.sequence && found.epoch >= chain.epoch) {
            return Ok(Some((next, header)));
        }
        next = inner.segments.resync(next, durable)?;
    }
    Ok(None)
}

/// Takes the entries that are left of a batch whose beginning is damaged.
fn finish_damaged_batch(fold: &mut Fold<'_>, mut chain: Chain, mut header: Header) -> Result<Chain> {
    while !header.is_last() {
        match fold.inner.segments.valid_entry(chain.position)?.filter(|next| chain.admits(next)) {
            Some(next) => {
                fold.entry(chain.position, &next)?;
                chain = Chain::behind(chain.position, &next);
                header = next;
            }
            None => break,
        }
    }
    Ok(chain)
}

/// Removes segments after the tail's and returns how many bytes had been written after the tail. They are cleared before the space is used
/// again, because space is prepared from the tail on.
fn discard_rest(inner: &Inner, tail: u64) -> Result<u64> {
    let segments = &inner.segments;
    let number = segments.number(tail - 1);
    let mut discarded = begun_behind(inner, tail)?;
    forget_entries(inner, tail)?;
    // From the end, one at a time: a crash must not leave a gap that looks like a missing segment.
    for later in segment_numbers(inner)?.into_iter().rev().filter(|later| *later > number) {
        discarded += begun_behind(inner, segments.first_entry(later))?;
        segments.forget(later);
        inner.medium.remove(&segments::name(later)).map_err(|error| io_error(segments::name(later), &error))?;
        inner.medium.flush_names(FOLDER).map_err(|error| io_error(FOLDER, &error.into()))?;
    }
    // A segment that an earlier recovery removed may come back after a power failure; after a gap, it would look like a valid one.
    inner.medium.flush_names(FOLDER).map_err(|error| io_error(FOLDER, &error.into()))?;
    Ok(discarded)
}

/// Clears every header between the end of what a segment holds and the segment's own end that a scan could take for that of
/// an entry: a batch that moved on may have been there, and its removal need not have reached the disk.
fn forget_entries(inner: &Inner, from: u64) -> Result<()> {
    let segments = &inner.segments;
    let start = segments.start(segments.number(from - 1));
    let region = segments.map(segments.number(start), false)?;
    if from + HEADER_BYTES <= start + segments.bytes()
        && inner.medium.next_data(&region, from - start).0 <= from - start
    {
        segments.scrub(from, from + HEADER_BYTES)?;
    }
    let mut at = from - start;
    while at < segments.bytes() {
        let (data, hole) = inner.medium.next_data(&region, at);
        // Every written entry has storage for its whole header, so the edge need not be crossed.
        let limit = start + (hole + 1).saturating_sub(HEADER_BYTES);
        let mut position = inner.segments.resync(start + data.max(at) - ALIGN_BYTES, limit)?;
        while position < limit {
            segments.scrub(position, position + HEADER_BYTES)?;
            position = inner.segments.resync(position, limit)?;
        }
        at = hole.max(at + 1);
    }
    Ok(())
}

/// Bytes of what looks like entries from `start` on.
fn begun_behind(inner: &Inner, start: u64) -> Result<u64> {
    let segments = &inner.segments;
    let offset = segments.offset(start);
    if offset == 0 {
        return Ok(0); // What went before ends with its segment, and there may be no other.
    }
    let region = segments.map(segments.number(start), false)?;
    let (data, hole) = inner.medium.next_data(&region, offset);
    if data > offset || hole < offset + HEADER_BYTES {
        return Ok(0);
    }
    let mut position = start;
    while segments.offset(position) >= HEADER_BYTES && segments.room(position) >= HEADER_BYTES {
        let header = segments.header(position)?;
        if !header.is_plausible(segments.room(position)) {
            break;
        }
        position += header.span();
        if segments.valid_entry(position - header.span())?.is_none() {
            break; // The torn one.
        }
    }
    Ok(position - start)
}

/// The segments that have a file, in order.
pub(crate) fn segment_numbers(inner: &Inner) -> Result<Vec<u64>> {
    let names = inner.medium.list(FOLDER).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Code::NamespaceIncomplete.error(format!("{FOLDER} is missing")),
        _ => io_error(FOLDER, &error),
    })?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Maps all segments, giving those that were truncated their length back, and says which there are. One that is missing is an
/// error, or damaged as a whole.
fn map_all(inner: &Inner, manifest: &Manifest, remains: &Remains, on_damage: Damage) -> Result<Range<u64>> {
    let numbers = segment_numbers(inner)?;
    let newest = inner.segments.number(remains.durable.saturating_sub(1)).max(*numbers.last().unwrap_or(&0));
    for number in manifest.first_segment..=newest {
        if numbers.binary_search(&number).is_err() && on_damage == Damage::Refuse {
            return Err(Code::NamespaceIncomplete.error(format!("{} is missing", segments::name(number))));
        }
        inner.segments.map(number, true)?;
    }
    // Dropped by retention, but for the name.
    for number in numbers.into_iter().filter(|number| *number < manifest.first_segment) {
        inner.medium.remove(&segments::name(number)).map_err(|error| io_error(segments::name(number), &error))?;
    }
    Ok(manifest.first_segment..newest + 1)
}

impl Inner {
    /// Puts right what a dead lock owner, or a commit that failed half-way, left. The caller has the lock.
    #[cold]
    pub(crate) fn repair(&self) -> Result<()> {
        let writer = &self.control.writer;
        if writer.refused.load(Ordering::Acquire) > 0 {
            self.clear_refused(writer.intent.load(Ordering::Relaxed))?;
        }
        let mut last = writer.last.load(Ordering::Acquire);
        let applied = writer.applied.load(Ordering::Relaxed);
        let (mut header, end) = self.last_entry(last)?;
        // The committed entries begin where the indexes end, and all of them are intact.
        let mut position = applied;
        while let Some((at, header)) = self.entry_from(&mut position, end.max(applied))? {
            position = at + header.span();
        }
        if end < applied || self.segments.valid_entry(last)?.is_none() {
            return Err(self.control.contradicted());
        }
        let mut batch = Batch { entries: Vec::new(), end: 0 };
        // A complete batch counts, although its writer died before it published the tail.
        while Chain::behind(last, &header).next(&self.segments, &|_| false, &mut batch)? {
            (last, header) = *batch.entries.last().expect("a batch has an entry");
            writer.last.store(last, Ordering::Release);
        }
        let tail = last + header.span();
        self.apply_again(applied, tail)?;
        self.clear_intent(tail, writer.intent.load(Ordering::Relaxed))?;
        writer.applied.store(tail, Ordering::Relaxed);
        writer.intent.store(0, Ordering::Relaxed);
        self.publish(tail);
        self.control.seal_words();
        Ok(())
    }

    /// Applies committed entries from a batch boundary on. Their writer made what they define before it staged them.
    fn apply_again(&self, from: u64, tail: u64) -> Result<()> {
        let mut position = from;
        while let Some((at, header)) = self.entry_from(&mut position, tail)? {
            self.control.writer.hlc.fetch_max(header.hlc, Ordering::Relaxed);
            self.apply(at, &header);
            position = at + header.span();
        }
        if self.control.writer.defined.load(Ordering::Relaxed) != self.cached_catalog().version() {
            self.refresh_catalog()?;
        }
        Ok(())
    }

    /// Clears what a batch that was never committed may have left between the tail and where it meant to end.
    fn clear_intent(&self, tail: u64, intent: u64) -> Result<()> {
        let segments = &self.segments;
        if intent <= tail {
            return Ok(());
        }
        let (here, there) = (segments.number(tail - 1), segments.number(intent - 1));
        if there > here && segments.exists(there) {
            segments.scrub(segments.start(there), intent)?;
        }
        if segments.offset(tail) != 0 {
            // A batch that moved on may have touched the whole rest before.
            segments.scrub(tail, intent.min(segments.start(here + 1)))?;
        }
        Ok(())
    }
}
