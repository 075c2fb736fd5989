//! The groups with a replica on this host, and how the group of a topic is found.

use super::{
    Facts, MAIN, MAIN_NAME, Shared,
    driver::Input,
    locked,
    objects::{GroupObjects, OfGroup, Ring},
    store::Store,
};
use crate::Namespace;
use millrace_group::{Action, Durability, GroupSpec, Member, Options, Placement, Replica, Topics};
use millrace_namespace::names;
use millrace_wire::{Code, Error, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A group with a replica on this host.
pub(super) struct Group {
    pub id: u32,
    pub name: String,
    pub store: Store,
    pub replica: Mutex<Replica>,
    /// The shared objects that it has.
    pub objects: Arc<GroupObjects>,
    /// The revision of its topics when they were last looked at.
    pub revision: AtomicU64,
    /// Whether this host keeps it, according to the directory.
    pub is_placed: AtomicBool,
    /// Why its log cannot be written at the moment.
    refused: Mutex<Option<Error>>,
}

/// A group that could not be opened.
pub(super) struct Unkept {
    pub why: String,
    pause: Duration,
    next: Instant,
}

/// Between two attempts to open a group, at first and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(300);

/// Gets a group once it has a replica on this host.
pub(super) type Then = Box<dyn FnOnce(Result<Arc<Group>>) + Send>;

impl Group {
    /// Continues a stored replica, or creates one.
    pub fn open(namespace: &Namespace, id: u32, name: &str, options: Options, ring: Arc<Ring>) -> Result<Self> {
        let store = Store::open(namespace, id)?;
        let recovered = store.recover(options.founders.clone())?;
        let objects = Arc::new(GroupObjects::new(ring));
        let replica = Mutex::new(Replica::new(options, recovered, Box::new(OfGroup(objects.clone())))?);
        Ok(Self {
            id,
            name: name.to_owned(),
            store,
            replica,
            objects,
            revision: AtomicU64::new(0),
            is_placed: AtomicBool::new(true),
            refused: Mutex::default(),
        })
    }

    /// Notes why the disk refuses to write the group's log, or that it does not.
    pub fn refuse(&self, error: Option<Error>) {
        let before = std::mem::replace(&mut *locked(&self.refused), error.clone());
        let group = &*self.name;
        match (before, error) {
            (None, Some(error)) => {
                let (code, detail) = (error.code().id(), error.detail());
                tracing::warn!(target: "topics", group, code, "this host cannot write the group's log, and tries again: {detail}");
            }
            (Some(_), None) => tracing::info!(target: "topics", group, "this host writes the group's log again"),
            _ => {}
        }
    }

    /// The error of all requests while the disk refuses to write the group's log.
    pub fn refusal(&self) -> Option<Error> {
        let error = locked(&self.refused).clone()?;
        Some(error.within(format!("this host cannot write the log of group '{}'; other hosts may answer", self.name)))
    }
}

impl Shared {
    /// The hosts of the cluster, as the group has agreed; before this host knows that, as they were when it joined.
    pub fn known_members(&self) -> Vec<Member> {
        let replica = locked(&self.main.replica);
        let agreed = replica.topics();
        let reported = self.facts.members.iter().filter(|member| agreed.member(member.id).is_none());
        agreed.members().cloned().chain(reported.cloned().map(Member::from)).collect()
    }

    /// The other hosts, without those that were removed.
    pub fn others(&self) -> Vec<u64> {
        let left = locked(&self.main.replica).topics().left().clone();
        let ids = self.known_members().into_iter().map(|member| member.id);
        ids.filter(|id| *id != self.member.id && !left.contains(id)).collect()
    }

    /// One of them.
    pub fn known(&self, host: u64) -> Option<Member> {
        self.known_members().into_iter().find(|member| member.id == host)
    }

    /// The facts about this host that the group does not know yet.
    pub fn unsaid(&self, known: &Topics) -> Option<Action> {
        let (own, labels) = (&self.member, &self.labels);
        if known.member(own.id) != Some(own) {
            return Some(Action::Member(own.clone()));
        }
        // Also at each start: hosts that know of a later start than a directory refuse that directory.
        let is_said = known.labels(own.id).map_or(labels.is_empty(), |known| known == labels)
            && known.boot(own.id) >= self.starts.boot;
        (!is_said).then(|| Action::Labels { host: own.id, labels: labels.clone() })
    }

    /// The error of all requests once this host knows that it was removed from the cluster.
    pub fn removed(&self) -> Option<Error> {
        let has_left = self.told_left.load(Ordering::Relaxed)
            || locked(&self.main.replica).topics().left().contains(&self.member.id);
        has_left.then(|| Code::HostNotInCluster.error("this host was removed from the cluster"))
    }

    /// Whether this host knows a leader, and the group knows its address.
    pub fn is_known(&self) -> bool {
        let replica = locked(&self.main.replica);
        replica.leader() != 0 && replica.topics().member(self.member.id) == Some(&self.member)
    }

    /// The groups with a replica on this host.
    pub fn kept(&self) -> Vec<Arc<Group>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A group, if a replica of it is here.
    pub fn group(&self, id: u32) -> Option<Arc<Group>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The group of a topic, if this host knows it. A topic stays in its group until it is removed.
    pub fn locate(&self, topic: &str) -> Option<u32> {
        let replica = locked(&self.main.replica);
        let topics = replica.topics();
        if topics.topic(topic).is_ok() { Some(MAIN) } else { topics.directory().placed(topic) }
    }

    /// The group of a topic, if both are here.
    pub fn group_of(&self, topic: &str) -> Result<Arc<Group>> {
        let id = self.locate(topic).ok_or_else(|| no_topic(topic))?;
        self.group(id).ok_or_else(not_kept)
    }

    /// Finds the group of a topic: in the local directory, or by a linearizable read of it.
    pub fn find(self: &Arc<Self>, topic: &str, then: Then) {
        if let Some(id) = self.locate(topic) {
            return self.attend(id, then);
        }
        let (shared, topic) = (self.clone(), topic.to_owned());
        let reply = Box::new(move |fresh: Result<()>| match fresh.map(|()| shared.locate(&topic)) {
            Ok(Some(id)) => shared.attend(id, then),
            Ok(None) => then(Err(no_topic(&topic))),
            Err(error) => then(Err(error)),
        });
        self.ask(Input::Read { group: MAIN, reply });
    }

    /// Finds a group by its name.
    pub fn named(self: &Arc<Self>, name: &str, then: Box<dyn FnOnce(Result<u32>) + Send>) {
        let look = |shared: &Self, name: &str| match name {
            MAIN_NAME => Some(MAIN),
            name => locked(&shared.main.replica).topics().directory().group(name).map(|group| group.id),
        };
        if let Some(id) = look(self, name) {
            return then(Ok(id));
        }
        let (shared, name) = (self.clone(), name.to_owned());
        let reply = Box::new(move |fresh: Result<()>| {
            let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
            let missing = || Code::GroupNotFound.error(format!("no group '{shown}'"));
            then(fresh.and_then(|()| look(&shared, &name).ok_or_else(missing)));
        });
        self.ask(Input::Read { group: MAIN, reply });
    }

    /// Ensures that a replica of a group is here: if there is none, this host becomes a follower.
    pub fn attend(self: &Arc<Self>, id: u32, then: Then) {
        // A removed replica gets no messages from the others.
        if let Some(group) = self.group(id).filter(|group| group.is_placed.load(Ordering::Relaxed)) {
            return then(Ok(group));
        }
        let shared = self.clone();
        let reply = Box::new(move |followed: Result<u64>| {
            // The driver replies: it may write.
            then(followed.and_then(|_| {
                shared.arrange();
                shared.group(id).ok_or_else(not_kept)
            }));
        });
        let action = Action::Follow { group: id, host: self.facts.host };
        self.submit(MAIN, action, Vec::new(), Durability::Quorum, reply);
    }

    /// Keeps the groups that the directory assigns to this host, and informs replicas which hosts should keep theirs. Called on the driver's thread only.
    pub fn arrange(&self) {
        let (revision, groups, sites, directory) = {
            let replica = locked(&self.main.replica);
            let topics = replica.topics();
            let revision = topics.directory().revision();
            if self.arranged.load(Ordering::Relaxed) == revision {
                return;
            }
            let groups: Vec<(String, GroupSpec)> =
                topics.directory().groups().map(|(name, group)| (name.to_owned(), group.clone())).collect();
            let sites: BTreeMap<u64, String> =
                topics.members().map(|member| (member.id, member.site.clone())).collect();
            (revision, groups, sites, topics.directory().clone_groups())
        };
        let (own, mut is_complete) = (self.facts.host, true);
        for (name, spec) in &groups {
            let has_log =
                || self.namespace.journal().catalog().is_ok_and(|known| known.log(&log_of(spec.id)).is_some());
            if self.group(spec.id).is_none() && (spec.has(own) || has_log()) {
                is_complete &= self.begin(name, spec);
            }
            if let Some(group) = self.group(spec.id) {
                let keepers = spec.hosts.iter().chain(&spec.followers);
                let sites = keepers.filter_map(|host| Some((*host, sites.get(host)?.clone()))).collect();
                let (voters, followers) = (spec.hosts.iter().copied().collect(), spec.followers.clone());
                group.is_placed.store(spec.has(own), Ordering::Relaxed);
                locked(&group.replica).set_placement(Placement { voters, followers, sites });
            }
        }
        let named: BTreeSet<&str> = groups.iter().map(|(name, _)| &**name).collect();
        locked(&self.unkept).retain(|name, _| named.contains(&**name));
        let known: BTreeSet<u32> = groups.iter().map(|(_, spec)| spec.id).collect();
        let is_gone = |id: u32| id != MAIN && !known.contains(&id);
        for gone in self.kept().into_iter().filter(|group| is_gone(group.id)) {
            self.groups.write().unwrap_or_else(PoisonError::into_inner).remove(&gone.id);
            if directory.is_abandoned(gone.id) {
                let (group, log) = (&*gone.name, log_of(gone.id).to_string());
                tracing::warn!(target: "topics", group, log, "the group was given up; what this host has of it stays in its log");
                continue;
            }
            // It had no topics. A log that cannot be removed now does no harm: no group has its number again.
            if let Err(error) = self.namespace.journal().commit(|tx| tx.remove_log(&log_of(gone.id))) {
                let (group, code) = (&*gone.name, error.code().id());
                tracing::info!(target: "topics", group, code, "the log of a removed group could not be removed: {}", error.detail());
            }
        }
        // Failures are retried.
        if is_complete {
            self.arranged.store(revision, Ordering::Relaxed);
        }
    }

    /// Adds a replica of a group; returns whether it exists now.
    fn begin(&self, name: &str, spec: &GroupSpec) -> bool {
        if locked(&self.unkept).get(name).is_some_and(|unkept| Instant::now() < unkept.next) {
            return false;
        }
        let opened = Facts::seed().and_then(|seed| {
            let (id, founders) = (self.facts.host, spec.founders.clone());
            let options = Options {
                id,
                boot: self.starts.boot,
                founders,
                seed,
                voters_max: spec.founders.len(),
                limits: self.limits,
            };
            Group::open(&self.namespace, spec.id, name, options, self.ring.clone())
        });
        match opened {
            Ok(group) => {
                self.groups.write().unwrap_or_else(PoisonError::into_inner).insert(spec.id, Arc::new(group));
                locked(&self.unkept).remove(name);
                self.revision.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) => {
                let why = format!("{}: {}", error.code().id(), error.detail());
                let mut unkept = locked(&self.unkept);
                let before = unkept.get(name);
                if before.is_none_or(|before| before.why != why) {
                    tracing::warn!(target: "topics", group = name, "this host cannot keep the group: {why}");
                }
                // Its log is read again each time, on the thread that drives all groups.
                let pause = before.map_or(PAUSE_FIRST, |before| (2 * before.pause).min(PAUSE_MOST));
                unkept.insert(name.to_owned(), Unkept { why, pause, next: Instant::now() + pause });
                false
            }
        }
    }
}

pub(super) fn log_of(group: u32) -> millrace_wire::LogName {
    names::internal(&format!("_group/{group}"))
}

fn no_topic(topic: &str) -> Error {
    let shown: String = topic.chars().take(80).flat_map(char::escape_debug).collect();
    Code::TopicNotFound.error(format!("no topic '{shown}'"))
}

fn not_kept() -> Error {
    Code::GroupUnavailable.error("this host has no replica of the topic's group yet")
}
