//! Streams whose servers are killed and whose connections are cut all the time. MILLRACE_STORM_BATCHES sets the length.

use crate::{
    cases::{Lab, page, put, table, wait},
    fakes::LIMITS,
    postgres::PostgresLab,
};
use bytes::Bytes;
use millrace_databases::{
    DeadLetters, Engine, Feed, Keys, Progress, Target, Values, Writer, WriterOptions,
    fake::{Fault, Server},
    writebehind::{Batch, OnRefused, Operation, Refusal, RefusalKind, Requirement, Row},
};
use millrace_tests::{eventually, servers::PostgresServer};
use millrace_wire::{Code, Result};
use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

#[derive(Clone, Default)]
struct Graves(Arc<Mutex<Vec<u64>>>);

impl DeadLetters for Graves {
    fn bury(&mut self, batch: &Batch, _: &Refusal) -> Result<()> {
        self.0.lock().expect("nobody panicked").push(batch.number);
        Ok(())
    }
}

fn target(names: &[&str]) -> Target {
    Target {
        stream: "storm".into(),
        owner: "ours".into(),
        previous_owner: None,
        tables: names.iter().map(|name| table(name, Keys::Text, Values::Json)).collect(),
        accept_volatile: false,
        refuse_outside: false,
    }
}

fn options() -> WriterOptions {
    WriterOptions { rows: 40, reconnect_max: Duration::from_millis(100), ..WriterOptions::default() }
}

fn writer(engine: Box<dyn Engine>, target: Target, feed: &Feed, options: WriterOptions) -> Writer {
    let (source, dead) = (Box::new(feed.clone()), Box::new(Graves::default()));
    Writer::start(engine, target, options, source, dead, Box::new(|_| {})).expect("a thread")
}

fn batch(number: u64, rows: Vec<Row>) -> Batch {
    Batch { number, stamp: number, rows, ..Batch::default() }
}

fn reaches(writer: &Writer, number: u64) -> Progress {
    eventually("everything is written", || writer.progress().reached == Some(number));
    writer.progress()
}

type Model = BTreeMap<(String, Bytes), (String, u64)>;

/// Adds random batches while `fault` does what it wants to the server; then compares the rows.
fn storm(lab: &mut dyn Lab, seed: u64, batches: u64, faults: u64, mut fault: impl FnMut(&mut dyn Lab, &mut Random)) {
    let names = ["storm_a", "storm_b"];
    let (feed, mut random, mut model) = (Feed::default(), Random(seed), Model::new());
    let mut host = writer(lab.engine(), target(&names), &feed, options());
    for number in 1..=batches {
        let mut rows = Vec::new();
        for _ in 0..1 + random.below(4) {
            let (name, key) = (names[random.below(2) as usize], format!("k{}", random.below(50)));
            let place = (name.to_owned(), Bytes::from(key.clone()));
            let row = put(name, &key, &format!("{number}"), number);
            if random.below(4) == 0 {
                model.remove(&place);
                rows.push(Row { operation: Operation::Delete, ..row });
            } else {
                model.insert(place, (number.to_string(), number));
                rows.push(row);
            }
        }
        feed.add(batch(number * 3, rows));
        host.wake();
        if random.below(batches / faults) == 0 {
            fault(lab, &mut random);
        }
        // A host that was killed: a new one knows only what its journal and the database have.
        if random.below(batches / 5) == 0 {
            drop(host);
            host = writer(lab.engine(), target(&names), &feed, options());
        }
    }
    lab.live();
    let progress = reaches(&host, batches * 3);
    assert_eq!((progress.unwritten.rows, progress.unwritten.bytes, progress.refused), (0, 0, 0), "seed {seed}");
    drop(host);
    let mut engine = lab.engine();
    assert_eq!(wait(engine.open(&target(&names))).expect("it opens").number, batches * 3, "seed {seed}");
    let mut found = Model::new();
    for name in names {
        for row in page(&mut *engine, name).rows {
            let value = String::from_utf8(row.value.to_vec()).expect("text");
            found.insert((name.to_owned(), row.key), (value, row.version.unwrap_or(0)));
        }
    }
    assert_eq!(found, model, "seed {seed}");
}

