//! A namespace in memory, and what the tests of all executors need.
#![allow(dead_code, missing_docs, reason = "every test binary uses a part")]

use millrace_runtime::{
    Code, Completion, EventId, Executor, Invocation, Limits, LogCalls, Outcome, ProcessExecutor, ProcessSpec, Result,
    Run,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

pub const NOW_NS: u64 = 1_700_000_000_123_456_789;
pub const RUN: u128 = 0xabcd_ef01_2345_0000_0700_0000_0000_2a9f;

/// Log `history` holds `one`, `two`, `three`; log `big` one record of 5 MiB; appends to `refused/…` are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    pub appended: Vec<(String, Vec<u8>)>,
}

impl LogCalls for Host {
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        if log.starts_with("refused/") {
            return Err(Code::LogNotFound.error(format!("no log '{log}'")));
        }
        self.appended.push((log.to_owned(), payload.to_vec()));
        Ok(None)
    }

    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>> {
        match (log, seqno) {
            ("history", 1) => Ok(b"one".to_vec()),
            ("history", 2) => Ok(b"two".to_vec()),
            ("history", 3) => Ok(b"three".to_vec()),
            ("history", _) => Err(Code::AboveTail.error(format!("'history' ends at 3, not {seqno}"))),
            ("big", _) => Ok(vec![b'b'; 5 << 20]),
            _ => Err(Code::LogNotFound.error(format!("no log '{log}'"))),
        }
    }

    fn latest(&mut self, log: &str) -> Result<u64> {
        if log == "history" { Ok(3) } else { Err(Code::LogNotFound.error(format!("no log '{log}'"))) }
    }

    fn now_ns(&mut self) -> u64 {
        NOW_NS
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for (byte, value) in bytes.iter_mut().zip((0..=255u8).cycle()) {
            *byte = value;
        }
    }
}

/// How a run ended, and what it appended.
pub type Ended = (Completion, Vec<(String, Vec<u8>)>);

/// Runs one batch; checks that every call is reported exactly once and in order.
pub fn run(executor: &mut dyn Executor, records: &[&[u8]]) -> Vec<Ended> {
    let mut hosts = vec![Host::default(); records.len()];
    let mut completions = Vec::new();
    let mut batch: Vec<Run<'_>> = records
        .iter()
        .zip(&mut hosts)
        .zip(1..)
        .map(|((payload, host), seqno)| Run {
            invocation: Invocation {
                log: "raw/kitchen",
                seqno,
                payload,
                run: EventId::from_bits(RUN + u128::from(seqno)),
                attempt: 1,
                streamed: false,
            },
            logs: host,
            objects: None,
        })
        .collect();
    executor.run(&mut batch, &mut |i: usize, completion: Completion| {
        assert_eq!(i, completions.len(), "reported out of order");
        completions.push(completion);
    });
    drop(batch);
    assert_eq!(completions.len(), records.len(), "every call is reported");
    completions.into_iter().zip(hosts.into_iter().map(|host| host.appended)).collect()
}

/// The outcome of one run.
pub fn run_one(executor: &mut dyn Executor, record: &[u8]) -> Completion {
    run(executor, &[record]).remove(0).0
}

/// The code and detail of a run that must fail.
pub fn failure(executor: &mut dyn Executor, record: &[u8]) -> (Code, String) {
    failed(&run_one(executor, record))
}

