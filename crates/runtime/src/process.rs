//! Persistent processes: any executable that speaks `spec/protocol/worker.md`.

use crate::{Call, Completion, Executor, Limits, Result};
use std::{collections::BTreeMap, path::PathBuf};

/// A command that runs a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The program and its arguments; a program with a `/` is relative to `dir`, another is searched for in PATH.
    pub command: Vec<String>,
    /// The directory of the function's code, where the command runs.
    pub dir: PathBuf,
    /// Variables the process gets besides a scrubbed environment.
    pub env: BTreeMap<String, String>,
}

impl ProcessSpec {
    /// Checks, as is done at deployment, that the command exists and may be executed.
    pub fn validate(&self) -> Result<()> {
        unimplemented!()
    }
}

/// Runs a function in one persistent process.
pub struct ProcessExecutor;

impl ProcessExecutor {
    /// An executor that starts its process with the first batch.
    pub fn new(_spec: ProcessSpec, _limits: Limits) -> Self {
        unimplemented!()
    }
}

impl Executor for ProcessExecutor {
    fn run(&mut self, _batch: &mut [Call<'_>], _done: &mut dyn FnMut(usize, Completion)) {
        unimplemented!()
    }
}
