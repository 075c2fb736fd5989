//! Requests of callers to a cluster: about topics, and about the groups that have them.

use super::{
    Cluster, GROWTH_MAX, Joined, Keeper, KnownMember, MAIN, MAIN_NAME, Member, Reply, RotatedSecret, Shared,
    WAITERS_MAX, Waiter, deliver,
    driver::{Goal, Input},
    groups::Group,
    locked, mirror,
    store::AROUND_MAX_BYTES,
};
use crate::Record;
use millrace_group::{Action, Durability, Engine, Stamp, check_topic};
use millrace_namespace::{keys::KEY_MAX_BYTES, names::check_public};
use millrace_wire::{Code, EventId, Hlc, Result};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The durability of a topic, and its engine.
pub(super) type Settings = Result<(Durability, Engine)>;

pub(super) fn done(reply: Reply<()>) -> Reply<u64> {
    Box::new(move |outcome| reply(outcome.map(drop)))
}

/// Submits an action to the group of a topic.
fn of_topic(shared: &Arc<Shared>, topic: &str, action: Result<Action>, reply: Reply<u64>) {
    let action = match action {
        Ok(action) => action,
        Err(error) => return reply(Err(error)),
    };
    let to = shared.clone();
    let submit = move |found: Result<Arc<Group>>| match found {
        Ok(group) => to.submit(group.id, action, Vec::new(), Durability::Quorum, reply),
        Err(error) => reply(Err(error)),
    };
    shared.find(topic, Box::new(submit));
}

/// Removes a host from the cluster once this host follows the groups in which it votes, so that their changes are visible here.
fn remove_from(shared: Arc<Shared>, host: u64, mut groups: Vec<u32>, reply: Reply<()>) {
    let Some(group) = groups.pop() else {
        return shared.ask(Input::Pursue { group: MAIN, goal: Goal::Removed(host), reply });
    };
    let next = shared.clone();
    let then = move |attended: Result<Arc<Group>>| match attended {
        Ok(_) => remove_from(next, host, groups, reply),
        Err(error) => reply(Err(error)),
    };
    shared.attend(group, Box::new(then));
}

/// Refuses an invalid idempotency key.
pub(super) fn check_key(key: Option<&str>) -> Result<()> {
    match key.filter(|key| key.is_empty() || key.len() > KEY_MAX_BYTES) {
        None => Ok(()),
        Some(key) => Err(Code::ValueInvalid
            .error(format!("an idempotency key of {} bytes; it must have 1 to {KEY_MAX_BYTES}", key.len()))),
    }
}

impl Shared {
    /// Calls a function with the group of this name.
    pub(super) fn of_group(
        self: &Arc<Self>,
        name: &str,
        reply: Reply<()>,
        act: impl FnOnce(&Arc<Self>, &Group, Reply<()>) + Send + 'static,
    ) {
        let shared = self.clone();
        let named = move |found: Result<u32>| match found {
            Ok(id) => {
                let attending = shared.clone();
                let attended = move |group: Result<Arc<Group>>| match group {
                    Ok(group) => act(&shared, &group, reply),
                    Err(error) => reply(Err(error)),
                };
                attending.attend(id, Box::new(attended));
            }
            Err(error) => reply(Err(error)),
        };
        self.named(name, Box::new(named));
    }

    /// The durability of a topic, and its engine. If the topic is not known here yet, the group is asked.
    pub(super) fn settings(
        self: &Arc<Self>,
        group: &Arc<Group>,
        topic: &str,
        then: impl FnOnce(Settings) + Send + 'static,
    ) {
        let look = |group: &Group, topic: &str| {
            locked(&group.replica).topics().topic(topic).map(|topic| (topic.durability, topic.engine))
        };
        let found = look(group, topic);
        if found.is_ok() {
            return then(found);
        }
        let (kept, topic) = (group.clone(), topic.to_owned());
        let fresh = move |fresh: Result<()>| then(fresh.and_then(|()| look(&kept, &topic)));
        self.ask(Input::Read { group: group.id, reply: Box::new(fresh) });
    }

    pub fn submit(&self, group: u32, action: Action, data: Vec<u8>, durability: Durability, reply: Reply<u64>) {
        self.ask(Input::Submit { group, action, data, stamp: Stamp::default(), durability, reply });
    }
}

impl Cluster {
    /// Submits an action to the group that has the directory.
    pub(super) fn of_directory(&self, action: Action, reply: Reply<u64>) {
        self.shared.submit(MAIN, action, Vec::new(), Durability::Quorum, reply);
    }

