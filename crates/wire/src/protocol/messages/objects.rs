// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Shared objects.

use super::Fence;
use crate::protocol::Message;

/// Opens a session, or renews its lease. Answered with [`super::Opened`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session<'b> {
    /// Its id, 16 bytes that the client has chosen at random.
    pub session: &'b [u8],
    /// The application: its objects end with the last of its sessions; empty for objects that stay.
    pub application: &'b str,
    /// The requested lease: how long the session stays open when the host receives nothing of it; 0 ends it now.
    pub lease_ms: u32,
    /// The session must already be open; otherwise what it held is lost.
    pub resume: bool,
}

impl Message for Session<'_> {
    const TYPE: u8 = 64;
}

/// The answer to [`super::Session`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whether it was open before.
    pub resumed: bool,
    /// The lease that it has, 100 ms to 1 hour; at most 1 minute for the holder of a capability.
    pub lease_ms: u32,
}

impl Message for Opened {
    const TYPE: u8 = 65;
}

/// Calls a method of a shared object. Answered with [`super::Returned`] or [`super::Raised`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call<'b> {
    /// The session.
    pub session: &'b [u8],
    /// The call's number in it, from 1; a number that was used before repeats that call.
    pub call: u64,
    /// Answers to calls below this number have arrived.
    pub acked: u64,
    /// The object's type.
    pub kind: &'b str,
    /// Its key.
    pub key: &'b str,
    /// The method.
    pub method: &'b str,
    /// Its arguments: an array in MessagePack.
    pub arguments: &'b [u8],
    /// The arguments of its constructor, which runs if the object does not exist: an array in MessagePack.
    pub new: &'b [u8],
    /// Which object of that key it has to be; 0 for any.
    pub incarnation: u64,
    /// The object is not created if it does not exist.
    pub must_exist: bool,
    /// The call is refused if the object exists.
    pub must_create: bool,
    /// The object is stored in the namespace's journal.
    pub persistent: bool,
    /// How many hosts of the cluster have a copy of it at least; 0 or 1 for this host alone.
    pub rf: u8,
    /// The caller no longer waits: the answer is that of a call after its timeout.
    pub give_up: bool,
    /// How long the answer may take; then the host answers that the call waits, and the call continues to wait.
    pub wait_ms: u32,
    /// A token of a lock: the call is refused if the object has seen a higher one.
    pub fence: Option<Fence<'b>>,
}

impl Message for Call<'_> {
    const TYPE: u8 = 66;
}

/// The return value of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returned<'b> {
    /// Which object of the key it was.
    pub incarnation: u64,
    /// The call waits: it is repeated under its number.
    pub waiting: bool,
    /// The value in MessagePack.
    pub value: &'b [u8],
}

impl Message for Returned<'_> {
    const TYPE: u8 = 67;
}

/// The exception of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raised<'b> {
    /// Which object of the key it was.
    pub incarnation: u64,
    /// The exception's class.
    pub class: &'b str,
    /// Its content.
    pub text: &'b str,
}

impl Message for Raised<'_> {
    const TYPE: u8 = 68;
}
