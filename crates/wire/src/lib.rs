//! Ids, names and error codes: the words that every other crate speaks.
//!
//! This crate does no I/O and imports nothing of ours. Names are validated here and nowhere else.

mod error;
mod event;
mod hlc;
mod name;

pub use error::{Code, Error, Result, catalogue};
pub use event::{EventId, NamespaceId};
pub use hlc::Hlc;
pub use name::{LOG_NAME_MAX_BYTES, LogName, Name, SEGMENT_MAX_BYTES, SEGMENTS_MAX};
