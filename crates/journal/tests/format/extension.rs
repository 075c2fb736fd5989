//! Additions of later versions to the format: the tests write entries after the end of a namespace, as the specification defines them, and
//! this version ignores them or refuses the namespace, by their kinds, flags and keys.

use millrace_journal::{CreateOptions, Durability, Journal, Kind, OpenOptions, Origin, Position, map};
use millrace_wire::{Code, EventId, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};

const LAST: u8 = 1;
const SHADOW: u8 = 4;
const CLAIMED: u8 = 8;
const EXTENDED: u8 = 16;
const COMPACT: u8 = 32;

const APPEND: u8 = Kind::Append as u8;
const TRIGGER: u8 = Kind::Trigger as u8;
const DONE: u8 = Kind::Done as u8;

/// An entry of a later version.
#[derive(Clone, Copy)]
struct Later<'p> {
    kind: u8,
    flags: u8,
    subject: u32,
    seqno: u64,
    payload: &'p [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn mask(segment: &[u8], position: u64) -> u32 {
    let first = position ^ u64_at(segment, 40);
    let second = (first ^ first >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ u64_at(segment, 48);
    let third = (second ^ second >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (third ^ third >> 31) as u32
}

/// A namespace with log 1 `a`, which has two records, and function 2 `f`, which has a pending run; no process has it open.
fn namespace() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("ns");
    let (segment_bytes, retain_bytes, durability) = (1 << 20, 1 << 20, Durability::Disk);
    let options = CreateOptions { segment_bytes, retain_bytes, durability, ..CreateOptions::default() };
    let journal = Journal::create(&dir, &options).unwrap();
    let committed = journal.commit(|batch| {
        let log = batch.create_log(&"a".parse().unwrap(), 10)?;
        let function = batch.define_function(&"f".parse().unwrap(), "{}")?;
        let record = batch.append(&log, b"one", EventId::NONE, 0)?;
        batch.trigger(function.id(), record.id, &log, record.seqno, Origin::Bound)?;
        batch.append(&log, b"two", EventId::NONE, 0)
    });
    committed.unwrap();
    drop(journal);
    (parent, dir)
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("segments/0000000000")
}

