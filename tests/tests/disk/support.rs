//! Disks that misbehave: small file systems in memory, and system calls that fail because a tracer says so.

use millrace_client::{AppendOptions, Options, Place as Address, blocking::Client};
use millrace_tests::{Host, PATIENCE, Place, end, eventually};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A file system of its own, in memory, as small as asked.
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, which is said, where this user may not mount anything.
    pub fn new(mib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Self { dir };
        match disk.mount(&format!("size={mib}m")) {
            None => Some(disk),
            Some(refused) => {
                eprintln!("NOT TESTED: small disks are file systems in memory, which root may mount: {refused}");
                None
            }
        }
    }

    /// What `mount` said against it.
    fn mount(&self, options: &str) -> Option<String> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "millrace-test"]).arg(self.path());
        let ended = end(command, b"");
        (ended.code != 0).then_some(ended.stderr)
    }

    pub fn remount(&self, options: &str) {
        assert_eq!(self.mount(&format!("remount,{options}")), None);
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Takes all room that is left.
    pub fn fill(&self) {
        let mut ballast = fs::File::options().create(true).append(true).open(self.ballast()).expect("a file");
        let chunk = vec![1; 64 << 10];
        while ballast.write(&chunk).is_ok_and(|written| written > 0) {}
    }

    pub fn empty(&self) {
        fs::remove_file(self.ballast()).expect("the ballast is there");
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever still has a file there keeps it until it ends.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// A tracer that makes system calls of a running process fail or wait, until it is dropped.
pub struct Injected {
    tracer: Child,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

impl Injected {
    /// `what` as strace has it: `fdatasync:error=EIO`.
    pub fn into(pid: u32, what: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = dir.path().join("log");
        let call = what.split(':').next().expect("a call");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", &format!("trace={call}"), "-e", &format!("inject={what}")]);
        command.args(["-p", &pid.to_string(), "-o"]).arg(&log).stdout(Stdio::null());
        let tracer = command.spawn().expect("strace is installed: scripts/setup.sh does that");
        let injected = Self { tracer, log, _dir: dir };
        eventually("the tracer has every thread", || {
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
            threads.flatten().all(|thread| {
                let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                !status.contains("TracerPid:\t0")
            })
        });
        injected
    }

    /// Ends the tracer of a process that has ended while it held up one of its threads: strace waits for such a thread, and
    /// the thread for strace.
    pub fn let_go(mut self) {
        self.tracer.kill().expect("the tracer is a child");
    }

    /// How many calls it has changed.
    pub fn count(&self) -> usize {
        fs::read_to_string(&self.log).map_or(0, |log| log.matches("INJECTED").count() + log.matches("DELAYED").count())
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.tracer.id().to_string()]).status();
        // It waits for ever for a process that came into being while it let go of the others.
        let patience = Instant::now() + Duration::from_secs(10);
        while matches!(self.tracer.try_wait(), Ok(None)) && Instant::now() < patience {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.tracer.kill();
        let _ = self.tracer.wait();
    }
}

/// What came back over HTTP.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// One request over a connection of its own; none if the host did not answer it.
pub fn http(port: u16, method: &str, path: &str, body: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
         content-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}

/// What clients were told of the records that they appended.
#[derive(Default)]
pub struct Reported {
    pub acked: BTreeMap<String, u64>,
    pub refused: Vec<(String, String)>,
    /// No answer, or one that leaves it open.
    pub unknown: Vec<String>,
}

/// Clients that append until they are stopped, over the wire and over HTTP.
pub struct Producers {
    reported: Arc<Mutex<Reported>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Appends to a log of the host on a port: the seqno, or the code of a refusal if one came.
type Append = fn(u16, &str, &str) -> Result<u64, Option<String>>;

static NAMES: AtomicU64 = AtomicU64::new(0);

impl Producers {
    pub fn start(port: u16, log: &str) -> Self {
        let (reported, stop) = (Arc::<Mutex<Reported>>::default(), Arc::<AtomicBool>::default());
        let by: [Append; 4] = [by_wire, by_http, by_wire, by_http];
        let threads = by.into_iter().enumerate().map(|(n, append)| {
            let (reported, stop, log) = (reported.clone(), stop.clone(), log.to_owned());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let record = format!("{n}-{} {}", NAMES.fetch_add(1, Ordering::Relaxed), "x".repeat(1500));
                    let outcome = append(port, &log, &record);
                    let refused = outcome.is_err();
                    let mut reported = reported.lock().unwrap();
                    match outcome {
                        Ok(seqno) => drop(reported.acked.insert(record, seqno)),
                        // The append may have got in before the flush failed, or its batch before the disk did.
                        Err(Some(code)) if !["MR2009", "MR2014", "MR2020"].contains(&&*code) => {
                            reported.refused.push((record, code));
                        }
                        Err(_) => reported.unknown.push(record),
                    }
                    drop(reported);
                    if refused {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            })
        });
        Self { reported: reported.clone(), stop: stop.clone(), threads: threads.collect() }
    }

    /// How many were acknowledged.
    pub fn acked(&self) -> usize {
        self.reported.lock().unwrap().acked.len()
    }

    /// How many were refused with this code.
    pub fn refused(&self, code: &str) -> usize {
        self.reported.lock().unwrap().refused.iter().filter(|(_, refused)| refused == code).count()
    }

    /// Waits until more are acknowledged than now.
    pub fn go_on(&self) {
        let now = self.acked();
        eventually("appends are acknowledged", || self.acked() > now + 20);
    }

    pub fn end(self) -> Reported {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut *self.reported.lock().unwrap())
    }
}

pub fn farm(port: u16) -> Address {
    format!("mr://127.0.0.1:{port}/farm").parse().unwrap()
}

thread_local! {
    static CLIENT: std::cell::RefCell<Option<Client>> = const { std::cell::RefCell::new(None) };
}

fn by_wire(port: u16, log: &str, record: &str) -> Result<u64, Option<String>> {
    CLIENT.with_borrow_mut(|client| {
        if client.is_none() {
            *client = Some(Client::connect(&farm(port), &Options::default()).map_err(|_| None)?);
        }
        let appended = client.as_ref().unwrap().append(log, record.as_bytes(), AppendOptions::default());
        appended.map(|receipt| receipt.seqno).map_err(|error| {
            let code = error.code().id().to_owned();
            code.starts_with("MR2").then_some(code)
        })
    })
}

fn by_http(port: u16, log: &str, record: &str) -> Result<u64, Option<String>> {
    let path = format!("/v1/namespaces/farm/logs/{log}/records");
    let answer = http(port, "POST", &path, record).ok_or(None)?;
    let body: serde_json::Value = serde_json::from_str(&answer.body).map_err(|_| None)?;
    match body["seqno"].as_u64() {
        Some(seqno) if answer.status < 300 => Ok(seqno),
        _ => {
            let code = body["error"]["code"].as_str().ok_or(None)?.to_owned();
            if ["MR2005", "MR2008"].contains(&&*code) {
                assert_eq!(answer.status, if code == "MR2008" { 507 } else { 503 }, "{}", answer.head);
                assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
            }
            Err(code.starts_with("MR2").then_some(code))
        }
    }
}

/// A host whose complaints are kept.
pub struct Watched {
    pub host: Host,
    stderr: PathBuf,
}

impl Watched {
    pub fn start(place: &Place, stderr: &Path) -> Self {
        let mut command =
            place.command(["--json", "serve", "--listen", "127.0.0.1:0", "--name", "farm", "--drain", "20s"]);
        command.stderr(fs::File::create(stderr).expect("a file for its complaints"));
        Self { host: Host::start(command), stderr: stderr.to_owned() }
    }

    pub fn said(&self, text: &str) -> bool {
        fs::read_to_string(&self.stderr).expect("its complaints").contains(text)
    }

    pub fn is_ready(&self) -> Answer {
        http(self.host.port(), "GET", "/readyz", "").expect("a host answers whether it is ready")
    }
}

/// Asserts that the log holds each acknowledged record at its place, none that was refused, and none twice.
pub fn compare(records: &[String], reported: &Reported) {
    for (record, seqno) in &reported.acked {
        let there = records.get(*seqno as usize - 1);
        assert_eq!(there, Some(record), "record {seqno} was acknowledged");
    }
    let mut seen = std::collections::HashSet::new();
    records.iter().for_each(|record| assert!(seen.insert(record), "twice: {record:.20}"));
    for (record, code) in &reported.refused {
        assert!(!seen.contains(record), "refused with {code}, and there: {record:.20}");
    }
    let known = reported.acked.len() + reported.unknown.iter().filter(|record| seen.contains(record)).count();
    assert_eq!(records.len(), known, "records that nobody appended");
}
