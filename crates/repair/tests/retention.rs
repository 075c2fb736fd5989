//! What a repair can do once the journal need not keep the past for it any more: all of its work, or none.

use millrace_journal::Position;
use millrace_namespace::{AppendOptions, CreateOptions, Definition, Durability, Namespace};
use millrace_repair::{
    Correction, DeadLetter, NoPeers, Phase, Request, Runner, ask_apply, close, drive, open, repair, undo,
};
use millrace_runtime::{Completion, Invocation, LogCalls};
use millrace_wire::{Code, Result};
use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

/// There are no functions.
struct Nothing;

impl Runner for Nothing {
    fn run(
        &mut self,
        _: &Arc<Definition>,
        of: Invocation<'_>,
        _: &mut dyn LogCalls,
        _: &dyn Fn() -> bool,
    ) -> Result<Completion> {
        panic!("run {} of no function", of.run)
    }

    fn dead_letter(&self, _: DeadLetter<'_>) -> Vec<u8> {
        Vec::new()
    }
}

fn work(namespace: &Namespace) {
    while drive(namespace, &mut Nothing, &mut NoPeers, &AtomicBool::new(false), &mut |_, _, _, _| {}).unwrap() {}
}

fn created(dir: &Path) -> Namespace {
    let options = CreateOptions {
        durability: Durability::Memory,
        segment_bytes: 1 << 20,
        retain_bytes: 2 << 20,
        ..CreateOptions::default()
    };
    let namespace = Namespace::create(dir, &options).unwrap();
    namespace.create_log(&"raw".parse().unwrap(), 10).unwrap();
    namespace.create_log(&"fill".parse().unwrap(), 2).unwrap();
    append(&namespace, "raw", b"one");
    namespace
}

fn append(namespace: &Namespace, log: &str, payload: &[u8]) {
    namespace.append(log, payload, AppendOptions::default()).unwrap();
}

fn fill(namespace: &Namespace, segments: u64) {
    let upto = (namespace.journal().tail().get() >> 20) + segments;
    while namespace.journal().tail().get() >> 20 < upto {
        append(namespace, "fill", &[7; 64 << 10]);
    }
}

fn opened(namespace: &Namespace) -> u64 {
    let corrections = [Correction { seqno: 1, value: Some(b"two".to_vec()) }].to_vec();
    let request = Request {
        log: "raw".parse().unwrap(),
        corrections,
        reason: "a test".into(),
        accept_unknown: false,
        append_new: false,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    let number = open(namespace, request).unwrap();
    work(namespace);
    assert_eq!(repair(namespace, number).unwrap().phase, Phase::Ready);
    number
}

/// The time of all pins is over.
fn unpin(namespace: &Namespace) {
    let pins = namespace.journal().pins().unwrap();
    assert_eq!(pins.len(), 1);
    namespace.journal().unpin(pins[0].id).unwrap();
}

/// Drops what may go. What is to go does, and what is to stay stays.
fn drop_up_to(namespace: &Namespace, goes: Position, stays: Position) {
    let journal = namespace.journal();
    while journal.first() <= goes {
        fill(namespace, 1);
        journal.maintain(&|_, _| false).unwrap();
    }
    assert!(journal.first() <= stays);
}

fn is_stopped(namespace: &Namespace, number: u64, value: &[u8]) {
    let stopped = repair(namespace, number).unwrap();
    assert_eq!(stopped.phase, Phase::Stopped);
    assert_eq!(stopped.error.unwrap().0, Code::RepairUnsupported.id());
    assert_eq!(namespace.get("raw", 1).unwrap().payload, value);
}

#[test]
fn a_repair_is_taken_back_as_a_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = created(&dir.path().join("n"));
    let written = namespace.journal().position(&namespace.log("raw").unwrap(), 1);
    fill(&namespace, 2);
    let from = namespace.journal().tail();
    let number = opened(&namespace);
    ask_apply(&namespace, number).unwrap();
    work(&namespace);
    assert_eq!(repair(&namespace, number).unwrap().phase, Phase::Applied);
    unpin(&namespace);
    drop_up_to(&namespace, written, from);
    let undone = undo(&namespace, number, String::new()).unwrap();
    work(&namespace);
    is_stopped(&namespace, undone, b"two");
    assert_eq!(repair(&namespace, number).unwrap().phase, Phase::Applied);
}

#[test]
fn a_repair_that_waited_for_too_long_is_not_applied() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = created(&dir.path().join("n"));
    let from = namespace.journal().tail();
    let number = opened(&namespace);
    unpin(&namespace);
    fill(&namespace, 3);
    drop_up_to(&namespace, from, Position::from_bytes(u64::MAX));
    ask_apply(&namespace, number).unwrap();
    work(&namespace);
    is_stopped(&namespace, number, b"one");
}

#[test]
fn what_a_repair_needs_is_kept_until_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = created(&dir.path().join("n"));
    let written = namespace.journal().position(&namespace.log("raw").unwrap(), 1);
    let fill_and_drop = || {
        fill(&namespace, 5);
        namespace.journal().maintain(&|_, _| false).unwrap();
    };
    let number = opened(&namespace);
    fill_and_drop();
    assert!(namespace.journal().first() <= written, "it is not applied yet");
    ask_apply(&namespace, number).unwrap();
    work(&namespace);
    assert_eq!(repair(&namespace, number).unwrap().phase, Phase::Applied);
    fill_and_drop();
    assert!(namespace.journal().first() <= written, "it may be rolled back");
    let undone = undo(&namespace, number, String::new()).unwrap();
    work(&namespace);
    assert_eq!(repair(&namespace, undone).unwrap().phase, Phase::Applied);
    assert_eq!(namespace.get("raw", 1).unwrap().payload, b"one");
    close(&namespace, number).unwrap();
    close(&namespace, undone).unwrap();
    drop_up_to(&namespace, written, Position::from_bytes(u64::MAX));
}
