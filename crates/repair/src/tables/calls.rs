//! Answers what a replayed run asks of tables, as `Stage` of the dispatcher answers runs.

use super::{Held, Lookup};
use crate::calls::{Calls, Leaving, Staged};
use millrace_journal::{KeyedRead, Log, Operation, What};
use millrace_namespace::{
    check_table_request,
    tables::batch::{Sight, check},
};
use millrace_wire::{
    Address, Code, Result,
    table::{Condition, KeyRange, SCAN_MAX, SCAN_MAX_BYTES, TableAnswer, TableEntry, TableRequest},
};
use std::collections::BTreeMap;

impl Calls<'_> {
    /// Answers a request to a table.
    pub(crate) fn ask_table(&mut self, name: &str, request: &TableRequest<'_>) -> Result<TableAnswer> {
        let now_us = self.replay.now_ns() / 1000;
        match *request {
            TableRequest::Get { key } => {
                let log = self.table_read(name, request)?;
                Ok(TableAnswer::one(self.sight(&log, key, now_us)?.entry(key, false)))
            }
            TableRequest::Scan { range, limit, keys_only } => {
                let log = self.table_read(name, request)?;
                self.scan(&log, range, (limit.min(SCAN_MAX) as usize, keys_only), now_us)
            }
            TableRequest::Describe => {
                let log = self.table_read(name, request)?;
                Ok(TableAnswer::description(&log.table().copied().unwrap_or_default()))
            }
            TableRequest::Record { seqno } => {
                let log = self.table_read(name, request)?;
                self.note(log.id(), seqno, What::Record);
                self.record(&log, seqno)
            }
            // What the run read was written when it was first executed.
            TableRequest::Externalize => Ok(TableAnswer::default()),
            TableRequest::Versions { .. } => {
                Err(Code::HostCallInvalid.error("a run of a function cannot list the versions of a key"))
            }
            TableRequest::Put { key, value, condition, ttl_ms } => {
                self.change(name, request, (condition, key, Operation::Put), (value, ttl_ms, 0), now_us)
            }
            TableRequest::Delete { key, condition } => {
                self.change(name, request, (condition, key, Operation::Delete), (b"", 0, 0), now_us)
            }
            TableRequest::Increment { key, amount } => {
                let of = (Condition::Always, key, Operation::Increment);
                self.change(name, request, of, (b"", 0, amount), now_us)
            }
        }
    }

    fn table_read(&mut self, name: &str, request: &TableRequest<'_>) -> Result<Log> {
        let log = self.log_read(self.rights.readable(name, None)?, 0)?;
        self.table_of(log, name, request)
    }

    fn table_of(&mut self, log: u32, name: &str, request: &TableRequest<'_>) -> Result<Log> {
        let Some(log) = self.journal.catalog()?.log_by_id(log).cloned() else {
            return self.breaks(format!("it used table '{name}', which was removed since"));
        };
        if log.table().is_none() {
            return Err(Code::NotATable.error(format!("log '{name}' is no table")));
        }
        check_table_request(&log, request)?;
        Ok(log)
    }

    /// The version of a key that the run sees, without its own changes.
    fn held(&mut self, log: &Log, key: &[u8]) -> Result<Held<'_>> {
        let lookup = Lookup { past: self.past, overlay: Some(self.overlay) };
        let fired = self.fired;
        let held = lookup.find(log.id(), key, (fired.done, 0), |version| version.is_seen(&fired));
        if held.is_unknown {
            let (key, name) = (millrace_wire::table::show_key(key), log.name().clone());
            return self
                .breaks(format!("the journal no longer says which value key '{key}' of table '{name}' had then"));
        }
        Ok(held)
    }

    fn committed(&mut self, log: &Log, key: &[u8], now_us: u64, keys_only: bool) -> Result<Option<TableEntry>> {
        let Held { version, shown, .. } = self.held(log, key)?;
        let Some(version) = version.filter(|version| version.has_value(now_us)).copied() else { return Ok(None) };
        let value = match keys_only {
            true => Vec::new(),
            false => match self.journal.entry_at(version.at) {
                Ok(entry) => entry.payload,
                Err(error) => {
                    let name = log.name().clone();
                    return self.breaks(format!("record {} of table '{name}': {error}", version.slot));
                }
            },
        };
        let (expires_us, time_us) = (version.expires_us, version.time_us);
        Ok(Some(TableEntry { key: key.to_vec(), version: shown, expires_us, time_us, value: Some(value) }))
    }

    /// A key as the run sees it. What it sees of others is noted.
    fn sight(&mut self, log: &Log, key: &[u8], now_us: u64) -> Result<Sight> {
        let own = self.own_changes.get(&(log.id(), key.to_vec())).cloned().unwrap_or_default();
        let of = |calls: &Self, index: usize| calls.appends[index].change.clone();
        let is_whole = |index: &usize| of(self, *index).is_some_and(|change| change.operation != Operation::Increment);
        let base = own.iter().rposition(is_whole);
        let mut sight = Sight { time_us: now_us, ..Sight::default() };
        if base.is_none() {
            let entry = self.committed(log, key, now_us, false)?;
            if self.noted_keys.insert((log.id(), key.to_vec())) {
                self.reads.keyed(&match &entry {
                    Some(entry) => KeyedRead::Found { log: log.id(), seqno: entry.version },
                    None => KeyedRead::Absent { log: log.id(), key },
                });
            }
            if let Some(entry) = entry {
                sight = Sight::of(entry);
            }
        }
        let options = log.table().copied().unwrap_or_default();
        for index in &own[base.unwrap_or(0)..] {
            let Some(change) = of(self, *index) else { continue };
            let payload = self.appends[*index].payload.clone();
            sight.apply(key, &options, (change.operation, &payload, change.ttl_ms, change.amount), change.now_us)?;
        }
        Ok(sight)
    }

    fn scan(
        &mut self,
        log: &Log,
        range: KeyRange<'_>,
        (limit, keys_only): (usize, bool),
        now_us: u64,
    ) -> Result<TableAnswer> {
        let bounds = (range.from, range.to);
        let is_inside = |key: &[u8]| key >= range.from && (range.to.is_empty() || key < range.to);
        let own = self.own_changes.keys().filter(|(of, key)| *of == log.id() && is_inside(key));
        let changed: Vec<Vec<u8>> = own.map(|(_, key)| key.clone()).collect();
        if self.noted_ranges.insert((log.id(), range.from.to_vec(), range.to.to_vec())) {
            let (from, to) = (range.from, range.to);
            self.reads.keyed(&KeyedRead::Range { log: log.id(), from, to, limit: limit as u32 }); // at most SCAN_MAX
        }
        let lookup = Lookup { past: self.past, overlay: Some(self.overlay) };
        let (mut entries, mut bytes, mut more) = (BTreeMap::<Vec<u8>, TableEntry>::new(), 0, false);
        for key in lookup.keys(log.id(), bounds) {
            let Some(entry) = self.committed(log, &key, now_us, keys_only)? else { continue };
            // As many may be hidden by the run's own deletions.
            if entries.len() == limit + changed.len() || bytes >= SCAN_MAX_BYTES {
                more = true;
                break;
            }
            bytes += key.len() + entry.value.as_ref().map_or(0, Vec::len);
            entries.insert(key.to_vec(), entry);
        }
        let end = more.then(|| entries.last_key_value().map(|(key, _)| key.clone())).flatten();
        for key in changed.into_iter().filter(|key| end.as_ref().is_none_or(|end| key <= end)) {
            match self.sight(log, &key, now_us)?.entry(&key, keys_only) {
                Some(entry) => drop(entries.insert(key, entry)),
                None => drop(entries.remove(&key)),
            }
        }
        let more = more || entries.len() > limit;
        Ok(TableAnswer { entries: entries.into_values().take(limit).collect(), more, ..TableAnswer::default() })
    }

    /// The version that a record is.
    fn record(&mut self, log: &Log, seqno: u64) -> Result<TableAnswer> {
        let gone = || Code::TableVersionGone.error(format!("record {seqno} of table '{}'", log.name()));
        let at = self.at(log.id(), seqno).filter(|at| !at.void).ok_or_else(gone)?;
        let record = self.journal.entry_at(at.position)?;
        let row = record.row().ok_or_else(gone)?;
        let clock = record.replaced().map_or(record.hlc, |replaced| replaced.clock);
        Ok(TableAnswer::one(Some(TableEntry {
            key: row.key.to_vec(),
            version: seqno,
            expires_us: row.expires_us,
            time_us: clock.wall_us(),
            value: row.is_value().then(|| record.payload.clone()),
        })))
    }

    fn change(
        &mut self,
        name: &str,
        request: &TableRequest<'_>,
        (condition, key, operation): (Condition, &[u8], Operation),
        (value, ttl_ms, amount): (&[u8], u64, i64),
        now_us: u64,
    ) -> Result<TableAnswer> {
        if Address::claims(name) {
            let detail = format!("'{name}' is an address; tables of other namespaces cannot be changed");
            return Err(Code::NotATable.error(detail));
        }
        let log = self.log(self.rights.writable(name, None)?)?;
        let log = self.table_of(log, name, request)?;
        if condition != Condition::Always {
            // What the condition says of the key is a read, and needs the right to read.
            let log = self.table_read(name, request)?;
            let sight = self.sight(&log, key, now_us)?;
            check(condition, sight.value.as_ref().map_or(0, |_| sight.version), key)?;
        }
        self.own_changes.entry((log.id(), key.to_vec())).or_default().push(self.appends.len());
        let change = Staged { key: key.to_vec(), operation, ttl_ms, amount, now_us };
        self.leave(Leaving { log: log.id(), payload: value.to_vec(), change: Some(change) })?;
        Ok(TableAnswer::default())
    }
}
