//! Tables as the runs of a batch see and change them.
//!
//! A run sees each table as of the batch's snapshot, with the changes of the runs before it in the batch, and its own. It is published only if
//! each key that it read and changes still has the version that it read (first committer wins), and each key that it read of another run of the
//! batch still is as that run left it. Otherwise it runs again.

use super::{Effects, Stage, StagedAppend, Target};
use millrace_journal::{KeyedRead, Log, Operation, Position, Reads, What};
use millrace_namespace::{
    admission::Publish,
    check_table_request,
    tables::{
        When,
        batch::{Sight, check},
    },
};
use millrace_wire::{
    Code, EventId, Result,
    table::{Condition, KeyRange, SCAN_MAX, SCAN_MAX_BYTES, TableAnswer, TableEntry, TableRequest},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a run does to a key.
pub(crate) struct StagedChange {
    pub key: Vec<u8>,
    pub operation: Operation,
    pub ttl_ms: u64,
    pub amount: i64,
    /// The time of the attempt, in microseconds since 1970.
    pub now_us: u64,
}

impl StagedChange {
    /// The change as a request; its conditions were checked against what the run saw.
    pub fn request<'b>(&'b self, value: &'b [u8]) -> TableRequest<'b> {
        let (key, condition) = (&*self.key, Condition::Always);
        match self.operation {
            Operation::Put => TableRequest::Put { key, value, condition, ttl_ms: self.ttl_ms },
            Operation::Delete => TableRequest::Delete { key, condition },
            Operation::Increment => TableRequest::Increment { key, amount: self.amount },
        }
    }
}

/// The changes of each key of a table that are visible so far, as (run, index).
type ChangesByKey = BTreeMap<Vec<u8>, Vec<(usize, usize)>>;

/// By table.
#[derive(Default)]
pub(crate) struct Keyed(HashMap<u32, ChangesByKey>);

impl Keyed {
    pub fn add(&mut self, table: u32, key: &[u8], change: (usize, usize)) {
        self.0.entry(table).or_default().entry(key.to_vec()).or_default().push(change);
    }

    /// The run failed: its changes are seen by nobody.
    pub fn discard(&mut self, run: usize) {
        for keys in self.0.values_mut() {
            keys.values_mut().for_each(|changes| changes.retain(|(of, _)| *of != run));
            keys.retain(|_, changes| !changes.is_empty());
        }
    }

    fn of(&self, table: u32, key: &[u8]) -> Vec<(usize, usize)> {
        self.0.get(&table).and_then(|keys| keys.get(key)).cloned().unwrap_or_default()
    }

    /// The changed keys of a range, in order.
    fn within(&self, table: u32, range: KeyRange<'_>) -> Vec<Vec<u8>> {
        let is_inside = |key: &[u8]| key >= range.from && (range.to.is_empty() || key < range.to);
        let keys = self.0.get(&table).into_iter().flat_map(BTreeMap::keys);
        keys.filter(|key| is_inside(key)).cloned().collect()
    }
}

/// Whose version of a key a run read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The newest one before the snapshot; 0 if there was none.
    Committed(u64),
    /// That of this run of the batch.
    Of(usize),
}

/// What a run read of tables.
#[derive(Default)]
pub(crate) struct KeyedReads {
    keys: HashMap<(u32, Vec<u8>), (Log, Seen)>,
    ranges: HashMap<(u32, Vec<u8>, Vec<u8>), Log>,
    /// Whether a version that it asked for no longer exists.
    is_gone: bool,
}

impl KeyedReads {
    /// Whether it saw changes of other runs of the batch.
    pub fn relies(&self) -> bool {
        self.keys.values().any(|(_, seen)| matches!(seen, Seen::Of(_)))
    }

    /// The committed records that it read, each as a log and a seqno; 0: something about the whole log, such as that a key has no value.
    pub fn seen(&self) -> Vec<(u32, u64)> {
        let keys = self.keys.iter().map(|((table, _), (_, seen))| match seen {
            Seen::Committed(version) => (*table, *version),
            Seen::Of(_) => (*table, 0),
        });
        keys.chain(self.ranges.keys().map(|(table, ..)| (*table, 0))).collect()
    }
}

