//! Forms the transactions by which the writes of a journal reach a database, and handles their outcomes.
//!
//! ```text
//!  journal ──> Batch ──> Stream ──> Transaction ──> an engine (crate databases) ──> Outcome ──> Stream: what is written
//! ```
//!
//! A [`Stream`] has the writes to one database, in the order of the journal. Each transaction contains whole batches and names its
//! predecessor by number: the database executes it only if it has executed exactly the predecessor. So transactions can be sent before the
//! earlier ones are answered, and none is executed twice, out of order, or after an earlier one failed.
//!
//! This crate has no I/O and no clock.

mod batch;
mod stream;

pub use batch::{Batch, Database, OnRefused, Operation, Requirement, Row, Transaction};
pub use stream::{Opened, Settings, State, Stream, Unwritten};

/// What one transaction of a database may contain, and how many may be unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most rows of a transaction.
    pub rows: usize,
    /// Most bytes of the keys and values of a transaction.
    pub bytes: usize,
    /// Longest key, in bytes.
    pub key: usize,
    /// Longest value, in bytes.
    pub value: usize,
    /// Most unanswered transactions.
    pub in_flight: usize,
}

/// Why a database refused a transaction for its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub kind: RefusalKind,
    /// The database's own code, such as a SQLSTATE.
    pub code: String,
    /// The database's own words, which may contain a part of a value.
    pub detail: String,
}

/// What is wrong with a refused transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// A value, or all of it together: another content would be accepted.
    Data,
    /// The table: no content would be accepted.
    Schema,
    /// The user lacks a permission.
    Denied,
}

/// What became of the oldest unanswered transaction, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable.
    Written(u64),
    /// The database did not have its predecessor, so it wrote nothing.
    Stale(u64),
    /// The database refused it and wrote nothing.
    Refused {
        /// Its number.
        number: u64,
        /// The row that was refused, if the database says so.
        row: Option<usize>,
        /// The reason.
        refusal: Refusal,
    },
    /// The connection was lost: each unanswered transaction may or may not be executed.
    Lost(millrace_wire::Error),
}
