// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Clusters and topics.

use super::{Decode, Encode, Fields, Malformed, Reader};
use crate::protocol::Message;

/// Messages for the replicas of groups on the receiving host. Lost messages are sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMessages<'b> {
    /// The messages, in order.
    pub messages: Vec<GroupMessage<'b>>,
}

impl Encode for GroupMessages<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("messages", &self.messages);
        fields.end();
    }
}

impl<'b> Decode<'b> for GroupMessages<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut messages = None;
        reader.map(|reader, member| match member {
            "messages" => reader.set(&mut messages),
            _ => reader.skip(),
        })?;
        Ok(Self { messages: messages.ok_or_else(|| Malformed::missing("messages"))? })
    }
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

impl Encode for JoinCluster<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("host", &self.host);
        fields.put("address", &self.address);
        fields.put("name", &self.name);
        fields.put("site", &self.site);
        fields.end();
    }
}

impl<'b> Decode<'b> for JoinCluster<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut host = None;
        let mut address = None;
        let mut name = None;
        let mut site = None;
        reader.map(|reader, member| match member {
            "host" => reader.set(&mut host),
            "address" => reader.set(&mut address),
            "name" => reader.set(&mut name),
            "site" => reader.set(&mut site),
            _ => reader.skip(),
        })?;
        Ok(Self {
            host: host.ok_or_else(|| Malformed::missing("host"))?,
            address: address.ok_or_else(|| Malformed::missing("address"))?,
            name: name.ok_or_else(|| Malformed::missing("name"))?,
            site: site.ok_or_else(|| Malformed::missing("site"))?,
        })
    }
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

impl Encode for CreateTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("history", &self.history);
        fields.put_some("durability", &self.durability);
        fields.put_some("group", &self.group);
        fields.put_some("engine", &self.engine);
        fields.end();
    }
}

impl<'b> Decode<'b> for CreateTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut history = None;
        let mut durability = None;
        let mut group = None;
        let mut engine = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "history" => reader.set(&mut history),
            "durability" => reader.set(&mut durability),
            "group" => reader.set(&mut group),
            "engine" => reader.set(&mut engine),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            history: history.ok_or_else(|| Malformed::missing("history"))?,
            durability: durability.unwrap_or_default(),
            group: group.unwrap_or_default(),
            engine: engine.unwrap_or_default(),
        })
    }
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

impl Encode for PublishTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("data", &self.data);
        fields.put_some("key", &self.key);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for PublishTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut data = None;
        let mut key = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "data" => reader.set(&mut data),
            "key" => reader.set(&mut key),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            key: key.unwrap_or_default(),
            durability: durability.unwrap_or_default(),
        })
    }
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

impl Encode for GetTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("index", &self.index);
        fields.end();
    }
}

impl<'b> Decode<'b> for GetTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut index = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "index" => reader.set(&mut index),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            index: index.ok_or_else(|| Malformed::missing("index"))?,
        })
    }
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

impl Encode for RangeTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("from", &self.from);
        fields.put("count", &self.count);
        fields.end();
    }
}

impl<'b> Decode<'b> for RangeTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut from = None;
        let mut count = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "from" => reader.set(&mut from),
            "count" => reader.set(&mut count),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            from: from.ok_or_else(|| Malformed::missing("from"))?,
            count: count.ok_or_else(|| Malformed::missing("count"))?,
        })
    }
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

impl Encode for LatestTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("above", &self.above);
        fields.put("wait_ms", &self.wait_ms);
        fields.end();
    }
}

impl<'b> Decode<'b> for LatestTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut above = None;
        let mut wait_ms = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "above" => reader.set(&mut above),
            "wait_ms" => reader.set(&mut wait_ms),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            above: above.unwrap_or_default(),
            wait_ms: wait_ms.unwrap_or_default(),
        })
    }
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

impl Encode for SubscribeTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("function", &self.function);
        fields.end();
    }
}

impl<'b> Decode<'b> for SubscribeTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut function = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "function" => reader.set(&mut function),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            function: function.ok_or_else(|| Malformed::missing("function"))?,
        })
    }
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

impl Encode for UnsubscribeTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("function", &self.function);
        fields.end();
    }
}

impl<'b> Decode<'b> for UnsubscribeTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut function = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "function" => reader.set(&mut function),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            function: function.ok_or_else(|| Malformed::missing("function"))?,
        })
    }
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

impl Encode for FeedTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for FeedTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut log = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "log" => reader.set(&mut log),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            log: log.ok_or_else(|| Malformed::missing("log"))?,
        })
    }
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

impl Encode for UnfeedTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for UnfeedTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut log = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "log" => reader.set(&mut log),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            log: log.ok_or_else(|| Malformed::missing("log"))?,
        })
    }
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

