//! The state of one run from its entries: the only code that interprets them.
//!
//! ```text
//!   TRIGGER ──> FIRED ──> (FIRED, waits) ──> FIRED ──> READ, CALL, APPEND… ──> DONE
//!   pending     started    waiting            started                          done, dead, cancelled
//! ```
//!
//! The caller passes entries to a [`Fold`], from wherever they come. [`Fold::of`] finds them by the index of
//! the run's function: the TRIGGER, the last FIRED and those that it leads back to, the DONE, and what is before it.

use super::{WhichKeys, call};
use millrace_journal::{
    Attempt, End, Entry, Function, Item, Journal, KeyedRead, Kind, Outcome, Position, ReadFrom, Run,
};
use millrace_wire::{Code, EventId, Hlc, LogName, Result};

/// Most reads and most appends that are kept of a run.
pub(super) const LISTED_MAX: usize = 10_000;
/// Most attempts that are looked for, the last ones.
const ATTEMPTS_MAX: usize = 256;
/// Most entries that are looked at where no index leads to what a run left: streamed runs publish in many places, and an entry
/// that names others may be damaged.
const LOOK_MAX: u64 = 200_000;
/// How often a run is looked up again that retention moves meanwhile.
const LOOKS_MAX: usize = 8;

/// The item of a function with this number.
#[derive(Debug)]
pub enum Found {
    /// A run.
    Run(Box<Fold>),
    /// A run whose TRIGGER cannot be read.
    Lost,
    /// Nothing, or no longer anything.
    Nothing,
}

/// A log as an entry names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogOf {
    Id(u32),
    /// None if the name is reserved or invalid.
    Name(Option<LogName>),
}

/// An attempt at a run: its FIRED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The FIRED.
    pub id: EventId,
    /// When it was claimed; if it was imported from a device, when it began there.
    pub at: Hlc,
    /// Its content.
    pub reported: Attempt,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// None if the entry that says how cannot be read.
    pub outcome: Option<Outcome>,
    pub at: Hlc,
    pub code: String,
    pub error: String,
    pub output: String,
    /// As the DONE has it.
    pub result: Vec<u8>,
}

/// The state of a run, from the entries that were passed in. Passing an entry, or a copy of it, twice changes nothing.
#[derive(Clone, Debug)]
pub struct Fold {
    /// The run.
    pub run: Run,
    /// Its function.
    pub function: u32,
    /// The APPEND of its record, or of the dead letter whose record is run again; none of one that only sets counts right.
    pub cause: EventId,
    /// The record: the log's id, and the seqno.
    pub record: (u32, u64),
    /// Its TRIGGER.
    pub trigger: Entry,
    /// Attempts, oldest first; the older ones may be missing.
    pub attempts: Vec<Fired>,
    /// The newest FIRED, also if it says that the run waits.
    pub newest: Option<Fired>,
    /// Whether something that belongs to it could not be found, or was not looked for.
    pub partial: bool,
    /// Whether it was tried, although no FIRED was found.
    tried: bool,
    pub(super) reads: Vec<(LogOf, u64)>,
    /// What it read of tables besides values.
    pub(super) keys: Vec<(u32, WhichKeys)>,
    pub(super) appends: Vec<(LogOf, u64)>,
    pub(super) end: Option<Ended>,
}

impl Fold {
    /// A run with a TRIGGER and nothing else.
    pub fn new(trigger: Entry) -> Self {
        Self {
            run: Run { id: trigger.id, number: trigger.seqno },
            function: trigger.subject,
            cause: trigger.cause,
            record: trigger.trigger_record().unwrap_or_default(),
            trigger,
            attempts: Vec::new(),
            newest: None,
            partial: false,
            tried: false,
            reads: Vec::new(),
            keys: Vec::new(),
            appends: Vec::new(),
            end: None,
        }
    }

    /// Adds an entry; one of another run is ignored.
    pub fn tell(&mut self, entry: &Entry) {
        if entry.cause != self.run.id || entry.claimed {
            return;
        }
        match entry.kind {
            Kind::Append => listed(&mut self.appends, LogOf::Id(entry.subject), entry.seqno),
            Kind::Read => {
                for row in entry.reads() {
                    let log = match row.log {
                        ReadFrom::Log(id) => LogOf::Id(id),
                        ReadFrom::Name(name) => LogOf::Name(name.parse().ok()),
                    };
                    let seqnos = row.from..row.from.saturating_add(row.count.min(LISTED_MAX as u64));
                    seqnos.for_each(|seqno| listed(&mut self.reads, log.clone(), seqno));
                }
                for row in KeyedRead::decode(&entry.payload) {
                    let (log, which) = match row {
                        KeyedRead::Found { log, seqno } => {
                            listed(&mut self.reads, LogOf::Id(log), seqno);
                            continue;
                        }
                        KeyedRead::Absent { log, key } => (log, WhichKeys::Absent(key.into())),
                        KeyedRead::Range { log, from, to, limit } => {
                            (log, WhichKeys::Range { from: from.into(), to: to.into(), limit })
                        }
                    };
                    if self.keys.len() < LISTED_MAX {
                        self.keys.push((log, which));
                    }
                }
            }
            Kind::Call => {
                if let Some((log, seqno)) = call::read_by(entry) {
                    listed(&mut self.reads, LogOf::Name(log), seqno);
                }
            }
            Kind::Fired => self.fired(entry),
            Kind::Done => {
                let end = entry.ending().unwrap_or_default();
                self.end.get_or_insert_with(|| Ended::of(&end, entry.hlc));
            }
            _ => {}
        }
    }

