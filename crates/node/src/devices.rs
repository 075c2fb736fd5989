//! Devices: their journals are imported into the namespace. The log `raw` of the device `kitchen` is the log `kitchen/raw` here, with the
//! same numbers and times. A record that a run of the device appended has the record that ran it as its cause.
//!
//! The device sends its sectors from the one on that has the last entry that this namespace has. What came before is compared, not imported
//! again: the last burst has to be the same, by its checksum, or another device, or an older state of this one, is at the other end.

pub mod commands;
mod provision;

pub use provision::provision;

use crate::links::Accepted;
use millrace_device::{Arrived, Event, Feed, What};
use millrace_journal::{Catalog, Imported, Log, Transaction};
use millrace_namespace::{
    Namespace,
    admission::{Publish, devices},
    names::newest_note,
};
use millrace_wire::{
    Code, EventId, HISTORY_DEFAULT, Hlc, LogName, NamespaceId, Result,
    protocol::{Attach, Attached, Entered, Entries},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// How many numbers without records one batch has at most, and one gap.
const MISSING_MAX: u64 = 1024;
const GAP_MAX: u64 = 1_000_000;
/// How many starts of a device, whose entries have not come yet, are remembered with the correction of their clock.
const CORRECTIONS_MAX: usize = 64;

/// How far the journal of a device is imported, and what it had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The identity of the device's namespace.
    pub namespace: u64,
    /// The sequence of the last entry that is imported.
    pub sequence: u64,
    /// The checksum of its burst.
    pub crc: u32,
    /// The epoch of that entry.
    pub epoch: u32,
    /// The highest epoch with which the device has attached.
    pub attached: u32,
    /// By how much its clock was corrected in that epoch, up to the last entry.
    pub jumped_ms: u64,
    /// For later starts, by epoch: by how much the device says that its clock was corrected since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<(u32, u64)>,
    /// The time of the last entry, in the device.
    pub clock: u64,
    /// How many records were imported.
    pub records: u64,
    /// How many runs of its functions ended.
    pub runs: u64,
    /// How many of them were given up.
    pub dead: u64,
    /// How many starts of it were imported.
    pub starts: u64,
    /// How many of its entries were dropped or damaged before they were imported.
    pub lost_entries: u64,
    /// How many of its records.
    pub lost_records: u64,
    /// The id of the capability that the device was provisioned with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
}

impl State {
    /// Notes what a device says of its clock; whether that is new. The entries of this start may come in a later one.
    fn corrected(&mut self, attach: &Attach<'_>) -> bool {
        if attach.jumped_ms == 0 || self.corrections.contains(&(attach.epoch, attach.jumped_ms)) {
            return false;
        }
        self.corrections.retain(|(epoch, _)| *epoch != attach.epoch);
        self.corrections.push((attach.epoch, attach.jumped_ms));
        if self.corrections.len() > CORRECTIONS_MAX {
            self.corrections.remove(0);
        }
        true
    }
}

/// A device that has sent entries.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// How far it is imported.
    #[serde(flatten)]
    pub state: State,
    /// Its logs here, with their newest seqnos.
    pub logs: Vec<(String, u64)>,
    /// How many commands wait for it.
    pub commands_waiting: u64,
    /// Why it takes no commands, if it refused all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands_refused: Option<commands::Refusal>,
}

/// What the caller may do, decided by the access check: append so many bytes to a log, which may have to be created.
pub(crate) type May<'a> = &'a dyn Fn(&LogName, usize, bool) -> Result<()>;

/// The journal of a device, on one connection.
pub struct Import {
    device: String,
    namespace: NamespaceId,
    /// Empty after an error: what comes then would not be the continuation.
    progress: Mutex<Option<(Feed, State)>>,
}

