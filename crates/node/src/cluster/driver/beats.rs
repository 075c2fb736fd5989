//! Messages between two hosts that are not about one group: which groups rest, where the sender is, and which of its starts are known.
//!
//! ```text
//!  BEATS  1  host (8, little-endian)  of each group that rests under it and that the other keeps: group (4)  term (8)  last entry (8)
//!  WAKE   2  host (8)                 of each group whose state here is another one: group (4)
//!  HERE   3  host (8)                 length of the address (2)  address  name
//!  WHERE  4  host (8)
//!  THERE  5  like HERE, of another host
//!  START  6  host (8)                 the number of its start (8)
//!  KNOWN  7  host (8)                 the number of a start of the other host (8)  the newest of its starts that this host knows (8)
//!  OFFER  8  host (8)                 digest of a new secret of the cluster (32)
//!  READY  9  host (8)                 the digest (32)  the number for which the secret is to be encrypted (32)
//!  GIVE  10  host (8)                 the digest (32)  the encrypted secret (80)
//!  TOOK  11  host (8)                 the digest (32)
//!  LEFT  12  host (8)
//! ```
//!
//! WHERE is answered with HERE, START with KNOWN (and with LEFT, if the other host was removed), OFFER with READY, and that with GIVE; a
//! host that has the secret answers OFFER and GIVE with TOOK. A host that does not know a message ignores it.

use crate::secrets::{PUBLIC_BYTES, SEALED_BYTES, SecretDigest};
use millrace_group::Beat;

const BEATS: u8 = 1;
const WAKE: u8 = 2;
const HERE: u8 = 3;
const WHERE: u8 = 4;
const THERE: u8 = 5;
const START: u8 = 6;
const KNOWN: u8 = 7;
const OFFER: u8 = 8;
const READY: u8 = 9;
const GIVE: u8 = 10;
const TOOK: u8 = 11;
const LEFT: u8 = 12;
const BEAT_BYTES: usize = 20;

/// A message of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// These groups rest under it.
    Beats(Vec<(u32, Beat)>),
    /// These groups are not to rest.
    Wake(Vec<u32>),
    /// The host is reached at this address, under this name; it says so itself, or another one does.
    Here { address: String, name: String, itself: bool },
    /// The other host is to say where it is.
    Where,
    /// The host was started with this number.
    Start { boot: u64 },
    /// The answer: the newest start of the other host that the sender knows of; 0 for none.
    Known { boot: u64, newest: u64 },
    /// The other host was removed from the cluster.
    Left,
    /// There is a new secret of the cluster for the other host.
    Offer(SecretDigest),
    /// It is to be encrypted for this number.
    Ready(SecretDigest, [u8; PUBLIC_BYTES]),
    /// The encrypted secret.
    Give(SecretDigest, [u8; SEALED_BYTES]),
    /// The host has it on its disk.
    Took(SecretDigest),
}

impl Said {
    pub fn bytes(&self, host: u64) -> Vec<u8> {
        let kind = match self {
            Said::Beats(_) => BEATS,
            Said::Wake(_) => WAKE,
            Said::Here { itself: true, .. } => HERE,
            Said::Here { .. } => THERE,
            Said::Where => WHERE,
            Said::Start { .. } => START,
            Said::Known { .. } => KNOWN,
            Said::Left => LEFT,
            Said::Offer(_) => OFFER,
            Said::Ready(..) => READY,
            Said::Give(..) => GIVE,
            Said::Took(_) => TOOK,
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&host.to_le_bytes());
        match self {
            Said::Beats(beats) => {
                for (group, Beat { term, commit }) in beats {
                    bytes.extend_from_slice(&group.to_le_bytes());
                    bytes.extend_from_slice(&term.to_le_bytes());
                    bytes.extend_from_slice(&commit.to_le_bytes());
                }
            }
            Said::Wake(groups) => groups.iter().for_each(|group| bytes.extend_from_slice(&group.to_le_bytes())),
            Said::Here { address, name, .. } => {
                // An address that is longer names no host.
                let length = u16::try_from(address.len()).unwrap_or(u16::MAX);
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend_from_slice(address.as_bytes());
                bytes.extend_from_slice(name.as_bytes());
            }
            Said::Where | Said::Left => {}
            Said::Start { boot } => bytes.extend_from_slice(&boot.to_le_bytes()),
            Said::Known { boot, newest } => {
                bytes.extend_from_slice(&boot.to_le_bytes());
                bytes.extend_from_slice(&newest.to_le_bytes());
            }
            Said::Offer(digest) | Said::Took(digest) => bytes.extend_from_slice(digest),
            Said::Ready(digest, public) => bytes.extend_from_slice(&[&digest[..], public].concat()),
            Said::Give(digest, sealed) => bytes.extend_from_slice(&[&digest[..], sealed].concat()),
        }
        bytes
    }

