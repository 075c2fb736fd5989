//! Indexes, words of the control page, marks and handles agree with the journal, or the journal wins.

mod model;

use millrace_journal::{
    CreateOptions, Durability, Journal, Kind, Log, OpenOptions, Position,
    medium::{
        Medium as _,
        sim::{Call, Fault, SimDisk},
    },
};
use millrace_wire::{Code, EventId, Result};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

const CHILD: &str = "MILLRACE_AGREEMENT_CHILD";

fn open(dir: &Path) -> Result<Journal> {
    Journal::open(dir, &OpenOptions { background: false })
}

fn create(dir: &Path) -> Journal {
    let (segment_bytes, durability) = (1 << 20, Durability::Memory);
    Journal::create(dir, &CreateOptions { segment_bytes, durability, ..Default::default() }).unwrap()
}

fn log(journal: &Journal, name: &str, history: u64) -> Log {
    journal.commit(|batch| batch.create_log(&name.parse().unwrap(), history)).unwrap().value
}

fn append(journal: &Journal, log: &Log, payload: &[u8]) -> Result<u64> {
    Ok(journal.commit(|batch| batch.append(log, payload, EventId::NONE, 0))?.value.seqno)
}

fn get(journal: &Journal, log: &Log, seqno: u64) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    journal.get(log, seqno, &mut payload)?;
    Ok(payload)
}

/// Changes a word of a file of the namespace, as a flipped bit would.
fn flip(dir: &Path, name: &str, at: u64, mask: u64) {
    let file = fs::File::options().read(true).write(true).open(dir.join(name)).unwrap();
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).unwrap();
    file.write_all_at(&(u64::from_le_bytes(word) ^ mask).to_le_bytes(), at).unwrap();
}

#[test]
fn a_sync_beyond_the_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let beyond = Position::from_bytes(journal.tail().get() + 1);
    assert_eq!(journal.sync(beyond).unwrap_err().code(), Code::AboveTail);
}

#[test]
fn a_scan_from_between_two_places_of_entries_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 10);
    append(&journal, &a, &[7; 500]).unwrap();
    let mut scan = journal.scan(Position::from_bytes(100));
    for _ in 0..2 {
        assert_eq!(scan.next().map(|entry| entry.is_some()).unwrap_err().code(), Code::ValueInvalid);
    }
}

#[test]
fn handles_of_two_openings_number_one_log_together() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, other) = (create(dir.path()), open(dir.path()).unwrap());
    let a = log(&journal, "a", 10);
    let foreign = other.log(&"a".parse().unwrap()).unwrap();
    let committed = journal.commit(|batch| {
        let own = batch.append(&a, b"own", EventId::NONE, 0)?;
        Ok((own, batch.append(&foreign, b"foreign", EventId::NONE, 0)?))
    });
    let (own, by_other) = committed.unwrap().value;
    assert_eq!((own.seqno, by_other.seqno), (1, 2));
    assert_eq!((get(&journal, &a, 1).unwrap(), get(&journal, &a, 2).unwrap()), (b"own".to_vec(), b"foreign".to_vec()));
}

#[test]
fn a_handle_from_before_retention_passed_the_definitions_numbers_with_the_one_from_after() {
    let disk = SimDisk::default();
    let options = model::sim_options(Durability::Memory);
    let host = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let guest = model::open(&disk.process()).unwrap();
    let (a, filler) = (log(&host, "a", 10), log(&host, "filler", 1));
    let before = guest.log(&"a".parse().unwrap()).unwrap();
    log(&host, "b", 10);
    for _ in 0..60 {
        append(&host, &filler, &[1; 200_000]).unwrap();
    }
    host.maintain(&|_, _| false).unwrap();
    log(&host, "c", 10);
    for _ in 0..60 {
        append(&host, &filler, &[1; 200_000]).unwrap();
    }
    assert!(host.maintain(&|_, _| false).unwrap().dropped > 0);
    let after = guest.log(&"a".parse().unwrap()).unwrap();
    let committed = guest.commit(|batch| {
        let first = batch.append(&before, b"x", EventId::NONE, 0)?.seqno;
        Ok((first, batch.append(&after, b"y", EventId::NONE, 0)?.seqno))
    });
    assert_eq!((committed.unwrap().value, a.latest()), ((1, 2), 2));
}

