//! The network interfaces of a host: the wire protocol, HTTP, MQTT and links between hosts.
//!
//! ```text
//!  TCP, Unix socket --> server   event loops; before a loop sleeps it flushes once for all that the gate holds
//!                         |
//!    Unix, TLS, channel   |   who is it: admission
//!            the first bytes: protocols
//!              "MR/2" ---+--- 0x10 ------ "PRI ", anything else
//!                |           |                 |
//!              wire        mqtt              http     all call the same Access; wire and http return the same documents
//! ```
//!
//! Nothing inside imports this crate; it only calls [`millrace_node::Access`].

mod admission;
pub mod cluster;
mod databases;
mod documents;
mod hosted;
mod http;
mod invoked;
mod links;
mod memory;
mod mqtt;
mod patience;
mod peers;
mod protocols;
mod replicas;
mod server;
mod silence;
mod turns;
mod unknown;
mod wire;

pub use databases::{Comparison, DatabaseWriters, Difference, check_table, load_table};
pub use hosted::Hosted;
pub use http::{Forward, ORIGINS_MAX, Origin, ParquetWriter};
pub use links::Linker;
pub use mqtt::bridge::{Bridge, BridgeEvent, Broker};
pub use patience::set_patience;
pub use peers::reach;
pub use replicas::Replicator;
pub use server::{Bound, Certificate, Listen, Listener, SOCKET, Server, ServerOptions};
