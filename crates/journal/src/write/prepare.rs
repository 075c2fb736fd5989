//! Room ahead: storage for entries that are still to come.
//!
//! A range is filled with zeros through the file, once, before anybody writes there through the mapping: so a full disk is
//! an error and never a fault, a flush needs no allocation, and it is the same whether the pages are new or recycled.
//! Whoever prepares holds `prepare_lock`; `ready` moves only after the storage is there, so a preparer's death costs
//! nothing but doing it again. With a background thread, appends find room made before they need it.

use super::lock::Lock;
use crate::{
    entry::HEADER_BYTES,
    journal::Inner,
    medium::NotFlushed,
    store::segments::{self, FOLDER, SEGMENT_HEADER_BYTES, SEGMENTS_MAX, SPARES_MAX, io_error},
};
use millrace_wire::{Code, Durability, Error, Result};
use std::{
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Storage is made at least this much at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// The background thread keeps this much ahead of the tail, or a quarter of a segment if that is less.
const AHEAD_BYTES: u64 = 16 << 20;
/// How often it looks, if nobody wakes it.
const LOOK: Duration = Duration::from_millis(200);

/// A recycled segment that waits for its next number.
pub(crate) fn spare_name(n: u64) -> String {
    format!("{FOLDER}/spare-{n}")
}

impl Inner {
    pub(crate) fn prepare_lock(&self) -> Lock<'_> {
        Lock { word: &self.control.writer.prepare_lock, medium: &*self.medium, mark: self.mark, control: &self.control }
    }

    /// Makes sure that there is storage up to `end`.
    #[inline]
    pub(crate) fn ensure_ready(&self, end: u64) -> Result<()> {
        if end <= self.control.upkeep.ready.load(Ordering::Acquire) { Ok(()) } else { self.extend_ready(end) }
    }

    #[cold]
    pub(crate) fn extend_ready(&self, end: u64) -> Result<()> {
        let lock = self.prepare_lock();
        lock.acquire(); // From a dead preparer or not: `ready` tells all there is to know.
        let result = loop {
            let ready = self.control.upkeep.ready.load(Ordering::Acquire);
            if ready >= end {
                break Ok(());
            }
            if let Err(error) = self.extend_once(ready, end) {
                break Err(error);
            }
        };
        lock.release();
        result
    }

    /// Whether room gets its blocks by a flush of its own, so that a flush of entries finds nothing to do but to write them.
    /// Only the background thread does that, and without a lock: a slow disk must not hold up who needs the room.
    fn flushes_room(&self) -> bool {
        self.flushed_lately.swap(false, Ordering::Relaxed) || self.settings.durability == Durability::Disk
    }

    /// Prepares the next piece after `ready`, at most to the end of one segment. The caller holds `prepare_lock`.
    fn extend_once(&self, ready: u64, end: u64) -> Result<()> {
        let segments = &self.segments;
        // Also the end of a segment that the next batch skips: the one after that may fit there.
        let number = segments.number(ready);
        let start = segments.start(number);
        if number - segments.number(self.control.upkeep.first.load(Ordering::Acquire)) >= SEGMENTS_MAX {
            return Err(Code::JournalFull.error(format!("{SEGMENTS_MAX} segments are in use")));
        }
        let from = ready;
        // A file that a dead preparer left may be mapped by others already: it must not be replaced under them.
        if from == start && !segments.exists(number) && self.recycle(number)? {
            self.control.upkeep.ready.store(start + segments.bytes(), Ordering::Release);
            return Ok(());
        }
        let region = segments.map(number, true)?;
        let to = (start + segments.bytes()).min(end.max(from + CHUNK_BYTES).next_multiple_of(CHUNK_BYTES));
        self.medium
            .allocate(&region, from - start, to - start)
            .map_err(|error| io_error(segments::name(number), &error))?;
        if from == start {
            self.flushed(FOLDER, self.medium.flush_names(FOLDER))?;
        }
        if !self.flushed_lately.load(Ordering::Relaxed) && self.settings.durability != Durability::Disk {
            // Pages made present are dirty pages: worth it only if nobody flushes them one by one.
            self.medium.prefault(&region, from - start, to - start);
            // Only if nothing before it is missing; then the background thread need not do it again.
            let _ = self.present.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.control.upkeep.ready.store(to, Ordering::Release);
        Ok(())
    }

    /// Gives a spare segment, if there is one, this number.
    fn recycle(&self, number: u64) -> Result<bool> {
        let failed = |error: std::io::Error| io_error(segments::name(number), &error);
        for n in 0..SPARES_MAX {
            let spare = spare_name(n);
            if self.medium.identify(&spare).is_ok_and(|(_, bytes)| bytes == self.segments.bytes()) {
                self.medium.rename(&spare, &segments::name(number)).map_err(failed)?;
                self.flushed(FOLDER, self.medium.flush_names(FOLDER))?;
                // Its end may have been skipped, and a crash may have taken what storage that had.
                let region = self.segments.map(number, false)?;
                self.medium.reserve(&region).map_err(failed)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes that the disk refuses what an append needs, until it does not any more.
    #[cold]
    pub(crate) fn note_refusal(&self, needed: u64, error: &Error) {
        if error.code() != Code::FlushFailed {
            *self.refusal() = Some((needed, error.clone()));
            self.refuses.store(true, Ordering::Release);
            // Told through memory: a full disk may not take a file that says so.
            self.control.set_refusing(self.slot, Some(error.code()));
        }
    }

    pub(crate) fn refusal(&self) -> MutexGuard<'_, Option<(u64, Error)>> {
        self.refusal.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Tries again what the disk refused: with nobody appending, nobody else would learn that it is over.
    fn look_after_refusal(&self) {
        if !self.refuses.load(Ordering::Acquire) {
            return;
        }
        let Some(needed) = self.refusal().as_ref().map(|(needed, _)| *needed) else { return };
        let tried = || -> Result<()> {
            let _guard = self.lock()?; // Clears what was left of a batch that was refused.
            self.extend_ready(needed)?;
            let tail = self.control.published.tail.load(Ordering::Acquire);
            let segments = &self.segments;
            if segments.offset(tail) != 0 && tail + HEADER_BYTES <= self.control.upkeep.ready.load(Ordering::Acquire) {
                // Behind everything committed stands nothing; so it may say so once more.
                segments.clear(tail, tail + HEADER_BYTES)?;
            }
            Ok(())
        };
        match tried() {
            Ok(()) => {
                *self.refusal() = None;
                self.refuses.store(false, Ordering::Release);
                self.control.set_refusing(self.slot, None);
            }
            Err(error) => self.note_refusal(needed, &error),
        }
    }

    /// How far ahead of the tail there should be storage.
    fn ahead_bytes(&self) -> u64 {
        AHEAD_BYTES.min(self.segments.bytes() / 4)
    }

    /// Less room than this is short. Where room is flushed it is made piece by piece as it is used, for whoever flushes entries
    /// waits for the pieces that are on their way to the disk; elsewhere many pieces at a time cost fewer wake-ups.
    fn short_bytes(&self) -> u64 {
        let ahead = self.ahead_bytes();
        if self.segments.through { ahead - ahead / 16 } else { ahead / 2 }
    }

    /// Wakes the background thread if room ahead gets short.
    #[inline]
    pub(crate) fn nudge_preparer(&self, tail: u64) {
        let ready = self.control.upkeep.ready.load(Ordering::Relaxed);
        let usable = if self.segments.through { ready } else { ready.min(self.present.load(Ordering::Relaxed)) };
        if usable.saturating_sub(tail) < self.short_bytes()
            && self.grows(tail)
            && let Some(thread) = self.preparer.get()
            && !self.nudged.load(Ordering::Relaxed)
            && !self.nudged.swap(true, Ordering::Relaxed)
        {
            thread.unpark();
        }
    }

    /// One step of the background thread; false if there was nothing to do.
    fn prepare_ahead(&self) -> bool {
        let tail = self.control.published.tail.load(Ordering::Acquire);
        let ready = self.control.upkeep.ready.load(Ordering::Acquire);
        // Nothing is prepared for a journal that does not grow: a namespace at rest stays small.
        if tail + self.ahead_bytes() <= ready || !self.grows(tail) {
            return false;
        }
        let segments = &self.segments;
        let next = ready + CHUNK_BYTES.min(segments.bytes() / 4);
        let next = if segments.offset(ready) == 0 { next.max(ready + SEGMENT_HEADER_BYTES) } else { next };
        let boundary = segments.start(segments.number(ready)) + segments.bytes();
        let next = if segments.offset(ready) != 0 { next.min(boundary) } else { next };
        // A full disk shows at the append that needs the room; here there is nobody to tell.
        if self.extend_ready(next).is_err() {
            return false;
        }
        if self.flushes_room() {
            let name = segments::name(segments.number(next - 1));
            match self.medium.flush_beside(&name) {
                // Retention was faster, or there are no files to be had: whoever flushes the entries there flushes their room.
                Err(NotFlushed::Unopened(_)) => {}
                // A failure closes the journal: those who wait hear of it there.
                result => drop(self.flushed(&name, result)),
            }
        }
        true
    }

    /// Makes the next pages ahead of the tail present and writable in this process; false if there was nothing to do.
    ///
    /// Storage is everybody's, page tables are not: without this, a process pays a fault for every page of room that
    /// another made, of a recycled segment, and of what a flush write-protected meanwhile. `durable` shows the flushes.
    fn touch_ahead(&self, durable_seen: &mut u64) -> bool {
        let tail = self.control.published.tail.load(Ordering::Acquire);
        if self.segments.through || !self.grows(tail) {
            return false;
        }
        let durable = self.control.upkeep.durable.load(Ordering::Acquire);
        let flushed = std::mem::replace(durable_seen, durable) != durable;
        let present = if flushed { tail } else { self.present.load(Ordering::Relaxed).max(tail) };
        let ready = self.control.upkeep.ready.load(Ordering::Acquire);
        let limit = ready.min(tail + self.ahead_bytes());
        let segments = &self.segments;
        let piece = CHUNK_BYTES.min(self.ahead_bytes() / 4);
        // By whole pieces only: a tail that moves on must not keep this busy page by page.
        let is_short = present + piece > limit;
        let start = segments.start(segments.number(present));
        let end = (present + piece).min(start + segments.bytes());
        if !is_short && let Ok(region) = segments.map(segments.number(present), false) {
            self.medium.prefault(&region, present - start, end - start);
            self.present.store(end, Ordering::Relaxed);
            return true;
        }
        self.present.store(present, Ordering::Relaxed);
        false
    }

    /// Whether the tail moved by a chunk since it was opened: short-lived processes prepare nothing.
    fn grows(&self, tail: u64) -> bool {
        tail.saturating_sub(self.opened_at) >= CHUNK_BYTES / 4
    }
}

/// The thread that makes room ahead. It must end before its process gives its slot back: whoever sees the slot free takes
/// its locks for those of a dead process.
pub(crate) struct Preparer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    pub fn start(inner: &Arc<Inner>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (inner_there, stop_there) = (inner.clone(), stop.clone());
        let run = move || {
            let mut durable_seen = 0;
            while !stop_there.load(Ordering::Relaxed) {
                inner_there.nudged.store(false, Ordering::Relaxed);
                inner_there.look_after_refusal();
                if !inner_there.touch_ahead(&mut durable_seen) && !inner_there.prepare_ahead() {
                    thread::park_timeout(LOOK);
                }
            }
        };
        let thread = millrace_threads::spawn(thread::Builder::new().name("millrace-room".into()), run)
            .map_err(|error| Code::Io.error(format!("starting a thread: {error}")))?;
        // Only set here, once per journal.
        let _ = inner.preparer.set(thread.thread().clone());
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It panicked or it did not; either way it holds nothing any more.
            let _ = thread.join();
        }
    }
}
