#![no_main]

#[path = "../mqtt_target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::mqtt(input));
