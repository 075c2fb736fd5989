//! Which runs a change in the past reaches.
//!
//! One pass over the events in the order of the journal. The reads of a run precede its appends, so when the pass meets an append, it
//! already knows whether the run was reached. A run is reached in one of two ways:
//!
//! * It *will* have to be replayed if a value that it used changes: its record, or a record that it read.
//! * It *may* have to be if only a number can change: earlier runs may append more or fewer records than they did, which changes the
//!   numbers of later records, and which record is the newest. The pass assumes that a function appends to no other logs than before. Most
//!   functions append as many records as they did, and then none of these runs is replayed.
//!
//! A run that appended nothing is reached like any other: with other values it may append something.

use crate::{
    event::KeyedEvent,
    index::IdMap,
    row::{KeyedRead, Row},
    table::{Origin, Table},
};
use millrace_journal::{Kind, Outcome, What};
use millrace_wire::{Code, EventId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The change of the past.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Rows of records that get other values.
    pub records: HashSet<u32>,
    /// Events elsewhere that change: what they cause here does, too.
    pub seeds: HashSet<EventId>,
    /// Functions that get other code, each from an event on: its attempts from this row on used the wrong one.
    pub functions: HashMap<u32, u32>,
}

/// How sure it is that a run has to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A value that it used changes.
    Will,
    /// Only numbers that it saw can change.
    May,
}

/// Why a run is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its function gets other code.
    Code,
    /// Its record is corrected.
    RecordCorrected,
    /// It read a corrected record.
    ReadCorrected,
    /// Its record is one that another run rewrites.
    RecordRewritten,
    /// It read a record that another run rewrites.
    ReadRewritten,
    /// It runs a dead letter again, and the letter changes.
    LetterRewritten,
    /// The number of its record can change.
    NumberMoves,
    /// The newest record of a log that it read, or the set of its records, can change.
    CountMoves,
}

impl Reason {
    /// Its name in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::RecordCorrected => "record-corrected",
            Self::ReadCorrected => "read-corrected",
            Self::RecordRewritten => "record-rewritten",
            Self::ReadRewritten => "read-rewritten",
            Self::LetterRewritten => "letter-rewritten",
            Self::NumberMoves => "number-moves",
            Self::CountMoves => "count-moves",
        }
    }
}

/// Why a run that is reached is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kept {
    /// It has effects outside that would happen twice.
    External,
    /// It publishes as it goes, and is not replayed so far.
    Streamed,
    /// The code that it ran, or the definition of that revision, is gone.
    NoCode,
    /// A secret that its revision is given is gone.
    NoSecret,
    /// Its attempts are no longer in the journal.
    NoAttempt,
    /// A person cancelled it.
    Cancelled,
    /// It ran on a device, and no code is known that does the same.
    NoTwin,
}

impl Kept {
    /// Its name in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Streamed => "streamed",
            Self::NoCode => "no-code",
            Self::NoSecret => "no-secret",
            Self::NoAttempt => "no-attempt",
            Self::Cancelled => "cancelled",
            Self::NoTwin => "no-twin",
        }
    }

    /// Whether a repair would stop at such a run. Of the others, what they left stays.
    pub fn stops(self) -> bool {
        !matches!(self, Self::External | Self::Cancelled | Self::NoTwin)
    }
}

/// The last attempt at a run: a replay uses the code and the settings that it ran with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempted {
    /// The function.
    pub function: u32,
    /// The revision of its definition.
    pub revision: u32,
    /// The sequence of the FIRED.
    pub sequence: u64,
    /// Whether the change gives it other code.
    pub has_other_code: bool,
    /// Whether each of its appends was published at once.
    pub is_streamed: bool,
}

/// A run that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The row of its TRIGGER.
    pub run: u32,
    /// How sure it is.
    pub class: Class,
    /// Why: of several reasons, the first that was met.
    pub reason: Reason,
    /// The log of the record through which it is reached; 0 if there is none.
    pub log: u32,
    /// The record's number in it.
    pub seqno: u64,
    /// Whether it has not ended: it will use the new values by itself.
    pub pending: bool,
    /// Why it is not replayed, if it is not.
    pub kept: Option<Kept>,
    /// Its last attempt, if it is known.
    pub attempted: Option<Attempted>,
    /// How long its last attempt took, in microseconds.
    pub took_us: u64,
}

/// The changes of one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// How many records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first and the last of them.
    pub range: (u64, u64),
}

impl Rewritten {
    fn add(&mut self, record: &Row) {
        self.range = if self.records == 0 { (record.seqno, record.seqno) } else { (self.range.0, record.seqno) };
        self.records += 1;
        self.bytes += record.record_bytes();
    }
}

