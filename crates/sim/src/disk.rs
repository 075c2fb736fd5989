//! A disk: what was written, and how much of it a power failure leaves.

use crate::{Chance, Mischief};
use millrace_group::{Command, Payloads, Place, Proposal, Recovered, State, Turn};
use millrace_wire::{Code, Result};
use std::sync::{Arc, Mutex, PoisonError};

enum Written {
    Entry(Proposal),
    State(State),
}

#[derive(Default)]
struct Content {
    written: Vec<Written>,
    durable: usize,
}

/// The disk of one host. Clones share it.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<Content>>);

impl Disk {
    fn with<T>(&self, look: impl FnOnce(&mut Content) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes what a turn wants kept; where its first entry is.
    pub fn write(&self, turn: &Turn, mischief: Option<Mischief>) -> Place {
        let state = match mischief {
            Some(Mischief::ForgetsVotes) => None,
            Some(Mischief::ForgetsCommits) => turn.state.map(|state| State { commit: 0, ..state }),
            _ => turn.state,
        };
        self.with(|content| {
            let first = content.written.len() as u64;
            content.written.extend(turn.entries.iter().cloned().map(Written::Entry));
            content.written.extend(state.map(Written::State));
            Place(first)
        })
    }

    /// How much was written.
    pub fn length(&self) -> usize {
        self.with(|content| content.written.len())
    }

    /// All before `upto` is safe.
    pub fn flushed(&self, upto: usize) {
        self.with(|content| content.durable = content.durable.max(upto));
    }

    /// The host dies: of what is not safe, some of the beginning stays.
    pub fn crash(&self, chance: &mut Chance) {
        self.with(|content| {
            let unsafe_count = (content.written.len() - content.durable) as u64;
            let kept = content.durable + chance.below(unsafe_count + 1) as usize;
            content.written.truncate(kept);
            content.durable = kept;
        });
    }

    /// What is found after a start.
    pub fn recover(&self, founders: Vec<u64>) -> Result<Recovered> {
        let mut recovered = Recovered::new(founders, Box::new(self.clone()));
        self.with(|content| {
            for (at, written) in content.written.iter().enumerate() {
                match written {
                    Written::Entry(entry) => {
                        recovered.entry(entry.index, entry.term, entry.form, Place(at as u64))?;
                    }
                    Written::State(state) => recovered.state(*state),
                }
            }
            Ok(recovered)
        })
    }

    /// The record of a publish that stands at this place.
    pub fn record(&self, place: Place) -> Result<Vec<u8>> {
        self.read(place).and_then(|bytes| Command::data_of(&bytes).map(<[u8]>::to_vec))
    }
}

impl Payloads for Disk {
    fn read(&self, place: Place) -> Result<Vec<u8>> {
        self.with(|content| match content.written.get(place.0 as usize) {
            Some(Written::Entry(entry)) => Ok(entry.data.clone()),
            _ => Err(Code::GroupLogDamaged.error(format!("no entry stands at {}", place.0))),
        })
    }
}
