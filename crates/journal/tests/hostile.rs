//! Files that were cut, removed, exchanged or flipped, and what the answer is. Everything that remains is kept.

use millrace_journal::{CreateOptions, Durability, Journal, Log, OpenOptions, Position};
use millrace_wire::{Code, EventId, Result};
use std::{
    fs,
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const CHILD: &str = "MILLRACE_HOSTILE_CHILD";
const SEGMENT: u64 = 1 << 20;

fn open(dir: &Path) -> Result<Journal> {
    Journal::open(dir, &OpenOptions { background: false })
}

fn append(journal: &Journal, log: &Log, payload: &[u8]) -> u64 {
    journal.commit(|batch| batch.append(log, payload, EventId::NONE, 0)).unwrap().value.seqno
}

fn get(journal: &Journal, seqno: u64) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    journal.get(&journal.log(&"a".parse().unwrap())?, seqno, &mut payload)?;
    Ok(payload)
}

fn record(n: u64) -> Vec<u8> {
    vec![n as u8; 100_000]
}

/// A namespace of four segments with 35 records in log `a`, closed cleanly.
fn namespace() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("ns");
    let (durability, retain_bytes) = (Durability::Disk, 1 << 30);
    let options = CreateOptions { segment_bytes: SEGMENT, retain_bytes, durability, ..Default::default() };
    let journal = Journal::create(&dir, &options).unwrap();
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 1000)).unwrap().value;
    (1..=35).for_each(|n| assert_eq!(append(&journal, &log, &record(n)), n));
    drop((journal, log));
    (parent, dir)
}

fn segment(dir: &Path, n: u64) -> PathBuf {
    dir.join(format!("segments/{n:010}"))
}

fn code(result: Result<Journal>) -> Code {
    result.map(drop).expect_err("it must be refused").code()
}

/// Not a test by itself: opens the namespace, says so, and reads until the file is cut under it.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let journal = open(Path::new(&dir)).unwrap();
    (1..=35).for_each(|n| assert_eq!(get(&journal, n).unwrap(), record(n)));
    fs::write(Path::new(&dir).with_extension("ready"), "").unwrap();
    loop {
        for n in 1..=35 {
            get(&journal, n).unwrap();
        }
    }
}

#[test]
fn a_segment_cut_while_mapped_ends_the_process_with_a_code_and_the_rest_is_kept() {
    let (_parent, dir) = namespace();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, &dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !dir.with_extension("ready").exists() {
        std::thread::yield_now();
    }
    fs::OpenOptions::new().write(true).open(segment(&dir, 1)).unwrap().set_len(SEGMENT / 2).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{message}");
    assert!(message.contains("error[MR2011]"), "{message}");
    verify_damage(&dir, SEGMENT + SEGMENT / 2, 2 * SEGMENT);
}

