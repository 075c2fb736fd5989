//! A writer killed after every single machine instruction.
//!
//! This process is single-threaded (`harness = false`) and has the namespace open: the survivor. It forks a child that opens the namespace,
//! stops, does one operation and stops again; single-steps it (ptrace) for `k` instructions and kills it, for every `k` until the operation
//! is over. After each kill the survivor must take over at once, find what was committed and nothing else, and go on; from time to time
//! nobody survives, and a fresh open must recover.
//!
//! That is what happens to short operations, always. Longer ones (a batch, JSON, system calls; an append too where it is compiled
//! with assertions) are killed where a byte changed that other processes can see, at the instructions around it, and now and
//! then in between, thinned to what a minute allows; how many instructions an operation takes varies a little, so such a moment
//! can be missed by some. With MILLRACE_EVERY_STEP set, operations of up to [`DENSE_MAX`] instructions are killed after every one,
//! and longer ones at every change and after every third instruction behind their commit; that takes an hour (`make test-all`).

#![allow(unsafe_code)] // ptrace, fork and waitpid.

use libtest_mimic::{Arguments, Trial};
use millrace_journal::{CreateOptions, Durability, End, Journal, Kind, Log, OpenOptions, Origin, Position};
use millrace_wire::{EventId, Result};
use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Nothing here takes seconds; what does, hangs.
const HANG: Duration = Duration::from_secs(120);
const SPARSE: u64 = 11;
/// Kills and instructions of one operation, about: the product is what it costs.
const KILLS_MAX: u64 = 150;
/// Kills behind the instruction that commits.
const KILLS_BEHIND_MAX: u64 = 40;
const STEPS_TOTAL: u64 = 1_500_000;
/// Operations up to this many instructions are killed after every one of them, always: a wait, and an append that was compiled
/// without assertions.
const DENSE_ALWAYS_MAX: u64 = 1_000;
/// With MILLRACE_EVERY_STEP, up to this many; longer ones are killed where something changed.
const DENSE_MAX: u64 = 8_000;
/// The longest operation; a bound for the loop.
const STEPS_MAX: u64 = 20_000_000;
/// Kills per directory.
const PER_DIR: u32 = 250;

fn open(dir: &Path) -> Journal {
    Journal::open(dir, &OpenOptions { background: false }).unwrap()
}

type Operation = fn(&Journal, &Log) -> Result<()>;

fn append(journal: &Journal, log: &Log) -> Result<()> {
    journal.commit(|batch| batch.append(log, b"one record", EventId::NONE, 0)).map(drop)
}

fn batch(journal: &Journal, log: &Log) -> Result<()> {
    let committed = journal.commit(|batch| {
        let record = batch.append(log, b"bound", EventId::NONE, 0)?;
        let function = batch.catalog().function("f").expect("defined").id();
        let run = batch.trigger(function, record.id, log, record.seqno, Origin::Bound)?;
        batch.append(log, b"second", run.id, 1)?;
        batch.done(function, run, &End::default())
    });
    committed.map(drop)
}

fn trim(journal: &Journal, log: &Log) -> Result<()> {
    journal.commit(|batch| batch.trim(log, log.latest() + 1)).map(drop)
}

fn define(journal: &Journal, _log: &Log) -> Result<()> {
    let name = format!("log/{}", journal.tail().get()).parse().expect("a name");
    journal.commit(|batch| batch.create_log(&name, 2)).map(drop)
}

/// Four records, some of which are staged before it shows that the batch has to move to the next segment.
fn switch(journal: &Journal, log: &Log) -> Result<()> {
    let committed = journal.commit(|batch| {
        for part in 0..4 {
            batch.append(log, &[part + 1; 900], EventId::NONE, u16::from(part))?;
        }
        Ok(())
    });
    committed.map(drop)
}

fn wait(journal: &Journal, _log: &Log) -> Result<()> {
    journal.wait(journal.tail(), Duration::from_millis(1));
    Ok(())
}

/// Leaves room for three of the records of [`switch`].
fn fill_segment(journal: &Journal) {
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    let room = || (1 << 20) - journal.tail().get() % (1 << 20);
    while room() > 3_300 {
        let bytes = (room() - 3_300).clamp(16, 250_000) as usize;
        journal.commit(|batch| batch.append(&log, &vec![9; bytes], EventId::NONE, 0)).unwrap();
    }
}

/// A stopped child under trace; killed when this goes.
struct Child(i32);

