//! Power failures: every image that a small journal can leave on the disk, at every call of the medium.

mod model;

use millrace_journal::{
    Attempt, Durability, End, Journal, Log, Origin, Position, Reads, Replaced, What, medium::sim::SimDisk,
};
use millrace_wire::{Code, EventId, HISTORY_ALL};
use model::{Model, Random, create, each_image, open};
use std::{path::Path, time::Duration};

/// Images verified after each step; smaller sets are enumerated completely. In the middle of a step, a tenth.
const IMAGES_MAX: usize = 200;
/// Every so many images are also written to, closed and opened again.
const USED_AGAIN: usize = 8;

type Operation = fn(&Journal, u32);

fn define(journal: &Journal, round: u32) {
    journal
        .commit(|batch| {
            batch.create_log(&format!("log/{round}").parse().unwrap(), 4)?;
            batch.define_function(&"f".parse().unwrap(), &format!("{{\"round\":{round}}}"))
        })
        .unwrap();
}

/// The log `a`, whatever it keeps now.
fn log_a(journal: &Journal) -> Log {
    let name = "a".parse().unwrap();
    let made = || journal.commit(|batch| batch.create_log(&name, 3)).unwrap().value;
    journal.log(&name).unwrap_or_else(|_| made())
}

fn append(journal: &Journal, round: u32) {
    let log = log_a(journal);
    let payload = vec![round as u8 + 1; 40 + 300 * (round as usize % 3)];
    journal.commit(|batch| batch.append(&log, &payload, EventId::NONE, 0)).unwrap();
}

fn run(journal: &Journal, round: u32) {
    let catalog = journal.catalog().unwrap();
    let (Some(log), Some(function)) = (catalog.log("a"), catalog.function("f")) else { return append(journal, round) };
    journal
        .commit(|batch| {
            let record = batch.append(log, &[round as u8; 700], EventId::NONE, 7)?;
            let run = batch.trigger(function.id(), record.id, log, record.seqno, Origin::Bound)?;
            batch.fired(function.id(), run, &Attempt { attempt: 1, ..Attempt::default() })?;
            let mut reads = Reads::default();
            reads.log(log.id(), record.seqno, What::Record);
            batch.reads(function.id(), run, reads)?;
            batch.done(function.id(), run, &End::default())
        })
        .unwrap();
}

fn abort(journal: &Journal, round: u32) {
    let catalog = journal.catalog().unwrap();
    let Some(log) = catalog.log("a") else { return };
    let failed = journal.commit(|batch| {
        batch.append(log, &[0xEE; 600], EventId::NONE, 0)?;
        batch.append(log, &vec![0xEF; 40 + round as usize], EventId::NONE, 1)?;
        batch.create_log(&"never".parse().unwrap(), 9)?;
        batch.remove_log(log.name())?;
        Err::<(), _>(Code::Busy.error("on purpose"))
    });
    assert_eq!(failed.unwrap_err().code(), Code::Busy);
    append(journal, round);
}

fn remove(journal: &Journal, round: u32) {
    if journal.log(&"a".parse().unwrap()).is_ok() {
        journal.commit(|batch| batch.remove_log(&"a".parse().unwrap())).unwrap();
    }
    append(journal, round);
}

/// Leaves the newest record, or in every other round none.
fn trim(journal: &Journal, round: u32) {
    append(journal, round);
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    let before = log.latest() + u64::from(round % 2);
    journal
        .commit(|batch| {
            batch.trim(&log, before)?;
            batch.trim(&log, before)?;
            batch.trim(&log, before.saturating_sub(1))
        })
        .unwrap();
    assert_eq!(log.earliest(), before);
}

/// Has the log keep less or more than it did.
fn resize(journal: &Journal, round: u32) {
    append(journal, round);
    let log = log_a(journal);
    let (earliest, history) = (log.earliest(), [2, 60, 9, HISTORY_ALL][round as usize % 4]);
    journal.commit(|batch| batch.set_history(&log, history)).unwrap();
    assert_eq!((log.history(), log.earliest()), (history, earliest.max(log.latest().saturating_sub(history) + 1)));
}

