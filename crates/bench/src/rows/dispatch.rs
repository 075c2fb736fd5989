//! dispatch.*: from an append to the first instruction of the function that it runs. idle.result: to its result.

use super::{Measured, function, namespace_with_logs, text};
use crate::{
    Context, Outcome,
    children::{ECHO_BYTES, Helper, echo},
    functions,
    measure::{Repeated, Samples, wall_ns},
    peers::{cspot, wake},
};
use millrace_journal::{Durability, Log};
use millrace_node::{AppendOptions, FunctionSpec, Namespace, Runtime};
use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Between two appends of the paced scenarios.
const PACE: Duration = Duration::from_micros(500);
/// Between two appends to a host that has nothing else to do.
const IDLE_PACE: Duration = Duration::from_millis(5);
/// Records kept, more than any scenario appends.
const HISTORY: u64 = 1 << 17;

/// What the appender does after an append.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Sleeps for the pace, without waiting for the function.
    Sleeps,
    /// Sleeps until the function's own record is there, then for the pace.
    Awaits,
}

/// A namespace with a function that says when it started, and a host for it in a process of its own.
struct Bench {
    host: Helper,
    namespace: Namespace,
    out: Log,
    sent_ns: Vec<u64>,
    pace: Duration,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(context: &Context, spec: &FunctionSpec, code: &Path) -> Outcome<Self> {
        let mut bench = Self::cold(context, spec, code, "host")?;
        // The first runs start the function.
        bench.round(50, Then::Awaits)?;
        Ok(bench)
    }

    /// The same, whose host has run nothing; `host` is what it does.
    fn cold(context: &Context, spec: &FunctionSpec, code: &Path, host: &str) -> Outcome<Self> {
        let dir = context.fresh()?;
        let path = dir.path().join("n");
        let namespace = namespace_with_logs(&path, Durability::Memory, &[("in", HISTORY), ("out", HISTORY)])?;
        millrace_node::functions::deploy(&namespace, spec, code)?;
        let mut host = Helper::start(host, &[text(&path)?])?;
        host.line()?; // How long its start took is another row.
        let out = namespace.log("out")?;
        Ok(Self { host, namespace, out, sent_ns: Vec::new(), pace: PACE, _dir: dir })
    }

    /// Appends `count` records; returns the times to their functions' first instructions, and to their results.
    fn round(&mut self, count: u64, then: Then) -> Outcome<(Samples, Samples)> {
        let (first, mut results) = (self.out.latest() + 1, Samples::new());
        self.sent_ns.clear();
        for n in 0..count {
            let start = Instant::now();
            self.sent_ns.push(wall_ns());
            self.namespace.append("in", &[1; 64], AppendOptions::default())?;
            if then == Then::Awaits {
                self.await_result(first + n)?;
                results.record(start.elapsed());
            }
            thread::sleep(self.pace);
        }
        self.await_result(first + count - 1)?;
        let mut latencies = Samples::new();
        let mut payload = Vec::new();
        for n in 0..count {
            self.namespace.journal().get(&self.out, first + n, &mut payload)?;
            latencies.record_ns(stamp(&payload)?.saturating_sub(self.sent_ns[n as usize]));
        }
        if self.out.latest() != first + count - 1 {
            return Err(format!(
                "{count} appends made the log {} long instead of {}",
                self.out.latest(),
                first + count - 1
            )
            .into());
        }
        Ok((latencies, results))
    }

    fn await_result(&self, seqno: u64) -> Outcome<()> {
        let (journal, start) = (self.namespace.journal(), Instant::now());
        while self.out.latest() < seqno {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(format!("record {seqno} of the function is missing after 20 s").into());
            }
            journal.wait_log(&self.out, seqno - 1, Duration::from_secs(1))?;
        }
        Ok(())
    }
}

/// The time that a function wrote: eight bytes, or text from one that writes lines.
fn stamp(payload: &[u8]) -> Outcome<u64> {
    match <[u8; 8]>::try_from(payload) {
        Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
        Err(_) => Ok(std::str::from_utf8(payload)?.trim().parse()?),
    }
}

/// All repetitions of one scenario.
struct Scenario {
    p50s: Repeated,
    latencies: Samples,
    results: Samples,
}

fn scenario(bench: &mut Bench, repetitions: usize, count: u64, then: Then) -> Outcome<Scenario> {
    let mut all = Scenario { p50s: Repeated::default(), latencies: Samples::new(), results: Samples::new() };
    for _ in 0..repetitions {
        let (latencies, results) = bench.round(count, then)?;
        all.p50s.push(latencies.p50_us());
        all.latencies.add(&latencies);
        all.results.add(&results);
    }
    Ok(all)
}

