//! A simulated network: delays, loses, duplicates and reorders messages, and cuts connections in one direction.

use crate::Chance;
use std::collections::{BTreeMap, BTreeSet};

/// The longest that a late message takes.
const LATE_MAX_MS: u64 = 1_500;

/// Who sends to whom.
type Way = (u64, u64);

/// Messages on their way.
#[derive(Default)]
pub struct Network {
    /// By when they arrive, and the order in which they were sent.
    underway: BTreeMap<(u64, u64), (Way, Vec<u8>)>,
    sent: u64,
    cut: BTreeSet<Way>,
    /// Lost messages in a thousand; the same number arrives twice.
    pub faults_permille: u64,
    /// The longest way.
    pub delay_max_ms: u64,
    /// Messages in a thousand that take very long.
    pub late_permille: u64,
}

impl Network {
    /// One with these faults.
    pub fn new(faults_permille: u64, delay_max_ms: u64) -> Self {
        Self { faults_permille, delay_max_ms, ..Self::default() }
    }

    /// The same, on which this many messages in a thousand take very long.
    pub fn with_late(self, late_permille: u64) -> Self {
        Self { late_permille, ..self }
    }

    /// Takes a message.
    pub fn send(&mut self, now_ms: u64, way: Way, message: Vec<u8>, chance: &mut Chance) {
        if self.cut.contains(&way) || chance.permille(self.faults_permille) {
            return;
        }
        let copies = if chance.permille(self.faults_permille) { 2 } else { 1 };
        for _ in 0..copies {
            self.sent += 1;
            let is_late = self.late_permille > 0 && chance.permille(self.late_permille);
            let late_ms = if is_late { chance.below(LATE_MAX_MS) } else { 0 };
            let arrives_ms = now_ms + 1 + chance.below(self.delay_max_ms) + late_ms;
            self.underway.insert((arrives_ms, self.sent), (way, message.clone()));
        }
    }

    /// The messages that arrive now.
    pub fn arrived(&mut self, now_ms: u64) -> Vec<(Way, Vec<u8>)> {
        let later = self.underway.split_off(&(now_ms + 1, 0));
        std::mem::replace(&mut self.underway, later).into_values().collect()
    }

    /// Cuts one direction.
    pub fn cut(&mut self, way: Way) {
        self.cut.insert(way);
    }

    /// Every way is open and quick again.
    pub fn heal(&mut self) {
        self.cut.clear();
        (self.faults_permille, self.delay_max_ms, self.late_permille) = (0, 5, 0);
    }
}
