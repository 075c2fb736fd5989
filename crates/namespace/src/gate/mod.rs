//! The gate: the one place that holds what leaves a namespace until what it depends on is safe.
//!
//! Inside, functions run ahead on records that are not durable yet. Whatever becomes visible outside is made into a
//! [`Held`], whose value comes out only here. Source: external synchrony for function workflows.
//!
//! Whoever serves many connections calls [`Gate::turn`] before it sleeps: one flush then releases all that is held. A thread
//! of the gate flushes: nobody knows before how long a flush will take, and who does not wait for the disk must not
//! be held up.

mod site;

pub use site::Site;

use millrace_journal::{Durability, Journal, Position};
use millrace_wire::{Code, Error, Result};
use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// A flush that a loop with one connection waits for by itself.
const QUICK: Duration = Duration::from_millis(1);

/// Whether an error tells of nothing that has to be true later: of the request alone, of a moment that is over when it is
/// heard, or of a journal that makes nothing durable any more.
fn tells_no_state(code: Code) -> bool {
    use Code::*;
    let of_request = matches!(
        code,
        BatchTooLarge
            | HistoryInvalid
            | AddressInvalid
            | NotAdmitted
            | LogInternal
            | KeyInvalid
            | HttpPathUnknown
            | HttpParameterInvalid
    );
    let of_moment = matches!(code, Busy | OutboxFull | RoomExhausted | ClockAhead | WaitTimeout | JournalBlocked);
    // A disk that refuses would make nothing durable either.
    let of_disk = matches!(code, DiskFull | JournalFull | ReadOnly | Io | AppendUncertain);
    let of_end = matches!(code, FlushFailed | JournalPoisoned | ForkedHandle);
    of_request || of_moment || of_disk || of_end || code.id().starts_with("MR1")
}

thread_local! {
    /// The gate at which something that this thread serves began to wait last, by its address, until that gate's turn alone.
    static WAITS: Cell<usize> = const { Cell::new(0) };
}

/// Holds what waits for durability.
pub struct Gate {
    journal: Journal,
    waiting: Mutex<Vec<(Position, Waker)>>,
    /// Whether anybody waits; spares those who have nothing to do the lock.
    any: AtomicBool,
    /// Whether anybody ever called [`Gate::turn`]; otherwise who waits wakes the flusher at once.
    driven: AtomicBool,
    /// Whether the last flush took less than [`QUICK`].
    quick: AtomicBool,
    /// Somebody will wait soon: what was committed for it is to be flushed already.
    wanted: AtomicBool,
    /// How many threads wait for a flush now.
    syncing: AtomicUsize,
    flusher: OnceLock<Option<Thread>>,
    myself: Weak<Gate>,
    /// Sites that hold nothing, one bit each.
    #[cfg(debug_assertions)]
    out: std::sync::atomic::AtomicU32,
}

impl Gate {
    /// The gate of this journal.
    pub fn new(journal: Journal) -> Arc<Gate> {
        Arc::new_cyclic(|myself| Gate {
            journal,
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
            driven: AtomicBool::new(false),
            quick: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            syncing: AtomicUsize::new(0),
            flusher: OnceLock::new(),
            myself: myself.clone(),
            #[cfg(debug_assertions)]
            out: Default::default(),
        })
    }

    /// From now on this site holds nothing: for tests that have to see it missed.
    #[cfg(debug_assertions)]
    pub fn take_out(&self, site: Site) {
        self.out.fetch_or(1 << site as u32, Ordering::Relaxed);
    }

    #[cfg(debug_assertions)]
    /// Whether this site holds nothing.
    pub fn is_out(&self, site: Site) -> bool {
        self.out.load(Ordering::Relaxed) & (1 << site as u32) != 0
    }

    #[cfg(not(debug_assertions))]
    pub const fn is_out(&self, _site: Site) -> bool {
        false
    }

    /// Holds `value` until everything before `upto` is as safe as asked, by default as the namespace says.
    pub fn hold<T>(self: &Arc<Self>, site: Site, value: T, upto: Position, durability: Option<Durability>) -> Held<T> {
        let is_disk = durability.unwrap_or(self.journal.durability()) == Durability::Disk;
        let needs_disk = is_disk && !self.is_out(site);
        let gate = (needs_disk && self.journal.durable() < upto).then(|| self.clone());
        Held { outcome: Some(Ok(value)), upto, gate }
    }

    /// Holds a refusal: one that tells of the namespace's state is as true as that state is safe.
    pub fn refuse<T>(self: &Arc<Self>, error: Error, durability: Option<Durability>) -> Held<T> {
        let upto = if tells_no_state(error.code()) { Position::default() } else { self.journal.tail() };
        let Held { upto, gate, .. } = self.hold(Site::Refusal, (), upto, durability);
        Held { outcome: Some(Err(error)), upto, gate }
    }

    /// Has everybody who waits flushed for. Call it when there is nothing else to do, before sleeping.
    pub fn turn(&self) {
        if !self.driven.load(Ordering::Relaxed) {
            self.driven.store(true, Ordering::Relaxed);
        }
        if self.any.load(Ordering::Acquire) {
            self.wake_flusher();
        }
    }

    /// [`Gate::turn`] by a loop with a single connection. It holds up nobody else, so it flushes itself and spares its client
    /// two wake-ups, as long as flushes are quick and it is its own client that waits.
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

    /// Begins a flush for those who are about to wait for what was committed just now.
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

    /// A gate that cannot have a thread flushes where it is asked to.
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

    /// One flush for all who wait. Who fails to flush hears of it through the journal's health.
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

    fn wait_for(&self, upto: Position, waker: &Waker) {
        WAITS.set(self.address());
        self.waiting().push((upto, waker.clone()));
        self.any.store(true, Ordering::Release);
        if !self.driven.load(Ordering::Relaxed) {
            self.wake_flusher();
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Position, Waker)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Flushes for those who wait at the gate. The thread lives as long as the gate, asleep when it is not needed.
fn flush_for(gate: &Weak<Gate>) {
    while let Some(gate) = gate.upgrade() {
        if gate.any.load(Ordering::Acquire) || gate.wanted.swap(false, Ordering::AcqRel) {
            gate.flush();
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
    /// What tells nobody anything yet.
    pub fn passed(value: T) -> Self {
        Self { outcome: Some(Ok(value)), upto: Position::default(), gate: None }
    }

    /// A refusal that tells of nothing that has to be true later.
    pub fn failed(error: Error) -> Self {
        Self { outcome: Some(Err(error)), upto: Position::default(), gate: None }
    }

    /// Whether nothing was done because the journal's lock was taken.
    pub fn is_blocked(&self) -> bool {
        matches!(&self.outcome, Some(Err(error)) if error.code() == Code::JournalBlocked)
    }

    /// Whether it waits for a flush.
    pub fn needs_flush(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.journal.durable() < self.upto)
    }

    /// Blocks until the value may leave.
    ///
    /// # Errors
    ///
    /// The journal can no longer make anything durable.
    pub fn wait(mut self) -> Result<T> {
        if let Some(gate) = &self.gate {
            gate.sync(self.upto)?;
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
