//! The payloads of a run's entries, and the extension that any entry may have before its own. Each is a [`Map`]; its keys are defined here
//! and in `spec/formats/journal.md`, nowhere else.

use super::{
    Kind, Position, ReplaySeed,
    keyed::KeyedRead,
    map::{self, Fields, Map, int, push, push_varint, varint},
    row::Row,
};
use millrace_wire::{EventId, Headers, Hlc};

pub(super) mod key {
    use super::map::IGNORABLE;

    pub const OPEN_DISCARDED: u8 = 1;
    pub const OPEN_REPLAY_SEED: u8 = 2;

    pub const TRIGGER_LOG: u8 = 1;
    pub const TRIGGER_SEQNO: u8 = 2;

    pub const FIRED_REVISION: u8 = 1;
    pub const FIRED_INTERRUPTED: u8 = 2;
    pub const FIRED_PLACE: u8 = 3;
    pub const FIRED_WAITS: u8 = 4;
    pub const FIRED_BEFORE: u8 = 5;
    pub const FIRED_BEGUN: u8 = 6;
    pub const FIRED_STREAMED: u8 = 7;

    pub const READ_ROWS: u8 = 1;
    pub const READ_KEYED: u8 = 2;

    pub const DONE_OUTCOME: u8 = 1;
    pub const DONE_EFFECTS: u8 = 2;
    pub const DONE_FIRED: u8 = 3;
    pub const DONE_CODE: u8 = 4;
    pub const DONE_ERROR: u8 = 5;
    pub const DONE_OUTPUT: u8 = 6;
    /// Versions that do not know results ignore them.
    pub const DONE_RESULT: u8 = IGNORABLE | 7;

    pub const EXTENSION_ID: u8 = 1;
    pub const EXTENSION_POSITION: u8 = 2;
    pub const EXTENSION_REPAIR: u8 = 3;
    pub const EXTENSION_ORIGIN: u8 = 4;
    pub const EXTENSION_CLOCK: u8 = 5;
    pub const EXTENSION_VOID: u8 = 6;
    pub const EXTENSION_PLACE: u8 = 7;
    pub const EXTENSION_KEY: u8 = 8;
    pub const EXTENSION_OPERATION: u8 = 9;
    pub const EXTENSION_EXPIRY: u8 = 10;
    pub const EXTENSION_PREVIOUS: u8 = 11;
    pub const EXTENSION_AMOUNT: u8 = 12;
    /// Readers that do not know it take the copy for what it was.
    pub const EXTENSION_SUPERSEDED: u8 = IGNORABLE | 8;
    pub const EXTENSION_DEVICE_ID: u8 = 13;
    pub const EXTENSION_DEVICE_CLOCK: u8 = 14;
    pub const EXTENSION_DEVICE_TIME: u8 = 16;
    /// Readers that do not know it take the record for a change like any other.
    pub const EXTENSION_RESTATES: u8 = IGNORABLE | 9;
    /// Readers that do not know headers give the record without them.
    pub const EXTENSION_HEADERS: u8 = IGNORABLE | 15;

    pub const GENERATION_REPAIR: u8 = 1;
    pub const GENERATION_ROWS: u8 = 2;
}

/// The keys that this version knows in the payload of a kind; `None` if the payload is no map.
pub(crate) fn known_keys(kind: Kind) -> Option<&'static [u8]> {
    match kind {
        Kind::Open | Kind::Trigger => Some(&[1, 2]),
        Kind::Fired => Some(&[1, 2, 3, 4, 5, 6, 7]),
        Kind::Read => Some(&[1, 2]),
        Kind::Generation => Some(&[1, 2]),
        Kind::Done => Some(&[1, 2, 3, 4, 5, 6]),
        _ => None,
    }
}

