//! Compiling C for a test, with everything a compiler can find switched on.

use millrace_tests::{PATIENCE, built, sanitized, wait};
use rustix::process::Pid;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_owned()
}

/// The C sources among these files, and in these folders.
pub fn sources(paths: &[&str]) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for path in paths {
        let path = root().join(path);
        if path.is_dir() {
            let entries =
                fs::read_dir(&path).expect("the folder is there").map(|entry| entry.expect("it is read").path());
            sources.extend(entries.filter(|entry| entry.extension().is_some_and(|extension| extension == "c")));
        } else {
            sources.push(path);
        }
    }
    sources.sort();
    sources
}

/// A fuzzer in place of the part that connects.
pub const FUZZED: [&str; 8] = [
    "sdk/c/calls.c",
    "sdk/c/client.c",
    "sdk/c/fault.c",
    "sdk/c/remote.c",
    "sdk/c/stat.c",
    "sdk/c/tail.c",
    "sdk/c/wire",
    "sdk/c/fuzz/client_fuzz.c",
];

/// A program made with clang and its sanitizers.
pub fn compile(name: &str, sources: &[PathBuf], more: &[&str]) -> PathBuf {
    sanitized(name, sources, &root().join("sdk/c"), &[], more)
}

/// A program of sdk/c/tests over the client that needs no Rust.
pub fn build_remote(name: &str) -> PathBuf {
    compile(name, &sources(&["sdk/c", "sdk/c/wire", &format!("sdk/c/tests/{name}.c")]), &[])
}

/// The same program with the part that opens files.
pub fn build_local(name: &str) -> PathBuf {
    let archive = built("libmillrace_c.a");
    let more = ["-DMILLRACE_LOCAL", archive.to_str().expect("paths are text"), "-lpthread", "-ldl", "-lm"];
    let files = sources(&["sdk/c", "sdk/c/wire", &format!("sdk/c/tests/{name}.c")]);
    compile(&format!("{name}_local"), &files, &more)
}

/// Bytes as the driver takes them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("x"), |hex, byte| hex + &format!("{byte:02x}"))
}

/// A running sdk/c/tests/driver.c.
pub struct Driver {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Driver {
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        Self::with(None, program, arguments)
    }

    /// The same with the capability in this file.
    pub fn with(capability: Option<&Path>, program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).env_remove("MILLRACE_CAPABILITY");
        command.envs(capability.map(|file| ("MILLRACE_CAPABILITY", file)));
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Tells it to do something.
    #[track_caller]
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it has not been ended");
        input.write_all(format!("{line}\n").as_bytes()).expect("it listens");
    }

    /// Its next answer.
    #[track_caller]
    pub fn answer(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// Both.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Value {
        self.tell(line);
        self.answer()
    }

    /// Lets it end; its exit code, which a sanitizer would make another one.
    #[track_caller]
    pub fn end(mut self) -> i32 {
        self.input = None;
        wait(&mut self.child, "the driver")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
