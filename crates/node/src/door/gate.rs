//! The gate: the one place that holds what leaves a namespace until what it depends on is safe.
//!
//! Inside, functions run ahead on records that are not durable yet. Whatever becomes visible outside is made into a
//! [`Held`], whose value comes out only here. Source: external synchrony for function workflows.
//!
//! Whoever serves many connections calls [`Gate::turn`] before it sleeps: one flush then releases all that is held, and
//! costs no wake-up of another thread. While the disk is slow, a thread of the gate flushes instead, so that those
//! who do not wait for the disk are not held up.

use millrace_journal::{Durability, Journal, Position};
use millrace_wire::{Error, Result};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// A flush that takes longer than this makes the disk count as slow.
const SLOW: Duration = Duration::from_millis(5);
/// So many quick flushes in a row make it count as quick again.
const QUICK_FLUSHES: u32 = 16;

/// Codes of errors that tell of the namespace's state.
const STATE_CODES: &str = "MR2";

/// Holds what waits for durability.
pub struct Gate {
    journal: Journal,
    waiting: Mutex<Vec<(Position, Waker)>>,
    /// Whether anybody waits; spares those who have nothing to do the lock.
    any: AtomicBool,
    slow: AtomicBool,
    /// Whether anybody ever called [`Gate::turn`]; otherwise the gate's own thread flushes.
    driven: AtomicBool,
    flusher: Mutex<Option<Thread>>,
    myself: Weak<Gate>,
}

impl Gate {
    pub(crate) fn new(journal: Journal) -> Arc<Gate> {
        Arc::new_cyclic(|myself| Gate {
            journal,
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            driven: AtomicBool::new(false),
            flusher: Mutex::default(),
            myself: myself.clone(),
        })
    }

    /// Holds `value` until everything before `upto` is as safe as asked, by default as the namespace says.
    pub(crate) fn hold<T>(self: &Arc<Self>, value: T, upto: Position, durability: Option<Durability>) -> Held<T> {
        let needs_disk = durability.unwrap_or(self.journal.durability()) == Durability::Disk;
        let gate = (needs_disk && self.journal.durable() < upto).then(|| self.clone());
        Held { outcome: Some(Ok(value)), upto, gate }
    }

    /// Holds a refusal: one that tells of the namespace's state is as true as that state is safe.
    pub(crate) fn refuse<T>(self: &Arc<Self>, error: Error, durability: Option<Durability>) -> Held<T> {
        let upto = if error.code().id().starts_with(STATE_CODES) { self.journal.tail() } else { Position::default() };
        let Held { upto, gate, .. } = self.hold((), upto, durability);
        Held { outcome: Some(Err(error)), upto, gate }
    }

    /// Flushes for everybody who waits. Call it when there is nothing else to do, before sleeping.
    pub fn turn(&self) {
        if !self.driven.load(Ordering::Relaxed) {
            self.driven.store(true, Ordering::Relaxed);
            self.slow.store(false, Ordering::Relaxed);
        }
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        if self.slow.load(Ordering::Relaxed)
            && let Some(flusher) = &*self.flusher()
        {
            return flusher.unpark();
        }
        if self.flush() > SLOW {
            self.become_slow();
        }
    }

    /// One flush for all who wait; returns how long it took. Who fails to flush hears of it through the journal's health.
    fn flush(&self) -> Duration {
        let start = Instant::now();
        let result = self.journal.sync(self.journal.tail());
        let took = start.elapsed();
        let durable = self.journal.durable();
        let mut waiting = self.waiting();
        let mut woken = Vec::with_capacity(waiting.len());
        waiting.retain(|(upto, waker)| {
            let released = result.is_err() || *upto <= durable;
            if released {
                woken.push(waker.clone());
            }
            !released
        });
        self.any.store(!waiting.is_empty(), Ordering::Release);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
        took
    }

    #[cold]
    fn become_slow(&self) {
        let mut flusher = self.flusher();
        if flusher.is_none() {
            let myself = self.myself.clone();
            // A gate that cannot have a thread goes on flushing where it is asked to.
            let thread = thread::Builder::new().name("millrace-flush".into()).spawn(move || flush_while_slow(&myself));
            *flusher = thread.ok().map(|thread| thread.thread().clone());
        }
        self.slow.store(flusher.is_some(), Ordering::Relaxed);
    }

    fn wait_for(&self, upto: Position, waker: &Waker) {
        self.waiting().push((upto, waker.clone()));
        self.any.store(true, Ordering::Release);
        if !self.driven.load(Ordering::Relaxed) && !self.slow.load(Ordering::Relaxed) {
            self.become_slow();
        }
        if self.slow.load(Ordering::Relaxed)
            && let Some(flusher) = &*self.flusher()
        {
            flusher.unpark();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Position, Waker)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flusher(&self) -> MutexGuard<'_, Option<Thread>> {
        self.flusher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Flushes while flushes are slow. The thread lives as long as the gate, asleep when it is not needed.
fn flush_while_slow(gate: &Weak<Gate>) {
    let mut quick = 0;
    while let Some(gate) = gate.upgrade() {
        if gate.any.load(Ordering::Acquire) {
            quick = if gate.flush() > SLOW { 0 } else { quick + 1 };
            if quick >= QUICK_FLUSHES && gate.driven.load(Ordering::Relaxed) {
                quick = 0;
                gate.slow.store(false, Ordering::Relaxed);
            }
        } else {
            drop(gate);
            thread::park_timeout(Duration::from_secs(1));
        }
    }
}

const ONCE: &str = "what is held leaves once";

/// A value that may not leave yet. It comes out by awaiting it, or by [`Held::wait`].
#[must_use = "what is held never leaves unless it is awaited"]
pub struct Held<T> {
    outcome: Option<Result<T>>,
    upto: Position,
    gate: Option<Arc<Gate>>,
}

impl<T> Held<T> {
    /// Blocks until the value may leave.
    ///
    /// # Errors
    ///
    /// The journal can no longer make anything durable.
    pub fn wait(mut self) -> Result<T> {
        if let Some(gate) = &self.gate {
            gate.journal.sync(self.upto)?;
        }
        self.outcome.take().expect(ONCE)
    }

    /// What is held, if it may leave now.
    pub fn now(mut self) -> Result<Result<T>, Self> {
        match &self.gate {
            Some(gate) if gate.journal.durable() < self.upto => Err(self),
            _ => Ok(self.outcome.take().expect(ONCE)),
        }
    }

    /// The same hold on something made from the value.
    pub fn map<U>(mut self, f: impl FnOnce(T) -> U) -> Held<U> {
        let outcome = self.outcome.take().map(|outcome| outcome.map(f));
        Held { outcome, upto: self.upto, gate: self.gate.take() }
    }
}

impl<T: Unpin> Future for Held<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Some(gate) = &self.gate
            && gate.journal.durable() < self.upto
        {
            gate.journal.check_health()?;
            gate.wait_for(self.upto, context.waker());
            // It may have been released, and those who wait woken, just before this one joined them.
            if gate.journal.durable() < self.upto {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.outcome.take().expect(ONCE))
    }
}
