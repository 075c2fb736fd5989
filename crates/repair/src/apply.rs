//! The switch: follows the events since the replays, behind a fence, and points the slots of logs to the entries of the repair.

use crate::{
    book::{Note, Phase, note, repair},
    open::deployed_since,
    session::{Session, check_kept},
};
use millrace_journal::{Position, Transaction};
use millrace_namespace::admission::{Publish, Room, Stage};
use millrace_wire::{Code, Result};

/// The most slots that one repair gives: all of them are in one batch.
const SLOTS_MAX: usize = 1_000_000;

impl Session<'_> {
    /// Notes that everything was replayed that had ended when it was looked at.
    pub(crate) fn ready(&mut self) -> Result<()> {
        let (number, counts) = (self.repair, self.count());
        self.namespace.journal().commit(|tx| {
            self_expect(repair(self.namespace, number)?.phase, Phase::Running, number)?;
            note(tx, &Note::Ready { repair: number, counts })
        })?;
        Ok(())
    }

    /// Applies the repair. Runs that have used what it replaces wait meanwhile, so no new ones have to be replayed in the end.
    pub(crate) fn apply(&mut self) -> Result<()> {
        let fence = self.namespace.fence();
        let applied = self.switch();
        match applied {
            // Those that are in progress have not all seen it.
            Ok(at) => fence.applied(at),
            Err(_) => fence.lower(),
        }
        applied.map(drop)
    }

    fn switch(&mut self) -> Result<Position> {
        let (namespace, number) = (self.namespace, self.repair);
        loop {
            let function = self.code.as_ref().map(|(code, _)| code.function);
            namespace.fence().raise(number, self.overlay.slots(), function);
            self.follow()?;
            self.replay(&mut |_, _, _| {})?;
            if self.overlay.len() > SLOTS_MAX {
                let error = format!("repair {number} replaces {} records; the most is {SLOTS_MAX}", self.overlay.len());
                return Err(Code::RepairUnsupported.error(error));
            }
            let counts = self.count();
            // Events since the overlay was computed must be after the fence as well.
            namespace.fence().raise(number, self.overlay.slots(), function);
            let committed = namespace.journal().commit(|tx| {
                if self.past.position() < tx.tail() {
                    self.follow()?;
                }
                if self.is_behind()? {
                    return Ok(false);
                }
                self.check_streaming()?;
                let found = repair(namespace, number)?;
                if found.phase != Phase::Running {
                    self_expect(found.phase, Phase::Applying, number)?;
                }
                check_kept(namespace.journal(), &found)?;
                let mut rows: Vec<_> =
                    self.overlay.iter().map(|((log, seqno), at)| (log, seqno, at.position)).collect();
                rows.sort_unstable();
                self.append_extra(tx)?;
                tx.generation(number, &rows)?;
                let deployed = self.deploy(tx)?;
                note(tx, &Note::Applied { repair: number, counts, deployed })?;
                Ok(true)
            })?;
            if committed.value {
                return Ok(committed.end);
            }
        }
    }

    /// Stages the additional records of replayed runs. Functions bound to their logs run for them.
    fn append_extra(&self, tx: &mut Transaction<'_>) -> Result<()> {
        let publish = Publish::new(self.namespace, tx);
        let written = self.past.written.get(&self.repair);
        for extra in written.map_or(&[][..], |written| &written.extra) {
            // A log that was removed since has no readers.
            let Some(log) = tx.catalog().log_by_id(extra.log).cloned() else { continue };
            let payload = self.namespace.journal().entry_at(extra.position)?.payload;
            let (cause, ordinal) = (extra.run, extra.ordinal);
            let stage = Stage { cause, ordinal, room: Room::DeadLetter, named: None, ending: None };
            publish.append(tx, &log, &payload, stage)?;
        }
        Ok(())
    }

    /// Stages the definition of the function that gets other code: its new revision. So no run falls between the two.
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
    Err(Code::RepairPhase.error(format!("repair {number} is {} by now", found.as_str())))
}