/// The first run of a function in a host of this role.
pub fn cold(context: &Context, spec: &FunctionSpec, code: &Path, host: &str) -> Outcome<Samples> {
    let mut bench = Bench::cold(context, spec, code, host)?;
    let (latencies, _) = bench.round(1, Then::Awaits)?;
    bench.host.finish()?;
    Ok(latencies)
}

/// Runs of a function that has run before, in a host of this role.
pub fn warm(context: &Context, spec: &FunctionSpec, code: &Path, host: &str) -> Outcome<Samples> {
    let mut bench = Bench::cold(context, spec, code, host)?;
    bench.round(50, Then::Awaits)?;
    let (latencies, _) = bench.round(1000, Then::Awaits)?;
    bench.host.finish()?;
    Ok(latencies)
}

/// Appends to a sleeping host: both scenarios, and what they come to.
fn measured(context: &Context, spec: &FunctionSpec, code: &Path, p50_max: f64) -> Outcome<(Measured, f64)> {
    let mut bench = Bench::new(context, spec, code)?;
    let (repetitions, count) = (context.repetitions(8), 1000);
    let sleeps = scenario(&mut bench, repetitions, count, Then::Sleeps)?;
    let awaits = scenario(&mut bench, repetitions, count, Then::Awaits)?;
    bench.host.finish()?;
    let worse = sleeps.p50s.median().max(awaits.p50s.median());
    let p99 = sleeps.latencies.p99_us().max(awaits.latencies.p99_us());
    let measured = Measured::new(sleeps.p50s.median(), sleeps.latencies.count())
        .spread_us(&sleeps.latencies)
        .target(format!("p50 ≤ {p50_max} µs"), worse <= p50_max)
        .also("result awaited, p50", awaits.p50s.median(), "µs")
        .also("result awaited, p99", awaits.latencies.p99_us(), "µs")
        .also("append to result, p50", awaits.results.p50_us(), "µs")
        .also("append to result, p99", awaits.results.p99_us(), "µs")
        .note(format!(
            "The time from just before an append to the first instruction of the function, which reads the clock. The \
             host is a separate process that sleeps between the records; nothing is pinned, and no thread spins. \
             Value: the appender sleeps 500 µs after each append, {}. Result awaited: the appender sleeps until the \
             function has appended its own record, and then another 500 µs, {}. Both figures must reach the target.",
            sleeps.p50s.spread(),
            awaits.p50s.spread()
        ));
    Ok((measured, p99))
}

pub fn wasm(context: &Context) -> Outcome<Measured> {
    let code = functions::wasm(context, "stamp")?;
    let (measured, p99) = measured(context, &function("f", Runtime::Wasm, "in")?, &code, 15.0)?;
    let wake = wake::futex(4000, PACE)?;
    Ok(measured
        .target("p99 ≤ 80 µs", p99 <= 80.0)
        .peer("futex wake alone, p50", wake.p50_us())
        .peer("futex wake alone, p99", wake.p99_us())
        .peer("CSPOT, handler linked in", cspot::HANDLER_US)
        .note("Futex wake: one thread wakes another that sleeps, at the same pace, also not pinned.")
        .note(cspot::SOURCE))
}

pub fn idle(context: &Context) -> Outcome<Measured> {
    let mut bench = Bench::new(context, &function("f", Runtime::Wasm, "in")?, &functions::wasm(context, "stamp")?)?;
    bench.pace = IDLE_PACE;
    let count = 400;
    let (mut first, mut results, mut wakes) = (Samples::new(), Samples::new(), Samples::new());
    let (mut p50, mut ratio) = (Repeated::default(), Repeated::default());
    for round in 0..=context.repetitions(8) {
        let wake = wake::futex(count, IDLE_PACE)?;
        let (latencies, awaited) = bench.round(count.into(), Then::Awaits)?;
        if round > 0 {
            // The first round warms up.
            p50.push(awaited.p50_us());
            ratio.push(awaited.p50_us() / wake.p50_us());
            first.add(&latencies);
            results.add(&awaited);
            wakes.add(&wake);
        }
    }
    bench.host.finish()?;
    Ok(Measured::new(p50.median(), results.count())
        .spread_us(&results)
        .target("p50 ≤ 3 × futex wake", ratio.median() <= 3.0)
        .also("ratio to futex wake", ratio.median(), "")
        .also("append to first instruction, p50", first.p50_us(), "µs")
        .peer("futex wake alone, p50", wakes.p50_us())
        .peer("futex wake alone, p99", wakes.p99_us())
        .note(format!(
            "The time from just before an append until the appender runs again, after the function has appended its \
             own record. Then the appender sleeps 5 ms, so that host and processor are idle at each append. The host \
             is a separate process; durability memory; nothing is pinned, and no thread spins. The time includes two \
             wake-ups across processes, of the host and of the appender, and between them two commits (claim and \
             publication) and a fresh instance, with cold caches. At the function's first instruction, half of the \
             time has passed. Futex wake: one thread wakes another, at the same pace, alternating with the appends. \
             Ratio in the same repetition: {}.",
            ratio.spread()
        )))
}

