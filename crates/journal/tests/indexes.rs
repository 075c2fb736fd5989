//! What is found through indexes is what is in the journal: entries by their ids, runs by their numbers, records of logs that
//! are kept until they are trimmed. After a clean end, after a crash, and after retention.

mod model;

use millrace_journal::{
    Attempt, CreateOptions, Durability, End, Entry, Function, HISTORY_ALL, Journal, Kind, Log, Origin, Position, Run,
    medium::sim::{SimDisk, SimMedium},
};
use millrace_wire::{Code, EventId};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

fn create(disk: &SimDisk, retain_bytes: u64) -> (Arc<SimMedium>, Journal) {
    let options = CreateOptions { retain_bytes, ..model::sim_options(Durability::Memory) };
    drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
    let medium = disk.process();
    let journal = model::open(&medium).unwrap();
    (medium, journal)
}

fn log(journal: &Journal, name: &str, history: u64) -> Log {
    journal.commit(|batch| batch.create_log(&name.parse().unwrap(), history)).unwrap().value
}

fn function(journal: &Journal) -> Function {
    journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}")).unwrap().value
}

fn append(journal: &Journal, log: &Log, payload: &[u8]) -> EventId {
    journal.commit(|batch| batch.append(log, payload, EventId::NONE, 0)).unwrap().value.id
}

/// The machine goes on, with or without a power failure or a clean end of the process.
fn again(disk: SimDisk, medium: &Arc<SimMedium>, journal: Journal, how: u64) -> (SimDisk, Arc<SimMedium>, Journal) {
    let disk = match how % 3 {
        0 => {
            drop(journal);
            disk
        }
        1 => {
            medium.kill();
            drop(journal);
            disk
        }
        _ => {
            journal.sync(journal.tail()).unwrap();
            let after = disk.crash(&mut |n| n - 1);
            medium.kill();
            after
        }
    };
    let medium = disk.process();
    let journal = model::open(&medium).unwrap();
    (disk, medium, journal)
}

/// Everything there is, by id.
fn all(journal: &Journal) -> BTreeMap<EventId, Entry> {
    let entries = model::entries(journal, Position::default());
    entries.into_iter().map(|entry| (entry.id, entry)).collect()
}

#[test]
fn every_entry_is_found_by_its_id_and_no_other() {
    let disk = SimDisk::default();
    let (medium, journal) = create(&disk, 2 << 20);
    let (rest, fast) = (log(&journal, "rest", 500), log(&journal, "fast", 50));
    let f = function(&journal);
    let mut kept: BTreeSet<EventId> = (0..300_u32).map(|n| append(&journal, &rest, &n.to_le_bytes())).collect();
    let run = journal
        .commit(|batch| {
            let record = batch.append(&fast, b"pending", EventId::NONE, 0)?;
            let run = batch.trigger(f.id(), record.id, &fast, record.seqno, Origin::Bound)?;
            batch
                .fired(f.id(), run, &Attempt { attempt: 1, ..Attempt::default() })
                .map(|fired| (record.id, run.id, fired))
        })
        .unwrap()
        .value;
    kept.extend([run.0, run.1, run.2]);
    let gone = append(&journal, &fast, b"gone");
    for n in 0..7_000_usize {
        append(&journal, &fast, &vec![7; 100 + n * 31 % 2000]);
        if n % 500 == 0 {
            journal.maintain(&|_, pending| pending == run.1).unwrap();
        }
    }
    journal.maintain(&|_, pending| pending == run.1).unwrap();
    let (mut disk, mut medium, mut journal) = (disk, medium, journal);
    for how in 0..4 {
        let all = all(&journal);
        assert!(journal.first() > Position::from_bytes(4 << 20) && all.len() > 1000);
        for (id, entry) in &all {
            let found = journal.find(*id).unwrap();
            // What is carried and told of no longer is found while it is told of.
            if let Some(found) = found {
                assert_eq!((found.id, found.kind, &found.payload), (*id, entry.kind, &entry.payload), "{how}");
            } else {
                assert!(
                    entry.carried && !kept.contains(id),
                    "{how}: {id} at {}: {:?} {} {}",
                    entry.position,
                    entry.kind,
                    entry.seqno,
                    entry.carried
                );
            }
        }
        kept.iter().for_each(|id| assert!(journal.find(*id).unwrap().is_some(), "{how}: {id} was carried forward"));
        assert!(journal.find(gone).unwrap().is_none());
        let newest = *all.keys().next_back().unwrap();
        let other = |epoch, sequence| EventId::new(journal.namespace(), epoch, sequence);
        for id in
            [EventId::NONE, other(newest.epoch(), newest.sequence() + 1), other(9, newest.sequence()), other(1, 1)]
        {
            assert!(journal.find(id).unwrap().is_none(), "{how}: {id}");
        }
        for count in [1, 2, 255, 256, 257, 1000] {
            let found = model::entries(&journal, journal.newest(count).unwrap());
            assert_eq!(found.len() as u64, count, "{how}");
        }
        (disk, medium, journal) = again(disk, &medium, journal, how);
    }
}

