//! Retention drops segments that are no longer needed, and copies the few entries in them that are still live to the tail.
//!
//! Live entries are the records that are still in their log's history, and what pending runs need: their triggers, the records of these,
//! the newest attempt and its result, and the calls of streamed runs. The oldest segments are dropped when at most a quarter of them, taken
//! together, is live: the smallest number of segments for which this is true, and the following ones in which nothing is live. Dropping
//! more would copy more than it frees; with fewer, one idle log whose records fill the oldest segments would keep everything after them.
//! Each dropped segment has to be beyond `retain_bytes` or older than `retain_age`, unless free space is low (`space.rs`). So the journal
//! takes at most the sum of `retain_bytes`, four times its live entries, and some segments.
//!
//! A process may die after any step: copies are committed and flushed, and so is the beginning of what stays; then the manifest is
//! replaced; then the files are renamed or removed. Segments in which nothing is live are dropped together, because a manifest costs two
//! flushes. All of this has a lock of its own, `retain_lock`: a thread that prepares space waits for renames, and never for a flush.

use super::{prepare::spare_name, standing::is_ahead};
use crate::{
    catalog::{Catalog, Log},
    entry::{ALIGN_BYTES, Entry, HEADER_BYTES, Header, Kind, Position, payload::CARRIED_MAX_BYTES},
    journal::{Inner, Journal},
    read::{scan::Scan, walk::Walk},
    store::{
        index::{Index, JOURNAL_ID},
        manifest::Manifest,
        part::{function_row, log_row},
        segments::{self, FOLDER, SEGMENTS_MAX, SPARES_MAX, io_error},
    },
};
use millrace_wire::{Code, EventId, Hlc, Result};
use std::{collections::HashSet, ops::Range, sync::atomic::Ordering};

/// Entries carried per commit.
const CARRY_BATCH_BYTES: u64 = 256 << 10;
/// Segments stay if more than one part in this many is live.
const LIVE_PART: u64 = 4;
/// If space is low, they stay if more than this part is live: every copy has to free something.
const LOW_LIVE_PART: (u64, u64) = (3, 4);
/// The maximum number of retained segments, whatever is configured, so that there is room for copies and for appends.
pub(crate) const RETAINED_MAX: u64 = SEGMENTS_MAX - 64;
/// How many segments are dropped with one manifest.
const DROPPED_AT_ONCE: u64 = 8;
/// Segments that stay are looked at again when the journal has grown by one part in this many: looking means reading.
const GROWTH_PART: u64 = 8;

/// Segments that were looked at and have to stay. They are not looked at again before the tail has come to `until`.
#[derive(Clone, Default)]
pub(crate) struct Staying {
    until: u64,
    segments: Range<u64>,
    live_bytes: u64,
    /// Whether space was low.
    low: bool,
}

/// The oldest segments, as far as they can go together.
struct Going {
    /// The first that stays.
    stays: u64,
    /// From here on nothing is live in them.
    dead: u64,
    live_in_first: Vec<Live>,
}

/// An entry that is to be carried forward.
#[derive(Clone, Copy)]
struct Live {
    position: u64,
    kind: Kind,
}

/// Whether a record is within its log's history and has this position.
pub(crate) fn is_kept(catalog: &Catalog, log: u32, seqno: u64, position: u64) -> bool {
    let log = catalog.log_by_id(log);
    log.is_some_and(|log| seqno >= log.earliest() && log.index().position(seqno) == position)
}

/// The result of [`Journal::maintain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Segments dropped.
    pub dropped: u64,
    /// Entries that were copied because they are still live.
    pub carried: u64,
    /// Whether segments stay only because too much of them is live.
    pub held_by_live: bool,
}

/// Who knows what is still needed of a journal.
pub trait Needs {
    /// Whether a run of a function is pending; if a FIRED is given, whether that one still tells something.
    fn run(&self, function: u32, run: EventId, fired: Option<EventId>) -> bool;
    /// The position from which on everything is needed, if there is one.
    fn floor(&self) -> Result<Option<Position>> {
        Ok(None)
    }
    /// Whether a record of a table is the newest of its key, at this position, and a value. It may be called under the journal's lock.
    fn row(&self, log: &Log, record: &Entry) -> Result<bool>;
}

