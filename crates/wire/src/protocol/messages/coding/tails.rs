// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Tails: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for Tail<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("from", &self.from);
        fields.put("incarnation", &self.incarnation);
        fields.put("credit", &self.credit);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Tail<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut from = None;
        let mut incarnation = None;
        let mut credit = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "from" => reader.set(&mut from),
            "incarnation" => reader.set(&mut incarnation),
            "credit" => reader.set(&mut credit),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            from: from.ok_or_else(|| Malformed::missing("from"))?,
            incarnation: incarnation.unwrap_or_default(),
            credit: credit.ok_or_else(|| Malformed::missing("credit"))?,
            durability: durability.unwrap_or_default(),
        })
    }
}

impl Encode for Credit {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("records", &self.records);
        fields.end();
    }
}

impl Decode<'_> for Credit {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut records = None;
        reader.map(|reader, member| match member {
            "records" => reader.set(&mut records),
            _ => reader.skip(),
        })?;
        Ok(Self { records: records.ok_or_else(|| Malformed::missing("records"))? })
    }
}

impl Encode for Cancel {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Cancel {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Encode for Ended {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Ended {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}
