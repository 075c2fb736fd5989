//! Options for creating and opening a namespace.

use crate::{Journal, entry::ReplaySeed};
use millrace_wire::Durability;
use std::time::Duration;

/// The settings of a namespace. What is retained can be changed later, the others are fixed at its creation.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Size of a segment: a power of two from 1 MiB to 1 GiB. A record is at most a quarter of it.
    pub segment_bytes: u64,
    /// Bytes of segments kept even if nothing needs them; at most 4032 segments.
    pub retain_bytes: u64,
    /// Drop segments that nothing needs once they are this old, even below `retain_bytes`.
    pub retain_age: Option<Duration>,
    /// The default durability of appends.
    pub durability: Durability,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, retain_bytes: 1 << 30, retain_age: None, durability: Durability::Disk }
    }
}

/// How a namespace is opened by this process.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Whether a thread makes room ahead of the appends; without it, from time to time an append waits for room.
    pub background: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { background: true }
    }
}

/// The settings that the manifest fixes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub durability: Durability,
    pub created_us: u64,
    pub replay_seed: ReplaySeed,
}

impl Journal {
    /// The settings of the namespace as of now.
    pub fn made_with(&self) -> CreateOptions {
        let (settings, retention) = (&self.0.settings, &self.0.retention);
        self.0.refresh_retention();
        CreateOptions {
            segment_bytes: self.0.segments.bytes(),
            retain_bytes: retention.bytes(),
            retain_age: retention.age_ms().map(Duration::from_millis),
            durability: settings.durability,
        }
    }
}
