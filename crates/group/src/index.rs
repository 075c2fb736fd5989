//! The Raft log of a group as an index: which entry has which term, and where its bytes are.

use crate::{leaders::Leaders, snapshot::Mark};
use millrace_wire::Result;
use raft::{
    Error as RaftError, GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot},
};
use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
};

/// Bytes of the newest entries that are kept in memory for followers that are close behind.
const RECENT_MAX_BYTES: usize = 4 << 20;
/// The approximate overhead of an entry.
const AROUND_BYTES: u64 = 64;

/// The position of an entry's bytes, in units of the store of entries. Later positions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u64);

/// The bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A command.
    Command,
    /// A change of the replicas.
    Change,
}

/// An entry of the log that is to be written, or was: it replaces every entry with its index or a higher one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The term in which a leader proposed it.
    pub term: u64,
    /// Its index.
    pub index: u64,
    /// Its bytes.
    pub form: Form,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// The state that a replica must store in addition to its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The newest term it knows.
    pub term: u64,
    /// The candidate that it voted for in that term; 0 for none.
    pub vote: u64,
    /// The last entry that it knows to be committed.
    pub commit: u64,
    /// The leader of the term that it has heard of or was; 0 for none.
    pub leader: u64,
}

/// Reads the bytes of stored entries.
pub trait Payloads: Send {
    /// The bytes of the entry at this position.
    fn read(&self, place: Place) -> Result<Vec<u8>>;
}

#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub term: u64,
    pub place: Place,
    pub bytes: u32,
    pub form: Form,
}

/// The log of one replica.
pub struct Index {
    state: State,
    /// Of the terms of entries.
    leaders: Leaders,
    voters: Vec<u64>,
    learners: Vec<u64>,
    /// The entry before the first one here, and its term.
    base: u64,
    base_term: u64,
    /// The last entry of the newest snapshot, 0 if there is none.
    snapshot: u64,
    /// Of entry `base + 1`, …
    slots: VecDeque<Slot>,
    /// Entries before the first one here whose records topics still have.
    kept: HashMap<u64, Slot>,
    /// The approximate size of everything that was written and not trimmed.
    bytes: u64,
    /// The newest entries.
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    payloads: Box<dyn Payloads>,
    /// The snapshot that a follower may get, and whether one was requested.
    pub offered: Option<Mark>,
    pub wanted: Cell<bool>,
}

impl Index {
    /// A log without entries, of a group that these hosts began.
    pub fn new(founders: Vec<u64>, payloads: Box<dyn Payloads>) -> Self {
        Self {
            state: State::default(),
            leaders: Leaders::default(),
            voters: founders,
            learners: Vec::new(),
            base: 0,
            base_term: 0,
            snapshot: 0,
            slots: VecDeque::new(),
            kept: HashMap::new(),
            bytes: 0,
            recent: VecDeque::new(),
            recent_bytes: 0,
            payloads,
            offered: None,
            wanted: Cell::new(false),
        }
    }

    /// Adds an entry. False if the entry before it is missing.
    pub fn note(&mut self, index: u64, slot: Slot) -> bool {
        if self.slots.is_empty() && self.snapshot == 0 && index > 0 && self.base == 0 {
            // Everything before it was trimmed and is in a later snapshot.
            self.base = index - 1;
        }
        if index <= self.base || index > self.last() + 1 {
            return false;
        }
        self.slots.truncate((index - self.base - 1) as usize);
        self.bytes += u64::from(slot.bytes) + AROUND_BYTES;
        self.slots.push_back(slot);
        self.leaders.ends_with(slot.term, index);
        true
    }

