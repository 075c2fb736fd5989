//! The protocol between a client and a host, and between two hosts: `spec/protocol/wire.md`.
//!
//! [`frame`] splits a byte stream into frames; [`messages`] has their contents, generated from `spec/messages.toml`.

mod codec;
mod fence;
mod frame;
mod messages;
mod values;

pub use codec::{Decode, Encode, Malformed, MessageReader};
pub use fence::FENCE_NAME_MAX_BYTES;
pub use frame::{
    FRAME_MAX_BYTES, FRAME_OVERHEAD_BYTES, Frame, HELLO_MAX_BYTES, Heading, Message, PREFACE, encode, split,
};
pub use messages::*;
pub use serde_bytes::Bytes;

/// The version of the protocol.
pub const VERSION: u16 = 2;
/// How many capabilities a connection may have at once: the slots of [`Heading::slot`].
pub const SLOTS: usize = 16;
/// The most bytes of a file that one [`Upload`] carries.
pub const UPLOAD_PART_MAX_BYTES: usize = 1 << 20;
