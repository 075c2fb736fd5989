//! topic.failover: the leader is killed, again and again: how long nothing is published.

use super::cluster::{Cluster, ELECTION};
use crate::{Context, Outcome, measure::Samples, picture, rows::Measured};
use millrace_wire::Code;
use std::time::Instant;

const KILLS: usize = 1000;
const KILLS_QUICK: usize = 20;
/// The shares of the kills that the curve shows.
const QUANTILES: [f64; 6] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99];

pub fn failover(context: &Context) -> Outcome<Measured> {
    let mut cluster = Cluster::start(context)?;
    cluster.client(0)?.create_topic("t", 1000, None, None)?;
    let kills = if context.quick { KILLS_QUICK } else { KILLS };
    let (mut samples, begun) = (Samples::new(), Instant::now());
    for number in 0..kills {
        let leader = cluster.leader()?;
        cluster.caught_up()?;
        let other = cluster.running().find(|host| *host != leader).ok_or("all hosts but one are gone")?;
        let client = cluster.client(other)?;
        let key = format!("kill {number}");
        client.publish("t", b"before", None, None)?;
        cluster.kill(leader)?;
        let start = Instant::now();
        // The host keeps the publish until a new leader has taken it.
        loop {
            match client.publish("t", b"after", Some(&key), None) {
                Ok(_) => break,
                Err(error) if error.code() == Code::GroupUnavailable => {}
                Err(error) => return Err(error.into()),
            }
        }
        samples.record(start.elapsed());
        cluster.serve(leader, false)?;
    }
    let ms = |us: f64| us / 1000.0;
    let (p50, p99) = (ms(samples.p50_us()), ms(samples.p99_us()));
    let limit = 2.0 * ELECTION.as_secs_f64() * 1000.0;
    let note = format!(
        "From the kill of the leader (SIGKILL) to the answer to a publish that was sent to another host at once; then \
         the killed host is started again and catches up, {kills} times in {} s. Election timeouts are from {} to {} \
         ms.",
        begun.elapsed().as_secs(),
        ELECTION.as_millis(),
        2 * ELECTION.as_millis()
    );
    let title = format!("Time from the kill of the leader to the next acknowledged publish, {kills} times");
    let drawing = picture::distribution(&title, "ms", &samples, (limit, "2 × the election timeout"));
    let mut measured = Measured::new(p50, samples.count())
        .percentiles(p50, p99)
        .target(format!("p50 ≤ 2 × the election timeout: {limit} ms"), p50 <= limit)
        .also("longest", ms(samples.max_us()), "ms")
        .drawing(drawing)
        .note(note);
    for quantile in QUANTILES {
        let name = format!("{} % within", quantile * 100.0);
        measured = measured.also(&name, ms(samples.quantile_us(quantile)), "ms");
    }
    Ok(measured)
}
