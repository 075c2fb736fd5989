//! Persistent processes: any executable that speaks `spec/protocol/worker.md`, such as one built with millrace.h.

use super::{Launch, Worker, session::Session, start_within};
use crate::{
    Code, Completion, Executor, Limits, Progress, Result, Run, StepCalls, StepWork, Stepper, StreamCalls, StreamWork,
    Streamer, Watch, WorkId,
    child::{self, Scratch},
    sandbox::{Room, Sandbox, Starting},
};
use rustix::net::SocketType;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// A command that runs a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The program and its arguments; a program with a `/` is relative to `dir`, another is searched for in PATH.
    pub command: Vec<String>,
    /// The directory of the function's code.
    pub dir: PathBuf,
    /// Variables the process gets besides a scrubbed environment.
    pub env: BTreeMap<String, String>,
    /// Where each process gets a working directory of its own; without one it runs in `dir`.
    pub scratch: Option<PathBuf>,
}

impl ProcessSpec {
    /// Checks, as is done at deployment, that the command exists and may be executed.
    pub fn validate(&self) -> Result<()> {
        self.program().map(drop)
    }

    fn program(&self) -> Result<PathBuf> {
        self.program_in(&Room::Host)
    }

    pub(crate) fn program_in(&self, room: &Room) -> Result<PathBuf> {
        let name = self.command.first().ok_or_else(|| Code::CommandUnusable.error("the command is empty"))?;
        room.program(Path::new(name), &self.dir)
    }
}

/// Runs a function in one persistent process.
pub struct ProcessExecutor(Worker<Launcher>);

impl ProcessExecutor {
    /// An executor that starts its process with the first batch.
    pub fn new(spec: ProcessSpec, limits: Limits) -> Self {
        Self(Worker::new(Launcher { spec, limits, sandbox: None }, limits))
    }

    /// Its process runs in this sandbox.
    #[must_use]
    pub fn within(mut self, sandbox: Option<Arc<Sandbox>>) -> Self {
        self.0.launch.sandbox = sandbox;
        self
    }
}

impl Stepper for ProcessExecutor {
    fn get_ready(&mut self) -> Result<()> {
        self.0.get_ready()
    }

    fn step(&mut self, step: &StepWork<'_>, calls: &mut dyn StepCalls, watch: &mut dyn Watch) -> Result<Vec<u8>> {
        self.0.step(step, calls, watch)
    }
}

impl Streamer for ProcessExecutor {
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

impl Executor for ProcessExecutor {
    fn get_ready(&mut self) -> Result<()> {
        self.0.get_ready()
    }

    fn run(&mut self, batch: &mut [Run<'_>], progress: &mut dyn Progress) {
        self.0.run(batch, progress);
    }
}

struct Launcher {
    spec: ProcessSpec,
    limits: Limits,
    sandbox: Option<Arc<Sandbox>>,
}

impl Launch for Launcher {
    fn launch(&self) -> Result<Session> {
        let (spec, room) = (&self.spec, Room::of(self.sandbox.as_ref())?);
        let program = spec.program_in(&room)?;
        let (ours, theirs) = child::channel(SocketType::STREAM)?;
        let (printed, print) = child::output_pipe()?;
        let mut environment = room.environment(&spec.env);
        environment.set("MILLRACE_FD", "3");
        let scratch = room.scratch(spec.scratch.as_deref(), &spec.dir)?;
        let starting = Starting {
            program,
            arguments: spec.command[1..].to_vec(),
            environment,
            dir: scratch.as_ref().map_or(&*spec.dir, Scratch::path).to_owned(),
            descriptors: [child::null()?, child::copy(&print)?, print, theirs],
            memory_max_bytes: self.limits.memory_max_bytes,
        };
        let process = room.start(starting, false)?;
        Session::start(process, scratch, (ours, printed), start_within(&self.limits))
    }

    fn sandbox(&self) -> Option<&Arc<Sandbox>> {
        self.sandbox.as_ref()
    }
}
