//! Replays: each run with a changed input is replayed, in the order in which the runs had ended.

pub(crate) mod devices;

use crate::{
    DeadLetter, Peers, Runner,
    across::{Rounds, seeds::Seeds},
    amend::give_back,
    book::{self, Counts, NewCode, NotRun, Note, Phase, Progress, Repair, TopicKept, note},
    calls::{Calls, Leaving, newest},
    overlay::{Overlay, is_after},
    past::{At, Fired, Past, Row, Run},
    settle::RowOf,
    tables::{KeyedRow, Lookup, sums::Sums},
};
use millrace_journal::{Journal, Kind, Log, Outcome as Ended, Position, Reads, Replaced, What};
use millrace_namespace::{
    Definition, Namespace,
    definition::Writable,
    outbox::topics::{self, TopicOfLog},
};
use millrace_runtime::{Invocation, Outcome, Replay};
use millrace_wire::{Code, Error, EventId, Name, Result, Transient};
use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The most records that one repair replaces: all of them are in the batch that applies it.
pub const SLOTS_MAX: usize = 1_000_000;
/// The longest time between two attempts at a replayed run.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How often the progress of a replay is noted.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The slot of a log that a repair's new entry replaces.
pub(crate) fn replaced_by(journal: &Journal, log: &Log, seqno: u64, repair: u64, void: bool) -> Result<Replaced> {
    if let Some(before) = journal.replaced(log, seqno)? {
        return Ok(Replaced { repair, void, ..before });
    }
    let mut payload = Vec::new();
    let meta = journal.get(log, seqno, &mut payload)?;
    Ok(Replaced { repair, origin: meta.id, clock: meta.hlc, void, position: meta.position })
}

/// An error if the journal may have dropped entries that a repair needs.
pub(crate) fn check_kept(journal: &Journal, repair: &Repair) -> Result<()> {
    if journal.pins()?.iter().any(|pin| pin.id == repair.pin) {
        return Ok(());
    }
    let number = repair.repair;
    Err(Code::RepairUnsupported.error(format!("the journal no longer has the records that repair {number} needs")))
}

/// A repair that is being replayed and applied.
pub struct Session<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) repair: u64,
    pub(crate) past: Past,
    pub(crate) overlay: Overlay,
    /// The next run to examine.
    next: usize,
    /// The first run that the repair may replay without a new reason.
    first: usize,
    /// The position at which the repair was opened.
    opened: Position,
    pub(crate) counts: Counts,
    /// The code that it gives a function.
    pub(crate) code: Option<(NewCode, Arc<Definition>)>,
    pub(crate) append_new: bool,
    /// Whether nobody decides about it any more: it is a part whose initiator has switched, or its corrections are amendments.
    is_decided: bool,
    /// Functions that are replayed although they may have effects outside.
    run_external: Vec<Name>,
    /// Affected runs that are not replayed.
    pub(crate) kept: HashMap<EventId, Kept>,
    /// The sums of tables that are to be made again.
    pub(crate) sums: Sums,
    /// Whether other namespaces take part, so that messages to them may change.
    pub(crate) is_across: bool,
    /// The changes that other namespaces made to records which links have delivered here.
    pub(crate) seeds: Seeds,
    /// How often the content of a slot changed.
    pub(crate) changes: u64,
    /// How many notes about repairs there were at the last check whether it was abandoned.
    news: u64,
    /// When its progress was noted.
    noted: Instant,
    runner: &'a mut dyn Runner,
    pub(crate) stop: &'a AtomicBool,
}

/// Why a run is not replayed.
pub(crate) enum Kept {
    /// Its function may have effects outside. If its record becomes void, there is nothing to run.
    External(Name),
    /// It cannot be replayed, and the repair is already decided.
    Unable(Name),
    /// It ran on a device, and there is no twin that could take its place. If its record becomes void, there is nothing to run.
    Device(Name),
}

