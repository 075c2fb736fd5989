//! The appends of a run: limited, and none after a refusal.

use crate::{Code, Error, Limits, LogCalls, Result};

/// Passes the appends of one run on.
pub(crate) struct Appends {
    bytes: usize,
    max_bytes: usize,
    /// The first refused append: it fails the run, whatever the function returns.
    refused: Option<Error>,
}

impl Appends {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { bytes: 0, max_bytes: limits.append_max_bytes, refused: None }
    }

    /// Appends, unless the run is lost already: what a streamed run published after a refusal could not be recognised
    /// by an attempt that is not refused.
    pub(crate) fn append(&mut self, host: &mut dyn LogCalls, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        self.bytes = self.bytes.saturating_add(payload.len());
        let appended = if self.bytes > self.max_bytes {
            Err(Code::AppendTooMuch.error(format!("a run may append {} bytes in all", self.max_bytes)))
        } else {
            host.append(log, payload)
        };
        appended.inspect_err(|error| self.refused = Some(error.clone()))
    }

    /// The refusal that fails the run, if there was one.
    pub(crate) fn take_refused(&mut self) -> Option<Error> {
        self.refused.take()
    }
}
