//! Maintenance of a whole namespace: verification, salvage of a damaged one, backups and restored copies.
//!
//! ```text
//!  Namespace ── back_up ──> directory with checksums ── restore ──> another namespace, whose outgoing streams are stopped
//!  stopped directory ── inspect ──> Inspection        ── salvage ──> another namespace, with what checksums prove
//! ```

mod backup;
mod inspect;

pub use backup::{Backup, BackupDone, back_up, restore};
pub use inspect::{Inspection, Saved, examine, salvage, view};
