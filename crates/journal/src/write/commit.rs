//! The batch: staged after the tail, committed by one store.
//!
//! ```text
//!   tail                                     intent
//!    v                                          v
//! ---+-------------+-----------+----------------+----------
//!    | APPEND      | TRIGGER   | DONE      LAST |
//! ---+-------------+-----------+----------------+----------
//!                              ^ control.last is set here: that store commits the batch
//! ```
//!
//! Entries are written where they will stay, through the mapping. In a namespace whose appends wait for the disk they are
//! made in memory and written through the file when the batch ends: pages dirtied through a mapping flush two to four
//! times slower (measured in `docs/adr/0001-file-layout.md`).
//!
//! The checksum of an entry is made when the next one is staged, or when the
//! batch ends and the entry is known to be the last. A batch that does not fit into its segment moves to the next one,
//! as a whole. Then indexes are brought up to date, the tail is published and waiters are woken.

use super::{
    lock::{Acquired, Lock},
    standing::{followed, is_ahead},
};
use crate::{
    catalog::{Catalog, Definition, Function, Log, Pin, Subject},
    entry::{
        Entry, FLAG_CARRIED, FLAG_CLAIMED, FLAG_COMPACT, FLAG_EXTENDED, FLAG_LAST, FLAG_SHADOW, HEADER_BYTES, Header,
        Kind, Position,
        compact::{self, Form, Short},
        is_sealed,
        payload::carried_extension,
        span,
    },
    journal::Inner,
    space::Upkeep,
    store::{
        arena,
        control::POISON_COMMIT,
        index::{Index, Role, SEQUENCE_STEP},
        segments::{SegmentHeader, io_error},
    },
};
use millrace_wire::{Code, Error, EventId, Hlc, Name, Result};
use std::{
    cell::Cell,
    sync::{
        Arc, MutexGuard,
        atomic::{Ordering, compiler_fence},
    },
    time::Duration,
};

/// The longest record, in a namespace whose segments are large enough for it.
pub const RECORD_MAX_BYTES: u64 = 16 << 20;

thread_local! {
    /// How long a commit of this thread waits for the lock; without a bound unless [`lock_within`] sets one.
    static PATIENCE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Runs `work`. A commit in it that finds the journal's lock taken by a live process waits for at most `patience`, and then
/// fails with `JournalBlocked`; nothing is staged.
pub fn lock_within<R>(patience: Duration, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Duration>);
    impl Drop for Restore {
        fn drop(&mut self) {
            PATIENCE.set(self.0);
        }
    }
    let _restore = Restore(PATIENCE.replace(Some(patience)));
    work()
}

/// How long a commit of this thread waits for the lock, if that is bounded: see [`lock_within`].
pub fn lock_patience() -> Option<Duration> {
    PATIENCE.get()
}

/// While an entry gets its checksum, so much of the place of the next one is fetched, if it is as long.
const PREFETCH_BYTES: u64 = 2 << 10;
const LINE_BYTES: usize = 64;

/// Prefetches the memory at an address, so that a later write does not wait for it.
#[inline]
pub(crate) fn prefetch(address: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..bytes).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: for any address, this is a hint: it changes nothing, and a page that is not there is not a fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, bytes, LINE_BYTES);
}

/// The result of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Committed<R> {
    /// The closure's result.
    pub value: R,
    /// The end of the batch: it is on disk once [`crate::Journal::durable`] has reached this.
    pub end: Position,
}

/// A staged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its place in its log.
    pub seqno: u64,
    /// Its event id.
    pub id: EventId,
}

/// A batch that was committed, or that was empty.
struct Finished {
    start: u64,
    end: u64,
    /// Whether a host may have something to do.
    work: bool,
}

/// Holds the journal's lock.
pub(crate) struct WriteGuard<'j> {
    inner: &'j Inner,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.inner.write_lock().release();
    }
}

