//! Prepared space: storage for future entries.
//!
//! A new file gets blocks, and zeros through the file, before an entry is written there: so a full disk is an error and never a fault, and
//! a flush needs no allocation. A recycled segment has both, and is used as it is. Preparing needs `prepare_lock`; `ready` moves only after
//! the storage exists, so if the preparing process dies, the work is only repeated. With a background thread, the space is prepared before
//! appends need it.

use super::lock::Lock;
use crate::{
    entry::HEADER_BYTES,
    journal::Inner,
    medium::NotFlushed,
    store::{
        arena,
        segments::{self, FOLDER, SEGMENTS_MAX, SPARES_MAX, io_error},
    },
};
use millrace_wire::{Code, Error, Result};
use std::{
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Storage is allocated in steps of at least this size.
const CHUNK_BYTES: u64 = 1 << 20;
/// Where entries are written through the file, the background thread keeps this much ahead of the tail, or a quarter of a
/// segment if that is less: it is written and flushed piece by piece, for flushes of entries wait for what is on its way to the disk.
const AHEAD_BYTES: u64 = 16 << 20;
/// Where they are written through the mapping, this number of segments is prepared ahead.
const SEGMENTS_AHEAD: u64 = 2;
/// The number if they are recycled: recycled segments use no additional disk space.
const RECYCLED_AHEAD: u64 = 4;
/// Pages are populated in steps of this many bytes.
const TOUCH_BYTES: u64 = 256 << 10;
/// The background thread looks again when the journal has grown by this.
const NUDGE_BYTES: u64 = 256 << 10;
/// How often the thread checks without a wake-up, while other processes append or the disk refuses requests.
const LOOK: Duration = Duration::from_millis(200);
/// How often it looks at a journal at rest: each look at one takes twice as long as the previous one, up to this.
const LOOK_IDLE: Duration = Duration::from_secs(10);

/// A recycled segment that waits for its next number.
pub(crate) fn spare_name(n: u64) -> String {
    format!("{FOLDER}/spare-{n}")
}

impl Inner {
    pub(crate) fn prepare_lock(&self) -> Lock<'_> {
        Lock { word: &self.control.writer.prepare_lock, medium: &*self.medium, mark: self.mark }
    }

    /// Held while the manifest is replaced to drop segments: two processes must not replace it by different ones.
    pub(crate) fn retain_lock(&self) -> Lock<'_> {
        Lock { word: &self.control.writer.retain_lock, medium: &*self.medium, mark: self.mark }
    }

    /// Makes sure that there is storage up to `end`.
    #[inline]
    pub(crate) fn ensure_ready(&self, end: u64) -> Result<()> {
        if end <= self.control.upkeep.ready.load(Ordering::Acquire) { Ok(()) } else { self.extend_ready(end) }
    }

    /// The same for what frees space, which may use all that is left.
    #[inline]
    pub(crate) fn ensure_ready_to_free(&self, end: u64) -> Result<()> {
        if end <= self.control.upkeep.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.extend(end, false) {
            Err(error) if error.code() == Code::DiskFull && self.release_reserve() => self.extend(end, false),
            result => result,
        }
    }

    #[cold]
    pub(crate) fn extend_ready(&self, end: u64) -> Result<()> {
        self.extend(end, true)
    }

    #[cold]
    fn extend(&self, end: u64, keeps_reserve: bool) -> Result<()> {
        let lock = self.prepare_lock();
        lock.acquire(); // From a dead preparer or not: `ready` tells all there is to know.
        let result = self.extend_to(end, keeps_reserve);
        lock.release();
        result
    }

    /// The caller holds `prepare_lock`.
    fn extend_to(&self, end: u64, keeps_reserve: bool) -> Result<()> {
        loop {
            let ready = self.control.upkeep.ready.load(Ordering::Acquire);
            if ready >= end {
                return Ok(());
            }
            self.extend_once(ready, end, keeps_reserve)?;
        }
    }

    /// Prepares the next piece after `ready`, at most to the end of one segment. The caller holds `prepare_lock`.
    fn extend_once(&self, ready: u64, end: u64, keeps_reserve: bool) -> Result<()> {
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
        if from == start {
            self.keep_reserve();
        }
        let to = (start + segments.bytes()).min(end.max(from + CHUNK_BYTES).next_multiple_of(CHUNK_BYTES));
        if keeps_reserve {
            self.check_space(to - from)?;
        }
        let region = segments.map(number, true)?;
        if !segments.through {
            // Blocks that are had now need not be found while others wait for the file system.
            self.medium
                .reserve_range(&region, from - start, to - start)
                .map_err(|error| io_error(segments::name(number), &error))?;
        }
        // Zeros through the file, once in a file's life: a flush of entries finds nothing to do but to write them, and a fault finds
        // its page in the cache, where it would read ahead megabytes of nothing.
        self.medium
            .allocate(&region, from - start, to - start)
            .map_err(|error| io_error(segments::name(number), &error))?;
        if from == start {
            self.flushed(FOLDER, self.medium.flush_names(FOLDER))?;
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

    /// Records that the disk refuses the storage that an append needs, until it succeeds again.
    #[cold]
    pub(crate) fn note_refusal(&self, needed: u64, error: &Error) {
        if error.code() != Code::FlushFailed {
            *self.refusal() = Some((needed, error.clone()));
            // Recorded in shared memory, because a full disk may not accept a file.
            self.control.set_refusing(self.slot, Some(error.code()));
            if !self.refuses.swap(true, Ordering::AcqRel)
                && let Some(thread) = self.preparer.get()
            {
                thread.unpark(); // from now on it tries again
            }
        }
    }

    /// Records it if the disk has refused storage for the indexes: no append can succeed until there is some.
    pub(crate) fn note_refusal_of_indexes(&self, needed: u64) {
        if let Some(error) = self.arena.refusal() {
            self.note_refusal(needed, &io_error(arena::NAME, &error));
        }
    }

    pub(crate) fn refusal(&self) -> MutexGuard<'_, Option<(u64, Error)>> {
        self.refusal.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Repeats the refused request: without appends, nothing else would detect that the disk works again.
    fn look_after_refusal(&self) {
        if !self.refuses.load(Ordering::Acquire) {
            return;
        }
        let Some(needed) = self.refusal().as_ref().map(|(needed, _)| *needed) else { return };
        let tried = || -> Result<()> {
            let _guard = self.lock()?; // Clears what was left of a batch that was refused.
            self.extend_ready(needed)?;
            self.arena.ask_again().map_err(|error| io_error(arena::NAME, &error))?;
            let tail = self.control.published.tail.load(Ordering::Acquire);
            let segments = &self.segments;
            if segments.offset(tail) != 0 && tail + HEADER_BYTES <= self.control.upkeep.ready.load(Ordering::Acquire) {
                // There is nothing after the last committed entry, so zeros may be written there again.
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

    /// Takes over the refusal of a process that has ended: on a full disk, appends of the command line fail one by one, and only
    /// a process that stays can report it, and detect that it is over.
    fn adopt_refusal(&self) {
        let Some((slot, _)) = self.control.refusing() else { return };
        if self.refuses.load(Ordering::Acquire) || slot == self.slot || self.medium.is_alive(slot) {
            return;
        }
        let next = self.control.upkeep.ready.load(Ordering::Acquire) + 1;
        match self.extend_ready(next) {
            Ok(()) => self.control.set_refusing(slot, None),
            Err(error) => self.note_refusal(next, &error),
        }
    }

    /// How far ahead of the tail there should be room: as much as was appended since this process opened the namespace, so that a
    /// namespace at rest stays small, and a bounded amount at most.
    fn ahead_bytes(&self, tail: u64, segments: u64) -> u64 {
        let segment_bytes = self.segments.bytes();
        let most = if self.segments.through { AHEAD_BYTES.min(segment_bytes / 4) } else { segments * segment_bytes };
        tail.saturating_sub(self.opened_at).min(most)
    }

    /// Whether the next segment is there already, but for its name.
    fn has_spare(&self) -> bool {
        (0..SPARES_MAX)
            .any(|n| self.medium.identify(&spare_name(n)).is_ok_and(|(_, bytes)| bytes == self.segments.bytes()))
    }

    /// Wakes the background thread from time to time as the journal grows.
    #[inline]
    pub(crate) fn nudge_preparer(&self, start: u64, tail: u64) {
        if start / NUDGE_BYTES != tail / NUDGE_BYTES
            && let Some(thread) = self.preparer.get()
        {
            thread.unpark();
        }
    }

    /// One step of the background thread: makes the next piece of room; false if there is enough.
    fn prepare_ahead(&self) -> bool {
        let tail = self.control.published.tail.load(Ordering::Acquire);
        let ready = self.control.upkeep.ready.load(Ordering::Acquire);
        let piece = CHUNK_BYTES.min(self.segments.bytes() / 4);
        let segments = &self.segments;
        let is_far = |by: u64| tail + self.ahead_bytes(tail, by) <= ready;
        if is_far(SEGMENTS_AHEAD)
            && (segments.through || segments.offset(ready) != 0 || is_far(RECYCLED_AHEAD) || !self.has_spare())
        {
            return false;
        }
        let boundary = segments.start(segments.number(ready)) + segments.bytes();
        let next = (ready + piece).min(boundary);
        // The append that needs the storage reports a full disk; this thread has no caller.
        if self.extend_ready(next).is_err() {
            return false;
        }
        if segments.through {
            // Prepared space gets its blocks by a separate flush without a lock, so that a slow disk does not delay threads that need the space.
            let name = segments::name(segments.number(next - 1));
            match self.medium.flush_beside(&name) {
                // Retention was faster, or there are no free descriptors: the flush of the entries there also flushes their space.
                Err(NotFlushed::Unopened(_)) => {}
                // A failure closes the journal, which its waiters report.
                result => drop(self.flushed(&name, result)),
            }
        }
        true
    }

    /// Makes the next pages ahead of the tail present and writable in this process; false if there was nothing to do.
    ///
    /// Storage is everybody's, page tables are not: without this, a process pays a fault for every page of room that it
    /// has not written to before.
    fn touch_ahead(&self, present: &mut u64) -> bool {
        let segments = &self.segments;
        if segments.through {
            return false;
        }
        let tail = self.control.published.tail.load(Ordering::Acquire);
        let ready = self.control.upkeep.ready.load(Ordering::Acquire);
        *present = (*present).max(tail);
        let number = segments.number(*present);
        let start = segments.start(number);
        let end = (*present + TOUCH_BYTES).min(start + segments.bytes());
        // By whole pieces only: a tail that moves on must not keep this busy page by page.
        if end > ready.min(tail + self.ahead_bytes(tail, SEGMENTS_AHEAD)) {
            return false;
        }
        if let Ok(region) = segments.map(number, false) {
            self.medium.prefault(&region, *present - start, end - start);
        }
        *present = end;
        true
    }
}

/// The thread that prepares space. It must end before its process releases its slot: other processes take the locks of a free slot for
/// those of a dead process.
pub(crate) struct Preparer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The process whose thread it is.
    process: u32,
}

impl Preparer {
    pub fn start(inner: &Arc<Inner>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (inner_there, stop_there) = (inner.clone(), stop.clone());
        let run = move || {
            let (mut present, mut pause, mut seen) = (0, LOOK, 0);
            let mut refused: Option<Instant> = None;
            while !stop_there.load(Ordering::Relaxed) {
                // Not at once: a refusal lasts long enough to be seen by periodic checks.
                match (inner_there.refuses.load(Ordering::Acquire), refused) {
                    (false, _) => refused = None,
                    (true, None) => refused = Some(Instant::now()),
                    (true, Some(since)) if since.elapsed() >= LOOK => {
                        inner_there.look_after_refusal();
                        refused = None;
                    }
                    (true, Some(_)) => {}
                }
                if inner_there.is_catalog_due() {
                    // If the disk refuses it, the next check tries again; retention does not continue without one.
                    let _ = inner_there.write_catalog();
                }
                inner_there.adopt_refusal();
                let touched = inner_there.touch_ahead(&mut present);
                if !inner_there.prepare_ahead() && !touched {
                    let tail = inner_there.control.published.tail.load(Ordering::Acquire);
                    let is_well = !inner_there.refuses.load(Ordering::Acquire) && inner_there.missing_bytes() == 0;
                    let is_at_rest = tail == seen && is_well;
                    pause = if is_at_rest { (pause * 2).min(LOOK_IDLE) } else { LOOK };
                    seen = tail;
                    thread::park_timeout(pause);
                }
            }
        };
        let thread = millrace_threads::spawn(thread::Builder::new().name("millrace-room".into()), run)
            .map_err(|error| Code::Io.error(format!("starting a thread: {error}")))?;
        // Only set here, once per journal.
        let _ = inner.preparer.set(thread.thread().clone());
        Ok(Self { stop, thread: Some(thread), process: std::process::id() })
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            if self.process != std::process::id() {
                // A forked child does not have the thread, and would wait for it forever.
                std::mem::forget(thread);
                return;
            }
            thread.thread().unpark();
            millrace_threads::join(thread);
        }
    }
}