/// The runs and records that a change of the past reaches.
#[derive(Debug, Default)]
pub struct Discovery {
    /// The runs, in the order in which they are reached.
    pub candidates: Vec<Candidate>,
    /// By log: the records that are rewritten. A run that may be replayed counts in [`Discovery::may_rewrite`].
    pub rewrites: BTreeMap<u32, Rewritten>,
    /// By log: the records of runs that may be replayed.
    pub may_rewrite: BTreeMap<u32, Rewritten>,
    /// By log: records of runs that are reached and not replayed; they keep their values.
    pub stale: BTreeMap<u32, Rewritten>,
    /// Records from outside whose cause, as their client claims, changes.
    pub claims: Vec<u32>,
    /// Every record that changes: what peers received of them is a seed there.
    pub records: Vec<u32>,
    /// Records that come from elsewhere and change with their origin.
    pub seeded: u64,
}

impl Discovery {
    /// The records that are corrected, and those that are rewritten because of that: their log, and their seqno.
    pub fn changed<'t>(&self, table: &'t Table, changes: &Changes) -> impl Iterator<Item = (&'t str, u64)> {
        let rows: BTreeSet<u32> = self.records.iter().chain(&changes.records).copied().collect();
        rows.into_iter().filter_map(|row| {
            let Row { subject, seqno, .. } = table.row(row);
            Some((table.log_name(*subject)?, *seqno))
        })
    }
}

/// The runs that changes reach. `kept` is asked why a run is not replayed, if it is not.
pub fn discover(table: &Table, changes: &Changes, kept: &mut dyn FnMut(&Attempted) -> Option<Kept>) -> Discovery {
    let seeds: HashSet<u32> = table
        .foreign()
        .iter()
        .enumerate()
        .filter(|(_, id)| changes.seeds.contains(id))
        .map(|(at, _)| at as u32)
        .collect();
    let pass = Pass {
        table,
        changes,
        seeds,
        will: Bits::new(table.len()),
        may: Bits::new(table.len()),
        logs: IdMap::default(),
        runs: IdMap::default(),
        attempts: IdMap::default(),
        found: Discovery::default(),
    };
    pass.run(kept)
}

/// A bit for each row.
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    pub fn new(rows: u32) -> Self {
        Self(vec![0; rows as usize / 64 + 1])
    }

    #[inline]
    pub fn has(&self, row: u32) -> bool {
        self.0[row as usize / 64] >> (row % 64) & 1 != 0
    }

    #[inline]
    pub fn set(&mut self, row: u32) {
        self.0[row as usize / 64] |= 1 << (row % 64);
    }
}

/// The state of one log at a point of the pass.
#[derive(Default)]
struct LogState {
    /// Seqnos of records that change for certain, ascending, each with whether it is a correction.
    will: Vec<(u64, bool)>,
    /// Of those that may change.
    may: Vec<u64>,
    /// Whether runs before may have left more or fewer records.
    count_moves: bool,
    /// The first seqno whose record may have another number.
    moves_from: Option<u64>,
    /// Of a table: the hashes of keys with a record that changes, and how sure that is.
    keys: HashMap<u64, Class>,
    /// Those of them whose sums change until a value is put.
    sums: HashMap<u64, Class>,
}

impl LogState {
    /// A record of a key comes, which changes as said: returns whether it changes, as a sum may by itself.
    fn keyed(&mut self, key: &KeyedEvent, class: Option<Class>) -> Option<Class> {
        let sum = if key.is_sum { self.sums.get(&key.hash).copied() } else { None };
        let class = [class, sum].into_iter().flatten().min();
        match class {
            Some(class) => {
                let known = self.keys.entry(key.hash).or_insert(class);
                *known = class.min(*known);
                self.sums.insert(key.hash, class);
            }
            None if !key.is_sum => drop(self.sums.remove(&key.hash)),
            None => {}
        }
        class
    }
}

fn any_within(seqnos: &[u64], from: u64, count: u64) -> Option<u64> {
    let at = seqnos.partition_point(|seqno| *seqno < from);
    seqnos.get(at).copied().filter(|seqno| seqno - from < count)
}

struct Pass<'a> {
    table: &'a Table,
    changes: &'a Changes,
    seeds: HashSet<u32>,
    /// Records and runs that change for certain.
    will: Bits,
    may: Bits,
    logs: IdMap<LogState>,
    /// Candidates by the row of their TRIGGER.
    runs: IdMap<usize>,
    /// Attempts under way: the last, and its clock.
    attempts: IdMap<(Attempted, u64)>,
    found: Discovery,
}

