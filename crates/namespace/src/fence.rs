//! The fence of a repair: while a repair is applied, a run that has used a record which the repair replaces is not published, but run
//! again.
//!
//! ```text
//!   raised ── runs with an input among the slots wait ──> applied ── those FIRED before run again
//! ```
//!
//! The host that applies the repair and the host that runs the functions are one process, so the fence is in memory: if that process ends,
//! the fence and all attempts that it could delay end with it.

use millrace_journal::{Position, What};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Slots of logs: a log's id and a seqno.
pub type Slots = HashSet<(u32, u64)>;

/// In place of a seqno: every record of the log. It is that of tables.
pub const WHOLE: u64 = 0;

/// A read of a run: the log's id, a seqno, and the kind of read.
pub type Used = (u32, u64, What);

/// The slots and the code that a repair replaces.
struct Replaced {
    slots: Slots,
    /// By log: the newest of them.
    newest: HashMap<u32, u64>,
    /// The functions that get other code.
    functions: HashSet<u32>,
}

impl Replaced {
    fn new(slots: Slots, functions: HashSet<u32>) -> Self {
        let mut newest = HashMap::new();
        for (log, seqno) in &slots {
            let newest: &mut u64 = newest.entry(*log).or_default();
            *newest = (*newest).max(*seqno);
        }
        Self { slots, newest, functions }
    }

    /// Whether a run that has used this may have used one of them.
    fn concerns(&self, (log, seqno, what): &Used) -> bool {
        match what {
            // Which version of a key a run sees depends on all records of its table.
            _ if self.slots.contains(&(*log, WHOLE)) => true,
            // A void slot after the newest record may no longer be void.
            What::Latest => self.newest.get(log).is_some_and(|newest| newest >= seqno),
            _ => self.slots.contains(&(*log, *seqno)),
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Fence {
    /// Whether there is anything to look at.
    is_raised: AtomicBool,
    fences: Mutex<Fences>,
}

#[derive(Default)]
struct Fences {
    /// That of the repair that is being applied.
    raised: Option<(u64, Replaced)>,
    /// Those of repairs that were applied: what sees the namespace as of before has not seen them. The oldest first.
    applied: Vec<(Position, Replaced)>,
}

/// The fence's decision about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be published.
    Passes,
    /// It waits for this repair, and is run again.
    Waits(u64),
    /// It is run again at once: the repair was applied since it was FIRED.
    Again,
}

/// The number of repairs that are tracked individually; after older ones, more runs than necessary are run again.
const APPLIED_MAX: usize = 8;

impl Fence {
    fn fences(&self) -> MutexGuard<'_, Fences> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps runs back that have used one of these slots, and runs of the function that gets other code.
    pub fn raise(&self, repair: u64, slots: Slots, function: Option<u32>) {
        self.fences().raised = Some((repair, Replaced::new(slots, function.into_iter().collect())));
        self.is_raised.store(true, Ordering::Release);
    }

    /// The repair is applied: what sees the namespace as of `at` or later passes.
    pub fn applied(&self, at: Position) {
        let mut fences = self.fences();
        if let Some((_, slots)) = fences.raised.take() {
            fences.applied.push((at, slots));
        }
        if fences.applied.len() > APPLIED_MAX {
            let (_, mut oldest) = fences.applied.remove(0);
            let next = &mut fences.applied[0].1;
            oldest.slots.extend(next.slots.drain());
            oldest.functions.extend(next.functions.drain());
            *next = Replaced::new(oldest.slots, oldest.functions);
        }
    }

    /// The repair is not applied.
    pub fn lower(&self) {
        self.fences().raised = None;
    }

    /// Whether a run of a function that sees the namespace as of `snapshot` and has used this may be published. The caller has the
    /// journal's lock.
    pub fn judge(&self, function: u32, snapshot: Position, used: impl Iterator<Item = Used>) -> Verdict {
        if !self.is_raised.load(Ordering::Acquire) {
            return Verdict::Passes;
        }
        let (fences, used) = (self.fences(), used.collect::<Vec<_>>());
        let uses = |replaced: &Replaced| {
            replaced.functions.contains(&function) || used.iter().any(|used| replaced.concerns(used))
        };
        match &fences.raised {
            Some((repair, slots)) if uses(slots) => Verdict::Waits(*repair),
            _ if fences.applied.iter().any(|(before, slots)| snapshot < *before && uses(slots)) => Verdict::Again,
            _ => Verdict::Passes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_used_a_replaced_record_waits_and_then_runs_again() {
        let fence = Fence::default();
        let (old, new) = (Position::from_bytes(64), Position::from_bytes(128));
        let judge = |at, (log, seqno)| fence.judge(1, at, [(log, seqno, What::Record)].into_iter());
        assert_eq!(judge(old, (1, 7)), Verdict::Passes);
        fence.raise(3, Slots::from([(1, 7)]), None);
        assert_eq!((judge(old, (1, 7)), judge(old, (1, 8))), (Verdict::Waits(3), Verdict::Passes));
        fence.applied(new);
        assert_eq!((judge(old, (1, 7)), judge(new, (1, 7))), (Verdict::Again, Verdict::Passes));
        fence.raise(4, Slots::from([(1, 8)]), None);
        assert_eq!((judge(old, (1, 7)), judge(new, (1, 8))), (Verdict::Again, Verdict::Waits(4)));
        fence.lower();
        assert_eq!((judge(old, (1, 7)), judge(old, (1, 8))), (Verdict::Again, Verdict::Passes));
    }

    #[test]
    fn a_record_where_there_was_none_behind_the_newest_concerns_whoever_was_told_the_newest() {
        let fence = Fence::default();
        let (old, new) = (Position::from_bytes(64), Position::from_bytes(128));
        let judge = |at, log, newest| fence.judge(1, at, [(log, newest, What::Latest)].into_iter());
        fence.raise(3, Slots::from([(1, 5), (1, 7)]), None);
        assert_eq!(
            [6, 7, 8].map(|newest| judge(old, 1, newest)),
            [Verdict::Waits(3), Verdict::Waits(3), Verdict::Passes]
        );
        assert_eq!(judge(old, 2, 6), Verdict::Passes);
        fence.applied(new);
        assert_eq!((judge(old, 1, 6), judge(new, 1, 6)), (Verdict::Again, Verdict::Passes));
    }

    #[test]
    fn a_run_of_a_function_that_gets_other_code_waits_and_then_runs_again() {
        let fence = Fence::default();
        let (old, new) = (Position::from_bytes(64), Position::from_bytes(128));
        let judge = |function, at| fence.judge(function, at, std::iter::empty());
        fence.raise(3, Slots::new(), Some(9));
        assert_eq!((judge(9, old), judge(8, old)), (Verdict::Waits(3), Verdict::Passes));
        fence.applied(new);
        assert_eq!((judge(9, old), judge(9, new), judge(8, old)), (Verdict::Again, Verdict::Passes, Verdict::Passes));
    }
}
