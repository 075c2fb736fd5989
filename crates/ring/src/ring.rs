//! The place of one group in the ring: what it knows of the others, and what it says to them.

use crate::{Id, id::BITS};
use std::collections::{BTreeMap, VecDeque};

/// How many groups behind it each group knows.
pub const SUCCESSORS: usize = 3;
/// A question that has gone through more groups than this goes round in circles, while the ring changes.
const HOPS_MAX: u32 = 256;
/// Groups that were given up and that are asked now and then whether they are back.
const LOST_MAX: usize = 16;
/// Questions that one group has open.
const ASKS_MAX: usize = 4096;

/// A group of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub id: Id,
    /// Its number.
    pub group: u64,
    /// The hosts of its replicas: whichever is asked knows which of them leads.
    pub hosts: Vec<u64>,
}

/// What one group says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Whoever is responsible for this place is to be found.
    Find {
        /// The place.
        id: Id,
        /// Who asks, and the number that the answer has to have.
        asker: Entry,
        /// Its number.
        ask: u64,
        /// Through how many groups it went.
        hops: u32,
    },
    /// A question has arrived and is taken care of.
    Passed {
        /// Who asked.
        asker: u64,
        /// The question's number.
        ask: u64,
    },
    /// The answer.
    Found {
        /// The question's number.
        ask: u64,
        /// Who is responsible.
        entry: Entry,
        /// Through how many groups the question went.
        hops: u32,
    },
    /// The sender takes the receiver for its successor.
    Ping(Entry),
    /// The answer: who is in front of the receiver, and who is behind it.
    Pong {
        /// The receiver.
        entry: Entry,
        /// In front of it, as far as it knows.
        predecessor: Option<Entry>,
        /// Behind it.
        successors: Vec<Entry>,
    },
    /// The sender leaves, and says who was around it.
    Leaving {
        /// The sender.
        entry: Entry,
        /// In front of it.
        predecessor: Option<Entry>,
        /// Behind it.
        successors: Vec<Entry>,
    },
}

/// A message that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The group.
    pub to: u64,
    /// The host of one of its replicas.
    pub host: u64,
    /// What is said.
    pub message: Message,
}

/// The number of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask(u64);

/// The answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which one.
    pub ask: Ask,
    /// Who is responsible; nothing if nobody answered.
    pub entry: Option<Entry>,
    /// Through how many groups the question went.
    pub hops: u32,
}

/// What is to be done for a ring.
#[derive(Default)]
pub struct Output {
    /// To be sent, in this order.
    pub envelopes: Vec<Envelope>,
    /// What became of lookups.
    pub found: Vec<Found>,
}

/// In units of time, as those of the groups: an election timeout has ten to twenty.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Between two looks at the successor.
    pub heartbeat_ticks: u32,
    /// Between two looks at a finger.
    pub finger_ticks: u32,
    /// A message that was not answered so long is sent to another host.
    pub again_ticks: u32,
    /// A group that has not answered so long is given up: twice the longest election timeout.
    pub give_up_ticks: u32,
    /// Between two looks whether one that was given up is back.
    pub lost_ticks: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { heartbeat_ticks: 4, finger_ticks: 4, again_ticks: 8, give_up_ticks: 40, lost_ticks: 50 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Lookup,
    Join,
    Finger(usize),
}

struct Asked {
    id: Id,
    purpose: Purpose,
    ticks: u32,
    /// For how long it is tried.
    left_ticks: u32,
}

/// A question that was passed on and is not yet known to have arrived.
struct Passing {
    to: Entry,
    id: Id,
    asker: Entry,
    ask: u64,
    hops: u32,
    ticks: u32,
    tries: usize,
}

/// The place of one group in the ring.
pub struct Ring {
    own: Entry,
    options: Options,
    predecessor: Option<Entry>,
    predecessor_silent: u32,
    successors: Vec<Entry>,
    successor_silent: u32,
    fingers: BTreeMap<usize, Entry>,
    next_finger: usize,
    /// Whom a group that is alone asks.
    known: Vec<Entry>,
    lost: VecDeque<Entry>,
    asked: BTreeMap<u64, Asked>,
    passing: Vec<Passing>,
    next_ask: u64,
    age: u32,
    output: Output,
    has_left: bool,
}

impl Ring {
    /// A group that is alone, until it hears of others. `known` are some that may be there.
    pub fn new(own: Entry, known: Vec<Entry>, options: Options) -> Self {
        Self::resume(own, Vec::new(), known, options)
    }

