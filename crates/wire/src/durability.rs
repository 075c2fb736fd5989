//! How safe an append is before it is answered.

use serde::{Deserialize, Serialize};

/// How long an append waits for the disk, unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Survives the death of every process, not a power failure.
    Memory,
    /// Survives a power failure: on disk before the append returns.
    #[default]
    Disk,
}
