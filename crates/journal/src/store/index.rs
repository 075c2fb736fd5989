//! The index of one log, of one function, or of the whole journal: its entry in the arena, and its ring of items.
//!
//! ```text
//!  0      8        16     24         32    40            48      56     64
//! +------+--------+------+----------+-----+-------------+-------+------+
//! | ring | latest | ended| sleepers | low | role,history| whose | -    |
//! +------+--------+------+----------+-----+-------------+-------+------+
//! ```
//!
//! | role | item `n` | `latest` | `ended` |
//! |---|---|---|---|
//! | log | where record `n` stands | the newest seqno | the floor: records before it were trimmed |
//! | function | where item `n` was opened, where the last note on it stands, and where it was closed | the newest number | how many were closed |
//! | journal | where the entry with sequence `256 × (n − 1)` stands | the newest item | – |
//!
//! Items before `low` are not kept. A block has a bit for each open item of a function, and a bit for each 64 of these bits, in words of
//! the items that are otherwise unused. A block with an open item is marked in the directory of the ring, so a search for open items
//! reads no block that has none.
//!
//! Counters are absolute, and an item is written before the counter that makes it visible. So applying an entry twice is the same as
//! applying it once, and a process may die in between.

use super::{
    arena::{Arena, ENTRY_WORDS},
    ring::Ring,
    slot::{Foreign, Owner, RESERVED_END, Slot, WRONG},
};
use crate::{
    checksum::crc32c,
    write::{commit::prefetch, waiters::Waiters},
};
use millrace_wire::HISTORY_ALL;
use std::{
    io,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

const RING: usize = 0;
const LATEST: usize = 1;
const ENDED: usize = 2;
const WAITERS: usize = 3;
const LOW: usize = 4;
const ROLE: usize = 5;
const WHOSE: usize = 6;

const MAGIC: u64 = 0x5844_4e49 << 32; // "INDX", above the id

/// An entry is indexed by its sequence if that is a multiple of this.
pub(crate) const SEQUENCE_STEP: u64 = 256;
/// The id of the journal's own index; no log or function has it.
pub(crate) const JOURNAL_ID: u32 = 0;

/// Words of a function's item: opened, noted, closed, and one for the block.
const OPENED: usize = 0;
const NOTED: usize = 1;
const CLOSED: usize = 2;
const OF_BLOCK: usize = 3;
const ITEM_WORDS: usize = 4;
/// Which items' fourth words say what: the first sixteen, which items are open; this one, which of those words are not 0.
const GROUPS: usize = 16;
/// This one, where the last of the block's items was closed.
const LAST_CLOSED: usize = 17;

/// The subject of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A log that keeps this number of records.
    Log { history: u64 },
    /// A function.
    Function,
    /// The journal.
    Journal,
}

const ROLE_BITS: u32 = 2;

impl Role {
    fn word(self) -> u64 {
        match self {
            Role::Log { history } => history.min(HISTORY_ALL - 1) << ROLE_BITS | 1,
            Role::Function => 2,
            Role::Journal => 3,
        }
    }

    fn of(word: u64) -> Option<Self> {
        match word & 3 {
            1 if word >> ROLE_BITS == HISTORY_ALL - 1 => Some(Role::Log { history: HISTORY_ALL }),
            1 => Some(Role::Log { history: word >> ROLE_BITS }),
            2 => Some(Role::Function),
            3 => Some(Role::Journal),
            _ => None,
        }
    }
}

/// The position of the newest note on a function's item; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The entry that opened it.
    pub opened: u64,
    /// The last note on it.
    pub noted: u64,
    /// The entry that closed it.
    pub closed: u64,
}

impl Item {
    /// A mark where the index was damaged and the entry's position is unknown.
    pub const DAMAGED: u64 = WRONG;
}

/// An index in use.
#[derive(Clone)]
pub(crate) struct Index<A = Arc<Arena>> {
    arena: A,
    id: u32,
    at: u64,
}

