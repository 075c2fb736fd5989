//! Links: send outboxes and relays to other hosts.
//!
//! ```text
//!  Linker ── watches `_links` ── a thread per link ──┬─ push   Sender ══ Line ══> the other host
//!     │                                              ├─ pull   Puller <══ Line ══ the other host
//!     └── links.json                                 └─ local  Sender ──> Inbox of the same namespace
//! ```
//!
//! `millrace_node::links` decides what is sent and what an answer means. This module has connections and pauses, and no state that has to
//! survive: a link may break, and this process may die, at any moment.

pub(crate) mod line;
mod local;
pub(crate) mod pace;
mod pull;
mod push;
#[cfg(test)]
mod tests;

use line::IsStopping;
use millrace_client::blocking::HangUp;
use millrace_node::{
    Namespace,
    links::{LinkKey, LinkObserver, LinkWatch, Links, LinksStatus, LiveLink, Stop},
};
use millrace_wire::{Code, Error, Result};
use pace::Pace;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

/// How often at most the note of all links is looked at, however often it changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the activity of links is written for other processes, if it changed.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// The pause between checks for a first link. Another process that creates one notifies this host; this only limits the effect of a missed notification.
const REST: Duration = Duration::from_secs(30);
/// The precision of the reported time of the last answer.
const CONTACT_MS: u64 = 100;
/// The context of a link's thread.
const STACK_BYTES: usize = 512 << 10;

/// Drives the links of one namespace. Dropping it stops them.
pub struct Linker {
    links: Links,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads of a service that connects to other hosts share.
#[derive(Default)]
pub(crate) struct Shared {
    stopping: AtomicBool,
    /// Waits are cut short by it.
    stopped: (Mutex<()>, Condvar),
    /// The authorities that identify hosts whose key is not known.
    pub ca: Option<PathBuf>,
}

impl Shared {
    pub fn new(ca: Option<PathBuf>) -> Self {
        Self { ca, ..Self::default() }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Sleeps, unless everything stops.
    pub fn sleep(&self, time: Duration) {
        let guard = self.stopped.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_stopping() {
            drop(self.stopped.1.wait_timeout(guard, time));
        }
    }

    pub fn stop(&self) {
        let _guard = self.stopped.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopping.store(true, Ordering::Relaxed);
        self.stopped.1.notify_all();
    }
}

impl Linker {
    /// Starts the links of a namespace, which this process hosts; the observer gets each change of one.
    pub fn start(namespace: Namespace, observer: Option<LinkObserver>) -> Result<Linker> {
        Self::start_trusting(namespace, observer, None)
    }

    /// The same; `ca` names the certificate authorities that identify hosts whose key is not known: a PEM file, or `system`.
    pub fn start_trusting(namespace: Namespace, observer: Option<LinkObserver>, ca: Option<PathBuf>) -> Result<Linker> {
        let links = Links::of(&namespace);
        let shared = Arc::new(Shared::new(ca));
        let supervisor =
            Supervisor { links: links.clone(), namespace, shared: shared.clone(), running: HashMap::new(), observer };
        let builder = thread::Builder::new().name("millrace-links".into());
        let thread = millrace_threads::spawn(builder, move || supervisor.run());
        let thread =
            thread.map_err(|error| Code::HostStart.error(format!("a thread could not be started: {error}")))?;
        Ok(Linker { links, shared, thread: Some(thread) })
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        self.shared.stop();
        self.links.wake();
        if let Some(thread) = self.thread.take() {
            millrace_threads::join(thread);
        }
        self.links.remove_status();
    }
}

/// One running link.
struct Running {
    link: Arc<Link>,
    thread: JoinHandle<()>,
}

struct Supervisor {
    links: Links,
    namespace: Namespace,
    shared: Arc<Shared>,
    running: HashMap<LinkKey, Running>,
    observer: Option<LinkObserver>,
}

impl Supervisor {
    fn run(mut self) {
        let (mut seen, mut reported, mut told_at) = (None, LinksStatus::default(), Instant::now());
        let (mut watch, mut changed) = (LinkWatch::default(), true);
        // Before any link runs: what it loses from now on is news.
        self.say(&mut watch, &[]);
        let mut is_alive = false;
        loop {
            // A stop sets the flag first, and then wakes this.
            let wakes = self.links.wakes();
            if self.shared.is_stopping() {
                break;
            }
            let version = self.links.version().ok();
            let ended = self.running.values().any(|running| running.thread.is_finished());
            if version != seen || ended {
                // A full disk takes the note of this life later: nothing is sent before.
                if !is_alive {
                    is_alive = self.links.begin_life().is_ok();
                    self.shared.sleep(if is_alive { Duration::ZERO } else { TELL_EVERY });
                }
                // State that cannot be read now may be readable later; errors of the journal are reported elsewhere.
                if is_alive && self.reconcile().is_ok() {
                    seen = version;
                }
                changed = true;
                self.shared.sleep(LOOK_EVERY);
            }
            if told_at.elapsed() >= TELL_EVERY {
                (told_at, changed) = (Instant::now(), false);
                self.tell(&mut reported, &mut watch);
            }
            let is_at_rest = self.running.is_empty() && !changed;
            let rest = if is_at_rest { REST } else { TELL_EVERY.saturating_sub(told_at.elapsed()) };
            if version != seen || self.links.wait(seen.unwrap_or(0), wakes, rest).is_err() {
                self.shared.sleep(LOOK_EVERY);
            }
        }
        for running in self.running.values() {
            running.link.hang_up();
        }
        for (_, running) in self.running.drain() {
            millrace_threads::join(running.thread);
        }
    }