/// The keys that this version knows in an extension.
pub(crate) const EXTENSION_KEYS: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16];
/// The fields that a copy adds.
const COPY_KEYS: [u8; 2] = [key::EXTENSION_ID, key::EXTENSION_POSITION];
/// Bytes of the longest extension that this version writes by itself: its length, an id, a position; the repair, the origin's id, its
/// clock, whether it is void, and the origin's position; the id and clock in a device, and the time there.
pub(crate) const CARRIED_MAX_BYTES: usize =
    2 + (2 + 16) + (2 + 8) + (2 + 8) + (2 + 16) + (2 + 8) + 2 + (2 + 8) + (2 + 16) + 2 * (2 + 8);

/// The payload of an OPEN: how many bytes recovery discarded, and the replay seed, in case the manifest is lost.
pub(crate) fn open(discarded_bytes: u64, seed: ReplaySeed) -> Vec<u8> {
    let mut payload = Fields::default().int(key::OPEN_DISCARDED, discarded_bytes).bytes().to_vec();
    push(&mut payload, key::OPEN_REPLAY_SEED, seed.bytes());
    payload
}

/// The replay seed that the payload of an OPEN holds.
pub(crate) fn replay_seed(payload: &[u8]) -> Option<ReplaySeed> {
    let seed = Map::parse(payload)?.get(key::OPEN_REPLAY_SEED)?;
    seed.try_into().ok().map(ReplaySeed)
}

/// The payload of an OPEN for readers that must not see the replay seed.
pub(crate) fn open_without_seed(payload: &[u8]) -> Vec<u8> {
    let mut shown = Vec::new();
    let fields = Map::parse(payload).unwrap_or_default().fields().filter(|(key, _)| *key != key::OPEN_REPLAY_SEED);
    fields.for_each(|(key, value)| push(&mut shown, key, value));
    shown
}

/// A run: the id of its TRIGGER, and its number among the runs of its function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The id of its TRIGGER.
    pub id: EventId,
    /// The number of its TRIGGER.
    pub number: u64,
}

/// Why a run is to be: the ordinal of its TRIGGER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum Origin {
    /// Its function is bound to the record's log.
    #[default]
    Bound = 0,
    /// The append of the record named the function.
    Named = 1,
    /// A dead letter is run again; the cause is the letter's APPEND.
    Retry = 2,
    /// The function is run on a record that was there before.
    Backfill = 3,
    /// A repair inserted it.
    Inserted = 4,
}

/// The payload of a TRIGGER: the record that was its cause when it was appended. It is a hint; the cause itself is authoritative.
pub(crate) fn trigger(log: u32, seqno: u64) -> Fields {
    Fields::default().int(key::TRIGGER_LOG, log.into()).int(key::TRIGGER_SEQNO, seqno)
}

/// The record that the payload of a TRIGGER names: log id and seqno.
pub fn trigger_record(payload: &[u8]) -> Option<(u32, u64)> {
    let (mut log, mut seqno) = (0, 0);
    for (key, value) in Map::parse(payload)?.fields() {
        match key {
            key::TRIGGER_LOG => log = int(value).unwrap_or(0),
            key::TRIGGER_SEQNO => seqno = int(value).unwrap_or(0),
            _ => {}
        }
    }
    Some((u32::try_from(log).ok()?, seqno))
}

/// The payload of a FIRED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1 on: the ordinal of the FIRED.
    pub attempt: u32,
    /// How many of the attempts up to this one were cut short by the end of their host.
    pub interrupted: u32,
    /// The revision of the function's definition that runs.
    pub revision: u32,
    /// How many runs of the same claim go before it.
    pub place: u32,
    /// Whether the attempt is over and the run waits for its next one.
    pub waits: bool,
    /// The sequence of the run's FIRED before this one, as it was first written; 0 if this is the first.
    pub before: u64,
    /// Of a run that waits, the highest number that an attempt at it had; 0 if that is the number of this one.
    pub begun: u32,
    /// Whether what the run leaves is published as it goes, not with its end.
    pub streamed: bool,
}