    /// Counts what was written besides entries.
    pub fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64 + AROUND_BYTES;
    }

    /// Continues after a snapshot, with the entries whose records its topics have. Entries after it stay if they continue it. False if a
    /// later snapshot has trimmed entries that this one needs.
    pub fn install(&mut self, mark: &Mark, kept: HashMap<u64, Slot>) -> bool {
        // After a start, the terms of the entries before the remaining ones are unknown at first.
        let is_unknown = self.snapshot == 0 && self.base > 0;
        if is_unknown && mark.index < self.base {
            return false;
        }
        if (is_unknown && mark.index == self.base) || self.term_of(mark.index) == Some(mark.term) {
            if mark.first > self.base {
                self.slots.drain(..(mark.first - 1 - self.base) as usize);
                (self.base, self.base_term) = (mark.first - 1, mark.before);
            } else if mark.index == self.base {
                self.base_term = mark.term;
            }
        } else {
            self.slots.clear();
            self.leaders.clear();
            self.recent.clear();
            self.recent_bytes = 0;
            (self.base, self.base_term) = (mark.index, mark.term);
        }
        self.kept = kept;
        (self.voters, self.learners) = (mark.voters.clone(), mark.learners.clone());
        self.snapshot = mark.index;
        self.state.commit = self.state.commit.max(mark.index);
        true
    }

    /// Unneeded entries before the snapshot were trimmed.
    pub fn trimmed(&mut self) {
        self.bytes = self.slots.iter().chain(self.kept.values()).map(|slot| u64::from(slot.bytes) + AROUND_BYTES).sum();
    }

    /// Stores the term, vote and commit.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The terms of entries, also of trimmed ones, because another replica may have them.
    pub fn leaders(&self) -> &Leaders {
        &self.leaders
    }

    pub fn note_leaders(&mut self, leaders: &Leaders) {
        self.leaders.note_all(leaders);
    }

    /// The entry before the first one here.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The last entry of the newest snapshot, 0 if there is none.
    pub fn snapshot_index(&self) -> u64 {
        self.snapshot
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn last(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// The term of the last entry, 0 if there is none.
    pub fn last_term(&self) -> u64 {
        self.slots.back().map_or(self.base_term, |slot| slot.term)
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(index.checked_sub(self.base + 1)? as usize)
    }

    pub fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.base { Some(self.base_term) } else { self.slot(index).map(|slot| slot.term) }
    }

    /// An entry that is here, or whose record a topic still has.
    pub fn held(&self, index: u64) -> Option<Slot> {
        self.slot(index).or_else(|| self.kept.get(&index)).copied()
    }

    /// The position of an entry.
    pub fn place(&self, index: u64) -> Option<Place> {
        self.held(index).map(|slot| slot.place)
    }

    /// The approximate size of an entry; 0 if it no longer exists.
    pub fn bytes_of(&self, index: u64) -> u64 {
        self.held(index).map_or(0, |slot| u64::from(slot.bytes) + AROUND_BYTES)
    }

    /// Reads an entry that is here, or whose record a topic still has.
    pub fn read(&self, index: u64) -> Option<Result<Proposal>> {
        let Slot { term, place, form, .. } = self.held(index)?;
        Some(self.payloads.read(place).map(|data| Proposal { term, index, form, data }))
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

    /// Keeps none of them in memory.
    pub fn forget_recent(&mut self) {
        (self.recent, self.recent_bytes) = (VecDeque::new(), 0);
    }

    fn entry(&self, index: u64) -> raft::Result<Entry> {
        if let Some(first) = self.recent.front()
            && let Some(entry) = index.checked_sub(first.index).and_then(|at| self.recent.get(at as usize))
        {
            return Ok(entry.clone());
        }
        let slot = self.slot(index).ok_or(RaftError::Store(StorageError::Unavailable))?;
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
        let State { term, vote, commit, .. } = self.state;
        let hard_state = HardState { term, vote, commit, ..HardState::default() };
        let (voters, learners) = (self.voters.clone(), self.learners.clone());
        let conf_state = ConfState { voters, learners, ..ConfState::default() };
        Ok(RaftState { hard_state, conf_state })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base {
            return Err(RaftError::Store(StorageError::Compacted));
        }
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
        if index < self.base {
            return Err(RaftError::Store(StorageError::Compacted));
        }
        self.term_of(index).ok_or(RaftError::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // The replica creates it later; raft asks again.
        let Some(mark) = self.offered.as_ref().filter(|mark| mark.index >= self.base) else {
            self.wanted.set(true);
            return Err(RaftError::Store(StorageError::SnapshotTemporarilyUnavailable));
        };
        Ok(mark.as_message())
    }
}
