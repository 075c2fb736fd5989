//! The short header of an entry that comes after another one of its batch, its *head*.
//!
//! ```text
//!  0        4        8        12   13    14
//! +--------+--------+--------+----+-----+-----------+-----------+-------+---------+- …
//! | crc    | form   | prev   |kind|flags| [ordinal] | [subject] | seqno | [cause] | payload
//! +--------+--------+--------+----+-----+-----------+-----------+-------+---------+- …
//!  form:  31 30 29      28      27   20 19    12 11         0
//!        +-----+-------+-------+-------+--------+------------+
//!        |cause|ordinal|subject| count | back   | length     |
//!        +-----+-------+-------+-------+--------+------------+
//! ```
//!
//! `back` is the distance to the head in units of 16 bytes, `count` the same in entries. Epoch, sequence and clock follow from the head's
//! by `count`. Fields in brackets are LEB128, and present if their bit is set. If the subject is the head's, `seqno` is the zigzag-encoded
//! difference to the head's; otherwise it is the seqno itself. The checksum covers the fields of the head that are used here, so a compact
//! entry that passes is as it was written, even if the head's payload was damaged since.
//!
//! An entry is compact if and only if all its fields can be encoded in this way.

use super::{ALIGN_BYTES, FLAG_CARRIED, FLAG_COMPACT, HEADER_BYTES, Header, Kind, is_sealed, map::varint};
use millrace_wire::{EventId, NamespaceId};
use std::ops::Range;

/// The part of its head's header that the checksum of a compact entry covers: kind, flags and everything after them.
const COVERED: Range<usize> = 12..HEADER_BYTES as usize;
/// Its words. The first is covered in part.
pub(crate) type Covered = [u64; (HEADER_BYTES as usize - COVERED.start).div_ceil(8)];
/// Bytes of the first word that are not covered.
pub(crate) const UNCOVERED_BYTES: usize = COVERED.start % 8;
/// Bytes before the first field of variable length.
const FIXED_BYTES: usize = 14;
/// Bytes of the longest short header: an ordinal, a subject, a seqno and a cause.
const MOST_BYTES: usize = FIXED_BYTES + 3 + 5 + 10 + 10;

const LENGTH_BITS: u32 = 12;
const BACK_BITS: u32 = 8;
const COUNT_BITS: u32 = 8;
const HAS_SUBJECT: u32 = 1 << 28;
const HAS_ORDINAL: u32 = 1 << 29;
const CAUSE_SHIFT: u32 = 30;

/// There is no cause.
const CAUSE_NONE: u32 = 0;
/// The cause is the head's.
const CAUSE_SHARED: u32 = 1;
/// The cause is an entry of the same epoch, this number of entries before this one.
const CAUSE_BEFORE: u32 = 2;
/// The cause is the head's, but for the sequence, which is so much more or less.
const CAUSE_NEAR: u32 = 3;

const _: () = assert!(LENGTH_BITS + BACK_BITS + COUNT_BITS == 28 && MOST_BYTES <= HEADER_BYTES as usize);

/// The form of a header, unpacked.
#[derive(Clone, Copy)]
pub(crate) struct Form(u32);

impl Form {
    /// That of an entry, if it is compact.
    #[inline]
    pub fn of(entry: &[u8]) -> Option<Self> {
        (entry[13] & FLAG_COMPACT != 0).then(|| Self(u32::from_le_bytes(entry[4..8].try_into().expect("4 bytes"))))
    }

    /// Bytes of the entry.
    pub fn length(self) -> u32 {
        self.0 & ((1 << LENGTH_BITS) - 1)
    }

    /// Bytes from the head to the entry.
    pub fn back(self) -> u64 {
        u64::from(self.0 >> LENGTH_BITS & ((1 << BACK_BITS) - 1)) * ALIGN_BYTES
    }

    fn count(self) -> u64 {
        u64::from(self.0 >> (LENGTH_BITS + BACK_BITS) & ((1 << COUNT_BITS) - 1))
    }
}

