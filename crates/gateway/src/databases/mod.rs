//! Writes tables to their databases: one writer for each database of a namespace that this process hosts.
//!
//! ```text
//!  journal ── Writes ──> a writer's thread ──> the database
//!     └── DatabaseMarks: the gate <── how far is written ──┘
//! ```
//!
//! A supervisor starts writers when there are tables for them, and again when the settings, the secret or the tables change. Everything that has to
//! survive is in the journal and in the database, so this process may die at any moment.

mod compare;

pub use compare::{Comparison, Difference, check_table, load_table};

use millrace_databases::{
    DeadLetters, Keys, Options, Progress, Secret, Source, Table, Target, Values, Writer, WriterOptions,
    writebehind::{Batch, OnRefused, Operation, Refusal, Requirement, Row},
};
use millrace_node::{
    Log, Namespace,
    databases::{
        DatabaseMarks, DatabaseSettings, Resync, Trouble, UNWRITTEN_MAX_BYTES, WhenRefused, Write, WriteBatch,
        WriterReport, Writes,
    },
    secrets::FunctionSecrets,
};
use millrace_wire::{
    Code, DatabaseName, Error, LogName, Name, Result,
    table::{KeyType, TableCodec},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often the supervisor looks for new databases and tables, and wakes answers that have waited too long.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The same without any database: a host with nothing to do sleeps.
const LOOK_EVERY_WITHOUT: Duration = Duration::from_secs(2);
/// After so many commits in a row that changed no table with a database, the supervisor stops waiting for commits, each of which would take
/// twice as long because it wakes the supervisor. It looks after each pause instead, and at once when an answer begins to wait for a database.
const UNRELATED_MAX: u32 = 16;
const UNRELATED_PAUSE: Duration = Duration::from_millis(10);
/// How often settings and secrets are compared with those of a writer in trouble.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// The pause after values could not be written again.
const RESYNC_PAUSE: Duration = Duration::from_secs(1);

/// Writes the tables of one namespace to their databases until it is dropped.
pub struct DatabaseWriters {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DatabaseWriters {
    /// From now on answers of this process wait for databases, and the databases are written. Call it before the first request is answered.
    ///
    /// # Errors
    ///
    /// The settings of the databases cannot be read, or the system has no room for a thread.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        Self::start_with(namespace, SupervisorPace::default())
    }

    fn start_with(namespace: &Namespace, pace: SupervisorPace) -> Result<Self> {
        let marks = namespace.wait_for_databases(true)?;
        let stops = Arc::new(AtomicBool::new(false));
        let supervisor = WriterSupervisor {
            namespace: namespace.clone(),
            marks,
            stops: stops.clone(),
            running: Running::default(),
            known: BTreeMap::new(),
            has_databases: true,
            compared: Instant::now(),
            tables: Vec::new(),
            pace,
        };
        let builder = thread::Builder::new().name("millrace-writers".into());
        let thread = millrace_threads::spawn(builder, move || supervisor.run());
        let thread =
            thread.map_err(|error| Code::HostStart.error(format!("a thread could not be started: {error}")))?;
        Ok(Self { stops, thread: Some(thread) })
    }
}

impl Drop for DatabaseWriters {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            millrace_threads::join(thread);
        }
    }
}

/// The writers, by database.
type Running = Arc<Mutex<BTreeMap<DatabaseName, Writer>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With what a writer was started.
struct Known {
    settings: DatabaseSettings,
    secret: Option<Vec<u8>>,
    tables: Vec<Table>,
    report: Arc<Mutex<WriterReport>>,
    left: WriterReport,
}

struct WriterSupervisor {
    namespace: Namespace,
    marks: Arc<DatabaseMarks>,
    stops: Arc<AtomicBool>,
    running: Running,
    known: BTreeMap<DatabaseName, Known>,
    has_databases: bool,
    compared: Instant,
    /// Those with a database.
    tables: Vec<Log>,
    pace: SupervisorPace,
}

/// How the supervisor waits while commits change no table with a database.
struct SupervisorPace {
    pause: Duration,
    /// How often it has looked at the journal.
    looks: Arc<AtomicU64>,
    /// How many pauses it has begun.
    pauses: Arc<AtomicU64>,
}

impl Default for SupervisorPace {
    fn default() -> Self {
        Self { pause: UNRELATED_PAUSE, looks: Arc::default(), pauses: Arc::default() }
    }
}

