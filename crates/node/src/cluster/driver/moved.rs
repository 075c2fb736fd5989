//! Hosts that were started at another address than the one that the group has agreed on.
//!
//! A leader sends its messages to the address that it knows. A host that moved hears none of them, so it cannot have its new address agreed
//! on; it tells the others where it is instead, each election timeout (HERE). They ask the host at the address that they know (WHERE). If
//! that one answers, the other one is a copy, and is ignored. If it does not answer for a while, they send to the new address from then on.
//! The moved host hears of the leader, and has its address agreed on. Hosts that believe it tell the
//! others (THERE): one of those may have moved too, and then neither knows where the other one is.

use millrace_group::Member;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How many election timeouts, and how long at least, a host may take to answer at the address that is known: if it can be connected to,
/// and if it cannot. A connection that failed is tried again at least each second.
const ANSWER: (u32, Duration) = (10, Duration::from_secs(5));
const ANSWER_UNREACHED: (u32, Duration) = (4, Duration::from_secs(2));
/// After this many announcements without success, only every tenth one is sent.
const OFTEN: u32 = 100;
const SELDOM: u32 = 10;

/// The reaction to a host that announces its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing: this is known.
    Nothing,
    /// The address that is known is to be asked.
    Unsure,
    /// Another address is used from now on.
    Changed,
    /// It is used already.
    Followed,
}

/// A host that says to be somewhere else.
struct Move {
    /// Where it was known to be then.
    from: Member,
    to: Member,
    since: Instant,
    last: Instant,
    /// Whether it is believed.
    is_followed: bool,
}

pub(super) struct Moved {
    /// Such a host is believed after the first time, or after the second one if it cannot be reached where it was.
    patience: [Duration; 2],
    moves: BTreeMap<u64, Move>,
    announcements: u32,
}

impl Moved {
    pub fn new(election: Duration) -> Self {
        let patience = [ANSWER, ANSWER_UNREACHED].map(|(times, least)| (election * times).max(least));
        Self { patience, moves: BTreeMap::new(), announcements: 0 }
    }

    /// A host says where it is.
    pub fn hear(&mut self, known: &Member, said: Member, is_unreached: bool, now: Instant) -> Heard {
        if said == *known {
            let was = self.moves.remove(&known.id);
            return if was.is_some_and(|was| was.is_followed) { Heard::Changed } else { Heard::Nothing };
        }
        let patience = self.patience[usize::from(is_unreached)];
        let begin = Move { from: known.clone(), to: said.clone(), since: now, last: now, is_followed: false };
        let claim = self.moves.entry(known.id).or_insert(begin);
        let is_new = claim.to != said || claim.from != *known || now - claim.last > self.patience[0];
        if is_new && !(claim.is_followed && claim.to == said) {
            *claim = Move { from: known.clone(), to: said, since: now, last: now, is_followed: false };
        }
        claim.last = now;
        if claim.is_followed {
            return Heard::Followed;
        }
        claim.is_followed = now - claim.since >= patience;
        if claim.is_followed { Heard::Changed } else { Heard::Unsure }
    }

    /// Where hosts are that are known to be there. What the group has agreed on since counts.
    pub fn places(&mut self, mut known: Vec<Member>) -> Vec<Member> {
        self.moves.retain(|_, claim| known.contains(&claim.from));
        for claim in self.moves.values().filter(|claim| claim.is_followed) {
            known.iter_mut().filter(|member| **member == claim.from).for_each(|member| *member = claim.to.clone());
        }
        known
    }

    /// Whether this host says where it is now; called once in an election timeout.
    pub fn announces(&mut self, is_known: bool) -> bool {
        self.announcements = if is_known { 0 } else { self.announcements.saturating_add(1) };
        !is_known && (self.announcements < OFTEN || self.announcements.is_multiple_of(SELDOM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, port: u16) -> Member {
        Member { id, address: format!("127.0.0.1:{port}"), name: "site".into(), site: "lab".into() }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_host_that_nobody_answers_for_where_it_was_is_followed_until_the_group_agrees() {
        for (is_unreached, seconds) in [(true, 2), (false, 5)] {
            let (mut moved, start) = (Moved::new(Duration::from_millis(300)), Instant::now());
            let (was, is) = (member(1, 1), member(1, 2));
            for second in 0..seconds {
                assert_eq!(moved.hear(&was, is.clone(), is_unreached, start + second * SECOND), Heard::Unsure);
                assert_eq!(moved.places(vec![was.clone()]), std::slice::from_ref(&was));
            }
            assert_eq!(moved.hear(&was, is.clone(), is_unreached, start + seconds * SECOND), Heard::Changed);
            assert_eq!(moved.hear(&was, is.clone(), is_unreached, start + seconds * SECOND), Heard::Followed);
            let other = member(2, 1);
            assert_eq!(moved.places(vec![was.clone(), other.clone()]), [is.clone(), other]);
            // It moves on, and the group has agreed on that.
            let next = member(1, 3);
            assert_eq!(moved.places(vec![next.clone()]), std::slice::from_ref(&next));
            assert!(moved.moves.is_empty());
        }
    }

    #[test]
    fn a_copy_is_not_followed_while_the_host_answers_where_it_is_known_to_be() {
        let (mut moved, start) = (Moved::new(Duration::from_millis(300)), Instant::now());
        let (host, copy) = (member(1, 1), member(1, 2));
        for second in 0..20 {
            assert_eq!(moved.hear(&host, copy.clone(), true, start + second * SECOND), Heard::Unsure);
            assert_eq!(moved.hear(&host, host.clone(), true, start + second * SECOND), Heard::Nothing);
        }
        // A question that was not answered long ago means nothing.
        assert_eq!(moved.hear(&host, copy.clone(), true, start + 30 * SECOND), Heard::Unsure);
        assert_eq!(moved.hear(&host, copy.clone(), true, start + 90 * SECOND), Heard::Unsure);
        // It was followed because the host did not answer, and then the host does.
        assert_eq!(moved.hear(&host, copy.clone(), true, start + 92 * SECOND), Heard::Changed);
        assert_eq!(moved.hear(&host, host.clone(), true, start + 93 * SECOND), Heard::Changed);
        assert_eq!(moved.places(vec![host.clone()]), [host]);
    }

    #[test]
    fn a_host_that_nobody_hears_announces_itself_less_often_after_a_while() {
        let mut moved = Moved::new(Duration::from_millis(300));
        assert_eq!((0..100).filter(|_| moved.announces(false)).count(), 100);
        assert_eq!((0..100).filter(|_| moved.announces(false)).count(), 10);
        assert!(!moved.announces(true));
        assert!(moved.announces(false));
    }
}
