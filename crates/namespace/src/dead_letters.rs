//! Dead letters: counting them, and retrying them.
//!
//! A retried dead letter stays where it is, and so does its record: the retry triggers only the function of the dead run, on the existing
//! record or on the copy in the dead letter. The same batch records this in a log `_retried/ID`, for the dead-letter log of that id. So a
//! letter is retried at most once, however often and by however many processes. If the new run is given up as well, it leaves a letter of
//! its own.
//!
//! A record that a client appended to a dead-letter log is not a dead letter, whatever its content.

use crate::{
    Namespace,
    admission::Room,
    gate::{Shows, Site},
    holes, names,
    namespace::{found, named},
    runs::RunState,
};
use millrace_journal::{Catalog, HISTORY_MAX, Journal, Kind, Log, Origin, Outcome, Position, Transaction};
use millrace_wire::{Code, Error, EventId, Hlc, JsonBytesRead, LogName, Name, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

/// Letters between two waits for the disk.
const SETTLE_EVERY: u64 = 256;
/// Most letters that one list of failures reads, and the fewest of each log, however many logs there are.
const FAILURES_READ_MAX: u64 = 20_000;
const FAILURES_READ_LEAST: u64 = 64;

/// How many letters a dead-letter log has had; functions may share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetters {
    /// Runs that were given up, ever.
    pub given_up: u64,
    /// Letters that the log's history still has.
    pub kept: u64,
    /// Letters whose record was run again.
    pub retried: u64,
}

impl DeadLetters {
    /// Those of this dead-letter log.
    pub fn of(catalog: &Catalog, log: &LogName) -> Self {
        let Some(log) = catalog.log(log) else { return Self::default() };
        let (latest, earliest) = (log.latest(), log.earliest());
        let kept = if latest == 0 { 0 } else { (latest + 1).saturating_sub(earliest) };
        let retried = catalog.log(&notes_name(log)).map_or(0, Log::latest);
        Self { given_up: latest, kept, retried }
    }

    /// Letters that have left the history, and their records with them unless those are in their logs.
    pub fn gone(&self) -> u64 {
        self.given_up.saturating_sub(self.kept)
    }
}

/// A run that was given up, and the run that retried it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retried {
    /// The run that was given up.
    pub dead: EventId,
    /// The run that its record has now.
    pub run: EventId,
    /// Its function.
    pub function: Name,
    /// The record's log.
    pub log: String,
    /// Where it is there.
    pub seqno: u64,
    /// Whether it was run again before.
    pub before: bool,
}

/// The result of retrying all dead letters of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetriedAll {
    /// Letters whose record is run again.
    pub retried: u64,
    /// Dead letters that were retried before.
    pub before: u64,
    /// Dead letters without their record, which is no longer in its log either.
    pub lost: u64,
    /// Those about a record that the caller may not read, in a log that the function is not bound to.
    pub refused: u64,
    /// Dead letters that have left the history of their log.
    pub gone: u64,
}

/// Dead letters of one function with one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureGroup {
    /// The function.
    pub function: Name,
    /// The code of the error.
    pub code: String,
    /// How many letters there are.
    pub letters: u64,
    /// How many of them were not retried.
    pub waiting: u64,
    /// When the oldest and the newest of them were left.
    pub times: (Hlc, Hlc),
    /// The run that left the newest; none if its id was lost to damage.
    pub run: EventId,
    /// The record of that run: its log and number.
    pub record: (String, u64),
    /// The error of that run.
    pub error: String,
    /// The log of the letters.
    pub dead_letter: LogName,
}

/// Dead letters by function and error, those with the most letters first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The groups.
    pub groups: Vec<FailureGroup>,
    /// How many letters were read.
    pub letters: u64,
    /// Whether there are older letters that were not read.
    pub more: bool,
}

/// Which dead letters are retried: those of a function, or those of them with one error.
#[derive(Clone, Copy, Debug)]
pub struct Letters<'a> {
    /// The function.
    pub function: &'a Name,
    /// The code of the error, if only that is meant.
    pub code: Option<&'a str>,
}

/// Whether the caller may read the records of a log.
pub type MayRead<'a> = &'a dyn Fn(&str) -> Result<()>;

/// The fields of a dead letter that are needed here.
#[derive(Deserialize)]
struct DeadLetterText {
    run: String,
    function: Name,
    log: String,
    seqno: u64,
    code: String,
    #[serde(default)]
    error: String,
    #[serde(flatten)]
    record: JsonBytesRead,
}