    fn fired(&mut self, entry: &Entry) {
        let Some(reported) = entry.attempt() else { return };
        let at = entry.imported_attempt().map_or(entry.hlc, |there| there.clock);
        let fired = Fired { id: entry.id, at, reported };
        if self.newest.is_none_or(|newest| newest.id < fired.id) {
            self.newest = Some(fired);
        }
        let place = self.attempts.partition_point(|other| other.id < fired.id);
        if !reported.waits && self.attempts.get(place).is_none_or(|other| other.id != fired.id) {
            self.attempts.insert(place, fired);
        }
    }

    /// Whether it was tried at least once.
    pub fn was_tried(&self) -> bool {
        self.tried || self.newest.is_some()
    }

    /// Whether the last attempt is over and it waits for its next one.
    pub fn waits(&self) -> bool {
        self.end.is_none() && self.newest.is_some_and(|newest| newest.reported.waits)
    }

    /// The highest number that an attempt at it had.
    pub fn attempts_begun(&self) -> u32 {
        let reported = self.newest.map_or(0, |newest| newest.reported.attempt.max(newest.reported.begun));
        self.attempts.iter().map(|fired| fired.reported.attempt).fold(reported, u32::max)
    }

    /// The last record that it left: the log's id, and the seqno. If it was given up, that is its dead letter.
    pub fn last_append(&self) -> Option<(u32, u64)> {
        match self.appends.last()? {
            (LogOf::Id(log), seqno) => Some((*log, *seqno)),
            (LogOf::Name(_), _) => None,
        }
    }

    /// How it ended, if it has, as far as that can be read.
    pub fn outcome(&self) -> Option<Option<Outcome>> {
        self.end.as_ref().map(|end| end.outcome)
    }

    // ---- by the index

    /// The run of a function with this number, found by the index; with all that it left, if that is asked for.
    pub fn of(journal: &Journal, function: &Function, number: u64, whole: bool) -> Result<Found> {
        for _ in 0..LOOKS_MAX {
            let Some(item) = function.run(number).filter(|item| item.opened != 0) else { return Ok(Found::Nothing) };
            let is_trigger =
                |entry: &Entry| (entry.kind, entry.subject, entry.seqno) == (Kind::Trigger, function.id(), number);
            let trigger = match journal.entry_at(Position::from_bytes(item.opened)) {
                Ok(entry) if is_trigger(&entry) => entry,
                // Retention moved it between the index and here, or let it go.
                Err(error) if error.code() == Code::BelowHistory => {
                    if function.run(number) == Some(item) {
                        return Ok(Found::Nothing);
                    }
                    continue;
                }
                // About to be committed.
                Err(error) if error.code() == Code::AboveTail && item.opened != Item::DAMAGED => {
                    return Ok(Found::Nothing);
                }
                Ok(_) => return Ok(Found::Lost),
                Err(error) if matches!(error.code(), Code::EntryDamaged | Code::AboveTail) => return Ok(Found::Lost),
                Err(error) => return Err(error),
            };
            let mut fold = Fold::new(trigger);
            if !fold.look_back(journal, item.noted, whole)? && function.run(number) != Some(item) {
                continue;
            }
            if !fold.look_at_end(journal, item.closed, whole)? {
                continue;
            }
            if whole && fold.is_streamed() && item.closed == 0 {
                let upto = journal.tail();
                fold.look_through(journal, upto)?;
            }
            return Ok(Found::Run(Box::new(fold)));
        }
        Ok(Found::Nothing)
    }

    /// Tells the FIRED at a place, and those that it leads back to; false if retention took it or moved it.
    fn look_back(&mut self, journal: &Journal, noted: u64, whole: bool) -> Result<bool> {
        if noted == 0 {
            return Ok(true);
        }
        let mut before = match journal.entry_at(Position::from_bytes(noted)) {
            Ok(entry) if self.is_attempt(&entry) => {
                self.fired(&entry);
                entry.attempt().map_or(0, |attempt| attempt.before)
            }
            // It is passed in when it is committed.
            Err(error) if error.code() == Code::AboveTail && noted != Item::DAMAGED => return Ok(true),
            // With it went what it said, and whether the run published as it went.
            Err(error) if error.code() == Code::BelowHistory => {
                (self.tried, self.partial) = (true, true);
                return Ok(false);
            }
            Err(error) if !matches!(error.code(), Code::EntryDamaged | Code::AboveTail) => return Err(error),
            _ => {
                // Others have less information.
                (self.tried, self.partial) = (true, true);
                return self.look_for_attempts(journal).map(|()| true);
            }
        };
        while whole && before != 0 && self.attempts.len() < ATTEMPTS_MAX {
            // Retention may have dropped it, or moved it to where its number does not lead.
            let Some(entry) = journal.entry_of_sequence(before)?.filter(|entry| self.is_attempt(entry)) else { break };
            self.fired(&entry);
            let earlier = entry.attempt().map_or(0, |attempt| attempt.before);
            if earlier >= before {
                break;
            }
            before = earlier;
        }
        Ok(true)
    }

