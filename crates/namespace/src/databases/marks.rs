//! Marks: up to where each database must be written before anybody outside may see a record.
//!
//! The mark of a batch of the journal is, for each database, the greatest of: its own number, if it changes a table that is written there; the
//! marks of the records that triggered its runs; and those of all that its runs have read. All records and DONEs of a batch have this mark.
//! Everything follows from entries of the journal, so a process that starts reads from the last written position on.
//!
//! Where it is not known which records something depends on, it gets the mark of more of them: of a log, or of everything. Then answers wait
//! longer, and never too short.

use super::{
    DatabaseSettings, Progress, WriterReport, settings,
    written::{Awaited, Look, Written},
};
use crate::{
    Namespace,
    gate::{Marks, Need, Shows, Watermark},
};
use millrace_journal::{
    Catalog, Entry, Journal, KeyedRead, Kind, Log, Operation, Outcome, Position, ReadFrom, Scan, What,
};
use millrace_wire::{Code, DatabaseName, EventId, Result, TableMode};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::Thread,
};

/// Most databases of a namespace.
pub const DATABASES_MAX: usize = 8;
/// With more marked batches, neighbours are joined.
const BATCHES_MAX: usize = 100_000;
/// A row of a READ with more records counts as one of the whole log.
const ROW_RECORDS_MAX: u64 = 1000;
/// After so many batches what is written is forgotten.
const FORGET_EVERY: u32 = 256;

/// For each database, the number up to which it must be written.
type Mark = [u64; DATABASES_MAX];

fn raise(mark: &mut Mark, other: &Mark) {
    mark.iter_mut().zip(other).for_each(|(mark, other)| *mark = (*mark).max(*other));
}

/// What is not written to a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// When the oldest was committed, in microseconds since 1970; 0 if there is none.
    pub oldest_us: u64,
    /// The number of the newest batch; 0 if nothing was ever written there.
    pub newest: u64,
    /// Answers that wait.
    pub waiting: usize,
}

/// Batches for one database that may not be written.
#[derive(Clone, Copy, Default)]
struct Unwritten {
    number: u64,
    time_us: u64,
    rows: u64,
    bytes: u64,
}

/// A batch that is being read.
#[derive(Default)]
struct Open {
    /// What it inherits.
    mark: Mark,
    start: Option<Position>,
    own: [Unwritten; DATABASES_MAX],
    /// Its own changes: the run, if there is one, the database, and the mode of the table.
    changes: Vec<(EventId, usize, TableMode)>,
    /// The runs that end with it, and their functions.
    ended: HashMap<EventId, u32>,
    /// The runs of which it has entries, and those that end with it.
    runs: Vec<(EventId, bool)>,
    logs: Vec<u32>,
}

/// A batch that depends on unwritten writes.
#[derive(Clone, Copy)]
struct Marked {
    from: Position,
    mark: Mark,
    /// The part of the mark that does not come from its own changes.
    inherited: Mark,
    /// What runs wait for: its own synchronous changes.
    start: Mark,
}

struct MarksState {
    scan: Option<Scan>,
    catalog: Option<Arc<Catalog>>,
    databases: Vec<Arc<Written>>,
    open: Open,
    /// By their ends.
    batches: BTreeMap<Position, Marked>,
    /// Of the records of a log.
    logs: HashMap<u32, Mark>,
    /// What runs wait for that read a log.
    starts: HashMap<u32, Mark>,
    /// Of runs that have not ended.
    runs: HashMap<EventId, Mark>,
    /// Of everything.
    all: Mark,
    unwritten: [VecDeque<Unwritten>; DATABASES_MAX],
    newest: [u64; DATABASES_MAX],
    since_forgotten: u32,
    /// An entry was not understood, so nothing is known to be written.
    is_broken: bool,
}

