//! Programs that publish, read and call objects through each host, whatever happens to the hosts, and note what they did.

use super::Site;
use millrace_client::{Options, Place, blocking::Client};
use millrace_tests::{Caller, history::History};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

pub const TOPIC: &str = "env/raw";
const LEASE_MS: u32 = 600_000;
/// Between two operations of a program.
const PAUSE: Duration = Duration::from_millis(25);
/// After an operation that failed.
const LONG_PAUSE: Duration = Duration::from_millis(100);
/// The objects that are called.
const REGISTER: &str = "register";
const COUNTER: &str = "counter";
const LOCK: &str = "lock";

/// What the programs share.
pub struct Shared {
    pub history: History,
    stopping: AtomicBool,
    /// The records that were acknowledged, by index.
    acknowledged: Mutex<BTreeMap<u64, String>>,
    /// Operations that were answered, of each host.
    answered: Vec<AtomicU64>,
    /// How often the counter was raised.
    raised: AtomicU64,
}

/// Programs that run.
pub struct Load {
    pub shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

fn options() -> Options {
    Options {
        connect_timeout_ms: 1000,
        request_timeout_ms: 1500,
        silence_max_ms: 1500,
        reconnect_ms: 1,
        ..Options::default()
    }
}

impl Load {
    /// Three programs for each host: two use the topic, one the objects.
    pub fn start(sites: &[Site]) -> Self {
        let answered = sites.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared {
            history: History::new(),
            stopping: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            answered,
            raised: AtomicU64::new(0),
        });
        let mut threads = Vec::new();
        for (at, site) in sites.iter().enumerate() {
            for work in [Program::repeats, Program::gives_up, Program::calls] {
                let place = Place::Unix(site.place.namespace().join("socket"));
                let id = threads.len() as u64;
                let program = Program { shared: shared.clone(), id, at, place };
                threads.push(thread::spawn(move || work(&program)));
            }
        }
        Self { shared, threads }
    }

    /// How many operations were answered by each host.
    pub fn answered(&self) -> Vec<u64> {
        self.shared.answered.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Ends the programs, each after an answer to its last operation.
    pub fn stop(mut self) -> (Arc<Shared>, BTreeMap<u64, String>, u64) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a program ends by itself"));
        let acknowledged = self.shared.acknowledged().clone();
        let raised = self.shared.raised.load(Ordering::Relaxed);
        (self.shared.clone(), acknowledged, raised)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn acknowledged(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, String>> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a record was acknowledged.
    pub fn was_published(&self, index: u64, record: &str) {
        let before = self.acknowledged().insert(index, record.to_owned());
        assert!(before.is_none_or(|before| before == record), "two records were acknowledged as record {index}");
    }

    /// Notes all records of a topic, as a host has them.
    pub fn was_read(&self, client: u64, call: u64, records: &[(u64, String)]) {
        self.history.note(client, ("topic", TOPIC), ("range", json!(1)), call, Some(json!(records)));
    }
}

struct Program {
    shared: Arc<Shared>,
    id: u64,
    at: usize,
    place: Place,
}

impl Program {
    fn note(&self, (kind, key): (&str, &str), (op, input): (&str, Value), call: u64, output: Option<Value>) {
        if output.is_some() {
            self.shared.answered[self.at].fetch_add(1, Ordering::Relaxed);
        }
        self.shared.history.note(self.id, (kind, key), (op, input), call, output);
    }

    /// A connection to its host, once there is one; nothing at the end.
    fn connected(&self) -> Option<Client> {
        while !self.shared.is_stopping() {
            match Client::connect(&self.place, &options()) {
                Ok(client) => return Some(client),
                Err(_) => thread::sleep(LONG_PAUSE),
            }
        }
        None
    }

    /// Publishes each record until it is acknowledged, with a key, and reads in between.
    fn repeats(&self) {
        self.publishes(true);
    }

    /// Publishes each record once, and leaves open what became of it.
    fn gives_up(&self) {
        self.publishes(false);
    }

    fn publishes(&self, repeats: bool) {
        let Some(client) = self.connected() else { return };
        for number in 0_u64.. {
            if self.shared.is_stopping() {
                break;
            }
            let (record, call) = (format!("{}-{number}", self.id), self.shared.history.now());
            let output = loop {
                match client.publish(TOPIC, record.as_bytes(), Some(&record), None) {
                    Ok(index) => break Some(index),
                    Err(_) if repeats => thread::sleep(LONG_PAUSE),
                    Err(_) => break None,
                }
            };
            self.note(("topic", TOPIC), ("publish", json!(record)), call, output.map(Value::from));
            match output {
                Some(index) => self.shared.was_published(index, &record),
                None => thread::sleep(LONG_PAUSE),
            }
            thread::sleep(PAUSE);
            self.reads(&client, number);
        }
    }

    /// A read that is not answered is no part of a history.
    fn reads(&self, client: &Client, number: u64) {
        let call = self.shared.history.now();
        if number.is_multiple_of(2) {
            let Ok(latest) = client.latest_topic(TOPIC, 0, 0) else { return };
            self.note(("topic", TOPIC), ("latest", Value::Null), call, Some(latest.into()));
        } else {
            let Ok(found) = client.get_topic(TOPIC, 0) else { return };
            let text = String::from_utf8_lossy(&found.data).into_owned();
            self.note(("topic", TOPIC), ("get", json!(0)), call, Some(json!([found.seqno, text])));
        }
    }

    /// Calls shared objects; each call is repeated until it is answered.
    fn calls(&self) {
        let caller = loop {
            match Caller::new(std::slice::from_ref(&self.place), self.id as u8 + 1, LEASE_MS, &options()) {
                Ok(caller) => break caller,
                Err(_) if self.shared.is_stopping() => return,
                Err(_) => thread::sleep(LONG_PAUSE),
            }
        };
        let mut caller = caller;
        for round in 0_u64.. {
            let value = (self.id * 30 + round % 30) as u8 % 127;
            let mut integer = |key: &str, method: &str, input: Value, arguments: &[u8]| {
                let call = self.shared.history.now();
                let found = caller.number_of(key, method, arguments);
                let output = if method == "compare_and_set" { json!(found == 1) } else { json!(found) };
                self.note(("integer", key), (method, input), call, Some(output));
                found
            };
            match round % 4 {
                0 => drop(integer(REGISTER, "set", json!(value), &[0x91, value])),
                1 => drop(integer(REGISTER, "add_and_get", json!(1), &[0x91, 1])),
                2 => drop(integer(REGISTER, "get", Value::Null, &[0x90])),
                _ => {
                    let expected = integer(REGISTER, "get", Value::Null, &[0x90]) & 0x7f;
                    integer(REGISTER, "compare_and_set", json!([expected, value]), &[0x92, expected as u8, value]);
                }
            }
            integer(COUNTER, "add_and_get", json!(1), &[0x91, 1]);
            self.shared.raised.fetch_add(1, Ordering::Relaxed);
            for method in ["acquire", "release"] {
                let call = self.shared.history.now();
                let token = caller.token_of(LOCK, method);
                self.note(("lock", LOCK), (method, Value::Null), call, Some(json!(token)));
            }
            if self.shared.is_stopping() {
                break;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// What the counter says.
pub fn counted(site: &Site) -> i64 {
    let place = Place::Unix(site.place.namespace().join("socket"));
    Caller::new(&[place], 250, LEASE_MS, &options()).expect("the host answers").number_of(COUNTER, "get", &[0x90])
}
