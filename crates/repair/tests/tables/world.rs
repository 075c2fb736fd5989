//! A random application with tables on a real namespace, with a small host of its own: several runs are in progress at once, each is published
//! only if the keys that it read and changes are as it saw them.

use crate::program::{self, Io, KEYS, Program, Random, Step};
use millrace_journal::{Attempt, End, KeyedRead, Log, Outcome, Position, Reads, Run, What};
use millrace_namespace::{
    AppendOptions, CreateOptions, Definition, Durability, FunctionSpec, Namespace, Runtime,
    admission::{Publish, Room, Stage},
    fence::{Used, Verdict},
    runs::pending::{RecordOf, pending},
    tables::When,
};
use millrace_wire::{
    EventId, LogName,
    table::{Condition, KeyRange, TableOptions, TableRequest},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

/// Names of the logs: the sources, what functions append to, and the one of dead letters.
pub const LOGS: [&str; 4] = ["in/0", "in/1", "out", "dead"];
pub const DEAD: usize = 3;
/// Names of the tables: the first is changed from outside as well.
pub const TABLES: [&str; 3] = ["t/0", "t/1", "t/2"];

pub struct World {
    pub namespace: Namespace,
    pub logs: Vec<u32>,
    pub tables: Vec<u32>,
    pub programs: HashMap<u32, Program>,
    pub claims: Vec<Claim>,
    attempts: HashMap<EventId, u32>,
}

/// A run in progress.
pub struct Claim {
    function: u32,
    run: Run,
    fired: EventId,
    record: (u32, u64),
    input: i64,
    snapshot: Position,
    program: Program,
}

pub fn key(number: u64) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

/// What a record is as the input of a function.
pub fn input(payload: &[u8]) -> i64 {
    std::str::from_utf8(payload).unwrap().trim_start_matches("dead ").parse().unwrap_or(0)
}

/// The changes of a function go to what stands behind that which runs it, so that nothing runs for ever.
pub fn steps(random: &mut Random, on: usize) -> Vec<Step> {
    let behind = on.saturating_sub(1);
    let table = |random: &mut Random| random.index(TABLES.len());
    let to = |random: &mut Random| behind + random.index(TABLES.len() - behind);
    let key = |random: &mut Random| random.below(KEYS);
    let mut steps = Vec::new();
    for _ in 0..1 + random.index(5) {
        steps.push(match random.below(16) {
            0 | 1 => Step::Get(table(random), key(random)),
            2 | 3 => Step::GetOwn(table(random)),
            4 => Step::Scan(table(random), key(random), 1 + key(random)),
            5 | 6 => Step::Put(to(random), key(random)),
            7 | 8 => Step::PutOwn(to(random)),
            9 => Step::Unless(to(random), key(random), 2 + random.below(4)),
            10 => Step::PutNew(to(random), key(random)),
            11 => Step::Delete(to(random), key(random)),
            12 | 13 => Step::Increment(to(random), key(random)),
            14 if random.below(2) == 0 => Step::Fail(5 + random.below(6)),
            _ => Step::Append(2),
        });
    }
    steps
}

pub fn definition(n: usize, on: &str, steps: &[Step]) -> Definition {
    let mut spec = FunctionSpec::new(format!("f{n}").parse().unwrap(), Runtime::Process);
    spec.command = vec!["program".into()];
    spec.on = vec![on.parse().unwrap()];
    (spec.ordered, spec.concurrency, spec.retries) = (false, 4, 0);
    spec.dead_letter = LOGS[DEAD].parse().unwrap();
    spec.env.insert("STEPS".into(), serde_json::to_string(steps).unwrap());
    Definition { spec, code: "ab".repeat(32), file: None, application: None, confined: false, removing: false }
}

impl World {
    /// One whose tables keep so many of their newest records as logs.
    pub fn new(dir: &Path, random: &mut Random, history: u64) -> Self {
        let (durability, segment_bytes, retain_bytes) = (Durability::Memory, 1 << 20, 2 << 20);
        let options = CreateOptions { durability, segment_bytes, retain_bytes, ..CreateOptions::default() };
        let namespace = Namespace::create(dir, &options).unwrap();
        let log = |name: &str| namespace.create_log(&name.parse::<LogName>().unwrap(), 1 << 20).unwrap().id();
        let logs = LOGS.iter().map(|name| log(name)).collect();
        let table = |name: &str| {
            let name = name.parse::<LogName>().unwrap();
            namespace.create_table(&name, history, TableOptions::default()).unwrap().id()
        };
        let tables = TABLES.iter().map(|name| table(name)).collect();
        let mut programs = HashMap::new();
        for n in 0..2 + random.index(4) {
            // 0: the logs from outside; 1, 2: the first tables.
            let on = random.index(3);
            let name = if on == 0 { LOGS[random.index(2)] } else { TABLES[on - 1] };
            let steps = steps(random, if on == 0 { 0 } else { on + 1 });
            let definition = definition(n, name, &steps);
            let (name, attributes) = (definition.spec.name.clone(), definition.to_attributes());
            let committed = namespace.journal().commit(|tx| tx.define_function(&name, &attributes)).unwrap();
            programs.insert(committed.value.id(), Program { steps });
        }
        Self { namespace, logs, tables, programs, claims: Vec::new(), attempts: HashMap::new() }
    }

    /// Does one thing that could happen.
    pub fn step(&mut self, random: &mut Random) {
        match random.below(8) {
            0 | 1 => {
                let value = random.below(1000).to_string();
                self.namespace.append(LOGS[random.index(2)], value.as_bytes(), AppendOptions::default()).unwrap();
            }
            2 => {
                let (key, value) = (key(random.below(KEYS)), random.below(1000).to_string());
                let condition = Condition::Always;
                let request = match random.below(5) {
                    0 => TableRequest::Delete { key: &key, condition },
                    1 | 2 => TableRequest::Increment { key: &key, amount: random.below(9) as i64 },
                    _ => TableRequest::Put { key: &key, value: value.as_bytes(), condition, ttl_ms: 0 },
                };
                self.namespace.ask_table(TABLES[0], &request, AppendOptions::default()).unwrap();
            }
            3..=5 if self.claims.len() < 3 => self.claim(random),
            _ if !self.claims.is_empty() => {
                let claim = self.claims.swap_remove(random.index(self.claims.len()));
                self.publish(claim);
            }
            _ => {}
        }
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

    fn claim(&mut self, random: &mut Random) {
        let journal = self.namespace.journal();
        let catalog = journal.catalog().unwrap();
        let functions: Vec<_> = catalog.functions().cloned().collect();
        let first = random.index(functions.len());
        for at in 0..functions.len() {
            let function = &functions[(at + first) % functions.len()];
            let is_free = |run: EventId| self.claims.iter().all(|claim| claim.run.id != run);
            let mut runs = pending(journal, function, 1).filter_map(|run| run.unwrap().found());
            let Some(fold) = runs.find(|fold| is_free(fold.run.id)) else { continue };
            drop(runs);
            let tried = self.attempts.entry(fold.run.id).or_default();
            *tried += 1;
            let attempt = Attempt { attempt: *tried, revision: function.revision(), ..Attempt::default() };
            let committed = journal.commit(|tx| tx.fired(function.id(), fold.run, &attempt)).unwrap();
            let (log, seqno) = fold.record;
            let of = catalog.log_by_id(log).unwrap();
            let record = RecordOf { run: (function.id(), fold.run.number), cause: fold.cause, log: of, seqno };
            let Ok(payload) = self.namespace.record_of_run(record) else {
                // A repair took its record away.
                let end = End { outcome: Outcome::Cancelled, ..End::default() };
                journal.commit(|tx| tx.done(function.id(), fold.run, &end)).unwrap();
                return;
            };
            self.claims.push(Claim {
                function: function.id(),
                run: fold.run,
                fired: committed.value,
                record: (log, seqno),
                input: input(&payload),
                snapshot: committed.end,
                program: self.programs[&function.id()].clone(),
            });
            return;
        }
    }

    fn publish(&mut self, claim: Claim) {
        let catalog = self.namespace.journal().catalog().unwrap();
        let tables = self.tables.iter().map(|id| catalog.log_by_id(*id).unwrap().clone()).collect();
        let mut seen = Seen { world: self, tables, snapshot: claim.snapshot, did: Did::default() };
        let well = program::run(&claim.program.steps, claim.input, &mut seen);
        let Seen { tables, did, .. } = seen;
        let committed = self.namespace.journal().commit(|tx| {
            let mut publish = Publish::new(&self.namespace, tx);
            let used = did.used.iter().copied().chain([(claim.record.0, claim.record.1, What::Record)]);
            let passes = self.namespace.fence().judge(claim.function, claim.snapshot, used) == Verdict::Passes;
            let is_changed = |table: usize, key: u64| did.changes.iter().any(|it| it.0 == table && it.1 == key);
            for ((table, key), version) in &did.seen {
                let now = publish.current(&tables[*table], &self::key(*key), (0, false))?.seqno;
                if well && is_changed(*table, *key) && now != *version {
                    return Ok(()); // Somebody else was faster.
                }
            }
            if !passes {
                return Ok(());
            }
            let begun = tx.next_sequence();
            let (mut reads, mut before) = (did.reads.clone(), HashSet::new());
            for (table, number, change) in did.changes.iter().filter(|_| well) {
                let is_first = before.insert((*table, *number));
                if is_first && matches!(change.what, Did1::Delete) {
                    let (log, key) = (&tables[*table], self::key(*number));
                    let current = publish.current(log, &key, (1, false))?;
                    reads.keyed(&match current.has_value {
                        true => KeyedRead::Found { log: log.id(), seqno: current.seqno },
                        false => KeyedRead::Absent { log: log.id(), key: &key },
                    });
                }
            }
            tx.reads(claim.function, claim.run, reads)?;
            let stage = |ordinal: usize| Stage {
                cause: claim.run.id,
                ordinal: ordinal as u16,
                room: Room::Run,
                named: None,
                ending: Some(claim.function),
            };
            let log = |at: usize| catalog.log_by_id(self.logs[at]).unwrap();
            if well {
                for (ordinal, (to, key, change)) in did.changes.iter().enumerate() {
                    let (key, condition) = (&*self::key(*key), Condition::Always);
                    let value = change.value.map(|value| value.to_string()).unwrap_or_default();
                    let request = match change.what {
                        Did1::Append => {
                            publish.append(tx, log(*to), value.as_bytes(), stage(ordinal))?;
                            continue;
                        }
                        Did1::Put => TableRequest::Put { key, value: value.as_bytes(), condition, ttl_ms: 0 },
                        Did1::Delete => TableRequest::Delete { key, condition },
                        Did1::Increment => TableRequest::Increment { key, amount: change.value.unwrap() },
                    };
                    publish.change(tx, &tables[*to], &request, 1, stage(ordinal))?;
                }
            } else {
                publish.append(tx, log(DEAD), format!("dead {}", claim.input).as_bytes(), stage(0))?;
            }
            let outcome = if well { Outcome::Done } else { Outcome::Dead };
            let (effects, fired) = (tx.next_sequence() - begun, claim.fired.sequence());
            tx.done(claim.function, claim.run, &End { outcome, effects, fired, ..End::default() })?;
            Ok(())
        });
        committed.unwrap();
    }
}

#[derive(Clone, Copy)]
enum Did1 {
    Put,
    Delete,
    Increment,
    Append,
}

#[derive(Clone, Copy)]
struct Change1 {
    what: Did1,
    value: Option<i64>,
}

/// What a run did.
#[derive(Default)]
struct Did {
    changes: Vec<(usize, u64, Change1)>,
    reads: Reads,
    used: Vec<Used>,
    seen: BTreeMap<(usize, u64), u64>,
}

struct Seen<'a> {
    world: &'a World,
    tables: Vec<Log>,
    snapshot: Position,
    did: Did,
}

impl Seen<'_> {
    /// What the run itself left at a key, on top of what was there.
    fn own(&self, table: usize, key: u64, before: Option<i64>) -> Option<i64> {
        let mut value = before;
        for (_, _, change) in self.did.changes.iter().filter(|(of, at, _)| (*of, *at) == (table, key)) {
            value = match change.what {
                Did1::Put => change.value,
                Did1::Delete => None,
                Did1::Increment => Some(value.unwrap_or(0) + change.value.unwrap()),
                Did1::Append => value,
            };
        }
        value
    }

    fn when(&self) -> When {
        When { upto: Some(self.snapshot), now_us: 1 }
    }
}

