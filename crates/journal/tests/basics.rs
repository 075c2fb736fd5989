//! What every user of the journal relies on, through its public face and on real files.

use millrace_journal::{
    Attempt, CreateOptions, Durability, End, Journal, Kind, Log, OpenOptions, Origin, Position, Reads, What,
};
use millrace_wire::{Code, EventId, LogName, Result};
use std::{path::Path, time::Duration};

fn options() -> CreateOptions {
    CreateOptions {
        segment_bytes: 1 << 20,
        retain_bytes: 2 << 20,
        durability: Durability::Memory,
        ..Default::default()
    }
}

fn create(dir: &Path) -> Journal {
    Journal::create(dir, &options()).unwrap()
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, &OpenOptions { background: false }).unwrap()
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

#[test]
fn records_come_back_and_history_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let log = log(&journal, "raw/a", 10);
    assert_eq!((log.earliest(), log.latest()), (0, 0));
    for n in 1..=25u64 {
        assert_eq!(append(&journal, &log, format!("record {n}").as_bytes()).unwrap(), n);
    }
    assert_eq!((log.earliest(), log.latest()), (16, 25));
    for n in 16..=25 {
        assert_eq!(get(&journal, &log, n).unwrap(), format!("record {n}").as_bytes());
    }
    assert_eq!(get(&journal, &log, 0).unwrap_err().code(), Code::SeqnoInvalid);
    assert_eq!(get(&journal, &log, 15).unwrap_err().code(), Code::BelowHistory);
    assert_eq!(get(&journal, &log, 26).unwrap_err().code(), Code::AboveTail);
    assert_eq!(get(&journal, &log, u64::MAX).unwrap_err().code(), Code::AboveTail);
}

#[test]
fn a_clean_end_keeps_everything_and_the_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let epoch = journal.epoch();
    let a = log(&journal, "a", 100);
    for n in 0..50u32 {
        append(&journal, &a, &n.to_le_bytes()).unwrap();
    }
    drop((journal, a));
    let journal = open(dir.path());
    assert_eq!(journal.epoch(), epoch);
    assert!(!journal.recovery().scanned);
    let a = journal.log(&"a".parse().unwrap()).unwrap();
    assert_eq!(get(&journal, &a, 50).unwrap(), 49u32.to_le_bytes());
}

#[test]
fn without_control_page_and_indexes_everything_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let epoch = journal.epoch();
    let a = log(&journal, "a", 30);
    let f = journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}")).unwrap().value;
    for n in 0..5000u32 {
        journal
            .commit(|batch| {
                let record = batch.append(&a, &[7; 700], EventId::NONE, 0)?;
                let run = batch.trigger(f.id(), record.id, &a, record.seqno, Origin::Bound)?;
                if n % 2 == 0 { batch.done(f.id(), run, &End::default()).map(drop) } else { Ok(()) }
            })
            .unwrap();
    }
    drop((journal, a, f));
    std::fs::remove_file(dir.path().join("control")).unwrap();
    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    std::fs::create_dir(dir.path().join("index")).unwrap();
    let journal = open(dir.path());
    assert_eq!(journal.epoch(), epoch + 1);
    assert!(journal.recovery().scanned && journal.recovery().damaged.is_empty());
    let catalog = journal.catalog().unwrap();
    let (a, f) = (catalog.log("a").unwrap(), catalog.function("f").unwrap());
    assert_eq!((a.earliest(), a.latest(), f.triggered(), f.done()), (4971, 5000, 5000, 2500));
    assert_eq!(get(&journal, a, 4971).unwrap(), [7; 700]);
    assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
}