/// The namespace is refused, as often as it is tried. A view shows that exactly the records that touch a range are lost,
/// with a code, and reports the range; what was salvaged goes on.
fn verify_damage(dir: &Path, from: u64, to: u64) {
    for _ in 0..2 {
        let error = open(dir).map(drop).expect_err("damage to what was durable");
        assert_eq!(error.code(), Code::JournalDamaged, "{error}");
    }
    let journal = Journal::view(dir).unwrap();
    let damaged = &journal.recovery().damaged;
    assert!(!damaged.is_empty(), "nothing is reported");
    let reported = |at: u64| damaged.iter().any(|(start, end)| start.get() < at && at < end.get());
    assert!(reported(from + 100_001) || reported(from + 1), "{damaged:?} does not cover {from:#x}..{to:#x}");
    let mut lost = 0;
    for n in 1..=35 {
        match get(&journal, n) {
            Ok(payload) => assert_eq!(payload, record(n), "record {n} changed"),
            Err(error) => {
                assert_eq!(error.code(), Code::EntryDamaged, "{error}");
                lost += 1;
            }
        }
    }
    let most = (to - from) / 100_064 + 2;
    assert!((1..=most).contains(&lost), "{lost} records are lost, not 1 to {most}");
    let saved = dir.with_extension("saved");
    let salvaged = journal.salvage(&saved, &mut |_, _| {}, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(salvaged.records, 35 - lost);
    let journal = open(&saved).unwrap();
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    assert_eq!(append(&journal, &log, b"goes on"), 36);
    assert_eq!(get(&journal, 36).unwrap(), b"goes on");
}

#[test]
fn a_segment_cut_while_closed_loses_only_what_was_cut() {
    for n in 0..3 {
        let (_parent, dir) = namespace();
        fs::OpenOptions::new().write(true).open(segment(&dir, n)).unwrap().set_len(SEGMENT / 2).unwrap();
        verify_damage(&dir, n * SEGMENT + SEGMENT / 2, (n + 1) * SEGMENT);
    }
}

#[test]
fn a_missing_segment_is_reported_and_readable_again_when_its_file_is_back() {
    for n in 0..4 {
        let (_parent, dir) = namespace();
        let (file, aside) = (segment(&dir, n), dir.join("aside"));
        fs::rename(&file, &aside).unwrap();
        let error = open(&dir).map(drop).expect_err("a segment is missing");
        assert_eq!(error.code(), Code::NamespaceIncomplete);
        assert!(error.detail().contains(&format!("{n:010}")), "{error}");
        fs::rename(&aside, &file).unwrap();
        let journal = open(&dir).unwrap();
        (1..=35).for_each(|n| assert_eq!(get(&journal, n).unwrap(), record(n)));
    }
}

#[test]
fn a_flipped_bit_in_a_segment_is_reported_and_does_not_spread() {
    for (round, at) in [0u64, 20, 30, 64, 65, 70, 76, 77, 90, 130, 100_000, 300_000, 700_001].into_iter().enumerate() {
        let (_parent, dir) = namespace();
        let n = 1 + round as u64 % 2;
        let file = fs::OpenOptions::new().read(true).write(true).open(segment(&dir, n)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << (round % 8)], at).unwrap();
        // Once as it lies, once through a recovery.
        for clean in [true, false] {
            if !clean {
                fs::OpenOptions::new()
                    .write(true)
                    .open(dir.join("control"))
                    .unwrap()
                    .write_all_at(&[0; 8], 24)
                    .unwrap();
            }
            let journal = match open(&dir) {
                Err(error) if !clean => {
                    assert_eq!(error.code(), Code::JournalDamaged, "byte {at}: {error}");
                    Journal::view(&dir).unwrap()
                }
                opened => opened.unwrap(),
            };
            let lost: Vec<u64> =
                (1..=35).filter(|n| get(&journal, *n).map_or(true, |found| found != record(*n))).collect();
            assert!(lost.len() <= 1, "byte {at}: records {lost:?} are gone");
            lost.iter().for_each(|n| assert_eq!(get(&journal, *n).unwrap_err().code(), Code::EntryDamaged));
            let report = journal.check(&mut |_, _| {}).unwrap();
            assert!(at < 64 || report.fault_count > 0, "byte {at}: the check found nothing");
            if !lost.is_empty() {
                let near = report.faults.iter().any(|fault| fault.detail().contains("position"));
                assert!(near, "{:?}", report.faults);
            }
        }
    }
}

#[test]
fn any_flipped_bit_in_control_page_or_index_loses_nothing_silently() {
    let (_parent, dir) = namespace();
    let control = fs::read(dir.join("control")).unwrap();
    let arena = fs::read(dir.join("index/arena")).unwrap();
    // What is not zero of the arena: its header, the log's entry, the slots.
    let used: Vec<usize> = (0..arena.len()).filter(|at| arena[at / 8 * 8..at / 8 * 8 + 8] != [0; 8]).collect();
    let words: Vec<usize> = (0..416).collect();
    for (name, content, words) in [("control", &control, words), ("index/arena", &arena, used)] {
        assert!(words.len() > 300, "{name}");
        for at in words.into_iter().step_by(3) {
            let (_copy_parent, copy) = (tempfile::tempdir().unwrap(), dir.with_extension("copy"));
            let _ = fs::remove_dir_all(&copy);
            copy_namespace(&dir, &copy);
            let mut flipped = content.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(copy.join(name), flipped).unwrap();
            match open(&copy) {
                Err(error) => assert_eq!(error.code(), Code::NamespaceIncomplete, "{name} {at}: {error}"),
                Ok(journal) => {
                    for n in 1..=35 {
                        match get(&journal, n) {
                            Ok(found) => assert_eq!(found, record(n), "{name} {at}: record {n}"),
                            Err(error) => {
                                assert!(name != "control" && error.code() == Code::EntryDamaged, "{name} {at}: {error}")
                            }
                        }
                    }
                    let log = journal.log(&"a".parse().unwrap()).unwrap();
                    assert_eq!(append(&journal, &log, b"next"), 36, "{name} {at}");
                }
            }
        }
    }
}

