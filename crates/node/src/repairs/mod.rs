//! Repairs: the host replays and applies requested repairs in a thread of its own; without a host, the caller does so.

mod ask;
mod plan;

pub use ask::{Ask, NewCode, Page, Reported, is_moving, page};
use millrace_dispatch::{Again, Environment, Isolation, dead_letter};
use millrace_namespace::{
    Definition, Namespace,
    holder::{self, HostLock},
};
pub use millrace_repair::AMENDMENT_DEAD_LETTERS;
pub use millrace_repair::{
    Amendments, Change, CodeGiven, CodeRequest, Correction, Counts, Member, NoPeers, NotRun, PartAsk, PartOf, Peers,
    Phase, Repair, Request, SLOTS_MAX, SentPage, Step, TopicKept, Verified, VerifiedRuns, Waiting, abandon, amend,
    amend_policy, amendments, ask_apply, ask_run, changes, check_functions, close, declare_amendable, in_force, news,
    open, open_code, part, repair, repairs, sent_page, too_old, undo,
};
use millrace_repair::{Attempts, DeadLetter, Due, Runner, drive, outcomes, take_due};
use millrace_runtime::{Completion, Invocation, LogCalls};
use millrace_wire::{Code, Result};
pub(crate) use plan::Plans;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a look at a journal at rest waits for news.
const LOOK: Duration = Duration::from_secs(10);
/// How long to wait before trying again what failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Makes what reaches the hosts of other namespaces.
pub type Reach = Arc<dyn Fn(&Arc<AtomicBool>) -> Box<dyn Peers> + Send + Sync>;

/// Runs the functions of a namespace again.
struct Functions(Again);

impl Runner for Functions {
    fn run(
        &mut self,
        definition: &Arc<Definition>,
        invocation: Invocation<'_>,
        calls: &mut dyn LogCalls,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Completion> {
        self.0.run(definition, invocation, calls, goes_on)
    }

    fn dead_letter(&self, of: DeadLetter<'_>) -> Vec<u8> {
        dead_letter(of.run, of.function, of.record, of.attempt, of.error)
    }
}

/// The thread that does what repairs wait for.
pub(crate) struct Repairer {
    namespace: Namespace,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Repairer {
    pub fn start(namespace: Namespace, environment: Environment, reach: Option<Reach>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, stop_there) = (namespace.clone(), stop.clone());
        let run = move || {
            let mut peers = reach.map_or_else(|| Box::new(NoPeers) as Box<dyn Peers>, |reach| reach(&stop_there));
            look(&of_thread, &environment, &mut *peers, &stop_there);
        };
        let thread = millrace_threads::spawn(thread::Builder::new().name("millrace-repairs".into()), run)
            .map_err(|error| Code::HostStart.error(format!("cannot start a thread: {error}")))?;
        Ok(Self { namespace, stop, thread: Some(thread) })
    }

    /// Stops, and returns once nothing more is written.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.namespace.journal().wake();
            millrace_threads::join(thread);
        }
    }
}

impl Drop for Repairer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn look(namespace: &Namespace, environment: &Environment, peers: &mut dyn Peers, stop: &AtomicBool) {
    let (journal, mut seen, mut phases) = (namespace.journal(), None, HashMap::new());
    let mut attempts = Attempts::default();
    // Whether some namespace does not know yet how a repair ended in which it took part.
    let (mut has_news, mut told) = (true, None::<Instant>);
    note_phases(namespace, &mut phases);
    while !stop.load(Ordering::Acquire) {
        // A request wakes all waiters.
        let (wakes, defined, noted) = (journal.wakes(), journal.catalog_version(), news(namespace));
        match noted {
            // The next repair may need participants that do not know yet how the last one ended.
            Ok(_) if has_news && told.is_none_or(|told| told.elapsed() >= PAUSE) => {
                (has_news, told) = (outcomes(namespace, peers, stop).unwrap_or(true), Some(Instant::now()));
            }
            // It only sleeps, unless amendments are due.
            Ok(noted) if seen == Some(noted) => match take_due(namespace, &mut attempts) {
                Ok(Due::Taken) => {}
                Ok(due) => {
                    let most = if has_news { PAUSE } else { LOOK };
                    let rest = if let Due::In(time) = due { time.min(most) } else { most };
                    drop(journal.wait_change(None, defined, wakes, rest));
                }
                Err(error) => {
                    let (code, error) = (error.code().id(), error.detail());
                    tracing::warn!(target: "repairs", code, error, "amendments wait");
                    thread::sleep(PAUSE);
                }
            },
            Ok(noted) => {
                let mut functions = Functions(Again::new(namespace, environment.clone()));
                match drive(namespace, &mut functions, peers, stop, &mut |_, _, _, _| {}) {
                    Ok(true) => note_phases(namespace, &mut phases), // There may be more.
                    Ok(false) => (seen, has_news, told) = (Some(noted), true, None),
                    Err(error) => {
                        tracing_of(&error);
                        thread::sleep(PAUSE);
                    }
                }
            }
            Err(_) => thread::sleep(PAUSE), // A journal that was closed ends the host.
        }
    }
}

