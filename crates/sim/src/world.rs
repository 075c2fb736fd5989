//! The hosts of a group, the faults, and the checks after each step.

mod recovery;

use crate::{
    Chance,
    disk::Disk,
    invariants::{Acknowledged, Agreement, Election, Matching, Reads},
    network::Network,
};
use millrace_group::{
    Action, Beat, Completed, Durability, Engine, Limits, Member, Options, Placement, Proposal, Replica, Role, Turn,
    Unflushed, Without, Write, Written,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const TOPIC: &str = "t";
/// How long faults occur, and how long the group then has to recover.
const FAULTS_MS: u64 = 8_000;
const HEALED_MS: u64 = 8_000;
/// Hosts tick about so often.
const TICK_MS: u64 = 15;
/// The prefix of messages of hosts about a group at rest; no message of a replica begins with it.
const BEAT: u8 = 0xFF;
const WAKE: u8 = 0xFE;

/// A deliberate defect that the simulation must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Messages that have to wait for the disk are sent at once.
    AnswersBeforeDisk,
    /// Term and vote are not kept.
    ForgetsVotes,
    /// It is not kept how far entries are committed, changes of the replicas among them.
    ForgetsCommits,
    /// More of the log is trimmed than may go.
    TrimsTooMuch,
    /// A turn that the disk took in part is written again as a whole.
    WritesAgain,
}

/// The settings of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// How many hosts.
    pub hosts: u64,
    /// The group begins with one host, and the others are added.
    pub grows: bool,
    /// Logs are trimmed after a few records already, and hosts are away for longer.
    pub trims: bool,
    /// The number of hosts that are to vote changes.
    pub resizes: bool,
    /// Nothing is published for seconds at a time, so that the group rests.
    pub rests: bool,
    /// The hosts that are to keep the group change, and each host hears of that later or earlier.
    pub moves: bool,
    /// The topic is removed and made again.
    pub removes: bool,
    /// Programs read, and publish records again with their keys, while the lead is transferred, messages come very late and hosts are
    /// back at once after a crash.
    pub reads: bool,
    /// Disks refuse writes for a while, also between two batches of one turn.
    pub refuses: bool,
    /// A host is put back to an older copy of its disk: nothing acknowledged may be lost unless a host stops and says so.
    pub rolls_back: bool,
    /// In the end all hosts but one are lost, and that one goes on.
    pub recovers: bool,
    /// How many records the topic keeps.
    pub history: u64,
    /// A mistake.
    pub defect: Option<Defect>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            hosts: 3,
            grows: false,
            trims: false,
            resizes: false,
            rests: false,
            moves: false,
            removes: false,
            reads: false,
            refuses: false,
            rolls_back: false,
            recovers: false,
            history: 1 << 20,
            defect: None,
        }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Follows from everything that happened.
    pub digest: u64,
    /// Records that were acknowledged.
    pub acknowledged: usize,
    /// Terms that had a leader.
    pub terms: usize,
    /// How often a host died.
    pub crashes: u64,
    /// How often a host went on behind a snapshot of another one.
    pub received: u64,
    /// How much of what was written on all disks was trimmed in the end.
    pub trimmed: usize,
    /// How many times a leader began to rest.
    pub rests: u64,
    /// How many topics had the name, as far as a host has shown their records.
    pub topics: usize,
    /// How many reads were answered.
    pub reads: usize,
    /// How many writes the disks refused.
    pub refused: u64,
    /// Whether a host was put back to an older copy.
    pub rolled_back: bool,
    /// How many hosts stopped.
    pub stopped: usize,
    /// Whether acknowledged records were lost.
    pub lost: bool,
}

