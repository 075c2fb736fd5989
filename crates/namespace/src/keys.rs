//! Idempotency keys: a repeated append with the same key gets the first answer.
//!
//! The answer is recorded in the log `_keys`, in the same batch as the records, so a key is as durable as they are. Each process remembers
//! what it read there.

use crate::{holes, names, namespace::Receipt};
use millrace_journal::{Journal, Log, Position, Transaction, lock_patience};
use millrace_wire::{Code, Error, EventId, LogName, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
};

/// How many keyed appends are remembered.
pub const KEYS_MAX: u64 = 100_000;
/// The same in bytes of memory: more is forgotten, the oldest first. Only batches to hundreds of logs are as long as that.
const BYTES_MAX: usize = 64 << 20;
/// About what one takes besides what it says.
const ANSWER_BYTES: usize = 128;
/// The longest key.
pub const KEY_MAX_BYTES: usize = 128;
/// The log of answers. No client can read it, because with the key of another client it could pose as that client.
pub const LOG: &str = "_keys";

/// One keyed append, as it is in the log.
#[derive(Serialize, Deserialize)]
struct Row {
    key: Box<str>,
    content: Box<str>,
    #[serde(flatten)]
    told: Receipts,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Receipts {
    /// The number and the id of each record.
    Records(Box<[(u64, EventId)]>),
    /// The same of a batch, whose numbers follow from few.
    Batch(Batch),
}

/// A repeated batch contains its logs. In each, its records have numbers that follow each other; the ids of the
/// whole follow each other as well, but for the runs that records begin, which are as many for each record of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Batch {
    first: EventId,
    /// Of each log, in the order in which they come: the first record's number, and ids from any record to the next one.
    logs: Box<[(u64, u64)]>,
}

/// The same in memory, where there are many: nearly all of them are of one record.
struct Answer {
    seqno: u64,
    content: u128,
    told: Kept,
}

enum Kept {
    One(u64, EventId),
    More(Box<Receipts>),
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
    /// About what the answers take.
    bytes: usize,
    answers: HashMap<Box<str>, Answer>,
}

/// An append that names a key.
pub(crate) struct Keyed<'k> {
    key: &'k str,
    content: u128,
    records: &'k [(&'k str, &'k [u8])],
    known: MutexGuard<'k, Known>,
}

impl Keys {
    /// Prepares a keyed append: reads what others appended, while nothing is locked that they need.
    pub fn enter<'k>(
        &'k self,
        journal: &Journal,
        key: &'k str,
        records: &'k [(&'k str, &'k [u8])],
        function: Option<&str>,
    ) -> Result<Keyed<'k>> {
        if key.is_empty() || key.len() > KEY_MAX_BYTES {
            return Err(Code::KeyInvalid.error(format!("an idempotency key of {} bytes", key.len())));
        }
        let known = self.caught_up(journal)?;
        Ok(Keyed { key, content: digest(records, function), records, known })
    }

    /// Reads what others appended since this process last looked.
    pub fn caught_up(&self, journal: &Journal) -> Result<MutexGuard<'_, Known>> {
        let mut known = match self.known.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Anyone who has them may wait for the journal's lock.
            Err(TryLockError::WouldBlock) if lock_patience().is_some_and(|patience| patience.is_zero()) => {
                return Err(Code::JournalBlocked.error("another append with an idempotency key is being committed"));
            }
            Err(TryLockError::WouldBlock) => self.known.lock().unwrap_or_else(PoisonError::into_inner),
        };
        if let Some(log) = journal.catalog()?.log(LOG) {
            known.catch_up(journal, log)?;
        }
        Ok(known)
    }
}

impl Keyed<'_> {
    /// The answer to the earlier append with this key; an error if that append was different.
    pub fn answer(&mut self, journal: &Journal, tx: &mut Transaction<'_>) -> Result<Option<Vec<Receipt>>> {
        if let Some(log) = tx.catalog().log(LOG).cloned() {
            self.known.catch_up(journal, &log)?;
        }
        let Some(answer) = self.known.answers.get(self.key) else { return Ok(None) };
        if answer.content != self.content {
            return Err(self.conflict());
        }
        let Some(records) = answer.told.records(self.records) else { return Err(self.conflict()) };
        let end = Position::default(); // The batch that repeats it is empty, and its end is the tail.
        Ok(Some(records.iter().map(|(seqno, id)| Receipt { seqno: *seqno, id: *id, end }).collect()))
    }

    /// Stages the note of what is answered.
    pub fn note(&self, tx: &mut Transaction<'_>, records: Vec<(u64, EventId)>) -> Result<()> {
        let log = match tx.catalog().log(LOG).cloned() {
            Some(log) => log,
            None => tx.create_log(&name(), KEYS_MAX)?,
        };
        let told = Receipts::of(self.records, records);
        let row = Row { key: self.key.into(), content: format!("{:032x}", self.content).into(), told };
        let payload = serde_json::to_vec(&row).expect("text and numbers always make JSON");
        tx.append(&log, &payload, EventId::NONE, 0).map(drop)
    }

    fn conflict(&self) -> Error {
        Code::KeyConflict.error(format!("key '{}' belongs to another append", self.key.escape_debug()))
    }
}

