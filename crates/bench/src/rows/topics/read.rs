//! topic.get: a record of a topic through a host. topic.function: from a publish to the end of a function on another host.

use super::{Trio, patiently};
use crate::{
    Context, Outcome, functions,
    measure::Samples,
    peers::echo::Echo,
    rows::{Measured, PAYLOAD, function},
};
use millrace_node::{Namespace, Runtime};
use std::{
    thread,
    time::{Duration, Instant},
};

const PACE: Duration = Duration::from_micros(500);

pub fn get(context: &Context) -> Outcome<Measured> {
    let trio = Trio::start(context)?;
    let leader = trio.leader()?;
    let clients = [trio.client(leader)?, trio.client((leader + 1) % 3)?];
    clients[0].create_topic("t", 10_000, None, None)?;
    let index = clients[0].publish("t", &PAYLOAD, None, None)?;
    let count = if context.quick { 500 } else { 5000 };
    let mut samples = [(); 4].map(|()| Samples::new());
    let mut echo = Echo::start(64, PAYLOAD.len() + 64)?;
    patiently("both hosts have the record", || Ok(clients.iter().all(|client| client.get_topic("t", index).is_ok())))?;
    for round in 0..2 {
        let count = if round == 0 { count / 10 } else { count };
        // By its index it is here; which is the newest has to be agreed on.
        for (at, (client, index)) in
            [(0, index), (1, index), (1, 0)].map(|(client, index)| (&clients[client], index)).iter().enumerate()
        {
            for _ in 0..count {
                thread::sleep(PACE);
                let start = Instant::now();
                client.get_topic("t", *index)?;
                samples[at].record(start.elapsed());
            }
        }
        echo.paced(count, PACE, &mut samples[3])?;
    }
    let [own, other, newest, bare] = &samples;
    Ok(Measured::new(own.p50_us(), own.count())
        .spread_us(own)
        .target("another host ≤ 1.4 × echo", other.p50_us() <= 1.4 * bare.p50_us())
        .also("through another host, p50", other.p50_us(), "µs")
        .also("the newest, through another host, p50", newest.p50_us(), "µs")
        .peer("echo of as many bytes over TCP, p50", bare.p50_us())
        .note(
            "A record of 1 KiB by its index, through the host that leads, and through one that follows, over TCP with a pause of 0.5 ms \
             before each; every host has the record itself. The newest record: the host first asks the leader, and the leader a majority.",
        ))
}

pub fn function_run(context: &Context) -> Outcome<Measured> {
    let trio = Trio::start(context)?;
    let leader = trio.leader()?;
    let (publisher, runner) = (trio.client(leader)?, (leader + 1) % 3);
    publisher.create_topic("t", 10_000, None, None)?;
    let namespace = Namespace::open(&trio.path(["a", "b", "c"][runner]).join(".millrace"))?;
    let mut spec = function("f", Runtime::Wasm, "a")?;
    spec.on.clear();
    millrace_node::functions::deploy(&namespace, &spec, &functions::wasm(context, "nothing")?)?;
    trio.client(runner)?.subscribe_topic("t", "f")?;
    let function = namespace.journal().catalog()?.function("f").cloned().ok_or("the function that was deployed")?;
    let (count, mut samples) = (if context.quick { 200 } else { 3000 }, Samples::new());
    for round in 0..count + 50 {
        thread::sleep(PACE);
        let before = function.done();
        let start = Instant::now();
        publisher.publish("t", &PAYLOAD, None, None)?;
        while function.done() == before {
            namespace.journal().wait(namespace.journal().tail(), Duration::from_micros(200));
            if start.elapsed() > Duration::from_secs(20) {
                return Err("no run ended within 20 s".into());
            }
        }
        if round >= 50 {
            samples.record(start.elapsed());
        }
    }
    let (p50, p99) = (samples.p50_us() / 1e3, samples.p99_us() / 1e3);
    Ok(Measured::new(p50, samples.count())
        .percentiles(p50, p99)
        .target("p50 ≤ 1.5 ms", p50 <= 1.5)
        .target("p99 ≤ 8 ms", p99 <= 8.0)
        .note(
            "From the publish of 1 KiB through the host that leads until a Wasm function that another host subscribed has run for it and \
             its DONE is in that host's journal; one record at a time, with a pause of 0.5 ms before each.",
        ))
}
