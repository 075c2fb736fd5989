//! Disks that refuse: every kind of refusal, at every call, for a while, then the disk works again, then the power fails.
//!
//! The oracle: what was acknowledged is there; what was refused is not, and nothing is half there; a full or read-only disk
//! is over when it is over, without reopening; after a failed flush nothing is taken any more until the next open, which
//! believes the disk and not the cache. `MILLRACE_SEED` repeats a run, `MILLRACE_DISK_SECONDS` makes it longer.

mod model;

use millrace_journal::{
    CreateOptions, Durability, Journal, OpenOptions,
    medium::sim::{Call, Fault, Faults, SimDisk, SimMedium},
};
use millrace_wire::{Code, EventId, Result};
use model::{Random, open, sim_options};
use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How a disk refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// No block can be had: for room, for files.
    Full,
    /// Nor for bytes that have storage already, as where nothing is overwritten in place.
    FullToTheLast,
    ReadOnly,
    /// Bytes are not taken.
    WriteFails,
    /// Some bytes are taken, and then none, not even to take them back.
    CutShort,
    FlushFails,
    NamesFail,
    ManifestFails,
    RenameFails,
    /// This process may have no more files open.
    NoFiles,
}

const KINDS: [Kind; 10] = [
    Kind::Full,
    Kind::FullToTheLast,
    Kind::ReadOnly,
    Kind::WriteFails,
    Kind::CutShort,
    Kind::FlushFails,
    Kind::NamesFail,
    Kind::ManifestFails,
    Kind::RenameFails,
    Kind::NoFiles,
];

/// When a disk refuses: from one call on, for so many.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    kind: Kind,
    from: u64,
    calls: u64,
    bytes: usize,
}

impl Trouble {
    fn random(random: &mut Random, calls: u64) -> Self {
        Self {
            kind: KINDS[random.below(KINDS.len())],
            from: random.below(calls as usize) as u64,
            calls: [1, 1, 2, 5, 20, u64::MAX][random.below(6)],
            bytes: [1, 4, 60, 64, 100, 512, 4096][random.below(7)],
        }
    }

    /// The fault for the call of this number, counted in those that this kind concerns.
    fn fault(self, call: Call, number: u64, cut: &mut bool) -> Fault {
        if number < self.from || number - self.from >= self.calls {
            return Fault::None;
        }
        let error = |error: i32, calls: &[Call]| if calls.contains(&call) { Fault::Error(error) } else { Fault::None };
        match self.kind {
            Kind::Full => error(libc::ENOSPC, &[Call::Allocate, Call::Replace]),
            Kind::FullToTheLast => error(libc::ENOSPC, &[Call::Allocate, Call::Replace, Call::Write]),
            Kind::ReadOnly => error(libc::EROFS, &[Call::Allocate, Call::Replace, Call::Write, Call::Rename]),
            Kind::WriteFails => error(libc::EIO, &[Call::Write, Call::Allocate]),
            Kind::CutShort if call == Call::Write && !*cut => {
                *cut = true;
                Fault::Short(self.bytes)
            }
            Kind::CutShort => error(libc::EIO, &[Call::Write]),
            Kind::FlushFails => error(libc::EIO, &[Call::Flush]),
            Kind::NamesFail => error(libc::EIO, &[Call::FlushNames]),
            Kind::ManifestFails => error(libc::EIO, &[Call::Replace]),
            Kind::RenameFails => error(libc::EIO, &[Call::Rename]),
            Kind::NoFiles => error(libc::EMFILE, &[Call::Open, Call::Map, Call::Replace]),
        }
    }

    fn on(self, disk: &SimDisk, calls: &Arc<AtomicU64>) {
        let (calls, mut cut) = (calls.clone(), false);
        disk.set_faults(Some(
            Box::new(move |call| self.fault(call, calls.fetch_add(1, Ordering::Relaxed), &mut cut)) as Faults
        ));
    }
}

/// What somebody outside knows of a journal.
#[derive(Default)]
struct Reported {
    /// Batches that were committed, in order: the numbers of their records, and their end.
    committed: Vec<(Vec<u64>, u64)>,
    /// Numbers of records that were refused.
    refused: HashSet<u64>,
    /// Numbers of which it was said that they may yet appear.
    uncertain: HashSet<u64>,
    durable: u64,
    flush_failed: bool,
    next: u64,
}

