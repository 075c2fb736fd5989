//! Makes executors of one definition: what can be shared among them is loaded once.

use crate::{
    definition::Definition,
    deploy::{Launch, wasm_engine},
};
use millrace_runtime::{
    Executor, OneshotExecutor, ProcessExecutor, PythonExecutor, PythonFunction, WasmExecutor, WasmFunction,
};
use millrace_wire::{Code, Error, Result};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Directory of compiled modules in a namespace. It can be removed at any time.
const CACHE: &str = "cache";

pub(super) struct Starter {
    definition: Arc<Definition>,
    namespace_dir: PathBuf,
    loaded: Mutex<Option<Loaded>>,
}

/// What the executors of a function share.
enum Loaded {
    Wasm(Arc<WasmFunction>),
    Python(Arc<PythonFunction>),
}

impl Starter {
    pub fn new(namespace_dir: &Path, definition: Arc<Definition>) -> Self {
        Self { definition, namespace_dir: namespace_dir.into(), loaded: Mutex::new(None) }
    }

    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// A new executor. The first one may take a while, for instance to compile a module.
    pub fn executor(&self) -> Result<Box<dyn Executor>> {
        let limits = self.definition.spec.limits();
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match Launch::of(&self.namespace_dir, &self.definition) {
            Launch::Wasm { module, export } => {
                let function = match &*loaded {
                    Some(Loaded::Wasm(function)) => function.clone(),
                    _ => {
                        check(&module)?;
                        let function = wasm_engine()?.load(&module, &self.namespace_dir.join(CACHE), &export)?;
                        *loaded = Some(Loaded::Wasm(function.clone()));
                        function
                    }
                };
                Box::new(WasmExecutor::new(function, limits))
            }
            Launch::Python(spec) => {
                check(&spec.dir)?;
                let function = match &*loaded {
                    Some(Loaded::Python(function)) => function.clone(),
                    _ => PythonFunction::new(spec, limits),
                };
                *loaded = Some(Loaded::Python(function.clone()));
                Box::new(PythonExecutor::of(function))
            }
            Launch::Process(spec) => {
                check(&spec.dir)?;
                Box::new(ProcessExecutor::new(spec, limits))
            }
            Launch::Oneshot(spec) => {
                check(&spec.dir)?;
                Box::new(OneshotExecutor::new(spec, limits))
            }
        })
    }
}

fn check(code: &Path) -> Result<()> {
    match code.try_exists() {
        Ok(true) => Ok(()),
        _ => Err(Code::CodeMissing.error(format!("deployed code '{}' is gone", code.display()))),
    }
}

/// Whether a run failed because its function could not be started, which says nothing about the record.
pub(super) fn is_start_failure(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::WorkerNotReady
            | Code::CodeUnreadable
            | Code::CodeMissing
            | Code::PythonImport
            | Code::PythonHandlerMissing
            | Code::PythonHandlerInvalid
            | Code::PythonUnusable
            | Code::CommandUnusable
            | Code::SpawnFailed
            | Code::RuntimeUnavailable
    )
}
