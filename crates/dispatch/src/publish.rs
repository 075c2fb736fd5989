//! Publication: makes the effects of a run visible, all at once and together with its DONE.

use super::{
    HostEvent, Shared,
    engine::Verdict,
    stage::{Effects, Stage, Target, keyed},
    state::{State, is_transient},
    worker::{Batch, Fired},
};
use millrace_journal::{End, Outcome, Run, Transaction, What};
use millrace_namespace::{
    RunIsolation,
    admission::{Publish, Room, Stage as Admission},
    fence::Verdict as Fenced,
    outbox::NewMessage,
    runs::{
        Ending,
        flows::{Flow, Way},
    },
};
use millrace_wire::{Code, Error, EventId, JsonBytes, Result};
use serde::Serialize;
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{MutexGuard, atomic::Ordering},
    time::Duration,
};

/// The longest record that its dead letter repeats; a longer one is only named.
const DEAD_LETTER_DATA_MAX: usize = 64 << 10;
/// The longest description of an error that a dead letter has.
const DEAD_LETTER_ERROR_MAX: usize = 16 << 10;

/// How a run of a batch ended.
pub(super) struct Ended {
    pub index: usize,
    pub fate: Fate,
    pub output: Vec<u8>,
    pub elapsed: Duration,
}

impl Ended {
    /// A run that was not started.
    pub fn unused(index: usize) -> Self {
        Self { index, fate: Fate::Unused, output: Vec::new(), elapsed: Duration::ZERO }
    }
}

pub(super) enum Fate {
    Well,
    Failed(Error),
    /// The function could not be started.
    CannotStart(Error),
    /// Trying again cannot help.
    Hopeless(Error),
    /// The journal did not take an append of a streamed run.
    Refused(Error),
    Unused,
}

/// The effects of one run that are to be published.
struct Publication {
    ended: Ended,
    /// Why the run is given up; `None` if it ended well.
    dead: Option<Error>,
}

/// The outcome of a publication.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Published {
    Yes,
    /// Another dispatcher took or ended the run.
    Stale,
    /// It relied on something that was not published as it had seen it.
    Conflict,
    /// It has used what this repair is about to replace.
    Waits(u64),
}

/// The events for the observer, passed on once the lock is free.
struct Notice {
    ended: Ended,
    error: Option<Error>,
    retry_in: Option<Duration>,
}

/// A record in a dead-letter log.
#[derive(Serialize)]
pub(crate) struct DeadLetter<'a> {
    run: String,
    function: &'a str,
    log: &'a str,
    seqno: u64,
    attempts: u32,
    code: &'a str,
    error: &'a str,
    /// The record's bytes; `None` if they are too many.
    #[serde(flatten)]
    data: Option<JsonBytes<'a>>,
}

impl<'a> DeadLetter<'a> {
    /// The dead letter of a run of this record. The payload is none if it is gone.
    pub fn new(
        run: EventId,
        function: &'a str,
        (log, seqno, payload): (&'a str, u64, Option<&'a [u8]>),
        attempts: u32,
        error: &'a Error,
    ) -> Self {
        let detail = error.detail();
        Self {
            run: run.to_string(),
            function,
            log,
            seqno,
            attempts,
            code: error.code().id(),
            error: &detail[..detail.floor_char_boundary(DEAD_LETTER_ERROR_MAX)],
            data: payload.filter(|payload| payload.len() <= DEAD_LETTER_DATA_MAX).map(JsonBytes),
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names, numbers and text always make JSON")
    }
}

/// One call of [`Shared::settle`]: the batch, and what is learned on the way.
struct Settling<'a, 's> {
    shared: &'a Shared,
    batch: &'a Batch,
    stage: &'a RefCell<Stage<'s>>,
    state: MutexGuard<'a, State>,
    notices: Vec<Notice>,
    /// Runs that wait again, although the journal has them in progress.
    waiting: Vec<(Run, EventId)>,
}

impl Shared {
    /// Processes the ends of the runs of a batch, in order: publishes them, gives them up, or lets them be tried again.
    pub(super) fn settle(&self, batch: &Batch, stage: &RefCell<Stage<'_>>, ended: Vec<Ended>) {
        if ended.is_empty() {
            return;
        }
        let state = self.state();
        if state.halted {
            return;
        }
        let mut settling = Settling { shared: self, batch, stage, state, notices: Vec::new(), waiting: Vec::new() };
        let publications = settling.sort(ended);
        settling.publish(publications);
        settling.note_waiting();
        let Settling { state, notices, waiting, .. } = settling;
        drop(state);
        self.tell(batch, &notices);
        if !waiting.is_empty() {
            self.namespace.journal().wake(); // the leader sleeps by an older deadline
        }
    }

