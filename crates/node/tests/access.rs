//! `Access`: nothing leaves before what it depends on is safe, and no caller acts beyond its rights.

use millrace_journal::medium::sim::SimDisk;
use millrace_node::{
    Access, AppendOptions, CLIENT_HISTORY_MAX, Caller, Code, CreateOptions, Durability, Gated, HISTORY_ALL, Hlc,
    Journal, Limits, Marks, Namespace, Need, Of, OpenOptions, Served, Shows, Site, Watermark, functions,
    manage::{Order, Sending, Up},
    token::{Peer, Way},
};
use millrace_node::{
    EventId,
    secrets::Authority,
    token::{Grant, Proof, Rights, Rules, TokenId, admit},
};
use millrace_wire::protocol::{Deliver, Item, Link};
use std::{
    collections::BTreeMap,
    future::Future,
    path::Path,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

const DISK: AppendOptions<'_> = AppendOptions {
    function: None,
    durability: Some(Durability::Disk),
    cause: millrace_node::EventId::NONE,
    clock: ZERO,
    key: None,
    fence: None,
    headers: None,
    patience: Duration::ZERO,
    after: millrace_node::EventId::NONE,
};
const ZERO: Hlc = Hlc::ZERO;

fn access_to(namespace: Namespace) -> Access {
    let served = Served::new("n".parse().unwrap(), namespace).unwrap();
    served.gate().turn(); // This test is the loop that drives the gate.
    served.access(&Arc::new(Caller::owner(Peer { way: Way::Unix, address: None, key: None })))
}

fn simulated(disk: &SimDisk) -> Namespace {
    let options = CreateOptions { segment_bytes: 1 << 20, ..CreateOptions::default() };
    Namespace::over(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap())
}

fn reopened(disk: &SimDisk) -> Namespace {
    let journal = Journal::open_on(disk.process(), Path::new("sim"), &OpenOptions { background: false }).unwrap();
    Namespace::over(journal)
}

/// Polls once; counts wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Has the gate flush, and waits until it has woken who waits.
fn turn(access: &Access, woken: &Woken) {
    access.served().gate().turn();
    let start = Instant::now();
    while woken.0.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < Duration::from_secs(120), "nobody was woken");
        thread::yield_now();
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
}

#[test]
fn the_log_of_idempotency_keys_is_the_one_that_nobody_may_read() {
    assert!(millrace_node::is_secret(millrace_namespace::keys::LOG));
}