impl<'a> Session<'a> {
    /// Resumes a repair. Once `stop` is set, it ends.
    pub fn begin(
        namespace: &'a Namespace,
        repair: &Repair,
        runner: &'a mut dyn Runner,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        check_kept(namespace.journal(), repair)?;
        let past = Past::new(namespace.journal())?;
        let (overlay, counts) = (Overlay::default(), repair.counts);
        let parsed = |code: &NewCode| -> Result<_> {
            Ok((code.clone(), Arc::new(Definition::from_attributes(&code.name, &code.attributes)?)))
        };
        let code = repair.code.as_ref().map(parsed).transpose()?;
        let opened = book::position(namespace, repair.repair)?;
        let (is_across, seeds, changes) = (repair.is_across(), Seeds::of(repair.repair), 0);
        let is_decided = repair.phase == Phase::Committing || repair.auto;
        let (undo, append_new, run_external) = (repair.undo, repair.append_new, repair.run_external.clone());
        let (repair, append_new) = (repair.repair, append_new || is_decided);
        let kept = HashMap::new();
        #[rustfmt::skip]
        let mut session = Self {
            namespace, repair, past, overlay, next: 0, first: 0, opened, counts, code, append_new, is_decided, run_external, kept,
            sums: Sums::default(), is_across, seeds, changes, news: 0, noted: Instant::now(), runner, stop,
        };
        session.follow()?;
        if let Some(undone) = undo {
            // A run from before it, which is replayed because a record of another namespace changes, runs its own code again.
            session.past.forget_code(undone);
            session.put_back(undone)?;
        }
        session.take_seeds()?;
        Ok(session)
    }

    /// The past without a repair, for reading only.
    pub(crate) fn over(namespace: &'a Namespace, past: Past, runner: &'a mut dyn Runner, stop: &'a AtomicBool) -> Self {
        let (overlay, counts, seeds) = (Overlay::default(), Counts::default(), Seeds::of(0));
        #[rustfmt::skip]
        let session = Self {
            namespace, repair: 0, past, overlay, next: 0, first: 0, opened: Position::default(), counts, code: None,
            append_new: true, is_decided: false, run_external: Vec::new(), kept: HashMap::new(), sums: Sums::default(), is_across: true, seeds, changes: 0,
            news: 0, noted: Instant::now(), runner, stop,
        };
        session
    }

    /// Replays a run that succeeded: returns its function, and whether its records are the same again; `None` if it cannot be replayed, or
    /// if its function is not `wanted`. Writes nothing.
    pub(crate) fn leaves_the_same(
        &mut self,
        run: &Run,
        wanted: impl FnOnce(&str) -> bool,
    ) -> Result<Option<(String, bool)>> {
        let Some(fired) = run.fired.filter(|fired| !fired.streamed) else { return Ok(None) };
        let Ok(definition) = self.past.definition_of(run, &fired) else { return Ok(None) };
        let Some(definition) = self.twin_of(definition)? else { return Ok(None) };
        let sent = |(log, _): &(u32, u64)| self.is_of_runtime(*log);
        if definition.spec.network || run.appends.iter().any(sent) || !wanted(&definition.spec.name) {
            return Ok(None);
        }
        if run.is_of_device() && !self.has_originals(run)? {
            return Ok(None);
        }
        // A run whose record has left the log or was removed cannot run.
        let Ok(Some(_)) = self.bytes((run.trigger.log, run.trigger.seqno)) else { return Ok(None) };
        let (appends, mut reads, dead) = match self.execute(run, &fired, &definition) {
            Err(error) if error.code() == Code::RepairUnsupported => return Ok(None),
            done => done?,
        };
        let name = definition.spec.name.to_string();
        if run.is_of_device() && run.is_dead != dead.is_some() {
            return Ok(Some((name, false)));
        }
        match self.placed(run, appends, (&mut reads, dead.is_some())) {
            Err(error) if run.is_of_device() && error.code() == Code::RepairGrows => Ok(Some((name, false))),
            left => Ok(Some((name, left?.is_empty()))),
        }
    }