fn copy_namespace(from: &Path, to: &Path) {
    for folder in ["", "segments", "index"] {
        fs::create_dir_all(to.join(folder)).unwrap();
        for file in fs::read_dir(from.join(folder)).unwrap().flatten().filter(|file| file.path().is_file()) {
            fs::copy(file.path(), to.join(folder).join(file.file_name())).unwrap();
        }
    }
}

#[test]
fn control_page_and_indexes_are_rebuilt() {
    let (_parent, dir) = namespace();
    let other = namespace();
    let spoils: [&dyn Fn(); 4] = [
        &|| fs::remove_file(dir.join("control")).unwrap(),
        &|| fs::remove_file(dir.join("index/arena")).unwrap(),
        &|| assert_eq!(fs::copy(other.1.join("control"), dir.join("control")).unwrap(), 4096),
        &|| fs::write(dir.join("index/arena"), "short").unwrap(),
    ];
    for spoil in spoils {
        spoil();
        let journal = open(&dir).unwrap();
        assert!(journal.recovery().scanned && journal.recovery().damaged.is_empty());
        (1..=35).for_each(|n| assert_eq!(get(&journal, n).unwrap(), record(n)));
    }
}

#[test]
fn a_directory_that_is_not_a_namespace_is_refused_untouched() {
    let (parent, dir) = namespace();
    assert_eq!(code(open(parent.path())), Code::NotANamespace);
    assert_eq!(code(open(&dir.join("nothing"))), Code::NotANamespace);
    assert_eq!(code(open(&dir.join("manifest"))), Code::NotANamespace);
    let options = CreateOptions::default();
    assert_eq!(code(Journal::create(&dir, &options)), Code::NamespaceExists);
    fs::write(parent.path().join("file"), "mine").unwrap();
    assert!(Journal::create(&parent.path().join("file"), &options).is_err());
    assert_eq!(fs::read(parent.path().join("file")).unwrap(), b"mine");
    let manifest = fs::read_to_string(dir.join("manifest")).unwrap();
    for (text, expected) in [
        (manifest.replacen("manifest 3", "manifest 2", 1), Code::FormatVersion),
        (manifest.replacen("manifest 3", "manifest 4", 1), Code::FormatVersion),
        (manifest.replacen("\"epoch\"", "\"epohc\"", 1), Code::ManifestDamaged),
        (manifest[..manifest.len() / 2].to_owned(), Code::ManifestDamaged),
        ("hello\n".to_owned(), Code::NotANamespace),
    ] {
        fs::write(dir.join("manifest"), text).unwrap();
        assert_eq!(code(open(&dir)), expected);
    }
    fs::write(dir.join("manifest"), manifest).unwrap();
    let foreign = namespace();
    fs::copy(segment(&foreign.1, 0), segment(&dir, 0)).unwrap();
    fs::remove_file(dir.join("control")).unwrap();
    assert_eq!(code(open(&dir)), Code::NamespaceIncomplete);
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let (parent, dir) = namespace();
    for name in ["lock", "control", "segments/0000000001"] {
        let (file, aside) = (dir.join(name), parent.path().join("aside"));
        fs::rename(&file, &aside).unwrap();
        symlink(&aside, &file).unwrap();
        assert!(open(&dir).and_then(|journal| get(&journal, 12)).is_err(), "{name} was followed");
        fs::remove_file(&file).unwrap();
        fs::rename(&aside, &file).unwrap();
        assert_eq!(get(&open(&dir).unwrap(), 12).unwrap(), record(12));
    }
}

