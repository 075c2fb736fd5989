//! Damage to what was durable is told from a torn tail, also when nothing but the segments and the manifest is left; and
//! what is left of a damaged journal is saved, all of it and nothing else.

mod model;

use millrace_journal::{CreateOptions, Durability, Journal, LostRecords, OpenOptions, Position, medium::sim::SimDisk};
use millrace_wire::{Code, EventId};
use model::{Random, create, open};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// How far what is proven may be behind what is durable, in segments of 1 MiB: two eighths.
const BEHIND_MAX: u64 = 2 * (1 << 20) / 8;

fn named(name: &str) -> millrace_wire::LogName {
    name.parse().unwrap()
}

/// Appends records of random sizes and makes some of it durable.
fn live(journal: &Journal, random: &mut Random, rounds: usize) {
    let log = journal.commit(|batch| batch.create_log(&named("a"), 10_000)).unwrap().value;
    for _ in 0..rounds {
        let length = 1 + random.below(30_000);
        let payload = random.bytes(length);
        let count = 1 + random.below(4) as u16;
        journal
            .commit(|batch| (0..count).try_for_each(|n| batch.append(&log, &payload, EventId::NONE, n).map(drop)))
            .unwrap();
        if random.below(3) == 0 {
            journal.sync(journal.tail()).unwrap();
        }
    }
}

fn without_control(disk: &SimDisk) -> SimDisk {
    let mut files = disk.files();
    files.remove("control");
    SimDisk::with_files(files)
}

#[test]
fn a_power_cut_is_never_taken_for_damage() {
    let mut random = Random::new("power cuts");
    let started = Instant::now();
    let (mut cuts, mut marks) = (0, 0);
    while cuts < 40 || marks < 30 || started.elapsed() < Duration::from_secs(4) {
        assert!(cuts < 1500, "{marks} marks in {cuts} cuts are too few to be mistaken for anything");
        let (disk, medium, journal, mut model) = create([Durability::Disk, Durability::Memory][random.below(2)]);
        let rounds = 10 + random.below(40);
        live(&journal, &mut random, rounds);
        model.learn(&journal);
        model.durable = journal.durable().get();
        marks += model.entries.values().filter(|entry| entry.kind == millrace_journal::Kind::Mark).count();
        for _ in 0..3 {
            let cut = disk.crash(&mut |n| random.below(n));
            // The control page may be lost as well, or as old as it likes.
            let cut = if random.below(3) > 0 { without_control(&cut) } else { cut };
            let (process, recovered) = model.verify(&cut, &format!("cut {cuts}"));
            process.kill();
            drop(recovered);
            cuts += 1;
        }
        // Within a flush: a mark is written before it, and may survive what it must not speak of.
        for _ in 0..8 {
            live(&journal, &mut random, 4);
            let durable = journal.durable().get();
            disk.record_moments();
            journal.sync(journal.tail()).unwrap();
            let moments = disk.take_moments();
            model.learn(&journal);
            model.durable = durable;
            for (n, moment) in moments.iter().enumerate() {
                let cut = without_control(&moment.crash(&mut |n| random.below(n)));
                let (process, recovered) = model.verify(&cut, &format!("cut {cuts}, moment {n} of a flush"));
                process.kill();
                drop(recovered);
                cuts += 1;
            }
        }
        medium.kill();
    }
    println!("{cuts} cuts, {marks} marks");
}

