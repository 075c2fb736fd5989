//! What a replayed run leaves: which slots its records take, which of them differ, and their entries in the journal.

use crate::{
    calls::Leaving,
    past::{Extra, Run},
    session::{Kept, Session},
    tables::{LATE, Lookup},
};
use millrace_journal::{End, Operation, Outcome as Ended, Position, Reads, Replaced, Row as Keyed, Run as RunId};
use millrace_namespace::outbox::{log_of, message, state::State};
use millrace_wire::{Code, Error, EventId, Hlc, Result};
use std::collections::{BTreeMap, HashMap};

/// The most records that a repair appends when it is applied: a function that triggers itself would never end.
const EXTRA_MAX: usize = 10_000;

/// What a record of a table does to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowOf {
    pub key: Vec<u8>,
    pub operation: Operation,
    pub expires_us: u64,
    pub amount: i64,
}

impl RowOf {
    pub fn of(row: &Keyed<'_>) -> Self {
        let Keyed { key, operation, expires_us, amount, .. } = *row;
        Self { key: key.to_vec(), operation, expires_us, amount }
    }

    /// As the row of an entry.
    pub fn keyed(&self, previous: Position) -> Keyed<'_> {
        let Self { key, operation, expires_us, amount } = self;
        Keyed { key, operation: *operation, expires_us: *expires_us, amount: *amount, previous, ..Keyed::default() }
    }
}

/// A record of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub bytes: Vec<u8>,
    pub row: RowOf,
}

/// An effect of a replayed run: a slot with its new bytes, none where the record became void. Seqno 0 means a record that is appended
/// when the repair is applied.
pub(crate) struct Rewrite {
    pub slot: (u32, u64),
    pub bytes: Option<Vec<u8>>,
    /// What the record of a table does to its key.
    pub row: Option<RowOf>,
    pub ordinal: u16,
}

/// The destination of a message: the log, and the function if one is named.
fn target_of(bytes: &[u8]) -> Result<Vec<u8>> {
    let message = message::decode(bytes)?;
    Ok([message.log, message.function.unwrap_or_default()].join("\n").into_bytes())
}