    /// The corrections of a rollback: the original records.
    fn put_back(&mut self, undone: u64) -> Result<()> {
        let gone = || {
            Code::RepairUnsupported
                .error(format!("the journal no longer has the records that repair {undone} replaced"))
        };
        let applied = self.past.applied.get(&undone).ok_or_else(gone)?;
        // Records that have left their log count as well: runs may have read them before.
        let first = self.namespace.journal().first();
        let is_kept = |(slot, at): &&((u32, u64), At)| at.position >= first || self.past.is_outbox(slot.0);
        if !applied.before.iter().all(|row| is_kept(&row)) || !applied.lost.is_empty() {
            return Err(gone());
        }
        // If it is resumed after its host ended, its own entries count.
        let written = self.past.written.get(&self.repair);
        let is_newer = |slot: &(u32, u64)| written.is_some_and(|written| written.slots.contains_key(slot));
        let before: Vec<_> =
            applied.before.iter().filter(|(slot, at)| at.position >= first && !is_newer(slot)).copied().collect();
        let is_resumed = written.is_some_and(|written| !written.slots.is_empty());
        let (added, sequence) = (applied.added.clone(), applied.sequence);
        for (slot, at) in before {
            let is_table = self.past.logs.get(&slot.0).is_some_and(|log| log.versions.is_some());
            match is_table {
                true => {
                    let entry = self.namespace.journal().entry_at(at.position)?;
                    self.rewrite(slot, at, entry.row().map(|row| RowOf::of(&row)));
                }
                false => self.overlay.insert(slot, at),
            }
            // A relay may have copied the records that are rolled back.
            self.seeds.moves(slot, &self.past);
        }
        // Messages have left the outbox by now: their receivers remove them.
        // Runs that had ended before are unchanged.
        self.first = self.past.runs.partition_point(|run| run.done < sequence);
        // They depend on what this repair itself has written, if it is resumed.
        self.next = if is_resumed { 0 } else { self.first };
        self.take_away(&added)
    }

    /// Removes the records that the rolled-back repair appended.
    fn take_away(&mut self, added: &[(u32, u64)]) -> Result<()> {
        let journal = self.namespace.journal();
        let written = &self.past.written.entry(self.repair).or_default().slots;
        let mut rows = Vec::new();
        for slot in added.iter().filter(|slot| !written.contains_key(slot)) {
            let of = self.past.logs.get(&slot.0).and_then(|log| log.slots.get(&slot.1));
            let of = of.ok_or_else(|| Code::RepairUnsupported.error(format!("record {} no longer exists", slot.1)))?;
            let (repair, origin, clock, position) = (self.repair, of.origin, of.clock, of.written);
            rows.push((*slot, Replaced { repair, origin, clock, void: true, position }));
        }
        if !rows.is_empty() {
            let none = (millrace_wire::EventId::NONE, 0);
            journal.commit(|tx| {
                rows.iter().try_for_each(|(slot, replaced)| tx.shadow_append(*slot, b"", none, replaced).map(drop))
            })?;
        }
        self.follow()
    }

    /// Reads the new entries of the journal.
    pub(crate) fn follow(&mut self) -> Result<()> {
        self.past.follow(self.namespace.journal(), self.namespace.journal().tail())?;
        let written = self.past.written.entry(self.repair).or_default();
        let late = std::mem::take(&mut written.is_extra_new);
        for (slot, at, row) in std::mem::take(&mut written.fresh) {
            self.rewrite(slot, at, row);
            self.changes += 1;
            self.seeds.moves(slot, &self.past);
        }
        if late { self.take_late() } else { Ok(()) }
    }

    /// Puts what the repair writes into a slot.
    fn rewrite(&mut self, slot: (u32, u64), at: At, row: Option<RowOf>) {
        let row = row.as_ref().map(|row| row.keyed(Position::default()));
        for (key, place) in self.overlay.rewrite(&self.past, slot, at, row.as_ref()) {
            self.unsettle(slot.0, key, place);
        }
    }

    /// Examines every run again, because earlier results may depend on what was read since.
    pub(crate) fn look_again(&mut self) {
        self.next = 0;
    }

