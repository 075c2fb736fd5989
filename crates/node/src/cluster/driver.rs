//! The thread that drives the replicas of this host: it collects requests and messages, passes them to the replicas, writes the results of
//! all groups with one flush, and sends messages.

mod beats;
mod moved;

use super::{MAIN, MAIN_NAME, PATIENCE, Post, Reply, Shared, groups::Group, locked, shown};
use beats::Said;
use millrace_group::{
    Action, Beat, Completed, Durability, Envelope, Member, Place, Released, Replica, Role, Turn, Unflushed,
};
use millrace_journal::Position;
use millrace_wire::{Code, Error, Result};
use moved::{Heard, Moved};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// The maximum number of inputs that are collected before a step, and of their bytes.
const GATHER_MAX: usize = 256;
const GATHER_MAX_BYTES: usize = 4 << 20;
/// The pause after a write to a full disk.
const ROOM_PAUSE: Duration = Duration::from_millis(200);
/// Ticks between two attempts of a request that a group may have dropped.
const AGAIN_TICKS: u32 = 10;
/// The maximum number of subscriptions and feeds of hosts that have left which are ended at once.
const SWEEP_MAX: usize = 64;
/// Ticks between two messages about groups at rest, and the group that they are sent to: the host itself.
const BEAT_TICKS: u32 = 2;
pub(super) const HOST: u32 = 0;

/// The groups that this host should keep.
pub(super) enum Goal {
    Added(Member),
    Removed(u64),
    Led(u64),
}

impl Goal {
    /// Whether the change is complete.
    fn is_met(&self, shared: &Shared, replica: &Replica) -> bool {
        match self {
            Goal::Added(member) => self.has(replica, member.id),
            Goal::Removed(host) => !self.has(replica, *host) && self.holder(shared, *host).is_none(),
            Goal::Led(host) => replica.leader() == *host,
        }
    }

    /// Why the change can never complete.
    fn check(&self, replica: &Replica, group: &str) -> Result<()> {
        let (voters, _) = replica.replicas();
        match self {
            Goal::Removed(host) if voters == [*host] => Err(only_voter(*host, MAIN_NAME)),
            Goal::Led(host) if !voters.contains(host) => {
                let detail = format!("host {} is not a voter of group '{group}', so it cannot lead it", shown(*host));
                Err(Code::HostNotInCluster.error(detail))
            }
            _ => Ok(()),
        }
    }

    /// Why a host cannot leave yet: a group would be lost with it.
    fn check_groups(&self, shared: &Shared, main: &Replica) -> Result<()> {
        let Goal::Removed(host) = self else { return Ok(()) };
        for (name, spec) in main.topics().directory().groups().filter(|(_, spec)| spec.hosts.contains(host)) {
            if spec.hosts.len() == 1 {
                return Err(only_voter(*host, name));
            }
            let unknown = || Code::GroupUnavailable.error(format!("this host knows no leader of group '{name}'"));
            let group = shared.group(spec.id).ok_or_else(unknown)?;
            let group = locked(&group.replica);
            if group.leader() == 0 {
                return Err(unknown());
            }
            // Until the group has its new voters, it may need those that will be removed.
            let (voters, _) = group.replicas();
            if voters.len() != spec.hosts.len() || voters.iter().any(|voter| !spec.hosts.contains(voter)) {
                return Err(Code::GroupBusy.error(format!("the voters of group '{name}' are changing; try again")));
            }
            let others: Vec<u64> = voters.into_iter().filter(|voter| voter != host).collect();
            let answers = |other: &&u64| **other == shared.facts.host || shared.post.trouble(**other).is_none();
            let (all, answering) = (others.len(), others.iter().filter(answers).count());
            if 2 * answering <= all {
                let host = shown(*host);
                let detail =
                    format!("group '{name}' needs host {host}: {answering} of its {all} other voters can be reached");
                return Err(Code::GroupBusy.error(detail));
            }
        }
        Ok(())
    }

