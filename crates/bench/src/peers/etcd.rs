//! etcd: a put is answered once the write-ahead log is on disk, of one member, or of two of three.

use super::{Server, patiently};
use crate::{Outcome, measure::Samples, rows::PAYLOAD};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    time::Instant,
};

/// How to get it; for the note of a row that has to do without.
pub const INSTALL: &str = "etcd is not installed (apt-get install etcd-server) and was not measured.";

/// An etcd of our own on the loopback interface.
pub struct Etcd {
    _servers: Vec<Server>,
    port: u16,
}

impl Etcd {
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        Self::start_members(dir, 1)
    }

    /// Three members; the first one is asked.
    pub fn start_three(dir: &Path) -> Outcome<Option<Self>> {
        Self::start_members(dir, 3)
    }

    fn start_members(dir: &Path, count: usize) -> Outcome<Option<Self>> {
        let ports = (0..count).map(|_| Ok((free_port()?, free_port()?))).collect::<Outcome<Vec<_>>>()?;
        let all = ports.iter().enumerate().map(|(number, (_, peer))| format!("m{number}=http://127.0.0.1:{peer}"));
        let all = all.collect::<Vec<_>>().join(",");
        let mut servers = Vec::new();
        for (number, (port, peer)) in ports.iter().enumerate() {
            let arguments = format!(
                "--name m{number} --data-dir {} --listen-client-urls http://127.0.0.1:{port} \
                 --advertise-client-urls http://127.0.0.1:{port} --listen-peer-urls http://127.0.0.1:{peer} \
                 --initial-advertise-peer-urls http://127.0.0.1:{peer} --initial-cluster {all}",
                dir.join(format!("etcd-{number}")).display()
            );
            let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            let Some(server) = Server::start("etcd", &arguments, dir)? else { return Ok(None) };
            servers.push(server);
        }
        let etcd = Self { _servers: servers, port: ports[0].0 };
        patiently(|| etcd.put(1, &mut Samples::new()))?;
        Ok(Some(etcd))
    }

    /// Puts `count` values over a connection of its own.
    pub fn put(&self, count: u64, samples: &mut Samples) -> Outcome<()> {
        self.put_bytes(PAYLOAD.len(), count, samples)
    }

    /// The same with values of this size.
    pub fn put_bytes(&self, bytes: usize, count: u64, samples: &mut Samples) -> Outcome<()> {
        let value = STANDARD.encode(vec![7; bytes]);
        let body = format!(r#"{{"key":"{}","value":"{value}"}}"#, STANDARD.encode("bench"));
        self.ask("/v3/kv/put", &body, count, samples)
    }

    /// Reads a value that needs no agreement: what the protocol alone costs.
    pub fn read(&self, count: u64, samples: &mut Samples) -> Outcome<()> {
        let body = format!(r#"{{"key":"{}","serializable":true}}"#, STANDARD.encode("bench"));
        self.ask("/v3/kv/range", &body, count, samples)
    }

    fn ask(&self, path: &str, body: &str, count: u64, samples: &mut Samples) -> Outcome<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        let mut answers = BufReader::new(stream.try_clone()?);
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        for _ in 0..count {
            let start = Instant::now();
            stream.write_all(request.as_bytes())?;
            read_answer(&mut answers)?;
            samples.record(start.elapsed());
        }
        Ok(())
    }
}

/// Reads one answer of known length.
fn read_answer(answers: &mut BufReader<TcpStream>) -> Outcome<()> {
    let (mut line, mut length, mut first) = (String::new(), 0, true);
    loop {
        line.clear();
        if answers.read_line(&mut line)? == 0 {
            return Err("etcd closed the connection".into());
        }
        if first && !line.contains(" 200 ") {
            return Err(format!("etcd said {line}").into());
        }
        first = false;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    answers.read_exact(&mut vec![0; length])?;
    Ok(())
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
