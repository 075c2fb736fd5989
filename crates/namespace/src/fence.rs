//! The fence of a repair: while one is applied, a run that has used what the repair replaces is not published, but run again.
//!
//! ```text
//!   raised ── runs with an input among the slots wait ──> applied ── those FIRED before run again ──> lifted
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
    raised: Mutex<Option<Raised>>,
}

struct Raised {
    repair: u64,
    slots: Slots,
    /// Once the repair is applied: runs that see what was there before.
    before: Option<Position>,
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

impl Fence {
    fn raised(&self) -> MutexGuard<'_, Option<Raised>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps runs back that have used one of these slots.
    pub fn raise(&self, repair: u64, slots: Slots) {
        *self.raised() = Some(Raised { repair, slots, before: None });
        self.is_raised.store(true, Ordering::Release);
    }

    /// The repair is applied: what sees the namespace as of `at` or later passes.
    pub fn applied(&self, at: Position) {
        if let Some(raised) = &mut *self.raised() {
            raised.before = Some(at);
        }
    }

    /// Keeps nothing back any more.
    pub fn lift(&self) {
        self.is_raised.store(false, Ordering::Release);
        *self.raised() = None;
    }

    /// Whether a run that sees the namespace as of `snapshot` and has used these slots may be published. The caller has the journal's
    /// lock.
    pub fn judge(&self, snapshot: Position, mut used: impl Iterator<Item = (u32, u64)>) -> Verdict {
        if !self.is_raised.load(Ordering::Acquire) {
            return Verdict::Passes;
        }
        let raised = self.raised();
        let Some(raised) = &*raised else { return Verdict::Passes };
        if raised.before.is_some_and(|before| snapshot >= before) || !used.any(|slot| raised.slots.contains(&slot)) {
            return Verdict::Passes;
        }
        if raised.before.is_some() { Verdict::Again } else { Verdict::Waits(raised.repair) }
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
        fence.lift();
        assert_eq!(judge(old, (1, 7)), Verdict::Passes);
    }
}