#[test]
fn the_256th_is_refused_and_a_place_that_is_given_back_is_found() {
    let (_parent, dir) = namespace();
    let mut handles: Vec<Journal> = (0..255).map(|_| open(&dir).unwrap()).collect();
    assert_eq!(code(open(&dir)), Code::TooManyProcesses);
    handles.swap_remove(100);
    let again = open(&dir).unwrap();
    let log = again.log(&"a".parse().unwrap()).unwrap();
    assert_eq!(append(&again, &log, b"x"), 36);
    assert_eq!(get(&handles[0], 36).unwrap(), b"x");
}

#[test]
fn a_clock_set_back_an_hour_orders_events_all_the_same() {
    use millrace_journal::medium::sim::SimDisk;
    let disk = SimDisk::default();
    let options = CreateOptions { segment_bytes: SEGMENT, ..Default::default() };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 10)).unwrap().value;
    append(&journal, &log, b"before");
    disk.set_wall_us(1_700_000_000_000_000 - 3_600_000_000);
    append(&journal, &log, b"after");
    assert!(journal.clock_lead().as_secs() >= 3599, "{:?}", journal.clock_lead());
    let (mut scan, mut last) = (journal.scan(Position::default()), None);
    while let Some(entry) = scan.next().unwrap() {
        assert!(last < Some(entry.id), "out of order at {}", entry.position);
        last = Some(entry.id);
    }
    let times = [1, 2].map(|seqno| journal.get(&log, seqno, &mut Vec::new()).unwrap().hlc.wall_us());
    // Events of one microsecond are microseconds apart.
    assert!((times[0] - times[1]).abs_diff(3_600_000_000) < 1000, "each has the time that the clock showed: {times:?}");
}

#[test]
fn a_full_disk_is_an_error_everywhere_and_over_when_there_is_room() {
    use millrace_journal::medium::sim::SimDisk;
    let options = CreateOptions { segment_bytes: SEGMENT, retain_bytes: 1 << 30, ..Default::default() };
    // At creation: after every possible number of pages, until it works.
    let disk = SimDisk::default();
    let mut refused = 0;
    let journal = loop {
        disk.set_room(Some(refused * 4096));
        match Journal::create_on(disk.process(), Path::new("sim"), &options) {
            Ok(journal) => break journal,
            Err(error) if error.code() == Code::NamespaceExists => {
                disk.set_room(None);
                break Journal::open_on(disk.process(), Path::new("sim"), &OpenOptions { background: false }).unwrap();
            }
            Err(error) => assert_eq!(error.code(), Code::DiskFull, "{error}"),
        }
        refused += 1;
        assert!(refused < 10_000, "it never works");
        if refused > 300 {
            disk.set_room(None);
        }
    };
    disk.set_room(None);
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 1000)).unwrap().value;
    // While running: appends until it is full, then definitions, then again with a little room each time.
    let mut kept = 0;
    for room in [0u64, 4096, 100_000, 1 << 20, 3 << 20] {
        disk.set_room(Some(room));
        let error = loop {
            match journal.commit(|batch| batch.append(&log, &record(kept + 1), EventId::NONE, 0)) {
                Ok(committed) => {
                    kept += 1;
                    assert_eq!(committed.value.seqno, kept);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::DiskFull, "{error}");
        // A definition is short, and its log takes storage for the records that it has: some of them still find room.
        let define = |n| journal.commit(|batch| batch.create_log(&format!("x/{room}/{n}").parse().unwrap(), 100_000));
        let refused = (0..20_000).find_map(|n| define(n).err()).expect("it is full at last");
        assert_eq!(refused.code(), Code::DiskFull);
        journal.sync(journal.tail()).unwrap();
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    }
    disk.set_room(None);
    assert_eq!(append(&journal, &log, b"room again"), kept + 1);
    let mut payload = Vec::new();
    (1..=kept).for_each(|n| {
        journal.get(&log, n, &mut payload).unwrap();
        assert_eq!(payload, record(n));
    });
}
