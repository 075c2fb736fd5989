//! One order everywhere: the records of a topic are the same on every host and never change; no record occurs twice, and there are no gaps.
//! A topic that was removed and another one of its name are two topics.

use std::collections::{BTreeMap, HashMap};

/// The records of a topic that any host has shown.
#[derive(Default)]
pub struct Agreement {
    records: BTreeMap<(u64, u64), Vec<u8>>,
    /// The topic's history is short, or topics are removed: some records leave before they are checked.
    has_gaps: bool,
    numbers: HashMap<Vec<u8>, (u64, u64)>,
}

impl Agreement {
    /// Of a topic whose records may leave it before they are checked.
    pub fn with_gaps(has_gaps: bool) -> Self {
        Self { has_gaps, ..Self::default() }
    }

    /// Whether some records may never have been seen.
    pub fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// A host shows a record of the topic that was born so; each host shows its records in order.
    pub fn shows(&mut self, host: u64, (born, index): (u64, u64), record: &[u8]) -> Result<(), String> {
        let shown = self.count(born);
        if index > shown + 1 && !self.has_gaps {
            return Err(format!("host {host} has record {index}, and nobody ever had record {}", shown + 1));
        }
        if let Some(known) = self.records.get(&(born, index)) {
            return if known == record { Ok(()) } else { Err(format!("record {index} is another one on host {host}")) };
        }
        self.records.insert((born, index), record.to_vec());
        match self.numbers.insert(record.to_vec(), (born, index)) {
            None => Ok(()),
            Some(first) => Err(format!("record {first:?} is there again as {:?}", (born, index))),
        }
    }

    /// How many records the topic has that was born so.
    pub fn count(&self, born: u64) -> u64 {
        self.records.range((born, 0)..=(born, u64::MAX)).next_back().map_or(0, |((_, index), _)| *index)
    }

    /// How many topics have had records.
    pub fn topics(&self) -> usize {
        self.records.keys().map(|(born, _)| *born).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// The number of a record.
    pub fn number(&self, record: &[u8]) -> Option<u64> {
        self.numbers.get(record).map(|(_, index)| *index)
    }
}
