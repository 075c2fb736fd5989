//! storm.rate, restart.resume: a host that is killed and started again.

use super::{Measured, function, host::program};
use crate::{Context, Outcome, functions, measure::Repeated};
use millrace_journal::{CreateOptions, Durability, Journal, Kind, OpenOptions, Position};
use millrace_node::{AppendOptions, Namespace, NewRecord, Runtime};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// How long a host lives in the storm.
const LIFE: Duration = Duration::from_millis(300);
/// How long each phase of storm.rate takes.
const PHASE: Duration = Duration::from_secs(6);

/// `millrace serve` on the namespace in `dir/n`; killed with the handle.
struct Served(Child);

impl Served {
    fn start(program: &Path, dir: &Path) -> Outcome<Self> {
        let mut command = Command::new(program);
        command.arg("--namespace").arg(dir.join("n")).args(["serve", "--listen", "none"]);
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // SIGKILL, and gone when this returns.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records that wait, about.
const BACKLOG: u64 = 50_000;

/// Appends small records to `in` until [`BACKLOG`] of them have not come out.
fn feed(namespace: &Namespace) -> Outcome<()> {
    let waiting = namespace.log("in")?.latest() - namespace.log("out")?.latest();
    let records = (waiting..BACKLOG).map(|_| Ok(NewRecord { log: "in".into(), payload: vec![7; 100] }));
    namespace.append_many(records, AppendOptions::default(), |_| {})?;
    Ok(())
}

/// `in` to `out` through Python, Wasm and a process, each in order.
fn pipeline(context: &Context, dir: &Path) -> Outcome<()> {
    // What was done and read is given back, as in a namespace that has been in use for long.
    let options = CreateOptions {
        segment_bytes: 16 << 20,
        retain_bytes: 64 << 20,
        durability: Durability::Memory,
        ..CreateOptions::default()
    };
    let namespace = Namespace::create(&dir.join("n"), &options)?;
    for log in ["in", "one", "two", "out"] {
        namespace.create_log(&log.parse()?, 10_000)?;
    }
    let mut first = function("first", Runtime::Python, "in")?;
    first.handler = "hand_on:hand_on".into();
    first.python = functions::python()?;
    millrace_node::functions::deploy(&namespace, &first, &functions::source("hand_on.py"))?;
    millrace_node::functions::deploy(
        &namespace,
        &function("second", Runtime::Wasm, "one")?,
        &functions::wasm(context, "hand_on_second")?,
    )?;
    let mut third = function("third", Runtime::Process, "two")?;
    third.command = vec!["./hand_on_third".into()];
    millrace_node::functions::deploy(&namespace, &third, &functions::native(context, "hand_on_third")?)?;
    Ok(())
}

pub fn rate(context: &Context) -> Outcome<Measured> {
    let program = program(context)?;
    let (mut calm, mut stormy, mut ratio) = (Repeated::default(), Repeated::default(), Repeated::default());
    let mut kills = 0;
    let repetitions = context.repetitions(3);
    for _ in 0..repetitions {
        let mut phase = |life: Duration| -> Outcome<f64> {
            let dir = context.fresh()?;
            pipeline(context, dir.path())?;
            let namespace = Namespace::open(&dir.path().join("n"))?;
            feed(&namespace)?;
            let start = Instant::now();
            while start.elapsed() < PHASE {
                let host = Served::start(&program, dir.path())?;
                let started = Instant::now();
                while started.elapsed() < life && start.elapsed() < PHASE {
                    thread::sleep(Duration::from_millis(10));
                    feed(&namespace)?;
                }
                drop(host);
                kills += 1;
            }
            Ok(namespace.log("out")?.latest() as f64 / start.elapsed().as_secs_f64())
        };
        let (undisturbed, disturbed) = (phase(PHASE)?, phase(LIFE)?);
        calm.push(undisturbed);
        stormy.push(disturbed);
        ratio.push(disturbed / undisturbed);
    }
    Ok(Measured::new(stormy.median(), kills)
        .target("≥ 50 % of undisturbed", ratio.median() >= 0.5)
        .also("undisturbed", calm.median(), "/s")
        .also("of undisturbed", ratio.median() * 100.0, "%")
        .note(format!(
            "Records of 100 bytes pass through three functions, in Python, in Wasm and in a process; another process \
             appends so that about 50 000 records wait. Value: the records that have passed all functions within {} \
             s, the starts of the host included, while the host is killed (SIGKILL) every {} ms and started again at \
             once, {}.",
            PHASE.as_secs(),
            LIFE.as_millis(),
            stormy.spread()
        )))
}

pub fn resume(context: &Context) -> Outcome<Measured> {
    let program = program(context)?;
    let dir = context.fresh()?;
    pipeline(context, dir.path())?;
    let mut values = Repeated::default();
    let repetitions = context.repetitions(15);
    for _ in 0..repetitions {
        feed(&Namespace::open(&dir.path().join("n"))?)?;
        let loaded = Served::start(&program, dir.path())?;
        thread::sleep(LIFE);
        drop(loaded);
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros() as u64;
        let next = Served::start(&program, dir.path())?;
        thread::sleep(LIFE * 3);
        drop(next);
        values.push(first_done(dir.path(), start)? as f64 / 1000.0);
    }
    Ok(Measured::new(values.median(), repetitions as u64).target("≤ 300 ms", values.median() <= 300.0).note(format!(
        "The host of the pipeline of storm.rate is killed (SIGKILL) after {} ms of work on 50 000 waiting \
             records, and another host is started at once. Value: the time from then until the first DONE of a run \
             that was pending, by the journal's clock, {}. No other process has the namespace open, so the new host \
             recovers it.",
        LIFE.as_millis(),
        values.spread()
    )))
}

/// Microseconds from `start` to the first DONE after it.
fn first_done(dir: &Path, start: u64) -> Outcome<u64> {
    let journal = Journal::open(&dir.join("n"), &OpenOptions { background: false })?;
    let mut scan = journal.scan(Position::default());
    while let Some(entry) = scan.next()? {
        if entry.kind == Kind::Done && !entry.carried && entry.hlc.wall_us() >= start {
            return Ok(entry.hlc.wall_us() - start);
        }
    }
    Err("no run was done by the new host".into())
}
