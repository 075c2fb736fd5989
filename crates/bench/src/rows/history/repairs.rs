//! repair.*: the cost of a repair, and its effect on other requests. journal.cost: the cost of recording reads.

use super::super::{Measured, function, journal_with_log, namespace_with_logs, text};
use crate::{
    Context, Outcome,
    children::Helper,
    functions,
    measure::{Repeated, Samples},
};
use millrace_journal::{Attempt, Durability, End, HISTORY_ALL, Origin, Reads, What};
use millrace_node::{
    AppendOptions, Isolation, Level, Namespace, Runtime,
    repairs::{self, Ask, Correction, Reported, Request},
};
use millrace_wire::EventId;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Logs of the chain: each record goes through all of them, by functions.
const LOGS: [&str; 10] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"];
const RECORDS: u64 = 2000;
/// One record in this number is corrected.
const EVERY: u64 = 100;
const RECORD_BYTES: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(120);

/// A namespace in which a chain of functions has run, and no host.
fn chained(context: &Context, dir: &Path) -> Outcome<Namespace> {
    let mut logs: Vec<_> = LOGS.iter().map(|name| (*name, HISTORY_ALL)).collect();
    logs.push(("other", HISTORY_ALL));
    let namespace = namespace_with_logs(dir, Durability::Memory, &logs)?;
    let code = functions::wasm(context, "hop")?;
    for (n, log) in LOGS[..9].iter().enumerate() {
        millrace_node::functions::deploy(&namespace, &function(&format!("hop{n}"), Runtime::Wasm, log)?, &code)?;
    }
    let mut host = Helper::start("host", &[text(dir)?])?;
    host.line()?;
    for n in 0..RECORDS {
        namespace.append("c0", &record(n), AppendOptions::default())?;
    }
    let (last, begun) = (namespace.log("c9")?, Instant::now());
    while last.latest() < RECORDS {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{} of {RECORDS} records reached the last log", last.latest()).into());
        }
        namespace.journal().wait_log(&last, RECORDS - 1, Duration::from_secs(1))?;
    }
    namespace.wait_idle(PATIENCE)?;
    host.finish()?;
    Ok(namespace)
}

fn record(n: u64) -> Vec<u8> {
    let mut record = vec![7; RECORD_BYTES];
    record[..8].copy_from_slice(&n.to_le_bytes());
    record
}