    /// Publishes a record that comes from nothing that is known: see [`Cluster::publish_from`].
    pub fn publish(
        &self,
        topic: &str,
        data: &[u8],
        key: Option<&str>,
        durability: Option<Durability>,
        reply: Reply<u64>,
    ) {
        self.publish_from(EventId::NONE, topic, (data, key), durability, reply);
    }

    /// Publishes a record that comes from the cause: the reply has its index, once a majority of the group's disks have it. If the topic
    /// remembers the record's key, the reply has the index of the earlier record. With the durability of the leader alone, the reply comes
    /// once the leader has it on disk, and is 0.
    pub fn publish_from(
        &self,
        cause: EventId,
        topic: &str,
        (data, key): (&[u8], Option<&str>),
        durability: Option<Durability>,
        reply: Reply<u64>,
    ) {
        let most = self.shared.namespace.journal().record_max_bytes().saturating_sub(AROUND_MAX_BYTES);
        let checked = check_topic(topic).and_then(|()| {
            if data.len() > most {
                return Err(Code::RecordTooLong
                    .error(format!("a record of {} bytes; the limit for topics on this host is {most}", data.len())));
            }
            check_key(key)
        });
        if let Err(error) = checked {
            return reply(Err(error));
        }
        let (shared, data) = (self.shared.clone(), data.to_vec());
        // The clock of this host is the publisher's: all hosts show this time.
        let stamp = Stamp { time: shared.namespace.journal().clock(), cause };
        let (name, topic_name, key) = (topic.to_owned(), topic.to_owned(), key.map(str::to_owned));
        let submit = move |found: Result<Arc<Group>>| match found {
            Ok(group) => {
                let (asked, id) = (shared.clone(), group.id);
                let publish = move |found: Settings| match found {
                    Ok((_, Engine::Nats)) => {
                        shared.publish_outside(&name, (data, stamp), (key.as_deref(), durability), reply);
                    }
                    Ok((of_topic, Engine::Builtin)) => {
                        let durability = durability.unwrap_or(of_topic);
                        let action = Action::Publish { topic: name, key };
                        shared.ask(Input::Submit { group: id, action, data, stamp, durability, reply });
                    }
                    Err(error) => reply(Err(error)),
                };
                asked.settings(&group, &topic_name, publish);
            }
            Err(error) => reply(Err(error)),
        };
        self.shared.find(topic, Box::new(submit));
    }

    /// Runs a function of this host's namespace for every record of a topic from now on.
    pub fn subscribe(&self, topic: &str, function: &str, reply: Reply<()>) {
        let exists = deliver::logs(topic, function).and_then(|_| self.shared.namespace.bindings()).and_then(|_| {
            let catalog = self.shared.namespace.journal().catalog()?;
            catalog.function(function).map(drop).ok_or_else(|| millrace_namespace::no_function(function))
        });
        if let Err(error) = exists {
            return reply(Err(error));
        }
        let (shared, topic_name, function, host) =
            (self.shared.clone(), topic.to_owned(), function.to_owned(), self.host());
        let subscribe = move |keeper: Result<Keeper>| match keeper {
            Ok(Keeper::Outside(streams)) => {
                shared.subscribe_outside(&*streams, &topic_name, &function, done(reply));
            }
            Ok(Keeper::Group) => {
                let action = Action::Subscribe { topic: topic_name.clone(), function, host };
                of_topic(&shared, &topic_name, Ok(action), done(reply));
            }
            Err(error) => reply(Err(error)),
        };
        self.keeper(topic, Box::new(subscribe));
    }

    /// Ends it.
    pub fn unsubscribe(&self, topic: &str, function: &str, reply: Reply<()>) {
        let (name, function, host) = (topic.to_owned(), function.to_owned(), self.host());
        of_topic(&self.shared, topic, Ok(Action::Unsubscribe { topic: name, function, host }), done(reply));
    }

    /// The topics whose records run a function of this name here.
    pub fn subscribed(&self, function: &str) -> Vec<String> {
        let host = self.host();
        let mut subscribed = Vec::new();
        for group in self.shared.kept() {
            let replica = locked(&group.replica);
            let of_function = replica.topics().all().filter(|(_, topic)| {
                topic.subscriptions.iter().any(|known| known.host == host && known.function == function)
            });
            subscribed.extend(of_function.map(|(name, _)| name.to_owned()));
        }
        subscribed
    }

