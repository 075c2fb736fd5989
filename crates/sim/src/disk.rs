//! A simulated disk: written data, and the part of it that survives a power failure.

use crate::{Chance, Defect};
use millrace_group::{Command, Payloads, Place, Recovered, State, Turn, Write, Written as Progress};
use millrace_wire::{Code, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// So small that the entries of one message often are several batches.
const BATCH_MAX_BYTES: usize = 200;

#[derive(Clone)]
enum Written {
    Write(Write),
    State(State),
    /// Entries before this position may be removed.
    Trim(usize),
}

#[derive(Default)]
struct Content {
    written: Vec<Written>,
    /// Where batches end that may not be safe.
    ends: Vec<usize>,
    durable: usize,
    /// Entries before this position were removed.
    start: usize,
}

impl Content {
    /// The first place that is not gone, once it was said that what is in front of it may go.
    fn started(&self) -> usize {
        let trims = self.written.iter().rev().filter_map(|written| match written {
            Written::Trim(place) => Some(*place),
            _ => None,
        });
        trims.max().unwrap_or(0)
    }
}

/// The disk of one host. Clones share it.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<Content>>);

impl Disk {
    fn with<T>(&self, look: impl FnOnce(&mut Content) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes what a turn wants kept and is not written yet. `refuses` decides for each batch whether the disk takes it.
    pub fn write(
        &self,
        turn: &Turn,
        defect: Option<Defect>,
        progress: &mut Progress,
        mut refuses: impl FnMut() -> bool,
    ) -> Result<()> {
        let told = |state: State| match defect {
            Some(Defect::ForgetsVotes) => None,
            Some(Defect::ForgetsCommits) => Some(State { commit: 0, ..state }),
            _ => Some(state),
        };
        let more = u64::from(defect == Some(Defect::TrimsTooMuch));
        if defect == Some(Defect::WritesAgain) {
            *progress = Progress::default();
        }
        self.with(|content| {
            progress.go_on(turn, BATCH_MAX_BYTES, |batch| {
                if refuses() {
                    return Err(Code::DiskFull.error("no room"));
                }
                let mut places = Vec::new();
                for write in batch.writes {
                    places.push(Place(content.written.len() as u64));
                    content.written.push(Written::Write(write.clone()));
                }
                content.written.extend(batch.state.and_then(told).map(Written::State));
                content.written.extend(batch.trim.map(|place| Written::Trim((place.0 + more) as usize)));
                content.ends.push(content.written.len());
                content.start = content.started();
                Ok(places)
            })
        })
    }

    /// A copy of what it has now, which a tool made that knows nothing of hosts.
    pub fn copied(&self) -> Self {
        self.with(|content| {
            let (written, start, durable) = (content.written.clone(), content.start, content.written.len());
            Self(Arc::new(Mutex::new(Content { written, ends: Vec::new(), durable, start })))
        })
    }

    /// How much was written.
    pub fn length(&self) -> usize {
        self.with(|content| content.written.len())
    }

    /// All before `upto` is safe.
    pub fn flushed(&self, upto: usize) {
        self.with(|content| {
            content.durable = content.durable.max(upto);
            content.ends.retain(|end| *end > upto);
        });
    }

    /// The host dies: of the batches that are not safe, some of the first stay.
    pub fn crash(&self, chance: &mut Chance) {
        self.with(|content| {
            let durable = content.durable;
            content.ends.retain(|end| *end > durable);
            let count = chance.below(content.ends.len() as u64 + 1) as usize;
            let kept = content.ends[..count].last().copied().unwrap_or(durable);
            content.ends.clear();
            content.written.truncate(kept);
            (content.durable, content.start) = (kept, content.started());
        });
    }

    /// The state after a start.
    pub fn recover(&self, founders: Vec<u64>) -> Result<Recovered> {
        let mut recovered = Recovered::new(founders, Box::new(self.clone()));
        self.with(|content| {
            for (at, written) in content.written.iter().enumerate().skip(content.start) {
                match written {
                    Written::Write(write) => recovered.wrote(write.clone(), Place(at as u64), write.bytes())?,
                    Written::State(state) => recovered.state(*state),
                    Written::Trim(_) => {}
                }
            }
            Ok(recovered)
        })
    }

    /// How much of what was written is gone.
    pub fn trimmed(&self) -> usize {
        self.with(|content| content.start)
    }

    /// The record of a publish at this position.
    pub fn record(&self, place: Place) -> Result<Vec<u8>> {
        self.read(place).and_then(|bytes| Command::data_of(&bytes).map(<[u8]>::to_vec))
    }
}

impl Payloads for Disk {
    fn read(&self, place: Place) -> Result<Vec<u8>> {
        self.with(|content| match content.written.get(place.0 as usize).filter(|_| place.0 >= content.start as u64) {
            Some(Written::Write(Write::Entry(entry) | Write::Kept(entry))) => Ok(entry.data.clone()),
            _ => Err(Code::GroupLogDamaged.error(format!("no entry stands at {}", place.0))),
        })
    }
}
