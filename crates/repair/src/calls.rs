//! Answers the calls of a replayed run: with the records that the original run saw, or their repaired versions.

use crate::{
    overlay::Overlay,
    past::{At, Fired, Past, Row, Run},
};
use millrace_journal::{Journal, Operation, Reads, What};
use millrace_namespace::{
    Namespace,
    definition::{Checked, Readable, Rights},
    outbox::{self, message, state::State},
};
use millrace_runtime::{LogCalls, Replay};
use millrace_wire::{Address, Code, Error, LogName, Result, table::TableRequest};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The limits are those of a run that is not replayed.
const APPENDS_MAX: usize = 10_000;

/// Slots of logs: by log and first seqno, the seqno after the last.
struct Spans(BTreeMap<(u32, u64), u64>);

impl Spans {
    fn of<'r>(rows: impl Iterator<Item = &'r Row>) -> Self {
        let mut rows: Vec<_> = rows.map(|row| (row.log, row.from, row.from.saturating_add(row.count))).collect();
        rows.sort_unstable();
        let mut spans = BTreeMap::new();
        for (log, from, to) in rows {
            match spans.range_mut(..=(log, from)).next_back() {
                Some(((of, _), end)) if *of == log && *end >= from => *end = to.max(*end),
                _ => drop(spans.insert((log, from), to)),
            }
        }
        Self(spans)
    }

    fn has(&self, (log, seqno): (u32, u64)) -> bool {
        self.0.range(..=(log, seqno)).next_back().is_some_and(|((of, _), end)| *of == log && seqno < *end)
    }
}

/// What a run does to a key.
#[derive(Clone, Debug)]
pub struct Staged {
    pub key: Vec<u8>,
    pub operation: Operation,
    pub ttl_ms: u64,
    pub amount: i64,
    /// When the run did it, in microseconds since 1970.
    pub now_us: u64,
}

/// A record that a run leaves.
#[derive(Clone, Debug)]
pub struct Leaving {
    pub log: u32,
    pub payload: Vec<u8>,
    /// What it does to a key, in a table.
    pub change: Option<Staged>,
}

/// The calls of one run, and its appends.
pub struct Calls<'a> {
    pub journal: &'a Journal,
    pub past: &'a Past,
    pub overlay: &'a Overlay,
    pub fired: Fired,
    pub rights: &'a Rights,
    pub replay: Replay,
    /// Its appends, in order.
    pub appends: Vec<Leaving>,
    /// By log: which of them went there.
    own: HashMap<u32, Vec<usize>>,
    /// By table and key: which of them change it.
    pub(crate) own_changes: HashMap<(u32, Vec<u8>), Vec<usize>>,
    /// The keys and ranges that are among its reads.
    pub(crate) noted_keys: HashSet<(u32, Vec<u8>)>,
    pub(crate) noted_ranges: HashSet<(u32, Vec<u8>, Vec<u8>)>,
    pub reads: Reads,
    noted: HashSet<(u32, u64, What)>,
    /// The records that the original run read.
    read: Spans,
    /// The reads that were refused because of something that may have happened during the run, such as a trim: they are refused again.
    below: Spans,
    removed: Spans,
    /// Whether it read a log whose name the journal no longer has.
    has_lost_log: bool,
    /// Whether it does not see its own appends.
    pub hides_own: bool,
    /// Why the run cannot be replayed here at all.
    pub broken: Option<Error>,
}

impl<'a> Calls<'a> {
    pub fn new(
        journal: &'a Journal,
        (past, overlay): (&'a Past, &'a Overlay),
        (run, fired): (&Run, Fired),
        rights: &'a Rights,
        replay: Replay,
    ) -> Self {
        let is = |what: What, code: Code| {
            matches!(what, What::Refused(number) if code.id()[2..].parse() == Ok(number))
                || what == What::BelowHistory && code == Code::BelowHistory
        };
        let of = |is: &dyn Fn(What) -> bool| Spans::of(run.reads.iter().filter(|row| is(row.what)));
        Self {
            journal,
            past,
            overlay,
            fired,
            rights,
            replay,
            appends: Vec::new(),
            own: HashMap::new(),
            own_changes: HashMap::new(),
            noted_keys: HashSet::new(),
            noted_ranges: HashSet::new(),
            reads: Reads::default(),
            noted: HashSet::new(),
            read: of(&|what| what == What::Record),
            below: of(&|what| is(what, Code::BelowHistory)),
            removed: of(&|what| is(what, Code::LogNotFound)),
            has_lost_log: run.reads.iter().any(|row| !past.logs.contains_key(&row.log)),
            hides_own: false,
            broken: None,
        }
    }