fn batches(usual: u64) -> u64 {
    env::var("MILLRACE_STORM_BATCHES").map_or(usual, |count| count.parse().expect("a number"))
}

/// The fake, which also loses answers, delays transactions and is restored from backups.
struct Faulty(Server);

impl Lab for Faulty {
    fn engine(&self) -> Box<dyn Engine> {
        self.0.engine()
    }

    fn options(&self) -> Option<millrace_databases::Options> {
        None
    }

    fn die(&mut self) {
        self.0.kill();
    }

    fn live(&mut self) {
        self.0.start();
    }

    fn refuse_poison(&mut self, _: &str) -> bool {
        false
    }

    fn cure(&mut self, _: &str) {}
}

#[test]
fn a_storm_over_the_fake_ends_with_the_rows_of_the_model() {
    for seed in 1..=20 {
        let server = Server::new(LIMITS);
        let mut backup = server.snapshot();
        let faulty = server.clone();
        storm(&mut Faulty(server), seed, batches(500), 25, move |lab, random| match random.below(7) {
            0 => lab.die(),
            1 | 2 => lab.live(),
            3 => {
                let faults = [Fault::LostBefore, Fault::LostAfter, Fault::Late];
                faulty.plan((0..3).map(|_| Some(faults[random.below(3) as usize])));
            }
            4 => backup = faulty.snapshot(),
            5 => faulty.restore(backup.clone()),
            _ => {
                lab.die();
                lab.live();
            }
        });
    }
}

#[test]
fn a_storm_over_postgresql_ends_with_the_rows_of_the_model() {
    let mut lab = PostgresLab(PostgresServer::start(&[]));
    let url = lab.0.url();
    storm(&mut lab, 1, batches(1000), 12, |lab, random| {
        if random.below(2) == 0 {
            lab.die();
            lab.live();
        } else {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'millrace'";
            crate::postgres::ask(&url, cut);
        }
    });
}

#[test]
fn two_databases_follow_each_other() {
    let servers = [Server::new(LIMITS), Server::new(LIMITS)];
    let feeds = [Feed::default(), Feed::default()];
    let hosts = [0, 1].map(|at: usize| writer(servers[at].engine(), target(&["t"]), &feeds[at], options()));
    // Each batch requires the one before it, in the other database.
    for number in 1..=200_u64 {
        let at = (number % 2) as usize;
        let requires = vec![Requirement { database: 1 - at as u32, number: number - 1 }];
        feeds[at].add(Batch { requires, ..batch(number, vec![put("t", "k", &number.to_string(), number)]) });
    }
    eventually("both are written", || {
        for at in 0..2 {
            let reached = hosts[at].progress().reached.unwrap_or(0);
            hosts[1 - at].other_reached(at as u32, reached);
        }
        hosts.iter().map(|host| host.progress().reached).collect::<Vec<_>>() == [Some(200), Some(199)]
    });
}

#[test]
fn a_refused_batch_stops_the_stream_until_it_is_accepted_or_is_buried() {
    for on_refused in [OnRefused::Stop, OnRefused::DeadLetter] {
        let server = Server::new(LIMITS);
        server.refuse(|row| {
            let refusal = Refusal { kind: RefusalKind::Data, code: "23514".into(), detail: "no".into() };
            (row.key == "bad").then_some(refusal)
        });
        let (feed, graves) = (Feed::default(), Graves::default());
        for number in 1..=50 {
            let key = if number == 30 { "bad".into() } else { format!("k{number}") };
            feed.add(Batch { on_refused, ..batch(number, vec![put("t", &key, "1", number)]) });
        }
        let (source, dead) = (Box::new(feed.clone()), Box::new(graves.clone()));
        let host = Writer::start(server.engine(), target(&["t"]), options(), source, dead, Box::new(|_| {}));
        let host = host.expect("a thread");
        if on_refused == OnRefused::Stop {
            eventually("it stops", || host.progress().is_stopped);
            let progress = host.progress();
            assert_eq!(progress.reached, Some(29));
            assert_eq!(progress.trouble.expect("the reason").code(), Code::DatabaseRefused);
            server.accept();
            host.resume();
            reaches(&host, 50);
        } else {
            let progress = reaches(&host, 50);
            assert!((1..20).contains(&progress.refused), "{progress:?}");
        }
        let is_buried = on_refused == OnRefused::DeadLetter;
        assert_eq!(*graves.0.lock().expect("nobody panicked"), if is_buried { vec![30] } else { vec![] });
        assert_eq!(server.snapshot().1["t"].len(), if is_buried { 49 } else { 50 });
    }
}

