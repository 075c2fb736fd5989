//! The reads and appends of the runs of one batch: a snapshot of the namespace, and their appends, which stay invisible until they are
//! published.
//!
//! ```text
//!   a log as run i sees it:   [ records before the snapshot ][ appends of runs 0..i that ended well ][ its own ]
//!                              1 …               base         base + 1 …
//! ```
//!
//! The runs of a batch are executed one after the other, so each sees the appends of those before it, as if they had been published. If
//! another process appends to such a log meanwhile, those seqnos change, and a run that depends on them is executed again:
//! [`Stage::depends`] reports this to the publisher. The seqnos of a run's *own* appends are provisional in this sense.

pub(super) mod keyed;

use super::{
    starter::{Objects, Starter},
    streamed::Unrecorded,
};
use keyed::{Keyed, KeyedReads, StagedChange};
use millrace_journal::{Catalog, Journal, Log, Position, Reads, What};
use millrace_namespace::{
    RunResult, View,
    definition::{Rights, Writable},
    fence::Used,
    runs::printed::Printed,
    tables::Tables,
    tasks::Pool,
};
use millrace_runtime::{Asked, LogCalls, ObjectCalls, Replay};
use millrace_wire::{Address, Code, Error, EventId, LogName, Result, table::TableRequest};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

/// Most records one run may append.
pub(super) const APPENDS_MAX: usize = 10_000;
/// Most bytes that the reads of a run take in the journal, and at most half of a record: records in sequence take as much as one.
const READS_MAX_BYTES: usize = 1 << 20;

/// Where a staged record goes.
pub(super) enum Target<L = Log> {
    /// A log of this namespace.
    Log(L),
    /// A log of another one, through its outbox.
    Address(Address),
}

impl Target {
    /// The log, if it is one of this namespace.
    pub fn log(&self) -> Option<&Log> {
        match self {
            Target::Log(log) => Some(log),
            Target::Address(_) => None,
        }
    }
}

impl<'n> Target<Writable<'n>> {
    /// The target of this name or address for a function with these rights. The rights are checked before the log is looked up, so that a
    /// refusal does not reveal whether it exists.
    pub fn named(to: &'n str, rights: &Rights, pool: Option<&Pool>) -> Result<Self> {
        if Address::claims(to) {
            let address: Address = to.parse()?;
            millrace_namespace::outbox::check_target(&address)?;
            rights.check_send(&address)?;
            return Ok(Target::Address(address));
        }
        rights.writable(to, pool).map(Target::Log)
    }
}

/// A record to be appended.
pub(super) struct StagedAppend {
    pub to: Target,
    pub payload: Vec<u8>,
    /// What it does to a key, if it goes to a table.
    pub change: Option<StagedChange>,
}

/// The effects of one run.
#[derive(Default)]
pub(super) struct Effects {
    pub appends: Vec<StagedAppend>,
    pub reads: Reads,
    /// The answers that a streamed run got since its last append.
    pub calls: Vec<Unrecorded>,
    /// The result, as a DONE has it; empty if there is none.
    pub result: Vec<u8>,
    noted: Noted,
    /// Logs that were asked for and did not exist.
    missed: HashSet<(String, u64)>,
    /// Logs whose newest record must have this seqno when the run is published.
    pub depends: Vec<(Log, u64)>,
    /// What it read of tables.
    pub keyed: KeyedReads,
    /// It is to run again, however it ends.
    pub again: bool,
}

impl Effects {
    /// The reads of logs, including failed ones.
    pub fn used(&self) -> impl Iterator<Item = Used> {
        self.noted.iter()
    }

    /// The logs of whose newest record it asked for the number.
    pub(super) fn newest_read(&self) -> impl Iterator<Item = u32> {
        self.noted.0.keys().filter(|(_, what)| *what == What::Latest).map(|(log, _)| *log)
    }

    /// How many records the run read of each log.
    pub fn records_read(&self) -> impl Iterator<Item = (u32, u64)> {
        let records = self.noted.0.iter().filter(|((_, what), _)| *what == What::Record);
        records.map(|((log, _), ranges)| (*log, ranges.iter().map(|(from, end)| end - from).sum()))
    }

