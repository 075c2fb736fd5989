//! What a journal must hold after any crash, kept beside a live one while it is used.
//!
//! The model knows every batch that was ever committed and how far the journal was acknowledged as durable. A recovered
//! journal is right if it is the live one's bytes up to the end of *some* batch at or behind that mark: then nothing
//! acknowledged is lost, nothing that was not committed appears, batches are whole and in order, seqnos have no holes.

// Each test binary uses its part of the model.
#![allow(dead_code)]

use millrace_journal::{
    CreateOptions, Durability, Entry, Journal, Kind, OpenOptions, Position,
    medium::{Medium, sim::SimDisk, sim::SimMedium},
};
use millrace_wire::{Code, EventId, HISTORY_ALL, Result};
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::Arc,
};

/// A log as the catalog shows it: id, history, latest, earliest.
type LogView = (u32, u64, u64, u64);
/// A function as the catalog shows it: id, attributes, triggered, done.
type FunctionView = (u32, String, u64, u64);

/// Everything the catalog says at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub logs: BTreeMap<String, LogView>,
    pub functions: BTreeMap<String, FunctionView>,
}

impl View {
    pub fn of(journal: &Journal) -> View {
        let catalog = journal.catalog().unwrap();
        View {
            logs: catalog
                .logs()
                .map(|log| (log.name().to_string(), (log.id(), log.history(), log.latest(), log.earliest())))
                .collect(),
            functions: catalog
                .functions()
                .map(|f| (f.name().to_string(), (f.id(), f.attributes().to_owned(), f.triggered(), f.done())))
                .collect(),
        }
    }
}

impl View {
    fn define(&mut self, payload: &[u8]) {
        let definition: serde_json::Value = serde_json::from_slice(payload).unwrap();
        let text = |key: &str| definition[key].as_str().unwrap().to_owned();
        let id = definition["id"].as_u64().unwrap() as u32;
        match definition["define"].as_str().unwrap() {
            "log" => drop(self.logs.insert(text("name"), (id, definition["history"].as_u64().unwrap(), 0, 0))),
            "function" => {
                let (triggered, done) = self.functions.get(&text("name")).map_or((0, 0), |f| (f.2, f.3));
                self.functions.insert(text("name"), (id, text("attributes"), triggered, done));
            }
            "log-history" => {
                let history = match definition["history"].as_u64().unwrap() {
                    0 => HISTORY_ALL,
                    history => history,
                };
                for log in self.logs.values_mut().filter(|log| log.0 == id) {
                    (log.1, log.3) = (history, log.3.max((log.2 + 1).saturating_sub(history)));
                }
            }
            "remove-log" => self.logs.retain(|_, log| log.0 != id),
            "remove-function" => self.functions.retain(|_, function| function.0 != id),
            "pin" | "remove-pin" => {}
            other => panic!("a definition of a new kind: {other}"),
        }
    }
}

/// What was committed, and what of it was acknowledged as durable.
#[derive(Clone, Default)]
pub struct Model {
    /// Every entry by position, as the live journal showed it.
    pub entries: BTreeMap<u64, Entry>,
    /// The catalog at the end of each batch.
    pub views: BTreeMap<u64, View>,
    /// Records by log and seqno.
    pub records: BTreeMap<(u32, u64), (EventId, Vec<u8>)>,
    /// The tail of which `sync` said that it is on disk.
    pub durable: u64,
    pub epoch: u32,
    /// Every id that anybody was ever told.
    pub ids: HashSet<EventId>,
}

pub fn sim_options(durability: Durability) -> CreateOptions {
    CreateOptions { segment_bytes: 1 << 20, retain_bytes: 2 << 20, retain_age: None, durability }
}

pub fn open(medium: &Arc<SimMedium>) -> Result<Journal> {
    Journal::open_on(medium.clone(), Path::new("sim"), &OpenOptions { background: false })
}

