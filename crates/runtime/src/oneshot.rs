//! One process per run: the record on standard input, the exit code as the outcome.

use crate::{Call, Completion, Executor, Limits, ProcessSpec};

/// Runs a command once per record.
pub struct OneshotExecutor;

impl OneshotExecutor {
    /// An executor for this command.
    pub fn new(_spec: ProcessSpec, _limits: Limits) -> Self {
        unimplemented!()
    }
}

impl Executor for OneshotExecutor {
    fn run(&mut self, _batch: &mut [Call<'_>], _done: &mut dyn FnMut(usize, Completion)) {
        unimplemented!()
    }
}