    /// An error if what was just noted is one read too many.
    pub(super) fn check_width(&self, bytes_max: usize) -> Result<()> {
        if self.reads.bytes() > bytes_max {
            let detail = format!("the list of the records that the run reads takes more than {bytes_max} bytes");
            return Err(Code::RunTooWide.error(detail));
        }
        Ok(())
    }
}

/// The reads of a run: ranges of seqnos, from their first up to, but not including, their end.
#[derive(Default)]
struct Noted(HashMap<(u32, What), BTreeMap<u64, u64>>);

impl Noted {
    /// Returns whether the read is a new one.
    fn insert(&mut self, (log, seqno, what): Used) -> bool {
        let ranges = self.0.entry((log, what)).or_default();
        let end = seqno.saturating_add(1);
        let before = ranges.range_mut(..=seqno).next_back().filter(|(_, end)| **end >= seqno);
        let from = match before {
            Some((_, end)) if *end > seqno => return false,
            Some((from, _)) => *from,
            None => seqno,
        };
        // It may close the gap to the next range.
        let end = ranges.remove(&end).unwrap_or(end);
        ranges.insert(from, end);
        true
    }

    fn iter(&self) -> impl Iterator<Item = Used> {
        let ranges = self.0.iter().flat_map(|((log, what), ranges)| ranges.iter().map(move |range| (log, what, range)));
        ranges.flat_map(|(log, what, (from, end))| (*from..*end).map(move |seqno| (*log, seqno, *what)))
    }
}

/// That a read was refused, and for which reason.
fn refused(error: &Error) -> What {
    What::Refused(error.code().id()[2..].parse().unwrap_or(0)) // `MR` and four digits
}

/// The view and the effects of a batch.
pub(super) struct Stage<'a> {
    /// The namespace as of the snapshot.
    pub(super) view: View<'a>,
    pub(super) tables: &'a Tables,
    pub(super) journal: &'a Journal,
    pub(super) snapshot: Position,
    pub(super) effects: Vec<Effects>,
    /// The function's rights.
    rights: &'a Rights,
    /// The logs of the pool that it may use in addition, if its runs are tasks.
    pool: Option<Pool>,
    /// By log: the appends visible so far, as (run, index).
    visible: HashMap<u32, Vec<(usize, usize)>>,
    /// By table and key: the same.
    pub(super) keyed: Keyed,
    pub(super) reads_max_bytes: usize,
}

