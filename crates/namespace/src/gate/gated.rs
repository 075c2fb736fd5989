//! A value that may not leave yet.

use super::{Disk, Need, Watermark};
use millrace_journal::Position;
use millrace_wire::{Code, Error, Result};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

const ONCE: &str = "what is held leaves once";

/// Why a value need not wait at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// The part of a file that the host keeps until its client deploys it.
    Upload,
    /// A session of shared objects, which ends with the host.
    Session,
    /// A capability: it was derived from a key that is on disk, and what it uses up was waited for.
    Capability,
    /// A handle for calls that wait themselves.
    Handle,
}

/// What a value waits for.
pub(super) enum Waits {
    /// Nothing: it may leave.
    Nothing,
    /// The namespace's own disk.
    Disk(Arc<Disk>, Position),
    /// Each of these, the disk first if it is one of them.
    Several(Box<[Need]>),
}

/// How a value stands at one point in time.
enum Standing<'a> {
    /// Everything is reached.
    Free,
    /// This one is the first that is not.
    Before(&'a dyn Watermark, u64),
    /// One that is not reached will never be.
    Never(Error),
}

impl Waits {
    fn is_over(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Disk(disk, upto) => disk.reached() >= upto.get(),
            Self::Several(needs) => needs.iter().all(|(watermark, upto)| watermark.reached() >= *upto),
        }
    }

    fn standing(&self) -> Standing<'_> {
        match self {
            Self::Nothing => Standing::Free,
            Self::Disk(disk, upto) if disk.reached() >= upto.get() => Standing::Free,
            Self::Disk(disk, upto) => match disk.check() {
                Ok(()) => Standing::Before(&**disk, upto.get()),
                Err(error) => Standing::Never(error),
            },
            Self::Several(needs) => {
                let mut first = Standing::Free;
                for (watermark, upto) in needs.iter().filter(|(watermark, upto)| watermark.reached() < *upto) {
                    if let Err(error) = watermark.check() {
                        return Standing::Never(error);
                    }
                    if matches!(first, Standing::Free) {
                        first = Standing::Before(&**watermark, *upto);
                    }
                }
                first
            }
        }
    }

    /// Has `waker` woken at the first watermark that is not reached, so at most once for each; false if none is left.
    fn stand(&self, waker: &Waker) -> Result<bool> {
        loop {
            match self.standing() {
                Standing::Free => return Ok(false),
                Standing::Never(error) => return Err(error),
                Standing::Before(watermark, upto) => {
                    watermark.wake(upto, waker);
                    // It may have been reached, and the waiters woken, just before this one joined them.
                    if watermark.reached() < upto {
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn block(&self) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Disk(disk, upto) => disk.wait(upto.get()),
            Self::Several(needs) => needs.iter().try_for_each(|(watermark, upto)| watermark.wait(*upto)),
        }
    }
}

/// A value that may not leave yet. It comes out by awaiting it, or by [`Gated::wait`].
#[must_use = "what is held never leaves unless it is awaited"]
pub struct Gated<T> {
    pub(super) outcome: Option<Result<T>>,
    pub(super) waits: Waits,
}

impl<T> Gated<T> {
    /// A value that reveals nothing of the namespace's records, for this reason, so it need not wait.
    pub fn passed(value: T, _why: Free) -> Self {
        Self { outcome: Some(Ok(value)), waits: Waits::Nothing }
    }

    /// A refusal that reveals no durable state. Others wait at [`super::Gate::refuse`].
    pub fn failed(error: Error) -> Self {
        debug_assert!(!error.code().reveals(), "{error} reveals state, so it waits at the gate");
        Self { outcome: Some(Err(error)), waits: Waits::Nothing }
    }

    /// Whether nothing was done because the journal's lock was taken.
    pub fn is_blocked(&self) -> bool {
        matches!(&self.outcome, Some(Err(error)) if error.code() == Code::JournalBlocked)
    }

    /// The refusal that it holds. Only the host uses this: a caller gets it when it leaves.
    pub fn refusal(&self) -> Option<&Error> {
        self.outcome.as_ref().and_then(|outcome| outcome.as_ref().err())
    }

    /// Whether it waits for a flush.
    pub fn needs_flush(&self) -> bool {
        match &self.waits {
            Waits::Nothing => false,
            Waits::Disk(disk, upto) => disk.reached() < upto.get(),
            Waits::Several(needs) => {
                needs.first().is_some_and(|(first, upto)| first.is_disk() && first.reached() < *upto)
            }
        }
    }

    /// Has `waker` woken once the value may leave, or it is known that it never may; false if that is so now. The waker may be woken
    /// earlier, for each watermark once.
    pub fn wake_when_over(&self, waker: &Waker) -> bool {
        matches!(self.waits.stand(waker), Ok(true))
    }

    /// Blocks until the value may leave.
    ///
    /// # Errors
    ///
    /// What it waits for can never become safe.
    pub fn wait(mut self) -> Result<T> {
        self.waits.block()?;
        self.outcome.take().expect(ONCE)
    }

    /// The value, if it may be sent now.
    pub fn now(mut self) -> Result<Result<T>, Self> {
        if self.waits.is_over() { Ok(self.outcome.take().expect(ONCE)) } else { Err(self) }
    }

    /// The same hold on something made from the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Gated<U> {
        Gated { outcome: self.outcome.map(|outcome| outcome.map(f)), waits: self.waits }
    }
}

impl<T: Unpin> Future for Gated<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match self.waits.stand(context.waker())? {
            true => Poll::Pending,
            false => Poll::Ready(self.outcome.take().expect(ONCE)),
        }
    }
}
