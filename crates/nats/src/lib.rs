//! Topics that a NATS cluster keeps: publish, get and follow through JetStream.
//!
//! ```text
//!  publish ──> window ──> one task, in order ──> JetStream ──> acknowledgement: the index of the record
//!                              ^── what was not acknowledged is sent again under the same id
//!  follow  <── bounded queue <── ordered consumer, from an index; created again when it is lost
//! ```
//!
//! Each topic is a stream of its own, and the index of a record is its sequence number there. Calls return at once; the outcome goes to a
//! [`Reply`], on the one thread on which everything here runs.

mod follow;
mod names;
mod publish;
mod read;

pub use follow::Follower;
pub use names::{Source, Stream};
pub use publish::{Fed, Stamp};
pub use read::{Bounds, Record};

use async_nats::{
    Client, ConnectOptions, Event, ServerAddr,
    jetstream::{self, ErrorCode, context::ContextBuilder},
};
use millrace_wire::{Code, Error, Result};
use publish::Job;
use std::{
    collections::HashMap,
    future::Future,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle},
    sync::{Semaphore, mpsc, oneshot, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

/// How long a request may take, with all its attempts.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long one attempt may take: a stream without a leader does not answer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Requests wait for a server. If none has answered for this long, they fail at once.
const AWAY_MAX: Duration = Duration::from_secs(5);
/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The interval of PINGs. The connection to a server that does not answer two of them is closed.
const PING: Duration = Duration::from_secs(3);
/// The longest pause between two attempts to connect.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// Receives the outcome of a request.
pub type Reply<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// The settings of a connection to NATS.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses of servers, separated by commas: `nats://HOST:PORT` or `tls://HOST:PORT`.
    pub servers: String,
    /// The file with the credentials of the user: a JWT and its seed, or the seed of an NKey. Otherwise an address may contain a user and
    /// a password, or a token.
    pub credentials: Option<PathBuf>,
    /// A file with the certificates of authorities to trust besides those of the system, in PEM.
    pub authorities: Option<PathBuf>,
    /// How many servers keep each stream; by default 3, or 1 if the server belongs to no cluster.
    pub replicas: Option<usize>,
    /// The name of this connection in reports of the servers.
    pub name: String,
}

/// A connection to the servers. Dropping it ends it.
pub struct Nats {
    inner: Arc<Inner>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct Inner {
    handle: Handle,
    client: Client,
    context: jetstream::Context,
    replicas: Option<usize>,
    servers: String,
    line: watch::Sender<Line>,
    jobs: mpsc::UnboundedSender<Job>,
    window: Arc<Semaphore>,
    window_bytes: Arc<Semaphore>,
    /// A prefix which, with the number of a record, is the id under which the record is published.
    life: String,
    serial: AtomicU64,
    /// The newest index of each stream for whose growth a caller waits.
    watched: Mutex<HashMap<String, watch::Sender<u64>>>,
}

/// Whether a server answers.
#[derive(Clone, Debug)]
struct Line {
    is_up: bool,
    since: Instant,
    /// How many times it has changed.
    changes: u64,
    trouble: Option<String>,
}

/// Why an attempt failed, and whether another one may succeed.
pub(crate) struct Fault {
    error: Error,
    again: bool,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, again: false }
    }
}

pub(crate) fn away(detail: impl Into<String>) -> Fault {
    Fault { error: Code::NatsUnreachable.error(detail), again: true }
}

/// The meaning of a refusal of JetStream.
pub(crate) fn refused(stream: &Stream, error: &jetstream::Error) -> Fault {
    let code = error.error_code();
    let detail = || format!("topic '{}': NATS: {error}", stream.topic);
    if code == ErrorCode::STREAM_NOT_FOUND {
        return Fault::from(lost(stream));
    }
    // Servers that have just connected to each other know too few peers for a moment.
    let passes = [ErrorCode::CLUSTER_NO_PEERS, ErrorCode::INSUFFICIENT_RESOURCES].contains(&code);
    match error.code() {
        503 => away(detail()),
        _ => Fault { error: Code::NatsRefused.error(detail()), again: passes },
    }
}

