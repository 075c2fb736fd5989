//! Space on the disk: what retention drops where no host does it, and other limits of retention.

use super::Namespace;
use millrace_journal::{Entry, Log, Maintained, Needs, Position};
use millrace_wire::{EventId, Result};
use std::time::Duration;

impl Namespace {
    /// Drops what the journal need not keep, as a host does from time to time.
    pub fn reclaim(&self) -> Result<Maintained> {
        let pending = |_, run, _: Option<EventId>| match self.fold_of(run, false) {
            Ok(fold) => fold.is_some_and(|fold| fold.outcome().is_none()),
            // A run that cannot be read is not known to be done.
            Err(_) => true,
        };
        self.maintain(&pending)
    }

    /// Has the journal drop what neither its logs and tables nor runs need; `runs` says whether a run is needed, and, with one of its FIREDs, whether
    /// that one is.
    pub fn maintain(&self, runs: &dyn Fn(u32, EventId, Option<EventId>) -> bool) -> Result<Maintained> {
        self.journal().maintain_needed(&Needed { namespace: self, runs })
    }

    /// [`Namespace::reclaim`] where space is low and no host is running; whether it dropped anything.
    pub(crate) fn reclaim_alone(&self) -> bool {
        let is_alone = || matches!(self.host(), Ok(None));
        self.journal().low_space().is_some()
            && is_alone()
            && self.reclaim().is_ok_and(|maintained| maintained.dropped > 0)
    }

    /// Changes how much of the journal is kept; what is not given stays as it is. Returns whether anything changed. A running host
    /// follows within seconds; without one, what is no longer retained is dropped at once.
    pub fn set_retention(&self, bytes: Option<u64>, age: Option<Option<Duration>>) -> Result<bool> {
        let changed = self.journal().set_retention(bytes, age)?;
        if matches!(self.host(), Ok(None)) {
            self.reclaim()?;
        }
        Ok(changed)
    }
}

/// What the runs and the tables of a namespace need.
struct Needed<'n> {
    namespace: &'n Namespace,
    runs: &'n dyn Fn(u32, EventId, Option<EventId>) -> bool,
}

impl Needs for Needed<'_> {
    fn run(&self, function: u32, run: EventId, fired: Option<EventId>) -> bool {
        (self.runs)(function, run, fired)
    }

    fn floor(&self) -> Result<Option<Position>> {
        self.namespace.unwritten_from()
    }

    fn row(&self, log: &Log, record: &Entry) -> Result<bool> {
        self.namespace.tables().is_live(self.namespace.journal(), log, record)
    }
}
