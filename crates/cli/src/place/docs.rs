//! Documents about logs, functions and runs: the same for a local namespace and for one on another host.

use crate::show;
pub use millrace_documents::{
    DefinitionDoc, EntriesDoc, ErrorDoc, FailuresDoc, FunctionDoc, KeyText, KeysReadDoc, LinkDoc, LinksDoc, LogDoc,
    ObjectDoc, ObjectsDoc, OutputDoc, Reason, RunDoc, RunsDoc, TasksDoc, WhyDoc,
};
use millrace_node::Hlc;
pub use millrace_node::documents::state_word;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// When the newest record of a log was appended.
pub fn last_append(log: &LogDoc) -> Option<Hlc> {
    log.last_append.as_deref().and_then(show::moment)
}

/// The work for a repair, and its results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RepairCounts {
    pub replayed: u64,
    pub same: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub replaced: u64,
    pub void: u64,
    pub appended: u64,
}

/// A repair, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RepairDoc {
    pub repair: u64,
    pub phase: String,
    pub reason: String,
    pub at_us: u64,
    pub log: Option<String>,
    pub function: Option<String>,
    pub records: u64,
    pub undo: Option<u64>,
    /// Whether the host applies it by itself.
    pub auto: bool,
    pub counts: RepairCounts,
    /// The progress of the replay, if it takes long.
    pub progress: Option<ProgressDoc>,
    /// Why it stopped: a code, and what was wrong.
    pub error: Option<(String, String)>,
    /// Functions that are replayed although they may have effects outside.
    pub run_external: Vec<String>,
    /// Runs that are not replayed.
    pub not_run: Vec<NotRunDoc>,
    /// Topics that keep old records.
    pub topics: Vec<TopicKeptDoc>,
    /// Why the host cannot go on now, while it tries again: a code, and what is wrong.
    pub waits: Option<(String, String)>,
    /// The namespaces that take part.
    pub across: Vec<MemberDoc>,
    /// The repair of another namespace that it is a part of.
    pub part_of: Option<PartOfDoc>,
}

/// A topic that keeps old records of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopicKeptDoc {
    pub log: String,
    pub topic: String,
}

/// The progress of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressDoc {
    pub examined: u64,
    pub runs: u64,
}

/// Runs of a function that a repair does not replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotRunDoc {
    pub function: String,
    pub runs: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unable: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub device: bool,
}

/// A namespace that takes part in a repair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberDoc {
    pub address: String,
    /// Why it does not answer: a code, and what is wrong.
    pub error: Option<(String, String)>,
    /// Whether it knows the outcome.
    pub done: bool,
}

/// The repair of another namespace that a part belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartOfDoc {
    pub namespace: String,
    pub repair: u64,
}

impl RepairDoc {
    /// Whether a host has something to do about it.
    pub fn is_moving(&self) -> bool {
        matches!(&*self.phase, "open" | "running" | "applying" | "preparing" | "committing")
    }

    /// Whether it is decided, and a namespace that takes part does not know that yet.
    pub fn has_news_for_others(&self) -> bool {
        matches!(&*self.phase, "applied" | "abandoned") && self.across.iter().any(|member| !member.done)
    }
}

/// The amendments of a log that wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AmendmentsDoc {
    pub log: String,
    pub waiting: u64,
    pub count: u64,
    pub due_us: Option<u64>,
}

/// A page of what a repair changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangesDoc {
    pub changes: Vec<Value>,
    pub next: Option<u64>,
}
