//! The machine's own limits: memory, disk, system calls.

use crate::{Outcome, measure::Samples};
use std::{
    fs::{self, File},
    hint::black_box,
    io::{Read, Write},
    mem,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Condvar, Mutex},
    time::Instant,
};

/// A file that has all its blocks already: the least that a durable write can cost.
pub struct Prewritten {
    file: File,
    bytes: u64,
    at: u64,
}

impl Prewritten {
    pub fn create(path: &Path, bytes: u64) -> Outcome<Self> {
        let mut file = File::create(path)?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..bytes >> 20 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        Ok(Self { file, bytes, at: 0 })
    }

    /// Overwrites the next `bytes` (at most 4096) and waits for the disk.
    pub fn write_durably(&mut self, bytes: usize) -> Outcome<()> {
        static BLOCK: [u8; 4096] = [7; 4096];
        self.file.write_all_at(&BLOCK[..bytes], self.at)?;
        self.at = (self.at + bytes as u64) % (self.bytes - BLOCK.len() as u64);
        Ok(self.file.sync_data()?)
    }
}

/// A minimal group commit to compare with: many threads, one prewritten file. The first thread that finds no flush in progress writes
/// the staged bytes of all threads with one call and flushes once; each thread waits until its own bytes are flushed.
pub struct GroupCommit {
    file: Prewritten,
    queue: Mutex<Queue>,
    flushed: Condvar,
}

#[derive(Default)]
struct Queue {
    staged: Vec<u8>,
    at: u64,
    /// Appends that were staged, and those that are on disk.
    taken: u64,
    durable: u64,
    flushing: bool,
}

impl GroupCommit {
    pub fn create(path: &Path, bytes: u64) -> Outcome<Self> {
        Ok(Self { file: Prewritten::create(path, bytes)?, queue: Mutex::default(), flushed: Condvar::new() })
    }

    /// Returns when `payload` is on disk.
    pub fn append(&self, payload: &[u8]) -> Outcome<()> {
        let mut queue = self.queue.lock().expect("no thread panics with it");
        queue.staged.extend_from_slice(payload);
        queue.taken += 1;
        let mine = queue.taken;
        while queue.durable < mine {
            if queue.flushing {
                queue = self.flushed.wait(queue).expect("no thread panics with it");
                continue;
            }
            queue.flushing = true;
            let (bytes, upto) = (mem::take(&mut queue.staged), queue.taken);
            let at = if queue.at + bytes.len() as u64 > self.file.bytes { 0 } else { queue.at };
            queue.at = at + bytes.len() as u64;
            drop(queue);
            let written = self.file.file.write_all_at(&bytes, at).and_then(|()| self.file.file.sync_data());
            queue = self.queue.lock().expect("no thread panics with it");
            queue.flushing = false;
            queue.durable = upto;
            self.flushed.notify_all();
            written?;
        }
        Ok(())
    }
}

/// Copies 1 KiB and takes its CRC-32C, in µs: around a ring of `ring_bytes`, which is warm.
pub fn copy_and_checksum_us(ring_bytes: usize) -> f64 {
    around(ring_bytes, |to, from| {
        to.copy_from_slice(from);
        black_box(crc_fast::crc32_iscsi(to));
    })
}

/// Copies 1 KiB, in µs.
pub fn copy_us(ring_bytes: usize) -> f64 {
    around(ring_bytes, |to, from| to.copy_from_slice(from))
}

/// Copies 1 KiB from random places of `from`, in µs.
pub fn copy_random_us(from: &[u8]) -> f64 {
    let (mut to, mut random) = ([0u8; 1024], 1u64);
    let count = 1_000_000;
    let start = Instant::now();
    for _ in 0..count {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = ((random >> 33) as usize % (from.len() / 1024)) * 1024;
        to.copy_from_slice(&from[at..at + 1024]);
        black_box(&to);
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}

fn around(ring_bytes: usize, mut operation: impl FnMut(&mut [u8], &[u8])) -> f64 {
    let (mut ring, from) = (vec![1u8; ring_bytes.next_multiple_of(1024)], [7u8; 1024]);
    let rounds = (1_000_000 / (ring.len() / 1024)).max(1);
    let start = Instant::now();
    for _ in 0..rounds {
        for place in ring.chunks_exact_mut(1024) {
            operation(black_box(place), black_box(&from));
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / (rounds * (ring.len() / 1024)) as f64
}

/// Reads all files of a folder from beginning to end; returns the bytes.
pub fn read_folder(folder: &Path) -> Outcome<u64> {
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let mut file = File::open(entry?.path())?;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            black_box(&buffer[..read]);
            bytes += read as u64;
        }
    }
    Ok(bytes)
}

/// Many durable 4 KiB overwrites, one after the other.
pub fn durable_writes(file: &mut Prewritten, count: u64, samples: &mut Samples) -> Outcome<()> {
    crate::measure::each(count, samples, || file.write_durably(4096))
}
