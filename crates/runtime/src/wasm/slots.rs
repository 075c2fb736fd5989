//! The slots for instances: a run waits until one is free.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct Slots {
    free: Mutex<Free>,
    freed: Condvar,
}

struct Free {
    places: u32,
    /// The number of waiters; without waiters, no system call for a wake-up is made.
    waiting: u32,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self { free: Mutex::new(Free { places: count, waiting: 0 }), freed: Condvar::new() }
    }

    /// Waits until a place is free, and takes it.
    pub(super) fn take(&self) -> Slot<'_> {
        let mut free = self.free();
        while free.places == 0 {
            free.waiting += 1;
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
            free.waiting -= 1;
        }
        free.places -= 1;
        Slot(self)
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // Counters, each changed in one step.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, free again when this is dropped.
pub(super) struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut free = self.0.free();
        free.places += 1;
        let is_awaited = free.waiting > 0;
        drop(free);
        if is_awaited {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread};

    #[test]
    fn whoever_finds_no_place_gets_the_next_that_is_free() {
        let slots = Slots::new(1);
        let first = slots.take();
        thread::scope(|scope| {
            let (took, taken) = mpsc::channel();
            let slots = &slots;
            scope.spawn(move || {
                let _second = slots.take();
                took.send(()).unwrap();
            });
            assert_eq!(taken.try_recv(), Err(mpsc::TryRecvError::Empty));
            drop(first);
            taken.recv().unwrap();
        });
        let free = slots.free();
        assert_eq!((free.places, free.waiting), (1, 0));
    }
}
