//! The thread that drives the replicas of this host: it collects requests and messages, passes them to the replicas, writes the results of
//! all groups with one flush, and sends messages.

mod beats;
mod goal;
mod moved;
mod rotation;
mod starts;

use super::{MAIN, PATIENCE, PROBE, Post, Reply, Shared, facts::Starts, groups::Group, locked};
use beats::Said;
pub(super) use millrace_group::goal::Goal;
use millrace_group::{
    Action, Beat, Completed, Durability, Envelope, Member, Released, Role, Stamp, Turn, Unflushed, Written,
    goal::GoalStep,
};
use millrace_journal::Position;
use millrace_wire::{Code, Error, Result, Transient};
use moved::{Heard, Moved};
use rotation::Rotations;
pub use rotation::{RotatedHost, RotatedSecret};
use starts::Asked;
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
/// The pause after a write that the disk refused.
const ROOM_PAUSE: Duration = Duration::from_millis(200);
/// Ticks between two attempts of a request that a group may have dropped.
const AGAIN_TICKS: u32 = 10;
/// The maximum number of subscriptions and feeds of hosts that have left which are ended at once.
const SWEEP_MAX: usize = 64;
/// Ticks between two messages about groups at rest, and the group that they are sent to: the host itself.
const BEAT_TICKS: u32 = 2;
pub(super) const HOST: u32 = 0;

