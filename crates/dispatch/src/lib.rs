//! Dispatch: threads that claim pending runs, execute them and publish what they did.
//!
//! ```text
//!            +--> claim: fold the journal, ask the engine, commit [FIRED…]        (worker)
//!  a worker  |    execute: Executor::run, whose calls the stage answers           (stage)
//!  thread    |    publish: commit [READ…, APPEND…, TRIGGER…, DONE] of many runs   (publish)
//!            +--- rest: lead (sleep on the journal) or stand by                   (pool)
//! ```
//!
//! Every worker does all of this itself: the thread that the kernel wakes for a new entry also runs the function, without a handover. There
//! is always one thread more than there are batches in progress, so a slow or stuck function occupies as many threads as it may have runs
//! at once, and never the last one.
//!
//! [`functions`] deploys functions: it stores their code, checks it with the runtime and defines them. [`status`] reports a host's runs to
//! other processes, and [`lost`] ends runs whose TRIGGER is damaged.
//!
//! Lock order: `Shared::state`, then the journal's. `Shared::pool` is never held together with either.

mod again;
mod engine;
pub mod functions;
pub mod lost;
mod pool;
mod publish;
mod stage;
mod starter;
mod state;
pub mod status;
mod streamed;
#[cfg(test)]
mod tests;
mod warm;
mod worker;