#[test]
fn every_kind_of_answer_waits_for_the_flush() {
    let disk = SimDisk::default();
    let access = access_to(simulated(&disk));
    access.create_log("raw", 100).wait().unwrap();
    let memory = AppendOptions { durability: Some(Durability::Memory), ..DISK };
    // One record that no flush has seen; from it on, everything that tells of it is held.
    assert_eq!(access.append("raw", b"1", memory).now().ok().unwrap().unwrap().seqno, 1);
    fn is_held<T>(held: Gated<T>) -> bool {
        held.now().is_err()
    }
    assert!(is_held(access.get("raw", 1, None)));
    assert!(is_held(access.get("raw", 0, None)));
    assert!(is_held(access.range("raw", 1, 9, 1 << 20, None)));
    assert!(is_held(access.latest("raw", None)));
    assert!(is_held(access.append("raw", b"2", DISK)));
    assert!(is_held(access.append_many(&[("raw", b"3"), ("raw", b"4")], DISK)));
    assert!(is_held(access.append("raw", b"5", AppendOptions { key: Some("k"), ..DISK })));
    assert!(is_held(access.append("raw", b"5", AppendOptions { key: Some("k"), ..DISK })), "the same answer again");
    assert!(is_held(access.create_log("other", 9)));
    assert!(is_held(access.create_log("other", 9)), "it is there already, but not safely");
    assert!(is_held(access.create_log("other", 8)), "so is the refusal that says so");
    assert!(is_held(access.remove_log("other")));
    assert!(is_held(access.get("other", 1, None)), "that it is gone");
    assert!(is_held(access.log("other", None)), "to whoever would follow it as well");
    assert!(
        is_held(access.create_log("empty", 9)) && is_held(access.latest("empty", None)),
        "that there is such a log"
    );
    assert!(is_held(access.range("empty", 1, 9, 1 << 20, None)), "and that it has no records");
    let conflict = access.append("raw", b"another", AppendOptions { key: Some("k"), ..DISK });
    assert!(is_held(conflict), "that the key belongs to another append");
    let raw = access.log("raw", None).now().ok().unwrap().unwrap();
    assert!(is_held(access.cursor(&raw, 0, None)), "where a tail begins");
    assert!(is_held(access.cursor(&raw, 99, None)), "that the log does not reach there");
    assert!(is_held(access.inspect(|namespace| namespace.logs())));
    // Asked for less, they leave at once; and so does what depends on nothing.
    let at_memory = Some(Durability::Memory);
    assert!(!is_held(access.get("raw", 1, at_memory)) && !is_held(access.latest("raw", at_memory)));
    assert!(!is_held(access.range("raw", 1, 9, 1 << 20, at_memory)));
    assert!(!is_held(access.get("no such name!", 1, None)));

    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut held = pin!(access.append("raw", b"6", DISK));
    assert!(held.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    turn(&access, &woken);
    let Poll::Ready(Ok(receipt)) = held.poll(&mut Context::from_waker(&waker)) else { panic!("it is durable") };
    assert_eq!(receipt.seqno, 6);
    assert!(!is_held(access.latest("raw", None)) && !is_held(access.get("raw", 6, None)));
}

/// A database that has written everything up to a position.
#[derive(Default)]
struct Database(AtomicU64);

impl Watermark for Database {
    fn reached(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn wait(&self, _upto: u64) -> millrace_node::Result<()> {
        Ok(())
    }

    fn wake(&self, _upto: u64, _waker: &Waker) {}

    fn check(&self) -> millrace_node::Result<()> {
        Ok(())
    }
}

/// Every record has to be in the database, up to its own batch.
struct InDatabase(Arc<Database>);

impl Marks for InDatabase {
    fn any(&self) -> bool {
        true
    }

    fn of(&self, shows: &Shows<'_>, needs: &mut Vec<Need>) {
        if !matches!(shows, Shows::Report(_)) {
            needs.push((self.0.clone(), shows.upto().get()));
        }
    }
}

/// Each way to see a record, and to learn that it was appended, waits for the record's marks; what shows no record does not.
#[test]
fn every_answer_that_shows_a_record_waits_for_its_marks() {
    let disk = SimDisk::default();
    let access = access_to(simulated(&disk));
    let database = Arc::<Database>::default();
    access.create_log("raw", 100).wait().unwrap();
    access.served().gate().set_marks(Arc::new(InDatabase(database.clone())));
    fn is_held<T>(held: Gated<T>) -> bool {
        held.now().is_err()
    }
    let memory = Some(Durability::Memory);
    let at_memory = AppendOptions { durability: memory, ..DISK };
    let tail = || access.served().facts().positions()[1].get();
    let sites: [(Site, &dyn Fn() -> bool); 7] = [
        (Site::Append, &|| is_held(access.append("raw", b"1", at_memory))),
        (Site::AppendMany, &|| is_held(access.append_many(&[("raw", b"2"), ("raw", b"3")], at_memory))),
        (Site::Keyed, &|| is_held(access.append("raw", b"4", AppendOptions { key: Some("k"), ..at_memory }))),
        (Site::Get, &|| is_held(access.get("raw", 1, memory))),
        (Site::Range, &|| is_held(access.range("raw", 1, 9, 1 << 20, memory))),
        (Site::Latest, &|| is_held(access.latest("raw", memory))),
        (Site::Get, &|| is_held(access.get("raw", 0, memory))),
    ];
    for (site, held) in &sites {
        assert!(held(), "{site:?}");
    }
    let raw = access.log("raw", memory).now().ok().unwrap().unwrap();
    assert!(!is_held(access.cursor(&raw, 0, memory)), "a number is no value");
    assert!(!is_held(access.get("other", 1, memory)), "neither is the absence of a log");
    // What the database has is free, what came later is not.
    database.0.store(tail(), Ordering::SeqCst);
    assert!(!is_held(access.get("raw", 1, memory)) && !is_held(access.range("raw", 1, 9, 1 << 20, memory)));
    assert!(is_held(access.append("raw", b"5", at_memory)));
    assert!(!is_held(access.get("raw", 1, memory)) && is_held(access.get("raw", 0, memory)));
    assert!(is_held(access.range("raw", 1, 9, 1 << 20, memory)), "the last of them is not there");
    // A site that is taken out is missed.
    for (site, held) in &sites {
        access.served().gate().take_out(*site, Of::Far);
        assert!(!held(), "{site:?}");
    }
}

#[test]
fn no_caller_gets_a_success_when_the_disk_fails() {
    let disk = SimDisk::default();
    let access = access_to(simulated(&disk));
    access.create_log("raw", 100).wait().unwrap();
    disk.set_flushes_left(Some(0));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut held = pin!(access.append("raw", b"1", DISK));
    assert!(held.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    turn(&access, &woken);
    let Poll::Ready(Err(error)) = held.poll(&mut Context::from_waker(&waker)) else { panic!("it cannot be durable") };
    assert_eq!(error.code(), Code::FlushFailed);
    assert!(access.append("raw", b"2", DISK).wait().is_err());
}

#[test]
fn everything_that_was_sent_survives_a_power_failure() {
    for seed in 0..60u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let disk = SimDisk::default();
        let access = access_to(simulated(&disk));
        access.create_log("raw", 1000).wait().unwrap();
        // What somebody outside was told: records that exist, by seqno, and how far the log reaches.
        let mut reported: BTreeMap<u64, u64> = BTreeMap::new();
        let mut reaches = 0;
        for n in 0..20 + random(60) {
            let durability = if random(2) == 0 { Durability::Memory } else { Durability::Disk };
            match random(5) {
                0 | 1 => {
                    let options = AppendOptions { durability: Some(durability), ..DISK };
                    let held = access.append("raw", &n.to_le_bytes(), options);
                    if let Ok(receipt) = held.now()
                        && durability == Durability::Disk
                    {
                        reported.insert(receipt.unwrap().seqno, n);
                    }
                }
                2 => {
                    if let Ok(Ok(record)) = access.get("raw", 0, None).now() {
                        reported.insert(record.seqno, u64::from_le_bytes(record.payload.try_into().unwrap()));
                    }
                }
                3 => {
                    if let Ok(latest) = access.latest("raw", None).now() {
                        reaches = reaches.max(latest.unwrap());
                    }
                }
                _ if random(3) == 0 => access.served().gate().turn(),
                _ => {
                    // Somebody waits, so that the next turn flushes.
                    let mut held = pin!(access.latest("raw", None));
                    let _ = held.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    disk.observe();
                }
            }
        }
        let after = disk.crash(&mut |versions| random(versions as u64) as usize);
        let namespace = reopened(&after);
        assert!(namespace.latest("raw").unwrap() >= reaches, "seed {seed}");
        for (seqno, n) in reported {
            let record = namespace.get("raw", seqno).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(record.payload, n.to_le_bytes(), "seed {seed}");
        }
    }
}

#[test]
fn a_repeated_append_is_answered_as_the_first_was_in_every_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = Namespace::create(&dir.path().join("n"), &CreateOptions::default()).unwrap();
    first.create_log(&"raw".parse().unwrap(), 100).unwrap();
    let keyed = |key| AppendOptions { key: Some(key), ..AppendOptions::default() };
    let receipt = first.append("raw", b"a", keyed("k")).unwrap();
    assert_eq!(first.append("raw", b"a", keyed("k")).unwrap().id, receipt.id);
    assert_eq!(first.append("raw", b"b", keyed("k")).unwrap_err().code(), Code::KeyConflict);
    let second = Namespace::open(&dir.path().join("n")).unwrap();
    assert_eq!(second.append("raw", b"a", keyed("k")).unwrap().id, receipt.id);
    let other = second.append("raw", b"a", keyed("l")).unwrap();
    assert_eq!(first.append("raw", b"a", keyed("l")).unwrap().id, other.id);
    let access = access_to(first.clone());
    let many: [(&str, &[u8]); 2] = [("raw", b"x"), ("raw", b"y")];
    let receipts = access.append_many(&many, keyed("m")).wait().unwrap();
    assert_eq!(access.append_many(&many, keyed("m")).wait().unwrap()[1].id, receipts[1].id);
    assert_eq!(access.append_many(&many[..1], keyed("m")).wait().unwrap_err().code(), Code::KeyConflict);
    drop((first, second, access));
    let third = Namespace::open(&dir.path().join("n")).unwrap();
    assert_eq!(third.append("raw", b"a", keyed("k")).unwrap().seqno, 1);
    assert_eq!(third.latest("raw").unwrap(), 4);
    for key in ["", &"k".repeat(129)] {
        assert_eq!(third.append("raw", b"a", keyed(key)).unwrap_err().code(), Code::KeyInvalid);
    }
}

#[test]
fn records_are_dated_after_what_caused_them_unless_that_clock_is_wrong() {
    let disk = SimDisk::default();
    let access = access_to(simulated(&disk));
    access.create_log("raw", 100).wait().unwrap();
    let ahead = |seconds: u64| Hlc::from_wall_us(access.clock().wall_us() + seconds * 1_000_000);
    let clock = ahead(30);
    access.append("raw", b"1", AppendOptions { clock, ..DISK }).wait().unwrap();
    assert!(access.get("raw", 1, None).wait().unwrap().hlc > clock);
    access.append("raw", b"2", AppendOptions { clock: ahead(3600), ..DISK }).wait().unwrap();
    assert!(access.get("raw", 2, None).wait().unwrap().hlc < ahead(3600), "that of a wrong clock is not followed");
}

#[test]
fn logs_of_the_runtime_cannot_be_written_from_outside() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::create(&dir.path().join("n"), &CreateOptions::default()).unwrap();
    let log = "_inbox/x".parse().unwrap();
    assert_eq!(namespace.create_log(&log, 9).unwrap_err().code(), Code::LogInternal);
    assert_eq!(namespace.append("_keys", b"", AppendOptions::default()).unwrap_err().code(), Code::LogInternal);
    assert_eq!(namespace.remove_log(&log).unwrap_err().code(), Code::LogInternal);
    let access = access_to(namespace);
    assert_eq!(access.append("_keys", b"", DISK).wait().unwrap_err().code(), Code::LogInternal);
    assert_eq!(access.append_many(&[("_keys", b"")], DISK).wait().unwrap_err().code(), Code::LogInternal);
    assert_eq!(access.create_log("_x", 9).wait().unwrap_err().code(), Code::LogInternal);
    assert_eq!(access.latest("_links", None).wait().unwrap_err().code(), Code::LogNotFound, "it may be read");
    for refused in [
        access.latest("_keys", None).wait().err(),
        access.get("_keys", 1, None).wait().err(),
        access.range("_keys", 1, 1, 1, None).wait().err(),
        access.log("_keys", None).wait().err(),
    ] {
        assert_eq!(refused.expect("others' keys are not read").code(), Code::LogInternal);
    }
}

