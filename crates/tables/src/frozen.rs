//! A file with the newest versions of keys up to some point of the journal.
//!
//! ```text
//!  versions            keys   sums              expiring              head
//! +-------------------+------+-----------------+---------------------+------+
//! | of each key, in   | fst  | of each 128     | (time, number) of   | 128  |
//! | the order of keys |      | versions, CRC   | versions that expire| bytes|
//! +-------------------+------+-----------------+---------------------+------+
//! ```
//!
//! The keys are a finite-state transducer of the library `fst`, which maps each key to its number; a version has 32 bytes. All integers are
//! little-endian. What stands behind the versions is verified when the file is opened, and 128 versions when one of them is first needed: so
//! opening takes milliseconds for millions of keys.
//!
//! The file is derived from the journal. It is written by a process and used by all; a damaged one is not used.

use crate::view::Found;
use fst::{IntoStreamer, Map, MapBuilder, Streamer};
use millrace_journal::{Journal, Log, Position, SEALED_PREFIX, Sealed, crc32c};
use millrace_wire::{Code, Hlc, Result, table::KeyRange};
use std::{
    io::{self, Write},
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

const MAGIC: &[u8; 8] = b"MRTABLE\x01";
const HEAD_BYTES: usize = 128;
const VERSION_BYTES: usize = 32;
/// Versions with one checksum.
const BLOCK: usize = 128;
const EXPIRING_BYTES: usize = 16;
/// Bit of a version's position: entries begin at multiples of 16.
const IS_VALUE: u64 = 1;

/// Up to where the journal is in a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// All records of the log up to this one are.
    pub seen: u64,
    /// All records of the log before this position are.
    pub upto: Position,
    /// All copies that retention made before this position are.
    pub copies: Position,
}

/// What a file is, besides its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// It has what changed since this record; 0: everything.
    pub since: u64,
    pub reach: Reach,
    /// The clock of the newest record, 0 if it is not known, so that a file of another journal is not taken for one of this.
    pub clock: Hlc,
}

/// A part of the file.
struct Part(Sealed, Range<usize>);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0.as_ref()[self.1.clone()]
    }
}

