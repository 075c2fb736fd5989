//! Redis with `appendfsync always`: an XADD is answered once the append-only file is on disk.

use super::{Server, patiently};
use crate::{Outcome, measure::Samples, rows::PAYLOAD};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// For the note of a row that was measured without Redis: how to install it.
pub const INSTALL: &str = "Redis is not installed (apt-get install redis-server) and was not measured.";
/// The description of the scenario, for the note of a row.
pub const SCENARIO: &str = "Redis 7: XADD of the same record over a Unix socket, `appendfsync always`, no pipelining.";

/// The result of redis-benchmark.
pub struct Benchmark {
    /// Records per second.
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// A Redis of our own on a socket in `dir`, and on the loopback interface.
pub struct Redis {
    _server: Server,
    socket: PathBuf,
    port: u16,
}

impl Redis {
    /// Starts one that answers when the record is on disk.
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        // No rewriting and no snapshots during the measurement, because they would make it slower.
        Self::launch(dir, "redis", "--appendonly yes --appendfsync always --auto-aof-rewrite-percentage 0")
    }

    /// Starts one that keeps everything in memory only.
    pub fn start_forgetful(dir: &Path) -> Outcome<Option<Self>> {
        Self::launch(dir, "forgetful", "--appendonly no")
    }

    fn launch(dir: &Path, name: &str, how: &str) -> Outcome<Option<Self>> {
        let socket = dir.join(format!("{name}.sock"));
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let arguments = format!("--port {port} --bind 127.0.0.1 --unixsocket {} --save  {how}", socket.display());
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let Some(server) = Server::start("redis-server", &arguments, dir)? else { return Ok(None) };
        patiently(|| Ok(UnixStream::connect(&socket)?))?;
        Ok(Some(Self { _server: server, socket, port }))
    }

    /// Appends `count` records over a connection of its own.
    pub fn append(&self, count: u64, samples: &mut Samples) -> Outcome<()> {
        append(UnixStream::connect(&self.socket)?, count, Duration::ZERO, samples)
    }

    /// Appends over TCP, with a pause of `pace` before each record.
    pub fn paced(&self, count: u64, pace: Duration, samples: &mut Samples) -> Outcome<()> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        append(stream, count, pace, samples)
    }

    /// Repeats the same request over TCP, with a pause of `pace` before each.
    pub fn ask(&self, parts: &[&[u8]], count: u64, pace: Duration, samples: &mut Samples) -> Outcome<()> {
        let mut asker = self.asker()?;
        for _ in 0..count {
            thread::sleep(pace);
            let start = Instant::now();
            asker.ask(parts)?;
            samples.record(start.elapsed());
        }
        Ok(())
    }

    /// A connection over TCP.
    pub fn asker(&self) -> Outcome<Asker> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        Ok(Asker { stream, answer: vec![0; 8192] })
    }

    /// The result of redis-benchmark, given the number of clients and of unanswered appends of each.
    pub fn benchmark(&self, clients: usize, pipelined: u32, data: &[u8], count: u64) -> Outcome<Benchmark> {
        let data: String = data.iter().map(|_| '7').collect();
        let output = Command::new("redis-benchmark")
            .args(["-p", &self.port.to_string(), "-c", &clients.to_string(), "-P", &pipelined.to_string()])
            .args(["-n", &count.to_string(), "--csv", "XADD", "bench", "MAXLEN", "~", "10000", "*", "d", &data])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
        let figures: Vec<f64> = text.lines().last().map_or(Vec::new(), |line| {
            line.trim_matches('"').split("\",\"").filter_map(|figure| figure.parse().ok()).collect()
        });
        match figures[..] {
            [rate, _, _, p50_ms, _, p99_ms, _] => Ok(Benchmark { rate, p50_us: p50_ms * 1e3, p99_us: p99_ms * 1e3 }),
            _ => Err(format!("redis-benchmark printed {text}").into()),
        }
    }
}

/// A connection for one request at a time.
pub struct Asker {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Asker {
    /// Makes a request; returns the bytes of the answer.
    pub fn ask(&mut self, parts: &[&[u8]]) -> Outcome<&[u8]> {
        let mut request = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&request)?;
        let mut length = 0;
        while !is_whole(&self.answer[..length]) {
            if length == self.answer.len() {
                self.answer.resize(2 * length, 0);
            }
            let read = self.stream.read(&mut self.answer[length..])?;
            length += read;
            if read == 0 || self.answer[0] == b'-' {
                return Err(format!("Redis answered {:?}", String::from_utf8_lossy(&self.answer[..length])).into());
            }
        }
        Ok(&self.answer[..length])
    }
}

/// Whether an answer is complete: a line, a bulk string, or an array of such.
fn is_whole(answer: &[u8]) -> bool {
    after(answer).is_some()
}

/// The bytes after the first value of an answer, once that is complete.
fn after(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = (std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 2..]);
    match (line.strip_prefix('$'), line.strip_prefix('*')) {
        (Some(bytes), _) => bytes.parse::<usize>().map_or(Some(rest), |bytes| rest.get(bytes + 2..)),
        (_, Some(count)) => (0..count.parse::<usize>().unwrap_or(0)).try_fold(rest, |rest, _| after(rest)),
        _ => Some(rest),
    }
}

fn append(mut stream: impl Read + Write, count: u64, pace: Duration, samples: &mut Samples) -> Outcome<()> {
    let mut request = Vec::new();
    // A bounded stream, like our log.
    for part in [&b"XADD"[..], b"bench", b"MAXLEN", b"~", b"10000", b"*", b"d", &PAYLOAD] {
        if request.is_empty() {
            request.extend_from_slice(b"*8\r\n");
        }
        request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        request.extend_from_slice(part);
        request.extend_from_slice(b"\r\n");
    }
    let mut answer = [0; 256];
    for _ in 0..count {
        if !pace.is_zero() {
            thread::sleep(pace);
        }
        let start = Instant::now();
        stream.write_all(&request)?;
        let mut length = 0;
        // The answer is the entry's id as a bulk string: a line of length, a line of text.
        while answer[..length].iter().filter(|byte| **byte == b'\n').count() < 2 {
            let read = stream.read(&mut answer[length..])?;
            if read == 0 || answer[0] != b'$' {
                return Err(format!("Redis answered {:?}", String::from_utf8_lossy(&answer[..length + read])).into());
            }
            length += read;
        }
        samples.record(start.elapsed());
    }
    Ok(())
}
