//! No acknowledged record is lost: it stays at the index that its publisher received, despite all crashes.

use super::Agreement;
use std::collections::BTreeMap;

/// The acknowledgements that publishers received.
#[derive(Default)]
pub struct Acknowledged {
    reported: BTreeMap<Vec<u8>, u64>,
}

impl Acknowledged {
    /// A publisher got the index of its record. One that publishes the record again, with its key, gets the same.
    pub fn reported(&mut self, record: Vec<u8>, index: u64) -> Result<(), String> {
        match self.reported.get(&record) {
            Some(before) if *before != index => {
                let record = String::from_utf8_lossy(&record);
                Err(format!("'{record}' was acknowledged as {before} and as {index}"))
            }
            _ => {
                self.reported.insert(record, index);
                Ok(())
            }
        }
    }

    /// How many were acknowledged.
    pub fn count(&self) -> usize {
        self.reported.len()
    }

    /// Looks for each of them.
    pub fn check(&self, agreement: &Agreement) -> Result<(), String> {
        for (record, index) in &self.reported {
            let found = agreement.number(record);
            if found != Some(*index) && !(found.is_none() && agreement.has_gaps()) {
                let record = String::from_utf8_lossy(record);
                return Err(format!("'{record}' was acknowledged as {index}, and is {found:?}"));
            }
        }
        Ok(())
    }
}
