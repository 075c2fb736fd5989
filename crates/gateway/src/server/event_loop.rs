//! One event loop: a thread, and the connections it was given.

use super::{
    ServerOptions, channel,
    protocol::{First, Protocols, Speaking},
    stream::{Rewound, Stream, linger},
    tasks, tls,
    wake_list::WakeList,
};
use crate::{
    Hosted,
    admission::{Identity, LocalPeers},
    patience,
    silence::Silence,
    turns::{self, Turns},
    unknown::{Unknown, Unknowns, unless_room_is_needed},
};
use millrace_security::channel::{MAGIC, refusal};
use millrace_threads::{Watched, watch_me};
use millrace_wire::{Code, Defence, Error, Result};
use rustls::ServerConfig;
use std::{
    cell::Cell,
    io,
    net::TcpListener as StdTcpListener,
    os::unix::net::UnixListener as StdUnixListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixListener},
    runtime::{self, Builder},
    sync::{Notify, Semaphore, mpsc},
    time::{sleep, timeout},
};

/// After an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Threads of a loop for what takes longer. Only some of them are for what may take very long: see `Hosted::slow`.
const BLOCKING_THREADS: usize = 8;
/// Accepted connections that a loop has not taken yet.
pub(super) const QUEUE: usize = 1024;
/// An accepted connection waits so long for a place among them.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);
/// So many connections may be open beyond the bound, while silent ones that make room for them close.
const ROOM_MAKING: usize = 128;
/// This part of the connections is for the owner.
const OWNERS_PART: usize = 8;
/// After this number of connections the limit is computed again.
const LOOK_EVERY: u64 = 64;
/// Connections beyond the limit are refused in their protocol: this many at once, each within this time.
const REFUSING_MAX: usize = 256;
const REFUSING_PATIENCE: Duration = Duration::from_secs(4);
/// A handshake of TLS or of the channel takes no longer.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number at once; beyond it, the one that has taken longest is ended.
pub(super) const HANDSHAKES_MAX: usize = 256;
/// An idle TCP connection is probed after this time, and ended after so many probes without an answer: a device that lost its power counts as connected for at
/// most two minutes.
const KEEPALIVE: Duration = Duration::from_secs(60);
const PROBES: u32 = 4;
const PROBE_EVERY: Duration = Duration::from_secs(15);

thread_local! {
    /// Of a thread that the runtime starts and ends.
    static WATCHED: Cell<Option<Watched>> = const { Cell::new(None) };
}

/// The state that the loops of a server share.
pub(super) struct Shared {
    pub hosted: Arc<Hosted>,
    pub stopping: Arc<Notify>,
    protocols: Protocols,
    /// How TLS is spoken, if it is.
    tls: Option<Arc<ServerConfig>>,
    /// As many as were asked for, or as there are files for.
    connections_max: AtomicUsize,
    connections_wanted: usize,
    refusing: Arc<Semaphore>,
    /// Unauthenticated connections, and their maximum number.
    pub unknown: Arc<Unknowns>,
    /// The second, since the host started, in which a refusal was logged last.
    told_s: AtomicU64,
    /// Those who shake hands.
    pub shaking: Silence,
    /// Connections that are to be refused and have not identified their protocol yet.
    refused: Silence,
    stopped: AtomicBool,
    turns: Arc<Turns>,
}

impl Shared {
    pub fn new(
        hosted: Arc<Hosted>,
        protocols: Protocols,
        tls: Option<Arc<ServerConfig>>,
        options: &ServerOptions,
    ) -> Self {
        let connections_max = options.connections_max;
        Self {
            unknown: Unknowns::new(options.unknown_max),
            told_s: AtomicU64::new(u64::MAX),
            hosted,
            stopping: Arc::default(),
            protocols,
            tls,
            connections_max: connections_max.into(),
            connections_wanted: connections_max,
            refusing: Arc::new(Semaphore::new(REFUSING_MAX)),
            shaking: Silence::default(),
            refused: Silence::default(),
            stopped: AtomicBool::new(false),
            turns: Arc::new(Turns::new(options.loops)),
        }
    }

    /// The action of loop `number` before it sleeps: flushes for all values at the gates.
    ///
    /// A loop with a single connection delays no other client and flushes by itself, which saves two wake-ups.
    fn turn(&self, number: usize, load: &AtomicUsize) {
        match self.turns.may_wait(number, load, false) {
            Some(_waiting) => self.hosted.turn_alone(),
            None => self.hosted.turn(),
        }
    }

