//! The one order of events: the same whichever way journals are merged, and every cause before its effects.

use crate::world::{Entry, World, table};
use millrace_causality::{Cause, History, Violation};
use millrace_wire::{EventId, Hlc, NamespaceId};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn ids(history: &History) -> Vec<EventId> {
    history.order().map(|place| history.id(place)).collect()
}

proptest! {
    #[test]
    fn journals_merge_the_same_whatever_their_order(
        seed: u64, namespaces in 1usize..5, steps in 1usize..120, tampered in prop::option::of(0usize..40),
    ) {
        let mut world = World::grown(seed, namespaces, steps);
        // A clock that goes back is reported, and the journals merge all the same.
        for namespace in &mut world.namespaces {
            if let Some(entry) = tampered.and_then(|at| namespace.entries.get_mut(at)) {
                entry.hlc = Hlc::from_bits(entry.hlc.get() / 2);
            }
        }
        let merged = ids(&world.history());
        let mut tables = world.tables();
        tables.reverse();
        prop_assert_eq!(&ids(&History::new(tables)), &merged);
        let mut tables = world.tables();
        tables.rotate_left(namespaces / 2);
        prop_assert_eq!(&ids(&History::new(tables)), &merged);
        // What two of them merge to is what all merge to, without the others: so it does not matter which are merged first.
        let mut tables = world.tables();
        tables.truncate(2);
        let kept: HashSet<NamespaceId> = tables.iter().map(|table| table.namespace()).collect();
        let of_two: Vec<EventId> = merged.iter().copied().filter(|id| kept.contains(&id.namespace().unwrap())).collect();
        prop_assert_eq!(ids(&History::new(tables)), of_two);
    }

    #[test]
    fn every_cause_stands_before_its_effects(seed: u64, namespaces in 1usize..5, steps in 1usize..120) {
        let history = World::grown(seed, namespaces, steps).history();
        let mut seen = HashSet::new();
        for place in history.order() {
            if let Cause::Known(cause) = history.cause(place) {
                prop_assert!(seen.contains(&cause), "{} before its cause", history.id(place));
            }
            seen.insert(place);
        }
        prop_assert_eq!(seen.len() as u64, history.len());
        prop_assert_eq!(history.violations(10), (Vec::new(), 0));
    }

    #[test]
    fn ids_lead_to_their_events_and_back(seed: u64, steps in 1usize..120, dropped in 0usize..100) {
        let world = World::grown(seed, 2, steps);
        for namespace in &world.namespaces {
            let entries = after_retention(&namespace.entries, dropped);
            let built = table(namespace.id, &entries);
            prop_assert_eq!(built.len() as usize, entries.iter().map(|entry| entry.id).collect::<HashSet<_>>().len());
            for entry in &entries {
                let row = built.find(entry.id).expect("it has the entry");
                prop_assert_eq!(built.id(row), entry.id);
                prop_assert!(built.row(row).is(entry.kind) && built.row(row).hlc() == entry.hlc);
                // Positions are 64 apart in these tables.
                let stands = entries.iter().position(|other| other.id == entry.id && !(other.carried && is_twice(&entries, other)));
                let near = built.position_near(row) / 64;
                let stands = stands.expect("it is one of them") as u64;
                prop_assert!((near..near + 64).contains(&stands), "entry {stands} is looked for from {near} on");
                if entry.kind == millrace_journal::Kind::Append {
                    prop_assert_eq!(built.record(entry.subject, entry.seqno), Some(row));
                }
            }
            let all: HashMap<EventId, &Entry> = entries.iter().map(|entry| (entry.id, entry)).collect();
            let history = History::new(vec![built]);
            for place in history.order() {
                let expected = all[&history.id(place)].cause;
                let found = match history.cause(place) {
                    Cause::Outside => EventId::NONE,
                    Cause::Known(cause) => history.id(cause),
                    Cause::Unknown(id) => id,
                };
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(history.violations(1).1, 0);
        }
    }

    #[test]
    fn an_event_that_two_journals_have_counts_once(seed: u64, steps in 1usize..120, copied in 0usize..200) {
        let world = World::grown(seed, 2, steps);
        let first = &world.namespaces[0];
        let mut tables = world.tables();
        tables.push(table(first.id, &first.entries[..copied.min(first.entries.len())]));
        let history = History::new(tables);
        prop_assert_eq!(ids(&history), ids(&world.history()));
        prop_assert_eq!(history.violations(1).1, 0);
    }
}

/// Whether the original of a copy is there, too.
fn is_twice(entries: &[Entry], copy: &Entry) -> bool {
    entries.iter().any(|entry| entry.id == copy.id && !entry.carried)
}

/// The entries that are left when retention has dropped the oldest: some of those are carried to where the journal was then.
fn after_retention(entries: &[Entry], dropped: usize) -> Vec<Entry> {
    let (gone, mut kept) =
        (&entries[..dropped.min(entries.len() / 2)], entries[dropped.min(entries.len() / 2)..].to_vec());
    let at = kept.len() / 2;
    let copies = gone.iter().step_by(2).chain(kept.first()).map(|entry| Entry { carried: true, ..entry.clone() });
    let copies: Vec<Entry> = copies.collect();
    kept.splice(at..at, copies);
    kept
}

#[test]
fn what_is_in_the_wrong_order_is_named_with_both_events() {
    let world = World::grown(5, 2, 200);
    let tampered = |change: &dyn Fn(&mut Entry), at: usize| {
        let mut entries = world.namespaces[0].entries.clone();
        change(&mut entries[at]);
        History::new(vec![
            table(world.namespaces[0].id, &entries),
            table(world.namespaces[1].id, &world.namespaces[1].entries),
        ])
    };
    let back = tampered(&|entry| entry.hlc = Hlc::from_bits(1), 20);
    let (violations, all) = back.violations(10);
    assert!(
        all >= 1
            && violations.iter().any(|violation| matches!(violation,
        Violation::ClockWentBack { before, after } if (before.row, after.row) == (19, 20))),
        "{violations:?}"
    );
    // Its events keep the order of the journal all the same.
    let order: Vec<u32> = back.order().filter(|place| place.table == 0).map(|place| place.row).collect();
    assert!(order.is_sorted());

    let entries = &world.namespaces[0].entries;
    let caused =
        entries.iter().position(|entry| !entry.cause.is_none() && !entry.claimed).expect("something is caused");
    let later = entries[caused + 5].id;
    let (violations, all) = tampered(&|entry| entry.cause = later, caused).violations(10);
    assert_eq!(all, 1, "{violations:?}");
    assert!(matches!(violations[0], Violation::CauseBehindEffect { cause, effect }
        if (cause.row, effect.row) == (caused as u32 + 5, caused as u32)));

    let from_elsewhere = world.namespaces[1].entries.last().expect("it has entries").id;
    let (violations, all) = tampered(&|entry| entry.cause = from_elsewhere, caused).violations(10);
    assert_eq!(all, 1, "{violations:?}");
    assert!(matches!(violations[0], Violation::CauseBehindEffect { cause, effect }
        if (cause.table, effect.table, effect.row) == (1, 0, caused as u32)));

    let changed = Entry { seqno: 99, ..entries[caused].clone() };
    let mut copy = entries.clone();
    copy[caused] = changed;
    let id = world.namespaces[0].id;
    let history = History::new(vec![table(id, entries), table(id, &copy)]);
    assert!(history.violations(10).0.iter().any(|violation| matches!(violation, Violation::Differs { .. })));
}

#[test]
fn an_event_takes_at_most_48_bytes() {
    for namespaces in [1, 4] {
        let world = World::grown(3, namespaces, 40_000);
        for table in world.tables() {
            let each = table.bytes() as f64 / f64::from(table.len());
            assert!(table.len() > 10_000 && each <= 48.0, "{each} bytes for each of {}", table.len());
        }
    }
}
