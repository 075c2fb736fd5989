//! One replica of a group: Raft, the commands that were submitted here and have no outcome yet, and the topics.
//!
//! Its driver ticks, steps and submits, then takes a [`Turn`]: entries and state to be written, messages to be sent before and after they
//! are flushed. The order is that of Raft: a vote and an answer to a leader are sent after the flush, a leader's entries before.

mod batches;
mod messages;
mod placement;
mod recovered;
mod recovery;
mod rest;
mod snapshots;
#[cfg(test)]
mod tests;

pub use batches::{Batch, Written};
pub use placement::Placement;
pub use recovered::Recovered;
pub use rest::Beat;
pub use snapshots::Limits;

use crate::{
    Action, Command, Durability, Form, Leaders, Machine, Member, Origin, Place, Proposal, Stamp, State, Topics, Write,
    index::{Index, Slot, entry_of},
    snapshot::{Said, Stored, decode},
};
use millrace_wire::{Code, Error, Result};
use protobuf::Message as _;
use raft::{
    Config, RawNode, Ready, StateRole,
    eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, Entry, EntryType, Message, MessageType},
};
use rest::Rest;
use snapshots::Snapshots;
use std::{cmp::min, collections::BTreeMap};

/// Ticks between two heartbeats of a leader; an election begins after five to ten times as many without a heartbeat.
const HEARTBEAT_TICKS: usize = 2;
const ELECTION_TICKS: usize = 10;
/// A command that is not committed after this many ticks is proposed again, because the receiver may be gone. The time doubles each time,
/// because the receiver may only be slow.
const RETRY_TICKS: u32 = 2 * ELECTION_TICKS as u32;
const RETRY_MAX_TICKS: u32 = 16 * RETRY_TICKS;
/// The maximum number of commands that were submitted here and have no outcome yet, and of their bytes.
const PENDING_MAX: usize = 4096;
const PENDING_MAX_BYTES: usize = 64 << 20;
/// Bytes of entries in one message, and of entries that a leader has proposed and that are not committed.
const MESSAGE_MAX_BYTES: u64 = 1 << 20;
const UNCOMMITTED_MAX_BYTES: u64 = 64 << 20;
/// Bytes of entries that are applied in one turn.
const APPLIED_MAX_BYTES: u64 = 4 << 20;
/// Messages with entries that a follower has not answered.
const INFLIGHT_MAX: usize = 256;
/// Entries that are not applied yet and that are searched for commands of a host.
const STARTS_MAX: u64 = 1024;
/// A mark on an entry that is acknowledged once the leader has it on disk.
const EARLY: [u8; 1] = [1];

/// The settings of a replica.
#[derive(Clone, Debug)]
pub struct Options {
    /// The host.
    pub id: u64,
    /// The number of the host's start; it grows with each start.
    pub boot: u64,
    /// The hosts that the group began with.
    pub founders: Vec<u64>,
    /// The seed of election timeouts.
    pub seed: u64,
    /// The number of voters, unless the group has agreed on another one.
    pub voters_max: usize,
    /// How much of the log stays.
    pub limits: Limits,
}

/// The role of a replica in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decides the order.
    Leader,
    /// It follows.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It follows and does not vote.
    Learner,
}

/// A message to another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The host.
    pub to: u64,
    /// The input of its [`Replica::step`].
    pub bytes: Vec<u8>,
}

/// The outcome of a command that was submitted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The command.
    pub serial: u64,
    /// A record's index in its topic or 0; the same for every repetition of the command.
    pub outcome: Result<u64>,
}

