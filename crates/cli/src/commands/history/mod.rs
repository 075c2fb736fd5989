//! `millrace trace`, `graph` and `repair`: what caused what, from the journals of one or more namespaces.
//!
//! ```text
//!  directories, hosts --> sources --> millrace_causality --> trace, graph, plan
//! ```

mod corrections;
mod graph;
mod plan;
mod repairs;
mod sources;
mod trace;

pub use graph::run as graph;
pub use trace::run as trace;

use crate::{
    args::{Global, RepairCommand},
    out::Out,
    report::Outcome,
};

pub fn repair(command: &RepairCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        RepairCommand::Plan(args) => plan::run(args, global, out),
        other => repairs::run(other, global, out),
    }
}
