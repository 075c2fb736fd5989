//! Compares discovery with a closure that is computed by testing every pair of events until nothing is added.

use crate::world::{Entry, OUTBOX, Random, World, name_of, table};
use millrace_causality::{Changes, Class, Kept, discover};
use millrace_journal::Kind;
use millrace_wire::{EventId, NamespaceId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What has to be replayed of a journal, found without an order: records and runs that will change, runs that may.
struct Closure<'e> {
    entries: &'e [Entry],
    by_id: HashMap<EventId, usize>,
    /// By run: its function, its READ, its DONE.
    reads: HashMap<EventId, &'e Entry>,
    done: HashMap<EventId, usize>,
    fired: HashSet<EventId>,
    kept: HashSet<u32>,
    targets: BTreeMap<u32, BTreeSet<u32>>,
    will: HashSet<EventId>,
    may: HashSet<EventId>,
}

impl<'e> Closure<'e> {
    fn new(entries: &'e [Entry], kept: HashSet<u32>) -> Self {
        let of = |kind| entries.iter().enumerate().filter(move |(_, entry)| entry.kind == kind);
        let by_id: HashMap<EventId, usize> = entries.iter().enumerate().map(|(at, entry)| (entry.id, at)).collect();
        let mut targets: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (_, append) in of(Kind::Append).filter(|(_, entry)| !entry.claimed) {
            if let Some(run) = by_id.get(&append.cause).map(|at| &entries[*at]).filter(|run| run.kind == Kind::Trigger)
            {
                targets.entry(run.subject).or_default().insert(append.subject);
            }
        }
        Self {
            entries,
            reads: of(Kind::Read).map(|(_, read)| (read.cause, read)).collect(),
            done: of(Kind::Done).map(|(at, done)| (done.cause, at)).collect(),
            fired: of(Kind::Fired).map(|(_, fired)| fired.cause).collect(),
            by_id,
            kept,
            targets,
            will: HashSet::new(),
            may: HashSet::new(),
        }
    }

