//! How many records flow between logs and functions in this process, since it opened the namespace.
//!
//! The runs that end count them, in shards by thread, so that no worker waits for another. A reader adds the shards up.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    thread,
    time::SystemTime,
};

const SHARDS: usize = 16;
/// Most flows that are counted. Records of others are not.
pub const FLOWS_MAX: usize = 100_000;
const SHARD_MAX: usize = FLOWS_MAX / 4;

/// What a function does with the records of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// It runs for them.
    Runs,
    /// It appends them.
    Appends,
    /// It reads them.
    Reads,
}

/// A function and a log between which records flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The id of the function.
    pub function: u32,
    /// The id of the log.
    pub log: u32,
    /// Which way.
    pub way: Way,
}

/// The counters of all flows.
#[derive(Debug)]
pub struct Flows {
    since: SystemTime,
    shards: [Mutex<HashMap<Flow, u64>>; SHARDS],
}

impl Default for Flows {
    fn default() -> Self {
        Self { since: SystemTime::now(), shards: Default::default() }
    }
}

impl Flows {
    /// Since when they count.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Counts records of these flows.
    pub fn count(&self, flows: impl Iterator<Item = (Flow, u64)>) {
        let mut hasher = DefaultHasher::new();
        thread::current().id().hash(&mut hasher);
        let shard = &self.shards[hasher.finish() as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        for (flow, records) in flows {
            if let Some(counter) = shard.get_mut(&flow) {
                *counter = counter.saturating_add(records);
            } else if shard.len() < SHARD_MAX {
                shard.insert(flow, records);
            }
        }
    }

    /// The counters, in an order that stays; at most [`FLOWS_MAX`].
    pub fn now(&self) -> BTreeMap<Flow, u64> {
        let mut sums = BTreeMap::new();
        for shard in &self.shards {
            for (flow, records) in shard.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                if sums.len() < FLOWS_MAX || sums.contains_key(flow) {
                    *sums.entry(*flow).or_default() += records;
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_threads_are_added_up() {
        let flows = Flows::default();
        let flow = |log| Flow { function: 1, log, way: Way::Appends };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| flows.count([(flow(1), 1), (flow(2), 3)].into_iter())));
            }
        });
        assert_eq!(flows.now(), BTreeMap::from([(flow(1), 800), (flow(2), 2400)]));
    }

    #[test]
    fn flows_beyond_the_bound_are_not_counted() {
        let flows = Flows::default();
        flows.count((0..SHARD_MAX as u32 + 10).map(|log| (Flow { function: 1, log, way: Way::Reads }, 1)));
        assert_eq!(flows.now().len(), SHARD_MAX);
    }
}