    /// Whether a log belongs to the runtime and is not an outbox: appends of runs to it cannot be replayed.
    fn is_of_runtime(&self, log: u32) -> bool {
        self.past.logs.get(&log).is_none_or(|log| log.name.starts_with('_')) && !self.past.is_outbox(log)
    }

    /// Whether a run that has ended still has to be replayed.
    pub(crate) fn is_behind(&mut self) -> Result<bool> {
        if self.has_arrivals() || self.has_unsettled() {
            return Ok(true);
        }
        while self.next < self.past.runs.len() {
            if self.is_due(self.next)? {
                return Ok(true);
            }
            self.next += 1;
        }
        Ok(false)
    }

    /// Replays all affected runs that have ended. `progress` gets the number of examined runs and the total.
    pub fn replay(&mut self, progress: &mut dyn FnMut(&Counts, usize, usize)) -> Result<()> {
        loop {
            while self.next < self.past.runs.len() {
                self.check_stops()?;
                self.settle_sums_of(self.next)?;
                if self.is_due(self.next)? {
                    self.check_goes_on()?;
                    self.settle(self.next)?;
                    self.check_size()?;
                    progress(&self.counts, self.next, self.past.runs.len());
                    self.note_progress()?;
                }
                self.next += 1;
            }
            self.settle_all_sums()?;
            if !self.take_seeds()? {
                return Ok(());
            }
        }
    }

    fn check_stops(&self) -> Result<()> {
        match self.stop.load(Ordering::Acquire) {
            true => Err(Code::HostStopping.error("the host is stopping")),
            false => Ok(()),
        }
    }

    /// An error if the repair has grown too large to be applied: the replay ends, so that nobody waits for the rest of it.
    pub(crate) fn check_size(&self) -> Result<()> {
        let (number, records) = (self.repair, self.overlay.len());
        if records <= SLOTS_MAX {
            return Ok(());
        }
        let error = format!("repair {number} replaces more than {SLOTS_MAX} records, the limit of one repair");
        Err(Code::RepairUnsupported.error(error))
    }

    /// Returns an error if the host stops or the repair was abandoned: then the remaining runs are not replayed.
    fn check_goes_on(&mut self) -> Result<()> {
        self.check_stops()?;
        let news = book::news(self.namespace)?;
        // Without a repair, there is nothing to abandon.
        if self.repair == 0 || std::mem::replace(&mut self.news, news) == news {
            return Ok(());
        }
        match book::repair(self.namespace, self.repair)?.phase {
            phase if phase.is_open() => Ok(()),
            phase => {
                let (number, phase) = (self.repair, phase.as_str());
                Err(Code::RepairPhase.error(format!("repair {number} has changed meanwhile: it is {phase}")))
            }
        }
    }

    /// Notes the progress of a long replay from time to time.
    fn note_progress(&mut self) -> Result<()> {
        if self.noted.elapsed() < PROGRESS_EVERY {
            return Ok(());
        }
        let (repair, counts) = (self.repair, self.count());
        let progress = Progress { examined: self.next as u64 + 1, runs: self.past.runs.len() as u64 };
        self.namespace.journal().commit(|tx| note(tx, &Note::Progress { repair, counts, progress }))?;
        self.noted = Instant::now();
        Ok(())
    }

    /// Whether an input of a run has changed and its new effects are not known.
    fn is_due(&self, at: usize) -> Result<bool> {
        let run = &self.past.runs[at];
        if run.is_given_up {
            return Ok(false);
        }
        match self.kept.get(&run.trigger.run) {
            Some(Kept::External(_) | Kept::Device(_)) => return self.is_cancelled(run),
            Some(Kept::Unable(_)) => return Ok(false),
            None => {}
        }
        let written = self.past.written.get(&self.repair);
        let settled = written.and_then(|written| written.settled.get(&run.trigger.run).copied());
        // What was replayed is replayed again only for what came since, and what had ended before the repair that is taken back was
        // applied, only for what this one writes itself.
        let (after, reads) = match settled {
            Some(_) => (settled, written.and_then(|written| written.reads.get(&run.trigger.run))),
            None if at < self.first => (Some(self.opened), Some(&run.reads)),
            None => (None, Some(&run.reads)),
        };
        let has_other_code = after.is_none() && self.code.as_ref().is_some_and(|(code, _)| code.is_for(run));
        if has_other_code || self.is_caused(run, after)? {
            return Ok(true);
        }
        for row in reads.into_iter().flatten() {
            if self.differs(run, row, after)? {
                return Ok(true);
            }
        }
        let keyed = match settled {
            Some(_) => written.and_then(|written| written.keyed.get(&run.trigger.run)),
            None => Some(&run.keyed),
        };
        let lookup = Lookup { past: &self.past, overlay: Some(&self.overlay) };
        let differs = |row: &KeyedRow| run.fired.is_some_and(|fired| lookup.differs(run, &fired, row, after));
        Ok(keyed.into_iter().flatten().any(differs))
    }

