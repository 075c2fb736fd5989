//! Persistent processes: any executable that speaks `spec/protocol/worker.md`, such as one built with millrace.h.

use super::{Launch, Worker, session::Session, start_within};
use crate::{
    Call, Code, Completion, Executor, Limits, Result,
    child::{self, Environment, Plan},
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
    /// The directory of the function's code, where the command runs.
    pub dir: PathBuf,
    /// Variables the process gets besides a scrubbed environment.
    pub env: BTreeMap<String, String>,
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

    fn run(&mut self, batch: &mut [Call<'_>], done: &mut dyn FnMut(usize, Completion)) {
        self.0.run(batch, done);
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
        let child = child::on_keeper(move || {
            child::spawn(&Plan {
                program: &program,
                arguments: &spec.command[1..],
                environment: &environment,
                dir: &spec.dir,
                descriptors: [null.as_fd(), print.as_fd(), print.as_fd(), theirs.as_fd()],
                memory_max_bytes: limits.memory_max_bytes,
            })
        })?;
        Session::start(Box::new(child), ours, printed, start_within(&self.limits))
    }
}
