//! Amendments: corrections that a source delivers late, for records of a log that is declared amendable.
//!
//! They wait in a log of the runtime, `_amend/LOGID`, until a repair is due by the policy of the log. The host opens that repair, and
//! applies it as soon as all affected runs are replayed. A log is amendable while its `_amend/LOGID` exists.

use crate::{
    book::{Note, Phase, Repair, corrections_of, news, note, repair, repairs},
    open::{Correction, Opening, abandon, begin, check, check_length},
};
use millrace_journal::{Log, Transaction};
use millrace_namespace::{
    Namespace,
    definition::{AMEND_COUNT_MAX, AmendPolicy},
    names::{check_public, internal, log_name},
};
use millrace_wire::{Code, Error, EventId, HISTORY_ALL, Hlc, JsonBytes, LogName, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime},
};

/// The prefix of the names of their logs.
const PREFIX: &str = "_amend/";
/// The log of amendments that could not be applied.
pub const DEAD_LETTERS: &str = "dead/amend";
/// How many of them it keeps.
const DEAD_LETTERS_HISTORY: u64 = 1000;
/// Bytes of amendments that are committed at once.
const BATCH_BYTES: usize = 128 << 10;
/// The maximum length of the first line of a note with its end.
const LINE_BYTES: usize = 128;
/// The maximum size of the waiting amendments of a log. At half of it, they become a repair.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How many repairs of a log's amendments may stop in a row until these amendments become dead letters.
const STOPS_MAX: u32 = 10;
/// The pause after a failed attempt; it doubles with each further one, at most this often.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_DOUBLINGS: u32 = 10;
/// If a dead letter would be too long for a record, it has the first bytes of the value: the record's limit divided by this. A byte takes up
/// to six in JSON.
const CUT: usize = 8;

/// The first line of a record in `_amend/LOGID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "kebab-case")]
enum Line {
    /// The policy from this note on. A repair has taken the amendments up to `taken`.
    Policy { policy: AmendPolicy, taken: u64 },
    /// An amendment; the bytes behind the line are the new value.
    Amend {
        seqno: u64,
        #[serde(default)]
        void: bool,
    },
    /// The amendments of a record up to this note no longer wait: they became dead letters.
    Dead { seqno: u64, upto: u64 },
}

impl Line {
    fn with(&self, bytes: &[u8]) -> Vec<u8> {
        let mut note = serde_json::to_vec(self).expect("numbers make JSON");
        note.push(b'\n');
        note.extend_from_slice(bytes);
        note
    }

    fn split(note: &[u8]) -> Option<(Line, &[u8])> {
        let end = note.iter().position(|byte| *byte == b'\n')?;
        Some((serde_json::from_slice(&note[..end]).ok()?, &note[end + 1..]))
    }
}

/// The records to amend.
#[derive(Clone, Debug)]
pub struct Amendments {
    /// The log.
    pub log: LogName,
    /// The records and their new values.
    pub corrections: Vec<Correction>,
}

/// The waiting amendments of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The log.
    pub log: LogName,
    /// How many wait.
    pub waiting: u64,
    /// The number of amendments that become a repair, regardless of their age.
    pub count: u64,
    /// When they become a repair, regardless of their number, in microseconds since 1970; `None` if none waits.
    pub due_us: Option<u64>,
}

/// The outcome of the waiting amendments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Some were taken.
    Taken,
    /// The next are due after this time.
    In(Duration),
    /// No amendment waits, or they wait for the end of an open repair.
    Nothing,
}

struct Amendment {
    /// The seqno of its note, and the clock of its arrival.
    note: u64,
    at: Hlc,
    /// The length of its note.
    bytes: usize,
    /// Its value is empty if values are not kept.
    correction: Correction,
}

#[derive(Default)]
struct State {
    policy: AmendPolicy,
    /// The seqno of the newest note.
    newest: u64,
    /// The waiting amendments, in the order of arrival.
    waiting: Vec<Amendment>,
    /// Whether values are kept.
    values: bool,
}