/// Opens a repair that corrects records of the first log at this interval; returns its number. `round` makes the values differ from those before.
fn open(namespace: &Namespace, every: u64, round: u64) -> Outcome<u64> {
    let value = |seqno: u64| Some(record(seqno + round * 1_000_000));
    let corrections = (1..=RECORDS).step_by(every as usize).map(|seqno| Correction { seqno, value: value(seqno) });
    let request = Request {
        log: "c0".parse()?,
        corrections: corrections.collect(),
        reason: String::new(),
        accept_unknown: false,
        append_new: false,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    match Ask::Open(request).ask(namespace)? {
        Reported::Repair(repair) => Ok(repair.repair),
        _ => Err("an opened repair answers as an amendment".into()),
    }
}

/// Does what repairs wait for; how long that takes, in seconds.
fn work(namespace: &Namespace) -> Outcome<f64> {
    let start = Instant::now();
    let isolation = Arc::new(Isolation::at_most(Level::None, Path::new("")));
    repairs::here(namespace, &isolation, &mut repairs::NoPeers, &mut |_, _, _, _| {})?;
    Ok(start.elapsed().as_secs_f64())
}

fn applied(namespace: &Namespace, repair: u64, runs: u64) -> Outcome<()> {
    let repair = repairs::repair(namespace, repair)?;
    if repair.phase != repairs::Phase::Applied || repair.counts.replayed != runs {
        return Err(format!("{runs} runs were to be replayed: {repair:?}").into());
    }
    Ok(())
}

pub fn replay(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let namespace = chained(context, &dir.path().join("n"))?;
    let (mut few, mut all) = (Repeated::default(), Repeated::default());
    for round in 1..=context.repetitions(5) as u64 {
        for (every, seconds) in [(EVERY, &mut few), (1, &mut all)] {
            let repair = open(&namespace, every, 2 * round + u64::from(every == 1))?;
            let replayed = work(&namespace)?;
            repairs::ask_apply(&namespace, repair)?;
            seconds.push((replayed + work(&namespace)?) * 1e3);
            applied(&namespace, repair, RECORDS.div_ceil(every) * 9)?;
            repairs::close(&namespace, repair)?;
        }
    }
    Ok(Measured::new(few.median(), context.repetitions(5) as u64)
        .also("all records corrected", all.median(), "ms")
        .note(format!(
            "{RECORDS} records of 1 KiB have passed through 9 Wasm functions. One record in {EVERY} is corrected, {} \
             runs are replayed, and the repair is applied; for comparison, all records are corrected and all {} runs \
             replayed. Both repairs read the whole journal. Value: {}.",
            RECORDS.div_ceil(EVERY) * 9,
            RECORDS * 9,
            few.spread()
        )))
}

/// How long appends to an uninvolved log and reads of it take, until `done`.
fn others(namespace: &Namespace, done: &AtomicBool) -> Outcome<(Samples, Samples)> {
    let (mut appends, mut gets) = (Samples::new(), Samples::new());
    while !done.load(Ordering::Acquire) {
        let start = Instant::now();
        let receipt = namespace.append("other", &[7; RECORD_BYTES], AppendOptions::default())?;
        appends.record(start.elapsed());
        let start = Instant::now();
        namespace.get("other", receipt.seqno)?;
        gets.record(start.elapsed());
        thread::sleep(Duration::from_micros(20));
    }
    Ok((appends, gets))
}

/// What others notice while something is done.
fn beside(namespace: &Namespace, act: impl FnOnce() -> Outcome<()>) -> Outcome<(Samples, Samples)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| others(namespace, &done).map_err(|error| error.to_string()));
        thread::sleep(Duration::from_millis(20));
        let acted = act();
        done.store(true, Ordering::Release);
        let measured = other.join().map_err(|_| "the other thread panicked")?;
        acted?;
        Ok(measured?)
    })
}

pub fn live(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let namespace = chained(context, &dir.path().join("n"))?;
    // The same work on the machine's other processor, without anything in common with the appends.
    let apart = chained(context, &dir.path().join("apart"))?;
    let [mut normal, mut during, mut beside_apart] = [(); 3].map(|()| [Samples::new(), Samples::new()]);
    for round in 1..=context.repetitions(5) as u64 {
        let (appends, gets) = beside(&namespace, || {
            thread::sleep(Duration::from_secs(1));
            Ok(())
        })?;
        normal[0].add(&appends);
        normal[1].add(&gets);
        let repair = open(&namespace, 1, round)?;
        let (appends, gets) = beside(&namespace, || work(&namespace).map(drop))?;
        during[0].add(&appends);
        during[1].add(&gets);
        repairs::abandon(&namespace, repair)?;
        let repair = open(&apart, 1, round)?;
        let (appends, gets) = beside(&namespace, || work(&apart).map(drop))?;
        beside_apart[0].add(&appends);
        beside_apart[1].add(&gets);
        repairs::abandon(&apart, repair)?;
    }
    let ratio = |at: usize| during[at].p50_us() / normal[at].p50_us();
    Ok(Measured::new(during[0].p50_us(), during[0].count())
        .spread_us(&during[0])
        .target("append ≤ 1.15 × normal", ratio(0) <= 1.15)
        .target("get ≤ 1.15 × normal", ratio(1) <= 1.15)
        .peer("append without a repair, p50", normal[0].p50_us())
        .also("get, p50", during[1].p50_us(), "µs")
        .also("get without a repair, p50", normal[1].p50_us(), "µs")
        .also("append while another namespace's repair replays, p50", beside_apart[0].p50_us(), "µs")
        .also("get while another namespace's repair replays, p50", beside_apart[1].p50_us(), "µs")
        .peer("Sans-Souci while repairing, as published", 185.0)
        .note(format!(
            "Every 20 µs, one thread appends 1 KiB to a log that the repair does not concern, and reads it, while \
             another thread of the same process replays {} runs. With the repair of another namespace, the threads and \
             the work are the same, but the journal is another one; so the difference is due to the shared journal. \
             Each replayed run is a commit, so both threads take the journal's lock in turn, and the cache lines of \
             its tail move between the processors.",
            RECORDS * 9
        )))
}