impl DeadLetterText {
    /// The run that left this dead letter; none for a record that no run left, whatever its content, and for a run whose id was lost to damage.
    fn dead(&self, cause: EventId) -> Option<EventId> {
        let dead = match &*self.run {
            "-" if self.code == Code::RunLost.id() => EventId::NONE,
            run => run.parse().ok()?,
        };
        (dead == cause).then_some(dead)
    }
}

/// A letter in its log.
struct Found {
    id: EventId,
    at: Hlc,
    dead: EventId,
    letter: DeadLetterText,
    seqno: u64,
}

/// The note that a letter was run again.
#[derive(Serialize, Deserialize)]
struct Note {
    letter: u64,
    run: String,
}

/// The notes of one dead-letter log, up to one of them.
#[derive(Default)]
pub struct Notes {
    upto: u64,
    runs: HashMap<u64, EventId>,
}

/// Whether a letter's record cannot be run again, or not as things are.
fn is_lost(code: Code) -> bool {
    matches!(code, Code::LetterWithoutRecord | Code::LogNotFound | Code::LogNameInvalid)
}

/// Where the notes of a dead-letter log are; one that is rebuilt has another id.
fn notes_name(log: &Log) -> LogName {
    names::internal(&format!("_retried/{}", log.id()))
}

impl Notes {
    /// The run that retried a dead letter.
    pub fn of(&self, letter: u64) -> Option<EventId> {
        self.runs.get(&letter).copied()
    }

