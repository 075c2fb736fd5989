//! The flush of what the driver has written, on a thread of its own, and what the driver does meanwhile.
//!
//! ```text
//!  driver   write ── begin ── acknowledgements, heartbeats, commits ── ended: release, take what came ── write ── …
//!  flusher            └─────────── Journal::sync ──────────────────────┘
//! ```
//!
//! New entries and requests wait for the end of the flush, so that one flush serves many. [`Replica::take_ahead`] says why the rest may
//! be taken before. A turn that is written during a flush is flushed by the next one; [`Held`] releases turns in the order in which they
//! were written, and none before its own writes and those of all turns in front of it are on disk.

use super::{Driver, GATHER_MAX, GATHER_MAX_BYTES, HOST, Incoming, Input, Shared, locked};
use crate::cluster::INPUTS_MAX;
use millrace_journal::Position;
use millrace_wire::{Error, Result};
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Written turns in order, each with the position up to which the journal has to be on disk before it counts.
pub(super) struct Held<T> {
    turns: VecDeque<(Position, T)>,
    /// What the last of them needs, what is on disk, and what will be when the flush ends that is under way.
    needed: Position,
    durable: Position,
    flushing: Option<Position>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        let none = Position::default();
        Self { turns: VecDeque::new(), needed: none, durable: none, flushing: None }
    }
}

impl<T> Held<T> {
    /// Adds a turn: with the end of its writes, if they have to be flushed.
    pub fn push(&mut self, end: Option<Position>, turn: T) {
        self.needed = self.needed.max(end.unwrap_or_default());
        self.turns.push_back((self.needed, turn));
    }

    /// The next turn whose writes, like those of all before it, are on disk.
    pub fn next(&mut self) -> Option<T> {
        self.turns.pop_front_if(|(needed, _)| *needed <= self.durable).map(|(_, turn)| turn)
    }

    /// Up to where to flush now; nothing if nothing waits for a flush, or one is under way.
    pub fn begin(&mut self) -> Option<Position> {
        let begins = self.flushing.is_none() && self.needed > self.durable;
        begins.then(|| *self.flushing.insert(self.needed))
    }

    pub fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// The flush has ended.
    pub fn ended(&mut self) {
        if let Some(end) = self.flushing.take() {
            self.durable = self.durable.max(end);
        }
    }
}

/// The thread that flushes.
pub(super) struct Flusher {
    orders: Option<Sender<Position>>,
    outcomes: Receiver<Result<()>>,
    /// An outcome that was waited for.
    outcome: Option<Result<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flusher {
    pub fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (orders, ordered) = channel::<Position>();
        let (done, outcomes) = channel();
        let (journal, inputs) = (shared.namespace.journal().clone(), shared.inputs.clone());
        let flush = move || {
            for end in ordered {
                if done.send(journal.sync(end)).is_err() {
                    return;
                }
                // If there is no room, the driver has inputs, and looks behind each.
                let _ = inputs.try_send(Input::Flushed);
            }
        };
        let thread = millrace_threads::spawn(thread::Builder::new().name("millrace-gsync".into()), flush)?;
        Ok(Self { orders: Some(orders), outcomes, outcome: None, thread: Some(thread) })
    }

    pub fn begin(&self, end: Position) {
        // The thread ends with the driver only.
        let _ = self.orders.as_ref().map(|orders| orders.send(end));
    }

    /// The outcome of a flush that has ended.
    pub fn ended(&mut self) -> Option<Result<()>> {
        self.outcome.take().or_else(|| self.outcomes.try_recv().ok())
    }

    /// Waits until the flush has ended.
    fn wait(&mut self, patience: Duration) {
        self.outcome = self.outcome.take().or_else(|| self.outcomes.recv_timeout(patience).ok());
    }

    pub fn end(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            millrace_threads::join(thread);
        }
    }
}

/// Something for after the flush.
pub(super) enum Later {
    Input(Input),
    Messages { group: u32, messages: Vec<Incoming>, bytes: usize },
}

impl Later {
    fn bytes(&self) -> usize {
        match self {
            Later::Input(input) => input.bytes(),
            Later::Messages { bytes, .. } => *bytes,
        }
    }

