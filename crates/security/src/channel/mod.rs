//! The channel: two messages and then encrypted records, keyed by a token. For devices, and for TCP on one machine.
//!
//! ```text
//!  client                                      host
//!  M1  nonce, token body  ──────────────────>  recovers the signature from its keys
//!  M2  <──────────────────  nonce, mac         both derive the keys; the mac shows that the host has the token's authority
//!  records  <──────────────────────────────>   the first record from the client shows that it has the signature
//! ```
//!
//! These are state machines without I/O, clock or randomness: nonces are given, bytes go in and come out. The format is
//! `spec/formats/capability.md`.

mod handshake;
mod records;

pub use handshake::{Accepted, Connecting, First, Nonce, Offered, refusal};
pub use records::{Channel, Opener, Sealer};

use millrace_wire::{Code, Error, Result};

/// The magic bytes of the first message, before its length.
pub const MAGIC: [u8; 4] = *b"MR/P";
/// The version of the channel.
pub const VERSION: u8 = 1;
/// The shortest limit of a record that a side may ask for.
pub const RECORD_MIN_BYTES: u16 = 64;
/// The longest.
pub const RECORD_MAX_BYTES: u16 = 16384;

fn broken(what: &str) -> Error {
    Code::ChannelBroken.error(what)
}

/// The limit that a side asks for, if it may.
fn limit(record_max: u16) -> Result<u16> {
    match record_max {
        RECORD_MIN_BYTES..=RECORD_MAX_BYTES => Ok(record_max),
        _ => Err(broken("the other side asks for records that are too short or too long")),
    }
}
