//! Isolates functions: one sandbox for each function and version of its code.
//!
//! ```text
//! Isolation (of a host) --of--> Sandbox (of a function) --enter--> Inmates: zygote, workers, processes
//!        level, cause, remedy         supervisor: `millrace __sandbox`
//! ```
//!
//! A sandbox is created with its first process and recreated after it has ended. Its supervisor ([`supervise`]) is this program, executed
//! again, so that it contains nothing of the host's memory; a warm worker talks to the host directly, as it does without a sandbox.

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
pub(crate) use inmate::{Batch, Room, Starting};
pub use inmate::{Sandbox, SandboxSpec};
pub use level::{Isolation, Level, Shortcoming};
pub use supervisor::supervise;

/// The word after the program's name with which it becomes the supervisor of a sandbox.
pub const SUPERVISOR: &str = "__sandbox";
