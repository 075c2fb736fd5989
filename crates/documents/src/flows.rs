//! How many records flow, and where.

use serde::{Deserialize, Serialize};

/// What a host has counted since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowsDoc {
    /// Since when it counts.
    pub since: String,
    /// The flows.
    pub edges: Vec<FlowDoc>,
    /// Whether there are more than are listed.
    pub more: bool,
}

/// Records that go one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowDoc {
    /// Names the flow for as long as its log and function exist.
    pub id: String,
    /// What happens with the records.
    pub kind: FlowKind,
    /// The function that does it.
    pub function: Option<String>,
    /// The log that the records come from or go to.
    pub log: Option<String>,
    /// Where a relay or an outbox brings them.
    pub to: Option<String>,
    /// How many there were.
    pub records: u64,
}

/// What happens with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowKind {
    /// A function runs for them.
    Runs,
    /// A function appends them.
    Appends,
    /// A function reads them.
    Reads,
    /// A relay forwards them.
    Relays,
    /// An outbox sends them.
    Sends,
}