/// A host's state of its attempts to turn amendments into repairs.
#[derive(Debug, Default)]
pub struct Attempts {
    /// By the number of a log: how many attempts failed in a row, and when the next one may be made.
    failed: BTreeMap<u32, (u32, Instant)>,
    /// How many notes about repairs there were at the last check that found no abandoned opening.
    clean: Option<u64>,
}

impl Attempts {
    /// How long the amendments of a log still have to wait after attempts that failed.
    fn pause(&self, log: u32) -> Option<Duration> {
        let (_, until) = self.failed.get(&log)?;
        until.checked_duration_since(Instant::now()).filter(|pause| !pause.is_zero())
    }

    /// Records a failed attempt. The pauses grow.
    fn failed(&mut self, log: u32) {
        let times = self.failed.get(&log).map_or(0, |(times, _)| *times);
        let pause = pause_after(times);
        self.failed.insert(log, (times + 1, Instant::now() + pause));
    }
}

fn pause_after(times: u32) -> Duration {
    PAUSE.saturating_mul(1 << times.min(PAUSE_DOUBLINGS))
}

impl State {
    fn due_us(&self) -> Option<u64> {
        let first = self.waiting.first()?;
        let age_us = u64::try_from(self.policy.age().as_micros()).unwrap_or(u64::MAX);
        Some(first.at.wall_us().saturating_add(age_us))
    }

    fn bytes(&self) -> usize {
        self.waiting.iter().map(|amendment| amendment.bytes).sum()
    }

    /// Whether they become a repair now.
    fn is_due(&self, now_us: u64) -> bool {
        self.due_us().is_some_and(|due_us| due_us <= now_us)
            || self.waiting.len() as u64 >= self.policy.count
            || self.bytes() >= WAITING_BYTES_MAX / 2
    }

    /// Refuses more amendments than can wait.
    fn check_room(&self, name: &LogName, more: &[Correction]) -> Result<()> {
        let count = (self.waiting.len() + more.len()) as u64;
        let bytes = self.bytes() + more.iter().map(note_bytes).sum::<usize>();
        if count <= AMEND_COUNT_MAX && bytes <= WAITING_BYTES_MAX {
            return Ok(());
        }
        let (waiting, more) = (self.waiting.len(), more.len());
        let error = format!(
            "{waiting} amendments of log '{name}' wait for a repair; with {more} more, {count} with {bytes} bytes would wait, and the \
             limits are {AMEND_COUNT_MAX} and {WAITING_BYTES_MAX} bytes"
        );
        Err(Code::AmendmentsWait.error(error))
    }

    fn shown(&self, log: &Log) -> Waiting {
        let (waiting, count) = (self.waiting.len() as u64, self.policy.count);
        Waiting { log: log.name().clone(), waiting, count, due_us: self.due_us() }
    }
}

fn notes_of(log: &Log) -> LogName {
    internal(&format!("{PREFIX}{}", log.id()))
}

/// The maximum length of the note of an amendment.
fn note_bytes(correction: &Correction) -> usize {
    LINE_BYTES + correction.value.as_ref().map_or(0, Vec::len)
}

/// The state of a log's amendments, with or without their values.
fn read(namespace: &Namespace, notes: &Log, values: bool) -> Result<State> {
    let mut state = State { values, ..State::default() };
    state.follow(namespace, notes)?;
    Ok(state)
}

impl State {
    /// Reads the notes that are new.
    fn follow(&mut self, namespace: &Namespace, notes: &Log) -> Result<()> {
        let (mut payload, latest) = (Vec::new(), notes.latest());
        // The seqnos of records whose amendments up to a note are dead letters.
        let mut dead = BTreeMap::new();
        for seqno in notes.earliest().max(self.newest + 1)..=latest {
            let at = match namespace.journal().get(notes, seqno, &mut payload) {
                // The time of a clock that was far ahead: it is due now, not then.
                Ok(meta) if meta.hlc > namespace.journal().clock() => Hlc::ZERO,
                Ok(meta) => meta.hlc,
                Err(error) if error.code() == Code::BelowHistory => continue, // Trimmed meanwhile.
                Err(error) => return Err(error),
            };
            let unknown = || Code::FormatVersion.error(format!("note {seqno} of log '{}'", notes.name()));
            match Line::split(&payload).ok_or_else(unknown)? {
                (Line::Policy { policy, taken }, _) => {
                    self.policy = policy;
                    self.waiting.retain(|amendment| amendment.note > taken);
                }
                (Line::Amend { seqno: of, void }, bytes) => {
                    let value = match (void, self.values) {
                        (true, _) => None,
                        (false, true) => Some(bytes.to_vec()),
                        (false, false) => Some(Vec::new()),
                    };
                    let correction = Correction { seqno: of, value };
                    self.waiting.push(Amendment { note: seqno, at, bytes: payload.len(), correction });
                }
                (Line::Dead { seqno: of, upto }, _) => drop(dead.insert(of, upto)),
            }
        }
        let waits =
            |amendment: &Amendment| dead.get(&amendment.correction.seqno).is_none_or(|upto| amendment.note > *upto);
        self.waiting.retain(waits);
        self.newest = self.newest.max(latest);
        Ok(())
    }
}

