//! Messages between a device and a host: the journal of the device goes to the host as it is in flash. `spec/formats/device.md` describes it.

use super::Message;
use serde::{Deserialize, Serialize};

/// Begins to send the journal of a device. The answer is [`Attached`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach<'b> {
    /// The device's name: its logs are NAME/LOG at the host.
    pub device: &'b str,
    /// The identity of its namespace.
    pub namespace: u64,
    /// The epoch of its last start.
    pub epoch: u32,
    /// The sequence of the oldest entry that it has.
    pub first: u64,
    /// The sequence of the first entry that is not in its flash.
    pub next: u64,
    /// By how many milliseconds its clock was corrected since its last start.
    #[serde(default)]
    pub jumped_ms: u64,
}

impl Message for Attach<'_> {
    const TYPE: u8 = 52;
}

/// The answer to [`Attach`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The sequence of the last entry that the host has, 0 if it has none. The device continues with the sector that has it, from the
    /// sector's header on.
    pub sequence: u64,
}

impl Message for Attached {
    const TYPE: u8 = 53;
}

/// A part of a sector. The answer is [`Entered`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries<'b> {
    /// The sector's serial number.
    pub sector: u32,
    /// The offset of the part in the sector. The first part is the header alone; bytes between bursts may be left out.
    pub at: u32,
    /// Its bytes.
    #[serde(borrow, with = "serde_bytes")]
    pub bytes: &'b [u8],
}

impl Message for Entries<'_> {
    const TYPE: u8 = 54;
}

/// The answer to [`Entries`], once what they complete is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// The sequence of the last entry that the host has.
    pub sequence: u64,
}

impl Message for Entered {
    const TYPE: u8 = 55;
}
