//! The past as a repair sees it: every slot of every log, and every run that has ended, from one scan that continues as the journal grows.
//!
//! A slot's *place* is that of its first version. A run saw the slots whose place is before its FIRED, and those that earlier runs of the
//! same claim appended.

use crate::{
    book::{self, NewCode, Note},
    settle::RowOf,
    tables::{KeyedRow, Versions, Writer},
};
use millrace_journal::{Catalog, Entry, Extent, Journal, Kind, Operation, Outcome, Position, ReadFrom, Scan, What};
use millrace_namespace::{Definition, definition::Checked};
use millrace_wire::{Code, EventId, HISTORY_ALL, Hlc, LogName, Result};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// The position of a slot's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Its position.
    pub position: Position,
    /// Whether it makes its slot void.
    pub void: bool,
}

/// A slot of a log.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The id of its first version.
    pub origin: EventId,
    /// The clock of its first version.
    pub clock: Hlc,
    /// Where its first version was written.
    pub written: Position,
    /// The current content.
    pub at: At,
    /// The claim of the run that left it, and how many runs of that claim go before the run; 0 if it came from outside.
    claim: u64,
    place: u32,
}

/// A log.
#[derive(Debug)]
pub struct LogPast {
    /// Its name.
    pub name: LogName,
    /// From which sequence on it kept how many records; `None` if that is not known.
    histories: Vec<(u64, Option<u64>)>,
    /// Whether the first of them is the present one, because the journal no longer has the definition of the log.
    is_guess: bool,
    /// From which sequence on the records before which seqno were trimmed.
    floors: Vec<(u64, u64)>,
    /// By seqno.
    pub slots: BTreeMap<u64, Slot>,
    /// Of a table: the versions of its keys.
    pub versions: Option<Box<Versions>>,
    /// The places of records of tables that repairs appended for runs which had ended.
    late: HashMap<u64, Writer>,
}

/// The last attempt at a run.
#[derive(Clone, Copy, Debug)]
pub struct Fired {
    /// Its number.
    pub attempt: u32,
    /// The revision of the function's definition.
    pub revision: u32,
    /// When it began, as its function reads the time.
    pub at: Hlc,
    /// The id of the run in the device from which it was imported, if it was; none if the device did not know it any more.
    pub there: Option<EventId>,
    /// The sequence of the FIRED.
    pub sequence: u64,
    claim: u64,
    place: u32,
    /// Whether it is streamed.
    pub streamed: bool,
    /// The sequence of the run's DONE.
    pub done: u64,
}

impl Fired {
    /// Whether something was left by an earlier run of the same claim.
    pub fn is_of_claim(&self, claim: u64, turn: u32) -> bool {
        claim == self.claim && turn < self.place
    }
}

/// The reads of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The log.
    pub log: u32,
    /// The first seqno.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// The result.
    pub what: What,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its TRIGGER.
    pub trigger: Trigger,
    /// Its last attempt.
    pub fired: Option<Fired>,
    /// The sequence of its DONE.
    pub done: u64,
    /// Its reads, originally and in repairs since.
    pub reads: Vec<Row>,
    /// Its reads of keys, likewise.
    pub keyed: Vec<KeyedRow>,
    /// The slots it left, in order.
    pub appends: Vec<(u32, u64)>,
    /// Whether it failed for good.
    pub is_dead: bool,
    /// Whether a person cancelled it: it stays cancelled.
    pub is_given_up: bool,
}

/// A record that a repair appends when it is applied.
#[derive(Clone, Copy, Debug)]
pub struct Extra {
    /// The log.
    pub log: u32,
    /// The run that leaves it, and which of the run's records it is.
    pub run: EventId,
    pub ordinal: u16,
    /// The position of its bytes.
    pub position: Position,
    /// Whether it is a record of a table.
    pub is_keyed: bool,
}

impl NewCode {
    /// Whether a run that has ended is replayed with it.
    pub fn is_for(&self, run: &Run) -> bool {
        let is_of = |fired: &Fired| fired.sequence >= self.since && self.only.is_none_or(|only| fired.revision == only);
        run.trigger.function == self.function && run.fired.as_ref().is_some_and(is_of)
    }
}

