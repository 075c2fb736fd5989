//! The network interfaces of a host: the wire protocol, HTTP and links between hosts.
//!
//! ```text
//!  TCP, Unix socket --> server   event loops; before a loop sleeps it flushes once for all that the gate holds
//!                         |
//!    Unix, TLS, channel   |   who is it: admission
//!              "MR/2" ----+---- anything else
//!                |                  |
//!              wire               http          both call the same Access, and return the same documents
//! ```
//!
//! Nothing inside imports this crate; it only calls [`millrace_node::Access`].

mod admission;
pub mod cluster;
mod documents;
mod hosted;
mod http;
mod invoked;
mod links;
mod memory;
mod patience;
mod peers;
mod server;
mod unknown;
mod wire;

pub use hosted::Hosted;
pub use http::{ORIGINS_MAX, Origin};
pub use links::Linker;
pub use patience::set_patience;
pub use peers::reach;
pub use server::{Bound, Certificate, Listen, SOCKET, Server, ServerOptions};
