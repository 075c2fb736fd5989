//! topic.publish, topic.function, topic.amplification: what publishing costs, and when functions run for it.

use super::cluster::{Cluster, HOSTS, Publisher, RETAIN_BYTES};
use crate::{
    Context, Outcome, functions,
    measure::{Repeated, Samples, figure, wall_ns},
    peers::{
        etcd::{self, Etcd},
        nats::{self, Nats},
        rabbitmq::{self, Rabbit},
    },
    rows::{Measured, function},
};
use millrace_client::{TailOptions, blocking::Client};
use millrace_node::{Namespace, Runtime};
use std::{
    thread,
    time::{Duration, Instant},
};

const LARGE_BYTES: usize = 8 << 10;
const SMALL_BYTES: usize = 100;
const CONNECTIONS: usize = 4;
const WINDOW: u64 = 128;
/// Clients of etcd, each with one put at a time: its HTTP interface has no pipelining.
const ETCD_CLIENTS: usize = 64;
const HISTORY: u64 = 1000;
/// The maximum number of publishes of `topic.function` at one rate; it limits how long the row takes. The topic keeps as many: records that
/// leave it before the function could run are missed.
const LAG_SAMPLES: u64 = 20_000;
/// How long the load of a given rate sleeps before it looks what is due.
const PAUSE: Duration = Duration::from_micros(200);

/// Publishes through a host over several connections, a thread for each; publishes in a second.
fn rate(cluster: &Cluster, number: usize, topic: &'static str, bytes: usize, time: Duration) -> Outcome<f64> {
    let place = cluster.place(number)?;
    let one = || -> Result<f64, String> {
        let published = Publisher::new(&place, topic, bytes).and_then(|mut publisher| publisher.rate(WINDOW, time));
        published.map_err(|error| error.to_string())
    };
    let rates = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect::<Result<Vec<f64>, String>>()
    })?;
    Ok(rates.iter().sum())
}