/// The content of a TRIGGER.
#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    /// Its id: the run's.
    pub run: EventId,
    /// Its number among the runs of its function.
    pub number: u64,
    /// Its function.
    pub function: u32,
    /// The log of its record.
    pub log: u32,
    /// The record's seqno.
    pub seqno: u64,
    /// The record, or the dead letter that is run again.
    pub cause: EventId,
    /// Whether it is the latter.
    pub is_retry: bool,
}

/// The entries that a repair has written so far.
#[derive(Debug, Default)]
pub struct Written {
    /// The slots that it replaces.
    pub slots: HashMap<(u32, u64), At>,
    /// Those of them that are not processed yet.
    pub fresh: Vec<((u32, u64), At, Option<RowOf>)>,
    /// The slots that it corrects: replays do not change them.
    pub corrected: HashSet<(u32, u64)>,
    /// The runs that it replayed, and where it noted the end of the last replay.
    pub settled: HashMap<EventId, Position>,
    /// Those of them that failed when they were replayed last.
    pub failed: HashSet<EventId>,
    /// The records that it appends when it is applied, in order.
    pub extra: Vec<Extra>,
    /// The reads of its replays.
    pub reads: HashMap<EventId, Vec<Row>>,
    /// Their reads of keys.
    pub keyed: HashMap<EventId, Vec<KeyedRow>>,
    /// Whether the records of tables among `extra` changed since they were last taken.
    pub is_extra_new: bool,
}

/// The slots that an applied repair changed.
#[derive(Debug, Default)]
pub struct Applied {
    /// The sequence of its last GENERATION.
    pub sequence: u64,
    /// Where slots had led before, in the order of the rows.
    pub before: Vec<((u32, u64), At)>,
    /// The slots whose change is no longer known.
    pub lost: Vec<(u32, u64)>,
    /// The slots that it appended.
    pub added: Vec<(u32, u64)>,
}

/// See the module.
pub struct Past {
    scan: Scan,
    /// Whether the journal has dropped entries.
    pub is_cut: bool,
    /// Logs by id.
    pub logs: HashMap<u32, LogPast>,
    /// The end of the journal when the present definitions were read.
    known: Position,
    /// By name: from which sequence on which log had it, if any.
    names: HashMap<String, Vec<(u64, Option<u32>)>>,
    definitions: HashMap<(u32, u32), (String, String)>,
    parsed: HashMap<(u32, u32), Arc<Definition>>,
    /// The runs that have ended, in the order of their DONEs.
    pub runs: Vec<Run>,
    by_id: HashMap<EventId, usize>,
    triggers: HashMap<EventId, Trigger>,
    fired: HashMap<EventId, Fired>,
    reads: HashMap<EventId, Vec<Row>>,
    keyed: HashMap<EventId, Vec<KeyedRow>>,
    appends: HashMap<EventId, Vec<(u32, u64)>>,
    /// By repair: what it wrote.
    pub written: HashMap<u64, Written>,
    /// By repair: what it replaced.
    pub applied: HashMap<u64, Applied>,
    /// By repair: the code that it gives a function, and the repair that it rolls back.
    opened: HashMap<u64, (Option<NewCode>, Option<u64>)>,
    /// The repairs that were applied, in this order.
    order: Vec<u64>,
    /// The one that is being rolled back.
    undone: Option<u64>,
    /// Those in force that give runs other code, once asked for.
    giving: Option<Vec<u64>>,
    /// Slots that runs left which had ended before: the repair whose batch this is appended them.
    late: Vec<(u32, u64)>,
    /// The namespaces from which links deliver records.
    sources: HashSet<u64>,
    /// By the id of a record elsewhere, or of one that a relay of this namespace copies: the slots that links delivered it to.
    pub delivered: HashMap<EventId, Vec<(u32, u64)>>,
    /// Deliveries since these were last taken.
    pub arrived: Vec<EventId>,
}

