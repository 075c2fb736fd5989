//! `millrace trace`, `graph` and `repair`: what caused what, from the journals of one or more namespaces.
//!
//! ```text
//!  directories, hosts --> sources --> millrace_causality --> trace, graph, plan
//! ```

mod corrections;
mod diff;
mod graph;
mod plan;
mod repairs;
mod sources;
mod times;
mod trace;

pub use graph::run as graph;
pub use trace::run as trace;

use crate::{
    args::{Global, RepairCommand},
    out::Out,
    report::Outcome,
};
use millrace_node::{Code, Result};
use std::path::Path;

pub fn repair(command: &RepairCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        RepairCommand::Plan(args) => plan::run(args, global, out),
        other => repairs::run(other, global, out),
    }
}

/// A function's name and the file or directory with its new code, from `NAME=SOURCE`.
fn named_source(function: &str) -> Result<(&str, &str)> {
    let Some((name, source)) = function.split_once('=').filter(|(_, source)| !source.is_empty()) else {
        return Err(Code::CorrectionInvalid.error(format!("'{function}' is not NAME=SOURCE")));
    };
    if !Path::new(source).exists() {
        return Err(Code::FileUnreadable.error(format!("there is no file or directory '{source}'")));
    }
    Ok((name, source))
}
