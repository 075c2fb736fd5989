//! Damage to what was durable is told from a torn tail, also when nothing but the segments and the manifest is left; and
//! what is left of a damaged journal is saved, all of it and nothing else.

mod model;

use millrace_journal::{
    CreateOptions, Durability, End, Journal, LostRecords, OpenOptions, Origin, Position, medium::sim::SimDisk,
};
use millrace_wire::{Code, EventId};
use model::{Random, create, open};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// How far what is proven may lag what is durable, in segments of 1 MiB: two eighths.
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

/// Bytes of an entry, with its header.
fn length(files: &BTreeMap<String, Vec<u8>>, at: u64) -> u64 {
    let entry = &files[&format!("segments/{:010}", at >> 20)][(at & ((1 << 20) - 1)) as usize..];
    let length = u32::from_le_bytes(entry[4..8].try_into().unwrap());
    u64::from(if entry[13] & 32 == 0 { length } else { length & 0xFFF }) // A short header has more in that word.
}

#[test]
fn a_power_failure_is_never_mistaken_for_damage() {
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
        let files = without_control(&disk).files();
        let entries: Vec<(u64, u64)> = model::entries(&journal, Default::default())
            .iter()
            .map(|entry| (entry.position.get(), length(&files, entry.position.get())))
            .collect();
        medium.kill();
        drop(journal);
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
    drop(Journal::create(dir, &options).unwrap());
    // Without a background thread, which would write a CATALOG sooner or later: definitions can be lost.
    let journal = Journal::open(dir, &OpenOptions { background: false }).unwrap();
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

/// What each log of a whole namespace is called once its definition is lost.
fn made_up(dir: &Path) -> BTreeMap<String, String> {
    let whole = Journal::view(dir).unwrap();
    let made_up = |log: &millrace_journal::Log| (log.name().to_string(), format!("salvaged/log-{}", log.id()));
    whole.catalog().unwrap().logs().map(made_up).collect()
}

#[test]
fn salvage_keeps_every_intact_record_reports_every_other_and_invents_none() {
    let mut random = Random::new("salvage");
    let started = Instant::now();
    let (mut rounds, mut hit_records) = (0, 0);
    while rounds < 8 || hit_records <= 10 || started.elapsed() < Duration::from_secs(4) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("ns");
        let (truth, appended) = made(&dir, &mut random);
        let made_up = made_up(&dir);
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
            let from = 64 + random.below(bytes.len() - 400);
            for at in from..(from + 1 + random.below(3000)).min(bytes.len()) {
                bytes[at] ^= 0x5a;
                hits.insert((number << 20) + at as u64);
            }
            fs::write(&path, bytes).unwrap();
        }
        let before = tree(&dir);
        let view = Journal::view(&dir).unwrap();
        let saved = parent.path().join("saved");
        let salvaged = view.salvage(&saved, &mut |_, _| {}, &mut |_, _, _| Ok(())).unwrap();
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
            // Whose definition is lost has another name.
            let log = journal.log(&named(name)).or_else(|_| journal.log(&named(&made_up[name]))).unwrap();
            let name = &**log.name();
            match journal.get(&log, *seqno, &mut payload) {
                Ok(meta) => {
                    assert!(!is_hit && payload == *expected && meta.id == *id, "{name} {seqno} came back otherwise");
                    assert!(is_lost(name, *seqno).is_none(), "{name} {seqno} is there and reported lost");
                }
                // The newest of its log: where it stood is told, but not that it was there.
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
                    let name =
                        made_up.iter().find(|(_, other)| **other == **log.name()).map_or(&**log.name(), |(n, _)| n);
                    let known = appended.get(&(name.to_owned(), seqno));
                    assert!(known == Some(&payload), "{log:?} has {seqno} out of nowhere");
                }
            }
        }
        rounds += 1;
        assert!(rounds < 1000, "only {hit_records} records were ever hit");
    }
    println!("{rounds} rounds, {hit_records} damaged records");
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

/// Copies a journal into memory, as a backup does.
#[derive(Default)]
struct Copied(BTreeMap<u64, Vec<u8>>);

