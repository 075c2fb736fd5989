//! A host's part in its cluster: its replicas of groups, and the functions that run for topics here.
//!
//! ```text
//!  gateway ──> Cluster ──> driver: one thread   Replicas ──turns──> Stores (the namespace's journal), one flush ──> Post ──> other hosts
//!                 │                                │ applied
//!                 └── get, range: journal          ├──> deliver: one thread   records and their runs, in one batch with the cursor;
//!                                                  │                          copies of topics
//!                                                  └<── feed: one thread      records of logs that feed topics, or wait to be published
//! ```
//!
//! The first group has the directory, and every host follows it: so each host finds a topic's group by itself. A host that is asked for a
//! topic of a group that it does not keep begins to follow that group. The network is an implementation of [`Post`]. Messages of other
//! hosts go to [`Cluster::receive`].

mod calls;
mod deliver;
mod driver;
mod facts;
mod feed;
mod groups;
mod lifecycle;
mod mirror;
mod objects;
mod outside;
mod stats;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use deliver::DELIVERED;
pub use facts::{Facts, KnownMember};
pub use feed::buffer::BufferStat;
pub use lifecycle::TopicOptions;
pub use millrace_group::{Durability, Engine, Labels, MAIN, MAIN_NAME, Member, Role, check_labels, plan};
pub use millrace_namespace::outbox::topics::NewPublish;
pub use mirror::MirrorStat;
pub use objects::Copies;
pub(crate) use objects::Ring;
pub use outside::{Bounds, Fed, FedRecord, Follower, Keeper, Source, Streams};
pub use stats::{ClusterStat, FeedStat, GroupStat, HostStat, SubscriptionStat, TopicHere, TopicStat};

use crate::Namespace;
use driver::{Driver, Input};
use groups::{Group, Unkept};
use millrace_group::{Limits, Options};
use millrace_wire::{Code, Error, Result};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use store::PROPOSE_HEAD_BYTES;

/// A host that lacks more entries than this is reported.
const BEHIND_MAX: u64 = 10_000;
/// A leader reports a host that has not answered for so many election timeouts.
const SILENCES: u32 = 4;
/// So many hosts vote, unless the group has agreed on another number; the others follow.
const VOTERS_MAX: usize = 3;
/// Requests and messages that wait for the driver. Messages beyond it are lost, as on a network.
const INPUTS_MAX: usize = 8192;
/// Their bytes, unless one alone has more.
const INPUTS_MAX_BYTES: usize = 64 << 20;
/// Most callers that wait for topics to grow.
const WAITERS_MAX: usize = 65_536;
/// The longest that one waits for a topic to grow.
pub const GROWTH_MAX: Duration = Duration::from_secs(300);
/// How long a group may take over a request.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Election timeouts are from once to twice this, unless it is said otherwise.
pub const ELECTION: Duration = Duration::from_millis(300);
/// Ticks of an election timeout.
const ELECTION_TICKS: u32 = 10;

/// Receives the outcome of a request.
pub type Reply<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// Sends messages to other hosts. It may drop messages that it cannot send.
pub trait Post: Send + Sync {
    /// Takes a message for the replica of a group on another host; group 0 is the host itself.
    fn send(&self, to: u64, group: u32, message: Vec<u8>);
    /// Says where hosts are.
    fn members(&self, members: &[Member]);
    /// Why a host could not be reached when it was last tried.
    fn trouble(&self, host: u64) -> Option<String>;
}

/// How a host takes part.
pub struct ClusterOptions {
    /// Where the others reach it.
    pub address: String,
    /// The name under which it serves its namespace.
    pub name: String,
    /// What is said of it besides: see [`check_labels`].
    pub labels: Labels,
    /// The shortest time without a leader before one is elected.
    pub election: Duration,
    /// What keeps the records of topics that no group keeps.
    pub streams: Option<Arc<dyn Streams>>,
}

