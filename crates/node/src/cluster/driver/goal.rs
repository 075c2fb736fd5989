//! Changes of the hosts of groups: what is still missing for one, and why one cannot complete.

use crate::cluster::{MAIN, MAIN_NAME, Shared, groups::Group, locked, shown};
use millrace_group::{Member, Replica};
use millrace_wire::{Code, Error, Result};
use std::sync::{Arc, atomic::Ordering};

/// Topics that an error names.
const TOPICS_SHOWN_MAX: usize = 10;

/// A change of the hosts of a group, or of its leader.
pub(in crate::cluster) enum Goal {
    Added(Member),
    Removed(u64),
    Led(u64),
}

impl Goal {
    /// Whether the change is complete.
    pub(super) fn is_met(&self, shared: &Shared, replica: &Replica) -> bool {
        match self {
            Goal::Added(member) => self.has(replica, member.id),
            Goal::Removed(host) => !self.has(replica, *host) && self.holder(shared, *host).is_none(),
            Goal::Led(host) => replica.leader() == *host,
        }
    }

    /// Why the change can never complete.
    pub(super) fn check(&self, replica: &Replica, group: &str) -> Result<()> {
        let (voters, _) = replica.replicas();
        match self {
            Goal::Removed(host) if voters == [*host] => Err(only_voter(
                *host,
                MAIN_NAME,
                "if it is lost for good, `millrace cluster recover` makes another host the first of a new cluster",
            )),
            Goal::Led(host) if !voters.contains(host) => {
                let detail = format!("host {} is not a voter of group '{group}', so it cannot lead it", shown(*host));
                Err(Code::HostNotInCluster.error(detail))
            }
            _ => Ok(()),
        }
    }

    /// Why a host cannot leave yet: a group would be lost with it.
    pub(super) fn check_groups(&self, shared: &Shared, main: &Replica) -> Result<()> {
        let Goal::Removed(host) = self else { return Ok(()) };
        for (name, spec) in main.topics().directory().groups().filter(|(_, spec)| spec.hosts.contains(host)) {
            let give_up = || {
                let topics: Vec<&str> = main.topics().directory().topics_of(spec.id).take(TOPICS_SHOWN_MAX).collect();
                let more = spec.topics.saturating_sub(topics.len() as u64);
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                let topics = if topics.is_empty() { "none".into() } else { topics.join(", ") };
                format!(
                    "if its voters are lost for good, `millrace cluster rm {} --lose {name}` gives up the group and its topics with all records \
                     ({topics}{more})",
                    shown(*host)
                )
            };
            if spec.hosts.len() == 1 {
                return Err(only_voter(*host, name, &give_up()));
            }
            let unknown =
                || Code::GroupUnavailable.error(format!("this host knows no leader of group '{name}'; {}", give_up()));
            let group = shared.group(spec.id).ok_or_else(unknown)?;
            let group = locked(&group.replica);
            if group.leader() == 0 {
                return Err(unknown());
            }
            // Until the group has its new voters, it may need those that will be removed.
            let (voters, _) = group.replicas();
            if voters.len() != spec.hosts.len() || voters.iter().any(|voter| !spec.hosts.contains(voter)) {
                return Err(Code::GroupBusy.error(format!("the voters of group '{name}' are changing; try again")));
            }
            let others: Vec<u64> = voters.into_iter().filter(|voter| voter != host).collect();
            let answers = |other: &&u64| **other == shared.facts.host || shared.post.trouble(**other).is_none();
            let (all, answering) = (others.len(), others.iter().filter(answers).count());
            if 2 * answering <= all {
                let detail = format!(
                    "group '{name}' needs host {}: {answering} of its {all} other voters can be reached; {}",
                    shown(*host),
                    give_up()
                );
                return Err(Code::GroupBusy.error(detail));
            }
        }
        Ok(())
    }

    /// A group that still has the host, as far as is known here: it may need its vote.
    fn holder(&self, shared: &Shared, host: u64) -> Option<Arc<Group>> {
        let own = shared.facts.host;
        // A replica that is no longer kept here is not notified.
        let hears = |group: &Arc<Group>| group.is_placed.load(Ordering::Relaxed) || host == own;
        let mut others = shared.kept().into_iter().filter(|group| group.id != MAIN && hears(group));
        others.find(|group| self.has(&locked(&group.replica), host))
    }

    /// The error if it does not complete in time; `undecided` unless more is known.
    pub(super) fn late(&self, shared: &Shared, main: &Replica, undecided: Error) -> Error {
        let Goal::Removed(host) = self else { return undecided };
        match self.holder(shared, *host).filter(|_| !self.has(main, *host)) {
            Some(group) => Code::GroupBusy.error(format!(
                "host {} has left group 'main', but not yet group '{}': keep it running until `millrace cluster groups` no longer shows it",
                shown(*host),
                group.name
            )),
            None => self.check_groups(shared, main).err().unwrap_or(undecided),
        }
    }

    fn has(&self, replica: &Replica, host: u64) -> bool {
        keeps(replica, host)
    }

    /// Takes the next step of the change. Refused and lost requests are repeated.
    pub(super) fn pursue(&self, shared: &Shared, replica: &mut Replica) {
        match self {
            Goal::Added(member) => drop(replica.add(member)),
            // The removed leader may not know of its removal, and would continue to lead.
            Goal::Removed(host) if !self.has(replica, *host) => {
                for group in shared.kept().into_iter().filter(|group| group.id != MAIN) {
                    let mut replica = locked(&group.replica);
                    let (voters, _) = replica.replicas();
                    let own = shared.facts.host;
                    let next = voters
                        .iter()
                        .find(|voter| **voter == own)
                        .or_else(|| voters.iter().find(|voter| *voter != host));
                    if let Some(next) = next.filter(|next| *next != host && replica.leader() == *host) {
                        replica.transfer(*next);
                    }
                }
            }
            // A leader that is to be removed first transfers leadership to another voter, if possible one that has caught up.
            Goal::Removed(host) if replica.leader() == *host => {
                let (voters, _) = replica.replicas();
                let others = voters.into_iter().filter(|voter| voter != host);
                if let Some(next) = others.max_by_key(|voter| replica.matched(*voter)) {
                    replica.transfer(next);
                }
            }
            Goal::Removed(host) => drop(replica.remove(*host)),
            Goal::Led(host) => replica.transfer(*host),
        }
    }
}

/// Whether a host is a replica of a group.
pub(super) fn keeps(replica: &Replica, host: u64) -> bool {
    let (voters, learners) = replica.replicas();
    voters.contains(&host) || learners.contains(&host)
}

fn only_voter(host: u64, group: &str, otherwise: &str) -> Error {
    Code::HostNotInCluster.error(format!(
        "host {} is the only voter of group '{group}', which would be lost with it; \
         while the host answers, `millrace cluster voters 3 --group {group}` adds voters; {otherwise}",
        shown(host)
    ))
}
