//! log.get: reading one record, without and with a concurrent writer.

use super::{Measured, fill, journal_with_log, text};
use crate::{
    Context, Outcome,
    children::Helper,
    measure::{Repeated, Samples, clock_us, each, figure, mean_us, repeat},
    peers::{cspot, raw, wake},
};
use millrace_journal::{Durability, Journal, Log};
use millrace_wire::Code;
use std::{
    fs::{self, File},
    hint::black_box,
};

const COUNT: u64 = 200_000;
/// With headers, 76 MB; random reads go over the newest 64 500 records, 70 MB.
const HISTORY: u64 = 70_000;
const WINDOW: u64 = 64_500;

struct Reader {
    journal: Journal,
    log: Log,
    buffer: Vec<u8>,
    random: u64,
}

impl Reader {
    fn hot(&mut self, seqno: u64) -> Outcome<()> {
        self.journal.get(&self.log, seqno, &mut self.buffer)?;
        black_box(&self.buffer);
        Ok(())
    }

    fn newest(&mut self) -> Outcome<()> {
        self.hot(self.log.latest())
    }

    fn random(&mut self) -> Outcome<()> {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // A writer beside may write a lap while this thread does not run.
        loop {
            match self.journal.get(&self.log, self.log.latest() - (self.random >> 33) % WINDOW, &mut self.buffer) {
                Err(error) if error.code() == Code::BelowHistory => {}
                read => break read.map(|_| ())?,
            }
        }
        black_box(&self.buffer);
        Ok(())
    }
}

pub fn get(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let namespace = dir.path().join("n");
    let (journal, log) = journal_with_log(&namespace, Durability::Memory, 192 << 20, HISTORY)?;
    fill(&journal, &log, HISTORY + 10_000)?;
    let latest = log.latest();
    let mut reader = Reader { journal, log, buffer: Vec::new(), random: 1 };
    let repetitions = context.repetitions(11);
    mean_us(COUNT, || reader.random())?;
    let hot = repeat(repetitions, || mean_us(COUNT, || reader.hot(latest)))?;
    let random = repeat(repetitions, || mean_us(COUNT, || reader.random()))?;
    let (mut hot_each, mut random_each) = (Samples::new(), Samples::new());
    each(COUNT, &mut hot_each, || reader.hot(latest))?;
    each(COUNT, &mut random_each, || reader.random())?;
    let writer = Helper::start("churn", &[text(&namespace)?])?;
    let newest_written = repeat(repetitions, || mean_us(COUNT, || reader.newest()))?;
    let random_written = repeat(repetitions, || mean_us(COUNT, || reader.random()))?;
    writer.finish()?;
    let bytes = vec![1; 70 << 20];
    let memory = repeat(repetitions, || Ok(raw::copy_random_us(&bytes)))?;
    let path = dir.path().join("peer");
    fs::write(&path, &bytes)?;
    let file = File::open(&path)?;
    let mapped = repeat(repetitions, || wake::mapped(&file, bytes.len(), raw::copy_random_us))?;
    Ok(measured(&hot, &random, &hot_each, &random_each)
        .also("newest record under a writer", newest_written.median(), "µs")
        .also("random under a writer", random_written.median(), "µs")
        .target("random under a writer ≤ 0.3 µs", random_written.median() <= 0.3)
        .peer("memcpy of 1 KiB, cached", raw::copy_us(16 << 10))
        .peer("memcpy of 1 KiB, random over 70 MiB", memory.median())
        .peer("memcpy of 1 KiB, random over a mapped file of 70 MiB", mapped.median())
        .peer("CSPOT get", cspot::GET_US)
        .note(format!(
            "One thread, not pinned, reads back to back, and verifies the checksum of each record. Value: the same \
             record again and again, mean of {COUNT}, {}. Random over 70 MB: {}. Under a writer: another process \
             appends 1 KiB to the same log back to back, on the other core, and drops segments; the newest record: \
             {}; random records: {}. To read the newest record, a core has to fetch cache lines that the other core \
             has just written. The processor can overlap copies of random places, but a get verifies its record \
             before it returns. p50 and p99 include {} µs for the clock.",
            hot.spread(),
            random.spread(),
            newest_written.spread(),
            random_written.spread(),
            figure(clock_us())
        ))
        .note(cspot::SOURCE))
}

fn measured(hot: &Repeated, random: &Repeated, hot_each: &Samples, random_each: &Samples) -> Measured {
    Measured::new(hot.median(), COUNT * 11)
        .spread_us(hot_each)
        .target("same record ≤ 0.08 µs", hot.median() <= 0.08)
        .target("random over 70 MB ≤ 0.3 µs", random.median() <= 0.3)
        .also("random over 70 MB", random.median(), "µs")
        .also("random, p99", random_each.p99_us(), "µs")
}
