//! CATALOG: definitions and counters, written soon after the start of each segment.
//!
//! The background thread writes it; if it has not, retention does before it drops a segment. It is written part by part: no append waits
//! for longer than one part takes.

use super::commit::Transaction;
use crate::{
    catalog::{Catalog, Function, Log},
    entry::{HEADER_BYTES, Kind, Position},
    journal::Inner,
    store::{
        manifest::Manifest,
        part::{Head, Part, Parts, first_part, function_row, log_row},
    },
};
use millrace_wire::{Code, Result};
use std::sync::{Arc, atomic::Ordering};

/// About as much is in one part.
const PART_BYTES: usize = 16 << 10;
/// About as much a row takes beside its text.
const ROW_BYTES: usize = 96;

/// The rows of a part.
#[derive(Default)]
struct Rows {
    logs: Vec<Log>,
    functions: Vec<Function>,
    bytes: usize,
}

/// Divides a catalog into parts.
fn divide(catalog: &Catalog) -> Vec<Rows> {
    let mut all = vec![Rows::default()];
    let mut room = |bytes: usize| {
        if all.last().is_some_and(|rows| rows.bytes > 0 && rows.bytes + bytes > PART_BYTES) {
            all.push(Rows::default());
        }
        let last = all.len() - 1;
        all[last].bytes += bytes;
        last
    };
    let logs: Vec<_> = catalog.logs().map(|log| (room(ROW_BYTES + log.name().len()), log)).collect();
    let functions: Vec<_> =
        catalog.functions().map(|f| (room(ROW_BYTES + f.name().len() + f.attributes().len()), f)).collect();
    logs.into_iter().for_each(|(at, log)| all[at].logs.push(log.clone()));
    functions.into_iter().for_each(|(at, function)| all[at].functions.push(function.clone()));
    all
}

impl Inner {
    /// Whether the segment that is written to has no CATALOG yet. The very first needs none: all definitions are in it.
    #[inline]
    pub(crate) fn is_catalog_due(&self) -> bool {
        // After a simulated power cut the page is blank, and this thread may look once more.
        self.segments.number(self.tail().saturating_sub(1)) > self.control.upkeep.cataloged.load(Ordering::Acquire)
    }

    /// Writes a CATALOG if one is due. Of two processes that do so at once, both write one.
    pub(crate) fn write_catalog(&self) -> Result<()> {
        let _only_one = self.cataloging.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !self.is_catalog_due() {
            return Ok(());
        }
        let begun = self.commit(|transaction| {
            let catalog = transaction.catalog().clone();
            let rows = divide(&catalog);
            let head = Head {
                namespace: self.namespace,
                epoch: self.epoch,
                retain_bytes: self.retention.bytes(),
                retain_age_ms: self.retention.age_ms(),
                durability: self.settings.durability,
                replay_seed: self.settings.replay_seed,
                created_us: self.settings.created_us,
                next_id: catalog.next_id(),
                pins: catalog.pins().cloned().collect(),
                lineage: self.lineage.clone(),
            };
            let first = stage(transaction, &catalog, Some(head), &rows, 0, Position(0))?;
            Ok((catalog, rows, first))
        })?;
        let (catalog, rows, first) = begun.value;
        for part in 1..rows.len() {
            self.commit(|transaction| stage(transaction, &catalog, None, &rows, part, first))?;
        }
        Ok(())
    }

    /// A manifest with the definitions and counters of the first whole CATALOG that begins in a segment or in the next one, and where that
    /// CATALOG ends; `None` if there is none. It includes the definitions of all earlier segments, and the entries after it complete it.
    pub(crate) fn manifest_of_catalog(&self, first_segment: u64) -> Result<Option<(Manifest, u64)>> {
        let start = self.segments.first_entry(first_segment);
        let limit = self.tail().min(self.segments.start(first_segment + 2));
        let (mut position, mut parts) = (start, Parts::default());
        loop {
            let (at, header) = match self.entry_from(&mut position, limit) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(error) if error.code() == Code::EntryDamaged => return Ok(None),
                Err(error) => return Err(error),
            };
            position = at + header.span();
            // One that began in a segment before has counters from there.
            if header.folded() != Some(Kind::Catalog) || first_part(&header, at) < start {
                continue;
            }
            let bytes = self.segments.entry_bytes(at, u64::from(header.length))?;
            parts.take(&header, at, &bytes[HEADER_BYTES as usize - 4..])?;
            if header.ordinal > 0 {
                continue;
            }
            let Some((part, head)) = std::mem::take(&mut parts).newest() else { continue };
            let manifest = Manifest {
                defined: part.defined,
                next_id: head.next_id,
                logs: part.logs,
                functions: part.functions,
                pins: head.pins,
                ..self.manifest(first_segment, self.epoch)
            };
            return Ok(Some((manifest, position)));
        }
    }
}

fn stage(
    transaction: &mut Transaction<'_>,
    catalog: &Arc<Catalog>,
    head: Option<Head>,
    rows: &[Rows],
    part: usize,
    first: Position,
) -> Result<Position> {
    let logs = rows[part].logs.iter().map(log_row).collect();
    let functions = rows[part].functions.iter().map(function_row).collect();
    let payload = Part { defined: catalog.version(), head, logs, functions }.encode();
    // Too many parts for their counter: the CATALOG never becomes complete, which does no other harm.
    let follow = u16::try_from(rows.len() - 1 - part).unwrap_or(u16::MAX);
    transaction.catalog_part(follow, first, &payload)
}
