//! The blocking client: the caller's own thread writes and reads, so that one request costs little more than its echo.
//!
//! Threads may share a [`Client`]: each call takes an idle connection of its pool or opens another one. A [`Pipeline`] and
//! a [`Tail`] have a connection to themselves.

mod manage;
mod objects;
mod pipeline;
mod socket;
mod stream;
mod tail;
mod topics;

use crate::{
    AppendOptions, Batch, Host, Options, Place, Receipt, Record, TailOptions, Wait, ask,
    resilient::{Backoff, is_lost},
    session::closed,
};
pub use manage::InvokedRun;
use millrace_security::token::Token;
use millrace_wire::{
    Code, Durability, EventId, Result,
    protocol::{
        Appended, AppendedMany, CancelRun, CreateLog, Document, Done, Frame, Get, Latest, Message, OfTable, Ping, Pong,
        Range, Redeem, Redeemed, RemoveLog, Repair, Seqno, SetLog, Show,
    },
    table::{TableAnswer, TableRequest},
};
pub use objects::{Answer, Asked};
pub use pipeline::Pipeline;
pub use socket::{Dialled, Socket};
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};
pub use stream::HangUp;
pub use tail::Tail;

/// Connections that are kept for later; those in use are as many as threads that use them.
const IDLE_MAX: usize = 16;

/// A namespace on another host.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    cause: EventId,
}

struct Inner {
    /// Where the namespace is; where several hosts have what is asked for, all of them.
    places: Vec<Place>,
    /// Which of them is asked, for what any of them answers.
    at: AtomicUsize,
    options: Options,
    host: Host,
    idle: Mutex<Vec<Socket>>,
}

/// Whether something may be done twice.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    May,
    MayNot,
}

impl Client {
    /// Connects.
    pub fn connect(place: &Place, options: &Options) -> Result<Client> {
        Self::connect_any(std::slice::from_ref(place), options)
    }