/// The policy of a log; none if it is not amendable.
pub fn amend_policy(namespace: &Namespace, log: &LogName) -> Result<Option<AmendPolicy>> {
    let catalog = namespace.journal().catalog()?;
    let notes = catalog.log(log).and_then(|log| catalog.log(&notes_of(log)));
    notes.map(|notes| Ok(read(namespace, notes, false)?.policy)).transpose()
}

/// Declares that a log is amendable, or no longer; in the latter case, its waiting amendments become dead letters. Returns whether this is
/// a change.
pub fn declare_amendable(namespace: &Namespace, name: &LogName, policy: Option<AmendPolicy>) -> Result<bool> {
    check_public(name)?;
    if amend_policy(namespace, name)? == policy {
        return Ok(false);
    }
    let log = namespace.log(name)?;
    let notes = notes_of(&log);
    let ended = |name: &LogName| Code::NotAmendable.error(format!("log '{name}' is no longer amendable"));
    let mut state = State { values: true, ..State::default() };
    if let (None, Some(held)) = (policy, namespace.journal().catalog()?.log(&notes)) {
        state.follow(namespace, held)?;
        let dead: Vec<_> = state.waiting.iter().map(|it| (&it.correction, ended(name))).collect();
        bury_all(namespace, name, Some((held, state.newest)), &dead)?;
    }
    namespace.journal().commit(|tx| {
        let Some(policy) = policy else {
            let Some(held) = tx.catalog().log(&notes).cloned() else { return Ok(()) };
            // The amendments that arrived meanwhile.
            state.follow(namespace, &held)?;
            for Amendment { correction, .. } in &state.waiting {
                bury(tx, name, correction, &ended(name), namespace.journal().record_max_bytes())?;
            }
            return tx.remove_log(&notes);
        };
        let held = match tx.catalog().log(&notes) {
            Some(held) => held.clone(),
            None => tx.create_log(&notes, HISTORY_ALL)?,
        };
        tx.append(&held, &Line::Policy { policy, taken: 0 }.with(b""), EventId::NONE, 0).map(drop)
    })?;
    namespace.journal().wake();
    Ok(true)
}

/// Accepts amendments of records of an amendable log; returns the waiting amendments of all sources.
pub fn amend(namespace: &Namespace, amendments: &Amendments) -> Result<Waiting> {
    let Amendments { log: name, corrections } = amendments;
    check_public(name)?;
    let (journal, log) = (namespace.journal(), namespace.log(name)?);
    let refused = || Code::NotAmendable.error(format!("log '{name}' is not amendable"));
    let notes = notes_of(&log);
    let mut state = read(namespace, journal.catalog()?.log(&notes).ok_or_else(refused)?, false)?;
    if corrections.is_empty() {
        return Err(Code::CorrectionInvalid.error("the request has no amendment"));
    }
    let mut payload = Vec::new();
    for correction in corrections {
        check_length(namespace, name, correction, LINE_BYTES)?;
        // An amendment that equals the record may revoke a waiting one.
        check(namespace, &log, correction, false, &mut payload)?;
    }
    // All of them, or none, unless others come at the same time.
    state.check_room(name, corrections)?;
    let mut rest = &corrections[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |correction: &&Correction| {
            let first = bytes == 0;
            bytes += note_bytes(correction);
            first || bytes <= BATCH_BYTES
        };
        let part = rest.iter().take_while(fits).count();
        journal.commit(|tx| {
            let held = tx.catalog().log(&notes).cloned().ok_or_else(refused)?;
            state.follow(namespace, &held)?;
            state.check_room(name, &rest[..part])?;
            rest[..part]
                .iter()
                .try_for_each(|correction| tx.append(&held, &amend_note(correction), EventId::NONE, 0).map(drop))
        })?;
        rest = &rest[part..];
    }
    journal.wake();
    let catalog = journal.catalog()?;
    state.follow(namespace, catalog.log(&notes).ok_or_else(refused)?)?;
    Ok(state.shown(&log))
}

