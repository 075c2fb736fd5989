//! What came out: the logs as a reader follows them through the storm, and what they have to be.

use super::{Trouble, clients, functions, site::Site};
use millrace_client::{Options, Record, blocking::Client};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Records read at once.
const COUNT: u32 = 2000;
/// How long a reader that found nothing rests.
const REST: Duration = Duration::from_millis(20);

/// Logs of one site, as they were read.
#[derive(Default)]
pub struct Book {
    logs: Mutex<HashMap<&'static str, Vec<Record>>>,
    over: AtomicBool,
}

impl Book {
    /// Follows these logs, in whatever lives of the host.
    pub fn follow(
        site: &Arc<Site>,
        logs: &'static [(&'static str, u64)],
        trouble: &Arc<Trouble>,
    ) -> (Arc<Book>, JoinHandle<()>) {
        let book = Arc::new(Book::default());
        let (of_thread, address, trouble) = (book.clone(), site.address(), trouble.clone());
        let name = site.name;
        let thread = thread::spawn(move || {
            let mut client = None;
            while !of_thread.over.load(SeqCst) && !trouble.any() {
                match of_thread.read(&mut client, &address, logs) {
                    Ok(true) => {}
                    Ok(false) => thread::sleep(REST),
                    // Hosts come and go; what a log may not say is told below.
                    Err(error) if clients::may_pass(&error) => {
                        client = None;
                        thread::sleep(REST);
                    }
                    Err(error) => trouble.tell(format!("reading at {name}: {error}")),
                }
            }
        });
        (book, thread)
    }

    /// Reads on; whether there was anything.
    fn read(
        &self,
        kept: &mut Option<Client>,
        address: &str,
        logs: &[(&'static str, u64)],
    ) -> millrace_wire::Result<bool> {
        let client = match kept {
            Some(client) => client,
            None => kept.insert(Client::connect(&address.parse()?, &Options::default())?),
        };
        let mut any = false;
        for (log, _) in logs {
            let batch = client.range(log, self.count(log) + 1, COUNT, None)?;
            any |= !batch.records.is_empty();
            let mut logs = self.logs.lock().unwrap();
            let records = logs.entry(log).or_default();
            for record in batch.records {
                let next = records.last().map_or(1, |last| last.seqno + 1);
                assert_eq!(record.seqno, next, "'{log}' has a hole, or was read too late");
                records.push(record);
            }
        }
        Ok(any)
    }

    /// How far a log was read.
    pub fn count(&self, log: &str) -> u64 {
        self.logs.lock().unwrap().get(log).and_then(|records| records.last()).map_or(0, |record| record.seqno)
    }

    pub fn total(&self) -> u64 {
        self.logs.lock().unwrap().values().map(|records| records.len() as u64).sum()
    }

    pub fn stop(&self) {
        self.over.store(true, SeqCst);
    }

    fn texts(&self, log: &str) -> Vec<String> {
        let logs = self.logs.lock().unwrap();
        let text = |record: &Record| String::from_utf8(record.data.clone()).expect("text");
        logs.get(log).map_or_else(Vec::new, |records| records.iter().map(text).collect())
    }

    fn numbers(&self, log: &str) -> Vec<u64> {
        self.texts(log).iter().map(|text| first(text)).collect()
    }
}

fn first(text: &str) -> u64 {
    let word = text.split(' ').next().unwrap_or_default();
    word.parse().unwrap_or_else(|error| panic!("'{text}': {error}"))
}

/// Asserts equality of long lists, and says where they part.
#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &[T], expected: &[T]) {
    let place = found.iter().zip(expected).position(|(a, b)| a != b);
    let place = place.or((found.len() != expected.len()).then(|| found.len().min(expected.len())));
    if let Some(place) = place {
        let around =
            |all: &[T]| format!("{:?}", &all[place.saturating_sub(3).min(all.len())..(place + 4).min(all.len())]);
        panic!(
            "{what}: {} records, {} expected; at {place} found {}, expected {}",
            found.len(),
            expected.len(),
            around(found),
            around(expected)
        );
    }
}

