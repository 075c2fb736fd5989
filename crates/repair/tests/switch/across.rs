//! What a repair with another namespace waits for before it is applied, and what it tells that namespace in the last moment.

use crate::{
    late::{A, A_BACK, AtEnd, B, B_AGAIN, B_IN, B_QUOTED, Hosts, Lines, does, work},
    world::{Replays, World, deliver},
};
use millrace_namespace::fence::Verdict;
use millrace_repair::{Phase, ask_apply, outcomes, repair, sent_page};
use millrace_wire::Code;
use std::{cell::Cell, sync::atomic::AtomicBool, thread};

/// Has both namespaces switch, and expects that they do.
fn is_applied(a: &World, lines: &mut Lines<'_>, number: u64) {
    work(a, lines);
    assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Applied);
    let never = AtomicBool::new(false);
    assert!((0..30).any(|_| !outcomes(&a.namespace, lines, &never).unwrap()));
}

/// Corrects the first record of `raw`, and applies the repair while a message that changes has not arrived; then it arrives.
fn wait_for_a_message(a: &World, b: &World, arrive: impl FnOnce()) {
    let none = World::new(&[]);
    let number = a.repair("raw", &[(1, "new")], &[B]);
    let (ended, is_over, never) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let hosts = Hosts { b, c: &none, b_ended: &ended };
    thread::scope(|scope| {
        let _end = AtEnd { flags: [&ended, &is_over], worlds: [b, &none] };
        scope.spawn(|| hosts.run(b, &ended, &is_over));
        let mut lines = Lines { hosts: &hosts, told: false, prepared: &|| () };
        work(a, &mut lines);
        assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Ready);
        ask_apply(&a.namespace, number).unwrap();
        let waits = a.drive(&mut Replays(&mut does), &mut lines, &never, &mut || ());
        assert_eq!(waits.map_err(|error| error.code()), Err(Code::RepairPeer));
        assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Applying);
        arrive();
        is_applied(a, &mut lines, number);
    });
}

#[test]
fn a_repair_waits_for_a_message_of_its_own_that_changes() {
    let (a, b) = (World::new(&["raw"]), World::new(&["in", "out"]));
    let (send, keep) = (a.function("send", "raw", &[B]), b.function("keep", "in", &[]));
    a.append("raw", "old");
    a.echo(&send, B_IN);
    wait_for_a_message(&a, &b, || {
        deliver(&a, &b, B);
        b.echo(&keep, "out");
    });
    assert_eq!((b.get("in", 1), b.get("out", 1)), ("new".to_owned(), "new".to_owned()));
}

#[test]
fn a_repair_waits_for_a_message_of_another_namespace_that_changes() {
    let (a, b) = (World::new(&["raw", "back", "out"]), World::new(&["in"]));
    let (send, keep) = (a.function("send", "raw", &[B]), a.function("keep", "back", &[]));
    let returns = b.function("return", "in", &[A]);
    a.append("raw", "old");
    a.echo(&send, B_IN);
    deliver(&a, &b, B);
    b.echo(&returns, A_BACK);
    wait_for_a_message(&a, &b, || {
        deliver(&b, &a, A);
        a.echo(&keep, "out");
    });
    assert_eq!((a.get("back", 1), a.get("out", 1)), ("new".to_owned(), "new".to_owned()));
}

#[test]
fn a_participant_hears_of_a_run_that_ended_after_it_was_told_last() {
    let (a, b) = (World::new(&["raw", "back", "live"]), World::new(&["in", "live", "out", "again", "quoted"]));
    let none = World::new(&[]);
    let (send, forward) = (a.function("send", "raw", &[B]), a.function("forward", "back", &[B]));
    let quote = a.function("quote", "live", &[B]);
    let (keep, answer) = (b.function("keep", "in", &[]), b.function("answer", "live", &[A]));
    a.append("raw", "old");
    a.echo(&send, B_IN);
    deliver(&a, &b, B);
    b.echo(&keep, "out");

    let number = a.repair("raw", &[(1, "new")], &[B]);
    let (ended, is_over, quoted) = (AtomicBool::new(false), AtomicBool::new(false), Cell::new(None));
    let hosts = Hosts { b: &b, c: &none, b_ended: &ended };
    // The initiator has learned that what came back changes, and what it has forwarded; its fence does not know it yet.
    let late = || {
        if sent_page(&a.namespace, number, 0).unwrap().sent.len() == 2
            && let Some(begun) = quoted.take()
        {
            assert_eq!(a.end(&begun, &[("back", 1)], &[(B_QUOTED, b"old")]), Verdict::Passes);
            deliver(&a, &b, B);
        }
    };
    thread::scope(|scope| {
        let _end = AtEnd { flags: [&ended, &is_over], worlds: [&b, &none] };
        scope.spawn(|| hosts.run(&b, &ended, &is_over));
        work(&a, &mut Lines { hosts: &hosts, told: false, prepared: &late });
        assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Ready);
        // The first namespace gets an answer meanwhile, made from what is replaced there, and forwards it.
        b.append("live", "go");
        assert_eq!(b.end(&b.begin(&answer), &[("out", 1)], &[(A_BACK, b"old")]), Verdict::Passes);
        deliver(&b, &a, A);
        a.echo(&forward, B_AGAIN);
        deliver(&a, &b, B);
        a.append("live", "go");
        quoted.set(Some(a.begin(&quote)));
        ask_apply(&a.namespace, number).unwrap();
        let mut lines = Lines { hosts: &hosts, told: false, prepared: &late };
        is_applied(&a, &mut lines, number);
    });
    assert!(quoted.take().is_none(), "the run has ended while the repair was applied");
    assert_eq!((a.get("back", 1), b.get("again", 1)), ("new".to_owned(), "new".to_owned()));
    assert_eq!(b.get("quoted", 1), "new");
}
