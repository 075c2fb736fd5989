//! The capabilities of a namespace.

use serde::{Deserialize, Serialize};

/// What the audit log tells of capabilities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapabilitiesDoc {
    /// Those that were issued, the newest first.
    pub capabilities: Vec<CapabilityDoc>,
}

/// A capability that was issued. Those that its holders derived from it are not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapabilityDoc {
    /// The ids by which it is revoked; that of an invitation has the machine's before its own.
    pub ids: Vec<String>,
    /// `cap.issue`, `cap.squash`, `cap.invite` or `cap.redeem`.
    pub act: String,
    /// When.
    pub at: String,
    /// On whose behalf.
    pub by: String,
    /// Its label.
    pub about: Option<String>,
    /// Whether it was revoked.
    pub revoked: bool,
}