/// A host's part in its cluster. Dropping it ends it.
pub struct Cluster {
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// A waiter for a topic to have more than this many records, and its deadline.
struct Waiter {
    group: u32,
    topic: String,
    /// Which topic of this name it was.
    born: u64,
    above: u64,
    until: Instant,
    reply: Reply<u64>,
}

struct Shared {
    namespace: Namespace,
    post: Arc<dyn Post>,
    facts: Facts,
    member: Member,
    labels: Labels,
    /// Of replicas here: which life of the host this is, and how much of a log stays.
    boot: u64,
    limits: Limits,
    main: Arc<Group>,
    /// The groups with a replica on this host.
    groups: RwLock<BTreeMap<u32, Arc<Group>>>,
    /// The revision of the directory that `groups` is as of.
    arranged: AtomicU64,
    /// Counts changes of subscriptions and feeds in any group.
    revision: AtomicU64,
    inputs: SyncSender<Input>,
    /// Bytes of inputs that the driver has not taken.
    queued: AtomicUsize,
    stopping: AtomicBool,
    /// Why this host takes no further part in its groups.
    halted: Mutex<Option<Error>>,
    /// When each other host was last heard of, and after which silence a leader doubts that it leads.
    heard: Mutex<HashMap<u64, Instant>>,
    silence: Duration,
    waiters: Mutex<Vec<Waiter>>,
    /// How often the topics have changed.
    changed: (Mutex<u64>, Condvar),
    /// Why a group that is to be kept here is not.
    unkept: Mutex<BTreeMap<String, Unkept>>,
    /// Why a subscription is stopped.
    troubles: Mutex<HashMap<(String, String), String>>,
    /// Why a feed is stopped.
    feeding: Mutex<HashMap<(String, String), String>>,
    /// How many records had left a log that feeds a topic before they could be published, since this host was started; and the first one behind
    /// those.
    unfed: Mutex<HashMap<(String, String), (u64, u64)>>,
    /// Why a mirror does not go on: of its log and its topic.
    mirroring: Mutex<HashMap<(String, String), String>>,
    /// What keeps the records of topics that no group keeps, and how far logs of this host that feed such topics are.
    streams: Option<Arc<dyn Streams>>,
    fed_outside: outside::feed::Feeds,
    /// How many records of a subscription had left the topic before they could be delivered.
    missed: Mutex<HashMap<(String, String), u64>>,
    /// Rings when steps of objects of user classes are due here.
    ring: Arc<Ring>,
}

/// The reply to a host that joins.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub struct Joined {
    /// The cluster's id.
    pub cluster: String,
    /// The hosts that its group began with.
    pub founders: Vec<u64>,
    /// The hosts there are.
    pub members: Vec<KnownMember>,
}

/// A host's id as people see it.
pub fn shown(host: u64) -> String {
    format!("{host:016x}")
}

/// A record that left its topic while this host was sent a snapshot, or that did so just now.
fn is_gone(topic: &str, index: u64) -> Error {
    Code::BelowHistory.error(format!("topic '{topic}' no longer has record {index}"))
}

/// Another topic has the name by now.
fn recreated(topic: &str) -> Error {
    Code::TopicRecreated.error(format!("topic '{topic}' was removed and created again"))
}

