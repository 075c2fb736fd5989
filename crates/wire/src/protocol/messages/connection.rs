// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Every connection.

use crate::{Durability, protocol::Message};

/// The first frame of a connection. Answered with [`super::Welcome`] or [`super::Challenge`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello<'b> {
    /// The oldest version of the protocol that the client speaks.
    pub oldest: u16,
    /// The newest one.
    pub newest: u16,
    /// The name of the namespace; empty for the only one that the host serves, or for the one that accepts the capability.
    pub namespace: &'b str,
    /// The name and version of the client's program, for people.
    pub client: &'b str,
    /// The client's capabilities, at most 16: they fill the slots from 0 on.
    pub capabilities: Vec<Offer<'b>>,
}

impl Message for Hello<'_> {
    const TYPE: u8 = 1;
}

/// Requests may be sent from now on, without waiting for answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Welcome<'b> {
    /// The version that both sides use from now on.
    pub version: u16,
    /// The name and version of the host's program, for people.
    pub host: &'b str,
    /// The namespace's name on this host.
    pub name: &'b str,
    /// The namespace's identity, 48 bits.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The longest frame that the host accepts.
    pub frame_max_bytes: u32,
    /// The longest record that the namespace accepts.
    pub record_max_bytes: u32,
    /// How many requests may be unanswered: at this number, the host stops reading until one is answered.
    pub requests_max: u32,
    /// The namespace's default.
    pub durability: Durability,
}

impl Message for Welcome<'_> {
    const TYPE: u8 = 2;
}

/// A request failed; under request 0, the connection failed and is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure<'b> {
    /// The stable code, such as MR2101.
    pub code: &'b str,
    /// The description of the failure.
    pub detail: &'b str,
    /// The time after which a retry may succeed.
    pub retry_after_ms: Option<u32>,
}

impl Message for Failure<'_> {
    const TYPE: u8 = 3;
}

/// Checks that the other side answers. Answered with [`super::Pong`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ping {}

impl Message for Ping {
    const TYPE: u8 = 4;
}

/// The answer to [`super::Ping`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pong {}

impl Message for Pong {
    const TYPE: u8 = 5;
}

/// Proofs have to be bound to a value that the host chooses: the client sends HELLO again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge<'b> {
    /// The value to which the proofs are bound, 16 bytes.
    pub challenge: &'b [u8],
}

impl Message for Challenge<'_> {
    const TYPE: u8 = 6;
}

/// Fills a slot with a capability, or replaces the one in it. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present<'b> {
    /// Which slot, 0 to 15.
    pub slot: u8,
    /// The body of the token.
    pub capability: &'b [u8],
    /// The proof that the client has its signature, 32 bytes.
    pub proof: &'b [u8],
}

impl Message for Present<'_> {
    const TYPE: u8 = 7;
}

/// Exchanges the capability of the request, which has ONCE, for a lasting one that is bound to the client's TLS key; over TLS only.
/// Answered with [`super::Redeemed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redeem {}

impl Message for Redeem {
    const TYPE: u8 = 44;
}

/// The answer to [`super::Redeem`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redeemed<'b> {
    /// The new capability: its body and its signature.
    pub capability: &'b [u8],
}

impl Message for Redeemed<'_> {
    const TYPE: u8 = 45;
}

/// A capability that a client presents, and the proof that it has the signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer<'b> {
    /// The body of the token.
    pub capability: &'b [u8],
    /// 32 bytes; empty as long as the client does not know the value to which it is bound.
    pub proof: &'b [u8],
}
