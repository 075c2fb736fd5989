//! Python functions: warm workers forked from a zygote that has imported the handler's module.

use super::{CHECK_MAX, Launch, Worker, session::Session, start_within, zygote::Zygote};
use crate::{
    Completion, Executor, Limits, Progress, Result, Run, StepCalls, StepWork, Stepper, StreamCalls, StreamWork,
    Streamer, Watch, WorkId,
    child::{self, Scratch},
    sandbox::{Room, Sandbox},
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A Python function as it was deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonSpec {
    /// The interpreter: a name searched for in PATH, or a path, which is relative to `dir` unless it is absolute.
    pub python: PathBuf,
    /// The directory of the function's code; first in `sys.path`.
    pub dir: PathBuf,
    /// The module to import.
    pub module: String,
    /// The function in it.
    pub function: String,
    /// Variables the worker gets besides a scrubbed environment.
    pub env: BTreeMap<String, String>,
    /// Where each worker gets a working directory of its own; without one it runs in `dir`.
    pub scratch: Option<PathBuf>,
}

impl PythonSpec {
    /// Checks, as is done at deployment, that the interpreter starts and the handler can be imported and called.
    ///
    /// If the import takes longer than a few seconds, `slow` is called with the time after which it fails.
    pub fn validate(&self, limits: Limits, slow: &mut dyn FnMut(Duration)) -> Result<()> {
        Zygote::start(self, &limits, &Room::Host, start_within(&limits).min(CHECK_MAX), slow).map(drop)
    }
}

/// A Python function whose executors share one zygote.
pub struct PythonFunction {
    spec: PythonSpec,
    limits: Limits,
    sandbox: Option<Arc<Sandbox>>,
    zygote: Mutex<Option<Arc<Zygote>>>,
}

impl PythonFunction {
    /// The function; its zygote starts with the first run.
    pub fn new(spec: PythonSpec, limits: Limits) -> Arc<Self> {
        Self::within(spec, limits, None)
    }

    /// The same, in this sandbox.
    pub fn within(spec: PythonSpec, limits: Limits, sandbox: Option<Arc<Sandbox>>) -> Arc<Self> {
        Arc::new(Self { spec, limits, sandbox, zygote: Mutex::new(None) })
    }

    /// Imports the function's module where it would run, and ends the interpreter again. `slow` is called as by [`PythonSpec::validate`].
    pub fn try_import(&self, slow: &mut dyn FnMut(Duration)) -> Result<()> {
        let (room, within) = (Room::of(self.sandbox.as_ref())?, start_within(&self.limits).min(CHECK_MAX));
        Zygote::start(&self.spec, &self.limits, &room, within, slow).map(drop)
    }

    /// Forks a worker; from a fresh zygote if the current one no longer can.
    fn worker(&self) -> Result<Session> {
        let within = start_within(&self.limits);
        let room = Room::of(self.sandbox.as_ref())?;
        let scratch = room.scratch(self.spec.scratch.as_deref(), &self.spec.dir)?;
        // Held while a zygote starts: the other executors need the same one.
        let mut zygote = self.zygote.lock().unwrap_or_else(PoisonError::into_inner);
        let warm = zygote.take();
        let fork = |zygote: &Arc<Zygote>| {
            let (ours, theirs) = child::named_channel()?;
            let (printed, print) = child::output_pipe()?;
            let dir = scratch.as_ref().map(Scratch::path);
            Ok((zygote.fork((&ours, theirs), print, dir, within)?, ours, printed))
        };
        let forked = match warm.map(|warm| (fork(&warm), warm)) {
            Some((Ok(forked), warm)) => {
                *zygote = Some(warm);
                forked
            }
            _ => fork(zygote.insert(Zygote::start(&self.spec, &self.limits, &room, within, &mut |_| ())?))?,
        };
        drop(zygote);
        let (process, ours, printed) = forked;
        Session::start(process, scratch, (ours, printed), within)
    }
}

/// Runs a Python function in one warm worker.
pub struct PythonExecutor(Worker<Arc<PythonFunction>>);

impl PythonExecutor {
    /// An executor with a zygote of its own.
    pub fn new(spec: PythonSpec, limits: Limits) -> Self {
        Self::of(PythonFunction::new(spec, limits))
    }

    /// One of several executors of a function.
    pub fn of(function: Arc<PythonFunction>) -> Self {
        let limits = function.limits;
        Self(Worker::new(function, limits))
    }
}

impl Launch for Arc<PythonFunction> {
    fn launch(&self) -> Result<Session> {
        self.worker()
    }

    fn sandbox(&self) -> Option<&Arc<Sandbox>> {
        self.sandbox.as_ref()
    }
}

impl Stepper for PythonExecutor {
    fn get_ready(&mut self) -> Result<()> {
        self.0.get_ready()
    }

    fn step(&mut self, step: &StepWork<'_>, calls: &mut dyn StepCalls, watch: &mut dyn Watch) -> Result<Vec<u8>> {
        self.0.step(step, calls, watch)
    }
}

impl Streamer for PythonExecutor {
    fn open(&mut self, work: &StreamWork<'_>, calls: Box<dyn StreamCalls>) -> Result<WorkId> {
        self.0.open(work, calls)
    }

    fn drive(&mut self, until: Option<Instant>) -> Vec<(WorkId, Completion)> {
        self.0.drive(until)
    }

    fn cancel(&mut self, work: WorkId) {
        self.0.cancel(work);
    }
}

impl Executor for PythonExecutor {
    fn get_ready(&mut self) -> Result<()> {
        self.0.get_ready()
    }

    fn run(&mut self, batch: &mut [Run<'_>], progress: &mut dyn Progress) {
        self.0.run(batch, progress);
    }
}
