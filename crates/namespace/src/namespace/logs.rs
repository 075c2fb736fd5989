//! Logs: they are created, keep another number of records, are removed.

use super::{Namespace, found};
use crate::{
    gate::{Gated, Shows, Site},
    names,
    runs::{
        fold::Fold,
        pending::{Pending, pending},
    },
};
use millrace_journal::{Catalog, Log, Transaction};
use millrace_wire::{Code, LogName, Result};
use std::collections::HashMap;

impl Namespace {
    /// Makes a log that keeps its `history` newest records readable; one with the same attributes is left as it is.
    pub fn create_log(&self, name: &LogName, history: u64) -> Result<Log> {
        self.out(self.create_log_gated(name, history), None)
    }

    /// [`Namespace::create_log`], still held at the gate.
    pub fn create_log_gated(&self, name: &LogName, history: u64) -> Result<Gated<Log>> {
        names::check_public(name)?;
        let committed = self.journal().commit(|tx| tx.create_log(name, history))?;
        Ok(self.gate().hold(Site::CreateLog, committed.value, Shows::Report(committed.end), None))
    }

    /// Has a log keep another number of its newest records; whether it kept a different one. See
    /// [`millrace_journal::Transaction::set_history`].
    pub fn set_history(&self, name: &LogName, history: u64) -> Result<bool> {
        let changed = self.out(self.set_history_gated(name, None, history), None)?;
        self.reclaim_alone();
        Ok(changed)
    }

    /// [`Namespace::set_history`], still held at the gate. It is refused if the log no longer keeps `from` records, on which the caller's
    /// decision was based.
    pub fn set_history_gated(&self, name: &LogName, from: Option<u64>, history: u64) -> Result<Gated<bool>> {
        names::check_public(name)?;
        let committed = self.journal().commit(|tx| {
            let log = found(tx.catalog().log(name), name)?.clone();
            if from.is_some_and(|from| from != log.history()) {
                return Err(Code::Busy.error(format!("the history of log '{name}' was changed meanwhile")));
            }
            tx.set_history(&log, history)
        })?;
        Ok(self.gate().hold(Site::CreateLog, committed.value, Shows::Report(committed.end), None))
    }

    /// Removes a log that no function is bound to and no pending run was caused by.
    pub fn remove_log(&self, name: &LogName) -> Result<()> {
        self.out(self.remove_log_gated(name), None)?;
        self.reclaim_alone();
        Ok(())
    }

    /// [`Namespace::remove_log`], still held at the gate.
    pub fn remove_log_gated(&self, name: &LogName) -> Result<Gated<()>> {
        names::check_public(name)?;
        // Pending runs up to here are checked before the lock is taken, so that no other process waits; later ones under the lock.
        let counted = self.journal().commit(|tx| {
            Ok(tx.catalog().functions().map(|function| (function.id(), function.triggered())).collect())
        })?;
        let counted: HashMap<u32, u64> = counted.value;
        let id = self.log(name)?.id();
        let mut user = self.pending_run_of(&*self.journal().catalog()?, id, &|_| 1)?;
        loop {
            let committed = self.journal().commit(|tx| {
                let catalog = tx.catalog().clone();
                let log = found(catalog.log(name), name)?;
                if let Some(database) = log.table().and_then(|table| table.database) {
                    let detail = format!("table '{name}' is written to database '{database}'");
                    return Err(Code::TableInDatabase.error(detail));
                }
                if let Some(user) = self.user_of(tx, log) {
                    return Err(Code::LogInUse.error(format!("log '{name}' is in use: {user}")));
                }
                let begun = self.pending_run_of(&catalog, log.id(), &|function| {
                    counted.get(&function).map_or(1, |counted| counted + 1)
                })?;
                let is_pending = |fold: &Fold| {
                    let function = catalog.function_by_id(fold.function);
                    function.and_then(|function| function.run(fold.run.number)).is_some_and(|item| item.closed == 0)
                };
                if let Some(fold) = begun.or_else(|| user.clone().filter(is_pending)) {
                    let user = format!("run {}, which one of its records caused, is pending", fold.run.id);
                    return Err(Code::LogInUse.error(format!("log '{name}' is in use: {user}")));
                }
                if user.is_some() {
                    return Ok(false);
                }
                super::times::forget(tx, log)?;
                tx.remove_log(name).map(|()| true)
            })?;
            if committed.value {
                self.tables().forget(id);
                return Ok(self.gate().hold(Site::RemoveLog, (), Shows::Report(committed.end), None));
            }
            // That one has ended; there may be others.
            user = self.pending_run_of(&*self.journal().catalog()?, id, &|_| 1)?;
        }
    }

    /// A pending run that a record of this log caused, among those of each function from a number on.
    pub(crate) fn pending_run_of(
        &self,
        catalog: &Catalog,
        log: u32,
        from: &dyn Fn(u32) -> u64,
    ) -> Result<Option<Fold>> {
        for function in catalog.functions() {
            for run in pending(self.journal(), function, from(function.id())) {
                if let Pending::Run(fold) = run?
                    && fold.record.0 == log
                {
                    return Ok(Some(*fold));
                }
            }
        }
        Ok(None)
    }

    /// The reason why this log is needed, if any.
    fn user_of(&self, tx: &mut Transaction<'_>, log: &Log) -> Option<String> {
        let bindings = self.bindings_of(tx);
        if bindings.is_mirror(log.id()) {
            return Some("it is the mirror of a topic".to_owned());
        }
        if bindings.is_of_device(log.id()) {
            return Some("it has the records of a device".to_owned());
        }
        if bindings.is_replica(log.id()) {
            return Some("it is the replica of a table of another namespace".to_owned());
        }
        for (function, definition) in bindings.functions() {
            if let Ok(definition) = definition {
                let spec = &definition.spec;
                // A function that runs on devices runs for none of its records any more.
                if spec.on.contains(log.name()) && spec.at.is_none() {
                    return Some(format!("function '{}' is bound to it", spec.name));
                }
                if spec.dead_letter == *log.name() && tx.pending(function) > 0 {
                    return Some(format!(
                        "function '{}' has pending runs and leaves its dead letters there",
                        spec.name
                    ));
                }
            }
        }
        None
    }
}
