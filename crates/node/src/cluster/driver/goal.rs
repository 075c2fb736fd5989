//! Collects what a goal has to know, and executes its commands.

use crate::cluster::{MAIN, Shared, groups::Group, locked};
use millrace_group::{
    Replica,
    goal::{Facts, Goal, GoalCommand, GoalStep, GroupFacts},
};
use millrace_wire::Error;
use std::sync::{Arc, atomic::Ordering};

/// Takes the next step towards a goal of a group, whose replica is locked; the state before it.
pub(super) fn pursue(shared: &Shared, group: &Group, replica: &mut Replica, goal: &Goal) -> GoalStep {
    let step = look(shared, group, replica, |facts| goal.step(facts));
    let GoalStep::Do(commands) = &step else { return step };
    for command in commands {
        match command {
            // Refused and lost requests are repeated.
            GoalCommand::Add(member) => drop(replica.add(member)),
            GoalCommand::Remove(host) => drop(replica.remove(*host)),
            GoalCommand::Transfer { group: id, to } if *id == group.id => replica.transfer(*to),
            GoalCommand::Transfer { group: id, to } => {
                if let Some(other) = shared.group(*id) {
                    locked(&other.replica).transfer(*to);
                }
            }
        }
    }
    step
}

/// Whether a goal is met.
pub(super) fn is_met(shared: &Shared, group: &Group, replica: &Replica, goal: &Goal) -> bool {
    look(shared, group, replica, |facts| goal.is_met(facts))
}

/// The error of a goal that is not met in time; `undecided` unless more is known.
pub(super) fn late(shared: &Shared, group: &Group, replica: &Replica, goal: &Goal, undecided: Error) -> Error {
    look(shared, group, replica, |facts| goal.late(facts)).unwrap_or(undecided)
}

/// What this host knows of a group, whose replica is locked, and of its cluster.
fn look<R>(shared: &Shared, group: &Group, replica: &Replica, at: impl FnOnce(&Facts<'_>) -> R) -> R {
    let of = |group: &Group, replica: &Replica| -> GroupFacts {
        replica.facts(group.id, &group.name, group.is_placed.load(Ordering::Relaxed))
    };
    let others = shared.kept().into_iter().filter(|other| other.id != MAIN && other.id != group.id);
    let others: Vec<GroupFacts> = others.map(|other: Arc<Group>| of(&other, &locked(&other.replica))).collect();
    let voters = others.iter().flat_map(|other| &other.voters).copied();
    let unreachable = voters.filter(|voter| shared.post.trouble(*voter).is_some()).collect();
    let (own, main, directory) = (shared.facts.host, of(group, replica), replica.topics().directory());
    at(&Facts { own, main, others, directory, unreachable })
}
