//! A connection that the caller's own thread writes and reads.

use super::stream::{HangUp, Raw, Safe, Stream};
use crate::{
    Host, Options, Place,
    ask::{self, Answered, Greeting},
    connector,
    loopback::{self, Near},
    session::{broken, closed, refused},
};
use millrace_wire::{
    Code, Error, EventId, Hlc, Result,
    protocol::{FRAME_MAX_BYTES, Failure, Frame, Heading, Message, Ping, Pong, encode, split},
};
use std::{
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// How many bytes are read at once.
const READ_BYTES: usize = 64 << 10;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT_BYTES: usize = 1 << 20;
/// A connection that lay idle for longer is looked at before it is used.
const TRUSTED: Duration = Duration::from_millis(500);

/// The timeout of a socket is rounded up to the tick of the kernel's clock, up to 10 ms: a shorter wait than this uses another clock.
const SHORT: Duration = Duration::from_millis(50);
/// How often a caller that may be interrupted is asked while a host is reached.
const INTERRUPT_LOOK: Duration = Duration::from_millis(50);

/// A connection before its handshake.
pub struct Dialled {
    stream: Raw,
    place: Place,
    options: Options,
}

impl Dialled {
    /// Reaches a host.
    ///
    /// # Errors
    ///
    /// Its name is not found, no address answers in time, or [`Options::interrupted`] returns that the caller no longer waits.
    pub fn dial(place: &Place, options: &Options) -> Result<Dialled> {
        let stream = open(place, options)?;
        let slice = Some(options.tick());
        stream.set_timeouts(slice).map_err(|error| refused(place, &error))?;
        Ok(Dialled { stream, place: place.clone(), options: options.clone() })
    }

    /// Cuts the connection from another thread, even during the handshake.
    pub fn hang_up(&self) -> io::Result<HangUp> {
        self.stream.hang_up()
    }

    /// Shakes hands, over this connection and no other.
    pub fn greet(self) -> Result<Socket> {
        let until = Instant::now() + self.options.connect_timeout();
        let (safe, place, options) = self.secure(Near::ByToken, until)?;
        Self::greet_over(safe, &place, &options, until)
    }

    fn secure(self, near: Near, until: Instant) -> Result<(Safe, Place, Options)> {
        let Dialled { stream, place, options } = self;
        let check = || if is_interrupted(&options) { Err(interrupted()) } else { Ok(()) };
        Ok((stream.secure(&place, &options, near, until, check)?, place, options))
    }

    fn greet_over(safe: Safe, place: &Place, options: &Options, until: Instant) -> Result<Socket> {
        let Safe { stream, credentials, binding, .. } = safe;
        let mut greeting = Greeting::new(place, &options.name, &credentials, binding);
        let mut socket = Socket {
            out: greeting.first(!stream.is_channel()),
            stream,
            host: Host {
                host: String::new(),
                name: String::new(),
                namespace: 0,
                epoch: 0,
                frame_max_bytes: 0,
                record_max_bytes: 0,
                requests_max: 1,
                durability: Default::default(),
            },
            hlc: 0,
            last_request: ask::HANDSHAKE,
            received: vec![0; READ_BYTES],
            read: 0,
            filled: 0,
            heard: Instant::now(),
            pinged: false,
            greeted: false,
            options: options.clone(),
        };
        socket.greet(place, &mut greeting, until)?;
        socket.greeted = true;
        Ok(socket)
    }
}

/// One connection, used by one thread at a time.
pub struct Socket {
    stream: Stream,
    /// The properties of the host.
    pub host: Host,
    /// How it is used.
    pub options: Options,
    hlc: u64,
    last_request: u64,
    /// Frames to be sent.
    out: Vec<u8>,
    /// Received bytes; `received[read..filled]` are not processed yet.
    received: Vec<u8>,
    read: usize,
    filled: usize,
    heard: Instant,
    pinged: bool,
    /// Whether the handshake is over; before, no ping may be sent.
    greeted: bool,
}

impl Socket {
    /// Connects and shakes hands.
    pub fn connect(place: &Place, options: &Options) -> Result<Socket> {
        let until = Instant::now() + options.connect_timeout();
        let (safe, ..) = Dialled::dial(place, options)?.secure(Near::InClear, until)?;
        let has_token = safe.has_token;
        match Dialled::greet_over(safe, place, options, until) {
            Err(error) if has_token && loopback::is_unknown(&error) => Dialled::dial(place, options)?.greet(),
            greeted => greeted,
        }
    }

    fn greet(&mut self, place: &Place, greeting: &mut Greeting<'_>, until: Instant) -> Result<()> {
        let late = || Code::ConnectTimeout.error(format!("{place} did not complete the handshake"));
        self.flush(Some(until))?;
        loop {
            match greeting.answer(&self.received[self.read..self.filled])? {
                Answered::Incomplete => {}
                Answered::Asked(more, used) => {
                    self.read += used;
                    self.out = more;
                    self.flush(Some(until))?;
                    continue;
                }
                Answered::Welcome(host, hlc, used) => {
                    self.stream.check()?;
                    self.read += used;
                    self.host = *host;
                    self.hlc = hlc.get();
                    return Ok(());
                }
            }
            if !self.fill(Some(until)).map_err(|error| match error.code() {
                Code::RequestTimeout | Code::PeerSilent => late(),
                _ => error,
            })? && Instant::now() >= until
            {
                return Err(late());
            }
        }
    }

    /// Whether the connection still seems to stand, if it was not used for a while.
    pub fn seems_alive(&mut self) -> bool {
        // The host's last word may have come with an answer.
        if self.next_frame().is_err() {
            return false;
        }
        if self.heard.elapsed() < TRUSTED {
            return true;
        }
        let look = self.stream.look(&mut self.received[self.filled..]);
        match look {
            Ok(0) => false,
            Ok(count) => {
                self.filled += count;
                // Nothing was asked: it is a ping, or why the connection ended.
                self.next_frame().is_ok()
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Puts a request to those to be sent; its number.
    pub fn put<M: Message>(&mut self, message: &M, payload_bytes: usize, cause: EventId) -> Result<u64> {
        ask::check_size(&self.host, payload_bytes)?;
        self.last_request += 1;
        self.put_under(self.last_request, message, cause);
        Ok(self.last_request)
    }

    /// Puts a message under a request number.
    pub fn put_under<M: Message>(&mut self, request: u64, message: &M, cause: EventId) {
        let heading = Heading { request, hlc: Hlc::from_bits(self.hlc), cause, slot: 0 };
        encode(&mut self.out, heading, message);
    }

    /// How many bytes wait to be sent.
    pub fn unsent_bytes(&self) -> usize {
        self.out.len()
    }

    /// Sends what was put.
    pub fn flush(&mut self, until: Option<Instant>) -> Result<()> {
        let mut sent = 0;
        let mut moved = Instant::now();
        let mut flushed = false;
        while !flushed {
            let wrote = match &self.out[sent..] {
                // Buffered encrypted bytes are sent as well.
                [] => self.stream.flush().map(|()| {
                    flushed = true;
                    0
                }),
                rest => self.stream.write(rest),
            };
            match wrote {
                Ok(0) if flushed => {}
                Ok(0) => return Err(closed()),
                Ok(count) => {
                    sent += count;
                    if sent < self.out.len() {
                        moved = Instant::now();
                    }
                }
                Err(error) if is_pause(&error) => {
                    self.check_interrupt()?;
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(Code::RequestTimeout.error("the host has stopped reading the request"));
                    }
                    if moved.elapsed() >= self.options.silence_max() {
                        return Err(self.silent(moved.elapsed()));
                    }
                }
                // The host may have said why it closed, before it did.
                Err(error) => return Err(self.last_words().unwrap_or_else(|| broken(&error))),
            }
        }
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
        Ok(())
    }

    fn last_words(&mut self) -> Option<Error> {
        loop {
            match self.fill(None) {
                Err(error) => return (error.code() != Code::ConnectionLost).then_some(error),
                Ok(false) => return None,
                Ok(true) => match self.next_frame() {
                    Err(error) => return Some(error),
                    Ok(None) => {}
                    Ok(Some((_, end))) => self.read = end,
                },
            }
        }
    }

    /// Waits for an answer, and passes everything that arrived with it to `take`, which returns whether it expected it.
    pub fn answers(&mut self, until: Option<Instant>, mut take: impl FnMut(&Frame<'_>) -> Result<bool>) -> Result<()> {
        loop {
            let mut any = false;
            loop {
                let (start, end) = match self.next_frame() {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    // The last word of the host comes behind its last answers, and is found again by the next call.
                    Err(_) if any => break,
                    Err(error) => return Err(error),
                };
                any = true;
                self.read = end;
                let (frame, _) = split(&self.received[start..end], FRAME_MAX_BYTES)?.ok_or_else(closed)?;
                if !take(&frame)? {
                    return Err(ask::unasked(&frame));
                }
            }
            if any {
                return Ok(());
            }
            self.flush(until)?; // A pong, perhaps.
            if !self.fill(until)? && until.is_some_and(|until| Instant::now() >= until) {
                let after = self.options.request_timeout_ms;
                return Err(Code::RequestTimeout.error(format!("no answer in {after} ms")));
            }
        }
    }

    /// The next frame that answers a request, as `take` reads it; `None` if none comes within `patience`. Sends what was put first,
    /// and asks meanwhile whether the host is there.
    pub fn next<T>(&mut self, patience: Duration, take: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<Option<T>> {
        let until = Instant::now() + patience;
        loop {
            if let Some((start, end)) = self.next_frame()? {
                self.read = end;
                let (frame, _) = split(&self.received[start..end], FRAME_MAX_BYTES)?.ok_or_else(closed)?;
                return take(&frame).map(Some);
            }
            self.flush(None)?;
            let left = until.saturating_duration_since(Instant::now()).min(self.options.tick());
            // Even without patience, what has come is taken.
            let filled = if left < SHORT {
                self.fill_within(left)?
            } else {
                self.stream.set_read_timeout(left).map_err(|error| broken(&error))?;
                self.fill(None)?
            };
            if !filled && Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// When something came last.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Takes note of a clock that is to go with what is sent.
    pub fn saw(&mut self, hlc: Hlc) {
        self.hlc = self.hlc.max(hlc.get());
    }

    /// Where the next frame is that answers a request. Sees to those that concern the connection.
    fn next_frame(&mut self) -> Result<Option<(usize, usize)>> {
        loop {
            let start = self.read;
            let Some((frame, used)) = split(&self.received[start..self.filled], FRAME_MAX_BYTES)? else {
                return Ok(None);
            };
            self.hlc = self.hlc.max(frame.heading.hlc.get());
            let number = frame.heading.request;
            match (number, frame.kind) {
                (_, Ping::TYPE) => self.put_under(number, &Pong {}, EventId::NONE),
                (0, Pong::TYPE) => {}
                (0, Failure::TYPE) => return Err(ask::failure(&frame.message()?)),
                (0, _) => return Err(ask::unasked(&frame)),
                _ => return Ok(Some((start, start + used))),
            }
            self.read += used;
        }
    }

    /// Reads once. False if nothing came for a while.
    pub fn fill(&mut self, until: Option<Instant>) -> Result<bool> {
        self.make_room();
        let read = self.stream.read(&mut self.received[self.filled..]);
        self.took(read, until)
    }

    /// The same, with a short bound for this one time.
    fn fill_within(&mut self, time: Duration) -> Result<bool> {
        self.make_room();
        let mut read = self.stream.look(&mut self.received[self.filled..]);
        if !time.is_zero() && read.as_ref().is_err_and(is_pause) {
            read = self.stream.wait(time).and_then(|()| self.stream.look(&mut self.received[self.filled..]));
        }
        self.took(read, None)
    }

    fn took(&mut self, read: io::Result<usize>, until: Option<Instant>) -> Result<bool> {
        match read {
            Ok(0) => Err(closed()),
            Ok(count) => {
                self.filled += count;
                self.heard = Instant::now();
                self.pinged = false;
                Ok(true)
            }
            Err(error) if is_pause(&error) => {
                self.check_interrupt()?;
                self.keep_alive(until)?;
                Ok(false)
            }
            Err(error) => Err(broken(&error)),
        }
    }

    /// Room for the next read: what was looked at is forgotten, and a long frame gets a longer buffer as it comes in.
    fn make_room(&mut self) {
        if self.read == self.filled {
            (self.read, self.filled) = (0, 0);
            if self.received.len() > KEPT_BYTES {
                self.received = vec![0; READ_BYTES];
            }
        } else if self.received.len() - self.filled < READ_BYTES / 2 {
            self.received.copy_within(self.read..self.filled, 0);
            (self.read, self.filled) = (0, self.filled - self.read);
            if self.received.len() - self.filled < READ_BYTES / 2 {
                self.received.resize(self.received.len() * 2, 0);
            }
        }
    }

    /// Nothing came for a while: is the host there?
    fn keep_alive(&mut self, until: Option<Instant>) -> Result<()> {
        let (silent, most) = (self.heard.elapsed(), self.options.silence_max());
        if silent >= most {
            return Err(self.silent(silent));
        }
        if silent >= most / 2 && !self.pinged && self.greeted {
            self.pinged = true;
            self.put_under(0, &Ping {}, EventId::NONE);
            self.flush(until)?;
        }
        Ok(())
    }

    /// Counts silence from now on: something is asked now.
    pub fn listen_from_now(&mut self) {
        self.heard = Instant::now();
        self.pinged = false;
    }

    fn silent(&self, silent: Duration) -> Error {
        Code::PeerSilent.error(format!("the host has been silent for {} ms", silent.as_millis()))
    }

    fn check_interrupt(&self) -> Result<()> {
        if is_interrupted(&self.options) { Err(interrupted()) } else { Ok(()) }
    }
}

fn is_interrupted(options: &Options) -> bool {
    options.interrupted.as_ref().is_some_and(|interrupted| interrupted())
}

fn interrupted() -> Error {
    Code::CallInterrupted.error("a signal interrupted the call")
}

/// Not a failure, only a reason to look at the clock and at signals.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn open(place: &Place, options: &Options) -> Result<Raw> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::Interrupted => interrupted(),
        ErrorKind::TimedOut => Code::ConnectTimeout.error(format!("{place} did not accept the connection in time")),
        _ => refused(place, &error),
    };
    match place {
        Place::Unix(path) => UnixStream::connect(path).map(Raw::Unix).map_err(failed),
        Place::Tcp(peer) => {
            let times = (options.connect_timeout(), options.tick().min(INTERRUPT_LOOK));
            let check = || if is_interrupted(options) { Err(ErrorKind::Interrupted.into()) } else { Ok(()) };
            let found = connector::look_up(options.resolve.clone(), (&*peer.host, peer.port), times, check);
            let found = found.map_err(|error| match error.kind() {
                ErrorKind::TimedOut => Code::ConnectTimeout.error(format!("the name of {place} was not found in time")),
                _ => failed(error),
            })?;
            let stream = connector::connect(found, times, check).map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            Ok(Raw::Tcp(stream))
        }
    }
}
