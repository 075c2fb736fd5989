//! Prints how fast each kind of function does nothing: `cargo run --release -p millrace-runtime --example rates`.

use millrace_runtime::{
    Completion, EventId, Executor, Invocation, Limits, LogCalls, OneshotExecutor, Outcome, ProcessExecutor,
    ProcessSpec, PythonExecutor, PythonSpec, Result, Run, WasmEngine, WasmExecutor,
};
use std::{collections::BTreeMap, env, fs, hint::black_box, path::Path, process::Command, time::Instant};

struct Nothing;

impl LogCalls for Nothing {
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        black_box((log, payload));
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

/// Runs `rounds` batches of this size and prints the time per run: the median and the best of five.
fn measure(name: &str, executor: &mut dyn Executor, batch_size: usize, rounds: usize) {
    let payload = [7u8; 128];
    let invocation =
        Invocation { log: "raw/kitchen", seqno: 1, payload: &payload, run: EventId::NONE, attempt: 1, streamed: false };
    let mut round = || {
        let mut hosts: Vec<Nothing> = (0..batch_size).map(|_| Nothing).collect();
        let mut batch: Vec<Run<'_>> = hosts.iter_mut().map(|logs| Run { invocation, logs, objects: None }).collect();
        executor.run(&mut batch, &mut |_: usize, completion: Completion| assert_eq!(completion.outcome, Outcome::Done));
    };
    round();
    let mut per_run_us: Vec<f64> = (0..5)
        .map(|_| {
            let begun = Instant::now();
            (0..rounds).for_each(|_| round());
            begun.elapsed().as_secs_f64() * 1e6 / (rounds * batch_size) as f64
        })
        .collect();
    per_run_us.sort_by(f64::total_cmp);
    println!("{name:44} {:9.2} us/run  best {:9.2}  {:9.0} runs/s", per_run_us[2], per_run_us[0], 1e6 / per_run_us[2]);
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = env::temp_dir().join(format!("millrace-rates-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let source =
        "#include \"millrace.h\"\nint handle(const mr_record *r) { return mr_append(\"out\", r->data, r->size); }\n";
    fs::write(dir.join("copy.c"), source)?;
    fs::write(dir.join("nothing.c"), "__attribute__((export_name(\"handle\"))) int handle(void) { return 0; }\n")?;
    let wasm = &["--target=wasm32", "-nostdlib", "-Wl,--no-entry"][..];
    for (from, to, flags) in
        [("copy.c", "copy.wasm", wasm), ("nothing.c", "nothing.wasm", wasm), ("copy.c", "copy", &[])]
    {
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/c");
        let clang = Command::new("clang")
            .current_dir(&dir)
            .args(["-O2", "-I"])
            .arg(header)
            .args(flags)
            .args([from, "-o", to])
            .status()?;
        assert!(clang.success(), "clang failed");
    }
    fs::write(
        dir.join("f.py"),
        "def nothing(record, ctx): pass\ndef copy(record, ctx): ctx.append('out', record.data)\n",
    )?;

    let limits = Limits::default();
    let engine = WasmEngine::new()?;
    for name in ["nothing", "copy"] {
        let function = engine.load(&dir.join(format!("{name}.wasm")), &dir.join("cache"), "handle")?;
        measure(&format!("wasm {name}"), &mut WasmExecutor::new(function, limits), 64, 2000);
    }
    for function in ["nothing", "copy"] {
        let spec = PythonSpec {
            python: "python3".into(),
            dir: dir.clone(),
            module: "f".into(),
            function: function.into(),
            env: BTreeMap::new(),
            scratch: None,
        };
        let mut python = PythonExecutor::new(spec, limits);
        measure(&format!("python {function}, 64 at once"), &mut python, 64, 500);
        measure(&format!("python {function}, one at a time"), &mut python, 1, 10_000);
    }
    let spec = |command: &str| ProcessSpec {
        command: vec![command.into()],
        dir: dir.clone(),
        env: BTreeMap::new(),
        scratch: None,
    };
    let mut native = ProcessExecutor::new(spec("./copy"), limits);
    measure("native copy, 64 at once", &mut native, 64, 1000);
    measure("native copy, one at a time", &mut native, 1, 10_000);
    measure("oneshot /bin/true", &mut OneshotExecutor::new(spec("/bin/true"), limits), 1, 200);
    fs::remove_dir_all(&dir)?;
    Ok(())
}
