//! How a replica creates a snapshot, receives one from another replica, and sends its own to others.

use super::{Completed, Envelope, Replica, Role, Turn};
use crate::{
    Place, Topics,
    index::Slot,
    snapshot::{
        CHUNK_MAX_BYTES, Carried, Chunk, Fetch, Mark, PART_MAX_BYTES, Reached, Said, TOPICS_MAX_BYTES, Write, decode,
        encode,
    },
};
use raft::{SnapshotStatus, eraftpb::Message};
use std::collections::{HashMap, VecDeque};

/// Bytes that a snapshot of one's own writes in each unit of time.
const STEP_MAX_BYTES: usize = 2 << 20;
/// Units of time after which an unanswered question is asked again, and after which it is given up.
const AGAIN_TICKS: u32 = 8;
const GIVE_UP_TICKS: u32 = 160;
/// Ticks after which an unrequested snapshot is no longer offered, and after which the offer to a follower is repeated.
const OFFER_TICKS: u32 = 200;
const TOLD_AGAIN_TICKS: u32 = 40;

/// How much of the log stays.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the newest entries that stay for followers that are behind.
    pub trail_bytes: u64,
    /// It is trimmed once it is larger than twice what would remain, plus this number of bytes.
    pub spare_bytes: u64,
    /// The longest entry that can be kept.
    pub entry_max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { trail_bytes: 8 << 20, spare_bytes: 16 << 20, entry_max_bytes: 1 << 20 }
    }
}

/// A snapshot that is being written here.
pub(super) struct Intake {
    mark: Mark,
    kept: HashMap<u64, Slot>,
    begun: Option<Place>,
    source: Source,
}

enum Source {
    /// This replica: what is left to be written.
    Here { state: VecDeque<Vec<u8>>, entries: VecDeque<u64>, is_begun: bool },
    /// Another one.
    There(Box<There>),
}

struct There {
    from: u64,
    /// The message for Raft once the snapshot has arrived.
    offer: Message,
    reached: Reached,
    state: Vec<u8>,
    /// To be written.
    incoming: Vec<Write>,
    /// Once they are whole; and the bytes of the machine.
    topics: Option<(Topics, Vec<u8>)>,
    /// Raft was informed that it has arrived.
    is_told: bool,
    silent_ticks: u32,
}

/// A snapshot that others may have.
pub(super) struct Offer {
    mark: Mark,
    state: Vec<u8>,
    entries: Vec<u64>,
    idle_ticks: u32,
}

#[derive(Default)]
pub(super) struct Snapshots {
    intake: Option<Intake>,
    /// The snapshot that the turn which was taken puts in the place of the log's beginning.
    ending: Option<Intake>,
    offer: Option<Offer>,
    /// Units of time since a follower that needs a snapshot has asked for a part of it.
    silent: HashMap<u64, u32>,
    /// The log is examined again once it has this size.
    look_at_bytes: u64,
    step_due: bool,
    outbox: Vec<Envelope>,
    /// Everything in front of this place may go.
    trim: Option<Place>,
    received: u64,
}

impl Intake {
    fn new(mark: Mark, source: Source) -> Self {
        Self { mark, kept: HashMap::new(), begun: None, source }
    }
}

impl Replica {
    /// How many snapshots of other replicas took the place of this one's log.
    pub fn received(&self) -> u64 {
        self.snapshots.received
    }

    /// The first entry of the log, and about how many bytes the log has.
    pub fn log_size(&self) -> (u64, u64) {
        (self.node.store().base() + 1, self.node.store().bytes())
    }

    /// Whether the snapshot of another replica is not written yet although its topics are in use.
    pub(super) fn is_installing(&self) -> bool {
        self.snapshots.ending.as_ref().is_some_and(|intake| matches!(intake.source, Source::There(_)))
    }

