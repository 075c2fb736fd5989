//! One order everywhere: the records of a topic are the same on every host and never change; no record occurs twice, and there are no gaps.

use std::collections::{BTreeMap, HashMap};

/// The records of a topic that any host has shown.
#[derive(Default)]
pub struct Agreement {
    records: BTreeMap<u64, Vec<u8>>,
    /// The topic's history is short: some records leave it before they are checked.
    has_gaps: bool,
    numbers: HashMap<Vec<u8>, u64>,
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

    /// A host shows a record; each host shows its records in order.
    pub fn shows(&mut self, host: u64, index: u64, record: &[u8]) -> Result<(), String> {
        let shown = self.count();
        if index > shown + 1 && !self.has_gaps {
            return Err(format!("host {host} has record {index}, and nobody ever had record {}", shown + 1));
        }
        if let Some(known) = self.records.get(&index) {
            return if known == record { Ok(()) } else { Err(format!("record {index} is another one on host {host}")) };
        }
        self.records.insert(index, record.to_vec());
        match self.numbers.insert(record.to_vec(), index) {
            None => Ok(()),
            Some(first) => Err(format!("record {first} is there again as {index}")),
        }
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.records.keys().next_back().copied().unwrap_or(0)
    }

    /// The number of a record.
    pub fn number(&self, record: &[u8]) -> Option<u64> {
        self.numbers.get(record).copied()
    }
}
