//! Changes of the hosts of groups: what is still missing for one, and why one cannot complete. Pure: whoever pursues a [`Goal`] collects the
//! [`Facts`] and executes the commands.

use crate::{
    MAIN, MAIN_NAME, Member, Replica,
    directory::{Directory, GroupSpec},
};
use millrace_wire::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Topics that an error names.
const TOPICS_SHOWN_MAX: usize = 10;

/// A change of the hosts of a group, or of its leader.
#[derive(Clone, Debug)]
pub enum Goal {
    /// A host is a replica of the group.
    Added(Member),
    /// A host is in no group.
    Removed(u64),
    /// A host leads the group.
    Led(u64),
}

/// What a host knows of a group from its own replica.
#[derive(Clone, Debug, Default)]
pub struct GroupFacts {
    /// The group.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whether the directory still places it on this host. A replica that is no longer kept here is not notified of changes.
    pub is_placed: bool,
    /// The leader; 0 for none.
    pub leader: u64,
    /// The hosts that vote.
    pub voters: Vec<u64>,
    /// The hosts that follow without a vote.
    pub learners: Vec<u64>,
    /// The last entry that each voter has acknowledged, if this host leads.
    pub matched: BTreeMap<u64, u64>,
}

/// What a host knows of its cluster.
#[derive(Clone, Debug)]
pub struct Facts<'d> {
    /// The host itself.
    pub own: u64,
    /// The group whose hosts change.
    pub main: GroupFacts,
    /// The other groups of which this host has a replica, without the first.
    pub others: Vec<GroupFacts>,
    /// All groups but the first.
    pub directory: &'d Directory,
    /// The hosts that could not be reached when it was last tried.
    pub unreachable: BTreeSet<u64>,
}

/// The state of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum GoalStep {
    /// It is complete.
    Met,
    /// It can never complete.
    Refused(Error),
    /// It cannot go on now, but perhaps later.
    Wait(Error),
    /// These commands are next. They are repeated until they have an effect; there may be none to give.
    Do(Vec<GoalCommand>),
}

/// A command to a group of which this host has a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoalCommand {
    /// Adds a replica to the group whose hosts change.
    Add(Member),
    /// Removes one from it.
    Remove(u64),
    /// Gives the leadership of a group to another voter.
    Transfer {
        /// The group.
        group: u32,
        /// The voter.
        to: u64,
    },
}

impl Replica {
    /// What this replica knows of its group.
    pub fn facts(&self, id: u32, name: &str, is_placed: bool) -> GroupFacts {
        let ((voters, learners), leader) = (self.replicas(), self.leader());
        let matched = voters.iter().filter_map(|voter| Some((*voter, self.matched(*voter)?))).collect();
        GroupFacts { id, name: name.to_owned(), is_placed, leader, voters, learners, matched }
    }
}

impl GroupFacts {
    /// Whether a host is a replica.
    pub fn has(&self, host: u64) -> bool {
        self.voters.contains(&host) || self.learners.contains(&host)
    }
}

impl Goal {
    /// What comes next.
    pub fn step(&self, facts: &Facts<'_>) -> GoalStep {
        if self.is_met(facts) {
            return GoalStep::Met;
        }
        match self.check(&facts.main).and_then(|()| self.check_groups(facts)) {
            Ok(()) => GoalStep::Do(self.commands(facts)),
            Err(error) if matches!(error.code(), Code::GroupBusy | Code::GroupUnavailable) => GoalStep::Wait(error),
            Err(error) => GoalStep::Refused(error),
        }
    }

    /// The error if the change does not complete in time; nothing unless more is known than that.
    pub fn late(&self, facts: &Facts<'_>) -> Option<Error> {
        let Goal::Removed(host) = self else { return None };
        match holder(facts, *host).filter(|_| !facts.main.has(*host)) {
            Some(group) => Some(Code::GroupBusy.error(format!(
                "host {} has left group 'main', but not yet group '{}': keep it running until `millrace cluster groups` no longer shows it",
                shown(*host),
                group.name
            ))),
            None => self.check_groups(facts).err(),
        }
    }

