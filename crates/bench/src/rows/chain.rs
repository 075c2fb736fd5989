//! chain5.durable: a chain of functions behind one flush.

use super::{Measured, PAYLOAD, durable, function, namespace_with_logs, text};
use crate::{
    Context, Outcome,
    children::Helper,
    functions,
    measure::{Repeated, Samples},
};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, Namespace, Runtime};
use std::{
    thread,
    time::{Duration, Instant},
};

const PACE: Duration = Duration::from_millis(1);

pub fn durable(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    let logs = ["c0", "c1", "c2", "c3", "c4", "c5"].map(|name| (name, 10_000));
    let namespace = namespace_with_logs(&path, Durability::Disk, &logs)?;
    let code = functions::wasm(context, "hop")?;
    for (n, (log, _)) in logs[..5].iter().enumerate() {
        millrace_node::functions::deploy(&namespace, &function(&format!("hop{n}"), Runtime::Wasm, log)?, &code)?;
    }
    let mut host = Helper::start("host", &[text(&path)?])?;
    host.line()?;
    round(&namespace, 50)?;
    let (mut p50s, mut all, mut inner, mut flushes) =
        (Repeated::default(), Samples::new(), Samples::new(), Samples::new());
    for _ in 0..context.repetitions(8) {
        let (samples, before_flush) = round(&namespace, 500)?;
        p50s.push(samples.p50_us());
        all.add(&samples);
        inner.add(&before_flush);
        flushes.add(&durable::six_flushes(dir.path(), 200)?);
    }
    host.finish()?;
    Ok(Measured::new(p50s.median(), all.count())
        .spread_us(&all)
        .target("p50 ≤ 250 µs", p50s.median() <= 250.0)
        .also("until the result is in c5, before the flush, p50", inner.p50_us(), "µs")
        .peer("6 synchronous flushes, p50", flushes.p50_us())
        .note(format!(
            "A record of 1 KiB is appended to the log c0, and five Wasm functions copy it step by step to the log c5. \
             The result is read through the gate, which flushes the journal once for the whole chain. The host is a \
             separate process that sleeps between the records; the client sleeps until the result is in c5, and then \
             another 1 ms; nothing is pinned. Value: {}. Six flushes: prewritten 4 KiB + fdatasync, six times, as in a \
             system that makes each step durable before the next.",
            p50s.spread()
        )))
}

/// Times to the durable result, and to the result before it is durable.
fn round(namespace: &Namespace, count: u64) -> Outcome<(Samples, Samples)> {
    let (mut durable, mut before) = (Samples::new(), Samples::new());
    let (result, journal) = (namespace.log("c5")?, namespace.journal());
    for _ in 0..count {
        thread::sleep(PACE);
        let seqno = result.latest() + 1;
        let start = Instant::now();
        // Memory: the client of a chain waits for the result, not for its own record.
        namespace.append(
            "c0",
            &PAYLOAD,
            AppendOptions { durability: Some(Durability::Memory), ..Default::default() },
        )?;
        while result.latest() < seqno {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(format!("result {seqno} of the chain is missing after 20 s").into());
            }
            journal.wait_log(&result, seqno - 1, Duration::from_secs(1))?;
        }
        before.record(start.elapsed());
        let record = namespace.get("c5", seqno)?;
        durable.record(start.elapsed());
        if record.payload != PAYLOAD || journal.durable() < journal.first() {
            return Err("the chain changed the record".into());
        }
    }
    Ok((durable, before))
}
