//! Repairs, rollbacks, rollbacks of rollbacks and releases in any order, in a world whose settings change: logs keep fewer records or more,
//! are trimmed, deleted and recreated, and functions are deployed with other code and other rights. After each of them the namespace is what
//! the oracle says.

use crate::{
    Repaired, Seed, logs,
    model::{Corrections, Logs, Model, OtherCode, Seeds},
    program::{Program, Random},
    same, work,
    world::World,
};
use millrace_journal::{Entry, Position};
use millrace_repair::{Phase, abandon, ask_apply, close, repair, undo};
use millrace_wire::{Code, Name};
use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

/// Something that was applied.
struct Applied {
    number: u64,
    /// Which of the others it undoes.
    undo: Option<usize>,
    corrections: Corrections,
    code: Option<OtherCode>,
    /// The function and the revision that it deployed, and what that did before.
    deployed: Option<(u32, u32, Program)>,
    /// The repairs in force before it and after it.
    before: Vec<usize>,
    after: Vec<usize>,
    is_undone: bool,
    is_closed: bool,
}

struct Chain {
    world: World,
    applied: Vec<Applied>,
    undone_undos: u64,
}

impl Chain {
    fn new(dir: &std::path::Path, random: &mut Random) -> Self {
        let mut world = World::new(dir, random);
        world.without_effects();
        // Runs append to no source, so a correction of a source stays.
        world.sources = 1;
        let mut chain = Self { world, applied: Vec::new(), undone_undos: 0 };
        (0..chain.world.logs.len()).for_each(|log| {
            if random.below(2) == 0 {
                chain.set_history(log, random);
            }
        });
        chain
    }

    fn now(&self) -> Vec<usize> {
        self.applied.last().map_or(Vec::new(), |last| last.after.clone())
    }

    /// Whether what was applied has not been undone since, or has been, and that was undone.
    fn holds(&self, at: usize) -> bool {
        let undone = self.applied.iter().enumerate().filter(|(_, applied)| applied.undo == Some(at));
        !undone.into_iter().any(|(by, _)| self.holds(by))
    }

    fn set_history(&mut self, log: usize, random: &mut Random) {
        let history = [1, 1, 2, 3, 5, 1 << 20][random.index(6)];
        let journal = self.world.namespace.journal();
        let log = journal.catalog().unwrap().log_by_id(self.world.logs[log]).cloned().unwrap();
        journal.commit(|tx| tx.set_history(&log, history)).unwrap();
    }

    fn trim(&mut self, log: usize, random: &mut Random) {
        let journal = self.world.namespace.journal();
        let log = journal.catalog().unwrap().log_by_id(self.world.logs[log]).cloned().unwrap();
        let (first, last) = (log.earliest().max(1), log.latest() + 1);
        let before = first + random.below(last - first + 1);
        journal.commit(|tx| tx.trim(&log, before)).unwrap();
    }

    /// Deletes a log, and creates another one of this name.
    fn recreate(&mut self, log: usize, random: &mut Random) {
        let (name, history) = (self.world.names[log].clone(), 1 + random.below(5));
        let made = self.world.namespace.journal().commit(|tx| {
            tx.remove_log(&name)?;
            tx.create_log(&name, history)
        });
        self.world.logs[log] = made.unwrap().value.id();
    }

    /// One thing that happens in the namespace.
    fn step(&mut self, random: &mut Random) {
        let is_quiet = self.world.claims.is_empty();
        // What the newest record is while a log loses records depends on the moment if some are void.
        let may_lose = is_quiet || self.applied.is_empty();
        let log = random.index(self.world.logs.len());
        let is_bound = self.world.functions.iter().any(|(_, on)| *on == log);
        match random.below(24) {
            0 if may_lose => self.set_history(log, random),
            1 if may_lose => self.trim(log, random),
            2 => self.world.redeploy(random),
            3 if is_quiet && log > 0 && log + 1 < self.world.logs.len() && !is_bound => self.recreate(log, random),
            _ => self.world.step(random),
        }
    }

    fn live(&mut self, random: &mut Random, steps: usize) {
        (0..steps).for_each(|_| self.step(random));
    }

    /// The sequence of the last entry of which this is true.
    fn last(&self, is_it: impl Fn(&Entry) -> bool) -> u64 {
        let (mut scan, mut found) = (self.world.namespace.journal().scan(Position::default()), 0);
        while let Some(entry) = scan.next().unwrap() {
            if is_it(entry) {
                found = entry.id.sequence();
            }
        }
        found
    }

