//! Follows a topic from an index, through an ordered consumer that is created again when it is lost.

use crate::{Inner, Nats, PAUSE, Record, Stream, locked, read};
use async_nats::jetstream::consumer::{DeliverPolicy, pull::OrderedConfig};
use futures_util::StreamExt;
use millrace_wire::{Code, Error, Result};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

/// The maximum number and length of the queued records; a record that alone is longer is queued alone.
const WAITING_MAX: usize = 1024;
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Records of one request to a consumer.
const BATCH: i64 = 64;
/// How long such a request waits; NATS sends two heartbeats in that time.
const EXPIRES: Duration = Duration::from_secs(4);
/// After this time without a record, the stream is asked whether there is one.
const QUIET: Duration = Duration::from_secs(10);
/// How long the newest index is still followed when no caller waits for it.
const LINGER: Duration = Duration::from_secs(30);

/// The records of a topic from an index on, in a bounded queue.
pub struct Follower {
    queue: Arc<Queue>,
    task: AbortHandle,
}

struct Queue {
    waiting: Mutex<Waiting>,
    taken: Notify,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Record>,
    bytes: usize,
    trouble: Option<Error>,
}

/// The purpose of following records.
enum Sink {
    Records(Arc<Queue>),
    Latest(watch::Sender<u64>),
}

impl Nats {
    /// Follows a topic from an index on; `wake` is called when there is something to take.
    pub fn follow(&self, stream: &Stream, from: u64, wake: Box<dyn Fn() + Send + Sync>) -> Follower {
        let queue = Arc::new(Queue { waiting: Mutex::default(), taken: Notify::new(), wake });
        let (inner, stream, sink) = (self.inner.clone(), stream.clone(), Sink::Records(queue.clone()));
        let task = self.inner.task(async move { run(&inner, &stream, from, &sink).await });
        Follower { queue, task }
    }
}