impl Encode for LeadGroup<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("host", &self.host);
        fields.put_some("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for LeadGroup<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut host = None;
        let mut group = None;
        reader.map(|reader, member| match member {
            "host" => reader.set(&mut host),
            "group" => reader.set(&mut group),
            _ => reader.skip(),
        })?;
        Ok(Self { host: host.ok_or_else(|| Malformed::missing("host"))?, group: group.unwrap_or_default() })
    }
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

impl Encode for RemoveHost<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("host", &self.host);
        fields.put_if(!self.lose.is_empty(), "lose", &self.lose);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveHost<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut host = None;
        let mut lose = None;
        reader.map(|reader, member| match member {
            "host" => reader.set(&mut host),
            "lose" => reader.set(&mut lose),
            _ => reader.skip(),
        })?;
        Ok(Self { host: host.ok_or_else(|| Malformed::missing("host"))?, lose: lose.unwrap_or_default() })
    }
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

impl Encode for PreferSite<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("site", &self.site);
        fields.put_some("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for PreferSite<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut site = None;
        let mut group = None;
        reader.map(|reader, member| match member {
            "site" => reader.set(&mut site),
            "group" => reader.set(&mut group),
            _ => reader.skip(),
        })?;
        Ok(Self { site: site.ok_or_else(|| Malformed::missing("site"))?, group: group.unwrap_or_default() })
    }
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

impl Encode for SetVoters<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("voters", &self.voters);
        fields.put_some("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for SetVoters<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut voters = None;
        let mut group = None;
        reader.map(|reader, member| match member {
            "voters" => reader.set(&mut voters),
            "group" => reader.set(&mut group),
            _ => reader.skip(),
        })?;
        Ok(Self { voters: voters.ok_or_else(|| Malformed::missing("voters"))?, group: group.unwrap_or_default() })
    }
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

impl Encode for CreateGroup<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("group", &self.group);
        fields.put_if(!self.hosts.is_empty(), "hosts", &self.hosts);
        fields.put("voters", &self.voters);
        fields.end();
    }
}

impl<'b> Decode<'b> for CreateGroup<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut group = None;
        let mut hosts = None;
        let mut voters = None;
        reader.map(|reader, member| match member {
            "group" => reader.set(&mut group),
            "hosts" => reader.set(&mut hosts),
            "voters" => reader.set(&mut voters),
            _ => reader.skip(),
        })?;
        Ok(Self {
            group: group.ok_or_else(|| Malformed::missing("group"))?,
            hosts: hosts.unwrap_or_default(),
            voters: voters.unwrap_or_default(),
        })
    }
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

impl Encode for RemoveGroup<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveGroup<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut group = None;
        reader.map(|reader, member| match member {
            "group" => reader.set(&mut group),
            _ => reader.skip(),
        })?;
        Ok(Self { group: group.ok_or_else(|| Malformed::missing("group"))? })
    }
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

impl Encode for MirrorTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("log", &self.log);
        fields.put_some("history", &self.history);
        fields.end();
    }
}

impl<'b> Decode<'b> for MirrorTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut log = None;
        let mut history = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "log" => reader.set(&mut log),
            "history" => reader.set(&mut history),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            history: history.unwrap_or_default(),
        })
    }
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

impl Encode for UnmirrorTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for UnmirrorTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut log = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "log" => reader.set(&mut log),
            _ => reader.skip(),
        })?;
        Ok(Self {
            topic: topic.ok_or_else(|| Malformed::missing("topic"))?,
            log: log.ok_or_else(|| Malformed::missing("log"))?,
        })
    }
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

impl Encode for RemoveTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put_if(self.waiting, "waiting", &self.waiting);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveTopic<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut topic = None;
        let mut waiting = None;
        reader.map(|reader, member| match member {
            "topic" => reader.set(&mut topic),
            "waiting" => reader.set(&mut waiting),
            _ => reader.skip(),
        })?;
        Ok(Self { topic: topic.ok_or_else(|| Malformed::missing("topic"))?, waiting: waiting.unwrap_or_default() })
    }
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

impl Encode for GroupMessage<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("group", &self.group);
        fields.put("data", &self.data);
        fields.end();
    }
}

impl<'b> Decode<'b> for GroupMessage<'b> {
    fn decode(reader: &mut Reader<'b>) -> Result<Self, Malformed> {
        let mut group = None;
        let mut data = None;
        reader.map(|reader, member| match member {
            "group" => reader.set(&mut group),
            "data" => reader.set(&mut data),
            _ => reader.skip(),
        })?;
        Ok(Self {
            group: group.ok_or_else(|| Malformed::missing("group"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
        })
    }
}
