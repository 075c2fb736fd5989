//! No acknowledged record is lost: it is where its publisher was told, whatever crashed since.

use super::Agreement;
use std::collections::BTreeMap;

/// What publishers were told.
#[derive(Default)]
pub struct Acknowledged {
    told: BTreeMap<Vec<u8>, u64>,
}

impl Acknowledged {
    /// A publisher was told where its record is.
    pub fn told(&mut self, record: Vec<u8>, index: u64) {
        self.told.insert(record, index);
    }

    /// How many were told.
    pub fn count(&self) -> usize {
        self.told.len()
    }

    /// Looks for each of them.
    pub fn check(&self, agreement: &Agreement) -> Result<(), String> {
        for (record, index) in &self.told {
            let found = agreement.number(record);
            if found != Some(*index) && !(found.is_none() && agreement.has_gaps()) {
                let record = String::from_utf8_lossy(record);
                return Err(format!("'{record}' was acknowledged as {index}, and is {found:?}"));
            }
        }
        Ok(())
    }
}