impl Session<'_> {
    /// Restores the original records of a run, also if its record was void for a while.
    pub(crate) fn keep(&mut self, run: &Run, why: Kept) -> Result<()> {
        let written = self.past.written.get(&self.repair);
        let is_corrected = |slot: &(u32, u64)| written.is_some_and(|written| written.corrected.contains(slot));
        let mut left = Vec::new();
        for slot in run.appends.iter().filter(|slot| self.overlay.at(slot.0, slot.1).is_some() && !is_corrected(slot)) {
            let live = self.past.logs.get(&slot.0).and_then(|past| past.slots.get(&slot.1)).map(|slot| slot.at);
            let entry =
                live.filter(|at| !at.void).map(|at| self.namespace.journal().entry_at(at.position)).transpose()?;
            let row = entry.as_ref().and_then(|entry| Some(RowOf::of(&entry.row()?)));
            let bytes = entry.map(|entry| entry.payload);
            if bytes != self.bytes(*slot)? || row != self.row((slot.0, slot.1))? {
                left.push(Rewrite { slot: *slot, bytes, row, ordinal: 0 });
            }
        }
        self.kept.insert(run.trigger.run, why);
        if left.is_empty() {
            return Ok(());
        }
        left.sort_by_key(|rewrite| rewrite.slot);
        self.publish(run, left, Reads::default(), Ended::Done, None)
    }

    /// What the record in a slot of a table does to its key, in the repaired history.
    fn row(&self, (log, seqno): (u32, u64)) -> Result<Option<RowOf>> {
        let live = self.past.logs.get(&log).and_then(|past| past.slots.get(&seqno)).map(|slot| slot.at);
        let at = self.overlay.at(log, seqno).or(live).filter(|at| !at.void);
        let is_table = self.past.logs.get(&log).is_some_and(|log| log.versions.is_some());
        let Some(at) = at.filter(|_| is_table) else { return Ok(None) };
        Ok(self.namespace.journal().entry_at(at.position)?.row().map(|row| RowOf::of(&row)))
    }

    /// Assigns the new records of a run to the places of its old ones, and returns the differences. Additional records are appended later,
    /// if requested; a dead letter always is.
    pub(crate) fn placed(
        &self,
        run: &Run,
        appends: Vec<Leaving>,
        (reads, dead): (&mut Reads, bool),
    ) -> Result<Vec<Rewrite>> {
        let contents = self.contents(run, &appends, reads)?;
        let mut by_table: BTreeMap<u32, BTreeMap<usize, &Content>> = BTreeMap::new();
        for (number, content) in &contents {
            let of = by_table.entry(appends[*number].log).or_default();
            of.extend(content.as_ref().map(|content| (*number, content)));
        }
        // Tables that it changes no more are among them.
        for (log, _) in run.appends.iter().filter(|(log, _)| self.is_table(*log)) {
            by_table.entry(*log).or_default();
        }
        let (mut slots, mut rest): (HashMap<usize, u64>, Vec<(u32, u64)>) = Default::default();
        for (log, contents) in &by_table {
            let (taken, left) = self.slots_of(run, *log, contents);
            slots.extend(taken);
            rest.extend(left.into_iter().map(|seqno| (*log, seqno)));
        }
        let mut places: HashMap<(u32, Vec<u8>), Vec<u64>> = HashMap::new();
        for (log, seqno) in run.appends.iter().rev().filter(|(log, _)| !by_table.contains_key(log)) {
            places.entry((*log, self.target((*log, *seqno))?)).or_default().push(*seqno);
        }
        let mut left = Vec::new();
        let corrected = self.past.written.get(&self.repair).map(|written| &written.corrected);
        let is_corrected = |slot: (u32, u64)| corrected.is_some_and(|corrected| corrected.contains(&slot));
        // A run that is replayed again may have changed a slot before.
        let current = |slot: (u32, u64)| {
            let at = self.past.logs.get(&slot.0).and_then(|past| past.slots.get(&slot.1)).map(|slot| slot.at);
            self.overlay.at(slot.0, slot.1).or(at).map_or(Ok(None), |at| self.bytes_at(at))
        };
        let is_of_others = |extra: &&Extra| extra.run != run.trigger.run;
        let extras = self.past.written.get(&self.repair).map_or(&[][..], |written| &written.extra);
        let mut extra = extras.iter().filter(is_of_others).count();
        for (number, append) in appends.into_iter().enumerate() {
            let (log, ordinal) = (append.log, number as u16); // bounded by the calls
            let is_message = self.past.is_outbox(log);
            let (bytes, row) = match contents.get(&number) {
                None => (append.payload, None),
                Some(Some(content)) => (content.bytes.clone(), Some(content.row.clone())),
                Some(None) => continue, // The key that it deletes has no value.
            };
            let seqno = match row {
                Some(_) => slots.get(&number).copied(),
                None => {
                    let target = if is_message { target_of(&bytes)? } else { Vec::new() };
                    places.get_mut(&(log, target)).and_then(Vec::pop)
                }
            };
            let Some(seqno) = seqno else {
                let (run, name, run_of_device) = (run.trigger.run, self.name(log), run.is_of_device());
                if is_message {
                    self.check_across(run, log)?;
                }
                // The numbers of a device's log are the device's.
                if (dead || self.append_new) && !run_of_device {
                    if extra >= EXTRA_MAX {
                        let error = format!("run {run}: the repair appends more than {EXTRA_MAX} records");
                        return Err(Code::RepairGrows.error(error));
                    }
                    extra += 1; // What takes the place of another record is not appended.
                    left.push(Rewrite { slot: (log, 0), bytes: Some(bytes), row, ordinal });
                    continue;
                }
                return Err(
                    Code::RepairGrows.error(format!("run {run}: it appends more records to {name} than before"))
                );
            };
            let before = current((log, seqno))?;
            let is_same = match before {
                Some(before) if is_message => message::decode(&before)?.data == message::decode(&bytes)?.data,
                before => before.as_ref() == Some(&bytes) && self.row((log, seqno))? == row,
            };
            if !is_corrected((log, seqno)) && !is_same {
                if is_message {
                    self.check_across(run.trigger.run, log)?;
                }
                left.push(Rewrite { slot: (log, seqno), bytes: Some(bytes), row, ordinal });
            }
        }
        rest.extend(
            places.into_iter().flat_map(|((log, _), seqnos)| seqnos.into_iter().map(move |seqno| (log, seqno))),
        );
        for slot in rest {
            if !is_corrected(slot) && current(slot)?.is_some() {
                if self.past.is_outbox(slot.0) {
                    self.check_across(run.trigger.run, slot.0)?;
                }
                left.push(Rewrite { slot, bytes: None, row: None, ordinal: 0 });
            }
        }
        left.sort_by_key(|rewrite| (rewrite.slot, rewrite.ordinal));
        Ok(left)
    }

    fn is_table(&self, log: u32) -> bool {
        self.past.logs.get(&log).is_some_and(|log| log.versions.is_some())
    }

    /// The destination of the message in a slot of an outbox: the log, and the function if one was named. `None` for any other log.
    fn target(&self, (log, seqno): (u32, u64)) -> Result<Vec<u8>> {
        let slot =
            self.past.logs.get(&log).filter(|_| self.past.is_outbox(log)).and_then(|past| past.slots.get(&seqno));
        let Some(slot) = slot else { return Ok(Vec::new()) };
        // For a message that a repair removed, the first version has the destination.
        let position = if slot.at.void { slot.written } else { slot.at.position };
        target_of(&self.namespace.journal().entry_at(position)?.payload)
    }

    /// Refuses the change of a message whose receiver takes no part.
    fn check_across(&self, run: EventId, log: u32) -> Result<()> {
        if self.is_across {
            return Ok(());
        }
        let outbox = self.past.logs.get(&log).map(|past| past.name.clone());
        let peers = State::load(self.namespace)?.peers;
        let peer = peers.iter().find(|peer| Some(log_of(&peer.name)) == outbox);
        let to = peer.map_or_else(|| "another namespace".into(), |peer| peer.address.to_string());
        Err(Code::RepairLeaves.error(format!("run {run}: it now sends other messages to {to}")))
    }

    /// Journals the new effects of a run, and adds them to the state.
    pub(crate) fn publish(
        &mut self,
        run: &Run,
        left: Vec<Rewrite>,
        reads: Reads,
        outcome: Ended,
        error: Option<Error>,
    ) -> Result<()> {
        let (trigger, repair) = (&run.trigger, self.repair);
        let id = RunId { id: trigger.run, number: trigger.number };
        let effects = left.len() as u64 + u64::from(!reads.is_empty());
        let fired = run.fired.map_or(0, |fired| fired.sequence);
        let (code, detail) = error.as_ref().map_or(("", ""), |error| (error.code().id(), error.detail()));
        let mut rows = Vec::with_capacity(left.len());
        for Rewrite { slot, bytes, row, ordinal } in &left {
            let bytes = (bytes.as_deref(), row.as_ref());
            let replaced = match slot.1 {
                0 => {
                    let (origin, clock, position) = (trigger.run, Hlc::ZERO, Position::default());
                    Replaced { repair, origin, clock, void: false, position }
                }
                _ => self.replaces(*slot, bytes.0.is_none())?,
            };
            rows.push((*slot, bytes, self.previous(*slot, row.as_ref()), *ordinal, replaced));
        }
        self.namespace.journal().commit(|tx| {
            tx.shadow_reads(repair, trigger.function, id, reads)?;
            for (slot, (bytes, row), previous, ordinal, replaced) in &rows {
                let row = row.map(|row| row.keyed(*previous));
                let what = (bytes.unwrap_or_default(), row.as_ref());
                tx.shadow_row(*slot, what, (trigger.run, *ordinal), replaced)?;
            }
            let end = End { outcome, effects, fired, code, error: detail, ..End::default() };
            tx.shadow_done(repair, trigger.function, id, &end)
        })?;
        drop(rows);
        self.follow()
    }

    /// That this repair replaces what is in a slot.
    pub(crate) fn replaces(&self, (log, seqno): (u32, u64), void: bool) -> Result<Replaced> {
        let of = self.past.logs.get(&log).and_then(|past| past.slots.get(&seqno));
        let of = of.ok_or_else(|| Code::RepairUnsupported.error(format!("record {seqno} no longer exists")))?;
        Ok(Replaced { repair: self.repair, origin: of.origin, clock: of.clock, void, position: of.written })
    }

    /// Where the version of a key before a slot stands.
    fn previous(&self, (log, seqno): (u32, u64), row: Option<&RowOf>) -> Position {
        let Some(row) = row else { return Position::default() };
        let lookup = Lookup { past: &self.past, overlay: Some(&self.overlay) };
        // What is appended in the end has no place yet.
        let place = match seqno {
            0 => (u64::MAX, LATE),
            _ => (self.past.writer(log, seqno).map_or(u64::MAX, |writer| writer.sequence), seqno),
        };
        let held = lookup.find(log, &row.key, place, |_| true);
        held.version.map_or(Position::default(), |version| version.at)
    }
}
