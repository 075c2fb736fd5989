//! One word of an index: the position of an entry, its maximum length, and its owner.
//!
//! ```text
//!  63        49 48           47      44 43                  0
//! +------------+---------------+----------+--------------------+
//! | check (15) | by reference  | size (4) | position / 16 (44) |
//! +------------+---------------+----------+--------------------+
//! ```
//!
//! Positions are multiples of 16 below 2^48. `size` says that the entry has at most 64 << `size` bytes; the largest, any number. `check`
//! covers the other bits, the subject and the number: every single flipped bit changes it, and so does, except for one time in 2^15,
//! another lap of the ring or another subject's slot. An entry that is indexed by its own subject and number contains both; one that is
//! indexed by reference need not.

use crate::entry::ALIGN_BYTES;

const POSITION_BITS: u32 = 44;
const SIZE_BITS: u32 = 4;
const SIZE_MAX: u64 = (1 << SIZE_BITS) - 1;
const BY_REFERENCE: u64 = 1 << (POSITION_BITS + SIZE_BITS);
const CHECK_SHIFT: u32 = POSITION_BITS + SIZE_BITS + 1;
const CHECK_BITS: u32 = 64 - CHECK_SHIFT;
const CHECK_MASK: u64 = (1 << CHECK_BITS) - 1;

/// A position that no entry has: the slot is not what was written there for its subject and number.
pub(crate) const WRONG: u64 = u64::MAX;
/// Positions below this are none of an entry: 0 is not set, 16 is a void, 32 is reserved and not used.
pub(crate) const RESERVED_END: u64 = 48;

/// The owner of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub subject: u32,
    pub number: u64,
}

/// The position of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub position: u64,
    size: u64,
    pub by_reference: bool,
}

impl Slot {
    /// The slot of an entry that says itself whose it is.
    pub fn own(position: u64, length: u64) -> Self {
        let units = length.div_ceil(64).max(1);
        Self { position, size: u64::from(units.next_power_of_two().ilog2()).min(SIZE_MAX), by_reference: false }
    }

    /// The slot of an entry that need not say whose it is.
    pub fn by_reference(position: u64) -> Self {
        Self { position, size: SIZE_MAX, by_reference: true }
    }

    /// The position in a word, whosever it is.
    pub fn position_of(word: u64) -> u64 {
        (word & ((1 << POSITION_BITS) - 1)) * ALIGN_BYTES
    }

    /// Whether the entry may be so long.
    pub fn admits(self, length: u64) -> bool {
        self.size == SIZE_MAX || length <= self.bytes_max()
    }

    /// The maximum size of an entry of its size class; for the largest class, the minimum size.
    #[inline]
    pub fn bytes_max(self) -> u64 {
        64 << self.size
    }

    /// The word that says this of an owner.
    #[inline]
    pub fn pack(self, owner: Owner) -> u64 {
        debug_assert!(self.position.is_multiple_of(ALIGN_BYTES) && self.position >> 48 == 0);
        let by_reference = if self.by_reference { BY_REFERENCE } else { 0 };
        let low = (self.position / ALIGN_BYTES) | (self.size << POSITION_BITS) | by_reference;
        low | check(low, owner) << CHECK_SHIFT
    }

    /// Decodes a word for an owner: `None` if it is empty, an error if it was not set for this owner.
    #[inline]
    pub fn unpack(word: u64, owner: Owner) -> Result<Option<Self>, Foreign> {
        if word == 0 {
            return Ok(None);
        }
        let low = word & ((1 << CHECK_SHIFT) - 1);
        if word >> CHECK_SHIFT != check(low, owner) {
            return Err(Foreign);
        }
        Ok(Some(Self {
            position: Self::position_of(word),
            size: low >> POSITION_BITS & SIZE_MAX,
            by_reference: low & BY_REFERENCE != 0,
        }))
    }
}

/// The word is not one that was set for this owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign;

#[inline]
fn check(low: u64, owner: Owner) -> u64 {
    let fold = |bits: u64| (bits ^ bits >> 15 ^ bits >> 30 ^ bits >> 45 ^ bits >> 60) & CHECK_MASK;
    let whose = (owner.number ^ u64::from(owner.subject) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    fold(low) ^ fold(whose ^ whose >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_says_what_was_put_into_it() {
        for (position, length) in [(64, 64), (1 << 47, 65), ((1 << 48) - 16, 16 << 20), (0x1234_5670, 1000)] {
            for by_reference in [false, true] {
                let owner = Owner { subject: 9, number: position * 3 };
                let slot = Slot { by_reference, ..Slot::own(position, length) };
                assert_eq!(Slot::unpack(slot.pack(owner), owner), Ok(Some(slot)));
                assert!(slot.admits(length));
            }
        }
        assert!(!Slot::own(64, 100).admits(129));
        assert!(Slot::own(64, 3 << 20).admits(16 << 20));
    }

    #[test]
    fn a_flipped_slot_is_never_believed() {
        let owner = Owner { subject: 3, number: 77 };
        for by_reference in [false, true] {
            let word = Slot { by_reference, ..Slot::own(0x00AB_CDE0, 500) }.pack(owner);
            for bit in 0..64 {
                assert_eq!(Slot::unpack(word ^ 1 << bit, owner), Err(Foreign), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_slot_of_another_lap_or_subject_is_seldom_believed() {
        let owner = Owner { subject: 3, number: 77 };
        let word = Slot::own(0x00AB_CDE0, 500).pack(owner);
        let believed = |other: Owner| u32::from(Slot::unpack(word, other).is_ok());
        let laps: u32 = (1..100_000).map(|lap| believed(Owner { number: 77 + lap * 128, ..owner })).sum();
        let subjects: u32 = (4..100_000).map(|subject| believed(Owner { subject, ..owner })).sum();
        assert!(laps < 16 && subjects < 16, "{laps} laps and {subjects} subjects of 100 000 pass");
    }
}