/// Nothing is to wait for a group that decides nothing.
fn is_led(group: &Group) -> Result<()> {
    if locked(&group.replica).leader() != 0 {
        return Ok(());
    }
    Err(Code::GroupUnavailable.error(format!("group '{}' has no leader that this host hears of", group.name)))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Takes part in the cluster that the namespace belongs to; nothing if it belongs to none.
    pub fn start(namespace: &Namespace, options: &ClusterOptions, post: Arc<dyn Post>) -> Result<Option<Cluster>> {
        let Some(facts) = Facts::load(namespace)? else { return Ok(None) };
        let boot = facts.note(namespace)?;
        let entry_max_bytes = namespace.journal().record_max_bytes().saturating_sub(PROPOSE_HEAD_BYTES);
        let limits = Limits { entry_max_bytes, ..Limits::default() };
        let founders = facts.founders.clone();
        let raft = Options { id: facts.host, boot, founders, seed: Facts::seed()?, voters_max: VOTERS_MAX, limits };
        let ring = Arc::<Ring>::default();
        let main = Arc::new(Group::open(namespace, MAIN, MAIN_NAME, raft, ring.clone())?);
        let (inputs, received) = sync_channel(INPUTS_MAX);
        let ClusterOptions { address, name, labels, election, streams } = options;
        check_labels(labels)?;
        let (address, name, site) = (address.clone(), name.clone(), facts.site.clone());
        let member = Member { id: facts.host, address, name, site };
        let known: Vec<Member> = facts.members.iter().cloned().map(Member::from).collect();
        post.members(&known);
        let shared = Arc::new(Shared {
            namespace: namespace.clone(),
            post: post.clone(),
            facts,
            member,
            labels: labels.clone(),
            boot,
            limits,
            groups: RwLock::new([(MAIN, main.clone())].into()),
            main,
            arranged: AtomicU64::new(0),
            revision: AtomicU64::new(1),
            inputs,
            queued: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            halted: Mutex::default(),
            heard: Mutex::default(),
            silence: *election,
            waiters: Mutex::default(),
            changed: Default::default(),
            unkept: Mutex::default(),
            troubles: Mutex::default(),
            feeding: Mutex::default(),
            unfed: Mutex::default(),
            mirroring: Mutex::default(),
            streams: streams.clone(),
            fed_outside: Mutex::default(),
            missed: Mutex::default(),
            ring,
        });
        let failed = |error| Code::HostStart.error(format!("a thread could not be started: {error}"));
        let tick = (*election / ELECTION_TICKS).max(Duration::from_millis(1));
        let driver = Driver::new(shared.clone(), post, tick, received).map_err(failed)?;
        let drive = millrace_threads::spawn(thread::Builder::new().name("millrace-group".into()), move || driver.run());
        let cluster = Cluster { shared: shared.clone(), threads: Mutex::new(vec![drive.map_err(failed)?]) };
        let builder = thread::Builder::new().name("millrace-topics".into());
        let deliver = millrace_threads::spawn(builder, move || deliver::run(&shared));
        locked(&cluster.threads).push(deliver.map_err(failed)?);
        let of_feeds = cluster.shared.clone();
        let builder = thread::Builder::new().name("millrace-feeds".into());
        let feed = millrace_threads::spawn(builder, move || feed::run(&of_feeds));
        locked(&cluster.threads).push(feed.map_err(failed)?);
        Ok(Some(cluster))
    }

    /// The cluster's id.
    pub fn id(&self) -> &str {
        &self.shared.facts.cluster
    }

    /// This host's id.
    pub fn host(&self) -> u64 {
        self.shared.facts.host
    }

    /// A message for a host of the cluster, and the group that it is for, that says where this host is; nothing once the cluster knows it.
    pub fn announcement(&self) -> Option<(u32, Vec<u8>)> {
        (!self.shared.is_known()).then(|| (driver::HOST, driver::here(&self.shared.member)))
    }

    /// Takes messages of another host for the replica of a group here.
    pub fn receive(&self, group: u32, messages: Vec<Vec<u8>>) {
        // A message for which there is no room is dropped, and sent again later.
        let _ = self.shared.queue(Input::Messages { group, messages });
    }

    /// Says that messages to another host were lost.
    pub fn unreachable(&self, host: u64) {
        let _ = self.shared.queue(Input::Unreachable(host));
    }

    /// Takes no further part. Waiters get an error.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // A driver that has much to do sees the flag.
        let _ = self.shared.inputs.try_send(Input::Stop);
        self.shared.namespace.journal().wake();
        *locked(&self.shared.changed.0) += 1;
        self.shared.changed.1.notify_all();
        for thread in locked(&self.threads).drain(..) {
            millrace_threads::join(thread);
        }
        locked(&self.shared.waiters).clear();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn ask(&self, input: Input) {
        if let Err(refused) = self.queue(input) {
            let (input, error) = *refused;
            input.refuse(error);
        }
    }

    /// Hands something to the driver, unless too much waits for it.
    fn queue(&self, input: Input) -> std::result::Result<(), Box<(Input, Error)>> {
        let bytes = input.bytes();
        let queued = self.queued.fetch_add(bytes, Ordering::Relaxed);
        let (input, error) = if queued > 0 && queued + bytes > INPUTS_MAX_BYTES {
            (input, Code::GroupBusy.error(format!("requests of {queued} bytes wait for the group")))
        } else {
            match self.inputs.try_send(input) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(input)) => {
                    (input, Code::GroupBusy.error(format!("{INPUTS_MAX} requests wait for the group")))
                }
                Err(TrySendError::Disconnected(input)) => {
                    let halted = locked(&self.halted).clone();
                    (input, halted.unwrap_or_else(|| Code::HostStopping.error("the host is stopping")))
                }
            }
        };
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        Err(Box::new((input, error)))
    }

    /// Replies to those whose topic of this group has grown, and to those whose time is over.
    fn answer(&self, group: &Group) {
        let mut waiters = locked(&self.waiters);
        if waiters.is_empty() {
            return;
        }
        let (now, replica) = (Instant::now(), locked(&group.replica));
        let mut at = 0;
        while at < waiters.len() {
            let waiter = &waiters[at];
            if waiter.group != group.id {
                at += 1;
                continue;
            }
            let found = replica.topics().topic(&waiter.topic).and_then(|topic| match topic.born == waiter.born {
                true => Ok(topic.latest),
                false => Err(recreated(&waiter.topic)),
            });
            match found {
                Ok(latest) if latest <= waiter.above && now < waiter.until => at += 1,
                found => (waiters.swap_remove(at).reply)(found),
            }
        }
    }

    /// Nobody learns any more that topics of this group have grown: the group was removed, and this host had not heard that its topics were.
    fn forget_waiters(&self, group: u32) {
        let mut waiters = locked(&self.waiters);
        for waiter in waiters.extract_if(.., |waiter| waiter.group == group) {
            (waiter.reply)(Err(Code::TopicNotFound.error(format!("topic '{}' was removed", waiter.topic))));
        }
    }

    /// Another host was heard of.
    fn heard(&self, host: Option<u64>) {
        if let Some(host) = host {
            locked(&self.heard).insert(host, Instant::now());
        }
    }

    /// Whether nothing was heard of another host for this long.
    fn is_silent(&self, host: u64, long: Duration) -> bool {
        locked(&self.heard).get(&host).is_none_or(|heard| heard.elapsed() > long)
    }

    /// The topics of a group have changed: wakes the waiters.
    fn reported(&self, group: &Group) {
        let revision = locked(&group.replica).topics().revision();
        if group.revision.swap(revision, Ordering::Relaxed) != revision {
            self.revision.fetch_add(1, Ordering::Relaxed);
        }
        self.answer(group);
        *locked(&self.changed.0) += 1;
        self.changed.1.notify_all();
    }
}