impl<'a> Stage<'a> {
    pub fn new(
        tables: &'a Tables,
        journal: &'a Journal,
        catalog: Arc<Catalog>,
        snapshot: Position,
        (rights, pool): (&'a Rights, Option<Pool>),
        runs: usize,
    ) -> RefCell<Self> {
        RefCell::new(Self {
            view: View::new(journal, catalog, snapshot),
            tables,
            journal,
            snapshot,
            rights,
            pool,
            effects: std::iter::repeat_with(Effects::default).take(runs).collect(),
            visible: HashMap::new(),
            keyed: Keyed::default(),
            reads_max_bytes: READS_MAX_BYTES.min(journal.record_max_bytes() / 2),
        })
    }

    /// The last answers of a streamed run.
    pub fn reported(&mut self, run: usize, calls: Vec<Unrecorded>) {
        self.effects[run].calls = calls;
    }

    /// The result of a run.
    pub fn concluded(&mut self, run: usize, result: Vec<u8>) {
        self.effects[run].result = result;
    }

    /// What a run has read so far, besides its record: of each log the seqnos of records, or 0 for something about the whole log. None if it has
    /// seen what a run before it in the batch wrote, which is not published yet.
    pub fn seen(&self, run: usize) -> Option<HashSet<(u32, u64)>> {
        let effects = &self.effects[run];
        if !effects.depends.is_empty() || effects.keyed.relies() {
            return None;
        }
        let of_logs =
            effects.noted.iter().map(|(log, seqno, what)| (log, if what == What::Record { seqno } else { 0 }));
        Some(of_logs.chain(effects.keyed.seen()).collect())
    }

    /// A log that is a table with a database.
    pub fn in_database(&self, name: &str) -> Option<Log> {
        self.view.catalog().log(name).filter(|log| has_database(log)).cloned()
    }

    /// The run is repeated, however it ends, and the attempt does not count.
    pub fn repeat(&mut self, run: usize) {
        self.effects[run].again = true;
    }

    /// The effects of a run.
    pub fn effects(&self, run: usize) -> &Effects {
        &self.effects[run]
    }

    /// The run failed: later runs do not see its appends. Its reads are kept, in case it is given up.
    pub fn discard(&mut self, run: usize) {
        for append in &self.effects[run].appends {
            if let Some(visible) = append.to.log().and_then(|log| self.visible.get_mut(&log.id())) {
                visible.truncate(others(visible, run) as usize);
            }
        }
        self.keyed.discard(run);
        let Effects { reads, noted, .. } = std::mem::take(&mut self.effects[run]);
        self.effects[run] = Effects { reads, noted, ..Effects::default() };
    }

    /// The log that a run reads; a missing log or a missing right is recorded.
    pub(super) fn log_read(&mut self, run: usize, name: &str, seqno: u64) -> Result<Log> {
        let readable = self.rights.readable(name, self.pool.as_ref());
        let found = readable.and_then(|readable| self.view.log(readable));
        if let Err(error) = &found {
            let bytes_max = self.reads_max_bytes;
            let effects = &mut self.effects[run];
            // A log with an invalid name cannot have existed.
            if name.parse::<LogName>().is_ok() && effects.missed.insert((name.into(), seqno)) {
                effects.reads.name(name, seqno, refused(error));
                effects.check_width(bytes_max)?;
            }
        }
        found
    }

    fn append(&mut self, run: usize, log: &str, payload: &[u8]) -> Result<()> {
        let to = self.target(log)?;
        if to.log().is_some_and(|log| log.table().is_some()) {
            return Err(Code::LogIsTable.error(format!("a record without a key for log '{log}', which is a table")));
        }
        self.stage(run, StagedAppend { to, payload: payload.to_vec(), change: None })
    }

    /// Stages a record of a run.
    pub(super) fn stage(&mut self, run: usize, append: StagedAppend) -> Result<()> {
        let appends = &mut self.effects[run].appends;
        if appends.len() == APPENDS_MAX {
            return Err(Code::RunTooWide.error(format!("the run appends more than {APPENDS_MAX} records")));
        }
        if let Target::Log(log) = &append.to {
            self.visible.entry(log.id()).or_default().push((run, appends.len()));
            if let Some(change) = &append.change {
                self.keyed.add(log.id(), &change.key, (run, appends.len()));
            }
        }
        appends.push(append);
        Ok(())
    }

    pub(super) fn target(&self, log: &str) -> Result<Target> {
        match Target::named(log, self.rights, self.pool.as_ref())? {
            Target::Address(address) => Ok(Target::Address(address)),
            Target::Log(writable) => self.view.log(writable).map(Target::Log),
        }
    }

    /// The newest seqno at the snapshot, and the appends visible after it. A refusal is recorded for the record that is read, because
    /// the log may have been removed since the snapshot.
    fn extent(&mut self, run: usize, log: &Log, seqno: u64) -> Result<(u64, u64)> {
        let base = match self.view.latest(log) {
            Ok(base) => base,
            Err(error) => {
                self.note(run, log, seqno, refused(&error))?;
                return Err(error);
            }
        };
        let Some(visible) = self.visible.get(&log.id()) else { return Ok((base, 0)) };
        let of_others = others(visible, run);
        let depends = &mut self.effects[run].depends;
        if of_others > 0 && !depends.iter().any(|(other, _)| other.id() == log.id()) {
            depends.push((log.clone(), base + of_others));
        }
        Ok((base, visible.len() as u64))
    }

    pub(super) fn note(&mut self, run: usize, log: &Log, seqno: u64, what: What) -> Result<()> {
        let bytes_max = self.reads_max_bytes;
        let effects = &mut self.effects[run];
        if effects.noted.insert((log.id(), seqno, what)) {
            effects.reads.log(log.id(), seqno, what);
            effects.check_width(bytes_max)?;
        }
        Ok(())
    }

    fn get(&mut self, run: usize, name: &str, seqno: u64) -> Result<Vec<u8>> {
        let log = self.log_read(run, name, seqno)?;
        if seqno == 0 {
            let error = Code::SeqnoInvalid.error(format!("log '{name}' has no record 0"));
            self.note(run, &log, seqno, refused(&error))?;
            return Err(error);
        }
        let (base, visible) = self.extent(run, &log, seqno)?;
        if seqno <= base {
            let read = self.view.get(&log, seqno);
            let what = match &read {
                Ok(_) => What::Record,
                Err(error) if error.code() == Code::BelowHistory => What::BelowHistory,
                Err(error) => refused(error),
            };
            self.note(run, &log, seqno, what)?;
            return read;
        }
        if seqno > base + visible {
            self.note(run, &log, seqno, What::Absent)?;
            return Err(Code::AboveTail
                .error(format!("log '{name}' has no record {seqno} yet; the newest is {}", base + visible)));
        }
        let (of, index) = self.visible[&log.id()][(seqno - base - 1) as usize];
        if of != run {
            self.note(run, &log, seqno, What::Record)?;
        }
        Ok(self.effects[of].appends[index].payload.clone())
    }

    /// The newest record at the snapshot: what a repair took away is none.
    fn newest(&self, log: &Log, base: u64) -> Result<u64> {
        self.view.newest(log, base)
    }

    fn latest(&mut self, run: usize, name: &str) -> Result<u64> {
        let log = self.log_read(run, name, 0)?;
        let (base, visible) = self.extent(run, &log, 0)?;
        let of_others = self.visible.get(&log.id()).map_or(0, |visible| others(visible, run));
        let newest = self.newest(&log, base)?;
        self.note(run, &log, if of_others > 0 { base + of_others } else { newest }, What::Latest)?;
        Ok(if visible > 0 { base + visible } else { newest })
    }
}

/// How many of the visible appends are those of earlier runs; they come first.
fn others(visible: &[(usize, usize)], run: usize) -> u64 {
    visible.partition_point(|(of, _)| *of < run) as u64
}

/// Whether the log is a table with a database.
pub(super) fn has_database(log: &Log) -> bool {
    log.table().is_some_and(|options| options.database.is_some())
}

/// Waits until databases have what these records depend on: each is a log and a seqno, 0 for the whole log.
pub(super) trait Awaiting {
    /// # Errors
    ///
    /// MR7310: it takes too long, or the host stops.
    fn written(&self, records: Vec<(u32, u64)>) -> Result<()>;