    /// Whether a snapshot is being made, fetched or offered.
    pub(super) fn is_at_snapshot(&self) -> bool {
        let snapshots = &self.snapshots;
        let has_work = snapshots.intake.is_some() || snapshots.ending.is_some() || snapshots.offer.is_some();
        has_work || !snapshots.outbox.is_empty() || snapshots.trim.is_some()
    }

    pub(super) fn has_snapshot_work(&self) -> bool {
        let snapshots = &self.snapshots;
        let has_writes = snapshots.intake.as_ref().is_some_and(|intake| match &intake.source {
            Source::Here { .. } => snapshots.step_due,
            Source::There(there) => !there.incoming.is_empty(),
        });
        has_writes || !snapshots.outbox.is_empty() || snapshots.trim.is_some()
    }

    /// One unit of time.
    pub(super) fn tick_snapshots(&mut self) {
        self.snapshots.step_due = true;
        if let Some(offer) = &mut self.snapshots.offer {
            offer.idle_ticks += 1;
            if offer.idle_ticks > OFFER_TICKS {
                self.withdraw();
            }
        }
        if self.node.store().wanted.take() && self.role() == Role::Leader {
            self.offer();
        }
        let is_leader = self.role() == Role::Leader;
        let snapshots = &mut self.snapshots;
        let mut late = Vec::new();
        let raft = &self.node.raft;
        snapshots.silent.retain(|id, _| is_leader && raft.prs().get(*id).is_some());
        for (id, progress) in raft.prs().iter().filter(|_| is_leader) {
            if progress.state != raft::ProgressState::Snapshot {
                snapshots.silent.remove(id);
                continue;
            }
            let silent = snapshots.silent.entry(*id).or_default();
            *silent += 1;
            if *silent >= TOLD_AGAIN_TICKS {
                *silent = 0;
                late.push(*id);
            }
        }
        for id in late {
            // It may have died, or the message was lost: the message is repeated.
            self.node.report_snapshot(id, SnapshotStatus::Failure);
        }
        self.tick_intake();
        self.consider();
    }

    /// Raft has taken a snapshot that is here, and the next turn puts it in the place of the log.
    fn is_restoring(&self) -> bool {
        self.node.raft.snap().is_some()
    }

    fn tick_intake(&mut self) {
        if self.is_restoring() {
            return;
        }
        let committed = self.node.raft.raft_log.committed;
        let Some(Intake { mark, source: Source::There(there), .. }) = &mut self.snapshots.intake else { return };
        there.silent_ticks += 1;
        if committed >= mark.index || there.silent_ticks > GIVE_UP_TICKS {
            self.snapshots.intake = None;
        } else if there.topics.is_none() && there.silent_ticks.is_multiple_of(AGAIN_TICKS) {
            self.fetch();
        }
    }

    /// Begins a snapshot if the log is much longer than what would be left of it.
    fn consider(&mut self) {
        let limits = self.options.limits;
        let index = self.node.store();
        let look_at = self.snapshots.look_at_bytes.max(limits.spare_bytes);
        if self.snapshots.intake.is_some() || self.applied <= index.snapshot_index() || index.bytes() < look_at {
            return;
        }
        let Some(term) = index.term_of(self.applied) else { return };
        let Ok(state) = encode(&self.topics, &*self.machine) else { return };
        let mut trail = 0;
        let mut first = self.applied + 1;
        let offered = self.snapshots.offer.as_ref().map_or(u64::MAX, |offer| offer.mark.index);
        while first > index.base() + 1 && (trail < limits.trail_bytes || first > offered.saturating_add(1)) {
            first -= 1;
            trail += index.bytes_of(first);
        }
        let mut entries: Vec<u64> = self.topics.entries().filter(|entry| *entry < first).collect();
        entries.sort_unstable();
        let carried: u64 = entries.iter().map(|entry| index.bytes_of(*entry)).sum();
        let left = trail + carried + state.len() as u64;
        let before = index.term_of(first - 1);
        if index.bytes() < 2 * left + limits.spare_bytes || before.is_none() {
            self.snapshots.look_at_bytes = 2 * left + limits.spare_bytes;
            return;
        }
        let (voters, learners) = self.replicas();
        let before = before.unwrap_or_default();
        let mark = Mark { index: self.applied, term, first, before, voters, learners };
        let state = state.chunks(self.part_max_bytes()).map(<[u8]>::to_vec).collect();
        let source = Source::Here { state, entries: entries.into(), is_begun: false };
        self.snapshots.intake = Some(Intake::new(mark, source));
    }

