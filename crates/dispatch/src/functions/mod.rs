//! Deployment: a function's code is copied into the namespace under the hash of its content, checked, then defined.
//!
//! The copy never changes, so a run in progress keeps its code while a newer version is deployed, and the same code is
//! stored once. A definition appears only after its code is complete on disk. The code is verified when it is loaded; workers
//! run in directories of their own. What no definition names any more is removed after a while.

mod store;
mod tree;

pub(crate) use store::sweep;
pub use store::{StoreLock, sweep_scratch};
pub(crate) use tree::Sighting;

use crate::DeadLetter;
use millrace_journal::{Kind, Log, Transaction};
use millrace_namespace::{
    Definition, Ending, FunctionSpec, Namespace, Runtime, Site,
    admission::{self, Room},
    definition::DEAD_LETTER_HISTORY,
    found, no_function,
    runs::{Pending, PendingRun},
};
use millrace_runtime::{Limits, ProcessSpec, PythonSpec, WasmEngine};
use millrace_wire::{Code, Error, Name, Result};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// Directory of deployed code in a namespace.
const FUNCTIONS: &str = "functions";
/// Directory of the working directories of a namespace's workers. It can be removed when none runs.
const SCRATCH: &str = "scratch";
/// Most runs that are given up in one commit when a function is removed.
const DROP_MAX: usize = 1000;
/// About how many bytes of dead letters go with them.
const GIVE_UP_BYTES_MAX: usize = 128 << 10;

/// What a deployment did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The function is new.
    Created,
    /// It replaced the function of that name; its pending runs run the new code.
    Updated,
    /// It was there, the same in every respect.
    Unchanged,
}

/// A deployed function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deployed {
    /// Its name.
    pub name: Name,
    /// SHA-256 of its code.
    pub code: String,
    /// What changed.
    pub change: Change,
}

/// Where a function's code is and how to start it, for the runtime.
pub(crate) enum Launch {
    Wasm { module: PathBuf, export: String },
    Python(PythonSpec),
    Process(ProcessSpec),
    Oneshot(ProcessSpec),
}

impl Launch {
    pub fn of(namespace_dir: &Path, definition: &Definition) -> Self {
        let spec = &definition.spec;
        // The worker changes into the directory, so a relative path would lead it astray.
        let functions = std::path::absolute(namespace_dir).unwrap_or_else(|_| namespace_dir.into()).join(FUNCTIONS);
        let dir = functions.join(&definition.code);
        let scratch = Some(functions.with_file_name(SCRATCH));
        let process = |dir| {
            let (command, env) = (spec.command.clone(), spec.env.clone());
            ProcessSpec { command, dir, env, scratch: scratch.clone() }
        };
        match spec.runtime {
            Runtime::Wasm => Launch::Wasm {
                module: definition.file.as_ref().map_or_else(|| dir.clone(), |file| dir.join(file)),
                export: spec.handler.clone(),
            },
            Runtime::Python => {
                let (module, function) = spec.python_handler().unwrap_or_default();
                Launch::Python(PythonSpec {
                    python: PathBuf::from(&spec.python),
                    dir,
                    module: module.into(),
                    function: function.into(),
                    env: spec.env.clone(),
                    scratch,
                })
            }
            Runtime::Process => Launch::Process(process(dir)),
            Runtime::Oneshot => Launch::Oneshot(process(dir)),
        }
    }

    /// Checks that the code can be started at all.
    fn validate(&self, spec: &FunctionSpec) -> Result<()> {
        match self {
            Launch::Wasm { module, export } => wasm_engine()?.validate(module, export),
            Launch::Python(python) => python.validate(limits(spec)),
            Launch::Process(process) | Launch::Oneshot(process) => process.validate(),
        }
    }
}

/// What one run of this function may use.
pub(crate) fn limits(spec: &FunctionSpec) -> Limits {
    Limits {
        timeout: spec.timeout,
        memory_max_bytes: spec.memory_max_bytes,
        output_max_bytes: usize::try_from(spec.output_max_bytes).unwrap_or(usize::MAX),
        ..Limits::default()
    }
}

/// What [`Definition::code`] would be if this source were deployed.
pub fn code_hash(source: &Path) -> Result<String> {
    tree::hash(source)
}

/// Verifies that the code with this hash is in the namespace, and is what was deployed.
pub fn check_code(namespace_dir: &Path, code: &str) -> Result<()> {
    let dir = namespace_dir.join(FUNCTIONS).join(code);
    match tree::hash(&dir)? {
        found if found == code => Ok(()),
        found => Err(Code::CodeMissing.error(format!("code '{}' has changed: it hashes to {found}", dir.display()))),
    }
}