/// One that knows nothing of tables: all of their records are needed.
impl<F: Fn(u32, EventId, Option<EventId>) -> bool> Needs for F {
    fn run(&self, function: u32, run: EventId, fired: Option<EventId>) -> bool {
        self(function, run, fired)
    }

    fn row(&self, _log: &Log, _record: &Entry) -> Result<bool> {
        Ok(true)
    }
}

type Needed<'f> = &'f dyn Needs;

impl Journal {
    /// Drops segments, as far as retention allows. `pending` returns whether a run of a function is pending; it must know every committed
    /// DONE.
    pub fn maintain(&self, pending: &dyn Fn(u32, EventId) -> bool) -> Result<Maintained> {
        self.maintain_needed(&|function, run, _: Option<EventId>| pending(function, run))
    }

    /// The same for who knows the attempts of runs, and tables.
    pub fn maintain_needed(&self, needed: &dyn Needs) -> Result<Maintained> {
        self.inner().maintain(needed, &mut self.scan(self.tail()))
    }
}

impl Inner {
    /// Drops what retention allows. `since` reads what is committed from now on.
    pub(crate) fn maintain(&self, needed: Needed<'_>, since: &mut Scan) -> Result<Maintained> {
        if self.medium.is_inherited() {
            return Err(Code::ForkedHandle.error("this process is a fork of the one that opened the namespace"));
        }
        let mut done = Maintained::default();
        let mut ended = HashSet::new();
        self.remove_old_pins()?;
        self.refresh_retention();
        loop {
            // A log that another process defined since is as live as any.
            self.fresh_catalog()?;
            let first = self.segments.number(self.control.upkeep.first.load(Ordering::Acquire));
            let tail = self.control.published.tail.load(Ordering::Acquire);
            let missing = self.missing_bytes();
            let due = self.first_not_due(first, tail, missing)?;
            let due = self.first_pinned()?.map_or(due, |pinned| due.min(pinned.max(first)));
            let floor = needed.floor()?.map(|floor| self.segments.number(floor.0));
            let due = floor.map_or(due, |floor| due.min(floor.max(first)));
            if due == first {
                break;
            }
            let Some(going) = self.going(first..due, tail, missing > 0, needed)? else {
                done.held_by_live = true;
                break;
            };
            let stays = going.stays;
            // Dropped segments may contain the only definitions in the journal.
            if self.control.upkeep.cataloged.load(Ordering::Acquire) < stays {
                self.write_catalog()?;
            }
            let mut live_in_first = Some(going.live_in_first);
            let mut from = first;
            for number in first..stays {
                let live = match live_in_first.take() {
                    Some(live) => live,
                    None if number >= going.dead => Vec::new(),
                    None => self.live_entries(number, needed)?.0,
                };
                let carried = self.carry(&live, needed, since, &mut ended)?;
                done.carried += carried;
                // The copies use space that dropping their segment frees.
                if carried == 0 && number + 1 < stays.min(from + DROPPED_AT_ONCE) {
                    continue;
                }
                if !self.drop_segments(from..number + 1)? {
                    return Ok(done);
                }
                done.dropped += number + 1 - from;
                from = number + 1;
            }
            self.forget_dropped()?;
        }
        self.keep_reserve();
        Ok(done)
    }

    /// The manifest that lets a segment go. The next one begins with a CATALOG, most often: its definitions and counters include
    /// what goes, and all that has to be durable with them is the journal up to there. So the pages that are being written are not
    /// flushed, and their writers do not wait for the disk.
    /// It comes with the position up to which what stays is durable.
    fn manifest_without(&self, number: u64) -> Result<(Manifest, u64)> {
        match self.manifest_of_catalog(number + 1)? {
            Some((manifest, end)) => {
                self.flush_start(number + 1, end)?;
                Ok((manifest, end))
            }
            None => self.settled_manifest(number + 1),
        }
    }

