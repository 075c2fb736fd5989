//! One C source with millrace.h has the same results as WebAssembly and as a native process, bit for bit.

mod common;

use common::{Ended, NOW_NS, c_to_native, c_to_wasm, failed, limits, no_env, printed, run};
use millrace_runtime::{Code, Executor, Outcome, ProcessExecutor, ProcessSpec, WasmEngine, WasmExecutor};
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;

static ENGINE: LazyLock<Arc<WasmEngine>> = LazyLock::new(|| WasmEngine::new().unwrap());

/// The source compiled both ways.
fn both(source: &str) -> (WasmExecutor, ProcessExecutor, TempDir) {
    let dir = TempDir::new().unwrap();
    let source = format!("#include \"millrace.h\"\n{source}");
    let module = c_to_wasm(dir.path(), "wasm", &source);
    c_to_native(dir.path(), "native", &source);
    let function = ENGINE.load(&module, &dir.path().join("cache"), "handle").unwrap();
    let spec =
        ProcessSpec { command: vec!["./native".into()], dir: dir.path().to_owned(), env: no_env(), scratch: None };
    (WasmExecutor::new(function, limits()), ProcessExecutor::new(spec, limits()), dir)
}

/// Runs the records both ways, checks that nothing differs but the time taken, and returns one of the results.
fn same(source: &str, records: &[&[u8]]) -> Vec<Ended> {
    let (mut wasm, mut native, _dir) = both(source);
    let (mut wasm, native) = (run(&mut wasm, records), run(&mut native, records));
    for ((wasm, wasm_appended), (native, native_appended)) in wasm.iter_mut().zip(&native) {
        assert_eq!(wasm_appended, native_appended);
        wasm.elapsed = native.elapsed;
        assert_eq!(wasm, native);
    }
    wasm
}

#[test]
fn all_calls_do_the_same() {
    let source = r#"
        int handle(const mr_record *record) {
            char run[MR_RUN_ID_MAX + 1];
            unsigned char bytes[300];
            int64_t number;
            mr_print("log ");
            mr_print(record->log);
            mr_run_id(run);
            mr_append("run", run, mr_length_(run));
            mr_append("out/all", record->data, record->size);
            number = mr_latest("history");
            mr_append("n", &number, sizeof number);
            number = mr_latest("nothing");
            mr_append("n", &number, sizeof number);
            number = mr_get("history", 3, bytes, 2);
            mr_append("n", &number, sizeof number);
            mr_append("two of three", bytes, 2);
            number = mr_get("history", 4, bytes, sizeof bytes);
            mr_append("n", &number, sizeof number);
            number = mr_get("big", 1, bytes, sizeof bytes);
            mr_append("n", &number, sizeof number);
            mr_append("big", bytes, sizeof bytes);
            number = mr_now_ns();
            mr_append("n", &number, sizeof number);
            number = mr_random(bytes, sizeof bytes) + mr_random(bytes, MR_RANDOM_MAX + 1);
            mr_append("n", &number, sizeof number);
            mr_append("random", bytes, sizeof bytes);
            number = (int64_t)record->seqno * 10 + record->attempt;
            mr_append("n", &number, sizeof number);
            return 0;
        }"#;
    // Enough to have many runs in progress while answers are pending.
    let records: Vec<Vec<u8>> = (0..60u8).map(|i| vec![i; usize::from(i) * 300]).collect();
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    for (i, (completion, appended)) in same(source, &records).into_iter().enumerate() {
        assert_eq!(completion.outcome, Outcome::Done);
        assert_eq!(printed(&completion), "log raw/kitchen");
        let run = format!("abcdef012345-7-{:x}", 0x2a9f + i + 1);
        assert_eq!(appended[0], ("run".to_owned(), run.into_bytes()));
        assert_eq!(appended[1], ("out/all".to_owned(), records[i].to_vec()));
        let numbers: Vec<i64> = appended
            .iter()
            .filter(|(log, _)| log == "n")
            .map(|(_, payload)| i64::from_le_bytes(payload[..].try_into().unwrap()))
            .collect();
        assert_eq!(numbers, [3, -2101, 5, -2105, 5 << 20, NOW_NS as i64, -3121, (i as i64 + 1) * 10 + 1]);
    }
}

#[test]
fn arithmetic_is_the_same_bit_for_bit() {
    let source = r#"
        int handle(const mr_record *record) {
            double x = 0.1, y = 1e-300, sum = 0;
            float f = 0.3f;
            uint64_t state = record->seqno;
            int i;
            for (i = 0; i < 10000; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                x = x * 3.7 * (1 - x) + (double)(state >> 40) * 1e-12;
                if (x > 1 || x < 0) x = 0.5;
                y = y * x + sum / 3.0;
                f = f * 0.99f + (float)x;
                sum += x * y - (double)f;
            }
            mr_append("x", &x, sizeof x);
            mr_append("y", &y, sizeof y);
            mr_append("f", &f, sizeof f);
            return mr_append("sum", &sum, sizeof sum);
        }"#;
    let done = same(source, &[b"", b"", b"", b""]);
    assert!(done.iter().all(|(completion, appended)| completion.outcome == Outcome::Done && appended.len() == 4));
    assert_ne!(done[0].1, done[1].1, "the seqno matters");
}

