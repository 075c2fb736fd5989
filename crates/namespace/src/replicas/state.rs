//! Which tables are replicas, and how far each owner is imported.

use crate::{
    Namespace,
    gate::{Gated, Shows, Site},
    names::{internal, newest_note, note},
};
use millrace_journal::{Catalog, Log, Transaction};
use millrace_wire::{Address, Code, Error, EventId, LogName, NamespaceId, Peer, Result, table::TableOptions};
use serde::{Deserialize, Serialize};

/// The prefix of the logs that mark replicas.
const REPLICA: &str = "_replica/";
/// This log exists once there has been a replica: a namespace without it is not searched for replicas.
const NOTES: &str = "_replicas";
/// The prefix of the logs of owners.
const OWNER: &str = "_owner/";
/// How many states are kept, for people.
const HISTORY: u64 = 16;
/// Most owners of one namespace's replicas.
const OWNERS_MAX: usize = 64;

/// How far a replica is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaStage {
    /// It has to be loaded.
    #[default]
    New,
    /// It has some of the records that its table had at the owner's entry up to which it follows.
    Loading,
    /// It follows.
    Following,
}

/// A table that is a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Its owner, by number.
    pub owner: u32,
    /// The table at the owner.
    pub table: LogName,
    /// How many of its newest records can be read as a log.
    #[serde(with = "millrace_wire::history")]
    pub history: u64,
    /// Which table of its name it is at the owner, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u32>,
    /// Its log here, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<u32>,
    /// How far it is.
    pub stage: ReplicaStage,
}

/// Why nothing is imported any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The code of the error.
    pub code: String,
    /// Its description.
    pub detail: String,
}

impl Stopped {
    /// Stopped by this error.
    pub fn by(error: &Error) -> Self {
        Self { code: error.code().id().to_owned(), detail: error.detail().to_owned() }
    }
}

/// Another namespace that owns tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its number here.
    #[serde(skip)]
    pub number: u32,
    /// Its address.
    pub address: String,
    /// Its identity, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// The entry of its journal up to which all of its tables are imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<EventId>,
    /// Why nothing is imported until somebody decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

impl Owner {
    /// Its identity.
    pub fn id(&self) -> Option<NamespaceId> {
        self.namespace.and_then(NamespaceId::new)
    }

    /// Where it is.
    pub fn peer(&self) -> Result<Peer> {
        self.address.parse::<Address>().map(|address| address.peer)
    }
}

/// The log that marks this one as a replica.
fn mark_of(table: &LogName) -> Result<LogName> {
    let unfit = |error: Error| {
        let detail = format!("table '{table}' cannot be a replica: log '{REPLICA}{table}': {}", error.detail());
        Code::LogNameInvalid.error(detail)
    };
    format!("{REPLICA}{table}").parse().map_err(unfit)
}

fn owner_log(number: u32) -> LogName {
    internal(&format!("{OWNER}{number}"))
}

fn decode<T: for<'b> Deserialize<'b>>(log: &str, note: &[u8]) -> Result<T> {
    serde_json::from_slice(note).map_err(|error| Code::EntryDamaged.error(format!("log '{log}': {error}")))
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("text and numbers always make JSON")
}

/// The names of all replicas, of which some may not have a table yet.
pub(crate) fn names(catalog: &Catalog) -> impl Iterator<Item = &str> {
    let logs = catalog.log(NOTES).map(|_| catalog.logs()).into_iter().flatten();
    logs.filter_map(|log| log.name().strip_prefix(REPLICA))
}

/// The log that marks a table as a replica, if it is one.
pub(crate) fn mark<'c>(catalog: &'c Catalog, table: &str) -> Option<&'c Log> {
    catalog.log(NOTES)?;
    catalog.log(&format!("{REPLICA}{table}"))
}

/// Refuses to read a replica of which a log says that it is not loaded.
pub(crate) fn check_note(table: &str, note: &[u8]) -> Result<()> {
    match decode::<Replica>(table, note)? {
        Replica { stage: ReplicaStage::Following, .. } => Ok(()),
        Replica { table: of, .. } => {
            Err(Code::ReplicaLoading.error(format!("table '{table}', a replica of '{of}', is being loaded")))
        }
    }
}

