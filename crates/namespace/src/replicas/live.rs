//! What the host knows of owners and no log contains, also for other processes, in the file `replicas.json`; and how far replicas are.

use super::{Owner, Replica, ReplicaStage, Stopped, state::owner_of};
use crate::Namespace;
use millrace_journal::Log;
use millrace_wire::{Code, EventId, LogName, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

const FILE: &str = "replicas.json";
const FILE_NEXT: &str = "replicas.json.next";
/// Files of another form are not read.
const FILE_MAX_BYTES: u64 = 4 << 20;
/// How often a process that waits looks how far a replica is.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the host knows of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveOwner {
    /// Its number.
    pub number: u32,
    /// Whether it answers.
    pub connected: bool,
    /// Up to which entry its tables are imported: there may have been nothing to import, and then no log says so.
    pub position: Option<EventId>,
    /// Whether the replicas had everything when it answered last. As long as it answers, they have everything but what is on its way.
    pub is_current: bool,
    /// When that was last so, in milliseconds since 1970; 0 if that is not known.
    pub current_ms: u64,
    /// The last error, until a success.
    pub trouble: Option<Stopped>,
    /// The newest record of each of its tables, as it last said, by the name of the replica.
    pub latest: BTreeMap<String, u64>,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    pid: u32,
    owners: Vec<LiveOwner>,
}

/// The owners that this process imports from.
#[derive(Default)]
pub(crate) struct LiveOwners(Mutex<BTreeMap<u32, LiveOwner>>);

impl LiveOwners {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, LiveOwner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A replica and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStat {
    /// Its state.
    pub replica: Replica,
    /// Its owner.
    pub owner: Owner,
    /// Whether the owner answers.
    pub is_connected: bool,
    /// How many records it lacks. The owner may have further ones that this host has not heard of.
    pub records: Option<u64>,
    /// For how long it may have lacked something, in milliseconds; none if it never had everything.
    pub age_ms: Option<u64>,
    /// Why nothing is imported.
    pub trouble: Option<Stopped>,
}

/// Whether a table has what a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It has.
    Yes,
    /// Not yet; the address of the owner, and up to which entry the replica is.
    Behind(String, Option<EventId>),
}

fn now_ms() -> u64 {
    crate::now_us() / 1000
}

impl Namespace {
    /// Notes what is known of an owner now.
    pub fn note_owner(&self, live: LiveOwner) {
        self.inner().owners.all().insert(live.number, live);
    }

    /// The owner is not imported from any more.
    pub fn forget_owner(&self, number: u32) {
        self.inner().owners.all().remove(&number);
    }

    /// Tells other processes what is known of owners; only the host does.
    pub fn leave_owners(&self) {
        if self.journal().check_place().is_err() {
            return;
        }
        let owners = self.inner().owners.all().values().cloned().collect();
        let text = serde_json::to_vec(&File { pid: std::process::id(), owners }).expect("text and numbers");
        let next = self.dir().join(FILE_NEXT);
        // Nothing depends on it.
        let _ = fs::write(&next, text).and_then(|()| fs::rename(&next, self.dir().join(FILE)));
    }

    /// The host is gone.
    pub fn remove_owners(&self) {
        self.inner().owners.all().clear();
        if self.journal().check_place().is_ok() {
            let _ = fs::remove_file(self.dir().join(FILE));
        }
    }

    fn live_owner(&self, number: u32) -> LiveOwner {
        if let Some(live) = self.inner().owners.all().get(&number) {
            return live.clone();
        }
        let path = self.dir().join(FILE);
        let is_small = fs::metadata(&path).is_ok_and(|found| found.len() <= FILE_MAX_BYTES);
        let text = if is_small { fs::read(&path).ok() } else { None };
        let file: Option<File> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let holder = self.host().ok().flatten();
        let file = file.filter(|file| holder.is_some_and(|holder| holder.pid == file.pid));
        let live = file.and_then(|file| file.owners.into_iter().find(|live| live.number == number));
        live.unwrap_or(LiveOwner { number, ..LiveOwner::default() })
    }