pub fn failed(completion: &Completion) -> (Code, String) {
    match &completion.outcome {
        Outcome::Failed(error) | Outcome::CannotStart(error) => (error.code(), error.detail().to_owned()),
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// What the run printed.
pub fn printed(completion: &Completion) -> String {
    String::from_utf8_lossy(&completion.output).into_owned()
}

/// A timeout that no working test reaches, and one for tests that must reach it.
pub fn limits() -> Limits {
    Limits { timeout: Duration::from_secs(120), ..Limits::default() }
}

pub fn impatient() -> Limits {
    Limits { timeout: Duration::from_millis(300), ..Limits::default() }
}

/// Tries with timeouts that grow, for what has to happen before the timeout on a machine of any speed.
#[track_caller]
pub fn patiently(attempt: impl Fn(Limits) -> std::result::Result<(), String>) {
    let mut said = String::new();
    for timeout_ms in [300, 3_000, 30_000] {
        match attempt(Limits { timeout: Duration::from_millis(timeout_ms), ..Limits::default() }) {
            Ok(()) => return,
            Err(error) => said = format!("with {timeout_ms} ms: {error}"),
        }
    }
    panic!("{said}");
}

/// Waits until a process has ended, by itself or killed.
#[track_caller]
pub fn ends(pid: &str) {
    let (status, start) = (format!("/proc/{}/status", pid.trim()), std::time::Instant::now());
    while !fs::read_to_string(&status).map_or(true, |status| status.contains("State:\tZ")) {
        assert!(start.elapsed() < Duration::from_secs(120), "process {pid} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes a file that may be executed.
pub fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

pub fn header_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/c")
}

/// Compiles a function written with millrace.h to WebAssembly.
pub fn c_to_wasm(dir: &Path, name: &str, source: &str) -> PathBuf {
    compile(dir, name, source, &["--target=wasm32", "-nostdlib", "-Wl,--no-entry"], &format!("{name}.wasm"))
}

/// Compiles a function written with millrace.h to a native program.
pub fn c_to_native(dir: &Path, name: &str, source: &str) -> PathBuf {
    compile(dir, name, source, &["-std=c99", "-Wpedantic"], name)
}

pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str], output: &str) -> PathBuf {
    let (from, to) = (dir.join(format!("{name}.c")), dir.join(output));
    fs::write(&from, format!("{source}\n")).unwrap();
    let compiled = Command::new("clang")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-I"])
        .arg(header_dir())
        .args(flags)
        .arg(&from)
        .arg("-o")
        .arg(&to)
        .output()
        .expect("clang is installed");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    to
}

/// No environment of its own.
pub fn no_env() -> BTreeMap<String, String> {
    BTreeMap::new()
}

/// An executor of a persistent process in `dir`.
pub fn process(dir: &Path, command: &[&str], limits: Limits) -> ProcessExecutor {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    ProcessExecutor::new(ProcessSpec { command, dir: dir.to_owned(), env: no_env(), scratch: None }, limits)
}

/// A worker written from the specification alone: what it does with a run is `body`.
pub fn worker(body: &str, limits: Limits) -> (ProcessExecutor, TempDir) {
    worker_of(&hello(4, 3), body, limits)
}

/// The HELLO of a worker: its version, and a bit for each kind of work that it knows.
pub fn hello(version: u32, kinds: u16) -> String {
    format!("frame(16, {version}, b'', struct.pack('<IHHI', 65536, 1, {kinds}, 0))")
}

/// The same with a HELLO of its own.
pub fn worker_of(hello: &str, body: &str, limits: Limits) -> (ProcessExecutor, TempDir) {
    let dir = TempDir::new().unwrap();
    let indented: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let source = format!(
        "#!/usr/bin/env python3\n\
         import os, struct, sys, time\n\
         work = 0\n\
         def read(n):\n    \
             data = b''\n    \
             while len(data) < n:\n        \
                 more = os.read(3, n - len(data))\n        \
                 if not more: os._exit(0)\n        \
                 data += more\n    \
             return data\n\
         def packed(kind, number=0, name=b'', payload=b'', of=None):\n    \
             of = work if of is None else of\n    \
             return struct.pack('<IBBHII', len(name) + len(payload), kind, 0, len(name), of, number) + name + payload\n\
         def frame(*parts): os.write(3, packed(*parts))\n\
         def get(log, seqno): return packed(20, 0, log, struct.pack('<Q', seqno))\n\
         def answer():\n    \
             length, kind, flags, name_length, of, number = struct.unpack('<IBBHII', read(16))\n    \
             assert (kind, flags, of, number) == (2, 0, work, 0)\n    \
             code = read(name_length)\n    \
             return int(code[2:] or 0), read(length - name_length)\n\
         {hello}\n\
         while True:\n    \
             length, kind, flags, name_length, work, work_kind = struct.unpack('<IBBHII', read(16))\n    \
             seqno, run_low, run_high, attempt, flags = struct.unpack('<QQQII', read(32))\n    \
             log = read(name_length)\n    \
             payload = read(length - 32 - name_length)\n\
         {indented}"
    );
    script(dir.path(), "worker", &source);
    (process(dir.path(), &["./worker"], limits), dir)
}