impl Follower {
    /// The next records from `from` on, which are those behind the ones that were taken before: at most `count`, and at most `bytes_max`
    /// bytes unless the first alone has more. They stay until records behind them are asked for. If the first one is not `from`, the ones
    /// between have left the history.
    pub fn records(&self, from: u64, count: usize, bytes_max: usize) -> Result<Vec<Record>> {
        let mut waiting = locked(&self.queue.waiting);
        while waiting.records.front().is_some_and(|first| first.index < from) {
            waiting.bytes -= waiting.records.pop_front().map_or(0, |record| record.data.len());
            self.queue.taken.notify_one();
        }
        let mut bytes = 0;
        let mut fits = |(at, record): &(usize, &Record)| {
            bytes += record.data.len();
            *at == 0 || bytes <= bytes_max
        };
        let records: Vec<Record> = waiting
            .records
            .iter()
            .take(count)
            .enumerate()
            .take_while(&mut fits)
            .map(|(_, record)| record.clone())
            .collect();
        match waiting.trouble.clone().filter(|_| records.is_empty()) {
            Some(trouble) => Err(trouble),
            None => Ok(records),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sink {
    fn take(&self, record: Record) {
        match self {
            Sink::Records(queue) => {
                {
                    let mut waiting = locked(&queue.waiting);
                    waiting.bytes += record.data.len();
                    waiting.records.push_back(record);
                }
                (queue.wake)();
            }
            Sink::Latest(latest) => drop(latest.send_if_modified(|known| {
                let is_newer = record.index > *known;
                *known = record.index.max(*known);
                is_newer
            })),
        }
    }

    /// Waits until there is room.
    async fn room(&self) {
        let Sink::Records(queue) = self else { return };
        loop {
            let taken = queue.taken.notified();
            {
                let waiting = locked(&queue.waiting);
                if waiting.records.len() < WAITING_MAX && waiting.bytes < WAITING_BYTES_MAX {
                    return;
                }
            }
            taken.await;
        }
    }

    fn trouble(&self, error: Option<Error>) {
        let Sink::Records(queue) = self else { return };
        let is_new = {
            let mut waiting = locked(&queue.waiting);
            let is_new = waiting.trouble != error;
            waiting.trouble = error;
            is_new
        };
        if is_new {
            (queue.wake)();
        }
    }

    /// Whether nobody waits any more. Nobody can join later, because the entry is removed under the same lock.
    fn is_over(&self, inner: &Inner, stream: &Stream) -> bool {
        let Sink::Latest(latest) = self else { return false };
        let mut watched = locked(&inner.watched);
        let is_over = latest.receiver_count() == 0;
        if is_over {
            watched.remove(&stream.name);
        }
        is_over
    }
}

/// The newest index of a stream, as it grows.
pub(crate) fn watch(inner: &Arc<Inner>, stream: &Stream) -> watch::Receiver<u64> {
    let mut watched = locked(&inner.watched);
    if let Some(latest) = watched.get(&stream.name) {
        return latest.subscribe();
    }
    let latest = watch::Sender::new(0);
    let seen = latest.subscribe();
    watched.insert(stream.name.clone(), latest.clone());
    let (of_task, stream, sink) = (inner.clone(), stream.clone(), Sink::Latest(latest));
    inner.task(async move { run(&of_task, &stream, 0, &sink).await });
    seen
}

/// Follows until the task is aborted, or nobody waits.
async fn run(inner: &Arc<Inner>, stream: &Stream, from: u64, sink: &Sink) {
    let mut next = from;
    while let Err(error) = follow(inner, stream, &mut next, sink).await {
        sink.trouble(Some(error));
        if sink.is_over(inner, stream) {
            break;
        }
        sleep(2 * PAUSE).await;
    }
}

/// Follows as long as its consumer lives. If `next` is 0, only records that are published from now on are delivered.
async fn follow(inner: &Arc<Inner>, stream: &Stream, next: &mut u64, sink: &Sink) -> Result<()> {
    let mut line = inner.line.subscribe();
    inner.connected(Instant::now()).await?;
    let changes = line.borrow().changes;
    let latest = inner.bounds(stream).await?.latest;
    if *next > latest + 1 {
        let (topic, read) = (&stream.topic, *next - 1);
        let detail = format!("the stream of topic '{topic}' has {latest} records, and {read} were read before");
        return Err(Code::NatsStreamLost.error(detail));
    }
    if *next == 0 {
        sink.take(read::record(latest, 0, None, &[]));
        *next = latest + 1;
    }
    let failed = |error: String| Code::NatsUnreachable.error(format!("topic '{}': NATS: {error}", stream.topic));
    let handle = inner.handle_of(stream).await.map_err(|fault| fault.error)?;
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *next },
        headers_only: matches!(sink, Sink::Latest(_)),
        max_batch: BATCH,
        max_expires: EXPIRES,
        ..OrderedConfig::default()
    };
    let consumer = handle.create_consumer(config).await.map_err(|error| failed(error.to_string()))?;
    let mut messages = consumer.messages().await.map_err(|error| failed(error.to_string()))?;
    sink.trouble(None);
    let (mut heard, mut quiet) = (Instant::now(), Instant::now());
    loop {
        sink.room().await;
        let message = tokio::select! {
            message = timeout(QUIET, messages.next()) => message,
            // The consumer may be on a server that is gone.
            _ = line.wait_for(|line| line.changes != changes) => return Err(failed("the connection changed".into())),
        };
        match message {
            Ok(Some(Ok(message))) => {
                let info = message.info().map_err(|error| failed(error.to_string()))?;
                let (index, time) = (info.stream_sequence, info.published.unix_timestamp_nanos());
                if index < *next {
                    return Err(failed("the consumer started again".into()));
                }
                *next = index + 1;
                sink.take(read::record(index, time, message.headers.as_ref(), &message.payload));
                (heard, quiet) = (Instant::now(), Instant::now());
            }
            Ok(Some(Err(error))) => return Err(failed(error.to_string())),
            Ok(None) => return Err(failed("the consumer ended".into())),
            Err(_) => {
                if quiet.elapsed() >= LINGER {
                    quiet = Instant::now();
                    if sink.is_over(inner, stream) {
                        return Ok(());
                    }
                }
                let latest = inner.bounds(stream).await?.latest;
                if latest + 1 < *next {
                    return Err(failed(format!("the stream has only {latest} records")));
                }
                if latest >= *next && heard.elapsed() >= 2 * QUIET {
                    return Err(failed("the consumer delivers nothing".into()));
                }
            }
        }
    }
}
