//! durable.append.*: an append that is on disk before it returns.

use super::{Measured, PAYLOAD, namespace_with_logs};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, each, figure},
    peers::{
        etcd::{self, Etcd},
        raw::{self, GroupCommit, Prewritten},
        redis::{self, Redis},
    },
};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, Namespace};
use std::{
    path::Path,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

const THREADS: u64 = 64;

/// Our namespace and the peers, all on the same disk, measured in turn, so that a slow phase of the disk affects all of them.
struct Field {
    dir: tempfile::TempDir,
    namespace: Namespace,
    raw: Prewritten,
    redis: Option<Redis>,
    etcd: Option<Etcd>,
}

impl Field {
    fn new(context: &Context) -> Outcome<Self> {
        let dir = context.fresh()?;
        let namespace = namespace_with_logs(&dir.path().join("n"), Durability::Disk, &[("a", 10_000)])?;
        let raw = Prewritten::create(&dir.path().join("raw"), 64 << 20)?;
        let (redis, etcd) = (Redis::start(dir.path())?, Etcd::start(dir.path())?);
        Ok(Self { dir, namespace, raw, redis, etcd })
    }

    fn append(&self, count: u64, samples: &mut Samples) -> Outcome<()> {
        each(count, samples, || Ok(self.namespace.append("a", &PAYLOAD, AppendOptions::default()).map(drop)?))
    }

    /// Names the peers that are missing.
    fn missing(&self) -> String {
        let redis = if self.redis.is_none() { redis::INSTALL } else { redis::SCENARIO };
        let etcd =
            if self.etcd.is_none() { etcd::INSTALL } else { "etcd 3.4, one member: a put over its HTTP gateway." };
        format!("{redis} {etcd}")
    }
}

pub fn one(context: &Context) -> Outcome<Measured> {
    let mut field = Field::new(context)?;
    let count = 1000;
    let (mut ours, mut raw, mut redis, mut etcd) = (Samples::new(), Samples::new(), Samples::new(), Samples::new());
    let (mut p50s, mut ratios) = (Repeated::default(), Repeated::default());
    field.append(count, &mut Samples::new())?; // The first appends wait until space is prepared.
    for _ in 0..context.repetitions(11) {
        let (mut now, mut raw_now) = (Samples::new(), Samples::new());
        raw::durable_writes(&mut field.raw, count, &mut raw_now)?;
        field.append(count, &mut now)?;
        p50s.push(now.p50_us());
        ratios.push(now.p50_us() / raw_now.p50_us());
        ours.add(&now);
        raw.add(&raw_now);
        if let Some(peer) = &field.redis {
            peer.append(count / 2, &mut redis)?;
        }
        if let Some(peer) = &field.etcd {
            peer.put(count / 4, &mut etcd)?;
        }
    }
    let mut measured = Measured::new(p50s.median(), ours.count())
        .spread_us(&ours)
        .target("p50 ≤ 1.3 × raw", ratios.median() <= 1.3)
        .also("ratio to raw", ratios.median(), "")
        .peer("raw: prewritten 4 KiB + fdatasync, p50", raw.p50_us())
        .peer("raw, p99", raw.p99_us());
    if field.redis.is_some() {
        measured = measured.peer("Redis, p50", redis.p50_us()).peer("Redis, p99", redis.p99_us());
    }
    let mut gateway = String::new();
    if let Some(peer) = &field.etcd {
        let mut protocol = Samples::new();
        peer.read(500, &mut protocol)?;
        measured = measured.peer("etcd, p50", etcd.p50_us()).peer("etcd, p99", etcd.p99_us());
        let time = figure(protocol.p50_us());
        gateway = format!("Of this, {time} µs is the time of a read without agreement over the same gateway.");
    }
    let note = format!(
        "One thread, not pinned, makes each append after the previous one is on disk. It flushes itself, and no other \
         thread appends. Value: {}; ratio to raw in the same repetition: {}. Repetitions of {count} appends alternate \
         with {count} raw writes and with the writes to the other systems.",
        p50s.spread(),
        ratios.spread()
    );
    Ok(measured.note(note).note(field.missing()).note(gateway))
}

/// All threads do `work` until the time is up; returns operations per second.
fn together(time: Duration, samples: &mut Samples, work: impl Fn(&mut Samples) -> Outcome<()> + Sync) -> Outcome<f64> {
    let (all, failed) = (Mutex::new(Samples::new()), Mutex::new(None));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut own = Samples::new();
                while start.elapsed() < time {
                    if let Err(error) = work(&mut own) {
                        failed.lock().expect("no thread panics with it").replace(error.to_string());
                        break;
                    }
                }
                all.lock().expect("no thread panics with it").add(&own);
            });
        }
    });
    let elapsed = start.elapsed().as_secs_f64();
    if let Some(error) = failed.into_inner().expect("all threads have ended") {
        return Err(error.into());
    }
    let all = all.into_inner().expect("all threads have ended");
    samples.add(&all);
    Ok(all.count() as f64 / elapsed)
}

