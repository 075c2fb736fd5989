//! One worker thread: claims a batch, executes it, publishes it, and sleeps when there is nothing to do.

use super::{
    HostEvent, Shared,
    engine::{Claimed, Engine, Millis, Trigger},
    pool::{Pool as Threads, Rest, no_thread},
    publish::{Ended, Fate},
    stage::{Awaiting, Printing, RunCalls, Stage, TaskCalls},
    starter::Starter,
    state::is_transient,
    streamed::StreamedCalls,
};
use millrace_journal::{Attempt, Catalog, Function, Log, Position};
use millrace_namespace::{
    Need, Shows, Site,
    runs::pending::RecordOf,
    tasks::{self, Pool},
};
use millrace_runtime::{Completion, Executor, Invocation, ObjectCalls, Outcome, Progress, Replay, Rest as Onward, Run};
use millrace_wire::{Code, Error, EventId, Hlc, LogName, Name, Result, TableMode};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    task::{Wake, Waker},
    thread,
    time::{Duration, Instant},
};

/// Results are published together, but none waits longer than this for a run behind it to end.
const PUBLISH_DELAY: Duration = Duration::from_millis(1);
/// A run that waits for a database is woken; it looks this often whether the host stops, or it has waited too long.
const WRITTEN_LOOK: Duration = Duration::from_millis(50);
/// How often it is looked whether the run in progress was cancelled: a look reads one word of shared memory.
pub(super) const CANCEL_LOOK: Duration = Duration::from_millis(250);
/// How long a run may take before those behind it in its batch are left to others, if there may be others.
const LEAVE_AFTER: Duration = Duration::from_millis(100);
/// How long to wait before trying again after an error that may go away, such as a full disk.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts a worker thread, if there is room for one.
pub(super) fn spawn(shared: &Arc<Shared>) -> Result<()> {
    if !shared.pool.enter() {
        return Ok(());
    }
    let of_worker = shared.clone();
    let spawned = millrace_threads::spawn(thread::Builder::new().name("millrace-worker".into()), move || {
        let _exit = Exit(&of_worker);
        work(&of_worker);
    });
    spawned.map(drop).map_err(|e| {
        shared.pool.exit();
        no_thread(&e)
    })
}

/// Tells the pool that the thread ends, even when it panics.
struct Exit<'a>(&'a Shared);

impl Drop for Exit<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(Code::HostFailed.error("a worker thread panicked; its message is on standard error"));
        }
        self.0.pool.exit();
    }
}