/// Has the newest record, or every other one, read otherwise: in every third round there is none any more, and then it is back.
fn repair(journal: &Journal, round: u32) {
    append(journal, round);
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    let (seqno, mut payload) = (log.latest(), Vec::new());
    let meta = journal.get(&log, seqno, &mut payload).unwrap();
    let (origin, clock, position) = (meta.id, meta.hlc, meta.position);
    let replaced = Replaced { repair: 1, origin, clock, void: round.is_multiple_of(3), position };
    let staged = journal
        .commit(|batch| batch.shadow_append((log.id(), seqno), &[round as u8; 500], (EventId::NONE, 0), &replaced));
    let id = staged.unwrap().value;
    let shadow = journal.entry_of_sequence(id.sequence()).unwrap().unwrap().position;
    journal.commit(|batch| batch.generation(1, &[(log.id(), seqno, shadow)])).unwrap();
    if round.is_multiple_of(3) {
        journal.commit(|batch| batch.generation(2, &[(log.id(), seqno, position)])).unwrap();
    }
}

/// Large enough that every third such batch moves to another segment.
fn switch(journal: &Journal, round: u32) {
    let log = journal.commit(|batch| batch.create_log(&"big".parse().unwrap(), 2)).unwrap().value;
    journal
        .commit(|batch| {
            batch.append(&log, &vec![round as u8 + 1; 100_000], EventId::NONE, 0)?;
            batch.append(&log, &vec![round as u8 + 2; 130_000], EventId::NONE, 1)?;
            batch.append(&log, &vec![round as u8 + 3; 200_000], EventId::NONE, 2)
        })
        .unwrap();
}

fn maintain(journal: &Journal, _round: u32) {
    journal.maintain(&|_, _| true).unwrap();
}

/// Runs a script, some steps acknowledged by `sync` and some not, and verifies all images at all moments of each step.
fn run_script(durability: Durability, script: &[(Operation, bool)], images_max: usize, random: &mut Random) -> usize {
    let (disk, medium, journal, mut model) = create(durability);
    let mut images = 0;
    for (round, (operation, synced)) in script.iter().enumerate() {
        disk.record_moments();
        operation(&journal, round as u32);
        disk.observe();
        let before = model.clone();
        model.learn(&journal);
        // What a moment in the middle may show: everything before, and the new batch or not.
        let expected = Model { durable: before.durable, epoch: before.epoch, ..model.clone() };
        let mut moments = disk.take_moments();
        moments.push(disk.clone());
        for (n, moment) in moments.iter().enumerate() {
            let most = if n + 1 == moments.len() { images_max } else { (images_max / 10).max(4) };
            let mut count = 0;
            images += each_image(moment, most, random, &mut |image, survivors| {
                let context = format!("step {round}, moment {n}: {survivors}");
                let (medium, journal) = expected.verify(&image, &context);
                count += 1;
                if count % USED_AGAIN == 1 {
                    expected.use_again(&medium, journal, &image, &context);
                }
            });
        }
        if *synced {
            journal.sync(journal.tail()).unwrap();
            model.learn_durable(&journal);
        }
    }
    medium.kill();
    images
}

#[test]
fn every_image_of_a_small_journal_recovers() {
    let mut random = Random::new("small");
    let script: [(Operation, bool); 17] = [
        (define, false),
        (append, true),
        (run, false),
        (append, false),
        (abort, false),
        (trim, false),
        (trim, true),
        (run, true),
        (repair, false),
        (repair, true),
        (repair, false),
        (resize, false),
        (resize, true),
        (resize, false),
        (resize, false),
        (remove, false),
        (define, false),
    ];
    for durability in [Durability::Disk, Durability::Memory] {
        let images = run_script(durability, &script, IMAGES_MAX, &mut random);
        println!("{images} images in {durability:?}");
        assert!(images > 1000, "{images} images are not the enumeration this test is about");
    }
}

