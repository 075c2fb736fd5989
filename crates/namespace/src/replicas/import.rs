//! At the replica: takes what the owner sends, each batch once and whole.

use super::{
    Followed, FollowedRecord, Owner, Replica, ReplicaStage, Stopped,
    state::{save_owner, save_replica},
};
use crate::{Namespace, admission::Publish, namespace::found};
use millrace_journal::{Log, Operation, Row, Transaction};
use millrace_wire::{Code, Error, EventId, LogName, NamespaceId, Result, table::TableOptions};
use std::collections::HashMap;

/// A commit takes so many batches of the owner, at least one.
const COMMIT_RECORDS: usize = 512;
const COMMIT_BYTES: usize = 256 << 10;
/// Numbers of records of one commit of a load: the index of the log has a place for each.
const LOAD_SPAN: u64 = 1 << 16;

/// What came of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// Everything is here.
    All,
    /// Somebody else has imported, or the replicas were changed: look again.
    Moved,
}

/// A replica that is being loaded, and up to which record of its owner's table it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loading {
    /// The replica.
    pub replica: Replica,
    /// The last record that it has.
    pub loaded: u64,
}

fn diverged(detail: String) -> Error {
    Code::ReplicaDiverged.error(detail)
}

impl Namespace {
    fn change_owner(&self, number: u32, change: impl FnOnce(&mut Owner) -> Result<()>) -> Result<()> {
        let committed = self.journal().commit(|tx| {
            let before = self.owner(number)?;
            let mut owner = before.clone();
            change(&mut owner)?;
            if owner != before {
                save_owner(tx, &owner)?;
            }
            Ok(())
        });
        committed.map(drop)
    }

    /// Notes who answers at the address of an owner.
    ///
    /// # Errors
    ///
    /// MR7334: another namespace did before.
    pub fn meet_owner(&self, number: u32, namespace: NamespaceId) -> Result<()> {
        match self.owner(number)?.id() {
            Some(known) if known == namespace => Ok(()),
            Some(known) => Err(diverged(format!("namespace {namespace} answers in place of {known}"))),
            None => self.change_owner(number, |owner| {
                owner.namespace = Some(namespace.get());
                Ok(())
            }),
        }
    }

    /// Nothing is imported from this owner until somebody decides.
    pub fn stop_owner(&self, number: u32, error: &Error) -> Result<()> {
        self.change_owner(number, |owner| {
            owner.stopped = Some(Stopped::by(error));
            Ok(())
        })
    }

    /// The replicas of an owner that has no other ones are loaded as of this entry.
    pub fn begin_at(&self, number: u32, position: EventId) -> Result<()> {
        self.change_owner(number, |owner| {
            owner.position = Some(position);
            Ok(())
        })
    }

    /// The replicas of an owner, or of these stages only, are loaded again; if all are, as of a later entry.
    pub fn load_again(&self, number: u32, stages: &[ReplicaStage]) -> Result<()> {
        let committed = self.journal().commit(|tx| {
            let its: Vec<_> = self.replicas()?.into_iter().filter(|(_, replica)| replica.owner == number).collect();
            let (again, others): (Vec<_>, Vec<_>) =
                its.into_iter().partition(|(_, replica)| stages.contains(&replica.stage));
            for (table, replica) in again {
                save_replica(tx, &table, &Replica { stage: ReplicaStage::New, ..replica })?;
            }
            let owner = self.owner(number)?;
            if others.iter().all(|(_, replica)| replica.stage != ReplicaStage::Following) && owner.position.is_some() {
                save_owner(tx, &Owner { position: None, ..owner })?;
            }
            Ok(())
        });
        committed.map(drop)
    }

    /// Makes an empty table for a replica that is to be loaded.
    ///
    /// # Errors
    ///
    /// Somebody else has made a log of its name, or a run needs a record of what it had.
    pub fn begin_load(&self, table: &LogName, followed: &Followed) -> Result<()> {
        let options: TableOptions = serde_json::from_str(&followed.options)
            .map_err(|error| Code::FrameMalformed.error(format!("the attributes of the table: {error}")))?;
        // The database is the owner's.
        let options = TableOptions { database: None, mode: Default::default(), ..options };
        let before = self.log(table).ok();
        if let Some(log) = &before
            && let Some(fold) = self.pending_run_of(&*self.journal().catalog()?, log.id(), &|_| 1)?
        {
            let detail = format!("run {}, which a record of table '{table}' caused, is pending", fold.run.id);
            return Err(Code::LogInUse.error(detail));
        }
        let committed = self.journal().commit(|tx| {
            let Some(replica) = self.replica(table)? else { return Ok(()) };
            if let Some(log) = tx.catalog().log(table).cloned() {
                if replica.log != Some(log.id()) {
                    let detail = format!("log '{table}' was created after the replica of this name");
                    return Err(Code::ReplicaExists.error(detail));
                }
                tx.remove_log(table)?;
            }
            let log = tx.create_table(table, replica.history, options)?;
            let (incarnation, log) = (Some(followed.incarnation), Some(log.id()));
            save_replica(tx, table, &Replica { incarnation, log, stage: ReplicaStage::Loading, ..replica })
        });
        committed?;
        if let Some(log) = before {
            self.tables().forget(log.id());
        }
        Ok(())
    }

