//! The control page: memory that live processes share. Not part of the portable format; rebuilt when no process is alive.
//!
//! Only the word `last` determines what is committed. The rest can be derived from it and the entries, so if a process dies between two
//! instructions, the next one can repair the page:
//!
//! | word | meaning | after its writer's death |
//! |---|---|---|
//! | `lock` | owner's slot, and whether a process waits | taken over once the slot's owner is seen to be dead |
//! | `last` | position of the newest committed entry: **the commit point** | the truth |
//! | `tail` | its end, for readers | derived from `last` |
//! | `applied` | indexes reflect all entries before it | entries up to `last` are applied again |
//! | `intent` | where the batch being written may reach | bytes up to it are cleared |
//! | `refused` | not 0: from here to `intent` stands a batch that was refused, and could not be cleared | cleared |
//! | `hlc` | at least the newest time drawn | only grows |
//! | `defined` | position of the newest DEFINE applied | set again by applying |
//! | `check` | a checksum of `last`, `applied`, `hlc` and `defined` while nobody has the lock | rebuilt by the process that takes the lock over |
//! | `durable` | everything before it is on disk | believed only if `proof` says the same |
//! | `proof` | the same with a checksum, for who finds the page later | a true lower bound, or seen to be none |
//! | `marked` | what the newest mark in the journal says of `durable` | only costs a mark |
//! | `mark_end` | where that mark ends | only costs a mark |
//! | `attested` | what the newest mark says that is itself durable | only costs a mark |
//! | `ready` | storage is allocated up to it | a true lower bound; the range beyond is allocated again |
//! | `refusing` | slot of a process that the disk refuses, and the number of the error's code | counts while the slot is alive |
//! | `cataloged` | the newest segment that a whole CATALOG begins in | only costs a CATALOG |
//! | `first` | oldest position kept | a true bound; the manifest is older or equal |
//!
//! The page is memory, and memory can fail: a flipped bit must be detected. A process that takes the lock after its release verifies
//! `check` against the words, and closes the journal if they disagree. If the owner died instead, `check` may belong to the previous state;
//! then `last` is used, which the entries at its position confirm. The durable position is always read together with its proof.

use crate::{
    checksum::crc32c,
    medium::{Medium, Region, Slot},
    write::waiters::Waiters,
};
use millrace_wire::{Code, Error, NamespaceId, Result};
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Name of the control file.
pub(crate) const NAME: &str = "control";
const BYTES: u64 = 4096;
/// "MRCTL" and the layout's version.
const MAGIC: u64 = 0x004d_5243_544c_0003;

#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Line<T>(T);

impl<T> Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Fields that are written once when the page is created, and the mark of a clean end.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Birth {
    magic: AtomicU64,
    namespace: AtomicU64,
    boot: AtomicU64,
    clean: AtomicU64,
    /// A checksum of all counters of logs and functions at a clean end.
    pub counters: AtomicU64,
    /// How many processes have opened the namespace since the page was made.
    attachments: AtomicU64,
}

/// The words that the lock protects, together with the lock.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Writer {
    pub lock: AtomicU32,
    pub prepare_lock: AtomicU32,
    pub last: AtomicU64,
    pub applied: AtomicU64,
    pub intent: AtomicU64,
    pub hlc: AtomicU64,
    pub defined: AtomicU64,
    pub poison: AtomicU32,
    pub refused: AtomicU64,
    check: AtomicU64,
    pub retain_lock: AtomicU32,
}

/// The words that readers use.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Published {
    pub tail: AtomicU64,
    /// Counts calls of [`crate::Journal::wake`].
    pub calls: AtomicU32,
    /// Those who wait for any batch.
    pub for_any: Waiters,
    /// Those who wait for any batch of another process.
    pub for_foreign: Waiters,
    /// The waiting processes: 0 for none, a slot for one, and [`SEVERAL`] for more than one.
    foreign: AtomicU32,
    /// Those who wait for a batch that gives a host something to do.
    pub for_work: Waiters,
    /// Those who wait for definitions.
    pub for_defined: Waiters,
    /// The number of waiters for single logs. A waiter that dies stays counted, which makes commits check each log.
    pub log_sleepers: AtomicU32,
}

