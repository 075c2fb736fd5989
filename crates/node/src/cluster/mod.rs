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
//! The first group has the directory, and every host follows it: so each host finds a topic's group by itself. A host that gets a request
//! for a topic of a group of which it has no replica begins to follow that group. The network is an implementation of [`Post`]. Messages of
//! other hosts go to [`Cluster::receive`].

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
mod recovery;
mod stats;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use deliver::DELIVERED;
pub use driver::{RotatedHost, RotatedSecret};
pub use facts::{Facts, KnownMember, Starts};
pub use feed::buffer::BufferStat;
pub use lifecycle::TopicOptions;
pub use millrace_group::{Durability, Engine, Labels, MAIN, MAIN_NAME, Member, Role, Stamp, check_labels, plan};
pub use millrace_namespace::outbox::topics::NewPublish;
pub use mirror::MirrorStat;
pub use objects::Copies;
pub(crate) use objects::Ring;
pub use outside::{Bounds, Fed, FedRecord, Follower, Keeper, Source, Streams};
pub use recovery::{LostGroup, RecoveredGroup, RecoveredTopic, Recovery, use_secret};
pub use stats::{ClusterStat, FeedStat, GroupStat, HostStat, SubscriptionStat, TopicHere, TopicStat};

use crate::{Namespace, secrets::ClusterSecret};
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

/// If a host lacks more entries than this, reports name it.
const BEHIND_MAX: u64 = 10_000;
/// If a host has not answered for this many election timeouts, reports of the leader name it.
const SILENCES: u32 = 4;
/// How often hosts that send nothing to a host are asked whether they are there, and how many answers may be missing.
const PROBE: Duration = Duration::from_secs(3);
const PROBES: u32 = 4;
/// The number of voters, unless the group has agreed on another one; the other hosts follow.
const VOTERS_MAX: usize = 3;
/// The maximum number of requests and messages that wait for the driver. Further messages are dropped, as on a network.
const INPUTS_MAX: usize = 8192;
/// The maximum of their bytes, unless one alone has more.
const INPUTS_MAX_BYTES: usize = 64 << 20;
/// The maximum number of callers that wait for topics to grow.
const WAITERS_MAX: usize = 65_536;
/// The longest that one waits for a topic to grow.
pub const GROWTH_MAX: Duration = Duration::from_secs(300);
/// The timeout of a request to a group.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The default election timeout: actual timeouts are between this and twice this.
pub const ELECTION: Duration = Duration::from_millis(300);
/// Ticks of an election timeout.
const ELECTION_TICKS: u32 = 10;

/// Receives the outcome of a request.
pub type Reply<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// Sends messages to other hosts. It may drop messages that it cannot send.
pub trait Post: Send + Sync {
    /// Takes a message for the replica of a group on another host; group 0 is the host itself.
    fn send(&self, to: u64, group: u32, message: Vec<u8>);
    /// Sets the addresses of hosts.
    fn members(&self, members: &[Member]);
    /// Why a host could not be reached when it was last tried.
    fn trouble(&self, host: u64) -> Option<String>;
    /// The secret with which this host is known to the others; `None` if it needs none.
    fn secret(&self) -> Option<Arc<ClusterSecret>> {
        None
    }
    /// Keeps another secret, and uses it from now on.
    fn change_secret(&self, secret: ClusterSecret) -> Result<()> {
        drop(secret);
        Ok(())
    }
}

/// The settings of a host in its cluster.
pub struct ClusterOptions {
    /// The address at which the others reach it.
    pub address: String,
    /// The name under which it serves its namespace.
    pub name: String,
    /// Its labels: see [`check_labels`].
    pub labels: Labels,
    /// The shortest time without a leader before one is elected.
    pub election: Duration,
    /// The engine of topics whose records no group keeps.
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
    /// The number of the topic, which distinguishes topics of the same name.
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
    /// The number of the host's start, and how much of a log stays.
    starts: Starts,
    limits: Limits,
    main: Arc<Group>,
    /// The groups with a replica on this host.
    groups: RwLock<BTreeMap<u32, Arc<Group>>>,
    /// The revision of the directory to which `groups` corresponds.
    arranged: AtomicU64,
    /// Counts changes of subscriptions and feeds in any group.
    revision: AtomicU64,
    inputs: SyncSender<Input>,
    /// Bytes of inputs that the driver has not taken.
    queued: AtomicUsize,
    stopping: AtomicBool,
    /// Whether another host said that this one was removed while it was away.
    told_left: AtomicBool,
    /// Why this host no longer participates in its groups.
    halted: Mutex<Option<Error>>,
    /// When a message of each other host last arrived, and after which silence a leader is reported as doubtful.
    heard: Mutex<HashMap<u64, Instant>>,
    /// When another host last answered the question that is asked of those that send nothing to this one, or was asked for the first time.
    answered: Mutex<HashMap<u64, Instant>>,
    silence: Duration,
    waiters: Mutex<Vec<Waiter>>,
    /// How often the topics have changed.
    changed: (Mutex<u64>, Condvar),
    /// Why a replica that should be here could not be opened.
    unkept: Mutex<BTreeMap<String, Unkept>>,
    /// Why a subscription is stopped.
    troubles: Mutex<HashMap<(String, String), String>>,
    /// Why a feed is stopped.
    feeding: Mutex<HashMap<(String, String), String>>,
    /// How many records had left a log that feeds a topic before they could be published, since this host was started; and the first one behind
    /// those.
    unfed: Mutex<HashMap<(String, String), (u64, u64)>>,
    /// Why a mirror is stopped, by its log and its topic.
    mirroring: Mutex<HashMap<(String, String), String>>,
    /// The engine of topics whose records no group keeps, and the positions of this host's feeds of such topics.
    streams: Option<Arc<dyn Streams>>,
    fed_outside: outside::feed::Feeds,
    /// How many records of a subscription had left the topic before they could be delivered.
    missed: Mutex<HashMap<(String, String), u64>>,
    /// Notifies when steps of objects of user classes are due here.
    ring: Arc<Ring>,
}

