//! Logs.

use serde::{Deserialize, Serialize};

/// A part of the list of logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogsDoc {
    /// In the order of their names.
    pub logs: Vec<LogDoc>,
    /// The log after which the next page begins, if there are more.
    pub next: Option<String>,
}

/// A log and its limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogDoc {
    /// Its name.
    pub name: String,
    /// How many of its newest records it keeps.
    #[serde(with = "millrace_wire::history")]
    pub history: u64,
    /// How many records can be read.
    pub records: u64,
    /// The oldest record that can be read; 0 if none was appended.
    pub earliest: u64,
    /// The newest record; 0 if none was appended.
    pub latest: u64,
    /// The functions that are bound to it.
    pub functions: Vec<String>,
    /// When its newest record was appended, if that is known.
    pub last_append: Option<String>,
    /// Tells this log from one that had its name before.
    pub incarnation: u32,
}
