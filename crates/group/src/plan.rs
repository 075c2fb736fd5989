//! The availability and the latency of a group on given hosts.

use millrace_wire::{Code, Result};
use std::{cmp::Ordering, collections::BTreeMap};

/// Most hosts that are compared: there are 792 ways to choose five of twelve.
pub const HOSTS_MAX: usize = 12;

/// A host that could vote.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its site.
    pub site: String,
    /// The share of the time in which it is up, from 0 to 1.
    pub uptime: f64,
}

/// The times that a message and its answer take between sites, in milliseconds. Both orders of two sites are one pair.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips(BTreeMap<(String, String), f64>);

/// The properties of a group on some of the hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The voters, as positions among the candidates.
    pub voters: Vec<usize>,
    /// The share of the time in which a majority is up, if hosts fail independently.
    pub availability: f64,
    /// A lower bound of it, which adds up the probabilities of all sets of hosts whose loss is too much. The papers on Canal compute this.
    pub bound: f64,
    /// The voter with which a record is acknowledged soonest; nothing if no times are known.
    pub leader: Option<usize>,
    /// How long it takes until a majority has a record that the leader has.
    pub commit_ms: Option<f64>,
    /// How long a publisher waits.
    pub publish_ms: Option<f64>,
}

impl RoundTrips {
    /// Sets the time between two sites.
    pub fn set(&mut self, one: &str, other: &str, ms: f64) {
        self.0.insert((one.into(), other.into()), ms);
        self.0.insert((other.into(), one.into()), ms);
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Between two hosts; within a site none unless it was set.
    fn between(&self, one: &str, other: &str) -> Result<f64> {
        match self.0.get(&(one.to_owned(), other.to_owned())) {
            Some(ms) => Ok(*ms),
            None if one == other => Ok(0.0),
            None => Err(Code::ValueInvalid.error(format!("no round-trip time between sites {one} and {other}"))),
        }
    }
}

/// The probability that a majority of hosts with these uptimes is up.
pub fn availability(uptimes: &[f64]) -> f64 {
    // up[n]: the probability that n of the hosts that were looked at are up.
    let mut up = vec![1.0];
    for uptime in uptimes {
        let mut next = vec![0.0; up.len() + 1];
        for (count, probability) in up.iter().enumerate() {
            next[count] += probability * (1.0 - uptime);
            next[count + 1] += probability * uptime;
        }
        up = next;
    }
    up.iter().skip(uptimes.len() / 2 + 1).sum()
}

/// One minus the sum, over all sets of hosts without which there is no majority, of the probability that the hosts of the set are down.
pub fn bound(uptimes: &[f64]) -> f64 {
    // down[n]: the sum, over all sets of n of the hosts that were looked at, of the probability that these are down.
    let mut down = vec![1.0];
    for uptime in uptimes {
        let mut next = down.clone();
        next.push(0.0);
        for (count, probability) in down.iter().enumerate() {
            next[count + 1] += probability * (1.0 - uptime);
        }
        down = next;
    }
    1.0 - down.iter().skip(uptimes.len() - uptimes.len() / 2).sum::<f64>()
}

/// Every choice of this number of voters among these hosts, ordered by availability and then by the latency for publishers at a site.
pub fn plans(hosts: &[Candidate], size: usize, times: &RoundTrips, publisher: Option<&str>) -> Result<Vec<Plan>> {
    if hosts.len() > HOSTS_MAX || size > hosts.len() || ![1, 3, 5].contains(&size) {
        let detail = format!("{size} of {} hosts; 1, 3 or 5 of at most {HOSTS_MAX} hosts can vote", hosts.len());
        return Err(Code::ValueInvalid.error(detail));
    }
    let mut plans = Vec::new();
    for set in 0_u32..1 << hosts.len() {
        if set.count_ones() as usize == size {
            let voters = (0..hosts.len()).filter(|at| set & (1 << at) != 0).collect();
            plans.push(plan(hosts, voters, times, publisher)?);
        }
    }
    let time = |plan: &Plan| plan.publish_ms.or(plan.commit_ms).unwrap_or(0.0);
    // The same hosts in another order differ by rounding only.
    let rounded = |plan: &Plan| (plan.availability * 1e12).round();
    plans.sort_by(|a, b| {
        let by_uptime = rounded(b).partial_cmp(&rounded(a)).unwrap_or(Ordering::Equal);
        by_uptime.then(time(a).partial_cmp(&time(b)).unwrap_or(Ordering::Equal))
    });
    Ok(plans)
}

fn plan(hosts: &[Candidate], voters: Vec<usize>, times: &RoundTrips, publisher: Option<&str>) -> Result<Plan> {
    let uptimes: Vec<f64> = voters.iter().map(|at| hosts[*at].uptime).collect();
    let (availability, bound) = (availability(&uptimes), bound(&uptimes));
    let mut best: Option<(f64, f64, usize)> = None;
    for leader in voters.iter().filter(|_| !times.is_empty()) {
        let site = &hosts[*leader].site;
        let others = voters.iter().filter(|at| *at != leader);
        let mut answers = others.map(|at| times.between(site, &hosts[*at].site)).collect::<Result<Vec<f64>>>()?;
        answers.sort_by(f64::total_cmp);
        // The leader itself is one of the majority.
        let commit_ms = (voters.len() / 2).checked_sub(1).map_or(0.0, |last| answers[last]);
        let publish_ms = commit_ms + publisher.map_or(Ok(0.0), |from| times.between(from, site))?;
        if best.is_none_or(|(known, ..)| publish_ms < known) {
            best = Some((publish_ms, commit_ms, *leader));
        }
    }
    let publish_ms = best.map(|(publish_ms, ..)| publish_ms).filter(|_| publisher.is_some());
    let (commit_ms, leader) = (best.map(|(_, commit_ms, _)| commit_ms), best.map(|(.., leader)| leader));
    Ok(Plan { voters, availability, bound, leader, commit_ms, publish_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGE: f64 = 0.99;
    const CLOUD: f64 = 0.9999;

    fn percent(share: f64) -> String {
        format!("{:.4}", share * 100.0)
    }

    #[test]
    fn the_figures_of_the_papers_come_out() {
        assert_eq!(percent(bound(&[EDGE; 3])), "99.9699", "three replicas at the edge");
        assert_eq!(percent(bound(&[EDGE, EDGE, CLOUD])), "99.9898", "two at the edge, one in the cloud");
        // They count some failures twice: the exact figures are these.
        assert_eq!(percent(availability(&[EDGE; 3])), "99.9702");
        assert_eq!(percent(availability(&[EDGE, EDGE, CLOUD])), "99.9898");
    }

    #[test]
    fn availability_is_that_of_a_majority() {
        assert_eq!(percent(availability(&[0.9])), "90.0000");
        // All cases of five hosts, one by one.
        let uptimes = [0.5, 0.9, 0.99, 0.7, 0.8];
        let case = |up: u32| {
            let factor = |(at, uptime): (usize, &f64)| if up & (1 << at) != 0 { *uptime } else { 1.0 - uptime };
            uptimes.iter().enumerate().map(factor).product::<f64>()
        };
        let expected: f64 = (0..32_u32).filter(|up| up.count_ones() >= 3).map(case).sum();
        assert!((availability(&uptimes) - expected).abs() < 1e-12);
        assert!(bound(&uptimes) <= availability(&uptimes));
    }

    fn hosts() -> Vec<Candidate> {
        let host = |(name, site, uptime): (&str, &str, f64)| Candidate { name: name.into(), site: site.into(), uptime };
        let all = [
            ("c", "campus", CLOUD),
            ("l1", "lab", EDGE),
            ("l2", "lab", EDGE),
            ("l3", "lab", EDGE),
            ("f", "farm", EDGE),
        ];
        all.map(host).into()
    }

    #[test]
    fn placements_are_compared_by_their_availability_and_their_times() {
        let mut times = RoundTrips::default();
        times.set("campus", "lab", 45.0);
        times.set("lab", "farm", 50.0);
        times.set("campus", "farm", 55.0);
        let plans = plans(&hosts(), 3, &times, Some("farm")).unwrap();
        assert_eq!(plans.len(), 10);
        let names = |plan: &Plan| plan.voters.iter().map(|at| hosts()[*at].name.clone()).collect::<Vec<_>>().join(" ");
        let named = |voters: &str| plans.iter().find(|plan| names(plan) == voters).unwrap();
        assert!(names(&plans[0]).starts_with("c "), "the host that is up the longest takes part");
        assert_eq!(names(plans.last().unwrap()), "l2 l3 f");
        // The leader at the farm waits for the lab; a leader at the lab is as far from the publisher.
        let spread = named("c l1 f");
        assert_eq!((spread.leader, spread.commit_ms, spread.publish_ms), (Some(4), Some(50.0), Some(50.0)));
        let colocated = named("l1 l2 l3");
        assert_eq!((colocated.commit_ms, colocated.publish_ms), (Some(0.0), Some(50.0)));
        assert_eq!(percent(colocated.bound), "99.9699");
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let none = RoundTrips::default();
        assert!(plans(&hosts(), 3, &none, None).unwrap().iter().all(|plan| plan.leader.is_none()));
        assert_eq!(plans(&hosts(), 2, &none, None).unwrap_err().code(), Code::ValueInvalid);
        assert_eq!(plans(&hosts()[..2], 3, &none, None).unwrap_err().code(), Code::ValueInvalid);
        let mut some = RoundTrips::default();
        some.set("campus", "lab", 45.0);
        assert_eq!(plans(&hosts(), 3, &some, None).unwrap_err().code(), Code::ValueInvalid);
        let one = plans(&hosts()[..1], 1, &some, Some("lab")).unwrap();
        assert_eq!((one[0].commit_ms, one[0].publish_ms), (Some(0.0), Some(45.0)));
    }
}
