//! recover.*: opening a namespace whose processes were killed.

use super::{Measured, function, namespace_with_logs, text};
use crate::{
    Context, Outcome,
    children::Helper,
    functions,
    measure::Repeated,
    peers::{raw, wake},
};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, NewRecord, Runtime};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

const GIB: u64 = 1 << 30;

pub fn bytes(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    Helper::start("fill", &[text(&path)?, &GIB.to_string()])?.kill()?;
    let repetitions = context.repetitions(9);
    let (mut warm, mut warm_ratio, mut cold, mut cold_ratio) =
        (Repeated::default(), Repeated::default(), Repeated::default(), Repeated::default());
    let (mut read_warm, mut read_cold) = (Repeated::default(), Repeated::default());
    let mut entries = 0;
    for _ in 0..repetitions {
        let read = read_ms(&path)?;
        let (open, found) = open_ms(&path)?;
        warm.push(open);
        warm_ratio.push(open / read);
        read_warm.push(read);
        entries = found;
    }
    for _ in 0..repetitions.div_ceil(2) {
        forget(&path)?;
        let read = read_ms(&path)?;
        forget(&path)?;
        let (open, _) = open_ms(&path)?;
        cold.push(open);
        cold_ratio.push(open / read);
        read_cold.push(read);
    }
    Ok(Measured::new(warm.median(), repetitions as u64)
        .target("≤ 1.3 × reading the files, cached", warm_ratio.median() <= 1.3)
        .target("≤ 1.2 × reading the files, from the disk", cold_ratio.median() <= 1.2)
        .also("ratio to reading, cached", warm_ratio.median(), "")
        .also("from the disk", cold.median(), "ms")
        .also("ratio to reading, from the disk", cold_ratio.median(), "")
        .peer("reading the segments, cached", read_warm.median())
        .peer("reading the segments, from the disk", read_cold.median())
        .note(format!(
            "A namespace has {entries} entries of 1 KiB, one in each batch, 1 GiB in all. Its only process is killed \
             (SIGKILL), and another one opens the namespace: two threads verify every entry, and the index of the log \
             is rebuilt. Value: the files are in the page cache, as after the death of a process, {}. From the disk, \
             as after a power failure: the files are first removed from the page cache, {}. Reading: the files of the \
             segments with read(2), 1 MiB at a time, just before.",
            warm.spread(),
            cold.spread()
        )))
}

fn segments(path: &Path) -> PathBuf {
    path.join("segments")
}

fn read_ms(path: &Path) -> Outcome<f64> {
    let start = Instant::now();
    raw::read_folder(&segments(path))?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

/// Opens in another process, which is killed: so the next open is unclean again.
fn open_ms(path: &Path) -> Outcome<(f64, u64)> {
    let mut helper = Helper::launch("open", &[text(path)?])?;
    let said = helper.numbers()?;
    helper.kill()?;
    match said[..] {
        [ns, 1, entries] => Ok((ns as f64 / 1e6, entries)),
        _ => Err("the open after a kill did not recover".into()),
    }
}

fn forget(path: &Path) -> Outcome<()> {
    for folder in [segments(path), path.join("index")] {
        for entry in fs::read_dir(folder)? {
            wake::forget(&entry?.path())?;
        }
    }
    Ok(())
}

pub fn triggers(context: &Context) -> Outcome<Measured> {
    const COUNT: u64 = 1_000_000;
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    let namespace = namespace_with_logs(&path, Durability::Memory, &[("in", 1000)])?;
    millrace_node::functions::deploy(
        &namespace,
        &function("f", Runtime::Wasm, "in")?,
        &functions::wasm(context, "nothing")?,
    )?;
    let records = (0..COUNT).map(|_| Ok(NewRecord { log: "in".into(), payload: vec![7; 16] }));
    namespace.append_many(records, AppendOptions::default(), |_| {})?;
    // As another process keeps it open, its end is no clean one once that is killed.
    let keeper = Helper::start("hold", &[text(&path)?])?;
    drop(namespace);
    keeper.kill()?;
    let repetitions = context.repetitions(7);
    let (mut open, mut read) = (Repeated::default(), Repeated::default());
    for _ in 0..repetitions {
        read.push(read_ms(&path)?);
        open.push(open_ms(&path)?.0);
    }
    let (mut started, mut first) = (Repeated::default(), Repeated::default());
    // The host is killed early in the backlog, so nearly all of it is there the next time.
    for _ in 0..3 {
        let mut host = Helper::start("host", &[text(&path)?])?;
        let said = host.numbers()?;
        host.kill()?;
        started.push(said[1] as f64 / 1e6);
        first.push(said[2] as f64 / 1e6);
    }
    Ok(Measured::new(open.median(), repetitions as u64)
        .target("≤ 300 ms", open.median() <= 300.0)
        .also("until a host has queued all runs", started.median(), "ms")
        .also("until its first run is done", first.median(), "ms")
        .peer("reading the segments, cached", read.median())
        .note(format!(
            "A journal has {COUNT} records of 16 bytes, each with the trigger of a function that has not run. The last \
             process is killed (SIGKILL), and another one opens the namespace, with the files in the page cache: {}. \
             The time until a host that opens the namespace has queued all runs: {}; until its first run has ended: \
             {}. Each entry is read twice: by a thread that verifies its checksum, and by the thread that verifies \
             that the entries follow one another.",
            open.spread(),
            started.spread(),
            first.spread()
        )))
}
