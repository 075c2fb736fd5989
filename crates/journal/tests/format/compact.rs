//! Entries with short headers: they say what was staged, wherever their batch comes to stand and whatever is damaged around them.

use crate::model::{Random, create, entries, open};
use millrace_journal::{
    Attempt, Durability, End, Entry, Function, Journal, Kind, Log, Origin, Position, Run, Transaction,
    medium::sim::SimDisk,
};
use millrace_wire::{Code, EventId, Hlc, NamespaceId, Result};
use std::path::Path;

const SEGMENT: u64 = 1 << 20;
const COMPACT: u8 = 32;

/// Entries as they were staged: id, cause, subject, seqno (0 if it is not known), ordinal, and the bytes of a record.
type Staged = (EventId, EventId, u32, u64, u16, Vec<u8>);

fn without_control(disk: &SimDisk) -> SimDisk {
    let mut files = disk.files();
    files.remove("control");
    SimDisk::with_files(files)
}

/// How many entries have short headers, as their bytes say.
fn compact(disk: &SimDisk, entries: &[Entry]) -> usize {
    let files = disk.files();
    let flags = |entry: &&Entry| {
        let at = entry.position.get();
        files[&format!("segments/{:010}", at / SEGMENT)][(at % SEGMENT) as usize + 13]
    };
    entries.iter().filter(|entry| flags(entry) & COMPACT != 0).count()
}

struct Stager {
    own: NamespaceId,
    epoch: u32,
    logs: Vec<Log>,
    function: Function,
    random: Random,
    pending: Vec<Run>,
    staged: Vec<Staged>,
}

impl Stager {
    fn new(journal: &Journal) -> Self {
        let (logs, function) = journal
            .commit(|batch| {
                let logs = ["a", "b"].map(|name| batch.create_log(&name.parse().unwrap(), 100_000));
                let logs = logs.into_iter().collect::<Result<Vec<Log>>>()?;
                Ok((logs, batch.define_function(&"f".parse().unwrap(), "{}")?))
            })
            .unwrap()
            .value;
        let (own, epoch, random) = (journal.namespace(), journal.epoch(), Random::new("compact"));
        Self { own, epoch, logs, function, random, pending: Vec::new(), staged: Vec::new() }
    }

    fn cause(&mut self) -> EventId {
        let random = &mut self.random;
        let foreign = NamespaceId::new(0xABCD).unwrap();
        let before = self.staged.len().checked_sub(1 + random.below(4)).map_or(EventId::NONE, |at| self.staged[at].0);
        match random.below(6) {
            0 | 1 => EventId::NONE,
            2 => before,
            3 => EventId::new(foreign, 3, random.next() >> random.below(60).max(8)),
            4 => EventId::new(self.own, self.epoch - 1, 1 + random.below(500) as u64),
            _ => EventId::new(self.own, self.epoch, random.next() >> 8),
        }
    }

    /// Stages one entry of any sort that has a short header if it may.
    fn one(&mut self, batch: &mut Transaction<'_>) -> Result<()> {
        let (cause, ordinal) = (self.cause(), [0, 1, 40_000][self.random.below(3)]);
        let length = [0, 1, 16, 17, 100, 900, 5000][self.random.below(7)];
        let run = self.random.below(self.pending.len().max(1));
        match self.random.below(8) {
            0 | 1 if !self.staged.is_empty() => {
                let record = self.staged.last().expect("not empty").0;
                let run = batch.trigger(self.function.id(), record, &self.logs[0], 1, Origin::Retry)?;
                self.pending.push(run);
                self.staged.push((run.id, record, self.function.id(), run.number, Origin::Retry as u16, Vec::new()));
            }
            2 if !self.pending.is_empty() => {
                let run = self.pending[run];
                let attempt = Attempt { attempt: 2, revision: 1, ..Attempt::default() };
                let id = batch.fired(self.function.id(), run, &attempt)?;
                self.staged.push((id, run.id, self.function.id(), run.number, 2, Vec::new()));
            }
            3 if !self.pending.is_empty() => {
                let run = self.pending.remove(run);
                let id = batch.done(self.function.id(), run, &End::default())?;
                self.staged.push((id, run.id, self.function.id(), run.number, u16::MAX, Vec::new()));
            }
            // What has a full header always.
            4 if self.random.below(8) == 0 => {
                let name = format!("log{}", self.staged.len());
                let log = batch.create_log(&name.parse().unwrap(), 5)?;
                self.staged.push((EventId::NONE, EventId::NONE, log.id(), 0, 0, Vec::new()));
            }
            5 if self.random.below(8) == 0 => batch.observe(Hlc::from_bits(batch.clock().get() + 7)),
            _ => {
                let (log, payload) = (self.logs[self.random.below(2)].clone(), self.random.bytes(length));
                let appended = batch.append(&log, &payload, cause, ordinal)?;
                self.staged.push((appended.id, cause, log.id(), appended.seqno, ordinal, payload));
            }
        }
        Ok(())
    }
}

