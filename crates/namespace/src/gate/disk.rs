//! The disk of a namespace as a watermark: what is durable there, and one flush for all waiters.
//!
//! A loop that serves many connections calls [`Disk::turn`] before it sleeps: one flush then releases all held values. A thread flushes,
//! because it is not known how long a flush will take, and requests that do not wait for the disk must not be delayed.

use super::Watermark;
use millrace_journal::{Journal, Position};
use millrace_wire::Result;
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Waker,
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// A flush that a loop with one connection waits for by itself.
const QUICK: Duration = Duration::from_millis(1);

thread_local! {
    /// The disk for which something that this thread serves began to wait last, by its address, until its turn alone.
    static WAITS: Cell<usize> = const { Cell::new(0) };
}

/// How far a journal is durable, and who waits for it.
pub(super) struct Disk {
    journal: Journal,
    waiting: Mutex<Vec<(Position, Waker)>>,
    /// Whether any value waits, so that an idle thread need not take the lock.
    any: AtomicBool,
    /// Whether [`Disk::turn`] was ever called; otherwise each waiter wakes the flusher at once.
    driven: AtomicBool,
    /// Whether the last flush took less than [`QUICK`].
    quick: AtomicBool,
    /// A caller will wait soon: starts flushing its commit.
    wanted: AtomicBool,
    /// How many threads wait for a flush now.
    syncing: AtomicUsize,
    flusher: OnceLock<Option<Thread>>,
    myself: Weak<Disk>,
}

impl Disk {
    pub fn new(journal: Journal) -> Arc<Disk> {
        Arc::new_cyclic(|myself| Disk {
            journal,
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
            driven: AtomicBool::new(false),
            quick: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            syncing: AtomicUsize::new(0),
            flusher: OnceLock::new(),
            myself: myself.clone(),
        })
    }

    /// Flushes for all waiters. Call it when there is nothing else to do, before sleeping.
    pub fn turn(&self) {
        if !self.driven.load(Ordering::Relaxed) {
            self.driven.store(true, Ordering::Relaxed);
        }
        if self.any.load(Ordering::Acquire) {
            self.wake_flusher();
        }
    }

    /// [`Disk::turn`] by a loop with a single connection. It delays no other client, so it flushes by itself and saves two wake-ups, as
    /// long as flushes are quick and its own client waits.
    pub fn turn_alone(&self) {
        let waits = WAITS.get() == self.address();
        if waits {
            WAITS.set(0);
        }
        match waits && self.any.load(Ordering::Acquire) && self.quick.load(Ordering::Relaxed) {
            true => self.flush(),
            false => self.turn(),
        }
    }

    /// Begins a flush for callers that are about to wait for entries that were just committed.
    pub fn flush_ahead(&self) {
        self.wanted.store(true, Ordering::Release);
        self.wake_flusher();
    }

    /// Whether a thread waits for a flush at this moment.
    pub fn is_syncing(&self) -> bool {
        self.syncing.load(Ordering::Relaxed) > 0
    }

    fn sync(&self, upto: Position) -> Result<()> {
        self.syncing.fetch_add(1, Ordering::Relaxed);
        let synced = self.journal.sync(upto);
        self.syncing.fetch_sub(1, Ordering::Relaxed);
        synced
    }

    /// Without a thread it flushes where it is asked to.
    fn wake_flusher(&self) {
        let start = || {
            let myself = self.myself.clone();
            let builder = thread::Builder::new().name("millrace-flush".into());
            let thread = millrace_threads::spawn(builder, move || flush_for(&myself));
            thread.ok().map(|thread| thread.thread().clone())
        };
        match self.flusher.get_or_init(start) {
            Some(flusher) => flusher.unpark(),
            None => self.flush(),
        }
    }

    /// One flush for all waiters. If it fails, they learn of it through the journal's health.
    fn flush(&self) {
        let begun = Instant::now();
        let result = self.sync(self.journal.tail());
        self.quick.store(begun.elapsed() < QUICK, Ordering::Relaxed);
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
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Position, Waker)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watermark for Disk {
    fn reached(&self) -> u64 {
        self.journal.durable().get()
    }

    fn wait(&self, upto: u64) -> Result<()> {
        self.sync(Position::from_bytes(upto))
    }

    fn wake(&self, upto: u64, waker: &Waker) {
        WAITS.set(self.address());
        self.waiting().push((Position::from_bytes(upto), waker.clone()));
        self.any.store(true, Ordering::Release);
        if !self.driven.load(Ordering::Relaxed) {
            self.wake_flusher();
        }
    }

    fn check(&self) -> Result<()> {
        self.journal.check_health()
    }

    fn is_disk(&self) -> bool {
        true
    }
}

/// Flushes for the waiters for the disk. The thread exists as long as the gate, and sleeps when it is not needed.
fn flush_for(disk: &Weak<Disk>) {
    while let Some(disk) = disk.upgrade() {
        if disk.any.load(Ordering::Acquire) || disk.wanted.swap(false, Ordering::AcqRel) {
            disk.flush();
        } else {
            drop(disk);
            thread::park_timeout(Duration::from_secs(1));
        }
    }
}