impl millrace_journal::SnapshotSink for Copied {
    fn write(&mut self, segment: u64, bytes: &[u8]) -> millrace_wire::Result<()> {
        self.0.entry(segment).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn forget(&mut self, segment: u64) -> millrace_wire::Result<()> {
        self.0.remove(&segment);
        Ok(())
    }

    fn progress(&mut self, _done: u64, _total: u64) {}
}

/// What can be read of each log, by its id: payloads and event ids.
type Kept = BTreeMap<(u32, u64), (Vec<u8>, EventId)>;

fn kept(journal: &Journal) -> Kept {
    let (mut kept, mut payload) = (Kept::new(), Vec::new());
    for log in journal.catalog().unwrap().logs() {
        for seqno in log.earliest().max(1)..=log.latest() {
            if let Ok(meta) = journal.get(log, seqno, &mut payload) {
                kept.insert((log.id(), seqno), (payload.clone(), meta.id));
            }
        }
    }
    kept
}

/// A namespace with a life behind it: crashes, retention, removed logs, runs, being a copy. Where it is now.
fn lived(parent: &Path, random: &mut Random, retains: bool, restores: bool) -> std::path::PathBuf {
    let open = |dir: &Path| Journal::open(dir, &OpenOptions { background: false }).unwrap();
    let retain_bytes = if retains { 1 << 20 } else { 1 << 30 };
    let options = CreateOptions { segment_bytes: 1 << 20, retain_bytes, ..CreateOptions::default() };
    let mut dir = parent.join("ns");
    drop(Journal::create(&dir, &options).unwrap());
    for life in 0..4 {
        let journal = open(&dir);
        if life == 0 {
            journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}").map(drop)).unwrap();
        }
        journal.commit(|batch| batch.create_log(&named(&format!("log/{life}")), 40).map(drop)).unwrap();
        let logs: Vec<_> = journal.catalog().unwrap().logs().cloned().collect();
        let f = journal.catalog().unwrap().function("f").unwrap().id();
        for _ in 0..40 {
            let log = &logs[random.below(logs.len())];
            let length = random.below(40_000);
            let (payload, ends) = (random.bytes(length), random.below(2) == 0);
            journal
                .commit(|batch| {
                    let appended = batch.append(log, &payload, EventId::NONE, 0)?;
                    let run = batch.trigger(f, appended.id, log, appended.seqno, Origin::Bound)?;
                    if ends { batch.done(f, run, &End::default()).map(drop) } else { Ok(()) }
                })
                .unwrap();
        }
        if life == 1 {
            journal.commit(|batch| batch.remove_log(&named("log/0"))).unwrap();
        }
        if life == 3 {
            journal.pin("a test", 1 << 30, Duration::from_secs(3600)).unwrap();
        }
        journal.sync(journal.tail()).unwrap();
        if retains {
            journal.maintain(&|_, _| false).unwrap();
        }
        if restores && life == 2 {
            let mut copied = Copied::default();
            let snapshot = journal.snapshot(&mut copied).unwrap();
            dir = parent.join("restored");
            let mut read = |segment, at: u64| Ok(copied.0[&segment][at as usize..].to_vec());
            snapshot.restore(&dir, &mut read, &mut |_, _| Ok(())).unwrap();
            assert_eq!(Journal::view(&dir).unwrap().replay_seed(), journal.replay_seed(), "a copy keeps it");
        }
        drop(journal);
        if random.below(2) == 0 {
            fs::remove_file(dir.join("control")).unwrap(); // As after a power cut: the next open begins an epoch.
            drop(open(&dir));
        }
    }
    dir
}

