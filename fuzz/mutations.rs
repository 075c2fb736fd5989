//! Runs a target on every input of its corpus, and on some thousand random changes of them. Used by ordinary tests.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    path::Path,
    time::{Duration, Instant},
};

/// Changed inputs that each target is given.
pub const CHANGES: u64 = 20_000;

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

pub fn each(target: &str, run: fn(&[u8])) {
    each_with(CHANGES, target, run);
}

pub fn each_with(changes: u64, target: &str, run: fn(&[u8])) {
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