/// Every device that has sent entries to this namespace.
pub fn all(namespace: &Namespace) -> Result<Vec<Device>> {
    let catalog = namespace.journal().catalog()?;
    let mut found = Vec::new();
    for (name, _) in devices::all(&catalog) {
        let Some(bytes) = newest_note(namespace, &devices::state_of(name)?)? else { continue };
        let state = decode(name, &bytes)?;
        let (commands_waiting, commands_refused) =
            (commands::waiting(&catalog, name), commands::refusal(namespace, &catalog, name)?);
        let (name, prefix) = (name.to_owned(), format!("{name}/"));
        let logs = catalog.logs().filter(|log| log.name().starts_with(&prefix));
        let mut logs: Vec<(String, u64)> = logs.map(|log| (log.name().to_string(), log.latest())).collect();
        logs.sort();
        found.push(Device { name, state, logs, commands_waiting, commands_refused });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Removes a device; its logs stay, and are logs like any other.
///
/// What it was provisioned with ends: its capability is revoked.
pub fn remove(namespace: &Namespace, name: &str) -> Result<()> {
    let catalog = namespace.journal().catalog()?;
    if let Some(state) = read(namespace, &catalog, name)? {
        provision::withdraw(namespace, name, &state)?;
    }
    let committed = namespace.journal().commit(|tx| {
        devices::forget(tx, name)?;
        commands::forget(tx, name)
    });
    committed.map(drop)
}

fn decode(device: &str, bytes: &[u8]) -> Result<State> {
    let damaged = |error| Code::EntryDamaged.error(format!("the state of device '{device}': {error}"));
    serde_json::from_slice(bytes).map_err(damaged)
}

/// The state of a device, read under the lock.
fn read(namespace: &Namespace, catalog: &Catalog, device: &str) -> Result<Option<State>> {
    let name = devices::state_of(device)?;
    let Some(log) = catalog.log(&name).filter(|log| log.latest() > 0) else { return Ok(None) };
    let mut bytes = Vec::new();
    namespace.journal().get(log, log.latest(), &mut bytes)?;
    decode(device, &bytes).map(Some)
}

fn keep(tx: &mut Transaction<'_>, device: &str, state: &State) -> Result<()> {
    devices::keep(tx, device, &serde_json::to_vec(state).expect("numbers always make JSON"))
}

/// Begins the import of a device's journal, or continues it.
pub(crate) fn attach(namespace: &Namespace, attach: &Attach<'_>) -> Result<Accepted<(Import, Attached)>> {
    let device = attach.device;
    let bad = || Code::ValueInvalid.error(format!("{} is not the identity of a namespace", attach.namespace));
    let identity = NamespaceId::new(attach.namespace).ok_or_else(bad)?;
    let committed = namespace.journal().commit(|tx| {
        let catalog = tx.catalog().clone();
        let Some(mut state) = read(namespace, &catalog, device)? else {
            check_new(namespace, &catalog, attach)?;
            let mut state = State { namespace: attach.namespace, attached: attach.epoch, ..State::default() };
            state.corrected(attach);
            keep(tx, device, &state)?;
            commands::begin(tx, device)?;
            return Ok(state);
        };
        if state.namespace != attach.namespace {
            let known = NamespaceId::new(state.namespace).map_or_else(String::new, |known| known.to_string());
            let detail = format!("device '{device}' is {known}; the one that attaches is {identity}");
            return Err(Code::DeviceNameTaken.error(detail));
        }
        if attach.next <= state.sequence || attach.epoch < state.attached {
            return Err(Code::DeviceDiverged.error(format!(
                "device '{device}' has sent entries up to {} in epoch {}; the one that attaches has them up to {} in epoch {}",
                state.sequence,
                state.attached,
                attach.next.saturating_sub(1),
                attach.epoch
            )));
        }
        let is_corrected = state.corrected(attach);
        if attach.epoch > state.attached || is_corrected {
            state.attached = attach.epoch;
            keep(tx, device, &state)?;
        }
        commands::begin(tx, device)?;
        Ok(state)
    })?;
    let state = committed.value;
    let attached = Attached { sequence: state.sequence };
    let import =
        Import { device: device.to_owned(), namespace: identity, progress: Mutex::new(Some((Feed::default(), state))) };
    Ok(Accepted { value: (import, attached), end: committed.end })
}

/// Whether a device that never came may have its name: no other device has its identity, and no record has one of its addresses.
fn check_new(namespace: &Namespace, catalog: &Catalog, attach: &Attach<'_>) -> Result<()> {
    for (other, _) in devices::all(catalog) {
        if read(namespace, catalog, other)?.is_some_and(|state| state.namespace == attach.namespace) {
            let detail = format!("device '{}' has the identity of device '{other}'", attach.device);
            return Err(Code::DeviceNameTaken.error(detail));
        }
    }
    check_unused(catalog, attach.device)
}

/// Whether no record has an address of a device of this name.
fn check_unused(catalog: &Catalog, device: &str) -> Result<()> {
    let prefix = format!("{device}/");
    match catalog.logs().find(|log| log.name().starts_with(&prefix) && log.latest() > 0) {
        Some(log) => Err(Code::DeviceNameTaken.error(format!("log '{}' has records already", log.name()))),
        None => Ok(()),
    }
}

impl Import {
    /// The device's name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The log that a log of the device is here.
    fn log(&self, log: &str) -> Result<LogName> {
        format!("{}/{log}", self.device).parse()
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
        let arrived = feed.take(self.namespace, entries.sector, entries.at as usize, entries.bytes)?;
        let mut after = state.clone();
        let mut end = namespace.journal().tail();
        let new = self.unseen(&mut after, &arrived)?;
        if after != state {
            self.make_room(namespace, &mut state, &new, may)?;
            after.lost_records = state.lost_records;
            let committed = namespace.journal().commit(|tx| {
                self.check_current(namespace, tx, &state)?;
                let mut batch =
                    Batch { import: self, namespace, publish: Publish::new(namespace, tx), ids: HashMap::new() };
                new.iter().try_for_each(|record| batch.append(tx, record))?;
                keep(tx, &self.device, &after)
            })?;
            end = committed.end;
            state = after;
        }
        let entered = Accepted { value: Entered { sequence: state.sequence }, end };
        Ok(((feed, state), entered))
    }

    /// The records that are new, and the state after them.
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
                    self.device, state.sequence, state.sequence
                )));
            }
            state.lost_entries += first - state.sequence - 1;
            for (index, event) in events.iter().enumerate() {
                Self::count(state, event, first);
                if let What::Append { log, seqno, payload } = &event.what {
                    let is_of_run = event.cause.namespace() == Some(self.namespace);
                    let run = events[index..].iter().filter(|_| is_of_run).find_map(|event| match &event.what {
                        What::Done { log, seqno, .. } => Some((&**log, *seqno)),
                        _ => None,
                    });
                    let cause = if is_of_run { EventId::NONE } else { event.cause };
                    let clock = Self::clock(state, event);
                    new.push(New { log, seqno: *seqno, payload, cause, run, id: event.id, clock });
                }
            }
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
        for record in new {
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
                self.check_current(namespace, tx, state)?;
                let catalog = tx.catalog().clone();
                let log = millrace_namespace::found(catalog.log(name), name)?;
                if log.latest() + 1 != next {
                    return Err(
                        Code::LinkOutOfOrder.error(format!("record {next} of log '{name}' is not the next one"))
                    );
                }
                let publish = Publish::new(namespace, tx);
                for seqno in next..next + most {
                    publish.import(tx, (log, seqno), &[], EventId::NONE, &Imported::Missing)?;
                }
                // A log that had no records begins with the first one that the device still has.
                if next == 1 || log.earliest() > log.latest() {
                    tx.trim(log, next + most)?;
                }
                keep(tx, &self.device, &more)
            })?;
            *state = more;
            next += most;
        }
        Ok(())
    }

    /// Whether nothing of this device was imported since this connection looked.
    fn check_current(&self, namespace: &Namespace, tx: &mut Transaction<'_>, state: &State) -> Result<()> {
        let known = read(namespace, &tx.catalog().clone(), &self.device)?.unwrap_or_default();
        if (known.namespace, known.sequence, known.crc) == (state.namespace, state.sequence, state.crc) {
            return Ok(());
        }
        Err(Code::LinkOutOfOrder.error(format!("device '{}' has sent entries over another connection", self.device)))
    }
}

