//! Looking after a namespace as a whole: verifying it, saving what is left of a damaged one, copies and what becomes of them.
//!
//! ```text
//!  Namespace ── back_up ──> directory with checksums ── restore ──> another namespace, whose outgoing streams stand still
//!  stopped directory ── inspect ──> Inspection        ── salvage ──> another namespace, with what checksums prove
//! ```

mod backup;
pub(crate) mod holes;
mod inspect;
pub(crate) mod lost;

pub use backup::{Backup, BackupDone, restore};
pub use inspect::{Inspection, Saved, salvage, view};
