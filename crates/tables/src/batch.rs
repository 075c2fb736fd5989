//! The changes of tables in one batch of the journal: each sees those before it, and nobody else sees any before the batch is committed.

use crate::{KEYS_MAX, Tables, When, is_within, view::Found};
use millrace_journal::{Entry, Journal, Log, Operation, Position, Restates, Row};
use millrace_wire::{
    Code, EventId, Result,
    table::{Condition, KeyRange, TableEntry, TableOptions, TableRequest, counter, show_key},
};
use std::collections::HashMap;

/// The version that a change of this batch gives a key.
#[derive(Clone, Debug)]
struct Staged {
    seqno: u64,
    cause: EventId,
    expires_us: u64,
    /// `None` if it was deleted.
    value: Option<Vec<u8>>,
    /// Where the version before this batch stands.
    previous: Position,
}

/// What a change is to be staged as: the row and the value of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happens to the key.
    pub operation: Operation,
    /// When the value expires, in microseconds since 1970; 0 if never.
    pub expires_us: u64,
    /// What is added.
    pub amount: i64,
    /// The value; empty if the key is deleted.
    pub value: Vec<u8>,
    /// Where the version before it stands.
    previous: Position,
    /// Whether a repair says by it what the key has.
    restates: Option<Restates>,
}

impl Change {
    /// What the record says besides its value.
    pub fn row<'k>(&self, key: &'k [u8]) -> Row<'k> {
        let Self { operation, expires_us, amount, previous, restates, .. } = *self;
        Row { key, operation, expires_us, previous, amount, superseded: false, restates }
    }
}

/// What a key has in the history that a repair makes.
#[derive(Clone, Copy, Debug)]
pub struct Restated<'v> {
    /// Its value and when that expires, if it has one.
    pub value: Option<(&'v [u8], u64)>,
    /// The repair, and the record that has the value.
    pub restates: Restates,
}

/// A key as a run sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Its version; 0 if the run, or one that is not published yet, wrote it.
    pub version: u64,
    /// When the value expires, in microseconds since 1970; 0 if never.
    pub expires_us: u64,
    /// When it was written, in microseconds since 1970.
    pub time_us: u64,
    /// The value.
    pub value: Option<Vec<u8>>,
}

impl Sight {
    /// That of an entry.
    pub fn of(entry: TableEntry) -> Self {
        let TableEntry { version, expires_us, time_us, value, .. } = entry;
        Self { version, expires_us, time_us, value }
    }

    /// As an entry; `None` if the key has no value.
    pub fn entry(self, key: &[u8], keys_only: bool) -> Option<TableEntry> {
        let value = self.value.map(|value| if keys_only { Vec::new() } else { value });
        let (version, expires_us, time_us) = (self.version, self.expires_us, self.time_us);
        value.map(|value| TableEntry { key: key.to_vec(), version, expires_us, time_us, value: Some(value) })
    }

    /// Has the key changed, at a time in microseconds since 1970: what is done to it, the bytes that are put, their lifetime, what is added.
    pub fn apply(
        &mut self,
        key: &[u8],
        options: &TableOptions,
        (operation, payload, ttl_ms, amount): (Operation, &[u8], u64, i64),
        now_us: u64,
    ) -> Result<()> {
        match operation {
            Operation::Put => {
                self.value = Some(payload.to_vec());
                self.expires_us = expires_us(options, ttl_ms, now_us);
            }
            Operation::Delete => (self.value, self.expires_us) = (None, 0),
            Operation::Increment => {
                let sum = sum(key, self.value.as_deref(), amount)?;
                if self.value.is_none() {
                    self.expires_us = expires_us(options, 0, now_us);
                }
                self.value = Some(sum.to_string().into_bytes());
            }
        }
        (self.version, self.time_us) = (0, now_us);
        Ok(())
    }
}

/// The newest version of a key for one who stages a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// The version; 0 if the key never had one that is remembered.
    pub seqno: u64,
    /// Whether it is a value that has not expired.
    pub has_value: bool,
    /// Whether it is a value, expired or not.
    is_value: bool,
    /// The run that wrote it, or what its client named.
    pub cause: EventId,
    expires_us: u64,
    value: Option<Vec<u8>>,
    previous: Position,
}

