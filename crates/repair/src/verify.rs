//! Tests whether functions are deterministic: replays some runs with their original reads, and writes nothing.

use crate::{Runner, past::Past, session::Session};
use millrace_namespace::Namespace;
use millrace_wire::{EventId, Result};
use std::{collections::BTreeMap, sync::atomic::AtomicBool};

/// The result of replaying some runs of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many runs were replayed.
    pub runs: u64,
    /// How many of them appended the same records again.
    pub same: u64,
    /// A run that appended other records.
    pub differs: Option<EventId>,
}

/// Replays at most this many of the newest runs of each function; the results are by the function's name. Functions whose runs cannot be
/// replayed are omitted.
pub fn verify(namespace: &Namespace, most: usize, runner: &mut dyn Runner) -> Result<BTreeMap<String, Verified>> {
    let (journal, stop) = (namespace.journal(), AtomicBool::new(false));
    let mut past = Past::new(journal)?;
    past.follow(journal, journal.tail())?;
    let runs = past.runs.clone();
    let mut session = Session::over(namespace, past, runner, &stop);
    let mut found: BTreeMap<String, Verified> = BTreeMap::new();
    for run in runs.iter().rev() {
        let wanted = |name: &str| found.get(name).is_none_or(|verified| verified.runs < most as u64);
        let Some((name, same)) = session.leaves_the_same(run, wanted)? else { continue };
        let verified = found.entry(name).or_default();
        verified.runs += 1;
        match same {
            true => verified.same += 1,
            false => verified.differs = Some(run.trigger.run),
        }
    }
    Ok(found)
}
