//! runs.*: the sustained number of runs per second of a host, and the cost of listing runs.

pub mod list;

use super::{Measured, function, namespace_with_logs, text};
use crate::{Context, Outcome, children::Helper, functions, measure::Repeated, peers::cspot};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, FunctionSpec, Namespace, NewRecord, Runtime};
use millrace_runtime::{
    Completion, Executor, Invocation, Limits, LogCalls, Outcome as RunOutcome, PythonExecutor, PythonSpec, Run,
    WasmEngine, WasmExecutor,
};
use millrace_wire::EventId;
use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

const RECORD: [u8; 128] = [7; 128];
/// How long a backlog may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn wasm(context: &Context) -> Outcome<Measured> {
    let code = functions::wasm(context, "nothing")?;
    let count = if context.quick { 200_000 } else { 1_000_000 };
    let spec = function("f", Runtime::Wasm, "in")?;
    let (drained, fed) = rates(context, &spec, &code, count)?;
    let function = WasmEngine::new()?.load(&code, &context.dir.join("functions/cache"), "handle")?;
    let alone = executor_alone(&mut WasmExecutor::new(function, Limits::default()), 2000)?;
    Ok(measured(&drained, &fed, count, 300_000.0)
        .peer("the Wasm runtime alone", alone)
        .peer("CSPOT, handlers", cspot::HANDLERS_PER_SECOND)
        .note("The runtime alone: the same module, in batches of 64, without a journal.")
        .note(cspot::SOURCE))
}

pub fn python(context: &Context) -> Outcome<Measured> {
    let count = if context.quick { 40_000 } else { 250_000 };
    let mut spec = function("f", Runtime::Python, "in")?;
    spec.handler = "stamp:nothing".into();
    let code = functions::source("stamp.py");
    let (drained, fed) = rates(context, &spec, &code, count)?;
    let python = PythonSpec {
        python: "python3".into(),
        dir: code.parent().ok_or("a source without a folder")?.into(),
        module: "stamp".into(),
        function: "nothing".into(),
        env: BTreeMap::new(),
        scratch: None,
    };
    let alone = executor_alone(&mut PythonExecutor::new(python, Limits::default()), 500)?;
    Ok(measured(&drained, &fed, count, 60_000.0).peer("frames alone", alone).note(
        "Frames alone: the same function in one warm worker, in batches of 64 over its socket, without a \
            journal.",
    ))
}

fn measured(drained: &Repeated, fed: &Repeated, count: u64, target: f64) -> Measured {
    Measured::new(drained.median(), count)
        .target(format!("≥ {target:.0} /s"), drained.median() >= target)
        .also("while another process appends", fed.median(), "/s")
        .note(format!(
            "{count} runs of one function that does nothing are pending, for records of 128 bytes, durability memory. \
             The function is ordered, so one run executes at a time. The host, a separate process that is not pinned, \
             claims (FIRED), executes and publishes (DONE) the runs. Value: the rate after the first tenth of the \
             runs, read from the function's counter each ms, {}. While another process appends: as many runs, while \
             their records and triggers are appended in batches of 1024; from the first append to the end of the last \
             run, {}.",
            drained.spread(),
            fed.spread()
        ))
}

/// Runs per second of a backlog, and while records come in.
fn rates(context: &Context, spec: &FunctionSpec, code: &Path, count: u64) -> Outcome<(Repeated, Repeated)> {
    let (mut drained, mut fed) = (Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(5) {
        drained.push(once(context, spec, code, count, false)?);
        fed.push(once(context, spec, code, count, true)?);
    }
    Ok((drained, fed))
}

fn once(context: &Context, spec: &FunctionSpec, code: &Path, count: u64, feed: bool) -> Outcome<f64> {
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    let namespace = namespace_with_logs(&path, Durability::Memory, &[("in", 1000)])?;
    millrace_node::functions::deploy(&namespace, spec, code)?;
    if !feed {
        append(&namespace, count)?;
        let host = Helper::launch("host", &[text(&path)?])?;
        let (early, late) = (progress(&namespace, count / 10)?, progress(&namespace, count)?);
        host.finish()?;
        return Ok((late.1 - early.1) as f64 / (late.0 - early.0).as_secs_f64());
    }
    let mut host = Helper::start("host", &[text(&path)?])?;
    host.line()?;
    append(&namespace, 100)?; // Starts the function.
    progress(&namespace, 100)?;
    let start = Instant::now();
    append(&namespace, count)?;
    let (end, done) = progress(&namespace, count + 100)?;
    host.finish()?;
    Ok((done - 100) as f64 / (end - start).as_secs_f64())
}

pub fn append(namespace: &Namespace, count: u64) -> Outcome<()> {
    let records = (0..count).map(|_| Ok(NewRecord { log: "in".into(), payload: RECORD.to_vec() }));
    // If the queue is full, the append waits for room, so that the runs set the pace.
    let options = AppendOptions { patience: PATIENCE, ..AppendOptions::default() };
    Ok(namespace.append_many(records, options, |_| {})?)
}

/// When at least this number of runs had ended, and how many had ended then.
pub fn progress(namespace: &Namespace, runs: u64) -> Outcome<(Instant, u64)> {
    let catalog = namespace.journal().catalog()?;
    let function = catalog.function("f").ok_or("the function is gone")?;
    let start = Instant::now();
    loop {
        let done = function.done();
        if done >= runs {
            return Ok((Instant::now(), done));
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{done} of {runs} runs after {} s", PATIENCE.as_secs()).into());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A host that offers nothing.
struct Nothing;

impl LogCalls for Nothing {
    fn append(&mut self, _: &str, _: &[u8]) -> millrace_wire::Result<Option<u64>> {
        Ok(None)
    }
    fn get(&mut self, _: &str, _: u64) -> millrace_wire::Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn latest(&mut self, _: &str) -> millrace_wire::Result<u64> {
        Ok(0)
    }
    fn now_ns(&mut self) -> u64 {
        0
    }
    fn random(&mut self, _: &mut [u8]) {}
}

/// Runs per second of an executor without a journal.
fn executor_alone(executor: &mut dyn Executor, rounds: u32) -> Outcome<f64> {
    const BATCH: usize = 64;
    let invocation =
        Invocation { log: "in", seqno: 1, payload: &RECORD, run: EventId::NONE, attempt: 1, streamed: false };
    let mut round = || -> Outcome<()> {
        let mut hosts = [const { Nothing }; BATCH];
        let mut batch: Vec<Run<'_>> = hosts.iter_mut().map(|logs| Run { invocation, logs, objects: None }).collect();
        let mut failed = None;
        executor.run(&mut batch, &mut |_: usize, completion: Completion| {
            if completion.outcome != RunOutcome::Done {
                failed = Some(format!("a run of nothing ended as {:?}", completion.outcome));
            }
        });
        failed.map_or(Ok(()), |failed| Err(failed.into()))
    };
    (0..20).try_for_each(|_| round())?;
    let mut rates = Repeated::default();
    for _ in 0..5 {
        let start = Instant::now();
        (0..rounds).try_for_each(|_| round())?;
        rates.push(f64::from(rounds) * BATCH as f64 / start.elapsed().as_secs_f64());
    }
    Ok(rates.median())
}
