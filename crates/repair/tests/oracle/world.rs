//! A random application on a real namespace, with a small host of its own: it claims, runs and publishes as a host does, several
//! claims at once.

use crate::program::{self, Io, Program, Random, Step};
use millrace_journal::{Attempt, Catalog, End, Log, Outcome, Position, Reads, Run, What};
use millrace_namespace::{
    AppendOptions, CreateOptions, Definition, Durability, FunctionSpec, Namespace, Runtime, View,
    admission::{Publish, Room, Stage},
    definition::{LogScope, Rights},
    fence::{Used, Verdict},
    outbox::NewMessage,
    runs::pending::{RecordOf, pending},
};
use millrace_wire::{Code, EventId, LogName, Name};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
};

pub struct World {
    pub namespace: Namespace,
    /// Ids of the logs; the last one takes dead letters.
    pub logs: Vec<u32>,
    pub names: Vec<LogName>,
    pub programs: HashMap<u32, Program>,
    /// The same before any repair.
    pub original: HashMap<u32, Program>,
    /// By function and revision.
    pub revisions: HashMap<(u32, u32), Program>,
    /// Functions that may have effects outside, and that a repair does not replay: what they left stays.
    pub kept: HashSet<u32>,
    /// Ids of the functions, and which log each is bound to.
    pub functions: Vec<(u32, usize)>,
    /// Which of them may have effects outside.
    external: HashSet<u32>,
    /// How many logs take records from outside.
    pub sources: usize,
    pub claims: Vec<Claim>,
    attempts: HashMap<EventId, u32>,
    /// The other namespace, and how many of its logs take messages, from which one on.
    other: Option<Other>,
}

/// Where messages go.
#[derive(Clone)]
pub struct Other {
    pub address: String,
    pub logs: std::ops::Range<usize>,
}

/// Runs of one function that are in progress.
pub struct Claim {
    function: u32,
    runs: Vec<Claimed>,
    snapshot: Position,
    catalog: Arc<Catalog>,
    program: Program,
}

struct Claimed {
    run: Run,
    fired: EventId,
    log: u32,
    seqno: u64,
    input: u64,
}

/// What one run of a claim did.
#[derive(Default)]
struct Did {
    appends: Vec<(usize, u64)>,
    /// Which of the appends are messages.
    sends: Vec<usize>,
    reads: Reads,
    used: Vec<Used>,
    depends: BTreeMap<u32, u64>,
}

impl World {
    pub fn new(dir: &Path, random: &mut Random) -> World {
        Self::beside(dir, random, None)
    }

    /// One whose functions send messages to another namespace.
    pub fn beside(dir: &Path, random: &mut Random, other: Option<Other>) -> World {
        let options =
            CreateOptions { durability: Durability::Memory, segment_bytes: 1 << 20, ..CreateOptions::default() };
        let namespace = Namespace::create(dir, &options).unwrap();
        let count = 3 + random.index(4);
        let sources = 1 + random.index(2);
        let mut names: Vec<LogName> = (0..count).map(|n| format!("log/{n}").parse().unwrap()).collect();
        names.push("dead".parse().unwrap());
        let logs: Vec<u32> = names.iter().map(|name| namespace.create_log(name, 1 << 20).unwrap().id()).collect();
        let (mut programs, mut functions, mut external) = (HashMap::new(), Vec::new(), HashSet::new());
        for n in 0..2 + random.index(4) {
            let on = random.index(count - 1);
            let mut steps = steps(random, on, count);
            if let Some(other) = other.as_ref().filter(|_| random.below(3) > 0) {
                steps.extend(sends(random, other));
            }
            let network = random.below(5) == 0;
            let definition = definition((n, network), &names[on], &steps, other.as_ref());
            let (name, attributes) = (definition.spec.name.clone(), definition.to_attributes());
            let committed = namespace.journal().commit(|tx| tx.define_function(&name, &attributes)).unwrap();
            programs.insert(committed.value.id(), Program { steps, reads: None });
            functions.push((committed.value.id(), on));
            if network {
                external.insert(committed.value.id());
            }
        }
        let (claims, attempts) = (Vec::new(), HashMap::new());
        let (original, kept) = (programs.clone(), external.clone());
        let revisions = programs.iter().map(|(function, program)| ((*function, 1), program.clone())).collect();
        World {
            namespace,
            logs,
            names,
            programs,
            original,
            revisions,
            kept,
            functions,
            external,
            sources,
            claims,
            attempts,
            other,
        }
    }

