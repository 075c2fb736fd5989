//! topic.publish: records that a majority of three hosts has on disk. topic.amplification: what that writes.

use super::Trio;
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, figure},
    peers::etcd::{self, Cluster},
    rows::{Measured, remote::pipelined::SMALL},
};
use millrace_node::HISTORY_ALL;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Publishers at once, each with one unanswered record.
const PUBLISHERS: usize = 64;
const LARGE: [u8; 8 << 10] = [7; 8 << 10];

/// Publishes through the leader's host until the time is up; records in a second.
fn rate(trio: &Trio, at: usize, data: &[u8], durability: &str, time: Duration) -> Outcome<(f64, Samples)> {
    let clients = (0..PUBLISHERS).map(|_| trio.client(at)).collect::<Outcome<Vec<_>>>()?;
    let start = Instant::now();
    let one = |client: &millrace_client::blocking::Client| -> Result<Samples, String> {
        let mut samples = Samples::new();
        while start.elapsed() < time {
            let began = Instant::now();
            client.publish("t", data, None, Some(durability)).map_err(|error| error.to_string())?;
            samples.record(began.elapsed());
        }
        Ok(samples)
    };
    let one = &one;
    let outcomes: Vec<Result<Samples, String>> = thread::scope(|scope| {
        let threads: Vec<_> = clients.iter().map(|client| scope.spawn(move || one(client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    let mut all = Samples::new();
    for samples in outcomes {
        all.add(&samples?);
    }
    Ok((all.count() as f64 / elapsed, all))
}

pub fn publish(context: &Context) -> Outcome<Measured> {
    let trio = Trio::start(context)?;
    trio.client(0)?.create_topic("t", 10_000, None, None)?;
    let leader = trio.leader()?;
    let time = Duration::from_millis(if context.quick { 1000 } else { 4000 });
    let dir = context.fresh()?;
    let etcd = Cluster::start(dir.path())?;
    let mut rates = [(); 4].map(|()| Repeated::default());
    let mut samples = Samples::new();
    rate(&trio, leader, &SMALL, "quorum", time)?;
    for _ in 0..context.repetitions(5) {
        let (large, of_large) = rate(&trio, leader, &LARGE, "quorum", time)?;
        samples.add(&of_large);
        rates[0].push(large);
        rates[1].push(rate(&trio, leader, &SMALL, "quorum", time)?.0);
        rates[2].push(rate(&trio, leader, &LARGE, "leader", time)?.0);
        if let Some(etcd) = &etcd {
            rates[3].push(etcd.rate(PUBLISHERS, &LARGE, time)?);
        }
    }
    let [large, small, early, of_etcd] = &rates;
    let mut measured = Measured::new(large.median(), samples.count())
        .target("≥ 15 000 /s", large.median() >= 15_000.0)
        .also("records of 100 bytes", small.median(), "/s")
        .also("8 KiB, acknowledged by the leader alone", early.median(), "/s")
        .also("p50", samples.p50_us() / 1e3, "ms")
        .also("p99", samples.p99_us() / 1e3, "ms");
    measured = match etcd {
        Some(_) => measured
            .target("≥ etcd", large.median() >= of_etcd.median())
            .peer("three members of etcd, put of 8 KiB through the leader, 64 connections", of_etcd.median()),
        None => measured.note(etcd::INSTALL),
    };
    Ok(measured.note(format!(
        "Records of 8 KiB, {PUBLISHERS} publishers with one unanswered record each, through the host that leads; a majority of three \
         hosts has each on disk. All hosts, the load and the peer share two cores and one disk, so every record is written three \
         times to it. {}.",
        large.spread()
    )))
}

pub fn amplification(context: &Context) -> Outcome<Measured> {
    let trio = Trio::start(context)?;
    trio.client(0)?.create_topic("t", HISTORY_ALL, None, None)?;
    let leader = trio.leader()?;
    let time = Duration::from_secs(if context.quick { 2 } else { 8 });
    let written = || (0..3).map(|at| trio.usage(at).map(|usage| usage.written_bytes)).sum::<Outcome<f64>>();
    let mut ratios = [(); 2].map(|()| Repeated::default());
    for _ in 0..context.repetitions(3) {
        for (ratio, data) in ratios.iter_mut().zip([&LARGE[..], &SMALL[..]]) {
            let before = written()?;
            let (_, samples) = rate(&trio, leader, data, "quorum", time)?;
            ratio.push((written()? - before) / (3.0 * samples.count() as f64 * data.len() as f64));
        }
    }
    let [large, small] = &ratios;
    Ok(Measured::new(large.median(), context.repetitions(3) as u64)
        .target("≤ 1.2", large.median() <= 1.2)
        .also("records of 100 bytes", small.median(), "")
        .note(format!(
            "Bytes that the three hosts gave to the disk, as the kernel counts them, for each byte published and each replica; records \
             of 8 KiB, {PUBLISHERS} publishers. {}; of 100 bytes {}, where a flush writes whole pages.",
            large.spread(),
            figure(small.median())
        )))
}