    pub(crate) fn log(&mut self, checked: impl Checked + Copy) -> Result<u32> {
        if let Some(log) = self.past.log_at(checked, &self.fired) {
            return Ok(log);
        }
        let name = checked.name();
        if self.has_lost_log {
            return self.breaks(format!("it read a log that was removed since, which may have been '{name}'"));
        }
        Err(Code::LogNotFound.error(format!("no log '{name}'")))
    }

    /// The log for a read of a record, or of the newest seqno as 0. An error if the original run was refused this read for a reason that
    /// the state before the run does not show.
    pub(crate) fn log_read(&mut self, readable: Readable<'_>, seqno: u64) -> Result<u32> {
        let (log, name) = (self.log(readable)?, readable.name());
        let slot = (log, seqno);
        if self.removed.has(slot) {
            return self.refuse(slot, Code::LogNotFound.error(format!("log '{name}' was removed")));
        }
        if self.below.has(slot) {
            return self.refuse(slot, Code::BelowHistory.error(format!("log '{name}' no longer has record {seqno}")));
        }
        Ok(log)
    }

    /// The run cannot be replayed here.
    pub(crate) fn breaks<T>(&mut self, why: String) -> Result<T> {
        Err(self.broken.get_or_insert_with(|| Code::RepairUnsupported.error(why)).clone())
    }

    pub(crate) fn note(&mut self, log: u32, seqno: u64, what: What) {
        if self.noted.insert((log, seqno, what)) {
            self.reads.log(log, seqno, what);
        }
    }

    fn refuse<T>(&mut self, (log, seqno): (u32, u64), error: Error) -> Result<T> {
        let what = match error.code() {
            Code::BelowHistory => What::BelowHistory,
            Code::AboveTail => What::Absent,
            code => What::Refused(code.id()[2..].parse().unwrap_or(0)), // `MR` and four digits
        };
        self.note(log, seqno, what);
        Err(error)
    }

    /// Appends a message for another namespace, if the outbox for it existed when the run was replayed for the first time.
    fn send(&mut self, to: &str, payload: &[u8]) -> Result<Option<u64>> {
        let address: Address = to.parse()?;
        let target = outbox::check_target(&address)?;
        self.rights.check_send(&address)?;
        let found = |name: LogName| self.past.logs.iter().find(|(_, log)| log.name == name).map(|(id, _)| *id);
        let mut log = found(outbox::outbox_of(&address.peer));
        if log.is_none() {
            // A peer may have got this address later.
            let state = State::load(&Namespace::over(self.journal.clone()))?;
            log = state.peer_at(&address.peer).and_then(|peer| found(outbox::log_of(&peer.name)));
        }
        let Some(log) = log else {
            return self.breaks(format!("the run sends to '{to}', to which it sent no message before"));
        };
        let mut bytes = Vec::new();
        message::encode(&mut bytes, 0, target, None, payload);
        self.leave(Leaving { log, payload: bytes, change: None })
    }

    pub(crate) fn leave(&mut self, leaving: Leaving) -> Result<Option<u64>> {
        if self.appends.len() == APPENDS_MAX {
            return Err(Code::RunTooWide.error(format!("the run appends more than {APPENDS_MAX} records")));
        }
        if !self.hides_own {
            self.own.entry(leaving.log).or_default().push(self.appends.len());
        }
        self.appends.push(leaving);
        Ok(None)
    }

    /// The content of a slot that the run saw.
    pub(crate) fn at(&self, log: u32, seqno: u64) -> Option<At> {
        let slot = self.past.logs.get(&log)?.slots.get(&seqno).filter(|slot| self.past.sees(&self.fired, slot))?;
        Some(self.overlay.at(log, seqno).unwrap_or(slot.at))
    }

    /// The newest record of a log that the run saw, not counting its own.
    fn newest(&self, log: u32) -> Result<u64> {
        newest(self.past, self.overlay, log, &self.fired)
    }
}