/// The owner of a replica.
pub(crate) fn owner_of(namespace: &Namespace, table: &str) -> Result<Option<(Owner, Replica)>> {
    let Some(replica) = namespace.replica(table)? else { return Ok(None) };
    Ok(Some((namespace.owner(replica.owner)?, replica)))
}

pub(super) fn save_owner(tx: &mut Transaction<'_>, owner: &Owner) -> Result<()> {
    note(tx, &owner_log(owner.number), HISTORY, &encode(owner))
}

pub(super) fn save_replica(tx: &mut Transaction<'_>, table: &LogName, replica: &Replica) -> Result<()> {
    note(tx, &mark_of(table)?, HISTORY, &encode(replica))
}

impl Namespace {
    /// The state of a replica; none if the table is none.
    pub fn replica(&self, table: &str) -> Result<Option<Replica>> {
        let name = format!("{REPLICA}{table}");
        newest_note(self, &name)?.map(|note| decode(&name, &note)).transpose()
    }

    /// Every replica.
    pub fn replicas(&self) -> Result<Vec<(LogName, Replica)>> {
        let catalog = self.journal().catalog()?;
        let mut all = Vec::new();
        for name in names(&catalog) {
            if let (Ok(table), Some(replica)) = (name.parse(), self.replica(name)?) {
                all.push((table, replica));
            }
        }
        Ok(all)
    }

    /// An owner, by its number.
    pub fn owner(&self, number: u32) -> Result<Owner> {
        let name = owner_log(number);
        let gone = || Code::NotAReplica.error(format!("no owner {number}"));
        let owner: Owner = decode(&name, &newest_note(self, &name)?.ok_or_else(gone)?)?;
        Ok(Owner { number, ..owner })
    }

    /// Every owner.
    pub fn owners(&self) -> Result<Vec<Owner>> {
        let catalog = self.journal().catalog()?;
        let logs = catalog.log(NOTES).map(|_| catalog.logs()).into_iter().flatten();
        let numbers = logs.filter_map(|log| log.name().strip_prefix(OWNER)?.parse().ok());
        numbers.map(|number| self.owner(number)).collect()
    }

    /// The log that changes whenever something is imported from this owner.
    pub fn owner_note(&self, number: u32) -> Result<Log> {
        self.log(&owner_log(number))
    }