impl Inner {
    pub(crate) fn write_lock(&self) -> Lock<'_> {
        Lock { word: &self.control.writer.lock, medium: &*self.medium, mark: self.mark }
    }

    /// Takes the lock and repairs the journal, no matter what its last owner was doing.
    #[inline]
    pub(crate) fn lock(&self) -> Result<WriteGuard<'_>> {
        if self.medium.is_inherited() {
            return Err(Code::ForkedHandle.error("this process is a fork of the one that opened the namespace"));
        }
        let Some(acquired) = self.write_lock().acquire_within(PATIENCE.get()) else {
            return Err(Code::JournalBlocked.error("the journal's lock is taken"));
        };
        let guard = WriteGuard { inner: self };
        // `applied` differs from the end of `last` only if a commit was cut short.
        if acquired == Acquired::FromDead || self.control.writer.intent.load(Ordering::Relaxed) != 0 {
            self.repair()?;
        }
        Ok(guard)
    }

    /// Runs `f` under the lock and commits what it staged.
    #[inline]
    pub(crate) fn commit<R>(&self, f: impl FnOnce(&mut Transaction<'_>) -> Result<R>) -> Result<Committed<R>> {
        let guard = self.lock()?;
        self.control.check_health()?;
        self.control.check_words()?;
        debug_assert!(!self.is_view, "a view takes no appends");
        if self.control.writer.defined.load(Ordering::Relaxed) != self.catalog_version.load(Ordering::Relaxed) {
            self.refresh_catalog()?;
        }
        let mut transaction = Transaction::begin(self)?;
        let value = f(&mut transaction)?;
        let Finished { start, end, work } = transaction.finish()?;
        drop(guard);
        self.wake_sleepers(start, end, work);
        self.nudge_preparer(start, end);
        Ok(Committed { value, end: Position(end) })
    }
}

/// A batch in the making; see [`crate::Journal::commit`].
pub struct Transaction<'j> {
    pub(super) inner: &'j Inner,
    pub(super) number: u64,
    /// The batch's bytes from `start` on, if they are to be written through the file.
    staging: Option<MutexGuard<'j, Vec<u8>>>,
    /// The committed tail.
    tail: u64,
    /// Where the batch starts: the tail, or the first entry of the next segment.
    start: u64,
    /// Where the next entry goes.
    at: u64,
    /// The staged entry that has no checksum yet.
    open: Option<u64>,
    /// The position of the newest staged entry that can be the head of compact entries after it; 0 if there is none.
    head: u64,
    first_prev: u32,
    prev: u32,
    pub(super) sequence: u64,
    first_sequence: u64,
    pub(super) hlc: Hlc,
    wall_us: u64,
    pub(super) catalog: Option<Arc<Catalog>>,
    last_define: u64,
    defines: bool,
    /// Whether it holds anything but records.
    work: bool,
    upkeep: Upkeep,
    committed: bool,
    /// Logs that it makes.
    pub(super) created: Vec<Log>,
    /// Logs and functions that go with it.
    removed: Vec<Subject>,
    /// Bytes from `start` on that were written through the file.
    written: u64,
}

impl<'j> Transaction<'j> {
    #[inline]
    fn begin(inner: &'j Inner) -> Result<Self> {
        let last = inner.control.writer.last.load(Ordering::Relaxed);
        let ((header, tail), wall_us) = (inner.last_entry(last)?, inner.medium.wall_us());
        // Two words say where the journal ends: a flipped bit in either must not be built upon.
        if tail != inner.tail() {
            return Err(inner.control.contradicted());
        }
        Ok(Self {
            inner,
            number: inner.transactions.fetch_add(1, Ordering::Relaxed) + 1,
            staging: inner.segments.through.then(|| {
                let mut staging = inner.staging.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                staging.clear();
                staging
            }),
            tail,
            start: tail,
            at: tail,
            open: None,
            head: 0,
            first_prev: header.crc,
            prev: header.crc,
            sequence: header.sequence + 1,
            first_sequence: header.sequence + 1,
            hlc: followed(inner.newest_clock(), Hlc::from_bits(header.hlc), wall_us),
            wall_us,
            catalog: None,
            last_define: inner.control.writer.defined.load(Ordering::Relaxed),
            defines: false,
            work: false,
            upkeep: Upkeep::None,
            committed: false,
            created: Vec::new(),
            removed: Vec::new(),
            written: 0,
        })
    }

    /// Logs and functions as of now, including what this batch has defined.
    pub fn catalog(&mut self) -> &Arc<Catalog> {
        self.catalog.get_or_insert_with(|| self.inner.cached_catalog())
    }

