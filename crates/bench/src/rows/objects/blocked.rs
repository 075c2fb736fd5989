//! object.blocked: calls beside a thousand that wait.

use super::{Caller, Target};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples},
    rows::{
        Measured,
        remote::{Host, PACE},
    },
};

const WAITING: u32 = 1000;
const COUNT: u64 = 2000;

pub fn blocked(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let mut caller = Caller::open(host.client("memory")?, 1)?;
    let increment = Target::of("AtomicInt", "hits", "add_and_get", &[0x91, 1]);
    caller.paced(increment, COUNT, PACE)?;
    let (mut before, mut beside, mut over) = (Samples::new(), Samples::new(), Repeated::default());
    let none = [0x91, 0];
    for round in 0..context.repetitions(5) as u32 {
        let alone = caller.paced(increment, COUNT, PACE)?;
        let mut waiting = Caller::open(host.client("memory")?, 2 + round)?;
        for number in 0..WAITING {
            let key = format!("permits-{number}");
            waiting.leave(Target::of("Semaphore", &key, "acquire", &[0x90]).made_with(&none))?;
        }
        let now = caller.paced(increment, COUNT, PACE)?;
        over.push(now.p99_us() / alone.p99_us());
        before.add(&alone);
        beside.add(&now);
        // Its lease ends: nothing of it is left.
        waiting.client.open_session(&waiting.session, "", 0, false)?;
    }
    Ok(Measured::new(beside.p99_us(), beside.count())
        .percentiles(beside.p50_us(), beside.p99_us())
        .also("without waiting calls, p99", before.p99_us(), "µs")
        .also("without waiting calls, p50", before.p50_us(), "µs")
        .target("≤ 1.1 × without them", over.median() <= 1.1)
        .note(format!(
            "p99 of an increment by one blocking client while {WAITING} calls wait for permits, each of its own \
             semaphore; such rounds alternate with rounds in which no call waits. Ratio of the two: {}.",
            over.spread()
        )))
}