    /// The number of bytes of topics in one part.
    fn part_max_bytes(&self) -> usize {
        PART_MAX_BYTES.min(self.options.limits.entry_max_bytes).max(1)
    }

    /// Lets followers have the topics as they are now.
    fn offer(&mut self) {
        if self.snapshots.offer.as_ref().is_some_and(|offer| offer.mark.index >= self.node.store().base()) {
            return;
        }
        let (voters, learners) = self.replicas();
        let (index, Some(term)) = (self.applied, self.node.store().term_of(self.applied)) else { return };
        let Ok(state) = encode(&self.topics, &*self.machine) else { return };
        if index == 0 {
            return;
        }
        let mark = Mark { index, term, first: index + 1, before: term, voters, learners };
        let mut entries: Vec<u64> = self.topics.entries().collect();
        entries.sort_unstable();
        self.node.mut_store().offered = Some(mark.clone());
        self.snapshots.offer = Some(Offer { mark, state, entries, idle_ticks: 0 });
    }

    fn withdraw(&mut self) {
        self.snapshots.offer = None;
        self.node.mut_store().offered = None;
    }

    /// Another replica offers a snapshot, which is fetched before Raft is informed.
    pub(super) fn offered(&mut self, message: Message) {
        let Some(mark) = Mark::of_message(message.get_snapshot()).filter(|_| !self.is_restoring()) else { return };
        let log = &self.node.raft.raft_log;
        let is_known = mark.index < log.committed || log.match_term(mark.index, mark.term);
        if mark.index == log.committed && !is_known {
            return; // No replica offers another end of what is committed.
        }
        if is_known || message.term < self.node.raft.term {
            let _ = self.node.step(message);
            return;
        }
        if let Some(Intake { mark: known, source: Source::There(there), .. }) = &mut self.snapshots.intake
            && (known.index, known.term, there.from) == (mark.index, mark.term, message.from)
        {
            (there.offer, there.is_told) = (message, false);
            self.complete();
            return;
        }
        let there = There {
            from: message.from,
            offer: message,
            reached: Reached::default(),
            state: Vec::new(),
            incoming: vec![Write::Begin],
            topics: None,
            is_told: false,
            silent_ticks: 0,
        };
        self.snapshots.intake = Some(Intake::new(mark, Source::There(Box::new(there))));
        self.fetch();
    }

    /// Asks for what comes next.
    fn fetch(&mut self) {
        let Some(Intake { mark, source: Source::There(there), .. }) = &self.snapshots.intake else { return };
        let (from, to, reached) = (self.options.id, there.from, there.reached);
        let said = Said::Fetch(Fetch { from, to, index: mark.index, term: mark.term, reached });
        self.snapshots.outbox.push(Envelope { to, bytes: said.bytes() });
    }

