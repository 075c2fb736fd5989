//! The memory of all indexes: one file that every process maps, in which each log and function has an entry by its id.
//!
//! ```text
//!  0            4096                                   bump          ready
//! +------------+------------+--------+-------+--------+-------------+----------------
//! | header     | entries of | extent | extent| entries| storage     | reserved
//! |            | ids 0..64  |        |       | 64..192| not yet used| addresses
//! +------------+------------+--------+-------+--------+-------------+----------------
//! ```
//!
//! Every process reserves addresses for far more than the file holds, so an extension of the file by one process is visible to all. Extents
//! are powers of two from 64 bytes on. A freed extent is linked into the list of its size; a new one is taken from that list, or from the
//! end of the used storage. Allocation happens under the journal's lock; a process that dies between any two stores of it loses at most the
//! extent that it was about to use or to free, until the arena is rebuilt.
//!
//! Nothing here is authoritative: the whole file can be rebuilt from the journal.

use crate::{
    medium::{Medium, Region},
    write::waiters::Waiters,
};
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// The file.
pub(crate) const NAME: &str = "index/arena";
const MAGIC: u64 = 0x0002_4e45_5241_524d; // "MRAREN" and a version
const HEADER_BYTES: u64 = 4096;
/// The reserved addresses; fewer if the process cannot reserve that many.
const RESERVED_BYTES: u64 = 256 << 30;
/// The file grows by a quarter, within these bounds.
const STEP_MIN_BYTES: u64 = 64 << 10;
const STEP_MAX_BYTES: u64 = 16 << 20;

/// Words of the header.
const READY: usize = 1;
const BUMP: usize = 2;
const ROOTS: usize = 8;
const FREE: usize = 64;

/// The smallest extent: 64 bytes.
const SMALLEST_LOG2: u32 = 6;
/// The largest.
pub(crate) const LARGEST_LOG2: u32 = 38;

/// Ids in the first block of entries; each block after it has twice as many as the previous one.
const FIRST_IDS: u64 = 64;
const BLOCKS: usize = 27;
/// Words of an entry.
pub(crate) const ENTRY_WORDS: u64 = 8;

const _: () = assert!(ROOTS + BLOCKS <= FREE && (FREE + LARGEST_LOG2 as usize) * 8 < HEADER_BYTES as usize);

/// The mapped file.
pub(crate) struct Arena {
    medium: Arc<dyn Medium>,
    region: Arc<Region>,
    /// The end of the storage when this process last looked.
    known: AtomicU64,
    /// The last refusal of the disk, until an attempt succeeds: the requested end, and the error.
    refused: Mutex<Option<(u64, i32)>>,
}

impl Arena {
    /// Replaces the existing arena by an empty one.
    pub fn create(medium: &Arc<dyn Medium>) -> io::Result<Arc<Self>> {
        medium.remove(NAME)?;
        let region = medium.map_within(NAME, RESERVED_BYTES, true)?;
        medium.extend(&region, 0, HEADER_BYTES)?;
        let arena =
            Self { medium: medium.clone(), region, known: AtomicU64::new(HEADER_BYTES), refused: Mutex::default() };
        let header = arena.header();
        header[READY].store(HEADER_BYTES, Ordering::Relaxed);
        header[BUMP].store(HEADER_BYTES, Ordering::Relaxed);
        header[0].store(MAGIC, Ordering::Release);
        Ok(Arc::new(arena))
    }

    /// Opens the arena that another process created, or this one before a clean shutdown.
    pub fn open(medium: &Arc<dyn Medium>) -> io::Result<Arc<Self>> {
        let bytes = medium.identify(NAME)?.1;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it does not have the format of this version");
        if bytes < HEADER_BYTES {
            return Err(damaged());
        }
        let region = medium.map_within(NAME, RESERVED_BYTES, false)?;
        let arena =
            Self { medium: medium.clone(), region, known: AtomicU64::new(HEADER_BYTES), refused: Mutex::default() };
        let header = arena.header();
        let (ready, bump) = (header[READY].load(Ordering::Acquire), header[BUMP].load(Ordering::Acquire));
        // Another process may have extended it since its length was read.
        if header[0].load(Ordering::Acquire) != MAGIC || bump > ready || ready > medium.identify(NAME)?.1 {
            return Err(damaged());
        }
        Ok(Arc::new(arena))
    }

    /// The words of a range that has storage; `None` if it has none, which only a flipped bit can cause.
    #[inline]
    pub fn words(&self, at: u64, count: u64) -> Option<&[AtomicU64]> {
        let end = at.checked_add(count * 8)?;
        if end > self.known.load(Ordering::Relaxed) {
            self.look_again(end)?;
        }
        if !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the range has storage and lies within the mapping, which lives as long as `self`; its base is page-aligned,
        // and words are atomics, for which every bit pattern is valid.
        Some(unsafe {
            std::slice::from_raw_parts(self.region.base.add(at as usize).cast::<AtomicU64>(), count as usize)
        })
    }

