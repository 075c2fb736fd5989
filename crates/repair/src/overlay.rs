//! The overlay of a repair: the slots that differ from the live ones.

use crate::{
    past::{At, Past},
    tables::{Place, Rewritten, Writer},
};
use millrace_journal::{Position, Row as Keyed};
use millrace_namespace::fence::Slots;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Whether an entry is after a position; true if none is given.
pub fn is_after(at: &At, position: Option<Position>) -> bool {
    position.is_none_or(|position| at.position > position)
}

/// See the module.
#[derive(Debug, Default)]
pub struct Overlay {
    logs: HashMap<u32, BTreeMap<u64, At>>,
    /// What changes in tables, by key.
    tables: HashMap<u32, Rewritten>,
}

impl Overlay {
    /// Puts something into a slot.
    pub fn insert(&mut self, (log, seqno): (u32, u64), at: At) {
        self.logs.entry(log).or_default().insert(seqno, at);
    }

    /// The same of a slot of a table, with what the record does to its key. Returns the keys that change there, each with the place.
    pub fn rewrite(
        &mut self,
        past: &Past,
        (log, seqno): (u32, u64),
        at: At,
        row: Option<&Keyed<'_>>,
    ) -> Vec<(Arc<[u8]>, Place)> {
        self.insert((log, seqno), at);
        let versions = past.logs.get(&log).and_then(|log| log.versions.as_deref());
        let Some(by) = past.writer(log, seqno).filter(|_| versions.is_some() || row.is_some()) else {
            return Vec::new();
        };
        let row = row.filter(|_| !at.void);
        self.tables.entry(log).or_default().insert(versions, seqno, row, at.position, &by)
    }

    /// The records that a repair will append to tables, in place of those that it would have appended so far.
    pub fn append_late<'r>(
        &mut self,
        late: impl Iterator<Item = (u32, u64, Keyed<'r>, Position, Writer)>,
    ) -> Vec<(u32, Arc<[u8]>, Place)> {
        self.tables.values_mut().for_each(Rewritten::forget_late);
        let mut keys = Vec::new();
        for (log, slot, row, at, by) in late {
            let table = self.tables.entry(log).or_default();
            keys.extend(table.insert(None, slot, Some(&row), at, &by).into_iter().map(|(key, at)| (log, key, at)));
        }
        keys
    }

    /// What changes in a table.
    pub fn table(&self, log: u32) -> Option<&Rewritten> {
        self.tables.get(&log)
    }

    /// What changes in tables.
    pub fn tables(&self) -> impl Iterator<Item = (u32, &Rewritten)> {
        self.tables.iter().map(|(log, rewritten)| (*log, rewritten))
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
