//! Objects that the hosts of a cluster keep together, under hosts that die and hosts that stand still.

use super::{Site, leader, three};
use millrace_client::{
    Options, Place,
    blocking::{Answer, Asked, Client},
};
use millrace_tests::eventually;
use millrace_wire::Code;
use serde_json::Value;
use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const LEASE_MS: u32 = 60_000;
/// That of a program which is lost.
const SHORT_LEASE_MS: u32 = 20_000;

/// A program with a session, which asks these hosts in turn.
struct Caller {
    client: Client,
    session: [u8; 16],
    number: u64,
}

impl Caller {
    /// One that asks the host at this place first.
    fn new(sites: &[Site], first: usize, id: u8, lease_ms: u32) -> Self {
        let place = |at: usize| -> Place {
            format!("mr://127.0.0.1:{}/site", sites[(first + at) % sites.len()].port).parse().expect("an address")
        };
        let places: Vec<Place> = (0..sites.len()).map(place).collect();
        let options = Options { reconnect_ms: 120_000, silence_max_ms: 2000, ..Options::default() };
        let client = Client::connect_any(&places, &options).expect("a host answers");
        let session = [id; 16];
        let mut caller = Self { client, session, number: 0 };
        caller.open(lease_ms);
        caller
    }

    fn open(&mut self, lease_ms: u32) {
        self.client.open_session(&self.session, "", lease_ms, false).expect("a session");
    }

    /// Asks until the group has decided; what a method raises is an error here.
    fn ask(&mut self, (kind, key, method): (&str, &str, &str), arguments: &[u8], rf: u8) -> Result<Vec<u8>, Code> {
        self.number += 1;
        loop {
            match self.once((kind, key, method), arguments, (rf, 1000)) {
                Ok(Answer::Returned(_, value)) => return Ok(value),
                Ok(Answer::Waiting(_)) | Err(Code::GroupUnavailable | Code::GroupBusy) => {}
                // The first call of it may be lost with its host before the group has heard of the session.
                Err(Code::SessionExpired) if self.number == 1 => self.open(LEASE_MS),
                Ok(Answer::Raised(_, class, text)) => panic!("{method} of {key}: {class}: {text}"),
                Err(code) => return Err(code),
            }
        }
    }

    fn once(
        &self,
        (kind, key, method): (&str, &str, &str),
        arguments: &[u8],
        (rf, wait_ms): (u8, u32),
    ) -> Result<Answer, Code> {
        let asked = Asked {
            session: &self.session,
            call: self.number,
            acked: self.number,
            kind,
            key,
            method,
            arguments,
            persistent: true,
            rf,
            wait_ms,
            ..Asked::default()
        };
        self.client.call(&asked).map_err(|error| error.code())
    }

    fn number_of(&mut self, key: &str, method: &str, arguments: &[u8]) -> i64 {
        let value = self.ask(("AtomicInt", key, method), arguments, 2).expect("an answer");
        match value[..] {
            [small] if small < 0x80 => small.into(),
            [0xcc, small] => small.into(),
            [0xcd, high, low] => u16::from_be_bytes([high, low]).into(),
            [0xc2] => 0,
            [0xc3] => 1,
            _ => panic!("{value:x?} is no small number"),
        }
    }
}

/// What was done to a register, when it was asked for, and when the answer was there.
#[derive(Clone, Copy, Debug)]
struct Done {
    what: What,
    asked: Instant,
    answered: Instant,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// It was read.
    Get(i64),
    /// It was put there.
    Set(i64),
    /// It was raised by one to this.
    Add(i64),
    /// It was put there in place of another one, if that was there: whether it was.
    CompareAndSet(i64, i64, bool),
}

/// Whether these follow from one order in which each takes place between its question and its answer (Wing and Gong).
fn is_linearizable(history: &[Done]) -> bool {
    assert!(history.len() <= 128, "a set of them is a number of 128 bits");
    let mut seen: HashSet<(u128, i64)> = HashSet::new();
    let mut states = vec![(0_u128, 0_i64)];
    let all = u128::MAX >> (128 - history.len());
    while let Some((done, value)) = states.pop() {
        if done == all {
            return true;
        }
        let open = || history.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0);
        // What comes next was asked for before anything else that is left was answered.
        let earliest = open().map(|(_, one)| one.answered).min().expect("something is left");
        for (at, one) in open().filter(|(_, one)| one.asked <= earliest) {
            let next = match one.what {
                What::Get(found) => (found == value).then_some(value),
                What::Set(new) => Some(new),
                What::Add(sum) => (sum == value + 1).then_some(sum),
                What::CompareAndSet(expected, new, was) => {
                    (was == (expected == value)).then_some(if was { new } else { value })
                }
            };
            if let Some(next) = next
                && seen.insert((done | 1 << at, next))
            {
                states.push((done | 1 << at, next));
            }
        }
    }
    false
}

