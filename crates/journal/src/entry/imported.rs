//! What entries that were imported from a device say of the entries there.

use super::{
    map::{Fields, Map, push},
    payload::{key, with_length},
};
use millrace_wire::{EventId, Hlc};

/// What an APPEND that was imported from a device says of the record there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// Its id and its clock in the device.
    Record {
        /// The id.
        id: EventId,
        /// The clock.
        clock: Hlc,
    },
    /// The device no longer had the record: its seqno has none.
    Missing,
}

/// What a FIRED that was imported from a device says of the attempt there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedAttempt {
    /// The id of the run there; none if the device no longer had it.
    pub run: EventId,
    /// When the attempt began.
    pub clock: Hlc,
    /// The same as the function read it: the clock of the device may have been wrong.
    pub read: Hlc,
}

impl Imported {
    /// The extension of an APPEND with this.
    pub(crate) fn extension(&self) -> Vec<u8> {
        let mut map = Vec::new();
        match self {
            Self::Record { id, clock } => {
                push(&mut map, key::EXTENSION_DEVICE_ID, &id.get().to_le_bytes());
                map.extend_from_slice(Fields::default().int(key::EXTENSION_DEVICE_CLOCK, clock.get()).bytes());
            }
            Self::Missing => push(&mut map, key::EXTENSION_VOID, &[]),
        }
        with_length(&map)
    }
}

impl ImportedAttempt {
    /// The extension of a FIRED with this.
    pub(crate) fn extension(&self) -> Vec<u8> {
        let mut map = Vec::new();
        if self.run != EventId::NONE {
            push(&mut map, key::EXTENSION_DEVICE_ID, &self.run.get().to_le_bytes());
        }
        let clocks = Fields::default().int(key::EXTENSION_DEVICE_CLOCK, self.clock.get());
        let clocks =
            if self.read == self.clock { clocks } else { clocks.int(key::EXTENSION_DEVICE_TIME, self.read.get()) };
        map.extend_from_slice(clocks.bytes());
        with_length(&map)
    }

    /// What the extension of a FIRED says.
    pub(crate) fn of(extension: Map<'_>) -> Option<Self> {
        let clock = device_clock(extension)?;
        let read = extension.int(key::EXTENSION_DEVICE_TIME).map_or(clock, Hlc::from_bits);
        Some(Self { run: device_id(extension).unwrap_or(EventId::NONE), clock, read })
    }
}

/// The clock that the record had in the device from which it was imported, if it was.
pub(crate) fn device_clock(extension: Map<'_>) -> Option<Hlc> {
    extension.int(key::EXTENSION_DEVICE_CLOCK).map(Hlc::from_bits)
}

/// The id that the record had in the device from which it was imported, if it was.
pub(crate) fn device_id(extension: Map<'_>) -> Option<EventId> {
    let id = extension.get(key::EXTENSION_DEVICE_ID)?.try_into().ok()?;
    Some(EventId::from_bits(u128::from_le_bytes(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::payload::split_extension;

    #[test]
    fn an_attempt_comes_back_from_its_extension() {
        let (run, clock) = (EventId::from_bits(7 << 64 | 9), Hlc::from_wall_us(5_000_000));
        for attempt in [
            ImportedAttempt { run, clock, read: clock },
            ImportedAttempt { run: EventId::NONE, clock, read: Hlc::from_wall_us(1000) },
        ] {
            let bytes = attempt.extension();
            let (extension, rest) = split_extension(&bytes).unwrap();
            assert_eq!((ImportedAttempt::of(extension), rest), (Some(attempt), &[][..]));
        }
        assert_eq!(ImportedAttempt::of(Map::default()), None);
    }
}
