//! Logs.

use millrace_wire::TimeField;
use serde::{Deserialize, Serialize};

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A part of the list of logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogsDoc {
    /// For one level of names: the folders there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folders: Option<Vec<FolderDoc>>,
    /// In the order of their names.
    pub logs: Vec<LogDoc>,
    /// The log after which the next page begins, if there are more.
    pub next: Option<String>,
}

/// The logs whose names have one beginning, which ends in a slash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FolderDoc {
    /// The beginning.
    pub name: String,
    /// How many logs are in it, at any depth.
    pub logs: u64,
    /// How many of their records can be read.
    pub records: u64,
}

/// How many records a log got, by time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateDoc {
    /// The log.
    pub log: String,
    /// Where the first bucket begins.
    pub from: String,
    /// Where the last bucket ends.
    pub until: String,
    /// How many records there are in between.
    pub records: u64,
    /// The number of records in each bucket; the buckets are equally long.
    pub counts: Vec<u64>,
    /// The first record at or behind the beginning of each bucket.
    pub first: Vec<u64>,
}

/// The numbers of a field of a log's records, by time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesDoc {
    /// The log.
    pub log: String,
    /// The field, as a JSON pointer; empty for the value itself.
    pub field: String,
    /// Where the first bucket begins.
    pub from: String,
    /// Where the last bucket ends.
    pub until: String,
    /// How many records there are in between; an estimate if some were passed over and `observed` is there.
    pub records: u64,
    /// How many of them were read.
    pub read: u64,
    /// How many of those have a number in the field.
    pub numbers: u64,
    /// Whether some were passed over, at equal distances.
    pub sampled: bool,
    /// The field that has the time of the observation, if the log has one: then all times here are those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<TimeField>,
    /// How many of the records that were read have no time in that field; the time of their append takes its place.
    #[serde(skip_serializing_if = "is_zero")]
    pub untimed: u64,
    /// The buckets that have a number.
    pub points: Vec<PointDoc>,
}

/// The numbers of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PointDoc {
    /// When the last of its records was appended, or observed.
    pub time: String,
    /// The number of that record.
    pub seqno: u64,
    /// How many numbers there are.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// That of the last record.
    pub last: f64,
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
    /// The field of its records that has the time of the observation, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeField>,
}
