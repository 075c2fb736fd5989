//! A histogram of durations in buckets, as in Prometheus.

use crate::Name;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The upper bounds of the buckets, in microseconds. What takes longer than the last one is in a bucket of its own.
pub const BOUNDS_US: [u64; 16] = [
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    30_000_000,
    300_000_000,
];

/// Counts how long something took. Any number of threads may add to it; none waits.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// How many took at most as long as the bound of this number, and longer than the previous one; the last, how many took longer than all
    /// bounds.
    pub counts: [u64; BOUNDS_US.len() + 1],
    /// The sum of all durations, in microseconds.
    pub sum_us: u64,
}

impl Histogram {
    /// Counts one that took so long.
    #[inline]
    pub fn add(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < took_us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(took_us, Relaxed);
    }

    /// The current counts. The sum may be one ahead or behind.
    pub fn now(&self) -> Buckets {
        Buckets {
            counts: std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed)),
            sum_us: self.sum_us.load(Relaxed),
        }
    }
}

/// The maximum number of functions with histograms of their own. Others have none, because each function adds many series to a metrics database.
pub const FUNCTIONS_MAX: usize = 100;

/// How long things took, of one namespace.
#[derive(Debug, Default)]
pub struct Measures {
    /// From a request for an append to its answer, which waits for the disk if it has to.
    pub append: Histogram,
    functions: Mutex<BTreeMap<Name, Arc<FunctionMeasures>>>,
}

/// How long the runs of one function took.
#[derive(Debug, Default)]
pub struct FunctionMeasures {
    /// From a trigger to the start of the first attempt.
    pub wait: Histogram,
    /// Each attempt, however it ended.
    pub run: Histogram,
}

impl Measures {
    /// Those of a function; none if too many others are measured.
    pub fn function(&self, name: &Name) -> Option<Arc<FunctionMeasures>> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get(name) {
            return Some(known.clone());
        }
        (functions.len() < FUNCTIONS_MAX).then(|| functions.entry(name.clone()).or_default().clone())
    }

    /// The measures of the functions that `exist` says still exist; the others are forgotten.
    pub fn functions(&self, exist: impl Fn(&Name) -> bool) -> Vec<(Name, Arc<FunctionMeasures>)> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.retain(|name, _| exist(name));
        functions.iter().map(|(name, measures)| (name.clone(), measures.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_the_first_bucket_that_it_fits() {
        let histogram = Histogram::default();
        for took_us in [0, 50, 51, 1_000, 300_000_000, 300_000_001] {
            histogram.add(Duration::from_micros(took_us));
        }
        let Buckets { counts, sum_us } = histogram.now();
        assert_eq!((counts[0], counts[1], counts[4], counts[15], counts[16]), (2, 1, 1, 1, 1));
        assert_eq!((counts.iter().sum::<u64>(), sum_us), (6, 600_001_102));
        assert!(BOUNDS_US.is_sorted());
    }

    #[test]
    fn functions_beyond_the_bound_are_not_measured_until_others_are_gone() {
        let measures = Measures::default();
        let name = |n: usize| format!("f{n}").parse::<Name>().unwrap();
        for n in 0..FUNCTIONS_MAX {
            assert!(measures.function(&name(n)).is_some());
        }
        assert!(measures.function(&name(FUNCTIONS_MAX)).is_none() && measures.function(&name(0)).is_some());
        assert_eq!(measures.functions(|known| *known != name(0)).len(), FUNCTIONS_MAX - 1);
        assert!(measures.function(&name(FUNCTIONS_MAX)).is_some());
    }
}
