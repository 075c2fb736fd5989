//! The current activity of a host, for other processes, in the file `host.json`.
//!
//! The file contains what the host knows and the journal does not contain: which runs are in progress, which wait for a retry after which
//! error, which functions cannot be started. It is meaningful only while the host holds its lock.

use millrace_namespace::{Holder, Namespace};
use millrace_runtime::Isolation;
use millrace_wire::{Code, Error, EventId, Name, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fs, io::ErrorKind, path::Path, time::SystemTime};

/// The file in the namespace's directory.
const FILE: &str = "host.json";
const FILE_NEXT: &str = "host.json.next";

/// The activity of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The host's process.
    pub pid: u32,
    /// Why it stopped running functions, if it did.
    pub failure: Option<String>,
    /// Why the disk refuses appends now, so that no run begins or ends. It is not in the file, which a full disk may not accept either.
    #[serde(default)]
    pub refusal: Option<String>,
    /// Attempts that ended well since it started.
    pub runs_done: u64,
    /// Attempts that failed since it started.
    pub runs_failed: u64,
    /// How well it keeps functions that run in processes from everything else; of a host that says nothing they have its rights.
    #[serde(default)]
    pub sandbox: Option<SandboxStatus>,
    /// Notes for its operator, such as that its certificate expires soon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Every function with something to report.
    pub functions: Vec<LiveFunction>,
}

/// How well functions are kept apart, and why not better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// `full`, `partial` or `none`.
    pub level: String,
    /// The level, and what is missing, in one line.
    pub summary: String,
    /// How to enable the missing isolation.
    pub remedies: Vec<String>,
}

impl From<&Isolation> for SandboxStatus {
    fn from(isolation: &Isolation) -> Self {
        Self {
            level: isolation.level().to_string(),
            summary: isolation.summary(),
            remedies: isolation.shortcomings().iter().map(|missing| missing.remedy.to_owned()).collect(),
        }
    }
}

/// The activity of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveFunction {
    /// Its name.
    pub name: Name,
    /// Whether it runs at all.
    pub state: FunctionState,
    /// Runs that have not ended.
    pub pending: u64,
    /// Runs in progress; at most 64 are listed.
    pub running: Vec<LiveRun>,
    /// Runs that failed and wait for their next attempt; at most 64 are listed.
    pub backing_off: Vec<LiveRun>,
}

/// Whether a function runs at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum FunctionState {
    /// It runs when there is something to run.
    Ready,
    /// It could not be started, and is tried again at the time given.
    Stopped {
        /// The description of the error.
        error: String,
        /// When it is tried again, in milliseconds since 1970.
        until_ms: u64,
    },
}

/// A run in progress or backing off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRun {
    /// The run.
    #[serde(serialize_with = "id_to_text", deserialize_with = "id_from_text")]
    pub run: EventId,
    /// The attempt in progress, or the last one.
    pub attempt: u32,
    /// Since when it is in progress, or until when it backs off, in milliseconds since 1970.
    pub at_ms: u64,
    /// The error of the last attempt.
    pub error: Option<String>,
}

fn id_to_text<S: Serializer>(id: &EventId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn id_from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EventId, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

impl HostStatus {
    /// The activity of the namespace's host, if one is running.
    pub fn of(namespace: &Namespace) -> Result<Option<Self>> {
        let Some(Holder { pid, .. }) = namespace.host()? else { return Ok(None) };
        let refusal = namespace.journal().refusal_anywhere().map(|error| error.to_string());
        let reported = Self::read(namespace.dir())?.filter(|status| status.pid == pid);
        // A host that is starting has not written the file yet, and on a full disk it cannot.
        Ok(Some(Self { refusal, ..reported.unwrap_or_else(|| Self { pid, ..Self::default() }) }))
    }

    /// Replaces the file, whole.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(&Self { refusal: None, ..self.clone() })
            .expect("names, numbers and text always make JSON");
        let next = dir.join(FILE_NEXT);
        // Not synced: after a crash the host is gone, and with it all meaning of the file.
        fs::write(&next, bytes)
            .and_then(|()| fs::rename(&next, dir.join(FILE)))
            .map_err(|e| Code::Io.error(format!("cannot write '{}': {e}", next.display())))
    }

    /// Reads the file; `None` if there is none, or if another version of Millrace wrote it.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>> {
        match fs::read(dir.join(FILE)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io(dir, &e)),
        }
    }

    /// Removes the file, when the host stops.
    pub fn remove(dir: &Path) {
        // If it stays, it means nothing without the host's lock.
        let _ = fs::remove_file(dir.join(FILE));
    }

    /// The function's part.
    pub fn function(&self, name: &str) -> Option<&LiveFunction> {
        self.functions.iter().find(|function| &*function.name == name)
    }
}

fn io(dir: &Path, error: &std::io::Error) -> Error {
    Code::Io.error(format!("cannot read '{}': {error}", dir.join(FILE).display()))
}

/// Milliseconds since 1970.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_comes_back_and_a_foreign_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(HostStatus::read(dir.path()).unwrap(), None);
        let run = LiveRun { run: EventId::from_bits(1 << 90 | 5), attempt: 2, at_ms: 7, error: Some("e".into()) };
        let status = HostStatus {
            pid: 9,
            sandbox: Some(SandboxStatus { level: "none".into(), summary: "none".into(), remedies: vec!["ask".into()] }),
            notice: Some("the certificate expires".into()),
            functions: vec![LiveFunction {
                name: "f".parse().unwrap(),
                state: FunctionState::Stopped { error: "gone".into(), until_ms: 3 },
                pending: 4,
                running: vec![run.clone()],
                backing_off: vec![run],
            }],
            ..HostStatus::default()
        };
        status.write(dir.path()).unwrap();
        assert_eq!(HostStatus::read(dir.path()).unwrap(), Some(status));
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(HostStatus::read(dir.path()).unwrap(), None);
    }
}
