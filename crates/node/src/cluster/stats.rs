//! Reports about the cluster, its groups and its topics.

use super::{
    BEHIND_MAX, Cluster, PATIENCE, PROBE, PROBES, SILENCES, Shared,
    feed::buffer::{BufferStat, FEED},
    groups::Group,
    locked, shown,
};
use crate::why::counted;
use millrace_group::{Directory, Engine, Labels, MAIN_NAME, Member, Replica, Role, Topic, check_topic};
use millrace_wire::{Code, Error, Result};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// A topic, as it is reported.
#[derive(Clone, Debug, Serialize)]
pub struct TopicStat {
    /// Its name.
    pub topic: String,
    /// The group that has it; empty if this host does not know it yet.
    pub group: String,
    /// Its records that wait on the host that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffered: Option<BufferStat>,
    /// Its state, if the host has a replica of its group.
    #[serde(flatten)]
    pub here: Option<TopicHere>,
}

/// The state of a topic, from a host with a replica of its group.
#[derive(Clone, Debug, Serialize)]
pub struct TopicHere {
    /// How many of its newest records can be read.
    #[serde(with = "millrace_wire::history")]
    pub history: u64,
    /// The hosts that must have a record on disk before its publish is acknowledged, by default.
    pub durability: millrace_group::Durability,
    /// Its engine, unless that is its group.
    #[serde(skip_serializing_if = "Engine::is_builtin")]
    pub engine: Engine,
    /// The oldest record that can be read; `None` if the engine does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest: Option<u64>,
    /// The newest record; `None` if the engine does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<u64>,
    /// Why it cannot be used on the host that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The functions that run for its records.
    pub subscriptions: Vec<SubscriptionStat>,
    /// Logs that feed it.
    pub feeds: Vec<FeedStat>,
}

/// A log that feeds a topic, as it is reported.
#[derive(Clone, Debug, Serialize)]
pub struct FeedStat {
    /// The log.
    pub log: String,
    /// The host that has it.
    pub host: String,
    /// Its last record that was published.
    pub published: u64,
    /// Records that had left the log before they could be published, since the host was started; reported by the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// Why it is stopped, reported by the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A subscription, as it is reported.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionStat {
    /// The function.
    pub function: String,
    /// The host that runs it.
    pub host: String,
    /// Records that left the topic before this host could run the function for them, reported by the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// Why it is stopped, reported by the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The report about a host of the cluster.
#[derive(Clone, Debug, Serialize)]
pub struct HostStat {
    /// Its id.
    pub host: String,
    /// Its address.
    pub address: String,
    /// The name of its namespace.
    pub name: String,
    /// Its site.
    pub site: String,
    /// Its labels, by key.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// `leader`, `voter` or `learner`.
    pub role: &'static str,
    /// Whether it is the host that answers.
    pub here: bool,
    /// How many entries it lacks, as the leader knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Why the host that answers could not reach it at the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The cluster as one host sees it.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStat {
    /// The cluster's id.
    pub cluster: String,
    /// The name of the first group, which all hosts keep; the following fields are about it.
    pub group: &'static str,
    /// How many other groups there are.
    pub groups: usize,
    /// The group's term.
    pub term: u64,
    /// Its leader, if it is known.
    pub leader: Option<String>,
    /// The site whose hosts are preferred as leaders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred: String,
    /// The role of the host that answers.
    pub role: &'static str,
    /// The first entry that the log of this host still has.
    pub first: u64,
    /// About how many bytes its log has.
    pub log_bytes: u64,
    /// How many snapshots of other hosts this host has installed since it was started.
    pub snapshots: u64,
    /// The last entry that was applied here.
    pub applied: u64,
    /// The last entry that is known here to be committed.
    pub committed: u64,
    /// The last entry.
    pub last: u64,
    /// The hosts.
    pub hosts: Vec<HostStat>,
    /// Problems, in sentences.
    pub why: Vec<String>,
}

/// A group as one host sees it.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStat {
    /// Its name.
    pub group: String,
    /// Its number, which is part of the name of its log in each namespace.
    pub id: u32,
    /// Its leader, if it is known.
    pub leader: Option<String>,
    /// The role of the host that answers; `absent` if it does not keep the group.
    pub role: &'static str,
    /// Its voters.
    pub voters: Vec<String>,
    /// Its followers without a vote.
    pub followers: Vec<String>,
    /// How many hosts are to vote.
    pub wanted: u64,
    /// The site whose hosts are preferred as leaders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred: String,
    /// How many topics it has.
    pub topics: u64,
    /// Its term.
    pub term: u64,
    /// The last entry that is known here to be committed.
    pub committed: u64,
    /// How many entries the last of its hosts lacks, as the leader knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Whether it rests, since there is nothing to do.
    pub resting: bool,
}

