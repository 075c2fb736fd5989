//! held.load: the highest rate of appends that a host sustains for a minute, and its behaviour above that rate.
//!
//! The load is open: record n is due at n / rate, whether or not anything before it was answered, and its latency counts from then. So the
//! appends that are due while a host stalls count as well.

use super::Host;
use crate::{
    Context, Outcome, functions,
    measure::{Samples, figure},
    report::Point,
    rows::{Measured, function, remote::pipelined::SMALL},
};
use millrace_journal::{CreateOptions, Durability};
use millrace_node::{Namespace, Runtime};
use millrace_wire::protocol::{
    Append, Appended, Failure, Heading, Hello, Message, PREFACE, VERSION, Welcome, encode, split,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

const CONNECTIONS: u64 = 4;
const LOGS: [&str; 3] = ["a", "b", "c"];
/// What the appends of a rate that is held do not exceed.
const P99_MOST_US: f64 = 10_000.0;
/// A queue that a function fills in a fraction of a second if it is too slow for the rate.
const PENDING_MAX: u64 = 10_000;
/// What the load keeps ready to be sent over one connection; more only grows late.
const READY_MAX_BYTES: usize = 64 << 10;
/// The shares of the held rate that the curve shows.
const CURVE: [f64; 7] = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0];
/// Answers that have not come so long after the load has ended are missing.
const LATEST: Duration = Duration::from_secs(20);
/// Rates tried for a minute, each four fifths of the previous one.
const MINUTES_MOST: u32 = 6;
const FIRST_REQUEST: u64 = 2;

/// One connection of the load.
struct Line {
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
}

/// What became of the appends of one window.
struct Window {
    offered: f64,
    /// Acknowledged in a second, and refused.
    taken: f64,
    refused: f64,
    samples: Samples,
}

impl Window {
    fn is_held(&self) -> bool {
        self.refused == 0.0 && self.taken >= 0.98 * self.offered && self.samples.p99_us() <= P99_MOST_US
    }

    fn point(&self, share: f64) -> Point {
        Point {
            share,
            offered: self.offered,
            taken: self.taken,
            refused: self.refused,
            p50_us: self.samples.p50_us(),
            p99_us: self.samples.p99_us(),
        }
    }
}

impl Line {
    fn connect(port: u16) -> Outcome<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut hello = PREFACE.to_vec();
        let message =
            Hello { oldest: VERSION, newest: VERSION, namespace: "disk", client: "bench", ..Hello::default() };
        encode(&mut hello, Heading { request: 1, ..Heading::default() }, &message);
        stream.write_all(&hello)?;
        let mut input = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            if let Some((frame, used)) = split(&input, usize::MAX)? {
                if frame.kind != Welcome::TYPE {
                    return Err("the host does not welcome the load".into());
                }
                input.drain(..used);
                break;
            }
            match stream.read(&mut bytes)? {
                0 => return Err("the host closed".into()),
                count => input.extend_from_slice(&bytes[..count]),
            }
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream, out: Vec::new(), sent: 0, input })
    }

    fn ready_bytes(&self) -> usize {
        self.out.len() - self.sent
    }

    fn append(&mut self, request: u64) {
        let log = LOGS[request as usize % LOGS.len()];
        let heading = Heading { request, ..Heading::default() };
        encode(&mut self.out, heading, &Append { log, data: &SMALL, ..Append::default() });
    }

    fn write(&mut self) -> Outcome<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads what has come; `each` hears of every answer: its request, and whether the append was refused.
    fn read(&mut self, scratch: &mut [u8], mut each: impl FnMut(u64, bool)) -> Outcome<bool> {
        let mut any = false;
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return Err("the host closed".into()),
                Ok(count) => self.input.extend_from_slice(&scratch[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
            any = true;
            let mut used = 0;
            while let Some((frame, length)) = split(&self.input[used..], usize::MAX)? {
                used += length;
                match frame.kind {
                    Appended::TYPE => each(frame.heading.request, false),
                    _ => {
                        let failure: Failure<'_> = frame.message()?;
                        if failure.retry_after_ms.is_none() {
                            return Err(format!("{}: {}", failure.code, failure.detail).into());
                        }
                        each(frame.heading.request, true);
                    }
                }
            }
            self.input.drain(..used);
        }
        Ok(any)
    }
}