    /// [`Catalog::version`] as of the start of this batch; costs nothing.
    pub fn catalog_version(&self) -> u64 {
        self.inner.catalog_version.load(Ordering::Relaxed)
    }

    /// The end of the committed journal, where this batch will follow.
    pub fn tail(&self) -> Position {
        Position(self.tail)
    }

    /// Orders the events of this batch, and all later ones, after a timestamp of another clock. One that is
    /// far ahead of this machine's clock is ignored: it would date all later events wrongly.
    pub fn observe(&mut self, clock: Hlc) {
        if !is_ahead(clock, self.wall_us) {
            self.hlc = self.hlc.max(clock);
        }
    }

    /// Stages a record that a run leaves, or that came from outside if there is no cause.
    #[inline]
    pub fn append(&mut self, log: &Log, payload: &[u8], cause: EventId, ordinal: u16) -> Result<Appended> {
        self.append_flagged(log, payload, cause, ordinal, 0)
    }

    /// Stages a record whose cause is only what its client claims.
    #[inline]
    pub fn append_claimed(&mut self, log: &Log, payload: &[u8], cause: EventId, ordinal: u16) -> Result<Appended> {
        self.append_flagged(log, payload, cause, ordinal, FLAG_CLAIMED)
    }

    #[inline]
    fn append_flagged(
        &mut self,
        log: &Log,
        payload: &[u8],
        cause: EventId,
        ordinal: u16,
        flags: u8,
    ) -> Result<Appended> {
        log.check_exists()?;
        if !log.is_of(&self.inner.control) {
            let own = self.own_log(log)?;
            return self.append_flagged(&own, payload, cause, ordinal, flags);
        }
        if log.table().is_some() {
            return Err(
                Code::LogIsTable.error(format!("a record without a key for log '{}', which is a table", log.name()))
            );
        }
        let seqno = self.next_of(log, payload.len())?;
        let id = self.stage(
            Header { kind: Kind::Append as u8, flags, subject: log.id(), seqno, ordinal, ..Header::default() },
            cause,
            &[payload],
        )?;
        Ok(Appended { seqno, id })
    }

    /// The seqno of the next record of this log, which this journal handed out, if a record of this many bytes can be in it.
    #[inline]
    pub(super) fn next_of(&mut self, log: &Log, bytes: usize) -> Result<u64> {
        if self.defines && self.catalog().log_by_id(log.id()).is_none() {
            return Err(Code::LogNotFound.error(format!("log '{}' was removed by this batch", log.name())));
        }
        let bytes_max = RECORD_MAX_BYTES.min(self.inner.segments.bytes() / 4);
        if bytes as u64 > bytes_max {
            return Err(Code::RecordTooLong
                .error(format!("a record of {bytes} bytes for log '{}'; the limit is {bytes_max}", log.name())));
        }
        log.next_seqno(self.number)
    }

    /// The handle of this journal for a log that another one of the same namespace handed out.
    #[cold]
    pub(super) fn own_log(&mut self, log: &Log) -> Result<Log> {
        let own = self.catalog().log_by_id(log.id()).filter(|own| own.name() == log.name()).cloned();
        own.ok_or_else(|| Code::LogNotFound.error(format!("log '{}' does not belong to this namespace", log.name())))
    }

    /// Stages a new function, or new attributes for the one of that name.
    pub fn define_function(&mut self, name: &Name, attributes: &str) -> Result<Function> {
        let known = self.catalog().function(name).map(|function| (function.id(), function.as_before()));
        let (of, before) = known.unzip();
        let revision = before.as_ref().map_or(0, |before| before.revision).saturating_add(1);
        let (id, index) = match of {
            Some(id) => (id, None),
            None => {
                let id = self.catalog().next_id();
                (id, Some(self.create_index(id, Role::Function)?))
            }
        };
        let definition = Definition::of_function(id, name, attributes, revision, before);
        self.define(id, &definition)?;
        let position = self.open.expect("a definition was staged");
        let (inner, catalog) = (self.inner, Arc::make_mut(self.catalog.as_mut().expect("just read")));
        match index {
            Some(index) => catalog.insert_function(Function::new(id, name.clone(), attributes.into(), revision, index)),
            None => catalog.apply(&definition, position, &inner.indexes(false))?,
        }
        Ok(catalog.function_by_id(id).expect("just defined").clone())
    }

