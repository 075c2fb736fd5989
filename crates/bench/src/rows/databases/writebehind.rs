//! db.writebehind: how fast a host writes a table to PostgreSQL, beside a loop of the same statement.

use super::{
    DATABASE, add_database, add_table, await_table, await_version,
    postgres::{Parameter, Postgres, PostgresSession, SETTINGS},
    put_inside,
};
use crate::{
    Context, Outcome,
    measure::{Repeated, figure},
    rows::{Measured, namespace_with_logs, remote::Host},
};
use millrace_journal::Durability;
use millrace_node::Namespace;
use millrace_wire::TableMode;
use std::time::Instant;

const TABLE: &str = "scores";
/// The table of the loop.
const BARE: &str = "bare";
/// Unanswered statements, of the loop as of the host.
const IN_FLIGHT: usize = 4;
/// The statement that the host sent last. Its connection says who it is.
const LAST: &str = "SELECT query FROM pg_stat_activity WHERE application_name = 'millrace'";

/// The value of every key: 100 bytes of JSON.
fn value() -> String {
    format!("\"{}\"", "7".repeat(98))
}

fn name(number: u64) -> String {
    format!("key/{number:020}")
}

/// A round of puts that the host has written.
struct Behind {
    /// From the first put until the database had the last one.
    seconds: f64,
    /// From the first put to the last.
    puts_s: f64,
    transactions: u64,
}

/// Puts new keys, and waits until the database has them.
fn behind(namespace: &Namespace, session: &mut PostgresSession, from: u64, count: u64) -> Outcome<Behind> {
    let (value, start) = (value(), Instant::now());
    let mut version = 0;
    for number in from..from + count {
        version = put_inside(namespace, TABLE, &name(number), value.as_bytes())?;
    }
    let puts_s = start.elapsed().as_secs_f64();
    await_version(session, TABLE, &name(from + count - 1), version)?;
    let seconds = start.elapsed().as_secs_f64();
    let written = format!("FROM {TABLE} WHERE version > {}", version - count);
    let rows = session.number(&format!("SELECT count(*) {written}"))?;
    if rows != count {
        return Err(format!("the database has {rows} rows of {count}").into());
    }
    let transactions = session.number(&format!("SELECT count(DISTINCT xmin::text) {written}"))?;
    Ok(Behind { seconds, puts_s, transactions })
}

/// A program that does nothing but send the statement, with so many rows each time.
struct BareLoop {
    session: PostgresSession,
    sql: String,
    number: i64,
    next: u64,
}

impl BareLoop {
    fn new(mut session: PostgresSession) -> Outcome<Self> {
        let statements = session.query(LAST)?;
        let statement = statements.iter().find(|sql| sql.contains("INSERT INTO"));
        let statement = statement.ok_or_else(|| format!("the host's last statement was {statements:?}"))?;
        let sql = statement.replace(&format!("\"{TABLE}\""), BARE);
        if sql == *statement {
            return Err(format!("a statement without table {TABLE}: {statement}").into());
        }
        session.query(&format!("CREATE TABLE {BARE} (LIKE {TABLE} INCLUDING ALL)"))?;
        session.query(&format!("INSERT INTO millrace.streams VALUES ('{BARE}', 'bench', 0)"))?;
        Ok(Self { session, sql, number: 0, next: 0 })
    }

    fn send(&mut self, value: &str, rows: u64) -> Outcome<()> {
        let names: Vec<String> = (self.next..self.next + rows).map(name).collect();
        let first = self.next as i64;
        let parameters = [
            Parameter::number(self.number + 1),
            Parameter::text(BARE),
            Parameter::text("bench"),
            Parameter::number(self.number),
            Parameter::texts(names.iter().map(String::as_str)),
            Parameter::texts(names.iter().map(|_| value)),
            Parameter::numbers((0..names.len()).map(|at| first + at as i64)),
        ];
        self.session.send(&self.sql, &parameters)?;
        (self.number, self.next) = (self.number + 1, self.next + rows);
        Ok(())
    }

    fn answered(&mut self) -> Outcome<()> {
        let rows = self.session.rows()?;
        if rows == ["1"] { Ok(()) } else { Err(format!("the statement said {rows:?}").into()) }
    }