fn sorted(mut all: Vec<u64>) -> Vec<u64> {
    all.sort_unstable();
    all
}

/// What each log has to be, given what was appended.
pub fn check(here: &Book, there: &Book, records: u64, turns: u64) {
    let taken = here.numbers("in");
    same("in", &sorted(taken.clone()), &(1..=records).collect::<Vec<_>>());
    for client in 0..clients::CLIENTS {
        let its: Vec<u64> = taken.iter().copied().filter(|n| (n - 1) % clients::CLIENTS == client).collect();
        same("in, of one client", &its, &clients::numbers(client, records).collect::<Vec<_>>());
    }
    same("mid", &here.numbers("mid"), &taken);
    let mid = here.texts("mid");
    // One run appended both, so clock and chance say the same.
    same("stamps", &here.texts("stamps"), &mid);
    same("relayed here", &here.texts("relayed"), &mid);
    same("relayed there", &there.texts("relayed"), &mid);
    same("arrive", &there.texts("arrive"), &mid);
    same("out", &there.numbers("out"), &taken.iter().map(|n| 2 * n + 1).collect::<Vec<_>>());
    let some = |(modulus, rest): (u64, u64)| taken.iter().copied().filter(move |n| n % modulus == rest);
    let tenth: Vec<u64> = some((functions::TENTH, 0)).collect();
    same("tenth", &here.numbers("tenth"), &tenth);
    // Published one by one, by attempts that were cut short in between: each part once, and all of them of one mind.
    let parts = here.texts("parts");
    same("parts", &here.numbers("parts"), &tenth.iter().flat_map(|n| [*n, *n]).collect::<Vec<_>>());
    for (place, pair) in parts.chunks(2).enumerate() {
        assert_eq!(pair[1], format!("{} {} True", pair[0], 2 * place + 1), "parts of record {place}");
    }
    same("tenth_out", &sorted(here.numbers("tenth_out")), &sorted(tenth));
    same("credit", &here.numbers("credit"), &some(functions::CREDIT).collect::<Vec<_>>());
    same("debit", &here.numbers("debit"), &some(functions::DEBIT).collect::<Vec<_>>());
    check_ledger(here, &taken);
    // Each turn is in its place, so none before it is missing or there twice.
    let places: Vec<u64> = here.logs.lock().unwrap()["loop"].iter().map(|record| record.seqno).collect();
    same("loop", &here.numbers("loop"), &places);
    assert_eq!(places.last(), Some(&turns), "loop");
}

/// Two functions kept one ledger: each line builds on the one before, and they are in the order of their triggers.
fn check_ledger(here: &Book, taken: &[u64]) {
    let logs = here.logs.lock().unwrap();
    let ledger = logs.get("ledger").map_or(&[][..], Vec::as_slice);
    let mut expected: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for n in taken {
        for (kind, (modulus, rest)) in [("credit", functions::CREDIT), ("debit", functions::DEBIT)] {
            if n % modulus == rest {
                expected.entry(kind).or_default().push(*n);
            }
        }
    }
    let (mut balance, mut found): (i64, BTreeMap<&str, Vec<u64>>) = (0, BTreeMap::new());
    for (place, record) in ledger.iter().enumerate() {
        let text = std::str::from_utf8(&record.data).unwrap();
        let [before, after, kind, n] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("ledger: '{text}'") };
        assert_eq!(before, place.to_string(), "ledger, record {}: it did not see the one before it", record.seqno);
        balance += n.parse::<i64>().unwrap() * if kind == "credit" { 1 } else { -1 };
        assert_eq!(after, balance.to_string(), "ledger, record {}", record.seqno);
        found.entry(if kind == "credit" { "credit" } else { "debit" }).or_default().push(n.parse().unwrap());
    }
    for kind in ["credit", "debit"] {
        let (found, expected) = (found.remove(kind).unwrap_or_default(), expected.remove(kind).unwrap_or_default());
        same(&format!("ledger, of {kind}"), &found, &expected);
    }
    let disorder = ledger.windows(2).find(|pair| pair[0].cause >= pair[1].cause);
    assert!(disorder.is_none(), "ledger: not in the order of its triggers: {disorder:?}");
}
