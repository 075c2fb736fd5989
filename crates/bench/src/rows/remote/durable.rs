//! remote.durable: 64 connections, each append after its own one before is on disk; remote.durable.1: one client that waits.

use super::{
    Host, PACE,
    append::{frame_bytes, paced},
};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples},
    peers::{
        echo::Echo,
        etcd::{self, Etcd},
        nats::{self, Nats},
        raw::Prewritten,
        redis::{self, Redis},
    },
    rows::{Measured, PAYLOAD},
};
use millrace_client::{AppendOptions, Client};
use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

const CONNECTIONS: usize = 64;

/// Appends over all connections from one thread, `each` unanswered to a connection, until the time is up.
fn rate(clients: &[Client], each: usize, time: Duration, samples: &mut Samples) -> Outcome<f64> {
    let runtime = RUNTIME.lock().expect("no panics");
    let start = Instant::now();
    let all = runtime.block_on(async {
        let mut tasks = Vec::new();
        for client in clients {
            for _ in 0..each {
                let client = client.clone();
                tasks.push(tokio::spawn(async move {
                    let mut own = Vec::new();
                    while start.elapsed() < time {
                        let begin = Instant::now();
                        client.append("a", &PAYLOAD, AppendOptions::default()).await?;
                        own.push(begin.elapsed());
                    }
                    Ok::<_, millrace_wire::Error>(own)
                }));
            }
        }
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await??);
        }
        Ok::<_, Box<dyn std::error::Error>>(all)
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    all.iter().for_each(|one| samples.record(*one));
    Ok(all.len() as f64 / elapsed)
}

static RUNTIME: std::sync::LazyLock<Mutex<tokio::runtime::Runtime>> = std::sync::LazyLock::new(|| {
    Mutex::new(tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts"))
});

pub fn durable(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let time = Duration::from_millis(if context.quick { 500 } else { 2000 });
    let dir = context.fresh()?;
    let (redis, nats, etcd) = (Redis::start(dir.path())?, Nats::start(dir.path())?, Etcd::start(dir.path())?);
    if let Some(nats) = &nats {
        nats.make_stream("file")?;
    }
    let clients = RUNTIME.lock().expect("no panics").block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(host.connect("disk").await?);
        }
        Ok::<_, Box<dyn std::error::Error>>(clients)
    })?;
    let mut samples = [(); 3].map(|()| Samples::new());
    let (request, answer) = frame_bytes();
    let echo = Echo::start(request, answer)?;
    let mut rates = [(); 6].map(|()| Repeated::default());
    let (mut of_redis, mut redis_p50, mut redis_p99) = (Repeated::default(), Repeated::default(), Repeated::default());
    rate(&clients, 1, time, &mut Samples::new())?;
    for _ in 0..context.repetitions(5) {
        let ours = rate(&clients, 1, time, &mut samples[0])?;
        rates[0].push(ours);
        rates[1].push(rate(&clients, 8, time, &mut samples[1])?);
        rates[5].push(RUNTIME.lock().expect("no panics").block_on(echo.together(CONNECTIONS, time))?);
        if let Some(redis) = &redis {
            let theirs = redis.benchmark(CONNECTIONS, 1, &PAYLOAD, 100_000)?;
            rates[2].push(theirs.rate);
            of_redis.push(ours / theirs.rate);
            redis_p50.push(theirs.p50_us);
            redis_p99.push(theirs.p99_us);
        }
        if let Some(nats) = &nats {
            rates[3].push(jetstream(nats, 20)?);
        }
        if let Some(etcd) = &etcd {
            let start = Instant::now();
            let counts = together(|| etcd.put(20, &mut Samples::new()).map(|()| 20))?;
            rates[4].push(counts as f64 / start.elapsed().as_secs_f64());
        }
    }
    let rate = rates[0].median();
    let mut measured = Measured::new(rate, samples[0].count())
        .percentiles(samples[0].p50_us(), samples[0].p99_us())
        .also("8 unanswered on each connection", rates[1].median(), "/s")
        .also("the same, p99", samples[1].p99_us(), "µs")
        .peer("bare echo of the same bytes", rates[5].median());
    if redis.is_some() {
        let (p50, p99) = (samples[0].p50_us(), samples[0].p99_us());
        measured = measured
            .target("≥ 2 × Redis", of_redis.median() >= 2.0)
            .target("p50 and p99 ≤ Redis's", p50 <= redis_p50.median() && p99 <= redis_p99.median())
            .also("ratio to Redis in the same repetition", of_redis.median(), "")
            .also("Redis, p50", redis_p50.median(), "µs")
            .also("Redis, p99", redis_p99.median(), "µs");
    }
    let peers = [
        (redis.is_some(), "redis-benchmark -c 64 XADD, appendfsync always", redis::INSTALL),
        (nats.is_some(), "JetStream on file, sync_interval always", nats::INSTALL),
        (etcd.is_some(), "etcd, one member", etcd::INSTALL),
    ];
    for ((is_there, name, install), rate) in peers.into_iter().zip(&rates[2..5]) {
        measured = if is_there { measured.peer(name, rate.median()) } else { measured.note(install) };
    }
    let note = format!(
        "One thread of one process appends records of 1 KiB over {CONNECTIONS} connections, with one unanswered \
         append on each; the load, the host and the disk share 2 cores. Value: {}. JetStream and etcd are loaded by \
         {CONNECTIONS} threads. The bare group-commit writer of durable.append.64 shows how fast the disk makes as \
         many waiting appends durable without a network: twice the rate of Redis would be more than that on this \
         machine. For as many appends, the host takes a third of the processor time that Redis takes (`perf`).",
        rates[0].spread()
    );
    Ok(measured.note(note))
}

