//! WebAssembly functions: what they can do, and what hostile ones cannot.

mod common;

use common::{Host, NOW_NS, failed, failure, impatient, limits, printed, run, run_one};
use millrace_runtime::{
    Code, Completion, EventId, Executor, Invocation, Limits, Outcome, Run, WasmEngine, WasmExecutor, WasmFunction,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, LazyLock},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

static ENGINE: LazyLock<Arc<WasmEngine>> = LazyLock::new(|| WasmEngine::new().unwrap());

/// A module from its text, with a memory and what it may import.
fn module(body: &str) -> String {
    format!(
        r#"(module
            (import "millrace" "append" (func $append (param i32 i32 i32 i32) (result i32)))
            (import "millrace" "get" (func $get (param i32 i32 i64 i32 i32) (result i64)))
            (import "millrace" "latest" (func $latest (param i32 i32) (result i64)))
            (import "millrace" "print" (func $print (param i32 i32)))
            (import "millrace" "random" (func $random (param i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 0) "outhistoryrefused/x\ff")
            {body})"#
    )
}

fn load(text: &str) -> millrace_runtime::Result<Arc<WasmFunction>> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f.wasm");
    fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
    ENGINE.load(&path, &dir.path().join("cache"), "handle")
}

fn executor(text: &str, limits: Limits) -> WasmExecutor {
    WasmExecutor::new(load(text).unwrap(), limits)
}

