//! A database in memory with all faults, for tests.

use crate::engine::{Engine, Found, Full, Page, Reply, Standing, Target};
use bytes::Bytes;
use millrace_wire::{Code, Error, Result};
use millrace_writebehind::{Limits, Outcome, Refusal, RefusalKind, Row, Transaction};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The rows of each table: value and version by key.
pub type Tables = BTreeMap<String, BTreeMap<Bytes, (Bytes, u64)>>;

/// What a fake does with a transaction instead of executing it and answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is lost before the transaction is executed.
    LostBefore,
    /// The connection is lost after the transaction was executed.
    LostAfter,
    /// The transaction is executed only after the connection was lost and the database was opened again.
    Late,
    /// No answer comes until [`Server::release`].
    Hangs,
}

/// Decides why a row is refused.
type Judge = Box<dyn Fn(&Row) -> Option<Refusal> + Send>;

struct State {
    streams: BTreeMap<String, (String, u64)>,
    tables: Tables,
    is_up: bool,
    is_durable: bool,
    /// The faults of the next transactions.
    faults: VecDeque<Option<Fault>>,
    late: Vec<(String, String, Transaction)>,
    refuses: Option<Judge>,
    schema_fault: Option<String>,
    /// Counts kills, so that connections notice them.
    life: u64,
    opened: u64,
    executed: u64,
}

/// The database, which outlives connections to it.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    released: watch::Sender<u64>,
    limits: Limits,
}

impl Server {
    /// An empty database with these limits.
    pub fn new(limits: Limits) -> Self {
        let state = State {
            streams: BTreeMap::new(),
            tables: Tables::new(),
            is_up: true,
            is_durable: true,
            faults: VecDeque::new(),
            late: Vec::new(),
            refuses: None,
            schema_fault: None,
            life: 0,
            opened: 0,
            executed: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), released: watch::Sender::new(0), limits }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection.
    pub fn engine(&self) -> Box<dyn Engine> {
        Box::new(Fake { server: self.clone(), session: None })
    }

    /// Ends all connections, and refuses new ones until [`Server::start`].
    pub fn kill(&self) {
        let mut state = self.state();
        (state.is_up, state.life) = (false, state.life + 1);
        drop(state);
        self.released.send_modify(|count| *count += 1);
    }

    /// Accepts connections again, with everything that was acknowledged.
    pub fn start(&self) {
        self.state().is_up = true;
    }

    /// The faults of the next transactions, in order; `None` is none.
    pub fn plan(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.state().faults.extend(faults);
    }

    /// Lets hanging transactions continue.
    pub fn release(&self) {
        self.released.send_modify(|count| *count += 1);
    }

    /// Refuses rows from now on.
    pub fn refuse(&self, judge: impl Fn(&Row) -> Option<Refusal> + Send + 'static) {
        self.state().refuses = Some(Box::new(judge));
    }

    /// Refuses nothing any more.
    pub fn accept(&self) {
        self.state().refuses = None;
    }

    /// Fails to open with MR7320 and these words, or no longer.
    pub fn set_schema_fault(&self, fault: Option<&str>) {
        self.state().schema_fault = fault.map(str::to_owned);
    }

    /// Whether acknowledged writes are durable.
    pub fn set_durable(&self, is_durable: bool) {
        self.state().is_durable = is_durable;
    }

    /// All that it has: the numbers of the streams and the rows.
    pub fn snapshot(&self) -> (BTreeMap<String, (String, u64)>, Tables) {
        let state = self.state();
        (state.streams.clone(), state.tables.clone())
    }

    /// Makes it what it was, as a backup does.
    pub fn restore(&self, (streams, tables): (BTreeMap<String, (String, u64)>, Tables)) {
        self.kill();
        let mut state = self.state();
        (state.streams, state.tables, state.is_up) = (streams, tables, true);
        state.late.clear();
    }

    /// How often it was opened, and how many transactions it has executed.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.opened, state.executed)
    }
}

impl State {
    fn execute(&mut self, stream: &str, owner: &str, transaction: &Transaction) -> Outcome {
        let number = transaction.number;
        let expected = (owner.to_owned(), transaction.after);
        if self.streams.get(stream) != Some(&expected) {
            return Outcome::Stale(number);
        }
        for (at, row) in transaction.rows.iter().enumerate() {
            if let Some(refusal) = self.refuses.as_ref().and_then(|judge| judge(row)) {
                return Outcome::Refused { number, row: Some(at), refusal };
            }
            if !self.tables.contains_key(&*row.table) {
                let refusal =
                    Refusal { kind: RefusalKind::Schema, code: "table".into(), detail: row.table.to_string() };
                return Outcome::Refused { number, row: Some(at), refusal };
            }
        }
        for row in &transaction.rows {
            let table = self.tables.entry(row.table.to_string()).or_default();
            match row.value() {
                Some(value) => drop(table.insert(row.key.clone(), (value.clone(), row.version))),
                None => drop(table.remove(&row.key)),
            }
        }
        self.streams.insert(stream.to_owned(), (owner.to_owned(), number));
        self.executed += 1;
        Outcome::Written(number)
    }
}

