//! What retention keeps, what it lets go of, and that it goes on forever.

mod model;

use millrace_journal::{
    CreateOptions, Durability, Journal, Kind, Log, OpenOptions, Origin, Position, medium::sim::SimDisk,
};
use millrace_wire::{Code, EventId};
use model::sim_options;
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Names the namespace of a process that is restarted.
const CHILD: &str = "MILLRACE_RETENTION_CHILD";
const KIB: usize = 1 << 10;
const SEGMENT: u64 = 1 << 20;

fn logs(journal: &Journal) -> (Log, Log) {
    let logs = |name: &str, history| journal.commit(|batch| batch.create_log(&name.parse().unwrap(), history)).unwrap();
    (logs("keep", 100_000).value, logs("churn", 2).value)
}

fn append(journal: &Journal, log: &Log, bytes: usize) {
    journal.commit(|batch| batch.append(log, &vec![7; bytes], EventId::NONE, 0)).unwrap();
}

/// What is live in the oldest segment makes others go with it, but none that is to be kept.
#[test]
fn retention_keeps_as_many_bytes_as_configured_whatever_is_live() {
    for retain_bytes in [0, 4 << 20, 5 << 20] {
        let options = CreateOptions { retain_bytes, ..sim_options(Durability::Memory) };
        let journal = Journal::create_on(SimDisk::default().process(), Path::new("sim"), &options).unwrap();
        let (keep, churn) = logs(&journal);
        (0..9).for_each(|_| append(&journal, &keep, 100 * KIB));
        let mut dropped = 0;
        for _ in 0..400 {
            append(&journal, &churn, 50 * KIB);
            dropped += journal.maintain(&|_, _| false).unwrap().dropped;
            let kept = journal.tail().get() - journal.first().get();
            assert!(dropped == 0 || kept >= retain_bytes, "{kept} bytes of {retain_bytes} are left");
        }
        assert!(dropped > 10, "{dropped}");
    }
}

