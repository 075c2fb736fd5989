//! Workers for the methods of shared objects of user classes: those of a pool, with its code, its limits and a sandbox like its tasks'. A
//! method call is not a run, and is not journaled.

use crate::starter::{Environment, Starter};
use millrace_namespace::{Definition, Namespace, Runtime, no_function, tasks};
use millrace_runtime::{Rest, StepCalls, StepWork, Stepper, Watch};
use millrace_wire::{Code, Error, Name, Result};
use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The most workers of a pool for methods: each of those that wait for another object's method has one.
pub const METHOD_WORKERS_MAX: u32 = 64;
/// How often a step in progress is looked at.
const LOOK: Duration = Duration::from_millis(250);

type ByPool = HashMap<Box<str>, (Arc<Definition>, Arc<Starter>)>;

/// The pools of a namespace, in whose workers methods run.
pub struct MethodWorkers {
    namespace: Namespace,
    environment: Environment,
    /// By pool: the definition of its function, and its starter.
    starters: Mutex<ByPool>,
}

/// A step, and its timeout.
pub struct Step<'a> {
    /// What the worker runs.
    pub work: StepWork<'a>,
    /// How long it may take, once there is a worker, before that is ended.
    pub within: Duration,
    /// How much longer, as its calls come to know.
    pub extra: &'a Cell<Duration>,
}

/// One worker of a pool, which starts with its first step.
#[derive(Default)]
pub struct MethodWorker {
    worker: Option<(Arc<Starter>, u64, Box<dyn Stepper>)>,
}

impl MethodWorkers {
    /// None started yet.
    pub fn new(namespace: Namespace, environment: Environment) -> Self {
        Self { namespace, environment, starters: Mutex::default() }
    }

    fn definition(&self, pool: &str) -> Result<Arc<Definition>> {
        let name: Name = tasks::function(pool)?;
        let missing = |_: Error| Code::PoolNotFound.error(format!("no pool '{}'", pool.escape_debug()));
        let catalog = self.namespace.journal().catalog()?;
        let function = catalog.function(&name).ok_or_else(|| missing(no_function(&name)))?;
        let bindings = self.namespace.bindings()?;
        let definition = bindings.definition(function.id()).filter(|definition| !definition.removing);
        definition.cloned().ok_or_else(|| missing(no_function(&name)))
    }

    /// Whether a pool runs a module in WebAssembly.
    pub fn is_module(&self, pool: &str) -> bool {
        self.definition(pool).is_ok_and(|definition| definition.spec.runtime == Runtime::Wasm)
    }

    /// How many steps of a pool may run at once, besides those that wait.
    pub fn concurrency(&self, pool: &str) -> Result<u32> {
        Ok(self.definition(pool)?.spec.concurrency.clamp(1, METHOD_WORKERS_MAX))
    }

    fn starter(&self, pool: &str) -> Result<Arc<Starter>> {
        let definition = self.definition(pool)?;
        let mut starters = self.starters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, starter)) = starters.get(pool)
            && *of == definition
        {
            return Ok(starter.clone());
        }
        let mut ours = (*definition).clone();
        ours.spec.concurrency = METHOD_WORKERS_MAX;
        let starter = Starter::new(self.namespace.dir(), Arc::new(ours), self.environment.clone());
        let starter = Arc::new(starter);
        starters.insert(pool.into(), (definition, starter.clone()));
        Ok(starter)
    }

    /// Runs a step in a worker, and returns its result; ends it early if `is_over` returns true.
    pub fn run(
        &self,
        worker: &mut MethodWorker,
        step: &Step<'_>,
        calls: &mut dyn StepCalls,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>> {
        let starter = self.starter(step.work.pool)?;
        starter.check()?;
        let (generation, mut stepper) = match worker.worker.take() {
            Some((of, generation, stepper)) if Arc::ptr_eq(&of, &starter) && generation == starter.generation() => {
                (generation, stepper)
            }
            _ => starter.stepper()?,
        };
        stepper.get_ready()?;
        let Step { work, within, extra } = step;
        let (until, look_at) = (Instant::now() + *within, Instant::now());
        let stepped = stepper.step(work, calls, &mut Follow { until, extra, look_at, is_over });
        worker.worker = Some((starter, generation, stepper));
        stepped.map_err(|error| match error.code() {
            Code::RunCancelled => Code::RunTimeout.error("the method did not end in time, and its worker was ended"),
            _ => error,
        })
    }
}

/// Follows one step.
struct Follow<'a> {
    until: Instant,
    extra: &'a Cell<Duration>,
    look_at: Instant,
    is_over: &'a dyn Fn() -> bool,
}

impl Watch for Follow<'_> {
    fn wake_at(&self) -> Option<Instant> {
        Some(self.look_at)
    }

    fn wake(&mut self) -> Rest {
        let (now, until) = (Instant::now(), self.until + self.extra.get());
        self.look_at = until.min(now + LOOK);
        if until <= now || (self.is_over)() { Rest::Stop } else { Rest::Run }
    }
}