#[test]
fn failures_are_the_same() {
    let source = r#"
        int handle(const mr_record *record) {
            mr_append(record->data[0] == 'r' ? "refused/x" : "out", "y", 1);
            return record->data[0] == 'f' ? -2147483647 - 1 : 0;
        }"#;
    let done = same(source, &[b"r", b"f", b"k"]);
    assert_eq!(failed(&done[0].0).0, Code::LogNotFound);
    assert_eq!(failed(&done[1].0), (Code::FunctionFailed, "the handler returned -2147483648".to_owned()));
    assert_eq!(done[2].0.outcome, Outcome::Done);
}

#[test]
fn records_beyond_the_buffer_fail_their_run_only() {
    let source = r#"int handle(const mr_record *r) { return mr_append("out", r->data + r->size - 1, 1); }"#;
    let (fits, long, huge) = (vec![1; 65536], vec![2; 65537], vec![3; 3 << 20]);
    let done = same(source, &[&fits, &long, &huge, b"\x04"]);
    assert_eq!(done[0].1, [("out".to_owned(), vec![1])]);
    assert_eq!(failed(&done[1].0).0, Code::RecordTooLongForFunction);
    assert_eq!(failed(&done[2].0).0, Code::RecordTooLongForFunction);
    assert_eq!(done[3].1, [("out".to_owned(), vec![4])]);
}

#[test]
fn appends_larger_than_the_staging_buffer_pass_through() {
    let source = r#"
        static unsigned char large[200000];
        int handle(const mr_record *record) {
            size_t i;
            for (i = 0; i < sizeof large; i++) large[i] = (unsigned char)(i * record->seqno);
            mr_append("a", large, 65520);
            mr_append("b", large, sizeof large);
            return mr_append("c", "", 0);
        }"#;
    for (_, appended) in same(source, &[b"", b"", b""]) {
        assert_eq!(appended.iter().map(|(_, payload)| payload.len()).collect::<Vec<_>>(), [65520, 200_000, 0]);
    }
}

#[test]
fn a_native_function_started_by_hand_says_what_it_is() {
    let dir = TempDir::new().unwrap();
    let program = c_to_native(
        dir.path(),
        "f",
        "#include \"millrace.h\"\nint handle(const mr_record *r) { return r->size != 0; }",
    );
    let output = std::process::Command::new(program).env("MILLRACE_FD", "77").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("runtime = \"process\""));
}

#[test]
fn a_crash_is_this_runs_failure() {
    let source = "int handle(const mr_record *r) { if (r->size) { volatile int *p = (int *)r->seqno; *p = 1; __builtin_trap(); } return 0; }";
    let (mut wasm, mut native, _dir) = both(source);
    let executors: [(&mut dyn Executor, Code); 2] = [(&mut wasm, Code::WasmTrap), (&mut native, Code::WorkerDied)];
    for (executor, code) in executors {
        let done = run(executor, &[b"", b"x", b""]);
        assert_eq!(done[0].0.outcome, Outcome::Done);
        assert_eq!(failed(&done[1].0).0, code);
        assert_eq!(done[2].0.outcome, if code == Code::WasmTrap { Outcome::Done } else { Outcome::NotStarted });
    }
}

#[test]
fn the_header_writes_the_golden_frames() {
    let file = include_str!("../../../spec/vectors/worker.json");
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    let text = |golden: &serde_json::Value, field: &str| golden[field].as_str().unwrap().to_owned();
    // The kinds that functions in C send: APPEND to OUTPUT.
    let frames = file["frames"].as_array().unwrap().iter();
    let goldens: Vec<_> = frames.filter(|golden| (18..=24).contains(&golden["kind"].as_u64().unwrap())).collect();
    let mut source = "#define main mr_main_\n#include \"millrace.h\"\n#undef main\n\
                      int handle(const mr_record *record) { (void)record; return 0; }\n\
                      int main(void) {\nmr_fd_ = 1;\n"
        .to_owned();
    for golden in &goldens {
        let (name, payload) = (text(golden, "name"), text(golden, "payload"));
        let escaped: String = (0..payload.len()).step_by(2).map(|at| format!("\\x{}", &payload[at..at + 2])).collect();
        source += &format!(
            "mr_work_id_ = {}; mr_frame_({}, {}, \"{name}\", {}, \"{escaped}\", {});\n",
            golden["work"],
            golden["kind"],
            golden["number"],
            name.len(),
            payload.len() / 2
        );
    }
    source += "mr_flush_(); return (void)mr_main_, 0; }";
    let dir = TempDir::new().unwrap();
    let program = c_to_native(dir.path(), "frames", &source);
    let output = std::process::Command::new(program).output().unwrap();
    let written: String = output.stdout.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(written, goldens.iter().map(|golden| text(golden, "bytes")).collect::<String>());
}
