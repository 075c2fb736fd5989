//! journal.append and journal.cold: the append alone.

use super::{Measured, PAYLOAD, fill, journal_with_log, text};
use crate::{
    Context, Outcome,
    children::Helper,
    measure::{Repeated, Samples, clock_us, each, figure, mean_us, repeat, spin_until, wall_ns},
    peers::{cspot, raw, wake},
};
use millrace_journal::{Durability, Journal, Log};
use millrace_wire::{Error, EventId};
use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Appends in a burst: with their headers 11 MB, less than the room that is made ready ahead.
pub const BURST: u64 = 10_000;
/// Bursts to a repetition.
const BURSTS: u64 = 4;
/// After a burst, for the thread that makes room ahead. Back to back without end it is that thread which sets the pace.
pub const PAUSE: Duration = Duration::from_millis(60);
/// Appends in a row.
pub const STEADY: u64 = 2_000_000;
/// What is retained of them: about the second half.
pub const STEADY_RETAIN_BYTES: u64 = 1 << 30;
/// How often retention runs beside them.
const UPKEEP: Duration = Duration::from_millis(100);
/// Records to a namespace that is made for the measurement: about 54 MB.
const ROUND: u64 = 50_000;
/// What the peer's copies go around in: more than the caches hold, as it is with the appends.
const RING_BYTES: usize = 320 << 20;

/// A journal that has been written to for a while.
struct Warm {
    dir: tempfile::TempDir,
    journal: Journal,
    log: Log,
}

impl Warm {
    fn new(context: &Context, retain_bytes: u64) -> Outcome<Self> {
        let dir = context.fresh()?;
        let (journal, log) = journal_with_log(&dir.path().join("n"), Durability::Memory, retain_bytes, ROUND)?;
        let warm = Self { dir, journal, log };
        for _ in 0..5 {
            fill(&warm.journal, &warm.log, BURST)?;
            thread::sleep(PAUSE);
        }
        Ok(warm)
    }

    fn append(&self) -> Outcome<()> {
        Ok(self.journal.commit(|batch| batch.append(&self.log, &PAYLOAD, EventId::NONE, 0)).map(drop)?)
    }
}

/// The mean time of an operation in bursts.
pub fn bursts(repetitions: usize, operation: impl Fn() -> Outcome<()>) -> Outcome<Repeated> {
    repeat(repetitions, || {
        let mut sum = 0.0;
        for _ in 0..BURSTS {
            sum += mean_us(BURST, &operation)?;
            thread::sleep(PAUSE);
        }
        Ok(sum / BURSTS as f64)
    })
}

/// The mean of [`STEADY`] appends in a row, as other rows show it beside theirs.
pub fn steady_mean(context: &Context) -> Outcome<Repeated> {
    Ok(steady(context)?.means)
}

