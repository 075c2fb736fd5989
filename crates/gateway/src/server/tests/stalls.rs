//! What blocks the journal blocks only appends: all other requests are answered, and the host says what blocks it.

use crate::{
    Hosted,
    server::{Server, ServerOptions},
    wire::tests::{framed, hello},
};
use millrace_journal::medium::sim::{Call, Fault, SimDisk};
use millrace_node::{AppendOptions, CreateOptions, Durability, Journal, Namespace, Served};
use millrace_wire::protocol::{Append, Get, PREFACE, Ping, Show, split};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

/// Where a process finds the namespace whose lock it is to hold.
const STOPPED_IN: &str = "MILLRACE_STOPPED_IN";
/// A process that runs one test only.
const ALONE: &str = "MILLRACE_TEST_ALONE";
/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

fn serve(namespace: Namespace) -> (Server, SocketAddr) {
    let served = Served::new("farm".parse().unwrap(), namespace).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ServerOptions { listen, loops: 2, ..ServerOptions::default() };
    let server = Server::start(Arc::new(Hosted::new(vec![served])), &options).unwrap();
    let address = server.bound().addresses[0];
    (server, address)
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, method: &str, path: &str, body: &str) {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
}

fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// The answer to a GET of this path over a new connection.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connected(address);
    ask(&mut stream, "GET", path, "");
    rest(stream)
}

fn append(address: SocketAddr) -> TcpStream {
    let mut stream = connected(address);
    ask(&mut stream, "POST", "/v1/namespaces/farm/logs/a/records", "x");
    stream
}

/// A connection with the wire protocol that has sent its first requests, and their first answer.
fn wire(address: SocketAddr, more: impl FnOnce(&mut Vec<u8>)) -> TcpStream {
    let mut out = [PREFACE.to_vec(), hello()].concat();
    more(&mut out);
    let mut stream = connected(address);
    stream.write_all(&out).unwrap();
    assert_eq!(next(&mut stream), 1, "the handshake");
    stream
}

/// The request that the next frame answers.
fn next(stream: &mut TcpStream) -> u64 {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).unwrap();
    bytes.resize(4 + u32::from_le_bytes(bytes[..].try_into().unwrap()) as usize, 0);
    stream.read_exact(&mut bytes[4..]).unwrap();
    let frame = split(&bytes, usize::MAX).unwrap().unwrap().0;
    frame.heading.request
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG, "waited too long until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// While the journal is blocked, everything but appends is answered, and says why those are not.
fn only_appends_wait(address: SocketAddr, by: &str, says: &str) {
    // On every loop there are connections that wait for an append.
    let appends: Vec<TcpStream> = (0..6).map(|_| append(address)).collect();
    let request = |out: &mut Vec<u8>| framed(out, 2, &Append { log: "a", data: b"y", ..Append::default() });
    let mut waits = wire(address, request);
    // That one asks for more over the same connection.
    let mut more = Vec::new();
    framed(&mut more, 3, &Ping {});
    framed(&mut more, 4, &Get { log: "a", seqno: 1, ..Get::default() });
    framed(&mut more, 5, &Show { path: "status" });
    waits.write_all(&more).unwrap();
    let mut answered: Vec<u64> = (0..3).map(|_| next(&mut waits)).collect();
    answered.sort_unstable();
    assert_eq!(answered, [3, 4, 5], "what waits for nothing goes before what waits");
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 "));
    until("the host says what blocks it", || get(address, "/readyz").contains(says));
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503 "));
    assert!(get(address, "/healthz").contains(says) && get(address, "/healthz").starts_with("HTTP/1.1 200 "));
    let status = get(address, "/v1/namespaces/farm/status");
    assert!(status.starts_with("HTTP/1.1 200 ") && status.contains(says), "{status}");
    let metrics = get(address, "/metrics");
    let line =
        metrics.lines().find(|line| line.contains(&format!("blocked_seconds{{namespace=\"farm\",by=\"{by}\"}}")));
    assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
    assert!(get(address, "/v1/namespaces/farm/logs/a/records/1").starts_with("HTTP/1.1 200 "));
    // A waiter for the lock gets an error after the limit; a write that the disk has begun is not abandoned.
    if by == "lock" && says.contains("process") {
        assert_eq!(next(&mut waits), 2);
        for append in appends {
            let reported = rest(append);
            assert!(
                reported.starts_with("HTTP/1.1 503 ") && reported.contains("MR6054") && reported.contains(says),
                "{reported}"
            );
        }
    } else {
        drop((waits, appends));
    }
}

fn filled(namespace: Namespace) -> Namespace {
    namespace.create_log(&"a".parse().unwrap(), 1000).unwrap();
    namespace.append("a", b"1", AppendOptions::default()).unwrap();
    namespace
}

