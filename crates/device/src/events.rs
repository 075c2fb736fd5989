//! The events that an image implies, with their ids and clocks.

use crate::{Burst, Cause, Entry, Header, Image, Row, Sector};
use millrace_wire::{EventId, Hlc, NamespaceId};
use std::collections::{BTreeMap, VecDeque};

/// An event of a device, as its host would write it into a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id in the device.
    pub id: EventId,
    /// Its clock in the device.
    pub hlc: Hlc,
    /// The id of what caused it, if the image has it.
    pub cause: EventId,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the entries")]
pub enum What {
    Append {
        log: String,
        seqno: u64,
        payload: Vec<u8>,
        /// Whether a run appended it, which ends with the next DONE.
        of_run: bool,
    },
    Trigger {
        function: String,
        log: String,
        seqno: u64,
    },
    Fired {
        function: String,
        attempt: u8,
    },
    Read {
        function: String,
        rows: Vec<Seen>,
    },
    Done {
        function: String,
        outcome: u8,
        code: Option<u64>,
        log: String,
        seqno: u64,
        attempt: u8,
        /// How long ago the attempt began.
        ms: u64,
    },
    Open {
        reason: u8,
        epoch: u32,
        lost: u64,
    },
    Jump {
        ms: u64,
    },
    Note {
        what: u8,
        body: Vec<u8>,
    },
    /// Entries from this event's sequence up to `to` are damaged or were dropped.
    Missing {
        to: u64,
    },
}

/// Records that a run has read: `count` of a log, from one on; with 0 of them, it asked for the newest one, which was that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "see above")]
pub struct Seen {
    pub log: String,
    pub from: u64,
    pub count: u64,
}

/// How many ids of pending runs are remembered for each function.
const PENDING_MAX: usize = 4096;
/// The latest time that a device's clock can name, in milliseconds: it has 48 bits, and hosts count microseconds in 52.
const CLOCK_MAX_MS: u64 = (1 << 52) / 1000 - 1;

#[derive(Clone, Default)]
struct Function {
    name: String,
    logs: u64,
    /// How many of the oldest pending runs have an id that is not known, because their records were not read.
    unknown: u64,
    /// The ids of the other pending runs, oldest first.
    pending: VecDeque<EventId>,
}

impl Function {
    fn oldest(&self) -> EventId {
        if self.unknown > 0 { EventId::NONE } else { self.pending.front().copied().unwrap_or(EventId::NONE) }
    }

    fn end_oldest(&mut self) {
        if self.unknown > 0 {
            self.unknown -= 1;
        } else {
            self.pending.pop_front();
        }
    }

    fn add(&mut self, run: EventId) {
        self.pending.push_back(run);
        if self.pending.len() > PENDING_MAX {
            self.pending.pop_front();
            self.unknown += 1;
        }
    }

    /// As many runs are pending; they are the newest ones.
    fn keep(&mut self, count: u64) {
        let known = usize::try_from(count).unwrap_or(usize::MAX).min(self.pending.len());
        self.pending.drain(..self.pending.len() - known);
        self.unknown = count - known as u64;
    }
}

#[derive(Clone)]
struct Log {
    name: String,
    seqno: u64,
    history: u64,
    flags: u8,
}

/// The state while a journal is walked.
#[derive(Clone)]
pub(crate) struct Walk {
    namespace: NamespaceId,
    epoch: u32,
    sequence: u64,
    clock_ms: u64,
    /// Events with this clock so far.
    same_ms: u64,
    logs: BTreeMap<u8, Log>,
    functions: BTreeMap<u8, Function>,
    events: Vec<Event>,
}

impl Image {
    /// All events from the oldest sector on.
    pub fn events(&self) -> Vec<Event> {
        let Some(first) = self.sectors.first() else { return Vec::new() };
        let mut walk = Walk::new(&first.header);
        self.sectors.iter().for_each(|sector| walk.sector(sector));
        walk.events
    }
}