    /// The first bytes of a connection; nothing if the host stops, or none come in time.
    async fn first(&self, stream: &mut Stream, unknown: Option<Arc<Unknown>>) -> Result<Option<First>> {
        let mut first = First::default();
        let read = tokio::select! {
            () = self.stopped() => return Ok(None),
            read = unless_room_is_needed(
                unknown,
                self.hosted.silence.until(timeout(patience::client(), stream.read_exact(&mut first))),
            ) => read,
        };
        match read.flatten() {
            Some(Ok(Ok(_))) => Ok(Some(first)),
            Some(Ok(Err(error))) => Err(broken(error)),
            _ => {
                self.count_dropped();
                Ok(None)
            }
        }
    }

    /// Resolves once the server stops, or at once if it is stopping already.
    async fn stopped(&self) {
        let stopping = self.stopping.notified();
        if !self.hosted.is_draining() {
            stopping.await;
        }
    }

    pub fn open(&self) -> usize {
        self.hosted.counters.connections.load(Ordering::Relaxed)
    }
}

enum Incoming {
    /// With the name of the listener, if the listener is for one protocol.
    Tcp(std::net::TcpStream, Identity, Option<&'static str>),
    Unix(std::os::unix::net::UnixStream, Identity),
}

impl Incoming {
    /// A new connection.
    fn identity(&mut self) -> &mut Identity {
        match self {
            Incoming::Tcp(_, identity, _) | Incoming::Unix(_, identity) => identity,
        }
    }

    /// How it came.
    fn way(&self) -> &'static str {
        match self {
            Incoming::Tcp(..) => "tcp",
            Incoming::Unix(..) => "unix",
        }
    }
}

/// The queue of new connections of a loop, and its number of connections.
#[derive(Clone)]
pub(super) struct Handle {
    incoming: mpsc::Sender<Incoming>,
    load: Arc<AtomicUsize>,
}

