//! Waiting for the tail to move, asleep in the kernel.

use crate::{
    catalog::Log,
    entry::{Kind, Position},
    journal::Inner,
    write::waiters::Waiters,
};
use millrace_wire::Result;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The longest sleep: a writer that dies between its commit and its wake-up delays waiters by no more than this.
const SLICE: Duration = Duration::from_millis(100);

impl Inner {
    /// Returns the tail when it is behind `seen`, or at the timeout, or after [`Inner::wake`].
    pub(crate) fn wait(&self, seen: Position, timeout: Duration) -> Position {
        self.wait_as(&self.control.published.for_any, seen, timeout)
    }

    /// The same, but asleep while batches hold nothing but records that run no function.
    pub(crate) fn wait_work(&self, seen: Position, timeout: Duration) -> Position {
        self.wait_as(&self.control.published.for_work, seen, timeout)
    }

    fn wait_as(&self, waiters: &Waiters, seen: Position, timeout: Duration) -> Position {
        let published = &self.control.published;
        let deadline = deadline(timeout);
        let calls = published.calls.load(Ordering::Acquire);
        loop {
            let announced = waiters.announce();
            let tail = Position(published.tail.load(Ordering::SeqCst));
            let left = deadline.saturating_duration_since(Instant::now());
            if tail > seen || published.calls.load(Ordering::SeqCst) != calls || left.is_zero() {
                return tail;
            }
            waiters.sleep(announced, left.min(SLICE));
            if self.write_lock().has_dead_owner() {
                // What it committed without telling anybody becomes visible now; an error shows at the next write.
                drop(self.lock());
            }
        }
    }

    /// Wakes every waiter of every process.
    pub(crate) fn wake(&self) {
        let published = &self.control.published;
        published.calls.fetch_add(1, Ordering::SeqCst);
        published.for_any.wake();
        published.for_work.wake();
    }

    /// Returns the newest seqno of the log when it is above `seen`, or at the timeout. Other logs wake nobody here.
    pub(crate) fn wait_log(&self, log: &Log, seen: u64, timeout: Duration) -> Result<u64> {
        let (waiters, waiting) = (log.index().waiters(), &self.control.published.log_sleepers);
        let deadline = deadline(timeout);
        loop {
            let latest = log.latest();
            let left = deadline.saturating_duration_since(Instant::now());
            if latest > seen || left.is_zero() {
                return Ok(latest);
            }
            log.check_exists()?;
            waiting.fetch_add(1, Ordering::SeqCst);
            let announced = waiters.announce();
            if log.latest() == latest {
                waiters.sleep(announced, left.min(SLICE));
            }
            waiting.fetch_sub(1, Ordering::SeqCst);
            if self.write_lock().has_dead_owner() {
                drop(self.lock());
            }
        }
    }

    /// Wakes waiters, if there are any, after a commit. The lock was released in between, which orders this after it.
    #[inline]
    pub(crate) fn wake_sleepers(&self, start: u64, end: u64, work: bool) {
        let published = &self.control.published;
        published.for_any.wake();
        if work {
            published.for_work.wake();
        }
        if published.log_sleepers.load(Ordering::SeqCst) != 0 {
            self.wake_log_sleepers(start, end);
        }
    }

    /// Wakes those who wait for a log that the entries between two positions of a segment append to.
    #[cold]
    fn wake_log_sleepers(&self, start: u64, end: u64) {
        let catalog = self.cached_catalog();
        let mut position = start;
        while position < end {
            // Just committed here, so not checked again. Retention may have passed: then waiters look by themselves.
            let header = self.segments.header(position).ok().filter(|header| header.is_plausible(end - position));
            let Some(header) = header else { return };
            if header.folded() == Some(Kind::Append)
                && let Some(log) = catalog.log_by_id(header.subject)
            {
                log.index().waiters().wake();
            }
            position += header.span();
        }
    }
}

/// A year is as good as for ever, and does not overflow the clock.
fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3600))
}
