//! Following a log as server-sent events. All records are read through the gate. The next records are read when the client has received the
//! previous ones, so a slow client occupies memory for one step only.

use super::{Rationed, bytes_of, durability, header, rationed};
use crate::{
    documents::{Query, RecordDoc, invalid, shown, whole_number},
    http::{
        connection::watched::Activity,
        response::{self, Content, Response},
        session::Session,
    },
    memory::{self, Reservation},
};
use futures_util::stream;
use hyper::{
    Request,
    body::Bytes,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use millrace_node::{Access, Durability, Log, Record};
use millrace_wire::{Code, Error, Result};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Something is sent at least so often, so that either side notices when the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Records sent at once, and bytes of them unless one alone has more.
const STEP_RECORDS: u32 = 256;
const STEP_BYTES: usize = 64 << 10;
/// How long a client without a word of ours waits before it connects again.
const RETRY_MS: u64 = 1000;

struct Follow {
    access: Access,
    name: String,
    log: Log,
    next: u64,
    durability: Option<Durability>,
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

/// Sends the records of a log from a place on, for as long as the client listens.
pub(in crate::http) async fn follow<B>(
    session: &Session,
    namespace: &str,
    name: &str,
    request: &Request<B>,
) -> Result<Response> {
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let from = query.number("from", 0, u64::MAX)?;
    let durability = durability(request.headers(), &mut query)?;
    query.finish()?;
    let access = session.access(namespace)?;
    let log = access.log(name, durability).await?;
    let from = match header(request.headers(), "last-event-id")?.filter(|cursor| !cursor.is_empty()) {
        Some(cursor) => match resumed(cursor, name, &log) {
            Ok(next) => next,
            Err(error) => return access.refuse(error, durability).await,
        },
        // The first record shows whether there are any.
        None if from == Some(1) => log.earliest().max(1),
        None => from.unwrap_or(0),
    };
    // The first event has the start of the tail, so it waits at the gate like other answers.
    let next = access.cursor(&log, from, durability).await?;
    let follow = Follow {
        access,
        name: name.into(),
        log,
        next,
        durability,
        stopped: session.stopped.clone(),
        activity: session.activity.clone(),
        state: State::Fresh,
        reserved: None,
    };
    let events = stream::unfold(follow, |mut follow| async move {
        let event = follow.event().await?;
        Some((event, follow))
    });
    let mut response = hyper::Response::new(Content::stream(events));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Where a client with this cursor continues.
fn resumed(cursor: &str, name: &str, log: &Log) -> Result<u64> {
    let parts = cursor.split_once(':').and_then(|(log, next)| Some((whole_number(log)?, whole_number(next)?)));
    let Some((incarnation, next)) = parts.filter(|(_, next)| *next > 0) else {
        return Err(invalid(format!("'{}' in Last-Event-ID is not a cursor", shown(cursor))));
    };
    if incarnation != u64::from(log.id()) {
        return Err(Code::CursorIncarnation.error(format!("log '{name}' was deleted and recreated")));
    }
    Ok(next)
}

impl Follow {
    /// The next that is to be sent; nothing after the end.
    async fn event(&mut self) -> Option<Bytes> {
        match self.state {
            State::Ended => return None,
            State::Fresh => {
                // Says at once that the connection stands, also when there is no record for long.
                self.state = State::Going;
                return Some(format!("retry: {RETRY_MS}\nid: {}\n: following\n\n", self.cursor()).into());
            }
            State::Going => {}
        }
        let mut stopped = self.stopped.clone();
        let step = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => Ok(None),
            step = timeout(HEARTBEAT, self.step()) => step.unwrap_or_else(|_| Ok(Some(Bytes::from_static(b": \n\n")))),
        };
        match step {
            Ok(Some(events)) => Some(events),
            // The client connects again, here or where the host runs next.
            Ok(None) => {
                self.state = State::Ended;
                None
            }
            Err(error) => {
                self.state = State::Ended;
                Some(failure(&error))
            }
        }
    }

    /// Waits until there is something, and reads it through the gate.
    async fn step(&mut self) -> Result<Option<Bytes>> {
        self.next = self.access.beyond_voids(&self.log, self.next)?;
        if self.log.latest() < self.next {
            self.access.growth(&self.log, self.next - 1).await;
        }
        self.reserved = None;
        loop {
            let held = self.access.range_of(&self.log, self.next, STEP_RECORDS, STEP_BYTES, self.durability);
            let Rationed { value, reserved: at_gate, bytes } = rationed(held, |records| bytes_of(records)).await;
            let records = match value {
                Err(error) if error.code() == Code::HttpMemoryShort => {
                    memory::room_for(bytes).await?;
                    continue;
                }
                records => records?,
            };
            let mut text = Vec::new();
            let mut next = self.next;
            for record in &records {
                next = record.seqno.saturating_add(1);
                write(&mut text, &self.name, self.log.id(), record)?;
            }
            match Reservation::of(text.len()) {
                Ok(reserved) => {
                    (self.reserved, self.next) = (reserved, next);
                    self.activity.answers(text.len() as u64);
                    return Ok(Some(text.into()));
                }
                Err(_) => {
                    // A tail that waits for memory has none.
                    let bytes = text.len();
                    drop((records, text, at_gate));
                    memory::room_for(bytes).await?;
                }
            }
        }
    }

    fn cursor(&self) -> String {
        format!("{}:{}", self.log.id(), self.next)
    }
}

/// One record as an event, whose id is the cursor after it.
fn write(text: &mut Vec<u8>, name: &str, incarnation: u32, record: &Record) -> Result<()> {
    text.extend_from_slice(format!("id: {incarnation}:{}\ndata: ", record.seqno.saturating_add(1)).as_bytes());
    serde_json::to_writer(&mut *text, &RecordDoc::of(name, record))
        .map_err(|error| Code::HostInternal.error(format!("the record cannot be written as JSON: {error}")))?;
    text.extend_from_slice(b"\n\n");
    Ok(())
}

/// The last event of a tail that cannot continue.
fn failure(error: &Error) -> Bytes {
    format!("event: failure\ndata: {}\n\n", response::failure_text(error)).into()
}
