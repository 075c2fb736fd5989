//! As which functions of the namespace the runs of a device are imported.
//!
//! A function of a model of devices is declared in `millrace.toml` or deployed with `--at`, usually with a twin: its code as Wasm, with which
//! repairs replay the runs. The runs of a device that no such function fits make one without code: `DEVICE.NAME`.

use super::runs::{EndedRun, New};
use millrace_journal::Catalog;
use millrace_namespace::{
    Definition, FunctionSpec, Namespace, Runtime, bindings::Bindings, definition::BOUND_LOGS_MAX,
};
use millrace_wire::{LogName, Name, Result};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

/// The most functions that are defined for one device: its firmware has no more.
const FUNCTIONS_MAX: usize = 32;

/// By the name in the firmware and the log of the device: the function, if there is one.
#[derive(Default)]
pub(super) struct DeviceFunctions(HashMap<(String, String), Option<u32>>);

impl DeviceFunctions {
    /// The function whose run this is.
    pub fn get(&self, run: &EndedRun<'_>) -> Option<u32> {
        self.0.get(&(run.function.to_owned(), run.record.0.to_owned())).copied().flatten()
    }
}

/// The functions of these runs; those that do not exist are defined.
pub(super) fn of(namespace: &Namespace, device: &str, new: &[New<'_>]) -> Result<DeviceFunctions> {
    let mut functions = DeviceFunctions::default();
    for new in new {
        let New::Ended(run) = new else { continue };
        let key = (run.function.to_owned(), run.record.0.to_owned());
        if let Entry::Vacant(unknown) = functions.0.entry(key) {
            unknown.insert(of_run(namespace, device, run)?);
        }
    }
    Ok(functions)
}

fn of_run(namespace: &Namespace, device: &str, run: &EndedRun<'_>) -> Result<Option<u32>> {
    let log: LogName = format!("{device}/{}", run.record.0).parse()?;
    let known = namespace.bindings()?.of_device(run.function, &log);
    // Together, the names may be too long for one.
    let (Ok(name), Ok(at)) = (format!("{device}.{}", run.function).parse::<Name>(), device.parse::<Name>()) else {
        return Ok(known);
    };
    if known.is_some() {
        return Ok(known);
    }
    let committed = namespace.journal().commit(|tx| {
        let (catalog, bindings) = (tx.catalog().clone(), namespace.bindings_of(tx));
        let Some(definition) = definition(&catalog, &bindings, (&name, &at), &log) else { return Ok(None) };
        tx.define_function(&name, &definition.to_attributes()).map(|function| Some(function.id()))
    })?;
    Ok(committed.value)
}

/// The definition of a function of a device, which runs for one log more; none if there can be none.
fn definition(catalog: &Catalog, bindings: &Bindings, (name, at): (&Name, &Name), log: &LogName) -> Option<Definition> {
    catalog.log(log)?; // Otherwise none of its records is here.
    let of_device = |definition: &Arc<Definition>| definition.spec.at.as_ref() == Some(at);
    let Some(existing) = catalog.function(name) else {
        let own = bindings.functions().filter(|(_, known)| known.as_ref().is_ok_and(of_device)).count();
        let mut spec = FunctionSpec::new(name.clone(), Runtime::Wasm);
        (spec.at, spec.on) = (Some(at.clone()), vec![log.clone()]);
        return (own < FUNCTIONS_MAX).then(|| Definition::without_code(spec));
    };
    // A function that runs here may have the name.
    let mut definition =
        (**bindings.definition(existing.id()).filter(|known| of_device(known) && !known.removing)?).clone();
    definition.spec.on.push(log.clone());
    (definition.spec.on.len() <= BOUND_LOGS_MAX).then_some(definition)
}
