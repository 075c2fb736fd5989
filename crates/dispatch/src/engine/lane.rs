//! The pending runs of one function.

use super::{Claimed, LaneView, Millis, Policy, Trigger, VIEW_MAX, Verdict};
use millrace_journal::Attempt;
use millrace_wire::{Error, EventId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Attempts beyond the retry limit, for runs that are interrupted by the end of their host, before the run is taken for the cause.
/// Hosts are killed for other reasons too, and a run counts as begun from the moment that it is claimed. Such an attempt
/// has its number, for it may have had effects outside, but it is no failure.
pub(super) const INTERRUPTIONS_MAX: u32 = 8;

/// How many times in a row a function may fail to start before the other functions of its monitor continue without it.
pub(super) const START_FAILURES_PATIENT: u32 = 3;

/// First pause of a run whose publication was refused by something that may go away; it doubles up to [`POSTPONE_MAX_MS`].
const POSTPONE_MS: Millis = 100;
const POSTPONE_MAX_MS: Millis = 3_200;

/// Why a function as a whole is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub error: Error,
    pub until: Millis,
}

/// Whether the function can be started, and how often that failed in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub failures: u32,
    pub stop: Option<Stop>,
}

/// The state of a run that has been claimed at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// May start at once.
    Ready,
    /// Claimed; `fired` is the fence, `None` until the claim is journaled.
    Running { fired: Option<EventId>, since: Millis },
    /// Failed, and waits for its next attempt.
    BackingOff { until: Millis, error: Error },
}

struct Started {
    trigger: Trigger,
    /// The newest FIRED that was read.
    newest: Option<EventId>,
    /// The sequence of the newest of them that began an attempt, if that is known.
    attempted: Option<u64>,
    /// The highest number that an attempt had, and whether what it leaves is published as it goes.
    begun: u32,
    streamed: bool,
    /// Attempts made, counting the one in progress.
    attempts: u32,
    /// Of these, how many were cut short by the end of their host.
    excused: u32,
    /// Whether its claim counts as an attempt; it does not if none was left.
    counted: bool,
    /// How often in a row it was postponed.
    postponed: u32,
    /// Why it is to be given up, if only that is left to do.
    dead: Option<Error>,
    state: State,
}

impl Started {
    fn new(trigger: Trigger) -> Self {
        Self {
            trigger,
            newest: None,
            attempted: None,
            begun: 0,
            streamed: false,
            attempts: 0,
            excused: 0,
            counted: false,
            postponed: 0,
            dead: None,
            state: State::Ready,
        }
    }
}

#[derive(Default)]
pub(super) struct Lane {
    /// `None` while the function is not defined.
    pub policy: Option<Policy>,
    pub standing: Standing,
    /// Runs never claimed, by id.
    fresh: VecDeque<Trigger>,
    /// Runs claimed at least once.
    started: BTreeMap<EventId, Started>,
    /// The started ones that are ready, and those backing off by deadline.
    ready: BTreeSet<EventId>,
    backing_off: BTreeSet<(Millis, EventId)>,
    /// How many started ones are running, here or in another dispatcher.
    running: u32,
    /// Batches in progress here; each has one slot, however many runs it holds.
    batches: u32,
}

impl Lane {
    // ---- what the journal says

    pub fn push(&mut self, trigger: Trigger) {
        if self.fresh.back().is_none_or(|last| last.run < trigger.run) && !self.started.contains_key(&trigger.run) {
            self.fresh.push_back(trigger);
        } else if !self.contains(trigger.run) {
            // Told behind younger ones: it goes to its place.
            let place = self.fresh.partition_point(|other| other.run < trigger.run);
            self.fresh.insert(place, trigger);
        }
    }

    pub fn contains(&self, run: EventId) -> bool {
        self.started.contains_key(&run) || self.fresh_place(run).is_some()
    }