    /// Waits until the database of a table has the synchronous changes of it.
    ///
    /// # Errors
    ///
    /// As [`Awaiting::written`].
    fn synchronous(&self, table: &Log) -> Result<()>;
}

/// Answers the calls of one run.
pub(super) struct RunCalls<'s, 'a> {
    pub stage: &'s RefCell<Stage<'a>>,
    pub run: usize,
    pub replay: Replay,
    pub starter: &'s Starter,
    /// Waits for databases.
    pub awaiting: &'s dyn Awaiting,
    /// The record that it runs on, and its bytes.
    pub trigger: (u32, u64),
    pub record: &'s [u8],
    /// Keeps what the run prints.
    pub printed: Printing<'s>,
}

/// Publishes the output of a run to this process while the run lasts. A function with secrets publishes its output only when its run has
/// ended, because the host cannot recognize a part of a secret.
#[derive(Clone, Copy)]
pub(super) struct Printing<'s> {
    printed: Option<&'s Printed>,
    run: EventId,
}

impl<'s> Printing<'s> {
    pub fn new(printed: &'s Printed, starter: &Starter, run: EventId) -> Self {
        let has_secrets = !starter.definition().spec.rights.secrets.is_empty();
        Self { printed: (!has_secrets).then_some(printed), run }
    }

    pub fn add(&self, bytes: &[u8]) {
        if let Some(printed) = self.printed {
            printed.add(self.run, bytes);
        }
    }
}