    /// Other code for one function: its id, its definition, and what that does.
    pub fn other_code(&self, random: &mut Random) -> (u32, Definition, Vec<Step>) {
        let n = random.index(self.functions.len());
        let (function, on) = self.functions[n];
        let mut steps = steps(random, on, self.logs.len() - 1);
        if let Some(other) = self.other.as_ref().filter(|_| random.below(2) == 0) {
            steps.extend(sends(random, other));
        }
        let network = self.external.contains(&function);
        let mut definition = definition((n, network), &self.names[on], &steps, self.other.as_ref());
        definition.spec.rights.reads = scopes(&self.programs[&function]);
        (function, definition, steps)
    }

    /// No function may have effects outside.
    pub fn without_effects(&mut self) {
        for function in std::mem::take(&mut self.external) {
            let n = self.functions.iter().position(|(id, _)| *id == function).unwrap();
            let program = self.programs[&function].clone();
            self.deploy(n, program);
        }
        self.kept.clear();
    }

    /// Deploys a function with other steps or other rights.
    pub fn redeploy(&mut self, random: &mut Random) {
        let n = random.index(self.functions.len());
        let (function, on) = self.functions[n];
        let mut program = self.programs[&function].clone();
        if random.below(2) == 0 {
            program.steps = steps(random, on, self.logs.len() - 1);
        }
        let some = |random: &mut Random| (0..self.logs.len()).filter(|_| random.below(3) > 0).collect();
        program.reads = if random.below(2) == 0 { None } else { Some(some(random)) };
        self.deploy(n, program);
    }

    fn deploy(&mut self, n: usize, program: Program) {
        let (function, on) = self.functions[n];
        let mut definition = definition((n, false), &self.names[on], &program.steps, self.other.as_ref());
        definition.spec.rights.reads = scopes(&program);
        let (name, attributes) = (definition.spec.name.clone(), definition.to_attributes());
        let revision = self.namespace.journal().commit(|tx| tx.define_function(&name, &attributes)).unwrap();
        self.deployed(function, revision.value.revision(), |_| program);
    }

    /// Notes what a new revision of a function does, which follows from what the one before did; returns that.
    pub fn deployed(&mut self, function: u32, revision: u32, now: impl FnOnce(Program) -> Program) -> Program {
        let before = self.programs[&function].clone();
        let now = now(before.clone());
        self.programs.insert(function, now.clone());
        self.revisions.insert((function, revision), now);
        before
    }

    /// Has a repair replay every function: their names.
    pub fn run_external(&mut self) -> Vec<Name> {
        self.kept.clear();
        (0..self.functions.len()).map(|n| format!("f{n}").parse().unwrap()).collect()
    }

