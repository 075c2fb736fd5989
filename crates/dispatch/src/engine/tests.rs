//! Compares the engine with a model without queues: a list of runs, and the rules as plain conditions.

use super::*;
use millrace_wire::{Code, NamespaceId};
use proptest::{collection::vec, prelude::*};

fn id(sequence: u64) -> EventId {
    EventId::new(NamespaceId::new(7).unwrap(), 1, sequence)
}

fn trigger(sequence: u64) -> Trigger {
    Trigger { run: id(sequence), number: sequence, cause: EventId::NONE, log: 1, seqno: sequence, at: Hlc::default() }
}

fn reported(attempt: u32, interrupted: u32) -> Attempt {
    Attempt { attempt, interrupted, ..Attempt::default() }
}

fn policy(slots: u32, serial: bool, monitor: Option<&str>) -> Policy {
    Policy {
        slots,
        serial: serial || monitor.is_some(),
        monitor: monitor.map(|name| name.parse().unwrap()),
        attempts_max: 3,
        backoff: Duration::from_millis(10),
        backoff_max: Duration::from_millis(15),
    }
}

fn oops() -> Error {
    Code::FunctionFailed.error("oops")
}

/// Four functions: ordered; three at once; and two that share a monitor.
fn policies() -> [Policy; 4] {
    [policy(1, true, None), policy(3, false, None), policy(1, true, Some("m")), policy(1, false, Some("m"))]
}

#[test]
fn what_retention_carried_forward_counts_once_wherever_it_is_met() {
    let mut engine = Engine::default();
    engine.triggered(0, trigger(1));
    engine.fired(0, id(1), id(12), reported(2, 0));
    engine.triggered(0, trigger(1)); // carried
    engine.fired(0, id(1), id(11), reported(1, 0)); // carried, and older
    engine.fired(0, id(2), id(13), reported(1, 0)); // of a run that has ended
    engine.recovered();
    let needed = [10, 11, 12, 13].map(|fired| engine.needs(0, id(1), id(fired)));
    assert_eq!((needed, engine.needs(0, id(2), id(13))), ([false, false, true, true], false));
    engine.define(0, Some(policy(1, true, None)));
    let (_, claimed) = engine.claim(0, |_| 10).unwrap();
    assert_eq!(claimed.iter().map(|c| (c.trigger.run, c.attempt)).collect::<Vec<_>>(), [(id(1), 3)]);
    // During normal work: a copy of the FIRED of a run that backs off.
    engine.confirm(0, id(1), id(14), 0);
    engine.fired(0, id(1), id(14), reported(3, 0));
    let mut patient = policy(1, true, None);
    patient.attempts_max = 9;
    engine.define(0, Some(patient));
    assert!(matches!(engine.failed(0, id(1), id(14), oops(), 0), Verdict::Retry { .. }));
    engine.fired(0, id(1), id(14), reported(3, 0));
    engine.ended(0);
    let (_, claimed) = engine.claim(1000, |_| 10).expect("it is still backing off, and due by now");
    assert_eq!(claimed[0].attempt, 4);
}

/// A journal that was restored with a smaller identity: the entries of its ancestor still count as older.
#[test]
fn a_copy_of_a_namespace_continues_its_history() {
    let copied = |sequence| EventId::new(NamespaceId::new(3).unwrap(), 2, sequence);
    let mut engine = Engine::default();
    engine.define(0, Some(policy(1, true, None)));
    engine.triggered(0, trigger(1));
    engine.fired(0, id(1), id(2), reported(1, 0));
    engine.triggered(0, trigger(3));
    engine.triggered(
        0,
        Trigger { run: copied(5), number: 4, cause: EventId::NONE, log: 1, seqno: 4, at: Hlc::default() },
    );
    // Several hosts end in the middle of the first run, until it has no attempt left.
    let most = 3 + lane::INTERRUPTIONS_MAX;
    for attempt in 2..=most {
        engine.fired(0, id(1), copied(u64::from(attempt) + 10), reported(attempt, attempt - 1));
    }
    engine.recovered();
    let (_, claimed) = engine.claim(0, |_| 1).unwrap();
    assert_eq!((claimed[0].trigger.run, claimed[0].attempt, claimed[0].exhausted), (id(1), most, true));
    // Once the run is given back, the dispatcher can journal that it waits.
    engine.fired(0, id(1), copied(40), reported(most, most));
    engine.release(0, id(1), Some(copied(40)));
    engine.ended(0);
    let untold = engine
        .untold(0, id(1), copied(40))
        .map(|reported| (reported.attempt, reported.interrupted, reported.waits, reported.before));
    assert_eq!(untold, Some((most, most, true, 40)));
    engine.done(0, id(1));
    let (_, claimed) = engine.claim(0, |_| 9).unwrap();
    assert_eq!(claimed.iter().map(|c| c.trigger.run).collect::<Vec<_>>(), [id(3), copied(5)]);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Waiting,
    /// It waits again because, according to the journal, its host ended in the middle of it.
    Interrupted,
    BackingOff(Millis),
    Running(EventId),
}