#[test]
fn every_moment_of_a_segment_switch_and_of_retention_recovers() {
    let mut random = Random::new("switch");
    let mut script: Vec<(Operation, bool)> = vec![(define, false), (append, false), (run, true)];
    for round in 0..9 {
        script.push((switch, round % 3 == 1));
        if round % 4 == 3 {
            script.push((trim, false));
            script.push((maintain, false));
        }
    }
    script.extend([(append as Operation, false), (maintain as Operation, true), (run as Operation, false)]);
    for durability in [Durability::Disk, Durability::Memory] {
        run_script(durability, &script, 12, &mut random);
    }
}

#[test]
fn a_recovery_that_is_cut_short_is_recovered() {
    let mut random = Random::new("recovery");
    let (disk, medium, journal, mut model) = create(Durability::Disk);
    for round in 0..4 {
        switch(&journal, round);
        run(&journal, round);
    }
    journal.sync(journal.tail()).unwrap();
    model.learn_durable(&journal);
    for round in 4..7 {
        run(&journal, round);
        switch(&journal, round);
        model.learn(&journal);
    }
    model.learn(&journal);
    let mut inner = 0;
    each_image(&disk, 8, &mut random, &mut |image, survivors| {
        image.record_moments();
        let (process, recovered) = model.verify(&image, survivors);
        process.kill();
        drop(recovered);
        for (n, moment) in image.take_moments().iter().enumerate() {
            inner += each_image(moment, 8, &mut Random::from_seed(n as u64), &mut |image, again| {
                let context = format!("{survivors}, recovered up to call {n}: {again}");
                let (process, journal) = model.verify(&image, &context);
                model.use_again(&process, journal, &image, &context);
            });
        }
    });
    assert!(inner > 200, "{inner}");
    medium.kill();
}

#[test]
fn random_histories_agree_with_the_model() {
    let mut random = Random::new("lives");
    let started = std::time::Instant::now();
    let operations: [Operation; 9] = [define, append, run, abort, trim, resize, remove, switch, maintain];
    let mut lives = 0;
    while lives < 3 || started.elapsed() < Duration::from_secs(6) {
        let durability = [Durability::Disk, Durability::Memory][random.below(2)];
        let (mut disk, mut medium, mut journal, mut model) = create(durability);
        for age in 0..4 {
            for round in 0..random.below(30) as u32 {
                operations[random.below(operations.len())](&journal, round);
                model.learn(&journal);
                if random.below(4) == 0 {
                    journal.sync(journal.tail()).unwrap();
                    model.learn_durable(&journal);
                }
                disk.observe();
            }
            // The processes die, and with them, most times, the machine.
            medium.kill();
            drop(journal);
            let machine_too = random.below(4) > 0;
            if machine_too {
                disk = disk.crash(&mut |n| random.below(n));
            } else {
                model.durable = *model.views.keys().next_back().unwrap();
            }
            (medium, journal) = model.verify(&disk, &format!("life {lives}, age {age}, machine {machine_too}"));
            model = model.after(&journal);
        }
        medium.kill();
        lives += 1;
    }
    println!("{lives} lives");
}

#[test]
fn every_moment_of_creation_leaves_a_namespace_or_room_for_one() {
    let disk = SimDisk::default();
    disk.record_moments();
    let options = model::sim_options(Durability::Disk);
    drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
    let mut random = Random::new("creation");
    let (mut with, mut without) = (0, 0);
    for moment in disk.take_moments() {
        each_image(&moment, 200, &mut random, &mut |image, survivors| {
            let process = image.process();
            let journal = if image.files().contains_key("manifest") {
                with += 1;
                open(&process).unwrap_or_else(|error| panic!("{survivors}: {error}"))
            } else {
                without += 1;
                Journal::create_on(process, Path::new("sim"), &options).unwrap()
            };
            append(&journal, 1);
            assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
        });
    }
    assert!(with > 10 && without > 10, "{with}, {without}");
}

#[test]
fn a_clean_end_is_durable() {
    let (disk, _, journal, mut model) = create(Durability::Memory);
    (0..5).for_each(|round| append(&journal, round));
    model.learn(&journal);
    drop(journal);
    model.durable = *model.views.keys().next_back().unwrap();
    each_image(&disk, 500, &mut Random::new("clean"), &mut |image, survivors| {
        let (medium, journal) = model.verify(&image, survivors);
        medium.kill();
        drop(journal);
    });
}

