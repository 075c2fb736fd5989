//! The namespaces that a server serves.

use crate::{
    http::{Origin, Sample},
    memory,
    server::Certificate,
    silence::Silence,
};
use millrace_node::{Access, CLIENT_INDEX_MAX_BYTES, Caller, Gated, Isolation, Limits, Name, Served, token::TokenId};
use millrace_wire::{Code, Result};
use std::{
    cell::Cell,
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// How long what the gates hold waits for a loop that has no end of work.
const TURN_LATEST: Duration = Duration::from_millis(2);
/// How much work a loop does before it looks at the clock.
const LOOK_AFTER: usize = 64;

thread_local! {
    /// Of this thread's loop: work since it looked at the clock, and when it last flushed.
    static WORKED: Cell<usize> = const { Cell::new(0) };
    static TURNED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The namespaces of a host and what is counted about it. One per process.
pub struct Hosted {
    served: Vec<Served>,
    isolation: Option<Arc<Isolation>>,
    /// The certificate for clients that identify the host by a name.
    certificate: Option<Arc<Certificate>>,
    /// Origins of pages that are answered.
    pub(crate) cors_origins: Vec<Origin>,
    started: Instant,
    draining: AtomicBool,
    /// Connections over which nothing is asked.
    pub(crate) silence: Silence,
    /// Work that may take very long, such as reading the whole journal or waiting for its lock. Fewer of it run at once than a
    /// loop has threads, so that what is quick always finds one.
    pub(crate) slow: Arc<Semaphore>,
    /// Deployments, whose checks of code may take long: they wait for each other, and do not delay other slow work.
    deploying: Arc<Semaphore>,
    /// The same for callers that do not administer the namespace, and of each of those one at a time.
    deploying_others: Arc<Semaphore>,
    deployers: Mutex<HashMap<TokenId, Weak<Semaphore>>>,
    /// The last reported values of each namespace.
    reported: Mutex<HashMap<Name, Arc<Vec<Sample>>>>,
    /// Codes of links to the dashboard.
    pub(crate) codes: crate::http::Codes,
    /// The newest counters of each namespace, for those who listen to them.
    pub(crate) samplers: crate::http::Samplers,
    /// Sessions of MQTT.
    pub(crate) mqtt: crate::mqtt::Mqtt,
    /// Devices that can be asked something.
    pub(crate) devices: crate::wire::Askable,
    /// Counters for metrics.
    pub counters: Counters,
    /// Where the host listens with TCP.
    pub(crate) addresses: OnceLock<Vec<SocketAddr>>,
    /// How many connections may be open.
    pub connections_limit: AtomicUsize,
}

/// Logs of a namespace beyond which clients make no further one.
const LOGS_MAX: usize = 100_000;
/// Files that segments and functions need.
const FILES_RESERVED: usize = 512;
/// The number of connections that always have room.
const CONNECTIONS_LEAST: usize = 16;

/// How many files this process may have open, once it has raised its limit.
fn files_max() -> usize {
    use rustix::process::{Resource, getrlimit};
    static MAX: OnceLock<usize> = OnceLock::new();
    let maximum = || getrlimit(Resource::Nofile).maximum;
    *MAX.get_or_init(|| maximum().map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX)))
}

/// Slow work that runs at once.
const SLOW_MAX: usize = 4;
/// Deployments, and parts of files for them, that are worked on at once.
const DEPLOYING_MAX: usize = 2;

/// Counted since the host started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections open now.
    pub connections: AtomicUsize,
    /// Connections ever accepted.
    pub accepted: AtomicU64,
    /// Connections refused, or closed because of what came or did not come over them.
    pub dropped: AtomicU64,
    /// Requests answered over the wire protocol.
    pub wire_requests: AtomicU64,
    /// Requests answered over HTTP.
    pub http_requests: AtomicU64,
    /// Answers that were errors.
    pub failures: AtomicU64,
    /// Bytes received.
    pub received_bytes: AtomicU64,
    /// Bytes sent.
    pub sent_bytes: AtomicU64,
}

