//! The state that a group's commands produce: topics, subscriptions, and hosts. The same on every replica.

use crate::{
    Action, Command, Directory, Durability, Engine, Labels, Machine, Member, Origin, check_labels, check_topic,
    directory::{MAIN_NAME, VOTERS, elsewhere},
};
use millrace_wire::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Most topics of one group.
pub(crate) const TOPICS_MAX: usize = 100_000;
/// Most subscriptions of one topic.
const SUBSCRIPTIONS_MAX: usize = 256;

/// Keys that each topic remembers.
const KEYS_MAX: usize = 10_000;

/// A function that runs for the records of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// The function.
    pub function: String,
    /// The host in whose namespace it runs.
    pub host: u64,
    /// The first record that it runs for.
    pub first: u64,
    /// The entry that subscribed it, to detect that a function was subscribed again: then its cursor restarts.
    pub since: u64,
}

/// A log of a host whose records are published to a topic, each once and in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    /// The host.
    pub host: u64,
    /// The log.
    pub log: String,
    /// Its last record that was published.
    pub last: u64,
    /// The entry that began the feed.
    pub since: u64,
}

/// An append-only sequence of records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// How many of its newest records can be read.
    pub history: u64,
    /// The hosts that must have a record on disk before its publish is acknowledged, by default.
    #[serde(default)]
    pub durability: Durability,
    /// The engine that keeps its records. Unless it is the group, the topic has no records here.
    #[serde(default, skip_serializing_if = "Engine::is_builtin")]
    pub engine: Engine,
    /// The number that distinguishes topics of the same name: a later one has a greater number. It is an entry of the first group, or 0 if
    /// no topic of the cluster had been removed when this one was created.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub born: u64,
    /// The index of its newest record, 0 if there is none.
    pub latest: u64,
    /// The group's entries with its records, up to `latest`.
    entries: VecDeque<u64>,
    /// The functions that run for its records.
    pub subscriptions: Vec<Subscription>,
    /// Logs that feed it.
    pub feeds: Vec<Feed>,
    /// The newest keys and their records, and the order in which they came.
    #[serde(skip)]
    keys: HashMap<String, u64>,
    keys_in_order: VecDeque<(String, u64)>,
}

impl Topic {
    fn add_keyed(&mut self, entry: u64, key: Option<String>) -> u64 {
        let index = self.add(entry);
        if let Some(key) = key {
            self.keys.insert(key.clone(), index);
            self.keys_in_order.push_back((key, index));
            if self.keys_in_order.len() > KEYS_MAX
                && let Some((oldest, _)) = self.keys_in_order.pop_front()
            {
                self.keys.remove(&oldest);
            }
        }
        index
    }

    fn add(&mut self, entry: u64) -> u64 {
        self.latest += 1;
        self.entries.push_back(entry);
        if self.entries.len() as u64 > self.history {
            self.entries.pop_front();
        }
        self.latest
    }

    /// The oldest record that can be read; one more than the newest if there is none.
    pub fn earliest(&self) -> u64 {
        self.latest + 1 - self.entries.len() as u64
    }

    /// The group's entry with a record.
    pub fn entry(&self, topic: &str, record: u64) -> Result<u64> {
        let (earliest, latest) = (self.earliest(), self.latest);
        if record < earliest {
            let detail = format!("topic '{topic}' no longer has record {record}; the oldest is {earliest}");
            return Err(Code::BelowHistory.error(detail));
        }
        let entry = self.entries.get((record - earliest) as usize).copied();
        entry.ok_or_else(|| {
            Code::AboveTail.error(format!("topic '{topic}' has no record {record} yet; the newest is {latest}"))
        })
    }
}

/// The outcomes of one host's commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    boot: u64,
    settled: u64,
    #[serde(with = "crate::snapshot::outcomes")]
    outcomes: BTreeMap<u64, Result<u64>>,
}