struct Fake {
    server: Server,
    session: Option<FakeSession>,
}

struct FakeSession {
    life: u64,
    stream: String,
    owner: String,
    line: VecDeque<Transaction>,
    /// A fault that waits for its end.
    hangs_since: Option<u64>,
}

fn away() -> Error {
    Code::DatabaseUnreachable.error("the fake is away")
}

impl Fake {
    fn enter(&mut self, target: &Target) -> Result<Standing> {
        self.session = None;
        let mut state = self.server.state();
        if !state.is_up {
            return Err(away());
        }
        target.check(255)?;
        target.check_durable(state.is_durable, "the fake forgets")?;
        if let Some(fault) = &state.schema_fault {
            return Err(Code::DatabaseSchema.error(fault.clone()));
        }
        for table in &target.tables {
            state.tables.entry(table.name.clone()).or_default();
        }
        let fresh = (target.owner.clone(), 0);
        let (owner, number) = state.streams.entry(target.stream.clone()).or_insert(fresh);
        if target.previous_owner.as_ref() == Some(owner) {
            *owner = target.owner.clone();
        }
        target.check_owner(owner)?;
        let standing = Standing { number: *number, is_durable: state.is_durable, server: "fake".into() };
        // What older connections brought is executed after the number was read.
        for (stream, owner, transaction) in std::mem::take(&mut state.late) {
            state.execute(&stream, &owner, &transaction);
        }
        state.opened += 1;
        let (life, stream, owner) = (state.life, target.stream.clone(), target.owner.clone());
        drop(state);
        self.session = Some(FakeSession { life, stream, owner, line: VecDeque::new(), hangs_since: None });
        Ok(standing)
    }

    /// The next outcome, or `None` as long as a transaction hangs.
    fn advance(&mut self) -> Option<Outcome> {
        let session = self.session.as_mut()?;
        let lost = Some(Outcome::Lost(away()));
        let mut state = self.server.state();
        if state.life != session.life {
            self.session = None;
            return lost;
        }
        let transaction = session.line.front()?.clone();
        let fault = match session.hangs_since {
            Some(since) if *self.server.released.borrow() == since => return None,
            Some(_) => None,
            None => state.faults.pop_front().flatten(),
        };
        session.hangs_since = None;
        match fault {
            None => {
                session.line.pop_front();
                Some(state.execute(&session.stream, &session.owner, &transaction))
            }
            Some(Fault::Hangs) => {
                session.hangs_since = Some(*self.server.released.borrow());
                None
            }
            Some(fault) => {
                if fault == Fault::LostAfter {
                    state.execute(&session.stream, &session.owner, &transaction);
                } else if fault == Fault::Late {
                    let (stream, owner) = (session.stream.clone(), session.owner.clone());
                    let line = session.line.drain(..).map(|transaction| (stream.clone(), owner.clone(), transaction));
                    state.late.extend(line);
                }
                drop(state);
                self.session = None;
                lost
            }
        }
    }
}

impl Engine for Fake {
    fn limits(&self) -> Limits {
        self.server.limits
    }

    fn open<'a>(&'a mut self, target: &'a Target) -> Reply<'a, Result<Standing>> {
        Box::pin(std::future::ready(self.enter(target)))
    }

    fn submit(&mut self, transaction: Transaction) -> std::result::Result<(), Full> {
        let most = self.server.limits.in_flight;
        let session = self.session.as_mut().filter(|session| session.line.len() < most).ok_or(Full)?;
        session.line.push_back(transaction);
        Ok(())
    }

    fn next(&mut self) -> Reply<'_, Outcome> {
        Box::pin(async {
            let mut released = self.server.released.subscribe();
            loop {
                if let Some(outcome) = self.advance() {
                    return outcome;
                }
                if self.session.as_ref().is_none_or(|session| session.line.is_empty())
                    || released.changed().await.is_err()
                {
                    std::future::pending::<()>().await;
                }
            }
        })
    }

    fn scan<'a>(&'a mut self, table: &'a str, after: Option<&'a [u8]>, count: u32) -> Reply<'a, Result<Page>> {
        let page = || {
            let state = self.server.state();
            let session = self.session.as_ref().filter(|session| session.life == state.life).ok_or_else(away)?;
            let number = state.streams.get(&session.stream).map_or(0, |(_, number)| *number);
            let rows = state.tables.get(table).ok_or_else(|| Code::DatabaseSchema.error(table.to_owned()))?;
            let behind = rows.iter().filter(|(key, _)| after.is_none_or(|after| key.as_ref() > after));
            let found = |(key, (value, version)): (&Bytes, &(Bytes, u64))| {
                let (key, value) = (key.clone(), value.clone());
                Found { key, value, version: Some(*version) }
            };
            let mut rows: Vec<Found> = behind.take(count as usize + 1).map(found).collect();
            let has_more = rows.len() > count as usize;
            rows.truncate(count as usize);
            Ok(Page { number, rows, has_more })
        };
        Box::pin(std::future::ready(page()))
    }
}
