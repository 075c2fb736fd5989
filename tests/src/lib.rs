//! Black-box tests: they drive the real binary, as a user would, and look only at what it prints and how it ends.

mod built;
mod caller;
pub mod history;
mod port;
pub mod raw;
pub mod servers;

pub use built::{built, sanitized};
pub use caller::{Call, Caller};
pub use port::Port;

use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest any command may take before the test fails; generous, because only liveness is meant.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The longest that typing all commands of a page may take.
pub const PAGE: Duration = Duration::from_secs(900);

/// What is typed for the commands of a page: whoever reads it waits a minute for runs to end, and a test as long as they take.
/// Whoever types is slower than the end of a process that was killed, and a test waits for it.
pub fn patient(typed: &str) -> String {
    let typed = typed.replace("run wait --idle", "run wait --idle --timeout 800s");
    let lines = typed.lines().map(|line| match line.strip_prefix("kill -9 ").and_then(|job| job.split(' ').next()) {
        Some(job) => format!("{line}\nwait {job} || true\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// The binary: `$MILLRACE`, or the one that was built along with this test.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("MILLRACE").map_or_else(|| built("millrace"), PathBuf::from))
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; of a command that a signal killed, 128 and the signal's number.
    pub code: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    /// Standard output as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("it prints text")
    }

    /// Asserts that it succeeded, and said nothing on standard error but that something takes long, which depends on the machine.
    #[track_caller]
    pub fn ok(self) -> Self {
        let is_slow = |line: &str| {
            line.contains(": still importing the module ")
                || (line.starts_with("millrace: run ") && line.contains(" waits: "))
                || line.starts_with("millrace: waiting up to 10 s for a decision of the cluster: ")
        };
        let is_quiet = self.stderr.lines().all(is_slow);
        assert!(self.code == 0 && is_quiet, "it failed: {self:#?}");
        self
    }

    /// Its standard output as JSON objects, one for each line.
    #[track_caller]
    pub fn objects(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        self.text().lines().map(parse).collect()
    }

    /// Its one JSON object.
    #[track_caller]
    pub fn object(&self) -> Value {
        let mut objects = self.objects();
        assert_eq!(objects.len(), 1, "{self:#?}");
        objects.remove(0)
    }

    /// Asserts that it failed with this code and exit code, and told cause and remedy. Progress may stand before the error.
    #[track_caller]
    pub fn fails(self, code: &str, exit: i32) -> Self {
        assert_eq!(self.code, exit, "{self:#?}");
        let error = format!("error[{code}]:");
        assert!(self.stderr.lines().any(|line| line.starts_with(&error)), "{self:#?}");
        assert!(self.stderr.contains("\n  cause: ") && self.stderr.contains("\n  remedy: "), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }
}

/// A directory with a namespace, and the binary to use it with.
pub struct Place {
    dir: tempfile::TempDir,
    without: Option<String>,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// An empty directory.
    pub fn empty() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory"), without: None }
    }

    /// A directory with a fresh namespace whose appends do not wait for the disk.
    pub fn new() -> Self {
        let place = Self::empty();
        place.run(["init", "--bare", "--segment-size", "1MiB", "--durability", "memory"]).ok();
        place
    }

    /// An empty directory in this one.
    pub fn within(parent: &Path) -> Self {
        Self { dir: tempfile::tempdir_in(parent).expect("a temporary directory"), without: None }
    }

    /// The same, whose commands lack a defence from now on; see `millrace_wire::Defence`.
    #[must_use]
    pub fn without(self, defence: &str) -> Self {
        Self { without: Some(defence.to_owned()), ..self }
    }

    /// The defence that its commands lack.
    pub fn lacks(&self) -> Option<&str> {
        self.without.as_deref()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The namespace's directory.
    pub fn namespace(&self) -> PathBuf {
        self.dir.path().join(".millrace")
    }

    /// Writes a file, executable if it begins like a script.
    pub fn write(&self, name: &str, content: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().expect("below the directory")).expect("the directory is made");
        fs::write(&path, content).expect("the file is written");
        if content.starts_with("#!") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode is set");
        }
    }

    /// A command of the binary in this directory, in an environment that decides nothing.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(binary());
        command.args(args).current_dir(self.dir.path()).env_remove("MILLRACE_NAMESPACE").env("TZ", "UTC");
        // Tests run side by side: who wants a port says so.
        command.env("MILLRACE_LISTEN", "none").env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        command
            .env("XDG_RUNTIME_DIR", self.dir.path().join("run"))
            .env("XDG_STATE_HOME", self.dir.path().join("state"));
        for variable in ["MILLRACE_CAPABILITY", "MILLRACE_WITHOUT", "MILLRACE_TRUSTED", "SUDO_UID"] {
            command.env_remove(variable);
        }
        if let Some(defence) = &self.without {
            command.env("MILLRACE_WITHOUT", defence);
        }
        command
    }

    /// Runs a command to its end, with nothing on standard input.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ended {
        self.feed(args, b"")
    }

    /// Runs a command to its end with these bytes on standard input.
    #[track_caller]
    pub fn feed<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &[u8]) -> Ended {
        end(self.command(args), input)
    }

    /// Starts a host and waits until it serves.
    pub fn serve(&self) -> Host {
        Host::start(self.command(["serve", "--drain", "100s"]))
    }

    /// Starts a host that listens on a port of its own; see [`Host::port`].
    pub fn serve_tcp<S: AsRef<OsStr>>(&self, more: impl IntoIterator<Item = S>) -> Host {
        let mut command = self.command(["--json", "serve", "--listen", "127.0.0.1:0", "--drain", "100s"]);
        command.args(more);
        Host::start(command)
    }

    /// Waits until no run is pending.
    #[track_caller]
    pub fn idle(&self) {
        self.run(["run", "wait", "--idle", "--timeout", "120s"]).ok();
    }

    /// The records of a log as text.
    #[track_caller]
    pub fn records(&self, log: &str) -> Vec<String> {
        let objects = self.run(["--json", "log", "get", log, "--all"]).ok().objects();
        objects.iter().map(|record| record["data"].as_str().expect("text").to_string()).collect()
    }
}