#[test]
fn a_handle_that_a_failed_batch_gave_out_is_good_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let mut leaked = None;
    let failed = journal.commit(|batch| {
        leaked = Some(batch.create_log(&"never".parse().unwrap(), 10)?);
        Err::<(), _>(Code::Busy.error("on purpose"))
    });
    assert!(failed.is_err());
    let other = log(&journal, "other", 10);
    let leaked = leaked.unwrap();
    assert_eq!(leaked.id(), other.id());
    assert_eq!(append(&journal, &leaked, b"x").unwrap_err().code(), Code::LogNotFound);
    assert_eq!(append(&journal, &other, b"x").unwrap(), 1);
}

/// Where the slot of a log's record is in the arena, if the log's ring is one block.
fn slot_of(dir: &Path, log: &Log, seqno: u64) -> u64 {
    let arena = fs::read(dir.join("index/arena")).unwrap();
    let word = |at: u64| u64::from_le_bytes(arena[at as usize..at as usize + 8].try_into().unwrap());
    let entry = word(64) + u64::from(log.id()) * 64;
    let ring = word(entry);
    assert!(log.id() < 64 && ring & 32 == 0, "{ring:#x}");
    (ring & ((1 << 40) - 64)) + (seqno & ((1 << (ring & 31)) - 1)) * 8
}

#[test]
fn a_flipped_word_of_an_index_is_corrected_when_it_is_read_and_told_by_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 100);
    for n in 1..=50u8 {
        append(&journal, &a, &[n; 300]).unwrap();
    }
    // A bit of the position, of the size, that says "by reference", and of the check.
    for (n, mask) in [(3u64, 0x40), (17, 1 << 40), (29, 1), (50, 1 << 13), (31, 1 << 45), (32, 1 << 48), (33, 1 << 63)]
    {
        flip(dir.path(), "index/arena", slot_of(dir.path(), &a, n), mask);
        assert_eq!(get(&journal, &a, n).unwrap(), [n as u8; 300], "record {n}");
        assert!(journal.check(&mut |_, _| {}).unwrap().faults.is_empty(), "it was corrected");
    }
    flip(dir.path(), "index/arena", slot_of(dir.path(), &a, 9), 1 << 22);
    let report = journal.check(&mut |_, _| {}).unwrap();
    assert!(report.fault_count == 1 && report.faults[0].detail().contains("record 9"), "{:?}", report.faults);
    assert_eq!(get(&journal, &a, 9).unwrap(), [9; 300]);
    // A clean end keeps what is in an index.
    flip(dir.path(), "index/arena", slot_of(dir.path(), &a, 11), 1 << 5);
    drop((journal, a));
    let journal = open(dir.path()).unwrap();
    let a = journal.log(&"a".parse().unwrap()).unwrap();
    assert!(!journal.recovery().scanned);
    assert_eq!(get(&journal, &a, 11).unwrap(), [11; 300]);
    let at = journal.scan(Position::default()).position();
    assert_eq!(journal.latest_before(&a, journal.tail()).unwrap(), 50, "{at}");
}

#[test]
fn a_flipped_bit_where_the_journal_ends_is_never_built_upon() {
    // `last` and the published tail: words 1 of the second and 0 of the third line of the control page.
    for (at, bit) in [(136, 4), (136, 7), (136, 33), (136, 0), (256, 5), (256, 12)] {
        let dir = tempfile::tempdir().unwrap();
        let journal = create(dir.path());
        let a = log(&journal, "a", 100);
        (1..=30).for_each(|n| assert_eq!(append(&journal, &a, &[1; 100]).unwrap(), n));
        flip(dir.path(), "control", at, 1 << bit);
        for _ in 0..2 {
            assert_eq!(append(&journal, &a, b"next").unwrap_err().code(), Code::JournalPoisoned, "{at} {bit}");
        }
        drop((journal, a));
        let journal = open(dir.path()).unwrap();
        let a = journal.log(&"a".parse().unwrap()).unwrap();
        assert_eq!(append(&journal, &a, b"next").unwrap(), 31);
        (1..=31).for_each(|n| drop(get(&journal, &a, n).unwrap()));
    }
}

