//! Sends the messages of groups to other hosts, and lets a host join.
//!
//! Each other host has a thread here with a connection and a bounded queue. Messages that cannot be sent are dropped: groups repeat the
//! messages that they need. Hosts know each other by the cluster's secret, which opens the channel.

pub mod nats;
pub(crate) mod topics;

use crate::wire::SOFTWARE;
use millrace_client::{Credentials, Options, Place, blocking::Socket};
use millrace_node::{
    Address,
    cluster::{Cluster, Joined, Member, Post},
    secrets::{ClusterSecret, LiveKeys},
};
use millrace_wire::{
    Code, Error, EventId, Result,
    protocol::{Document, Failure, Frame, GroupMessage, GroupMessages, JoinCluster, Message},
};
use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Bytes of messages that wait for one host: beyond that the oldest are dropped.
const QUEUE_MAX_BYTES: usize = 32 << 20;
/// Bytes of one frame, unless one message alone has more.
const FRAME_BYTES: usize = 1 << 20;
/// To find a host, for each of its addresses, and for its first answer.
const CONNECT_MS: u32 = 2_000;
/// How long a host may take nothing before its connection is given up.
const SEND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a host that does not answer is left alone, at first and at most.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 512 << 10;
/// How long an unreachable host is reported.
const TROUBLE_COUNTS: Duration = Duration::from_secs(5);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections to the other hosts of a cluster. Dropping it ends them.
pub struct Peers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    own: u64,
    keys: Arc<LiveKeys>,
    /// The capabilities to present, in this order, and how often they have changed.
    credentials: Mutex<(u64, Vec<Arc<Credentials>>)>,
    stopping: AtomicBool,
    lines: Mutex<HashMap<u64, Arc<Line>>>,
}

/// One other host.
struct Line {
    host: u64,
    address: Mutex<Address>,
    queue: Mutex<Queue>,
    trouble: Mutex<Option<(Instant, String)>>,
    queued: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<(u32, Vec<u8>)>,
    bytes: usize,
}

/// Where a host is, as an address of its namespace.
fn address_of(address: &str, name: &str) -> Result<Address> {
    format!("mr://{address}/{name}").parse()
}

impl Peers {
    /// For this host, which proves itself with this secret, and keeps others with these keys.
    pub fn new(own: u64, secret: &ClusterSecret, keys: &Arc<LiveKeys>) -> Result<Arc<Peers>> {
        let credentials = Mutex::new((0, credentials_of(secret)?));
        let (keys, stopping) = (keys.clone(), AtomicBool::new(false));
        let shared = Shared { own, keys, credentials, stopping, lines: Mutex::default() };
        Ok(Arc::new(Peers { shared: Arc::new(shared), threads: Mutex::default() }))
    }

    /// Says where this host is to a host of the cluster, which may be at another address than before itself, until the cluster knows it.
    /// That host answers to this one and tells the others.
    pub fn seek(&self, at: &str, cluster: &Arc<Cluster>) -> Result<()> {
        let (place, shared, cluster) =
            (Place::from(&at.parse::<Address>()?), self.shared.clone(), Arc::downgrade(cluster));
        let builder = thread::Builder::new().name("millrace-seek".into()).stack_size(STACK_BYTES);
        let failed = |error| Code::HostStart.error(format!("a thread could not be started: {error}"));
        let thread = millrace_threads::spawn(builder, move || seek(&shared, &place, &cluster)).map_err(failed)?;
        locked(&self.threads).push(thread);
        Ok(())
    }