    /// Starts links that should run and do not; links that should not run end by themselves.
    fn reconcile(&mut self) -> Result<()> {
        let ended: Vec<LinkKey> = self
            .running
            .iter()
            .filter(|(_, running)| running.thread.is_finished())
            .map(|(key, _)| key.clone())
            .collect();
        for key in ended {
            if let Some(running) = self.running.remove(&key) {
                millrace_threads::join(running.thread);
            }
        }
        let wanted = self.links.wanted()?;
        for key in wanted.into_iter().filter(|key| !self.running.contains_key(key)).collect::<Vec<_>>() {
            let link =
                Arc::new(Link::new(key.clone(), self.links.clone(), self.namespace.clone(), self.shared.clone()));
            let of_thread = link.clone();
            let builder = thread::Builder::new().name("millrace-link".into()).stack_size(STACK_BYTES);
            let thread = millrace_threads::spawn(builder, move || of_thread.run());
            let thread = thread.map_err(|error| Code::HostStart.error(format!("a thread: {error}")))?;
            self.running.insert(key, Running { link, thread });
        }
        Ok(())
    }

    /// Reports changes to the observer.
    fn say(&self, watch: &mut LinkWatch, live: &[LiveLink]) {
        if let Some(observer) = &self.observer {
            // State that cannot be read now may be readable later.
            let news = watch.look(&self.links, live, Instant::now()).unwrap_or_default();
            news.iter().for_each(|news| observer(news));
        }
    }

    fn tell(&self, reported: &mut LinksStatus, watch: &mut LinkWatch) {
        let mut links: Vec<LiveLink> = self.running.values().map(|running| running.link.live().clone()).collect();
        links.sort_by(|a, b| a.key.cmp(&b.key));
        self.say(watch, &links);
        let status = LinksStatus { pid: std::process::id(), links };
        if status != *reported && self.links.write_status(&status).is_ok() {
            *reported = status;
        }
    }
}

/// How an attempt ended that did not fail.
enum End {
    /// There is nothing left to do: the link has stopped, or was removed.
    Gone,
    /// Something changed: the next attempt begins at once.
    Again,
}

/// The state that the thread of a link and its supervisor share.
struct Link {
    key: LinkKey,
    links: Links,
    namespace: Namespace,
    shared: Arc<Shared>,
    live: Mutex<LiveLink>,
    /// Cuts the connection when everything stops.
    hang_up: Mutex<Option<HangUp>>,
}

impl Link {
    fn new(key: LinkKey, links: Links, namespace: Namespace, shared: Arc<Shared>) -> Self {
        let live = Mutex::new(LiveLink::new(key.clone()));
        Self { key, links, namespace, shared, live, hang_up: Mutex::default() }
    }

    fn live(&self) -> MutexGuard<'_, LiveLink> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything stops, as the connection asks while it waits.
    fn is_stopping(&self) -> IsStopping {
        let shared = self.shared.clone();
        Arc::new(move || shared.is_stopping())
    }

    /// Keeps what cuts the connection.
    fn opened(&self, hang_up: HangUp) {
        let mut kept = self.hang_up.lock().unwrap_or_else(PoisonError::into_inner);
        let hang_up = kept.insert(hang_up);
        if self.shared.is_stopping() {
            hang_up.hang_up();
        }
    }

    fn hang_up(&self) {
        if let Some(hang_up) = self.hang_up.lock().unwrap_or_else(PoisonError::into_inner).take() {
            hang_up.hang_up();
        }
    }

    /// Attempt after attempt, until there is nothing to drive.
    fn run(&self) {
        let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let mut pace = Pace::new(seed ^ u64::from(std::process::id()));
        while !self.shared.is_stopping() {
            let ended = self.attempt(&mut pace);
            self.hang_up();
            self.live().connected = false;
            match ended {
                Ok(End::Gone) => return,
                Ok(End::Again) => {}
                Err(error) => {
                    let pause = pace.failed();
                    let code = error.code().id();
                    tracing::info!(target: "links", link = ?self.key, code, pause_ms = pause.as_millis() as u64, "failed: {}", error.detail());
                    self.pause(&error, pause);
                }
            }
        }
    }

    fn attempt(&self, pace: &mut Pace) -> Result<End> {
        if let Some(sender) = self.links.sender(&self.key)? {
            return match sender.address() {
                Some(_) => push::run(self, sender, pace),
                None => local::run(self, sender, pace),
            };
        }
        let puller = self.links.pullers()?.into_iter().find(|puller| puller.key() == self.key);
        puller.map_or(Ok(End::Gone), |puller| pull::run(self, puller, pace))
    }

    fn pause(&self, error: &Error, time: Duration) {
        let retry_ms = now_ms() + time.as_millis() as u64;
        {
            let mut live = self.live();
            (live.error, live.retry_ms) = (Some(Stop::of(error)), retry_ms);
        }
        self.shared.sleep(time);
        self.live().retry_ms = 0;
    }

    /// The other side answered.
    fn contact(&self) {
        let mut live = self.live();
        (live.connected, live.contact_ms) = (true, now_ms());
    }

    /// There is nothing to send, so earlier errors are over.
    fn settled(&self) {
        self.live().error = None;
    }

    /// There is nothing to carry, and the other side answered at that time.
    fn contact_at(&self, heard: Instant) {
        let contact_ms = now_ms().saturating_sub(heard.elapsed().as_millis() as u64);
        let mut live = self.live();
        live.error = None;
        // Two clocks never agree to the millisecond, and unchanged state is not reported again.
        if contact_ms.abs_diff(live.contact_ms) > CONTACT_MS {
            live.contact_ms = contact_ms;
        }
    }

    /// The other side took something, or there is nothing to take.
    fn well(&self, records: u64, bytes: u64) {
        let mut live = self.live();
        (live.connected, live.contact_ms, live.error) = (true, now_ms(), None);
        live.records += records;
        live.bytes += bytes;
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