/// What runs there are, beside the journal.
#[derive(Default)]
struct Runs {
    pending: BTreeMap<u64, Run>,
    reported: BTreeMap<u64, [Position; 3]>,
}

impl Runs {
    fn learn(&mut self, journal: &Journal, from: Position) -> Position {
        let mut to = from;
        for entry in model::entries(journal, from) {
            to = entry.end;
            let Some(at) = [Kind::Trigger, Kind::Fired, Kind::Done].iter().position(|kind| *kind == entry.kind) else {
                continue;
            };
            self.reported.entry(entry.seqno).or_default()[at] = entry.position;
            match entry.kind {
                Kind::Trigger => drop(self.pending.insert(entry.seqno, entry.triggered().unwrap())),
                Kind::Done => drop(self.pending.remove(&entry.seqno)),
                _ => {}
            }
        }
        to
    }

    fn verify(&self, journal: &Journal, context: &str) {
        let f = journal.catalog().unwrap().function("f").unwrap().clone();
        let mut found = Vec::new();
        let mut next = f.next_pending(1);
        while let Some(number) = next {
            found.push(number);
            next = f.next_pending(number + 1);
        }
        assert!(found.iter().eq(self.pending.keys()), "{context}: {} of {}", found.len(), self.pending.len());
        let back = std::iter::successors(f.previous_pending(u64::MAX), |number| f.previous_pending(number - 1));
        assert!(back.eq(self.pending.keys().rev().copied()), "{context}");
        for end in [1, 2, 1024, 1025, f.triggered() / 2, f.triggered(), u64::MAX] {
            assert_eq!(f.count_pending(1, end), self.pending.range(..end).count() as u64, "{context}: before {end}");
        }
        assert_eq!(f.pending(), found.len() as u64, "{context}");
        for (number, reported) in &self.reported {
            let is_kept =
                reported.iter().all(|position| *position == Position::default() || *position >= journal.first());
            let item = f.run(*number).map(|item| [item.opened, item.noted, item.closed]);
            if is_kept && reported[0] != Position::default() {
                assert_eq!(item, Some(reported.map(Position::get)), "{context}: run {number}");
            }
        }
        let report = journal.check(&mut |_, _| {}).unwrap();
        assert_eq!(report.fault_count, 0, "{context}: {:?}", report.faults);
    }
}

#[test]
#[cfg(debug_assertions)]
fn entries_that_are_found_one_after_the_other_cost_a_step_each() {
    let (_medium, journal) = create(&SimDisk::default(), 1 << 20);
    let records = log(&journal, "records", 2000);
    let ids: Vec<EventId> = (0..1000).map(|_| append(&journal, &records, b"record")).collect();
    let cost = |ids: &mut dyn Iterator<Item = &EventId>| {
        let before = millrace_journal::entries_visited();
        ids.for_each(|id| assert_eq!(journal.find(*id).unwrap().unwrap().id, *id));
        millrace_journal::entries_visited() - before
    };
    // Two headers and the entry itself; from the nearest item of the index it would be a walk of 128 on average.
    let forwards = cost(&mut ids.iter());
    assert!(forwards < 10 * ids.len() as u64, "{forwards} entries were visited");
    assert!(cost(&mut ids.iter().rev()) > forwards, "backwards nothing is known to be near");
}

