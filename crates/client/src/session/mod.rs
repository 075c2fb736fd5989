//! The async client: one connection, shared by any number of tasks.

mod driver;
mod state;
mod stream;
mod tail;

use crate::{AppendOptions, Batch, Host, Options, Place, Receipt, Record, TailOptions, Wait, ask};
use driver::Driver;
use millrace_wire::{
    Durability, EventId, Result,
    protocol::{
        AppendedMany, CancelRun, CreateLog, Decode, Document, Done, Frame, Get, Latest, Message, OfTable, Ping, Pong,
        Range, RemoveLog, Seqno, SetLog, Show, split,
    },
    table::{TableAnswer, TableRequest},
};
use state::{Arrival, Shared, Waiting, due};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::oneshot;

pub use stream::{Encrypted, encrypted};
pub(crate) use stream::{broken, closed, refused};
pub use tail::Tail;
pub(crate) use tail::{first_credit, target};

/// Keeps a connection open. The driver ends with the last handle.
pub(super) struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.users -= 1;
        state.wake_driver();
    }
}

/// A namespace on another host. Clones share the connection; requests of all of them are in flight together.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
    cause: EventId,
}

impl Client {
    /// Connects, on the tokio runtime that this is awaited in; one task there serves the connection.
    pub async fn connect(place: &Place, options: &Options) -> Result<Client> {
        let greeted = stream::connect(place, options).await?;
        let shared = Arc::new(Shared::new(greeted.host.clone(), greeted.hlc, options.clone()));
        shared.state().users = 1;
        tokio::spawn(Driver::new(shared.clone(), greeted));
        Ok(Client { handle: Arc::new(Handle { shared }), cause: EventId::NONE })
    }

    /// The properties of the host and of the namespace.
    pub fn host(&self) -> &Host {
        &self.handle.shared.host
    }

    /// The same connection for requests that this event caused.
    pub fn caused_by(&self, cause: EventId) -> Client {
        Client { handle: self.handle.clone(), cause }
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.handle.shared.state().closed.is_some()
    }

    /// Sends a request as soon as there is room for it; the answer can be awaited later. `payload_bytes` is the approximate total length of
    /// its texts and bytes, `wait_ms` how long it lets the host wait.
    pub async fn send<M: Message>(&self, message: &M, payload_bytes: usize, wait_ms: u32) -> Result<Pending> {
        self.send_caused(message, payload_bytes, wait_ms, self.cause).await
    }

    async fn send_caused<M: Message>(
        &self,
        message: &M,
        payload_bytes: usize,
        wait_ms: u32,
        cause: EventId,
    ) -> Result<Pending> {
        let (sender, receiver) = oneshot::channel();
        let due = due(self.handle.shared.options.patience(wait_ms));
        let one = |bytes| Waiting::One { sender, due, bytes };
        let request = self.handle.shared.send(message, payload_bytes, cause, one).await?;
        Ok(Pending { handle: self.handle.clone(), request, receiver, answered: false, cancel: wait_ms > 0 })
    }

    /// Sends an append as soon as there is room for it; see [`Pending::receipt`].
    pub async fn send_append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<Pending> {
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        self.send_caused(&ask::append(log, data, &options), data.len(), 0, cause).await
    }

