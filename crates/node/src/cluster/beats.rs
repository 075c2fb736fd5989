//! Messages between two hosts about all groups at once: the groups that rest, and those that must not.
//!
//! ```text
//!  BEATS  1  host (8, little-endian)  of each group that rests under it and that the other keeps: group (4)  term (8)  last entry (8)
//!  WAKE   2  host (8)                 of each group whose state here is another one: group (4)
//! ```

use millrace_group::Beat;

const BEATS: u8 = 1;
const WAKE: u8 = 2;
const BEAT_BYTES: usize = 20;

/// What one host says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// These groups rest under it.
    Beats(Vec<(u32, Beat)>),
    /// These groups are not to rest.
    Wake(Vec<u32>),
}

impl Said {
    pub fn bytes(&self, host: u64) -> Vec<u8> {
        let mut bytes = vec![if matches!(self, Said::Beats(_)) { BEATS } else { WAKE }];
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
        }
        bytes
    }

    /// The message in these bytes and its sender; nothing if they are invalid.
    pub fn parse(bytes: &[u8]) -> Option<(u64, Self)> {
        let (kind, rest) = bytes.split_first()?;
        let (host, rest) = rest.split_first_chunk::<8>()?;
        let group = |item: &[u8]| Some(u32::from_le_bytes(*item.first_chunk()?));
        let word = |item: &[u8], at: usize| Some(u64::from_le_bytes(*item.get(at..)?.first_chunk()?));
        let said = match *kind {
            BEATS => {
                let beat = |item| Some((group(item)?, Beat { term: word(item, 4)?, commit: word(item, 12)? }));
                Said::Beats(rest.chunks(BEAT_BYTES).map(beat).collect::<Option<_>>()?)
            }
            WAKE => Said::Wake(rest.chunks(4).map(group).collect::<Option<_>>()?),
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
        assert_eq!(Said::parse(&[3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Said::parse(&[1, 0]), None);
    }
}
