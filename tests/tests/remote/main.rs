//! The Rust clients against real hosts, also such as are killed meanwhile.

mod repairs;
mod uploads;

use millrace_client::{
    AppendOptions, Client, Options, Place as Address, Resilient, TailOptions, Wait, blocking, blocking::Pipeline,
};
use millrace_tests::{Host, PATIENCE, Place, Port, eventually};
use millrace_wire::Code;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

fn farm(port: u16) -> Address {
    format!("mr://127.0.0.1:{port}/farm").parse().unwrap()
}

fn start() -> (Place, Host, Address) {
    let place = Place::new();
    place.run(["log", "create", "raw", "--history", "100000"]).ok();
    let host = place.serve_tcp(["--name", "farm"]);
    let address = farm(host.port());
    (place, host, address)
}

/// A host on a port that it keeps over restarts.
struct Mortal {
    place: Place,
    port: Port,
    host: Option<Host>,
}

impl Mortal {
    fn new() -> Self {
        let place = Place::new();
        place.run(["log", "create", "raw", "--history", "100000"]).ok();
        let mut mortal = Self { place, port: Port::reserve(), host: None };
        mortal.live();
        mortal
    }

    fn live(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        self.host = Some(Host::start(self.place.command(["serve", "--name", "farm", "--listen", &listen])));
    }

    /// Dies as by SIGKILL and comes back.
    fn die(&mut self) {
        drop(self.host.take());
        thread::sleep(Duration::from_millis(50));
        self.live();
    }
}