#[test]
fn whoever_waits_for_a_log_hears_of_appends_anywhere_and_of_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::create(&dir.path().join("n"), &CreateOptions::default()).unwrap();
    let name = "raw".parse().unwrap();
    namespace.create_log(&name, 9).unwrap();
    let access = access_to(namespace);
    let log = access.log("raw", None).wait().unwrap();
    let (woken, thread) = (Arc::new(Unpark(thread::current())), Namespace::open(&dir.path().join("n")).unwrap());
    let waker = Waker::from(woken);
    let mut growth = pin!(access.growth(&log, 0));
    assert!(growth.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    thread.append("raw", b"1", AppendOptions::default()).unwrap();
    resolve(growth, &waker);
    assert_eq!(log.latest(), 1);
    let mut growth = pin!(access.growth(&log, 1));
    assert!(growth.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    thread.remove_log(&name).unwrap();
    resolve(growth, &waker);
    assert_eq!(access.range_of(&log, 1, 9, 1 << 20, None).wait().unwrap_err().code(), Code::LogNotFound);
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future that somebody else wakes; a minute is forever here.
fn resolve<F: Future>(mut future: std::pin::Pin<&mut F>, waker: &Waker) -> F::Output {
    for _ in 0..60 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            return value;
        }
        thread::park_timeout(Duration::from_secs(1));
    }
    panic!("nobody woke it")
}

