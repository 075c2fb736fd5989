//! A namespace as programs use it: append, read, define. Every process may do this at once, with or without a host.
//!
//! ```text
//!  append --> admission --> journal: [APPEND, TRIGGER…]          to an address: outbox, in the same batch
//!  read, and what was appended --> gate --> the caller
//! ```
//!
//! This crate knows functions ([`definition`], [`bindings`]), runs ([`runs`]) and dead letters ([`dead_letters`]). It does not execute
//! functions, deliver messages, or decide about access.

pub mod admission;
pub mod bindings;
pub mod databases;
pub mod dead_letters;
pub mod definition;
pub mod fence;
pub mod gate;
pub mod holder;
pub mod holes;
pub mod keys;
pub mod names;
mod namespace;
pub mod outbox;
pub mod replicas;
pub mod runs;
mod view;

pub use admission::{Backfilled, Stretch};
pub use dead_letters::{DeadLetters, FailureGroup, Failures, Letters, MayRead, Retried, RetriedAll};
pub use definition::{Definition, FunctionSpec, RunIsolation, Runtime};
pub use gate::{Free, Gate, Gated, Marks, Need, Of, Shows, Site, Watermark};
pub use holder::Holder;
pub use millrace_journal::{CreateOptions, Durability, Journal, Log, OpenOptions, Position};
pub use millrace_tables as tables;
pub use millrace_wire::{Address, Code, Error, EventId, Hlc, LogName, Name, Result};
pub use namespace::{
    AppendOptions, BATCH_RECORDS_MAX, FOLDER, FunctionStat, LogStat, Namespace, NewRecord, Note, Receipt, Record,
    TOKEN_PATIENCE, TableStat, check_directory, check_table_request, found, journal_dir, named, no_function, now_us,
};
pub use runs::tasks;
pub use runs::{
    Attempt, Ending, KeysRead, RESULT_MAX_BYTES, RecordRef, ResultKind, RunError, RunFilter, RunPage, RunResult,
    RunState, RunView, WhichKeys,
};
pub use view::View;
