//! The segments: fixed-size files that together are one long, append-only array of bytes.
//!
//! ```text
//!  0        8          16       24             32     36      40      56     60    64
//! +--------+----------+--------+--------------+------+-------+-------------+-----+---------- … ---------+
//! | magic  | namespace| number | base sequence| prev | epoch | salt | unused | crc | entries, then free |
//! +--------+----------+--------+--------------+------+-------+-------------+-----+---------- … ---------+
//! ```
//!
//! `crc` covers bytes 0..60; `prev` and `base sequence` continue the chain of the segment before. A batch never spans two
//! segments. Readers find a segment's address in a table without a lock; a slot of the table holds a segment's number and
//! its address, and a reader that uses a stale slot finds bytes that fail their checksum.

use crate::{
    checksum::crc32c,
    entry::{
        ALIGN_BYTES, HEADER_BYTES, Header, Position, Salt,
        compact::{self, Form},
        is_sealed,
    },
    medium::{Medium, Region, bus},
    write::commit::prefetch,
};
use millrace_wire::{Code, Error, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    io, slice,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Segments that may exist at once; with 64 MiB each, 256 GiB.
pub(crate) const SEGMENTS_MAX: u64 = 4096;
/// Recycled segments kept; more are removed.
pub(crate) const SPARES_MAX: u64 = 4;
/// Bytes before the first entry of a segment.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
const MAGIC: u64 = 0x0003_0047_4553_524d; // "MRSEG" and the format's version

const PAGE_BYTES: u64 = 4096;
/// So much of an entry is fetched before it is read: the rest follows while this is looked at.
const FETCH_BYTES: u64 = 1 << 10;
/// Bytes that are read at once.
const PROBE_BYTES: u64 = 256 << 10;
const HEADER_WORDS: usize = HEADER_BYTES as usize / 8;
/// The header of what is neither an entry nor free space.
const NO_HEADER: Header = Header::decode(NO_ENTRY);
/// Its words: a length of 1.
const NO_ENTRY: [u64; HEADER_WORDS] = [1 << 32, 0, 0, 0, 0, 0, 0, 0];
/// Free space is passed over in steps of this.
const ZEROS_BYTES: u64 = 4096;
/// A page that could not be read is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The folder of the segments.
pub(crate) const FOLDER: &str = "segments";

fn bytes_of(words: [u64; HEADER_WORDS]) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The file of a segment.
pub(crate) fn name(number: u64) -> String {
    format!("{FOLDER}/{number:010}")
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub namespace: u64,
    pub number: u64,
    pub base_sequence: u64,
    pub prev: u32,
    pub epoch: u32,
    pub salt: Salt,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.namespace.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base_sequence.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.prev.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.salt.to_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; 64]) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        (u64_at(0) == MAGIC && u32_at(60) == crc32c(&bytes[..60])).then(|| Self {
            namespace: u64_at(8),
            number: u64_at(16),
            base_sequence: u64_at(24),
            prev: u32_at(32),
            epoch: u32_at(36),
            salt: Salt::from_bytes(bytes[40..56].try_into().expect("16 bytes")),
        })
    }
}

struct TableSlot {
    /// Segment number + 1; 0 is empty.
    tag: AtomicU64,
    base: AtomicPtr<u8>,
}

/// Every segment this process has mapped.
pub(crate) struct Segments {
    medium: Arc<dyn Medium>,
    table: Box<[TableSlot]>,
    maps: Mutex<BTreeMap<u64, Arc<Region>>>,
    shift: u32,
    pub salt: Salt,
    /// Pages that the disk cannot read, by their position. They are never read through a mapping, because that would fault.
    unreadable: RwLock<BTreeSet<u64>>,
    has_unreadable: AtomicBool,
    /// When it was last tried to read again what showed itself to be unreadable while it was in use.
    tried: Mutex<Option<Instant>>,
    /// Whether entries are written through the file rather than the mapping; see [`crate::write::commit`].
    pub through: bool,
}

/// Converts an error of the operating system.
pub(crate) fn io_error(what: impl std::fmt::Display, error: &io::Error) -> Error {
    let code = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Code::DiskFull,
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => Code::ReadOnly,
        _ => Code::Io,
    };
    code.error(format!("{what}: {error}"))
}

