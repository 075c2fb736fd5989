//! The fuzzers' corpus, run as a test, with some thousand random changes of it and of the golden frames.

#[path = "../../../fuzz/wire_targets.rs"]
mod targets;

#[path = "../../../fuzz/rules_target.rs"]
mod rules_target;

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    path::Path,
    time::{Duration, Instant},
};

const CHANGES: u64 = 20_000;

/// For how long each target is given changed inputs of a random seed instead: MILLRACE_FUZZ_SECONDS.
fn seconds() -> Option<Duration> {
    let seconds = env::var("MILLRACE_FUZZ_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("MILLRACE_FUZZ_SECONDS is a number")))
}

/// The seed, which MILLRACE_FUZZ_SEED repeats.
fn seed() -> u64 {
    let chosen = env::var("MILLRACE_FUZZ_SEED").ok().map(|seed| seed.parse().expect("MILLRACE_FUZZ_SEED is a number"));
    let seed = chosen.unwrap_or_else(|| RandomState::new().hash_one(0) | 1);
    println!("MILLRACE_FUZZ_SEED={seed}");
    seed
}

/// A step of xorshift: random enough to vary bytes, and the same in every run.
fn step(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn each(target: &str, run: fn(&[u8])) {
    each_with(CHANGES, target, run);
}

fn each_with(changes: u64, target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = Vec::new();
    for file in fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let path = file.expect("the folder can be read").path();
        println!("{}", path.display());
        let input = fs::read(&path).expect("a file of the corpus can be read");
        run(&input);
        inputs.push(input);
    }
    assert!(inputs.len() >= 5, "{} holds {} inputs", folder.display(), inputs.len());
    inputs.sort();
    let (until, mut state) = match seconds() {
        None => (None, 0x9E37_79B9_7F4A_7C15),
        Some(seconds) => (Some(Instant::now() + seconds), seed()),
    };
    let goes_on = |round| until.map_or(round < changes, |until| round % 64 != 0 || Instant::now() < until);
    for _ in (0..).take_while(|round| goes_on(*round)) {
        let mut input = inputs[step(&mut state) as usize % inputs.len()].clone();
        for _ in 0..=step(&mut state) % 4 {
            let (at, byte) = (step(&mut state) as usize, step(&mut state) as u8);
            match input.len() {
                0 => input.push(byte),
                length => input[at % length] = byte,
            }
        }
        run(&input);
    }
}

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
fn tokens() {
    each("tokens", targets::tokens);
}

#[test]
fn chains_permit_what_all_of_their_blocks_do() {
    // Each input is some thousand actions.
    each_with(CHANGES / 10, "rules", rules_target::rules);
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
