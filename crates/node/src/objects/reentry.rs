//! Calls of reentrant methods: a call that comes back to an object whose step waits for the caller runs within that step, in its worker.
//!
//! ```text
//!  step of A ── calls B, and waits ──> step of B ── calls A ──> Reentry of A's step ── REENTER ──> A's worker
//!                                            <── the answer ── REENTERED <───────────────────────────┘
//! ```
//!
//! Such a call is not a waiter in the object's state: what it changes takes effect with the step that it is a part of, or never.

use super::task::{EventFd, encode};
use millrace_dispatch::Later;
use millrace_entities::Called;
use millrace_wire::{Code, Result};
use std::{
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// The calls that run within one step.
pub(super) struct Reentry {
    key: Box<str>,
    incarnation: u64,
    /// The class to which the step migrates the object.
    becomes: Option<[Vec<u8>; 3]>,
    /// Readable when there is a call that the worker has not got.
    ready: EventFd,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    /// The number of the last one.
    last: u32,
    /// Those that the worker has not got.
    unsent: VecDeque<(u32, Vec<u8>)>,
    /// Those that have no answer.
    waiting: HashMap<u32, Arc<Answer>>,
}

/// The answer of one call.
struct Answer {
    ready: EventFd,
    found: Mutex<Option<Result<Vec<u8>>>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answer {
    fn give(&self, answer: Result<Vec<u8>>) {
        *locked(&self.found) = Some(answer);
        self.ready.set();
    }
}

impl Reentry {
    pub fn new(key: &str, incarnation: u64, becomes: Option<[Vec<u8>; 3]>) -> Result<Self> {
        Ok(Self { key: key.into(), incarnation, becomes, ready: EventFd::new()?, calls: Mutex::default() })
    }

    pub fn becomes(&self) -> Option<&[Vec<u8>; 3]> {
        self.becomes.as_ref()
    }

    /// Has the worker of the step run a call.
    pub fn call(&self, request: Vec<u8>) -> Result<Box<dyn Later>> {
        let answer = Arc::new(Answer { ready: EventFd::new()?, found: Mutex::default() });
        let mut calls = locked(&self.calls);
        calls.last += 1;
        let number = calls.last;
        calls.unsent.push_back((number, request));
        calls.waiting.insert(number, answer.clone());
        drop(calls);
        self.ready.set();
        Ok(Box::new(Reentered(answer)))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ready.fd()
    }

    /// The next call for the worker.
    pub fn next(&self) -> Option<(u32, Vec<u8>)> {
        let mut calls = locked(&self.calls);
        if calls.unsent.is_empty() {
            self.ready.clear();
        }
        calls.unsent.pop_front()
    }

    /// The worker has run a call.
    pub fn answer(&self, number: u32, answer: &[u8]) {
        let waiting = locked(&self.calls).waiting.remove(&number);
        waiting.into_iter().for_each(|call| {
            call.give(Ok(encode(Called::Now(self.incarnation, Ok(answer.into())))));
        });
    }

    /// The step has ended: it runs no further calls.
    pub fn end(&self) {
        let mut calls = locked(&self.calls);
        calls.unsent.clear();
        let waiting = std::mem::take(&mut calls.waiting);
        drop(calls);
        for call in waiting.into_values() {
            let reported = format!("the method of '{}' ended within which the call would have run", self.key);
            call.give(Err(Code::StepFailed.error(reported)));
        }
    }
}

/// A call that runs within a step.
struct Reentered(Arc<Answer>);

impl Later for Reentered {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.ready.fd()
    }

    fn until(&self) -> Option<Instant> {
        None
    }

    fn take(&mut self) -> Option<Result<Vec<u8>>> {
        locked(&self.0.found).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_answered_by_number_or_when_their_step_ends() {
        let reentry = Reentry::new("a", 7, None).unwrap();
        assert_eq!(reentry.next(), None);
        let mut answers = [1, 2, 3].map(|call| reentry.call(vec![call]).unwrap());
        assert_eq!([reentry.next(), reentry.next()], [Some((1, vec![1])), Some((2, vec![2]))]);
        reentry.answer(2, &[0xc0]);
        reentry.answer(2, &[0xc3]);
        let incarnation = 7_u64.to_le_bytes();
        assert_eq!(answers[1].take(), Some(Ok([&incarnation[..], &[0, 0xc0]].concat())));
        assert!(answers[1].take().is_none() && answers[0].take().is_none());
        reentry.end();
        assert_eq!(reentry.next(), None, "the third is not sent any more");
        for at in [0, 2] {
            assert_eq!(answers[at].take().unwrap().unwrap_err().code(), Code::StepFailed);
        }
    }
}