fn work(shared: &Arc<Shared>) {
    while !shared.stopping() {
        // Closing a journal wakes all its waiters.
        if let Err(error) = shared.namespace.journal().check_health() {
            return shared.fail(error);
        }
        let looked = shared.now();
        let worked = match shared.claim(looked) {
            Ok(Some((claim, more))) => {
                let (began, alone) = shared.pool.begin(more);
                shared.touch();
                if alone {
                    // Without another thread this one still does all there is to do, one after the other.
                    let _ = spawn(shared);
                }
                let ran = shared.run(claim);
                shared.pool.end(began);
                shared.touch();
                ran.map(|()| true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match worked {
            Ok(true) => {}
            Ok(false) => match shared.rest(looked) {
                Rest::End => return,
                Rest::Lead | Rest::Look => {}
            },
            Err(error) if is_transient(&error) => thread::sleep(PAUSE),
            Err(error) => return shared.fail(error),
        }
    }
}

/// Runs that were claimed, not yet journaled as FIRED.
pub(super) struct Claim {
    function: u32,
    name: Name,
    pub runs: Vec<Claimed>,
    starter: Arc<Starter>,
    executor: Option<(u64, Box<dyn Executor>)>,
}

/// Runs that are FIRED, and what their publication needs.
pub(super) struct Batch {
    pub function: u32,
    pub name: Name,
    pub starter: Arc<Starter>,
    pub runs: Vec<Fired>,
    pub catalog: Arc<Catalog>,
    pub snapshot: Position,
    /// A run of a serial function did not end: those behind it must not be published.
    pub broken: Cell<bool>,
    /// A run's appends were not published as others have seen them.
    pub tainted: Cell<bool>,
}

impl Batch {
    /// Whether a run of the batch already has a DONE of another process: it was cancelled.
    fn is_over(&self, index: usize) -> bool {
        let function = self.catalog.function_by_id(self.function);
        let number = self.runs.get(index).map(|run| run.claimed.trigger.number);
        let item = function.zip(number).and_then(|(function, number)| function.run(number));
        item.is_some_and(|item| item.closed != 0)
    }
}

impl Awaiting for Shared {
    fn written(&self, records: Vec<(u32, u64)>) -> Result<()> {
        let gate = self.namespace.gate();
        if !gate.may_wait() {
            return Ok(());
        }
        let (journal, upto) = (self.namespace.journal(), self.namespace.journal().tail());
        let catalog = journal.catalog()?;
        let mut needs = Vec::new();
        for (log, seqno) in records {
            let position = match catalog.log_by_id(log) {
                Some(log) if seqno > 0 => journal.position(log, seqno),
                _ => Position::default(),
            };
            // Of a record that is gone, it is not known what it depends on.
            let shows = match position == Position::default() {
                true => Shows::Log { log, upto },
                false => Shows::Record(position.just_after()),
            };
            needs.extend(gate.needs(Site::Get, &shows));
        }
        self.await_needs(&needs)
    }

    fn synchronous(&self, table: &Log) -> Result<()> {
        let gate = self.namespace.gate();
        let of_table = table.table().is_some_and(|options| options.mode == TableMode::Synchronous);
        if !gate.may_wait() || !(of_table || self.namespace.bindings()?.has_synchronous()) {
            return Ok(());
        }
        let shows = Shows::Synchronous { log: table.id(), upto: self.namespace.journal().tail() };
        self.await_needs(&gate.needs(Site::Get, &shows))
    }
}

/// Wakes a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Follows one streamed run.
struct Watching<'a> {
    batch: &'a Batch,
    look_at: Instant,
    completion: Completion,
}

impl Progress for Watching<'_> {
    fn ended(&mut self, _: usize, completion: Completion) {
        self.completion = completion;
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.look_at)
    }

    fn wake(&mut self) -> Onward {
        self.look_at = Instant::now() + CANCEL_LOOK;
        if self.batch.is_over(0) { Onward::Stop } else { Onward::Run }
    }
}

/// A run in a batch, with its fence and its record.
pub(super) struct Fired {
    pub claimed: Claimed,
    pub fired: EventId,
    /// When it was FIRED.
    pub at: Hlc,
    /// The log's name and the record's bytes, or why they cannot be had.
    pub record: Result<(LogName, Vec<u8>)>,
    /// An earlier attempt has published, so this one gets the same answers, even if the function was changed.
    pub recorded: bool,
    /// Why an earlier attempt gave it up, if the journal has not taken its dead letter yet.
    pub dead: Option<Error>,
}

impl Shared {
    /// Takes the next runs that may start now, and returns whether more could start at the same time.
    pub fn claim(&self, now: Millis) -> Result<Option<(Claim, bool)>> {
        let mut state = self.state();
        if state.halted || self.stopping() {
            return Ok(None);
        }
        state.fold(self.namespace.journal().tail())?;
        state.define(&self.namespace, &*self.namespace.bindings()?);
        let super::State { engine, runners, .. } = &mut *state;
        let batch_max = |function| runners.get(&function).map_or(1, |runner| runner.pace.batch());
        let Some((function, runs)) = engine.claim(now, batch_max) else { return Ok(None) };
        let more = engine.next(now).is_some();
        let Some(runner) = runners.get_mut(&function) else {
            // The engine knows a policy only of functions that have a runner.
            unreachable!("function {function} was claimed without a runner");
        };
        let (name, starter, executor) = (runner.name.clone(), runner.starter.clone(), runner.idle.pop());
        Ok(Some((Claim { function, name, runs, starter, executor }, more)))
    }

