//! Devices: their journals are imported into the namespace. The log `raw` of the device `kitchen` is the log `kitchen/raw` here, with the
//! same numbers and times, and the runs of the device's functions are runs here.
//!
//! The device sends its sectors from the one on that has the last entry that this namespace has. What came before is compared, not imported
//! again: the last burst has to be the same, by its checksum, or another device, or an older state of this one, is at the other end.

pub mod commands;
mod functions;
mod import;
mod kept;
mod pending;
mod provision;
mod refused;
mod runs;
pub mod updates;

pub use import::Import;
pub use kept::{KeptLog, kept_in, kept_of, still_on_devices, still_on_devices_of};
pub use pending::{OnDevice, devices_of, pending, pending_of};
pub use provision::{check_name, provision};
pub use refused::{KnownBy, RefusedDevice, refused};
pub(crate) use refused::{Refusals, RefusedAttempt};

use crate::links::Accepted;
use commands::Refusal;
use millrace_documents::rfc3339;
use millrace_journal::{Catalog, Transaction};
use millrace_namespace::{Namespace, admission::devices, names::newest_note};
use millrace_wire::{
    Code, Error, Hlc, Name, NamespaceId, Result,
    protocol::{Attach, Attached},
};
use serde::{Deserialize, Serialize};

/// How many starts of a device, whose entries have not come yet, are remembered with the correction of their clock.
const CORRECTIONS_MAX: usize = 64;

/// From so many connections of a device it is concluded when it comes again.
pub const CAME_MAX: usize = 8;
/// A connection that changes nothing else is kept only so long after the one that was kept before, so that a line that breaks all the time fills no journal.
const CAME_EVERY_MS: u64 = 60_000;

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
    /// The last entry that it had when it attached, if this namespace did not have that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub has: u64,
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
    /// The id of the capability that it has shown last, unless it is that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// When it connected, the last times, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub came: Vec<u64>,
    /// Its logs, by its firmware. They are in a log of their own, since they seldom change.
    #[serde(skip)]
    pub kept: Vec<KeptLog>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl State {
    /// Notes what the device has; whether that is new.
    fn now_has(&mut self, attach: &Attach<'_>) -> bool {
        let has = attach.next.saturating_sub(1);
        let is_new = has > self.sequence && has != self.has;
        if is_new {
            self.has = has;
        }
        is_new
    }

    /// Whether everything is imported that the device had when it attached.
    fn is_caught_up(&self) -> bool {
        self.sequence >= self.has
    }

    /// The ids of the capabilities that the device has.
    fn capabilities(&self) -> impl Iterator<Item = &String> {
        self.capability.iter().chain(&self.shown)
    }

    fn has(&self, capability: &str) -> bool {
        self.capabilities().any(|own| own == capability)
    }

    /// Notes the capability that a device shows; whether that is new.
    fn shows(&mut self, capability: Option<&str>) -> bool {
        let Some(capability) = capability.filter(|capability| !self.has(capability)) else { return false };
        self.shown = Some(capability.to_owned());
        true
    }

    /// Notes that the device connects now; whether that is to be kept although nothing else is new.
    fn comes(&mut self, now_ms: u64) -> bool {
        let is_due = self.came.last().is_none_or(|last| now_ms.abs_diff(*last) >= CAME_EVERY_MS);
        self.came.push(now_ms);
        let surplus = self.came.len().saturating_sub(CAME_MAX);
        self.came.drain(..surplus);
        is_due
    }

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

/// Whether a device is connected. Times are texts as in other documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Whether it is connected now.
    pub connected: bool,
    /// Since when, if it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Until when it was connected, if that is known and it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// When it will connect again, if it does so at regular intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// When a device will connect again that does so at regular intervals, in milliseconds since 1970: their median after the last time. The others may be half of
/// it, or twice.
pub fn expected_ms(came: &[u64]) -> Option<u64> {
    let mut intervals: Vec<u64> = came.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    intervals.sort_unstable();
    let median = *intervals.get(intervals.len() / 2)?;
    let is_regular = intervals.len() >= 2 && intervals[0] >= median / 2 && *intervals.last()? <= median * 2;
    came.last().filter(|_| is_regular && median > 0).map(|last| *last + median)
}

/// A device that is attached: its name, and the identity with which it was accepted. After it was removed, another one may have its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedDevice {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: NamespaceId,
}