    /// A group that still has the host, as far as is known here: it may need its vote.
    fn holder(&self, shared: &Shared, host: u64) -> Option<Arc<Group>> {
        let own = shared.facts.host;
        // A replica that is no longer kept here is not notified.
        let hears = |group: &Arc<Group>| group.is_placed.load(Ordering::Relaxed) || host == own;
        let mut others = shared.kept().into_iter().filter(|group| group.id != MAIN && hears(group));
        others.find(|group| self.has(&locked(&group.replica), host))
    }

    /// The error if it does not complete in time; `undecided` unless more is known.
    fn late(&self, shared: &Shared, main: &Replica, undecided: Error) -> Error {
        let Goal::Removed(host) = self else { return undecided };
        match self.holder(shared, *host).filter(|_| !self.has(main, *host)) {
            Some(group) => Code::GroupBusy.error(format!(
                "host {} has left group 'main', but not yet group '{}': keep it running until `millrace cluster groups` no longer shows it",
                shown(*host),
                group.name
            )),
            None => self.check_groups(shared, main).err().unwrap_or(undecided),
        }
    }

    fn has(&self, replica: &Replica, host: u64) -> bool {
        keeps(replica, host)
    }

    /// Takes the next step of the change. Refused and lost requests are repeated.
    fn pursue(&self, shared: &Shared, replica: &mut Replica) {
        match self {
            Goal::Added(member) => drop(replica.add(member)),
            // The removed leader may not know of its removal, and would continue to lead.
            Goal::Removed(host) if !self.has(replica, *host) => {
                for group in shared.kept().into_iter().filter(|group| group.id != MAIN) {
                    let mut replica = locked(&group.replica);
                    let (voters, _) = replica.replicas();
                    let own = shared.facts.host;
                    let next = voters
                        .iter()
                        .find(|voter| **voter == own)
                        .or_else(|| voters.iter().find(|voter| *voter != host));
                    if let Some(next) = next.filter(|next| *next != host && replica.leader() == *host) {
                        replica.transfer(*next);
                    }
                }
            }
            // A leader that is to be removed first transfers leadership to another voter, if possible one that has caught up.
            Goal::Removed(host) if replica.leader() == *host => {
                let (voters, _) = replica.replicas();
                let others = voters.into_iter().filter(|voter| voter != host);
                if let Some(next) = others.max_by_key(|voter| replica.matched(*voter)) {
                    replica.transfer(next);
                }
            }
            Goal::Removed(host) => drop(replica.remove(*host)),
            Goal::Led(host) => replica.transfer(*host),
        }
    }
}

/// Requests and notifications for the driver.
pub(super) enum Input {
    Messages { group: u32, messages: Vec<Vec<u8>> },
    Unreachable(u64),
    Submit { group: u32, action: Action, data: Vec<u8>, durability: Durability, reply: Reply<u64> },
    Read { group: u32, reply: Reply<()> },
    Pursue { group: u32, goal: Goal, reply: Reply<()> },
    Stop,
}

impl Input {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Input::Messages { messages, .. } => {
                messages.iter().map(|message| message.len() + size_of::<Vec<u8>>()).sum()
            }
            Input::Submit { data, .. } => data.len(),
            _ => 0,
        }
    }

    /// Whether somebody waits for the outcome.
    fn is_asked_here(&self) -> bool {
        matches!(self, Input::Submit { .. } | Input::Read { .. } | Input::Pursue { .. })
    }

    pub(super) fn refuse(self, error: Error) {
        match self {
            Input::Submit { reply, .. } => reply(Err(error)),
            Input::Read { reply, .. } | Input::Pursue { reply, .. } => reply(Err(error)),
            Input::Messages { .. } | Input::Unreachable(_) | Input::Stop => {}
        }
    }
}

/// A waiter, and its deadline.
struct Waiting<T> {
    reply: Reply<T>,
    until: Instant,
}

impl<T> Waiting<T> {
    fn new(reply: Reply<T>) -> Self {
        Self { reply, until: Instant::now() + PATIENCE }
    }
}