#[test]
fn a_failed_or_panicking_batch_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 10);
    let tail = journal.tail();
    for size in [10, 200_000] {
        let failed = journal.commit(|batch| {
            for _ in 0..2 {
                batch.append(&a, &vec![1; size], EventId::NONE, 0)?;
            }
            Err::<(), _>(Code::Busy.error("no"))
        });
        assert_eq!(failed.unwrap_err().code(), Code::Busy);
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        journal.commit(|batch| {
            batch.append(&a, b"lost", EventId::NONE, 0)?;
            panic!("on purpose");
            #[expect(unreachable_code, reason = "gives the closure its type")]
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((journal.tail(), a.latest()), (tail, 0));
    assert_eq!(append(&journal, &a, b"kept").unwrap(), 1);
    assert_eq!(get(&journal, &a, 1).unwrap(), b"kept");
}

#[test]
fn batches_move_to_the_next_segment_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 1000);
    let record = vec![3u8; 100_000];
    for _ in 0..20 {
        journal
            .commit(|batch| {
                for part in 0..4 {
                    batch.append(&a, &record[..100_000 - part], EventId::NONE, part as u16)?;
                }
                Ok(())
            })
            .unwrap();
    }
    for seqno in 1..=80 {
        assert_eq!(get(&journal, &a, seqno).unwrap().len() as u64, 100_000 - (seqno - 1) % 4);
    }
    let mut scan = journal.scan(Position::default());
    let (mut open_batch, mut appends) = (0, 0);
    while let Some(entry) = scan.next().unwrap() {
        open_batch = if entry.last { 0 } else { open_batch + 1 };
        appends += u64::from(entry.kind == Kind::Append);
    }
    assert_eq!((open_batch, appends), (0, 80));
    let too_large = journal.commit(|batch| {
        for _ in 0..6 {
            batch.append(&a, &record, EventId::NONE, 0)?;
        }
        Ok(())
    });
    assert_eq!(too_large.unwrap_err().code(), Code::BatchTooLarge);
    let too_long = append(&journal, &a, &vec![0; (1 << 18) + 1]);
    assert_eq!(too_long.unwrap_err().code(), Code::RecordTooLong);
    drop((journal, a, scan));
    std::fs::remove_file(dir.path().join("control")).unwrap();
    let journal = open(dir.path());
    assert!(journal.recovery().damaged.is_empty(), "{:?}", journal.recovery());
    assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    assert_eq!(journal.log(&"a".parse().unwrap()).unwrap().latest(), 80);
}

#[test]
fn definitions_are_seen_by_other_handles_and_attributes_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (create(dir.path()), open(dir.path()));
    let name: LogName = "a".parse().unwrap();
    assert_eq!(two.log(&name).unwrap_err().code(), Code::LogNotFound);
    let a = log(&one, "a", 10);
    let b = two.log(&name).unwrap();
    append(&one, &a, b"x").unwrap();
    append(&two, &b, b"y").unwrap();
    assert_eq!((get(&two, &b, 1).unwrap(), get(&one, &a, 2).unwrap()), (b"x".to_vec(), b"y".to_vec()));
    let other = two.commit(|batch| batch.create_log(&name, 11)).unwrap_err();
    assert_eq!(other.code(), Code::LogExists);
    assert_eq!(two.commit(|batch| batch.create_log(&name, 10)).unwrap().value.id(), a.id());
    one.commit(|batch| batch.remove_log(&name)).unwrap();
    assert_eq!(append(&two, &b, b"z").unwrap_err().code(), Code::LogNotFound);
    let again = log(&two, "a", 10);
    assert_ne!(again.id(), a.id());
    assert_eq!(again.latest(), 0);
}

#[test]
fn definitions_in_a_batch_that_moves_are_all_found_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let other = open(dir.path());
    let names = ["f", "g", "h"].map(|name| name.parse().unwrap());
    // Long attributes: in the end the room left in a segment is enough for one or two definitions of a batch, not all.
    for n in 0..300usize {
        let attributes = format!("{n:0width$}", width = 4000 + n * 13);
        journal
            .commit(|batch| names.iter().try_for_each(|name| batch.define_function(name, &attributes).map(drop)))
            .unwrap();
        let catalog = other.catalog().unwrap();
        for name in &names {
            assert_eq!(catalog.function(name).map(|function| function.attributes()), Some(&*attributes), "{name} {n}");
        }
    }
    assert!(journal.tail().get() > 4 << 20);
}