pub(crate) fn lost(stream: &Stream) -> Error {
    Code::NatsStreamLost.error(format!("NATS has no stream '{}' for topic '{}'", stream.name, stream.topic))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Options {
    fn addresses(&self) -> Result<Vec<ServerAddr>> {
        let invalid = |detail: String| Code::NatsOptions.error(detail);
        let mut addresses = Vec::new();
        for (at, text) in self.servers.split(',').map(str::trim).filter(|text| !text.is_empty()).enumerate() {
            // An address may contain a password.
            let number = at + 1;
            let parsed: ServerAddr =
                text.parse().map_err(|error| invalid(format!("address {number} of --nats: {error}")))?;
            if !["nats", "tls"].contains(&parsed.scheme()) {
                let scheme = parsed.scheme();
                return Err(invalid(format!("address {number} of --nats has the scheme '{scheme}'")));
            }
            addresses.push(parsed);
        }
        if addresses.is_empty() {
            return Err(invalid("--nats names no server".into()));
        }
        match self.replicas {
            Some(0 | 6..) => Err(invalid(format!("{} copies; NATS can keep 1 to 5", self.replicas.unwrap_or(0)))),
            _ => Ok(addresses),
        }
    }
}

impl Nats {
    /// Connects in the background: servers that do not answer are tried again.
    pub fn start(options: &Options) -> Result<Nats> {
        let addresses = options.addresses()?;
        let shown = addresses.iter().map(|address| format!("{}:{}", address.host(), address.port()));
        let servers = shown.collect::<Vec<_>>().join(", ");
        let failed = |error: std::io::Error| Code::HostStart.error(format!("the client of NATS: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let line = Line { is_up: false, since: Instant::now(), changes: 0, trouble: None };
        let line = watch::Sender::new(line);
        let client = runtime.block_on(connect(options, addresses, line.clone()))?;
        // The context has a task of its own.
        let entered = runtime.enter();
        let context =
            ContextBuilder::new().timeout(ATTEMPT).max_ack_inflight(2 * publish::WINDOW).build(client.clone());
        let (jobs, received) = mpsc::unbounded_channel();
        let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let inner = Arc::new(Inner {
            handle: runtime.handle().clone(),
            client,
            context,
            replicas: options.replicas,
            servers,
            line,
            jobs,
            window: Arc::new(Semaphore::new(publish::WINDOW)),
            window_bytes: Arc::new(Semaphore::new(publish::WINDOW_BYTES)),
            life: format!("{:016x}{:016x}", random(), random()),
            serial: AtomicU64::new(0),
            watched: Mutex::default(),
        });
        inner.task(publish::send_all(inner.clone(), received));
        drop(entered);
        let (stop, stopped) = oneshot::channel::<()>();
        let builder = thread::Builder::new().name("millrace-nats".into());
        let run = move || {
            // The sender is dropped, too.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        let thread = millrace_threads::spawn(builder, run).map_err(failed)?;
        Ok(Nats { inner, stop: Some(stop), thread: Some(thread) })
    }

    /// The maximum record length that a server has reported, if any has.
    pub fn record_max_bytes(&self) -> usize {
        self.inner.record_max_bytes()
    }

    /// Why requests to NATS fail at present.
    pub fn trouble(&self) -> Option<String> {
        let line = self.inner.line.borrow().clone();
        (!line.is_up).then(|| self.inner.unreachable(&line).detail().to_owned())
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The last user may have been a reply, which runs on this thread.
        let other = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = other {
            // It panics only because of a defect, whose message it has printed.
            let _ = thread.join();
        }
    }
}

/// The user and the password in an address, or the token. The library ignores them.
fn signs_in(address: &ServerAddr) -> Option<(String, Option<String>)> {
    Some((decoded(address.username()?), address.password().map(decoded)))
}

/// A part of an address with its escapes, such as `%40`, decoded.
fn decoded(part: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        let escaped = others.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match escaped.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[2..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The seed of an NKey, if a file has one and no JWT.
fn seed_alone(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("SU")).filter(|_| !text.contains("USER JWT"))
}

async fn connect(options: &Options, addresses: Vec<ServerAddr>, line: watch::Sender<Line>) -> Result<Client> {
    let changed = move |event: Event| {
        line.send_modify(|line| {
            let is_up = match &event {
                Event::Connected => true,
                Event::Disconnected | Event::Closed => false,
                Event::ServerError(_) | Event::ClientError(_) => {
                    line.trouble = Some(event.to_string());
                    return;
                }
                _ => return,
            };
            if is_up != line.is_up {
                line.since = Instant::now();
            }
            if is_up {
                line.trouble = None;
            }
            (line.is_up, line.changes) = (is_up, line.changes + 1);
        });
        std::future::ready(())
    };
    let delay = |attempt: usize| (PAUSE * u32::try_from(attempt).unwrap_or(u32::MAX).min(100)).min(RECONNECT_MAX);
    let mut asked = ConnectOptions::new()
        .name(&options.name)
        .connection_timeout(CONNECT)
        .ping_interval(PING)
        .request_timeout(Some(ATTEMPT))
        .retry_on_initial_connect()
        .reconnect_delay_callback(delay)
        .event_callback(changed);
    if let Some(path) = &options.authorities {
        let readable = std::fs::metadata(path);
        readable.map_err(|error| Code::NatsOptions.error(format!("'{}': {error}", path.display())))?;
        asked = asked.add_root_certificates(path.clone());
    }
    if let Some(path) = &options.credentials {
        let unread = |error| Code::NatsOptions.error(format!("'{}': {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(unread)?;
        asked = match seed_alone(&text) {
            Some(seed) => asked.nkey(seed.to_owned()),
            None => asked.credentials(&text).map_err(unread)?,
        };
    } else if let Some((user, password)) = addresses.iter().find_map(signs_in) {
        asked = match password {
            Some(password) => asked.user_and_password(user, password),
            None => asked.token(user),
        };
    }
    asked.connect(addresses).await.map_err(|error| Code::NatsOptions.error(format!("NATS: {error}")))
}

impl Inner {
    /// Starts a task on the thread of this connection.
    fn task(&self, work: impl Future<Output = ()> + Send + 'static) -> tokio::task::AbortHandle {
        self.handle.spawn(work).abort_handle()
    }

    /// Replies with the outcome of a future.
    fn reply<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static, reply: Reply<T>) {
        self.task(async move { reply(work.await) });
    }

    fn unreachable(&self, line: &Line) -> Error {
        let (servers, since) = (&self.servers, line.since.elapsed().as_secs());
        let why = line.trouble.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        Code::NatsUnreachable.error(format!("no NATS server of {servers} has answered for {since} s{why}"))
    }

    /// Waits until a server answers, unless none has answered for long.
    async fn connected(&self, until: Instant) -> Result<()> {
        let mut line = self.line.subscribe();
        let until = until.min(line.borrow().since + AWAY_MAX);
        let failed = match timeout_at(until, line.wait_for(|line| line.is_up)).await {
            Ok(Ok(_)) => return Ok(()),
            _ => self.line.borrow().clone(),
        };
        Err(self.unreachable(&failed))
    }

    /// Repeats an attempt until it succeeds, fails permanently, or takes too long.
    async fn patiently<T, F>(&self, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Fault>>,
    {
        let until = Instant::now() + PATIENCE;
        loop {
            self.connected(until).await?;
            let fault = match timeout(2 * ATTEMPT, attempt()).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(fault)) => fault,
                Err(_) => away("JetStream does not answer"),
            };
            if !fault.again || Instant::now() + PAUSE >= until {
                return Err(fault.error);
            }
            sleep(PAUSE).await;
        }
    }

    fn next_id(&self) -> String {
        format!("a/{}/{}", self.life, self.serial.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(servers: &str) -> Options {
        let name = "a host".into();
        Options { servers: servers.into(), credentials: None, authorities: None, replicas: None, name }
    }

    #[test]
    fn addresses_are_read_and_passwords_are_not_shown() {
        let read = |servers: &str| options(servers).addresses().map(|found| found.len()).map_err(|error| error.code());
        assert_eq!(read("nats://127.0.0.1:4222"), Ok(1));
        assert_eq!(read("nats://a, tls://b:4223,c"), Ok(3));
        for bad in ["", " , ", "http://a", "ws://a"] {
            assert_eq!(read(bad), Err(Code::NatsOptions), "{bad}");
        }
        let error = options("nats://user:secret@h:port").addresses().unwrap_err();
        assert!(!error.detail().contains("secret"), "{}", error.detail());
        let replicas = Options { replicas: Some(6), ..options("nats://a") };
        assert_eq!(replicas.addresses().unwrap_err().code(), Code::NatsOptions);
        let unread = Options { credentials: Some("/nowhere".into()), ..options("nats://user:secret@127.0.0.1:1") };
        assert_eq!(Nats::start(&unread).err().map(|error| error.code()), Some(Code::NatsOptions));
    }

    #[test]
    fn users_are_read_from_addresses_and_seeds_from_files() {
        let of = |text: &str| signs_in(&text.parse().unwrap());
        assert_eq!(of("nats://a"), None);
        assert_eq!(of("nats://me:p%40ss%25@a"), Some(("me".into(), Some("p@ss%".into()))));
        assert_eq!(of("nats://token@a"), Some(("token".into(), None)));
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(seed_alone("# mine\n SUAB \n"), Some("SUAB"));
        assert_eq!(seed_alone("-----BEGIN NATS USER JWT-----\neyJ0\nSUAB\n"), None);
    }

    #[test]
    fn without_a_server_requests_fail_in_time_and_say_where_it_was_looked_for() {
        let nats = Nats::start(&options("nats://user:secret@127.0.0.1:1")).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        nats.publish(
            &Stream::of("01", "t"),
            (b"x".to_vec(), None, Stamp::default()),
            Box::new(move |outcome| drop(sender.send(outcome))),
        );
        let error = receiver.recv_timeout(3 * PATIENCE).unwrap().unwrap_err();
        assert_eq!(error.code(), Code::NatsUnreachable);
        assert!(error.detail().contains("127.0.0.1:1") && !error.detail().contains("secret"), "{}", error.detail());
        assert!(nats.trouble().is_some());
    }
}
