//! The groups of a cluster: which hosts keep them, and which of them has which topic. Part of the topics of the first group.

use crate::{Member, topics::TOPICS_MAX};
use millrace_wire::{Code, Error, Name, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The group that every cluster begins with: all hosts follow it.
pub const MAIN: u32 = 1;
/// Its name.
pub const MAIN_NAME: &str = "main";
/// The group that has the replicated shared objects, once there are any.
pub const OBJECTS_NAME: &str = "objects";
/// Most groups of a cluster, and most topics that are in groups other than the first.
const GROUPS_MAX: usize = 16_384;
const PLACED_MAX: usize = 1_000_000;
/// How many hosts can vote in a group.
pub const VOTERS: [u64; 3] = [1, 3, 5];

/// A group in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Its number, which is never reused.
    pub id: u32,
    /// The hosts that it began with.
    pub founders: Vec<u64>,
    /// The hosts that vote in it, or will.
    pub hosts: Vec<u64>,
    /// The number of voters once the cluster has as many hosts.
    pub size: u64,
    /// Hosts that follow it without a vote because its topics are used there.
    pub followers: BTreeSet<u64>,
    /// How many topics it has.
    pub topics: u64,
}

impl GroupSpec {
    /// Whether a host keeps it.
    pub fn has(&self, host: u64) -> bool {
        self.hosts.contains(&host) || self.followers.contains(&host)
    }
}

/// The groups except the first, and their topics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    groups: BTreeMap<String, GroupSpec>,
    placed: BTreeMap<String, u32>,
    /// Those that are being removed, and the entries that began it.
    #[serde(default)]
    removing: BTreeMap<String, u64>,
    /// Groups that were given up with their topics: what hosts have of their logs stays on their disks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    abandoned: BTreeSet<u32>,
    last: u32,
    revision: u64,
}

impl Directory {
    /// The groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &GroupSpec)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// One group with these topics.
    #[cfg(test)]
    pub fn with<const TOPICS: usize>(name: &str, spec: GroupSpec, topics: [&str; TOPICS]) -> Self {
        let placed = topics.into_iter().map(|topic| (topic.to_owned(), spec.id)).collect();
        Self { groups: [(name.to_owned(), spec)].into(), placed, ..Self::default() }
    }

    /// The groups without their topics.
    #[must_use]
    pub fn clone_groups(&self) -> Self {
        let (groups, last, revision) = (self.groups.clone(), self.last, self.revision);
        Self { groups, abandoned: self.abandoned.clone(), last, revision, ..Self::default() }
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&GroupSpec> {
        self.groups.get(name)
    }

    /// The group of this number, and its name.
    pub fn numbered(&self, id: u32) -> Option<(&str, &GroupSpec)> {
        self.groups().find(|(_, group)| group.id == id)
    }

    /// Which group has a topic, unless it is the first.
    pub fn placed(&self, topic: &str) -> Option<u32> {
        self.placed.get(topic).copied()
    }

    /// The topics of other groups than the first, in the order of their names, after this one.
    pub fn placed_after(&self, after: &str) -> impl Iterator<Item = (&str, u32)> {
        let from = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.placed.range::<str, _>(from).map(|(topic, group)| (&**topic, *group))
    }

    /// The topics of a group, by name.
    pub fn topics_of(&self, group: u32) -> impl Iterator<Item = &str> {
        self.placed.iter().filter(move |(_, of)| **of == group).map(|(topic, _)| &**topic)
    }

    /// Whether a group was given up with its topics.
    pub fn is_abandoned(&self, group: u32) -> bool {
        self.abandoned.contains(&group)
    }

    /// The topics of other groups whose removal has begun and not ended.
    pub fn removing(&self) -> impl Iterator<Item = &str> {
        self.removing.keys().map(|topic| &**topic)
    }

    /// A counter of the changes of groups: while it is the same, the groups and their hosts are, too.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn touch(&mut self) {
        self.revision += 1;
    }

