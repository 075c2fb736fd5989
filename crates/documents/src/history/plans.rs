//! What a correction of past records would change.

use crate::ErrorDoc;
use serde::{Deserialize, Serialize};

/// A plan, which a host makes in the background.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanDoc {
    /// Its number; a host counts from 1 when it starts.
    pub plan: u64,
    /// Whether it is being made, was cancelled, failed, or is complete.
    pub state: PlanState,
    /// When it was asked for.
    pub at: String,
    /// The log whose records are corrected.
    pub log: String,
    /// How many corrections there are.
    pub corrections: u64,
    /// How many bytes of the journal have been read.
    pub read_bytes: u64,
    /// How many there are.
    pub of_bytes: u64,
    /// Why it failed.
    pub error: Option<ErrorDoc>,
    /// What the correction would change.
    pub found: Option<PlanFoundDoc>,
}

/// How far a plan is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// It is being made.
    #[default]
    Running,
    /// It is complete.
    Done,
    /// It could not be made.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// What a correction would change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanFoundDoc {
    /// The records that are corrected.
    pub corrects: CorrectsDoc,
    /// The runs that would be replayed.
    pub replays: Vec<ReplayDoc>,
    /// The records that their results would replace.
    pub rewrites: Vec<RewritesDoc>,
    /// Records among them that an earlier repair had corrected.
    pub overwrites: Vec<OverwritesDoc>,
    /// Messages to other namespaces that would change and cannot be changed there.
    pub not_sent: Vec<RewritesDoc>,
    /// Relays that have brought records that change elsewhere, where they stay.
    pub copies: Vec<CopyDoc>,
    /// Topics that keep old records.
    pub topics: Vec<CopyDoc>,
    /// Runs that depend on the records and would not be replayed.
    pub not_run: Vec<ReplayDoc>,
    /// Logs of devices that may still have these records as they were, the first hundred.
    pub on_devices: Vec<OnDeviceDoc>,
    /// How many more logs of devices there are.
    pub on_devices_more: u64,
    /// Functions that may have effects outside again.
    pub effects: Vec<ReplayDoc>,
    /// Whether the repair would stop: at runs that cannot be replayed, or at messages.
    pub stops: bool,
    /// Records of runs that are not replayed.
    pub stale: Vec<RewritesDoc>,
    /// Runs that have not ended, and will use the new values.
    pub pending: Vec<ReplayDoc>,
    /// Runs that would be replayed if a function leaves more or fewer records than before.
    pub may_replay: Vec<ReplayDoc>,
    /// How many records from outside name a changed record as their cause.
    pub claims: u64,
    /// Whether the journal shows every run that is concerned.
    pub complete: bool,
    /// Whether runs that the journal no longer has may have read the records.
    pub unknown_readers: bool,
    /// Since when the journal has every entry; none if it has all.
    pub horizon: Option<String>,
    /// How many stretches of the journal cannot be read.
    pub damaged: u64,
    /// What it would take.
    pub estimate: EstimateDoc,
}

/// The records that are corrected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CorrectsDoc {
    /// Their log.
    pub log: String,
    /// How many get another value.
    pub records: u64,
    /// How many have the value already.
    pub equal: u64,
    /// The first and the last.
    pub range: (u64, u64),
    /// When the first was appended.
    pub from: Option<String>,
    /// When the last was.
    pub to: Option<String>,
}

/// Records that an earlier repair corrected, and that the results of runs would replace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverwritesDoc {
    /// Their log.
    pub log: String,
    /// The repair that corrected them.
    pub repair: u64,
    /// How many there are.
    pub records: u64,
    /// The first and the last.
    pub range: (u64, u64),
}

/// Runs that are alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplayDoc {
    /// Their function.
    pub function: String,
    /// How many there are.
    pub runs: u64,
    /// Why they are concerned, or are not replayed.
    pub reason: String,
    /// The log of the records through which they are concerned.
    pub log: Option<String>,
    /// The first and the last of these records.
    pub range: Option<(u64, u64)>,
    /// How long the runs took together.
    pub took_us: u64,
}

/// Records of a log that change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RewritesDoc {
    /// The log, or the address of the other namespace.
    pub log: String,
    /// How many there are.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first and the last.
    pub range: (u64, u64),
}

/// Records that change here, and that a device may still have as they were: a repair does not rewrite its flash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnDeviceDoc {
    /// The device.
    pub device: String,
    /// The log, under its name here.
    pub log: String,
    /// How many there are.
    pub records: u64,
    /// The first and the last.
    pub range: (u64, u64),
    /// How many of the newest records of the log the device keeps at most; none if it has not said so.
    pub history: Option<u64>,
    /// Whether the newest of them stays in the device until there is a newer one.
    pub keep: bool,
    /// Whether commands were delivered to the log.
    pub commands: bool,
}

/// A copy of a log that keeps old records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyDoc {
    /// The log.
    pub log: String,
    /// Where the copy is.
    pub to: String,
}

/// What a repair would take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EstimateDoc {
    /// How long the replay would take.
    pub time_us: u64,
    /// By how many workers.
    pub workers: u64,
    /// How many bytes it would append to the journal.
    pub bytes: u64,
    /// How many bytes of the journal are kept as long as it can be rolled back.
    pub pinned_bytes: u64,
}
