//! Places on the circle.

use sha1::{Digest, Sha1};
use std::fmt;

/// How many bits an id has.
pub const BITS: usize = 160;
const BYTES: usize = BITS / 8;

/// A place on the circle: a number of 160 bits, the greatest of which is followed by 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id([u8; BYTES]);

impl Id {
    /// The place of a name: its SHA-1.
    pub fn of(name: &str) -> Self {
        Self(Sha1::digest(name.as_bytes()).into())
    }

    /// The place that is 2^`power` further on.
    pub fn after(self, power: usize) -> Self {
        let Self(mut bytes) = self;
        let mut carried = 1u16 << (power % 8);
        for byte in bytes[..BYTES - power / 8].iter_mut().rev() {
            let sum = u16::from(*byte) + carried;
            *byte = sum as u8;
            carried = sum >> 8;
        }
        Self(bytes)
    }

    /// Whether it comes behind `from` and not behind `upto`, on the way from the one to the other. If both are one place, every place does.
    pub fn is_within(self, from: Id, upto: Id) -> bool {
        if from < upto { from < self && self <= upto } else { from < self || self <= upto }
    }

    /// Whether it comes behind `from` and before `to`.
    pub fn is_between(self, from: Id, to: Id) -> bool {
        self != to && self.is_within(from, to)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u8, last: u8) -> Id {
        let mut bytes = [0; BYTES];
        (bytes[0], bytes[BYTES - 1]) = (first, last);
        Id(bytes)
    }

    #[test]
    fn names_have_the_places_that_sha_1_gives_them() {
        let Id(bytes) = Id::of("abc");
        assert_eq!(bytes[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert_eq!(bytes[16..], [0x9c, 0xd0, 0xd8, 0x9d]);
    }

    #[test]
    fn powers_carry_over_and_around() {
        assert_eq!(id(0, 255).after(0).0[18..], [1, 0]);
        assert_eq!(id(0, 7).after(3), id(0, 15));
        assert_eq!(id(128, 1).after(BITS - 1), id(0, 1));
        assert_eq!(Id([255; BYTES]).after(0), id(0, 0));
    }

    #[test]
    fn ways_lead_over_zero() {
        assert!(id(9, 0).is_within(id(5, 0), id(9, 0)));
        assert!(!id(5, 0).is_within(id(5, 0), id(9, 0)));
        assert!(id(1, 0).is_within(id(9, 0), id(5, 0)));
        assert!(!id(7, 0).is_within(id(9, 0), id(5, 0)));
        assert!(id(7, 0).is_within(id(5, 0), id(5, 0)) && id(5, 0).is_within(id(5, 0), id(5, 0)));
        assert!(!id(9, 0).is_between(id(5, 0), id(9, 0)));
    }
}
