//! Random applications, random histories, random repairs: what comes of each is what the oracle says.
//!
//! `MILLRACE_SEED=n` is the first seed (1), `MILLRACE_REPAIR_SEEDS=n` how many are played (150), `MILLRACE_REPAIR_SECONDS=n` for how long, instead.

mod across;
mod chains;
mod devices;
mod model;
mod program;
mod world;

use millrace_namespace::{Definition, Namespace, definition::AmendPolicy};
use millrace_repair::{
    Amendments, Attempts, CodeRequest, Correction, DeadLetter, Due, NoPeers, Phase, Request, Runner, abandon, amend,
    ask_apply, declare_amendable, drive, open, open_code, repair, repairs, take_due, undo,
};
use millrace_runtime::{Completion, Invocation, LogCalls, Outcome};
use millrace_wire::{Code, EventId, Name, Result};
use model::{Corrections, Logs, Model, OtherCode, Seeds};
use program::{Io, Program, Random, Step};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use world::World;

/// Runs programs; ends the host when it has run so many.
struct Programs<'a> {
    left: usize,
    stop: &'a AtomicBool,
}

struct OfCalls<'a>(&'a mut dyn LogCalls, String);

fn name(log: usize) -> String {
    format!("log/{log}")
}

impl Io for OfCalls<'_> {
    fn latest(&mut self, log: usize) -> u64 {
        self.0.latest(&name(log)).unwrap_or(0) // It may lack the right.
    }

    fn get(&mut self, log: usize, seqno: u64) -> Option<u64> {
        String::from_utf8(self.0.get(&name(log), seqno).ok()?).unwrap().parse().ok()
    }

    fn append(&mut self, log: usize, value: u64) {
        assert_eq!(self.0.append(&name(log), value.to_string().as_bytes()), Ok(None));
    }

    fn send(&mut self, log: usize, value: u64) {
        let to = format!("{}/log/{log}", self.1);
        // Other code may send where nothing was sent before: such a run stops the repair.
        if let Err(error) = self.0.append(&to, value.to_string().as_bytes()) {
            assert_eq!(error.code(), Code::RepairUnsupported, "{error}");
        }
    }
}

impl Runner for Programs<'_> {
    fn run(
        &mut self,
        definition: &Arc<Definition>,
        of: Invocation<'_>,
        calls: &mut dyn LogCalls,
        _: &dyn Fn() -> bool,
    ) -> Result<Completion> {
        let steps: Vec<Step> = serde_json::from_str(&definition.spec.env["STEPS"]).unwrap();
        let input = std::str::from_utf8(of.payload).unwrap().parse().unwrap();
        let to = definition.spec.rights.sends.first().map_or_else(String::new, ToString::to_string);
        let to = to.trim_end_matches('/').to_owned();
        let well = program::run(&steps, input, &mut OfCalls(calls, to));
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.stop.store(true, Ordering::Release);
        }
        let outcome = if well { Outcome::Done } else { Outcome::Failed(Code::FunctionFailed.error("it fails")) };
        Ok(Completion { outcome, output: Vec::new(), elapsed: Duration::ZERO })
    }

    fn dead_letter(&self, of: DeadLetter<'_>) -> Vec<u8> {
        format!("dead {}", std::str::from_utf8(of.record.2).unwrap()).into_bytes()
    }
}

/// What is in the namespace.
fn logs(world: &World) -> Logs {
    let (journal, mut payload) = (world.namespace.journal(), Vec::new());
    let mut logs = Logs::new();
    let catalog = journal.catalog().unwrap();
    for id in &world.logs {
        let log = catalog.log_by_id(*id).unwrap();
        for seqno in log.earliest().max(1)..=log.latest() {
            let value = match journal.get(log, seqno, &mut payload) {
                Ok(_) => Some(String::from_utf8(payload.clone()).unwrap()),
                Err(error) => {
                    assert_eq!(error.code(), Code::RecordVoid, "{error}");
                    None
                }
            };
            logs.entry(*id).or_default().insert(seqno, value);
        }
    }
    logs
}

fn ids(world: &World) -> BTreeMap<(u32, u64), EventId> {
    let (journal, mut payload) = (world.namespace.journal(), Vec::new());
    let catalog = journal.catalog().unwrap();
    let of_log = |id: &u32| {
        let log = catalog.log_by_id(*id).unwrap().clone();
        (1..=log.latest()).map(move |seqno| (log.clone(), seqno)).collect::<Vec<_>>()
    };
    let slots = world.logs.iter().flat_map(of_log);
    slots.filter_map(|(log, n)| Some(((log.id(), n), journal.get(&log, n, &mut payload).ok()?.id))).collect()
}

/// Does what repairs wait for, by processes that end after some runs.
fn work(namespace: &Namespace, random: &mut Random) {
    loop {
        let stop = AtomicBool::new(false);
        let left = if random.below(3) == 0 { 1 + random.index(4) } else { usize::MAX };
        match drive(namespace, &mut Programs { left, stop: &stop }, &mut NoPeers, &stop, &mut |_, _, _, _| {}) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => assert_eq!(error.code(), Code::HostStopping, "{error}"),
        }
    }
}