    /// Stages the removal of a function; its pending runs stay pending until they are ended.
    pub fn remove_function(&mut self, name: &Name) -> Result<()> {
        let known = self.catalog().function(name).map(|function| (function.id(), function.as_before()));
        let (id, before) = known.ok_or_else(|| Code::FunctionNotFound.error(format!("no function '{name}'")))?;
        self.define(id, &Definition::RemoveFunction { id, before: Some(before) })
    }

    /// Runs of the function that have not ended, including what this batch triggers and ends.
    pub fn pending(&mut self, function: u32) -> u64 {
        let number = self.number;
        self.catalog().function_by_id(function).map_or(0, |function| function.pending_in(number))
    }

    /// Stages the copy of an entry whose segment is to go.
    pub(crate) fn carry(&mut self, entry: &Entry) -> Result<EventId> {
        self.carry_as(entry, false)
    }

    /// The same; `superseded` if it is a record of a table that is not the value of its key any more.
    pub(crate) fn carry_as(&mut self, entry: &Entry, superseded: bool) -> Result<EventId> {
        self.inner.make_place(entry.kind, entry.subject, entry.seqno)?;
        // What the key has since a repair, a record of its own says.
        let superseded = superseded || entry.shadow && entry.row().is_some();
        let extension = carried_extension(entry.id, entry.written.0, &entry.extension, superseded);
        let (kind, flags) =
            (entry.kind as u8, entry.flags & !(FLAG_LAST | FLAG_COMPACT | FLAG_SHADOW) | FLAG_CARRIED | FLAG_EXTENDED);
        let (subject, seqno, ordinal) = (entry.subject, entry.seqno, entry.ordinal);
        let header = Header { kind, flags, subject, seqno, ordinal, hlc: entry.hlc.get(), ..Header::default() };
        self.stage(header, entry.cause, &[&extension, &entry.payload])
    }

    /// Stages the note that the journal was opened under a new epoch.
    pub(crate) fn opened(&mut self, payload: &[u8]) -> Result<EventId> {
        self.stage(Header { kind: Kind::Open as u8, ..Header::default() }, EventId::NONE, &[payload])
    }

    /// Stages the note of how far the journal is durable.
    pub(crate) fn mark(&mut self, durable: u64) -> Result<()> {
        self.stage(Header { kind: Kind::Mark as u8, seqno: durable, ..Header::default() }, EventId::NONE, &[])?;
        Ok(())
    }

    /// Stages a part of a CATALOG and returns its position; `follow` more parts follow.
    pub(crate) fn catalog_part(&mut self, follow: u16, first: Position, payload: &[u8]) -> Result<Position> {
        let header = Header { kind: Kind::Catalog as u8, ordinal: follow, seqno: first.0, ..Header::default() };
        self.stage(header, EventId::NONE, &[payload])?;
        Ok(Position(self.open.expect("a part was staged")))
    }

    /// Stages a pin, or another state of one.
    pub(crate) fn define_pin(&mut self, pin: &Pin) -> Result<Pin> {
        self.define_only(pin.id, &pin.definition())?;
        Ok(pin.clone())
    }

    /// Stages the end of a pin.
    pub(crate) fn remove_pin(&mut self, id: u32) -> Result<()> {
        self.define_only(id, &Definition::RemovePin { id })
    }

    /// Stages a definition of what has no index.
    pub(super) fn define_only(&mut self, id: u32, definition: &Definition) -> Result<()> {
        self.define(id, definition)?;
        let inner = self.inner;
        let catalog = Arc::make_mut(self.catalog.get_or_insert_with(|| inner.cached_catalog()));
        catalog.apply(definition, self.last_define, &inner.indexes(false))
    }

    pub(super) fn function(&mut self, id: u32) -> Result<Function> {
        let function = self.catalog().function_by_id(id).cloned();
        function.ok_or_else(|| Code::FunctionNotFound.error(format!("no function with id {id}")))
    }

    pub(super) fn create_index(&self, id: u32, role: Role) -> Result<Index> {
        Index::create(self.inner.arena.clone(), id, role).map_err(|error| io_error(arena::NAME, &error))
    }

