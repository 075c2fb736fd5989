//! The dispatcher's state: the engine, which follows the journal, and the free executors of each function.

use super::{
    engine::{Engine, LaneView, Millis, Policy, Trigger},
    starter::{Environment, Starter},
    streamed::Recorded,
};
use crate::status::{FunctionState, LiveFunction, LiveRun, wall_ms};
use millrace_journal::{Journal, Kind, Position, Scan};
use millrace_namespace::{
    Namespace,
    bindings::Bindings,
    definition::{BACKOFF_MAX, Definition},
    runs::{fold::Fold, pending::pending},
};
use millrace_runtime::Executor;
use millrace_wire::{Code, Error, Name, Result};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};

/// Most runs in one batch.
const BATCH_MAX: usize = 64;
/// How long a batch is meant to take, so that none of its runs waits long for the others.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// Whether an error of the journal may be temporary.
pub(super) fn is_transient(error: &Error) -> bool {
    error.code().transient().is_some()
}

pub(super) struct State {
    pub engine: Engine,
    pub runners: HashMap<u32, Runner>,
    /// All starters that may still be in use.
    starters: Vec<Weak<Starter>>,
    /// The answers that pending streamed runs have got.
    pub recorded: Recorded,
    /// Why no more functions are run.
    pub failure: Option<Error>,
    /// Notes for the operator.
    pub notice: Option<String>,
    /// Nothing more is published.
    pub halted: bool,
    /// Whether entries were passed over because they are damaged, or runs were not found: some may be lost.
    pub damaged: bool,
    /// Reads what is committed from where this host begins.
    scan: Scan,
    bindings_version: Option<u64>,
    /// How functions are kept apart.
    pub environment: Environment,
}

/// The definition of a function, and its starter.
pub(super) struct Runner {
    pub name: Name,
    pub starter: Arc<Starter>,
    /// Unused executors; at most as many as ever ran at once.
    pub idle: Vec<(u64, Box<dyn Executor>)>,
    pub pace: Pace,
}

impl State {
    /// Knows what is defined, and nothing yet of what is to be done.
    pub fn new(namespace: &Namespace, environment: Environment) -> Result<Self> {
        let mut state = Self {
            engine: Engine::default(),
            runners: HashMap::new(),
            starters: Vec::new(),
            recorded: Recorded::default(),
            failure: None,
            notice: None,
            halted: false,
            damaged: false,
            scan: namespace.journal().scan(Position::default()),
            bindings_version: None,
            environment,
        };
        state.define(namespace, &*namespace.bindings()?);
        Ok(state)
    }

    /// The functions that have something to do, as the indexes say, which costs no reading.
    pub fn wanted(&self, namespace: &Namespace) -> Result<Vec<(u32, Arc<Starter>)>> {
        let catalog = namespace.journal().catalog()?;
        let pending = catalog.functions().filter(|function| function.done() < function.triggered());
        let runner = |id| self.runners.get(&id).map(|runner| (id, runner.starter.clone()));
        Ok(pending.filter_map(|function| runner(function.id())).collect())
    }

    /// Reads the pending runs from the indexes: runs that are fired but not done were interrupted. Entries that are committed meanwhile are
    /// read afterwards.
    pub fn recover(&mut self, namespace: &Namespace) -> Result<()> {
        let journal = namespace.journal();
        self.scan = journal.scan(journal.tail());
        self.take_up(journal)?;
        self.fold(journal.tail())?;
        self.engine.recovered();
        self.define(namespace, &*namespace.bindings()?);
        Ok(())
    }