impl Io for Seen<'_> {
    fn get(&mut self, table: usize, number: u64) -> Option<i64> {
        let (namespace, log, key) = (&self.world.namespace, &self.tables[table], key(number));
        let found = namespace.tables().get(namespace.journal(), log, &key, self.when()).unwrap();
        let newest = namespace.tables().newest(namespace.journal(), log, &key, self.when()).unwrap();
        let version = newest.map_or(0, |newest| newest.seqno);
        if self.did.seen.insert((table, number), version).is_none() {
            self.did.reads.keyed(&match &found {
                Some((found, _)) => KeyedRead::Found { log: log.id(), seqno: found.seqno },
                None => KeyedRead::Absent { log: log.id(), key: &key },
            });
        }
        self.did.used.push((log.id(), version, What::Record));
        let value = found.map(|(_, record)| input(&record.payload));
        self.own(table, number, value)
    }

    fn scan(&mut self, table: usize, from: u64, to: u64) -> Vec<(u64, i64)> {
        let (namespace, log) = (&self.world.namespace, self.tables[table].clone());
        let (first, last) = (key(from), key(to));
        let range = KeyRange { from: &first, to: &last };
        self.did.reads.keyed(&KeyedRead::Range { log: log.id(), from: range.from, to: range.to, limit: 100 });
        self.did.used.push((log.id(), 0, What::Record));
        let request = TableRequest::Scan { range, limit: 100, keys_only: false };
        let (answer, _) = namespace.read_table(&log, &request, self.when()).unwrap();
        let found: HashMap<Vec<u8>, (u64, i64)> =
            answer.entries.into_iter().map(|it| (it.key, (it.version, input(&it.value.unwrap())))).collect();
        let keys = (from..to).filter_map(|number| {
            let before = found.get(&key(number));
            if let Some((version, _)) = before {
                self.did.seen.entry((table, number)).or_insert(*version);
            }
            Some((number, self.own(table, number, before.map(|(_, value)| *value))?))
        });
        keys.collect()
    }

    fn put(&mut self, table: usize, key: u64, value: i64) {
        self.did.changes.push((table, key, Change1 { what: Did1::Put, value: Some(value) }));
    }

    fn delete(&mut self, table: usize, key: u64) {
        self.did.changes.push((table, key, Change1 { what: Did1::Delete, value: None }));
    }

    fn increment(&mut self, table: usize, key: u64, by: i64) {
        self.did.changes.push((table, key, Change1 { what: Did1::Increment, value: Some(by) }));
    }

    fn append(&mut self, log: usize, value: i64) {
        // No key has this number.
        self.did.changes.push((log, u64::MAX, Change1 { what: Did1::Append, value: Some(value) }));
    }
}
