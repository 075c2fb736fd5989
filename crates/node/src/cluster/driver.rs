//! The thread that drives a replica: it collects requests and messages, passes them to the replica, writes the result with one flush, and
//! sends messages.

use super::{GROUP, PATIENCE, Post, Reply, Shared, locked, shown};
use millrace_group::{Action, Completed, Held, Member, Replica, Turn};
use millrace_journal::Position;
use millrace_wire::{Code, Error, Result};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// What is gathered before it is decided: inputs, and their bytes.
const GATHER_MAX: usize = 256;
const GATHER_MAX_BYTES: usize = 4 << 20;
/// How long a disk that is full is left alone.
const ROOM_PAUSE: Duration = Duration::from_millis(200);
/// Ticks between two attempts at what the group may have dropped.
const AGAIN_TICKS: u32 = 10;

/// What the replicas are to be.
pub(super) enum Goal {
    Added(Member),
    Removed(u64),
    Led(u64),
}

impl Goal {
    /// Whether it is so.
    fn is_met(&self, replica: &Replica) -> bool {
        match self {
            Goal::Added(member) => self.has(replica, member.id),
            Goal::Removed(host) => !self.has(replica, *host),
            Goal::Led(host) => replica.leader() == *host,
        }
    }

    /// Why it can never be so.
    fn check(&self, replica: &Replica) -> Result<()> {
        let (voters, _) = replica.replicas();
        let (host, can) = match self {
            Goal::Added(_) => return Ok(()),
            Goal::Removed(host) => (host, voters.iter().any(|voter| voter != host) && self.has(replica, *host)),
            Goal::Led(host) => (host, voters.contains(host)),
        };
        if can { Ok(()) } else { Err(Code::HostNotInCluster.error(format!("host {}", shown(*host)))) }
    }

    fn has(&self, replica: &Replica, host: u64) -> bool {
        let (voters, learners) = replica.replicas();
        voters.contains(&host) || learners.contains(&host)
    }

    /// Does what may bring it about. What is refused or lost is tried again.
    fn pursue(&self, replica: &mut Replica) {
        match self {
            Goal::Added(member) => drop(replica.add(member)),
            // Whoever is to leave and leads has another voter lead first: one that has caught up, if it knows one.
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

/// What the driver is asked for or told.
pub(super) enum Input {
    Messages(Vec<Vec<u8>>),
    Unreachable(u64),
    Submit { action: Action, data: Vec<u8>, reply: Reply<u64> },
    Read { reply: Reply<()> },
    Pursue { goal: Goal, reply: Reply<()> },
    Stop,
}

impl Input {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Input::Messages(messages) => messages.iter().map(|message| message.len() + size_of::<Vec<u8>>()).sum(),
            Input::Submit { data, .. } => data.len(),
            _ => 0,
        }
    }

    pub(super) fn refuse(self, error: Error) {
        match self {
            Input::Submit { reply, .. } => reply(Err(error)),
            Input::Read { reply } | Input::Pursue { reply, .. } => reply(Err(error)),
            Input::Messages(_) | Input::Unreachable(_) | Input::Stop => {}
        }
    }
}

/// Somebody who waits, and until when.
struct Waiting<T> {
    reply: Reply<T>,
    until: Instant,
}

impl<T> Waiting<T> {
    fn new(reply: Reply<T>) -> Self {
        Self { reply, until: Instant::now() + PATIENCE }
    }
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    post: Arc<dyn Post>,
    tick: Duration,
    received: Receiver<Input>,
    submitted: HashMap<u64, Waiting<u64>>,
    reads: HashMap<u64, Vec<Waiting<()>>>,
    goals: Vec<(Goal, Waiting<()>)>,
    ticks: u32,
    /// The command with which this host says where it is.
    announced: Option<u64>,
    /// Who led the group when it was looked last, to note a change.
    leader: u64,
}

fn unavailable() -> Error {
    Code::GroupUnavailable.error(format!("no decision within {} s", PATIENCE.as_secs()))
}

impl Driver {
    pub fn new(shared: Arc<Shared>, post: Arc<dyn Post>, tick: Duration, received: Receiver<Input>) -> Self {
        let (submitted, reads) = (HashMap::new(), HashMap::new());
        Self { shared, post, tick, received, submitted, reads, goals: Vec::new(), ticks: 0, announced: None, leader: 0 }
    }

