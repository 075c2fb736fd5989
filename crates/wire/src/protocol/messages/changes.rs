// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Functions, relays and code.

use crate::{Durability, EventId, protocol::Message};

/// Requests a change. Answered with [`super::Document`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manage<'b> {
    /// The JSON text, as in the body of `POST /v1/namespaces/NAME/manage`.
    pub json: &'b str,
}

impl Message for Manage<'_> {
    const TYPE: u8 = 110;
}

/// Appends a record that runs one function, and waits for the run if that is asked for. Answered with [`super::InvokedFunction`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvokeFunction<'b> {
    /// The function.
    pub function: &'b str,
    /// The record's bytes.
    pub data: &'b [u8],
    /// The log to append to; by default the only one that the function is bound to, or, if it is bound to none, `invoke/FUNCTION`, which is
    /// created if it does not exist.
    pub log: Option<&'b str>,
    /// The durability that the answer requires; by default the namespace's.
    pub durability: Option<Durability>,
    /// The idempotency key, 1 to 128 bytes.
    pub key: Option<&'b str>,
    /// How long to wait for the end of the run, at most 300 000 ms; if it has not ended then, the answer says so. Earlier hosts do not
    /// wait.
    pub wait_ms: u32,
}

impl Message for InvokeFunction<'_> {
    const TYPE: u8 = 111;
}

/// The answer to [`super::InvokeFunction`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvokedFunction<'b> {
    /// The log that the record was appended to.
    pub log: &'b str,
    /// The record's sequence number.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
    /// The run, if the request had `wait_ms`.
    pub run: EventId,
    /// Its state: `pending`, `started`, `done`, `dead` or `cancelled`.
    pub state: &'b str,
    /// Its result: a byte that says what it is (0 text, 1 bytes, 2 JSON, 3 none: the function returned something that cannot be a result),
    /// and its bytes, or the reason.
    pub result: &'b [u8],
    /// The code of the error for which it was given up.
    pub code: &'b str,
    /// The first line of the error's description.
    pub error: &'b str,
}

impl Message for InvokedFunction<'_> {
    const TYPE: u8 = 112;
}

/// A part of a file that the host said it lacks. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upload<'b> {
    /// The SHA-256 of the whole file, 32 bytes.
    pub sha256: &'b [u8],
    /// Where the part begins: how many bytes of the file were sent before.
    pub offset: u64,
    /// The part, 1 byte to 1 MiB.
    pub data: &'b [u8],
}

impl Message for Upload<'_> {
    const TYPE: u8 = 113;
}
