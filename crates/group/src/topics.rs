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
    /// The entry that subscribed it: a function that is subscribed again restarts.
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
    /// What keeps its records. If it is not the group, the topic has none here.
    #[serde(default, skip_serializing_if = "Engine::is_builtin")]
    pub engine: Engine,
    /// Which topic of this name it is: each is greater than those before. It is an entry of the first group, or 0 if no topic of the
    /// cluster had been removed when this one was made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub born: u64,
    /// The index of its newest record, 0 if there is none.
    pub latest: u64,
    /// The group's entries that hold its records, up to `latest`.
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

    /// The group's entry that holds a record.
    pub fn entry(&self, topic: &str, record: u64) -> Result<u64> {
        let (earliest, latest) = (self.earliest(), self.latest);
        if record < earliest {
            let detail = format!("topic '{topic}' no longer has record {record}; the oldest is {earliest}");
            return Err(Code::BelowHistory.error(detail));
        }
        let entry = self.entries.get((record - earliest) as usize).copied();
        entry.ok_or_else(|| {
            Code::AboveTail.error(format!("topic '{topic}' does not reach record {record}; {latest} is the newest"))
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
    seen: HashMap<u64, Seen>,
    preferred: String,
    /// The number of voters; 0 if it was not set.
    #[serde(default)]
    voters: u64,
    revision: u64,
    /// The last entry of the first group that began a removal here, in the first group of any topic. A name that was reserved before does
    /// not make a topic: that one may have been removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    horizon: u64,
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

    /// The entries that hold records which can be read, in no order.
    pub fn entries(&self) -> impl Iterator<Item = u64> {
        self.topics.values().flat_map(|topic| topic.entries.iter().copied())
    }

    /// With what a snapshot leaves out, since it follows from the rest.
    pub(crate) fn completed(mut self) -> Self {
        for topic in self.topics.values_mut() {
            topic.keys = topic.keys_in_order.iter().cloned().collect();
        }
        self
    }

    /// Counts what happens besides publishing: as long as it is the same, so are subscriptions and feeds.
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

    /// The site whose hosts lead whenever they can; empty if any may.
    pub fn preferred(&self) -> &str {
        &self.preferred
    }

    /// How many hosts are to vote, if that was said.
    pub fn voters(&self) -> Option<usize> {
        usize::try_from(self.voters).ok().filter(|count| *count > 0)
    }

    /// The hosts that said where they are.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Information about a host.
    pub fn member(&self, id: u64) -> Option<&Member> {
        self.members.get(&id)
    }

    /// The labels of a host; nothing if it has none.
    pub fn labels(&self, id: u64) -> Option<&Labels> {
        self.labels.get(&id)
    }

    /// Takes note of a host that was made a replica.
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

    /// Applies the command of an entry. A command that was applied before changes nothing and has its first outcome: a record's index in
    /// its topic, or 0.
    ///
    /// `None`: the submitter no longer needs the outcome.
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
        let outcome = check_origin(host, &command.action).and_then(|()| self.act(entry, command, machine));
        let seen = self.seen.entry(host).or_default();
        seen.outcomes.insert(serial, outcome.clone());
        if settled > seen.settled {
            seen.settled = settled;
            seen.outcomes = seen.outcomes.split_off(&settled);
        }
        Some(outcome)
    }

    fn act(&mut self, entry: u64, command: Command<'_>, machine: &mut dyn Machine) -> Result<u64> {
        let Command { action, data, .. } = command;
        if !matches!(action, Action::Publish { .. } | Action::Fed { .. } | Action::Machine) {
            self.revision += 1;
        }
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
                    let detail = format!("{SUBSCRIPTIONS_MAX} logs feed topic '{topic}' already");
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
                    // The record was published there; the group remembers how far the feed is.
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
                    let detail = format!("{count} hosts cannot vote: 1, 3 or 5 can, of which a majority decides");
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
            return Err(Code::TopicsFull.error(format!("the group has {TOPICS_MAX} topics already")));
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
            // A removal that is repeated may have got here before.
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
            let detail = format!("topic '{topic}' has {SUBSCRIPTIONS_MAX} subscriptions already");
            return Err(Code::TopicsFull.error(detail));
        }
        found.subscriptions.push(Subscription { function, host, first, since: entry });
        Ok(0)
    }
}