impl Child {
    /// Forks a child that stops itself before and after `work`.
    fn start(prepare_and_work: &dyn Fn(&dyn Fn())) -> Self {
        // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                    prepare_and_work(&|| assert_eq!(libc::raise(libc::SIGSTOP), 0));
                    libc::raise(libc::SIGSTOP);
                    libc::_exit(0)
                }
                pid => {
                    assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
                    let child = Child(pid);
                    assert_eq!(child.stopped_by(), libc::SIGSTOP);
                    child
                }
            }
        }
    }

    fn stopped_by(&self) -> i32 {
        let mut status = 0;
        // SAFETY: our own child and a valid status.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert!(libc::WIFSTOPPED(status), "the child ended by itself: {status:#x}");
        libc::WSTOPSIG(status)
    }

    /// Runs one instruction; false once the operation is over.
    fn step(&self) -> bool {
        // SAFETY: our own stopped child.
        let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.0, 0, 0) };
        assert_eq!(stepped, 0, "{}", std::io::Error::last_os_error());
        self.stopped_by() == libc::SIGTRAP
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: our own child, not yet waited for to its end.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, 0);
        }
    }
}

/// An entry, with its payload's checksum in place of the payload.
type Seen = (Position, EventId, Kind, u32, u64, bool, u32);

fn contents(journal: &Journal, from: Position) -> Vec<Seen> {
    let mut scan = journal.scan(from);
    let mut all = Vec::new();
    while let Some(e) = scan.next().unwrap() {
        all.push((e.position, e.id, e.kind, e.subject, e.seqno, e.last, crc_fast::crc32_iscsi(&e.payload)));
    }
    all
}

/// What is committed, and must stay.
struct Ledger {
    all: Vec<Seen>,
    ids: HashSet<EventId>,
    log: u32,
    latest: u64,
    trimmed: u64,
}

impl Ledger {
    fn of(journal: &Journal) -> Self {
        let log = journal.log(&"a".parse().unwrap()).unwrap().id();
        let mut ledger = Self { all: Vec::new(), ids: HashSet::new(), log, latest: 0, trimmed: 1 };
        ledger.take(contents(journal, Position::default()), "at the start");
        ledger
    }

    fn take(&mut self, new: Vec<Seen>, context: &str) {
        for entry in &new {
            assert!(self.ids.insert(entry.1), "{context}: {} was given out twice", entry.1);
            if entry.2 == Kind::Append && entry.3 == self.log {
                self.latest += 1;
                assert_eq!(entry.4, self.latest, "{context}: a hole");
            }
            if entry.2 == Kind::Trim {
                self.trimmed = entry.4;
            }
        }
        self.all.extend(new);
    }

    /// Looks at the journal after a kill, before anybody takes over: all of the dead process's batch is there, or nothing,
    /// for whoever scans as for whoever reads its log.
    fn look(&self, journal: &Journal, entries: usize, context: &str) {
        let log = journal.log(&"a".parse().unwrap()).unwrap();
        let new = contents(journal, self.all.last().expect("an OPEN").0).split_off(1);
        let of_batch = new.iter().filter(|e| e.2 != Kind::Open).count();
        assert!(of_batch == 0 || of_batch == entries, "{context}: {of_batch} of {entries} entries are seen");
        let appended: Vec<&Seen> = new.iter().filter(|e| e.2 == Kind::Append && e.3 == self.log).collect();
        assert_eq!(log.latest(), self.latest + appended.len() as u64, "{context}: a log and a scan differ");
        let mut payload = Vec::new();
        // What a batch may append, and more; the first look that finds some of it makes all of it known.
        let next = (self.latest + 1).max(log.earliest());
        let found = (next..next + 5).filter(|seqno| journal.get(&log, *seqno, &mut payload).is_ok()).count();
        let of_log = contents(journal, self.all.last().expect("an OPEN").0)
            .iter()
            .filter(|e| e.2 == Kind::Append && e.3 == self.log && e.4 >= next)
            .count();
        assert_eq!(found, of_log, "{context}: half a batch can be read");
        assert!(journal.position(&log, log.latest()) < journal.tail(), "{context}");
    }