/// Panics with the slots in which two histories differ.
#[track_caller]
fn same(found: &Logs, expected: &Logs, what: &str) {
    let slots = |logs: &Logs| -> BTreeMap<(u32, u64), Option<String>> {
        logs.iter().flat_map(|(log, slots)| slots.iter().map(|(n, value)| ((*log, *n), value.clone()))).collect()
    };
    let (found, expected) = (slots(found), slots(expected));
    let all: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differ: Vec<_> = all.into_iter().filter(|slot| found.get(slot) != expected.get(slot)).collect();
    let shown = |slot: &&(u32, u64)| format!("{slot:?}: {:?} and not {:?}", found.get(*slot), expected.get(*slot));
    assert!(differ.is_empty(), "{what}:\n{}", differ.iter().map(shown).collect::<Vec<_>>().join("\n"));
}

/// What a repair changes.
enum Repaired {
    Records(Corrections),
    /// The code of a function, for runs that were FIRED from a sequence on.
    Code(u32, Box<Definition>, Vec<Step>, u64),
}

impl Repaired {
    /// Something that makes a difference.
    fn random(world: &World, before: &Logs, random: &mut Random) -> Option<Self> {
        if random.below(3) == 0 {
            let (function, definition, steps) = world.other_code(random);
            let newest = ids(world).values().map(|id| id.sequence()).max()?;
            let since = random.below(newest);
            return (world.programs[&function].steps != steps).then_some(Repaired::Code(
                function,
                Box::new(definition),
                steps,
                since,
            ));
        }
        // Some records of one source.
        let source = random.index(world.sources);
        let records = before.get(&world.logs[source])?;
        let mut corrections = Corrections::new();
        for _ in 0..1 + random.index(3) {
            let seqno = 1 + random.below(records.len() as u64);
            let value = if random.below(5) == 0 { None } else { Some(random.below(1000)) };
            if records[&seqno] != value.map(|value| value.to_string()) {
                corrections.insert((world.logs[source], seqno), value);
            }
        }
        (!corrections.is_empty()).then_some(Repaired::Records(corrections))
    }

    fn open(&self, world: &World, append_new: bool, across: Vec<String>, run_external: Vec<Name>) -> u64 {
        let (reason, namespace) = ("random".to_owned(), &world.namespace);
        match self {
            Repaired::Code(_, definition, _, since) => {
                let (definition, since) = (Definition::clone(definition), *since);
                let catalog = namespace.journal().catalog().unwrap();
                let revision = catalog.function(&definition.spec.name).unwrap().revision();
                #[rustfmt::skip]
                let request = CodeRequest { definition, revision, since, reason, append_new, across, run_external };
                open_code(namespace, request).unwrap()
            }
            Repaired::Records(corrections) => {
                let correction = |((_, seqno), value): (&(u32, u64), &Option<u64>)| Correction {
                    seqno: *seqno,
                    value: value.map(|value| value.to_string().into_bytes()),
                };
                let (log, _) = *corrections.keys().next().unwrap();
                let log = world.names[world.logs.iter().position(|id| *id == log).unwrap()].clone();
                let corrections = corrections.iter().map(correction).collect();
                #[rustfmt::skip]
                let request = Request {
                    log, corrections, reason, accept_unknown: false, append_new, across, run_external,
                };
                open(namespace, request).unwrap()
            }
        }
    }

    /// The same by amendments, each on its own, which the host takes and applies by itself.
    fn amend(&self, world: &World, random: &mut Random) -> u64 {
        let (namespace, Repaired::Records(corrections)) = (&world.namespace, self) else {
            panic!("code is not amended")
        };
        let (log, _) = *corrections.keys().next().unwrap();
        let log = world.names[world.logs.iter().position(|id| *id == log).unwrap()].clone();
        let policy = AmendPolicy { count: 100, age_ms: 0 };
        assert!(declare_amendable(namespace, &log, Some(policy)).unwrap());
        for ((_, seqno), value) in corrections {
            let with = |value: Option<u64>| Amendments {
                log: log.clone(),
                corrections: vec![Correction { seqno: *seqno, value: value.map(|it| it.to_string().into_bytes()) }],
            };
            if random.below(3) == 0 {
                amend(namespace, &with(Some(1000))).unwrap(); // The next one counts.
            }
            amend(namespace, &with(*value)).unwrap();
        }
        let mut attempts = Attempts::default();
        assert_eq!(take_due(namespace, &mut attempts).unwrap(), Due::Taken);
        assert_eq!(take_due(namespace, &mut attempts).unwrap(), Due::Nothing);
        repairs(namespace).unwrap().pop().unwrap().repair
    }
}

impl Repaired {
    /// The corrections, and the other code.
    fn parts(repaired: Option<&Self>) -> (Corrections, Vec<OtherCode>) {
        match repaired {
            None => Default::default(),
            Some(Repaired::Records(corrections)) => (corrections.clone(), Vec::new()),
            Some(Repaired::Code(function, _, steps, since)) => {
                let program = Program { steps: steps.clone(), reads: None };
                let (function, since, before) = (*function, *since, u64::MAX);
                (Corrections::new(), vec![OtherCode { function, since, before, program }])
            }
        }
    }
}