pub use again::{Again, dead_letter};
use engine::Millis;
pub use functions::{
    cancel::cancel_gated as cancel_run,
    steps::{METHOD_WORKERS_MAX, MethodWorker, MethodWorkers, Step},
    tasks::cancel as cancel_task,
};
use millrace_journal::{Function, Maintained};
use millrace_namespace::Namespace;
pub use millrace_runtime::{
    Asked, Isolation, Later, Level, LogCalls, ObjectCalls, SUPERVISOR, SecretBytes, Shortcoming, StepCalls, StepWork,
    supervise,
};
use millrace_wire::{Error, EventId, Name, Result};
use pool::Pool;
use publish::DeadLetter;
pub use starter::{Environment, Objects, SecretStore};
use state::State;
use status::{HostStatus, SandboxStatus};
use std::{
    cell::OnceCell,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

/// How often at most the status file is written.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);
/// How often retention is looked after.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(1);
/// The same while segments are being dropped, because appends must create segments that are not recycled in time.
const MAINTAIN_BUSY_INTERVAL: Duration = Duration::from_millis(100);
/// How often unneeded code and compiled modules are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// Receives runs when they end. It is called on the thread that ran them, so it must be quick.
pub type Observer = Arc<dyn Fn(&HostEvent<'_>) + Send + Sync>;

/// The events for an [`Observer`].
#[derive(Clone, Copy, Debug)]
pub enum HostEvent<'a> {
    /// A run ended well, and is published.
    Done {
        /// Its function.
        function: &'a Name,
        /// The run.
        run: EventId,
        /// How long it took.
        elapsed: Duration,
        /// Its output.
        output: &'a [u8],
    },
    /// An attempt failed.
    Failed {
        /// Its function.
        function: &'a Name,
        /// The run.
        run: EventId,
        /// The attempt; 0 of a run that is lost, and never was tried here.
        attempt: u32,
        /// The description of the error.
        error: &'a Error,
        /// When it is tried again; `None` if it was given up.
        retry_in: Option<Duration>,
        /// Its output.
        output: &'a [u8],
    },
    /// A function could not be started; its runs wait.
    StartFailed {
        /// The function.
        function: &'a Name,
        /// The description of the error.
        error: &'a Error,
    },
}

/// The threads that run a namespace's functions.
pub struct Dispatcher {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

/// The state that all threads of a dispatcher share.
struct Shared {
    namespace: Namespace,
    state: Mutex<State>,
    pool: Pool,
    observer: Option<Observer>,
    start: Instant,
    /// No more runs are started.
    stopping: AtomicBool,
    runs_done: AtomicU64,
    runs_failed: AtomicU64,
    /// The content of the status file has changed.
    changed: AtomicBool,
    keeper: OnceLock<Thread>,
}

impl Shared {
    /// Knows what is defined; nothing has been read, and no thread runs.
    fn new(namespace: Namespace, observer: Option<Observer>, environment: Option<Environment>) -> Result<Arc<Self>> {
        let state = State::new(&namespace, environment.unwrap_or_default())?;
        Ok(Arc::new(Self {
            namespace,
            state: Mutex::new(state),
            pool: Pool::default(),
            observer,
            start: Instant::now(),
            stopping: AtomicBool::new(false),
            runs_done: AtomicU64::new(0),
            runs_failed: AtomicU64::new(0),
            changed: AtomicBool::new(true),
            keeper: OnceLock::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held can only be a defect of ours; the fence in the journal still keeps every run from
        // being published twice, so going on is safe.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Milliseconds since the dispatcher started.
    fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis // 2^64 ms is longer than it will run
    }

    fn observe(&self, event: &HostEvent<'_>) {
        if let Some(observer) = &self.observer {
            observer(event);
        }
    }

    /// Notes that the status file is out of date; the keeper is woken at most once per writing.
    fn touch(&self) {
        if !self.changed.swap(true, Ordering::AcqRel) {
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }

    /// Stops running functions because the journal is closed to writes.
    fn fail(&self, error: Error) {
        self.state().failure.get_or_insert(error);
        self.stop_starting();
        self.touch();
    }

    fn stop_starting(&self) {
        self.stopping.store(true, Ordering::Release);
        self.pool.wake_all();
        self.namespace.journal().wake();
    }

    fn status(&self) -> HostStatus {
        let state = self.state();
        // A level that was not requested is not reported as missing.
        let isolation = state.environment.isolation.as_deref();
        HostStatus {
            pid: std::process::id(),
            failure: state.failure.as_ref().map(ToString::to_string),
            refusal: self.namespace.journal().refusal().map(|error| error.to_string()),
            runs_done: self.runs_done.load(Ordering::Relaxed),
            runs_failed: self.runs_failed.load(Ordering::Relaxed),
            sandbox: isolation.map(SandboxStatus::from),
            notice: state.notice.clone(),
            functions: state.live(self.now()),
        }
    }

    /// Keeps the status file and the journal's retention up to date, until the dispatcher stops.
    fn keep(&self) {
        // Early: a host that is killed again and again has to reclaim as well, or its journal grows without end.
        let mut maintain_at = Instant::now() + STATUS_INTERVAL;
        let mut sweep_at = maintain_at;
        while !self.stopping() {
            if !self.changed.load(Ordering::Acquire) {
                thread::park_timeout(maintain_at.saturating_duration_since(Instant::now()));
            }
            let changed = self.changed.swap(false, Ordering::AcqRel);
            if changed {
                self.write_status();
            }
            if Instant::now() >= maintain_at {
                if let Err(error) = self.namespace.journal().check_place() {
                    return self.fail(error);
                }
                // What cannot be deleted now is deleted later; until then nobody sees it.
                if let Err(error) = self.namespace.expire_tables() {
                    tracing::info!(target: "runs", code = error.code().id(), %error, "expired keys are not deleted yet");
                }
                let interval = match self.maintain() {
                    Ok(maintained) if maintained.dropped > 0 => MAINTAIN_BUSY_INTERVAL,
                    Err(error) if !state::is_transient(&error) => return self.fail(error),
                    _ => MAINTAIN_INTERVAL,
                };
                maintain_at = Instant::now() + interval;
            }
            if Instant::now() >= sweep_at {
                sweep_at = Instant::now() + SWEEP_INTERVAL;
                // Files that cannot be removed now are removed later.
                let _ = self.sweep();
            }
            if changed {
                thread::sleep(STATUS_INTERVAL);
            }
        }
        self.write_status();
    }

    /// Removes unneeded code and compiled modules.
    fn sweep(&self) -> Result<()> {
        crate::functions::sweep(&self.namespace, starter::CACHE, || self.state().codes())
    }

    fn write_status(&self) {
        // If the directory was replaced, the file would overwrite that of another host.
        if self.namespace.journal().check_place().is_ok() {
            // The file is only informative; a host continues without it, for instance on a full disk.
            let _ = self.status().write(self.namespace.dir());
        }
    }

    /// Ends the runs that are counted but were lost to damage, so that nothing waits for them forever.
    fn settle_lost(&self) -> Result<()> {
        self.state().damaged = false;
        // A full or busy log may have room the next time.
        self.try_settle_lost().inspect_err(|_| self.state().damaged = true)
    }

    fn try_settle_lost(&self) -> Result<()> {
        if self.counts_differ()? {
            // Maybe the indexes are wrong and the journal is not: what is read corrects them.
            self.namespace.journal().check(&mut |_, _| {})?;
            self.state().take_up(self.namespace.journal())?;
        }
        if self.counts_differ()? {
            lost::settle(&self.namespace, self.namespace.journal(), &mut |function, error| {
                let (run, attempt, retry_in) = (EventId::NONE, 0, None);
                self.observe(&HostEvent::Failed { function, run, attempt, error, retry_in, output: &[] });
            })?;
        }
        Ok(())
    }

    /// Whether other runs are counted as pending than are known.
    fn counts_differ(&self) -> Result<bool> {
        let mut state = self.state();
        let differs = self.namespace.journal().commit(|tx| {
            state.fold(tx.tail())?;
            let functions: Vec<u32> = tx.catalog().functions().map(Function::id).collect();
            let known = |id: u32| state.engine.view(id).map_or(0, |view| view.pending as u64);
            Ok(functions.into_iter().any(|id| tx.pending(id) != known(id)))
        })?;
        Ok(differs.value)
    }

    /// Lets the journal reclaim what neither its logs nor pending runs need.
    fn maintain(&self) -> Result<Maintained> {
        let journal = self.namespace.journal();
        self.state().fold(journal.tail())?;
        if self.state().damaged {
            self.settle_lost()?;
        }
        // A run in an old segment that is over stays over, and `maintain` learns by itself of runs that end from here on. So it is
        // sufficient to have read, once, everything that was committed before its first call.
        let folded = OnceCell::new();
        self.namespace.maintain(&|function, run, fired| {
            let mut state = self.state();
            let is_known = *folded.get_or_init(|| state.fold(journal.tail()).is_ok());
            // A run that cannot be read is not known to be done.
            !is_known
                || match fired {
                    Some(fired) => state.engine.needs(function, run, fired),
                    None => state.engine.is_pending(function, run),
                }
        })
    }
}

impl Dispatcher {
    /// Continues the runs of an earlier host, from the indexes, and starts the threads.
    pub fn start(namespace: Namespace, observer: Option<Observer>, environment: Option<Environment>) -> Result<Self> {
        let shared = Shared::new(namespace, observer, environment)?;
        let wanted = shared.state().wanted(&shared.namespace)?;
        warm::start(&shared, wanted);
        shared.state().recover(&shared.namespace)?;
        shared.settle_lost()?;
        worker::spawn(&shared)?;
        // A client that sees the host serve finds its status.
        shared.write_status();
        let of_keeper = shared.clone();
        let builder = thread::Builder::new().name("millrace-keeper".into());
        let keeper = millrace_threads::spawn(builder, move || of_keeper.keep());
        match keeper {
            Ok(keeper) => {
                shared.keeper.get_or_init(|| keeper.thread().clone());
                Ok(Self { shared, keeper: Some(keeper) })
            }
            Err(e) => {
                shared.stop_starting();
                Err(pool::no_thread(&e))
            }
        }
    }

    /// Its activity.
    pub fn status(&self) -> HostStatus {
        self.shared.status()
    }

    /// Adds a note for the operator to the status.
    pub fn set_notice(&self, notice: Option<String>) {
        let mut state = self.shared.state();
        if state.notice != notice {
            state.notice = notice;
            drop(state);
            self.shared.touch();
        }
    }

    /// Why it must stop.
    pub fn failure(&self) -> Option<Error> {
        self.shared.state().failure.clone()
    }

    /// No more runs are started; those in progress continue.
    pub fn stop_starting(&self) {
        self.shared.stop_starting();
    }

    /// Stops; runs in progress get `drain` to end and are published. Nothing is published after this.
    pub fn stop(&mut self, drain: Duration) -> Result<()> {
        self.shared.stop_starting();
        let left = self.shared.pool.wait_empty(drain);
        // A run that is still in progress finds this when it tries to publish.
        self.shared.state().halted = true;
        if let Some(keeper) = self.keeper.take() {
            self.shared.wake_keeper();
            millrace_threads::join(keeper);
        }
        if left > 0 {
            let drain_ms = drain.as_millis();
            return Err(millrace_wire::Code::HostStopTimeout
                .error(format!("{left} threads were still running functions after {drain_ms} ms")));
        }
        Ok(())
    }
}