#[test]
fn retention_carries_the_live_and_drops_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let slow = log(&journal, "slow", 5);
    let fast = log(&journal, "fast", 100);
    let f = journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}")).unwrap().value;
    let (kept, run) = journal
        .commit(|batch| {
            let record = batch.append(&slow, b"old but kept", EventId::NONE, 3)?;
            Ok((record.id, batch.trigger(f.id(), record.id, &slow, record.seqno, Origin::Bound)?))
        })
        .unwrap()
        .value;
    let snapshot = journal.tail();
    for round in 0..10u8 {
        for _ in 0..1000 {
            append(&journal, &fast, &[round; 1000]).unwrap();
        }
        journal.maintain(&|_, pending| pending == run.id).unwrap();
    }
    let segments = std::fs::read_dir(dir.path().join("segments")).unwrap().flatten();
    let segments = segments.filter(|file| !file.file_name().to_string_lossy().starts_with("spare")).count();
    // Those that are kept, and two ahead of the tail.
    assert!(segments <= 4 + 2, "{segments} segments are left");
    assert!(journal.first() > Position::default());
    let mut payload = Vec::new();
    for journal in [&journal, &open(dir.path())] {
        let slow = journal.log(&"slow".parse().unwrap()).unwrap();
        let meta = journal.get(&slow, 1, &mut payload).unwrap();
        assert_eq!((meta.id, &payload[..]), (kept, &b"old but kept"[..]));
        assert_eq!(journal.latest_before(&slow, snapshot).unwrap(), 1);
        assert_eq!(journal.get_before(&slow, 1, snapshot, &mut payload).unwrap().id, kept);
    }
    drop(journal);
    std::fs::remove_file(dir.path().join("control")).unwrap();
    let journal = open(dir.path());
    let slow = journal.log(&"slow".parse().unwrap()).unwrap();
    assert_eq!(journal.get(&slow, 1, &mut payload).unwrap().id, kept);
    assert_eq!(journal.log(&"fast".parse().unwrap()).unwrap().latest(), 10_000);
    let mut scan = journal.scan(Position::default());
    let mut found = 0;
    while let Some(entry) = scan.next().unwrap() {
        if entry.kind == Kind::Trigger {
            assert_eq!((entry.id, entry.cause, entry.trigger_record()), (run.id, kept, Some((slow.id(), 1))));
            found += 1;
        }
    }
    assert_eq!(found, 1);
    assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
}

#[test]
fn a_log_at_rest_keeps_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let (rest, fast) = (log(&journal, "rest", 100_000), log(&journal, "fast", 100));
    // Live, and more than the journal keeps otherwise.
    let count = 6_000u32;
    for n in 0..count {
        append(&journal, &rest, &[&n.to_le_bytes()[..], &[7; 996]].concat()).unwrap();
    }
    let mut longest = 0;
    for round in 0..60u8 {
        for _ in 0..1000 {
            append(&journal, &fast, &[round; 1000]).unwrap();
        }
        journal.maintain(&|_, _| false).unwrap();
        longest = longest.max(journal.tail().get() - journal.first().get());
    }
    let live = u64::from(count) * 1100;
    // What is to be retained, four times what is live, and an eighth more until it is looked at again.
    assert!(longest < (4 * live + (4 << 20)) * 9 / 8, "{longest} bytes for {live} that are live");
    assert!(journal.tail().get() > 60 << 20, "without retention it would be much more");
    for journal in [journal, open(dir.path())] {
        let rest = journal.log(&"rest".parse().unwrap()).unwrap();
        for n in 0..count {
            assert_eq!(get(&journal, &rest, u64::from(n) + 1).unwrap()[..4], n.to_le_bytes());
        }
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    }
}

#[test]
fn trimmed_records_are_gone_for_good_and_hold_no_segment() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let (queue, empty) = (log(&journal, "queue", 100_000), log(&journal, "empty", 5));
    let trim = |journal: &Journal, log: &Log, before| journal.commit(|batch| batch.trim(log, before)).map(drop);
    append(&journal, &queue, b"first").unwrap();
    assert_eq!(trim(&journal, &queue, 3).unwrap_err().code(), Code::AboveTail);
    trim(&journal, &empty, 1).unwrap();
    assert_eq!((empty.earliest(), empty.latest()), (0, 0));
    let mut taken = 0;
    for round in 0..10u8 {
        for _ in 0..1000 {
            append(&journal, &queue, &[round; 1000]).unwrap();
        }
        taken = queue.latest() - 10;
        trim(&journal, &queue, taken).unwrap();
        let tail = journal.tail();
        trim(&journal, &queue, taken - 1).unwrap();
        assert_eq!(journal.tail(), tail, "what is trimmed already is not noted again");
        journal.maintain(&|_, _| false).unwrap();
    }
    assert!(journal.first() > Position::default(), "trimmed records hold their segments");
    let verify = |journal: &Journal, earliest| {
        let queue = journal.log(&"queue".parse().unwrap()).unwrap();
        assert_eq!((queue.earliest(), queue.latest()), (earliest, 10_001));
        let error = get(journal, &queue, earliest - 1).unwrap_err();
        assert_eq!(error.code(), Code::BelowHistory, "{error}");
        assert_eq!(journal.latest_before(&queue, journal.tail()).unwrap(), 10_001);
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    };
    verify(&journal, taken);
    assert_eq!(get(&journal, &queue, taken).unwrap(), [9; 1000]);
    trim(&journal, &queue, 10_002).unwrap();
    verify(&open(dir.path()), 10_002);
    // The entry that says so goes with its segment; the manifest goes on saying it.
    let other = log(&journal, "other", 1);
    for _ in 0..10_000 {
        append(&journal, &other, &[0; 1000]).unwrap();
    }
    journal.maintain(&|_, _| false).unwrap();
    drop((journal, queue, empty, other));
    std::fs::remove_file(dir.path().join("control")).unwrap();
    let journal = open(dir.path());
    verify(&journal, 10_002);
    let queue = journal.log(&"queue".parse().unwrap()).unwrap();
    assert_eq!(append(&journal, &queue, b"next").unwrap(), 10_002);
    assert_eq!(get(&journal, &queue, 10_002).unwrap(), b"next");
}

