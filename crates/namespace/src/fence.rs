//! The fence of a repair: while one is applied, a run that has used what the repair replaces is not published, but run again.
//!
//! ```text
//!   raised ── runs with an input among the slots wait ──> applied ── those FIRED before run again
//! ```
//!
//! The host that applies the repair and the host that runs the functions are one process, so it stands in memory: if that
//! process ends, so does the fence, and so do all attempts that it could have kept back.

use millrace_journal::Position;
use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Slots of logs: a log's id and a seqno.
pub type Slots = HashSet<(u32, u64)>;

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
    raised: Option<(u64, Slots)>,
    /// Those of repairs that were applied: what sees the namespace as of before has not seen them. The oldest first.
    applied: Vec<(Position, Slots)>,
}

/// What the fence says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be published.
    Passes,
    /// It waits for this repair, and is run again.
    Waits(u64),
    /// It is run again at once: the repair was applied since it was FIRED.
    Again,
}

/// So many repairs are known apart; of older ones, more runs are run again than need be.
const APPLIED_MAX: usize = 8;

impl Fence {
    fn fences(&self) -> MutexGuard<'_, Fences> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps runs back that have used one of these slots.
    pub fn raise(&self, repair: u64, slots: Slots) {
        self.fences().raised = Some((repair, slots));
        self.is_raised.store(true, Ordering::Release);
    }

    /// The repair is applied: what sees the namespace as of `at` or later passes.
    pub fn applied(&self, at: Position) {
        let mut fences = self.fences();
        if let Some((_, slots)) = fences.raised.take() {
            fences.applied.push((at, slots));
        }
        if fences.applied.len() > APPLIED_MAX {
            let (_, oldest) = fences.applied.remove(0);
            fences.applied[0].1.extend(oldest);
        }
    }

    /// The repair is not applied.
    pub fn lower(&self) {
        self.fences().raised = None;
    }

    /// Whether a run that sees the namespace as of `snapshot` and has used these slots may be published. The caller has the journal's
    /// lock.
    pub fn judge(&self, snapshot: Position, used: impl Iterator<Item = (u32, u64)>) -> Verdict {
        if !self.is_raised.load(Ordering::Acquire) {
            return Verdict::Passes;
        }
        let (fences, used) = (self.fences(), used.collect::<Vec<_>>());
        let uses = |slots: &Slots| used.iter().any(|slot| slots.contains(slot));
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
        let judge = |at, slot| fence.judge(at, [slot].into_iter());
        assert_eq!(judge(old, (1, 7)), Verdict::Passes);
        fence.raise(3, Slots::from([(1, 7)]));
        assert_eq!((judge(old, (1, 7)), judge(old, (1, 8))), (Verdict::Waits(3), Verdict::Passes));
        fence.applied(new);
        assert_eq!((judge(old, (1, 7)), judge(new, (1, 7))), (Verdict::Again, Verdict::Passes));
        fence.raise(4, Slots::from([(1, 8)]));
        assert_eq!((judge(old, (1, 7)), judge(new, (1, 8))), (Verdict::Again, Verdict::Waits(4)));
        fence.lower();
        assert_eq!((judge(old, (1, 7)), judge(old, (1, 8))), (Verdict::Again, Verdict::Passes));
    }
}