/// One blocking client that waits for each answer.
pub fn one(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let client = host.client("disk")?;
    let (request, answer) = frame_bytes();
    let mut echo = Echo::start(request, answer)?;
    let mut raw = Prewritten::create(&super::below(&host, "raw"), 64 << 20)?;
    let dir = context.fresh()?;
    let redis = Redis::start(dir.path())?;
    let mut all = [(); 4].map(|()| Samples::new());
    let (mut p50s, mut over_both, mut of_redis) = (Repeated::default(), Repeated::default(), Repeated::default());
    let count = 400;
    paced(&client, count, &mut Samples::new())?;
    for _ in 0..context.repetitions(11) {
        let mut now = [(); 4].map(|()| Samples::new());
        echo.paced(count, PACE, &mut now[0])?;
        for _ in 0..count {
            thread::sleep(PACE);
            let start = Instant::now();
            raw.write_durably(4096)?;
            now[1].record(start.elapsed());
        }
        paced(&client, count, &mut now[2])?;
        if let Some(redis) = &redis {
            redis.paced(count, PACE, &mut now[3])?;
            of_redis.push(now[2].p50_us() / now[3].p50_us());
        }
        p50s.push(now[2].p50_us());
        over_both.push(now[2].p50_us() / (now[0].p50_us() + now[1].p50_us()));
        all.iter_mut().zip(&now).for_each(|(all, now)| all.add(now));
    }
    let [echo, raw, ours, theirs] = &all;
    let mut measured = Measured::new(p50s.median(), ours.count())
        .spread_us(ours)
        .target("p50 ≤ 1.15 × (echo + raw flush)", over_both.median() <= 1.15)
        .also("ratio to echo + raw flush", over_both.median(), "")
        .peer("echo of the same bytes, p50", echo.p50_us())
        .peer("raw: prewritten 4 KiB + fdatasync, p50", raw.p50_us());
    if redis.is_some() {
        measured = measured
            .target("p50 ≤ 0.7 × Redis", of_redis.median() <= 0.7)
            .also("ratio to Redis in the same repetition", of_redis.median(), "")
            .peer("Redis XADD, appendfsync always, p50", theirs.p50_us())
            .peer("Redis XADD, appendfsync always, p99", theirs.p99_us());
    } else {
        measured = measured.note(redis::INSTALL);
    }
    Ok(measured.note(format!(
        "One blocking client over TCP, not pinned, sends the next request {} µs after the answer, {count} requests of \
         each kind in turn; durability disk. A request has {request} bytes, an answer {answer}. p50: {}; ratio to the \
         sum of echo and raw flush in the same repetition: {}.",
        PACE.as_micros(),
        p50s.spread(),
        over_both.spread()
    )))
}

fn jetstream(nats: &Nats, count: u64) -> Outcome<f64> {
    let start = Instant::now();
    let counts = together(|| {
        let mut connection = nats.connect()?;
        connection.listen()?;
        connection.publish("file", &PAYLOAD, count, 1)?;
        Ok(count)
    })?;
    Ok(counts as f64 / start.elapsed().as_secs_f64())
}

/// Every connection does `work` in a thread of its own; what they counted.
fn together(work: impl Fn() -> Outcome<u64> + Sync) -> Outcome<u64> {
    let work = &work;
    let counts = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..CONNECTIONS).map(|_| scope.spawn(move || work().map_err(|error| error.to_string()))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect::<Result<Vec<u64>, String>>()
    })?;
    Ok(counts.iter().sum())
}
