//! Random devices: their runs are imported, a function of the host follows them, and a repair of their records makes the history that going through
//! it once makes: twins see what the firmware saw, and keep the numbers of the device.

use crate::program::{self, Io, Random, Step};
use millrace_journal::{
    Attempt, End, Imported, ImportedAttempt, Log, Origin, Outcome as Ended, Reads, Run as RunId, What,
};
use millrace_namespace::{CreateOptions, Definition, Durability, FunctionSpec, Namespace, Runtime};
use millrace_repair::{Correction, DeadLetter, NoPeers, Phase, Request, Runner, ask_apply, drive, open, repair};
use millrace_runtime::{Completion, Invocation, LogCalls, Outcome};
use millrace_wire::{Code, EventId, Hlc, LogName, NamespaceId, Result};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// The logs of the device are `unit/0` to `unit/2`; the host's function appends to `copy`.
const LOGS: usize = 3;
const COPY: usize = LOGS;

fn name(log: usize) -> LogName {
    if log == COPY { "copy".parse().unwrap() } else { format!("unit/{log}").parse().unwrap() }
}

/// A function: what it does, and whether it runs on the device and has a twin.
struct Function {
    id: u32,
    revision: u32,
    on: usize,
    steps: Vec<Step>,
    on_device: bool,
    has_twin: bool,
}

/// A run as it was: its record, what it appended, what it had read, and whether it failed.
struct Done {
    function: usize,
    record: (usize, u64),
    /// How many records each log had before it.
    before: [u64; LOGS + 1],
    appends: Vec<(usize, u64)>,
    /// By log: the oldest record that it had read.
    oldest: HashMap<usize, u64>,
    failed: bool,
}

type Slots = BTreeMap<(usize, u64), Option<String>>;

struct World {
    namespace: Namespace,
    logs: Vec<Log>,
    functions: Vec<Function>,
    slots: Slots,
    runs: Vec<Done>,
    next: u64,
}

/// The records before a run, as its function reads them.
struct Seen<'a> {
    slots: &'a Slots,
    before: [u64; LOGS + 1],
    on_device: bool,
    oldest: Option<&'a HashMap<usize, u64>>,
    reads: Vec<(usize, u64, What)>,
    appends: Vec<(usize, String)>,
}

impl Seen<'_> {
    fn own(&self, log: usize) -> Vec<&String> {
        let own = self.appends.iter().filter(|(of, _)| *of == log && !self.on_device);
        own.map(|(_, value)| value).collect()
    }
}

impl Io for Seen<'_> {
    fn latest(&mut self, log: usize) -> u64 {
        let is_there = |seqno: &u64| self.slots[&(log, *seqno)].is_some();
        let newest = (1..=self.before[log]).rev().find(is_there).unwrap_or(0);
        self.reads.push((log, newest, What::Latest));
        match self.own(log).len() as u64 {
            0 => newest,
            own => self.before[log] + own,
        }
    }

    fn get(&mut self, log: usize, seqno: u64) -> Option<u64> {
        if self.oldest.and_then(|oldest| oldest.get(&log)).is_some_and(|oldest| seqno < *oldest) {
            return None;
        }
        if seqno > self.before[log] {
            return self.own(log).get((seqno - self.before[log] - 1) as usize)?.parse().ok();
        }
        let value = self.slots[&(log, seqno)].as_ref()?;
        self.reads.push((log, seqno, What::Record));
        value.parse().ok()
    }

    fn append(&mut self, log: usize, value: u64) {
        self.appends.push((log, value.to_string()));
    }

    fn send(&mut self, _: usize, _: u64) {
        unreachable!("no step sends")
    }
}

impl World {
    fn new(dir: &std::path::Path, random: &mut Random) -> Self {
        let options =
            CreateOptions { durability: Durability::Memory, segment_bytes: 1 << 20, ..CreateOptions::default() };
        let namespace = Namespace::create(dir, &options).unwrap();
        let logs = (0..=COPY).map(|log| namespace.create_log(&name(log), 1 << 20).unwrap()).collect();
        let mut world =
            World { namespace, logs, functions: Vec::new(), slots: Slots::new(), runs: Vec::new(), next: 0 };
        for n in 0..2 + random.index(2) {
            let on = random.index(LOGS - 1);
            let steps = crate::world::steps(random, on, LOGS);
            let has_twin = random.below(4) > 0;
            world.define(&format!("model.f{n}"), (on, steps), (true, has_twin));
        }
        let steps = vec![Step::Newest(2), Step::Back(1, 2), Step::Append(COPY)];
        world.define("copy", (1, steps), (false, true));
        world
    }

