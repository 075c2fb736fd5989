//! The group of a cluster in which a topic is created, when its creator names a place instead of a group.
//!
//! The client chooses among the groups that exist, by what the host that is asked says of hosts and groups; then it creates the topic in the
//! group that it has chosen.

use millrace_wire::{Code, Result};
use serde::Deserialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Where a topic is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement<'a> {
    /// In the group of this topic.
    Beside(&'a str),
    /// In a group in which hosts with this label vote.
    Near(&'a str, &'a str),
    /// In a group in which hosts at the site of the connected host vote.
    Here,
    /// In a group at this site.
    Site(&'a str),
    /// In a group at the site that has the fewest topics; several topics are at different sites.
    Spread,
}

/// A host, as the document `cluster` has it.
#[derive(Debug, Deserialize)]
struct Host {
    host: String,
    site: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    here: bool,
    /// Why the host that was asked cannot reach it.
    #[serde(default)]
    trouble: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Hosts {
    hosts: Vec<Host>,
}

/// A group, as the document `cluster/groups` has it.
#[derive(Debug, Deserialize)]
struct Group {
    group: String,
    leader: Option<String>,
    voters: Vec<String>,
    #[serde(default)]
    preferred: String,
    topics: u64,
}

/// The hosts and groups of a cluster, and the topics that were placed since they were asked for.
#[derive(Debug)]
pub(crate) struct Places {
    hosts: Vec<Host>,
    groups: Vec<Group>,
    /// How many topics were placed at each site.
    placed: BTreeMap<String, u64>,
}

/// Whether a host is at the place of a topic.
type Fits<'f> = Box<dyn Fn(&Host) -> bool + 'f>;

/// What is compared if several groups fit: the least is chosen. Its last part is the name of the group.
type Rank<'p> = (u64, u64, &'p str, Reverse<usize>, [bool; 3], u64, &'p str);

impl Places {
    /// Reads the documents of a host.
    pub fn read(cluster: &str, groups: &str) -> Result<Self> {
        let invalid = |error| Code::DocumentUnknown.error(format!("a document of the host about its cluster: {error}"));
        let Hosts { hosts } = serde_json::from_str(cluster).map_err(invalid)?;
        let groups = serde_json::from_str(groups).map_err(invalid)?;
        Ok(Self { hosts, groups, placed: BTreeMap::new() })
    }

    /// The group in which to create a topic. If the topic is there already, in `current`, that group is kept if it fits.
    pub fn choose(&mut self, placement: Placement<'_>, current: Option<&str>) -> Result<String> {
        let (fits, place, option): (Fits<'_>, _, _) = match placement {
            Placement::Beside(_) => {
                return Err(Code::HostInternal.error("a group beside a topic is not chosen by hosts"));
            }
            Placement::Near(key, value) => {
                let has = move |host: &Host| host.labels.get(key).is_some_and(|found| found == value);
                (Box::new(has), format!("with the label {key}={value}"), format!("--near {key}={value}"))
            }
            Placement::Here => {
                let own = self.hosts.iter().find(|host| host.here).map(|host| host.site.clone()).unwrap_or_default();
                let place = format!("at the site '{own}' of the connected host");
                (Box::new(move |host| host.site == own), place, "--here".to_owned())
            }
            Placement::Site(site) => {
                let shown: String = site.chars().take(80).flat_map(char::escape_debug).collect();
                (Box::new(move |host| host.site == site), format!("at site '{shown}'"), format!("--site {shown}"))
            }
            Placement::Spread => (Box::new(|_| true), "of the cluster".to_owned(), "--site SITE".to_owned()),
        };
        let fitting: BTreeSet<&str> = self.hosts.iter().filter(|host| fits(host)).map(|host| &*host.host).collect();
        if fitting.is_empty() {
            return Err(Code::HostNotInCluster.error(format!("there is no host {place}")));
        }
        let candidates = self.groups.iter().filter(|group| match placement {
            Placement::Site(site) => self.site_of(group) == Some(site),
            Placement::Spread => self.site_of(group).is_some(),
            _ => group.voters.iter().any(|voter| fitting.contains(&**voter)),
        });
        let chosen = candidates.min_by_key(|group| {
            (
                current != Some(&*group.group),
                !self.answers(group),
                self.rank(group, &fitting, placement == Placement::Spread),
            )
        });
        let Some(chosen) = chosen else {
            let missing = match placement {
                Placement::Site(_) => format!("there is no group {place}"),
                Placement::Spread => "no group has most of its voters at one site, or prefers one".to_owned(),
                _ => format!("no host {place} votes in a group"),
            };
            // A group has three voters, unless its creator says otherwise.
            let hosts = if matches!(placement, Placement::Site(_)) { fitting.len() } else { self.hosts.len() };
            let count = if hosts < 3 { " --count 1" } else { "" };
            let detail =
                format!("{missing}; `millrace cluster group create NAME {option}{count}` creates such a group");
            return Err(Code::GroupNotFound.error(detail));
        };
        let (name, site) = (chosen.group.clone(), self.site_of(chosen).map(str::to_owned));
        if current.is_none()
            && let Some(group) = self.groups.iter_mut().find(|group| group.group == name)
        {
            group.topics += 1;
        }
        if let Some(site) = site {
            *self.placed.entry(site).or_default() += 1;
        }
        Ok(name)
    }

    /// Whether most voters of a group can be reached.
    fn answers(&self, group: &Group) -> bool {
        let reached = self.hosts.iter().filter(|host| host.trouble.is_none() && group.voters.contains(&host.host));
        2 * reached.count() > group.voters.len()
    }

    /// The group with the largest part of its voters at the place goes first; then one that prefers a site of the place as leader, one that is
    /// led there, one in which the host that is asked votes, and one with few topics. With `spread`, only numbers of topics count: first those
    /// of the site.
    fn rank<'p>(&'p self, group: &'p Group, fitting: &BTreeSet<&str>, spread: bool) -> Rank<'p> {
        if spread {
            let site = self.site_of(group);
            let there = self.groups.iter().filter(|group| self.site_of(group) == site).map(|group| group.topics).sum();
            let placed = site.and_then(|site| self.placed.get(site)).copied().unwrap_or(0);
            return (placed, there, site.unwrap_or_default(), Reverse(0), [false; 3], group.topics, &group.group);
        }
        let voters = group.voters.iter().filter(|voter| fitting.contains(&***voter)).count();
        let part = Reverse(voters * 1000 / group.voters.len().max(1));
        let mut there = self.hosts.iter().filter(|host| fitting.contains(&*host.host));
        let prefers = there.any(|host| host.site == group.preferred);
        let leads = group.leader.as_deref().is_some_and(|leader| fitting.contains(leader));
        let own = self.hosts.iter().any(|host| host.here && group.voters.contains(&host.host));
        (0, 0, "", part, [!prefers, !leads, !own], group.topics, &group.group)
    }

    /// The site of a group: the one that it prefers, or else the one with more than half of its voters.
    fn site_of<'p>(&'p self, group: &'p Group) -> Option<&'p str> {
        if !group.preferred.is_empty() {
            return Some(&group.preferred);
        }
        let is_voter = |host: &&Host| group.voters.contains(&host.host);
        let sites = || self.hosts.iter().filter(is_voter).map(|host| &*host.site);
        sites().find(|site| 2 * sites().filter(|other| other == site).count() > group.voters.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts a and b at the campus, c at the lab, d at the farm; b and c have the label zone=barn.
    const CLUSTER: &str = r#"{"leader":"a","hosts":[
        {"host":"a","site":"campus","here":true},
        {"host":"b","site":"campus","labels":{"zone":"barn"},"here":false},
        {"host":"c","site":"lab","labels":{"zone":"barn"},"here":false},
        {"host":"d","site":"farm","here":false}]}"#;

    fn group(name: &str, voters: &[&str], leader: Option<&str>, preferred: &str, topics: u64) -> String {
        let leader = leader.map_or("null".to_owned(), |leader| format!("\"{leader}\""));
        let preferred = if preferred.is_empty() { String::new() } else { format!("\"preferred\":\"{preferred}\",") };
        format!(r#"{{"group":"{name}","voters":{voters:?},"leader":{leader},{preferred}"topics":{topics}}}"#)
    }

    fn places(groups: &[String]) -> Places {
        Places::read(CLUSTER, &format!("[{}]", groups.join(","))).expect("documents")
    }

    fn chosen(places: &mut Places, placement: Placement<'_>) -> String {
        places.choose(placement, None).expect("a group")
    }

    #[test]
    fn the_group_with_the_largest_part_of_its_voters_there_is_chosen_and_then_where_it_is_led() {
        let barn = Placement::Near("zone", "barn");
        let mut one =
            places(&[group("main", &["a", "c", "d"], None, "", 0), group("pair", &["a", "b", "c"], None, "", 9)]);
        assert_eq!(chosen(&mut one, barn), "pair");
        let even = |leader, preferred| {
            places(&[
                group("main", &["a", "c", "d"], Some("a"), "", 0),
                group("more", &["a", "c", "d"], leader, preferred, 5),
            ])
        };
        assert_eq!(chosen(&mut even(Some("a"), ""), barn), "main", "it has fewer topics");
        assert_eq!(chosen(&mut even(Some("c"), ""), barn), "more", "it is led there");
        assert_eq!(chosen(&mut even(None, "lab"), barn), "more", "it is to be led there");
        assert_eq!(chosen(&mut even(Some("d"), ""), Placement::Here), "main", "it is led at the own site");
    }

    #[test]
    fn a_group_whose_voters_cannot_be_reached_is_chosen_only_if_no_other_fits() {
        let cluster = CLUSTER.replace(r#""host":"c","#, r#""host":"c","trouble":"MR6104: refused","#);
        let places = |groups: &[String]| Places::read(&cluster, &format!("[{}]", groups.join(","))).expect("documents");
        let (alone, main) = (group("barn", &["c"], None, "", 0), group("main", &["a", "b", "c"], Some("a"), "", 5));
        let barn = Placement::Near("zone", "barn");
        assert_eq!(chosen(&mut places(&[alone.clone(), main]), barn), "main");
        assert_eq!(chosen(&mut places(&[alone]), barn), "barn");
    }

    #[test]
    fn groups_of_a_site_are_those_that_prefer_it_or_have_most_voters_there() {
        let groups = [
            group("main", &["a", "c", "d"], Some("a"), "", 3),
            group("inner", &["a", "b", "c"], None, "", 1),
            group("fields", &["b", "c", "d"], None, "farm", 1),
            group("bench", &["c"], None, "", 4),
        ];
        let mut all = places(&groups);
        assert_eq!(chosen(&mut all, Placement::Site("campus")), "inner");
        assert_eq!(chosen(&mut all, Placement::Site("farm")), "fields");
        assert_eq!(chosen(&mut all, Placement::Site("lab")), "bench");
        // One topic at each site, the site with the fewest topics first.
        let mut all = places(&groups);
        let spread: Vec<String> = (0..4).map(|_| chosen(&mut all, Placement::Spread)).collect();
        assert_eq!(spread, ["inner", "fields", "bench", "inner"]);
    }

    #[test]
    fn a_topic_that_exists_stays_where_it_fits_and_is_counted_once() {
        let mut all = places(&[
            group("inner", &["a"], Some("a"), "", 0),
            group("second", &["a"], None, "", 7),
            group("far", &["d"], None, "", 0),
        ]);
        assert_eq!(all.choose(Placement::Here, Some("second")).unwrap(), "second");
        assert_eq!(all.choose(Placement::Here, Some("far")).unwrap(), "inner", "creating it there is refused");
        assert_eq!(all.groups[1].topics, 7);
    }

    #[test]
    fn a_place_without_hosts_and_one_without_groups_are_two_errors() {
        let mut all = places(&[group("main", &["a", "c", "d"], None, "", 0)]);
        let failed = |all: &mut Places, placement| {
            let error = all.choose(placement, None).unwrap_err();
            (error.code(), error.detail().to_owned())
        };
        assert_eq!(failed(&mut all, Placement::Near("zone", "mill")).0, Code::HostNotInCluster);
        assert_eq!(failed(&mut all, Placement::Site("moon")).0, Code::HostNotInCluster);
        for (placement, option) in
            [(Placement::Site("campus"), "--site campus --count 1`"), (Placement::Spread, "--site SITE`")]
        {
            let (code, detail) = failed(&mut all, placement);
            assert_eq!(code, Code::GroupNotFound);
            assert!(detail.contains(option), "{detail}");
        }
        let mut far = places(&[group("far", &["d"], None, "", 0)]);
        for (placement, option) in [(Placement::Here, "--here"), (Placement::Near("zone", "barn"), "--near zone=barn")]
        {
            let (code, detail) = failed(&mut far, placement);
            assert_eq!(code, Code::GroupNotFound);
            assert!(detail.contains(option), "{detail}");
        }
    }
}
