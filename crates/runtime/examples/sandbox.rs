//! Measures a sandbox: a cold start of a Python worker, and a warm run in one, with and without the sandbox.
//!
//! `cargo run --release -p millrace-runtime --example sandbox`

use millrace_runtime::{
    Completion, EventId, Executor, Invocation, Isolation, Level, Limits, LogCalls, Outcome, PythonExecutor,
    PythonFunction, PythonSpec, Result, Run, SUPERVISOR, SandboxSpec, supervise,
};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

const STARTS: usize = 40;
const RUNS: usize = 4000;

struct Nothing;

impl LogCalls for Nothing {
    fn append(&mut self, _: &str, _: &[u8]) -> Result<Option<u64>> {
        Ok(None)
    }
    fn get(&mut self, _: &str, _: u64) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn latest(&mut self, _: &str) -> Result<u64> {
        Ok(0)
    }
    fn now_ns(&mut self) -> u64 {
        0
    }
    fn random(&mut self, _: &mut [u8]) {}
}

fn executor(isolation: &Arc<Isolation>, dir: &Path) -> PythonExecutor {
    let python = "/usr/bin/python3";
    let limits = Limits::default();
    let (code, scratch) = (dir.join("code"), dir.join("scratch"));
    let sandbox = isolation.sandbox(SandboxSpec {
        code: code.clone(),
        scratch: scratch.clone(),
        program: python.into(),
        is_python: true,
        network: false,
        secrets: Default::default(),
        workers: 1,
        limits,
        processors_max: None,
    });
    let spec = PythonSpec {
        python: python.into(),
        dir: code,
        module: "functions".into(),
        function: "f".into(),
        env: BTreeMap::new(),
        scratch: Some(scratch),
    };
    PythonExecutor::of(PythonFunction::within(spec, limits, sandbox))
}

/// One run, and how long it took.
fn run(executor: &mut PythonExecutor) -> Duration {
    let invocation =
        Invocation { log: "in", seqno: 1, payload: b"record", run: EventId::from_bits(1), attempt: 1, streamed: false };
    let begun = Instant::now();
    executor.run(
        &mut [Run { invocation, logs: &mut Nothing, objects: None }],
        &mut |_: usize, completion: Completion| {
            assert_eq!(completion.outcome, Outcome::Done);
        },
    );
    begun.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(SUPERVISOR) {
        return supervise();
    }
    let dir = std::env::temp_dir().join(format!("sandbox-{}", std::process::id()));
    fs::create_dir_all(dir.join("code")).expect("a directory for temporary files");
    fs::write(dir.join("code/functions.py"), "def f(record, ctx):\n    pass\n").expect("room for a file");
    let levels = Level::ALL.map(|level| Arc::new(Isolation::at_most(level, Path::new("/proc/self/exe"))));
    let mut warm: Vec<(PythonExecutor, Vec<Duration>)> =
        levels.iter().map(|isolation| (executor(isolation, &dir), Vec::new())).collect();
    for (executor, _) in &mut warm {
        run(executor);
    }
    // In turn, so that whatever else the machine does meets all alike.
    for _ in 0..RUNS {
        for (executor, times) in &mut warm {
            times.push(run(executor));
        }
    }
    for (isolation, (executor_there, times)) in levels.iter().zip(warm) {
        drop(executor_there);
        let starts = (0..STARTS).map(|_| run(&mut executor(isolation, &dir))).collect();
        println!("{:28} cold {:?}, warm {:?}", isolation.summary(), median(starts), median(times));
    }
    let _ = fs::remove_dir_all(&dir);
    ExitCode::SUCCESS
}
