//! Ids, names, addresses, error codes and messages: the types that all other crates share.
//!
//! This crate does no I/O and imports nothing of ours. Names are validated here and nowhere else.

mod address;
mod defence;
mod durability;
mod error;
mod event;
mod hex;
pub mod histogram;
pub mod history;
mod hlc;
mod json;
mod name;
pub mod protocol;

pub use address::{Address, DEFAULT_PORT, Peer, SCHEME};
pub use defence::Defence;
pub use durability::Durability;
pub use error::{Code, Error, ErrorKind, RETRY_AFTER_MS, Result, Transient, catalogue};
pub use event::{EventId, NamespaceId};
pub use hex::Hex;
pub use history::{HISTORY_ALL, HISTORY_DEFAULT, HISTORY_MAX};
pub use hlc::Hlc;
pub use json::{JsonBytes, JsonBytesRead};
pub use name::{LOG_NAME_MAX_BYTES, LogName, Name, SEGMENT_MAX_BYTES, SEGMENTS_MAX};
