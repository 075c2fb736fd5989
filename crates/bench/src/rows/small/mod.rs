//! small.bytes: the bytes that a small record occupies on disk, alone and with its run.

use super::{Measured, function, namespace_with_logs, text};
use crate::{
    Context, Outcome,
    children::Helper,
    functions,
    peers::{self, nats::Nats, redis::Redis},
};
use millrace_journal::{CreateOptions, Durability, Journal};
use millrace_node::{AppendOptions, Namespace, NewRecord, Runtime};
use millrace_wire::EventId;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

const RECORD: [u8; 16] = [7; 16];
/// What is appended with a run.
const TINY: [u8; 8] = [7; 8];
/// Records to a batch.
const BATCH: u64 = 100;
/// How many records peers keep: as many as a stream of theirs does in the other rows.
const PEERS_RECORDS: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes for each record: of the segments up to the tail, and of the indexes.
#[derive(Clone, Copy)]
struct Each {
    segments: f64,
    indexes: f64,
}

impl Each {
    fn all(self) -> f64 {
        self.segments + self.indexes
    }
}

/// What a namespace takes so far.
struct Taken {
    tail: u64,
    indexes: u64,
}

impl Taken {
    fn now(dir: &Path, journal: &Journal) -> Outcome<Self> {
        let indexes = fs::metadata(dir.join("index/arena"))?.blocks() * 512;
        Ok(Self { tail: journal.tail().get(), indexes })
    }

    fn each(&self, before: &Self, records: u64) -> Each {
        let per_record = |bytes: u64| bytes as f64 / records as f64;
        Each { segments: per_record(self.tail - before.tail), indexes: per_record(self.indexes - before.indexes) }
    }
}

pub fn bytes(context: &Context) -> Outcome<Measured> {
    let count = if context.quick { 200_000 } else { 1_000_000 };
    let (batches, single) = (records(context, count, BATCH)?, records(context, count, 1)?);
    let loaded = runs(context, count / 4, true)?;
    let alone = runs(context, count / 50, false)?;
    let mut row = Measured::new(batches.all(), count)
        .target("≤ 64 B", batches.all() <= 64.0)
        .target("with its run, under load ≤ 200 B", loaded.all() <= 200.0)
        .also("of which in the index", batches.indexes, "B")
        .also("appended singly", single.all(), "B")
        .also("8 bytes with a no-op run, under load", loaded.all(), "B")
        .also("of which in indexes", loaded.indexes, "B")
        .also("8 bytes with a no-op run, one at a time", alone.all(), "B")
        .note(format!(
            "The growth of the segments up to the tail and of the blocks of the file of indexes, divided by the \
             number of records. The records are: {count} of 16 bytes in batches of {BATCH}, and in batches of one; {} \
             of 8 bytes, in batches of 1024, in a log to which a Wasm function that does nothing is bound, while a \
             host runs it; and {} such records, each appended when the run of the previous one is done. Durability \
             memory; nothing is dropped meanwhile.",
            count / 4,
            count / 50,
        ));
    let dir = context.fresh()?;
    row = match Redis::start(dir.path())? {
        Some(redis) => {
            redis.benchmark(50, 16, &RECORD, PEERS_RECORDS)?;
            let file = size(&dir.path().join("appendonlydir"))? as f64 / PEERS_RECORDS as f64;
            row.peer("Redis AOF, XADD", file)
                .note("Redis 7: the append-only file after as many XADD of one field of 16 bytes.")
        }
        None => row.note(peers::redis::INSTALL),
    };
    let dir = context.fresh()?;
    Ok(match Nats::start(dir.path())? {
        Some(nats) => {
            nats.make_stream("file")?;
            let mut connection = nats.connect()?;
            connection.listen()?;
            connection.publish("file", &RECORD, PEERS_RECORDS, 256)?;
            let store = size(&dir.path().join("jetstream"))? as f64 / PEERS_RECORDS as f64;
            row.peer("NATS JetStream, file", store)
                .note("JetStream: all files of the store after as many publications of 16 bytes.")
        }
        None => row.note(peers::nats::INSTALL),
    })
}

/// What records take that nobody runs.
fn records(context: &Context, count: u64, batch: u64) -> Outcome<Each> {
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    let options = CreateOptions { retain_bytes: 4 << 30, durability: Durability::Memory, ..CreateOptions::default() };
    let journal = Journal::create(&path, &options)?;
    let log = journal.commit(|tx| tx.create_log(&"a".parse()?, count))?.value;
    let before = Taken::now(&path, &journal)?;
    for _ in 0..count / batch {
        journal.commit(|tx| (0..batch).try_for_each(|_| tx.append(&log, &RECORD, EventId::NONE, 0).map(drop)))?;
    }
    Ok(Taken::now(&path, &journal)?.each(&before, count / batch * batch))
}

/// What records take with the runs that they cause.
fn runs(context: &Context, count: u64, under_load: bool) -> Outcome<Each> {
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    let namespace = namespace_with_logs(&path, Durability::Memory, &[("in", count + 100)])?;
    let code = functions::wasm(context, "nothing")?;
    millrace_node::functions::deploy(&namespace, &function("f", Runtime::Wasm, "in")?, &code)?;
    let mut host = Helper::start("host", &[text(&path)?])?;
    host.line()?;
    append(&namespace, 100)?; // Starts the function.
    done(&namespace, 100)?;
    let before = Taken::now(&path, namespace.journal())?;
    if under_load {
        append(&namespace, count)?;
        done(&namespace, 100 + count)?;
    } else {
        for n in 1..=count {
            namespace.append("in", &TINY, AppendOptions::default())?;
            done(&namespace, 100 + n)?;
        }
    }
    let taken = Taken::now(&path, namespace.journal())?.each(&before, count);
    host.finish()?;
    Ok(taken)
}

fn append(namespace: &Namespace, count: u64) -> Outcome<()> {
    let records = (0..count).map(|_| Ok(NewRecord { log: "in".into(), payload: TINY.to_vec() }));
    let options = AppendOptions { patience: PATIENCE, ..AppendOptions::default() };
    Ok(namespace.append_many(records, options, |_| {})?)
}

/// Waits until this number of runs has ended.
fn done(namespace: &Namespace, runs: u64) -> Outcome<()> {
    let catalog = namespace.journal().catalog()?;
    let function = catalog.function("f").ok_or("the function is gone")?;
    let start = Instant::now();
    while function.done() < runs {
        if start.elapsed() > PATIENCE {
            return Err(format!("{} of {runs} runs after {} s", function.done(), PATIENCE.as_secs()).into());
        }
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Bytes of all files in a folder.
fn size(dir: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