    #[cold]
    fn look_again(&self, end: u64) -> Option<()> {
        let ready = self.header()[READY].load(Ordering::Acquire).min(self.region.bytes);
        self.known.fetch_max(ready, Ordering::Relaxed);
        (end <= ready).then_some(())
    }

    /// The futex word of threads that wait for a log, within word `at / 8`.
    pub fn waiters(&self, at: u64) -> Option<&Waiters> {
        let word = &self.words(at, 1)?[0];
        // SAFETY: the first four bytes of a word, an atomic for which every bit pattern is valid. Nobody uses them otherwise.
        Some(unsafe { &*word.as_ptr().cast::<Waiters>() })
    }

    fn header(&self) -> &[AtomicU64] {
        self.words(0, HEADER_BYTES / 8).expect("the header has storage from the start")
    }

    /// The bytes that are in use, and the freed ones.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.header()[BUMP].load(Ordering::Relaxed)
    }

    /// Takes an extent of 2^`log2` bytes, all of them zero. The caller has the journal's lock.
    pub fn allocate(&self, log2: u32) -> io::Result<u64> {
        let log2 = log2.max(SMALLEST_LOG2);
        if log2 > LARGEST_LOG2 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (header, bytes) = (self.header(), 1_u64 << log2);
        let head = header[FREE + log2 as usize].load(Ordering::Relaxed);
        if head != 0 {
            let extent = self.words(head, bytes / 8).filter(|extent| {
                extent[1].load(Ordering::Relaxed) == given_back(head, log2, extent[0].load(Ordering::Relaxed))
            });
            match extent {
                Some(extent) => {
                    header[FREE + log2 as usize].store(extent[0].load(Ordering::Relaxed), Ordering::Release);
                    extent.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                    return Ok(head);
                }
                // A flipped bit: the extents of the list are lost until the arena is rebuilt.
                None => header[FREE + log2 as usize].store(0, Ordering::Release),
            }
        }
        let at = header[BUMP].load(Ordering::Relaxed);
        self.grow(at + bytes)?;
        header[BUMP].store(at + bytes, Ordering::Release);
        Ok(at)
    }

    /// Frees an extent of 2^`log2` bytes. Nothing refers to it; the caller has the journal's lock.
    pub fn give_back(&self, at: u64, log2: u32) {
        let log2 = log2.max(SMALLEST_LOG2);
        let Some(extent) = self.words(at, (1 << log2) / 8) else { return };
        let head = &self.header()[FREE + log2 as usize];
        let next = head.load(Ordering::Relaxed);
        extent[0].store(next, Ordering::Relaxed);
        extent[1].store(given_back(at, log2, next), Ordering::Relaxed);
        head.store(at, Ordering::Release);
    }

    fn refused(&self) -> MutexGuard<'_, Option<(u64, i32)>> {
        self.refused.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Why the disk refused storage, unless a later attempt succeeded.
    pub fn refusal(&self) -> Option<io::Error> {
        self.refused().map(|(_, errno)| io::Error::from_raw_os_error(errno))
    }

    /// Tries again to get the storage that the disk refused. The caller has the journal's lock.
    pub fn ask_again(&self) -> io::Result<()> {
        let refused = *self.refused();
        refused.map_or(Ok(()), |(end, _)| {
            self.grow(end)?;
            *self.refused() = None; // Another process may have got it meanwhile.
            Ok(())
        })
    }

    /// Makes sure that there is storage up to `end`.
    fn grow(&self, end: u64) -> io::Result<()> {
        let ready = &self.header()[READY];
        let from = ready.load(Ordering::Relaxed);
        if end <= from {
            return Ok(());
        }
        if end > self.region.bytes {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let step = (from / 4).clamp(STEP_MIN_BYTES, STEP_MAX_BYTES);
        let far = (end.max(from + step)).next_multiple_of(STEP_MIN_BYTES).min(self.region.bytes);
        let near = end.next_multiple_of(4096);
        let to = match self.medium.extend(&self.region, from, far) {
            Ok(()) => far,
            // A disk that is nearly full may still have the storage that is needed now.
            Err(_) => self.medium.extend(&self.region, from, near).map(|()| near).inspect_err(|error| {
                *self.refused() = Some((end, error.raw_os_error().unwrap_or(libc::EIO)));
            })?,
        };
        *self.refused() = None;
        ready.store(to, Ordering::Release);
        self.known.fetch_max(to, Ordering::Relaxed);
        Ok(())
    }

    /// The position of the entry of an id, if there is one.
    #[inline]
    pub fn entry(&self, id: u32) -> Option<u64> {
        let (block, offset) = place(id);
        let root = self.header()[ROOTS + block].load(Ordering::Acquire);
        (root != 0).then_some(root + offset)
    }

    /// The position of the entry of an id; creates its block of entries if necessary. The caller has the journal's lock.
    pub fn make_entry(&self, id: u32) -> io::Result<u64> {
        let (block, offset) = place(id);
        let root = &self.header()[ROOTS + block];
        if root.load(Ordering::Acquire) == 0 {
            root.store(self.allocate(12 + block as u32)?, Ordering::Release);
        }
        Ok(root.load(Ordering::Acquire) + offset)
    }

    /// All blocks of entries, as positions and numbers of entries.
    pub fn entry_blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        let roots = self.header()[ROOTS..ROOTS + BLOCKS].iter().enumerate();
        roots.filter_map(|(block, root)| match root.load(Ordering::Acquire) {
            0 => None,
            at => Some((at, FIRST_IDS << block)),
        })
    }

    /// Adds all words that point to extents from here to a checksum.
    pub fn mark(&self, digest: &mut impl FnMut(u64)) {
        self.header().iter().for_each(|word| digest(word.load(Ordering::Relaxed)));
    }
}

