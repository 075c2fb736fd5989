//! The switch: follows the events since the replays, behind a fence, and points the slots of logs to the entries of the repair.

use crate::{
    across::{Rounds, seeds},
    book::{Note, Phase, news, note, prepared, repair},
    open::deployed_since,
    past::At,
    session::{Session, check_kept},
};
use millrace_journal::{Position, Transaction};
use millrace_namespace::{
    admission::{Publish, Room, Stage},
    outbox::{NewMessage, log_of, message, state::State},
};
use millrace_wire::{Address, Code, Result};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// How long runs wait for the decision about a prepared part. Meanwhile, the initiator decides or requests the preparation again.
pub(crate) const FENCE: Duration = Duration::from_secs(10);

impl Session<'_> {
    /// Notes that all affected runs are replayed that had ended when the replay began its last pass.
    pub(crate) fn ready(&mut self) -> Result<()> {
        let (number, counts, seeds) = (self.repair, self.count(), self.seeds.covered(&self.past));
        let (not_run, topics) = (self.not_run(), self.topics()?);
        self.namespace.journal().commit(|tx| {
            self_expect(repair(self.namespace, number)?.phase, Phase::Running, number)?;
            note(tx, &Note::Ready { repair: number, counts, seeds, not_run, topics })
        })?;
        Ok(())
    }

    /// Applies the repair. Meanwhile, runs that have used a replaced record wait, so at the end no new runs have to be replayed.
    pub(crate) fn apply(&mut self, rounds: Option<&mut Rounds<'_>>) -> Result<()> {
        let fence = self.namespace.fence();
        let applied = self.switch(rounds);
        match applied {
            // Some runs in progress may have begun before the switch.
            Ok(at) => fence.applied(at),
            Err(_) => fence.lower(),
        }
        applied.map(drop)
    }

    /// Prepares a part of a repair of another namespace, and applies it if the initiator decides soon. Until then, runs that have used a
    /// replaced record wait; if the initiator takes longer, they continue, and are replayed before the part is applied.
    pub(crate) fn take_part(&mut self) -> Result<()> {
        let fence = self.namespace.fence();
        let prepared = self.prepare();
        match prepared {
            Ok(true) => self.apply(None),
            Ok(false) => {
                fence.lower();
                Ok(())
            }
            Err(error) => {
                fence.lower();
                Err(error)
            }
        }
    }

    /// Whether the initiator has switched.
    fn prepare(&mut self) -> Result<bool> {
        let (namespace, number) = (self.namespace, self.repair);
        let journal = namespace.journal();
        loop {
            let (noted, found) = (news(namespace)?, repair(namespace, number)?);
            match found.phase {
                Phase::Preparing => {}
                Phase::Committing => return Ok(true),
                Phase::Prepared => {
                    let since = Instant::now();
                    loop {
                        let (wakes, defined) = (journal.wakes(), journal.catalog_version());
                        if self.stop.load(Ordering::Acquire) {
                            return Err(Code::HostStopping.error("the host is stopping"));
                        }
                        if news(namespace)? != noted {
                            break;
                        }
                        let Some(left) = FENCE.checked_sub(since.elapsed()) else { return Ok(false) };
                        journal.wait_change(None, defined, wakes, left)?;
                    }
                    continue;
                }
                _ => return Ok(false),
            }
            self.settle_all()?;
            let (counts, seeds) = (self.count(), self.seeds.covered(&self.past));
            let prepared = journal.commit(|tx| {
                if self.past.position() < tx.tail() {
                    self.follow()?;
                }
                if news(namespace)? != noted || self.is_behind()? || self.seeds.is_behind(namespace)? {
                    return Ok(());
                }
                self.check_streaming()?;
                check_kept(journal, &found)?;
                let not_run = self.not_run();
                note(tx, &Note::Prepared { repair: number, counts, seeds, not_run }).map(drop)
            });
            prepared?;
        }
    }

    /// Replays runs that have ended since, behind a fence.
    fn settle_all(&mut self) -> Result<()> {
        let (namespace, number) = (self.namespace, self.repair);
        let function = self.code.as_ref().map(|(code, _)| code.function);
        namespace.fence().raise(number, self.fenced(), function);
        self.follow()?;
        self.take_seeds()?;
        self.replay(&mut |_, _, _| {})?;
        self.check_size()?;
        // Runs that end after the switch and began before it are compared with these slots, so what the replays added belongs to them.
        namespace.fence().raise(number, self.fenced(), function);
        Ok(())
    }

    fn switch(&mut self, mut rounds: Option<&mut Rounds<'_>>) -> Result<Position> {
        let (namespace, number) = (self.namespace, self.repair);
        loop {
            self.settle_all()?;
            if let Some(rounds) = &mut rounds {
                let told = rounds.exchange(self, true)?;
                self.settle_all()?;
                if self.changes != told {
                    continue; // What has changed here since, others do not know.
                }
            }
            // No other process writes entries of this repair, and none can append while the journal is locked, so slow work is done before.
            let (noted, found) = (news(namespace)?, repair(namespace, number)?);
            match (found.phase, &found.part_of) {
                (Phase::Running, None) | (Phase::Committing, Some(_)) => {}
                (phase, _) => self_expect(phase, Phase::Applying, number)?,
            }
            let (counts, rows) = (self.count(), self.rows());
            // The runs that have ended while the fence of a prepared part was down.
            let late = match (prepared(namespace, &found)?, self.past.written.get(&number)) {
                (Some(prepared), Some(written)) => written.slots.values().any(|at| at.position > prepared),
                _ => false,
            };
            let committed = namespace.journal().commit(|tx| {
                if self.past.position() < tx.tail() {
                    self.follow()?;
                }
                if news(namespace)? != noted || self.is_behind()? {
                    return Ok(false);
                }
                self.check_streaming()?;
                check_kept(namespace.journal(), &found)?;
                let mut publish = Publish::new(namespace, tx);
                self.append_extra(tx, &mut publish)?;
                tx.generation(number, &rows)?;
                self.restate(tx, &mut publish)?;
                let deployed = self.deploy(tx)?;
                let (not_run, topics) = (self.not_run(), self.topics()?);
                note(tx, &Note::Applied { repair: number, counts, deployed, not_run, topics, late })?;
                seeds::forget(tx, number)?;
                Ok(true)
            })?;
            if committed.value {
                return Ok(committed.end);
            }
        }
    }

    /// The slots of this namespace that switch, and the positions of their new entries.
    fn rows(&self) -> Vec<(u32, u64, Position)> {
        let is_own = |slot: &((u32, u64), At)| !self.past.is_outbox(slot.0.0);
        let rows = self.overlay.iter().filter(is_own);
        let mut rows: Vec<_> = rows.map(|((log, seqno), at)| (log, seqno, at.position)).collect();
        rows.sort_unstable();
        rows
    }

    /// Stages the additional records of replayed runs. Functions bound to their logs run for them.
    fn append_extra(&self, tx: &mut Transaction<'_>, publish: &mut Publish<'_>) -> Result<()> {
        let extra = self.past.written.get(&self.repair).map_or(&[][..], |written| &written.extra);
        if extra.is_empty() {
            return Ok(());
        }
        let peers = State::load(self.namespace)?.peers;
        for extra in extra {
            // A log that was removed since has no readers.
            let Some(log) = tx.catalog().log_by_id(extra.log).cloned() else { continue };
            let entry = self.namespace.journal().entry_at(extra.position)?;
            let payload = &entry.payload;
            let (cause, ordinal) = (extra.run, extra.ordinal);
            if self.past.is_outbox(extra.log) {
                let message = message::decode(payload)?;
                let Some(peer) = peers.iter().find(|peer| log_of(&peer.name) == *log.name()) else { continue };
                let to = Address { peer: peer.address.peer.clone(), log: Some(message.log.parse()?) };
                let letter = NewMessage { to: &to, function: None, data: message.data, cause, ordinal };
                publish.send(tx, Room::Run, letter)?;
                continue;
            }
            let stage = Stage { cause, ordinal, room: Room::DeadLetter, named: None, ending: None };
            match entry.row() {
                Some(row) => publish.append_late(tx, &log, &row, payload, stage)?,
                None => drop(publish.append(tx, &log, payload, stage)?),
            }
        }
        Ok(())
    }

    /// Stages the new definition of the function whose code is replaced, in the same batch, so that no run can start between the two.
    /// Returns its revision.
    fn deploy(&self, tx: &mut Transaction<'_>) -> Result<Option<u32>> {
        let Some((code, _)) = &self.code else { return Ok(None) };
        match tx.catalog().function_by_id(code.function) {
            Some(function) if function.revision() == code.revision => {}
            _ => return Err(deployed_since(&code.name, self.repair)),
        }
        Ok(Some(tx.define_function(&code.name, &code.attributes)?.revision()))
    }
}

fn self_expect(found: Phase, expected: Phase, number: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Code::RepairPhase.error(format!("repair {number} has changed meanwhile: it is {}", found.as_str())))
}
