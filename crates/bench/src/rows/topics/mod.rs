//! topic.*: topics of a cluster of three hosts on this machine, each a process with a namespace of its own on the one disk.
//!
//! The hosts are the shipped build (profile `dist`) of `millrace serve`. A publish is acknowledged once two of three have the record on
//! disk, unless a row says otherwise.

mod chord;
mod cluster;
mod failover;
mod find;
mod groups;
mod publish;
mod reads;

pub use failover::failover;
pub use find::find;
pub use groups::groups;
pub use publish::{amplification, function_lag, publish};
pub use reads::get;