struct World {
    disk: SimDisk,
    medium: Arc<SimMedium>,
    journal: Journal,
    reported: Reported,
}

/// Half of the records end in zeros, which a cleared place holds anyway.
fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = vec![if number.is_multiple_of(2) { 0 } else { 0xA5 }; bytes.max(8)];
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload
}

/// What a disk may be refused with.
fn is_of_disk(code: Code) -> bool {
    matches!(code, Code::DiskFull | Code::ReadOnly | Code::Io | Code::FlushFailed | Code::AppendUncertain)
}

impl World {
    fn new(durability: Durability) -> World {
        let disk = SimDisk::default();
        drop(Journal::create_on(disk.process(), Path::new("sim"), &sim_options(durability)).unwrap());
        let medium = disk.process();
        let journal = open(&medium).unwrap();
        for (name, history) in [("a", 100_000), ("big", 2)] {
            journal.commit(|batch| batch.create_log(&name.parse().unwrap(), history)).unwrap();
        }
        journal.sync(journal.tail()).unwrap();
        World { disk, medium, journal, reported: Reported::default() }
    }

    /// Commits a batch of records, or is refused.
    fn append(&mut self, sizes: &[usize]) -> Result<()> {
        let numbers: Vec<u64> = (self.reported.next..).take(sizes.len()).collect();
        self.reported.next += sizes.len() as u64;
        let (a, big) = (self.journal.log(&"a".parse().unwrap())?, self.journal.log(&"big".parse().unwrap())?);
        let committed = self.journal.commit(|batch| {
            for (number, bytes) in numbers.iter().zip(sizes) {
                batch.append(&a, &payload(*number, (*bytes).min(5000)), EventId::NONE, 0)?;
                if *bytes > 5000 {
                    batch.append(&big, &vec![7; *bytes], EventId::NONE, 0)?;
                }
            }
            Ok(())
        });
        match committed {
            Ok(committed) => {
                self.reported.committed.push((numbers, committed.end.get()));
                Ok(())
            }
            Err(error) => {
                let set = match error.code() {
                    Code::AppendUncertain => &mut self.reported.uncertain,
                    _ => &mut self.reported.refused,
                };
                set.extend(numbers);
                Err(error)
            }
        }
    }

    /// One operation; what the disk refuses is refused with a code that says so.
    fn operate(&mut self, random: &mut Random, context: &str) {
        let number = self.reported.next;
        let result = match random.below(12) {
            0..4 => self.append(&[random.below(300)]),
            4 | 5 => self.append(&[random.below(5000), random.below(5000), random.below(100)]),
            6 | 7 => self.append(&[200_000, 40 + random.below(60_000)]),
            8 => {
                let name = format!("l/{number}").parse().unwrap();
                self.journal.commit(|batch| batch.create_log(&name, 1 + number % 2000).map(drop)).map(drop)
            }
            9 => {
                let failed = self.journal.commit(|batch| {
                    let a = batch.catalog().log("a").cloned().unwrap();
                    batch.append(&a, &payload(u64::MAX, 500), EventId::NONE, 0)?;
                    Err::<(), _>(Code::Busy.error("on purpose"))
                });
                let error = failed.unwrap_err();
                if error.code() == Code::Busy { Ok(()) } else { Err(error) }
            }
            10 => self.journal.maintain(&|_, _| true).map(drop),
            _ => {
                let tail = self.journal.tail();
                self.journal.sync(tail).map(|()| self.reported.durable = self.reported.durable.max(tail.get()))
            }
        };
        if let Err(error) = result {
            assert!(is_of_disk(error.code()), "{context}: {error}");
            self.reported.flush_failed |= error.code() == Code::FlushFailed;
            assert_eq!(self.journal.check_health().is_err(), self.reported.flush_failed, "{context}: {error}");
        }
    }

