//! Waiting for the tail to move, asleep in the kernel.

use crate::{
    entry::Position,
    journal::Inner,
    write::lock::{sleep, wake},
};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The longest sleep: a writer that dies between its commit and its wake-up delays waiters by no more than this.
const SLICE: Duration = Duration::from_millis(100);

impl Inner {
    /// Returns the tail when it is behind `seen`, or at the timeout, or after [`Inner::wake`].
    pub(crate) fn wait(&self, seen: Position, timeout: Duration) -> Position {
        let published = &self.control.published;
        // A year is as good as for ever, and does not overflow the clock.
        let deadline = Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3600));
        let first = published.commits.load(Ordering::Acquire);
        loop {
            let commits = published.commits.load(Ordering::Acquire);
            published.sleepers.store(1, Ordering::SeqCst);
            let tail = Position(published.tail.load(Ordering::SeqCst));
            let left = deadline.saturating_duration_since(Instant::now());
            if tail > seen || commits != first || left.is_zero() {
                return tail;
            }
            sleep(&published.commits, commits, left.min(SLICE));
            if self.write_lock().has_dead_owner() {
                // What it committed without telling anybody becomes visible now; an error shows at the next write.
                drop(self.lock());
            }
        }
    }

    /// Wakes every waiter of every process.
    pub(crate) fn wake(&self) {
        let published = &self.control.published;
        published.commits.fetch_add(1, Ordering::SeqCst);
        published.sleepers.store(0, Ordering::SeqCst);
        wake(&published.commits, i32::MAX);
    }

    /// Wakes waiters, if there are any, after a commit.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        let published = &self.control.published;
        if published.sleepers.load(Ordering::SeqCst) != 0 && published.sleepers.swap(0, Ordering::SeqCst) != 0 {
            wake(&published.commits, i32::MAX);
        }
    }
}