impl Attempt {
    pub(crate) fn fields(&self) -> Fields {
        Fields::default()
            .int(key::FIRED_REVISION, self.revision.into())
            .int(key::FIRED_INTERRUPTED, self.interrupted.into())
            .int(key::FIRED_PLACE, self.place.into())
            .flag(key::FIRED_WAITS, self.waits)
            .int(key::FIRED_BEFORE, self.before)
            .int(key::FIRED_BEGUN, self.begun.into())
            .flag(key::FIRED_STREAMED, self.streamed)
    }

    /// Decodes the FIRED of this ordinal and payload.
    pub fn decode(ordinal: u16, payload: &[u8]) -> Self {
        let mut attempt = Self { attempt: ordinal.into(), ..Self::default() };
        let small = |value| u32::try_from(int(value).unwrap_or(0)).unwrap_or(u32::MAX);
        for (key, value) in Map::parse(payload).unwrap_or_default().fields() {
            match key {
                key::FIRED_REVISION => attempt.revision = small(value),
                key::FIRED_INTERRUPTED => attempt.interrupted = small(value),
                key::FIRED_PLACE => attempt.place = small(value),
                key::FIRED_WAITS => attempt.waits = true,
                key::FIRED_BEFORE => attempt.before = int(value).unwrap_or(0),
                key::FIRED_BEGUN => attempt.begun = small(value),
                key::FIRED_STREAMED => attempt.streamed = true,
                _ => {}
            }
        }
        attempt
    }
}

/// The ordinal of a DONE whose number says nothing of how many have ended.
const ENDED_UNTOLD: i16 = i16::MIN;

/// The ordinal of a DONE: how far the number of its run is ahead of how many runs of its function had ended with it.
pub(crate) fn ended_ordinal(number: u64, ended: Option<u64>) -> u16 {
    let ahead = ended.and_then(|ended| i16::try_from(number.wrapping_sub(ended) as i64).ok());
    ahead.unwrap_or(ENDED_UNTOLD) as u16
}

/// How many runs of a function had ended with the one of this number, as the ordinal of its DONE says.
pub(crate) fn ended(number: u64, ordinal: u16) -> Option<u64> {
    let ahead = ordinal as i16;
    (ahead != ENDED_UNTOLD).then(|| number.wrapping_sub(i64::from(ahead) as u64))
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Its function did what it does.
    #[default]
    Done,
    /// It was given up.
    Dead,
    /// It was cancelled before its function ended.
    Cancelled,
}

/// The end of a run, from its DONE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End<'b> {
    /// How it ended.
    pub outcome: Outcome,
    /// How many entries before the DONE, in its batch, are what the run leaves.
    pub effects: u64,
    /// The sequence of its last FIRED; 0 if it has none.
    pub fired: u64,
    /// The code of the error for which it was given up.
    pub code: &'b str,
    /// The description of the error.
    pub error: &'b str,
    /// Its output.
    pub output: &'b str,
    /// Its result: a byte that says what it is, and its bytes; empty if it has none.
    pub result: &'b [u8],
}

impl<'b> End<'b> {
    /// The payload; no allocation unless there is text in it.
    pub(crate) fn encode(&self) -> (Fields, Vec<u8>) {
        let outcome = match self.outcome {
            Outcome::Done => 0,
            Outcome::Dead => 1,
            Outcome::Cancelled => 2,
        };
        let numbers = Fields::default()
            .int(key::DONE_OUTCOME, outcome)
            .int(key::DONE_EFFECTS, self.effects)
            .int(key::DONE_FIRED, self.fired);
        let texts = [(key::DONE_CODE, self.code), (key::DONE_ERROR, self.error), (key::DONE_OUTPUT, self.output)];
        let mut bytes = Vec::new();
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            push(&mut bytes, key, text.as_bytes());
        }
        if !self.result.is_empty() {
            push(&mut bytes, key::DONE_RESULT, self.result);
        }
        (numbers, bytes)
    }

    /// The payload of a DONE.
    pub fn decode(payload: &'b [u8]) -> Self {
        let mut end = Self::default();
        let text = |value| std::str::from_utf8(value).unwrap_or("");
        for (key, value) in Map::parse(payload).unwrap_or_default().fields() {
            match key {
                key::DONE_OUTCOME => {
                    end.outcome = match int(value) {
                        None | Some(0) => Outcome::Done,
                        Some(2) => Outcome::Cancelled,
                        Some(_) => Outcome::Dead,
                    }
                }
                key::DONE_EFFECTS => end.effects = int(value).unwrap_or(0),
                key::DONE_FIRED => end.fired = int(value).unwrap_or(0),
                key::DONE_CODE => end.code = text(value),
                key::DONE_ERROR => end.error = text(value),
                key::DONE_OUTPUT => end.output = text(value),
                key::DONE_RESULT => end.result = value,
                _ => {}
            }
        }
        end
    }
}

