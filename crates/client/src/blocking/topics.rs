//! Topics of the cluster that a namespace belongs to.

use super::{Again, Client, done};
use crate::{Batch, Placement, Record, ask, placement::Places};
use millrace_wire::{
    Code, EventId, Result,
    protocol::{
        CreateGroup, CreateTopic, FeedTopic, GetTopic, LatestTopic, LeadGroup, MirrorTopic, PreferSite, PublishTopic,
        RangeTopic, RemoveGroup, RemoveHost, RemoveTopic, Seqno, SetVoters, SubscribeTopic, UnfeedTopic, UnmirrorTopic,
        UnsubscribeTopic,
    },
};
use serde::Deserialize;
use std::fmt::Write;

/// A topic, as the document `topics` has it.
#[derive(Deserialize)]
struct Found {
    topic: String,
    /// Empty if no more is known of the topic than that records wait for it.
    group: String,
}

#[derive(Deserialize)]
struct Page {
    topics: Vec<Found>,
    next: Option<String>,
}

impl Client {
    /// Makes a topic; one that is as it is to be is left so. `durability` is `quorum` or `leader`.
    pub fn create_topic(&self, topic: &str, history: u64, durability: Option<&str>, group: Option<&str>) -> Result<()> {
        self.create_topic_in(topic, history, durability, group, None)
    }