    /// Whether its cause is replaced, by an entry after a position if one is given.
    fn is_caused(&self, run: &Run, after: Option<Position>) -> Result<bool> {
        let trigger = &run.trigger;
        let is_new = |log, seqno| self.overlay.at(log, seqno).is_some_and(|at| is_after(&at, after));
        Ok(is_new(trigger.log, trigger.seqno) || self.letter(run)?.is_some_and(|(log, seqno)| is_new(log, seqno)))
    }

    /// The dead letter that a run retried.
    fn letter(&self, run: &Run) -> Result<Option<(u32, u64)>> {
        if !run.trigger.is_retry {
            return Ok(None);
        }
        let letter = self.namespace.journal().find(run.trigger.cause)?;
        Ok(letter.filter(|entry| entry.kind == Kind::Append).map(|entry| (entry.subject, entry.seqno)))
    }

    fn differs(&self, run: &Run, row: &Row, after: Option<Position>) -> Result<bool> {
        Ok(match (row.what, &run.fired) {
            (What::Record | What::Refused(_), _) => self.overlay.touches(row.log, row.from, row.count, after),
            (What::Latest, Some(fired)) if self.overlay.has_log(row.log, after) => {
                newest(&self.past, &self.overlay, row.log, fired)? != row.from
            }
            _ => false,
        })
    }

    /// Whether a run has no record: its record is void, or the dead letter that it retried is.
    fn is_cancelled(&self, run: &Run) -> Result<bool> {
        let is_void = |slot| Ok(self.content(slot)?.void);
        let letter = self.letter(run)?.map(is_void).transpose()?;
        Ok(is_void((run.trigger.log, run.trigger.seqno))? || letter == Some(true))
    }

    /// The content of a slot in the repaired history.
    fn content(&self, (log, seqno): (u32, u64)) -> Result<At> {
        let live = self.past.logs.get(&log).and_then(|past| past.slots.get(&seqno)).map(|slot| slot.at);
        let gone = || Code::RepairUnsupported.error(format!("record {seqno} of {} no longer exists", self.name(log)));
        self.overlay.at(log, seqno).or(live).ok_or_else(gone)
    }

    /// The bytes of a slot in the repaired history; `None` if it is void.
    pub(crate) fn bytes(&self, slot: (u32, u64)) -> Result<Option<Vec<u8>>> {
        self.bytes_at(self.content(slot)?)
    }

    pub(crate) fn bytes_at(&self, at: At) -> Result<Option<Vec<u8>>> {
        if at.void { Ok(None) } else { Ok(Some(self.namespace.journal().entry_at(at.position)?.payload)) }
    }

    pub(crate) fn name(&self, log: u32) -> String {
        self.past.logs.get(&log).map_or_else(|| format!("log {log}"), |past| format!("log '{}'", past.name))
    }

