//! Numbered items of one log or function in the arena: a ring that grows with its content.
//!
//! ```text
//!  few items                    many
//!  ring word --> block          ring word --> directory --> block of 32 KiB
//!                                             |         \-> block of 32 KiB
//!                                             \ nothing held there: no block
//! ```
//!
//! The lowest bit of a directory's word is the block's mark: what it means, and when it is set, the index decides. So a search for
//! marked blocks reads the directory alone.
//!
//! Item `n` has place `n` modulo the number of places, a power of two that grows when what is held would not fit. Blocks move to the larger
//! directory unchanged, except the one with both ends of the ring, so growing copies at most 32 KiB.
//!
//! Items are moved only under the journal's lock. Readers take no lock: the ring word has a version, and a reader that finds it changed
//! reads again. A process that dies in between leaves the old ring or the new one, and at worst an unused extent.

use super::arena::Arena;
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering, fence},
};

/// Bytes of a whole block, as a power of two.
const BLOCK_LOG2: u32 = 15;

const DIRECTORY: u64 = 1 << 5;
const VERSION_SHIFT: u32 = 40;
const PLACE_MASK: u64 = (1 << VERSION_SHIFT) - 64;

/// In the word of a directory: the mark of the block. Extents begin at multiples of 64, so the bit is free.
const MARKED: u64 = 1;

/// A ring word, taken apart.
#[derive(Clone, Copy)]
struct Shape {
    at: u64,
    /// Of the items if there is no directory, else of the directory's words.
    log2: u32,
    is_directory: bool,
}

impl Shape {
    fn of(word: u64) -> Option<Self> {
        let at = word & PLACE_MASK;
        (at != 0).then_some(Self { at, log2: (word & 31) as u32, is_directory: word & DIRECTORY != 0 })
    }

    fn word(self, before: u64) -> u64 {
        let version = (before >> VERSION_SHIFT).wrapping_add(1) << VERSION_SHIFT;
        let directory = if self.is_directory { DIRECTORY } else { 0 };
        version | self.at | directory | u64::from(self.log2)
    }
}

/// Items of a power of two of words. `after_copy` completes a block whose items were copied into it one by one; it returns whether the
/// block is to be marked.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    pub arena: &'a Arena,
    /// The ring word.
    pub word: &'a AtomicU64,
    /// Words of an item, as a power of two.
    pub item_log2: u32,
    /// Words of an item that are its own, and are copied with it.
    pub own_words: usize,
    /// The fewest items of a block, as a power of two.
    pub least_log2: u32,
    pub after_copy: fn(&[AtomicU64]) -> bool,
}

/// A block and the numbers of its items.
pub(crate) struct Block<'a> {
    /// Its words.
    pub words: &'a [AtomicU64],
    /// The number of its first item.
    pub first: u64,
}

impl<'a> Ring<'a> {
    /// Items of a whole block, as a power of two.
    fn block_log2(&self) -> u32 {
        BLOCK_LOG2 - 3 - self.item_log2
    }

    fn capacity_of(&self, word: u64) -> u64 {
        Shape::of(word).map_or(0, |shape| match shape.is_directory {
            true => 1 << (shape.log2 + self.block_log2()),
            false => 1 << shape.log2,
        })
    }

    /// How many items have places.
    pub fn capacity(&self) -> u64 {
        self.capacity_of(self.word.load(Ordering::Acquire))
    }