    /// Verifies the journal after a kill and appends to it, which takes over what the dead process held.
    fn verify(&mut self, journal: &Journal, entries: usize, context: &str) {
        self.look(journal, entries, context);
        let log = journal.log(&"a".parse().unwrap()).unwrap();
        let started = Instant::now();
        let appended = journal.commit(|batch| batch.append(&log, b"taken over", EventId::NONE, 0)).unwrap().value;
        assert!(started.elapsed() < HANG, "{context}: taking over took {:?}", started.elapsed());
        let last = self.all.last().expect("an OPEN").0;
        let mut new = contents(journal, last);
        assert_eq!(new.remove(0), *self.all.last().unwrap(), "{context}: what was committed changed");
        let of_batch = new.iter().filter(|e| e.2 != Kind::Open).count() - 1;
        assert!(
            of_batch == 0 || of_batch == entries,
            "{context}: {of_batch} of the batch's {entries} entries appeared"
        );
        assert_eq!(new.last().unwrap().1, appended.id, "{context}");
        self.take(new, context);
        assert_eq!((log.latest(), appended.seqno), (self.latest, self.latest), "{context}");
        assert_eq!(log.earliest(), self.trimmed, "{context}");
    }

    fn verify_all(&self, journal: &Journal) {
        assert_eq!(contents(journal, Position::default()), self.all, "what was committed changed");
        assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
    }
}

/// A namespace with a log and a function, in memory if the machine has such a folder.
fn namespace() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let (durability, retain_bytes) = (Durability::Memory, 3 << 30);
    let options = CreateOptions { segment_bytes: 1 << 20, retain_bytes, durability, ..Default::default() };
    let journal = Journal::create(dir.path(), &options).unwrap();
    journal
        .commit(|batch| {
            batch.create_log(&"a".parse().unwrap(), 100_000)?;
            batch.define_function(&"f".parse().unwrap(), "{}")
        })
        .unwrap();
    dir
}

fn start(dir: &Path, operation: Operation) -> Child {
    Child::start(&|stop| {
        let journal = open(dir);
        let log = journal.log(&"a".parse().unwrap()).unwrap();
        stop();
        operation(&journal, &log).unwrap();
        std::mem::forget((journal, log)); // It ends without closing, as it would when killed.
    })
}