fn patient() -> Options {
    Options { reconnect_ms: PATIENCE.as_millis() as u32, ..Options::default() }
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    if workers == 0 {
        return tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    }
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

#[test]
fn every_append_happens_once_however_often_the_host_dies() {
    const WRITERS: u64 = 4;
    const RECORDS: u64 = 400;
    const DEATHS: u64 = 5;
    let mut mortal = Mortal::new();
    let resilient = Resilient::new(farm(mortal.port.number), patient());
    let done = Arc::new(AtomicU64::new(0));
    let runtime = runtime(2);
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (resilient, done) = (resilient.clone(), done.clone());
        writers.push(runtime.spawn(async move {
            for n in 0..RECORDS {
                let text = format!("{writer} {n}");
                resilient.append("raw", text.as_bytes(), AppendOptions::default()).await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let follow = resilient.clone();
    let follower = runtime.spawn(async move {
        let mut tail = follow.tail("raw", 1, TailOptions::default()).await.unwrap();
        let mut seen = Vec::new();
        while (seen.len() as u64) < WRITERS * RECORDS {
            seen.extend(tail.next_batch().await.unwrap().records.into_iter().map(|record| record.seqno));
        }
        seen
    });
    for death in 1..=DEATHS {
        let due = death * WRITERS * RECORDS / (DEATHS + 1);
        eventually("the writers go on", || done.load(Ordering::SeqCst) >= due);
        mortal.die();
    }
    for writer in writers {
        runtime.block_on(writer).unwrap();
    }
    let seen = runtime.block_on(async { tokio::time::timeout(PATIENCE, follower).await }).unwrap().unwrap();
    assert!(seen.iter().copied().eq(1..=WRITERS * RECORDS), "the tail brought each record once, in order");
    let records = mortal.place.records("raw");
    assert_eq!(records.len() as u64, WRITERS * RECORDS);
    for writer in 0..WRITERS {
        let prefix = format!("{writer} ");
        let own: Vec<u64> = records.iter().filter_map(|text| text.strip_prefix(&prefix)?.parse().ok()).collect();
        assert!(own.iter().copied().eq(0..RECORDS), "writer {writer}'s records are there once, in order");
    }
}

#[test]
fn a_blocking_tail_resumes_when_the_host_comes_back() {
    const RECORDS: u64 = 600;
    let mut mortal = Mortal::new();
    let client = blocking::Client::connect(&farm(mortal.port.number), &patient()).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let (count, following) = (seen.clone(), client.clone());
    let follower = thread::spawn(move || {
        let mut tail = following.tail("raw", 1, TailOptions::default()).unwrap();
        for expected in 1..=RECORDS {
            assert_eq!(tail.next().unwrap().seqno, expected);
            count.store(expected, Ordering::SeqCst);
        }
        tail.cursor().next
    });
    for round in 1..=3 {
        for n in 0..RECORDS / 3 {
            let key = format!("{round}-{n}");
            let options = AppendOptions { key: Some(&key), ..AppendOptions::default() };
            client.append("raw", key.as_bytes(), options).unwrap();
        }
        eventually("the tail brings them", || seen.load(Ordering::SeqCst) >= round * RECORDS / 3 - 50);
        mortal.die();
    }
    assert_eq!(follower.join().unwrap(), RECORDS + 1);
}

#[test]
fn thousands_of_requests_share_a_connection() {
    let (_place, _host, address) = start();
    for workers in [0, 2] {
        let seqnos = runtime(workers).block_on(async {
            let client = Client::connect(&address, &Options { requests_max: 100, ..Options::default() }).await.unwrap();
            let mut tasks = Vec::new();
            for n in 0..5_000u32 {
                let client = client.clone();
                tasks.push(tokio::spawn(async move {
                    let data = n.to_le_bytes();
                    client.append("raw", &data, AppendOptions::default()).await.unwrap().seqno
                }));
            }
            let mut seqnos = HashSet::new();
            for task in tasks {
                seqnos.insert(task.await.unwrap());
            }
            seqnos
        });
        assert_eq!(seqnos.len(), 5_000);
    }
}

#[test]
fn a_pipeline_keeps_the_order_and_reports_each_refusal_in_its_place() {
    let (place, _host, address) = start();
    let client = blocking::Client::connect(&address, &Options::default()).unwrap();
    let mut pipeline: Pipeline = client.pipeline(64).unwrap();
    let mut outcomes = Vec::new();
    for n in 0..2_000u32 {
        let log = if n % 100 == 99 { "none" } else { "raw" };
        pipeline.append(log, format!("{n}").as_bytes(), AppendOptions::default()).unwrap();
        while let Some(outcome) = pipeline.ready() {
            outcomes.push(outcome);
        }
        assert!(pipeline.len() <= 64 + 1);
    }
    while let Some(outcome) = pipeline.next().unwrap() {
        outcomes.push(outcome);
    }
    let refused = |at: usize| at % 100 == 99;
    assert!(outcomes.iter().enumerate().all(|(at, outcome)| outcome.is_err() == refused(at)));
    let kept: Vec<String> = (0..2_000).filter(|n| !refused(*n)).map(|n| n.to_string()).collect();
    assert_eq!(place.records("raw"), kept);
}

#[test]
fn threads_share_a_blocking_client() {
    let (place, _host, address) = start();
    let client = blocking::Client::connect(&address, &Options::default()).unwrap();
    thread::scope(|scope| {
        // One that waits keeps nobody from appending what it waits for.
        let waiting = scope.spawn(|| client.get("raw", 2_000, Wait::ms(PATIENCE.as_millis() as u32)));
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    client.append("raw", b"x", AppendOptions::default()).unwrap();
                }
            });
        }
        assert_eq!(waiting.join().unwrap().unwrap().seqno, 2_000);
    });
    assert_eq!(place.records("raw").len(), 2_000);
}

#[test]
fn a_wait_that_is_given_up_frees_its_place() {
    let (_place, _host, address) = start();
    runtime(0).block_on(async {
        let client = Client::connect(&address, &Options { requests_max: 8, ..Options::default() }).await.unwrap();
        for _ in 0..100 {
            let wait = client.get("raw", 1, Wait::ms(600_000));
            assert!(tokio::time::timeout(Duration::from_millis(1), wait).await.is_err());
        }
        let appended = tokio::time::timeout(PATIENCE, client.append("raw", b"x", AppendOptions::default())).await;
        assert_eq!(appended.unwrap().unwrap().seqno, 1);
    });
}

#[test]
fn a_slow_reader_gets_every_large_record() {
    const RECORDS: u64 = 200;
    let (_place, _host, address) = start();
    let writer = blocking::Client::connect(&address, &Options::default()).unwrap();
    let data = vec![7; 100_000];
    let options = TailOptions { bytes_max: 300_000, ..TailOptions::default() };
    runtime(0).block_on(async {
        let client = Client::connect(&address, &Options::default()).await.unwrap();
        let mut tail = client.tail("raw", 1, options).await.unwrap();
        for expected in 1..=RECORDS {
            writer.append("raw", &data, AppendOptions::default()).unwrap();
            if expected.is_multiple_of(20) {
                for seqno in expected - 19..=expected {
                    let record = tail.next().await.unwrap();
                    assert_eq!((record.seqno, record.data.len()), (seqno, data.len()));
                }
            }
        }
        tail.cancel();
        assert_eq!(tail.next().await.unwrap_err().code().id(), "MR6129");
    });
}

#[test]
fn a_tail_knows_which_log_it_follows_before_the_first_record_comes() {
    let mut mortal = Mortal::new();
    let resilient = Resilient::new(farm(mortal.port.number), patient());
    let runtime = runtime(0);
    let mut tail = runtime.block_on(resilient.tail("raw", 1, TailOptions::default())).unwrap();
    eventually("the tail stands somewhere", || {
        let news = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(20), tail.next_batch()).await });
        assert!(news.is_err(), "there are no records: {news:?}");
        tail.cursor().incarnation != 0
    });
    drop(mortal.host.take());
    mortal.place.run(["log", "rm", "raw"]).ok();
    mortal.place.run(["log", "create", "raw"]).ok();
    mortal.place.feed(["log", "append", "raw", "--lines"], b"1\n2\n3\n").ok();
    mortal.live();
    let reported = runtime.block_on(async { tokio::time::timeout(PATIENCE, tail.next_batch()).await }).unwrap();
    assert_eq!(reported.unwrap_err().code(), Code::CursorIncarnation);
}
