//! Space on the disk: what retention drops where no host does it, and other limits of retention.

use super::Namespace;
use millrace_journal::Maintained;
use millrace_wire::Result;
use std::time::Duration;

impl Namespace {
    /// Drops what the journal need not keep, as a host does from time to time.
    pub fn reclaim(&self) -> Result<Maintained> {
        self.journal().maintain(&|_, run| match self.fold_of(run, false) {
            Ok(fold) => fold.is_some_and(|fold| fold.outcome().is_none()),
            // A run that cannot be read is not known to be done.
            Err(_) => true,
        })
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
