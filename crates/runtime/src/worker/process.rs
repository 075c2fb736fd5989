//! Persistent processes: any executable that speaks `spec/protocol/worker.md`, such as one built with millrace.h.

use super::{Launch, Worker, session::Session, start_within};
use crate::{
    Call, Code, Executor, Limits, Progress, Result,
    child::{self, Environment, Plan, Scratch},
};
use rustix::net::SocketType;
use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    path::{Path, PathBuf},
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

    pub(crate) fn program(&self) -> Result<PathBuf> {
        let name = self.command.first().ok_or_else(|| Code::CommandUnusable.error("the command is empty"))?;
        child::program(Path::new(name), &self.dir)
    }

    /// A working directory for one process.
    pub(crate) fn scratch(&self) -> Result<Option<Scratch>> {
        self.scratch.as_deref().map(|base| Scratch::new(base, &self.dir)).transpose()
    }
}

/// Runs a function in one persistent process.
pub struct ProcessExecutor(Worker<Launcher>);

impl ProcessExecutor {
    /// An executor that starts its process with the first batch.
    pub fn new(spec: ProcessSpec, limits: Limits) -> Self {
        Self(Worker::new(Launcher { spec, limits }, limits))
    }
}

impl Executor for ProcessExecutor {
    fn get_ready(&mut self) -> Result<()> {
        self.0.get_ready()
    }

    fn run(&mut self, batch: &mut [Call<'_>], progress: &mut dyn Progress) {
        self.0.run(batch, progress);
    }
}

struct Launcher {
    spec: ProcessSpec,
    limits: Limits,
}

impl Launch for Launcher {
    fn launch(&self) -> Result<Session> {
        let program = self.spec.program()?;
        let (ours, theirs) = child::channel(SocketType::STREAM)?;
        let (printed, print) = child::output_pipe()?;
        let null = child::null()?;
        let mut environment = Environment::new(&self.spec.env);
        environment.set("MILLRACE_FD", "3");
        let (spec, limits) = (self.spec.clone(), self.limits);
        let scratch = spec.scratch()?;
        let dir = scratch.as_ref().map_or(&*spec.dir, Scratch::path).to_owned();
        let child = child::on_keeper(move || {
            child::spawn(&Plan {
                program: &program,
                arguments: &spec.command[1..],
                environment: &environment,
                dir: &dir,
                descriptors: [null.as_fd(), print.as_fd(), print.as_fd(), theirs.as_fd()],
                memory_max_bytes: limits.memory_max_bytes,
            })
        })?;
        Session::start(Box::new(child), scratch, (ours, printed), start_within(&self.limits))
    }
}
