//! Waits in the kernel until the tail moves.

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

/// The longest sleep: a writer that dies between its commit and its wake-up delays waiters by at most this. Only this case depends on it,
/// so an idle host rarely wakes up.
const SLICE: Duration = Duration::from_secs(2);
/// The same for waiters for definitions, which are rare.
const SLICE_DEFINED: Duration = Duration::from_secs(5);

impl Inner {
    /// How often [`Inner::wake`] was called.
    pub(crate) fn wakes(&self) -> u32 {
        self.control.published.calls.load(Ordering::SeqCst)
    }

    /// Returns the tail when it is behind `seen`, or at the timeout, or after [`Inner::wake`].
    pub(crate) fn wait(&self, seen: Position, timeout: Duration) -> Position {
        self.wait_as(&self.control.published.for_any, seen, self.wakes(), timeout)
    }

    /// The same, but asleep while batches hold nothing but records that run no function; and it does not sleep if [`Inner::wake`] was
    /// called since the count was `wakes`.
    pub(crate) fn wait_work(&self, seen: Position, wakes: u32, timeout: Duration) -> Position {
        self.wait_as(&self.control.published.for_work, seen, wakes, timeout)
    }

    /// The same for a waiter that [`Inner::on_commit`] notifies of batches of this process, which do not wake it. If another process waits
    /// in this way as well, they do.
    pub(crate) fn wait_foreign(&self, seen: Position, wakes: u32, timeout: Duration) -> Position {
        self.control.published.wait_as_foreign(self.slot);
        self.wait_as(&self.control.published.for_foreign, seen, wakes, timeout)
    }

    /// Returns once the newest definition is not the one at `seen`, or at the timeout, or after [`Inner::wake`].
    pub(crate) fn wait_defined(&self, seen: u64, wakes: u32, timeout: Duration) {
        let (published, deadline) = (&self.control.published, deadline(timeout));
        loop {
            let announced = published.for_defined.announce();
            let left = deadline.saturating_duration_since(Instant::now());
            let is_defined = self.control.writer.defined.load(Ordering::SeqCst) != seen;
            if is_defined || self.wakes() != wakes || left.is_zero() {
                return;
            }
            published.for_defined.sleep(announced, left.min(SLICE_DEFINED));
            self.look_after_writer();
        }
    }

    fn wait_as(&self, waiters: &Waiters, seen: Position, wakes: u32, timeout: Duration) -> Position {
        let (published, deadline) = (&self.control.published, deadline(timeout));
        loop {
            let tail = Position(published.tail.load(Ordering::SeqCst));
            let left = deadline.saturating_duration_since(Instant::now());
            if tail > seen || self.wakes() != wakes || left.is_zero() {
                return tail;
            }
            // Not before that check: a waiter that announces itself and leaves costs the next commit a useless system call.
            let announced = waiters.announce();
            if published.tail.load(Ordering::SeqCst) == tail.get() && self.wakes() == wakes {
                waiters.sleep(announced, left.min(SLICE));
                self.look_after_writer();
            }
        }
    }

    /// A batch of a writer that died before it published the tail becomes visible now; an error appears at the next write.
    fn look_after_writer(&self) {
        if self.write_lock().has_dead_owner() {
            drop(self.lock());
        }
    }

    /// Wakes every waiter of every process.
    pub(crate) fn wake(&self) {
        let published = &self.control.published;
        published.calls.fetch_add(1, Ordering::SeqCst);
        published.for_any.wake();
        published.for_foreign.wake();
        published.for_work.wake();
        published.for_defined.wake();
        if published.log_sleepers.load(Ordering::SeqCst) != 0 {
            self.cached_catalog().logs().for_each(|log| log.index().waiters().wake());
        }
    }

    /// Returns the newest seqno of the log when it is above `seen`, or at the timeout, or after [`Inner::wake`]. Other logs do not wake
    /// this waiter.
    pub(crate) fn wait_log(&self, log: &Log, seen: u64, wakes: u32, timeout: Duration) -> Result<u64> {
        let (waiters, waiting) = (log.index().waiters(), &self.control.published.log_sleepers);
        let deadline = deadline(timeout);
        loop {
            let latest = log.latest();
            let left = deadline.saturating_duration_since(Instant::now());
            if latest > seen || self.wakes() != wakes || left.is_zero() {
                return Ok(latest);
            }
            log.check_exists()?;
            waiting.fetch_add(1, Ordering::SeqCst);
            let announced = waiters.announce();
            if log.latest() == latest && self.wakes() == wakes {
                waiters.sleep(announced, left.min(SLICE));
            }
            waiting.fetch_sub(1, Ordering::SeqCst);
            self.look_after_writer();
        }
    }

    /// Wakes waiters, if there are any, after a commit. The lock was released in between, which orders this after it.
    #[inline]
    pub(crate) fn wake_sleepers(&self, start: u64, end: u64, work: bool) {
        let published = &self.control.published;
        published.for_any.wake();
        if published.has_foreign(self.slot) {
            published.for_foreign.wake();
        }
        if work {
            published.for_work.wake();
            published.for_defined.wake_if(|| self.control.writer.defined.load(Ordering::SeqCst) >= start);
        }
        if published.log_sleepers.load(Ordering::SeqCst) != 0 {
            self.wake_log_sleepers(start, end);
        }
        if let Some(reported) = self.on_commit.get() {
            reported();
        }
    }

    /// Wakes the waiters for logs that the entries between two positions of a segment append to.
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

/// A year is long enough, and does not overflow the clock.
fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3600))
}
