//! A group of sessions that share a subscription: each record goes to one of them.

use crate::Range;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The members of a shared subscription, and the records that none of them has taken yet. Like a session, it has positions and no messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// By the log's id.
    pending: BTreeMap<u32, Range>,
    /// Records that a member took and gave back.
    returned: VecDeque<(u32, u64)>,
    /// Records that a member has taken and neither sent nor given back.
    taken: BTreeSet<(u32, u64)>,
    /// The member whose turn it is stands first.
    #[serde(skip)]
    members: VecDeque<u64>,
}

impl Group {
    /// A session joins.
    pub fn join(&mut self, who: u64) {
        if !self.members.contains(&who) {
            self.members.push_back(who);
        }
    }

    /// A session leaves; whether nobody is left.
    pub fn leave(&mut self, who: u64) -> bool {
        self.members.retain(|member| *member != who);
        self.members.is_empty()
    }

    /// The members, in the order of their turns; the first one that `takes` the turn comes last from now on.
    pub fn turn(&mut self, mut takes: impl FnMut(u64) -> bool) {
        if let Some(at) = self.members.iter().position(|member| takes(*member)) {
            let member = self.members.remove(at).expect("it was just found");
            self.members.push_back(member);
        }
    }

    /// A record was appended. Positions of a log come in their order.
    pub fn hand(&mut self, log: u32, seqno: u64) {
        let range = self.pending.entry(log).or_insert(Range { from: seqno, upto: seqno });
        range.upto = range.upto.max(seqno);
    }

    /// Takes a record for a member.
    pub fn take(&mut self) -> Option<(u32, u64)> {
        if let Some(returned) = self.returned.pop_front() {
            self.taken.insert(returned);
            return Some(returned);
        }
        let mut first = self.pending.first_entry()?;
        let (log, seqno) = (*first.key(), first.get().from);
        first.get_mut().from += 1;
        if first.get().from > first.get().upto {
            first.remove();
        }
        self.taken.insert((log, seqno));
        Some((log, seqno))
    }

    /// A member has sent a record that it took, or it cannot be sent.
    pub fn done(&mut self, log: u32, seqno: u64) {
        self.taken.remove(&(log, seqno));
    }

    /// The group as it was saved, in a host that has just started.
    #[must_use]
    pub fn restored(mut self) -> Self {
        self.returned.extend(std::mem::take(&mut self.taken));
        self
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = u64> {
        self.members.iter().copied()
    }

    /// The logs whose records nobody has taken.
    pub fn logs(&self) -> impl Iterator<Item = u32> {
        self.pending.keys().copied().chain(self.returned.iter().map(|(log, _)| *log))
    }

    /// A member has not sent a record that it took.
    pub fn give_back(&mut self, log: u32, seqno: u64) {
        self.done(log, seqno);
        self.returned.push_back((log, seqno));
    }

    /// What nobody has taken: a log, its first record, and how many.
    pub fn waiting(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let pending = self.pending.iter().map(|(log, range)| (*log, range.from, range.upto + 1 - range.from));
        pending.chain(self.returned.iter().map(|(log, seqno)| (*log, *seqno, 1)))
    }

    /// Whether there is a record to take.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty() || !self.returned.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn members_take_turns_and_those_that_cannot_take_it_are_passed_over() {
        let mut group = Group::default();
        (1..=3).for_each(|who| group.join(who));
        let mut turns = Vec::new();
        for _ in 0..4 {
            group.turn(|who| {
                let takes = who != 2;
                turns.extend(takes.then_some(who));
                takes
            });
        }
        assert_eq!(turns, [1, 3, 1, 3]);
        group.turn(|_| false);
        assert!(!group.leave(1) && !group.leave(1) && !group.leave(2) && group.leave(3));
    }

    proptest! {
        /// Whatever is handed over, taken and given back: each record is with one member or the group, and with nobody twice.
        #[test]
        fn every_record_is_taken_once(steps in prop::collection::vec((0u8..4, 0u32..3), 0..200)) {
            let (mut group, mut latest) = (Group::default(), [0u64; 3]);
            let (mut held, mut done) = (Vec::new(), Vec::new());
            for (step, log) in steps {
                match step {
                    0 => {
                        latest[log as usize] += 1;
                        group.hand(log, latest[log as usize]);
                    }
                    1 => held.extend(group.take()),
                    2 => if let Some((log, seqno)) = held.pop() {
                        group.done(log, seqno);
                        done.push((log, seqno));
                    }
                    3 if log == 0 => {
                        // The host dies: what was not sent is taken again.
                        let saved = serde_json::to_string(&group).unwrap();
                        group = serde_json::from_str::<Group>(&saved).unwrap().restored();
                        held.clear();
                    }
                    _ => if let Some((log, seqno)) = held.pop() {
                        group.give_back(log, seqno);
                    }
                }
            }
            done.extend(held);
            while group.has_pending() {
                done.extend(group.take());
            }
            prop_assert!(group.take().is_none());
            done.sort_unstable();
            let all = (0..3u32).flat_map(|log| (1..=latest[log as usize]).map(move |seqno| (log, seqno)));
            prop_assert_eq!(done, all.collect::<Vec<_>>());
        }
    }
}
