//! What feeds have submitted to groups, and the answers that have come. A group that decides nothing answers late, so nobody waits for it.

use crate::cluster::{PATIENCE, Reply, Shared};
use millrace_egress::{Limits, Next, Told, Window};
use millrace_wire::{Code, Error, Result};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

/// A topic, and the log that feeds it.
pub(super) type Key = (String, String);

/// How long the answers of a group may take. It gives each request up after [`PATIENCE`], so this is never reached while the host runs.
const GIVE_UP: Duration = Duration::from_secs(6 * PATIENCE.as_secs());
/// What a topic may not have answered yet.
const LIMITS: Limits = Limits { flights: 64, bytes: 1 << 20, answer: GIVE_UP };

/// What one feed has submitted.
struct Flight {
    window: Window,
    sender: Sender<(u64, Result<u64>)>,
    receiver: Receiver<(u64, Result<u64>)>,
    /// Answers that have not come.
    open: usize,
    /// The first failure, since which nothing was submitted.
    failed: Option<Error>,
}

/// What is under way, by feed.
#[derive(Default)]
pub(super) struct Flights(HashMap<Key, Flight>);

/// What a feed may do now.
pub(super) enum FeedStep {
    /// Nothing: an answer wakes the thread.
    Wait,
    /// Look again where the topic is: something was answered.
    Again,
    /// Submit records behind this one: so many, and so many bytes.
    Submit { behind: u64, records: usize, bytes: usize },
}

impl Flights {
    /// Whether anything is under way.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether anything is under way for a feed.
    pub fn is_open(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|flight| flight.open > 0)
    }

    /// What a feed may do, whose topic has the records up to `last` according to this host's replica.
    ///
    /// # Errors
    ///
    /// Why what was submitted failed, once all of it is answered. The next step begins anew.
    pub fn step(&mut self, key: &Key, last: u64) -> Result<FeedStep> {
        let now = Instant::now();
        let flight = self.0.entry(key.clone()).or_insert_with(|| Flight::new(last));
        let mut some = false;
        while let Ok((number, outcome)) = flight.receiver.try_recv() {
            flight.open -= 1;
            match outcome.and_then(|_| Ok(flight.window.told(Told::Done(number), now)?)) {
                Ok(()) => some = true,
                // A record is overtaken if one before it was refused: the refusal is the reason.
                Err(error) if flight.failed.as_ref().is_none_or(is_overtaken) => flight.failed = Some(error),
                Err(_) => {}
            }
        }
        let is_over = flight.open == 0;
        if some || flight.failed.is_some() {
            let over = if is_over { self.0.remove(key) } else { None };
            // What was overtaken is submitted the next time.
            return match over.and_then(|flight| flight.failed).filter(|error| !is_overtaken(error)) {
                Some(error) => Err(error),
                None if some => Ok(FeedStep::Again),
                None => Ok(FeedStep::Wait),
            };
        }
        match flight.window.next(now) {
            Next::Send { behind, flights, bytes } => Ok(FeedStep::Submit { behind, records: flights, bytes }),
            Next::Wait(_) => Ok(FeedStep::Wait),
            // An answer is overdue: what the topic has is looked up the next time.
            Next::Ask | Next::Stopped => {
                self.0.remove(key);
                Ok(FeedStep::Again)
            }
        }
    }

    /// The receiver of the answer to the record `number`, which is being submitted for a feed. It wakes the thread of the feeds.
    pub fn reply(&mut self, shared: &Arc<Shared>, key: &Key, number: u64, bytes: usize) -> Reply<u64> {
        let flight = self.0.entry(key.clone()).or_insert_with(|| Flight::new(number.saturating_sub(1)));
        flight.window.sent(number, bytes, Instant::now());
        flight.open += 1;
        let (sender, shared) = (flight.sender.clone(), Arc::downgrade(shared));
        Box::new(move |outcome| {
            // The feed may have ended.
            drop(sender.send((number, outcome)));
            if let Some(shared) = shared.upgrade() {
                shared.namespace.journal().wake();
            }
        })
    }

    /// Nothing was submitted.
    pub fn rest(&mut self, key: &Key) {
        if self.0.get(key).is_some_and(|flight| flight.open == 0) {
            self.0.remove(key);
        }
    }
}

fn is_overtaken(error: &Error) -> bool {
    error.code() == Code::FeedOutOfOrder
}

impl Flight {
    fn new(last: u64) -> Self {
        let (sender, receiver) = channel();
        Self { window: Window::new(LIMITS, Some(last)), sender, receiver, open: 0, failed: None }
    }
}