#[derive(Clone, Debug)]
struct Model {
    /// (function, run, attempts, place, interrupted attempts), in trigger order.
    runs: Vec<(u32, EventId, u32, Place, u32)>,
    /// Batches in progress: function and its runs with their fences.
    batches: Vec<(u32, Vec<(EventId, EventId)>)>,
    held: [Millis; 4],
    /// How often in a row each function could not be started.
    failures: [u32; 4],
}

impl Model {
    fn due(&self, place: Place, now: Millis) -> bool {
        matches!(place, Place::Waiting | Place::Interrupted)
            || matches!(place, Place::BackingOff(until) if until <= now)
    }

    fn passed_over(&self, function: u32, now: Millis) -> bool {
        self.held[function as usize] > now && self.failures[function as usize] >= super::lane::START_FAILURES_PATIENT
    }

    /// Whether a run of this function may start, by the rules alone.
    fn may_start(&self, function: u32, now: Millis) -> bool {
        let policy = &policies()[function as usize];
        let busy = |f: u32| {
            self.batches.iter().any(|(b, _)| *b == f)
                || self.runs.iter().any(|r| r.0 == f && matches!(r.3, Place::Running(_)))
        };
        let slots = self.batches.iter().filter(|(f, _)| *f == function).count() as u32;
        if self.held[function as usize] > now {
            return false;
        }
        if !policy.serial {
            return slots < policy.slots && self.runs.iter().any(|r| r.0 == function && self.due(r.3, now));
        }
        let Some(head) = self.runs.iter().find(|r| r.0 == function) else { return false };
        let peers = (0..4).filter(|f| {
            *f != function && policy.monitor.is_some() && policies()[*f as usize].monitor == policy.monitor
        });
        let turn = peers.clone().all(|peer| {
            self.passed_over(peer, now) || self.runs.iter().find(|r| r.0 == peer).is_none_or(|r| head.1 < r.1)
        });
        let exclusive = peers.clone().all(|p| !self.runs.iter().any(|r| r.0 == p && matches!(r.3, Place::Running(_))));
        !busy(function) && exclusive && turn && self.due(head.3, now)
    }

    fn place(&mut self, run: EventId) -> Option<&mut (u32, EventId, u32, Place, u32)> {
        self.runs.iter_mut().find(|r| r.1 == run)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Trigger(u32),
    Claim(usize),
    /// The n-th run of the n-th batch succeeds.
    Done(usize, usize),
    Fail(usize, usize),
    Release(usize, usize),
    End(usize),
    Pass(Millis),
    StartFailed(u32),
    /// The host dies and another folds the journal again.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(
        prop_oneof![
            6 => (0..4u32).prop_map(Step::Trigger),
            6 => (1..5usize).prop_map(Step::Claim),
            4 => (0..4usize, 0..4usize).prop_map(|(b, r)| Step::Done(b, r)),
            2 => (0..4usize, 0..4usize).prop_map(|(b, r)| Step::Fail(b, r)),
            1 => (0..4usize, 0..4usize).prop_map(|(b, r)| Step::Release(b, r)),
            3 => (0..4usize).prop_map(Step::End),
            3 => (0..20u64).prop_map(Step::Pass),
            1 => (0..4u32).prop_map(Step::StartFailed),
            1 => Just(Step::Restart),
        ],
        0..120,
    )
}