/// The reads of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Records: they were there.
    Record,
    /// The newest seqno, which was this.
    Latest,
    /// Records that were not there yet.
    Absent,
    /// Records that were no longer kept.
    BelowHistory,
    /// A refused read, with the number of the reason.
    Refused(u16),
}

const ROW_WHAT: u8 = 0x0F;
/// The row names a log that did not exist instead of giving the id of one.
const ROW_NAMED: u8 = 0x10;
/// The row is of more than one record.
const ROW_COUNTED: u8 = 0x20;

/// The log that a run read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom<'b> {
    /// One that there was.
    Log(u32),
    /// The name that there was no log of.
    Name(&'b str),
}

/// One row of a READ: adjoining records of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRow<'b> {
    /// Where they were read from.
    pub log: ReadFrom<'b>,
    /// The first seqno.
    pub from: u64,
    /// How many, at least 1.
    pub count: u64,
    /// The result.
    pub what: What,
}

/// The READ of a run in the making: all that one attempt read, in one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    rows: Vec<u8>,
    /// Rows that can become longer, the oldest first.
    open: Vec<(u32, u64, u64, What)>,
    keyed: Vec<u8>,
}

/// Rows that reads can continue, at most: a run that reads several logs side by side has one for each.
const OPEN_ROWS_MAX: usize = 64;
/// The most bytes that the row of a log takes.
const ROW_MAX_BYTES: usize = 1 + 5 + 10 + 10 + 3;

impl Reads {
    /// Notes a read of one record of a log. One behind or before the records of a row of this log goes into that row.
    pub fn log(&mut self, log: u32, seqno: u64, what: What) {
        let rows = self.open.iter_mut().rev().filter(|(of, .., before)| (*of, *before) == (log, what));
        for (_, from, count, _) in rows.filter(|_| what != What::Latest) {
            if *from + *count == seqno {
                *count += 1;
                return;
            }
            if seqno.checked_add(1) == Some(*from) {
                (*from, *count) = (seqno, *count + 1);
                return;
            }
        }
        if self.open.len() == OPEN_ROWS_MAX {
            self.close(1);
        }
        self.open.push((log, seqno, 1, what));
    }

    /// Notes a read of several records of a log, as one row.
    pub fn range(&mut self, log: u32, from: u64, count: u64, what: What) {
        if self.open.len() == OPEN_ROWS_MAX {
            self.close(1);
        }
        self.open.push((log, from, count, what));
    }

    /// Notes that there was no log of this name.
    pub fn name(&mut self, name: &str, seqno: u64, what: What) {
        self.close(OPEN_ROWS_MAX);
        push_row(&mut self.rows, ReadRow { log: ReadFrom::Name(name), from: seqno, count: 1, what });
    }

    /// Notes a read of a table.
    pub fn keyed(&mut self, read: &KeyedRead<'_>) {
        read.push(&mut self.keyed);
    }

    /// How many bytes the rows take so far, at most.
    pub fn bytes(&self) -> usize {
        self.rows.len() + self.open.len() * ROW_MAX_BYTES + self.keyed.len()
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.open.is_empty() && self.keyed.is_empty()
    }

    /// Ends the oldest rows.
    fn close(&mut self, rows: usize) {
        for (log, from, count, what) in self.open.drain(..rows.min(self.open.len())) {
            push_row(&mut self.rows, ReadRow { log: ReadFrom::Log(log), from, count, what });
        }
    }

