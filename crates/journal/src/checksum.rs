//! CRC-32C.
//!
//! The library's functions are always inlined, 1.25 s of compilation for each copy. These have one copy each.

/// The CRC-32C of `bytes`.
#[inline(never)]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of the bytes whose CRC-32C is `before`, followed by `bytes`.
#[inline(never)]
pub(crate) fn crc32c_after(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_goes_on_behind_another() {
        let text = b"123456789";
        assert_eq!(crc32c(text), 0xe306_9283, "the check value of CRC-32/ISCSI");
        for at in 0..=text.len() {
            assert_eq!(crc32c_after(crc32c(&text[..at]), &text[at..]), crc32c(text), "{at}");
        }
    }
}
