//! `spec/vectors/device.json`: the bursts and images that `device/tests/vectors.c` reads and writes, read here.
//!
//! `MILLRACE_BLESS=1` writes what follows from the bursts below and from the bytes of the images; `make -C device bless` writes these bytes.

use millrace_device::{Burst, Cause, Entry, Image, Row};
use millrace_wire::{Code, EventId, NamespaceId};
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

const BEFORE: u32 = 0x1234_5678;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/device.json")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("a digit")).collect()
}

fn bursts() -> Vec<(&'static str, Burst)> {
    let id = EventId::new(NamespaceId::new(0x0102_0304_0506).expect("it fits"), 7, 0x0011_2233_4455_6677);
    let append = |log, back, cause, payload: &[u8]| Entry::Append { log, back, cause, payload: payload.to_vec() };
    let done = Entry::Done {
        function: 1,
        outcome: 0,
        attempt: 1,
        appends: 1,
        log: 0,
        behind: 2,
        ms: 12,
        rows: vec![Row { log: 0, behind: 3, count: 4 }],
        code: None,
    };
    let dead = Entry::Done {
        function: 1,
        outcome: 1,
        attempt: 3,
        appends: 0,
        log: 0,
        behind: 0,
        ms: 300,
        rows: Vec::new(),
        code: Some(3109),
    };
    let log = |carried: Option<(u64, Vec<u8>)>| Entry::Log {
        id: 2,
        flags: if carried.is_some() { 3 } else { 1 },
        history: 1,
        seqno: 9,
        back: if carried.is_some() { 0 } else { 5000 },
        name: "config".into(),
        carried,
    };
    let function = Entry::Function {
        id: 0,
        logs: 1,
        attempt: 2,
        ended: 40,
        pending: 3,
        behind: 200,
        older: 1,
        back: 300,
        skip: 1,
        name: "smooth".into(),
    };
    vec![
        ("append", Burst { ms: 1, entries: vec![append(0, 0, Cause::Outside, b"21.5")] }),
        ("empty record", Burst { ms: 300, entries: vec![append(31, 4096, Cause::Outside, b"")] }),
        ("caused elsewhere", Burst { ms: 1, entries: vec![append(3, 20, Cause::Event(id), b"on")] }),
        ("run", Burst { ms: 70_000, entries: vec![append(1, 31, Cause::Run, b"20.9"), done] }),
        ("dead", Burst { ms: 2, entries: vec![Entry::Fired { function: 1, attempt: 2 }, dead] }),
        ("start", Burst { ms: 1, entries: vec![Entry::Open { reason: 3, epoch: 0x00ab_cdef, lost: 130 }] }),
        (
            "clock",
            Burst {
                ms: 1,
                entries: vec![
                    Entry::Later { ms: 40 },
                    append(0, 12, Cause::Outside, b"x"),
                    Entry::Jump { ms: 1_700_000_000_000 },
                ],
            },
        ),
        (
            "catalog",
            Burst {
                ms: 0,
                entries: vec![
                    Entry::Note { what: 5, body: vec![0x80, 1] },
                    Entry::Note { what: 3, body: vec![0x81, 1, 0xff, 1] },
                    log(None),
                    log(Some((0, b"on=1".to_vec()))),
                    function,
                ],
            },
        ),
        ("unknown note", Burst { ms: 1, entries: vec![Entry::Note { what: 30, body: b"abc".to_vec() }] }),
    ]
}

/// Bytes that are no burst, or one of a later format.
fn refused() -> Vec<(&'static str, Vec<u8>)> {
    let (good, _) = bursts()[0].1.write(BEFORE);
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    // A body with the right checksum.
    let body = |body: &[u8]| {
        let length = (body.len() as u16).to_le_bytes();
        let crc = [&BEFORE.to_le_bytes()[..], &length, body].concat();
        [&length[..], &millrace_device::crc32c(0, &crc).to_le_bytes(), body].concat()
    };
    vec![
        ("blank", vec![0xff; 32]),
        ("no length", [&[0; 6][..], &[0xff; 8]].concat()),
        ("changed length", changed(0)),
        ("changed checksum", changed(2)),
        ("changed body", changed(9)),
        ("cut", good[..good.len() - 1].to_vec()),
        ("of another chain", bursts()[0].1.write(BEFORE ^ 1).0),
        ("longer than a sector", body(&[1; 2000])),
        ("entry of kind 0", body(&[1, 0x00])),
        ("record longer than the burst", body(&[1, 0x20, 5, 0, 0, 1, 2])),
        ("unknown cause", body(&[1, 0x20, 1, 0, 3, 1])),
        ("endless number", body(&[[1, 0x20].as_slice(), &[0xff; 11]].concat())),
    ]
}

#[test]
fn bursts_and_images_are_those_of_the_file() {
    let text = fs::read_to_string(path()).expect("the file is there");
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut made = file.clone();
    made["bursts"] = bursts()
        .iter()
        .map(|(name, burst)| {
            let entries: Vec<String> = burst.entries.iter().map(ToString::to_string).collect();
            let (bytes, _) = burst.write(BEFORE);
            let (read, length) = Burst::read(&bytes, BEFORE).expect("its checksum is right");
            assert_eq!((read.as_ref().expect("it is whole"), length), (burst, bytes.len()), "{name}");
            json!({ "name": name, "before": BEFORE, "ms": burst.ms, "entries": entries, "hex": hex(&bytes) })
        })
        .collect();
    made["refused"] = refused()
        .iter()
        .map(|(name, bytes)| {
            assert!(!matches!(Burst::read(&bytes[..bytes.len().min(1024)], BEFORE), Some((Ok(_), _))), "{name}");
            json!({ "name": name, "before": BEFORE, "hex": hex(&bytes[..bytes.len().min(1024)]) })
        })
        .collect();
    for image in made["images"].as_array_mut().expect("a list") {
        image["events"] = events(image).into();
    }
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&made).expect("it is JSON");
        fs::write(path(), text + "\n").expect("the file is writable");
    } else {
        assert_eq!(made, file, "if the format was meant to change: MILLRACE_BLESS=1");
    }
}

/// The events of an image, as text.
fn events(image: &Value) -> Vec<String> {
    let flash = &image["flash"];
    let size = |name: &str| flash[name].as_u64().expect("a number") as usize;
    let mut bytes = vec![0xff; size("sectors") * size("sector_bytes")];
    for span in image["bytes"].as_array().expect("a list") {
        let at = span["at"].as_u64().expect("a number") as usize;
        let span = unhex(&span["hex"]);
        bytes[at..at + span.len()].copy_from_slice(&span);
    }
    let image = Image::read(&bytes).expect("it is an image");
    let text = image.events().into_iter().map(|event| {
        let clock = (event.hlc.wall_us() / 1000, event.hlc.get() & 0xfff);
        format!(
            "{}/{} at {}+{} cause {}: {:?}",
            event.id.epoch(),
            event.id.sequence(),
            clock.0,
            clock.1,
            event.cause,
            event.what
        )
    });
    text.collect()
}

#[test]
fn what_newer_firmware_wrote_is_refused_as_such_and_not_as_damage() {
    for (name, bytes) in refused() {
        let Some((Err(error), _)) = Burst::read(&bytes[..bytes.len().min(1024)], BEFORE) else { continue };
        let is_later = matches!(name, "entry of kind 0" | "unknown cause");
        assert_eq!(error.code() == Code::FormatVersion, is_later, "{name}: {error}");
    }
}
