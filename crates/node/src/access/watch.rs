//! Waiters for a log to grow, without a thread for each.
//!
//! Commits of this process notify it ([`Journal::on_commit`]); one thread sleeps in the kernel for commits of other processes.

use super::{Served, blocked::Monitor};
use millrace_journal::{Function, Journal, Log, Position};
use millrace_wire::Result;
use std::{
    collections::{HashMap, hash_map::Entry},
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often the thread checks whether the logs with waiters still exist.
const SLICE: Duration = Duration::from_millis(500);
/// How often it checks whether the journal is blocked, while there are no waiters.
const REST: Duration = Duration::from_secs(2);

/// Those who wait for one log. However many they are, an append to another log costs them one look together.
struct Group {
    log: Log,
    /// For each waiter, by its number, the last seqno that it has seen, and its waker.
    waiting: HashMap<u64, (u64, Waker)>,
    /// The least that any of them has seen.
    least: u64,
}

struct Shared {
    journal: Journal,
    monitor: Arc<Monitor>,
    /// Other checks every few seconds.
    also: Box<dyn Fn() + Send + Sync>,
    /// By the log's id.
    waiting: Mutex<HashMap<u32, Group>>,
    /// The runs whose end is waited for, by the waiter's number.
    runs: Mutex<HashMap<u64, (Function, u64, Waker)>>,
    /// Those who wait for any entry, by the waiter's number, and the tail that each has seen.
    tails: Mutex<HashMap<u64, (Position, Waker)>>,
    any: Arc<AtomicBool>,
    /// Whether commits of this process notify this watcher.
    is_told: bool,
    stopped: AtomicBool,
}

/// Those who wait for logs of one namespace.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    next: AtomicU64,
}

impl Watch {
    pub fn start(journal: Journal, monitor: Arc<Monitor>, also: Box<dyn Fn() + Send + Sync>) -> std::io::Result<Watch> {
        let any = Arc::new(AtomicBool::new(false));
        let shared = Arc::new_cyclic(|myself: &Weak<Shared>| {
            let (of_commits, any_there) = (myself.clone(), any.clone());
            let reported = move || {
                // Between the commit and the look: one of the two sees the other, see `Growth`.
                fence(Ordering::SeqCst);
                if any_there.load(Ordering::Relaxed)
                    && let Some(shared) = of_commits.upgrade()
                {
                    shared.look(false);
                }
            };
            // If several watch one journal, the first is notified; the others sleep in the kernel for all commits.
            let is_told = journal.on_commit(Box::new(reported));
            Shared {
                journal,
                monitor,
                also,
                waiting: Mutex::default(),
                runs: Mutex::default(),
                tails: Mutex::default(),
                any,
                is_told,
                stopped: AtomicBool::new(false),
            }
        });
        let of_thread = shared.clone();
        let builder = thread::Builder::new().name("millrace-watch".into());
        let thread = millrace_threads::spawn(builder, move || of_thread.watch())?;
        Ok(Watch { shared, thread: Some(thread), next: AtomicU64::new(0) })
    }

    /// Resolves once the newest record of `log` is above `seen`, or the log is removed.
    pub fn growth(self: &Arc<Self>, log: Log, seen: u64) -> Growth {
        Growth { watch: self.clone(), number: self.next.fetch_add(1, Ordering::Relaxed), log, seen }
    }

    /// Resolves once the run of `function` with this number has ended. It may not resolve if the function is removed.
    pub fn end(self: &Arc<Self>, function: Function, run: u64) -> End {
        End { watch: self.clone(), number: self.next.fetch_add(1, Ordering::Relaxed), function, run }
    }

    /// Resolves once the journal has entries behind `seen`.
    fn advance(self: &Arc<Self>, seen: Position) -> Advance {
        Advance { watch: self.clone(), number: self.next.fetch_add(1, Ordering::Relaxed), seen }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            self.shared.journal.wake();
            millrace_threads::join(thread);
        }
    }
}

impl Shared {
    fn watch(&self) {
        let mut looked = Instant::now();
        loop {
            let wakes = self.journal.wakes();
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            self.monitor.look();
            (self.also)();
            if !self.any.load(Ordering::Acquire) {
                thread::park_timeout(REST);
                continue;
            }
            let tail = self.journal.tail();
            // However much is appended meanwhile: is every log still there?
            let removals = looked.elapsed() >= SLICE;
            if removals {
                looked = Instant::now();
            }
            self.look(removals);
            if self.is_told {
                self.journal.wait_foreign(tail, wakes, SLICE);
            } else {
                self.journal.wait(tail, SLICE);
            }
        }
    }

