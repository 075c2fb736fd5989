//! The conditions that the gate waits for.

use millrace_journal::Position;
use millrace_wire::Result;
use std::task::Waker;

/// Says up to which position what a namespace has committed is safe: on its own disk, or wherever else it has to be.
pub trait Watermark: Send + Sync {
    /// Everything before this position is safe. It never goes back.
    fn reached(&self) -> Position;

    /// Blocks until everything before `upto` is safe.
    ///
    /// # Errors
    ///
    /// It can never be.
    fn wait(&self, upto: Position) -> Result<()>;

    /// Wakes `waker` once everything before `upto` is safe or can never be. It need not be woken for a change just before this call: check
    /// [`Watermark::reached`] again afterwards.
    fn wake(&self, upto: Position, waker: &Waker);

    /// An error if nothing further will become safe.
    fn check(&self) -> Result<()>;
}
