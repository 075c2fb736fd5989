//! Repairs: the host replays and applies requested repairs in a thread of its own; without a host, the caller does so.

mod ask;

pub use ask::{Ask, NewCode, Page, Reported, is_moving, page};
use millrace_dispatch::{Again, Environment, dead_letter};
use millrace_namespace::{Definition, Namespace, holder};
pub use millrace_repair::{
    Amendments, Change, CodeRequest, Correction, Counts, Phase, Repair, Request, Verified, Waiting, abandon, amend,
    amend_policy, amendments, ask_apply, ask_run, changes, close, declare_amendable, news, open, open_code, repair,
    repairs, undo,
};
use millrace_repair::{Attempts, DeadLetter, Due, Runner, drive, take_due};
use millrace_runtime::{Completion, HostCalls, Invocation};
use millrace_wire::{Code, Result};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long a look at a journal at rest waits for news.
const LOOK: Duration = Duration::from_secs(10);
/// How long to wait before trying again what failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the functions of a namespace again.
struct Functions(Again);

impl Runner for Functions {
    fn run(
        &mut self,
        definition: &Arc<Definition>,
        invocation: Invocation<'_>,
        calls: &mut dyn HostCalls,
    ) -> Result<Completion> {
        self.0.run(definition, invocation, calls)
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
    pub fn start(namespace: Namespace, environment: Environment) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, stop_there) = (namespace.clone(), stop.clone());
        let run = move || look(&of_thread, &environment, &stop_there);
        let thread = millrace_threads::spawn(thread::Builder::new().name("millrace-repairs".into()), run)
            .map_err(|error| Code::HostStart.error(format!("cannot start a thread: {error}")))?;
        Ok(Self { namespace, stop, thread: Some(thread) })
    }

    /// Stops, and returns once nothing more is written.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.namespace.journal().wake();
            // A panic there has been reported, and stopping continues.
            let _ = thread.join();
        }
    }
}

impl Drop for Repairer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn look(namespace: &Namespace, environment: &Environment, stop: &AtomicBool) {
    let (journal, mut seen, mut phases) = (namespace.journal(), None, HashMap::new());
    let mut attempts = Attempts::default();
    note_phases(namespace, &mut phases);
    while !stop.load(Ordering::Acquire) {
        // A request wakes all waiters.
        let (wakes, defined, noted) = (journal.wakes(), journal.catalog_version(), news(namespace));
        match noted {
            // It only sleeps, unless amendments are due.
            Ok(noted) if seen == Some(noted) => match take_due(namespace, &mut attempts) {
                Ok(Due::Taken) => {}
                Ok(Due::In(time)) => drop(journal.wait_change(None, defined, wakes, LOOK.min(time))),
                Ok(Due::Nothing) => drop(journal.wait_change(None, defined, wakes, LOOK)),
                Err(error) => {
                    let (code, error) = (error.code().id(), error.detail());
                    tracing::warn!(target: "repairs", code, error, "amendments wait");
                    thread::sleep(PAUSE);
                }
            },
            Ok(noted) => {
                let mut functions = Functions(Again::new(namespace, environment.clone()));
                match drive(namespace, &mut functions, stop, &mut |_, _, _, _| {}) {
                    Ok(true) => note_phases(namespace, &mut phases), // There may be more.
                    Ok(false) => seen = Some(noted),
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
    for Repair { repair, phase, .. } in all {
        if phases.insert(repair, phase) != Some(phase) {
            tracing::info!(target: "repairs", repair, phase = phase.as_str(), "another phase");
        }
    }
}

fn tracing_of(error: &millrace_wire::Error) {
    tracing::info!(target: "repairs", code = error.code().id(), "a repair waits");
}

/// Replays the newest runs of each function in this process, at most so many, and says by name whether they leave the same again.
/// Nothing is written.
pub fn verify(namespace: &Namespace, most: usize) -> Result<BTreeMap<String, Verified>> {
    let secrets: Arc<dyn millrace_dispatch::SecretStore> =
        Arc::new(crate::secrets::FunctionSecrets::of(namespace.dir()));
    let environment = Environment { isolation: None, secrets: Some(secrets), objects: None };
    millrace_repair::verify(namespace, most, &mut Functions(Again::new(namespace, environment)))
}

/// Executes pending requests about repairs in this process, in place of a host; an error if a host runs. `progress` gets the repair, the
/// step, how many runs were examined, and how many there are.
pub fn here(namespace: &Namespace, progress: &mut dyn FnMut(u64, &Counts, usize, usize)) -> Result<()> {
    let _lock = holder::lock(namespace.dir())?;
    let secrets: Arc<dyn millrace_dispatch::SecretStore> =
        Arc::new(crate::secrets::FunctionSecrets::of(namespace.dir()));
    let environment = Environment { isolation: None, secrets: Some(secrets), objects: None };
    let mut functions = Functions(Again::new(namespace, environment));
    let stop = AtomicBool::new(false);
    while drive(namespace, &mut functions, &stop, progress)? {}
    Ok(())
}