/// The amendable logs, with their waiting amendments.
pub fn amendments(namespace: &Namespace) -> Result<Vec<Waiting>> {
    let catalog = namespace.journal().catalog()?;
    let amendable = catalog.logs().filter_map(|notes| Some((of_notes(notes)?, notes)));
    let known = amendable.filter_map(|(id, notes)| Some((catalog.log_by_id(id)?, notes)));
    known.map(|(log, notes)| Ok(read(namespace, notes, false)?.shown(log))).collect()
}

fn of_notes(notes: &Log) -> Option<u32> {
    notes.name().strip_prefix(PREFIX)?.parse().ok()
}

/// Opens a repair of the amendments of one log that are due; only the host does so, or the process that holds its lock.
///
/// # Errors
/// If it failed for a log and no other log has due amendments. The amendments continue to wait; the next attempt for that log is made after
/// a pause.
pub fn take_due(namespace: &Namespace, attempts: &mut Attempts) -> Result<Due> {
    let noted = news(namespace)?;
    if attempts.clean != Some(noted) {
        for left in repairs(namespace)?.iter().filter(|repair| repair.auto) {
            match (left.phase, &left.error) {
                // A host ended while it opened this one. Its amendments still wait, or their log is no longer amendable.
                (Phase::Open, _) => abandon(namespace, left.repair)?,
                // A host ended while it gave this one up.
                (Phase::Stopped, Some((code, detail))) => {
                    let code = Code::from_id(code).unwrap_or(Code::RepairUnsupported);
                    give_back(namespace, left, &code.error(detail.clone()))?;
                }
                _ => continue,
            }
            return Ok(Due::Taken);
        }
        attempts.clean = Some(noted);
    }
    let catalog = namespace.journal().catalog()?;
    let now_us = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_micros() as u64);
    let (mut next, mut failure) = (None::<u64>, None::<Error>);
    for notes in catalog.logs() {
        let Some(id) = of_notes(notes) else { continue };
        let Some(log) = catalog.log_by_id(id) else {
            // The log was removed, and its amendments with it.
            namespace.journal().commit(|tx| tx.remove_log(notes.name()))?;
            return Ok(Due::Taken);
        };
        let state = read(namespace, notes, false)?;
        let Some(due_us) = state.due_us() else { continue };
        if !state.is_due(now_us) {
            next = Some(next.map_or(due_us, |next| next.min(due_us)));
            continue;
        }
        let all = repairs(namespace)?;
        let until_us = attempts.pause(id).map(|pause| after_us(now_us, pause));
        let stopped_until_us = stopped_until_us(&all, log.name(), now_us).filter(|until_us| *until_us > now_us);
        if let Some(until_us) = until_us.max(stopped_until_us) {
            next = Some(next.map_or(until_us, |next| next.min(until_us)));
            continue;
        }
        if all.iter().any(|repair| repair.phase.is_open()) {
            return failure.map_or(Ok(Due::Nothing), Err);
        }
        if let Err(error) = take(namespace, log, notes) {
            attempts.failed(id);
            failure = Some(error.within(format!("the amendments of log '{}'", log.name())));
            continue;
        }
        attempts.failed.remove(&id);
        return Ok(Due::Taken);
    }
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(next.map_or(Due::Nothing, |due_us| Due::In(Duration::from_micros(due_us.saturating_sub(now_us)))))
}

