// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Clusters and topics.

use crate::protocol::Message;

/// Messages for the replicas of groups on the receiving host. Lost messages are sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMessages<'b> {
    /// The messages, in order.
    pub messages: Vec<GroupMessage<'b>>,
}

impl Message for GroupMessages<'_> {
    const TYPE: u8 = 96;
}

/// Asks to be a host of the cluster. Answered with [`super::Document`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinCluster<'b> {
    /// The identity of the namespace that joins.
    pub host: u64,
    /// Where the others reach it: `host:port`.
    pub address: &'b str,
    /// The name under which it is served there.
    pub name: &'b str,
    /// The site that it is at.
    pub site: &'b str,
}

impl Message for JoinCluster<'_> {
    const TYPE: u8 = 97;
}

/// Creates a topic; one with the same history is left as it is. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopic<'b> {
    /// Its name.
    pub topic: &'b str,
    /// How many of its newest records stay readable, as in CREATE LOG.
    pub history: u64,
    /// The hosts that must have a record on disk before its publish is acknowledged: `quorum`, a majority of the group, or `leader`.
    pub durability: Option<&'b str>,
    /// The group that is to have it; the first one if there is none.
    pub group: Option<&'b str>,
    /// The engine that keeps its records: `builtin`, its group, or `nats`.
    pub engine: Option<&'b str>,
}

impl Message for CreateTopic<'_> {
    const TYPE: u8 = 98;
}

/// Publishes a record. Answered with [`super::Seqno`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The record's bytes.
    pub data: &'b [u8],
    /// The idempotency key, 1 to 128 bytes: the topic remembers its last 10 000 keys.
    pub key: Option<&'b str>,
    /// The hosts that must have the record on disk before the answer: `quorum`, `leader`, or `local`, which is the host that is asked; by
    /// default as the topic was created.
    pub durability: Option<&'b str>,
}

impl Message for PublishTopic<'_> {
    const TYPE: u8 = 99;
}

/// Reads one record of a topic. Answered with [`super::Record`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The record; 0 for the newest.
    pub index: u64,
}

impl Message for GetTopic<'_> {
    const TYPE: u8 = 100;
}

/// Reads a range of records of a topic. Answered with [`super::Records`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The first record.
    pub from: u64,
    /// The maximum number of records; the answer has as many as fit a frame, and the position at which to continue.
    pub count: u32,
}

impl Message for RangeTopic<'_> {
    const TYPE: u8 = 101;
}

/// Requests the index of a topic's newest record, or waits until it is above a given one. Answered with [`super::Seqno`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatestTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// Wait until it is above this.
    pub above: u64,
    /// How long to wait at most; then the answer is the current index.
    pub wait_ms: u32,
}

impl Message for LatestTopic<'_> {
    const TYPE: u8 = 102;
}

/// Runs a function of this host's namespace for every record of a topic from now on. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The function.
    pub function: &'b str,
}

impl Message for SubscribeTopic<'_> {
    const TYPE: u8 = 103;
}

/// Ends what SUBSCRIBE began. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsubscribeTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The function.
    pub function: &'b str,
}

impl Message for UnsubscribeTopic<'_> {
    const TYPE: u8 = 104;
}

/// Publishes the records of a log of this host's namespace to a topic from now on. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
}

impl Message for FeedTopic<'_> {
    const TYPE: u8 = 105;
}

/// Ends what FEED began. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnfeedTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
}

impl Message for UnfeedTopic<'_> {
    const TYPE: u8 = 106;
}

/// Transfers the leadership of a group to a host. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeadGroup<'b> {
    /// The identity of its namespace.
    pub host: u64,
    /// The group; the first one if there is none.
    pub group: Option<&'b str>,
}

impl Message for LeadGroup<'_> {
    const TYPE: u8 = 107;
}

/// Removes a host from the cluster. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoveHost<'b> {
    /// The identity of its namespace.
    pub host: u64,
    /// Groups in which it votes and which no longer answer: they are given up, with their topics.
    pub lose: Vec<&'b str>,
}

impl Message for RemoveHost<'_> {
    const TYPE: u8 = 108;
}

/// Has hosts at a site lead whenever they can. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreferSite<'b> {
    /// The site; empty if any host may lead.
    pub site: &'b str,
    /// The group; the first one if there is none.
    pub group: Option<&'b str>,
}

impl Message for PreferSite<'_> {
    const TYPE: u8 = 109;
}

/// Sets how many hosts vote. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetVoters<'b> {
    /// The number of voters, 1, 3 or 5; reached once the cluster has as many hosts.
    pub voters: u64,
    /// The group; the first one if there is none.
    pub group: Option<&'b str>,
}

impl Message for SetVoters<'_> {
    const TYPE: u8 = 146;
}

/// Creates a group; one that is already as requested is left as it is. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateGroup<'b> {
    /// Its name.
    pub group: &'b str,
    /// The identities of the hosts that vote in it; none to have them chosen.
    pub hosts: Vec<u64>,
    /// How many hosts vote, if they are chosen: 1, 3 or 5.
    pub voters: u64,
}

impl Message for CreateGroup<'_> {
    const TYPE: u8 = 147;
}

/// Removes a group without topics. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoveGroup<'b> {
    /// Its name.
    pub group: &'b str,
}

impl Message for RemoveGroup<'_> {
    const TYPE: u8 = 148;
}

/// Copies a topic, under its indexes, to a new log of this host's namespace, to which nothing else is appended. Answered with
/// [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
    /// How many of its newest records stay readable, as in CREATE LOG; as many as those of the topic if it is missing.
    pub history: Option<u64>,
}

impl Message for MirrorTopic<'_> {
    const TYPE: u8 = 153;
}

/// Ends what MIRROR began. The log stays, and accepts appends again. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmirrorTopic<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The log.
    pub log: &'b str,
}

impl Message for UnmirrorTopic<'_> {
    const TYPE: u8 = 154;
}

/// Removes a topic with its records, subscriptions and feeds. Answered with [`super::Done`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoveTopic<'b> {
    /// Its name, which can be used again.
    pub topic: &'b str,
    /// Discard the records that wait on this host to be published to the topic, and leave the topic as it is.
    pub waiting: bool,
}

impl Message for RemoveTopic<'_> {
    const TYPE: u8 = 155;
}

/// A message for one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMessage<'b> {
    /// The group; 0 is the host itself.
    pub group: u32,
    /// The message for the replica.
    pub data: &'b [u8],
}