impl Stage<'_> {
    /// Answers a request of a run to a table.
    pub fn table(&mut self, run: usize, name: &str, request: &TableRequest<'_>, now_us: u64) -> Result<TableAnswer> {
        let answered = self.answered(run, name, request, now_us);
        if answered.as_ref().is_err_and(|error| error.code() == Code::TableVersionGone) {
            // Another run has changed the key, and retention has dropped what it was: this one has to see the newer version.
            self.effects[run].keyed.is_gone = true;
        }
        answered
    }

    fn answered(&mut self, run: usize, name: &str, request: &TableRequest<'_>, now_us: u64) -> Result<TableAnswer> {
        match *request {
            TableRequest::Get { key } => {
                let log = self.table_read(run, name, request)?;
                let sight = self.sight(run, &log, key, now_us)?;
                Ok(TableAnswer::one(sight.entry(key, false)))
            }
            TableRequest::Scan { range, limit, keys_only } => {
                let log = self.table_read(run, name, request)?;
                self.scan(run, &log, range, (limit.min(SCAN_MAX) as usize, keys_only), now_us)
            }
            TableRequest::Describe => {
                let log = self.table_read(run, name, request)?;
                Ok(TableAnswer::description(&log.table().copied().unwrap_or_default()))
            }
            TableRequest::Record { seqno } => {
                let log = self.table_read(run, name, request)?;
                self.note(run, &log, seqno, What::Record)?;
                Ok(TableAnswer::one(Some(self.tables.record(self.journal, &log, seqno)?.0)))
            }
            // `RunCalls` waits.
            TableRequest::Externalize => Ok(TableAnswer::default()),
            TableRequest::Versions { .. } => {
                let detail = "a run of a function cannot list the versions of a key; read the table as a log instead";
                Err(Code::HostCallInvalid.error(detail))
            }
            TableRequest::Put { key, value, condition, ttl_ms } => {
                let change = StagedChange { key: key.to_vec(), operation: Operation::Put, ttl_ms, amount: 0, now_us };
                self.change(run, name, request, (condition, change, value))
            }
            TableRequest::Delete { key, condition } => {
                let change =
                    StagedChange { key: key.to_vec(), operation: Operation::Delete, ttl_ms: 0, amount: 0, now_us };
                self.change(run, name, request, (condition, change, b""))
            }
            TableRequest::Increment { key, amount } => {
                let change =
                    StagedChange { key: key.to_vec(), operation: Operation::Increment, ttl_ms: 0, amount, now_us };
                self.change(run, name, request, (Condition::Always, change, b""))
            }
        }
    }

    fn table_read(&mut self, run: usize, name: &str, request: &TableRequest<'_>) -> Result<Log> {
        let log = self.log_read(run, name, 0)?;
        self.view.check_loaded(&log)?;
        checked(log, request)
    }

    fn change(
        &mut self,
        run: usize,
        name: &str,
        request: &TableRequest<'_>,
        (condition, change, value): (Condition, StagedChange, &[u8]),
    ) -> Result<TableAnswer> {
        let Target::Log(log) = self.target(name)? else {
            return Err(
                Code::NotATable.error(format!("'{name}' is an address; tables of other namespaces cannot be changed"))
            );
        };
        let log = checked(log, request)?;
        if self.view.is_replica(&log) {
            return Err(Code::TableIsReplica.error(format!("table '{name}' belongs to another namespace")));
        }
        if condition != Condition::Always {
            // What the condition says of the key is a read, and needs the right to read.
            let log = self.table_read(run, name, request)?;
            let sight = self.sight(run, &log, &change.key, change.now_us)?;
            check(condition, sight.value.as_ref().map_or(0, |_| sight.version), &change.key)?;
        }
        self.stage(run, StagedAppend { to: Target::Log(log), payload: value.to_vec(), change: Some(change) })?;
        Ok(TableAnswer::default())
    }

    /// A key as the run sees it. What it sees of others is noted.
    fn sight(&mut self, run: usize, log: &Log, key: &[u8], now_us: u64) -> Result<Sight> {
        let changes = self.keyed.of(log.id(), key);
        let others = changes.partition_point(|(of, _)| *of < run);
        // Increments after the last put or deletion add to what is before them.
        let is_whole = |(of, index): &(usize, usize)| {
            self.effects[*of].appends[*index]
                .change
                .as_ref()
                .is_some_and(|change| change.operation != Operation::Increment)
        };
        let base = changes.iter().rposition(is_whole);
        if base.is_none_or(|base| base < others)
            && let Some((of, _)) = others.checked_sub(1).map(|last| changes[last])
        {
            self.note_key(run, log, key, Seen::Of(of))?;
        }
        let mut sight = match base {
            Some(_) => Sight { version: 0, expires_us: 0, time_us: now_us, value: None },
            None => self.committed(run, (log, key), others == 0, now_us)?,
        };
        let options = log.table().copied().unwrap_or_default();
        for (of, index) in &changes[base.unwrap_or(0)..] {
            let append = &self.effects[*of].appends[*index];
            let Some(change) = &append.change else { continue };
            let of = (change.operation, &*append.payload, change.ttl_ms, change.amount);
            sight.apply(key, &options, of, change.now_us)?;
            sight.time_us = now_us;
        }
        Ok(sight)
    }

    /// A key as it was at the snapshot.
    fn committed(&mut self, run: usize, (log, key): (&Log, &[u8]), note: bool, now_us: u64) -> Result<Sight> {
        let when = When { upto: Some(self.snapshot), now_us };
        let Some((found, record)) = self.tables.get(self.journal, log, key, when)? else {
            // Also of a version that says that there is no value: another run may put one meanwhile.
            let version = self.tables.newest(self.journal, log, key, when)?.map_or(0, |found| found.seqno);
            if note {
                self.note_key(run, log, key, Seen::Committed(version))?;
                self.effects[run].reads.keyed(&KeyedRead::Absent { log: log.id(), key });
            }
            return Ok(Sight { version: 0, expires_us: 0, time_us: 0, value: None });
        };
        if note && self.note_key(run, log, key, Seen::Committed(found.seqno))? {
            self.effects[run].reads.keyed(&KeyedRead::Found { log: log.id(), seqno: found.seqno });
        }
        let (version, expires_us, time_us) = (found.seqno, found.expires_us, record.hlc.wall_us());
        Ok(Sight { version, expires_us, time_us, value: Some(record.payload) })
    }

    fn note_key(&mut self, run: usize, log: &Log, key: &[u8], seen: Seen) -> Result<bool> {
        let bytes_max = self.reads_max_bytes;
        let effects = &mut self.effects[run];
        let is_new = effects.keyed.keys.insert((log.id(), key.to_vec()), (log.clone(), seen)).is_none();
        effects.check_width(bytes_max)?;
        Ok(is_new)
    }

    fn scan(
        &mut self,
        run: usize,
        log: &Log,
        range: KeyRange<'_>,
        (limit, keys_only): (usize, bool),
        now_us: u64,
    ) -> Result<TableAnswer> {
        let changed = self.keyed.within(log.id(), range);
        let when = When { upto: Some(self.snapshot), now_us };
        // As many may be hidden by deletions of this batch.
        let bounds = (limit + changed.len(), SCAN_MAX_BYTES, keys_only);
        let scanned = self.tables.scan(self.journal, log, range, bounds, when)?;
        let effects = &mut self.effects[run];
        let place = (log.id(), range.from.to_vec(), range.to.to_vec());
        if effects.keyed.ranges.insert(place, log.clone()).is_none() {
            let (from, to) = (range.from, range.to);
            effects.reads.keyed(&KeyedRead::Range { log: log.id(), from, to, limit: limit as u32 });
            effects.check_width(self.reads_max_bytes)?;
        }
        let end = scanned.more.then(|| scanned.entries.last().map(|entry| entry.key.clone())).flatten();
        let mut entries: BTreeMap<Vec<u8>, TableEntry> = BTreeMap::new();
        for entry in scanned.entries {
            self.effects[run]
                .keyed
                .keys
                .entry((log.id(), entry.key.clone()))
                .or_insert((log.clone(), Seen::Committed(entry.version)));
            entries.insert(entry.key.clone(), entry);
        }
        for key in changed.into_iter().filter(|key| end.as_ref().is_none_or(|end| key <= end)) {
            match self.sight(run, log, &key, now_us)?.entry(&key, keys_only) {
                Some(entry) => drop(entries.insert(key, entry)),
                None => drop(entries.remove(&key)),
            }
        }
        let more = scanned.more || entries.len() > limit;
        Ok(TableAnswer { entries: entries.into_values().take(limit).collect(), more, ..TableAnswer::default() })
    }
}