    /// Until the host stops, or the journal takes nothing any more.
    pub fn run(mut self) {
        let mut next_tick = Instant::now() + self.tick;
        while !self.shared.is_stopping() {
            match self.received.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(first) => self.gather(first),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_tick {
                // Ticks that were missed are no silence of the others.
                next_tick = Instant::now() + self.tick;
                self.tick();
            }
            if let Err(error) = self.decide() {
                tracing_note(&error);
                break;
            }
        }
        let stopping = || Code::HostStopping.error("the host takes no further part in its group");
        self.submitted.drain().for_each(|(_, waiting)| (waiting.reply)(Err(stopping())));
        self.reads.drain().flat_map(|(_, waiting)| waiting).for_each(|waiting| (waiting.reply)(Err(stopping())));
        self.goals.drain(..).for_each(|(_, waiting)| (waiting.reply)(Err(stopping())));
        while let Ok(input) = self.received.try_recv() {
            input.refuse(stopping());
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

    fn take(&mut self, input: Input) {
        let shared = self.shared.clone();
        let mut replica = locked(&shared.replica);
        match input {
            Input::Messages(messages) => messages.iter().for_each(|message| replica.step(message)),
            Input::Unreachable(host) => replica.unreachable(host),
            Input::Submit { action, data, reply } => match replica.submit(action, &data) {
                Ok(serial) => drop(self.submitted.insert(serial, Waiting::new(reply))),
                Err(error) => reply(Err(error)),
            },
            Input::Read { reply } => self.reads.entry(replica.read()).or_default().push(Waiting::new(reply)),
            Input::Pursue { goal, reply } => {
                let begun = if goal.is_met(&replica) { Some(Ok(())) } else { goal.check(&replica).err().map(Err) };
                if let Some(begun) = begun {
                    // Anyone who is told may look at the replica.
                    drop(replica);
                    return reply(begun);
                }
                goal.pursue(&mut replica);
                self.goals.push((goal, Waiting::new(reply)));
            }
            Input::Stop => {}
        }
    }

    fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        let shared = self.shared.clone();
        let mut replica = locked(&shared.replica);
        replica.tick();
        if !self.ticks.is_multiple_of(AGAIN_TICKS) {
            return;
        }
        shared.answer(&replica);
        let now = Instant::now();
        let late: Vec<u64> =
            self.submitted.iter().filter(|(_, waiting)| waiting.until <= now).map(|(serial, _)| *serial).collect();
        for serial in late {
            replica.forget(serial);
            if let Some(waiting) = self.submitted.remove(&serial) {
                (waiting.reply)(Err(unavailable()));
            }
        }
        for (_, waiting) in self.reads.extract_if(|_, waiting| waiting.iter().all(|waiting| waiting.until <= now)) {
            waiting.into_iter().for_each(|waiting| (waiting.reply)(Err(unavailable())));
        }
        for (goal, waiting) in std::mem::take(&mut self.goals) {
            if waiting.until <= now {
                (waiting.reply)(Err(unavailable()));
            } else {
                goal.pursue(&mut replica);
                self.goals.push((goal, waiting));
            }
        }
        let (leader, term) = (replica.leader(), replica.term());
        if leader != self.leader {
            self.leader = leader;
            match leader {
                0 => tracing::info!(target: "topics", term, "the group has no leader"),
                host => {
                    tracing::info!(target: "topics", host = format_args!("{host:012x}"), term, "the group has another leader")
                }
            }
        }
        // The others have to know where this host is.
        let (voters, learners) = replica.replicas();
        let takes_part = voters.iter().chain(&learners).any(|id| *id == shared.member.id);
        if takes_part
            && replica.leader() != 0
            && self.announced.is_none()
            && replica.topics().member(shared.member.id) != Some(&shared.member)
        {
            self.announced = replica.submit(Action::Member(shared.member.clone()), &[]).ok();
        }
    }

    /// Has decided what was gathered: writes it, sends it, and replies.
    fn decide(&mut self) -> Result<()> {
        loop {
            let (mut held, mut end, mut changed) = (Vec::new(), None, false);
            while let Some(turn) = self.next() {
                changed |= turn.applied;
                self.settle(&turn);
                self.send(&turn.before_disk);
                let (place, written) = if turn.needs_flush() || turn.trim.is_some() {
                    let (place, end) = self.write(&turn)?;
                    (place, Some(end).filter(|_| turn.needs_flush()))
                } else {
                    (millrace_group::Place(0), None)
                };
                end = end.max(written);
                held.push(locked(&self.shared.replica).wrote(turn, place));
            }
            if changed {
                let replica = locked(&self.shared.replica);
                self.shared.told(&replica);
                let members: Vec<Member> = replica.topics().members().cloned().collect();
                drop(replica);
                self.post.members(&members);
            }
            if held.is_empty() {
                return Ok(());
            }
            if let Some(end) = end {
                self.shared.namespace.journal().sync(end)?;
            }
            for held in held {
                self.release(held);
            }
        }
    }

    fn next(&self) -> Option<Turn> {
        locked(&self.shared.replica).take()
    }

    fn release(&self, held: Held) {
        let messages = locked(&self.shared.replica).flushed(held);
        self.send(&messages);
    }

    fn send(&self, messages: &[millrace_group::Envelope]) {
        for envelope in messages {
            self.post.send(envelope.to, GROUP, envelope.bytes.clone());
        }
    }

    /// A disk without room is waited for: meanwhile the group has another leader.
    fn write(&self, turn: &Turn) -> Result<(millrace_group::Place, Position)> {
        loop {
            match self.shared.store.write(turn) {
                Err(error)
                    if matches!(error.code(), Code::DiskFull | Code::JournalFull) && !self.shared.is_stopping() =>
                {
                    thread::sleep(ROOM_PAUSE);
                }
                written => return written,
            }
        }
    }

    fn settle(&mut self, turn: &Turn) {
        for Completed { serial, outcome } in &turn.completed {
            if let Some(waiting) = self.submitted.remove(serial) {
                (waiting.reply)(outcome.clone());
            }
            self.announced.take_if(|announced| announced == serial);
        }
        for waiting in turn.answered.iter().filter_map(|batch| self.reads.remove(batch)).flatten() {
            (waiting.reply)(Ok(()));
        }
        for (goal, waiting) in std::mem::take(&mut self.goals) {
            let is_met = goal.is_met(&locked(&self.shared.replica));
            if is_met {
                (waiting.reply)(Ok(()));
            } else {
                self.goals.push((goal, waiting));
            }
        }
    }
}

/// The journal takes nothing any more: the host hears of that from the journal itself, and ends.
fn tracing_note(error: &Error) {
    tracing::error!(target: "topics", code = error.code().id(), "the group's log cannot be written: {}", error.detail());
}
