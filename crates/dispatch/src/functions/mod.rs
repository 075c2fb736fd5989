//! Deployment: a function's code is copied into the namespace under the hash of its content, checked, then defined.
//!
//! The copy never changes, so a run in progress keeps its code while a newer version is deployed, and the same code is stored once. A
//! definition appears only after its code is complete on disk. The code is verified when it is loaded; workers run in directories of their
//! own. Code is removed a day after nothing names it any longer: no function, and no definition in the journal, whose runs a repair may replay.

pub(crate) mod cancel;
mod listing;
pub(crate) mod steps;
mod store;
pub(crate) mod tasks;
mod tree;

pub use listing::{CodeItem, CodeListing, list_code};
pub(crate) use store::sweep;
pub use store::{StoreLock, sweep_scratch};
pub(crate) use tree::Sighting;

pub use self::cancel::cancel;
use crate::{DeadLetter, starter::try_out};
use millrace_journal::{End, Function, Transaction};
use millrace_namespace::{
    Definition, Ending, FunctionSpec, Namespace, Runtime, Shows, Site,
    admission::{Publish, Room, Stage},
    definition::DEAD_LETTER_HISTORY,
    found, no_function,
    runs::{
        fold::Fold,
        pending::{Pending, RecordOf, pending},
    },
};
use millrace_runtime::{Isolation, Limits, ProcessSpec, PythonSpec, WasmEngine};
use millrace_wire::{Code, Error, Name, Result};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// Directory of deployed code in a namespace.
const FUNCTIONS: &str = "functions";
/// Directory beside a namespace that is not there yet, in which the code of its first application is checked.
pub const CHECKED: &str = ".millrace.checked";
/// Directory of the working directories of a namespace's workers. It can be removed when none runs.
const SCRATCH: &str = "scratch";
/// Most runs that are given up in one commit when a function is removed.
const DROP_MAX: usize = 1000;
/// About how many bytes of dead letters go with them.
const GIVE_UP_BYTES_MAX: usize = 128 << 10;

/// Returns how code is kept apart from this process while it is checked. It is called only if that is needed.
pub type Apart<'a> = &'a dyn Fn() -> Result<Arc<Isolation>>;

/// The result of a deployment.
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
    /// The changes.
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

    /// Checks that the code can be started at all, without a sandbox.
    pub fn validate(&self, spec: &FunctionSpec, slow: &mut dyn FnMut(&str)) -> Result<()> {
        match self {
            Launch::Wasm { module, export } => wasm_engine()?.validate(module, export),
            Launch::Python(python) => {
                python.validate(limits(spec), &mut |within| slow(&still_importing(&python.module, within)))
            }
            Launch::Process(process) | Launch::Oneshot(process) => process.validate(),
        }
    }
}

/// What is said of an import that takes long.
pub(crate) fn still_importing(module: &str, within: std::time::Duration) -> String {
    format!("still importing the module '{module}'; it fails after {} s", within.as_secs())
}

/// The limits of one run of this function.
pub(crate) fn limits(spec: &FunctionSpec) -> Limits {
    Limits {
        timeout: spec.timeout,
        memory_max_bytes: spec.memory_max_bytes,
        output_max_bytes: usize::try_from(spec.output_max_bytes).unwrap_or(usize::MAX),
        ..Limits::default()
    }
}

/// The value of [`Definition::code`] if this source were deployed.
pub fn code_hash(source: &Path) -> Result<String> {
    tree::hash(source)
}

/// Verifies that the code with this hash is in the namespace, and is what was deployed.
pub fn check_code(namespace_dir: &Path, code: &str) -> Result<()> {
    let dir = namespace_dir.join(FUNCTIONS).join(code);
    match tree::hash(&dir)? {
        found if found == code => Ok(()),
        found => Err(Code::CodeMissing.error(format!("code '{}' was changed: its hash is now {found}", dir.display()))),
    }
}

/// Verifies that the code with this hash is in the namespace and unchanged, without reading it if its metadata are those of `before`. Files
/// that are never part of a function, such as caches, are removed.
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

/// Copies a function's code into a namespace's directory and checks that it can be started. Nothing is defined.
///
/// Functions in `checked` with the same code and declaration were checked already. With `apart` the function's program is started in a
/// sandbox only; without it, as in tests, with the rights of this process. `slow` is called if a check takes long.
pub fn prepare(
    dir: &Path,
    spec: &FunctionSpec,
    source: &Path,
    checked: &[Definition],
    apart: Option<Apart<'_>>,
    slow: &mut dyn FnMut(&str),
) -> Result<Definition> {
    spec.validate()?;
    let context = |error: Error| error.within(format!("function '{}'", spec.name));
    let stored = tree::store(source, &dir.join(FUNCTIONS)).map_err(context)?;
    let spec = spec.clone();
    let mut definition =
        Definition { spec, code: stored.hash, file: stored.file, application: None, confined: false, removing: false };
    if definition.spec.runtime == Runtime::Wasm && definition.file.is_none() {
        definition.file = Some(only_module(&dir.join(FUNCTIONS).join(&definition.code)).map_err(context)?);
    }
    if !checked.contains(&definition) {
        match apart {
            // Importing a module runs it.
            Some(apart) if definition.spec.runtime != Runtime::Wasm => {
                apart().and_then(|isolation| try_out(dir, &definition, &isolation, slow))
            }
            _ => Launch::of(dir, &definition).validate(&definition.spec, slow),
        }
        .map_err(context)?;
    }
    Ok(definition)
}

