//! runs.list: the cost of listing runs, with a process for each query, in a namespace of five million runs.

use super::super::{Measured, function, host, namespace_with_logs, text};
use crate::{Context, Outcome, functions, measure::Repeated};
use millrace_journal::{Attempt, Durability, End, Origin};
use millrace_node::{Namespace, Runtime};
use millrace_wire::EventId;
use std::{path::Path, process::Command, time::Instant};

/// Runs of one batch.
const BATCH: u64 = 200;

/// How long a command took, in ms, and its peak memory, in MB.
struct Asked {
    ms: Repeated,
    rss_mb: f64,
}

pub fn list(context: &Context) -> Outcome<Measured> {
    let program = host::program(context)?;
    let count: u64 = if context.quick { 500_000 } else { 5_000_000 };
    let dir = context.fresh()?;
    let path = dir.path().join("n");
    let namespace = namespace_with_logs(&path, Durability::Memory, &[("in", 1000)])?;
    let code = functions::wasm(context, "nothing")?;
    millrace_node::functions::deploy(&namespace, &function("f", Runtime::Wasm, "in")?, &code)?;
    let middle = run(&namespace, count)?.to_string();
    let repetitions = context.repetitions(20);
    let ask = |arguments: &[&str]| asked(&program, &path, arguments, repetitions);
    // As beside a host: another process has the namespace open, so opening it reads nothing.
    let version = ask(&["--version"])?;
    let (list, show) = (ask(&["run", "ls"])?, ask(&["run", "show", &middle])?);
    let why = ask(&["why", "f"])?;
    let last = ask(&["journal", "show", "--last", "20"])?;
    drop(namespace);
    let alone = ask(&["run", "ls"])?;
    let rss = [&list, &show, &why].map(|asked| asked.rss_mb).into_iter().fold(0.0, f64::max);
    let slowest = [&list, &show, &why].map(|asked| asked.ms.median()).into_iter().fold(0.0, f64::max);
    let measured = Measured::new(list.ms.median(), repetitions as u64)
        .target("≤ 20 ms each", slowest <= 20.0)
        .target("≤ 50 MB", rss <= 50.0)
        .peer("`millrace --version`", version.ms.median())
        .also("`run show` of one in the middle", show.ms.median(), "ms")
        .also("`why f`", why.ms.median(), "ms")
        .also("`journal show --last 20`", last.ms.median(), "ms")
        .also("`run ls` by the only process", alone.ms.median(), "ms")
        .also("resident memory, the largest of the three", rss, "MB")
        .also("resident memory of `run ls`", list.rss_mb, "MB")
        .also("resident memory of `run show`", show.rss_mb, "MB")
        .also("resident memory of `why f`", why.rss_mb, "MB")
        .also("resident memory of `--version`", version.rss_mb, "MB");
    Ok(measured.note(format!(
        "The journal has {count} runs that have ended, each with the entries APPEND, TRIGGER, FIRED and DONE, and ten \
         that are pending. Each time is that of a whole process, from its start to its end; value: {}. Resident \
         memory is the maximum that the kernel reports, including pages of files. `why` counts the pending runs, to \
         detect lost ones: it reads the directory of their index, and the blocks that have a pending run.",
        list.ms.spread()
    )))
}

/// Journals this number of runs as a host does, without executing them; returns one in the middle.
fn run(namespace: &Namespace, count: u64) -> Outcome<EventId> {
    let catalog = namespace.journal().catalog()?;
    let f = catalog.function("f").ok_or("no function")?.id();
    let log = namespace.log("in")?;
    let mut middle = EventId::NONE;
    for batch in 0..count / BATCH {
        let first = namespace.journal().commit(|tx| {
            let mut first = EventId::NONE;
            for n in 0..BATCH {
                let record = tx.append(&log, b"a record of a run", EventId::NONE, 0)?;
                let run = tx.trigger(f, record.id, &log, record.seqno, Origin::Bound)?;
                let fired = tx.fired(f, run, &Attempt { attempt: 1, revision: 1, ..Attempt::default() })?.sequence();
                tx.done(f, run, &End { fired, ..End::default() })?;
                if n == 0 {
                    first = run.id;
                }
            }
            Ok(first)
        })?;
        if batch == count / BATCH / 2 {
            middle = first.value;
        }
    }
    namespace.journal().commit(|tx| {
        for _ in 0..10 {
            let record = tx.append(&log, b"pending", EventId::NONE, 0)?;
            tx.trigger(f, record.id, &log, record.seqno, Origin::Bound)?;
        }
        Ok(())
    })?;
    Ok(middle)
}

/// Runs the command `repetitions` times, and once more to measure its peak memory.
fn asked(program: &Path, namespace: &Path, arguments: &[&str], repetitions: usize) -> Outcome<Asked> {
    let command = |program: &Path| {
        let mut command = Command::new(program);
        command.arg("--namespace").arg(namespace).args(arguments);
        command
    };
    let mut ms = Repeated::default();
    for _ in 0..repetitions {
        let start = Instant::now();
        let output = command(program).output()?;
        ms.push(start.elapsed().as_secs_f64() * 1000.0);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
    }
    // The kernel tells a parent the largest peak memory of its children.
    const MOST: &str = "import resource, subprocess, sys\n\
        subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n\
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    let of = command(program);
    let output = Command::new("python3").args(["-c", MOST, text(program)?]).args(of.get_args()).output()?;
    let kilobytes: f64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(Asked { ms, rss_mb: kilobytes / 1024.0 })
}
