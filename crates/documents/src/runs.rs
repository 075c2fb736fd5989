//! Runs.

use crate::{ErrorDoc, KeyText};
use serde::{Deserialize, Serialize};

/// A part of the list of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunsDoc {
    /// The newest first.
    pub runs: Vec<RunDoc>,
    /// The run before which the next page begins, if there may be older ones.
    pub next: Option<String>,
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
    /// `pending`, `started`, `done`, `dead` or `cancelled`.
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
    /// The keys of tables that it found without a value, and the ranges of keys that it read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeysReadDoc>,
    /// The records that it appended.
    pub appends: Vec<RecordName>,
    /// Its output.
    pub output: Option<String>,
    /// Why it was given up.
    pub error: Option<ErrorDoc>,
    /// Its result, if it has one. Lists omit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultDoc>,
    /// The run that retried its dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<String>,
    /// Whether something of it is missing here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// Keys that a run read without a value (`absent`), or as a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeysReadDoc {
    /// The table; none if it was removed.
    pub table: Option<String>,
    /// The key that had no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<KeyText>,
    /// The first key that belongs to the range; none if all up to the end do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<KeyText>,
    /// The first that does not; none if all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<KeyText>,
    /// How many keys were asked for at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultDoc {
    /// What it is: `text`, `json`, `bytes`, or `dropped` if the function returned something that cannot be a result.
    #[serde(rename = "type")]
    pub kind: String,
    /// It, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// It, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Why it is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A part of what a run printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputDoc {
    /// The run.
    pub run: String,
    /// `pending`, `started`, `done`, `dead` or `cancelled`.
    pub state: String,
    /// How many bytes it had printed before `text`.
    pub from: u64,
    /// What it printed then. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Where the next part begins.
    pub next: u64,
    /// Whether there is nothing more to come: the run has ended, and this is the end of its output.
    pub ended: bool,
}

/// Dead letters by function and error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailuresDoc {
    /// Those with the most letters first.
    pub failures: Vec<FailureDoc>,
    /// How many letters were read.
    pub letters: u64,
    /// Whether there are older letters, which were not read.
    pub more: bool,
}

/// Dead letters of one function with one error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureDoc {
    /// The function.
    pub function: String,
    /// The code of the error.
    pub code: String,
    /// How many letters there are.
    pub letters: u64,
    /// How many of them were not retried.
    pub waiting: u64,
    /// When the oldest of them was left.
    pub first: String,
    /// When the newest was.
    pub last: String,
    /// The run that left the newest.
    pub run: Option<String>,
    /// The record of that run.
    #[serde(flatten)]
    pub record: RecordName,
    /// The error of that run.
    pub error: String,
    /// The log of the letters.
    pub dead_letter: String,
}