/// The process's one WebAssembly engine, set up when it is first needed.
pub(crate) fn wasm_engine() -> Result<Arc<WasmEngine>> {
    static ENGINE: OnceLock<Result<Arc<WasmEngine>>> = OnceLock::new();
    ENGINE.get_or_init(WasmEngine::new).clone()
}

/// Deploys a function: copies its code from `source` (a file or a directory), checks it and defines it.
///
/// The logs it is bound to must exist; its dead-letter log is made if need be. Nothing changes when this fails. The check of the code is not
/// kept apart from this process; see [`deploy_with`].
pub fn deploy(namespace: &Namespace, spec: &FunctionSpec, source: &Path) -> Result<Deployed> {
    deploy_with(namespace, spec, source, None, &mut |_| ())
}

/// [`deploy`]; `apart` and `slow` are those of [`prepare`].
pub fn deploy_with(
    namespace: &Namespace,
    spec: &FunctionSpec,
    source: &Path,
    apart: Option<Apart<'_>>,
    slow: &mut dyn FnMut(&str),
) -> Result<Deployed> {
    // Until the function is defined, only this keeps the code from being removed.
    let _lock = StoreLock::shared(namespace.dir())?;
    let definition = prepare(namespace.dir(), spec, source, &[], apart, slow)?;
    let committed = namespace.journal().commit(|tx| define(tx, &definition))?;
    namespace.settle(Site::Deploy, Shows::Report(committed.end), None)?;
    Ok(Deployed { name: spec.name.clone(), code: definition.code, change: committed.value })
}

