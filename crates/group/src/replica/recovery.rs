//! A group that continues with one of its hosts, because the others are lost for good.
//!
//! What the host has of the group's log counts as committed, to the last entry: the others may have acknowledged any of these entries. Behind
//! it come changes that leave this host as the only replica, and a command for the topics. They have a new term, and are committed as soon as
//! they are on disk, so the next start of the host applies them like all others. Nothing of this is agreed on with other hosts: if one of
//! them lives, it goes on without this one. The driver sees to it that both never exchange messages again.

use super::{Options, Recovered, Replica, Turn};
use crate::{Action, Command, Form, Machine, Origin, Proposal, State, Write};
use millrace_wire::{Code, Result};
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};

impl Replica {
    /// The replica with everything that its log has applied, whether or not it was committed. It may only be read, and given to
    /// [`Replica::recover`].
    pub fn to_the_end(options: Options, mut recovered: Recovered, machine: Box<dyn Machine>) -> Result<Self> {
        recovered.complete();
        recovered.check()?;
        let (last, State { term, .. }) = (recovered.index.last(), recovered.index.state());
        let commit = recovered.index.state().commit;
        recovered.index.set_state(State { term, vote: 0, commit: last, leader: 0 });
        let mut replica = Self::new(options, recovered, machine)?;
        replica.certain = commit;
        while let Some(turn) = replica.take() {
            let held = replica.wrote(turn, Vec::new());
            replica.flushed(held);
        }
        if let Some(error) = replica.stopped() {
            return Err(error.clone());
        }
        match replica.progress() {
            (applied, ..) if applied == last => Ok(replica),
            (applied, ..) => {
                Err(Code::GroupLogDamaged.error(format!("entries up to {applied} of {last} could be applied")))
            }
        }
    }

    /// Of a replica that was brought to the end of its log: the last entry that it knew to be committed.
    pub fn committed_before(&self) -> u64 {
        self.certain
    }

    /// What is to be written so that this host is the only replica of the group from its next start on. The host had the identity `was`; `kept`
    /// is for the first group: see [`Action::Recover`].
    pub fn recover(&self, was: u64, kept: Option<Vec<u32>>) -> Result<Turn> {
        let (own, (voters, learners)) = (self.options.id, self.replicas());
        let others = voters.iter().chain(&learners).filter(|host| **host != own);
        let promoted = (!voters.contains(&own)).then_some((own, ConfChangeType::AddNode));
        let changes = promoted.into_iter().chain(others.map(|host| (*host, ConfChangeType::RemoveNode)));
        let mut entries: Vec<(Form, Vec<u8>)> = Vec::new();
        for (host, how) in changes {
            let mut single = ConfChangeSingle { node_id: host, ..ConfChangeSingle::default() };
            single.set_change_type(how);
            let change = ConfChangeV2 { changes: vec![single].into(), ..ConfChangeV2::default() };
            let bytes = change.write_to_bytes().map_err(|error| Code::HostInternal.error(error.to_string()))?;
            entries.push((Form::Change, bytes));
        }
        let (boot, serial) = (self.options.boot, 1);
        let origin = Origin { host: own, boot, serial, settled: serial };
        let command = Command { origin, action: Action::Recover { host: own, was, kept }, data: b"" };
        entries.push((Form::Command, command.encode()?));
        let ((_, _, last), term) = (self.progress(), self.term() + 1);
        let commit = last + entries.len() as u64;
        let writes = (last + 1..).zip(entries).map(|(index, (form, data))| Proposal { term, index, form, data });
        let writes = writes.map(Write::Entry).collect();
        Ok(Turn { writes, state: Some(State { term, vote: 0, commit, leader: 0 }), ..Turn::default() })
    }
}