#[test]
fn a_flipped_bit_in_a_word_of_the_lock_closes_the_journal_before_the_next_append() {
    // `last`, `applied`, `hlc`, `defined`, their checksum, and the published tail.
    for word in [136, 144, 160, 168, 192, 256] {
        for bit in [0u64, 4, 17, 33, 62] {
            let dir = tempfile::tempdir().unwrap();
            let (journal, other) = (create(dir.path()), open(dir.path()).unwrap());
            let a = log(&journal, "a", 100);
            (1..=5).for_each(|n| assert_eq!(append(&journal, &a, &[1; 100]).unwrap(), n));
            flip(dir.path(), "control", word + bit / 8, 1 << (bit % 8));
            let here = append(&journal, &a, b"next").map_err(|error| error.code());
            assert_eq!(here, Err(Code::JournalPoisoned), "{word} {bit}");
            assert_eq!(other.check_health().unwrap_err().code(), Code::JournalPoisoned);
            drop((journal, other, a));
            let journal = open(dir.path()).unwrap();
            let a = journal.log(&"a".parse().unwrap()).unwrap();
            assert_eq!(append(&journal, &a, b"next").unwrap(), 6);
            assert!(journal.check_clock().is_ok() && journal.check(&mut |_, _| {}).unwrap().fault_count == 0);
        }
    }
}

#[test]
fn nothing_is_durable_because_a_bit_of_the_control_page_flipped() {
    for word in [384, 408] {
        for bit in 0..64u64 {
            let disk = SimDisk::default();
            let options = model::sim_options(Durability::Disk);
            drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
            let medium = disk.process();
            let journal = model::open(&medium).unwrap();
            let a = log(&journal, "a", 100);
            journal.sync(journal.tail()).unwrap();
            let durable = journal.durable();
            append(&journal, &a, &[7; 3000]).unwrap();
            let page = disk.process().map("control", 4096, false).unwrap();
            let at = word + bit / 8;
            let byte = disk.files()["control"][at as usize] ^ 1 << (bit % 8);
            disk.process().write(&page, at, &[byte]).unwrap();
            assert!(journal.durable() <= durable, "{word} {bit}: {}", journal.durable());
            journal.sync(journal.tail()).unwrap();
            assert_eq!(journal.durable(), journal.tail(), "{word} {bit}");
            // What it said is so.
            medium.kill();
            let after = disk.crash(&mut |_| 0);
            let recovered = model::open(&after.process()).unwrap();
            let a = recovered.log(&"a".parse().unwrap()).unwrap();
            assert_eq!(get(&recovered, &a, 1).unwrap(), [7; 3000], "{word} {bit}");
        }
    }
}

#[test]
fn a_replaced_lock_file_lets_nobody_in_beside_those_who_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 100);
    for also in [None, Some("control")] {
        for name in ["lock"].into_iter().chain(also) {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("lock"), "").unwrap();
        assert_eq!(open(dir.path()).map(drop).unwrap_err().code(), Code::NamespaceIncomplete);
        append(&journal, &a, b"x").unwrap();
    }
    drop((journal, a));
    let journal = open(dir.path()).unwrap();
    assert_eq!(journal.log(&"a".parse().unwrap()).unwrap().latest(), 2);
}

