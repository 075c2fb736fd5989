//! outbox.rate, relay.catchup: records on their way to another host.

use super::{Host, await_that};
use crate::{
    Context, Outcome,
    children::Helper,
    measure::Repeated,
    rows::{Measured, host::program, namespace_with_logs},
};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, Namespace, NewRecord};
use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long an append waits for room in the outbox.
const PATIENCE: Duration = Duration::from_secs(20);

/// A second host: it serves `dir/source` over its Unix socket, and carries what is to go elsewhere.
struct Source(Child);

impl Source {
    fn start(context: &Context, dir: &Path) -> Outcome<Self> {
        let mut child = Command::new(program(context)?)
            .args(["--namespace", "source", "serve", "--listen", "none"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = [0; 1];
        let count = child.stdout.as_mut().ok_or("a program without output")?.read(&mut said)?;
        if count == 0 { Err("millrace serve ended early".into()) } else { Ok(Self(child)) }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Its namespace goes with the directory.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Appends `count` records of these bytes, as many to a commit as fit.
fn append_many(namespace: &Namespace, log: &str, payload: &[u8], count: u64) -> Outcome<()> {
    let one = || Ok(NewRecord { log: log.into(), payload: payload.into() });
    let options = AppendOptions { patience: PATIENCE, ..AppendOptions::default() };
    Ok(namespace.append_many((0..count).map(|_| one()), options, |_| ())?)
}

pub fn outbox(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let source = namespace_with_logs(&dir.path().join("source"), Durability::Memory, &[("a", 10)])?;
    let host = Host::start(context, 1 << 20)?;
    let target = host.client("memory")?;
    let address = format!("{}/a", host.place("memory")?);
    let _carrier = Source::start(context, dir.path())?;
    let count = if context.quick { 50_000 } else { 200_000 };
    let payload = [7; 100];
    let mut sent = 0;
    let mut round = |count: u64| -> Outcome<f64> {
        let start = Instant::now();
        for _ in 0..count {
            let options = AppendOptions { patience: PATIENCE, ..AppendOptions::default() };
            source.append(&address, &payload, options)?;
        }
        sent += count;
        await_that("every message has arrived", || {
            Ok(target.latest("a", sent - 1, millrace_client::Wait::ms(1000))? >= sent)
        })?;
        let rate = count as f64 / start.elapsed().as_secs_f64();
        if target.latest("a", 0, millrace_client::Wait::default())? != sent {
            return Err("more arrived than was sent".into());
        }
        Ok(rate)
    };
    round(1000)?;
    let mut rates = Repeated::default();
    for _ in 0..context.repetitions(5) {
        rates.push(round(count)?);
    }
    let stream = stream_mb_per_s(payload.len(), context)?;
    Ok(Measured::new(rates.median(), count * context.repetitions(5) as u64)
        .target("≥ 100 000 /s", rates.median() >= 100_000.0)
        .peer("raw TCP, the same payloads", stream * 1e6 / payload.len() as f64)
        .note(format!(
            "A program appends {count} messages to an address one by one, of {} bytes each; measured from the first \
             append until the last message is in the other host's log. Each message arrives once, and is committed \
             there in one batch with its number. Durability memory on both sides; both hosts and the program share 2 \
             cores. Value: {}.",
            payload.len(),
            rates.spread()
        )))
}

pub fn catchup(context: &Context) -> Outcome<Measured> {
    let (record_bytes, bytes) = (16 << 10, if context.quick { 128u64 << 20 } else { 1 << 30 });
    let count = bytes / record_bytes as u64;
    let mut rates = Repeated::default();
    let mut host_count = 0;
    for _ in 0..context.repetitions(3) {
        let dir = context.fresh()?;
        let source = namespace_with_logs(&dir.path().join("source"), Durability::Memory, &[("a", count + 1)])?;
        let host = Host::start(context, count + 1)?;
        let address = format!("{}/a", host.place("memory")?);
        append_many(&source, "a", &vec![7; record_bytes], count)?;
        let added = Command::new(program(context)?)
            .args(["--namespace", "source", "relay", "add", "a", &address])
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .status()?;
        if !added.success() {
            return Err("the relay could not be added".into());
        }
        let target = host.client("memory")?;
        let start = Instant::now();
        let _carrier = Source::start(context, dir.path())?;
        await_that("every record has arrived", || {
            Ok(target.latest("a", count - 1, millrace_client::Wait::ms(1000))? >= count)
        })?;
        rates.push(bytes as f64 / 1e6 / start.elapsed().as_secs_f64());
        host_count += 1;
    }
    let stream = stream_mb_per_s(record_bytes, context)?;
    Ok(Measured::new(rates.median(), count * host_count)
        .target("≥ 300 MB/s", rates.median() >= 300.0)
        .peer("raw TCP, the same records", stream)
        .note(format!(
            "{} MiB in records of {} KiB wait in a log when its host starts; measured from the start of that host \
             until the other host has all records. Durability memory on both sides; both hosts share 2 cores. Value: \
             {}.",
            bytes >> 20,
            record_bytes >> 10,
            rates.spread()
        )))
}

/// Bytes in records of this size through a bare TCP connection into another process, in MB/s.
fn stream_mb_per_s(record_bytes: usize, context: &Context) -> Outcome<f64> {
    let mut server = Helper::start("echo-tcp", &["1048576", "1"])?;
    let port: u16 = server.line()?.parse()?;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let record = vec![7; record_bytes];
    let mebibytes = if context.quick { 128 } else { 1024 };
    let (mut answer, mut buffer) = ([0; 1], Vec::with_capacity(1 << 20));
    let start = Instant::now();
    for _ in 0..mebibytes {
        while buffer.len() < 1 << 20 {
            let length = record_bytes.min((1 << 20) - buffer.len());
            buffer.extend_from_slice(&record[..length]);
        }
        stream.write_all(&buffer)?;
        stream.read_exact(&mut answer)?;
        buffer.clear();
    }
    Ok(f64::from(mebibytes) * 1.048_576 / start.elapsed().as_secs_f64())
}