/// The records that wait here, and why. Records that are just being sent are not reported.
fn why_buffers(buffers: &[BufferStat], why: &mut Vec<String>) {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64); // until the year 584 million
    for BufferStat { topic, records, bytes, since_ms, trouble } in buffers {
        let Some(trouble) = trouble else { continue };
        let since_s = now_ms.saturating_sub(*since_ms) / 1000;
        let waits = if *records == 1 { "waits" } else { "wait" };
        let (records, bytes) = (counted(*records, "record"), counted(*bytes, "byte"));
        why.push(format!(
            "{records} of {bytes} {waits} on this host to be published to topic {topic}, the oldest for {since_s} s: {trouble}"
        ));
    }
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "voter",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
    }
}

impl Cluster {
    /// The topics, by name, behind this one.
    pub fn topics(&self, after: &str, limit: usize) -> Vec<TopicStat> {
        let mut names: BTreeMap<String, Option<u32>> = BTreeMap::new();
        {
            let replica = locked(&self.shared.main.replica);
            let topics = replica.topics();
            let all = topics.all().filter(|(name, _)| after.is_empty() || *name > after);
            names.extend(all.take(limit).map(|(name, _)| (name.to_owned(), None)));
            let placed = topics.directory().placed_after(after).take(limit);
            names.extend(placed.map(|(name, group)| (name.to_owned(), Some(group))));
        }
        // A host that was started a moment ago may know no more of a topic than that records wait for it.
        let buffers = self.buffers().unwrap_or_default();
        let waiting = buffers.iter().map(|buffer| &buffer.topic).filter(|name| after.is_empty() || &***name > after);
        for topic in waiting {
            names.entry(topic.clone()).or_insert(Some(0));
        }
        let stat = |(topic, id): (String, Option<u32>)| match id {
            None => self.shared.stat(&self.shared.main, topic),
            Some(id) => match self.shared.group(id) {
                Some(group) => self.shared.stat(&group, topic),
                None => {
                    let replica = locked(&self.shared.main.replica);
                    let group = replica.topics().directory().numbered(id).map_or("?", |(name, _)| name).to_owned();
                    let group = if id == 0 { String::new() } else { group };
                    TopicStat { topic, group, buffered: None, here: None }
                }
            },
        };
        let mut stats: Vec<TopicStat> = names.into_iter().take(limit).map(stat).collect();
        for stat in &mut stats {
            stat.buffered = buffers.iter().find(|buffer| buffer.topic == stat.topic).cloned();
        }
        self.complete(&mut stats);
        stats
    }

    /// What this host knows of one topic.
    pub fn topic(&self, name: &str) -> Result<TopicStat> {
        check_topic(name)?;
        let group = self.shared.group_of(name)?;
        locked(&group.replica).topics().topic(name)?;
        let mut stats = [self.shared.stat(&group, name.to_owned())];
        stats[0].buffered = self.buffers().unwrap_or_default().into_iter().find(|buffer| buffer.topic == name);
        self.complete(&mut stats);
        let [stat] = stats;
        Ok(stat)
    }

    /// Adds the bounds of topics that no group keeps. It waits for what keeps them.
    fn complete(&self, stats: &mut [TopicStat]) {
        let outside = |stat: &mut TopicStat| stat.here.as_mut().filter(|here| !here.engine.is_builtin()).is_some();
        let asked: Vec<&mut TopicStat> = stats.iter_mut().filter_map(|stat| outside(stat).then_some(stat)).collect();
        if asked.is_empty() {
            return;
        }
        let names: Vec<&str> = asked.iter().map(|stat| &*stat.topic).collect();
        let bounds = self.shared.bounds_outside(&names);
        for (here, bounds) in asked.into_iter().filter_map(|stat| stat.here.as_mut()).zip(bounds) {
            match bounds {
                Ok(bounds) => (here.earliest, here.latest) = (Some(bounds.earliest), Some(bounds.latest)),
                Err(error) => here.trouble = Some(format!("{}: {}", error.code().id(), error.detail())),
            }
        }
    }