/// Bytes of a staged entry, compact or not.
pub(crate) fn length(entry: &[u8]) -> usize {
    let length = match Form::of(entry) {
        Some(form) => form.length(),
        None => u32::from_le_bytes(entry[4..8].try_into().expect("4 bytes")),
    };
    length as usize
}

/// The part of a head's header that the checksums of the compact entries after it cover.
#[inline]
pub(crate) fn covered(head: &[u64; HEADER_BYTES as usize / 8]) -> Covered {
    std::array::from_fn(|n| head[COVERED.start / 8 + n])
}

/// The same of its bytes.
#[inline]
pub(crate) fn covered_bytes(head: &[u8]) -> Covered {
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    std::array::from_fn(|n| word(8 * (COVERED.start / 8 + n)))
}

/// A short header in the making.
pub(crate) struct Short {
    bytes: [u8; MOST_BYTES],
    length: usize,
}

impl Short {
    /// The header but for `crc`, `prev` and LAST, if all that `header` says can be said so `back` bytes behind `head`.
    #[inline]
    pub fn new(header: &Header, head: &Header, back: u64, payload_bytes: u64, own: NamespaceId) -> Option<Self> {
        let count = header.sequence.wrapping_sub(head.sequence);
        let units = back / ALIGN_BYTES;
        let is_derived = header.hlc == head.hlc.wrapping_add(count) && header.epoch == head.epoch;
        if units >= 1 << BACK_BITS || count >= 1 << COUNT_BITS || !is_derived || !is_plain(header) {
            return None;
        }
        let mut short = Self { bytes: [0; MOST_BYTES], length: FIXED_BYTES };
        let mut form = (units as u32) << LENGTH_BITS | (count as u32) << (LENGTH_BITS + BACK_BITS);
        if header.ordinal != 0 {
            form |= HAS_ORDINAL;
            short.push(header.ordinal.into());
        }
        if header.subject == head.subject {
            short.push(zigzag(header.seqno.wrapping_sub(head.seqno)));
        } else {
            form |= HAS_SUBJECT;
            short.push(header.subject.into());
            short.push(header.seqno);
        }
        form |= short.push_cause(header, head, own)? << CAUSE_SHIFT;
        let length = short.length as u64 + payload_bytes;
        if length >= 1 << LENGTH_BITS {
            return None;
        }
        short.bytes[4..8].copy_from_slice(&(form | length as u32).to_le_bytes());
        (short.bytes[12], short.bytes[13]) = (header.kind, header.flags | FLAG_COMPACT);
        Some(short)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push_cause(&mut self, header: &Header, head: &Header, own: NamespaceId) -> Option<u32> {
        let (cause, shared) = (header.cause, head.cause);
        if cause == [0; 2] {
            return Some(CAUSE_NONE);
        }
        if cause == shared {
            return Some(CAUSE_SHARED);
        }
        let differs = cause[0] ^ shared[0];
        if cause[1] == shared[1] && differs & !EventId::SEQUENCE_MAX == 0 {
            self.push(zigzag(sequence(cause).wrapping_sub(sequence(shared))));
            return Some(CAUSE_NEAR);
        }
        let before = header.sequence.wrapping_sub(sequence(cause));
        (cause == own_event(own, header.epoch, header.sequence.wrapping_sub(before)) && before <= header.sequence).then(
            || {
                self.push(before);
                CAUSE_BEFORE
            },
        )
    }

    #[inline]
    fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.length] = number as u8 | 0x80;
            self.length += 1;
            number >>= 7;
        }
        self.bytes[self.length] = number as u8;
        self.length += 1;
    }
}

/// Whether an entry may have a short header, or be the head of one that has: not if it holds a seal or a position, which change
/// when the batch moves, and no copy, which has a clock of its own.
pub(crate) fn is_plain(header: &Header) -> bool {
    !is_sealed(header.kind) && header.kind != Kind::Define as u8 && header.flags & FLAG_CARRIED == 0
}