/// The marks of a namespace.
pub struct DatabaseMarks {
    journal: Journal,
    /// Only as long as the namespace is open.
    namespace: Box<dyn Fn() -> Option<Namespace> + Send + Sync>,
    is_host: bool,
    /// Whether there is a database.
    any: AtomicBool,
    /// The definitions, and the number of the settings, that were looked at.
    seen: (AtomicU64, AtomicU64),
    settings: Mutex<Option<Log>>,
    state: Mutex<MarksState>,
    /// The thread that has to know when an answer begins to wait.
    supervisor: Mutex<Option<Thread>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Namespace {
    /// From now on answers of this process wait for databases. Without a database that costs nothing. The host calls it with `is_host`, and
    /// says how far databases are written; other processes learn that from the host.
    ///
    /// # Errors
    ///
    /// The settings of the databases cannot be read.
    pub fn wait_for_databases(&self, is_host: bool) -> Result<Arc<DatabaseMarks>> {
        let marks = self.inner().marks.get_or_init(|| self.new_marks(is_host)).clone();
        marks.refresh()?;
        // No answer waits for what is read here. What cannot be read is an error of the answers that depend on it.
        drop(marks.current());
        self.gate().set_marks(marks.clone());
        Ok(marks)
    }

    /// The marks, for a process that only looks at them.
    pub(super) fn database_marks(&self) -> Result<Arc<DatabaseMarks>> {
        let marks = self.inner().marks.get_or_init(|| self.new_marks(false)).clone();
        marks.refresh()?;
        Ok(marks)
    }

    fn new_marks(&self, is_host: bool) -> Arc<DatabaseMarks> {
        let weak = self.downgrade();
        Arc::new(DatabaseMarks {
            journal: self.journal().clone(),
            namespace: Box::new(weak),
            is_host,
            any: AtomicBool::new(false),
            seen: (AtomicU64::new(u64::MAX), AtomicU64::new(0)),
            settings: Mutex::default(),
            supervisor: Mutex::default(),
            state: Mutex::new(MarksState {
                scan: None,
                catalog: None,
                databases: Vec::new(),
                open: Open::default(),
                batches: BTreeMap::new(),
                logs: HashMap::new(),
                starts: HashMap::new(),
                runs: HashMap::new(),
                all: Mark::default(),
                unwritten: Default::default(),
                newest: Default::default(),
                since_forgotten: 0,
                is_broken: false,
            }),
        })
    }
}

/// How another process learns what the host has written.
fn look(namespace: &Namespace, settings: DatabaseSettings) -> Look {
    let (of_reached, of_report, name) = (namespace.downgrade(), namespace.downgrade(), settings.name);
    let reached = move || {
        let waiting = |detail: String| Code::WritesWaiting.error(detail);
        let namespace = of_reached().ok_or_else(|| waiting("the namespace was closed".into()))?;
        let reached = Progress::of(&namespace, &settings).number;
        match namespace.host() {
            Ok(None) => Err(waiting(format!("no host is running, which would write to database '{}'", settings.name))),
            _ => Ok(reached),
        }
    };
    let report =
        move || of_report().map_or_else(WriterReport::default, |namespace| WriterReport::of(&namespace, &name));
    Look { reached: Box::new(reached), report: Box::new(report) }
}

impl DatabaseMarks {
    /// Looks whether there are new databases.
    fn refresh(&self) -> Result<()> {
        let version = self.journal.catalog_version();
        let mut settings = locked(&self.settings);
        let Some(namespace) = (self.namespace)() else { return Ok(()) };
        if settings.is_none() {
            *settings = settings::log(&namespace)?;
        }
        if let Some(log) = &*settings {
            let latest = log.latest();
            if latest != self.seen.1.load(Ordering::Acquire) {
                self.take(&mut locked(&self.state))?;
                self.seen.1.store(latest, Ordering::Release);
            }
        }
        self.seen.0.store(version, Ordering::Release);
        Ok(())
    }

    /// Takes the databases that are new. They are never removed, and new ones come last.
    fn take(&self, state: &mut MarksState) -> Result<()> {
        let Some(namespace) = (self.namespace)() else { return Ok(()) };
        let mut from = None;
        for settings in namespace.databases()?.iter().skip(state.databases.len()).take(DATABASES_MAX) {
            let Progress { number, position } = Progress::of(&namespace, settings);
            from = Some(from.map_or(position, |from: Position| from.min(position)));
            let look = (!self.is_host).then(|| look(&namespace, settings.clone()));
            state.databases.push(Written::new(settings.name, number, look));
        }
        if let (None, Some(from)) = (&state.scan, from) {
            state.scan = Some(self.journal.scan_all(from));
        }
        self.any.store(!state.databases.is_empty(), Ordering::Release);
        Ok(())
    }