pub fn many(context: &Context) -> Outcome<Measured> {
    let mut field = Field::new(context)?;
    let time = Duration::from_millis(if context.quick { 400 } else { 1000 });
    let (mut ours, mut raw, mut redis, mut etcd) = (Samples::new(), Samples::new(), Samples::new(), Samples::new());
    let mut rates = [(); 5].map(|()| Repeated::default());
    let (group, mut grouped, mut ratios) =
        (GroupCommit::create(&field.dir.path().join("group"), 64 << 20)?, Samples::new(), Repeated::default());
    together(time, &mut Samples::new(), |samples| field.append(50, samples))?; // Warms up.
    for _ in 0..context.repetitions(8) {
        let rate = together(time, &mut ours, |samples| field.append(50, samples))?;
        let bare = together(time, &mut grouped, |samples| each(50, samples, || group.append(&PAYLOAD)))?;
        rates[0].push(rate);
        rates[4].push(bare);
        ratios.push(rate / bare);
        let start = Instant::now();
        raw::durable_writes(&mut field.raw, 2000, &mut raw)?;
        rates[1].push(2000.0 / start.elapsed().as_secs_f64());
        if let Some(peer) = &field.redis {
            rates[2].push(together(time, &mut redis, |samples| peer.append(200, samples))?);
        }
        if let Some(peer) = &field.etcd {
            rates[3].push(together(time, &mut etcd, |samples| peer.put(50, samples))?);
        }
    }
    let rate = rates[0].median();
    let mut measured = Measured::new(rate, ours.count())
        .percentiles(ours.p50_us(), ours.p99_us())
        .target("≥ 0.7 × the bare writer", ratios.median() >= 0.7)
        .target("p99 ≤ 3 × raw flush", ours.p99_us() <= 3.0 * raw.p50_us())
        .also("ratio to the bare writer", ratios.median(), "")
        .also("the bare writer, p99", grouped.p99_us(), "µs")
        .also("raw flush, p50", raw.p50_us(), "µs")
        .peer("a bare group-commit writer, one prewritten file", rates[4].median())
        .also("p99.9", ours.quantile_us(0.999), "µs")
        .peer("raw: prewritten 4 KiB + fdatasync, one after the other", rates[1].median());
    if field.redis.is_some() {
        measured = measured.peer("Redis", rates[2].median()).also("Redis, p99", redis.p99_us(), "µs");
    }
    if field.etcd.is_some() {
        measured = measured.peer("etcd", rates[3].median()).also("etcd, p99", etcd.p99_us(), "µs");
    }
    let note = format!(
        "Each of {THREADS} threads of one process on 2 cores appends as soon as its previous append is on disk; p50 \
         and p99 in µs. One flush serves all waiting threads. Rate: {}. The bare writer has as many threads, each of \
         which waits for its own record; one thread writes the records of all (without header, checksum, index or log) \
         with one call, and flushes: {}; ratio in the same repetition: {}. The other systems are loaded by {THREADS} \
         connections in the same way. If each of the {THREADS} threads waited for the time of 3 raw flushes per append \
         on average, there would be {} appends per second; on 2 cores, the wake-ups of {THREADS} threads limit the \
         rate to less.",
        rates[0].spread(),
        rates[4].spread(),
        ratios.spread(),
        figure(THREADS as f64 * 1e6 / (3.0 * raw.p50_us()))
    );
    let left = field.missing();
    drop(field.dir);
    Ok(measured.note(note).note(left))
}

/// Six flushes of a prewritten file, one after the other, for a chain that would flush after each step.
pub fn six_flushes(dir: &Path, count: u64) -> Outcome<Samples> {
    let (mut file, mut samples) = (Prewritten::create(&dir.join("six"), 64 << 20)?, Samples::new());
    each(count, &mut samples, || (0..6).try_for_each(|_| file.write_durably(4096)))?;
    Ok(samples)
}