    /// The disk works again: appends do so at once, or not before the journal is opened again.
    fn service_returns(&mut self, context: &str) {
        self.disk.set_faults(None);
        if self.journal.check_health().is_err() {
            self.reported.flush_failed = true;
            let tail = self.journal.tail();
            assert_eq!(self.append(&[10]).unwrap_err().code(), Code::FlushFailed, "{context}");
            if self.journal.durable() < tail {
                assert_eq!(self.journal.sync(tail).unwrap_err().code(), Code::FlushFailed, "{context}");
            }
        } else {
            self.append(&[10]).unwrap_or_else(|error| panic!("{context}: no service though the disk works: {error}"));
        }
        self.look(&self.journal, true, context);
    }

    /// Compares what is readable with what was told; returns how many committed batches are there. `all` if nothing committed
    /// may be missing.
    fn look(&self, journal: &Journal, all: bool, context: &str) -> usize {
        let log = journal.log(&"a".parse().unwrap()).unwrap();
        let mut bytes = Vec::new();
        let mut found = Vec::new();
        for seqno in 1..=log.latest() {
            journal.get(&log, seqno, &mut bytes).unwrap_or_else(|error| panic!("{context}: record {seqno}: {error}"));
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, payload(number, bytes.len()), "{context}: record {seqno} is not what was appended");
            found.push(number);
        }
        let reported = &self.reported;
        let bad: Vec<_> = found.iter().filter(|number| reported.refused.contains(number)).collect();
        assert!(bad.is_empty(), "{context}: refused, and yet there: {bad:?}");
        let mut rest = found.iter().peekable();
        let (mut missing, mut there) = (None, 0);
        for (numbers, end) in &reported.committed {
            let next: Vec<u64> =
                (0..numbers.len()).map_while(|_| rest.next_if(|n| !reported.uncertain.contains(n))).copied().collect();
            if next.is_empty() {
                missing.get_or_insert(*end);
                continue;
            }
            there += 1;
            assert!(
                next == *numbers && missing.is_none(),
                "{context}: {next:?} stands where {numbers:?} was committed"
            );
        }
        assert!(!all || missing.is_none(), "{context}: committed up to {missing:x?} and not there");
        assert!(missing.is_none_or(|end| end > reported.durable), "{context}: acknowledged and lost: {missing:x?}");
        let uncertain: Vec<_> = rest.collect();
        assert!(
            uncertain.iter().all(|number| reported.uncertain.contains(number)),
            "{context}: {uncertain:?} came from nowhere"
        );
        let report = journal.check(&mut |_, _| {}).unwrap();
        assert_eq!(report.fault_count, 0, "{context}: {:?}", report.faults);
        there
    }

    /// All processes die, and then perhaps the power; everything is verified, used again, and the power fails once more.
    fn ends(mut self, random: &mut Random, context: &str) {
        self.medium.kill();
        let power = random.below(2) == 0;
        self.disk.set_cache_sticks(random.below(2) == 0);
        if power {
            self.disk = self.disk.crash(&mut |n| random.below(n));
        }
        let context = format!("{context}, power {power}");
        self.medium = self.disk.process();
        self.journal = open(&self.medium).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(self.journal.recovery().damaged.is_empty(), "{context}: {:?}", self.journal.recovery());
        let all = !power && !self.reported.flush_failed;
        let there = self.look(&self.journal, all, &context);
        // What is seen now was read by somebody, and counts from now on: it is on the disk.
        let seen = self.journal.tail();
        assert!(self.journal.durable() >= seen, "{context}: what recovery found is not durable");
        self.reported.committed.truncate(there);
        self.reported.durable = self.reported.committed.last().map_or(0, |(_, end)| *end);
        self.medium.kill();
        let disk = self.disk.crash(&mut |_| 0);
        let medium = disk.process();
        let again = open(&medium).unwrap_or_else(|error| panic!("{context}, again: {error}"));
        self.look(&again, false, &format!("{context}, and again"));
        medium.kill();
    }
}

