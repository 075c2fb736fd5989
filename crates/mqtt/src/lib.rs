//! MQTT 3.1.1 and 5.0: packets, topic filters, the rules by which topics are logs, and sessions. Pure: no I/O, no clock, no randomness.
//!
//! ```text
//! bytes --packet--> Packet       topic --Rules--> log       appended record --Trie--> sessions --> packets in flight
//! ```
//!
//! A session has no queue of messages: for each log it has a range of sequence numbers that it still has to send, so the log itself is the
//! queue, and a client that never reads takes no memory that grows.

mod allowed;
pub mod filter;
pub mod packet;
mod rules;
mod session;
mod shared;
mod shares;
mod trie;

pub use allowed::Allowed;
pub use rules::{Rule, Rules};
pub use session::{FILTERS_MAX, Flight, Granted, IN_FLIGHT_MAX, Range, Session};
pub use shared::Group;
pub use shares::Shares;
pub use trie::Trie;