    /// Replays a run and journals its effects. If nobody decides about the repair any more, the records of a run that cannot be replayed stay.
    fn settle(&mut self, at: usize) -> Result<()> {
        let run = self.past.runs[at].clone();
        let unable = |code| matches!(code, Code::RepairUnsupported | Code::RepairGrows);
        match self.replay_run(&run) {
            Err(error) if run.is_of_device() && error.code() == Code::RepairGrows => {
                let function =
                    self.past.definition(run.trigger.function, run.fired.map_or(0, |fired| fired.revision))?;
                self.keep(&run, Kept::Device(function.spec.name.clone()))
            }
            Err(error) if self.is_decided && unable(error.code()) => {
                let catalog = self.namespace.journal().catalog()?;
                let function = catalog.function_by_id(run.trigger.function).map(|function| function.name().clone());
                self.keep(&run, Kept::Unable(function.ok_or(error)?))
            }
            settled => settled,
        }
    }

    fn replay_run(&mut self, run: &Run) -> Result<()> {
        let unsupported = |why: &str| Code::RepairUnsupported.error(format!("run {}: {why}", run.trigger.run));
        let is_cancelled = self.is_cancelled(run)?;
        if !is_cancelled && let Some(function) = self.external(run)? {
            return self.keep(run, Kept::External(function));
        }
        self.kept.remove(&run.trigger.run);
        if run.appends.iter().any(|(log, _)| self.is_of_runtime(*log)) {
            return Err(unsupported("it appended to a log of the runtime"));
        }
        if is_cancelled {
            self.counts.cancelled += 1;
            let left = self.placed(run, Vec::new(), (&mut Reads::default(), false))?;
            return self.publish(run, left, Reads::default(), Ended::Cancelled, None);
        }
        let Some(fired) = run.fired else { return Err(unsupported("its last attempt is no longer known")) };
        if fired.streamed {
            return Err(unsupported("it is streamed, and streamed runs cannot be replayed"));
        }
        let definition = self.definition_of(run, &fired)?;
        let function = definition.spec.name.clone();
        let Some(definition) = self.twin_of(definition)? else { return self.keep(run, Kept::Device(function)) };
        let (appends, mut reads, dead) = self.execute(run, &fired, &definition)?;
        if run.is_of_device() && dead.is_some() && !run.is_dead {
            return self.keep(run, Kept::Device(function));
        }
        let left = self.placed(run, appends, (&mut reads, dead.is_some()))?;
        self.counts.replayed += 1;
        if left.is_empty() {
            self.counts.same += 1;
        }
        let (outcome, error) = if dead.is_some() { (Ended::Dead, dead) } else { (Ended::Done, None) };
        self.publish(run, left, reads, outcome, error)
    }

    /// The code for replaying a run.
    fn definition_of(&mut self, run: &Run, fired: &Fired) -> Result<Arc<Definition>> {
        match &self.code {
            Some((code, definition)) if code.is_for(run) => Ok(definition.clone()),
            _ => self.past.definition_of(run, fired),
        }
    }

    /// The function of a run that is not replayed, because it may have effects outside.
    fn external(&mut self, run: &Run) -> Result<Option<Name>> {
        let Some(fired) = run.fired else { return Ok(None) };
        let definition = self.definition_of(run, &fired)?;
        let spec = &definition.spec;
        Ok((spec.network && !self.run_external.contains(&spec.name)).then(|| spec.name.clone()))
    }

    /// The runs that are not replayed.
    pub(crate) fn not_run(&self) -> Vec<NotRun> {
        let mut runs = BTreeMap::<(&Name, bool, bool), u64>::new();
        for why in self.kept.values() {
            let (Kept::External(function) | Kept::Unable(function) | Kept::Device(function)) = why;
            let (unable, device) = (matches!(why, Kept::Unable(_)), matches!(why, Kept::Device(_)));
            *runs.entry((function, unable, device)).or_default() += 1;
        }
        let told = |((function, unable, device), runs): ((&Name, bool, bool), u64)| {
            let function = function.clone();
            NotRun { function, runs, unable, device }
        };
        runs.into_iter().map(told).collect()
    }

    /// The topics that keep the old records of logs that change.
    pub(crate) fn topics(&self) -> Result<Vec<TopicKept>> {
        let changed: HashSet<u32> = self.overlay.logs().collect();
        let kept = topics::of_logs(self.namespace)?.into_iter().filter(|of| changed.contains(&of.id));
        Ok(kept.map(|TopicOfLog { log, topic, .. }| TopicKept { log, topic }).collect())
    }