impl Hosted {
    /// Serves these namespaces.
    pub fn new(served: Vec<Served>) -> Self {
        let (draining, silence, counters) = (AtomicBool::new(false), Silence::default(), Counters::default());
        let (codes, samplers) = (crate::http::Codes::default(), crate::http::Samplers::default());
        let (slow, reported) = (Arc::new(Semaphore::new(SLOW_MAX)), Mutex::default());
        let deploying = Arc::new(Semaphore::new(DEPLOYING_MAX));
        Self {
            served,
            isolation: None,
            certificate: None,
            cors_origins: Vec::new(),
            started: Instant::now(),
            draining,
            silence,
            slow,
            deploying,
            deploying_others: Arc::new(Semaphore::new(DEPLOYING_MAX)),
            deployers: Mutex::default(),
            reported,
            counters,
            codes,
            samplers,
            mqtt: crate::mqtt::Mqtt::default(),
            devices: crate::wire::Askable::default(),
            addresses: OnceLock::new(),
            connections_limit: usize::MAX.into(),
        }
    }

    /// The same, whose functions are kept apart so.
    #[must_use]
    pub fn keeping_apart(self, isolation: Arc<Isolation>) -> Self {
        self.served.iter().for_each(|served| served.keep_apart(isolation.clone()));
        Self { isolation: Some(isolation), ..self }
    }

    /// The same, which shows this certificate, and reports when it expires.
    #[must_use]
    pub fn showing(self, certificate: Option<Arc<Certificate>>) -> Self {
        Self { certificate, ..self }
    }

    /// The same, which answers pages of these origins.
    #[must_use]
    pub fn answering(self, cors_origins: Vec<Origin>) -> Self {
        Self { cors_origins, ..self }
    }

    /// Whether a function in a sandbox could connect as the host's own user: it may use the network, and the kernel takes its processes
    /// for that user.
    pub(crate) fn is_imitable(&self) -> bool {
        let Some(isolation) = self.isolation.as_ref().filter(|isolation| isolation.shares_user()) else { return false };
        isolation.is_networked() || self.served.iter().any(|served| served.facts().has_networked_function())
    }

    /// When its certificate expires, in seconds since 1970, if it has one.
    pub(crate) fn certificate_until_s(&self) -> Option<u64> {
        let until = self.certificate.as_ref()?.until_s();
        u64::try_from(until).ok()
    }

    /// The namespaces.
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// The namespace of this name, or the only one if `name` is empty, as `caller` may use it.
    pub fn access(&self, name: &str, caller: &Arc<Caller>) -> Result<Access> {
        let found = match (name, &*self.served) {
            ("", [only]) => Some(only),
            _ => self.served.iter().find(|served| &**served.name() == name),
        };
        found.map(|served| self.within_limits(served, caller)).ok_or_else(|| {
            let names: Vec<&str> = self.served.iter().map(|served| &**served.name()).collect();
            let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
            Code::NamespaceNotServed
                .error(format!("this host does not serve namespace '{shown}'; it serves {}", names.join(", ")))
        })
    }

    /// A namespace as `caller` may use it from outside.
    pub(crate) fn within_limits(&self, served: &Served, caller: &Arc<Caller>) -> Access {
        // Every request of a caller gets its access here.
        memory::charge(caller.principal());
        served.access(caller).within(Limits { logs_max: LOGS_MAX, index_max_bytes: CLIENT_INDEX_MAX_BYTES })
    }

