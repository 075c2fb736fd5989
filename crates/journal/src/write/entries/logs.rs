//! The definitions of logs: they are created, keep another number of records, are trimmed, are removed.

use crate::write::commit::Transaction;
use crate::{
    catalog::{Definition, Log, check_history, defined_history},
    entry::{Header, Kind},
    store::index::Role,
};
use millrace_wire::{Code, EventId, LogName, Result, history, table::TableOptions};
use std::sync::Arc;

impl Transaction<'_> {
    /// Stages that the records of a log before `before` are no longer readable; nothing if they are not already. At most
    /// all records go, those staged in this batch included.
    pub fn trim(&mut self, log: &Log, before: u64) -> Result<()> {
        log.check_exists()?;
        if !log.is_of(&self.inner.control) {
            let own = self.own_log(log)?;
            return self.trim(&own, before);
        }
        if log.trim_to(self.number, before)? {
            let header = Header { kind: Kind::Trim as u8, subject: log.id(), seqno: before, ..Header::default() };
            self.stage(header, EventId::NONE, &[])?;
        }
        Ok(())
    }

    /// Stages a new log, or finds the one of that name if it has the same attributes. With a history of [`HISTORY_ALL`] it keeps
    /// its records until they are trimmed.
    pub fn create_log(&mut self, name: &LogName, history: u64) -> Result<Log> {
        self.create(name, history, None)
    }

    /// The same for a table. Its log keeps this number of its newest records; the newest of each key is kept however old it is.
    pub fn create_table(&mut self, name: &LogName, history: u64, table: TableOptions) -> Result<Log> {
        self.create(name, history, Some(table))
    }

    fn create(&mut self, name: &LogName, history: u64, table: Option<TableOptions>) -> Result<Log> {
        check_history(name, history)?;
        if let Some(log) = self.catalog().log(name) {
            if log.table().copied() != table {
                let (is, asked) = (log.table().map_or("no table", |_| "a table"), table.map_or("a log", |_| "a table"));
                let detail =
                    format!("log '{name}' exists and is {is} with these attributes; the request is for {asked}");
                return Err(Code::LogExists.error(detail));
            }
            if log.history() == history {
                return Ok(log.clone());
            }
            let (existing, asked) = (history::show(log.history()), history::show(history));
            return Err(Code::LogExists
                .error(format!("log '{name}' exists with history = {existing}; the request has history = {asked}")));
        }
        let id = self.catalog().next_id();
        let index = self.create_index(id, Role::Log { history })?;
        let log = Log::new(id, name.clone(), table, index, self.inner.control.clone());
        self.created.push(log.clone());
        self.define(id, &Definition::Log { id, name: name.clone(), history: defined_history(history), table })?;
        Arc::make_mut(self.catalog.as_mut().expect("just read")).insert_log(log.clone());
        Ok(log)
    }

    /// Stages another history of a log; whether it had a different one. A shorter one takes effect at once: the records beyond it
    /// are no longer readable. A longer one keeps what is there now and what comes; what had left the history stays gone.
    pub fn set_history(&mut self, log: &Log, history: u64) -> Result<bool> {
        check_history(log.name(), history)?;
        log.check_exists()?;
        if !log.is_of(&self.inner.control) {
            let own = self.own_log(log)?;
            return self.set_history(&own, history);
        }
        if log.history() == history {
            return Ok(false);
        }
        // Bytes of records that have left a shorter history are still in the journal: without a TRIM they would come back.
        let earliest = log.earliest();
        if earliest > 1 && log.history() < history {
            self.trim(log, earliest)?;
        }
        self.define_only(log.id(), &Definition::LogHistory { id: log.id(), history: defined_history(history) })?;
        Ok(true)
    }

    /// Stages the removal of a log and its records. Whether it is in use is for the caller to know.
    pub fn remove_log(&mut self, name: &LogName) -> Result<()> {
        let log = self.catalog().log(name).cloned();
        let log = log.ok_or_else(|| Code::LogNotFound.error(format!("no log '{name}'")))?;
        self.define(log.id(), &Definition::RemoveLog { id: log.id() })
    }
}
