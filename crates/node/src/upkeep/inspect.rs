//! Verifies a whole namespace: its journal, and the code that its functions need.

use super::backup;
use crate::{Namespace, functions, links::Links};
use millrace_dispatch::lost;
use millrace_journal::{CheckReport, Journal, LostRecords, Rebuilt, Salvaged};
use millrace_namespace::{FOLDER, holes, journal_dir};
use millrace_wire::{Error, Name, Result};
use std::{collections::BTreeMap, path::Path};

/// The remaining data of a namespace without its manifest.
const SEGMENTS: &str = "segments";

/// The findings of a verification.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Its journal.
    pub journal: CheckReport,
    /// The damaged parts of a backup.
    pub files: Vec<Error>,
    /// The replacement of the lost parts of its manifest and its definitions.
    pub rebuilt: Option<Rebuilt>,
    /// Ranges that were durable once and are lost.
    pub holes: usize,
    /// Records that cannot be read although their logs should have them.
    pub lost: Vec<LostRecords>,
    /// Records that were lost before the namespace was salvaged from another one: it is whole without them.
    pub missing: Vec<LostRecords>,
    /// Runs, by function, that were lost before, too: each was ended.
    pub missing_runs: BTreeMap<Name, u64>,
    /// Functions whose definition or code is damaged or missing.
    pub functions: Vec<Error>,
}

impl Inspection {
    /// Whether no problem was found.
    pub fn is_sound(&self) -> bool {
        self.journal.fault_count == 0
            && self.files.is_empty()
            && self.rebuilt.is_none()
            && self.holes == 0
            && self.functions.is_empty()
            && self.lost.iter().all(|lost| lost.unproven)
    }
}

/// Reads the namespace in `dir`, which no process may have open, or a backup, without changing it.
pub fn view(dir: &Path) -> Result<Namespace> {
    crate::check_directory(dir)?;
    if backup::is_backup(dir) {
        return backup::view(dir);
    }
    let (found, inner) = (journal_dir(dir), dir.join(FOLDER));
    let is_lost_within = !found.join(SEGMENTS).exists() && inner.join(SEGMENTS).exists();
    Ok(Namespace::over(Journal::view(if is_lost_within { &inner } else { &found })?))
}

/// Verifies everything. `progress` gets the verified bytes and the total.
pub fn examine(namespace: &Namespace, progress: &mut dyn FnMut(u64, u64)) -> Result<Inspection> {
    let files = if backup::is_backup(namespace.dir()) { backup::faults(namespace.dir(), progress) } else { Vec::new() };
    examine_with(namespace, files, progress)
}

/// The same, if the damaged files of a backup are already known.
pub(super) fn examine_with(
    namespace: &Namespace,
    files: Vec<Error>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Inspection> {
    let report = namespace.journal().check(progress)?;
    let recovery = namespace.journal().recovery();
    let (holes, rebuilt) = (recovery.damaged.len(), recovery.rebuilt.clone());
    let (missing_runs, missing, lost) = holes::reported(namespace.journal(), namespace.journal().lost_records()?)?;
    let mut faulty = Vec::new();
    for function in namespace.functions()? {
        let fault = match &function.definition {
            Ok(definition) if definition.is_without_code() => None,
            Ok(definition) => functions::check_code(namespace.dir(), &definition.code).err(),
            Err(error) => Some(error.clone()),
        };
        faulty.extend(fault.map(|error| error.within(format!("function '{}'", function.name))));
    }
    namespace.journal().check_undisturbed()?;
    Ok(Inspection { journal: report, files, rebuilt, holes, lost, missing, missing_runs, functions: faulty })
}

/// The salvaged and the lost parts of a damaged namespace.
#[derive(Clone, Debug)]
pub struct Saved {
    /// Entries and records.
    pub journal: Salvaged,
    /// Runs that are lost, by function. Each was ended, with a dead letter.
    pub lost_runs: BTreeMap<Name, u64>,
}

/// Copies everything in a view that is intact into a new namespace in `to`. Damaged code is omitted; the copy remembers which records and
/// runs it lacks.
pub fn salvage(view: &Namespace, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Saved> {
    let from = view.dir().to_owned();
    view.journal().check_undisturbed()?;
    let mut lost_runs = BTreeMap::new();
    let journal = view.journal().salvage(to, progress, &mut |dir, journal, salvaged| {
        for function in view.functions()? {
            if let Ok(definition) = &function.definition
                && !definition.is_without_code()
                && functions::check_code(&from, &definition.code).is_ok()
            {
                functions::copy_code(&from, &definition.code, dir)?;
            }
        }
        lost_runs = lost::settle(&Namespace::over(journal.clone()), view.journal(), &mut |_, _| {})?;
        holes::tell(journal, &salvaged.lost, &lost_runs)?;
        Links::stop_restored(journal)
    })?;
    view.journal().check_undisturbed()?;
    Ok(Saved { journal, lost_runs })
}