    /// Tells the engine of every pending run; of those that it knows, nothing new.
    pub fn take_up(&mut self, journal: &Journal) -> Result<()> {
        let catalog = journal.catalog()?;
        let mut streamed = BTreeMap::new();
        for function in catalog.functions() {
            let mut found = 0;
            for run in pending(journal, function, 1) {
                let Some(fold) = run?.found() else { continue };
                found += 1;
                self.engine.triggered(function.id(), trigger_of(&fold));
                if let Some(newest) = fold.newest {
                    self.engine.fired(function.id(), fold.run.id, newest.id, newest.reported);
                }
                if fold.is_streamed() {
                    streamed.insert(fold.run.id, fold.begins(journal));
                }
            }
            // Some are lost; or one came or went meanwhile, and a second look finds that all is well.
            self.damaged |= found != function.pending();
        }
        // No index leads to the answers of a streamed run: they come after the run's TRIGGER.
        let Some(from) = streamed.values().min().copied() else { return Ok(()) };
        journal.visit(from, self.scan.position(), &mut |entry| {
            if entry.kind == Kind::Call && streamed.contains_key(&entry.cause) {
                self.recorded.call(entry.cause, entry.ordinal, entry.position);
            }
            true
        })
    }

    /// Reads the journal up to `upto` and passes the entries to the engine.
    pub fn fold(&mut self, upto: Position) -> Result<()> {
        while self.scan.position() < upto {
            let entry = match self.scan.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // Only this entry is lost: the scan continues after it. `namespace check` reports it.
                Err(error) if error.code() == Code::EntryDamaged => {
                    self.damaged = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match entry.kind {
                Kind::Trigger => {
                    let (log, seqno) = entry.trigger_record().unwrap_or_default();
                    let (run, number, cause) = (entry.id, entry.seqno, entry.cause);
                    self.engine.triggered(entry.subject, Trigger { run, number, cause, log, seqno, at: entry.hlc });
                }
                Kind::Fired => {
                    let reported = entry.attempt().unwrap_or_default();
                    self.engine.fired(entry.subject, entry.cause, entry.id, reported);
                }
                Kind::Done => {
                    self.engine.done(entry.subject, entry.cause);
                    self.recorded.done(entry.cause);
                }
                Kind::Call => self.recorded.call(entry.cause, entry.ordinal, entry.position),
                _ => {}
            }
        }
        Ok(())
    }

    /// The position up to which the journal has been read.
    pub fn folded(&self) -> Position {
        self.scan.position()
    }

    /// Applies changed definitions. Executors of an older definition are dropped when they are returned.
    pub fn define(&mut self, namespace: &Namespace, bindings: &Bindings) {
        if self.bindings_version.replace(bindings.version()) == Some(bindings.version()) {
            return;
        }
        let gone = |id: &u32| !bindings.functions().any(|(other, _)| other == *id);
        let removed: Vec<u32> = self.runners.keys().copied().filter(gone).collect();
        for function in removed {
            self.runners.remove(&function);
            self.engine.define(function, None);
        }
        for (function, definition) in bindings.functions() {
            match definition {
                Ok(definition) if !definition.removing && definition.spec.at.is_none() => {
                    self.define_one(namespace, function, definition);
                }
                // A function that runs on devices, is being removed, or whose definition cannot be read, is not run; `why` reports which.
                _ => {
                    self.runners.remove(&function);
                    self.engine.define(function, None);
                }
            }
        }
    }

    fn define_one(&mut self, namespace: &Namespace, function: u32, definition: &Arc<Definition>) {
        if self.runners.get(&function).is_some_and(|runner| runner.starter.definition() == definition) {
            return;
        }
        let spec = &definition.spec;
        let policy = Policy {
            slots: spec.concurrency,
            serial: spec.serial(),
            monitor: spec.monitor.clone(),
            attempts_max: spec.retries + 1, // at most RETRIES_MAX + 1
            backoff: spec.backoff,
            backoff_max: BACKOFF_MAX,
        };
        let starter = Arc::new(Starter::new(namespace.dir(), definition.clone(), self.environment.clone()));
        self.starters.retain(|starter| starter.strong_count() > 0);
        self.starters.push(Arc::downgrade(&starter));
        let runner = Runner { name: spec.name.clone(), starter, idle: Vec::new(), pace: Pace::of(definition) };
        self.runners.insert(function, runner);
        self.engine.define(function, Some(policy));
    }

    /// The code that runs, also if it was replaced since.
    pub fn codes(&self) -> BTreeSet<String> {
        let starters = self.starters.iter().filter_map(Weak::upgrade);
        starters.map(|starter| starter.definition().code.clone()).collect()
    }

    /// The activity of the functions, for other processes.
    pub fn live(&self, now: Millis) -> Vec<LiveFunction> {
        let wall_ms = wall_ms();
        // The engine's clock to the wall's, for a moment of the past or the future.
        let at_ms = |moment: Millis| (wall_ms + moment).saturating_sub(now);
        let mut functions: Vec<LiveFunction> = self
            .runners
            .iter()
            .filter_map(|(id, runner)| Some((runner, self.engine.view(*id)?)))
            .filter(|(_, view)| view.pending > 0 || view.stop.is_some())
            .map(|(runner, view)| live_function(&runner.name, &view, at_ms))
            .collect();
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        functions
    }
}

fn trigger_of(fold: &Fold) -> Trigger {
    let (log, seqno) = fold.record;
    Trigger { run: fold.run.id, number: fold.run.number, cause: fold.cause, log, seqno, at: fold.trigger.hlc }
}

fn live_function(name: &Name, view: &LaneView<'_>, at_ms: impl Fn(Millis) -> u64) -> LiveFunction {
    let running = view.running.iter().map(|(run, attempt, since)| LiveRun {
        run: *run,
        attempt: *attempt,
        at_ms: at_ms(*since),
        error: None,
    });
    let backing_off = view.backing_off.iter().map(|(run, attempt, until, error)| LiveRun {
        run: *run,
        attempt: *attempt,
        at_ms: at_ms(*until),
        error: Some(error.to_string()),
    });
    LiveFunction {
        name: name.clone(),
        state: view.stop.map_or(FunctionState::Ready, |stop| FunctionState::Stopped {
            error: stop.error.to_string(),
            until_ms: at_ms(stop.until),
        }),
        pending: view.pending as u64,
        running: running.collect(),
        backing_off: backing_off.collect(),
    }
}

/// How many runs of a function make a batch: about [`BATCH_TIME`] worth of them.
///
/// It grows slowly and shrinks at once, so that a function with some slow runs takes few at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    batch: usize,
    slowest: Duration,
    most: usize,
}

