//! object.kmeans: the access to shared state in one iteration of k-means: read the centroids, add to the sums.

use super::{Caller, Target};
use crate::{
    Context, Outcome,
    measure::Samples,
    peers::redis::{self, Redis},
    rows::{Measured, remote::Host},
};
use std::time::Instant;

/// Centroids, by their number and dimensions, and the number of points of each.
const CENTROIDS: u16 = 25;
const DIMENSIONS: u16 = 101;
const BYTES: usize = 8 * CENTROIDS as usize * DIMENSIONS as usize;
const ITERATIONS: usize = 400;

/// Adds one string of numbers to another one, as a shared object does.
const ADD: &str = "local now, more, sums = redis.call('GET', KEYS[1]), ARGV[1], {} \
    for at = 1, #more, 8 do sums[#sums + 1] = struct.pack('<d', struct.unpack('<d', now, at) + struct.unpack('<d', more, at)) end \
    redis.call('SET', KEYS[1], table.concat(sums)) return 1";

pub fn kmeans(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let mut caller = Caller::open(host.client("memory")?, 1)?;
    let sums = 0.5_f64.to_le_bytes().repeat(BYTES / 8);
    let more = [&[0x91, 0xc5][..], &(BYTES as u16).to_be_bytes(), &sums].concat();
    let new = [&[0x92][..], &[CENTROIDS as u8], &[DIMENSIONS as u8]].concat();
    let read = Target::of("Matrix", "centroids", "all", &[0x90]).made_with(&new);
    let add = Target::of("Matrix", "centroids", "add_all", &more).made_with(&new);
    let iterations = context.repetitions(ITERATIONS);
    let mut ours = Samples::new();
    for _ in 0..iterations {
        let start = Instant::now();
        caller.call(read)?;
        caller.call(add)?;
        ours.record(start.elapsed());
    }
    // All of it was added, here and there.
    let expected = |times: usize| (0.5 * times as f64).to_le_bytes().repeat(BYTES / 8);
    if !caller.value(read)?.ends_with(&expected(iterations)) {
        return Err("the sums are not those of all that was added".into());
    }
    let mut measured = Measured::new(ours.p50_us(), ours.count()).spread_us(&ours);
    let dir = context.fresh()?;
    let missing = match Redis::start_forgetful(dir.path())? {
        None => redis::INSTALL,
        Some(redis) => {
            let (mut asker, mut theirs) = (redis.asker()?, Samples::new());
            asker.ask(&[b"SET", b"centroids", &sums])?;
            let script = asker.ask(&[b"SCRIPT", b"LOAD", ADD.as_bytes()])?.to_vec();
            let digest =
                script.split(|byte| *byte == b'\n').nth(1).ok_or("Redis loaded no script")?.trim_ascii().to_vec();
            for _ in 0..iterations {
                let start = Instant::now();
                asker.ask(&[b"GET", b"centroids"])?;
                asker.ask(&[b"EVALSHA", &digest, b"1", b"centroids", &sums])?;
                theirs.record(start.elapsed());
            }
            let sums = [&expected(iterations + 1)[..], b"\r\n"].concat();
            if !asker.ask(&[b"GET", b"centroids"])?.ends_with(&sums) {
                return Err("the sums of Redis are not those of all that was added".into());
            }
            measured = measured
                .peer("Redis, GET and a Lua script, p50", theirs.p50_us())
                .target("≤ ½ of Redis + Lua", ours.p50_us() <= theirs.p50_us() / 2.0);
            "Redis 7: GET and a Lua script that adds two strings of numbers."
        }
    };
    Ok(measured.note(format!(
        "One blocking client over TCP reads {CENTROIDS} centroids of {DIMENSIONS} numbers with `Matrix.all`, and adds \
         as many numbers with `Matrix.add_all`. {missing}"
    )))
}