#[test]
fn a_database_that_lost_more_than_is_kept_stops_the_stream() {
    let (server, feed) = (Server::new(LIMITS), Feed::default());
    let host = writer(server.engine(), target(&["t"]), &feed, options());
    feed.add(batch(1, vec![put("t", "a", "1", 1)]));
    host.wake();
    reaches(&host, 1);
    let backup = server.snapshot();
    (2..=5).for_each(|number| feed.add(batch(number, vec![put("t", "a", "2", number)])));
    host.wake();
    reaches(&host, 5);
    feed.drop_until(3);
    server.restore(backup);
    feed.add(batch(6, vec![put("t", "a", "3", 6)]));
    host.wake();
    eventually("it stops", || host.progress().is_stopped);
    let progress = host.progress();
    assert_eq!((progress.reached, progress.trouble.expect("the reason").code()), (Some(1), Code::DatabaseBehind));
}

#[test]
fn a_database_of_another_owner_or_ahead_of_the_journal_stops_the_stream() {
    let (server, feed) = (Server::new(LIMITS), Feed::default());
    feed.add(batch(7, vec![put("t", "a", "1", 1)]));
    reaches(&writer(server.engine(), target(&["t"]), &feed, options()), 7);
    let stopped = |target: Target| {
        let host = writer(server.engine(), target, &Feed::default(), options());
        eventually("it stops", || host.progress().is_stopped);
        host.progress().trouble.expect("the reason").code()
    };
    assert_eq!(stopped(target(&["t"])), Code::DatabaseAhead);
    assert_eq!(stopped(Target { owner: "theirs".into(), ..target(&["t"]) }), Code::DatabaseOwned);
    server.set_durable(false);
    assert_eq!(stopped(target(&["t"])), Code::DatabaseVolatile);
    server.set_schema_fault(Some("table t. Execute: CREATE TABLE"));
    server.set_durable(true);
    assert_eq!(stopped(target(&["t"])), Code::DatabaseSchema);
}

#[test]
fn a_full_stream_takes_nothing_until_the_database_answers_and_a_hanging_one_counts_as_lost() {
    let (server, feed) = (Server::new(LIMITS), Feed::default());
    server.plan([Some(Fault::Hangs)]);
    let options = WriterOptions { unwritten_rows_max: 10, patience: Duration::from_millis(500), ..options() };
    (1..=100).for_each(|number| feed.add(batch(number, vec![put("t", &format!("k{number}"), "1", number)])));
    let host = writer(server.engine(), target(&["t"]), &feed, options);
    eventually("it is full", || host.progress().is_full);
    let unwritten = host.progress().unwritten;
    assert!(unwritten.rows <= 10 && unwritten.oldest.is_some(), "{unwritten:?}");
    let progress = reaches(&host, 100);
    assert!(progress.opened >= 2, "the hanging connection was given up: {progress:?}");
    assert_eq!((progress.rows, progress.coalesced), (100, 0));
}

#[test]
fn a_writer_ends_while_its_database_hangs_or_is_away() {
    for is_away in [false, true] {
        let (server, feed) = (Server::new(LIMITS), Feed::default());
        if is_away {
            server.kill();
        }
        server.plan([Some(Fault::Hangs)]);
        feed.add(batch(1, vec![put("t", "a", "1", 1)]));
        let host = writer(server.engine(), target(&["t"]), &feed, WriterOptions::default());
        eventually("it waits", || {
            let progress = host.progress();
            if is_away { progress.trouble.is_some() } else { progress.unwritten.rows == 1 }
        });
        host.stop();
        assert_eq!(server.counts().1, 0);
    }
}
