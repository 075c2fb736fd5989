//! Who waits for a log to grow, without holding a thread each.
//!
//! Appends of this process say so themselves ([`Watch::look`]); one thread sleeps in the kernel for those of others.

use millrace_journal::{Journal, Log};
use millrace_wire::Result;
use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long the thread sleeps at most: a removed log is noticed that late.
const SLICE: Duration = Duration::from_millis(500);

struct Waiting {
    log: Log,
    seen: u64,
    waker: Waker,
}

struct Shared {
    journal: Journal,
    waiting: Mutex<HashMap<u64, Waiting>>,
    any: AtomicBool,
    stopped: AtomicBool,
}

/// Those who wait for logs of one namespace.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    next: std::sync::atomic::AtomicU64,
}

impl Watch {
    pub fn start(journal: Journal) -> std::io::Result<Watch> {
        let shared = Arc::new(Shared {
            journal,
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        let builder = thread::Builder::new().name("millrace-watch".into());
        let thread = millrace_threads::spawn(builder, move || of_thread.watch())?;
        Ok(Watch { shared, thread: Some(thread), next: Default::default() })
    }

    /// Wakes those whose log has grown. Costs one load when nobody waits.
    pub fn look(&self) {
        if self.shared.any.load(Ordering::Acquire) {
            self.shared.look(false);
        }
    }

    /// Resolves once the newest record of `log` is above `seen`; an error if the log is removed.
    pub fn growth(self: &Arc<Self>, log: Log, seen: u64) -> Growth {
        Growth { watch: self.clone(), number: self.next.fetch_add(1, Ordering::Relaxed), log, seen }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            self.shared.journal.wake();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn watch(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            if !self.any.load(Ordering::Acquire) {
                thread::park_timeout(SLICE);
                continue;
            }
            let tail = self.journal.tail();
            self.look(false);
            if self.journal.wait(tail, SLICE) == tail {
                self.look(true); // Nothing was appended for a while: is every log still there?
            }
        }
    }

    fn look(&self, removals: bool) {
        let mut woken = Vec::new();
        if removals {
            // What others removed becomes known by reading their definitions; an error shows at the next use.
            let _ = self.journal.catalog();
        }
        let mut waiting = self.waiting();
        waiting.retain(|_, one| {
            let due = one.log.latest() > one.seen || (removals && one.log.check_exists().is_err());
            if due {
                woken.push(one.waker.clone());
            }
            !due
        });
        self.any.store(!waiting.is_empty(), Ordering::Release);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody waits for a log to grow.
pub struct Growth {
    watch: Arc<Watch>,
    number: u64,
    log: Log,
    seen: u64,
}

impl Future for Growth {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<u64>> {
        let grown = |log: &Log| Some(log.latest()).filter(|latest| *latest > self.seen);
        if let Some(latest) = grown(&self.log) {
            return Poll::Ready(Ok(latest));
        }
        self.log.check_exists()?;
        let shared = &self.watch.shared;
        let one = Waiting { log: self.log.clone(), seen: self.seen, waker: context.waker().clone() };
        let mut waiting = shared.waiting();
        waiting.insert(self.number, one);
        let first = !shared.any.swap(true, Ordering::AcqRel);
        drop(waiting);
        if first && let Some(thread) = &self.watch.thread {
            thread.thread().unpark();
        }
        // It may have grown just before this one joined those who wait.
        grown(&self.log).map_or(Poll::Pending, |latest| Poll::Ready(Ok(latest)))
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.watch.shared.waiting().remove(&self.number);
    }
}