    /// Runs what was claimed, from starting the function if need be to publishing.
    pub fn run(&self, mut claim: Claim) -> Result<()> {
        let checked = claim.starter.check();
        let idle =
            claim.executor.take_if(|(generation, _)| checked.is_ok() && *generation == claim.starter.generation());
        let executor = checked.and_then(|()| idle.map_or_else(|| claim.starter.executor(), Ok));
        // Only an attempt is journaled as one; starting a worker is not part of it.
        let ready = executor.and_then(|mut executor| executor.1.get_ready().map(|()| executor));
        let (generation, mut executor) = match ready {
            Ok(executor) => executor,
            Err(error) => {
                self.start_failed(&claim, error);
                return Ok(());
            }
        };
        let networked = claim.starter.definition().spec.network;
        let waited = match networked {
            true => self.await_written(self.namespace.journal().tail()),
            false => self.await_start(&claim),
        };
        if let Err(error) = waited {
            self.start_failed(&claim, error);
            return Ok(());
        }
        let fired = self.fire(&claim);
        let mut slowest = None;
        if let Ok(Some(batch)) = &fired {
            // Others have appended between the two.
            match networked.then(|| self.await_written(batch.snapshot)) {
                Some(Err(_)) => self.give_back(batch),
                _ => slowest = self.execute(batch, &mut *executor),
            }
        }
        let mut state = self.state();
        state.engine.ended(claim.function);
        if let Some(runner) = state.runners.get_mut(&claim.function).filter(|r| Arc::ptr_eq(&r.starter, &claim.starter))
        {
            if let Some(slowest) = slowest {
                runner.pace.note(slowest);
            }
            if let Ok(Some(batch)) = &fired
                && batch.tainted.get()
            {
                runner.pace.alone();
            }
            runner.idle.push((generation, executor));
            // Those of an earlier generation keep what is to go.
            runner.idle.retain(|(generation, _)| *generation == claim.starter.generation());
        }
        fired.map(drop)
    }

    /// Waits until the databases of tables have everything on which what a run can read depends: with a network, the run could show it.
    pub fn await_written(&self, upto: Position) -> Result<()> {
        self.await_needs(&self.namespace.gate().needs(Site::Get, &Shows::All(upto)))
    }

    /// Waits until the databases of synchronous tables have the writes because of which these runs start.
    fn await_start(&self, claim: &Claim) -> Result<()> {
        let gate = self.namespace.gate();
        let mut needs = Vec::new();
        if gate.may_wait() {
            let catalog = self.namespace.journal().catalog()?;
            for Claimed { trigger: Trigger { log, seqno, .. }, .. } in &claim.runs {
                if let Some(log) = catalog.log_by_id(*log) {
                    let upto = self.namespace.journal().position(log, *seqno).just_after();
                    needs.extend(gate.needs(Site::Get, &Shows::Start(upto)));
                }
            }
        }
        self.await_needs(&needs)
    }

