//! Watches a run: lets the clients go on as far as the readers have come, and weighs the hosts all the while.
//!
//! Histories and the journal's retention are small, so that both are full when a third of a short run is done: from then on
//! nothing may grow any more. It is looked for twice. From one life to the next, while hosts are killed: what a journal makes
//! a host hold may not depend on how much has gone through it. And within one life, in the last quarter, which comes on top
//! and in which hosts are let live: what was done may leave nothing behind.

use super::{book::Book, functions, site::Site};
use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// So many records may be under way that nobody has read at every log that they come to. Histories are longer, so no reader
/// is ever too late.
pub const UNREAD_MAX: u64 = 2000;
/// From here on hosts are let live, in percent of a run.
const LULL: u64 = 75;
/// In which parts of a run the hosts are weighed against each other: what is early, and what is late.
const LIVES: [Range<u64>; 2] = [35..50, 60..LULL];
const LIFE: [Range<u64>; 2] = [LULL..80, 93..101];
/// Clients that wait for the lull may leave so much of what they may append: a batch each, and what comes of every 20th.
const LEFT_MAX: u64 = 500;
/// What a host may hold more than before. Threads and descriptors: as much as one that has just started has not opened yet
/// (workers, clients, links). Memory: what the allocator keeps for the threads that have come meanwhile.
const MARGIN: Weight = Weight { anon_kib: 4 << 10, threads: 16, descriptors: 48 };
/// What a host may hold in any run: more than twice of what it needs. A short run has few records after its histories are full,
/// so there this finds what the comparison does not.
const BOUND: Weight = Weight { anon_kib: 64 << 10, threads: 64, descriptors: 200 };
/// The newest 100 000 keyed appends are remembered with their receipts; no run has so many, so this grows: bytes for a record.
const KEYED_BYTES: u64 = 64;
/// Memory moves by [`MARGIN`] whatever runs. So only a run in which a KiB for each record would be several times as much
/// shows whether it is flat.
const RECORDS_TO_WEIGH: u64 = 60_000;
const REST: Duration = Duration::from_millis(10);

/// What a host takes from the machine, as far as it should not grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    pub anon_kib: u64,
    pub threads: u64,
    pub descriptors: u64,
}

/// A host of a site at a moment.
#[derive(Clone, Copy)]
struct Sample {
    percent: u64,
    /// Nobody kills it any more.
    is_let_live: bool,
    weight: Weight,
}

/// What was seen, by site.
#[derive(Default)]
pub struct Watch {
    samples: Mutex<[Vec<Sample>; 2]>,
    hosts_live: AtomicBool,
    over: AtomicBool,
}

/// Whether it is time to let hosts live.
pub fn is_lull(there: &Book, records: u64) -> bool {
    there.count("out") >= records * LULL / 100
}

/// Up to which number clients may append by now.
pub fn limit(file: &Path) -> u64 {
    fs::read_to_string(file).ok().and_then(|text| text.parse().ok()).unwrap_or(UNREAD_MAX)
}

impl Watch {
    pub fn start(
        sites: [Arc<Site>; 2],
        books: [Arc<Book>; 2],
        records: u64,
        limit: PathBuf,
    ) -> (Arc<Watch>, JoinHandle<()>) {
        let watch = Arc::new(Watch::default());
        let of_thread = watch.clone();
        let thread = thread::spawn(move || {
            let mut is_lull = false;
            while !of_thread.over.load(SeqCst) {
                // The lull begins when both serve.
                is_lull |= of_thread.hosts_live.load(SeqCst) && sites.iter().all(|site| site.is_well());
                let bound = if is_lull { records } else { records * LULL / 100 + LEFT_MAX };
                // Renamed into its place, so that nobody reads half a number.
                let next = limit.with_extension("next");
                fs::write(&next, (read_everywhere(&books) + UNREAD_MAX).min(bound).to_string()).unwrap();
                fs::rename(&next, &limit).unwrap();
                let percent = books[1].count("out") * 100 / records;
                for (place, site) in sites.iter().enumerate() {
                    if let Some(weight) = site.weight() {
                        let sample = Sample { percent, is_let_live: is_lull, weight };
                        of_thread.samples.lock().unwrap()[place].push(sample);
                    }
                }
                thread::sleep(REST);
            }
        });
        (watch, thread)
    }

