//! The entries of runs: a run is created, is attempted, reads, gets an answer, ends.

use crate::write::commit::{Appended, Transaction};
use crate::{
    catalog::{Function, Log},
    entry::{
        FLAG_CLAIMED, FLAG_EXTENDED, FLAG_SHADOW, Header, Kind, Position,
        imported::{Imported, ImportedAttempt},
        payload::{self, Attempt, End, Origin, Outcome, Reads, Replaced, Run},
        row::Row,
    },
};
use millrace_wire::{Code, EventId, Hlc, Result};

impl Transaction<'_> {
    /// The sequence that the next entry gets: what a run leaves begins with it.
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// The clock of the entry that was staged last.
    pub fn clock(&self) -> Hlc {
        self.hlc
    }

    /// Stages a trigger of `function` by the record that `cause` names.
    pub fn trigger(
        &mut self,
        function: u32,
        cause: EventId,
        log: &Log,
        record_seqno: u64,
        origin: Origin,
    ) -> Result<Run> {
        let number = self.function(function)?.next_trigger(self.number)?;
        let (kind, ordinal) = (Kind::Trigger as u8, origin as u16);
        let header = Header { kind, subject: function, seqno: number, ordinal, ..Header::default() };
        let id = self.stage(header, cause, &[payload::trigger(log.id(), record_seqno).bytes()])?;
        Ok(Run { id, number })
    }

    /// Stages a record that a device has under this seqno, which has to be the log's next one. Its cause is what the device says or, with the
    /// record's number among those of the run, a run that was imported from there.
    pub fn append_imported(
        &mut self,
        log: &Log,
        seqno: u64,
        payload: &[u8],
        (cause, of_run): (EventId, Option<u16>),
        imported: &Imported,
    ) -> Result<Appended> {
        let next = self.next_of(log, payload.len())?;
        if next != seqno {
            let detail = format!("record {seqno} of log '{}' is not the next one, which is {next}", log.name());
            return Err(Code::LinkOutOfOrder.error(detail));
        }
        let claimed = if of_run.is_some() { 0 } else { FLAG_CLAIMED };
        let (kind, flags, ordinal) = (Kind::Append as u8, FLAG_EXTENDED | claimed, of_run.unwrap_or(0));
        let header = Header { kind, flags, subject: log.id(), seqno, ordinal, ..Header::default() };
        let id = self.stage(header, cause, &[&imported.extension(), payload])?;
        Ok(Appended { seqno, id })
    }

    /// Stages an entry for a slot of a log, effective once a GENERATION refers to it. `cause` and `ordinal` are those of its run.
    pub fn shadow_append(
        &mut self,
        slot: (u32, u64),
        payload: &[u8],
        cause: (EventId, u16),
        replaced: &Replaced,
    ) -> Result<EventId> {
        self.shadow_row(slot, (payload, None), cause, replaced)
    }

    /// The same for a slot of a table: with what the record does to its key, unless the slot becomes void.
    pub fn shadow_row(
        &mut self,
        (log, seqno): (u32, u64),
        (payload, row): (&[u8], Option<&Row<'_>>),
        (cause, ordinal): (EventId, u16),
        replaced: &Replaced,
    ) -> Result<EventId> {
        let of = self.catalog().log_by_id(log).filter(|log| log.table().is_some() && row.is_none() && !replaced.void);
        if let Some(table) = of {
            let detail = format!("record {seqno} of table '{}' would have no key", table.name());
            return Err(Code::LogIsTable.error(detail));
        }
        let header = Header { subject: log, seqno, ordinal, ..shadow(Kind::Append) };
        self.stage(header, cause, &[&replaced.extension(row), payload])
    }

    /// Stages what a repair's run read; nothing if that is nothing.
    pub fn shadow_reads(&mut self, repair: u64, function: u32, run: Run, reads: Reads) -> Result<()> {
        if !reads.is_empty() {
            let header = Header { subject: function, seqno: run.number, ..shadow(Kind::Read) };
            self.stage(header, run.id, &[&payload::repair_extension(repair), &reads.encode()])?;
        }
        Ok(())
    }

    /// Stages the end of a repair's run.
    pub fn shadow_done(&mut self, repair: u64, function: u32, run: Run, end: &End<'_>) -> Result<()> {
        let (numbers, texts) = end.encode();
        let header = Header { subject: function, seqno: run.number, ..shadow(Kind::Done) };
        self.stage(header, run.id, &[&payload::repair_extension(repair), numbers.bytes(), &texts])?;
        Ok(())
    }

    /// Stages that slots, as log, seqno and the position of an entry before this batch, lead elsewhere from here on.
    pub fn generation(&mut self, repair: u64, rows: &[(u32, u64, Position)]) -> Result<()> {
        let rows: Vec<(u32, u64, u64)> = rows.iter().map(|(log, seqno, at)| (*log, *seqno, at.get())).collect();
        for payload in payload::generations(repair, &rows) {
            self.stage(Header { kind: Kind::Generation as u8, ..Header::default() }, EventId::NONE, &[&payload])?;
        }
        Ok(())
    }

    /// Stages the start of an attempt at a run, or that one is over and the run waits.
    pub fn fired(&mut self, function: u32, run: Run, attempt: &Attempt) -> Result<EventId> {
        // More attempts are counted as this number.
        let ordinal = u16::try_from(attempt.attempt).unwrap_or(u16::MAX);
        let (kind, seqno) = (Kind::Fired as u8, run.number);
        let header = Header { kind, subject: function, seqno, ordinal, ..Header::default() };
        self.stage(header, run.id, &[attempt.fields().bytes()])
    }

    /// Stages the attempt at a run that ended it in a device.
    pub fn fired_imported(
        &mut self,
        function: u32,
        run: Run,
        attempt: &Attempt,
        imported: &ImportedAttempt,
    ) -> Result<EventId> {
        let ordinal = u16::try_from(attempt.attempt).unwrap_or(u16::MAX);
        let (kind, flags, seqno) = (Kind::Fired as u8, FLAG_EXTENDED, run.number);
        let header = Header { kind, flags, subject: function, seqno, ordinal, ..Header::default() };
        self.stage(header, run.id, &[&imported.extension(), attempt.fields().bytes()])
    }

    /// Stages what an attempt at a run read; nothing if that is nothing.
    pub fn reads(&mut self, function: u32, run: Run, reads: Reads) -> Result<()> {
        if !reads.is_empty() {
            let (kind, seqno) = (Kind::Read as u8, run.number);
            self.stage(Header { kind, subject: function, seqno, ..Header::default() }, run.id, &[&reads.encode()])?;
        }
        Ok(())
    }

    /// Stages a call of a streamed run with its answer.
    pub fn call(&mut self, function: u32, run: EventId, ordinal: u16, seqno: u64, payload: &[u8]) -> Result<EventId> {
        let header = Header { kind: Kind::Call as u8, subject: function, seqno, ordinal, ..Header::default() };
        self.stage(header, run, &[payload])
    }

    /// Stages the permanent end of a run.
    pub fn done(&mut self, function: u32, run: Run, end: &End<'_>) -> Result<EventId> {
        let ended = match self.catalog().function_by_id(function).cloned() {
            Some(function) => {
                let has_ended = function.index().is_closed(run.number) && self.has_end(&function, run);
                Some(function.next_done(self.number, run.number, has_ended)?)
            }
            None => None, // Its function was removed meanwhile; nobody counts any more.
        };
        self.end(function, run, ended, end)
    }

    /// Whether the end of a run that the index knows can be read. One that damage took counts no more: its run was counted as
    /// pending again, and ends again.
    #[cold]
    fn has_end(&self, function: &Function, run: Run) -> bool {
        let closed = function.run(run.number).map_or(0, |item| item.closed);
        closed == 0 || self.inner.entry_at(closed).err().is_none_or(|error| error.code() != Code::EntryDamaged)
    }

    fn end(&mut self, function: u32, run: Run, ended: Option<u64>, end: &End<'_>) -> Result<EventId> {
        let (numbers, texts) = end.encode();
        let (kind, seqno, ordinal) = (Kind::Done as u8, run.number, payload::ended_ordinal(run.number, ended));
        let header = Header { kind, subject: function, seqno, ordinal, ..Header::default() };
        self.stage(header, run.id, &[numbers.bytes(), &texts])
    }

    /// Raises the count of a function's pending runs to `pending`, if damage took ends that were counted and whose runs are
    /// pending again: by a run that is over as it begins, and is given up for the reason `end` has. Nothing else of the function is staged in this batch.
    pub fn recount(&mut self, function: u32, pending: u64, end: &End<'_>) -> Result<()> {
        let counted = self.function(function)?;
        let (triggered, done) = (counted.triggered(), counted.done());
        if triggered < done + pending {
            let (kind, number) = (Kind::Trigger, done + 1 + pending);
            self.inner.make_place(kind, function, number)?;
            let header = Header { kind: kind as u8, subject: function, seqno: number, ..Header::default() };
            let run = Run { id: self.stage(header, EventId::NONE, &[])?, number };
            self.end(function, run, Some(done + 1), &End { outcome: Outcome::Dead, ..*end })?;
        }
        Ok(())
    }
}

/// The header of a shadow entry, which has an extension.
fn shadow(kind: Kind) -> Header {
    Header { kind: kind as u8, flags: FLAG_SHADOW | FLAG_EXTENDED, ..Header::default() }
}
