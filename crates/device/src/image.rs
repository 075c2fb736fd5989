//! An image of a device's flash.

use crate::{
    Burst, Entry,
    bytes::{Reader, crc32c},
};
use millrace_wire::{Code, Error, NamespaceId};

/// Bytes of a sector's header.
pub(crate) const HEADER: usize = 40;
/// After a start, a device continues at a multiple of this.
const PAGE: usize = 256;
const FORMAT: u8 = 1;

/// The header of a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "spec/formats/device.md describes the fields")]
pub struct Header {
    pub grain: usize,
    pub sector_bytes: usize,
    pub sectors: usize,
    pub namespace: NamespaceId,
    pub epoch: u32,
    pub serial: u32,
    pub sequence: u64,
    pub clock_ms: u64,
    pub unit: usize,
    pub crc: u32,
}

/// A sector: its header, and the bursts whose checksums are right, up to the first that is wrong.
#[derive(Clone, Debug)]
pub struct Sector {
    /// Its header.
    pub header: Header,
    /// What it begins with: definitions and counters.
    pub catalog: Vec<Entry>,
    /// Each burst with its offset in the sector.
    pub bursts: Vec<(usize, Burst)>,
    /// Whether something that is not blank follows.
    pub torn: bool,
}

/// An image of a device's flash: its sectors, oldest first.
#[derive(Clone, Debug)]
pub struct Image {
    /// Those that belong to the ring.
    pub sectors: Vec<Sector>,
}

impl Header {
    pub(crate) fn read(bytes: &[u8]) -> Option<Result<Header, Error>> {
        let bytes = bytes.get(..HEADER)?;
        let crc = crc32c(0, &bytes[..36]);
        if !bytes.starts_with(b"MRDJ") || bytes[36..] != crc.to_le_bytes() {
            return None;
        }
        if bytes[4] != FORMAT {
            return Some(Err(Code::FormatVersion.error(format!("format {} of a device's journal", bytes[4]))));
        }
        Some(Self::decode(&bytes[5..], crc))
    }

    fn decode(bytes: &[u8], crc: u32) -> Result<Header, Error> {
        let mut from = Reader(bytes);
        let shape = from.byte()?;
        let sectors = from.number(2)? as usize;
        let namespace = from.number(6)?;
        Ok(Header {
            grain: 1 << (shape & 15),
            sector_bytes: 1024 << (shape >> 4),
            sectors,
            namespace: NamespaceId::new(namespace)
                .ok_or_else(|| Code::EntryDamaged.error("the namespace of a sector is 0"))?,
            epoch: from.number(3)? as u32,
            serial: from.number(4)? as u32,
            sequence: from.number(7)?,
            clock_ms: from.number(6)?,
            unit: 1 << (from.byte()? & 15),
            crc,
        })
    }
}

impl Sector {
    fn read(bytes: &[u8], header: Header) -> Result<Sector, Error> {
        let mut at = HEADER.next_multiple_of(header.grain);
        let mut before = header.crc;
        let mut found = Vec::new();
        let mut torn = false;
        while at < bytes.len() {
            if let Some((burst, length)) = Burst::read(&bytes[at..], before) {
                before = u32::from_le_bytes(bytes[at + 2..at + 6].try_into().expect("4 bytes"));
                found.push((at, burst?));
                at = (at + length).next_multiple_of(header.grain);
                continue;
            }
            let page = (at + 1).next_multiple_of(PAGE).min(bytes.len());
            if bytes[at..page].iter().any(|byte| *byte != 0xff) {
                torn = true;
                break;
            }
            at = page;
        }
        if found.is_empty() {
            return Err(Code::EntryDamaged.error(format!("the catalog of sector {} is damaged", header.serial)));
        }
        let catalog = found.remove(0).1.entries;
        Ok(Sector { header, catalog, bursts: found, torn })
    }
}

impl Image {
    /// Reads an image, which describes itself. Sectors that are damaged are left out, and so are those that a later one replaced.
    pub fn read(bytes: &[u8]) -> Result<Image, Error> {
        let none = || Code::NotANamespace.error("the image has no sector of a device's journal");
        let first = (0..bytes.len()).step_by(1024).find_map(|at| Header::read(&bytes[at..])).ok_or_else(none)??;
        let mut sectors = Vec::new();
        for sector in bytes.chunks_exact(first.sector_bytes) {
            let Some(header) = Header::read(sector) else { continue };
            sectors.push((header?, sector));
        }
        let newest = sectors.iter().map(|(header, _)| header.serial).max().ok_or_else(none)?;
        sectors.retain(|(header, _)| (newest - header.serial) < first.sectors as u32);
        sectors.sort_by_key(|(header, _)| header.serial);
        let sectors = sectors.into_iter().filter_map(|(header, bytes)| Sector::read(bytes, header).ok()).collect();
        Ok(Image { sectors })
    }
}
