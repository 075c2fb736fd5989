//! Timing: histograms of single operations, and medians of repetitions with their spread.

use crate::Outcome;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant, SystemTime};

/// Durations of single operations, in nanoseconds, to three digits.
pub struct Samples(Histogram<u64>);

impl Samples {
    pub fn new() -> Self {
        // Anything longer than a minute would be a hang, and is counted as a minute.
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds that are valid"))
    }

    pub fn record(&mut self, elapsed: Duration) {
        self.record_ns(elapsed.as_nanos() as u64);
    }

    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    pub fn add(&mut self, other: &Samples) {
        self.0 += &other.0;
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The duration that this part of the operations did not exceed, in µs.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub fn p50_us(&self) -> f64 {
        self.quantile_us(0.5)
    }

    pub fn p99_us(&self) -> f64 {
        self.quantile_us(0.99)
    }

    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }
}

/// One figure, measured several times.
#[derive(Clone, Default)]
pub struct Repeated(Vec<f64>);

impl Repeated {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// The median: the repetition that a disturbance of some others does not move.
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The largest of them.
    pub fn most(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }

    /// How often, and from where to where.
    pub fn spread(&self) -> String {
        let (least, most) = (self.0.first().copied().unwrap_or(0.0), self.0.last().copied().unwrap_or(0.0));
        format!("median of {} ({} to {})", self.0.len(), figure(least), figure(most))
    }
}

/// Repeats a measurement.
pub fn repeat(count: usize, mut once: impl FnMut() -> Outcome<f64>) -> Outcome<Repeated> {
    let mut repeated = Repeated::default();
    for _ in 0..count {
        repeated.push(once()?);
    }
    Ok(repeated)
}

/// The mean time of an operation in µs, from `count` of them one after the other.
pub fn mean_us(count: u64, mut operation: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let start = Instant::now();
    for _ in 0..count {
        operation()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}

/// Times each of `count` operations.
pub fn each(count: u64, samples: &mut Samples, mut operation: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    for _ in 0..count {
        let start = Instant::now();
        operation()?;
        samples.record(start.elapsed());
    }
    Ok(())
}

/// What reading the clock twice adds to every single timing, in µs.
pub fn clock_us() -> f64 {
    const COUNT: u32 = 1_000_000;
    let start = Instant::now();
    for _ in 0..COUNT {
        std::hint::black_box(Instant::now());
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(COUNT)
}

/// The wall clock in nanoseconds: the one clock that all processes and all kinds of functions can read.
pub fn wall_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Keeps this core busy until `deadline`, for a pace finer than the kernel's timers.
pub fn spin_until(deadline: Instant) {
    while Instant::now() < deadline {
        std::hint::spin_loop();
    }
}

/// Three digits, and thin groups of thousands, as people like to read figures.
pub fn figure(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) && whole.len() > 4 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_groups() {
        let cases = [(0.1234, "0.123"), (5.678, "5.68"), (45.67, "45.7"), (456.7, "457"), (3_456_789.0, "3 456 789")];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn the_median_is_not_moved_by_an_outlier() {
        let mut repeated = Repeated::default();
        [3.0, 1.0, 2.0, 900.0, 2.5].into_iter().for_each(|value| repeated.push(value));
        assert_eq!(repeated.median(), 2.5);
        assert_eq!(repeated.spread(), "median of 5 (1.00 to 900)");
    }
}