/// One life of a journal with one trouble in it.
fn live(seed: u64, durability: Durability, trouble: Option<Trouble>) -> u64 {
    let mut random = Random::from_seed(seed);
    let context = format!("MILLRACE_SEED={seed}, {durability:?}, {trouble:?}");
    let mut world = World::new(durability);
    let calls = Arc::new(AtomicU64::new(0));
    let none = Trouble { kind: Kind::Full, from: u64::MAX, calls: 0, bytes: 0 };
    trouble.unwrap_or(none).on(&world.disk, &calls);
    for _ in 0..30 {
        world.operate(&mut random, &context);
    }
    let calls = calls.load(Ordering::Relaxed);
    world.service_returns(&context);
    world.ends(&mut random, &context);
    calls
}

fn seconds() -> Duration {
    let text = std::env::var("MILLRACE_DISK_SECONDS");
    Duration::from_secs(text.map_or(5, |text| text.parse().expect("MILLRACE_DISK_SECONDS is a number")))
}

#[test]
fn a_disk_that_refuses_any_call_keeps_acknowledged_records_and_serves_again() {
    let mut random = Random::new("refusals");
    let start = Instant::now();
    let mut lives = 0;
    while lives < 20 || start.elapsed() < seconds() {
        let seed = random.next();
        for durability in [Durability::Disk, Durability::Memory] {
            let calls = live(seed, durability, None);
            for _ in 0..6 {
                live(seed, durability, Some(Trouble::random(&mut random, calls.max(1))));
                lives += 1;
            }
        }
    }
    println!("{lives} lives");
}

#[test]
fn every_call_of_a_life_refused_in_every_way() {
    let mut random = Random::new("every call");
    let seed = random.next();
    let mut lives = 0;
    for durability in [Durability::Disk, Durability::Memory] {
        let calls = live(seed, durability, None);
        for from in 0..calls.min(16) {
            for kind in KINDS {
                live(seed, durability, Some(Trouble { kind, from, calls: 1 + from % 3, bytes: 64 }));
                lives += 1;
            }
        }
    }
    assert!(lives > 100, "{lives}");
}

#[test]
fn a_recovery_on_a_disk_that_refuses_loses_nothing_and_the_next_one_succeeds() {
    let mut random = Random::new("recovery");
    let seed = random.next();
    for durability in [Durability::Disk, Durability::Memory] {
        for kind in KINDS {
            let mut refused = 0;
            for from in 0.. {
                let context = format!("MILLRACE_SEED={seed}, {durability:?}, {kind:?} at call {from} of recovery");
                let mut script = Random::from_seed(seed);
                let mut world = World::new(durability);
                (0..12).for_each(|_| world.operate(&mut script, &context));
                world.medium.kill();
                let calls = Arc::new(AtomicU64::new(0));
                Trouble { kind, from, calls: 2, bytes: 64 }.on(&world.disk, &calls);
                let medium = world.disk.process();
                match open(&medium) {
                    Ok(journal) => {
                        // Only what comes late may be refused without refusing the open, such as room ahead.
                        medium.kill();
                        drop(journal);
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(is_of_disk(error.code()), "{context}: {error}");
                        world.reported.flush_failed |= error.code() == Code::FlushFailed;
                    }
                }
                medium.kill();
                world.disk.set_faults(None);
                world.ends(&mut script, &context);
                if calls.load(Ordering::Relaxed) <= from {
                    break;
                }
            }
            assert!(refused > 0 || matches!(kind, Kind::CutShort | Kind::RenameFails | Kind::WriteFails), "{kind:?}");
        }
    }
}

#[test]
fn creation_on_a_disk_that_refuses_leaves_room_for_the_next() {
    for kind in KINDS {
        for from in 0.. {
            let disk = SimDisk::default();
            let calls = Arc::new(AtomicU64::new(0));
            Trouble { kind, from, calls: u64::MAX, bytes: 7 }.on(&disk, &calls);
            let create = || Journal::create_on(disk.process(), Path::new("sim"), &sim_options(Durability::Disk));
            let created = create();
            disk.set_faults(None);
            let refused = created.is_err();
            match created {
                Ok(journal) => drop(journal),
                Err(error) => {
                    assert!(is_of_disk(error.code()), "{kind:?} at {from}: {error}");
                    match create() {
                        Ok(journal) => drop(journal),
                        // It was made, and only opening it failed.
                        Err(error) => assert_eq!(error.code(), Code::NamespaceExists, "{kind:?} at {from}: {error}"),
                    }
                }
            }
            let journal = open(&disk.process()).unwrap_or_else(|error| panic!("{kind:?} at {from}: {error}"));
            journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 9)).unwrap();
            assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
            if !refused {
                break;
            }
        }
    }
}