#[test]
fn a_clock_that_was_years_ahead_once_dates_its_own_events_only_and_is_told_by_a_check() {
    let disk = SimDisk::default();
    let process = disk.process();
    let journal =
        Journal::create_on(process.clone(), Path::new("sim"), &model::sim_options(Durability::Memory)).unwrap();
    let a = log(&journal, "a", 10);
    let time = |journal: &Journal, seqno| {
        let log = journal.log(&"a".parse().unwrap()).unwrap();
        journal.get(&log, seqno, &mut Vec::new()).unwrap().hlc
    };
    let (now_us, ahead_us) = (1_700_000_000_000_000, 3_500_000_000_000_000);
    disk.set_wall_us(now_us);
    append(&journal, &a, b"in 2023").unwrap();
    assert!(journal.check_clock().is_ok());
    disk.set_wall_us(ahead_us);
    append(&journal, &a, b"in 2080").unwrap();
    disk.set_wall_us(now_us + 5_000_000);
    append(&journal, &a, b"in 2023").unwrap();
    disk.set_wall_us(now_us + 4_000_000);
    append(&journal, &a, b"a second back").unwrap();
    // Events of one microsecond are microseconds apart.
    let times: Vec<u64> = (1..=4).map(|seqno| time(&journal, seqno).wall_us() / 1000 * 1000).collect();
    assert_eq!(times, [now_us, ahead_us, now_us + 5_000_000, now_us + 5_000_000]);
    assert!(time(&journal, 4) > time(&journal, 3), "small steps back are no steps");
    assert_eq!(journal.clock().wall_us() / 1000 * 1000, now_us + 4_000_000);
    assert!(journal.growing_clock().wall_us() >= ahead_us);
    assert_eq!(journal.check_clock().unwrap_err().code(), Code::ClockDrift);
    let report = journal.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.faults, []);
    assert_eq!(report.warnings.iter().map(|warning| warning.code()).collect::<Vec<_>>(), [Code::ClockDrift]);
    // The same after a crash, and later the clock is right for everything.
    process.kill();
    drop((journal, a));
    let journal = Journal::open_on(disk.process(), Path::new("sim"), &OpenOptions { background: false }).unwrap();
    let a = journal.log(&"a".parse().unwrap()).unwrap();
    disk.set_wall_us(now_us + 7_000_000);
    append(&journal, &a, b"after a crash").unwrap();
    assert_eq!(time(&journal, 5).wall_us() / 1000 * 1000, now_us + 7_000_000);
    assert!(journal.growing_clock().wall_us() >= ahead_us);
    disk.set_wall_us(ahead_us + 9_000_000);
    append(&journal, &a, b"in 2080 again").unwrap();
    assert_eq!(time(&journal, 6).wall_us() / 1000 * 1000, ahead_us + 9_000_000);
    assert!(journal.check_clock().is_ok());
}

fn arena_bytes(dir: &Path) -> u64 {
    let names: Vec<_> = fs::read_dir(dir.join("index")).unwrap().flatten().map(|file| file.file_name()).collect();
    assert_eq!(names, ["arena"]);
    fs::metadata(dir.join("index/arena")).unwrap().len()
}

#[test]
fn the_index_of_a_removed_log_is_used_again_and_nobody_misses_it() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, other) = (create(dir.path()), open(dir.path()).unwrap());
    let (gone, stays) = (log(&journal, "gone", 10), log(&journal, "stays", 10));
    append(&journal, &gone, b"x").unwrap();
    let held = other.log(&"gone".parse().unwrap()).unwrap();
    journal.commit(|batch| batch.remove_log(&"gone".parse().unwrap())).unwrap();
    assert_eq!(
        get(&other, &held, 1).unwrap_err().code(),
        Code::LogNotFound,
        "also before it has looked at definitions"
    );
    // It learns of both the log and its end at once.
    assert!(other.log(&"gone".parse().unwrap()).is_err() && other.log(&"stays".parse().unwrap()).is_ok());
    let mut bytes = 0;
    for round in 0..40 {
        let name = format!("log/{round}").parse().unwrap();
        let log = journal.commit(|batch| batch.create_log(&name, 10_000)).unwrap().value;
        journal
            .commit(|batch| (1..=2000).try_for_each(|_| batch.append(&log, b"x", EventId::NONE, 0).map(drop)))
            .unwrap();
        assert_eq!(get(&journal, &log, 1).unwrap(), b"x");
        journal.commit(|batch| batch.remove_log(&name)).unwrap();
        if round == 1 {
            bytes = arena_bytes(dir.path());
        }
    }
    assert_eq!(arena_bytes(dir.path()), bytes);
    drop((journal, other, gone, stays, held));
    let journal = open(dir.path()).unwrap();
    assert!(!journal.recovery().scanned, "the index of a log that is gone is not missed");
    // Nor does a batch that fails leave one.
    let failed = journal.commit(|batch| {
        let log = batch.create_log(&"never".parse().unwrap(), 10)?;
        batch.append(&log, b"x", EventId::NONE, 0)?;
        Err::<(), _>(Code::Busy.error("on purpose"))
    });
    assert!(failed.is_err());
    let again = log(&journal, "again", 10);
    assert_eq!((append(&journal, &again, b"y").unwrap(), get(&journal, &again, 1).unwrap()), (1, b"y".to_vec()));
}