/// Requests and notifications for the driver.
pub(super) enum Input {
    Messages { group: u32, messages: Vec<Vec<u8>> },
    Unreachable(u64),
    Submit { group: u32, action: Action, data: Vec<u8>, stamp: Stamp, durability: Durability, reply: Reply<u64> },
    Read { group: u32, reply: Reply<()> },
    Pursue { group: u32, goal: Goal, reply: Reply<()> },
    Rotate { reply: Reply<RotatedSecret> },
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
        matches!(self, Input::Submit { .. } | Input::Read { .. } | Input::Pursue { .. } | Input::Rotate { .. })
    }

    pub(super) fn refuse(self, error: Error) {
        match self {
            Input::Submit { reply, .. } => reply(Err(error)),
            Input::Read { reply, .. } | Input::Pursue { reply, .. } => reply(Err(error)),
            Input::Rotate { reply } => reply(Err(error)),
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
    /// The turn that the disk has refused.
    refused: Option<Refused>,
}

/// A turn that the disk has refused, how far it is written, and when it is tried again.
struct Refused {
    turn: Turn,
    written: Written,
    next: Instant,
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
    /// Whether the others know of starts that this directory does not know of.
    asked: Asked,
    /// Changes of the secret of the cluster.
    rotations: Rotations,
    /// When hosts that send nothing to this one are asked again whether they are there.
    probe: Instant,
}

/// A message with the address of this host.
pub(super) fn here(own: &Member) -> Vec<u8> {
    Said::Here { address: own.address.clone(), name: own.name.clone(), itself: true }.bytes(own.id)
}

fn stopping() -> Error {
    Code::HostStopping.error("the host has left its groups")
}

impl Running {
    fn new(group: Arc<Group>) -> Self {
        let (submitted, reads, goals) = (HashMap::new(), HashMap::new(), Vec::new());
        Self { group, submitted, reads, goals, announced: None, leader: 0, swept: (0, 0), refused: None }
    }

    fn submit(&mut self, action: Action, (data, stamp): (&[u8], &Stamp), durability: Durability, reply: Reply<u64>) {
        if let Some(error) = self.group.refusal() {
            return reply(Err(error));
        }
        let submitted = locked(&self.group.replica).submit_with(action, data, durability, stamp);
        match submitted {
            Ok(serial) => drop(self.submitted.insert(serial, Waiting::new(reply))),
            Err(error) => reply(Err(error)),
        }
    }

    fn read(&mut self, reply: Reply<()>) {
        if let Some(error) = self.group.refusal() {
            return reply(Err(error));
        }
        let batch = locked(&self.group.replica).read();
        self.reads.entry(batch).or_default().push(Waiting::new(reply));
    }

    fn pursue(&mut self, shared: &Shared, goal: Goal, reply: Reply<()>) {
        if let Some(error) = self.group.refusal() {
            return reply(Err(error));
        }
        let begun = {
            let mut replica = locked(&self.group.replica);
            match goal::pursue(shared, &self.group, &mut replica, &goal) {
                GoalStep::Met => Some(Ok(())),
                GoalStep::Refused(error) => Some(Err(error)),
                // It is checked again until the timeout.
                GoalStep::Wait(_) | GoalStep::Do(_) => None,
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
            let outcome = match undecided {
                None => (goal::pursue(shared, &self.group, &mut replica, &goal) == GoalStep::Met).then_some(Ok(())),
                Some(_) if goal::is_met(shared, &self.group, &replica, &goal) => Some(Ok(())),
                Some(undecided) => Some(Err(goal::late(shared, &self.group, &replica, &goal, undecided))),
            };
            drop(replica);
            match outcome {
                Some(outcome) => (waiting.reply)(outcome),
                None => self.goals.push((goal, waiting)),
            }
        }
        if self.refused.is_some() {
            return;
        }
        let leads = locked(&self.group.replica).role() == Role::Leader;
        for command in self.group.objects.upkeep(leads) {
            self.submit(Action::Machine, (&command, &Stamp::default()), Durability::Quorum, Box::new(drop));
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
            let has_left = |host: &u64| replica.topics().left().contains(host) || !replica.has(*host);
            if ends.is_empty() && gone.iter().all(has_left) {
                self.swept = as_of;
            }
            ends
        };
        // Refused or lost commands are submitted again.
        ends.into_iter().for_each(|end| self.submit(end, (&[], &Stamp::default()), Durability::Quorum, Box::new(drop)));
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
            let is_met = goal::is_met(shared, &self.group, &locked(&self.group.replica), &goal);
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
        let (moved, asked) = (Moved::new(shared.silence), Asked::new(shared.starts.clone()));
        Self {
            shared,
            post,
            tick,
            received,
            groups,
            dirty: [MAIN].into(),
            ticks: 0,
            moved,
            asked,
            rotations: Rotations::default(),
            probe: Instant::now(),
        }
    }

    /// Runs until the host stops, or the journal accepts no more writes.
    pub fn run(mut self) {
        let mut next_tick = Instant::now() + self.tick;
        // Before others are answered, what is known to be committed is applied.
        let mut decided = self.decide();
        while !self.shared.is_stopping() {
            if let Err(error) = decided {
                tracing_note(&error);
                *locked(&self.shared.halted) = Some(error);
                break;
            }
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
            decided = self.decide();
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
                    from.into_iter().for_each(|from| self.asked.hear(from));
                    shared.heard(from);
                }
            }
            Input::Unreachable(host) => {
                self.groups.values().for_each(|running| locked(&running.group.replica).unreachable(host));
            }
            Input::Submit { group, action, data, stamp, durability, reply } => match self.running(group) {
                Some(running) => running.submit(action, (&data, &stamp), durability, reply),
                None => reply(Err(absent())),
            },
            Input::Read { group, reply } => match self.running(group) {
                Some(running) => running.read(reply),
                None => reply(Err(absent())),
            },
            Input::Pursue { group, goal, reply } => match self.running(group) {
                Some(running) => running.pursue(&shared, goal, reply),
                None => reply(Err(absent())),
            },
            Input::Rotate { reply } => self.rotate(reply),
            Input::Stop => {}
        }
    }

    /// Another host reports which groups at rest it leads, or which must not rest.
    fn hear(&mut self, message: &[u8]) {
        let said = Said::parse(message);
        // A host that announces its address may not receive messages of this one.
        let beats = said.as_ref().filter(|(_, said)| matches!(said, Said::Beats(_) | Said::Wake(_)));
        self.shared.heard(beats.map(|(host, _)| *host));
        match &said {
            Some((host, Said::Beats(_) | Said::Wake(_))) => self.asked.hear(*host),
            Some((host, Said::Here { itself: true, .. } | Said::Known { .. })) => {
                locked(&self.shared.answered).entry(*host).and_modify(|answered| *answered = Instant::now());
            }
            _ => {}
        }
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
            Some((host, Said::Start { boot })) => {
                let (newest, has_left) = {
                    let replica = locked(&self.shared.main.replica);
                    (replica.newest_start(host), replica.topics().left().contains(&host))
                };
                let own = self.shared.facts.host;
                self.post.send(host, HOST, Said::Known { boot, newest }.bytes(own));
                if has_left {
                    self.post.send(host, HOST, Said::Left.bytes(own));
                }
            }
            Some((host, Said::Known { boot, newest })) => match self.asked.answered(host, boot, newest) {
                Ok(held) => held.into_iter().for_each(|(group, message)| self.post.send(host, group, message)),
                Err(missing) => self.miss(host, missing),
            },
            // Nobody sends the removal itself to a host that is no longer a replica.
            Some((by, Said::Left)) if !self.shared.told_left.swap(true, Ordering::Relaxed) => {
                let by = format_args!("{by:016x}");
                tracing::error!(target: "topics", by, "another host says that this one was removed from the cluster");
            }
            Some((_, Said::Left)) => {}
            Some((host, said)) => self.hear_of_secret(host, said),
            None => {}
        }
    }

    /// Another host knows of a start of this host that this directory does not know of: it leaves its groups, also after the next start.
    fn miss(&mut self, by: u64, missing: u64) {
        let (facts, starts) = (&self.shared.facts, &self.shared.starts);
        let host = format_args!("{by:016x}");
        tracing::error!(target: "topics", host, missing, "another host knows of a start of this host that this directory lacks");
        if let Err(error) = facts.note_missing(&self.shared.namespace, starts, missing) {
            tracing::warn!(target: "topics", code = error.code().id(), "this could not be recorded: {}", error.detail());
        }
        self.asked = Asked::new(Starts { missing, ..starts.clone() });
    }

    /// Asks the others for the starts that they know of; returns whether the replicas have to wait for the answers.
    fn ask(&mut self) -> bool {
        let own = self.shared.facts.host;
        let others = self.shared.others();
        let (unmet, released) = self.asked.tick(others.iter().copied());
        let start = Said::Start { boot: self.asked.boot() }.bytes(own);
        unmet.into_iter().for_each(|host| self.post.send(host, HOST, start.clone()));
        for (host, held) in released {
            held.into_iter().for_each(|(group, message)| self.post.send(host, group, message));
        }
        self.asked.waits(others.into_iter())
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

    /// Asks hosts that send nothing to this one whether they are there. Only a leader hears of all hosts, but each one reports problems.
    fn probe(&mut self) {
        let now = Instant::now();
        if now < self.probe {
            return;
        }
        self.probe = now + PROBE;
        let (shared, ask) = (&self.shared, Said::Where.bytes(self.shared.facts.host));
        for host in shared.others().into_iter().filter(|host| shared.is_silent(*host, PROBE)) {
            locked(&shared.answered).entry(host).or_insert(now);
            self.post.send(host, HOST, ask.clone());
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
        let waits = self.ask();
        for (id, running) in &mut self.groups {
            let mut replica = locked(&running.group.replica);
            let rested = replica.is_resting();
            if !waits {
                replica.tick();
            }
            if !(rested && replica.is_resting()) || running.refused.is_some() {
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
            self.probe();
            self.offer();
            self.shared.follow_secret();
        }
        for (host, beats) in beats {
            self.post.send(host, HOST, Said::Beats(beats).bytes(own));
        }
    }

    /// Writes the results of the collected inputs, sends messages, and replies. One flush serves all groups.
    fn decide(&mut self) -> Result<()> {
        self.asked.missing().map_or(Ok(()), Err)?;
        while !self.dirty.is_empty() {
            let (mut held, mut end) = (Vec::new(), None);
            for id in std::mem::take(&mut self.dirty) {
                end = end.max(self.decide_group(id, &mut held)?);
            }
            if let Some(end) = end {
                self.flush(end)?;
            }
            for (id, held) in held {
                self.release(id, held);
            }
        }
        Ok(())
    }

    /// Flushes what was written. A flush that fails closes the journal; but it may have to wait for another process first.
    fn flush(&self, end: Position) -> Result<()> {
        loop {
            match self.shared.namespace.journal().sync(end) {
                Err(error) if error.code().transient() == Some(Transient::Disk) && !self.shared.is_stopping() => {
                    thread::sleep(ROOM_PAUSE);
                }
                flushed => return flushed,
            }
        }
    }

    /// Writes what a group has to write; returns the position up to which the journal has to be flushed for it. A disk that refuses holds up
    /// this group, not the thread: the group's other hosts elect another leader, and requests for it are refused until the disk accepts.
    fn decide_group(&mut self, id: u32, held: &mut Vec<(u32, Unflushed)>) -> Result<Option<Position>> {
        let Some(group) = self.groups.get(&id).map(|running| running.group.clone()) else { return Ok(None) };
        let (mut end, mut changed) = (None, false);
        // A replica that lost its state must not vote, and one that cannot continue must not lead.
        if let Some(error) = locked(&group.replica).stopped() {
            return Err(error.clone());
        }
        while let Some((turn, mut written)) = self.next(&group, &mut changed) {
            if turn.has_writes() {
                match group.store.write(&turn, &mut written) {
                    Ok(to) => end = end.max(Some(to).filter(|_| turn.needs_flush())),
                    Err(error) if error.code().transient() == Some(Transient::Disk) => {
                        self.hold(&group, turn, written, error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            group.refuse(None);
            held.push((id, locked(&group.replica).wrote(turn, written.places())));
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
                self.shared.follow_secret();
            }
        }
        Ok(end)
    }

    /// The next turn of a group: the one that the disk has refused, once it is time, or a new one.
    fn next(&mut self, group: &Group, changed: &mut bool) -> Option<(Turn, Written)> {
        let running = self.groups.get_mut(&group.id)?;
        if let Some(Refused { next, .. }) = &running.refused {
            if Instant::now() < *next {
                return None;
            }
            return running.refused.take().map(|Refused { turn, written, .. }| (turn, written));
        }
        let turn = locked(&group.replica).take()?;
        *changed |= turn.applied;
        running.settle(&self.shared, &turn);
        self.send(group.id, &turn.before_disk);
        Some((turn, Written::default()))
    }

    /// Keeps a turn until the disk accepts it.
    fn hold(&mut self, group: &Group, turn: Turn, written: Written, error: Error) {
        group.refuse(Some(error));
        if let Some(running) = self.groups.get_mut(&group.id) {
            running.refused = Some(Refused { turn, written, next: Instant::now() + ROOM_PAUSE });
        }
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

    fn send(&mut self, group: u32, messages: &[Envelope]) {
        for envelope in messages {
            if let Some(message) = self.asked.pass(envelope.to, group, &envelope.bytes) {
                self.post.send(envelope.to, group, message);
            }
        }
    }
}

/// If the journal accepts no more writes, the host learns this from the journal itself, and ends.
fn tracing_note(error: &Error) {
    tracing::error!(target: "topics", code = error.code().id(), "this host no longer takes part in its groups: {}", error.detail());
}