/// The thread that makes room flushes the same file as those who wait: a failure that it hears is theirs.
#[test]
fn a_flush_of_room_that_fails_closes_the_journal_too() {
    let disk = SimDisk::default();
    let options = sim_options(Durability::Disk);
    // With its background thread.
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
    journal.sync(journal.tail()).unwrap();
    disk.set_faults(Some(Box::new(|call| if call == Call::Flush { Fault::Error(libc::EIO) } else { Fault::None })));
    let start = Instant::now();
    // Nobody syncs: only room ahead is flushed.
    while journal.check_health().is_ok() {
        assert!(start.elapsed() < Duration::from_secs(120), "the failure was swallowed");
        let _ = journal.commit(|batch| batch.append(&log, &[1; 4000], EventId::NONE, 0));
    }
    disk.set_faults(None);
    assert_eq!(journal.sync(journal.tail()).unwrap_err().code(), Code::FlushFailed, "and was not forgotten");
}

/// An operating system tells each descriptor of a failure once: what was lost must not be taken for durable by whoever flushes
/// at the same time and is not told.
#[test]
fn a_failure_that_one_of_two_flushes_hears_is_heard_by_both() {
    for round in 0..16 {
        let disk = SimDisk::default();
        // Room is made in the segment that is written to.
        let options = CreateOptions { segment_bytes: 8 << 20, ..sim_options(Durability::Disk) };
        let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
        let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
        journal.sync(journal.tail()).unwrap();
        disk.hold_flushes(true);
        let until = |what: &str, held: u64, work: &dyn Fn()| {
            let start = Instant::now();
            while disk.flushes_held() < held {
                assert!(start.elapsed() < Duration::from_secs(120), "round {round}: {what} does not flush");
                work();
            }
        };
        until("room", 1, &|| drop(journal.commit(|batch| batch.append(&log, &[1; 4000], EventId::NONE, 0))));
        let end = journal.commit(|batch| batch.append(&log, b"told", EventId::NONE, 0)).unwrap().end;
        std::thread::scope(|scope| {
            let reported = scope.spawn(|| journal.sync(end));
            until("who waits", 2, &std::thread::yield_now);
            let mut fails = true;
            let once = move |call| match call {
                Call::Flush if std::mem::take(&mut fails) => Fault::Error(libc::EIO),
                _ => Fault::None,
            };
            disk.set_faults(Some(Box::new(once)));
            disk.hold_flushes(false);
            assert_eq!(reported.join().unwrap().unwrap_err().code(), Code::FlushFailed, "round {round}");
        });
    }
}

/// Where nothing was flushed, nothing is lost: that a process may have no more files open closes the journal for nobody. New names
/// count all the same only once they are flushed.
#[test]
fn a_segment_that_cannot_be_opened_for_a_flush_closes_no_journal() {
    const SEGMENT: u64 = 1 << 20;
    let mut random = Random::new("no files");
    let fill = |world: &mut World, bytes: u64| {
        let end = world.journal.tail().get() + bytes;
        while world.journal.tail().get() < end {
            world.append(&[200_000])?;
        }
        Ok(())
    };
    let maintain = |world: &World| world.journal.maintain(&|_, _| false).map(|maintained| maintained.dropped);
    for round in 0..4 {
        for durability in [Durability::Disk, Durability::Memory] {
            for place in ["a new segment", "a recycled segment", "retention"] {
                let context = format!("{place}, {durability:?}, round {round}");
                let mut world = World::new(durability);
                if place != "a new segment" {
                    fill(&mut world, 6 * SEGMENT).unwrap();
                }
                if place == "a recycled segment" {
                    assert!(maintain(&world).unwrap() > 0, "{context}");
                }
                let no_files = |call| if call == Call::Open { Fault::Error(libc::EMFILE) } else { Fault::None };
                world.disk.set_faults(Some(Box::new(no_files)));
                let refused = match place {
                    "retention" => maintain(&world).map(drop),
                    _ => fill(&mut world, 2 * SEGMENT),
                };
                assert_eq!(refused.unwrap_err().code(), Code::Io, "{context}");
                world.journal.check_health().unwrap_or_else(|error| panic!("{context}: {error}"));
                world.service_returns(&context);
                fill(&mut world, 4 * SEGMENT).unwrap();
                assert!(maintain(&world).unwrap() > 0, "{context}");
                let tail = world.journal.tail();
                world.journal.sync(tail).unwrap();
                world.reported.durable = tail.get();
                world.ends(&mut random, &context);
            }
        }
    }
}

