//! Prints how fast appends, dispatch and runs are on this machine; `docs/benchmarks.md` has the figures that count.
//!
//! `cargo run --release -p millrace-node --example run_rates -- FUNCTION.wasm`, where the function does nothing.

use millrace_node::{
    AppendOptions, CreateOptions, Durability, FunctionSpec, Host, HostOptions, Namespace, NewRecord, Result, Runtime,
    functions,
};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let module = std::env::args_os().nth(1).expect("usage: rates FUNCTION.wasm");
    let dir = std::env::temp_dir().join(format!("millrace-rates-{}", std::process::id()));
    let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir, &options)?;
    let logs = ["in".parse()?, "free".parse()?];
    for log in &logs {
        namespace.create_log(log, 1000)?;
    }
    let mut spec = FunctionSpec::new("nothing".parse()?, Runtime::Wasm);
    spec.on = vec![logs[0].clone()];
    spec.pending_max = 1_000_000;
    functions::deploy(&namespace, &spec, Path::new(&module))?;
    append(&namespace, "free", 300_000)?;
    append(&namespace, "in", 300_000)?;
    runs(&namespace)?;
    latency(&namespace)?;
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    Ok(())
}

fn append(namespace: &Namespace, log: &str, count: u32) -> Result<()> {
    let payload = [7; 1024];
    let start = Instant::now();
    for _ in 0..count {
        namespace.append(log, &payload, AppendOptions::default())?;
    }
    println!("append 1 KiB to '{log}': {:.0} ns", start.elapsed().as_nanos() as f64 / f64::from(count));
    Ok(())
}

/// How fast pending runs are worked off, with nothing else going on; and with an appender beside.
fn runs(namespace: &Namespace) -> Result<()> {
    let pending: u64 = namespace.functions()?.iter().map(|function| function.pending()).sum();
    let start = Instant::now();
    let host = Host::start(namespace.clone(), HostOptions::default())?;
    println!("host started in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    namespace.wait_idle(LONG)?;
    println!("{pending} pending runs: {:.0} /s", pending as f64 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    let count = 500_000;
    let patient = AppendOptions { patience: LONG, ..AppendOptions::default() };
    let records = (0..count).map(|_| Ok(NewRecord { log: "in".into(), payload: vec![1; 64] }));
    namespace.append_many(records, patient, |_| {})?;
    namespace.wait_idle(LONG)?;
    println!("append and run: {:.0} /s", f64::from(count) / start.elapsed().as_secs_f64());
    host.stop(LONG)
}

/// From append to the end of the run, paced, the appender asleep meanwhile.
fn latency(namespace: &Namespace) -> Result<()> {
    let host = Host::start(namespace.clone(), HostOptions::default())?;
    let journal = namespace.journal();
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..4000 {
        thread::sleep(Duration::from_micros(500));
        let start = Instant::now();
        let receipt = namespace.append("in", b"x", AppendOptions::default())?;
        let mut seen = receipt.end;
        while namespace.functions()?.iter().any(|function| function.pending() > 0) {
            seen = journal.wait(seen, Duration::from_secs(1));
        }
        times.push(start.elapsed());
    }
    times.sort();
    let at = |part: usize| times[times.len() * part / 1000].as_secs_f64() * 1e6;
    println!("append to run's end, paced: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us", at(500), at(900), at(990));
    host.stop(LONG)
}
