//! A connection to another host, as a link uses it: blocking, with a bound on every wait.

use crate::{patience, wire::SOFTWARE};
use millrace_wire::{
    Code, Error, Hlc, Peer, Result,
    protocol::{
        FRAME_MAX_BYTES, Failure, Frame, Heading, Hello, Message, PREFACE, Ping, Pong, VERSION, Welcome, encode, split,
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// To reach a host, and for its first answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// To look up its name as well, and to try all its addresses.
const DIAL_PATIENCE: Duration = Duration::from_secs(30);
/// Attempts that may hang at once, of all links.
const DIALLING_MAX: usize = 64;
/// How often whoever waits for a connection looks whether it is still wanted.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// Name services of the system want some room.
const DIAL_STACK_BYTES: usize = 256 << 10;
/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT_BYTES: usize = 4 << 20;

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    pub namespace: u64,
    pub epoch: u32,
}

/// What came over a connection.
pub(super) enum Answer<T> {
    /// A message.
    Taken(T),
    /// The request of this number failed.
    Failed(u64, Error),
}

/// A connection over which the handshake is done.
pub(super) struct Line {
    stream: TcpStream,
    pub other: Other,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Bytes at the start of `input` that were handed out.
    used: usize,
    request: u64,
    /// When something came last.
    heard: Instant,
    /// When it was asked last whether somebody is there.
    asked: Instant,
}

fn unreachable(peer: &Peer, error: &std::io::Error) -> Error {
    Code::LinkUnreachable.error(format!("{}: {error}", peer.authority()))
}

/// How the addresses of a host are found.
type Resolve = fn(&Peer) -> std::io::Result<Vec<SocketAddr>>;

/// As the system does.
fn by_name(peer: &Peer) -> std::io::Result<Vec<SocketAddr>> {
    (&*peer.host, peer.port).to_socket_addrs().map(Iterator::collect)
}

/// Attempts to reach a host that have a thread: those that were given up have theirs until the system gives up too.
static DIALLING: AtomicUsize = AtomicUsize::new(0);

/// Counts an attempt for as long as its thread lives.
struct Dialling;

impl Dialling {
    fn take(peer: &Peer) -> Result<Self> {
        if DIALLING.fetch_add(1, Ordering::Relaxed) >= DIALLING_MAX {
            DIALLING.fetch_sub(1, Ordering::Relaxed);
            let told = format!("{}: {DIALLING_MAX} attempts to reach a host hang already", peer.authority());
            return Err(Code::LinkUnreachable.error(told));
        }
        Ok(Self)
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        DIALLING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Resolves the name and connects, on a thread of its own: nothing can cut short a name service that does not answer, and
/// neither a link nor whoever stops may wait for it. The thread holds nothing but the name, and ends when the system gives up.
fn dial(peer: &Peer, patience: Duration, resolve: Resolve, is_stopping: &dyn Fn() -> bool) -> Result<TcpStream> {
    let until = Instant::now() + patience;
    let (sender, receiver) = mpsc::sync_channel(1);
    let (there, dialling) = (peer.clone(), Dialling::take(peer)?);
    let connect = move || {
        let reach = || {
            let addresses = resolve(&there).map_err(|error| unreachable(&there, &error))?;
            let mut last = Code::LinkUnreachable.error(format!("{} has no address", there.authority()));
            for address in addresses.into_iter().take_while(|_| Instant::now() < until) {
                match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = unreachable(&there, &error),
                }
            }
            Err(last)
        };
        let reached = reach();
        drop(dialling);
        // Whoever asked may have stopped waiting.
        let _ = sender.send(reached);
    };
    let builder = thread::Builder::new().name("millrace-dial".into()).stack_size(DIAL_STACK_BYTES);
    millrace_threads::spawn(builder, connect).map_err(|error| unreachable(peer, &error))?;
    let given_up = |why: &str| Err(Code::LinkUnreachable.error(format!("{}: {why}", peer.authority())));
    loop {
        match receiver.recv_timeout(STOP_LOOK) {
            Ok(answer) => return answer,
            Err(_) if is_stopping() => return given_up("given up"),
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < until => {}
            Err(_) => return given_up("neither its name nor the host answered in time"),
        }
    }
}

impl Line {
    /// Connects and shakes hands; gives up soon once `is_stopping` says so.
    pub fn connect(
        peer: &Peer,
        clock: Hlc,
        is_stopping: &dyn Fn() -> bool,
        opened: impl FnOnce(&TcpStream),
    ) -> Result<Self> {
        let stream = dial(peer, DIAL_PATIENCE, by_name, is_stopping)?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(patience::link())));
        set.map_err(|error| unreachable(peer, &error))?;
        opened(&stream);
        let other = Other { namespace: 0, epoch: 0 };
        let (now, out) = (Instant::now(), PREFACE.to_vec());
        let mut line = Line { stream, other, out, input: Vec::new(), used: 0, request: 0, heard: now, asked: now };
        let hello = Hello {
            oldest: VERSION,
            newest: VERSION,
            namespace: &peer.namespace,
            client: SOFTWARE,
            ..Hello::default()
        };
        line.send(clock, &hello)?;
        line.flush()?;
        let deadline = Instant::now() + CONNECT_PATIENCE;
        line.other = line.receive(deadline, |frame| {
            let welcome: Welcome<'_> = frame.message()?;
            if welcome.version != VERSION {
                let told = format!(
                    "{} answers with version {}; version {VERSION} was offered",
                    peer.authority(),
                    welcome.version
                );
                return Err(Code::VersionUnsupported.error(told));
            }
            Ok(Other { namespace: welcome.namespace, epoch: welcome.epoch })
        })?;
        Ok(line)
    }

    /// Adds a request to what is to be sent; returns its number.
    pub fn send<M: Message>(&mut self, clock: Hlc, message: &M) -> Result<u64> {
        self.request += 1;
        self.send_as(self.request, clock, message);
        Ok(self.request)
    }

    /// Adds a message under a number that was given before.
    pub fn send_as<M: Message>(&mut self, request: u64, clock: Hlc, message: &M) {
        encode(&mut self.out, Heading { request, hlc: clock, ..Heading::default() }, message);
    }

    /// When something came last.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Sends what was added.
    pub fn flush(&mut self) -> Result<()> {
        let written = self.stream.write_all(&self.out);
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
        written.map_err(broken)
    }

    /// The first answer before `deadline`, which `take` turns into what is wanted; a failure in its place is the error.
    pub fn receive<T>(&mut self, deadline: Instant, take: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<T> {
        let mut take = Some(take);
        loop {
            let take = &mut take;
            let taken = self.poll(deadline.saturating_duration_since(Instant::now()), |frame| {
                take.take().expect("one frame was handed out")(frame)
            })?;
            if let Some(taken) = taken {
                return Ok(taken);
            }
            if Instant::now() >= deadline {
                return Err(silent("no answer came"));
            }
        }
    }

    /// The next message, if one comes within `patience`; meanwhile, makes sure that somebody is there.
    ///
    /// # Errors
    ///
    /// A failure in its place, the end of the connection, or silence for too long.
    pub fn poll<T>(&mut self, patience: Duration, take: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<Option<T>> {
        Ok(match self.answer(patience, take)? {
            Some(Answer::Taken(taken)) => Some(taken),
            Some(Answer::Failed(_, error)) => return Err(error),
            None => None,
        })
    }

    /// The same, where failures are answers: to which request.
    pub fn answer<T>(
        &mut self,
        patience: Duration,
        take: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<Option<Answer<T>>> {
        let deadline = Instant::now() + patience;
        loop {
            match split(&self.input[self.used..], FRAME_MAX_BYTES)? {
                Some((frame, length)) => {
                    self.used += length;
                    match frame.kind {
                        Pong::TYPE => continue,
                        Failure::TYPE => return Ok(Some(Answer::Failed(frame.heading.request, failure(&frame)?))),
                        _ => return take(&frame).map(|taken| Some(Answer::Taken(taken))),
                    }
                }
                None => self.forget_used(),
            }
            let now = Instant::now();
            if now.duration_since(self.heard) >= patience::link() {
                return Err(silent(&format!("nothing came for {} s", patience::link().as_secs())));
            }
            if now.duration_since(self.heard.max(self.asked)) >= patience::ping() {
                self.asked = now;
                self.send(Hlc::default(), &Ping {})?;
                self.flush()?;
            }
            // Even without patience, what has come is taken.
            let left = deadline.saturating_duration_since(now).min(patience::ping());
            if !self.read(left)? && Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// Reads what there is; whether anything came in time.
    fn read(&mut self, patience: Duration) -> Result<bool> {
        // No timeout at all is what zero would mean.
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1)))).map_err(broken)?;
        let at = self.input.len();
        self.input.resize(at + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[at..]);
        self.input.truncate(at + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(broken(ErrorKind::ConnectionReset.into())),
            Ok(_) => {
                self.heard = Instant::now();
                Ok(true)
            }
            Err(error) if is_pause(error.kind()) => Ok(false),
            Err(error) => Err(broken(error)),
        }
    }

    fn forget_used(&mut self) {
        self.input.drain(..self.used);
        self.used = 0;
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = Vec::new();
        }
    }
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn broken(error: std::io::Error) -> Error {
    if is_pause(error.kind()) {
        return silent(&format!("nothing was taken for {} s", patience::link().as_secs()));
    }
    Code::LinkUnreachable.error(format!("the connection broke: {error}"))
}

fn silent(what: &str) -> Error {
    Code::LinkSilent.error(what)
}

/// What a failure says; a code that is not known here is still shown.
fn failure(frame: &Frame<'_>) -> Result<Error> {
    let failure: Failure<'_> = frame.message()?;
    Ok(match Code::from_id(failure.code) {
        Some(code) => code.error(failure.detail),
        None => Code::LinkUnreachable.error(format!("{}: {}", failure.code, failure.detail)),
    })
}

/// A message of a type that has to come here.
pub(super) fn expect<'b, M: Message + Deserialize<'b>>(frame: &Frame<'b>) -> Result<M> {
    frame.message()
}

/// The same for one that borrows nothing.
pub(super) fn owned<M: Message + DeserializeOwned>(frame: &Frame<'_>) -> Result<M> {
    frame.message()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    static OPEN: AtomicBool = AtomicBool::new(false);

    /// A name service that answers only once the test lets it.
    fn hangs(_: &Peer) -> std::io::Result<Vec<SocketAddr>> {
        while !OPEN.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(Vec::new())
    }

    #[test]
    fn a_name_service_that_hangs_holds_up_no_link_and_no_end() {
        let peer: Peer = "mr://far.example/farm".parse::<millrace_wire::Address>().unwrap().peer;
        let forever = Duration::from_secs(86_400);
        let stopped = dial(&peer, forever, hangs, &|| true).unwrap_err();
        assert!(stopped.code() == Code::LinkUnreachable && stopped.detail().contains("given up"), "{stopped}");
        let late = dial(&peer, Duration::from_millis(1), hangs, &|| false).unwrap_err();
        assert!(late.code() == Code::LinkUnreachable && late.detail().contains("in time"), "{late}");
        // Others of this process may dial meanwhile.
        let refused = (0..=DIALLING_MAX).find_map(|_| {
            let error = dial(&peer, Duration::from_millis(1), hangs, &|| true).unwrap_err();
            error.detail().contains("hang already").then_some(error)
        });
        assert_eq!(refused.expect("attempts are bounded").code(), Code::LinkUnreachable);
        OPEN.store(true, Ordering::Relaxed);
        let start = Instant::now();
        loop {
            let answered = dial(&peer, forever, hangs, &|| false).unwrap_err();
            if answered.detail().contains("has no address") {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "threads stay: {answered}");
        }
    }

    #[test]
    fn a_host_that_answers_with_a_version_that_was_not_offered_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("mr://{}/farm", listener.local_addr().unwrap());
        let peer: Peer = address.parse::<millrace_wire::Address>().unwrap().peer;
        let host = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut welcome = Vec::new();
            let answer = Welcome { version: VERSION + 1, name: "farm", ..Welcome::default() };
            encode(&mut welcome, Heading { request: 1, ..Heading::default() }, &answer);
            stream.write_all(&welcome).unwrap();
            // Until the other side closes.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let refused = Line::connect(&peer, Hlc::default(), &|| false, |_| {}).err().expect("it is refused");
        assert_eq!(refused.code(), Code::VersionUnsupported, "{refused}");
        host.join().unwrap();
    }
}
