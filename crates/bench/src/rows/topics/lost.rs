//! topic.failover: from the kill of the leader to the next acknowledged record.

use super::{ELECTION_MS, Trio, patiently};
use crate::{
    Context, Outcome,
    measure::Samples,
    rows::{Measured, PAYLOAD},
};
use std::time::Instant;

pub fn failover(context: &Context) -> Outcome<Measured> {
    let mut trio = Trio::start(context)?;
    trio.client(0)?.create_topic("t", 10_000, None, None)?;
    let mut samples = Samples::new();
    for _ in 0..if context.quick { 5 } else { 100 } {
        let leader = trio.leader()?;
        let other = trio.client((leader + 1) % 3)?;
        other.publish("t", &PAYLOAD, None, None)?;
        trio.kill(leader)?;
        let start = Instant::now();
        // It is proposed again as soon as another host leads.
        other.publish("t", &PAYLOAD, None, None)?;
        samples.record(start.elapsed());
        trio.serve(leader)?;
        let back = trio.client(leader)?;
        patiently("the host is back", || Ok(back.latest_topic("t", 0, 0).is_ok()))?;
    }
    let (p50, p99, most) = (samples.p50_us() / 1e3, samples.p99_us() / 1e3, 2.0 * ELECTION_MS as f64);
    Ok(Measured::new(p50, samples.count())
        .percentiles(p50, p99)
        .target(format!("p50 ≤ {most} ms"), p50 <= most)
        .note(format!(
            "The leader is killed while nothing is published; until a record that was published at once through another host is \
             acknowledged. Election timeouts are from {ELECTION_MS} to {} ms.",
            2 * ELECTION_MS
        )))
}
