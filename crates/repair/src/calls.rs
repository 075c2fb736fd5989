//! Answers the calls of a replayed run: with the records that the original run saw, or their repaired versions.

use crate::{
    overlay::Overlay,
    past::{At, Fired, Past},
};
use millrace_journal::{Journal, Reads, What};
use millrace_namespace::{
    definition::Rights,
    names::check_public,
    outbox::{self, message},
};
use millrace_runtime::{HostCalls, Replay};
use millrace_wire::{Address, Code, Error, LogName, Result};
use std::collections::{HashMap, HashSet};

/// The limits are those of a run that is not replayed.
const APPENDS_MAX: usize = 10_000;

/// The calls of one run, and its appends.
pub struct Calls<'a> {
    pub journal: &'a Journal,
    pub past: &'a Past,
    pub overlay: &'a Overlay,
    pub fired: Fired,
    pub rights: &'a Rights,
    pub replay: Replay,
    /// Its appends: log ids and bytes, in order.
    pub appends: Vec<(u32, Vec<u8>)>,
    /// By log: which of them went there.
    own: HashMap<u32, Vec<usize>>,
    pub reads: Reads,
    noted: HashSet<(u32, u64, What)>,
    /// Why the run cannot be replayed here at all.
    pub broken: Option<Error>,
}

impl<'a> Calls<'a> {
    pub fn new(
        journal: &'a Journal,
        (past, overlay): (&'a Past, &'a Overlay),
        fired: Fired,
        rights: &'a Rights,
        replay: Replay,
    ) -> Self {
        Self {
            journal,
            past,
            overlay,
            fired,
            rights,
            replay,
            appends: Vec::new(),
            own: HashMap::new(),
            reads: Reads::default(),
            noted: HashSet::new(),
            broken: None,
        }
    }

    fn log(&self, name: &str) -> Result<u32> {
        let none = || Code::LogNotFound.error(format!("no log '{name}'"));
        self.past.log_at(name, &self.fired).ok_or_else(none)
    }

    fn log_read(&self, name: &str) -> Result<u32> {
        self.rights.check_read(&name.parse::<LogName>()?)?;
        self.log(name)
    }

    fn note(&mut self, log: u32, seqno: u64, what: What) {
        if self.noted.insert((log, seqno, what)) {
            self.reads.log(log, seqno, what);
        }
    }

    fn refuse<T>(&mut self, (log, seqno): (u32, u64), error: Error) -> Result<T> {
        let what = match error.code() {
            Code::BelowHistory => What::BelowHistory,
            Code::AboveTail => What::Absent,
            code => What::Refused(code.id()[2..].parse().unwrap_or(0)), // `MR` and four digits
        };
        self.note(log, seqno, what);
        Err(error)
    }

    /// Appends a message for another namespace, if the outbox for it existed when the run was replayed for the first time.
    fn send(&mut self, to: &str, payload: &[u8]) -> Result<Option<u64>> {
        let address: Address = to.parse()?;
        let target = outbox::check_target(&address)?;
        self.rights.check_send(&address)?;
        let name = outbox::outbox_of(&address.peer);
        let Some(log) = self.past.logs.iter().find(|(_, log)| log.name == name).map(|(id, _)| *id) else {
            let error =
                Code::RepairUnsupported.error(format!("the run sends to '{to}', to which it sent no message before"));
            return Err(self.broken.get_or_insert(error).clone());
        };
        let mut bytes = Vec::new();
        message::encode(&mut bytes, 0, target, None, payload);
        self.leave(log, bytes)
    }

    fn leave(&mut self, log: u32, bytes: Vec<u8>) -> Result<Option<u64>> {
        if self.appends.len() == APPENDS_MAX {
            return Err(Code::RunTooWide.error(format!("the run appends more than {APPENDS_MAX} records")));
        }
        self.own.entry(log).or_default().push(self.appends.len());
        self.appends.push((log, bytes));
        Ok(None)
    }