    pub(crate) fn encode(mut self) -> Vec<u8> {
        self.close(OPEN_ROWS_MAX);
        let mut payload = Vec::with_capacity(self.rows.len() + 4);
        push(&mut payload, key::READ_ROWS, &self.rows);
        if !self.keyed.is_empty() {
            push(&mut payload, key::READ_KEYED, &self.keyed);
        }
        payload
    }

    /// The rows that the payload of a READ holds, up to the first that is none.
    pub fn decode(payload: &[u8]) -> impl Iterator<Item = ReadRow<'_>> {
        let mut rest = Map::parse(payload).and_then(|map| map.get(key::READ_ROWS)).unwrap_or(&[]);
        std::iter::from_fn(move || {
            let (row, behind) = row(rest)?;
            rest = behind;
            Some(row)
        })
    }
}

fn push_row(rows: &mut Vec<u8>, row: ReadRow<'_>) {
    let (what, code) = match row.what {
        What::Record => (0, None),
        What::Latest => (1, None),
        What::Absent => (2, None),
        What::BelowHistory => (3, None),
        What::Refused(code) => (4, Some(code)),
    };
    let named = if matches!(row.log, ReadFrom::Name(_)) { ROW_NAMED } else { 0 };
    let counted = if row.count != 1 { ROW_COUNTED } else { 0 };
    rows.push(what | named | counted);
    match row.log {
        ReadFrom::Log(id) => push_varint(rows, id.into()),
        ReadFrom::Name(name) => {
            push_varint(rows, name.len() as u64);
            rows.extend_from_slice(name.as_bytes());
        }
    }
    push_varint(rows, row.from);
    if counted != 0 {
        push_varint(rows, row.count);
    }
    if let Some(code) = code {
        push_varint(rows, code.into());
    }
}

fn row(bytes: &[u8]) -> Option<(ReadRow<'_>, &[u8])> {
    let (head, rest) = bytes.split_first()?;
    let (log, rest) = varint(rest, 10)?;
    let (log, rest) = if head & ROW_NAMED == 0 {
        (ReadFrom::Log(u32::try_from(log).ok()?), rest)
    } else {
        let (name, rest) = rest.split_at_checked(usize::try_from(log).ok()?)?;
        (ReadFrom::Name(std::str::from_utf8(name).ok()?), rest)
    };
    let (from, rest) = varint(rest, 10)?;
    let (count, rest) = if head & ROW_COUNTED == 0 { (1, rest) } else { varint(rest, 10)? };
    let (what, rest) = match head & ROW_WHAT {
        0 => (What::Record, rest),
        1 => (What::Latest, rest),
        2 => (What::Absent, rest),
        3 => (What::BelowHistory, rest),
        4 => {
            let (code, rest) = varint(rest, 3)?;
            (What::Refused(u16::try_from(code).ok()?), rest)
        }
        _ => return None,
    };
    Some((ReadRow { log, from, count, what }, rest))
}

/// Splits the extension off a payload; `None` if the payload begins with none.
pub(crate) fn split_extension(payload: &[u8]) -> Option<(Map<'_>, &[u8])> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    let (extension, payload) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    Some((Map::parse(extension)?, payload))
}

/// The id and position that the original of a carried entry had.
pub(crate) fn original(extension: Map<'_>) -> Option<(EventId, u64)> {
    let id = extension.get(key::EXTENSION_ID)?.try_into().ok()?;
    Some((EventId::from_bits(u128::from_le_bytes(id)), extension.int(key::EXTENSION_POSITION)?))
}

/// The headers of a record.
#[inline]
pub(crate) fn headers(extension: Map<'_>) -> Headers {
    extension.get(key::EXTENSION_HEADERS).and_then(Headers::read).unwrap_or_default()
}