/// Who flushes entries flushes the room they are in as well: that it was not flushed before costs time, and nothing else.
#[test]
fn a_segment_that_cannot_be_opened_is_flushed_with_its_entries() {
    let disk = SimDisk::default();
    let options = CreateOptions { segment_bytes: 8 << 20, ..sim_options(Durability::Disk) };
    let medium = disk.process();
    // With its background thread.
    let journal = Journal::create_on(medium.clone(), Path::new("sim"), &options).unwrap();
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
    journal.sync(journal.tail()).unwrap();
    let opened = Arc::new(AtomicU64::new(0));
    let count = opened.clone();
    disk.set_faults(Some(Box::new(move |call| {
        if call != Call::Open {
            return Fault::None;
        }
        count.fetch_add(1, Ordering::SeqCst);
        Fault::Error(libc::EMFILE)
    })));
    let start = Instant::now();
    // What came of the first is settled when the same thread asks again.
    while opened.load(Ordering::SeqCst) < 2 {
        assert!(start.elapsed() < Duration::from_secs(120), "no room is flushed");
        journal.commit(|batch| batch.append(&log, &[1; 4000], EventId::NONE, 0)).unwrap();
    }
    journal.sync(journal.tail()).unwrap();
    let records = log.latest();
    medium.kill();
    let medium = disk.crash(&mut |_| 0).process();
    let journal = open(&medium).unwrap();
    assert_eq!(journal.log(&"a".parse().unwrap()).unwrap().latest(), records);
    medium.kill();
}

/// Names the namespace of a process that is restarted.
const CHILD: &str = "MILLRACE_DISK_CHILD";

/// Not a test by itself: appends with one file left to open, which a new segment takes, so that its folder cannot be opened.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let journal = Journal::open(Path::new(&dir), &OpenOptions { background: false }).unwrap();
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    let append = || journal.commit(|batch| batch.append(&log, &[7; 200_000], EventId::NONE, 0));
    append().unwrap();
    let open = || std::fs::File::open("/dev/null");
    let mut files: Vec<_> = std::iter::from_fn(|| open().ok()).collect();
    drop(files.pop());
    let refused = (0..6).map(|_| append()).find_map(Result::err);
    match std::env::var("MILLRACE_DISK_MORE_FILES") {
        Ok(_) => assert!(refused.is_none(), "it may have more files, and did not ask: {refused:?}"),
        Err(_) => {
            let error = refused.expect("a new segment is one more file, and the folder another");
            assert_eq!(error.code(), Code::Io, "{error}");
            assert!(error.to_string().contains("segments: "), "{error}");
        }
    }
    drop(files);
    let end = append().unwrap().end;
    journal.sync(end).unwrap();
}

#[test]
fn a_process_without_descriptors_is_refused_and_the_journal_stays_open_for_others() {
    for (limit, more) in [("ulimit -n 64", false), ("ulimit -Sn 64", true)] {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { segment_bytes: 1 << 20, ..CreateOptions::default() };
        drop(Journal::create(dir.path(), &options).unwrap());
        let host = Journal::open(dir.path(), &OpenOptions { background: false }).unwrap();
        let log = host.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100)).unwrap().value;
        let mut command = std::process::Command::new("sh");
        let run = format!("{limit} && exec \"$0\" --exact child --test-threads=1");
        command.args(["-c", &run]).arg(std::env::current_exe().unwrap()).env(CHILD, dir.path());
        if more {
            command.env("MILLRACE_DISK_MORE_FILES", "1");
        }
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{limit}: {}", String::from_utf8_lossy(&ended.stdout));
        let end = host.commit(|batch| batch.append(&log, b"of the host", EventId::NONE, 0)).unwrap().end;
        host.sync(end).unwrap();
    }
}

