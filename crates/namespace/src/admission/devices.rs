//! Records that are imported from devices: each keeps the number that it has in its device. No other records are appended to such a log.
//!
//! ```text
//!  _device/NAME   the host knows a device of this name, whose logs are NAME/LOG: how far it has imported the device's journal
//!  _devices       notes for people: which devices came and were removed
//! ```

use super::{Publish, Room};
use crate::names::note;
use millrace_journal::{Appended, Catalog, Imported, Log, Origin, Transaction};
use millrace_wire::{Code, EventId, LogName, Result};

const PREFIX: &str = "_device/";
/// This log exists once there has been a device: a namespace without it is not searched for devices.
const NOTES: &str = "_devices";
const NOTES_HISTORY: u64 = 64;
const STATE_HISTORY: u64 = 4;

/// The log with the state of a device.
pub fn state_of(device: &str) -> Result<LogName> {
    let unfit = |_| Code::NameInvalid.error(format!("'{}' is not the name of a device", device.escape_debug()));
    // One segment, so that no device is below another one.
    if device.contains('/') || device.starts_with('_') {
        return Err(unfit(Code::NameInvalid.error("")));
    }
    format!("{PREFIX}{device}").parse().map_err(unfit)
}

/// Every device, by name, with the log that has its state.
pub fn all(catalog: &Catalog) -> impl Iterator<Item = (&str, &Log)> {
    let logs = catalog.log(NOTES).map(|_| catalog.logs()).into_iter().flatten();
    logs.filter_map(|log| Some((log.name().strip_prefix(PREFIX)?, log)))
}

/// The logs that devices write.
pub(crate) fn logs(catalog: &Catalog) -> impl Iterator<Item = &Log> {
    let devices: Vec<&str> = all(catalog).map(|(device, _)| device).collect();
    let logs = if devices.is_empty() { None } else { Some(catalog.logs()) };
    logs.into_iter()
        .flatten()
        .filter(move |log| log.name().split_once('/').is_some_and(|(device, _)| devices.contains(&device)))
}

/// Stages the state of a device.
pub fn keep(tx: &mut Transaction<'_>, device: &str, state: &[u8]) -> Result<()> {
    let log = state_of(device)?;
    if tx.catalog().log(&log).is_none() {
        noted(tx, device, "attached")?;
    }
    note(tx, &log, STATE_HISTORY, state)
}

/// Stages that the namespace knows a device no longer. Its logs keep their records, and are logs like any other.
pub fn forget(tx: &mut Transaction<'_>, device: &str) -> Result<()> {
    let log = state_of(device)?;
    if tx.catalog().log(&log).is_none() {
        return Err(Code::DeviceNotFound.error(format!("no device '{device}' has sent entries to this namespace")));
    }
    tx.remove_log(&log)?;
    noted(tx, device, "removed")
}

fn noted(tx: &mut Transaction<'_>, device: &str, change: &str) -> Result<()> {
    let change = serde_json::json!({ "device": device, "change": change }).to_string();
    note(tx, &crate::names::internal(NOTES), NOTES_HISTORY, change.as_bytes())
}

impl Publish<'_> {
    /// Stages a record of a device under its number, and the runs that it triggers; nothing if there is no room for them. Its cause is what
    /// the device says or, with the record's number among those of the run, a run that is imported from there.
    pub fn import(
        &self,
        tx: &mut Transaction<'_>,
        (log, seqno): (&Log, u64),
        payload: &[u8],
        cause: (EventId, Option<u16>),
        imported: &Imported,
    ) -> Result<Appended> {
        let bound = match imported {
            Imported::Record { .. } => self.bindings().of_log(log.id()),
            Imported::Missing => &[],
        };
        for bound in bound {
            let pending = tx.pending(bound.function);
            if pending >= Room::Mirror.most(*bound) {
                let name = self.bindings().definition(bound.function).map_or("?", |definition| &*definition.spec.name);
                return Err(Room::Mirror.refusal(log.name(), name, pending));
            }
        }
        let appended = tx.append_imported(log, seqno, payload, cause, imported)?;
        for bound in bound {
            tx.trigger(bound.function, appended.id, log, seqno, Origin::Bound)?;
        }
        Ok(appended)
    }
}
