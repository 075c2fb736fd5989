//! The bytes of a journal entry.
//!
//! ```text
//!  0        4        8        12   13    14      16               24               32
//! +--------+--------+--------+----+-----+-------+----------------+----------------+
//! | crc    | length | prev   |kind|flags|ordinal| sequence       | hlc            |
//! +--------+--------+--------+----+-----+-------+----------------+----------------+
//! | cause (16)                          | epoch | subject        | seqno          |
//! +-------------------------------------+-------+----------------+----------------+ 64
//! | payload (length - 64), then zero to three-quarters of a 16-byte unit unused   |
//! +-------------------------------------------------------------------------------+
//!  32                                    48      52               56
//! ```
//!
//! All integers are little-endian. `spec/formats/journal.md` is normative; this file implements it.
//!
//! * `crc` is CRC-32C of bytes 4..length, XORed with a mask made from the namespace's secret salt and the entry's position: bytes at
//!   another position than the one where they were written (a recycled segment) never pass, and only someone who knows the salt can make a
//!   payload that imitates an entry.
//! * An OPEN and a MARK, which record what was durable, have a seal of 64 bits in `cause`, computed from the salt as well.
//! * `prev` is the `crc` of the entry before: the journal is a chain, so nothing that was rolled back can be mistaken for
//!   the continuation of something else.
//! * An entry is followed by the next one at the next multiple of 16.
//! * After another entry of its batch, an entry may have a short header: see [`compact`].
//! * A bit in each kind, flag and key that a later version adds determines whether this version may ignore it: see [`Header::unknown`].

pub(crate) mod compact;
pub mod imported;
pub(crate) mod keyed;
pub mod map;
pub mod payload;
pub(crate) mod row;

use crate::checksum::{crc32c, crc32c_after};
use map::Map;
use millrace_wire::{Code, Error, EventId, Hlc, NamespaceId, Result};
use payload::{Attempt, EXTENSION_KEYS, End, ReadRow, Reads, Replaced, Run, known_keys, split_extension};

/// Bytes of an entry before its payload, unless it is compact. No entry, compact or not, begins with less left of its segment.
pub const HEADER_BYTES: u64 = 64;
/// Entries start at multiples of this.
pub const ALIGN_BYTES: u64 = 16;
/// Bytes of a compact entry and of what it covers of its head that are put together to be checked.
const BEHIND_BYTES: usize = 168;
/// Kinds from this number on are ignored by versions that do not support them; the others are critical.
const KIND_IGNORABLE: u8 = 128;

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGN_BYTES));

/// A byte position in the journal: segment number × segment size + offset.
///
/// The default, 0, is before everything; [`crate::Journal::scan`] starts there at the oldest entry that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(crate) u64);

impl Position {
    /// The position that a watermark must reach to have passed this entry.
    #[must_use]
    pub fn just_after(self) -> Position {
        Position(self.0 + 1)
    }
}

