//! One connection of a device: which of the events that it sends are new, and their batches.

use super::{
    AttachedDevice, State, functions, keep, kept, refused,
    runs::{EndedRun, Imports, New, NewRecord},
};
use crate::links::Accepted;
use millrace_device::{Arrived, Event, Feed, Seen, What};
use millrace_journal::{Catalog, Imported, ImportedAttempt};
use millrace_namespace::{Namespace, admission::Publish};
use millrace_wire::{
    Code, EventId, HISTORY_DEFAULT, Hlc, LogName, Result,
    protocol::{Entered, Entries},
};
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// How many numbers without records one batch has at most, and one gap.
const MISSING_MAX: u64 = 1024;
const GAP_MAX: u64 = 1_000_000;

/// What the caller may do, decided by the access check: append so many bytes to a log, which may have to be created.
pub(crate) type May<'a> = &'a dyn Fn(&LogName, usize, bool) -> Result<()>;

/// The journal of a device, on one connection.
pub struct Import {
    device: AttachedDevice,
    /// Empty after an error: what comes then would not be the continuation.
    progress: Mutex<Option<(Feed, State)>>,
    /// Whether something was imported on this connection.
    has_sent: AtomicBool,
}

impl Import {
    /// Of a device that has attached, and how far it is imported.
    pub(super) fn new(device: AttachedDevice, state: State) -> Self {
        Self { device, progress: Mutex::new(Some((Feed::default(), state))), has_sent: AtomicBool::new(false) }
    }

    /// The device.
    pub fn device(&self) -> &AttachedDevice {
        &self.device
    }

    /// The log that a log of the device is here.
    fn log(&self, log: &str) -> Result<LogName> {
        format!("{}/{log}", self.device.name).parse()
    }