    /// The state, as of the end of the journal.
    fn current(&self) -> Result<MutexGuard<'_, MarksState>> {
        let mut state = locked(&self.state);
        state.catch_up(self)?;
        Ok(state)
    }

    /// A database is written up to this number.
    pub fn advance(&self, database: &DatabaseName, number: u64) {
        let written = locked(&self.state).databases.iter().find(|written| written.name == *database).cloned();
        if let Some(written) = written {
            written.advance(number);
        }
    }

    /// From now on this thread is unparked whenever an answer of this process begins to wait for a database.
    pub fn unpark_when_awaited(&self, supervisor: Thread) {
        *locked(&self.supervisor) = Some(supervisor);
    }

    /// The wait of one answer.
    fn awaited(&self, written: &Arc<Written>) -> Arc<dyn Watermark> {
        if let Some(supervisor) = &*locked(&self.supervisor) {
            supervisor.unpark();
        }
        Awaited::begin(written.clone())
    }

    /// Notes what the writer of a database says, for the errors of answers that wait too long.
    pub fn note(&self, database: &DatabaseName, report: &WriterReport) {
        let written = locked(&self.state).databases.iter().find(|written| written.name == *database).cloned();
        if let Some(written) = written {
            written.note(report);
        }
    }

    /// How many answers wait for a database.
    pub fn waiting(&self, database: &DatabaseName) -> u64 {
        let written = locked(&self.state).databases.iter().find(|written| written.name == *database).cloned();
        written.map_or(0, |written| written.waiters() as u64)
    }

    /// Ends the waits of answers that have waited too long.
    pub fn tick(&self) {
        let databases = locked(&self.state).databases.clone();
        databases.iter().for_each(|written| written.tick());
    }

    /// The databases on which a batch depends besides one, each with the number up to which it must be written.
    pub(super) fn others(&self, end: Position, own: &DatabaseName) -> Result<Vec<(DatabaseName, u64)>> {
        let state = self.current()?;
        let mark = state.batch(end).map_or(Mark::default(), |marked| marked.inherited);
        let all = state.databases.iter().zip(mark);
        Ok(all
            .filter(|(written, number)| written.name != *own && *number > 0)
            .map(|(w, number)| (w.name, number))
            .collect())
    }

    /// What is not written to a database.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn lag(&self, database: &DatabaseName) -> Result<Lag> {
        self.refresh()?;
        let mut state = self.current()?;
        let Some(index) = state.databases.iter().position(|written| written.name == *database) else {
            return Ok(Lag::default());
        };
        let _ = state.databases[index].look();
        state.forget();
        let unwritten = &state.unwritten[index];
        Ok(Lag {
            rows: unwritten.iter().map(|batch| batch.rows).sum(),
            bytes: unwritten.iter().map(|batch| batch.bytes).sum(),
            oldest_us: unwritten.front().map_or(0, |batch| batch.time_us),
            newest: state.newest[index],
            waiting: state.databases[index].waiters(),
        })
    }

    /// What has to be waited for until everything that tables have now is in their databases; that of one database, if one is given.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn all_written(&self, database: Option<&DatabaseName>) -> Result<Vec<Need>> {
        self.refresh()?;
        let state = self.current()?;
        let mut needs = Vec::new();
        for (index, written) in state.databases.iter().enumerate() {
            if database.is_none_or(|name| written.name == *name) {
                let newest = state.newest[index];
                // What is written is forgotten, and never was unwritten for this process.
                let upto = state.unwritten[index].back().map_or(0, |batch| batch.number.max(newest));
                needs.push((self.awaited(written), upto));
            }
        }
        Ok(needs)
    }
}

impl DatabaseMarks {
    /// The databases for which answers wait because of changes, and those for which runs do. The mode of a run's function, as it is now,
    /// replaces that of the table.
    fn modes(
        &self,
        changes: &[(EventId, usize, TableMode)],
        ended: &HashMap<EventId, u32>,
    ) -> ([bool; DATABASES_MAX], [bool; DATABASES_MAX]) {
        let has_runs = changes.iter().any(|(run, ..)| ended.contains_key(run));
        let bindings = if has_runs { (self.namespace)().and_then(|namespace| namespace.bindings().ok()) } else { None };
        let of_function = |run: &EventId| {
            let function = ended.get(run)?;
            bindings.as_ref()?.definition(*function)?.spec.table_mode
        };
        let (mut waits, mut is_synchronous) = ([false; DATABASES_MAX], [false; DATABASES_MAX]);
        for (run, index, mode) in changes {
            let mode = of_function(run).unwrap_or(*mode);
            waits[*index] |= mode.waits();
            is_synchronous[*index] |= mode == TableMode::Synchronous;
        }
        (waits, is_synchronous)
    }
}

