//! What a sender of numbered records may send next, and what an answer means.
//!
//! ```text
//!  next ──> Ask ───────────────> told Has         the receiver says what it has
//!       ──> Send, then sent ───> told Done        several are under way at once
//!       ──> Wait, Stopped        told Refused, told Lost: what is under way is void, and is sent again
//! ```
//!
//! The receiver accepts a record only behind the one that it has last, so a record that is sent twice is received once. This crate sends
//! nothing and has no clock: its users read records, send them, and tell the answers.

use millrace_wire::{Code, Error};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How much may be under way.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most parts that are not answered.
    pub flights: usize,
    /// Most bytes of them, unless the first alone has more.
    pub bytes: usize,
    /// What is not answered within this is lost.
    pub answer: Duration,
}

/// The next action of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask the receiver for the last record that it has.
    Ask,
    /// Send records behind this one: so many parts, and so many bytes. The first part may have more bytes if nothing is under way.
    Send {
        /// The last record that was sent.
        behind: u64,
        /// The number of parts.
        flights: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// Nothing before an answer, or before this time.
    Wait(Instant),
    /// Nothing: the receiver refused for good.
    Stopped,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The receiver has the records up to this one, and no others. It answers [`Next::Ask`].
    Has(u64),
    /// It has the records up to this one.
    Done(u64),
    /// It has the records up to `upto`, and refused the next one: until `again` has passed, or for good. What is under way is void.
    Refused {
        /// The last record that it has.
        upto: u64,
        /// The pause; nothing if there is no use in sending again.
        again: Option<Duration>,
    },
    /// What was under way may have been received or not.
    Lost,
}

/// An answer that is impossible: the receiver lacks what it had acknowledged, or has what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The last record that it has, as it says.
    pub said: u64,
    /// The last record that it has acknowledged, and the last one that was sent.
    pub known: (u64, u64),
}

impl From<Contradiction> for Error {
    fn from(Contradiction { said, known: (done, sent) }: Contradiction) -> Self {
        let detail =
            format!("the receiver has records up to {said}; it had acknowledged {done}, and {sent} was sent last");
        Code::LinkOutOfOrder.error(detail)
    }
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    last: u64,
    bytes: usize,
    until: Instant,
}

/// The records of one sender that are under way.
#[derive(Clone, Debug)]
pub struct Window {
    limits: Limits,
    /// Whether the receiver has exactly the records up to `done` and perhaps those under way.
    is_known: bool,
    /// The last record that the receiver has acknowledged, and the last one that was ever sent or asked for.
    done: u64,
    sent: u64,
    flights: VecDeque<Flight>,
    /// The time by which a question is to be answered.
    asked: Option<Instant>,
    pause: Option<Instant>,
    is_stopped: bool,
}

impl Window {
    /// A window whose receiver has the records up to `known`, if this is known.
    pub fn new(limits: Limits, known: Option<u64>) -> Self {
        let (done, is_known) = (known.unwrap_or(0), known.is_some());
        let flights = VecDeque::new();
        Self { limits, is_known, done, sent: done, flights, asked: None, pause: None, is_stopped: false }
    }

    /// Whether an answer is awaited.
    pub fn is_open(&self) -> bool {
        !self.flights.is_empty() || self.asked.is_some()
    }

    /// The next action.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.is_stopped {
            return Next::Stopped;
        }
        if self.flights.front().is_some_and(|flight| flight.until <= now) {
            self.lose();
        }
        self.asked = self.asked.filter(|until| *until > now);
        self.pause = self.pause.filter(|until| *until > now);
        if let Some(until) = self.pause.or(self.asked) {
            return Next::Wait(until);
        }
        if !self.is_known {
            self.asked = Some(now + self.limits.answer);
            return Next::Ask;
        }
        let under_way: usize = self.flights.iter().map(|flight| flight.bytes).sum();
        let room =
            (self.limits.flights.saturating_sub(self.flights.len()), self.limits.bytes.saturating_sub(under_way));
        match (self.flights.front(), room) {
            (Some(first), (0, _) | (_, 0)) => Next::Wait(first.until),
            (_, (flights, bytes)) => {
                let behind = self.flights.back().map_or(self.done, |flight| flight.last);
                Next::Send { behind, flights, bytes }
            }
        }
    }

    /// A part was sent, up to the record `last`.
    pub fn sent(&mut self, last: u64, bytes: usize, now: Instant) {
        self.sent = self.sent.max(last);
        self.flights.push_back(Flight { last, bytes, until: now + self.limits.answer });
    }

    /// An answer has come.
    ///
    /// # Errors
    ///
    /// The answer is impossible. The window is as before.
    pub fn told(&mut self, told: Told, now: Instant) -> Result<(), Contradiction> {
        match told {
            Told::Has(last) => {
                // Another sender of the same records may have sent more.
                self.check(last, u64::MAX)?;
                self.flights.clear();
                (self.is_known, self.asked) = (true, None);
                (self.done, self.sent) = (last, self.sent.max(last));
            }
            Told::Done(last) => {
                // An answer that was given up may come late.
                self.check(last.max(self.done), self.sent)?;
                self.done = self.done.max(last);
                self.flights.retain(|flight| flight.last > last);
            }
            Told::Refused { upto, again } => {
                self.check(upto, self.sent)?;
                self.flights.clear();
                self.done = upto;
                (self.pause, self.is_stopped) = (again.map(|again| now + again), again.is_none());
            }
            Told::Lost => self.lose(),
        }
        Ok(())
    }

    fn lose(&mut self) {
        self.flights.clear();
        (self.is_known, self.asked) = (false, None);
    }

    fn check(&self, said: u64, most: u64) -> Result<(), Contradiction> {
        match said < self.done || said > most {
            true => Err(Contradiction { said, known: (self.done, self.sent) }),
            false => Ok(()),
        }
    }
}
