//! How a group without work rests, so that a host can have very many.
//!
//! A leader whose followers all have the whole log stops its clock and its heartbeats. Instead, its host sends one message to each other
//! host, at the pace of heartbeats, that names all groups which rest under it: [`Beat`]. A follower in the same state stops its clock as
//! long as it receives such messages; once it receives none, it counts the time since the last one as time without a leader. Any message,
//! command or read ends the rest. A follower whose state differs from its leader's reports this, and the leader resumes heartbeats.

use super::{MessageType, Replica, Role, Said, StateRole};

/// A leader rests after this number of ticks without work.
const IDLE_TICKS: u32 = 20;
/// A follower that receives nothing about its group for more ticks no longer rests. Two beats may be lost.
const SILENT_TICKS: u32 = 6;
/// A voting replica that should no longer keep the group processes only one of this many ticks: it may be needed to elect a leader that
/// removes its vote, and must not disturb the group afterwards.
const LEAVING_TICKS: u32 = 8;

/// The message about a group that rests under its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The leader's term.
    pub term: u64,
    /// The last entry, which is committed and applied.
    pub commit: u64,
}

#[derive(Default)]
pub(super) struct Rest {
    is_resting: bool,
    /// Ticks that a leader has had no work, and the last entry since then.
    idle_ticks: u32,
    last: u64,
    /// Ticks since a follower has heard of its group.
    silent_ticks: u32,
}

impl Replica {
    /// Lets one unit of time pass.
    pub fn tick(&mut self) {
        if self.is_writing {
            return;
        }
        self.age = self.age.wrapping_add(1);
        if self.rest.is_resting {
            if self.role() != Role::Leader {
                self.rest.silent_ticks += 1;
                if self.rest.silent_ticks > SILENT_TICKS {
                    self.wake();
                }
            }
            return;
        }
        let is_needed = self.is_placed() || self.role() == Role::Leader || !self.pending.is_empty();
        let is_leaving = self.node.raft.promotable() && self.age.is_multiple_of(LEAVING_TICKS);
        if !is_needed && !is_leaving {
            return;
        }
        let last = self.node.raft.raft_log.last_index();
        let is_idle = self.role() == Role::Leader && self.rest.last == last && self.is_level() && self.all_have(last);
        self.rest.last = last;
        self.rest.idle_ticks = if is_idle { self.rest.idle_ticks + 1 } else { 0 };
        self.tick_awake();
        if self.rest.idle_ticks >= IDLE_TICKS && self.node.raft.lead_transferee.is_none() {
            self.begin_rest();
        }
    }

    /// Whether it rests.
    pub fn is_resting(&self) -> bool {
        self.rest.is_resting
    }

    /// The message of a resting leader to the other replicas.
    pub fn beat(&self) -> Option<Beat> {
        let leads = self.rest.is_resting && self.role() == Role::Leader;
        leads.then(|| Beat { term: self.node.raft.term, commit: self.node.raft.raft_log.committed })
    }

    /// Hears that the group rests under this leader. False if that does not fit the state here, which the leader has to know.
    pub fn hears(&mut self, leader: u64, beat: Beat) -> bool {
        if self.is_writing {
            return true;
        }
        let raft = &self.node.raft;
        let fits = raft.state == StateRole::Follower
            && (raft.leader_id, raft.term, raft.raft_log.committed) == (leader, beat.term, beat.commit)
            && (self.rest.is_resting || self.is_level());
        if fits {
            self.begin_rest();
            // As by a heartbeat.
            self.node.raft.election_elapsed = 0;
        }
        fits
    }

    /// Ends the rest.
    pub fn wake(&mut self) {
        if !self.rest.is_resting || self.is_writing {
            return;
        }
        let Rest { silent_ticks, .. } = std::mem::take(&mut self.rest);
        if self.role() == Role::Leader {
            self.node.ping();
        }
        for _ in 0..silent_ticks {
            self.node.tick();
        }
        self.set_timeout();
    }

    /// Whether a message is an answer to a heartbeat that a leader sent before it rested: it need not wake for that.
    pub(super) fn is_about_the_past(&self, said: &Option<Said>) -> bool {
        let Some(Said::Raft(message)) = said else { return false };
        message.get_msg_type() == MessageType::MsgHeartbeatResponse
            && self.role() == Role::Leader
            && message.term == self.node.raft.term
            && message.context.is_empty()
    }

    fn begin_rest(&mut self) {
        if !self.rest.is_resting {
            self.node.mut_store().forget_recent();
        }
        self.rest = Rest { is_resting: true, ..Rest::default() };
    }

    /// Whether nothing is left to be done here.
    fn is_level(&self) -> bool {
        let (raft, log) = (&self.node.raft, &self.node.raft.raft_log);
        let last = log.last_index();
        (log.committed, log.applied, log.persisted, self.applied) == (last, last, last, last)
            && self.pending.is_empty()
            && self.asked.is_empty()
            && self.waiting.is_empty()
            && self.stored.is_empty()
            && !self.gathering.1
            && self.safe >= self.binding
            && raft.lead_transferee.is_none()
            && !raft.has_pending_conf()
            && !self.is_at_snapshot()
            && !self.node.has_ready()
    }

    /// Whether all replicas have the log up to here.
    fn all_have(&self, index: u64) -> bool {
        self.node.raft.prs().iter().all(|(_, progress)| progress.matched >= index)
    }
}