/// The newest record of a log that an attempt sees in the repaired history; see [`millrace_journal::Extent::newest`].
pub fn newest(past: &Past, overlay: &Overlay, log: u32, fired: &Fired) -> Result<u64> {
    let Some(log_past) = past.logs.get(&log) else { return Ok(0) };
    let (extent, upto) = (past.extent(log, fired), past.newest_slot(log, fired));
    let is_void = |seqno: u64| {
        let at = overlay.at(log, seqno).or_else(|| Some(log_past.slots.get(&seqno)?.at));
        at.is_some_and(|at| at.void)
    };
    // Those of the run's claim come first.
    let of_claim = log_past.slots.range(extent.latest + 1..).take_while(|(seqno, _)| **seqno <= upto);
    let of_claim = of_claim.filter(|(seqno, slot)| past.sees(fired, slot) && !is_void(**seqno));
    match of_claim.last() {
        Some((seqno, _)) => Ok(*seqno),
        None => extent.newest(|seqno| Ok(is_void(seqno))),
    }
}

impl LogCalls for Calls<'_> {
    fn append(&mut self, name: &str, payload: &[u8]) -> Result<Option<u64>> {
        if Address::claims(name) {
            return self.send(name, payload);
        }
        let log = self.log(self.rights.writable(name, None)?)?;
        if self.journal.catalog()?.log_by_id(log).is_some_and(|log| log.table().is_some()) {
            return Err(Code::LogIsTable.error(format!("a record without a key for log '{name}', which is a table")));
        }
        self.leave(Leaving { log, payload: payload.to_vec(), change: None })
    }

    fn get(&mut self, name: &str, seqno: u64) -> Result<Vec<u8>> {
        let readable = self.rights.readable(name, None)?;
        if seqno == 0 {
            let whose = (self.log(readable)?, seqno);
            return self.refuse(whose, Code::SeqnoInvalid.error(format!("log '{name}' has no record 0")));
        }
        let log = self.log_read(readable, seqno)?;
        let whose = (log, seqno);
        let newest = self.past.newest_slot(log, &self.fired);
        if seqno > newest {
            let own = self.own.get(&log).map_or(&[][..], |own| own);
            if let Some(index) = own.get((seqno - newest - 1) as usize) {
                return Ok(self.appends[*index].payload.clone());
            }
            let newest = newest + own.len() as u64;
            let error = format!("log '{name}' has no record {seqno} yet; the newest is {newest}");
            return self.refuse(whose, Code::AboveTail.error(error));
        }
        let extent = self.past.extent(log, &self.fired);
        if seqno <= extent.latest {
            if !extent.has(seqno) {
                let error = format!("log '{name}' no longer has record {seqno}; the oldest is {}", extent.earliest());
                return self.refuse(whose, Code::BelowHistory.error(error));
            }
            if !self.past.knows_history(log, &self.fired) && !self.read.has(whose) {
                return self.breaks(format!("the journal no longer says how many records log '{name}' kept then"));
            }
        }
        let Some(at) = self.at(log, seqno) else {
            let known = self.past.logs.get(&log).is_some_and(|past| past.slots.contains_key(&seqno));
            if known {
                return self.refuse(whose, Code::AboveTail.error(format!("log '{name}' has no record {seqno} yet")));
            }
            return self.refuse(whose, Code::BelowHistory.error(format!("log '{name}' no longer has record {seqno}")));
        };
        if at.void {
            let error = format!("log '{name}' no longer has record {seqno}: a repair removed it");
            return self.refuse(whose, Code::RecordVoid.error(error));
        }
        match self.journal.entry_at(at.position) {
            Ok(entry) => {
                self.note(log, seqno, What::Record);
                Ok(entry.payload)
            }
            Err(error) => self.breaks(format!("record {seqno} of log '{name}': {error}")),
        }
    }

    fn latest(&mut self, name: &str) -> Result<u64> {
        let log = self.log_read(self.rights.readable(name, None)?, 0)?;
        let newest = self.newest(log)?;
        self.note(log, newest, What::Latest);
        let own = self.own.get(&log).map_or(0, Vec::len) as u64;
        Ok(if own > 0 { self.past.newest_slot(log, &self.fired) + own } else { newest })
    }

    fn table(&mut self, table: &str, request: &[u8]) -> Result<Vec<u8>> {
        Ok(self.ask_table(table, &TableRequest::decode(request)?)?.encode())
    }

    fn now_ns(&mut self) -> u64 {
        self.replay.now_ns()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.replay.random(bytes);
    }
}
