//! device.fleet: a thousand devices that wake, measure, send and sleep, against one host.

use super::make;
use crate::{
    Context, Outcome,
    measure::Repeated,
    peers::redis::{self, Redis},
    rows::{Measured, namespace_with_logs, remote::Host},
};
use millrace_journal::Durability;
use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

const DEVICES: u64 = 1000;
/// Devices that are connected at the same time.
const AWAKE: usize = 64;
/// About what a record of a device has.
const RECORD: [u8; 10] = *b"d0001 1234";
const FLUSHES: &str = "millrace_flush_duration_seconds_count";

/// One figure of the host's metrics.
fn metric(host: &Host, name: &str) -> Outcome<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", host.port()))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text.lines().find(|line| line.starts_with(name)).ok_or_else(|| format!("no {name} in {text}"))?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

/// Days of all devices.
struct Days {
    rate: f64,
    records: f64,
    flushes: f64,
    host_cpu: f64,
}

fn days(context: &Context, program: &Path, hours: &str) -> Outcome<Days> {
    let dir = context.fresh()?;
    drop(namespace_with_logs(&dir.path().join("n"), Durability::Disk, &[])?);
    let host = Host::serve(context, dir, 0, &["n=n"])?;
    let flushes = metric(&host, FLUSHES)?;
    let cpu = host.cpu_s()?;
    let start = Instant::now();
    let output = Command::new(program)
        .args(["--host", &format!("127.0.0.1:{}", host.port()), "--devices", &DEVICES.to_string()])
        .args(["--hours", hours, "--every", "60", "--faults", "0", "--awake", &AWAKE.to_string()])
        .stdin(Stdio::null())
        .output()?;
    let elapsed = start.elapsed().as_secs_f64();
    if !output.status.success() {
        return Err(format!("fleet: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // Each line has a name and the newest record of each of two logs.
    let of_line = |line: &str| line.split(' ').skip(1).take(2).filter_map(|word| word.parse::<f64>().ok()).sum::<f64>();
    let records = text.lines().filter(|line| line.starts_with('d')).map(of_line).sum();
    Ok(Days {
        rate: records / elapsed,
        records,
        flushes: metric(&host, FLUSHES)? - flushes,
        host_cpu: host.cpu_s()? - cpu,
    })
}

pub fn fleet(context: &Context) -> Outcome<Measured> {
    make(context, &["build/fleet"])?;
    let program = context.root.join("device/build/fleet");
    let hours = if context.quick { "6" } else { "24" };
    let dir = context.fresh()?;
    let redis = Redis::start(dir.path())?;
    let [mut rates, mut flushes, mut host_us, mut of_redis] = [(); 4].map(|()| Repeated::default());
    let mut theirs = Repeated::default();
    let mut records = 0.0;
    for _ in 0..context.repetitions(5) {
        let days = days(context, &program, hours)?;
        rates.push(days.rate);
        flushes.push(days.flushes / days.records);
        host_us.push(days.host_cpu * 1e6 / days.records);
        records += days.records;
        if let Some(redis) = &redis {
            let rate = redis.benchmark(AWAKE, 1, &RECORD, 100_000)?.rate;
            theirs.push(rate);
            of_redis.push(days.rate / rate);
        }
    }
    let mut measured = Measured::new(rates.median(), records as u64)
        .target("≥ 5000 /s", rates.median() >= 5000.0)
        .target("≤ 0.05 flushes of the host a record", flushes.median() <= 0.05)
        .also("flushes of the host a record", flushes.median(), "")
        .also("processor time of the host a record", host_us.median(), "µs");
    measured = match redis {
        Some(_) => measured
            .also("ratio to Redis in the same repetition", of_redis.median(), "")
            .peer("redis-benchmark -c 64 XADD of 10 bytes, appendfsync always", theirs.median()),
        None => measured.note(redis::INSTALL),
    };
    Ok(measured.note(format!(
        "{DEVICES} devices (device/examples/fleet.c: the code of the device on this machine, its flash in memory) wake once \
         an hour of their own time for {hours} hours, at most {AWAKE} at a time. A device that wakes appends up to three \
         records of 10 bytes, or 20 if its flash is small, as that of every tenth is, each of which runs a function that appends \
         another; it connects, is attached, sends what the host lacks and waits until it is on the host's disk. The time \
         is that of all of it: of the devices, which one thread simulates, of their first connections, which create their \
         logs, and of the host, which imports records, runs and causes, on the same 2 cores. Records a second: {}; flushes \
         a record: {}. Redis stores records of the same length for as many clients, which stay connected. The host flushes when its \
         loop has read everything, and one thread of devices gives it little at once: 0.05 needs more devices at the same \
         time, or a host that waits.",
        rates.spread(),
        flushes.spread(),
    )))
}
