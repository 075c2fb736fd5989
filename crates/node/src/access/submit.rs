//! Commits on behalf of event loops, on a thread of their own.
//!
//! An event loop must not wait: the holder of the journal's lock may be stopped, and a disk may be slow. A loop commits by itself only if
//! no other client would have to wait with it ([`Access::now`]), and passes everything else to this thread ([`Access::submit`]).
//! Submissions are committed in their order.

use super::Access;
use crate::{Gate, Gated};
use millrace_journal::lock_within;
use millrace_wire::{Code, Error};
use std::{
    collections::VecDeque,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

/// How long a submission may wait for the journal; after that it fails with the cause that blocks the journal.
pub const SUBMISSION_PATIENCE: Duration = Duration::from_secs(10);
/// Most submissions that wait.
const SUBMISSIONS_MAX: usize = 1 << 17;
/// How many are committed before their submitters are woken.
const BATCH: usize = 32;

/// Does one submission; returns whom to wake, and whether a flush is waited for.
type Job = Box<dyn FnOnce() -> Finished + Send>;

struct Finished {
    waker: Option<Waker>,
    needs_flush: bool,
}

/// Submissions that have not begun.
#[derive(Default)]
pub(crate) struct Submissions {
    queue: Arc<Queue>,
    /// The thread is started by the first submission; false if it could not be.
    started: OnceLock<bool>,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    queued: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// No more submissions are accepted.
    closed: bool,
}

impl Queue {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next jobs; none once the queue is closed and empty.
    fn next(&self) -> Vec<Job> {
        let mut jobs = self.jobs();
        while jobs.waiting.is_empty() && !jobs.closed {
            jobs = self.queued.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
        let count = jobs.waiting.len().min(BATCH);
        jobs.waiting.drain(..count).collect()
    }
}

impl Drop for Submissions {
    fn drop(&mut self) {
        // The thread is not joined, because it may be waiting for the disk.
        self.queue.jobs().closed = true;
        self.queue.queued.notify_all();
    }
}

impl Submissions {
    /// Submits a commit without waiting for its result; false if too many submissions wait already.
    pub fn work(&self, gate: &Arc<Gate>, work: impl FnOnce() + Send + 'static) -> bool {
        let job = move || {
            work();
            Finished { waker: None, needs_flush: true }
        };
        self.add(gate, Box::new(job))
    }

    /// Adds a job; false if there are too many already.
    fn add(&self, gate: &Arc<Gate>, job: Job) -> bool {
        let start = || {
            let (queue, gate) = (self.queue.clone(), gate.clone());
            let builder = thread::Builder::new().name("millrace-commit".into());
            millrace_threads::spawn(builder, move || commit(&queue, &gate)).is_ok()
        };
        if !*self.started.get_or_init(start) {
            // Without a thread it is done here: late is better than never.
            job().waker.into_iter().for_each(Waker::wake);
            return true;
        }
        let mut jobs = self.queue.jobs();
        if jobs.waiting.len() >= SUBMISSIONS_MAX {
            return false;
        }
        let first = jobs.waiting.is_empty();
        jobs.waiting.push_back(job);
        drop(jobs);
        if first {
            self.queue.queued.notify_one();
        }
        true
    }
}

/// Executes submissions until no more can arrive.
fn commit(queue: &Queue, gate: &Gate) {
    loop {
        let jobs = queue.next();
        if jobs.is_empty() {
            return;
        }
        let (mut wakers, mut needs_flush) = (Vec::with_capacity(jobs.len()), false);
        for job in jobs {
            let finished = job();
            needs_flush |= finished.needs_flush;
            wakers.extend(finished.waker);
        }
        if needs_flush {
            // The flush is in progress while the waiters are woken.
            gate.flush_ahead();
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A submission: resolves to the result of the call, which is still held at the gate. The waiter is woken when it leaves the gate.
pub struct Submitted<T> {
    state: Arc<Mutex<State<T>>>,
    is_followed: Arc<AtomicBool>,
}

enum State<T> {
    Queued(Option<Waker>),
    Running(Option<Waker>),
    Done(Gated<T>),
    /// The outcome was taken, or is not needed.
    Over,
}

fn locked<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Submitted<T> {
    /// Others wait behind it and may leave before it, so the waiter is woken as soon as it is done. The next poll sees what was done
    /// before.
    pub fn be_followed(&self) {
        self.is_followed.store(true, Ordering::SeqCst);
    }

    /// Withdraws the submission; false if it has begun. A withdrawn submission is never executed.
    pub fn cancel(&mut self) -> bool {
        let mut state = locked(&self.state);
        let queued = matches!(*state, State::Queued(_));
        if queued {
            *state = State::Over;
        }
        queued
    }
}

impl<T> Future for Submitted<T> {
    type Output = Gated<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Gated<T>> {
        let mut state = locked(&self.state);
        match &mut *state {
            State::Queued(waker) | State::Running(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            State::Done(_) | State::Over => match mem::replace(&mut *state, State::Over) {
                State::Done(held) => Poll::Ready(held),
                _ => Poll::Ready(Gated::failed(Code::JournalBlocked.error("it was taken back"))),
            },
        }
    }
}

impl Access {
    /// Does something that commits, if it need not wait for the journal's lock; `None` if it would have to: then nothing was
    /// done.
    pub fn now<T>(&self, act: impl FnOnce(&Access) -> Gated<T>) -> Option<Gated<T>> {
        let held = lock_within(Duration::ZERO, || act(self));
        (!held.is_blocked()).then_some(held)
    }

    /// Does something that commits on a thread that may wait for the journal, for at most [`SUBMISSION_PATIENCE`].
    pub fn patiently<T>(&self, act: impl FnOnce(&Access) -> Gated<T>) -> Gated<T> {
        let held = lock_within(SUBMISSION_PATIENCE, || act(self));
        if held.is_blocked() { Gated::failed(self.blocked()) } else { held }
    }

    /// Has something that commits done on another thread, after all that was submitted before. It waits for the journal for at
    /// most [`SUBMISSION_PATIENCE`].
    pub fn submit<T: Send + 'static>(&self, act: impl FnOnce(&Access) -> Gated<T> + Send + 'static) -> Submitted<T> {
        let state = Arc::new(Mutex::new(State::Queued(None)));
        let is_followed = Arc::<AtomicBool>::default();
        let followed = is_followed.clone();
        let (access, of_job, deadline) = (self.clone(), state.clone(), Instant::now() + SUBMISSION_PATIENCE);
        let job = move || {
            let begun = {
                let mut state = locked(&of_job);
                match &mut *state {
                    State::Queued(waker) => *state = State::Running(waker.take()),
                    _ => return Finished { waker: None, needs_flush: false },
                }
                deadline.saturating_duration_since(Instant::now())
            };
            let done =
                catch_unwind(AssertUnwindSafe(|| lock_within(begun.max(Duration::from_millis(1)), || act(&access))));
            let held = match done {
                Ok(held) if held.is_blocked() => Gated::failed(access.blocked()),
                Ok(held) => held,
                Err(_) => access.refuse(Code::HostInternal.error("the request could not be answered"), None),
            };
            let needs_flush = held.needs_flush();
            let mut state = locked(&of_job);
            let waker = match mem::replace(&mut *state, State::Done(held)) {
                State::Queued(waker) | State::Running(waker) => waker,
                State::Done(_) | State::Over => None,
            };
            // A waiter of only this submission cannot use it before the flush, so it is woken once.
            let is_early = |waker: &Waker| match &*state {
                State::Done(held) => !followed.load(Ordering::SeqCst) && held.wake_when_over(waker),
                _ => false,
            };
            Finished { waker: waker.filter(|waker| !is_early(waker)), needs_flush }
        };
        if !self.served.inner.submissions.add(self.served.gate(), Box::new(job)) {
            let full = format!("{SUBMISSIONS_MAX} appends wait for the journal");
            *locked(&state) = State::Done(Gated::failed(Code::JournalBlocked.error(full)));
        }
        Submitted { state, is_followed }
    }

    /// The error after a wait for the journal without success.
    pub fn blocked(&self) -> Error {
        let blocked = self.served.blocked().map(|blocked| blocked.to_string());
        Code::JournalBlocked
            .error(blocked.unwrap_or_else(|| "other processes held the journal's lock all the time".into()))
    }
}
