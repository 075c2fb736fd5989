//! What devices have not run yet: records that are imported, and whose runs have not come.
//!
//! A device runs a function for the records of a log in order, and a run comes with its end ([`super::runs`]). So what is behind the record of the
//! newest run has not run.

use crate::{Definition, Namespace, RunFilter};
use millrace_namespace::admission::devices;
use millrace_wire::{LogName, Name, Result};
use std::collections::{HashMap, HashSet};

/// How many of a function's newest runs are read to find the last one of each log. What no run among them has is not known.
const RUNS_MAX: usize = 500;
/// How many functions are looked at for the whole namespace.
const FUNCTIONS_MAX: usize = 64;

/// Records for which a function of a device has not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDevice {
    /// The function.
    pub function: Name,
    /// The device.
    pub device: String,
    /// The log here.
    pub log: LogName,
    /// The first of these records.
    pub from: u64,
    /// How many there are.
    pub records: u64,
}

/// The devices of the namespace that have logs to which this function is bound.
pub fn devices_of(namespace: &Namespace, definition: &Definition) -> Result<Vec<String>> {
    let catalog = namespace.journal().catalog()?;
    let known: HashSet<&str> = devices::all(&catalog).map(|(device, _)| device).collect();
    let mut found: Vec<String> = Vec::new();
    for (device, _) in definition.spec.on.iter().filter_map(|log| log.split_once('/')) {
        if known.contains(device) && !found.iter().any(|other| other == device) {
            found.push(device.to_owned());
        }
    }
    Ok(found)
}

/// What the devices have not run of a function.
pub fn pending_of(namespace: &Namespace, definition: &Definition) -> Result<Vec<OnDevice>> {
    let devices = devices_of(namespace, definition)?;
    if devices.is_empty() || definition.removing {
        return Ok(Vec::new());
    }
    let function = &definition.spec.name;
    let filter = RunFilter { function: Some(function.clone()), limit: RUNS_MAX, ..RunFilter::default() };
    let page = namespace.runs_page(&filter)?;
    let mut newest: HashMap<LogName, u64> = HashMap::new();
    for run in &page.runs {
        let Some(log) = &run.record.log else { continue };
        let seqno = newest.entry(log.clone()).or_default();
        *seqno = run.record.seqno.max(*seqno);
    }
    let are_all = page.next.is_none() && page.runs.len() < RUNS_MAX;
    let catalog = namespace.journal().catalog()?;
    let mut found = Vec::new();
    for name in &definition.spec.on {
        let Some(device) = name.split_once('/').map(|(device, _)| device) else { continue };
        let Some(log) = catalog.log(name).filter(|_| devices.iter().any(|known| known == device)) else { continue };
        let last = match newest.get(name) {
            Some(seqno) => *seqno,
            None if are_all => 0,
            None => continue,
        };
        let from = (last + 1).max(log.earliest());
        if from <= log.latest() {
            let (function, device, records) = (function.clone(), device.to_owned(), log.latest() + 1 - from);
            found.push(OnDevice { function, device, log: name.clone(), from, records });
        }
    }
    Ok(found)
}

/// What the devices of a namespace have not run.
pub fn pending(namespace: &Namespace) -> Result<Vec<OnDevice>> {
    let bindings = namespace.bindings()?;
    let known = bindings.functions().filter_map(|(_, definition)| definition.as_deref().ok());
    let mut found = Vec::new();
    for definition in known.filter(|definition| definition.spec.at.is_some()).take(FUNCTIONS_MAX) {
        found.extend(pending_of(namespace, definition)?);
    }
    Ok(found)
}
