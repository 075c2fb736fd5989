//! Messages of other replicas: which of them are passed to Raft, and which end this replica's participation; and who led in which term.

use super::Replica;
use crate::{Command, Leaders, Mark, snapshot::Said};
use millrace_wire::{Code, Error};
use raft::eraftpb::{Entry, EntryType, Message, MessageType};

impl Replica {
    /// Handles a message of another replica; returns that replica. A message that cannot be decoded is ignored, like a lost one.
    pub fn step(&mut self, bytes: &[u8]) -> Option<u64> {
        if self.is_writing {
            return None;
        }
        let said = Said::parse(bytes);
        if !self.is_about_the_past(&said) {
            self.wake();
        }
        let message = match said {
            Some(Said::Raft(message)) => *message,
            Some(Said::Fetch(fetch)) => {
                self.asked_for(&fetch);
                return None;
            }
            Some(Said::Chunk(chunk)) => {
                self.arrived(chunk);
                return None;
            }
            Some(Said::Stored(stored)) => {
                self.is_stored(&stored);
                return None;
            }
            None => return None,
        };
        if message.to != self.options.id || !self.is_sound(&message) {
            return None;
        }
        let from = message.from;
        // A later message may begin another term before this one's entries are taken.
        self.note_leader();
        if message.get_msg_type() == MessageType::MsgAppend {
            self.heard.note(message.term, from, u64::MAX);
            self.heard.note_all(&Self::named(&message));
        }
        if message.get_msg_type() == MessageType::MsgSnapshot {
            self.offered(message);
        } else {
            // Answers of removed replicas are refused.
            let _ = self.node.step(message);
        }
        self.note_leader();
        self.set_timeout();
        Some(from)
    }

    /// Whether replicas send such messages: at others, the Raft library panics.
    fn is_sound(&mut self, message: &Message) -> bool {
        if let Some(entry) = message.entries.iter().find(|entry| entry.data.len() > self.options.limits.entry_max_bytes)
        {
            self.too_long_bytes = entry.data.len();
            return false;
        }
        let log = &self.node.raft.raft_log;
        let last = log.last_index();
        if message.from == 0 || message.from == self.options.id {
            return false;
        }
        let is_replica = self.node.raft.prs().get(message.from).is_some();
        if self.is_second_leader(message) {
            return false;
        }
        match message.get_msg_type() {
            MessageType::MsgSnapshot => Mark::of_message(message.get_snapshot()).is_some_and(|mark| {
                let committed = self.node.raft.raft_log.committed;
                let of_committed = Self::named(message).term_at(committed).filter(|_| committed <= mark.index);
                let entries = of_committed.map(|term| (committed, term)).into_iter().chain([(mark.index, mark.term)]);
                mark.voters.iter().chain(&mark.learners).any(|id| *id == self.options.id)
                    && self.agrees(message, &entries.collect::<Vec<_>>())
            }),
            // A host that was removed may still know the leader.
            MessageType::MsgPropose => is_replica && !message.entries.is_empty() && self.knows(&message.entries),
            MessageType::MsgReadIndex => is_replica && message.entries.len() == 1,
            MessageType::MsgHeartbeat => {
                // The message has the index up to which this replica has acknowledged the log.
                if message.commit > last && message.term >= self.node.raft.term {
                    let detail = format!(
                        "this host had acknowledged entry {} of the group's log, and has {last} now: its directory was replaced by an older copy",
                        message.commit
                    );
                    self.stopped.get_or_insert_with(|| Code::GroupLogDamaged.error(detail));
                }
                message.commit <= last
            }
            MessageType::MsgAppendResponse => message.index <= last && message.reject_hint <= last,
            MessageType::MsgAppend => {
                let follows =
                    |(at, entry): (u64, &Entry)| message.index.checked_add(at) == Some(entry.index) && entry.term > 0;
                let is_sound =
                    (message.index == 0 || message.log_term > 0) && (1..).zip(&*message.entries).all(follows);
                let before = std::iter::once((message.index, message.log_term));
                let entries = before.chain(message.entries.iter().map(|entry| (entry.index, entry.term)));
                is_sound && self.agrees(message, &entries.collect::<Vec<_>>())
            }
            _ => true,
        }
    }

    /// Whether a message is of a leader in a term that had another one, or is about entries of such a term. A host votes once in a term, so
    /// hosts that elected them have lost a vote that they had given. Entries of the two look alike: which of them are committed is unknown.
    fn is_second_leader(&mut self, message: &Message) -> bool {
        let is_of_leader = matches!(
            message.get_msg_type(),
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
        );
        if !is_of_leader {
            return false;
        }
        let leads = std::iter::once((message.term, message.from));
        let differs = |(term, leader): (u64, u64)| {
            let known = self.leader_in(term);
            (known != 0 && known != leader).then_some((term, known, leader))
        };
        let Some((term, known, leader)) = leads.chain(Self::named(message).iter()).find_map(differs) else {
            return false;
        };
        let detail = format!(
            "hosts {known:016x} and {leader:016x} both lead in term {term}: a host that elected one of them has lost its vote, for instance \
             because its directory was replaced by an older copy"
        );
        self.stopped.get_or_insert_with(|| Code::GroupDiverged.error(detail));
        true
    }