struct Host {
    id: u64,
    replica: Option<Replica>,
    disk: Disk,
    boot: u64,
    /// Turns that wait for a flush, in order; the first `flushing` of them for the one that is under way.
    held: Vec<Unflushed>,
    flushing: usize,
    /// Entries that nobody else can know of, and how long the disk was behind each: they are neither on disk nor sent.
    unknown: VecDeque<(usize, Proposal)>,
    /// When the flush that is under way ends, and what it makes safe.
    flush: Option<(u64, usize)>,
    next_tick_ms: u64,
    /// Its clock runs so fast, in thousandths.
    pace_permille: u64,
    back_ms: u64,
    /// Records published here and not settled, by the number of the command.
    published: BTreeMap<u64, Vec<u8>>,
    /// The last record that it has shown, of the topic that was born so.
    shown: (u64, u64),
    received: u64,
    ticks: u64,
    is_resting: bool,
    /// Which of the placements it has heard of.
    placement: usize,
    /// The turn that its disk has refused, and how far it is written.
    refused: Option<(Turn, Written)>,
    /// Reads that wait here, and the newest record that each has to show at least.
    reads: BTreeMap<u64, u64>,
    /// Why it has stopped for good.
    stopped: Option<String>,
}

struct World {
    setting: Setting,
    chance: Chance,
    now_ms: u64,
    network: Network,
    hosts: Vec<Host>,
    written: u64,
    digest: u64,
    crashes: u64,
    rests: u64,
    placements: Vec<Placement>,
    election: Election,
    matching: Matching,
    agreement: Agreement,
    acknowledged: Acknowledged,
    /// The newest topic that a host has shown.
    born: u64,
    reads: Reads,
    /// Records that were published with a key, which is the record itself.
    keyed: Vec<Vec<u8>>,
    refused: u64,
    /// A copy of the disk of a host.
    copy: Option<(usize, Disk)>,
    rolled_back: bool,
    /// What was lost because a host was put back to the copy.
    lost: Option<String>,
}

/// Simulates a cluster.
///
/// # Errors
///
/// An invariant was violated: what was seen, and when.
pub fn run(seed: u64, setting: Setting) -> Result<Report, String> {
    let mut world = World::new(seed, setting);
    let outcome = world.go();
    outcome.map_err(|what| format!("seed {seed}, {} ms: {what}", world.now_ms))
}

impl World {
    fn new(seed: u64, setting: Setting) -> Self {
        let mut chance = Chance::new(seed);
        let network = Network::new(chance.below(100), 1 + chance.below(60)).with_late(late_permille(setting));
        let mut world = Self {
            setting,
            chance,
            now_ms: 0,
            network,
            hosts: Vec::new(),
            written: 0,
            digest: 0,
            crashes: 0,
            rests: 0,
            placements: vec![placed((1..=setting.hosts).collect())],
            election: Election::default(),
            matching: Matching::default(),
            agreement: Agreement::with_gaps(setting.removes || setting.history != Self::default_history()),
            acknowledged: Acknowledged::default(),
            born: 0,
            reads: Reads::default(),
            keyed: Vec::new(),
            refused: 0,
            copy: None,
            rolled_back: false,
            lost: None,
        };
        for id in 1..=setting.hosts {
            let host = world.new_host(id);
            world.hosts.push(host);
        }
        world
    }

    fn new_host(&mut self, id: u64) -> Host {
        Host {
            id,
            replica: None,
            disk: Disk::default(),
            boot: 0,
            held: Vec::new(),
            flushing: 0,
            unknown: VecDeque::new(),
            flush: None,
            next_tick_ms: 0,
            pace_permille: 800 + self.chance.below(400),
            back_ms: 0,
            published: BTreeMap::new(),
            shown: (0, 0),
            received: 0,
            ticks: 0,
            is_resting: false,
            placement: 0,
            refused: None,
            reads: BTreeMap::new(),
            stopped: None,
        }
    }

