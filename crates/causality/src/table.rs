//! The events of one journal, 32 bytes each, in the order in which they happened.
//!
//! ```text
//!  rows:  carried entries, oldest first | entries in the order of the journal
//!  row:   clock 8 | seqno 8 | subject 4 | cause 4 | detail 4 | ordinal 2 | kind 1 | flags 1
//! ```
//!
//! A cause is the row of another event of the table, or the number of an id in a list, if no event of the table has it. Ids are not
//! stored: sequences are dense, so a few spans give the id of every row. What a run read is in a list of bytes beside the rows.
//!
//! Shadow entries are rows without a kind. Those of applied repairs replace records and runs: see [`crate::repaired`].

mod reads;
pub(crate) mod seen;

use crate::{
    definitions::{Definitions, Settings},
    event::{Event, KeyedEvent, hash_of_key},
    index::{IdMap, LogRows, NO_ROW},
    repaired::{Repaired, Replay, Version},
    row::{CARRIED, CLAIMED, KeyedRead, NEW_READS, Read, Row, SHADOW, VOID},
};
use millrace_journal::{Attempt, End, KeyedRead as JournalRead, Kind, Outcome, ReadFrom, Reads, What, trigger_record};
use millrace_wire::{Code, EventId, Hlc, NamespaceId, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most rows of a table: the upper half of the numbers names causes that are elsewhere.
const ROWS_MAX: usize = FOREIGN as usize - 1;
/// In a cause: the rest is the number of a foreign id.
const FOREIGN: u32 = 1 << 31;
/// The position is kept for one row in this number, and behind copies; the others are found by reading on.
const POSITION_EVERY: u32 = 64;

/// A range of rows with consecutive ids.
#[derive(Clone, Copy, Debug)]
struct Span {
    row: u32,
    first: EventId,
}

fn behind(first: EventId, by: u64) -> EventId {
    EventId::from_bits(first.get() + u128::from(by))
}

/// Whether two ids are of one namespace and epoch.
fn is_kin(a: EventId, b: EventId) -> bool {
    a.get() >> 56 == b.get() >> 56
}

/// The row of an id among regular rows.
fn find(spans: &[Span], rows: usize, id: EventId) -> Option<u32> {
    let at = spans.partition_point(|span| span.first <= id).checked_sub(1)?;
    let span = spans[at];
    let end = spans.get(at + 1).map_or(rows, |next| next.row as usize);
    let row = u64::from(span.row) + id.sequence().checked_sub(span.first.sequence())?;
    (is_kin(span.first, id) && row < end as u64).then_some(row as u32)
}

#[derive(Debug, Default)]
struct Names {
    logs: BTreeMap<u32, String>,
    functions: BTreeMap<u32, String>,
    definitions: Definitions,
}

impl Names {
    /// Adds a definition; returns the log that it defines.
    fn define(&mut self, payload: &[u8]) -> Option<(String, u32)> {
        let definition: serde_json::Value = serde_json::from_slice(payload).ok()?;
        let (id, name) = (u32::try_from(definition["id"].as_u64()?).ok()?, definition["name"].as_str()?);
        match definition["define"].as_str()? {
            "log" => {
                self.logs.insert(id, name.into());
                return Some((name.into(), id));
            }
            "function" => {
                self.functions.insert(id, name.into());
                self.definitions.define(id, &definition);
            }
            _ => {}
        }
        None
    }
}

/// A table in the making: takes the entries of one journal in the order of a scan.
#[derive(Debug)]
pub struct Builder {
    namespace: NamespaceId,
    rows: Vec<Row>,
    spans: Vec<Span>,
    last: EventId,
    foreign: Vec<EventId>,
    reads: Vec<u8>,
    /// Of some rows, ascending.
    positions: Vec<(u32, u64)>,
    logs: IdMap<LogRows>,
    /// Of records of tables, by their rows.
    keys: HashMap<u32, KeyedEvent>,
    carried_keys: HashMap<EventId, KeyedEvent>,
    /// Their keys, by their hashes.
    key_bytes: HashMap<u64, Box<[u8]>>,
    /// Of the FIREDs that are not the first of their claim, ascending: how many runs go before.
    places: Vec<(u32, u32)>,
    names: Names,
    log_ids: HashMap<String, u32>,
    carried: Vec<(EventId, u64, EventId, Row)>,
    /// The rows of shadow entries, with the repairs that wrote them.
    shadows: Vec<(u32, u64)>,
    /// The repairs in force.
    in_force: BTreeSet<u64>,
    /// Whether a copy came last.
    behind_copy: bool,
    damaged: u64,
}

impl Builder {
    /// A table of the journal of this namespace.
    pub fn new(namespace: NamespaceId) -> Self {
        Self {
            namespace,
            rows: Vec::new(),
            spans: Vec::new(),
            last: EventId::NONE,
            foreign: Vec::new(),
            reads: Vec::new(),
            positions: Vec::new(),
            logs: IdMap::default(),
            keys: HashMap::new(),
            carried_keys: HashMap::new(),
            key_bytes: HashMap::new(),
            places: Vec::new(),
            names: Names::default(),
            log_ids: HashMap::new(),
            carried: Vec::new(),
            shadows: Vec::new(),
            in_force: BTreeSet::new(),
            behind_copy: false,
            damaged: 0,
        }
    }

    /// Says how a log is called, in case its definition has left the journal.
    pub fn name_log(&mut self, id: u32, name: &str) {
        self.names.logs.insert(id, name.into());
        self.log_ids.insert(name.into(), id);
    }

    /// Says how a function is called.
    pub fn name_function(&mut self, id: u32, name: &str) {
        self.names.functions.insert(id, name.into());
    }

    /// Says that a repair is in force: the records and runs are what its shadow entries say. Without that, they are as they were.
    pub fn in_force(&mut self, repair: u64) {
        self.in_force.insert(repair);
    }

    /// Notes that entries could not be read here.
    pub fn damaged(&mut self) {
        self.damaged += 1;
    }

    /// Takes the next entry.
    pub fn push(&mut self, event: &Event<'_>) -> Result<()> {
        if self.rows.len() + self.carried.len() >= ROWS_MAX {
            return Err(Code::HistoryTooLong.error(format!("namespace {} has more than {ROWS_MAX}", self.namespace)));
        }
        if event.kind == Kind::Define {
            self.log_ids.extend(self.names.define(event.payload));
        }
        let detail = self.detail(event)?;
        let flags = if event.claimed { CLAIMED } else { 0 }
            | if event.carried { CARRIED } else { 0 }
            | if event.void { VOID } else { 0 };
        let mut row = Row {
            hlc: event.hlc.get(),
            seqno: event.seqno,
            subject: event.subject,
            cause: NO_ROW,
            detail,
            ordinal: event.ordinal,
            kind: event.kind as u8 | if event.repair.is_some() { SHADOW } else { 0 },
            flags,
        };
        if let Some((key, KeyedEvent { hash, .. })) = event.key.filter(|(key, _)| !key.is_empty()) {
            self.key_bytes.entry(hash).or_insert_with(|| key.into());
        }
        if event.carried {
            self.carried.push((event.id, event.position, event.cause, row));
            self.carried_keys.extend(event.key.map(|(_, key)| (event.id, key)));
            self.behind_copy = true;
            return Ok(());
        }
        if !event.cause.is_none() {
            row.cause = match find(&self.spans, self.rows.len(), event.cause) {
                Some(row) => row,
                None => {
                    self.foreign.push(event.cause);
                    FOREIGN | (self.foreign.len() - 1) as u32
                }
            };
        }
        let number = self.rows.len() as u32;
        if let Some((_, key)) = event.key {
            self.keys.insert(number, key);
            // What it restates is its cause.
            if let Some(source) = self.logs.get(&event.subject).and_then(|log| log.row(key.restates, 0)) {
                row.cause = source;
            }
        }
        let follows = !self.last.is_none() && is_kin(self.last, event.id) && behind(self.last, 1) == event.id;
        if !follows {
            self.spans.push(Span { row: number, first: event.id });
        }
        self.last = event.id;
        let is_far = self.positions.last().is_none_or(|(row, _)| number - row >= POSITION_EVERY);
        if is_far || std::mem::take(&mut self.behind_copy) {
            self.positions.push((number, event.position));
        }
        match event.repair {
            Some(repair) => self.shadows.push((number, repair)),
            None if event.kind == Kind::Append => {
                self.logs.entry(event.subject).or_default().push(event.seqno, number);
            }
            None => {}
        }
        self.rows.push(row);
        Ok(())
    }

    fn detail(&mut self, event: &Event<'_>) -> Result<u32> {
        Ok(match event.kind {
            Kind::Append => u32::try_from(event.payload_bytes).unwrap_or(u32::MAX),
            Kind::Fired => {
                let attempt = Attempt::decode(event.ordinal, event.payload);
                if attempt.place > 0 && !event.carried {
                    self.places.push((self.rows.len() as u32, attempt.place));
                }
                attempt.revision << 2 | u32::from(attempt.streamed) << 1 | u32::from(attempt.waits)
            }
            Kind::Done => {
                let end = End::decode(event.payload);
                let code = end.code.strip_prefix("MR").and_then(|digits| digits.parse::<u16>().ok()).unwrap_or(0);
                let outcome = match end.outcome {
                    Outcome::Done => 0,
                    Outcome::Dead => 1,
                    Outcome::Cancelled => 2,
                };
                outcome | u32::from(code) << 2
            }
            Kind::Trigger => match trigger_record(event.payload) {
                Some((log, seqno)) => self.note([Read { log, from: seqno, count: 1, what: What::Record }], &[])?,
                None => NO_ROW,
            },
            Kind::Read => {
                let rows = Reads::decode(event.payload).filter_map(|row| match row.log {
                    ReadFrom::Log(log) => Some(Read { log, from: row.from, count: row.count, what: row.what }),
                    ReadFrom::Name(_) => None,
                });
                let own = |log, seqno| {
                    let row = self.logs.get(&log).and_then(|of: &LogRows| of.row(seqno, 0));
                    let restates = row.and_then(|row| self.keys.get(&row)).map_or(0, |key| key.restates);
                    if restates == 0 { seqno } else { restates }
                };
                let values = JournalRead::decode(event.payload).filter_map(|row| match row {
                    JournalRead::Found { log, seqno } => {
                        Some(Read { log, from: own(log, seqno), count: 1, what: What::Record })
                    }
                    _ => None,
                });
                let keyed = JournalRead::decode(event.payload).filter_map(|row| match row {
                    JournalRead::Found { .. } => None,
                    JournalRead::Absent { log, key } => Some(KeyedRead::Absent { log, hash: hash_of_key(key) }),
                    JournalRead::Range { log, from, to, limit } => Some(KeyedRead::Range { log, from, to, limit }),
                });
                let (rows, keyed): (Vec<Read>, Vec<KeyedRead<'_>>) = (rows.chain(values).collect(), keyed.collect());
                self.note(rows, &keyed)?
            }
            Kind::Call => match self.call(event) {
                Some(read) => self.note([read], &[])?,
                None => NO_ROW,
            },
            _ => 0,
        })
    }

    /// The read of a streamed run's call; nothing if it read no record.
    fn call(&self, event: &Event<'_>) -> Option<Read> {
        let (what, answer) = (*event.payload.first()?, *event.payload.get(1)?);
        let length = usize::from(u16::from_le_bytes(event.payload.get(2..4)?.try_into().ok()?));
        let name = std::str::from_utf8(event.payload.get(4..4 + length)?).ok()?;
        let body = event.payload.get(4 + length..)?;
        let log = *self.log_ids.get(name)?;
        Some(match (what, answer) {
            (1, 0 | 2) => Read { log, from: event.seqno, count: 1, what: What::Record },
            (1, _) => Read { log, from: event.seqno, count: 1, what: What::Absent },
            (2, 0) => {
                let from = u64::from_le_bytes(body.get(..8)?.try_into().ok()?);
                Read { log, from, count: 1, what: What::Latest }
            }
            _ => return None,
        })
    }

    fn note(&mut self, reads: impl IntoIterator<Item = Read>, keyed: &[KeyedRead<'_>]) -> Result<u32> {
        let at = u32::try_from(self.reads.len()).ok().filter(|at| *at != NO_ROW);
        let at = at.ok_or_else(|| {
            Code::HistoryTooLong.error(format!("the runs of namespace {} read too many records", self.namespace))
        })?;
        reads::push(&mut self.reads, reads, keyed);
        Ok(at)
    }

    /// The table.
    pub fn finish(self) -> Table {
        let Self { mut carried, mut rows, mut logs, spans, mut foreign, mut reads, positions, namespace, .. } = self;
        let (shadows, in_force) = (self.shadows, self.in_force);
        // A crash may leave both the original and its copy; the original is the one with neighbours.
        carried.retain(|(id, ..)| find(&spans, rows.len(), *id).is_none());
        carried.sort_by_key(|(id, ..)| *id);
        carried.dedup_by_key(|(id, ..)| *id);
        let shift = carried.len() as u32;
        let places = self.places.into_iter().map(|(row, place)| (row + shift, place)).collect();
        let mut keys: HashMap<u32, KeyedEvent> = self.keys.into_iter().map(|(row, key)| (row + shift, key)).collect();
        if shift > 0 {
            for row in rows.iter_mut().filter(|row| row.cause < FOREIGN) {
                row.cause += shift;
            }
        }
        let ids: Vec<EventId> = carried.iter().map(|(id, ..)| *id).collect();
        let is_carried = |id: EventId| ids.binary_search(&id).ok().map(|at| at as u32);
        let mut first = Vec::with_capacity(carried.len());
        for (number, (id, _, cause, row)) in carried.iter().enumerate() {
            let mut row = *row;
            if !cause.is_none() {
                let known = is_carried(*cause).or_else(|| Some(find(&spans, rows.len(), *cause)? + shift));
                row.cause = known.unwrap_or_else(|| {
                    foreign.push(*cause);
                    FOREIGN | (foreign.len() - 1) as u32
                });
            }
            if row.is(Kind::Append) {
                logs.entry(row.subject).or_default().push_carried(row.seqno, number as u32);
                keys.extend(self.carried_keys.get(id).map(|key| (number as u32, *key)));
            }
            first.push(row);
        }
        if shift > 0 {
            for row in rows.iter_mut().filter(|row| row.cause >= FOREIGN && row.cause != NO_ROW) {
                if let Some(carried) = is_carried(foreign[(row.cause - FOREIGN) as usize]) {
                    row.cause = carried;
                }
            }
            first.append(&mut rows);
            rows = first;
        }
        rows.shrink_to_fit();
        foreign.shrink_to_fit();
        reads.shrink_to_fit();
        logs.values_mut().for_each(LogRows::finish);
        accept_deliveries(&mut rows, &foreign, &self.names, namespace);
        let carried_positions = carried.iter().map(|(_, position, ..)| *position).collect();
        let mut table = Table {
            namespace,
            rows,
            spans,
            carried: ids,
            carried_positions,
            foreign,
            reads,
            positions,
            logs,
            keys,
            key_bytes: self.key_bytes,
            places,
            names: self.names,
            targets: BTreeMap::new(),
            damaged: self.damaged,
            repaired: Repaired::default(),
        };
        table.take_up(shadows.iter().filter(|(_, repair)| in_force.contains(repair)));
        table.targets = table.find_targets();
        table
    }
}

/// A delivery of a link is in the journal like a record of a client that claims a cause. It counts as more than a claim if there is an
/// incoming stream from the namespace of the cause.
fn accept_deliveries(rows: &mut [Row], foreign: &[EventId], names: &Names, own: NamespaceId) {
    let source = |name: &String| {
        let digits = name.strip_prefix("_inbox/")?.split('/').next()?;
        NamespaceId::new(u64::from_str_radix(digits, 16).ok()?)
    };
    let sources: BTreeSet<NamespaceId> = names.logs.values().filter_map(source).collect();
    if sources.is_empty() {
        return;
    }
    let is_record = |rows: &[Row], cause: u32| rows.get(cause as usize).is_some_and(|row| row.is(Kind::Append));
    for at in 0..rows.len() {
        let Row { cause, flags, .. } = rows[at];
        if flags & CLAIMED == 0 || cause == NO_ROW {
            continue;
        }
        let is_delivery = match cause.checked_sub(FOREIGN) {
            Some(number) => foreign[number as usize].namespace().is_some_and(|from| sources.contains(&from)),
            None => sources.contains(&own) && is_record(rows, cause),
        };
        if is_delivery {
            rows[at].flags &= !CLAIMED;
        }
    }
}

/// The events of one journal.
#[derive(Debug)]
pub struct Table {
    namespace: NamespaceId,
    rows: Vec<Row>,
    spans: Vec<Span>,
    carried: Vec<EventId>,
    carried_positions: Vec<u64>,
    foreign: Vec<EventId>,
    reads: Vec<u8>,
    /// Of some rows, ascending.
    positions: Vec<(u32, u64)>,
    logs: IdMap<LogRows>,
    keys: HashMap<u32, KeyedEvent>,
    key_bytes: HashMap<u64, Box<[u8]>>,
    places: Vec<(u32, u32)>,
    names: Names,
    targets: BTreeMap<u32, BTreeSet<u32>>,
    damaged: u64,
    repaired: Repaired,
}

/// What caused an event, as its own table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Outside,
    Row(u32),
    Foreign(u32),
}

impl Table {
    /// The namespace whose journal it is.
    pub fn namespace(&self) -> NamespaceId {
        self.namespace
    }

    /// How many events there are.
    pub fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The event of this number, below [`Table::len`].
    pub fn row(&self, row: u32) -> &Row {
        &self.rows[row as usize]
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The id of an event.
    pub fn id(&self, row: u32) -> EventId {
        let Some(regular) = row.checked_sub(self.first_regular()) else { return self.carried[row as usize] };
        let span = self.spans[self.spans.partition_point(|span| span.row <= regular) - 1];
        behind(span.first, u64::from(regular - span.row))
    }

    /// The event with this id.
    pub fn find(&self, id: EventId) -> Option<u32> {
        let regular = find(&self.spans, self.rows.len() - self.carried.len(), id);
        let carried = || self.carried.binary_search(&id).ok().map(|at| at as u32);
        regular.map(|row| row + self.first_regular()).or_else(carried)
    }

    /// The first event of the complete journal; those before are copies without their neighbours.
    pub fn first_regular(&self) -> u32 {
        self.carried.len() as u32
    }

    /// Whether the journal is complete: retention has dropped nothing, and everything can be read.
    pub fn is_complete(&self) -> bool {
        self.damaged == 0 && self.spans.first().is_none_or(|span| span.first.sequence() == 1)
    }

    /// When the complete journal begins, if that is not its beginning.
    pub fn horizon(&self) -> Option<Hlc> {
        let first = self.rows.get(self.first_regular() as usize)?;
        (self.spans.first()?.first.sequence() != 1).then(|| first.hlc())
    }

    /// How many stretches could not be read.
    pub fn damaged_stretches(&self) -> u64 {
        self.damaged
    }

    /// The namespaces whose ids its events have: its own, and those that it was copied from.
    pub(crate) fn namespaces(&self) -> Vec<NamespaceId> {
        let firsts = self.spans.iter().map(|span| span.first).chain(self.carried.iter().copied());
        let mut all: Vec<NamespaceId> = firsts.filter_map(EventId::namespace).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn origin(&self, row: u32) -> Origin {
        match self.rows[row as usize].cause {
            NO_ROW => Origin::Outside,
            cause if cause >= FOREIGN => Origin::Foreign(cause - FOREIGN),
            cause => Origin::Row(cause),
        }
    }

    pub(crate) fn foreign(&self) -> &[EventId] {
        &self.foreign
    }

    /// The run of an event of a run, or of a record that a run appended, if the table has its TRIGGER.
    pub fn run_of(&self, row: u32) -> Option<u32> {
        let event = self.row(row);
        if event.is(Kind::Trigger) {
            return Some(row);
        }
        match self.origin(row) {
            Origin::Row(cause) if self.row(cause).is(Kind::Trigger) && !event.claimed() => Some(cause),
            _ => None,
        }
    }

    /// Whether an event contains reads of its run.
    pub fn is_read(&self, row: u32) -> bool {
        let event = self.row(row);
        event.is(Kind::Read) || event.is(Kind::Call) || event.flags & NEW_READS != 0
    }

    /// The row that has what an event read: that of a replay has it for its run.
    fn reads_of(&self, row: u32) -> Option<&Row> {
        let event = self.row(row);
        let is_replaced = !self.repaired.replays.is_empty() && (event.is(Kind::Read) || event.flags & NEW_READS != 0);
        let replay = if is_replaced { self.run_of(row).and_then(|run| self.replay(run)) } else { None };
        let found = match replay {
            Some(replay) => self.row(replay.reads?),
            None => Some(event).filter(|_| self.is_read(row) || event.is(Kind::Trigger))?,
        };
        Some(found).filter(|found| found.detail != NO_ROW)
    }

    /// The list of what an event read, in the repaired history.
    fn noted(&self, row: u32) -> &[u8] {
        self.reads_of(row).map_or(&[], |found| &self.reads[found.detail as usize..])
    }

    /// The reads of an event, in the repaired history. For a TRIGGER, the record that it names.
    pub fn reads(&self, row: u32) -> impl Iterator<Item = Read> + '_ {
        reads::of_records(self.noted(row))
    }

    /// What an event read of tables besides values, in the repaired history.
    pub fn keyed_reads(&self, row: u32) -> impl Iterator<Item = KeyedRead<'_>> {
        reads::of_keys(self.noted(row))
    }

    /// What a record of a table says of its key.
    pub fn key(&self, row: u32) -> Option<KeyedEvent> {
        self.keys.get(&row).copied()
    }

    /// The key of a record of a table, if it is known.
    pub fn key_bytes(&self, row: u32) -> Option<&[u8]> {
        self.key_of_hash(self.key(row)?.hash)
    }

    /// The key with this hash, if a record has it.
    pub(crate) fn key_of_hash(&self, hash: u64) -> Option<&[u8]> {
        self.key_bytes.get(&hash).map(|key| &**key)
    }

    /// How many runs of the same claim go before that of a FIRED.
    pub(crate) fn place_in_claim(&self, fired: u32) -> u32 {
        self.places.binary_search_by_key(&fired, |(row, _)| *row).map_or(0, |at| self.places[at].1)
    }

    /// Whether there is no such record in the repaired history.
    pub(crate) fn is_void(&self, record: u32) -> bool {
        self.repaired.versions.get(&record).is_some_and(|version| version.void)
    }

    /// The changes by applied repairs.
    pub(crate) fn repaired(&self) -> &Repaired {
        &self.repaired
    }

    /// Adds the shadow entries of the applied repairs, the oldest first.
    fn take_up<'s>(&mut self, shadows: impl Iterator<Item = &'s (u32, u64)>) {
        let (mut repaired, mut reads) = (Repaired::default(), HashMap::new());
        let shift = self.first_regular();
        for (number, repair) in shadows {
            let (row, repair) = (number + shift, *repair);
            let event = self.row(row);
            match self.origin(row) {
                // One with seqno 0 is appended when the repair is applied, and then it is an APPEND like others.
                _ if event.is_shadow(Kind::Append) => {
                    if let Some(record) = self.record(event.subject, event.seqno) {
                        let version = Version { repair, row, void: event.flags & VOID != 0 };
                        repaired.versions.insert(record, version);
                    }
                }
                Origin::Row(run) if event.is_shadow(Kind::Read) => drop(reads.insert(run, row)),
                Origin::Row(run) if event.is_shadow(Kind::Done) => {
                    repaired.replays.insert(run, Replay { repair, row, reads: reads.remove(&run) });
                }
                _ => {}
            }
        }
        let mut attempts: HashMap<u32, Option<u32>> = HashMap::new();
        if repaired.replays.values().any(|replay| replay.reads.is_some()) {
            for number in 0..self.len() {
                let event = self.row(number);
                let (is_fired, is_read) = (event.attempt().is_some_and(|(_, waits)| !waits), event.is(Kind::Read));
                let Some(run) = Some(number).filter(|_| is_fired || is_read).and_then(|row| self.run_of(row)) else {
                    continue;
                };
                if repaired.replays.get(&run).is_some_and(|replay| replay.reads.is_some()) {
                    let attempt = if is_fired { Some(number) } else { None };
                    attempts.insert(run, attempt);
                }
            }
        }
        for attempt in attempts.into_values().flatten() {
            self.rows[attempt as usize].flags |= NEW_READS;
        }
        self.repaired = repaired;
    }

    /// The row of a record.
    pub fn record(&self, log: u32, seqno: u64) -> Option<u32> {
        self.logs.get(&log)?.row(seqno, self.first_regular())
    }

    /// The oldest and the newest record of a log that the table has.
    pub fn bounds(&self, log: u32) -> Option<(u64, u64)> {
        self.logs.get(&log)?.bounds()
    }

    /// The newest log of this name.
    pub fn log(&self, name: &str) -> Option<u32> {
        self.names.logs.iter().rev().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    /// The newest function of this name.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.names.functions.iter().rev().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    /// The name of a log, if it is known.
    pub fn log_name(&self, id: u32) -> Option<&str> {
        self.names.logs.get(&id).map(String::as_str)
    }

    /// The name of a function, if it is known.
    pub fn function_name(&self, id: u32) -> Option<&str> {
        self.names.functions.get(&id).map(String::as_str)
    }

    /// The settings of a revision of a function, if the table has its definition.
    pub fn settings(&self, function: u32, revision: u32) -> Option<&Settings> {
        self.names.definitions.settings(function, revision)
    }

    /// A position at or before that of an event: reading on from there finds it within 64 entries.
    pub fn position_near(&self, row: u32) -> u64 {
        match row.checked_sub(self.first_regular()) {
            Some(regular) => self.positions[self.positions.partition_point(|(row, _)| *row <= regular) - 1].1,
            None => self.carried_positions[row as usize],
        }
    }

    /// The logs to which the runs of a function have appended.
    pub fn targets(&self, function: u32) -> impl Iterator<Item = u32> + '_ {
        self.targets.get(&function).into_iter().flatten().copied()
    }

    fn find_targets(&self) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut targets: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut last = None;
        for (row, event) in self.rows.iter().enumerate().filter(|(_, event)| event.is(Kind::Append)) {
            let Some(run) = self.run_of(row as u32) else { continue };
            let pair = (self.row(run).subject, event.subject);
            if last != Some(pair) {
                targets.entry(pair.0).or_default().insert(pair.1);
                last = Some(pair);
            }
        }
        targets
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.spans.capacity() * size_of::<Span>()
            + (self.carried.capacity() + self.foreign.capacity()) * 16
            + self.reads.capacity()
            + self.positions.capacity() * 16
            + self.carried_positions.capacity() * 8
            + self.logs.values().map(LogRows::bytes).sum::<usize>()
    }
}
