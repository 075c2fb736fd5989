//! Functions, relays and logs of a namespace, changed from elsewhere, and code sent to its host.

use super::{Again, Client, done};
use crate::{AppendOptions, Receipt, ask};
use millrace_wire::{
    Code, Error, EventId, Result,
    protocol::{Document, Frame, InvokeFunction, InvokedFunction, Manage, Upload},
};

/// How long a change may take besides what any request may: code is checked before it is deployed, one function after the other.
const MANAGE_MAX_MS: u32 = 600_000;

/// The longest wait for a run that a host grants.
const WAIT_MAX_MS: u32 = 300_000;

/// A run that was invoked.
#[derive(Clone, Debug)]
pub struct InvokedRun {
    /// The log that its record was appended to.
    pub log: String,
    /// The record.
    pub receipt: Receipt,
    /// The run; `None` if the host is of a version that does not report runs.
    pub run: Option<EventId>,
    /// Its state: `pending`, `started`, `done`, `dead` or `cancelled`.
    pub state: String,
    /// Its result: a byte that says what it is (0 text, 1 bytes, 2 JSON), and its bytes; empty if there is none.
    pub result: Vec<u8>,
    /// Why there is no result, if the run has ended without one that can be given.
    pub error: Option<Error>,
}

impl InvokedRun {
    /// Whether the run has ended.
    pub fn has_ended(&self) -> bool {
        matches!(&*self.state, "done" | "dead" | "cancelled")
    }
}

impl Client {
    /// Requests a change, as JSON text, and returns its result as JSON text.
    pub fn manage(&self, json: &str) -> Result<String> {
        let take = |frame: &Frame<'_>| Ok(ask::answer::<Document<'_>>(frame)?.json.to_owned());
        self.ask(&Manage { json }, (json.len(), MANAGE_MAX_MS, EventId::NONE), Again::MayNot, take)
    }

    /// Appends a record that runs one function; to the log that the host names.
    pub fn invoke_function(
        &self,
        function: &str,
        log: Option<&str>,
        data: &[u8],
        options: AppendOptions<'_>,
    ) -> Result<(String, Receipt)> {
        let again = if options.key.is_some() { Again::May } else { Again::MayNot };
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        let AppendOptions { durability, key, .. } = options;
        let message = InvokeFunction { function, data, log, durability, key, wait_ms: 0 };
        self.ask(&message, (data.len(), 0, cause), again, |frame| {
            let InvokedFunction { log, seqno, id, .. } = ask::answer(frame)?;
            Ok((log.to_owned(), Receipt { seqno, id }))
        })
    }

    /// Appends a record that runs one function, and waits for the end of its run, for at most `wait_ms` (300 000) milliseconds.
    pub fn call_function(
        &self,
        function: &str,
        log: Option<&str>,
        data: &[u8],
        options: AppendOptions<'_>,
        wait_ms: u32,
    ) -> Result<InvokedRun> {
        let again = if options.key.is_some() { Again::May } else { Again::MayNot };
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        let AppendOptions { durability, key, .. } = options;
        // Even the shortest wait lets the host report the run.
        let wait_ms = wait_ms.clamp(1, WAIT_MAX_MS);
        let message = InvokeFunction { function, data, log, durability, key, wait_ms };
        self.ask(&message, (data.len(), wait_ms, cause), again, |frame| {
            let invoked: InvokedFunction<'_> = ask::answer(frame)?;
            let error = match invoked.code {
                "" => None,
                code => Some(Code::from_id(code).unwrap_or(Code::FunctionFailed).error(invoked.error)),
            };
            Ok(InvokedRun {
                log: invoked.log.to_owned(),
                receipt: Receipt { seqno: invoked.seqno, id: invoked.id },
                run: (!invoked.run.is_none()).then_some(invoked.run),
                state: invoked.state.to_owned(),
                result: invoked.result.to_owned(),
                error,
            })
        })
    }

    /// Sends a part of a file that the host said to be missing.
    pub fn upload(&self, sha256: &[u8], offset: u64, data: &[u8]) -> Result<()> {
        self.ask(&Upload { sha256, offset, data }, (data.len(), 0, EventId::NONE), Again::MayNot, done)
    }
}
