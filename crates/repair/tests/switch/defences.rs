//! Checks of a repair that no other test covers: each of these tests fails without one of them.

use crate::{
    late::{B, B_IN},
    world::{Replays, World, deliver},
};
use millrace_namespace::{
    Namespace,
    admission::{Publish, Room, Stage},
    fence::Verdict,
    names::log_name,
};
use millrace_repair::{
    Correction, NoPeers, PartAsk, PartOf, Phase, Request, Step, abandon, ask_apply, open, part, repair,
};
use millrace_runtime::HostCalls;
use millrace_wire::{Code, Result};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Appends a record of one byte twice, to its own log.
fn double(_: &str, record: &[u8], calls: &mut dyn HostCalls) -> Result<()> {
    if record.len() == 1 { calls.append("raw", &record.repeat(2)).map(drop) } else { Ok(()) }
}

#[test]
fn a_corrected_record_stays_whatever_its_replayed_run_leaves() {
    let world = World::new(&["raw"]);
    let function = world.function("double", "raw", &[]);
    world.append("raw", "a");
    let first = world.begin(&function);
    assert_eq!(world.end(&first, &[], &[("raw", b"aa")]), Verdict::Passes);
    let second = world.begin(&function);
    assert_eq!(world.end(&second, &[], &[]), Verdict::Passes);
    let number = world.repair("raw", &[(1, "b"), (2, "right")], &[]);
    world.work(&mut double, &mut || ());
    ask_apply(&world.namespace, number).unwrap();
    world.work(&mut double, &mut || ());
    assert_eq!(repair(&world.namespace, number).unwrap().phase, Phase::Applied);
    assert_eq!((world.get("raw", 1), world.get("raw", 2)), ("b".to_owned(), "right".to_owned()));
}

/// Copies a record into another log, as a relay within the namespace does.
fn copy(namespace: &Namespace, from: &str, seqno: u64, to: &str) {
    let mut payload = Vec::new();
    let cause = namespace.journal().get(&namespace.log(from).unwrap(), seqno, &mut payload).unwrap().id;
    let inbox = log_name(&format!("_inbox/{}/relay/1/1", namespace.journal().namespace()));
    let copied = namespace.journal().commit(|tx| {
        if tx.catalog().log(&inbox).is_none() {
            tx.create_log(&inbox, 4)?;
        }
        let to = tx.catalog().log(to).cloned().unwrap();
        let stage = Stage { cause, ordinal: 0, room: Room::Outside, named: None, ending: None };
        Publish::new(namespace, tx).append(tx, &to, &payload, stage)
    });
    copied.unwrap();
}

/// `keep` appends its record; `compare` does, too, and appends a second one if the copy of `keep`'s record differs.
fn compared(name: &str, record: &[u8], calls: &mut dyn HostCalls) -> Result<()> {
    if name == "keep" {
        return calls.append("kept", record).map(drop);
    }
    let is_same = calls.get("copy", 1)? == record;
    calls.append("out", record)?;
    if is_same { Ok(()) } else { calls.append("out", b"differs").map(drop) }
}

#[test]
fn what_a_run_added_when_it_was_replayed_too_early_is_not_appended() {
    let world = World::new(&["raw", "kept", "copy", "out"]);
    let (keep, compare) = (world.function("keep", "raw", &[]), world.function("compare", "raw", &[]));
    world.append("raw", "a");
    world.echo(&keep, "kept");
    copy(&world.namespace, "kept", 1, "copy");
    let begun = world.begin(&compare);
    assert_eq!(world.end(&begun, &[("copy", 1)], &[("out", b"a")]), Verdict::Passes);
    let request = Request {
        log: "raw".parse().unwrap(),
        corrections: vec![Correction { seqno: 1, value: Some(b"b".to_vec()) }],
        reason: String::new(),
        accept_unknown: false,
        append_new: true,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    let number = open(&world.namespace, request).unwrap();
    // The copy is corrected after both runs were replayed; then the second one is replayed again.
    let mut runs = 0;
    world.work(&mut compared, &mut || runs += 1);
    assert_eq!(runs, 3);
    ask_apply(&world.namespace, number).unwrap();
    world.work(&mut compared, &mut || ());
    let found = repair(&world.namespace, number).unwrap();
    assert_eq!((found.phase, found.counts.appended), (Phase::Applied, 0));
    assert_eq!((world.get("copy", 1), world.get("out", 1)), ("b".to_owned(), "b".to_owned()));
    assert_eq!(world.namespace.log("out").unwrap().latest(), 1);
}

#[test]
fn a_repair_is_not_applied_while_a_streamed_run_that_may_have_used_it_is_in_progress() {
    let world = World::new(&["raw", "out"]);
    let function = world.function("f", "raw", &[]);
    world.append("raw", "old");
    let _begun = world.begin_as(&function, true);
    let number = world.repair("raw", &[(1, "new")], &[]);
    let mut nothing = |_: &str, _: &[u8], _: &mut dyn HostCalls| Ok(());
    world.work(&mut nothing, &mut || ());
    ask_apply(&world.namespace, number).unwrap();
    world.work(&mut nothing, &mut || ());
    let found = repair(&world.namespace, number).unwrap();
    assert_eq!(found.phase, Phase::Stopped);
    assert_eq!(found.error.unwrap().0, Code::RepairUnsupported.id());
    assert_eq!(world.get("raw", 1), "old");
}

#[test]
fn a_part_that_has_promised_to_switch_is_given_up_only_by_its_initiator() {
    let world = World::new(&["raw"]);
    let (namespace, stop) = (&world.namespace, AtomicBool::new(false));
    let own = namespace.journal().namespace().to_string();
    let ask = |ask: Step| {
        let part_of = PartOf { namespace: "00000000000a".into(), repair: 7 };
        part(namespace, PartAsk { part_of, ask })
    };
    let (reason, append_new, undo, with, run_external) = (String::new(), false, None, vec![own], Vec::new());
    let number = ask(Step::Join { reason, append_new, undo, with, run_external }).unwrap().repair;
    let phase = || repair(namespace, number).unwrap().phase;
    let mut nothing = |_: &str, _: &[u8], _: &mut dyn HostCalls| Ok(());
    ask(Step::Replay).unwrap();
    world.work(&mut nothing, &mut || ());
    assert_eq!(phase(), Phase::Ready);
    ask(Step::Commit).expect_err("it has not promised anything");
    ask(Step::Prepare).unwrap();
    thread::scope(|scope| {
        // The host waits for the decision.
        scope.spawn(|| world.drive(&mut Replays(&mut nothing), &mut NoPeers, &stop, &mut || ()));
        let since = Instant::now();
        while phase() == Phase::Preparing && since.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(5));
        }
        let refused = abandon(namespace, number).map_err(|error| error.code());
        let after = phase();
        stop.store(true, Ordering::Release);
        namespace.journal().wake();
        assert_eq!((refused, after), (Err(Code::RepairPart), Phase::Prepared));
    });
    assert_eq!(phase(), Phase::Prepared, "its host has ended, and the promise holds");
    assert_eq!(ask(Step::Abort).unwrap().phase, Phase::Abandoned);
}