/// Checks one claim against the rules, and applies it to the model.
fn follow_claim(model: &mut Model, function: u32, runs: &[Claimed], now: Millis) -> Result<(), TestCaseError> {
    let policy = &policies()[function as usize];
    prop_assert!(model.may_start(function, now), "function {function} was not to start");
    let ids: Vec<EventId> = runs.iter().map(|claimed| claimed.trigger.run).collect();
    prop_assert!(ids.is_sorted() && !ids.is_empty());
    if policy.serial {
        let of_function: Vec<EventId> = model.runs.iter().filter(|r| r.0 == function).map(|r| r.1).collect();
        prop_assert_eq!(&of_function[..ids.len()], &ids[..], "a serial function skipped a run");
    }
    for claimed in runs {
        let fence = EventId::from_bits(claimed.trigger.run.get() ^ (u128::from(claimed.attempt) << 40) ^ (1 << 50));
        let due = model.runs.iter().find(|r| r.1 == claimed.trigger.run).is_some_and(|r| model.due(r.3, now));
        prop_assert!(due, "{} is not due", claimed.trigger.run);
        let run = model.place(claimed.trigger.run).unwrap();
        prop_assert_eq!(claimed.exhausted, run.2 >= 3 + super::lane::INTERRUPTIONS_MAX);
        run.2 = (run.2 + 1).min(3 + super::lane::INTERRUPTIONS_MAX);
        prop_assert_eq!((claimed.attempt, claimed.excused), (run.2, run.4));
        prop_assert!(run.2 == 1 || runs.len() == 1, "a run that was tried before is claimed alone");
        run.3 = Place::Running(fence);
    }
    Ok(())
}

fn fence_of(model: &Model, run: EventId) -> EventId {
    match model.runs.iter().find(|r| r.1 == run).map(|r| r.3) {
        Some(Place::Running(fence)) => fence,
        _ => EventId::NONE,
    }
}

