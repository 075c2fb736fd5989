//! Log matching: entries with one index and one term are one entry.

use millrace_group::Proposal;
use std::collections::BTreeMap;

/// The entries that were written anywhere.
#[derive(Default)]
pub struct Matching {
    entries: BTreeMap<(u64, u64), Vec<u8>>,
}

impl Matching {
    /// A host writes an entry.
    pub fn wrote(&mut self, entry: &Proposal) -> Result<(), String> {
        let known = self.entries.entry((entry.index, entry.term)).or_insert_with(|| entry.data.clone());
        if *known == entry.data {
            return Ok(());
        }
        Err(format!("two entries have index {} and term {}", entry.index, entry.term))
    }
}