fn after_us(time_us: u64, pause: Duration) -> u64 {
    time_us.saturating_add(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX))
}

/// The repairs of the amendments of a log that stopped since the last one that did not, the newest first.
fn stopped<'a>(all: &'a [Repair], log: &'a LogName) -> impl Iterator<Item = &'a Repair> {
    let ended = all.iter().rev().filter(|repair| repair.auto && !repair.phase.is_open());
    let of_log = ended.filter(move |repair| repair.log.as_ref() == Some(log));
    of_log.take_while(|repair| repair.phase == Phase::Abandoned && repair.error.is_some())
}

/// When the next repair of a log's amendments may be opened after some that stopped. The time of a clock that was ahead when one of them was
/// opened does not count: they would wait until that time.
fn stopped_until_us(all: &[Repair], log: &LogName, now_us: u64) -> Option<u64> {
    let newest = stopped(all, log).next().filter(|newest| newest.at_us <= now_us)?;
    let times = stopped(all, log).count();
    Some(after_us(newest.at_us, pause_after(u32::try_from(times).unwrap_or(u32::MAX))))
}

/// Gives up a repair of amendments that cannot continue, because it would hold back all others until somebody noticed. Its amendments wait
/// again; if that was tried often enough, they become dead letters.
pub(crate) fn give_back(namespace: &Namespace, repair: &Repair, error: &Error) -> Result<()> {
    let (journal, number) = (namespace.journal(), repair.repair);
    let catalog = journal.catalog()?;
    // A log that was removed has taken its records, and their amendments, with it.
    if let Some(log) = repair.log.as_ref().and_then(|name| catalog.log(name)) {
        let corrections = corrections_of(namespace, number, log)?;
        let times = stopped(&repairs(namespace)?, log.name()).count() as u32 + 1;
        match catalog.log(&notes_of(log)).filter(|_| times < STOPS_MAX) {
            Some(notes) => wait_again(namespace, notes, &corrections)?,
            None => {
                let dead: Vec<_> = corrections.iter().map(|it| (it, error.code().error(error.detail()))).collect();
                bury_all(namespace, log.name(), None, &dead)?;
            }
        }
    }
    let (code, detail) = (error.code().id().to_owned(), error.detail().to_owned());
    journal.commit(|tx| note(tx, &Note::Stopped { repair: number, code, error: detail }).map(drop))?;
    abandon(namespace, number)
}

/// Notes amendments again, except those whose records have newer ones.
fn wait_again(namespace: &Namespace, notes: &Log, corrections: &[Correction]) -> Result<()> {
    let (mut state, mut rest) = (State::default(), corrections);
    while !rest.is_empty() {
        let noted = namespace.journal().commit(|tx| {
            let gone = || Code::NotAmendable.error("the log is no longer amendable");
            let held = tx.catalog().log(notes.name()).cloned().ok_or_else(gone)?;
            state.follow(namespace, &held)?;
            let newer: BTreeSet<u64> = state.waiting.iter().map(|waiting| waiting.correction.seqno).collect();
            let (mut bytes, mut count) = (0, 0_usize);
            for correction in rest {
                count += 1;
                if newer.contains(&correction.seqno) {
                    continue;
                }
                tx.append(&held, &amend_note(correction), EventId::NONE, 0)?;
                bytes += note_bytes(correction);
                if bytes > BATCH_BYTES {
                    break;
                }
            }
            Ok(count)
        })?;
        rest = &rest[noted.value..];
    }
    Ok(())
}

/// The note of an amendment.
fn amend_note(Correction { seqno, value }: &Correction) -> Vec<u8> {
    Line::Amend { seqno: *seqno, void: value.is_none() }.with(value.as_deref().unwrap_or_default())
}

