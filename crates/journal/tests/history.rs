//! A changed history of a log that is in use: which records it keeps and drops, and that every open finds the same.

use millrace_journal::{CreateOptions, Durability, Journal, Log, OpenOptions};
use millrace_wire::{Code, EventId, HISTORY_ALL, HISTORY_MAX, Result};
use std::{fs, io, path::Path};

fn create(dir: &Path) -> Journal {
    let options = CreateOptions {
        segment_bytes: 1 << 20,
        retain_bytes: 2 << 20,
        durability: Durability::Memory,
        ..Default::default()
    };
    Journal::create(dir, &options).unwrap()
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, &OpenOptions { background: false }).unwrap()
}

fn append(journal: &Journal, log: &Log, count: u64) {
    for _ in 0..count {
        let next = log.latest() + 1;
        journal.commit(|batch| batch.append(log, &payload(next), EventId::NONE, 0)).unwrap();
    }
}

fn payload(seqno: u64) -> Vec<u8> {
    format!("record {seqno} {}", "-".repeat((seqno % 97) as usize)).into_bytes()
}

fn set(journal: &Journal, log: &Log, history: u64) -> Result<bool> {
    Ok(journal.commit(|batch| batch.set_history(log, history))?.value)
}

fn log(journal: &Journal) -> Log {
    journal.catalog().unwrap().log("a").unwrap().clone()
}

/// Every record from `earliest` to `latest` can be read, and no other.
fn holds(journal: &Journal, log: &Log, (earliest, latest): (u64, u64), context: &str) {
    assert_eq!((log.earliest(), log.latest()), (earliest, latest), "{context}");
    let mut read = Vec::new();
    for seqno in earliest..=latest {
        journal.get(log, seqno, &mut read).unwrap_or_else(|error| panic!("{context}: record {seqno}: {error}"));
        assert_eq!(read, payload(seqno), "{context}");
    }
    if earliest > 1 {
        assert_eq!(journal.get(log, earliest - 1, &mut read).unwrap_err().code(), Code::BelowHistory, "{context}");
    }
}

/// A copy of the namespace while it is open, which is its state after a crash of all processes. If a segment is prepared or recycled
/// meanwhile, it gets another name; then the copy begins again.
fn crashed(dir: &Path) -> tempfile::TempDir {
    loop {
        match copied(dir) {
            Ok(copy) => return copy,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
        }
    }
}

fn copied(dir: &Path) -> io::Result<tempfile::TempDir> {
    let copy = tempfile::tempdir()?;
    for folder in ["segments", "index"] {
        fs::create_dir(copy.path().join(folder))?;
    }
    for file in fs::read_dir(dir.join("segments"))? {
        let file = file?;
        fs::copy(file.path(), copy.path().join("segments").join(file.file_name()))?;
    }
    for file in ["manifest", "lock"] {
        fs::copy(dir.join(file), copy.path().join(file))?;
    }
    Ok(copy)
}

/// The state is the same here, for another process, after a crash and after a clean end.
fn everywhere(dir: &Path, journal: Journal, bounds: (u64, u64), history: u64, context: &str) -> Journal {
    holds(&journal, &log(&journal), bounds, context);
    let other = open(dir);
    holds(&other, &log(&other), bounds, &format!("{context}, for another handle"));
    drop(other);
    let copy = crashed(dir);
    let recovered = open(copy.path());
    assert!(recovered.recovery().scanned);
    assert_eq!(log(&recovered).history(), history, "{context}, after a crash");
    holds(&recovered, &log(&recovered), bounds, &format!("{context}, after a crash"));
    drop(journal);
    let journal = open(dir);
    assert_eq!(log(&journal).history(), history, "{context}, after a clean end");
    holds(&journal, &log(&journal), bounds, &format!("{context}, after a clean end"));
    journal
}

