//! The state of one stream: which batches are sent, which are written, and why nothing more is sent.

use crate::{
    Limits, Outcome, Refusal, RefusalKind,
    batch::{Batch, Database, Merged, OnRefused, Transaction},
};
use millrace_wire::{Code, Error, Result};
use std::collections::{BTreeMap, VecDeque};

/// How many records of a refused batch an error names.
const RECORDS_SHOWN_MAX: usize = 3;

/// The settings of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The limits of the database.
    pub limits: Limits,
    /// Usual number of rows of a transaction. After an outage transactions grow up to the limit of the database.
    pub rows: usize,
    /// With this many rows unwritten the stream is full.
    pub unwritten_rows_max: usize,
    /// With this many bytes unwritten the stream is full.
    pub unwritten_bytes_max: usize,
}

impl Settings {
    /// The usual settings with these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, rows: 1000, unwritten_rows_max: 1_000_000, unwritten_bytes_max: 256 << 20 }
    }
}

/// Whether the stream sends, and why not.
#[derive(Clone, Debug)]
pub enum State {
    /// The number that the database has is unknown: it must be opened.
    Closed,
    /// Transactions are sent.
    Open,
    /// A transaction failed. The later ones have to be answered, too, before the stream continues.
    Draining,
    /// A batch was refused and is to become a dead letter: see [`Stream::dead`].
    Burying(Refusal),
    /// The stream has stopped until [`Stream::resume`].
    Stopped(Error),
}

/// Where the source of batches has to continue after the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Where it is.
    Continue,
    /// Behind the batch with this number.
    Seek {
        /// The number.
        after: u64,
        /// Whether the database has lost transactions that it had acknowledged.
        is_behind: bool,
    },
}

/// The writes that the database has not acknowledged, of those that the stream was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Batches.
    pub batches: usize,
    /// Writes.
    pub rows: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
    /// The stamp of the oldest batch.
    pub oldest: Option<u64>,
}

/// An unanswered transaction.
struct Flight {
    number: u64,
    batches: usize,
}

/// After a refusal: smaller transactions, one at a time, until the refused part is passed.
struct Suspect {
    until: u64,
    batches: usize,
}

/// The writes to one database, in the order of the journal.
pub struct Stream {
    settings: Settings,
    state: State,
    /// The batches that are not written, the oldest first.
    queue: VecDeque<Batch>,
    /// How many of them are in unanswered transactions.
    sent: usize,
    flights: VecDeque<Flight>,
    /// Why the transactions behind a failed one are stale, and how many batches it had.
    failed: Option<(Refusal, Flight)>,
    /// The number that the database has, once it was opened.
    written: Option<u64>,
    rows: usize,
    bytes: usize,
    unsent_rows: usize,
    /// Most rows of the next transaction.
    width: usize,
    suspect: Option<Suspect>,
    others: BTreeMap<Database, u64>,
}

impl Stream {
    /// A stream whose database has not been opened.
    pub fn new(settings: Settings) -> Self {
        let width = settings.rows.clamp(1, settings.limits.rows);
        Self {
            settings,
            state: State::Closed,
            queue: VecDeque::new(),
            sent: 0,
            flights: VecDeque::new(),
            failed: None,
            written: None,
            rows: 0,
            bytes: 0,
            unsent_rows: 0,
            width,
            suspect: None,
            others: BTreeMap::new(),
        }
    }

    /// Whether the stream sends, and why not.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The number up to which everything is written. It decreases only if the database has lost transactions.
    pub fn reached(&self) -> Option<u64> {
        self.written
    }

    /// How many transactions are unanswered.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// What is not written.
    pub fn unwritten(&self) -> Unwritten {
        let oldest = self.queue.front().map(|batch| batch.stamp);
        Unwritten { batches: self.queue.len(), rows: self.rows, bytes: self.bytes, oldest }
    }

    /// Whether the stream takes another batch.
    pub fn has_room(&self) -> bool {
        self.rows < self.settings.unwritten_rows_max && self.bytes < self.settings.unwritten_bytes_max
    }

    /// The database, if any, for which the next batch waits, and its number there.
    pub fn waits_for(&self) -> Option<(Database, u64)> {
        let batch = self.queue.get(self.sent)?;
        let missing = batch.requires.iter().find(|required| !self.has_reached(required.database, required.number));
        missing.map(|required| (required.database, required.number))
    }

    fn has_reached(&self, database: Database, number: u64) -> bool {
        self.others.get(&database).is_some_and(|reached| *reached >= number)
    }

    /// Another database has written everything up to this number.
    pub fn other_reached(&mut self, database: Database, number: u64) {
        self.others.insert(database, number);
    }