impl Pass<'_> {
    fn run(mut self, kept: &mut dyn FnMut(&Attempted) -> Option<Kept>) -> Discovery {
        for number in 0..self.table.len() {
            let row = *self.table.row(number);
            if row.is(Kind::Append) {
                self.append(number, &row);
            } else if row.is(Kind::Trigger) {
                self.trigger(number, &row, kept);
            } else if row.is(Kind::Fired) {
                self.fired(number, &row, kept);
                if self.table.is_read(number) {
                    self.read(number, kept);
                }
            } else if row.is(Kind::Read) || row.is(Kind::Call) {
                self.read(number, kept);
            } else if row.is(Kind::Done) {
                self.done(number, &row);
            }
        }
        for candidate in &mut self.found.candidates {
            if candidate.pending {
                candidate.kept = None;
            }
        }
        self.found
    }

    /// How a run's effects change, if they do.
    fn changes_of(&self, run: u32) -> Option<Class> {
        let candidate = &self.found.candidates[*self.runs.get(&run)?];
        let is_replayed = candidate.kept.is_none() && self.attempts.contains_key(&run);
        is_replayed.then_some(candidate.class)
    }

    fn append(&mut self, number: u32, row: &Row) {
        let run = self.table.run_of(number);
        let is_seeded = match self.table.origin(number) {
            Origin::Foreign(id) => !row.claimed() && self.seeds.contains(&id),
            // A relay within the namespace has copied it.
            Origin::Row(cause) => !row.claimed() && self.table.row(cause).is(Kind::Append) && self.will.has(cause),
            _ => false,
        };
        let is_corrected = self.changes.records.contains(&number);
        let class = if is_corrected || is_seeded {
            self.found.seeded += u64::from(is_seeded);
            Some(Class::Will)
        } else {
            let class = run.and_then(|run| self.changes_of(run));
            if let Some(candidate) = run.filter(|_| class.is_none()).and_then(|run| self.runs.get(&run))
                && self.found.candidates[*candidate].class == Class::Will
            {
                self.found.stale.entry(row.subject).or_default().add(row);
            }
            class
        };
        if row.claimed()
            && let Origin::Row(cause) = self.table.origin(number)
            && self.will.has(cause)
        {
            self.found.claims.push(number);
        }
        let log = self.logs.entry(row.subject).or_default();
        let class = match self.table.key(number) {
            Some(key) => log.keyed(&key, class),
            None => class,
        };
        if log.count_moves && log.moves_from.is_none() {
            log.moves_from = Some(row.seqno);
        }
        match class {
            None => {}
            Some(Class::Will) => {
                log.will.push((row.seqno, is_corrected));
                self.will.set(number);
                self.found.records.push(number);
                if !is_corrected {
                    self.found.rewrites.entry(row.subject).or_default().add(row);
                }
            }
            Some(Class::May) => {
                log.may.push(row.seqno);
                self.may.set(number);
                self.found.may_rewrite.entry(row.subject).or_default().add(row);
            }
        }
    }

    fn trigger(&mut self, number: u32, row: &Row, kept: &mut dyn FnMut(&Attempted) -> Option<Kept>) {
        let Origin::Row(cause) = self.table.origin(number) else { return };
        let record = self.table.row(cause);
        let (log, seqno) = (record.subject, record.seqno);
        let is_retry = row.ordinal == millrace_journal::Origin::Retry as u16;
        if self.will.has(cause) {
            let reason = match (is_retry, self.changes.records.contains(&cause)) {
                (true, _) => Reason::LetterRewritten,
                (_, true) => Reason::RecordCorrected,
                (_, false) => Reason::RecordRewritten,
            };
            self.reach(number, Class::Will, reason, (log, seqno), kept);
        } else if self.may.has(cause) {
            self.reach(number, Class::May, Reason::RecordRewritten, (log, seqno), kept);
        } else if self.logs.get(&log).and_then(|log| log.moves_from).is_some_and(|from| seqno >= from) {
            self.reach(number, Class::May, Reason::NumberMoves, (log, seqno), kept);
        }
    }

    fn fired(&mut self, number: u32, row: &Row, kept: &mut dyn FnMut(&Attempted) -> Option<Kept>) {
        let Some(run) = self.table.run_of(number) else { return };
        if row.attempt().is_some_and(|(_, waits)| waits) {
            return;
        }
        let has_other_code = self.changes.functions.get(&row.subject).is_some_and(|since| number >= *since);
        let (function, revision) = (row.subject, row.attempt().map_or(0, |(revision, _)| revision));
        let (sequence, is_streamed) = (self.table.id(number).sequence(), row.is_streamed());
        let attempted = Attempted { function, revision, sequence, has_other_code, is_streamed };
        self.attempts.insert(run, (attempted, row.hlc().wall_us()));
        if let Some(at) = self.runs.get(&run) {
            let candidate = &mut self.found.candidates[*at];
            (candidate.kept, candidate.attempted) = (kept(&attempted), Some(attempted));
        }
        if has_other_code {
            self.reach(run, Class::Will, Reason::Code, (0, 0), kept);
        }
    }

    fn read(&mut self, number: u32, kept: &mut dyn FnMut(&Attempted) -> Option<Kept>) {
        let Some(run) = self.table.run_of(number) else { return };
        let mut reached: Option<(Class, Reason, (u32, u64))> = None;
        for read in self.table.reads(number) {
            let Some(log) = self.logs.get(&read.log) else { continue };
            let at = |seqno| (read.log, seqno);
            let next = match read.what {
                What::Record => {
                    let place = log.will.partition_point(|(seqno, _)| *seqno < read.from);
                    let will = log.will.get(place).filter(|(seqno, _)| seqno - read.from < read.count);
                    let last = read.from + (read.count - 1);
                    if let Some((seqno, is_corrected)) = will {
                        let reason = if *is_corrected { Reason::ReadCorrected } else { Reason::ReadRewritten };
                        Some((Class::Will, reason, at(*seqno)))
                    } else if let Some(seqno) = any_within(&log.may, read.from, read.count) {
                        Some((Class::May, Reason::ReadRewritten, at(seqno)))
                    } else {
                        let moved = log.moves_from.filter(|from| last >= *from);
                        moved.map(|_| (Class::May, Reason::NumberMoves, at(last)))
                    }
                }
                _ => log.count_moves.then_some((Class::May, Reason::CountMoves, at(read.from))),
            };
            if let Some(next) = next
                && reached.is_none_or(|reached| next.0 < reached.0)
            {
                reached = Some(next);
            }
        }
        for read in self.table.keyed_reads(number) {
            let (KeyedRead::Absent { log, .. } | KeyedRead::Range { log, .. }) = read;
            let Some(state) = self.logs.get(&log) else { continue };
            let class = match read {
                KeyedRead::Absent { hash, .. } => state.keys.get(&hash).copied(),
                KeyedRead::Range { .. } => state.keys.values().min().copied(),
            };
            let next = match class {
                Some(class) => Some((class, Reason::ReadRewritten, (log, 0))),
                None => state.count_moves.then_some((Class::May, Reason::CountMoves, (log, 0))),
            };
            if let Some(next) = next
                && reached.is_none_or(|reached| next.0 < reached.0)
            {
                reached = Some(next);
            }
        }
        if let Some((class, reason, at)) = reached {
            self.reach(run, class, reason, at, kept);
        }
    }

    fn done(&mut self, number: u32, row: &Row) {
        let Some(run) = self.table.run_of(number) else { return };
        let fired = self.attempts.remove(&run);
        let Some(at) = self.runs.get(&run).copied() else { return };
        let candidate = &mut self.found.candidates[at];
        candidate.pending = false;
        candidate.took_us = fired.map_or(0, |(_, fired)| row.hlc().wall_us().saturating_sub(fired));
        let was_cancelled = row.outcome().is_some_and(|(outcome, _)| outcome == Outcome::Cancelled);
        let is_given_up = |(_, code): (Outcome, u16)| Code::RunCancelled.id()[2..].parse() == Ok(code);
        if row.outcome().is_some_and(is_given_up) {
            candidate.kept = Some(Kept::Cancelled);
        }
        if fired.is_none() && candidate.kept.is_none() && !was_cancelled {
            candidate.kept = Some(Kept::NoAttempt);
        }
        if candidate.kept.is_none() {
            for log in self.table.targets(row.subject) {
                self.logs.entry(log).or_default().count_moves = true;
            }
        }
    }

    fn reach(
        &mut self,
        run: u32,
        class: Class,
        reason: Reason,
        (log, seqno): (u32, u64),
        kept: &mut dyn FnMut(&Attempted) -> Option<Kept>,
    ) {
        if let Some(at) = self.runs.get(&run) {
            let known = &mut self.found.candidates[*at];
            if class < known.class {
                (known.class, known.reason, known.log, known.seqno) = (class, reason, log, seqno);
            }
            return;
        }
        // If it has not begun yet, its attempts tell.
        let attempted = self.attempts.get(&run).map(|(attempted, _)| *attempted);
        let kept = attempted.as_ref().and_then(kept);
        self.runs.insert(run, self.found.candidates.len());
        let (pending, took_us) = (true, 0);
        self.found.candidates.push(Candidate { run, class, reason, log, seqno, pending, kept, attempted, took_us });
    }
}
