//! gate.cost: what the gate adds to an answer that has nothing to wait for.

use crate::{
    Context, Outcome,
    measure::Repeated,
    rows::{Measured, namespace_with_logs},
};
use millrace_journal::Durability;
use millrace_node::{Served, owner};
use std::{
    future::Future,
    hint::black_box,
    pin::pin,
    sync::Arc,
    task::{Context as Task, Poll, Waker},
    time::Instant,
};

const COUNT: u32 = 1_000_000;

/// The mean time of an operation in ns.
fn mean_ns(mut operation: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let start = Instant::now();
    for _ in 0..COUNT {
        operation()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(COUNT))
}

pub fn cost(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let namespace = namespace_with_logs(&dir.path().join("n"), Durability::Memory, &[("a", 100)])?;
    namespace.append("a", b"x", Default::default())?;
    let served = Served::new("n".parse()?, namespace.clone())?;
    let access = served.access(&Arc::new(owner()));
    let tail = || namespace.journal().tail();
    let (mut now, mut awaited, mut without) = (Repeated::default(), Repeated::default(), Repeated::default());
    let mut task = Task::from_waker(Waker::noop());
    let repetitions = context.repetitions(15);
    for _ in 0..repetitions {
        without.push(mean_ns(|| {
            black_box(tail());
            Ok(())
        })?);
        now.push(mean_ns(|| match access.inspect(|namespace| Ok(namespace.journal().tail())).now() {
            Ok(outcome) => outcome.map(|tail| _ = black_box(tail)).map_err(Into::into),
            Err(_) => Err("it is held for nothing".into()),
        })?);
        awaited.push(mean_ns(|| {
            let held = pin!(access.inspect(|namespace| Ok(namespace.journal().tail())));
            match held.poll(&mut task) {
                Poll::Ready(outcome) => outcome.map(|tail| _ = black_box(tail)).map_err(Into::into),
                Poll::Pending => Err("it is held for nothing".into()),
            }
        })?);
    }
    let (cost, when_awaited) = (now.median() - without.median(), awaited.median() - without.median());
    Ok(Measured::new(cost, u64::from(COUNT) * repetitions as u64)
        .target("≤ 200 ns", cost <= 200.0 && when_awaited <= 200.0)
        .also("with `await` instead of `now`", when_awaited, "ns")
        .peer("the same value without a gate", without.median())
        .note(format!(
            "The time for an answer with durability memory: the access check, the gate, and taking the value without \
             waiting (`now`), minus the time for the value alone (the journal's tail). Mean of {COUNT} answers back to \
             back, before the subtraction: {}.",
            now.spread()
        )))
}
