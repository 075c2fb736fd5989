#![no_main]

#[path = "../rules_target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::rules(input));