    /// Ends the connections.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for line in locked(&self.shared.lines).values() {
            let _queue = locked(&line.queue);
            line.queued.notify_all();
        }
        for thread in locked(&self.threads).drain(..) {
            millrace_threads::join(thread);
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Post for Peers {
    fn send(&self, to: u64, group: u32, message: Vec<u8>) {
        let Some(line) = locked(&self.shared.lines).get(&to).cloned() else { return };
        let mut queue = locked(&line.queue);
        queue.bytes += message.len();
        queue.messages.push_back((group, message));
        while queue.bytes > QUEUE_MAX_BYTES && queue.messages.len() > 1 {
            queue.bytes -= queue.messages.pop_front().map_or(0, |(_, message)| message.len());
        }
        line.queued.notify_one();
    }

    fn trouble(&self, host: u64) -> Option<String> {
        let line = locked(&self.shared.lines).get(&host).cloned()?;
        let trouble = locked(&line.trouble).clone();
        // A host without pending messages is not tried again, and may be well.
        trouble.filter(|(tried, _)| tried.elapsed() < TROUBLE_COUNTS).map(|(_, trouble)| trouble)
    }

    fn secret(&self) -> Option<Arc<ClusterSecret>> {
        self.shared.keys.cluster()
    }

    fn change_secret(&self, secret: ClusterSecret) -> Result<()> {
        let credentials = credentials_of(&secret)?;
        self.shared.keys.change_cluster(Arc::new(secret))?;
        let mut known = locked(&self.shared.credentials);
        *known = (known.0 + 1, credentials);
        Ok(())
    }

    fn members(&self, members: &[Member]) {
        for member in members.iter().filter(|member| member.id != self.shared.own) {
            // A host with an invalid answer counts as unreachable.
            let Ok(address) = address_of(&member.address, &member.name) else { continue };
            let mut lines = locked(&self.shared.lines);
            if let Some(line) = lines.get(&member.id) {
                *locked(&line.address) = address;
                continue;
            }
            if self.shared.stopping.load(Ordering::Relaxed) {
                return;
            }
            let (address, queue, trouble, queued) =
                (Mutex::new(address), Mutex::default(), Mutex::default(), Condvar::new());
            let line = Arc::new(Line { host: member.id, address, queue, trouble, queued });
            let (shared, of_thread) = (self.shared.clone(), line.clone());
            let builder = thread::Builder::new().name("millrace-peer".into()).stack_size(STACK_BYTES);
            // Without a thread the host is not reached; it is tried again with the next change.
            if let Ok(thread) = millrace_threads::spawn(builder, move || of_thread.run(&shared)) {
                lines.insert(member.id, line);
                locked(&self.threads).push(thread);
            }
        }
    }
}

fn credentials_of(secret: &ClusterSecret) -> Result<Vec<Arc<Credentials>>> {
    Ok(secret.tokens()?.into_iter().map(Credentials::of).map(Arc::new).collect())
}

/// Whether a host does not accept a capability of the cluster.
fn is_refused(error: &Error) -> bool {
    matches!(error.code(), Code::ChannelRefused | Code::CapabilityRefused)
}

impl Shared {
    /// Connects with the first capability that the other host accepts: it may have changed to the next secret already.
    fn connect(self: &Arc<Self>, place: &Place) -> Result<Socket> {
        let all = locked(&self.credentials).1.clone();
        let mut refused = None;
        for credentials in all {
            match Socket::connect(place, &self.options(credentials)) {
                Err(error) if is_refused(&error) => refused = refused.or(Some(error)),
                connected => return connected,
            }
        }
        Err(explained(refused.unwrap_or_else(|| Code::ClusterSecretMissing.error("this host has no secret"))))
    }

    /// How often the secret has changed: connections with an earlier one end.
    fn version(&self) -> u64 {
        locked(&self.credentials).0
    }

    fn options(self: &Arc<Self>, credentials: Arc<Credentials>) -> Options {
        let shared = self.clone();
        Options {
            connect_timeout_ms: CONNECT_MS,
            request_timeout_ms: 0, // nothing is answered
            name: SOFTWARE.into(),
            interrupted: Some(Arc::new(move || shared.stopping.load(Ordering::Relaxed))),
            credentials: Some(credentials),
            ..Options::default()
        }
    }
}

impl Line {
    fn run(&self, shared: &Arc<Shared>) {
        let (mut socket, mut pause): (Option<(Address, u64, Socket)>, _) = (None, PAUSE_FIRST);
        let mut refused = false;
        while let Some(messages) = self.next(shared) {
            let (address, version) = (locked(&self.address).clone(), shared.version());
            let is_stale = |(at, of, socket): &mut (Address, u64, Socket)| {
                *at != address || *of != version || !socket.seems_alive()
            };
            if socket.as_mut().is_some_and(is_stale) {
                socket = None;
            }
            let connected = match socket.take() {
                Some((_, _, socket)) => Ok(socket),
                None => shared.connect(&Place::from(&address)),
            };
            match connected.and_then(|mut socket| send(&mut socket, &messages).map(|()| socket)) {
                Ok(sent) => {
                    (socket, pause, refused) = (Some((address, version, sent)), PAUSE_FIRST, false);
                    *locked(&self.trouble) = None;
                }
                Err(error) => {
                    let (host, code) = (format!("{:016x}", self.host), error.code().id());
                    if error.code() == Code::ClusterSecretRefused && !mem::replace(&mut refused, true) {
                        tracing::warn!(target: "topics", host, code, "{}", error.detail());
                    }
                    tracing::info!(target: "topics", host, code, "not reached: {}", error.detail());
                    *locked(&self.trouble) = Some((Instant::now(), format!("{code}: {}", error.detail())));
                    self.rest(shared, pause);
                    pause = (pause * 2).min(PAUSE_MOST);
                }
            }
        }
    }

    /// The next messages to send; nothing once this stops.
    fn next(&self, shared: &Shared) -> Option<Vec<(u32, Vec<u8>)>> {
        let mut queue = locked(&self.queue);
        while queue.messages.is_empty() {
            if shared.stopping.load(Ordering::Relaxed) {
                return None;
            }
            queue = self.queued.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if shared.stopping.load(Ordering::Relaxed) {
            return None;
        }
        queue.bytes = 0;
        Some(mem::take(&mut queue.messages).into())
    }

    /// Sends nothing to a host that does not answer, and drops the messages that are queued for it meanwhile.
    fn rest(&self, shared: &Shared, time: Duration) {
        let until = Instant::now() + time;
        let mut queue = locked(&self.queue);
        while !shared.stopping.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue = self.queued.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *queue = Queue::default();
    }
}

/// A host of the cluster that refuses this one's capability has another secret by now.
fn explained(error: Error) -> Error {
    if !is_refused(&error) {
        return error;
    }
    let detail = "the other host does not accept the secret of this host: the cluster's secret was changed, or the cluster was recovered \
                  from another host";
    Code::ClusterSecretRefused.error(detail)
}

/// The pauses are short for the sake of a host that stops.
fn seek(shared: &Arc<Shared>, place: &Place, cluster: &Weak<Cluster>) {
    let mut socket = None;
    while !shared.stopping.load(Ordering::Relaxed) {
        let Some(message) = cluster.upgrade().and_then(|cluster| cluster.announcement()) else { return };
        let mut connected = match socket.take() {
            Some(socket) => Ok(socket),
            None => shared.connect(place),
        };
        let sent = connected.as_mut().map_err(|error| error.clone()).and_then(|socket| send(socket, &[message]));
        match sent {
            Ok(()) => socket = connected.ok(),
            Err(error) => {
                let code = error.code().id();
                tracing::info!(target: "topics", code, "the host named with --join cannot be reached: {}", error.detail());
            }
        }
        thread::sleep(PAUSE_MOST / 4);
    }
}

fn send(socket: &mut Socket, messages: &[(u32, Vec<u8>)]) -> Result<()> {
    let mut rest = messages;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |(_, message): &&(u32, Vec<u8>)| {
            bytes += message.len();
            bytes <= FRAME_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (now, later) = rest.split_at(count);
        let bytes = now.iter().map(|(_, message)| message.len() + 16).sum();
        let messages = now.iter().map(|(group, data)| GroupMessage { group: *group, data }).collect();
        socket.put(&GroupMessages { messages }, bytes, EventId::NONE)?;
        socket.flush(Some(Instant::now() + SEND_PATIENCE))?;
        rest = later;
    }
    Ok(())
}

/// Asks a host of the cluster to accept this one. A host that does not answer is asked again until `patience` is over; `waits` gets the reason
/// each time.
pub fn join(
    at: &str,
    secret: &ClusterSecret,
    own: &Member,
    patience: Duration,
    waits: &mut dyn FnMut(&Error),
) -> Result<Joined> {
    let until = Instant::now() + patience;
    loop {
        let error = match ask(at, secret, own, until) {
            Ok(joined) => return Ok(joined),
            Err(error) => error,
        };
        match error.code() {
            Code::CapabilityRefused | Code::CapabilityDenied | Code::ChannelRefused => {
                return Err(Code::ClusterSecretWrong.error(format!("{at}: {}", error.detail())));
            }
            Code::AddressInvalid | Code::NameInvalid | Code::ClusterExists => return Err(error),
            // Also NotInCluster: a host that accepts the cluster's secret belongs to the cluster, and is still starting.
            _ if Instant::now() < until => {
                waits(&error);
                thread::sleep(PAUSE_MOST / 4);
            }
            _ => return Err(Code::JoinFailed.error(format!("{at}: {}: {}", error.code().id(), error.detail()))),
        }
    }
}

fn ask(at: &str, secret: &ClusterSecret, own: &Member, until: Instant) -> Result<Joined> {
    let address: Address = at.parse()?;
    let credentials = credentials_of(secret)?.into_iter().next();
    let options = Options { connect_timeout_ms: CONNECT_MS, name: SOFTWARE.into(), credentials, ..Options::default() };
    let mut socket = Socket::connect(&Place::from(&address), &options)?;
    let Member { id, address, name, site } = own;
    socket.put(&JoinCluster { host: *id, address, name, site }, address.len(), EventId::NONE)?;
    socket.flush(Some(until))?;
    let take = |frame: &Frame<'_>| {
        if frame.kind == Failure::TYPE {
            let reported: Failure<'_> = frame.message()?;
            let code = Code::from_id(reported.code).unwrap_or(Code::HostCodeUnknown);
            return Err(code.error(reported.detail));
        }
        let document: Document<'_> = frame.message()?;
        serde_json::from_str(document.json)
            .map_err(|error| Code::DocumentUnknown.error(format!("the cluster's answer to joining: {error}")))
    };
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
    socket.next(left, take)?.ok_or_else(|| Code::RequestTimeout.error("the cluster did not decide in time"))
}
