//! What relays have forwarded of a log, so that records which they still need are not trimmed by mistake.

use super::state::{Endpoint, OnGap, Relay, State};
use crate::{
    Namespace, Shows, Site, found,
    names::{self, newest_note},
};
use millrace_journal::Log;
use millrace_wire::{Code, Error, LogName, Result};

/// A refusal to drop records of a log, since something is still to be done with these.
pub fn not_forwarded(what: &str, (first, last): (u64, u64), log: &str) -> Error {
    let them = if first == last { format!("record {first}") } else { format!("records {first} to {last}") };
    Code::LogNotForwarded.error(format!("{what} {them} of log '{log}'"))
}

impl Relay {
    /// The last number that the other side has acknowledged, as it was noted; 0 if none was.
    pub fn noted(&self, namespace: &Namespace) -> Result<u64> {
        let log = self.progress_log();
        let Some(payload) = newest_note(namespace, &log)? else { return Ok(0) };
        let number = std::str::from_utf8(&payload).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| Code::LinkStateDamaged.error(format!("log '{log}'")))
    }

    /// The first record of its stream, and the last one that was acknowledged: the one before the first if there is none.
    pub fn progress(&self, namespace: &Namespace) -> Result<(u64, u64)> {
        let start = self.course.begin.unwrap_or(self.start).max(1);
        let acked = if self.course.fresh { start - 1 } else { self.noted(namespace)?.max(start - 1) };
        Ok((start, acked))
    }
}

impl Namespace {
    /// Drops the records of a log before `before`, whatever its history; at most all of them go.
    ///
    /// # Errors
    ///
    /// [`Code::LogNotForwarded`] if a relay that stops at a gap has not forwarded all of them, unless `force` is set.
    pub fn trim_log(&self, name: &LogName, before: u64, force: bool) -> Result<()> {
        names::check_public(name)?;
        let committed = self.journal().commit(|tx| {
            let log = found(tx.catalog().log(name), name)?.clone();
            if !force {
                self.check_forwarded(&log, before)?;
            }
            tx.trim(&log, before)
        })?;
        self.settle(Site::Trim, Shows::Report(committed.end), None)?;
        self.reclaim_alone();
        Ok(())
    }

    fn check_forwarded(&self, log: &Log, before: u64) -> Result<()> {
        let (earliest, last) = (log.earliest().max(1), log.latest().min(before.saturating_sub(1)));
        for relay in State::load(self)?.relays {
            let is_of_log = matches!(&relay.from, Endpoint::Here(from) if from == log.name());
            if !is_of_log || relay.leaving || relay.pass_gap || relay.on_gap == OnGap::Skip {
                continue;
            }
            let (_, acked) = relay.progress(self)?;
            let first = earliest.max(acked + 1);
            if first <= last {
                let what = format!("relay '{}' has not forwarded", relay.name);
                return Err(not_forwarded(&what, (first, last), log.name()));
            }
        }
        Ok(())
    }
}
