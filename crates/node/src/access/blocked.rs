//! What blocks a journal that is not broken: the holder of its lock does not release it, or the disk does not answer. Checking takes no
//! lock and does not wait.

use crate::Gate;
use millrace_journal::{Journal, Position, Writer, medium::Holder};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Waits shorter than this are not reported.
const PATIENCE: Duration = Duration::from_secs(1);

/// The condition that the journal waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Another process, which has the journal's lock.
    Process(Option<Holder>),
    /// The disk, with a write of this host.
    Write,
    /// The disk, with a flush.
    Flush,
}

/// A blocked journal, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The condition that it waits for.
    pub by: Obstacle,
    /// For how long, at least.
    pub time: Duration,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs();
        match &self.by {
            Obstacle::Process(Some(Holder { pid, command, stopped })) => {
                write!(f, "process {pid} ({command}) has held the journal's lock for {seconds} s")?;
                if *stopped { write!(f, "; it is stopped: `kill -CONT {pid}` continues it") } else { Ok(()) }
            }
            Obstacle::Process(None) => {
                write!(f, "another process has held the journal's lock for {seconds} s")
            }
            Obstacle::Write => write!(f, "the disk has not answered a write to the journal for {seconds} s"),
            Obstacle::Flush => write!(f, "the disk has not answered a flush of the journal for {seconds} s"),
        }
    }
}

/// Checks a journal from time to time.
pub(crate) struct Monitor {
    journal: Journal,
    gate: Arc<Gate>,
    seen: Mutex<Seen>,
}

/// The observation at the last check, and since when it holds.
#[derive(Default)]
struct Seen {
    /// The owner of the lock, and the tail.
    writer: Option<(Writer, Position, Instant)>,
    /// The durable position while a caller waited for a flush.
    flush: Option<(Position, Instant)>,
}

impl Monitor {
    pub fn new(journal: Journal, gate: Arc<Gate>) -> Self {
        Self { journal, gate, seen: Mutex::default() }
    }

    /// Takes note of how things are. To be called a few times within [`PATIENCE`].
    pub fn look(&self) {
        self.look_at(Instant::now());
    }

    fn look_at(&self, now: Instant) -> (Option<(Writer, Duration)>, Option<Duration>) {
        let (tail, durable) = (self.journal.tail(), self.journal.durable());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.writer = self.journal.writer().map(|writer| match seen.writer {
            Some((before, at, since)) if (before, at) == (writer, tail) => (writer, tail, since),
            _ => (writer, tail, now),
        });
        let waits = durable < tail && self.gate.is_syncing();
        seen.flush = waits.then(|| match seen.flush {
            Some((before, since)) if before == durable => (durable, since),
            _ => (durable, now),
        });
        let writer = seen.writer.map(|(writer, _, since)| (writer, now.saturating_duration_since(since)));
        (writer, seen.flush.map(|(_, since)| now.saturating_duration_since(since)))
    }

    /// The current blockage of the journal.
    pub fn blocked(&self) -> Option<Blocked> {
        let (writer, flush) = self.look_at(Instant::now());
        if let Some((writer, time)) = writer.filter(|(_, time)| *time >= PATIENCE) {
            let by = match writer {
                Writer::Own => Obstacle::Write,
                Writer::Other(slot) => Obstacle::Process(self.journal.holder(slot)),
            };
            return Some(Blocked { by, time });
        }
        flush.filter(|time| *time >= PATIENCE).map(|time| Blocked { by: Obstacle::Flush, time })
    }
}
