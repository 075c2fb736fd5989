//! A ring of groups: each has three hosts and works while two of them live.

use crate::{Chance, invariants::Responsible};
use millrace_ring::{Ask, Entry, Id, Message, Options, Ring};
use std::collections::{BTreeMap, HashMap};

/// The hosts of a group, of which most have to live.
const HOSTS: u64 = 3;
/// The longest way of a message, in units of time.
const DELAY_MAX: u64 = 3;
/// How long faults go on, and how long the ring then has until all is well.
const FAULTS_TICKS: u64 = 3_000;
const HEALED_TICKS: u64 = 1_500;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct RingSetting {
    /// Groups at the beginning.
    pub groups: u64,
    /// Hosts die and come back, groups join and leave, messages are lost.
    pub churns: bool,
    /// Lookups at the end.
    pub lookups: u64,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingReport {
    /// Groups in the end.
    pub groups: usize,
    /// Through how many groups a lookup went, on average.
    pub hops_mean: f64,
    /// And at most.
    pub hops_max: u32,
    /// Lookups that were answered while faults went on, and those that were not.
    pub answered: u64,
    /// Those that were not.
    pub unanswered: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// How many groups lost most of their hosts for a while.
    pub outages: u64,
    /// How often another host of a group took the lead.
    pub leaders: u64,
}

struct Group {
    entry: Entry,
    ring: Ring,
    alive: [bool; HOSTS as usize],
    leader: usize,
    asked: HashMap<Ask, Id>,
    /// The groups that its hosts have heard of.
    known: Vec<Entry>,
}

impl Group {
    fn works(&self) -> bool {
        2 * self.alive.iter().filter(|alive| **alive).count() > self.alive.len()
    }
}

struct World {
    chance: Chance,
    now: u64,
    loss_permille: u64,
    groups: BTreeMap<u64, Group>,
    underway: BTreeMap<u64, Vec<(u64, u64, Message)>>,
    next_group: u64,
    hops: Vec<u32>,
    /// Who was said to be responsible for a place.
    told: Vec<(Id, u64)>,
    report: RingReport,
}

/// Simulates a ring.
///
/// # Errors
///
/// An invariant was violated: what was seen, and when.
pub fn run(seed: u64, setting: RingSetting) -> Result<RingReport, String> {
    let mut world = World::new(seed);
    world.go(setting).map_err(|what| format!("seed {seed}, {} ticks: {what}", world.now))
}

fn entry(group: u64) -> Entry {
    let hosts = (0..HOSTS).map(|host| group * HOSTS + host).collect();
    Entry { id: Id::of(&format!("group {group}")), group, hosts }
}

impl World {
    fn new(seed: u64) -> Self {
        let report = RingReport {
            groups: 0,
            hops_mean: 0.0,
            hops_max: 0,
            answered: 0,
            unanswered: 0,
            messages: 0,
            outages: 0,
            leaders: 0,
        };
        Self {
            chance: Chance::new(seed),
            now: 0,
            loss_permille: 0,
            groups: BTreeMap::new(),
            underway: BTreeMap::new(),
            next_group: 0,
            hops: Vec::new(),
            told: Vec::new(),
            report,
        }
    }

    fn go(&mut self, setting: RingSetting) -> Result<RingReport, String> {
        self.begin(setting.groups);
        if setting.churns {
            self.loss_permille = 20;
            for _ in 0..FAULTS_TICKS {
                self.disturb(setting.groups);
                self.tell();
                self.pass();
            }
            self.loss_permille = 0;
            for group in self.groups.values_mut() {
                group.alive = [true; HOSTS as usize];
            }
            for _ in 0..HEALED_TICKS {
                self.tell();
                self.pass();
            }
        } else {
            // Until everybody has looked at all fingers twice.
            for _ in 0..160 {
                self.pass();
            }
        }
        let responsible = self.responsible();
        self.groups.values().try_for_each(|group| responsible.check(&group.ring))?;
        self.hops.clear();
        self.told.clear();
        self.groups.values_mut().for_each(|group| group.asked.clear());
        for number in 0..setting.lookups {
            self.ask(&format!("topic {number}"));
        }
        for _ in 0..200 {
            self.pass();
            if self.groups.values().all(|group| group.asked.is_empty()) {
                break;
            }
        }
        if self.hops.len() as u64 != setting.lookups {
            return Err(format!("{} of {} lookups were answered", self.hops.len(), setting.lookups));
        }
        if let Some((id, told)) = self.told.iter().find(|(id, told)| responsible.group(*id) != Some(*told)) {
            return Err(format!(
                "group {told} is said to be responsible for {id:?}, and {:?} is",
                responsible.group(*id)
            ));
        }
        let sum: u64 = self.hops.iter().map(|hops| u64::from(*hops)).sum();
        let hops_mean = sum as f64 / self.hops.len().max(1) as f64;
        let hops_max = self.hops.iter().copied().max().unwrap_or(0);
        Ok(RingReport { groups: self.groups.len(), hops_mean, hops_max, ..self.report })
    }

    /// A ring that has been there for a while, but for its fingers.
    fn begin(&mut self, groups: u64) {
        self.next_group = groups;
        let responsible = Responsible::of((0..groups).map(|group| (entry(group).id, group)));
        for group in 0..groups {
            let entry = entry(group);
            let successors = responsible.behind(entry.id).filter(|behind| *behind != group);
            let successors = successors.take(millrace_ring::SUCCESSORS).map(self::entry).collect();
            self.enter(entry, successors, Vec::new());
        }
    }

    fn enter(&mut self, entry: Entry, successors: Vec<Entry>, known: Vec<Entry>) {
        let ring = Ring::resume(entry.clone(), successors, known.clone(), Options::default());
        let group = Group { entry, ring, alive: [true; HOSTS as usize], leader: 0, asked: HashMap::new(), known };
        self.groups.insert(group.entry.group, group);
    }

    fn responsible(&self) -> Responsible {
        Responsible::of(self.groups.values().map(|group| (group.entry.id, group.entry.group)))
    }

    fn any(&mut self) -> u64 {
        let at = self.chance.below(self.groups.len() as u64) as usize;
        self.groups.keys().nth(at).copied().unwrap_or(0)
    }

    fn ask(&mut self, name: &str) {
        let (id, at) = (Id::of(name), self.any());
        if let Some(group) = self.groups.get_mut(&at).filter(|group| group.works()) {
            let ask = group.ring.lookup(id);
            group.asked.insert(ask, id);
        }
    }

    /// Hosts hear of groups in other ways too: one of them does.
    fn tell(&mut self) {
        let at = self.any();
        let known: Vec<Entry> = (0..3).map(|_| entry(self.any())).collect();
        if let Some(group) = self.groups.get_mut(&at) {
            group.ring.hear_of(known.clone());
            group.known = known;
        }
    }

    fn disturb(&mut self, about: u64) {
        if self.chance.permille(150) {
            let (at, host) = (self.any(), self.chance.below(HOSTS) as usize);
            self.turn(at, host);
        }
        if self.chance.permille(20) && (self.groups.len() as u64) < 2 * about {
            let known: Vec<Entry> = (0..3).map(|_| entry(self.any())).collect();
            let group = self.next_group;
            self.next_group += 1;
            self.enter(entry(group), Vec::new(), known);
        }
        if self.chance.permille(15) && self.groups.len() as u64 > about / 2 {
            let at = self.any();
            if let Some(mut group) = self.groups.remove(&at) {
                // Not everybody says so.
                if self.chance.permille(500) && group.works() {
                    group.ring.leave();
                    self.deliver(&mut group);
                }
            }
        }
        if self.chance.permille(300) {
            let name = format!("topic {}", self.chance.below(1 << 20));
            self.ask(&name);
        }
    }

    /// A host dies, or is back.
    fn turn(&mut self, at: u64, host: usize) {
        let Some(group) = self.groups.get_mut(&at) else { return };
        let worked = group.works();
        group.alive[host] = !group.alive[host];
        if worked && !group.works() {
            self.report.outages += 1;
        }
        let must = group.works() && (!worked || !group.alive[group.leader]);
        if must && let Some(next) = group.alive.iter().position(|alive| *alive) {
            // Another replica leads: it has the successors that the group agreed on, and nothing else.
            group.leader = next;
            self.report.leaders += 1;
            let successors = group.ring.successors().to_vec();
            let known = group.known.clone();
            group.ring = Ring::resume(group.entry.clone(), successors, known, Options::default());
            self.report.unanswered += group.asked.drain().count() as u64;
        }
    }

    /// One unit of time.
    fn pass(&mut self) {
        self.now += 1;
        for (to, host, message) in self.underway.remove(&self.now).unwrap_or_default() {
            let Some(group) = self.groups.get_mut(&to) else { continue };
            if group.works() && group.alive[(host % HOSTS) as usize] {
                group.ring.handle(message);
            }
        }
        let mut groups = std::mem::take(&mut self.groups);
        for group in groups.values_mut().filter(|group| group.works()) {
            group.ring.tick();
            self.deliver(group);
        }
        self.groups = groups;
    }

    fn deliver(&mut self, group: &mut Group) {
        let output = group.ring.take();
        for envelope in output.envelopes {
            self.report.messages += 1;
            if self.loss_permille > 0 && self.chance.permille(self.loss_permille) {
                continue;
            }
            let arrives = self.now + 1 + self.chance.below(DELAY_MAX);
            self.underway.entry(arrives).or_default().push((envelope.to, envelope.host, envelope.message));
        }
        for found in output.found {
            let Some(id) = group.asked.remove(&found.ask) else { continue };
            match found.entry {
                Some(entry) => {
                    self.report.answered += 1;
                    self.hops.push(found.hops);
                    self.told.push((id, entry.group));
                }
                None => self.report.unanswered += 1,
            }
        }
    }
}
