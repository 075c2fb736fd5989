//! Which event loops may wait for the disk or for the journal, while others serve.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// How often a loop checks whether it may commit by itself before it hands a commit over, which takes some microseconds.
const CLAIM_TRIES: u32 = 400;
/// Most loops of one server.
pub(crate) const LOOPS_MAX: usize = 63;

/// The turns of a server, the number of a loop, and its number of connections.
type Here = (Arc<Turns>, usize, Arc<AtomicUsize>);

thread_local! {
    /// Of a loop's thread.
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// The loops of one server that may wait.
pub(crate) struct Turns {
    /// Those that may wait for the disk or for the journal now, one bit each. Never all of them: newcomers always find one that serves them.
    waiting: AtomicU64,
    loops: u32,
}

/// A loop that may wait, for as long as this lives.
pub(crate) struct MayWait(Option<(Arc<Turns>, u64)>);

impl Drop for MayWait {
    fn drop(&mut self) {
        if let Some((turns, bit)) = &self.0 {
            turns.waiting.fetch_and(!bit, Ordering::SeqCst);
        }
    }
}

/// This thread is a loop.
pub(crate) fn enter(here: Here) {
    HERE.set(Some(here));
}

/// Whether the loop of this thread may wait for a slow operation. A loop with a single connection delays no other client; with `others`, a
/// loop with more connections may wait as well. A thread that is not a loop may always wait.
pub(crate) fn may_wait(others: bool) -> Option<MayWait> {
    HERE.with_borrow(|here| match here {
        None => Some(MayWait(None)),
        Some((turns, number, load)) => turns.may_wait(*number, load, others),
    })
}

impl Turns {
    pub fn new(loops: usize) -> Self {
        Self { waiting: AtomicU64::new(0), loops: loops.clamp(1, LOOPS_MAX) as u32 }
    }

    /// The loops that may wait now, one bit each.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    pub fn may_wait(self: &Arc<Self>, number: usize, load: &AtomicUsize, others: bool) -> Option<MayWait> {
        if !others && load.load(Ordering::Relaxed) != 1 {
            return None;
        }
        let bit = 1 << number;
        // A commit through a mapping takes less than handing one over: it is worth a moment to let another loop end its own.
        let mut tries = if others { CLAIM_TRIES } else { 1 };
        let claimed = |waiting: u64| ((waiting | bit).count_ones() < self.loops).then_some(waiting | bit);
        while self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, claimed).is_err() {
            tries -= 1;
            if tries == 0 {
                return None;
            }
            std::hint::spin_loop();
        }
        let claim = MayWait(Some((self.clone(), bit)));
        // The acceptor counts a connection before it looks at `waiting` again, so one of the two sees the other.
        (others || load.load(Ordering::SeqCst) == 1).then_some(claim)
    }
}
