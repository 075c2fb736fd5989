//! table.open: opening a namespace with a large table until the first answer of the table.

use super::{HISTORY, LOG, append_value, ask, check_value, key, keys, put_value, scattered, with_table};
use crate::{
    Context, Outcome,
    children::Helper,
    measure::Repeated,
    rows::{Measured, text},
};
use millrace_node::Namespace;
use millrace_wire::table::TableRequest;
use std::{path::Path, time::Instant};

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Opens the namespace and reads a key of its table; the time of both, and of the first alone.
fn use_table(dir: &Path) -> Outcome<(f64, f64)> {
    let start = Instant::now();
    let namespace = Namespace::open(dir)?;
    let opened = ms_since(start);
    check_value(&ask(&namespace, &TableRequest::Get { key: &key(1) })?)?;
    Ok((ms_since(start), opened))
}

/// Opens the namespace and reads the newest record of its log.
fn use_log(dir: &Path) -> Outcome<f64> {
    let start = Instant::now();
    let namespace = Namespace::open(dir)?;
    namespace.newest(LOG)?;
    Ok(ms_since(start))
}

/// The only process of the namespace is killed.
fn killed(dir: &Path) -> Outcome<()> {
    Helper::start("hold", &[text(dir)?])?.kill()
}

pub fn open(context: &Context) -> Outcome<Measured> {
    let (dir, count) = (context.fresh()?, keys(context));
    let (table, log) = (dir.path().join("table"), dir.path().join("log"));
    {
        let (table, log) = (with_table(&table, HISTORY)?, with_table(&log, HISTORY)?);
        for at in 0..count {
            put_value(&table, scattered(at, count))?;
            append_value(&log)?;
        }
    }
    let [mut tables, mut opens, mut logs, mut more] = [(); 4].map(|()| Repeated::default());
    let repetitions = context.repetitions(7);
    for _ in 0..repetitions {
        let (both, opened) = use_table(&table)?;
        let of_log = use_log(&log)?;
        tables.push(both);
        opens.push(opened);
        logs.push(of_log);
        more.push(both - of_log);
    }
    let [mut tables_killed, mut logs_killed, mut more_killed] = [(); 3].map(|()| Repeated::default());
    for _ in 0..context.repetitions(5) {
        killed(&table)?;
        let (both, _) = use_table(&table)?;
        killed(&log)?;
        let of_log = use_log(&log)?;
        tables_killed.push(both);
        logs_killed.push(of_log);
        more_killed.push(both - of_log);
    }
    Ok(Measured::new(tables.median(), repetitions as u64)
        .target("≤ 80 ms more than a log", more.median() <= 80.0)
        .target("after a kill ≤ 80 ms more than a log", more_killed.median() <= 80.0)
        .also("opening alone", opens.median(), "ms")
        .also("more than a log", more.median(), "ms")
        .also("after a kill", tables_killed.median(), "ms")
        .also("after a kill, more than a log", more_killed.median(), "ms")
        .peer("the same with a log of the same values", logs.median())
        .peer("the same with a log, after a kill", logs_killed.median())
        .note(format!(
            "Namespace::open and the first get, of a table with {count} keys of 24 bytes and values of 100 bytes, by \
             the only process, after a clean shutdown: {}. The first use of a table in a process opens the files with \
             its keys, verifies their checksum, and reads the records that were written since, at most 65 536, which \
             takes nearly all of the time. In turn: the same with \
             the newest record of a log to which the same values were appended, {}. After a kill (SIGKILL) of the \
             only process both recover first: {} and {}. The files are in the page cache.",
            tables.spread(),
            logs.spread(),
            tables_killed.spread(),
            logs_killed.spread()
        )))
}