/// A group and the requests that wait for it.
struct Running {
    group: Arc<Group>,
    submitted: HashMap<u64, Waiting<u64>>,
    reads: HashMap<u64, Vec<Waiting<()>>>,
    goals: Vec<(Goal, Waiting<()>)>,
    /// The command with the address of this host.
    announced: Option<u64>,
    /// The leader of the group at the last check, to detect a change.
    leader: u64,
    /// The number of hosts that had left the cluster, and the revision of the topics, at the last check that found no subscription or feed
    /// of a host that had left.
    swept: (usize, u64),
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    post: Arc<dyn Post>,
    tick: Duration,
    received: Receiver<Input>,
    groups: BTreeMap<u32, Running>,
    /// The groups that may have pending work.
    dirty: BTreeSet<u32>,
    ticks: u32,
    /// The hosts that are at another address than the group knows.
    moved: Moved,
}

/// Whether a host is a replica of a group.
fn keeps(replica: &Replica, host: u64) -> bool {
    let (voters, learners) = replica.replicas();
    voters.contains(&host) || learners.contains(&host)
}

/// A message with the address of this host.
pub(super) fn here(own: &Member) -> Vec<u8> {
    Said::Here { address: own.address.clone(), name: own.name.clone(), itself: true }.bytes(own.id)
}

fn only_voter(host: u64, group: &str) -> Error {
    Code::HostNotInCluster.error(format!(
        "host {} is the only voter of group '{group}', which would be lost with it; \
         `millrace cluster voters 3 --group {group}` adds voters",
        shown(host)
    ))
}

fn stopping() -> Error {
    Code::HostStopping.error("the host has left its groups")
}

impl Running {
    fn new(group: Arc<Group>) -> Self {
        let (submitted, reads, goals) = (HashMap::new(), HashMap::new(), Vec::new());
        Self { group, submitted, reads, goals, announced: None, leader: 0, swept: (0, 0) }
    }

    fn submit(&mut self, action: Action, data: &[u8], durability: Durability, reply: Reply<u64>) {
        let submitted = locked(&self.group.replica).submit(action, data, durability);
        match submitted {
            Ok(serial) => drop(self.submitted.insert(serial, Waiting::new(reply))),
            Err(error) => reply(Err(error)),
        }
    }

    fn pursue(&mut self, shared: &Shared, goal: Goal, reply: Reply<()>) {
        let begun = {
            let mut replica = locked(&self.group.replica);
            let checked = goal.check(&replica, &self.group.name).and_then(|()| goal.check_groups(shared, &replica));
            let may_pass = |error: &Error| matches!(error.code(), Code::GroupBusy | Code::GroupUnavailable);
            match checked {
                _ if goal.is_met(shared, &replica) => Some(Ok(())),
                Ok(()) => {
                    goal.pursue(shared, &mut replica);
                    None
                }
                // It is checked again until the timeout.
                Err(error) if may_pass(&error) => None,
                Err(error) => Some(Err(error)),
            }
        };
        match begun {
            // The callback may read the replica.
            Some(begun) => reply(begun),
            None => self.goals.push((goal, Waiting::new(reply))),
        }
    }