#[test]
fn a_history_that_no_order_explains_is_found() {
    let start = Instant::now();
    let at = |what, asked, answered| {
        let moment = |ms| start + Duration::from_millis(ms);
        Done { what, asked: moment(asked), answered: moment(answered) }
    };
    assert!(is_linearizable(&[at(What::Set(5), 0, 9), at(What::Get(0), 1, 2), at(What::Get(5), 3, 4)]));
    assert!(!is_linearizable(&[at(What::Set(5), 0, 9), at(What::Get(5), 1, 2), at(What::Get(0), 3, 4)]));
    assert!(!is_linearizable(&[at(What::Add(1), 0, 1), at(What::Add(1), 0, 1)]), "a sum that two have");
    assert!(!is_linearizable(&[at(What::CompareAndSet(0, 1, true), 0, 1), at(What::CompareAndSet(0, 2, true), 0, 1)]));
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
        (0..CALLERS).map(|id| Caller::new(&sites, usize::from(id) % 3, id + 1, LEASE_MS)).collect();
    // The group of the objects is made by the first call.
    callers[0].number_of("hits", "get", &[0x90]);
    let (history, rounds) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let note = |what: What, asked| history.lock().unwrap().push(Done { what, asked, answered: Instant::now() });
    thread::scope(|scope| {
        for (id, caller) in (1..).zip(&mut callers) {
            let (note, rounds) = (&note, &rounds);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let (asked, value) = (Instant::now(), (round + 30 * (id - 1)) as u8);
                    match round % 4 {
                        0 => note(What::Get(caller.number_of("register", "get", &[0x90])), asked),
                        1 => {
                            caller.ask(("AtomicInt", "register", "set"), &[0x91, value], 2).expect("it is set");
                            note(What::Set(value.into()), asked);
                        }
                        2 => note(What::Add(caller.number_of("register", "add_and_get", &[0x91, 1])), asked),
                        _ => {
                            let expected = caller.number_of("register", "get", &[0x90]);
                            note(What::Get(expected), asked);
                            let (asked, arguments) = (Instant::now(), [0x92, expected as u8 & 0x7f, value]);
                            let was = caller.number_of("register", "compare_and_set", &arguments) == 1;
                            note(What::CompareAndSet(i64::from(expected as u8 & 0x7f), value.into(), was), asked);
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
    let history = history.into_inner().unwrap();
    // Where a session takes values that others set, 128 at most fit the check.
    assert!(is_linearizable(&history), "{history:?}");
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
    let mut late = Caller::new(&sites, 1, 99, LEASE_MS);
    assert_eq!(late.number_of("hits", "get", &[0x90]), hits);
}

#[test]
fn calls_that_wait_outlive_their_host_and_what_a_lost_program_held_is_free() {
    let mut sites = three();
    let mut holder = Caller::new(&sites, 0, 1, LEASE_MS);
    let lock = |method: &'static str| ("Lock", "door", method);
    let token = |value: Vec<u8>| -> u64 { value[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) };
    let first = token(holder.ask(lock("acquire"), &[0x90], 2).expect("it is free"));
    // One waits through a host that dies, while its neighbour holds the lock.
    let mut waiter = Caller::new(&sites, 1, 2, SHORT_LEASE_MS);
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
    let mut caller = Caller::new(std::slice::from_ref(&alone), 0, 1, LEASE_MS);
    let get = ("AtomicInt", "hits", "get");
    assert_eq!(caller.ask(get, &[0x90], 2), Err(Code::PersistenceUnsupported), "there is no cluster");
    drop(alone);
    let sites = three();
    let mut caller = Caller::new(&sites, 0, 1, LEASE_MS);
    assert_eq!(caller.ask(get, &[0x90], 3), Err(Code::PersistenceUnsupported), "five hosts have to vote");
    assert_eq!(caller.ask(get, &[0x90], 2), Ok(vec![0]));
    assert_eq!(caller.ask(get, &[0x90], 3), Err(Code::PersistenceUnsupported), "three vote for the objects");
    sites[0].place.run(["cluster", "group", "rm", "objects"]).fails("MR7220", 1);
}