/// Everything in the namespace that other processes can see, but for the middle of large files.
fn visible(dir: &Path) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::os::unix::fs::FileExt;
    let mut hasher = DefaultHasher::new();
    for folder in ["", "segments", "index"] {
        let mut files: Vec<_> = fs::read_dir(dir.join(folder)).unwrap().flatten().map(|file| file.path()).collect();
        files.sort();
        for path in files.iter().filter(|path| path.is_file()) {
            let file = fs::File::open(path).unwrap();
            let length = file.metadata().unwrap().len();
            let mut bytes = vec![0; 16 << 10];
            path.hash(&mut hasher);
            for from in [0, length.saturating_sub(bytes.len() as u64)] {
                let read = file.read_at(&mut bytes, from).unwrap();
                bytes[..read].hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

/// After how many instructions to kill: all of them, or around each that changed something.
fn moments(operation: Operation, prepare: fn(&Journal)) -> Vec<u64> {
    let dir = namespace();
    let survivor = open(dir.path());
    prepare(&survivor);
    let child = start(dir.path(), operation);
    let (mut k, mut chosen, mut before) = (0, BTreeSet::new(), visible(dir.path()));
    while child.step() {
        k += 1;
        assert!(k < STEPS_MAX, "the operation does not end");
        let now = visible(dir.path());
        if now != std::mem::replace(&mut before, now) {
            chosen.extend(k.saturating_sub(1)..=k + 1); // Runs differ by an instruction or two.
        }
    }
    let every_step = std::env::var_os("MILLRACE_EVERY_STEP").is_some();
    if k <= if every_step { DENSE_MAX } else { DENSE_ALWAYS_MAX } {
        return (0..=k + 2).collect();
    }
    if every_step {
        return chosen.into_iter().collect();
    }
    chosen.extend((0..=k).step_by((k / 200).max(SPARSE) as usize));
    // Copying a large batch is many changes that differ in nothing but how far it got.
    let every = chosen.len().div_ceil((STEPS_TOTAL / k).clamp(50, KILLS_MAX) as usize);
    chosen.into_iter().step_by(every).collect()
}

fn kill_everywhere(name: &str, operation: Operation, entries: usize, prepare: fn(&Journal)) {
    let started = Instant::now();
    let moments = moments(operation, prepare);
    eprintln!("{name}: {} moments in {:?}", moments.len(), started.elapsed());
    assert!(moments.len() > 20, "{name} can't be over after {} instructions", moments.len());
    for some in moments.chunks(PER_DIR as usize) {
        let dir = namespace();
        let mut survivor = Some(open(dir.path()));
        let mut ledger = Ledger::of(survivor.as_ref().unwrap());
        for (round, k) in some.iter().enumerate() {
            let journal = survivor.take().unwrap();
            prepare(&journal);
            let position = ledger.all.last().unwrap().0;
            ledger.take(contents(&journal, position).split_off(1), "prepared");
            let child = start(dir.path(), operation);
            let _ = (0..*k).all(|_| child.step());
            // Every eighth time nobody survives: the other one has gone while the child was in the middle.
            let kept = (round % 8 != 7).then_some(journal);
            drop(child);
            let journal = kept.unwrap_or_else(|| open(dir.path()));
            ledger.verify(&journal, entries, &format!("{name}, killed after {k} instructions"));
            survivor = Some(journal);
        }
        ledger.verify_all(survivor.as_ref().unwrap());
    }
    let last = moments.last().unwrap();
    eprintln!("{name}: {} kills within {last} instructions, {:?}", moments.len(), started.elapsed());
}

/// The word of the control page that commits a batch.
fn last(control: &fs::File) -> [u8; 8] {
    use std::os::unix::fs::FileExt;
    let mut last = [0; 8];
    control.read_exact_at(&mut last, 128 + 8).unwrap();
    last
}

/// Kills after instructions behind the one that commits, until the batch is shown: after every third, or with a wider stride
/// that makes about [`KILLS_BEHIND_MAX`] kills. How many instructions there are before the commit varies.
fn kill_behind_the_commit(name: &str, operation: Operation, entries: usize) {
    let dir = namespace();
    let journal = open(dir.path());
    let control = fs::File::open(dir.path().join("control")).unwrap();
    let start_to_commit = || {
        let before = last(&control);
        let child = start(dir.path(), operation);
        while last(&control) == before {
            assert!(child.step(), "{name} commits nothing");
        }
        child
    };
    let mut ledger = Ledger::of(&journal);
    let tail = journal.tail();
    let probe = start_to_commit();
    let shown_after = (1u64..).find(|_| !probe.step() || journal.tail() != tail).expect("an operation ends");
    drop(probe);
    ledger.verify(&journal, entries, &format!("{name}, killed when it was shown"));
    let every_step = std::env::var_os("MILLRACE_EVERY_STEP").is_some();
    let stride = if every_step { 3 } else { (shown_after / KILLS_BEHIND_MAX).max(3) };
    for behind in (0..).step_by(stride as usize) {
        let tail = journal.tail();
        let child = start_to_commit();
        let over = !(0..behind).all(|_| child.step()) || journal.tail() != tail;
        drop(child);
        ledger.verify(&journal, entries, &format!("{name}, killed {behind} instructions behind its commit"));
        if over {
            assert!(behind > 20, "{name} is over {behind} instructions behind its commit");
            break;
        }
    }
    ledger.verify_all(&journal);
    eprintln!("{name}: a kill after every {stride} of {shown_after} instructions behind the commit");
}

type Test = fn(&str);

fn main() {
    pin_to_one_processor();
    let tests: [(&'static str, Test); 10] = [
        ("append", |name| kill_everywhere(name, append, 1, |_| {})),
        ("batch", |name| kill_everywhere(name, batch, 4, |_| {})),
        ("append, committed", |name| kill_behind_the_commit(name, append, 1)),
        ("batch, committed", |name| kill_behind_the_commit(name, batch, 4)),
        ("trim", |name| kill_everywhere(name, trim, 1, |_| {})),
        ("wait", |name| kill_everywhere(name, wait, 0, |_| {})),
        ("define", |name| kill_everywhere(name, define, 1, |_| {})),
        ("switch", |name| kill_everywhere(name, switch, 4, fill_segment)),
        ("takeover", |_| takeover_killed_everywhere()),
        ("recovery", |_| recovery_killed_everywhere()),
    ];
    let trial = |(name, test): (&'static str, Test)| {
        Trial::test(name, move || {
            test(name);
            Ok(())
        })
    };
    // One after the other, on this thread: who forks must have no other.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests.map(trial).into()).exit();
}

/// Parent and child take turns: on one processor that is several times faster.
fn pin_to_one_processor() {
    // SAFETY: an all-zero set is valid, and the call reads no more than its size; a refusal only costs time.
    // So does one of the priority, which spares each step a wait behind whatever else is busy.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        libc::setpriority(libc::PRIO_PROCESS, 0, -15);
    }
}

/// A process that is killed while it takes over from a killed one; the last survivor takes over from both.
fn takeover_killed_everywhere() {
    let dir = namespace();
    let survivor = open(dir.path());
    let mut ledger = Ledger::of(&survivor);
    let middle = {
        // The newest point at which a batch is whole but not yet told, found from the probe: half of the instructions.
        let all = moments(batch, |_| {});
        all[all.len() * 3 / 4]
    };
    let started = Instant::now();
    let (mut k, mut kills, mut over) = (0, 0, false);
    while !over {
        let first = start(dir.path(), batch);
        let _ = (0..middle).all(|_| first.step());
        let second = start_before_death(dir.path());
        drop(first);
        over = !(0..k).all(|_| second.step());
        drop(second);
        let new = contents(&survivor, ledger.all.last().unwrap().0).len();
        assert!(new >= 1, "after {k}");
        let log = survivor.log(&"a".parse().unwrap()).unwrap();
        survivor.commit(|batch| batch.append(&log, b"third", EventId::NONE, 0)).unwrap();
        let position = ledger.all.last().unwrap().0;
        let new = contents(&survivor, position).split_off(1);
        let batches = new.iter().filter(|entry| entry.5).count();
        assert!((1..=3).contains(&batches), "{batches} batches after {k} instructions");
        assert!(matches!(new.len(), 1 | 2 | 5 | 6), "{} entries after {k} instructions of a takeover", new.len());
        ledger.take(new, "takeover");
        kills += 1;
        k += 97;
    }
    ledger.verify_all(&survivor);
    eprintln!("takeover: {kills} kills within {k} instructions, {:?}", started.elapsed());
    assert!(kills > 20);
}

/// A child that appends, having opened the namespace while the lock's owner was still alive.
fn start_before_death(dir: &Path) -> Child {
    start(dir, append)
}

/// Recovery, stopped wherever it changed a byte: what a death leaves there is a copy of the files, and must recover.
fn recovery_killed_everywhere() {
    let started = Instant::now();
    let dir = namespace();
    let journal = open(dir.path());
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    for _ in 0..20 {
        batch(&journal, &log).unwrap();
    }
    let committed = contents(&journal, Position::default());
    let epoch = journal.epoch();
    let child = start(dir.path(), batch);
    let _ = (0..600).all(|_| child.step());
    drop((journal, log));
    drop(child);
    let recovering = Child::start(&|stop| {
        stop();
        std::mem::forget(open(dir.path()));
    });
    let (mut k, mut copies, mut before) = (0u64, 0, 0);
    while recovering.step() {
        k += 1;
        assert!(k < STEPS_MAX, "recovery does not end");
        // The scan of free space is most of it and changes nothing; looking costs more than stepping.
        if k > 100_000 && !k.is_multiple_of(64) {
            continue;
        }
        let now = visible(dir.path());
        if now == std::mem::replace(&mut before, now) {
            continue;
        }
        let copy = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
        copy_namespace(dir.path(), copy.path());
        let recovered = open(copy.path());
        let context = format!("recovery killed after {k} instructions");
        let found = contents(&recovered, Position::default());
        assert_eq!(found[..committed.len()], committed[..], "{context}");
        assert!(recovered.epoch() > epoch, "{context}");
        assert_eq!(found.iter().map(|e| e.1).collect::<HashSet<_>>().len(), found.len(), "{context}: an id twice");
        let log = recovered.log(&"a".parse().unwrap()).unwrap();
        append(&recovered, &log).unwrap();
        assert_eq!(recovered.check(&mut |_, _| {}).unwrap().fault_count, 0, "{context}");
        copies += 1;
    }
    eprintln!("recovery: {copies} deaths within {k} instructions, {:?}", started.elapsed());
    assert!(copies > 50, "{copies}");
}

fn copy_namespace(from: &Path, to: &Path) {
    for folder in ["", "segments", "index"] {
        fs::create_dir_all(to.join(folder)).unwrap();
        for file in fs::read_dir(from.join(folder)).unwrap().flatten().filter(|file| file.path().is_file()) {
            fs::copy(file.path(), to.join(folder).join(file.file_name())).unwrap();
        }
    }
}