    fn run_of(&self, append: &Entry) -> Option<&'e Entry> {
        let run = &self.entries[*self.by_id.get(&append.cause)?];
        (run.kind == Kind::Trigger && !append.claimed).then_some(run)
    }

    fn replayed(&self, run: &Entry) -> bool {
        !self.kept.contains(&run.subject) && self.fired.contains(&run.id)
    }

    /// The record of a log with this seqno.
    fn record(&self, log: u32, seqno: u64) -> Option<&'e Entry> {
        self.entries.iter().find(|entry| entry.kind == Kind::Append && (entry.subject, entry.seqno) == (log, seqno))
    }

    /// Whether the number of records of a log before this entry may change, because a run that ended before it is replayed.
    fn count_moves(&self, log: u32, before: usize) -> bool {
        self.entries.iter().filter(|entry| entry.kind == Kind::Trigger).any(|run| {
            (self.will.contains(&run.id) || self.may.contains(&run.id))
                && !self.kept.contains(&run.subject)
                && self.done.get(&run.id).is_some_and(|done| *done < before)
                && self.targets.get(&run.subject).is_some_and(|targets| targets.contains(&log))
        })
    }

    fn number_moves(&self, log: u32, seqno: u64) -> bool {
        let Some(record) = self.record(log, seqno) else { return false };
        self.count_moves(log, self.by_id[&record.id])
    }

    fn grow(&mut self, corrected: &HashSet<EventId>, seeds: &HashSet<EventId>, functions: &HashMap<u32, usize>) {
        loop {
            let (mut will, mut may) = (self.will.clone(), self.may.clone());
            for (at, entry) in self.entries.iter().enumerate() {
                match entry.kind {
                    Kind::Append => {
                        let run = self.run_of(entry).filter(|run| self.replayed(run));
                        if corrected.contains(&entry.id)
                            || (!entry.claimed && seeds.contains(&entry.cause))
                            || run.is_some_and(|run| self.will.contains(&run.id))
                        {
                            will.insert(entry.id);
                        } else if run.is_some_and(|run| self.may.contains(&run.id)) {
                            may.insert(entry.id);
                        }
                    }
                    Kind::Trigger => {
                        let Some(cause) = self.by_id.get(&entry.cause).map(|at| &self.entries[*at]) else { continue };
                        if self.will.contains(&cause.id) {
                            will.insert(entry.id);
                        } else if self.may.contains(&cause.id) || self.number_moves(cause.subject, cause.seqno) {
                            may.insert(entry.id);
                        }
                        let Some(read) = self.reads.get(&entry.id) else { continue };
                        let at = self.by_id[&read.id];
                        for row in &read.reads {
                            let seqnos = row.from..row.from + row.count;
                            let records: Vec<&Entry> = seqnos.filter_map(|seqno| self.record(row.log, seqno)).collect();
                            if row.what != 0 {
                                if self.count_moves(row.log, at) {
                                    may.insert(entry.id);
                                }
                            } else if records.iter().any(|record| self.will.contains(&record.id)) {
                                will.insert(entry.id);
                            } else if records.iter().any(|record| {
                                self.may.contains(&record.id) || self.number_moves(record.subject, record.seqno)
                            }) {
                                may.insert(entry.id);
                            }
                        }
                    }
                    Kind::Fired if functions.get(&entry.subject).is_some_and(|since| at >= *since) => {
                        will.insert(entry.cause);
                    }
                    _ => {}
                }
            }
            if will == self.will && may == self.may {
                return;
            }
            (self.will, self.may) = (will, may);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn discovery_finds_what_the_closure_of_all_pairs_has(
        seed: u64, steps in 1usize..90, records in 0u64..4, code in any::<bool>(), keep in any::<bool>(), seeded in any::<bool>(),
    ) {
        let world = World::grown(seed, 2, steps);
        let namespace = &world.namespaces[0];
        let entries = &namespace.entries;
        let built = table(namespace.id, entries);
        let mut random = Random(seed ^ 1);
        let mut changes = Changes::default();
        let mut corrected = HashSet::new();
        let appends: Vec<&Entry> = entries.iter().filter(|entry| entry.kind == Kind::Append && entry.subject != OUTBOX).collect();
        for _ in 0..records {
            if !appends.is_empty() {
                let record = appends[random.below(appends.len() as u64) as usize];
                corrected.insert(record.id);
                changes.records.insert(built.find(record.id).unwrap());
            }
        }
        let mut functions = HashMap::new();
        if code {
            let since = random.below(entries.len() as u64) as usize;
            functions.insert(12, since);
            changes.functions.insert(12, since as u32);
        }
        if seeded {
            let elsewhere = &world.namespaces[1].entries;
            changes.seeds.extend(elsewhere.iter().filter(|_| random.chance(20)).map(|entry| entry.id));
        }
        let kept: HashSet<u32> = if keep { HashSet::from([13]) } else { HashSet::new() };
        let mut closure = Closure::new(entries, kept.clone());
        closure.grow(&corrected, &changes.seeds, &functions);

        let found = discover(&built, &changes, &mut |run| kept.contains(&run.function).then_some(Kept::External));
        let of = |class| found.candidates.iter().filter(|run| run.class == class).map(|run| built.id(run.run)).collect::<BTreeSet<_>>();
        let runs = |set: &HashSet<EventId>| {
            set.iter().copied().filter(|id| entries[closure.by_id[id]].kind == Kind::Trigger).collect::<BTreeSet<_>>()
        };
        let will = runs(&closure.will);
        let may: BTreeSet<EventId> = runs(&closure.may).difference(&will).copied().collect();
        prop_assert_eq!(of(Class::Will), will);
        prop_assert_eq!(of(Class::May), may);
        let records: BTreeSet<EventId> = found.records.iter().map(|row| built.id(*row)).collect();
        let expected = closure.will.iter().copied().filter(|id| entries[closure.by_id[id]].kind == Kind::Append);
        prop_assert_eq!(records, expected.collect::<BTreeSet<_>>());
    }
}

#[test]
fn a_run_that_appended_nothing_is_reached() {
    // Not all runs of the world append; some of those that were reached did not.
    let world = World::grown(11, 1, 300);
    let namespace = &world.namespaces[0];
    let built = table(namespace.id, &namespace.entries);
    let records =
        namespace.entries.iter().filter(|entry| entry.kind == Kind::Append).map(|entry| built.find(entry.id).unwrap());
    let found = discover(&built, &Changes { records: records.collect(), ..Changes::default() }, &mut |_| None);
    let silent = found.candidates.iter().filter(|run| {
        let id = built.id(run.run);
        !run.pending && !namespace.entries.iter().any(|entry| entry.kind == Kind::Append && entry.cause == id)
    });
    assert!(silent.count() > 0);
}

#[test]
fn a_claim_of_a_client_is_no_effect_and_a_delivery_of_a_link_is() {
    let world = World::grown(2, 1, 30);
    let namespace = &world.namespaces[0];
    let append = namespace.entries.iter().position(|entry| entry.kind == Kind::Append && entry.cause.is_none());
    let append = append.expect("a record comes from outside");
    let found_with = |source: NamespaceId| {
        let origin = EventId::new(source, 1, 7);
        let mut entries = namespace.entries.clone();
        (entries[append].cause, entries[append].claimed) = (origin, true);
        let changes = Changes { seeds: HashSet::from([origin]), ..Changes::default() };
        discover(&table(namespace.id, &entries), &changes, &mut |_| None).records
    };
    // Links deliver only records of the namespaces of this world; any other cause is only a claim of a client.
    assert!(found_with(name_of(1)).contains(&(append as u32)));
    let stranger = NamespaceId::new(0xBAD).expect("it is not 0");
    assert_eq!(found_with(stranger), Vec::<u32>::new());
}
