//! Seeds: records of other namespaces that change, and what they are to be. Links have delivered them here, or will.
//!
//! They are in the log `_seeds/REPAIR` of the part that they were given to, as long as it is open. The newest seed of a record counts.
//! Whatever links have delivered of a record that changes is corrected; so are copies that relays within the namespace have made.

use crate::{book, open::BATCH_BYTES, past::Past, session::Session};
use millrace_journal::{Log, Replaced, Transaction};
use millrace_namespace::{
    Namespace,
    names::{internal, note},
    outbox::message,
};
use millrace_wire::{Code, EventId, HISTORY_ALL, LogName, Result};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// A record elsewhere, and its new value; none if it is taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    pub id: EventId,
    pub value: Option<Vec<u8>>,
}

/// The slot of a record here, and its new value; none if it is taken away.
type Correction = ((u32, u64), Option<Vec<u8>>);

/// The first line of a seed in its log; the bytes behind it are the value.
#[derive(Serialize, Deserialize)]
struct Line {
    id: String,
    #[serde(default)]
    void: bool,
    /// The id of the namespace that it is for, if that is another one which takes part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

fn log_of(repair: u64) -> LogName {
    internal(&format!("_seeds/{repair}"))
}

fn damaged(repair: u64) -> millrace_wire::Error {
    Code::FormatVersion.error(format!("log '{}'", log_of(repair)))
}

/// Notes seeds of a repair that is open: for this namespace, or for another one that takes part. How many it has then.
pub(crate) fn give(namespace: &Namespace, repair: u64, to: Option<&str>, seeds: &[Seed]) -> Result<u64> {
    let name = log_of(repair);
    let mut rest = seeds;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |seed: &&Seed| {
            let first = bytes == 0;
            bytes += 128 + seed.value.as_ref().map_or(0, Vec::len);
            first || bytes <= BATCH_BYTES
        };
        let part = rest.iter().take_while(fits).count();
        namespace.journal().commit(|tx| {
            let found = book::repair(namespace, repair)?;
            if !found.phase.is_open() {
                let phase = found.phase.as_str();
                return Err(Code::RepairPhase.error(format!("repair {repair} is {phase}, and does not accept seeds")));
            }
            for Seed { id, value } in &rest[..part] {
                let line = Line { id: id.to_string(), void: value.is_none(), to: to.map(str::to_owned) };
                let mut bytes = serde_json::to_vec(&line).expect("text makes JSON");
                bytes.push(b'\n');
                bytes.extend_from_slice(value.as_deref().unwrap_or_default());
                note(tx, &name, HISTORY_ALL, &bytes)?;
            }
            Ok(())
        })?;
        rest = &rest[part..];
    }
    latest(namespace, repair)
}

/// How many seeds a repair has.
fn latest(namespace: &Namespace, repair: u64) -> Result<u64> {
    Ok(namespace.journal().catalog()?.log(&log_of(repair)).map_or(0, Log::latest))
}

/// The seeds of a repair that are for other namespaces: whose, and what.
pub(crate) fn of_others(namespace: &Namespace, repair: u64) -> Result<Vec<(String, Seed)>> {
    let mut all = Vec::new();
    for seqno in 1..=latest(namespace, repair)? {
        let (to, seed) = read(namespace, repair, seqno)?;
        all.extend(to.map(|to| (to, seed)));
    }
    Ok(all)
}

/// One seed, and the namespace that it is for, if that is not this one.
fn read(namespace: &Namespace, repair: u64, seqno: u64) -> Result<(Option<String>, Seed)> {
    let catalog = namespace.journal().catalog()?;
    let log = catalog.log(&log_of(repair)).ok_or_else(|| damaged(repair))?;
    let mut bytes = Vec::new();
    namespace.journal().get(log, seqno, &mut bytes)?;
    let parse = || {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Line = serde_json::from_slice(&bytes[..end]).ok()?;
        let value = (!line.void).then(|| bytes[end + 1..].to_vec());
        Some((line.to, Seed { id: line.id.parse().ok()?, value }))
    };
    parse().ok_or_else(|| damaged(repair))
}

/// Stages the end of a repair's seeds.
pub(crate) fn forget(tx: &mut Transaction<'_>, repair: u64) -> Result<()> {
    let name = log_of(repair);
    if tx.catalog().log(&name).is_some() { tx.remove_log(&name) } else { Ok(()) }
}

/// The seeds that a repair has received.
#[derive(Default)]
pub(crate) struct Seeds {
    repair: u64,
    taken: u64,
    /// By the record's id: the seqno of its newest seed.
    by_id: HashMap<EventId, u64>,
    /// Slots of this namespace that got something else, of which a relay may have made copies, since copies were last looked for.
    moved: Vec<(u32, u64)>,
    /// By the id of its first version: each slot that got something else.
    changed: HashMap<EventId, (u32, u64)>,
}