    /// The same, with what keeps its records: `builtin` or `nats`.
    pub fn create_topic_in(
        &self,
        topic: &str,
        history: u64,
        durability: Option<&str>,
        group: Option<&str>,
        engine: Option<&str>,
    ) -> Result<()> {
        self.ask(&CreateTopic { topic, history, durability, group, engine }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Chooses the groups in which to create topics, one for each. A topic that is in a group that fits stays there.
    pub fn place_topics(&self, topics: &[&str], placement: Placement<'_>) -> Result<Vec<String>> {
        if let Placement::Beside(other) = placement {
            let Some(group) = self.group_of_topic(other)? else {
                let shown: String = other.chars().take(80).flat_map(char::escape_debug).collect();
                return Err(Code::TopicNotFound.error(format!("no topic '{shown}'")));
            };
            return Ok(vec![group; topics.len()]);
        }
        let current = topics.iter().map(|topic| self.group_of_topic(topic)).collect::<Result<Vec<_>>>()?;
        let mut places = Places::read(&self.show("cluster")?, &self.show("cluster/groups")?)?;
        current.iter().map(|current| places.choose(placement, current.as_deref())).collect()
    }

    /// The group of a topic, if there is one of this name. Afterwards the host knows all groups that were created before.
    fn group_of_topic(&self, topic: &str) -> Result<Option<String>> {
        // A host that does not know a topic asks the leader of the group `main` before it says so.
        match self.latest_topic(topic, 0, 0) {
            Err(error) if ![Code::TopicNotFound, Code::CapabilityDenied].contains(&error.code()) => return Err(error),
            _ => {}
        }
        // Topics are listed by name, and the list can begin behind any text. A name may be reserved in a group that has no such topic yet.
        let mut after = Some(topic.get(..topic.len().saturating_sub(1)).unwrap_or_default().to_owned());
        while let Some(from) = after.filter(|from| **from < *topic) {
            let mut path = "topics?after=".to_owned();
            for byte in from.bytes() {
                let _ = write!(path, "%{byte:02X}");
            }
            let page: Page = serde_json::from_str(&self.show(&path)?)
                .map_err(|error| Code::DocumentUnknown.error(format!("the host's document '{path}': {error}")))?;
            if let Some(found) = page.topics.into_iter().find(|found| found.topic == topic) {
                return Ok(Some(found.group).filter(|group| !group.is_empty()));
            }
            after = page.next;
        }
        Ok(None)
    }

    /// Removes a topic with its records, subscriptions and feeds.
    pub fn remove_topic(&self, topic: &str) -> Result<()> {
        self.ask(&RemoveTopic { topic, waiting: false }, (0, 0, EventId::NONE), Again::MayNot, done)
    }

    /// Discards the records that wait on the host that is asked to be published to a topic. The topic stays as it is.
    pub fn discard_waiting(&self, topic: &str) -> Result<()> {
        self.ask(&RemoveTopic { topic, waiting: true }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Publishes a record; returns its index once a majority of the group's disks have it. With a key it may be published again: it is
    /// there once. With the durability `leader`, 0 is returned once the leader has it on disk; with `local`, once the host that is asked has
    /// it on disk, which publishes it later.
    pub fn publish(&self, topic: &str, data: &[u8], key: Option<&str>, durability: Option<&str>) -> Result<u64> {
        let asked = (data.len(), 0, EventId::NONE);
        let again = if key.is_some() { Again::May } else { Again::MayNot };
        let message = PublishTopic { topic, data, key, durability };
        self.ask(&message, asked, again, |frame| Ok(ask::answer::<Seqno>(frame)?.seqno))
    }

    /// Reads one record of a topic, 0 for the newest.
    pub fn get_topic(&self, topic: &str, index: u64) -> Result<Record> {
        self.ask(&GetTopic { topic, index }, (0, 0, EventId::NONE), Again::May, ask::record)
    }

    /// Reads up to `count` records of a topic, starting at `from`: as many as fit one answer, and none at the end of the topic.
    pub fn range_topic(&self, topic: &str, from: u64, count: u32) -> Result<Batch> {
        self.ask(&RangeTopic { topic, from, count }, (0, 0, EventId::NONE), Again::May, ask::batch)
    }

    /// The index of a topic's newest record, 0 if there is none; waits up to `wait_ms` until it is above `above`.
    pub fn latest_topic(&self, topic: &str, above: u64, wait_ms: u32) -> Result<u64> {
        let message = LatestTopic { topic, above, wait_ms };
        self.ask(&message, (0, wait_ms, EventId::NONE), Again::May, |frame| Ok(ask::answer::<Seqno>(frame)?.seqno))
    }

    /// Runs a function of this host for every record that is published to a topic from now on.
    pub fn subscribe_topic(&self, topic: &str, function: &str) -> Result<()> {
        self.ask(&SubscribeTopic { topic, function }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Publishes the records of a log of the connected host to a topic from now on.
    pub fn feed_topic(&self, topic: &str, log: &str) -> Result<()> {
        self.ask(&FeedTopic { topic, log }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Ends that.
    pub fn unfeed_topic(&self, topic: &str, log: &str) -> Result<()> {
        self.ask(&UnfeedTopic { topic, log }, (0, 0, EventId::NONE), Again::MayNot, done)
    }

    /// Copies a topic to a new log of the connected host; with the topic's history unless another one is given.
    pub fn mirror_topic(&self, topic: &str, log: &str, history: Option<u64>) -> Result<()> {
        self.ask(&MirrorTopic { topic, log, history }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Ends that; the log stays.
    pub fn unmirror_topic(&self, topic: &str, log: &str) -> Result<()> {
        self.ask(&UnmirrorTopic { topic, log }, (0, 0, EventId::NONE), Again::MayNot, done)
    }

    /// Transfers the leadership of a group to a host; without a group, of the first one.
    pub fn lead_group(&self, group: Option<&str>, host: u64) -> Result<()> {
        self.ask(&LeadGroup { host, group }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Has hosts at a site lead a group whenever they can; with an empty site, any may.
    pub fn prefer_site(&self, group: Option<&str>, site: &str) -> Result<()> {
        self.ask(&PreferSite { site, group }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Says how many hosts are to vote in a group: 1, 3 or 5.
    pub fn set_voters(&self, group: Option<&str>, voters: u64) -> Result<()> {
        self.ask(&SetVoters { voters, group }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Creates a group on these hosts, or on this number of chosen hosts.
    pub fn create_group(&self, group: &str, hosts: Vec<u64>, voters: u64) -> Result<()> {
        self.ask(&CreateGroup { group, hosts, voters }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Removes a group without topics.
    pub fn remove_group(&self, group: &str) -> Result<()> {
        self.ask(&RemoveGroup { group }, (0, 0, EventId::NONE), Again::MayNot, done)
    }

    /// Removes a host from the cluster, and gives up these groups, in which it votes and which no longer answer.
    pub fn remove_host(&self, host: u64, lose: &[&str]) -> Result<()> {
        self.ask(&RemoveHost { host, lose: lose.to_vec() }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Ends that.
    pub fn unsubscribe_topic(&self, topic: &str, function: &str) -> Result<()> {
        self.ask(&UnsubscribeTopic { topic, function }, (0, 0, EventId::NONE), Again::MayNot, done)
    }
}
