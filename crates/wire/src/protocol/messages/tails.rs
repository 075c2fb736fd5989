// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Tails.

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

impl Message for Tail<'_> {
    const TYPE: u8 = 26;
}

/// More credit for the TAIL with the same request number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// How many more records the host may send.
    pub records: u32,
}

impl Message for Credit {
    const TYPE: u8 = 27;
}

/// Ends the TAIL or the waiting request with the same request number. Answered with [`super::Ended`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancel {}

impl Message for Cancel {
    const TYPE: u8 = 28;
}

/// The last answer of a tail or of a waiting request that the client ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {}

impl Message for Ended {
    const TYPE: u8 = 29;
}