fn stream_rate(nats: &Nats, bytes: usize, count: u64) -> Outcome<f64> {
    let start = Instant::now();
    let one = || -> Result<(), String> {
        let published = nats.connect().and_then(|mut connection| {
            connection.listen()?;
            connection.publish("file", &vec![7; bytes], count / CONNECTIONS as u64, WINDOW)
        });
        published.map_err(|error| error.to_string())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panics"))
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

fn queue_rate(rabbit: &Rabbit, bytes: usize, count: u64) -> Outcome<f64> {
    let connect = |number| rabbit.connect(&format!("bench{number}"));
    let connections = (0..CONNECTIONS).map(connect).collect::<Outcome<Vec<_>>>()?;
    let start = Instant::now();
    let one = |mut connection: rabbitmq::Connection| -> Result<(), String> {
        let published = connection.publish(&vec![7; bytes], count / CONNECTIONS as u64, WINDOW);
        published.map_err(|error| error.to_string())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = connections.into_iter().map(|connection| scope.spawn(move || one(connection))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panics"))
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

fn etcd_rate(etcd: &Etcd, bytes: usize, count: u64) -> Outcome<f64> {
    let start = Instant::now();
    let each = count / ETCD_CLIENTS as u64;
    let one = || etcd.put_bytes(bytes, each, &mut Samples::new()).map_err(|error| error.to_string());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ETCD_CLIENTS).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panics"))
    })?;
    Ok((each * ETCD_CLIENTS as u64) as f64 / start.elapsed().as_secs_f64())
}

pub fn publish(context: &Context) -> Outcome<Measured> {
    let time = Duration::from_millis(if context.quick { 500 } else { 3000 });
    let count = if context.quick { 2_000 } else { 20_000 };
    let rounds = context.repetitions(5);
    let [mut large, mut small, mut follower] = [(); 3].map(|()| Repeated::default());
    {
        let cluster = Cluster::start(context)?;
        let leader = cluster.leader()?;
        let other = (leader + 1) % HOSTS;
        cluster.client(leader)?.create_topic("t", HISTORY, None, None)?;
        rate(&cluster, leader, "t", LARGE_BYTES, time)?;
        for _ in 0..rounds {
            large.push(rate(&cluster, leader, "t", LARGE_BYTES, time)?);
            small.push(rate(&cluster, leader, "t", SMALL_BYTES, time)?);
            follower.push(rate(&cluster, other, "t", LARGE_BYTES, time)?);
        }
    }
    let [mut stream_large, mut stream_small, mut put_large] = [(); 3].map(|()| Repeated::default());
    let dir = context.fresh()?;
    if let Some(nats) = Nats::start_three(dir.path())? {
        nats.make_stream_of("file", 3)?;
        for _ in 0..rounds {
            stream_large.push(stream_rate(&nats, LARGE_BYTES, count)?);
            stream_small.push(stream_rate(&nats, SMALL_BYTES, count)?);
        }
    }
    let dir = context.fresh()?;
    if let Some(etcd) = Etcd::start_three(dir.path())? {
        for _ in 0..rounds {
            put_large.push(etcd_rate(&etcd, LARGE_BYTES, count)?);
        }
    }
    let [mut queue_large, mut queue_small] = [(); 2].map(|()| Repeated::default());
    let dir = context.fresh()?;
    if let Some(rabbit) = Rabbit::start(dir.path())? {
        for _ in 0..rounds {
            queue_large.push(queue_rate(&rabbit, LARGE_BYTES, count)?);
            queue_small.push(queue_rate(&rabbit, SMALL_BYTES, count)?);
        }
        rabbit.verify(2 * rounds as u64 * count)?;
    }
    let value = large.median();
    let mut measured = Measured::new(value, (value * time.as_secs_f64()) as u64 * rounds as u64)
        .target("≥ 15 000 /s", value >= 15_000.0)
        .also("100 bytes", small.median(), "/s")
        .also("8 KiB through a host that does not lead", follower.median(), "/s");
    if stream_large.is_empty() {
        measured = measured.note(nats::INSTALL);
    } else {
        let ratio = value / stream_large.median();
        measured = measured
            .target("≥ 1.5 × NATS JetStream R3", ratio >= 1.5)
            .also("ratio to NATS JetStream R3", ratio, "")
            .peer("NATS JetStream R3, sync always, 8 KiB", stream_large.median())
            .peer("NATS JetStream R3, sync always, 100 bytes", stream_small.median());
    }
    if put_large.is_empty() {
        measured = measured.note(etcd::INSTALL);
    } else {
        measured = measured
            .target("≥ etcd", value >= put_large.median())
            .peer("etcd, 3 members, 64 clients, 8 KiB", put_large.median());
    }
    if queue_large.is_empty() {
        measured = measured.note(rabbitmq::INSTALL);
    } else {
        let ratio = value / queue_large.median();
        measured = measured
            .target("≥ 10 × RabbitMQ", ratio >= 10.0)
            .also("ratio to RabbitMQ", ratio, "")
            .peer("RabbitMQ, quorum queue over MQTT, 8 KiB", queue_large.median())
            .peer("RabbitMQ, quorum queue over MQTT, 100 bytes", queue_small.median());
    }
    let note = format!(
        "Three hosts on one machine and one disk; {CONNECTIONS} connections to the leader, with {WINDOW} unanswered \
         publishes on each. An answer means that two of three hosts have flushed the record. The load, the hosts and \
         the disk share the processors. The other systems run on the same disk, one after the other, with three \
         servers each; etcd is used over its HTTP interface, with one put at a time per client. 8 KiB: {}. 100 bytes: \
         {}.",
        large.spread(),
        small.spread()
    );
    Ok(measured.note(note))
}

/// From when a publish was due to the first instruction of a function on another host.
pub fn function_lag(context: &Context) -> Outcome<Measured> {
    let cluster = Cluster::start(context)?;
    let leader = cluster.leader()?;
    let runner = (leader + 1) % HOSTS;
    let client = cluster.client(runner)?;
    client.create_topic("t", LAG_SAMPLES, None, None)?;
    client.create_topic("full", HISTORY, None, None)?;
    {
        let namespace = Namespace::open(cluster.dir(runner))?;
        let mut spec = function("stamp", Runtime::Wasm, "out")?;
        spec.on = Vec::new();
        millrace_node::functions::deploy(&namespace, &spec, &functions::wasm(context, "stamp")?)?;
    }
    client.subscribe_topic("t", "stamp")?;
    let time = Duration::from_millis(if context.quick { 500 } else { 3000 });
    // No function runs for this one: it could fall behind permanently.
    let full = rate(&cluster, leader, "full", LARGE_BYTES, time)?;
    cluster.caught_up()?;
    let (mut all, mut rates) = (Samples::new(), String::new());
    let mut at_half = None;
    for share in [0.5, 0.1] {
        let offered = full * share;
        let seconds = if context.quick { 1.0 } else { 10.0 };
        let count = ((offered * seconds) as u64).clamp(100, LAG_SAMPLES);
        let before = client.latest("out", 0, millrace_client::Wait::default())?;
        let sent = offer(&cluster, leader, offered, count)?;
        wait_for(&client, before + count)?;
        let samples = lags(&client, before, &sent)?;
        rates += &format!(
            "At {} publishes a second, p50 {} µs, p99 {} µs. ",
            figure(offered),
            figure(samples.p50_us()),
            figure(samples.p99_us())
        );
        at_half.get_or_insert((samples.p50_us(), samples.p99_us()));
        all = samples;
    }
    let (p50, p99) = at_half.unwrap_or_default();
    let note = format!(
        "Records of {LARGE_BYTES} bytes are published through the leader; a Wasm function is subscribed on another \
         host. The time is measured from when a publish was due until the function's first instruction, by the same \
         clock. The load uses one connection and sleeps {} µs after each check whether a publish is due; this delay is \
         part of the time. {CONNECTIONS} connections reach {} publishes per second; the value is measured at half of \
         that rate. {rates}",
        PAUSE.as_micros(),
        figure(full)
    );
    Ok(Measured::new(p50, all.count())
        .percentiles(p50, p99)
        .target("p50 ≤ 1500 µs", p50 <= 1500.0)
        .target("p99 ≤ 8000 µs", p99 <= 8000.0)
        .note(note))
}

/// Waits until the function has run for this number of records.
fn wait_for(client: &Client, count: u64) -> Outcome<()> {
    let start = Instant::now();
    while client.latest("out", 0, millrace_client::Wait::default())? < count {
        if start.elapsed() > Duration::from_secs(120) {
            return Err("the function did not run for all records".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Publishes this number of records at this rate; returns when each was due, in nanoseconds.
fn offer(cluster: &Cluster, number: usize, rate: f64, count: u64) -> Outcome<Vec<u64>> {
    let mut publisher = Publisher::new(&cluster.place(number)?, "t", LARGE_BYTES)?;
    let (start, start_ns) = (Instant::now(), wall_ns());
    let mut sent = Vec::new();
    while publisher.answered() < count {
        let due = ((start.elapsed().as_secs_f64() * rate) as u64).min(count);
        while (sent.len() as u64) < due && publisher.waiting() < 8 * WINDOW {
            sent.push(start_ns + (sent.len() as f64 / rate * 1e9) as u64);
            publisher.put()?;
        }
        publisher.flush()?;
        // Sleeps rather than spins: the hosts need the processors. A socket's timeout would be rounded up to a tick of the kernel's clock, 4 ms.
        thread::sleep(PAUSE);
        while publisher.take(Duration::ZERO)? {}
    }
    Ok(sent)
}

/// From when each record was due to when the function ran for it.
fn lags(client: &Client, before: u64, sent: &[u64]) -> Outcome<Samples> {
    let mut samples = Samples::new();
    let mut tail = client.tail("out", before + 1, TailOptions::default())?;
    for sent_ns in sent {
        let record = tail.next()?;
        let ran_ns = record.data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        samples.record_ns(ran_ns.saturating_sub(*sent_ns));
    }
    Ok(samples)
}

/// Bytes that go to the disk for each byte that is published, per host.
pub fn amplification(context: &Context) -> Outcome<Measured> {
    let cluster = Cluster::start(context)?;
    let leader = cluster.leader()?;
    cluster.client(leader)?.create_topic("t", HISTORY, None, None)?;
    let time = Duration::from_millis(if context.quick { 1000 } else { 5000 });
    let published = || Outcome::Ok(cluster.client(leader)?.latest_topic("t", 0, 0)?);
    // New segments are filled with zeros once; from here on old ones are used again.
    let until = 3 * RETAIN_BYTES / LARGE_BYTES as u64;
    while !context.quick && published()? < until {
        rate(&cluster, leader, "t", LARGE_BYTES, time)?;
    }
    let mut shares = Vec::new();
    for bytes in [LARGE_BYTES, SMALL_BYTES] {
        rate(&cluster, leader, "t", bytes, time / 10)?;
        cluster.caught_up()?;
        let (written, first) = (cluster.written_bytes()?, published()?);
        rate(&cluster, leader, "t", bytes, time)?;
        cluster.caught_up()?;
        let published = (published()? - first) * bytes as u64;
        shares.push(((cluster.written_bytes()? - written) / HOSTS as f64 / published as f64, published));
    }
    let [(large, published), (small, _)] = shares[..] else { return Err("two sizes are measured".into()) };
    let note = format!(
        "The bytes that all programs wrote to the disk, as the kernel counts them (`/sys/dev/block/*/stat`), per \
         published byte and host. {} MB were published as records of 8 KiB over {CONNECTIONS} connections with \
         {WINDOW} unanswered publishes on each, to three hosts. Before the measurement, each host had written three \
         times as much as it retains: a new segment is filled with zeros before it is used, which doubles the bytes \
         written until segments are recycled. The last page of each flush is written again by the next flush; with \
         small records, this is most of the amplification.",
        figure(published as f64 / 1e6)
    );
    Ok(Measured::new(large, published / LARGE_BYTES as u64)
        .target("≤ 1.2", large <= 1.2)
        .also("100 bytes", small, "")
        .note(note))
}
