//! When the amendments of a log become a repair.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most amendments of a log that wait.
pub const AMEND_COUNT_MAX: u64 = 10_000;
/// Longest that one waits, unless another repair is open.
pub const AMEND_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A log that has one is amendable: a source may correct its records later. Its amendments wait until there are `count`, or until the
/// oldest is `age_ms` old; then all of them become one repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmendPolicy {
    /// How many may wait.
    pub count: u64,
    /// How long the oldest may wait, in milliseconds.
    pub age_ms: u64,
}

impl AmendPolicy {
    /// How long the oldest may wait.
    pub fn age(&self) -> Duration {
        Duration::from_millis(self.age_ms)
    }
}

impl Default for AmendPolicy {
    fn default() -> Self {
        Self { count: 1000, age_ms: 60_000 }
    }
}
