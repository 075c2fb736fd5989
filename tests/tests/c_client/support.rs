//! Compiling C for a test, with everything a compiler can find switched on.

use millrace_tests::{PATIENCE, Place, end, wait};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        mpsc::{self, Receiver},
    },
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

/// Compiles a program with clang and its sanitizers into the place.
pub fn compile(place: &Place, name: &str, sources: &[PathBuf]) -> PathBuf {
    compile_with(place, name, sources, &[])
}

/// The same with more arguments.
pub fn compile_with(place: &Place, name: &str, sources: &[PathBuf], more: &[&str]) -> PathBuf {
    let program = place.path().join(name);
    let mut command = Command::new("clang");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wno-missing-field-initializers", "-Werror"]);
    command.args(["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"]);
    command.arg(place.path()).arg("-I").arg(root().join("sdk/c")).args(sources).args(more).arg("-o").arg(&program);
    let said = end(command, b"");
    assert_eq!(said.code, 0, "{name} is not compiled: {}", said.stderr);
    program
}

/// A program of sdk/c/tests over the client that needs no Rust.
pub fn build_remote(place: &Place, name: &str) -> PathBuf {
    compile(place, name, &sources(&["sdk/c", "sdk/c/wire", &format!("sdk/c/tests/{name}.c")]))
}

/// The Rust part, built once. Cargo may have to wait for others that build, so no limit is set here.
pub fn archive() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("the test has a path");
        let profile_dir = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "-p", "millrace-c"]);
        cargo.args(profile_dir.ends_with("release").then_some("--release"));
        assert!(cargo.current_dir(root()).status().expect("cargo starts").success(), "millrace-c is built");
        profile_dir.join("libmillrace_c.a")
    })
}

/// The same program with the part that opens files.
pub fn build_local(place: &Place, name: &str) -> PathBuf {
    let archive = archive();
    let more = ["-DMILLRACE_LOCAL", archive.to_str().expect("paths are text"), "-lpthread", "-ldl", "-lm"];
    let files = sources(&["sdk/c", "sdk/c/wire", &format!("sdk/c/tests/{name}.c")]);
    compile_with(place, &format!("{name}_local"), &files, &more)
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
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let input = child.stdin.take();
        Self { child, input, lines }
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