    /// Creates a group on these hosts, or on hosts that are chosen; an existing group on the same hosts is left as it is.
    pub(crate) fn create(
        &mut self,
        members: &BTreeMap<u64, Member>,
        name: String,
        hosts: Vec<u64>,
        size: u64,
    ) -> Result<u64> {
        name.parse::<Name>()?;
        check_size(if hosts.is_empty() { size } else { hosts.len() as u64 })?;
        if let Some(stranger) = hosts.iter().find(|host| !members.contains_key(*host)) {
            return Err(Code::HostNotInCluster.error(format!("host {stranger:016x}")));
        }
        if hosts.iter().collect::<BTreeSet<_>>().len() < hosts.len() {
            return Err(Code::ValueInvalid.error("a host is listed twice as a voter of the group"));
        }
        let known = self.groups.get(&name);
        if let Some(known) = known.filter(|known| known.hosts == hosts || (hosts.is_empty() && known.size == size)) {
            return Ok(known.id.into());
        }
        if known.is_some() || name == MAIN_NAME {
            return Err(Code::GroupExists.error(format!("group '{name}'")));
        }
        if self.groups.len() >= GROUPS_MAX {
            return Err(Code::TopicsFull.error(format!("the cluster already has {GROUPS_MAX} groups")));
        }
        let size = if hosts.is_empty() { size } else { hosts.len() as u64 };
        let hosts = self.chosen(members, size, hosts);
        if hosts.is_empty() {
            return Err(Code::GroupBusy.error("no host has announced itself yet"));
        }
        self.last = self.last.max(MAIN) + 1;
        let (id, founders) = (self.last, hosts.clone());
        self.groups.insert(name, GroupSpec { id, founders, hosts, size, ..GroupSpec::default() });
        self.touch();
        Ok(id.into())
    }

    pub(crate) fn remove(&mut self, name: &str) -> Result<u64> {
        let known = self.groups.get(name).ok_or_else(|| no_group(name))?;
        if known.topics > 0 {
            return Err(Code::GroupHasTopics.error(format!("group '{name}' has {} topics", known.topics)));
        }
        if name == OBJECTS_NAME {
            return Err(Code::GroupHasTopics.error(format!("group '{name}' has the cluster's shared objects")));
        }
        self.groups.remove(name);
        self.touch();
        Ok(0)
    }

    /// Gives up a group with its topics, because the hosts that have it are lost.
    pub(crate) fn abandon(&mut self, name: &str) -> Result<u64> {
        let gone = self.groups.remove(name).ok_or_else(|| no_group(name))?.id;
        self.abandoned.insert(gone);
        self.placed.retain(|_, group| *group != gone);
        self.removing.retain(|topic, _| self.placed.contains_key(topic));
        self.touch();
        Ok(0)
    }

    /// Continues with one host and these groups.
    pub(crate) fn recover(&mut self, host: u64, kept: &[u32]) {
        let gone = self.groups.values().map(|group| group.id).filter(|id| !kept.contains(id));
        self.abandoned.extend(gone.collect::<Vec<_>>());
        self.groups.retain(|_, group| kept.contains(&group.id));
        self.placed.retain(|_, group| kept.contains(group));
        self.removing.retain(|topic, _| self.placed.contains_key(topic));
        for group in self.groups.values_mut() {
            (group.hosts, group.followers) = (vec![host], BTreeSet::new());
        }
        self.touch();
    }

    pub(crate) fn resize(&mut self, members: &BTreeMap<u64, Member>, name: &str, size: u64) -> Result<u64> {
        check_size(size)?;
        let mut hosts = self.groups.get(name).ok_or_else(|| no_group(name))?.hosts.clone();
        let dropped = hosts.split_off(hosts.len().min(usize::try_from(size).unwrap_or(usize::MAX)));
        let hosts = self.chosen(members, size, hosts);
        if let Some(known) = self.groups.get_mut(name) {
            // Functions may run there for its topics.
            known.followers.extend(dropped);
            known.followers.retain(|host| !hosts.contains(host));
            (known.hosts, known.size) = (hosts, size);
        }
        self.touch();
        Ok(0)
    }

