// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Tails.

use super::{Decode, Encode, Fields, Malformed, Reader};
use crate::{Durability, protocol::Message};

/// Follows a log: the host sends RECORDS under this request until it is cancelled. Answered with [`super::Records`] or [`super::Ended`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail<'b> {
    /// The log.
    pub log: &'b str,
    /// The first record; 0 for records that are appended from now on.
    pub from: u64,
    /// The incarnation that the cursor belongs to; 0 if unknown.
    pub incarnation: u32,
    /// How many records the host may send before it gets more credit.
    pub credit: u32,
    /// The durability that a record requires before it is sent; by default the namespace's.
    pub durability: Option<Durability>,
}

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
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
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

impl Message for Tail<'_> {
    const TYPE: u8 = 26;
}

/// More credit for the TAIL with the same request number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// How many more records the host may send.
    pub records: u32,
}

impl Encode for Credit {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("records", &self.records);
        fields.end();
    }
}

impl Decode<'_> for Credit {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut records = None;
        reader.map(|reader, member| match member {
            "records" => reader.set(&mut records),
            _ => reader.skip(),
        })?;
        Ok(Self { records: records.ok_or_else(|| Malformed::missing("records"))? })
    }
}

impl Message for Credit {
    const TYPE: u8 = 27;
}

/// Ends the TAIL or the waiting request with the same request number. Answered with [`super::Ended`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancel {}

impl Encode for Cancel {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Cancel {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Message for Cancel {
    const TYPE: u8 = 28;
}

/// The last answer of a tail or of a waiting request that the client ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {}

impl Encode for Ended {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Ended {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Message for Ended {
    const TYPE: u8 = 29;
}