    /// Adds the next batch of the journal.
    ///
    /// # Errors
    ///
    /// MR7311 if no transaction can contain it; the stream has stopped before it. The stream has the batch in this case, too.
    pub fn push(&mut self, mut batch: Batch) -> Result<()> {
        let newest = self.queue.back().map(|batch| batch.number).or(self.written);
        debug_assert!(newest.is_none_or(|newest| newest < batch.number), "batches come in their order");
        batch.coalesce();
        let fits = fits(&batch, &self.settings.limits);
        self.rows += batch.rows.len();
        self.unsent_rows += batch.rows.len();
        self.bytes += batch.bytes();
        self.queue.push_back(batch);
        fits
    }

    /// The database was opened and has this number; the journal's newest batch has the number `newest`.
    ///
    /// # Errors
    ///
    /// MR7318: the database has a transaction that the journal does not have. The stream has stopped.
    pub fn opened(&mut self, number: u64, newest: u64) -> Result<Opened> {
        self.rewind();
        let before = self.written;
        let last = self.queue.back().map(|batch| batch.number);
        let is_known = before == Some(number) || self.queue.iter().any(|batch| batch.number == number);
        let is_queued = before.is_some_and(|before| before <= number) && last.is_some_and(|last| number <= last);
        if number > newest || is_queued && !is_known {
            let ahead = format!("the database has transaction {number}, the journal ends at {newest}");
            let error = Code::DatabaseAhead.error(ahead);
            self.state = State::Stopped(error.clone());
            return Err(error);
        }
        self.state = State::Open;
        self.written = Some(number);
        if is_known {
            self.drop_written(number);
            self.unsent_rows = self.rows;
            return Ok(Opened::Continue);
        }
        self.queue.clear();
        (self.rows, self.bytes, self.unsent_rows) = (0, 0, 0);
        Ok(Opened::Seek { after: number, is_behind: before.is_some_and(|before| number < before) })
    }

    /// The next transaction, if one can be sent now.
    pub fn next_transaction(&mut self) -> Option<Transaction> {
        let most = if self.suspect.is_some() { 1 } else { self.settings.limits.in_flight };
        if !matches!(self.state, State::Open) || self.flights.len() >= most {
            return None;
        }
        if let Err(error) = fits(self.queue.get(self.sent)?, &self.settings.limits) {
            if self.flights.is_empty() {
                self.state = State::Stopped(error);
            }
            return None;
        }
        let after = self.flights.back().map_or(self.written?, |flight| flight.number);
        let (batches, rows) = self.gather();
        let number = self.queue.get((self.sent + batches).checked_sub(1)?).filter(|_| batches > 0)?.number;
        let taken: usize = self.queue.range(self.sent..self.sent + batches).map(|batch| batch.rows.len()).sum();
        self.sent += batches;
        self.unsent_rows -= taken;
        self.flights.push_back(Flight { number, batches });
        Some(Transaction { after, number, rows })
    }

    /// The batches that belong into the next transaction, with their writes. It ends before a batch that must wait for another database:
    /// if the earlier batches waited with it, two databases could wait for each other for ever.
    fn gather(&self) -> (usize, Vec<crate::Row>) {
        let batches_max = self.suspect.as_ref().map_or(usize::MAX, |suspect| suspect.batches);
        let (mut batches, mut merged) = (0, Merged::default());
        for batch in self.queue.range(self.sent..) {
            if !batch.requires.iter().all(|required| self.has_reached(required.database, required.number)) {
                break;
            }
            let (rows, bytes) = merged.size_with(&batch.rows);
            // The first batch fits into the limits of the database, which may be more than the usual size.
            let is_full = rows > self.width || bytes > self.settings.limits.bytes;
            if batches > 0 && (is_full || batch.is_alone || fits(batch, &self.settings.limits).is_err()) {
                break;
            }
            batch.rows.iter().for_each(|row| merged.insert(row.clone()));
            batches += 1;
            if batch.is_alone || batches == batches_max {
                break;
            }
        }
        (batches, merged.into_rows())
    }

    /// Handles what became of the oldest unanswered transaction.
    pub fn outcome(&mut self, outcome: Outcome) {
        let number = match outcome {
            Outcome::Written(number) | Outcome::Stale(number) | Outcome::Refused { number, .. } => number,
            Outcome::Lost(_) => return self.close(),
        };
        let is_expected = self.flights.front().is_some_and(|flight| flight.number == number);
        let Some(flight) = self.flights.pop_front().filter(|_| is_expected) else { return self.close() };
        match outcome {
            Outcome::Written(_) if matches!(self.state, State::Open) => self.written(&flight),
            Outcome::Stale(_) => self.state = State::Draining,
            Outcome::Refused { refusal, .. } if matches!(self.state, State::Open) => {
                self.failed = Some((refusal, flight));
                self.state = State::Draining;
            }
            // Nothing is written or refused behind a transaction that failed: only the database knows what it has.
            _ => return self.close(),
        }
        if matches!(self.state, State::Draining) && self.flights.is_empty() {
            self.drained();
        }
    }