    /// Whether this FIRED of a pending run is still needed: it began the newest known attempt, or came after it.
    pub fn needs(&self, run: EventId, fired: EventId) -> bool {
        match self.started.get(&run) {
            // Sequences grow. A copy of the namespace may restart its numbers; then more is kept than necessary.
            Some(started) => started.attempted <= Some(fired.sequence()),
            None => self.contains(run),
        }
    }

    fn fresh_place(&self, run: EventId) -> Option<usize> {
        // Runs end mostly in the order in which they were triggered.
        if self.fresh.front().is_some_and(|first| first.run == run) {
            return Some(0);
        }
        self.fresh.binary_search_by_key(&run, |trigger| trigger.run).ok()
    }

    pub fn fired(&mut self, run: EventId, fired: EventId, reported: Attempt) {
        if let Some(place) = self.fresh_place(run)
            && let Some(trigger) = self.fresh.remove(place)
        {
            self.started.insert(run, Started::new(trigger));
            self.ready.insert(run);
        }
        let Some(started) = self.started.get_mut(&run) else { return };
        if started.newest.is_some_and(|newest| fired <= newest) {
            return;
        }
        let waits = reported.waits;
        if !waits {
            started.attempted = Some(fired.sequence());
        } else if started.attempted.is_none() {
            started.attempted = (reported.before != 0).then_some(reported.before);
        }
        (started.newest, started.attempts, started.excused) = (Some(fired), reported.attempt, reported.interrupted);
        started.begun = started.begun.max(reported.attempt).max(reported.begun);
        started.streamed |= reported.streamed;
        match started.state {
            State::Running { fired: Some(_), .. } if waits => self.set_state(run, State::Ready),
            State::Running { fired: Some(own), .. } if own == fired => {}
            _ if waits => {}
            _ => self.set_state(run, State::Running { fired: Some(fired), since: 0 }),
        }
    }

    pub fn remove(&mut self, run: EventId) {
        if self.started.contains_key(&run) {
            self.unlist(run);
            self.started.remove(&run);
        } else if let Some(place) = self.fresh_place(run) {
            self.fresh.remove(place);
        }
    }

    pub fn interrupt(&mut self) {
        let running = |s: &Started| matches!(s.state, State::Running { .. });
        let interrupted: Vec<EventId> = self.started.iter().filter(|(_, s)| running(s)).map(|(run, _)| *run).collect();
        for run in interrupted {
            self.set_state(run, State::Ready);
            if let Some(started) = self.started.get_mut(&run) {
                started.excused += 1;
            }
        }
    }

    // ---- states: the one place that keeps the lists in step

    fn set_state(&mut self, run: EventId, state: State) {
        self.unlist(run);
        match &state {
            State::Ready => drop(self.ready.insert(run)),
            State::Running { .. } => self.running += 1,
            State::BackingOff { until, .. } => drop(self.backing_off.insert((*until, run))),
        }
        if let Some(started) = self.started.get_mut(&run) {
            started.state = state;
        }
    }

    fn unlist(&mut self, run: EventId) {
        match self.started.get(&run).map(|started| &started.state) {
            Some(State::Ready) => drop(self.ready.remove(&run)),
            Some(State::Running { .. }) => self.running -= 1,
            Some(State::BackingOff { until, .. }) => drop(self.backing_off.remove(&(*until, run))),
            None => {}
        }
    }

    // ---- what may start

    pub fn running(&self) -> u32 {
        self.running
    }

    /// Whether the function as a whole is held back.
    pub fn held(&self, now: Millis) -> bool {
        self.policy.is_none() || self.standing.stop.as_ref().is_some_and(|stop| now < stop.until)
    }

    /// Whether the other functions of its monitor continue without its runs: it is not defined, or repeatedly failed to start. A worker
    /// that was killed while it started is no reason to leave the order of records.
    pub fn passed_over(&self, now: Millis) -> bool {
        self.policy.is_none() || (self.held(now) && self.standing.failures >= START_FAILURES_PATIENT)
    }

    /// The oldest pending run.
    pub fn head(&self) -> Option<EventId> {
        let started = self.started.first_key_value().map(|(run, _)| *run);
        let fresh = self.fresh.front().map(|trigger| trigger.run);
        started.into_iter().chain(fresh).min()
    }