    /// Fails requests that took too long, and repeats those that the group may have dropped.
    fn look_again(&mut self, shared: &Shared) {
        let (now, member) = (Instant::now(), &shared.member);
        let late: Vec<u64> =
            self.submitted.iter().filter(|(_, waiting)| waiting.until <= now).map(|(serial, _)| *serial).collect();
        for serial in late {
            locked(&self.group.replica).forget(serial);
            if let Some(waiting) = self.submitted.remove(&serial) {
                (waiting.reply)(Err(shared.undecided(&self.group)));
            }
        }
        for (batch, waiting) in self.reads.extract_if(|_, waiting| waiting.iter().all(|waiting| waiting.until <= now)) {
            locked(&self.group.replica).forget_read(batch);
            waiting.into_iter().for_each(|waiting| (waiting.reply)(Err(shared.undecided(&self.group))));
        }
        for (goal, waiting) in std::mem::take(&mut self.goals) {
            // Not while the replica is locked.
            let undecided = (waiting.until <= now).then(|| shared.undecided(&self.group));
            let mut replica = locked(&self.group.replica);
            // It may have waited for other groups.
            let outcome = if goal.is_met(shared, &replica) {
                Some(Ok(()))
            } else {
                undecided.map(|undecided| Err(goal.late(shared, &replica, undecided)))
            };
            if outcome.is_none() && goal.check_groups(shared, &replica).is_ok() {
                goal.pursue(shared, &mut replica);
            }
            drop(replica);
            match outcome {
                Some(outcome) => (waiting.reply)(outcome),
                None => self.goals.push((goal, waiting)),
            }
        }
        let leads = locked(&self.group.replica).role() == Role::Leader;
        for command in self.group.objects.upkeep(leads) {
            self.submit(Action::Machine, &command, Durability::Quorum, Box::new(drop));
        }
        if leads {
            self.sweep(shared);
        }
        let mut replica = locked(&self.group.replica);
        let (leader, term) = (replica.leader(), replica.term());
        if leader != self.leader {
            self.leader = leader;
            let group = &*self.group.name;
            match leader {
                0 => tracing::info!(target: "topics", group, term, "the group has no leader"),
                host => {
                    tracing::info!(target: "topics", group, host = format_args!("{host:012x}"), term, "the group has another leader");
                }
            }
        }
        if self.group.id != MAIN {
            return;
        }
        // The others have to know the address of this host.
        let (voters, learners) = replica.replicas();
        let takes_part = voters.iter().chain(&learners).any(|id| *id == member.id);
        if takes_part
            && replica.leader() != 0
            && self.announced.is_none()
            && let Some(action) = shared.unsaid(replica.topics())
        {
            self.announced = replica.submit(action, &[], Durability::Quorum).ok();
        }
    }

    /// Ends the subscriptions and feeds of hosts that have left the cluster: they cannot do it themselves any more.
    fn sweep(&mut self, shared: &Shared) {
        let gone = locked(&shared.main.replica).topics().left().clone();
        let ends: Vec<Action> = {
            let replica = locked(&self.group.replica);
            let as_of = (gone.len(), replica.topics().revision());
            if gone.is_empty() || self.swept == as_of {
                return;
            }
            let ends: Vec<Action> = replica.topics().left_behind(&gone).take(SWEEP_MAX).collect();
            // A host may still be a replica of this group for a moment.
            let has_left = |host: &u64| replica.topics().left().contains(host) || !keeps(&replica, *host);
            if ends.is_empty() && gone.iter().all(has_left) {
                self.swept = as_of;
            }
            ends
        };
        // Refused or lost commands are submitted again.
        ends.into_iter().for_each(|end| self.submit(end, &[], Durability::Quorum, Box::new(drop)));
    }

    fn settle(&mut self, shared: &Shared, turn: &Turn) {
        for Completed { serial, outcome } in &turn.completed {
            if let Some(waiting) = self.submitted.remove(serial) {
                (waiting.reply)(outcome.clone());
            }
            self.announced.take_if(|announced| announced == serial);
        }
        self.stored(&turn.stored);
        for waiting in turn.answered.iter().filter_map(|batch| self.reads.remove(batch)).flatten() {
            (waiting.reply)(Ok(()));
        }
        for (goal, waiting) in std::mem::take(&mut self.goals) {
            let is_met = goal.is_met(shared, &locked(&self.group.replica));
            if is_met {
                (waiting.reply)(Ok(()));
            } else {
                self.goals.push((goal, waiting));
            }
        }
    }

    /// Replies to submitters that only wait until the leader has their commands on disk. The index of the record is not known yet.
    fn stored(&mut self, serials: &[u64]) {
        for waiting in serials.iter().filter_map(|serial| self.submitted.remove(serial)) {
            (waiting.reply)(Ok(0));
        }
    }