    /// The content of a slot that the run saw.
    fn at(&self, log: u32, seqno: u64) -> Option<At> {
        let slot = self.past.logs.get(&log)?.slots.get(&seqno).filter(|slot| self.past.sees(&self.fired, slot))?;
        Some(self.overlay.at(log, seqno).unwrap_or(slot.at))
    }

    /// The newest record of a log that the run saw, not counting its own.
    fn newest(&self, log: u32) -> u64 {
        newest(self.past, self.overlay, log, &self.fired)
    }
}

/// The newest record of a log that an attempt sees in the repaired history; 0 if there is none.
pub fn newest(past: &Past, overlay: &Overlay, log: u32, fired: &Fired) -> u64 {
    let upto = past.newest_slot(log, fired);
    let Some(log_past) = past.logs.get(&log) else { return 0 };
    let seen = log_past.slots.range(..=upto).rev().filter(|(_, slot)| past.sees(fired, slot));
    let at = |seqno: u64, slot: &crate::past::Slot| overlay.at(log, seqno).unwrap_or(slot.at);
    seen.map(|(seqno, slot)| (*seqno, at(*seqno, slot))).find(|(_, at)| !at.void).map_or(0, |(seqno, _)| seqno)
}

impl HostCalls for Calls<'_> {
    fn append(&mut self, name: &str, payload: &[u8]) -> Result<Option<u64>> {
        if Address::claims(name) {
            return self.send(name, payload);
        }
        check_public(name)?;
        self.rights.check_append(&name.parse::<LogName>()?)?;
        let log = self.log(name)?;
        self.leave(log, payload.to_vec())
    }

    fn get(&mut self, name: &str, seqno: u64) -> Result<Vec<u8>> {
        let log = self.log_read(name)?;
        let whose = (log, seqno);
        if seqno == 0 {
            return self.refuse(whose, Code::SeqnoInvalid.error(format!("log '{name}' has no record 0")));
        }
        let newest = self.past.newest_slot(log, &self.fired);
        if seqno > newest {
            let own = self.own.get(&log).map_or(&[][..], |own| own);
            if let Some(index) = own.get((seqno - newest - 1) as usize) {
                return Ok(self.appends[*index].1.clone());
            }
            let newest = newest + own.len() as u64;
            let error = format!("log '{name}' has no record {seqno} yet; the newest is {newest}");
            return self.refuse(whose, Code::AboveTail.error(error));
        }
        if seqno.saturating_add(self.past.history(log)) <= newest {
            return self.refuse(whose, Code::BelowHistory.error(format!("log '{name}' no longer has record {seqno}")));
        }
        let Some(at) = self.at(log, seqno) else {
            let known = self.past.logs.get(&log).is_some_and(|past| past.slots.contains_key(&seqno));
            if known {
                return self.refuse(whose, Code::AboveTail.error(format!("log '{name}' has no record {seqno} yet")));
            }
            return self.refuse(whose, Code::BelowHistory.error(format!("log '{name}' no longer has record {seqno}")));
        };
        if at.void {
            let error = format!("log '{name}' no longer has record {seqno}: a repair removed it");
            return self.refuse(whose, Code::RecordVoid.error(error));
        }
        match self.journal.entry_at(at.position) {
            Ok(entry) => {
                self.note(log, seqno, What::Record);
                Ok(entry.payload)
            }
            Err(error) => {
                let error = Code::RepairUnsupported.error(format!("record {seqno} of log '{name}': {error}"));
                Err(self.broken.get_or_insert(error).clone())
            }
        }
    }

    fn latest(&mut self, name: &str) -> Result<u64> {
        let log = self.log_read(name)?;
        let newest = self.newest(log);
        self.note(log, newest, What::Latest);
        let own = self.own.get(&log).map_or(0, Vec::len) as u64;
        Ok(if own > 0 { self.past.newest_slot(log, &self.fired) + own } else { newest })
    }

    fn now_ns(&mut self) -> u64 {
        self.replay.now_ns()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.replay.random(bytes);
    }
}