/// An open file.
pub(crate) struct Frozen {
    name: String,
    head: Head,
    keys: Map<Part>,
    versions: Part,
    sums: Part,
    expiring: Part,
    count: usize,
    new: usize,
    /// A bit for each block of versions that was verified.
    verified: Box<[AtomicU64]>,
    /// So many of those that expire first have a newer version elsewhere.
    passed: AtomicUsize,
    is_damaged: AtomicBool,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn part(file: &Sealed, from: usize, bytes: Option<usize>) -> Option<Part> {
    let to = from.checked_add(bytes?)?;
    (to <= file.as_ref().len()).then(|| Part(file.clone(), from..to))
}

/// The files of a table.
pub(crate) fn prefix(log: &Log) -> String {
    format!("{SEALED_PREFIX}{}-", log.id())
}

/// The name of a file, and the records since which and up to which it has what changed.
pub(crate) fn range_of(name: &str, log: &Log) -> Option<(u64, u64)> {
    let (since, seen) = name.strip_prefix(&prefix(log))?.split_once('-')?;
    Some((since.parse().ok()?, seen.parse().ok()?))
}

impl Frozen {
    /// Opens a file; `None` if it is not there, not complete, damaged, or of another journal.
    pub fn open(journal: &Journal, log: &Log, name: &str) -> Option<Self> {
        let file = journal.sealed().open(name).ok()?;
        let bytes = file.as_ref();
        let at = bytes.len().checked_sub(HEAD_BYTES)?;
        let head = &bytes[at..];
        let number = |n: usize| word(head, n * 8);
        if head.get(..8)? != MAGIC || number(1)? != journal.namespace().get() || number(2)? != u64::from(log.id()) {
            return None;
        }
        let count = usize::try_from(number(3)?).ok()?;
        let (expiring, keys) = (usize::try_from(number(4)?).ok()?, usize::try_from(number(5)?).ok()?);
        let versions = part(&file, 0, count.checked_mul(VERSION_BYTES))?;
        let keys = part(&file, versions.1.end, Some(keys))?;
        let sums = part(&file, keys.1.end, Some(count.div_ceil(BLOCK) * 8))?;
        let expiring = part(&file, sums.1.end, expiring.checked_mul(EXPIRING_BYTES))?;
        let sum = crc32c(&bytes[keys.1.start..bytes.len() - 8]);
        if expiring.1.end != at || u64::from(sum) != number(15)? {
            return None;
        }
        let position = |n: usize| number(n).map(Position::from_bytes);
        let reach = Reach { seen: number(7)?, upto: position(8)?, copies: position(9)? };
        let head = Head { since: number(6)?, reach, clock: Hlc::from_bits(number(10)?) };
        if reach.upto > journal.tail() || reach.seen > log.latest() || !is_of(journal, log, &head) {
            return None;
        }
        let keys = Map::new(keys).ok()?;
        let verified = (0..count.div_ceil(BLOCK * 64)).map(|_| AtomicU64::new(0)).collect();
        let (passed, is_damaged) = (AtomicUsize::new(0), AtomicBool::new(false));
        let new = usize::try_from(number(11)?).ok()?;
        (keys.len() == count).then(|| Self {
            name: name.to_owned(),
            head,
            keys,
            versions,
            sums,
            expiring,
            count,
            new,
            verified,
            passed,
            is_damaged,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// How many of its keys are not in the file before it.
    pub fn new_keys(&self) -> usize {
        self.new
    }

    /// Whether a version could not be read.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Found>> {
        self.keys.get(key).map(|number| self.version(number)).transpose()
    }

    /// The version of the key with this number.
    fn version(&self, number: u64) -> Result<Found> {
        let number = number as usize;
        let (block, versions) = (number / BLOCK, self.versions.as_ref());
        let of_block = || {
            let (from, sum) = (block * BLOCK * VERSION_BYTES, word(self.sums.as_ref(), block * 8)?);
            let bytes = &versions[from..versions.len().min(from + BLOCK * VERSION_BYTES)];
            (u64::from(crc32c(bytes)) == sum).then_some(())
        };
        let is_verified = self.verified[block / 64].load(Ordering::Relaxed) & 1 << (block % 64) != 0;
        if !is_verified {
            if of_block().is_none() {
                self.is_damaged.store(true, Ordering::Relaxed);
                // The view is made anew from the journal.
                return Err(Code::BelowHistory.error(format!("versions in '{}'", self.name)));
            }
            self.verified[block / 64].fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        let field = |n: usize| word(versions, number * VERSION_BYTES + n * 8).unwrap_or_default();
        let position = field(1);
        Ok(Found {
            seqno: field(0),
            position: Position::from_bytes(position & !IS_VALUE),
            written: Position::from_bytes(field(2)),
            expires_us: field(3),
            is_value: position & IS_VALUE != 0,
        })
    }

    /// The keys of a range, in order.
    pub fn range<'f>(&'f self, range: KeyRange<'_>) -> FrozenRange<'f> {
        let from = self.keys.range().ge(range.from);
        let keys = if range.to.is_empty() { from } else { from.lt(range.to) };
        FrozenRange { frozen: self, keys: keys.into_stream() }
    }

    /// The versions that expire at a time or before, the first to expire first, which `is_newest` is asked about.
    pub fn expired(
        &self,
        now_us: u64,
        limit: usize,
        is_newest: impl Fn(&[u8], &Found) -> Result<bool>,
    ) -> Result<Vec<Vec<u8>>> {
        let (mut expired, bytes) = (Vec::new(), self.expiring.as_ref());
        let mut are_passed = true;
        for at in self.passed.load(Ordering::Relaxed)..bytes.len() / EXPIRING_BYTES {
            let field = |n: usize| word(bytes, at * EXPIRING_BYTES + n * 8).unwrap_or_default();
            if field(0) > now_us || expired.len() == limit {
                break;
            }
            let number = field(1);
            let key = self.keys.as_fst().get_key(number).unwrap_or_default();
            if is_newest(&key, &self.version(number)?)? {
                expired.push(key);
                are_passed = false;
            } else if are_passed {
                self.passed.fetch_max(at + 1, Ordering::Relaxed);
            }
        }
        Ok(expired)
    }
}

/// The keys of a file in a range.
pub(crate) struct FrozenRange<'f> {
    frozen: &'f Frozen,
    keys: fst::map::Stream<'f>,
}

impl FrozenRange<'_> {
    /// The next key is copied to `key`.
    pub fn next_into(&mut self, key: &mut Vec<u8>) -> Result<Option<Found>> {
        let Some((next, number)) = self.keys.next() else { return Ok(None) };
        key.clear();
        key.extend_from_slice(next);
        self.frozen.version(number).map(Some)
    }
}

/// Whether a file is of this journal: its newest record has the clock that the file says, or is not in the log any more.
fn is_of(journal: &Journal, log: &Log, head: &Head) -> bool {
    let clock = clock_of(journal, log, head.reach.seen);
    clock == Hlc::ZERO || head.clock == Hlc::ZERO || clock == head.clock
}

/// The clock of a record; 0 if it is not in the log any more.
pub(crate) fn clock_of(journal: &Journal, log: &Log, seqno: u64) -> Hlc {
    if seqno == 0 { Hlc::ZERO } else { journal.clock_of(log, seqno).unwrap_or(Hlc::ZERO) }
}

/// Gives the next key, which replaces what is in the buffer, its version, and whether the file before has it not; `None` after the last one.
type Next<'n> = &'n mut dyn FnMut(&mut Vec<u8>) -> Result<Option<(Found, bool)>>;

/// Writes a file: `each` gives all keys in order.
pub(crate) fn write(
    (journal, log): (&Journal, &Log),
    head: &Head,
    out: &mut dyn Write,
    each: Next<'_>,
) -> io::Result<()> {
    let (mut key, mut keys) = (Vec::new(), MapBuilder::memory());
    let (mut block, mut sums, mut expiring) = (Vec::with_capacity(BLOCK * VERSION_BYTES), Vec::new(), Vec::new());
    let (mut count, mut new) = (0, 0);
    let mut end_block = |block: &mut Vec<u8>, out: &mut dyn Write| {
        sums.extend_from_slice(&u64::from(crc32c(block)).to_le_bytes());
        out.write_all(block)?;
        block.clear();
        io::Result::Ok(())
    };
    while let Some((found, is_new)) = each(&mut key).map_err(io::Error::other)? {
        keys.insert(&key, count).map_err(io::Error::other)?;
        let position = found.position.get() | if found.is_value { IS_VALUE } else { 0 };
        for field in [found.seqno, position, found.written.get(), found.expires_us] {
            block.extend_from_slice(&field.to_le_bytes());
        }
        if found.is_value && found.expires_us > 0 {
            expiring.push((found.expires_us, count));
        }
        count += 1;
        new += u64::from(is_new);
        if block.len() == BLOCK * VERSION_BYTES {
            end_block(&mut block, out)?;
        }
    }
    if !block.is_empty() {
        end_block(&mut block, out)?;
    }
    let mut rest = keys.into_inner().map_err(io::Error::other)?;
    let keys_bytes = rest.len() as u64;
    rest.append(&mut sums);
    expiring.sort_unstable();
    for (expires_us, number) in &expiring {
        rest.extend_from_slice(&expires_us.to_le_bytes());
        rest.extend_from_slice(&number.to_le_bytes());
    }
    rest.extend_from_slice(MAGIC);
    let Head { since, reach, clock } = *head;
    let numbers = [
        journal.namespace().get(),
        u64::from(log.id()),
        count,
        expiring.len() as u64,
        keys_bytes,
        since,
        reach.seen,
        reach.upto.get(),
        reach.copies.get(),
        clock.get(),
        new,
        0,
        0,
        0,
    ];
    numbers.iter().for_each(|number| rest.extend_from_slice(&number.to_le_bytes()));
    let sum = crc32c(&rest);
    out.write_all(&rest)?;
    out.write_all(&u64::from(sum).to_le_bytes())
}
