//! Election safety: a term has one leader at most.

use std::collections::BTreeMap;

/// The leaders that were seen.
#[derive(Default)]
pub struct Election {
    leaders: BTreeMap<u64, u64>,
}

impl Election {
    /// A host leads in this term.
    pub fn leads(&mut self, term: u64, host: u64) -> Result<(), String> {
        match *self.leaders.entry(term).or_insert(host) {
            first if first == host => Ok(()),
            first => Err(format!("hosts {first} and {host} both lead in term {term}")),
        }
    }

    /// How many terms had a leader.
    pub fn terms(&self) -> usize {
        self.leaders.len()
    }
}