/// The next actions for a replica.
#[derive(Default)]
pub struct Turn {
    ready: Option<Ready>,
    /// To be written, in this order; an entry replaces those with its index or a higher one. [`Turn::batches`] divides them.
    pub writes: Vec<Write>,
    /// To be written after them.
    pub state: Option<State>,
    /// Everything written before this position is no longer needed.
    pub trim: Option<Place>,
    /// To be sent at once.
    pub before_disk: Vec<Envelope>,
    /// To be sent once all writes of this turn and of earlier ones are on disk.
    pub after_disk: Vec<Envelope>,
    /// Commands submitted here that a majority has committed and has on disk.
    pub completed: Vec<Completed>,
    /// Commands submitted here that a leader elsewhere has on disk.
    pub stored: Vec<u64>,
    /// Reads that may be answered from the topics now.
    pub answered: Vec<u64>,
    /// The topics have changed.
    pub applied: bool,
    /// The commands that are acknowledged once the writes of this turn are on disk here.
    early: Vec<Origin>,
    /// Nothing waits for the state: it only tells how far entries are committed.
    is_lazy: bool,
}

impl Turn {
    /// Whether there is something to write.
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty() || self.state.is_some() || self.trim.is_some()
    }

    /// Whether messages, or the group's progress, wait for a flush.
    pub fn needs_flush(&self) -> bool {
        !self.writes.is_empty() || (self.state.is_some() && !self.is_lazy)
    }

    fn number(&self) -> Option<u64> {
        self.ready.as_ref().map(Ready::number)
    }
}

/// A turn whose writes are in the journal and not yet on disk.
pub struct Unflushed {
    number: Option<u64>,
    /// To be sent after the flush.
    pub messages: Vec<Envelope>,
    early: Vec<Origin>,
}

/// The commands and messages that waited for a flush.
#[derive(Default)]
pub struct Released {
    /// To be sent.
    pub messages: Vec<Envelope>,
    /// Commands submitted here that this host, the leader, has on disk.
    pub stored: Vec<u64>,
}

struct Pending {
    bytes: Vec<u8>,
    early: bool,
    /// Ticks since it was proposed last, and when it is proposed again.
    ticks: u32,
    again: u32,
}

/// One replica of one group.
pub struct Replica {
    node: RawNode<Index>,
    topics: Topics,
    machine: Box<dyn Machine>,
    options: Options,
    applied: u64,
    serial: u64,
    pending: BTreeMap<u64, Pending>,
    pending_bytes: usize,
    leader: u64,
    /// The newest term whose leader is known here, and that leader. Unlike Raft, it remembers the leader after an election that failed, and
    /// after a start.
    led: (u64, u64),
    /// The leaders of terms of which entries may come with the next turn.
    heard: Leaders,
    /// Ticks that have passed, and their number when this leader last transferred leadership to the preferred site.
    age: u32,
    handed_over: u32,
    /// The newest turn for whose flush every message has to wait, and the newest that is flushed.
    binding: u64,
    safe: u64,
    /// The number of the batch of reads that is being collected, and whether it has any.
    gathering: (u64, bool),
    /// Batches of reads that were requested and not answered, with their age in ticks.
    asked: BTreeMap<u64, u32>,
    /// Batches that wait until an entry is applied.
    waiting: Vec<(u64, u64)>,
    snapshots: Snapshots,
    rest: Rest,
    placement: Option<Placement>,
    /// Commands that were submitted here and that a leader has on disk.
    stored: Vec<u64>,
    too_long_bytes: usize,
    /// Why commands are no longer applied.
    stopped: Option<Error>,
    /// Why a command was refused that another replica asked this one to propose.
    refused: Option<Error>,
    /// A turn was taken, and its writes are not reported yet: the Raft library accepts nothing meanwhile.
    is_writing: bool,
    /// The last entry that was known to be committed, of a replica that was brought to the end of its log.
    certain: u64,
    /// A tick has passed: how far entries are committed is written, if it is not.
    commit_due: bool,
}

