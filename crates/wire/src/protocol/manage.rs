//! Requests for changes of a namespace's functions, relays and logs, and the upload of code.

use super::Message;
use crate::{Durability, EventId};
use serde::{Deserialize, Serialize};

/// The most bytes of a file that one [`Upload`] carries.
pub const UPLOAD_PART_MAX_BYTES: usize = 1 << 20;

/// Asks for a change: what HTTP takes with `POST /v1/namespaces/NAME/manage`. Answered with a [`super::Document`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manage<'b> {
    /// The JSON text.
    pub json: &'b str,
}

/// Appends a record that runs one function. Answered with [`InvokedFunction`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvokeFunction<'b> {
    /// The function.
    pub function: &'b str,
    /// The record's bytes.
    #[serde(borrow, with = "serde_bytes")]
    pub data: &'b [u8],
    /// The log to append to; by default the one that the function is bound to, or `invoke/FUNCTION` if it is bound to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<&'b str>,
    /// When the answer is due; by default as the namespace says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<&'b str>,
}

/// The answer to [`InvokeFunction`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvokedFunction<'b> {
    /// The log that the record was appended to.
    pub log: &'b str,
    /// The record's sequence number.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
}

/// A part of a file that the host said it lacks. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload<'b> {
    /// The SHA-256 of the whole file, 32 bytes.
    #[serde(borrow, with = "serde_bytes")]
    pub sha256: &'b [u8],
    /// Where the part begins: how many bytes of the file were sent before.
    pub offset: u64,
    /// The part, at most [`UPLOAD_PART_MAX_BYTES`].
    #[serde(borrow, with = "serde_bytes")]
    pub data: &'b [u8],
}

impl Message for Manage<'_> {
    const TYPE: u8 = 110;
}

impl Message for InvokeFunction<'_> {
    const TYPE: u8 = 111;
}

impl Message for InvokedFunction<'_> {
    const TYPE: u8 = 112;
}

impl Message for Upload<'_> {
    const TYPE: u8 = 113;
}