/// A new namespace that one process has open.
pub fn create(durability: Durability) -> (SimDisk, Arc<SimMedium>, Journal, Model) {
    let disk = SimDisk::default();
    let first = disk.process();
    // `create_on` opens with a background thread, which would make runs differ.
    drop(Journal::create_on(first, Path::new("sim"), &sim_options(durability)).unwrap());
    let medium = disk.process();
    let journal = open(&medium).unwrap();
    let mut model = Model { epoch: journal.epoch(), ..Model::default() };
    model.learn(&journal);
    model.durable = journal.tail().get();
    (disk, medium, journal, model)
}

/// All entries from a position on; damage is a failure.
pub fn entries(journal: &Journal, from: Position) -> Vec<Entry> {
    let mut scan = journal.scan_all(from);
    let mut entries = Vec::new();
    while let Some(entry) = scan.next().unwrap() {
        entries.push(entry.clone());
    }
    entries
}

impl Model {
    /// Takes in what was committed since.
    pub fn learn(&mut self, journal: &Journal) {
        let from = self.entries.values().next_back().map_or(Position::default(), |entry| entry.end);
        for entry in entries(journal, from) {
            if !entry.carried {
                assert!(self.ids.insert(entry.id), "{} was given out twice", entry.id);
            }
            if entry.kind == Kind::Append && !entry.shadow {
                let record = (entry.id, entry.payload.clone());
                let known = self.records.insert((entry.subject, entry.seqno), record.clone());
                assert!(
                    known.as_ref().is_none_or(|known| entry.carried && *known == record),
                    "{entry:?} replaces {known:?}"
                );
            }
            self.entries.insert(entry.position.get(), entry);
        }
        self.views.insert(journal.tail().get(), View::of(journal));
    }

    /// Takes in what was committed since, all of which is acknowledged as durable.
    pub fn learn_durable(&mut self, journal: &Journal) {
        self.learn(journal);
        self.durable = journal.tail().get();
    }

    /// Opens the namespace on `disk` and verifies everything. Returns the journal and the medium it runs on.
    pub fn verify(&self, disk: &SimDisk, context: &str) -> (Arc<SimMedium>, Journal) {
        let medium = disk.process();
        let journal = open(&medium).unwrap_or_else(|error| panic!("{context}: {error}"));
        self.verify_open(&journal, true, context);
        (medium, journal)
    }

    /// Verifies a journal that was just opened; `unclean` if it must have begun a new epoch.
    pub fn verify_open(&self, journal: &Journal, unclean: bool, context: &str) {
        let recovery = journal.recovery();
        assert!(recovery.damaged.is_empty(), "{context}: damage is reported: {recovery:?}");
        assert!(!unclean || journal.epoch() > self.epoch, "{context}: the epoch is still {}", journal.epoch());
        let mut found = entries(journal, Position::default());
        if unclean {
            let open = found.pop().unwrap_or_else(|| panic!("{context}: the journal is empty"));
            assert_eq!((open.kind, open.last), (Kind::Open, true), "{context}");
            assert!(!self.ids.contains(&open.id), "{context}: {} was given out again", open.id);
        }
        // Recoveries that were cut short leave their OPENs, which the model never saw.
        while found.last().is_some_and(|entry| entry.kind == Kind::Open && entry.id.epoch() > self.epoch) {
            found.pop();
        }
        let first = journal.first().get();
        let tail = found.last().map_or(first, |entry| entry.end.get());
        assert!(tail >= self.durable, "{context}: acknowledged up to {:#x}, recovered up to {tail:#x}", self.durable);
        let expected: Vec<&Entry> = self.entries.range(first..tail).map(|(_, entry)| entry).collect();
        let positions = |entries: &[&Entry]| entries.iter().map(|e| (e.position.get(), e.kind)).collect::<Vec<_>>();
        assert!(
            found.len() == expected.len()
                && found.iter().zip(&expected).all(|(found, expected)| is_same(found, expected)),
            "{context}: found {:x?}, expected {:x?}",
            positions(&found.iter().collect::<Vec<_>>()),
            positions(&expected)
        );
        assert!(found.last().is_none_or(|entry| entry.last), "{context}: the journal ends within a batch");
        let view = self.views.get(&tail).cloned().unwrap_or_else(|| self.view_at(tail));
        assert_eq!(View::of(journal), view, "{context}: the catalog at {tail:#x}");
        self.verify_records(journal, tail, context);
        let report = journal.check(&mut |_, _| {}).unwrap();
        assert_eq!(report.fault_count, 0, "{context}: {:?}", report.faults);
    }