    /// Imports the bursts that these bytes complete. After an error, the device has to attach again.
    pub(crate) fn enter(
        &self,
        namespace: &Namespace,
        entries: &Entries<'_>,
        may: May<'_>,
    ) -> Result<Accepted<Entered>> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = || Code::MessageUnexpected.error("entries after an error: the device has to attach again");
        let (feed, state) = progress.as_ref().cloned().ok_or_else(refused)?;
        let entered = self.enter_next(namespace, entries, may, (feed, state));
        match entered {
            Ok((next, entered)) => {
                *progress = Some(next);
                Ok(entered)
            }
            Err(error) => {
                // Of what did not get the lock, nothing was done: it is tried again.
                if error.code() != Code::JournalBlocked {
                    *progress = None;
                }
                Err(error)
            }
        }
    }

    fn enter_next(
        &self,
        namespace: &Namespace,
        entries: &Entries<'_>,
        may: May<'_>,
        (mut feed, mut state): (Feed, State),
    ) -> Result<((Feed, State), Accepted<Entered>)> {
        let arrived = feed.take(self.device.identity, entries.sector, entries.at as usize, entries.bytes)?;
        let mut after = state.clone();
        let mut end = namespace.journal().tail();
        let new = self.unseen(&mut after, &arrived)?;
        // A connection begins with an older sector. What its catalog says is out of date, if the firmware has other logs since.
        if after != state || state.kept.is_empty() {
            let delivered: Vec<&str> = new.iter().filter_map(|new| self.delivered(new)).collect();
            after.kept = kept::kept_logs(&feed, &state.kept, &delivered);
        }
        if after != state {
            // Before anything is created for the device.
            self.check_current(namespace, &*namespace.journal().catalog()?, &state)?;
            self.make_room(namespace, &mut state, &new, may)?;
            let functions = functions::of(namespace, &self.device.name, &new)?;
            after.lost_records = state.lost_records;
            let committed = namespace.journal().commit(|tx| {
                self.check_current(namespace, tx.catalog(), &state)?;
                let mut batch = Imports::new(namespace, tx, &self.device.name, &functions);
                new.iter().try_for_each(|new| batch.stage(tx, new))?;
                let flows = batch.flows;
                keep(tx, &self.device.name, &after)?;
                if after.kept != state.kept {
                    kept::keep(tx, &self.device.name, &after.kept)?;
                }
                if !self.has_sent.load(Relaxed) {
                    refused::accept(namespace, tx, &self.device, true)?;
                }
                Ok(flows)
            })?;
            self.has_sent.store(true, Relaxed);
            namespace.flows().count(committed.value.into_iter());
            end = committed.end;
            state = after;
        }
        let entered = Accepted { value: Entered { sequence: state.sequence }, end };
        Ok(((feed, state), entered))
    }

    /// The log of a record that a host has sent to the device: what caused it did not happen in the device.
    fn delivered<'e>(&self, new: &New<'e>) -> Option<&'e str> {
        let New::Outside(NewRecord { log, cause, .. }) = new else { return None };
        cause.namespace().filter(|namespace| *namespace != self.device.identity).map(|_| *log)
    }

    /// What is new, and the state after it.
    fn unseen<'e>(&self, state: &mut State, arrived: &'e [Arrived]) -> Result<Vec<New<'e>>> {
        let mut new = Vec::new();
        for Arrived { events, crc } in arrived {
            let events = Self::without_known(state, events);
            let (Some((first, _)), Some((_, last))) =
                (events.first().map(Self::extent), events.last().map(Self::extent))
            else {
                continue;
            };
            if last < state.sequence {
                continue;
            }
            let is_gap = matches!(events[0].what, What::Missing { .. });
            let first = if is_gap { first.max(state.sequence + 1) } else { first };
            if first <= state.sequence {
                if last == state.sequence && *crc == state.crc {
                    continue;
                }
                return Err(Code::DeviceDiverged.error(format!(
                    "device '{}' has sent entries up to {}; the one that is attached has another entry {}",
                    self.device.name, state.sequence, state.sequence
                )));
            }
            state.lost_entries += first - state.sequence - 1;
            let (mut of_run, mut reads): (Vec<NewRecord<'e>>, &[Seen]) = Default::default();
            for event in events {
                Self::count(state, event, first);
                match &event.what {
                    What::Append { log, seqno, payload, of_run: is_of_run } => {
                        let cause = if *is_of_run { EventId::NONE } else { event.cause };
                        let clock = Self::clock(state, event);
                        let record = NewRecord { log, seqno: *seqno, payload, cause, id: event.id, clock };
                        if *is_of_run { of_run.push(record) } else { new.push(New::Outside(record)) }
                    }
                    What::Read { rows, .. } => reads = rows,
                    What::Done { function, outcome, code, log, seqno, attempt, ms } => {
                        let ago = |clock: Hlc| Hlc::from_wall_us((clock.wall_us() / 1000).saturating_sub(*ms) * 1000);
                        let (clock, read) = (ago(Self::clock(state, event)), ago(event.hlc));
                        new.push(New::Ended(EndedRun {
                            function,
                            record: (log, *seqno),
                            attempt: u32::from(*attempt),
                            ended: (*outcome, *code),
                            began: ImportedAttempt { run: event.cause, clock, read },
                            reads: std::mem::take(&mut reads),
                            records: std::mem::take(&mut of_run),
                        }));
                    }
                    _ => {}
                }
            }
            // Firmware writes them with the end of their run.
            new.extend(of_run.into_iter().map(New::Outside));
            (state.sequence, state.crc) = (last, *crc);
        }
        Ok(new)
    }

    /// The events without what the device dropped and this namespace has.
    ///
    /// A connection begins with the sector that has the last entry that is here. If the device drops that sector before it has sent all of it,
    /// the entries that are missing begin with ones that were imported before.
    fn without_known<'e>(state: &State, events: &'e [Event]) -> &'e [Event] {
        let is_known = |event: &&Event| matches!(event.what, What::Missing { to } if to <= state.sequence);
        &events[events.iter().take_while(is_known).count()..]
    }

    /// The first and the last sequence of an event: what is missing is several entries.
    fn extent(event: &Event) -> (u64, u64) {
        let first = event.id.sequence();
        if let What::Missing { to } = event.what { (first, to.max(first)) } else { (first, first) }
    }

    /// When an event happened. The clock of a device may have been wrong until it was told the time.
    fn clock(state: &State, event: &Event) -> Hlc {
        let corrected = state.corrections.iter().find(|(epoch, _)| *epoch == state.epoch).map_or(0, |(_, ms)| *ms);
        let late_ms = corrected.saturating_sub(state.jumped_ms);
        Hlc::from_bits(event.hlc.get().saturating_add(Hlc::from_wall_us(late_ms.saturating_mul(1000)).get()))
    }

    /// Counts an event; `first` is the first sequence that is new.
    fn count(state: &mut State, event: &Event, first: u64) {
        match &event.what {
            What::Append { .. } => state.records += 1,
            What::Open { epoch, .. } => {
                (state.epoch, state.jumped_ms) = (*epoch, 0);
                state.corrections.retain(|(of, _)| of >= epoch);
                state.starts += 1;
            }
            What::Done { outcome, .. } => {
                state.runs += 1;
                state.dead += u64::from(*outcome == 1);
            }
            What::Missing { to } => state.lost_entries += (to + 1).saturating_sub(event.id.sequence().max(first)),
            _ => {}
        }
        state.clock = Self::clock(state, event).get();
        if let What::Jump { ms } = &event.what {
            state.jumped_ms = state.jumped_ms.saturating_add(*ms);
        }
    }

    /// Creates the logs that do not exist, and takes the numbers of records that the device had dropped, so that no others get them.
    fn make_room(&self, namespace: &Namespace, state: &mut State, new: &[New<'_>], may: May<'_>) -> Result<()> {
        let mut next: HashMap<&str, u64> = HashMap::new();
        for record in new.iter().flat_map(New::records) {
            let name = self.log(record.log)?;
            let found = namespace.journal().catalog()?.log(&name).cloned();
            if !next.contains_key(record.log) {
                may(&name, record.payload.len(), found.is_none())?;
            } else {
                may(&name, record.payload.len(), false)?;
            }
            let log = match found {
                Some(log) => log,
                None => namespace.journal().commit(|tx| tx.create_log(&name, HISTORY_DEFAULT))?.value,
            };
            let due = next.entry(record.log).or_insert(log.latest() + 1);
            if record.seqno < *due {
                let detail = format!("log '{name}' has a record {} of another origin", record.seqno);
                return Err(Code::DeviceNameTaken.error(detail));
            }
            if record.seqno - *due > GAP_MAX {
                let detail = format!(
                    "log '{name}' lacks records {due} to {}; at most {GAP_MAX} may be missing",
                    record.seqno - 1
                );
                return Err(Code::DeviceEntriesInvalid.error(detail));
            }
            if record.seqno > *due {
                self.skip(namespace, state, &name, (*due, record.seqno))?;
            }
            *due = record.seqno + 1;
        }
        Ok(())
    }

    /// Uses the numbers of a log up to this one for no records. They can be used only while they are the next ones: if they follow records of
    /// the same batch, that one commits them.
    fn skip(&self, namespace: &Namespace, state: &mut State, name: &LogName, (from, upto): (u64, u64)) -> Result<()> {
        let mut next = from;
        while next < upto {
            let most = (upto - next).min(MISSING_MAX);
            let more = State { lost_records: state.lost_records + most, ..state.clone() };
            namespace.journal().commit(|tx| {
                let catalog = tx.catalog().clone();
                self.check_current(namespace, &catalog, state)?;
                let log = millrace_namespace::found(catalog.log(name), name)?;
                if log.latest() + 1 != next {
                    return Err(
                        Code::LinkOutOfOrder.error(format!("record {next} of log '{name}' is not the next one"))
                    );
                }
                let publish = Publish::new(namespace, tx);
                for seqno in next..next + most {
                    publish.import(tx, (log, seqno), &[], (EventId::NONE, None), &Imported::Missing)?;
                }
                // A log that had no records begins with the first one that the device still has.
                if next == 1 || log.earliest() > log.latest() {
                    tx.trim(log, next + most)?;
                }
                keep(tx, &self.device.name, &more)
            })?;
            *state = more;
            next += most;
        }
        Ok(())
    }

    /// Whether nothing of this device was imported since this connection looked.
    fn check_current(&self, namespace: &Namespace, catalog: &Catalog, state: &State) -> Result<()> {
        let known = self.device.check(namespace, catalog)?;
        if (known.sequence, known.crc) == (state.sequence, state.crc) {
            return Ok(());
        }
        let detail = format!("device '{}' has sent entries over another connection", self.device.name);
        Err(Code::LinkOutOfOrder.error(detail))
    }
}