    /// The run that would start first, if one may start now.
    pub fn startable(&self, now: Millis) -> Option<EventId> {
        let policy = self.policy.as_ref().filter(|_| !self.held(now))?;
        if policy.serial {
            self.head().filter(|run| self.running == 0 && self.batches == 0 && self.is_due(*run, now))
        } else {
            self.first_due(now).filter(|_| self.batches < policy.slots)
        }
    }

    /// Whether nothing but its turn keeps this pending run from starting.
    fn is_due(&self, run: EventId, now: Millis) -> bool {
        match self.started.get(&run).map(|started| &started.state) {
            Some(State::BackingOff { until, .. }) => *until <= now,
            Some(State::Running { .. }) => false,
            Some(State::Ready) | None => true,
        }
    }

    /// The oldest run that is due. Of several that have backed off long enough, the one that waited longest.
    fn first_due(&self, now: Millis) -> Option<EventId> {
        let backed_off = self.backing_off.first().filter(|(until, _)| *until <= now).map(|(_, run)| *run);
        let fresh = self.fresh.front().map(|trigger| trigger.run);
        backed_off.into_iter().chain(self.ready.first().copied()).chain(fresh).min()
    }

    /// Claims up to `most` due runs older than `before`. Runs that were tried before are claimed alone, so that one that
    /// kills its worker takes no other with it.
    pub fn claim(&mut self, now: Millis, most: usize, before: EventId) -> Vec<Claimed> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let (serial, attempts_max) = (policy.serial, policy.attempts_max);
        let slots_free = policy.slots.saturating_sub(self.batches).max(1) as usize;
        // Waiting runs are divided among the free slots, so that they run concurrently.
        let most = if serial { most } else { most.min(self.fresh.len().div_ceil(slots_free)).max(1) };
        let mut claimed: Vec<Claimed> = Vec::with_capacity(most.min(self.fresh.len() + 1));
        while claimed.len() < most {
            let next = if serial { self.next_in_order() } else { self.first_due(now) };
            let Some(run) = next.filter(|run| *run < before && self.is_due(*run, now)) else { break };
            let retried = self.started.get(&run).is_some_and(|started| started.attempts > 0);
            if retried && !claimed.is_empty() {
                break;
            }
            claimed.push(self.start(run, attempts_max));
            if retried {
                break;
            }
        }
        self.batches += 1;
        claimed
    }

    /// Batches in progress here.
    pub fn batches(&self) -> u32 {
        self.batches
    }

    /// A batch is over, whatever the outcomes of its runs.
    pub fn ended(&mut self) {
        self.batches -= 1;
    }

    /// The oldest pending run that is not running.
    fn next_in_order(&self) -> Option<EventId> {
        let waiting = self.ready.first().copied().into_iter().chain(self.backing_off.iter().map(|(_, run)| *run)).min();
        waiting.into_iter().chain(self.fresh.front().map(|trigger| trigger.run)).min()
    }

    fn start(&mut self, run: EventId, attempts_max: u32) -> Claimed {
        if let Some(place) = self.fresh_place(run)
            && let Some(trigger) = self.fresh.remove(place)
        {
            self.started.insert(run, Started::new(trigger));
            self.ready.insert(run);
        }
        self.set_state(run, State::Running { fired: None, since: 0 });
        let started = self.started.get_mut(&run).expect("a run that is due is pending");
        // Only ends of hosts bring a run here with no attempt left.
        let exhausted = started.attempts >= attempts_max + INTERRUPTIONS_MAX;
        started.counted = !exhausted;
        started.attempts += u32::from(started.counted);
        let (trigger, attempt, excused, before) = (started.trigger, started.attempts, started.excused, started.newest);
        Claimed { trigger, attempt, excused, before, exhausted }
    }

    // ---- outcomes of a claim

    pub fn confirm(&mut self, run: EventId, fired: EventId, now: Millis) {
        if let Some(started) = self.started.get_mut(&run)
            && matches!(started.state, State::Running { fired: None, .. })
        {
            started.state = State::Running { fired: Some(fired), since: now };
        }
    }

    pub fn holds(&self, run: EventId, claim: Option<EventId>) -> bool {
        let holder = self.started.get(&run).map(|started| &started.state);
        matches!(holder, Some(State::Running { fired, .. }) if *fired == claim)
    }

    pub fn release(&mut self, run: EventId, claim: Option<EventId>) {
        if self.holds(run, claim)
            && let Some(started) = self.started.get_mut(&run)
        {
            started.attempts -= u32::from(started.counted).min(started.attempts);
            self.set_state(run, State::Ready);
        }
    }

    pub fn failed(&mut self, run: EventId, fired: EventId, error: Error, now: Millis) -> Verdict {
        let (true, Some(started), Some(policy)) =
            (self.holds(run, Some(fired)), self.started.get_mut(&run), &self.policy)
        else {
            // Without a definition the run waits for one; the attempt does not count.
            self.release(run, Some(fired));
            return Verdict::Stale;
        };
        started.postponed = 0;
        let failures = started.attempts.saturating_sub(started.excused);
        if failures >= policy.attempts_max {
            return Verdict::Exhausted;
        }
        let doubled = policy.backoff.saturating_mul(1 << failures.saturating_sub(1).min(30));
        let delay_ms = doubled.min(policy.backoff_max).as_millis() as Millis; // at most BACKOFF_MAX
        self.set_state(run, State::BackingOff { until: now + delay_ms, error });
        Verdict::Retry { delay_ms }
    }

    pub fn postpone(
        &mut self,
        run: EventId,
        fired: EventId,
        (error, dead): (Error, Option<Error>),
        now: Millis,
    ) -> Option<Millis> {
        if !self.holds(run, Some(fired)) {
            return None;
        }
        self.release(run, Some(fired));
        let started = self.started.get_mut(&run)?;
        started.dead = dead;
        let delay_ms = (POSTPONE_MS << started.postponed.min(10)).min(POSTPONE_MAX_MS);
        started.postponed = started.postponed.saturating_add(1);
        self.set_state(run, State::BackingOff { until: now + delay_ms, error });
        Some(delay_ms)
    }

    pub fn dead(&self, run: EventId) -> Option<Error> {
        self.started.get(&run)?.dead.clone()
    }

    pub fn untold(&self, run: EventId, fired: EventId) -> Option<Attempt> {
        let started = self.started.get(&run).filter(|started| started.newest == Some(fired))?;
        let waits = !matches!(started.state, State::Running { .. });
        // A run that is to be given up counts its last attempt.
        let begun = if started.begun > started.attempts { started.begun } else { 0 };
        (waits && started.dead.is_none()).then(|| Attempt {
            attempt: started.attempts,
            interrupted: started.excused,
            waits: true,
            before: fired.sequence(),
            begun,
            streamed: started.streamed,
            ..Attempt::default()
        })
    }

    // ---- for those who ask

    pub fn next_deadline(&self, now: Millis) -> Option<Millis> {
        self.policy.as_ref()?;
        let stopped = self.standing.stop.as_ref().map(|stop| stop.until).filter(|until| now < *until);
        stopped.or_else(|| self.backing_off.range((now + 1, EventId::NONE)..).next().map(|(until, _)| *until))
    }

    pub fn view(&self) -> LaneView<'_> {
        let mut view = LaneView {
            pending: self.fresh.len() + self.started.len(),
            stop: self.standing.stop.as_ref(),
            running: Vec::new(),
            backing_off: Vec::new(),
        };
        for (run, started) in &self.started {
            match &started.state {
                State::Running { since, .. } if view.running.len() < VIEW_MAX => {
                    view.running.push((*run, started.attempts, *since));
                }
                State::BackingOff { until, error } if view.backing_off.len() < VIEW_MAX => {
                    view.backing_off.push((*run, started.attempts, *until, error));
                }
                _ => {}
            }
        }
        view
    }
}
