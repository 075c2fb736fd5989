//! The overlay of a repair: the slots that differ from the live ones.

use crate::past::At;
use millrace_journal::Position;
use millrace_namespace::fence::Slots;
use std::collections::{BTreeMap, HashMap};

/// Whether an entry is after a position; true if none is given.
pub fn is_after(at: &At, position: Option<Position>) -> bool {
    position.is_none_or(|position| at.position > position)
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    logs: HashMap<u32, BTreeMap<u64, At>>,
}

impl Overlay {
    /// Puts something into a slot.
    pub fn insert(&mut self, (log, seqno): (u32, u64), at: At) {
        self.logs.entry(log).or_default().insert(seqno, at);
    }

    /// The content of a slot in the overlay.
    pub fn at(&self, log: u32, seqno: u64) -> Option<At> {
        self.logs.get(&log)?.get(&seqno).copied()
    }

    /// Whether it has one of `count` slots of a log that got its entry after a position, if one is given.
    pub fn touches(&self, log: u32, from: u64, count: u64, after: Option<Position>) -> bool {
        let end = from.saturating_add(count);
        self.logs.get(&log).is_some_and(|slots| slots.range(from..end).any(|(_, at)| is_after(at, after)))
    }

    /// Whether it has any slot of a log that got its entry after a position, if one is given.
    pub fn has_log(&self, log: u32, after: Option<Position>) -> bool {
        self.logs.get(&log).is_some_and(|slots| after.is_none() || slots.values().any(|at| is_after(at, after)))
    }

    /// The logs of which it has slots.
    pub fn logs(&self) -> impl Iterator<Item = u32> {
        self.logs.keys().copied()
    }

    /// Everything, by log and seqno.
    pub fn iter(&self) -> impl Iterator<Item = ((u32, u64), At)> {
        self.logs.iter().flat_map(|(log, slots)| slots.iter().map(|(seqno, at)| ((*log, *seqno), *at)))
    }

    /// How many slots.
    pub fn len(&self) -> usize {
        self.logs.values().map(BTreeMap::len).sum()
    }

    /// Which slots.
    pub fn slots(&self) -> Slots {
        self.iter().map(|(slot, _)| slot).collect()
    }
}