    /// Up to which entry of its owner a replica has everything.
    fn position_of(&self, owner: &Owner) -> Option<EventId> {
        let live = self.live_owner(owner.number).position;
        // What the host knows is of the journal that the note is about, unless the replicas are being loaded again.
        owner.position.map(|noted| live.map_or(noted, |live| noted.max(live)))
    }

    /// The replicas and how far they are.
    pub fn replica_stats(&self) -> Result<BTreeMap<LogName, ReplicaStat>> {
        let mut stats = BTreeMap::new();
        for (table, replica) in self.replicas()? {
            let owner = match self.owner(replica.owner) {
                Err(error) if error.code() == Code::NotAReplica => continue, // It has just ended.
                owner => owner?,
            };
            let live = self.live_owner(owner.number);
            let here = self.journal().catalog()?.log(&table).map_or(0, Log::latest);
            let newest = live.latest.get(&*table).copied();
            let has_stage = replica.stage == ReplicaStage::Following;
            let stat = ReplicaStat {
                records: newest.filter(|_| has_stage).map(|newest| newest.saturating_sub(here)),
                age_ms: match live.connected && live.is_current && has_stage {
                    true => Some(0),
                    false => (live.current_ms > 0).then(|| now_ms().saturating_sub(live.current_ms)),
                },
                is_connected: live.connected,
                trouble: owner.stopped.clone().or(live.trouble),
                replica,
                owner,
            };
            stats.insert(table, stat);
        }
        Ok(stats)
    }

    /// Whether a table has what a token names.
    ///
    /// # Errors
    ///
    /// MR7335: the token is of another namespace than the table's owner.
    pub fn has_reached(&self, table: &str, token: EventId) -> Result<Reached> {
        let own = self.journal().namespace();
        if token.is_none() || token.namespace() == Some(own) {
            return Ok(Reached::Yes);
        }
        let foreign = || {
            let detail = format!("token {token} is not of the owner of table '{table}'");
            Code::TokenForeign.error(detail)
        };
        // A copy of this namespace has the entries of its ancestors.
        if self.journal().lineage().iter().any(|ancestor| token.namespace() == Some(ancestor.namespace)) {
            return Ok(Reached::Yes);
        }
        let Some((owner, _)) = owner_of(self, table)? else { return Err(foreign()) };
        if owner.id().is_some_and(|id| token.namespace() != Some(id)) {
            return Err(foreign());
        }
        let position = self.position_of(&owner);
        match position {
            Some(position) if position >= token => Ok(Reached::Yes),
            position => Ok(Reached::Behind(owner.address, position)),
        }
    }

    /// Waits until a table has what a token names.
    ///
    /// # Errors
    ///
    /// MR7331: it does not have it in time.
    pub fn wait_reached(&self, table: &str, token: EventId, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.has_reached(table, token)? {
                Reached::Yes => return Ok(()),
                Reached::Behind(..) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
                Reached::Behind(owner, position) => return Err(behind(table, token, &owner, position)),
            }
        }
    }

    /// The token of what a table shows now: the entry of its owner up to which it has everything.
    pub(crate) fn token_of(&self, table: &Log) -> Result<EventId> {
        if self.bindings()?.is_replica(table.id()) {
            let owner = owner_of(self, table.name())?;
            return Ok(owner.and_then(|(owner, _)| self.position_of(&owner)).unwrap_or_default());
        }
        let position = self.journal().position(table, table.latest());
        match self.journal().entry_at(position) {
            Ok(entry) => Ok(entry.id),
            // Its newest record was trimmed, or is gone.
            Err(_) => Ok(EventId::NONE),
        }
    }
}

/// The refusal to read a replica that lacks what a token names.
pub fn behind(table: &str, token: EventId, owner: &str, position: Option<EventId>) -> millrace_wire::Error {
    let upto = position.map_or_else(|| "nothing".to_owned(), |position| format!("everything up to {position}"));
    let detail = format!("table '{table}' has {upto} of {owner}, and the token asks for {token}");
    Code::ReplicaBehind.error(detail)
}