    /// Tells the observer.
    fn tell(&self, batch: &Batch, notices: &[Notice]) {
        let mut failed: u64 = 0;
        let measures = self.namespace.measures().function(&batch.name);
        for Notice { ended, error, retry_in } in notices {
            let run = &batch.runs[ended.index].claimed;
            let (function, output) = (&batch.name, &*ended.output);
            if !output.is_empty() {
                self.namespace.printed().over(run.trigger.run);
            }
            // A run that could not be started has taken no time.
            if let Some(measures) = measures.as_ref().filter(|_| !ended.elapsed.is_zero()) {
                measures.run.add(ended.elapsed);
            }
            match error {
                None => {
                    let (run, elapsed_us) = (run.trigger.run, ended.elapsed.as_micros() as u64);
                    tracing::debug!(target: "runs", %function, %run, elapsed_us, "done");
                    self.observe(&HostEvent::Done { function, run, elapsed: ended.elapsed, output })
                }
                Some(error) => {
                    failed += 1;
                    let (run, attempt, retry_in) = (run.trigger.run, run.attempt, *retry_in);
                    let (code, retry_ms) = (error.code().id(), retry_in.map(|pause| pause.as_millis() as u64));
                    // Without the message, which may have what the run printed.
                    match retry_in {
                        Some(_) => tracing::info!(target: "runs", %function, %run, attempt, code, retry_ms, "failed"),
                        None => tracing::info!(target: "runs", %function, %run, attempt, code, "given up"),
                    }
                    self.observe(&HostEvent::Failed { function, run, attempt, error, retry_in, output });
                }
            }
        }
        self.runs_done.fetch_add(notices.len() as u64 - failed, Ordering::Relaxed);
        self.runs_failed.fetch_add(failed, Ordering::Relaxed);
    }
}

impl Settling<'_, '_> {
    fn fired(&self, ended: &Ended) -> &Fired {
        &self.batch.runs[ended.index]
    }

    fn serial(&self) -> bool {
        self.batch.starter.definition().spec.serial()
    }

    /// Gives a run back as if it had not been claimed.
    fn release(&mut self, ended: &Ended) {
        let run = &self.batch.runs[ended.index];
        self.state.engine.release(self.batch.function, run.claimed.trigger.run, Some(run.fired));
        self.waiting.push((run.claimed.trigger.as_run(), run.fired));
    }

    /// Journals which runs wait, because the next host would otherwise consider their attempts interrupted by the end of this one. If it
    /// cannot be journaled now, for instance on a full disk, nothing else changes.
    fn note_waiting(&mut self) {
        let (function, state, waiting) = (self.batch.function, &mut *self.state, &self.waiting);
        if waiting.is_empty() {
            return;
        }
        let noted = self.shared.namespace.journal().commit(|tx| {
            state.fold(tx.tail())?;
            for (run, fired) in waiting {
                if let Some(attempt) = state.engine.untold(function, run.id, *fired) {
                    tx.fired(function, *run, &attempt)?;
                }
            }
            Ok(())
        });
        if let Ok(noted) = noted {
            // Entries that cannot be read now are read with the next claim.
            let _ = state.fold(noted.end);
        }
    }

    /// Those that are to be published; the others are given back or back off.
    fn sort(&mut self, ended: Vec<Ended>) -> Vec<Publication> {
        let mut publications = Vec::with_capacity(ended.len());
        for mut ended in ended {
            if self.batch.broken.get() {
                self.release(&ended);
                continue;
            }
            match std::mem::replace(&mut ended.fate, Fate::Unused) {
                Fate::Well => publications.push(Publication { ended, dead: None }),
                Fate::Hopeless(error) => publications.push(Publication { ended, dead: Some(error) }),
                Fate::Unused => {
                    self.batch.broken.set(self.serial());
                    self.release(&ended);
                }
                Fate::CannotStart(error) => self.start_failed(&ended, error),
                Fate::Failed(error) => publications.extend(self.failed(ended, error)),
                Fate::Refused(error) => self.refused(Publication { ended, dead: None }, &error),
            }
        }
        publications
    }

