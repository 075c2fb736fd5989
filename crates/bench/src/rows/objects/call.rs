//! object.call: an increment, and a write and a read of 1 KiB, for objects in memory, in the journal, and on several hosts.

use super::{Caller, Target, cluster::Cluster};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, figure},
    peers::redis::{self, Redis},
    rows::{
        Measured, PAYLOAD,
        remote::{Host, PACE},
    },
};
use millrace_journal::Durability;

const COUNT: u64 = 400;

pub fn call(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let mut caller = Caller::open(host.client("memory")?, 1)?;
    let dir = context.fresh()?;
    let redis = Redis::start_forgetful(dir.path())?;
    let kilobyte = [&[0x91, 0xc5, 4, 0][..], &PAYLOAD].concat();
    let increment = Target::of("AtomicInt", "hits", "add_and_get", &[0x91, 1]);
    let ours = [
        increment,
        Target::of("AtomicBytes", "bytes", "set", &kilobyte),
        Target::of("AtomicBytes", "bytes", "get", &[0x90]),
        Target { key: "kept", ..increment }.copied(1),
    ];
    let theirs: [&[&[u8]]; 3] = [&[b"INCR", b"hits"], &[b"SET", b"bytes", &PAYLOAD], &[b"GET", b"bytes"]];
    let (mut all, mut peers) = ([(); 4].map(|()| Samples::new()), [(); 3].map(|()| Samples::new()));
    let (mut p50, mut over) = (Repeated::default(), [(); 3].map(|()| Repeated::default()));
    caller.paced(increment, COUNT, PACE)?;
    for _ in 0..context.repetitions(9) {
        for (which, target) in ours.iter().enumerate() {
            let now = caller.paced(*target, COUNT, PACE)?;
            if which == 0 {
                p50.push(now.p50_us());
            }
            if let (Some(redis), Some(request)) = (&redis, theirs.get(which)) {
                let mut theirs = Samples::new();
                redis.ask(request, COUNT, PACE, &mut theirs)?;
                over[which].push(now.p50_us() / theirs.p50_us());
                peers[which].add(&theirs);
            }
            all[which].add(&now);
        }
    }
    let mut measured = Measured::new(p50.median(), all[0].count())
        .spread_us(&all[0])
        .also("set 1 KiB, p50", all[1].p50_us(), "µs")
        .also("get 1 KiB, p50", all[2].p50_us(), "µs")
        .also("increment of a persistent object, memory, p50", all[3].p50_us(), "µs");
    let names = ["Redis INCR, p50", "Redis SET 1 KiB, p50", "Redis GET 1 KiB, p50"];
    for ((name, samples), over) in names.into_iter().zip(&peers).zip(&over).filter(|_| redis.is_some()) {
        let what = name.trim_start_matches("Redis ").trim_end_matches(", p50");
        measured = measured.peer(name, samples.p50_us()).target(format!("{what} ≤ 1.2 × Redis"), over.median() <= 1.2);
    }
    drop((caller, host));
    for (rf, hosts) in [(2, 3), (3, 5)] {
        for (durability, mode) in [(Durability::Memory, "memory"), (Durability::Disk, "disk")] {
            let cluster = Cluster::start(context, hosts, durability)?;
            let mut caller = Caller::open(cluster.client(0)?, 1)?;
            caller.paced(increment.copied(rf), COUNT, PACE)?;
            let now = caller.paced(increment.copied(rf), COUNT, PACE)?;
            measured = measured.also(&format!("increment, rf {rf}, {mode}, p50"), now.p50_us(), "µs");
            measured = measured.also(&format!("increment, rf {rf}, {mode}, p99"), now.p99_us(), "µs");
            if redis.is_some() && durability == Durability::Memory {
                let over = now.p50_us() / peers[0].p50_us();
                measured = measured.target(format!("rf {rf} ≤ 2.2 × Redis INCR"), over <= 2.2);
            }
        }
    }
    let missing = if redis.is_some() { "Redis 7 over TCP, not persistent." } else { redis::INSTALL };
    let pace = figure(PACE.as_micros() as f64);
    Ok(measured.note(format!(
        "One blocking client over TCP, not pinned, makes the next call {pace} µs after the answer, {COUNT} calls of \
         each kind in turn. For rf 2 and 3, three and five hosts run in processes on this machine; the group flushes \
         its log before it answers, whatever the durability. For a call, the host makes three system calls \
         (`strace`): it waits, receives, answers. {missing}"
    )))
}
