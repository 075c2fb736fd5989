//! The content of a CATALOG: the namespace's definitions and counters as of its position, in one or more parts.
//!
//! The manifest has the same content. A CATALOG is in the journal, so that a namespace whose manifest is lost can be rebuilt completely,
//! although the segments with its DEFINEs are gone. The parts of one CATALOG may be written at different times: their rows are those of the
//! catalog as of the first part, with counters as of each part. The entries after it complete both.

use super::{
    json::{self, Unread},
    manifest::{Ancestor, FunctionRow, LogRow, namespace_text, seed_text},
};
use crate::{
    catalog::{Function, Log, Pin, defined_history},
    entry::{Header, ReplaySeed},
};
use millrace_wire::{Code, Durability, NamespaceId, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The payload of one CATALOG entry, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// The rows of all parts include every DEFINE up to this position.
    pub defined: u64,
    /// In the first part only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionRow>,
}

/// The fields of the manifest besides definitions. The salt is in the segments' headers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    #[serde(with = "namespace_text")]
    pub namespace: NamespaceId,
    pub epoch: u32,
    pub retain_bytes: u64,
    pub retain_age_ms: Option<u64>,
    pub durability: Durability,
    #[serde(with = "seed_text")]
    pub replay_seed: ReplaySeed,
    pub created_us: u64,
    pub next_id: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<Pin>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<Ancestor>,
}

impl Part {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always serialises")
    }

    pub fn decode(payload: &[u8]) -> Result<Self> {
        json::decode(payload).map_err(|error| match error {
            Unread::TooNew(what) => Code::FormatVersion.error(format!("a catalog: {what}")),
            Unread::Malformed(what) => Code::EntryDamaged.error(format!("a catalog: {what}")),
        })
    }
}

/// A log as manifest and CATALOG have it.
pub(crate) fn log_row(log: &Log) -> LogRow {
    LogRow {
        id: log.id(),
        name: log.name().clone(),
        history: defined_history(log.history()),
        latest: log.latest(),
        trimmed: log.index().floor(),
        table: log.table().copied(),
    }
}

/// A function as manifest and CATALOG have it.
pub(crate) fn function_row(function: &Function) -> FunctionRow {
    FunctionRow {
        id: function.id(),
        name: function.name().clone(),
        attributes: function.attributes().into(),
        revision: function.revision(),
        triggered: function.triggered(),
        done: function.done(),
    }
}

/// The position of the first part of a CATALOG, given one of its entries.
pub(crate) fn first_part(header: &Header, position: u64) -> u64 {
    if header.seqno == 0 { position } else { header.seqno }
}

/// The CATALOGs that are found in a journal, and what is found of each.
#[derive(Default)]
pub(crate) struct Parts(BTreeMap<u64, BTreeMap<u16, Part>>);

impl Parts {
    /// Takes what is at a position. A part that cannot be read is missing; one that a later version wrote is an error.
    pub fn take(&mut self, header: &Header, position: u64, payload: &[u8]) -> Result<()> {
        match Part::decode(payload) {
            Ok(part) => drop(self.0.entry(first_part(header, position)).or_default().insert(header.ordinal, part)),
            Err(error) if error.code() == Code::FormatVersion => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    /// The newest complete CATALOG, as one part with a head.
    pub fn newest(mut self) -> Option<(Part, Head)> {
        while let Some((_, parts)) = self.0.pop_last() {
            // Each contains the number of parts after it.
            let is_whole = parts.keys().rev().copied().eq((0..parts.len() as u16).rev());
            let mut parts = parts.into_values().rev();
            if let Some(mut whole) = parts.next().filter(|_| is_whole)
                && let Some(head) = whole.head.take()
            {
                for part in parts {
                    whole.logs.extend(part.logs);
                    whole.functions.extend(part.functions);
                }
                return Some((whole, head));
            }
        }
        None
    }
}
