//! Publication: records here and messages elsewhere, staged in one batch of the journal.

use super::{Room, Stage, append, append_by};
use crate::{
    Namespace,
    bindings::Bindings,
    definition::DEAD_LETTER_HISTORY,
    outbox::{NewMessage, Outgoing, topics::NewPublish},
};
use millrace_journal::{Appended, Log, Position, Row, Transaction};
use millrace_tables::batch::{Change, Changes, Current, Restated};
use millrace_wire::{
    Code, DatabaseName, EventId, Headers, LogName, Result,
    table::{KeyRange, TableRequest},
};
use std::{collections::HashMap, sync::Arc};

/// Stages the records and messages of one batch, for a caller, a run or a delivery. It keeps track of the messages that the batch has added
/// to outboxes, which are not readable yet. Everything becomes visible with the batch, or nothing does.
pub struct Publish<'a> {
    namespace: &'a Namespace,
    bindings: Arc<Bindings>,
    outgoing: Outgoing,
    changes: Changes,
    /// What the batch writes to databases.
    written: HashMap<DatabaseName, DatabaseShare>,
}

/// What a batch writes to one database.
struct DatabaseShare {
    limits: (usize, usize, usize),
    rows: usize,
    bytes: usize,
}

impl<'a> Publish<'a> {
    /// Begins with the definitions that the batch meets.
    pub fn new(namespace: &'a Namespace, tx: &mut Transaction<'_>) -> Self {
        Self {
            namespace,
            bindings: namespace.bindings_of(tx),
            outgoing: Outgoing::default(),
            changes: Changes::default(),
            written: HashMap::new(),
        }
    }

    /// The definitions that the batch meets.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Stages a record and the runs that it triggers; nothing if it is refused.
    pub fn append(&self, tx: &mut Transaction<'_>, log: &Log, payload: &[u8], stage: Stage) -> Result<Appended> {
        append(tx, &self.bindings, log, payload, stage)
    }

    /// The same of a record to which a client gives headers.
    pub fn append_headed(
        &self,
        tx: &mut Transaction<'_>,
        log: &Log,
        payload: &[u8],
        headers: &Headers,
        stage: Stage,
    ) -> Result<Appended> {
        append_by(tx, &self.bindings, log, stage, |tx| {
            tx.append_headed(log, payload, headers, (stage.cause, stage.ordinal))
        })
    }

    /// Stages a change of a table, as of now, and the runs that it triggers. `None` if nothing changes: the key that is to be deleted has no value.
    pub fn change(
        &mut self,
        tx: &mut Transaction<'_>,
        log: &Log,
        request: &TableRequest<'_>,
        now_us: u64,
        stage: Stage,
    ) -> Result<Option<(Appended, Change)>> {
        let (TableRequest::Put { key, .. } | TableRequest::Delete { key, .. } | TableRequest::Increment { key, .. }) =
            *request
        else {
            return Ok(None);
        };
        self.check_owned(log)?;
        if let Some(database) = log.table().and_then(|table| table.database) {
            self.admit(tx, &database)?;
        }
        let tables = (self.namespace.tables(), self.namespace.journal());
        let Some(change) = self.changes.change(tables, log, request, now_us)? else { return Ok(None) };
        let claimed = matches!(stage.room, Room::Outside | Room::Mirror);
        if let Some(database) = log.table().and_then(|table| table.database) {
            self.count(&database, key, &change.value)?;
        }
        let appended = append_by(tx, &self.bindings, log, stage, |tx| {
            tx.append_row(log, &change.row(key), &change.value, (stage.cause, stage.ordinal), claimed)
        })?;
        self.changes.staged(log.id(), key, &change, appended.seqno, stage.cause);
        Ok(Some((appended, change)))
    }

    /// Refuses a change of a table that another namespace owns.
    fn check_owned(&self, log: &Log) -> Result<()> {
        match self.bindings.is_replica(log.id()) {
            true => Err(self.namespace.refuse_change(log.name())),
            false => Ok(()),
        }
    }