    pub(super) fn define(&mut self, id: u32, definition: &Definition) -> Result<()> {
        self.defines = true;
        self.upkeep = self.upkeep.max(Upkeep::of_definition(definition));
        let header = Header { kind: Kind::Define as u8, subject: id, ..Header::default() };
        self.stage(header, EventId::NONE, &[&definition.encode()])?;
        self.last_define = self.open.expect("a definition was staged");
        if matches!(definition, Definition::RemoveLog { .. } | Definition::RemoveFunction { .. }) {
            let inner = self.inner;
            let catalog = Arc::make_mut(self.catalog.get_or_insert_with(|| inner.cached_catalog()));
            self.removed.extend(catalog.subject(id).cloned());
            catalog.apply(definition, self.last_define, &inner.indexes(false))?;
        }
        Ok(())
    }

    /// Writes an entry behind the ones staged so far.
    #[inline]
    pub(super) fn stage(&mut self, mut header: Header, cause: EventId, payload: &[&[u8]]) -> Result<EventId> {
        let hlc = self.hlc.next(self.wall_us);
        header.sequence = self.sequence;
        header.epoch = self.inner.epoch;
        header.cause = [cause.get() as u64, (cause.get() >> 64) as u64];
        if header.flags & FLAG_CARRIED == 0 {
            header.hlc = hlc.get();
        }
        self.upkeep = self.upkeep.max(Upkeep::of(&header));
        let payload_bytes = payload.iter().map(|part| part.len() as u64).sum::<u64>();
        let short = if self.head == 0 { None } else { self.short(&header, payload_bytes)? };
        let header_bytes = short.as_ref().map_or(HEADER_BYTES, |short| short.bytes().len() as u64);
        let length = header_bytes + payload_bytes;
        self.make_room(span(length))?;
        if self.sequence.is_multiple_of(SEQUENCE_STEP) {
            self.inner.make_sequence_place(self.sequence)?;
        }
        self.seal(0)?;
        if header.kind == Kind::Define as u8 {
            header.seqno = self.last_define; // Only now: making room may have moved the one before.
        }
        self.work |= ![Kind::Append as u8, Kind::Mark as u8, Kind::Catalog as u8].contains(&header.kind);
        self.hlc = hlc;
        header.length = length as u32;
        match &short {
            Some(short) => self.put(short.bytes(), payload, length)?,
            None => {
                self.put(&header.encode(), payload, length)?;
                if compact::is_plain(&header) {
                    self.head = self.at;
                }
            }
        }
        self.open = Some(self.at);
        self.at += span(length);
        self.sequence += 1;
        Ok(header.id(self.inner.namespace))
    }

    /// The short header of an entry behind the head, if it may have one.
    fn short(&mut self, header: &Header, payload_bytes: u64) -> Result<Option<Short>> {
        let (own, back) = (self.inner.namespace, self.at - self.head);
        let head = Header::of(self.staged(self.head)?);
        Ok(Short::new(header, &head, back, payload_bytes, own))
    }

