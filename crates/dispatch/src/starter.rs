//! Creates the executors of one definition, and loads what they can share once.

use crate::functions::{self, Launch, Sighting, wasm_engine};
use millrace_namespace::Definition;
use millrace_runtime::{
    Asked, Executor, Isolation, Level, OneshotExecutor, ProcessExecutor, PythonExecutor, PythonFunction,
    RedactingExecutor, RedactingStepper, Sandbox, SandboxSpec, SecretBytes, SecretFiles, Secrets, Stepper,
    WasmExecutor, WasmFunction,
};
use millrace_wire::{Code, EventId, Name, Result};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Directory of compiled modules in a namespace. It can be removed at any time.
pub(super) const CACHE: &str = "cache";

/// The shortest time between two checks of the code and the secrets of a running function.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The store of the secrets of functions.
pub trait SecretStore: Send + Sync {
    /// The value of this name, if any.
    fn read(&self, name: &Name) -> Result<Option<SecretBytes>>;
}

/// The shared objects that tasks call.
pub trait Objects: Send + Sync {
    /// Calls an object for a run of this pool's function.
    fn call(&self, run: EventId, pool: &str, call: &[u8]) -> Asked;
    /// Called at the end of an attempt of the run, with whether it succeeded.
    fn left(&self, run: EventId, well: bool);
}

/// The settings that functions get from their host, in addition to their definitions.
#[derive(Clone, Default)]
pub struct Environment {
    /// Their isolation; without it, functions that run in processes have the rights of the host's user.
    pub isolation: Option<Arc<Isolation>>,
    /// Their secrets; without it there are none.
    pub secrets: Option<Arc<dyn SecretStore>>,
    /// The shared objects that tasks call; without it there are none.
    pub objects: Option<Arc<dyn Objects>>,
}

pub(super) struct Starter {
    definition: Arc<Definition>,
    namespace_dir: PathBuf,
    environment: Environment,
    live: Mutex<Live>,
    /// Counts how often `live` was recreated: executors of an earlier one are obsolete.
    generation: AtomicU64,
    /// The metadata of the code when it was last verified, and the time of the last check.
    seen: Mutex<Option<(Sighting, Instant)>>,
}

/// The parts that the executors of a function share, all for the same secrets.
#[derive(Default)]
struct Live {
    secrets: Option<Arc<Secrets>>,
    /// The sandbox of the function's processes, once it was determined; none if the function needs none, or if the host has no isolation.
    sandbox: Option<Option<Arc<Sandbox>>>,
    /// The directory in which its processes find secrets without a sandbox.
    files: Option<SecretFiles>,
    loaded: Option<Loaded>,
}

/// What runs a function.
enum Made {
    Wasm(WasmExecutor),
    Python(PythonExecutor),
    Process(ProcessExecutor),
    Oneshot(OneshotExecutor),
}

enum Loaded {
    Wasm(Arc<WasmFunction>),
    Python(Arc<PythonFunction>),
}

/// Checks that a function can be started, in its sandbox and without its secrets: imports a Python function, and finds the program of
/// another. Without sandboxes it is checked as it would run.
pub(super) fn try_out(
    namespace_dir: &Path,
    definition: &Definition,
    isolation: &Arc<Isolation>,
    slow: &mut dyn FnMut(&str),
) -> Result<()> {
    let environment = Environment { isolation: Some(isolation.clone()), ..Environment::default() };
    let starter = Starter::new(namespace_dir, Arc::new(definition.clone()), environment);
    starter.check_level()?;
    let (launch, limits) = (Launch::of(namespace_dir, definition), functions::limits(&definition.spec));
    let Some(sandbox) = starter.sandbox(&Arc::new(Secrets::new(Vec::new()))) else {
        return launch.validate(&definition.spec, slow);
    };
    match launch {
        Launch::Python(spec) => {
            let module = spec.module.clone();
            PythonFunction::within(spec, limits, Some(sandbox))
                .try_import(&mut |within| slow(&functions::still_importing(&module, within)))
        }
        Launch::Process(_) | Launch::Oneshot(_) => sandbox.check_program(),
        Launch::Wasm { .. } => launch.validate(&definition.spec, slow),
    }
}