fn new_engine(model: &Model) -> Engine {
    let mut engine = Engine::default();
    for (function, policy) in policies().into_iter().enumerate() {
        engine.define(function as u32, Some(policy));
    }
    for (function, run, attempts, place, excused) in &model.runs {
        engine.triggered(*function, trigger(run.sequence()));
        if *attempts > 0 {
            // The attempt that was journaled last does not count its own interruption.
            let interrupted = *place == Place::Interrupted;
            let interruptions = excused - u32::from(interrupted);
            engine.fired(*function, *run, id(1 << 30 | run.sequence()), reported(*attempts, interruptions));
            if !interrupted {
                let over = Attempt { waits: true, ..reported(*attempts, interruptions) };
                engine.fired(*function, *run, id(1 << 31 | run.sequence()), over);
            }
            engine.fired(*function, *run, id(1 << 30 | run.sequence()), reported(*attempts, interruptions)); // as if carried forward
        }
    }
    engine.recovered();
    engine
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn it_starts_exactly_what_the_rules_allow(steps in steps()) {
        let mut model = Model { runs: Vec::new(), batches: Vec::new(), held: [0; 4], failures: [0; 4] };
        let mut engine = new_engine(&model);
        let (mut now, mut sequence) = (0, 0);
        for step in steps {
            let run_of = |model: &Model, batch: usize, run: usize| {
                let (function, runs) = model.batches.get(batch)?;
                runs.get(run).map(|(run, fence)| (*function, *run, *fence))
            };
            match step {
                Step::Trigger(function) => {
                    sequence += 1;
                    engine.triggered(function, trigger(sequence));
                    engine.triggered(function, trigger(sequence)); // as if carried forward
                    model.runs.push((function, id(sequence), 0, Place::Waiting, 0));
                }
                Step::Claim(most) => match engine.claim(now, |_| most) {
                    Some((function, runs)) => {
                        prop_assert!(runs.len() <= most);
                        follow_claim(&mut model, function, &runs, now)?;
                        let fences: Vec<_> = runs.iter().map(|c| (c.trigger.run, fence_of(&model, c.trigger.run))).collect();
                        for (run, fence) in &fences {
                            engine.confirm(function, *run, *fence, now);
                            prop_assert!(engine.holds(function, *run, Some(*fence)) && !engine.holds(function, *run, None));
                        }
                        model.batches.push((function, fences));
                    }
                    None => {
                        let missed = (0..4).find(|f| model.may_start(*f, now));
                        prop_assert_eq!(missed, None, "the rules allow it, but nothing was claimed");
                    }
                },
                Step::Done(batch, run) => if let Some((function, run, fence)) = run_of(&model, batch, run) {
                    prop_assert_eq!(engine.holds(function, run, Some(fence)), fence_of(&model, run) == fence);
                    if fence_of(&model, run) == fence {
                        engine.done(function, run);
                        model.runs.retain(|r| r.1 != run);
                    }
                },
                Step::Fail(batch, run) => if let Some((function, run, fence)) = run_of(&model, batch, run) {
                    let verdict = engine.failed(function, run, fence, oops(), now);
                    if fence_of(&model, run) != fence {
                        prop_assert_eq!(verdict, Verdict::Stale);
                    } else if model.place(run).map(|run| run.2.saturating_sub(run.4)).unwrap() >= 3 {
                        prop_assert_eq!(verdict, Verdict::Exhausted);
                        engine.done(function, run);
                        model.runs.retain(|r| r.1 != run);
                    } else {
                        let run = model.place(run).unwrap();
                        let delay_ms = if run.2.saturating_sub(run.4) <= 1 { 10 } else { 15 };
                        run.3 = Place::BackingOff(now + delay_ms);
                        prop_assert_eq!(verdict, Verdict::Retry { delay_ms });
                    }
                },
                Step::Release(batch, run) => if let Some((function, run, fence)) = run_of(&model, batch, run) {
                    engine.release(function, run, Some(fence));
                    if fence_of(&model, run) == fence {
                        let run = model.place(run).unwrap();
                        (run.2, run.3) = (run.2 - 1, Place::Waiting);
                    }
                },
                Step::End(batch) => if batch < model.batches.len() {
                    let (function, runs) = model.batches.remove(batch);
                    for (run, fence) in runs {
                        if fence_of(&model, run) == fence {
                            engine.done(function, run);
                            model.runs.retain(|r| r.1 != run);
                        }
                    }
                    engine.ended(function);
                },
                Step::Pass(time) => now += time,
                Step::StartFailed(function) => {
                    engine.start_failed(function, oops(), now);
                    model.failures[function as usize] += 1;
                    model.held[function as usize] = engine.view(function).unwrap().stop.unwrap().until;
                    prop_assert!(model.held[function as usize] > now);
                }
                Step::Restart => {
                    model.batches.clear();
                    (model.held, model.failures) = ([0; 4], [0; 4]);
                    for run in &mut model.runs {
                        if matches!(run.3, Place::Running(_)) {
                            run.3 = Place::Interrupted;
                            // The journal shows only that it has begun.
                            run.4 += 1;
                        } else if run.3 != Place::Interrupted {
                            run.3 = Place::Waiting;
                        }
                    }
                    engine = new_engine(&model);
                }
            }
            for function in 0..4 {
                let pending = model.runs.iter().filter(|r| r.0 == function).count();
                prop_assert_eq!(engine.view(function).map_or(0, |view| view.pending), pending);
            }
            prop_assert_eq!(engine.next(now).is_some(), (0..4).any(|f| model.may_start(f, now)));
            prop_assert!(engine.next_deadline(now).is_none_or(|deadline| deadline > now));
        }
    }

    /// No run waits forever: if every claim succeeds and time passes, each run is executed once.
    #[test]
    fn everything_pending_gets_its_turn(functions in vec(0..4u32, 0..60)) {
        let mut engine = new_engine(&Model { runs: Vec::new(), batches: Vec::new(), held: [0; 4], failures: [0; 4] });
        for (sequence, function) in functions.iter().enumerate() {
            engine.triggered(*function, trigger(sequence as u64 + 1));
        }
        let mut ended = std::collections::BTreeSet::new();
        while let Some((function, runs)) = engine.claim(0, |_| 3) {
            for claimed in runs {
                prop_assert!(ended.insert(claimed.trigger.run));
                engine.done(function, claimed.trigger.run);
            }
            engine.ended(function);
        }
        prop_assert_eq!(ended.len(), functions.len());
    }
}

