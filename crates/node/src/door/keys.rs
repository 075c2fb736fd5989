//! Idempotency keys: an append that is repeated with its key is answered as it was the first time.
//!
//! What was answered stands in the log `_keys`, in the same batch as the records, so a key is as safe as they are. Each
//! process remembers what it read there.

use super::access;
use crate::namespace::Receipt;
use millrace_journal::{Journal, Log, Position, Transaction};
use millrace_wire::{Code, Error, EventId, LogName, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many keyed appends are remembered.
pub const KEYS_MAX: u64 = 100_000;
/// The longest key.
pub const KEY_MAX_BYTES: usize = 128;
const LOG: &str = "_keys";

/// One keyed append, as it stands in the log.
#[derive(Serialize, Deserialize)]
struct Row {
    key: Box<str>,
    content: Box<str>,
    records: Vec<(u64, EventId)>,
}

struct Answer {
    seqno: u64,
    content: Box<str>,
    records: Vec<(u64, EventId)>,
}

/// The keys that this process knows of.
#[derive(Default)]
pub(crate) struct Keys {
    known: Mutex<Known>,
}

/// The keys up to one record of the log.
#[derive(Default)]
pub(crate) struct Known {
    upto: u64,
    answers: HashMap<Box<str>, Answer>,
}

/// An append that names a key.
pub(crate) struct Keyed<'k> {
    key: &'k str,
    content: Box<str>,
    known: MutexGuard<'k, Known>,
}

impl Keys {
    /// Prepares a keyed append: reads what others appended, while nothing is locked that they need.
    pub fn enter<'k>(
        &'k self,
        journal: &Journal,
        key: &'k str,
        records: &[(&str, &[u8])],
        function: Option<&str>,
    ) -> Result<Keyed<'k>> {
        if key.is_empty() || key.len() > KEY_MAX_BYTES {
            return Err(Code::KeyInvalid.error(format!("a key of {} bytes", key.len())));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = journal.catalog()?.log(LOG) {
            known.catch_up(journal, log)?;
        }
        Ok(Keyed { key, content: digest(records, function), known })
    }
}

impl Keyed<'_> {
    /// What was answered when the key was used before; an error if that was another append.
    pub fn answer(&mut self, journal: &Journal, tx: &mut Transaction<'_>) -> Result<Option<Vec<Receipt>>> {
        if let Some(log) = tx.catalog().log(LOG).cloned() {
            self.known.catch_up(journal, &log)?;
        }
        let Some(answer) = self.known.answers.get(self.key) else { return Ok(None) };
        if answer.content != self.content {
            return Err(self.conflict());
        }
        let end = Position::default(); // The batch that repeats it is empty, and its end is the tail.
        Ok(Some(answer.records.iter().map(|(seqno, id)| Receipt { seqno: *seqno, id: *id, end }).collect()))
    }

    /// Stages the note of what is answered.
    pub fn note(&self, tx: &mut Transaction<'_>, records: Vec<(u64, EventId)>) -> Result<()> {
        let log = match tx.catalog().log(LOG).cloned() {
            Some(log) => log,
            None => tx.create_log(&name(), KEYS_MAX)?,
        };
        let row = Row { key: self.key.into(), content: self.content.clone(), records };
        let payload = serde_json::to_vec(&row).expect("text and numbers always make JSON");
        tx.append(&log, &payload, EventId::NONE, 0).map(drop)
    }

    fn conflict(&self) -> Error {
        Code::KeyConflict.error(format!("key '{}' belongs to another append", self.key.escape_debug()))
    }
}

impl Known {
    fn catch_up(&mut self, journal: &Journal, log: &Log) -> Result<()> {
        let mut payload = Vec::new();
        loop {
            let seqno = (self.upto + 1).max(log.earliest());
            if seqno > log.latest() || log.latest() == 0 {
                break;
            }
            match journal.get(log, seqno, &mut payload) {
                Ok(_) => {}
                Err(error) if error.code() == Code::BelowHistory => continue, // The history moved on; so does `earliest`.
                Err(error) => return Err(error),
            }
            let row: Row = serde_json::from_slice(&payload)
                .map_err(|error| Code::EntryDamaged.error(format!("record {seqno} of log '{LOG}': {error}")))?;
            self.answers.insert(row.key, Answer { seqno, content: row.content, records: row.records });
            self.upto = seqno;
        }
        let forgotten = self.upto.saturating_sub(KEYS_MAX);
        if self.answers.len() as u64 > KEYS_MAX + KEYS_MAX / 8 {
            self.answers.retain(|_, answer| answer.seqno > forgotten);
        }
        Ok(())
    }
}

fn name() -> LogName {
    access::internal(LOG)
}

fn digest(records: &[(&str, &[u8])], function: Option<&str>) -> Box<str> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(function.unwrap_or("").as_bytes());
    for (log, data) in records {
        part(log.as_bytes());
        part(data);
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
