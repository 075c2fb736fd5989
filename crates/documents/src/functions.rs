//! Functions.

use crate::ErrorDoc;
use millrace_wire::TableMode;
use serde::{Deserialize, Serialize};

/// A part of the list of functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionsDoc {
    /// In the order of their names.
    pub functions: Vec<FunctionDoc>,
    /// The function after which the next page begins, if there are more.
    pub next: Option<String>,
}

/// A function and its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionDoc {
    /// Its name.
    pub name: String,
    /// Runs that were created, ever.
    pub triggered: u64,
    /// Runs that ended, ever.
    pub done: u64,
    /// Runs that have not ended.
    pub pending: u64,
    /// Runs that were given up, ever: the dead letters of its log, which other functions may share.
    pub dead: u64,
    /// Dead letters that the log's history still has.
    pub dead_kept: u64,
    /// Dead letters that were retried.
    pub dead_retried: u64,
    /// Its definition, unless that cannot be read.
    #[serde(flatten)]
    pub definition: Option<DefinitionDoc>,
    /// Why its definition cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDoc>,
}

/// The definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DefinitionDoc {
    /// `python`, `wasm`, `process` or `oneshot`.
    pub runtime: String,
    /// The logs that it is bound to.
    pub on: Vec<String>,
    /// The model of the devices on which it runs, if it does not run on hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Whether its runs are executed one at a time, in order.
    pub ordered: bool,
    /// Whether each append is published at once.
    pub streamed: bool,
    /// What its runs may see of others: `serializable`; absent if that is `snapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// How what depends on its changes of tables waits for their databases; absent if as their own modes say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_mode: Option<TableMode>,
    /// Absent from hosts that know no sandboxes.
    #[serde(default)]
    pub network: bool,
    /// Logs that it may read; `null` is every log.
    #[serde(default)]
    pub reads: Option<Vec<String>>,
    /// Logs that it may append to, likewise.
    #[serde(default)]
    pub appends: Option<Vec<String>>,
    /// Addresses that it may send to.
    #[serde(default)]
    pub sends: Vec<String>,
    /// Secrets that it may read.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// How many of its runs may be in progress at once.
    pub concurrency: u32,
    /// Its monitor.
    pub monitor: Option<String>,
    /// Attempts after the first one.
    pub retries: u32,
    /// Its dead-letter log.
    pub dead_letter: String,
    /// The hash of its code.
    pub code: String,
}
