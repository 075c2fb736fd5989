//! What runs saw of tables without naming records: the records behind the ranges of keys that they read, and behind the keys that had no
//! value.
//!
//! An attempt saw what was there before its FIRED, and what earlier runs of its claim left.

use crate::{row::KeyedRead, table::Table};
use millrace_journal::Kind;
use std::{
    collections::{BTreeMap, HashMap},
    ops::{Bound, ControlFlow},
};

/// The keys of the tables of one journal, with their records.
pub(crate) struct Seen<'t> {
    table: &'t Table,
    /// By log: the records of each key, ascending.
    keys: HashMap<u32, BTreeMap<&'t [u8], Vec<u32>>>,
    /// By run: its last attempt.
    fired: HashMap<u32, u32>,
}

impl<'t> Seen<'t> {
    pub fn of(table: &'t Table) -> Self {
        let (mut keys, mut fired) = (HashMap::<u32, BTreeMap<_, Vec<u32>>>::new(), HashMap::new());
        for number in 0..table.len() {
            let row = table.row(number);
            if let Some(key) = table.key_bytes(number).filter(|_| row.is(Kind::Append)) {
                keys.entry(row.subject).or_default().entry(key).or_default().push(number);
            } else if row.attempt().is_some_and(|(_, waits)| !waits) {
                fired.extend(table.run_of(number).map(|run| (run, number)));
            }
        }
        Self { table, keys, fired }
    }

    /// Calls `each` for the records on which the keyed rows of a read depend, besides those that it names: of a key without a value and of each key
    /// of a range, the newest one that the run saw.
    pub fn records(&self, read: u32, mut each: impl FnMut(u32) -> ControlFlow<()>) -> ControlFlow<()> {
        let attempt = self.table.run_of(read).and_then(|run| self.fired.get(&run)).copied();
        for row in self.table.keyed_reads(read) {
            match row {
                KeyedRead::Absent { log, hash } => {
                    let key = self.table.key_of_hash(hash);
                    let versions = key.and_then(|key| self.keys.get(&log)?.get(key));
                    let seen = versions.and_then(|versions| self.newest(versions, read, attempt));
                    seen.map_or(ControlFlow::Continue(()), &mut each)?;
                }
                KeyedRead::Range { log, from, to, limit } => {
                    let Some(keys) = self.keys.get(&log) else { continue };
                    if !to.is_empty() && to <= from {
                        continue;
                    }
                    let end = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
                    let mut left = limit;
                    for versions in keys.range::<[u8], _>((Bound::Included(from), end)).map(|(_, versions)| versions) {
                        let Some(seen) = self.newest(versions, read, attempt) else { continue };
                        if left == 0 {
                            break;
                        }
                        left -= u32::from(!self.table.key(seen).is_some_and(|key| key.is_deletion));
                        each(seen)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The newest of the records of a key that an attempt saw.
    fn newest(&self, versions: &[u32], read: u32, attempt: Option<u32>) -> Option<u32> {
        let before = versions.partition_point(|version| *version < read);
        let mut newest_first = versions[..before].iter().rev().copied();
        newest_first.find(|version| !self.table.is_void(*version) && self.sees(*version, attempt))
    }

    fn sees(&self, record: u32, attempt: Option<u32>) -> bool {
        // Of a run without an attempt here, only the end is known.
        let Some(attempt) = attempt.filter(|attempt| record > *attempt) else { return true };
        let by = self.table.run_of(record).filter(|_| self.table.row(record).is(Kind::Append));
        let by = by.and_then(|run| self.fired.get(&run));
        // A claim's attempts follow each other, and what its later runs left stands behind the read.
        let claim = |fired| self.table.id(fired).get() - u128::from(self.table.place_in_claim(fired));
        by.is_some_and(|by| claim(*by) == claim(attempt))
    }
}
