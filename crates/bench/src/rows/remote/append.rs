//! remote.append: one record, one request outstanding, paced.

use super::{Host, PACE};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, figure},
    peers::{
        echo::Echo,
        nats::{self, Nats},
        raw::Prewritten,
        redis::{self, Redis},
    },
    rows::{Measured, PAYLOAD},
};
use millrace_client::{AppendOptions, blocking};
use millrace_wire::protocol::{Append, Appended, Heading, encode};
use std::{thread, time::Instant};

/// Bytes of an append of 1 KiB and of its answer, as they go over the wire.
pub fn frame_bytes() -> (usize, usize) {
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    let heading = Heading { request: 1 << 20, hlc: millrace_wire::Hlc::from_wall_us(1 << 50), ..Heading::default() };
    encode(&mut request, heading, &Append { log: "a", data: &PAYLOAD, ..Append::default() });
    encode(&mut answer, heading, &Appended { seqno: 1 << 20, id: millrace_wire::EventId::NONE });
    (request.len(), answer.len())
}

/// Appends one record after the other, each `PACE` after the answer to the previous one.
pub fn paced(client: &blocking::Client, count: u64, samples: &mut Samples) -> Outcome<()> {
    for _ in 0..count {
        thread::sleep(PACE);
        let start = Instant::now();
        client.append("a", &PAYLOAD, AppendOptions::default())?;
        samples.record(start.elapsed());
    }
    Ok(())
}

/// The peers that are installed, at the durability of the namespace beside them.
struct Peers {
    redis: [Option<Redis>; 2],
    nats: Option<Nats>,
    _dirs: [tempfile::TempDir; 2],
}

pub fn append(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let clients = [host.client("memory")?, host.client("disk")?];
    let (request, answer) = frame_bytes();
    let mut echo = Echo::start(request, answer)?;
    let mut raw = Prewritten::create(&super::below(&host, "raw"), 64 << 20)?;
    let dirs = [context.fresh()?, context.fresh()?];
    let peers = Peers {
        redis: [Redis::start_forgetful(dirs[0].path())?, Redis::start(dirs[1].path())?],
        nats: Nats::start(dirs[0].path())?,
        _dirs: dirs,
    };
    let mut all = [(); 7].map(|()| Samples::new());
    let (mut p50, mut over_echo, mut over_both) = (Repeated::default(), Repeated::default(), Repeated::default());
    let count = 400;
    for client in &clients {
        paced(client, count, &mut Samples::new())?;
    }
    for _ in 0..context.repetitions(9) {
        let mut now = [(); 4].map(|()| Samples::new());
        echo.paced(count, PACE, &mut now[0])?;
        paced(&clients[0], count, &mut now[1])?;
        paced(&clients[1], count, &mut now[2])?;
        for _ in 0..count {
            thread::sleep(PACE);
            let start = Instant::now();
            raw.write_durably(4096)?;
            now[3].record(start.elapsed());
        }
        p50.push(now[1].p50_us());
        over_echo.push(now[1].p50_us() / now[0].p50_us());
        over_both.push(now[2].p50_us() / (1.3 * (now[0].p50_us() + now[3].p50_us())));
        for (all, now) in all.iter_mut().zip(&now) {
            all.add(now);
        }
        for (which, redis) in peers.redis.iter().enumerate() {
            if let Some(redis) = redis {
                redis.paced(count, PACE, &mut all[4 + which])?;
            }
        }
        if let Some(nats) = &peers.nats {
            nats.publish_and_flush(count, PACE, &mut all[6])?;
        }
    }
    let [echo, memory, disk, raw, redis_memory, redis_disk, published] = &all;
    let mut measured = Measured::new(p50.median(), memory.count())
        .spread_us(memory)
        .target("memory: p50 ≤ 1.3 × echo", over_echo.median() <= 1.3)
        .target("disk: p50 ≤ 1.3 × (echo + flush)", over_both.median() <= 1.0)
        .also("memory, ratio to echo", over_echo.median(), "")
        .also("disk, p50", disk.p50_us(), "µs")
        .also("disk, p99", disk.p99_us(), "µs")
        .also("disk, ratio to 1.3 × (echo + flush)", over_both.median(), "")
        .peer("echo of the same bytes, p50", echo.p50_us())
        .peer("echo, p99", echo.p99_us())
        .peer("raw flush: prewritten 4 KiB + fdatasync, p50", raw.p50_us());
    for (name, samples) in [
        ("Redis XADD, not persistent, p50", redis_memory),
        ("Redis XADD, appendfsync always, p50", redis_disk),
        ("NATS publish + flush, not persistent, p50", published),
    ] {
        if samples.count() > 0 {
            measured = measured.peer(name, samples.p50_us());
        }
    }
    let note = format!(
        "One blocking client over TCP, not pinned, sends the next request {} µs after the answer, {count} requests of \
         each kind in turn. A request has {request} bytes, an answer {answer}. Durability memory: {}; ratio to echo \
         in the same repetition: {}. {}",
        figure(PACE.as_micros() as f64),
        p50.spread(),
        over_echo.spread(),
        if peers.redis[0].is_some() { "Redis 7 over TCP." } else { redis::INSTALL }
    );
    let missing = if peers.nats.is_some() { "" } else { nats::INSTALL };
    Ok(measured.note(note).note(missing))
}