    /// Puts the bytes of an entry where it is to stand.
    #[inline(always)]
    fn put(&mut self, header: &[u8], payload: &[&[u8]], length: u64) -> Result<()> {
        if let Some(staging) = &mut self.staging {
            staging.extend_from_slice(header);
            payload.iter().for_each(|part| staging.extend_from_slice(part));
            staging.resize((self.at + span(length) - self.start) as usize, 0);
            return Ok(());
        }
        let address = self.inner.segments.address(self.at)?;
        // SAFETY: `make_room` made sure that the entry lies within its segment and has storage; the lock is held,
        // and nobody reads behind the tail.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), address, header.len());
            let mut to = address.add(header.len());
            for part in payload {
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
        prefetch(address.wrapping_add(span(length) as usize), length.min(PREFETCH_BYTES) as usize);
        Ok(())
    }

    /// Gives the open entry its place in the chain and its checksum.
    #[inline]
    fn seal(&mut self, flags: u8) -> Result<()> {
        if let Some(position) = self.open.take() {
            self.seal_entry(position, flags)?;
        }
        Ok(())
    }

    /// The bytes of the staged entry at a position.
    #[inline]
    fn staged(&mut self, position: u64) -> Result<&mut [u8]> {
        if let Some(staging) = &mut self.staging {
            let entry = &mut staging[(position - self.start) as usize..];
            let length = compact::length(entry);
            return Ok(&mut entry[..length]);
        }
        let segments = &self.inner.segments;
        let (room, address) = (segments.room(position) as usize, segments.address(position)?);
        // SAFETY: these bytes are of the segment, behind the tail, and the lock is held: nobody else has them in use.
        let rest = unsafe { std::slice::from_raw_parts_mut(address, room) };
        let length = compact::length(rest);
        Ok(&mut rest[..length])
    }

    /// Completes a staged entry: its link to the previous one, its flags, its checksum.
    #[inline]
    fn seal_entry(&mut self, position: u64, flags: u8) -> Result<()> {
        let (prev, salt) = (self.prev, self.inner.segments.salt);
        let mut head = compact::Covered::default();
        let mut bytes = self.staged(position)?;
        let form = Form::of(bytes);
        if let Some(form) = form {
            head = compact::covered_bytes(self.staged(position - form.back())?);
            bytes = self.staged(position)?;
        }
        bytes[8..12].copy_from_slice(&prev.to_le_bytes());
        bytes[13] = (bytes[13] & !FLAG_LAST) | flags;
        if is_sealed(bytes[12]) {
            let seqno = u64::from_le_bytes(bytes[56..64].try_into().expect("8 bytes"));
            bytes[32..40].copy_from_slice(&salt.seal(position, seqno).to_le_bytes());
        }
        let crc = match form {
            Some(_) => salt.checksum_behind(&head, position, &bytes[4..]),
            None => salt.checksum(position, &bytes[4..]),
        };
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        self.prev = crc;
        Ok(())
    }

    /// Makes sure that an entry of `bytes` fits at `self.at`.
    #[inline]
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        let segments = &self.inner.segments;
        // `at` may be the very end of a segment, which is the start of the next: its room counts as none.
        let room = segments.start(segments.number(self.start)) + segments.bytes() - self.at;
        if self.at - self.start + bytes > segments.bytes() / 2 {
            return Err(self.too_large(bytes));
        }
        // Readers look for no entry where less than a full header is left or has storage.
        let needed = bytes.max(HEADER_BYTES);
        if needed > room || self.start.is_multiple_of(segments.bytes()) {
            self.move_to_next_segment(bytes)?;
        }
        self.ensure_ready(self.at + needed)?;
        if self.staging.is_none() {
            segments.check_readable(self.at, bytes).inspect_err(|error| self.inner.note_refusal(self.at, error))?;
        }
        self.inner.control.writer.intent.store(self.at + bytes, Ordering::Relaxed);
        compiler_fence(Ordering::Release); // Known before the first byte is there, should this process die in between.
        Ok(())
    }

    /// Makes sure that there is storage up to `end`, or notes that the disk gives none.
    #[inline]
    fn ensure_ready(&self, end: u64) -> Result<()> {
        self.inner.ensure_room(self.upkeep, end)
    }

    #[cold]
    fn too_large(&self, bytes: u64) -> Error {
        let (batch_bytes, segment_bytes) = (self.at - self.start + bytes, self.inner.segments.bytes());
        Code::BatchTooLarge.error(format!("a batch of {batch_bytes} bytes or more in segments of {segment_bytes}"))
    }

