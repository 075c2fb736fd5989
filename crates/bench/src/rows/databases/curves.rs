//! db.curves: a function that works and writes, with a database that is far away.

use super::{
    add_database, add_table, await_table,
    postgres::{Parameter, Postgres, PostgresSession, SETTINGS},
    proxy::DelayProxy,
};
use crate::{
    Context, Outcome, functions,
    measure::{Repeated, figure, repeat},
    rows::{Measured, function, namespace_with_logs, remote::Host},
};
use millrace_client::{AppendOptions, blocking};
use millrace_journal::Durability;
use millrace_node::Runtime;
use millrace_wire::TableMode;
use std::{
    thread,
    time::{Duration, Instant},
};

const ROUND_TRIP: Duration = Duration::from_millis(23);
/// How often a run works and writes, and for how many milliseconds it works each time.
const CASES: [(u64, u64); 6] = [(1, 0), (10, 0), (50, 0), (1, 50), (10, 50), (50, 50)];
/// Each has a table of its name. The first is not in the database.
const TABLES: [(&str, Option<TableMode>); 4] = [
    ("plain", None),
    ("external", Some(TableMode::External)),
    ("asynchronous", Some(TableMode::Asynchronous)),
    ("synchronous", Some(TableMode::Synchronous)),
];
/// What a program that writes by itself sends.
const UPSERT: &str = "INSERT INTO bare (key, value, version) VALUES ($1, '1', 1) ON CONFLICT (key) DO UPDATE SET value = \
                      excluded.value, version = excluded.version";
const WAIT_MS: u32 = 60_000;

/// A host whose database is behind the proxy.
struct FarDatabase {
    client: blocking::Client,
    /// Without the proxy.
    near: PostgresSession,
    /// The value that the next run writes: no two write the same.
    value: u64,
    _host: Host,
}

/// How long after the start the database had so many keys with this value.
fn written(session: &mut PostgresSession, table: &str, (value, keys): (u64, u64), start: Instant) -> Outcome<Duration> {
    let sql = format!("SELECT count(*) FROM {table} WHERE value = '{value}'");
    while session.number(&sql)? < keys {
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("after a minute, table {table} has not all of {keys} keys").into());
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(start.elapsed())
}

impl FarDatabase {
    /// Runs the function once: the milliseconds until it is answered, and until the host could know that the database has everything.
    fn run(&mut self, table: &str, (count, work_ms): (u64, u64)) -> Outcome<(f64, f64)> {
        self.value += 1;
        let (value, near, client) = (self.value, &mut self.near, &self.client);
        let data = format!("[\"{table}\", {count}, {}, {value}]", work_ms as f64 / 1e3);
        let (start, work) = (Instant::now(), Duration::from_millis(count * work_ms));
        thread::scope(|scope| {
            // Nothing is written before the run ends, so nobody asks before.
            let watch = (table != "plain").then(|| {
                scope.spawn(move || {
                    thread::sleep(work);
                    written(near, table, (value, count), start).map_err(|error| error.to_string())
                })
            });
            let run = client.call_function("f", None, data.as_bytes(), AppendOptions::default(), WAIT_MS)?;
            let answered = start.elapsed();
            if run.state != "done" {
                return Err(format!("a run is {}: {:?}", run.state, run.error).into());
            }
            let watched = watch.map(|watch| watch.join().map_err(|_| "the watching thread panicked")).transpose()?;
            let written = watched.transpose()?.map_or(answered, |seen| seen + ROUND_TRIP / 2);
            Ok((answered.as_secs_f64() * 1e3, written.as_secs_f64() * 1e3))
        })
    }
}