    /// The groups, by name; the first group comes first.
    pub fn groups(&self) -> Vec<GroupStat> {
        let shared = &self.shared;
        let (directory, topics): (Directory, u64) = {
            let replica = locked(&shared.main.replica);
            (replica.topics().directory().clone_groups(), replica.topics().all().count() as u64)
        };
        let first = shared.group_stat(&shared.main, topics);
        let others = directory.groups().map(|(name, spec)| match shared.group(spec.id) {
            Some(group) => shared.group_stat(&group, spec.topics),
            None => GroupStat {
                group: name.to_owned(),
                id: spec.id,
                leader: None,
                role: "absent",
                voters: spec.hosts.iter().copied().map(shown).collect(),
                followers: spec.followers.iter().copied().map(shown).collect(),
                wanted: spec.size,
                preferred: String::new(),
                topics: spec.topics,
                term: 0,
                committed: 0,
                behind: None,
                resting: false,
            },
        });
        std::iter::once(first).chain(others).collect()
    }

    /// The cluster as this host sees it.
    pub fn stat(&self) -> ClusterStat {
        let buffers = self.buffers().unwrap_or_default();
        let replica = locked(&self.shared.main.replica);
        let (applied, committed, last) = replica.progress();
        let (first, log_bytes) = replica.log_size();
        let (leader, own) = (replica.leader(), self.host());
        let (voters, learners) = replica.replicas();
        let host = |id: u64, votes: bool| {
            let known = replica.topics().member(id).cloned();
            let reported = self.shared.facts.members.iter().find(|known| known.id == id).cloned().map(Member::from);
            let own = (id == own).then_some(&self.shared);
            // The labels of its start, whether or not the others know them yet.
            let labels =
                own.map(|own| &own.labels).or_else(|| replica.topics().labels(id)).cloned().unwrap_or_default();
            let own = own.map(|own| own.member.clone());
            let Member { address, name, site, .. } = own.or(known).or(reported).unwrap_or_default();
            let role = if id == leader {
                "leader"
            } else if votes {
                "voter"
            } else {
                "learner"
            };
            let behind = replica.matched(id).map(|matched| last.saturating_sub(matched));
            HostStat {
                host: shown(id),
                address,
                name,
                site,
                labels,
                role,
                here: id == self.host(),
                behind,
                trouble: self.shared.post.trouble(id).or_else(|| self.shared.silence(id, leader == self.host())),
            }
        };
        let hosts = voters.iter().map(|id| host(*id, true)).chain(learners.iter().map(|id| host(*id, false)));
        let mut hosts: Vec<HostStat> = hosts.collect();
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let mut why = self.why(leader != 0, replica.voters_wanted(), &hosts);
        why.extend(self.shared.doubt(MAIN_NAME, &replica));
        why.extend(self.why_halted(&replica));
        why.extend(self.shared.kept().iter().filter_map(|group| group.refusal()).map(|error| {
            format!(
                "{error}; until its disk accepts writes, this host neither votes in the group nor receives its records"
            )
        }));
        why_buffers(&buffers, &mut why);
        self.why_groups(&mut why);
        let removing = replica.topics().directory().removing();
        why.extend(removing.map(|topic| {
            format!("the removal of topic {topic} has begun, but not ended; `millrace topic rm {topic}` completes it")
        }));
        self.shared.why_outside(replica.topics(), &mut why);
        let too_long = replica.too_long_bytes();
        if too_long > 0 {
            why.push(format!(
                "another host sent an entry of {too_long} bytes, too long for the segments of this namespace: this host ignores the entry"
            ));
        }
        ClusterStat {
            cluster: self.id().to_owned(),
            group: MAIN_NAME,
            groups: replica.topics().directory().groups().count(),
            term: replica.term(),
            leader: (leader != 0).then(|| shown(leader)),
            preferred: replica.topics().preferred().to_owned(),
            role: role_word(replica.role()),
            first,
            log_bytes,
            snapshots: replica.received(),
            applied,
            committed,
            last,
            hosts,
            why,
        }
    }