impl Segments {
    pub fn new(medium: Arc<dyn Medium>, segment_bytes: u64, through: bool, salt: Salt) -> Self {
        let empty = |_| TableSlot { tag: AtomicU64::new(0), base: AtomicPtr::new(std::ptr::null_mut()) };
        Self {
            medium,
            table: (0..SEGMENTS_MAX).map(empty).collect(),
            maps: Mutex::default(),
            shift: segment_bytes.trailing_zeros(),
            salt,
            unreadable: RwLock::default(),
            has_unreadable: AtomicBool::new(false),
            tried: Mutex::default(),
            through,
        }
    }

    /// Bytes of a segment.
    pub fn bytes(&self) -> u64 {
        1 << self.shift
    }

    /// The segment a position lies in.
    pub fn number(&self, position: u64) -> u64 {
        position >> self.shift
    }

    /// A position's offset in its segment.
    pub fn offset(&self, position: u64) -> u64 {
        position & (self.bytes() - 1)
    }

    /// Where a segment starts.
    pub fn start(&self, number: u64) -> u64 {
        number << self.shift
    }

    /// Where a segment's first entry starts.
    pub fn first_entry(&self, number: u64) -> u64 {
        self.start(number) + SEGMENT_HEADER_BYTES
    }

    /// Bytes from a position to its segment's end.
    pub fn room(&self, position: u64) -> u64 {
        self.bytes() - self.offset(position)
    }

    /// The address of a position, mapping its segment if need be.
    #[inline]
    pub fn address(&self, position: u64) -> Result<*mut u8> {
        let number = self.number(position);
        let slot = &self.table[(number % SEGMENTS_MAX) as usize];
        let base = if slot.tag.load(Ordering::Acquire) == number + 1 {
            slot.base.load(Ordering::Acquire)
        } else {
            self.map(number, false)?.base
        };
        // SAFETY: the offset is below the segment's size, and every region is that large.
        Ok(unsafe { base.add(self.offset(position) as usize) })
    }

    /// Prefetches the start of an entry of about this size, which is about to be read, if its segment is mapped:
    /// its header and its payload come together instead of one after the other.
    #[inline]
    pub fn fetch(&self, position: u64, bytes: u64) {
        let number = self.number(position);
        let slot = &self.table[(number % SEGMENTS_MAX) as usize];
        if slot.tag.load(Ordering::Acquire) == number + 1 {
            let start = slot.base.load(Ordering::Acquire).wrapping_add(self.offset(position) as usize);
            prefetch(start, bytes.min(FETCH_BYTES).min(self.room(position)) as usize);
        }
    }