    /// Appends one record.
    pub async fn append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
        self.send_append(log, data, options).await?.receipt().await
    }

    /// Appends records, all or none.
    pub async fn append_many(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Result<Vec<Receipt>> {
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        let (message, bytes) = ask::append_many(records, &options);
        let reply = self.send_caused(&message, bytes, 0, cause).await?.await?;
        Ok(reply.message::<AppendedMany>()?.records)
    }

    /// Reads one record, 0 for the newest; with [`Wait::wait_ms`] waits until it exists.
    pub async fn get(&self, log: &str, seqno: u64, wait: Wait) -> Result<Record> {
        let Wait { wait_ms, durability } = wait;
        let message = Get { log, seqno, wait_ms, durability };
        ask::record(&self.send(&message, 0, wait_ms).await?.await?.frame())
    }

    /// Reads at most `count` records from `from` on: as many as fit an answer, none at the log's end.
    pub async fn range(&self, log: &str, from: u64, count: u32, durability: Option<Durability>) -> Result<Batch> {
        ask::batch(&self.send(&Range { log, from, count, durability }, 0, 0).await?.await?.frame())
    }

    /// The newest sequence number, 0 if there is none; with [`Wait::wait_ms`] waits until it is above `above`.
    pub async fn latest(&self, log: &str, above: u64, wait: Wait) -> Result<u64> {
        let Wait { wait_ms, durability } = wait;
        let message = Latest { log, above, wait_ms, durability };
        Ok(self.send(&message, 0, wait_ms).await?.await?.message::<Seqno>()?.seqno)
    }

    /// Asks a table, or changes it.
    pub async fn table(
        &self,
        table: &str,
        request: &TableRequest<'_>,
        options: AppendOptions<'_>,
    ) -> Result<TableAnswer> {
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        let bytes = request.encode();
        let message = ask::table(table, &bytes, &options);
        let reply = self.send_caused(&message, bytes.len(), 0, cause).await?.await?;
        ask::table_answer(&reply.message::<OfTable<'_>>()?)
    }

    /// Creates a log; an existing one with the same history is left as it is.
    pub async fn create_log(&self, log: &str, history: u64) -> Result<()> {
        self.send(&CreateLog { log, history }, 0, 0).await?.await?.message::<Done>().map(drop)
    }

    /// Has a log keep another number of its newest records: those beyond a shorter history are gone at once, and what had left a
    /// history stays gone.
    pub async fn set_history(&self, log: &str, history: u64) -> Result<()> {
        self.send(&SetLog { log, history }, 0, 0).await?.await?.message::<Done>().map(drop)
    }

    /// Cancels a run that has not ended: it publishes nothing more, and its process is stopped if it is running.
    pub async fn cancel_run(&self, run: EventId) -> Result<()> {
        self.send(&CancelRun { run }, 0, 0).await?.await?.message::<Done>().map(drop)
    }

    /// Removes a log and its records.
    pub async fn remove_log(&self, log: &str) -> Result<()> {
        self.send(&RemoveLog { log }, 0, 0).await?.await?.message::<Done>().map(drop)
    }

    /// A document about the namespace as JSON: what HTTP answers under `/v1/namespaces/NAME/` and this path.
    pub async fn show(&self, path: &str) -> Result<String> {
        Ok(self.send(&Show { path }, path.len(), 0).await?.await?.message::<Document<'_>>()?.json.to_owned())
    }

    /// Checks whether the host answers.
    pub async fn ping(&self) -> Result<()> {
        self.send(&Ping {}, 0, 0).await?.await?.message::<Pong>().map(drop)
    }

    /// Follows a log from a record on; 0 for those appended from now on.
    pub async fn tail(&self, log: &str, from: u64, options: TailOptions) -> Result<Tail> {
        Tail::start(self.handle.clone(), log, from, options).await
    }
}

/// A request that was sent. Awaiting it gives the answer; dropping it discards the answer.
pub struct Pending {
    handle: Arc<Handle>,
    request: u64,
    receiver: oneshot::Receiver<Arrival>,
    answered: bool,
    cancel: bool,
}

impl Pending {
    /// Its number on this connection.
    pub fn request(&self) -> u64 {
        self.request
    }

    /// The answer to an append.
    pub async fn receipt(self) -> Result<Receipt> {
        self.await?.message()
    }
}

impl Future for Pending {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        let Poll::Ready(arrival) = Pin::new(&mut self.receiver).poll(cx) else { return Poll::Pending };
        self.answered = true;
        Poll::Ready(arrival.unwrap_or_else(|_| Err(closed())).map(|bytes| Reply { bytes }))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.answered {
            self.handle.shared.abandon(self.request, self.cancel);
        }
    }
}

/// An answer as it came.
pub struct Reply {
    bytes: bytes::Bytes,
}

impl Reply {
    /// Its frame.
    pub fn frame(&self) -> Frame<'_> {
        let (frame, _) =
            split(&self.bytes, self.bytes.len()).ok().flatten().expect("it was split off as a whole frame");
        frame
    }

    /// The bytes of its frame, with their length in front.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its message; if the host answered with a failure instead, that error.
    pub fn message<'b, M: Message + Decode<'b>>(&'b self) -> Result<M> {
        ask::answer(&self.frame())
    }
}
