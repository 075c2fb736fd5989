//! Which records a device still has: a repair corrects the copies here, and not what is in flash.
//!
//! ```text
//!  _kept/NAME   the logs of the device, as the catalog of its newest sector declares them
//! ```

use super::known_by;
use millrace_device::Feed;
use millrace_documents::OnDeviceDoc;
use millrace_journal::Transaction;
use millrace_namespace::{
    Namespace,
    admission::devices,
    names::{newest_note, note},
};
use millrace_wire::{LogName, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most logs in a list of what devices still have.
pub const ON_DEVICES_MAX: usize = 100;
/// Most logs of a device that are remembered: its firmware has at most as many.
const LOGS_MAX: usize = 64;
/// The flag of a log whose newest record is never dropped, in the journal of a device.
const KEEP: u8 = 1;

const PREFIX: &str = "_kept/";
const HISTORY: u64 = 2;

/// The log with the logs of a device.
pub fn kept_of(device: &str) -> Result<LogName> {
    devices::state_of(device)?;
    format!("{PREFIX}{device}").parse()
}

/// The logs of a device, as the record of [`kept_of`] says.
pub fn kept_in(record: &[u8]) -> Vec<KeptLog> {
    serde_json::from_slice(record).unwrap_or_default()
}

pub(super) fn of(namespace: &Namespace, device: &str) -> Result<Vec<KeptLog>> {
    Ok(newest_note(namespace, &kept_of(device)?)?.map_or_else(Vec::new, |record| kept_in(&record)))
}

pub(super) fn keep(tx: &mut Transaction<'_>, device: &str, kept: &[KeptLog]) -> Result<()> {
    note(tx, &kept_of(device)?, HISTORY, &serde_json::to_vec(kept).expect("text and numbers always make JSON"))
}

/// Stages that nothing is known of a device: another one of its name may have other logs.
pub(super) fn forget(tx: &mut Transaction<'_>, device: &str) -> Result<()> {
    let log = kept_of(device)?;
    if tx.catalog().log(&log).is_some() { note(tx, &log, HISTORY, b"") } else { Ok(()) }
}

/// A log of a device, as its firmware declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLog {
    /// Its name in the device.
    pub log: String,
    /// How many of its newest records the device keeps, if its flash has room for them.
    pub history: u64,
    /// Whether its newest record stays, however full the flash is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// Whether a command was delivered to it. The catalog does not say which logs take commands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub commands: bool,
}

/// The logs of a device, by the catalog of its newest sector, what was known of them, and what was delivered to them now.
pub(super) fn kept_logs(feed: &Feed, before: &[KeptLog], delivered: &[&str]) -> Vec<KeptLog> {
    let of = |(log, history, flags): (&str, u64, u8)| {
        let commands = delivered.contains(&log) || before.iter().any(|known| known.log == log && known.commands);
        KeptLog { log: log.to_owned(), history, keep: flags & KEEP != 0, commands }
    };
    feed.logs().take(LOGS_MAX).map(of).collect()
}

/// What devices may still have of records that change here.
#[derive(Default)]
struct OldRecords {
    device: String,
    kept: Option<KeptLog>,
    newest: u64,
    records: u64,
    range: (u64, u64),
}

impl OldRecords {
    /// Of a log that a device may have; none if it is the log of no device, or of one whose firmware does not have it any more.
    fn of(log: &str, kept: &impl Fn(&str) -> Option<Vec<KeptLog>>, newest: &impl Fn(&str) -> u64) -> Option<Self> {
        let (device, name) = log.split_once('/')?;
        let logs = kept(device)?;
        let kept = logs.iter().find(|kept| kept.log == name).cloned();
        if kept.is_none() && !logs.is_empty() {
            return None;
        }
        Some(Self { device: device.to_owned(), kept, newest: newest(log), ..Self::default() })
    }

    fn add(&mut self, seqno: u64) {
        if self.kept.as_ref().is_some_and(|kept| seqno.saturating_add(kept.history) <= self.newest) {
            return;
        }
        self.range =
            if self.records == 0 { (seqno, seqno) } else { (self.range.0.min(seqno), self.range.1.max(seqno)) };
        self.records += 1;
    }
}

