//! Functions, relays and logs of a namespace, changed from elsewhere, and code sent to its host.

use super::{Again, Client, done};
use crate::{AppendOptions, Receipt, ask};
use millrace_wire::{
    EventId, Result,
    protocol::{Document, Frame, InvokeFunction, InvokedFunction, Manage, Upload},
};

/// How long a change may take besides what any request may: code is checked before it is deployed, one function after the other.
const MANAGE_MAX_MS: u32 = 600_000;

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
        let message = InvokeFunction { function, data, log, durability, key };
        self.ask(&message, (data.len(), 0, cause), again, |frame| {
            let InvokedFunction { log, seqno, id } = ask::answer(frame)?;
            Ok((log.to_owned(), Receipt { seqno, id }))
        })
    }

    /// Sends a part of a file that the host said to be missing.
    pub fn upload(&self, sha256: &[u8], offset: u64, data: &[u8]) -> Result<()> {
        self.ask(&Upload { sha256, offset, data }, (data.len(), 0, EventId::NONE), Again::MayNot, done)
    }
}
