//! Whether this host's directory knows of all starts of this host.
//!
//! A directory that was replaced by an older copy may lack entries that the host has acknowledged, and others cannot see that: with its
//! vote they could elect a leader that lacks them, too. So after each start the host asks every other host for the newest of its starts that
//! the group `main` has noted (START and KNOWN), and holds back all messages of its replicas to a host until that host has
//! answered. If an answer names a start that the directory should know and does not, the host leaves its groups for good.
//!
//! A host of a version that does not answer counts as asked after a while. Nobody can say what only lost hosts knew: hosts whose
//! directories lack something nevertheless are found out when a leader has another entry in the place of a committed one.

use crate::cluster::facts::Starts;
use millrace_wire::{Code, Error};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many ticks a host waits at most for the answers of all others before its replicas have a clock: one election timeout.
const WAIT_TICKS: u32 = 10;
/// After this many ticks, a host that sends messages and no answer counts as one of an older version.
const OLD_TICKS: u32 = 100;
/// Messages that are held back for one host, and their bytes, unless one alone has more. Replicas repeat what is dropped.
const HELD_MAX: usize = 256;
const HELD_MAX_BYTES: usize = 4 << 20;

/// A message of a replica of a group.
type Held = (u32, Vec<u8>);

/// Whom this host has asked since its start.
pub(super) struct Asked {
    starts: Starts,
    /// The hosts that have answered.
    met: BTreeSet<u64>,
    held: BTreeMap<u64, (VecDeque<Held>, usize)>,
    /// Hosts that have sent something else.
    heard: BTreeSet<u64>,
    ticks: u32,
}

impl Asked {
    pub fn new(starts: Starts) -> Self {
        Self { starts, met: BTreeSet::new(), held: BTreeMap::new(), heard: BTreeSet::new(), ticks: 0 }
    }

    /// The error if it is known that the directory lacks a start.
    pub fn missing(&self) -> Option<Error> {
        (self.starts.missing != 0).then(|| {
            Code::GroupLogDamaged.error(
                "this host has taken part in its groups after this state of its directory: the directory was replaced by an older copy",
            )
        })
    }

    /// One tick has passed: the hosts that are to be asked now, and those that count as asked, with the messages for them.
    pub fn tick(&mut self, others: impl Iterator<Item = u64>) -> (Vec<u64>, Vec<(u64, Vec<Held>)>) {
        self.ticks = self.ticks.saturating_add(1);
        let unmet: Vec<u64> = others.filter(|host| !self.met.contains(host)).collect();
        let is_late = self.ticks > OLD_TICKS;
        let old: Vec<u64> = unmet.iter().copied().filter(|host| is_late && self.heard.contains(host)).collect();
        let released = old.into_iter().map(|host| (host, self.meet(host))).collect();
        // Seldom for hosts that are down.
        let is_due = self.ticks < OLD_TICKS || self.ticks.is_multiple_of(WAIT_TICKS);
        (if is_due { unmet } else { Vec::new() }, released)
    }

    /// Whether the replicas have to wait for answers of these hosts.
    pub fn waits(&self, mut others: impl Iterator<Item = u64>) -> bool {
        self.ticks < WAIT_TICKS && others.any(|host| !self.met.contains(&host))
    }

    /// The number of this start.
    pub fn boot(&self) -> u64 {
        self.starts.boot
    }

    /// A host has sent something.
    pub fn hear(&mut self, host: u64) {
        self.heard.insert(host);
    }

    /// The message if it may leave; otherwise it is held back.
    pub fn pass(&mut self, to: u64, group: u32, message: &[u8]) -> Option<Vec<u8>> {
        if self.met.contains(&to) {
            return Some(message.to_vec());
        }
        let (held, bytes) = self.held.entry(to).or_default();
        *bytes += message.len();
        held.push_back((group, message.to_vec()));
        while held.len() > HELD_MAX || (*bytes > HELD_MAX_BYTES && held.len() > 1) {
            *bytes -= held.pop_front().map_or(0, |(_, message)| message.len());
        }
        None
    }

    /// Another host knows of this start of this host; returns the messages for that host, or the start that is missing here.
    pub fn answered(&mut self, by: u64, boot: u64, newest: u64) -> Result<Vec<Held>, u64> {
        if boot != self.starts.boot {
            // The answer is for an earlier start, or for a copy of this host.
            return Ok(Vec::new());
        }
        let Starts { earlier, .. } = &self.starts;
        let oldest = earlier.first().copied().unwrap_or(boot);
        if newest >= oldest && newest != boot && !earlier.contains(&newest) {
            return Err(newest);
        }
        Ok(self.meet(by))
    }

    fn meet(&mut self, host: u64) -> Vec<Held> {
        self.met.insert(host);
        self.held.remove(&host).map(|(held, _)| held.into()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(earlier: &[u64]) -> Asked {
        Asked::new(Starts { boot: 90, earlier: earlier.to_vec(), missing: 0 })
    }

    #[test]
    fn messages_are_held_back_until_the_other_host_has_answered() {
        let mut asked = asked(&[70, 80]);
        assert_eq!(asked.tick([2, 3].into_iter()), (vec![2, 3], Vec::new()));
        assert_eq!(asked.pass(2, 1, b"vote"), None);
        assert!(asked.waits([2, 3].into_iter()));
        assert_eq!(asked.answered(2, 80, 80), Ok(Vec::new()), "it was for the start before");
        assert_eq!(asked.pass(2, 1, b"again"), None);
        let held = vec![(1, b"vote".to_vec()), (1, b"again".to_vec())];
        assert_eq!(asked.answered(2, 90, 80), Ok(held));
        assert_eq!(asked.pass(2, 1, b"more"), Some(b"more".to_vec()));
        assert_eq!(asked.pass(3, 1, b"vote"), None);
        assert_eq!(asked.tick([2, 3].into_iter()).0, [3]);
        for _ in 0..WAIT_TICKS {
            asked.tick([2, 3].into_iter());
        }
        assert!(!asked.waits([2, 3].into_iter()), "a host may be down");
    }

    #[test]
    fn a_start_that_the_directory_does_not_know_is_found() {
        for (newest, is_known) in
            [(0, true), (60, true), (70, true), (75, false), (80, true), (85, false), (90, true), (95, false)]
        {
            assert_eq!(asked(&[70, 80]).answered(2, 90, newest), if is_known { Ok(Vec::new()) } else { Err(newest) });
        }
        // A host that has just joined.
        assert_eq!(asked(&[]).answered(2, 90, 0), Ok(Vec::new()));
    }

    #[test]
    fn a_host_of_an_older_version_counts_as_asked_after_a_while_and_one_that_is_down_does_not() {
        let mut asked = asked(&[80]);
        asked.pass(2, 1, b"vote");
        asked.pass(3, 1, b"vote");
        asked.hear(2);
        let released: Vec<_> = (0..2 * OLD_TICKS).flat_map(|_| asked.tick([2, 3].into_iter()).1).collect();
        assert_eq!(released, [(2, vec![(1, b"vote".to_vec())])]);
    }

    #[test]
    fn what_is_held_back_is_bounded() {
        let mut asked = asked(&[80]);
        for _ in 0..2 * HELD_MAX {
            asked.pass(2, 1, &[0; 1000]);
        }
        assert_eq!(asked.held[&2].0.len(), HELD_MAX);
        for _ in 0..10 {
            asked.pass(2, 1, &vec![0; HELD_MAX_BYTES]);
        }
        assert_eq!((asked.held[&2].0.len(), asked.held[&2].1), (1, HELD_MAX_BYTES));
    }
}