impl<A: Deref<Target = Arena>> Index<A> {
    /// Makes an empty index for an id. The caller has the journal's lock, or is alone.
    pub fn create(arena: A, id: u32, role: Role) -> io::Result<Self> {
        let at = arena.make_entry(id)?;
        let index = Self { arena, id, at };
        let words = index.words();
        words[ROLE].store(0, Ordering::Release);
        // Changes of a failed batch under this id.
        if words[WHOSE].load(Ordering::Relaxed) == MAGIC | u64::from(id) {
            index.ring_of(words, Role::Log { history: 0 }).clear();
        }
        for word in [LATEST, ENDED, LOW] {
            words[word].store(0, Ordering::Relaxed);
        }
        words[WHOSE].store(MAGIC | u64::from(id), Ordering::Relaxed);
        words[ROLE].store(role.word(), Ordering::Release);
        Ok(index)
    }

    /// The index that there is for an id.
    pub fn open(arena: A, id: u32) -> io::Result<Self> {
        Self::find(arena, id)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("there is no index {id}")))
    }

    /// The same; `None` if there is none.
    #[inline]
    pub fn find(arena: A, id: u32) -> Option<Self> {
        let at = arena.entry(id)?;
        let is_whole = arena.words(at, ENTRY_WORDS)?[WHOSE].load(Ordering::Relaxed) == MAGIC | u64::from(id);
        is_whole.then_some(Self { arena, id, at })
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.arena.words(self.at, ENTRY_WORDS).expect("an entry has storage")
    }

    /// Its subject; `None` once that was removed.
    #[inline]
    pub fn role(&self) -> Option<Role> {
        Role::of(self.words()[ROLE].load(Ordering::Acquire))
    }

    fn ring_of<'a>(&'a self, words: &'a [AtomicU64], role: Role) -> Ring<'a> {
        let (item_log2, own_words, least_log2) = if role == Role::Function { (2, 3, 5) } else { (0, 1, 3) };
        Ring { arena: &self.arena, word: &words[RING], item_log2, own_words, least_log2, after_copy: after_copy(role) }
    }

    #[inline]
    fn owner(&self, number: u64) -> Owner {
        Owner { subject: self.id, number }
    }

    /// The newest record's seqno, or the newest item's number.
    #[inline]
    pub fn latest(&self) -> u64 {
        self.words()[LATEST].load(Ordering::Acquire)
    }

    /// Raises the newest number; never lowers it.
    #[inline]
    pub fn raise_latest(&self, to: u64) {
        raise(&self.words()[LATEST], to);
    }

    /// Those who wait for a record of this log.
    pub fn waiters(&self) -> &Waiters {
        self.arena.waiters(self.at + WAITERS as u64 * 8).expect("an entry has storage")
    }

    /// The number of closed items.
    pub fn ended(&self) -> u64 {
        self.words()[ENDED].load(Ordering::Acquire)
    }

    /// Raises the number of closed items; never lowers it.
    pub fn raise_ended(&self, to: u64) {
        raise(&self.words()[ENDED], to);
    }

    /// The oldest seqno that was not trimmed, 0 if none was.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.ended()
    }

    /// How many of its newest records the log keeps; none once it was removed.
    #[inline]
    pub fn history(&self) -> u64 {
        match Role::of(self.words()[ROLE].load(Ordering::Acquire)) {
            Some(Role::Log { history }) => history,
            _ => 0,
        }
    }

    /// Has the log keep another number of records from now on, and gives back the blocks that nothing needs then. The caller has
    /// the lock.
    pub fn set_history(&self, history: u64) {
        let words = self.words();
        if !matches!(self.role(), Some(Role::Log { .. })) {
            return;
        }
        let role = Role::Log { history };
        words[ROLE].store(role.word(), Ordering::Release);
        let (latest, low) = (self.latest(), words[LOW].load(Ordering::Relaxed));
        // One more than the history, as everywhere.
        let kept = latest.saturating_sub(history);
        if low != 0 && low < kept {
            words[LOW].store(kept, Ordering::Release);
            self.ring_of(words, role).sweep(kept, latest, &|_| false);
        }
    }

    /// Notes that records before `before` are gone. The caller has the lock.
    pub fn trim(&self, before: u64) {
        // They existed, even if damage has taken them since: their seqnos must not be given out again.
        self.raise_latest(before.saturating_sub(1));
        let words = self.words();
        raise(&words[ENDED], before);
        if let Some(role @ Role::Log { .. }) = self.role()
            && words[LOW].load(Ordering::Relaxed) != 0
        {
            raise(&words[LOW], before);
            self.ring_of(words, role).sweep(before, self.latest().max(before), &|_| false);
        }
    }

    /// How many items have places.
    pub fn capacity(&self) -> u64 {
        self.role().map_or(0, |role| self.ring_of(self.words(), role).capacity())
    }

    /// Gives item `n` a place, if it is not older than what is held. The caller has the lock.
    #[inline]
    pub fn make_room(&self, n: u64) -> io::Result<()> {
        let words = self.words();
        let Some(role) = Role::of(words[ROLE].load(Ordering::Relaxed)) else { return Ok(()) };
        let (latest, low) = (words[LATEST].load(Ordering::Relaxed), words[LOW].load(Ordering::Relaxed));
        let last = latest.max(n);
        // One more than the history: the oldest record is still found while the newest is being published.
        let kept = match role {
            Role::Log { history } => last.saturating_sub(history).max(words[ENDED].load(Ordering::Relaxed)),
            _ => 0,
        };
        if n < kept.max(1) {
            return Ok(());
        }
        // Held are those from `low` to the latest: others have places and no content yet.
        let first = if low == 0 { n } else { low.max(kept) };
        let ring = self.ring_of(words, role);
        ring.make_room(n, first, latest)?;
        if let Some(item) = ring.item(n) {
            // Where there are many logs it is far from here, and the commit waits for it with the lock.
            prefetch(item.as_ptr().cast(), size_of_val(item));
        }
        if low == 0 || n < low {
            words[LOW].store(n, Ordering::Release);
        }
        Ok(())
    }

    /// The item's words, if it is held. For the holder of the lock.
    #[inline]
    fn item<'a>(&'a self, words: &'a [AtomicU64], role: Role, n: u64) -> Option<&'a [AtomicU64]> {
        if n < words[LOW].load(Ordering::Relaxed) {
            return None;
        }
        self.ring_of(words, role).item(n)
    }

    /// Stores the position of record or item `n`, unless it has left the index. The caller has the lock.
    #[inline]
    pub fn set(&self, n: u64, slot: Slot) {
        let words = self.words();
        let Some(role) = Role::of(words[ROLE].load(Ordering::Relaxed)) else { return };
        let latest = words[LATEST].load(Ordering::Relaxed);
        if matches!(role, Role::Log { history } if n + history <= latest) {
            return;
        }
        if let Some(item) = self.item(words, role, n) {
            item[0].store(slot.pack(self.owner(n)), Ordering::Release);
        }
        self.raise_latest(n);
    }

    /// Has record `n`, if it is held, stand elsewhere. The caller has the lock.
    pub fn replace(&self, n: u64, slot: Slot) {
        let words = self.words();
        let Some(role @ Role::Log { history }) = self.role() else { return };
        let latest = words[LATEST].load(Ordering::Relaxed);
        if n == 0 || n > latest || n + history <= latest {
            return;
        }
        if let Some(item) = self.item(words, role, n) {
            item[0].store(slot.pack(self.owner(n)), Ordering::Release);
        }
    }

    /// The word in the place of record or item `n`.
    #[inline]
    pub fn word(&self, n: u64) -> u64 {
        let words = self.words();
        let role = Role::of(words[ROLE].load(Ordering::Relaxed)).unwrap_or(Role::Journal);
        self.ring_of(words, role).read::<1>(n).map_or(0, |[word]| word)
    }

    /// The position of record or item `n`, if it was stored; an error if another one is there.
    #[inline]
    pub fn slot(&self, n: u64) -> Result<Option<Slot>, Foreign> {
        self.unpack(n, self.word(n))
    }

    /// Decodes the word of record or item `n`.
    #[inline]
    pub fn unpack(&self, n: u64, word: u64) -> Result<Option<Slot>, Foreign> {
        let slot = Slot::unpack(word, self.owner(n))?;
        Ok(slot.filter(|slot| slot.position >= RESERVED_END))
    }

    /// The position of record or item `n`: 0 if none was noted, [`WRONG`] if something else is in its place.
    #[inline]
    pub fn position(&self, n: u64) -> u64 {
        self.slot(n).map_or(WRONG, |slot| slot.map_or(0, |slot| slot.position))
    }

    /// Corrects the position of record `n`, unless it has changed meanwhile.
    pub fn correct(&self, n: u64, wrong: u64, slot: Slot) {
        let words = self.words();
        if let Some(role) = self.role()
            && let Some(item) = self.ring_of(words, role).item(n)
        {
            let right = slot.pack(self.owner(n));
            let _ = item[0].compare_exchange(wrong, right, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Of a function: the item's owner, for one of its words.
    fn part(&self, n: u64, word: usize) -> Owner {
        self.owner(n * ITEM_WORDS as u64 + word as u64)
    }

    /// Notes where item `n` was opened. The caller has the lock.
    pub fn open_item(&self, n: u64, slot: Slot) {
        let words = self.words();
        if self.role() != Some(Role::Function) {
            return;
        }
        let latest = words[LATEST].load(Ordering::Relaxed);
        // The previous words are from another lap, also in the places of missing numbers.
        for new in latest + 1..=n {
            if let Some(item) = self.item(words, Role::Function, new) {
                (OPENED..=CLOSED).for_each(|word| item[word].store(0, Ordering::Release));
            }
        }
        if let Some(item) = self.item(words, Role::Function, n) {
            item[OPENED].store(slot.pack(self.part(n, OPENED)), Ordering::Release);
            if item[CLOSED].load(Ordering::Relaxed) == 0 {
                self.set_open(n, true);
            }
        }
        self.raise_latest(n);
    }

    /// Stores the position of the last entry about item `n`. The caller has the lock.
    pub fn note_item(&self, n: u64, slot: Slot) {
        let words = self.words();
        if self.role() == Some(Role::Function)
            && n <= words[LATEST].load(Ordering::Relaxed)
            && let Some(item) = self.item(words, Role::Function, n)
        {
            let before = Slot::unpack(item[NOTED].load(Ordering::Relaxed), self.part(n, NOTED));
            if !matches!(before, Ok(Some(before)) if before.position > slot.position) {
                item[NOTED].store(slot.pack(self.part(n, NOTED)), Ordering::Release);
            }
        }
    }

    /// Notes where item `n` was closed; nothing changes if it was closed before. `ended` is how many were then, if that is
    /// known. The caller has the lock.
    pub fn close_item(&self, n: u64, slot: Slot, ended: Option<u64>) {
        let words = self.words();
        if self.role() != Some(Role::Function) {
            return;
        }
        if n <= words[LATEST].load(Ordering::Relaxed)
            && let Some(item) = self.item(words, Role::Function, n)
        {
            // One that was flipped since is none.
            let before = Slot::unpack(item[CLOSED].load(Ordering::Relaxed), self.part(n, CLOSED));
            if !matches!(before, Ok(Some(_))) {
                item[CLOSED].store(slot.pack(self.part(n, CLOSED)), Ordering::Release);
                if ended.is_none() {
                    self.raise_ended(self.ended() + 1);
                }
                if let (_, Some(block)) = self.ring_of(words, Role::Function).block(n) {
                    raise(&block.words[LAST_CLOSED * ITEM_WORDS + OF_BLOCK], slot.position);
                }
            }
            self.set_open(n, false);
        }
        ended.into_iter().for_each(|ended| self.raise_ended(ended));
    }

    fn set_open(&self, n: u64, is_open: bool) {
        let ring = self.ring_of(self.words(), Role::Function);
        if let (_, Some(block)) = ring.block(n) {
            // As with the bits: what leads here is set before and cleared after.
            if is_open {
                ring.set_mark(n, true);
            }
            set_bit(block.words, (n - block.first) as usize, is_open);
            if !is_open && !has_open(block.words) {
                ring.set_mark(n, false);
            }
        }
    }

    /// Whether item `n` is held and closed. For the holder of the lock.
    pub fn is_closed(&self, n: u64) -> bool {
        let item = self.item(self.words(), Role::Function, n);
        n <= self.latest() && item.is_some_and(|item| item[CLOSED].load(Ordering::Relaxed) != 0)
    }

    /// The position of the newest note on item `n`; `None` if it is not kept.
    pub fn read_item(&self, n: u64) -> Option<Item> {
        let words = self.words();
        if self.role() != Some(Role::Function) || n < words[LOW].load(Ordering::Acquire) || n > self.latest() {
            return None;
        }
        let found = self.ring_of(words, Role::Function).read::<3>(n)?;
        let position = |word: usize| match Slot::unpack(found[word], self.part(n, word)) {
            Ok(slot) => slot.map_or(0, |slot| slot.position),
            Err(Foreign) => WRONG,
        };
        Some(Item { opened: position(OPENED), noted: position(NOTED), closed: position(CLOSED) })
    }

    /// The first open item from `n` on.
    pub fn next_open(&self, n: u64) -> Option<u64> {
        let words = self.words();
        if self.role() != Some(Role::Function) {
            return None;
        }
        let ring = self.ring_of(words, Role::Function);
        let mut n = n.max(words[LOW].load(Ordering::Acquire)).max(1);
        loop {
            let latest = self.latest();
            if n > latest {
                return None;
            }
            let (word, block) = ring.marked_block(n);
            let found = block.as_ref().and_then(|block| next_bit(block.words, (n - block.first) as usize));
            let next = match (&block, found) {
                (Some(block), Some(bit)) => block.first + bit as u64,
                _ => ring.behind(n),
            };
            fence(Ordering::Acquire);
            if words[RING].load(Ordering::Relaxed) != word {
                continue; // It grew.
            }
            match found {
                // A block that was given back meanwhile may say anything.
                Some(_)
                    if next <= latest
                        && self.read_item(next).is_some_and(|item| item.opened != 0 && item.closed == 0) =>
                {
                    return Some(next);
                }
                Some(_) => n = next + 1,
                None => n = next,
            }
        }
    }

    /// The first item from `n` on that is held and was opened.
    pub fn next_gated(&self, n: u64) -> Option<u64> {
        let words = self.words();
        let mut n = n.max(words[LOW].load(Ordering::Acquire)).max(1);
        while n <= self.latest() && self.role() == Some(Role::Function) {
            let ring = self.ring_of(words, Role::Function);
            match self.read_item(n) {
                Some(item) if item.opened != 0 => return Some(n),
                Some(_) => n += 1,
                None => n = ring.behind(n),
            }
        }
        None
    }

    /// The last item up to `n` that is held and was opened.
    pub fn previous_gated(&self, n: u64) -> Option<u64> {
        let words = self.words();
        let mut n = n.min(self.latest());
        while n >= words[LOW].load(Ordering::Acquire).max(1) && self.role() == Some(Role::Function) {
            let ring = self.ring_of(words, Role::Function);
            match self.read_item(n) {
                Some(item) if item.opened != 0 => return Some(n),
                Some(_) => n -= 1,
                None => n = ring.first_of_block(n).saturating_sub(1),
            }
        }
        None
    }

    /// The last open item up to `n`.
    pub fn previous_open(&self, n: u64) -> Option<u64> {
        let words = self.words();
        if self.role() != Some(Role::Function) {
            return None;
        }
        let ring = self.ring_of(words, Role::Function);
        let mut n = n.min(self.latest());
        loop {
            if n < words[LOW].load(Ordering::Acquire).max(1) {
                return None;
            }
            let first = ring.first_of_block(n);
            let (word, block) = ring.marked_block(n);
            let found = block.as_ref().and_then(|block| previous_bit(block.words, (n - block.first) as usize));
            fence(Ordering::Acquire);
            if words[RING].load(Ordering::Relaxed) != word {
                continue; // It grew.
            }
            let Some(open) = found.map(|bit| first + bit as u64) else {
                n = first.saturating_sub(1);
                continue;
            };
            // A block that was given back meanwhile may say anything.
            if self.read_item(open).is_some_and(|item| item.opened != 0 && item.closed == 0) {
                return Some(open);
            }
            n = open.saturating_sub(1);
        }
    }

    /// How many items are open among those from `from` on and before `to`. It reads bits alone: 1024 items cost 16 words, and one word
    /// if none of them is open.
    pub fn count_open(&self, from: u64, to: u64) -> u64 {
        let words = self.words();
        if self.role() != Some(Role::Function) {
            return 0;
        }
        let ring = self.ring_of(words, Role::Function);
        let (mut n, end) = (from.max(words[LOW].load(Ordering::Acquire)).max(1), to.min(self.latest() + 1));
        let mut count = 0;
        while n < end {
            let behind = ring.behind(n).min(end);
            if let (_, Some(block)) = ring.marked_block(n) {
                count += count_bits(block.words, (n - block.first) as usize, (behind - block.first) as usize);
            }
            n = behind;
        }
        count
    }

    /// Forgets items that are before `first`, where the journal begins. The caller has the lock.
    pub fn forget_before(&self, first: u64) {
        let words = self.words();
        let Some(role) = self.role() else { return };
        let (latest, mut low) = (self.latest(), words[LOW].load(Ordering::Relaxed));
        if low == 0 {
            return;
        }
        let ring = self.ring_of(words, role);
        let is_spent: &dyn Fn(&[AtomicU64]) -> bool = match role {
            Role::Log { .. } => return, // Its records are carried forward.
            Role::Journal => {
                while low < latest && self.position(low) < first {
                    low += 1;
                }
                &|_| false
            }
            Role::Function => {
                while low < latest && self.is_passed(low, first) {
                    low = if ring.block(low).1.is_some() { low + 1 } else { ring.behind(low).min(latest) };
                }
                &|block| {
                    let of_block = |item: usize| block[item * ITEM_WORDS + OF_BLOCK].load(Ordering::Relaxed);
                    of_block(GROUPS) == 0 && of_block(LAST_CLOSED) < first
                }
            }
        };
        words[LOW].store(low, Ordering::Release);
        ring.sweep(low, latest, is_spent);
    }

    fn is_passed(&self, n: u64, first: u64) -> bool {
        self.read_item(n).is_none_or(|item| {
            item.closed != 0 && item.closed < first || item == Item::default() // It was never there, or is lost.
        })
    }

    /// Sets right which items are open; whether it was wrong. The caller has the journal's lock.
    pub fn find_open(&self) -> bool {
        let words = self.words();
        let (mut n, latest, mut was_wrong) = (words[LOW].load(Ordering::Relaxed).max(1), self.latest(), false);
        if self.role() != Some(Role::Function) {
            return false;
        }
        let ring = self.ring_of(words, Role::Function);
        while n <= latest {
            let (Some(item), (_, Some(block))) = (self.read_item(n), ring.block(n)) else {
                n = ring.behind(n);
                continue;
            };
            let (place, is_open) = ((n - block.first) as usize, item.opened != 0 && item.closed == 0);
            if (next_bit(block.words, place) == Some(place)) != is_open {
                set_bit(block.words, place, is_open);
                was_wrong = true;
            }
            n += 1;
            if n == ring.behind(n - 1) || n > latest {
                let has_open = has_open(block.words);
                // A mark too many costs a look and hides nothing.
                was_wrong |= ring.set_mark(n - 1, has_open) && has_open;
            }
        }
        was_wrong
    }

    /// Notes that what it is of was removed, and gives its items back. The caller has the lock.
    pub fn remove(&self) {
        let words = self.words();
        if let Some(role) = self.role() {
            words[ROLE].store(0, Ordering::Release);
            self.ring_of(words, role).clear();
        }
    }
}

/// A checksum of all that must be right in the arena after a clean end: counters, and what leads to slots. Slots are checked when
/// they are read.
pub(crate) fn mark(arena: &Arena) -> u64 {
    let mut bytes = Vec::new();
    let mut digest = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
    arena.mark(&mut digest);
    for (at, count) in arena.entry_blocks() {
        for at in (0..count).map(|n| at + n * ENTRY_WORDS * 8) {
            let Some(words) = arena.words(at, ENTRY_WORDS) else { return 0 };
            let whose = words[WHOSE].load(Ordering::Relaxed);
            if whose == 0 {
                continue;
            }
            for word in [RING, LATEST, ENDED, LOW, ROLE, WHOSE] {
                digest(words[word].load(Ordering::Relaxed));
            }
            if let Some(role) = Role::of(words[ROLE].load(Ordering::Relaxed)) {
                let index = Index { arena, id: whose as u32, at };
                index.ring_of(words, role).mark(&mut digest);
            }
        }
    }
    u64::from(crc32c(&bytes))
}

#[inline]
fn raise(word: &AtomicU64, to: u64) {
    if to > word.load(Ordering::Relaxed) {
        word.store(to, Ordering::Release);
    }
}

fn after_copy(role: Role) -> fn(&[AtomicU64]) -> bool {
    match role {
        Role::Function => |block| {
            let items = block.len() / ITEM_WORDS;
            (0..items).for_each(|item| block[item * ITEM_WORDS + OF_BLOCK].store(0, Ordering::Relaxed));
            for item in 0..items {
                let word = |word: usize| block[item * ITEM_WORDS + word].load(Ordering::Relaxed);
                if word(OPENED) != 0 && word(CLOSED) == 0 {
                    set_bit(block, item, true);
                }
                // Not unpacked, for the block does not know whose it is: the position is in the low bits.
                raise(&block[LAST_CLOSED * ITEM_WORDS + OF_BLOCK], Slot::position_of(word(CLOSED)));
            }
            has_open(block)
        },
        _ => |_| false,
    }
}

/// Whether a block has an open item.
fn has_open(block: &[AtomicU64]) -> bool {
    block[GROUPS * ITEM_WORDS + OF_BLOCK].load(Ordering::Relaxed) != 0
}

/// Says of an item of a block whether it is open.
fn set_bit(block: &[AtomicU64], item: usize, is_open: bool) {
    let (group, bit) = (&block[item / 64 * ITEM_WORDS + OF_BLOCK], 1 << (item % 64));
    let groups = &block[GROUPS * ITEM_WORDS + OF_BLOCK];
    let before = group.load(Ordering::Relaxed);
    let after = if is_open { before | bit } else { before & !bit };
    // The word that leads here is set before and cleared after.
    if is_open {
        groups.fetch_or(1 << (item / 64), Ordering::Release);
    }
    group.store(after, Ordering::Release);
    if after == 0 {
        groups.fetch_and(!(1 << (item / 64)), Ordering::Release);
    }
}

/// The last open item of a block up to `item`.
fn previous_bit(block: &[AtomicU64], item: usize) -> Option<usize> {
    let group = |n: usize| block[n * ITEM_WORDS + OF_BLOCK].load(Ordering::Acquire);
    let last = |n: usize, bits: u64| n * 64 + 63 - bits.leading_zeros() as usize;
    let here = group(item / 64) << (63 - item % 64) >> (63 - item % 64);
    if here != 0 {
        return Some(last(item / 64, here));
    }
    let groups = block[GROUPS * ITEM_WORDS + OF_BLOCK].load(Ordering::Acquire);
    let before = (0..item / 64).rev().filter(|n| groups & 1 << n != 0);
    before.map(|n| (n, group(n))).find(|(_, bits)| *bits != 0).map(|(n, bits)| last(n, bits))
}

/// How many items of a block are open among those from `from` on and before `to`.
fn count_bits(block: &[AtomicU64], from: usize, to: usize) -> u64 {
    let group = |n: usize| block[n * ITEM_WORDS + OF_BLOCK].load(Ordering::Acquire);
    let within = |n: usize| {
        let (low, high) = (from.max(n * 64) - n * 64, to.min(n * 64 + 64) - n * 64);
        group(n) >> low << low << (64 - high) >> (64 - high)
    };
    (from / 64..to.div_ceil(64)).map(|n| u64::from(within(n).count_ones())).sum()
}

/// The first open item of a block from `item` on.
fn next_bit(block: &[AtomicU64], item: usize) -> Option<usize> {
    let group = |n: usize| block[n * ITEM_WORDS + OF_BLOCK].load(Ordering::Acquire);
    let here = group(item / 64) >> (item % 64);
    if here != 0 {
        return Some(item + here.trailing_zeros() as usize);
    }
    let groups = block[GROUPS * ITEM_WORDS + OF_BLOCK].load(Ordering::Acquire);
    let behind = (item / 64 + 1..GROUPS).filter(|n| groups & 1 << n != 0);
    // One that was closed meanwhile may have been the last of its group.
    behind.map(|n| (n, group(n))).find(|(_, bits)| *bits != 0).map(|(n, bits)| n * 64 + bits.trailing_zeros() as usize)
}