/// More than one process waits, or has waited, for batches of others.
const SEVERAL: u32 = u32::MAX;

impl Published {
    /// Notes that the process with this slot waits for batches of others. It is noted for as long as the page lives: what has
    /// ended since only costs commits a look at who sleeps.
    pub fn wait_as_foreign(&self, slot: Slot) {
        let note = |noted| match noted {
            0 => Some(slot),
            _ if noted == slot => None,
            _ => Some(SEVERAL),
        };
        let _ = self.foreign.fetch_update(Ordering::SeqCst, Ordering::SeqCst, note);
    }

    /// Whether others than the process with this slot may wait for its batches.
    #[inline]
    pub fn has_foreign(&self, slot: Slot) -> bool {
        let noted = self.foreign.load(Ordering::SeqCst);
        noted != 0 && noted != slot
    }
}

/// Words that change with flushes, allocation and retention.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Upkeep {
    pub durable: AtomicU64,
    pub ready: AtomicU64,
    pub first: AtomicU64,
    pub proof: AtomicU64,
    pub marked: AtomicU64,
    pub mark_end: AtomicU64,
    pub attested: AtomicU64,
    /// The slot above bit 32, the code's number below; 0 if no disk refuses.
    pub refusing: AtomicU64,
    /// The newest segment in which a whole CATALOG begins.
    pub cataloged: AtomicU64,
}

#[repr(C)]
pub(crate) struct Page {
    pub birth: Line<Birth>,
    pub writer: Line<Writer>,
    pub published: Line<Published>,
    pub upkeep: Line<Upkeep>,
}

const _: () = assert!(size_of::<Page>() <= BYTES as usize);

/// Why the journal takes no more writes.
pub(crate) const POISON_FLUSH: u32 = 1;
/// A commit failed where it could not be undone.
pub(crate) const POISON_COMMIT: u32 = 2;
/// The words of this page contradict each other.
pub(crate) const POISON_PAGE: u32 = 3;

/// The mapped control page.
#[derive(Clone)]
pub(crate) struct Control {
    region: Arc<Region>,
}

impl Deref for Control {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: the region is at least as large as the page, aligned to 4096, lives as long as `self`, and the page
        // consists of atomics, for which every bit pattern is a value.
        unsafe { &*self.region.base.cast::<Page>() }
    }
}

impl Control {
    /// Maps the page, making the file if there is none.
    pub fn map(medium: &dyn Medium) -> std::io::Result<Self> {
        let region = medium.map(NAME, BYTES, true)?;
        // Real storage before the first look, so that a full disk is an error here and not a fault.
        medium.reserve(&region)?;
        Ok(Self { region })
    }

    /// Counts this process's opening, under the gate.
    pub fn count_attachment(&self) -> u64 {
        self.birth.attachments.fetch_add(1, Ordering::Relaxed)
    }

    /// Closes the journal to writes, because the page cannot be believed.
    #[cold]
    pub fn contradicted(&self) -> Error {
        self.writer.poison.store(POISON_PAGE, Ordering::SeqCst);
        Code::JournalPoisoned.error("the control page is inconsistent")
    }

    /// Whether it is the same mapping.
    pub fn is(&self, other: &Control) -> bool {
        Arc::ptr_eq(&self.region, &other.region)
    }

    /// Whether the page was made for this namespace.
    pub fn belongs_to(&self, namespace: u64) -> bool {
        self.birth.magic.load(Ordering::Acquire) == MAGIC && self.birth.namespace.load(Ordering::Relaxed) == namespace
    }

    /// For which namespace the page was made, if it was made at all.
    pub fn namespace(&self) -> Option<NamespaceId> {
        let is_page = self.birth.magic.load(Ordering::Acquire) == MAGIC;
        NamespaceId::new(self.birth.namespace.load(Ordering::Relaxed)).filter(|_| is_page)
    }

