//! Verifying a whole namespace: its journal, and the code that its functions need.

use crate::{Namespace, deploy, links::Links, namespace::journal_dir};
use millrace_journal::{CheckReport, Journal, LostRecords, Salvaged};
use millrace_wire::{Error, Result};
use std::path::Path;

/// What a look at a whole namespace found.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Its journal.
    pub journal: CheckReport,
    /// Ranges that were durable once and are lost.
    pub holes: usize,
    /// Records that cannot be read although their logs should have them.
    pub lost: Vec<LostRecords>,
    /// Functions whose definition or code is not what it should be.
    pub functions: Vec<Error>,
}

impl Inspection {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.journal.fault_count == 0
            && self.holes == 0
            && self.functions.is_empty()
            && self.lost.iter().all(|lost| lost.unproven)
    }
}

/// A look at the namespace in `dir`, which nobody has open; nothing of it changes.
pub fn view(dir: &Path) -> Result<Namespace> {
    crate::check_directory(dir)?;
    Ok(Namespace::over(Journal::view(&journal_dir(dir))?))
}

impl Namespace {
    /// Verifies everything. `progress` is told bytes done and bytes in all.
    pub fn examine(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Inspection> {
        let report = self.journal().check(progress)?;
        let holes = self.journal().recovery().damaged.len();
        let lost = self.journal().lost_records()?;
        let mut functions = Vec::new();
        for function in self.functions()? {
            let fault = match &function.definition {
                Ok(definition) => deploy::check_code(self.dir(), &definition.code).err(),
                Err(error) => Some(error.clone()),
            };
            functions.extend(fault.map(|error| error.within(format!("function '{}'", function.name))));
        }
        self.journal().check_undisturbed()?;
        Ok(Inspection { journal: report, holes, lost, functions })
    }
}

/// Copies all that is whole in a view into a new namespace in `to`. Code that is not whole is left out.
pub fn salvage(view: &Namespace, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvaged> {
    let from = view.dir().to_owned();
    view.journal().check_undisturbed()?;
    let salvaged = view.journal().salvage(to, progress, &mut |dir, journal| {
        for function in view.functions()? {
            if let Ok(definition) = &function.definition
                && deploy::check_code(&from, &definition.code).is_ok()
            {
                deploy::copy_code(&from, &definition.code, dir)?;
            }
        }
        Links::stop_restored(journal)
    })?;
    view.journal().check_undisturbed()?;
    Ok(salvaged)
}