#[test]
fn a_pending_run_keeps_its_record_when_its_log_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let (short, fast) = (log(&journal, "short", 1), log(&journal, "fast", 100));
    let f = journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}")).unwrap().value;
    let mut runs = Vec::new();
    for n in 0..3u8 {
        let staged = journal.commit(|batch| {
            let record = batch.append(&short, &[n; 10], EventId::NONE, 0)?;
            batch.trigger(f.id(), record.id, &short, record.seqno, Origin::Bound)
        });
        runs.push(staged.unwrap().value);
    }
    let pending = |_, run: EventId| run != runs[1].id;
    for _ in 0..10 {
        for _ in 0..1000 {
            append(&journal, &fast, &[9; 1000]).unwrap();
        }
        journal.maintain(&pending).unwrap();
    }
    assert!(journal.first() > Position::default());
    let (mut record, mut found) = (None, Vec::new());
    let mut scan = journal.scan(Position::default());
    while let Some(entry) = scan.next().unwrap() {
        match entry.kind {
            Kind::Append => record = Some((entry.id, entry.payload.clone())),
            Kind::Trigger => {
                let (id, payload) = record.clone().expect("a trigger follows its record");
                assert_eq!(id, entry.cause);
                found.push((entry.id, payload));
            }
            _ => {}
        }
    }
    assert_eq!(found, [(runs[0].id, vec![0; 10]), (runs[2].id, vec![2; 10])]);
    assert_eq!((short.earliest(), get(&journal, &short, 3).unwrap()), (3, vec![2; 10]));
}

#[test]
fn a_flipped_bit_in_a_segment_header_costs_nothing_and_is_found() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 10);
    append(&journal, &a, b"x").unwrap();
    assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    let file = std::fs::File::options().write(true).open(dir.path().join("segments/0000000000")).unwrap();
    file.write_all_at(&[0xff], 20).unwrap();
    let report = journal.check(&mut |_, _| {}).unwrap();
    assert_eq!((report.fault_count, report.faults[0].code()), (1, Code::EntryDamaged));
    assert_eq!(get(&journal, &a, 1).unwrap(), b"x");
}

#[test]
fn a_payload_that_imitates_an_entry_is_never_taken_for_one() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 10);
    let mut payload = Vec::new();
    append(&journal, &a, b"the original").unwrap();
    let original = journal.get(&a, 1, &mut payload).unwrap().position.get();
    let file = std::fs::File::options().read(true).write(true).open(dir.path().join("segments/0000000000")).unwrap();
    let mut imitation = [0; 64 + 12];
    file.read_exact_at(&mut imitation, original).unwrap();
    append(&journal, &a, &imitation).unwrap();
    append(&journal, &a, b"behind it").unwrap();
    // With its own header damaged, a scan looks for the next entry within the record's bytes.
    let outer = journal.get(&a, 2, &mut payload).unwrap().position.get();
    file.write_all_at(&[0xff; 4], outer).unwrap();
    let (mut scan, mut found, mut faults) = (journal.scan(Position::default()), Vec::new(), 0);
    loop {
        match scan.next() {
            Ok(Some(entry)) if entry.kind == Kind::Append => found.push(entry.payload.clone()),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => faults += 1,
        }
    }
    assert_eq!((found, faults), (vec![b"the original".to_vec(), b"behind it".to_vec()], 1));
}

