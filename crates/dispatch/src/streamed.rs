//! Streamed runs: each append is published at once, and a further attempt gets the answers of the earlier ones.
//!
//! ```text
//!   attempt 1:   get -> a   now -> t   append -> 7   random -> r   (the host ends)
//!   journal:    [CALL get a, CALL now t, APPEND 7, CALL append 7]
//!   attempt 2:   get -> a   now -> t   append -> 7   random -> r'  …        recorded | live
//! ```
//!
//! Answers are journaled together with the next append, or with the run's DONE: before that, nothing depends on them. A call that differs
//! from the recorded call of the same number is a divergence, and the run is given up. Source: CSPOT's handlers, whose appends are visible
//! at once; the replay is new.

use super::{
    Shared,
    publish::Fate,
    stage::{APPENDS_MAX, Awaiting, Printing, Target, has_database, now_ns},
    worker::{Batch, Fired},
};
use millrace_journal::{Kind, Position};
use millrace_namespace::{
    RunResult,
    admission::{Publish, Room, Stage},
    definition::{Checked, Readable, Rights, Writable},
    gate::{Of, Site},
    outbox::NewMessage,
    runs::{
        call::{Answer, Call, Fingerprint, INLINE_MAX_BYTES, Question},
        flows::{Flow, Way},
    },
};
use millrace_runtime::{LogCalls, Outcome, no_tables};
use millrace_wire::{
    Code, Error, EventId, LogName, Result,
    table::{TableAnswer, TableRequest},
};
use std::collections::BTreeMap;

/// Most calls of one run: each is an entry in the journal.
const CALLS_MAX: usize = 50_000;

/// Where the CALL entries of pending runs stand, by run.
#[derive(Default)]
pub(super) struct Recorded {
    runs: BTreeMap<EventId, Vec<Position>>,
}

impl Recorded {
    /// A CALL was read. A copy that was carried forward takes the place of the original.
    pub fn call(&mut self, run: EventId, ordinal: u16, position: Position) {
        let positions = self.runs.entry(run).or_default();
        let place = usize::from(ordinal);
        if positions.len() <= place {
            positions.resize(place + 1, Position::default());
        }
        positions[place] = position;
    }

    pub fn done(&mut self, run: EventId) {
        if !self.runs.is_empty() {
            self.runs.remove(&run);
        }
    }

    pub fn has(&self, run: EventId) -> bool {
        self.runs.contains_key(&run)
    }

    fn of(&self, run: EventId) -> Vec<Position> {
        self.runs.get(&run).cloned().unwrap_or_default()
    }
}

/// A call that is answered, but not yet journaled: number, seqno and payload of its entry.
pub(super) type Unrecorded = (u16, u64, Vec<u8>);

/// Why a run cannot continue, even if its function handles the error.
enum Stop {
    /// Trying again cannot help.
    Hopeless(Error),
    /// The function is at fault.
    Failed(Error),
    /// The journal did not take an append.
    Refused(Error),
    /// Another dispatcher has taken the run, or this one has stopped.
    Superseded,
}

/// Answers the calls of one streamed run.
pub(super) struct StreamedCalls<'a> {
    shared: &'a Shared,
    batch: &'a Batch,
    run: &'a Fired,
    /// The calls and answers of earlier attempts.
    recorded: Vec<Call>,
    /// Calls made in this attempt.
    made: usize,
    appends: usize,
    unrecorded: Vec<Unrecorded>,
    /// The result, as a DONE has it.
    result: Vec<u8>,
    stop: Option<Stop>,
}

impl Shared {
    /// The calls and answers of earlier attempts at the run.
    fn recorded(&self, run: EventId) -> Result<Vec<Call>> {
        let journal = self.namespace.journal();
        let read = |positions: Vec<Position>| {
            let call = |(number, position): (usize, Position)| {
                let lost = |why: &dyn std::fmt::Display| {
                    Code::ReplayImpossible.error(format!("call {} of an earlier attempt: {why}", number + 1))
                };
                let entry = journal.entry_at(position).map_err(|error| lost(&error))?;
                let ours = entry.kind == Kind::Call && entry.cause == run && usize::from(entry.ordinal) == number;
                let call = ours.then(|| Call::decode(entry.seqno, &entry.payload)).flatten();
                call.ok_or_else(|| lost(&"its entry is missing"))
            };
            positions.into_iter().enumerate().map(call).collect::<Result<Vec<_>>>()
        };
        let positions = self.state().recorded.of(run);
        read(positions).or_else(|_| {
            // Retention may have carried them forward since.
            let mut state = self.state();
            state.fold(journal.tail())?;
            let positions = state.recorded.of(run);
            drop(state);
            read(positions)
        })
    }
}