/// Puts the full header of a compact entry that begins with `bytes`, after its head, into `header`; false if no header is encoded like
/// this.
#[inline]
pub(crate) fn expand(form: Form, bytes: &[u8; HEADER_BYTES as usize], head: &Header, header: &mut Header) -> bool {
    expand_into(form, bytes, head, header).is_some()
}

#[inline]
fn expand_into(form: Form, bytes: &[u8; HEADER_BYTES as usize], head: &Header, header: &mut Header) -> Option<()> {
    let end = (form.length() as usize).min(bytes.len());
    let mut rest = bytes.get(FIXED_BYTES..end)?;
    let mut next = |most: usize| {
        let (number, behind) = varint(rest, most)?;
        rest = behind;
        Some(number)
    };
    let ordinal = if form.0 & HAS_ORDINAL == 0 { 0 } else { u16::try_from(next(3)?).ok()? };
    let (subject, seqno) = if form.0 & HAS_SUBJECT == 0 {
        (head.subject, head.seqno.wrapping_add(unzigzag(next(10)?)))
    } else {
        (u32::try_from(next(5)?).ok()?, next(10)?)
    };
    let sequence = head.sequence.wrapping_add(form.count());
    let (cause, own_cause) = match form.0 >> CAUSE_SHIFT {
        CAUSE_NONE => ([0; 2], false),
        CAUSE_SHARED => (head.cause, false),
        CAUSE_BEFORE => ([sequence.checked_sub(next(10)?)?, 0], true),
        _ => {
            let near = sequence_of(head.cause[0]).checked_add_signed(unzigzag(next(10)?) as i64)?;
            ([head.cause[0] & !EventId::SEQUENCE_MAX | sequence_of(near), head.cause[1]], false)
        }
    };
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    *header = Header {
        crc: word(0),
        length: form.length(),
        prev: word(8),
        kind: bytes[12],
        flags: bytes[13],
        ordinal,
        sequence,
        hlc: head.hlc.wrapping_add(form.count()),
        cause,
        epoch: head.epoch,
        subject,
        seqno,
        begins: (end - rest.len()) as u16,
        own_cause,
    };
    (form.count() > 0 && is_plain(header) && is_plain(head)).then_some(())
}

/// The id of an event of one's own, as a header has it.
fn own_event(own: NamespaceId, epoch: u32, sequence: u64) -> [u64; 2] {
    let id = EventId::new(own, epoch & EventId::EPOCH_MAX, sequence_of(sequence)).get();
    [id as u64, (id >> 64) as u64]
}

fn sequence(cause: [u64; 2]) -> u64 {
    sequence_of(cause[0])
}

fn sequence_of(number: u64) -> u64 {
    number & EventId::SEQUENCE_MAX
}