/// The extension of an APPEND with these headers.
pub(crate) fn headers_extension(headers: &Headers) -> Vec<u8> {
    let mut map = Vec::with_capacity(headers.bytes().len() + 8);
    push(&mut map, key::EXTENSION_HEADERS, headers.bytes());
    with_length(&map)
}

/// The extension of a copy of an entry: its own, and that of the original; `superseded` if the key of a table has another version now.
pub(crate) fn carried_extension(id: EventId, position: u64, of_original: &[u8], superseded: bool) -> Vec<u8> {
    let mut bytes = vec![0; 2];
    let (mut extension, position) =
        (Vec::with_capacity(CARRIED_MAX_BYTES), Fields::default().int(key::EXTENSION_POSITION, position));
    push(&mut extension, key::EXTENSION_ID, &id.get().to_le_bytes());
    extension.extend_from_slice(position.bytes());
    let more = Map::parse(of_original).unwrap_or_default().fields();
    let mut more: Vec<(u8, &[u8])> = more.filter(|(key, _)| !COPY_KEYS.contains(key)).collect();
    if superseded && more.iter().all(|(key, _)| *key != key::EXTENSION_SUPERSEDED) {
        more.push((key::EXTENSION_SUPERSEDED, &[]));
        more.sort_by_key(|(key, _)| *key);
    }
    more.into_iter().for_each(|(key, value)| push(&mut extension, key, value));
    bytes.copy_from_slice(&(extension.len() as u16).to_le_bytes()); // It was one of at most that length, and grew by few bytes.
    bytes.extend_from_slice(&extension);
    bytes
}

/// The extension without what a copy adds.
pub(crate) fn own_extension(extension: Map<'_>) -> Vec<u8> {
    let mut own = Vec::new();
    let fields = extension.fields().filter(|(key, _)| !COPY_KEYS.contains(key));
    fields.for_each(|(key, value)| push(&mut own, key, value));
    own
}

/// The slot of a log that an entry of a repair replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The repair, by its number.
    pub repair: u64,
    /// The id of the entry that the slot was made for.
    pub origin: EventId,
    /// The clock of that one.
    pub clock: Hlc,
    /// Where that one was written.
    pub position: Position,
    /// Whether the slot no longer has a record.
    pub void: bool,
}

impl Replaced {
    /// The extension of an APPEND with this, and with what the record of a table does to its key.
    pub(crate) fn extension(&self, row: Option<&Row<'_>>) -> Vec<u8> {
        let mut map = Fields::default().int(key::EXTENSION_REPAIR, self.repair).bytes().to_vec();
        push(&mut map, key::EXTENSION_ORIGIN, &self.origin.get().to_le_bytes());
        map.extend_from_slice(Fields::default().int(key::EXTENSION_CLOCK, self.clock.get()).bytes());
        if self.void {
            push(&mut map, key::EXTENSION_VOID, &[]);
        }
        map.extend_from_slice(Fields::default().int(key::EXTENSION_PLACE, self.position.0).bytes());
        map.extend(row.into_iter().flat_map(Row::fields));
        with_length(&map)
    }
}

/// The extension of what else a repair writes.
pub(crate) fn repair_extension(repair: u64) -> Vec<u8> {
    with_length(Fields::default().int(key::EXTENSION_REPAIR, repair).bytes())
}

pub(super) fn with_length(map: &[u8]) -> Vec<u8> {
    let mut bytes = (map.len() as u16).to_le_bytes().to_vec(); // at most a key and some 120 bytes
    bytes.extend_from_slice(map);
    bytes
}

/// The slot that an entry replaces, from its extension. A slot whose record a device no longer had is void from the beginning, without a
/// repair.
pub(crate) fn replaced(extension: Map<'_>) -> Option<Replaced> {
    let is_missing = extension.get(key::EXTENSION_REPAIR).is_none() && extension.get(key::EXTENSION_VOID).is_some();
    let origin = match extension.get(key::EXTENSION_ORIGIN) {
        None if is_missing => [0; 16],
        origin => origin?.try_into().ok()?,
    };
    Some(Replaced {
        repair: extension.int(key::EXTENSION_REPAIR).or(is_missing.then_some(0))?,
        origin: EventId::from_bits(u128::from_le_bytes(origin)),
        clock: Hlc::from_bits(extension.int(key::EXTENSION_CLOCK).unwrap_or(0)),
        void: extension.get(key::EXTENSION_VOID).is_some(),
        position: Position(extension.int(key::EXTENSION_PLACE).unwrap_or(0)),
    })
}

