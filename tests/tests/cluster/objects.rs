//! Objects that the hosts of a cluster keep together, under hosts that die and hosts that stand still.

use super::{Site, leader, three};
use millrace_client::{Options, Place, blocking::Answer};
use millrace_tests::{Caller, eventually, history::History};
use millrace_wire::Code;
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const LEASE_MS: u32 = 60_000;
/// That of a program which is lost.
const SHORT_LEASE_MS: u32 = 20_000;

/// A program that asks the host at this place first.
fn caller(sites: &[Site], first: usize, id: u8, lease_ms: u32) -> Caller {
    let place = |at: usize| {
        format!("mr://127.0.0.1:{}/site", sites[(first + at) % sites.len()].port).parse().expect("an address")
    };
    let places: Vec<Place> = (0..sites.len()).map(place).collect();
    let options = Options { reconnect_ms: 120_000, silence_max_ms: 2000, ..Options::default() };
    Caller::new(&places, id, lease_ms, &options).expect("a host answers")
}

/// Adds to an integer of the cluster, through the first of these hosts that answers; its value then.
pub fn count(sites: &[&Site], times: u8) -> i64 {
    let place = |site: &&Site| format!("mr://127.0.0.1:{}/site", site.port).parse().expect("an address");
    let places: Vec<Place> = sites.iter().map(place).collect();
    let options = Options { reconnect_ms: 120_000, silence_max_ms: 2000, ..Options::default() };
    let mut caller = Caller::new(&places, 100 + times, LEASE_MS, &options).expect("a host answers");
    (0..times).map(|_| caller.number_of("hits", "add_and_get", &[0x91, 1])).last().expect("at least once")
}

/// Objects as a host shows them.
fn shown(site: &Site) -> Vec<Value> {
    site.place.run(["--json", "entity", "ls"]).ok().objects()
}

#[test]
fn objects_of_several_hosts_outlive_those_that_lead_and_their_history_is_linearizable() {
    const CALLERS: u8 = 4;
    const ROUNDS: i64 = 24;
    let mut sites = three();
    let mut callers: Vec<Caller> =
        (0..CALLERS).map(|id| caller(&sites, usize::from(id) % 3, id + 1, LEASE_MS)).collect();
    // The group of the objects is made by the first call.
    callers[0].number_of("hits", "get", &[0x90]);
    let (history, rounds) = (History::new(), AtomicU64::new(0));
    let note = |client: u8, method: &str, input: Value, call: u64, output: Value| {
        history.note(client.into(), ("integer", "register"), (method, input), call, Some(output));
    };
    thread::scope(|scope| {
        for (id, caller) in (1..).zip(&mut callers) {
            let (note, rounds, history) = (&note, &rounds, &history);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let (call, value) = (history.now(), (round + 30 * i64::from(id - 1)) as u8);
                    match round % 4 {
                        0 => note(id, "get", Value::Null, call, caller.number_of("register", "get", &[0x90]).into()),
                        1 => {
                            caller.ask(("AtomicInt", "register", "set"), &[0x91, value], 2).expect("it is set");
                            note(id, "set", value.into(), call, Value::Null);
                        }
                        2 => {
                            let sum = caller.number_of("register", "add_and_get", &[0x91, 1]);
                            note(id, "add_and_get", 1.into(), call, sum.into());
                        }
                        _ => {
                            let expected = caller.number_of("register", "get", &[0x90]);
                            note(id, "get", Value::Null, call, expected.into());
                            let (call, expected) = (history.now(), expected as u8 & 0x7f);
                            let was = caller.number_of("register", "compare_and_set", &[0x92, expected, value]) == 1;
                            note(id, "compare_and_set", json!([expected, value]), call, was.into());
                        }
                    }
                    caller.number_of("hits", "add_and_get", &[0x91, 1]);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let reached = |share: u64| {
            let wanted = u64::from(CALLERS) * ROUNDS as u64 * share / 4;
            eventually("the callers go on", || rounds.load(Ordering::Relaxed) >= wanted);
        };
        reached(1);
        let lost = leader(&sites);
        sites[lost].die();
        reached(2);
        sites[lost].live(None);
        // Whoever leads now stands still for a while, and may believe that it leads when it goes on.
        let stopped = leader(&sites);
        let host = sites[stopped].host.as_ref().expect("it runs");
        host.signal("STOP");
        reached(3);
        host.signal("CONT");
    });
    history.is_linearizable();
    let hits = i64::from(CALLERS) * ROUNDS;
    for (site, caller) in callers.iter_mut().take(3).enumerate() {
        assert_eq!(caller.number_of("hits", "get", &[0x90]), hits, "as caller {site} reads it");
    }
    for site in &sites {
        eventually("every host has the objects", || {
            let objects = shown(site);
            objects.len() == 2 && objects.iter().all(|object| object["rf"] == 2 && object["leader"].is_string())
        });
    }
    // All hosts start again, and nothing is lost.
    sites.iter_mut().for_each(Site::die);
    sites.iter_mut().for_each(|site| site.live(None));
    let mut late = caller(&sites, 1, 99, LEASE_MS);
    assert_eq!(late.number_of("hits", "get", &[0x90]), hits);
}

#[test]
fn calls_that_wait_outlive_their_host_and_what_a_lost_program_held_is_free() {
    let mut sites = three();
    let mut holder = caller(&sites, 0, 1, LEASE_MS);
    let lock = |method: &'static str| ("Lock", "door", method);
    let token = |value: Vec<u8>| -> u64 { value[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) };
    let first = token(holder.ask(lock("acquire"), &[0x90], 2).expect("it is free"));
    // One waits through a host that dies, while its neighbour holds the lock.
    let mut waiter = caller(&sites, 1, 2, SHORT_LEASE_MS);
    waiter.number = 1;
    assert!(matches!(waiter.once(lock("acquire"), &[0x90], (2, 1)), Ok(Answer::Waiting(_))));
    eventually("the call waits on every host", || {
        sites.iter().all(|site| shown(site).iter().any(|object| object["waiting"] == 1))
    });
    sites[1].die();
    let second = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            waiter.number = 0;
            token(waiter.ask(lock("acquire"), &[0x90], 2).expect("it is its turn"))
        });
        holder.ask(lock("release"), &[0x90], 2).expect("it holds it");
        waits.join().unwrap()
    });
    assert!(second > first, "tokens grow: {first}, then {second}");
    // The program ends, and says nothing: its lease ends, wherever its host was.
    drop(waiter);
    let third = token(holder.ask(lock("acquire"), &[0x90], 2).expect("it is free again"));
    assert!(third > second);
    sites[1].live(None);
}

#[test]
fn copies_that_cannot_be_kept_are_refused() {
    let mut alone = Site::new(None);
    alone.live(None);
    let mut asking = caller(std::slice::from_ref(&alone), 0, 1, LEASE_MS);
    let get = ("AtomicInt", "hits", "get");
    assert_eq!(asking.ask(get, &[0x90], 2), Err(Code::PersistenceUnsupported), "there is no cluster");
    drop(alone);
    let sites = three();
    let mut asking = caller(&sites, 0, 1, LEASE_MS);
    assert_eq!(asking.ask(get, &[0x90], 3), Err(Code::PersistenceUnsupported), "five hosts have to vote");
    assert_eq!(asking.ask(get, &[0x90], 2), Ok(vec![0]));
    assert_eq!(asking.ask(get, &[0x90], 3), Err(Code::PersistenceUnsupported), "three vote for the objects");
    sites[0].place.run(["cluster", "group", "rm", "objects"]).fails("MR7220", 1);
}
