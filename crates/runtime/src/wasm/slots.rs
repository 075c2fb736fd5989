//! The places for instances: whoever finds none free waits for one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct Slots {
    free: Mutex<u32>,
    freed: Condvar,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits until a place is free, and takes it.
    pub(super) fn take(&self) -> Slot<'_> {
        let free = self.freed.wait_while(self.free(), |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Slot(self)
    }

    fn free(&self) -> MutexGuard<'_, u32> {
        // A counter that is changed in one step.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, free again when this is dropped.
pub(super) struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.freed.notify_one();
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
        assert_eq!(*slots.free(), 1);
    }
}