    /// Frees index items of runs and of the journal that lead to dropped entries.
    fn forget_dropped(&self) -> Result<()> {
        let catalog = self.fresh_catalog()?;
        let _guard = self.lock()?;
        let first = self.control.upkeep.first.load(Ordering::Acquire);
        catalog.functions().for_each(|function| function.index().forget_before(first));
        if let Some(index) = Index::find(&*self.arena, JOURNAL_ID) {
            index.forget_before(first);
        }
        Ok(())
    }

    /// The oldest of those that are due that can go together; `None` if all have to stay for now. If space is `low`, more is copied.
    fn going(&self, due: Range<u64>, tail: u64, low: bool, needed: Needed<'_>) -> Result<Option<Going>> {
        let bytes = tail - self.segments.start(due.start);
        let until = tail + bytes / GROWTH_PART;
        let mut held = Staying { until, segments: due.start..due.start, live_bytes: 0, low };
        {
            let before = self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if tail < before.until && before.segments.start == due.start && (before.low || !low) {
                // Only what has become due since is looked at: of the others no more is live than was.
                held = before.clone();
            }
        }
        let mut live_in_first = None;
        for number in held.segments.end..due.end {
            let (live, bytes) = self.live_entries(number, needed)?;
            held.live_bytes += bytes;
            if number == due.start {
                live_in_first = Some(live);
            }
            let bytes = (number + 1 - due.start) * self.segments.bytes();
            if held.live_bytes <= if low { bytes / LOW_LIVE_PART.1 * LOW_LIVE_PART.0 } else { bytes / LIVE_PART } {
                let live_in_first = match live_in_first {
                    Some(live) => live,
                    None => self.live_entries(due.start, needed)?.0,
                };
                let (dead, most) = (number + 1, due.end.min(due.start + DROPPED_AT_ONCE));
                let mut stays = dead;
                while stays < most && self.live_entries(stays, needed)?.0.is_empty() {
                    stays += 1;
                }
                return Ok(Some(Going { stays, dead, live_in_first }));
            }
            held.segments.end = number + 1;
        }
        *self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = held;
        Ok(None)
    }

    /// The oldest segment that is to be kept by its age and by how much there is; it and what is behind it stays.
    fn first_not_due(&self, first: u64, tail: u64, missing_bytes: u64) -> Result<u64> {
        let segments = &self.segments;
        let current = segments.number(tail - 1);
        let mut kept = self.retention.bytes().min(RETAINED_MAX * segments.bytes()) / segments.bytes();
        if missing_bytes > 0 {
            kept = kept.min((current - first).saturating_sub(missing_bytes.div_ceil(segments.bytes())));
        }
        // So many, and what is in the one that is written to.
        let mut due = current.saturating_sub(kept).max(first);
        if let Some(age_ms) = self.retention.age_ms() {
            let newest_us = self.medium.wall_us().saturating_sub(age_ms.saturating_mul(1000));
            while due < current && self.is_older(due, tail, newest_us)? {
                due += 1;
            }
        }
        Ok(due)
    }

    /// Whether nothing in a segment is as young as this: neither its beginning nor what was written behind it at first is. Copies of what is
    /// still live are as old as the original. Entries of a clock that was far ahead tell nothing.
    fn is_older(&self, number: u64, tail: u64, than_us: u64) -> Result<bool> {
        // Both, because a clock may have been far behind when one of them was written.
        Ok(self.begins_before(number + 1, tail, than_us)? && self.begins_before(number, tail, than_us)?)
    }