/// A record that is new.
struct New<'e> {
    log: &'e str,
    seqno: u64,
    payload: &'e [u8],
    cause: EventId,
    /// The record whose run appended it, as log and seqno of the device.
    run: Option<(&'e str, u64)>,
    id: EventId,
    clock: Hlc,
}

struct Batch<'a> {
    import: &'a Import,
    namespace: &'a Namespace,
    publish: Publish<'a>,
    /// The ids of the records of this batch.
    ids: HashMap<(&'a str, u64), EventId>,
}

impl<'a> Batch<'a> {
    fn append(&mut self, tx: &mut Transaction<'_>, record: &New<'a>) -> Result<()> {
        let (name, catalog) = (self.import.log(record.log)?, tx.catalog().clone());
        let log = millrace_namespace::found(catalog.log(&name), &name)?;
        let cause = match record.run {
            Some(run) => self.id_of(&catalog, run)?,
            None => record.cause,
        };
        let imported = Imported::Record { id: record.id, clock: record.clock };
        let appended = self.publish.import(tx, (log, record.seqno), record.payload, cause, &imported)?;
        self.ids.insert((record.log, record.seqno), appended.id);
        Ok(())
    }

    /// The id that a record of the device has here, if it is known.
    fn id_of(&self, catalog: &Catalog, (log, seqno): (&'a str, u64)) -> Result<EventId> {
        if let Some(id) = self.ids.get(&(log, seqno)) {
            return Ok(*id);
        }
        let Some(log): Option<&Log> = catalog.log(&self.import.log(log)?) else { return Ok(EventId::NONE) };
        let found = self.namespace.journal().get(log, seqno, &mut Vec::new());
        Ok(found.map_or(EventId::NONE, |meta| meta.id))
    }
}
