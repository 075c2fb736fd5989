//! The gate: the one place where answers wait until everything that they depend on is safe.
//!
//! Inside, functions work on records that are not durable yet. Everything that becomes visible outside is wrapped in a [`Gated`], whose
//! value is released only here. Source: external synchrony for function workflows.
//!
//! ```text
//!  commit --> hold(value, upto) --> Held --await--> Watermark: reached() >= upto? --> value
//!                                                   (the disk: one flush for all who wait)
//! ```

mod disk;
mod site;
mod watermark;

pub use site::Site;
pub use watermark::Watermark;

use disk::Disk;
use millrace_journal::{Durability, Journal, Position};
use millrace_wire::{Code, Error, Result};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Holds what waits for durability.
pub struct Gate {
    journal: Journal,
    disk: Arc<Disk>,
    /// Sites that hold nothing, one bit each.
    #[cfg(debug_assertions)]
    out: std::sync::atomic::AtomicU32,
}

impl Gate {
    /// The gate of this journal.
    pub fn new(journal: Journal) -> Arc<Gate> {
        Arc::new(Gate {
            disk: Disk::new(journal.clone()),
            journal,
            #[cfg(debug_assertions)]
            out: Default::default(),
        })
    }

    /// From now on this site holds nothing: for tests that have to see it missed.
    #[cfg(debug_assertions)]
    pub fn take_out(&self, site: Site) {
        self.out.fetch_or(1 << site as u32, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether this site holds nothing.
    #[cfg(debug_assertions)]
    pub fn is_out(&self, site: Site) -> bool {
        self.out.load(std::sync::atomic::Ordering::Relaxed) & (1 << site as u32) != 0
    }

    /// Whether this site holds nothing.
    #[cfg(not(debug_assertions))]
    pub const fn is_out(&self, _site: Site) -> bool {
        false
    }

    /// Holds `value` until everything before `upto` is as safe as asked, by default as the namespace says.
    pub fn hold<T>(self: &Arc<Self>, site: Site, value: T, upto: Position, durability: Option<Durability>) -> Gated<T> {
        let is_disk = durability.unwrap_or(self.journal.durability()) == Durability::Disk;
        let needs_disk = is_disk && !self.is_out(site);
        let watermark = (needs_disk && self.disk.reached() < upto).then(|| self.disk.clone() as Arc<dyn Watermark>);
        Gated { outcome: Some(Ok(value)), upto, watermark }
    }

    /// Holds a refusal: if it reveals the namespace's state, it waits until that state is safe.
    pub fn refuse<T>(self: &Arc<Self>, error: Error, durability: Option<Durability>) -> Gated<T> {
        let upto = if error.code().reveals() { self.journal.tail() } else { Position::default() };
        let Gated { upto, watermark, .. } = self.hold(Site::Refusal, (), upto, durability);
        Gated { outcome: Some(Err(error)), upto, watermark }
    }

    /// Flushes for all waiters. Call it when there is nothing else to do, before sleeping.
    pub fn turn(&self) {
        self.disk.turn();
    }

    /// [`Gate::turn`] by a loop with a single connection. It delays no other client, so it flushes by itself and saves two wake-ups, as
    /// long as flushes are quick and its own client waits.
    pub fn turn_alone(&self) {
        self.disk.turn_alone();
    }

    /// Begins a flush for callers that are about to wait for entries that were just committed.
    pub fn flush_ahead(&self) {
        self.disk.flush_ahead();
    }

    /// Whether a thread waits for a flush at this moment.
    pub fn is_syncing(&self) -> bool {
        self.disk.is_syncing()
    }
}

const ONCE: &str = "what is held leaves once";

/// A value that may not leave yet. It comes out by awaiting it, or by [`Gated::wait`].
#[must_use = "what is held never leaves unless it is awaited"]
pub struct Gated<T> {
    outcome: Option<Result<T>>,
    upto: Position,
    /// The condition that it waits for; `None` if it may be sent.
    watermark: Option<Arc<dyn Watermark>>,
}

impl<T> Gated<T> {
    /// A value that reveals nothing, so it need not wait.
    pub fn passed(value: T) -> Self {
        Self { outcome: Some(Ok(value)), upto: Position::default(), watermark: None }
    }

    /// A refusal that reveals no durable state.
    pub fn failed(error: Error) -> Self {
        Self { outcome: Some(Err(error)), upto: Position::default(), watermark: None }
    }

    /// Whether nothing was done because the journal's lock was taken.
    pub fn is_blocked(&self) -> bool {
        matches!(&self.outcome, Some(Err(error)) if error.code() == Code::JournalBlocked)
    }

    /// Whether it waits for a flush.
    pub fn needs_flush(&self) -> bool {
        self.watermark.as_ref().is_some_and(|watermark| watermark.reached() < self.upto)
    }

    /// Has `waker` woken once the value may leave, or it is known that it never may; false if that is so now.
    pub fn wake_when_over(&self, waker: &Waker) -> bool {
        let Some(watermark) = &self.watermark else { return false };
        if watermark.reached() >= self.upto || watermark.check().is_err() {
            return false;
        }
        watermark.wake(self.upto, waker);
        // It may have been released just before.
        watermark.reached() < self.upto
    }

    /// Blocks until the value may leave.
    ///
    /// # Errors
    ///
    /// The journal can no longer make anything durable.
    pub fn wait(mut self) -> Result<T> {
        if let Some(watermark) = &self.watermark {
            watermark.wait(self.upto)?;
        }
        self.outcome.take().expect(ONCE)
    }

    /// The value, if it may be sent now.
    pub fn now(mut self) -> Result<Result<T>, Self> {
        match &self.watermark {
            Some(watermark) if watermark.reached() < self.upto => Err(self),
            _ => Ok(self.outcome.take().expect(ONCE)),
        }
    }

    /// The same hold on something made from the value.
    pub fn map<U>(mut self, f: impl FnOnce(T) -> U) -> Gated<U> {
        let outcome = self.outcome.take().map(|outcome| outcome.map(f));
        Gated { outcome, upto: self.upto, watermark: self.watermark.take() }
    }
}

impl<T: Unpin> Future for Gated<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Some(watermark) = &self.watermark
            && watermark.reached() < self.upto
        {
            watermark.check()?;
            watermark.wake(self.upto, context.waker());
            // It may have been released, and the waiters woken, just before this one joined them.
            if watermark.reached() < self.upto {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.outcome.take().expect(ONCE))
    }
}
