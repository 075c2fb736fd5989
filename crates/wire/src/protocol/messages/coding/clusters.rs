// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Clusters and topics: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for GroupMessages<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("messages", &self.messages);
        fields.end();
    }
}

impl<'b> Decode<'b> for GroupMessages<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut messages = None;
        reader.map(|reader, member| match member {
            "messages" => reader.set(&mut messages),
            _ => reader.skip(),
        })?;
        Ok(Self { messages: messages.ok_or_else(|| Malformed::missing("messages"))? })
    }
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for GetTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("index", &self.index);
        fields.end();
    }
}

impl<'b> Decode<'b> for GetTopic<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for SubscribeTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("function", &self.function);
        fields.end();
    }
}

impl<'b> Decode<'b> for SubscribeTopic<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for UnsubscribeTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("function", &self.function);
        fields.end();
    }
}

impl<'b> Decode<'b> for UnsubscribeTopic<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for FeedTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for FeedTopic<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for UnfeedTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for UnfeedTopic<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for LeadGroup<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("host", &self.host);
        fields.put_some("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for LeadGroup<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for RemoveHost<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("host", &self.host);
        fields.put_if(!self.lose.is_empty(), "lose", &self.lose);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveHost<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for PreferSite<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("site", &self.site);
        fields.put_some("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for PreferSite<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for SetVoters<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("voters", &self.voters);
        fields.put_some("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for SetVoters<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for RemoveGroup<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("group", &self.group);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveGroup<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut group = None;
        reader.map(|reader, member| match member {
            "group" => reader.set(&mut group),
            _ => reader.skip(),
        })?;
        Ok(Self { group: group.ok_or_else(|| Malformed::missing("group"))? })
    }
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
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for UnmirrorTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for UnmirrorTopic<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for RemoveTopic<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("topic", &self.topic);
        fields.put_if(self.waiting, "waiting", &self.waiting);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveTopic<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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

impl Encode for GroupMessage<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("group", &self.group);
        fields.put("data", &self.data);
        fields.end();
    }
}

impl<'b> Decode<'b> for GroupMessage<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
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