impl Receipts {
    /// The answer to an append of `records`, encoded compactly.
    fn of(records: &[(&str, &[u8])], told: Vec<(u64, EventId)>) -> Receipts {
        if told.len() > 1 {
            let batch = Receipts::Batch(Batch::of(records, &told));
            if batch.records(records).is_some_and(|again| *again == *told) {
                return batch;
            }
        }
        Receipts::Records(told.into())
    }

    /// The number and the id of each of `records`, which are those of the append that was answered.
    fn records(&self, records: &[(&str, &[u8])]) -> Option<Cow<'_, [(u64, EventId)]>> {
        match self {
            Receipts::Records(told) => Some(Cow::Borrowed(told)),
            Receipts::Batch(batch) => batch.records(records).map(Cow::Owned),
        }
    }
}

impl Kept {
    fn of(told: Receipts) -> Self {
        match &told {
            Receipts::Records(records) if let [(seqno, id)] = **records => Self::One(seqno, id),
            _ => Self::More(Box::new(told)),
        }
    }

    /// The number and the id of each of `records`, which are those of the append that was answered.
    fn records(&self, records: &[(&str, &[u8])]) -> Option<Cow<'_, [(u64, EventId)]>> {
        match self {
            Self::One(seqno, id) => Some(Cow::Owned(vec![(*seqno, *id)])),
            Self::More(told) => told.records(records),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::One(..) => 0,
            Self::More(told) => match &**told {
                Receipts::Records(told) => size_of::<Receipts>() + size_of_val(&**told),
                Receipts::Batch(batch) => size_of::<Receipts>() + size_of_val(&*batch.logs),
            },
        }
    }
}

impl Batch {
    fn of(records: &[(&str, &[u8])], told: &[(u64, EventId)]) -> Batch {
        let (mut places, mut logs) = (HashMap::new(), Vec::new());
        for (n, ((log, _), (seqno, id))) in records.iter().zip(told).enumerate() {
            let place = *places.entry(*log).or_insert_with(|| {
                logs.push((*seqno, 0));
                logs.len() - 1
            });
            if let Some((_, next)) = told.get(n + 1) {
                logs[place].1 = next.sequence().saturating_sub(id.sequence());
            }
        }
        Batch { first: told[0].1, logs: logs.into() }
    }

    fn records(&self, records: &[(&str, &[u8])]) -> Option<Vec<(u64, EventId)>> {
        let (mut places, mut logs) = (HashMap::new(), self.logs.to_vec());
        let mut id = self.first.get();
        let mut told = Vec::with_capacity(records.len());
        for (log, _) in records {
            let new = places.len();
            let (seqno, step) = logs.get_mut(*places.entry(*log).or_insert(new))?;
            told.push((*seqno, EventId::from_bits(id)));
            *seqno = seqno.checked_add(1)?;
            id = id.checked_add(u128::from(*step))?;
        }
        Some(told)
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
                // A key that may have been used must not be treated as new, unless the operator has decided to continue without the record:
                // then its key is forgotten like old ones.
                Err(error) if error.code() == Code::EntryDamaged => match holes::noted(journal, LOG, seqno)? {
                    Some(to) => {
                        self.upto = to;
                        continue;
                    }
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
            let row: Row = serde_json::from_slice(&payload)
                .map_err(|error| Code::EntryDamaged.error(format!("record {seqno} of log '{LOG}': {error}")))?;
            let content = u128::from_str_radix(&row.content, 16)
                .map_err(|_| Code::EntryDamaged.error(format!("record {seqno} of log '{LOG}' has no digest")))?;
            self.upto = seqno;
            self.remember(row.key, Answer { seqno, content, told: Kept::of(row.told) });
            if self.answers.len() as u64 > KEYS_MAX + KEYS_MAX / 8 || self.bytes > BYTES_MAX + BYTES_MAX / 8 {
                self.forget(BYTES_MAX);
            }
        }
        Ok(())
    }

    fn remember(&mut self, key: Box<str>, answer: Answer) {
        let key_bytes = key.len();
        self.bytes += key_bytes + answer.bytes();
        if let Some(before) = self.answers.insert(key, answer) {
            self.bytes -= key_bytes + before.bytes();
        }
    }