    /// The region of a segment, mapping it if need be; `create` makes the file.
    #[cold]
    pub fn map(&self, number: u64, create: bool) -> Result<Arc<Region>> {
        let mut maps = self.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(region) = maps.get(&number) {
            return Ok(region.clone());
        }
        let region = match self.adopt_recycled(&mut maps, number) {
            Some(region) => region,
            None => self.medium.map(&name(number), self.bytes(), create).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Code::NamespaceIncomplete.error(format!("{} is missing", name(number))),
                io::ErrorKind::UnexpectedEof => Code::SegmentTruncated.error(format!("{} is too short", name(number))),
                _ => io_error(name(number), &error),
            })?,
        };
        self.retire_removed(&mut maps, number);
        maps.insert(number, region.clone());
        let slot = &self.table[(number % SEGMENTS_MAX) as usize];
        slot.tag.store(0, Ordering::Release);
        slot.base.store(region.base, Ordering::Release);
        slot.tag.store(number + 1, Ordering::Release);
        Ok(region)
    }

    /// Reads all of a segment's data and records the pages that the disk cannot read. Call this before reading a whole segment.
    pub fn probe(&self, number: u64) -> Result<()> {
        self.probe_telling(number, &mut |_| {})
    }

    /// The same; `done` gets each offset up to which it was read.
    pub fn probe_telling(&self, number: u64, done: &mut dyn FnMut(u64)) -> Result<()> {
        let region = self.map(number, false)?;
        let mut bytes = vec![0; PROBE_BYTES as usize];
        let mut at = 0;
        while at < region.bytes {
            let (data, hole) = self.medium.next_data(&region, at);
            for from in (data / PAGE_BYTES * PAGE_BYTES..hole.min(region.bytes)).step_by(PROBE_BYTES as usize) {
                let piece = PROBE_BYTES.min(region.bytes - from);
                // A page of zeros in the place of one that faulted is there as well.
                if (!bus::has_faults() && self.medium.read_in(&region, from, from + piece))
                    || self.is_given(&region, from, &mut bytes[..piece as usize])?
                {
                    done(from + piece);
                    continue;
                }
                for page in (from..from + piece).step_by(PAGE_BYTES as usize) {
                    if !self.is_given(&region, page, &mut bytes[..PAGE_BYTES as usize])? {
                        let mut unreadable = self.unreadable.write().unwrap_or_else(|poisoned| poisoned.into_inner());
                        unreadable.insert(self.start(number) + page);
                        self.has_unreadable.store(true, Ordering::Release);
                    }
                }
                done(from + piece);
            }
            at = hole.max(at + 1);
        }
        Ok(())
    }

    /// Whether the disk gives a range of a file.
    fn is_given(&self, region: &Region, at: u64, bytes: &mut [u8]) -> Result<bool> {
        match self.medium.read_at(region, at, bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
            Err(error) => Err(io_error(FOLDER, &error)),
        }
    }

    /// Whether the disk cannot read some of a range.
    #[inline]
    pub fn is_unreadable(&self, from: u64, bytes: u64) -> bool {
        (self.has_unreadable.load(Ordering::Acquire) && self.next_unreadable(from, from + bytes).is_some())
            || (bus::has_faults() && self.has_faulted(from, bytes))
    }

    /// An error if the disk cannot read a part of a range of one segment: bytes written there through the mapping would be invisible to
    /// other processes.
    #[inline]
    pub fn check_readable(&self, from: u64, bytes: u64) -> Result<()> {
        if self.is_unreadable(from, bytes) { Err(self.unreadable(from)) } else { Ok(()) }
    }

    #[cold]
    fn unreadable(&self, position: u64) -> Error {
        Code::Io.error(format!(
            "the disk cannot read {} near byte {}",
            name(self.number(position)),
            self.offset(position)
        ))
    }

    /// Whether a page of a range of one segment could not be read when it was looked at through the mapping. It is tried again from time to
    /// time: a disk may fail for a while only.
    #[cold]
    fn has_faulted(&self, from: u64, bytes: u64) -> bool {
        let region = self.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&self.number(from)).cloned();
        let Some(region) = region else { return false };
        let (start, end) = (self.offset(from), (self.offset(from) + bytes).min(self.bytes()));
        let Some(mut page) = bus::faulted(&region, start, end) else { return false };
        {
            let mut tried = self.tried.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if tried.is_some_and(|tried| tried.elapsed() < TRY_AGAIN) {
                return true;
            }
            *tried = Some(Instant::now());
        }
        let mut bytes = [0; PAGE_BYTES as usize];
        while self.medium.read_at(&region, page, &mut bytes).is_ok() && bus::mend(&region, page).is_ok() {
            match bus::faulted(&region, start, end) {
                Some(next) => page = next,
                None => return false,
            }
        }
        true
    }

    #[cold]
    fn next_unreadable(&self, from: u64, to: u64) -> Option<u64> {
        let unreadable = self.unreadable.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        unreadable.range(from / PAGE_BYTES * PAGE_BYTES..to).next().copied()
    }

    /// A copy of a range of one segment, read through the file; unreadable parts are zeros.
    pub fn copy(&self, position: u64, bytes: &mut [u8]) -> Result<()> {
        let region = self.map(self.number(position), false)?;
        let from = self.offset(position);
        assert!(bytes.len() as u64 <= self.room(position));
        if self.is_given(&region, from, bytes)? {
            return Ok(());
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = from + done as u64;
            let piece = ((PAGE_BYTES - at % PAGE_BYTES) as usize).min(bytes.len() - done);
            let page = &mut bytes[done..done + piece];
            if !self.is_given(&region, at, page)? {
                page.fill(0);
            }
            done += piece;
        }
        Ok(())
    }

    /// Unmaps a segment whose file is about to be removed, because the next file of its name is a different one. It has no readers.
    pub fn forget(&self, number: u64) {
        let slot = &self.table[(number % SEGMENTS_MAX) as usize];
        let _ = slot.tag.compare_exchange(number + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&number);
    }

    /// A segment that was recycled under a new number is mapped already: its pages stay warm under the new number.
    fn adopt_recycled(&self, maps: &mut BTreeMap<u64, Arc<Region>>, number: u64) -> Option<Arc<Region>> {
        let (identity, bytes) = self.medium.identify(&name(number)).ok()?;
        let old = *maps.iter().find(|(_, region)| region.identity == identity && bytes == region.bytes)?.0;
        maps.remove(&old)
    }

    /// Lets go of what another process removed. The oldest go first; a few of the oldest may have come back under a new
    /// number, or wait for one.
    fn retire_removed(&self, maps: &mut BTreeMap<u64, Arc<Region>>, before: u64) {
        let oldest = maps.range(..before).take(SPARES_MAX as usize + 1);
        for number in oldest.map(|(number, _)| *number).collect::<Vec<_>>() {
            if self.medium.is_removed(&maps[&number]) {
                self.medium.retire(&maps.remove(&number).expect("listed above"));
            }
        }
    }

    /// Unmaps the segments before `first`, except those whose files may be reused under a new number.
    pub fn retire_before(&self, first: u64, is_spare: &dyn Fn(u64) -> bool) {
        let mut maps = self.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for number in maps.range(..first).map(|(number, _)| *number).collect::<Vec<_>>() {
            if is_spare(maps[&number].identity) {
                continue;
            }
            self.medium.retire(&maps.remove(&number).expect("listed above"));
        }
    }

    /// The header of the entry at a position, unchecked.
    #[inline]
    pub fn header(&self, position: u64) -> Result<Header> {
        let mut header = NO_HEADER;
        self.find_header(position, &mut header, &mut [0; HEADER_WORDS])?;
        Ok(header)
    }

    /// Puts it into `header`; if the entry is compact, the first 64 bytes of its head into `of_head`. Whether it is compact.
    #[inline]
    fn find_header(&self, position: u64, header: &mut Header, of_head: &mut [u64; HEADER_WORDS]) -> Result<bool> {
        let mut words = NO_ENTRY;
        self.header_words(position, &mut words)?;
        *header = Header::decode(words);
        if !header.is_compact() {
            return Ok(false);
        }
        let bytes = bytes_of(words);
        let form = Form::of(&bytes).expect("it is compact");
        if form.back() > self.offset(position).saturating_sub(SEGMENT_HEADER_BYTES) || form.back() == 0 {
            *header = NO_HEADER;
            return Ok(true);
        }
        self.header_words(position - form.back(), of_head)?;
        let head = Header::decode(*of_head);
        if head.is_compact() || !compact::expand(form, &bytes, &head, header) {
            *header = NO_HEADER;
        }
        Ok(true)
    }

    /// The first 64 bytes of the entry at a position; of a compact one that the disk can read only by itself, no more.
    #[inline(always)]
    fn header_words(&self, position: u64, words: &mut [u64; HEADER_WORDS]) -> Result<()> {
        assert!(position.is_multiple_of(ALIGN_BYTES) && self.room(position) >= HEADER_BYTES);
        if self.is_unreadable(position, HEADER_BYTES) {
            *words = self.readable_words(position)?;
            return Ok(());
        }
        let address = self.address(position)?;
        // SAFETY: 64 bytes from an aligned position lie within the segment. Another process may be writing there; any
        // bits make a Header, and nobody trusts one before its checksum has passed.
        *words = unsafe { address.cast::<[u64; HEADER_WORDS]>().read_volatile() };
        Ok(())
    }

    /// The same where the disk cannot read all of it: a compact entry may be shorter.
    #[cold]
    fn readable_words(&self, position: u64) -> Result<[u64; HEADER_WORDS]> {
        let (mut words, address) = (NO_ENTRY, self.address(position)?.cast::<u64>());
        let mut known = 0;
        for bytes in [ALIGN_BYTES, HEADER_BYTES] {
            let bytes = if known == 0 {
                bytes
            } else {
                u64::from(Form::of(&bytes_of(words)).map_or(0, Form::length)).min(bytes)
            };
            let upto = bytes.div_ceil(8) as usize;
            if bytes < ALIGN_BYTES || self.is_unreadable(position, bytes) {
                return Ok(NO_ENTRY);
            }
            for (n, word) in words.iter_mut().enumerate().take(upto).skip(known) {
                // SAFETY: as above.
                *word = unsafe { address.add(n).read_volatile() };
            }
            known = upto;
        }
        Ok(words)
    }

    /// The bytes of an entry behind its checksum. `length` was checked against the segment's room.
    pub fn entry_bytes(&self, position: u64, length: u64) -> Result<&[u8]> {
        assert!(length > 4 && length <= self.room(position));
        let address = self.address(position)?;
        // SAFETY: within the segment (asserted), which stays mapped as long as `self`. The bytes of a committed entry do
        // not change until its segment is recycled, which readers notice by checksum and by `first`.
        Ok(unsafe { slice::from_raw_parts(address.add(4), length as usize - 4) })
    }

    /// The bytes of the entry's payload, with its extension.
    pub fn payload(&self, position: u64, header: &Header) -> Result<&[u8]> {
        Ok(&self.entry_bytes(position, u64::from(header.length))?[header.begins() as usize - 4..])
    }

    /// The header of the entry at a position, if there is an intact entry; an error if it has critical additions of a later version.
    #[inline]
    pub fn valid_entry(&self, position: u64) -> Result<Option<Header>> {
        let mut header = NO_HEADER;
        Ok(self.read_entry(position, &mut header)?.then_some(header))
    }

    /// Puts the header of the entry at a position into `header`; whether it is that of an intact entry. A header is long, and who reads
    /// many entries would wait for its copies.
    pub fn read_entry(&self, position: u64, header: &mut Header) -> Result<bool> {
        let room = self.room(position);
        // An index may hold any number after a bit flip.
        if room < HEADER_BYTES || !position.is_multiple_of(ALIGN_BYTES) || self.offset(position) < SEGMENT_HEADER_BYTES
        {
            return Ok(false);
        }
        let mut of_head = [0; HEADER_WORDS];
        let is_compact = self.find_header(position, header, &mut of_head)?;
        if !header.is_plausible(room) || self.is_unreadable(position, u64::from(header.length)) {
            return Ok(false);
        }
        let bytes = self.entry_bytes(position, u64::from(header.length))?;
        let crc = if is_compact {
            self.salt.checksum_behind(&compact::covered(&of_head), position, bytes)
        } else {
            self.salt.checksum(position, bytes)
        };
        let is_whole = crc == header.crc;
        let is_own = || !is_sealed(header.kind) || header.cause == [self.salt.seal(position, header.seqno), 0];
        // A program that knows the salt wrote it, so unknown parts are not damage.
        Ok(is_whole && is_own() && header.admits(position, &bytes[header.begins() as usize - 4..])?)
    }

    /// The position of the next valid entry after damage, or `limit`.
    pub fn resync(&self, damaged: u64, limit: u64) -> Result<u64> {
        let mut position = (damaged + ALIGN_BYTES).next_multiple_of(ALIGN_BYTES);
        while position < limit {
            if self.offset(position) < HEADER_BYTES {
                position = self.first_entry(self.number(position));
            } else if self.room(position) < HEADER_BYTES {
                position = self.start(self.number(position) + 1);
            } else if self.is_unreadable(position, HEADER_BYTES) {
                position += ALIGN_BYTES;
            } else if position.is_multiple_of(ZEROS_BYTES) && self.is_zero(position, ZEROS_BYTES)? {
                position += ZEROS_BYTES; // Free space, most often: no entry starts in zeros.
            } else if self.valid_entry(position)?.is_some() {
                return Ok(position);
            } else {
                position += ALIGN_BYTES;
            }
        }
        Ok(limit)
    }

    /// The header of a segment, if it has a right one.
    pub fn segment_header(&self, number: u64) -> Result<Option<SegmentHeader>> {
        if self.is_unreadable(self.start(number), SEGMENT_HEADER_BYTES) {
            return Ok(None);
        }
        let address = self.address(self.start(number))?;
        // SAFETY: a segment is longer than its header.
        let bytes = unsafe { address.cast::<[u8; 64]>().read_volatile() };
        Ok(SegmentHeader::decode(&bytes).filter(|header| header.number == number))
    }

    /// Whether a segment's file exists. A shorter one is not a segment yet: its maker died in the middle.
    pub fn exists(&self, number: u64) -> bool {
        self.medium.identify(&name(number)).is_ok_and(|(_, bytes)| bytes >= self.bytes())
    }

    /// Flushes the journal from one position to another. Data written through the mapping are flushed page by page: the prepared space
    /// after the tail does not matter to waiters, and its pages stay writable.
    pub fn flush(&self, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        for number in self.number(from)..=self.number(to - 1) {
            let region = self.map(number, false)?;
            let start = self.start(number);
            let flushed = if self.through {
                self.medium.flush(&region)
            } else {
                self.medium.flush_range(&region, from.max(start) - start, to.min(start + self.bytes()) - start)
            };
            flushed
                .map_err(|error| Code::FlushFailed.error(format!("{} at {}: {error}", name(number), Position(from))))?;
        }
        Ok(())
    }

    /// Writes bytes that have no readers yet. They lie within one segment that has storage there.
    pub fn write(&self, position: u64, bytes: &[u8]) -> Result<()> {
        self.write_counted(position, bytes, &mut 0)
    }

    /// The same; `written` gets the number of written bytes, also after an error.
    pub fn write_counted(&self, position: u64, bytes: &[u8], written: &mut u64) -> Result<()> {
        assert!(bytes.len() as u64 <= self.room(position));
        if self.through {
            let region = self.map(self.number(position), false)?;
            while let rest @ [_, ..] = &bytes[*written as usize..] {
                match self.medium.write(&region, self.offset(position) + *written, rest) {
                    Ok(more) => *written += more as u64,
                    Err(error) => return Err(io_error(name(self.number(position)), &error)),
                }
            }
            return Ok(());
        }
        self.check_readable(position, bytes.len() as u64)?;
        let address = self.address(position)?;
        // SAFETY: within the segment (asserted), not yet committed, and the caller is the only writer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
        Ok(())
    }

    /// Rewrites existing bytes through the file, so that the next flush includes them, whatever the state of the page cache.
    pub fn rewrite(&self, from: u64, to: u64) -> Result<()> {
        let mut at = from;
        let mut copy = Vec::new();
        while at < to {
            // All of a segment that has none of its entries before `from`, with its header.
            let bytes = self.room(at).min(to - at).min(1 << 20);
            let address = self.address(at)?;
            copy.clear();
            // SAFETY: within the segment, which nobody else has open.
            copy.extend_from_slice(unsafe { slice::from_raw_parts(address.cast_const(), bytes as usize) });
            self.check_readable(at, bytes)?; // Zeros that stand for it must not take its place.
            let region = self.map(self.number(at), false)?;
            let mut done = 0;
            while done < copy.len() {
                done += self
                    .medium
                    .write(&region, self.offset(at) + done as u64, &copy[done..])
                    .map_err(|error| io_error(name(self.number(at)), &error))?;
            }
            at += bytes;
        }
        Ok(())
    }

    /// Whether a range of one segment holds only zeros.
    pub fn is_zero(&self, from: u64, bytes: u64) -> Result<bool> {
        assert!(bytes <= self.room(from));
        let address = self.address(from)?;
        // SAFETY: within the segment (asserted); concurrent writes may be seen or not.
        let range = unsafe { slice::from_raw_parts(address.cast_const(), bytes as usize) };
        Ok(range.iter().fold(0, |all, byte| all | byte) == 0)
    }

    /// Clears what is not zero from one position to another in one segment, and writes nowhere else: zeros may be holes,
    /// which have no storage, and storing zeros there would ask a full disk for some.
    pub fn scrub(&self, from: u64, to: u64) -> Result<()> {
        let mut at = from;
        while at < to {
            let bytes = (PAGE_BYTES - at % PAGE_BYTES).min(to - at);
            if self.is_unreadable(at, bytes) {
                at += bytes;
                continue;
            }
            let address = self.address(at)?;
            // SAFETY: within the segment, behind everything committed, and the caller is the only writer.
            let page = unsafe { slice::from_raw_parts_mut(address, bytes as usize) };
            // The look itself may show that it cannot be read; then it is read-only.
            if page.iter().any(|byte| *byte != 0) && !self.is_unreadable(at, bytes) {
                page.fill(0);
            }
            at += bytes;
        }
        Ok(())
    }

    /// Clears bytes that were never committed. They lie within one segment.
    pub fn clear(&self, from: u64, to: u64) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let to = to.min(from + self.room(from));
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(ZEROS.len() as u64);
            self.write(at, &ZEROS[..bytes as usize])?;
            at += bytes;
        }
        Ok(())
    }
}
