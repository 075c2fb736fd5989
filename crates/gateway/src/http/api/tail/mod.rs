//! Following a log, a topic or the output of a run as server-sent events. The next records are read when the client has received the previous ones, so a slow
//! client occupies memory for one step only.

pub(in crate::http) mod live;
pub(in crate::http) mod log;
pub(in crate::http) mod output;
pub(in crate::http) mod parquet;
mod sampler;
pub(in crate::http) mod topic;

pub(crate) use sampler::Samplers;

use super::header;
use crate::{
    documents::{invalid, shown},
    http::{
        connection::watched::Activity,
        response::{self, Content, Response},
        session::Session,
    },
    memory::{self, Reservation},
};
use futures_util::stream;
use hyper::{
    HeaderMap,
    body::Bytes,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use millrace_wire::{Code, Error, Result};
use serde::Serialize;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Something is sent at least so often, so that either side notices when the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Records sent at once, and bytes of them unless one alone has more.
const STEP_RECORDS: u32 = 256;
const STEP_BYTES: usize = 64 << 10;
/// The time that a client waits before it connects again.
const RETRY_MS: u64 = 1000;

/// Where the records come from.
trait Source: Send + 'static {
    /// The cursor of the next record, if it can be resumed.
    fn cursor(&self) -> Option<String>;

    /// Whether there is nothing more to come.
    fn is_over(&self) -> bool {
        false
    }

    /// Waits until there may be a next record.
    fn grown(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// The next records as events, and the memory that they take.
    fn read(&mut self) -> impl Future<Output = Result<(Vec<u8>, Option<Reservation>)>> + Send;
}

struct Follow<S> {
    source: S,
    stopped: watch::Receiver<bool>,
    activity: Arc<Activity>,
    state: State,
    /// Memory for what was sent last.
    reserved: Option<Reservation>,
}

#[derive(PartialEq, Eq)]
enum State {
    /// Nothing was sent yet.
    Fresh,
    Going,
    Ended,
}

/// Sends what the source has, for as long as the client listens.
fn respond(session: &Session, source: impl Source) -> Response {
    let follow = Follow {
        source,
        stopped: session.stopped.clone(),
        activity: session.activity.clone(),
        state: State::Fresh,
        reserved: None,
    };
    let account = memory::current();
    let events = stream::unfold(follow, move |mut follow| {
        account.clone().within(async move {
            let event = follow.event().await?;
            Some((event, follow))
        })
    });
    let mut response = hyper::Response::new(Content::stream(events));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl<S: Source> Follow<S> {
    /// The next that is to be sent; nothing after the end.
    async fn event(&mut self) -> Option<Bytes> {
        match self.state {
            State::Ended => return None,
            State::Fresh => {
                // Says at once that the connection stands, also when there is no record for long.
                self.state = State::Going;
                let id = self.source.cursor().map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
                return Some(format!("retry: {RETRY_MS}\n{id}: following\n\n").into());
            }
            State::Going if self.source.is_over() => return None,
            State::Going => {}
        }
        let mut stopped = self.stopped.clone();
        let step = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => Ok(None),
            step = timeout(HEARTBEAT, self.step()) => step.unwrap_or_else(|_| Ok(Some(heartbeat()))),
        };
        match step {
            Ok(Some(events)) => Some(events),
            // The client connects again, here or where the host runs next.
            Ok(None) => {
                self.state = State::Ended;
                None
            }
            Err(error) if error.code() == Code::HostStopping => {
                self.state = State::Ended;
                None
            }
            Err(error) => {
                self.state = State::Ended;
                Some(failure(&error))
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Bytes>> {
        self.source.grown().await?;
        self.reserved = None;
        let (text, reserved) = self.source.read().await?;
        self.reserved = reserved;
        if text.is_empty() {
            return Ok(Some(heartbeat()));
        }
        self.activity.answers(text.len() as u64);
        Ok(Some(text.into()))
    }
}

fn heartbeat() -> Bytes {
    Bytes::from_static(b": \n\n")
}

/// Where a client that was cut off continues.
fn last_event(headers: &HeaderMap) -> Result<Option<&str>> {
    Ok(header(headers, "last-event-id")?.filter(|cursor| !cursor.is_empty()))
}

fn no_cursor(text: &str) -> Error {
    invalid(format!("'{}' in Last-Event-ID is not a cursor", shown(text)))
}

/// One record as an event, whose id is the cursor after it.
fn write(text: &mut Vec<u8>, cursor: impl std::fmt::Display, record: &impl Serialize) -> Result<()> {
    text.extend_from_slice(format!("id: {cursor}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *text, record)
        .map_err(|error| Code::HostInternal.error(format!("the record cannot be written as JSON: {error}")))?;
    text.extend_from_slice(b"\n\n");
    Ok(())
}

/// The last event of a tail that cannot continue.
fn failure(error: &Error) -> Bytes {
    format!("event: failure\ndata: {}\n\n", response::failure_text(error)).into()
}