impl WriterSupervisor {
    fn run(mut self) {
        self.marks.unpark_when_awaited(thread::current());
        let journal = self.namespace.journal().clone();
        let mut seen = journal.tail();
        let mut version = None;
        let (mut newest, mut woken, mut unrelated) = (Vec::new(), Instant::now(), 0);
        while !self.stops.load(Ordering::Acquire) {
            let now = journal.catalog_version();
            let is_due = self.compared.elapsed() >= COMPARE_EVERY && !self.known.is_empty();
            if version != Some(now) || is_due {
                self.compared = Instant::now();
                match self.compare() {
                    Ok(()) => version = Some(now),
                    Err(error) => tracing::warn!(target: "databases", %error, "the databases cannot be read"),
                }
            }
            self.leave_reports();
            self.marks.tick();
            if self.known.is_empty() {
                thread::park_timeout(if self.has_databases { LOOK_EVERY } else { LOOK_EVERY_WITHOUT });
                continue;
            }
            // Before the tables: what is committed meanwhile ends the next wait.
            let tail = journal.tail();
            let has_grown = tail != seen;
            seen = tail;
            let now: Vec<u64> = self.tables.iter().map(Log::latest).collect();
            let has_changed = now != newest;
            if has_changed || woken.elapsed() >= LOOK_EVERY {
                (newest, woken) = (now, Instant::now());
                locked(&self.running).values().for_each(Writer::wake);
            }
            unrelated = match (has_changed, has_grown) {
                (false, true) => u32::saturating_add(unrelated, 1),
                _ => 0,
            };
            self.pace.looks.fetch_add(1, Ordering::AcqRel);
            if unrelated > UNRELATED_MAX {
                self.pace.pauses.fetch_add(1, Ordering::AcqRel);
                thread::park_timeout(self.pace.pause);
            } else {
                journal.wait(seen, LOOK_EVERY);
            }
        }
        let running = std::mem::take(&mut *locked(&self.running));
        drop(running);
    }

    /// Starts the writers that are missing, and those again that were started with something else.
    fn compare(&mut self) -> Result<()> {
        let all = self.namespace.databases()?;
        self.has_databases = !all.is_empty();
        if all.is_empty() {
            return Ok(());
        }
        let stats = self.namespace.table_stats()?;
        let catalog = self.namespace.journal().catalog()?;
        let its = stats.iter().filter(|stat| stat.options.database.is_some());
        self.tables = its.filter_map(|stat| catalog.log(&stat.name).cloned()).collect();
        for (number, settings) in all.iter().enumerate() {
            let its = stats.iter().filter(|stat| stat.options.database == Some(settings.name));
            let mut names = BTreeSet::new();
            let tables: Vec<Table> = its
                .map(|stat| {
                    names.insert(stat.name.clone());
                    table(&stat.name, stat.options.keys, stat.options.codec)
                })
                .collect();
            if tables.is_empty() {
                continue;
            }
            let secret = secret_of(&self.namespace, settings);
            if let (Some(known), Ok(secret)) = (self.known.get(&settings.name), &secret)
                && (&known.settings, &known.tables, &known.secret) == (settings, &tables, secret)
            {
                continue;
            }
            // The former one ends first: two would take the stream from each other.
            let former = locked(&self.running).remove(&settings.name);
            drop(former);
            let report = self.known.remove(&settings.name).map(|known| known.report).unwrap_or_default();
            let secret_kept = secret.as_ref().ok().cloned().flatten();
            let to = (number as u32, settings); // at most DATABASES_MAX
            let started = match &settings.resync {
                Some(resync) => self.resync(to.1, (tables.clone(), names), resync.clone(), &report),
                None => self.start(to, (tables.clone(), names), &report, &all).map(|writer| {
                    drop(locked(&self.running).insert(settings.name, writer));
                }),
            };
            let has_failed = started.is_err();
            if let Err(error) = started {
                locked(&report).trouble = Some(trouble(&error));
            }
            // One that could not be started is tried again.
            let tables = if has_failed { Vec::new() } else { tables };
            let left = WriterReport::default();
            let known = Known { settings: settings.clone(), secret: secret_kept, tables, report, left };
            self.known.insert(settings.name, known);
        }
        Ok(())
    }

