//! Isolates functions: one sandbox for each function and version of its code.
//!
//! ```text
//! Isolation (of a host) --of--> Sandbox (of a function) --enter--> Inmates: zygote, workers, processes
//!        level, cause, remedy         supervisor: `millrace __sandbox`
//! ```
//!
//! A sandbox is made with its first process and recreated after it ended. Its supervisor ([`supervise`]) is a program of ours that
//! is executed, so that nothing of the host's is in it; a warm worker talks to the host directly, as it would without.

mod cgroup;
mod confine;
mod defence;
mod files;
mod inmate;
mod level;
mod message;
mod program;
mod supervisor;
mod syscalls;
#[allow(unsafe_code)]
pub(crate) mod system;

pub use defence::Defence;
pub(crate) use inmate::{Room, Starting};
pub use inmate::{Sandbox, SandboxSpec};
pub use level::{Isolation, Level, Shortcoming};
pub use supervisor::supervise;

/// The word after the program's name with which it becomes the supervisor of a sandbox.
pub const SUPERVISOR: &str = "__sandbox";
