//! The list of what events read: each read of a record as what (1), log, from and count (LEB128), then those of keys, and 255 behind the last. Of a
//! key without a value, its hash comes behind the log; of a range, the limit and both ends, each with its length.

use crate::row::{KeyedRead, Read};
use millrace_journal::What;

const ABSENT_KEY: u8 = 5;
const KEY_RANGE: u8 = 6;

/// Puts what an event read behind a list.
pub fn push(list: &mut Vec<u8>, reads: impl IntoIterator<Item = Read>, keyed: &[KeyedRead<'_>]) {
    for read in reads {
        list.push(match read.what {
            What::Record => 0,
            What::Latest => 1,
            What::Absent => 2,
            What::BelowHistory => 3,
            What::Refused(_) => 4,
        });
        [read.log.into(), read.from, read.count].into_iter().for_each(|number| push_varint(list, number));
    }
    for read in keyed {
        match *read {
            KeyedRead::Absent { log, hash } => {
                list.push(ABSENT_KEY);
                [log.into(), hash].into_iter().for_each(|number| push_varint(list, number));
            }
            KeyedRead::Range { log, from, to, limit } => {
                list.push(KEY_RANGE);
                [log, limit].into_iter().for_each(|number| push_varint(list, number.into()));
                for end in [from, to] {
                    push_varint(list, end.len() as u64);
                    list.extend_from_slice(end);
                }
            }
        }
    }
    list.push(u8::MAX);
}

/// The reads of records at the beginning of a list.
pub fn of_records(mut list: &[u8]) -> impl Iterator<Item = Read> {
    std::iter::from_fn(move || take_read(&mut list))
}

/// The reads of keys behind them.
pub fn of_keys(mut list: &[u8]) -> impl Iterator<Item = KeyedRead<'_>> {
    while take_read(&mut list).is_some() {}
    std::iter::from_fn(move || {
        let (what, rest) = list.split_first()?;
        list = rest;
        Some(match *what {
            ABSENT_KEY => KeyedRead::Absent { log: varint(&mut list) as u32, hash: varint(&mut list) },
            KEY_RANGE => {
                let (log, limit) = (varint(&mut list) as u32, varint(&mut list) as u32);
                KeyedRead::Range { log, from: take_bytes(&mut list), to: take_bytes(&mut list), limit }
            }
            _ => return None,
        })
    })
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for at in 0.. {
        let Some((byte, rest)) = bytes.split_first() else { break };
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

/// The next read of records in a list; nothing at those of keys, which come last.
fn take_read(bytes: &mut &[u8]) -> Option<Read> {
    let (what, rest) = bytes.split_first()?;
    let what = match what {
        0 => What::Record,
        1 => What::Latest,
        2 => What::Absent,
        3 => What::BelowHistory,
        4 => What::Refused(0),
        _ => return None,
    };
    *bytes = rest;
    let (log, from, count) = (varint(bytes), varint(bytes), varint(bytes));
    Some(Read { log: log as u32, from, count, what })
}

fn take_bytes<'b>(bytes: &mut &'b [u8]) -> &'b [u8] {
    let length = varint(bytes) as usize;
    let (taken, rest) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
    *bytes = rest;
    taken
}