    /// Whether the last process that used the namespace closed it in this boot, so that page and indexes can be trusted.
    pub fn is_clean(&self, namespace: u64, boot: u64) -> bool {
        self.belongs_to(namespace)
            && boot != 0
            && self.birth.boot.load(Ordering::Relaxed) == boot
            && self.birth.clean.load(Ordering::Relaxed) == self.clean_mark()
            && self.writer.poison.load(Ordering::Relaxed) == 0
            && self.writer.lock.load(Ordering::Relaxed) == 0
    }

    /// The parts of the page that are reliable after an unclean end: a lower bound of what is durable, and whether a flush failed.
    pub fn remains(&self, namespace: u64) -> Remains {
        let ours = self.belongs_to(namespace);
        Remains {
            durable: if ours { proven(self.upkeep.proof.load(Ordering::Relaxed)) } else { 0 },
            flush_failed: ours && self.writer.poison.load(Ordering::Relaxed) == POISON_FLUSH,
        }
    }

    /// Forgets everything but what is durable and whether a flush failed, which a recovery that is cut short must leave to
    /// the next one. The caller is the only process.
    pub fn reset(&self, namespace: u64, boot: u64) {
        if !self.belongs_to(namespace) {
            self.birth.magic.store(0, Ordering::Release);
            self.upkeep.durable.store(0, Ordering::Relaxed);
            self.writer.poison.store(0, Ordering::Relaxed);
            self.upkeep.proof.store(0, Ordering::Relaxed);
        }
        self.birth.clean.store(0, Ordering::Relaxed);
        let locks = [&self.writer.lock, &self.writer.prepare_lock, &self.writer.retain_lock];
        for word in locks.into_iter().chain([&self.published.log_sleepers]) {
            word.store(0, Ordering::Relaxed);
        }
        self.published.for_any.reset();
        self.published.for_work.reset();
        let writer =
            [&self.writer.last, &self.writer.applied, &self.writer.intent, &self.writer.hlc, &self.writer.defined];
        let others = [
            &self.published.tail,
            &self.upkeep.ready,
            &self.upkeep.first,
            &self.upkeep.marked,
            &self.upkeep.mark_end,
            &self.upkeep.attested,
            &self.upkeep.refusing,
            &self.upkeep.cataloged,
            &self.writer.refused,
        ];
        for word in writer.into_iter().chain(others) {
            word.store(0, Ordering::Relaxed);
        }
        self.birth.namespace.store(namespace, Ordering::Relaxed);
        self.birth.boot.store(boot, Ordering::Relaxed);
        self.birth.magic.store(MAGIC, Ordering::Release);
    }

    /// Starts again with the durable state. The caller is the only process.
    pub fn set_durable(&self, durable: u64) {
        self.upkeep.durable.store(durable, Ordering::Release);
        self.upkeep.proof.store(proof(durable), Ordering::Release);
    }

    /// Notes that everything before `durable` is on disk.
    pub fn raise_durable(&self, durable: u64) {
        let raised = |word: u64| (proven(word) < durable).then(|| proof(durable));
        let _ = self.upkeep.proof.fetch_update(Ordering::AcqRel, Ordering::Acquire, raised);
        self.upkeep.durable.fetch_max(durable, Ordering::AcqRel);
    }

    /// Everything before this is on disk.
    #[inline]
    pub fn durable(&self) -> u64 {
        let durable = self.upkeep.durable.load(Ordering::Acquire);
        let proof_now = self.upkeep.proof.load(Ordering::Acquire);
        // While a process raises both, or if one of them has a flipped bit, the proven value is a lower bound.
        if proof(durable) == proof_now { durable } else { proven(proof_now) }
    }

    /// Says that the words that the lock protects are as they should be. The caller has the lock.
    #[inline]
    pub fn seal_words(&self) {
        self.writer.check.store(self.words_check(), Ordering::Release);
    }

    /// Whether the words that the lock protects are as the last holder left them. The caller has the lock.
    #[inline]
    pub fn check_words(&self) -> Result<()> {
        let agrees = self.writer.check.load(Ordering::Acquire) == self.words_check();
        if agrees { Ok(()) } else { Err(self.contradicted()) }
    }