proptest! {
    // Few cases, because the backlogs are long.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// No function starves: once a function could start, at most one batch of each other function is claimed before it.
    #[test]
    fn no_function_is_kept_back_by_the_backlog_of_another(
        backlogs in vec(prop_oneof![Just(0u64), 1..200u64, Just(20_000)], 4),
        steps in vec((0..4u32, 0..6usize, 1..65usize), 1..300),
    ) {
        let mut engine = new_engine(&Model { runs: Vec::new(), batches: Vec::new(), held: [0; 4], failures: [0; 4] });
        let mut sequence = 0;
        let mut add = |engine: &mut Engine, function| {
            sequence += 1;
            engine.triggered(function, trigger(sequence));
        };
        for (function, backlog) in backlogs.iter().enumerate() {
            (0..*backlog).for_each(|_| add(&mut engine, function as u32));
        }
        let mut passed_over = [0; 4];
        let mut batches: Vec<(u32, Vec<EventId>)> = Vec::new();
        let most = 4 - 1;
        for (function, end, batch_max) in steps {
            add(&mut engine, function);
            // Sometimes a batch in progress ends; sometimes several are in progress at once.
            if end < batches.len() {
                let (function, runs) = batches.remove(end);
                runs.into_iter().for_each(|run| engine.done(function, run));
                engine.ended(function);
            }
            let could: Vec<u32> = (0..4).filter(|f| engine.may_start(*f, &engine.lanes[f], 0)).collect();
            let claimed = engine.claim(0, |_| batch_max);
            prop_assert_eq!(claimed.is_some(), !could.is_empty());
            let Some((claimed, runs)) = claimed else { continue };
            prop_assert!(runs.len() <= batch_max);
            batches.push((claimed, runs.into_iter().map(|run| run.trigger.run).collect()));
            for other in 0..4 {
                let passed = &mut passed_over[other as usize];
                *passed = if other != claimed && could.contains(&other) { *passed + 1 } else { 0 };
                prop_assert!(*passed <= most, "function {other} was passed over {passed} times");
            }
        }
    }
}

#[test]
fn a_newer_claim_fences_the_older() {
    let mut engine = new_engine(&Model { runs: Vec::new(), batches: Vec::new(), held: [0; 4], failures: [0; 4] });
    engine.triggered(0, trigger(1));
    engine.claim(0, |_| 1).unwrap();
    engine.confirm(0, id(1), id(2), 0);
    assert!(engine.holds(0, id(1), Some(id(2))));
    engine.fired(0, id(1), id(2), reported(1, 0)); // its own, read back
    assert!(engine.holds(0, id(1), Some(id(2))));
    engine.fired(0, id(1), id(3), reported(2, 0)); // another dispatcher's
    assert!(!engine.holds(0, id(1), Some(id(2))));
    assert_eq!(engine.failed(0, id(1), id(2), oops(), 0), Verdict::Stale);
    assert!(engine.holds(0, id(1), Some(id(3))), "a stale claim must not disturb the newer one");
}

#[test]
fn a_monitor_goes_on_past_a_function_that_cannot_start() {
    let mut engine = new_engine(&Model { runs: Vec::new(), batches: Vec::new(), held: [0; 4], failures: [0; 4] });
    engine.triggered(2, trigger(1));
    engine.triggered(3, trigger(2));
    for _ in 1..super::lane::START_FAILURES_PATIENT {
        engine.start_failed(2, oops(), 0);
        assert_eq!(engine.claim(0, |_| 9), None, "it was given up too soon: the other is not yet to go first");
    }
    engine.start_failed(2, oops(), 0);
    assert_eq!(engine.claim(0, |_| 9).unwrap().0, 3);
    engine.done(3, id(2));
    engine.ended(3);
    assert_eq!(engine.claim(0, |_| 9), None);
    let again = engine.next_deadline(0).unwrap();
    assert!(again > START_PAUSE_MS);
    assert_eq!(engine.claim(again, |_| 9).unwrap().0, 2);
}