    /// The function could not be started: that is no fault of the record, so the attempt does not count.
    fn start_failed(&mut self, ended: &Ended, error: Error) {
        self.release(ended);
        self.batch.broken.set(true);
        self.state.engine.start_failed(self.batch.function, error.clone(), self.shared.now());
        self.notices.push(Notice {
            ended: Ended::unused(ended.index),
            error: Some(error.within("the function cannot be started")),
            retry_in: self
                .state
                .engine
                .view(self.batch.function)
                .and_then(|view| Some(Duration::from_millis(view.stop?.until.saturating_sub(self.shared.now())))),
        });
    }

    /// An attempt failed: the run backs off, or (then it is returned) is to be given up.
    fn failed(&mut self, ended: Ended, error: Error) -> Option<Publication> {
        let run = self.fired(&ended);
        let (id, waiting, fence) = (run.claimed.trigger.run, run.claimed.trigger.as_run(), run.fired);
        match self.state.engine.failed(self.batch.function, id, fence, error.clone(), self.shared.now()) {
            Verdict::Stale => None,
            Verdict::Exhausted => Some(Publication { ended, dead: Some(error) }),
            Verdict::Retry { delay_ms } => {
                self.batch.broken.set(self.batch.broken.get() || self.serial());
                self.waiting.push((waiting, fence));
                let retry_in = Some(Duration::from_millis(delay_ms));
                self.notices.push(Notice { ended, error: Some(error), retry_in });
                None
            }
        }
    }

    /// Publishes in one commit; if that is refused, one by one, to find out whose fault it is.
    fn publish(&mut self, publications: Vec<Publication>) {
        if publications.is_empty() {
            return;
        }
        match self.commit(&publications) {
            Ok(published) => self.published(publications, &published),
            Err(error) if publications.len() == 1 => {
                publications.into_iter().for_each(|publication| self.refused(publication, &error));
            }
            Err(_) => {
                for publication in publications {
                    if self.batch.broken.get() {
                        self.release(&publication.ended);
                        continue;
                    }
                    match self.commit(std::slice::from_ref(&publication)) {
                        Ok(published) => self.published(vec![publication], &published),
                        Err(error) => self.refused(publication, &error),
                    }
                }
            }
        }
    }

    /// One batch of the journal: for each run READ…, APPEND…, TRIGGER…, DONE.
    fn commit(&mut self, publications: &[Publication]) -> Result<Vec<Published>> {
        let (shared, batch, state) = (self.shared, self.batch, &mut *self.state);
        let stage = self.stage.borrow();
        let serial = batch.starter.definition().spec.serial();
        let is_serializable = batch.starter.definition().spec.isolation == RunIsolation::Serializable;
        let alone_since = is_serializable.then_some(batch.snapshot);
        let reads_max = shared.namespace.journal().record_max_bytes() / 2;
        let committed = shared.namespace.journal().commit(|tx| {
            state.fold(tx.tail())?;
            let mut publish = Publish::new(&shared.namespace, tx);
            let effects = |publication: &Publication| stage.effects(publication.ended.index);
            // The newest seqnos of the logs that runs depend on, updated while this batch appends to them.
            let depends = publications.iter().flat_map(|publication| &effects(publication).depends);
            let mut newest: HashMap<u32, u64> = depends.map(|(log, _)| (log.id(), log.latest())).collect();
            let mut tainted = batch.tainted.get();
            let mut published = Vec::with_capacity(publications.len());
            for publication in publications {
                let run = &batch.runs[publication.ended.index];
                let effects = effects(publication);
                let as_seen = effects.depends.iter().all(|(log, seqno)| newest.get(&log.id()) == Some(seqno));
                let trigger = &run.claimed.trigger;
                let used = effects.used().chain([(trigger.log, trigger.seqno, What::Record)]);
                let fenced = shared.namespace.fence().judge(batch.function, batch.snapshot, used);
                let keyed = match publication.dead {
                    None => keyed::as_seen(&publish, effects, &|run| batch.runs[run].claimed.trigger.run, alone_since)?,
                    Some(_) => Some(effects.reads.clone()),
                };
                let relies = serial || !effects.depends.is_empty() || effects.keyed.relies();
                published.push(if !state.engine.holds(batch.function, run.claimed.trigger.run, Some(run.fired)) {
                    Published::Stale
                } else if let Fenced::Waits(repair) = fenced {
                    Published::Waits(repair)
                } else if fenced == Fenced::Again || !as_seen || keyed.is_none() || (tainted && relies) {
                    Published::Conflict
                } else {
                    let begun = tx.next_sequence();
                    // Nothing is to keep a run from being given up: reads that take too much room are left out with it.
                    let reads = keyed.filter(|reads| publication.dead.is_none() || reads.bytes() <= reads_max);
                    tx.reads(batch.function, run.claimed.trigger.as_run(), reads.unwrap_or_default())?;
                    match &publication.dead {
                        None => leave(&mut publish, tx, batch, run, effects, &mut newest)?,
                        // Its record no longer exists, so neither does the run.
                        Some(error) if error.code() == Code::RecordVoid => {}
                        Some(error) => leave_dead_letter(&publish, tx, batch, run, error, &mut newest)?,
                    }
                    let ending = match &publication.dead {
                        None => Ending::well(&publication.ended.output),
                        Some(error) => Ending::dead(error, &publication.ended.output),
                    };
                    let result = if publication.dead.is_none() { &*effects.result } else { &[] };
                    let (effects, fired) = (tx.next_sequence() - begun, run.fired.sequence());
                    let mut end = End { effects, fired, result, ..ending.to_end() };
                    if publication.dead.as_ref().is_some_and(|error| error.code() == Code::RecordVoid) {
                        end.outcome = Outcome::Cancelled;
                    }
                    tx.done(batch.function, run.claimed.trigger.as_run(), &end)?;
                    Published::Yes
                });
                tainted |= published.last() != Some(&Published::Yes);
            }
            Ok(published)
        })?;
        batch.tainted.set(batch.tainted.get() || committed.value.iter().any(|published| *published != Published::Yes));
        state.fold(committed.end)?;
        Ok(committed.value)
    }