    pub fn refuse(self, error: Error) {
        if let Later::Input(input) = self {
            input.refuse(error);
        }
    }
}

impl Driver {
    /// Waits for inputs until the next tick at most, and takes those that may be taken; false if there will be none.
    pub(super) fn collect(&mut self, next_tick: Instant) -> bool {
        let flushing = self.held.is_flushing();
        let patience = next_tick.saturating_duration_since(Instant::now());
        if flushing && self.later.len() >= INPUTS_MAX {
            self.flusher.wait(patience);
            return true;
        }
        let (mut count, mut bytes) = (0, 0);
        while !flushing && count < GATHER_MAX && bytes <= GATHER_MAX_BYTES {
            let Some(later) = self.later.pop_front() else { break };
            (count, bytes) = (count + 1, bytes + later.bytes());
            self.shared.queued.fetch_sub(later.bytes(), Ordering::Relaxed);
            self.take_later(later);
        }
        let mut next = match count {
            0 => match self.received.recv_timeout(patience) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            },
            _ => None,
        };
        while count < GATHER_MAX && bytes <= GATHER_MAX_BYTES {
            let Some(input) = next.take().or_else(|| self.received.try_recv().ok()) else { break };
            (count, bytes) = (count + 1, bytes + input.bytes());
            match input {
                // What has waited for the flush comes first.
                Input::Flushed => break,
                input if flushing => self.take_ahead(input),
                input => {
                    self.shared.queued.fetch_sub(input.bytes(), Ordering::Relaxed);
                    self.take(input);
                }
            }
        }
        true
    }

    fn take_later(&mut self, later: Later) {
        match later {
            Later::Input(input) => self.take(input),
            Later::Messages { group, messages, .. } => {
                if let Some(running) = self.running(group) {
                    let mut replica = locked(&running.group.replica);
                    let from = messages.into_iter().fold(None, |from, message| replica.take_in(message).or(from));
                    drop(replica);
                    self.shared.heard(from);
                }
            }
        }
    }

    /// Takes what need not be written, and keeps the rest until the flush has ended. Its bytes count as queued until then.
    fn take_ahead(&mut self, input: Input) {
        let bytes = input.bytes();
        let rest = match input {
            Input::Messages { group, messages } if group != HOST => {
                let Some(running) = self.running(group) else {
                    self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
                    return;
                };
                let mut replica = locked(&running.group.replica);
                let (mut from, mut rest) = (None, Vec::new());
                for message in messages.iter().map(|message| Incoming::parse(message)) {
                    match replica.take_ahead(message) {
                        Ok(sender) => from = sender.or(from),
                        Err(message) => rest.push(message),
                    }
                }
                drop(replica);
                self.shared.heard(from);
                Some(rest).filter(|rest| !rest.is_empty()).map(|messages| Later::Messages { group, messages, bytes })
            }
            input @ (Input::Submit { .. } | Input::Read { .. } | Input::Pursue { .. }) => Some(Later::Input(input)),
            input => {
                self.take(input);
                None
            }
        };
        match rest {
            Some(rest) => self.later.push_back(rest),
            None => drop(self.shared.queued.fetch_sub(bytes, Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> Option<Position> {
        Some(Position::from_bytes(position))
    }

    #[test]
    fn turns_are_released_in_order_and_only_behind_the_flush_of_their_writes() {
        let mut held = Held::default();
        held.push(None, "nothing written");
        assert_eq!((held.next(), held.next()), (Some("nothing written"), None));
        assert_eq!(held.begin(), None, "nothing waits");
        held.push(at(10), "first");
        assert_eq!((held.next(), held.begin(), held.begin()), (None, at(10), None));
        // During the flush: it writes nothing, and still waits for the turn in front of it.
        held.push(None, "behind the first");
        held.push(at(20), "second");
        held.push(None, "behind the second");
        assert_eq!((held.next(), held.begin()), (None, None));
        held.ended();
        assert_eq!((held.next(), held.next(), held.next()), (Some("first"), Some("behind the first"), None));
        assert_eq!(held.begin(), at(20));
        held.ended();
        assert_eq!((held.next(), held.next(), held.next()), (Some("second"), Some("behind the second"), None));
        assert_eq!((held.begin(), held.is_flushing()), (None, false));
    }
}
