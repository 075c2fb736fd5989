//! The pause before the next attempt: longer each time, and randomized, so that the links of a host do not all reconnect at once.

use std::time::Duration;

const FIRST_MS: u64 = 100;
const MOST_MS: u64 = 2_000;

/// The pauses between attempts that fail.
#[derive(Debug)]
pub(crate) struct Pace {
    failures: u32,
    random: u64,
}

impl Pace {
    /// Links with different seeds wait differently.
    pub fn new(seed: u64) -> Self {
        Self { failures: 0, random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// An attempt succeeded: the next pause is the shortest again.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// An attempt failed. Returns how long to wait: a random time between half and all of a limit that doubles with each failure.
    pub fn failed(&mut self) -> Duration {
        let most_ms = (FIRST_MS << self.failures.min(16)).min(MOST_MS);
        self.failures = self.failures.saturating_add(1);
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let share = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        Duration::from_millis(most_ms / 2 + share % (most_ms / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_differ() {
        let (mut one, mut two) = (Pace::new(1), Pace::new(2));
        let pauses: Vec<(u128, u128)> = (0..12).map(|_| (one.failed().as_millis(), two.failed().as_millis())).collect();
        for (n, (a, b)) in pauses.iter().enumerate() {
            let most = u128::from((FIRST_MS << n.min(16)).min(MOST_MS));
            assert!((most / 2..=most).contains(a) && (most / 2..=most).contains(b), "{pauses:?}");
        }
        assert!(pauses.iter().any(|(a, b)| a != b), "{pauses:?}");
        one.succeeded();
        assert!(one.failed().as_millis() <= u128::from(FIRST_MS));
    }
}