    fn define(&mut self, of: &str, (on, steps): (usize, Vec<Step>), (on_device, has_twin): (bool, bool)) {
        let mut spec = FunctionSpec::new(of.parse().unwrap(), Runtime::Wasm);
        spec.on = vec![name(on)];
        spec.at = on_device.then(|| "model".parse().unwrap());
        spec.retries = 0;
        spec.env.insert("STEPS".into(), serde_json::to_string(&steps).unwrap());
        let mut definition = Definition::without_code(spec);
        if has_twin {
            definition.code = "ab".repeat(32);
        }
        let attributes = definition.to_attributes();
        let journal = self.namespace.journal();
        let function = journal.commit(|tx| tx.define_function(&definition.spec.name, &attributes)).unwrap().value;
        let (id, revision) = (function.id(), function.revision());
        self.functions.push(Function { id, revision, on, steps, on_device, has_twin });
    }

    fn count(&self) -> [u64; LOGS + 1] {
        std::array::from_fn(|log| self.slots.range((log, 0)..(log + 1, 0)).count() as u64)
    }

    /// A record that comes from outside or, with the run, from a function.
    fn append(&mut self, log: usize, value: &str, by: Option<(RunId, u16)>) -> (u64, EventId) {
        let (of, seqno) = (self.logs[log].clone(), self.count()[log] + 1);
        self.next += 1;
        let there = EventId::new(NamespaceId::new(77).unwrap(), 1, self.next);
        let imported = Imported::Record { id: there, clock: Hlc::from_wall_us(self.next * 1000) };
        let committed = self.namespace.journal().commit(|tx| match (log, by) {
            (COPY, Some((run, ordinal))) => tx.append(&of, value.as_bytes(), run.id, ordinal),
            (_, Some((run, ordinal))) => {
                tx.append_imported(&of, seqno, value.as_bytes(), (run.id, Some(ordinal)), &imported)
            }
            _ => tx.append_imported(&of, seqno, value.as_bytes(), (EventId::NONE, None), &imported),
        });
        self.slots.insert((log, seqno), Some(value.to_owned()));
        (seqno, committed.unwrap().value.id)
    }

    /// Measures, and runs what runs for it.
    fn measure(&mut self, random: &mut Random) {
        let value = random.below(1000).to_string();
        let (seqno, id) = self.append(0, &value, None);
        let mut waiting = vec![((0, seqno), id)];
        while !waiting.is_empty() {
            let (record, cause) = waiting.remove(0);
            for function in 0..self.functions.len() {
                if self.functions[function].on == record.0 {
                    waiting.extend(self.run(function, record, cause));
                }
            }
        }
    }

    fn run(&mut self, function: usize, record: (usize, u64), cause: EventId) -> Vec<((usize, u64), EventId)> {
        let (of, before) = (&self.functions[function], self.count());
        let (id, revision, on_device) = (of.id, of.revision, of.on_device);
        let (reads, appends) = (Vec::new(), Vec::new());
        let mut seen = Seen { slots: &self.slots, before, on_device, oldest: None, reads, appends };
        let input = seen.slots[&record].as_ref().unwrap().parse().unwrap();
        let failed = !program::run(&of.steps, input, &mut seen);
        let Seen { reads, appends, .. } = seen;
        let appends = if failed { Vec::new() } else { appends };
        let log = self.logs[record.0].clone();
        let mut noted = Reads::default();
        let mut oldest = HashMap::new();
        for (log, seqno, what) in reads {
            noted.log(self.logs[log].id(), seqno, what);
            if what == What::Record {
                let first = oldest.entry(log).or_insert(seqno);
                *first = seqno.min(*first);
            }
        }
        let journal = self.namespace.journal();
        let begun = journal.commit(|tx| {
            let run = tx.trigger(id, cause, &log, record.1, Origin::Bound)?;
            let attempt = Attempt { attempt: 1, revision, ..Attempt::default() };
            let clock = Hlc::from_wall_us(5000);
            let there = ImportedAttempt { run: EventId::NONE, clock, read: clock };
            let fired = match on_device {
                true => tx.fired_imported(id, run, &attempt, &there)?,
                false => tx.fired(id, run, &attempt)?,
            };
            tx.reads(id, run, noted)?;
            Ok((run, fired))
        });
        let (run, fired) = begun.unwrap().value;
        let (mut left, mut slots) = (Vec::new(), Vec::new());
        for (ordinal, (log, value)) in appends.iter().enumerate() {
            let (seqno, id) = self.append(*log, value, Some((run, ordinal as u16)));
            left.push(((*log, seqno), id));
            slots.push((*log, seqno));
        }
        let outcome = if failed { Ended::Dead } else { Ended::Done };
        let end = End { outcome, fired: fired.sequence(), ..End::default() };
        self.namespace.journal().commit(|tx| tx.done(id, run, &end)).unwrap();
        self.runs.push(Done { function, record, before, appends: slots, oldest, failed });
        left
    }

