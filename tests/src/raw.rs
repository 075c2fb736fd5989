//! A client that may send anything, and reads when it likes.

use crate::Host;
use millrace_wire::protocol::{Append, Appended, Failure, Frame, Heading, Hello, Message, PREFACE, encode, split};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// The longest a host may neither answer nor close.
pub const LONG: Duration = Duration::from_secs(120);

/// A connection.
pub struct Client {
    /// Its socket, to send anything at all.
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// A connection that has said nothing but the preface.
    pub fn raw(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&PREFACE).unwrap();
        Self { stream, input: Vec::new() }
    }

    /// A connection that was welcomed.
    pub fn connect(port: u16) -> Self {
        let mut client = Self::raw(port);
        client.send(1, &hello());
        client.next(|frame| assert_eq!(frame.kind, 2, "welcome"));
        client
    }

    /// Sends a message.
    #[track_caller]
    pub fn send<M: Message>(&mut self, request: u64, message: &M) {
        self.stream.write_all(&framed(request, message)).unwrap();
    }

    /// The next frame, or nothing if the host closed.
    pub fn try_next<R>(&mut self, look: impl FnOnce(&Frame<'_>) -> R) -> Option<R> {
        loop {
            if let Some((frame, used)) = split(&self.input, usize::MAX).expect("the host sends frames") {
                let seen = look(&frame);
                self.input.drain(..used);
                return Some(seen);
            }
            let mut bytes = [0; 1 << 16];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the host neither answers nor closes: {error}"),
            }
        }
    }

    /// The next frame as it was sent.
    #[track_caller]
    pub fn next_bytes(&mut self) -> Vec<u8> {
        loop {
            if let Some((_, used)) = split(&self.input, usize::MAX).expect("the host sends frames") {
                return self.input.drain(..used).collect();
            }
            let mut bytes = [0; 1 << 16];
            let count = self.stream.read(&mut bytes).expect("the host answers");
            assert_ne!(count, 0, "the host closed");
            self.input.extend_from_slice(&bytes[..count]);
        }
    }

    /// The next frame.
    #[track_caller]
    pub fn next<R>(&mut self, look: impl FnOnce(&Frame<'_>) -> R) -> R {
        self.try_next(look).expect("the host closed")
    }

    /// The code of the failure that comes next.
    #[track_caller]
    pub fn failure(&mut self) -> String {
        self.next(|frame| frame.message::<Failure<'_>>().expect("a failure").code.to_owned())
    }

    /// Appends to the log `raw`; the record's number.
    #[track_caller]
    pub fn append(&mut self, data: &[u8]) -> u64 {
        self.send(7, &Append { log: "raw", data, ..Append::default() });
        self.next(|frame| frame.message::<Appended>().expect("appended").seqno)
    }

    /// Whether the connection is closed, sooner or later.
    pub fn is_closed(&mut self) -> bool {
        while self.try_next(|_| ()).is_some() {}
        true
    }
}

/// The handshake's first message.
pub fn hello() -> Hello<'static> {
    Hello { oldest: 2, newest: 2, client: "hostile", ..Hello::default() }
}

/// A message as it goes over the wire.
pub fn framed<M: Message>(request: u64, message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, Heading { request, ..Heading::default() }, message);
    bytes
}

/// Bytes of memory that are the host's own, not its mapped files'.
pub fn memory_bytes(host: &Host) -> u64 {
    memory_in(&status_file(host)).expect("the host runs")
}

/// Where the kernel tells of a host.
pub fn status_file(host: &Host) -> PathBuf {
    format!("/proc/{}/status", host.pid()).into()
}

/// [`memory_bytes`] of the process whose status this is; nothing once it has ended.
pub fn memory_in(status: &Path) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