/// Copies of what is live are as old as their originals, and say nothing of the segment before them.
#[test]
fn a_segment_goes_by_age_when_all_of_it_is_old() {
    const DAY_US: u64 = 86_400_000_000;
    let disk = SimDisk::default();
    disk.set_wall_us(11_000 * DAY_US);
    let retain_age = Some(Duration::from_secs(7 * 86_400));
    let options = CreateOptions { retain_bytes: 1 << 30, retain_age, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (keep, churn) = logs(&journal);
    append(&journal, &keep, 100 * KIB);
    append(&journal, &keep, 100 * KIB);
    while journal.tail().get() < SEGMENT {
        append(&journal, &churn, 50 * KIB);
    }
    disk.set_wall_us(11_008 * DAY_US);
    // What comes now fills the segment nearly: the copies open the next one.
    while journal.tail().get() % SEGMENT < SEGMENT - 120 * KIB as u64 {
        append(&journal, &churn, 50 * KIB);
    }
    for _ in 0..2 {
        journal.maintain(&|_, _| false).unwrap();
        assert_eq!(journal.first().get(), SEGMENT, "the first one is old, the second is not");
    }
    disk.set_wall_us(11_016 * DAY_US);
    append(&journal, &churn, 50 * KIB);
    journal.maintain(&|_, _| false).unwrap();
    assert_eq!(journal.first().get(), 2 * SEGMENT, "now the second is old as well");
}

/// What is live in the oldest segment keeps the next ones only until they are old as well, whether anything is appended or not.
#[test]
fn segments_go_by_age_behind_a_log_at_rest_in_a_journal_at_rest() {
    const START_US: u64 = 1_700_000_000_000_000;
    let disk = SimDisk::default();
    let at = |seconds: u64| disk.set_wall_us(START_US + seconds * 1_000_000);
    at(0);
    let retain_age = Some(Duration::from_secs(10));
    let options = CreateOptions { retain_bytes: 1 << 30, retain_age, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (keep, churn) = logs(&journal);
    while journal.tail().get() < SEGMENT {
        append(&journal, &keep, 100 * KIB);
    }
    at(6);
    while journal.tail().get() < 5 * SEGMENT + SEGMENT / 2 {
        append(&journal, &churn, 50 * KIB);
    }
    at(12);
    let maintained = journal.maintain(&|_, _| false).unwrap();
    assert_eq!((maintained.dropped, maintained.held_by_live), (0, true), "only the first one is old");
    at(32);
    journal.maintain(&|_, _| false).unwrap();
    assert_eq!(journal.first().get(), 5 * SEGMENT);
    for seqno in 1..=keep.latest() {
        journal.get(&keep, seqno, &mut Vec::new()).unwrap();
    }
}

/// Small entries up to just below what one batch takes, and then the largest there is.
#[test]
fn any_carried_entry_fits() {
    let journal = Journal::create_on(SimDisk::default().process(), Path::new("sim"), &sim_options(Durability::Memory));
    let journal = journal.unwrap();
    let (keep, churn) = logs(&journal);
    (0..4030).for_each(|_| append(&journal, &keep, 1));
    append(&journal, &keep, 256 * KIB);
    for _ in 0..40 {
        (0..8).for_each(|_| append(&journal, &churn, 100 * KIB));
        journal.maintain(&|_, _| false).unwrap();
    }
    assert!(journal.tail().get() - journal.first().get() < 16 * SEGMENT);
    let mut payload = Vec::new();
    journal.get(&keep, 4031, &mut payload).unwrap();
    assert_eq!(payload.len(), 256 * KIB);
}

/// There are so many segments and no more: what is to be retained has to leave room for appends.
#[test]
fn more_than_there_can_be_is_not_retained() {
    let dir = tempfile::tempdir().unwrap();
    let create = |retain_bytes| {
        let durability = Durability::Memory;
        let options = CreateOptions { segment_bytes: SEGMENT, retain_bytes, durability, ..Default::default() };
        Journal::create(&dir.path().join("ns"), &options)
    };
    let refused = create(4096 << 20).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::ValueInvalid, "{refused}");
    assert!(!dir.path().join("ns").exists());
    create(4032 << 20).unwrap();
}

/// Anyone who has the namespace open beside the process that maintains it lets go of what that one removed.
#[test]
fn a_guest_holds_no_files_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let durability = Durability::Memory;
    let options = CreateOptions { segment_bytes: SEGMENT, retain_bytes: 4 << 20, durability, ..Default::default() };
    drop(Journal::create(dir.path(), &options).unwrap());
    let open = || Journal::open(dir.path(), &OpenOptions { background: false }).unwrap();
    let (host, guest) = (open(), open());
    let (keep, churn) = logs(&guest);
    (0..80).for_each(|_| append(&guest, &keep, 50 * KIB));
    let mut dropped = 0;
    for _ in 0..40 {
        (0..40).for_each(|_| append(&guest, &churn, 100 * KIB));
        dropped += host.maintain(&|_, _| false).unwrap().dropped;
    }
    let names = std::fs::read_dir("/proc/self/fd").unwrap().flatten().flat_map(|fd| std::fs::read_link(fd.path()));
    let ours = |name: &std::path::PathBuf| name.starts_with(dir.path()) && name.to_string_lossy().contains("(deleted)");
    let held = names.filter(ours).count();
    assert!(dropped > 100 && held < 30, "{held} of {dropped} files that are gone are held");
}

/// Not a test by itself: reads a namespace with more segments than this process may have files.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let journal = Journal::open(Path::new(&dir), &OpenOptions { background: false }).unwrap();
    assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
}