    /// Stages a record of a table that its owner has written, with its number and all that it says. `None` if that is no longer the next one.
    pub fn import_row(
        &mut self,
        tx: &mut Transaction<'_>,
        log: &Log,
        seqno: u64,
        (row, value): (&Row<'_>, &[u8]),
        (cause, runs): (EventId, bool),
    ) -> Result<()> {
        let tables = (self.namespace.tables(), self.namespace.journal());
        let change = self.changes.late(tables, log, row, value)?;
        let stage = Stage { cause, ordinal: 0, room: Room::Mirror, named: None, ending: None };
        let append =
            |tx: &mut Transaction<'_>| tx.append_row_at(log, seqno, (&change.row(row.key), value), stage.cause);
        match runs {
            true => append_by(tx, &self.bindings, log, stage, append)?,
            false => append(tx)?,
        };
        self.changes.staged(log.id(), row.key, &change, seqno, cause);
        Ok(())
    }

    /// Refuses a change of a table whose database is too far behind.
    fn admit(&mut self, tx: &mut Transaction<'_>, database: &DatabaseName) -> Result<()> {
        if !self.written.contains_key(database) {
            let settings = self.namespace.database(database)?;
            self.namespace.check_backlog(&settings, tx.tail())?;
            self.written.insert(*database, DatabaseShare { limits: settings.limits(), rows: 0, bytes: 0 });
        }
        Ok(())
    }

    /// Refuses a batch that no transaction of the database can contain: its writes reach the database together, or not at all.
    fn count(&mut self, database: &DatabaseName, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(DatabaseShare { limits: (rows_max, bytes_max, value_max), rows, bytes }) =
            self.written.get_mut(database)
        else {
            return Ok(());
        };
        let (all, more) = (*rows + 1, *bytes + key.len() + value.len());
        let counts =
            [("rows", all, *rows_max), ("bytes", more, *bytes_max), ("bytes in a value", value.len(), *value_max)];
        if let Some((what, count, limit)) = counts.into_iter().find(|(_, count, limit)| count > limit) {
            let detail = format!("{count} {what} in one batch; the limit of database '{database}' is {limit}");
            return Err(Code::DatabaseLimit.error(detail));
        }
        (*rows, *bytes) = (all, more);
        Ok(())
    }

    /// Stages that a key whose value has expired has none any more; whether that is still so.
    pub fn expire(
        &mut self,
        tx: &mut Transaction<'_>,
        log: &Log,
        key: &[u8],
        now_us: u64,
        stage: Stage,
    ) -> Result<bool> {
        let tables = (self.namespace.tables(), self.namespace.journal());
        let Some(change) = self.changes.expiry(tables, log, key, now_us)? else { return Ok(false) };
        let appended = append_by(tx, &self.bindings, log, stage, |tx| {
            tx.append_row(log, &change.row(key), b"", (stage.cause, stage.ordinal), false)
        })?;
        self.changes.staged(log.id(), key, &change, appended.seqno, stage.cause);
        Ok(true)
    }

    /// Stages what a key has in the repaired history, if it has something else now; returns whether it has. No function runs for the record:
    /// the repair replays those that ran for the records whose values it restates.
    pub fn restate(
        &mut self,
        tx: &mut Transaction<'_>,
        log: &Log,
        key: &[u8],
        restated: &Restated<'_>,
        replaces: impl FnOnce(u64) -> bool,
    ) -> Result<bool> {
        self.check_owned(log)?;
        let tables = (self.namespace.tables(), self.namespace.journal());
        let Some(change) = self.changes.restatement(tables, log, key, restated, replaces)? else { return Ok(false) };
        if let Some(database) = log.table().and_then(|table| table.database) {
            self.admit(tx, &database)?;
            self.count(&database, key, &change.value)?;
        }
        let cause = (EventId::NONE, 0);
        let appended = tx.append_row(log, &change.row(key), &change.value, cause, false)?;
        self.changes.staged(log.id(), key, &change, appended.seqno, EventId::NONE);
        Ok(true)
    }

    /// Stages a record of a run that has ended, which a repair gives it in addition: what it does to its key is known. Functions bound to the
    /// table run for it.
    pub fn append_late(
        &mut self,
        tx: &mut Transaction<'_>,
        log: &Log,
        row: &Row<'_>,
        value: &[u8],
        stage: Stage,
    ) -> Result<()> {
        self.check_owned(log)?;
        if let Some(database) = log.table().and_then(|table| table.database) {
            self.admit(tx, &database)?;
            self.count(&database, row.key, value)?;
        }
        let tables = (self.namespace.tables(), self.namespace.journal());
        let change = self.changes.late(tables, log, row, value)?;
        let appended = append_by(tx, &self.bindings, log, stage, |tx| {
            tx.append_row(log, &change.row(row.key), value, (stage.cause, stage.ordinal), false)
        })?;
        self.changes.staged(log.id(), row.key, &change, appended.seqno, stage.cause);
        Ok(())
    }

    /// Whether no key of a range has changed since a position of the journal, but for keys of this batch that are known.
    pub fn is_unchanged(
        &self,
        log: &Log,
        range: KeyRange<'_>,
        since: Position,
        is_known: impl Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        let (tables, journal) = (self.namespace.tables(), self.namespace.journal());
        Ok(self.changes.keys(log.id(), range).all(is_known) && tables.is_unchanged(journal, log, range, since)?)
    }

    /// Whether no record was appended to these logs since a position of the journal.
    pub fn have_newest(&self, logs: impl Iterator<Item = u32>, since: Position) -> Result<bool> {
        let journal = self.namespace.journal();
        let catalog = journal.catalog()?;
        for id in logs {
            let Some(log) = catalog.log_by_id(id) else { return Ok(false) };
            match journal.latest_before(log, since) {
                Ok(latest) if latest == log.latest() => {}
                Err(error) if error.code() != Code::BelowHistory => return Err(error),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The newest version of a key of a table, of this batch or before it; its cause and value, too, on request.
    pub fn current(&self, log: &Log, key: &[u8], (now_us, with_value): (u64, bool)) -> Result<Current> {
        let tables = (self.namespace.tables(), self.namespace.journal());
        self.changes.current(tables, log, key, (now_us, with_value))
    }

    /// Stages a message to another namespace; nothing if there is no room for it.
    pub fn send(&mut self, tx: &mut Transaction<'_>, room: Room, letter: NewMessage<'_>) -> Result<Appended> {
        self.outgoing.append(self.namespace, tx, room, letter)
    }

    /// Stages a record that the host is to publish to a topic; nothing if there is no room for it.
    pub fn publish(&mut self, tx: &mut Transaction<'_>, room: Room, record: NewPublish<'_>) -> Result<Appended> {
        self.outgoing.publish(self.namespace, tx, room, record)
    }

    /// Stages a dead letter; its log is created if there is none.
    pub fn dead_letter(
        &self,
        tx: &mut Transaction<'_>,
        log: &LogName,
        letter: &[u8],
        stage: Stage,
    ) -> Result<(Log, Appended)> {
        let log = match tx.catalog().log(log).cloned() {
            Some(log) => log,
            None => tx.create_log(log, DEAD_LETTER_HISTORY)?,
        };
        let appended = append(tx, &self.bindings, &log, letter, stage)?;
        Ok((log, appended))
    }
}