#[test]
fn runs_of_an_undefined_function_wait_until_it_is_defined_again() {
    let mut engine = Engine::default();
    engine.triggered(9, trigger(1));
    assert_eq!(engine.claim(0, |_| 9), None);
    engine.define(9, Some(policy(1, true, None)));
    assert_eq!(engine.claim(0, |_| 9).unwrap().0, 9);
    engine.define(9, None);
    engine.confirm(9, id(1), id(2), 0);
    assert_eq!(engine.failed(9, id(1), id(2), oops(), 0), Verdict::Stale);
    engine.ended(9);
    engine.define(9, Some(policy(1, true, None)));
    assert_eq!(engine.claim(0, |_| 9).unwrap().1[0].attempt, 1);
}

#[test]
fn who_is_postponed_waits_longer_each_time_and_who_is_given_up_stays_so() {
    let mut engine = Engine::default();
    engine.define(0, Some(policy(1, true, None)));
    engine.triggered(0, trigger(1));
    let (mut now, mut delays) = (0, Vec::new());
    for n in 0..8 {
        let (_, claimed) = engine.claim(now, |_| 1).unwrap();
        assert_eq!(claimed[0].attempt, 1, "it counts as no attempt");
        let fence = id(10 + n);
        engine.confirm(0, id(1), fence, now);
        engine.fired(0, id(1), fence, reported(1, 0));
        assert_eq!(engine.untold(0, id(1), fence), None, "it is in progress");
        let dead = (n == 7).then(oops);
        let delay_ms = engine.postpone(0, id(1), fence, (oops(), dead.clone()), now).unwrap();
        let untold =
            engine.untold(0, id(1), fence).map(|reported| (reported.attempt, reported.interrupted, reported.begun));
        assert_eq!(untold, dead.is_none().then_some((0, 0, 1)), "none counts, and one began");
        assert_eq!(engine.untold(0, id(1), id(9)), None, "that is not its newest claim");
        assert_eq!(engine.dead(0, id(1)), dead);
        engine.ended(0);
        assert_eq!(engine.claim(now + delay_ms - 1, |_| 1), None);
        delays.push(delay_ms);
        now += delay_ms;
    }
    assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 3200, 3200]);
    engine.claim(now, |_| 1).unwrap();
    engine.release(0, id(1), None);
    assert_eq!(engine.dead(0, id(1)), Some(oops()));
}

#[test]
fn a_run_without_an_attempt_left_is_not_run_again_for_being_given_back() {
    let mut engine = Engine::default();
    engine.define(0, Some(policy(1, true, None)));
    engine.triggered(0, trigger(1));
    engine.fired(0, id(1), id(2), reported(3 + super::lane::INTERRUPTIONS_MAX, 0));
    engine.recovered();
    for _ in 0..2 {
        let (_, claimed) = engine.claim(0, |_| 1).unwrap();
        assert!(claimed[0].exhausted);
        engine.release(0, id(1), None);
        engine.ended(0);
    }
}

#[test]
fn functions_that_hold_most_threads_leave_one_to_every_other() {
    let mut engine = Engine::default();
    let many = 17;
    for function in 1..=many {
        engine.define(function, Some(policy(64, false, None)));
        for run in 0..64 {
            engine.triggered(function, trigger(u64::from(function) * 1000 + run));
        }
    }
    let mut batches = 0;
    while engine.claim(0, |_| 1).is_some() {
        batches += 1;
    }
    assert!(batches < 1024 - 100, "{batches} batches take every thread");
    engine.define(99, Some(policy(64, false, None)));
    for run in 0..2 {
        engine.triggered(99, trigger(99_000 + run));
    }
    assert_eq!(engine.claim(0, |_| 1).map(|(function, _)| function), Some(99));
    assert_eq!(engine.claim(0, |_| 1), None, "it has its share");
}