    /// Problems.
    fn why(&self, is_led: bool, wanted: usize, hosts: &[HostStat]) -> Vec<String> {
        if self.shared.told_left.load(Ordering::Relaxed) {
            return vec!["this host was removed from the cluster while it was away".into()];
        }
        if !hosts.is_empty() && hosts.iter().all(|host| !host.here) {
            let member = "this host is not in the cluster: it was removed, or has not finished joining";
            return vec![member.into()];
        }
        let mut why = Vec::new();
        let voters = hosts.iter().filter(|host| host.role != "learner").count();
        if !is_led {
            let needed = voters / 2 + 1;
            why.push(format!(
                "this host knows no leader of the group: {needed} of {voters} voters are needed to elect one"
            ));
        }
        for host in hosts {
            if let Some(trouble) = &host.trouble {
                why.push(format!("this host cannot reach host {} at {}: {trouble}", host.name, host.address));
            }
            if let Some(behind) = host.behind.filter(|behind| *behind > BEHIND_MAX) {
                why.push(format!("host {} at {} is {behind} entries behind", host.name, host.address));
            }
        }
        if voters < wanted {
            let lost = voters.saturating_sub(1) / 2;
            let vote = if voters == 1 { "1 host votes".into() } else { format!("{voters} hosts vote") };
            why.push(format!("{vote}, so the group can lose {lost} of them; the number of voters should be {wanted}"));
        }
        for ((topic, function), trouble) in &*locked(&self.shared.troubles) {
            why.push(format!("function {function} on this host does not run for topic {topic}: {trouble}"));
        }
        for ((topic, function), missed) in locked(&self.shared.missed).iter().filter(|(_, missed)| **missed > 0) {
            why.push(format!(
                "{missed} records left the history of topic {topic} before function {function} on this host could run for them"
            ));
        }
        for ((topic, log), trouble) in locked(&self.shared.feeding).iter().filter(|((_, log), _)| log != FEED) {
            why.push(format!("log {log} on this host does not feed topic {topic}: {trouble}"));
        }
        for ((topic, log), (missed, _)) in locked(&self.shared.unfed).iter().filter(|(_, (missed, _))| *missed > 0) {
            let records = counted(*missed, "record");
            why.push(format!(
                "{records} left the history of log {log} on this host before they could be published to topic {topic}"
            ));
        }
        for ((log, topic), trouble) in &*locked(&self.shared.mirroring) {
            why.push(format!("log {log} on this host does not mirror topic {topic}: {trouble}"));
        }
        why
    }

    /// Commands of a newer version.
    fn why_halted(&self, replica: &Replica) -> Vec<String> {
        let mut why = Vec::new();
        if let Some(error) = &*locked(&self.shared.halted) {
            why.push(format!(
                "this host no longer takes part in its groups: {}: {}",
                error.code().id(),
                error.detail()
            ));
        }
        if let Err(error) = self.shared.namespace.journal().check_clock() {
            why.push(format!(
                "{}: {}; records of that time keep it, and new ones have the time of the clock",
                error.code().id(),
                error.detail()
            ));
        }
        if let Some(error) = replica.refused() {
            why.push(format!("another host submitted {}; this host refuses it", error.detail()));
        }
        why
    }

    /// Problems of the other groups.
    fn why_groups(&self, why: &mut Vec<String>) {
        let main = self.shared.main.id;
        for group in self.shared.kept().into_iter().filter(|group| group.id != main) {
            let replica = locked(&group.replica);
            why.extend(self.shared.doubt(&group.name, &replica));
            let (voters, wanted) = (replica.replicas().0.len(), replica.voters_wanted());
            if !group.is_placed.load(Ordering::Relaxed) {
                why.push(format!("this host is no longer in group {}", group.name));
            } else if replica.leader() == 0 {
                let (name, needed) = (&group.name, voters / 2 + 1);
                why.push(format!(
                    "this host knows no leader of group {name}: {needed} of {voters} voters are needed to elect one"
                ));
            } else if voters != wanted {
                why.push(format!(
                    "{voters} hosts vote in group {}; the number of voters should be {wanted}",
                    group.name
                ));
            }
        }
        for (name, unkept) in &*locked(&self.shared.unkept) {
            why.push(format!("this host does not keep group {name}: {}", unkept.why));
        }
    }
}

impl Shared {
    /// Whether this host leads a group and has heard of no majority lately: others may have elected another leader.
    fn doubt(&self, group: &str, replica: &Replica) -> Option<String> {
        if replica.role() != Role::Leader {
            return None;
        }
        let (voters, _) = replica.replicas();
        let is_near = |host: &&u64| **host == self.facts.host || !self.is_silent(**host, self.silence);
        let (near, all, needed) = (voters.iter().filter(is_near).count(), voters.len(), voters.len() / 2 + 1);
        (near < needed).then(|| {
            format!(
                "this host was elected leader of group {group}, but has not heard from a majority for {} ms: it can reach {near} of {all} voters, \
                 itself included, and {needed} are needed; another host may be the leader by now",
                self.silence.as_millis()
            )
        })
    }

