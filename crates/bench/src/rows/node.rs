//! node.append: what a bound function adds to an append.

use super::{Measured, PAYLOAD, function, journal, namespace_with_logs};
use crate::{
    Context, Outcome, functions,
    measure::{Samples, clock_us, each, figure},
};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, Runtime};
use std::thread;

pub fn append(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let namespace = namespace_with_logs(&dir.path().join("n"), Durability::Memory, &[("a", 50_000)])?;
    millrace_node::functions::deploy(
        &namespace,
        &function("f", Runtime::Wasm, "a")?,
        &functions::wasm(context, "nothing")?,
    )?;
    let one = || Ok(namespace.append("a", &PAYLOAD, AppendOptions::default()).map(drop)?);
    let repetitions = context.repetitions(15);
    journal::bursts(2, one)?;
    let mean = journal::bursts(repetitions, one)?;
    let mut samples = Samples::new();
    for _ in 0..context.repetitions(20) {
        each(journal::BURST, &mut samples, one)?;
        thread::sleep(journal::PAUSE);
    }
    let alone = journal::append_mean(context, repetitions)?;
    Ok(Measured::new(mean.median(), samples.count())
        .spread_us(&samples)
        .target("mean ≤ 0.4 µs", mean.median() <= 0.4)
        .peer("journal.append", alone.median())
        .note(format!(
            "Namespace::append by names, in bursts as in journal.append, one thread, not pinned, memory: APPEND and TRIGGER in one \
             batch, admission checked, no host running and nobody waiting, {}; the journal's append alone, {}. p50 and p99 \
             include {} µs for the clock.",
            mean.spread(),
            alone.spread(),
            figure(clock_us())
        )))
}