/// The block of an id's entry, and the entry's place in it.
#[inline]
fn place(id: u32) -> (usize, u64) {
    let n = u64::from(id) / FIRST_IDS + 1;
    let block = n.ilog2();
    let first = FIRST_IDS * ((1 << block) - 1);
    (block as usize, (u64::from(id) - first) * ENTRY_WORDS * 8)
}

/// The second word of an extent that is in the list of its size.
fn given_back(at: u64, log2: u32, next: u64) -> u64 {
    let mixed = (at ^ next.rotate_left(32) ^ u64::from(log2)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29 ^ MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::sim::SimDisk;

    fn arena() -> (SimDisk, Arc<dyn Medium>, Arc<Arena>) {
        let disk = SimDisk::default();
        let medium: Arc<dyn Medium> = disk.process();
        let arena = Arena::create(&medium).unwrap();
        (disk, medium, arena)
    }

    #[test]
    fn every_id_has_a_place_of_its_own() {
        let mut last = (0, 0);
        for id in 0..100_000 {
            let (block, offset) = place(id);
            assert!(offset + 64 <= 4096 << block, "{id}");
            assert!(id == 0 || block > last.0 || offset == last.1 + 64, "{id}");
            last = (block, offset);
        }
        assert!(place(u32::MAX).0 < BLOCKS);
    }

    #[test]
    fn an_extent_that_is_given_back_is_used_again_and_empty() {
        let (_disk, medium, arena) = arena();
        let (one, two) = (arena.allocate(8).unwrap(), arena.allocate(8).unwrap());
        arena.words(one, 32).unwrap().iter().for_each(|word| word.store(7, Ordering::Relaxed));
        arena.give_back(one, 8);
        arena.give_back(two, 8);
        // Another process, which mapped it earlier.
        let other = Arena::open(&medium).unwrap();
        assert_eq!((other.allocate(8).unwrap(), arena.allocate(8).unwrap()), (two, one));
        assert!(arena.words(one, 32).unwrap().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let far = arena.allocate(20).unwrap();
        assert_eq!(other.words(far, 1).unwrap().len(), 1, "what one process added, the other sees");
    }

    #[test]
    fn a_flipped_link_of_the_list_is_not_followed() {
        let (_disk, _medium, arena) = arena();
        let (one, two) = (arena.allocate(8).unwrap(), arena.allocate(8).unwrap());
        arena.give_back(one, 8);
        arena.give_back(two, 8);
        arena.words(two, 1).unwrap()[0].fetch_xor(1 << 9, Ordering::Relaxed);
        let next = arena.allocate(8).unwrap();
        assert!(next != one && next != two);
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_a_fault() {
        let (disk, _medium, arena) = arena();
        disk.set_room(Some(0));
        assert_eq!(arena.allocate(17).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(arena.refusal().and_then(|error| error.raw_os_error()), Some(libc::ENOSPC));
        assert!(arena.ask_again().is_err());
        disk.set_room(Some(8 << 10));
        let at = arena.allocate(12).unwrap();
        assert!(arena.refusal().is_none() && arena.ask_again().is_ok());
        arena.words(at, 512).unwrap()[511].store(1, Ordering::Relaxed);
        disk.observe();
    }
}
