//! Lists runs: one by its id, or the newest ones. Both use the indexes of the functions, and take time in proportion to their output.

use super::{
    Attempt, Ending, KeysRead, RecordRef, RunError, RunFilter, RunPage, RunResult, RunState, RunView,
    fold::{Fold, Found, LogOf},
};
use crate::{
    Namespace,
    dead_letters::Notes,
    namespace::{found, no_function},
};
use millrace_journal::{Catalog, Entry, Function, Journal, Kind, Log, Outcome, Position, Run};
use millrace_wire::{Code, EventId, LogName, Result};
use std::{
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

/// How many runs are examined for one page. There is no index of the runs of a log, nor of dead runs.
const LOOKED_MAX: usize = 20_000;
/// A record starts no more runs than there may be functions.
const TRIGGERS_MAX: u64 = 100_000;
/// Runs of removed functions are searched among this number of the newest entries, because their indexes were removed as well.
const REMOVED_MAX: u64 = 4096;

impl Namespace {
    /// The newest runs that the filter admits, newest first: as many as it asks for, however many have to be looked at. Of functions
    /// that were removed only the newest are among them.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>> {
        let (mut runs, mut filter) = (Vec::new(), filter.clone());
        loop {
            let page = self.runs_page(&filter)?;
            filter.limit -= page.runs.len();
            runs.extend(page.runs);
            match page.next {
                Some(next) if filter.limit > 0 => filter.before = Some(next),
                _ => return Ok(runs),
            }
        }
    }

    /// The same, reading at most 20 000 runs. If that is not enough, the page has fewer runs than the limit and the position where the next
    /// page continues.
    pub fn runs_page(&self, filter: &RunFilter) -> Result<RunPage> {
        let catalog = self.journal().catalog()?;
        let named = |name| catalog.function(name).cloned().ok_or_else(|| no_function(name));
        let functions = match &filter.function {
            Some(name) => vec![named(name)?],
            None => catalog.functions().cloned().collect(),
        };
        let log = filter.log.as_ref().map(|name| found(catalog.log(name), name).map(Log::id)).transpose()?;
        let mut page = RunPage::default();
        if filter.limit == 0 {
            return Ok(page);
        }
        let mut newest = Newest::new(self.journal(), &functions, filter);
        if filter.function.is_none() {
            newest.look_for_removed(&catalog, filter.before)?;
        }
        let mut shown = Shown::new(self, catalog.clone());
        for _ in 0..LOOKED_MAX {
            let Some(run) = newest.next() else {
                page.next = None;
                return Ok(page);
            };
            page.next = Some(run.id);
            // Entries that only correct the number of runs are no runs.
            if run.trigger.cause.is_none()
                || log.is_some_and(|log| run.trigger.trigger_record().is_none_or(|(of, _)| of != log))
            {
                continue;
            }
            let Some(function) = run.function.map(|function| &functions[function]) else {
                let fold = Fold::of_removed(self.journal(), run.trigger)?;
                if filter.state.is_none_or(|state| state == state_of(&fold)) {
                    page.runs.push(shown.view(&fold)?);
                    if page.runs.len() == filter.limit {
                        return Ok(page);
                    }
                }
                continue;
            };
            let may_be = match filter.state {
                None | Some(RunState::Pending | RunState::Started) => true,
                Some(_) => function.run(run.number).is_some_and(|item| item.closed != 0),
            };
            let whole = filter.state.is_none();
            let fold = if may_be { Fold::of(self.journal(), function, run.number, whole)? } else { Found::Nothing };
            let Found::Run(mut fold) = fold else { continue };
            if filter.state.is_some_and(|state| state != state_of(&fold)) {
                continue;
            }
            if !whole && let Found::Run(whole) = Fold::of(self.journal(), function, run.number, true)? {
                fold = whole;
            }
            page.runs.push(shown.view(&fold)?);
            if page.runs.len() == filter.limit {
                return Ok(page);
            }
        }
        Ok(page)
    }

    /// One run.
    pub fn run(&self, id: EventId) -> Result<RunView> {
        let fold = self.fold_of(id, true)?.ok_or_else(|| Code::RunNotFound.error(format!("no run {id}")))?;
        let mut view = Shown::new(self, self.journal().catalog()?).view(&fold)?;
        view.result = fold.end.as_ref().and_then(|end| RunResult::of(&end.result));
        Ok(view)
    }

    /// The run of a function that the append of a record started.
    pub fn run_of(&self, record: EventId, function: &str) -> Result<Option<Run>> {
        let (journal, catalog) = (self.journal(), self.journal().catalog()?);
        let Some(function) = catalog.function(function) else { return Ok(None) };
        // The TRIGGERs of a record directly follow it.
        for sequence in record.sequence() + 1..=record.sequence() + TRIGGERS_MAX {
            let entry = journal.entry_of_sequence(sequence)?;
            let Some(entry) = entry.filter(|entry| (entry.kind, entry.cause) == (Kind::Trigger, record)) else { break };
            if entry.subject == function.id() {
                return Ok(Some(Run { id: entry.id, number: entry.seqno }));
            }
        }
        Ok(None)
    }

    /// The state of a run from its entries, with all its effects if requested.
    pub fn fold_of(&self, id: EventId, whole: bool) -> Result<Option<Fold>> {
        let (journal, catalog) = (self.journal(), self.journal().catalog()?);
        if let Some(trigger) = journal.find(id)?.filter(|entry| entry.kind == Kind::Trigger) {
            let Some(function) = catalog.function_by_id(trigger.subject) else {
                return Fold::of_removed(journal, trigger).map(Some);
            };
            if let Found::Run(fold) = Fold::of(journal, function, trigger.seqno, whole)?
                && fold.run.id == id
            {
                return Ok(Some(*fold));
            }
            // The index has forgotten it: it ended in a segment that is gone, or is being committed.
            return Fold::of_removed(journal, trigger).map(Some);
        }
        // A copy of its TRIGGER, from when it was pending. Ids rise with numbers.
        for function in catalog.functions() {
            if let Some(number) = first_from(journal, function, id)
                && let Found::Run(fold) = Fold::of(journal, function, number, whole)?
                && fold.run.id == id
            {
                return Ok(Some(*fold));
            }
        }
        Ok(None)
    }
}