    #[inline]
    fn words_check(&self) -> u64 {
        let Writer { last, applied, hlc, defined, .. } = &*self.writer;
        // Any change of a single word changes the sum: each is multiplied by an odd number, and rotating loses nothing.
        [last, applied, hlc, defined]
            .iter()
            .fold(MAGIC, |sum: u64, word| (sum.rotate_left(23) ^ word.load(Ordering::Relaxed)).wrapping_mul(MIX))
    }

    /// Notes what the newest mark says, and before that where it ends: who reads the one finds the other. Under the lock.
    pub fn note_mark(&self, marked: u64, end: u64) {
        self.upkeep.mark_end.fetch_max(end, Ordering::AcqRel);
        self.upkeep.marked.fetch_max(marked, Ordering::AcqRel);
    }

    pub fn set_clean(&self, clean: bool) {
        self.birth.clean.store(if clean { self.clean_mark() } else { 0 }, Ordering::Release);
    }

    /// A checksum of what the next process will rely on, never 0: a flipped bit must not move the tail.
    fn clean_mark(&self) -> u64 {
        let (writer, upkeep) = (&self.writer, &self.upkeep);
        let words = [
            &writer.last,
            &writer.applied,
            &writer.intent,
            &writer.hlc,
            &writer.defined,
            &self.published.tail,
            &upkeep.durable,
            &upkeep.ready,
            &upkeep.first,
            &upkeep.cataloged,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).collect();
        1 << 32 | u64::from(crc32c(&bytes))
    }

    /// Records that the disk refuses the process in this slot, or no longer does.
    pub fn set_refusing(&self, slot: Slot, code: Option<Code>) {
        let refusing = &self.upkeep.refusing;
        match code.and_then(|code| code.id().strip_prefix("MR")?.parse::<u32>().ok()) {
            Some(number) => refusing.store(u64::from(slot) << 32 | u64::from(number), Ordering::Release),
            None => {
                let reported = refusing.load(Ordering::Acquire);
                if reported >> 32 == u64::from(slot) {
                    // Another process may have recorded a refusal since; that one stays.
                    let _ = refusing.compare_exchange(reported, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }

    /// The slot of the process that the disk refused last, and with what.
    pub fn refusing(&self) -> Option<(Slot, Code)> {
        let reported = self.upkeep.refusing.load(Ordering::Acquire);
        Some(((reported >> 32) as Slot, Code::from_id(&format!("MR{}", reported as u32))?)) // both halves
    }

    /// An error if the journal is closed to writes.
    pub fn check_health(&self) -> Result<()> {
        match self.writer.poison.load(Ordering::Relaxed) {
            0 => Ok(()),
            POISON_FLUSH => Err(Code::FlushFailed.error("the journal was closed to writes after a failed flush")),
            POISON_PAGE => Err(Code::JournalPoisoned.error("the control page is inconsistent")),
            _ => {
                Err(Code::JournalPoisoned.error("the journal was closed to writes after a commit that failed half-way"))
            }
        }
    }
}

/// The reliable values after an unclean end.
pub(crate) struct Remains {
    pub durable: u64,
    pub flush_failed: bool,
}

/// Bits of a position in a proof; the rest is its checksum.
const PROOF_BITS: u32 = 48;

/// A position with its checksum, in one word: a flipped bit must not claim that more was durable.
fn proof(durable: u64) -> u64 {
    let checksum = durable.wrapping_mul(MIX) >> PROOF_BITS | 1;
    if durable >> PROOF_BITS == 0 { durable | checksum << PROOF_BITS } else { 0 }
}

/// An odd number with ones and zeros in no order.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// The position that a proof proves; 0 if it is none.
fn proven(word: u64) -> u64 {
    let durable = word & ((1 << PROOF_BITS) - 1);
    if proof(durable) == word { durable } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_with_a_flipped_bit_proves_nothing() {
        for durable in (0..2000u64).map(|n| n * n * 7919 * 16) {
            assert_eq!(proven(proof(durable)), durable);
            for bit in 0..64 {
                let found = proven(proof(durable) ^ 1 << bit);
                assert_eq!(found, 0, "{durable:#x}, bit {bit}");
            }
        }
    }
}