/// The prefix of the logs that count the items from other namespaces.
const INBOX: &str = "_inbox/";
/// The prefix of the names of outboxes.
const OUTBOX: &str = "_outbox/";

/// The parts of a DEFINE that matter here.
#[derive(Deserialize)]
struct Define {
    define: String,
    id: u32,
    #[serde(default)]
    name: String,
    #[serde(default)]
    history: u64,
    #[serde(default)]
    attributes: String,
    #[serde(default)]
    revision: u32,
    /// The definition of a function that this one replaced: its own DEFINE may be gone.
    #[serde(default, rename = "before?")]
    before: Option<Before>,
}

#[derive(Deserialize)]
struct Before {
    name: String,
    attributes: String,
    revision: u32,
}

impl LogPast {
    /// Who wrote a slot, as the order of the versions of a key has it.
    fn writer(&self, seqno: u64) -> Option<Writer> {
        let of_slot = |slot: &Slot| Writer {
            sequence: slot.origin.sequence(),
            claim: (slot.claim, slot.place),
            time_us: slot.clock.wall_us(),
            is_runtime: false,
        };
        self.late.get(&seqno).copied().or_else(|| self.slots.get(&seqno).map(of_slot))
    }

    /// Has a slot lead to what a repair wrote.
    fn lead(&mut self, seqno: u64, at: At, entry: &Entry) {
        let by = self.writer(seqno);
        if let Some(slot) = self.slots.get_mut(&seqno) {
            slot.at = at;
        }
        let Some(versions) = &mut self.versions else { return };
        match entry.row().filter(|_| !at.void).zip(by) {
            Some((row, by)) => versions.insert(seqno, &row, at.position, &by),
            None => versions.remove(seqno),
        }
    }
}

impl Run {
    /// The place of what it leaves after it has ended.
    pub fn writer(&self, time_us: u64) -> Writer {
        let claim = self.fired.map_or((0, 0), |fired| (fired.claim, fired.place));
        Writer { sequence: self.done, claim, time_us, is_runtime: false }
    }
}

impl Past {
    /// Has the current definitions; nothing was read yet.
    pub fn new(journal: &Journal) -> Result<Self> {
        let mut past = Self {
            scan: journal.scan_all(Position::default()),
            is_cut: journal.first() > Position::default(),
            logs: HashMap::new(),
            known: Position::default(),
            names: HashMap::new(),
            definitions: HashMap::new(),
            parsed: HashMap::new(),
            runs: Vec::new(),
            by_id: HashMap::new(),
            triggers: HashMap::new(),
            fired: HashMap::new(),
            reads: HashMap::new(),
            keyed: HashMap::new(),
            appends: HashMap::new(),
            written: HashMap::new(),
            applied: HashMap::new(),
            opened: HashMap::new(),
            order: Vec::new(),
            undone: None,
            giving: None,
            late: Vec::new(),
            sources: HashSet::new(),
            delivered: HashMap::new(),
            arrived: Vec::new(),
        };
        past.know(&*journal.catalog()?);
        past.known = journal.tail();
        Ok(past)
    }

    /// Adds the current definitions, because retention may have dropped some of their DEFINEs.
    fn know(&mut self, catalog: &Catalog) {
        for log in catalog.logs() {
            self.log(log.id(), log.name(), log.history(), true);
            self.names.entry(log.name().to_string()).or_insert_with(|| vec![(0, Some(log.id()))]);
        }
        for function in catalog.functions() {
            let attributes = (function.name().to_string(), function.attributes().to_string());
            self.definitions.insert((function.id(), function.revision()), attributes);
        }
    }

    fn log(&mut self, id: u32, name: &LogName, history: u64, is_guess: bool) {
        let source = name.strip_prefix(INBOX).and_then(|rest| rest.split('/').next());
        self.sources.extend(source.and_then(|id| u64::from_str_radix(id, 16).ok()));
        let (name, histories) = (name.clone(), vec![(0, Some(history))]);
        let (floors, slots, late) = (Vec::new(), BTreeMap::new(), HashMap::new());
        let new = LogPast { name, histories, is_guess, floors, slots, versions: None, late };
        self.logs.insert(id, new);
    }