impl Position {
    /// The position in bytes.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The position that [`Position::get`] gave.
    pub fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The position of an entry that somebody named; an error if no entry can be there.
    pub fn named(bytes: u64) -> Result<Self> {
        if bytes.is_multiple_of(ALIGN_BYTES) {
            return Ok(Self(bytes));
        }
        let detail =
            format!("no entry is at position {bytes}: the positions of entries are multiples of {ALIGN_BYTES}");
        Err(Code::ValueInvalid.error(detail))
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The journal was opened under a new epoch.
    Open = 1,
    /// A log or function was defined, changed or removed. `seqno` is the position of the DEFINE before.
    Define = 2,
    /// A record: `subject` is its log, `seqno` its place there.
    Append = 3,
    /// A function is to run: `subject` is the function, `seqno` counts its triggers, `cause` is the APPEND, `ordinal` is an
    /// [`payload::Origin`]. Its event id is the run's id.
    Trigger = 4,
    /// An attempt at a run starts, or is over and the run waits: `subject` is the function, `cause` the run, `seqno` the run's
    /// number, `ordinal` the attempt. The payload is an [`Attempt`].
    Fired = 5,
    /// A run has ended permanently: `subject` is the function, `cause` the run, `seqno` counts the function's ended runs. The
    /// payload is an [`End`].
    Done = 6,
    /// The reads of an attempt: `subject` is the function, `cause` the run, `seqno` the run's number. The payload is [`Reads`].
    Read = 7,
    /// From here on, slots of logs lead to other entries: a repair was applied or taken back. Subject and cause are zero; several
    /// may be in one batch.
    Generation = 9,
    /// The records of log `subject` before `seqno` are no longer readable, whatever its history.
    Trim = 10,
    /// A call of a streamed run and its answer, which the next attempt gets again: `subject` is the function, `cause` the run, `ordinal`
    /// counts the calls, `seqno` is that of the call. The payload is the dispatcher's.
    Call = 11,
    /// Everything before position `seqno` was durable when this was written.
    Mark = 12,
    /// Definitions and counters as of here: `ordinal` is how many parts follow, `seqno` the position of the first part, 0 in
    /// that one itself. Its payload is for rebuilding the manifest; readers of entries do not get it.
    Catalog = 128,
}

impl Kind {
    /// The kind that has this number, if this version knows one.
    #[inline]
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Kind::Open,
            2 => Kind::Define,
            3 => Kind::Append,
            4 => Kind::Trigger,
            5 => Kind::Fired,
            6 => Kind::Done,
            7 => Kind::Read,
            9 => Kind::Generation,
            10 => Kind::Trim,
            11 => Kind::Call,
            12 => Kind::Mark,
            128 => Kind::Catalog,
            _ => return None,
        })
    }

    /// The kind as `millrace journal show` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Open => "OPEN",
            Kind::Define => "DEFINE",
            Kind::Append => "APPEND",
            Kind::Trigger => "TRIGGER",
            Kind::Fired => "FIRED",
            Kind::Done => "DONE",
            Kind::Read => "READ",
            Kind::Generation => "GENERATION",
            Kind::Trim => "TRIM",
            Kind::Call => "CALL",
            Kind::Mark => "MARK",
            Kind::Catalog => "CATALOG",
        }
    }
}

/// The entry ends its batch: with it, the whole batch is committed.
pub(crate) const FLAG_LAST: u8 = 1;
/// The entry is a copy of one whose segment was dropped; its extension has the original's identity.
pub(crate) const FLAG_CARRIED: u8 = 2;
/// The entry has no effect until a GENERATION refers to it: no ring, counter or fold includes it.
pub(crate) const FLAG_SHADOW: u8 = 4;
/// Its cause is a claim of its client. The cause of a run's effect is known, because a host executed the run.
pub(crate) const FLAG_CLAIMED: u8 = 8;
/// Its payload begins with an extension: a length (2) and a map of that length.
pub(crate) const FLAG_EXTENDED: u8 = 16;
/// Its header is short; it takes the remaining fields from an earlier full header of its batch.
pub(crate) const FLAG_COMPACT: u8 = 32;
/// The flags that a reader must know; it may ignore the other one.
const FLAGS_CRITICAL: u8 = 0x7F;
const FLAGS_KNOWN: u8 = FLAG_LAST | FLAG_CARRIED | FLAG_SHADOW | FLAG_CLAIMED | FLAG_EXTENDED | FLAG_COMPACT;

/// The fields of an entry's header, full (64 bytes) or short.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub crc: u32,
    pub length: u32,
    pub prev: u32,
    pub kind: u8,
    pub flags: u8,
    pub ordinal: u16,
    pub sequence: u64,
    pub hlc: u64,
    pub cause: [u64; 2],
    pub epoch: u32,
    pub subject: u32,
    pub seqno: u64,
    /// Where the payload of a compact entry begins; 0 of any other.
    pub begins: u16,
    /// Whether `cause` has no namespace because it is the entry's own: a short header does not repeat it.
    pub own_cause: bool,
}

#[cfg(target_endian = "big")]
compile_error!("the journal can be used only on little-endian machines");

impl Header {
    /// Decodes a full header from eight words.
    #[inline]
    pub const fn decode(words: [u64; 8]) -> Self {
        let [crc, prev, sequence, hlc, cause, more, subject, seqno] = words;
        Self {
            crc: crc as u32,
            length: (crc >> 32) as u32,
            prev: prev as u32,
            kind: (prev >> 32) as u8,
            flags: (prev >> 40) as u8,
            ordinal: (prev >> 48) as u16,
            sequence,
            hlc,
            cause: [cause, more],
            epoch: subject as u32,
            subject: (subject >> 32) as u32,
            seqno,
            begins: 0,
            own_cause: false,
        }
    }

