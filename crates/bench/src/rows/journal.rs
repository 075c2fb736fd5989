//! journal.append and journal.cold: the append alone.

use super::{Measured, PAYLOAD, fill, journal_with_log, text};
use crate::{
    Context, Outcome,
    children::Helper,
    measure::{Repeated, Samples, clock_us, each, figure, mean_us, spin_until},
    peers::{cspot, raw, wake},
};
use millrace_journal::{Durability, Journal, Log};
use millrace_wire::EventId;
use std::{
    fs::File,
    time::{Duration, Instant},
};

/// Records to a repetition: with their headers about 54 MB.
const ROUND: u64 = 50_000;
const RETAIN_BYTES: u64 = 128 << 20;
/// What the appends of all repetitions go around in: the segments kept and the recycled ones.
const RING_BYTES: usize = 320 << 20;

/// A journal that has been around all its segments once, so that it recycles instead of making new ones.
struct Warm {
    dir: tempfile::TempDir,
    journal: Journal,
    log: Log,
}

impl Warm {
    fn new(context: &Context) -> Outcome<Self> {
        let dir = context.fresh()?;
        let (journal, log) = journal_with_log(&dir.path().join("n"), Durability::Memory, RETAIN_BYTES, ROUND)?;
        let warm = Self { dir, journal, log };
        for _ in 0..10 {
            fill(&warm.journal, &warm.log, ROUND)?;
            warm.give_back()?;
        }
        Ok(warm)
    }

    /// What the host's housekeeping does beside the appends: old segments become room again.
    fn give_back(&self) -> Outcome<()> {
        Ok(self.journal.maintain(&|_| false).map(drop)?)
    }

    fn append(&self) -> Outcome<()> {
        Ok(self.journal.commit(|batch| batch.append(&self.log, &PAYLOAD, EventId::NONE, 0)).map(drop)?)
    }
}

/// The mean of appending alone, as other rows show it beside theirs.
pub fn append_mean(context: &Context, repetitions: usize) -> Outcome<Repeated> {
    means(&Warm::new(context)?, repetitions)
}

fn means(warm: &Warm, repetitions: usize) -> Outcome<Repeated> {
    crate::measure::repeat(repetitions, || {
        let mean = mean_us(ROUND, || warm.append())?;
        warm.give_back()?;
        Ok(mean)
    })
}

pub fn append(context: &Context) -> Outcome<Measured> {
    let warm = Warm::new(context)?;
    let mean = means(&warm, context.repetitions(15))?;
    let mut samples = Samples::new();
    for _ in 0..context.repetitions(6) {
        each(ROUND, &mut samples, || warm.append())?;
        warm.give_back()?;
    }
    let together = two_processes(context, &warm)?;
    let copying = raw::copy_and_checksum_us(RING_BYTES);
    Ok(Measured::new(mean.median(), ROUND * context.repetitions(15) as u64)
        .spread_us(&samples)
        .target("mean ≤ 0.25 µs", mean.median() <= 0.25)
        .target("2 processes together ≥ 3 M/s", together.median() >= 3e6)
        .also("2 processes together", together.median(), "/s")
        .also("p99.9", samples.quantile_us(0.999), "µs")
        .peer("memcpy + CRC-32C around 320 MiB", copying)
        .peer("memcpy + CRC-32C cached", raw::copy_and_checksum_us(16 << 10))
        .peer("CSPOT put, best", cspot::PUT_US[0])
        .peer("CSPOT put, as it comes", cspot::PUT_US[1])
        .peer("CSPOT raw append, unsafe, best", cspot::RAW_APPEND_US[0])
        .peer("CSPOT raw append, unsafe, worst", cspot::RAW_APPEND_US[1])
        .note(format!(
            "Back to back, one thread, not pinned, nobody waiting; a batch of one record each, indexed, with checksum, under \
             the crash-safe lock; segments recycled, their pages present. Mean of {ROUND} appends at a time, {}. p50 and p99 \
             from appends timed one by one, including {} µs for the clock. Two processes: {}, both appending to one log \
             back to back, rounds of {ROUND} each, from the first to start to the last to end.",
            mean.spread(),
            figure(clock_us()),
            together.spread()
        ))
        .note(cspot::SOURCE))
}

/// Records per second of two processes that append to one log at the same time.
fn two_processes(context: &Context, warm: &Warm) -> Outcome<Repeated> {
    let dir = warm.dir.path().join("n");
    let mut helpers = [Helper::start("append", &[text(&dir)?])?, Helper::start("append", &[text(&dir)?])?];
    let mut rates = Repeated::default();
    for round in 0..context.repetitions(15) + 3 {
        helpers.iter_mut().try_for_each(|helper| helper.say(&ROUND.to_string()))?;
        let (mut begin, mut end) = (u64::MAX, 0);
        for helper in &mut helpers {
            let times = helper.numbers()?;
            (begin, end) = (begin.min(times[0]), end.max(times[1]));
        }
        warm.give_back()?;
        // In the first rounds each process maps the segments.
        if round >= 3 {
            rates.push(2.0 * ROUND as f64 * 1e9 / (end - begin) as f64);
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
            "A new namespace each time, {ROUND} appends of 1 KiB, one thread, not pinned: nothing recycled, nothing touched \
             before. Value: p99 back to back, {}; there the appender outruns the thread that makes room ahead and now and then \
             makes room itself. Paced: one append every 5 µs (220 MB/s), spinning in between. Timed one by one, including {} µs \
             for the clock. First touch: one write to each page of a fresh mapping of a file in the page cache.",
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