    /// Begins a replica of a table of another namespace; one of the same table is left as it is, unless it is to be loaded again. Returns what
    /// changed.
    pub fn mirror_table_gated(
        &self,
        table: &LogName,
        from: &Address,
        history: u64,
        reload: bool,
    ) -> Result<Gated<&'static str>> {
        crate::names::check_public(table)?;
        let Some(source) = &from.log else {
            let detail = format!("'{from}' names no table; write {from}/TABLE");
            return Err(Code::AddressInvalid.error(detail));
        };
        crate::names::check_public(source)?;
        let mark = mark_of(table)?;
        let peer = Address { peer: from.peer.clone(), log: None }.to_string();
        let committed = self.journal().commit(|tx| {
            let catalog = tx.catalog().clone();
            let owners = self.owners()?;
            let owner = owners.iter().find(|owner| owner.address == peer);
            if catalog.log(&mark).is_some() {
                let Some((known, replica)) = owner_of(self, table)? else {
                    return Err(Code::ReplicaExists.error(format!("log '{mark}' exists")));
                };
                if known.address != peer || replica.table != *source {
                    let of = format!("{}/{}", known.address, replica.table);
                    return Err(Code::ReplicaExists.error(format!("table '{table}' is a replica of {of}")));
                }
                if !reload {
                    return Ok("unchanged");
                }
                // One that has diverged says nothing of the others, which follow the same journal: they are loaded again together.
                for (name, replica) in self.replicas()?.into_iter().filter(|(_, one)| one.owner == known.number) {
                    save_replica(tx, &name, &Replica { stage: ReplicaStage::New, incarnation: None, ..replica })?;
                }
                save_owner(tx, &Owner { namespace: None, position: None, stopped: None, ..known })?;
                return Ok("reloaded");
            }
            if catalog.log(table).is_some() {
                return Err(Code::ReplicaExists.error(format!("log '{table}' already exists")));
            }
            let owner = match owner {
                Some(owner) => Owner { stopped: None, ..owner.clone() },
                None if owners.len() >= OWNERS_MAX => {
                    let detail = format!("replicas of {OWNERS_MAX} owners, which is the limit");
                    return Err(Code::LinksFull.error(detail));
                }
                None => {
                    let number = owners.iter().map(|owner| owner.number).max().unwrap_or(0) + 1;
                    Owner { number, address: peer.clone(), namespace: None, position: None, stopped: None }
                }
            };
            let its = self.replicas()?.into_iter().filter(|(_, replica)| replica.owner == owner.number).count();
            if its >= super::REPLICAS_MAX {
                let detail = format!("{its} replicas of {peer}; the limit is {}", super::REPLICAS_MAX);
                return Err(Code::LinksFull.error(detail));
            }
            // Its name is taken from now on, and functions can be bound to it; the owner's attributes come with the first contact.
            let log = Some(tx.create_table(table, history, TableOptions::default())?.id());
            let (owner_number, stage) = (owner.number, ReplicaStage::New);
            let replica =
                Replica { owner: owner_number, table: source.clone(), history, incarnation: None, log, stage };
            note(tx, &internal(NOTES), HISTORY, table.as_bytes())?;
            save_replica(tx, table, &replica)?;
            save_owner(tx, &owner)?;
            Ok("created")
        })?;
        Ok(self.gate().hold(Site::CreateLog, committed.value, Shows::Report(committed.end), None))
    }

    /// [`Namespace::mirror_table_gated`], once it is safe.
    pub fn mirror_table(&self, table: &LogName, from: &Address, history: u64, reload: bool) -> Result<&'static str> {
        self.out(self.mirror_table_gated(table, from, history, reload), None)
    }

    /// [`Namespace::unmirror_table_gated`], once it is safe.
    pub fn unmirror_table(&self, table: &LogName) -> Result<()> {
        self.out(self.unmirror_table_gated(table), None)
    }

    /// Ends a replica: the table keeps what it has, and then accepts changes. One that was never loaded has no table.
    pub fn unmirror_table_gated(&self, table: &LogName) -> Result<Gated<()>> {
        let mark = mark_of(table)?;
        let committed = self.journal().commit(|tx| {
            let Some((owner, replica)) = owner_of(self, table)? else {
                return Err(Code::NotAReplica.error(format!("table '{table}' is no replica")));
            };
            let others =
                self.replicas()?.into_iter().any(|(name, other)| name != *table && other.owner == owner.number);
            tx.remove_log(&mark)?;
            // What it has so far never existed at its owner.
            if replica.stage != ReplicaStage::Following && tx.catalog().log(table).is_some() {
                tx.remove_log(table)?;
            }
            match others {
                // The one that has ended may have been what stopped them.
                true => save_owner(tx, &Owner { stopped: None, ..owner }),
                false => tx.remove_log(&owner_log(owner.number)),
            }
        })?;
        Ok(self.gate().hold(Site::RemoveLog, (), Shows::Report(committed.end), None))
    }

    /// Refuses to read a replica that is not loaded.
    pub fn check_loaded(&self, table: &Log) -> Result<()> {
        if !self.bindings()?.is_replica(table.id()) {
            return Ok(());
        }
        let name = format!("{REPLICA}{}", table.name());
        newest_note(self, &name)?.map_or(Ok(()), |note| check_note(table.name(), &note))
    }

    /// Refuses to change a table that another namespace owns.
    pub fn check_owned(&self, table: &Log) -> Result<()> {
        match self.bindings()?.is_replica(table.id()) {
            true => Err(self.refuse_change(table.name())),
            false => Ok(()),
        }
    }

    /// The refusal of a change of a replica.
    pub(crate) fn refuse_change(&self, table: &LogName) -> Error {
        let of = match owner_of(self, table) {
            Ok(Some((owner, replica))) => format!("{}/{}", owner.address, replica.table),
            _ => "a table of another namespace".to_owned(),
        };
        Code::TableIsReplica.error(format!("table '{table}' is a replica of {of}"))
    }
}
