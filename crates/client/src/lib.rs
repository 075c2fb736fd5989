//! The Rust client: uses a namespace on another host like a local one.
//!
//! ```text
//!   Client (async, Clone) ──> session: one task per connection reads, writes, and assigns each answer to its request
//!   blocking::Client      ──> a socket that the caller's own thread writes and reads: no thread between
//!            both ──> ask: encodes requests and decodes answers; no I/O
//! ```
//!
//! [`Client`] reports a lost connection as such; [`Resilient`] connects again and repeats requests that are safe to repeat. Everything is
//! bounded: requests and bytes in flight, the records a tail holds, every wait.

mod ask;
pub mod blocking;
mod connector;
pub mod credentials;
pub mod loopback;
mod options;
mod place;
mod placement;
mod resilient;
pub mod secure;
mod session;
mod types;

pub use connector::Resolve;
pub use credentials::Credentials;
pub use millrace_wire::{Durability, EventId, Hlc};
pub use options::{AppendOptions, Options, TailOptions, Wait};
pub use place::Place;
pub use placement::Placement;
pub use resilient::{Resilient, ResilientTail};
pub use session::{Client, Encrypted, Pending, Reply, Tail, encrypted};
pub use types::{Batch, Cursor, Host, Receipt, Record};
