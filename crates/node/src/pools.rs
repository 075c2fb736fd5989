//! Pools of workers: the function that runs tasks, and the logs that they go through.

use crate::{Namespace, functions};
use millrace_namespace::{FunctionSpec, Runtime, definition::Rights, tasks};
use millrace_wire::{Code, Name, Result};
use std::path::Path;

/// The pool whose tasks this function runs.
pub(crate) fn of(spec: &FunctionSpec) -> Option<&str> {
    let pool = spec.on.iter().find_map(|log| tasks::pool_of(log))?;
    tasks::function(pool).is_ok_and(|name| name == spec.name).then_some(pool)
}

/// Creates a pool, or rebuilds it with other settings. `spec` has the settings of its workers; `source` is their code, which is checked
/// where `apart` keeps it from this process.
pub fn make(
    namespace: &Namespace,
    pool: &Name,
    spec: &FunctionSpec,
    source: &Path,
    apart: Option<functions::Apart<'_>>,
) -> Result<functions::Deployed> {
    if !matches!(spec.runtime, Runtime::Python | Runtime::Wasm) {
        let reported = format!("the workers of a pool run Python or a WebAssembly module, not {}", spec.runtime);
        return Err(Code::FunctionInvalid.error(reported));
    }
    let tasks = tasks::tasks(pool).parse()?;
    let name = tasks::function(pool)?;
    namespace.make_pool(pool)?;
    // A task reads its pool's bodies and appends its result; of the other logs it needs none.
    let rights = Rights { reads: Some(Vec::new()), appends: Some(Vec::new()), ..Rights::default() };
    let spec = FunctionSpec { name, on: vec![tasks], rights, ..spec.clone() };
    functions::deploy_with(namespace, &spec, source, apart, &mut |_| ())
}
