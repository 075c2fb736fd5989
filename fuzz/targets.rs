//! What no input may do. Used by the fuzzers and, on the committed corpus, by an ordinary test.

use millrace_journal::{
    Attempt, End, Journal, Manifest, OpenOptions, Position, Reads,
    map::{self, Map},
    medium::sim::SimDisk,
};
use std::path::Path;

const GOLDEN: &str = include_str!("../spec/vectors/journal-first-segment.hex");
const SEGMENT_BYTES: usize = 1 << 20;

/// A manifest is refused, or comes back as it was read.
pub fn manifest(input: &[u8]) {
    if let Ok(manifest) = Manifest::decode(input) {
        assert_eq!(Manifest::decode(&manifest.encode()).expect("it was just written"), manifest);
    }
}

/// A map is none, or is written again as it was read; what payloads are made of it is answered whatever it is.
pub fn map(input: &[u8]) {
    let Some((ordinal, bytes)) = input.split_first() else { return };
    if let Some(map) = Map::parse(bytes) {
        let mut again = Vec::new();
        map.fields().for_each(|(key, value)| map::push(&mut again, key, value));
        assert_eq!(again, bytes);
        let critical = map.fields().map(|(key, _)| key).find(|key| *key != 1 && *key < map::IGNORABLE);
        assert_eq!(map.unknown(&[1]), critical);
    }
    let (_, rows) = (Attempt::decode((*ordinal).into(), bytes), Reads::decode(bytes).take(bytes.len() + 1).count());
    assert!(rows <= bytes.len());
    let end = End::decode(bytes);
    assert!(end.error.len() <= bytes.len());
}

/// A namespace whose first segment was overwritten with the input, from the offset its first two bytes give, is opened or
/// refused; what it holds is then the same at every open.
pub fn recovery(input: &[u8]) {
    let Some((offset, bytes)) = input.split_first_chunk::<2>() else { return };
    let mut segment = golden();
    let from = usize::from(u16::from_le_bytes(*offset));
    let to = (from + bytes.len()).min(SEGMENT_BYTES);
    segment[from..to].copy_from_slice(&bytes[..to - from]);
    let disk = SimDisk::with_files([
        ("manifest".to_owned(), golden_manifest()),
        ("lock".to_owned(), Vec::new()),
        ("segments/0000000000".to_owned(), segment),
    ]);
    let Some(first) = open(&disk) else { return };
    let found = entries(&first);
    drop(first);
    let again = open(&disk).expect("what was recovered once opens again");
    assert_eq!(entries(&again)[..found.len()], found);
}

fn open(disk: &SimDisk) -> Option<Journal> {
    Journal::open_on(disk.process(), Path::new("fuzz"), &OpenOptions { background: false }).ok()
}

/// Every entry that can be read, as position and bytes.
fn entries(journal: &Journal) -> Vec<(Position, Vec<u8>)> {
    let (mut scan, mut found) = (journal.scan(Position::default()), Vec::new());
    loop {
        match scan.next() {
            Ok(Some(entry)) => found.push((entry.position, entry.payload.clone())),
            Ok(None) => return found,
            Err(_) => {} // Told once; the scan goes on behind it.
        }
    }
}

fn golden() -> Vec<u8> {
    let digits: String = GOLDEN.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    let mut segment: Vec<u8> = (0..digits.len()).step_by(2).map(digit).collect();
    segment.resize(SEGMENT_BYTES, 0);
    segment
}

/// The manifest that belongs to the golden segment.
fn golden_manifest() -> Vec<u8> {
    let golden = golden();
    let namespace = u64::from_le_bytes(golden[8..16].try_into().expect("8 bytes"));
    let salt: String = golden[40..56].iter().map(|byte| format!("{byte:02x}")).collect();
    let body = format!(
        r#"{{"namespace":"{namespace:012x}","salt":"{salt}","replay_seed":"{salt}","epoch":1,"segment_bytes":{SEGMENT_BYTES},"retain_bytes":4194304,
        "retain_age_ms":null,"durability":"disk","created_us":1,"first_segment":0,"defined":0,"next_id":1,
        "logs":[],"functions":[]}}"#
    );
    let mut crc = !0u32;
    for byte in body.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    format!("millrace-manifest 3 {:08x} {}\n{body}", !crc, body.len()).into_bytes()
}