    pub(crate) fn follow(&mut self, group: u32, host: u64) -> Result<u64> {
        let known = self.groups.values_mut().find(|known| known.id == group);
        let known = known.ok_or_else(|| no_group(&group.to_string()))?;
        if !known.has(host) {
            known.followers.insert(host);
            self.touch();
        }
        Ok(0)
    }

    pub(crate) fn place(&mut self, topic: String, group: u32) -> Result<u64> {
        self.check_stays(&topic)?;
        if let Some(known) = self.placed.get(&topic) {
            return if *known == group { Ok(0) } else { Err(elsewhere(&topic, self, *known)) };
        }
        if self.placed.len() >= PLACED_MAX {
            return Err(Code::TopicsFull.error(format!("the cluster already has {PLACED_MAX} topics")));
        }
        let known = self.groups.values_mut().find(|known| known.id == group);
        let known = known.ok_or_else(|| no_group(&group.to_string()))?;
        if known.topics >= TOPICS_MAX as u64 {
            return Err(Code::TopicsFull.error(format!("the group already has {TOPICS_MAX} topics")));
        }
        known.topics += 1;
        self.placed.insert(topic, group);
        Ok(0)
    }

    /// Refuses a topic whose removal has begun.
    pub(crate) fn check_stays(&self, topic: &str) -> Result<()> {
        if !self.removing.contains_key(topic) {
            return Ok(());
        }
        let detail = format!("topic '{topic}' is being removed; `millrace topic rm {topic}` completes it");
        Err(Code::TopicRemoving.error(detail))
    }

    /// Begins the removal of a topic; returns the entry that began it.
    pub(crate) fn displace(&mut self, entry: u64, topic: String, group: u32) -> Result<u64> {
        match self.placed.get(&topic) {
            Some(known) if *known == group => Ok(*self.removing.entry(topic).or_insert(entry)),
            _ => Err(Code::TopicNotFound.error(format!("no topic '{topic}' in group {group}"))),
        }
    }

    /// Ends it.
    pub(crate) fn displaced(&mut self, topic: &str, since: u64) -> Result<u64> {
        if self.removing.get(topic) != Some(&since) {
            return Ok(0);
        }
        self.removing.remove(topic);
        let group = self.placed.remove(topic);
        if let Some(known) = self.groups.values_mut().find(|known| Some(known.id) == group) {
            known.topics = known.topics.saturating_sub(1);
        }
        Ok(0)
    }

    /// Adds a host: groups that lack a voter get it.
    pub(crate) fn entered(&mut self, members: &BTreeMap<u64, Member>) {
        self.refill(members);
        self.touch();
    }

    /// Removes a host: others take its place.
    pub(crate) fn left(&mut self, members: &BTreeMap<u64, Member>, host: u64) {
        for group in self.groups.values_mut() {
            group.hosts.retain(|known| *known != host);
            group.followers.remove(&host);
        }
        self.refill(members);
        self.touch();
    }

    fn refill(&mut self, members: &BTreeMap<u64, Member>) {
        let lacking = self.groups.iter().filter(|(_, group)| (group.hosts.len() as u64) < group.size);
        for name in lacking.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let Some((hosts, size)) = self.groups.get(&name).map(|group| (group.hosts.clone(), group.size)) else {
                continue;
            };
            let hosts = self.chosen(members, size, hosts);
            if let Some(group) = self.groups.get_mut(&name) {
                group.hosts = hosts;
            }
        }
    }

    /// These hosts and as many more as a group needs: each at a site with the fewest of them, and of those the one with the fewest groups.
    /// The result is the same on every replica.
    fn chosen(&self, members: &BTreeMap<u64, Member>, size: u64, mut hosts: Vec<u64>) -> Vec<u64> {
        let mut load: BTreeMap<u64, usize> = BTreeMap::new();
        for host in self.groups.values().flat_map(|group| &group.hosts) {
            *load.entry(*host).or_default() += 1;
        }
        while (hosts.len() as u64) < size {
            let site_of = |host: &u64| members.get(host).map(|member| &*member.site);
            let at_site = |member: &Member| hosts.iter().filter(|host| site_of(host) == Some(&*member.site)).count();
            let loaded = |member: &Member| load.get(&member.id).copied().unwrap_or(0);
            let free = members.values().filter(|member| !hosts.contains(&member.id));
            let Some(next) = free.min_by_key(|member| (at_site(member), loaded(member), member.id)) else { break };
            hosts.push(next.id);
        }
        hosts
    }
}