#[test]
fn a_journal_that_ends_with_its_segment_is_opened() {
    // Up to the last byte, and so near to it that no header fits, and with room for the OPEN of the next epoch and no more.
    for (left, is_durable) in [0, 16, 48, 96, 112].into_iter().flat_map(|left| [(left, false), (left, true)]) {
        let disk = SimDisk::default();
        let options = model::sim_options(Durability::Memory);
        drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
        let medium = disk.process();
        let journal = open(&medium).unwrap();
        let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 1000)).unwrap().value;
        let segment = options.segment_bytes;
        let mut records = 0;
        loop {
            // A record is its header of 64 bytes, and its bytes.
            let room = segment - journal.tail().get() - left;
            let bytes = if room > 20_000 { 10_000 } else { room as usize - 64 };
            journal.commit(|batch| batch.append(&log, &vec![7; bytes], EventId::NONE, 0)).unwrap();
            records += 1;
            if is_durable {
                journal.sync(journal.tail()).unwrap();
            }
            if room <= 20_000 {
                break;
            }
        }
        assert_eq!(journal.tail().get(), segment - left);
        medium.kill();
        let mut disk = disk;
        for _ in 0..3 {
            let medium = disk.process();
            let journal = open(&medium).unwrap_or_else(|error| panic!("with {left} bytes left: {error}"));
            assert_eq!(journal.log(&"a".parse().unwrap()).unwrap().latest(), records, "with {left} bytes left");
            medium.kill();
            disk = disk.crash(&mut |_| 0);
        }
    }
}

#[test]
fn a_log_that_another_process_defined_survives_retention() {
    let (one, two) = host_and_guest();
    let rare = two.commit(|batch| batch.create_log(&"rare".parse().unwrap(), 5)).unwrap().value;
    two.commit(|batch| batch.append(&rare, b"the only one", EventId::NONE, 0)).unwrap();
    (0..12).for_each(|round| switch(&two, round));
    // `one` has not looked at the catalog since before the log existed.
    assert!(one.maintain(&|_, _| false).unwrap().dropped > 0);
    let mut payload = Vec::new();
    one.get(&one.log(&"rare".parse().unwrap()).unwrap(), 1, &mut payload).unwrap();
    assert_eq!(payload, b"the only one");
}

/// Two processes of one machine that have a namespace open.
fn host_and_guest() -> (Journal, Journal) {
    let disk = SimDisk::default();
    let options = model::sim_options(Durability::Memory);
    drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
    (open(&disk.process()).unwrap(), open(&disk.process()).unwrap())
}

#[test]
fn a_failed_flush_closes_the_journal_and_loses_nothing_that_was_acknowledged() {
    let (disk, medium, journal, mut model) = create(Durability::Disk);
    append(&journal, 0);
    journal.sync(journal.tail()).unwrap();
    model.learn_durable(&journal);
    append(&journal, 1);
    let refused = journal.tail();
    disk.set_flushes_left(Some(0));
    assert_eq!(journal.sync(refused).unwrap_err().code(), Code::FlushFailed);
    disk.set_flushes_left(None);
    // The disk works again, but what it dropped in between would not be written by another flush.
    assert_eq!(journal.sync(refused).unwrap_err().code(), Code::FlushFailed);
    let another = open(&disk.process()).unwrap();
    assert_eq!(another.check_health().unwrap_err().code(), Code::FlushFailed);
    assert_eq!(
        another.commit(|batch| batch.create_log(&"x".parse().unwrap(), 1)).unwrap_err().code(),
        Code::FlushFailed
    );
    model.learn(&journal);
    medium.kill();
    drop((journal, another));
    disk.record_moments();
    let (process, recovered) = model.verify(&disk, "reopened");
    assert!(recovered.durable() >= Position::from_bytes(model.durable));
    // Everything the recovered journal shows is really on the disk.
    let mut seen = Model { ids: Default::default(), ..Model::default() };
    seen.learn_durable(&recovered);
    seen.epoch = recovered.epoch();
    process.kill();
    drop(recovered);
    let (last, journal) = seen.verify(&disk.crash(&mut |_| 0), "after a power failure");
    last.kill();
    drop(journal);
}
