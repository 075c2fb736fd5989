//! The overlay of a repair: the slots that differ from the live ones.

use crate::past::At;
use millrace_namespace::fence::Slots;
use std::collections::{BTreeMap, HashMap};

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

    /// Its content of a slot.
    pub fn at(&self, log: u32, seqno: u64) -> Option<At> {
        self.logs.get(&log)?.get(&seqno).copied()
    }

    /// Whether it has one of `count` slots of a log.
    pub fn touches(&self, log: u32, from: u64, count: u64) -> bool {
        let end = from.saturating_add(count);
        self.logs.get(&log).is_some_and(|slots| slots.range(from..end).next().is_some())
    }

    /// Whether it has any slot of a log.
    pub fn has_log(&self, log: u32) -> bool {
        self.logs.contains_key(&log)
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