    /// The header of an entry that is not compact.
    #[inline]
    pub fn of(entry: &[u8]) -> Self {
        let word = |n: usize| u64::from_le_bytes(entry[8 * n..8 * n + 8].try_into().expect("8 bytes"));
        Self::decode(std::array::from_fn(word))
    }

    /// The bytes of a full header.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[0..4].copy_from_slice(&self.crc.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.prev.to_le_bytes());
        bytes[12] = self.kind;
        bytes[13] = self.flags;
        bytes[14..16].copy_from_slice(&self.ordinal.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.hlc.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.cause[0].to_le_bytes());
        bytes[40..48].copy_from_slice(&self.cause[1].to_le_bytes());
        bytes[48..52].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.subject.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.seqno.to_le_bytes());
        bytes
    }

    /// Its cause, if its own epoch is one of `own`; a seal is not an id.
    #[inline]
    pub fn cause(&self, own: NamespaceId) -> EventId {
        if self.own_cause {
            return EventId::new(own, self.epoch & EventId::EPOCH_MAX, self.cause[0] & EventId::SEQUENCE_MAX);
        }
        self.full_cause().unwrap_or(EventId::NONE)
    }

    /// Its cause, if the header itself names the namespace of the cause.
    #[inline]
    pub fn full_cause(&self) -> Option<EventId> {
        let is_told = !is_sealed(self.kind) && !self.own_cause;
        is_told.then(|| EventId::from_bits(u128::from(self.cause[0]) | u128::from(self.cause[1]) << 64))
    }

    pub fn is_compact(&self) -> bool {
        self.flags & FLAG_COMPACT != 0
    }

    /// Where in the entry its payload begins.
    #[inline]
    pub fn begins(&self) -> u64 {
        if self.is_compact() { u64::from(self.begins) } else { HEADER_BYTES }
    }

    pub fn is_last(&self) -> bool {
        self.flags & FLAG_LAST != 0
    }

    pub fn is_carried(&self) -> bool {
        self.flags & FLAG_CARRIED != 0
    }

    pub fn is_shadow(&self) -> bool {
        self.flags & FLAG_SHADOW != 0
    }

    pub fn is_extended(&self) -> bool {
        self.flags & FLAG_EXTENDED != 0
    }

    /// The kind of an entry that takes effect; `None` if it has none: it is a shadow, or of a kind that may be ignored.
    #[inline]
    pub fn folded(&self) -> Option<Kind> {
        if self.is_shadow() { None } else { Kind::from_u8(self.kind) }
    }

    /// The critical additions of a later version to the header.
    #[inline]
    pub fn unknown(&self) -> Option<String> {
        if self.kind < KIND_IGNORABLE && Kind::from_u8(self.kind).is_none() {
            return Some(format!("an entry of kind {}", self.kind));
        }
        let flags = self.flags & FLAGS_CRITICAL & !FLAGS_KNOWN;
        (flags != 0).then(|| format!("an entry with flag {flags}"))
    }

    /// Looks at the payload of an entry whose checksum passed: whether it is well-formed, and an error naming a key in it that a
    /// later version wrote and this one must not ignore.
    #[inline]
    pub fn admits(&self, position: u64, payload: &[u8]) -> Result<bool> {
        if let Some(what) = self.unknown() {
            return Err(too_new(position, &what));
        }
        let keys = Kind::from_u8(self.kind).and_then(known_keys);
        if keys.is_none() && self.flags & (FLAG_EXTENDED | FLAG_CARRIED) == 0 {
            return Ok(true);
        }
        self.admits_maps(position, payload, keys)
    }

    fn admits_maps(&self, position: u64, mut payload: &[u8], keys: Option<&[u8]>) -> Result<bool> {
        if self.is_extended() {
            let Some((extension, rest)) = split_extension(payload) else { return Ok(false) };
            if let Some(key) = extension.unknown(EXTENSION_KEYS) {
                return Err(too_new(position, &format!("an entry with key {key} in its extension")));
            }
            if self.is_carried() && payload::original(extension).is_none() {
                return Ok(false);
            }
            payload = rest;
        } else if self.is_carried() {
            return Ok(false);
        }
        let Some(keys) = keys else { return Ok(true) };
        let Some(unknown) = Map::check(payload, keys) else { return Ok(false) };
        match (unknown, Kind::from_u8(self.kind)) {
            (Some(key), Some(kind)) => Err(too_new(position, &format!("a {} with key {key}", kind.name()))),
            _ => Ok(true),
        }
    }

    pub fn id(&self, namespace: NamespaceId) -> EventId {
        EventId::new(namespace, self.epoch & EventId::EPOCH_MAX, self.sequence & EventId::SEQUENCE_MAX)
    }

    /// Bytes from this entry to the next.
    pub fn span(&self) -> u64 {
        span(u64::from(self.length))
    }

    /// Bytes that it would take with a full header, as a copy has one.
    pub fn full_span(&self) -> u64 {
        span(HEADER_BYTES + u64::from(self.length) - self.begins())
    }

    /// Whether the fields can be those of an entry that has at most `room` bytes; says nothing of the checksum.
    pub fn is_plausible(&self, room: u64) -> bool {
        u64::from(self.length) >= self.begins()
            && self.length > 0
            && u64::from(self.length) <= room
            && room >= HEADER_BYTES
            && self.kind != 0
            && self.epoch <= EventId::EPOCH_MAX
            && self.sequence <= EventId::SEQUENCE_MAX
    }
}

