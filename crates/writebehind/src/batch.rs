//! Batches of the journal, and transactions that are formed from them.

use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};

/// Identifies a database in one namespace.
pub type Database = u32;

/// One write: the newest value of a key, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The table's name.
    pub table: Arc<str>,
    /// The key.
    pub key: Bytes,
    /// What happens to it.
    pub operation: Operation,
    /// The seqno of the record.
    pub version: u64,
}

/// What a write does. An increment is the PUT of its sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The key gets this value.
    Put(Bytes),
    /// The key is removed.
    Delete,
}

impl Row {
    /// The bytes that count against the limits.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value().map_or(0, Bytes::len)
    }

    /// The value, if the key gets one.
    pub fn value(&self) -> Option<&Bytes> {
        match &self.operation {
            Operation::Put(value) => Some(value),
            Operation::Delete => None,
        }
    }
}

/// What happens to a batch that the database refuses for its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefused {
    /// The stream stops before it.
    #[default]
    Stop,
    /// It becomes a dead letter, and the stream continues behind it.
    DeadLetter,
}

/// A batch may not be sent before another database has written up to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The other database.
    pub database: Database,
    /// The number of the last batch that it must have written.
    pub number: u64,
}

/// The writes of one batch of the journal to one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The journal's sequence number of the batch's last entry.
    pub number: u64,
    /// When it was committed, in any unit: only the caller reads it.
    pub stamp: u64,
    /// The writes, in their order. At most one for each key remains after [`Stream::push`](crate::Stream::push).
    pub rows: Vec<Row>,
    /// What other databases must have written before.
    pub requires: Vec<Requirement>,
    /// Whether it must be the only batch of its transaction, so that triggers in the database see each change.
    pub is_alone: bool,
    /// What happens if the database refuses it.
    pub on_refused: OnRefused,
}

impl Batch {
    /// The bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(Row::bytes).sum()
    }

    /// Leaves the last write of each key. A state inside of a batch does not exist outside.
    pub(crate) fn coalesce(&mut self) {
        let mut merged = Merged::default();
        self.rows.drain(..).for_each(|row| merged.insert(row));
        self.rows = merged.rows.into_values().collect();
    }
}

/// What the database executes at once, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The number that the database must have.
    pub after: u64,
    /// The number that it gets.
    pub number: u64,
    /// At most one write for each key, ordered by table and key. May be empty: then only the number changes.
    pub rows: Vec<Row>,
}

/// Writes of which the last one of each key counts.
#[derive(Default)]
pub(crate) struct Merged {
    rows: BTreeMap<(Arc<str>, Bytes), Row>,
    bytes: usize,
}

impl Merged {
    /// The rows and bytes that there would be with these rows, which have different keys.
    pub(crate) fn size_with(&self, rows: &[Row]) -> (usize, usize) {
        let (mut count, mut bytes) = (self.rows.len(), self.bytes);
        for row in rows {
            match self.rows.get(&(row.table.clone(), row.key.clone())) {
                Some(replaced) => bytes -= replaced.bytes(),
                None => count += 1,
            }
            bytes += row.bytes();
        }
        (count, bytes)
    }

    pub(crate) fn insert(&mut self, row: Row) {
        self.bytes += row.bytes();
        if let Some(replaced) = self.rows.insert((row.table.clone(), row.key.clone()), row) {
            self.bytes -= replaced.bytes();
        }
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows.into_values().collect()
    }
}