/// It tells of a moment that is over when it is heard: whoever comes too often is not to wait for the disk besides.
#[test]
fn a_refusal_for_want_of_room_waits_for_no_flush() {
    use millrace_node::{FunctionSpec, Runtime};
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::create(&dir.path().join("n"), &CreateOptions::default()).unwrap();
    namespace.create_log(&"raw".parse().unwrap(), 100).unwrap();
    let script = dir.path().join("run.sh");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut spec = FunctionSpec::new("slow".parse().unwrap(), Runtime::Oneshot);
    spec.on = vec!["raw".parse().unwrap()];
    spec.command = vec!["./run.sh".into()];
    spec.pending_max = 1;
    functions::deploy(&namespace, &spec, &script).unwrap();
    let access = access_to(namespace);
    // The one run that may wait is not durable, and nobody flushes.
    let memory = AppendOptions { durability: Some(Durability::Memory), ..DISK };
    assert_eq!(access.append("raw", b"1", memory).now().ok().unwrap().unwrap().seqno, 1);
    for key in [None, Some("k")] {
        let refused = access.append("raw", b"2", AppendOptions { key, ..DISK }).now().ok().expect("it is told at once");
        let refused = refused.unwrap_err();
        assert!(refused.code() == Code::Busy && refused.retry_after_ms().is_some(), "{refused}");
    }
}

