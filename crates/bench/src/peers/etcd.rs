//! etcd: a put is answered once the write-ahead logs of a majority of its members are on disk. One member, or three.

use super::{Server, patiently};
use crate::{Outcome, measure::Samples, rows::PAYLOAD};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// How to get it; for the note of a row that has to do without.
pub const INSTALL: &str = "etcd is not installed (apt-get install etcd-server) and left out.";

/// An etcd of our own on the loopback interface.
pub struct Etcd {
    _server: Server,
    port: u16,
}

impl Etcd {
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        let (port, peers) = (free_port()?, free_port()?);
        let arguments = format!(
            "--data-dir {} --listen-client-urls http://127.0.0.1:{port} --advertise-client-urls http://127.0.0.1:{port} \
             --listen-peer-urls http://127.0.0.1:{peers} --initial-advertise-peer-urls http://127.0.0.1:{peers} \
             --initial-cluster default=http://127.0.0.1:{peers}",
            dir.join("etcd").display()
        );
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let Some(server) = Server::start("etcd", &arguments, dir)? else { return Ok(None) };
        let etcd = Self { _server: server, port };
        patiently(|| etcd.put(1, &mut Samples::new()))?;
        Ok(Some(etcd))
    }

    /// Puts `count` values over a connection of its own.
    pub fn put(&self, count: u64, samples: &mut Samples) -> Outcome<()> {
        let body = format!(r#"{{"key":"{}","value":"{}"}}"#, STANDARD.encode("bench"), STANDARD.encode(PAYLOAD));
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

    fn answer(&self, path: &str, body: &str) -> Outcome<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")?;
        read_answer(&mut BufReader::new(stream))
    }
}

/// Three members of etcd on the loopback interface.
pub struct Cluster {
    members: Vec<Etcd>,
}

impl Cluster {
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        let ports = [(); 3].map(|()| Ok::<_, Box<dyn std::error::Error>>((free_port()?, free_port()?)));
        let ports = ports.into_iter().collect::<Outcome<Vec<(u16, u16)>>>()?;
        let named = ports.iter().enumerate().map(|(at, (_, peers))| format!("m{at}=http://127.0.0.1:{peers}"));
        let initial = named.collect::<Vec<_>>().join(",");
        let mut members = Vec::new();
        for (at, (port, peers)) in ports.iter().enumerate() {
            let arguments = format!(
                "--name m{at} --data-dir {} --listen-client-urls http://127.0.0.1:{port} \
                 --advertise-client-urls http://127.0.0.1:{port} --listen-peer-urls http://127.0.0.1:{peers} \
                 --initial-advertise-peer-urls http://127.0.0.1:{peers} --initial-cluster {initial}",
                dir.join(format!("etcd-{at}")).display()
            );
            let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            let Some(server) = Server::start("etcd", &arguments, dir)? else { return Ok(None) };
            members.push(Etcd { _server: server, port: *port });
        }
        patiently(|| members[0].put(1, &mut Samples::new()))?;
        Ok(Some(Self { members }))
    }

    /// Puts values of these bytes over so many connections to the member that leads until the time is up; puts in a second.
    pub fn rate(&self, connections: usize, data: &[u8], time: Duration) -> Outcome<f64> {
        let leader = &self.members[self.leader()?];
        let body = format!(r#"{{"key":"{}","value":"{}"}}"#, STANDARD.encode("bench"), STANDARD.encode(data));
        let start = Instant::now();
        let one = || -> Result<u64, String> {
            let mut samples = Samples::new();
            while start.elapsed() < time {
                leader.ask("/v3/kv/put", &body, 100, &mut samples).map_err(|error| error.to_string())?;
            }
            Ok(samples.count())
        };
        let counts = thread::scope(|scope| {
            let threads: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panics")).collect::<Result<Vec<u64>, String>>()
        })?;
        Ok(counts.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64())
    }

    fn leader(&self) -> Outcome<usize> {
        for (at, member) in self.members.iter().enumerate() {
            let status: serde_json::Value = serde_json::from_slice(&member.answer("/v3/maintenance/status", "{}")?)?;
            if status["leader"] == status["header"]["member_id"] {
                return Ok(at);
            }
        }
        Err("no member of etcd leads".into())
    }
}

/// Reads one answer of known length.
fn read_answer(answers: &mut BufReader<TcpStream>) -> Outcome<Vec<u8>> {
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
    let mut body = vec![0; length];
    answers.read_exact(&mut body)?;
    Ok(body)
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
