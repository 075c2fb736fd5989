//! A word in shared memory that says "a thread may be asleep here", and on which those threads sleep.
//!
//! Its lowest bit is the flag; the rest counts wake-ups. A waiter sets the flag, checks its condition once more, and sleeps as long as the
//! word is unchanged. A waker publishes first; if the flag is set, it clears it and increments the count, in one step. So a waiter that
//! checked too early finds another word and does not sleep, even if a second waiter has set the flag again meanwhile; and no flag is
//! cleared without a wake-up.

use super::lock::{sleep, wake};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const FLAG: u32 = 1;

/// See the module's documentation. Part of shared pages: every bit pattern is a value.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct Waiters(AtomicU32);

/// The word when a waiter announced itself.
#[derive(Clone, Copy)]
pub(crate) struct Announced(u32);

impl Waiters {
    /// Says that the caller is about to sleep. It looks for what it waits for after this, and then calls [`Waiters::sleep`].
    pub fn announce(&self) -> Announced {
        step();
        let announced = Announced(self.0.fetch_or(FLAG, Ordering::SeqCst) | FLAG);
        step();
        announced
    }

    /// Sleeps until a waker comes, unless one came since `announced`; at most for `timeout`.
    pub fn sleep(&self, announced: Announced, timeout: Duration) {
        step();
        sleep(&self.0, announced.0, timeout);
    }

    /// Wakes all sleepers. Publish the awaited state before this call.
    #[inline]
    pub fn wake(&self) {
        step();
        let word = self.0.load(Ordering::SeqCst);
        if word & FLAG != 0 {
            self.wake_slowly(word);
        }
    }

    /// The same, if there is anything for the sleepers.
    #[inline]
    pub fn wake_if(&self, something: impl FnOnce() -> bool) {
        if self.0.load(Ordering::SeqCst) & FLAG != 0 && something() {
            self.wake();
        }
    }

    #[cold]
    fn wake_slowly(&self, word: u32) {
        step();
        // Adding one clears the flag and counts. If another waker was faster, it wakes all.
        if self.0.compare_exchange(word, word.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            step();
            wake(&self.0, i32::MAX);
        }
    }

    /// There are no sleepers: the page is new.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A point at which a test may let another thread continue.
#[inline]
fn step() {
    #[cfg(test)]
    tests::schedule::step();
}

#[cfg(test)]
pub(crate) mod tests;
