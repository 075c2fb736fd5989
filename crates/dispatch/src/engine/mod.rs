//! Decides which runs may start now. Pure: the entries of the journal and the time are its input, and it does no I/O.
//!
//! ```text
//!                 trigger                claim                    done
//!   (journal) ------------> fresh ------------------> running ------------> (gone)
//!                             ^                        |  |  ^
//!                             | release, never fired   |  |  | claim
//!                             +------------------------+  v  |
//!                                              ready or backing off <-- failed; interrupted by the host's end
//! ```
//!
//! A run is known by the id of its TRIGGER. Ids grow in journal order, also from a namespace to its copy, so "in trigger order" is "by id".
//! Every claim is journaled as a FIRED entry whose id is the claim's fence: only the dispatcher with the newest FIRED may publish.
//!
//! Memory is bounded by admission, which bounds the pending runs.

mod lane;
#[cfg(test)]
mod tests;

pub(crate) use lane::Stop;
use lane::{Lane, Standing};
use millrace_journal::{Attempt, Run};
use millrace_wire::{Error, EventId, Hlc, Name};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// Milliseconds on the dispatcher's monotonic clock.
pub(crate) type Millis = u64;

/// First pause of a function that could not be started; it doubles up to [`START_PAUSE_MAX_MS`].
const START_PAUSE_MS: Millis = 1_000;
const START_PAUSE_MAX_MS: Millis = 30_000;
/// With this number of batches in progress, a function begins another one only if it has none: each takes a thread, and functions whose
/// runs are stuck must not take the last of them.
const CROWDED: u32 = 768;
const _: () = assert!(CROWDED as usize <= super::pool::THREADS_MAX / 4 * 3);

/// The parts of a function's definition that the engine needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Most batches in progress at once.
    pub slots: u32,
    /// One at a time, in trigger order.
    pub serial: bool,
    pub monitor: Option<Name>,
    pub attempts_max: u32,
    pub backoff: Duration,
    pub backoff_max: Duration,
}

/// A pending run: its id and the record that causes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    pub run: EventId,
    /// Its number among the runs of its function.
    pub number: u64,
    /// The APPEND of that record, or of the dead letter whose record is run again.
    pub cause: EventId,
    pub log: u32,
    pub seqno: u64,
    /// When it was triggered.
    pub at: Hlc,
}

impl Trigger {
    /// The run, as the journal names it.
    pub fn as_run(&self) -> Run {
        Run { id: self.run, number: self.number }
    }
}

/// A run that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub trigger: Trigger,
    pub attempt: u32,
    /// How many of the attempts before were cut short by the end of their host.
    pub excused: u32,
    /// The run's newest FIRED before this claim.
    pub before: Option<EventId>,
    /// No attempt is left: earlier hosts ended in the middle of them. It is claimed to be ended, not to be run.
    pub exhausted: bool,
}

/// The outcome of a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It will be tried again after this time.
    Retry { delay_ms: Millis },
    /// That was the last attempt.
    Exhausted,
    /// The run no longer belongs to this claim: nothing to do.
    Stale,
}

/// The pending runs of all functions.
#[derive(Default)]
pub(crate) struct Engine {
    lanes: BTreeMap<u32, Lane>,
    /// The members of each monitor.
    monitors: HashMap<Name, Vec<u32>>,
    /// The function that was served last; the next claim begins behind it, so that none is starved.
    served: u32,
    /// Batches in progress here, of all functions.
    batches: u32,
}

impl Engine {
    // ---- what the journal says

    /// The function is defined like this now; `None` removes it or holds it back, its runs stay.
    pub fn define(&mut self, function: u32, policy: Option<Policy>) {
        let lane = self.lanes.entry(function).or_default();
        lane.standing = Standing::default();
        lane.policy = policy;
        self.monitors.clear();
        for (id, lane) in &self.lanes {
            if let Some(monitor) = lane.policy.as_ref().and_then(|policy| policy.monitor.clone()) {
                self.monitors.entry(monitor).or_default().push(*id);
            }
        }
    }