    fn look(&self, removals: bool) {
        let mut woken = Vec::new();
        if removals {
            // Removals by other processes are detected by reading the definitions; an error appears at the next use.
            let _ = self.journal.catalog();
        }
        let mut waiting = self.waiting();
        waiting.retain(|_, group| {
            let gone = removals && group.log.check_exists().is_err();
            let latest = group.log.latest();
            if latest > group.least || gone {
                group.waiting.retain(|_, (seen, waker)| {
                    let due = latest > *seen || gone;
                    if due {
                        woken.push(waker.clone());
                    }
                    !due
                });
                group.least = group.waiting.values().map(|(seen, _)| *seen).min().unwrap_or(u64::MAX);
            }
            !group.waiting.is_empty()
        });
        let mut runs = self.runs();
        runs.retain(|_, (function, run, waker)| {
            let over = has_ended(function, *run);
            if over {
                woken.push(waker.clone());
            }
            !over
        });
        let (mut tails, tail) = (self.tails(), self.journal.tail());
        tails.retain(|_, (seen, waker)| {
            let due = tail > *seen;
            if due {
                woken.push(waker.clone());
            }
            !due
        });
        self.any.store(!waiting.is_empty() || !runs.is_empty() || !tails.is_empty(), Ordering::Release);
        drop((waiting, runs, tails));
        woken.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, Group>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<u64, (Function, u64, Waker)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tails(&self) -> MutexGuard<'_, HashMap<u64, (Position, Waker)>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter for a log to grow.
pub struct Growth {
    watch: Arc<Watch>,
    number: u64,
    log: Log,
    seen: u64,
}

impl Future for Growth {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let has_grown = |log: &Log| log.latest() > self.seen;
        if has_grown(&self.log) || self.log.check_exists().is_err() {
            return Poll::Ready(());
        }
        let shared = &self.watch.shared;
        let mut waiting = shared.waiting();
        let new = || Group { log: self.log.clone(), waiting: HashMap::new(), least: u64::MAX };
        let group = waiting.entry(self.log.id()).or_insert_with(new);
        group.waiting.insert(self.number, (self.seen, context.waker().clone()));
        group.least = group.least.min(self.seen);
        let first = !shared.any.swap(true, Ordering::AcqRel);
        drop(waiting);
        if first && let Some(thread) = &self.watch.thread {
            thread.thread().unpark();
        }
        // It may have grown just before this waiter was added.
        fence(Ordering::SeqCst);
        if has_grown(&self.log) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        let mut waiting = self.watch.shared.waiting();
        if let Entry::Occupied(mut group) = waiting.entry(self.log.id()) {
            group.get_mut().waiting.remove(&self.number);
            if group.get().waiting.is_empty() {
                group.remove();
            }
        }
    }
}

fn has_ended(function: &Function, run: u64) -> bool {
    function.run(run).is_none_or(|item| item.closed != 0)
}

/// A waiter for a run to end.
pub struct End {
    watch: Arc<Watch>,
    number: u64,
    function: Function,
    run: u64,
}

impl Future for End {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if has_ended(&self.function, self.run) {
            return Poll::Ready(());
        }
        let shared = &self.watch.shared;
        let mut runs = shared.runs();
        runs.insert(self.number, (self.function.clone(), self.run, context.waker().clone()));
        let first = !shared.any.swap(true, Ordering::AcqRel);
        drop(runs);
        if first && let Some(thread) = &self.watch.thread {
            thread.thread().unpark();
        }
        // It may have ended just before this waiter was added.
        fence(Ordering::SeqCst);
        if has_ended(&self.function, self.run) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.watch.shared.runs().remove(&self.number);
    }
}

/// A waiter for any entry of the journal.
pub struct Advance {
    watch: Arc<Watch>,
    number: u64,
    seen: Position,
}

impl Future for Advance {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = &self.watch.shared;
        if shared.journal.tail() > self.seen {
            return Poll::Ready(());
        }
        let mut tails = shared.tails();
        tails.insert(self.number, (self.seen, context.waker().clone()));
        let first = !shared.any.swap(true, Ordering::AcqRel);
        drop(tails);
        if first && let Some(thread) = &self.watch.thread {
            thread.thread().unpark();
        }
        // It may have grown just before this waiter was added.
        fence(Ordering::SeqCst);
        if shared.journal.tail() > self.seen { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Advance {
    fn drop(&mut self) {
        self.watch.shared.tails().remove(&self.number);
    }
}

/// Which records were appended, for waking those who read them through the gate.
pub struct AppendedRecords {
    /// The log, the number and the position of each.
    pub records: Vec<(Log, u64, Position)>,
    /// Where to look next.
    pub next: Position,
    /// Whether entries were passed over: retention was faster, or they are damaged.
    pub gap: bool,
}

impl Served {
    /// The end of the journal.
    pub fn tail(&self) -> Position {
        self.inner.namespace.journal().tail()
    }

    /// Resolves once the journal has entries behind `seen`.
    pub fn advance(&self, seen: Position) -> Advance {
        self.inner.watch.advance(seen)
    }

    /// What was appended from a position on, of at most `count` entries. Nothing of this is for a caller: it only says which logs have
    /// grown, like [`Access::growth`](super::Access::growth).
    pub fn appended(&self, from: Position, count: usize) -> Result<AppendedRecords> {
        let journal = self.inner.namespace.journal();
        let tail = journal.tail();
        let (mut scan, mut records, mut gap) = (journal.scan(from), Vec::new(), false);
        let (mut next, mut damage) = (None, None);
        let mut catalog = journal.catalog()?;
        for _ in 0..count {
            let at = scan.position();
            let appended = match scan.next() {
                // Behind the last entry there may be free space up to the tail.
                Ok(None) => {
                    next = Some(tail.max(at));
                    break;
                }
                Ok(Some(entry)) => {
                    let appends = entry.kind.name() == "APPEND" && entry.seqno > 0;
                    appends.then_some((entry.subject, entry.seqno, entry.position))
                }
                Err(error) => {
                    damage = Some(error);
                    None
                }
            };
            if let Some(error) = damage.take() {
                if scan.position() <= at {
                    return Err(error);
                }
                gap = true;
            }
            let Some((id, seqno, position)) = appended else { continue };
            if catalog.log_by_id(id).is_none() {
                catalog = journal.catalog()?; // The log is newer than what was read before.
            }
            if let Some(log) = catalog.log_by_id(id) {
                records.push((log.clone(), seqno, position));
            }
        }
        gap |= scan.gap();
        Ok(AppendedRecords { records, next: next.unwrap_or_else(|| scan.position()), gap })
    }
}