pub fn python(context: &Context) -> Outcome<Measured> {
    let mut spec = function("f", Runtime::Python, "in")?;
    spec.handler = "stamp:stamp".into();
    let (measured, _) = measured(context, &spec, &functions::source("stamp.py"), 40.0)?;
    beside_a_socket(measured)
}

pub fn process(context: &Context) -> Outcome<Measured> {
    let code = functions::native(context, "stamp")?;
    let mut spec = function("f", Runtime::Process, "in")?;
    spec.command = vec!["./stamp".into()];
    let (measured, _) = measured(context, &spec, &code, 40.0)?;
    beside_a_socket(measured)
}

/// Adds what the way to a waiting process and back costs without us.
fn beside_a_socket(measured: Measured) -> Outcome<Measured> {
    let (mut ours, mut child) = echo()?;
    let (mut there, mut back) = (Samples::new(), Samples::new());
    let mut message = [0; ECHO_BYTES];
    for _ in 0..4000 {
        thread::sleep(PACE);
        let (start, sent_ns) = (Instant::now(), wall_ns());
        ours.write_all(&message)?;
        ours.read_exact(&mut message)?;
        back.record(start.elapsed());
        let came_ns = stamp(&message[..8])?;
        there.record_ns(came_ns.saturating_sub(sent_ns));
    }
    drop(ours);
    child.wait()?;
    let wake = wake::futex(4000, PACE)?;
    Ok(measured
        .peer("socketpair round trip, p50", back.p50_us())
        .peer("socketpair one way, p50", there.p50_us())
        .peer("futex wake alone, p50", wake.p50_us())
        .note(
            "The time includes two wake-ups: of the host, then of the function's process. Socket pair: 128 bytes to a \
             waiting process and back, at the same pace. Futex wake: one thread wakes another that sleeps, at the \
             same pace.",
        ))
}

pub fn oneshot(context: &Context) -> Outcome<Measured> {
    let code = functions::native(context, "oneshot")?;
    let mut spec = function("f", Runtime::Oneshot, "in")?;
    spec.command = vec!["./oneshot".into()];
    let mut bench = Bench::new(context, &spec, &code)?;
    let (repetitions, count) = (context.repetitions(8), 150);
    let awaits = scenario(&mut bench, repetitions, count, Then::Awaits)?;
    bench.host.finish()?;
    let (first, whole) = start_program(&code, context.repetitions(800))?;
    Ok(Measured::new(awaits.p50s.median(), awaits.latencies.count())
        .spread_us(&awaits.latencies)
        .target("p50 ≤ 1000 µs", awaits.p50s.median() <= 1000.0)
        .also("append to result, p50", awaits.results.p50_us(), "µs")
        .also("append to result, p99", awaits.results.p99_us(), "µs")
        .peer("vfork + exec to first instruction, p50", first.p50_us())
        .peer("vfork + exec to its end, p50", whole.p50_us())
        .note(format!(
            "The time from just before an append until a small C program, which the host starts once for every \
             record, reads the clock at the start of main. The program is linked dynamically; the host is a separate \
             process that sleeps between the records. The appender waits for the result, then sleeps 500 µs (a fixed \
             pace of 500 µs would only measure the queue), {}. vfork + exec: the benchmark itself starts the same \
             program.",
            awaits.p50s.spread()
        )))
}

/// Starts the program that says when it started; returns the times until then and until its end.
fn start_program(program: &Path, count: usize) -> Outcome<(Samples, Samples)> {
    let (mut first, mut whole) = (Samples::new(), Samples::new());
    for _ in 0..count {
        thread::sleep(PACE);
        let (start, sent_ns) = (Instant::now(), wall_ns());
        let output = Command::new(program)
            .env_clear()
            .env("MILLRACE_APPEND_FD", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        whole.record(start.elapsed());
        let said = String::from_utf8(output.stdout)?;
        let time = said.split('\t').nth(1).ok_or("the program said nothing")?;
        first.record_ns(stamp(time.as_bytes())?.saturating_sub(sent_ns));
    }
    Ok((first, whole))
}