    /// Runs a function until it succeeds or has no attempt left: returns its appends, its reads, and why it was given up.
    fn execute(
        &mut self,
        run: &Run,
        fired: &Fired,
        definition: &Arc<Definition>,
    ) -> Result<(Vec<Leaving>, Reads, Option<Error>)> {
        let trigger = &run.trigger;
        let payload = self.bytes((trigger.log, trigger.seqno))?.unwrap_or_default();
        let name = self.past.logs.get(&trigger.log).map_or("", |log| &*log.name).to_string();
        let (journal, spec) = (self.namespace.journal(), &definition.spec);
        let seed = journal.replay_seed();
        let device = devices::device_of(&self.past, run).map(str::to_owned);
        for tried in 0.. {
            let attempt = fired.attempt + tried;
            let replay = Replay::new(seed.bytes(), trigger.run, attempt, fired.at);
            let mut calls = Calls::new(journal, (&self.past, &self.overlay), (run, *fired), &spec.rights, replay);
            let (log, seqno, payload) = (&*name, trigger.seqno, &*payload);
            let of_device = device.as_deref().and_then(|device| log.strip_prefix(device)?.strip_prefix('/'));
            let (log_there, run_there) = (of_device.unwrap_or(log), devices::id_of(trigger.run, fired));
            let invocation = Invocation { log: log_there, seqno, payload, run: run_there, attempt, streamed: false };
            let (namespace, number, stop, seen) = (self.namespace, self.repair, self.stop, Cell::new(self.news));
            // It is asked several times a second, and reads the notes about repairs only if there are new ones.
            let goes_on = || {
                let Ok(news) = book::news(namespace) else { return true };
                let is_open = || book::repair(namespace, number).map_or(true, |repair| repair.phase.is_open());
                let is_old = number == 0 || seen.replace(news) == news;
                !stop.load(Ordering::Acquire) && (is_old || is_open())
            };
            let completion = match &device {
                Some(device) => {
                    let mut calls = devices::DeviceCalls::new(&mut calls, device, run);
                    self.runner.run(definition, invocation, &mut calls, &goes_on)?
                }
                None => self.runner.run(definition, invocation, &mut calls, &goes_on)?,
            };
            let Calls { appends, reads, broken, .. } = calls;
            if let Some(error) = broken {
                return Err(error.within(format!("run {}", trigger.run)));
            }
            let error = match completion.outcome {
                Outcome::Done => return Ok((appends, reads, None)),
                Outcome::Failed(error) => error,
                Outcome::CannotStart(error) => return Err(error),
                Outcome::NotStarted => Code::HostInternal.error("its worker ended"),
            };
            // It may have failed because it was ended.
            self.check_goes_on()?;
            if device.is_some() {
                return Ok((self.letter_of_device(run, payload), reads, Some(error)));
            }
            if tried < spec.retries {
                thread::sleep(spec.backoff.min(BACKOFF_MAX));
                continue;
            }
            let of = DeadLetter {
                run: trigger.run,
                function: &spec.name,
                record: (log, seqno, payload),
                attempt,
                error: &error,
            };
            let letter = self.runner.dead_letter(of);
            let log = self.past.log_at(Writable::of_dead_letters(spec), fired);
            let none = || {
                let (run, log) = (trigger.run, &spec.dead_letter);
                Code::RepairUnsupported
                    .error(format!("run {run}: it fails now, and its dead-letter log '{log}' does not exist: {error}"))
            };
            let letter = Leaving { log: log.ok_or_else(none)?, payload: letter, change: None };
            return Ok((vec![letter], reads, Some(error)));
        }
        unreachable!("the number of attempts has a bound")
    }

