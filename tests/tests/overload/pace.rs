//! Producers that offer twice what functions do, for as long as it takes: all of it is taken in the end, and done once.

use crate::{Peak, function, place};
use millrace_client::{AppendOptions, Options, Wait, blocking::Client};
use millrace_node::Namespace;
use millrace_tests::{Host, PATIENCE, Place, eventually};
use millrace_wire::Code;
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const RECORDS: u64 = 2000;
const PRODUCERS: u64 = 4;
/// Runs that may wait.
const PENDING_MAX: u64 = 50;
/// Offered before anything is done.
const AHEAD: u64 = 4 * PENDING_MAX;

const CODE: &str = "
import os, time
def work(record, ctx):
    while not os.path.exists(os.environ['GO']): time.sleep(0.01)
    ctx.append('done', record.data)
def quick(record, ctx): ctx.append('echoed', record.data)
";

fn client(host: &Host, namespace: &str) -> Client {
    let to = format!("mr://127.0.0.1:{}/{namespace}", host.port()).parse().unwrap();
    Client::connect(&to, &Options::default()).unwrap()
}

/// Appends and reads back in a namespace of somebody else, until it is over; how often.
fn neighbour(client: &Client, over: &AtomicBool) -> u64 {
    let mut times = 0;
    while !over.load(Ordering::Relaxed) {
        times += 1;
        let data = times.to_string();
        let seqno = client.append("mine", data.as_bytes(), AppendOptions::default()).expect("never refused").seqno;
        assert_eq!(client.get("mine", seqno, Wait::default()).expect("a record").data, data.as_bytes());
    }
    times
}

#[test]
fn twice_the_rate_of_a_function_is_processed_once_and_others_are_not_disturbed() {
    let gate = tempfile::tempdir().unwrap();
    let go = gate.path().join("go");
    let env = format!("pending_max = {PENDING_MAX}\n[functions.work.env]\nGO = {:?}", go.to_str().unwrap());
    let logs =
        "[logs.in]\nhistory = 100000\n[logs.done]\nhistory = 100000\n[logs.other]\n[logs.echoed]\nhistory = 100000";
    let place = place(logs, &(function("work", "\"in\"", &env) + &function("quick", "\"other\"", "")), CODE);
    let others = Place::new();
    others.run(["log", "create", "mine", "--history", "1000"]).ok();
    // The function waits for a file of the test's, which a sandbox would not show.
    let host = place.serve_tcp([
        format!("main={}", place.namespace().display()),
        format!("others={}", others.namespace().display()),
        "--sandbox=none".into(),
    ]);
    let peak = Peak::of(&host);
    let namespace = Namespace::open(&place.namespace()).unwrap();
    let work = namespace.journal().catalog().unwrap().function("work").unwrap().clone();

    let (offered, refused, over) =
        (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let beside = {
        let (client, over) = (client(&host, "others"), over.clone());
        thread::spawn(move || neighbour(&client, &over))
    };
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let (client, work) = (client(&host, "main"), work.clone());
            let (offered, refused) = (offered.clone(), refused.clone());
            thread::spawn(move || {
                let mut seqnos = Vec::new();
                for n in (producer..RECORDS).step_by(PRODUCERS as usize) {
                    let (start, data) = (Instant::now(), n.to_string());
                    loop {
                        assert!(start.elapsed() < PATIENCE, "record {n} was never taken");
                        // Two are offered for each that is done, however fast or slow that is here.
                        if offered.load(Ordering::Relaxed) > 2 * work.done() + AHEAD {
                            thread::sleep(Duration::from_millis(1));
                            continue;
                        }
                        offered.fetch_add(1, Ordering::Relaxed);
                        match client.append("in", data.as_bytes(), AppendOptions::default()) {
                            Ok(receipt) => break seqnos.push(receipt.seqno),
                            Err(error) => {
                                assert_eq!(error.code(), Code::Busy, "{error}");
                                let after_ms = error.retry_after_ms().expect("when to come again");
                                assert!((100..200).contains(&after_ms), "{after_ms}");
                                refused.fetch_add(1, Ordering::Relaxed);
                                // Who is told to wait asks others meanwhile; here the next offer comes at its pace.
                            }
                        }
                        assert!(work.pending() <= PENDING_MAX, "{} pending", work.pending());
                    }
                }
                seqnos
            })
        })
        .collect();
    eventually("more was offered than may wait", || refused.load(Ordering::Relaxed) > 0);
    fs::write(&go, "").unwrap();
    // Another function of the same namespace has its turn all the while.
    let beneath = client(&host, "main");
    let mut rounds = 0;
    while !producers.iter().all(thread::JoinHandle::is_finished) || rounds < 10 {
        rounds += 1;
        beneath.append("other", b"x", AppendOptions::default()).expect("never refused");
        let wait = Wait { wait_ms: 120_000, ..Wait::default() };
        beneath.get("echoed", rounds, wait).expect("it has run");
    }
    let mut seqnos: Vec<u64> = producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect();
    place.idle();
    over.store(true, Ordering::Relaxed);
    assert!(beside.join().unwrap() > 10);
    seqnos.sort_unstable();
    assert!(seqnos.into_iter().eq(1..=RECORDS), "each was told another number");
    let mut done = place.records("done");
    assert_eq!(done, place.records("in"), "each was worked on once, in order");
    done.sort_by_key(|data| data.parse::<u64>().unwrap());
    assert!(done.into_iter().eq((0..RECORDS).map(|n| n.to_string())), "each record is there once");
    peak.expect_within(64 << 20);
}