impl RunCalls<'_, '_> {
    /// Waits until databases have everything that the run has read.
    fn externalize(&self) -> Result<()> {
        let seen = self.stage.borrow().seen(self.run);
        let waited = match seen {
            Some(seen) => self.awaiting.written(seen.into_iter().chain([self.trigger]).collect()),
            // It is the first of its batch the next time.
            None => Err(Code::RunInterrupted.error("the run is repeated once what it has read is published")),
        };
        if waited.is_err() {
            self.stage.borrow_mut().repeat(self.run);
        }
        waited
    }

    /// No run sees a synchronous change before the database has it.
    fn await_synchronous(&self, log: &str) -> Result<()> {
        let table = self.stage.borrow().in_database(log);
        match table.map(|table| self.awaiting.synchronous(&table)) {
            Some(Err(error)) => {
                self.stage.borrow_mut().repeat(self.run);
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl LogCalls for RunCalls<'_, '_> {
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        let mut stage = self.stage.borrow_mut();
        if stage.pool.as_ref().is_some_and(|pool| pool.appends(log)) {
            Pool::check_result(self.record, payload)?;
        }
        stage.append(self.run, log, payload)?;
        Ok(None)
    }

    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>> {
        let read = self.stage.borrow_mut().get(self.run, log, seqno)?;
        self.await_synchronous(log)?;
        Ok(read)
    }

    fn latest(&mut self, log: &str) -> Result<u64> {
        let latest = self.stage.borrow_mut().latest(self.run, log)?;
        self.await_synchronous(log)?;
        Ok(latest)
    }

    fn table(&mut self, table: &str, request: &[u8]) -> Result<Vec<u8>> {
        let (now_us, request) = (self.replay.now_ns() / 1000, TableRequest::decode(request)?);
        if request == TableRequest::Externalize {
            self.externalize()?;
        }
        let answer = self.stage.borrow_mut().table(self.run, table, &request, now_us)?;
        if !request.changes() {
            self.await_synchronous(table)?;
        }
        Ok(answer.encode())
    }

    fn now_ns(&mut self) -> u64 {
        self.replay.now_ns()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.replay.random(bytes);
    }

    fn secret(&mut self, name: &str) -> Result<Vec<u8>> {
        self.starter.secret(name)
    }

    fn printed(&mut self, bytes: &[u8]) {
        self.printed.add(bytes);
    }

    fn result(&mut self, result: &[u8]) {
        self.stage.borrow_mut().concluded(self.run, RunResult::admitted(result).to_bytes());
    }
}

/// Answers the calls of one task to shared objects.
pub(super) struct TaskCalls<'s> {
    pub objects: &'s dyn Objects,
    /// The pool whose task it is.
    pub pool: &'s str,
    pub run: EventId,
    /// Whether it has called an object.
    pub called: bool,
}

impl ObjectCalls for TaskCalls<'_> {
    fn call(&mut self, call: &[u8]) -> Asked {
        self.called = true;
        self.objects.call(self.run, self.pool, call)
    }
}

impl TaskCalls<'_> {
    /// The attempt is over, and whether it ended well.
    pub fn over(&self, well: bool) {
        if self.called {
            self.objects.left(self.run, well);
        }
    }
}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

pub(super) fn fill_random(bytes: &mut [u8]) {
    // Linux refuses this only before 3.17, which has no futexes that we need either.
    getrandom::fill(bytes).expect("the operating system has a random source");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_is_noted_once_in_whatever_order() {
        let (mut noted, mut plain) = (Noted::default(), HashSet::new());
        for n in 0..4000u64 {
            let read = ((n % 3) as u32, n * 7919 % 500, if n % 7 == 0 { What::Latest } else { What::Record });
            assert_eq!(noted.insert(read), plain.insert(read), "{read:?}");
        }
        assert_eq!(noted.iter().collect::<HashSet<_>>(), plain);
        assert_eq!(noted.iter().count(), plain.len());
        let ranges: usize = noted.0.values().map(BTreeMap::len).sum();
        assert!(ranges < plain.len() / 2, "{ranges} ranges of {}", plain.len());
        let mut last = Noted::default();
        assert!(last.insert((1, u64::MAX - 1, What::Record)) && !last.insert((1, u64::MAX - 1, What::Record)));
    }
}
