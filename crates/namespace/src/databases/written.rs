//! The watermark of one database: up to which number everything is written.

use super::WriterReport;
use crate::gate::Watermark;
use millrace_wire::{Code, DatabaseName, Error, Result};
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};

/// An answer that waits longer fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// A process that does not write looks this often at what the host has written.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Most answers that wait for one database.
const WAITERS_MAX: usize = 1 << 20;

/// How far a database is written.
pub struct Written {
    pub(super) name: DatabaseName,
    reached: AtomicU64,
    waiting: Mutex<Vec<Waiter>>,
    advanced: Condvar,
    /// What the writer says, in the process that writes.
    report: Mutex<WriterReport>,
    /// Asks another process for progress, where this one does not write.
    look: Option<Look>,
}

/// How a process that does not write learns from the host.
pub(super) struct Look {
    /// How far the host has written; an error if there is no host.
    pub reached: Box<dyn Fn() -> Result<u64> + Send + Sync>,
    /// What the host's writer says.
    pub report: Box<dyn Fn() -> WriterReport + Send + Sync>,
}

struct Waiter {
    upto: u64,
    until: Instant,
    waker: Waker,
}

impl Written {
    pub fn new(name: DatabaseName, reached: u64, look: Option<Look>) -> Arc<Self> {
        let (waiting, report) = (Mutex::default(), Mutex::default());
        Arc::new(Self { name, reached: reached.into(), waiting, advanced: Condvar::new(), report, look })
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to this number is written.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// How many answers wait.
    pub fn waiters(&self) -> usize {
        self.waiting().len()
    }

    /// Asks the host how far it is, if another process is the host.
    pub fn look(&self) -> Result<()> {
        if let Some(look) = &self.look {
            self.reached.fetch_max((look.reached)()?, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Notes what the writer says.
    pub fn note(&self, report: &WriterReport) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone_from(report);
    }

    /// What the writer says.
    pub fn report(&self) -> WriterReport {
        match &self.look {
            Some(look) => (look.report)(),
            None => self.report.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Everything up to this number is written.
    pub fn advance(&self, number: u64) {
        if self.reached.fetch_max(number, Ordering::AcqRel) < number {
            self.wake_those(|waiter| waiter.upto <= number);
        }
    }

    /// Wakes those that have waited too long.
    pub fn tick(&self) {
        let now = Instant::now();
        self.wake_those(|waiter| waiter.until <= now);
    }

    fn wake_those(&self, is_over: impl Fn(&Waiter) -> bool) {
        let mut waiting = self.waiting();
        let woken: Vec<Waiter> = waiting.extract_if(.., |waiter| is_over(waiter)).collect();
        self.advanced.notify_all();
        drop(waiting);
        woken.into_iter().for_each(|waiter| waiter.waker.wake());
    }
}

/// One answer's wait for a database, which ends after [`PATIENCE`].
pub(super) struct Awaited {
    written: Arc<Written>,
    until: Instant,
}

impl Awaited {
    pub fn begin(written: Arc<Written>) -> Arc<dyn Watermark> {
        Arc::new(Self { written, until: Instant::now() + PATIENCE })
    }

    fn too_long(&self) -> Error {
        let (name, seconds) = (&self.written.name, PATIENCE.as_secs());
        let mut detail = format!("database '{name}' has not got the writes within {seconds} s");
        if let Some(why) = self.written.report().words() {
            detail += &format!("; {}", why.trim_end_matches('.'));
        }
        Code::WritesWaiting.error(detail)
    }
}

impl Watermark for Awaited {
    fn reached(&self) -> u64 {
        self.written.reached()
    }

    fn wait(&self, upto: u64) -> Result<()> {
        let mut waiting = self.written.waiting();
        loop {
            if self.written.reached() >= upto {
                return Ok(());
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.too_long());
            }
            let pause = if self.written.look.is_some() { left.min(LOOK_EVERY) } else { left };
            let waited = self.written.advanced.wait_timeout(waiting, pause);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.written.look()?;
        }
    }

    fn wake(&self, upto: u64, waker: &Waker) {
        let mut waiting = self.written.waiting();
        if waiting.len() < WAITERS_MAX {
            waiting.push(Waiter { upto, until: self.until, waker: waker.clone() });
        } else {
            // It is asked again, which costs time but loses nothing.
            waker.wake_by_ref();
        }
    }

    fn check(&self) -> Result<()> {
        if self.until <= Instant::now() { Err(self.too_long()) } else { Ok(()) }
    }
}