    /// A log keeps another number of records from a sequence on.
    fn set_history(&mut self, id: u32, history: u64, (sequence, position): (u64, Position)) {
        let Some(log) = self.logs.get_mut(&id) else { return };
        // Nothing in the journal says how many it kept before.
        if std::mem::take(&mut log.is_guess) && position < self.known {
            log.histories = vec![(0, None)];
        }
        log.histories.push((sequence, Some(history)));
    }

    /// The position up to which the journal was read.
    pub fn position(&self) -> Position {
        self.scan.position()
    }

    /// Reads on, at most up to a position.
    pub fn follow(&mut self, journal: &Journal, upto: Position) -> Result<()> {
        while self.scan.position() < upto {
            let Some(entry) = self.scan.next()? else { break };
            let entry = entry.clone();
            self.take(journal, &entry)?;
        }
        Ok(())
    }

    fn take(&mut self, journal: &Journal, entry: &Entry) -> Result<()> {
        if entry.shadow {
            self.take_shadow(entry);
            return Ok(());
        }
        let run = entry.run();
        match entry.kind {
            Kind::Define => self.define(entry),
            Kind::Append => self.append(entry),
            Kind::Trigger => {
                let (log, seqno) = entry.trigger_record().unwrap_or_default();
                let (number, function, cause) = (entry.seqno, entry.subject, entry.cause);
                let is_retry = entry.ordinal == millrace_journal::Origin::Retry as u16;
                self.triggers.insert(run, Trigger { run, number, function, log, seqno, cause, is_retry });
            }
            Kind::Fired => self.fire(entry),
            Kind::Read => {
                let rows = rows(entry);
                self.reads.entry(run).or_default().extend(rows);
                let keyed: Vec<KeyedRow> = KeyedRow::all(&entry.payload).collect();
                if !keyed.is_empty() {
                    self.keyed.entry(run).or_default().extend(keyed);
                }
            }
            Kind::Done => self.done(entry),
            Kind::Generation => self.generation(journal, entry)?,
            Kind::Trim => {
                // No function reads logs of the runtime, some of which are trimmed all the time.
                let log = self.logs.get_mut(&entry.subject).filter(|log| !log.name.starts_with('_'));
                log.into_iter().for_each(|log| log.floors.push((entry.id.sequence(), entry.seqno)));
            }
            _ => {}
        }
        Ok(())
    }

    fn define(&mut self, entry: &Entry) {
        // An unreadable definition is neither of a log nor of a function.
        let Ok(mut define) = serde_json::from_slice::<Define>(&entry.payload) else { return };
        if let Some(Before { name, attributes, revision }) = define.before.take() {
            self.definitions.entry((define.id, revision)).or_insert((name, attributes));
        }
        let history = if define.history == 0 { HISTORY_ALL } else { define.history };
        match (&*define.define, define.name.parse::<LogName>()) {
            ("log", Ok(name)) => {
                self.log(define.id, &name, history, false);
                let of_name = self.names.entry(define.name).or_default();
                of_name.retain(|(_, id)| *id != Some(define.id));
                of_name.push((entry.id.sequence(), Some(define.id)));
            }
            ("log-history", _) => self.set_history(define.id, history, (entry.id.sequence(), entry.position)),
            ("remove-log", _) => {
                let name = self.logs.get(&define.id).map(|log| log.name.to_string());
                let sequence = entry.id.sequence();
                name.into_iter().for_each(|name| self.names.entry(name).or_default().push((sequence, None)));
            }
            ("function", _) => {
                self.definitions.insert((define.id, define.revision), (define.name, define.attributes));
            }
            _ => {}
        }
    }

