//! table.scan: all keys of a large table in order, with and without their values.

use super::{HISTORY, LOG, VALUE, append_value, ask, keys, put_value, scattered, with_table};
use crate::{Context, Outcome, measure::Repeated, rows::Measured};
use millrace_node::Namespace;
use millrace_wire::table::{KeyRange, SCAN_MAX, TableRequest};
use std::{hint::black_box, time::Instant};

/// Keys per second of one scan of everything, a page after the other.
fn scan_all(namespace: &Namespace, keys: u64, keys_only: bool) -> Outcome<f64> {
    let (start, mut found, mut from) = (Instant::now(), 0, Vec::new());
    loop {
        let range = KeyRange { from: &from, to: &[] };
        let page = ask(namespace, &TableRequest::Scan { range, limit: SCAN_MAX, keys_only })?;
        let expected: &[u8] = if keys_only { &[] } else { &VALUE };
        if page.entries.iter().any(|entry| entry.value.as_deref() != Some(expected)) {
            return Err("a scan has another value".into());
        }
        found += page.entries.len() as u64;
        let Some(last) = page.entries.last().filter(|_| page.more) else { break };
        // The first key behind the last one.
        from.clear();
        from.extend_from_slice(&last.key);
        from.push(0);
    }
    let rate = found as f64 / start.elapsed().as_secs_f64();
    if found == keys { Ok(rate) } else { Err(format!("a scan of {keys} keys has {found}").into()) }
}

/// Records per second, as many at a time as a page of a scan has.
fn read_all(namespace: &Namespace, records: u64) -> Outcome<f64> {
    let (start, mut next) = (Instant::now(), 1);
    while next <= records {
        let page = namespace.range(LOG, next, SCAN_MAX, 1 << 20)?;
        black_box(&page);
        next += page.len() as u64;
        if page.is_empty() {
            return Err(format!("the log has no record {next}").into());
        }
    }
    Ok(records as f64 / start.elapsed().as_secs_f64())
}

pub fn scan(context: &Context) -> Outcome<Measured> {
    let (dir, count) = (context.fresh()?, keys(context));
    let namespace = with_table(&dir.path().join("n"), count.max(HISTORY))?;
    for at in 0..count {
        put_value(&namespace, scattered(at, count))?;
        append_value(&namespace)?;
    }
    scan_all(&namespace, count, false)?;
    let (mut scans, mut only, mut reads) = (Repeated::default(), Repeated::default(), Repeated::default());
    let repetitions = context.repetitions(7);
    for _ in 0..repetitions {
        scans.push(scan_all(&namespace, count, false)?);
        only.push(scan_all(&namespace, count, true)?);
        reads.push(read_all(&namespace, count)?);
    }
    Ok(Measured::new(scans.median(), count * repetitions as u64)
        .target("keys only ≥ 2 000 000 /s", only.median() >= 2e6)
        .also("keys only", only.median(), "/s")
        .peer("reading the same values from a log, in the order of the appends", reads.median())
        .note(format!(
            "One thread, not pinned, scans {count} keys of 24 bytes with Namespace::ask_table, {SCAN_MAX} at a time: \
             with values of {} bytes {}; keys only {}; the same values from a log in the same journal, with \
             Namespace::range, {SCAN_MAX} at a time: {}. The keys were put in an order without a pattern, so a scan \
             reads the values at random places of the journal, and verifies the checksum of each record, while the \
             log is read from its beginning to its end.",
            VALUE.len(),
            scans.spread(),
            only.spread(),
            reads.spread()
        )))
}