#[test]
fn whatever_is_staged_is_read() {
    for durability in [Durability::Disk, Durability::Memory] {
        let (disk, medium, journal, _) = create(durability);
        let mut stager = Stager::new(&journal);
        let from = journal.tail();
        while journal.tail().get() < 4 * SEGMENT {
            let most = if stager.random.below(4) == 0 { 400 } else { 20 };
            let count = 1 + stager.random.below(most);
            journal.commit(|batch| (0..count).try_for_each(|_| stager.one(batch))).unwrap();
        }
        journal.sync(journal.tail()).unwrap();
        let report = journal.check(&mut |_, _| {}).unwrap();
        assert_eq!(report.fault_count, 0, "{:?}", report.faults);
        let staged = |journal: &Journal| -> Vec<Entry> {
            entries(journal, from).into_iter().filter(|entry| entry.kind != Kind::Mark).collect()
        };
        let found = staged(&journal);
        medium.kill();
        let recovered = open(&without_control(&disk).process()).unwrap();
        let again = staged(&recovered);
        for found in [&found[..], &again[..found.len()]] {
            assert_eq!(found.len(), stager.staged.len());
            for (entry, (id, cause, subject, seqno, ordinal, payload)) in found.iter().zip(&stager.staged) {
                assert_eq!((entry.cause, entry.subject), (*cause, *subject), "{entry:?}");
                let ordinal = if *ordinal == u16::MAX { entry.ordinal } else { *ordinal };
                assert!(id.is_none() || (entry.id, entry.seqno, entry.ordinal) == (*id, *seqno, ordinal), "{entry:?}");
                assert!(payload.is_empty() || entry.payload == *payload);
            }
        }
        assert!(found.windows(2).all(|pair| pair[0].hlc < pair[1].hlc && pair[0].id < pair[1].id));
        let compact = compact(&disk, &found);
        println!("{compact} of {} compact", found.len());
        assert!(compact > found.len() / 2, "{compact} of {}", found.len());
    }
}

#[test]
fn small_records_in_a_batch_take_little() {
    let (_disk, _medium, journal, _) = create(Durability::Memory);
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
    let from = journal.tail().get();
    for _ in 0..50 {
        journal
            .commit(|batch| (0..100).try_for_each(|_| batch.append(&log, &[7; 16], EventId::NONE, 0).map(drop)))
            .unwrap();
    }
    let bytes = journal.tail().get() - from;
    assert!(bytes <= 33 * 5000, "{} bytes each", bytes as f64 / 5000.0);
}