    fn revision(&self, function: u32) -> u32 {
        let catalog = self.world.namespace.journal().catalog().unwrap();
        catalog.function_by_id(function).unwrap().revision()
    }

    /// What is to be corrected, if there is something.
    fn random(&self, random: &mut Random) -> Option<Repaired> {
        if random.below(3) == 0 {
            let (function, definition, steps) = self.world.other_code(random);
            let since = random.below(self.last(|_| true));
            let is_other = self.world.programs[&function].steps != steps;
            return is_other.then(|| Repaired::Code(function, Box::new(definition), steps, since));
        }
        let (source, before) = (self.world.logs[0], logs(&self.world));
        let records: Vec<_> = before.get(&source)?.iter().collect();
        let mut corrections = Corrections::new();
        for _ in 0..1 + random.index(3) {
            let (seqno, old) = records[random.index(records.len())];
            let value = if random.below(4) == 0 { None } else { Some(random.below(1000)) };
            if *old != value.map(|value| value.to_string()) {
                corrections.insert((source, *seqno), value);
            }
        }
        (!corrections.is_empty()).then_some(Repaired::Records(corrections))
    }

    fn repair(&mut self, random: &mut Random) {
        let Some(repaired) = self.random(random) else { return };
        let number = repaired.open(&self.world, true, Vec::new(), Vec::<Name>::new());
        work(&self.world.namespace, random);
        let steps = random.index(20);
        self.live(random, steps);
        ask_apply(&self.world.namespace, number).unwrap();
        work(&self.world.namespace, random);
        let found = repair(&self.world.namespace, number).unwrap();
        if found.phase == Phase::Stopped {
            assert_eq!(found.error.unwrap().0, Code::RepairCodeChanged.id());
            abandon(&self.world.namespace, number).unwrap();
            return;
        }
        assert_eq!(found.phase, Phase::Applied, "{found:?}");
        let before = self.now();
        let after = before.iter().copied().chain([self.applied.len()]).collect();
        let (mut corrections, mut code, mut deployed) = (Corrections::new(), None, None);
        match repaired {
            Repaired::Records(records) => corrections = records,
            Repaired::Code(function, _, steps, since) => {
                let revision = self.revision(function);
                let old = self.world.deployed(function, revision, |old| Program { steps, ..old });
                let program = self.world.programs[&function].clone();
                let before = self.last(|entry| entry.generation() == Some(number));
                code = Some(OtherCode { function, since, before, program });
                deployed = Some((function, revision, old));
            }
        }
        let (undo, is_undone, is_closed) = (None, false, false);
        self.applied.push(Applied { number, undo, corrections, code, deployed, before, after, is_undone, is_closed });
    }

    fn roll_back(&mut self, random: &mut Random) {
        if self.applied.is_empty() {
            return;
        }
        // Those that were applied last can be rolled back.
        let last = self.applied.len() - 1;
        let at = if random.below(3) == 0 { random.index(last + 1) } else { last };
        let Applied { number, deployed, before, after, is_undone, is_closed, undo: undoes, .. } = &self.applied[at];
        let (number, deployed, undoes) = (*number, deployed.clone(), *undoes);
        let opened = undo(&self.world.namespace, number, String::new());
        if *is_undone || *is_closed || *after != self.now() {
            let now = self.now();
            assert_eq!(opened.unwrap_err().code(), Code::RepairPhase, "{number} left {after:?}, and there is {now:?}");
            return;
        }
        if deployed.as_ref().is_some_and(|(function, revision, _)| self.revision(*function) != *revision) {
            assert_eq!(opened.unwrap_err().code(), Code::RepairCodeChanged);
            return;
        }
        let opened = opened.unwrap();
        let (before, after) = (after.clone(), before.clone());
        work(&self.world.namespace, random);
        let found = repair(&self.world.namespace, opened).unwrap();
        assert_eq!(found.phase, Phase::Applied, "{found:?}");
        let deployed = deployed.map(|(function, _, old)| {
            let revision = self.revision(function);
            let new = self.world.deployed(function, revision, |_| old);
            (function, revision, new)
        });
        self.applied[at].is_undone = true;
        self.undone_undos += u64::from(undoes.is_some());
        let (corrections, undo) = (Corrections::new(), Some(at));
        let (code, is_undone, is_closed) = (None, false, false);
        self.applied.push(Applied {
            number: opened,
            undo,
            corrections,
            code,
            deployed,
            before,
            after,
            is_undone,
            is_closed,
        });
    }

