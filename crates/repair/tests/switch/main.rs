//! Runs that end around the switch of a repair: each uses a record that the repair replaces, and nothing keeps it back when it is published.

mod across;
mod defences;
mod late;
mod world;

use millrace_namespace::fence::Verdict;
use millrace_repair::{NoPeers, Phase, Progress, abandon, ask_apply, repair};
use millrace_runtime::LogCalls;
use millrace_wire::{Code, Result};
use std::{cell::Cell, sync::atomic::AtomicBool, thread, time::Duration};
use world::{Replays, World};

/// Appends its record to `out`.
fn echo(_: &str, record: &[u8], calls: &mut dyn LogCalls) -> Result<()> {
    calls.append("out", record).map(drop)
}

#[test]
fn a_run_that_ends_while_the_switch_waits_for_the_lock_is_replayed_before_it() {
    let world = World::new(&["raw", "out"]);
    let namespace = &world.namespace;
    let function = world.function("f", "raw", &[]);
    // Its attempt begins before the repair.
    world.append("raw", "old");
    let begun = world.begin(&function);
    let number = world.repair("raw", &[(1, "new")], &[]);
    world.work(&mut echo, &mut || ());
    assert_eq!(repair(namespace, number).unwrap().phase, Phase::Ready);
    ask_apply(namespace, number).unwrap();

    world.end_before_the_host_has_the_lock(&begun, &[("out", b"old")], || world.work(&mut echo, &mut || ()));
    assert_eq!(repair(namespace, number).unwrap().phase, Phase::Applied);
    assert_eq!(world.get("raw", 1), "new");
    assert_eq!(world.get("out", 1), "new", "what the run left is made from the new record");
}

/// Appends its record to the log behind its own.
fn chain(name: &str, record: &[u8], calls: &mut dyn LogCalls) -> Result<()> {
    calls.append(if name == "first" { "middle" } else { "last" }, record).map(drop)
}

#[test]
fn a_run_from_before_the_switch_runs_again_if_it_used_what_was_replayed_in_the_last_moment() {
    let world = World::new(&["raw", "middle", "last"]);
    let (first, second) = (world.function("first", "raw", &[]), world.function("second", "middle", &[]));
    world.append("raw", "a");
    world.append("raw", "b");
    let number = world.repair("raw", &[(1, "A"), (2, "B")], &[]);
    world.work(&mut chain, &mut || ());
    world.echo(&first, "middle");
    world.echo(&second, "last");
    let late = world.begin(&first);
    ask_apply(&world.namespace, number).unwrap();
    let (replayed, begun) = (Cell::new(0), Cell::new(None));
    world.work(&mut chain, &mut || {
        replayed.set(replayed.get() + 1);
        // Everything is replayed; the fence is not up yet, and is raised for what is known to be replaced.
        if replayed.get() == 2 {
            assert_eq!(world.end(&late, &[], &[("middle", b"b")]), Verdict::Passes);
            begun.set(Some(world.begin(&second)));
        }
    });
    assert_eq!(repair(&world.namespace, number).unwrap().phase, Phase::Applied);
    assert_eq!((world.get("middle", 1), world.get("middle", 2)), ("A".to_owned(), "B".to_owned()));
    let begun = begun.take().unwrap();
    assert_eq!(begun.payload, b"b");
    assert_eq!(world.end(&begun, &[], &[("last", b"b")]), Verdict::Again);
    world.echo(&second, "last");
    assert_eq!((world.get("last", 1), world.get("last", 2)), ("A".to_owned(), "B".to_owned()));
}

#[test]
fn a_replayed_run_has_the_logs_that_had_these_names_when_it_ran() {
    let world = World::new(&["raw", "out"]);
    let (namespace, out) = (&world.namespace, "out".parse().unwrap());
    let function = world.function("f", "raw", &[]);
    world.append("raw", "old");
    world.echo(&function, "out");
    namespace.remove_log(&out).unwrap();
    namespace.create_log(&out, 100).unwrap();
    world.append("raw", "other");
    world.echo(&function, "out");
    let number = world.repair("raw", &[(1, "new")], &[]);
    world.work(&mut echo, &mut || ());
    let found = repair(namespace, number).unwrap();
    assert_eq!((found.phase, found.error), (Phase::Ready, None));
    ask_apply(namespace, number).unwrap();
    world.work(&mut echo, &mut || ());
    assert_eq!(repair(namespace, number).unwrap().phase, Phase::Applied);
    assert_eq!((world.get("raw", 1), world.get("out", 1)), ("new".to_owned(), "other".to_owned()));
}

/// A namespace whose function has run for so many records.
fn echoed(records: u64) -> World {
    let world = World::new(&["raw", "out"]);
    let function = world.function("f", "raw", &[]);
    for _ in 0..records {
        world.append("raw", "old");
        world.echo(&function, "out");
    }
    world
}

#[test]
fn a_repair_that_is_given_up_while_it_is_replayed_replays_no_further_run() {
    let world = echoed(5);
    let corrections: Vec<(u64, &str)> = (1..=5).map(|seqno| (seqno, "new")).collect();
    let number = world.repair("raw", &corrections, &[]);
    let (runs, never) = (Cell::new(0), AtomicBool::new(false));
    let mut does = |name: &str, record: &[u8], calls: &mut dyn LogCalls| {
        runs.set(runs.get() + 1);
        if runs.get() == 2 {
            abandon(&world.namespace, number).unwrap();
        }
        echo(name, record, calls)
    };
    let done = world.drive(&mut Replays(&mut does), &mut NoPeers, &never, &mut || ());
    assert_eq!(done.unwrap_err().code(), Code::RepairPhase);
    assert_eq!((runs.get(), repair(&world.namespace, number).unwrap().phase), (2, Phase::Abandoned));
    // The next one need not wait for it.
    let next = world.repair("raw", &[(1, "newer")], &[]);
    world.work(&mut echo, &mut || ());
    assert_eq!(repair(&world.namespace, next).unwrap().phase, Phase::Ready);
}

#[test]
fn a_replay_that_takes_long_says_how_far_it_is() {
    let world = echoed(3);
    let number = world.repair("raw", &[(1, "new"), (2, "new"), (3, "new")], &[]);
    let (runs, seen) = (Cell::new(0), Cell::new(None));
    let mut does = |name: &str, record: &[u8], calls: &mut dyn LogCalls| {
        runs.set(runs.get() + 1);
        match runs.get() {
            1 => thread::sleep(Duration::from_millis(2500)),
            2 => seen.set(repair(&world.namespace, number).unwrap().progress),
            _ => {}
        }
        echo(name, record, calls)
    };
    world.work(&mut does, &mut || ());
    assert_eq!(seen.get(), Some(Progress { examined: 1, runs: 3 }));
    let found = repair(&world.namespace, number).unwrap();
    assert_eq!((found.phase, found.progress, found.counts.replayed), (Phase::Ready, None, 3));
}
