//! The conditions that the gate waits for.

use millrace_journal::Position;
use millrace_wire::Result;
use std::{sync::Arc, task::Waker};

/// Says how far something that answers depend on is safe: on the namespace's own disk, or wherever else it has to be.
///
/// What is counted is the watermark's own affair: the disk counts positions of the journal.
pub trait Watermark: Send + Sync {
    /// Everything before this point is safe. It never goes back.
    fn reached(&self) -> u64;

    /// Blocks until everything before `upto` is safe.
    ///
    /// # Errors
    ///
    /// It can never be, or the watermark's own patience is over.
    fn wait(&self, upto: u64) -> Result<()>;

    /// Wakes `waker` once everything before `upto` is safe or can never be. It need not be woken for a change just before this call: check
    /// [`Watermark::reached`] again afterwards.
    fn wake(&self, upto: u64, waker: &Waker);

    /// An error if nothing further will become safe.
    fn check(&self) -> Result<()>;

    /// Whether a flush of the namespace's own disk helps.
    fn is_disk(&self) -> bool {
        false
    }
}

/// What an answer shows, and so what must be on the namespace's disk before the answer leaves, and whose marks count.
#[derive(Clone, Copy, Debug)]
pub enum Shows<'a> {
    /// A record, by the position before which it is durable.
    Record(Position),
    /// Records, by these positions of each.
    Records(&'a [Position]),
    /// What the caller itself has committed, by the end of its batch.
    Batch(Position),
    /// What the newest records of a log say together, such as that a key has no value: the log's id, and where the journal ended.
    Log {
        /// The log.
        log: u32,
        /// The position up to which the journal must be durable.
        upto: Position,
    },
    /// A record because of which a run starts, by its end: of its batch, only the synchronous changes count.
    Start(Position),
    /// What the records of a log say to a run that reads it: only synchronous changes count.
    Synchronous {
        /// The log.
        log: u32,
        /// The position up to which the journal must be durable.
        upto: Position,
    },
    /// Something that can depend on any record before this position.
    All(Position),
    /// Names, numbers or states, but no value of a record: a report that was made when the journal ended here. No mark counts.
    Report(Position),
}

impl Shows<'_> {
    /// The position up to which the journal must be durable.
    pub fn upto(&self) -> Position {
        match *self {
            Self::Record(upto) | Self::Batch(upto) | Self::Start(upto) | Self::Report(upto) | Self::All(upto) => upto,
            Self::Log { upto, .. } | Self::Synchronous { upto, .. } => upto,
            Self::Records(all) => all.iter().copied().max().unwrap_or_default(),
        }
    }
}

/// Says which records depend on something that is not safe yet outside of the namespace, such as a database.
pub trait Marks: Send + Sync {
    /// Whether any record does. The gate asks this for each answer.
    fn any(&self) -> bool;

    /// Adds what an answer that shows this has to wait for, in addition to the disk.
    fn of(&self, shows: &Shows<'_>, needs: &mut Vec<Need>);
}

/// A watermark, and how far it must have come.
pub type Need = (Arc<dyn Watermark>, u64);