    /// Another replica asks for a part of a snapshot.
    pub(super) fn asked_for(&mut self, fetch: &Fetch) {
        let (voters, learners) = self.replicas();
        if fetch.to != self.options.id || !voters.iter().chain(&learners).any(|id| *id == fetch.from) {
            return;
        }
        self.snapshots.silent.insert(fetch.from, 0);
        let Fetch { index, term, reached: behind, .. } = *fetch;
        let (from, to) = (self.options.id, fetch.from);
        let (part, entries) = (Vec::new(), Vec::new());
        let mut chunk = Chunk { from, to, index, term, behind, reached: None, part, entries, is_last: false };
        let offer = self.snapshots.offer.as_mut().filter(|offer| (offer.mark.index, offer.mark.term) == (index, term));
        if let Some(offer) = offer {
            offer.idle_ticks = 0;
            let at = usize::try_from(behind.bytes).unwrap_or(usize::MAX).min(offer.state.len());
            chunk.part = offer.state[at..].iter().take(PART_MAX_BYTES).copied().collect();
            let mut reached = Reached { bytes: (at + chunk.part.len()) as u64, ..behind };
            let mut bytes = chunk.part.len();
            let is_whole = reached.bytes == offer.state.len() as u64;
            let rest = usize::try_from(behind.entries).unwrap_or(usize::MAX).min(offer.entries.len());
            for entry in offer.entries[rest..].iter().filter(|_| is_whole) {
                // A record that has left its topic meanwhile is gone; the requesting replica detects this.
                if let Some(read) = self.node.store().read(*entry) {
                    let Ok(read) = read else { return };
                    if bytes > 0 && bytes + read.data.len() > CHUNK_MAX_BYTES {
                        break;
                    }
                    bytes += read.data.len() + size_of::<Carried>();
                    chunk.entries.push(Carried { index: read.index, term: read.term, data: read.data });
                }
                reached.entries += 1;
            }
            chunk.is_last = is_whole && reached.entries == offer.entries.len() as u64;
            chunk.reached = Some(reached);
        }
        self.snapshots.outbox.push(Envelope { to, bytes: Said::Chunk(chunk).bytes() });
    }

    /// A part of a snapshot arrives.
    pub(super) fn arrived(&mut self, chunk: Chunk) {
        let (most, part_max_bytes) = (self.options.limits.entry_max_bytes, self.part_max_bytes());
        let Some(Intake { mark, source: Source::There(there), .. }) = &mut self.snapshots.intake else { return };
        let is_next = (chunk.from, chunk.to) == (there.from, self.options.id)
            && (chunk.index, chunk.term) == (mark.index, mark.term)
            && chunk.behind == there.reached
            && there.topics.is_none();
        if !is_next {
            return;
        }
        there.silent_ticks = 0;
        let state_bytes = there.state.len() + chunk.part.len();
        let fits = state_bytes <= TOPICS_MAX_BYTES
            && chunk.part.len() <= PART_MAX_BYTES
            && chunk.entries.iter().all(|entry| entry.index <= mark.index && entry.data.len() <= most);
        let Some(reached) = chunk.reached.filter(|_| fits) else {
            self.snapshots.intake = None;
            return;
        };
        there.reached = reached;
        there.state.extend_from_slice(&chunk.part);
        there.incoming.extend(chunk.part.chunks(part_max_bytes).map(|part| Write::Part(part.to_vec())));
        there.incoming.extend(chunk.entries.into_iter().map(|entry| Write::Kept(entry.into())));
        if !chunk.is_last {
            self.fetch();
            return;
        }
        match decode(&there.state, &*self.machine) {
            Ok((topics, machine)) => there.topics = Some((topics, machine.to_vec())),
            Err(_) => self.snapshots.intake = None,
        }
    }

    /// Tells Raft of a snapshot that is here and written.
    pub(super) fn complete(&mut self) {
        let Some(Intake { source: Source::There(there), .. }) = &mut self.snapshots.intake else { return };
        if there.topics.is_some() && there.incoming.is_empty() && !there.is_told {
            // Of another term by now, it is offered again.
            there.is_told = true;
            let _ = self.node.step(there.offer.clone());
            self.set_timeout();
        }
    }

    /// Raft has taken the snapshot of another replica: it ends, and the topics are its own.
    pub(super) fn restore(&mut self, index: u64, term: u64, turn: &mut Turn) {
        let Some(mut intake) = self.snapshots.intake.take() else { return };
        if let Source::There(there) = &mut intake.source
            && (intake.mark.index, intake.mark.term) == (index, term)
            && let Some((topics, machine)) = there.topics.take()
        {
            self.topics = topics;
            self.machine.restore(&machine);
            self.applied = index;
            turn.applied = true;
            self.settle(turn);
            turn.writes.push(Write::End(intake.mark.clone()));
            // Those of the log that it replaces were compared with these.
            let leaders = Self::named(&there.offer);
            turn.writes.extend((!leaders.is_empty()).then_some(Write::Led(leaders)));
            self.snapshots.received += 1;
            self.snapshots.ending = Some(intake);
        }
    }