    /// From now on nobody kills hosts.
    pub fn hosts_live(&self) {
        self.hosts_live.store(true, SeqCst);
    }

    pub fn stop(&self) {
        self.over.store(true, SeqCst);
    }

    /// Says what the hosts weighed, and panics if it grows.
    pub fn check_flat(&self, records: u64) {
        let samples = self.samples.lock().unwrap();
        let all = || samples.iter().flatten().map(|sample| sample.weight);
        let Weight { anon_kib, threads, descriptors } = heaviest(all());
        println!("most: anon_kib={anon_kib} threads={threads} descriptors={descriptors}");
        if let Some(sample) = samples.iter().flatten().max_by_key(|sample| sample.weight.anon_kib) {
            let (percent, is_let_live) = (sample.percent, sample.is_let_live);
            println!("storm: the most memory at {percent} % of the records, hosts let live: {is_let_live}");
        }
        let is_bounded = anon_kib <= BOUND.anon_kib && threads <= BOUND.threads && descriptors <= BOUND.descriptors;
        assert!(is_bounded, "a host holds more than {BOUND:?}");
        for (of_site, name) in samples.iter().zip(["here", "there"]) {
            for (what, [early, late], is_let_live) in
                [("from life to life", LIVES, false), ("within a life", LIFE, true)]
            {
                let within = |range: Range<u64>| {
                    let of_range = of_site
                        .iter()
                        .filter(|sample| sample.is_let_live == is_let_live && range.contains(&sample.percent));
                    of_range.map(|sample| sample.weight).collect::<Vec<_>>()
                };
                let (early, late) = (within(early), within(late));
                if early.is_empty() || late.is_empty() {
                    println!("storm: {name}, {what}: not weighed, no host served at the right time");
                    continue;
                }
                let (early, late) = (heaviest(early.into_iter()), heaviest(late.into_iter()));
                let is_long = records >= RECORDS_TO_WEIGH;
                let note = if is_long { "" } else { " (memory is not judged: the run is too short)" };
                println!("storm: {name}, {what}: early {early:?}, late {late:?}{note}");
                let has_grown = |of: fn(&Weight) -> u64| of(&late) > of(&early) + of(&MARGIN);
                assert!(!has_grown(|weight| weight.threads), "{name}, {what}: threads grow");
                assert!(!has_grown(|weight| weight.descriptors), "{name}, {what}: descriptors grow");
                let keyed_kib = records / 4 * KEYED_BYTES / 1024;
                let memory = late.anon_kib > early.anon_kib + MARGIN.anon_kib + keyed_kib;
                assert!(!is_long || !memory, "{name}, {what}: memory grows");
            }
        }
    }
}

fn heaviest(weights: impl Iterator<Item = Weight>) -> Weight {
    weights.fold(Weight::default(), |most, one| Weight {
        anon_kib: most.anon_kib.max(one.anon_kib),
        threads: most.threads.max(one.threads),
        descriptors: most.descriptors.max(one.descriptors),
    })
}

/// How many records have been read at every log that they come to; where only some of them come, as many as these stand for.
fn read_everywhere(books: &[Arc<Book>; 2]) -> u64 {
    let logs = [functions::LOGS_HERE, functions::LOGS_THERE];
    let read = books.iter().zip(logs).flat_map(|(book, logs)| {
        logs.iter().filter(|(_, one_in)| *one_in > 0).map(|(log, one_in)| book.count(log) * one_in)
    });
    read.min().unwrap_or(0)
}