/// The changes of one batch.
#[derive(Default)]
pub struct Changes {
    staged: HashMap<(u32, Vec<u8>), Staged>,
}

impl Changes {
    /// The newest version of a key, of this batch or before it; with its cause and value on request.
    pub fn current(
        &self,
        (tables, journal): (&Tables, &Journal),
        log: &Log,
        key: &[u8],
        (now_us, with_value): (u64, bool),
    ) -> Result<Current> {
        if let Some(staged) = self.staged.get(&(log.id(), key.to_vec())) {
            return Ok(Current {
                seqno: staged.seqno,
                is_value: staged.value.is_some(),
                has_value: staged.value.is_some() && (staged.expires_us == 0 || staged.expires_us > now_us),
                cause: staged.cause,
                expires_us: staged.expires_us,
                value: staged.value.clone(),
                previous: staged.previous,
            });
        }
        let when = When { upto: None, now_us };
        let of = |found: Found, entry: Option<Entry>| Current {
            seqno: found.seqno,
            is_value: found.is_value,
            has_value: found.has_value(now_us),
            cause: entry.as_ref().map_or(EventId::NONE, |entry| entry.cause),
            expires_us: found.expires_us,
            value: entry.map(|entry| entry.payload),
            previous: found.position,
        };
        if with_value && let Some((found, entry)) = tables.get(journal, log, key, when)? {
            return Ok(of(found, Some(entry)));
        }
        let Some(found) = tables.newest(journal, log, key, when)? else { return Ok(Current::default()) };
        let mut current = of(found, None);
        if with_value {
            // It was deleted, or has expired.
            current.cause = match crate::view::record_at(journal, log, found.position) {
                // Who deleted it is not known any more.
                Err(error) if error.code() == Code::BelowHistory => EventId::NONE,
                record => record?.cause,
            };
        }
        Ok(current)
    }

    /// What a request changes; `None` if that is nothing, because it deletes a key that has no value. Key and value were checked.
    pub fn change(
        &self,
        tables: (&Tables, &Journal),
        log: &Log,
        request: &TableRequest<'_>,
        now_us: u64,
    ) -> Result<Option<Change>> {
        let options = log.table().copied().unwrap_or_default();
        let (key, condition) = match *request {
            TableRequest::Put { key, condition, .. } | TableRequest::Delete { key, condition } => (key, condition),
            TableRequest::Increment { key, .. } => (key, Condition::Always),
            _ => return Ok(None),
        };
        let increments = matches!(request, TableRequest::Increment { .. });
        let current = self.current(tables, log, key, (now_us, increments))?;
        if current.seqno == 0 && tables.0.keys(tables.1, log)? >= KEYS_MAX {
            let detail = format!("table '{}' has {KEYS_MAX} keys", log.name());
            return Err(Code::TableFull.error(detail));
        }
        check(condition, if current.has_value { current.seqno } else { 0 }, key)?;
        let plain = |operation, expires_us, value: &[u8]| Change {
            operation,
            expires_us,
            amount: 0,
            value: value.to_vec(),
            previous: current.previous,
            restates: None,
        };
        Ok(match *request {
            TableRequest::Put { value, ttl_ms, .. } => {
                Some(plain(Operation::Put, expires_us(&options, ttl_ms, now_us), value))
            }
            TableRequest::Delete { .. } if current.has_value => Some(plain(Operation::Delete, 0, b"")),
            TableRequest::Increment { amount, .. } => {
                let value = current.value.as_deref().filter(|_| current.has_value);
                let sum = sum(key, value, amount)?.to_string();
                let expires_us = match current.has_value {
                    true => current.expires_us,
                    false => expires_us(&options, 0, now_us),
                };
                Some(Change { amount, ..plain(Operation::Increment, expires_us, sum.as_bytes()) })
            }
            _ => None,
        })
    }