    /// A TRIGGER was read. One that is known already, because it was carried forward, changes nothing.
    pub fn triggered(&mut self, function: u32, trigger: Trigger) {
        self.lanes.entry(function).or_default().push(trigger);
    }

    /// A FIRED was read: a dispatcher claimed the run, or recorded that its attempt is over and it waits. A FIRED older than the known one,
    /// because it was carried forward, changes nothing.
    pub fn fired(&mut self, function: u32, run: EventId, fired: EventId, reported: Attempt) {
        if let Some(lane) = self.lanes.get_mut(&function) {
            lane.fired(run, fired, reported);
        }
    }

    /// A DONE was read: the run is over.
    pub fn done(&mut self, function: u32, run: EventId) {
        if let Some(lane) = self.lanes.get_mut(&function) {
            lane.remove(run);
        }
    }

    /// All runs that are pending at the start of this host were passed in: the hosts of fired runs have ended.
    pub fn recovered(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.interrupt();
        }
    }

    // ---- what the dispatcher asks

    /// Takes the next runs that may start, all of one function, in trigger order; at most `batch_max` of them.
    ///
    /// `None` when nothing may start now.
    pub fn claim(&mut self, now: Millis, batch_max: impl Fn(u32) -> usize) -> Option<(u32, Vec<Claimed>)> {
        let function = self.next(now)?;
        self.served = function;
        let before = self.monitor_bound(function, now);
        let lane = self.lanes.get_mut(&function)?;
        let runs = lane.claim(now, batch_max(function).max(1), before);
        self.batches += 1;
        debug_assert!(!runs.is_empty());
        Some((function, runs))
    }

    /// The function whose runs may start next, in turn.
    pub fn next(&self, now: Millis) -> Option<u32> {
        let after = self.lanes.range(self.served.saturating_add(1)..);
        let turn = after.chain(self.lanes.range(..=self.served));
        turn.filter(|(id, lane)| self.may_start(**id, lane, now)).map(|(id, _)| *id).next()
    }

    fn may_start(&self, function: u32, lane: &Lane, now: Millis) -> bool {
        let Some(run) = lane.startable(now) else { return false };
        if self.batches >= CROWDED && lane.batches() > 0 {
            return false;
        }
        self.peers(function)
            .all(|peer| peer.running() == 0 && (peer.passed_over(now) || peer.head().is_none_or(|head| run < head)))
    }

    /// Runs of a monitor's function are claimed only up to the next run of another of its functions.
    fn monitor_bound(&self, function: u32, now: Millis) -> EventId {
        let heads = self.peers(function).filter(|peer| !peer.passed_over(now)).filter_map(Lane::head);
        heads.min().unwrap_or(EventId::from_bits(u128::MAX))
    }

    /// The other functions of the function's monitor.
    fn peers(&self, function: u32) -> impl Iterator<Item = &Lane> {
        let monitor = self.lanes.get(&function).and_then(|lane| lane.policy.as_ref()?.monitor.as_ref());
        let members = monitor.and_then(|monitor| self.monitors.get(monitor)).map_or(&[][..], Vec::as_slice);
        members.iter().filter(move |member| **member != function).filter_map(|member| self.lanes.get(member))
    }

    /// The claim of a run is in the journal as this FIRED.
    pub fn confirm(&mut self, function: u32, run: EventId, fired: EventId, now: Millis) {
        if let Some(lane) = self.lanes.get_mut(&function) {
            lane.confirm(run, fired, now);
        }
    }

    /// Whether the claim of this FIRED may still publish; `None` is a claim that is not journaled yet.
    pub fn holds(&self, function: u32, run: EventId, fired: Option<EventId>) -> bool {
        self.lanes.get(&function).is_some_and(|lane| lane.holds(run, fired))
    }

    /// Gives a claim back unused; the attempt does not count. `fired` is `None` if the claim never reached the journal.
    pub fn release(&mut self, function: u32, run: EventId, fired: Option<EventId>) {
        if let Some(lane) = self.lanes.get_mut(&function) {
            lane.release(run, fired);
        }
    }

    /// An attempt failed. An exhausted run stays claimed: its dead letter is to be published.
    pub fn failed(&mut self, function: u32, run: EventId, fired: EventId, error: Error, now: Millis) -> Verdict {
        self.lanes.get_mut(&function).map_or(Verdict::Stale, |lane| lane.failed(run, fired, error, now))
    }

    /// Delays a run, whatever its attempts, because of a refusal outside the run: longer each time in a row. A run that is to be given up
    /// for `dead` is not executed again for that. Returns the delay; none if the run no longer belongs to this claim.
    pub fn postpone(
        &mut self,
        function: u32,
        run: EventId,
        fired: EventId,
        why: (Error, Option<Error>),
        now: Millis,
    ) -> Option<Millis> {
        self.lanes.get_mut(&function)?.postpone(run, fired, why, now)
    }

    /// Why a run that is claimed is only to be given up.
    pub fn dead(&self, function: u32, run: EventId) -> Option<Error> {
        self.lanes.get(&function)?.dead(run)
    }

    /// The entry that records that a run waits, if the journal still has it as in progress.
    pub fn untold(&self, function: u32, run: EventId, fired: EventId) -> Option<Attempt> {
        self.lanes.get(&function)?.untold(run, fired)
    }

    /// The batch of a claim is over, whatever the outcomes of its runs.
    pub fn ended(&mut self, function: u32) {
        if let Some(lane) = self.lanes.get_mut(&function) {
            lane.ended();
            self.batches -= 1;
        }
    }

    /// The function cannot be started: its runs wait, and are not counted as tried.
    pub fn start_failed(&mut self, function: u32, error: Error, now: Millis) {
        if let Some(lane) = self.lanes.get_mut(&function) {
            let failures = lane.standing.failures.saturating_add(1);
            let pause = START_PAUSE_MS.saturating_mul(1 << (failures - 1).min(10)).min(START_PAUSE_MAX_MS);
            lane.standing = Standing { failures, stop: Some(Stop { error, until: now + pause }) };
        }
    }

    /// The function ran, so it can be started again.
    pub fn started(&mut self, function: u32) {
        if let Some(lane) = self.lanes.get_mut(&function) {
            lane.standing = Standing::default();
        }
    }

    /// The next moment at which something may start without anything being journaled.
    pub fn next_deadline(&self, now: Millis) -> Option<Millis> {
        self.lanes.values().filter_map(|lane| lane.next_deadline(now)).min()
    }

    /// Whether the run is pending.
    pub fn is_pending(&self, function: u32, run: EventId) -> bool {
        self.lanes.get(&function).is_some_and(|lane| lane.contains(run))
    }

    /// Whether the run is pending and this FIRED of it is still needed; the newest attempt supersedes earlier ones.
    pub fn needs(&self, function: u32, run: EventId, fired: EventId) -> bool {
        self.lanes.get(&function).is_some_and(|lane| lane.needs(run, fired))
    }

    /// The activity of one function, for reports.
    pub fn view(&self, function: u32) -> Option<LaneView<'_>> {
        self.lanes.get(&function).map(Lane::view)
    }
}

/// The activity of a function.
pub(crate) struct LaneView<'a> {
    pub pending: usize,
    pub stop: Option<&'a Stop>,
    /// Runs in progress: id, attempt, since when.
    pub running: Vec<(EventId, u32, Millis)>,
    /// Runs backing off: id, attempts made, until when, after which error.
    pub backing_off: Vec<(EventId, u32, Millis, &'a Error)>,
}

/// Most running runs, and most runs backing off, that a view lists.
pub(crate) const VIEW_MAX: usize = 64;