impl Pace {
    fn of(definition: &Definition) -> Self {
        // Effects of a one-shot process outside cannot be undone, so it never runs before an earlier run of its batch has succeeded.
        // Appends of a streamed run are visible at once, and its function runs longest.
        let alone = definition.spec.runtime == millrace_namespace::Runtime::Oneshot || definition.spec.streamed;
        let most = if alone { 1 } else { BATCH_MAX };
        Self { batch: 1, slowest: Duration::ZERO, most }
    }

    pub fn batch(self) -> usize {
        self.batch
    }

    /// A batch is over; its slowest run took this long.
    pub fn note(&mut self, slowest: Duration) {
        self.slowest = slowest.max(self.slowest * 7 / 8).max(Duration::from_nanos(1));
        let fitting = BATCH_TIME.as_nanos() / self.slowest.as_nanos();
        self.batch = (fitting as usize).clamp(1, self.most.min(self.batch * 2));
    }

    /// Runs of one batch got in each other's way: the next one is alone.
    pub fn alone(&mut self) {
        self.batch = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_function_gets_large_batches_and_a_slow_one_single_runs() {
        let mut pace = Pace { batch: 1, slowest: Duration::ZERO, most: BATCH_MAX };
        for _ in 0..10 {
            pace.note(Duration::from_micros(2));
        }
        assert_eq!(pace.batch(), BATCH_MAX);
        pace.note(Duration::from_millis(50));
        assert_eq!(pace.batch(), 1);
        pace.note(Duration::from_micros(2));
        assert_eq!(pace.batch(), 1, "one fast run does not make a slow function fast");
        for _ in 0..100 {
            pace.note(Duration::from_micros(100));
        }
        assert_eq!(pace.batch(), 10);
    }
}