    /// Writes every value to a database again, on a thread of its own. It goes on until that is done: then the settings no longer demand it.
    fn resync(
        &self,
        settings: &DatabaseSettings,
        (tables, names): (Vec<Table>, BTreeSet<LogName>),
        resync: Resync,
        report: &Arc<Mutex<WriterReport>>,
    ) -> Result<()> {
        let (namespace, settings, stops) = (self.namespace.clone(), settings.clone(), self.stops.clone());
        let (report, names): (_, Vec<LogName>) = (report.clone(), names.into_iter().collect());
        let work = move || {
            while !stops.load(Ordering::Acquire) {
                let all = (names.clone(), tables.clone());
                let done = compare::resync(&namespace, &settings, all, &resync, &stops);
                let done = done.and_then(|number| namespace.resynced(&settings.name, &resync, number));
                let Err(error) = done else { return };
                locked(&report).trouble = Some(trouble(&error));
                // Another request, or other settings, get a thread of their own.
                if namespace.database(&settings.name).is_ok_and(|now| now != settings) {
                    return;
                }
                thread::sleep(RESYNC_PAUSE);
            }
        };
        let builder = thread::Builder::new().name("millrace-resync".into());
        let failed = |error| Code::HostStart.error(format!("a thread could not be started: {error}"));
        millrace_threads::spawn(builder, work).map(drop).map_err(failed)
    }

