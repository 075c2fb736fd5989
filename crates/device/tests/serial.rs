//! Frames are found in the bytes of `spec/vectors/serial.json` as the file says; `tests/tests/devices` compares the device's code with it.

use millrace_device::serial::{Decoder, Found};
use serde_json::Value;
use std::fmt::Write;

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
}

fn line(found: Found) -> Option<String> {
    match found {
        Found::Part => None,
        Found::Text(byte) => Some(format!("text {byte:02x}")),
        Found::Invalid => Some("invalid".into()),
        Found::Frame(frame) => {
            let mut line = format!("frame {} {} {} ", frame.kind as u8, frame.session, frame.number);
            frame.data.iter().for_each(|byte| write!(line, "{byte:02x}").expect("it is in memory"));
            Some(line)
        }
    }
}

#[test]
fn frames_are_found_as_the_vectors_say() {
    let vectors: Value = serde_json::from_str(include_str!("../../../spec/vectors/serial.json")).expect("JSON");
    let cases = vectors["cases"].as_array().expect("cases");
    assert!(cases.len() > 15);
    for case in cases {
        let bytes = bytes_of(case["bytes"].as_str().expect("bytes"));
        let mut decoder = Decoder::default();
        let found: Vec<String> = bytes.iter().filter_map(|byte| line(decoder.take(*byte))).collect();
        assert_eq!(serde_json::json!(found), case["found"], "{}", case["name"]);
        // A frame is written as it was read, unless it was found amid other bytes.
        let mut again = Vec::new();
        let mut decoder = Decoder::default();
        for byte in &bytes {
            if let Found::Frame(frame) = decoder.take(*byte) {
                frame.encode(&mut again);
            }
        }
        assert!(found.len() > 1 || bytes.ends_with(&again), "{}", case["name"]);
    }
}
