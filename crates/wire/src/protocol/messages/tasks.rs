// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Tasks.

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

impl Message for Invoke<'_> {
    const TYPE: u8 = 70;
}

/// The answer to [`super::Invoke`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invoked {
    /// The number of the first task; the others have the numbers after it.
    pub first: u64,
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

impl Message for Revoke<'_> {
    const TYPE: u8 = 72;
}

/// The answer to [`super::Revoke`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Whether the task had not begun; it never will.
    pub cancelled: bool,
}

impl Message for Revoked {
    const TYPE: u8 = 73;
}