#[test]
fn without_a_manifest_all_of_a_namespace_is_saved_also_when_retention_dropped_its_definitions() {
    let mut random = Random::new("no manifest");
    let mut dropped = 0;
    for round in 0..12 {
        let parent = tempfile::tempdir().unwrap();
        let (retains, restores) = (round % 2 == 1, round % 3 > 0);
        let dir = lived(parent.path(), &mut random, retains, restores);
        let whole = Journal::view(&dir).unwrap();
        let (truth, before) = (kept(&whole), model::View::of(&whole));
        let (identity, lineage, epoch) = (whole.namespace(), whole.lineage().to_vec(), whole.epoch());
        let (made_with, first) = (format!("{:?}", whole.made_with()), whole.first());
        let pins: Vec<_> = whole.catalog().unwrap().pins().cloned().collect();
        assert_eq!(pins.len(), 1);
        let seed = whole.replay_seed();
        assert!(whole.recovery().rebuilt.is_none() && lineage.is_empty() != restores);
        drop(whole);
        let manifest = dir.join("manifest");
        let bytes = fs::read(&manifest).unwrap();
        match round % 3 {
            0 => fs::remove_file(&manifest).unwrap(),
            1 => fs::write(&manifest, &bytes[..random.below(bytes.len())]).unwrap(),
            _ => {
                let mut bytes = bytes.clone();
                let at = 20 + random.below(bytes.len() - 20); // Before that it may be another format.
                bytes[at] ^= 1 << 1;
                fs::write(&manifest, bytes).unwrap();
            }
        }
        let files = tree(&dir);
        let opened = Journal::open(&dir, &OpenOptions { background: false }).map(drop).unwrap_err();
        let expected = [Code::NamespaceIncomplete, Code::NotANamespace, Code::ManifestDamaged];
        assert!(expected.contains(&opened.code()), "{opened}");
        let remade = Journal::create(&dir, &CreateOptions::default()).map(drop).unwrap_err();
        assert!([Code::NamespaceIncomplete, Code::NamespaceExists].contains(&remade.code()), "{remade}");
        let view = Journal::view(&dir).unwrap();
        let rebuilt = view.recovery().rebuilt.clone().expect("the manifest is rebuilt");
        assert_eq!((view.namespace(), view.epoch()), (identity, epoch), "round {round}");
        assert!(rebuilt.unnamed.is_empty() && rebuilt.functions.is_empty(), "round {round}: {rebuilt:?}");
        assert_eq!(model::View::of(&view), before, "round {round}");
        // A copy has the definition of the pin that it was made under, and not its end; it ends at its time.
        let found: Vec<_> = view.catalog().unwrap().pins().cloned().collect();
        assert!(found == pins || restores && found.len() == pins.len() + 1, "round {round}: {found:?}");
        if first.get() >= 1 << 20 {
            assert_eq!(format!("{:?}", view.made_with()), made_with, "round {round}");
            assert!(rebuilt.cataloged, "round {round}");
            dropped += 1;
        }
        assert_eq!(view.replay_seed(), seed, "an OPEN or a CATALOG has the replay seed");
        let saved = parent.path().join("saved");
        let salvaged = view.salvage(&saved, &mut |_, _| {}, &mut |_, _, _| Ok(())).unwrap();
        drop(view);
        assert!(files == tree(&dir), "the original was touched");
        let journal = Journal::open(&saved, &OpenOptions { background: false }).unwrap();
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
        assert_eq!(journal.replay_seed(), seed);
        let (found, after) = (kept(&journal), model::View::of(&journal));
        for (record, expected) in &truth {
            assert!(found.get(record) == Some(expected), "round {round}: record {record:?} is gone or another");
        }
        assert_eq!(after, before, "round {round}");
        assert!(rebuilt.left_out.is_empty() && salvaged.lost.is_empty(), "round {round}: {:?}", salvaged.lost);
    }
    println!("{dropped} of which the first segments are gone");
    assert!(dropped >= 4, "{dropped}");
}

/// A definition is in no segment that is left, and the newest CATALOG is damaged: then the one before it counts, and what was
/// defined since.
#[test]
fn of_several_catalogs_the_newest_whole_one_counts() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("ns");
    let options = CreateOptions { segment_bytes: 1 << 20, retain_bytes: 3 << 20, ..CreateOptions::default() };
    let journal = Journal::create(&dir, &options).unwrap();
    // So many logs that a CATALOG takes several parts.
    let names: Vec<_> = (0..400).map(|n| named(&format!("{0}/{0}/{n}", "a-log-with-a-long-name".repeat(2)))).collect();
    let churn = journal
        .commit(|batch| {
            names.iter().try_for_each(|name| batch.create_log(name, 10).map(drop))?;
            batch.create_log(&named("churn"), 2)
        })
        .unwrap()
        .value;
    let mut late = 0;
    let mut drops = 0;
    // The thread that writes a CATALOG for each segment may be late; retention writes one before it drops what has the last.
    let wholes = || {
        let mut scan = journal.scan(Position::default());
        let mut wholes = 0;
        while let Some(entry) = scan.next().unwrap() {
            wholes += usize::from(entry.kind == millrace_journal::Kind::Catalog && entry.ordinal == 0);
        }
        wholes
    };
    while drops < 3 || wholes() < 2 {
        for _ in 0..12 {
            journal.commit(|batch| batch.append(&churn, &[7; 50_000], EventId::NONE, 0)).unwrap();
        }
        journal.commit(|batch| batch.create_log(&named(&format!("late/{late}")), 10).map(drop)).unwrap();
        late += 1;
        journal.sync(journal.tail()).unwrap();
        drops += journal.maintain(&|_, _| false).unwrap().dropped;
    }
    let before = model::View::of(&journal);
    let mut parts = Vec::new();
    let mut scan = journal.scan(Position::default());
    while let Some(entry) = scan.next().unwrap() {
        if entry.kind == millrace_journal::Kind::Catalog {
            assert!(entry.payload.is_empty(), "whoever reads entries sees what is in a CATALOG");
            parts.push((entry.position.get(), entry.ordinal));
        }
    }
    let wholes = parts.iter().filter(|(_, follow)| *follow == 0).count();
    assert!(parts.len() >= 3 * wholes && wholes >= 2, "{parts:?}");
    drop((scan, journal));
    fs::remove_file(dir.join("manifest")).unwrap();
    assert_eq!(model::View::of(&Journal::view(&dir).unwrap()), before);
    // A part in the middle of the newest.
    let at = parts[parts.len() - 2].0;
    let path = dir.join(format!("segments/{:010}", at >> 20));
    let mut bytes = fs::read(&path).unwrap();
    bytes[(at & ((1 << 20) - 1)) as usize + 100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let view = Journal::view(&dir).unwrap();
    assert_eq!(model::View::of(&view), before);
    assert!(view.recovery().rebuilt.as_ref().is_some_and(|rebuilt| rebuilt.unnamed.is_empty()));
}