/// The history that a repair makes, or the one without it.
fn expected(world: &World, repaired: Option<&Repaired>, append_new: bool) -> Option<Logs> {
    let (corrections, code) = &Repaired::parts(repaired);
    let (outbox, seeds) = (None, &Seeds::new());
    let (logs, names, kept) = (&world.logs, &world.names, &world.kept);
    let programs = &|function, _| &world.original[&function];
    let model = Model { logs, names, programs, kept, corrections, code, append_new, outbox, seeds };
    model.history(world.namespace.journal()).ok()
}

/// Whether the repair was made: a run may leave more than before, which is refused unless that is appended.
fn play(seed: u64) -> bool {
    let random = &mut Random(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir.path().join("n"), random);
    for _ in 0..60 + random.index(120) {
        world.step(random);
    }
    if random.below(2) == 0 {
        world.settle(random);
    }
    let append_new = random.below(2) == 0;
    let without = |world: &World| expected(world, None, append_new);
    same(&logs(&world), &without(&world).unwrap(), "the world is as its journal says");
    let (before, before_ids) = (logs(&world), ids(&world));
    let Some(repaired) = Repaired::random(&world, &before, random) else { return false };
    let amends = append_new && matches!(repaired, Repaired::Records(_)) && random.below(2) == 0;
    let number = if amends {
        repaired.amend(&world, random)
    } else {
        let run_external = if random.below(2) == 0 { world.run_external() } else { Vec::new() };
        repaired.open(&world, append_new, Vec::new(), run_external)
    };
    if amends && random.below(2) == 0 {
        (0..random.index(30)).for_each(|_| world.step(random));
    }
    work(&world.namespace, random);
    if !amends {
        assert_eq!((logs(&world), ids(&world)), (before, before_ids.clone()), "nobody sees anything of it yet");
        // Life goes on before it is applied.
        (0..random.index(30)).for_each(|_| world.step(random));
    }
    let phase = repair(&world.namespace, number).unwrap().phase;
    if phase == Phase::Ready {
        ask_apply(&world.namespace, number).unwrap();
        work(&world.namespace, random);
    }
    let (unrepaired, live_ids) = (without(&world), ids(&world));
    let with = |world: &World| expected(world, Some(&repaired), append_new);
    let Some(history) = with(&world) else {
        assert_eq!(repair(&world.namespace, number).unwrap().phase, Phase::Stopped);
        assert_eq!(Some(logs(&world)), unrepaired, "what cannot be made changes nothing");
        abandon(&world.namespace, number).unwrap();
        return false;
    };
    let found = repair(&world.namespace, number).unwrap();
    assert_eq!(found.phase, Phase::Applied, "{found:?}");
    same(&logs(&world), &history, "after the repair");
    let unchanged = before_ids.iter().filter(|((log, n), _)| unrepaired.as_ref().unwrap()[log][n] == history[log][n]);
    for (slot, id) in unchanged {
        assert_eq!(live_ids.get(slot), Some(id), "an independent record stays what it was");
    }
    if let Repaired::Code(function, _, steps, _) = &repaired {
        world.programs.insert(*function, Program { steps: steps.clone(), reads: None });
    }
    // What was in progress meanwhile is run again, and the past stays as it is.
    for _ in 0..random.index(40) {
        world.step(random);
    }
    world.settle(random);
    same(&logs(&world), &with(&world).unwrap(), "life after the repair");
    let undone = undo(&world.namespace, number, String::new()).unwrap();
    work(&world.namespace, random);
    // It appends what runs leave more without the repair.
    let put_back = expected(&world, None, true).unwrap();
    assert_eq!(repair(&world.namespace, undone).unwrap().phase, Phase::Applied);
    same(&logs(&world), &put_back, "taken back");
    let same = ids(&world);
    assert!(before_ids.iter().all(|(slot, id)| same[slot] == *id), "with the records that were there");
    true
}

/// Tells how to play a seed again that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("MILLRACE_SEED={} MILLRACE_REPAIR_SEEDS=1", self.0);
        }
    }
}

#[test]
fn a_repaired_history_is_what_the_oracle_says() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (begin, seconds) = (number("MILLRACE_SEED").unwrap_or(1), number("MILLRACE_REPAIR_SECONDS"));
    let (most, start) = (number("MILLRACE_REPAIR_SEEDS").unwrap_or(150), Instant::now());
    let goes_on = |played| seconds.map_or(played < most, |seconds| start.elapsed().as_secs() < seconds);
    let (mut made, mut count) = (0, 0);
    while goes_on(count) {
        let seed = Seed(begin + count);
        made += u64::from(play(seed.0));
        count += 1;
    }
    println!("tally: histories={count} repairs_made={made}");
    assert!(count < 50 || made * 5 > count, "{made} of {count} were made: too few show anything");
}