fn trigger_of(journal: &Journal, function: &Function, number: u64) -> Option<Entry> {
    let item = function.run(number)?;
    let entry = journal.entry_at(Position::from_bytes(item.opened)).ok()?;
    ((entry.kind, entry.subject, entry.seqno) == (Kind::Trigger, function.id(), number)).then_some(entry)
}

/// The number of a function's first run whose id is not before this one. Ids rise with numbers.
fn first_from(journal: &Journal, function: &Function, id: EventId) -> Option<u64> {
    let (mut from, mut to) = (function.next_known(1)?, function.triggered() + 1);
    let mut known = None;
    while from < to {
        let middle = from.midpoint(to);
        // Damaged and missing entries are skipped.
        let mut next = function.next_known(middle).filter(|next| *next < to);
        let mut met = None;
        while let Some(number) = next {
            met = trigger_of(journal, function, number).map(|entry| (number, entry.id));
            if met.is_some() {
                break;
            }
            next = function.next_known(number + 1).filter(|next| *next < to);
        }
        match met {
            Some((number, other)) if other < id => from = number + 1,
            Some((number, _)) => (known, to) = (Some(number), middle),
            None => to = middle,
        }
    }
    known
}

/// Goes through the runs of several functions, newest first.
struct Newest<'a> {
    journal: &'a Journal,
    functions: &'a [Function],
    is_pending: bool,
    is_tried: Option<bool>,
    /// The newest run of each function that was not given out yet.
    heads: BinaryHeap<Head>,
}

/// A run that is next in its function.
struct Head {
    id: EventId,
    /// Its function; none of one that was removed.
    function: Option<usize>,
    number: u64,
    trigger: Entry,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.id.cmp(&other.id)
    }
}

impl<'a> Newest<'a> {
    fn new(journal: &'a Journal, functions: &'a [Function], filter: &RunFilter) -> Self {
        let is_tried = match filter.state {
            Some(RunState::Pending) => Some(false),
            Some(RunState::Started) => Some(true),
            _ => None,
        };
        let is_pending = is_tried.is_some();
        let mut newest = Self { journal, functions, is_pending, is_tried, heads: BinaryHeap::new() };
        for (place, function) in functions.iter().enumerate() {
            let upto = match filter.before {
                Some(before) => first_from(journal, function, before).map_or(function.triggered(), |from| from - 1),
                None => function.triggered(),
            };
            newest.push(place, upto);
        }
        newest
    }

    /// Adds the newest run of a function up to a number.
    fn push(&mut self, function: usize, mut upto: u64) {
        let of = &self.functions[function];
        loop {
            let number = if self.is_pending { of.previous_pending(upto) } else { of.previous_known(upto) };
            let Some(number) = number else { return };
            let is_wanted =
                self.is_tried.is_none_or(|tried| of.run(number).is_some_and(|item| (item.noted != 0) == tried));
            if is_wanted && let Some(trigger) = trigger_of(self.journal, of, number) {
                return self.heads.push(Head { id: trigger.id, function: Some(function), number, trigger });
            }
            upto = number - 1;
        }
    }