    fn go(&mut self) -> Result<Report, String> {
        while self.now_ms < FAULTS_MS {
            self.disturb();
            self.place_anew();
            self.remove();
            self.publish();
            self.read();
            self.roll_back();
            self.pass()?;
        }
        if self.setting.recovers {
            return self.recover();
        }
        self.network.heal();
        let newest = self.placements.len() - 1;
        for host in &mut self.hosts {
            (host.back_ms, host.placement) = (0, newest);
        }
        self.tell_placements();
        let before = self.acknowledged.count();
        while self.now_ms < FAULTS_MS + HEALED_MS {
            self.publish();
            self.read();
            self.pass()?;
        }
        if self.rolled_back {
            return self.end_of_rollback();
        }
        if self.acknowledged.count() < before + 10 {
            return Err(format!("after healing, {} records were acknowledged", self.acknowledged.count() - before));
        }
        // Nothing new comes, so that all can be level.
        for _ in 0..2_000 {
            self.pass()?;
        }
        let newest = &self.placements[newest];
        for host in self.hosts.iter().filter(|host| !self.setting.moves || newest.has(host.id)) {
            let (born, shown) = host.shown;
            if born < self.born || shown < self.agreement.count(self.born) {
                let count = self.agreement.count(self.born);
                return Err(format!("host {} has {shown} of {count} records of topic {} ({born})", host.id, self.born));
            }
            if !host.published.is_empty() {
                return Err(format!("host {} has {} records that are not settled", host.id, host.published.len()));
            }
            if !host.reads.is_empty() {
                return Err(format!("host {} has {} reads that are not answered", host.id, host.reads.len()));
            }
        }
        if self.setting.moves {
            self.check_placed(newest)?;
        }
        self.acknowledged.check(&self.agreement)?;
        Ok(self.report())
    }

    /// After a host was put back to an older copy, the others may lose what it had acknowledged, but then a host says so.
    fn end_of_rollback(&mut self) -> Result<Report, String> {
        if let Err(what) = self.acknowledged.check(&self.agreement) {
            self.lost.get_or_insert(what);
        }
        match &self.lost {
            Some(what) if self.hosts.iter().all(|host| host.stopped.is_none()) => {
                Err(format!("no host says that it was put back, or finds records missing: {what}"))
            }
            _ => Ok(self.report()),
        }
    }

    fn report(&self) -> Report {
        Report {
            digest: self.digest,
            acknowledged: self.acknowledged.count(),
            terms: self.election.terms(),
            crashes: self.crashes,
            received: self.hosts.iter().map(|host| host.received).sum(),
            rests: self.rests,
            trimmed: self.hosts.iter().map(|host| host.disk.trimmed()).sum(),
            topics: self.agreement.topics(),
            reads: self.reads.answered(),
            refused: self.refused,
            rolled_back: self.rolled_back,
            stopped: self.hosts.iter().filter(|host| host.stopped.is_some()).count(),
            lost: self.lost.is_some(),
        }
    }

    fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    }

    /// Something goes wrong, from time to time.
    fn disturb(&mut self) {
        if self.chance.permille(if self.setting.reads { 6 } else { 3 }) {
            let at = self.chance.below(self.hosts.len() as u64) as usize;
            self.crash(at);
        }
        if self.chance.permille(3) {
            let hosts = self.hosts.len() as u64;
            let (from, to) = (1 + self.chance.below(hosts), 1 + self.chance.below(hosts));
            self.network.cut((from, to));
            if self.chance.permille(500) {
                self.network.cut((to, from));
            }
        }
        if self.chance.permille(4) {
            let (faults, delay) = (self.chance.below(100), 1 + self.chance.below(60));
            self.network.heal();
            (self.network.faults_permille, self.network.delay_max_ms) = (faults, delay);
            self.network.late_permille = late_permille(self.setting);
        }
        if self.setting.reads && self.chance.permille(3) {
            let hosts = self.hosts.len() as u64;
            let (at, to) = (self.chance.below(hosts) as usize, 1 + self.chance.below(hosts));
            if let Some(replica) = &mut self.hosts[at].replica {
                replica.transfer(to);
            }
        }
    }

    /// A program reads, through any host.
    fn read(&mut self) {
        if !self.setting.reads || !self.chance.permille(60) {
            return;
        }
        let (at, least) = (self.chance.below(self.hosts.len() as u64) as usize, self.reads.begins());
        let host = &mut self.hosts[at];
        if let Some(replica) = &mut host.replica {
            host.reads.insert(replica.read(), least);
        }
    }

    /// Somebody copies the disk of a host, and puts the host back to the copy later.
    fn roll_back(&mut self) {
        if !self.setting.rolls_back || self.rolled_back {
            return;
        }
        match self.copy.take() {
            None if self.chance.permille(2) => {
                let at = self.chance.below(self.hosts.len() as u64) as usize;
                self.copy = Some((at, self.hosts[at].disk.copied()));
            }
            Some((at, disk)) if self.chance.permille(1) => {
                self.crash(at);
                self.hosts[at].disk = disk;
                self.rolled_back = true;
            }
            copy => self.copy = copy,
        }
    }

    /// Somebody removes the topic; it is made again by the next that publishes.
    fn remove(&mut self) {
        if !self.setting.removes || !self.chance.permille(2) {
            return;
        }
        let at = self.chance.below(self.hosts.len() as u64) as usize;
        if let Some(replica) = &mut self.hosts[at].replica {
            // Refused or lost, the topic stays.
            let _ = replica.submit(Action::Remove { topic: TOPIC.into(), horizon: 0 }, &[], Durability::Quorum);
        }
    }

    /// The hosts that are to keep the group change.
    fn place_anew(&mut self) {
        if !self.setting.moves {
            return;
        }
        if self.chance.permille(2) {
            let mut ids: Vec<u64> = (1..=self.setting.hosts).collect();
            let count = [1, 3, 3, 5][self.chance.below(4) as usize];
            while ids.len() > count {
                ids.remove(self.chance.below(ids.len() as u64) as usize);
            }
            self.placements.push(placed(ids));
        }
        if self.chance.permille(10) {
            let (at, newest) = (self.chance.below(self.hosts.len() as u64) as usize, self.placements.len() - 1);
            self.hosts[at].placement = newest;
            self.tell_placements();
        }
    }

    fn tell_placements(&mut self) {
        for host in self.hosts.iter_mut().filter(|_| self.setting.moves) {
            if let Some(replica) = &mut host.replica {
                replica.set_placement(self.placements[host.placement].clone());
            }
        }
    }

    /// In the end those vote who are to.
    fn check_placed(&self, placement: &Placement) -> Result<(), String> {
        for replica in self.hosts.iter().filter_map(|host| host.replica.as_ref()) {
            if replica.role() == Role::Leader {
                let voters: BTreeSet<u64> = replica.replicas().0.into_iter().collect();
                if voters != placement.voters {
                    return Err(format!("{voters:?} vote, and {:?} are to", placement.voters));
                }
            }
        }
        Ok(())
    }

    fn crash(&mut self, at: usize) {
        let away_max_ms = if self.setting.trims { 4000 } else { 1500 };
        let is_quick = self.setting.reads && self.chance.permille(700);
        let back_ms =
            self.now_ms + if is_quick { 1 + self.chance.below(15) } else { 50 + self.chance.below(away_max_ms) };
        let host = &mut self.hosts[at];
        if host.replica.take().is_none() {
            return;
        }
        host.disk.crash(&mut self.chance);
        host.held.clear();
        host.unknown.clear();
        (host.flush, host.flushing, host.back_ms, host.shown) = (None, 0, back_ms, (0, 0));
        host.refused = None;
        // Who published or read through it never hears; what was published may be there or not.
        host.published.clear();
        host.reads.clear();
        self.crashes += 1;
        self.note(at as u64 ^ 0xDEAD);
    }

    fn start(&mut self, at: usize) -> Result<(), String> {
        let founders: Vec<u64> = (1..=if self.setting.grows { 1 } else { self.setting.hosts }).collect();
        let seed = self.chance.draw();
        let short = Limits { trail_bytes: 800, spare_bytes: 2_000, ..Limits::default() };
        let limits = if self.setting.trims { short } else { Limits::default() };
        let host = &mut self.hosts[at];
        host.boot += 1;
        let recovered = host.disk.recover(founders.clone()).map_err(|error| error.to_string())?;
        let options = Options { id: host.id, boot: host.boot, founders, seed, voters_max: 5, limits };
        host.replica = Some(Replica::new(options, recovered, Box::new(Without)).map_err(|error| error.to_string())?);
        host.is_resting = false;
        host.next_tick_ms = self.now_ms;
        self.tell_placements();
        Ok(())
    }

    fn publish(&mut self) {
        let is_quiet = self.setting.rests && !(self.now_ms / 1_500).is_multiple_of(3);
        if is_quiet || !self.chance.permille(60) {
            return;
        }
        let at = self.chance.below(self.hosts.len() as u64) as usize;
        self.written += 1;
        let mut record = format!("record {}", self.written).into_bytes();
        let host = &mut self.hosts[at];
        let Some(replica) = &mut host.replica else { return };
        if self.setting.grows && replica.role() == Role::Leader {
            let (voters, learners) = replica.replicas();
            let absent = (1..=self.setting.hosts).find(|id| !voters.contains(id) && !learners.contains(id));
            // Refused, it is tried again.
            let _ = absent.map(|id| replica.add(&Member { id, ..Member::default() }));
        }
        if self.setting.resizes && self.chance.permille(30) {
            let count = [1, 3, 5][self.chance.below(3) as usize];
            let _ = replica.submit(Action::Voters { count }, &[], Durability::Quorum);
        }
        let known = replica.topics().topic(TOPIC).is_ok();
        if !known {
            // The first replica creates the topic.
            let (topic, history, durability) = (TOPIC.into(), self.setting.history, Durability::Quorum);
            let create = match replica.topics().horizon() {
                0 => Action::Create { topic, history, durability },
                _ => Action::CreateAt { topic, history, durability, engine: Engine::Builtin, born: 0 },
            };
            let _ = replica.submit(create, &[], durability);
        } else {
            let mut key = None;
            if self.setting.reads && self.chance.permille(300) {
                let known = self.chance.below(2 * self.keyed.len() as u64 + 1) as usize;
                match self.keyed.get(known) {
                    Some(again) => record = again.clone(),
                    None => self.keyed.push(record.clone()),
                }
                key = String::from_utf8(record.clone()).ok();
            }
            let action = Action::Publish { topic: TOPIC.into(), key };
            if let Ok(serial) = replica.submit(action, &record, Durability::Quorum) {
                host.published.insert(serial, record);
            }
        }
    }

    /// One millisecond.
    fn pass(&mut self) -> Result<(), String> {
        self.now_ms += 1;
        let mut busy = BTreeSet::new();
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            if host.replica.is_none() && host.back_ms <= self.now_ms && host.stopped.is_none() {
                self.start(at)?;
            }
            let now_ms = self.now_ms;
            let jitter = self.chance.below(4);
            let host = &mut self.hosts[at];
            let is_due = host.next_tick_ms <= now_ms;
            if let Some(replica) = host.replica.as_mut().filter(|_| is_due) {
                replica.tick();
                host.next_tick_ms = now_ms + (TICK_MS * 1000 / host.pace_permille) + jitter;
                host.ticks += 1;
                busy.insert(at);
            }
            let beats = is_due && host.ticks.is_multiple_of(2);
            if host.flush.is_some_and(|(ends_ms, _)| ends_ms <= now_ms) {
                self.flushed(at)?;
                busy.insert(at);
            }
            let host = &self.hosts[at];
            if host.published.len() > host.flushing || host.refused.is_some() || !host.reads.is_empty() {
                busy.insert(at);
            }
            if beats {
                self.beat(at);
            }
        }
        for ((from, to), message) in self.network.arrived(self.now_ms) {
            self.note(from << 32 ^ to << 16 ^ message.len() as u64);
            let at = to as usize - 1;
            self.arrived(at, from, &message);
            busy.insert(at);
        }
        busy.into_iter().try_for_each(|at| self.decide(at))
    }

    /// A host's message about a group at rest.
    fn beat(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let Some(replica) = &host.replica else { return };
        let beat = replica.beat();
        self.rests += u64::from(beat.is_some() && !host.is_resting);
        host.is_resting = beat.is_some();
        let Some(Beat { term, commit }) = beat else { return };
        let bytes = [&[BEAT][..], &term.to_le_bytes(), &commit.to_le_bytes()].concat();
        let ((voters, learners), id) = (replica.replicas(), host.id);
        for to in voters.into_iter().chain(learners).filter(|to| *to != id) {
            self.network.send(self.now_ms, (id, to), bytes.clone(), &mut self.chance);
        }
    }

    fn arrived(&mut self, at: usize, from: u64, message: &[u8]) {
        let id = self.hosts[at].id;
        let Some(replica) = &mut self.hosts[at].replica else { return };
        let word = |at: usize| {
            message.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
        };
        match message.first() {
            Some(&BEAT) => {
                if !replica.hears(from, Beat { term: word(1), commit: word(9) }) {
                    self.network.send(self.now_ms, (id, from), vec![WAKE], &mut self.chance);
                }
            }
            Some(&WAKE) => replica.wake(),
            _ => {
                replica.step(message);
                let Some(stopped) = replica.stopped().cloned() else { return };
                assert!(self.rolled_back, "no replica here forgets what it acknowledged: {stopped}");
                self.crash(at);
                self.hosts[at].stopped = Some(stopped.to_string());
            }
        }
    }

    fn send(&mut self, from: u64, messages: Vec<millrace_group::Envelope>) {
        for message in messages {
            self.network.send(self.now_ms, (from, message.to), message.bytes, &mut self.chance);
        }
    }

    fn flushed(&mut self, at: usize) -> Result<(), String> {
        let host = &mut self.hosts[at];
        let Some((_, upto)) = host.flush.take() else { return Ok(()) };
        host.disk.flushed(upto);
        while let Some((_, entry)) = host.unknown.pop_front_if(|(end, _)| *end <= upto) {
            let matches = self.matching.wrote(&entry);
            note_loss(self.rolled_back, &mut self.lost, matches)?;
        }
        let done: Vec<Unflushed> = host.held.drain(..host.flushing).collect();
        host.flushing = 0;
        let (id, mut messages) = (host.id, Vec::new());
        if let Some(replica) = &mut host.replica {
            done.into_iter().for_each(|held| messages.extend(replica.flushed(held).messages));
        }
        self.send(id, messages);
        Ok(())
    }

    /// Does what a replica wants done.
    fn decide(&mut self, at: usize) -> Result<(), String> {
        let defect = self.setting.defect;
        loop {
            let host = &mut self.hosts[at];
            let Some(replica) = &mut host.replica else { return Ok(()) };
            if replica.role() == Role::Leader {
                let led = self.election.leads(replica.term(), host.id);
                // After a host was put back, a second leader may lead while nobody has anything of the first one.
                led.or_else(|what| if self.rolled_back { Ok(()) } else { Err(what) })?;
            }
            let (turn, mut written, now) = match host.refused.take() {
                Some((turn, written)) => (turn, written, Vec::new()),
                None => {
                    let before = replica.received();
                    let Some(mut turn) = replica.take() else { break };
                    host.received += replica.received() - before;
                    let mut now = std::mem::take(&mut turn.before_disk);
                    if defect == Some(Defect::AnswersBeforeDisk) {
                        now.append(&mut turn.after_disk);
                    }
                    self.settle(at, &mut turn)?;
                    (turn, Written::default(), now)
                }
            };
            let is_known = !now.is_empty();
            self.send(at as u64 + 1, now);
            let (host, chance, refused) = (&mut self.hosts[at], &mut self.chance, &mut self.refused);
            let is_hard = self.setting.refuses && self.now_ms < FAULTS_MS;
            let refuses = || {
                let refuses = is_hard && chance.permille(100);
                *refused += u64::from(refuses);
                refuses
            };
            let entries = turn.writes.iter().filter_map(|write| match write {
                Write::Entry(entry) => Some(entry.clone()),
                _ => None,
            });
            let entries: Vec<Proposal> = entries.collect();
            if host.disk.write(&turn, defect, &mut written, refuses).is_err() {
                host.refused = Some((turn, written));
                break;
            }
            let Some(replica) = &mut host.replica else { return Ok(()) };
            let held = replica.wrote(turn, written.places());
            host.held.push(held);
            let end = host.disk.length();
            host.unknown.extend(entries.into_iter().map(|entry| (end, entry)));
            if is_known {
                let known = host.unknown.drain(..).try_for_each(|(_, entry)| self.matching.wrote(&entry));
                note_loss(self.rolled_back, &mut self.lost, known)?;
            }
            self.show(at)?;
        }
        let wait_ms = self.chance.below(25);
        let host = &mut self.hosts[at];
        if host.flush.is_none() && !host.held.is_empty() {
            (host.flush, host.flushing) = (Some((self.now_ms + wait_ms, host.disk.length())), host.held.len());
        }
        Ok(())
    }

    /// Publishers and readers hear what a turn has for them.
    fn settle(&mut self, at: usize, turn: &mut Turn) -> Result<(), String> {
        let host = &mut self.hosts[at];
        for Completed { serial, outcome } in std::mem::take(&mut turn.completed) {
            if let (Some(record), Ok(index)) = (host.published.remove(&serial), outcome) {
                self.reads.acknowledged(index);
                let reported = self.acknowledged.reported(record, index);
                note_loss(self.rolled_back, &mut self.lost, reported)?;
            }
        }
        let topics = host.replica.as_ref().map(Replica::topics);
        let newest = topics.and_then(|topics| topics.topic(TOPIC).ok()).map_or(0, |topic| topic.latest);
        for batch in std::mem::take(&mut turn.answered) {
            if let Some(least) = host.reads.remove(&batch) {
                let shown = self.reads.shows(host.id, least, newest);
                note_loss(self.rolled_back, &mut self.lost, shown)?;
            }
        }
        Ok(())
    }

    /// Looks at the records that a host shows and has not shown before.
    fn show(&mut self, at: usize) -> Result<(), String> {
        let host = &mut self.hosts[at];
        let Some(replica) = &host.replica else { return Ok(()) };
        let Ok(topic) = replica.topics().topic(TOPIC) else { return Ok(()) };
        let has_gaps = self.agreement.has_gaps();
        if host.shown.0 > topic.born {
            return Err(format!("host {} shows topic {} behind topic {}", host.id, topic.born, host.shown.0));
        }
        let mut shown = if host.shown.0 == topic.born { host.shown.1 } else { 0 };
        let before = shown;
        shown = shown.max(topic.earliest() - 1);
        if shown > before && !has_gaps {
            return Err(format!("host {} lacks records up to {shown}", host.id));
        }
        while shown < topic.latest {
            let index = shown + 1;
            let entry = topic.entry(TOPIC, index).map_err(|error| error.to_string())?;
            let place = replica.place(entry);
            if place.is_none() && host.received > 0 && has_gaps {
                // It left the topic elsewhere while this host was sent the snapshot.
                shown = index;
                continue;
            }
            let place = place.ok_or_else(|| format!("host {} does not know entry {entry}", host.id))?;
            let record = host.disk.record(place).map_err(|error| error.to_string())?;
            let agrees = self.agreement.shows(host.id, (topic.born, index), &record);
            note_loss(self.rolled_back, &mut self.lost, agrees)?;
            shown = index;
        }
        host.shown = (topic.born, shown);
        self.born = self.born.max(topic.born);
        Ok(())
    }

    fn default_history() -> u64 {
        Setting::default().history
    }
}

/// How many messages in a thousand take very long.
fn late_permille(setting: Setting) -> u64 {
    if setting.reads { 30 } else { 0 }
}

/// After a host was put back to an older copy, records may be lost; in the end it is checked that a host has said so.
fn note_loss(rolled_back: bool, lost: &mut Option<String>, checked: Result<(), String>) -> Result<(), String> {
    match checked {
        Err(what) if rolled_back => {
            lost.get_or_insert(what);
            Ok(())
        }
        checked => checked,
    }
}

/// These vote, and nobody else keeps the group.
fn placed(voters: Vec<u64>) -> Placement {
    Placement { voters: voters.into_iter().collect(), ..Placement::default() }
}
