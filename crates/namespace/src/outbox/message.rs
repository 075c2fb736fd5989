//! A message in an outbox: where it goes, and how many bytes the outbox has ever held.
//!
//! ```text
//!  0         1          9            10    10+n            11+n
//! +---------+----------+------------+-----+---------------+----------+---------+
//! | version | total    | n, u8      | log | m, u8         | function | data    |
//! +---------+----------+------------+-----+---------------+----------+---------+
//! ```
//!
//! `total` counts the bytes of all messages up to and including this one, as u64, little-endian: what waits is the
//! difference of two of them, and needs no counter that a crash could leave wrong. `m` is 0 if no function is named.

use millrace_wire::{Code, Name, Result};

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 11;

/// A message as it is in an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// Bytes of all messages up to and including this one.
    pub total: u64,
    /// The log that it is for; of a record for a topic, its idempotency key.
    pub log: &'b str,
    /// The function there that is to run.
    pub function: Option<&'b str>,
    /// Its bytes.
    pub data: &'b [u8],
}

/// Bytes that a message takes in an outbox.
pub fn bytes(log: &str, function: Option<&Name>, data: &[u8]) -> u64 {
    (FIXED_BYTES + log.len() + function.map_or(0, |name| name.len()) + data.len()) as u64
}

/// Puts a message into `out`, which is cleared first.
pub fn encode(out: &mut Vec<u8>, total: u64, log: &str, function: Option<&Name>, data: &[u8]) {
    out.clear();
    out.push(VERSION);
    out.extend_from_slice(&total.to_le_bytes());
    out.push(log.len() as u8); // at most 255
    out.extend_from_slice(log.as_bytes());
    let function = function.map_or("", |name| name);
    out.push(function.len() as u8); // at most 64
    out.extend_from_slice(function.as_bytes());
    out.extend_from_slice(data);
}

/// The message that these bytes are.
pub fn decode(bytes: &[u8]) -> Result<Message<'_>> {
    fn part(bytes: &[u8]) -> Option<(&str, &[u8])> {
        let (length, rest) = bytes.split_first()?;
        let (text, rest) = rest.split_at_checked(usize::from(*length))?;
        Some((std::str::from_utf8(text).ok()?, rest))
    }
    let parse = || {
        let (version, rest) = bytes.split_first()?;
        let (total, rest) = rest.split_first_chunk::<8>().filter(|_| *version == VERSION)?;
        let (log, rest) = part(rest)?;
        let (function, data) = part(rest)?;
        let function = Some(function).filter(|name| !name.is_empty());
        Some(Message { total: u64::from_le_bytes(*total), log, function, data })
    };
    parse().ok_or_else(|| Code::LinkStateDamaged.error("a message in an outbox"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_cut_ones_are_refused() {
        let (log, function): (&str, Name) = ("raw/a", "f".parse().unwrap());
        let mut out = Vec::new();
        for function in [None, Some(&function)] {
            encode(&mut out, 7, log, function, b"data");
            assert_eq!(out.len() as u64, bytes(log, function, b"data"));
            let message = decode(&out).unwrap();
            let expected = Message { total: 7, log: "raw/a", function: function.map(|name| &**name), data: b"data" };
            assert_eq!(message, expected);
            for cut in 0..out.len() - 4 {
                assert_eq!(decode(&out[..cut]).unwrap_err().code(), Code::LinkStateDamaged);
            }
        }
        out[0] = 9;
        assert!(decode(&out).is_err());
    }
}