/// Runs any command to its end.
#[track_caller]
pub fn end(command: Command, input: &[u8]) -> Ended {
    end_within(PATIENCE, command, input)
}

/// Runs any command to its end, which comes in this time.
#[track_caller]
pub fn end_within(patience: Duration, mut command: Command, input: &[u8]) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    // Anyone who is not interested in its input closes it, which is no failure of ours.
    let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
    let stdout = reader(child.stdout.take().expect("piped"));
    let stderr = reader(child.stderr.take().expect("piped"));
    let code = wait_within(patience, &mut child, &format!("{command:?}"));
    feeder.join().expect("the feeder ends");
    let stderr = String::from_utf8_lossy(&stderr.join().expect("the reader ends")).into_owned();
    Ended { code, stdout: stdout.join().expect("the reader ends"), stderr }
}

fn reader(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}

/// Waits for a child to end; one that does not is killed, and fails the test.
#[track_caller]
pub fn wait(child: &mut Child, what: &str) -> i32 {
    wait_within(PATIENCE, child, what)
}

#[track_caller]
fn wait_within(patience: Duration, child: &mut Child, what: &str) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        }
        if start.elapsed() > patience {
            let _ = child.kill();
            panic!("{what} did not end");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A running host; dropping it kills it.
pub struct Host {
    child: Child,
    lines: Receiver<String>,
    announced: String,
}

impl Host {
    /// Starts a command that serves, and waits until it says so.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        // It ends with the host's output, or when nobody listens any more.
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut host = Self { child, lines, announced: String::new() };
        host.announced = host.line_with(&["serving", "running ", "\"attached\""]);
        host
    }

    /// The TCP port of a host that was started with `--json`.
    pub fn port(&self) -> u16 {
        let announced: Value = serde_json::from_str(&self.announced).expect("the host was started with --json");
        let address = announced["listening"][0].as_str().expect("it listens on an address");
        address.rsplit_once(':').expect("host:port").1.parse().expect("a port")
    }

    /// The line by which it said that it serves.
    pub fn announcement(&self) -> &str {
        &self.announced
    }

    /// Waits for a line of its output that contains one of `texts`.
    #[track_caller]
    pub fn line_with(&self, texts: &[&str]) -> String {
        let start = Instant::now();
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(line) if texts.iter().any(|text| line.contains(text)) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("it did not say any of {texts:?} ({error}); it said:\n{}", seen.join("\n")),
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill starts").success());
    }

    /// Waits for its end; its exit code.
    #[track_caller]
    pub fn ended(mut self) -> i32 {
        wait(&mut self.child, "the host")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries until `check` holds, for as long as liveness allows.
#[track_caller]
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < PATIENCE, "it never came true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