    fn start(
        &self,
        (number, settings): (u32, &DatabaseSettings),
        (tables, names): (Vec<Table>, BTreeSet<LogName>),
        report: &Arc<Mutex<WriterReport>>,
        all: &[DatabaseSettings],
    ) -> Result<Writer> {
        let engine = millrace_databases::engine(&options_of(&self.namespace, settings)?)?;
        let target = target_of(&self.namespace, settings, tables);
        let size = |number: Option<u64>, usual: usize| {
            number.map_or(usual, |number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        let usual = WriterOptions::default();
        let options = WriterOptions {
            in_flight: size(settings.in_flight, usual.in_flight),
            rows: size(settings.rows, usual.rows),
            unwritten_bytes_max: size(Some(settings.unwritten_max.unwrap_or(UNWRITTEN_MAX_BYTES)), 0),
            ..usual
        };
        let writes = Writes::of(&self.namespace, &self.marks, settings, names)?;
        let buried = Arc::new(Mutex::new(self.namespace.buried_writes(&settings.name)?));
        let on_refused = match settings.on_refused {
            WhenRefused::Stop => OnRefused::Stop,
            WhenRefused::DeadLetter => OnRefused::DeadLetter,
        };
        let noted = writes.noted();
        let numbers = all.iter().zip(0..).map(|(settings, number)| (settings.name, number)).collect();
        let (running, report, name) = (Arc::downgrade(&self.running), report.clone(), settings.name);
        let mut told = None;
        let on_progress = move |progress: &Progress| {
            note(&mut locked(&report), progress);
            noted.written(progress.reached);
            if told != progress.reached
                && let Some((running, reached)) = running.upgrade().zip(progress.reached)
            {
                told = Some(reached);
                let others = locked(&running);
                let others = others.iter().filter(|(other, _)| **other != name);
                others.for_each(|(_, writer)| writer.other_reached(number, reached));
            }
        };
        let writer = Writer::start(
            engine,
            target,
            options,
            Box::new(Journaled { writes, numbers, buried: buried.clone(), on_refused }),
            Box::new(Buried { namespace: self.namespace.clone(), database: settings.name, numbers: buried }),
            Box::new(on_progress),
        )?;
        // What the others have written before this one started.
        for (other, other_writer) in locked(&self.running).iter() {
            let index = all.iter().position(|settings| settings.name == *other);
            if let Some((index, reached)) = index.zip(other_writer.progress().reached) {
                writer.other_reached(index as u32, reached); // at most DATABASES_MAX
            }
        }
        Ok(writer)
    }

    /// Leaves what has changed for other processes.
    fn leave_reports(&mut self) {
        for (name, known) in &mut self.known {
            let mut report = locked(&known.report).clone();
            report.waiting = self.marks.waiting(name);
            if report != known.left {
                self.marks.note(name, &report);
                report.leave(&self.namespace, name);
                known.left = report;
            }
        }
    }
}

fn secret_of(namespace: &Namespace, settings: &DatabaseSettings) -> Result<Option<Vec<u8>>> {
    let Some(name) = &settings.secret else { return Ok(None) };
    let name: Name = name.parse()?;
    let found = FunctionSecrets::of(namespace.dir()).value(&name)?;
    let missing = || Code::FunctionSecretNotFound.error(format!("no secret '{name}', which has the password"));
    found.map(|secret| Some(secret.to_vec())).ok_or_else(missing)
}

/// How to connect to a database.
fn options_of(namespace: &Namespace, settings: &DatabaseSettings) -> Result<Options> {
    let secret = secret_of(namespace, settings)?.map(String::from_utf8).transpose();
    let secret = secret.map_err(|_| Code::DatabaseUrl.error("the secret with the password is not UTF-8"))?;
    Ok(Options {
        url: settings.url.clone(),
        secret: secret.map(|secret| Secret::new(secret.trim_end_matches('\n'))),
        authorities: settings.authorities.clone(),
    })
}

/// The stream of a database.
fn target_of(namespace: &Namespace, settings: &DatabaseSettings, tables: Vec<Table>) -> Target {
    Target {
        stream: settings.name.to_string(),
        owner: namespace.journal().namespace().to_string(),
        previous_owner: None,
        tables,
        accept_volatile: settings.accept_volatile,
        refuse_outside: settings.refuse_outside,
    }
}

fn table(name: &LogName, keys: KeyType, codec: TableCodec) -> Table {
    Table {
        name: name.to_string(),
        keys: match keys {
            KeyType::Text => Keys::Text,
            KeyType::Bytes => Keys::Bytes,
        },
        values: match codec {
            TableCodec::Bytes => Values::Bytes,
            TableCodec::Text => Values::Text,
            TableCodec::Json => Values::Json,
        },
    }
}

fn trouble(error: &Error) -> Trouble {
    Trouble { code: error.code().id().to_owned(), detail: error.detail().to_owned() }
}

fn note(report: &mut WriterReport, progress: &Progress) {
    *report = WriterReport {
        server: progress.server.clone(),
        trouble: progress.trouble.as_ref().map(trouble),
        is_stopped: progress.is_stopped,
        transactions: progress.transactions,
        rows: progress.rows,
        coalesced: progress.coalesced,
        refused: progress.refused,
        opened: progress.opened,
        waiting: 0,
    };
}

/// The writes of the journal as batches of a stream.
struct Journaled {
    writes: Writes,
    numbers: BTreeMap<DatabaseName, u32>,
    /// Batches whose writes are dead letters.
    buried: Arc<Mutex<BTreeSet<u64>>>,
    on_refused: OnRefused,
}

impl Source for Journaled {
    fn seek(&mut self, after: u64) -> Result<()> {
        self.writes.seek(after)
    }

    fn take(&mut self) -> Result<Option<Batch>> {
        let Some(WriteBatch { number, time_us, writes, requires }) = self.writes.take()? else { return Ok(None) };
        let writes = if locked(&self.buried).contains(&number) { Vec::new() } else { writes };
        let row = |write: Write| Row {
            table: write.table,
            key: write.key.into(),
            operation: write.value.map_or(Operation::Delete, |value| Operation::Put(value.into())),
            version: write.version,
        };
        let requires = requires.iter().filter_map(|(database, number)| {
            Some(Requirement { database: *self.numbers.get(database)?, number: *number })
        });
        Ok(Some(Batch {
            number,
            stamp: time_us,
            rows: writes.into_iter().map(row).collect(),
            requires: requires.collect(),
            is_alone: false,
            on_refused: self.on_refused,
        }))
    }

    fn newest(&self) -> u64 {
        self.writes.newest()
    }
}

/// Refused batches become dead letters of the namespace.
struct Buried {
    namespace: Namespace,
    database: DatabaseName,
    /// Those that have, which the source gives out without their rows.
    numbers: Arc<Mutex<BTreeSet<u64>>>,
}

impl DeadLetters for Buried {
    fn bury(&mut self, batch: &Batch, refusal: &Refusal) -> Result<()> {
        let write = |row: &Row| Write {
            table: row.table.clone(),
            key: row.key.to_vec(),
            value: row.value().map(|value| value.to_vec()),
            version: row.version,
        };
        let writes: Vec<Write> = batch.rows.iter().map(write).collect();
        let why = (&*refusal.code, &*refusal.detail);
        self.namespace.bury_writes(&self.database, batch.number, why, &writes)?;
        tracing::warn!(target: "databases", database = &*self.database, batch = batch.number, code = refusal.code, "refused writes are dead letters");
        locked(&self.numbers).insert(batch.number);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