impl Marks for DatabaseMarks {
    fn any(&self) -> bool {
        let version = self.journal.catalog_version();
        let is_seen = self.seen.0.load(Ordering::Acquire) == version;
        if !is_seen && self.refresh().is_err() {
            // It is not known whether there is one.
            return true;
        }
        self.any.load(Ordering::Acquire)
    }

    fn of(&self, shows: &Shows<'_>, needs: &mut Vec<Need>) {
        if matches!(shows, Shows::Report(_)) {
            return;
        }
        // A second database changes the settings, and no definition.
        let state = self.refresh().and_then(|()| self.current());
        let Ok(state) = state else {
            // The journal cannot be read, so nothing is known to be written.
            let state = locked(&self.state);
            needs.extend(state.databases.iter().map(|written| (self.awaited(written), u64::MAX)));
            return;
        };
        let mut mark = Mark::default();
        match *shows {
            Shows::Record(upto) | Shows::Batch(upto) => raise(&mut mark, &state.of_batch(upto)),
            Shows::Start(upto) => raise(&mut mark, &state.batch(upto).map_or(Mark::default(), |marked| marked.start)),
            Shows::Records(all) => all.iter().for_each(|upto| raise(&mut mark, &state.of_batch(*upto))),
            Shows::Log { log, .. } => raise(&mut mark, &state.logs.get(&log).copied().unwrap_or_default()),
            Shows::Synchronous { log, .. } => raise(&mut mark, &state.starts.get(&log).copied().unwrap_or_default()),
            Shows::All(_) => raise(&mut mark, &state.all),
            Shows::Report(_) => {}
        }
        for (written, number) in state.databases.iter().zip(mark) {
            if written.reached() < number {
                let _ = written.look();
            }
            if written.reached() < number {
                needs.push((self.awaited(written), number));
            }
        }
    }
}

