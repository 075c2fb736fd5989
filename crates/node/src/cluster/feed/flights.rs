//! What feeds have submitted to groups, and the answers that have come. A group that decides nothing answers late, so nobody waits for it.

use crate::cluster::{PATIENCE, Reply, Shared};
use millrace_wire::Result;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    time::{Duration, Instant},
};

/// A topic, and the log that feeds it.
type Key = (String, String);

/// How long the answers of a group may take. It gives each request up after [`PATIENCE`], so this is never reached while the host runs.
const GIVE_UP: Duration = Duration::from_secs(6 * PATIENCE.as_secs());

struct Flight {
    sender: Option<Sender<Result<u64>>>,
    receiver: Receiver<Result<u64>>,
    outcomes: Vec<Result<u64>>,
    began: Instant,
}

/// What is under way, by feed.
#[derive(Default)]
pub(super) struct Flights(HashMap<Key, Flight>);

/// The state of what was submitted for a feed.
pub(super) enum Landed {
    /// Nothing was.
    Nothing,
    /// Some of it is not answered.
    Flying,
    /// The answers, once there are all.
    All(Vec<Result<u64>>),
}

impl Flights {
    /// Whether anything is under way.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The receiver of the answer to something that is being submitted for a feed. It wakes the thread of the feeds.
    pub fn reply(&mut self, shared: &Arc<Shared>, key: &Key) -> Reply<u64> {
        let new = || {
            let (sender, receiver) = channel();
            Flight { sender: Some(sender), receiver, outcomes: Vec::new(), began: Instant::now() }
        };
        let flight = self.0.entry(key.clone()).or_insert_with(new);
        let (sender, shared) = (flight.sender.clone(), Arc::downgrade(shared));
        Box::new(move |outcome| {
            // The feed may have ended.
            sender.into_iter().for_each(|sender| drop(sender.send(outcome.clone())));
            if let Some(shared) = shared.upgrade() {
                shared.namespace.journal().wake();
            }
        })
    }

    /// What has come of what was submitted for a feed.
    pub fn landed(&mut self, key: &Key) -> Landed {
        let Some(flight) = self.0.get_mut(key) else { return Landed::Nothing };
        // From now on it ends with the last answer.
        flight.sender = None;
        loop {
            match flight.receiver.try_recv() {
                Ok(outcome) => flight.outcomes.push(outcome),
                Err(TryRecvError::Empty) if flight.began.elapsed() < GIVE_UP => return Landed::Flying,
                Err(_) => break,
            }
        }
        let outcomes = self.0.remove(key).map(|flight| flight.outcomes).unwrap_or_default();
        Landed::All(outcomes)
    }
}
