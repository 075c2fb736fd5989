#![no_main]

#[path = "../token_target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::tokens(input));