pub fn append(context: &Context) -> Outcome<Measured> {
    let warm = Warm::new(context, 4 << 30)?;
    let repetitions = context.repetitions(15);
    let mean = bursts(repetitions, || warm.append())?;
    let mut samples = Samples::new();
    for _ in 0..context.repetitions(20) {
        each(BURST, &mut samples, || warm.append())?;
        thread::sleep(PAUSE);
    }
    let together = two_processes(context, &warm)?;
    drop(warm);
    let steady = steady(context)?;
    Ok(Measured::new(steady.means.median(), steady.samples.count())
        .spread_us(&steady.samples)
        .target("mean ≤ 0.45 µs", steady.means.median() <= 0.45)
        .target("p99.9 ≤ 20 µs", steady.samples.quantile_us(0.999) <= 20.0)
        .target("longest of 2 M ≤ 5 ms", steady.longest_us.median() <= 5000.0)
        .also("p99.9", steady.samples.quantile_us(0.999), "µs")
        .also("longest of 2 M, median", steady.longest_us.median(), "µs")
        .also("longest of all", steady.samples.max_us(), "µs")
        .also("in bursts with pauses, mean", mean.median(), "µs")
        .also("in bursts with pauses, p99.9", samples.quantile_us(0.999), "µs")
        .also("2 processes together, in bursts", together.median(), "/s")
        .peer("memcpy + CRC-32C around 320 MiB", raw::copy_and_checksum_us(RING_BYTES))
        .peer("memcpy + CRC-32C cached", raw::copy_and_checksum_us(16 << 10))
        .peer("CSPOT put, IP address configured", cspot::PUT_US[0])
        .peer("CSPOT put, default", cspot::PUT_US[1])
        .peer("CSPOT raw append, unsafe, best", cspot::RAW_APPEND_US[0])
        .peer("CSPOT raw append, unsafe, worst", cspot::RAW_APPEND_US[1])
        .note(format!(
            "One thread, not pinned, appends {STEADY} records without a pause (2.2 GB) to a new namespace that retains \
             1 GiB: the first half to fresh segments, the second to recycled ones. Retention runs concurrently every \
             100 ms; in a host it runs every second. Nothing waits for the records. Each append is a batch of one \
             record, indexed, with checksum, under the crash-safe lock, and is timed separately. Mean: {}; longest of \
             {STEADY}: {}. All times include {} µs for the clock. In a separate run, with `getrusage` around each \
             append, the appends that took longer than 1 ms were nearly always preempted, and neither slept nor had \
             page faults: three threads are busy, the one that appends, the one that prepares space, and retention. In \
             bursts: {BURST} appends back to back (11 MB), then a pause of 60 ms in which the journal's own thread \
             prepares space; mean of {BURSTS} bursts: {}. Two processes: each appends bursts of half as many records \
             to the same log, and both start at the same moment; appends per second from the first start to the last \
             end: {}.",
            steady.means.spread(),
            steady.longest_us.spread(),
            figure(clock_us()),
            mean.spread(),
            together.spread(),
        ))
        .note(cspot::SOURCE))
}

/// Appends without end, segments being recycled beside them.
pub struct Steady {
    pub samples: Samples,
    pub means: Repeated,
    pub longest_us: Repeated,
}

fn steady(context: &Context) -> Outcome<Steady> {
    steadily(context, |dir| {
        let (journal, log) = journal_with_log(dir, Durability::Memory, STEADY_RETAIN_BYTES, ROUND)?;
        let of_append = journal.clone();
        let append = move || Ok(of_append.commit(|batch| batch.append(&log, &PAYLOAD, EventId::NONE, 0)).map(drop)?);
        Ok((journal, append))
    })
}

/// [`STEADY`] times what `make` gives for a new directory, while retention gives the oldest segments back as if no run needed them.
pub fn steadily<A: FnMut() -> Outcome<()>>(
    context: &Context,
    make: impl Fn(&Path) -> Outcome<(Journal, A)>,
) -> Outcome<Steady> {
    let mut steady = Steady { samples: Samples::new(), means: Repeated::default(), longest_us: Repeated::default() };
    for _ in 0..context.repetitions(5) {
        let dir = context.fresh()?;
        let (journal, append) = make(&dir.path().join("n"))?;
        let (mut samples, over) = (Samples::new(), AtomicBool::new(false));
        let mean = thread::scope(|scope| {
            let upkeep = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    journal.maintain(&|_, _| false)?;
                    thread::sleep(UPKEEP);
                }
                Ok::<_, Error>(())
            });
            let start = Instant::now();
            let appended = each(STEADY, &mut samples, append);
            let mean = start.elapsed().as_secs_f64() * 1e6 / STEADY as f64;
            over.store(true, Ordering::Relaxed);
            upkeep.join().expect("retention does not panic")?;
            appended.map(|()| mean)
        })?;
        steady.means.push(mean);
        steady.longest_us.push(samples.max_us());
        steady.samples.add(&samples);
    }
    Ok(steady)
}

