//! remote.pipelined: the maximum rate of small records, with a window of 64 per connection.

use super::Host;
use crate::{
    Context, Outcome,
    measure::Repeated,
    peers::{
        nats::{self, Nats},
        redis::{self, Redis},
    },
    rows::Measured,
};
use millrace_client::AppendOptions;
use std::{
    thread,
    time::{Duration, Instant},
};

const WINDOW: u32 = 64;
/// A small record: a reading with its name and time.
pub const SMALL: [u8; 100] = [7; 100];

/// Appends over this number of connections, with a thread for each, until the time is up; returns records per second.
pub fn rate(host: &Host, connections: usize, data: &[u8], time: Duration) -> Outcome<f64> {
    let client = host.client("memory")?;
    let start = Instant::now();
    let counts = thread::scope(|scope| {
        let one = || -> Outcome<u64> {
            let mut pipeline = client.pipeline(WINDOW)?;
            let mut count = 0;
            while start.elapsed() < time {
                for _ in 0..WINDOW {
                    pipeline.append("a", data, AppendOptions::default())?;
                    while let Some(outcome) = pipeline.ready() {
                        outcome?;
                        count += 1;
                    }
                }
            }
            Ok(count + pipeline.drain()?.len() as u64)
        };
        let threads: Vec<_> =
            (0..connections).map(|_| scope.spawn(move || one().map_err(|error| error.to_string()))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect::<Result<Vec<u64>, String>>()
    })?;
    Ok(counts.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64())
}

pub fn pipelined(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let time = Duration::from_millis(if context.quick { 500 } else { 2000 });
    let dir = context.fresh()?;
    let (redis, nats) = (Redis::start_forgetful(dir.path())?, Nats::start(dir.path())?);
    if let Some(nats) = &nats {
        nats.make_stream("memory")?;
    }
    let mut rates = [(); 6].map(|()| Repeated::default());
    rate(&host, 1, &SMALL, time)?;
    for _ in 0..context.repetitions(5) {
        rates[0].push(rate(&host, 1, &SMALL, time)?);
        rates[1].push(rate(&host, 4, &SMALL, time)?);
        rates[2].push(rate(&host, 1, &crate::rows::PAYLOAD, time)?);
        if let Some(redis) = &redis {
            rates[3].push(redis.benchmark(1, WINDOW, &SMALL, 500_000)?.rate);
            rates[4].push(redis.benchmark(4, WINDOW, &SMALL, 500_000)?.rate);
        }
        if let Some(nats) = &nats {
            let (mut connection, count, start) = (nats.connect()?, 200_000, Instant::now());
            connection.listen()?;
            connection.publish("memory", &SMALL, count, WINDOW.into())?;
            rates[5].push(count as f64 / start.elapsed().as_secs_f64());
        }
    }
    let [one, four, large, redis_one, redis_four, stream] = &rates;
    let mut measured = Measured::new(one.median(), (one.median() * time.as_secs_f64()) as u64)
        .target("1 connection ≥ 500 000 /s", one.median() >= 500_000.0)
        .target("4 connections ≥ 1 000 000 /s", four.median() >= 1_000_000.0)
        .also("4 connections", four.median(), "/s")
        .also("1 connection, records of 1 KiB", large.median(), "/s");
    if redis.is_some() {
        measured = measured
            .peer("redis-benchmark -P 64 XADD, 1 connection", redis_one.median())
            .peer("redis-benchmark -P 64 XADD, 4 connections", redis_four.median());
    } else {
        measured = measured.note(redis::INSTALL);
    }
    if nats.is_some() {
        measured = measured.peer("JetStream in memory, 64 unacknowledged, 1 connection", stream.median());
    } else {
        measured = measured.note(nats::INSTALL);
    }
    let note = format!(
        "Records of {} bytes, durability memory, with {WINDOW} unanswered appends on each connection; the load runs \
         on the same 2 cores, with one thread for each connection. 1 connection: {}. 4 connections: {}.",
        SMALL.len(),
        one.spread(),
        four.spread()
    );
    Ok(measured.note(note))
}