#[test]
fn runs_are_found_by_their_numbers_and_pending_ones_at_once() {
    let mut disk = SimDisk::default();
    let (mut medium, mut journal) = create(&disk, 1 << 20);
    let (a, f) = (log(&journal, "a", 10), function(&journal));
    let (mut runs, mut position, mut random) = (Runs::default(), Position::default(), 11_u64);
    let _ = (a, f);
    for round in 0..60_u64 {
        let catalog = journal.catalog().unwrap();
        let (a, f) = (catalog.log("a").unwrap().clone(), catalog.function("f").unwrap().clone());
        for _ in 0..100 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            journal
                .commit(|batch| {
                    for _ in 0..random >> 61 {
                        let record = batch.append(&a, &[7; 200], EventId::NONE, 0)?;
                        batch.trigger(f.id(), record.id, &a, record.seqno, Origin::Bound)?;
                    }
                    let some = runs
                        .pending
                        .values()
                        .skip((random >> 40 & 3) as usize)
                        .step_by(2)
                        .take((random >> 50 & 7) as usize);
                    for run in some {
                        batch.fired(f.id(), *run, &Attempt { attempt: 1, ..Attempt::default() })?;
                        // The first one stays pending for long.
                        if random >> 30 & 3 != 0 && (run.number != 1 || round > 50) {
                            batch.done(f.id(), *run, &End::default())?;
                        }
                    }
                    Ok(())
                })
                .unwrap();
            position = runs.learn(&journal, position);
        }
        if round % 4 == 3 {
            let pending: BTreeSet<EventId> = runs.pending.values().map(|run| run.id).collect();
            journal.maintain(&|_, run| pending.contains(&run)).unwrap();
            position = runs.learn(&journal, position);
        }
        if round % 5 == 0 {
            runs.verify(&journal, &format!("round {round}"));
            (disk, medium, journal) = again(disk, &medium, journal, round / 5);
            runs.verify(&journal, &format!("round {round}, opened again"));
            position = runs.learn(&journal, position);
        }
    }
    assert!(journal.first() > Position::from_bytes(1 << 20), "retention dropped segments");
    assert!(disk.files()["index/arena"].len() < 2 << 20, "{} bytes", disk.files()["index/arena"].len());
    let f = journal.catalog().unwrap().function("f").unwrap().clone();
    assert!(f.triggered() > 10_000 && f.run(2500).is_none(), "{} runs", f.triggered());
}

#[test]
fn a_run_that_has_ended_cannot_end_again() {
    let disk = SimDisk::default();
    let (_medium, journal) = create(&disk, 1 << 20);
    let (a, f) = (log(&journal, "a", 10), function(&journal));
    let run = |journal: &Journal| {
        let staged = journal.commit(|batch| {
            let record = batch.append(&a, b"x", EventId::NONE, 0)?;
            batch.trigger(f.id(), record.id, &a, record.seqno, Origin::Bound)
        });
        staged.unwrap().value
    };
    let (one, two) = (run(&journal), run(&journal));
    let done = |run| assert!(journal.commit(|batch| batch.done(f.id(), run, &End::default())).is_ok());
    done(two);
    let before = f.run(two.number);
    done(two);
    assert_eq!((f.run(two.number), f.done(), f.pending()), (before, 1, 1));
    assert_eq!(f.next_pending(1), Some(one.number));
    done(one);
    assert_eq!((f.done(), f.next_pending(1)), (2, None));
}

#[test]
fn a_log_without_a_history_keeps_its_records_until_they_are_trimmed() {
    let mut disk = SimDisk::default();
    let (mut medium, mut journal) = create(&disk, 0);
    let (all, fast) = (log(&journal, "all", HISTORY_ALL), log(&journal, "fast", 10));
    let _ = (all, fast);
    let mut floor = 1;
    let mut latest = 0;
    for round in 0..9_u64 {
        let (all, fast) =
            (journal.log(&"all".parse().unwrap()).unwrap(), journal.log(&"fast".parse().unwrap()).unwrap());
        assert_eq!(all.history(), HISTORY_ALL);
        for _ in 0..1500 {
            latest += 1;
            append(&journal, &all, &u64::to_le_bytes(latest));
        }
        for _ in 0..8000 {
            append(&journal, &fast, &[1; 300]);
        }
        journal.maintain(&|_, _| false).unwrap();
        if round % 2 == 1 {
            floor = latest - 700;
            journal.commit(|batch| batch.trim(&all, floor)).unwrap();
        }
        drop((all, fast));
        (disk, medium, journal) = again(disk, &medium, journal, round);
        let all = journal.log(&"all".parse().unwrap()).unwrap();
        assert_eq!((all.earliest(), all.latest()), (floor, latest), "round {round}");
        let mut payload = Vec::new();
        for seqno in floor..=latest {
            journal.get(&all, seqno, &mut payload).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(payload, seqno.to_le_bytes());
        }
        let below = journal.get(&all, floor - 1, &mut payload).unwrap_err().code();
        assert_eq!(below, if floor == 1 { Code::SeqnoInvalid } else { Code::BelowHistory });
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    }
    assert!(journal.first() > Position::from_bytes(4 << 20), "retention dropped segments");
}

