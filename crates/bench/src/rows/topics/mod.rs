//! topic.*: topics of a cluster of three hosts, each the shipped program in a process of its own, all on one machine and one disk.

pub mod idle;
pub mod lost;
pub mod publish;
pub mod read;

use super::host::program;
use crate::{Context, Outcome};
use millrace_client::{Options, Place, blocking::Client};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Election timeouts of these hosts are from once to twice this: the default.
pub const ELECTION_MS: u64 = 300;
const HOSTS: [&str; 3] = ["a", "b", "c"];

/// Three hosts that keep topics together.
pub struct Trio {
    program: PathBuf,
    hosts: Vec<Option<Child>>,
    ports: Vec<u16>,
    dir: tempfile::TempDir,
}

/// What the kernel counts of a process.
pub struct Usage {
    pub cpu_s: f64,
    pub resident_mb: f64,
    pub written_bytes: f64,
}

impl Trio {
    pub fn start(context: &Context) -> Outcome<Self> {
        let dir = context.fresh()?;
        let mut trio = Self { program: program(context)?, hosts: Vec::new(), ports: vec![0; 3], dir };
        for name in HOSTS {
            fs::create_dir(trio.path(name))?;
            trio.command(name, &["init", "--bare"])?;
        }
        trio.command("a", &["cluster", "init"])?;
        trio.command("a", &["cluster", "secret", "--out", "../cluster.secret"])?;
        for at in 0..HOSTS.len() {
            trio.hosts.push(None);
            trio.serve(at)?;
        }
        let first = trio.client(0)?;
        patiently("three hosts vote", || {
            let cluster: Value = serde_json::from_str(&first.show("cluster")?)?;
            let hosts = cluster["hosts"].as_array().cloned().unwrap_or_default();
            Ok(hosts.len() == 3 && hosts.iter().all(|host| host["role"] != "learner"))
        })?;
        Ok(trio)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, name: &str, words: &[&str]) -> Outcome<()> {
        let output = Command::new(&self.program).args(words).current_dir(self.path(name)).output()?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    }

    /// Serves, on the port that the host had before if there was one.
    pub fn serve(&mut self, at: usize) -> Outcome<()> {
        let mut command = Command::new(&self.program);
        let listen = format!("127.0.0.1:{}", self.ports[at]);
        command.args(["--json", "serve", "--name", HOSTS[at], "--listen", &listen]).current_dir(self.path(HOSTS[at]));
        if at > 0 && self.ports[at] == 0 {
            let first = format!("mr://127.0.0.1:{}/a", self.ports[0]);
            command.args(["--join", &first, "--cluster-secret", "../cluster.secret"]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("a program without output")?).read_line(&mut line)?;
        let announced: Value = serde_json::from_str(&line)?;
        let address = announced["listening"][0].as_str().ok_or_else(|| format!("millrace serve said {line}"))?;
        self.ports[at] = address.rsplit_once(':').ok_or("an address without a port")?.1.parse()?;
        self.hosts[at] = Some(child);
        Ok(())
    }

    /// Kills a host where it stands.
    pub fn kill(&mut self, at: usize) -> Outcome<()> {
        if let Some(mut child) = self.hosts[at].take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn client(&self, at: usize) -> Outcome<Client> {
        let place: Place = format!("mr://127.0.0.1:{}/{}", self.ports[at], HOSTS[at]).parse()?;
        Ok(Client::connect(&place, &Options::default())?)
    }

    /// Which host leads the first group, once one of those that run says so.
    pub fn leader(&self) -> Outcome<usize> {
        let mut found = None;
        patiently("a host leads", || {
            for at in (0..HOSTS.len()).filter(|at| self.hosts[*at].is_some()) {
                let cluster: Value = serde_json::from_str(&self.client(at)?.show("cluster")?)?;
                found = found.or(Some(at).filter(|_| cluster["role"] == "leader"));
            }
            Ok(found.is_some())
        })?;
        found.ok_or_else(|| "nobody leads".into())
    }

    pub fn usage(&self, at: usize) -> Outcome<Usage> {
        let id = self.hosts[at].as_ref().ok_or("a host that does not run")?.id();
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        let words = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        // utime and stime, in hundredths of a second.
        let ticks: f64 = words.skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
        let field = |file: &str, name: &str| -> Outcome<f64> {
            let text = fs::read_to_string(format!("/proc/{id}/{file}"))?;
            let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line in /proc")?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        let resident_mb = field("status", "VmRSS:")? * 1024.0 / 1e6;
        Ok(Usage { cpu_s: ticks / 100.0, resident_mb, written_bytes: field("io", "write_bytes:")? })
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        // Their namespaces go with the directory.
        for child in self.hosts.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until something holds, for at most two minutes. What cannot be asked yet does not hold.
pub fn patiently(what: &str, mut check: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let start = Instant::now();
    loop {
        let found = check();
        if matches!(found, Ok(true)) {
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(120) {
            return Err(format!("after two minutes still not: {what} ({found:?})").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}
