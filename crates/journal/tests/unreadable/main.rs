//! A page of a segment that the disk cannot read while the namespace is in use: an error of the reads that need it, and of
//! nothing else. The pages fault for real, with SIGBUS; that the disk is the reason is simulated.

#[path = "../model/mod.rs"]
mod model;

use millrace_journal::{Durability, Journal, Log, Position, medium::sim::SimDisk};
use millrace_wire::{Code, EventId, Result};
use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const PAGE: u64 = 4096;
/// For the child that a fault ends.
const CHILD: &str = "MILLRACE_TEST_WRITE_FAULT";

fn filled(durability: Durability, records: u8, bytes: usize) -> (SimDisk, Journal, Log) {
    let (disk, _medium, journal, _) = model::create(durability);
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 1000)).unwrap().value;
    for n in 1..=records {
        append(&journal, &log, &vec![n; bytes]).unwrap();
    }
    journal.sync(journal.tail()).unwrap();
    (disk, journal, log)
}

fn append(journal: &Journal, log: &Log, payload: &[u8]) -> Result<u64> {
    journal.commit(|batch| batch.append(log, payload, EventId::NONE, 0)).map(|committed| committed.value.seqno)
}

fn get(journal: &Journal, log: &Log, seqno: u64) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    journal.get(log, seqno, &mut payload).map(|_| payload)
}

/// Lets the page fault that has this position.
fn fault(disk: &SimDisk, position: Position) {
    let at = position.get() % (1 << 20) / PAGE * PAGE;
    disk.set_faulting(&format!("segments/{:010}", position.get() >> 20), at..at + PAGE);
}

fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happens() {
        assert!(started.elapsed() < Duration::from_secs(120), "{what} never happens");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a scan of everything finds: entries and errors.
fn scanned(journal: &Journal) -> (usize, Vec<Code>) {
    let (mut scan, mut entries, mut errors) = (journal.scan(Position::default()), 0, Vec::new());
    loop {
        match scan.next() {
            Ok(Some(_)) => entries += 1,
            Ok(None) => return (entries, errors),
            Err(error) => errors.push(error.code()),
        }
    }
}

#[test]
fn an_unreadable_page_fails_only_reads_of_its_record_until_it_is_readable_again() {
    for durability in [Durability::Disk, Durability::Memory] {
        let (disk, journal, a) = filled(durability, 40, 50_000);
        let (entries, _) = scanned(&journal);
        fault(&disk, Position::from_bytes(journal.position(&a, 7).get() + 20_000));
        for _ in 0..2 {
            let error = get(&journal, &a, 7).unwrap_err();
            assert_eq!(error.code(), Code::EntryDamaged, "{error}");
            assert!(error.detail().contains("the disk cannot read"), "{error}");
            assert!((1..=40).filter(|n| *n != 7).all(|n| get(&journal, &a, n).unwrap() == [n as u8; 50_000]));
        }
        assert_eq!(scanned(&journal), (entries - 1, vec![Code::EntryDamaged]));
        // Others neither see it nor wait for it, and appends go on.
        assert_eq!(append(&journal, &a, b"more").unwrap(), 41);
        assert!(journal.check(&mut |_, _| {}).unwrap().fault_count > 0);
        let other = model::open(&disk.process()).unwrap();
        assert_eq!(get(&other, &other.log(a.name()).unwrap(), 41).unwrap(), b"more");
    }
}

#[test]
fn a_page_that_can_be_read_again_is_read_again() {
    let (disk, journal, a) = filled(Durability::Disk, 10, 50_000);
    fault(&disk, journal.position(&a, 7));
    assert_eq!(get(&journal, &a, 7).unwrap_err().code(), Code::EntryDamaged);
    disk.set_readable();
    eventually("reading it again", || get(&journal, &a, 7).is_ok_and(|found| found == [7; 50_000]));
    assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
}

#[test]
fn the_unreadable_end_of_a_segment_is_not_taken_for_free_space() {
    let (disk, journal, a) = filled(Durability::Disk, 4, 200_000);
    // The last record of the segment begins with a page, so that nothing of it can be seen.
    let padding = (PAGE - (journal.tail().get() + 64) % PAGE) as usize;
    append(&journal, &a, &vec![5; padding]).unwrap();
    append(&journal, &a, &[6; 150_000]).unwrap();
    append(&journal, &a, &[7; 150_000]).unwrap();
    let (from, to) = (journal.position(&a, 6).get(), journal.position(&a, 7).get());
    assert!(from.is_multiple_of(PAGE) && to >> 20 == 1, "{from:#x} {to:#x}");
    let (entries, _) = scanned(&journal);
    for page in (from..1 << 20).step_by(PAGE as usize) {
        fault(&disk, Position::from_bytes(page));
    }
    let (found, errors) = scanned(&journal);
    assert_eq!((found, errors), (entries - 1, vec![Code::EntryDamaged]));
}

#[test]
fn nothing_is_appended_to_a_page_that_cannot_be_read() {
    for durability in [Durability::Disk, Durability::Memory] {
        let (disk, journal, a) = filled(durability, 3, 50_000);
        fault(&disk, journal.position(&a, 3)); // Its header: so much is known of the page that it shows zeros.
        fault(&disk, journal.tail());
        fault(&disk, Position::from_bytes(journal.tail().get() - 64));
        assert!(get(&journal, &a, 3).is_err());
        // The newest entry says where the journal goes on, and cannot be seen.
        assert_eq!(append(&journal, &a, b"lost?").unwrap_err().code(), Code::Io, "{durability:?}");
        assert_eq!(a.latest(), 3);
        disk.set_readable();
        eventually("an append", || append(&journal, &a, b"kept").is_ok());
        assert_eq!(get(&journal, &a, 4).unwrap(), b"kept");
        assert_eq!(get(&journal, &a, 3).unwrap(), [3; 50_000]);
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    }
}

/// Not a test by itself: writes to a page that faults.
#[test]
fn child() {
    if std::env::var(CHILD).is_ok() {
        let (disk, journal, a) = filled(Durability::Memory, 3, 50_000);
        fault(&disk, Position::from_bytes(journal.tail().get().next_multiple_of(PAGE) + PAGE));
        let appended = append(&journal, &a, &[7; 50_000]);
        panic!("it went on: {appended:?}");
    }
}

#[test]
fn a_write_to_a_page_that_faults_ends_the_process_with_a_code() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&child.stderr);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(child.status.code(), Some(74), "{message}");
        assert!(message.contains("error[MR2012]"), "{message}");
    }
    assert!(!child.status.success() && !message.contains("it went on"), "{message}");
}