/// The repair that an extension names.
pub(crate) fn repair_of(extension: Map<'_>) -> Option<u64> {
    extension.int(key::EXTENSION_REPAIR)
}

/// Bytes of the rows of one GENERATION, at most; it is somewhat longer.
const GENERATION_ROWS_BYTES: usize = 64 << 10;

/// The payloads of the GENERATIONs that give slots, as log, seqno and position, to a repair.
pub(crate) fn generations(repair: u64, rows: &[(u32, u64, u64)]) -> Vec<Vec<u8>> {
    let of_rows = |rows: &[u8]| {
        let mut payload = Fields::default().int(key::GENERATION_REPAIR, repair).bytes().to_vec();
        push(&mut payload, key::GENERATION_ROWS, rows);
        payload
    };
    let (mut payloads, mut bytes) = (Vec::new(), Vec::new());
    for (log, seqno, position) in rows {
        push_varint(&mut bytes, (*log).into());
        push_varint(&mut bytes, *seqno);
        push_varint(&mut bytes, position / super::ALIGN_BYTES);
        if bytes.len() >= GENERATION_ROWS_BYTES {
            payloads.push(of_rows(&bytes));
            bytes.clear();
        }
    }
    if !bytes.is_empty() || payloads.is_empty() {
        payloads.push(of_rows(&bytes));
    }
    payloads
}

/// The repair that the payload of a GENERATION names.
pub(crate) fn generation_repair(payload: &[u8]) -> Option<u64> {
    Map::parse(payload)?.int(key::GENERATION_REPAIR)
}

/// The rows that the payload of a GENERATION holds, up to the first that is none.
pub(crate) fn generation_rows(payload: &[u8]) -> impl Iterator<Item = (u32, u64, u64)> {
    let mut rest = Map::parse(payload).and_then(|map| map.get(key::GENERATION_ROWS)).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let (log, behind) = varint(rest, 10)?;
        let (seqno, behind) = varint(behind, 10)?;
        let (position, behind) = varint(behind, 10)?;
        rest = behind;
        Some((u32::try_from(log).ok()?, seqno, position.checked_mul(super::ALIGN_BYTES)?))
    })
}