/// Verifies that the code with this hash is in the namespace, and is what was deployed, without reading it if it looks as it
/// did `before`. What is never a part of a function, such as a cache, is removed.
pub(crate) fn verify_code(namespace_dir: &Path, code: &str, before: Option<Sighting>) -> Result<Sighting> {
    tree::verify(&namespace_dir.join(FUNCTIONS).join(code), code, before)
}

/// Copies the code with this hash from one directory of `functions` to another.
pub fn copy_code(from: &Path, code: &str, to: &Path) -> Result<()> {
    tree::store(&from.join(FUNCTIONS).join(code), &to.join(FUNCTIONS)).map(drop)
}

/// All code that is complete in a namespace.
pub fn stored_codes(namespace_dir: &Path) -> Result<Vec<String>> {
    let names = match std::fs::read_dir(namespace_dir.join(FUNCTIONS)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(|error| Code::Io.error(format!("cannot read '{FUNCTIONS}': {error}")))?,
    };
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).collect())
}

/// The process's one WebAssembly engine, set up when it is first needed.
pub(crate) fn wasm_engine() -> Result<Arc<WasmEngine>> {
    static ENGINE: OnceLock<Result<Arc<WasmEngine>>> = OnceLock::new();
    ENGINE.get_or_init(WasmEngine::new).clone()
}

/// Deploys a function: copies its code from `source` (a file or a directory), checks it and defines it.
///
/// The logs it is bound to must exist; its dead-letter log is made if need be. Nothing changes when this fails.
pub fn deploy(namespace: &Namespace, spec: &FunctionSpec, source: &Path) -> Result<Deployed> {
    spec.validate()?;
    let context = |error: millrace_wire::Error| error.within(format!("function '{}'", spec.name));
    // Until it is defined nothing else says that the code is needed.
    let _lock = StoreLock::shared(namespace.dir()).map_err(context)?;
    let stored = tree::store(source, &namespace.dir().join(FUNCTIONS)).map_err(context)?;
    let mut definition = Definition { spec: spec.clone(), code: stored.hash, file: stored.file, removing: false };
    if spec.runtime == Runtime::Wasm && definition.file.is_none() {
        definition.file = Some(only_module(&namespace.dir().join(FUNCTIONS).join(&definition.code)).map_err(context)?);
    }
    Launch::of(namespace.dir(), &definition).validate(spec).map_err(context)?;
    let committed = namespace.journal().commit(|tx| define(tx, &definition))?;
    namespace.settle(Site::Deploy, committed.end, None)?;
    Ok(Deployed { name: spec.name.clone(), code: definition.code, change: committed.value })
}

/// Removes a function that no run waits for or works on; with one that does, it is refused.
pub fn remove(namespace: &Namespace, name: &Name) -> Result<()> {
    let committed = namespace.journal().commit(|tx| {
        let function = tx.catalog().function(name).cloned().ok_or_else(|| no_function(name))?;
        match tx.pending(function.id()) {
            0 => tx.remove_function(name),
            pending => Err(pending_runs(&[(name, pending)])),
        }
    })?;
    namespace.settle(Site::RemoveFunction, committed.end, None)
}

/// Removes a function and gives up its pending runs: each ends as a dead letter, and one in progress publishes
/// nothing. How many they were.
pub fn give_up(namespace: &Namespace, name: &Name) -> Result<u64> {
    // First it takes no new runs, so that the giving up below has an end.
    namespace.journal().commit(|tx| {
        let function = tx.catalog().function(name).cloned().ok_or_else(|| no_function(name))?;
        if let Ok(definition) = Definition::from_attributes(name, function.attributes()) {
            let removing = Definition { removing: true, ..definition };
            tx.define_function(name, &removing.to_attributes())?;
        }
        Ok(())
    })?;
    let mut pending = Pending::of(namespace.journal())?;
    let mut given_up = 0;
    loop {
        let committed = namespace.journal().commit(|tx| give_up_some(namespace, tx, name, &mut pending))?;
        match committed.value {
            0 => return namespace.settle(Site::GiveUpFunction, committed.end, None).map(|()| given_up),
            some => given_up += some,
        }
    }
}

