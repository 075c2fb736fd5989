//! repair.discover and merge.*: what a correction reaches, and journals in one order.

mod repairs;

pub use repairs::{cost, live, pause, replay};

use super::{Measured, journal_with_log};
use crate::{Context, Outcome, measure::Repeated};
use millrace_causality::{Builder, Changes, Event, History, Table, discover};
use millrace_journal::{Attempt, Durability, End, HISTORY_ALL, Journal, Kind, Origin, Position, Reads, What};
use millrace_wire::{EventId, Hlc, NamespaceId};
use std::{collections::HashSet, path::Path, thread, time::Instant};

/// Events of the run that the paper on repair measures.
const PAPER_EVENTS: u64 = 79_316;
const MANY_EVENTS: u64 = 10_000_000;
/// Entries of one run here: APPEND, TRIGGER, FIRED, READ, APPEND, DONE.
const ENTRIES_PER_RUN: u64 = 6;
const RUNS_PER_BATCH: u64 = 50;

/// A journal with this many events. Each run reads the record that the previous run appended.
fn chained(dir: &Path, events: u64) -> Outcome<Journal> {
    let (journal, input) = journal_with_log(dir, Durability::Memory, 8 << 30, HISTORY_ALL)?;
    let (output, function) = journal
        .commit(|tx| {
            let output = tx.create_log(&"out".parse()?, HISTORY_ALL)?;
            Ok((output, tx.define_function(&"f".parse()?, "{}")?.id()))
        })?
        .value;
    let mut left = events / ENTRIES_PER_RUN;
    let mut seqno = 0;
    while left > 0 {
        let runs = left.min(RUNS_PER_BATCH);
        left -= runs;
        journal.commit(|tx| {
            for _ in 0..runs {
                seqno += 1;
                let record = tx.append(&input, b"21.5", EventId::NONE, 0)?;
                let run = tx.trigger(function, record.id, &input, seqno, Origin::Bound)?;
                tx.fired(function, run, &Attempt { attempt: 1, revision: 1, ..Attempt::default() })?;
                let mut reads = Reads::default();
                reads.log(output.id(), seqno - 1, if seqno == 1 { What::Latest } else { What::Record });
                tx.reads(function, run, reads)?;
                tx.append(&output, b"21.5", run.id, 0)?;
                tx.done(function, run, &End { effects: 2, ..End::default() })?;
            }
            Ok(())
        })?;
    }
    Ok(journal)
}

fn table(journal: &Journal) -> Outcome<Table> {
    let mut builder = Builder::new(journal.namespace());
    let mut scan = journal.scan(Position::default());
    while let Some(entry) = scan.next()? {
        builder.push(&entry.into())?;
    }
    Ok(builder.finish())
}

/// Milliseconds for reading the journal and for finding what the first record reaches, and bytes of memory for an event.
fn discovered(journal: &Journal, events: u64) -> Outcome<(f64, f64, f64)> {
    let start = Instant::now();
    let table = table(journal)?;
    let read = start.elapsed();
    let first = table.record(1, 1).ok_or("the log has no first record")?;
    let changes = Changes { records: HashSet::from([first]), ..Changes::default() };
    let found = discover(&table, &changes, &mut |_| None);
    let all = start.elapsed();
    let runs = events / ENTRIES_PER_RUN;
    if found.candidates.len() as u64 != runs {
        return Err(format!("{} of {runs} runs were found", found.candidates.len()).into());
    }
    let bytes = table.bytes() as f64 / f64::from(table.len());
    Ok((read.as_secs_f64() * 1e3, all.as_secs_f64() * 1e3, bytes))
}