    /// A group that goes on with the successors that it had: another replica leads it, or it was cut off.
    pub fn resume(own: Entry, successors: Vec<Entry>, known: Vec<Entry>, options: Options) -> Self {
        let known = known.into_iter().filter(|entry| entry.group != own.group).collect();
        Self {
            own,
            options,
            predecessor: None,
            predecessor_silent: 0,
            successors,
            successor_silent: 0,
            fingers: BTreeMap::new(),
            next_finger: BITS,
            known,
            lost: VecDeque::new(),
            asked: BTreeMap::new(),
            passing: Vec::new(),
            next_ask: 0,
            age: 0,
            output: Output::default(),
            has_left: false,
        }
    }

    /// This group.
    pub fn own(&self) -> &Entry {
        &self.own
    }

    /// The group in front of it, if it knows one.
    pub fn predecessor(&self) -> Option<&Entry> {
        self.predecessor.as_ref()
    }

    /// The groups behind it, the nearest first: what a group has to agree on, so that another replica can go on.
    pub fn successors(&self) -> &[Entry] {
        &self.successors
    }

    /// How many groups further on it knows.
    pub fn fingers(&self) -> usize {
        self.fingers.len()
    }

    /// Says which groups there may be besides: whoever knows nobody in the ring asks one of them.
    pub fn hear_of(&mut self, known: Vec<Entry>) {
        self.known = known.into_iter().filter(|entry| entry.group != self.own.group).collect();
    }

    /// Says that the hosts of this group have changed.
    pub fn set_hosts(&mut self, hosts: Vec<u64>) {
        self.own.hosts = hosts;
    }

    /// Has whoever is responsible for a place found.
    pub fn lookup(&mut self, id: Id) -> Ask {
        let ask = self.ask(id, Purpose::Lookup);
        Ask(ask)
    }

    /// Leaves, and says so: names of this group are its successor's from then on.
    pub fn leave(&mut self) {
        let (predecessor, successors) = (self.predecessor.clone(), self.successors.clone());
        let around: Vec<Entry> = successors.iter().chain(&predecessor).cloned().collect();
        for entry in around {
            let (own, predecessor, successors) = (self.own.clone(), predecessor.clone(), successors.clone());
            self.send(&entry, 0, Message::Leaving { entry: own, predecessor, successors });
        }
        self.has_left = true;
    }

    /// What is to be done.
    pub fn take(&mut self) -> Output {
        std::mem::take(&mut self.output)
    }

    /// Lets one unit of time pass.
    pub fn tick(&mut self) {
        if self.has_left {
            return;
        }
        self.age = self.age.wrapping_add(1);
        let options = self.options;
        self.predecessor_silent += 1;
        if self.predecessor_silent > options.give_up_ticks
            && let Some(lost) = self.predecessor.take()
        {
            self.lose(&lost);
        }
        if let Some(successor) = self.successors.first().cloned() {
            self.successor_silent += 1;
            if self.successor_silent > options.give_up_ticks {
                self.lose(&successor);
                self.successor_silent = 0;
            } else if self.age.is_multiple_of(options.heartbeat_ticks) {
                // One of its hosts may be gone: another one knows who leads now.
                let tries = (self.successor_silent / options.again_ticks) as usize;
                self.send(&successor, tries, Message::Ping(self.own.clone()));
            }
        } else if self.age.is_multiple_of(options.heartbeat_ticks) {
            self.look_for_others();
        }
        if self.age.is_multiple_of(options.finger_ticks) {
            self.refresh_finger();
        }
        if self.age.is_multiple_of(options.lost_ticks)
            && let Some(back) = self.lost.pop_front()
        {
            self.send(&back, self.age as usize, Message::Ping(self.own.clone()));
            // It is forgotten once it has answered.
            self.lost.push_back(back);
        }
        if self.age.is_multiple_of(options.lost_ticks) {
            // A ring that was cut in two is found out by whoever knows a group of the other one.
            self.look_for_others();
        }
        self.ask_again();
        self.pass_again();
    }

    /// Takes a message of another group.
    pub fn handle(&mut self, message: Message) {
        if self.has_left {
            return;
        }
        match message {
            Message::Find { id, asker, ask, hops } => {
                self.send(&asker.clone(), 0, Message::Passed { asker: asker.group, ask });
                self.find(id, asker, ask, hops);
            }
            Message::Passed { asker, ask } => {
                self.passing.retain(|passing| (passing.asker.group, passing.ask) != (asker, ask));
            }
            Message::Found { ask, entry, hops } => self.found(ask, entry, hops),
            Message::Ping(entry) => self.pinged(entry),
            Message::Pong { entry, predecessor, successors } => self.ponged(entry, predecessor, successors),
            Message::Leaving { entry, predecessor, successors } => {
                self.forget(entry.group);
                for known in successors.into_iter().chain(predecessor) {
                    self.consider(known);
                }
            }
        }
    }

    fn send(&mut self, to: &Entry, tries: usize, message: Message) {
        if to.group == self.own.group || to.hosts.is_empty() {
            return;
        }
        let host = to.hosts[tries % to.hosts.len()];
        self.output.envelopes.push(Envelope { to: to.group, host, message });
    }