#[test]
fn waiters_wake_and_flushes_reach_the_tail() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let a = log(&journal, "a", 10);
    let seen = journal.tail();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| journal.wait(seen, Duration::from_secs(120)));
        std::thread::sleep(Duration::from_millis(20));
        append(&journal, &a, b"x").unwrap();
        assert!(waiter.join().unwrap() > seen);
    });
    let b = log(&journal, "b", 10);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| open(dir.path()).wait_log(&b, 0, Duration::from_secs(120)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        append(&journal, &a, b"wakes nobody").unwrap();
        append(&journal, &b, b"x").unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
    });
    assert_eq!(journal.wait_log(&b, 1, Duration::from_millis(5)).unwrap(), 1);
    journal.sync(journal.tail()).unwrap();
    assert_eq!(journal.durable(), journal.tail());
    assert_eq!(journal.wait(journal.tail(), Duration::from_millis(5)), journal.tail());
}

/// Waits for commits of other processes while this one makes some, and then another; the tail when it woke up, and where the last
/// commit of this one and that of the other ended.
fn sleeps_through_its_own(journal: &Journal, other: &Journal, log: &Log) -> [Position; 3] {
    let (seen, wakes) = (journal.tail(), journal.wakes());
    std::thread::scope(|scope| {
        let (tell, reported) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            // Anyone who has told this goes on to sleep in one place only.
            tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            journal.wait_foreign(seen, wakes, Duration::from_secs(120))
        });
        let status = Path::new("/proc").join(reported.recv().unwrap()).join("status");
        while !std::fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tS"))
            && !waiter.is_finished()
        {
            std::thread::yield_now();
        }
        let mut own = seen;
        for _ in 0..20 {
            append(journal, log, b"own").unwrap();
            own = journal.tail();
            std::thread::sleep(Duration::from_millis(1));
        }
        let theirs = other.log(log.name()).unwrap();
        append(other, &theirs, b"another's").unwrap();
        let last = other.tail();
        [waiter.join().unwrap(), own, last]
    })
}

#[test]
fn who_is_told_of_its_own_commits_wakes_up_for_those_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, other) = (create(dir.path()), open(dir.path()));
    let a = log(&journal, "a", 10);
    let reported = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let of_hook = reported.clone();
    let hook = move || {
        of_hook.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    assert!(journal.on_commit(Box::new(hook)), "the first one is told");
    assert!(!journal.on_commit(Box::new(|| {})), "another one is not");
    // The bound of a sleep may pass in between, on a machine that stands still; not each time.
    let slept = (0..20).any(|round| {
        let [woke, own, last] = sleeps_through_its_own(&journal, &other, &a);
        assert!(own < last && woke <= last);
        assert!(reported.load(std::sync::atomic::Ordering::Relaxed) >= 20 * (round + 1), "each of its own is told");
        woke == last
    });
    assert!(slept, "its own commits wake it up");
    // And there is no need to sleep once somebody has called.
    let (seen, wakes) = (journal.tail(), journal.wakes());
    journal.wake();
    assert_eq!(journal.wait_work(seen, wakes, Duration::from_secs(120)), seen);
    journal.wait_change(Some(&a), a.latest(), wakes, Duration::from_secs(120)).unwrap();
    let version = journal.catalog_version();
    journal.wait_change(None, version, wakes, Duration::from_secs(120)).unwrap();
    // What somebody defines ends the wait for definitions, whoever does.
    let wakes = journal.wakes();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| journal.wait_change(None, version, wakes, Duration::from_secs(120)));
        log(&other, "b", 10);
        waiter.join().unwrap().unwrap();
    });
    assert_ne!(journal.catalog_version(), version);
}

