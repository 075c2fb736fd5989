//! A run that ends in the last moment before the switch: it used a record that the repair replaces, nothing kept it back when it was
//! published, and the host that applies the repair waited for the journal's lock meanwhile.

use millrace_journal::{Attempt, End, What};
use millrace_namespace::{
    AppendOptions, CreateOptions, Definition, Durability, FunctionSpec, Namespace, Runtime,
    admission::{Publish, Room, Stage},
    fence::Verdict,
    runs::pending::pending,
};
use millrace_repair::{Correction, DeadLetter, NoPeers, Phase, Request, Runner, ask_apply, drive, open, repair};
use millrace_runtime::{Completion, HostCalls, Invocation, Outcome};
use millrace_wire::{LogName, Result};
use std::{
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Appends its record to `out`.
struct Echo;

impl Runner for Echo {
    fn run(&mut self, _: &Arc<Definition>, of: Invocation<'_>, calls: &mut dyn HostCalls) -> Result<Completion> {
        calls.append("out", of.payload)?;
        Ok(Completion { outcome: Outcome::Done, output: Vec::new(), elapsed: Duration::ZERO })
    }

    fn dead_letter(&self, _: DeadLetter<'_>) -> Vec<u8> {
        Vec::new()
    }
}

fn work(namespace: &Namespace) {
    while drive(namespace, &mut Echo, &mut NoPeers, &AtomicBool::new(false), &mut |_, _, _, _| {}).unwrap() {}
}

#[test]
fn a_run_that_ends_while_the_switch_waits_for_the_lock_is_replayed_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
    let [raw, out] = ["raw", "out"].map(|name| {
        let name: LogName = name.parse().unwrap();
        namespace.create_log(&name, 100).unwrap()
    });
    let journal = namespace.journal();
    let mut spec = FunctionSpec::new("f".parse().unwrap(), Runtime::Process);
    spec.command = vec!["program".into()];
    spec.on = vec!["raw".parse().unwrap()];
    let definition = Definition { spec, code: "ab".repeat(32), file: None, application: None, removing: false };
    let attributes = definition.to_attributes();
    let function = journal.commit(|tx| tx.define_function(&definition.spec.name, &attributes)).unwrap().value;

    // Its attempt begins before the repair.
    namespace.append("raw", b"old", AppendOptions::default()).unwrap();
    let run = pending(journal, &function, 1).next().unwrap().unwrap().found().unwrap().run;
    let attempt = Attempt { attempt: 1, revision: function.revision(), ..Attempt::default() };
    let fired = journal.commit(|tx| tx.fired(function.id(), run, &attempt)).unwrap();
    let corrections = vec![Correction { seqno: 1, value: Some(b"new".to_vec()) }];
    let request = Request {
        log: "raw".parse().unwrap(),
        corrections,
        reason: String::new(),
        accept_unknown: false,
        append_new: false,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    let number = open(&namespace, request).unwrap();
    work(&namespace);
    assert_eq!(repair(&namespace, number).unwrap().phase, Phase::Ready);
    ask_apply(&namespace, number).unwrap();

    let judge = || namespace.fence().judge(function.id(), fired.end, [(raw.id(), 1, What::Record)].into_iter());
    let (locked, is_locked) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let published = journal.commit(|tx| {
                assert_eq!(judge(), Verdict::Passes);
                locked.send(()).unwrap();
                // Until the host has seen that everything is replayed. If it takes longer, it sees this run without a second look.
                let begun = Instant::now();
                while judge() == Verdict::Passes && begun.elapsed() < Duration::from_secs(5) {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(Duration::from_millis(200));
                let stage =
                    Stage { cause: run.id, ordinal: 0, room: Room::Run, named: None, ending: Some(function.id()) };
                let begun = tx.next_sequence();
                Publish::new(&namespace, tx).append(tx, &out, b"old", stage)?;
                let (effects, fired) = (tx.next_sequence() - begun, fired.value.sequence());
                tx.done(function.id(), run, &End { effects, fired, ..End::default() })
            });
            published.unwrap();
        });
        is_locked.recv().unwrap();
        work(&namespace);
    });
    assert_eq!(repair(&namespace, number).unwrap().phase, Phase::Applied);
    assert_eq!(namespace.get("raw", 1).unwrap().payload, b"new");
    assert_eq!(namespace.get("out", 1).unwrap().payload, b"new", "what the run left is made from the new record");
}
