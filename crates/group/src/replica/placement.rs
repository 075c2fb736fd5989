//! Which hosts vote in a group, which follow it, and which of them leads.

use super::{ConfChangeType, ELECTION_TICKS, Replica, Role};
use std::collections::{BTreeMap, BTreeSet};

/// Ticks between two attempts of a leader to give the lead to the preferred site. An attempt may take half of them.
const HAND_OVER_TICKS: u32 = 2 * ELECTION_TICKS as u32;

/// The hosts that should keep a group, according to the directory. The group with the directory itself has no placement: all hosts keep it,
/// and it determines the number of its voters itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The hosts that should vote.
    pub voters: BTreeSet<u64>,
    /// The hosts that should follow without a vote.
    pub followers: BTreeSet<u64>,
    /// The sites of hosts.
    pub sites: BTreeMap<u64, String>,
}

impl Placement {
    /// Whether a host keeps the group.
    pub fn has(&self, host: u64) -> bool {
        self.voters.contains(&host) || self.followers.contains(&host)
    }
}

impl Replica {
    /// Says which hosts are to keep the group; the leader sees to it.
    pub fn set_placement(&mut self, placement: Placement) {
        if self.placement.as_ref() != Some(&placement) {
            self.wake();
            self.placement = Some(placement);
        }
    }

    /// Whether this host is to keep the group.
    pub(super) fn is_placed(&self) -> bool {
        self.placement.as_ref().is_none_or(|placement| placement.has(self.options.id))
    }

    /// How many hosts are to vote.
    pub fn voters_wanted(&self) -> usize {
        match &self.placement {
            Some(placement) => placement.voters.len(),
            None => self.topics.voters().unwrap_or(self.options.voters_max),
        }
    }

    /// If this host leads, brings the replicas towards the placement, one change at a time.
    pub(super) fn adjust(&mut self) {
        if self.role() != Role::Leader || self.node.raft.has_pending_conf() {
            return;
        }
        match self.placement.take() {
            Some(placement) => {
                self.follow(&placement);
                self.placement = Some(placement);
            }
            None => self.promote(),
        }
    }

    /// Hosts that should keep the group become replicas, vote once they have caught up, and only then replace others.
    fn follow(&mut self, placement: &Placement) {
        let (voters, learners) = self.replicas();
        if placement.voters.is_empty() {
            return;
        }
        let mut wanted = placement.voters.iter().chain(&placement.followers);
        // If it is refused, it is tried again at the next tick.
        if let Some(absent) = wanted.find(|host| !voters.contains(host) && !learners.contains(host)) {
            let _ = self.change(*absent, ConfChangeType::AddLearnerNode, Vec::new());
            return;
        }
        let with = |host: u64| voters.iter().copied().chain([host]);
        let without = |host: u64| voters.iter().copied().filter(move |voter| *voter != host);
        let mut learning = placement.voters.iter().filter(|host| learners.contains(host));
        if let Some(next) = learning.find(|host| self.can_lead(**host) && self.has_majority(with(**host))) {
            let _ = self.change(*next, ConfChangeType::AddNode, Vec::new());
            return;
        }
        let is_complete = placement.voters.iter().all(|host| voters.contains(host));
        if let Some(surplus) = voters.iter().find(|host| !placement.voters.contains(host)).filter(|_| is_complete) {
            if *surplus != self.options.id {
                if !self.has_majority(without(*surplus)) {
                    return;
                }
                let stays = placement.followers.contains(surplus);
                let how = if stays { ConfChangeType::AddLearnerNode } else { ConfChangeType::RemoveNode };
                let _ = self.change(*surplus, how, Vec::new());
            } else if let Some(next) = placement.voters.iter().find(|host| self.can_lead(**host)) {
                self.node.transfer_leader(*next);
            }
            return;
        }
        if let Some(surplus) = learners.iter().find(|host| !placement.has(**host)) {
            let _ = self.change(*surplus, ConfChangeType::RemoveNode, Vec::new());
        }
    }

    /// A leader gives votes to replicas that have caught up as long as there are too few voters, and removes votes as long as there are too
    /// many: one by one, and only if a majority of the new voters can be reached.
    fn promote(&mut self) {
        let (voters, learners) = self.replicas();
        let wanted = self.voters_wanted();
        // If it is refused, it is tried again at the next tick.
        if voters.len() < wanted {
            let with = |host: u64| voters.iter().copied().chain([host]);
            let next = learners.into_iter().find(|host| self.can_lead(*host) && self.has_majority(with(*host)));
            if let Some(next) = next {
                let _ = self.change(next, ConfChangeType::AddNode, Vec::new());
            }
        } else if voters.len() > wanted {
            let others = voters.iter().filter(|voter| **voter != self.options.id);
            let next = others.min_by_key(|voter| (self.matched(**voter), **voter)).copied();
            let without = |host: u64| voters.iter().copied().filter(move |voter| *voter != host);
            if let Some(next) = next.filter(|next| self.has_majority(without(*next))) {
                let _ = self.change(next, ConfChangeType::AddLearnerNode, Vec::new());
            }
        }
    }

    /// Whether a majority of these hosts answers.
    fn has_majority(&self, hosts: impl Iterator<Item = u64>) -> bool {
        let (mut all, mut active) = (0, 0);
        for host in hosts {
            let answers = |host| self.node.raft.prs().get(host).is_some_and(|progress| progress.recent_active);
            all += 1;
            active += usize::from(host == self.options.id || answers(host));
        }
        2 * active > all
    }

    /// Whether a replica answers and has caught up.
    fn can_lead(&self, host: u64) -> bool {
        let committed = self.node.raft.raft_log.committed;
        let progress = self.node.raft.prs().get(host);
        progress.is_some_and(|known| known.recent_active && known.matched >= committed)
    }

    /// A leader elsewhere gives the lead to a host at the preferred site that has caught up, unless it has just tried: it takes no commands
    /// meanwhile. Each tick looks, because the hosts that answer are forgotten once in an election timeout.
    pub(super) fn hand_over(&mut self) {
        if self.age.wrapping_sub(self.handed_over) < HAND_OVER_TICKS {
            return;
        }
        let site = self.topics.preferred();
        let site_of = |id: u64| match &self.placement {
            Some(placement) => placement.sites.get(&id),
            None => self.topics.member(id).map(|member| &member.site),
        };
        let is_preferred = |id: u64| site_of(id).is_some_and(|at| at == site);
        if self.role() != Role::Leader || site.is_empty() || is_preferred(self.options.id) {
            return;
        }
        let (voters, _) = self.replicas();
        let next = voters.into_iter().find(|id| is_preferred(*id) && self.can_lead(*id));
        if let Some(next) = next {
            self.handed_over = self.age;
            self.node.transfer_leader(next);
        }
    }
}