#[test]
fn a_shorter_history_drops_records_and_a_longer_one_does_not_bring_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100)).unwrap().value;
    append(&journal, &a, 150);
    let journal = everywhere(dir.path(), journal, (51, 150), 100, "as it was made");

    assert!(set(&journal, &log(&journal), 10).unwrap());
    let journal = everywhere(dir.path(), journal, (141, 150), 10, "shorter");

    assert!(set(&journal, &log(&journal), 1000).unwrap());
    let journal = everywhere(dir.path(), journal, (141, 150), 1000, "longer: what was gone stays gone");
    append(&journal, &log(&journal), 200);
    let journal = everywhere(dir.path(), journal, (141, 350), 1000, "longer, and filled");

    assert!(set(&journal, &log(&journal), HISTORY_ALL).unwrap());
    append(&journal, &log(&journal), 1500);
    let journal = everywhere(dir.path(), journal, (141, 1850), HISTORY_ALL, "everything");

    assert!(set(&journal, &log(&journal), 1).unwrap());
    let journal = everywhere(dir.path(), journal, (1850, 1850), 1, "one");
    append(&journal, &log(&journal), 5);
    everywhere(dir.path(), journal, (1855, 1855), 1, "one, and more");
}

#[test]
fn records_that_were_appended_under_a_shorter_history_survive_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100)).unwrap().value;
    append(&journal, &a, 140);
    assert!(set(&journal, &a, 10).unwrap());
    append(&journal, &a, 10);
    assert!(set(&journal, &a, 1000).unwrap());
    append(&journal, &a, 200);
    let journal = everywhere(dir.path(), journal, (141, 350), 1000, "longer, and filled");
    // The manifest that a recovery writes has the long history and the newest record, and the journal still has the short one.
    let once = crashed(dir.path());
    let recovered = open(once.path());
    let twice = crashed(once.path());
    let again = open(twice.path());
    assert!(again.recovery().scanned);
    holds(&again, &log(&again), (141, 350), "after two crashes");
    drop((journal, recovered));
}

#[test]
fn large_logs_change_their_history_too_and_keep_it_through_retention() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 20_000)).unwrap().value;
    append(&journal, &a, 30_000);
    assert!(set(&journal, &a, 50).unwrap());
    // The segments with the definition and with the records are dropped, and the entries that are still needed are carried forward.
    let other = journal.commit(|batch| batch.create_log(&"b".parse().unwrap(), 10)).unwrap().value;
    for _ in 0..12 {
        for _ in 0..40 {
            journal.commit(|batch| batch.append(&other, &[7; 64 << 10], EventId::NONE, 0)).unwrap();
        }
        journal.maintain(&|_, _| false).unwrap();
    }
    assert!(journal.first().get() > 4 << 20, "retention dropped nothing");
    let journal = everywhere(dir.path(), journal, (29_951, 30_000), 50, "after retention");
    assert!(set(&journal, &log(&journal), 20_000).unwrap());
    append(&journal, &log(&journal), 25_000);
    everywhere(dir.path(), journal, (35_001, 55_000), 20_000, "large again");
}

#[test]
fn a_handle_that_another_process_has_sees_the_change_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (create(dir.path()), open(dir.path()));
    let a = one.commit(|batch| batch.create_log(&"a".parse().unwrap(), 10)).unwrap().value;
    append(&one, &a, 30);
    let theirs = log(&two);
    assert!(set(&one, &a, 20).unwrap());
    append(&one, &a, 5);
    holds(&two, &theirs, (21, 35), "longer");
    assert!(set(&two, &theirs, 3).unwrap());
    holds(&one, &a, (33, 35), "shorter");
    assert!(!set(&one, &a, 3).unwrap(), "it is what it was");
    let tail = one.tail();
    assert!(!set(&two, &theirs, 3).unwrap());
    assert_eq!(one.tail(), tail, "what changes nothing is not noted");
}

#[test]
fn a_history_that_no_log_may_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 10)).unwrap().value;
    for history in [0, HISTORY_MAX + 1, u64::MAX] {
        assert_eq!(set(&journal, &a, history).unwrap_err().code(), Code::HistoryInvalid);
    }
    journal.commit(|batch| batch.remove_log(&"a".parse().unwrap())).unwrap();
    assert_eq!(set(&journal, &a, 5).unwrap_err().code(), Code::LogNotFound);
}