    /// The error of a request that a group has not decided in time, and what this host knows of the reason.
    pub(super) fn undecided(&self, group: &Group) -> Error {
        let members = self.known_members();
        let replica = locked(&group.replica);
        let (leader, (voters, _)) = (replica.leader(), replica.replicas());
        let mut reasons: Vec<String> = group.refusal().iter().map(ToString::to_string).collect();
        if leader == 0 {
            let needed = voters.len() / 2 + 1;
            reasons.push(format!("{needed} of {} voters are needed to elect a leader", voters.len()));
        }
        for host in voters.into_iter().filter(|host| *host != self.facts.host) {
            let is_led_here = leader == self.facts.host;
            if self.post.trouble(host).or_else(|| self.silence(host, is_led_here)).is_none() {
                continue;
            }
            reasons.push(match members.iter().find(|member| member.id == host) {
                Some(member) => format!("host {} at {} does not answer", member.name, member.address),
                None => format!("host {} does not answer", shown(host)),
            });
        }
        let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
        let (name, limit) = (&group.name, PATIENCE.as_secs());
        Code::GroupUnavailable.error(format!("group '{name}' made no decision within {limit} s{reasons}"))
    }

    /// A host that is connected to this one and does not answer. A leader hears of each host all the time; the others ask now and
    /// then.
    fn silence(&self, host: u64, is_led_here: bool) -> Option<String> {
        if !is_led_here {
            let long = PROBES * PROBE.max(self.silence);
            let is_mute = host != self.facts.host && self.is_mute(host, long);
            return is_mute.then(|| format!("it has not answered for {} s", long.as_secs()));
        }
        let long = SILENCES * self.silence;
        let is_silent = is_led_here && host != self.facts.host && self.is_silent(host, long);
        is_silent.then(|| format!("it is connected, but has not answered for {} ms", long.as_millis()))
    }

    fn group_stat(&self, group: &Arc<Group>, topics: u64) -> GroupStat {
        let replica = locked(&group.replica);
        let (mut voters, mut learners) = replica.replicas();
        voters.sort_unstable();
        learners.sort_unstable();
        let (_, committed, last) = replica.progress();
        let leader = replica.leader();
        let lacks =
            voters.iter().chain(&learners).filter_map(|host| Some(last.saturating_sub(replica.matched(*host)?)));
        GroupStat {
            group: group.name.clone(),
            id: group.id,
            leader: (leader != 0).then(|| shown(leader)),
            role: role_word(replica.role()),
            behind: lacks.max(),
            voters: voters.iter().copied().map(shown).collect(),
            followers: learners.iter().copied().map(shown).collect(),
            wanted: replica.voters_wanted() as u64,
            preferred: replica.topics().preferred().to_owned(),
            topics,
            term: replica.term(),
            committed,
            resting: replica.is_resting(),
        }
    }

    fn stat(&self, group: &Group, name: String) -> TopicStat {
        let replica = locked(&group.replica);
        let here = replica.topics().topic(&name).ok().map(|topic| self.here(&name, topic));
        TopicStat { topic: name, group: group.name.clone(), buffered: None, here }
    }

    fn here(&self, name: &str, topic: &Topic) -> TopicHere {
        let subscription = |known: &millrace_group::Subscription| {
            let (key, here) = ((name.to_owned(), known.function.clone()), known.host == self.facts.host);
            SubscriptionStat {
                function: known.function.clone(),
                host: shown(known.host),
                missed: here.then(|| locked(&self.missed).get(&key).copied()).flatten().filter(|missed| *missed > 0),
                trouble: here.then(|| locked(&self.troubles).get(&key).cloned()).flatten(),
            }
        };
        let feed = |known: &millrace_group::Feed| {
            let key = (name.to_owned(), known.log.clone());
            let here = known.host == self.facts.host;
            let missed = here.then(|| locked(&self.unfed).get(&key).map(|(missed, _)| *missed)).flatten();
            let trouble = here.then(|| locked(&self.feeding).get(&key).cloned()).flatten();
            let (log, host, missed) = (known.log.clone(), shown(known.host), missed.filter(|missed| *missed > 0));
            FeedStat { log, host, published: known.last, missed, trouble }
        };
        TopicHere {
            history: topic.history,
            durability: topic.durability,
            engine: topic.engine,
            earliest: topic.engine.is_builtin().then(|| topic.earliest()),
            latest: topic.engine.is_builtin().then_some(topic.latest),
            trouble: None,
            subscriptions: topic.subscriptions.iter().map(subscription).collect(),
            feeds: topic.feeds.iter().filter(|known| known.log != FEED).map(feed).collect(),
        }
    }
}