impl<'a> StreamedCalls<'a> {
    pub fn new(shared: &'a Shared, batch: &'a Batch, run: &'a Fired) -> Self {
        let (recorded, stop) = match shared.recorded(run.claimed.trigger.run) {
            Ok(recorded) => (recorded, None),
            Err(error) => (Vec::new(), Some(Stop::Hopeless(error))),
        };
        Self { shared, batch, run, recorded, made: 0, appends: 0, unrecorded: Vec::new(), result: Vec::new(), stop }
    }

    /// Whether the run cannot even be begun.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// The outcome of the run, and the calls and the result that are journaled with its end.
    pub fn end(self, outcome: Outcome) -> (Fate, Vec<Unrecorded>, Vec<u8>) {
        let fate = match (self.stop, outcome) {
            (Some(Stop::Hopeless(error)), _) => Fate::Hopeless(error),
            (Some(Stop::Failed(error)), _) => Fate::Failed(error),
            (Some(Stop::Refused(error)), _) => Fate::Refused(error),
            (Some(Stop::Superseded), _) | (None, Outcome::NotStarted) => Fate::Unused,
            (None, Outcome::Failed(error)) => Fate::Failed(error),
            (None, Outcome::CannotStart(error)) => Fate::CannotStart(error),
            (None, Outcome::Done) => match self.recorded.get(self.made) {
                None => Fate::Well,
                Some(missed) => Fate::Hopeless(Code::ReplayDiverged.error(format!(
                    "an earlier attempt continued with call {}, {}; this attempt ended before it",
                    self.made + 1,
                    missed.question
                ))),
            },
        };
        (fate, self.unrecorded, self.result)
    }

    fn stopped<T>(&mut self, stop: Stop) -> Result<T> {
        let error = match &stop {
            Stop::Hopeless(error) | Stop::Failed(error) | Stop::Refused(error) => error.clone(),
            Stop::Superseded => Code::RunInterrupted.error("another process took over the run"),
        };
        self.stop.get_or_insert(stop);
        Err(error)
    }

    /// The answer of an earlier attempt to the call with this number; `None` if no attempt made it.
    fn recall(&mut self, question: &Question) -> Result<Option<Answer>> {
        match &self.stop {
            Some(Stop::Hopeless(error) | Stop::Failed(error) | Stop::Refused(error)) => return Err(error.clone()),
            Some(Stop::Superseded) => return self.stopped(Stop::Superseded),
            None => {}
        }
        let number = self.made + 1;
        let Some(recorded) = self.recorded.get(self.made) else {
            if self.made == CALLS_MAX {
                let error = Code::RunTooWide.error(format!("the run makes more than {CALLS_MAX} calls"));
                return self.stopped(Stop::Failed(error));
            }
            return Ok(None);
        };
        if recorded.question != *question {
            let error = Code::ReplayDiverged
                .error(format!("call {number} was {} in an earlier attempt, and is now {question}", recorded.question));
            return self.stopped(Stop::Hopeless(error));
        }
        self.made += 1;
        Ok(Some(recorded.answer.clone()))
    }

    /// Records an answer.
    fn note(&mut self, question: Question, answer: Answer) {
        let (seqno, payload) = Call { question, answer }.encode();
        self.unrecorded.push((self.made as u16, seqno, payload)); // at most CALLS_MAX
        self.made += 1;
    }

