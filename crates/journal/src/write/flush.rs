//! Durability: group commit. Whoever finds no flush under way makes everything written so far durable, for all who wait.

use super::waiters::Waiters;
use crate::{
    entry::Position,
    journal::Inner,
    medium::NotFlushed,
    store::{control::POISON_FLUSH, segments::io_error},
};
use millrace_wire::{Code, Result};
use std::{
    sync::{
        Mutex, TryLockError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// How long a follower sleeps before it looks again by itself.
const FOLLOW: Duration = Duration::from_millis(100);

/// A mark is due when so much has become durable since the last one, or an eighth of a segment if that is less.
const MARK_BYTES: u64 = 1 << 20;
/// At a clean end it is due sooner.
const END_BYTES: u64 = 64 << 10;

/// This process's flushes.
#[derive(Default)]
pub(crate) struct Flusher {
    /// Held by the one who flushes, and by whoever must not see a flush meanwhile.
    pub leader: Mutex<()>,
    /// Counts flushes.
    rounds: AtomicU32,
    /// Those who wait for the flush of another.
    followers: Waiters,
}

impl Inner {
    /// Returns when everything before `upto` is on disk.
    pub(crate) fn sync(&self, upto: Position) -> Result<()> {
        let durable = &self.control.upkeep.durable;
        loop {
            if durable.load(Ordering::Acquire) >= upto.0 {
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
                let result = self.flush_once(upto);
                drop(guard);
                self.end_round();
                result?;
                self.mark_large_flush();
            } else {
                let announced = self.flusher.followers.announce();
                if self.flusher.rounds.load(Ordering::SeqCst) == round {
                    self.flusher.followers.sleep(announced, FOLLOW);
                }
            }
        }
    }

    /// How far `durable` runs ahead of what the journal says of it.
    fn mark_bytes(&self) -> u64 {
        MARK_BYTES.min(self.segments.bytes() / 8)
    }

    /// Says in the journal what is durable, if that has grown by `bytes` since it was last said. It reaches the disk with
    /// the flush that is about to begin; so it costs one short entry now and then, and no flush.
    fn mark_if_due(&self, bytes: u64) {
        if self.is_mark_due(bytes) {
            // A mark that finds no room is missed by nobody but whoever looks for damage; the next flush tries again.
            let _ = self.commit(|transaction| if self.is_mark_due(bytes) { transaction.mark() } else { Ok(()) });
        }
    }

    fn is_mark_due(&self, bytes: u64) -> bool {
        let upkeep = &self.control.upkeep;
        upkeep.durable.load(Ordering::Acquire).saturating_sub(upkeep.marked.load(Ordering::Relaxed)) >= bytes
    }

    /// What one flush wrote may be much: then its mark gets a flush of its own, which is cheap beside the one before.
    fn mark_large_flush(&self) {
        if self.is_mark_due(2 * self.mark_bytes()) {
            self.mark_if_due(self.mark_bytes());
            // Once, however much is appended meanwhile; who leads instead of us looks after it.
            if let Ok(guard) = self.flusher.leader.try_lock() {
                let tail = self.control.published.tail.load(Ordering::Acquire);
                // What was asked for is durable. A failure closes the journal, which the next one hears.
                let _ = self.flush_once(Position(tail));
                drop(guard);
                self.end_round();
            }
        }
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
    fn end_round(&self) {
        self.flusher.rounds.fetch_add(1, Ordering::SeqCst);
        self.flusher.followers.wake();
    }

    /// Flushes everything committed; the caller leads.
    fn flush_once(&self, upto: Position) -> Result<()> {
        let upkeep = &self.control.upkeep;
        if upkeep.durable.load(Ordering::Acquire) >= upto.0 {
            return Ok(());
        }
        self.flushed_lately.store(true, Ordering::Relaxed);
        let target = self.control.published.tail.load(Ordering::Acquire);
        let from = upkeep.durable.load(Ordering::Relaxed).max(upkeep.first.load(Ordering::Acquire));
        let result = self.segments.flush(from, target);
        match &result {
            Ok(()) => self.control.raise_durable(target),
            // Retention dropped a segment that had not been mapped here; all of it is durable.
            Err(error) if error.code() != Code::FlushFailed => {
                let first = upkeep.first.load(Ordering::Acquire);
                if from < first {
                    return Ok(());
                }
            }
            Err(_) => self.close_after_failed_flush(),
        }
        result
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

    /// Never tried again: the kernel may have dropped the dirty pages, and a second flush would report success.
    pub(crate) fn close_after_failed_flush(&self) {
        self.control.writer.poison.store(POISON_FLUSH, Ordering::SeqCst);
        self.wake();
    }
}
