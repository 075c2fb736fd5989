//! topic.get: a record of a topic through the host that leads, and through another one.

use super::cluster::{Cluster, HOSTS};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples},
    peers::echo::Echo,
    rows::{Measured, PAYLOAD},
};
use std::{
    thread,
    time::{Duration, Instant},
};

const PACE: Duration = Duration::from_micros(500);
/// About the bytes of the frames of a request, and what the frame of its answer has besides the record.
const REQUEST_BYTES: usize = 48;
const AROUND_BYTES: usize = 64;

pub fn get(context: &Context) -> Outcome<Measured> {
    let cluster = Cluster::start(context)?;
    let leader = cluster.leader()?;
    let clients = [cluster.client(leader)?, cluster.client((leader + 1) % HOSTS)?];
    clients[0].create_topic("t", 1000, None, None)?;
    for _ in 0..100 {
        clients[0].publish("t", &PAYLOAD, None, None)?;
    }
    // Through the other host, which has to have caught up.
    clients[1].get_topic("t", 100)?;
    let mut echo = Echo::start(REQUEST_BYTES, PAYLOAD.len() + AROUND_BYTES)?;
    let count = 500;
    let (mut all, mut echoes) = (Samples::new(), Samples::new());
    let [mut here, mut elsewhere, mut newest, mut ratio] = [(); 4].map(|()| Repeated::default());
    for round in 0..=context.repetitions(9) {
        let [mut leads, mut other, mut fresh, mut bare] = [(); 4].map(|()| Samples::new());
        echo.paced(count, PACE, &mut bare)?;
        for number in 0..count {
            for (client, samples) in clients.iter().zip([&mut leads, &mut other]) {
                thread::sleep(PACE);
                let start = Instant::now();
                client.get_topic("t", number % 100 + 1)?;
                samples.record(start.elapsed());
            }
        }
        for _ in 0..count / 5 {
            thread::sleep(PACE);
            let start = Instant::now();
            clients[1].get_topic("t", 0)?;
            fresh.record(start.elapsed());
        }
        if round > 0 {
            // The first round warms up.
            here.push(leads.p50_us());
            elsewhere.push(other.p50_us());
            newest.push(fresh.p50_us());
            ratio.push(other.p50_us() / bare.p50_us());
            all.add(&other);
            echoes.add(&bare);
        }
    }
    let note = format!(
        "One client over TCP reads a record of 1 KiB by its index; the next read is 500 µs later. Each host answers \
         from its own copy of the record without asking the others; so the figures for the leader and for another \
         host differ only by chance. The newest record is read in agreement with a majority, which takes a round of \
         messages between hosts. Echo: the same bytes to a process and back. Ratio in the same repetition: {}.",
        ratio.spread()
    );
    Ok(Measured::new(elsewhere.median(), all.count())
        .spread_us(&all)
        .target("≤ 1.4 × echo", ratio.median() <= 1.4)
        .also("ratio to echo", ratio.median(), "")
        .also("through the host that leads, p50", here.median(), "µs")
        .also("the newest record, p50", newest.median(), "µs")
        .peer("echo, p50", echoes.p50_us())
        .peer("echo, p99", echoes.p99_us())
        .note(note))
}
