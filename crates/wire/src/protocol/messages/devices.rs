// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Devices.

use crate::protocol::Message;

/// Begins to send the journal of a device. Answered with [`super::Attached`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attach<'b> {
    /// The device's name, one segment of a log's name: its logs are NAME/LOG at the host.
    pub device: &'b str,
    /// The identity of its namespace.
    pub namespace: u64,
    /// The epoch of the newest OPEN in its flash, 0 if there is none.
    pub epoch: u32,
    /// The sequence of the oldest entry that it has.
    pub first: u64,
    /// The sequence of the first entry that is not in its flash.
    pub next: u64,
    /// By how many milliseconds its clock was corrected since that OPEN.
    pub jumped_ms: u64,
}

impl Message for Attach<'_> {
    const TYPE: u8 = 52;
}

/// The answer to [`super::Attach`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The sequence of the last entry that the host has; 0 if none.
    pub sequence: u64,
}

impl Message for Attached {
    const TYPE: u8 = 53;
}

/// A part of a sector. Answered with [`super::Entered`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries<'b> {
    /// The sector's serial number.
    pub sector: u32,
    /// The offset of the part in the sector.
    pub at: u32,
    /// What is there.
    pub bytes: &'b [u8],
}

impl Message for Entries<'_> {
    const TYPE: u8 = 54;
}

/// The answer to [`super::Entries`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// The sequence of the last entry that is committed and durable.
    pub sequence: u64,
}

impl Message for Entered {
    const TYPE: u8 = 55;
}
