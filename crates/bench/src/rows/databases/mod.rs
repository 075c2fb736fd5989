//! db.*: tables that a host writes to PostgreSQL.

mod curves;
mod independent;
mod postgres;
mod proxy;
mod writebehind;

pub use curves::curves;
pub use independent::independent;
pub use proxy::DelayProxy;
pub use writebehind::writebehind;

use crate::{Outcome, peers::patiently};
use millrace_node::{AppendOptions, Namespace, databases::DatabaseSettings};
use millrace_wire::{
    TableMode,
    table::{Condition, TableOptions, TableRequest},
};
use postgres::PostgresSession;
use std::{
    thread,
    time::{Duration, Instant},
};

/// The name of the database, which is also that of the stream.
const DATABASE: &str = "main";

/// Gives a namespace a database at a port of this machine.
fn add_database(namespace: &Namespace, port: u16) -> Outcome<()> {
    namespace.set_database(&DatabaseSettings::new(DATABASE.parse()?, postgres::url(port)))?;
    Ok(())
}

/// A table of JSON, in the database if there is a mode.
fn add_table(namespace: &Namespace, name: &str, mode: Option<TableMode>) -> Outcome<()> {
    let database = mode.map(|_| DATABASE.parse()).transpose()?;
    let options = TableOptions { database, mode: mode.unwrap_or_default(), ..TableOptions::default() };
    namespace.create_table(&name.parse()?, 1000, options)?;
    Ok(())
}

/// Puts a value from inside, which waits for no database; the version.
fn put_inside(namespace: &Namespace, table: &str, key: &str, value: &[u8]) -> Outcome<u64> {
    let request = TableRequest::Put { key: key.as_bytes(), value, condition: Condition::Always, ttl_ms: 0 };
    let answer = namespace.ask_table(table, &request, AppendOptions::default())?;
    Ok(answer.entries.first().ok_or("an answer without a version")?.version)
}

/// Asks the database until it has this version of a key, or a later one, for at most a minute.
fn await_version(session: &mut PostgresSession, table: &str, key: &str, version: u64) -> Outcome<()> {
    let sql = format!("SELECT count(*) FROM \"{table}\" WHERE key = '{key}' AND version >= {version}");
    let start = Instant::now();
    while session.number(&sql)? == 0 {
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("after a minute, key {key} of table {table} is not written").into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Waits until the host has made a table in the database.
fn await_table(session: &mut PostgresSession, table: &str) -> Outcome<()> {
    patiently(|| session.query(&format!("SELECT 1 FROM \"{table}\" LIMIT 0"))).map(drop)
}
