//! node.append: what a bound function adds to an append.

use super::{Measured, PAYLOAD, function, journal};
use crate::{
    Context, Outcome, functions,
    measure::{Samples, clock_us, each, figure, mean_us, repeat},
};
use millrace_journal::{CreateOptions, Durability};
use millrace_node::{AppendOptions, Namespace, Runtime};

const ROUND: u64 = 50_000;

pub fn append(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let options = CreateOptions { retain_bytes: 128 << 20, durability: Durability::Memory, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir.path().join("n"), &options)?;
    namespace.create_log(&"a".parse()?, ROUND)?;
    namespace.deploy(&function("f", Runtime::Wasm, "a")?, &functions::wasm(context, "nothing")?)?;
    let one = || Ok(namespace.append("a", &PAYLOAD, AppendOptions::default()).map(drop)?);
    // No host runs, so the triggers stay pending; told that they are not, retention lets them go with their segments.
    let give_back = || -> Outcome<()> { Ok(namespace.journal().maintain(&|_| false).map(drop)?) };
    let round = || {
        let mean = mean_us(ROUND, one)?;
        give_back()?;
        Ok(mean)
    };
    repeat(10, round)?;
    let repetitions = context.repetitions(15);
    let mean = repeat(repetitions, round)?;
    let mut samples = Samples::new();
    for _ in 0..context.repetitions(6) {
        each(ROUND, &mut samples, one)?;
        give_back()?;
    }
    let alone = journal::append_mean(context, repetitions)?;
    Ok(Measured::new(mean.median(), ROUND * repetitions as u64)
        .spread_us(&samples)
        .target("mean ≤ 0.4 µs", mean.median() <= 0.4)
        .peer("journal.append", alone.median())
        .note(format!(
            "Namespace::append by names, back to back, one thread, not pinned, warm, memory: APPEND and TRIGGER in one batch, \
             admission checked, no host running and nobody waiting. Mean of {ROUND} at a time, {}; the journal's append alone, \
             {}. p50 and p99 include {} µs for the clock.",
            mean.spread(),
            alone.spread(),
            figure(clock_us())
        )))
}
