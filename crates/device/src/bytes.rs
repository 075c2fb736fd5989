//! Integers, LEB128 and CRC-32C.

use millrace_wire::{Code, Error};

/// Continues a CRC-32C (Castagnoli), which begins with 0.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(!crc, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// Bytes that have not been read yet.
pub(crate) struct Reader<'a>(pub &'a [u8]);

pub(crate) fn malformed(what: &str) -> Error {
    Code::EntryDamaged.error(format!("the burst is malformed: {what}"))
}

/// What only a later format has: its checksum is right, so nothing was damaged.
pub(crate) fn later(what: &str) -> Error {
    Code::FormatVersion.error(format!("the device's firmware is newer than this program: {what}"))
}

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    /// An integer of `count` bytes, at most 8.
    pub fn number(&mut self, count: usize) -> Result<u64, Error> {
        Ok(self.take(count)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number has more than 10 bytes"))
    }

    pub fn sized(&mut self) -> Result<&'a [u8], Error> {
        let size = self.varint()?;
        self.take(usize::try_from(size).map_err(|_| malformed("a length"))?)
    }
}

pub(crate) fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

pub(crate) fn put_sized(to: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_iscsi() {
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xe306_9283);
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Reader(&bytes).varint().expect("it is whole"), value);
            assert!(Reader(&bytes[..bytes.len() - 1]).varint().is_err());
        }
        assert!(Reader(&[0xff; 11]).varint().is_err());
    }
}
