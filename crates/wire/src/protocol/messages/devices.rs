// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Devices.

use super::{Decode, Encode, Fields, Malformed, Reader};
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

impl Encode for Attach<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("device", &self.device);
        fields.put("namespace", &self.namespace);
        fields.put("epoch", &self.epoch);
        fields.put("first", &self.first);
        fields.put("next", &self.next);
        fields.put("jumped_ms", &self.jumped_ms);
        fields.end();
    }
}

impl<'b> Decode<'b> for Attach<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut device = None;
        let mut namespace = None;
        let mut epoch = None;
        let mut first = None;
        let mut next = None;
        let mut jumped_ms = None;
        reader.map(|reader, member| match member {
            "device" => reader.set(&mut device),
            "namespace" => reader.set(&mut namespace),
            "epoch" => reader.set(&mut epoch),
            "first" => reader.set(&mut first),
            "next" => reader.set(&mut next),
            "jumped_ms" => reader.set(&mut jumped_ms),
            _ => reader.skip(),
        })?;
        Ok(Self {
            device: device.ok_or_else(|| Malformed::missing("device"))?,
            namespace: namespace.ok_or_else(|| Malformed::missing("namespace"))?,
            epoch: epoch.ok_or_else(|| Malformed::missing("epoch"))?,
            first: first.ok_or_else(|| Malformed::missing("first"))?,
            next: next.ok_or_else(|| Malformed::missing("next"))?,
            jumped_ms: jumped_ms.unwrap_or_default(),
        })
    }
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

impl Encode for Attached {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("sequence", &self.sequence);
        fields.end();
    }
}

impl Decode<'_> for Attached {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut sequence = None;
        reader.map(|reader, member| match member {
            "sequence" => reader.set(&mut sequence),
            _ => reader.skip(),
        })?;
        Ok(Self { sequence: sequence.ok_or_else(|| Malformed::missing("sequence"))? })
    }
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

impl Encode for Entries<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("sector", &self.sector);
        fields.put("at", &self.at);
        fields.put("bytes", &self.bytes);
        fields.end();
    }
}

impl<'b> Decode<'b> for Entries<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut sector = None;
        let mut at = None;
        let mut bytes = None;
        reader.map(|reader, member| match member {
            "sector" => reader.set(&mut sector),
            "at" => reader.set(&mut at),
            "bytes" => reader.set(&mut bytes),
            _ => reader.skip(),
        })?;
        Ok(Self {
            sector: sector.ok_or_else(|| Malformed::missing("sector"))?,
            at: at.ok_or_else(|| Malformed::missing("at"))?,
            bytes: bytes.ok_or_else(|| Malformed::missing("bytes"))?,
        })
    }
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

impl Encode for Entered {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("sequence", &self.sequence);
        fields.end();
    }
}

impl Decode<'_> for Entered {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut sequence = None;
        reader.map(|reader, member| match member {
            "sequence" => reader.set(&mut sequence),
            _ => reader.skip(),
        })?;
        Ok(Self { sequence: sequence.ok_or_else(|| Malformed::missing("sequence"))? })
    }
}

impl Message for Entered {
    const TYPE: u8 = 55;
}
