//! Requests to a host whose answers a test looks for without waiting.

use serde_json::Value;
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

/// A request, and what has come of its answer.
pub struct Request {
    line: TcpStream,
    answer: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl Request {
    /// Sends a request for a path below `/v1/namespaces/NAME`.
    pub fn send(port: u16, method: &str, path: &str, headers: &str, body: &str) -> std::io::Result<Self> {
        let mut line = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let length = body.len();
        let head = format!(
            "{method} /v1/namespaces/site/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        line.write_all(head.as_bytes())?;
        line.write_all(body.as_bytes())?;
        Ok(Self { line, answer: Vec::new() })
    }

    /// The answer, if it has come.
    pub fn poll(&mut self) -> Option<Answer> {
        self.line.set_nonblocking(true).expect("it is a socket");
        let mut bytes = [0; 4096];
        loop {
            match self.line.read(&mut bytes) {
                Ok(0) => return Some(parsed(&self.answer)),
                Ok(count) => self.answer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("the connection: {error}"),
            }
        }
    }

    /// The answer, once it has come; none if the host ended before.
    pub fn wait(mut self) -> Option<Answer> {
        self.line.set_nonblocking(false).expect("it is a socket");
        self.line.set_read_timeout(Some(Duration::from_secs(120))).expect("it is a socket");
        self.line.read_to_end(&mut self.answer).ok()?;
        self.answer.starts_with(b"HTTP/1.1 ").then(|| parsed(&self.answer))
    }
}

fn parsed(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    Answer { status: status.unwrap_or_else(|| panic!("no answer: {text}")), body }
}

/// Asks, and waits for the answer.
pub fn ask(port: u16, method: &str, path: &str, body: &str) -> Answer {
    Request::send(port, method, path, "", body).expect("the host listens").wait().expect("the host answers")
}
