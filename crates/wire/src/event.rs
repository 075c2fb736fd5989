//! Event ids, which are unique across all namespaces.
//!
//! ```text
//!  127            80 79        56 55                    0
//! +-----------------+------------+-----------------------+
//! |  namespace  48  |  epoch 24  |  journal sequence 56  |
//! +-----------------+------------+-----------------------+
//! ```
//!
//! Every unclean open and every restore increments the epoch durably, so no id is used twice: lost sequence numbers are assigned again only
//! with a later epoch. Bounds: 2^24 unclean opens; 2^56 entries (at 5 million a second, 456 years).

use crate::{Code, Error};
use std::{cmp::Ordering, fmt, str::FromStr};

const SEQUENCE_BITS: u32 = 56;
const EPOCH_BITS: u32 = 24;
const NAMESPACE_BITS: u32 = u128::BITS - EPOCH_BITS - SEQUENCE_BITS;

/// A namespace's random identity: 48 bits, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(u64);

impl NamespaceId {
    /// The largest value an id can have.
    pub const MAX: u64 = (1 << 48) - 1;

    /// The id with this value, unless it is 0 or wider than 48 bits.
    pub fn new(value: u64) -> Option<Self> {
        (value != 0 && value <= Self::MAX).then_some(Self(value))
    }

    /// The id as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for NamespaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

/// The id of one journal entry, unique across all namespaces and all time.
///
/// As a cause, [`EventId::NONE`] means "from outside": no recorded event caused this one.
///
/// Ids are ordered as a journal is: by epoch and sequence, and by namespace last. A copy of a namespace has another identity, at
/// random, and a later epoch than everything in it that its ancestors wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventId(u128);

impl Ord for EventId {
    fn cmp(&self, other: &Self) -> Ordering {
        let namespace_last = |id: &Self| id.0.rotate_left(NAMESPACE_BITS);
        namespace_last(self).cmp(&namespace_last(other))
    }
}

impl PartialOrd for EventId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl EventId {
    /// No event: the cause of what comes from outside.
    pub const NONE: EventId = EventId(0);
    /// The largest journal sequence.
    pub const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;
    /// The largest epoch.
    pub const EPOCH_MAX: u32 = (1 << EPOCH_BITS) - 1;

    /// The id of the entry with this journal sequence, written in this epoch of this namespace.
    pub fn new(namespace: NamespaceId, epoch: u32, sequence: u64) -> Self {
        debug_assert!(epoch <= Self::EPOCH_MAX && sequence <= Self::SEQUENCE_MAX);
        Self(
            u128::from(namespace.0) << (EPOCH_BITS + SEQUENCE_BITS)
                | u128::from(epoch) << SEQUENCE_BITS
                | u128::from(sequence),
        )
    }

    /// Whether this is the absence of an event.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The namespace the event happened in, or `None` for [`EventId::NONE`].
    pub fn namespace(self) -> Option<NamespaceId> {
        NamespaceId::new((self.0 >> (EPOCH_BITS + SEQUENCE_BITS)) as u64)
    }

    /// The epoch the event was written in.
    pub fn epoch(self) -> u32 {
        (self.0 >> SEQUENCE_BITS) as u32 & Self::EPOCH_MAX
    }

    /// The event's place in its namespace's journal, counted from 1.
    pub fn sequence(self) -> u64 {
        self.0 as u64 & Self::SEQUENCE_MAX
    }

    /// The id as the 128-bit number that is in formats and frames.
    pub fn get(self) -> u128 {
        self.0
    }

    /// The id that a format or frame carries as this number.
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}-{:x}-{:x}", self.epoch(), self.sequence()),
            None => f.write_str("-"),
        }
    }
}

impl FromStr for EventId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let mut parts = text.split('-').map(|part| {
                // `from_str_radix` would admit a sign.
                part.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(part, 16).ok()).flatten()
            });
            let namespace = NamespaceId::new(parts.next()??)?;
            let epoch = u32::try_from(parts.next()??).ok().filter(|e| *e <= Self::EPOCH_MAX)?;
            let sequence = parts.next()??;
            (parts.next().is_none() && sequence <= Self::SEQUENCE_MAX).then(|| EventId::new(namespace, epoch, sequence))
        };
        parse().ok_or_else(|| Code::EventIdInvalid.error(format!("'{}' is not an event id", text.escape_debug())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_text_parses() {
        let namespace = NamespaceId::new(NamespaceId::MAX).unwrap();
        for id in [
            EventId::new(namespace, EventId::EPOCH_MAX, EventId::SEQUENCE_MAX),
            EventId::new(NamespaceId::new(1).unwrap(), 0, 1),
        ] {
            assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
            assert_eq!(EventId::new(id.namespace().unwrap(), id.epoch(), id.sequence()), id);
        }
    }

    #[test]
    fn a_copy_goes_on_behind_what_it_has_of_its_ancestor_whatever_both_are_called() {
        let id = |namespace, epoch, sequence| EventId::new(NamespaceId::new(namespace).unwrap(), epoch, sequence);
        for (ancestor, copy) in [(1, NamespaceId::MAX), (NamespaceId::MAX, 1)] {
            let journal = [
                EventId::NONE,
                id(ancestor, 1, 1),
                id(ancestor, 1, EventId::SEQUENCE_MAX),
                id(ancestor, 2, 7),
                id(copy, 3, 8),
                id(copy, 3, 9),
                EventId::from_bits(u128::MAX),
            ];
            assert!(journal.is_sorted_by(|a, b| a < b), "{journal:?}");
        }
        assert_ne!(id(1, 1, 1).cmp(&id(2, 1, 1)), Ordering::Equal, "they are two");
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        for text in ["", "-", "1-2", "1-2-3-4", "0-1-1", "1-1000000-1", "1--1", "+1-1-1", "1000000000000-0-1"] {
            assert_eq!(text.parse::<EventId>().unwrap_err().code(), Code::EventIdInvalid, "{text}");
        }
    }
}