pub(super) struct EventLoop {
    handle: Handle,
    runtime: runtime::Handle,
    stop: Arc<Notify>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl EventLoop {
    pub fn start(number: usize, name: String, shared: Arc<Shared>) -> io::Result<EventLoop> {
        let (incoming, queue) = mpsc::channel(QUEUE);
        let handle = Handle { incoming, load: Arc::default() };
        let stop = Arc::new(Notify::new());
        let (of_turn, load) = (shared.clone(), handle.load.clone());
        let turn = move || of_turn.turn(number, &load);
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(BLOCKING_THREADS)
            .on_thread_park(turn)
            // These are the threads that answer what takes longer.
            .on_thread_start(|| WATCHED.set(watch_me().ok()))
            .on_thread_stop(|| drop(WATCHED.take()))
            .build()?;
        let (shared_, stop_, load) = (shared.clone(), stop.clone(), handle.load.clone());
        let entry = runtime.handle().clone();
        let builder = thread::Builder::new().name(name);
        let here = (shared.turns.clone(), number, handle.load.clone());
        let thread = millrace_threads::spawn(builder, move || {
            turns::enter(here);
            let wake_list = Arc::<WakeList>::default();
            wake_list.attach();
            shared_.hosted.turn(); // From now on the gates are driven.
            runtime.block_on(run(queue, shared_, stop_, load, &wake_list));
            runtime.shutdown_background();
        })?;
        Ok(EventLoop { handle, runtime: entry, stop, shared, thread: Some(thread) })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Accepts connections from these listeners from now on and passes them to the loops.
    ///
    /// # Errors
    ///
    /// A listener cannot be registered.
    pub fn accept(
        &self,
        tcp: Vec<(StdTcpListener, Option<&'static str>)>,
        unix: Option<StdUnixListener>,
        loops: Vec<Handle>,
    ) -> io::Result<()> {
        let _within = self.runtime.enter();
        for protocol in self.shared.protocols.0 {
            tasks::of_connection((protocol.begins)(self.shared.hosted.clone()));
        }
        let loops = Arc::new(loops);
        for (listener, only) in tcp {
            let accept = accept_tcp(TcpListener::from_std(listener)?, only, self.shared.clone(), loops.clone());
            tasks::vital(&self.runtime, "accept TCP", accept);
        }
        if let Some(listener) = unix {
            let accept = accept_unix(UnixListener::from_std(listener)?, self.shared.clone(), loops);
            tasks::vital(&self.runtime, "accept Unix", accept);
        }
        Ok(())
    }

    pub fn stop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            millrace_threads::join(thread);
        }
    }
}

async fn run(
    mut queue: mpsc::Receiver<Incoming>,
    shared: Arc<Shared>,
    stop: Arc<Notify>,
    load: Arc<AtomicUsize>,
    wake_list: &WakeList,
) {
    loop {
        let incoming = tokio::select! {
            () = stop.notified() => return,
            () = wake_list.wake_all() => continue,
            incoming = queue.recv() => incoming,
        };
        let Some(incoming) = incoming else { return };
        let (shared, guard) = (shared.clone(), Guard { shared: shared.clone(), load: load.clone() });
        tasks::of_connection(async move {
            let _guard = guard;
            if let Err(error) = serve(incoming, shared).await {
                // The other end has got the error; here it is only counted.
                drop(error);
            }
        });
    }
}

/// Counts a connection for as long as it lives.
struct Guard {
    shared: Arc<Shared>,
    load: Arc<AtomicUsize>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.shared.hosted.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept_tcp(listener: TcpListener, only: Option<&'static str>, shared: Arc<Shared>, loops: Arc<Vec<Handle>>) {
    let mut local_peers = LocalPeers::new();
    loop {
        let accepted = tokio::select! {
            () = shared.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted.and_then(|(stream, address)| Ok((stream.into_std()?, address))) {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                keep_alive(&stream);
                let identity = local_peers.identity(&shared.hosted, address, &stream);
                hand_over(Incoming::Tcp(stream, identity, only), &shared, &loops).await;
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn accept_unix(listener: UnixListener, shared: Arc<Shared>, loops: Arc<Vec<Handle>>) {
    let own = rustix::process::geteuid().as_raw();
    loop {
        let accepted = tokio::select! {
            () = shared.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        let checked = accepted.and_then(|(stream, _)| {
            let user = stream.peer_cred()?.uid();
            Ok((stream.into_std()?, user))
        });
        match checked {
            Ok((stream, user)) => {
                hand_over(Incoming::Unix(stream, Identity::at_socket(user, own)), &shared, &loops).await;
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// After a failed accept, the next one may succeed. A listener that no longer exists never accepts a connection again.
async fn pause(error: &io::Error) {
    use rustix::io::Errno;
    let lost = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::OPNOTSUPP];
    assert!(
        !Errno::from_io_error(error).is_some_and(|errno| lost.contains(&errno)),
        "the host can no longer accept connections: {error}"
    );
    sleep(ACCEPT_PAUSE).await;
}

fn keep_alive(stream: &std::net::TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, PROBE_EVERY);
    let _ = sockopt::set_tcp_keepcnt(stream, PROBES);
}

/// Gives a connection to the loop with the fewest. While that loop has as many as its queue holds, no other is accepted: newcomers wait
/// in the kernel's queue.
async fn hand_over(mut incoming: Incoming, shared: &Arc<Shared>, loops: &[Handle]) {
    let counters = &shared.hosted.counters;
    counters.accepted.fetch_add(1, Ordering::Relaxed);
    // Logs come and go; from time to time is often enough.
    if counters.accepted.load(Ordering::Relaxed) % LOOK_EVERY == 1 {
        let most = shared.hosted.connections_max().min(shared.connections_wanted);
        shared.connections_max.store(most, Ordering::Relaxed);
        shared.hosted.connections_limit.store(most, Ordering::Relaxed);
    }
    let limit = shared.connections_max.load(Ordering::Relaxed);
    // The owner finds room after all others have taken theirs.
    let owners = if incoming.identity().owner.is_some() { 0 } else { limit / OWNERS_PART };
    let beyond = shared.open().checked_sub(limit - owners);
    if beyond.is_some_and(|beyond| beyond >= ROOM_MAKING || !shared.hosted.silence.make_room()) {
        let most = shared.connections_max.load(Ordering::Relaxed);
        shared.refuse(incoming, Code::ConnectionsExhausted.error(format!("{most} connections are open")));
        return;
    }
    let identity = incoming.identity();
    if identity.owner.is_none() && Defence::Unknown.stands() {
        identity.unknown = shared.unknown.enter();
        if identity.unknown.is_none() {
            let most = shared.unknown.max();
            let detail =
                format!("{most} connections without a capability are open, and none of them can be closed yet");
            shared.refuse(incoming, Code::UnknownExhausted.error(detail));
            return;
        }
    }
    counters.connections.fetch_add(1, Ordering::Relaxed);
    tracing::debug!(target: "connections", way = incoming.way(), "accepted");
    let least = claim(shared, loops);
    match timeout(QUEUE_PATIENCE, least.incoming.reserve()).await {
        Ok(Ok(place)) => place.send(incoming),
        _ => {
            least.load.fetch_sub(1, Ordering::Relaxed);
            counters.connections.fetch_sub(1, Ordering::Relaxed);
            let detail = format!("{QUEUE} connections wait for their first byte to be read");
            shared.refuse(incoming, Code::ConnectionsExhausted.error(detail));
        }
    }
}

/// Counts one connection more for the loop with the fewest that does not wait for the disk or for the journal.
fn claim<'l>(shared: &Shared, loops: &'l [Handle]) -> &'l Handle {
    loop {
        let waiting = shared.turns.waiting();
        let free = loops.iter().enumerate().filter(|(number, _)| waiting & (1 << number) == 0);
        // For a moment it may seem that all wait: those that found no other have not said so yet.
        let Some((number, least)) = free.min_by_key(|(_, handle)| handle.load.load(Ordering::Relaxed)) else {
            assert!(!loops.is_empty(), "there is a loop that serves");
            std::hint::spin_loop();
            continue;
        };
        // Counted here, so that of many that come at once each sees the ones before it.
        least.load.fetch_add(1, Ordering::SeqCst);
        if shared.turns.waiting() & (1 << number) == 0 {
            return least;
        }
        least.load.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn count_dropped(&self) {
        self.hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Refuses a connection in its protocol. If too many are being refused already, which would take memory, it sends only what needs no
    /// waiting.
    fn refuse(self: &Arc<Self>, incoming: Incoming, error: Error) {
        use std::io::Write;
        self.count_dropped();
        let code = error.code().id();
        let second = self.hosted.started().elapsed().as_secs();
        // Otherwise a flood of connections would fill the log.
        match self.told_s.swap(second, Ordering::Relaxed) == second {
            true => tracing::debug!(target: "connections", code, "refused: {}", error.detail()),
            false => tracing::warn!(target: "connections", code, "refused: {}", error.detail()),
        }
        let permit = self.refusing.clone().try_acquire_owned();
        // The refused connection that has been silent longest is closed to make room.
        if permit.is_ok() || self.refused.make_room() {
            let shared = self.clone();
            tasks::of_connection(async move {
                let _permit = permit;
                let _ = timeout(REFUSING_PATIENCE, tell(incoming, &error, &shared)).await;
            });
            return;
        }
        // Refuse without waiting: a client that has sent nothing yet gets no answer.
        let mut first = First::default();
        let came = match &incoming {
            Incoming::Tcp(stream, ..) => stream.peek(&mut first).unwrap_or(0),
            Incoming::Unix(..) => 0,
        };
        if came == 0 {
            return;
        }
        let refusal = (self.protocols.of(&first).refusal)(&error);
        let _ = match incoming {
            Incoming::Tcp(mut stream, ..) => stream.write(&refusal),
            Incoming::Unix(mut stream, _) => stream.write(&refusal),
        };
    }
}

/// Tells a refusal to who came, once it has said in which protocol.
async fn tell(incoming: Incoming, error: &Error, shared: &Shared) -> io::Result<()> {
    let (mut stream, identity, _) = open(incoming)?;
    let mut first = First::default();
    let Some(read) = shared.refused.until(stream.read_exact(&mut first)).await else { return Ok(()) };
    read?;
    if first[0] == tls::FIRST_BYTE
        && let Some(config) = &shared.tls
    {
        // A TLS client cannot read anything else.
        let shaking = tls::accept(config, Rewound::new(first, stream), identity);
        let Some(shaken) = shared.shaking.until_among(HANDSHAKES_MAX, shared.refused.until(shaking)).await.flatten()
        else {
            return Ok(());
        };
        stream = Stream::Tls(Box::new(shaken?.0));
        let Some(read) = shared.refused.until(stream.read_exact(&mut first)).await else { return Ok(()) };
        read?;
    }
    let refusal = match first {
        MAGIC => refusal().to_vec(),
        _ => (shared.protocols.of(&first).refusal)(error),
    };
    stream.write_all(&refusal).await?;
    linger(stream).await
}

fn broken(error: io::Error) -> Error {
    Code::ConnectionIdle.error(error.to_string())
}

/// A connection as its loop's own, and the name of its listener, if the listener is for one protocol.
fn open(incoming: Incoming) -> io::Result<(Stream, Identity, Option<&'static str>)> {
    Ok(match incoming {
        Incoming::Tcp(stream, identity, only) => {
            (Stream::Tcp(tokio::net::TcpStream::from_std(stream)?), identity, only)
        }
        Incoming::Unix(stream, identity) => (Stream::Unix(tokio::net::UnixStream::from_std(stream)?), identity, None),
    })
}

/// Serves one connection: the first bytes show whether it is encrypted, and then which protocol it uses.
///
/// State that only some connections need is boxed, so that it takes no memory of the others.
async fn serve(incoming: Incoming, shared: Arc<Shared>) -> Result<()> {
    let (mut stream, mut identity, only) = open(incoming).map_err(broken)?;
    let Some(mut first) = shared.first(&mut stream, identity.unknown.clone()).await? else { return Ok(()) };
    if first == MAGIC {
        return Box::pin(serve_channel(stream, first, identity, only, shared)).await;
    }
    if first[0] == tls::FIRST_BYTE
        && let Some(config) = &shared.tls
    {
        let shaking = timeout(HANDSHAKE_PATIENCE, tls::accept(config, Rewound::new(first, stream), identity));
        let shaken = shared.shaking.until_among(HANDSHAKES_MAX, shared.hosted.silence.until(shaking));
        let Some(Some(Ok(Ok((safe, known))))) = Box::pin(shaken).await else {
            shared.count_dropped();
            return Ok(());
        };
        (stream, identity) = (Stream::Tls(Box::new(safe)), known);
        let Some(inner) = shared.first(&mut stream, identity.unknown.clone()).await? else { return Ok(()) };
        first = inner;
    }
    let protocol = shared.protocols.of(&first);
    let refused = match only.filter(|name| !protocol.listeners.contains(name)) {
        // Unencrypted connections from other machines are refused.
        _ if !identity.is_private() && !protocol.is_plain_at(only) => {
            Some(Code::NotAdmitted.error("this address accepts only TLS, or the encrypted channel with a capability"))
        }
        Some(name) => Some(elsewhere(name)),
        None => None,
    };
    if let Some(error) = refused {
        shared.count_dropped();
        let reported = timeout(REFUSING_PATIENCE, async {
            stream.write_all(&(protocol.refusal)(&error)).await?;
            linger(stream).await
        });
        let _ = Box::pin(reported).await;
        return Ok(());
    }
    let (hosted, stopping, unknown) = (shared.hosted.clone(), shared.stopping.clone(), identity.unknown.clone());
    let served = (protocol.serve)(Speaking { first, stream, identity, only, hosted, stopping });
    match unknown {
        None => served.await,
        Some(unknown) => Box::pin(unless_room_is_needed(Some(unknown), served)).await.unwrap_or_else(|| {
            shared.count_dropped();
            Ok(())
        }),
    }
}

/// A listener for one protocol got a connection that speaks another one.
fn elsewhere(name: &str) -> Error {
    Code::ProtocolElsewhere.error(format!("this address is for {name} only"))
}

async fn serve_channel(
    stream: Stream,
    first: First,
    identity: Identity,
    only: Option<&'static str>,
    shared: Arc<Shared>,
) -> Result<()> {
    let protocol = shared.protocols.within_channel();
    if only.is_some_and(|name| !protocol.listeners.contains(&name)) {
        shared.count_dropped();
        return Ok(());
    }
    let opening = timeout(HANDSHAKE_PATIENCE, channel::accept(&shared.hosted, stream, &first, identity));
    let opened = shared.shaking.until_among(HANDSHAKES_MAX, shared.hosted.silence.until(opening)).await;
    let Some(Some(Ok(Ok(Some((stream, identity)))))) = opened else {
        shared.count_dropped();
        return Ok(());
    };
    let (hosted, stopping) = (shared.hosted.clone(), shared.stopping.clone());
    let stream = Stream::Channel(Box::new(stream));
    (protocol.serve)(Speaking { first, stream, identity, only, hosted, stopping }).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn newcomers_wait_for_a_loop_that_is_slow_to_take_them() {
        let shared =
            Arc::new(Shared::new(Arc::new(Hosted::new(Vec::new())), Protocols::all(), None, &ServerOptions::default()));
        let (incoming, mut queue) = mpsc::channel(1);
        let loops = [Handle { incoming, load: Arc::default() }];
        let taken = async {
            for _ in 0..3 {
                sleep(Duration::from_millis(20)).await;
                queue.recv().await.expect("a connection");
            }
        };
        let given = async {
            for _ in 0..3 {
                let (_, theirs) = UnixStream::pair().unwrap();
                hand_over(Incoming::Unix(theirs, Identity::at_socket(0, 0)), &shared, &loops).await;
            }
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::join!(taken, given) });
        let counters = &shared.hosted.counters;
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        assert_eq!((of(&counters.connections), counters.dropped.load(Ordering::Relaxed)), (3, 0));
    }
}