pub fn found(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let small = chained(&dir.path().join("small"), PAPER_EVENTS)?;
    let (mut read, mut all) = (Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(15) {
        let (read_ms, all_ms, _) = discovered(&small, PAPER_EVENTS)?;
        read.push(read_ms);
        all.push(all_ms);
    }
    drop(small);
    let many = chained(&dir.path().join("many"), MANY_EVENTS)?;
    let mut seconds = Repeated::default();
    let mut bytes = 0.0;
    for _ in 0..context.repetitions(3) {
        let (_, all_ms, each) = discovered(&many, MANY_EVENTS)?;
        seconds.push(all_ms / 1e3);
        bytes = each;
    }
    Ok(Measured::new(all.median(), context.repetitions(15) as u64)
        .target("≤ 10 ms", all.median() <= 10.0)
        .target("10 M events ≤ 1.5 s", seconds.median() <= 1.5)
        .target("≤ 48 bytes per event", bytes <= 48.0)
        .peer("Sans-Souci, as published", 2632.0)
        .also("of which reading the journal", read.median(), "ms")
        .also("10 M events", seconds.median(), "s")
        .also("memory", bytes, "bytes per event")
        .note(format!(
            "A journal of {PAPER_EVENTS} entries, durability memory and in the page cache, is read, every checksum is \
             verified, and a table is built. Then the runs that a correction of the first record affects are found: \
             all of them, because each run read the append of the previous one. Value: {}.",
            all.spread()
        )))
}

/// A journal's table with this number of events, at varying intervals of its clock.
fn synthetic(number: u64, events: u64) -> Outcome<Table> {
    let namespace = NamespaceId::new(number + 1).ok_or("0 is no namespace")?;
    let mut builder = Builder::new(namespace);
    let (mut clock, mut state) = (1_000_000u64, number + 1);
    for sequence in 1..=events {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        clock += 1 + (state >> 60);
        builder.push(&Event {
            id: EventId::new(namespace, 1, sequence),
            position: sequence * 80,
            kind: Kind::Append,
            hlc: Hlc::from_bits(clock),
            cause: EventId::NONE,
            subject: 1,
            seqno: sequence,
            ordinal: 0,
            carried: false,
            claimed: false,
            repair: None,
            void: false,
            payload: &[],
            key: None,
            payload_bytes: 0,
        })?;
    }
    Ok(builder.finish())
}

/// Seconds for merging.
fn merged(history: &History) -> Outcome<f64> {
    let start = Instant::now();
    let mut last = 0;
    let mut count = 0;
    for place in history.order() {
        last ^= place.row;
        count += 1;
    }
    std::hint::black_box(last);
    if count != history.len() {
        return Err(format!("{count} of {} events were merged", history.len()).into());
    }
    Ok(start.elapsed().as_secs_f64())
}

pub fn two(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let journals =
        [chained(&dir.path().join("a"), PAPER_EVENTS / 2)?, chained(&dir.path().join("b"), PAPER_EVENTS / 2)?];
    let (mut all, mut merge, mut alone) = (Repeated::default(), Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(15) {
        let start = Instant::now();
        let history = History::new(side_by_side(&journals)?);
        merge.push(merged(&history)? * 1e3);
        all.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        merged(&History::new(journals.iter().map(table).collect::<Outcome<_>>()?))?;
        alone.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Measured::new(all.median(), context.repetitions(15) as u64)
        .target("≤ 6 ms", all.median() <= 6.0)
        .peer("Sans-Souci, as published", 1426.0)
        .also("of which merging", merge.median(), "ms")
        .also("by one thread", alone.median(), "ms")
        .note(format!(
            "Two journals with {PAPER_EVENTS} entries together are read, every checksum is verified, and they are \
             merged. Each journal is read by a thread of its own, as in `millrace trace` and `graph`. Value: {}.",
            all.spread()
        )))
}

/// The tables of journals, each read by a thread of its own.
fn side_by_side(journals: &[Journal]) -> Outcome<Vec<Table>> {
    thread::scope(|scope| {
        let read = |journal| scope.spawn(move || table(journal).map_err(|error| error.to_string()));
        let readers: Vec<_> = journals.iter().map(read).collect();
        readers.into_iter().map(|reader| Ok(reader.join().expect("reading does not panic")?)).collect()
    })
}

pub fn eight(context: &Context) -> Outcome<Measured> {
    const JOURNALS: u64 = 8;
    const EVENTS: u64 = 1_000_000;
    let tables = (0..JOURNALS).map(|number| synthetic(number, EVENTS)).collect::<Outcome<_>>()?;
    let history = History::new(tables);
    let mut rate = Repeated::default();
    for _ in 0..context.repetitions(5) {
        rate.push((JOURNALS * EVENTS) as f64 / merged(&history)? / 1e6);
    }
    Ok(Measured::new(rate.median(), context.repetitions(5) as u64).target("≥ 12 M/s", rate.median() >= 12.0).note(
        format!(
            "The tables of {JOURNALS} journals with {EVENTS} events each, whose times interleave at random, are \
             merged. Value: {}.",
            rate.spread()
        ),
    ))
}