    /// Publishes the records of a log of this host's namespace to a topic from now on.
    pub fn feed(&self, topic: &str, log: &str, reply: Reply<()>) {
        let checked = check_topic(topic).and_then(|()| check_public(log));
        let found = checked.and_then(|()| {
            let (namespace, found) = (&self.shared.namespace, self.shared.namespace.log(log)?);
            if mirror::topic_of(namespace, log)?.is_some_and(|of| of == topic) {
                let detail =
                    format!("log '{log}' is a mirror of topic '{topic}', so each record would be published again");
                return Err(Code::ValueInvalid.error(detail));
            }
            Ok(found)
        });
        let action = found.map(|found| {
            let (topic, log, host) = (topic.to_owned(), log.to_owned(), self.host());
            Action::Feed { topic, host, log, after: found.latest() }
        });
        of_topic(&self.shared, topic, action, done(reply));
    }

    /// Ends it.
    pub fn unfeed(&self, topic: &str, log: &str, reply: Reply<()>) {
        let (name, host) = (topic.to_owned(), self.host());
        let action = check_public(log).map(|()| Action::Unfeed { topic: name, host, log: log.to_owned() });
        of_topic(&self.shared, topic, action, done(reply));
    }

    /// Creates a group on these hosts, or on as many hosts as given, which are then chosen.
    pub fn create_group(&self, name: &str, hosts: Vec<u64>, size: u64, reply: Reply<()>) {
        self.of_directory(Action::Group { name: name.to_owned(), hosts, size }, done(reply));
    }

    /// Removes a group without topics.
    pub fn remove_group(&self, name: &str, reply: Reply<()>) {
        self.of_directory(Action::Ungroup { name: name.to_owned() }, done(reply));
    }

    /// Transfers the leadership of a group to a host.
    pub fn lead(&self, group: &str, host: u64, reply: Reply<()>) {
        self.shared.of_group(group, reply, move |shared, group, reply| {
            shared.ask(Input::Pursue { group: group.id, goal: Goal::Led(host), reply });
        });
    }

    /// Prefers the hosts at a site as leaders of a group; with an empty name, there is no preference.
    pub fn prefer(&self, group: &str, site: &str, reply: Reply<()>) {
        let action = Action::Prefer { site: site.to_owned() };
        self.shared.of_group(group, reply, move |shared, group, reply| {
            shared.submit(group.id, action, Vec::new(), Durability::Quorum, done(reply));
        });
    }

    /// Sets the number of voters of a group: 1, 3 or 5.
    pub fn set_voters(&self, group: &str, count: u64, reply: Reply<()>) {
        if group == MAIN_NAME {
            return self.of_directory(Action::Voters { count }, done(reply));
        }
        let resize = Action::Resize { name: group.to_owned(), size: count };
        self.shared.of_group(group, reply, move |shared, group, reply| {
            // A group that decides nothing gets no other voters, although the directory would name them.
            let (directory, id) = (shared.clone(), group.id);
            let decides = move |decides: Result<()>| match decides {
                Ok(()) => directory.submit(MAIN, resize, Vec::new(), Durability::Quorum, done(reply)),
                Err(error) => reply(Err(error)),
            };
            shared.ask(Input::Read { group: id, reply: Box::new(decides) });
        });
    }

    /// Removes a host from the cluster. The reply comes once the groups in which it voted work without it. The groups `lose` are given up
    /// before, with their topics, if they do not answer.
    pub fn remove(&self, host: u64, lose: Vec<String>, reply: Reply<()>) {
        let shared = self.shared.clone();
        let given_up = move |given_up: Result<()>| {
            if let Err(error) = given_up {
                return reply(Err(error));
            }
            let groups = {
                let replica = locked(&shared.main.replica);
                let voted = replica.topics().directory().groups().filter(|(_, spec)| spec.hosts.contains(&host));
                voted.map(|(_, spec)| spec.id).collect()
            };
            remove_from(shared, host, groups, reply);
        };
        self.shared.give_up(host, lose, Box::new(given_up));
    }

    /// Changes the secret of the cluster: the reply says which hosts have the new one.
    pub fn rotate_secret(&self, reply: Reply<RotatedSecret>) {
        self.shared.ask(Input::Rotate { reply });
    }

    /// Waits until local reads of a topic reflect everything that was committed before this call.
    pub fn fresh(&self, topic: &str, reply: Reply<()>) {
        let shared = self.shared.clone();
        let read = move |found: Result<Arc<Group>>| match found {
            Ok(group) => shared.ask(Input::Read { group: group.id, reply }),
            Err(error) => reply(Err(error)),
        };
        self.shared.find(topic, Box::new(read));
    }