    fn append(&mut self, entry: &Entry) {
        let replaced = entry.replaced();
        let at = At { position: entry.position, void: replaced.is_some_and(|replaced| replaced.void) };
        let first = (entry.id, entry.hlc, entry.written);
        let (origin, clock, written) = replaced.map_or(first, |it| (it.origin, it.clock, it.position));
        let writer = if entry.claimed { None } else { self.fired.get(&entry.cause) };
        let (claim, place) = writer.map_or((0, 0), |fired| (fired.claim, fired.place));
        if entry.claimed && entry.cause.namespace().is_some_and(|from| self.sources.contains(&from.get())) {
            let slots = self.delivered.entry(entry.cause).or_default();
            if !slots.contains(&(entry.subject, entry.seqno)) {
                slots.push((entry.subject, entry.seqno));
                self.arrived.push(entry.cause);
            }
        }
        let mut late = None;
        if !entry.carried && !entry.claimed && entry.cause != EventId::NONE {
            let slot = (entry.subject, entry.seqno);
            let log = self.logs.get(&entry.subject);
            let is_public = log.is_some_and(|log| !log.name.starts_with('_') || log.name.starts_with(OUTBOX));
            match self.by_id.get(&entry.cause) {
                // A repair appends it, in the batch that applies it.
                Some(run) if is_public => {
                    self.runs[*run].appends.push(slot);
                    self.late.push(slot);
                    late = Some(self.runs[*run].writer(clock.wall_us()));
                }
                Some(_) => {}
                None => self.appends.entry(entry.cause).or_default().push(slot),
            }
        }
        if self.logs.get(&entry.subject).is_some_and(|log| *log.name == *book::LOG) {
            self.note(entry);
        }
        let Some(log) = self.logs.get_mut(&entry.subject) else { return };
        match log.slots.get_mut(&entry.seqno) {
            Some(slot) => slot.at = at, // a copy
            None => drop(log.slots.insert(entry.seqno, Slot { origin, clock, written, at, claim, place })),
        }
        let Some(row) = entry.row() else { return };
        if let Some(late) = late {
            log.late.insert(entry.seqno, late);
        }
        let is_runtime = entry.cause == EventId::NONE && !entry.claimed;
        let by = Writer { sequence: origin.sequence(), claim: (claim, place), time_us: clock.wall_us(), is_runtime };
        let by = log.writer(entry.seqno).map_or(by, |known| Writer { is_runtime, ..known });
        if !at.void {
            log.versions.get_or_insert_default().insert(entry.seqno, &row, at.position, &by);
        }
    }

    /// What has a smaller sequence was there when a run was published.
    pub fn published(&self, run: &Run) -> u64 {
        let own = run.appends.iter().filter_map(|(log, seqno)| self.logs.get(log)?.slots.get(seqno));
        own.map(|slot| slot.origin.sequence()).fold(run.done, u64::min)
    }

    /// A run that has ended.
    pub fn run(&self, id: EventId) -> Option<&Run> {
        self.by_id.get(&id).map(|at| &self.runs[*at])
    }

    /// Who wrote a slot, as the order of the versions of a key has it.
    pub fn writer(&self, log: u32, seqno: u64) -> Option<Writer> {
        self.logs.get(&log)?.writer(seqno)
    }

    /// Records that a repair is applied, and the code that it gives a function.
    fn note(&mut self, entry: &Entry) {
        // Reading the notes refuses what cannot be read here.
        match serde_json::from_slice(&entry.payload) {
            Ok(Note::Open { code, undo, .. }) => drop(self.opened.insert(entry.seqno, (code, undo))),
            Ok(Note::Applied { repair, .. }) if !entry.carried => {
                let applied = self.applied.entry(repair).or_default();
                applied.sequence = applied.sequence.max(entry.id.sequence());
                applied.added.append(&mut self.late);
                self.messages(repair);
                self.order.push(repair);
                self.giving = None;
            }
            _ => {}
        }
    }

