//! Messages about clusters and topics, as calls of the cluster.

use super::{
    connection::Connection,
    requests::{Answer, RECORDS_MAX, RECORDS_MAX_BYTES},
};
use crate::{
    cluster::topics::{self, LOCAL, durability, engine, replied},
    memory::{self, SMALL_BYTES},
};
use millrace_node::{
    Access, Gated, Right,
    cluster::{MAIN_NAME, Member, NewPublish, Reply, TopicOptions},
};
use millrace_wire::{
    Code, Result,
    protocol::{
        CreateGroup, CreateTopic, FeedTopic, Frame, GetTopic, GroupMessages, JoinCluster, LatestTopic, LeadGroup,
        Message, MirrorTopic, PreferSite, PublishTopic, RangeTopic, RemoveGroup, RemoveHost, RemoveTopic, SetVoters,
        SubscribeTopic, UnfeedTopic, UnmirrorTopic, UnsubscribeTopic,
    },
};
use std::time::Duration;

impl Connection {
    /// Handles a message about topics; false if it is none.
    pub fn topic_request(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<bool> {
        match frame.kind {
            GroupMessages::TYPE => match groups(access, frame) {
                // The sender waits for no answer: that the connection ends tells it that the cluster has another secret.
                Err(error) if error.code() == Code::CapabilityRefused => self.close(&error),
                taken => taken?,
            },
            JoinCluster::TYPE => self.join_cluster(access, frame)?,
            CreateTopic::TYPE => {
                let CreateTopic { topic, history, durability: named, group, engine: kept } = frame.message()?;
                let cluster = access.topics(Right::Create, topic)?;
                let durability = durability(named)?.unwrap_or_default();
                let (group, engine) = (group.map(str::to_owned), engine(kept)?);
                let options = TopicOptions { history, durability, group, engine };
                self.done(frame, |reply| cluster.create(topic, &options, reply))?;
            }
            RemoveTopic::TYPE => match frame.message()? {
                RemoveTopic { waiting: true, .. } => self.commit(access, frame, raw, discard)?,
                RemoveTopic { topic, .. } => {
                    let cluster = access.topics(Right::Delete, topic)?;
                    self.done(frame, |reply| cluster.remove_topic(topic, reply))?;
                }
            },
            PublishTopic::TYPE => self.publish(access, frame, raw)?,
            MirrorTopic::TYPE => self.mirror(access, frame)?,
            UnmirrorTopic::TYPE => self.commit(access, frame, raw, unmirror)?,
            GetTopic::TYPE => self.get_topic(access, frame)?,
            RangeTopic::TYPE => self.range_topic(access, frame)?,
            LatestTopic::TYPE => self.latest_topic(access, frame)?,
            SubscribeTopic::TYPE => {
                let SubscribeTopic { topic, function } = frame.message()?;
                let cluster = access.topics_to_subscribe(topic, function)?;
                self.done(frame, |reply| cluster.subscribe(topic, function, reply))?;
            }
            UnsubscribeTopic::TYPE => {
                let UnsubscribeTopic { topic, function } = frame.message()?;
                let cluster = access.topics_to_subscribe(topic, function)?;
                self.done(frame, |reply| cluster.unsubscribe(topic, function, reply))?;
            }
            FeedTopic::TYPE => {
                let FeedTopic { topic, log } = frame.message()?;
                let cluster = access.topics_to_feed(topic, log)?;
                self.done(frame, |reply| cluster.feed(topic, log, reply))?;
            }
            UnfeedTopic::TYPE => {
                let UnfeedTopic { topic, log } = frame.message()?;
                let cluster = access.topics_to_feed(topic, log)?;
                self.done(frame, |reply| cluster.unfeed(topic, log, reply))?;
            }
            LeadGroup::TYPE => {
                let LeadGroup { host, group } = frame.message()?;
                let cluster = access.cluster_to_change()?;
                self.done(frame, |reply| cluster.lead(group.unwrap_or(MAIN_NAME), host, reply))?;
            }
            PreferSite::TYPE => {
                let PreferSite { site, group } = frame.message()?;
                let cluster = access.cluster_to_change()?;
                self.done(frame, |reply| cluster.prefer(group.unwrap_or(MAIN_NAME), site, reply))?;
            }
            SetVoters::TYPE => {
                let SetVoters { voters, group } = frame.message()?;
                let cluster = access.cluster_to_change()?;
                self.done(frame, |reply| cluster.set_voters(group.unwrap_or(MAIN_NAME), voters, reply))?;
            }
            CreateGroup::TYPE => {
                let CreateGroup { group, hosts, voters } = frame.message()?;
                let cluster = access.cluster_to_change()?;
                self.done(frame, |reply| cluster.create_group(group, hosts, voters, reply))?;
            }
            RemoveGroup::TYPE => {
                let RemoveGroup { group } = frame.message()?;
                let cluster = access.cluster_to_change()?;
                self.done(frame, |reply| cluster.remove_group(group, reply))?;
            }
            RemoveHost::TYPE => {
                let RemoveHost { host, lose } = frame.message()?;
                let (cluster, lose) = (access.cluster_to_change()?, lose.into_iter().map(str::to_owned).collect());
                self.done(frame, |reply| cluster.remove(host, lose, reply))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn join_cluster(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let JoinCluster { host, address, name, site } = frame.message()?;
        let member = Member { id: host, address: address.into(), name: name.into(), site: site.into() };
        if host == 0 || host == access.cluster_of_peer()?.host() {
            return Err(Code::ClusterCopied
                .error("the host that joins has the same identity as this host: one of the two namespaces is a copy"));
        }
        let joined = replied(|reply| access.cluster_of_peer().map_or_else(drop, |cluster| cluster.join(member, reply)));
        self.waits.add(frame.heading.request, async {
            let document = serde_json::to_string(&joined.await?);
            document.map(Answer::Document).map_err(|error| Code::HostInternal.error(error.to_string()))
        })
    }

    /// Answers once a call of the cluster is done.
    fn done(&mut self, frame: &Frame<'_>, call: impl FnOnce(Reply<()>)) -> Result<()> {
        let done = replied(call);
        self.waits.add(frame.heading.request, async { done.await.map(|()| Answer::Done) })
    }

    fn publish(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        let PublishTopic { topic, data, key, durability: named } = frame.message()?;
        if named == Some(LOCAL) {
            return self.commit(access, frame, raw, publish_later);
        }
        let (cluster, key) = access.topics_to_publish(topic, data.len(), key)?;
        let durability = durability(named)?;
        let cause = frame.heading.cause;
        let published = replied(|reply| cluster.publish_from(cause, topic, (data, key.as_deref()), durability, reply));
        self.waits.add(frame.heading.request, async { published.await.map(Answer::Seqno) })
    }

    fn mirror(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let MirrorTopic { topic, log, history } = frame.message()?;
        let cluster = access.topics_to_mirror(topic, log)?.clone();
        let (access, topic, log) = (access.clone(), topic.to_owned(), log.to_owned());
        self.waits.add(frame.heading.request, async move {
            // From then on this host follows the group of the topic.
            replied(|reply| cluster.fresh(&topic, reply)).await?;
            let begun = access.submit(move |access| access.mirror(&topic, &log, history)).await;
            begun.await.map(|()| Answer::Done)
        })
    }

    fn get_topic(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let GetTopic { topic, index } = frame.message()?;
        let cluster = access.topics(Right::Read, topic)?;
        if let Some(record) = topics::known(cluster, topic, index) {
            self.reply(frame.heading.request, Ok(Answer::Record(record)));
            return Ok(());
        }
        let (cluster, topic) = (cluster.clone(), topic.to_owned());
        self.waits
            .add(frame.heading.request, async move { topics::get(&cluster, &topic, index).await.map(Answer::Record) })
    }

    fn range_topic(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let RangeTopic { topic, from, count } = frame.message()?;
        let (cluster, topic) = (access.topics(Right::Read, topic)?.clone(), topic.to_owned());
        self.waits.add(frame.heading.request, async move {
            let bytes_max = if memory::is_short() { SMALL_BYTES / 2 } else { RECORDS_MAX_BYTES };
            let (records, next) =
                topics::range(&cluster, &topic, Some(from), count.min(RECORDS_MAX), bytes_max).await?;
            Ok(Answer::Records { incarnation: 0, records, next })
        })
    }

    fn latest_topic(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let LatestTopic { topic, above, wait_ms } = frame.message()?;
        let (cluster, topic) = (access.topics(Right::Read, topic)?.clone(), topic.to_owned());
        let wait = Duration::from_millis(wait_ms.into());
        self.waits.add(frame.heading.request, async move {
            topics::latest(&cluster, &topic, above, wait).await.map(Answer::Seqno)
        })
    }
}

fn publish_later(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    let PublishTopic { topic, data, key, .. } = frame.message()?;
    let record = NewPublish { topic, key, data, cause: frame.heading.cause, ordinal: 0 };
    Ok(access.publish_later(record, frame.heading.hlc).map(|()| Answer::Seqno(0)))
}

fn unmirror(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    let UnmirrorTopic { topic, log } = frame.message()?;
    Ok(access.unmirror(topic, log).map(|()| Answer::Done))
}

fn discard(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    let RemoveTopic { topic, .. } = frame.message()?;
    Ok(access.discard_waiting(topic).map(|()| Answer::Done))
}

/// Messages of another host for the replicas here of the groups that both keep.
fn groups(access: &Access, frame: &Frame<'_>) -> Result<()> {
    let GroupMessages { messages } = frame.message()?;
    let cluster = access.cluster_of_peer()?;
    let mut messages = messages.iter().peekable();
    while let Some(first) = messages.next() {
        let mut of_group = vec![first.data.to_vec()];
        while let Some(more) = messages.next_if(|more| more.group == first.group) {
            of_group.push(more.data.to_vec());
        }
        cluster.receive(first.group, of_group);
    }
    Ok(())
}