/// Damage takes the definition of a log and its first record: the record is told as lost, although nothing says how many the log
/// keeps.
#[test]
fn the_first_record_of_a_log_that_lost_its_definition_is_told() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("ns");
    let options = CreateOptions { segment_bytes: 1 << 20, ..CreateOptions::default() };
    let journal = Journal::create(&dir, &options).unwrap();
    let start = journal.tail().get();
    let a = journal.commit(|batch| batch.create_log(&named("a"), 100)).unwrap().value;
    for _ in 0..5 {
        journal.commit(|batch| batch.append(&a, &[7; 5_000], EventId::NONE, 0)).unwrap();
    }
    journal.sync(journal.tail()).unwrap();
    let end = journal.position(&a, 2).get();
    drop((journal, a));
    let path = dir.join("segments/0000000000");
    let mut bytes = fs::read(&path).unwrap();
    bytes[start as usize..end as usize].iter_mut().for_each(|byte| *byte ^= 0x5a);
    fs::write(&path, bytes).unwrap();
    let lost = Journal::view(&dir).unwrap().lost_records().unwrap();
    let reported: Vec<_> = lost.iter().map(|lost| (lost.from, lost.to, lost.unproven)).collect();
    assert_eq!(reported, [(1, 1, false)], "{lost:?}");
}

#[test]
fn a_segment_that_is_missing_takes_nothing_else_along() {
    let mut random = Random::new("missing segment");
    for missing in 0..3u64 {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("ns");
        let (truth, _) = made(&dir, &mut random);
        let made_up = made_up(&dir);
        fs::remove_file(dir.join(format!("segments/{missing:010}"))).unwrap();
        let error = Journal::open(&dir, &OpenOptions { background: false }).map(drop).unwrap_err();
        assert_eq!(error.code(), Code::NamespaceIncomplete);
        let view = Journal::view(&dir).unwrap();
        let mut payload = Vec::new();
        for ((name, seqno), (expected, _, at, _)) in &truth {
            let is_gone = at >> 20 == missing;
            // Its definition was in the first one.
            let name = if missing == 0 { made_up[name].clone() } else { name.clone() };
            let log = view.log(&named(&name)).unwrap();
            let read = view.get(&log, *seqno, &mut payload);
            assert!(read.is_err() == is_gone && (is_gone || payload == *expected), "{name} {seqno}: {read:?}");
        }
        assert!(!view.recovery().damaged.is_empty());
        let unnamed = view.recovery().rebuilt.as_ref().map_or(0, |rebuilt| rebuilt.unnamed.len());
        assert_eq!(unnamed, if missing == 0 { 3 } else { 0 });
    }
}

