//! Documents about logs, functions and runs: the same for a local namespace and for one on another host.

use crate::show;
use millrace_node::{FunctionStat, Hlc, LogStat, Reason, Record, RecordRef, RunState, RunView, Why};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A log and how full it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogDoc {
    pub name: String,
    #[serde(with = "millrace_wire::history")]
    pub history: u64,
    pub records: u64,
    pub earliest: u64,
    pub latest: u64,
    pub functions: Vec<String>,
    pub last_append: Option<String>,
    /// Tells this log from one that had its name before.
    pub incarnation: u32,
}

impl LogDoc {
    pub fn of(log: &LogStat, newest: Option<&Record>, incarnation: u32) -> Self {
        Self {
            name: log.name.to_string(),
            history: log.history,
            // A log may be trimmed of all its records: then the earliest is the one to come.
            records: if log.earliest == 0 { 0 } else { (log.latest + 1).saturating_sub(log.earliest) },
            earliest: log.earliest,
            latest: log.latest,
            functions: log.functions.iter().map(ToString::to_string).collect(),
            last_append: newest.map(|record| show::rfc3339(record.hlc)),
            incarnation,
        }
    }

    /// When its newest record was appended.
    pub fn last_append(&self) -> Option<Hlc> {
        self.last_append.as_deref().and_then(show::moment)
    }
}

/// An error, as it is in documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorDoc {
    pub code: String,
    pub detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl std::fmt::Display for ErrorDoc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

/// A function and how much it has to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionDoc {
    pub name: String,
    pub triggered: u64,
    pub done: u64,
    pub pending: u64,
    /// Runs that were given up, ever: the letters of its dead-letter log, which other functions may share.
    pub dead: u64,
    /// Letters that the log's history still has.
    pub dead_kept: u64,
    /// Letters whose record was run again.
    pub dead_retried: u64,
    /// Its definition, unless that cannot be read.
    #[serde(flatten)]
    pub definition: Option<DefinitionDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDoc>,
}

/// What was deployed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DefinitionDoc {
    pub runtime: String,
    pub on: Vec<String>,
    pub ordered: bool,
    pub streamed: bool,
    /// Absent from hosts that know no sandboxes.
    #[serde(default)]
    pub network: bool,
    /// Logs that it may read and append to; `null` is every log.
    #[serde(default)]
    pub reads: Option<Vec<String>>,
    #[serde(default)]
    pub appends: Option<Vec<String>>,
    #[serde(default)]
    pub sends: Vec<String>,
    #[serde(default)]
    pub secrets: Vec<String>,
    pub concurrency: u32,
    pub monitor: Option<String>,
    pub retries: u32,
    pub dead_letter: String,
    pub code: String,
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

impl From<&FunctionStat> for FunctionDoc {
    fn from(stat: &FunctionStat) -> Self {
        let mut doc = Self {
            name: stat.name.to_string(),
            triggered: stat.triggered,
            done: stat.done,
            pending: stat.pending(),
            dead: stat.dead_letters.given_up,
            dead_kept: stat.dead_letters.kept,
            dead_retried: stat.dead_letters.retried,
            ..Self::default()
        };
        match &stat.definition {
            Ok(definition) => {
                let spec = &definition.spec;
                doc.definition = Some(DefinitionDoc {
                    runtime: spec.runtime.to_string(),
                    on: texts(&spec.on),
                    ordered: spec.ordered,
                    streamed: spec.streamed,
                    network: spec.network,
                    reads: spec.rights.reads.as_deref().map(texts),
                    appends: spec.rights.appends.as_deref().map(texts),
                    sends: texts(&spec.rights.sends),
                    secrets: texts(&spec.rights.secrets),
                    concurrency: spec.concurrency,
                    monitor: spec.monitor.as_ref().map(ToString::to_string),
                    retries: spec.retries,
                    dead_letter: spec.dead_letter.to_string(),
                    code: definition.code.clone(),
                });
            }
            Err(error) => {
                doc.error = Some(ErrorDoc {
                    code: error.code().id().into(),
                    detail: error.detail().into(),
                    cause: Some(error.code().cause().into()),
                    remedy: Some(error.code().remedy().into()),
                });
            }
        }
        doc
    }
}

/// A record, named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordDoc {
    pub log: Option<String>,
    pub seqno: u64,
}

impl From<&RecordRef> for RecordDoc {
    fn from(record: &RecordRef) -> Self {
        Self { log: record.log.as_ref().map(ToString::to_string), seqno: record.seqno }
    }
}

impl std::fmt::Display for RecordDoc {
    /// As `log get` takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.log.as_deref().unwrap_or("(removed log)"), self.seqno)
    }
}

/// One attempt at a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptDoc {
    pub attempt: u64,
    pub time: String,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunDoc {
    pub id: String,
    pub function: Option<String>,
    pub state: String,
    #[serde(flatten)]
    pub record: RecordDoc,
    pub cause: Option<String>,
    pub caused_by: Option<String>,
    pub triggered: String,
    pub ended: Option<String>,
    pub attempts: Vec<AttemptDoc>,
    pub reads: Vec<RecordDoc>,
    pub appends: Vec<RecordDoc>,
    pub output: Option<String>,
    pub error: Option<ErrorDoc>,
    /// The run that came of its dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<String>,
    /// Whether something of it is missing here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// A part of a list of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunPageDoc {
    pub runs: Vec<RunDoc>,
    /// The run to go on before.
    pub next: Option<String>,
}