impl Starter {
    pub fn new(namespace_dir: &Path, definition: Arc<Definition>, environment: Environment) -> Self {
        let (live, seen, generation) = (Mutex::default(), Mutex::new(None), AtomicU64::new(0));
        Self { definition, namespace_dir: namespace_dir.into(), environment, live, generation, seen }
    }

    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Executors with another number are obsolete.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Checks that the code is unchanged and that the secrets exist. Both are read before the first run; later the code is read if its
    /// metadata changed, and other values of secrets restart the function.
    pub fn check(&self) -> Result<()> {
        self.check_level()?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref().is_some_and(|(_, at)| at.elapsed() < LOOK_INTERVAL) {
            return Ok(());
        }
        let before = seen.take().map(|(sighting, _)| sighting);
        let sighting = functions::verify_code(&self.namespace_dir, &self.definition.code, before)?;
        let secrets = self.read_secrets()?;
        let mut live = self.live();
        if live.secrets.as_ref().is_some_and(|before| **before != secrets) {
            *live = Live::default();
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        live.secrets.get_or_insert_with(|| Arc::new(secrets));
        *seen = Some((sighting, Instant::now()));
        Ok(())
    }

    /// Code of somebody who does not administer the namespace runs only in a full sandbox, also if it was deployed to a host that had one,
    /// or if a repair runs it in place of the host.
    fn check_level(&self) -> Result<()> {
        if !self.definition.confined {
            return Ok(());
        }
        match self.environment.isolation.as_ref().map_or(Level::None, |isolation| isolation.level()) {
            Level::Full => Ok(()),
            level => {
                let name = &self.definition.spec.name;
                Err(Code::SandboxWeak.error(format!("function '{name}' would run in a sandbox of level {level}")))
            }
        }
    }

    fn read_secrets(&self) -> Result<Secrets> {
        let read = |name: &Name| {
            let missing = |why: &str| Code::FunctionSecretMissing.error(format!("secret '{name}' {why}"));
            let store = self
                .environment
                .secrets
                .as_ref()
                .ok_or_else(|| missing("is not available: this host keeps no secrets"))?;
            let value = store.read(name).map_err(|error| missing(&format!("cannot be read: {error}")))?;
            Ok((name.to_string(), value.ok_or_else(|| missing("is not set"))?))
        };
        let names = self.definition.spec.rights.secrets.iter();
        Ok(Secrets::new(names.map(read).collect::<Result<_>>()?))
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared objects that tasks call.
    pub fn objects(&self) -> Option<&Arc<dyn Objects>> {
        self.environment.objects.as_ref()
    }

    /// The value of the function's secret with this name.
    pub fn secret(&self, name: &str) -> Result<Vec<u8>> {
        let live = self.live();
        let value = live.secrets.as_ref().and_then(|secrets| secrets.get(name));
        let value = value.ok_or_else(|| {
            Code::RightMissing.error(format!("the function may not read secret '{}'", name.escape_debug()))
        })?;
        Ok(value.to_vec())
    }

    /// A new executor, and its generation. The first one may take a while, for instance to compile a module.
    pub fn executor(&self) -> Result<(u64, Box<dyn Executor>)> {
        let (generation, made, secrets) = self.make()?;
        let executor: Box<dyn Executor> = match made {
            Made::Wasm(executor) => Box::new(executor),
            Made::Python(executor) => Box::new(executor),
            Made::Process(executor) => Box::new(executor),
            Made::Oneshot(executor) => Box::new(executor),
        };
        let discreet = !secrets.is_empty();
        Ok((generation, if discreet { Box::new(RedactingExecutor::new(executor, secrets)) } else { executor }))
    }

    /// The same for methods of shared objects.
    pub fn stepper(&self) -> Result<(u64, Box<dyn Stepper>)> {
        let (generation, made, secrets) = self.make()?;
        let stepper: Box<dyn Stepper> = match made {
            Made::Wasm(executor) => Box::new(executor),
            Made::Python(executor) => Box::new(executor),
            Made::Process(executor) => Box::new(executor),
            Made::Oneshot(_) => {
                let name = &self.definition.spec.name;
                return Err(
                    Code::WorkerProtocol.error(format!("'{name}' is one process per record, which runs no methods"))
                );
            }
        };
        let discreet = !secrets.is_empty();
        Ok((generation, if discreet { Box::new(RedactingStepper::new(stepper, secrets)) } else { stepper }))
    }

    fn make(&self) -> Result<(u64, Made, Arc<Secrets>)> {
        let limits = functions::limits(&self.definition.spec);
        let mut live = self.live();
        let generation = self.generation();
        let secrets = match &live.secrets {
            Some(secrets) => secrets.clone(),
            None => live.secrets.insert(Arc::new(self.read_secrets()?)).clone(),
        };
        let sandbox = match &live.sandbox {
            Some(sandbox) => sandbox.clone(),
            None => live.sandbox.insert(self.sandbox(&secrets)).clone(),
        };
        let launch = Launch::of(&self.namespace_dir, &self.definition);
        let variable = self.variable(&launch, sandbox.is_some(), &secrets, &mut live)?;
        let made = match launch {
            Launch::Wasm { module, export } => {
                let function = match &live.loaded {
                    Some(Loaded::Wasm(function)) => function.clone(),
                    _ => {
                        let function = wasm_engine()?.load(&module, &self.namespace_dir.join(CACHE), &export)?;
                        live.loaded = Some(Loaded::Wasm(function.clone()));
                        function
                    }
                };
                Made::Wasm(WasmExecutor::new(function, limits))
            }
            Launch::Python(mut spec) => {
                let function = match &live.loaded {
                    Some(Loaded::Python(function)) => function.clone(),
                    _ => {
                        spec.env.extend(variable);
                        PythonFunction::within(spec, limits, sandbox)
                    }
                };
                live.loaded = Some(Loaded::Python(function.clone()));
                Made::Python(PythonExecutor::of(function))
            }
            Launch::Process(mut spec) => {
                spec.env.extend(variable);
                Made::Process(ProcessExecutor::new(spec, limits).within(sandbox))
            }
            Launch::Oneshot(mut spec) => {
                spec.env.extend(variable);
                Made::Oneshot(OneshotExecutor::new(spec, limits).within(sandbox))
            }
        };
        Ok((generation, made, secrets))
    }

    /// The variable with the directory of secrets, for a process without a sandbox; a sandbox mounts them.
    fn variable(
        &self,
        launch: &Launch,
        has_sandbox: bool,
        secrets: &Secrets,
        live: &mut Live,
    ) -> Result<Option<(String, String)>> {
        let scratch = match launch {
            Launch::Wasm { .. } => None,
            Launch::Python(spec) => spec.scratch.as_ref(),
            Launch::Process(spec) | Launch::Oneshot(spec) => spec.scratch.as_ref(),
        };
        let Some(scratch) = scratch.filter(|_| !has_sandbox && !secrets.is_empty()) else { return Ok(None) };
        let files = match &live.files {
            Some(files) => files,
            None => live.files.insert(SecretFiles::new(scratch, secrets)?),
        };
        Ok(Some(files.variable()))
    }

    /// The sandbox of a function that runs in processes.
    fn sandbox(&self, secrets: &Arc<Secrets>) -> Option<Arc<Sandbox>> {
        let spec = &self.definition.spec;
        let (program, code, scratch, is_python) = match Launch::of(&self.namespace_dir, &self.definition) {
            Launch::Wasm { .. } => return None,
            Launch::Python(spec) => (spec.python, spec.dir, spec.scratch?, true),
            Launch::Process(spec) | Launch::Oneshot(spec) => {
                (spec.command.into_iter().next()?.into(), spec.dir, spec.scratch?, false)
            }
        };
        let (network, workers) = (spec.network, spec.concurrency);
        let (limits, secrets) = (functions::limits(spec), secrets.clone());
        let processors_max = self.definition.confined.then_some(workers);
        let spec = SandboxSpec { code, scratch, program, is_python, network, workers, limits, processors_max, secrets };
        self.environment.isolation.as_ref()?.sandbox(spec)
    }
}