    /// That a key's value has expired, as a change; `None` if it has not.
    pub fn expiry(&self, tables: (&Tables, &Journal), log: &Log, key: &[u8], now_us: u64) -> Result<Option<Change>> {
        let current = self.current(tables, log, key, (now_us, false))?;
        let has_expired = current.is_value && !current.has_value;
        let (operation, previous) = (Operation::Delete, current.previous);
        let deletion = || Change { operation, expires_us: 0, amount: 0, value: Vec::new(), previous, restates: None };
        Ok(has_expired.then(deletion))
    }

    /// That a key has what it has in the repaired history, as a change; `None` if it has that. `replaces` says whether the repair replaces
    /// the record of its newest version.
    pub fn restatement(
        &self,
        tables: (&Tables, &Journal),
        log: &Log,
        key: &[u8],
        restated: &Restated<'_>,
        replaces: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Change>> {
        // An expired value is compared as well.
        let current = self.current(tables, log, key, (0, true))?;
        let now = current.is_value.then(|| (current.value.as_deref().unwrap_or_default(), current.expires_us));
        if now == restated.value && !(current.is_value && replaces(current.seqno)) {
            return Ok(None);
        }
        let operation = if restated.value.is_some() { Operation::Put } else { Operation::Delete };
        let (value, expires_us) = restated.value.unwrap_or_default();
        let (value, previous, restates) = (value.to_vec(), current.previous, Some(restated.restates));
        Ok(Some(Change { operation, expires_us, amount: 0, value, previous, restates }))
    }

    /// A record that is known but for the version before it, as a change.
    pub fn late(&self, tables: (&Tables, &Journal), log: &Log, row: &Row<'_>, value: &[u8]) -> Result<Change> {
        let previous = self.current(tables, log, row.key, (0, false))?.previous;
        let Row { operation, expires_us, amount, .. } = *row;
        Ok(Change { operation, expires_us, amount, value: value.to_vec(), previous, restates: None })
    }

    /// The keys of a range that the batch changes.
    pub fn keys(&self, log: u32, range: KeyRange<'_>) -> impl Iterator<Item = &[u8]> {
        let keys = self.staged.keys().filter(move |(of, key)| *of == log && is_within(range, key));
        keys.map(|(_, key)| &**key)
    }

    /// Notes that a change was staged as a record.
    pub fn staged(&mut self, log: u32, key: &[u8], change: &Change, seqno: u64, cause: EventId) {
        let value = (change.operation != Operation::Delete).then(|| change.value.clone());
        let staged = Staged { seqno, cause, expires_us: change.expires_us, value, previous: change.previous };
        self.staged.insert((log, key.to_vec()), staged);
    }
}

/// Refuses a change whose condition is not met by the version that the key has; 0 if it has no value.
pub fn check(condition: Condition, version: u64, key: &[u8]) -> Result<()> {
    let wanted = match condition {
        Condition::Always => return Ok(()),
        Condition::Absent => 0,
        Condition::Version(wanted) => wanted,
    };
    if wanted == version {
        return Ok(());
    }
    let show = |version| if version == 0 { "no value".to_owned() } else { format!("version {version}") };
    let (has, wanted) = (show(version), show(wanted));
    Err(Code::TableVersionDiffers.error(format!("key '{}' has {has}, and the change asks for {wanted}", show_key(key))))
}

/// When a value expires that is put with this lifetime.
pub fn expires_us(options: &TableOptions, ttl_ms: u64, now_us: u64) -> u64 {
    match if ttl_ms == 0 { options.ttl_ms } else { ttl_ms } {
        0 => 0,
        ttl_ms => now_us.saturating_add(ttl_ms.saturating_mul(1000)),
    }
}

/// The sum of a counter, which has no value if it never was incremented, and an amount.
pub fn sum(key: &[u8], value: Option<&[u8]>, amount: i64) -> Result<i64> {
    let no_counter = |why: String| Code::TableNotCounter.error(format!("key '{}' {why}", show_key(key)));
    let number = match value {
        None => 0,
        Some(value) => counter(value).ok_or_else(|| no_counter("has a value that is no whole number".into()))?,
    };
    number.checked_add(amount).ok_or_else(|| no_counter(format!("has {number}; {amount} cannot be added")))
}