impl From<&RunView> for RunDoc {
    fn from(view: &RunView) -> Self {
        let id = |id: millrace_node::EventId| (!id.is_none()).then(|| id.to_string());
        let attempts = view.attempts.iter();
        let dead = view.ending.as_ref().and_then(|ending| ending.dead.as_ref());
        Self {
            id: view.id.to_string(),
            function: view.function.as_ref().map(ToString::to_string),
            state: state_word(view.state).into(),
            record: (&view.record).into(),
            cause: id(view.cause),
            caused_by: id(view.caused_by),
            triggered: show::rfc3339(view.triggered),
            ended: view.ended.map(show::rfc3339),
            attempts: attempts.map(|a| AttemptDoc { attempt: a.attempt, time: show::rfc3339(a.at) }).collect(),
            reads: view.reads.iter().map(RecordDoc::from).collect(),
            appends: view.appends.iter().map(RecordDoc::from).collect(),
            output: view.ending.as_ref().map(|ending| ending.output.clone()),
            error: dead.map(|death| ErrorDoc {
                code: death.code.clone(),
                detail: death.error.clone(),
                ..ErrorDoc::default()
            }),
            retried_as: view.retried_as.and_then(id),
            partial: view.partial,
        }
    }
}

/// A run's state as it is in documents.
pub fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Pending => "pending",
        RunState::Started => "started",
        RunState::Done => "done",
        RunState::Dead => "dead",
        RunState::Cancelled => "cancelled",
    }
}

/// Why something is not running.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WhyDoc {
    pub target: String,
    /// Each has a `text` for people.
    pub reasons: Vec<Value>,
}

impl From<&Why> for WhyDoc {
    fn from(why: &Why) -> Self {
        let reason = |reason: &Reason| {
            let mut object = json!(reason);
            object["text"] = json!(reason.to_string());
            object
        };
        Self { target: why.target.clone(), reasons: why.reasons.iter().map(reason).collect() }
    }
}

/// A shared object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectDoc {
    #[serde(rename = "type")]
    pub kind: String,
    /// The user's class, if it is an object of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub key: String,
    /// Which object of the key it is.
    pub incarnation: String,
    /// With whose sessions it ends; empty if it stays.
    pub application: String,
    /// Whether it is there after a restart of the host.
    pub persistent: bool,
    /// How many hosts have a copy at least: 1 for the namespace's host alone.
    pub rf: u64,
    /// The host that leads the group which keeps the copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    pub bytes: u64,
    /// How many calls wait.
    pub waiting: u64,
    /// Some of them, those that came first.
    pub waiters: Vec<WaiterDoc>,
    /// Whose session has the lock.
    pub owner: Option<String>,
}

/// A call that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaiterDoc {
    pub session: String,
    pub call: u64,
}

/// An outbox or a relay, and how it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkDoc {
    /// `outbox` or `relay`.
    pub kind: String,
    pub name: String,
    pub from: String,
    pub to: String,
    pub state: String,
    pub acked: u64,
    /// The first record that a relay forwards.
    pub start: u64,
    /// Messages of an outbox that arrived.
    pub sent: u64,
    /// Messages that the peer refused for good.
    pub dead: u64,
    /// Messages that somebody dropped.
    pub dropped: u64,
    pub newest: u64,
    pub lag_records: u64,
    pub lag_bytes: u64,
    pub lost: u64,
    /// The other namespace.
    pub peer: Option<String>,
    pub connected: bool,
    pub last_contact: Option<String>,
    pub next_try: Option<String>,
    pub code: Option<String>,
    pub error: Option<String>,
    pub remedy: Option<String>,
}

/// Entries of the journal, in order.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EntriesDoc {
    /// Each an entry, or `{"position": …, "error": …}` where one is damaged.
    pub entries: Vec<Value>,
    /// Where to go on.
    pub next: u64,
    /// Where the journal ended when it was read.
    pub tail: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_as_they_are_written_and_gaps_are_filled() {
        let run = json!({
            "id": "a-0-1", "function": "f", "state": "dead", "log": "raw", "seqno": 3, "cause": "a-0-0", "caused_by": null,
            "triggered": "2026-01-01T00:00:00.000000Z", "ended": null, "attempts": [{"attempt": 1, "time": "x"}],
            "reads": [], "appends": [{"log": null, "seqno": 1}], "output": null,
            "error": {"code": "MR3007", "detail": "d"},
        });
        let doc: RunDoc = serde_json::from_value(run.clone()).unwrap();
        assert_eq!(json!(doc), run);
        assert_eq!(serde_json::from_value::<RunDoc>(json!({"id": "b", "new": 1})).unwrap().id, "b");
        let function = json!({
            "name": "f", "triggered": 3, "done": 1, "pending": 2, "dead": 0, "dead_kept": 0, "dead_retried": 0,
            "runtime": "wasm", "on": ["raw"], "ordered": true, "streamed": false, "network": false,
            "reads": ["raw"], "appends": null, "sends": [], "secrets": ["key"],
            "concurrency": 1, "monitor": null, "retries": 3, "dead_letter": "dead/f", "code": "00",
        });
        let doc: FunctionDoc = serde_json::from_value(function.clone()).unwrap();
        assert_eq!((json!(doc), doc.definition.is_some()), (function, true));
        let broken = json!({"name": "f", "triggered": 0, "done": 0, "pending": 0, "dead": 0, "dead_kept": 0, "dead_retried": 0,
                   "error": {"code": "c", "detail": "d"}});
        let doc: FunctionDoc = serde_json::from_value(broken.clone()).unwrap();
        assert_eq!((json!(doc), doc.definition), (broken, None));
    }
}

/// What was done for a repair, and what that came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RepairCounts {
    pub replayed: u64,
    pub same: u64,
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
    /// Why it stopped: a code, and what was wrong.
    pub error: Option<(String, String)>,
}

impl RepairDoc {
    /// Whether a host has something to do about it.
    pub fn is_moving(&self) -> bool {
        matches!(&*self.phase, "open" | "running" | "applying")
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
