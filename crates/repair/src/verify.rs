//! Tests whether functions are deterministic: replays some runs with their original reads, and writes nothing.

use crate::{
    Runner,
    past::Past,
    session::{Session, devices::device_of},
};
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

/// The results of replays by function, and by the device on which its runs were executed.
pub type VerifiedRuns = BTreeMap<(String, Option<String>), Verified>;

/// Replays at most this many of the newest runs of each function, and of each device; with `only`, of that device alone. Functions whose runs
/// cannot be replayed are omitted.
pub fn verify(namespace: &Namespace, most: usize, only: Option<&str>, runner: &mut dyn Runner) -> Result<VerifiedRuns> {
    let (journal, stop) = (namespace.journal(), AtomicBool::new(false));
    let mut past = Past::new(journal)?;
    past.follow(journal, journal.tail())?;
    let runs = past.runs.clone();
    let mut session = Session::over(namespace, past, runner, &stop);
    let mut found = VerifiedRuns::new();
    for run in runs.iter().rev() {
        let device = device_of(&session.past, run).map(str::to_owned);
        if only.is_some() && device.as_deref() != only {
            continue;
        }
        let wanted = |name: &str| {
            let known = found.get(&(name.to_owned(), device.clone()));
            known.is_none_or(|verified| verified.runs < most as u64)
        };
        let Some((name, same)) = session.leaves_the_same(run, wanted)? else { continue };
        let verified = found.entry((name, device)).or_default();
        verified.runs += 1;
        match same {
            true => verified.same += 1,
            false => verified.differs = Some(run.trigger.run),
        }
    }
    Ok(found)
}