    /// Appends now, together with the run's previous answers.
    fn publish(&mut self, target: &Target<Writable<'_>>, question: Question, data: &[u8]) -> Result<u64> {
        let shared = self.shared;
        let (function, cause, fired) = (self.batch.function, self.run.claimed.trigger.run, self.run.fired);
        let ordinal = self.appends as u16; // at most APPENDS_MAX
        let journal = shared.namespace.journal();
        let mut state = shared.state();
        if state.halted {
            drop(state);
            return self.stopped(Stop::Superseded);
        }
        let mut superseded = false;
        let mut feeds_itself = false;
        let mut to = None;
        let committed = journal.commit(|tx| {
            state.fold(tx.tail())?;
            if !state.engine.holds(function, cause, Some(fired)) {
                superseded = true;
                return Err(Code::RunInterrupted.error("another process took over the run"));
            }
            let gate = shared.namespace.gate();
            for (number, seqno, payload) in self.unrecorded.iter().filter(|_| !gate.is_out(Site::Reported, Of::Disk)) {
                tx.call(function, cause, *number, *seqno, payload)?;
            }
            let mut publish = Publish::new(&shared.namespace, tx);
            let appended = match target {
                Target::Log(writable) => {
                    let name = writable.name();
                    let log = millrace_namespace::found(tx.catalog().log(name), name)?.clone();
                    to = Some(log.id());
                    let bound = publish.bindings().of_log(log.id());
                    feeds_itself = bound.iter().any(|bound| bound.function == function);
                    let stage = Stage { cause, ordinal, room: Room::Run, named: None, ending: None };
                    publish.append(tx, &log, data, stage)?
                }
                Target::Address(to) => {
                    let letter = NewMessage { to, function: None, data, cause, ordinal };
                    publish.send(tx, Room::Run, letter)?
                }
            };
            let (seqno, payload) = Call { question, answer: Answer::Number(appended.seqno) }.encode();
            if !gate.is_out(Site::Published, Of::Disk) {
                tx.call(function, cause, self.made as u16, seqno, &payload)?;
            }
            Ok(seqno)
        });
        let committed = match committed {
            Ok(committed) => committed,
            Err(_) if superseded => {
                drop(state);
                return self.stopped(Stop::Superseded);
            }
            Err(error) => {
                drop(state);
                // A function that feeds itself would wait for itself.
                let own = feeds_itself && error.code() == Code::RoomExhausted;
                return self.stopped(if own { Stop::Failed(error) } else { Stop::Refused(error) });
            }
        };
        let folded = state.fold(committed.end);
        drop(state);
        let flows = to.map(|log| (Flow { function, log, way: Way::Appends }, 1));
        shared.namespace.flows().count(flows.into_iter());
        self.unrecorded.clear();
        self.made += 1;
        self.appends += 1;
        if let Err(error) = folded {
            return self.stopped(Stop::Refused(error));
        }
        Ok(committed.value)
    }

    fn rights(&self) -> &'a Rights {
        &self.batch.starter.definition().spec.rights
    }

    /// The log, if the function may read it. A recorded answer is repeated whatever the current rights.
    fn readable<'n>(&self, log: &'n str) -> Result<Readable<'n>> {
        self.rights().readable(log, None)
    }

    /// What a run with a network reads, it can show. No run reads a synchronous change that its database lacks.
    fn await_written(&mut self, log: &str) -> Result<()> {
        let journal = self.shared.namespace.journal();
        let waited = match self.batch.starter.definition().spec.network {
            true => self.shared.await_written(journal.tail()),
            false => journal.catalog().and_then(|catalog| match catalog.log(log).filter(|log| has_database(log)) {
                Some(log) => self.shared.synchronous(log),
                None => Ok(()),
            }),
        };
        // The run is tried again later; that it waited in vain is no answer of the log.
        waited.or_else(|error| self.stopped(Stop::Refused(error)))
    }

    fn read(&self, log: Readable<'_>, seqno: u64) -> Result<Vec<u8>> {
        let name: LogName = log.name().parse()?;
        let log = self.shared.namespace.journal().log(&name)?;
        let mut payload = Vec::new();
        self.shared.namespace.journal().get(&log, seqno, &mut payload)?;
        Ok(payload)
    }

    fn newest(&self, log: Readable<'_>) -> Result<u64> {
        let name: LogName = log.name().parse()?;
        Ok(self.shared.namespace.journal().log(&name)?.latest())
    }
}