    /// The catalog that the entries before a position make.
    fn view_at(&self, tail: u64) -> View {
        let mut view = View::default();
        for entry in self.entries.range(..tail).map(|(_, entry)| entry) {
            let log = view.logs.values_mut().find(|log| log.0 == entry.subject);
            let function = view.functions.values_mut().find(|function| function.0 == entry.subject);
            match (entry.kind, log, function) {
                _ if entry.shadow => {}
                (Kind::Append, Some(log), _) => {
                    log.2 = log.2.max(entry.seqno);
                    log.3 = log.3.max((log.2 + 1).saturating_sub(log.1)).max(1);
                }
                (Kind::Trim, Some(log), _) => log.3 = log.3.max(entry.seqno),
                (Kind::Trigger, _, Some(function)) => function.2 = function.2.max(entry.seqno),
                (Kind::Done, _, Some(function)) => function.3 = function.3.max(entry.ended().unwrap()),
                (Kind::Define, ..) => view.define(&entry.payload),
                _ => {}
            }
        }
        view
    }

    /// Where GENERATIONs before a position have slots lead.
    fn replaced(&self, tail: u64) -> BTreeMap<(u32, u64), &Entry> {
        let generations = self.entries.range(..tail).flat_map(|(_, entry)| entry.generation_rows());
        generations.map(|(log, seqno, at)| ((log, seqno), &self.entries[&at.get()])).collect()
    }

    fn verify_records(&self, journal: &Journal, tail: u64, context: &str) {
        let (mut payload, replaced) = (Vec::new(), self.replaced(tail));
        for log in journal.catalog().unwrap().logs() {
            for seqno in log.earliest().max(1)..=log.latest() {
                let of_repair = replaced.get(&(log.id(), seqno));
                let read = journal.get(log, seqno, &mut payload);
                if of_repair.and_then(|entry| entry.replaced()).is_some_and(|replaced| replaced.void) {
                    assert_eq!(read.unwrap_err().code(), Code::RecordVoid, "{context}");
                    continue;
                }
                let meta = read.unwrap_or_else(|error| panic!("{context}: {error}"));
                let recorded = || self.records[&(log.id(), seqno)].clone();
                let (id, bytes) = &of_repair.map_or_else(recorded, |entry| (entry.id, entry.payload.clone()));
                assert!(meta.id == *id && payload == *bytes, "{context}: record {seqno} of {log:?} changed");
            }
        }
    }

    /// Uses a recovered journal, ends it cleanly or not, and opens it again.
    pub fn use_again(&self, medium: &Arc<SimMedium>, journal: Journal, disk: &SimDisk, context: &str) {
        let mut model = Model { durable: 0, ids: self.ids.clone(), ..Model::default() };
        model.learn_from_start(&journal);
        let log = journal.commit(|batch| batch.create_log(&"afterwards".parse().unwrap(), 3)).unwrap().value;
        let end = journal.commit(|batch| batch.append(&log, b"again", EventId::NONE, 0)).unwrap().end;
        journal.sync(end).unwrap();
        model.learn_durable(&journal);
        model.epoch = journal.epoch();
        drop((journal, log));
        assert!(!medium.has_others().unwrap());
        let again = disk.process();
        let journal = open(&again).unwrap();
        assert!(!journal.recovery().scanned, "{context}: a clean end was not believed");
        model.verify_open(&journal, false, context);
        again.kill();
        drop(journal);
        let (last, journal) = model.verify(disk, context);
        last.kill();
        drop(journal);
    }

