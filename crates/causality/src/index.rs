//! From a log's seqno to the row of its record, and maps by small numbers.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map by ids or rows.
pub(crate) type IdMap<V> = HashMap<u32, V, BuildHasherDefault<IdHasher>>;

/// Hashes numbers that count up. It costs a tenth of the default, which is for keys that an adversary chooses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0.rotate_left(32) ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// No row has this number.
pub(crate) const NO_ROW: u32 = u32::MAX;
/// Most seqnos in a row that may be missing before the numbers behind them go elsewhere: damage is seldom longer.
const HOLES_MAX: u64 = 1024;

/// The rows of one log's records. Regular rows are counted from the first one behind the carried rows, which come before all others.
#[derive(Debug, Default)]
pub(crate) struct LogRows {
    base: u64,
    regular: Vec<u32>,
    /// Entries outside the dense part: seqno and row.
    sparse: Vec<(u64, u32)>,
    carried: Vec<(u64, u32)>,
}

impl LogRows {
    /// Notes a record that is in the order of the journal.
    pub fn push(&mut self, seqno: u64, row: u32) {
        if self.regular.is_empty() {
            self.base = seqno;
        }
        let next = self.base + self.regular.len() as u64;
        if seqno < next || seqno - next > HOLES_MAX {
            self.sparse.push((seqno, row));
            return;
        }
        let holes = (seqno - next) as usize;
        self.regular.extend(std::iter::repeat_n(NO_ROW, holes));
        self.regular.push(row);
    }

    /// Notes a carried record by its row.
    pub fn push_carried(&mut self, seqno: u64, row: u32) {
        self.carried.push((seqno, row));
    }

    /// Makes it ready to be asked.
    pub fn finish(&mut self) {
        self.sparse.sort_unstable();
        self.carried.sort_unstable();
        self.regular.shrink_to_fit();
    }

    /// The row of a record, if `carried` rows precede the regular ones.
    pub fn row(&self, seqno: u64, carried: u32) -> Option<u32> {
        let dense = seqno.checked_sub(self.base).and_then(|at| self.regular.get(usize::try_from(at).ok()?));
        if let Some(row) = dense.filter(|row| **row != NO_ROW) {
            return Some(row + carried);
        }
        let find = |list: &[(u64, u32)]| {
            let at = list.binary_search_by_key(&seqno, |(seqno, _)| *seqno).ok()?;
            Some(list[at].1)
        };
        find(&self.sparse).map(|row| row + carried).or_else(|| find(&self.carried))
    }

    /// The oldest and the newest seqno.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let dense = self.regular.len().checked_sub(1).map(|last| (self.base, self.base + last as u64));
        let ends = |list: &[(u64, u32)]| Some((list.first()?.0, list.last()?.0));
        let all = [dense, ends(&self.sparse), ends(&self.carried)];
        all.into_iter().flatten().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.regular.capacity() * 4 + (self.sparse.capacity() + self.carried.capacity()) * 16
    }
}