impl AttachedDevice {
    /// Whether this namespace still knows the device.
    pub(crate) fn check(&self, namespace: &Namespace, catalog: &Catalog) -> Result<State> {
        let known = read(namespace, catalog, &self.name)?.filter(|state| state.namespace == self.identity.get());
        known.ok_or_else(|| {
            let Self { name, identity } = self;
            Code::DeviceNotFound.error(format!("device '{name}' ({identity}) was removed from this namespace"))
        })
    }
}

/// A device that has sent entries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// The time of its newest entry, which is `state.clock` as a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Whether it is connected. Only its host knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<Presence>,
    /// How far it is imported.
    #[serde(flatten)]
    pub state: State,
    /// Its logs here, with their newest seqnos.
    pub logs: Vec<(String, u64)>,
    /// How many commands wait for it.
    pub commands_waiting: u64,
    /// Why it takes no commands, if it refused all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_refused: Option<commands::Refusal>,
    /// Its firmware, if it can be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<updates::Firmware>,
    /// Its logs, as its firmware declares them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptLog>,
    /// Why it, or another device that says to be it, is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedDevice>,
}

/// A page of devices.
#[derive(Debug, Serialize, Deserialize)]
pub struct DevicesDoc {
    /// These devices, each as `millrace device show` has it.
    pub devices: Vec<Device>,
    /// The name of the last one, if there are more.
    pub next: Option<String>,
    /// All that are refused now, on each page.
    pub refused: Vec<RefusedDevice>,
}