/// The logs of devices that may still have records as they were before these were changed, at most [`ON_DEVICES_MAX`], and how many more there
/// are. `kept` finds the logs of a device of a name, and `newest` the newest seqno of a log.
pub fn still_on_devices<'a>(
    changed: impl Iterator<Item = (&'a str, u64)>,
    kept: &impl Fn(&str) -> Option<Vec<KeptLog>>,
    newest: &impl Fn(&str) -> u64,
) -> (Vec<OnDeviceDoc>, u64) {
    let mut logs: BTreeMap<&str, Option<OldRecords>> = BTreeMap::new();
    for (log, seqno) in changed {
        let found = logs.entry(log).or_insert_with(|| OldRecords::of(log, kept, newest));
        found.iter_mut().for_each(|found| found.add(seqno));
    }
    let found = logs.into_iter().filter_map(|(log, found)| Some((log, found?))).filter(|(_, found)| found.records > 0);
    let doc = |(log, found): (&str, OldRecords)| OnDeviceDoc {
        device: found.device,
        log: log.to_owned(),
        records: found.records,
        range: found.range,
        history: found.kept.as_ref().map(|kept| kept.history),
        keep: found.kept.as_ref().is_some_and(|kept| kept.keep),
        commands: found.kept.is_some_and(|kept| kept.commands),
    };
    let mut docs: Vec<OnDeviceDoc> = found.map(doc).collect();
    let more = docs.len().saturating_sub(ON_DEVICES_MAX);
    docs.truncate(ON_DEVICES_MAX);
    (docs, more as u64)
}

/// The same of the devices of a namespace.
pub fn still_on_devices_of<'a>(
    namespace: &Namespace,
    changed: impl Iterator<Item = (&'a str, u64)>,
) -> (Vec<OnDeviceDoc>, u64) {
    let latest = |log: &str| {
        let name = log.parse::<LogName>().ok();
        name.and_then(|name| namespace.log(&name).ok()).map_or(0, |log| log.latest())
    };
    let kept = |device: &str| known_by(namespace, device).map(|_| of(namespace, device).unwrap_or_default());
    still_on_devices(changed, &kept, &latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(device: &str) -> Option<Vec<KeptLog>> {
        let log = |log: &str, history, keep| KeptLog { log: log.into(), history, keep, commands: keep };
        Some(match device {
            "old" => Vec::new(),
            "none" => return None,
            _ => vec![log("raw", 10, false), log("config", 1, true)],
        })
    }

    fn found(changed: &[(&str, u64)]) -> (Vec<OnDeviceDoc>, u64) {
        still_on_devices(changed.iter().copied(), &kept, &|_| 100)
    }

    #[test]
    fn a_device_has_the_newest_records_of_each_log_that_its_firmware_has() {
        let (docs, more) = found(&[
            ("kitchen/raw", 90),
            ("kitchen/raw", 91),
            ("kitchen/raw", 100),
            ("kitchen/config", 99),
            ("kitchen/gone", 100),
            ("none/raw", 100),
            ("raw", 100),
            ("old/raw", 1),
        ]);
        let expected = [("kitchen/raw", 2, (91, 100), Some(10)), ("old/raw", 1, (1, 1), None)];
        let said: Vec<_> = docs.iter().map(|doc| (&*doc.log, doc.records, doc.range, doc.history)).collect();
        assert_eq!((said, more), (expected.to_vec(), 0));
        let (docs, _) = found(&[("kitchen/config", 100)]);
        assert!(docs[0].commands && docs[0].keep && docs[0].device == "kitchen", "{docs:?}");
    }

    #[test]
    fn the_list_is_bounded() {
        let logs: Vec<String> = (0..ON_DEVICES_MAX + 20).map(|number| format!("device{number:03}/raw")).collect();
        let changed: Vec<(&str, u64)> = logs.iter().map(|log| (&**log, 100)).collect();
        let (docs, more) = found(&changed);
        assert_eq!((docs.len(), more), (ON_DEVICES_MAX, 20));
    }
}