#[test]
fn a_part_has_replayed_whatever_ended_before_it_promises_to_switch() {
    let (a, b) = (World::new(&["raw"]), World::new(&["in", "out"]));
    let (send, function) = (a.function("send", "raw", &[B]), b.function("f", "in", &[]));
    let (namespace, stop) = (&b.namespace, AtomicBool::new(false));
    let part_of = PartOf { namespace: a.namespace.journal().namespace().to_string(), repair: 7 };
    let ask = |ask: Step| part(namespace, PartAsk { part_of: part_of.clone(), ask }).unwrap();
    a.append("raw", "old");
    a.echo(&send, B_IN);
    let id = deliver(&a, &b, B)[0];
    let begun = b.begin(&function);
    let mut keep = |_: &str, record: &[u8], calls: &mut dyn HostCalls| calls.append("out", record).map(drop);

    let (reason, append_new, undo, run_external) = (String::new(), false, None, Vec::new());
    let with = vec![namespace.journal().namespace().to_string()];
    let number = ask(Step::Join { reason, append_new, undo, with, run_external }).repair;
    let seeds = serde_json::json!({ "step": "seeds", "seeds": [{ "id": id.to_string(), "data": "new" }] });
    ask(serde_json::from_value(seeds).unwrap());
    ask(Step::Replay);
    b.work(&mut keep, &mut || ());
    assert_eq!(repair(namespace, number).unwrap().phase, Phase::Ready);
    ask(Step::Prepare);
    let mut promised = None;
    b.end_before_the_host_has_the_lock(&begun, &[("out", b"old")], || {
        thread::scope(|scope| {
            scope.spawn(|| b.drive(&mut Replays(&mut keep), &mut NoPeers, &stop, &mut || ()));
            let (found, since) = (|| repair(namespace, number).unwrap(), Instant::now());
            while found().phase == Phase::Preparing && since.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(5));
            }
            promised = Some(found());
            stop.store(true, Ordering::Release);
            namespace.journal().wake();
        });
    });
    let promised = promised.unwrap();
    assert_eq!((promised.phase, promised.counts.replayed, promised.counts.replaced), (Phase::Prepared, 1, 2));
}

#[test]
fn a_copy_that_is_made_in_the_last_moment_before_a_switch_is_corrected() {
    let world = World::new(&["raw", "out", "copy"]);
    let function = world.function("f", "raw", &[]);
    world.append("raw", "old");
    let begun = world.begin(&function);
    let number = world.repair("raw", &[(1, "new")], &[]);
    let mut keep = |_: &str, record: &[u8], calls: &mut dyn HostCalls| calls.append("out", record).map(drop);
    world.work(&mut keep, &mut || ());
    assert_eq!(world.end(&begun, &[], &[("out", b"old")]), Verdict::Passes);
    ask_apply(&world.namespace, number).unwrap();
    // After the run above is replayed, and before the fence is up.
    let mut copies = 0;
    world.work(&mut keep, &mut || {
        copy(&world.namespace, "raw", 1, "copy");
        copies += 1;
    });
    assert_eq!((copies, repair(&world.namespace, number).unwrap().phase), (1, Phase::Applied));
    assert_eq!((world.get("out", 1), world.get("copy", 1)), ("new".to_owned(), "new".to_owned()));
}
