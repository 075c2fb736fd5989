//! The journal of a device, which sends it over this connection.

use super::{connection::Connection, requests::Answer};
use millrace_node::{Access, devices::Import};
use millrace_wire::{
    Code, Result,
    protocol::{Attach, Entries, Frame},
};
use std::sync::{Arc, OnceLock};

/// Empty until the request that attaches the device is committed.
pub(super) type Attachment = Arc<OnceLock<Import>>;

impl Connection {
    pub(super) fn attach(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        // Entries may follow at once: they are committed after this.
        let attachment = Attachment::default();
        self.device = Some(attachment.clone());
        self.commit_with(access, frame, raw, move |access, frame| {
            let attach: Attach<'_> = frame.message()?;
            Ok(access.attach(&attach).map(|(import, attached)| {
                let _ = attachment.set(import);
                Answer::Attached(attached)
            }))
        })
    }

    pub(super) fn enter(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        let unattached = || Code::MessageUnexpected.error("no device is attached on this connection");
        let attachment = self.device.clone().ok_or_else(unattached)?;
        self.submit(access, frame, raw, move |access, frame| {
            let Some(import) = attachment.get() else { return Ok(access.failed(unattached())) };
            let entries: Entries<'_> = frame.message()?;
            Ok(access.enter(import, &entries).map(Answer::Entered))
        });
        Ok(())
    }
}
