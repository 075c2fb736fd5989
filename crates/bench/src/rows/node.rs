//! node.append: what names, admission and a bound function add to an append. logs.10k: what many logs add to it.

use super::{Measured, PAYLOAD, function, journal, namespace_with_logs};
use crate::{
    Context, Outcome, functions,
    measure::{Repeated, clock_us, figure, mean_us},
};
use millrace_journal::{CreateOptions, Durability};
use millrace_node::{AppendOptions, LogName, Namespace, Runtime};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Logs of the larger namespace.
const LOGS: u64 = 10_000;
/// Records that each log keeps.
const HISTORY: u64 = 100;

pub fn append(context: &Context) -> Outcome<Measured> {
    let code = functions::wasm(context, "nothing")?;
    let bound = |dir: &Path| -> Outcome<Namespace> {
        let options = CreateOptions {
            retain_bytes: journal::STEADY_RETAIN_BYTES,
            durability: Durability::Memory,
            ..CreateOptions::default()
        };
        let namespace = Namespace::create(dir, &options)?;
        namespace.create_log(&"a".parse()?, 50_000)?;
        millrace_node::functions::deploy(&namespace, &function("f", Runtime::Wasm, "a")?, &code)?;
        Ok(namespace)
    };
    let steady = journal::steadily(context, |dir| {
        let namespace = bound(dir)?;
        let journal = namespace.journal().clone();
        Ok((journal, move || Ok(namespace.append("a", &PAYLOAD, AppendOptions::default()).map(drop)?)))
    })?;
    let dir = context.fresh()?;
    let namespace = bound(&dir.path().join("n"))?;
    let one = || Ok(namespace.append("a", &PAYLOAD, AppendOptions::default()).map(drop)?);
    journal::bursts(2, one)?;
    let bursts = journal::bursts(context.repetitions(15), one)?;
    let alone = journal::steady_mean(context)?;
    let mean = steady.means.median();
    Ok(Measured::new(mean, steady.samples.count())
        .spread_us(&steady.samples)
        .target("mean ≤ 0.65 µs", mean <= 0.65)
        .also("p99.9", steady.samples.quantile_us(0.999), "µs")
        .also("longest of 2 M, median", steady.longest_us.median(), "µs")
        .also("in bursts with pauses, mean", bursts.median(), "µs")
        .peer("journal.append", alone.median())
        .note(format!(
            "One thread, not pinned, calls Namespace::append with names of logs, {} times without a pause, in a new \
             namespace that retains 1 GiB, as in journal.append. Each call writes APPEND and TRIGGER in one batch, \
             and checks admission. Durability memory; no host runs, and nothing waits. Retention runs concurrently \
             and drops segments as if no run needed them. Mean: {}; longest: {}; in bursts: {}; the journal's append \
             alone, for as long and without pauses: {}. All times include {} µs for the clock. Of the time (`perf`), \
             the record's entry takes a third, TRIGGER with its place in the index a fifth, and the publication of \
             the batch a fifth; the name, admission and the lock take the rest. So the time cannot be much less than \
             that of two entries of journal.append without payloads.",
            journal::STEADY,
            steady.means.spread(),
            steady.longest_us.spread(),
            bursts.spread(),
            alone.spread(),
            figure(clock_us())
        )))
}

/// A namespace and the names of its logs.
struct Logs {
    namespace: Namespace,
    names: Vec<String>,
    next: usize,
}

impl Logs {
    fn new(namespace: Namespace, count: u64) -> Self {
        Self { namespace, names: (0..count).map(name).collect(), next: 0 }
    }

    /// To one log after the other.
    fn append(&mut self) -> Outcome<()> {
        self.next = (self.next + 1) % self.names.len();
        Ok(self.namespace.append(&self.names[self.next], &PAYLOAD, AppendOptions::default()).map(drop)?)
    }

    /// The mean of a burst, as in journal.append.
    fn burst(&mut self) -> Outcome<f64> {
        let mean = mean_us(journal::BURST, || self.append());
        thread::sleep(journal::PAUSE);
        mean
    }
}

fn name(number: u64) -> String {
    format!("sensors/{number:05}")
}

pub fn many_logs(context: &Context) -> Outcome<Measured> {
    let (dir, mut creates) = (context.fresh()?, Repeated::default());
    let one = namespace_with_logs(&dir.path().join("one"), Durability::Memory, &[(&name(0), HISTORY)])?;
    let path = dir.path().join("many");
    let many = namespace_with_logs(&path, Durability::Memory, &[])?;
    let names: Vec<LogName> = (0..LOGS).map(|number| Ok(name(number).parse()?)).collect::<Outcome<_>>()?;
    for names in names.chunks(LOGS as usize / 10) {
        let mut names = names.iter();
        creates.push(mean_us(names.len() as u64, || {
            Ok(many.create_log(names.next().ok_or("a name to each log")?, HISTORY).map(drop)?)
        })?);
    }
    let (mut one, mut many) = (Logs::new(one, 1), Logs::new(many, LOGS));
    // Every log has a record, and its pages are there.
    for _ in 0..6 {
        one.burst()?;
        many.burst()?;
    }
    let (mut alone, mut among, mut ratio) = (Repeated::default(), Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(15) {
        let (mut of_one, mut of_many) = (0.0, 0.0);
        for _ in 0..4 {
            of_one += one.burst()? / 4.0;
            of_many += many.burst()? / 4.0;
        }
        alone.push(of_one);
        among.push(of_many);
        ratio.push(of_many / of_one);
    }
    drop(many);
    let mut opens = Repeated::default();
    for _ in 0..context.repetitions(9) {
        let start = Instant::now();
        let namespace = Namespace::open(&path)?;
        opens.push(start.elapsed().as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(10));
        drop(namespace);
    }
    Ok(Measured::new(among.median(), journal::BURST * context.repetitions(15) as u64 * 4)
        .target("append ≤ 1.3 × one log", ratio.median() <= 1.3)
        .target("log create ≤ 100 µs", creates.median() <= 100.0)
        .target("open ≤ 30 ms", opens.median() <= 30.0)
        .also("ratio to one log", ratio.median(), "")
        .also("log create, mean", creates.median(), "µs")
        .also("open", opens.median(), "ms")
        .peer("append to one log", alone.median())
        .note(format!(
            "{LOGS} logs keep {HISTORY} records each. Namespace::append by name, 1 KiB, durability memory, to one log \
             after the other, in bursts as in journal.append: {}; alternating bursts to a namespace with one log: {}. \
             Ratio in the same repetition: {}. log create: mean of each thousand, {}. Open: by the only process, after \
             a clean shutdown, {} ms. Most of the additional time (`perf`) is for looking up the name and for reading \
             the state of the log: with many logs, both have to be fetched from memory; with one log, they are in the \
             processor's cache.",
            among.spread(),
            alone.spread(),
            ratio.spread(),
            creates.spread(),
            opens.spread()
        )))
}