#[test]
fn a_namespace_of_many_segments_is_opened_whatever_a_shell_allows() {
    let dir = tempfile::tempdir().unwrap();
    let durability = Durability::Memory;
    let options = CreateOptions { segment_bytes: SEGMENT, durability, ..Default::default() };
    let journal = Journal::create(dir.path(), &options).unwrap();
    let (_, churn) = logs(&journal);
    while journal.tail().get() < 80 * SEGMENT {
        append(&journal, &churn, 250 * KIB);
    }
    drop(journal);
    std::fs::remove_file(dir.path().join("control")).unwrap(); // As after a power cut: recovery reads them all.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 40 && exec \"$0\" --exact child"]).arg(std::env::current_exe().unwrap());
    let ended = command.env(CHILD, dir.path()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Fills segments and lets retention drop what it may.
fn churn(journal: &Journal, log: &Log, segments: usize) -> u64 {
    let mut dropped = 0;
    for _ in 0..segments * 21 {
        append(journal, log, 50 * KIB);
        dropped += journal.maintain(&|_, _| false).unwrap().dropped;
    }
    dropped
}

#[test]
fn a_pin_protects_its_entries_until_it_is_removed_or_reaches_its_time_or_bytes() {
    for end in 0..3 {
        let disk = SimDisk::default();
        disk.set_wall_us(1_000_000_000_000);
        let options = CreateOptions { retain_bytes: 2 << 20, ..sim_options(Durability::Memory) };
        drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
        let (medium, other) = (disk.process(), model::open(&disk.process()).unwrap());
        let journal = model::open(&medium).unwrap();
        let (_, log) = logs(&journal);
        assert!(churn(&journal, &log, 5) > 0);
        let pin = journal.pin("a test", 20 << 20, Duration::from_secs(60)).unwrap();
        assert_eq!((pin.from(), pin.owner.as_str()), (journal.first(), "a test"));
        // Of another process, too, and after this one died and another took over.
        let theirs = other.log(log.name()).unwrap();
        assert_eq!(churn(&other, &theirs, 3), 0);
        medium.kill();
        drop((journal, log, other, theirs));
        let cut = disk.crash(&mut |n| n - 1);
        let journal = model::open(&cut.process()).unwrap();
        let log = journal.log(&"churn".parse().unwrap()).unwrap();
        assert_eq!((churn(&journal, &log, 3), journal.first()), (0, pin.from()));
        assert_eq!(journal.pins().unwrap(), std::slice::from_ref(&pin));
        match end {
            0 => journal.unpin(pin.id).unwrap(),
            1 => {
                cut.set_wall_us(1_000_059_000_000);
                assert!(journal.renew_pin(&pin, Duration::from_secs(60)).unwrap());
                cut.set_wall_us(1_000_080_000_000);
                assert_eq!(journal.maintain(&|_, _| false).unwrap().dropped, 0);
                cut.set_wall_us(1_000_200_000_000);
            }
            _ => assert!(churn(&journal, &log, 20) > 0),
        }
        assert!(journal.pins().unwrap().is_empty(), "{end}");
        assert!(churn(&journal, &log, 1) > 0 && journal.first() > pin.from(), "{end}");
        assert!(!journal.renew_pin(&pin, Duration::from_secs(60)).unwrap(), "{end}");
        assert_eq!(journal.catalog().unwrap().pins().count(), 0, "{end}: it stays for ever");
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    }
}

/// What is carried is dropped later, or not at all: a pin may come in between. The next copy of a trigger needs its record as well.
#[test]
fn a_run_keeps_its_record_where_its_segment_was_carried_before_and_stayed() {
    let options = CreateOptions { retain_bytes: 2 << 20, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(SimDisk::default().process(), Path::new("sim"), &options).unwrap();
    let (_, log) = logs(&journal);
    let slow = journal.commit(|batch| batch.create_log(&"slow".parse().unwrap(), 2)).unwrap().value;
    let function = journal.commit(|batch| batch.define_function(&"f".parse().unwrap(), "{}")).unwrap().value;
    journal
        .commit(|batch| {
            let record = batch.append(&slow, b"record", EventId::NONE, 0)?;
            batch.trigger(function.id(), record.id, &slow, record.seqno, Origin::Bound)
        })
        .unwrap();
    while journal.tail().get() < 3 * SEGMENT + SEGMENT / 2 {
        append(&journal, &log, 50 * KIB);
    }
    let pin = std::cell::Cell::new(None);
    let pending = |_, _| {
        if pin.get().is_none() {
            pin.set(Some(journal.pin("a test", 1 << 30, Duration::from_secs(60)).unwrap().id));
        }
        true
    };
    let position = journal.position(&slow, 1);
    assert_eq!(journal.maintain(&pending).unwrap().dropped, 0);
    assert!(journal.position(&slow, 1) > position, "it was carried, and its segment is still there");
    // More than stands between a record and its trigger.
    (0..2000).for_each(|_| append(&journal, &log, 1));
    journal.unpin(pin.get().unwrap()).unwrap();
    assert!(journal.maintain(&|_, _| true).unwrap().dropped > 0);
    (0..3).for_each(|_| append(&journal, &slow, 1));
    let trigger = journal.entry_at(Position::from_bytes(function.run(1).unwrap().opened)).unwrap();
    assert!(trigger.carried);
    assert_eq!(journal.record_of(&trigger).unwrap().map(|record| record.payload).as_deref(), Some(&b"record"[..]));
}

/// Appends, and lets retention run, between any two pieces of a copy.
struct Busy<'j> {
    journal: &'j Journal,
    log: &'j Log,
    forgotten: u64,
    pins: usize,
}

impl millrace_journal::SnapshotSink for Busy<'_> {
    fn write(&mut self, _segment: u64, _bytes: &[u8]) -> millrace_wire::Result<()> {
        churn(self.journal, self.log, 1);
        self.pins = self.pins.max(self.journal.pins()?.len());
        Ok(())
    }

    fn forget(&mut self, _segment: u64) -> millrace_wire::Result<()> {
        self.forgotten += 1;
        Ok(())
    }

    fn progress(&mut self, _done: u64, _total: u64) {}
}

#[test]
fn retention_does_not_overtake_a_copy_in_progress() {
    let options = CreateOptions { retain_bytes: 2 << 20, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(SimDisk::default().process(), Path::new("sim"), &options).unwrap();
    let (_, log) = logs(&journal);
    churn(&journal, &log, 5);
    let first = journal.first();
    let mut busy = Busy { journal: &journal, log: &log, forgotten: 0, pins: 0 };
    let snapshot = journal.snapshot(&mut busy).unwrap();
    assert_eq!((busy.forgotten, busy.pins, snapshot.first_segment), (0, 1, first.get() / SEGMENT));
    assert!(journal.pins().unwrap().is_empty());
    assert!(churn(&journal, &log, 1) > 0, "what the copy needed stays for ever");
}

/// Appends segment after segment, each with its CATALOG, until there are so many.
fn fill_with_catalogs(journal: &Journal, log: &Log, segments: u64) {
    let since = Instant::now();
    for number in 0..segments {
        while journal.tail().get() < number * SEGMENT + SEGMENT / 2 {
            append(journal, log, 20 * KIB);
        }
        // The first has all definitions; in the others the background thread writes one.
        let has_catalog = || {
            let mut scan = journal.scan(journal.first());
            let mut found = false;
            while let Some(entry) = scan.next().unwrap() {
                found |= entry.kind == Kind::Catalog && entry.position.get() / SEGMENT == number;
            }
            found
        };
        while number > 0 && !has_catalog() {
            assert!(since.elapsed() < Duration::from_secs(120), "segment {number} has no CATALOG");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// For a segment to go, the beginning of what stays has to be durable, and nothing else: whoever appends does not wait for the disk.
#[test]
fn dropping_segments_flushes_no_new_entries_and_leaves_no_gap() {
    let disk = SimDisk::default();
    let options = CreateOptions { retain_bytes: 3 << 20, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (_, log) = logs(&journal);
    fill_with_catalogs(&journal, &log, 8);
    assert_eq!(journal.maintain(&|_, _| false).unwrap().dropped, 4);
    let (first, durable, tail) = (journal.first().get(), journal.durable().get(), journal.tail().get());
    assert!((first..first + SEGMENT).contains(&durable), "durable up to {durable}: {first} to {tail} stays");

    // Nothing but what was flushed is left.
    let cut = disk.crash(&mut |_| 0);
    let journal = Journal::open_on(cut.process(), Path::new("sim"), &OpenOptions::default()).unwrap();
    assert_eq!(journal.first().get(), first);
    assert!(journal.tail().get() >= durable, "{} of {durable}", journal.tail().get());
    let log = journal.log(&"churn".parse().unwrap()).unwrap();
    let latest = log.latest();
    assert!(latest > 0);
    for seqno in log.earliest()..=latest {
        journal.get(&log, seqno, &mut Vec::new()).unwrap();
    }
    assert_eq!(journal.commit(|batch| batch.append(&log, b"on", EventId::NONE, 0)).unwrap().value.seqno, latest + 1);

    // That it was durable is in a mark: what is damaged of it is not taken for a torn tail.
    let cut = disk.crash(&mut |_| 0);
    let mut files = cut.files();
    files.get_mut(&format!("segments/{:010}", first / SEGMENT)).unwrap()[100] ^= 1;
    files.remove("control");
    let damaged = Journal::open_on(SimDisk::with_files(files).process(), Path::new("sim"), &OpenOptions::default());
    assert_eq!(damaged.err().map(|error| error.code()), Some(Code::JournalDamaged));
}

/// Until a segment is gone, what is in it may be lost with the power, and nothing says that it was durable.
#[test]
fn nothing_is_told_to_be_durable_before_what_was_not_flushed_is_gone() {
    let disk = SimDisk::default();
    let options = CreateOptions { retain_bytes: 2 << 20, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (_, log) = logs(&journal);
    fill_with_catalogs(&journal, &log, 4);
    disk.record_moments();
    assert_eq!(journal.maintain(&|_, _| false).unwrap().dropped, 1);
    for (number, moment) in disk.take_moments().into_iter().enumerate() {
        let cut = moment.crash(&mut |_| 0);
        let opened = Journal::open_on(cut.process(), Path::new("sim"), &OpenOptions { background: false });
        assert!(opened.is_ok(), "moment {number}: {:?}", opened.err());
    }
}

/// A manifest takes two flushes; segments in which nothing is live go by one.
#[test]
fn segments_in_which_nothing_is_live_go_together() {
    let disk = SimDisk::default();
    let options = CreateOptions { retain_bytes: 3 << 20, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (_, log) = logs(&journal);
    fill_with_catalogs(&journal, &log, 8);
    disk.record_moments();
    assert_eq!(journal.maintain(&|_, _| false).unwrap().dropped, 4);
    let mut manifests: Vec<Vec<u8>> =
        disk.take_moments().iter().map(|moment| moment.files().remove("manifest").unwrap()).collect();
    manifests.push(disk.files().remove("manifest").unwrap());
    manifests.dedup();
    assert_eq!(manifests.len(), 2, "one before and one behind");
}

/// Whoever lets segments go may have to wait for a flush that began before; whoever appends makes room all the same.
#[test]
fn room_is_made_while_segments_go_and_a_flush_takes_its_time() {
    let disk = SimDisk::default();
    let options = CreateOptions { retain_bytes: 3 << 20, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (_, log) = logs(&journal);
    fill_with_catalogs(&journal, &log, 6);
    journal.sync(journal.tail()).unwrap();
    append(&journal, &log, 20 * KIB);
    let (first, tail) = (journal.first(), journal.tail());
    disk.hold_flushes(true);
    thread::scope(|scope| {
        let flush = scope.spawn(|| journal.sync(tail).unwrap());
        while disk.flushes_held() == 0 {
            thread::yield_now();
        }
        let retention = scope.spawn(|| journal.maintain(&|_, _| false).unwrap().dropped);
        let since = Instant::now();
        while journal.first() == first && since.elapsed() < Duration::from_secs(120) {
            thread::yield_now();
        }
        let (done, is_done) = std::sync::mpsc::channel();
        let (of_appends, log) = (&journal, &log);
        scope.spawn(move || {
            (0..200).for_each(|_| append(of_appends, log, 20 * KIB));
            done.send(()).unwrap();
        });
        let appended = is_done.recv_timeout(Duration::from_secs(120));
        disk.hold_flushes(false);
        flush.join().unwrap();
        assert!(appended.is_ok(), "whoever appends waits for a flush");
        assert!(retention.join().unwrap() > 0);
    });
}

/// Segments that retention gave back are room further ahead than new ones would be.
#[test]
fn recycled_segments_are_room_ahead() {
    let disk = SimDisk::default();
    let options = CreateOptions { retain_bytes: 3 << 20, ..sim_options(Durability::Memory) };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (_, log) = logs(&journal);
    fill_with_catalogs(&journal, &log, 8);
    assert_eq!(journal.maintain(&|_, _| false).unwrap().dropped, 4);
    let current = (journal.tail().get() - 1) / SEGMENT;
    let ahead = || {
        let files = disk.files();
        (1..).take_while(|n| files.contains_key(&format!("segments/{:010}", current + n))).count()
    };
    let since = Instant::now();
    while ahead() < 4 {
        assert!(since.elapsed() < Duration::from_secs(120), "{} segments of room", ahead());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Records that nobody needs are passed over by their headers; one whose header lies about its length hides nothing behind it.
#[test]
fn a_damaged_length_hides_no_record_that_is_to_be_kept() {
    use std::os::unix::fs::FileExt;
    for entries in 1..4 {
        let dir = tempfile::tempdir().unwrap();
        let durability = Durability::Memory;
        let options = CreateOptions { segment_bytes: SEGMENT, retain_bytes: 1 << 20, durability, ..Default::default() };
        let journal = Journal::create(dir.path(), &options).unwrap();
        let (keep, churn) = logs(&journal);
        let position = |log: &Log| {
            let latest = log.latest();
            journal.get(log, latest, &mut Vec::new()).unwrap().position.get()
        };
        (0..4).for_each(|_| append(&journal, &churn, 1000));
        let dead = position(&churn);
        let mut ends = Vec::new();
        for n in 0..4 {
            append(&journal, if n == 0 { &keep } else { &churn }, 1000);
            ends.push(position(if n == 0 { &keep } else { &churn }) - dead);
        }
        // It seems to reach to the beginning of another entry behind what is to be kept.
        let segment = std::fs::OpenOptions::new().write(true).open(dir.path().join("segments/0000000000")).unwrap();
        segment.write_all_at(&(ends[entries] as u32).to_le_bytes(), dead + 4).unwrap();
        while journal.tail().get() < 5 * SEGMENT {
            append(&journal, &churn, 50 * KIB);
        }
        let maintained = journal.maintain(&|_, _| false).unwrap();
        assert!(maintained.dropped > 0 && journal.first().get() >= SEGMENT, "{maintained:?}");
        journal.get(&keep, 1, &mut Vec::new()).unwrap();
    }
}
