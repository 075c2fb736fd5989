//! What a run read of tables: the keyed rows of its READ.

use super::{
    map::{Map, push_varint, varint},
    payload::key,
};

/// One keyed row of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyedRead<'b> {
    /// The value of a key: the record with this seqno.
    Found {
        /// The table's log.
        log: u32,
        /// The record.
        seqno: u64,
    },
    /// The key had no value.
    Absent {
        /// The table's log.
        log: u32,
        /// The key.
        key: &'b [u8],
    },
    /// At most so many keys from one on.
    Range {
        /// The table's log.
        log: u32,
        /// The first that belongs to the range.
        from: &'b [u8],
        /// The first that does not; empty if all do.
        to: &'b [u8],
        /// How many were asked for.
        limit: u32,
    },
}

const FOUND: u8 = 0;
const ABSENT: u8 = 1;
const RANGE: u8 = 2;

fn push_bytes(rows: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(rows, bytes.len() as u64);
    rows.extend_from_slice(bytes);
}

fn bytes(from: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = varint(from, 3)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

impl<'b> KeyedRead<'b> {
    pub(super) fn push(&self, rows: &mut Vec<u8>) {
        match *self {
            Self::Found { log, seqno } => {
                rows.push(FOUND);
                push_varint(rows, log.into());
                push_varint(rows, seqno);
            }
            Self::Absent { log, key } => {
                rows.push(ABSENT);
                push_varint(rows, log.into());
                push_bytes(rows, key);
            }
            Self::Range { log, from, to, limit } => {
                rows.push(RANGE);
                push_varint(rows, log.into());
                push_bytes(rows, from);
                push_bytes(rows, to);
                push_varint(rows, limit.into());
            }
        }
    }

    fn split(rows: &'b [u8]) -> Option<(Self, &'b [u8])> {
        let (what, rest) = rows.split_first()?;
        let (log, rest) = varint(rest, 5)?;
        let log = u32::try_from(log).ok()?;
        Some(match *what {
            FOUND => {
                let (seqno, rest) = varint(rest, 10)?;
                (Self::Found { log, seqno }, rest)
            }
            ABSENT => {
                let (key, rest) = bytes(rest)?;
                (Self::Absent { log, key }, rest)
            }
            RANGE => {
                let (from, rest) = bytes(rest)?;
                let (to, rest) = bytes(rest)?;
                let (limit, rest) = varint(rest, 5)?;
                (Self::Range { log, from, to, limit: u32::try_from(limit).ok()? }, rest)
            }
            _ => return None,
        })
    }

    /// The keyed rows that the payload of a READ holds, up to the first that is none.
    pub fn decode(payload: &'b [u8]) -> impl Iterator<Item = Self> {
        let mut rest = Map::parse(payload).and_then(|map| map.get(key::READ_KEYED)).unwrap_or(&[]);
        std::iter::from_fn(move || {
            let (row, behind) = Self::split(rest)?;
            rest = behind;
            Some(row)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::payload::Reads, *};
    use proptest::prelude::*;

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..most)
    }

    proptest! {
        #[test]
        fn keyed_rows_come_back(
            rows in proptest::collection::vec((0..3usize, any::<u32>(), any::<u64>(), bytes(200), bytes(9)), 0..20)
        ) {
            let rows: Vec<KeyedRead<'_>> = rows.iter().map(|(of, log, number, from, to)| match of {
                0 => KeyedRead::Found { log: *log, seqno: *number },
                1 => KeyedRead::Absent { log: *log, key: from },
                _ => KeyedRead::Range { log: *log, from, to, limit: *number as u32 },
            }).collect();
            let mut reads = Reads::default();
            rows.iter().for_each(|row| reads.keyed(row));
            let payload = reads.encode();
            prop_assert_eq!(KeyedRead::decode(&payload).collect::<Vec<_>>(), rows);
            prop_assert_eq!(Reads::decode(&payload).count(), 0);
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = KeyedRead::decode(&bytes).count();
        }
    }
}