    fn await_needs(&self, needs: &[Need]) -> Result<()> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        for (database, number) in needs {
            database.wake(*number, &waker);
            while database.reached() < *number {
                database.check()?;
                if self.stopping() {
                    return Err(Code::WritesWaiting.error("the host stops, and a database has not got all writes"));
                }
                thread::park_timeout(WRITTEN_LOOK);
            }
        }
        Ok(())
    }

    /// Gives the runs of a batch back that were not started.
    fn give_back(&self, batch: &Batch) {
        let rights = &batch.starter.definition().spec.rights;
        let (journal, catalog) = (self.namespace.journal(), batch.catalog.clone());
        let stage =
            Stage::new(self.namespace.tables(), journal, catalog, batch.snapshot, (rights, None), batch.runs.len());
        self.settle(batch, &stage, (0..batch.runs.len()).map(Ended::unused).collect());
    }

    fn start_failed(&self, claim: &Claim, error: Error) {
        let mut state = self.state();
        for claimed in &claim.runs {
            state.engine.release(claim.function, claimed.trigger.run, None);
        }
        state.engine.ended(claim.function);
        state.engine.start_failed(claim.function, error.clone(), self.now());
        drop(state);
        tracing::info!(target: "runs", function = %claim.name, code = error.code().id(), "cannot be started");
        self.observe(&HostEvent::StartFailed { function: &claim.name, error: &error });
        self.touch();
        self.namespace.journal().wake(); // the leader sleeps by an older deadline
    }

    /// Journals the claim: one FIRED for each run that no other process has taken or ended meanwhile. None if the function was deployed
    /// again since the claim, because a run whose FIRED follows a definition runs by that definition.
    fn fire(&self, claim: &Claim) -> Result<Option<Batch>> {
        let journal = self.namespace.journal();
        let mut state = self.state();
        let committed = journal.commit(|tx| {
            state.fold(tx.tail())?;
            let bindings = self.namespace.bindings_of(tx);
            let is_current = bindings.definition(claim.function) == Some(claim.starter.definition());
            let holds = |c: &&Claimed| is_current && state.engine.holds(claim.function, c.trigger.run, None);
            let ours = claim.runs.iter().filter(holds);
            // It cannot be redefined before this is journaled.
            let revision = tx.catalog().function_by_id(claim.function).map_or(0, Function::revision);
            let is_streamed = claim.starter.definition().spec.streamed;
            let fire = |(place, c): (u32, &Claimed)| {
                let (attempt, interrupted, before) = (c.attempt, c.excused, c.before.map_or(0, EventId::sequence));
                let streamed = is_streamed || state.recorded.has(c.trigger.run);
                let attempt = Attempt { attempt, interrupted, revision, place, before, streamed, ..Attempt::default() };
                let fired = tx.fired(claim.function, c.trigger.as_run(), &attempt)?;
                Ok((*c, fired, tx.clock()))
            };
            let fired = (0..).zip(ours).map(fire).collect::<Result<Vec<_>>>()?;
            Ok((fired, tx.catalog().clone()))
        });
        let now = self.now();
        let committed = match committed {
            Ok(committed) => committed,
            Err(error) => {
                for claimed in &claim.runs {
                    state.engine.release(claim.function, claimed.trigger.run, None);
                }
                return Err(error);
            }
        };
        let (fired, catalog) = committed.value;
        for (claimed, fired, _) in &fired {
            state.engine.confirm(claim.function, claimed.trigger.run, *fired, now);
        }
        for claimed in &claim.runs {
            state.engine.release(claim.function, claimed.trigger.run, None);
        }
        state.fold(committed.end)?;
        let reported = |run| (state.recorded.has(run), state.engine.dead(claim.function, run));
        let reported: Vec<_> = fired.iter().map(|(claimed, ..)| reported(claimed.trigger.run)).collect();
        drop(state);
        if fired.is_empty() {
            return Ok(None);
        }
        if let Some(measures) = self.namespace.measures().function(&claim.name) {
            for (claimed, _, at) in fired.iter().filter(|(claimed, ..)| claimed.before.is_none()) {
                let waited_us = at.wall_us().saturating_sub(claimed.trigger.at.wall_us());
                measures.wait.add(Duration::from_micros(waited_us));
            }
        }
        let record = |claimed: &Claimed| self.record(claim.function, &catalog, claimed);
        let fired = fired.into_iter().zip(reported);
        let run = |((claimed, fired, at), (recorded, dead)): ((Claimed, EventId, Hlc), (bool, Option<Error>))| Fired {
            record: record(&claimed),
            claimed,
            fired,
            at,
            recorded,
            dead,
        };
        let runs = fired.map(run).collect();
        Ok(Some(Batch {
            function: claim.function,
            name: claim.name.clone(),
            starter: claim.starter.clone(),
            runs,
            catalog: catalog.clone(),
            snapshot: committed.end,
            broken: Cell::new(false),
            tainted: Cell::new(false),
        }))
    }

    /// The record that causes a run: its log may be shorter than the queue. The record of a retried run is found by its dead letter.
    fn record(&self, function: u32, catalog: &Catalog, claimed: &Claimed) -> Result<(LogName, Vec<u8>)> {
        let Trigger { number, cause, log, seqno, .. } = claimed.trigger;
        let gone = || Code::RecordGone.error(format!("record {seqno} of the run: its log was removed"));
        let log = catalog.log_by_id(log).ok_or_else(gone)?;
        let record = RecordOf { run: (function, number), cause, log, seqno };
        Ok((log.name().clone(), self.namespace.record_of_run(record)?))
    }

    /// Executes a batch and publishes it as it goes; returns how long its slowest run took.
    fn execute(&self, batch: &Batch, executor: &mut dyn Executor) -> Option<Duration> {
        let streamed = batch.starter.definition().spec.streamed || batch.runs[0].recorded;
        let is_last = |(index, run): (usize, &Fired)| index > 0 && (streamed || run.recorded);
        let cannot_run = |run: &Fired| run.dead.is_some() || run.claimed.exhausted || run.record.is_err();
        let ready = batch.runs.iter().enumerate().position(|(index, run)| cannot_run(run) || is_last((index, run)));
        let ready = ready.unwrap_or(batch.runs.len());
        let rights = &batch.starter.definition().spec.rights;
        let (journal, catalog) = (self.namespace.journal(), batch.catalog.clone());
        let pool = batch.runs[0].record.as_ref().ok().and_then(|(log, _)| Pool::of(log));
        let stage =
            Stage::new(self.namespace.tables(), journal, catalog, batch.snapshot, (rights, pool), batch.runs.len());
        if ready == 0 {
            self.settle(batch, &stage, hopeless(batch));
            return None;
        }
        let slowest = if streamed {
            self.call_streamed(batch, &stage, executor)
        } else {
            self.call(batch, ready, &stage, executor)
        };
        // A run that cannot be executed is claimed again, first in its batch; those after it keep their order.
        let unused = (ready..batch.runs.len()).map(Ended::unused).collect();
        self.settle(batch, &stage, unused);
        Some(slowest)
    }

    /// Runs the first `ready` runs of the batch with the executor.
    fn call(&self, batch: &Batch, ready: usize, stage: &RefCell<Stage<'_>>, executor: &mut dyn Executor) -> Duration {
        let seed = self.namespace.journal().replay_seed();
        let replay = |run: &Fired| Replay::new(seed.bytes(), run.claimed.trigger.run, run.claimed.attempt, run.at);
        let runs = batch.runs[..ready].iter().enumerate();
        let mut answers: Vec<RunCalls<'_, '_>> = runs
            .map(|(index, run)| RunCalls {
                stage,
                run: index,
                replay: replay(run),
                starter: &batch.starter,
                awaiting: self,
                trigger: (run.claimed.trigger.log, run.claimed.trigger.seqno),
                record: run.record.as_ref().map_or(&[], |(_, payload)| payload),
                printed: Printing::new(self.namespace.printed(), &batch.starter, run.claimed.trigger.run),
            })
            .collect();
        let pool = batch.runs[0].record.as_ref().ok().and_then(|(log, _)| tasks::pool_of(log));
        let objects = batch.starter.objects().zip(pool);
        let mut of_tasks: Vec<TaskCalls<'_>> = objects.map_or_else(Vec::new, |(objects, pool)| {
            let calls = |run: &Fired| {
                let (objects, run) = (&**objects, run.claimed.trigger.run);
                TaskCalls { objects, pool, run, called: false }
            };
            batch.runs[..ready].iter().map(calls).collect()
        });
        let invocations = batch.runs[..ready].iter().filter_map(|run| {
            let (log, payload) = run.record.as_ref().ok()?;
            let (seqno, attempt) = (run.claimed.trigger.seqno, run.claimed.attempt);
            Some(Invocation { log, seqno, payload, run: run.claimed.trigger.run, attempt, streamed: false })
        });
        let objects = of_tasks.iter_mut().map(|calls| Some(calls as &mut dyn ObjectCalls));
        let objects = objects.chain(std::iter::repeat_with(|| None));
        let mut calls: Vec<Run<'_>> = invocations
            .zip(&mut answers)
            .zip(objects)
            .map(|((invocation, logs), objects)| Run { invocation, logs, objects })
            .collect();
        let mut following = Following::new(self, batch, stage, ready);
        executor.run(&mut calls, &mut following);
        drop(calls);
        of_tasks.iter().zip(&following.well).for_each(|(calls, well)| calls.over(*well));
        following.publish();
        following.slowest
    }

    /// Runs a batch of one streamed run with the executor.
    fn call_streamed(&self, batch: &Batch, stage: &RefCell<Stage<'_>>, executor: &mut dyn Executor) -> Duration {
        let run = &batch.runs[0];
        let mut calls = StreamedCalls::new(self, batch, run);
        let completion = Completion { outcome: Outcome::NotStarted, output: Vec::new(), elapsed: Duration::ZERO };
        let mut watching = Watching { batch, look_at: Instant::now() + CANCEL_LOOK, completion };
        if let (Ok((log, payload)), false) = (&run.record, calls.is_stopped()) {
            let (seqno, attempt) = (run.claimed.trigger.seqno, run.claimed.attempt);
            let invocation = Invocation { log, seqno, payload, run: run.claimed.trigger.run, attempt, streamed: true };
            executor.run(&mut [Run { invocation, logs: &mut calls, objects: None }], &mut watching);
        }
        let Completion { outcome, output, elapsed } = watching.completion;
        let (fate, reported, result) = calls.end(outcome);
        stage.borrow_mut().reported(0, reported);
        stage.borrow_mut().concluded(0, result);
        self.settle(batch, stage, vec![Ended { index: 0, fate, output, elapsed }]);
        elapsed
    }

    /// Leads or stands by until there may be something to do that there was not when it was `looked` for.
    fn rest(&self, looked: Millis) -> Rest {
        let journal = self.namespace.journal();
        // Before the check: a thread that stops this, or sets an earlier deadline, does so first and then wakes the leader.
        let wakes = journal.wakes();
        let (seen, deadline) = {
            let state = self.state();
            (state.folded(), due_in(&state.engine, looked, self.now()))
        };
        let rest = self.pool.rest(deadline);
        if rest == Rest::Lead {
            if !self.stopping() {
                journal.wait_work(seen, wakes, Threads::lead_time(deadline));
            }
            self.pool.led();
        }
        rest
    }
}

