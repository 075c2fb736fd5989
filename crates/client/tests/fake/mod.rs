//! A host made of bytes by hand, which does to clients what no host should.

use millrace_client::Place;
use millrace_wire::{
    Durability, EventId, Hlc,
    protocol::{Append, Appended, Heading, Hello, Message, PREFACE, Pong, VERSION, Welcome, encode, split},
};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// The longest the host waits for a client; only liveness is meant.
const LONG: Duration = Duration::from_secs(120);

/// The host's end of a connection.
pub struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
}

/// Starts a host that does this with every connection; it ends with the test.
pub fn host(script: impl Fn(Peer) + Send + Sync + 'static) -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = std::sync::Arc::new(script);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let script = script.clone();
            thread::spawn(move || script(Peer { stream, input: Vec::new() }));
        }
    });
    format!("mr://127.0.0.1:{port}/farm").parse().unwrap()
}

pub fn framed<M: Message>(request: u64, message: &M) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, Heading { request, hlc: Hlc::from_bits(77), cause: EventId::NONE, slot: 0 }, message);
    out
}

pub fn welcome() -> Welcome<'static> {
    Welcome {
        version: VERSION,
        host: "fake",
        name: "farm",
        namespace: 1,
        epoch: 1,
        frame_max_bytes: 1 << 20,
        record_max_bytes: 1 << 19,
        requests_max: 64,
        durability: Durability::Memory,
    }
}

impl Peer {
    /// Bytes; whether the client took them.
    pub fn bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn send<M: Message>(&mut self, request: u64, message: &M) -> bool {
        self.bytes(&framed(request, message))
    }

    /// The type, request number and clock of the client's next frame; none when it has gone.
    pub fn next(&mut self) -> Option<(u8, u64, u64)> {
        loop {
            if let Some((frame, used)) = split(&self.input, usize::MAX).expect("the client sends frames") {
                let seen = (frame.kind, frame.heading.request, frame.heading.hlc.get());
                self.input.drain(..used);
                return Some(seen);
            }
            let mut bytes = [0; 1 << 16];
            match self.stream.read(&mut bytes) {
                Ok(count @ 1..) => self.input.extend_from_slice(&bytes[..count]),
                _ => return None,
            }
        }
    }

    /// The first bytes, which say what is spoken.
    pub fn first(&mut self) -> [u8; 4] {
        let mut first = [0; 4];
        self.stream.read_exact(&mut first).unwrap();
        first
    }

    /// Takes the client's greeting.
    pub fn hello(&mut self) -> u64 {
        assert_eq!(self.first(), PREFACE);
        self.greeting()
    }

    /// Takes the client's greeting behind its first bytes.
    pub fn greeting(&mut self) -> u64 {
        let (kind, request, _) = self.next().expect("a greeting");
        assert_eq!(kind, Hello::TYPE);
        request
    }

    /// Greets and is greeted.
    pub fn greeted(mut self) -> Self {
        let request = self.hello();
        self.send(request, &welcome());
        self
    }

    /// Answers appends and pings until the client has gone.
    pub fn serve(&mut self) {
        while let Some((kind, request, _)) = self.next() {
            match kind {
                Append::TYPE => self.send(request, &Appended { seqno: request, id: EventId::NONE }),
                _ => self.send(request, &Pong {}),
            };
        }
    }

    /// Answers pings and nothing else.
    pub fn only_pong(&mut self) {
        while let Some((kind, request, _)) = self.next() {
            if kind == 4 {
                self.send(request, &Pong {});
            }
        }
    }

    /// Says nothing, not even a greeting, until the client has gone.
    pub fn linger_silently(&mut self) {
        let mut bytes = [0; 1024];
        while matches!(self.stream.read(&mut bytes), Ok(1..)) {}
    }

    /// Holds the connection open until the client has gone, reading and saying nothing.
    pub fn linger(&mut self) {
        while self.next().is_some() {}
    }
}