    /// An error if a streamed run is in progress that may have used a replaced record, because its published appends cannot be undone.
    pub(crate) fn check_streaming(&mut self) -> Result<()> {
        let streaming: Vec<_> = self.past.streaming().map(|(trigger, fired)| (*trigger, fired.revision)).collect();
        for (trigger, revision) in streaming {
            let has_other_code = self.code.as_ref().is_some_and(|(code, _)| code.function == trigger.function);
            let definition = self.past.definition(trigger.function, revision)?;
            let logs = self.overlay.logs().filter_map(|log| self.past.logs.get(&log));
            let reads = logs.filter(|log| definition.spec.rights.readable(&log.name, None).is_ok()).count() > 0;
            if has_other_code || reads || self.overlay.at(trigger.log, trigger.seqno).is_some() {
                let (run, name) = (trigger.run, &definition.spec.name);
                let error =
                    format!("run {run} of the streamed function '{name}' is in progress; wait until it has ended");
                return Err(Code::RepairUnsupported.error(error));
            }
        }
        Ok(())
    }

    /// How many records are replaced, and how many void.
    pub(crate) fn count(&mut self) -> Counts {
        let void = self.overlay.iter().filter(|(_, at)| at.void).count() as u64;
        (self.counts.void, self.counts.replaced) = (void, self.overlay.len() as u64 - void);
        // Those that were replayed before the host, or a namespace that takes part, went away count as well.
        let settled = self.past.written.get(&self.repair).map_or(0, |written| written.settled.len()) as u64;
        self.counts.replayed = self.counts.replayed.max(settled.saturating_sub(self.counts.cancelled));
        let written = self.past.written.get(&self.repair);
        self.counts.appended = written.map_or(0, |written| written.extra.len()) as u64;
        self.counts.failed = written.map_or(0, |written| written.failed.len()) as u64;
        self.counts
    }
}

/// Executes pending requests about a namespace's repairs; returns whether there were any. `progress` gets the progress of replays.
///
/// # Errors
///
/// [`Code::RepairPeer`] if a repair waits for a namespace that takes part in it, and codes such as [`Code::DiskFull`] if it waits for the
/// disk: to be called again after a pause.
pub fn drive(
    namespace: &Namespace,
    runner: &mut dyn Runner,
    peers: &mut dyn Peers,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64, &Counts, usize, usize),
) -> Result<bool> {
    let is_waiting = |repair: &Repair| repair.phase.is_moving();
    let Some(repair) = book::repairs(namespace)?.into_iter().find(is_waiting) else { return Ok(false) };
    let is_part = repair.part_of.is_some();
    let applies = repair.phase == Phase::Applying
        || !is_part && (repair.undo.is_some() || repair.auto || repair.late_of.is_some());
    let number = repair.repair;
    let mut rounds = (!repair.across.is_empty()).then(|| Rounds::new(namespace, &repair, peers));
    let done = Session::begin(namespace, &repair, runner, stop).and_then(|mut session| {
        session.replay(&mut |counts, at, of| progress(number, counts, at, of))?;
        match repair.phase {
            Phase::Preparing | Phase::Committing => session.take_part(),
            _ if applies => session.apply(rounds.as_mut()),
            _ => {
                if let Some(rounds) = &mut rounds {
                    rounds.exchange(&mut session, false)?;
                }
                session.ready()
            }
        }
    });
    let Err(error) = done else { return Ok(true) };
    let is_of_disk = error.code().transient() == Some(Transient::Disk);
    if is_of_disk || matches!(error.code(), Code::Busy | Code::HostStopping | Code::RepairPhase | Code::RepairPeer) {
        return Err(error);
    }
    if repair.auto {
        give_back(namespace, &repair, &error)?;
        return Ok(true);
    }
    let (code, detail) = (error.code().id().to_owned(), error.detail().to_owned());
    let noted = namespace.journal().commit(|tx| {
        let found = book::repair(namespace, number)?;
        let is_new = found.error.as_ref() != Some(&(code.clone(), detail.clone()));
        if found.phase.is_open() && is_new {
            note(tx, &Note::Stopped { repair: number, code, error: detail })?;
        }
        Ok(found.phase)
    })?;
    // The initiator has switched: a part that cannot follow yet tries again.
    if noted.value == Phase::Committing { Err(error) } else { Ok(true) }
}