/// A batch of full and short headers that ends as near to the end of its segment as there is room for it.
#[test]
fn a_batch_that_ends_with_its_segment_is_read() {
    for (left, durability) in (0..12).flat_map(|n| [(n * 16, Durability::Memory), (n * 16, Durability::Disk)]) {
        let (disk, medium, journal, _) = create(durability);
        let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
        while SEGMENT - journal.tail().get() > 3000 {
            let room = SEGMENT - journal.tail().get() - 2000 - left;
            let bytes = if room > 20_000 { 10_000 } else { room as usize - 64 };
            journal.commit(|batch| batch.append(&log, &vec![7; bytes], EventId::NONE, 0)).unwrap();
        }
        let before = log.latest();
        // One of 80 bytes, and of 32 each: the last one of them ends with the segment, or begins with less than 64 left.
        let mut count = 0;
        while journal.tail().get() < SEGMENT {
            journal
                .commit(|batch| (0..9).try_for_each(|n| batch.append(&log, &[n; 16], EventId::NONE, 0).map(drop)))
                .unwrap();
            count += 9;
        }
        journal.sync(journal.tail()).unwrap();
        medium.kill();
        for disk in [disk.clone(), without_control(&disk)] {
            let journal = open(&disk.process()).unwrap();
            assert_eq!(journal.recovery().discarded_bytes, 0, "{left} left");
            let log = journal.log(&"a".parse().unwrap()).unwrap();
            assert_eq!(log.latest(), before + count);
            let mut payload = Vec::new();
            for n in 0..count {
                journal.get(&log, before + 1 + n, &mut payload).unwrap();
                assert_eq!(payload, [(n % 9) as u8; 16]);
                let place = journal.position(&log, before + 1 + n).get() % SEGMENT;
                assert!(place <= SEGMENT - 64, "an entry at {place:#x}");
            }
            assert_eq!(journal.check(&mut |_, _| {}).unwrap().fault_count, 0);
        }
    }
}

/// A DEFINE says where the one before stands, which changes when both move on to the next segment.
#[test]
fn records_of_a_log_that_its_batch_defines_move_with_it() {
    for durability in [Durability::Memory, Durability::Disk] {
        let (disk, medium, journal, _) = create(durability);
        let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
        while SEGMENT - journal.tail().get() > 1100 {
            let bytes = (SEGMENT - journal.tail().get() - 1000).clamp(64, 10_000) - 64;
            journal.commit(|batch| batch.append(&log, &vec![7; bytes as usize], EventId::NONE, 0)).unwrap();
        }
        let moved = journal.commit(|batch| {
            batch.create_log(&"b".parse().unwrap(), 5)?;
            let log = batch.create_log(&"c".parse().unwrap(), 100)?;
            (0..40).try_for_each(|n| batch.append(&log, &[n; 16], EventId::NONE, 0).map(drop))?;
            Ok(log)
        });
        let log = moved.unwrap().value;
        assert!(journal.position(&log, 1).get() > SEGMENT);
        journal.sync(journal.tail()).unwrap();
        medium.kill();
        let journal = open(&without_control(&disk).process()).unwrap();
        let all = entries(&journal, Position::default());
        let defines: Vec<_> = all.iter().filter(|entry| entry.kind == Kind::Define).collect();
        assert!(defines.len() == 3 && defines.windows(2).all(|pair| pair[1].seqno == pair[0].position.get()));
        let (log, mut payload) = (journal.log(&"c".parse().unwrap()).unwrap(), Vec::new());
        assert_eq!(log.latest(), 40);
        for n in 0..40 {
            journal.get(&log, n + 1, &mut payload).unwrap();
            assert_eq!(payload, [n as u8; 16]);
        }
    }
}

