//! Three hosts, and what the rows ask of them.

use crate::{
    Context, Outcome,
    machine::{cpu_s, memory_mb},
    rows::host::program,
};
use millrace_client::{
    Options, Place,
    blocking::{Client, Socket},
};
use millrace_journal::{CreateOptions, Durability};
use millrace_node::Namespace;
use millrace_wire::{
    Code, EventId,
    protocol::{Failure, Message, PublishTopic, Seqno},
};
use serde_json::Value;
use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

pub const HOSTS: usize = 3;
/// The shortest time without a leader before another one is elected.
pub const ELECTION: Duration = Duration::from_millis(300);
/// How long the cluster may take over something that a row waits for.
const PATIENCE: Duration = Duration::from_secs(120);
/// The unit of a disk's counters, whatever its own sectors are.
const SECTOR_BYTES: f64 = 512.0;
/// What a host's namespace retains.
pub const RETAIN_BYTES: u64 = 256 << 20;

/// One of the hosts.
struct Site {
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
}

/// A running cluster.
pub struct Cluster {
    program: PathBuf,
    sites: Vec<Site>,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Three hosts, all voters, with an elected leader.
    pub fn start(context: &Context) -> Outcome<Self> {
        let mut cluster = Self { program: program(context)?, sites: Vec::new(), dir: context.fresh()? };
        for number in 0..HOSTS {
            let dir = cluster.dir.path().join(number.to_string());
            let options =
                CreateOptions { retain_bytes: RETAIN_BYTES, durability: Durability::Disk, ..CreateOptions::default() };
            Namespace::create(&dir, &options)?.create_log(&"out".parse()?, 1 << 20)?;
            // Nobody else on this machine asks for it meanwhile.
            let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            cluster.sites.push(Site { dir, port, child: None });
        }
        cluster.run(0, &["cluster", "init"])?;
        let secret = cluster.secret();
        cluster.run(0, &["cluster", "secret", "--out", text(&secret)?])?;
        for number in 0..HOSTS {
            cluster.serve(number, number > 0)?;
        }
        cluster.await_that("three hosts vote", |cluster| {
            let shown = cluster.show(0)?;
            let votes = |host: &&Value| host["role"] != "learner";
            Ok(shown["hosts"].as_array().is_some_and(|hosts| hosts.iter().filter(votes).count() == HOSTS))
        })?;
        cluster.leader()?;
        Ok(cluster)
    }

    fn secret(&self) -> PathBuf {
        self.dir.path().join("secret")
    }