/// The topics of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topics {
    topics: BTreeMap<String, Topic>,
    members: BTreeMap<u64, Member>,
    /// The labels of hosts that have any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<u64, Labels>,
    /// Removed hosts, whose messages are ignored.
    #[serde(default)]
    left: BTreeSet<u64>,
    /// In order, so that a snapshot as of an entry has the same bytes wherever it is made: a host may get its parts from several starts of
    /// the leader.
    seen: BTreeMap<u64, Seen>,
    preferred: String,
    /// The number of voters; 0 if it was not set.
    #[serde(default)]
    voters: u64,
    revision: u64,
    /// The last entry of the first group that began a removal of a topic of this group; in the first group itself, of any topic. A name
    /// that was reserved before it does not lead to a topic, because that topic may have been removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    horizon: u64,
    /// The digest of the cluster's secret, once it was changed. Only the first group has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    secret: String,
    /// The other groups; only the first group has any.
    #[serde(default)]
    directory: Directory,
}

impl Topics {
    /// The topic of this name.
    pub fn topic(&self, name: &str) -> Result<&Topic> {
        self.topics.get(name).ok_or_else(|| no_topic(name))
    }

    /// Every topic, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.topics.iter().map(|(name, topic)| (&**name, topic))
    }

    /// The entries with records that can be read, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = u64> {
        self.topics.values().flat_map(|topic| topic.entries.iter().copied())
    }

    /// Restores the parts that a snapshot omits because they follow from the rest.
    pub(crate) fn completed(mut self) -> Self {
        for topic in self.topics.values_mut() {
            topic.keys = topic.keys_in_order.iter().cloned().collect();
        }
        self
    }

    /// Counts changes that may concern subscriptions and feeds: while it is the same, they are, too.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The last entry of the first group that removed a topic; 0 if none was.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// The groups of the cluster, if this is the first of them.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The digest of the cluster's secret; empty if it was never changed.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The site whose hosts are preferred as leaders; empty for no preference.
    pub fn preferred(&self) -> &str {
        &self.preferred
    }

    /// The number of voters, if it was set.
    pub fn voters(&self) -> Option<usize> {
        usize::try_from(self.voters).ok().filter(|count| *count > 0)
    }

    /// The hosts whose addresses are known.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Information about a host.
    pub fn member(&self, id: u64) -> Option<&Member> {
        self.members.get(&id)
    }

    /// The labels of a host; `None` if it has none.
    pub fn labels(&self, id: u64) -> Option<&Labels> {
        self.labels.get(&id)
    }

    /// Records that a host became a replica.
    pub fn enter(&mut self, member: Member) {
        self.left.remove(&member.id);
        if self.members.insert(member.id, member.clone()) != Some(member) {
            self.directory.entered(&self.members);
        }
    }

    /// Records that a host is no longer a replica.
    pub fn leave(&mut self, host: u64) {
        self.members.remove(&host);
        self.labels.remove(&host);
        self.left.insert(host);
        self.directory.left(&self.members, host);
    }

    /// The hosts that were removed from the replicas.
    pub fn left(&self) -> &BTreeSet<u64> {
        &self.left
    }

    /// Continues with one host, which had the identity `was`: what the others subscribed and fed ends, and they cannot come back.
    fn recover(&mut self, entry: u64, (host, was): (u64, u64), kept: Option<&[u32]>) {
        // A recovery that was interrupted is repeated.
        let is_own = |known: u64| known == was || known == host;
        for topic in self.topics.values_mut() {
            topic.subscriptions.retain(|known| is_own(known.host));
            topic.subscriptions.iter_mut().for_each(|known| known.host = host);
            topic.feeds.retain(|known| is_own(known.host));
            topic.feeds.iter_mut().for_each(|known| known.host = host);
        }
        let own = self.members.get(&host).or_else(|| self.members.get(&was)).cloned();
        self.left.extend(std::mem::take(&mut self.members).into_keys());
        self.left.extend([was]);
        self.left.remove(&host);
        self.members.extend(own.map(|own| (host, Member { id: host, ..own })));
        let labels = std::mem::take(&mut self.labels).remove(&was);
        self.labels.extend(labels.map(|labels| (host, labels)));
        if let Some(kept) = kept {
            self.directory.recover(host, kept);
            // A topic that gets the name of a lost one is another topic.
            self.horizon = self.horizon.max(entry);
            // The new cluster has another one.
            self.secret.clear();
        }
        self.revision += 1;
    }

    /// The commands that end the subscriptions and feeds of these hosts, for those that are not replicas.
    pub fn left_behind(&self, gone: &BTreeSet<u64>) -> impl Iterator<Item = Action> {
        let is_gone = move |host: u64| gone.contains(&host) && self.left.contains(&host);
        self.topics.iter().flat_map(move |(name, topic)| {
            let subscribed = topic.subscriptions.iter().filter(move |known| is_gone(known.host));
            let fed = topic.feeds.iter().filter(move |known| is_gone(known.host));
            let unsubscribe = move |known: &Subscription| Action::Unsubscribe {
                topic: name.clone(),
                function: known.function.clone(),
                host: known.host,
            };
            let unfeed =
                move |known: &Feed| Action::Unfeed { topic: name.clone(), host: known.host, log: known.log.clone() };
            subscribed.map(unsubscribe).chain(fed.map(unfeed))
        })
    }

    /// Applies the command of an entry. A command that was applied before changes nothing and has its first outcome: a record's index in
    /// its topic, or 0. Returns `None` if the submitter no longer needs the outcome.
    pub fn apply(&mut self, entry: u64, command: Command<'_>, machine: &mut dyn Machine) -> Option<Result<u64>> {
        let Origin { host, boot, serial, settled } = command.origin;
        let seen = self.seen.entry(host).or_default();
        if boot < seen.boot {
            return None;
        }
        if boot > seen.boot {
            *seen = Seen { boot, ..Seen::default() };
        }
        if serial < seen.settled {
            return None;
        }
        if let Some(outcome) = seen.outcomes.get(&serial) {
            return Some(outcome.clone());
        }
        let outcome = self.check_origin(host, &command.action).and_then(|()| self.act(entry, command, machine));
        let seen = self.seen.entry(host).or_default();
        seen.outcomes.insert(serial, outcome.clone());
        if settled > seen.settled {
            seen.settled = settled;
            seen.outcomes = seen.outcomes.split_off(&settled);
        }
        Some(outcome)
    }

    /// The newest start of a host of which a command was applied; 0 if there was none.
    pub fn boot(&self, host: u64) -> u64 {
        self.seen.get(&host).map_or(0, |seen| seen.boot)
    }

    /// The outcome of a command that was applied, as long as its submitter may ask for it.
    pub(crate) fn outcome(&self, host: u64, boot: u64, serial: u64) -> Option<&Result<u64>> {
        self.seen.get(&host).filter(|seen| seen.boot == boot)?.outcomes.get(&serial)
    }

    /// Only a host itself may submit its address, its subscriptions and its feeds. Other hosts end the subscriptions and feeds of a host
    /// that is no longer a replica.
    fn check_origin(&self, origin: u64, action: &Action) -> Result<()> {
        let Some(of) = action.host().filter(|of| *of != origin) else { return Ok(()) };
        let ends = matches!(action, Action::Unsubscribe { .. } | Action::Unfeed { .. });
        if ends && self.left.contains(&of) {
            return Ok(());
        }
        Err(Code::ValueInvalid.error(format!("host {origin:016x} sent a request in the name of host {of:016x}")))
    }

    fn act(&mut self, entry: u64, command: Command<'_>, machine: &mut dyn Machine) -> Result<u64> {
        let Command { action, data, .. } = command;
        // After a change of the revision, deliveries and feeds look at all topics, so the creation of a topic must not change it.
        let changes_followers = matches!(
            action,
            Action::Subscribe { .. }
                | Action::SubscribeOutside { .. }
                | Action::Unsubscribe { .. }
                | Action::Feed { .. }
                | Action::Unfeed { .. }
                | Action::Remove { .. }
        );
        self.revision += u64::from(changes_followers);
        match action {
            Action::Create { topic, history, durability } => {
                self.create(topic, (history, durability, Engine::Builtin), None)
            }
            Action::CreateOutside { topic, history, engine } => {
                self.create(topic, (history, Durability::Quorum, engine), None)
            }
            Action::CreateAt { topic, history, durability, engine, born } => {
                let born = if born == 0 { entry } else { born };
                self.create(topic, (history, durability, engine), Some(born))
            }
            Action::Remove { topic, horizon } => self.remove(entry, &topic, horizon),
            Action::Displace { topic, group } => {
                let since = self.directory.displace(entry, topic, group)?;
                self.horizon = self.horizon.max(entry);
                Ok(since)
            }
            Action::Displaced { topic, since } => self.directory.displaced(&topic, since),
            Action::Labels { host, .. } if !self.members.contains_key(&host) => Err(removed(host)),
            Action::Labels { host, labels } => {
                check_labels(&labels)?;
                self.labels.remove(&host);
                if !labels.is_empty() {
                    self.labels.insert(host, labels);
                }
                Ok(0)
            }
            Action::Publish { topic, key } => {
                let found = self.topics.get_mut(&topic).ok_or_else(|| no_topic(&topic))?;
                if !found.engine.is_builtin() {
                    return Err(is_outside(&topic, found.engine));
                }
                let known = key.as_deref().and_then(|key| found.keys.get(key)).copied();
                Ok(known.unwrap_or_else(|| found.add_keyed(entry, key)))
            }
            Action::Subscribe { topic, function, host } => self.subscribe(entry, &topic, function, host, None),
            Action::SubscribeOutside { topic, function, host, first } => {
                self.subscribe(entry, &topic, function, host, Some(first))
            }
            Action::Unsubscribe { topic, function, host } => {
                let found = self.topics.get_mut(&topic).ok_or_else(|| no_topic(&topic))?;
                let before = found.subscriptions.len();
                found.subscriptions.retain(|known| (&*known.function, known.host) != (&*function, host));
                if found.subscriptions.len() == before {
                    let detail = format!("function '{function}' of this host is not subscribed to topic '{topic}'");
                    return Err(Code::SubscriptionNotFound.error(detail));
                }
                Ok(0)
            }
            Action::Feed { topic, host, log, after } => {
                let found = self.topics.get_mut(&topic).ok_or_else(|| no_topic(&topic))?;
                if found.feeds.iter().any(|known| known.host == host && known.log == log) {
                    return Ok(0);
                }
                if found.feeds.len() >= SUBSCRIPTIONS_MAX {
                    let detail = format!("{SUBSCRIPTIONS_MAX} logs already feed topic '{topic}'");
                    return Err(Code::TopicsFull.error(detail));
                }
                found.feeds.push(Feed { host, log, last: after, since: entry });
                Ok(0)
            }
            Action::Unfeed { topic, host, log } => {
                let found = self.topics.get_mut(&topic).ok_or_else(|| no_topic(&topic))?;
                let before = found.feeds.len();
                found.feeds.retain(|known| known.host != host || known.log != log);
                if found.feeds.len() == before { Err(no_feed(&topic, &log)) } else { Ok(0) }
            }
            Action::Fed { topic, host, log, since, behind, seqno, key } => {
                let found = self.topics.get_mut(&topic).ok_or_else(|| no_topic(&topic))?;
                let mut feeds = found.feeds.iter_mut();
                let feed = feeds.find(|known| known.host == host && known.log == log && known.since == since);
                let feed = feed.ok_or_else(|| no_feed(&topic, &log))?;
                if seqno <= feed.last {
                    return Ok(0);
                }
                if feed.last != behind {
                    let detail =
                        format!("record {seqno} of log '{log}' follows {behind}, and {} was the last", feed.last);
                    return Err(Code::FeedOutOfOrder.error(detail));
                }
                feed.last = seqno;
                if !found.engine.is_builtin() {
                    // The record was published to the other engine; the group stores the position of the feed.
                    return Ok(0);
                }
                let known = key.as_deref().and_then(|key| found.keys.get(key)).copied();
                Ok(known.unwrap_or_else(|| found.add_keyed(entry, key)))
            }
            Action::Prefer { site } => {
                self.preferred = site;
                Ok(0)
            }
            Action::Voters { count } => {
                if !VOTERS.contains(&count) {
                    let detail = format!("a group cannot have {count} voters; it has 1, 3 or 5");
                    return Err(Code::ValueInvalid.error(detail));
                }
                self.voters = count;
                Ok(0)
            }
            Action::Member(member) => {
                if self.left.contains(&member.id) {
                    return Err(removed(member.id));
                }
                self.enter(member);
                Ok(0)
            }
            Action::Machine => {
                machine.apply(data);
                Ok(0)
            }
            Action::Group { name, hosts, size } => self.directory.create(&self.members, name, hosts, size),
            Action::Ungroup { name } => self.directory.remove(&name),
            Action::Secret { digest, before } => {
                if self.secret != digest && self.secret != before {
                    return Err(Code::GroupBusy.error("the secret of the cluster was changed by another request"));
                }
                self.secret = digest;
                Ok(0)
            }
            Action::Abandon { group } => {
                let done = self.directory.abandon(&group)?;
                self.horizon = self.horizon.max(entry);
                Ok(done)
            }
            Action::Recover { host, was, kept } => {
                self.recover(entry, (host, was), kept.as_deref());
                Ok(0)
            }
            Action::Resize { name, size } => self.directory.resize(&self.members, &name, size),
            Action::Follow { host, .. } if !self.members.contains_key(&host) => Err(removed(host)),
            Action::Follow { group, host } => self.directory.follow(group, host),
            Action::Place { topic, group } => {
                check_topic(&topic)?;
                if self.topics.contains_key(&topic) {
                    return Err(Code::TopicExists.error(format!("topic '{topic}' exists in group '{MAIN_NAME}'")));
                }
                self.directory.place(topic, group).map(|_| entry)
            }
        }
    }

    fn create(
        &mut self,
        topic: String,
        (history, durability, engine): (u64, Durability, Engine),
        born: Option<u64>,
    ) -> Result<u64> {
        check_topic(&topic)?;
        if history == 0 {
            return Err(Code::ValueInvalid.error("a topic keeps at least one record"));
        }
        if let Some(known) = self.topics.get(&topic) {
            if (known.history, known.durability, known.engine) == (history, durability, engine) {
                return Ok(0);
            }
            let (history, durability) = (known.history, format!("{:?}", known.durability).to_lowercase());
            let mut detail = format!("topic '{topic}' exists with a history of {history} and durability {durability}");
            if known.engine != engine {
                detail += &format!(", and its engine is {}", known.engine.name());
            }
            return Err(Code::TopicExists.error(detail));
        }
        self.directory.check_stays(&topic)?;
        if let Some(group) = self.directory.placed(&topic) {
            return Err(elsewhere(&topic, &self.directory, group));
        }
        if self.topics.len() >= TOPICS_MAX {
            return Err(Code::TopicsFull.error(format!("the group already has {TOPICS_MAX} topics")));
        }
        let born = born.unwrap_or(0);
        if self.horizon > 0 && born <= self.horizon {
            let detail = format!("a topic was removed while topic '{topic}' was being created");
            return Err(Code::TopicRemoving.error(detail));
        }
        self.topics.insert(topic, Topic { history, durability, engine, born, ..Topic::default() });
        Ok(0)
    }

    fn remove(&mut self, entry: u64, topic: &str, horizon: u64) -> Result<u64> {
        match self.topics.get(topic) {
            Some(known) if !known.engine.is_builtin() => return Err(is_outside(topic, known.engine)),
            // The removal may be a repeated one.
            None if horizon == 0 => return Err(no_topic(topic)),
            _ => drop(self.topics.remove(topic)),
        }
        self.horizon = self.horizon.max(if horizon == 0 { entry } else { horizon });
        Ok(0)
    }

    fn subscribe(&mut self, entry: u64, topic: &str, function: String, host: u64, first: Option<u64>) -> Result<u64> {
        let found = self.topics.get_mut(topic).ok_or_else(|| no_topic(topic))?;
        let first = match (found.engine.is_builtin(), first) {
            (true, _) => found.latest + 1,
            (false, Some(first)) => first.max(1),
            (false, None) => return Err(is_outside(topic, found.engine)),
        };
        if found.subscriptions.iter().any(|known| known.function == function && known.host == host) {
            return Ok(0);
        }
        if found.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let detail = format!("topic '{topic}' already has {SUBSCRIPTIONS_MAX} subscriptions");
            return Err(Code::TopicsFull.error(detail));
        }
        found.subscriptions.push(Subscription { function, host, first, since: entry });
        Ok(0)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_outside(topic: &str, engine: Engine) -> Error {
    Code::NatsUnsupported.error(format!("{} keeps the records of topic '{topic}', not its group", engine.name()))
}

fn removed(host: u64) -> Error {
    Code::HostNotInCluster.error(format!("host {host:016x}"))
}

fn no_feed(topic: &str, log: &str) -> Error {
    Code::SubscriptionNotFound.error(format!("log '{log}' of this host does not feed topic '{topic}'"))
}

fn no_topic(name: &str) -> Error {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    Code::TopicNotFound.error(format!("no topic '{shown}'"))
}

#[cfg(test)]
mod tests;