    /// Whether the change is complete.
    pub fn is_met(&self, facts: &Facts<'_>) -> bool {
        match self {
            Goal::Added(member) => facts.main.has(member.id),
            Goal::Removed(host) => !facts.main.has(*host) && holder(facts, *host).is_none(),
            Goal::Led(host) => facts.main.leader == *host,
        }
    }

    /// Why the change can never complete.
    fn check(&self, main: &GroupFacts) -> Result<()> {
        match self {
            Goal::Removed(host) if main.voters == [*host] => Err(only_voter(
                *host,
                MAIN_NAME,
                "if it is lost for good, `millrace cluster recover` makes another host the first of a new cluster",
            )),
            Goal::Led(host) if !main.voters.contains(host) => {
                let (host, group) = (shown(*host), &main.name);
                let detail = format!("host {host} is not a voter of group '{group}', so it cannot lead it");
                Err(Code::HostNotInCluster.error(detail))
            }
            _ => Ok(()),
        }
    }

    /// Why a host cannot leave yet: a group would be lost with it.
    fn check_groups(&self, facts: &Facts<'_>) -> Result<()> {
        let Goal::Removed(host) = self else { return Ok(()) };
        for (name, spec) in facts.directory.groups().filter(|(_, spec)| spec.hosts.contains(host)) {
            let give_up = || give_up(facts.directory, name, spec, *host);
            if spec.hosts.len() == 1 {
                return Err(only_voter(*host, name, &give_up()));
            }
            let group = facts.others.iter().find(|group| group.id == spec.id && group.leader != 0);
            let Some(GroupFacts { voters, .. }) = group else {
                let detail = format!("this host knows no leader of group '{name}'; {}", give_up());
                return Err(Code::GroupUnavailable.error(detail));
            };
            // Until the group has its new voters, it may need those that will be removed.
            if voters.len() != spec.hosts.len() || voters.iter().any(|voter| !spec.hosts.contains(voter)) {
                return Err(Code::GroupBusy.error(format!("the voters of group '{name}' are changing; try again")));
            }
            let others: Vec<&u64> = voters.iter().filter(|voter| *voter != host).collect();
            let answers = |other: &&&u64| ***other == facts.own || !facts.unreachable.contains(**other);
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

    /// The next step of the change. Refused and lost requests are repeated.
    fn commands(&self, facts: &Facts<'_>) -> Vec<GoalCommand> {
        let main = &facts.main;
        match self {
            Goal::Added(member) => vec![GoalCommand::Add(member.clone())],
            // The removed leader may not know of its removal, and would continue to lead.
            Goal::Removed(host) if !main.has(*host) => facts
                .others
                .iter()
                .filter(|group| group.leader == *host)
                .filter_map(|group| away(group, facts.own, *host))
                .collect(),
            // A leader that is to be removed first transfers leadership to another voter, if possible one that has caught up.
            Goal::Removed(host) if main.leader == *host => {
                let others = main.voters.iter().filter(|voter| *voter != host);
                let next = others.max_by_key(|voter| main.matched.get(voter));
                next.map(|next| GoalCommand::Transfer { group: main.id, to: *next }).into_iter().collect()
            }
            Goal::Removed(host) => vec![GoalCommand::Remove(*host)],
            Goal::Led(host) => vec![GoalCommand::Transfer { group: main.id, to: *host }],
        }
    }
}

/// Gives the leadership of a group to this host, or else to any other than the one that leaves.
fn away(group: &GroupFacts, own: u64, host: u64) -> Option<GoalCommand> {
    let here = group.voters.iter().find(|voter| **voter == own);
    let next = here.or_else(|| group.voters.iter().find(|voter| **voter != host))?;
    (*next != host).then_some(GoalCommand::Transfer { group: group.id, to: *next })
}

/// A group that still has the host, as far as is known here: it may need its vote.
fn holder<'f>(facts: &'f Facts<'_>, host: u64) -> Option<&'f GroupFacts> {
    let mut others = facts.others.iter().filter(|group| group.id != MAIN && (group.is_placed || host == facts.own));
    others.find(|group| group.has(host))
}

fn give_up(directory: &Directory, name: &str, spec: &GroupSpec, host: u64) -> String {
    let topics: Vec<&str> = directory.topics_of(spec.id).take(TOPICS_SHOWN_MAX).collect();
    let more = spec.topics.saturating_sub(topics.len() as u64);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let topics = if topics.is_empty() { "none".into() } else { topics.join(", ") };
    format!(
        "if its voters are lost for good, `millrace cluster rm {} --lose {name}` gives up the group and its topics with all records \
         ({topics}{more})",
        shown(host)
    )
}

fn only_voter(host: u64, group: &str, otherwise: &str) -> Error {
    Code::HostNotInCluster.error(format!(
        "host {} is the only voter of group '{group}', which would be lost with it; \
         while the host answers, `millrace cluster voters 3 --group {group}` adds voters; {otherwise}",
        shown(host)
    ))
}

fn shown(host: u64) -> String {
    format!("{host:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The group that the directory has, in which these hosts vote, or will.
    fn directory(hosts: &[u64]) -> Directory {
        let spec =
            GroupSpec { id: 2, founders: hosts.to_vec(), hosts: hosts.to_vec(), topics: 12, ..GroupSpec::default() };
        Directory::with("barn", spec, ["t"])
    }

    fn group(id: u32, name: &str, leader: u64, voters: &[u64]) -> GroupFacts {
        GroupFacts { id, name: name.into(), is_placed: true, leader, voters: voters.to_vec(), ..GroupFacts::default() }
    }

    /// Host 1 knows group `main` with these voters and leader, and `barn`.
    fn facts<'d>(leader: u64, voters: &[u64], barn: Option<GroupFacts>, directory: &'d Directory) -> Facts<'d> {
        let main = group(MAIN, MAIN_NAME, leader, voters);
        Facts { own: 1, main, others: barn.into_iter().collect(), directory, unreachable: BTreeSet::new() }
    }

    fn code(step: &GoalStep) -> (&'static str, Option<Code>) {
        match step {
            GoalStep::Met => ("met", None),
            GoalStep::Refused(error) => ("refused", Some(error.code())),
            GoalStep::Wait(error) => ("wait", Some(error.code())),
            GoalStep::Do(_) => ("do", None),
        }
    }

    fn transfer(group: u32, to: u64) -> GoalStep {
        GoalStep::Do(vec![GoalCommand::Transfer { group, to }])
    }

    #[test]
    fn a_host_is_added_until_the_group_has_it() {
        let (none, member) = (Directory::default(), Member { id: 4, ..Member::default() });
        let goal = Goal::Added(member.clone());
        assert_eq!(goal.step(&facts(1, &[1, 2], None, &none)), GoalStep::Do(vec![GoalCommand::Add(member)]));
        assert_eq!(goal.step(&facts(1, &[1, 2, 4], None, &none)), GoalStep::Met);
        let mut follows = facts(1, &[1, 2], None, &none);
        follows.main.learners = vec![4];
        assert_eq!((goal.step(&follows), goal.late(&follows)), (GoalStep::Met, None));
    }

    #[test]
    fn a_voter_is_led_to_and_nobody_else() {
        let none = Directory::default();
        assert_eq!(Goal::Led(2).step(&facts(1, &[1, 2], None, &none)), transfer(MAIN, 2));
        assert_eq!(Goal::Led(2).step(&facts(2, &[1, 2], None, &none)), GoalStep::Met);
        let step = Goal::Led(3).step(&facts(1, &[1, 2], None, &none));
        assert_eq!(code(&step), ("refused", Some(Code::HostNotInCluster)));
        assert_eq!(Goal::Led(3).late(&facts(1, &[1, 2], None, &none)), None);
    }

    #[test]
    fn a_host_leaves_the_first_group_after_its_leadership() {
        let none = Directory::default();
        let goal = Goal::Removed(3);
        assert_eq!(goal.step(&facts(1, &[1, 2, 3], None, &none)), GoalStep::Do(vec![GoalCommand::Remove(3)]));
        assert_eq!(goal.step(&facts(1, &[1, 2], None, &none)), GoalStep::Met);
        // The voter that has most of the log is next.
        let mut leads = facts(3, &[1, 2, 3], None, &none);
        leads.main.matched = [(1, 5), (2, 9), (3, 10)].into();
        assert_eq!(goal.step(&leads), transfer(MAIN, 2));
        assert_eq!(code(&goal.step(&facts(3, &[3], None, &none))), ("refused", Some(Code::HostNotInCluster)));
        let mut follows = facts(1, &[1, 2], None, &none);
        follows.main.learners = vec![3];
        assert_eq!(goal.step(&follows), GoalStep::Do(vec![GoalCommand::Remove(3)]));
    }

    #[test]
    fn a_host_stays_while_another_group_needs_it() {
        let (three, one) = (directory(&[1, 2, 3]), directory(&[3]));
        let barn = |leader, voters: &[u64]| Some(group(2, "barn", leader, voters));
        let goal = Goal::Removed(3);
        for (barn, directory, unreachable, expected) in [
            (barn(1, &[1, 2, 3]), &three, vec![], ("do", None)),
            (barn(1, &[1, 2, 3]), &three, vec![2], ("wait", Some(Code::GroupBusy))),
            // What is known about the host itself says nothing.
            (barn(1, &[1, 2, 3]), &three, vec![1], ("do", None)),
            (barn(0, &[1, 2, 3]), &three, vec![], ("wait", Some(Code::GroupUnavailable))),
            (None, &three, vec![], ("wait", Some(Code::GroupUnavailable))),
            (barn(1, &[1, 2, 4]), &three, vec![], ("wait", Some(Code::GroupBusy))),
            (barn(1, &[1, 2, 3, 4]), &three, vec![], ("wait", Some(Code::GroupBusy))),
            (barn(3, &[3]), &one, vec![], ("refused", Some(Code::HostNotInCluster))),
        ] {
            let known =
                Facts { unreachable: unreachable.into_iter().collect(), ..facts(1, &[1, 2, 3], barn, directory) };
            let step = goal.step(&known);
            assert_eq!(code(&step), expected, "{known:?}");
            let late = goal.late(&known).map(|error| error.code());
            assert_eq!(late, expected.1, "what it waited for is the error in the end");
        }
        let known = facts(1, &[1, 2, 3], None, &three);
        let GoalStep::Wait(error) = goal.step(&known) else { panic!("it waits") };
        assert!(error.detail().contains("--lose barn") && error.detail().contains("(t and 11 more)"), "{error}");
    }

    #[test]
    fn a_host_that_has_left_the_first_group_leads_no_other_and_is_waited_for() {
        let without = directory(&[1, 2]);
        let (goal, barn) = (Goal::Removed(3), |leader| group(2, "barn", leader, &[1, 2, 3]));
        let left = |group| facts(1, &[1, 2], Some(group), &without);
        assert_eq!(goal.step(&left(barn(3))), transfer(2, 1));
        assert_eq!(goal.step(&left(barn(2))), GoalStep::Do(Vec::new()));
        assert_eq!(goal.late(&left(barn(2))).map(|error| error.code()), Some(Code::GroupBusy));
        // This host does not vote there.
        assert_eq!(goal.step(&left(group(2, "barn", 3, &[2, 3]))), transfer(2, 2));
        assert_eq!(goal.step(&left(group(2, "barn", 3, &[3]))), GoalStep::Do(Vec::new()));
        // A replica that is no longer kept here hears nothing of it, unless it is the host's own.
        assert_eq!(goal.step(&left(GroupFacts { is_placed: false, ..barn(2) })), GoalStep::Met);
        let own = Facts { own: 3, ..left(GroupFacts { is_placed: false, ..barn(2) }) };
        assert_eq!(goal.step(&own), GoalStep::Do(Vec::new()));
    }
}