#[test]
fn a_log_takes_storage_for_the_records_it_has_and_not_for_its_history() {
    let disk = SimDisk::default();
    let journal =
        Journal::create_on(disk.process(), Path::new("sim"), &model::sim_options(Durability::Memory)).unwrap();
    let a = log(&journal, "a", 1 << 28);
    assert_eq!(append(&journal, &a, b"x").unwrap(), 1);
    assert_eq!(get(&journal, &a, 1).unwrap(), b"x");
    assert!(disk.files()["index/arena"].len() <= 256 << 10);
}

/// Stalls the first flush of a file until it is let go.
fn stall_first_flush(disk: &SimDisk, then: Fault) -> Arc<(Mutex<bool>, Condvar)> {
    let over = Arc::new((Mutex::new(false), Condvar::new()));
    let (stall, mut stalled) = (over.clone(), false);
    disk.set_faults(Some(Box::new(move |call| match call {
        Call::Flush if !std::mem::replace(&mut stalled, true) => Fault::Stall(stall.clone()),
        Call::FlushNames => then.clone(),
        _ => Fault::None,
    })));
    over
}

#[test]
fn a_flush_during_which_another_failed_acknowledges_nothing() {
    let disk = SimDisk::default();
    let options = model::sim_options(Durability::Memory);
    drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
    let (one, two) = (model::open(&disk.process()).unwrap(), model::open(&disk.process()).unwrap());
    let a = log(&one, "a", 100);
    let durable = one.durable();
    let over = stall_first_flush(&disk, Fault::Error(libc::EIO));
    std::thread::scope(|scope| {
        let tail = one.tail();
        let one = &one;
        let waits = scope.spawn(move || one.sync(tail));
        // Needs another segment, whose name the disk refuses to make durable: that closes the journal.
        let b = two.log(a.name()).unwrap();
        while two.check_health().is_ok() {
            let _ = append(&two, &b, &[1; 200_000]);
        }
        *over.0.lock().unwrap() = true;
        over.1.notify_all();
        assert_eq!(waits.join().unwrap().unwrap_err().code(), Code::FlushFailed);
    });
    assert_eq!(one.durable(), durable);
}

#[test]
fn what_is_acknowledged_as_durable_is_attested_at_every_moment() {
    let disk = SimDisk::default();
    drop(Journal::create_on(disk.process(), Path::new("sim"), &model::sim_options(Durability::Disk)).unwrap());
    let journal = model::open(&disk.process()).unwrap();
    let a = log(&journal, "a", 1000);
    journal.sync(journal.tail()).unwrap();
    for records in [1, 9, 2, 15] {
        (0..records).for_each(|n| assert!(append(&journal, &a, &vec![n; 200_000]).is_ok()));
        disk.record_moments();
        journal.sync(journal.tail()).unwrap();
        for (n, moment) in disk.take_moments().iter().enumerate() {
            let durable = u64::from_le_bytes(moment.files()["control"][384..392].try_into().unwrap());
            // The disk keeps nothing that was not flushed, and the first record is damaged.
            let mut files = moment.crash(&mut |_| 0).files();
            files.remove("control");
            let first = files.get_mut("segments/0000000000").unwrap();
            first[2000] ^= 1;
            let image = SimDisk::with_files(files);
            let view = Journal::view_on(image.process(), Path::new("sim")).unwrap();
            let proven = view.recovery().proven.get();
            let damaged = view.recovery().damaged.len();
            assert!(
                damaged == 0 || durable.saturating_sub(proven) <= 2 * (1 << 20) / 8,
                "{records} records, moment {n}: durable up to {durable:#x}, proven up to {proven:#x}"
            );
        }
    }
}

