//! Databases to which tables are written: their settings, the marks of records that depend on unwritten writes, and the writes of each.
//!
//! ```text
//!  journal ──> Writes ──batches──> the host's writer ──> the database ──progress──> Written
//!     └──────> DatabaseMarks: which records depend on what is not written            └── the gate waits for it
//! ```
//!
//! The settings of all databases are one record of the log `_databases`. This crate opens no connection.

mod marks;
mod progress;
mod refused;
mod report;
mod settings;
mod writes;
mod written;

pub use marks::{DATABASES_MAX, DatabaseMarks, Lag};
pub use progress::Progress;
pub use report::{DatabaseStat, Trouble, WriterReport};
pub use settings::{DatabaseSettings, Resync, UNWRITTEN_MAX_BYTES, WhenRefused};
pub use writes::{Noted, Write, WriteBatch, Writes, newest_number};