/// Every device that has sent entries to this namespace.
pub fn all(namespace: &Namespace) -> Result<Vec<Device>> {
    let catalog = namespace.journal().catalog()?;
    let (mut found, all_refused) = (Vec::new(), refused(namespace)?);
    for (name, _) in devices::all(&catalog) {
        let Some(bytes) = newest_note(namespace, &devices::state_of(name)?)? else { continue };
        let state = decode(name, &bytes)?;
        let (commands_waiting, commands_refused) =
            (commands::waiting(&catalog, name), commands::refusal(namespace, &catalog, name)?);
        let firmware = updates::of(namespace, name)?;
        let (name, prefix) = (name.to_owned(), format!("{name}/"));
        let logs = catalog.logs().filter(|log| log.name().starts_with(&prefix));
        let mut logs: Vec<(String, u64)> = logs.map(|log| (log.name().to_string(), log.latest())).collect();
        logs.sort();
        let refused = all_refused.iter().filter(|refused| refused.device == name).cloned().collect();
        let kept = kept::of(namespace, &name)?;
        let time = (state.clock > 0).then(|| rfc3339(Hlc::from_bits(state.clock)));
        let presence = None;
        found.push(Device {
            name,
            time,
            presence,
            state,
            logs,
            commands_waiting,
            commands_refused,
            firmware,
            kept,
            refused,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The device of this name.
pub fn one(namespace: &Namespace, name: &str) -> Result<Device> {
    let found = all(namespace)?.into_iter().find(|device| device.name == name);
    found.map_or_else(|| Err(missing(name, &refused(namespace)?)), Ok)
}

/// There is no device of this name; one that uses it may have been refused.
pub fn missing(name: &str, refused: &[RefusedDevice]) -> Error {
    let refused = refused.iter().find(|refused| refused.device == name).map_or_else(String::new, |refused| {
        let Refusal { code, detail } = &refused.refusal;
        format!("; one that uses this name was refused: {code}: {detail}")
    });
    Code::DeviceNotFound.error(format!("no device '{name}' has sent entries to this namespace{refused}"))
}

/// Whether everything is imported that a device had when it attached.
pub(crate) fn is_caught_up(namespace: &Namespace, device: &str) -> Result<bool> {
    let bytes = newest_note(namespace, &devices::state_of(device)?)?;
    bytes.map_or(Ok(true), |bytes| decode(device, &bytes).map(|state| state.is_caught_up()))
}

/// Whether a device has sent records.
pub(crate) fn has_records(namespace: &Namespace, device: &str) -> Result<bool> {
    let bytes = newest_note(namespace, &devices::state_of(device)?)?;
    bytes.map_or(Ok(false), |bytes| decode(device, &bytes).map(|state| state.records > 0))
}

/// How far the journal of a device is imported.
pub(crate) fn state(namespace: &Namespace, device: &str) -> Result<State> {
    let missing = || Code::DeviceNotFound.error(format!("no device '{device}' is known to this namespace"));
    let bytes = newest_note(namespace, &devices::state_of(device)?)?.ok_or_else(missing)?;
    decode(device, &bytes)
}

/// Removes a device; its logs stay, and are logs like any other. The functions of this device alone stay as well, since their runs are part of the
/// history of its logs: returns their names.
///
/// What it was provisioned with ends: its capability is revoked. Of a device that never was accepted, its refusals are forgotten.
pub fn remove(namespace: &Namespace, name: &str) -> Result<Vec<Name>> {
    let catalog = namespace.journal().catalog()?;
    let state = read(namespace, &catalog, name)?;
    if let Some(state) = &state {
        provision::withdraw(namespace, name, state)?;
    }
    let committed = namespace.journal().commit(|tx| {
        if refused::forget(namespace, tx, name, state.as_ref())? && state.is_none() {
            return Ok(());
        }
        devices::forget(tx, name)?;
        commands::forget(namespace, tx, name)?;
        kept::forget(tx, name)?;
        updates::forget(tx, name)
    });
    committed?;
    let bindings = namespace.bindings()?;
    let of_device = bindings.functions().filter_map(|(_, definition)| definition.as_deref().ok());
    let prefix = format!("{name}.");
    let own = of_device.map(|definition| &definition.spec);
    let own = own.filter(|spec| spec.at.as_deref() == Some(name) && spec.name.starts_with(&prefix));
    Ok(own.map(|spec| spec.name.clone()).collect())
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

/// The state of a device, if it can be read.
fn known_by(namespace: &Namespace, device: &str) -> Option<State> {
    read(namespace, &*namespace.journal().catalog().ok()?, device).ok().flatten()
}

fn keep(tx: &mut Transaction<'_>, device: &str, state: &State) -> Result<()> {
    devices::keep(tx, device, &serde_json::to_vec(state).expect("numbers always make JSON"))
}

/// Begins the import of a device's journal, or continues it. `capability` is the id of the one that the device shows.
pub(crate) fn attach(
    namespace: &Namespace,
    attach: &Attach<'_>,
    capability: Option<&str>,
) -> Result<Accepted<(Import, Attached)>> {
    let device = attach.device;
    let bad = || Code::ValueInvalid.error(format!("{} is not the identity of a namespace", attach.namespace));
    let identity = NamespaceId::new(attach.namespace).ok_or_else(bad)?;
    let attached = AttachedDevice { name: device.to_owned(), identity };
    let now_ms = refused::now_us() / 1000;
    let committed = namespace.journal().commit(|tx| {
        let catalog = tx.catalog().clone();
        let Some(mut state) = read(namespace, &catalog, device)? else {
            check_new(namespace, &catalog, attach)?;
            let mut state = State { namespace: attach.namespace, attached: attach.epoch, ..State::default() };
            state.corrected(attach);
            state.shows(capability);
            state.now_has(attach);
            state.comes(now_ms);
            keep(tx, device, &state)?;
            refused::accept(namespace, tx, &attached, false)?;
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
        let (is_corrected, is_shown, is_due) = (state.corrected(attach), state.shows(capability), state.comes(now_ms));
        if state.now_has(attach) || attach.epoch > state.attached || is_corrected || is_shown || is_due {
            state.attached = attach.epoch;
            keep(tx, device, &state)?;
        }
        refused::accept(namespace, tx, &attached, false)?;
        commands::begin(tx, device)?;
        Ok(state)
    })?;
    let state = State { kept: kept::of(namespace, device)?, ..committed.value };
    let answer = Attached { sequence: state.sequence };
    Ok(Accepted { value: (Import::new(attached, state), answer), end: committed.end })
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

#[cfg(test)]
mod tests {
    use super::{CAME_MAX, State, expected_ms};

    #[test]
    fn a_device_that_comes_regularly_is_expected() {
        assert_eq!(expected_ms(&[0, 60_000, 121_000, 180_000]), Some(240_000));
        for irregular in
            [&[][..], &[0], &[0, 60], &[0, 1, 61, 121], &[0, 60, 120, 3600], &[7, 7, 7, 7], &[90, 60, 30, 0]]
        {
            assert_eq!(expected_ms(irregular), None, "{irregular:?}");
        }
    }

    #[test]
    fn a_device_that_comes_all_the_time_is_kept_once_a_minute() {
        let mut kept = State::default();
        let mut writes = 0;
        for second in 0..600 {
            let mut state = kept.clone();
            if state.comes(second * 1000) {
                (kept, writes) = (state, writes + 1);
            }
        }
        assert_eq!((writes, kept.came.len(), kept.came.last()), (10, CAME_MAX, Some(&540_000)));
        // The clock of the host was set back.
        assert!(kept.comes(1000));
    }
}
