//! Writes the batches of a source to a database, on one thread with its own event loop.

use crate::engine::{Engine, Target};
use millrace_wire::{Code, Error, Result};
use millrace_writebehind::{Batch, Database, Opened, Outcome, Refusal, Settings, State, Stream, Unwritten};
use std::{
    future::pending,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    runtime::Builder,
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

/// The writes of a journal to one database, in order.
pub trait Source: Send {
    /// Continues behind the batch with this number.
    ///
    /// # Errors
    ///
    /// MR7317: not all batches behind it are left. The stream stops.
    fn seek(&mut self, after: u64) -> Result<()>;

    /// The next batch that is durable here, if there is one. A batch that has become a dead letter comes without its rows.
    ///
    /// # Errors
    ///
    /// The stream stops.
    fn take(&mut self) -> Result<Option<Batch>>;

    /// The number of the newest batch, or a larger one of the journal.
    fn newest(&self) -> u64;
}

/// Keeps batches that the database refused.
pub trait DeadLetters: Send {
    /// Makes a dead letter of a batch, durably, and once even if it is called again with the same number.
    ///
    /// # Errors
    ///
    /// The stream stops before the batch.
    fn bury(&mut self, batch: &Batch, refusal: &Refusal) -> Result<()>;
}

/// The settings of a writer.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Most unanswered transactions; at most the limit of the database.
    pub in_flight: usize,
    /// Usual number of rows of a transaction.
    pub rows: usize,
    /// With this many rows unwritten no batch is taken.
    pub unwritten_rows_max: usize,
    /// With this many bytes unwritten no batch is taken.
    pub unwritten_bytes_max: usize,
    /// How long a transaction may remain unanswered before the connection counts as lost.
    pub patience: Duration,
    /// The longest pause between two attempts to open the database.
    pub reconnect_max: Duration,
    /// The pause after which a stopped stream tries again.
    pub resume_every: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            in_flight: usize::MAX,
            rows: 1000,
            unwritten_rows_max: 1_000_000,
            unwritten_bytes_max: 256 << 20,
            patience: Duration::from_secs(45),
            reconnect_max: Duration::from_secs(5),
            resume_every: Duration::from_secs(30),
        }
    }
}

/// What a writer has done, and what it waits for.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The number up to which everything is written, once the database was opened. It decreases only if the database has lost
    /// transactions.
    pub reached: Option<u64>,
    /// What the writer has taken from its source and the database has not acknowledged. The age of the oldest write is the time since its
    /// stamp.
    pub unwritten: Unwritten,
    /// Whether the stream takes no batch because too much is unwritten.
    pub is_full: bool,
    /// Why nothing is written at present.
    pub trouble: Option<Error>,
    /// Whether the stream has stopped, and waits for a change in the database or for [`Writer::resume`].
    pub is_stopped: bool,
    /// The database for which the next batch waits, and its number there.
    pub waits_for: Option<(Database, u64)>,
    /// The database's kind and version.
    pub server: String,
    /// Transactions that were written.
    pub transactions: u64,
    /// Rows of these transactions.
    pub rows: u64,
    /// Writes that were not sent, because a later one of the same key was in their transaction.
    pub coalesced: u64,
    /// Transactions that the database refused.
    pub refused: u64,
    /// How often the database was opened.
    pub opened: u64,
}

/// What others tell a writer.
#[derive(Clone, Default)]
struct Told {
    /// Counts calls of `wake`.
    wakes: u64,
    resumes: u64,
    others: Vec<(Database, u64)>,
    stops: bool,
}

