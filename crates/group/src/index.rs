//! The Raft log of a group as an index: which entry has which term, and where its bytes are.

use millrace_wire::Result;
use raft::{
    Error as RaftError, GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot},
};
use std::collections::VecDeque;

/// Bytes of the newest entries that are kept in memory for followers that are close behind.
const RECENT_MAX_BYTES: usize = 4 << 20;

/// Where the bytes of an entry are: whoever keeps the entries says what the number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u64);

/// What the bytes of an entry are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A command.
    Command,
    /// A change of the replicas.
    Change,
}

/// An entry of the log that is to be kept, or was: it takes the place of every entry with its index or a higher one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The term in which a leader proposed it.
    pub term: u64,
    /// Its index.
    pub index: u64,
    /// What its bytes are.
    pub form: Form,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// What a replica must not forget besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The newest term it knows.
    pub term: u64,
    /// For whom it voted in that term; 0 for nobody.
    pub vote: u64,
    /// Up to here it knows entries to be committed.
    pub commit: u64,
}

/// Reads the bytes of entries that were kept.
pub trait Payloads: Send {
    /// The bytes of the entry at this place.
    fn read(&self, place: Place) -> Result<Vec<u8>>;
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    term: u64,
    place: Place,
    form: Form,
}

/// The log of one replica.
pub struct Index {
    state: State,
    founders: Vec<u64>,
    /// Of index 1, 2, …
    slots: Vec<Slot>,
    /// The newest entries.
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    payloads: Box<dyn Payloads>,
}

impl Index {
    /// A log without entries, of a group that these hosts began.
    pub fn new(founders: Vec<u64>, payloads: Box<dyn Payloads>) -> Self {
        let (state, slots, recent) = (State::default(), Vec::new(), VecDeque::new());
        Self { state, founders, slots, recent, recent_bytes: 0, payloads }
    }

    /// Takes note of an entry at its place. False if one is missing in front of it.
    pub fn note(&mut self, index: u64, term: u64, form: Form, place: Place) -> bool {
        let at = index.wrapping_sub(1) as usize;
        if index == 0 || at > self.slots.len() {
            return false;
        }
        self.slots.truncate(at);
        self.slots.push(Slot { term, place, form });
        true
    }

    /// Takes note of what must not be forgotten.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn last(&self) -> u64 {
        self.slots.len() as u64
    }

    /// The term of the last entry, 0 if there is none.
    pub fn last_term(&self) -> u64 {
        self.slots.last().map_or(0, |slot| slot.term)
    }

    /// Where an entry is.
    pub fn place(&self, index: u64) -> Option<Place> {
        self.slots.get(index.checked_sub(1)? as usize).map(|slot| slot.place)
    }

    /// Keeps entries in memory that were just written.
    pub fn keep(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        while self.recent.back().is_some_and(|newest| newest.index >= first.index) {
            self.recent_bytes -= self.recent.pop_back().map_or(0, |entry| entry.data.len());
        }
        for entry in entries {
            self.recent_bytes += entry.data.len();
            self.recent.push_back(entry.clone());
        }
        while self.recent_bytes > RECENT_MAX_BYTES && self.recent.len() > 1 {
            self.recent_bytes -= self.recent.pop_front().map_or(0, |entry| entry.data.len());
        }
    }

    fn entry(&self, index: u64) -> raft::Result<Entry> {
        if let Some(first) = self.recent.front()
            && let Some(entry) = index.checked_sub(first.index).and_then(|at| self.recent.get(at as usize))
        {
            return Ok(entry.clone());
        }
        let slot = self.slots.get(index.wrapping_sub(1) as usize);
        let slot = slot.ok_or(RaftError::Store(StorageError::Unavailable))?;
        let data = self.payloads.read(slot.place);
        let data = data.map_err(|error| RaftError::Store(StorageError::Other(error.to_string().into())))?;
        Ok(entry_of(slot.term, index, slot.form, data))
    }
}

pub fn entry_of(term: u64, index: u64, form: Form, data: Vec<u8>) -> Entry {
    let mut entry = Entry { term, index, data: data.into(), ..Entry::default() };
    entry.set_entry_type(match form {
        Form::Command => EntryType::EntryNormal,
        Form::Change => EntryType::EntryConfChangeV2,
    });
    entry
}

impl Storage for Index {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let State { term, vote, commit } = self.state;
        let hard_state = HardState { term, vote, commit, ..HardState::default() };
        let conf_state = ConfState { voters: self.founders.clone(), ..ConfState::default() };
        Ok(RaftState { hard_state, conf_state })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for index in low..high {
            let entry = self.entry(index)?;
            bytes += entry.data.len() as u64 + 32;
            if bytes > max_bytes && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == 0 {
            return Ok(0);
        }
        let slot = self.slots.get(index as usize - 1);
        slot.map(|slot| slot.term).ok_or(RaftError::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // The log begins at its first entry, so nobody needs one.
        Err(RaftError::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