    /// Reads what was noted since.
    pub fn catch_up(&mut self, journal: &Journal, catalog: &Catalog, dead_letters: &Log) -> Result<()> {
        let Some(log) = catalog.log(&notes_name(dead_letters)) else { return Ok(()) };
        let mut payload = Vec::new();
        loop {
            let seqno = (self.upto + 1).max(log.earliest());
            if log.latest() == 0 || seqno > log.latest() {
                return Ok(());
            }
            match journal.get(log, seqno, &mut payload) {
                Ok(_) => {}
                Err(error) if error.code() == Code::BelowHistory => continue, // The history moved on; so does `earliest`.
                Err(error) if error.code() == Code::EntryDamaged => {
                    self.upto = holes::noted(journal, log.name(), seqno)?.ok_or(error)?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let damaged =
                |what: String| Code::EntryDamaged.error(format!("record {seqno} of log '{}': {what}", log.name()));
            let note: Note = serde_json::from_slice(&payload).map_err(|error| damaged(error.to_string()))?;
            self.runs.insert(note.letter, note.run.parse().map_err(|error: Error| damaged(error.to_string()))?);
            self.upto = seqno;
        }
    }

    /// Stages a note.
    pub fn note(tx: &mut Transaction<'_>, dead_letters: &Log, letter: u64, run: EventId) -> Result<()> {
        let name = notes_name(dead_letters);
        let log = match tx.catalog().log(&name).cloned() {
            Some(log) => log,
            // As long as a letter is kept, fewer than two histories of others can be noted behind it.
            None => tx.create_log(&name, (dead_letters.history() * 2).min(HISTORY_MAX))?,
        };
        let note = Note { letter, run: run.to_string() };
        let payload = serde_json::to_vec(&note).expect("text and numbers always make JSON");
        tx.append(&log, &payload, EventId::NONE, 0).map(drop)
    }
}

impl Namespace {
    /// Runs the record of a run that was given up again, with that run's function alone. `patience` is how long to wait for room
    /// while too many runs of it are pending.
    pub fn retry_run(&self, dead: EventId, patience: Duration) -> Result<Retried> {
        self.retry_run_of(dead, patience, &|_| Ok(()))
    }

    /// The same for a caller that may not read every log: its function may have other code than when the run failed, and is shown the
    /// record again.
    pub fn retry_run_of(&self, dead: EventId, patience: Duration, may_read: MayRead<'_>) -> Result<Retried> {
        if let Some((log, found)) = self.letter_of(dead)? {
            let (retried, end) = self.retry(&log, &found, &mut Notes::default(), patience, may_read)?;
            self.settle(Site::AppendBatch, Shows::Batch(end), None)?;
            return Ok(retried);
        }
        let state = match self.run(dead)?.state {
            RunState::Done => "it succeeded",
            RunState::Dead => "its dead letter has left the history, or its function was removed",
            RunState::Cancelled => "it was cancelled",
            RunState::Pending | RunState::Started => "it has not ended",
        };
        Err(Code::LetterNotFound.error(format!("there is no dead letter of run {dead}: {state}")))
    }

    /// The letter that a run left, and its log. The run itself leads there; where it is gone from the journal, the logs of letters
    /// are looked through.
    fn letter_of(&self, dead: EventId) -> Result<Option<(Log, Found)>> {
        if dead.is_none() {
            return Ok(None);
        }
        let logs = self.letter_logs()?;
        if let Some(fold) = self.fold_of(dead, true)? {
            if fold.outcome() != Some(Some(Outcome::Dead)) && !fold.partial {
                return Ok(None);
            }
            if let Some((log, seqno)) = fold.last_append()
                && let Some(log) = logs.iter().find(|other| other.id() == log)
                && let Ok(Some(found)) = self.letter_at(log, seqno)
                && found.dead == dead
            {
                return Ok(Some((log.clone(), found)));
            }
        }
        for log in logs {
            let mut found = None;
            self.each_letter(&log, &mut |letter| {
                found = Some(letter).filter(|letter| letter.dead == dead);
                Ok(found.is_none())
            })?;
            if let Some(found) = found {
                return Ok(Some((log, found)));
            }
        }
        Ok(None)
    }

    /// The letter that a record of a log of letters is, if it is one: such a log may hold what people appended, and messages
    /// without a receiver.
    fn letter_at(&self, log: &Log, seqno: u64) -> Result<Option<Found>> {
        let mut payload = Vec::new();
        let meta = self.journal().get(log, seqno, &mut payload)?;
        let letter = serde_json::from_slice::<DeadLetterText>(&payload).ok();
        Ok(letter.and_then(|letter| {
            let dead = letter.dead(meta.cause).filter(|_| self.is_from_host(log, seqno))?;
            Some(Found { id: meta.id, at: meta.hlc, dead, letter, seqno })
        }))
    }

    /// Runs the records of all of a function's dead letters again that were not before, oldest first; see
    /// [`Namespace::retry_run`]. `progress` is called for each once it is safe.
    pub fn retry_function(
        &self,
        function: &Name,
        patience: Duration,
        progress: &mut dyn FnMut(&Retried),
    ) -> Result<RetriedAll> {
        self.retry_letters(Letters { function, code: None }, patience, &|_| Ok(()), progress)
    }

    /// The same for some of them, and for a caller that may not read every log. Letters about records that it may not read are left and
    /// counted.
    pub fn retry_letters(
        &self,
        Letters { function, code }: Letters<'_>,
        patience: Duration,
        may_read: MayRead<'_>,
        progress: &mut dyn FnMut(&Retried),
    ) -> Result<RetriedAll> {
        let stat = self.functions()?.into_iter().find(|stat| stat.name == *function);
        let definition = stat.ok_or_else(|| crate::namespace::no_function(function))?.definition?;
        let mut all = RetriedAll::default();
        let Ok(log) = self.log(&definition.spec.dead_letter) else { return Ok(all) };
        all.gone = DeadLetters::of(&*self.journal().catalog()?, log.name()).gone();
        let (mut notes, mut unsettled, mut upto) = (Notes::default(), Vec::new(), Position::default());
        let mut settle = |unsettled: &mut Vec<Retried>, upto| -> Result<()> {
            // Even if all was done before: the process that did it may have been killed before it was on disk.
            self.settle(Site::AppendBatch, Shows::Batch(upto), None)?;
            unsettled.drain(..).for_each(|retried| progress(&retried));
            Ok(())
        };
        let mut retry_each = |found: Found, unsettled: &mut Vec<Retried>| {
            if found.letter.function != *function || code.is_some_and(|code| found.letter.code != code) {
                return Ok(true);
            }
            match self.retry(&log, &found, &mut notes, patience, may_read) {
                Ok((retried, end)) => {
                    upto = end;
                    (all.retried, all.before) = match retried.before {
                        true => (all.retried, all.before + 1),
                        false => (all.retried + 1, all.before),
                    };
                    unsettled.extend((!retried.before).then_some(retried));
                }
                Err(error) if is_lost(error.code()) => all.lost += 1,
                Err(error) if error.code() == Code::CapabilityDenied => all.refused += 1,
                Err(error) => return Err(error),
            }
            if unsettled.len() as u64 == SETTLE_EVERY {
                settle(unsettled, upto)?;
            }
            Ok(true)
        };
        let done = self.each_letter(&log, &mut |found| retry_each(found, &mut unsettled));
        settle(&mut unsettled, upto)?;
        done.map(|()| all)
    }

    /// Shows the letters of a log as it is now, oldest first, until `visit` has seen enough.
    fn each_letter(&self, log: &Log, visit: &mut dyn FnMut(Found) -> Result<bool>) -> Result<()> {
        let (mut seqno, latest) = (log.earliest().max(1), log.latest());
        while seqno <= latest {
            match self.letter_at(log, seqno) {
                Ok(Some(found)) => {
                    if !visit(found)? {
                        return Ok(());
                    }
                }
                Ok(None) => {}
                Err(error) if error.code() == Code::BelowHistory => {
                    seqno = log.earliest().max(seqno + 1);
                    continue;
                }
                // A repair took it away.
                Err(error) if error.code() == Code::RecordVoid => {}
                Err(error) if error.code() == Code::EntryDamaged => {
                    seqno = holes::noted(self.journal(), log.name(), seqno)?.ok_or(error)?;
                }
                Err(error) => return Err(error),
            }
            seqno += 1;
        }
        Ok(())
    }

    /// The dead letters since a moment, of one function or of all, by function and error. The newest of each log are read; `check` fails
    /// once the caller no longer waits.
    pub fn failures(&self, since: Hlc, function: Option<&Name>, check: &dyn Fn() -> Result<()>) -> Result<Failures> {
        let logs = match function {
            Some(name) => {
                let stat = self.functions()?.into_iter().find(|stat| stat.name == *name);
                let definition = stat.ok_or_else(|| crate::namespace::no_function(name))?.definition?;
                self.log(&definition.spec.dead_letter).into_iter().collect()
            }
            None => self.letter_logs()?,
        };
        let share = (FAILURES_READ_MAX / (logs.len() as u64).max(1)).max(FAILURES_READ_LEAST);
        let (mut groups, mut all): (HashMap<(Name, String), FailureGroup>, _) = (HashMap::new(), Failures::default());
        for log in &logs {
            let mut notes = Notes::default();
            notes.catch_up(self.journal(), &*self.journal().catalog()?, log)?;
            let (earliest, mut left) = (log.earliest().max(1), share);
            for seqno in (earliest..=log.latest()).rev() {
                if left == 0 || all.letters >= FAILURES_READ_MAX {
                    all.more = true;
                    break;
                }
                left -= 1;
                if left.is_multiple_of(256) {
                    check()?;
                }
                let found = match self.letter_at(log, seqno) {
                    Ok(Some(found)) => found,
                    Ok(None) => continue,
                    Err(error) => match error.code() {
                        Code::BelowHistory => break,
                        Code::RecordVoid | Code::EntryDamaged => continue,
                        _ => return Err(error),
                    },
                };
                if found.at < since {
                    break;
                }
                let Found { at, dead, letter, .. } = found;
                if function.is_some_and(|function| letter.function != *function) {
                    continue;
                }
                all.letters += 1;
                let new = || FailureGroup {
                    function: letter.function.clone(),
                    code: letter.code.clone(),
                    letters: 0,
                    waiting: 0,
                    times: (at, Hlc::ZERO),
                    run: EventId::NONE,
                    record: Default::default(),
                    error: String::new(),
                    dead_letter: log.name().clone(),
                };
                let group = groups.entry((letter.function.clone(), letter.code.clone())).or_insert_with(new);
                group.letters += 1;
                group.waiting += u64::from(notes.of(seqno).is_none());
                group.times.0 = group.times.0.min(at);
                if group.times.1 < at {
                    (group.times.1, group.run, group.record) = (at, dead, (letter.log, letter.seqno));
                    group.error = letter.error;
                }
            }
        }
        all.groups = groups.into_values().collect();
        all.groups.sort_by(|a, b| (b.letters, &a.function, &a.code).cmp(&(a.letters, &b.function, &b.code)));
        Ok(all)
    }

    /// How many of the letters that a log still has were not run again.
    pub fn letters_waiting(&self, log: &LogName) -> Result<u64> {
        let catalog = self.journal().catalog()?;
        let Some(log) = catalog.log(log) else { return Ok(0) };
        let mut notes = Notes::default();
        notes.catch_up(self.journal(), &catalog, log)?;
        let again = notes.runs.keys().filter(|letter| **letter >= log.earliest()).count() as u64;
        Ok(DeadLetters::of(&catalog, log.name()).kept.saturating_sub(again))
    }

    /// Whether only the host can have appended this record.
    pub fn is_from_host(&self, log: &Log, seqno: u64) -> bool {
        let journal = self.journal();
        loop {
            let position = journal.position(log, seqno);
            if let Ok(entry) = journal.entry_at(position)
                && (entry.kind, entry.subject, entry.seqno) == (Kind::Append, log.id(), seqno)
            {
                return !entry.claimed;
            }
            // Retention may have moved it meanwhile.
            if journal.position(log, seqno) == position {
                return false;
            }
        }
    }

    /// The logs that functions leave their dead letters in.
    fn letter_logs(&self) -> Result<Vec<Log>> {
        let bindings = self.bindings()?;
        let specs = bindings.functions().filter_map(|(_, definition)| Some(&definition.as_ref().ok()?.spec));
        let names: BTreeSet<&LogName> = specs.map(|spec| &spec.dead_letter).collect();
        let catalog = self.journal().catalog()?;
        Ok(names.into_iter().filter_map(|name| catalog.log(name).cloned()).collect())
    }

    /// The record of the dead letter with this id, and its log; none if the dead letter is no longer kept.
    pub fn record_of_letter(&self, letter: EventId) -> Result<Option<(LogName, Vec<u8>)>> {
        for log in self.letter_logs()? {
            let Some(seqno) = self.find_letter(&log, letter) else { continue };
            let found = self.letter_at(&log, seqno)?;
            return found.map(|found| Ok((found.letter.log.parse()?, self.retained(&found)?))).transpose();
        }
        Ok(None)
    }

    /// The seqno of the record with this id in a log. Ids grow along a log.
    fn find_letter(&self, log: &Log, letter: EventId) -> Option<u64> {
        let mut payload = Vec::new();
        // An entry that a repair wrote has the place of the one that it replaces.
        let mut id_of = |seqno| {
            let meta = self.journal().get(log, seqno, &mut payload)?;
            Ok::<_, Error>(meta.replaced.map_or(meta.id, |replaced| replaced.origin))
        };
        let (mut from, mut to) = (log.earliest().max(1), log.latest());
        while from <= to {
            let seqno = from.midpoint(to);
            match id_of(seqno) {
                Ok(id) if id == letter => return Some(seqno),
                Ok(id) if id > letter => to = seqno - 1,
                Ok(_) => from = seqno + 1,
                Err(error) if error.code() == Code::BelowHistory => from = seqno + 1,
                // Nothing says on which side of damage it is.
                Err(_) => return (from..=to).find(|seqno| id_of(*seqno).is_ok_and(|id| id == letter)),
            }
        }
        None
    }

    /// Runs one letter's record again, unless that was done; and where the journal ends then.
    fn retry(
        &self,
        dead_letters: &Log,
        found: &Found,
        notes: &mut Notes,
        patience: Duration,
        may_read: MayRead<'_>,
    ) -> Result<(Retried, Position)> {
        let Found { dead, letter, .. } = found;
        let retained = self.retained(found).map(drop);
        let committed = self.with_patience(patience, || {
            self.journal().commit(|tx| {
                let catalog = tx.catalog().clone();
                let bindings = self.bindings_of(tx);
                // The deployer of a function has the right to read what it is bound to.
                let function = catalog.function(&letter.function);
                let definition = function.and_then(|function| bindings.definition(function.id()));
                if !definition.is_some_and(|definition| definition.spec.on.iter().any(|on| **on == *letter.log)) {
                    may_read(&letter.log)?;
                }
                notes.catch_up(self.journal(), &catalog, dead_letters)?;
                if let Some(run) = notes.runs.get(&found.seqno) {
                    return Ok((*run, true));
                }
                let bound = named(&catalog, &bindings, &letter.function)?;
                let log = self::found(catalog.log(&letter.log), &letter.log)?;
                retained.clone()?;
                let pending = tx.pending(bound.function);
                if pending >= Room::Outside.most(bound) {
                    return Err(Room::Outside.refusal(log.name(), &letter.function, pending));
                }
                let run = tx.trigger(bound.function, found.id, log, letter.seqno, Origin::Retry)?.id;
                Notes::note(tx, dead_letters, found.seqno, run)?;
                Ok((run, false))
            })
        })?;
        let (run, before) = committed.value;
        let (function, log, seqno) = (letter.function.clone(), letter.log.clone(), letter.seqno);
        Ok((Retried { dead: *dead, run, function, log, seqno, before }, committed.end))
    }

    /// The record that a letter is about.
    fn retained(&self, found: &Found) -> Result<Vec<u8>> {
        let Found { dead, letter, id, .. } = found;
        let none =
            |error| Code::LetterWithoutRecord.error(format!("the dead letter of run {dead} cannot be read: {error}"));
        if let Some(record) = letter.record.bytes().map_err(none)? {
            return Ok(record);
        }
        let mut payload = Vec::new();
        let log = self.log(&letter.log)?;
        // Where a log of that name was recreated, its records are younger than the letter.
        match self.journal().get(&log, letter.seqno, &mut payload) {
            Ok(meta) if meta.replaced.map_or(meta.id, |replaced| replaced.origin) < *id => Ok(payload),
            _ => {
                let (log, seqno) = (&letter.log, letter.seqno);
                Err(Code::LetterWithoutRecord.error(format!("record {seqno} of log '{log}', of run {dead}")))
            }
        }
    }
}
