//! Runs one function: Wasm, Python or any process, within limits of time, memory and output.
//!
//! This crate knows no journal and no log. Its input is an [`Invocation`], and it serves a function's calls through [`HostCalls`]; appends
//! are passed on at once, and the implementation of the calls decides when (and whether) they become visible.
//!
//! ```text
//! Executor::run(batch) --> a function's code --> HostCalls::{append get latest now random}
//!                      <-- Progress::ended(i, Completion)
//! ```

mod appends;
mod child;
mod oneshot;
mod output;
mod replay;
mod sandbox;
mod secrets;
mod wasm;
mod worker;

pub use millrace_wire::{Code, Error, EventId, Result};
pub use oneshot::OneshotExecutor;
pub use replay::Replay;
pub use sandbox::{Defence, Isolation, Level, SUPERVISOR, Sandbox, SandboxSpec, Shortcoming, supervise};
pub use secrets::{RedactingExecutor, SecretBytes, SecretFiles, Secrets};
use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};
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

/// The answer to a call of a shared object, now or later.
pub enum Asked {
    /// The answer.
    Now(Result<Vec<u8>>),
    /// The call waits.
    Later(Box<dyn Later>),
}

/// A future answer. If it is dropped, the answer is discarded.
pub trait Later {
    /// Becomes readable when there is an answer.
    fn fd(&self) -> BorrowedFd<'_>;
    /// The deadline, at which [`Later::take`] must be called.
    fn until(&self) -> Option<Instant>;
    /// The answer, if it has arrived; after the deadline, the answer for a timeout.
    fn take(&mut self) -> Option<Result<Vec<u8>>>;
}

/// The calls of a function to its namespace while it runs.
///
/// An error of `get` or `latest` goes back to the function, which may handle it. A refused `append` fails the run, however
/// the function returns: an atomic run's effects are all or nothing, and its worker appends without waiting for an answer.
///
/// An executor makes the calls of a run in the order in which the function makes them, one at a time; in a streamed run none after a
/// refused append. So a replayed run makes the recorded calls.
pub trait HostCalls {
    /// In an atomic run, stages `payload` as a record of `log`: it becomes visible with the run's DONE, or never; `None`. In a streamed
    /// one, publishes it at once and returns its seqno, or for an address its number in the outbox.
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>>;
    /// The record of `log` with this seqno, as of the run's snapshot.
    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>>;
    /// The seqno of the newest record of `log` as of the run's snapshot, 0 if it has none.
    fn latest(&mut self, log: &str) -> Result<u64>;
    /// Wall-clock time in nanoseconds since 1970.
    fn now_ns(&mut self) -> u64;
    /// Fills `bytes` from the operating system's random source.
    fn random(&mut self, bytes: &mut [u8]);
    /// A secret of the function. The call is not journaled.
    fn secret(&mut self, name: &str) -> Result<Vec<u8>> {
        Err(Code::RightMissing.error(format!("the function may not read secret '{}'", name.escape_debug())))
    }
    /// The result of the run, if it ends well: a byte that says what it is, and its bytes. The last one counts.
    fn result(&mut self, _result: &[u8]) {}
    /// The next call that the worker is to run within this run, and its number.
    fn reenter(&mut self) -> Option<(u64, Vec<u8>)> {
        None
    }
    /// Becomes readable when there is such a call.
    fn reenters(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The answer of the call with this number, which the worker has run.
    fn reentered(&mut self, _number: u64, _answer: &[u8]) {}
    /// Calls a shared object. Only tasks may do this, if the host has shared objects.
    fn call(&mut self, _call: &[u8]) -> Asked {
        Asked::Now(
            Err(Code::ObjectCallInvalid.error("this function is not a task; only tasks can call shared objects")),
        )
    }
}

/// One run of a batch: the record, and the implementation of its calls.
pub struct Call<'a> {
    /// The record that causes the run.
    pub invocation: Invocation<'a>,
    /// Answers the function's calls.
    pub host: &'a mut dyn HostCalls,
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
/// An executor calls this on the thread that called [`Executor::run`], never within a call of [`HostCalls`].
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

/// Calls [`Progress::wake`] if it is time.
fn wake_if_due(progress: &mut dyn Progress) -> Rest {
    match progress.wake_at() {
        Some(at) if at <= Instant::now() => progress.wake(),
        _ => Rest::Run,
    }
}

/// Runs a function: in a Wasm store, a Python worker, or a process. It runs one batch at a time.
pub trait Executor: Send {
    /// Starts slow resources before the first run, so that their start is not part of a run.
    fn get_ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs the calls in order, at most one at a time, and reports each as it ends, exactly once, in order. A call whose run kills the
    /// worker is `Failed`; those after it are `NotStarted`, and the next batch gets a new worker.
    fn run(&mut self, batch: &mut [Call<'_>], progress: &mut dyn Progress);
}