/// An executor of a module whose handler has this body.
fn handler(body: &str, limits: Limits) -> WasmExecutor {
    executor(&module(&format!(r#"(func (export "handle") (result i32) {body})"#)), limits)
}

fn refusal(text: &str) -> (Code, String) {
    let error = load(text).err().expect("the module is refused");
    (error.code(), error.detail().to_owned())
}

#[test]
fn a_handler_appends_and_a_fresh_instance_sees_nothing_of_the_run_before() {
    // Counts in its memory; a second run on the same instance would append 2 bytes.
    let mut executor = handler(
        "(i32.store (i32.const 100) (i32.add (i32.load (i32.const 100)) (i32.const 1)))
         (call $append (i32.const 0) (i32.const 3) (i32.const 3) (i32.load (i32.const 100)))",
        limits(),
    );
    for (completion, appended) in run(&mut executor, &[b"a", b"b", b"c"]) {
        assert_eq!(completion.outcome, Outcome::Done);
        assert_eq!(appended, [("out".to_owned(), b"h".to_vec())]);
    }
}

#[test]
fn a_status_other_than_zero_fails_the_run() {
    let (code, detail) = failure(&mut handler("(i32.const -7)", limits()), b"");
    assert_eq!((code, detail.as_str()), (Code::FunctionFailed, "the handler returned -7"));
}

#[test]
fn a_refused_append_fails_the_run_whatever_the_handler_returns() {
    let append = "(call $append (i32.const 10) (i32.const 9) (i32.const 0) (i32.const 3))";
    for body in [append.to_owned(), format!("(drop {append}) (i32.const 0)")] {
        assert_eq!(failure(&mut handler(&body, limits()), b"").0, Code::LogNotFound, "{body}");
    }
    assert_eq!(
        failure(&mut handler(&format!("(i32.ne {append} (i32.const -2101))"), limits()), b"").0,
        Code::LogNotFound
    );
}

#[test]
fn a_refused_get_is_a_negative_number_that_the_handler_may_live_with() {
    let mut executor = handler(
        "(i64.ne (call $get (i32.const 3) (i32.const 7) (i64.const 9) (i32.const 0) (i32.const 0)) (i64.const -2105))",
        limits(),
    );
    assert_eq!(run_one(&mut executor, b"").outcome, Outcome::Done);
}

#[test]
fn traps_say_what_and_where() {
    let recursion = module(
        r#"(func $dive (result i32) (i32.add (call $dive) (i32.const 1))) (func (export "handle") (result i32) (call $dive))"#,
    );
    let division = module(
        r#"(func $broken (result i32) (i32.div_u (i32.const 1) (i32.load (i32.const 200))))
           (func (export "handle") (result i32) (call $broken))"#,
    );
    let (code, detail) = failure(&mut executor(&division, limits()), b"");
    assert_eq!(code, Code::WasmTrap);
    assert!(detail.contains("divide by zero") && detail.contains("broken"), "{detail}");

    let (code, detail) = failure(&mut executor(&recursion, limits()), b"");
    assert_eq!(code, Code::StackExhausted);
    assert!(detail.contains("dive") && detail.len() <= 2100, "{detail}");

    for body in ["unreachable", "(i32.load (i32.const 65536))"] {
        assert_eq!(failure(&mut handler(body, limits()), b"").0, Code::WasmTrap, "{body}");
    }
}

#[test]
fn pointers_outside_the_memory_end_the_run_with_a_code() {
    for body in [
        "(call $append (i32.const -1) (i32.const 3) (i32.const 0) (i32.const 3))",
        "(call $append (i32.const 0) (i32.const 3) (i32.const 65535) (i32.const 2))",
        "(call $append (i32.const 0) (i32.const -1) (i32.const 0) (i32.const 3))",
        "(call $append (i32.const 19) (i32.const 1) (i32.const 0) (i32.const 3))",
        "(i32.wrap_i64 (call $get (i32.const 3) (i32.const 7) (i64.const 1) (i32.const 65535) (i32.const 3)))",
        "(i32.wrap_i64 (call $latest (i32.const 70000) (i32.const 1)))",
        "(call $print (i32.const 0) (i32.const 0x7fffffff)) (i32.const 0)",
        "(call $random (i32.const -8) (i32.const 8))",
    ] {
        assert_eq!(failure(&mut handler(body, limits()), b"").0, Code::HostCallInvalid, "{body}");
    }
}

#[test]
fn a_loop_without_end_is_stopped_and_the_executor_goes_on() {
    let mut executor = handler("(loop $l (br $l)) (i32.const 0)", impatient());
    for (completion, _) in run(&mut executor, &[b"1", b"2"]) {
        assert_eq!(failed(&completion).0, Code::RunTimeout);
        assert!(completion.elapsed >= Duration::from_millis(300));
        assert!(completion.elapsed < Duration::from_secs(120));
    }
}

#[test]
fn a_start_function_without_end_is_stopped_too() {
    let text = module(r#"(func $s (loop $l (br $l))) (start $s) (func (export "handle") (result i32) (i32.const 0))"#);
    assert_eq!(failure(&mut executor(&text, impatient()), b"").0, Code::RunTimeout);
}

#[test]
fn memory_is_bounded_from_the_beginning_and_when_it_grows() {
    let small = Limits { memory_max_bytes: 1 << 20, ..limits() };
    let greedy = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable";
    let (code, detail) = failure(&mut handler(greedy, small), b"");
    assert_eq!(code, Code::MemoryExceeded, "{detail}");
    assert_eq!(
        run_one(&mut handler("(i32.lt_s (memory.grow (i32.const 15)) (i32.const 0))", small), b"").outcome,
        Outcome::Done
    );
    // A function that copes with the refusal is done.
    assert_eq!(
        run_one(&mut handler("(i32.ne (memory.grow (i32.const 16)) (i32.const -1))", small), b"").outcome,
        Outcome::Done
    );

    let large = r#"(module (memory 100) (func (export "handle") (result i32) (i32.const 0)))"#;
    assert_eq!(failure(&mut executor(large, small), b"").0, Code::MemoryExceeded);
}

#[test]
fn printing_without_end_is_bounded_and_stopped() {
    let bounded = Limits { output_max_bytes: 1000, ..impatient() };
    let completion = run_one(
        &mut handler("(loop $l (call $print (i32.const 0) (i32.const 3)) (br $l)) (i32.const 0)", bounded),
        b"",
    );
    assert_eq!(failed(&completion).0, Code::RunTimeout);
    assert!(completion.output.starts_with(b"outoutout") && completion.output.len() <= 1000);
    assert!(printed(&completion).contains("bytes were dropped here"));
}

#[test]
fn appending_without_end_is_refused() {
    let bounded = Limits { append_max_bytes: 1000, ..limits() };
    let endless = "(loop $l (br_if $l (i32.eqz (call $append (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 3))))) (i32.const 0)";
    let (completion, appended) = run(&mut handler(endless, bounded), &[b""]).remove(0);
    assert_eq!(failed(&completion).0, Code::AppendTooMuch);
    assert_eq!(appended.len(), 333);
}

#[test]
fn what_cannot_run_is_refused_when_it_is_loaded() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f.wasm");
    fs::write(&path, b"\0asm\x01\0\0\0 and then nonsense").unwrap();
    assert_eq!(ENGINE.validate(&path, "handle").unwrap_err().code(), Code::WasmInvalid);
    fs::write(&path, b"#!/bin/sh\n").unwrap();
    assert_eq!(ENGINE.validate(&path, "handle").unwrap_err().code(), Code::WasmInvalid);
    assert_eq!(ENGINE.validate(Path::new("/no/such.wasm"), "handle").unwrap_err().code(), Code::CodeUnreadable);

    let handle = r#"(func (export "handle") (result i32) (i32.const 0))"#;
    let (code, detail) = refusal(&format!(r#"(module (import "env" "system" (func)) {handle})"#));
    assert!(code == Code::WasmImportRefused && detail.contains("env.system"), "{detail}");
    let socket = r#"(import "wasi_snapshot_preview1" "sock_send" (func (param i32 i32 i32 i32 i32) (result i32)))"#;
    assert_eq!(refusal(&format!("(module {socket} {handle})")).0, Code::WasmImportRefused);
    let mistyped = r#"(import "millrace" "now" (func (param i64)))"#;
    assert_eq!(refusal(&format!("(module {mistyped} {handle})")).0, Code::WasmImportRefused);

    let (code, detail) = refusal(r#"(module (func (export "other")))"#);
    assert!(code == Code::WasmExportMissing && detail.contains("it exports: other"), "{detail}");
    for wrong in [
        "(func (export \"handle\"))",
        "(func (export \"handle\") (param i32) (result i32) (i32.const 0))",
        "(memory (export \"handle\") 1)",
    ] {
        assert_eq!(refusal(&format!("(module {wrong})")).0, Code::WasmExportSignature, "{wrong}");
    }
}

#[test]
fn a_damaged_cache_file_is_compiled_again_and_an_open_cache_refused() {
    let dir = TempDir::new().unwrap();
    let (path, cache) = (dir.path().join("f.wasm"), dir.path().join("cache"));
    fs::write(&path, wat::parse_str(module(r#"(func (export "handle") (result i32) (i32.const 0))"#)).unwrap())
        .unwrap();
    let files = || -> Vec<_> { fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect() };
    ENGINE.load(&path, &cache, "handle").unwrap();
    let [artifact] = files().try_into().unwrap();
    let whole = fs::read(&artifact).unwrap();

    for damage in [vec![], whole[..40].to_vec(), [&whole[..whole.len() - 1], b"x"].concat(), vec![0; whole.len()]] {
        fs::write(&artifact, damage).unwrap();
        let function = ENGINE.load(&path, &cache, "handle").unwrap();
        assert_eq!(run_one(&mut WasmExecutor::new(function, limits()), b"").outcome, Outcome::Done);
        assert_eq!(files(), std::slice::from_ref(&artifact));
        assert_eq!(fs::read(&artifact).unwrap().len(), whole.len(), "it was written again");
    }

    fs::set_permissions(&cache, fs::Permissions::from_mode(0o770)).unwrap();
    assert_eq!(ENGINE.load(&path, &cache, "handle").err().unwrap().code(), Code::CacheUnsafe);
}

#[test]
fn the_c_library_prints_and_exits() {
    let dir = TempDir::new().unwrap();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <time.h>
        #include "millrace.h"
        int handle(const mr_record *record) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            printf("%s %d at %lld\n", record->log, (int)record->seqno, (long long)now.tv_sec);
            if (record->size > 0) exit(record->data[0]);
            return getenv("HOME") != NULL;
        }"#;
    let flags = ["--target=wasm32-wasi", "-mexec-model=reactor"];
    let path = common::compile(dir.path(), "libc", source, &flags, "libc.wasm");
    let function = ENGINE.load(&path, &dir.path().join("cache"), "handle").unwrap();
    let mut executor = WasmExecutor::new(function, limits());
    let completion = run_one(&mut executor, b"");
    assert_eq!(completion.outcome, Outcome::Done);
    assert_eq!(printed(&completion), format!("raw/kitchen 1 at {}\n", NOW_NS / 1_000_000_000));
    let (code, detail) = failure(&mut executor, b"\x05");
    assert_eq!((code, detail.as_str()), (Code::FunctionFailed, "the handler returned 5"));
}

#[test]
fn two_threads_run_at_once_and_time_passes_again_after_an_idle_while() {
    let function = load(&module(r#"(func (export "handle") (result i32) (loop $l (br $l)) (i32.const 0))"#)).unwrap();
    // Longer than the ticker takes to park.
    for pause_ms in [0, 300] {
        thread::sleep(Duration::from_millis(pause_ms));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let begun = Instant::now();
                    let mut executor = WasmExecutor::new(Arc::clone(&function), impatient());
                    assert_eq!(failure(&mut executor, b"").0, Code::RunTimeout);
                    assert!(begun.elapsed() < Duration::from_secs(120));
                });
            }
        });
    }
}

#[test]
fn a_panicking_host_does_not_poison_the_executor() {
    struct Panics;
    impl millrace_runtime::LogCalls for Panics {
        fn append(&mut self, _: &str, _: &[u8]) -> millrace_runtime::Result<Option<u64>> {
            panic!("a bug of the host")
        }
        fn get(&mut self, _: &str, _: u64) -> millrace_runtime::Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn latest(&mut self, _: &str) -> millrace_runtime::Result<u64> {
            Ok(0)
        }
        fn now_ns(&mut self) -> u64 {
            0
        }
        fn random(&mut self, _: &mut [u8]) {}
    }
    let mut executor = handler("(call $append (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 3))", limits());
    let invocation = Invocation { log: "l", seqno: 1, payload: b"", run: EventId::NONE, attempt: 1, streamed: false };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        executor.run(&mut [Run { invocation, logs: &mut Panics, objects: None }], &mut |_: usize, _: Completion| {});
    }));
    assert!(panicked.is_err());
    let mut host = Host::default();
    executor.run(&mut [Run { invocation, logs: &mut host, objects: None }], &mut |_: usize, completion: Completion| {
        assert_eq!(completion.outcome, Outcome::Done);
    });
    assert_eq!(host.appended.len(), 1);
}
