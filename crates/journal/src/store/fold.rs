//! A manifest, moved on by entries: what it says of logs and functions, as of the end of a segment that is to go.

use super::manifest::{FunctionRow, LogRow, Manifest};
use crate::{
    catalog::Definition,
    entry::{Header, Kind},
};
use millrace_wire::Result;
use std::collections::BTreeMap;

/// See the module's documentation. What an entry says may be in the manifest already: counters are absolute.
pub(crate) struct ManifestFold {
    manifest: Manifest,
    logs: BTreeMap<u32, LogRow>,
    functions: BTreeMap<u32, FunctionRow>,
}

impl ManifestFold {
    pub fn new(mut manifest: Manifest) -> Self {
        let logs = std::mem::take(&mut manifest.logs).into_iter().map(|row| (row.id, row)).collect();
        let functions = std::mem::take(&mut manifest.functions).into_iter().map(|row| (row.id, row)).collect();
        Self { manifest, logs, functions }
    }

    /// Takes in the entry at a position.
    pub fn entry(&mut self, position: u64, header: &Header, payload: &[u8]) -> Result<()> {
        let (subject, seqno) = (&header.subject, header.seqno);
        match Kind::from_u8(header.kind) {
            Some(Kind::Append) => {
                if let Some(log) = self.logs.get_mut(subject) {
                    log.latest = log.latest.max(seqno);
                }
            }
            Some(Kind::Trim) => {
                if let Some(log) = self.logs.get_mut(subject) {
                    log.latest = log.latest.max(seqno.saturating_sub(1));
                    log.trimmed = log.trimmed.max(seqno);
                }
            }
            Some(Kind::Trigger) => {
                if let Some(function) = self.functions.get_mut(subject) {
                    function.triggered = function.triggered.max(seqno);
                }
            }
            Some(Kind::Done) => {
                if let Some(function) = self.functions.get_mut(subject) {
                    function.done = function.done.max(seqno);
                }
            }
            Some(Kind::Define) if position > self.manifest.defined => {
                self.define(Definition::decode(payload)?);
                self.manifest.defined = position;
            }
            _ => {}
        }
        Ok(())
    }

    fn define(&mut self, definition: Definition) {
        match definition {
            Definition::Log { id, name, history } => {
                self.manifest.next_id = self.manifest.next_id.max(id + 1);
                self.logs.insert(id, LogRow { id, name, history, latest: 0, trimmed: 0 });
            }
            Definition::Function { id, name, attributes } => {
                self.manifest.next_id = self.manifest.next_id.max(id + 1);
                let row = FunctionRow { id, name, attributes: String::new(), triggered: 0, done: 0 };
                self.functions.entry(id).or_insert(row).attributes = attributes;
            }
            Definition::RemoveLog { id } => drop(self.logs.remove(&id)),
            Definition::RemoveFunction { id } => drop(self.functions.remove(&id)),
        }
    }

    /// Whether runs were pending.
    pub fn has_pending(&self) -> bool {
        self.functions.values().any(|function| function.triggered != function.done)
    }

    pub fn manifest(self, first_segment: u64) -> Manifest {
        let (logs, functions) = (self.logs.into_values().collect(), self.functions.into_values().collect());
        Manifest { first_segment, logs, functions, ..self.manifest }
    }
}
