//! What runs of this process print while they are in progress. The journal has the output of a run when it has ended.
//!
//! Only runs that print take room here: their newest output, in shards, so that workers rarely wait for each other.

use millrace_wire::EventId;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

const SHARDS: usize = 16;
/// Runs whose output a shard has. Those that ended go first.
const SHARD_RUNS_MAX: usize = 16;
/// How much of the output of one run is kept: the newest bytes.
const KEPT_MAX_BYTES: usize = 64 << 10;

/// A part of what a run has printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// How many bytes it had printed before this part.
    pub from: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

struct Printing {
    run: EventId,
    /// The newest bytes, and how many were before them.
    kept: VecDeque<u8>,
    before: u64,
    is_over: bool,
}

/// The output of runs in progress.
#[derive(Default)]
pub struct Printed([Mutex<VecDeque<Printing>>; SHARDS]);

impl Printed {
    fn shard(&self, run: EventId) -> MutexGuard<'_, VecDeque<Printing>> {
        let shard = &self.0[run.sequence() as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run has printed something.
    pub fn add(&self, run: EventId, bytes: &[u8]) {
        let mut shard = self.shard(run);
        let at = match shard.iter().position(|printing| printing.run == run) {
            Some(at) => at,
            None => {
                if shard.len() == SHARD_RUNS_MAX {
                    let oldest = shard.iter().position(|printing| printing.is_over).unwrap_or(0);
                    shard.remove(oldest);
                }
                shard.push_back(Printing { run, kept: VecDeque::new(), before: 0, is_over: false });
                shard.len() - 1
            }
        };
        let printing = &mut shard[at];
        printing.is_over = false;
        let (skipped, added) = bytes.split_at(bytes.len().saturating_sub(KEPT_MAX_BYTES));
        let over = (printing.kept.len() + added.len()).saturating_sub(KEPT_MAX_BYTES);
        printing.kept.drain(..over);
        printing.kept.extend(added);
        printing.before += (over + skipped.len()) as u64;
    }

    /// A run has ended, or its attempt has: its output may make room for others'.
    pub fn over(&self, run: EventId) {
        if let Some(printing) = self.shard(run).iter_mut().find(|printing| printing.run == run) {
            printing.is_over = true;
        }
    }

    /// What a run has printed behind its first `from` bytes, as far as it is kept, at most `most` bytes; nothing if it has printed
    /// nothing here.
    pub fn part(&self, run: EventId, from: u64, most: usize) -> Option<Part> {
        let shard = self.shard(run);
        let printing = shard.iter().find(|printing| printing.run == run)?;
        let from = from.max(printing.before);
        let skipped = usize::try_from(from - printing.before).unwrap_or(usize::MAX).min(printing.kept.len());
        let bytes = printing.kept.iter().skip(skipped).take(most).copied().collect();
        Some(Part { from, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u64) -> EventId {
        EventId::from_bits(1 << 90 | u128::from(number))
    }

    #[test]
    fn output_is_read_in_parts_and_its_newest_bytes_are_kept() {
        let printed = Printed::default();
        assert_eq!(printed.part(run(1), 0, 100), None);
        printed.add(run(1), b"one ");
        printed.add(run(2), b"other");
        printed.add(run(1), b"two");
        let part = |from, most| printed.part(run(1), from, most).unwrap();
        assert_eq!(part(0, 100), Part { from: 0, bytes: b"one two".into() });
        assert_eq!(part(4, 2), Part { from: 4, bytes: b"tw".into() });
        assert_eq!(part(7, 100), Part { from: 7, bytes: Vec::new() });
        printed.add(run(1), &vec![b'x'; KEPT_MAX_BYTES - 3]);
        assert_eq!((part(0, 4).from, &*part(0, 4).bytes), (4, &b"twox"[..]));
        printed.add(run(1), &vec![b'y'; 2 * KEPT_MAX_BYTES]);
        let last = part(0, usize::MAX);
        assert_eq!((last.from, last.bytes.len()), (4 + 2 * KEPT_MAX_BYTES as u64, KEPT_MAX_BYTES));
    }

    #[test]
    fn runs_that_ended_make_room_first() {
        let printed = Printed::default();
        let same_shard = |number: u64| run(number * SHARDS as u64);
        (0..SHARD_RUNS_MAX as u64).for_each(|number| printed.add(same_shard(number), b"x"));
        printed.over(same_shard(5));
        printed.add(same_shard(100), b"x");
        assert_eq!(printed.part(same_shard(5), 0, 1), None);
        assert!(printed.part(same_shard(0), 0, 1).is_some());
        printed.add(same_shard(101), b"x");
        assert_eq!(printed.part(same_shard(0), 0, 1), None, "the oldest");
    }
}