fn checked(log: Log, request: &TableRequest<'_>) -> Result<Log> {
    if log.table().is_none() {
        return Err(Code::NotATable.error(format!("log '{}' is no table", log.name())));
    }
    check_table_request(&log, request)?;
    Ok(log)
}

/// Whether everything that a run has read is as it was at the snapshot, or as the run saw it of others of its batch.
fn is_alone(publish: &Publish<'_>, effects: &Effects, snapshot: Position) -> Result<bool> {
    for ((table, from, to), log) in &effects.keyed.ranges {
        let is_known = |key: &[u8]| effects.keyed.keys.contains_key(&(*table, key.to_vec()));
        if !publish.is_unchanged(log, KeyRange { from, to }, snapshot, is_known)? {
            return Ok(false);
        }
    }
    publish.have_newest(effects.newest_read(), snapshot)
}

/// The reads of a run that is about to be published; `None` if a key is not as the run saw it, so that it has to run again. If the run is
/// serializable, this concerns everything that it has read since the snapshot.
pub(crate) fn as_seen(
    publish: &Publish<'_>,
    effects: &Effects,
    run_of: &dyn Fn(usize) -> EventId,
    serializable: Option<Position>,
) -> Result<Option<Reads>> {
    let mut reads = effects.reads.clone();
    if effects.keyed.is_gone {
        return Ok(None);
    }
    // What changes nothing is as if it had run at the snapshot.
    let alone_since = serializable.filter(|_| !effects.appends.is_empty());
    if let Some(snapshot) = alone_since
        && !is_alone(publish, effects, snapshot)?
    {
        return Ok(None);
    }
    // Whether a deletion leaves a record depends on whether its key has a value.
    let mut before = HashSet::new();
    for append in &effects.appends {
        let Some((log, change)) = append.to.log().zip(append.change.as_ref()) else { continue };
        if before.insert((log.id(), &*change.key)) && change.operation == Operation::Delete {
            let current = publish.current(log, &change.key, (change.now_us, false))?;
            reads.keyed(&match current.has_value {
                true => KeyedRead::Found { log: log.id(), seqno: current.seqno },
                false => KeyedRead::Absent { log: log.id(), key: &change.key },
            });
        }
    }
    if effects.keyed.keys.is_empty() {
        return Ok(Some(reads));
    }
    let changes =
        effects.appends.iter().filter_map(|append| Some((append.to.log()?.id(), &*append.change.as_ref()?.key)));
    let changed: HashSet<(u32, &[u8])> = changes.collect();
    for ((table, key), (log, seen)) in &effects.keyed.keys {
        match seen {
            Seen::Committed(version) => {
                let counts = alone_since.is_some() || changed.contains(&(*table, &**key));
                if counts && publish.current(log, key, (0, false))?.seqno != *version {
                    return Ok(None);
                }
            }
            Seen::Of(run) => {
                let current = publish.current(log, key, (0, true))?;
                if current.cause != run_of(*run) {
                    return Ok(None);
                }
                let read = match current.has_value {
                    true => KeyedRead::Found { log: *table, seqno: current.seqno },
                    false => KeyedRead::Absent { log: *table, key },
                };
                reads.keyed(&read);
            }
        }
    }
    Ok(Some(reads))
}