fn take(namespace: &Namespace, log: &Log, notes: &Log) -> Result<()> {
    let mut state = read(namespace, notes, true)?;
    let taken = state.newest;
    let (mut kept, mut dead, mut payload) = (Vec::new(), Vec::new(), Vec::new());
    let newest: BTreeMap<u64, &Correction> =
        state.waiting.iter().map(|it| (it.correction.seqno, &it.correction)).collect();
    for correction in newest.into_values() {
        match check(namespace, log, correction, false, &mut payload) {
            Ok(true) => kept.push(correction.clone()),
            Ok(false) => {}
            Err(error) if is_for_good(error.code()) => dead.push((correction, error)),
            Err(error) => return Err(error),
        }
    }
    // Dead letters never make a repair fail. If the repair fails, they are not written again.
    bury_all(namespace, log.name(), Some((notes, taken)), &dead)?;
    let count = state.waiting.len();
    let number = if kept.is_empty() {
        None
    } else {
        let reason = format!("{count} amendment{}", if count == 1 { "" } else { "s" });
        Some(begin(
            namespace,
            log,
            &kept,
            Opening {
                reason,
                append_new: true,
                auto: true,
                across: Vec::new(),
                accept_unknown: false,
                run_external: Vec::new(),
            },
        )?)
    };
    // The values of those that arrived meanwhile are not needed.
    state.values = false;
    let noted = namespace.journal().commit(|tx| {
        // The policy may have changed meanwhile, and amendments that arrived meanwhile stay.
        state.follow(namespace, notes)?;
        let line = Line::Policy { policy: state.policy, taken };
        tx.append(notes, &line.with(b""), EventId::NONE, 0)?;
        tx.trim(notes, taken + 1)?;
        match number {
            // It may have been abandoned meanwhile, together with these amendments.
            Some(number) if repair(namespace, number)?.phase == Phase::Open => {
                note(tx, &Note::Run { repair: number }).map(drop)
            }
            _ => Ok(()),
        }
    });
    if let (Err(_), Some(number)) = (&noted, number) {
        // Its amendments still wait, and nothing else continues it. If this fails as well, the next check abandons it.
        let _ = abandon(namespace, number);
    }
    noted?;
    namespace.journal().wake();
    Ok(())
}

/// Whether the record of an amendment can no longer be corrected.
fn is_for_good(code: Code) -> bool {
    matches!(code, Code::CorrectionTooOld | Code::ReadersUnknown | Code::EntryDamaged | Code::AboveTail)
}

/// Commits dead letters in batches, and records that their amendments up to a note no longer wait, if they did.
fn bury_all(
    namespace: &Namespace,
    name: &LogName,
    waiting: Option<(&Log, u64)>,
    dead: &[(&Correction, Error)],
) -> Result<()> {
    let (journal, mut rest) = (namespace.journal(), dead);
    while !rest.is_empty() {
        let part = journal.commit(|tx| {
            let (mut bytes, mut part) = (0, 0_usize);
            for (correction, error) in rest {
                bytes += bury(tx, name, correction, error, journal.record_max_bytes())?;
                if let Some((notes, upto)) = waiting {
                    let line = Line::Dead { seqno: correction.seqno, upto };
                    tx.append(notes, &line.with(b""), EventId::NONE, 0)?;
                }
                part += 1;
                if bytes > BATCH_BYTES {
                    break;
                }
            }
            Ok(part)
        })?;
        rest = &rest[part.value..];
    }
    Ok(())
}

/// Stages the dead letter of an amendment. Its length.
fn bury(
    tx: &mut Transaction<'_>,
    name: &LogName,
    correction: &Correction,
    error: &Error,
    bytes_max: usize,
) -> Result<usize> {
    let letter = letter(name, correction, error, bytes_max);
    let dead = log_name(DEAD_LETTERS);
    let log = match tx.catalog().log(&dead) {
        Some(log) => log.clone(),
        None => tx.create_log(&dead, DEAD_LETTERS_HISTORY)?,
    };
    tx.append(&log, letter.as_bytes(), EventId::NONE, 0)?;
    Ok(letter.len())
}

