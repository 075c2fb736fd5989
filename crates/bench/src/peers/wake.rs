//! Limits that need the bare system calls: waking a sleeping thread, touching a fresh page, dropping what is cached.

use crate::{
    Outcome,
    measure::{Samples, wall_ns},
};
use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::Path,
    ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Wakes a thread that sleeps on a futex, every `pace`, and records how long it takes to run. The waker sleeps in between,
/// as the appender of the same row does.
pub fn futex(count: u32, pace: Duration) -> Outcome<Samples> {
    let (word, said) = (AtomicU32::new(0), AtomicU64::new(0));
    let mut samples = Samples::new();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut samples = Samples::new();
            for round in 0..count {
                while word.load(Ordering::Acquire) == round {
                    futex_wait(&word, round);
                }
                samples.record_ns(wall_ns().saturating_sub(said.load(Ordering::Relaxed)));
            }
            samples
        });
        for _ in 0..count {
            thread::sleep(pace);
            said.store(wall_ns(), Ordering::Relaxed);
            word.fetch_add(1, Ordering::Release);
            futex_wake(&word);
        }
        samples.add(&sleeper.join().map_err(|_| "the sleeper panicked")?);
        Ok(samples)
    })
}

fn futex_wait(word: &AtomicU32, expected: u32) {
    let timeout = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: the word and the timeout outlive the call; the caller looks at the word again whatever the outcome.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
            ptr::null::<u32>(),
            0,
        )
    };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1, ptr::null::<u32>(), ptr::null::<u32>(), 0)
    };
}

/// Writes one byte to every page of a new mapping of a file whose blocks are in the page cache, and times each.
pub fn first_touch(file: &File, bytes: usize, samples: &mut Samples) -> Outcome<()> {
    const PAGE_BYTES: usize = 4096;
    // SAFETY: a fresh shared mapping of an open file; it is unmapped below and nobody else knows its address.
    let base = unsafe {
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().into());
    }
    for at in (0..bytes).step_by(PAGE_BYTES) {
        let start = Instant::now();
        // SAFETY: `at` is below the mapping's length, which the file has too.
        unsafe { base.cast::<u8>().add(at).write_volatile(1) };
        samples.record(start.elapsed());
    }
    // SAFETY: the mapping made above, used no more.
    unsafe { libc::munmap(base, bytes) };
    Ok(())
}

/// Has `use_it` look at a mapping of a file whose pages are present: small pages, as the journal's are.
pub fn mapped<R>(file: &File, bytes: usize, use_it: impl FnOnce(&[u8]) -> R) -> Outcome<R> {
    // SAFETY: a fresh mapping of an open file, unmapped below.
    let base = unsafe {
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the file is that long, nobody else knows it, and the slice ends with the call.
    let result = use_it(unsafe { std::slice::from_raw_parts(base.cast(), bytes) });
    // SAFETY: the mapping made above, used no more.
    unsafe { libc::munmap(base, bytes) };
    Ok(result)
}

/// Makes a file durable and has the kernel forget its pages, so that it is read from the disk next.
pub fn forget(path: &Path) -> Outcome<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    // SAFETY: the descriptor is open; the call only gives advice.
    let refused = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if refused == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(refused).into()) }
}