/// Records per second of two processes that append to one log at the same time.
fn two_processes(context: &Context, warm: &Warm) -> Outcome<Repeated> {
    let dir = warm.dir.path().join("n");
    let mut helpers = [Helper::start("append", &[text(&dir)?])?, Helper::start("append", &[text(&dir)?])?];
    let mut rates = Repeated::default();
    for round in 0..context.repetitions(30) + 4 {
        // Both know when to start, so that neither is done before the other has been woken.
        let start_ns = wall_ns() + 3_000_000;
        helpers.iter_mut().try_for_each(|helper| helper.say(&format!("{} {start_ns}", BURST / 2)))?;
        let (mut begin, mut end) = (u64::MAX, 0);
        for helper in &mut helpers {
            let times = helper.numbers()?;
            (begin, end) = (begin.min(times[0]), end.max(times[1]));
        }
        thread::sleep(PAUSE);
        // In the first rounds each process maps the segments.
        if round >= 4 {
            rates.push(BURST as f64 * 1e9 / (end - begin) as f64);
        }
    }
    helpers.into_iter().try_for_each(Helper::finish)?;
    Ok(rates)
}

/// Time between two appends of the paced scenario: 200 000 a second, 220 MB/s.
const PACE: Duration = Duration::from_micros(5);

pub fn cold(context: &Context) -> Outcome<Measured> {
    let (mut rushed, mut paced, mut p99s) = (Samples::new(), Samples::new(), Repeated::default());
    for _ in 0..context.repetitions(8) {
        let samples = cold_once(context, Duration::ZERO)?;
        p99s.push(samples.p99_us());
        rushed.add(&samples);
        paced.add(&cold_once(context, PACE)?);
    }
    let touch = first_touch(context)?;
    Ok(Measured::new(p99s.median(), rushed.count())
        .spread_us(&rushed)
        .target("p99 ≤ 3 µs", p99s.median() <= 3.0 && paced.p99_us() <= 3.0)
        .also("back to back, p99.9", rushed.quantile_us(0.999), "µs")
        .also("back to back, longest", rushed.max_us(), "µs")
        .also("paced 5 µs, p50", paced.p50_us(), "µs")
        .also("paced 5 µs, p99", paced.p99_us(), "µs")
        .also("paced 5 µs, p99.9", paced.quantile_us(0.999), "µs")
        .peer("first-touch fault, mean", touch)
        .note(format!(
            "In each repetition, one thread, not pinned, makes {ROUND} appends of 1 KiB to a new namespace: no \
             segment is recycled, and no page was touched before. Value: p99 of appends back to back, {}; they outrun \
             the thread that prepares space, so the appending thread sometimes prepares space itself. Paced: one \
             append every 5 µs (220 MB/s), spinning in between. Each append is timed separately, including {} µs for \
             the clock. First-touch fault: one write to each page of a fresh mapping of a file in the page cache.",
            p99s.spread(),
            figure(clock_us())
        )))
}

fn cold_once(context: &Context, pace: Duration) -> Outcome<Samples> {
    let dir = context.fresh()?;
    let (journal, log) = journal_with_log(&dir.path().join("n"), Durability::Memory, 1 << 30, ROUND)?;
    let mut samples = Samples::new();
    for _ in 0..ROUND {
        let start = Instant::now();
        journal.commit(|batch| batch.append(&log, &PAYLOAD, EventId::NONE, 0))?;
        samples.record(start.elapsed());
        if !pace.is_zero() {
            spin_until(start + pace);
        }
    }
    Ok(samples)
}

fn first_touch(context: &Context) -> Outcome<f64> {
    const BYTES: usize = 64 << 20;
    let dir = context.fresh()?;
    let mut means = Repeated::default();
    for n in 0..context.repetitions(5) {
        let path = dir.path().join(n.to_string());
        std::fs::write(&path, vec![0; BYTES])?;
        let file = File::options().read(true).write(true).open(&path)?;
        let start = Instant::now();
        wake::first_touch(&file, BYTES, &mut Samples::new())?;
        means.push(start.elapsed().as_secs_f64() * 1e6 / (BYTES / 4096) as f64);
    }
    Ok(means.median())
}
