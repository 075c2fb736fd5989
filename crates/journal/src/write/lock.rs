//! A lock in shared memory that survives the death of its owner.
//!
//! The word holds the owner's mark, and a bit that says that a process sleeps. A mark is the owner's [`Slot`] and a number that differs each time
//! the slot is given out: a process that gets a dead owner's slot is not mistaken for it, and a waiter that saw the dead owner a moment ago
//! cannot take the lock from a live one. A waiter checks from time to time whether the owner's process is still alive (see
//! [`Medium::is_alive`]); if not, it takes the lock over and is informed, because it first has to repair what the dead owner was doing. A
//! wake-up lost with its sender costs one such interval, never a hang.
//!
//! Lock order: `retain_lock` or `lock` before `prepare_lock`; the holder of `retain_lock` does not take `lock`.

use crate::medium::{Medium, SLOT_MAX, Slot};
use millrace_wire::Code;
use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

const WAITING: u32 = 1 << 31;
const SLOT_BITS: u32 = 8;
const _: () = assert!(SLOT_MAX < 1 << SLOT_BITS);
/// Tries before sleeping; a commit takes a few hundred nanoseconds.
const SPINS_MAX: u32 = 200;
/// How long a waiter sleeps before it looks whether the owner lives.
const SLEEP: Duration = Duration::from_millis(3);

/// A waiter that waits for longer reports the holder of the lock.
const PATIENCE: Duration = Duration::from_secs(1);

/// How the lock was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// It was free.
    Free,
    /// Its owner died with it.
    FromDead,
}

/// One process's access to one lock word.
pub(crate) struct Lock<'a> {
    pub word: &'a AtomicU32,
    pub medium: &'a dyn Medium,
    /// This process's [`mark`].
    pub mark: u32,
}

/// The mark of the process that was the `attachment`-th to get a slot; repeats after eight million.
pub(crate) fn mark(slot: Slot, attachment: u64) -> u32 {
    slot | (attachment as u32) << SLOT_BITS & !WAITING
}

/// The slot in a mark.
fn slot(mark: u32) -> Slot {
    mark & ((1 << SLOT_BITS) - 1)
}

impl Lock<'_> {
    #[inline]
    pub fn acquire(&self) -> Acquired {
        self.acquire_within(None).expect("without a bound it waits until it has the lock")
    }

    /// Takes the lock; `None` if a live process has had it for as long as `patience`, which is unbounded if absent.
    #[inline]
    pub fn acquire_within(&self, patience: Option<Duration>) -> Option<Acquired> {
        if self.try_acquire(self.mark) { Some(Acquired::Free) } else { self.acquire_slowly(patience) }
    }

    #[inline]
    fn try_acquire(&self, mark: u32) -> bool {
        self.word.compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn acquire_slowly(&self, patience: Option<Duration>) -> Option<Acquired> {
        for _ in 0..SPINS_MAX {
            if self.word.load(Ordering::Relaxed) == 0 && self.try_acquire(self.mark) {
                return Some(Acquired::Free);
            }
            std::hint::spin_loop();
        }
        let (since, mut is_told) = (Instant::now(), false);
        loop {
            let waited = since.elapsed();
            if patience.is_some_and(|patience| waited >= patience) {
                return None;
            }
            if !is_told && waited >= PATIENCE {
                is_told = true;
                self.tell();
            }
            // Once one has slept, others may be asleep too: keep the bit, at worst for one idle wake-up.
            if self.try_acquire(self.mark | WAITING) {
                return Some(Acquired::Free);
            }
            let seen = self.word.load(Ordering::Relaxed);
            if seen == 0 {
                continue;
            }
            let marked = seen | WAITING;
            if seen != marked && self.word.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            sleep(self.word, marked, SLEEP);
            if self.take_from_dead(marked) {
                return Some(Acquired::FromDead);
            }
        }
    }

    /// The slot of the current holder of the lock.
    pub fn owner(&self) -> Option<Slot> {
        let owner = slot(self.word.load(Ordering::Relaxed));
        (owner != 0).then_some(owner)
    }

    /// Prints the owner of the lock on stderr: a stopped process that has it blocks all appends.
    fn tell(&self) {
        if let Some(slot) = self.owner() {
            let holder = self.medium.holder(slot);
            let who =
                holder.map_or("another process".into(), |found| format!("process {} ({})", found.pid, found.command));
            eprintln!("{}", Code::LockHeld.error(format!("{who} has held the lock for more than a second")));
        }
    }

    /// Takes the lock if `seen` names a dead owner that still has it.
    fn take_from_dead(&self, seen: u32) -> bool {
        self.word.load(Ordering::Relaxed) == seen
            && self.has_dead_owner()
            && self.word.compare_exchange(seen, self.mark | WAITING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the owner died with the lock: its slot is free, or belongs to this process now.
    pub fn has_dead_owner(&self) -> bool {
        let owner = self.word.load(Ordering::Relaxed) & !WAITING;
        owner != 0 && owner != self.mark && (slot(owner) == slot(self.mark) || !self.medium.is_alive(slot(owner)))
    }

    /// Whether it is free.
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == 0
    }

    #[inline]
    pub fn release(&self) {
        if self.word.swap(0, Ordering::SeqCst) & WAITING != 0 {
            wake(self.word, 1);
        }
    }
}

/// Sleeps in the kernel while the word is `expected`, at most for `timeout`.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, timeout: Duration) {
    #[cfg(test)]
    if super::waiters::tests::schedule::sleep(word, expected) {
        return;
    }
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // SAFETY: the word outlives the call and the timeout is valid; every outcome is answered by looking again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
            ptr::null::<u32>(),
            0,
        )
    };
}

/// Wakes at most `count` sleepers on the word.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    #[cfg(test)]
    if super::waiters::tests::schedule::wake(word) {
        return;
    }
    // SAFETY: the word outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            count,
            ptr::null::<u32>(),
            ptr::null::<u32>(),
            0,
        )
    };
}