    /// Includes runs of functions that are no longer defined.
    fn look_for_removed(&mut self, catalog: &Catalog, before: Option<EventId>) -> Result<()> {
        let from = self.journal.newest(REMOVED_MAX)?;
        let heads = &mut self.heads;
        self.journal.visit(from, self.journal.tail(), &mut |entry| {
            let is_wanted = before.is_none_or(|before| entry.id < before);
            if entry.kind == Kind::Trigger && is_wanted && catalog.function_by_id(entry.subject).is_none() {
                let (id, number, trigger) = (entry.id, entry.seqno, entry.clone());
                heads.push(Head { id, function: None, number, trigger });
            }
            true
        })
    }

    fn next(&mut self) -> Option<Head> {
        let head = self.heads.pop()?;
        if let Some(function) = head.function {
            self.push(function, head.number - 1);
        }
        Some(head)
    }
}

fn state_of(fold: &Fold) -> RunState {
    match fold.outcome() {
        Some(Some(Outcome::Done)) => RunState::Done,
        Some(Some(Outcome::Cancelled)) => RunState::Cancelled,
        Some(Some(Outcome::Dead) | None) => RunState::Dead,
        None if fold.was_tried() => RunState::Started,
        None => RunState::Pending,
    }
}

/// Makes views of runs.
struct Shown<'a> {
    namespace: &'a Namespace,
    catalog: Arc<Catalog>,
    /// By dead-letter log: which letters were run again.
    notes: HashMap<u32, Notes>,
}

impl<'a> Shown<'a> {
    fn new(namespace: &'a Namespace, catalog: Arc<Catalog>) -> Self {
        Self { namespace, catalog, notes: HashMap::new() }
    }

    fn view(&mut self, fold: &Fold) -> Result<RunView> {
        let state = state_of(fold);
        let retried_as = if state == RunState::Dead { self.retried_as(fold)? } else { None };
        let records = |list: &[(LogOf, u64)]| list.iter().map(|(log, seqno)| self.record(log, *seqno)).collect();
        let (attempts, keys) = (fold.attempts.iter(), fold.keys.iter());
        Ok(RunView {
            id: fold.run.id,
            function: self.catalog.function_by_id(fold.function).map(|function| function.name().clone()),
            state,
            record: self.record(&LogOf::Id(fold.record.0), fold.record.1),
            cause: fold.cause,
            caused_by: self.caused_by(fold)?,
            triggered: fold.trigger.hlc,
            ended: fold.end.as_ref().map(|end| end.at),
            attempts: attempts.map(|fired| Attempt { attempt: fired.reported.attempt.into(), at: fired.at }).collect(),
            reads: records(&fold.reads),
            keys: keys.map(|(log, which)| KeysRead { table: self.log(*log), which: which.clone() }).collect(),
            appends: records(&fold.appends),
            retried_as,
            ending: fold.end.as_ref().map(|end| Ending {
                dead: (state != RunState::Done).then(|| RunError { code: end.code.clone(), error: end.error.clone() }),
                output: end.output.clone(),
            }),
            result: None,
            partial: fold.partial,
        })
    }

    fn record(&self, log: &LogOf, seqno: u64) -> RecordRef {
        let log: Option<LogName> = match log {
            LogOf::Id(id) => self.log(*id),
            LogOf::Name(name) => name.clone(),
        };
        RecordRef { log, seqno }
    }

    fn log(&self, id: u32) -> Option<LogName> {
        self.catalog.log_by_id(id).map(|log| log.name().clone())
    }

    /// The run that left what caused this one.
    fn caused_by(&self, fold: &Fold) -> Result<EventId> {
        if fold.cause.is_none() {
            return Ok(EventId::NONE);
        }
        let journal = self.namespace.journal();
        // Mostly the log still leads there. Of a record that has left it, it would have the whole journal read.
        let log = self.catalog.log_by_id(fold.record.0);
        let log = log.filter(|log| (log.earliest()..=log.latest()).contains(&fold.record.1));
        let by_log = log.map(|log| journal.position(log, fold.record.1));
        let entry = by_log.and_then(|position| journal.entry_at(position).ok()).filter(|entry| entry.id == fold.cause);
        // Entries that are kept for the run, or that were moved separately, such as a dead letter.
        let entry = match entry {
            Some(entry) => Some(entry),
            None => {
                journal.record_of(&fold.trigger)?.map_or_else(|| journal.find(fold.cause), |entry| Ok(Some(entry)))?
            }
        };
        Ok(entry.filter(|entry| !entry.claimed).map_or(EventId::NONE, |entry| entry.cause))
    }

    /// The run that retried the run's dead letter, which is its last record.
    fn retried_as(&mut self, fold: &Fold) -> Result<Option<EventId>> {
        let Some((log, letter)) = fold.last_append() else { return Ok(None) };
        let Some(log) = self.catalog.log_by_id(log) else { return Ok(None) };
        let notes = self.notes.entry(log.id()).or_default();
        notes.catch_up(self.namespace.journal(), &self.catalog, log)?;
        Ok(notes.of(letter))
    }
}
