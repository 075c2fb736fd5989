// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Devices: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for Attached {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("sequence", &self.sequence);
        fields.end();
    }
}

impl Decode<'_> for Attached {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut sequence = None;
        reader.map(|reader, member| match member {
            "sequence" => reader.set(&mut sequence),
            _ => reader.skip(),
        })?;
        Ok(Self { sequence: sequence.ok_or_else(|| Malformed::missing("sequence"))? })
    }
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for Entered {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("sequence", &self.sequence);
        fields.end();
    }
}

impl Decode<'_> for Entered {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut sequence = None;
        reader.map(|reader, member| match member {
            "sequence" => reader.set(&mut sequence),
            _ => reader.skip(),
        })?;
        Ok(Self { sequence: sequence.ok_or_else(|| Malformed::missing("sequence"))? })
    }
}