    /// The model of a journal that was recovered; ids that were given out and lost stay known.
    pub fn after(&self, journal: &Journal) -> Model {
        let mut next = Model { ids: self.ids.clone(), ..self.clone() };
        let tail = journal.tail().get();
        let is_kept = |position: &u64| *position < tail;
        next.entries.retain(|position, entry| is_kept(position) && entry.id.epoch() <= self.epoch);
        next.views.retain(|position, _| *position <= tail);
        let from = next.entries.range(..).next_back().map_or(0, |(_, entry)| entry.end.get());
        let found = entries(journal, journal.first());
        let lost: Vec<u64> = next
            .entries
            .keys()
            .copied()
            .filter(|at| *at >= journal.first().get() && !found.iter().any(|entry| entry.position.get() == *at))
            .collect();
        lost.iter().for_each(|at| drop(next.entries.remove(at)));
        for entry in found.into_iter().filter(|entry| entry.position.get() >= from || entry.id.epoch() > self.epoch) {
            next.ids.insert(entry.id);
            next.entries.insert(entry.position.get(), entry);
        }
        next.records = BTreeMap::new();
        for entry in next.entries.values().filter(|entry| entry.kind == Kind::Append && !entry.shadow) {
            next.records.insert((entry.subject, entry.seqno), (entry.id, entry.payload.clone()));
        }
        next.views.clear();
        next.views.insert(tail, View::of(journal));
        next.durable = tail;
        next.epoch = journal.epoch();
        next
    }

    fn learn_from_start(&mut self, journal: &Journal) {
        let known = std::mem::take(&mut self.ids);
        self.learn(journal);
        let last = self.entries.values().next_back().unwrap();
        assert!(!known.contains(&last.id) || last.kind != Kind::Open, "{} was given out again", last.id);
        // Ids that were handed out and lost must not come back either.
        let mine = std::mem::replace(&mut self.ids, known);
        self.ids.extend(mine);
    }
}

fn is_same(a: &Entry, b: &Entry) -> bool {
    let fields =
        |e: &Entry| (e.position, e.written, e.kind, e.id, e.hlc, e.cause, e.subject, e.seqno, e.ordinal, e.last);
    fields(a) == fields(b) && a.payload == b.payload && a.carried == b.carried
}

/// Calls `f` with every combination of surviving sectors, lengths and names, or with `most` of them that are spread over
/// all: none, all, each alone, all but each, and random ones. Returns how many.
pub fn each_image(disk: &SimDisk, most: usize, random: &mut Random, f: &mut dyn FnMut(SimDisk, &str)) -> usize {
    let radices = disk.choices();
    let product = radices.iter().try_fold(1usize, |product, n| product.checked_mul(*n).filter(|p| *p <= most));
    let run = |picks: &[usize], f: &mut dyn FnMut(SimDisk, &str)| {
        let mut asked = 0;
        let image = disk.crash(&mut |n| {
            asked += 1;
            picks.get(asked - 1).copied().unwrap_or(0).min(n - 1)
        });
        let kept: Vec<String> =
            picks.iter().enumerate().filter(|(_, pick)| **pick > 0).map(|(n, pick)| format!("{n}:{pick}")).collect();
        f(image, &format!("{} of {} survive: {:.300}", kept.len(), radices.len(), kept.join(" ")));
    };
    if let Some(product) = product {
        let mut picks = vec![0; radices.len()];
        for mut n in 0..product {
            for (pick, radix) in picks.iter_mut().zip(&radices) {
                *pick = n % radix;
                n /= radix;
            }
            run(&picks, f);
        }
        return product;
    }
    let newest: Vec<usize> = radices.iter().map(|n| n - 1).collect();
    let mut all = vec![vec![0; radices.len()], newest.clone()];
    for at in 0..radices.len().min(most / 4) {
        let (mut alone, mut without) = (vec![0; radices.len()], newest.clone());
        (alone[at], without[at]) = (newest[at], 0);
        all.extend([alone, without]);
    }
    while all.len() < most {
        all.push(radices.iter().map(|n| random.below(*n)).collect());
    }
    all.iter().for_each(|picks| run(picks, f));
    all.len()
}

/// A generator that is good enough to choose faults, and the same everywhere (xorshift64*).
pub struct Random(u64);

impl Random {
    /// Seeded by MILLRACE_SEED, or by the clock; prints the seed.
    pub fn new(test: &str) -> Self {
        let seed = match std::env::var("MILLRACE_SEED") {
            Ok(text) => text.parse().expect("MILLRACE_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1,
        };
        println!("{test}: MILLRACE_SEED={seed}");
        Self::from_seed(seed)
    }

    pub fn from_seed(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
