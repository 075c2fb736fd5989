// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Tasks.

use super::{Decode, Encode, Fields, Malformed, Reader};
use crate::protocol::Message;

/// Submits tasks to a pool, all or none. Answered with [`super::Invoked`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invoke<'b> {
    /// The pool.
    pub pool: &'b str,
    /// These are bodies that tasks name, and not tasks.
    pub bodies: bool,
    /// The tasks, 1 to 1024.
    pub tasks: Vec<&'b serde_bytes::Bytes>,
    /// The idempotency key of them all, 1 to 128 bytes.
    pub key: &'b str,
}

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
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
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

impl Message for Invoke<'_> {
    const TYPE: u8 = 70;
}

/// The answer to [`super::Invoke`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invoked {
    /// The number of the first task; the others have the numbers after it.
    pub first: u64,
}

impl Encode for Invoked {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("first", &self.first);
        fields.end();
    }
}

impl Decode<'_> for Invoked {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut first = None;
        reader.map(|reader, member| match member {
            "first" => reader.set(&mut first),
            _ => reader.skip(),
        })?;
        Ok(Self { first: first.ok_or_else(|| Malformed::missing("first"))? })
    }
}

impl Message for Invoked {
    const TYPE: u8 = 71;
}

/// Cancels a task that has not begun. Answered with [`super::Revoked`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoke<'b> {
    /// The pool.
    pub pool: &'b str,
    /// The task's number.
    pub task: u64,
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
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
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

impl Message for Revoke<'_> {
    const TYPE: u8 = 72;
}

/// The answer to [`super::Revoke`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Whether the task had not begun; it never will.
    pub cancelled: bool,
}

impl Encode for Revoked {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("cancelled", &self.cancelled);
        fields.end();
    }
}

impl Decode<'_> for Revoked {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut cancelled = None;
        reader.map(|reader, member| match member {
            "cancelled" => reader.set(&mut cancelled),
            _ => reader.skip(),
        })?;
        Ok(Self { cancelled: cancelled.ok_or_else(|| Malformed::missing("cancelled"))? })
    }
}

impl Message for Revoked {
    const TYPE: u8 = 73;
}