/// Defines functions and removes others in one commit, and returns the changes. Functions of `gone` with pending runs accept no new runs
/// and are left to [`give_up`]; without `force` they are an error. `check` may refuse the change, given the current definitions; `note`
/// writes further entries in the same batch, if anything changes.
pub fn redefine<'a>(
    namespace: &Namespace,
    definitions: &[Definition],
    gone: &[&'a Name],
    force: bool,
    check: &dyn Fn(&mut Transaction<'_>) -> Result<()>,
    note: &dyn Fn(&mut Transaction<'_>) -> Result<()>,
) -> Result<(Vec<Change>, Vec<&'a Name>)> {
    let committed = namespace.journal().commit(|tx| {
        check(tx)?;
        let mut left = Vec::new();
        for &name in gone {
            let Some(function) = tx.catalog().function(name).cloned() else { continue };
            match (tx.pending(function.id()), force) {
                (0, _) => tx.remove_function(name)?,
                (pending, false) => return Err(pending_runs(&[(name, pending)])),
                (_, true) => {
                    take_no_more(tx, name, &function)?;
                    left.push(name);
                }
            }
        }
        let changes = definitions.iter().map(|definition| define(tx, definition)).collect::<Result<Vec<_>>>()?;
        if !gone.is_empty() || changes.iter().any(|change| *change != Change::Unchanged) {
            note(tx)?;
        }
        Ok((changes, left))
    })?;
    namespace.settle(Site::Deploy, Shows::Report(committed.end), None)?;
    Ok(committed.value)
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
    namespace.settle(Site::RemoveFunction, Shows::Report(committed.end), None)
}

/// Removes a function and gives up its pending runs: each ends as a dead letter, and one in progress publishes
/// nothing. How many they were.
pub fn give_up(namespace: &Namespace, name: &Name) -> Result<u64> {
    // First it takes no new runs, so that the giving up below has an end.
    namespace.journal().commit(|tx| {
        let function = tx.catalog().function(name).cloned().ok_or_else(|| no_function(name))?;
        take_no_more(tx, name, &function)
    })?;
    let mut given_up = 0;
    loop {
        let committed = namespace.journal().commit(|tx| give_up_some(namespace, tx, name))?;
        match committed.value {
            0 => return namespace.settle(Site::GiveUpFunction, Shows::Report(committed.end), None).map(|()| given_up),
            some => given_up += some,
        }
    }
}

/// Gives up some pending runs of the function and returns their number; or removes the function once there are none.
fn give_up_some(namespace: &Namespace, tx: &mut Transaction<'_>, name: &Name) -> Result<u64> {
    let Some(function) = tx.catalog().function(name).cloned() else { return Ok(0) };
    let runs = pending(namespace.journal(), &function, 1).filter_map(|run| run.map(Pending::found).transpose());
    let runs: Vec<Fold> = runs.take(DROP_MAX).collect::<Result<_>>()?;
    if runs.is_empty() {
        return tx.remove_function(name).map(|()| 0);
    }
    let error = Code::FunctionRemoved.error(format!("function '{name}' was removed while the run was pending"));
    let definition = Definition::from_attributes(name, function.attributes());
    let publish = Publish::new(namespace, tx);
    let (mut given_up, mut bytes) = (0, 0);
    for run in &runs {
        let (log, seqno) = run.record;
        let of_log = tx.catalog().log_by_id(log).cloned();
        let record = |log| RecordOf { run: (run.function, run.run.number), cause: run.cause, log, seqno };
        let payload = of_log.as_ref().and_then(|log| namespace.record_of_run(record(log)).ok());
        let record = (of_log.as_ref().map_or("", |log| log.name()), seqno, payload.as_deref());
        let letter = DeadLetter::new(run.run.id, name, record, run.attempts_begun(), &error).to_bytes();
        let begun = tx.next_sequence();
        bytes += letter.len();
        if given_up > 0 && bytes > GIVE_UP_BYTES_MAX {
            break;
        }
        // The dead-letter log of an unreadable definition is unknown.
        if let Ok(definition) = &definition {
            let (cause, ending) = (run.run.id, Some(function.id()));
            let stage = |ordinal| Stage { cause, ordinal, room: Room::DeadLetter, named: None, ending };
            publish.dead_letter(tx, &definition.spec.dead_letter, &letter, stage(0))?;
            if let (Some(log), Some(task)) = (&of_log, &payload) {
                tasks::leave_failure(&publish, tx, (log.name(), task), &error, stage(1))?;
            }
        }
        let (effects, fired) = (tx.next_sequence() - begun, run.newest.map_or(0, |fired| fired.id.sequence()));
        tx.done(function.id(), run.run, &End { effects, fired, ..Ending::dead(&error, &[]).to_end() })?;
        given_up += 1;
    }
    Ok(given_up)
}

/// The refusal to remove functions with pending runs.
pub fn pending_runs(functions: &[(&Name, u64)]) -> Error {
    let reported: Vec<String> = functions
        .iter()
        .map(|(name, pending)| {
            format!("function '{name}' has {pending} pending run{}", if *pending == 1 { "" } else { "s" })
        })
        .collect();
    Code::FunctionPending.error(reported.join(", "))
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

/// From now on no record runs the function.
fn take_no_more(tx: &mut Transaction<'_>, name: &Name, function: &Function) -> Result<()> {
    match Definition::from_attributes(name, function.attributes()) {
        Ok(definition) => {
            let removing = Definition { removing: true, ..definition };
            tx.define_function(name, &removing.to_attributes()).map(drop)
        }
        // Nothing is bound to a definition that cannot be read.
        Err(_) => Ok(()),
    }
}

/// Refuses a function that runs on devices in the place of one that runs here, whose pending runs nobody would execute; and the reverse.
fn check_place(existing: &Function, spec: &FunctionSpec) -> Result<()> {
    let at = Definition::from_attributes(existing.name(), existing.attributes()).map(|definition| definition.spec.at);
    match at {
        Ok(at) if at.is_some() != spec.at.is_some() => {
            let place = |at: bool| if at { "on devices" } else { "here" };
            let (now, then) = (place(at.is_some()), place(spec.at.is_some()));
            Err(Code::FunctionOnDevices.error(format!("function '{}' runs {now}, and would run {then}", spec.name)))
        }
        _ => Ok(()),
    }
}

/// Defines the function unless it already exists, the same in every respect.
fn define(tx: &mut Transaction<'_>, definition: &Definition) -> Result<Change> {
    let spec = &definition.spec;
    let catalog = tx.catalog().clone();
    for log in &spec.on {
        found(catalog.log(log), log)
            .map_err(|error| error.within(format!("function '{}' is bound to it", spec.name)))?;
    }
    if catalog.log(&spec.dead_letter).is_some_and(|log| log.table().is_some()) {
        let (function, log) = (&spec.name, &spec.dead_letter);
        let detail = format!("the dead letters of function '{function}' cannot go to '{log}', which is a table");
        return Err(Code::LogIsTable.error(detail));
    }
    if catalog.log(&spec.dead_letter).is_none() {
        tx.create_log(&spec.dead_letter, DEAD_LETTER_HISTORY)?;
    }
    let attributes = definition.to_attributes();
    if let Some(existing) = catalog.function(&spec.name) {
        check_place(existing, spec)?;
    }
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
