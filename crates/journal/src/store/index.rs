//! A log's index: a ring of positions by sequence number, and the counters of a log or function. Rebuildable.
//!
//! ```text
//!  0        8        16       24       32         40       64
//! +--------+--------+--------+--------+----------+--------+----------+----------+--
//! | magic  | mask   | latest | done   | sleepers | unused | slot 0   | slot 1   | …
//! +--------+--------+--------+--------+----------+--------+----------+----------+--
//! ```
//!
//! Record `s` is at slot `s & mask`. There are more slots than the history is long, so that the oldest record is still
//! found while the newest is being published. A function's index has no slots: `latest` counts triggers, `done` ended runs.
//! A log has no runs to end: there, `done` is the floor, the seqno before which all records were trimmed.

use crate::{
    medium::{Medium, Region},
    write::waiters::Waiters,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const MAGIC: u64 = 0x0001_5844_4e49_524d; // "MRINDX" and a version
const HEADER_WORDS: u64 = 8;

/// A mapped index.
pub(crate) struct Index {
    region: Arc<Region>,
    mask: u64,
}

/// The file of the log or function with this id.
pub(crate) fn name(id: u32) -> String {
    format!("index/{id}")
}

fn slots(history: u64) -> u64 {
    if history == 0 { 0 } else { (history + 1).next_power_of_two() }
}

pub(crate) fn bytes(history: u64) -> u64 {
    (HEADER_WORDS + slots(history)) * 8
}

impl Index {
    /// Makes an empty index; what stood there is gone. `history` is 0 for a function.
    pub fn create(medium: &dyn Medium, id: u32, history: u64) -> io::Result<Self> {
        medium.remove(&name(id))?;
        Self::reserve(medium, &name(id), history).map(|region| Self::empty(region, history))
    }

    /// A file of zeros with storage for an index.
    pub fn reserve(medium: &dyn Medium, name: &str, history: u64) -> io::Result<Arc<Region>> {
        let region = medium.map(name, bytes(history), true)?;
        medium.reserve(&region)?;
        Ok(region)
    }

    /// The empty index in a region that was reserved for it.
    pub fn empty(region: Arc<Region>, history: u64) -> Self {
        let index = Self { region, mask: slots(history).saturating_sub(1) };
        index.word(1).store(index.mask, Ordering::Relaxed);
        index.word(0).store(MAGIC, Ordering::Release);
        index
    }

    /// Maps an index that another process made, or this one before a clean end.
    pub fn open(medium: &dyn Medium, id: u32, history: u64) -> io::Result<Self> {
        let region = medium.map(&name(id), bytes(history), false)?;
        let index = Self { region, mask: slots(history).saturating_sub(1) };
        if index.word(0).load(Ordering::Acquire) == MAGIC && index.word(1).load(Ordering::Relaxed) == index.mask {
            Ok(index)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "not an index of this log"))
        }
    }

    fn word(&self, n: u64) -> &AtomicU64 {
        assert!(n < self.region.bytes / 8);
        // SAFETY: word `n` lies within the mapping (asserted), which is page-aligned and lives as long as `self`.
        unsafe { &*self.region.base.cast::<AtomicU64>().add(n as usize) }
    }

    /// The newest record's seqno, or the number of triggers.
    pub fn latest(&self) -> u64 {
        self.word(2).load(Ordering::Acquire)
    }

    /// Raises the newest seqno, or the number of triggers; never lowers it.
    pub fn raise_latest(&self, to: u64) {
        if to > self.word(2).load(Ordering::Relaxed) {
            self.word(2).store(to, Ordering::Release);
        }
    }

    /// Those who wait for a record of this log.
    pub fn waiters(&self) -> &Waiters {
        // SAFETY: the first four bytes of word 4 of the mapping, an atomic of which every bit pattern is a value.
        unsafe { &*self.region.base.add(32).cast::<Waiters>() }
    }

    /// The number of ended runs.
    pub fn done(&self) -> u64 {
        self.word(3).load(Ordering::Acquire)
    }

    /// Raises the number of ended runs; never lowers it.
    pub fn raise_done(&self, to: u64) {
        if to > self.word(3).load(Ordering::Relaxed) {
            self.word(3).store(to, Ordering::Release);
        }
    }

    /// The oldest seqno that was not trimmed, 0 if none was.
    pub fn floor(&self) -> u64 {
        self.done()
    }

    /// Raises the oldest seqno that is left; never lowers it.
    pub fn raise_floor(&self, to: u64) {
        self.raise_done(to);
    }

    /// How many records' positions it holds.
    pub fn slots(&self) -> u64 {
        self.mask + 1
    }

    /// Where record `seqno` stands, if it is still in the ring; another record's position if it is not, 0 if none was set.
    pub fn position(&self, seqno: u64) -> u64 {
        self.word(HEADER_WORDS + (seqno & self.mask)).load(Ordering::Acquire)
    }

    /// Corrects where record `seqno` stands, unless that has changed meanwhile.
    pub fn correct(&self, seqno: u64, wrong: u64, position: u64) {
        let slot = self.word(HEADER_WORDS + (seqno & self.mask));
        let _ = slot.compare_exchange(wrong, position, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Notes where record `seqno` stands.
    pub fn set_position(&self, seqno: u64, position: u64) {
        self.word(HEADER_WORDS + (seqno & self.mask)).store(position, Ordering::Release);
    }
}