/// Adds entries after the last one, and makes the next open read the journal.
fn add(dir: &Path, entries: &[Later<'_>]) -> u64 {
    let mut bytes = fs::read(segment(dir)).unwrap();
    let (mut at, mut last) = (64, 64);
    while u32_at(&bytes, at + 4) != 0 {
        last = at;
        let length =
            if bytes[at + 13] & COMPACT != 0 { u32_at(&bytes, at + 4) & 0xFFF } else { u32_at(&bytes, at + 4) };
        at += length.next_multiple_of(16) as usize;
    }
    // If the last entry is compact, the fields that follow from its head are taken from there.
    let (back, count) = match bytes[last + 13] & COMPACT {
        0 => (0, 0),
        _ => ((u32_at(&bytes, last + 4) >> 12 & 0xFF) as usize * 16, u64::from(u32_at(&bytes, last + 4) >> 20 & 0xFF)),
    };
    let before: [u64; 3] = [16, 24, 48].map(|field| u64_at(&bytes, last - back + field));
    let (mut sequence, hlc, epoch) = (before[0] + count, before[1] + count, before[2] as u32);
    let first = at as u64;
    for later in entries {
        let mut entry = vec![0; 64];
        entry[4..8].copy_from_slice(&(64 + later.payload.len() as u32).to_le_bytes());
        entry[8..12].copy_from_slice(&bytes[last..last + 4]);
        (entry[12], entry[13]) = (later.kind, later.flags);
        sequence += 1;
        entry[16..24].copy_from_slice(&sequence.to_le_bytes());
        entry[24..32].copy_from_slice(&hlc.to_le_bytes());
        entry[48..52].copy_from_slice(&epoch.to_le_bytes());
        entry[52..56].copy_from_slice(&later.subject.to_le_bytes());
        entry[56..64].copy_from_slice(&later.seqno.to_le_bytes());
        entry.extend_from_slice(later.payload);
        let crc = crc_fast::crc32_iscsi(&entry[4..]) ^ mask(&bytes, at as u64);
        entry[..4].copy_from_slice(&crc.to_le_bytes());
        bytes[at..at + entry.len()].copy_from_slice(&entry);
        last = at;
        at += entry.len().next_multiple_of(16);
    }
    fs::write(segment(dir), bytes).unwrap();
    fs::remove_file(dir.join("control")).unwrap();
    first
}

fn open(dir: &Path) -> Result<Journal> {
    Journal::open(dir, &OpenOptions { background: false })
}

fn append(journal: &Journal, payload: &[u8]) -> u64 {
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    journal.commit(|batch| batch.append(&log, payload, EventId::NONE, 0)).unwrap().value.seqno
}

fn get(journal: &Journal, seqno: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    journal.get(&journal.log(&"a".parse().unwrap()).unwrap(), seqno, &mut payload).unwrap();
    payload
}

/// The result of a scan: kinds and seqnos.
fn scanned(journal: &Journal, from: u64) -> Vec<(Kind, u64)> {
    let (mut scan, mut found) = (journal.scan(Position::from_bytes(from)), Vec::new());
    while let Some(entry) = scan.next().unwrap() {
        found.push((entry.kind, entry.seqno));
    }
    found
}

/// A map of one field.
fn field(key: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    map::push(&mut bytes, key, b"later");
    bytes
}

/// A payload with this map as its extension.
fn extended(extension: &[u8], payload: &[u8]) -> Vec<u8> {
    [&(extension.len() as u16).to_le_bytes()[..], extension, payload].concat()
}

const NEW: Later<'static> = Later { kind: APPEND, flags: LAST, subject: 1, seqno: 3, payload: b"three" };

#[test]
fn what_may_be_ignored_stays_and_does_nothing() {
    let (_parent, dir) = namespace();
    let mut trigger = vec![1, 1, 1, 2, 1, 3]; // log 1, seqno 3
    trigger.extend_from_slice(&field(0x89));
    let with_extension = extended(&field(0x81), b"three");
    let from = add(
        &dir,
        &[
            Later { kind: 200, flags: LAST, subject: 1, seqno: 77, payload: b"of a kind to come" },
            Later { flags: EXTENDED | 128, payload: &with_extension, ..NEW },
            Later { kind: TRIGGER, flags: 128, subject: 2, seqno: 2, payload: &trigger },
            Later { kind: 255, flags: LAST, subject: 0, seqno: 0, payload: &[] },
        ],
    );
    let before = fs::read(segment(&dir)).unwrap();
    for round in 0..2 {
        let journal = open(&dir).unwrap();
        assert_eq!((journal.recovery().discarded_bytes, get(&journal, 3)), (0, b"three".to_vec()));
        let found = scanned(&journal, from);
        assert_eq!(found[..3], [(Kind::Append, 3), (Kind::Trigger, 2), (Kind::Open, 0)]);
        assert_eq!(append(&journal, b"more"), 4 + round);
        let report = journal.check(&mut |_, _| {}).unwrap();
        assert_eq!((report.fault_count, report.entries["IGNORED"]), (0, 2), "{:?}", report.faults);
        assert_eq!(journal.catalog().unwrap().function("f").unwrap().triggered(), 2);
        drop(journal);
        let _ = fs::remove_file(dir.join("control"));
    }
    let end = before.iter().rposition(|byte| *byte != 0).unwrap();
    assert_eq!(fs::read(segment(&dir)).unwrap()[..end], before[..end], "it stands where it stood");
}

/// All authoritative files, and their contents.
fn truth(dir: &Path) -> (Vec<u8>, Vec<u8>) {
    (fs::read(dir.join("manifest")).unwrap(), fs::read(segment(dir)).unwrap())
}

#[test]
fn what_must_not_be_ignored_refuses_the_namespace_by_name_and_changes_nothing() {
    let of_read = field(3);
    let of_extension = extended(&field(17), b"three");
    let refused: [(Later<'_>, &str); 7] = [
        (Later { kind: 13, ..NEW }, "an entry of kind 13"),
        (Later { kind: 8, ..NEW }, "an entry of kind 8"),
        (Later { kind: 127, flags: 0, ..NEW }, "an entry of kind 127"), // an incomplete batch is not taken for a torn tail either
        (Later { flags: LAST | 64, ..NEW }, "an entry with flag 64"),
        (Later { kind: TRIGGER, subject: 2, seqno: 2, payload: &[1, 1, 1, 7, 0], ..NEW }, "a TRIGGER with key 7"),
        (Later { kind: Kind::Read as u8, subject: 2, payload: &of_read, ..NEW }, "a READ with key 3"),
        (Later { flags: LAST | EXTENDED, payload: &of_extension, ..NEW }, "an entry with key 17 in its extension"),
    ];
    for (later, name) in refused {
        let (_parent, dir) = namespace();
        let at = add(&dir, &[Later { seqno: 3, ..NEW }, Later { seqno: 4, ..later }]) + 80;
        let before = truth(&dir);
        for opened in [open(&dir).map(drop), Journal::view(&dir).map(drop), open(&dir).map(drop)] {
            let error = opened.expect_err(name);
            assert_eq!(error.code(), Code::FormatVersion, "{error}");
            let place = Position::from_bytes(at).to_string();
            assert!(error.detail().contains(name) && error.detail().contains(&place), "{error}");
        }
        assert!(truth(&dir) == before, "{name}: something was changed");
    }
}

#[test]
fn what_is_damaged_is_no_later_version() {
    let (_parent, dir) = namespace();
    let at = add(&dir, &[Later { kind: 13, ..NEW }]) as usize;
    let mut bytes = fs::read(segment(&dir)).unwrap();
    bytes[at + 64] ^= 1;
    fs::write(segment(&dir), bytes).unwrap();
    let journal = open(&dir).unwrap();
    assert!(journal.recovery().discarded_bytes > 0, "a torn tail");
    assert_eq!(append(&journal, b"three"), 3);
}

#[test]
fn a_shadow_counts_for_nothing_and_stands_in_the_chain() {
    let (_parent, dir) = namespace();
    let trigger = [1, 1, 1, 2, 1, 1]; // log 1, seqno 1
    let from = add(
        &dir,
        &[
            Later { flags: SHADOW, seqno: 2, payload: b"another two", ..NEW },
            Later { flags: SHADOW, seqno: 9, payload: b"nine", ..NEW },
            Later { kind: TRIGGER, flags: SHADOW, subject: 2, seqno: 8, payload: &trigger },
            Later { kind: DONE, flags: SHADOW, subject: 2, seqno: 1, payload: &[] },
            Later { kind: Kind::Trim as u8, flags: SHADOW | LAST, subject: 1, seqno: 3, payload: &[] },
        ],
    );
    let journal = open(&dir).unwrap();
    let log = journal.log(&"a".parse().unwrap()).unwrap();
    assert_eq!((log.earliest(), log.latest(), get(&journal, 2)), (1, 2, b"two".to_vec()));
    let function = journal.catalog().unwrap().function("f").unwrap().clone();
    assert_eq!((function.triggered(), function.done()), (1, 0));
    assert_eq!(scanned(&journal, from), [(Kind::Open, 0)]);
    let (mut scan, mut shadows) = (journal.scan_all(Position::from_bytes(from)), 0);
    while let Some(entry) = scan.next().unwrap() {
        assert_eq!(entry.shadow, entry.kind != Kind::Open);
        shadows += u64::from(entry.shadow);
    }
    drop(scan);
    assert_eq!(shadows, 5);
    let report = journal.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.fault_count, 0, "{:?}", report.faults);
    // No shadow entry is live, so all of them are lost with their segment.
    for _ in 0..8_000 {
        append(&journal, &[7; 1000]);
    }
    assert!(journal.maintain(&|_, _| true).unwrap().dropped > 0);
    let mut scan = journal.scan_all(Position::default());
    while let Some(entry) = scan.next().unwrap() {
        assert!(!entry.shadow, "{:?} {}", entry.kind, entry.seqno);
    }
    drop((scan, journal, log, function));
    fs::remove_file(dir.join("control")).unwrap();
    assert_eq!(open(&dir).unwrap().log(&"a".parse().unwrap()).unwrap().latest(), 8_002);
}

#[test]
fn a_copy_keeps_claimed_causes_and_what_an_extension_says() {
    let (_parent, dir) = namespace();
    let with_extension = extended(&field(0x81), b"three");
    add(&dir, &[Later { flags: LAST | CLAIMED | EXTENDED | 128, payload: &with_extension, ..NEW }]);
    let journal = open(&dir).unwrap();
    let fast = journal.commit(|batch| batch.create_log(&"fast".parse().unwrap(), 10)).unwrap().value;
    for _ in 0..8_000 {
        journal.commit(|batch| batch.append(&fast, &[7; 1000], EventId::NONE, 0)).unwrap();
    }
    // Twice, because a copy is copied, too.
    for _ in 0..2 {
        assert!(journal.maintain(&|_, _| true).unwrap().dropped > 0);
        for _ in 0..3_000 {
            journal.commit(|batch| batch.append(&fast, &[7; 1000], EventId::NONE, 0)).unwrap();
        }
    }
    let copied = journal.entry_at(journal.position(&journal.log(&"a".parse().unwrap()).unwrap(), 3)).unwrap();
    assert!(copied.carried && copied.claimed && !copied.shadow);
    assert_eq!(copied.payload, b"three");
    let bytes = segments(&dir);
    let wanted = field(0x81);
    let found = bytes.windows(wanted.len()).filter(|window| *window == wanted).count();
    assert!(found > 0, "the copy lacks the key");
    drop(journal);
    fs::remove_file(dir.join("control")).unwrap();
    assert_eq!(get(&open(&dir).unwrap(), 3), b"three");
}

#[test]
fn the_replay_seed_stands_in_an_open_and_is_shown_to_nobody() {
    let (_parent, dir) = namespace();
    let journal = open(&dir).unwrap();
    let seed = journal.replay_seed();
    let holds_it = |bytes: &[u8]| bytes.windows(16).any(|window| window == seed.bytes());
    assert!(holds_it(&segments(&dir)));
    let (mut scan, mut opens) = (journal.scan_all(Position::default()), 0);
    while let Some(entry) = scan.next().unwrap() {
        assert!(!holds_it(&entry.payload) && !holds_it(&journal.entry_at(entry.position).unwrap().payload));
        opens += u64::from(entry.kind == Kind::Open);
    }
    assert_eq!(opens, 2);
    assert_eq!(format!("{seed:?}"), "ReplaySeed(secret)");
    drop((scan, journal));
    assert_eq!(open(&dir).unwrap().replay_seed(), seed);
}

/// The bytes of all remaining segments.
fn segments(dir: &Path) -> Vec<u8> {
    let files = fs::read_dir(dir.join("segments")).unwrap().flatten();
    let kept = files.filter(|file| !file.file_name().to_string_lossy().starts_with("spare"));
    kept.flat_map(|file| fs::read(file.path()).unwrap()).collect()
}