/// The reply to a host that joins.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub struct Joined {
    /// The cluster's id.
    pub cluster: String,
    /// The hosts that its group began with.
    pub founders: Vec<u64>,
    /// The current hosts.
    pub members: Vec<KnownMember>,
    /// The cluster whose id the streams of topics in NATS have, if it is another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub streams: String,
}

/// A host's id in its text form.
pub fn shown(host: u64) -> String {
    format!("{host:016x}")
}

/// The error if another topic has the name by now.
fn recreated(topic: &str) -> Error {
    Code::TopicRecreated.error(format!("topic '{topic}' was removed and recreated"))
}

/// Refuses a request that would have to wait for a group without a leader.
fn is_led(group: &Group) -> Result<()> {
    if locked(&group.replica).leader() != 0 {
        return Ok(());
    }
    Err(Code::GroupUnavailable.error(format!("this host knows no leader of group '{}'", group.name)))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Starts this host's part in the cluster of the namespace; `None` if it belongs to none.
    pub fn start(namespace: &Namespace, options: &ClusterOptions, post: Arc<dyn Post>) -> Result<Option<Cluster>> {
        let Some(facts) = Facts::load(namespace)? else { return Ok(None) };
        let starts = facts.note(namespace)?;
        let boot = starts.boot;
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
            starts,
            limits,
            groups: RwLock::new([(MAIN, main.clone())].into()),
            main,
            arranged: AtomicU64::new(0),
            revision: AtomicU64::new(1),
            inputs,
            queued: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            told_left: AtomicBool::new(false),
            halted: Mutex::default(),
            heard: Mutex::default(),
            answered: Mutex::default(),
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
        let driver = Driver::new(shared.clone(), post, tick, received);
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

    /// A message that announces this host's address to a host of the cluster, and the group that it is for; `None` once the cluster knows
    /// the address.
    pub fn announcement(&self) -> Option<(u32, Vec<u8>)> {
        (!self.shared.is_known()).then(|| (driver::HOST, driver::here(&self.shared.member)))
    }

    /// Accepts messages of another host for the replica of a group here.
    pub fn receive(&self, group: u32, messages: Vec<Vec<u8>>) {
        // A message for which there is no room is dropped, and sent again later.
        let _ = self.shared.queue(Input::Messages { group, messages });
    }

    /// Reports that messages to another host were lost.
    pub fn unreachable(&self, host: u64) {
        let _ = self.shared.queue(Input::Unreachable(host));
    }

    /// Ends the participation. Waiters get an error.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // A busy driver sees the flag.
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

    /// Passes an input to the driver, unless too many wait for it.
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

    /// Replies to waiters whose topic of this group has grown, and to those whose timeout is reached.
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

    /// Ends the waiters for topics of a group that was removed before this host knew that its topics were.
    fn forget_waiters(&self, group: u32) {
        let mut waiters = locked(&self.waiters);
        for waiter in waiters.extract_if(.., |waiter| waiter.group == group) {
            (waiter.reply)(Err(Code::TopicNotFound.error(format!("topic '{}' was removed", waiter.topic))));
        }
    }

    /// Records that a message of another host arrived.
    fn heard(&self, host: Option<u64>) {
        if let Some(host) = host {
            locked(&self.heard).insert(host, Instant::now());
        }
    }

    /// Whether a host that sends nothing to this one has not answered for this long.
    fn is_mute(&self, host: u64, long: Duration) -> bool {
        let is_late = locked(&self.answered).get(&host).is_some_and(|answered| answered.elapsed() > long);
        is_late && self.is_silent(host, long)
    }

    /// Whether no message of another host arrived for this long.
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