/// What the disk refuses is known without anybody appending, and so is the end of it.
#[test]
fn a_refusal_is_shown_until_the_disk_takes_appends_again() {
    for durability in [Durability::Disk, Durability::Memory] {
        let disk = SimDisk::default();
        let journal = Journal::create_on(disk.process(), Path::new("sim"), &sim_options(durability)).unwrap();
        let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
        assert!(journal.refusal().is_none());
        disk.set_room(Some(0));
        let append = || journal.commit(|batch| batch.append(&log, &[1; 4000], EventId::NONE, 0));
        let error = std::iter::repeat_with(append).find_map(Result::err).unwrap();
        assert_eq!(error.code(), Code::DiskFull);
        std::thread::sleep(Duration::from_millis(500)); // It is tried meanwhile, and nothing has changed.
        assert_eq!(journal.refusal().map(|error| error.code()), Some(Code::DiskFull));
        disk.set_room(None);
        let start = Instant::now();
        while journal.refusal().is_some() {
            assert!(start.elapsed() < Duration::from_secs(120), "nobody noticed the room");
            std::thread::sleep(Duration::from_millis(5));
        }
        append().unwrap();
    }
}

/// The indexes need room of their own: what they are refused is shown too, while the segments still have room.
#[test]
fn a_refusal_of_room_for_the_indexes_is_shown_until_there_is_some() {
    let disk = SimDisk::default();
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &sim_options(Durability::Memory)).unwrap();
    disk.set_room(Some(0));
    let create = |n: u32| {
        let name = format!("log{n}").parse().unwrap();
        journal.commit(|batch| batch.create_log(&name, 100_000))
    };
    let (refused, error) = (0..).find_map(|n| create(n).err().map(|error| (n, error))).unwrap();
    assert!(error.code() == Code::DiskFull && error.detail().contains("index/arena"), "{error}");
    std::thread::sleep(Duration::from_millis(500)); // It is tried meanwhile, and nothing has changed.
    assert_eq!(journal.refusal().map(|error| error.code()), Some(Code::DiskFull));
    disk.set_room(None);
    let start = Instant::now();
    while journal.refusal().is_some() {
        assert!(start.elapsed() < Duration::from_secs(120), "nobody noticed the room");
        std::thread::sleep(Duration::from_millis(5));
    }
    create(refused).unwrap();
}

/// Appends that do not wait for the disk do not: not for the flush of others, and not for the flush of room.
#[test]
fn a_stalled_disk_delays_only_its_waiters() {
    for durability in [Durability::Disk, Durability::Memory] {
        let disk = SimDisk::default();
        let journal = Journal::create_on(disk.process(), Path::new("sim"), &sim_options(durability)).unwrap();
        let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
        journal.sync(journal.tail()).unwrap();
        // Flushes end when the test says so.
        let (over, stalled) = (Arc::new((Mutex::new(false), Condvar::new())), Arc::new(AtomicU64::new(0)));
        let (of_disk, count) = (over.clone(), stalled.clone());
        disk.set_faults(Some(Box::new(move |call| {
            if call != Call::Flush {
                return Fault::None;
            }
            count.fetch_add(1, Ordering::SeqCst);
            Fault::Stall(of_disk.clone())
        })));
        std::thread::scope(|scope| {
            let first = journal.commit(|batch| batch.append(&log, b"first", EventId::NONE, 0)).unwrap().end;
            let of_waiter = journal.clone();
            let waiter = scope.spawn(move || of_waiter.sync(first));
            let start = Instant::now();
            while stalled.load(Ordering::SeqCst) == 0 {
                assert!(start.elapsed() < Duration::from_secs(120), "nobody flushes");
                std::thread::yield_now();
            }
            // More than the room that was ready, and more than the background thread may have made.
            for n in 0..150u64 {
                journal.commit(|batch| batch.append(&log, &payload(n, 4000), EventId::NONE, 0)).unwrap();
            }
            assert!(!waiter.is_finished() && journal.durable() < first, "somebody said that it is durable");
            *over.0.lock().unwrap() = true;
            over.1.notify_all();
            waiter.join().unwrap().unwrap();
        });
        assert_eq!(log.latest(), 151);
    }
}

