//! Checks of a repair that no other test covers: each of these tests fails without one of them.

use crate::{
    late::{B, B_IN},
    world::{Begun, Replays, World, deliver},
};
use millrace_journal::Transaction;
use millrace_namespace::{
    Namespace,
    admission::{Publish, Room, Stage},
    fence::Verdict,
    names::{REPAIRS, internal, log_name, note},
};
use millrace_repair::{
    Correction, NoPeers, PartAsk, PartOf, Phase, Repair, Request, Step, abandon, ask_apply, open, part, repair,
};
use millrace_runtime::LogCalls;
use millrace_wire::{Code, Result};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Appends a record of one byte twice, to its own log.
fn double(_: &str, record: &[u8], calls: &mut dyn LogCalls) -> Result<()> {
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
fn compared(name: &str, record: &[u8], calls: &mut dyn LogCalls) -> Result<()> {
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
    let mut nothing = |_: &str, _: &[u8], _: &mut dyn LogCalls| Ok(());
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
        let part_of = PartOf { namespace: "00000000000a".into(), repair: 7, at_us: None };
        part(namespace, PartAsk { part_of, ask })
    };
    let (reason, append_new, undo, with, run_external) = (String::new(), false, None, vec![own], Vec::new());
    let number = ask(Step::Join { reason, append_new, undo, undone: None, with, run_external }).unwrap().repair;
    let phase = || repair(namespace, number).unwrap().phase;
    let mut nothing = |_: &str, _: &[u8], _: &mut dyn LogCalls| Ok(());
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

/// A namespace that takes part in a repair of another one, whose record it was sent; its run for that record is in progress, and it has to
/// promise to switch.
struct Part {
    b: World,
    number: u64,
    /// The record that was sent.
    id: String,
    begun: Begun,
}

impl Part {
    fn new() -> Self {
        let (a, b) = (World::new(&["raw"]), World::new(&["in", "out"]));
        let (send, function) = (a.function("send", "raw", &[B]), b.function("f", "in", &[]));
        let part_of = PartOf { namespace: a.namespace.journal().namespace().to_string(), repair: 7, at_us: None };
        let ask = |ask: Step| part(&b.namespace, PartAsk { part_of: part_of.clone(), ask }).unwrap();
        a.append("raw", "old");
        a.echo(&send, B_IN);
        let id = deliver(&a, &b, B)[0].to_string();
        let begun = b.begin(&function);

        let (reason, append_new, undo, run_external) = (String::new(), false, None, Vec::new());
        let with = vec![b.namespace.journal().namespace().to_string()];
        let number = ask(Step::Join { reason, append_new, undo, undone: None, with, run_external }).repair;
        let seeds = serde_json::json!({ "step": "seeds", "seeds": [{ "id": id, "data": "new" }] });
        ask(serde_json::from_value(seeds).unwrap());
        ask(Step::Replay);
        b.work(&mut keep, &mut || ());
        assert_eq!(repair(&b.namespace, number).unwrap().phase, Phase::Ready);
        ask(Step::Prepare);
        Self { b, number, id, begun }
    }

    fn found(&self) -> Repair {
        repair(&self.b.namespace, self.number).unwrap()
    }

    /// Its host works until it has promised to switch or given up.
    fn work(&self) -> Repair {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| self.b.drive(&mut Replays(&mut keep), &mut NoPeers, &stop, &mut || ()));
            let since = Instant::now();
            while self.found().phase == Phase::Preparing && since.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(5));
            }
            let found = self.found();
            stop.store(true, Ordering::Release);
            self.b.namespace.journal().wake();
            found
        })
    }
}

/// Appends its record to `out`.
fn keep(_: &str, record: &[u8], calls: &mut dyn LogCalls) -> Result<()> {
    calls.append("out", record).map(drop)
}

#[test]
fn a_part_has_replayed_whatever_ended_before_it_promises_to_switch() {
    let (part, mut promised) = (Part::new(), None);
    part.b.end_before_the_host_has_the_lock(&part.begun, &[("out", b"old")], || promised = Some(part.work()));
    let promised = promised.unwrap();
    assert_eq!((promised.phase, promised.counts.replayed, promised.counts.replaced), (Phase::Prepared, 1, 2));
}

#[test]
fn a_part_counts_the_changes_that_it_receives_just_before_it_promises_to_switch() {
    let (part, mut promised) = (Part::new(), None);
    let seed = format!("{}\nnewer", serde_json::json!({ "id": part.id }));
    let log = internal(&format!("_seeds/{}", part.number));
    let append = |tx: &mut Transaction<'_>| note(tx, &log, 1, seed.as_bytes());
    part.b.before_the_host_has_the_lock(&part.begun, append, || promised = Some(part.work()));
    let promised = promised.unwrap();
    assert_eq!((promised.phase, promised.seeds.taken), (Phase::Prepared, 2));
}

/// Stages what [`abandon`] notes.
fn note_abandoned(tx: &mut Transaction<'_>, number: u64) -> Result<()> {
    let abandoned = serde_json::json!({ "note": "abandoned", "repair": number });
    note(tx, &internal(REPAIRS), 1, abandoned.to_string().as_bytes())
}

#[test]
fn a_part_whose_initiator_gives_up_just_before_promises_nothing() {
    let (part, mut found) = (Part::new(), None);
    let append = |tx: &mut Transaction<'_>| note_abandoned(tx, part.number);
    part.b.before_the_host_has_the_lock(&part.begun, append, || found = Some(part.work()));
    assert_eq!(found.unwrap().phase, Phase::Abandoned);
    assert_eq!(part.found().phase, Phase::Abandoned);
}

#[test]
fn a_repair_that_is_abandoned_just_before_it_switches_changes_nothing() {
    let world = World::new(&["raw", "out"]);
    let function = world.function("f", "raw", &[]);
    world.append("raw", "old");
    let begun = world.begin(&function);
    let number = world.repair("raw", &[(1, "new")], &[]);
    world.work(&mut keep, &mut || ());
    ask_apply(&world.namespace, number).unwrap();
    let append = |tx: &mut Transaction<'_>| note_abandoned(tx, number);
    let stop = AtomicBool::new(false);
    let work = || {
        let worked = world.drive(&mut Replays(&mut keep), &mut NoPeers, &stop, &mut || ());
        // If the host was slower, it saw the note before it began.
        assert!(worked.is_ok() || worked.is_err_and(|error| error.code() == Code::RepairPhase));
    };
    world.before_the_host_has_the_lock(&begun, append, work);
    assert_eq!(repair(&world.namespace, number).unwrap().phase, Phase::Abandoned);
    assert_eq!(world.get("raw", 1), "old");
}

#[test]
fn a_copy_that_is_made_in_the_last_moment_before_a_switch_is_corrected() {
    let world = World::new(&["raw", "out", "copy"]);
    let function = world.function("f", "raw", &[]);
    world.append("raw", "old");
    let begun = world.begin(&function);
    let number = world.repair("raw", &[(1, "new")], &[]);
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