    /// Defines or removes something on a thread that may wait: it makes files, reads the journal, and waits for the journal's
    /// lock as long as a submission does.
    pub(crate) async fn define<T: Send + Unpin + 'static>(
        &self,
        access: Access,
        act: impl FnOnce(&Access) -> Gated<T> + Send + 'static,
    ) -> Result<T> {
        Self::work(self.slow.clone(), access, act).await
    }

    /// The same for what deploys. What one deployer sends delays its own further deployments, and no deployment of those who administer the
    /// namespace.
    pub(crate) async fn deploy<T: Send + Unpin + 'static>(
        &self,
        access: Access,
        act: impl FnOnce(&Access) -> Gated<T> + Send + 'static,
    ) -> Result<T> {
        let Some(deployer) = access.deployer() else { return Self::work(self.deploying.clone(), access, act).await };
        let own = self.turns_of(deployer);
        let _turn = own.acquire().await;
        Self::work(self.deploying_others.clone(), access, act).await
    }

    /// The place of the one deployment of this capability that is worked on.
    fn turns_of(&self, deployer: TokenId) -> Arc<Semaphore> {
        let mut deployers = self.deployers.lock().unwrap_or_else(PoisonError::into_inner);
        deployers.retain(|_, turns| turns.strong_count() > 0);
        let known = deployers.get(&deployer).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turns = Arc::new(Semaphore::new(1));
            deployers.insert(deployer, Arc::downgrade(&turns));
            turns
        })
    }

    async fn work<T: Send + Unpin + 'static>(
        among: Arc<Semaphore>,
        access: Access,
        act: impl FnOnce(&Access) -> Gated<T> + Send + 'static,
    ) -> Result<T> {
        let permit = among.acquire_owned().await;
        let work = move || {
            let _permit = permit;
            access.patiently(act)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(held) => held.await,
            Err(failed) => Err(Code::HostInternal.error(failed.to_string())),
        }
    }

    /// Keeps the samples that are reported now, to repeat them while newer ones cannot be read.
    pub(crate) fn reported(&self, name: &Name, samples: Vec<Sample>) -> Arc<Vec<Sample>> {
        let samples = Arc::new(samples);
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), samples.clone());
        samples
    }

    /// The last reported numbers of a namespace.
    pub(crate) fn last_told(&self, name: &Name) -> Arc<Vec<Sample>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or_default()
    }

    /// How many connections leave files for segments and for what functions need.
    pub(crate) fn connections_max(&self) -> usize {
        let max = files_max();
        max.saturating_sub(FILES_RESERVED.min(max / 4)).max(CONNECTIONS_LEAST)
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Whether it is stopping: it answers what it has taken and takes nothing new.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Flushes for all that the namespaces' gates hold.
    pub(crate) fn turn(&self) {
        self.served.iter().for_each(|served| served.gate().turn());
        TURNED.set(Some(Instant::now()));
    }

    /// The same for a loop with a single connection.
    pub(crate) fn turn_alone(&self) {
        self.served.iter().for_each(|served| served.gate().turn_alone());
        TURNED.set(Some(Instant::now()));
    }

    /// Records that the loop of this thread has answered this many requests. A loop that never sleeps flushes from time to time
    /// nevertheless, so that requests without waiting do not delay those that wait.
    pub(crate) fn worked(&self, requests: usize) {
        let worked = WORKED.get() + requests;
        WORKED.set(worked);
        if worked >= LOOK_AFTER {
            WORKED.set(0);
            if TURNED.get().is_none_or(|turned| turned.elapsed() >= TURN_LATEST) {
                self.turn();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{documents, wire::tests::hosted};
    use millrace_node::{
        Durability,
        token::{Peer, Way},
    };
    use tokio::{runtime::Builder, time::timeout};

    #[test]
    fn deployments_and_other_slow_work_do_not_wait_for_each_other() {
        let (_dir, hosted) = hosted(Durability::Memory);
        let peer = Peer { way: Way::Unix, address: None, key: None };
        let access = || hosted.access("", &Arc::new(Caller::owner(peer))).unwrap();
        let up = r#"{"do":"up","file":"millrace.toml","origin":"/x/millrace.toml","text":"nonsense","functions":{}}"#;
        let remove = r#"{"do":"remove-function","function":"f"}"#;
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let others = (&hosted.deploying_others, DEPLOYING_MAX, up);
            for (taken, all, order) in
                [(&hosted.slow, SLOW_MAX, up), (&hosted.deploying, DEPLOYING_MAX, remove), others]
            {
                let _taken = taken.clone().acquire_many_owned(all as u32).await.unwrap(); // a few
                let answer = documents::manage(&hosted, access(), order.into(), None);
                // Nothing here takes this long unless it hangs.
                let answer = timeout(Duration::from_secs(120), answer).await.expect("it is answered");
                assert!(matches!(answer.unwrap_err().code(), Code::ApplicationInvalid | Code::FunctionNotFound));
            }
        });
    }
}