    fn written(&mut self, flight: &Flight) {
        self.sent -= flight.batches;
        self.written = Some(flight.number);
        self.drop_written(flight.number);
        match &mut self.suspect {
            Some(suspect) if flight.number < suspect.until => suspect.batches = suspect.batches.saturating_mul(2),
            _ => self.suspect = None,
        }
        let limits = &self.settings.limits;
        let usual = self.settings.rows.clamp(1, limits.rows);
        self.width = if self.unsent_rows >= self.width { (self.width * 2).min(limits.rows) } else { usual };
    }

    fn drop_written(&mut self, number: u64) {
        while let Some(batch) = self.queue.pop_front_if(|batch| batch.number <= number) {
            self.rows -= batch.rows.len();
            self.bytes -= batch.bytes();
        }
    }

    /// All transactions behind a failed one are answered.
    fn drained(&mut self) {
        let failed = self.failed.take();
        self.rewind();
        let Some((refusal, flight)) = failed else {
            self.state = State::Closed;
            return;
        };
        self.state = State::Open;
        let until = self.suspect.as_ref().map_or(0, |suspect| suspect.until).max(flight.number);
        self.suspect = Some(Suspect { until, batches: (flight.batches / 2).max(1) });
        if flight.batches > 1 && refusal.kind == RefusalKind::Data {
            return;
        }
        let is_dead = |batch: &Batch| batch.on_refused == OnRefused::DeadLetter && !batch.rows.is_empty();
        let buries = self.queue.front().is_some_and(is_dead);
        let records = self.queue.front().filter(|_| flight.batches == 1).map_or_else(String::new, records);
        let error = || {
            let code = match refusal.kind {
                RefusalKind::Data => Code::DatabaseRefused,
                RefusalKind::Schema => Code::DatabaseSchema,
                RefusalKind::Denied => Code::DatabaseDenied,
            };
            code.error(format!("batch {}{records}: {}: {}", flight.number, refusal.code, refusal.detail))
        };
        self.state = match refusal.kind {
            RefusalKind::Data if buries => State::Burying(refusal),
            _ => State::Stopped(error()),
        };
    }

    /// The batch that is to become a dead letter, while the state is [`State::Burying`].
    pub fn dead(&self) -> Option<(&Batch, &Refusal)> {
        match &self.state {
            State::Burying(refusal) => self.queue.front().map(|batch| (batch, refusal)),
            _ => None,
        }
    }

    /// The dead letter is durable. Only the number of its batch is written, so that it is refused once. If the stream is given the batch
    /// again, after a restart or because the database lost it, then without its rows: they might now be accepted beside later writes.
    pub fn buried(&mut self) {
        if !matches!(self.state, State::Burying(_)) {
            return;
        }
        self.state = State::Open;
        if let Some(batch) = self.queue.front_mut() {
            let (rows, bytes) = (batch.rows.len(), batch.bytes());
            batch.rows.clear();
            self.rows -= rows;
            self.bytes -= bytes;
            self.unsent_rows -= rows;
        }
    }

    /// Stops the stream until [`Stream::resume`].
    pub fn stop(&mut self, error: Error) {
        self.rewind();
        self.state = State::Stopped(error);
    }

    /// Continues a stopped stream: the database must be opened again.
    pub fn resume(&mut self) {
        if matches!(self.state, State::Stopped(_)) {
            self.state = State::Closed;
        }
    }

    fn close(&mut self) {
        self.rewind();
        if !matches!(self.state, State::Stopped(_)) {
            self.state = State::Closed;
        }
    }

    /// Nothing is in flight any more; what is not written will be sent again.
    fn rewind(&mut self) {
        self.flights.clear();
        self.failed = None;
        (self.sent, self.unsent_rows) = (0, self.rows);
    }
}

/// The records of a batch, for a person who is to look at them.
fn records(batch: &Batch) -> String {
    let named = batch.rows.iter().take(RECORDS_SHOWN_MAX).map(|row| format!("{} {}", row.table, row.version));
    let more = if batch.rows.len() > RECORDS_SHOWN_MAX { ", …" } else { "" };
    format!(" (records {}{more})", named.collect::<Vec<_>>().join(", "))
}

/// Whether a transaction can contain a batch.
fn fits(batch: &Batch, limits: &Limits) -> Result<()> {
    let exceeded = |what: &str, count: usize, limit: usize| {
        let number = batch.number;
        Err(Code::DatabaseLimit
            .error(format!("batch {number} has {count} {what}; the limit of the database is {limit}")))
    };
    let longest = |length: fn(&crate::Row) -> usize| batch.rows.iter().map(length).max().unwrap_or(0);
    let (key, value) = (longest(|row| row.key.len()), longest(|row| row.value().map_or(0, bytes::Bytes::len)));
    match (batch.rows.len(), batch.bytes()) {
        (rows, _) if rows > limits.rows => exceeded("rows", rows, limits.rows),
        (_, bytes) if bytes > limits.bytes => exceeded("bytes", bytes, limits.bytes),
        _ if key > limits.key => exceeded("bytes in a key", key, limits.key),
        _ if value > limits.value => exceeded("bytes in a value", value, limits.value),
        _ => Ok(()),
    }
}