impl Replica {
    /// Creates a replica from its stored state; the machine must have its initial state.
    pub fn new(options: Options, mut recovered: Recovered, mut machine: Box<dyn Machine>) -> Result<Self> {
        recovered.complete();
        recovered.check()?;
        let (topics, applied) = match &recovered.snapshot {
            Some((mark, state)) => {
                let (topics, of_machine) = decode(state, &*machine)?;
                machine.restore(of_machine);
                (topics, mark.index)
            }
            None => (Topics::default(), 0),
        };
        let state = recovered.index.state();
        let config = Config {
            id: options.id,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            batch_append: true,
            check_quorum: true,
            pre_vote: true,
            max_size_per_msg: MESSAGE_MAX_BYTES,
            max_inflight_msgs: INFLIGHT_MAX,
            max_uncommitted_size: UNCOMMITTED_MAX_BYTES,
            max_committed_size_per_ready: APPLIED_MAX_BYTES,
            applied,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, recovered.index, &logger).map_err(failed)?;
        let mut replica = Self {
            node,
            topics,
            machine,
            options,
            applied,
            serial: 0,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            leader: 0,
            led: (state.term, state.leader),
            heard: Leaders::default(),
            age: 0,
            handed_over: 0,
            binding: 0,
            safe: 0,
            gathering: (1, false),
            asked: BTreeMap::new(),
            waiting: Vec::new(),
            snapshots: Snapshots::default(),
            rest: Rest::default(),
            placement: None,
            stored: Vec::new(),
            too_long_bytes: 0,
            stopped: None,
            refused: None,
            is_writing: false,
            certain: 0,
            commit_due: false,
        };
        replica.set_timeout();
        Ok(replica)
    }

    /// The topics as of the entries that were applied here.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// The leader of the group, as far as is known here; 0 for none.
    pub fn leader(&self) -> u64 {
        self.node.raft.leader_id
    }

