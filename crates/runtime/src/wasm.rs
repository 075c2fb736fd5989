//! WebAssembly functions: a fresh instance per run.

use crate::{Call, Completion, Executor, Limits, Result};
use std::{path::Path, sync::Arc};

/// The process's one WebAssembly engine.
pub struct WasmEngine;

impl WasmEngine {
    /// Sets the engine up; once per process.
    pub fn new() -> Result<Arc<Self>> {
        unimplemented!()
    }

    /// Compiles the module, or takes it from `cache_dir`, and checks its imports and its handler `export`.
    pub fn load(&self, _module: &Path, _cache_dir: &Path, _export: &str) -> Result<Arc<WasmFunction>> {
        unimplemented!()
    }

    /// Checks, as is done at deployment, all that `load` checks, without a cache.
    pub fn validate(&self, _module: &Path, _export: &str) -> Result<()> {
        unimplemented!()
    }
}

/// A compiled module and its handler, shared by executors.
pub struct WasmFunction;

/// Runs a WebAssembly function.
pub struct WasmExecutor;

impl WasmExecutor {
    /// An executor of the function.
    pub fn new(_function: Arc<WasmFunction>, _limits: Limits) -> Self {
        unimplemented!()
    }
}

impl Executor for WasmExecutor {
    fn run(&mut self, _batch: &mut [Call<'_>], _done: &mut dyn FnMut(usize, Completion)) {
        unimplemented!()
    }
}
