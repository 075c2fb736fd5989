//! Ids, names, addresses, error codes and messages: the types that all other crates share.
//!
//! This crate does no I/O and imports nothing of ours. Names are validated here and nowhere else.

mod address;
mod database;
mod defence;
mod durability;
mod error;
mod event;
pub mod histogram;
mod hlc;
mod name;
mod observed;
pub mod protocol;
pub mod table;
mod text;

pub use address::{Address, DEFAULT_PORT, Peer, SCHEME};
pub use database::{DATABASE_NAME_MAX_BYTES, DatabaseName, TableMode};
pub use defence::Defence;
pub use durability::Durability;
pub use error::{Code, Error, ErrorKind, RETRY_AFTER_MS, Result, Transient, catalogue};
pub use event::{EventId, NamespaceId};
pub use hlc::Hlc;
pub use name::{LOG_NAME_MAX_BYTES, LogName, Name, SEGMENT_MAX_BYTES, SEGMENTS_MAX};
pub use observed::{TimeField, TimeUnit};
pub use text::{
    HEADERS_MAX_BYTES, Headers, Hex, JsonBytes, JsonBytesRead,
    history::{self, HISTORY_ALL, HISTORY_DEFAULT, HISTORY_MAX},
    units,
};