    /// Commands of this replica that the snapshot contains are settled: their entries will not be applied here.
    fn settle(&mut self, turn: &mut Turn) {
        let (host, boot) = (self.options.id, self.options.boot);
        for serial in self.pending.keys().copied().collect::<Vec<_>>() {
            if let Some(outcome) = self.topics.outcome(host, boot, serial).cloned() {
                self.forget(serial);
                turn.completed.push(Completed { serial, outcome });
            }
        }
    }

    /// Adds what is to be written of a snapshot, and what is to be said about one.
    pub(super) fn snapshot_turn(&mut self, turn: &mut Turn) {
        turn.trim = self.snapshots.trim.take();
        turn.before_disk.append(&mut self.snapshots.outbox);
        let is_due = std::mem::take(&mut self.snapshots.step_due);
        let Some(mut intake) = self.snapshots.intake.take() else { return };
        match &mut intake.source {
            Source::There(there) => turn.writes.append(&mut there.incoming),
            Source::Here { state, entries, is_begun } if is_due => {
                if !std::mem::replace(is_begun, true) {
                    turn.writes.push(Write::Begin);
                }
                let mut bytes = 0;
                while bytes < STEP_MAX_BYTES {
                    if let Some(part) = state.pop_front() {
                        bytes += part.len();
                        turn.writes.push(Write::Part(part));
                    } else if let Some(entry) = entries.pop_front() {
                        match self.node.store().read(entry) {
                            Some(Ok(entry)) => {
                                bytes += entry.data.len() + size_of::<Carried>();
                                turn.writes.push(Write::Kept(entry));
                            }
                            // It was gone when another replica let this one have its snapshot.
                            None => {}
                            // The log is not changed: reading it for a caller reports the error.
                            Some(Err(_)) => {
                                self.snapshots.look_at_bytes = 2 * self.node.store().bytes();
                                return;
                            }
                        }
                    } else {
                        turn.writes.push(Write::End(intake.mark.clone()));
                        let leaders = self.node.store().leaders().clone();
                        turn.writes.extend((!leaders.is_empty()).then_some(Write::Led(leaders)));
                        turn.state = Some(self.state());
                        self.snapshots.ending = Some(intake);
                        return;
                    }
                }
            }
            Source::Here { .. } => {}
        }
        self.snapshots.intake = Some(intake);
    }

    /// Takes note of where something of a snapshot was written.
    pub(super) fn wrote_snapshot(&mut self, write: Write, place: Place) {
        self.node.mut_store().count(write.bytes());
        if let Write::Led(leaders) = &write {
            self.node.mut_store().note_leaders(leaders);
            return;
        }
        let intake = self.snapshots.ending.as_mut().or(self.snapshots.intake.as_mut());
        let Some(intake) = intake else { return };
        match write {
            Write::Begin => intake.begun = Some(place),
            Write::Kept(entry) => {
                let bytes = u32::try_from(entry.data.len()).unwrap_or(u32::MAX);
                intake.kept.insert(entry.index, Slot { term: entry.term, place, bytes, form: entry.form });
            }
            Write::End(mark) => {
                let Some(Intake { kept, begun, .. }) = self.snapshots.ending.take() else { return };
                let index = self.node.mut_store();
                index.install(&mark, kept);
                let first = index.place(index.base() + 1).unwrap_or(place);
                self.snapshots.trim = Some(begun.map_or(first, |begun| begun.min(first)));
                self.snapshots.look_at_bytes = 0;
                index.trimmed();
            }
            Write::Part(_) | Write::Entry(_) | Write::Led(_) => {}
        }
    }
}
