//! Publishes records, and creates the streams that they are published to.
//!
//! Records are sent in the order in which they were submitted. Each has an id: a record whose acknowledgement was lost is sent again, and
//! NATS stores it once. A record that was sent again may be behind later ones; logs that feed topics wait for each acknowledgement, and for
//! them NATS checks which record of the log came last.

use crate::{Fault, Inner, Nats, PATIENCE, PAUSE, Reply, Source, Stream, away, names::escape, refused};
use async_nats::{
    HeaderMap,
    jetstream::{
        self, ErrorCode,
        context::{CreateStreamErrorKind, PublishAckFuture, PublishError, PublishErrorKind},
        message::PublishMessage,
        stream::{Config, DiscardPolicy, LastRawMessageErrorKind, StorageType},
    },
};
use bytes::Bytes;
use millrace_wire::{Code, Error, EventId, HISTORY_ALL, Hlc, Result};
use std::{error::Error as _, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, sleep},
};

/// The maximum number of unacknowledged records, and of their bytes.
pub(crate) const WINDOW: usize = 4096;
pub(crate) const WINDOW_BYTES: usize = 32 << 20;
/// How long NATS remembers the ids of records.
const REMEMBERED: Duration = Duration::from_secs(120);
/// The header with the number that a record of a feed has in its log.
const SEQNO: &str = "Millrace-Seqno";
/// The headers with the time of a record, in microseconds since 1970 with a counter as in [`Hlc`], and with the id of what it comes from.
const TIME: &str = "Millrace-Time";
const CAUSE: &str = "Millrace-Cause";
/// The maximum number of bytes that are added to a record and count against the limit of NATS: names of headers, an id and a subject.
const AROUND_MAX_BYTES: usize = 1152;

/// An unacknowledged record, and the reply that gets its index.
pub(crate) struct Job {
    record: Outgoing,
    reply: Reply<u64>,
}

/// What the publisher of a record says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When it was published; zero if that is not known.
    pub time: Hlc,
    /// The record or the run that it comes from.
    pub cause: EventId,
}

impl Stamp {
    /// That of a record with these headers. A publisher other than Millrace gives it none.
    pub(crate) fn of(headers: Option<&HeaderMap>) -> Self {
        let read = |name: &str| headers?.get(name).map(async_nats::HeaderValue::as_str);
        let time = read(TIME).and_then(|time| time.parse().ok()).map(Hlc::from_bits).unwrap_or_default();
        Self { time, cause: read(CAUSE).and_then(|cause| cause.parse().ok()).unwrap_or(EventId::NONE) }
    }
}

struct Outgoing {
    stamp: Stamp,
    stream: Stream,
    subject: String,
    id: String,
    /// For a record of a feed: its number in the log, and the index of the feed's previous record.
    fed: Option<(u64, u64)>,
    data: Bytes,
    until: Instant,
    _room: [OwnedSemaphorePermit; 2],
}

/// The position of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// The number of the log's last record that the topic has, 0 if there is none.
    pub seqno: u64,
    /// The index of that record.
    pub index: u64,
}

impl Nats {
    /// Creates the stream of a topic, which keeps its newest records. An existing stream with the same history is left as it is.
    pub fn create(&self, stream: &Stream, history: u64, reply: Reply<()>) {
        let (inner, stream) = (self.inner.clone(), stream.clone());
        self.inner.reply(async move { inner.patiently(|| inner.create(&stream, history)).await }, reply);
    }

    /// Publishes a record; the reply has its index once NATS has it. If NATS remembers the record's key, the reply has the index of the
    /// earlier record.
    pub fn publish(&self, stream: &Stream, (data, key, stamp): (Vec<u8>, Option<&str>, Stamp), reply: Reply<u64>) {
        let id = key.map_or_else(|| self.inner.next_id(), of_key);
        self.inner.queue(stream, (stream.published(), id), None, (data, stamp), reply);
    }

    /// Publishes a record of a feed, if the topic's last record of that feed is the one at `behind`: see [`Nats::fed`].
    pub fn feed(
        &self,
        stream: &Stream,
        (source, seqno): (&Source, u64),
        behind: u64,
        (data, key, stamp): (Vec<u8>, Option<&str>, Stamp),
        reply: Reply<u64>,
    ) {
        let Source { host, since, log } = source;
        let id = || format!("f/{host:016x}/{since}/{}/{seqno}", escape(log.as_bytes()));
        let id = key.map_or_else(id, of_key);
        self.inner.queue(stream, (stream.fed_by(source), id), Some((seqno, behind)), (data, stamp), reply);
    }