    fn published(&mut self, publications: Vec<Publication>, published: &[Published]) {
        self.state.engine.started(self.batch.function);
        self.count(&publications, published);
        for (Publication { ended, dead }, published) in publications.into_iter().zip(published) {
            match published {
                Published::Yes => self.notices.push(Notice { ended, error: dead, retry_in: None }),
                Published::Stale => {}
                Published::Conflict => self.release(&ended),
                Published::Waits(repair) => {
                    let error = Code::RepairWaits.error(format!("the run waits for repair {repair}"));
                    self.postpone(Publication { ended, dead: None }, &error);
                }
            }
        }
    }

    /// Counts the records that the published runs took, read and left.
    fn count(&self, publications: &[Publication], published: &[Published]) {
        let stage = self.stage.borrow();
        let function = self.batch.function;
        let flow = |log, way| Flow { function, log, way };
        let ended = publications.iter().zip(published).filter(|(_, published)| **published == Published::Yes);
        let flows = ended.flat_map(|(publication, _)| {
            let effects = stage.effects(publication.ended.index);
            let trigger = &self.batch.runs[publication.ended.index].claimed.trigger;
            let appends = effects.appends.iter().filter(|_| publication.dead.is_none());
            let appends = appends.filter_map(|append| Some((flow(append.to.log()?.id(), Way::Appends), 1)));
            let reads = effects.records_read().map(|(log, records)| (flow(log, Way::Reads), records));
            appends.chain(reads).chain([(flow(trigger.log, Way::Runs), 1)])
        });
        self.shared.namespace.flows().count(flows);
    }

    /// The journal refused a single run's publication, or an append of a streamed run. Runs behind it have seen what it staged,
    /// and must run again.
    fn refused(&mut self, publication: Publication, error: &Error) {
        let Publication { ended, dead } = publication;
        // Others that lag behind are waited for; who feeds itself would wait for itself.
        let of_run = match error.code() {
            Code::RoomExhausted => self.feeds_itself(&ended) || self.never_fits(&ended),
            Code::LogNotFound | Code::RecordTooLong | Code::BatchTooLarge | Code::RunTooWide | Code::LinksFull => true,
            Code::NotATable | Code::TableNotCounter | Code::TableFull | Code::DatabaseLimit => true,
            Code::TableIsReplica => true,
            _ => false,
        };
        if of_run && dead.is_none() {
            if let Some(publication) = self.failed(ended, error.clone()) {
                match self.commit(std::slice::from_ref(&publication)) {
                    Ok(published) => self.published(vec![publication], &published),
                    Err(error) => self.postpone(publication, &error),
                }
            }
        } else {
            // An error of the whole journal ends the next worker that checks; any other error concerns this run.
            self.postpone(Publication { ended, dead }, error);
        }
        self.batch.tainted.set(true);
    }

    /// Whether the run appends to a log that its own function is bound to.
    fn feeds_itself(&self, ended: &Ended) -> bool {
        let stage = self.stage.borrow();
        self.shared.namespace.bindings().is_ok_and(|bindings| {
            let runs = |log: u32| bindings.of_log(log).iter().any(|bound| bound.function == self.batch.function);
            stage.effects(ended.index).appends.iter().filter_map(|append| append.to.log()).any(|log| runs(log.id()))
        })
    }

