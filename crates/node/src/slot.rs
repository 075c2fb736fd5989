//! Where the caller of a shared object finds its answer: of an object of this host, or of one that other hosts have, too.

use millrace_entities::Called;
use millrace_journal::Position;
use millrace_wire::Result;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};

/// The place of one answer.
#[derive(Default)]
pub(crate) struct Slot {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// The answer, and the position that is safe before it leaves.
    answer: Option<Result<(Called, Position)>>,
    waker: Option<Waker>,
}

impl Slot {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has an answer; whom to wake once the lock over the objects is free.
    pub(crate) fn give(&self, answer: Result<(Called, Position)>) -> Option<Waker> {
        let mut found = self.found();
        found.answer = Some(answer);
        found.waker.take()
    }

    /// The answer, if it has come.
    pub(crate) fn take(&self) -> Option<Result<(Called, Position)>> {
        self.found().answer.take()
    }

    /// The answer, if it has come; else wakes this one when it does.
    pub(crate) fn take_or_wake(&self, waker: &Waker) -> Option<Result<(Called, Position)>> {
        let mut found = self.found();
        if found.answer.is_none() {
            found.waker = Some(waker.clone());
        }
        found.answer.take()
    }

    /// Wakes whoever waits for the answer, at once if it has come.
    pub(crate) fn wake(&self, waker: &Waker) {
        let mut found = self.found();
        if found.answer.is_some() {
            waker.wake_by_ref();
        }
        found.waker = Some(waker.clone());
    }
}