    /// Asks a group that it was told of, or that it lost, who is behind this one.
    fn look_for_others(&mut self) {
        if self.asked.values().any(|asked| asked.purpose == Purpose::Join) {
            return;
        }
        let others: Vec<Entry> = self.known.iter().chain(&self.lost).chain(&self.predecessor).cloned().collect();
        if others.is_empty() {
            return;
        }
        let (at, id) = (self.next_ask as usize % others.len(), self.own.id.after(0));
        let ask = self.note(id, Purpose::Join);
        let asker = self.own.clone();
        self.send(&others[at], self.age as usize, Message::Find { id, asker, ask, hops: 1 });
    }

    fn note(&mut self, id: Id, purpose: Purpose) -> u64 {
        self.next_ask += 1;
        let left_ticks = 4 * self.options.give_up_ticks;
        self.asked.insert(self.next_ask, Asked { id, purpose, ticks: 0, left_ticks });
        if self.asked.len() > ASKS_MAX
            && let Some((oldest, asked)) = self.asked.pop_first()
            && asked.purpose == Purpose::Lookup
        {
            self.output.found.push(Found { ask: Ask(oldest), entry: None, hops: 0 });
        }
        self.next_ask
    }

    fn ask(&mut self, id: Id, purpose: Purpose) -> u64 {
        let ask = self.note(id, purpose);
        self.find(id, self.own.clone(), ask, 0);
        ask
    }

    /// Answers a question, or passes it to the group that is nearest in front of the place.
    fn find(&mut self, id: Id, asker: Entry, ask: u64, hops: u32) {
        let answer = match (self.successors.first(), &self.predecessor) {
            (None, _) => Some(self.own.clone()),
            (_, Some(predecessor)) if id.is_within(predecessor.id, self.own.id) => Some(self.own.clone()),
            (Some(successor), _) if id.is_within(self.own.id, successor.id) => Some(successor.clone()),
            _ => None,
        };
        if let Some(entry) = answer {
            if asker.group == self.own.group {
                self.found(ask, entry, hops);
            } else {
                self.send(&asker, 0, Message::Found { ask, entry, hops });
            }
            return;
        }
        if let Some(next) = self.nearest_before(id).filter(|_| hops < HOPS_MAX) {
            self.pass(Passing { to: next, id, asker, ask, hops, ticks: 0, tries: 0 });
        }
    }

    fn nearest_before(&self, id: Id) -> Option<Entry> {
        let known = self.fingers.values().chain(&self.successors);
        let between = known.filter(|entry| entry.id.is_between(self.own.id, id));
        // Of two places, the one further on is behind the other.
        let nearest = between.reduce(|a, b| if b.id.is_between(a.id, id) { b } else { a });
        nearest.cloned()
    }

    fn pass(&mut self, passing: Passing) {
        let Passing { to, id, asker, ask, hops, tries, .. } = &passing;
        let message = Message::Find { id: *id, asker: asker.clone(), ask: *ask, hops: hops + 1 };
        let (to, tries) = (to.clone(), *tries);
        self.send(&to, tries, message);
        // The asker hears that it has arrived; nobody else has to.
        if passing.asker.group == self.own.group {
            self.passing.push(passing);
        }
    }

    /// A question that nobody has taken is asked at another host, then through another group.
    fn pass_again(&mut self) {
        let again = self.options.again_ticks;
        let (mut late, mut rest) = (Vec::new(), Vec::new());
        for mut passing in self.passing.drain(..) {
            passing.ticks += 1;
            if passing.ticks >= again { late.push(passing) } else { rest.push(passing) }
        }
        self.passing = rest;
        for mut passing in late {
            if !self.asked.contains_key(&passing.ask) {
                continue;
            }
            (passing.ticks, passing.tries) = (0, passing.tries + 1);
            if passing.tries < passing.to.hosts.len() {
                self.pass(passing);
            } else {
                self.drop_finger(passing.to.group);
                self.find(passing.id, passing.asker, passing.ask, passing.hops);
            }
        }
    }

    /// A question that was not answered, whoever lost it, is asked anew.
    fn ask_again(&mut self) {
        let give_up = self.options.give_up_ticks;
        let mut late = Vec::new();
        for (ask, asked) in &mut self.asked {
            asked.ticks += 1;
            asked.left_ticks = asked.left_ticks.saturating_sub(1);
            if asked.ticks >= give_up || asked.left_ticks == 0 {
                asked.ticks = 0;
                late.push((*ask, asked.id, asked.purpose, asked.left_ticks == 0));
            }
        }
        for (ask, id, purpose, is_over) in late {
            self.passing.retain(|passing| passing.ask != ask || passing.asker.group != self.own.group);
            match purpose {
                Purpose::Lookup if !is_over => self.find(id, self.own.clone(), ask, 0),
                Purpose::Lookup => {
                    self.asked.remove(&ask);
                    self.output.found.push(Found { ask: Ask(ask), entry: None, hops: 0 });
                }
                Purpose::Finger(at) => {
                    self.asked.remove(&ask);
                    self.fingers.remove(&at);
                }
                Purpose::Join => drop(self.asked.remove(&ask)),
            }
        }
    }

