//! The golden frames of `spec/vectors/wire.json`: every message, written and read exactly so.
//!
//! The cases stand here; `MILLRACE_BLESS=1` writes the file from them. That the file says what the bytes say is checked by
//! a reader of MessagePack that knows nothing of our messages.

#[path = "vectors/cases.rs"]
mod cases;
#[path = "vectors/json.rs"]
mod json;
#[path = "vectors/lies.rs"]
mod lies;

use millrace_wire::{Code, message_of_type, protocol};
use std::{fmt::Write, fs, path::PathBuf};

const ABOUT: &str = "Golden frames of spec/protocol/wire.md, made by crates/wire/tests/vectors.rs. \
    frames: writing the message gives hex, reading hex gives the message; keys stand in the order in which they are \
    written. readable: must be read as the message, but is never written so. refused: must be refused; where a code is \
    shown, a host answers with it. Bytes are {\\\"hex\\\": …}. Numbers have up to 64 bits.";

/// A frame and what it means.
pub struct Case {
    name: &'static str,
    /// The frame.
    bytes: Vec<u8>,
    /// The frame as it would be written.
    written: Vec<u8>,
    /// Reads the bytes as the message that they are, and compares.
    check: Box<Check>,
}

type Check = dyn Fn(&[u8]) -> Result<(), String>;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors").join(name)
}

/// Those of shared objects, of tasks and of changes, which not every client speaks, in a file of their own.
fn of_objects() -> String {
    let frames = cases::others().iter().map(line).collect::<Vec<_>>().join(",\n");
    format!("{{\n  \"about\": \"{ABOUT}\",\n  \"frames\": [\n{frames}\n  ]\n}}\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to memory does not fail");
        text
    })
}

fn line(case: &Case) -> String {
    let frame = json::Reader::new(&case.written[4..]).frame();
    let hex = hex(&case.bytes);
    format!("    {{\"name\": \"{}\", {frame}, \"hex\": \"{hex}\"}}", case.name)
}

fn whole() -> String {
    let lines = |cases: Vec<Case>| cases.iter().map(line).collect::<Vec<_>>().join(",\n");
    let lies = lies::all().into_iter().map(|lie| {
        let (name, code, hex) = (lie.name, lie.code.id(), hex(&lie.bytes));
        format!("    {{\"name\": \"{name}\", \"code\": \"{code}\", \"hex\": \"{hex}\"}}")
    });
    format!(
        "{{\n  \"about\": \"{ABOUT}\",\n  \"frames\": [\n{}\n  ],\n  \"readable\": [\n{}\n  ],\n  \"refused\": [\n{}\n  ]\n}}\n",
        lines(cases::all()),
        lines(lies::readable()),
        lies.collect::<Vec<_>>().join(",\n")
    )
}

#[test]
fn the_file_says_what_is_written() {
    for (name, made) in [("wire.json", whole()), ("objects.json", of_objects())] {
        if std::env::var_os("MILLRACE_BLESS").is_some() {
            fs::write(path(name), &made).expect("spec/vectors is writable");
        }
        let file = fs::read_to_string(path(name)).unwrap_or_default();
        for (kept, made) in file.lines().zip(made.lines()) {
            assert_eq!(kept, made, "if the protocol was meant to change: MILLRACE_BLESS=1");
        }
        assert_eq!(file.len(), made.len(), "if the protocol was meant to change: MILLRACE_BLESS=1");
    }
}

#[test]
fn what_is_written_is_read_as_it_was_wherever_it_is_cut() {
    for case in cases::all().into_iter().chain(cases::others()).chain(lies::readable()) {
        (case.check)(&case.bytes).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        for cut in 0..case.bytes.len() {
            assert_eq!(protocol::split(&case.bytes[..cut], protocol::FRAME_MAX_BYTES), Ok(None), "{}", case.name);
        }
    }
}

/// The frames of `messages.json`, whose generator encodes by itself.
#[test]
fn the_smallest_and_the_fullest_frame_of_each_message_are_written_and_read() {
    let file: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path("messages.json")).expect("it is there"))
            .expect("the file is JSON");
    let mut seen = 0;
    for golden in file["frames"].as_array().expect("a list") {
        let (name, digits) = (&golden["name"], golden["hex"].as_str().expect("text"));
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let (frame, used) = protocol::split(&bytes, protocol::FRAME_MAX_BYTES).expect("a frame").expect("a whole one");
        let mut written = Vec::new();
        macro_rules! again {
            ($type:ident) => {{
                let message = frame.message::<protocol::$type>().unwrap_or_else(|error| panic!("{name}: {error}"));
                protocol::encode(&mut written, frame.heading, &message);
            }};
        }
        message_of_type!(frame.kind, again, panic!("there is no message for {name}"));
        assert_eq!((used, hex(&written)), (bytes.len(), digits.to_owned()), "{name}");
        seen += 1;
    }
    assert!(seen > 120, "only {seen} frames");
}

#[test]
fn lies_are_refused_with_their_code() {
    let wrong: Vec<String> = lies::all()
        .iter()
        .filter(|lie| lie.refused_with() != Some(lie.code))
        .map(|lie| format!("{}: {:?}", lie.name, lie.refused_with()))
        .collect();
    assert!(wrong.is_empty(), "not refused as they must be:\n{}", wrong.join("\n"));
    assert!(lies::all().iter().any(|lie| lie.code == Code::FrameTooLong));
}
