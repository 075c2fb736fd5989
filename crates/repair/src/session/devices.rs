//! Runs that were imported from devices. Their functions run there, and are replayed here with their twins: the same source as WebAssembly.
//!
//! A run of a device saw what stands before its FIRED, and not its own records. It names the logs without the name of the device. A replay
//! puts other records into the slots of this namespace's copy, and never appends to a log of a device, whose numbers are the device's.

use super::Session;
use crate::{
    calls::{Calls, Leaving},
    past::{Fired, Past, Run},
};
use millrace_journal::What;
use millrace_namespace::Definition;
use millrace_runtime::LogCalls;
use millrace_wire::{Address, Code, EventId, Result};
use std::{collections::HashMap, sync::Arc};

impl Run {
    /// Whether it was imported from a device.
    pub(crate) fn is_of_device(&self) -> bool {
        self.fired.is_some_and(|fired| fired.there.is_some())
    }
}

/// The device whose run this is: the beginning of the name of its record's log.
pub(crate) fn device_of<'p>(past: &'p Past, run: &Run) -> Option<&'p str> {
    let log = past.logs.get(&run.trigger.log).filter(|_| run.is_of_device())?;
    log.name.split_once('/').map(|(device, _)| device)
}

impl Session<'_> {
    /// The twin of a run of a device: the code that its function had here, or the one that it has by now; none if it has none.
    pub(super) fn twin_of(&self, definition: Arc<Definition>) -> Result<Option<Arc<Definition>>> {
        match definition.is_without_code() {
            true => Ok(self.namespace.bindings()?.twin_of(&definition).cloned()),
            false => Ok(Some(definition)),
        }
    }

    /// Whether a run of a device had the records that are here: those that a repair has replaced since, the firmware did not have.
    pub(super) fn has_originals(&self, run: &Run) -> Result<bool> {
        let read = run.reads.iter().filter(|row| row.what == What::Record);
        for (log, from, count) in
            read.map(|row| (row.log, row.from, row.count)).chain([(run.trigger.log, run.trigger.seqno, 1)])
        {
            let Some(past) = self.past.logs.get(&log) else { continue };
            for (_, slot) in past.slots.range(from..from.saturating_add(count)) {
                if slot.at.position != slot.written
                    && self.namespace.journal().entry_at(slot.at.position)?.repair().is_some()
                {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What a run of a device leaves that fails again: its record, in the log for that, as the device does it. If it did not fail there, the twin
    /// cannot take its place.
    pub(super) fn letter_of_device(&self, run: &Run, payload: &[u8]) -> Vec<Leaving> {
        let letter = run.appends.first().filter(|_| run.is_dead);
        letter.map(|(log, _)| Leaving { log: *log, payload: payload.to_vec(), change: None }).into_iter().collect()
    }
}

/// The calls of a twin.
pub(super) struct DeviceCalls<'c, 'a> {
    calls: &'c mut Calls<'a>,
    device: String,
    /// By log: the oldest record that the run had read.
    oldest: HashMap<String, u64>,
}

impl<'c, 'a> DeviceCalls<'c, 'a> {
    pub fn new(calls: &'c mut Calls<'a>, device: &str, run: &Run) -> Self {
        let mut oldest = HashMap::new();
        for row in run.reads.iter().filter(|row| row.what == What::Record) {
            if let Some(log) = calls.past.logs.get(&row.log) {
                let first = oldest.entry(log.name.to_string()).or_insert(row.from);
                *first = row.from.min(*first);
            }
        }
        calls.hides_own = true;
        Self { calls, device: device.to_owned(), oldest }
    }

    fn name(&self, log: &str) -> Result<String> {
        if Address::claims(log) {
            return Err(Code::LogNotFound.error(format!("a device has no log '{log}'")));
        }
        Ok(format!("{}/{log}", self.device))
    }
}

impl LogCalls for DeviceCalls<'_, '_> {
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        self.calls.append(&self.name(log)?, payload)
    }

    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>> {
        let name = self.name(log)?;
        if self.oldest.get(&name).is_some_and(|oldest| seqno < *oldest) {
            // It may have been dropped from the flash, whose size is not known here.
            return Err(
                Code::BelowHistory.error(format!("the device may not have had record {seqno} of '{log}' any more"))
            );
        }
        match self.calls.get(&name, seqno) {
            // A device knows no records that were removed: they were dropped.
            Err(error) if error.code() == Code::RecordVoid => {
                Err(Code::BelowHistory.error(format!("record {seqno} of '{log}' was removed")))
            }
            // None of its records has come.
            Err(error) if error.code() == Code::LogNotFound => {
                Err(Code::AboveTail.error(format!("log '{log}' has no record {seqno} yet")))
            }
            got => got,
        }
    }

    fn latest(&mut self, log: &str) -> Result<u64> {
        match self.calls.latest(&self.name(log)?) {
            Err(error) if error.code() == Code::LogNotFound => Ok(0),
            latest => latest,
        }
    }

    fn now_ns(&mut self) -> u64 {
        self.calls.now_ns()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.calls.random(bytes);
    }
}

/// The id of a run as its function reads it.
pub(super) fn id_of(run: EventId, fired: &Fired) -> EventId {
    fired.there.filter(|there| !there.is_none()).unwrap_or(run)
}