    /// Releases what a rollback needs.
    fn release(&mut self, random: &mut Random) {
        if self.applied.is_empty() {
            return;
        }
        let at = random.index(self.applied.len());
        let applied = &mut self.applied[at];
        if !applied.is_closed {
            close(&self.world.namespace, applied.number).unwrap();
            applied.is_closed = true;
        }
    }

    fn expected(&self) -> Logs {
        let (mut corrections, mut code) = (Corrections::new(), Vec::new());
        for applied in self.now().into_iter().map(|at| &self.applied[at]) {
            corrections.extend(applied.corrections.iter().map(|(slot, value)| (*slot, *value)));
            code.extend(applied.code.clone());
        }
        let by = |function, revision| {
            let is_it =
                |applied: &Applied| applied.deployed.as_ref().is_some_and(|(f, r, _)| (*f, *r) == (function, revision));
            self.applied.iter().position(is_it)
        };
        let programs = |function: u32, mut revision: u32| {
            while by(function, revision).is_some_and(|at| !self.holds(at)) {
                revision -= 1;
            }
            &self.world.revisions[&(function, revision)]
        };
        let (logs, names, kept) = (&self.world.logs, &self.world.names, &self.world.kept);
        let (outbox, seeds, append_new) = (None, &Seeds::new(), true);
        let (programs, corrections, code) = (&programs, &corrections, &code);
        let model = Model { logs, names, programs, kept, corrections, code, append_new, outbox, seeds };
        model.history(self.world.namespace.journal()).unwrap()
    }

    /// Everything that the logs still have is what the oracle says.
    fn check(&self, what: &str) {
        let catalog = self.world.namespace.journal().catalog().unwrap();
        let mut expected = self.expected();
        expected.retain(|id, records: &mut BTreeMap<u64, Option<String>>| {
            let Some(log) = catalog.log_by_id(*id) else { return false };
            records.retain(|seqno, _| *seqno >= log.earliest());
            !records.is_empty()
        });
        same(&logs(&self.world), &expected, what);
    }
}

fn play(seed: u64, tally: &mut HashMap<&'static str, u64>) {
    let random = &mut Random(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut chain = Chain::new(&dir.path().join("n"), random);
    let steps = 40 + random.index(80);
    chain.live(random, steps);
    chain.check("the world is as its journal says");
    for number in 0..2 + random.index(7) {
        let what = match random.below(10) {
            0..5 => {
                chain.repair(random);
                "a repair"
            }
            5..9 => {
                chain.roll_back(random);
                "a rollback"
            }
            _ => {
                chain.release(random);
                "a release"
            }
        };
        chain.check(&format!("after step {number}, {what}"));
        let steps = random.index(25);
        chain.live(random, steps);
        if random.below(2) == 0 {
            chain.world.settle(random);
        }
        chain.check(&format!("life after step {number}, {what}"));
    }
    *tally.entry("repairs").or_default() +=
        chain.applied.iter().filter(|applied| applied.undo.is_none()).count() as u64;
    *tally.entry("rollbacks").or_default() +=
        chain.applied.iter().filter(|applied| applied.undo.is_some()).count() as u64;
    *tally.entry("rollbacks of rollbacks").or_default() += chain.undone_undos;
}

#[test]
fn any_order_of_repairs_and_rollbacks_leaves_what_the_oracle_says() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (begin, seconds) = (number("MILLRACE_SEED").unwrap_or(1), number("MILLRACE_REPAIR_SECONDS"));
    let (most, start) = (number("MILLRACE_REPAIR_SEEDS").unwrap_or(150), Instant::now());
    let goes_on = |played| seconds.map_or(played < most, |seconds| start.elapsed().as_secs() < seconds);
    let (mut tally, mut count) = (HashMap::new(), 0);
    while goes_on(count) {
        let seed = Seed(begin + count);
        play(seed.0, &mut tally);
        count += 1;
    }
    println!("tally: chains={count} {tally:?}");
    assert!(count < 50 || tally.values().all(|made| *made * 5 > count), "{tally:?} in {count}: too few show anything");
}
