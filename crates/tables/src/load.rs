//! What replicas are loaded with: the newest records of keys, in the order of their numbers.
//!
//! The keys of a view are in another order. So one pass over all of them finds many records, and several pages are read from these.

use crate::{Scanned, Tables, view};
use millrace_journal::{Journal, Log, Position};
use millrace_wire::{
    Code, Result,
    table::{KeyRange, TableEntry},
};
use std::{
    collections::BinaryHeap,
    sync::{Arc, Mutex, PoisonError},
};

/// Pages that one pass finds the records of, of 24 bytes each.
const PAGES: usize = 16;
/// Loads whose records are remembered.
const LOADS_MAX: usize = 4;
/// How often a page is read again whose records retention moves meanwhile.
const READS_MAX: usize = 4;

/// Where the newest record of a key is, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Newest {
    seqno: u64,
    position: Position,
    expires_us: u64,
}

/// What one pass found.
struct Pass {
    log: u32,
    upto: Position,
    above: u64,
    /// Ascending.
    found: Vec<Newest>,
    /// Whether there are others above them.
    more: bool,
}

impl Pass {
    /// Whether it has the records that come next above one.
    fn has(&self, log: &Log, above: u64, upto: Position) -> bool {
        let is_within = self.above <= above && (!self.more || self.found.last().is_some_and(|last| above < last.seqno));
        (self.log, self.upto) == (log.id(), upto) && is_within
    }
}

/// The passes of the loads that go on.
#[derive(Default)]
pub(crate) struct Passes(Mutex<Vec<Arc<Pass>>>);

impl Passes {
    fn find(&self, log: &Log, above: u64, upto: Position) -> Option<Arc<Pass>> {
        let passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        passes.iter().find(|pass| pass.has(log, above, upto)).cloned()
    }

    fn put(&self, pass: Arc<Pass>) {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        passes.retain(|other| (other.log, other.upto) != (pass.log, pass.upto));
        if passes.len() == LOADS_MAX {
            passes.remove(0);
        }
        passes.push(pass);
    }

    fn remove(&self, pass: &Arc<Pass>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, pass));
    }
}

impl Tables {
    /// The newest records of keys with values as of a position, in the order of their seqnos, above one of them; at most `limit` and, unless the
    /// first alone is longer, `bytes_max` bytes. Expired values count as values until their keys are deleted.
    pub fn above(
        &self,
        journal: &Journal,
        log: &Log,
        above: u64,
        (limit, bytes_max): (usize, usize),
        upto: Position,
    ) -> Result<Scanned> {
        let mut reads = 0;
        loop {
            let pass = match self.passes.find(log, above, upto) {
                Some(pass) => pass,
                None => {
                    let pass = Arc::new(self.pass(journal, log, above, (upto, limit * PAGES))?);
                    self.passes.put(pass.clone());
                    pass
                }
            };
            match read(journal, log, &pass, above, (limit, bytes_max)) {
                // Retention moves records.
                Err(error) if error.code() == Code::BelowHistory && reads < READS_MAX => {
                    self.passes.remove(&pass);
                    reads += 1;
                }
                found => {
                    if found.as_ref().is_ok_and(|scanned| !scanned.more) {
                        self.passes.remove(&pass);
                    }
                    return found;
                }
            }
        }
    }

    fn pass(&self, journal: &Journal, log: &Log, above: u64, (upto, found_max): (Position, usize)) -> Result<Pass> {
        self.looked(journal, log, |view| {
            // The least ones, the greatest of them first.
            let (mut least, mut more) = (BinaryHeap::new(), false);
            let (mut keys, mut key) = (view.keys(KeyRange::default())?, Vec::new());
            while let Some(newest) = keys.next_into(&mut key)? {
                let Some(found) = view.find_from(journal, log, (&key, Some(newest)), Some(upto))? else { continue };
                if !found.is_value || found.seqno <= above {
                    continue;
                }
                least.push(Newest { seqno: found.seqno, position: found.position, expires_us: found.expires_us });
                if least.len() > found_max {
                    least.pop();
                    more = true;
                }
            }
            Ok(Pass { log: log.id(), upto, above, found: least.into_sorted_vec(), more })
        })
    }
}

/// A page of the records that a pass found.
fn read(journal: &Journal, log: &Log, pass: &Pass, above: u64, (limit, bytes_max): (usize, usize)) -> Result<Scanned> {
    let rest = &pass.found[pass.found.partition_point(|newest| newest.seqno <= above)..];
    let (mut scanned, mut bytes) = (Scanned::default(), 0);
    for newest in rest.iter().take(limit) {
        if bytes >= bytes_max {
            break;
        }
        let record = view::record_at(journal, log, newest.position)?;
        let Some(row) = record.row().filter(|_| record.seqno == newest.seqno) else {
            let detail = format!("there is another record than {} at {}", newest.seqno, newest.position);
            return Err(Code::BelowHistory.error(detail));
        };
        let key = row.key.to_vec();
        bytes += key.len() + record.payload.len();
        let (version, expires_us, time_us) = (newest.seqno, newest.expires_us, record.hlc.wall_us());
        scanned.entries.push(TableEntry { key, version, expires_us, time_us, value: Some(record.payload) });
    }
    scanned.more = pass.more || scanned.entries.len() < rest.len();
    Ok(scanned)
}