/// A difference as a number that is small if the difference is, of either sign.
fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(cause: EventId, numbers: (u16, u32, u64)) -> Header {
        let (ordinal, subject, seqno) = numbers;
        let cause = [cause.get() as u64, (cause.get() >> 64) as u64];
        Header { kind: Kind::Append as u8, ordinal, subject, seqno, cause, epoch: 7, ..Header::default() }
    }

    fn causes() -> impl Strategy<Value = EventId> {
        let own = (1u64..1 << 40).prop_map(|sequence| EventId::new(own(), 7, sequence));
        let other = (0u32..9, 1u64..1 << 50)
            .prop_map(|(epoch, sequence)| EventId::new(NamespaceId::new(99).unwrap(), epoch, sequence));
        prop_oneof![Just(EventId::NONE), own, other, any::<u128>().prop_map(EventId::from_bits)]
    }

    fn own() -> NamespaceId {
        NamespaceId::new(0x1234_5678_9ABC).unwrap()
    }

    proptest! {
        #[test]
        fn a_short_header_says_what_the_full_one_would(
            head_cause in causes(), cause in causes(), of_head: (u16, u32, u64), numbers: (u16, u32, u64), same: bool,
            sequence in 1u64..1 << 55, hlc: u64, count in 0u64..300, back in 0u64..300, payload in 0u64..4200,
        ) {
            let head = Header { sequence, hlc, ..header(head_cause, of_head) };
            let mut made = header(cause, numbers);
            if same {
                made.subject = head.subject;
            }
            (made.sequence, made.hlc) = (sequence + count, hlc.wrapping_add(count));
            if let Some(short) = Short::new(&made, &head, back * ALIGN_BYTES, payload, own()) {
                let mut bytes = [0; HEADER_BYTES as usize];
                bytes[..short.length].copy_from_slice(short.bytes());
                let form = Form::of(&bytes).unwrap();
                prop_assert_eq!((form.back(), u64::from(form.length())), (back * ALIGN_BYTES, short.length as u64 + payload));
                prop_assert_eq!(length(&bytes) as u64, short.length as u64 + payload);
                // The content of the payload does not matter.
                bytes[short.length..].fill(0xFF);
                let mut found = Header::default();
                prop_assert_eq!(expand(form, &bytes, &head, &mut found), count > 0);
                if count == 0 {
                    return Ok(());
                }
                prop_assert_eq!(found.cause(own()), cause);
                prop_assert_eq!((found.ordinal, found.subject, found.seqno), (made.ordinal, made.subject, made.seqno));
                prop_assert_eq!((found.sequence, found.hlc, found.epoch), (made.sequence, made.hlc, made.epoch));
                prop_assert_eq!(found.begins(), short.length as u64);
            } else {
                let is_foreign = !cause.is_none() && cause != head_cause
                    && (cause.namespace() != Some(own()) || cause.epoch() != 7 || cause.sequence() > made.sequence);
                prop_assert!(back > 255 || count > 255 || payload > 4000 || is_foreign);
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 64), cause in causes(), of_head: (u16, u32, u64)) {
            let mut bytes: [u8; 64] = bytes.try_into().unwrap();
            bytes[13] |= FLAG_COMPACT;
            let form = Form::of(&bytes).unwrap();
            let mut found = Header::default();
            let is_one = expand(form, &bytes, &header(cause, of_head), &mut found);
            prop_assert!(!is_one || found.begins() <= u64::from(found.length));
        }
    }

    #[test]
    fn a_record_among_its_like_has_fifteen_bytes_in_front() {
        let head = Header { sequence: 9, hlc: 80, ..header(EventId::NONE, (0, 3, 1 << 40)) };
        let next = Header { sequence: 10, hlc: 81, ..header(EventId::NONE, (0, 3, (1 << 40) + 1)) };
        assert_eq!(Short::new(&next, &head, 80, 16, own()).unwrap().bytes().len(), 15);
    }

    #[test]
    fn what_cannot_be_said_shortly_has_a_full_header() {
        let head = Header { sequence: 9, hlc: 80, ..header(EventId::NONE, (0, 3, 1)) };
        let next = Header { sequence: 10, hlc: 81, ..header(EventId::NONE, (0, 3, 2)) };
        let is_short = |header: Header, back| Short::new(&header, &head, back, 16, own()).is_some();
        assert!(is_short(next, 4080) && !is_short(next, 4096));
        assert!(!is_short(Header { hlc: 82, ..next }, 80), "another clock");
        assert!(!is_short(Header { epoch: 8, ..next }, 80), "another epoch");
        assert!(!is_short(Header { flags: FLAG_CARRIED, ..next }, 80), "a copy");
        for kind in [Kind::Open, Kind::Mark, Kind::Define] {
            assert!(!is_short(Header { kind: kind as u8, ..next }, 80), "{}", kind.name());
        }
        assert!(Short::new(&next, &head, 80, 4096 - 15, own()).is_none(), "too long");
    }
}
