//! What a replica may take in while an earlier turn is being flushed.
//!
//! A flush takes longer than a message between hosts. A driver that takes nothing meanwhile learns late that others have flushed; one that
//! takes everything writes every entry in a batch of its own. So it takes what writes nothing, and leaves new entries for the next flush.
//!
//! Three rules keep the order of persistence:
//!
//! * Only messages of the current term are taken ahead, and no requests for votes. So none of them changes term or vote.
//! * A leader counts its own disk as one of a majority only behind [`Replica::flushed`], and no replica applies an entry in front of that
//!   (`next_entries_since` of the library ends at the last entry that is on disk). So nothing is acknowledged, and no topic shows a record,
//!   because of an entry that a flush has yet to keep.
//! * A commit is believed up to the last entry that this replica has told the same leader in the same term that it has. Up to there its log
//!   is the leader's; behind it there may be entries of an earlier leader, which were never agreed on.
//!
//! A turn that has to be written all the same, because a committed change of the replicas was applied, binds all messages behind it until it
//! is flushed, as ever.

use super::{MessageType, Replica, Role, Said, min};

/// A message of another replica, decoded.
pub struct Incoming(pub(super) Option<Box<Said>>);

impl Incoming {
    /// Decodes a message.
    pub fn parse(bytes: &[u8]) -> Self {
        Self(Said::parse(bytes).map(Box::new))
    }
}

impl Replica {
    /// Takes a message while a turn is being flushed, and returns which replica sent it; or gives back one that may have to be written. It is
    /// for [`Replica::take_in`] after the flush, but how far it says that entries are committed counts now.
    pub fn take_ahead(&mut self, incoming: Incoming) -> Result<Option<u64>, Incoming> {
        let Some(Said::Raft(message)) = incoming.0.as_deref() else {
            let writes = matches!(incoming.0.as_deref(), Some(Said::Fetch(_) | Said::Chunk(_)));
            return if writes { Err(incoming) } else { Ok(self.take_in(incoming)) };
        };
        let raft = &self.node.raft;
        if message.term != raft.term || message.to != self.options.id {
            return Err(incoming);
        }
        let log = &raft.raft_log;
        let writes_nothing = match message.get_msg_type() {
            MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgReadIndexResp => true,
            // Entries in front of it may wait: it would be rejected.
            MessageType::MsgAppend => message.entries.is_empty() && message.index <= log.last_index(),
            _ => false,
        };
        if writes_nothing {
            return Ok(self.take_in(incoming));
        }
        if message.get_msg_type() == MessageType::MsgAppend && message.from == raft.leader_id {
            let commit = message.commit;
            self.hear_of_commit(commit);
        }
        Err(incoming)
    }

    /// The leader of this term says that entries are committed.
    fn hear_of_commit(&mut self, commit: u64) {
        let follows = matches!(self.role(), Role::Follower | Role::Learner);
        let (term, agreed) = self.agreed;
        let is_current = term == self.node.raft.term;
        let log = &mut self.node.raft.raft_log;
        if follows && is_current {
            log.commit_to(min(commit, min(agreed, log.last_index())));
        }
    }

    /// Notes up to which entry this replica tells the leader of its term that it has the leader's log.
    pub(super) fn note_agreed(&mut self, messages: &[raft::eraftpb::Message]) {
        let told = messages.iter().filter(|message| message.get_msg_type() == MessageType::MsgAppendResponse);
        for message in told.filter(|message| !message.reject) {
            let before = if self.agreed.0 == message.term { self.agreed.1 } else { 0 };
            self.agreed = (message.term, before.max(message.index));
        }
    }
}