/// What a disk took of a batch before it refused the rest may look whole, where the rest is zeros: it is taken back before the
/// refusal is told, or before anything else is done.
#[test]
fn a_refused_batch_that_looks_whole_is_not_there_after_a_crash() {
    for takes_back in [true, false] {
        let mut world = World::new(Durability::Disk);
        world.append(&[10]).unwrap();
        let mut writes = 0;
        world.disk.set_faults(Some(Box::new(move |call| {
            writes += u32::from(call == Call::Write);
            match (call, writes) {
                (Call::Write, 1) => Fault::Short(200),
                (Call::Write, 2) => Fault::Error(libc::EIO),
                (Call::Write, 3) if !takes_back => Fault::Error(libc::EIO),
                _ => Fault::None,
            }
        })));
        world.reported.next = 2; // An even number: the record ends in zeros.
        let error = world.append(&[1000]).unwrap_err();
        assert_eq!(error.code(), if takes_back { Code::Io } else { Code::AppendUncertain });
        world.disk.set_faults(None);
        // Whoever comes next takes it back first, also if all that it does is to be refused.
        let busy = || Code::Busy.error("on purpose");
        assert_eq!(world.journal.commit(|_| Err::<(), _>(busy())).unwrap_err().code(), Code::Busy);
        world.medium.kill();
        let medium = world.disk.process();
        let journal = open(&medium).unwrap();
        assert_eq!(journal.log(&"a".parse().unwrap()).unwrap().latest(), 1, "refused, and yet there");
        world.look(&journal, true, "reopened");
        medium.kill();
    }
}

/// After a failed flush the cache may hold what the disk does not, and call it clean. Anyone who opens next finds it there, and
/// writes it again before it counts: the power may fail right then.
#[test]
fn pages_that_a_failed_flush_left_in_the_cache_are_written_again() {
    for durability in [Durability::Disk, Durability::Memory] {
        let mut world = World::new(durability);
        world.append(&[100]).unwrap();
        world.journal.sync(world.journal.tail()).unwrap();
        world.append(&[3000]).unwrap();
        world.disk.set_faults(Some(Box::new(|call| match call {
            Call::Flush => Fault::Error(libc::EIO),
            _ => Fault::None,
        })));
        assert_eq!(world.journal.sync(world.journal.tail()).unwrap_err().code(), Code::FlushFailed);
        world.disk.set_faults(None);
        world.medium.kill();
        world.disk.set_cache_sticks(true);
        let medium = world.disk.process();
        let journal = open(&medium).unwrap();
        assert_eq!(world.look(&journal, false, "reopened"), 2, "{durability:?}: the cache has lost it");
        assert!(journal.durable() >= journal.tail(), "{durability:?}");
        medium.kill();
        let medium = world.disk.crash(&mut |_| 0).process();
        let journal = open(&medium).unwrap();
        assert_eq!(
            world.look(&journal, false, "after the power failed"),
            2,
            "{durability:?}: it was read, and is gone"
        );
        medium.kill();
    }
}

/// A flush that a dying process leaves behind failed for that process alone; the others go on.
#[test]
fn a_process_that_dies_in_a_flush_closes_the_journal_to_nobody_else() {
    let (disk, medium, journal, _) = model::create(Durability::Memory);
    let other = disk.process();
    let survivor = open(&other).unwrap();
    journal.commit(|tx| tx.create_log(&"a".parse().unwrap(), 10).map(drop)).unwrap();
    disk.hold_flushes(true);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| journal.sync(journal.tail()));
        while disk.flushes_held() == 0 {
            std::thread::yield_now();
        }
        medium.kill();
        assert!(flush.join().unwrap().is_err());
    });
    disk.hold_flushes(false);
    let log = survivor.log(&"a".parse().unwrap()).unwrap();
    survivor.commit(|tx| tx.append(&log, b"on", EventId::NONE, 0).map(drop)).unwrap();
    survivor.sync(survivor.tail()).unwrap();
    other.kill();
}