    /// Moves the whole batch to the start of the next segment. Its entries get new checksums: those depend on the place.
    #[cold]
    fn move_to_next_segment(&mut self, bytes: u64) -> Result<()> {
        let inner = self.inner;
        let segments = &inner.segments;
        let staged = self.at - self.start;
        let number = segments.number(self.tail - 1) + 1;
        let start = segments.first_entry(number);
        self.ensure_ready(start + staged + bytes)?;
        inner.control.writer.intent.store(start + staged + bytes, Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        let header = SegmentHeader {
            namespace: inner.namespace.get(),
            number,
            base_sequence: self.first_sequence,
            prev: self.first_prev,
            epoch: inner.epoch,
            salt: segments.salt,
        };
        // Leftovers after a failure do no harm: the next batch that moves there writes them again.
        segments
            .write(segments.start(number), &header.encode())
            .inspect_err(|error| inner.note_refusal(self.at, error))?;
        if self.staging.is_none() && staged > 0 {
            segments.check_readable(start, staged)?;
            let (from, to) = (segments.address(self.start)?, segments.address(start)?);
            // SAFETY: both ranges have storage and are behind the tail; a batch is at most half a segment.
            unsafe { std::ptr::copy_nonoverlapping(from, to, staged as usize) };
        }
        // The bytes after the tail in the old segment must not look like an entry to a scan: neither the previous content of a recycled
        // segment, nor entries of this batch. It may be a hole; then there is nothing to clear.
        if segments.offset(self.tail) != 0 && segments.room(self.tail) >= HEADER_BYTES && self.start == self.tail {
            segments.scrub(self.tail, self.tail + staged.max(HEADER_BYTES))?;
        }
        let old = std::mem::replace(&mut self.start, start);
        self.at = start + staged;
        self.reseal(old, staged)
    }

    /// Seals the staged entries again after their move from `old`; the open one stays open.
    fn reseal(&mut self, old: u64, staged: u64) -> Result<()> {
        let start = self.start;
        let moved =
            |position: u64| if (old..old + staged).contains(&position) { position - old + start } else { position };
        self.open = self.open.map(moved);
        self.head = moved(self.head);
        self.last_define = moved(self.last_define);
        self.prev = self.first_prev;
        let mut position = start;
        while position < start + staged {
            let bytes = self.staged(position)?;
            if bytes[12] == Kind::Define as u8 {
                let before = u64::from_le_bytes(bytes[56..64].try_into().expect("8 bytes"));
                bytes[56..64].copy_from_slice(&moved(before).to_le_bytes());
            }
            let length = bytes.len() as u64;
            if self.open != Some(position) {
                self.seal_entry(position, 0)?;
            }
            position += span(length);
        }
        Ok(())
    }

    /// Commits the batch.
    #[inline]
    fn finish(mut self) -> Result<Finished> {
        let Some(last) = self.open else {
            self.committed = true;
            return Ok(Finished { start: self.tail, end: self.tail, work: false });
        };
        self.seal(FLAG_LAST)?;
        let inner = self.inner;
        if let Some(staging) = &self.staging
            && let Err(error) = inner.segments.write_counted(self.start, staging, &mut self.written)
        {
            return Err(self.refused(error));
        }
        let writer = &inner.control.writer;
        // Not the clock of this batch, if one in the journal is far ahead of it.
        writer.hlc.fetch_max(self.hlc.get(), Ordering::Relaxed);
        writer.last.store(last, Ordering::Release);
        self.committed = true;
        // From here on the batch is committed: what fails now is put right by the next lock owner.
        if self.defines {
            let catalog = self.catalog.take().expect("definitions go through the catalog");
            inner.set_catalog(catalog, self.last_define);
        }
        inner.apply_batch(self.start, self.at)?;
        writer.applied.store(self.at, Ordering::Relaxed);
        writer.intent.store(0, Ordering::Relaxed);
        inner.publish(self.at);
        inner.control.seal_words();
        self.removed.iter().for_each(Subject::remove);
        Ok(Finished { start: self.start, end: self.at, work: self.work })
    }

    /// The disk did not take the batch: what it has of it is cleared, now or before anything else is done.
    #[cold]
    fn refused(mut self, error: Error) -> Error {
        let inner = self.inner;
        inner.note_refusal(self.at, &error);
        self.committed = true; // Nothing is left to be undone when it is dropped.
        // Until it is cleared, the next owner of the lock must not take it for a batch whose writer died.
        inner.control.writer.refused.store(self.start, Ordering::SeqCst);
        match inner.clear_refused(self.start + self.written) {
            Ok(()) => error,
            Err(_) => Code::AppendUncertain.error(error.detail()),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // The closure failed or panicked: nothing of the batch may be taken for an entry.
        let inner = self.inner;
        inner.note_refusal_of_indexes(self.tail);
        // Nor may a handle be used that it gave out: the next log gets the same id.
        self.created.iter().for_each(Log::mark_removed);
        if self.staging.is_some() {
            inner.control.writer.intent.store(0, Ordering::Relaxed); // None of it was written.
            return;
        }
        let cleared = if self.at > self.start { inner.segments.clear(self.start, self.at) } else { Ok(()) };
        if cleared.is_ok() {
            inner.control.writer.intent.store(0, Ordering::Relaxed);
        } else {
            inner.control.writer.poison.store(POISON_COMMIT, Ordering::SeqCst);
        }
    }
}
