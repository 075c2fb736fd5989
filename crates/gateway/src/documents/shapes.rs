//! Documents about logs, functions and runs, as hosts write them and clients read them. The command line writes the same for a
//! namespace that it reaches through its files.

use super::text::{id_text, names, rfc3339};
use millrace_node::{FunctionStat, LogStat, RecordRef, RunState, RunView};
use millrace_wire::{Error, Hlc};
use serde::{Deserialize, Serialize};

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

impl LogDoc {
    /// The document of a log whose newest record was appended at `newest`.
    pub fn of(log: &LogStat, newest: Option<Hlc>, incarnation: u32) -> Self {
        Self {
            name: log.name.to_string(),
            history: log.history,
            // A log may be trimmed of all its records: then the earliest is the one to come.
            records: if log.earliest == 0 { 0 } else { (log.latest + 1).saturating_sub(log.earliest) },
            earliest: log.earliest,
            latest: log.latest,
            functions: names(&log.functions),
            last_append: newest.map(rfc3339),
            incarnation,
        }
    }
}

/// An error, as documents and answers represent it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorDoc {
    /// Such as `MR2101`.
    pub code: String,
    /// The description of this refusal.
    pub detail: String,
    /// The cause of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The remedy of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl From<&Error> for ErrorDoc {
    fn from(error: &Error) -> Self {
        let code = error.code();
        Self {
            code: code.id().into(),
            detail: error.detail().into(),
            cause: Some(code.cause().into()),
            remedy: Some(code.remedy().into()),
        }
    }
}

impl std::fmt::Display for ErrorDoc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
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
    /// Whether its runs are executed one at a time, in order.
    pub ordered: bool,
    /// Whether each append is published at once.
    pub streamed: bool,
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
                    on: names(&spec.on),
                    ordered: spec.ordered,
                    streamed: spec.streamed,
                    network: spec.network,
                    reads: spec.rights.reads.as_deref().map(names),
                    appends: spec.rights.appends.as_deref().map(names),
                    sends: names(&spec.rights.sends),
                    secrets: names(&spec.rights.secrets),
                    concurrency: spec.concurrency,
                    monitor: spec.monitor.as_ref().map(ToString::to_string),
                    retries: spec.retries,
                    dead_letter: spec.dead_letter.to_string(),
                    code: definition.code.clone(),
                });
            }
            Err(error) => doc.error = Some(error.into()),
        }
        doc
    }
}

/// A record, named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordName {
    /// Its log; none if that was removed.
    pub log: Option<String>,
    /// Its number.
    pub seqno: u64,
}

impl From<&RecordRef> for RecordName {
    fn from(record: &RecordRef) -> Self {
        Self { log: record.log.as_ref().map(ToString::to_string), seqno: record.seqno }
    }
}

impl std::fmt::Display for RecordName {
    /// As `log get` takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.log.as_deref().unwrap_or("(removed log)"), self.seqno)
    }
}

/// One attempt at a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptDoc {
    /// Its number, from 1.
    pub attempt: u64,
    /// When it began.
    pub time: String,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunDoc {
    /// Its id.
    pub id: String,
    /// Its function; none if that was removed.
    pub function: Option<String>,
    /// See [`state_word`].
    pub state: String,
    /// The record that it runs for.
    #[serde(flatten)]
    pub record: RecordName,
    /// The id of that record.
    pub cause: Option<String>,
    /// The run that appended that record.
    pub caused_by: Option<String>,
    /// When it was created.
    pub triggered: String,
    /// When it ended.
    pub ended: Option<String>,
    /// Its attempts.
    pub attempts: Vec<AttemptDoc>,
    /// The records that it read.
    pub reads: Vec<RecordName>,
    /// The records that it appended.
    pub appends: Vec<RecordName>,
    /// Its output.
    pub output: Option<String>,
    /// Why it was given up.
    pub error: Option<ErrorDoc>,
    /// The run that retried its dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<String>,
    /// Whether something of it is missing here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

impl From<&RunView> for RunDoc {
    fn from(view: &RunView) -> Self {
        let attempts = view.attempts.iter();
        let dead = view.ending.as_ref().and_then(|ending| ending.dead.as_ref());
        Self {
            id: view.id.to_string(),
            function: view.function.as_ref().map(ToString::to_string),
            state: state_word(view.state).into(),
            record: (&view.record).into(),
            cause: id_text(view.cause),
            caused_by: id_text(view.caused_by),
            triggered: rfc3339(view.triggered),
            ended: view.ended.map(rfc3339),
            attempts: attempts.map(|a| AttemptDoc { attempt: a.attempt, time: rfc3339(a.at) }).collect(),
            reads: view.reads.iter().map(RecordName::from).collect(),
            appends: view.appends.iter().map(RecordName::from).collect(),
            output: view.ending.as_ref().map(|ending| ending.output.clone()),
            error: dead.map(|death| ErrorDoc {
                code: death.code.clone(),
                detail: death.error.clone(),
                ..ErrorDoc::default()
            }),
            retried_as: view.retried_as.and_then(id_text),
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
