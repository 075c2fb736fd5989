//! Looking after a namespace as a whole: verifying it, saving what is left of a damaged one, copies and what becomes of them.
//!
//! ```text
//!  Namespace ── back_up ──> directory with checksums ── restore ──> another namespace, whose outgoing streams stand still
//!  stopped directory ── inspect ──> Inspection        ── salvage ──> another namespace, with what checksums prove
//! ```

mod backup;
mod inspect;

pub use backup::{Backup, BackupDone, back_up, restore};
pub use inspect::{Inspection, Saved, examine, salvage, view};
