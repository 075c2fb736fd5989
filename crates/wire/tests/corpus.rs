//! The fuzzers' corpus, run as a test, with some thousand random changes of it and of the golden frames.

#[path = "../../../fuzz/mutations.rs"]
#[allow(dead_code, reason = "the tests of another crate use the rest")]
mod mutations;

#[path = "../../../fuzz/wire_targets.rs"]
mod targets;

use mutations::each;

#[test]
fn frames() {
    each("frames", targets::frames);
}

#[test]
fn changed_frames() {
    each("changed", targets::changed);
}

#[test]
fn names() {
    each("names", targets::names);
}

#[test]
fn golden_frames_with_any_one_byte_changed() {
    for choice in 0..150u16 {
        for at in 0..64u16 {
            for byte in [0, 0x7f, 0x80, 0x9f, 0xa0, 0xc0, 0xc4, 0xc6, 0xcf, 0xd9, 0xdd, 0xdf, 0xff] {
                let [a, b] = choice.to_le_bytes();
                let [c, d] = at.to_le_bytes();
                targets::changed(&[a, b, c, d, byte]);
            }
        }
    }
}