    /// The word of a directory that leads to the block of an item.
    fn directory_word(&self, shape: Shape, n: u64) -> Option<&'a AtomicU64> {
        let index = n >> self.block_log2() & ((1 << shape.log2) - 1);
        self.arena.words(shape.at + index * 8, 1).map(|words| &words[0])
    }

    /// Where the block of an item is, and how many items it has.
    #[inline]
    fn block_at(&self, shape: Shape, n: u64) -> Option<(u64, u64)> {
        if !shape.is_directory {
            return Some((shape.at, 1 << shape.log2));
        }
        let at = self.directory_word(shape, n)?.load(Ordering::Acquire) & PLACE_MASK;
        (at != 0).then_some((at, 1 << self.block_log2()))
    }

    /// The position of an item.
    #[inline]
    fn locate(&self, word: u64, n: u64) -> Option<u64> {
        let (at, items) = self.block_at(Shape::of(word)?, n)?;
        Some(at + ((n & (items - 1)) << self.item_log2) * 8)
    }

    /// The words of an item, for the holder of the journal's lock.
    #[inline]
    pub fn item(&self, n: u64) -> Option<&'a [AtomicU64]> {
        self.arena.words(self.locate(self.word.load(Ordering::Acquire), n)?, 1 << self.item_log2)
    }

    /// The first words of an item as they are now; `None` if it has no place.
    #[inline]
    pub fn read<const WORDS: usize>(&self, n: u64) -> Option<[u64; WORDS]> {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let at = self.locate(word, n);
            let words = at.and_then(|at| self.arena.words(at, WORDS as u64));
            let found = words.map(|words| std::array::from_fn(|n| words[n].load(Ordering::Acquire)));
            // The block may have been reused while it was read.
            fence(Ordering::Acquire);
            if self.word.load(Ordering::Relaxed) == word && self.locate(word, n) == at {
                return found;
            }
        }
    }

    /// The block that holds an item, with the numbers from this item on that are there in this lap, and the ring word that led
    /// there.
    pub fn block(&self, n: u64) -> (u64, Option<Block<'a>>) {
        let word = self.word.load(Ordering::Acquire);
        let Some(shape) = Shape::of(word) else { return (word, None) };
        let items = if shape.is_directory { 1 << self.block_log2() } else { 1 << shape.log2 };
        let first = n & !(items - 1);
        let words = self.block_at(shape, n).and_then(|(at, _)| self.arena.words(at, items << self.item_log2));
        (word, words.map(|words| Block { words, first }))
    }

    /// The same; no block if it is not marked. Of a ring without a directory, the only block counts as marked.
    pub fn marked_block(&self, n: u64) -> (u64, Option<Block<'a>>) {
        let word = self.word.load(Ordering::Acquire);
        match Shape::of(word).filter(|shape| shape.is_directory).map(|shape| self.directory_word(shape, n)) {
            Some(Some(leads)) if leads.load(Ordering::Acquire) & MARKED == 0 => (word, None),
            _ => self.block(n),
        }
    }

    /// Marks the block of an item, or removes its mark; whether that changed anything. The caller has the lock.
    pub fn set_mark(&self, n: u64, is_marked: bool) -> bool {
        let shape = Shape::of(self.word.load(Ordering::Relaxed)).filter(|shape| shape.is_directory);
        let Some(word) = shape.and_then(|shape| self.directory_word(shape, n)) else { return false };
        let before = word.load(Ordering::Relaxed);
        let after = if is_marked { before | MARKED } else { before & !MARKED };
        let changes = before != after && before & PLACE_MASK != 0;
        if changes {
            word.store(after, Ordering::Release);
        }
        changes
    }

    /// Where the next block begins behind an item, whether or not there is a block.
    pub fn behind(&self, n: u64) -> u64 {
        let items = match Shape::of(self.word.load(Ordering::Acquire)) {
            Some(shape) if !shape.is_directory => 1 << shape.log2,
            _ => 1 << self.block_log2(),
        };
        (n | (items - 1)) + 1
    }

    /// The first item of the block of an item, whether or not there is a block.
    pub fn first_of_block(&self, n: u64) -> u64 {
        let items = match Shape::of(self.word.load(Ordering::Acquire)) {
            Some(shape) if !shape.is_directory => 1 << shape.log2,
            _ => 1 << self.block_log2(),
        };
        n & !(items - 1)
    }

    /// Gives item `n` a place beside those from `first` to `last`, which keep theirs or move. The caller has the lock.
    #[inline]
    pub fn make_room(&self, n: u64, first: u64, last: u64) -> io::Result<()> {
        let needed = last.max(n) - first.min(n) + 1;
        if self.capacity_of(self.word.load(Ordering::Relaxed)) < needed {
            self.grow(needed, first, last)?;
        }
        let shape = Shape::of(self.word.load(Ordering::Relaxed)).expect("it has places");
        if shape.is_directory
            && let Some(block) = self.directory_word(shape, n)
            && block.load(Ordering::Relaxed) == 0
        {
            block.store(self.arena.allocate(BLOCK_LOG2)?, Ordering::Release);
        }
        Ok(())
    }

    #[cold]
    fn grow(&self, needed: u64, first: u64, last: u64) -> io::Result<()> {
        let items_log2 = needed.next_power_of_two().ilog2().max(self.least_log2);
        let before = self.word.load(Ordering::Relaxed);
        let mut taken = Vec::new();
        let grown = if items_log2 <= self.block_log2() {
            self.grow_block(items_log2, first, last, &mut taken)
        } else {
            self.grow_directory(items_log2 - self.block_log2(), first, last, &mut taken)
        };
        let (shape, dropped) = grown.inspect_err(|_| {
            taken.iter().for_each(|(at, log2)| self.arena.give_back(*at, *log2)); // Nothing leads there.
        })?;
        self.word.store(shape.word(before), Ordering::Release);
        dropped.into_iter().for_each(|(at, log2)| self.arena.give_back(at, log2));
        Ok(())
    }

    fn take(&self, log2: u32, taken: &mut Vec<(u64, u32)>) -> io::Result<u64> {
        let at = self.arena.allocate(log2)?;
        taken.push((at, log2.max(6)));
        Ok(at)
    }

    /// The size of this number of items, rounded up to a power of two.
    fn bytes_log2(&self, items_log2: u32) -> u32 {
        items_log2 + self.item_log2 + 3
    }

    /// Copies items into the block at `at`, as it is in a ring of blocks of `items` items. Returns the word that leads there from a
    /// directory.
    fn copy(&self, first: u64, last: u64, at: u64, items: u64) -> u64 {
        let Some(block) = self.arena.words(at, items << self.item_log2) else { return at };
        for n in first..=last {
            let to = ((n & (items - 1)) << self.item_log2) as usize;
            if let Some(from) = self.item(n) {
                for word in 0..self.own_words {
                    block[to + word].store(from[word].load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
        }
        if (self.after_copy)(block) { at | MARKED } else { at }
    }

    fn grow_block(
        &self,
        items_log2: u32,
        first: u64,
        last: u64,
        taken: &mut Vec<(u64, u32)>,
    ) -> io::Result<(Shape, Vec<(u64, u32)>)> {
        let at = self.take(self.bytes_log2(items_log2), taken)?;
        let before = Shape::of(self.word.load(Ordering::Relaxed));
        if before.is_some() {
            self.copy(first, last, at, 1 << items_log2);
        }
        let dropped = before.map(|shape| (shape.at, self.bytes_log2(shape.log2)));
        Ok((Shape { at, log2: items_log2, is_directory: false }, dropped.into_iter().collect()))
    }

    fn grow_directory(
        &self,
        log2: u32,
        first: u64,
        last: u64,
        taken: &mut Vec<(u64, u32)>,
    ) -> io::Result<(Shape, Vec<(u64, u32)>)> {
        let (block_log2, mut dropped) = (self.block_log2(), Vec::new());
        let at = self.take(log2 + 3, taken)?;
        let shape = Shape { at, log2, is_directory: true };
        let lead = |block: u64, to: u64| {
            if let Some(word) = self.directory_word(shape, block << block_log2) {
                word.store(to, Ordering::Relaxed);
            }
        };
        let (first_block, last_block) = (first >> block_log2, last >> block_log2);
        match Shape::of(self.word.load(Ordering::Relaxed)) {
            None => {}
            Some(before) if !before.is_directory => {
                for block in first_block..=last_block {
                    if first > last {
                        break;
                    }
                    let to = self.take(BLOCK_LOG2, taken)?;
                    let (from, end) =
                        (first.max(block << block_log2), last.min((block << block_log2) | ((1 << block_log2) - 1)));
                    lead(block, self.copy(from, end, to, 1 << block_log2));
                }
                dropped.push((before.at, self.bytes_log2(before.log2)));
            }
            Some(before) => {
                let blocks = 1_u64 << before.log2;
                for index in 0..blocks {
                    let word = self.directory_word(before, index << block_log2);
                    let Some(word) = word.map(|word| word.load(Ordering::Relaxed)) else { continue };
                    let old = word & PLACE_MASK;
                    if old == 0 {
                        continue;
                    }
                    let block = first_block + (index.wrapping_sub(first_block) & (blocks - 1));
                    if first > last || block > last_block {
                        dropped.push((old, BLOCK_LOG2));
                    } else if block + blocks <= last_block {
                        // Both ends of the ring.
                        let (low, high) = (self.take(BLOCK_LOG2, taken)?, self.take(BLOCK_LOG2, taken)?);
                        let end = (block << block_log2) | ((1 << block_log2) - 1);
                        lead(block, self.copy(first, end, low, 1 << block_log2));
                        lead(block + blocks, self.copy((block + blocks) << block_log2, last, high, 1 << block_log2));
                        dropped.push((old, BLOCK_LOG2));
                    } else {
                        lead(block, word);
                    }
                }
                dropped.push((before.at, before.log2 + 3));
            }
        }
        Ok((shape, dropped))
    }

    /// Frees the blocks without items from `first` to `last`, and those whose items `is_spent` declares unneeded. The caller has the lock.
    pub fn sweep(&self, first: u64, last: u64, is_spent: &dyn Fn(&[AtomicU64]) -> bool) {
        let Some(shape) = Shape::of(self.word.load(Ordering::Relaxed)).filter(|shape| shape.is_directory) else {
            return;
        };
        let block_log2 = self.block_log2();
        let (first_block, last_block, blocks) = (first >> block_log2, last >> block_log2, 1_u64 << shape.log2);
        for index in 0..blocks {
            let Some(word) = self.directory_word(shape, index << block_log2) else { continue };
            let at = word.load(Ordering::Relaxed) & PLACE_MASK;
            let block = first_block + (index.wrapping_sub(first_block) & (blocks - 1));
            let is_last = block == last_block || block + blocks == last_block;
            let words = || self.arena.words(at, 1 << (BLOCK_LOG2 - 3));
            if at != 0 && (block > last_block || !is_last && words().is_none_or(is_spent)) {
                word.store(0, Ordering::Release);
                self.arena.give_back(at, BLOCK_LOG2);
            }
        }
    }

    /// Gives everything back. The caller has the lock.
    pub fn clear(&self) {
        let word = self.word.load(Ordering::Relaxed);
        let Some(shape) = Shape::of(word) else { return };
        let empty = Shape { at: 0, log2: 0, is_directory: false };
        self.word.store(empty.word(word), Ordering::Release);
        if shape.is_directory {
            for index in 0..1_u64 << shape.log2 {
                if let Some((at, _)) = self.block_at(shape, index << self.block_log2()) {
                    self.arena.give_back(at, BLOCK_LOG2);
                }
            }
            self.arena.give_back(shape.at, shape.log2 + 3);
        } else {
            self.arena.give_back(shape.at, self.bytes_log2(shape.log2));
        }
    }

    /// Adds to a checksum what leads to blocks.
    pub fn mark(&self, digest: &mut impl FnMut(u64)) {
        if let Some(shape) = Shape::of(self.word.load(Ordering::Relaxed)).filter(|shape| shape.is_directory)
            && let Some(directory) = self.arena.words(shape.at, 1 << shape.log2)
        {
            directory.iter().for_each(|word| digest(word.load(Ordering::Relaxed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::{Medium, sim::SimDisk};
    use std::sync::Arc;

    fn ring<'a>(arena: &'a Arena, word: &'a AtomicU64) -> Ring<'a> {
        Ring { arena, word, item_log2: 0, own_words: 1, least_log2: 3, after_copy: |_| false }
    }

    /// Pushes items behind and drops them in front by a fixed pattern, and looks at all of them after each step of growth.
    #[test]
    fn items_keep_their_places_while_the_ring_grows_around_them() {
        let disk = SimDisk::default();
        let medium: Arc<dyn Medium> = disk.process();
        let arena = Arena::create(&medium).unwrap();
        let word = AtomicU64::new(0);
        let ring = ring(&arena, &word);
        let (mut first, mut last) = (1_u64, 0_u64);
        let mut capacity = 0;
        for step in 0..60_000_u64 {
            ring.make_room(last + 1, first, last).unwrap();
            last += 1;
            ring.item(last).unwrap()[0].store(last * 3 + 1, Ordering::Relaxed);
            if step % 3 == 0 && step % 1000 < 900 {
                first += 1;
            }
            if capacity != ring.capacity() || step % 9973 == 0 {
                capacity = ring.capacity();
                for n in first..=last {
                    assert_eq!(ring.read::<1>(n), Some([n * 3 + 1]), "{n} of {first}..={last}, {capacity} places");
                }
            }
        }
        let before = arena.bytes();
        ring.sweep(last - 10, last, &|_| false);
        (last - 10..=last).for_each(|n| assert_eq!(ring.read::<1>(n), Some([n * 3 + 1])));
        assert_eq!(ring.read::<1>(first), None, "its block was given back");
        ring.clear();
        assert_eq!((ring.read::<1>(last), ring.capacity()), (None, 0));
        (0..5).for_each(|_| assert!(arena.allocate(BLOCK_LOG2).is_ok()));
        assert_eq!(arena.bytes(), before, "what was given back is used again");
    }

    #[test]
    fn one_old_item_does_not_hold_what_is_between_it_and_the_newest() {
        let disk = SimDisk::default();
        let medium: Arc<dyn Medium> = disk.process();
        let arena = Arena::create(&medium).unwrap();
        let word = AtomicU64::new(0);
        let ring = ring(&arena, &word);
        for n in [5, 3_000_000_000, 7, 1_000_000] {
            ring.make_room(n, 5, 3_000_000_000).unwrap();
            ring.item(n).unwrap()[0].store(n, Ordering::Relaxed);
        }
        assert!(arena.bytes() < 16 << 20, "{} bytes", arena.bytes());
        for n in [5, 7, 1_000_000, 3_000_000_000] {
            assert_eq!(ring.read::<1>(n), Some([n]));
        }
        assert_eq!(ring.read::<1>(2_000_000), None);
    }

    #[test]
    fn what_a_full_disk_refuses_leaves_the_ring_as_it_was() {
        let disk = SimDisk::default();
        let medium: Arc<dyn Medium> = disk.process();
        let arena = Arena::create(&medium).unwrap();
        let word = AtomicU64::new(0);
        let ring = ring(&arena, &word);
        for n in 1..=4096 {
            ring.make_room(n, 1, n - 1).unwrap();
            ring.item(n).unwrap()[0].store(n, Ordering::Relaxed);
        }
        disk.set_room(Some(0));
        let (before, mut n) = (word.load(Ordering::Relaxed), 4097);
        while ring.make_room(n, 1, n - 1).is_ok() {
            ring.item(n).unwrap()[0].store(n, Ordering::Relaxed);
            n += 1;
        }
        assert!(n > 4097 || word.load(Ordering::Relaxed) == before);
        (1..n).for_each(|n| assert_eq!(ring.read::<1>(n), Some([n])));
        disk.set_room(None);
        (n..n + 9000).for_each(|n| ring.make_room(n, 1, n - 1).unwrap());
        (1..n).for_each(|n| assert_eq!(ring.read::<1>(n), Some([n])));
    }
}
