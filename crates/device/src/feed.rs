//! The sectors of a device as it sends them: header, catalog and bursts, piece by piece, from the start of a sector on.

use crate::{
    Burst, Event,
    burst::HEAD,
    events::Walk,
    image::{HEADER, Header},
};
use millrace_wire::{Code, Error, EventId, NamespaceId, Result};

/// A device writes no longer burst, except catalogs.
const BURST_MAX: usize = 4096;

/// Follows the journal of one device.
#[derive(Clone, Default)]
pub struct Feed {
    sector: Option<Header>,
    /// Bytes of the piece under way, which begins at `at` of its sector.
    bytes: Vec<u8>,
    at: usize,
    /// The checksum before it; none before the catalog.
    crc: u32,
    has_catalog: bool,
    walk: Option<Walk>,
}

/// A burst that has arrived as a whole.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Its events.
    pub events: Vec<Event>,
    /// Its checksum, which is one of everything before it in its sector.
    pub crc: u32,
}

fn odd(what: impl std::fmt::Display) -> Error {
    Code::DeviceEntriesInvalid.error(format!("the device sent something else than its journal: {what}"))
}

impl Feed {
    /// Takes the bytes of a sector from an offset on; returns the bursts that are complete now. The first bytes of a sector are its header.
    /// Bytes between bursts may be left out, bytes of a burst may not.
    pub fn take(&mut self, namespace: NamespaceId, serial: u32, at: usize, bytes: &[u8]) -> Result<Vec<Arrived>> {
        if self.sector.as_ref().is_none_or(|sector| sector.serial != serial) {
            if at != 0 || bytes.len() < HEADER {
                return Err(odd(format!("sector {serial} does not begin with its header")));
            }
            return self.begin(namespace, serial, bytes);
        }
        if !self.bytes.is_empty() && at != self.at + self.bytes.len() {
            return Err(odd(format!("offset {at} instead of {}", self.at + self.bytes.len())));
        }
        if self.bytes.is_empty() {
            if at < self.at {
                return Err(odd(format!("offset {at} was sent before")));
            }
            self.at = at;
        }
        self.bytes.extend_from_slice(bytes);
        self.whole()
    }

    /// The logs of the device by the catalog that came last: name, history and flags.
    pub fn logs(&self) -> impl Iterator<Item = (&str, u64, u8)> {
        self.walk.iter().flat_map(Walk::logs)
    }

    fn begin(&mut self, namespace: NamespaceId, serial: u32, bytes: &[u8]) -> Result<Vec<Arrived>> {
        let header = Header::read(bytes).ok_or_else(|| odd("a damaged header"))??;
        // So that no sequence overflows.
        if header.sequence > EventId::SEQUENCE_MAX / 2 {
            return Err(odd(format!("sector {serial} begins with sequence {}", header.sequence)));
        }
        if header.serial != serial || header.namespace != namespace {
            return Err(odd("the header of another sector"));
        }
        let newest = self.sector.as_ref().map(|before| before.serial);
        if newest.is_some_and(|newest| newest >= serial) {
            return Err(odd(format!("sector {serial} follows sector {}", newest.unwrap_or_default())));
        }
        (self.at, self.crc, self.has_catalog) = (HEADER, header.crc, false);
        self.bytes.clear();
        self.sector = Some(header);
        if bytes.len() > HEADER {
            return Err(odd("more than a header"));
        }
        Ok(Vec::new())
    }

    fn whole(&mut self) -> Result<Vec<Arrived>> {
        let mut arrived = Vec::new();
        loop {
            let Some(length) = self.bytes.first_chunk::<2>() else { return Ok(arrived) };
            let length = HEAD + usize::from(u16::from_le_bytes(*length));
            let sector = self.sector.as_ref().expect("it was begun");
            let most = if self.has_catalog { BURST_MAX } else { sector.sector_bytes };
            if length > most || self.at + length > sector.sector_bytes {
                return Err(odd(format!("a burst of {length} bytes at offset {}", self.at)));
            }
            if self.bytes.len() < length {
                return Ok(arrived);
            }
            let Some((burst, _)) = Burst::read(&self.bytes[..length], self.crc) else {
                return Err(odd(format!(
                    "a burst with a wrong checksum at offset {} of sector {}",
                    self.at, sector.serial
                )));
            };
            self.crc = u32::from_le_bytes(self.bytes[2..HEAD].try_into().expect("4 bytes"));
            self.bytes.drain(..length);
            self.at += length;
            arrived.extend(self.burst(&burst?));
        }
    }

    fn burst(&mut self, burst: &Burst) -> Option<Arrived> {
        let sector = self.sector.as_ref().expect("it was begun");
        if !self.has_catalog {
            self.has_catalog = true;
            let walk = self.walk.get_or_insert_with(|| Walk::new(sector));
            walk.begin(sector, &burst.entries);
            return None;
        }
        let walk = self.walk.as_mut().expect("the catalog came first");
        walk.burst(burst);
        Some(Arrived { events: walk.take(), crc: self.crc })
    }
}
