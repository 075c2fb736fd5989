//! A ring of groups that finds who is responsible for a name, without a network or a clock.
//!
//! ```text
//!  join, lookup, tick, handle ──> Ring ──take──> Output { envelopes: to be sent   found: answers to lookups }
//! ```
//!
//! Every group has a place on a circle of 160-bit numbers, the SHA-1 of its name, and is responsible for the names between the group in
//! front of it and itself. It knows its three successors and, at distances that double, groups further on (fingers), so a question reaches
//! whoever can answer it in about ½ log₂ N steps. The protocol is Chord's. An entry carries all hosts of its group: one that does not answer
//! is asked at another of its hosts, and is given up only when none has answered for twice the longest election timeout.

mod id;
mod ring;

pub use id::Id;
pub use ring::{Ask, Entry, Envelope, Found, Message, Options, Output, Ring, SUCCESSORS};
