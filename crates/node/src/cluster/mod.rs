//! A host's part in its cluster: its replica of the group, and the functions that run for topics here.
//!
//! ```text
//!  gateway ──> Cluster ──> driver: one thread   Replica ──turn──> Store (the namespace's journal), one flush ──> Post ──> other hosts
//!                 │                                │ applied
//!                 └── get, range: journal          └──> deliver: one thread   records and their runs, in one batch with the cursor
//! ```
//!
//! The network is an implementation of [`Post`]. Messages of other hosts go to [`Cluster::receive`].

mod deliver;
mod driver;
mod facts;
mod feed;
mod store;
#[cfg(test)]
mod tests;

pub use facts::{Facts, KnownMember};
pub use millrace_group::{Member, Role};

use crate::{Namespace, Record};
use driver::{Driver, Goal, Input};
use millrace_group::{Action, Limits, Options, Replica, Topic, check_topic};
use millrace_namespace::{keys::KEY_MAX_BYTES, names::check_public};
use millrace_wire::{Code, Error, EventId, Result};
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use store::{AROUND_MAX_BYTES, PROPOSE_HEAD_BYTES, Store};

/// The one group of a cluster.
pub const GROUP: u32 = 1;
/// A host that lacks more entries than this is told of.
const BEHIND_MAX: u64 = 10_000;
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

/// Hears what became of a request.
pub type Reply<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// What carries messages to other hosts. What it cannot carry it may drop.
pub trait Post: Send + Sync {
    /// Takes a message for the replica of a group on another host.
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
    /// The shortest time without a leader before one is elected.
    pub election: Duration,
}

/// A host's part in its cluster. Dropping it ends it.
pub struct Cluster {
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// Who waits for a topic to have more than so many records, and until when.
struct Waiter {
    topic: String,
    above: u64,
    until: Instant,
    reply: Reply<u64>,
}

struct Shared {
    namespace: Namespace,
    post: Arc<dyn Post>,
    facts: Facts,
    member: Member,
    store: Store,
    replica: Mutex<Replica>,
    inputs: SyncSender<Input>,
    /// Bytes of inputs that the driver has not taken.
    queued: AtomicUsize,
    stopping: AtomicBool,
    waiters: Mutex<Vec<Waiter>>,
    /// How often the topics have changed.
    changed: (Mutex<u64>, Condvar),
    /// Why a subscription does not go on.
    troubles: Mutex<HashMap<(String, String), String>>,
    /// Why a feed does not go on.
    feeding: Mutex<HashMap<(String, String), String>>,
    /// How many records of a subscription had left the topic before they could be delivered.
    missed: Mutex<HashMap<(String, String), u64>>,
}

/// A topic as it is told.
#[derive(Clone, Debug, Serialize)]
pub struct TopicStat {
    /// Its name.
    pub topic: String,
    /// The group that keeps it.
    pub group: u32,
    /// How many of its newest records can be read.
    #[serde(with = "millrace_wire::history")]
    pub history: u64,
    /// The oldest that can be read.
    pub earliest: u64,
    /// The newest.
    pub latest: u64,
    /// Who runs for its records.
    pub subscriptions: Vec<SubscriptionStat>,
    /// Logs that feed it.
    pub feeds: Vec<FeedStat>,
}

/// A log that feeds a topic, as it is told.
#[derive(Clone, Debug, Serialize)]
pub struct FeedStat {
    /// The log.
    pub log: String,
    /// The host that has it.
    pub host: String,
    /// Its last record that was published.
    pub published: u64,
    /// Why it does not go on; told by the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A subscription as it is told.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionStat {
    /// The function.
    pub function: String,
    /// The host that runs it.
    pub host: String,
    /// Records that have left the topic before this host could run the function for them; told by the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// Why it does not go on; told by the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A host of the cluster as it is told.
#[derive(Clone, Debug, Serialize)]
pub struct HostStat {
    /// Its id.
    pub host: String,
    /// Where it is reached.
    pub address: String,
    /// The name of its namespace.
    pub name: String,
    /// Its site.
    pub site: String,
    /// `leader`, `voter` or `learner`.
    pub role: &'static str,
    /// Whether it is the one that was asked.
    pub here: bool,
    /// How many entries it lacks, as the leader knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Why the host that was asked could not reach it when it last tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The cluster as one host sees it.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStat {
    /// The cluster's id.
    pub cluster: String,
    /// The group.
    pub group: u32,
    /// The group's term.
    pub term: u64,
    /// Who leads it, if that is known.
    pub leader: Option<String>,
    /// The site whose hosts lead whenever they can.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred: String,
    /// What the host that was asked is.
    pub role: &'static str,
    /// The first entry that the log of this host still has.
    pub first: u64,
    /// About how many bytes its log has.
    pub log_bytes: u64,
    /// How many times this host, since it was started, went on behind a snapshot of another one.
    pub snapshots: u64,
    /// The last entry that was applied here.
    pub applied: u64,
    /// The last that is known here to be committed.
    pub committed: u64,
    /// The last.
    pub last: u64,
    /// The hosts.
    pub hosts: Vec<HostStat>,
    /// What is not as it should be, in sentences.
    pub why: Vec<String>,
}

/// What a host is told that joins.
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "voter",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
    }
}