    /// The repairs in force that give runs other code.
    fn giving(&self) -> Vec<u64> {
        let undo = |repair: &u64| self.opened.get(repair).and_then(|(_, undo)| *undo);
        let applied = self.order.iter().map(|repair| (*repair, undo(repair)));
        // No repair has this number.
        let mut in_force = book::in_force(applied.chain(self.undone.map(|undone| (u64::MAX, Some(undone)))));
        in_force.retain(|repair| self.opened.get(repair).is_some_and(|(code, _)| code.is_some()));
        in_force
    }

    /// Removes the code that a repair gave to runs, which have the code from before it again.
    pub fn forget_code(&mut self, repair: u64) {
        (self.undone, self.giving) = (Some(repair), None);
    }

    /// The messages that an applied repair changes: their receivers have the new ones, and the outboxes keep the old ones.
    fn messages(&mut self, repair: u64) {
        let undone = self.opened.get(&repair).and_then(|(_, undo)| *undo).and_then(|undone| self.applied.get(&undone));
        let mut slots: HashMap<_, _> = undone.into_iter().flat_map(|undone| undone.before.iter().copied()).collect();
        slots.extend(self.written.get(&repair).into_iter().flat_map(|written| &written.slots));
        let applied = self.applied.entry(repair).or_default();
        for (slot, at) in slots {
            let log = self.logs.get_mut(&slot.0).filter(|log| log.name.starts_with(OUTBOX));
            if let Some(of) = log.and_then(|log| log.slots.get_mut(&slot.1)) {
                applied.before.push((slot, of.at));
                of.at = at;
            }
        }
    }

