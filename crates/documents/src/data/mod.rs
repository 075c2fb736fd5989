//! Logs, tables, and what is in them.

mod logs;
mod records;
mod tables;

pub use logs::{FolderDoc, LogDoc, LogsDoc, PointDoc, RateDoc, SeriesDoc};
pub use records::{EntriesDoc, EntryDoc, PayloadDoc, RecordDoc, TopicRecordDoc, WholeEntryDoc};
pub use tables::{DatabaseDoc, KeyText, ReplicaDoc, TableDoc, TableEntryDoc, TableKeyDoc, TroubleDoc, moment_of};