    /// Whether the run triggers more runs of a function than may ever wait for it: however long it waited, there would not
    /// be room for all of them.
    fn never_fits(&self, ended: &Ended) -> bool {
        let Ok(bindings) = self.shared.namespace.bindings() else { return false };
        let stage = self.stage.borrow();
        let mut triggered: HashMap<u32, u64> = HashMap::new();
        let logs = stage.effects(ended.index).appends.iter().filter_map(|append| append.to.log());
        logs.flat_map(|log| bindings.of_log(log.id())).any(|bound| {
            let count = triggered.entry(bound.function).or_default();
            *count += 1;
            *count > Room::Run.most(*bound)
        })
    }

    /// Something outside the run refuses: it is tried again later, and the attempt does not count. One that is to be given up
    /// is not run again: only its dead letter is.
    fn postpone(&mut self, Publication { ended, dead }: Publication, error: &Error) {
        self.batch.broken.set(self.batch.broken.get() || self.serial());
        let run = &self.batch.runs[ended.index];
        let (id, waiting, fence) = (run.claimed.trigger.run, run.claimed.trigger.as_run(), run.fired);
        let why = (error.clone(), dead);
        let delay_ms = self.state.engine.postpone(self.batch.function, id, fence, why, self.shared.now());
        self.waiting.push((waiting, fence));
        if !is_transient(error) {
            let retry_in = delay_ms.map(Duration::from_millis);
            self.notices.push(Notice { ended, error: Some(error.clone()), retry_in });
        }
    }
}

/// Stages what a run leaves that ended well, but for its DONE.
fn leave(
    publish: &mut Publish<'_>,
    tx: &mut Transaction<'_>,
    batch: &Batch,
    run: &Fired,
    effects: &Effects,
    newest: &mut HashMap<u32, u64>,
) -> Result<()> {
    let cause = run.claimed.trigger.run;
    for (number, seqno, payload) in &effects.calls {
        tx.call(batch.function, cause, *number, *seqno, payload)?;
    }
    let catalog = tx.catalog().clone();
    for (ordinal, append) in effects.appends.iter().enumerate() {
        let ordinal = ordinal as u16; // bounded by the stage
        let log = match &append.to {
            // The log may have been removed, or removed and created again, since the run saw it.
            Target::Log(log) => millrace_namespace::found(catalog.log_by_id(log.id()), log.name())?,
            Target::Address(to) => {
                let letter = NewMessage { to, function: None, data: &append.payload, cause, ordinal };
                publish.send(tx, Room::Run, letter)?;
                continue;
            }
        };
        let admission = Admission { cause, ordinal, room: Room::Run, named: None, ending: Some(batch.function) };
        let appended = match &append.change {
            None => publish.append(tx, log, &append.payload, admission)?,
            Some(change) => {
                let changed = publish.change(tx, log, &change.request(&append.payload), change.now_us, admission)?;
                // A key that was to be deleted had no value.
                let Some((appended, _)) = changed else { continue };
                appended
            }
        };
        newest.entry(log.id()).and_modify(|seqno| *seqno = appended.seqno);
    }
    Ok(())
}

/// Stages the dead letter of a run that is given up.
fn leave_dead_letter(
    publish: &Publish<'_>,
    tx: &mut Transaction<'_>,
    batch: &Batch,
    run: &Fired,
    error: &Error,
    newest: &mut HashMap<u32, u64>,
) -> Result<()> {
    let spec = &batch.starter.definition().spec;
    let catalog = tx.catalog().clone();
    let trigger = &run.claimed.trigger;
    let (of_log, payload) = match &run.record {
        Ok((log, payload)) => (&**log, Some(payload)),
        Err(_) => (catalog.log_by_id(trigger.log).map_or("", |log| log.name()), None),
    };
    let record = (of_log, trigger.seqno, payload.map(Vec::as_slice));
    let letter = DeadLetter::new(trigger.run, &spec.name, record, run.claimed.attempt, error).to_bytes();
    let (cause, ending) = (trigger.run, Some(batch.function));
    let admission = |ordinal| Admission { cause, ordinal, room: Room::DeadLetter, named: None, ending };
    let (log, appended) = publish.dead_letter(tx, &spec.dead_letter, &letter, admission(0))?;
    newest.entry(log.id()).and_modify(|seqno| *seqno = appended.seqno);
    match payload {
        Some(task) => super::functions::tasks::leave_failure(publish, tx, (of_log, task), error, admission(1)),
        None => Ok(()),
    }
}
