//! The functions that run for the records of a log: the catalog's definitions, parsed once for each version of the catalog.

use crate::{
    admission::{devices, mirrors},
    definition::Definition,
    replicas,
};
use millrace_journal::{Catalog, Log};
use millrace_wire::{Error, LogName, Result, TableMode};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

/// A function that runs for a record, and how many of its runs may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its id.
    pub function: u32,
    /// The number of waiting runs at which appends from outside are refused.
    pub pending_max: u64,
}

/// The definitions of one version of the catalog.
#[derive(Default)]
pub struct Bindings {
    version: u64,
    functions: HashMap<u32, Result<Arc<Definition>>>,
    by_log: HashMap<u32, Vec<Bound>>,
    mirrors: HashSet<u32>,
    of_devices: HashSet<u32>,
    replicas: HashSet<u32>,
    has_synchronous: bool,
}

impl Bindings {
    fn of(catalog: &Catalog) -> Self {
        let mirrors = mirrors::all(catalog).map(|(log, _)| log.id()).collect();
        let of_devices = devices::logs(catalog).map(Log::id).collect();
        let replicas = replicas::names(catalog).filter_map(|name| catalog.log(name)).map(Log::id).collect();
        let mut bindings = Self { version: catalog.version(), mirrors, of_devices, replicas, ..Self::default() };
        for function in catalog.functions() {
            let definition = Definition::from_attributes(function.name(), function.attributes()).map(Arc::new);
            // What runs on devices is imported with its runs.
            if let Ok(definition) = &definition
                && !definition.removing
                && definition.spec.at.is_none()
            {
                let bound = Bound { function: function.id(), pending_max: definition.spec.pending_max };
                for log in definition.spec.on.iter().filter_map(|name| catalog.log(name)) {
                    let of_log = bindings.by_log.entry(log.id()).or_default();
                    if !of_log.contains(&bound) {
                        of_log.push(bound);
                    }
                }
            }
            let is_synchronous = |it: &Arc<Definition>| it.spec.table_mode == Some(TableMode::Synchronous);
            bindings.has_synchronous |= definition.as_ref().is_ok_and(is_synchronous);
            bindings.functions.insert(function.id(), definition);
        }
        bindings
    }

    /// The version of their catalog.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The functions bound to a log.
    pub fn of_log(&self, log: u32) -> &[Bound] {
        self.by_log.get(&log).map_or(&[], Vec::as_slice)
    }

    /// Whether there is a function whose changes of tables are synchronous.
    pub fn has_synchronous(&self) -> bool {
        self.has_synchronous
    }

    /// Whether a log is the mirror of a topic.
    pub fn is_mirror(&self, log: u32) -> bool {
        self.mirrors.contains(&log)
    }

    /// Whether a log is a table that another namespace owns.
    pub fn is_replica(&self, log: u32) -> bool {
        self.replicas.contains(&log)
    }

    /// Whether a log has the records of a device.
    pub fn is_of_device(&self, log: u32) -> bool {
        self.of_devices.contains(&log)
    }

    /// The definition of a function, if it has a readable one.
    pub fn definition(&self, function: u32) -> Option<&Arc<Definition>> {
        self.functions.get(&function)?.as_ref().ok()
    }

    /// The function as which runs of a device are imported: with its name in the firmware, and bound there to this log, as `DEVICE/LOG`.
    pub fn of_device(&self, firmware: &str, log: &LogName) -> Option<u32> {
        let is_its = |definition: &Definition| {
            !definition.removing && definition.spec.of_firmware() == Some(firmware) && definition.spec.on.contains(log)
        };
        let found = self.functions().filter(|(_, definition)| definition.as_ref().is_ok_and(|it| is_its(it)));
        // The newest, if there are several.
        found.map(|(function, _)| function).max()
    }

    /// The twin of a function that runs on devices and has no code: the code of one that is bound to a log of it, under its name in the firmware.
    pub fn twin_of(&self, function: &Definition) -> Option<&Arc<Definition>> {
        let is_twin = |other: &Definition| {
            let is_same = other.spec.of_firmware().is_some() && other.spec.of_firmware() == function.spec.of_firmware();
            is_same && !other.is_without_code() && other.spec.on.iter().any(|log| function.spec.on.contains(log))
        };
        let twins =
            self.functions.iter().filter_map(|(id, other)| Some((id, other.as_ref().ok().filter(|it| is_twin(it))?)));
        twins.max_by_key(|(id, _)| **id).map(|(_, twin)| twin)
    }

    /// Every function with its definition, or why it cannot be read.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &Result<Arc<Definition>, Error>)> {
        self.functions.iter().map(|(id, definition)| (*id, definition))
    }
}

/// The bindings of the newest catalog seen; cheap to ask while the catalog stays the same.
#[derive(Default)]
pub struct BindingsCache(RwLock<Arc<Bindings>>);

impl BindingsCache {
    /// The bindings of `catalog`.
    pub fn get(&self, catalog: &Catalog) -> Arc<Bindings> {
        // The value is replaced as a whole, so a panic elsewhere cannot leave it incomplete.
        let cached = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if cached.version == catalog.version() {
            return cached;
        }
        let fresh = Arc::new(Bindings::of(catalog));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        fresh
    }
}
