//! Messages between hosts of a cluster, and requests of clients about a cluster's topics.

use super::Message;
use serde::{Deserialize, Serialize};

/// Messages between replicas of groups. Has no answer: what is lost is sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMessages<'b> {
    /// The messages, in order.
    #[serde(borrow)]
    pub messages: Vec<GroupMessage<'b>>,
}

/// A message for one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMessage<'b> {
    /// The group.
    pub group: u32,
    /// The message for the replica.
    #[serde(borrow, with = "serde_bytes")]
    pub data: &'b [u8],
}

/// Asks to be a host of the cluster. Answered with a [`super::Document`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinCluster<'b> {
    /// The identity of the namespace that joins.
    pub host: u64,
    /// Where the others reach it: `host:port`.
    pub address: &'b str,
    /// The name under which it is served there.
    pub name: &'b str,
    /// The site it is at.
    pub site: &'b str,
}

/// Makes a topic; one with the same history is left as it is. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopic<'b> {
    /// Its name.
    pub topic: &'b str,
    /// How many of its newest records stay readable.
    pub history: u64,
    /// The hosts that must have a record on disk before its publish is acknowledged: `quorum`, a majority of the group, or `leader`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<&'b str>,
    /// The group that is to have it; the first one if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<&'b str>,
    /// The engine that keeps its records: `builtin`, its group, or `nats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<&'b str>,
}

/// Removes a topic with its records, subscriptions and feeds. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveTopic<'b> {
    /// Its name, which can be used again.
    pub topic: &'b str,
    /// Discards the records that wait on this host to be published to the topic, and leaves the topic as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waiting: bool,
}

/// Publishes a record. Answered with [`super::Seqno`], its index, once a majority of the group's disks have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The record's bytes.
    #[serde(borrow, with = "serde_bytes")]
    pub data: &'b [u8],
    /// The idempotency key: a record with a key that the topic remembers is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<&'b str>,
    /// The hosts that must have the record on disk before the answer: `quorum`, `leader`, or `local`, which is the host that is asked; by
    /// default as the topic was created. With `leader` and `local` the answer is 0, because the index is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<&'b str>,
}

/// Reads one record of a topic. Answered with [`super::Record`], whose number is the index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The record; 0 for the newest.
    pub index: u64,
}

/// Reads a range of records of a topic. Answered with [`super::Records`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The first.
    pub from: u64,
    /// Maximum number of records; the answer has as many as fit a frame, and where to continue.
    pub count: u32,
}

/// Asks for the index of a topic's newest record, or waits until it is above one. Answered with [`super::Seqno`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatestTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// Wait until it is above this.
    #[serde(default)]
    pub above: u64,
    /// How long at most; then the answer is what it is.
    #[serde(default)]
    pub wait_ms: u32,
}

/// Runs a function of this host's namespace for every record of a topic from now on. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The function.
    pub function: &'b str,
}

/// Ends that. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsubscribeTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The function.
    pub function: &'b str,
}

/// Publishes the records of a log of this host's namespace to a topic from now on. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
}

/// Ends that. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfeedTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
}

/// Copies a topic to a new log of this host's namespace, to which nothing else is appended. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
    /// How many of its newest records stay readable; as many as those of the topic if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<u64>,
}

/// Ends that; the log stays. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmirrorTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
}

/// Transfers the leadership of a group to a host. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadGroup<'b> {
    /// The identity of its namespace.
    pub host: u64,
    /// The group; the first one if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<&'b str>,
}

/// Removes a host from the cluster. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveHost<'b> {
    /// The identity of its namespace.
    pub host: u64,
    /// Groups in which it votes and which no longer answer: they are given up, with their topics.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub lose: Vec<&'b str>,
}

/// Says how many hosts are to vote. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetVoters<'b> {
    /// 1, 3 or 5.
    pub voters: u64,
    /// The group; the first one if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<&'b str>,
}

/// Makes a group; one that is there as it is to be is left as it is. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateGroup<'b> {
    /// Its name.
    pub group: &'b str,
    /// The identities of the hosts that vote in it; none to have them chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<u64>,
    /// How many hosts vote, if they are chosen: 1, 3 or 5.
    #[serde(default)]
    pub voters: u64,
}

/// Removes a group without topics. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveGroup<'b> {
    /// Its name.
    pub group: &'b str,
}

impl Message for RemoveHost<'_> {
    const TYPE: u8 = 108;
}

/// Has hosts at a site lead whenever they can. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreferSite<'b> {
    /// The site; empty if any host may lead.
    pub site: &'b str,
    /// The group; the first one if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<&'b str>,
}

macro_rules! numbered {
    ($($number:literal $type:ident)*) => { $(
        impl Message for $type<'_> {
            const TYPE: u8 = $number;
        }
    )* };
}

numbered! {
    96 GroupMessages
    97 JoinCluster
    98 CreateTopic
    99 PublishTopic
    100 GetTopic
    101 RangeTopic
    102 LatestTopic
    103 SubscribeTopic
    104 UnsubscribeTopic
    105 FeedTopic
    106 UnfeedTopic
    107 LeadGroup
    109 PreferSite
    146 SetVoters
    147 CreateGroup
    148 RemoveGroup
    153 MirrorTopic
    154 UnmirrorTopic
    155 RemoveTopic
}