/// Follows a batch of atomic runs while it is executed: publishes what has ended, and leaves to others what has to wait for
/// long.
struct Following<'a, 's> {
    shared: &'a Shared,
    batch: &'a Batch,
    stage: &'a RefCell<Stage<'s>>,
    /// How many runs the executor was given.
    ready: usize,
    /// Runs that ended and are not published.
    ended: Vec<Ended>,
    /// Since when the first of it waits.
    since: Option<Instant>,
    /// The run in progress, and when it began.
    current: usize,
    began: Instant,
    /// Whether the runs behind it were given back.
    left: bool,
    slowest: Duration,
    /// Which runs ended well.
    well: Vec<bool>,
    /// When it is looked next whether the run in progress was cancelled.
    look_at: Instant,
}

impl<'a, 's> Following<'a, 's> {
    fn new(shared: &'a Shared, batch: &'a Batch, stage: &'a RefCell<Stage<'s>>, ready: usize) -> Self {
        let (ended, began) = (Vec::with_capacity(ready), Instant::now());
        let (since, current, left, slowest) = (None, 0, false, Duration::ZERO);
        let (well, look_at) = (vec![false; ready], began + CANCEL_LOOK);
        Self { shared, batch, stage, ready, ended, since, current, began, left, slowest, well, look_at }
    }