#[test]
fn what_the_disk_cannot_read_is_damage_and_takes_nothing_else_along() {
    let disk = SimDisk::default();
    let (medium, options) = (disk.process(), model::sim_options(Durability::Disk));
    drop(Journal::create_on(medium, Path::new("sim"), &options).unwrap());
    let medium = disk.process();
    let journal = model::open(&medium).unwrap();
    let a = log(&journal, "a", 1000);
    for n in 1..=40u8 {
        append(&journal, &a, &[n; 50_000]).unwrap();
    }
    journal.sync(journal.tail()).unwrap();
    let hit = journal.position(&a, 7).get() + 20_000;
    disk.set_unreadable("segments/0000000000", hit..hit + 512);
    // A check of a journal in use, and what is read after it.
    let report = journal.check(&mut |_, _| {}).unwrap();
    assert!(report.fault_count > 0 && report.faults.iter().all(|fault| fault.code() == Code::EntryDamaged));
    let readable = |journal: &Journal| -> Vec<u64> {
        let a = journal.log(&"a".parse().unwrap()).unwrap();
        (1..=40).filter(|n| get(journal, &a, *n).is_ok_and(|found| found == [*n as u8; 50_000])).collect()
    };
    let others: Vec<u64> = (1..=40).filter(|n| *n != 7).collect();
    assert_eq!(readable(&journal), others);
    // A copy has zeros in its place.
    struct Sink(Vec<u8>);
    impl millrace_journal::SnapshotSink for Sink {
        fn write(&mut self, segment: u64, bytes: &[u8]) -> Result<()> {
            if segment == 0 {
                self.0.extend_from_slice(bytes);
            }
            Ok(())
        }
        fn forget(&mut self, _segment: u64) -> Result<()> {
            Ok(())
        }
        fn progress(&mut self, _done: u64, _total: u64) {}
    }
    let mut sink = Sink(Vec::new());
    journal.snapshot(&mut sink).unwrap();
    let page = hit as usize / 4096 * 4096;
    assert!(sink.0[page..page + 4096].iter().all(|byte| *byte == 0) && sink.0[page - 1] == 7);
    // Recovery refuses the namespace, and a view steps over the damage.
    medium.kill();
    drop((journal, a));
    assert_eq!(model::open(&disk.process()).map(drop).unwrap_err().code(), Code::JournalDamaged);
    let view = Journal::view_on(disk.process(), Path::new("sim")).unwrap();
    assert_eq!((readable(&view), view.recovery().damaged.len()), (others, 1));
}

/// Not a test by itself: appends once.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let journal = open(Path::new(&dir)).unwrap();
    let a = journal.log(&"a".parse().unwrap()).unwrap();
    append(&journal, &a, b"from the child").unwrap();
}

#[test]
#[expect(clippy::zombie_processes, reason = "a batch that fails ends the test, and the child with it")]
fn who_waits_for_the_lock_says_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 100);
    let (mut child, reported) = journal
        .commit(|batch| {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child", "--nocapture"])
                .env(CHILD, dir.path())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let reported = lines.find_map(|line| line.ok().filter(|line| line.contains("MR2034"))).unwrap_or_default();
            batch.append(&a, b"before the child", EventId::NONE, 0)?;
            Ok((child, reported))
        })
        .unwrap()
        .value;
    assert!(child.wait().unwrap().success());
    let command = std::env::args().next().unwrap();
    let expected = format!("process {} ({command}", std::process::id());
    assert!(reported.contains(&expected), "{reported}, not {expected}");
    assert_eq!(get(&journal, &a, 2).unwrap(), b"from the child");
}

#[test]
fn a_waiter_for_one_log_is_woken_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, other) = (create(dir.path()), open(dir.path()).unwrap());
    let a = log(&journal, "a", 100);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| journal.wait_log(&a, 0, Duration::from_secs(300)).unwrap());
        append(&other, &other.log(&"a".parse().unwrap()).unwrap(), b"x").unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
    });
    let found = model::entries(&journal, Position::default());
    assert_eq!(found.iter().filter(|entry| entry.kind == Kind::Append).count(), 1);
}