/// Notes which repairs are in another phase than when this was called last.
fn note_phases(namespace: &Namespace, phases: &mut HashMap<u64, Phase>) {
    let Ok(all) = repairs(namespace) else { return };
    for Repair { repair, phase, error, .. } in all {
        if phases.insert(repair, phase) == Some(phase) {
            continue;
        }
        match error.filter(|_| matches!(phase, Phase::Stopped | Phase::Abandoned)) {
            Some((code, error)) => {
                tracing::warn!(target: "repairs", repair, phase = phase.as_str(), code, error, "a repair stopped");
            }
            None => tracing::info!(target: "repairs", repair, phase = phase.as_str(), "another phase"),
        }
    }
}

fn tracing_of(error: &millrace_wire::Error) {
    tracing::info!(target: "repairs", code = error.code().id(), error = error.detail(), "a repair waits");
}

/// The logs that feed topics or mirror them, each with its topic: a repair of such a log does not change the topic.
pub fn topics(namespace: &Namespace) -> Result<Vec<TopicKept>> {
    let all = millrace_namespace::outbox::topics::of_logs(namespace)?.into_iter();
    Ok(all.map(|of| TopicKept { log: of.log, topic: of.topic }).collect())
}

/// Replays the newest runs of each function in this process, at most this many, and says by name whether they leave the same again: those of
/// a device with the twin of its function. With `only`, the runs of that device alone. Nothing is written. Functions are kept apart as a host
/// does.
pub fn verify(
    namespace: &Namespace,
    most: usize,
    only: Option<&str>,
    isolation: &Arc<Isolation>,
) -> Result<VerifiedRuns> {
    let environment = in_place_of_host(namespace, isolation);
    millrace_repair::verify(namespace, most, only, &mut Functions(Again::new(namespace, environment)))
}

/// Whether no code is known with which runs of this function could be replayed, which were imported from devices.
pub fn lacks_twin(namespace: &Namespace, function: Option<&str>) -> bool {
    let twin = |name: &str| {
        let (catalog, bindings) = (namespace.journal().catalog().ok()?, namespace.bindings().ok()?);
        let definition = bindings.definition(catalog.function(name)?.id())?;
        (!definition.is_without_code() || bindings.twin_of(definition).is_some()).then_some(())
    };
    function.and_then(twin).is_none()
}

/// What functions get from a process that is not the host.
fn in_place_of_host(namespace: &Namespace, isolation: &Arc<Isolation>) -> Environment {
    let secrets: Arc<dyn millrace_dispatch::SecretStore> =
        Arc::new(crate::secrets::FunctionSecrets::of(namespace.dir()));
    Environment { isolation: Some(isolation.clone()), secrets: Some(secrets), objects: None }
}

/// Executes pending requests about repairs in this process, in place of a host; an error if a host runs. Functions are kept apart as a host
/// does. `progress` gets the repair, the step, how many runs were examined, and how many there are. `peers` reaches the namespaces that take
/// part; it waits as long as one of them does not answer.
///
/// A host that starts takes over. Then this returns between two runs, or between two steps, with what has been done until then.
pub fn here(
    namespace: &Namespace,
    isolation: &Arc<Isolation>,
    peers: &mut dyn Peers,
    progress: &mut dyn FnMut(u64, &Counts, usize, usize),
) -> Result<()> {
    let lock = holder::lock_until_a_host_starts(namespace.dir())?;
    let mut functions = Functions(Again::new(namespace, in_place_of_host(namespace, isolation)));
    let stop = Arc::new(AtomicBool::new(false));
    let _watch = Yielding::start(lock, &stop)?;
    while !stop.load(Ordering::Acquire) {
        outcomes(namespace, peers, &stop)?;
        match drive(namespace, &mut functions, peers, &stop, progress) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.code() == Code::RepairPeer => thread::sleep(PAUSE),
            // The host that starts continues.
            Err(error) if error.code() == Code::HostStopping => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The lock of a process that stands in for a host, and the thread that tells it to stop when a host wants to start.
struct Yielding {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _lock: Arc<HostLock>,
}

impl Yielding {
    fn start(lock: HostLock, stop: &Arc<AtomicBool>) -> Result<Self> {
        let (lock, over, stop) = (Arc::new(lock), Arc::new(AtomicBool::new(false)), stop.clone());
        let (of_thread, ended) = (lock.clone(), over.clone());
        let watch = move || {
            while !ended.load(Ordering::Acquire) {
                if of_thread.is_wanted() {
                    stop.store(true, Ordering::Release);
                    return;
                }
                thread::park_timeout(PAUSE);
            }
        };
        let thread = millrace_threads::spawn(thread::Builder::new().name("millrace-yield".into()), watch)
            .map_err(|error| Code::HostStart.error(format!("cannot start a thread: {error}")))?;
        Ok(Self { over, thread: Some(thread), _lock: lock })
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            millrace_threads::join(thread);
        }
    }
}