/// A program that works, writes a key, and waits for the answer, as often; in milliseconds.
fn by_itself(session: &mut PostgresSession, (count, work_ms): (u64, u64)) -> Outcome<f64> {
    let start = Instant::now();
    for number in 0..count {
        thread::sleep(Duration::from_millis(work_ms));
        session.send(UPSERT, &[Parameter::text(&format!("k{number}"))])?;
        session.rows()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn start(context: &Context, postgres: &Postgres, proxy: &DelayProxy) -> Outcome<FarDatabase> {
    let dir = context.fresh()?;
    let namespace = namespace_with_logs(&dir.path().join("n"), Durability::Memory, &[("asks", 10_000)])?;
    add_database(&namespace, proxy.port())?;
    for (name, mode) in TABLES {
        add_table(&namespace, name, mode)?;
    }
    let mut spec = function("f", Runtime::Python, "asks")?;
    spec.handler = "write_keys:write_keys".into();
    spec.python = functions::python()?;
    millrace_node::functions::deploy(&namespace, &spec, &functions::source("write_keys.py"))?;
    drop(namespace);
    let host = Host::serve(context, dir, 0, &["n=n"])?;
    let mut near = postgres.session()?;
    near.query(
        "CREATE TABLE bare (key text COLLATE \"C\" PRIMARY KEY, value jsonb NOT NULL, version bigint NOT NULL)",
    )?;
    for (name, _) in TABLES.iter().filter(|(_, mode)| mode.is_some()) {
        await_table(&mut near, name)?;
    }
    Ok(FarDatabase { client: host.client("n")?, near, value: 0, _host: host })
}

/// How often a case is repeated: long ones vary little.
fn repetitions(context: &Context, (count, work_ms): (u64, u64)) -> usize {
    match count * work_ms {
        0..=50 => context.repetitions(9),
        51..=500 => 3,
        _ => 2,
    }
}

pub fn curves(context: &Context) -> Outcome<Measured> {
    let postgres = Postgres::start(context.fresh()?)?;
    let proxy = DelayProxy::start(postgres.port(), ROUND_TRIP)?;
    let mut far = start(context, &postgres, &proxy)?;
    // The first run starts the function.
    for (table, _) in TABLES {
        far.run(table, (1, 0))?;
    }
    let mut alone = PostgresSession::connect(proxy.port())?;
    by_itself(&mut alone, (2, 0))?;
    let write = repeat(context.repetitions(15), || by_itself(&mut alone, (1, 0)))?;
    let (mut worst, mut is_bounded, mut is_asynchronous, mut samples) = (0.0_f64, true, true, 0);
    let (mut also, mut peers, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for case in CASES {
        let mut answers = [(); 4].map(|()| Repeated::default());
        let mut writes = [(); 4].map(|()| Repeated::default());
        for _ in 0..repetitions(context, case) {
            for (at, (table, _)) in TABLES.iter().enumerate() {
                let (answered, written) = far.run(table, case)?;
                answers[at].push(answered);
                writes[at].push(written);
                samples += 1;
            }
        }
        let own = answers[0].median();
        let bound = own + write.median();
        let text = format!("{} × {} ms", case.0, case.1);
        for (at, (table, _)) in TABLES.iter().enumerate().skip(1) {
            also.push((format!("{table}, {text}"), writes[at].median() / bound));
        }
        let external = answers[1].median();
        worst = worst.max(external / bound);
        is_bounded &= external <= 1.03 * bound + 2.0;
        is_asynchronous &= answers[2].median() <= 1.03 * own + 2.0;
        let itself = by_itself(&mut alone, case)?;
        peers.push((format!("a program that writes each key itself, {text}"), itself / bound));
        let figures = [own, bound, external, answers[2].median(), answers[3].median(), itself].map(figure);
        lines.push(format!("{text}: {}", figures.join(", ")));
    }
    let mut measured = Measured::new(worst, samples)
        .target("external: written and answered ≤ 1.03 × (E + w) + 2 ms", is_bounded)
        .target("asynchronous: answered ≤ 1.03 × E + 2 ms", is_asynchronous)
        .also("E + w is 1; one write w", write.median(), "ms");
    for (name, ratio) in also {
        measured = measured.also(&name, ratio, "");
    }
    for (name, ratio) in peers {
        measured = measured.peer(&name, ratio);
    }
    Ok(measured.note(format!(
        "A client calls a Python function over TCP, which works (sleeps) for some milliseconds and writes one key of a \
         table, as often as the figures say. A proxy delays what passes between the host and PostgreSQL by {} ms in \
         each direction. Ratios: the time from the call until everything is written, to E + w. E is the time of the \
         same call for a table without a database, in turn. w is one write of one row by a bare program through the \
         proxy, {}. Everything is written when PostgreSQL has all keys, as another connection without the proxy sees it \
         that asks every half a millisecond, and the way back to the host has passed. Value: the greatest ratio of the \
         answer in mode external, which is given when everything is written. A run of an atomic function publishes all \
         its writes at its end, in one transaction, so E + w is the least for any mode; the modes differ in what waits: \
         the answer in mode external, nothing in mode asynchronous, and in mode synchronous also runs that read the \
         table or are started by its records, which this function does not. The program by itself works, writes and \
         waits for each key, once for each case. Milliseconds of E, of E + w, of the answers in the modes external, \
         asynchronous and synchronous, and of the program by itself: {}. Short cases: median of {}; 10 × 50 ms: of 3; \
         50 × 50 ms: of 2. {SETTINGS}.",
        figure(ROUND_TRIP.as_secs_f64() * 500.0),
        write.spread(),
        lines.join("; "),
        context.repetitions(9),
    )))
}
