//! The current activity of a host's links, for other processes, in the file `links.json`.
//!
//! The file contains what the host knows and no log contains: which links are connected, and which wait after which error. It is meaningful
//! only while the host holds its lock.

use super::{LinkKey, Links, Stop};
use millrace_wire::{Code, Result};
use serde::{Deserialize, Serialize};
use std::{fs, io::ErrorKind};

const FILE: &str = "links.json";
const FILE_NEXT: &str = "links.json.next";

/// The activity of a host's links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinksStatus {
    /// The host's process.
    pub pid: u32,
    /// Every link that it drives.
    pub links: Vec<LiveLink>,
}

/// The activity of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveLink {
    /// Which one.
    pub key: LinkKey,
    /// Whether the other side answers.
    pub connected: bool,
    /// The last answer, in milliseconds since 1970; 0 if there was none.
    pub contact_ms: u64,
    /// The last error, until a success.
    pub error: Option<Stop>,
    /// When it tries again, in milliseconds since 1970; 0 if it is not waiting.
    pub retry_ms: u64,
    /// The newest record there is to fetch, as the other side last said; 0 unless it fetches.
    pub newest: u64,
    /// Records carried since the host started.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl LiveLink {
    /// A link that has not done anything.
    pub fn new(key: LinkKey) -> Self {
        let (connected, error) = (false, None);
        Self { key, connected, contact_ms: 0, error, retry_ms: 0, newest: 0, records: 0, bytes: 0 }
    }
}

impl Links {
    /// Tells other processes; only the host does. Where another directory has this one's name, the file is another host's.
    pub fn write_status(&self, status: &LinksStatus) -> Result<()> {
        self.namespace.journal().check_place()?;
        let dir = self.namespace.dir();
        let text = serde_json::to_vec(status).expect("numbers and text always make JSON");
        let next = dir.join(FILE_NEXT);
        // Renamed into place, so that readers never see an incomplete file.
        let written = fs::write(&next, text).and_then(|()| fs::rename(&next, dir.join(FILE)));
        written.map_err(|error| Code::HostStart.error(format!("'{}': {error}", next.display())))
    }

    /// The activity of the running host's links; nothing if no host runs.
    pub fn status(&self) -> Result<LinksStatus> {
        let Some(holder) = self.namespace.host()? else { return Ok(LinksStatus::default()) };
        let path = self.namespace.dir().join(FILE);
        match fs::read(&path) {
            Ok(text) => {
                let status: Option<LinksStatus> = serde_json::from_slice(&text).ok();
                Ok(status.filter(|status| status.pid == holder.pid).unwrap_or_default())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(LinksStatus::default()),
            Err(error) => Err(Code::ReadOnly.error(format!("'{}': {error}", path.display()))),
        }
    }

    /// The host is gone.
    pub fn remove_status(&self) {
        if self.namespace.journal().check_place().is_err() {
            return;
        }
        for file in [FILE, FILE_NEXT] {
            // A leftover file is recognized by its process id.
            let _ = fs::remove_file(self.namespace.dir().join(file));
        }
    }
}