    /// Does one thing that could happen.
    pub fn step(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => {
                let log = self.names[random.index(self.sources)].clone();
                let value = random.below(1000).to_string();
                self.namespace.append(&log, value.as_bytes(), AppendOptions::default()).unwrap();
            }
            1 | 2 if self.claims.len() < 3 => self.claim(random),
            _ if !self.claims.is_empty() => {
                let claim = self.claims.swap_remove(random.index(self.claims.len()));
                self.publish(claim);
            }
            _ => {}
        }
    }

    /// The id of the outbox, if anything was sent.
    pub fn outbox(&self) -> Option<u32> {
        let catalog = self.namespace.journal().catalog().unwrap();
        catalog.logs().find(|log| log.name().starts_with("_outbox/")).map(Log::id)
    }

    /// Runs until nothing is pending.
    pub fn settle(&mut self, random: &mut Random) {
        loop {
            while let Some(claim) = self.claims.pop() {
                self.publish(claim);
            }
            self.claim(random);
            if self.claims.is_empty() {
                return;
            }
        }
    }

    fn is_in_progress(&self, run: EventId) -> bool {
        self.claims.iter().any(|claim| claim.runs.iter().any(|claimed| claimed.run.id == run))
    }

    fn claim(&mut self, random: &mut Random) {
        let journal = self.namespace.journal();
        let catalog = journal.catalog().unwrap();
        let functions: Vec<_> = catalog.functions().cloned().collect();
        let most = 1 + random.index(3);
        for at in 0..functions.len() {
            let function = &functions[(at + random.index(functions.len())) % functions.len()];
            let runs = pending(journal, function, 1).filter_map(|run| run.unwrap().found());
            let runs: Vec<_> = runs.filter(|fold| !self.is_in_progress(fold.run.id)).take(most).collect();
            if runs.is_empty() {
                continue;
            }
            let committed = journal.commit(|tx| {
                let mut fired = Vec::new();
                for (place, fold) in runs.iter().enumerate() {
                    let attempt = self.attempts.get(&fold.run.id).copied().unwrap_or(0) + 1;
                    let (revision, place) = (function.revision(), place as u32);
                    let attempt = Attempt { attempt, revision, place, ..Attempt::default() };
                    fired.push(tx.fired(function.id(), fold.run, &attempt)?);
                }
                Ok((fired, tx.catalog().clone()))
            });
            let committed = committed.unwrap();
            let (fired, catalog) = committed.value;
            let mut claimed = Vec::new();
            for (fold, fired) in runs.iter().zip(fired) {
                *self.attempts.entry(fold.run.id).or_default() += 1;
                let (log, seqno) = fold.record;
                let log = catalog.log_by_id(log).unwrap();
                let record = RecordOf { run: (function.id(), fold.run.number), cause: fold.cause, log, seqno };
                let Ok(payload) = self.namespace.record_of_run(record) else {
                    // A repair took its record away.
                    let end = End { outcome: Outcome::Cancelled, ..End::default() };
                    journal.commit(|tx| tx.done(function.id(), fold.run, &end)).unwrap();
                    continue;
                };
                let input = String::from_utf8(payload).unwrap().parse().unwrap();
                claimed.push(Claimed { run: fold.run, fired, log: log.id(), seqno, input });
            }
            let (function, snapshot) = (function.id(), committed.end);
            let program = self.programs[&function].clone();
            self.claims.push(Claim { function, runs: claimed, snapshot, catalog, program });
            return;
        }
    }

    fn publish(&mut self, claim: Claim) {
        let journal = self.namespace.journal();
        let mut seen = Seen {
            view: View::new(journal, claim.catalog.clone(), claim.snapshot),
            names: &self.names,
            program: &claim.program,
            visible: Vec::new(),
            run: 0,
            did: Did::default(),
        };
        let mut results = Vec::new();
        for (run, claimed) in claim.runs.iter().enumerate() {
            (seen.run, seen.did) = (run, Did::default());
            let done = program::run(&claim.program.steps, claimed.input, &mut seen);
            if !done {
                seen.visible.retain(|(of, ..)| *of != run);
                seen.did.appends.clear();
            }
            results.push((std::mem::take(&mut seen.did), done));
        }
        drop(seen);
        let (logs, other) = (&self.logs, self.other.as_ref());
        let journal = self.namespace.journal();
        let committed = journal.commit(|tx| {
            let mut publish = Publish::new(&self.namespace, tx);
            let catalog = tx.catalog().clone();
            let mut newest: HashMap<u32, u64> = catalog.logs().map(|log| (log.id(), log.latest())).collect();
            let mut tainted = false;
            for (claimed, (did, done)) in claim.runs.iter().zip(&results) {
                let used = did.used.iter().copied().chain([(claimed.log, claimed.seqno, What::Record)]);
                let passes = self.namespace.fence().judge(claim.function, claim.snapshot, used) == Verdict::Passes;
                let as_seen = did.depends.iter().all(|(log, seqno)| newest[log] == *seqno);
                if !passes || !as_seen || tainted && !did.depends.is_empty() {
                    tainted = true;
                    continue;
                }
                let begun = tx.next_sequence();
                tx.reads(claim.function, claimed.run, did.reads.clone())?;
                let dead = [(logs.len() - 1, format!("dead {}", claimed.input))];
                let well = did.appends.iter().map(|(log, value)| (*log, value.to_string()));
                let appends: Vec<_> = if *done { well.collect() } else { dead.to_vec() };
                for (ordinal, (log, value)) in appends.into_iter().enumerate() {
                    if *done && did.sends.contains(&ordinal) {
                        let to = format!("{}/log/{log}", other.unwrap().address).parse().unwrap();
                        let (cause, ordinal, data) = (claimed.run.id, ordinal as u16, value.as_bytes());
                        publish.send(tx, Room::Run, NewMessage { to: &to, function: None, data, cause, ordinal })?;
                        continue;
                    }
                    let log = catalog.log_by_id(logs[log]).unwrap();
                    let (cause, ending) = (claimed.run.id, Some(claim.function));
                    let stage = Stage { cause, ordinal: ordinal as u16, room: Room::Run, named: None, ending };
                    let appended = publish.append(tx, log, value.as_bytes(), stage)?;
                    newest.insert(log.id(), appended.seqno);
                }
                let outcome = if *done { Outcome::Done } else { Outcome::Dead };
                let (effects, fired) = (tx.next_sequence() - begun, claimed.fired.sequence());
                tx.done(claim.function, claimed.run, &End { outcome, effects, fired, ..End::default() })?;
            }
            Ok(())
        });
        committed.unwrap();
    }
}

/// The logs that a program may read, as a definition names them.
fn scopes(program: &Program) -> Option<Vec<LogScope>> {
    let reads = program.reads.as_ref()?;
    Some(reads.iter().map(|log| format!("log/{log}").parse().unwrap()).collect())
}

