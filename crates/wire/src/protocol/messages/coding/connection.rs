// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Every connection: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for Hello<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("oldest", &self.oldest);
        fields.put("newest", &self.newest);
        fields.put("namespace", &self.namespace);
        fields.put("client", &self.client);
        fields.put_if(!self.capabilities.is_empty(), "capabilities", &self.capabilities);
        fields.end();
    }
}

impl<'b> Decode<'b> for Hello<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut oldest = None;
        let mut newest = None;
        let mut namespace = None;
        let mut client = None;
        let mut capabilities = None;
        reader.map(|reader, member| match member {
            "oldest" => reader.set(&mut oldest),
            "newest" => reader.set(&mut newest),
            "namespace" => reader.set(&mut namespace),
            "client" => reader.set(&mut client),
            "capabilities" => reader.set(&mut capabilities),
            _ => reader.skip(),
        })?;
        Ok(Self {
            oldest: oldest.ok_or_else(|| Malformed::missing("oldest"))?,
            newest: newest.ok_or_else(|| Malformed::missing("newest"))?,
            namespace: namespace.ok_or_else(|| Malformed::missing("namespace"))?,
            client: client.ok_or_else(|| Malformed::missing("client"))?,
            capabilities: capabilities.unwrap_or_default(),
        })
    }
}

impl Encode for Welcome<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("version", &self.version);
        fields.put("host", &self.host);
        fields.put("name", &self.name);
        fields.put("namespace", &self.namespace);
        fields.put("epoch", &self.epoch);
        fields.put("frame_max_bytes", &self.frame_max_bytes);
        fields.put("record_max_bytes", &self.record_max_bytes);
        fields.put("requests_max", &self.requests_max);
        fields.put("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Welcome<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut version = None;
        let mut host = None;
        let mut name = None;
        let mut namespace = None;
        let mut epoch = None;
        let mut frame_max_bytes = None;
        let mut record_max_bytes = None;
        let mut requests_max = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "version" => reader.set(&mut version),
            "host" => reader.set(&mut host),
            "name" => reader.set(&mut name),
            "namespace" => reader.set(&mut namespace),
            "epoch" => reader.set(&mut epoch),
            "frame_max_bytes" => reader.set(&mut frame_max_bytes),
            "record_max_bytes" => reader.set(&mut record_max_bytes),
            "requests_max" => reader.set(&mut requests_max),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            version: version.ok_or_else(|| Malformed::missing("version"))?,
            host: host.ok_or_else(|| Malformed::missing("host"))?,
            name: name.ok_or_else(|| Malformed::missing("name"))?,
            namespace: namespace.ok_or_else(|| Malformed::missing("namespace"))?,
            epoch: epoch.ok_or_else(|| Malformed::missing("epoch"))?,
            frame_max_bytes: frame_max_bytes.ok_or_else(|| Malformed::missing("frame_max_bytes"))?,
            record_max_bytes: record_max_bytes.ok_or_else(|| Malformed::missing("record_max_bytes"))?,
            requests_max: requests_max.ok_or_else(|| Malformed::missing("requests_max"))?,
            durability: durability.ok_or_else(|| Malformed::missing("durability"))?,
        })
    }
}

impl Encode for Failure<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("code", &self.code);
        fields.put("detail", &self.detail);
        fields.put_some("retry_after_ms", &self.retry_after_ms);
        fields.end();
    }
}

impl<'b> Decode<'b> for Failure<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut code = None;
        let mut detail = None;
        let mut retry_after_ms = None;
        reader.map(|reader, member| match member {
            "code" => reader.set(&mut code),
            "detail" => reader.set(&mut detail),
            "retry_after_ms" => reader.set(&mut retry_after_ms),
            _ => reader.skip(),
        })?;
        Ok(Self {
            code: code.ok_or_else(|| Malformed::missing("code"))?,
            detail: detail.ok_or_else(|| Malformed::missing("detail"))?,
            retry_after_ms: retry_after_ms.unwrap_or_default(),
        })
    }
}

impl Encode for Ping {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Ping {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Encode for Pong {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Pong {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Encode for Challenge<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("challenge", &self.challenge);
        fields.end();
    }
}

impl<'b> Decode<'b> for Challenge<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut challenge = None;
        reader.map(|reader, member| match member {
            "challenge" => reader.set(&mut challenge),
            _ => reader.skip(),
        })?;
        Ok(Self { challenge: challenge.ok_or_else(|| Malformed::missing("challenge"))? })
    }
}

impl Encode for Present<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("slot", &self.slot);
        fields.put("capability", &self.capability);
        fields.put("proof", &self.proof);
        fields.end();
    }
}

impl<'b> Decode<'b> for Present<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut slot = None;
        let mut capability = None;
        let mut proof = None;
        reader.map(|reader, member| match member {
            "slot" => reader.set(&mut slot),
            "capability" => reader.set(&mut capability),
            "proof" => reader.set(&mut proof),
            _ => reader.skip(),
        })?;
        Ok(Self {
            slot: slot.ok_or_else(|| Malformed::missing("slot"))?,
            capability: capability.ok_or_else(|| Malformed::missing("capability"))?,
            proof: proof.ok_or_else(|| Malformed::missing("proof"))?,
        })
    }
}

impl Encode for Redeem {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Redeem {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Encode for Redeemed<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("capability", &self.capability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Redeemed<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut capability = None;
        reader.map(|reader, member| match member {
            "capability" => reader.set(&mut capability),
            _ => reader.skip(),
        })?;
        Ok(Self { capability: capability.ok_or_else(|| Malformed::missing("capability"))? })
    }
}

impl Encode for Offer<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("capability", &self.capability);
        fields.put_if(!self.proof.is_empty(), "proof", &self.proof);
        fields.end();
    }
}

impl<'b> Decode<'b> for Offer<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut capability = None;
        let mut proof = None;
        reader.map(|reader, member| match member {
            "capability" => reader.set(&mut capability),
            "proof" => reader.set(&mut proof),
            _ => reader.skip(),
        })?;
        Ok(Self {
            capability: capability.ok_or_else(|| Malformed::missing("capability"))?,
            proof: proof.unwrap_or_default(),
        })
    }
}