#[test]
fn damage_before_what_is_proven_is_refused_without_a_control_page() {
    let mut random = Random::new("flips");
    let (mut proven, mut spared) = (0, 0);
    for round in 0..12 {
        let (disk, medium, journal, _) = create([Durability::Disk, Durability::Memory][round % 2]);
        live(&journal, &mut random, 60);
        journal.sync(journal.tail()).unwrap();
        let durable = journal.durable().get();
        let entries: Vec<(u64, u64)> = model::entries(&journal, Default::default())
            .iter()
            .map(|entry| (entry.position.get(), 64 + entry.payload.len() as u64))
            .collect();
        medium.kill();
        drop(journal);
        let files = without_control(&disk).files();
        for _ in 0..25 {
            let (at, bytes) = entries[random.below(entries.len())];
            let hit = at + random.below(bytes as usize) as u64;
            let mut files = files.clone();
            let file = files.get_mut(&format!("segments/{:010}", hit >> 20)).unwrap();
            file[(hit & ((1 << 20) - 1)) as usize] ^= 1 << random.below(8);
            let image = SimDisk::with_files(files);
            for _ in 0..2 {
                match open(&image.process()) {
                    Err(error) => {
                        // A flip in `first_segment`'s first entry leaves no entry to begin with.
                        let expected = [Code::JournalDamaged, Code::EntryDamaged];
                        assert!(expected.contains(&error.code()), "{error}");
                        assert!(
                            error.code() != Code::JournalDamaged || error.detail().contains(&format!("{at:#x}")),
                            "{error}, and not {at:#x}, hit at {hit:#x}"
                        );
                        proven += 1;
                    }
                    Ok(journal) => {
                        assert!(
                            at + BEHIND_MAX > durable,
                            "a flip at {hit:#x} was taken for a torn tail, {} bytes before what was durable",
                            durable - at
                        );
                        spared += 1;
                        drop(journal);
                        break;
                    }
                }
            }
        }
    }
    println!("{proven} refused, {spared} behind the last mark");
    assert!(proven > 100);
}

#[test]
fn one_large_flush_is_proven_as_well() {
    for durability in [Durability::Disk, Durability::Memory] {
        let (disk, medium, journal, _) = create(durability);
        let log = journal.commit(|batch| batch.create_log(&named("a"), 10_000)).unwrap().value;
        for n in 0..40 {
            journal.commit(|batch| batch.append(&log, &vec![n; 100_000], EventId::NONE, 0)).unwrap();
        }
        journal.sync(journal.tail()).unwrap();
        medium.kill();
        let mut files = without_control(&disk).files();
        files.get_mut("segments/0000000002").unwrap()[500_000] ^= 1;
        // The power fails right after: nothing that is not flushed survives.
        let error = open(&SimDisk::with_files(files).process()).map(drop).unwrap_err();
        assert_eq!(error.code(), Code::JournalDamaged, "{error}");
    }
}

/// What is in the namespace before it is damaged: by log and seqno, the record and where its entry stands.
type Truth = BTreeMap<(String, u64), (Vec<u8>, EventId, u64, u64)>;

/// Everything that was ever appended, also what its log no longer has.
type Appended = BTreeMap<(String, u64), Vec<u8>>;

fn made(dir: &Path, random: &mut Random) -> (Truth, Appended) {
    let options = CreateOptions { segment_bytes: 1 << 20, retain_bytes: 1 << 30, ..CreateOptions::default() };
    let journal = Journal::create(dir, &options).unwrap();
    let logs: Vec<_> = ["a", "b/c", "short"]
        .iter()
        .map(|name| {
            let history = if *name == "short" { 5 } else { 10_000 };
            journal.commit(|batch| batch.create_log(&named(name), history)).unwrap().value
        })
        .collect();
    let mut appended = Appended::new();
    for _ in 0..120 {
        let log = &logs[random.below(3)];
        let length = random.below(60_000);
        let payload = random.bytes(length);
        let seqno = journal.commit(|batch| batch.append(log, &payload, EventId::NONE, 0)).unwrap().value.seqno;
        appended.insert((log.name().to_string(), seqno), payload);
    }
    journal.sync(journal.tail()).unwrap();
    let mut truth = Truth::new();
    let mut payload = Vec::new();
    for log in &logs {
        for seqno in log.earliest().max(1)..=log.latest() {
            let meta = journal.get(log, seqno, &mut payload).unwrap();
            let at = journal.position(log, seqno).get();
            let span = 64 + payload.len() as u64;
            truth.insert((log.name().to_string(), seqno), (payload.clone(), meta.id, at, span));
        }
    }
    (truth, appended)
}

