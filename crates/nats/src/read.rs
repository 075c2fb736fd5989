//! Reads records by their index, and waits for new ones.

use crate::{Fault, Inner, Nats, Reply, Stamp, Stream, away, follow, refused};
use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        context::GetStreamErrorKind,
        message::StreamMessage,
        stream::{Info, LastRawMessageErrorKind},
    },
};
use futures_util::{StreamExt, TryStreamExt, stream};
use millrace_wire::{Code, Error, EventId, Hlc, Result};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// The number of records that are requested at once.
const AT_ONCE: usize = 32;

/// Which records of a topic can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The oldest; one more than the newest if there is none.
    pub earliest: u64,
    /// The newest; 0 if there is none.
    pub latest: u64,
}

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its index.
    pub index: u64,
    /// When it was published, as its publisher says, or else when NATS got it.
    pub time: Hlc,
    /// What it comes from, as its publisher says.
    pub cause: EventId,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl Nats {
    /// Which records can be read.
    pub fn bounds(&self, stream: &Stream, reply: Reply<Bounds>) {
        let (inner, stream) = (self.inner.clone(), stream.clone());
        self.inner.reply(async move { inner.bounds(&stream).await }, reply);
    }

    /// A record, 0 for the newest.
    pub fn get(&self, stream: &Stream, index: u64, reply: Reply<Record>) {
        let (inner, stream) = (self.inner.clone(), stream.clone());
        let work = async move {
            // An existing record never changes, so any server may return it; only the leader can report that a record does not exist.
            let index = if index == 0 { inner.bounds(&stream).await?.latest.max(1) } else { index };
            match inner.record(&stream, index).await? {
                Some(record) => Ok(record),
                None => Err(inner.bounds(&stream).await?.missing(&stream, index)),
            }
        };
        self.inner.reply(work, reply);
    }

    /// At most `count` records from `from` on, and at most `bytes_max` bytes unless the first alone has more.
    pub fn range(&self, stream: &Stream, from: u64, count: u32, bytes_max: usize, reply: Reply<Vec<Record>>) {
        let (inner, stream) = (self.inner.clone(), stream.clone());
        self.inner.reply(async move { inner.range(&stream, from, count, bytes_max).await }, reply);
    }

    /// Replies with the newest index once it is above `above`, or with the current one after the given time.
    pub fn grown(&self, stream: &Stream, above: u64, within: Duration, reply: Reply<u64>) {
        let (inner, stream) = (self.inner.clone(), stream.clone());
        let work = async move {
            let latest = inner.bounds(&stream).await?.latest;
            if latest > above || within.is_zero() {
                return Ok(latest);
            }
            let mut seen = follow::watch(&inner, &stream);
            let grown = timeout(within, seen.wait_for(|latest| *latest > above)).await;
            Ok(grown.ok().and_then(std::result::Result::ok).map_or(latest, |latest| *latest))
        };
        self.inner.reply(work, reply);
    }
}

impl Bounds {
    /// Why there is no record of this index.
    fn missing(self, stream: &Stream, index: u64) -> Error {
        let (topic, Bounds { earliest, latest }) = (&stream.topic, self);
        if index > latest {
            let detail = format!("topic '{topic}' has no record {index} yet; the newest is {latest}");
            return Code::AboveTail.error(detail);
        }
        Code::BelowHistory.error(format!("topic '{topic}' no longer has record {index}; the oldest is {earliest}"))
    }
}

pub(crate) fn record(index: u64, time_ns: i128, headers: Option<&HeaderMap>, data: &[u8]) -> Record {
    let Stamp { time, cause } = Stamp::of(headers);
    let of_nats = || Hlc::from_wall_us(u64::try_from(time_ns / 1000).unwrap_or(0));
    Record { index, time: if time == Hlc::ZERO { of_nats() } else { time }, cause, data: data.to_vec() }
}

impl From<StreamMessage> for Record {
    fn from(message: StreamMessage) -> Self {
        record(message.sequence, message.time.unix_timestamp_nanos(), Some(&message.headers), &message.payload)
    }
}

impl Inner {
    /// The handle of a stream, without a request.
    pub(crate) async fn handle_of(&self, stream: &Stream) -> std::result::Result<jetstream::stream::Stream<()>, Fault> {
        let found = self.context.get_stream_no_info(&stream.name).await;
        found.map_err(|error| Code::NatsRefused.error(format!("topic '{}': NATS: {error}", stream.topic)).into())
    }

    /// The state of a stream, from its leader.
    pub(crate) async fn info(&self, stream: &Stream) -> std::result::Result<Info, Fault> {
        let found = self.context.get_stream(&stream.name).await;
        found.map(|found| found.cached_info().clone()).map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(error) => refused(stream, &error),
            _ => away(format!("topic '{}': NATS: {error}", stream.topic)),
        })
    }

    pub(crate) async fn bounds(&self, stream: &Stream) -> Result<Bounds> {
        let state = self.patiently(|| self.info(stream)).await?.state;
        let latest = state.last_sequence;
        let earliest = if state.messages == 0 { latest + 1 } else { state.first_sequence };
        Ok(Bounds { earliest, latest })
    }

    /// A record, if it exists.
    async fn record(&self, stream: &Stream, index: u64) -> Result<Option<Record>> {
        self.patiently(|| self.try_record(stream, index)).await
    }

    async fn try_record(&self, stream: &Stream, index: u64) -> std::result::Result<Option<Record>, Fault> {
        let handle = self.handle_of(stream).await?;
        // Any server that has it may answer; one that does not have it may be behind.
        if let Ok(found) = handle.direct_get(index).await {
            return Ok(Some(found.into()));
        }
        match handle.get_raw_message(index).await {
            Ok(found) => Ok(Some(found.into())),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                LastRawMessageErrorKind::JetStream(error) => Err(refused(stream, &error)),
                _ => Err(away(format!("topic '{}': NATS: {error}", stream.topic))),
            },
        }
    }

    async fn range(self: &Arc<Self>, stream: &Stream, from: u64, count: u32, bytes_max: usize) -> Result<Vec<Record>> {
        let bounds = self.bounds(stream).await?;
        if from < bounds.earliest {
            return Err(bounds.missing(stream, from));
        }
        let upto = from.saturating_add(u64::from(count)).min(bounds.latest + 1);
        let found = stream::iter(from..upto).map(|index| self.record(stream, index)).buffered(AT_ONCE);
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut found = std::pin::pin!(found);
        while let Some(record) = found.try_next().await? {
            // It left the history just now.
            let Some(record) = record else {
                let index = records.last().map_or(from, |last: &Record| last.index + 1);
                return Err(self.bounds(stream).await?.missing(stream, index));
            };
            bytes += record.data.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            records.push(record);
        }
        Ok(records)
    }
}
