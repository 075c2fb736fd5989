//! db.independent: answers that depend on no unwritten write, while the database is dead.

use super::{add_database, add_table, await_table, await_version, postgres::Postgres, put_inside};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, figure},
    rows::{
        Measured, namespace_with_logs,
        remote::{Host, PACE, below},
    },
};
use millrace_client::{AppendOptions, Wait, blocking};
use millrace_journal::Durability;
use millrace_node::Namespace;
use millrace_wire::{TableMode, table::TableRequest};
use std::{thread, time::Instant};

const TABLE: &str = "scores";
const LOG: &str = "a";
/// Writes that the dead database does not get.
const UNWRITTEN: u64 = 10_000;
const COUNT: u64 = 1000;
/// Records that are read.
const READ: u64 = 100;
const VALUE: [u8; 100] = [b'7'; 100];

/// Appends to the log and reads records of it, in turn, each a pace after the answer before.
fn paced(client: &blocking::Client) -> Outcome<[Samples; 2]> {
    let mut samples = [Samples::new(), Samples::new()];
    for number in 0..2 * COUNT {
        thread::sleep(PACE);
        let start = Instant::now();
        if number % 2 == 0 {
            client.append(LOG, &VALUE, AppendOptions::default())?;
        } else {
            client.get(LOG, 1 + number % READ, Wait::default())?;
        }
        samples[(number % 2) as usize].record(start.elapsed());
    }
    Ok(samples)
}

pub fn independent(context: &Context) -> Outcome<Measured> {
    let mut postgres = Postgres::start(context.fresh()?)?;
    let dirs = [context.fresh()?, context.fresh()?];
    // All appends of all repetitions, so that the first records can be read to the end.
    let logs = [(LOG, 100_000)];
    let with = namespace_with_logs(&dirs[0].path().join("n"), Durability::Memory, &logs)?;
    drop(namespace_with_logs(&dirs[1].path().join("n"), Durability::Memory, &logs)?);
    add_database(&with, postgres.port())?;
    add_table(&with, TABLE, Some(TableMode::External))?;
    let [tables, none] = dirs;
    let hosts = [Host::serve(context, tables, 0, &["n=n"])?, Host::serve(context, none, 0, &["n=n"])?];
    let clients = [hosts[0].client("n")?, hosts[1].client("n")?];
    let version = put_inside(&with, TABLE, "first", b"1")?;
    let mut session = postgres.session()?;
    await_table(&mut session, TABLE)?;
    await_version(&mut session, TABLE, "first", version)?;
    for client in &clients {
        (0..READ).try_for_each(|_| client.append(LOG, &VALUE, AppendOptions::default()).map(drop))?;
        paced(client)?;
    }
    postgres.die()?;
    for number in 0..UNWRITTEN {
        put_inside(&with, TABLE, &format!("k{number}"), b"1")?;
    }
    // Only the hosts have the namespaces open.
    drop(with);
    // This one depends on them, and must not be answered with a value while the others are.
    let waits = hosts[0].client("n")?;
    let dependent =
        thread::spawn(move || waits.table(TABLE, &TableRequest::Get { key: b"k7" }, AppendOptions::default()));
    let mut all = [[(); 2].map(|()| Samples::new()), [(); 2].map(|()| Samples::new())];
    let (mut p99, mut over) = (Repeated::default(), [(); 2].map(|()| Repeated::default()));
    let repetitions = context.repetitions(9);
    for _ in 0..repetitions {
        let [of_tables, of_none] = [paced(&clients[0])?, paced(&clients[1])?];
        p99.push(of_tables[0].p99_us());
        for which in 0..2 {
            over[which].push(of_tables[which].p99_us() / of_none[which].p99_us());
            all[0][which].add(&of_tables[which]);
            all[1][which].add(&of_none[which]);
        }
    }
    let with = Namespace::open(&below(&hosts[0], "n"))?;
    let unwritten: u64 = with.database_stats()?.iter().map(|stat| stat.lag.rows).sum();
    if unwritten < UNWRITTEN {
        return Err(format!("{unwritten} writes are unwritten instead of {UNWRITTEN}").into());
    }
    let Err(refused) = dependent.join().map_err(|_| "the client that waits panicked")? else {
        return Err("an answer that depends on unwritten writes was given".into());
    };
    let [[appends, gets], [appends_without, gets_without]] = &all;
    Ok(Measured::new(p99.median(), appends.count())
        .spread_us(appends)
        .target("append: p99 ≤ 1.1 × without tables", over[0].median() <= 1.1)
        .target("get: p99 ≤ 1.1 × without tables", over[1].median() <= 1.1)
        .also("append, ratio of the p99", over[0].median(), "")
        .also("get, ratio of the p99", over[1].median(), "")
        .also("get, p50", gets.p50_us(), "µs")
        .also("get, p99", gets.p99_us(), "µs")
        .peer("append to a host without tables, p50", appends_without.p50_us())
        .peer("append to a host without tables, p99", appends_without.p99_us())
        .peer("get from a host without tables, p50", gets_without.p50_us())
        .peer("get from a host without tables, p99", gets_without.p99_us())
        .note(format!(
            "A host has a table of mode external in PostgreSQL, which was killed before {UNWRITTEN} keys were put, and \
             a log on which nothing of this depends. One blocking client over TCP appends 100 bytes to the log and \
             reads one of its records in turn, each {} µs after the answer before, {COUNT} times; durability memory. In \
             turn: the same with another host, which has no tables. Value: the median of the p99 of {repetitions} \
             repetitions, {}; ratio of appends in the same repetition: {}; of gets: {}. Meanwhile another client asks \
             for an unwritten key, and gets no value ({}). While other logs grow, the thread that looks after the \
             writers of databases does so every 10 ms; and for an answer the gate looks up the mark of what it shows. \
             The rest is as without tables.",
            figure(PACE.as_micros() as f64),
            p99.spread(),
            over[0].spread(),
            over[1].spread(),
            refused.code().id()
        )))
}