/// Offers this number of appends per second for a while, then waits for the open answers.
fn offer(host: &Host, rate: f64, time: Duration) -> Outcome<Window> {
    let mut lines = (0..CONNECTIONS).map(|_| Line::connect(host.port)).collect::<Outcome<Vec<_>>>()?;
    let mut scratch = vec![0; 64 << 10];
    let (mut made, mut answered, mut taken, mut refused) = (0u64, 0u64, 0u64, 0u64);
    let mut samples = Samples::new();
    let start = Instant::now();
    let mut taken_in_time = None;
    loop {
        let now = start.elapsed();
        let is_over = now >= time;
        let due = if is_over { made } else { (now.as_secs_f64() * rate) as u64 };
        let mut moved = false;
        while made < due && lines[(made % CONNECTIONS) as usize].ready_bytes() < READY_MAX_BYTES {
            lines[(made % CONNECTIONS) as usize].append(FIRST_REQUEST + made);
            made += 1;
            moved = true;
        }
        for line in &mut lines {
            line.write()?;
            moved |= line.read(&mut scratch, |request, is_refused| {
                answered += 1;
                if is_refused {
                    refused += 1;
                    return;
                }
                taken += 1;
                let was_due = Duration::from_secs_f64((request - FIRST_REQUEST) as f64 / rate);
                samples.record(start.elapsed().saturating_sub(was_due));
            })?;
        }
        if is_over {
            let _ = taken_in_time.get_or_insert(taken);
            if answered == made {
                break;
            }
            if now > time + LATEST {
                return Err(format!("{} of {made} appends were never answered", made - answered).into());
            }
        }
        if !moved {
            thread::sleep(Duration::from_micros(50));
        }
    }
    let seconds = time.as_secs_f64();
    let taken = taken_in_time.unwrap_or(taken) as f64 / seconds;
    Ok(Window { offered: rate, taken, refused: refused as f64 / seconds, samples })
}

/// [`offer`], from a host that has nothing left to do to one that has nothing left to do.
fn window(host: &Host, namespace: &Namespace, rate: f64, time: Duration) -> Outcome<Window> {
    let window = offer(host, rate, time)?;
    namespace.wait_idle(Duration::from_secs(60))?;
    eprintln!(
        "        {} /s for {} s: {} /s taken, {} /s refused, p50 {} µs, p99 {} µs",
        figure(rate),
        time.as_secs(),
        figure(window.taken),
        figure(window.refused),
        figure(window.samples.p50_us()),
        figure(window.samples.p99_us())
    );
    Ok(window)
}

pub fn held(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let options = CreateOptions { retain_bytes: 1 << 30, durability: Durability::Disk, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir.path().join("disk"), &options)?;
    super::super::namespace_with_logs(&dir.path().join("memory"), Durability::Memory, &[("a", 1)])?;
    let code = functions::wasm(context, "nothing")?;
    for log in LOGS {
        namespace.create_log(&log.parse()?, 10_000)?;
        let mut spec = function(&format!("of-{log}"), Runtime::Wasm, log)?;
        spec.pending_max = PENDING_MAX;
        millrace_node::functions::deploy(&namespace, &spec, &code)?;
    }
    let host = Host::serve(context, dir, 0, &super::BOTH)?;
    let (short, long) = if context.quick { (1, 4) } else { (3, 60) };
    let (short, long) = (Duration::from_secs(short), Duration::from_secs(long));
    window(&host, &namespace, 2_000.0, short)?;
    // From a rate that is held to one that is not, and then between them.
    let (mut held, mut not) = (0.0, 4_000.0);
    while window(&host, &namespace, not, short)?.is_held() {
        (held, not) = (not, not * 2.0);
    }
    for _ in 0..4 {
        let middle = (held + not) / 2.0;
        match window(&host, &namespace, middle, short)?.is_held() {
            true => held = middle,
            false => not = middle,
        }
    }
    // What holds for a moment may not hold for a minute.
    let mut rate = held;
    let mut tries = 0;
    let minute = loop {
        let minute = window(&host, &namespace, rate, long)?;
        tries += 1;
        if minute.is_held() || tries == MINUTES_MOST {
            break minute;
        }
        rate *= 0.8;
    };
    let mut curve = Vec::new();
    for share in CURVE {
        curve.push(window(&host, &namespace, share * rate, short)?.point(share));
    }
    let taken_at = |share: f64| curve.iter().find(|point| point.share == share).map_or(0.0, |point| point.taken);
    let kept = taken_at(2.0) / taken_at(1.0);
    let note = format!(
        "Appends of {} bytes over {CONNECTIONS} connections to {} logs in turn, durability disk. A Wasm function that \
         does nothing is bound to each log, and {PENDING_MAX} of its runs may wait. The load, the host, the functions \
         and the disk share 2 cores. The rate is the highest one that was sustained for {} s with p99 ≤ 10 ms and no \
         refusal, reduced by a fifth after each failed attempt to sustain it for {} s ({tries} attempts in all). The \
         load does not wait for answers: a latency is measured from the time at which the append was due. The table \
         shows windows of {} s in which a share of that rate was offered; latencies are those of accepted appends.",
        SMALL.len(),
        LOGS.len(),
        short.as_secs(),
        long.as_secs(),
        short.as_secs(),
    );
    Ok(Measured::new(rate, minute.samples.count())
        .percentiles(minute.samples.p50_us(), minute.samples.p99_us())
        .target("p99 ≤ 10 ms for 60 s", minute.is_held())
        .target("at twice the rate no less than 90 % of it", kept >= 0.9)
        .also("accepted at twice the rate, relative to the rate", kept, "")
        .also("resident memory of the host at the end", host.resident_mb()?, "MB")
        .curve(curve)
        .note(note))
}