    fn publish(&mut self) {
        self.since = None;
        self.shared.settle(self.batch, self.stage, std::mem::take(&mut self.ended));
    }

    /// Whether others may run what comes after the run in progress.
    fn may_leave(&self) -> bool {
        let spec = &self.batch.starter.definition().spec;
        !self.left && self.current + 1 < self.ready && !spec.serial() && spec.concurrency > 1
    }

    fn leave(&mut self) {
        self.left = true;
        let rest = (self.current + 1..self.ready).map(Ended::unused).collect();
        self.shared.settle(self.batch, self.stage, rest);
    }
}

impl Progress for Following<'_, '_> {
    fn ended(&mut self, run: usize, completion: Completion) {
        self.slowest = self.slowest.max(completion.elapsed);
        self.well[run] = completion.outcome == Outcome::Done;
        self.ended.push(of_completion(self.stage, run, completion));
        (self.current, self.began) = (run + 1, Instant::now());
        self.look_at = self.began + CANCEL_LOOK;
        let since = *self.since.get_or_insert(self.began);
        if since.elapsed() >= PUBLISH_DELAY {
            self.publish();
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let publish = self.since.map(|since| since + PUBLISH_DELAY);
        let leave = self.may_leave().then(|| self.began + LEAVE_AFTER);
        publish.into_iter().chain(leave).chain([self.look_at]).min()
    }

    fn wake(&mut self) -> Onward {
        if self.since.is_some_and(|since| since.elapsed() >= PUBLISH_DELAY) {
            self.publish();
        }
        if self.may_leave() && self.began.elapsed() >= LEAVE_AFTER {
            self.leave();
        }
        if self.look_at <= Instant::now() {
            self.look_at = Instant::now() + CANCEL_LOOK;
            if self.batch.is_over(self.current) {
                return Onward::Stop;
            }
        }
        if self.left { Onward::Leave } else { Onward::Run }
    }

    fn over(&mut self) {
        self.publish();
    }
}

/// How long it is to what becomes due after it was `looked` for last; that may have passed meanwhile.
pub(super) fn due_in(engine: &Engine, looked: Millis, now: Millis) -> Option<Duration> {
    engine.next_deadline(looked).map(|at| Duration::from_millis(at.saturating_sub(now)))
}

/// How a run ended, as the publisher takes it; what a failed run staged is dropped at once.
fn of_completion(stage: &RefCell<Stage<'_>>, index: usize, completion: Completion) -> Ended {
    let again = stage.borrow().effects(index).again;
    let fate = match completion.outcome {
        _ if again => Fate::Unused,
        Outcome::Done => Fate::Well,
        Outcome::Failed(error) => Fate::Failed(error),
        Outcome::CannotStart(error) => Fate::CannotStart(error),
        Outcome::NotStarted => Fate::Unused,
    };
    if !matches!(fate, Fate::Well) {
        stage.borrow_mut().discard(index);
    }
    Ended { index, fate, output: completion.output, elapsed: completion.elapsed }
}

/// The ends of a batch whose first run cannot be run at all.
fn hopeless(batch: &Batch) -> Vec<Ended> {
    let first = &batch.runs[0];
    let error = match (&first.dead, &first.record) {
        (Some(error), _) | (None, Err(error)) => error.clone(),
        (None, Ok(_)) => Code::RunInterrupted
            .error(format!("the host ended during attempt {}, which was the last", first.claimed.attempt)),
    };
    let first = Ended { index: 0, fate: Fate::Hopeless(error), output: Vec::new(), elapsed: Duration::ZERO };
    std::iter::once(first).chain((1..batch.runs.len()).map(Ended::unused)).collect()
}
