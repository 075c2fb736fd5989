//! The changes of the past by applied repairs: other versions of records, and replays of runs.

use crate::table::{Origin, Table};
use std::collections::{BTreeMap, HashMap};

/// The version of a record by a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The repair.
    pub repair: u64,
    /// The row of its shadow APPEND.
    pub row: u32,
    /// Whether it makes its slot void.
    pub void: bool,
}

/// The replay of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The repair that replayed it.
    pub repair: u64,
    /// The row of its shadow DONE.
    pub row: u32,
    /// The row of its shadow READ, unless it read nothing.
    pub(crate) reads: Option<u32>,
}

/// How much of a journal a repair in force has changed. A record that several repairs changed counts for the last of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Runs that it replayed.
    pub runs: u64,
    /// Records that it gave other values.
    pub records: u64,
    /// Records that it removed.
    pub void: u64,
}

/// Versions by the rows of their records, and replays by the rows of their runs.
#[derive(Debug, Default)]
pub(crate) struct Repaired {
    pub versions: HashMap<u32, Version>,
    pub replays: HashMap<u32, Replay>,
}

impl Table {
    /// The version of a record by an applied repair, if any.
    pub fn version(&self, record: u32) -> Option<Version> {
        self.repaired().versions.get(&record).copied()
    }

    /// The repair in force that corrected a record itself: the content of the record does not follow from its run.
    pub fn corrected(&self, record: u32) -> Option<u64> {
        self.version(record).filter(|version| self.origin(version.row) == Origin::Outside).map(|version| version.repair)
    }

    /// The last replay of a run by a repair in force.
    pub fn replay(&self, run: u32) -> Option<Replay> {
        self.repaired().replays.get(&run).copied()
    }

    /// The repairs in force that have changed something here, by their numbers.
    pub fn repairs(&self) -> BTreeMap<u64, Extent> {
        let mut repairs: BTreeMap<u64, Extent> = BTreeMap::new();
        for replay in self.repaired().replays.values() {
            repairs.entry(replay.repair).or_default().runs += 1;
        }
        for version in self.repaired().versions.values() {
            let extent = repairs.entry(version.repair).or_default();
            *(if version.void { &mut extent.void } else { &mut extent.records }) += 1;
        }
        repairs
    }
}