/// A later version wrote something there that must not be ignored.
#[cold]
fn too_new(position: u64, what: &str) -> Error {
    let here = env!("CARGO_PKG_VERSION");
    Code::FormatVersion
        .error(format!("at position {} is {what}, which Millrace {here} does not know", Position(position)))
}

/// Bytes that an entry of this length takes.
pub(crate) const fn span(length: u64) -> u64 {
    length.next_multiple_of(ALIGN_BYTES)
}

/// A namespace's secret: two words from the operating system. Copies of the journal keep it, because its entries depend on it. Without
/// reading the namespace's files, nobody can construct bytes that pass for an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub(crate) [u64; 2]);

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt(secret)")
    }
}

impl Salt {
    /// A new secret.
    pub(crate) fn random() -> Result<Self> {
        Ok(Self([crate::journal::random_u64()?, crate::journal::random_u64()?]))
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self([number as u64, (number >> 64) as u64])
    }

    /// Mixes a number with the secret: SplitMix64's finalizer, with one half of the secret before it and one within.
    fn mix(self, number: u64) -> u64 {
        let first = number ^ self.0[0];
        let second = (first ^ first >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ self.0[1];
        let third = (second ^ second >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        third ^ third >> 31
    }

    /// Binds a checksum to a position.
    fn mask(self, position: u64) -> u32 {
        self.mix(position) as u32
    }

    /// The checksum of an entry at `position`, given its bytes 4..length.
    pub(crate) fn checksum(self, position: u64, bytes_after_crc: &[u8]) -> u32 {
        crc32c(bytes_after_crc) ^ self.mask(position)
    }

    /// The same of a compact entry, given also what it covers of its head.
    #[inline]
    pub(crate) fn checksum_behind(self, head: &compact::Covered, position: u64, bytes_after_crc: &[u8]) -> u32 {
        /// Words are read as they were written: a processor waits for a word that was written in parts.
        #[repr(align(8))]
        struct Both([u8; BEHIND_BYTES]);
        let Both(mut both) = Both([0; BEHIND_BYTES]);
        let (begin, own) = (compact::UNCOVERED_BYTES, size_of_val(head));
        for (to, word) in both.chunks_exact_mut(8).zip(head) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let end = own + bytes_after_crc.len();
        if end <= both.len() {
            // In one go, which is much faster for few bytes.
            both[own..end].copy_from_slice(bytes_after_crc);
            return self.checksum(position, &both[begin..end]);
        }
        crc32c_after(crc32c(&both[begin..own]), bytes_after_crc) ^ self.mask(position)
    }

    /// The seal of an OPEN or a MARK at `position`, which no other entry has as its cause.
    pub(crate) fn seal(self, position: u64, seqno: u64) -> u64 {
        self.mix(self.mix(!position) ^ seqno)
    }
}

/// The seed of the random numbers of a namespace's atomic runs, together with the run and the attempt, so that a replay gets the same
/// numbers. It comes from the operating system, never changes, and copies keep it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplaySeed(pub(crate) [u8; 16]);

impl std::fmt::Debug for ReplaySeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplaySeed(secret)")
    }
}

