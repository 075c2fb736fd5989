#![no_main]

#[path = "../wire_targets.rs"]
#[allow(dead_code, reason = "each fuzzer runs one of the targets")]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::tokens(input));