    /// The leaders that a message names. Hosts of earlier versions name none.
    pub(super) fn named(message: &Message) -> Leaders {
        let names = matches!(message.get_msg_type(), MessageType::MsgAppend | MessageType::MsgSnapshot);
        Some(message).filter(|_| names).and_then(|message| Leaders::parse(&message.context)).unwrap_or_default()
    }

    /// The message with the leaders of the terms of its entries and of the entry before them, so that the receiver does not take entries of
    /// another leader for these. A snapshot takes the place of entries of many terms.
    pub(super) fn naming(&self, mut message: Message) -> Message {
        let leaders = self.node.store().leaders();
        message.context = match message.get_msg_type() {
            MessageType::MsgSnapshot => leaders.bytes().into(),
            MessageType::MsgAppend => {
                let terms = message.entries.iter().map(|entry| entry.term).chain([message.log_term]);
                let earlier = terms.filter(|term| *term != message.term);
                leaders.only(earlier).bytes().into()
            }
            _ => return message,
        };
        message
    }

    /// The leaders of the terms of these entries, which are about to be written, unless they are written already.
    pub(super) fn first_of_terms(&mut self, entries: &[Entry]) -> Option<Leaders> {
        let written = self.node.store().leaders();
        let mut led = Leaders::default();
        for Entry { term, index, .. } in entries.iter().filter(|entry| written.of(entry.term) == 0) {
            if self.heard.of(*term) != 0 {
                led.note(*term, self.heard.of(*term), *index);
            }
        }
        self.heard.clear();
        (!led.is_empty()).then_some(led)
    }

    /// Remembers the leader. Whatever is sent in its term waits until this is on disk: see [`State::leader`].
    pub(super) fn note_leader(&mut self) {
        let raft = &self.node.raft;
        if raft.leader_id != 0 {
            self.led = (raft.term, raft.leader_id);
            self.heard.note(raft.term, raft.leader_id, u64::MAX);
        }
    }

    /// The leader of the current term, also if it is gone; 0 if none is known.
    pub(super) fn leader_of_term(&self) -> u64 {
        let raft = &self.node.raft;
        match self.led {
            (term, leader) if raft.leader_id == 0 && term == raft.term => leader,
            _ => raft.leader_id,
        }
    }

    /// The leader of a term; 0 if none is known.
    fn leader_in(&self, term: u64) -> u64 {
        let of_current = if term == self.node.raft.term { self.leader_of_term() } else { 0 };
        let known = [of_current, self.heard.of(term), self.node.store().leaders().of(term)];
        known.into_iter().find(|leader| *leader != 0).unwrap_or(0)
    }

    /// Whether a leader's entries, given by index and term, are those that are committed here. Each leader has all committed entries, so one
    /// that has another entry in the place of a committed one was elected by hosts that have lost acknowledged entries: this replica has
    /// them, and stops instead of following.
    fn agrees(&mut self, message: &Message, entries: &[(u64, u64)]) -> bool {
        let raft = &self.node.raft;
        // A leader of the past may know less, and no leader has entries of later terms.
        if message.term < raft.term || entries.iter().any(|(_, term)| *term > message.term) {
            return true;
        }
        let log = &raft.raft_log;
        let base = log.first_index() - 1;
        let differs = |(at, term): &&(u64, u64)| match *at {
            at if at == 0 || at > log.committed => false,
            // The terms of trimmed entries are not known, but none is above that of the last of them.
            at if at < base => log.term(base).is_ok_and(|of_last| *term > of_last),
            at => log.term(at).is_ok_and(|known| known != *term),
        };
        let Some((at, term)) = entries.iter().find(differs).copied() else { return true };
        let (leader, committed) = (message.from, log.committed);
        let detail = format!(
            "the leader, host {leader:016x}, has another entry {at} (term {term}) than this host, which knows that entries up to \
             {committed} were committed: hosts that elected this leader have lost acknowledged entries, for instance because the directory \
             of one was replaced by an older copy"
        );
        self.stopped.get_or_insert_with(|| Code::GroupDiverged.error(detail));
        false
    }

    /// Whether this version knows the commands that another host submits: no host of this version could apply others.
    fn knows(&mut self, entries: &[Entry]) -> bool {
        let commands = entries.iter().filter(|entry| entry.get_entry_type() == EntryType::EntryNormal);
        let unknown =
            commands.filter(|entry| !entry.data.is_empty()).find_map(|entry| Command::known(&entry.data).err());
        let is_known = unknown.is_none();
        self.refused = unknown.or(self.refused.take());
        is_known
    }

    /// Why a command of another host was refused: it is of a newer version.
    pub fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Why this replica applies no more commands and must not participate: it does not know a committed command, or it has lost entries
    /// that it had acknowledged.
    pub fn stopped(&self) -> Option<&Error> {
        self.stopped.as_ref()
    }

    /// The length of an entry from another replica that is too long to be stored here; 0 if there was none.
    pub fn too_long_bytes(&self) -> usize {
        self.too_long_bytes
    }
}
