//! The bytes of `spec/formats/journal.md`, checked against its golden vector without any code of the journal's own.

use millrace_journal::{CreateOptions, Durability, End, Journal, OpenOptions, Origin, medium::sim::SimDisk};
use millrace_wire::EventId;
use std::path::Path;

const GOLDEN: &str = include_str!("../../../../spec/vectors/journal-first-segment.hex");

fn golden() -> Vec<u8> {
    let digits: String = GOLDEN.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// CRC-32C a bit at a time, from its definition.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

/// Mixes a number with the salt in a segment's header.
fn mix(segment: &[u8], number: u64) -> u64 {
    let first = number ^ u64_at(segment, 40);
    let second = (first ^ first >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ u64_at(segment, 48);
    let third = (second ^ second >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    third ^ third >> 31
}

/// A LEB128 number, and what follows it.
fn leb128(bytes: &[u8]) -> (u64, &[u8]) {
    let last = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    assert!(last == 0 || bytes[last] != 0, "as few bytes as possible");
    let number = bytes[..=last].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7F));
    (number, &bytes[last + 1..])
}

fn unzigzag(number: u64) -> u64 {
    if number.is_multiple_of(2) { number / 2 } else { (number / 2 + 1).wrapping_neg() }
}

/// An entry as the page says.
#[derive(Debug, PartialEq)]
struct Found {
    kind: u8,
    flags: u8,
    ordinal: u64,
    cause: [u64; 2],
    subject: u64,
    seqno: u64,
    payload: Vec<u8>,
}

/// Walks the entries of a first segment as the page says.
fn walk(segment: &[u8]) -> Vec<Found> {
    assert_eq!(segment[..8], *b"MRSEG\0\x03\0");
    assert_eq!(u32_at(segment, 60), crc32c(&segment[..60]));
    assert!(segment[56..60].iter().all(|byte| *byte == 0));
    let (mut at, mut prev, mut sequence, mut found) = (64, u32_at(segment, 32), u64_at(segment, 24), Vec::new());
    while at + 16 <= segment.len() && u32_at(segment, at + 4) != 0 {
        let form = u32_at(segment, at + 4);
        let is_compact = segment[at + 13] & 32 != 0;
        let length = if is_compact { form & 0xFFF } else { form } as usize;
        let entry = &segment[at..at + length];
        let head_at = at - if is_compact { (form >> 12 & 0xFF) as usize * 16 } else { 0 };
        let head = &segment[head_at..];
        let covered = [if is_compact { &head[12..64] } else { &[] }, &entry[4..]].concat();
        assert_eq!(u32_at(entry, 0), crc32c(&covered) ^ mix(segment, at as u64) as u32, "the entry at {at}");
        let count = if is_compact { u64::from(form >> 20 & 0xFF) } else { 0 };
        if entry[12] == 1 || entry[12] == 12 {
            let seal = mix(segment, mix(segment, !(at as u64)) ^ u64_at(entry, 56));
            assert_eq!((u64_at(entry, 32), u64_at(entry, 40)), (seal, 0), "the seal at {at}");
        }
        assert_eq!((u32_at(entry, 8), u64_at(head, 16) + count), (prev, sequence), "the chain at {at}");
        let of_head = ([u64_at(head, 32), u64_at(head, 40)], u64::from(u32_at(head, 52)), u64_at(head, 56));
        let read = if is_compact {
            assert!(count > 0 && head_at < at && head[13] & 33 == 0, "the head of the entry at {at}");
            let mut rest = &entry[14..];
            let mut next = || {
                let number;
                (number, rest) = leb128(rest);
                number
            };
            let ordinal = if form >> 29 & 1 == 1 { next() } else { 0 };
            let (subject, seqno) = match form >> 28 & 1 {
                1 => (next(), next()),
                _ => (of_head.1, of_head.2.wrapping_add(unzigzag(next()))),
            };
            let cause = match form >> 30 {
                0 => [0; 2],
                1 => of_head.0,
                2 => {
                    let id = u128::from(u64_at(segment, 8)) << 80
                        | u128::from(u32_at(head, 48)) << 56
                        | u128::from(sequence - next());
                    [id as u64, (id >> 64) as u64]
                }
                _ => [of_head.0[0].wrapping_add(unzigzag(next())), of_head.0[1]],
            };
            Found { kind: entry[12], flags: entry[13], ordinal, cause, subject, seqno, payload: rest.to_vec() }
        } else {
            let ordinal = u64::from(u32_at(entry, 12) >> 16);
            let (cause, subject, seqno) = of_head;
            Found { kind: entry[12], flags: entry[13], ordinal, cause, subject, seqno, payload: entry[64..].to_vec() }
        };
        found.push(read);
        (prev, sequence) = (u32_at(entry, 0), sequence + 1);
        at += length.next_multiple_of(16);
    }
    found
}

#[test]
fn the_golden_segment_reads_as_the_page_says() {
    let found = walk(&golden());
    let kinds: Vec<(u8, u8)> = found.iter().map(|entry| (entry.kind, entry.flags)).collect();
    assert_eq!(kinds, [(1, 1), (1, 1), (2, 0), (2, 1), (3, 0), (4, 33), (3, 0), (4, 33), (6, 0), (6, 33)]);
    assert_eq!([&found[4].payload[..], &found[6].payload[..]], [&b"golden"[..], b"golden too"]);
    assert_eq!(found[5].payload, [1, 1, 1, 2, 1, 1], "a map: log 1, seqno 1");
    let id = |sequence: u64| {
        let id = u128::from(u64_at(&golden(), 8)) << 80 | 1 << 56 | u128::from(sequence);
        [id as u64, (id >> 64) as u64]
    };
    let reported: Vec<_> = found[4..].iter().map(|entry| (entry.cause, entry.subject, entry.seqno)).collect();
    let run = |sequence, number| (id(sequence), 2, number);
    assert_eq!(reported, [([0; 2], 1, 1), run(5, 1), ([0; 2], 1, 2), run(7, 2), run(6, 1), run(8, 2)]);
}

#[test]
fn the_golden_segment_opens() {
    let mut segment = golden();
    let namespace = u64_at(&segment, 8);
    let salt: String = segment[40..56].iter().map(|byte| format!("{byte:02x}")).collect();
    segment.resize(1 << 20, 0);
    let body = format!(
        "{{\"namespace\":\"{namespace:012x}\",\"salt\":\"{salt}\",\"replay_seed\":\"{salt}\",\"epoch\":2,\"segment_bytes\":1048576,\"retain_bytes\":0,\
         \"retain_age_ms\":null,\"durability\":\"disk\",\"created_us\":0,\"first_segment\":0,\"defined\":0,\"next_id\":1,\
         \"logs\":[],\"functions\":[]}}"
    );
    let manifest = format!("millrace-manifest 3 {:08x} {}\n{body}", crc32c(body.as_bytes()), body.len());
    let disk = SimDisk::with_files([
        ("manifest".to_owned(), manifest.into_bytes()),
        ("segments/0000000000".to_owned(), segment),
    ]);
    let journal = Journal::open_on(disk.process(), Path::new("sim"), &OpenOptions { background: false }).unwrap();
    let log = journal.log(&"a/b".parse().unwrap()).unwrap();
    let mut payload = Vec::new();
    journal.get(&log, 1, &mut payload).unwrap();
    assert_eq!(payload, b"golden");
    let function = journal.catalog().unwrap().function("f").unwrap().clone();
    assert_eq!((journal.epoch(), function.triggered(), function.done()), (3, 2, 2));
}

#[test]
fn written_files_match_the_specification() {
    let disk = SimDisk::default();
    let options = CreateOptions { segment_bytes: 1 << 20, durability: Durability::Disk, ..CreateOptions::default() };
    let journal = Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap();
    let (log, function) = journal
        .commit(|batch| {
            let log = batch.create_log(&"a/b".parse().unwrap(), 10)?;
            Ok((log, batch.define_function(&"f".parse().unwrap(), "{}")?))
        })
        .unwrap()
        .value;
    let run = |payload: &[u8]| {
        let committed = journal.commit(|batch| {
            let record = batch.append(&log, payload, EventId::NONE, 0)?;
            batch.trigger(function.id(), record.id, &log, record.seqno, Origin::Bound)
        });
        committed.unwrap().value
    };
    let runs = [run(b"golden"), run(b"golden too")];
    let ends = journal
        .commit(|batch| runs.iter().try_for_each(|run| batch.done(function.id(), *run, &End::default()).map(drop)));
    let end = ends.unwrap().end;
    let written = &disk.files()["segments/0000000000"][..end.get() as usize];
    if let Some(path) = std::env::var_os("MILLRACE_WRITE_VECTOR") {
        let lines: Vec<String> =
            written.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        let title = "# A first segment up to its tail: OPEN OPEN | DEFINE DEFINE | APPEND TRIGGER | APPEND TRIGGER | DONE DONE. See formats/journal.md.";
        std::fs::write(path, format!("{title}\n{}\n", lines.join("\n"))).unwrap();
    }
    let kinds = |found: Vec<Found>| found.into_iter().map(|entry| (entry.kind, entry.flags)).collect::<Vec<_>>();
    let (found, known) = (kinds(walk(written)), kinds(walk(&golden())));
    assert_eq!(found, known);
}