    /// The role of this replica.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower if self.node.raft.promotable() => Role::Follower,
            StateRole::Follower => Role::Learner,
        }
    }

    /// The term.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The last entry that was applied here, the last that is known to be committed, and the last.
    pub fn progress(&self) -> (u64, u64, u64) {
        (self.applied, self.node.raft.raft_log.committed, self.node.raft.raft_log.last_index())
    }

    /// The voters, and the followers without a vote.
    pub fn replicas(&self) -> (Vec<u64>, Vec<u64>) {
        let state = self.node.raft.prs().conf().to_conf_state();
        (state.voters, state.learners)
    }

    /// Whether a host is a replica of the group, with a vote or without.
    pub fn has(&self, host: u64) -> bool {
        let (voters, learners) = self.replicas();
        voters.contains(&host) || learners.contains(&host)
    }

    /// The last entry that a replica has acknowledged to this leader; `None` if this replica is not the leader.
    pub fn matched(&self, replica: u64) -> Option<u64> {
        let leads = self.role() == Role::Leader;
        self.node.raft.prs().get(replica).filter(|_| leads).map(|progress| progress.matched)
    }

    /// The newest start of a host of which a command is in the log here, committed or not; 0 if there is none.
    pub fn newest_start(&self, host: u64) -> u64 {
        let (index, last) = (self.node.store(), self.node.store().last());
        let first = (self.applied + 1).max((last + 1).saturating_sub(STARTS_MAX));
        let entries = (first..=last).filter_map(|at| index.read(at)?.ok());
        let boots = entries.filter_map(|entry| Command::decode(&entry.data).ok().map(|command| command.origin));
        let of_host = boots.filter(|origin| origin.host == host).map(|origin| origin.boot);
        of_host.max().unwrap_or(0).max(self.topics.boot(host))
    }

    /// Whether the snapshot of another replica is being put in the place of the log: the topics are those of the snapshot already, and their
    /// records are not here yet.
    pub fn is_catching_up(&self) -> bool {
        self.is_installing()
    }

    /// The error for a record of a topic that is not on this disk: it comes with a snapshot that is not written yet, or it left the topic
    /// while this host fetched a snapshot, or just now.
    pub fn absent(&self, topic: &str, index: u64) -> Error {
        if self.is_catching_up() {
            return Code::GroupUnavailable.error(format!(
                "this host is catching up with the group, and does not have record {index} of topic '{topic}' yet; other hosts have it"
            ));
        }
        Code::BelowHistory.error(format!("topic '{topic}' no longer has record {index}"))
    }

    /// The position of an applied entry.
    pub fn place(&self, entry: u64) -> Option<Place> {
        self.node.store().place(entry)
    }

    /// A unit of time in which the replica does not rest.
    fn tick_awake(&mut self) {
        self.commit_due = true;
        self.node.tick();
        self.forget_leader();
        self.set_timeout();
        let late: Vec<u64> = self.pending.iter_mut().filter_map(|(serial, pending)| pending.is_late(*serial)).collect();
        late.into_iter().for_each(|serial| self.propose(serial));
        let again = self.asked.iter_mut().filter_map(|(batch, ticks)| {
            *ticks += 1;
            // A leader silently drops a read that it receives before it has committed an entry of its term.
            (*ticks % HEARTBEAT_TICKS as u32 == 0).then_some(*batch)
        });
        for batch in again.collect::<Vec<_>>() {
            self.ask(batch);
        }
        self.adjust();
        self.tick_snapshots();
        self.hand_over();
    }

    /// A replica without a vote requests no election, and would otherwise name its last leader forever.
    fn forget_leader(&mut self) {
        let raft = &mut self.node.raft;
        let is_silent = raft.election_elapsed >= 2 * ELECTION_TICKS;
        if is_silent && raft.state == StateRole::Follower && !raft.promotable() {
            raft.leader_id = 0;
        }
    }

    /// Says that messages to a replica were lost.
    pub fn unreachable(&mut self, replica: u64) {
        if self.is_writing {
            return;
        }
        self.node.report_unreachable(replica);
    }

    /// Submits a command, wherever the leader is. It is proposed again until it has an outcome or [`Replica::forget`] is called. With the
    /// durability `leader`, [`Turn::stored`] or [`Released::stored`] reports when the leader has the command on disk.
    pub fn submit(&mut self, action: Action, data: &[u8], durability: Durability) -> Result<u64> {
        self.submit_with(action, data, durability, &Stamp::default())
    }

    /// The same, with what the publisher of a record says of it.
    pub fn submit_with(&mut self, action: Action, data: &[u8], durability: Durability, stamp: &Stamp) -> Result<u64> {
        self.check_free()?;
        if self.pending.len() >= PENDING_MAX || self.pending_bytes + data.len() > PENDING_MAX_BYTES {
            return Err(Code::GroupBusy.error(format!("{} commands wait for the group", self.pending.len())));
        }
        let serial = self.serial + 1;
        let settled = self.pending.keys().next().copied().unwrap_or(serial);
        let Options { id: host, boot, .. } = self.options;
        let bytes = Command { origin: Origin { host, boot, serial, settled }, action, data }.encode_with(stamp)?;
        if bytes.len() > self.options.limits.entry_max_bytes {
            let (bytes, most) = (bytes.len(), self.options.limits.entry_max_bytes);
            return Err(Code::RecordTooLong
                .error(format!("a command of {bytes} bytes; the limit of the group on this host is {most}")));
        }
        self.wake();
        self.serial = serial;
        self.pending_bytes += bytes.len();
        let early = durability == Durability::Leader;
        self.pending.insert(serial, Pending { bytes, early, ticks: 0, again: RETRY_TICKS });
        self.propose(serial);
        Ok(serial)
    }

    /// Stops submitting a command. It may be committed nevertheless.
    pub fn forget(&mut self, serial: u64) {
        if let Some(pending) = self.pending.remove(&serial) {
            self.pending_bytes -= pending.bytes.len();
        }
    }

    /// Requests a read of the topics as of now or later: the number that [`Turn::answered`] reports once the read is permitted.
    pub fn read(&mut self) -> u64 {
        self.wake();
        self.gathering.1 = true;
        self.gathering.0
    }

    /// Cancels a read that is no longer needed.
    pub fn forget_read(&mut self, batch: u64) {
        self.asked.remove(&batch);
        self.waiting.retain(|(waiting, _)| *waiting != batch);
    }

    /// Makes a host a replica, without a vote at first. The list of replicas shows when this is done.
    pub fn add(&mut self, member: &Member) -> Result<()> {
        let context = rmp_serde::to_vec(member).map_err(|error| Code::HostInternal.error(error.to_string()))?;
        self.change(member.id, ConfChangeType::AddLearnerNode, context)
    }

    /// Removes a replica from the group.
    pub fn remove(&mut self, replica: u64) -> Result<()> {
        self.change(replica, ConfChangeType::RemoveNode, Vec::new())
    }

    /// Transfers leadership to another replica; only a leader can do this.
    pub fn transfer(&mut self, replica: u64) {
        if self.is_writing {
            return;
        }
        self.wake();
        self.node.transfer_leader(replica);
    }

    /// The next actions; `None` if there are none. Until they are written ([`Replica::wrote`]), the replica is like a host that is down: it
    /// has no clock, and loses the messages of others.
    pub fn take(&mut self) -> Option<Turn> {
        if self.is_writing {
            return None;
        }
        let turn = self.next_turn();
        self.is_writing = turn.is_some();
        turn
    }

    /// Refuses what would change the log while a turn is being written.
    fn check_free(&self) -> Result<()> {
        match self.is_writing {
            true => Err(Code::GroupBusy.error("this host has not written the group's log yet")),
            false => Ok(()),
        }
    }

    fn next_turn(&mut self) -> Option<Turn> {
        self.note_leader();
        if self.leader != self.node.raft.leader_id {
            self.leader = self.node.raft.leader_id;
            if self.leader != 0 {
                for serial in self.pending.keys().copied().collect::<Vec<_>>() {
                    self.propose(serial);
                }
            }
        }
        if self.gathering.1 {
            let batch = self.gathering.0;
            self.gathering = (batch + 1, false);
            self.asked.insert(batch, 0);
            self.ask(batch);
        }
        let mut turn = Turn { stored: std::mem::take(&mut self.stored), ..Turn::default() };
        if !self.node.has_ready() {
            let is_due = std::mem::take(&mut self.commit_due) && self.has_unwritten_commit();
            return (is_due || self.has_snapshot_work() || !turn.stored.is_empty()).then(|| {
                (turn.state, turn.is_lazy) = (is_due.then(|| self.state()), is_due);
                self.snapshot_turn(&mut turn);
                turn
            });
        }
        let mut ready = self.node.ready();
        self.snapshot_turn(&mut turn);
        let restored = (ready.snapshot().get_metadata().index, ready.snapshot().get_metadata().term);
        if restored.0 > 0 {
            self.restore(restored.0, restored.1, &mut turn);
        }
        let entries = ready.take_entries();
        if self.role() == Role::Leader {
            let early = entries.iter().filter(|entry| *entry.context == EARLY);
            turn.early =
                early.filter_map(|entry| Command::decode(&entry.data).ok()).map(|early| early.origin).collect();
        }
        let led = self.first_of_terms(&entries);
        let committed = ready.take_committed_entries();
        let (state, before) = (self.state(), self.node.store().state());
        // A replica that forgot that the others have become voters would decide alone.
        let changes = committed.iter().any(|entry| entry.get_entry_type() != EntryType::EntryNormal);
        let ends = restored.0 > 0 || turn.state.is_some();
        let binds =
            changes || ends || (state.term, state.vote, state.leader) != (before.term, before.vote, before.leader);
        if binds {
            self.binding = ready.number();
        }
        // The leader also knows how far entries are committed, so this alone needs no flush.
        turn.state = Some(state).filter(|state| binds || (!entries.is_empty() && *state != before));
        let messages = ready.take_messages().into_iter().map(|message| envelope(self.naming(message)));
        let messages: Vec<Envelope> = messages.collect();
        let when = if self.binding > self.safe { &mut turn.after_disk } else { &mut turn.before_disk };
        when.extend(messages);
        turn.after_disk.extend(ready.take_persisted_messages().into_iter().map(envelope));
        for state in ready.take_read_states() {
            // An answer to a question of an earlier start may know less than what was acknowledged since.
            if let Some(batch) = state.request_ctx.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
                && state.request_ctx == self.question(batch)
                && self.asked.remove(&batch).is_some()
            {
                self.waiting.push((batch, state.index));
            }
        }
        for entry in committed {
            self.apply(&entry, &mut turn);
        }
        let applied = self.applied;
        self.waiting.retain(|(batch, index)| {
            let answered = *index <= applied;
            if answered {
                turn.answered.push(*batch);
            }
            !answered
        });
        turn.writes.extend(led.map(Write::Led));
        turn.writes.extend(entries.into_iter().map(proposal).map(Write::Entry));
        turn.ready = Some(ready);
        Some(turn)
    }

    /// Reports the positions of the writes of a turn. Returns the rest of the turn, for [`Replica::flushed`].
    pub fn wrote(&mut self, mut turn: Turn, places: Vec<Place>) -> Unflushed {
        self.is_writing = false;
        let number = turn.number();
        let mut kept = Vec::with_capacity(turn.writes.len());
        for (place, write) in places.into_iter().zip(turn.writes.drain(..)) {
            let Write::Entry(Proposal { term, index, form, data }) = write else {
                self.wrote_snapshot(write, place);
                continue;
            };
            let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
            self.node.mut_store().note(index, Slot { term, place, bytes, form });
            kept.push(entry_of(term, index, form, data));
        }
        let index = self.node.mut_store();
        index.keep(&kept);
        if let Some(state) = turn.state {
            index.set_state(state);
        }
        if let Some(ready) = turn.ready.take() {
            self.node.advance_append_async(ready);
        }
        self.advance();
        self.complete();
        self.set_timeout();
        Unflushed { number, messages: turn.after_disk, early: turn.early }
    }

    /// Reports that all writes of a turn are on disk: its messages may be sent.
    pub fn flushed(&mut self, held: Unflushed) -> Released {
        if let Some(number) = held.number {
            self.safe = number;
            self.node.on_persist_ready(number);
            self.advance();
        }
        self.set_timeout();
        let mut released = Released { messages: held.messages, stored: Vec::new() };
        for Origin { host: to, boot, serial, .. } in held.early {
            if to == self.options.id {
                released.stored.extend(Some(serial).filter(|_| boot == self.options.boot));
                continue;
            }
            let bytes = Said::Stored(Stored { from: self.options.id, to, boot, serial }).bytes();
            released.messages.push(Envelope { to, bytes });
        }
        released
    }

    /// Records that the leader has a command on disk that was submitted here.
    fn is_stored(&mut self, stored: &Stored) {
        let Stored { to, boot, serial, .. } = *stored;
        if (to, boot) == (self.options.id, self.options.boot) && self.pending.contains_key(&serial) {
            self.stored.push(serial);
        }
    }

    /// Reports to Raft how far entries are applied. Entries that a snapshot replaces count once it is on disk.
    fn advance(&mut self) {
        let log = &self.node.raft.raft_log;
        let applied = min(self.applied, min(log.persisted, log.committed));
        if applied > log.applied {
            self.node.advance_apply_to(applied);
        }
    }

    fn apply(&mut self, entry: &Entry, turn: &mut Turn) {
        if self.stopped.is_some() {
            return;
        }
        let is_command = !entry.data.is_empty() && entry.get_entry_type() == EntryType::EntryNormal;
        let command = match Command::known(&entry.data) {
            Err(error) if is_command => {
                let detail = format!("entry {} of the group's log is {}", entry.index, error.detail());
                self.stopped = Some(error.code().error(detail));
                return;
            }
            known => known.ok().flatten(),
        };
        self.applied = entry.index;
        if entry.data.is_empty() && entry.get_entry_type() == EntryType::EntryNormal {
            return; // A new leader begins its term with one.
        }
        turn.applied = true;
        if entry.get_entry_type() == EntryType::EntryNormal {
            // An ignorable command changes nothing here.
            let Some(command) = command else { return };
            let origin = command.origin;
            let outcome = self.topics.apply(entry.index, command, &mut *self.machine);
            if (origin.host, origin.boot) == (self.options.id, self.options.boot)
                && let Some(outcome) = outcome
                && self.pending.contains_key(&origin.serial)
            {
                self.forget(origin.serial);
                turn.completed.push(Completed { serial: origin.serial, outcome });
            }
            return;
        }
        let Ok(change) = ConfChangeV2::parse_from_bytes(&entry.data) else { return };
        // A change that does not fit the current replicas changes nothing, on every replica alike.
        if self.node.apply_conf_change(&change).is_err() {
            return;
        }
        // The change may stem from an earlier leader. The library does not expect a leader without a vote.
        let (voters, _) = self.replicas();
        if self.role() == Role::Leader && !voters.contains(&self.options.id) {
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
        }
        for single in change.get_changes() {
            if single.get_change_type() == ConfChangeType::RemoveNode {
                self.topics.leave(single.node_id);
            }
        }
        if let Ok(member) = rmp_serde::from_slice::<Member>(&change.context) {
            self.topics.enter(member);
        }
    }

    fn state(&self) -> State {
        let raft = &self.node.raft;
        State { term: raft.term, vote: raft.vote, commit: raft.raft_log.committed, leader: self.leader_of_term() }
    }

    /// Whether entries were committed since the state was written last. The next entries are written with a newer state; without any, it is
    /// written by itself, so that this replica notices after a start if a leader has others in their place.
    fn has_unwritten_commit(&self) -> bool {
        self.state().commit > self.node.store().state().commit
    }

    fn propose(&mut self, serial: u64) {
        if let Some(pending) = self.pending.get_mut(&serial) {
            pending.ticks = 0;
            let context = if pending.early { EARLY.to_vec() } else { Vec::new() };
            // Without a leader, or while too many wait, it is dropped, and proposed again later.
            let _ = self.node.propose(context, pending.bytes.clone());
        }
    }

    /// The context of the question of a batch of reads: each start of a host counts its batches from the beginning.
    fn question(&self, batch: u64) -> Vec<u8> {
        [batch.to_le_bytes(), self.options.id.to_le_bytes(), self.options.boot.to_le_bytes()].concat()
    }

    fn ask(&mut self, batch: u64) {
        let question = self.question(batch);
        self.node.read_index(question);
    }

    fn change(&mut self, replica: u64, how: ConfChangeType, context: Vec<u8>) -> Result<()> {
        self.check_free()?;
        self.wake();
        let mut single = ConfChangeSingle { node_id: replica, ..ConfChangeSingle::default() };
        single.set_change_type(how);
        let mut change = ConfChangeV2 { context: context.into(), ..ConfChangeV2::default() };
        change.set_changes(vec![single].into());
        self.node.propose_conf_change(Vec::new(), change).map_err(failed)
    }

    /// Raft draws its timeouts from the thread's randomness: here they follow from the seed alone.
    fn set_timeout(&mut self) {
        let mut mixed = self.options.seed
            ^ self.options.id.rotate_left(17)
            ^ self.node.raft.term.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^= mixed >> 30;
        mixed = mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^= mixed >> 27;
        mixed = mixed.wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        self.node.raft.set_randomized_election_timeout(ELECTION_TICKS + (mixed % ELECTION_TICKS as u64) as usize);
    }
}

impl Pending {
    fn is_late(&mut self, serial: u64) -> Option<u64> {
        self.ticks += 1;
        if self.ticks < self.again {
            return None;
        }
        self.again = (2 * self.again).min(RETRY_MAX_TICKS);
        Some(serial)
    }
}

fn proposal(entry: Entry) -> Proposal {
    let form = match entry.get_entry_type() {
        EntryType::EntryNormal => Form::Command,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => Form::Change,
    };
    Proposal { term: entry.term, index: entry.index, form, data: entry.data.to_vec() }
}

fn envelope(message: Message) -> Envelope {
    Envelope { to: message.to, bytes: Said::Raft(Box::new(message)).bytes() }
}

fn failed(error: raft::Error) -> Error {
    Code::GroupBusy.error(format!("the group refuses: {error}"))
}
