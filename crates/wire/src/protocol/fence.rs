//! Fencing tokens: what the owner of a lock shows, so that a former owner is refused.

use super::Fence;
use crate::{Code, Error, Result};
use std::fmt;

/// The longest name of a fence: as long as a key of a lock.
pub const FENCE_NAME_MAX_BYTES: usize = 255;

impl<'b> Fence<'b> {
    /// The fence of a text `NAME=TOKEN`.
    pub fn parse(text: &'b str) -> Result<Self> {
        let (name, token) = text.rsplit_once('=').unwrap_or_default();
        let fence = token.parse().map(|token| Self { name, token });
        let fence = fence.map_err(|_| invalid(&format!("'{}' is not NAME=TOKEN", text.escape_debug())))?;
        fence.check().map(|()| fence)
    }

    /// Refuses a fence without a name or a token.
    pub fn check(&self) -> Result<()> {
        match (self.name.len(), self.token) {
            (0, _) => Err(invalid("its name is empty")),
            (bytes, _) if bytes > FENCE_NAME_MAX_BYTES => {
                Err(invalid(&format!("its name has {bytes} bytes; the limit is {FENCE_NAME_MAX_BYTES}")))
            }
            (_, 0) => Err(invalid("its token is 0")),
            _ => Ok(()),
        }
    }

    /// The refusal of a token, if a higher one was seen.
    pub fn check_against(&self, highest: u64) -> Result<()> {
        match self.token < highest {
            true => Err(Code::FenceStale.error(format!("{self}; the highest token so far is {highest}"))),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Fence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} of '{}'", self.token, self.name.escape_debug())
    }
}

fn invalid(why: &str) -> Error {
    Code::FenceInvalid.error(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_a_name_and_a_token_and_refuses_lower_ones() {
        let fence = Fence::parse("a=b=17").unwrap();
        assert_eq!((fence.name, fence.token), ("a=b", 17));
        assert!(fence.check_against(0).is_ok() && fence.check_against(17).is_ok());
        assert_eq!(fence.check_against(18).unwrap_err().code(), Code::FenceStale);
        for odd in ["", "a", "a=", "=3", "a=0", "a=-1", "a=x", &format!("{}=1", "a".repeat(256))] {
            assert_eq!(Fence::parse(odd).unwrap_err().code(), Code::FenceInvalid, "{odd}");
        }
    }
}