    /// The history if these records had been others; none if a run of the host leaves more, or fails.
    fn history(&self, corrections: &BTreeMap<u64, Option<u64>>) -> Option<Slots> {
        let mut slots = self.slots.clone();
        for (seqno, value) in corrections {
            slots.insert((0, *seqno), value.map(|value| value.to_string()));
        }
        for run in &self.runs {
            let function = &self.functions[run.function];
            let void = |slots: &mut Slots| run.appends.iter().for_each(|slot| drop(slots.insert(*slot, None)));
            let Some(input) = slots[&run.record].clone() else {
                void(&mut slots);
                continue;
            };
            if function.on_device && !function.has_twin {
                continue;
            }
            let oldest = function.on_device.then_some(&run.oldest);
            let (reads, appends) = (Vec::new(), Vec::new());
            let (before, on_device) = (run.before, function.on_device);
            let mut seen = Seen { slots: &slots, before, on_device, oldest, reads, appends };
            let failed = !program::run(&function.steps, input.parse().unwrap(), &mut seen);
            let appends = if failed { Vec::new() } else { seen.appends };
            let mut rest = run.appends.clone();
            let mut left: Vec<((usize, u64), String)> = Vec::new();
            let mut grows = failed && !run.failed;
            for (log, value) in appends {
                match rest.iter().position(|(of, _)| *of == log) {
                    Some(at) => left.push((rest.remove(at), value)),
                    None => grows = true,
                }
            }
            match (grows, function.on_device) {
                (true, true) => continue,
                (true, false) => return None,
                (false, _) => {}
            }
            void(&mut slots);
            left.into_iter().for_each(|(slot, value)| drop(slots.insert(slot, Some(value))));
        }
        Some(slots)
    }

    fn found(&self) -> Slots {
        let (journal, mut payload) = (self.namespace.journal(), Vec::new());
        let read = |(log, seqno): &(usize, u64)| match journal.get(&self.logs[*log], *seqno, &mut payload.clone()) {
            Ok(_) => {
                payload.clear();
                journal.get(&self.logs[*log], *seqno, &mut payload).unwrap();
                Some(String::from_utf8(std::mem::take(&mut payload)).unwrap())
            }
            Err(error) => {
                assert_eq!(error.code(), Code::RecordVoid, "{error}");
                None
            }
        };
        let mut read = read;
        self.slots.keys().map(|slot| (*slot, read(slot))).collect()
    }
}

/// Runs the steps of functions.
struct Twins;

struct OfCalls<'a>(&'a mut dyn LogCalls, bool);

impl OfCalls<'_> {
    fn name(&self, log: usize) -> String {
        if self.1 { log.to_string() } else { name(log).to_string() }
    }
}

impl Io for OfCalls<'_> {
    fn latest(&mut self, log: usize) -> u64 {
        let name = match self.1 {
            // A twin names the logs of its device.
            true => return self.0.latest(&log.to_string()).unwrap(),
            false => self.name(log),
        };
        self.0.latest(&name).unwrap()
    }

    fn get(&mut self, log: usize, seqno: u64) -> Option<u64> {
        String::from_utf8(self.0.get(&self.name(log), seqno).ok()?).unwrap().parse().ok()
    }

    fn append(&mut self, log: usize, value: u64) {
        assert_eq!(self.0.append(&self.name(log), value.to_string().as_bytes()), Ok(None));
    }

    fn send(&mut self, _: usize, _: u64) {
        unreachable!("no step sends")
    }
}

