//! A cluster in one thread: replicas of a group over a network, disks, clocks and crashes that one seed decides.
//!
//! ```text
//!  World::run(seed) ── every millisecond: nemesis ─> network, disks ─> ticks, messages, flushes ─> Replica ─> invariants
//! ```
//!
//! The replicas are those of the product; the simulation takes the place of the driver in `node`. A run is a function of its seed and
//! [`Setting`]: the same again gives the same [`Report::digest`], and a violated invariant names the seed that shows it.

mod chance;
mod disk;
pub mod invariants;
mod network;
mod world;

pub use chance::Chance;
pub use world::{Defect, Report, Setting, run};