impl LogCalls for StreamedCalls<'_> {
    fn printed(&mut self, bytes: &[u8]) {
        let run = self.run.claimed.trigger.run;
        Printing::new(self.shared.namespace.printed(), &self.batch.starter, run).add(bytes);
    }

    fn result(&mut self, result: &[u8]) {
        self.result = RunResult::admitted(result).to_bytes();
    }

    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        let question = Question::Append { to: log.into(), data: Fingerprint::of(payload) };
        if let Some(Answer::Number(seqno)) = self.recall(&question)? {
            self.appends += 1;
            return Ok(Some(seqno));
        }
        if self.appends == APPENDS_MAX {
            let error = Code::RunTooWide.error(format!("the run appends more than {APPENDS_MAX} records"));
            return self.stopped(Stop::Failed(error));
        }
        match Target::named(log, self.rights(), None) {
            Ok(target) => self.publish(&target, question, payload).map(Some),
            Err(error) => self.stopped(Stop::Failed(error)),
        }
    }

    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>> {
        let question = Question::Get { log: log.into(), seqno };
        match self.recall(&question)? {
            None => {}
            Some(Answer::Refused(error)) => return Err(error),
            Some(Answer::Bytes(bytes)) => return Ok(bytes),
            Some(_) => {
                return self.read(Readable::granted_before(log), seqno).or_else(|error| {
                    let detail = format!(
                        "call {}, {question}, returned a record that can no longer be read: {error}",
                        self.made
                    );
                    self.stopped(Stop::Hopeless(Code::ReplayImpossible.error(detail)))
                });
            }
        }
        let read = self.readable(log).and_then(|log| self.read(log, seqno));
        self.await_written(log)?;
        let answer = match &read {
            Ok(bytes) if bytes.len() > INLINE_MAX_BYTES => Answer::Stored,
            Ok(bytes) => Answer::Bytes(bytes.clone()),
            Err(error) => Answer::Refused(error.clone()),
        };
        self.note(question, answer);
        read
    }

    fn latest(&mut self, log: &str) -> Result<u64> {
        let question = Question::Latest { log: log.into() };
        match self.recall(&question)? {
            Some(Answer::Number(seqno)) => return Ok(seqno),
            Some(Answer::Refused(error)) => return Err(error),
            _ => {}
        }
        let newest = self.readable(log).and_then(|log| self.newest(log));
        self.await_written(log)?;
        let answer =
            newest.as_ref().map_or_else(|error| Answer::Refused(error.clone()), |seqno| Answer::Number(*seqno));
        self.note(question, answer);
        newest
    }

    fn table(&mut self, table: &str, request: &[u8]) -> Result<Vec<u8>> {
        if TableRequest::decode(request)? != TableRequest::Externalize {
            return Err(no_tables(table));
        }
        // What it has published is written, too. In a further attempt it waits again, which changes nothing.
        self.shared
            .await_written(self.shared.namespace.journal().tail())
            .or_else(|error| self.stopped(Stop::Refused(error)))?;
        Ok(TableAnswer::default().encode())
    }

    fn now_ns(&mut self) -> u64 {
        match self.recall(&Question::Now) {
            Ok(Some(Answer::Number(ns))) => ns,
            Ok(_) => {
                let now = now_ns();
                self.note(Question::Now, Answer::Number(now));
                now
            }
            // The run has failed already, so the answer does not matter.
            Err(_) => now_ns(),
        }
    }

    fn random(&mut self, bytes: &mut [u8]) {
        let question = Question::Random { bytes: bytes.len() };
        let recalled = self.recall(&question);
        if let Ok(Some(Answer::Bytes(recorded))) = &recalled {
            return bytes.copy_from_slice(recorded);
        }
        super::stage::fill_random(bytes);
        if recalled.is_ok() {
            self.note(question, Answer::Bytes(bytes.to_vec()));
        }
    }

    fn secret(&mut self, name: &str) -> Result<Vec<u8>> {
        self.batch.starter.secret(name)
    }
}