/// Notes which thread woke it: the one that flushed.
#[derive(Default)]
struct WokenBy(Mutex<Option<ThreadId>>);

impl Wake for WokenBy {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = Some(thread::current().id());
    }
}

#[test]
fn a_thread_that_serves_one_client_flushes_itself_at_the_gate_where_it_waits() {
    let accesses = [(); 2].map(|()| access_to(simulated(&SimDisk::default())));
    for access in &accesses {
        access.create_log("raw", 100).wait().unwrap();
    }
    for waits in [0, 1, 0] {
        let start = Instant::now();
        // The first flush of a gate, and those after one that took long, are made by the gate's own thread.
        loop {
            assert!(start.elapsed() < Duration::from_secs(120), "it always leaves it to the other thread");
            let woken = Arc::new(WokenBy::default());
            let waker = Waker::from(woken.clone());
            let mut held = pin!(accesses[waits].append("raw", b"x", DISK));
            assert!(held.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            accesses.iter().for_each(|access| access.served().gate().turn_alone());
            while woken.0.lock().unwrap().is_none() {
                thread::yield_now();
            }
            if *woken.0.lock().unwrap() == Some(thread::current().id()) {
                break;
            }
        }
    }
}

#[test]
fn clients_make_a_namespace_allocate_no_more_than_they_may() {
    let disk = SimDisk::default();
    let namespace = simulated(&disk);
    let owner = access_to(namespace.clone());
    let most = Limits { logs_max: 5, index_max_bytes: 16 << 20 };
    let client = owner.clone().within(most);
    let code = |held: Gated<()>| held.wait().map_err(|error| error.code());
    assert_eq!(code(client.create_log("long", CLIENT_HISTORY_MAX + 1)), Err(Code::LogsExhausted));
    // A log that keeps everything counts as the longest that a client may make.
    assert_eq!(code(client.create_log("all", HISTORY_ALL)), Err(Code::LogsExhausted));
    let roomy = owner.clone().within(Limits { index_max_bytes: 1 << 28, ..most });
    assert_eq!(code(roomy.create_log("all", HISTORY_ALL)), Ok(()));
    assert_eq!(code(roomy.create_log("more", HISTORY_ALL)), Err(Code::LogsExhausted));
    assert_eq!(code(roomy.create_log("odd", HISTORY_ALL + 1)), Err(Code::HistoryInvalid));
    assert_eq!(code(roomy.remove_log("all")), Ok(()));
    assert_eq!(code(client.create_log("long", (1 << 21) - 1)), Ok(()), "all of the index there may be");
    assert_eq!(code(client.create_log("a", 1)), Err(Code::LogsExhausted));
    let to = |peer: &str| format!("mr://{peer}:1/there/log");
    assert_eq!(client.append(&to("one"), b"x", DISK).wait().unwrap_err().code(), Code::LogsExhausted);
    assert_eq!(code(client.remove_log("long")), Ok(()));
    assert_eq!(code(client.create_log("a", 100)), Ok(()));
    client.append(&to("one"), b"x", DISK).wait().unwrap();
    // The number of logs is bounded as well, whatever makes them.
    while namespace.logs().unwrap().len() < 5 {
        let name = format!("c{}", namespace.logs().unwrap().len());
        assert_eq!(code(client.create_log(&name, 1)), Ok(()));
    }
    let client = owner.clone().within(Limits { index_max_bytes: u64::MAX, ..most });
    assert_eq!(code(client.create_log("more", 1)), Err(Code::LogsExhausted));
    assert_eq!(client.append(&to("two"), b"x", DISK).wait().unwrap_err().code(), Code::LogsExhausted);
    let two = to("two");
    assert_eq!(client.append_many(&[("a", b"x"), (&two, b"x")], DISK).wait().unwrap_err().code(), Code::LogsExhausted);
    let link = Link { stream: "in", namespace: 7, epoch: 1, ..Link::default() };
    assert_eq!(client.link(&link).wait().err().map(|error| error.code()), Some(Code::LogsExhausted));
    // What is there goes on, and whoever works with the files is not bound.
    assert_eq!(code(client.create_log("a", 100)), Ok(()));
    assert!(client.append(&to("one"), b"y", DISK).wait().is_ok() && client.append("a", b"y", DISK).wait().is_ok());
    assert_eq!(code(owner.create_log("more", 1)), Ok(()));
    assert!(owner.link(&link).wait().is_ok());
}

#[test]
fn an_application_that_a_client_sends_makes_no_more_than_the_client_may() {
    let disk = SimDisk::default();
    let namespace = simulated(&disk);
    namespace.create_log(&"there".parse().unwrap(), 10).unwrap();
    let before = namespace.logs().unwrap().len();
    let client = access_to(namespace).within(Limits { logs_max: before + 3, index_max_bytes: 1 << 20 });
    let up = |text: String| {
        let sending = Sending { file: "millrace.toml".into(), text, ..Sending::default() };
        let up = Up { sending, dry_run: true, ..Up::default() };
        client.manage(Order::Up(up), None).wait().map(drop).map_err(|error| error.code())
    };
    let logs = |count: usize, history: u64| -> String {
        (0..count).map(|at| format!("[logs.a{at}]\nhistory = {history}\n")).collect()
    };
    assert_eq!(up(logs(3, 10)), Ok(()));
    assert_eq!(up(logs(4, 10)), Err(Code::LogsExhausted), "each alone could be made");
    assert_eq!(up(logs(1, 60_000)), Ok(()));
    assert_eq!(up(logs(3, 60_000)), Err(Code::LogsExhausted), "their indexes together take too much");
    let there = |history: u64| up(format!("[logs.there]\nhistory = {history}\n"));
    assert_eq!(there(1000), Ok(()));
    assert_eq!(there(1 << 20), Err(Code::LogsExhausted), "a log that is there");
    assert_eq!(there(CLIENT_HISTORY_MAX + 1), Err(Code::LogsExhausted));
}

#[test]
fn another_history_is_refused_if_the_log_does_not_keep_what_it_kept() {
    let namespace = simulated(&SimDisk::default());
    let log = "raw".parse().unwrap();
    namespace.create_log(&log, 10).unwrap();
    namespace.set_history(&log, 1000).unwrap();
    // Allowed while the log kept 10, it would drop records now.
    let refused = namespace.set_history_gated(&log, Some(10), 100).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Busy);
    assert_eq!(namespace.log("raw").unwrap().history(), 1000);
    assert!(namespace.set_history_gated(&log, Some(1000), 100).is_ok());
}

