//! The access of a device to the namespace that its journal is imported into.

use super::Access;
use crate::{
    Gated, Shows, Site,
    devices::{self, Import},
    links::Accepted,
};
use millrace_security::check::{Resource, Right};
use millrace_wire::{
    HISTORY_DEFAULT, Result,
    protocol::{Attach, Attached, Entered, Entries},
};

impl Access {
    /// Begins or continues the import of a device's journal. This requires the right to append to all logs below the device's name.
    pub fn attach(&self, attach: &Attach<'_>) -> Gated<(Import, Attached)> {
        self.imported(|| {
            let any = format!("{}/attach", attach.device);
            self.check(Right::Append, Resource::log(&any))?;
            devices::attach(self.namespace(), attach)
        })
    }

    /// Imports entries of a device; the result waits until they are safe. To create a log, the caller needs the right to.
    pub fn enter(&self, import: &Import, entries: &Entries<'_>) -> Gated<Entered> {
        self.imported(|| {
            import.enter(self.namespace(), entries, &|log, bytes, creates| {
                self.check_append(log, bytes, None)?;
                if creates {
                    self.check(Right::Create, Resource::log(log))?;
                    self.check_log(log, HISTORY_DEFAULT)?;
                }
                Ok(())
            })
        })
    }

    fn imported<T>(&self, import: impl FnOnce() -> Result<Accepted<T>>) -> Gated<T> {
        let imported = import();
        let held = imported
            .map(|Accepted { value, end }| self.served.gate().hold(Site::Deliver, value, Shows::Batch(end), None));
        self.out(held, None)
    }
}
