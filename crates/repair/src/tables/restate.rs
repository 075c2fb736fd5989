//! The switch of tables: records that say what each key has whose value is another one in the repaired history. Readers, databases and those
//! who follow the table learn it like any other change, and a version never means another value than it did.

use super::{Held, LAST, LATE, Lookup};
use crate::{session::Session, settle::RowOf};
use millrace_journal::{Operation, Position, Restates, Transaction};
use millrace_namespace::{
    admission::Publish,
    fence::{Slots, WHOLE},
    tables::batch::Restated,
};
use millrace_wire::Result;
use std::sync::Arc;

impl Session<'_> {
    /// Takes the records that the repair will append to tables: each counts from the end of its run on.
    pub(crate) fn take_late(&mut self) -> Result<()> {
        let extra = self.past.written.get(&self.repair).map_or(&[][..], |written| &written.extra);
        let mut late = Vec::new();
        for (number, extra) in extra.iter().enumerate().filter(|(_, extra)| extra.is_keyed) {
            let entry = self.namespace.journal().entry_at(extra.position)?;
            let Some((row, run)) = entry.row().zip(self.past.run(extra.run)) else { continue };
            let by = run.writer(entry.hlc.wall_us());
            late.push((extra.log, LATE + number as u64, RowOf::of(&row), extra.position, by));
        }
        let late = late.iter().map(|(log, slot, row, at, by)| (*log, *slot, row.keyed(Position::default()), *at, *by));
        for (log, key, place) in self.overlay.append_late(late) {
            self.unsettle(log, key, place);
        }
        Ok(())
    }

    /// The slots of which a run may have used another content; of a table, which it reads by keys, any.
    pub(crate) fn fenced(&self) -> Slots {
        let mut slots = self.overlay.slots();
        slots.extend(self.overlay.tables().map(|(log, _)| (log, WHOLE)));
        slots
    }

    /// Stages what each key has that the repair touches. Under the lock of the journal, behind the records that the repair appends.
    pub(crate) fn restate(&self, tx: &mut Transaction<'_>, publish: &mut Publish<'_>) -> Result<()> {
        let lookup = Lookup { past: &self.past, overlay: Some(&self.overlay) };
        let catalog = tx.catalog().clone();
        for (log, rewritten) in self.overlay.tables() {
            // A table that was removed since has no readers.
            let Some(table) = catalog.log_by_id(log).filter(|table| table.table().is_some()) else { continue };
            let keys: Vec<&Arc<[u8]>> = rewritten.touched().collect();
            for key in keys {
                let Held { version, .. } = lookup.find(log, key, LAST, |_| true);
                let version = version.filter(|version| version.operation != Operation::Delete);
                let entry = version.map(|version| self.namespace.journal().entry_at(version.at)).transpose()?;
                let value = entry.as_ref().zip(version).map(|(entry, it)| (&*entry.payload, it.expires_us));
                // One that is appended in this batch has its number only now.
                let seqno = version.map_or(0, |version| if version.slot < LATE { version.slot } else { 0 });
                let restates = Restates { repair: self.repair, seqno };
                let replaces = |seqno| self.overlay.at(log, seqno).is_some();
                publish.restate(tx, table, key, &Restated { value, restates }, replaces)?;
            }
        }
        Ok(())
    }
}
