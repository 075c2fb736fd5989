//! Checks of a repair that no other test covers: each of these tests fails without one of them.

use crate::world::{Replays, World};
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