impl ReplaySeed {
    /// A new one.
    pub(crate) fn random() -> Result<Self> {
        Salt::random().map(|words| Self(words.to_bytes()))
    }

    /// Its bytes: to make numbers from, never to be shown.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Whether an entry records what was durable, and has a seal.
pub(crate) fn is_sealed(kind: u8) -> bool {
    kind == Kind::Open as u8 || kind == Kind::Mark as u8
}

/// A committed entry, as it is read.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its position.
    pub position: Position,
    /// Where it ends: a scan from here continues behind it.
    pub end: Position,
    /// Where it was first written: elsewhere only if it is carried.
    pub written: Position,
    /// Its kind.
    pub kind: Kind,
    /// Its id; a carried entry keeps the id it was first written with.
    pub id: EventId,
    /// When it happened.
    pub hlc: Hlc,
    /// Its cause.
    pub cause: EventId,
    /// The log or function it is about.
    pub subject: u32,
    /// Its number within the subject; see [`Kind`].
    pub seqno: u64,
    /// Its number among the appends of its run; see [`Kind`].
    pub ordinal: u16,
    /// Whether it ends its batch.
    pub last: bool,
    /// Whether it is the copy of an entry whose segment was dropped.
    pub carried: bool,
    /// Whether its cause is only what its client claims.
    pub claimed: bool,
    /// Whether it counts for nothing: see [`crate::Journal::scan_all`].
    pub shadow: bool,
    /// Its flags.
    pub(crate) flags: u8,
    /// The content of its extension besides the identity of a copy's original.
    pub(crate) extension: Vec<u8>,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl Entry {
    /// The fields of the entry at a position that its header determines, without its id, cause and bytes.
    pub(crate) fn of(position: Position, header: &Header, kind: Kind) -> Self {
        let mut entry = Self {
            position,
            end: position,
            written: position,
            kind,
            id: EventId::NONE,
            hlc: Hlc::default(),
            cause: EventId::NONE,
            subject: 0,
            seqno: 0,
            ordinal: 0,
            last: false,
            carried: false,
            claimed: false,
            shadow: false,
            flags: 0,
            extension: Vec::new(),
            payload: Vec::new(),
        };
        entry.set(position, header, kind);
        entry
    }

    /// Makes it the entry at a position; its id, cause and bytes stay those of another.
    #[inline]
    pub(crate) fn set(&mut self, position: Position, header: &Header, kind: Kind) {
        (self.position, self.end, self.written) = (position, Position(position.0 + header.span()), position);
        (self.kind, self.hlc) = (kind, Hlc::from_bits(header.hlc));
        (self.subject, self.seqno, self.ordinal) = (header.subject, header.seqno, header.ordinal);
        (self.last, self.carried, self.shadow) = (header.is_last(), header.is_carried(), header.is_shadow());
        (self.claimed, self.flags) = (header.flags & FLAG_CLAIMED != 0, header.flags);
    }

    /// The record that a TRIGGER names: log id and seqno.
    pub fn trigger_record(&self) -> Option<(u32, u64)> {
        if self.kind == Kind::Trigger { payload::trigger_record(&self.payload) } else { None }
    }

    /// The payload of a FIRED.
    pub fn attempt(&self) -> Option<Attempt> {
        (self.kind == Kind::Fired).then(|| Attempt::decode(self.ordinal, &self.payload))
    }

    /// The payload of a DONE.
    pub fn ending(&self) -> Option<End<'_>> {
        (self.kind == Kind::Done).then(|| End::decode(&self.payload))
    }

    /// The slot that it replaces, if a repair wrote it.
    pub fn replaced(&self) -> Option<Replaced> {
        payload::replaced(Map::parse(&self.extension)?)
    }

    /// The id that it had in the device from which it was imported, if it was.
    pub fn device_id(&self) -> Option<EventId> {
        imported::device_id(Map::parse(&self.extension)?)
    }

    /// What a FIRED says of an attempt in a device, if it was imported from one.
    pub fn imported_attempt(&self) -> Option<imported::ImportedAttempt> {
        imported::ImportedAttempt::of(Map::parse(&self.extension)?).filter(|_| self.kind == Kind::Fired)
    }