    /// Takes records of a table that is being loaded, in the order of their seqnos. No function runs for them.
    pub fn load_records(&self, table: &LogName, records: &[FollowedRecord]) -> Result<()> {
        let mut rest = records;
        while let Some(first) = rest.first() {
            let log = self.log(table)?;
            // Those before are no records of the log any more: what is between them never was there.
            self.journal().commit(|tx| tx.pass_to(&log, first.seqno))?;
            let mut bytes = 0;
            let fits = |record: &&FollowedRecord| {
                bytes += record.key.len() + record.value.as_ref().map_or(0, Vec::len);
                let is_first = record.seqno == first.seqno;
                is_first || (bytes <= COMMIT_BYTES && record.seqno - first.seqno < LOAD_SPAN)
            };
            let count = rest.iter().take(COMMIT_RECORDS).take_while(fits).count();
            let (now, behind) = rest.split_at(count);
            self.journal().commit(|tx| {
                let mut publish = Publish::new(self, tx);
                for record in now {
                    import(tx, &mut publish, &log, record, false)?;
                }
                Ok(())
            })?;
            rest = behind;
        }
        Ok(())
    }

    /// Ends the load of a replica: it has all keys that its table had as of the entry. `latest` is the number of the newest record then.
    pub fn end_load(&self, table: &LogName, latest: u64) -> Result<()> {
        let log = self.log(table)?;
        self.journal().commit(|tx| if latest > 0 { tx.pass_to(&log, latest + 1) } else { Ok(()) })?;
        let committed = self.journal().commit(|tx| match self.replica(table)? {
            Some(replica) => save_replica(tx, table, &Replica { stage: ReplicaStage::Following, ..replica }),
            None => Ok(()),
        });
        committed.map(drop)
    }

    /// The replica that is being loaded, if it is, and its last record.
    pub fn loading(&self, table: &LogName) -> Result<Option<Loading>> {
        let Some(replica) = self.replica(table)?.filter(|replica| replica.stage == ReplicaStage::Loading) else {
            return Ok(None);
        };
        Ok(Some(Loading { replica, loaded: self.log(table)?.latest() }))
    }

    /// Imports whole batches of an owner behind an entry, in their order, and notes that they are imported up to another one. `tables` are the
    /// replicas, in the order in which the owner knows them.
    pub fn import_batches(
        &self,
        number: u32,
        tables: &[LogName],
        (from, upto): (EventId, EventId),
        records: &[FollowedRecord],
    ) -> Result<Imported> {
        let (mut rest, mut from) = (records, from);
        while !rest.is_empty() {
            let count = commit_of(rest);
            let (now, behind) = rest.split_at(count);
            let to = if behind.is_empty() { upto } else { now.last().map_or(upto, |record| record.id) };
            if !self.import_commit(number, tables, (from, to), now)? {
                return Ok(Imported::Moved);
            }
            (rest, from) = (behind, to);
        }
        Ok(Imported::All)
    }

    fn import_commit(
        &self,
        number: u32,
        tables: &[LogName],
        (from, to): (EventId, EventId),
        records: &[FollowedRecord],
    ) -> Result<bool> {
        let committed = self.journal().commit(|tx| {
            // A host that was suspended must not import again what another one has.
            let owner = self.owner(number)?;
            if owner.position != Some(from) || owner.stopped.is_some() {
                return Ok(false);
            }
            let catalog = tx.catalog().clone();
            let mut publish = Publish::new(self, tx);
            let mut next: HashMap<u32, u64> = HashMap::new();
            for record in records {
                let unknown = || Code::FrameMalformed.error("a record of a table that was not asked for");
                let table = tables.get(record.table as usize).ok_or_else(unknown)?;
                let log = found(catalog.log(table), table)?;
                let expected = next.entry(log.id()).or_insert_with(|| log.latest() + 1);
                if *expected != record.seqno {
                    let detail = format!("record {} of table '{table}' came in place of {expected}", record.seqno);
                    return Err(diverged(detail));
                }
                *expected += 1;
                tx.observe(record.hlc);
                import(tx, &mut publish, log, record, true)?;
            }
            save_owner(tx, &Owner { position: Some(to), ..owner })?;
            Ok(true)
        });
        Ok(committed?.value)
    }
}

/// How many records the next commit takes: whole batches.
fn commit_of(records: &[FollowedRecord]) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for (at, record) in records.iter().enumerate() {
        bytes += record.key.len() + record.value.as_ref().map_or(0, Vec::len);
        if count > 0 && (at >= COMMIT_RECORDS || bytes > COMMIT_BYTES) {
            break;
        }
        if record.ends {
            count = at + 1;
        }
    }
    if count == 0 { records.len() } else { count }
}

fn import(
    tx: &mut Transaction<'_>,
    publish: &mut Publish<'_>,
    log: &Log,
    record: &FollowedRecord,
    runs: bool,
) -> Result<()> {
    let operation = if record.value.is_some() { Operation::Put } else { Operation::Delete };
    let row = Row { key: &record.key, operation, expires_us: record.expires_us, ..Row::default() };
    publish.import_row(tx, log, record.seqno, (&row, record.value.as_deref().unwrap_or_default()), (record.id, runs))
}