#[test]
fn callers_cannot_reach_the_streams_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
    namespace.create_log(&"raw".parse().unwrap(), 10).unwrap();
    let served = Served::new("n".parse().unwrap(), namespace.clone()).unwrap();
    served.gate().turn(); // This test is the loop that drives the gate.
    let peer = Peer { way: Way::Unix, address: None, key: None };
    let holder_with = |id, key| {
        let rules =
            Rules { grants: vec![Grant::namespace(Rights::ALL)], ids: vec![TokenId([id; 8])], ..Rules::default() };
        let token = Authority::ensure(namespace.dir()).unwrap().issue(&rules).unwrap();
        let keys = served.keys().current().unwrap();
        let caller = admit(&*keys, token.body(), Proof::Bearer(token.signature()), Peer { key, ..peer }).unwrap();
        served.access(&Arc::new(caller))
    };
    let holder = |id| holder_with(id, None);
    let link = Link { stream: "in", namespace: 7, epoch: 1, ..Link::default() };
    // What the stream had before.
    let deliver = |access: &Access, data: &[u8]| {
        let (inbound, linked) = access.link(&link).wait().unwrap();
        let items =
            vec![Item { log: "raw", data, id: EventId::NONE, hlc: Hlc::default(), function: None, void: false }];
        let deliver = Deliver { link: 1, first: linked.number + 1, gap: false, items };
        assert_eq!(access.deliver(&inbound, 1, &deliver).wait().unwrap().number, linked.number + 1);
        linked.number
    };
    let (one, two, owner) = (holder(1), holder(2), served.access(&Arc::new(Caller::owner(peer))));
    assert_eq!((deliver(&one, b"a"), deliver(&one, b"b")), (0, 1));
    assert_eq!((deliver(&two, b"c"), deliver(&owner, b"d"), deliver(&holder(1), b"e")), (0, 0, 2));
    assert_eq!(namespace.latest("raw").unwrap(), 5);
    // Who shows a key is known by it, and takes over what it had before under the name of its capability.
    let with = |id, key: u8| holder_with(id, Some([key; 32]));
    assert_eq!((deliver(&with(1, 1), b"f"), deliver(&with(1, 1), b"g")), (3, 4));
    assert_eq!(deliver(&with(2, 1), b"h"), 5, "another capability, and the same key");
    assert_eq!(deliver(&with(1, 2), b"i"), 0, "the same capability, and another key");
    assert_eq!((deliver(&holder(2), b"j"), deliver(&holder(1), b"k")), (1, 0), "without the key");
}