    /// Writes so many rows; the seconds.
    fn write(&mut self, count: u64, rows: u64) -> Outcome<f64> {
        let (value, start) = (value(), Instant::now());
        let (mut left, mut unanswered) = (count, 0);
        while left > 0 {
            if unanswered == IN_FLIGHT {
                self.answered()?;
                unanswered -= 1;
            }
            self.send(&value, rows.min(left))?;
            left -= rows.min(left);
            unanswered += 1;
        }
        (0..unanswered).try_for_each(|_| self.answered())?;
        Ok(start.elapsed().as_secs_f64())
    }
}

pub fn writebehind(context: &Context) -> Outcome<Measured> {
    let postgres = Postgres::start(context.fresh()?)?;
    let mut session = postgres.session()?;
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    let namespace = namespace_with_logs(&path, Durability::Memory, &[])?;
    add_database(&namespace, postgres.port())?;
    add_table(&namespace, TABLE, Some(TableMode::External))?;
    let host = Host::serve(context, dir, 0, &["n=n"])?;
    let version = put_inside(&namespace, TABLE, &name(0), value().as_bytes())?;
    await_table(&mut session, TABLE)?;
    await_version(&mut session, TABLE, &name(0), version)?;
    let mut bare = BareLoop::new(postgres.session()?)?;
    let count = if context.quick { 20_000 } else { 100_000 };
    let mut from = 1;
    let [mut ours, mut theirs, mut ratio, mut sizes, mut puts_us] = [(); 5].map(|()| Repeated::default());
    // The first ones make the pages of both tables.
    let first = behind(&namespace, &mut session, from, count)?;
    bare.write(count, count.div_ceil(first.transactions))?;
    let (repetitions, busy) = (context.repetitions(5), host.cpu_s()?);
    for _ in 0..repetitions {
        from += count;
        let Behind { seconds, puts_s, transactions } = behind(&namespace, &mut session, from, count)?;
        let rows = count.div_ceil(transactions);
        let of_loop = bare.write(count, rows)?;
        ours.push(count as f64 / seconds);
        theirs.push(count as f64 / of_loop);
        ratio.push(of_loop / seconds);
        sizes.push(rows as f64);
        puts_us.push(puts_s * 1e6 / count as f64);
    }
    let all = count * repetitions as u64;
    let busy_us = (host.cpu_s()? - busy) * 1e6 / all as f64;
    let (mine, its) = (from + count, bare.next);
    for (table, rows) in [(TABLE, mine), (BARE, its)] {
        let found = session.number(&format!("SELECT count(*) FROM {table}"))?;
        if found != rows {
            return Err(format!("table {table} has {found} rows instead of {rows}").into());
        }
    }
    Ok(Measured::new(ours.median(), all)
        .target("≥ 0.8 × the bare statement", ratio.median() >= 0.8)
        .target("≥ 50 000 /s", ours.median() >= 50_000.0)
        .also("ratio to the bare statement", ratio.median(), "")
        .also("rows of a transaction, mean", sizes.median(), "")
        .also("time of a put, mean", puts_us.median(), "µs")
        .also("processor time of the host, per write", busy_us, "µs")
        .peer("a loop of the same statement", theirs.median())
        .note(format!(
            "A process puts {count} new keys of 24 bytes with values of 100 bytes of JSON into a table in database \
             `{DATABASE}`, one after the other, and the host writes them. Value: writes per second from the first put \
             until PostgreSQL has the last one: {}. In turn: a program that puts nothing and only sends the statement \
             that the host sent, for a table of its own, with as many rows as the host's transactions had on average \
             ({}), {IN_FLIGHT} unanswered like the host: {}. Ratio in the same repetition: {}. All rows were \
             counted. {SETTINGS}; it is on the same disk. PostgreSQL, the process that puts ({} µs for each), and the \
             host ({} µs of a processor for each write, which reads it from the journal and sends it) share the \
             processors of the machine; the loop shares them with PostgreSQL alone.",
            ours.spread(),
            figure(sizes.median()),
            theirs.spread(),
            ratio.spread(),
            figure(puts_us.median()),
            figure(busy_us)
        )))
}