    /// Keeps the newest answers, within a limit of their number and of their size.
    fn forget(&mut self, bytes_max: usize) {
        let bytes = |key: &str, answer: &Answer| (answer.seqno, key.len() + answer.bytes());
        let mut newest: Vec<(u64, usize)> = self.answers.iter().map(|(key, answer)| bytes(key, answer)).collect();
        newest.sort_unstable_by(|one, other| other.cmp(one));
        let mut kept_bytes = 0;
        let mut forgotten = self.upto.saturating_sub(KEYS_MAX);
        for (seqno, bytes) in newest {
            if kept_bytes + bytes > bytes_max {
                forgotten = forgotten.max(seqno);
                break;
            }
            kept_bytes += bytes;
        }
        self.answers.retain(|_, answer| answer.seqno > forgotten);
        self.bytes = self.answers.iter().map(|(key, answer)| key.len() + answer.bytes()).sum();
    }
}

impl Answer {
    fn bytes(&self) -> usize {
        ANSWER_BYTES + self.told.bytes()
    }
}

fn name() -> LogName {
    names::internal(LOG)
}

fn digest(records: &[(&str, &[u8])], function: Option<&str>) -> u128 {
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
    let whole = hash.finalize();
    u128::from_be_bytes(*whole.first_chunk().expect("a digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppendOptions, CreateOptions, Namespace};
    use millrace_wire::NamespaceId;

    fn id(sequence: u64) -> EventId {
        EventId::new(NamespaceId::new(7).unwrap(), 3, sequence)
    }

    fn to(logs: &[&'static str]) -> Vec<(&'static str, &'static [u8])> {
        logs.iter().map(|log| (*log, &b"x"[..])).collect()
    }

    #[test]
    fn what_was_answered_to_a_batch_is_told_in_few_words_and_exactly() {
        // One log; two in turn, of which one runs two functions for each record; more logs than it has room for.
        let one = to(&["a"; 1024]);
        let told: Vec<_> = (0..1024).map(|n| (50 + n, id(9000 + n))).collect();
        let two: Vec<_> = (0..1024).map(|n| to(&[["a", "b"][n % 2]])[0]).collect();
        let told_two: Vec<_> = (0..1024).map(|n| (1 + n / 2, id(100 + n / 2 * 4 + n % 2 * 3))).collect();
        for (records, told) in [(&one, &told), (&two, &told_two)] {
            let short = Receipts::of(records, told.clone());
            assert_eq!(&*short.records(records).unwrap(), &told[..]);
            let row = Row { key: "k".into(), content: "c".into(), told: short };
            let text = serde_json::to_string(&row).unwrap();
            assert!(text.len() < 120, "{text}");
            assert_eq!(serde_json::from_str::<Row>(&text).unwrap().told, row.told);
            assert_eq!(row.told.records(&to(&["a", "b", "c"])), None, "another batch");
        }
        // Values that follow no rule are listed one by one, and so is a single record.
        for numbers in [&[(1, 5), (3, 6), (2, 9)][..], &[(1, 5), (2, 9), (3, 10)], &[(1, 5)]] {
            let told: Vec<_> = numbers.iter().map(|(seqno, sequence)| (*seqno, id(*sequence))).collect();
            let records = to(&["a"; 3][..told.len()]);
            assert_eq!(Receipts::of(&records, told.clone()), Receipts::Records(told.into()));
        }
    }

    #[test]
    fn keys_recorded_by_older_versions_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("n"), &CreateOptions::default()).unwrap();
        namespace.create_log(&"a".parse().unwrap(), 100).unwrap();
        let records = to(&["a", "a"]);
        let content = digest(&records, None);
        let row =
            format!(r#"{{"key":"old","content":"{content:032x}","records":[[5,"{}"],[6,"{}"]]}}"#, id(70), id(71));
        let note = |tx: &mut Transaction<'_>| {
            let log = tx.create_log(&name(), KEYS_MAX)?;
            tx.append(&log, row.as_bytes(), EventId::NONE, 0)
        };
        namespace.journal().commit(note).unwrap();
        let options = AppendOptions { key: Some("old"), ..AppendOptions::default() };
        let receipts = namespace.append_many_gated(&records, options).unwrap().wait().unwrap();
        let told: Vec<_> = receipts.iter().map(|receipt| (receipt.seqno, receipt.id)).collect();
        assert_eq!(told, [(5, id(70)), (6, id(71))]);
        assert_eq!(namespace.latest("a").unwrap(), 0);
    }

    #[test]
    fn beyond_the_limit_the_oldest_keys_are_forgotten() {
        let mut known = Known::default();
        let long = || Receipts::Records((0..100).map(|n| (n, id(n))).collect());
        for seqno in 1..=50 {
            known.upto = seqno;
            // The tenth is used again after it was forgotten elsewhere.
            let key = if seqno == 50 { 10 } else { seqno };
            known.remember(format!("{key:03}").into(), Answer { seqno, content: 7, told: Kept::of(long()) });
        }
        let each = known.bytes / 49;
        assert_eq!(known.bytes, each * 49);
        known.forget(each * 20 + each / 2);
        let mut kept: Vec<_> = known.answers.values().map(|answer| answer.seqno).collect();
        kept.sort_unstable();
        assert_eq!((kept, known.bytes), ((31..=50).collect(), each * 20));
    }
}