pub fn pause(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let namespace = chained(context, &dir.path().join("n"))?;
    let (mut longest, mut normal) = (Repeated::default(), Repeated::default());
    for round in 1..=context.repetitions(9) as u64 {
        let repair = open(&namespace, EVERY, round)?;
        work(&namespace)?;
        let (appends, _) = beside(&namespace, || {
            thread::sleep(Duration::from_millis(200));
            Ok(())
        })?;
        normal.push(appends.max_us());
        repairs::ask_apply(&namespace, repair)?;
        let (appends, _) = beside(&namespace, || work(&namespace).map(drop))?;
        longest.push(appends.max_us());
        applied(&namespace, repair, RECORDS.div_ceil(EVERY) * 9)?;
        repairs::close(&namespace, repair)?;
    }
    let slots = RECORDS.div_ceil(EVERY) * LOGS.len() as u64;
    Ok(Measured::new(longest.median(), context.repetitions(9) as u64)
        .target("≤ 200 µs", longest.median() <= 200.0)
        .also("the longest append without a switch", normal.median(), "µs")
        .note(format!(
            "The longest append to a log that the repair does not concern, while the repair is applied: {slots} \
             records in {} logs switch at once. Value: {}.",
            LOGS.len(),
            longest.spread()
        )))
}

/// Seconds for this number of runs, each in the batch of its record, with reads or without.
fn runs(dir: &Path, count: u64, reads_each: u64) -> Outcome<f64> {
    const RUNS_PER_BATCH: u64 = 50;
    let (journal, input) = journal_with_log(dir, Durability::Memory, 4 << 30, HISTORY_ALL)?;
    let (output, function) = journal
        .commit(|tx| {
            let output = tx.create_log(&"out".parse()?, HISTORY_ALL)?;
            Ok((output, tx.define_function(&"f".parse()?, "{}")?.id()))
        })?
        .value;
    let start = Instant::now();
    for batch in 0..count / RUNS_PER_BATCH {
        journal.commit(|tx| {
            for n in 0..RUNS_PER_BATCH {
                let seqno = batch * RUNS_PER_BATCH + n + 1;
                let record = tx.append(&input, b"21.5", EventId::NONE, 0)?;
                let run = tx.trigger(function, record.id, &input, seqno, Origin::Bound)?;
                tx.fired(function, run, &Attempt { attempt: 1, revision: 1, ..Attempt::default() })?;
                if reads_each > 0 {
                    let mut reads = Reads::default();
                    reads.log(output.id(), seqno, What::Latest);
                    // Not neighbours, which would be one row.
                    (1..reads_each).for_each(|n| reads.log(output.id(), seqno + 2 * n, What::Record));
                    tx.reads(function, run, reads)?;
                }
                tx.append(&output, b"21.5", run.id, 0)?;
                tx.done(function, run, &End { effects: 2, ..End::default() })?;
            }
            Ok(())
        })?;
    }
    Ok(start.elapsed().as_secs_f64())
}

pub fn cost(context: &Context) -> Outcome<Measured> {
    const RUNS: u64 = 100_000;
    const READS: u64 = 8;
    let dir = context.fresh()?;
    let (mut each, mut without) = (Repeated::default(), Repeated::default());
    for round in 0..context.repetitions(9) {
        let at = |name: &str| dir.path().join(format!("{name}{round}"));
        let (none, all) = (runs(&at("none"), RUNS, 0)?, runs(&at("all"), RUNS, READS)?);
        without.push(none * 1e9 / RUNS as f64);
        each.push((all - none) * 1e9 / (RUNS * READS) as f64);
    }
    Ok(Measured::new(each.median(), context.repetitions(9) as u64)
        .target("≤ 60 ns", each.median() <= 60.0)
        .also("a run that reads nothing, in the journal", without.median(), "ns")
        .note(format!(
            "{RUNS} runs are written to a journal with durability memory: record, trigger, attempt, append and end. \
             The same is done with {READS} reads in each run; the additional time is divided by the number of reads. \
             Value: {}.",
            each.spread()
        )))
}