/// What one flipped bit costs: the entry that it hits, and where it hits what of a head others are read by, those.
#[test]
fn a_flipped_bit_in_a_batch_costs_what_is_read_by_it_and_no_more() {
    let (disk, medium, journal, _) = create(Durability::Disk);
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100_000)).unwrap().value;
    journal.commit(|batch| (0..6).try_for_each(|n| batch.append(&log, &[n; 30], EventId::NONE, 0).map(drop))).unwrap();
    journal.commit(|batch| batch.append(&log, &[6; 30], EventId::NONE, 0)).unwrap();
    journal.sync(journal.tail()).unwrap();
    let places: Vec<u64> = (1..=7).map(|seqno| journal.position(&log, seqno).get()).collect();
    assert_eq!(places[5] - places[0], 96 + 4 * 48);
    medium.kill();
    let files = without_control(&disk).files();
    for bit in 8 * places[0]..8 * places[6] {
        let (at, mut files) = ((bit / 8) as usize, files.clone());
        files.get_mut("segments/0000000000").unwrap()[at] ^= 1 << (bit % 8);
        let hit = places.iter().rposition(|place| *place <= at as u64).unwrap();
        let offset = at as u64 - places[hit];
        let is_unused = offset >= if hit == 0 { 94 } else { 15 + 30 };
        let lost = match (hit, offset) {
            _ if is_unused => 0..0,
            (0, 12..64) => 0..6,
            _ => hit..hit + 1,
        };
        let view = Journal::view_on(SimDisk::with_files(files).process(), Path::new("sim")).unwrap();
        let log = view.log(&"a".parse().unwrap()).unwrap();
        let mut payload = Vec::new();
        for n in 0..7 {
            // Behind the last proof of what was durable damage is a torn tail, and the batch is not there at all.
            match view.get(&log, n as u64 + 1, &mut payload) {
                Ok(_) => assert!(payload == [n as u8; 30] && !lost.contains(&n), "bit {bit}: record {n}"),
                Err(error) => {
                    assert!([Code::EntryDamaged, Code::AboveTail].contains(&error.code()), "{error}");
                    assert!(!lost.is_empty(), "bit {bit}: record {n} is lost");
                    assert!(lost.contains(&n) || error.code() == Code::AboveTail, "bit {bit}: record {n}: {error}");
                }
            }
        }
    }
}

/// Of a batch that was rolled back, an entry stands where the next batch has one: it was written behind another head.
#[test]
fn nothing_is_read_by_another_head_than_it_was_written_behind() {
    let (disk, medium, journal, _) = create(Durability::Memory);
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 100)).unwrap().value;
    let (at, name) = (journal.tail().get() as usize, "segments/0000000000");
    let mut rolled_back = Vec::new();
    let refused: Result<()> = journal
        .commit(|batch| {
            (0..3).try_for_each(|_| batch.append(&log, b"rolled back", EventId::NONE, 0).map(drop))?;
            rolled_back = disk.files()[name][at + 80..at + 112].to_vec();
            Err::<(), _>(Code::AboveTail.error("rolled back"))
        })
        .map(drop);
    refused.unwrap_err();
    assert_eq!((rolled_back[12], rolled_back[13]), (Kind::Append as u8, COMPACT));
    let committed = journal.commit(|batch| {
        batch.observe(Hlc::from_bits(batch.clock().get() + 100));
        (0..3).try_for_each(|_| batch.append(&log, b"committed!!", EventId::NONE, 0).map(drop))
    });
    committed.unwrap();
    journal.commit(|batch| batch.append(&log, b"committed!!", EventId::NONE, 0)).unwrap();
    assert_eq!(journal.position(&log, 2).get() as usize, at + 80);
    journal.sync(journal.tail()).unwrap();
    medium.kill();
    let mut files = disk.files(); // The control page says that all of it was durable.
    files.get_mut(name).unwrap()[at + 80..at + 112].copy_from_slice(&rolled_back);
    let view = Journal::view_on(SimDisk::with_files(files).process(), Path::new("sim")).unwrap();
    let (log, mut payload) = (view.log(&"a".parse().unwrap()).unwrap(), Vec::new());
    for seqno in 1..=4 {
        let got = view.get(&log, seqno, &mut payload).map(|_| payload.clone());
        match got {
            Ok(payload) => assert!(seqno != 2 && payload == b"committed!!", "{seqno}: {payload:?}"),
            Err(error) => assert_eq!((seqno, error.code()), (2, Code::EntryDamaged), "{error}"),
        }
    }
}
