// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Functions, relays and code: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for Manage<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("json", &self.json);
        fields.end();
    }
}

impl<'b> Decode<'b> for Manage<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut json = None;
        reader.map(|reader, member| match member {
            "json" => reader.set(&mut json),
            _ => reader.skip(),
        })?;
        Ok(Self { json: json.ok_or_else(|| Malformed::missing("json"))? })
    }
}

impl Encode for InvokeFunction<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("function", &self.function);
        fields.put("data", &self.data);
        fields.put_some("log", &self.log);
        fields.put_some("durability", &self.durability);
        fields.put_some("key", &self.key);
        fields.put_if(self.wait_ms != 0, "wait_ms", &self.wait_ms);
        fields.end();
    }
}

impl<'b> Decode<'b> for InvokeFunction<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut function = None;
        let mut data = None;
        let mut log = None;
        let mut durability = None;
        let mut key = None;
        let mut wait_ms = None;
        reader.map(|reader, member| match member {
            "function" => reader.set(&mut function),
            "data" => reader.set(&mut data),
            "log" => reader.set(&mut log),
            "durability" => reader.set(&mut durability),
            "key" => reader.set(&mut key),
            "wait_ms" => reader.set(&mut wait_ms),
            _ => reader.skip(),
        })?;
        Ok(Self {
            function: function.ok_or_else(|| Malformed::missing("function"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            log: log.unwrap_or_default(),
            durability: durability.unwrap_or_default(),
            key: key.unwrap_or_default(),
            wait_ms: wait_ms.unwrap_or_default(),
        })
    }
}

impl Encode for InvokedFunction<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("seqno", &self.seqno);
        fields.put("id", &self.id);
        fields.put_if(!self.run.is_none(), "run", &self.run);
        fields.put_if(!self.state.is_empty(), "state", &self.state);
        fields.put_if(!self.result.is_empty(), "result", &self.result);
        fields.put_if(!self.code.is_empty(), "code", &self.code);
        fields.put_if(!self.error.is_empty(), "error", &self.error);
        fields.end();
    }
}

impl<'b> Decode<'b> for InvokedFunction<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut seqno = None;
        let mut id = None;
        let mut run = None;
        let mut state = None;
        let mut result = None;
        let mut code = None;
        let mut error = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "seqno" => reader.set(&mut seqno),
            "id" => reader.set(&mut id),
            "run" => reader.set(&mut run),
            "state" => reader.set(&mut state),
            "result" => reader.set(&mut result),
            "code" => reader.set(&mut code),
            "error" => reader.set(&mut error),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
            run: run.unwrap_or_default(),
            state: state.unwrap_or_default(),
            result: result.unwrap_or_default(),
            code: code.unwrap_or_default(),
            error: error.unwrap_or_default(),
        })
    }
}

impl Encode for Upload<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("sha256", &self.sha256);
        fields.put("offset", &self.offset);
        fields.put("data", &self.data);
        fields.end();
    }
}

impl<'b> Decode<'b> for Upload<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut sha256 = None;
        let mut offset = None;
        let mut data = None;
        reader.map(|reader, member| match member {
            "sha256" => reader.set(&mut sha256),
            "offset" => reader.set(&mut offset),
            "data" => reader.set(&mut data),
            _ => reader.skip(),
        })?;
        Ok(Self {
            sha256: sha256.ok_or_else(|| Malformed::missing("sha256"))?,
            offset: offset.ok_or_else(|| Malformed::missing("offset"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
        })
    }
}