    fn is_attempt(&self, entry: &Entry) -> bool {
        (entry.kind, entry.cause) == (Kind::Fired, self.run.id)
    }

    /// Tells the attempts that come after the TRIGGER.
    fn look_for_attempts(&mut self, journal: &Journal) -> Result<()> {
        let mut left = LOOK_MAX;
        let from = self.begins(journal);
        journal.visit(from, journal.tail(), &mut |entry| {
            if self.is_attempt(entry) {
                self.fired(entry);
            }
            left -= 1;
            left > 0
        })
    }

    /// Tells the DONE at a place, and what the run left; false if it has to be looked for again.
    fn look_at_end(&mut self, journal: &Journal, closed: u64, whole: bool) -> Result<bool> {
        if closed == 0 {
            return Ok(true);
        }
        let position = Position::from_bytes(closed);
        match journal.entry_at(position) {
            Ok(done) if done.kind == Kind::Done && done.seqno == self.run.number => {
                let (effects, fired) = done.ending().map_or((0, 0), |end| (end.effects, end.fired));
                if self.newest.is_none() && self.tried && fired != 0 {
                    let last = journal.entry_of_sequence(fired)?.filter(|entry| self.is_attempt(entry));
                    last.iter().for_each(|entry| self.fired(entry));
                }
                if whole && self.is_streamed() {
                    self.look_through(journal, position)?;
                } else if whole && effects > 0 {
                    let from = journal.in_front(position, effects)?;
                    journal.visit(from, position, &mut |entry| {
                        self.tell(entry);
                        true
                    })?;
                }
                self.tell(&done);
                // One that damage took has an end without a cause.
                self.end.get_or_insert_with(|| Ended::of(&done.ending().unwrap_or_default(), done.hlc));
                Ok(true)
            }
            // It counts from the moment that its batch is committed.
            Err(error) if error.code() == Code::AboveTail && closed != Item::DAMAGED => Ok(true),
            Err(error) if error.code() == Code::BelowHistory => Ok(false),
            Err(error) if !matches!(error.code(), Code::EntryDamaged | Code::AboveTail) => Err(error),
            _ => {
                self.partial = true;
                let at = self.newest.map_or(self.trigger.hlc, |newest| newest.at);
                self.end = Some(Ended::unknown(at));
                Ok(true)
            }
        }
    }

    /// Whether what it leaves is in many places.
    pub fn is_streamed(&self) -> bool {
        self.newest.is_some_and(|newest| newest.reported.streamed)
    }

    /// Where the first of its entries may stand. A copy of the TRIGGER comes after entries that were written after it.
    pub fn begins(&self, journal: &Journal) -> Position {
        if self.trigger.carried { journal.first() } else { self.trigger.position }
    }

    /// Tells what the run left between its beginning and a position; of what stands too far behind that, nothing.
    fn look_through(&mut self, journal: &Journal, upto: Position) -> Result<()> {
        let (from, mut left) = (self.begins(journal), LOOK_MAX);
        journal.visit(from, upto, &mut |entry| {
            self.tell(entry);
            left -= 1;
            left > 0
        })?;
        // Retention, which moved the TRIGGER, may have moved what the run left to behind its end.
        self.partial |= left == 0 || self.trigger.carried;
        Ok(())
    }

    /// The run of this TRIGGER, of a function that was removed and its index with it: what comes after the TRIGGER.
    pub fn of_removed(journal: &Journal, trigger: Entry) -> Result<Self> {
        let mut fold = Self::new(trigger);
        let (from, mut left) = (fold.begins(journal), LOOK_MAX);
        journal.visit(from, journal.tail(), &mut |entry| {
            fold.tell(entry);
            left -= 1;
            left > 0 && fold.end.is_none()
        })?;
        fold.partial |= left == 0;
        Ok(fold)
    }
}

impl Ended {
    fn of(end: &End<'_>, at: Hlc) -> Self {
        let (code, error, output) = (end.code.into(), end.error.into(), end.output.into());
        Self { outcome: Some(end.outcome), at, code, error, output, result: end.result.into() }
    }

    /// Of a run that is over; no more is known. It was not over before `at`.
    fn unknown(at: Hlc) -> Self {
        let error = "the entry that says how the run ended is damaged".into();
        let code = Code::EntryDamaged.id().into();
        Self { outcome: None, at, code, error, output: String::new(), result: Vec::new() }
    }
}

fn listed(list: &mut Vec<(LogOf, u64)>, log: LogOf, seqno: u64) {
    if list.len() < LISTED_MAX {
        list.push((log, seqno));
    }
}