    fn end(&mut self, error: impl Fn() -> Error) {
        self.submitted.drain().for_each(|(_, waiting)| (waiting.reply)(Err(error())));
        self.reads.drain().flat_map(|(_, waiting)| waiting).for_each(|waiting| (waiting.reply)(Err(error())));
        self.goals.drain(..).for_each(|(_, waiting)| (waiting.reply)(Err(error())));
    }
}

impl Driver {
    pub fn new(shared: Arc<Shared>, post: Arc<dyn Post>, tick: Duration, received: Receiver<Input>) -> Self {
        let groups = [(MAIN, Running::new(shared.main.clone()))].into();
        let moved = Moved::new(shared.silence);
        Self { shared, post, tick, received, groups, dirty: [MAIN].into(), ticks: 0, moved }
    }

    /// Runs until the host stops, or the journal accepts no more writes.
    pub fn run(mut self) {
        let mut next_tick = Instant::now() + self.tick;
        while !self.shared.is_stopping() {
            match self.received.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(first) => self.gather(first),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_tick {
                // Missed ticks do not count as silence of the others.
                next_tick = Instant::now() + self.tick;
                self.tick();
            }
            if let Err(error) = self.decide() {
                tracing_note(&error);
                *locked(&self.shared.halted) = Some(error);
                break;
            }
        }
        let error = locked(&self.shared.halted).clone();
        let ended = || error.clone().unwrap_or_else(stopping);
        self.groups.values_mut().for_each(|running| running.end(ended));
        while let Ok(input) = self.received.try_recv() {
            input.refuse(ended());
        }
    }

    fn gather(&mut self, first: Input) {
        let (mut next, mut bytes) = (Some(first), 0);
        for _ in 0..GATHER_MAX {
            let Some(input) = next.take().or_else(|| self.received.try_recv().ok()) else { break };
            bytes += input.bytes();
            self.shared.queued.fetch_sub(input.bytes(), Ordering::Relaxed);
            self.take(input);
            if bytes > GATHER_MAX_BYTES {
                break;
            }
        }
    }

    /// A group with a replica on this host and pending work.
    fn running(&mut self, id: u32) -> Option<&mut Running> {
        if !self.groups.contains_key(&id) {
            self.groups.insert(id, Running::new(self.shared.group(id)?));
        }
        self.dirty.insert(id);
        self.groups.get_mut(&id)
    }

    fn take(&mut self, input: Input) {
        let absent = || Code::GroupNotFound.error("the group was removed");
        let shared = self.shared.clone();
        if input.is_asked_here()
            && let Some(error) = shared.removed()
        {
            return input.refuse(error);
        }
        match input {
            Input::Messages { group: HOST, messages } => messages.iter().for_each(|message| self.hear(message)),
            Input::Messages { group, messages } => {
                if let Some(running) = self.running(group) {
                    let mut replica = locked(&running.group.replica);
                    let from = messages.iter().fold(None, |from, message| replica.step(message).or(from));
                    drop(replica);
                    shared.heard(from);
                }
            }
            Input::Unreachable(host) => {
                self.groups.values().for_each(|running| locked(&running.group.replica).unreachable(host));
            }
            Input::Submit { group, action, data, durability, reply } => match self.running(group) {
                Some(running) => running.submit(action, &data, durability, reply),
                None => reply(Err(absent())),
            },
            Input::Read { group, reply } => match self.running(group) {
                Some(running) => {
                    let batch = locked(&running.group.replica).read();
                    running.reads.entry(batch).or_default().push(Waiting::new(reply));
                }
                None => reply(Err(absent())),
            },
            Input::Pursue { group, goal, reply } => match self.running(group) {
                Some(running) => running.pursue(&shared, goal, reply),
                None => reply(Err(absent())),
            },
            Input::Stop => {}
        }
    }