    /// Connects to the first of these hosts of a cluster that can be reached. If it is lost, calls of shared objects go to the next one;
    /// all other requests go to the host that was reached last.
    pub fn connect_any(places: &[Place], options: &Options) -> Result<Client> {
        let mut failure = Code::AddressInvalid.error("no address is given");
        for (at, place) in places.iter().enumerate() {
            match Socket::connect(place, options) {
                Ok(socket) => {
                    let (host, options) = (socket.host.clone(), options.clone());
                    let (places, at, idle) = (places.to_vec(), AtomicUsize::new(at), Mutex::new(vec![socket]));
                    let inner = Inner { places, at, options, host, idle };
                    return Ok(Client { inner: Arc::new(inner), cause: EventId::NONE });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Selects another host for later requests, unless another thread has selected one already.
    fn turn_to_next(&self, from: usize) {
        let next = (from + 1) % self.inner.places.len();
        if next != from && self.inner.at.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.idle(Vec::clear);
        }
    }

    fn connect_now(&self) -> Result<Socket> {
        Socket::connect(&self.inner.places[self.inner.at.load(Ordering::Relaxed)], &self.inner.options)
    }

    /// The properties of the host and of the namespace, as of the first connection of this client.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// The same host through connections of its own, the first of which is made by the first request: for a forked child, in which those of
    /// its parent, and the lock over them, must not be used.
    pub fn separate(&self) -> Client {
        let Inner { places, at, options, host, .. } = &*self.inner;
        let (at, idle) = (AtomicUsize::new(at.load(Ordering::Relaxed)), Mutex::default());
        let inner = Inner { places: places.clone(), at, options: options.clone(), host: host.clone(), idle };
        Client { inner: Arc::new(inner), cause: self.cause }
    }

    /// The same connections for requests that this event caused.
    pub fn caused_by(&self, cause: EventId) -> Client {
        Client { inner: self.inner.clone(), cause }
    }

    /// An idle connection, and whether it was used before.
    fn take(&self) -> Result<(Socket, bool)> {
        while let Some(mut socket) = self.idle(Vec::pop) {
            if socket.seems_alive() {
                return Ok((socket, true));
            }
        }
        self.connect_now().map(|socket| (socket, false))
    }

    fn idle<T>(&self, change: impl FnOnce(&mut Vec<Socket>) -> T) -> T {
        change(&mut self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give_back(&self, socket: Socket) {
        self.idle(|idle| {
            if idle.len() < IDLE_MAX {
                idle.push(socket);
            }
        });
    }

    /// Asks, and reads the answer with `take`. A connection that had died while it was idle is replaced, if the request
    /// may be repeated.
    fn ask<M: Message, T>(
        &self,
        message: &M,
        (payload_bytes, wait_ms, cause): (usize, u32, EventId),
        again: Again,
        take: impl Fn(&Frame<'_>) -> Result<T>,
    ) -> Result<T> {
        self.ask_noting(message, (payload_bytes, wait_ms, cause), again, take, &Cell::new(false))
    }

    /// The same. `lost` is set if a connection was lost over which the host may have got the request.
    fn ask_noting<M: Message, T>(
        &self,
        message: &M,
        (payload_bytes, wait_ms, cause): (usize, u32, EventId),
        again: Again,
        take: impl Fn(&Frame<'_>) -> Result<T>,
        lost: &Cell<bool>,
    ) -> Result<T> {
        loop {
            let (mut socket, used) = self.take()?;
            socket.listen_from_now();
            let until = self.inner.options.patience(wait_ms).map(|patience| Instant::now() + patience);
            let mut answer = None;
            let asked = socket.put(message, payload_bytes, cause).and_then(|request| {
                socket.flush(until)?;
                socket.answers(until, |frame| {
                    let mine = frame.heading.request == request && answer.is_none();
                    if mine {
                        answer = Some(take(frame));
                    }
                    Ok(mine)
                })
            });
            match (asked, answer) {
                (Ok(()), Some(answer)) => {
                    self.give_back(socket);
                    return answer;
                }
                (Err(error), answer) => {
                    lost.set(lost.get() || is_lost(&error));
                    if answer.is_some() || !used || again == Again::MayNot || !is_lost(&error) {
                        return Err(error);
                    }
                }
                (Ok(()), None) => return Err(closed()),
            }
        }
    }

    /// Appends one record.
    pub fn append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
        let again = if options.key.is_some() { Again::May } else { Again::MayNot };
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        self.ask(&ask::append(log, data, &options), (data.len(), 0, cause), again, |frame| {
            ask::answer::<Appended>(frame)
        })
    }

    /// Appends records, all or none.
    pub fn append_many(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Result<Vec<Receipt>> {
        let again = if options.key.is_some() { Again::May } else { Again::MayNot };
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        let (message, bytes) = ask::append_many(records, &options);
        self.ask(&message, (bytes, 0, cause), again, |frame| Ok(ask::answer::<AppendedMany>(frame)?.records))
    }

    /// Reads one record, 0 for the newest; with [`Wait::wait_ms`] waits until it exists.
    pub fn get(&self, log: &str, seqno: u64, wait: Wait) -> Result<Record> {
        let Wait { wait_ms, durability } = wait;
        self.ask(&Get { log, seqno, wait_ms, durability }, (0, wait_ms, EventId::NONE), Again::May, ask::record)
    }

    /// Reads at most `count` records from `from` on: as many as fit an answer, none at the log's end.
    pub fn range(&self, log: &str, from: u64, count: u32, durability: Option<Durability>) -> Result<Batch> {
        self.ask(&Range { log, from, count, durability }, (0, 0, EventId::NONE), Again::May, ask::batch)
    }

    /// The newest sequence number, 0 if there is none; with [`Wait::wait_ms`] waits until it is above `above`.
    pub fn latest(&self, log: &str, above: u64, wait: Wait) -> Result<u64> {
        let Wait { wait_ms, durability } = wait;
        let message = Latest { log, above, wait_ms, durability };
        self.ask(&message, (0, wait_ms, EventId::NONE), Again::May, |frame| Ok(ask::answer::<Seqno>(frame)?.seqno))
    }

    /// Asks a table, or changes it. A change is not sent again if the connection is lost: another client may have changed the key meanwhile.
    pub fn table(&self, table: &str, request: &TableRequest<'_>, options: AppendOptions<'_>) -> Result<TableAnswer> {
        let again = if request.changes() { Again::MayNot } else { Again::May };
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        let bytes = request.encode();
        let message = ask::table(table, &bytes, &options);
        self.ask(&message, (bytes.len(), 0, cause), again, |frame| {
            ask::table_answer(&ask::answer::<OfTable<'_>>(frame)?)
        })
    }

    /// Creates a log; an existing one with the same history is left as it is.
    pub fn create_log(&self, log: &str, history: u64) -> Result<()> {
        self.ask(&CreateLog { log, history }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Has a log keep another number of its newest records: those beyond a shorter history are gone at once, and what had left a
    /// history stays gone.
    pub fn set_history(&self, log: &str, history: u64) -> Result<()> {
        self.ask(&SetLog { log, history }, (0, 0, EventId::NONE), Again::May, done)
    }

    /// Cancels a run that has not ended: it publishes nothing more, and its process is stopped if it is running.
    pub fn cancel_run(&self, run: EventId) -> Result<()> {
        self.ask(&CancelRun { run }, (0, 0, EventId::NONE), Again::MayNot, done)
    }

    /// Removes a log and its records.
    pub fn remove_log(&self, log: &str) -> Result<()> {
        self.ask(&RemoveLog { log }, (0, 0, EventId::NONE), Again::MayNot, done)
    }

    /// A document about the namespace as JSON: what HTTP answers under `/v1/namespaces/NAME/` and this path.
    pub fn show(&self, path: &str) -> Result<String> {
        let take = |frame: &Frame<'_>| Ok(ask::answer::<Document<'_>>(frame)?.json.to_owned());
        self.ask(&Show { path }, (path.len(), 0, EventId::NONE), Again::May, take)
    }

    /// Asks something of repairs; the JSON text of the repair as it is then.
    pub fn repair(&self, json: &str) -> Result<String> {
        let take = |frame: &Frame<'_>| Ok(ask::answer::<Document<'_>>(frame)?.json.to_owned());
        self.ask(&Repair { json }, (json.len(), 0, EventId::NONE), Again::MayNot, take)
    }

    /// Exchanges the invitation that this client connected with for a capability that lasts. It is used up by that.
    pub fn redeem(&self) -> Result<Token> {
        let take = |frame: &Frame<'_>| Token::from_bytes(ask::answer::<Redeemed<'_>>(frame)?.capability);
        self.ask(&Redeem {}, (0, 0, EventId::NONE), Again::MayNot, take)
    }

    /// Checks whether the host answers.
    pub fn ping(&self) -> Result<()> {
        self.ask(&Ping {}, (0, 0, EventId::NONE), Again::May, |frame| ask::answer::<Pong>(frame).map(drop))
    }

    /// Many appends in flight over one connection, at most `window` of them.
    pub fn pipeline(&self, window: u32) -> Result<Pipeline> {
        Ok(Pipeline::new(self.connect_now()?, window, self.cause))
    }

    /// Follows a log from a record on, 0 for those appended from now on. After a lost connection the tail reconnects and resumes.
    pub fn tail(&self, log: &str, from: u64, options: TailOptions) -> Result<Tail> {
        let from = if from == 0 { self.latest(log, 0, Wait::default())? + 1 } else { from };
        Tail::start(self.clone(), log, from, options)
    }

    /// Another connection, tried for as long as [`Options::reconnect_ms`] says.
    fn reconnect(&self, backoff: &mut Backoff, mut error: millrace_wire::Error) -> Result<Socket> {
        loop {
            thread::sleep(backoff.next(error)?);
            match self.connect_now() {
                Err(again) if is_lost(&again) => error = again,
                connected => return connected,
            }
        }
    }
}

fn done(frame: &Frame<'_>) -> Result<()> {
    ask::answer::<Done>(frame).map(drop)
}
