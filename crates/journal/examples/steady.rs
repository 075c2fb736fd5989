//! Appends in a row, with retention beside them: how long each takes, and how long of that it has the journal's lock.
//! `steady [APPENDS] [RETAIN_MIB] [DIR] [memory|disk]`

use millrace_journal::{CreateOptions, Durability, Journal};
use millrace_wire::EventId;
use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

fn main() {
    let mut words = std::env::args().skip(1);
    let appends: usize = words.next().map_or(2_000_000, |word| word.parse().expect("a number of appends"));
    let retain: u64 = words.next().map_or(1024, |word| word.parse().expect("mebibytes to retain"));
    let dir =
        words.next().map_or_else(std::env::temp_dir, PathBuf::from).join(format!("steady-{}", std::process::id()));
    let durability = if words.next().as_deref() == Some("disk") { Durability::Disk } else { Durability::Memory };
    let options = CreateOptions { durability, retain_bytes: retain << 20, ..Default::default() };
    let journal = Journal::create(&dir, &options).expect("a new namespace");
    let log = journal.commit(|batch| batch.create_log(&"a".parse().expect("a name"), 1000)).expect("a log").value;
    let (payload, over) = ([7; 1024], AtomicBool::new(false));
    let (mut nanos, mut held) = (Vec::with_capacity(appends), Vec::with_capacity(appends));
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dropped = 0;
            while !over.load(Ordering::Relaxed) {
                dropped += journal.maintain(&|_, _| false).expect("retention").dropped;
                std::thread::sleep(Duration::from_millis(100));
            }
            println!("{dropped} segments dropped");
        });
        for _ in 0..appends {
            let before = Instant::now();
            let mut locked = before;
            let append = journal.commit(|batch| {
                locked = Instant::now();
                batch.append(&log, &payload, EventId::NONE, 0)
            });
            let after = Instant::now();
            append.expect("an append");
            nanos.push((after - before).as_nanos() as u64);
            held.push((after - locked).as_nanos() as u64);
        }
        over.store(true, Ordering::Relaxed);
    });
    let took = started.elapsed();
    for part in nanos.chunks(appends.div_ceil(10)) {
        let (sum, longest) = (part.iter().sum::<u64>(), part.iter().max().expect("none is empty"));
        print!("{:.2} ({:.0}) ", sum as f64 / part.len() as f64 / 1000.0, *longest as f64 / 1000.0);
    }
    println!("us, mean of each tenth and its longest");
    for (what, nanos) in [("all", &mut nanos), ("with the lock", &mut held)] {
        let mean = nanos.iter().sum::<u64>() as f64 / appends as f64;
        nanos.sort_unstable();
        let at = |part: f64| nanos[((appends - 1) as f64 * part) as usize] as f64 / 1000.0;
        println!(
            "{what}: mean {:.2} us, p50 {:.2}, p99 {:.2}, p99.9 {:.2}, longest {:.0} us",
            mean / 1000.0,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
    println!("{appends} in {took:.2?}");
    drop((journal, log));
    std::fs::remove_dir_all(&dir).expect("the namespace is ours");
}