impl Cluster {
    /// Takes part in the cluster that the namespace belongs to; nothing if it belongs to none.
    pub fn start(namespace: &Namespace, options: &ClusterOptions, post: Arc<dyn Post>) -> Result<Option<Cluster>> {
        let Some(facts) = Facts::load(namespace)? else { return Ok(None) };
        let boot = facts.note(namespace)?;
        let store = Store::open(namespace, GROUP)?;
        let recovered = store.recover(facts.founders.clone())?;
        let founders = facts.founders.clone();
        let entry_max_bytes = namespace.journal().record_max_bytes().saturating_sub(PROPOSE_HEAD_BYTES);
        let limits = Limits { entry_max_bytes, ..Limits::default() };
        let raft = Options { id: facts.host, boot, founders, seed: Facts::seed()?, voters_max: VOTERS_MAX, limits };
        let replica = Mutex::new(Replica::new(raft, recovered)?);
        let (inputs, received) = sync_channel(INPUTS_MAX);
        let ClusterOptions { address, name, election } = options;
        let (address, name, site) = (address.clone(), name.clone(), facts.site.clone());
        let member = Member { id: facts.host, address, name, site };
        let known: Vec<Member> = facts.members.iter().cloned().map(Member::from).collect();
        post.members(&known);
        let shared = Arc::new(Shared {
            namespace: namespace.clone(),
            post: post.clone(),
            facts,
            member,
            store,
            replica,
            inputs,
            queued: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            waiters: Mutex::default(),
            changed: Default::default(),
            troubles: Mutex::default(),
            feeding: Mutex::default(),
            missed: Mutex::default(),
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

    /// Takes messages of another host for the replica of a group here.
    pub fn receive(&self, group: u32, messages: Vec<Vec<u8>>) {
        if group == GROUP {
            // Whatever there is no room for is lost, and sent again.
            let _ = self.shared.queue(Input::Messages(messages));
        }
    }

    /// Says that messages to another host were lost.
    pub fn unreachable(&self, host: u64) {
        let _ = self.shared.queue(Input::Unreachable(host));
    }

    fn ask(&self, input: Input) {
        if let Err(refused) = self.shared.queue(input) {
            let (input, error) = *refused;
            input.refuse(error);
        }
    }

    /// Makes a topic.
    pub fn create(&self, topic: &str, history: u64, reply: Reply<()>) {
        let action = Action::Create { topic: topic.to_owned(), history };
        self.submit(check_topic(topic).map(|()| action), Vec::new(), done(reply));
    }

    /// Publishes a record: the reply has its index, once a majority of the group's disks have it. A record with a key that the topic
    /// remembers is there already.
    pub fn publish(&self, topic: &str, data: &[u8], key: Option<&str>, reply: Reply<u64>) {
        let most = self.shared.namespace.journal().record_max_bytes().saturating_sub(AROUND_MAX_BYTES);
        let action = check_topic(topic).and_then(|()| {
            if data.len() > most {
                return Err(Code::RecordTooLong.error(format!("{} bytes; a topic takes {most} here", data.len())));
            }
            if let Some(key) = key.filter(|key| key.is_empty() || key.len() > KEY_MAX_BYTES) {
                return Err(
                    Code::ValueInvalid.error(format!("a key of {} bytes; it has 1 to {KEY_MAX_BYTES}", key.len()))
                );
            }
            Ok(Action::Publish { topic: topic.to_owned(), key: key.map(str::to_owned) })
        });
        self.submit(action, data.to_vec(), reply);
    }

    /// Has a function of this host's namespace run for every record of a topic from now on.
    pub fn subscribe(&self, topic: &str, function: &str, reply: Reply<()>) {
        let exists = deliver::logs(topic, function).and_then(|_| self.shared.namespace.bindings()).and_then(|_| {
            let catalog = self.shared.namespace.journal().catalog()?;
            catalog.function(function).map(drop).ok_or_else(|| millrace_namespace::no_function(function))
        });
        let (topic, function, host) = (topic.to_owned(), function.to_owned(), self.host());
        self.submit(exists.map(|()| Action::Subscribe { topic, function, host }), Vec::new(), done(reply));
    }

    /// Has the records of a log of this host's namespace published to a topic from now on.
    pub fn feed(&self, topic: &str, log: &str, reply: Reply<()>) {
        let checked = check_topic(topic).and_then(|()| check_public(log));
        let found = checked.and_then(|()| self.shared.namespace.log(log));
        let action = found.map(|found| {
            let (topic, log, host) = (topic.to_owned(), log.to_owned(), self.host());
            Action::Feed { topic, host, log, after: found.latest() }
        });
        self.submit(action, Vec::new(), done(reply));
    }

    /// Ends that.
    pub fn unfeed(&self, topic: &str, log: &str, reply: Reply<()>) {
        let (topic, log, host) = (topic.to_owned(), log.to_owned(), self.host());
        self.submit(Ok(Action::Unfeed { topic, host, log }), Vec::new(), done(reply));
    }

    /// Has a host lead the group.
    pub fn lead(&self, host: u64, reply: Reply<()>) {
        self.ask(Input::Pursue { goal: Goal::Led(host), reply });
    }

    /// Has hosts at a site lead whenever they can; with an empty name, any may.
    pub fn prefer(&self, site: &str, reply: Reply<()>) {
        self.submit(Ok(Action::Prefer { site: site.to_owned() }), Vec::new(), done(reply));
    }

    /// Has so many hosts vote: 1, 3 or 5.
    pub fn set_voters(&self, count: u64, reply: Reply<()>) {
        self.submit(Ok(Action::Voters { count }), Vec::new(), done(reply));
    }

    /// Has a host leave the cluster.
    pub fn remove(&self, host: u64, reply: Reply<()>) {
        self.ask(Input::Pursue { goal: Goal::Removed(host), reply });
    }

    /// Ends that.
    pub fn unsubscribe(&self, topic: &str, function: &str, reply: Reply<()>) {
        let (topic, function, host) = (topic.to_owned(), function.to_owned(), self.host());
        self.submit(Ok(Action::Unsubscribe { topic, function, host }), Vec::new(), done(reply));
    }

    fn submit(&self, action: Result<Action>, data: Vec<u8>, reply: Reply<u64>) {
        match action {
            Ok(action) => self.ask(Input::Submit { action, data, reply }),
            Err(error) => reply(Err(error)),
        }
    }

    /// Waits until what is read of the topics here is what they were when this was called, or newer.
    pub fn fresh(&self, reply: Reply<()>) {
        self.ask(Input::Read { reply });
    }

    /// Makes a host a replica of the group; the reply says what it has to know.
    pub fn join(&self, member: Member, reply: Reply<Joined>) {
        let shared = self.shared.clone();
        let told = Box::new(move |added: Result<()>| {
            reply(added.map(|()| {
                let replica = locked(&shared.replica);
                let mut members: Vec<KnownMember> = replica.topics().members().map(KnownMember::from).collect();
                if members.iter().all(|known| known.id != shared.member.id) {
                    members.push(KnownMember::from(&shared.member));
                }
                Joined { cluster: shared.facts.cluster.clone(), founders: shared.facts.founders.clone(), members }
            }));
        });
        self.ask(Input::Pursue { goal: Goal::Added(member), reply: told });
    }

    /// A record of a topic, 0 for the newest, as far as this host knows.
    pub fn get(&self, topic: &str, index: u64) -> Result<Record> {
        let mut before = None;
        loop {
            let (index, place) = {
                let replica = locked(&self.shared.replica);
                let found = replica.topics().topic(topic)?;
                let index = if index == 0 { found.latest.max(1) } else { index };
                let entry = found.entry(topic, index)?;
                (index, replica.place(entry).ok_or_else(|| is_gone(topic, index))?)
            };
            match self.shared.store.record(place) {
                Ok((meta, payload)) => {
                    return Ok(Record { seqno: index, id: meta.id, hlc: meta.hlc, cause: EventId::NONE, payload });
                }
                // The log was trimmed just now, and the record stands elsewhere.
                Err(error) if error.code() == Code::BelowHistory && before != Some(place) => before = Some(place),
                Err(error) => return Err(error),
            }
        }
    }

    /// At most `count` records of a topic from `from` on, and at most `bytes_max` bytes unless the first alone has more.
    pub fn range(&self, topic: &str, from: u64, count: u32, bytes_max: usize) -> Result<Vec<Record>> {
        if from == 0 {
            return Err(Code::SeqnoInvalid.error(format!("0 names no record of topic '{topic}'")));
        }
        let latest = self.latest(topic)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for index in from..from.saturating_add(u64::from(count)).min(latest + 1) {
            let record = self.get(topic, index)?;
            bytes += record.payload.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            records.push(record);
        }
        Ok(records)
    }

    /// The index of a topic's newest record, as far as this host knows; 0 if there is none.
    pub fn latest(&self, topic: &str) -> Result<u64> {
        locked(&self.shared.replica).topics().topic(topic).map(|topic| topic.latest)
    }

    /// Replies once a topic has more records than `above`, or soon after so much time: at most [`GROWTH_MAX`].
    pub fn growth(&self, topic: &str, above: u64, within: Duration, reply: Reply<u64>) {
        let replica = locked(&self.shared.replica);
        match replica.topics().topic(topic).map(|topic| topic.latest) {
            Ok(latest) if latest <= above => {
                let (topic, until) = (topic.to_owned(), Instant::now() + within.min(GROWTH_MAX));
                let mut waiters = locked(&self.shared.waiters);
                if waiters.len() >= WAITERS_MAX {
                    return reply(Err(Code::GroupBusy.error(format!("{WAITERS_MAX} callers wait for topics"))));
                }
                waiters.push(Waiter { topic, above, until, reply });
            }
            found => reply(found),
        }
    }

    /// The topics, by name, behind this one.
    pub fn topics(&self, after: &str, limit: usize) -> Vec<TopicStat> {
        let replica = locked(&self.shared.replica);
        let all = replica.topics().all().filter(|(name, _)| after.is_empty() || *name > after);
        all.take(limit).map(|(name, topic)| self.shared.stat(name, topic)).collect()
    }

    /// The cluster as this host sees it.
    pub fn stat(&self) -> ClusterStat {
        let replica = locked(&self.shared.replica);
        let (applied, committed, last) = replica.progress();
        let (first, log_bytes) = replica.log_size();
        let (leader, own) = (replica.leader(), self.host());
        let (voters, learners) = replica.replicas();
        let host = |id: u64, votes: bool| {
            let known = replica.topics().member(id).cloned();
            let told = self.shared.facts.members.iter().find(|known| known.id == id).cloned().map(Member::from);
            let own = (id == own).then(|| self.shared.member.clone());
            let Member { address, name, site, .. } = own.or(known).or(told).unwrap_or_default();
            let role = if id == leader {
                "leader"
            } else if votes {
                "voter"
            } else {
                "learner"
            };
            let behind = replica.matched(id).map(|matched| last.saturating_sub(matched));
            HostStat {
                host: shown(id),
                address,
                name,
                site,
                role,
                here: id == self.host(),
                behind,
                trouble: self.shared.post.trouble(id),
            }
        };
        let hosts = voters.iter().map(|id| host(*id, true)).chain(learners.iter().map(|id| host(*id, false)));
        let mut hosts: Vec<HostStat> = hosts.collect();
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let mut why = self.why(leader != 0, replica.voters_wanted(), &hosts);
        let too_long = replica.too_long_bytes();
        if too_long > 0 {
            why.push(format!(
                "another host sent an entry of {too_long} bytes, and the segments of this namespace take less: it is passed over here"
            ));
        }
        ClusterStat {
            cluster: self.id().to_owned(),
            group: GROUP,
            term: replica.term(),
            leader: (leader != 0).then(|| shown(leader)),
            preferred: replica.topics().preferred().to_owned(),
            role: role_word(replica.role()),
            first,
            log_bytes,
            snapshots: replica.received(),
            applied,
            committed,
            last,
            hosts,
            why,
        }
    }

    /// What is not as it should be.
    fn why(&self, is_led: bool, wanted: usize, hosts: &[HostStat]) -> Vec<String> {
        let mut why = Vec::new();
        let voters = hosts.iter().filter(|host| host.role != "learner").count();
        if !is_led {
            let needed = voters / 2 + 1;
            why.push(format!(
                "the group has no leader that this host hears of: {needed} of {voters} voters are needed"
            ));
        }
        for host in hosts {
            if let Some(trouble) = &host.trouble {
                why.push(format!("host {} at {} cannot be reached from here: {trouble}", host.name, host.address));
            }
            if let Some(behind) = host.behind.filter(|behind| *behind > BEHIND_MAX) {
                why.push(format!("host {} at {} lacks {behind} entries", host.name, host.address));
            }
        }
        if voters < wanted {
            let lost = voters.saturating_sub(1) / 2;
            why.push(format!("{voters} hosts vote, so {lost} may be lost; {wanted} are to vote"));
        }
        for ((topic, function), trouble) in &*locked(&self.shared.troubles) {
            why.push(format!("function {function} does not run for topic {topic} here: {trouble}"));
        }
        for ((topic, function), missed) in locked(&self.shared.missed).iter().filter(|(_, missed)| **missed > 0) {
            why.push(format!(
                "{missed} records had left topic {topic} before function {function} could run for them here"
            ));
        }
        for ((topic, log), trouble) in &*locked(&self.shared.feeding) {
            why.push(format!("log {log} here does not feed topic {topic}: {trouble}"));
        }
        why
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn stat(&self, name: &str, topic: &Topic) -> TopicStat {
        let subscription = |known: &millrace_group::Subscription| {
            let (key, here) = ((name.to_owned(), known.function.clone()), known.host == self.facts.host);
            SubscriptionStat {
                function: known.function.clone(),
                host: shown(known.host),
                missed: here.then(|| locked(&self.missed).get(&key).copied()).flatten().filter(|missed| *missed > 0),
                trouble: here.then(|| locked(&self.troubles).get(&key).cloned()).flatten(),
            }
        };
        let feed = |known: &millrace_group::Feed| {
            let key = (name.to_owned(), known.log.clone());
            let trouble = (known.host == self.facts.host).then(|| locked(&self.feeding).get(&key).cloned()).flatten();
            FeedStat { log: known.log.clone(), host: shown(known.host), published: known.last, trouble }
        };
        TopicStat {
            topic: name.to_owned(),
            group: GROUP,
            history: topic.history,
            earliest: topic.earliest(),
            latest: topic.latest,
            subscriptions: topic.subscriptions.iter().map(subscription).collect(),
            feeds: topic.feeds.iter().map(feed).collect(),
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
                Err(TrySendError::Disconnected(input)) => (input, Code::HostStopping.error("the host is stopping")),
            }
        };
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        Err(Box::new((input, error)))
    }

    /// Replies to those whose topic has grown, and to those whose time is over.
    fn answer(&self, replica: &Replica) {
        let now = Instant::now();
        let mut waiters = locked(&self.waiters);
        let mut at = 0;
        while at < waiters.len() {
            let found = replica.topics().topic(&waiters[at].topic).map(|topic| topic.latest);
            match found {
                Ok(latest) if latest <= waiters[at].above && now < waiters[at].until => at += 1,
                found => (waiters.swap_remove(at).reply)(found),
            }
        }
    }

    /// The topics have changed: wakes the waiters.
    fn told(&self, replica: &Replica) {
        self.answer(replica);
        *locked(&self.changed.0) += 1;
        self.changed.1.notify_all();
    }
}

fn done(reply: Reply<()>) -> Reply<u64> {
    Box::new(move |outcome| reply(outcome.map(drop)))
}

impl Cluster {
    /// Takes no further part. Waiters get an error.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // A driver that has much to do sees the flag.
        let _ = self.shared.inputs.try_send(Input::Stop);
        self.shared.namespace.journal().wake();
        *locked(&self.shared.changed.0) += 1;
        self.shared.changed.1.notify_all();
        for thread in locked(&self.threads).drain(..) {
            // It only panics if there is a mistake in it, which it has printed.
            let _ = thread.join();
        }
        locked(&self.shared.waiters).clear();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}
