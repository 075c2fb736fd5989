//! Messages about clusters and topics, as calls of the cluster.

use super::{
    connection::Connection,
    requests::{Answer, RECORDS_MAX, RECORDS_MAX_BYTES},
};
use crate::memory::{self, SMALL_BYTES};
use millrace_node::{
    Access, Gated, Record, Right,
    cluster::{Cluster, Durability, Engine, GROWTH_MAX, Keeper, MAIN_NAME, Member, NewPublish, Reply, TopicOptions},
};
use millrace_wire::{
    Code, Result,
    protocol::{
        CreateGroup, CreateTopic, FeedTopic, Frame, GetTopic, GroupMessages, JoinCluster, LatestTopic, LeadGroup,
        Message, MirrorTopic, PreferSite, PublishTopic, RangeTopic, RemoveGroup, RemoveHost, RemoveTopic, SetVoters,
        SubscribeTopic, UnfeedTopic, UnmirrorTopic, UnsubscribeTopic,
    },
};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{sync::oneshot, time::timeout};

/// The reply of the cluster to a call, as a future.
fn replied<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> impl Future<Output = Result<T>> + Send + 'static {
    let (sender, receiver) = oneshot::channel();
    // The client may be gone.
    call(Box::new(move |outcome| drop(sender.send(outcome))));
    async { receiver.await.unwrap_or_else(|_| Err(Code::HostStopping.error("the host is stopping"))) }
}

impl Connection {
    /// Handles a message about topics; false if it is none.
    pub fn topic_request(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<bool> {
        match frame.kind {
            GroupMessages::TYPE => groups(access, frame)?,
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
                let RemoveHost { host } = frame.message()?;
                let cluster = access.cluster_to_change()?;
                self.done(frame, |reply| cluster.remove(host, reply))?;
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
        let published = replied(|reply| cluster.publish(topic, data, key.as_deref(), durability, reply));
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
        let cluster = access.topics(Right::Read, topic)?.clone();
        let topic = topic.to_owned();
        // An existing record never changes as long as its topic is there; only the absence of a record, and the newest index, have to be
        // confirmed by the group.
        if let Some(record) = Some(index).filter(|index| *index > 0).and_then(|index| cluster.get(&topic, index).ok()) {
            self.reply(frame.heading.request, Ok(Answer::Record(record)));
            return Ok(());
        }
        self.waits.add(frame.heading.request, async move {
            let record = match replied(|reply| cluster.keeper(&topic, reply)).await? {
                Keeper::Group => cluster.get(&topic, index)?,
                Keeper::Outside(streams) => replied(|reply| streams.get(&topic, index, reply)).await?,
            };
            Ok(Answer::Record(record))
        })
    }

    fn range_topic(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let RangeTopic { topic, from, count } = frame.message()?;
        let cluster = access.topics(Right::Read, topic)?.clone();
        let topic = topic.to_owned();
        self.waits.add(frame.heading.request, async move {
            let keeper = replied(|reply| cluster.keeper(&topic, reply)).await?;
            let bytes_max = if memory::is_short() { SMALL_BYTES / 2 } else { RECORDS_MAX_BYTES };
            let count = count.min(RECORDS_MAX);
            let records: Vec<Record> = match keeper {
                Keeper::Outside(streams) if from > 0 => {
                    replied(|reply| streams.range(&topic, from, count, bytes_max, reply)).await?
                }
                _ => cluster.range(&topic, from, count, bytes_max)?,
            };
            let next = records.last().map_or(from, |last| last.seqno + 1);
            Ok(Answer::Records { incarnation: 0, records, next })
        })
    }

    fn latest_topic(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let LatestTopic { topic, above, wait_ms } = frame.message()?;
        let cluster = access.topics(Right::Read, topic)?.clone();
        let topic = topic.to_owned();
        self.waits.add(frame.heading.request, latest(cluster, topic, above, wait_ms))
    }
}

/// The durability of a record that is acknowledged once it is on the disk of this host, and published later.
const LOCAL: &str = "local";

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

/// The hosts that must have a record on disk before its publish is acknowledged.
fn durability(named: Option<&str>) -> Result<Option<Durability>> {
    match named {
        None => Ok(None),
        Some("quorum") => Ok(Some(Durability::Quorum)),
        Some("leader") => Ok(Some(Durability::Leader)),
        Some(other) => {
            let shown: String = other.chars().take(40).flat_map(char::escape_debug).collect();
            Err(Code::ValueInvalid
                .error(format!("durability '{shown}' is unknown: it is quorum or leader, or for a publish also local")))
        }
    }
}

/// The engine of a new topic.
fn engine(named: Option<&str>) -> Result<Engine> {
    match named {
        None | Some("builtin") => Ok(Engine::Builtin),
        Some("nats") => Ok(Engine::Nats),
        Some(other) => {
            let shown: String = other.chars().take(40).flat_map(char::escape_debug).collect();
            Err(Code::ValueInvalid.error(format!("engine '{shown}' is unknown: it is builtin or nats")))
        }
    }
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

async fn latest(cluster: Arc<Cluster>, topic: String, above: u64, wait_ms: u32) -> Result<Answer> {
    if let Keeper::Outside(streams) = replied(|reply| cluster.keeper(&topic, reply)).await? {
        let wait = Duration::from_millis(wait_ms.into()).min(GROWTH_MAX);
        return replied(|reply| streams.grown(&topic, above, wait, reply)).await.map(Answer::Seqno);
    }
    if wait_ms > 0 && cluster.latest(&topic)? <= above {
        // Whether or not the time has passed, the newest index is returned.
        let wait = Duration::from_millis(wait_ms.into()).min(GROWTH_MAX);
        let grown = replied(|reply| cluster.growth(&topic, above, wait, reply));
        if let Ok(grown) = timeout(wait, grown).await {
            grown?;
        }
    }
    cluster.latest(&topic).map(Answer::Seqno)
}
