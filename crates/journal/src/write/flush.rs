//! Durability: group commit. A thread that finds no flush in progress flushes everything written so far, for all waiters.

use super::waiters::Waiters;
use crate::{
    entry::Position,
    journal::Inner,
    medium::NotFlushed,
    store::{control::POISON_FLUSH, segments::io_error},
};
use millrace_wire::{Code, Result, histogram::Histogram};
use std::{
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a follower sleeps before it checks again.
const FOLLOW: Duration = Duration::from_millis(100);

/// A mark is due when so much has become durable since the last one, or an eighth of a segment if that is less.
const MARK_BYTES: u64 = 1 << 20;
/// As much before the end of a mark is flushed with it: all of the mark at least.
const MARK_REACH_BYTES: u64 = 4096;
/// At a clean end it is due sooner.
const END_BYTES: u64 = 64 << 10;

/// This process's flushes.
#[derive(Default)]
pub(crate) struct Flusher {
    /// How long flushes of entries took.
    pub took: Histogram,
    /// Held by the flushing thread, and by code that must exclude a flush.
    pub leader: Mutex<()>,
    /// Counts flushes.
    rounds: AtomicU32,
    /// Those who wait for the flush of another.
    followers: Waiters,
}

impl Inner {
    /// Returns when everything before `upto` is on disk.
    pub(crate) fn sync(&self, upto: Position) -> Result<()> {
        if upto.0 > self.tail() {
            drop(self.lock()?); // Shows what a dead process committed, or waits for who is about to.
            let tail = self.tail();
            if upto.0 > tail {
                return Err(Code::AboveTail.error(format!("the journal ends at {}, before {upto}", Position(tail))));
            }
        }
        loop {
            if self.control.durable() >= upto.0 {
                return Ok(());
            }
            self.control.check_health()?;
            // In a child of a fork, who holds the lead may be a thread that only the parent has.
            if self.medium.is_inherited() {
                return Err(Code::ForkedHandle.error("this process is a fork of the one that opened the namespace"));
            }
            self.mark_if_due(self.mark_bytes());
            let round = self.flusher.rounds.load(Ordering::Acquire);
            let leading = match self.flusher.leader.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(guard) = leading {
                self.lead(guard, upto)?;
            } else {
                let announced = self.flusher.followers.announce();
                if self.flusher.rounds.load(Ordering::SeqCst) == round {
                    self.flusher.followers.sleep(announced, FOLLOW);
                }
            }
        }
    }

    /// How far `durable` is ahead of the last MARK.
    fn mark_bytes(&self) -> u64 {
        MARK_BYTES.min(self.segments.bytes() / 8)
    }

    /// Says in the journal what is durable, if that has grown by `bytes` since it was last said. It reaches the disk with the flush that is
    /// about to begin; so it costs one short entry from time to time, and no flush.
    fn mark_if_due(&self, bytes: u64) {
        if self.is_mark_due(bytes) {
            // A missing mark only weakens the detection of damage; the next flush tries again.
            let _ =
                self.commit(
                    |transaction| {
                        if self.is_mark_due(bytes) { transaction.mark(self.control.durable()) } else { Ok(()) }
                    },
                );
        }
    }

    fn is_mark_due(&self, bytes: u64) -> bool {
        let upkeep = &self.control.upkeep;
        self.control.durable().saturating_sub(upkeep.marked.load(Ordering::Relaxed)) >= bytes
    }

    /// Flushes everything committed, for all waiters. If a flush writes much, it counts as durable only once a mark of it is durable, by a
    /// second flush, which is cheap compared with the first.
    fn lead(&self, guard: MutexGuard<'_, ()>, upto: Position) -> Result<()> {
        let flushed = self.flush_once(upto);
        let unmarked = |target: u64| target.saturating_sub(self.control.upkeep.attested.load(Ordering::Acquire));
        let result = match flushed {
            Ok(Some(target)) if unmarked(target) >= 2 * self.mark_bytes() => {
                drop(guard); // A commit may need room, and whoever makes room may be waiting for the end of a flush.
                let marked = self.commit(|transaction| transaction.mark(target));
                let guard = self.flusher.leader.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let result = match marked {
                    Ok(marked) => self.flush_to(target, marked.end.0),
                    Err(_) => Ok(target), // No room for the mark: it is missed by nobody but who looks for damage.
                };
                drop(guard);
                result.map(Some)
            }
            flushed => {
                drop(guard);
                flushed
            }
        };
        if let Ok(Some(target)) = result {
            self.control.raise_durable(target);
        }
        self.end_round();
        result.map(drop)
    }

    /// Leaves a mark before a clean end, unless so little happened that it is not worth its flush.
    pub(crate) fn mark_the_end(&self) {
        if self.is_mark_due(END_BYTES) {
            self.mark_if_due(END_BYTES);
            let tail = self.control.published.tail.load(Ordering::Acquire);
            let _ = self.sync(Position(tail));
        }
    }

    /// Lets followers look; only after the lead was given up, or they would find it still taken.
    pub(crate) fn end_round(&self) {
        self.flusher.rounds.fetch_add(1, Ordering::SeqCst);
        self.flusher.followers.wake();
    }

    /// Flushes everything committed; the caller leads. Returns up to where, if that is news.
    fn flush_once(&self, upto: Position) -> Result<Option<u64>> {
        let upkeep = &self.control.upkeep;
        if self.control.durable() >= upto.0 {
            return Ok(None);
        }
        let target = self.tail();
        let from = self.control.durable().max(upkeep.first.load(Ordering::Acquire));
        match self.flush_to(from, target) {
            // Retention dropped a segment that had not been mapped here; all of it is durable.
            Err(error) if error.code() != Code::FlushFailed && from < upkeep.first.load(Ordering::Acquire) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Flushes from one position to another, and notes which mark is durable with it.
    fn flush_to(&self, from: u64, target: u64) -> Result<u64> {
        let upkeep = &self.control.upkeep;
        // In this order: the end is noted before what the mark says.
        let marked = upkeep.marked.load(Ordering::Acquire);
        let mark_end = upkeep.mark_end.load(Ordering::Acquire);
        let began = Instant::now();
        self.segments.flush(from, target).inspect_err(|error| {
            if error.code() == Code::FlushFailed {
                self.close_after_failed_flush();
            }
        })?;
        self.flusher.took.add(began.elapsed());
        // Another flush may have failed meanwhile, of the same pages perhaps: then this one proves nothing.
        self.control.check_health()?;
        if mark_end <= target {
            upkeep.attested.fetch_max(marked, Ordering::AcqRel);
        }
        Ok(target)
    }

    /// Flushes from the start of a segment, which everything before is about to leave, up to `upto`, and says nothing of it: what
    /// is before is still there. Pages near the tail are not touched.
    pub(crate) fn flush_start(&self, segment: u64, upto: u64) -> Result<()> {
        if self.control.durable() >= upto { Ok(()) } else { self.flush_range(self.segments.start(segment), upto) }
    }

    /// Says that everything up to `upto` is durable, in a mark that is durable as well. The caller flushed what is kept of it, and
    /// nothing else is kept.
    pub(crate) fn attest(&self, upto: u64) -> Result<()> {
        if self.control.durable() >= upto {
            return Ok(());
        }
        let end = self.commit(|transaction| transaction.mark(upto))?.end.0;
        let number = self.segments.number(end - 1);
        self.flush_range(self.segments.start(number).max(end.saturating_sub(MARK_REACH_BYTES)), end)?;
        self.control.upkeep.attested.fetch_max(upto, Ordering::AcqRel);
        self.control.raise_durable(upto);
        Ok(())
    }

    /// Flushes a range while no other thread flushes, without moving the durable position.
    fn flush_range(&self, mut from: u64, to: u64) -> Result<()> {
        let leading = self.flusher.leader.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let flushed = loop {
            let flushed = self.segments.flush(from, to);
            let first = self.control.upkeep.first.load(Ordering::Acquire);
            match flushed.as_ref().map_err(|error| error.code()) {
                Err(Code::FlushFailed) => self.close_after_failed_flush(),
                Err(_) if from < first => {
                    from = first; // Retention dropped a segment that had not been mapped here.
                    continue;
                }
                _ => {}
            }
            break flushed;
        };
        drop(leading);
        self.end_round(); // Somebody may have found the lead taken.
        flushed.and_then(|()| self.control.check_health())
    }

    /// Flushes made by others than [`Inner::sync`], of room and of names, count like those of entries: the same pages may
    /// be concerned, and the next flush would hear nothing of it. One that never began may be tried again.
    pub(crate) fn flushed(&self, what: &str, result: std::result::Result<(), NotFlushed>) -> Result<()> {
        result.map_err(|error| match error {
            NotFlushed::Unopened(error) => io_error(what, &error),
            NotFlushed::Refused(error) => {
                self.close_after_failed_flush();
                Code::FlushFailed.error(format!("{what}: {error}"))
            }
        })
    }

    /// Never repeated: the kernel may have dropped the dirty pages, and a second flush would report success. A failure in a handle of
    /// another process, or of a dead one, says nothing about the journal.
    pub(crate) fn close_after_failed_flush(&self) {
        if self.medium.is_inherited() {
            return;
        }
        self.control.writer.poison.store(POISON_FLUSH, Ordering::SeqCst);
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use crate::{CreateOptions, Durability, Journal, OpenOptions, medium::sim::SimDisk};
    use millrace_wire::EventId;
    use std::path::Path;

    /// Another process may drop a segment between a look at where the journal begins and the read or the flush that follows.
    #[test]
    fn what_retention_has_passed_is_no_missing_file() {
        let (disk, sim) = (SimDisk::default(), Path::new("sim"));
        let (retain_age, durability) = (None, Durability::Memory);
        let options = CreateOptions { segment_bytes: 1 << 20, retain_bytes: 2 << 20, retain_age, durability };
        let background = OpenOptions { background: false };
        drop(Journal::create_on(disk.process(), sim, &options).unwrap());
        let writer = Journal::open_on(disk.process(), sim, &background).unwrap();
        let log = writer.commit(|batch| batch.create_log(&"churn".parse().unwrap(), 2)).unwrap().value;
        let append = || {
            writer.commit(|batch| batch.append(&log, &[7; 50 << 10], EventId::NONE, 0)).unwrap();
        };
        while writer.tail().get() < 5 << 20 {
            append();
        }
        // It has mapped no more than it needed.
        let reader = Journal::open_on(disk.process(), sim, &background).unwrap();
        while writer.first().get() < 3 << 20 {
            append();
            writer.maintain(&|_, _| false).unwrap();
        }
        let tail = reader.0.tail();
        for segment in 0..3 {
            let mut position = segment << 20;
            reader.0.entry_from(&mut position, tail).unwrap();
        }
        reader.0.flush_range(0, tail).unwrap();
    }
}