impl Runner for Twins {
    fn run(
        &mut self,
        definition: &Arc<Definition>,
        of: Invocation<'_>,
        calls: &mut dyn LogCalls,
        _: &dyn Fn() -> bool,
    ) -> Result<Completion> {
        let on_device = definition.spec.at.is_some();
        assert_eq!(on_device, !of.log.contains('/'), "the function reads '{}'", of.log);
        if on_device {
            assert_eq!(calls.now_ns(), 5_000_000, "the time of the device");
        }
        let steps: Vec<Step> = serde_json::from_str(&definition.spec.env["STEPS"]).unwrap();
        let input = std::str::from_utf8(of.payload).unwrap().parse().unwrap();
        let well = program::run(&steps, input, &mut OfCalls(calls, on_device));
        let outcome = if well { Outcome::Done } else { Outcome::Failed(Code::FunctionFailed.error("it fails")) };
        Ok(Completion { outcome, output: Vec::new(), elapsed: Duration::ZERO })
    }

    fn dead_letter(&self, _: DeadLetter<'_>) -> Vec<u8> {
        unreachable!("no function of the host fails")
    }
}

/// Whether a repair was made.
fn play(seed: u64) -> bool {
    let random = &mut Random(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir.path().join("n"), random);
    for _ in 0..10 + random.index(20) {
        world.measure(random);
    }
    let nothing = BTreeMap::new();
    assert_eq!(world.history(&nothing).as_ref(), Some(&world.slots), "seed {seed}: the model repeats what was");
    let measured = world.count()[0];
    let mut corrections = BTreeMap::new();
    for _ in 0..1 + random.index(3) {
        let (seqno, value) = (1 + random.below(measured), random.below(1000));
        corrections.insert(seqno, (random.below(5) > 0).then_some(value));
    }
    corrections.retain(|seqno, value| world.slots[&(0, *seqno)] != value.map(|value| value.to_string()));
    if corrections.is_empty() {
        return false;
    }
    let correction = |(seqno, value): (&u64, &Option<u64>)| Correction {
        seqno: *seqno,
        value: value.map(|value| value.to_string().into_bytes()),
    };
    let request = Request {
        log: name(0),
        corrections: corrections.iter().map(correction).collect(),
        reason: String::new(),
        accept_unknown: false,
        append_new: random.below(2) == 0,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    let number = open(&world.namespace, request).unwrap();
    let work = |namespace: &Namespace| {
        let stop = AtomicBool::new(false);
        while drive(namespace, &mut Twins, &mut NoPeers, &stop, &mut |_, _, _, _| {}).unwrap() {}
    };
    work(&world.namespace);
    let Some(expected) = world.history(&corrections) else {
        return false; // A run of the host leaves more; the other histories show that.
    };
    let ready = repair(&world.namespace, number).unwrap();
    assert_eq!(ready.phase, Phase::Ready, "seed {seed}: {ready:?}");
    ask_apply(&world.namespace, number).unwrap();
    work(&world.namespace);
    assert_eq!(repair(&world.namespace, number).unwrap().phase, Phase::Applied, "seed {seed}");
    let found = world.found();
    let differ: Vec<_> = expected.iter().filter(|(slot, value)| found[slot] != **value).collect();
    assert!(differ.is_empty(), "seed {seed}: {differ:?} expected");
    // The numbers of the device's logs are the device's.
    world.measure(random);
    true
}

#[test]
fn a_repaired_history_of_a_device_is_what_the_oracle_says() {
    let begin = std::env::var("MILLRACE_SEED").ok().map_or(1, |text| text.parse::<u64>().expect("a number"));
    let count = std::env::var("MILLRACE_REPAIR_SEEDS").ok().map_or(150, |text| text.parse().expect("a number"));
    let made = (begin..begin + count).filter(|seed| play(*seed)).count() as u64;
    println!("tally: histories={count} repairs_made={made}");
    assert!(count < 50 || made * 2 > count, "{made} of {count} were made: too few show anything");
}