const _: () = assert!(key::EXTENSION_ID < key::EXTENSION_POSITION && key::EXTENSION_POSITION < map::IGNORABLE);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rest of 80 bytes, the size of an entry with a full header whose payload takes one unit.
    const UNIT: usize = 16;

    #[test]
    fn the_payloads_of_a_plain_run_take_one_unit() {
        assert!(trigger(u32::MAX, u64::MAX).bytes().len() <= UNIT);
        let (attempt, revision) = (60_000, 1 << 23);
        let attempt = Attempt { attempt, interrupted: 8, revision, place: 63, waits: true, ..Attempt::default() };
        assert!(attempt.fields().bytes().len() <= UNIT);
        let end = End { effects: 1 << 31, fired: EventId::SEQUENCE_MAX, ..End::default() };
        assert!(end.encode().0.bytes().len() <= UNIT && end.encode().1.is_empty());
        let mut reads = Reads::default();
        reads.log(1 << 13, 1 << 41, What::Record);
        assert!(reads.encode().len() <= UNIT);
    }

    #[test]
    fn adjoining_reads_share_a_row() {
        let mut reads = Reads::default();
        for (seqno, what) in
            [(3, What::Record), (4, What::Record), (5, What::Absent), (5, What::Latest), (6, What::Latest)]
        {
            reads.log(1, seqno, what);
        }
        reads.name("gone", 7, What::Refused(2104));
        let payload = reads.encode();
        let log = ReadFrom::Log(1);
        let rows: Vec<ReadRow<'_>> = Reads::decode(&payload).collect();
        assert_eq!(
            rows,
            [
                ReadRow { log, from: 3, count: 2, what: What::Record },
                ReadRow { log, from: 5, count: 1, what: What::Absent },
                ReadRow { log, from: 5, count: 1, what: What::Latest },
                ReadRow { log, from: 6, count: 1, what: What::Latest },
                ReadRow { log: ReadFrom::Name("gone"), from: 7, count: 1, what: What::Refused(2104) },
            ]
        );
    }

    #[test]
    fn logs_that_are_read_side_by_side_have_a_row_each() {
        let mut reads = Reads::default();
        for seqno in 1..=1000 {
            (1..=20).for_each(|log| reads.log(log, seqno, What::Record));
            reads.log(21, 2001 - seqno, What::Record);
        }
        let payload = reads.encode();
        let rows: Vec<_> = Reads::decode(&payload).map(|row| (row.log, row.from, row.count)).collect();
        let mut expected: Vec<_> = (1..=20).map(|log| (ReadFrom::Log(log), 1, 1000)).collect();
        expected.push((ReadFrom::Log(21), 1001, 1000));
        assert_eq!(rows, expected);
        // No order of reads loses one.
        let mut reads = Reads::default();
        let noted: Vec<(u32, u64)> = (0..5000u64).map(|n| ((n % 100) as u32, n * 7919 % 5000 + 1)).collect();
        noted.iter().for_each(|(log, seqno)| reads.log(*log, *seqno, What::Record));
        assert!(reads.bytes() >= reads.clone().encode().len() - 8);
        let payload = reads.encode();
        let mut all: Vec<(u32, u64)> = Reads::decode(&payload)
            .flat_map(|row| {
                let ReadFrom::Log(log) = row.log else { panic!("all were of logs") };
                (row.from..row.from + row.count).map(move |seqno| (log, seqno))
            })
            .collect();
        let mut noted = noted;
        all.sort_unstable();
        noted.sort_unstable();
        assert_eq!(all, noted);
    }

    proptest! {
        #[test]
        fn an_attempt_comes_back(
            attempt: u16,
            numbers: (u32, u32, u32, u32),
            flags: (bool, bool),
            before: u64,
        ) {
            let ((interrupted, revision, place, begun), (waits, streamed)) = (numbers, flags);
            let made =
                Attempt { attempt: attempt.into(), interrupted, revision, place, waits, before, begun, streamed };
            prop_assert_eq!(Attempt::decode(attempt, made.fields().bytes()), made);
        }

        #[test]
        fn an_end_comes_back(
            effects: u64,
            fired: u64,
            error in ".{0,40}",
            output in ".{0,300}",
            result in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let (outcome, code, error, output) = (Outcome::Dead, "MR2105", &*error, &*output);
            let made = End { outcome, effects, fired, code, error, output, result: &result };
            let (numbers, texts) = made.encode();
            let payload = [numbers.bytes(), &texts].concat();
            prop_assert_eq!(End::decode(&payload), made);
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..60), ordinal: u16) {
            let _ = (Attempt::decode(ordinal, &bytes), End::decode(&bytes), trigger_record(&bytes));
            let _ = (Reads::decode(&bytes).count(), row(&bytes), split_extension(&bytes));
        }

        #[test]
        fn a_copy_keeps_what_the_original_said(id: u128, position in 1u64.., key in 3u8.., value in proptest::collection::vec(any::<u8>(), 0..20)) {
            let mut own = Vec::new();
            push(&mut own, key, &value);
            let id = EventId::from_bits(id);
            let bytes = [carried_extension(id, position, &own, false), b"payload".to_vec()].concat();
            let (extension, payload) = split_extension(&bytes).unwrap();
            prop_assert_eq!(original(extension), Some((id, position)));
            prop_assert_eq!((own_extension(extension), payload), (own, &b"payload"[..]));
        }
    }
}