impl MarksState {
    fn catch_up(&mut self, marks: &DatabaseMarks) -> Result<()> {
        if self.is_broken {
            return Err(Code::WritesWaiting.error("an entry of the journal was not understood"));
        }
        let tail = marks.journal.tail();
        let Some(mut scan) = self.scan.take() else { return Ok(()) };
        let mut result = Ok(());
        while scan.position() < tail {
            match scan.next() {
                Ok(Some(entry)) => {
                    if let Err(error) = self.entry(marks, entry) {
                        self.is_broken = true;
                        result = Err(error);
                        break;
                    }
                }
                Ok(None) => break,
                // It is not known what stood there.
                Err(error) if error.code() == Code::EntryDamaged => {
                    let all = self.all;
                    raise(&mut self.open.mark, &all);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.scan = Some(scan);
        result
    }

    fn entry(&mut self, marks: &DatabaseMarks, entry: &Entry) -> Result<()> {
        let journal = &marks.journal;
        self.open.start.get_or_insert(entry.position);
        if entry.shadow || entry.kind == Kind::Generation {
            // What a repair puts into the place of records depends on all that it has read.
            let all = self.all;
            raise(&mut self.open.mark, &all);
        }
        if entry.carried {
            // A copy has the mark of what it is a copy of.
            let mark = self.of_batch(entry.written.just_after());
            raise(&mut self.open.mark, &mark);
        }
        match entry.kind {
            Kind::Append if !entry.carried => self.append(marks, entry)?,
            Kind::Trigger => {
                if let Some((log, seqno)) = entry.trigger_record() {
                    let mark = self.of_record(journal, log, seqno)?;
                    raise(&mut self.open.mark, &mark);
                }
                self.open.runs.push((entry.id, false));
            }
            Kind::Read => self.reads(journal, entry)?,
            Kind::Done => {
                self.open.runs.push((entry.cause, true));
                self.open.ended.insert(entry.cause, entry.subject);
                if entry.ending().is_some_and(|end| end.outcome != Outcome::Done) {
                    // Of a run that is given up, not all reads are noted.
                    let all = self.all;
                    raise(&mut self.open.mark, &all);
                }
            }
            Kind::Call => {
                self.open.runs.push((entry.cause, false));
                // What a streamed run has read so far is in its calls, which only the dispatcher understands.
                let all = self.all;
                raise(&mut self.open.mark, &all);
            }
            _ => {}
        }
        if entry.last {
            self.end(marks, entry);
        }
        Ok(())
    }

    fn append(&mut self, marks: &DatabaseMarks, entry: &Entry) -> Result<()> {
        self.open.logs.push(entry.subject);
        if !entry.claimed && entry.cause != EventId::NONE {
            self.open.runs.push((entry.cause, false));
        }
        if entry.shadow {
            return Ok(());
        }
        let Some(row) = entry.row() else { return Ok(()) };
        if row.operation == Operation::Increment
            && let Some(mark) = self.logs.get(&entry.subject)
        {
            // The sum depends on the value before it.
            let mark = *mark;
            raise(&mut self.open.mark, &mark);
        }
        let Some(log) = self.log(&marks.journal, entry.subject)? else { return Ok(()) };
        let Some(options) = log.table().copied() else { return Ok(()) };
        let Some(name) = options.database else { return Ok(()) };
        let index = match self.index(&name) {
            Some(index) => index,
            None => {
                marks.take(self)?;
                self.index(&name).ok_or_else(|| Code::DatabaseNotFound.error(format!("no database '{name}'")))?
            }
        };
        let own = &mut self.open.own[index];
        own.rows += 1;
        own.bytes += (row.key.len() + entry.payload.len()) as u64;
        let run = if entry.claimed { EventId::NONE } else { entry.cause };
        let change = (run, index, options.mode);
        if self.open.changes.last() != Some(&change) {
            self.open.changes.push(change);
        }
        Ok(())
    }

    fn index(&self, database: &DatabaseName) -> Option<usize> {
        self.databases.iter().position(|written| written.name == *database)
    }

    fn log(&mut self, journal: &Journal, id: u32) -> Result<Option<Log>> {
        if self.catalog.as_ref().is_none_or(|catalog| catalog.log_by_id(id).is_none()) {
            self.catalog = Some(journal.catalog()?);
        }
        Ok(self.catalog.as_ref().and_then(|catalog| catalog.log_by_id(id)).cloned())
    }

    fn reads(&mut self, journal: &Journal, entry: &Entry) -> Result<()> {
        self.open.runs.push((entry.cause, false));
        let mut mark = Mark::default();
        for row in entry.reads() {
            match row.log {
                ReadFrom::Log(log) if row.what == What::Record && row.count <= ROW_RECORDS_MAX => {
                    for seqno in row.from..row.from.saturating_add(row.count) {
                        raise(&mut mark, &self.of_record(journal, log, seqno)?);
                    }
                }
                ReadFrom::Log(log) => raise(&mut mark, &self.of_log(log)),
                ReadFrom::Name(_) => {}
            }
        }
        for row in KeyedRead::decode(&entry.payload) {
            match row {
                KeyedRead::Found { log, seqno } => raise(&mut mark, &self.of_record(journal, log, seqno)?),
                // Deletions count, too.
                KeyedRead::Absent { log, .. } | KeyedRead::Range { log, .. } => raise(&mut mark, &self.of_log(log)),
            }
        }
        raise(&mut self.open.mark, &mark);
        Ok(())
    }

    fn of_log(&self, log: u32) -> Mark {
        self.logs.get(&log).copied().unwrap_or_default()
    }

    /// The mark of a record; that of its log, if it is not known where the record stands.
    fn of_record(&mut self, journal: &Journal, log: u32, seqno: u64) -> Result<Mark> {
        let of_log = self.of_log(log);
        if of_log == Mark::default() {
            return Ok(of_log);
        }
        let Some(log) = self.log(journal, log)? else { return Ok(of_log) };
        let position = journal.position(&log, seqno);
        Ok(if position == Position::default() { of_log } else { self.of_batch(position.just_after()) })
    }

    /// The mark of the batch that ends at this position, or contains the entry before it.
    fn of_batch(&self, upto: Position) -> Mark {
        self.batch(upto).map_or(Mark::default(), |marked| marked.mark)
    }

    fn batch(&self, upto: Position) -> Option<&Marked> {
        self.batches.range(upto..).next().map(|(_, marked)| marked).filter(|marked| marked.from < upto)
    }

    /// A batch is read.
    fn end(&mut self, marks: &DatabaseMarks, last: &Entry) {
        let Open { mut mark, start, own, changes, ended, mut runs, mut logs } = std::mem::take(&mut self.open);
        let number = last.id.sequence();
        let (waits, is_synchronous) = marks.modes(&changes, &ended);
        for (run, _) in &runs {
            if let Some(of_run) = self.runs.get(run) {
                raise(&mut mark, of_run);
            }
        }
        let inherited = mark;
        for (index, mut unwritten) in own.into_iter().enumerate().filter(|(_, own)| own.rows > 0) {
            (unwritten.number, unwritten.time_us) = (number, last.hlc.wall_us());
            self.newest[index] = number;
            push(&mut self.unwritten[index], unwritten);
        }
        mark.iter_mut().zip(waits).filter(|(_, waits)| *waits).for_each(|(mark, _)| *mark = number);
        let of_start = is_synchronous.map(|is_synchronous| if is_synchronous { number } else { 0 });
        self.since_forgotten += 1;
        if self.since_forgotten >= FORGET_EVERY {
            self.forget();
        }
        let is_written = self.databases.iter().zip(mark).all(|(written, number)| written.reached() >= number);
        if !is_written {
            raise(&mut self.all, &mark);
            logs.sort_unstable();
            logs.dedup();
            logs.iter().for_each(|log| raise(self.logs.entry(*log).or_default(), &mark));
            if of_start != Mark::default() {
                logs.iter().for_each(|log| raise(self.starts.entry(*log).or_default(), &of_start));
            }
            let from = start.unwrap_or(last.position);
            self.batches.insert(last.end, Marked { from, mark, inherited, start: of_start });
            if self.batches.len() > BATCHES_MAX {
                self.join();
            }
        }
        runs.sort_unstable_by_key(|(run, ends)| (*run, *ends));
        for (run, ends) in runs {
            if ends {
                self.runs.remove(&run);
            } else if !is_written {
                raise(self.runs.entry(run).or_default(), &mark);
            }
        }
    }

    /// Forgets what is written.
    fn forget(&mut self) {
        self.since_forgotten = 0;
        let mut reached = [u64::MAX; DATABASES_MAX];
        self.databases.iter().zip(&mut reached).for_each(|(written, reached)| *reached = written.reached());
        let is_waiting = |mark: &Mark| mark.iter().zip(&reached).any(|(mark, reached)| mark > reached);
        self.batches.retain(|_, marked| is_waiting(&marked.mark));
        self.logs.retain(|_, mark| is_waiting(mark));
        self.starts.retain(|_, mark| is_waiting(mark));
        self.runs.retain(|_, mark| is_waiting(mark));
        for (unwritten, reached) in self.unwritten.iter_mut().zip(reached) {
            while unwritten.pop_front_if(|batch| batch.number <= reached).is_some() {}
        }
    }

    /// Joins each two neighbours under the later mark: answers wait longer.
    fn join(&mut self) {
        let mut joined = BTreeMap::new();
        let mut all = std::mem::take(&mut self.batches).into_iter();
        while let Some((mut end, mut marked)) = all.next() {
            if let Some((behind, other)) = all.next() {
                end = behind;
                raise(&mut marked.mark, &other.mark);
                raise(&mut marked.inherited, &other.inherited);
                raise(&mut marked.start, &other.start);
            }
            joined.insert(end, marked);
        }
        self.batches = joined;
    }
}

/// Adds a batch; if there are very many, to the one before it.
fn push(unwritten: &mut VecDeque<Unwritten>, batch: Unwritten) {
    let is_full = unwritten.len() >= BATCHES_MAX;
    match unwritten.back_mut() {
        Some(last) if is_full => {
            (last.number, last.rows, last.bytes) = (batch.number, last.rows + batch.rows, last.bytes + batch.bytes);
        }
        _ => unwritten.push_back(batch),
    }
}
