//! Python functions: warm workers forked from a zygote that has imported the handler's module.

use crate::{Call, Completion, Executor, Limits, Result};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

/// A Python function as it was deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonSpec {
    /// The interpreter: a path, or a name searched for in PATH.
    pub python: PathBuf,
    /// The directory of the function's code; first in `sys.path`, and where it runs.
    pub dir: PathBuf,
    /// The module to import.
    pub module: String,
    /// The function in it.
    pub function: String,
    /// Variables the worker gets besides a scrubbed environment.
    pub env: BTreeMap<String, String>,
}

impl PythonSpec {
    /// Checks, as is done at deployment, that the interpreter starts and the handler can be imported and called.
    pub fn validate(&self, _limits: Limits) -> Result<()> {
        unimplemented!()
    }
}

/// A Python function whose executors share one zygote.
pub struct PythonFunction;

impl PythonFunction {
    /// The function; its zygote starts with the first run.
    pub fn new(_spec: PythonSpec, _limits: Limits) -> Arc<Self> {
        unimplemented!()
    }
}

/// Runs a Python function in one warm worker.
pub struct PythonExecutor;

impl PythonExecutor {
    /// An executor with a zygote of its own.
    pub fn new(spec: PythonSpec, limits: Limits) -> Self {
        Self::of(PythonFunction::new(spec, limits))
    }

    /// One of several executors of a function.
    pub fn of(_function: Arc<PythonFunction>) -> Self {
        unimplemented!()
    }
}

impl Executor for PythonExecutor {
    fn run(&mut self, _batch: &mut [Call<'_>], _done: &mut dyn FnMut(usize, Completion)) {
        unimplemented!()
    }
}
