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
    /// Its offset in the image.
    pub at: usize,
    /// Its header.
    pub header: Header,
    /// What it begins with: definitions and counters.
    pub catalog: Vec<Entry>,
    /// Each burst with its offset in the sector.
    pub bursts: Vec<(usize, Burst)>,
    /// Where its valid bursts end, as an offset in the sector.
    pub end: usize,
    /// Whether something that is not blank follows.
    pub torn: bool,
}

/// An image of a device's flash: its sectors, oldest first.
#[derive(Clone, Debug)]
pub struct Image {
    /// Those that belong to the ring.
    pub sectors: Vec<Sector>,
    /// Where the first sector begins in the image.
    pub offset: usize,
    /// Sectors that are left out because they are damaged: their offsets, and what is wrong.
    pub damaged: Vec<(usize, String)>,
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
    fn read(place: usize, bytes: &[u8], header: Header) -> Result<Sector, Error> {
        let mut at = HEADER.next_multiple_of(header.grain);
        let mut end = at;
        let mut before = header.crc;
        let mut found = Vec::new();
        let mut torn = false;
        while at < bytes.len() {
            if let Some((burst, length)) = Burst::read(&bytes[at..], before) {
                before = u32::from_le_bytes(bytes[at + 2..at + 6].try_into().expect("4 bytes"));
                found.push((at, burst?));
                at = (at + length).next_multiple_of(header.grain);
                end = at;
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
        Ok(Sector { at: place, header, catalog, bursts: found, end, torn })
    }
}

impl Image {
    /// Reads an image, which describes itself; something else, such as an identity, may stand before the journal. Sectors that are damaged
    /// are left out, and so are those that a later one replaced.
    pub fn read(bytes: &[u8]) -> Result<Image, Error> {
        let none = || Code::NotANamespace.error("the image has no sector of a device's journal");
        let first = (0..bytes.len()).step_by(1024).find_map(|at| Some((at, Header::read(&bytes[at..])?)));
        let (at, first) = first.ok_or_else(none)?;
        let first = first?;
        let offset = at % first.sector_bytes;
        let (mut sectors, mut damaged) = (Vec::new(), Vec::new());
        for (index, sector) in bytes[offset..].chunks_exact(first.sector_bytes).enumerate() {
            let at = offset + index * first.sector_bytes;
            match Header::read(sector) {
                Some(header) => sectors.push((at, header?, sector)),
                // A header is written last, so a sector that was begun may have none; a damaged one still has its first bytes.
                None if sector.starts_with(b"MRDJ") => damaged.push((at, "the checksum of its header is wrong".into())),
                None => {}
            }
        }
        let newest = sectors.iter().map(|(_, header, _)| header.serial).max().ok_or_else(none)?;
        sectors.retain(|(_, header, _)| (newest - header.serial) < first.sectors as u32);
        sectors.sort_by_key(|(_, header, _)| header.serial);
        let mut read = Vec::new();
        for (at, header, bytes) in sectors {
            match Sector::read(at, bytes, header) {
                Ok(sector) => read.push(sector),
                Err(error) => damaged.push((at, error.detail().to_owned())),
            }
        }
        let offset = read.iter().map(|sector| sector.at).min().unwrap_or(offset);
        Ok(Image { sectors: read, offset, damaged })
    }

    /// The names of its logs, in order.
    pub fn logs(&self) -> Vec<String> {
        let catalog = self.sectors.last().map_or(&[][..], |newest| &newest.catalog);
        let names = catalog.iter().filter_map(|entry| match entry {
            Entry::Log { name, .. } => Some(name.clone()),
            _ => None,
        });
        names.collect()
    }
}