    /// Another host reports which groups at rest it leads, or which must not rest.
    fn hear(&mut self, message: &[u8]) {
        let said = Said::parse(message);
        // A host that announces its address may not receive messages of this one.
        let beats = said.as_ref().filter(|(_, said)| matches!(said, Said::Beats(_) | Said::Wake(_)));
        self.shared.heard(beats.map(|(host, _)| *host));
        match said {
            Some((host, Said::Beats(beats))) => {
                let others = |(group, beat): (u32, Beat)| {
                    let running = self.groups.get(&group)?;
                    (!locked(&running.group.replica).hears(host, beat)).then_some(group)
                };
                let wake: Vec<u32> = beats.into_iter().filter_map(others).collect();
                self.dirty.extend(&wake);
                // Also without groups, so that the other host knows that its messages arrive.
                self.post.send(host, HOST, Said::Wake(wake).bytes(self.shared.facts.host));
            }
            Some((_, Said::Wake(groups))) => {
                for group in groups.into_iter().filter(|group| *group != HOST) {
                    if let Some(running) = self.running(group) {
                        locked(&running.group.replica).wake();
                    }
                }
            }
            Some((host, Said::Here { address, name, itself })) => self.moves(host, (address, name), itself),
            Some((host, Said::Where)) => self.post.send(host, HOST, here(&self.shared.member)),
            None => {}
        }
    }

    /// Another host announces its address, or a third host passes the announcement on.
    fn moves(&mut self, host: u64, (address, name): (String, String), itself: bool) {
        let own = self.shared.facts.host;
        let Some(known) = self.shared.known(host).filter(|_| host != own) else { return };
        let is_unreached = self.post.trouble(host).is_some();
        let said = Member { address: address.clone(), name: name.clone(), ..known.clone() };
        match self.moved.hear(&known, said, is_unreached, Instant::now()) {
            Heard::Nothing => return,
            Heard::Unsure => return self.post.send(host, HOST, Said::Where.bytes(own)),
            Heard::Changed => self.say_where(),
            Heard::Followed => {}
        }
        if !itself {
            return;
        }
        // Two hosts that have moved do not know each other's address.
        let there = Said::Here { address, name, itself: false }.bytes(host);
        for member in self.shared.known_members().iter().filter(|member| ![own, host].contains(&member.id)) {
            self.post.send(member.id, HOST, there.clone());
        }
    }

    /// Passes the addresses of the other hosts to the connections.
    fn say_where(&mut self) {
        let members = self.shared.known_members();
        self.post.members(&self.moved.places(members));
    }

    /// A host that was started at another address knows no leader until the others know its address. If it leads, a host that was down
    /// meanwhile receives its messages, and answers to the old address.
    fn announce(&mut self) {
        let own = &self.shared.member;
        let (is_known, leads) = (self.shared.is_known(), locked(&self.shared.main.replica).role() == Role::Leader);
        let to_all = self.moved.announces(is_known);
        if !to_all && !leads {
            return;
        }
        let here = here(own);
        for member in self.shared.known_members().iter().filter(|member| member.id != own.id) {
            if to_all || self.shared.is_silent(member.id, self.shared.silence) {
                self.post.send(member.id, HOST, here.clone());
            }
        }
    }

    fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        let (looks_again, own) = (self.ticks.is_multiple_of(AGAIN_TICKS), self.shared.facts.host);
        let mut beats: BTreeMap<u64, Vec<(u32, Beat)>> = BTreeMap::new();
        for (id, running) in &mut self.groups {
            let mut replica = locked(&running.group.replica);
            let rested = replica.is_resting();
            replica.tick();
            if !(rested && replica.is_resting()) {
                self.dirty.insert(*id);
            }
            if self.ticks.is_multiple_of(BEAT_TICKS)
                && let Some(beat) = replica.beat()
            {
                let (voters, learners) = replica.replicas();
                for host in voters.into_iter().chain(learners).filter(|host| *host != own) {
                    beats.entry(host).or_default().push((*id, beat));
                }
            }
            drop(replica);
            if looks_again {
                self.shared.answer(&running.group);
                running.look_again(&self.shared);
            }
        }
        if looks_again {
            self.arrange();
            self.announce();
        }
        for (host, beats) in beats {
            self.post.send(host, HOST, Said::Beats(beats).bytes(own));
        }
    }

    /// Writes the results of the collected inputs, sends messages, and replies. One flush serves all groups.
    fn decide(&mut self) -> Result<()> {
        while !self.dirty.is_empty() {
            let (mut held, mut end) = (Vec::new(), None);
            for id in std::mem::take(&mut self.dirty) {
                end = end.max(self.decide_group(id, &mut held)?);
            }
            if let Some(end) = end {
                self.shared.namespace.journal().sync(end)?;
            }
            for (id, held) in held {
                self.release(id, held);
            }
        }
        Ok(())
    }

    /// Writes what a group has to write; returns the position up to which the journal has to be flushed for it.
    fn decide_group(&mut self, id: u32, held: &mut Vec<(u32, Unflushed)>) -> Result<Option<Position>> {
        let Some(group) = self.groups.get(&id).map(|running| running.group.clone()) else { return Ok(None) };
        let (mut end, mut changed) = (None, false);
        // A replica that lost its state must not vote, and one that cannot continue must not lead.
        if let Some(error) = locked(&group.replica).stopped() {
            return Err(error.clone());
        }
        while let Some(turn) = next(&group) {
            changed |= turn.applied;
            if let Some(running) = self.groups.get_mut(&id) {
                running.settle(&self.shared, &turn);
            }
            self.send(id, &turn.before_disk);
            let (places, written) = if turn.needs_flush() || turn.trim.is_some() {
                let (places, end) = self.write(&group, &turn)?;
                (places, Some(end).filter(|_| turn.needs_flush()))
            } else {
                (Vec::new(), None)
            };
            end = end.max(written);
            held.push((id, locked(&group.replica).wrote(turn, places)));
        }
        // Reads here could give other results than reads on the other hosts.
        if let Some(error) = locked(&group.replica).stopped() {
            return Err(error.clone());
        }
        if changed {
            self.shared.reported(&group);
            if id == MAIN {
                self.say_where();
                self.arrange();
            }
        }
        Ok(end)
    }

    /// Starts and stops replicas after the directory may have changed.
    fn arrange(&mut self) {
        self.shared.arrange();
        for group in self.shared.kept() {
            self.groups.entry(group.id).or_insert_with(|| Running::new(group));
        }
        let removed = || Code::GroupNotFound.error("the group was removed");
        for (id, mut running) in self.groups.extract_if(.., |id, _| self.shared.group(*id).is_none()) {
            running.end(removed);
            self.shared.forget_waiters(id);
        }
    }

    fn release(&mut self, id: u32, held: Unflushed) {
        let Some(running) = self.groups.get_mut(&id) else { return };
        let Released { messages, stored } = locked(&running.group.replica).flushed(held);
        running.stored(&stored);
        self.dirty.insert(id);
        self.send(id, &messages);
    }

    fn send(&self, group: u32, messages: &[Envelope]) {
        for envelope in messages {
            self.post.send(envelope.to, group, envelope.bytes.clone());
        }
    }

    /// Waits for space on a full disk; meanwhile the group has another leader.
    fn write(&self, group: &Group, turn: &Turn) -> Result<(Vec<Place>, Position)> {
        loop {
            match group.store.write(turn) {
                Err(error)
                    if matches!(error.code(), Code::DiskFull | Code::JournalFull) && !self.shared.is_stopping() =>
                {
                    thread::sleep(ROOM_PAUSE);
                }
                written => return written,
            }
        }
    }
}

/// The next step for a group.
fn next(group: &Group) -> Option<Turn> {
    locked(&group.replica).take()
}

/// If the journal accepts no more writes, the host learns this from the journal itself, and ends.
fn tracing_note(error: &Error) {
    tracing::error!(target: "topics", code = error.code().id(), "this host no longer takes part in its groups: {}", error.detail());
}