/// Writes a stream of tables to a database until it is dropped.
pub struct Writer {
    told: watch::Sender<Told>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

/// Called after each change of a writer's progress, on its thread. It must not block.
pub type OnProgress = Box<dyn FnMut(&Progress) + Send>;

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// MR5007 or the like: the system has no room for another thread.
    pub fn start(
        engine: Box<dyn Engine>,
        target: Target,
        options: WriterOptions,
        source: Box<dyn Source>,
        dead: Box<dyn DeadLetters>,
        on_progress: OnProgress,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| Code::HostStart.error(format!("the thread of a database: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (told, hears) = watch::channel(Told::default());
        let (tells, progress) = watch::channel(Progress::default());
        let mut limits = engine.limits();
        limits.in_flight = options.in_flight.clamp(1, limits.in_flight);
        let settings = Settings {
            limits,
            rows: options.rows,
            unwritten_rows_max: options.unwritten_rows_max,
            unwritten_bytes_max: options.unwritten_bytes_max,
        };
        let stream = Stream::new(settings);
        let sizes = Default::default();
        let seen = Told::default();
        let mut driver = Driver {
            engine,
            target,
            options,
            source,
            dead,
            on_progress,
            stream,
            told: hears,
            seen,
            tells,
            sizes,
            attempts: 0,
            since: Instant::now(),
        };
        let builder = thread::Builder::new().name("millrace-tables".into());
        let thread = millrace_threads::spawn(builder, move || runtime.block_on(driver.run())).map_err(failed)?;
        Ok(Self { told, progress, thread: Some(thread) })
    }

    /// The source has another batch.
    pub fn wake(&self) {
        self.told.send_modify(|told| told.wakes += 1);
    }

    /// Another database has written everything up to this number.
    pub fn other_reached(&self, database: Database, number: u64) {
        self.told.send_modify(|told| match told.others.iter_mut().find(|(known, _)| *known == database) {
            Some(other) => other.1 = number,
            None => told.others.push((database, number)),
        });
    }

    /// A stopped stream tries again at once.
    pub fn resume(&self) {
        self.told.send_modify(|told| told.resumes += 1);
    }

    /// What the writer has done, and what it waits for.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Reports the progress to any number of async readers.
    pub fn subscribe(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Stops the thread. What is unanswered may or may not be written.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.told.send_modify(|told| told.stops = true);
        let other = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = other {
            // It panics only because of a defect, whose message it has printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

/// The rows of the unanswered transactions: as sent, and as they were in the journal.
type Sizes = std::collections::VecDeque<u64>;

struct Driver {
    engine: Box<dyn Engine>,
    target: Target,
    options: WriterOptions,
    source: Box<dyn Source>,
    dead: Box<dyn DeadLetters>,
    on_progress: OnProgress,
    stream: Stream,
    told: watch::Receiver<Told>,
    /// What was heard already.
    seen: Told,
    tells: watch::Sender<Progress>,
    sizes: Sizes,
    /// How often the database was opened since it has last written something.
    attempts: u32,
    /// When the oldest unanswered transaction became the oldest.
    since: Instant,
}

/// What the loop got to do.
enum Event {
    Outcome(Outcome),
    Told,
    Slow,
}

impl Driver {
    async fn run(&mut self) {
        while self.hear().is_continue() {
            match self.stream.state().clone() {
                State::Closed => {
                    if self.attempts > 0 {
                        let pause = Duration::from_millis(10 << self.attempts.min(10));
                        self.rest(pause.min(self.options.reconnect_max)).await;
                    }
                    self.attempts += 1;
                    if !self.told.borrow().stops {
                        self.open().await;
                    }
                }
                State::Burying(_) => self.bury(),
                State::Stopped(error) => {
                    self.report(Some(error));
                    self.rest(self.options.resume_every).await;
                    // A resume that came before this stop has no effect on it.
                    if !self.told.borrow().stops {
                        self.stream.resume();
                    }
                }
                State::Open | State::Draining => self.write().await,
            }
        }
    }

    /// Takes in what others told.
    fn hear(&mut self) -> ControlFlow<()> {
        let told = self.told.borrow_and_update().clone();
        told.others.iter().for_each(|(database, number)| self.stream.other_reached(*database, *number));
        let stops = told.stops;
        self.seen = told;
        if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Waits, unless somebody asks to resume or to stop.
    async fn rest(&mut self, pause: Duration) {
        let resumes = self.seen.resumes;
        let _ = timeout(pause, self.told.wait_for(|told| told.stops || told.resumes != resumes)).await;
    }

    fn report(&mut self, trouble: Option<Error>) {
        let (stream, unwritten) = (&self.stream, self.stream.unwritten());
        self.tells.send_modify(|progress| {
            progress.reached = stream.reached();
            progress.unwritten = unwritten;
            progress.is_full = !stream.has_room();
            progress.trouble = trouble;
            progress.is_stopped = matches!(stream.state(), State::Stopped(_));
            progress.waits_for = stream.waits_for();
        });
        (self.on_progress)(&self.tells.borrow());
    }

    async fn open(&mut self) {
        let opening = self.engine.open(&self.target);
        let mut told = self.told.clone();
        let opened = tokio::select! {
            opened = timeout(self.options.patience, opening) => opened,
            _ = told.wait_for(|told| told.stops) => return,
        };
        let slow = |_| Err(Code::DatabaseUnreachable.error("the database does not answer while it is opened"));
        let standing = match opened.unwrap_or_else(slow) {
            Ok(standing) => standing,
            Err(error) => {
                // Only a person can do something about these.
                let is_lasting = matches!(
                    error.code(),
                    Code::DatabaseOwned | Code::DatabaseUrl | Code::DatabaseSchema | Code::DatabaseVolatile
                );
                if is_lasting {
                    self.stream.stop(error);
                } else {
                    self.report(Some(error));
                }
                return;
            }
        };
        self.sizes.clear();
        let sought = match self.stream.opened(standing.number, self.source.newest()) {
            Ok(Opened::Continue) => Ok(()),
            Ok(Opened::Seek { after, .. }) => self.source.seek(after),
            Err(_) => return,
        };
        if let Err(error) = sought {
            return self.stream.stop(error);
        }
        self.tells.send_modify(|progress| {
            progress.opened += 1;
            progress.server = standing.server;
        });
        self.report(None);
    }

    fn bury(&mut self) {
        let Some((batch, refusal)) = self.stream.dead() else { return };
        match self.dead.bury(batch, refusal) {
            Ok(()) => self.stream.buried(),
            Err(error) => self.stream.stop(error),
        }
    }

    /// Takes batches, sends transactions, and waits for something to happen.
    async fn write(&mut self) {
        let mut taken = 0;
        // As many as one transaction can have, so that a long backlog does not delay the first one.
        while self.stream.has_room() && taken < self.engine.limits().rows {
            match self.source.take() {
                // A batch that is too large stops the stream once it is the next one.
                Ok(Some(batch)) => {
                    taken += batch.rows.len().max(1);
                    let _ = self.stream.push(batch);
                }
                Ok(None) => {
                    taken = 0;
                    break;
                }
                Err(error) => return self.stream.stop(error),
            }
        }
        let mut is_taken = true;
        while let Some(transaction) = self.stream.next_transaction() {
            let rows = transaction.rows.len() as u64;
            is_taken = self.engine.submit(transaction).is_ok();
            if !is_taken {
                break;
            }
            if self.sizes.is_empty() {
                self.since = Instant::now();
            }
            self.sizes.push_back(rows);
        }
        if !is_taken {
            let error = Code::DatabaseUnreachable.error("the connection took no transaction");
            return self.lost(error);
        }
        if !matches!(self.stream.state(), State::Open | State::Draining) {
            return;
        }
        let trouble = self.tells.borrow().trouble.clone();
        self.report(trouble);
        let is_waiting = self.stream.in_flight() > 0;
        // More can be taken at once; the answers are looked at all the same.
        let has_more = taken > 0 && self.stream.has_room();
        let (engine, told, until) = (&mut self.engine, &mut self.told, self.since + self.options.patience);
        let event = tokio::select! {
            biased;
            outcome = engine.next(), if is_waiting => Event::Outcome(outcome),
            () = std::future::ready(()), if has_more => Event::Told,
            _ = told.changed() => Event::Told,
            () = sleep_until(until), if is_waiting => Event::Slow,
            () = pending() => Event::Told,
        };
        match event {
            Event::Told => {}
            Event::Slow => self.lost(Code::DatabaseUnreachable.error("the database does not answer a transaction")),
            Event::Outcome(Outcome::Lost(error)) => self.lost(error),
            Event::Outcome(outcome) => self.outcome(outcome),
        }
    }

    fn lost(&mut self, error: Error) {
        self.sizes.clear();
        self.stream.outcome(Outcome::Lost(error.clone()));
        self.report(Some(error));
    }

    fn outcome(&mut self, outcome: Outcome) {
        let rows = self.sizes.pop_front().unwrap_or(0);
        let is_written = matches!(outcome, Outcome::Written(_));
        let is_refused = matches!(outcome, Outcome::Refused { .. });
        self.since = Instant::now();
        let before = self.stream.unwritten().rows;
        self.stream.outcome(outcome);
        let of_journal = (before - self.stream.unwritten().rows) as u64;
        self.tells.send_modify(|progress| {
            progress.refused += u64::from(is_refused);
            if is_written {
                progress.transactions += 1;
                progress.rows += rows;
                progress.coalesced += of_journal.saturating_sub(rows);
            }
        });
        if is_written {
            self.attempts = 0;
            self.report(None);
        }
    }
}

/// A source of batches that a program adds one by one, which keeps those that are not written.
#[derive(Clone, Default)]
pub struct Feed {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    batches: std::collections::BTreeMap<u64, Batch>,
    /// The number of the last batch that was taken.
    taken: u64,
    /// Batches up to here were dropped.
    dropped: u64,
    newest: u64,
}

impl Feed {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a batch, whose number is larger than those before; then call [`Writer::wake`].
    pub fn add(&self, batch: Batch) {
        let mut kept = self.kept();
        kept.newest = kept.newest.max(batch.number);
        kept.batches.insert(batch.number, batch);
    }

    /// Drops the batches up to this number. A database that loses their transactions can no longer get them.
    pub fn drop_until(&self, number: u64) {
        let mut kept = self.kept();
        kept.batches = kept.batches.split_off(&(number + 1));
        kept.dropped = kept.dropped.max(number);
    }
}

impl Source for Feed {
    fn seek(&mut self, after: u64) -> Result<()> {
        let mut kept = self.kept();
        if after < kept.dropped {
            let dropped = kept.dropped;
            let missing = format!("the database has transaction {after}; batches up to {dropped} are no longer kept");
            return Err(Code::DatabaseBehind.error(missing));
        }
        kept.taken = after;
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Batch>> {
        let mut kept = self.kept();
        let next = kept.batches.range(kept.taken + 1..).next().map(|(_, batch)| batch.clone());
        if let Some(batch) = &next {
            kept.taken = batch.number;
        }
        Ok(next)
    }

    fn newest(&self) -> u64 {
        self.kept().newest
    }
}
