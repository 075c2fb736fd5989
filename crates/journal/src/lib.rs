//! The journal: an append-only, segmented, checksummed sequence of entries that any number of processes share.
//!
//! One namespace, one journal. Records and events are entries; a log is an index into the journal. A batch of entries is committed by one
//! store. After any crash the longest valid prefix of complete batches remains, and everything else is rebuilt from it.
//!
//! ```text
//!  commit --> write/lock --> write/commit --> segments (mapped) --> index
//!                                 |                                    ^
//!                                 v                                    |
//!                           read/wait (wake)        read/get, read/scan (no lock)
//!  sync ----> write/flush --> medium
//!  open ----> recovery -----> index, control
//! ```
//!
//! What this crate does *not* do: it has no network and no async runtime, and knows only the counters of functions. Only `medium` opens
//! files.

#![deny(unsafe_code)]

mod catalog;
mod checksum;
mod copy;
mod definitions;
mod entry;
mod extent;
mod journal;
pub mod medium;
mod options;
mod persistent;
mod read;
mod recovery;
mod space;
mod store;
mod write;

pub use catalog::{Catalog, Function, Log, Pin};
pub use checksum::crc32c;
pub use copy::{LostRecords, Rebuilt, Salvaged, Snapshot, SnapshotSink, StagingDir};
pub use entry::{
    Entry, Kind, Position, ReplaySeed, Salt,
    imported::{Imported, ImportedAttempt},
    keyed::KeyedRead,
    map,
    payload::{Attempt, End, Origin, Outcome, ReadFrom, ReadRow, Reads, Replaced, Run, What, trigger_record},
    row::{Operation, Restates, Row},
};
pub use extent::Extent;
pub use journal::Journal;
pub use millrace_wire::{Durability, HISTORY_ALL, HISTORY_MAX};
pub use options::{CreateOptions, OpenOptions};
#[cfg(debug_assertions)]
pub use read::entries_visited;
pub use read::{check::CheckReport, get::RecordMeta, scan::Scan};
pub use recovery::Recovery;
pub use space::{LowSpace, Space};
pub use store::{
    index::Item,
    json,
    manifest::{Ancestor, Manifest},
    sealed::{SEALED_PREFIX, Sealed, SealedFiles},
};
pub use write::{
    commit::{Appended, Committed, RECORD_MAX_BYTES, Transaction, lock_patience, lock_within},
    retention::{Maintained, Needs},
    standing::Writer,
};
