//! remote.durable: 64 connections, each append after its own one before is on disk.

use super::{Host, append::frame_bytes};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples},
    peers::{
        echo::Echo,
        etcd::{self, Etcd},
        nats::{self, Nats},
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
    rate(&clients, 1, time, &mut Samples::new())?;
    for _ in 0..context.repetitions(5) {
        rates[0].push(rate(&clients, 1, time, &mut samples[0])?);
        rates[1].push(rate(&clients, 8, time, &mut samples[1])?);
        rates[5].push(RUNTIME.lock().expect("no panics").block_on(echo.together(CONNECTIONS, time))?);
        if let Some(redis) = &redis {
            rates[2].push(redis.benchmark(CONNECTIONS, 1, &PAYLOAD, 100_000)?);
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
        .target("≥ 100 000 /s", rate >= 100_000.0)
        .also("8 unanswered to a connection", rates[1].median(), "/s")
        .also("the same, p99", samples[1].p99_us(), "µs")
        .peer("bare echo of the same bytes, nothing kept", rates[5].median());
    let peers = [
        (redis.is_some(), "redis-benchmark -c 64 XADD, appendfsync always", redis::INSTALL),
        (nats.is_some(), "JetStream on file, sync_interval always", nats::INSTALL),
        (etcd.is_some(), "etcd, one member", etcd::INSTALL),
    ];
    for ((is_there, name, install), rate) in peers.into_iter().zip(&rates[2..5]) {
        measured = if is_there { measured.peer(name, rate.median()) } else { measured.note(install) };
    }
    let note = format!(
        "Records of 1 KiB, {CONNECTIONS} connections with one unanswered append each, all from one thread of one process; the \
         load, host and disk share 2 cores. {}. JetStream and etcd are loaded by {CONNECTIONS} threads.",
        rates[0].spread()
    );
    Ok(measured.note(note))
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