/// Only a host itself says where it is, what runs on it, and which of its logs feed topics.
fn check_origin(origin: u64, action: &Action) -> Result<()> {
    let of = match action {
        Action::Subscribe { host, .. }
        | Action::Unsubscribe { host, .. }
        | Action::Feed { host, .. }
        | Action::Unfeed { host, .. }
        | Action::Fed { host, .. }
        | Action::SubscribeOutside { host, .. }
        | Action::Follow { host, .. }
        | Action::Labels { host, .. } => *host,
        Action::Member(member) => member.id,
        Action::Create { .. }
        | Action::CreateOutside { .. }
        | Action::Publish { .. }
        | Action::Prefer { .. }
        | Action::Voters { .. }
        | Action::Machine
        | Action::Group { .. }
        | Action::Ungroup { .. }
        | Action::Resize { .. }
        | Action::Place { .. }
        | Action::CreateAt { .. }
        | Action::Remove { .. }
        | Action::Displace { .. }
        | Action::Displaced { .. } => return Ok(()),
    };
    if of == origin {
        return Ok(());
    }
    Err(Code::ValueInvalid.error(format!("host {origin:016x} sent a request in the name of host {of:016x}")))
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
mod tests {
    use super::*;
    use crate::Without;

    fn apply(topics: &mut Topics, entry: u64, serial: u64, action: Action) -> Option<Result<u64>> {
        let origin = Origin { host: 1, boot: 1, serial, settled: 0 };
        topics.apply(entry, Command { origin, action, data: b"" }, &mut Without)
    }

    fn publish() -> Action {
        Action::Publish { topic: "t".into(), key: None }
    }

    fn with_topic(history: u64) -> Topics {
        let mut topics = Topics::default();
        apply(&mut topics, 1, 1, Action::Create { topic: "t".into(), history, durability: Durability::Quorum })
            .unwrap()
            .unwrap();
        topics
    }

    #[test]
    fn records_are_numbered_without_gaps_and_leave_the_history() {
        let mut topics = with_topic(2);
        for (entry, serial) in [(5, 2), (7, 3), (8, 4)] {
            assert_eq!(apply(&mut topics, entry, serial, publish()), Some(Ok(serial - 1)));
        }
        let topic = topics.topic("t").unwrap();
        assert_eq!((topic.earliest(), topic.latest), (2, 3));
        assert_eq!(topic.entry("t", 1).unwrap_err().code(), Code::BelowHistory);
        assert_eq!((topic.entry("t", 2), topic.entry("t", 3)), (Ok(7), Ok(8)));
        assert_eq!(topic.entry("t", 4).unwrap_err().code(), Code::AboveTail);
    }

    #[test]
    fn what_arrives_twice_counts_once() {
        let mut topics = with_topic(10);
        assert_eq!(apply(&mut topics, 2, 2, publish()), Some(Ok(1)));
        assert_eq!(apply(&mut topics, 3, 2, publish()), Some(Ok(1)), "the outcome of the first time");
        assert_eq!(topics.topic("t").unwrap().latest, 1);
        let again = |topics: &mut Topics, boot, serial, settled| {
            let origin = Origin { host: 1, boot, serial, settled };
            topics.apply(9, Command { origin, action: publish(), data: b"" }, &mut Without)
        };
        assert_eq!(again(&mut topics, 1, 3, 3), Some(Ok(2)));
        assert_eq!(again(&mut topics, 1, 2, 0), None, "it was settled");
        assert_eq!(again(&mut topics, 2, 1, 0), Some(Ok(3)), "another life of the host");
        assert_eq!(again(&mut topics, 1, 4, 0), None, "the host has ended that life");
    }

    /// Has the commands that it was given.
    #[derive(Default)]
    struct Heard(Vec<u8>);

    impl Machine for Heard {
        fn apply(&mut self, command: &[u8]) {
            self.0.extend_from_slice(command);
        }

        fn encode(&self) -> Vec<u8> {
            self.0.clone()
        }

        fn check(&self, bytes: &[u8]) -> Result<()> {
            if bytes.contains(&b'!') { Err(Code::GroupLogDamaged.error("it is not said")) } else { Ok(()) }
        }

        fn restore(&mut self, bytes: &[u8]) {
            self.0 = bytes.to_vec();
        }
    }

    #[test]
    fn a_machine_has_each_command_once_and_is_in_the_snapshot() {
        let (mut topics, mut machine) = (with_topic(10), Heard::default());
        for (serial, data) in [(2, b"a"), (3, b"b"), (2, b"a"), (4, b"c")] {
            let origin = Origin { host: 1, boot: 1, serial, settled: 0 };
            topics.apply(serial, Command { origin, action: Action::Machine, data }, &mut machine);
        }
        assert_eq!(machine.0, b"abc");
        let mut bytes = crate::snapshot::encode(&topics, &machine).unwrap();
        let (restored, of_machine) = crate::snapshot::decode(&bytes, &machine).unwrap();
        assert_eq!((&restored, of_machine), (&topics, &b"abc"[..]));
        assert_eq!(crate::snapshot::decode(&bytes, &Without).unwrap_err().code(), Code::GroupLogDamaged);
        bytes.push(b'!');
        assert_eq!(crate::snapshot::decode(&bytes, &machine).unwrap_err().code(), Code::GroupLogDamaged);
    }

    #[test]
    fn a_record_with_a_key_is_there_once() {
        let mut topics = with_topic(10);
        let keyed = |key: usize| Action::Publish { topic: "t".into(), key: Some(key.to_string()) };
        assert_eq!(apply(&mut topics, 2, 2, keyed(1)), Some(Ok(1)));
        assert_eq!(apply(&mut topics, 3, 3, publish()), Some(Ok(2)));
        assert_eq!(apply(&mut topics, 4, 4, keyed(1)), Some(Ok(1)), "another command, the same key");
        for serial in 0..KEYS_MAX as u64 {
            apply(&mut topics, 5 + serial, 5 + serial, keyed(100 + serial as usize));
        }
        assert_eq!(apply(&mut topics, 9, 1 << 20, keyed(1)), Some(Ok(3 + KEYS_MAX as u64)), "it was forgotten");
    }

    #[test]
    fn what_is_refused_is_refused_everywhere_alike() {
        let mut topics = with_topic(10);
        let mut code = |serial, action| apply(&mut topics, serial, serial, action).unwrap().unwrap_err().code();
        assert_eq!(code(2, Action::Publish { topic: "u".into(), key: None }), Code::TopicNotFound);
        assert_eq!(
            code(3, Action::Create { topic: "t".into(), history: 11, durability: Durability::Quorum }),
            Code::TopicExists
        );
        assert_eq!(
            code(4, Action::Create { topic: "_t".into(), history: 11, durability: Durability::Quorum }),
            Code::TopicNameInvalid
        );
        assert_eq!(
            code(5, Action::Create { topic: "v".into(), history: 0, durability: Durability::Quorum }),
            Code::ValueInvalid
        );
        assert_eq!(code(1 << 30, Action::Voters { count: 4 }), Code::ValueInvalid);
        let nobody = Action::Unsubscribe { topic: "t".into(), function: "f".into(), host: 1 };
        assert_eq!(code(6, nobody), Code::SubscriptionNotFound);
        let (t, log) = (|| "t".to_owned(), || "_keys".to_owned());
        for (at, of_another) in [
            Action::Subscribe { topic: t(), function: "f".into(), host: 4 },
            Action::Unsubscribe { topic: t(), function: "f".into(), host: 4 },
            Action::Feed { topic: t(), host: 4, log: log(), after: 0 },
            Action::Fed { topic: t(), host: 4, log: log(), since: 1, behind: 0, seqno: 1, key: None },
            Action::Unfeed { topic: t(), host: 4, log: log() },
            Action::Member(Member { id: 4, ..Member::default() }),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(code(7 + at as u64, of_another), Code::ValueInvalid, "{at}");
        }
    }

    #[test]
    fn the_group_has_the_definition_of_a_topic_whose_records_are_elsewhere() {
        let mut topics = Topics::default();
        let create = |history| Action::CreateOutside { topic: "t".into(), history, engine: Engine::Nats };
        let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
        assert_eq!(code(apply(&mut topics, 1, 1, create(10))), Ok(0));
        assert_eq!(code(apply(&mut topics, 2, 2, create(10))), Ok(0), "it is there");
        assert_eq!(code(apply(&mut topics, 3, 3, create(11))), Err(Code::TopicExists));
        let builtin = Action::Create { topic: "t".into(), history: 10, durability: Durability::Quorum };
        assert_eq!(code(apply(&mut topics, 4, 4, builtin)), Err(Code::TopicExists));
        assert_eq!(code(apply(&mut topics, 5, 5, publish())), Err(Code::NatsUnsupported));
        let subscribe = |first| Action::SubscribeOutside { topic: "t".into(), function: "f".into(), host: 1, first };
        let without = Action::Subscribe { topic: "t".into(), function: "f".into(), host: 1 };
        assert_eq!(code(apply(&mut topics, 6, 6, without)), Err(Code::NatsUnsupported));
        assert_eq!(code(apply(&mut topics, 7, 7, subscribe(5))), Ok(0));
        assert_eq!(code(apply(&mut topics, 8, 8, subscribe(9))), Ok(0), "it is subscribed");
        // A feed publishes elsewhere; what the group learns of it is its progress.
        let (topic, log) = (|| "t".to_owned(), || "raw".to_owned());
        let feed = Action::Feed { topic: topic(), host: 1, log: log(), after: 2 };
        let fed = Action::Fed { topic: topic(), host: 1, log: log(), since: 9, behind: 2, seqno: 6, key: None };
        assert_eq!(code(apply(&mut topics, 9, 9, feed)), Ok(0));
        assert_eq!(code(apply(&mut topics, 10, 10, fed)), Ok(0));
        let bytes = crate::snapshot::encode(&topics, &Without).unwrap();
        let (topics, _) = crate::snapshot::decode(&bytes, &Without).unwrap();
        let found = topics.topic("t").unwrap();
        assert_eq!((found.engine, found.latest, found.subscriptions[0].first), (Engine::Nats, 0, 5));
        assert_eq!((found.feeds[0].last, topics.entries().count()), (6, 0));
    }

    #[test]
    fn a_host_has_the_labels_that_it_said_last_until_it_leaves() {
        let mut topics = Topics::default();
        let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
        let labels = |all: &[(&str, &str)]| -> Labels {
            all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let say = |host, all| Action::Labels { host, labels: labels(all) };
        let barn: &[(&str, &str)] = &[("zone", "barn"), ("rack", "2")];
        assert_eq!(code(apply(&mut topics, 1, 1, say(1, barn))), Err(Code::HostNotInCluster));
        topics.enter(Member { id: 1, ..Member::default() });
        assert_eq!(code(apply(&mut topics, 2, 2, say(1, barn))), Ok(0));
        assert_eq!(code(apply(&mut topics, 3, 3, say(2, barn))), Err(Code::ValueInvalid), "it speaks for another");
        assert_eq!(code(apply(&mut topics, 4, 4, say(1, &[("no/name", "x")]))), Err(Code::NameInvalid));
        let bytes = crate::snapshot::encode(&topics, &Without).unwrap();
        let (mut topics, _) = crate::snapshot::decode(&bytes, &Without).unwrap();
        assert_eq!(topics.labels(1), Some(&labels(barn)));
        assert_eq!(code(apply(&mut topics, 5, 5, say(1, &[("zone", "mill")]))), Ok(0));
        assert_eq!(topics.labels(1), Some(&labels(&[("zone", "mill")])));
        topics.leave(1);
        assert_eq!(topics.labels(1), None);
    }

    #[test]
    fn a_removed_topic_is_gone_with_all_that_it_had_and_its_name_can_be_used_again() {
        let mut topics = with_topic(10);
        let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
        let keyed = || Action::Publish { topic: "t".into(), key: Some("k".into()) };
        let remove = |horizon| Action::Remove { topic: "t".into(), horizon };
        let create = || Action::Create { topic: "t".into(), history: 10, durability: Durability::Quorum };
        let create_at = |born| {
            let (topic, durability, engine) = ("t".into(), Durability::Quorum, Engine::Builtin);
            Action::CreateAt { topic, history: 10, durability, engine, born }
        };
        assert_eq!(code(apply(&mut topics, 2, 2, keyed())), Ok(1));
        let subscribe = Action::Subscribe { topic: "t".into(), function: "f".into(), host: 1 };
        assert_eq!(code(apply(&mut topics, 3, 3, subscribe)), Ok(0));
        let feed = Action::Feed { topic: "t".into(), host: 1, log: "raw".into(), after: 0 };
        assert_eq!(code(apply(&mut topics, 4, 4, feed)), Ok(0));
        assert_eq!(code(apply(&mut topics, 5, 5, remove(0))), Ok(0));
        assert_eq!(code(apply(&mut topics, 6, 6, remove(0))), Err(Code::TopicNotFound));
        assert_eq!(code(apply(&mut topics, 7, 7, keyed())), Err(Code::TopicNotFound));
        let fed =
            Action::Fed { topic: "t".into(), host: 1, log: "raw".into(), since: 4, behind: 0, seqno: 1, key: None };
        assert_eq!(code(apply(&mut topics, 8, 8, fed.clone())), Err(Code::TopicNotFound));
        assert_eq!(topics.entries().count(), 0, "no record is held");
        // A creation that began before the removal makes nothing.
        assert_eq!(code(apply(&mut topics, 9, 9, create())), Err(Code::TopicRemoving));
        assert_eq!(code(apply(&mut topics, 10, 10, create_at(5))), Err(Code::TopicRemoving));
        assert_eq!(code(apply(&mut topics, 11, 11, create_at(0))), Ok(0));
        assert_eq!(code(apply(&mut topics, 12, 12, create_at(0))), Ok(0), "it is there");
        let bytes = crate::snapshot::encode(&topics, &Without).unwrap();
        let (mut topics, _) = crate::snapshot::decode(&bytes, &Without).unwrap();
        let found = topics.topic("t").unwrap();
        assert_eq!((found.born, found.latest, topics.horizon()), (11, 0, 5));
        assert!(found.subscriptions.is_empty() && found.feeds.is_empty());
        assert_eq!(code(apply(&mut topics, 13, 13, fed)), Err(Code::SubscriptionNotFound));
        assert_eq!(code(apply(&mut topics, 14, 14, keyed())), Ok(1), "keys are those of the new topic");
        // As in another group than the first: there the removal began with an entry of the first group, and may be repeated.
        assert_eq!(code(apply(&mut topics, 15, 15, remove(40))), Ok(0));
        assert_eq!(code(apply(&mut topics, 16, 16, remove(40))), Ok(0));
        assert_eq!(code(apply(&mut topics, 17, 17, create_at(39))), Err(Code::TopicRemoving));
        assert_eq!(code(apply(&mut topics, 18, 18, create_at(41))), Ok(0));
        assert_eq!(topics.topic("t").unwrap().born, 41);
    }

    #[test]
    fn a_host_that_was_removed_says_nothing_that_counts() {
        let mut topics = Topics::default();
        let member = || Member { id: 1, ..Member::default() };
        let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
        let group = Action::Group { name: "g".into(), hosts: vec![1], size: 1 };
        let follow = || Action::Follow { group: 2, host: 1 };
        assert_eq!(code(apply(&mut topics, 1, 1, Action::Member(member()))), Ok(0));
        assert_eq!(code(apply(&mut topics, 2, 2, group)), Ok(2));
        assert_eq!(code(apply(&mut topics, 3, 3, follow())), Ok(0));
        topics.leave(1);
        assert_eq!(code(apply(&mut topics, 4, 4, Action::Member(member()))), Err(Code::HostNotInCluster));
        assert_eq!(code(apply(&mut topics, 5, 5, follow())), Err(Code::HostNotInCluster));
        // Taken in again, it is a host like the others.
        topics.enter(member());
        assert_eq!(code(apply(&mut topics, 6, 6, follow())), Ok(0));
    }

    #[test]
    fn a_log_feeds_a_topic_with_each_record_once_and_in_order() {
        let mut topics = with_topic(10);
        apply(&mut topics, 2, 2, Action::Feed { topic: "t".into(), host: 1, log: "raw".into(), after: 7 });
        let mut serial = 2;
        let mut keyed = |topics: &mut Topics, since, behind, seqno, key: Option<&str>| {
            serial += 1;
            let key = key.map(str::to_owned);
            let (topic, log) = ("t".into(), "raw".into());
            let outcome = apply(topics, serial, serial, Action::Fed { topic, host: 1, log, since, behind, seqno, key });
            outcome.unwrap().map_err(|error| error.code())
        };
        assert_eq!(keyed(&mut topics, 2, 8, 9, None), Err(Code::FeedOutOfOrder), "record 8 comes first");
        assert_eq!(keyed(&mut topics, 2, 7, 8, None), Ok(1));
        assert_eq!(keyed(&mut topics, 2, 7, 8, None), Ok(0), "it is there");
        assert_eq!(keyed(&mut topics, 2, 8, 12, None), Ok(2), "those between had left the log");
        assert_eq!(keyed(&mut topics, 1, 12, 13, None), Err(Code::SubscriptionNotFound), "another feed of that log");
        assert_eq!(keyed(&mut topics, 2, 12, 13, Some("k")), Ok(3));
        assert_eq!(keyed(&mut topics, 2, 13, 14, Some("k")), Ok(3), "the same key");
        assert_eq!(keyed(&mut topics, 2, 14, 15, None), Ok(4), "the feed goes on");
        assert_eq!(topics.topic("t").unwrap().latest, 4);
    }

    #[test]
    fn a_subscription_begins_behind_what_is_there() {
        let mut topics = with_topic(10);
        apply(&mut topics, 2, 2, publish());
        let subscribe = || Action::Subscribe { topic: "t".into(), function: "f".into(), host: 1 };
        apply(&mut topics, 3, 3, subscribe()).unwrap().unwrap();
        apply(&mut topics, 4, 4, subscribe()).unwrap().unwrap();
        let subscriptions = &topics.topic("t").unwrap().subscriptions;
        assert_eq!(*subscriptions, [Subscription { function: "f".into(), host: 1, first: 2, since: 3 }]);
    }
}