#[test]
fn a_block_that_is_wrongly_said_to_have_no_pending_run_is_told_by_a_check_and_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { segment_bytes: 1 << 20, durability: Durability::Memory, ..Default::default() };
    let journal = Journal::create(dir.path(), &options).unwrap();
    let (a, f) = (log(&journal, "a", 10), function(&journal));
    // Three blocks of 1024 numbers; run 1500 alone is pending.
    for n in 1..=3000_u64 {
        journal
            .commit(|batch| {
                let record = batch.append(&a, b"x", EventId::NONE, 0)?;
                let run = batch.trigger(f.id(), record.id, &a, record.seqno, Origin::Bound)?;
                if n == 1500 { Ok(()) } else { batch.done(f.id(), run, &End::default()).map(drop) }
            })
            .unwrap();
    }
    let path = dir.path().join("index/arena");
    let word = |at: u64| {
        let bytes = std::fs::read(&path).unwrap();
        u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap())
    };
    let directory = word(word(64) + u64::from(f.id()) * 64) & ((1 << 40) - 64);
    let marks = || [0, 1, 2].map(|block| word(directory + block * 8) & 1);
    assert_eq!((marks(), f.count_pending(1, u64::MAX)), ([0, 1, 0], 1));
    for (block, is_hidden) in [(1, true), (0, false)] {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let at = directory + block * 8;
        file.write_all_at(&(word(at) ^ 1).to_le_bytes(), at).unwrap();
        assert_eq!(f.next_pending(1), (!is_hidden).then_some(1500));
        let report = journal.check(&mut |_, _| {}).unwrap();
        assert_eq!(report.fault_count > 0, is_hidden, "a mark too many hides nothing");
        assert_eq!((marks(), f.next_pending(1), f.previous_pending(3000)), ([0, 1, 0], Some(1500), Some(1500)));
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    }
}

#[test]
fn what_a_flipped_bit_says_of_runs_is_told_by_a_check_and_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { segment_bytes: 1 << 20, durability: Durability::Memory, ..Default::default() };
    let journal = Journal::create(dir.path(), &options).unwrap();
    let (a, f) = (log(&journal, "a", 10), function(&journal));
    for n in 0..20_u64 {
        journal
            .commit(|batch| {
                let record = batch.append(&a, b"x", EventId::NONE, 0)?;
                let run = batch.trigger(f.id(), record.id, &a, record.seqno, Origin::Bound)?;
                batch.fired(f.id(), run, &Attempt::default())?;
                if n % 3 == 0 { batch.done(f.id(), run, &End::default()).map(drop) } else { Ok(()) }
            })
            .unwrap();
    }
    let pending: Vec<u64> = (1..=20).filter(|n| (n - 1) % 3 != 0).collect();
    let path = dir.path().join("index/arena");
    let word = |at: u64| {
        let bytes = std::fs::read(&path).unwrap();
        u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap())
    };
    let block = word(word(64) + u64::from(f.id()) * 64) & ((1 << 40) - 64);
    // Of run 7, which has ended, and of run 8, which has not: where it was opened, noted, closed, and of all, which are open.
    for (at, bit) in [(7 * 32, 3), (7 * 32 + 8, 45), (7 * 32 + 16, 60), (8 * 32, 20), (8 * 32 + 8, 0), (24, 8), (24, 7)]
    {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let before = word(block + at);
        file.write_all_at(&(before ^ 1 << bit).to_le_bytes(), block + at).unwrap();
        let report = journal.check(&mut |_, _| {}).unwrap();
        assert!(report.fault_count > 0, "word {at} bit {bit}");
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0, "word {at} bit {bit}: it was corrected");
        assert_eq!(word(block + at), before, "word {at} bit {bit}");
        let found = std::iter::successors(f.next_pending(1), |number| f.next_pending(number + 1));
        assert_eq!(found.collect::<Vec<_>>(), pending);
    }
}