/// Takes the lock of the namespace in `dir`, and is stopped while it has it.
fn stops_with_the_lock(dir: &Path) {
    let namespace = Namespace::open(dir).unwrap();
    let commit = namespace.journal().commit(|_| {
        fs::write(dir.join("taken"), "").unwrap();
        kill_process(getpid(), Signal::STOP).unwrap();
        // The signal may reach another thread first, and this one goes on for a moment.
        until("it is continued", || dir.join("continued").exists());
        Ok(())
    });
    commit.unwrap();
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_is_stopped_with_the_lock_blocks_only_appends_and_is_named() {
    if let Some(dir) = std::env::var_os(STOPPED_IN) {
        return stops_with_the_lock(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("n");
    for durability in [Durability::Memory, Durability::Disk] {
        let _ = fs::remove_dir_all(&dir);
        let namespace =
            filled(Namespace::create(&dir, &CreateOptions { durability, ..CreateOptions::default() }).unwrap());
        let (server, address) = serve(namespace);
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.arg("--exact");
        again.arg("server::tests::stalls::a_process_that_is_stopped_with_the_lock_blocks_only_appends_and_is_named");
        let mut stopped = Ends(again.env(STOPPED_IN, &dir).spawn().unwrap());
        let pid = stopped.0.id();
        until("it has the lock", || dir.join("taken").exists());
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        until("it is stopped", || stat().rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')));
        only_appends_wait(address, "lock", &format!("process {pid} ("));
        assert!(get(address, "/readyz").contains(&format!("it is stopped: `kill -CONT {pid}` continues it")));
        fs::write(dir.join("continued"), "").unwrap();
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::CONT).unwrap();
        assert!(stopped.0.wait().unwrap().success());
        assert!(rest(append(address)).starts_with("HTTP/1.1 201 "));
        until("the host is ready again", || {
            get(address, "/readyz").contains("\"reason\":\"this host does not run functions\"")
        });
        server.stop(HANG);
    }
}

/// Makes the disk answer no call of this kind until the returned flag is set.
fn stalled(disk: &SimDisk, call: Call) -> Arc<(Mutex<bool>, Condvar)> {
    let over = Arc::new((Mutex::new(false), Condvar::new()));
    let until = over.clone();
    let faults = move |asked: Call| match asked == call {
        true => Fault::Stall(until.clone()),
        false => Fault::None,
    };
    disk.set_faults(Some(Box::new(faults)));
    over
}

#[test]
fn a_disk_that_takes_no_write_or_ends_no_flush_blocks_only_appends_and_is_named() {
    for (call, by, says) in [(Call::Write, "lock", "answered a write"), (Call::Flush, "flush", "answered a flush")] {
        let disk = SimDisk::default();
        let options =
            CreateOptions { segment_bytes: 1 << 20, durability: Durability::Disk, ..CreateOptions::default() };
        let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
        let (server, address) = serve(filled(Namespace::over(journal)));
        // While the disk stalls, the host can only repeat metrics that it has computed once before.
        assert!(get(address, "/metrics").contains("millrace_log_records_total{namespace=\"farm\",log=\"a\"} 1\n"));
        let over = stalled(&disk, call);
        only_appends_wait(address, by, says);
        assert!(get(address, "/metrics").contains("millrace_log_records_total{namespace=\"farm\",log=\"a\"} "));
        disk.set_faults(None);
        *over.0.lock().unwrap() = true;
        over.1.notify_all();
        assert!(rest(append(address)).starts_with("HTTP/1.1 201 "));
        server.stop(HANG);
    }
}

#[test]
fn what_waits_at_the_gate_for_a_client_of_http_counts_as_memory() {
    const RECORD_BYTES: usize = 4 << 20;
    // It takes all the memory that the connections of a process have, so it has a process of its own.
    if std::env::var_os(ALONE).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "server::tests::stalls::what_waits_at_the_gate_for_a_client_of_http_counts_as_memory"]);
        return assert!(again.env(ALONE, "").status().unwrap().success());
    }
    let disk = SimDisk::default();
    let options = CreateOptions { segment_bytes: 32 << 20, durability: Durability::Disk, ..CreateOptions::default() };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let namespace = filled(Namespace::over(journal));
    let in_memory = AppendOptions { durability: Some(Durability::Memory), ..AppendOptions::default() };
    namespace.append("a", &vec![b'x'; RECORD_BYTES], in_memory).unwrap();
    let (server, address) = serve(namespace);
    disk.hold_flushes(true);
    // None of these is released; together they are more than the memory that there is.
    let path = "/v1/namespaces/farm/logs/a/records";
    let mut asking: Vec<TcpStream> = (0..80).map(|_| connected(address)).collect();
    for (n, stream) in asking.iter_mut().enumerate() {
        ask(stream, "GET", &[format!("{path}/2"), format!("{path}?from=2")][n % 2], "");
    }
    until("memory is short", crate::memory::is_short_of::<RECORD_BYTES>);
    disk.hold_flushes(false);
    let answers: Vec<String> = asking.into_iter().map(|stream| rest(stream)[..12].to_owned()).collect();
    let of = |status: &str| answers.iter().filter(|answer| answer.ends_with(status)).count();
    assert!(of("200") > 0 && of("503") > 0 && of("200") + of("503") == answers.len(), "{answers:?}");
    server.stop(HANG);
}
