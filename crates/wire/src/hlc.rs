//! Hybrid logical clock: wall-clock time that never goes backwards and orders every cause before its effect.
//!
//! 52 bits of microseconds since 1970 (until the year 2112) and 12 bits that count events within one microsecond; when
//! they overflow, the count carries into the microseconds, so the clock is simply a `u64` that always grows.
//! Source: Kulkarni et al., "Logical Physical Clocks" (2014).

use std::fmt;

const LOGICAL_BITS: u32 = 12;

/// A moment on the hybrid logical clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc(u64);

impl Hlc {
    /// Before every event: the clock of a sender without one.
    pub const ZERO: Hlc = Hlc(0);

    /// The earliest moment that `wall_us` microseconds since 1970 can name.
    pub const fn from_wall_us(wall_us: u64) -> Self {
        Self(wall_us << LOGICAL_BITS)
    }

    /// The same, unless the moment is later than any that a clock can name: its 52 bits of microseconds end in the year 2112.
    pub const fn checked_from_wall_us(wall_us: u64) -> Option<Self> {
        if wall_us >> (u64::BITS - LOGICAL_BITS) == 0 { Some(Self::from_wall_us(wall_us)) } else { None }
    }

    /// The moment for a new event: the wall clock's, or just after `self` if the wall clock is not ahead of it.
    #[must_use]
    pub fn next(self, wall_us: u64) -> Self {
        Self::from_wall_us(wall_us).max(Self(self.0 + 1))
    }

    /// Microseconds since 1970.
    pub fn wall_us(self) -> u64 {
        self.0 >> LOGICAL_BITS
    }

    /// The clock as a number in formats and frames.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The clock from a number in a format or frame.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.wall_us();
        write!(f, "{}.{:06}+{}", us / 1_000_000, us % 1_000_000, self.0 & ((1 << LOGICAL_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_while_the_wall_clock_stands_or_jumps_back() {
        let mut clock = Hlc::default().next(1_000);
        for wall_us in [1_000, 1_000, 10, 0, 999] {
            let next = clock.next(wall_us);
            assert!(next > clock);
            clock = next;
        }
        assert_eq!(clock.wall_us(), 1_000);
        assert_eq!(clock.next(2_000).wall_us(), 2_000);
    }
}
