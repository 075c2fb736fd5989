//! Durability: group commit. Whoever finds no flush under way makes everything written so far durable, for all who wait.

use super::lock::{sleep, wake};
use crate::{entry::Position, journal::Inner, store::control::POISON_FLUSH};
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

/// This process's flushes.
#[derive(Default)]
pub(crate) struct Flusher {
    /// Held by the one who flushes, and by whoever must not see a flush meanwhile.
    pub leader: Mutex<()>,
    /// Counts flushes; followers sleep on it.
    rounds: AtomicU32,
    followers: AtomicU32,
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
            } else {
                self.flusher.followers.store(1, Ordering::SeqCst);
                if self.flusher.rounds.load(Ordering::SeqCst) == round {
                    sleep(&self.flusher.rounds, round, FOLLOW);
                }
            }
        }
    }

    /// Lets followers look; only after the lead was given up, or they would find it still taken.
    fn end_round(&self) {
        self.flusher.rounds.fetch_add(1, Ordering::SeqCst);
        if self.flusher.followers.swap(0, Ordering::SeqCst) != 0 {
            wake(&self.flusher.rounds, i32::MAX);
        }
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
            Ok(()) => drop(upkeep.durable.fetch_max(target, Ordering::AcqRel)),
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
    /// be concerned, and the next flush would hear nothing of it.
    pub(crate) fn flushed(&self, what: &str, result: std::io::Result<()>) -> Result<()> {
        result.map_err(|error| {
            self.close_after_failed_flush();
            Code::FlushFailed.error(format!("{what}: {error}"))
        })
    }

    /// Never tried again: the kernel may have dropped the dirty pages, and a second flush would report success.
    pub(crate) fn close_after_failed_flush(&self) {
        self.control.writer.poison.store(POISON_FLUSH, Ordering::SeqCst);
        self.wake();
    }
}
