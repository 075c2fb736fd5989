// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Tasks: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for Invoke<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("pool", &self.pool);
        fields.put_if(self.bodies, "bodies", &self.bodies);
        fields.put("tasks", &self.tasks);
        fields.put("key", &self.key);
        fields.end();
    }
}

impl<'b> Decode<'b> for Invoke<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut pool = None;
        let mut bodies = None;
        let mut tasks = None;
        let mut key = None;
        reader.map(|reader, member| match member {
            "pool" => reader.set(&mut pool),
            "bodies" => reader.set(&mut bodies),
            "tasks" => reader.set(&mut tasks),
            "key" => reader.set(&mut key),
            _ => reader.skip(),
        })?;
        Ok(Self {
            pool: pool.ok_or_else(|| Malformed::missing("pool"))?,
            bodies: bodies.unwrap_or_default(),
            tasks: tasks.ok_or_else(|| Malformed::missing("tasks"))?,
            key: key.ok_or_else(|| Malformed::missing("key"))?,
        })
    }
}

impl Encode for Invoked {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("first", &self.first);
        fields.end();
    }
}

impl Decode<'_> for Invoked {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut first = None;
        reader.map(|reader, member| match member {
            "first" => reader.set(&mut first),
            _ => reader.skip(),
        })?;
        Ok(Self { first: first.ok_or_else(|| Malformed::missing("first"))? })
    }
}

impl Encode for Revoke<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("pool", &self.pool);
        fields.put("task", &self.task);
        fields.end();
    }
}

impl<'b> Decode<'b> for Revoke<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut pool = None;
        let mut task = None;
        reader.map(|reader, member| match member {
            "pool" => reader.set(&mut pool),
            "task" => reader.set(&mut task),
            _ => reader.skip(),
        })?;
        Ok(Self {
            pool: pool.ok_or_else(|| Malformed::missing("pool"))?,
            task: task.ok_or_else(|| Malformed::missing("task"))?,
        })
    }
}

impl Encode for Revoked {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("cancelled", &self.cancelled);
        fields.end();
    }
}

impl Decode<'_> for Revoked {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut cancelled = None;
        reader.map(|reader, member| match member {
            "cancelled" => reader.set(&mut cancelled),
            _ => reader.skip(),
        })?;
        Ok(Self { cancelled: cancelled.ok_or_else(|| Malformed::missing("cancelled"))? })
    }
}
