// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Shared objects: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for Session<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("session", &self.session);
        fields.put_if(!self.application.is_empty(), "application", &self.application);
        fields.put("lease_ms", &self.lease_ms);
        fields.put_if(self.resume, "resume", &self.resume);
        fields.end();
    }
}

impl<'b> Decode<'b> for Session<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut session = None;
        let mut application = None;
        let mut lease_ms = None;
        let mut resume = None;
        reader.map(|reader, member| match member {
            "session" => reader.set(&mut session),
            "application" => reader.set(&mut application),
            "lease_ms" => reader.set(&mut lease_ms),
            "resume" => reader.set(&mut resume),
            _ => reader.skip(),
        })?;
        Ok(Self {
            session: session.ok_or_else(|| Malformed::missing("session"))?,
            application: application.unwrap_or_default(),
            lease_ms: lease_ms.ok_or_else(|| Malformed::missing("lease_ms"))?,
            resume: resume.unwrap_or_default(),
        })
    }
}

impl Encode for Opened {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("resumed", &self.resumed);
        fields.put("lease_ms", &self.lease_ms);
        fields.end();
    }
}

impl Decode<'_> for Opened {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut resumed = None;
        let mut lease_ms = None;
        reader.map(|reader, member| match member {
            "resumed" => reader.set(&mut resumed),
            "lease_ms" => reader.set(&mut lease_ms),
            _ => reader.skip(),
        })?;
        Ok(Self {
            resumed: resumed.ok_or_else(|| Malformed::missing("resumed"))?,
            lease_ms: lease_ms.ok_or_else(|| Malformed::missing("lease_ms"))?,
        })
    }
}

impl Encode for Call<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("session", &self.session);
        fields.put("call", &self.call);
        fields.put("acked", &self.acked);
        fields.put("kind", &self.kind);
        fields.put("key", &self.key);
        fields.put("method", &self.method);
        fields.put("arguments", &self.arguments);
        fields.put_if(!self.new.is_empty(), "new", &self.new);
        fields.put_if(self.incarnation != 0, "incarnation", &self.incarnation);
        fields.put_if(self.must_exist, "must_exist", &self.must_exist);
        fields.put_if(self.must_create, "must_create", &self.must_create);
        fields.put_if(self.persistent, "persistent", &self.persistent);
        fields.put_if(self.rf != 0, "rf", &self.rf);
        fields.put_if(self.give_up, "give_up", &self.give_up);
        fields.put_if(self.wait_ms != 0, "wait_ms", &self.wait_ms);
        fields.put_some("fence", &self.fence);
        fields.end();
    }
}

impl<'b> Decode<'b> for Call<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut session = None;
        let mut call = None;
        let mut acked = None;
        let mut kind = None;
        let mut key = None;
        let mut method = None;
        let mut arguments = None;
        let mut new = None;
        let mut incarnation = None;
        let mut must_exist = None;
        let mut must_create = None;
        let mut persistent = None;
        let mut rf = None;
        let mut give_up = None;
        let mut wait_ms = None;
        let mut fence = None;
        reader.map(|reader, member| match member {
            "session" => reader.set(&mut session),
            "call" => reader.set(&mut call),
            "acked" => reader.set(&mut acked),
            "kind" => reader.set(&mut kind),
            "key" => reader.set(&mut key),
            "method" => reader.set(&mut method),
            "arguments" => reader.set(&mut arguments),
            "new" => reader.set(&mut new),
            "incarnation" => reader.set(&mut incarnation),
            "must_exist" => reader.set(&mut must_exist),
            "must_create" => reader.set(&mut must_create),
            "persistent" => reader.set(&mut persistent),
            "rf" => reader.set(&mut rf),
            "give_up" => reader.set(&mut give_up),
            "wait_ms" => reader.set(&mut wait_ms),
            "fence" => reader.set(&mut fence),
            _ => reader.skip(),
        })?;
        Ok(Self {
            session: session.ok_or_else(|| Malformed::missing("session"))?,
            call: call.ok_or_else(|| Malformed::missing("call"))?,
            acked: acked.ok_or_else(|| Malformed::missing("acked"))?,
            kind: kind.ok_or_else(|| Malformed::missing("kind"))?,
            key: key.ok_or_else(|| Malformed::missing("key"))?,
            method: method.ok_or_else(|| Malformed::missing("method"))?,
            arguments: arguments.ok_or_else(|| Malformed::missing("arguments"))?,
            new: new.unwrap_or_default(),
            incarnation: incarnation.unwrap_or_default(),
            must_exist: must_exist.unwrap_or_default(),
            must_create: must_create.unwrap_or_default(),
            persistent: persistent.unwrap_or_default(),
            rf: rf.unwrap_or_default(),
            give_up: give_up.unwrap_or_default(),
            wait_ms: wait_ms.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
        })
    }
}

impl Encode for Returned<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("incarnation", &self.incarnation);
        fields.put_if(self.waiting, "waiting", &self.waiting);
        fields.put("value", &self.value);
        fields.end();
    }
}

impl<'b> Decode<'b> for Returned<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut incarnation = None;
        let mut waiting = None;
        let mut value = None;
        reader.map(|reader, member| match member {
            "incarnation" => reader.set(&mut incarnation),
            "waiting" => reader.set(&mut waiting),
            "value" => reader.set(&mut value),
            _ => reader.skip(),
        })?;
        Ok(Self {
            incarnation: incarnation.ok_or_else(|| Malformed::missing("incarnation"))?,
            waiting: waiting.unwrap_or_default(),
            value: value.ok_or_else(|| Malformed::missing("value"))?,
        })
    }
}

impl Encode for Raised<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("incarnation", &self.incarnation);
        fields.put("class", &self.class);
        fields.put("text", &self.text);
        fields.end();
    }
}

impl<'b> Decode<'b> for Raised<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut incarnation = None;
        let mut class = None;
        let mut text = None;
        reader.map(|reader, member| match member {
            "incarnation" => reader.set(&mut incarnation),
            "class" => reader.set(&mut class),
            "text" => reader.set(&mut text),
            _ => reader.skip(),
        })?;
        Ok(Self {
            incarnation: incarnation.ok_or_else(|| Malformed::missing("incarnation"))?,
            class: class.ok_or_else(|| Malformed::missing("class"))?,
            text: text.ok_or_else(|| Malformed::missing("text"))?,
        })
    }
}