fn check_size(size: u64) -> Result<()> {
    if VOTERS.contains(&size) {
        return Ok(());
    }
    Err(Code::ValueInvalid.error(format!("a group cannot have {size} voters; it has 1, 3 or 5")))
}

/// The error that no group has this name or number.
pub(crate) fn no_group(name: &str) -> Error {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    Code::GroupNotFound.error(format!("no group '{shown}'"))
}

/// The error that a topic of this name is in another group.
pub(crate) fn elsewhere(topic: &str, directory: &Directory, group: u32) -> Error {
    let name = directory.numbered(group).map_or("another", |(name, _)| name);
    Code::TopicExists.error(format!("topic '{topic}' exists in group '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(sites: &[&str]) -> BTreeMap<u64, Member> {
        let member = |(id, site): (u64, &&str)| (id, Member { id, site: (*site).into(), ..Member::default() });
        (1..).zip(sites).map(member).collect()
    }

    #[test]
    fn hosts_are_chosen_over_sites_and_by_how_many_groups_they_have() {
        let members = members(&["campus", "campus", "lab", "farm"]);
        let mut directory = Directory::default();
        assert_eq!(directory.create(&members, "a".into(), vec![], 3), Ok(2));
        assert_eq!(directory.group("a").unwrap().hosts, [1, 3, 4], "one of each site");
        assert_eq!(directory.create(&members, "b".into(), vec![], 1), Ok(3));
        assert_eq!(directory.group("b").unwrap().hosts, [2], "it has none yet");
        assert_eq!(directory.create(&members, "b".into(), vec![], 1), Ok(3), "it is there");
        directory.create(&members, "c".into(), vec![2, 3, 4], 0).unwrap();
        assert_eq!(directory.group("c").unwrap().hosts, [2, 3, 4], "as was said");
    }

    #[test]
    fn a_host_that_leaves_is_replaced_and_a_group_that_lacks_one_gets_it() {
        let mut all = members(&["campus", "lab", "farm", "farm"]);
        let mut directory = Directory::default();
        directory.create(&all, "a".into(), vec![1, 2, 3], 0).unwrap();
        all.remove(&2);
        directory.left(&all, 2);
        assert_eq!(directory.group("a").unwrap().hosts, [1, 3, 4]);
        all.remove(&1);
        directory.left(&all, 1);
        assert_eq!(directory.group("a").unwrap().hosts, [3, 4]);
        all.insert(9, Member { id: 9, ..Member::default() });
        directory.entered(&all);
        assert_eq!(directory.group("a").unwrap().hosts, [3, 4, 9]);
        directory.resize(&all, "a", 1).unwrap();
        assert_eq!(directory.group("a").unwrap().hosts, [3]);
        assert_eq!(directory.group("a").unwrap().followers, [4, 9].into(), "those without a vote follow");
        assert_eq!(directory.group("a").unwrap().founders, [1, 2, 3], "its log begins with them");
    }

    #[test]
    fn a_group_that_is_given_up_takes_its_topics_along_and_its_number_is_remembered() {
        let members = members(&["campus", "lab"]);
        let mut directory = Directory::default();
        directory.create(&members, "farm".into(), vec![1], 0).unwrap();
        directory.create(&members, "barn".into(), vec![2], 0).unwrap();
        for (topic, group) in [("soil", 2), ("rain", 2), ("hay", 3)] {
            directory.place(topic.into(), group).unwrap();
        }
        directory.displace(9, "rain".into(), 2).unwrap();
        assert_eq!(directory.topics_of(2).collect::<Vec<_>>(), ["rain", "soil"]);
        directory.abandon("farm").unwrap();
        assert_eq!(directory.abandon("farm").unwrap_err().code(), Code::GroupNotFound);
        assert_eq!((directory.placed("soil"), directory.placed("hay")), (None, Some(3)));
        assert_eq!(directory.removing().count(), 0);
        assert_eq!((directory.is_abandoned(2), directory.is_abandoned(3)), (true, false));
        assert_eq!(directory.create(&members, "farm".into(), vec![2], 0), Ok(4), "its number is not used again");
        // One host goes on with one group.
        directory.recover(7, &[4]);
        assert_eq!((directory.group("farm").unwrap().hosts.as_slice(), directory.placed("hay")), (&[7][..], None));
        assert!(directory.group("barn").is_none() && directory.is_abandoned(3));
    }

    #[test]
    fn what_is_wrong_with_a_group_is_refused() {
        let members = members(&["campus", "lab", "farm"]);
        let mut directory = Directory::default();
        let mut code = |name: &str, hosts: Vec<u64>, size| {
            directory.create(&members, name.into(), hosts, size).unwrap_err().code()
        };
        assert_eq!(code("main", vec![], 3), Code::GroupExists);
        assert_eq!(code("no/name", vec![], 3), Code::NameInvalid);
        assert_eq!(code("a", vec![], 2), Code::ValueInvalid);
        assert_eq!(code("a", vec![1, 1, 2], 0), Code::ValueInvalid);
        assert_eq!(code("a", vec![7], 0), Code::HostNotInCluster);
        directory.create(&members, "a".into(), vec![1], 0).unwrap();
        assert_eq!(directory.create(&members, "a".into(), vec![2], 0).unwrap_err().code(), Code::GroupExists);
        directory.create(&members, "b".into(), vec![2], 0).unwrap();
        directory.place("t".into(), 2).unwrap();
        directory.place("t".into(), 2).unwrap();
        assert_eq!(directory.place("t".into(), 3).unwrap_err().code(), Code::TopicExists);
        assert_eq!(directory.place("u".into(), 9).unwrap_err().code(), Code::GroupNotFound);
        assert_eq!(directory.displace(5, "t".into(), 3).unwrap_err().code(), Code::TopicNotFound);
        assert_eq!(directory.remove("a").unwrap_err().code(), Code::GroupHasTopics);
        assert_eq!(directory.remove("c").unwrap_err().code(), Code::GroupNotFound);
        directory.remove("b").unwrap();
        assert_eq!(directory.create(&members, "b".into(), vec![2], 0), Ok(4), "no number is used twice");
    }

    #[test]
    fn the_name_of_a_removed_topic_is_free_once_the_removal_has_ended() {
        let members = members(&["campus", "lab"]);
        let mut directory = Directory::default();
        directory.create(&members, "a".into(), vec![1], 0).unwrap();
        directory.create(&members, "b".into(), vec![2], 0).unwrap();
        directory.place("t".into(), 2).unwrap();
        assert_eq!(directory.displace(7, "t".into(), 2), Ok(7));
        assert_eq!(directory.displace(9, "t".into(), 2), Ok(7), "it has begun");
        for group in [2, 3] {
            assert_eq!(directory.place("t".into(), group).unwrap_err().code(), Code::TopicRemoving);
        }
        assert_eq!(directory.remove("a").unwrap_err().code(), Code::GroupHasTopics);
        assert!(directory.removing().eq(["t"]));
        directory.displaced("t", 9).unwrap();
        assert_eq!(directory.placed("t"), Some(2), "that is another removal");
        directory.displaced("t", 7).unwrap();
        directory.displaced("t", 7).unwrap();
        assert_eq!(directory.placed("t"), None);
        directory.place("t".into(), 3).unwrap();
        directory.remove("a").unwrap();
    }
}