#[test]
fn salvage_keeps_every_whole_record_tells_every_other_and_invents_none() {
    let mut random = Random::new("salvage");
    let started = Instant::now();
    let (mut rounds, mut hit_records) = (0, 0);
    while rounds < 8 || started.elapsed() < Duration::from_secs(4) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("ns");
        let (truth, appended) = made(&dir, &mut random);
        if random.below(2) == 0 {
            fs::remove_file(dir.join("control")).unwrap();
        }
        // Bytes that were overwritten.
        let mut hits = BTreeSet::new();
        for _ in 0..1 + random.below(6) {
            let segments = fs::read_dir(dir.join("segments")).unwrap().count() as u64;
            let number = random.below(segments as usize) as u64;
            let path = dir.join(format!("segments/{number:010}"));
            let mut bytes = fs::read(&path).unwrap();
            let from = 64 + 64 * 4 + random.below(bytes.len() - 400);
            for at in from..(from + 1 + random.below(3000)).min(bytes.len()) {
                bytes[at] ^= 0x5a;
                hits.insert((number << 20) + at as u64);
            }
            fs::write(&path, bytes).unwrap();
        }
        let before = tree(&dir);
        let view = Journal::view(&dir).unwrap();
        let saved = parent.path().join("saved");
        let salvaged = view.salvage(&saved, &mut |_, _| {}, &mut |_, _| Ok(())).unwrap();
        let (old, tail) = (view.namespace(), view.tail().get());
        drop(view);
        assert!(before == tree(&dir), "the original was touched");
        let journal = Journal::open(&saved, &OpenOptions { background: false }).unwrap();
        assert_ne!(journal.namespace(), old);
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
        let is_lost = |name: &str, seqno: u64| {
            let covers = |lost: &&LostRecords| *lost.log == *name && (lost.from..=lost.to).contains(&seqno);
            salvaged.lost.iter().find(covers)
        };
        let mut payload = Vec::new();
        for ((name, seqno), (expected, id, at, span)) in &truth {
            let is_hit = hits.range(*at..at + span).next().is_some();
            hit_records += usize::from(is_hit);
            let log = journal.log(&named(name)).unwrap();
            match journal.get(&log, *seqno, &mut payload) {
                Ok(meta) => {
                    assert!(!is_hit && payload == *expected && meta.id == *id, "{name} {seqno} came back otherwise");
                    assert!(is_lost(name, *seqno).is_none(), "{name} {seqno} is there and reported lost");
                }
                // The newest of its log: where it stood is told, but not that it stood there.
                Err(_) if is_hit && *seqno > log.latest() => {
                    let within = |(from, to): &(Position, Position)| (from.get()..to.get()).contains(at);
                    assert!(*at >= tail || salvaged.damaged.iter().any(within), "{name} {seqno}: nobody tells");
                }
                Err(error) => {
                    let lost =
                        is_lost(name, *seqno).unwrap_or_else(|| panic!("{name} {seqno}: nobody tells ({error})"));
                    assert!(is_hit || lost.unproven, "{name} {seqno} is whole and was left out: {lost:?}");
                }
            }
        }
        // Nothing that was not there before. Where the newest are lost, older ones are within the history again.
        for log in journal.catalog().unwrap().logs() {
            for seqno in log.earliest().max(1)..=log.latest() {
                if journal.get(log, seqno, &mut payload).is_ok() {
                    let known = appended.get(&(log.name().to_string(), seqno));
                    assert!(known == Some(&payload), "{log:?} has {seqno} out of nowhere");
                }
            }
        }
        rounds += 1;
    }
    println!("{rounds} rounds, {hit_records} damaged records");
    assert!(hit_records > 10);
}

fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in ["", "segments", "index"] {
        for file in fs::read_dir(dir.join(folder)).unwrap().flatten().filter(|file| file.path().is_file()) {
            files.insert(format!("{folder}/{}", file.file_name().display()), fs::read(file.path()).unwrap());
        }
    }
    files
}