#[test]
fn a_run_that_ends_while_it_is_carried_is_not_carried() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let (slow, fast) = (log(&journal, "slow", 10), log(&journal, "fast", 100));
    let f = journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}")).unwrap().value;
    let staged = journal.commit(|batch| {
        let record = batch.append(&slow, b"record", EventId::NONE, 0)?;
        let run = batch.trigger(f.id(), record.id, &slow, record.seqno, Origin::Bound)?;
        batch.fired(f.id(), run, &Attempt { attempt: 1, ..Attempt::default() })?;
        batch.call(f.id(), run.id, 0, 0, b"told")?;
        Ok(run)
    });
    let run = staged.unwrap().value;
    for _ in 0..10_000 {
        append(&journal, &fast, &[9; 1000]).unwrap();
    }
    // It is pending when it is asked for, and has ended before it can be copied.
    let ended = std::cell::Cell::new(false);
    let pending = |_, _| {
        if !ended.replace(true) {
            journal.commit(|batch| batch.done(f.id(), run, &End::default())).unwrap();
        }
        true
    };
    assert!(journal.maintain(&pending).unwrap().dropped > 0 && ended.get());
    let mut scan = journal.scan(Position::default());
    while let Some(entry) = scan.next().unwrap() {
        assert!(entry.run() != run.id || entry.kind == Kind::Done, "{:?} of a run that has ended", entry.kind);
    }
    assert_eq!(get(&journal, &slow, 1).unwrap(), b"record", "its log still has the record");
}

#[test]
fn a_pending_run_keeps_its_attempts_and_calls() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let (slow, fast) = (log(&journal, "slow", 10), log(&journal, "fast", 100));
    let f = journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}")).unwrap().value;
    let begun = Attempt { attempt: 2, revision: 1, place: 3, ..Attempt::default() };
    let attempts = [begun, Attempt { attempt: 1, interrupted: 3, waits: true, ..Attempt::default() }];
    let staged = journal.commit(|batch| {
        let record = batch.append(&slow, b"record", EventId::NONE, 0)?;
        let run = batch.trigger(f.id(), record.id, &slow, record.seqno, Origin::Bound)?;
        batch.fired(f.id(), run, &attempts[0])?;
        batch.call(f.id(), run.id, 0, 7, b"told")?;
        batch.fired(f.id(), run, &attempts[1])?;
        let mut reads = Reads::default();
        reads.log(slow.id(), 1, What::Record);
        batch.reads(f.id(), run, reads)?;
        Ok(run)
    });
    let run = staged.unwrap().value;
    for _ in 0..10_000 {
        append(&journal, &fast, &[9; 1000]).unwrap();
    }
    assert!(journal.maintain(&|function, asked| (function, asked) == (f.id(), run.id)).unwrap().dropped > 0);
    let (mut scan, mut kept) = (journal.scan(Position::default()), Vec::new());
    while let Some(entry) = scan.next().unwrap() {
        if entry.run() == run.id {
            kept.push((entry.kind, entry.seqno, entry.attempt()));
        }
    }
    let [begun, over] = attempts.map(|attempt| (Kind::Fired, run.number, Some(attempt)));
    assert_eq!(kept, [(Kind::Trigger, run.number, None), begun, (Kind::Call, 7, None), over]);
}

#[test]
fn what_was_newest_at_a_snapshot_is_known_after_all_records_were_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let trimmed = log(&journal, "trimmed", 100);
    append(&journal, &trimmed, b"1").unwrap();
    append(&journal, &trimmed, b"2").unwrap();
    let snapshot = journal.tail();
    append(&journal, &trimmed, b"3").unwrap();
    append(&journal, &trimmed, b"4").unwrap();
    journal.commit(|batch| batch.trim(&trimmed, 5)).unwrap();
    assert_eq!(journal.latest_before(&trimmed, snapshot).unwrap(), 2);
    assert_eq!(journal.latest_before(&trimmed, journal.tail()).unwrap(), 4, "and none was appended since");
}

#[test]
fn what_was_newest_at_a_snapshot_is_known_after_it_left_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let journal = create(dir.path());
    let (short, fast) = (log(&journal, "short", 1), log(&journal, "fast", 100));
    let before = journal.tail();
    for n in 0..3 {
        append(&journal, &short, &[n]).unwrap();
    }
    let snapshot = journal.tail();
    for n in 3..=6 {
        assert_eq!(journal.latest_before(&short, snapshot).unwrap(), 3);
        append(&journal, &fast, b"between").unwrap();
        append(&journal, &short, &[n]).unwrap();
    }
    assert_eq!(journal.latest_before(&short, before).unwrap(), 0, "then it was empty");
    for round in 0..10_000u32 {
        append(&journal, &fast, &[round as u8; 1000]).unwrap();
    }
    append(&journal, &short, b"newest").unwrap();
    journal.maintain(&|_, _| false).unwrap();
    assert!(journal.first() > snapshot);
    assert_eq!(journal.latest_before(&short, snapshot).unwrap_err().code(), Code::BelowHistory, "and never 0");
}