    /// Makes a host a replica of the first group; the reply has what it needs to start.
    pub fn join(&self, member: Member, reply: Reply<Joined>) {
        let shared = self.shared.clone();
        let reported = Box::new(move |added: Result<()>| {
            reply(added.map(|()| {
                let replica = locked(&shared.main.replica);
                let mut members: Vec<KnownMember> = replica.topics().members().map(KnownMember::from).collect();
                if members.iter().all(|known| known.id != shared.member.id) {
                    members.push(KnownMember::from(&shared.member));
                }
                let (cluster, founders) = (shared.facts.cluster.clone(), shared.facts.founders.clone());
                Joined { cluster, founders, members, streams: shared.facts.streams.clone() }
            }));
        });
        self.shared.ask(Input::Pursue { group: MAIN, goal: Goal::Added(member), reply: reported });
    }

    /// The group of a topic that is read on this host alone. Nobody tells a host that was removed what has left the topic since.
    fn here(&self, topic: &str) -> Result<Arc<Group>> {
        match self.shared.removed() {
            Some(error) => Err(error),
            None => self.shared.group_of(topic),
        }
    }

    /// A record of a topic, 0 for the newest, as far as this host knows.
    pub fn get(&self, topic: &str, index: u64) -> Result<Record> {
        let group = self.here(topic)?;
        let mut before = None;
        loop {
            let (index, place) = {
                let replica = locked(&group.replica);
                let found = replica.topics().topic(topic)?;
                let index = if index == 0 { found.latest.max(1) } else { index };
                let entry = found.entry(topic, index)?;
                (index, replica.place(entry).ok_or_else(|| replica.absent(topic, index))?)
            };
            match group.store.record(place) {
                Ok((meta, Stamp { time, cause }, payload)) => {
                    // Of a record of an earlier version, only the entry on this host has a time.
                    let hlc = if time == Hlc::ZERO { meta.hlc } else { time };
                    return Ok(Record { seqno: index, id: meta.id, hlc, cause, payload, headers: meta.headers });
                }
                // The log was trimmed just now, and the record has another position.
                Err(error) if error.code() == Code::BelowHistory && before != Some(place) => before = Some(place),
                Err(error) => return Err(error),
            }
        }
    }

    /// At most `count` records of a topic from `from` on, and at most `bytes_max` bytes unless the first alone has more.
    pub fn range(&self, topic: &str, from: u64, count: u32, bytes_max: usize) -> Result<Vec<Record>> {
        if from == 0 {
            return Err(Code::SeqnoInvalid.error(format!("topic '{topic}' has no record 0")));
        }
        let latest = self.latest(topic)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for index in from..from.saturating_add(u64::from(count)).min(latest + 1) {
            let record = self.get(topic, index)?;
            bytes += record.payload.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            records.push(record);
        }
        Ok(records)
    }

    /// The index of a topic's newest record, as far as this host knows; 0 if there is none.
    pub fn latest(&self, topic: &str) -> Result<u64> {
        let group = self.here(topic)?;
        let replica = locked(&group.replica);
        replica.topics().topic(topic).map(|topic| topic.latest)
    }

    /// The oldest index of a topic, as far as this host knows; one more than the newest if there is no record.
    pub fn earliest(&self, topic: &str) -> Result<u64> {
        let group = self.here(topic)?;
        let replica = locked(&group.replica);
        replica.topics().topic(topic).map(millrace_group::Topic::earliest)
    }

    /// The number of a topic, as far as this host knows; no earlier or later topic with this name has the same number.
    pub fn born(&self, topic: &str) -> Result<u64> {
        let group = self.shared.group_of(topic)?;
        let replica = locked(&group.replica);
        replica.topics().topic(topic).map(|topic| topic.born)
    }

    /// Replies once the newest index of a topic is above `above`, or soon after the given time: at most [`GROWTH_MAX`].
    pub fn growth(&self, topic: &str, above: u64, within: Duration, reply: Reply<u64>) {
        let group = match self.shared.group_of(topic) {
            Ok(group) => group,
            Err(error) => return reply(Err(error)),
        };
        // In the same order as where waiters are answered.
        let mut waiters = locked(&self.shared.waiters);
        let replica = locked(&group.replica);
        match replica.topics().topic(topic).map(|topic| (topic.latest, topic.born)) {
            Ok((latest, born)) if latest <= above => {
                let (group, topic, until) = (group.id, topic.to_owned(), Instant::now() + within.min(GROWTH_MAX));
                if waiters.len() >= WAITERS_MAX {
                    return reply(Err(Code::GroupBusy.error(format!("{WAITERS_MAX} callers wait for topics"))));
                }
                waiters.push(Waiter { group, topic, born, above, until, reply });
            }
            found => reply(found.map(|(latest, _)| latest)),
        }
    }
}
