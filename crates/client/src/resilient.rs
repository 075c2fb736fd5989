//! A client that reconnects, and repeats the requests that may be repeated.
//!
//! Reads may be; so may appends, because each is given an idempotency key if it has none. Removing a log is not repeated: the second answer
//! would be that there is no such log.

use crate::{AppendOptions, Batch, Client, Cursor, Options, Place, Receipt, Record, Tail, TailOptions, Wait};
use millrace_wire::{Code, Durability, Error, Result};
use std::{
    collections::hash_map::RandomState,
    future::Future,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(2);

/// Whether after this error another connection may help.
pub(crate) fn is_lost(error: &Error) -> bool {
    error.code().is_lost()
}

/// How long a connection has to last so that its loss is a new one, and how often that counts for one request.
const LASTED: Duration = Duration::from_secs(1);
const LOSSES_MAX: u32 = 10;

/// The pause before the next attempt: longer each time, and randomized. The time for attempts begins with the first error, however long the
/// request waited before, and again if a connection was lost that had lasted.
pub(crate) struct Backoff {
    pause: Duration,
    patience: Duration,
    until: Option<Instant>,
    began: Instant,
    losses: u32,
}

impl Backoff {
    pub fn new(options: &Options) -> Self {
        let patience = Duration::from_millis(options.reconnect_ms.into());
        Self { pause: PAUSE_FIRST, patience, until: None, began: Instant::now(), losses: 0 }
    }

    /// The next pause, or the error if it has been tried for long enough.
    pub fn next(&mut self, error: Error) -> Result<Duration> {
        let now = Instant::now();
        let lasted = error.code() == Code::ConnectionLost && now > self.began + LASTED;
        if lasted && self.losses < LOSSES_MAX {
            (self.pause, self.until) = (PAUSE_FIRST, None);
            self.losses += 1;
        }
        if now + self.pause > *self.until.get_or_insert(now + self.patience) {
            return Err(error);
        }
        let half = self.pause / 2;
        let jitter = half.mul_f64(random() as f64 / u64::MAX as f64);
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        self.began = now + half + jitter;
        Ok(half + jitter)
    }
}

/// Random enough to be no one else's: the standard library seeds its hashes from the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Unique keys.
pub(crate) struct Keys {
    prefix: u128,
    next: AtomicU64,
}

impl Keys {
    pub fn new() -> Self {
        Self { prefix: u128::from(random()) << 64 | u128::from(random()), next: AtomicU64::new(0) }
    }

    pub fn next(&self) -> String {
        format!("{:032x}-{:x}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// A namespace on another host, through however many connections it takes.
#[derive(Clone)]
pub struct Resilient {
    inner: Arc<Inner>,
}

struct Inner {
    place: Place,
    options: Options,
    client: Mutex<Last>,
    keys: Keys,
}

/// The last connection, or when the last attempt to connect failed, and why.
#[derive(Default)]
struct Last {
    client: Option<Client>,
    failed: Option<(Instant, Error)>,
}

impl Resilient {
    /// Does not connect before it has to.
    pub fn new(place: Place, options: Options) -> Self {
        Self { inner: Arc::new(Inner { place, options, client: Mutex::default(), keys: Keys::new() }) }
    }

    /// A connection that was alive just now, or a new one.
    pub async fn client(&self) -> Result<Client> {
        let asked = Instant::now();
        let mut last = self.inner.client.lock().await;
        if let Some(client) = last.client.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        // Requests that waited for one attempt do not try again one after the other.
        if let Some((_, error)) = last.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        match Client::connect(&self.inner.place, &self.inner.options).await {
            Ok(made) => {
                *last = Last { client: Some(made.clone()), failed: None };
                Ok(made)
            }
            Err(error) => {
                last.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Does something that may be done twice, until it was done over a connection that held.
    pub async fn repeat<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn(Client) -> F) -> Result<T> {
        let mut backoff = Backoff::new(&self.inner.options);
        loop {
            let outcome = match self.client().await {
                Ok(client) => ask(client).await,
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if is_lost(&error) => tokio::time::sleep(backoff.next(error)?).await,
                outcome => return outcome,
            }
        }
    }

    /// Appends one record, exactly once.
    pub async fn append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
        let made = self.inner.keys.next();
        let options = AppendOptions { key: Some(options.key.unwrap_or(&made)), ..options };
        self.repeat(|client| async move { client.append(log, data, options).await }).await
    }

    /// Appends records, all or none, exactly once.
    pub async fn append_many(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Result<Vec<Receipt>> {
        let made = self.inner.keys.next();
        let options = AppendOptions { key: Some(options.key.unwrap_or(&made)), ..options };
        self.repeat(|client| async move { client.append_many(records, options).await }).await
    }

    /// As [`Client::get`].
    pub async fn get(&self, log: &str, seqno: u64, wait: Wait) -> Result<Record> {
        self.repeat(|client| async move { client.get(log, seqno, wait).await }).await
    }

    /// As [`Client::range`].
    pub async fn range(&self, log: &str, from: u64, count: u32, durability: Option<Durability>) -> Result<Batch> {
        self.repeat(|client| async move { client.range(log, from, count, durability).await }).await
    }

    /// As [`Client::latest`].
    pub async fn latest(&self, log: &str, above: u64, wait: Wait) -> Result<u64> {
        self.repeat(|client| async move { client.latest(log, above, wait).await }).await
    }

    /// As [`Client::create_log`].
    pub async fn create_log(&self, log: &str, history: u64) -> Result<()> {
        self.repeat(|client| async move { client.create_log(log, history).await }).await
    }

    /// As [`Client::show`].
    pub async fn show(&self, path: &str) -> Result<String> {
        self.repeat(|client| async move { client.show(path).await }).await
    }

    /// Follows a log across lost connections: every record once, in order.
    pub async fn tail(&self, log: &str, from: u64, options: TailOptions) -> Result<ResilientTail> {
        // "From now on" must not mean something else after each reconnection.
        let next = if from == 0 { self.latest(log, 0, Wait::default()).await? + 1 } else { from };
        let cursor = Cursor { incarnation: options.incarnation, next };
        Ok(ResilientTail { resilient: self.clone(), log: log.into(), options, cursor, tail: None })
    }
}

/// A tail that resumes after a lost connection.
pub struct ResilientTail {
    resilient: Resilient,
    log: String,
    options: TailOptions,
    cursor: Cursor,
    tail: Option<Tail>,
}

impl ResilientTail {
    /// Where another tail would have to begin, to bring what this one has not.
    pub fn cursor(&self) -> Cursor {
        // It knows which log it follows before the first record comes.
        self.tail.as_ref().map_or(self.cursor, Tail::cursor)
    }

    /// The next records; at least one.
    pub async fn next_batch(&mut self) -> Result<Batch> {
        let mut backoff = None;
        loop {
            match self.attempt().await {
                Ok(batch) => {
                    self.cursor = batch.cursor;
                    return Ok(batch);
                }
                Err(error) if is_lost(&error) => {
                    self.cursor = self.cursor();
                    self.tail = None;
                    let backoff = backoff.get_or_insert_with(|| Backoff::new(&self.resilient.inner.options));
                    tokio::time::sleep(backoff.next(error)?).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn attempt(&mut self) -> Result<Batch> {
        if self.tail.is_none() {
            let options = TailOptions { incarnation: self.cursor.incarnation, ..self.options };
            let client = self.resilient.client().await?;
            self.tail = Some(client.tail(&self.log, self.cursor.next, options).await?);
        }
        match &mut self.tail {
            Some(tail) => tail.next_batch().await,
            None => Err(Code::TailEnded.error("the tail has ended")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, thread::sleep};

    fn refused() -> Error {
        Code::ConnectFailed.error("nobody listens")
    }

    #[test]
    fn pauses_grow_to_a_bound_and_clients_that_were_cut_off_together_come_back_apart() {
        let options = Options { reconnect_ms: 3_600_000, ..Options::default() };
        let mut crowd: Vec<Backoff> = (0..200).map(|_| Backoff::new(&options)).collect();
        let mut longest = PAUSE_FIRST;
        for _ in 0..10 {
            let pauses: BTreeSet<Duration> = crowd.iter_mut().map(|one| one.next(refused()).unwrap()).collect();
            let (first, last) = (*pauses.first().unwrap(), *pauses.last().unwrap());
            assert!(first >= longest / 2 && last <= longest, "{first:?} to {last:?}, of {longest:?}");
            // Spread over the whole of the second half, and hardly any two at the same time.
            assert!(last - first > longest / 4 && pauses.len() > 150, "{} pauses, {first:?} to {last:?}", pauses.len());
            longest = (longest * 2).min(PAUSE_MOST);
        }
        assert_eq!(longest, PAUSE_MOST);
        let mut impatient = Backoff::new(&Options { reconnect_ms: 0, ..Options::default() });
        assert_eq!(impatient.next(refused()).unwrap_err().code(), Code::ConnectFailed);
    }

    #[test]
    fn patience_begins_with_the_first_error_and_again_when_a_connection_had_lasted() {
        let patience = LASTED + LASTED / 2;
        let options = Options { reconnect_ms: patience.as_millis() as u32, ..Options::default() };
        let mut backoff = Backoff::new(&options);
        // The request waits for longer than that.
        sleep(patience + LASTED / 10);
        backoff.next(refused()).unwrap();
        sleep(patience);
        assert_eq!(backoff.next(refused()).unwrap_err().code(), Code::ConnectFailed, "for so long nobody answers");
        backoff.next(Code::ConnectionLost.error("it lasted")).unwrap();
        assert!(backoff.next(Code::ConnectionLost.error("at once")).is_ok());
        sleep(patience);
        assert!(backoff.next(refused()).is_err(), "a host that cannot be reached gets no more time");
    }
}