impl Seeds {
    pub fn of(repair: u64) -> Self {
        Self { repair, ..Self::default() }
    }

    /// A slot of this namespace got something else.
    pub fn moves(&mut self, slot: (u32, u64), past: &Past) {
        let of = past.logs.get(&slot.0).and_then(|log| log.slots.get(&slot.1));
        self.changed.extend(of.map(|of| (of.origin, slot)));
        self.moved.push(slot);
    }

    /// Whether some are still missing.
    pub fn is_behind(&self, namespace: &Namespace) -> Result<bool> {
        Ok(latest(namespace, self.repair)? > self.taken)
    }

    /// Whether one names this record.
    pub fn names(&self, id: EventId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// How many were received, and how many of them name records that links have not delivered, as far as the past knows.
    pub fn covered(&self, past: &Past) -> book::Covered {
        let missing = self.by_id.keys().filter(|id| !past.delivered.contains_key(id)).count() as u64;
        book::Covered { taken: self.taken, missing }
    }

    /// Adds the seeds that were received since: the records that they name.
    fn take(&mut self, namespace: &Namespace) -> Result<Vec<EventId>> {
        let mut new = Vec::new();
        for seqno in self.taken + 1..=latest(namespace, self.repair)? {
            if let (None, Seed { id, .. }) = read(namespace, self.repair, seqno)? {
                self.by_id.insert(id, seqno);
                new.push(id);
            }
            self.taken = seqno;
        }
        Ok(new)
    }
}

impl Session<'_> {
    /// Corrects what links have delivered of records that change elsewhere, and what relays have copied here of those that the repair
    /// changes. Whether anything was corrected; then every run is looked at again.
    pub(crate) fn take_seeds(&mut self) -> Result<bool> {
        let mut ids: HashSet<EventId> = self.seeds.take(self.namespace)?.into_iter().collect();
        let arrived = std::mem::take(&mut self.past.arrived);
        ids.extend(arrived.iter().filter(|id| self.seeds.names(**id)));
        let mut corrected: Vec<Correction> = Vec::new();
        for id in ids {
            let Some(slots) = self.past.delivered.get(&id) else { continue };
            let value = read(self.namespace, self.repair, self.seeds.by_id[&id])?.1.value;
            for slot in slots {
                if self.bytes(*slot)? != value {
                    corrected.push((*slot, value.clone()));
                }
            }
        }
        let mut copied: Vec<((u32, u64), EventId)> = Vec::new();
        for slot in std::mem::take(&mut self.seeds.moved) {
            let origin = self.past.logs.get(&slot.0).and_then(|log| log.slots.get(&slot.1)).map(|slot| slot.origin);
            copied.extend(origin.map(|origin| (slot, origin)));
        }
        copied.extend(arrived.into_iter().filter_map(|id| Some((*self.seeds.changed.get(&id)?, id))));
        for (slot, origin) in copied {
            let Some(copies) = self.past.delivered.get(&origin) else { continue };
            let mut value = self.bytes(slot)?;
            if self.past.is_outbox(slot.0)
                && let Some(bytes) = &value
            {
                value = Some(message::decode(bytes)?.data.to_vec());
            }
            for copy in copies {
                if self.bytes(*copy)? != value {
                    corrected.push((*copy, value.clone()));
                }
            }
        }
        if corrected.is_empty() {
            return Ok(false);
        }
        corrected.sort();
        corrected.dedup_by_key(|(slot, _)| *slot);
        self.correct(&corrected)?;
        self.look_again();
        Ok(true)
    }

    /// Whether links have brought something since that the repair changes.
    pub(crate) fn has_arrivals(&mut self) -> bool {
        let (seeds, arrived) = (&self.seeds, &mut self.past.arrived);
        arrived.retain(|id| seeds.names(*id) || seeds.changed.contains_key(id));
        !arrived.is_empty()
    }

    fn correct(&mut self, corrected: &[Correction]) -> Result<()> {
        let mut rest = corrected;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(_, value): &&Correction| {
                let first = bytes == 0;
                bytes += 128 + value.as_ref().map_or(0, Vec::len);
                first || bytes <= BATCH_BYTES
            };
            let part = rest.iter().take_while(fits).count();
            self.namespace.journal().commit(|tx| {
                for (slot, value) in &rest[..part] {
                    let of = self.past.logs.get(&slot.0).and_then(|log| log.slots.get(&slot.1));
                    let of =
                        of.ok_or_else(|| Code::RepairUnsupported.error(format!("record {} no longer exists", slot.1)))?;
                    let (repair, origin, clock, position) = (self.repair, of.origin, of.clock, of.written);
                    let replaced = Replaced { repair, origin, clock, void: value.is_none(), position };
                    tx.shadow_append(*slot, value.as_deref().unwrap_or_default(), (EventId::NONE, 0), &replaced)?;
                }
                Ok(())
            })?;
            rest = &rest[part..];
        }
        self.follow()
    }
}
