//! Runs from the journal: their causes, reads, appends and ends.
//!
//! ```text
//!   index of the function ──> TRIGGER, last FIRED, DONE ──> fold ──> list, pending
//! ```
//!
//! A run is a few entries, and the index of its function points to them: so a query takes time in proportion to its answer, not to the
//! journal. Only [`fold`] interprets the entries.

pub mod call;
pub mod flows;
pub mod fold;
mod list;
pub mod pending;
pub mod printed;
mod result;
pub mod tasks;
#[cfg(test)]
mod tests;

use millrace_journal::{End, Outcome};
use millrace_wire::{Error, EventId, Hlc, LogName, Name};
pub use result::{RESULT_MAX_BYTES, ResultKind, RunResult};
use serde::{Deserialize, Serialize, Serializer};

/// Which runs to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this function.
    pub function: Option<Name>,
    /// Only runs that a record of this log caused.
    pub log: Option<LogName>,
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Only runs that were called for before this one.
    pub before: Option<EventId>,
    /// The most runs to list; the newest are listed.
    pub limit: usize,
}

impl Default for RunFilter {
    fn default() -> Self {
        Self { function: None, log: None, state: None, before: None, limit: 100 }
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Triggered, never tried.
    Pending,
    /// Tried at least once: in progress, or to be tried again.
    Started,
    /// Ended well.
    Done,
    /// Ended as a dead letter, or dropped with its function.
    Dead,
    /// Cancelled before its function ended.
    Cancelled,
}

/// A record, named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordRef {
    /// The log's name; `None` if the log is gone.
    pub log: Option<LogName>,
    /// The record's place in it.
    pub seqno: u64,
}

/// What a run read of the keys of a table, besides values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysRead {
    /// The table's log; `None` if the log is gone.
    pub table: Option<LogName>,
    /// Which keys.
    pub which: WhichKeys,
}

/// Keys that a run read without a value, or as a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum WhichKeys {
    /// This one, which had no value.
    Absent(Vec<u8>),
    /// A number of keys from one on, those with values.
    Range {
        /// The first that belongs to the range.
        from: Vec<u8>,
        /// The first that does not; empty if all do.
        to: Vec<u8>,
        /// The most that were asked for.
        limit: u32,
    },
}

/// One attempt at a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// 1 for the first.
    pub attempt: u64,
    /// When it was claimed.
    #[serde(serialize_with = "as_text")]
    pub at: Hlc,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunView {
    /// Its id: that of its TRIGGER.
    #[serde(serialize_with = "as_text")]
    pub id: EventId,
    /// Its function; `None` if that is gone.
    pub function: Option<Name>,
    /// Its state.
    pub state: RunState,
    /// The record that caused it.
    pub record: RecordRef,
    /// The id of that record's APPEND; for a retry of a dead letter, the id of the dead letter's APPEND.
    #[serde(serialize_with = "as_text")]
    pub cause: EventId,
    /// The run that appended that record or left that dead letter; none if it came from outside, whatever it claims.
    #[serde(serialize_with = "as_text")]
    pub caused_by: EventId,
    /// When it was triggered.
    #[serde(serialize_with = "as_text")]
    pub triggered: Hlc,
    /// When it ended.
    #[serde(serialize_with = "as_optional_text")]
    pub ended: Option<Hlc>,
    /// Its attempts, oldest first; those that journal retention has taken are missing.
    pub attempts: Vec<Attempt>,
    /// The records it read.
    pub reads: Vec<RecordRef>,
    /// The keys of tables that it found without a value, and the ranges of keys that it read.
    pub keys: Vec<KeysRead>,
    /// The records it appended.
    pub appends: Vec<RecordRef>,
    /// The run that retried its dead letter, if any.
    #[serde(serialize_with = "as_optional_text")]
    pub retried_as: Option<EventId>,
    /// How it ended, once it has.
    pub ending: Option<Ending>,
    /// Its result, if it has one. Lists omit it.
    #[serde(skip)]
    pub result: Option<RunResult>,
    /// Whether something of it is missing here: an entry is damaged, was dropped or moved by retention, or stands too far from the
    /// others to be looked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// A part of the runs that a filter admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPage {
    /// The runs, newest first.
    pub runs: Vec<RunView>,
    /// The run before which the next page continues; none if there are no older ones.
    pub next: Option<EventId>,
}

fn as_text<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_optional_text<T: std::fmt::Display, S: Serializer>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => s.collect_str(value),
        None => s.serialize_none(),
    }
}

/// How a run ended: what its DONE says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Why it is dead; `None` if it ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<RunError>,
    /// Its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Why a run was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// The error's code.
    pub code: String,
    /// The description of the error.
    pub error: String,
}

impl Ending {
    /// The end of a run that ended well.
    pub fn well(output: &[u8]) -> Self {
        Self { dead: None, output: String::from_utf8_lossy(output).into_owned() }
    }

    /// The end of a run that was given up.
    pub fn dead(error: &Error, output: &[u8]) -> Self {
        let death = RunError { code: error.code().id().into(), error: error.detail().into() };
        Self { dead: Some(death), ..Self::well(output) }
    }

    /// The content of its DONE, without the error.
    pub fn to_end(&self) -> End<'_> {
        let end = End { output: &self.output, ..End::default() };
        match &self.dead {
            None => end,
            Some(death) => End { outcome: Outcome::Dead, code: &death.code, error: &death.error, ..end },
        }
    }

    /// The content of a DONE.
    pub fn of(end: &End<'_>) -> Self {
        let death = || RunError { code: end.code.into(), error: end.error.into() };
        Self { dead: (end.outcome != Outcome::Done).then(death), output: end.output.into() }
    }
}