/// Mixes a number with a salt, as the specification says.
fn mix(salt: [u64; 2], number: u64) -> u64 {
    let first = number ^ salt[0];
    let second = (first ^ first >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ salt[1];
    let third = (second ^ second >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    third ^ third >> 31
}

/// A payload that is at a position and is nothing but entries: MARKs that claim that all before `claim` was durable, and
/// records of log `victim` with high numbers, one sequence after the other. Whoever forges it knows all but, perhaps, the salt.
fn forged(salt: [u64; 2], position: u64, bytes: usize, claim: u64, victim: u32) -> Vec<u8> {
    let mut forged = Vec::new();
    for (n, at) in (position..position + bytes as u64 - 64).step_by(64).enumerate() {
        let (kind, subject, seqno) = if n % 2 == 0 { (12, 0, claim) } else { (3, victim, 1 << 20) };
        let mut entry = [0; 64];
        entry[4..8].copy_from_slice(&64u32.to_le_bytes());
        entry[12..14].copy_from_slice(&[kind, 1]);
        entry[16..24].copy_from_slice(&(1_000_000 + n as u64).to_le_bytes());
        entry[48..52].copy_from_slice(&1u32.to_le_bytes());
        entry[52..56].copy_from_slice(&u32::to_le_bytes(subject));
        entry[56..].copy_from_slice(&u64::to_le_bytes(seqno));
        if kind == 12 {
            entry[32..40].copy_from_slice(&mix(salt, mix(salt, !at) ^ seqno).to_le_bytes());
        }
        let crc = crc_fast::crc32_iscsi(&entry[4..]) ^ mix(salt, at) as u32;
        entry[..4].copy_from_slice(&crc.to_le_bytes());
        forged.extend_from_slice(&entry);
    }
    forged
}

/// A journal with a record that is forged entries: its files, and where that record stands.
fn attacked(salt: Option<[u64; 2]>) -> (BTreeMap<String, Vec<u8>>, u64) {
    let (disk, medium, journal, _) = create(Durability::Disk);
    let (public, victim) = journal
        .commit(|batch| Ok((batch.create_log(&named("public"), 100)?, batch.create_log(&named("victim"), 100)?)))
        .unwrap()
        .value;
    let append = |log: &millrace_journal::Log, payload: &[u8]| {
        journal.commit(|batch| batch.append(log, payload, EventId::NONE, 0)).unwrap();
    };
    (0..5).for_each(|_| append(&victim, b"honest"));
    journal.sync(journal.tail()).unwrap();
    let at = journal.tail().get();
    let salt = salt.unwrap_or_else(|| {
        let header = disk.files()["segments/0000000000"][40..56].to_vec();
        [0, 8].map(|from| u64::from_le_bytes(header[from..from + 8].try_into().unwrap()))
    });
    append(&public, &forged(salt, at + 64, 200_000, at + 200_000, victim.id()));
    append(&victim, b"honest too");
    // So much more that all of it is proven to have been durable.
    for _ in 0..2 {
        append(&public, &[7; 200_000]);
        journal.sync(journal.tail()).unwrap();
    }
    let files = without_control(&disk).files();
    medium.kill();
    (files, at)
}

/// What somebody finds who cannot know the salt, and what would be if he could.
const GUESSED: [Option<[u64; 2]>; 3] = [Some([0, 0]), Some([0x0123_4567_89AB_CDEF, 0x1111_1111_1111_1111]), None];

#[test]
fn entries_that_a_payload_imitates_behind_a_torn_tail_prove_nothing() {
    for salt in GUESSED {
        let (mut files, at) = attacked(salt);
        // The record's own first sector never reached the disk, and nothing behind it.
        let segment = files.get_mut("segments/0000000000").unwrap();
        segment[at as usize..at as usize + 64].fill(0);
        segment[at as usize + 64 + 200_000..].fill(0);
        let opened = open(&SimDisk::with_files(files).process());
        match (salt, opened) {
            (Some(_), Ok(journal)) => assert_eq!(journal.log(&named("victim")).unwrap().latest(), 5),
            (Some(_), Err(error)) => panic!("a forged mark was believed: {error}"),
            (None, opened) => {
                assert_eq!(opened.map(drop).unwrap_err().code(), Code::JournalDamaged, "the test forges badly")
            }
        }
    }
}

#[test]
fn salvage_takes_no_entry_that_a_payload_imitates() {
    for salt in GUESSED {
        let (mut files, at) = attacked(salt);
        files.get_mut("segments/0000000000").unwrap()[at as usize + 5] ^= 1; // Its length.
        let view = Journal::view_on(SimDisk::with_files(files).process(), Path::new("sim")).unwrap();
        let parent = tempfile::tempdir().unwrap();
        view.salvage(&parent.path().join("saved"), &mut |_, _| {}, &mut |_, _, _| Ok(())).unwrap();
        let options = OpenOptions { background: false };
        let saved = Journal::open(&parent.path().join("saved"), &options).unwrap();
        let (victim, mut payload) = (saved.log(&named("victim")).unwrap(), Vec::new());
        if salt.is_some() {
            assert_eq!(victim.latest(), 6, "all that is honest, and nothing else");
            saved.get(&victim, 6, &mut payload).unwrap();
            assert_eq!(payload, b"honest too");
        } else {
            assert!(victim.latest() > 6, "the test forges badly");
        }
    }
}
