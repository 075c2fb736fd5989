//! Runs one function: Wasm, Python or any process, within limits of time, memory and output.
//!
//! This crate knows no journal and no log. Its input is a [`Run`] or a step, and it serves a function's calls through traits; appends are
//! passed on at once, and the implementation of the calls decides when (and whether) they become visible.
//!
//! ```text
//! Executor::run(batch) --> a function's code --> LogCalls::{append get latest now random}, ObjectCalls::call
//!                      <-- Progress::ended(i, Completion)
//! Stepper::step(step)  --> a method of an object --> StepCalls::{fields class}, ObjectCalls::call
//!                      <-- its result
//! Streamer::open(work) --> code with a stream --> StreamCalls::{room put take}, several at once
//!          ::drive()   <-- the streams that have ended
//! ```

mod appends;
mod calls;
mod child;
mod oneshot;
mod output;
mod replay;
mod sandbox;
mod secrets;
mod step;
mod wasm;
mod worker;

pub use calls::{
    Asked, Later, LogCalls, ObjectCalls, Run, StepCalls, StepWork, StreamCalls, StreamEnd, StreamWork, Taken, no_tables,
};
pub use millrace_wire::{Code, Error, EventId, Result};
pub use oneshot::OneshotExecutor;
pub use replay::Replay;
pub use sandbox::{Defence, Isolation, Level, SUPERVISOR, Sandbox, SandboxSpec, Shortcoming, supervise};
pub use secrets::{RedactingExecutor, RedactingStepper, SecretBytes, SecretFiles, Secrets};
use std::time::{Duration, Instant};
pub use wasm::{WasmEngine, WasmExecutor, WasmFunction};
pub use worker::{ProcessExecutor, ProcessSpec, PythonExecutor, PythonFunction, PythonSpec};

/// The record that causes a run, and the data about it for the function.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The log the record is in.
    pub log: &'a str,
    /// The record's sequence number there.
    pub seqno: u64,
    /// The record's bytes.
    pub payload: &'a [u8],
    /// The run's id: that of the TRIGGER entry; what the run appends has it as its cause.
    pub run: EventId,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Each append is published at once and answers its seqno; calls that the run made before a crash are recognised. Such a run is alone
    /// in its batch.
    pub streamed: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function returned success: its staged appends may be published.
    Done,
    /// The function failed: its staged appends are dropped; the error has a 3xxx code.
    Failed(Error),
    /// The function could not be started, which is not the record's fault. Only an executor reports this, never a worker.
    CannotStart(Error),
    /// The function never saw the record: its worker ended on an earlier run of the batch, or [`Progress::wake`] took the
    /// rest of the batch back.
    NotStarted,
}

/// How a run ended, and what it printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How the run ended.
    pub outcome: Outcome,
    /// Its standard output and standard error, at most [`Limits::output_max_bytes`].
    pub output: Vec<u8>,
    /// How long it took.
    pub elapsed: Duration,
}

/// The limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum duration of a run; then it is stopped.
    pub timeout: Duration,
    /// The maximum memory, in bytes.
    pub memory_max_bytes: u64,
    /// Maximum size of the kept output; the rest is read and dropped, with a note.
    pub output_max_bytes: usize,
    /// The maximum number of bytes that one run may append.
    pub append_max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            memory_max_bytes: 256 << 20,
            output_max_bytes: 64 << 10,
            append_max_bytes: 16 << 20,
        }
    }
}

/// Whether an executor begins the runs of its batch that it has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It does.
    Run,
    /// It does not: each is reported as [`Outcome::NotStarted`].
    Leave,
    /// It does not, and it ends the run in progress at once: that one is reported as failed with [`Code::RunCancelled`].
    Stop,
}

/// The outcome of the run in progress when it is stopped.
pub(crate) fn cancelled() -> Error {
    Code::RunCancelled.error("its process was stopped")
}

/// Receives the progress of a batch from its executor. A closure that takes the end of each run implements it.
///
/// An executor calls this on the thread that called [`Executor::run`], never within a call of [`LogCalls`] or [`ObjectCalls`].
pub trait Progress {
    /// A run has ended. Each is reported exactly once, in order.
    fn ended(&mut self, run: usize, completion: Completion);

    /// When [`Progress::wake`] is to be called if a run is still in progress then. It is asked again after every call of this
    /// trait.
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// The time of [`Progress::wake_at`] has come, or passed a little while ago.
    fn wake(&mut self) -> Rest {
        Rest::Run
    }

    /// All runs have ended, and the executor is about to free their resources. It reports this only if that takes time.
    fn over(&mut self) {}
}

impl<F: FnMut(usize, Completion)> Progress for F {
    fn ended(&mut self, run: usize, completion: Completion) {
        self(run, completion);
    }
}

/// Calls [`Watch::wake`] if it is time.
fn wake_if_due(watch: &mut dyn Watch) -> Rest {
    match watch.wake_at() {
        Some(at) if at <= Instant::now() => watch.wake(),
        _ => Rest::Run,
    }
}

/// Watches the run in progress for its batch.
struct Watching<'a>(&'a mut dyn Progress);

impl Watch for Watching<'_> {
    fn wake_at(&self) -> Option<Instant> {
        self.0.wake_at()
    }

    fn wake(&mut self) -> Rest {
        self.0.wake()
    }
}

/// Follows a step while it runs.
pub trait Watch {
    /// When [`Watch::wake`] is to be called if the step is still in progress then. It is asked again after every wake.
    fn wake_at(&self) -> Option<Instant>;

    /// The time of [`Watch::wake_at`] has come, or passed a little while ago. With [`Rest::Stop`] the step ends at once, as failed with
    /// [`Code::RunCancelled`].
    fn wake(&mut self) -> Rest;
}

/// Runs a function: in a Wasm store, a Python worker, or a process. It runs one batch at a time.
pub trait Executor: Send {
    /// Starts slow resources before the first run, so that their start is not part of a run.
    fn get_ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs the batch in order, at most one run at a time, and reports each as it ends, exactly once, in order. A run that kills the
    /// worker is `Failed`; those after it are `NotStarted`, and the next batch gets a new worker.
    fn run(&mut self, batch: &mut [Run<'_>], progress: &mut dyn Progress);
}

/// Runs methods of shared objects, one at a time, in what runs the tasks of their pool.
pub trait Stepper: Send {
    /// Starts slow resources before the first step, so that their start is not part of a step.
    fn get_ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs a step, and returns its result. A step that kills its worker is an error, and the next one gets a new worker.
    fn step(&mut self, step: &StepWork<'_>, calls: &mut dyn StepCalls, watch: &mut dyn Watch) -> Result<Vec<u8>>;
}

/// A stream that [`Streamer::open`] has opened. Its number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// Runs works that are streams of bytes, several at once in one worker. While streams are open it does nothing else.
pub trait Streamer: Send {
    /// Opens a stream. Bytes move in [`Streamer::drive`].
    ///
    /// # Errors
    ///
    /// The worker does not start, knows no streams, or has as many open as it can.
    fn open(&mut self, work: &StreamWork<'_>, calls: Box<dyn StreamCalls>) -> Result<WorkId>;

    /// Moves bytes until a stream has ended or the time has come; all that have ended, in this order. Each is reported exactly once.
    /// Without open streams it returns at once.
    fn drive(&mut self, until: Option<Instant>) -> Vec<(WorkId, Completion)>;

    /// Asks the worker to end a stream. A worker that has not ended it after one second is killed, and its other streams fail with
    /// [`Code::WorkerDied`].
    fn cancel(&mut self, work: WorkId);
}