    /// The position of a feed, from the records in the topic's history.
    pub fn fed(&self, stream: &Stream, source: &Source, reply: Reply<Fed>) {
        let (inner, stream, subject) = (self.inner.clone(), stream.clone(), stream.fed_by(source));
        self.inner.reply(async move { inner.patiently(|| inner.fed(&stream, &subject)).await }, reply);
    }
}

fn of_key(key: &str) -> String {
    format!("k/{}", escape(key.as_bytes()))
}

impl Inner {
    pub(crate) fn record_max_bytes(&self) -> usize {
        self.client.max_payload().saturating_sub(AROUND_MAX_BYTES)
    }

    async fn create(&self, stream: &Stream, history: u64) -> std::result::Result<(), Fault> {
        let is_cluster = self.client.server_info().cluster.is_some_and(|name| !name.is_empty());
        let config = Config {
            name: stream.name.clone(),
            subjects: vec![stream.subjects()],
            description: Some(format!("topic {} of Millrace", stream.topic)),
            storage: StorageType::File,
            num_replicas: self.replicas.unwrap_or(if is_cluster { 3 } else { 1 }),
            max_messages: limit(history),
            max_messages_per_subject: -1,
            max_bytes: -1,
            max_consumers: -1,
            discard: DiscardPolicy::Old,
            duplicate_window: REMEMBERED,
            allow_direct: true,
            deny_delete: true,
            deny_purge: true,
            ..Config::default()
        };
        let Err(error) = self.context.create_stream(config.clone()).await else { return Ok(()) };
        match error.kind() {
            CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST => {
                let found = self.info(stream).await?.config;
                // The number of copies may have been changed in NATS.
                if found.max_messages == config.max_messages && found.subjects == config.subjects {
                    return Ok(());
                }
                let (name, kept) = (&stream.name, found.max_messages);
                let detail = format!("NATS has a stream '{name}' that keeps {kept} records of {:?}", found.subjects);
                Err(Code::TopicExists.error(detail).into())
            }
            CreateStreamErrorKind::JetStream(error) => Err(refused(stream, &error)),
            CreateStreamErrorKind::JetStreamUnavailable => {
                let detail = "JetStream is not enabled on the NATS server, or has no leader";
                Err(Fault { error: Code::NatsRefused.error(detail), again: true })
            }
            _ => Err(away(format!("topic '{}': NATS: {error}", stream.topic))),
        }
    }

    async fn fed(&self, stream: &Stream, subject: &str) -> std::result::Result<Fed, Fault> {
        let handle = self.handle_of(stream).await?;
        let found = match handle.get_last_raw_message_by_subject(subject).await {
            Ok(found) => found,
            Err(error) => {
                return match error.kind() {
                    LastRawMessageErrorKind::NoMessageFound => Ok(Fed::default()),
                    LastRawMessageErrorKind::JetStream(error) => Err(refused(stream, &error)),
                    _ => Err(away(format!("topic '{}': NATS: {error}", stream.topic))),
                };
            }
        };
        let seqno = found.headers.get(SEQNO).and_then(|seqno| seqno.as_str().parse().ok());
        let strange = || Code::NatsStreamLost.error(format!("record {} of {subject} has no number", found.sequence));
        Ok(Fed { seqno: seqno.ok_or_else(strange)?, index: found.sequence })
    }

