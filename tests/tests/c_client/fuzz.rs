//! Both fuzzers for some inputs, from the golden frames on. `make -C sdk/c fuzz` runs them for as long as one likes.

use crate::support::{FUZZED, compile, root, sources};
use millrace_tests::{Place, end};
use serde_json::Value;
use std::{fs, path::PathBuf, process::Command};

/// Inputs to try, and the time after which they are as many as a slow machine can try.
const INPUTS: u64 = 200_000;
const SECONDS_MAX: u32 = 60;

/// The golden frames, as the bytes of files: `bytes` makes one or more of each.
fn seeds(place: &Place, bytes: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let folder = place.path().join("seeds");
    fs::create_dir(&folder).expect("a folder is made");
    for file in ["wire.json", "messages.json"] {
        let text = fs::read_to_string(root().join("spec/vectors").join(file)).expect("the golden frames are there");
        let vectors: Value = serde_json::from_str(&text).expect("they are JSON");
        for vector in ["frames", "readable", "refused"].iter().filter_map(|table| vectors[table].as_array()).flatten() {
            let digits = vector["hex"].as_str().expect("hexadecimal");
            let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
            let frame: Vec<u8> = (0..digits.len()).step_by(2).map(pair).collect();
            for (at, seed) in bytes(&frame).into_iter().enumerate() {
                let name = format!("{}-{at}", vector["name"].as_str().expect("a name"));
                fs::write(folder.join(name), seed).expect("a seed is written");
            }
        }
    }
}

fn fuzz(place: &Place, name: &str, sources: &[PathBuf]) {
    let program = compile(name, sources, &["-fsanitize=fuzzer"]);
    let mut command = Command::new(program);
    command.args([
        &format!("-runs={INPUTS}"),
        &format!("-max_total_time={SECONDS_MAX}"),
        "-max_len=4096",
        "-verbosity=0",
        "-print_final_stats=1",
        "seeds",
    ]);
    command.current_dir(place.path());
    let said = end(command, b"");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let tried = said.stderr.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units: "));
    let tried: u64 = tried.expect("it says how many").parse().expect("a number");
    assert!(tried > 1000, "only {tried} inputs were tried");
}

#[test]
fn any_bytes_are_a_frame_or_refused() {
    let place = Place::empty();
    seeds(&place, |frame| vec![frame.to_vec(), frame[4.min(frame.len())..].to_vec()]);
    fuzz(&place, "wire_fuzz", &sources(&["sdk/c/wire", "sdk/c/fuzz/wire_fuzz.c"]));
}

#[test]
fn any_bytes_are_a_capability_and_records_or_refused() {
    let place = Place::empty();
    let text = fs::read_to_string(root().join("spec/vectors/capability.json")).expect("the capabilities are there");
    let vectors: Value = serde_json::from_str(&text).expect("they are JSON");
    let folder = place.path().join("seeds");
    fs::create_dir(&folder).expect("a folder is made");
    for (at, token) in vectors["tokens"].as_array().expect("a list").iter().enumerate() {
        fs::write(folder.join(format!("{at}")), token["text"].as_str().expect("a text")).expect("a seed is written");
    }
    fuzz(&place, "channel_fuzz", &sources(&["sdk/c/wire", "sdk/c/fuzz/channel_fuzz.c"]));
}

#[test]
fn a_host_may_send_any_bytes() {
    let place = Place::empty();
    let calls = [0x00u8, 0x1b, 0x72, 0xb9];
    // In clear, and sealed in a channel of long and short records; behind an open channel in clear as well, which is refused.
    let ways = [0x01u8, 0x11, 0x51, 0x31];
    let seed = |frame: &[u8], way: u8, call: u8| [&[way | (call & 2), call], frame].concat();
    seeds(&place, |frame| ways.iter().flat_map(|way| calls.map(|call| seed(frame, *way, call))).collect());
    fuzz(&place, "client_fuzz", &sources(&FUZZED));
}
