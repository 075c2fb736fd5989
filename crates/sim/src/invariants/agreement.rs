//! One order everywhere: a record of a topic is the same on every host and never becomes another; no record is there twice, and none is
//! missing before another.

use std::collections::HashMap;

/// The records of a topic that any host has shown.
#[derive(Default)]
pub struct Agreement {
    records: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u64>,
}

impl Agreement {
    /// A host shows a record; each host shows its records in order.
    pub fn shows(&mut self, host: u64, index: u64, record: &[u8]) -> Result<(), String> {
        let shown = self.records.len() as u64;
        if index > shown + 1 {
            return Err(format!("host {host} has record {index}, and nobody ever had record {}", shown + 1));
        }
        if index <= shown {
            let known = &self.records[index as usize - 1];
            return if known == record { Ok(()) } else { Err(format!("record {index} is another one on host {host}")) };
        }
        self.records.push(record.to_vec());
        match self.numbers.insert(record.to_vec(), index) {
            None => Ok(()),
            Some(first) => Err(format!("record {first} is there again as {index}")),
        }
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// The number of a record.
    pub fn number(&self, record: &[u8]) -> Option<u64> {
        self.numbers.get(record).copied()
    }
}
