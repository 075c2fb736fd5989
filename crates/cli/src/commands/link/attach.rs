//! `millrace device attach`: the host's end of the serial line of a device.
//!
//! ```text
//!            frames             bytes of the connection
//!   device ─────────── port ─┬──────────────────────────── host
//!                            └── text for the console: standard output
//! ```
//!
//! It understands frames only: what they carry may be encrypted. It goes on until a signal ends it, whether the port, the device or the host
//! goes and comes back meanwhile.

use super::port::Port;
use crate::{
    args::AttachArgs,
    args::Global,
    feed,
    out::Out,
    place::{Target, tidy},
    report::Outcome,
    show,
};
use millrace_device::serial::{Heard, Side};
use millrace_gateway::SOCKET;
use millrace_node::{Code, Namespace, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    fmt, io,
    net::{TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long the host may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait before the next attempt to open the port, or to reach the host.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest wait before a device is asked again whose host ends each connection at once, as if it was removed; and how long one takes that is not such.
const AGAIN_MAX: Duration = Duration::from_secs(60);
const BRIEF: Duration = Duration::from_secs(10);
/// How often a device without a connection is asked to begin one.
const CALL_EVERY: Duration = Duration::from_secs(5);
/// Text without an end of line is printed when nothing follows for so long.
const LINE_PAUSE: Duration = Duration::from_millis(200);
/// The longest wait without a look at the signals.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the end may take.
const FAREWELL: Duration = Duration::from_millis(500);
/// If the device says nothing for so long after something was sent to it, the last frame is sent again, once: it may have been lost, and
/// nothing follows that would show it. While the device waits for an answer, it asks for that frame by itself.
const REPEAT: Duration = Duration::from_secs(1);
/// After so long without a byte, the user is told.
const SILENCE: Duration = Duration::from_secs(10);
/// Nothing is read for a direction that has so many bytes to write.
const WAITING_BYTES_MAX: usize = 16 << 10;
pub(super) const READ_BYTES: usize = 4096;
/// A longer line of text is printed in parts.
const LINE_BYTES_MAX: usize = 1024;
/// If so many bytes came without a valid frame, and a third of them are no text, the baud rate is wrong.
const NOISE_BYTES: u64 = 512;

/// Where the connections of the device go.
#[derive(Clone)]
enum To {
    Tcp(String),
    Unix(PathBuf),
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            To::Tcp(address) => f.write_str(address),
            To::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl To {
    fn find(args: &AttachArgs, global: &Global) -> Result<Self> {
        if let Some(address) = &args.host {
            return super::check_host(address).map(|()| To::Tcp(address.clone()));
        }
        Ok(match Target::find(global)?.0 {
            // The directory may be that of an application, which has the namespace in it.
            Target::Directory(dir) => To::Unix(Namespace::open(&tidy(dir))?.dir().join(SOCKET)),
            Target::Socket(path) => To::Unix(path),
            Target::Peer(peer, _) if peer.host.contains(':') => To::Tcp(format!("[{}]:{}", peer.host, peer.port)),
            Target::Peer(peer, _) => To::Tcp(format!("{}:{}", peer.host, peer.port)),
        })
    }

    fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            To::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            To::Tcp(address) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            stream.set_nonblocking(true)?;
                            return Ok(stream.into());
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

/// Set by a signal; a second one ends the process at once.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|error| Code::Io.error(format!("signals cannot be received: {error}")))?;
    }
    Ok(flag)
}

pub fn run(args: &AttachArgs, global: &Global, out: &mut Out) -> Outcome {
    let (to, stop) = (To::find(args, global)?, stop_flag()?);
    let port = Port::open(&args.port, args.baud)?;
    let begun = Instant::now();
    let mut line = SerialLine {
        port: Some(port),
        side: Side::default(),
        host: None,
        to_port: Vec::new(),
        to_host: Vec::new(),
        text: Vec::new(),
        text_at: begun,
        call_at: begun,
        repeat_at: None,
        open_at: begun,
        is_unreachable: false,
        connected_at: begun,
        again: AGAIN,
        silent_since: Some(begun),
        noise: Noise::default(),
        args,
        to,
        out,
    };
    let said = json!({ "event": "attached", "port": args.port, "baud": args.baud, "host": line.to.to_string() });
    line.say(said, &format!("attached to {}; records go to {}; Ctrl-C ends this", args.port.display(), line.to))?;
    while !stop.load(Ordering::Relaxed) {
        line.step()?;
    }
    line.farewell()
}

/// Bytes since the last valid frame, and how many of them are no text.
#[derive(Default)]
pub(super) struct Noise {
    pub bytes: u64,
    odd: u64,
    is_reported: bool,
}

impl Noise {
    pub fn count(&mut self, byte: u8) {
        self.bytes += 1;
        self.odd += u64::from(!matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n'));
    }

    /// Whether too many bytes are no text for a port with the right baud rate.
    pub fn is_odd(&self) -> bool {
        self.bytes >= NOISE_BYTES && self.odd > self.bytes / 3
    }
}

struct SerialLine<'a> {
    port: Option<Port>,
    side: Side,
    host: Option<OwnedFd>,
    to_port: Vec<u8>,
    to_host: Vec<u8>,
    /// Text without its end of line, and when the last of it came.
    text: Vec<u8>,
    text_at: Instant,
    /// When the device is asked for a connection next, when the port is opened next, and when the last frame is sent again.
    call_at: Instant,
    open_at: Instant,
    repeat_at: Option<Instant>,
    is_unreachable: bool,
    /// When the last connection began, and how long to wait if it ends at once.
    connected_at: Instant,
    again: Duration,
    /// Since when nothing has come from a port that was opened, until that was reported.
    silent_since: Option<Instant>,
    noise: Noise,
    args: &'a AttachArgs,
    to: To,
    out: &'a mut Out,
}

/// Writes as much as is possible now; false if the other side is gone.
pub(super) fn write_some(fd: impl AsFd, bytes: &mut Vec<u8>) -> bool {
    if bytes.is_empty() {
        return true;
    }
    match rustix::io::write(fd, bytes) {
        Ok(written) => {
            bytes.drain(..written);
            true
        }
        Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

/// Reads once: the bytes, none if there are none now, or `None` if the other side is gone.
pub(super) fn read_some(fd: impl AsFd, buffer: &mut [u8; READ_BYTES]) -> Option<&[u8]> {
    match rustix::io::read(fd, &mut buffer[..]) {
        Ok(0) => None,
        Ok(size) => Some(&buffer[..size]),
        Err(Errno::AGAIN | Errno::INTR) => Some(&[]),
        Err(_) => None,
    }
}

impl SerialLine<'_> {
    /// An event: an object for programs, a line on standard error for people.
    fn say(&mut self, event: Value, text: &str) -> Outcome {
        self.print_text()?;
        if self.out.json() {
            self.out.object(&event)?;
            return Ok(self.out.flush()?);
        }
        feed::stderr(&format!("{text}\n"));
        Ok(())
    }

    fn step(&mut self) -> Outcome {
        let now = Instant::now();
        if self.port.is_none() && now >= self.open_at {
            self.reopen(now)?;
        }
        if !self.text.is_empty() && now >= self.text_at + LINE_PAUSE {
            self.print_text()?;
        }
        if self.port.is_some() && !self.side.is_open() && now >= self.call_at {
            self.call(now)?;
        }
        if self.repeat_at.is_some_and(|at| now >= at) {
            self.repeat_at = None;
            self.side.repeat(&mut self.to_port);
        }
        if self.silent_since.is_some_and(|at| now >= at + SILENCE) {
            self.silent_since = None;
            let text = format!(
                "nothing came from {} for {} s: is the device on, and is this its port?",
                self.args.port.display(),
                SILENCE.as_secs()
            );
            self.say(json!({ "event": "silent" }), &text)?;
        }
        let (port, host) = self.wait();
        if host {
            self.read_host()?;
        }
        if port {
            self.read_port()?;
        }
        if self.port.as_ref().is_some_and(|port| !write_some(port, &mut self.to_port)) {
            self.port_is_gone()?;
        }
        if self.host.as_ref().is_some_and(|host| !write_some(host, &mut self.to_host)) {
            self.host_is_gone()?;
        }
        Ok(())
    }

    /// Waits for bytes; whether the port and the host have some.
    fn wait(&self) -> (bool, bool) {
        let wanted = |reads: bool, writes: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            flags
        };
        let mut fds = Vec::with_capacity(2);
        if let Some(port) = &self.port {
            fds.push(PollFd::new(port, wanted(self.to_host.len() < WAITING_BYTES_MAX, !self.to_port.is_empty())));
        }
        if let Some(host) = &self.host {
            fds.push(PollFd::new(host, wanted(self.to_port.len() < WAITING_BYTES_MAX, !self.to_host.is_empty())));
        }
        let wait = if self.text.is_empty() { LOOK_EVERY } else { LINE_PAUSE };
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
        if poll(&mut fds, Some(&wait)).is_err() {
            return (false, false);
        }
        let ready = |index: usize| {
            let ends = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
            fds.get(index).is_some_and(|fd| fd.revents().intersects(ends))
        };
        let ports = usize::from(self.port.is_some());
        (self.port.is_some() && ready(0), self.host.is_some() && ready(ports))
    }

    // The port.

    fn read_port(&mut self) -> Outcome {
        let Some(port) = &self.port else { return Ok(()) };
        let mut buffer = [0; READ_BYTES];
        let Some(bytes) = read_some(port, &mut buffer) else { return self.port_is_gone() };
        if !bytes.is_empty() {
            self.silent_since = None;
        }
        for byte in bytes {
            self.noise.count(*byte);
            let Some(heard) = self.side.take(*byte, &mut self.to_port) else { continue };
            if !matches!(heard, Heard::Text(_) | Heard::Invalid) {
                self.noise = Noise::default();
            }
            self.hear(heard)?;
        }
        if self.noise.is_odd() && !self.noise.is_reported {
            self.noise.is_reported = true;
            let text = format!(
                "{} bytes came from {}, and are neither frames of a device nor text: is {} its baud rate (--baud)? Is its firmware one of \
                 Millrace?",
                self.noise.bytes,
                self.args.port.display(),
                self.args.baud
            );
            self.say(json!({ "event": "noise", "bytes": self.noise.bytes, "baud": self.args.baud }), &text)?;
        }
        Ok(())
    }

    fn hear(&mut self, heard: Heard) -> Outcome {
        match heard {
            Heard::Text(byte) => return self.take_text(byte),
            // Probably a frame that was changed: without it the connection cannot go on, and the device may be waiting for an answer to it.
            Heard::Invalid if self.side.is_open() => {
                self.side.close(&mut self.to_port);
                return self.hear(Heard::Lost);
            }
            Heard::Invalid | Heard::Repeated => {}
            Heard::Data(bytes) => {
                self.repeat_at = None;
                self.to_host.extend(bytes);
            }
            Heard::Opened => return self.connect(),
            Heard::Closed => {
                self.hang_up();
                self.call_at = Instant::now() + AGAIN;
                self.say(json!({ "event": "closed" }), "the device has ended its connection")?;
            }
            Heard::Lost => {
                self.hang_up();
                self.call_at = Instant::now();
                self.say(json!({ "event": "lost" }), "bytes were lost on the line; the device connects again")?;
            }
        }
        Ok(())
    }

    fn take_text(&mut self, byte: u8) -> Outcome {
        self.text_at = Instant::now();
        match byte {
            b'\r' => return Ok(()),
            b'\n' if self.text.is_empty() => self.text.push(b' '),
            b'\n' => {}
            byte => self.text.push(byte),
        }
        if byte == b'\n' || self.text.len() >= LINE_BYTES_MAX { self.print_text() } else { Ok(()) }
    }

    /// Prints text of the device, without what could move the cursor of a terminal.
    fn print_text(&mut self) -> Outcome {
        if self.text.is_empty() {
            return Ok(());
        }
        let text = show::one_line(self.text.trim_ascii_end());
        self.text.clear();
        match self.out.json() {
            true => self.out.object(&json!({ "event": "text", "text": text }))?,
            false => self.out.line(text)?,
        }
        Ok(self.out.flush()?)
    }

    fn port_is_gone(&mut self) -> Outcome {
        self.hang_up();
        self.port = None;
        (self.side, self.noise) = (Side::default(), Noise::default());
        self.to_port.clear();
        self.silent_since = None;
        self.open_at = Instant::now() + AGAIN;
        let text = format!("{} is gone; waiting for it", self.args.port.display());
        self.say(json!({ "event": "port-gone" }), &text)
    }

    fn reopen(&mut self, now: Instant) -> Outcome {
        self.open_at = now + AGAIN;
        let Ok(port) = Port::open(&self.args.port, self.args.baud) else { return Ok(()) };
        self.port = Some(port);
        (self.call_at, self.silent_since) = (now, Some(now));
        let text = format!("{} is back", self.args.port.display());
        self.say(json!({ "event": "port-back" }), &text)
    }

    // The host.

    fn hang_up(&mut self) {
        self.host = None;
        self.repeat_at = None;
        self.to_host.clear();
    }

    fn connect(&mut self) -> Outcome {
        self.hang_up();
        match self.to.connect() {
            Ok(host) => {
                self.host = Some(host);
                self.side.accept(&mut self.to_port);
                self.is_unreachable = false;
                self.connected_at = Instant::now();
                let text = format!("the device is connected to {}", self.to);
                self.say(json!({ "event": "connected", "host": self.to.to_string() }), &text)
            }
            Err(error) => {
                self.side.close(&mut self.to_port);
                self.call_at = Instant::now() + AGAIN;
                self.is_out_of_reach(&error)
            }
        }
    }

    fn is_out_of_reach(&mut self, error: &io::Error) -> Outcome {
        if self.is_unreachable {
            return Ok(());
        }
        (self.is_unreachable, self.again) = (true, AGAIN);
        let text = format!(
            "no host answers at {} ({error}); start it with `millrace serve`, or correct --host. The device waits",
            self.to
        );
        self.say(json!({ "event": "unreachable", "host": self.to.to_string(), "error": error.to_string() }), &text)
    }

    /// Asks the device to connect, if the host can be reached.
    fn call(&mut self, now: Instant) -> Outcome {
        self.call_at = now + CALL_EVERY;
        if self.is_unreachable && self.to.connect().is_err() {
            self.call_at = now + AGAIN;
            return Ok(());
        }
        Side::call(&mut self.to_port);
        Ok(())
    }

    fn read_host(&mut self) -> Outcome {
        let Some(host) = &self.host else { return Ok(()) };
        let mut buffer = [0; READ_BYTES];
        match read_some(host, &mut buffer) {
            Some([]) => {}
            Some(bytes) => {
                self.side.send(bytes, &mut self.to_port);
                self.repeat_at = Some(Instant::now() + REPEAT);
            }
            None => return self.host_is_gone(),
        }
        Ok(())
    }

    fn host_is_gone(&mut self) -> Outcome {
        self.hang_up();
        self.side.close(&mut self.to_port);
        let is_brief = self.connected_at.elapsed() < BRIEF;
        self.again = if is_brief { (self.again * 2).min(AGAIN_MAX) } else { AGAIN };
        self.call_at = Instant::now() + self.again;
        self.say(json!({ "event": "ended" }), "the host has ended the connection; the device connects again")
    }

    /// Tells the device that nobody listens any more.
    fn farewell(mut self) -> Outcome {
        self.print_text()?;
        self.side.close(&mut self.to_port);
        let until = Instant::now() + FAREWELL;
        while let Some(port) = &self.port
            && !self.to_port.is_empty()
            && Instant::now() < until
            && write_some(port, &mut self.to_port)
        {
            let mut fds = [PollFd::new(port, PollFlags::OUT)];
            let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
        }
        Ok(())
    }
}
