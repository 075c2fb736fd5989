//! Bytes as hexadecimal digits.

use std::fmt;

/// Shows bytes as lower-case hexadecimal digits, two for each byte.
#[derive(Clone, Copy, Debug)]
pub struct Hex<B>(pub B);

impl<B: AsRef<[u8]>> fmt::Display for Hex<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(Hex([0x00, 0x0f, 0xa5, 0xff]).to_string(), "000fa5ff");
        assert_eq!(Hex([]).to_string(), "");
    }
}