/// What a function does. It appends to logs behind the one that runs it, so nothing runs forever.
pub fn steps(random: &mut Random, on: usize, count: usize) -> Vec<Step> {
    let to = |random: &mut Random| on + 1 + random.index(count - on - 1);
    let mut steps = Vec::new();
    for _ in 0..1 + random.index(5) {
        steps.push(match random.below(10) {
            0 => Step::Latest(random.index(count)),
            1 | 2 => Step::Newest(random.index(count)),
            3 => Step::Back(random.index(count), 1 + random.below(3)),
            4 => Step::At(random.index(count), 1 + random.below(5)),
            5 => Step::Either(random.index(count), random.index(count)),
            6 => Step::Unless(to(random), 2 + random.below(6)),
            7 if random.below(3) == 0 => Step::Fail(5 + random.below(6)),
            _ => Step::Append(to(random)),
        });
    }
    steps
}

/// Messages that a function sends.
fn sends(random: &mut Random, other: &Other) -> Vec<Step> {
    let mut sends = Vec::new();
    for _ in 0..1 + random.index(2) {
        let to = other.logs.start + random.index(other.logs.len());
        sends.push(if random.below(3) == 0 { Step::SendUnless(to, 2 + random.below(6)) } else { Step::Send(to) });
    }
    sends
}

pub fn definition((n, network): (usize, bool), on: &LogName, steps: &[Step], other: Option<&Other>) -> Definition {
    let mut spec = FunctionSpec::new(format!("f{n}").parse().unwrap(), Runtime::Process);
    spec.command = vec!["program".into()];
    spec.on = vec![on.clone()];
    (spec.ordered, spec.concurrency, spec.retries, spec.network) = (false, 4, 0, network);
    spec.dead_letter = "dead".parse().unwrap();
    spec.rights.sends = other.map(|other| other.address.parse().unwrap()).into_iter().collect();
    spec.env.insert("STEPS".into(), serde_json::to_string(steps).unwrap());
    Definition { spec, code: "ab".repeat(32), file: None, application: None, confined: false, removing: false }
}

/// The namespace as the runs of a claim see it.
struct Seen<'a> {
    view: View<'a>,
    names: &'a [LogName],
    program: &'a Program,
    /// Appends of the claim so far: run, log, value.
    visible: Vec<(usize, usize, u64)>,
    run: usize,
    did: Did,
}

impl Seen<'_> {
    fn extent(&mut self, at: usize) -> (Log, u64, u64) {
        let log = self.view.log(Rights::default().readable(&self.names[at], None).unwrap()).unwrap();
        let base = self.view.latest(&log).unwrap();
        let others = self.visible.iter().filter(|(run, of, _)| *of == at && *run < self.run).count() as u64;
        if others > 0 {
            self.did.depends.insert(log.id(), base + others);
        }
        (log, base, others)
    }

    fn note(&mut self, log: &Log, seqno: u64, what: What) {
        self.did.reads.log(log.id(), seqno, what);
        self.did.used.push((log.id(), seqno, what));
    }
}

impl Io for Seen<'_> {
    fn latest(&mut self, at: usize) -> u64 {
        if !self.program.may_read(at) {
            return 0;
        }
        let (log, base, others) = self.extent(at);
        let appends = self.did.appends.iter().enumerate().filter(|(n, _)| !self.did.sends.contains(n));
        let own = appends.filter(|(_, (of, _))| *of == at).count() as u64;
        let newest = self.view.newest(&log, base).unwrap();
        let reported = if others > 0 { base + others } else { newest };
        self.note(&log, reported, What::Latest);
        if own > 0 { base + others + own } else { reported }
    }

    fn get(&mut self, at: usize, seqno: u64) -> Option<u64> {
        if !self.program.may_read(at) {
            return None;
        }
        let (log, base, _) = self.extent(at);
        if seqno <= base {
            let read = self.view.get(&log, seqno);
            let what = match &read {
                Ok(_) => What::Record,
                Err(error) if error.code() == Code::BelowHistory => What::BelowHistory,
                Err(error) => What::Refused(error.code().id()[2..].parse().unwrap()),
            };
            self.note(&log, seqno, what);
            return String::from_utf8(read.ok()?).unwrap().parse().ok();
        }
        let of_log: Vec<_> = self.visible.iter().filter(|(_, of, _)| *of == at).copied().collect();
        match of_log.get((seqno - base - 1) as usize) {
            Some((run, _, value)) => {
                if *run != self.run {
                    self.note(&log, seqno, What::Record);
                }
                Some(*value)
            }
            None => {
                self.note(&log, seqno, What::Absent);
                None
            }
        }
    }

    fn append(&mut self, at: usize, value: u64) {
        self.did.appends.push((at, value));
        self.visible.push((self.run, at, value));
    }

    fn send(&mut self, at: usize, value: u64) {
        self.did.sends.push(self.did.appends.len());
        self.did.appends.push((at, value));
    }
}
