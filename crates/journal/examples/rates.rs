//! Rates of the hot paths, for a quick look while working on them; the figures that count come from `make bench`.

use millrace_journal::{CreateOptions, Durability, Journal};
use millrace_wire::EventId;
use std::{hint::black_box, time::Instant};

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { retain_bytes: 128 << 20, durability: Durability::Memory, ..Default::default() };
    let journal = Journal::create(dir.path(), &options).unwrap();
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 50_000)).unwrap().value;
    let payload = [7u8; 1024];
    for round in 0..12 {
        let start = Instant::now();
        for _ in 0..50_000 {
            journal.commit(|batch| batch.append(&log, &payload, EventId::NONE, 0)).unwrap();
        }
        println!("append, round {round}: {:.0} ns", start.elapsed().as_nanos() as f64 / 50_000.0);
        journal.maintain(&|_| false).unwrap();
    }
    let mut buffer = Vec::new();
    let (latest, count) = (log.latest(), 1_000_000u64);
    let start = Instant::now();
    for _ in 0..count {
        journal.get(&log, latest, &mut buffer).unwrap();
        black_box(&buffer);
    }
    println!("get, hot: {:.0} ns", start.elapsed().as_nanos() as f64 / count as f64);
    let start = Instant::now();
    let mut seqno = latest;
    for _ in 0..count {
        seqno = latest - (seqno.wrapping_mul(6_364_136_223_846_793_005) >> 33) % 49_000;
        journal.get(&log, seqno, &mut buffer).unwrap();
        black_box(&buffer);
    }
    println!("get, random over 50 MB: {:.0} ns", start.elapsed().as_nanos() as f64 / count as f64);
    drop((journal, log));
    let dir = tempfile::tempdir_in(".").unwrap();
    let journal = Journal::create(dir.path(), &CreateOptions::default()).unwrap();
    let log = journal.commit(|batch| batch.create_log(&"a".parse().unwrap(), 50_000)).unwrap().value;
    for threads in [1, 64] {
        let start = Instant::now();
        let each = 32_000 / threads;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..each {
                        let end = journal.commit(|batch| batch.append(&log, &payload, EventId::NONE, 0)).unwrap().end;
                        journal.sync(end).unwrap();
                    }
                });
            }
        });
        let rate = (each * threads) as f64 / start.elapsed().as_secs_f64();
        println!("durable, {threads} threads: {rate:.0} /s");
    }
}
