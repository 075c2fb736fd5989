//! A namespace in a temporary directory, and functions for it.
#![allow(dead_code, missing_docs, reason = "every test binary uses a part")]

use millrace_node::{
    AppendOptions, CreateOptions, Durability, FunctionSpec, Host, HostOptions, HostStatus, LogName, Name, Namespace,
    Record, Runtime, functions, why,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Longest that anything in these tests may take; a bound on hanging, not a measurement.
pub const LONG: Duration = Duration::from_secs(120);

pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub namespace: Namespace,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options =
            CreateOptions { durability: Durability::Memory, segment_bytes: 4 << 20, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
        Self { dir, namespace }
    }

    pub fn host(&self) -> Host {
        Host::start(self.namespace.clone(), HostOptions::default()).unwrap()
    }

    pub fn log(&self, name: &str) {
        self.namespace.create_log(&log(name), 100_000).unwrap();
    }

    /// Deploys a Python function called `name` whose body, with `record` and `ctx`, is `body`.
    pub fn python(&self, name: &str, on: &[&str], body: &str, adjust: impl FnOnce(&mut FunctionSpec)) {
        let mut spec = spec(name, Runtime::Python, on);
        spec.handler = "handler:run".into();
        adjust(&mut spec);
        let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
        let path = self.source(name, "handler.py", &format!("import json, os, time\ndef run(record, ctx):\n{body}"));
        functions::deploy(&self.namespace, &spec, path.parent().unwrap()).unwrap();
    }

    /// Deploys a shell script that runs once per record.
    pub fn script(&self, name: &str, on: &[&str], body: &str, adjust: impl FnOnce(&mut FunctionSpec)) {
        let mut spec = spec(name, Runtime::Oneshot, on);
        spec.command = vec!["./run.sh".into()];
        adjust(&mut spec);
        let path = self.source(name, "run.sh", &format!("#!/bin/sh\n{body}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        functions::deploy(&self.namespace, &spec, &path).unwrap();
    }

    /// Deploys a function written in C against millrace.h, as WebAssembly.
    pub fn wasm(&self, name: &str, on: &[&str], body: &str, adjust: impl FnOnce(&mut FunctionSpec)) {
        let mut spec = spec(name, Runtime::Wasm, on);
        adjust(&mut spec);
        let text = format!("#include \"millrace.h\"\nint handle(const mr_record *record) {{ {body} }}\n");
        let source = self.source(name, "handler.c", &text);
        let module = source.with_file_name("handler.wasm");
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/c");
        let status = Command::new("clang")
            .args(["--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-I"])
            .arg(sdk)
            .arg(&source)
            .arg("-o")
            .arg(&module)
            .status()
            .expect("clang is installed");
        assert!(status.success());
        functions::deploy(&self.namespace, &spec, &module).unwrap();
    }

    pub fn source(&self, function: &str, file: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join("src").join(function).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub fn append(&self, log: &str, payload: &str) -> u64 {
        self.namespace.append(log, payload.as_bytes(), AppendOptions::default()).unwrap().seqno
    }

    /// Every record of a log, as text.
    pub fn all(&self, log: &str) -> Vec<String> {
        self.records(log).into_iter().map(|record| String::from_utf8(record.payload).unwrap()).collect()
    }

    pub fn records(&self, log: &str) -> Vec<Record> {
        let latest = self.namespace.latest(log).unwrap();
        (1..=latest).map(|seqno| self.namespace.get(log, seqno).unwrap()).collect()
    }

    pub fn idle(&self) {
        self.namespace.wait_idle(LONG).unwrap_or_else(|error| {
            let why = why(&self.namespace, "").unwrap();
            panic!("{error}\n{:#?}", why.reasons.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
    }
}

pub fn log(name: &str) -> LogName {
    name.parse().unwrap()
}

pub fn name(name: &str) -> Name {
    name.parse().unwrap()
}

pub fn spec(function: &str, runtime: Runtime, on: &[&str]) -> FunctionSpec {
    let mut spec = FunctionSpec::new(name(function), runtime);
    spec.on = on.iter().map(|log| self::log(log)).collect();
    spec.backoff = Duration::from_millis(1);
    spec
}

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts the example `host`: examples are built along with the tests, beside them.
pub fn host_process(dir: &Path) -> std::process::Child {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().and_then(Path::parent).unwrap().join("examples/host");
    Command::new(&example).arg(dir).spawn().expect("cargo test builds the example `host`")
}

/// Host processes, each killed by SIGKILL in the middle of its work before the next one starts.
pub struct Storm {
    dir: PathBuf,
    host: Option<std::process::Child>,
    pub kills: u32,
}

impl Storm {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), host: None, kills: 0 }
    }

    /// Lets the host work for `time`, kills it, and starts another.
    pub fn next(&mut self, time: Duration) {
        if self.host.is_some() {
            std::thread::sleep(time);
            self.kill();
            self.kills += 1;
        }
        self.host = Some(host_process(&self.dir));
        // A host takes longer to start on a busy machine; one that is killed before it has started proves nothing.
        let namespace = Namespace::open(&self.dir).unwrap();
        until("the host is there", || {
            assert_eq!(self.host.as_mut().unwrap().try_wait().unwrap(), None, "the host ended by itself");
            HostStatus::of(&namespace).unwrap().is_some()
        });
    }

    fn kill(&mut self) {
        if let Some(mut host) = self.host.take() {
            host.kill().unwrap();
            host.wait().unwrap();
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.kill();
    }
}