    /// The slots that a rollback restores to their old records, as far as the journal has them.
    pub fn put_back(&self, repair: u64, first: Position) -> impl Iterator<Item = ((u32, u64), At)> + '_ {
        let undone = self.opened.get(&repair).and_then(|(_, undo)| self.applied.get(undo.as_ref()?));
        let before = undone.map_or(&[][..], |undone| &undone.before);
        before.iter().filter(move |(_, at)| at.position >= first).copied()
    }

    /// Whether a log is an outbox.
    pub fn is_outbox(&self, log: u32) -> bool {
        self.logs.get(&log).is_some_and(|log| log.name.starts_with(OUTBOX))
    }

    fn fire(&mut self, entry: &Entry) {
        let Some(reported) = entry.attempt().filter(|reported| !reported.waits) else { return };
        let (sequence, there) = (entry.id.sequence(), entry.imported_attempt());
        let fired = Fired {
            attempt: reported.attempt,
            revision: reported.revision,
            at: there.map_or(entry.hlc, |there| there.read),
            there: there.map(|there| there.run),
            sequence,
            claim: sequence - u64::from(reported.place),
            place: reported.place,
            streamed: reported.streamed,
            done: u64::MAX,
        };
        self.fired.insert(entry.cause, fired);
        // The reads of earlier attempts no longer count.
        self.reads.remove(&entry.cause);
        self.keyed.remove(&entry.cause);
    }

    fn done(&mut self, entry: &Entry) {
        let run = entry.cause;
        let (reads, appends) = (self.reads.remove(&run), self.appends.remove(&run));
        let (Some(trigger), fired) = (self.triggers.remove(&run), self.fired.remove(&run)) else { return };
        let fired = fired.map(|fired| Fired { done: entry.id.sequence(), ..fired });
        let (reads, appends) = (reads.unwrap_or_default(), appends.unwrap_or_default());
        let keyed = self.keyed.remove(&run).unwrap_or_default();
        self.by_id.insert(run, self.runs.len());
        let is_given_up = entry.ending().is_some_and(|end| end.code == Code::RunCancelled.id());
        let is_dead = entry.ending().is_some_and(|end| end.outcome == Outcome::Dead);
        self.runs.push(Run { trigger, fired, done: entry.id.sequence(), reads, keyed, appends, is_dead, is_given_up });
    }

    fn take_shadow(&mut self, entry: &Entry) {
        let Some(repair) = entry.repair() else { return };
        let written = self.written.entry(repair).or_default();
        match entry.kind {
            Kind::Append if entry.seqno == 0 => {
                let (log, run, ordinal, position) = (entry.subject, entry.cause, entry.ordinal, entry.position);
                let is_keyed = entry.row().is_some();
                written.is_extra_new |= is_keyed;
                written.extra.push(Extra { log, run, ordinal, position, is_keyed });
            }
            Kind::Append => {
                let void = entry.replaced().is_some_and(|replaced| replaced.void);
                let (slot, at) = ((entry.subject, entry.seqno), At { position: entry.position, void });
                written.slots.insert(slot, at);
                written.fresh.push((slot, at, entry.row().map(|row| RowOf::of(&row))));
                // A sum of somebody else's increment is made again, and no correction.
                let is_sum = entry.row().is_some_and(|row| row.operation == Operation::Increment);
                if entry.cause == EventId::NONE && !is_sum {
                    written.corrected.insert(slot);
                }
            }
            Kind::Read => {
                written.reads.insert(entry.cause, rows(entry).collect());
                written.keyed.insert(entry.cause, KeyedRow::all(&entry.payload).collect());
            }
            Kind::Done => {
                if entry.ending().is_some_and(|end| end.outcome == Outcome::Dead) {
                    written.failed.insert(entry.cause);
                } else {
                    written.failed.remove(&entry.cause);
                }
                if let Some(before) = written.settled.insert(entry.cause, entry.position) {
                    // It was replayed again: its earlier additional records no longer count.
                    written.extra.retain(|extra| extra.run != entry.cause || extra.position > before);
                    written.is_extra_new = true;
                }
            }
            _ => {}
        }
    }

    fn generation(&mut self, journal: &Journal, entry: &Entry) -> Result<()> {
        let repair = entry.generation().unwrap_or_default();
        let applied = self.applied.entry(repair).or_default();
        applied.sequence = entry.id.sequence();
        for (log, seqno, position) in entry.generation_rows() {
            let of = self.logs.get_mut(&log).filter(|_| position >= journal.first());
            let Some((of, slot)) = of.and_then(|log| Some((log.slots.get(&seqno)?.at, log))).map(|(at, log)| (log, at))
            else {
                applied.lost.push((log, seqno));
                continue;
            };
            applied.before.push(((log, seqno), slot));
            let entry = journal.entry_at(position)?;
            let void = entry.replaced().is_some_and(|replaced| replaced.void);
            of.lead(seqno, At { position, void }, &entry);
        }
        // From here on, what a run read may be either.
        let written = self.written.entry(repair).or_default();
        for (run, rows) in std::mem::take(&mut written.keyed) {
            if let Some(at) = self.by_id.get(&run) {
                let keyed = &mut self.runs[*at].keyed;
                let new: Vec<_> = rows.into_iter().filter(|row| !keyed.contains(row)).collect();
                keyed.extend(new);
            }
        }
        for (run, rows) in std::mem::take(&mut self.written.entry(repair).or_default().reads) {
            if let Some(at) = self.by_id.get(&run) {
                let reads = &mut self.runs[*at].reads;
                reads.extend(rows.iter().filter(|row| !reads.contains(row)).copied().collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    /// The attempts of streamed runs in progress.
    pub fn streaming(&self) -> impl Iterator<Item = (&Trigger, &Fired)> {
        let streamed = self.fired.iter().filter(|(_, fired)| fired.streamed);
        streamed.filter_map(|(run, fired)| Some((self.triggers.get(run)?, fired)))
    }

    /// The log that had this name when an attempt began, which its run may read or append to.
    pub fn log_at(&self, checked: impl Checked, fired: &Fired) -> Option<u32> {
        let named = self.names.get(checked.name())?;
        named.iter().rev().find(|(from, _)| *from < fired.sequence)?.1
    }

    /// Whether an attempt saw a slot.
    pub fn sees(&self, fired: &Fired, slot: &Slot) -> bool {
        slot.origin.sequence() < fired.sequence || slot.claim == fired.claim && slot.place < fired.place
    }

    /// The newest slot of a log that there was when an attempt began, void or not; 0 if there was none.
    fn base(&self, log: u32, fired: &Fired) -> u64 {
        let Some(past) = self.logs.get(&log) else { return 0 };
        let (Some((first, _)), Some((last, _))) = (past.slots.first_key_value(), past.slots.last_key_value()) else {
            return 0;
        };
        // Places grow along a log. Slots that retention took leave gaps.
        let (mut from, mut to) = (*first, *last + 1);
        while from < to {
            let middle = from.midpoint(to);
            match past.slots.range(middle..to).next() {
                Some((seqno, slot)) if slot.origin.sequence() < fired.sequence => from = seqno + 1,
                _ => to = middle,
            }
        }
        past.slots.range(..from).next_back().map_or(0, |(seqno, _)| *seqno)
    }

    /// The newest slot of a log that an attempt saw, void or not; 0 if there was none.
    pub fn newest_slot(&self, log: u32, fired: &Fired) -> u64 {
        let Some(past) = self.logs.get(&log) else { return 0 };
        let base = self.base(log, fired);
        // Those of the same claim come after, few of them.
        let of_claim = past.slots.range(base + 1..).take_while(|(_, slot)| slot.origin.sequence() < fired.done);
        of_claim.filter(|(_, slot)| self.sees(fired, slot)).last().map_or(base, |(seqno, _)| *seqno)
    }

    /// Which records of a log an attempt could read when it began; the records of its own claim come after them. Without the history if that is
    /// not known: see [`Past::knows_history`].
    pub fn extent(&self, log: u32, fired: &Fired) -> Extent {
        let latest = self.base(log, fired);
        let history = self.history(log, fired).unwrap_or(HISTORY_ALL);
        let floors = self.logs.get(&log).map_or(&[][..], |log| &log.floors);
        let before = floors.partition_point(|(from, _)| *from < fired.sequence);
        let floor = floors[..before].last().map_or(0, |(_, floor)| *floor);
        Extent { latest, history, floor }
    }

    fn history(&self, log: u32, fired: &Fired) -> Option<u64> {
        let histories = &self.logs.get(&log)?.histories;
        histories.iter().rev().find(|(from, _)| *from < fired.sequence)?.1
    }

    /// Whether the journal says how many records a log kept when an attempt began.
    pub fn knows_history(&self, log: u32, fired: &Fired) -> bool {
        self.history(log, fired).is_some()
    }

    /// The code for replaying a run, unless this repair replaces it: the code that it ran, or that of a repair since.
    pub fn definition_of(&mut self, run: &Run, fired: &Fired) -> Result<Arc<Definition>> {
        let giving = self.giving.take().unwrap_or_else(|| self.giving());
        let giving: &[u64] = self.giving.insert(giving);
        let is_older = |repair: &&u64| self.applied.get(repair).is_some_and(|applied| run.done < applied.sequence);
        let code = |repair: &u64| self.opened.get(repair)?.0.as_ref().filter(|code| code.is_for(run));
        match giving.iter().rev().filter(is_older).find_map(code) {
            Some(code) => Ok(Arc::new(Definition::from_attributes(&code.name, &code.attributes)?)),
            None => self.definition(run.trigger.function, fired.revision),
        }
    }

    /// The code of an attempt.
    pub fn definition(&mut self, function: u32, revision: u32) -> Result<Arc<Definition>> {
        let key = (function, revision);
        if let Some(definition) = self.parsed.get(&key) {
            return Ok(definition.clone());
        }
        let gone = || Code::RepairUnsupported.error(format!("revision {revision} of function {function} is not known"));
        let (name, attributes) = self.definitions.get(&key).ok_or_else(gone)?;
        let definition = Arc::new(Definition::from_attributes(name, attributes)?);
        self.parsed.insert(key, definition.clone());
        Ok(definition)
    }
}

fn rows(entry: &Entry) -> impl Iterator<Item = Row> {
    entry.reads().filter_map(|row| match row.log {
        ReadFrom::Log(log) => Some(Row { log, from: row.from, count: row.count, what: row.what }),
        // There was no such log at that time either.
        ReadFrom::Name(_) => None,
    })
}