    /// What it says of a key, if it is a record of a table.
    pub fn row(&self) -> Option<row::Row<'_>> {
        row::Row::of(&self.extension)
    }

    /// The repair that wrote it, if one did.
    pub fn repair(&self) -> Option<u64> {
        payload::repair_of(Map::parse(&self.extension)?)
    }

    /// Which repair a GENERATION is of.
    pub fn generation(&self) -> Option<u64> {
        if self.kind == Kind::Generation { payload::generation_repair(&self.payload) } else { None }
    }

    /// The rows of a GENERATION: a log's id, a seqno, and the position of the entry for it.
    pub fn generation_rows(&self) -> impl Iterator<Item = (u32, u64, Position)> {
        let payload: &[u8] = if self.kind == Kind::Generation { &self.payload } else { &[] };
        payload::generation_rows(payload).map(|(log, seqno, position)| (log, seqno, Position(position)))
    }

    /// The rows of a READ.
    pub fn reads(&self) -> impl Iterator<Item = ReadRow<'_>> {
        Reads::decode(if self.kind == Kind::Read { &self.payload } else { &[] })
    }

    /// The run of a TRIGGER, FIRED, READ or CALL, and of an entry that a run left; none for what came from outside.
    pub fn run(&self) -> EventId {
        if self.kind == Kind::Trigger { self.id } else { self.cause }
    }

    /// The number of ended runs of its function, including this one, if a DONE has it.
    pub fn ended(&self) -> Option<u64> {
        if self.kind == Kind::Done { payload::ended(self.seqno, self.ordinal) } else { None }
    }

    /// The run that a TRIGGER begins.
    pub fn triggered(&self) -> Option<Run> {
        (self.kind == Kind::Trigger).then_some(Run { id: self.id, number: self.seqno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_from_its_bytes() {
        let header = Header {
            crc: 0x0102_0304,
            length: 0x1112_1314,
            prev: 0x2122_2324,
            kind: 3,
            flags: 9,
            ordinal: 0x3132,
            sequence: 0x4142_4344_4546_4748,
            hlc: 0x5152_5354_5556_5758,
            cause: [0x6162_6364_6566_6768, 0x7172_7374_7576_7778],
            epoch: 0x8182_8384,
            subject: 0x9192_9394,
            seqno: 0xA1A2_A3A4_A5A6_A7A8,
            ..Header::default()
        };
        let bytes = header.encode();
        let words = std::array::from_fn(|n| u64::from_le_bytes(bytes[8 * n..8 * n + 8].try_into().unwrap()));
        assert_eq!(format!("{:?}", Header::decode(words)), format!("{header:?}"));
        assert_eq!((bytes[12], bytes[13], bytes[14]), (3, 9, 0x32));
        assert_eq!((bytes[48], bytes[52], bytes[56]), (0x84, 0x94, 0xA8));
    }

    #[test]
    fn a_checksum_behind_a_head_is_one_of_both() {
        let (salt, bytes): (_, [u8; 300]) = (Salt([1, 2]), std::array::from_fn(|n| n as u8));
        let head = compact::covered_bytes(&bytes[..64]);
        for own in [10, 111, 112, 113, 114, 236] {
            let both = salt.checksum(160, &bytes[12..64 + own]);
            assert_eq!(salt.checksum_behind(&head, 160, &bytes[64..64 + own]), both, "{own}");
        }
    }

    #[test]
    fn neighbouring_positions_have_different_masks() {
        let salt = Salt([1, 2]);
        let masks: std::collections::HashSet<u32> = (0..10_000).map(|n| salt.mask(n * ALIGN_BYTES)).collect();
        assert!(masks.len() > 9_990, "{} of 10000", masks.len());
    }

    #[test]
    fn every_bit_of_the_salt_changes_about_half_of_a_mask() {
        let salt = Salt([0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210]);
        for bit in 0..128 {
            let mut other = salt;
            other.0[bit / 64] ^= 1 << (bit % 64);
            let changed: u32 = (4..1028u64).map(|n| (salt.mask(n * 16) ^ other.mask(n * 16)).count_ones()).sum();
            assert!((14 << 10..=18 << 10).contains(&changed), "bit {bit}: {changed} bits of 1024 masks");
        }
    }
}