    /// The message in these bytes and its sender; nothing if they are invalid.
    pub fn parse(bytes: &[u8]) -> Option<(u64, Self)> {
        let (kind, rest) = bytes.split_first()?;
        let (host, rest) = rest.split_first_chunk::<8>()?;
        let group = |item: &[u8]| Some(u32::from_le_bytes(*item.first_chunk()?));
        let word = |item: &[u8], at: usize| Some(u64::from_le_bytes(*item.get(at..)?.first_chunk()?));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let said = match *kind {
            BEATS => {
                let beat = |item| Some((group(item)?, Beat { term: word(item, 4)?, commit: word(item, 12)? }));
                Said::Beats(rest.chunks(BEAT_BYTES).map(beat).collect::<Option<_>>()?)
            }
            WAKE => Said::Wake(rest.chunks(4).map(group).collect::<Option<_>>()?),
            HERE | THERE => {
                let (length, rest) = rest.split_first_chunk::<2>()?;
                let (address, name) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
                Said::Here { address: text(address)?, name: text(name)?, itself: *kind == HERE }
            }
            WHERE => Said::Where,
            START => Said::Start { boot: word(rest, 0)? },
            KNOWN => Said::Known { boot: word(rest, 0)?, newest: word(rest, 8)? },
            LEFT => Said::Left,
            OFFER..=TOOK => {
                let (digest, rest) = rest.split_first_chunk()?;
                match *kind {
                    OFFER => Said::Offer(*digest),
                    READY => Said::Ready(*digest, rest.try_into().ok()?),
                    GIVE => Said::Give(*digest, rest.try_into().ok()?),
                    _ => Said::Took(*digest),
                }
            }
            _ => return None,
        };
        Some((u64::from_le_bytes(*host), said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_say_is_read_as_it_was_written() {
        let beats = vec![(2, Beat { term: 3, commit: u64::MAX }), (u32::MAX, Beat { term: 1, commit: 0 })];
        for said in [Said::Beats(beats), Said::Wake(vec![7, 9]), Said::Beats(Vec::new())] {
            let bytes = said.bytes(5);
            assert_eq!(Said::parse(&bytes), Some((5, said)));
            if bytes.len() > 9 {
                assert_eq!(Said::parse(&bytes[..bytes.len() - 1]), None);
            }
        }
        let here = |itself| Said::Here { address: "[::1]:7070".into(), name: "site".into(), itself };
        let secrets = [
            Said::Offer([1; 32]),
            Said::Ready([2; 32], [3; PUBLIC_BYTES]),
            Said::Give([4; 32], [5; SEALED_BYTES]),
            Said::Took([6; 32]),
        ];
        for said in secrets {
            let bytes = said.bytes(5);
            assert_eq!(Said::parse(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Said::parse(&bytes), Some((5, said)));
        }
        let starts = [Said::Start { boot: 9 }, Said::Known { boot: 9, newest: u64::MAX }];
        for said in [here(true), here(false), Said::Where, Said::Left].into_iter().chain(starts) {
            assert_eq!(Said::parse(&said.bytes(5)), Some((5, said)));
        }
        // An address that is longer than what came, and bytes that are no text.
        assert_eq!(Said::parse(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, b'a']), None);
        assert_eq!(Said::parse(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xFF]), None);
        assert_eq!(Said::parse(&[99, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Said::parse(&[1, 0]), None);
    }
}