/// Gives up some pending runs of the function, and says how many; or removes it once there are none.
fn give_up_some(namespace: &Namespace, tx: &mut Transaction<'_>, name: &Name, pending: &mut Pending) -> Result<u64> {
    let Some(function) = tx.catalog().function(name).cloned() else { return Ok(0) };
    pending.catch_up(tx.tail())?;
    let runs: Vec<PendingRun> = pending.of_function(function.id()).take(DROP_MAX).collect();
    if runs.is_empty() {
        return tx.remove_function(name).map(|()| 0);
    }
    let error = Code::FunctionRemoved.error(format!("function '{name}' was removed while the run was pending"));
    let definition = Definition::from_attributes(name, function.attributes());
    let letters = match &definition {
        Ok(definition) => Some(match tx.catalog().log(&definition.spec.dead_letter).cloned() {
            Some(log) => log,
            None => tx.create_log(&definition.spec.dead_letter, DEAD_LETTER_HISTORY)?,
        }),
        // Nobody knows where its letters go.
        Err(_) => None,
    };
    let bindings = namespace.bindings_of(tx);
    let (mut given_up, mut bytes) = (0, 0);
    for run in &runs {
        let of_log = tx.catalog().log_by_id(run.log).cloned();
        let payload = of_log.as_ref().and_then(|log| record_of(namespace, run, log));
        let record = (of_log.as_ref().map_or("", |log| log.name()), run.seqno, payload.as_deref());
        let letter = DeadLetter::new(run.id, name, record, run.attempts, &error).to_bytes();
        bytes += letter.len();
        if given_up > 0 && bytes > GIVE_UP_BYTES_MAX {
            break;
        }
        if let Some(letters) = &letters {
            let (cause, ending) = (run.id, Some(function.id()));
            let admission = admission::Stage { cause, ordinal: 0, room: Room::DeadLetter, named: None, ending };
            admission::append(tx, &bindings, letters, &letter, admission)?;
        }
        tx.done(function.id(), run.run(), &Ending::dead(&error, &[]).to_end())?;
        given_up += 1;
    }
    Ok(given_up)
}

/// The record of a pending run, also when its log's history has passed it.
fn record_of(namespace: &Namespace, run: &PendingRun, log: &Log) -> Option<Vec<u8>> {
    let journal = namespace.journal();
    if let Some(Ok(entry)) = run.record.map(|position| journal.entry_at(position))
        && (entry.kind, entry.subject, entry.seqno) == (Kind::Append, run.log, run.seqno)
    {
        return Some(entry.payload);
    }
    let mut payload = Vec::new();
    journal.get(log, run.seqno, &mut payload).ok().map(|_| payload)
}

/// The refusal to remove functions with pending runs.
pub fn pending_runs(functions: &[(&Name, u64)]) -> Error {
    let told: Vec<String> = functions
        .iter()
        .map(|(name, pending)| {
            format!("function '{name}' has {pending} pending run{}", if *pending == 1 { "" } else { "s" })
        })
        .collect();
    Code::FunctionPending.error(told.join(", "))
}

/// The module of a WebAssembly function that was deployed as a directory: the one `.wasm` file in it.
fn only_module(dir: &Path) -> Result<String> {
    let names = std::fs::read_dir(dir).map_err(|e| Code::Io.error(format!("cannot read '{}': {e}", dir.display())))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut modules: Vec<String> = names.filter(|name| name.ends_with(".wasm")).collect();
    match (modules.pop(), modules.len()) {
        (Some(module), 0) => Ok(module),
        (module, others) => Err(Code::CodeMissing.error(format!(
            "the code of a wasm function is a .wasm file, or a directory with one in it; this one has {}",
            others + usize::from(module.is_some())
        ))),
    }
}

/// Defines the function unless it is there already, the same in every respect.
fn define(tx: &mut Transaction<'_>, definition: &Definition) -> Result<Change> {
    let spec = &definition.spec;
    let catalog = tx.catalog().clone();
    for log in &spec.on {
        found(catalog.log(log), log)
            .map_err(|error| error.within(format!("function '{}' is bound to it", spec.name)))?;
    }
    if catalog.log(&spec.dead_letter).is_none() {
        tx.create_log(&spec.dead_letter, DEAD_LETTER_HISTORY)?;
    }
    let attributes = definition.to_attributes();
    let change = match catalog.function(&spec.name) {
        Some(existing) if existing.attributes() == attributes => return Ok(Change::Unchanged),
        Some(_) => Change::Updated,
        None => Change::Created,
    };
    tx.define_function(&spec.name, &attributes)?;
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_declares_no_limits_has_those_of_the_runtime() {
        let spec = FunctionSpec::new("f".parse().unwrap(), Runtime::Wasm);
        assert_eq!(limits(&spec), Limits::default());
    }
}