    fn queue(
        &self,
        stream: &Stream,
        (subject, id): (String, String),
        fed: Option<(u64, u64)>,
        (data, stamp): (Vec<u8>, Stamp),
        reply: Reply<u64>,
    ) {
        let most = self.record_max_bytes();
        if data.len() > most {
            let detail = format!("a record of {} bytes; the limit of the NATS servers is {most}", data.len());
            return reply(Err(Code::NatsPayload.error(detail)));
        }
        let bytes = u32::try_from(data.len().clamp(1, WINDOW_BYTES)).unwrap_or(1);
        let one = self.window.clone().try_acquire_owned();
        let room = one.and_then(|one| Ok([one, self.window_bytes.clone().try_acquire_many_owned(bytes)?]));
        let Ok(room) = room else {
            let detail = format!("{WINDOW} records or {WINDOW_BYTES} bytes are not acknowledged");
            return reply(Err(Code::NatsBusy.error(detail)));
        };
        let (stream, data, until) = (stream.clone(), Bytes::from(data), Instant::now() + PATIENCE);
        let record = Outgoing { stamp, stream, subject, id, fed, data, until, _room: room };
        let job = Job { record, reply };
        if let Err(refused) = self.jobs.send(job) {
            (refused.0.reply)(Err(Code::HostStopping.error("the host is stopping")));
        }
    }

    async fn send(&self, job: &Outgoing) -> std::result::Result<PublishAckFuture, PublishError> {
        let mut message = PublishMessage::build().payload(job.data.clone()).message_id(&job.id);
        let Stamp { time, cause } = job.stamp;
        if time != Hlc::ZERO {
            message = message.header(TIME, time.get().to_string());
        }
        if !cause.is_none() {
            message = message.header(CAUSE, cause.to_string());
        }
        if let Some((seqno, behind)) = job.fed {
            message = message.header(SEQNO, seqno.to_string()).expected_last_subject_sequence(behind);
        }
        self.context.send_publish(job.subject.clone(), message).await
    }

    /// Waits for the acknowledgement of a record, and sends it again if it does not come.
    async fn settle(
        &self,
        job: Outgoing,
        mut sent: std::result::Result<PublishAckFuture, PublishError>,
    ) -> Result<u64> {
        loop {
            let acknowledged = match sent {
                Ok(acknowledged) => acknowledged.await,
                Err(error) => Err(error),
            };
            let fault = match acknowledged {
                Ok(acknowledged) => return Ok(acknowledged.sequence),
                Err(error) => unpublished(&job, &error),
            };
            if !fault.again {
                return Err(fault.error);
            }
            sleep(PAUSE).await;
            if Instant::now() >= job.until {
                return Err(self.late(&job, fault.error).await);
            }
            if self.connected(job.until).await.is_err() {
                let detail = format!("topic '{}': the connection was lost: {}", job.stream.topic, fault.error.detail());
                return Err(Code::NatsUnconfirmed.error(detail));
            }
            sent = self.send(&job).await;
        }
    }

    /// A record that was sent and not acknowledged in time.
    async fn late(&self, job: &Outgoing, error: Error) -> Error {
        match self.info(&job.stream).await {
            Err(fault) if fault.error.code() == Code::NatsStreamLost => fault.error,
            _ if error.code() == Code::NatsRefused => error,
            _ => {
                let (topic, why) = (&job.stream.topic, error.detail());
                Code::NatsUnconfirmed
                    .error(format!("topic '{topic}': not acknowledged in {} s: {why}", PATIENCE.as_secs()))
            }
        }
    }
}

fn limit(history: u64) -> i64 {
    if history == HISTORY_ALL { -1 } else { i64::try_from(history).unwrap_or(-1) }
}

/// Why a record was not published.
fn unpublished(job: &Outgoing, error: &PublishError) -> Fault {
    let topic = &job.stream.topic;
    match error.kind() {
        PublishErrorKind::WrongLastSequence => {
            let detail = format!("topic '{topic}' has another last record of the log that feeds it");
            Code::FeedOutOfOrder.error(detail).into()
        }
        PublishErrorKind::MaxPayloadExceeded => {
            Code::NatsPayload.error(format!("{} bytes for topic '{topic}': {error}", job.data.len())).into()
        }
        PublishErrorKind::Other => {
            let refusal = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
            refusal.map_or_else(|| away(format!("NATS: {error}")), |refusal| refused(&job.stream, refusal))
        }
        _ => away(format!("NATS: {error}")),
    }
}

/// Sends records in the order in which they are given.
pub(crate) async fn send_all(inner: Arc<Inner>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    while let Some(Job { record, reply }) = jobs.recv().await {
        if let Err(error) = inner.connected(record.until).await {
            reply(Err(error));
            continue;
        }
        let sent = inner.send(&record).await;
        let settling = inner.clone();
        inner.reply(async move { settling.settle(record, sent).await }, reply);
    }
}