/// The dead letter of an amendment. If it would be too long, it has the first bytes of the value, and a mark of this.
fn letter(name: &LogName, correction: &Correction, error: &Error, bytes_max: usize) -> String {
    let with = |bytes: Option<&[u8]>, cut: bool| {
        let mut letter = serde_json::json!({
            "log": &**name, "seqno": correction.seqno, "void": correction.value.is_none(),
            "code": error.code().id(), "error": error.detail(),
        });
        let value = bytes.map(|bytes| serde_json::to_value(JsonBytes(bytes)));
        if let (Some(Ok(serde_json::Value::Object(value))), Some(letter)) = (value, letter.as_object_mut()) {
            letter.extend(value);
            if cut {
                letter.insert("cut".to_owned(), true.into());
            }
        }
        letter.to_string()
    };
    let whole = with(correction.value.as_deref(), false);
    match &correction.value {
        Some(value) if whole.len() > bytes_max => with(Some(&value[..value.len().min(bytes_max / CUT)]), true),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_a_line_and_the_bytes_behind_it() {
        for (line, bytes) in [
            (Line::Amend { seqno: 7, void: false }, &b"21.5\n\xFF"[..]),
            (Line::Amend { seqno: u64::MAX, void: true }, b""),
            (Line::Dead { seqno: u64::MAX, upto: u64::MAX }, b""),
            (Line::Policy { policy: AmendPolicy { count: u64::MAX, age_ms: u64::MAX }, taken: u64::MAX }, b""),
        ] {
            let note = line.with(bytes);
            assert!(note.len() - bytes.len() <= LINE_BYTES, "{}", note.len());
            assert_eq!(Line::split(&note), Some((line, bytes)));
        }
        assert_eq!(Line::split(b"{\"note\":\"later\"}\n"), None);
        assert_eq!(Line::split(b"{}"), None);
    }

    #[test]
    fn a_dead_letter_is_cut_to_the_length_of_a_record() {
        let (name, error) = (log_name("raw"), Code::CorrectionTooOld.error("it is gone"));
        for byte in [b'a', 1, b'"', 0xFF] {
            let dead =
                |bytes| letter(&name, &Correction { seqno: 1, value: Some(vec![byte; bytes]) }, &error, 16 << 10);
            assert!(!dead(1000).contains("\"cut\""));
            let long = dead(16 << 10);
            assert!(long.len() <= 16 << 10 && long.contains("\"cut\":true"), "{byte}: {} bytes", long.len());
        }
    }

    #[test]
    fn a_repair_that_was_left_behind_is_abandoned_though_nothing_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(dir.path(), &millrace_namespace::CreateOptions::default()).unwrap();
        let log = namespace.create_log(&log_name("raw"), 10).unwrap();
        namespace.append("raw", b"20", millrace_namespace::AppendOptions::default()).unwrap();
        let kept = [Correction { seqno: 1, value: Some(b"21".to_vec()) }];
        let opening = |auto| Opening {
            reason: "a test".to_owned(),
            append_new: true,
            auto,
            across: Vec::new(),
            accept_unknown: false,
            run_external: Vec::new(),
        };
        let phase = |number| repair(&namespace, number).unwrap().phase;
        let mut attempts = Attempts::default();
        let left = begin(&namespace, &log, &kept, opening(true)).unwrap();
        assert_eq!(take_due(&namespace, &mut attempts).unwrap(), Due::Taken);
        assert_eq!(phase(left), Phase::Abandoned);
        // A host noted that it could not continue this one, and ended before it gave it up.
        let stopped = begin(&namespace, &log, &kept, opening(true)).unwrap();
        let code = Code::RepairUnsupported.id().to_owned();
        let noted = Note::Stopped { repair: stopped, code, error: "a test".to_owned() };
        namespace.journal().commit(|tx| note(tx, &noted).map(drop)).unwrap();
        assert_eq!(phase(stopped), Phase::Stopped);
        assert_eq!(take_due(&namespace, &mut attempts).unwrap(), Due::Taken);
        assert_eq!(phase(stopped), Phase::Abandoned);
        // A process may still be opening this one.
        let asked = begin(&namespace, &log, &kept, opening(false)).unwrap();
        assert_eq!(take_due(&namespace, &mut attempts).unwrap(), Due::Nothing);
        assert_eq!(phase(asked), Phase::Open);
    }

    #[test]
    fn amendments_whose_repair_stops_wait_again_and_become_dead_letters_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(dir.path(), &millrace_namespace::CreateOptions::default()).unwrap();
        let name = log_name("raw");
        let log = namespace.create_log(&name, 10).unwrap();
        for value in ["20", "30"] {
            namespace.append("raw", value.as_bytes(), millrace_namespace::AppendOptions::default()).unwrap();
        }
        let policy = AmendPolicy { count: 2, age_ms: 3_600_000 };
        declare_amendable(&namespace, &name, Some(policy)).unwrap();
        let of = |seqno, value: Option<&str>| Correction { seqno, value: value.map(|value| value.as_bytes().to_vec()) };
        let waiting = || {
            let catalog = namespace.journal().catalog().unwrap();
            let state = read(&namespace, catalog.log(&notes_of(&log)).unwrap(), true).unwrap();
            state.waiting.into_iter().map(|waiting| waiting.correction).collect::<Vec<_>>()
        };
        let error = Code::RepairUnsupported.error("it cannot be replayed");
        let (first, void) = (of(1, Some("21")), of(2, None));
        for times in 1..=STOPS_MAX {
            let opening = Opening {
                reason: "a test".to_owned(),
                append_new: true,
                auto: true,
                across: Vec::new(),
                accept_unknown: false,
                run_external: Vec::new(),
            };
            let number = begin(&namespace, &log, &[first.clone(), void.clone()], opening).unwrap();
            // A newer one has come meanwhile.
            let newer = of(1, Some("22"));
            if times == 2 {
                amend(&namespace, &Amendments { log: name.clone(), corrections: vec![newer.clone()] }).unwrap();
            }
            give_back(&namespace, &repair(&namespace, number).unwrap(), &error).unwrap();
            let found = repair(&namespace, number).unwrap();
            assert_eq!((found.phase, found.error.is_some()), (Phase::Abandoned, true));
            let expected = match times {
                STOPS_MAX => vec![],
                2 => vec![newer, void.clone()],
                _ => vec![first.clone(), void.clone()],
            };
            assert_eq!(waiting(), expected, "{times}");
            // As if they had been taken.
            let catalog = namespace.journal().catalog().unwrap();
            let held = catalog.log(&notes_of(&log)).unwrap();
            let taken = Line::Policy { policy, taken: held.latest() }.with(b"");
            namespace.journal().commit(|tx| tx.append(held, &taken, EventId::NONE, 0).map(drop)).unwrap();
        }
        assert_eq!(namespace.log(DEAD_LETTERS).unwrap().latest(), 2);
        // Others are not held back, and the next attempt for this log has to wait.
        assert!(repairs(&namespace).unwrap().iter().all(|repair| !repair.phase.is_open()));
        let stopped = repairs(&namespace).unwrap();
        assert!(stopped_until_us(&stopped, &name, u64::MAX).is_some());
        assert_eq!(stopped_until_us(&stopped, &name, 1), None, "the clock was ahead, and is right again");
    }

    #[test]
    fn so_many_amendments_wait_and_no_more() {
        let of = |bytes: usize| Correction { seqno: 1, value: Some(vec![0; bytes]) };
        let amendment = |bytes| Amendment { note: 1, at: Hlc::default(), bytes, correction: of(0) };
        let name = log_name("raw");
        let mut state = State::default();
        state.policy.count = AMEND_COUNT_MAX;
        let all: Vec<_> = (0..AMEND_COUNT_MAX).map(|_| of(0)).collect();
        assert!(state.check_room(&name, &all).is_ok());
        state.waiting.push(amendment(10));
        assert!(!state.is_due(0));
        assert_eq!(state.check_room(&name, &all).map_err(|error| error.code()), Err(Code::AmendmentsWait));
        state.waiting.push(amendment(WAITING_BYTES_MAX / 2));
        assert!(state.check_room(&name, &[of(1000)]).is_ok() && state.is_due(0));
        state.waiting.push(amendment(WAITING_BYTES_MAX / 2 - 20));
        assert!(state.check_room(&name, &[of(1000)]).is_err());
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.pause(7), None);
        for _ in 0..100 {
            attempts.failed(7);
        }
        let longest = PAUSE * (1 << PAUSE_DOUBLINGS);
        assert!(attempts.pause(7).is_some_and(|pause| pause > longest / 2 && pause <= longest));
        assert_eq!(attempts.pause(8), None);
    }
}