    /// Whether what was written first from the start of a segment on is older than this.
    fn begins_before(&self, number: u64, tail: u64, than_us: u64) -> Result<bool> {
        let (mut position, wall_us) = (self.segments.start(number), self.medium.wall_us());
        loop {
            match self.entry_from(&mut position, tail) {
                Ok(Some((at, header))) => {
                    let clock = Hlc::from_bits(header.hlc);
                    if !header.is_carried() && !is_ahead(clock, wall_us) {
                        return Ok(clock.wall_us() < than_us);
                    }
                    position = at + header.span();
                }
                Ok(None) => return Ok(false),
                Err(error) if error.code() == Code::EntryDamaged => {} // It was stepped over.
                Err(error) => return Err(error),
            }
        }
    }

    /// The live entries of a segment and how many bytes their copies take.
    fn live_entries(&self, number: u64, needed: Needed<'_>) -> Result<(Vec<Live>, u64)> {
        let catalog = self.cached_catalog();
        let (mut live, mut bytes) = (Vec::new(), 0);
        let mut take = |position: u64, kind: Kind, span: u64| {
            live.push(Live { position, kind });
            bytes += span + CARRIED_MAX_BYTES as u64 + ALIGN_BYTES;
        };
        // The last APPEND that was passed over: position, span.
        let mut passed = None;
        let is_live = |at: u64, header: &Header| is_kept(&catalog, header.subject, header.seqno, at);
        let mut walk = Walk::new(self, number);
        loop {
            match walk.next(is_live) {
                Ok(None) => return Ok((live, bytes)),
                Ok(Some((at, header))) => {
                    // An entry of a repair is live if it replaces a record.
                    let is_shadow = header.is_shadow();
                    let kind = Kind::from_u8(header.kind).filter(|kind| !is_shadow || *kind == Kind::Append);
                    let Some(kind @ (Kind::Append | Kind::Trigger | Kind::Fired | Kind::Call)) = kind else { continue };
                    if kind == Kind::Append {
                        if is_live(at, &header) || self.is_row(&catalog, needed, at, &header)? {
                            take(at, kind, header.full_span());
                        } else if !is_shadow && !self.is_replaced(&catalog, header.subject, header.seqno)? {
                            // Of one that is replaced the log's own record serves a pending run; a copy would take its place.
                            passed = Some((at, header.full_span()));
                        }
                        continue;
                    }
                    let entry = self.entry_of(at, &header, kind)?;
                    let attempt = (kind == Kind::Fired).then_some(entry.id);
                    if !needed.run(entry.subject, entry.run(), attempt) {
                        continue;
                    }
                    // A pending run needs its record, even after the record has left its log's history.
                    if kind == Kind::Trigger
                        && let Some((record, span)) = passed
                        && self.is_entry(record, entry.cause)?
                    {
                        take(record, Kind::Append, span);
                        passed = None;
                    }
                    take(at, kind, header.full_span());
                }
                // There is nothing to carry, and the walk stepped over it.
                Err(error) if error.code() == Code::EntryDamaged => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a record is the value of a key of a table.
    fn is_row(&self, catalog: &Catalog, needed: Needed<'_>, at: u64, header: &Header) -> Result<bool> {
        match catalog.log_by_id(header.subject) {
            Some(log) if log.table().is_some() && !header.is_shadow() => {
                needed.row(log, &self.entry_of(at, header, Kind::Append)?)
            }
            _ => Ok(false),
        }
    }

    /// Whether a repair put something into the place of a record that its log still has. A copy that retention made is none of that.
    fn is_replaced(&self, catalog: &Catalog, log: u32, seqno: u64) -> Result<bool> {
        let log = catalog.log_by_id(log).filter(|log| (log.earliest()..=log.latest()).contains(&seqno));
        Ok(log.map(|log| self.replaced(log, seqno)).transpose()?.flatten().is_some())
    }

    /// Whether the entry at a position has this id; one that is damaged has none.
    fn is_entry(&self, position: u64, id: EventId) -> Result<bool> {
        match self.entry_at(position) {
            Ok(entry) => Ok(entry.id == id),
            Err(error) if error.code() == Code::EntryDamaged => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies entries to the end of the journal. Returns how many. A run that has ended meanwhile must not be restarted by a copy of its
    /// trigger.
    fn carry(&self, live: &[Live], needed: Needed<'_>, since: &mut Scan, ended: &mut HashSet<EventId>) -> Result<u64> {
        let mut rest = live;
        let mut end = Position::default();
        let batch_bytes = CARRY_BATCH_BYTES.min(self.segments.bytes() / 4);
        while !rest.is_empty() {
            end = self
                .commit(|transaction| {
                    while since.position() < transaction.tail() {
                        match since.next() {
                            Ok(Some(entry)) if entry.kind == Kind::Done => drop(ended.insert(entry.cause)),
                            Ok(Some(_)) => {}
                            Ok(None) => break,
                            Err(error) if error.code() == Code::EntryDamaged => {}
                            Err(error) => return Err(error),
                        }
                    }
                    let mut bytes = 0;
                    while let Some((next, behind)) = rest.split_first() {
                        let entry = self.entry_at(next.position)?;
                        let bytes_of = (CARRIED_MAX_BYTES + entry.extension.len() + entry.payload.len()) as u64;
                        let span = HEADER_BYTES + bytes_of + ALIGN_BYTES;
                        // A trigger stays with its record: who folds the journal finds the one by the other.
                        if bytes > 0 && bytes + span > batch_bytes && next.kind != Kind::Trigger {
                            break;
                        }
                        bytes += span;
                        // It has left its log's history since it was listed, so it is no longer needed.
                        let catalog = transaction.catalog().clone();
                        let has_trigger = behind.first().is_some_and(|behind| behind.kind == Kind::Trigger);
                        let mut superseded = false;
                        let is_live = match next.kind {
                            Kind::Append => {
                                let (log, seqno, at) = (entry.subject, entry.seqno, entry.position.0);
                                let table = catalog.log_by_id(log).filter(|log| log.table().is_some() && !entry.shadow);
                                let is_value = table.map(|table| needed.row(table, &entry)).transpose()?;
                                // A copy is behind what has replaced or deleted the value since, and stays longer.
                                superseded = is_value == Some(false);
                                is_kept(&catalog, log, seqno, at)
                                    || is_value == Some(true)
                                    || has_trigger && !self.is_replaced(&catalog, log, seqno)?
                            }
                            _ => !ended.contains(&entry.run()),
                        };
                        if is_live {
                            transaction.carry_as(&entry, superseded)?;
                        }
                        rest = behind;
                    }
                    Ok(())
                })?
                .end;
        }
        self.sync(end)?;
        Ok(live.len() as u64)
    }

    /// Drops the oldest segments, unless one of them was pinned meanwhile.
    fn drop_segments(&self, numbers: Range<u64>) -> Result<bool> {
        let (manifest, end) = self.manifest_without(numbers.end - 1)?;
        let lock = self.retain_lock();
        lock.acquire(); // From a dead one or not: `first` and the manifest tell how far it came.
        let dropped = self.drop_with(&numbers, &manifest);
        lock.release();
        if !dropped? {
            return Ok(false);
        }
        // Only now is nothing left before it that was not flushed.
        self.attest(end)?;
        Ok(true)
    }

    /// The same with a manifest that names the first one that stays. The caller holds `retain_lock`.
    fn drop_with(&self, numbers: &Range<u64>, manifest: &Manifest) -> Result<bool> {
        let next = self.segments.start(numbers.end);
        let first = self.control.upkeep.first.load(Ordering::Acquire);
        if first >= next {
            return Ok(true); // Another process was faster.
        }
        // It may have dropped some of them.
        let numbers = &(numbers.start.max(self.segments.number(first))..numbers.end);
        if self.first_pinned()?.is_some_and(|pinned| pinned < numbers.end) {
            return Ok(false);
        }
        let stored = self.check_first(numbers.start)?;
        let mut manifest = manifest.clone();
        self.keep_retention(&mut manifest, &stored);
        self.replace_manifest(&manifest)?;
        let lock = self.prepare_lock();
        lock.acquire(); // Whoever makes room gives spare segments new names.
        self.control.upkeep.first.store(next, Ordering::Release);
        let kept = self.release_files(numbers);
        lock.release();
        let kept = kept?;
        self.flushed(FOLDER, self.medium.flush_names(FOLDER))?;
        {
            // A flush that began before `first` moved on may still be at the segments; later ones begin behind them.
            let _no_flush = self.flusher.leader.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            self.segments.retire_before(numbers.end, &|other| kept.contains(&other) || self.is_spare(other));
        }
        tracing::debug!(target: "journal", from = numbers.start, to = numbers.end, kept = kept.len(), "dropped segments");
        self.end_round(); // Somebody may have found the lead taken and be waiting for its end.
        Ok(true)
    }

    /// Makes the files of segments spare ones, or removes them; tells which were kept. Until the folder is flushed, their old names may
    /// come back with a power failure: recovery removes what is before the first segment, and who uses a spare one flushes as well.
    fn release_files(&self, numbers: &Range<u64>) -> Result<Vec<u64>> {
        let mut kept = Vec::new();
        // Where space is low, one is kept for the next segment, and others can use the rest.
        let spares = if self.missing_bytes() > 0 { 1 } else { SPARES_MAX };
        for number in numbers.clone() {
            let name = segments::name(number);
            let failed = |error: std::io::Error| io_error(&name, &error);
            let identity = match self.medium.identify(&name) {
                Ok((identity, _)) => identity,
                // A process that died between two of them had released it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            match (0..spares).map(spare_name).find(|spare| self.medium.identify(spare).is_err()) {
                Some(spare) => {
                    self.medium.rename(&name, &spare).map_err(failed)?;
                    kept.push(identity);
                }
                None => self.medium.remove(&name).map_err(failed)?,
            }
        }
        Ok(kept)
    }

    /// Whether the manifest says as well that this segment is the oldest: a flipped bit in the control page must not drop what
    /// is still kept. A process may have died between the manifest and the page.
    fn check_first(&self, number: u64) -> Result<Manifest> {
        let stored = self.stored_manifest()?;
        let is_right = (number..=number + DROPPED_AT_ONCE).contains(&stored.first_segment);
        if is_right { Ok(stored) } else { Err(self.control.contradicted()) }
    }

    fn is_spare(&self, identity: u64) -> bool {
        (0..SPARES_MAX).any(|n| self.medium.identify(&spare_name(n)).is_ok_and(|(other, _)| other == identity))
    }

    /// Replaces the manifest by one with the current state.
    pub(crate) fn write_manifest(&self, first_segment: u64, epoch: u32) -> Result<()> {
        self.replace_manifest(&self.manifest(first_segment, epoch))
    }

    /// The manifest with counters that no crash takes back: a seqno that was given out and lost would leave a hole.
    /// Returns the tail as well: all of it is durable.
    pub(crate) fn settled_manifest(&self, first_segment: u64) -> Result<(Manifest, u64)> {
        let guard = self.lock()?;
        self.fresh_catalog()?;
        let manifest = self.manifest(first_segment, self.epoch);
        let tail = self.control.published.tail.load(Ordering::Acquire);
        drop(guard);
        self.sync(Position(tail))?;
        Ok((manifest, tail))
    }

    pub(crate) fn manifest(&self, first_segment: u64, epoch: u32) -> Manifest {
        let catalog = self.cached_catalog();
        Manifest {
            namespace: self.namespace,
            salt: self.segments.salt,
            replay_seed: self.settings.replay_seed,
            epoch,
            segment_bytes: self.segments.bytes(),
            retain_bytes: self.retention.bytes(),
            retain_age_ms: self.retention.age_ms(),
            durability: self.settings.durability,
            created_us: self.settings.created_us,
            first_segment,
            defined: catalog.version(),
            next_id: catalog.next_id(),
            logs: catalog.logs().map(log_row).collect(),
            functions: catalog.functions().map(function_row).collect(),
            pins: catalog.pins().cloned().collect(),
            lineage: self.lineage.clone(),
            requires: Vec::new(),
        }
    }
}
