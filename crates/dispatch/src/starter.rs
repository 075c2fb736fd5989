//! Makes executors of one definition: what can be shared among them is loaded once.

use crate::functions::{self, Launch, Sighting, wasm_engine};
use millrace_namespace::Definition;
use millrace_runtime::{
    Executor, OneshotExecutor, ProcessExecutor, PythonExecutor, PythonFunction, WasmExecutor, WasmFunction,
};
use millrace_wire::Result;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Directory of compiled modules in a namespace. It can be removed at any time.
pub(super) const CACHE: &str = "cache";

/// How often at most the code of a function that runs is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Starter {
    definition: Arc<Definition>,
    namespace_dir: PathBuf,
    loaded: Mutex<Option<Loaded>>,
    /// The code as it was when it was found to be what was deployed, and when it was last looked at.
    seen: Mutex<Option<(Sighting, Instant)>>,
}

/// What the executors of a function share.
enum Loaded {
    Wasm(Arc<WasmFunction>),
    Python(Arc<PythonFunction>),
}

impl Starter {
    pub fn new(namespace_dir: &Path, definition: Arc<Definition>) -> Self {
        Self { definition, namespace_dir: namespace_dir.into(), loaded: Mutex::new(None), seen: Mutex::new(None) }
    }

    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Checks that the code is what was deployed. It is read before the first run, and again when it looks otherwise than
    /// it did.
    pub fn check_code(&self) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref().is_some_and(|(_, at)| at.elapsed() < LOOK_INTERVAL) {
            return Ok(());
        }
        let before = seen.take().map(|(sighting, _)| sighting);
        let sighting = functions::verify_code(&self.namespace_dir, &self.definition.code, before)?;
        *seen = Some((sighting, Instant::now()));
        Ok(())
    }

    /// A new executor. The first one may take a while, for instance to compile a module.
    pub fn executor(&self) -> Result<Box<dyn Executor>> {
        let limits = functions::limits(&self.definition.spec);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match Launch::of(&self.namespace_dir, &self.definition) {
            Launch::Wasm { module, export } => {
                let function = match &*loaded {
                    Some(Loaded::Wasm(function)) => function.clone(),
                    _ => {
                        let function = wasm_engine()?.load(&module, &self.namespace_dir.join(CACHE), &export)?;
                        *loaded = Some(Loaded::Wasm(function.clone()));
                        function
                    }
                };
                Box::new(WasmExecutor::new(function, limits))
            }
            Launch::Python(spec) => {
                let function = match &*loaded {
                    Some(Loaded::Python(function)) => function.clone(),
                    _ => PythonFunction::new(spec, limits),
                };
                *loaded = Some(Loaded::Python(function.clone()));
                Box::new(PythonExecutor::of(function))
            }
            Launch::Process(spec) => Box::new(ProcessExecutor::new(spec, limits)),
            Launch::Oneshot(spec) => Box::new(OneshotExecutor::new(spec, limits)),
        })
    }
}
