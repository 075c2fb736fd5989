//! Trees of causes and effects against the closure of all pairs.

use crate::world::{Entry, World, table};
use millrace_causality::{History, Link, Tree, TreeLimits};
use millrace_journal::Kind;
use millrace_wire::EventId;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

pub const ALL: TreeLimits = TreeLimits { branches_max: usize::MAX, below_max: usize::MAX, depth_max: usize::MAX };

fn is_shown(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Append | Kind::Trigger)
}

/// Every pair of a cause and its effect, among records and runs.
fn pairs(world: &World) -> Vec<(EventId, EventId)> {
    let all: HashMap<EventId, &Entry> =
        world.namespaces.iter().flat_map(|namespace| &namespace.entries).map(|entry| (entry.id, entry)).collect();
    let mut pairs = Vec::new();
    for namespace in &world.namespaces {
        for entry in &namespace.entries {
            if is_shown(entry) && all.get(&entry.cause).is_some_and(|cause| is_shown(cause)) {
                pairs.push((entry.cause, entry.id));
            }
            for read in entry.reads.iter().filter(|read| read.what == 0) {
                let records = namespace.entries.iter().filter(|record| {
                    record.kind == Kind::Append
                        && record.subject == read.log
                        && (read.from..read.from + read.count).contains(&record.seqno)
                });
                pairs.extend(records.map(|record| (record.id, entry.cause)));
            }
        }
    }
    pairs
}

pub fn closure(pairs: &[(EventId, EventId)], root: EventId) -> BTreeSet<EventId> {
    let mut found = BTreeSet::from([root]);
    loop {
        let new = pairs.iter().filter(|(cause, effect)| found.contains(cause) && !found.contains(effect));
        let new: Vec<EventId> = new.map(|(_, effect)| *effect).collect();
        if new.is_empty() {
            return found;
        }
        found.extend(new);
    }
}

fn ids(history: &History, tree: &Tree) -> BTreeSet<EventId> {
    tree.branches.iter().map(|branch| history.id(branch.place)).collect()
}

/// A tree is one: every branch hangs on one before it, which lists it once and is its cause, or its effect.
fn check(history: &History, tree: &Tree, pairs: &[(EventId, EventId)]) {
    for (at, branch) in tree.branches.iter().enumerate() {
        assert_eq!(at == 0, branch.link == Link::Root);
        if at > 0 {
            let pair = (history.id(tree.branches[branch.above].place), history.id(branch.place));
            assert!(pairs.contains(&pair), "{} does not lead to {}", pair.0, pair.1);
            assert!(branch.above < at);
            let listed = tree.branches[branch.above].below.iter().filter(|below| **below == at);
            assert_eq!(listed.count(), 1);
        }
    }
    let left_out: u64 = tree.branches.iter().map(|branch| branch.more).sum();
    assert_eq!(tree.branches.len() as u64 + left_out, tree.records + tree.runs);
}

proptest! {
    #[test]
    fn trees_have_all_that_an_event_caused_or_came_from(
        seed: u64, namespaces in 1usize..4, steps in 1usize..80, at: prop::sample::Index, most in 1usize..20, below in 1usize..5,
        depth in 0usize..6,
        copied in 0usize..200, copy_first in any::<bool>(),
    ) {
        let world = World::grown(seed, namespaces, steps);
        let mut tables = world.tables();
        // A copy that lags behind, such as a backup, changes nothing.
        let first = &world.namespaces[0];
        let copy = table(first.id, &first.entries[..copied.min(first.entries.len())]);
        if copy_first { tables.insert(0, copy) } else { tables.push(copy) };
        let history = History::new(tables);
        let shown: Vec<&Entry> =
            world.namespaces.iter().flat_map(|namespace| &namespace.entries).filter(|entry| is_shown(entry)).collect();
        prop_assume!(!shown.is_empty());
        let root = at.get(&shown).id;
        let place = history.find(root).expect("it is there");
        let effects = pairs(&world);
        let causes: Vec<(EventId, EventId)> = effects.iter().map(|(cause, effect)| (*effect, *cause)).collect();

        let tree = Tree::effects(&history, place, ALL).expect("it is a record or a run");
        check(&history, &tree, &effects);
        prop_assert_eq!(ids(&history, &tree), closure(&effects, root));
        let tree = Tree::causes(&history, place, ALL).expect("it is a record or a run");
        check(&history, &tree, &causes);
        prop_assert_eq!(ids(&history, &tree), closure(&causes, root));
        prop_assert_eq!(tree.unknown, 0);

        let limits = TreeLimits { branches_max: most, below_max: below, depth_max: depth };
        for (bounded, pairs) in [
            (Tree::effects(&history, place, limits).unwrap(), &effects),
            (Tree::causes(&history, place, limits).unwrap(), &causes),
        ] {
            check(&history, &bounded, pairs);
            let whole = closure(pairs, root);
            prop_assert!(bounded.branches.len() <= most);
            prop_assert!(bounded.branches.iter().all(|branch| branch.below.len() <= below));
            let deep = |at: usize| std::iter::successors(Some(at), |at| (*at > 0).then(|| bounded.branches[*at].above)).count();
            prop_assert!((0..bounded.branches.len()).all(|at| deep(at) <= depth + 1));
            prop_assert_eq!(bounded.records + bounded.runs, whole.len() as u64, "what is left out is counted");
        }
    }
}