    fn run(&self, number: usize, words: &[&str]) -> Outcome<()> {
        let output = Command::new(&self.program).arg("-n").arg(&self.sites[number].dir).args(words).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("millrace {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)).into())
    }

    /// Starts a host; the first time it joins the cluster of the first.
    pub fn serve(&mut self, number: usize, joins: bool) -> Outcome<()> {
        let site = &self.sites[number];
        let mut command = Command::new(&self.program);
        command.args(["--json", "serve", "-n", text(&site.dir)?, "--name", "t"]);
        command.args(["--listen", &format!("127.0.0.1:{}", site.port)]);
        command.args(["--election", &format!("{}ms", ELECTION.as_millis())]);
        if joins {
            command.args(["--join", &format!("mr://127.0.0.1:{}/t", self.sites[0].port), "--cluster-secret"]);
            command.arg(self.secret());
        }
        let log = File::create(self.dir.path().join(format!("{number}.log")))?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let output = child.stdout.take().ok_or("a program without output")?;
        self.sites[number].child = Some(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.contains("listening") { Ok(()) } else { Err(format!("millrace serve said '{line}'").into()) }
    }

    /// Ends a host as by kill -9.
    pub fn kill(&mut self, number: usize) -> Outcome<()> {
        if let Some(mut child) = self.sites[number].child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn dir(&self, number: usize) -> &Path {
        &self.sites[number].dir
    }

    pub fn place(&self, number: usize) -> Outcome<Place> {
        Ok(format!("mr://127.0.0.1:{}/t", self.sites[number].port).parse()?)
    }

    pub fn client(&self, number: usize) -> Outcome<Client> {
        Ok(Client::connect(&self.place(number)?, &Options::default())?)
    }

    /// The cluster as a host sees it.
    pub fn show(&self, number: usize) -> Outcome<Value> {
        Ok(serde_json::from_str(&self.client(number)?.show("cluster")?)?)
    }

    /// The host that leads the first group, once one of those that run says so.
    pub fn leader(&self) -> Outcome<usize> {
        let mut found = None;
        self.await_that("a host leads", |cluster| {
            found = cluster.running().find(|number| cluster.show(*number).is_ok_and(|shown| shown["role"] == "leader"));
            Ok(found.is_some())
        })?;
        Ok(found.unwrap_or(0))
    }

    /// Waits until all hosts have the whole log of the first group, as its leader sees it.
    pub fn caught_up(&self) -> Outcome<()> {
        self.await_that("all hosts have caught up", |cluster| {
            let shown = cluster.show(cluster.leader()?)?;
            let has_all = |host: &Value| host["behind"].as_u64().unwrap_or(0) == 0;
            Ok(shown["hosts"].as_array().is_some_and(|hosts| hosts.iter().all(has_all)))
        })
    }

    pub fn running(&self) -> impl Iterator<Item = usize> + '_ {
        (0..HOSTS).filter(|number| self.sites[*number].child.is_some())
    }

    /// Waits until something holds.
    pub fn await_that(&self, what: &str, mut check: impl FnMut(&Self) -> Outcome<bool>) -> Outcome<()> {
        let start = Instant::now();
        while !check(self)? {
            if start.elapsed() > PATIENCE {
                return Err(format!("after {} s still not: {what}", PATIENCE.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn process(&self, number: usize) -> Outcome<u32> {
        Ok(self.sites[number].child.as_ref().ok_or("the host is not running")?.id())
    }

    /// Bytes that were written to the disk with the hosts' data, by whichever program.
    pub fn written_bytes(&self) -> Outcome<f64> {
        let device = fs::metadata(self.dir.path())?.dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
        let sectors: f64 = stat.split_whitespace().nth(6).ok_or("an odd stat file")?.parse()?;
        Ok(sectors * SECTOR_BYTES)
    }

    /// Memory of a host that is resident, in MB.
    pub fn resident_mb(&self, number: usize) -> Outcome<f64> {
        memory_mb(self.process(number)?, "VmRSS")
    }

    /// Processor time that a host has taken, in seconds.
    pub fn cpu_s(&self, number: usize) -> Outcome<f64> {
        cpu_s(self.process(number)?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..self.sites.len() {
            // Its namespace goes with the directory.
            let _ = self.kill(number);
        }
        if env::var_os("MILLRACE_BENCH_LOGS").is_some() {
            for number in 0..HOSTS {
                let log = fs::read_to_string(self.dir.path().join(format!("{number}.log")));
                eprintln!("host {number}: {}", log.unwrap_or_default());
            }
        }
    }
}

fn text(path: &Path) -> Outcome<&str> {
    crate::rows::text(path)
}

/// A connection on which publishes are sent without waiting for the answers before.
pub struct Publisher {
    socket: Socket,
    data: Vec<u8>,
    topic: &'static str,
    sent: u64,
    answered: u64,
}

impl Publisher {
    pub fn new(place: &Place, topic: &'static str, bytes: usize) -> Outcome<Self> {
        let socket = Socket::connect(place, &Options::default())?;
        Ok(Self { socket, data: vec![7; bytes], topic, sent: 0, answered: 0 })
    }

    pub fn waiting(&self) -> u64 {
        self.sent - self.answered
    }

    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Sends one more at the next flush.
    pub fn put(&mut self) -> Outcome<()> {
        let message = PublishTopic { topic: self.topic, data: &self.data, key: None, durability: None };
        self.socket.put(&message, self.data.len(), EventId::NONE)?;
        self.sent += 1;
        Ok(())
    }

    pub fn flush(&mut self) -> Outcome<()> {
        Ok(self.socket.flush(Some(Instant::now() + PATIENCE))?)
    }

    /// Takes an answer, if one comes in time.
    pub fn take(&mut self, patience: Duration) -> Outcome<bool> {
        let took = self.socket.next(patience, |frame| match frame.kind {
            Seqno::TYPE => Ok(()),
            _ => {
                let failure: Failure<'_> = frame.message()?;
                Err(Code::from_id(failure.code).unwrap_or(Code::CodeUnknown).error(failure.detail))
            }
        })?;
        self.answered += u64::from(took.is_some());
        Ok(took.is_some())
    }

    /// Publishes for this long with a limit of unanswered publishes, and waits for all answers; returns publishes per second.
    pub fn rate(&mut self, window: u64, time: Duration) -> Outcome<f64> {
        let (start, before) = (Instant::now(), self.answered);
        while start.elapsed() < time {
            while self.waiting() < window {
                self.put()?;
            }
            self.flush()?;
            // Half of the window at once, so that one write carries many.
            while self.waiting() > window / 2 {
                if !self.take(PATIENCE)? {
                    return Err("a publish was never answered".into());
                }
            }
        }
        while self.waiting() > 0 {
            self.take(PATIENCE)?;
        }
        Ok((self.answered - before) as f64 / start.elapsed().as_secs_f64())
    }
}