impl Walk {
    /// Begins with this sector.
    pub(crate) fn new(first: &Header) -> Walk {
        Walk {
            namespace: first.namespace,
            epoch: first.epoch,
            sequence: first.sequence,
            clock_ms: 0,
            same_ms: 0,
            logs: BTreeMap::new(),
            functions: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// The logs by the newest catalog: name, history and flags.
    pub(crate) fn logs(&self) -> impl Iterator<Item = (&str, u64, u8)> {
        self.logs.values().map(|log| (&*log.name, log.history, log.flags))
    }

    /// The events since the last call.
    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Continues with the catalog of a sector.
    pub(crate) fn begin(&mut self, header: &Header, catalog: &[Entry]) {
        if header.sequence > self.sequence {
            let to = header.sequence - 1;
            self.push(EventId::NONE, What::Missing { to });
        }
        self.sequence = header.sequence;
        self.clock_ms = header.clock_ms.min(CLOCK_MAX_MS);
        self.epoch = header.epoch;
        self.catalog(catalog);
    }

    fn sector(&mut self, sector: &Sector) {
        self.begin(&sector.header, &sector.catalog);
        sector.bursts.iter().for_each(|(_, burst)| self.burst(burst));
    }

    /// A catalog replaces the definitions. Functions keep the ids of the runs that are pending.
    fn catalog(&mut self, entries: &[Entry]) {
        let mut before: BTreeMap<String, Function> =
            std::mem::take(&mut self.functions).into_values().map(|old| (old.name.clone(), old)).collect();
        self.logs.clear();
        for entry in entries {
            match entry {
                Entry::Log { id, seqno, name, history, flags, .. } => {
                    let (name, seqno, history, flags) = (name.clone(), *seqno, *history, *flags);
                    self.logs.insert(*id, Log { name, seqno, history, flags });
                }
                Entry::Function { id, logs, name, pending, .. } => {
                    let mut function = before.remove(name).unwrap_or_default();
                    function.keep(*pending);
                    self.functions.insert(*id, Function { name: name.clone(), logs: *logs, ..function });
                }
                _ => {}
            }
        }
    }

    pub(crate) fn burst(&mut self, burst: &Burst) {
        self.at(burst.ms);
        for (index, entry) in burst.entries.iter().enumerate() {
            match entry {
                Entry::Append { log, cause: cause_of, payload, .. } => {
                    let cause = match cause_of {
                        Cause::Outside => EventId::NONE,
                        Cause::Event(id) => *id,
                        Cause::Run => self.run_of(&burst.entries[index..]),
                    };
                    self.append(*log, (cause, matches!(cause_of, Cause::Run)), payload);
                }
                Entry::Done { .. } => self.done(entry),
                Entry::Fired { function, attempt } => {
                    let (name, run) = self.function(*function);
                    // The first attempt is not in flash unless a second one follows.
                    for attempt in if *attempt == 2 { 1..=2 } else { *attempt..=*attempt } {
                        self.push(run, What::Fired { function: name.clone(), attempt });
                    }
                }
                Entry::Open { reason, epoch, lost } => {
                    self.epoch = *epoch;
                    self.push(EventId::NONE, What::Open { reason: *reason, epoch: *epoch, lost: *lost });
                }
                Entry::Later { ms } => self.at(*ms),
                Entry::Jump { ms } => {
                    self.push(EventId::NONE, What::Jump { ms: *ms });
                    self.at(*ms);
                }
                Entry::Note { what, body } => {
                    self.push(EventId::NONE, What::Note { what: *what, body: body.clone() });
                }
                Entry::Log { .. } | Entry::Function { .. } => {}
            }
        }
    }

    fn append(&mut self, log: u8, (cause, of_run): (EventId, bool), payload: &[u8]) {
        let Some(found) = self.logs.get_mut(&log) else { return };
        found.seqno = found.seqno.saturating_add(1);
        let (name, seqno) = (found.name.clone(), found.seqno);
        let record = self.push(cause, What::Append { log: name.clone(), seqno, payload: payload.to_vec(), of_run });
        let bound: Vec<u8> =
            self.functions.iter().filter(|(_, function)| function.logs >> log & 1 == 1).map(|(id, _)| *id).collect();
        for id in bound {
            let function = self.functions[&id].name.clone();
            let run = self.push(record, What::Trigger { function, log: name.clone(), seqno });
            self.functions.get_mut(&id).expect("it was found").add(run);
        }
    }

    fn done(&mut self, entry: &Entry) {
        let Entry::Done { function, outcome, attempt, log, behind, ms, rows, code, .. } = entry else { return };
        let (name, run) = self.function(*function);
        if *attempt == 1 {
            self.push(run, What::Fired { function: name.clone(), attempt: 1 });
        }
        if !rows.is_empty() {
            let rows = rows.iter().filter_map(|row| self.seen(row)).collect();
            self.push(run, What::Read { function: name.clone(), rows });
        }
        let (log, seqno) =
            self.logs.get(log).map_or((String::new(), 0), |log| (log.name.clone(), log.seqno.saturating_sub(*behind)));
        let (outcome, code, attempt, ms) = (*outcome, *code, *attempt, *ms);
        self.push(run, What::Done { function: name, outcome, code, log, seqno, attempt, ms });
        if let Some(function) = self.functions.get_mut(function) {
            function.end_oldest();
        }
    }

    /// What a row says at this place.
    fn seen(&self, row: &Row) -> Option<Seen> {
        let log = self.logs.get(&row.log)?;
        Some(Seen { log: log.name.clone(), from: log.seqno.saturating_sub(row.behind), count: row.count })
    }

    /// The run that the next DONE of these entries ends.
    fn run_of(&self, entries: &[Entry]) -> EventId {
        let done = entries.iter().find_map(|entry| match entry {
            Entry::Done { function, .. } => Some(*function),
            _ => None,
        });
        done.map_or(EventId::NONE, |function| self.function(function).1)
    }

    /// The name of a function and its oldest pending run.
    fn function(&self, id: u8) -> (String, EventId) {
        let found = self.functions.get(&id);
        let run = found.map_or(EventId::NONE, Function::oldest);
        (found.map_or_else(String::new, |function| function.name.clone()), run)
    }

    fn at(&mut self, ms: u64) {
        self.clock_ms = self.clock_ms.saturating_add(ms).min(CLOCK_MAX_MS);
        self.same_ms = 0;
    }

    fn push(&mut self, cause: EventId, what: What) -> EventId {
        let id = EventId::new(self.namespace, self.epoch, self.sequence);
        let hlc = Hlc::from_bits(Hlc::from_wall_us(self.clock_ms * 1000).get() + self.same_ms);
        self.sequence += 1;
        self.same_ms += 1;
        self.events.push(Event { id, hlc, cause, what });
        id
    }
}