    fn found(&mut self, ask: u64, entry: Entry, hops: u32) {
        let Some(asked) = self.asked.remove(&ask) else { return };
        self.passing.retain(|passing| passing.ask != ask || passing.asker.group != self.own.group);
        match asked.purpose {
            Purpose::Lookup => self.output.found.push(Found { ask: Ask(ask), entry: Some(entry), hops }),
            Purpose::Join => self.consider(entry),
            Purpose::Finger(at) if entry.group == self.own.group => drop(self.fingers.remove(&at)),
            Purpose::Finger(at) => drop(self.fingers.insert(at, entry)),
        }
    }

    /// Looks at one finger, the near ones first: with them the far ones are found in few steps. Those that lead no further than the
    /// successor are not needed.
    fn refresh_finger(&mut self) {
        let Some(successor) = self.successors.first() else {
            self.fingers.clear();
            return;
        };
        if self.next_finger >= BITS {
            let leads_on = |at: &usize| !self.own.id.after(*at).is_within(self.own.id, successor.id);
            self.next_finger = (0..BITS).find(leads_on).unwrap_or(BITS);
            self.fingers.retain(|at, _| *at >= self.next_finger);
        }
        let at = self.next_finger;
        if at < BITS {
            self.next_finger += 1;
            self.ask(self.own.id.after(at), Purpose::Finger(at));
        }
    }

    /// A group that may belong behind this one.
    fn consider(&mut self, entry: Entry) {
        if entry.group == self.own.group || self.successors.iter().any(|known| known.group == entry.group) {
            return;
        }
        let is_nearer = match self.successors.first() {
            Some(successor) => entry.id.is_between(self.own.id, successor.id),
            None => true,
        };
        if is_nearer {
            self.successors.insert(0, entry);
            self.successors.truncate(SUCCESSORS);
            self.successor_silent = 0;
        }
    }

    fn pinged(&mut self, entry: Entry) {
        if entry.group == self.own.group {
            return;
        }
        self.lost.retain(|lost| lost.group != entry.group);
        let is_nearer = match &self.predecessor {
            Some(known) => known.group == entry.group || entry.id.is_between(known.id, self.own.id),
            None => true,
        };
        // Whoever is told of the old one finds the new one in front of it.
        let predecessor = self.predecessor.clone().filter(|known| known.group != entry.group);
        if is_nearer {
            self.predecessor = Some(entry.clone());
            self.predecessor_silent = 0;
        }
        let (own, successors) = (self.own.clone(), self.successors.clone());
        let front = if is_nearer { Some(entry.clone()) } else { predecessor };
        self.send(&entry, 0, Message::Pong { entry: own, predecessor: front, successors });
        self.consider(entry);
    }

    fn ponged(&mut self, entry: Entry, predecessor: Option<Entry>, successors: Vec<Entry>) {
        self.lost.retain(|lost| lost.group != entry.group);
        if self.successors.first().is_none_or(|known| known.group != entry.group) {
            // One that was given up is back.
            self.consider(entry);
            return;
        }
        self.successor_silent = 0;
        let mut known = vec![entry];
        let behind = successors.into_iter().filter(|behind| behind.group != self.own.group);
        for behind in behind {
            if known.len() < SUCCESSORS && known.iter().all(|before| before.group != behind.group) {
                known.push(behind);
            }
        }
        self.successors = known;
        if let Some(between) = predecessor {
            self.consider(between);
        }
    }

    fn drop_finger(&mut self, group: u64) {
        self.fingers.retain(|_, known| known.group != group);
    }

    fn forget(&mut self, group: u64) {
        self.drop_finger(group);
        if self.successors.first().is_some_and(|known| known.group == group) {
            self.successor_silent = 0;
        }
        self.successors.retain(|known| known.group != group);
        if self.predecessor.as_ref().is_some_and(|known| known.group == group) {
            self.predecessor = None;
        }
    }

    /// A group that does not answer is given up, and asked now and then whether it is back.
    fn lose(&mut self, entry: &Entry) {
        self.forget(entry.group);
        if self.lost.iter().all(|lost| lost.group != entry.group) {
            self.lost.push_back(entry.clone());
            if self.lost.len() > LOST_MAX {
                self.lost.pop_front();
            }
        }
    }
}
