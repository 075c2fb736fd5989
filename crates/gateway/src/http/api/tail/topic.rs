//! Following a topic. Its cursor is the index of the next record.

use super::{HEARTBEAT, STEP_BYTES, STEP_RECORDS, Source, last_event, memory, no_cursor, respond, write};
use crate::{
    cluster::topics,
    documents::{Query, whole_number},
    http::{api::topics::TopicRecordDoc, response::Response, session::Session},
    memory::Reservation,
};
use hyper::Request;
use millrace_node::{Access, Right};
use millrace_wire::{Code, Error, Result};
use std::time::Duration;

struct Tail {
    access: Access,
    topic: String,
    next: u64,
}

/// Sends the records of a topic from an index on, for as long as the client listens.
pub(in crate::http) async fn follow<B>(
    session: &Session,
    namespace: &str,
    topic: &str,
    request: &Request<B>,
) -> Result<Response> {
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let from = query.number("from", 0, u64::MAX)?;
    query.finish()?;
    let access = session.access(namespace)?;
    let cluster = access.topics(Right::Read, topic)?;
    let latest = topics::latest(cluster, topic, 0, Duration::ZERO).await?;
    let cursor = last_event(request.headers())?;
    let next = match cursor {
        Some(cursor) => whole_number(cursor).filter(|next| *next > 0).ok_or_else(|| no_cursor(cursor))?,
        None if from == Some(1) => {
            let (oldest, next) = topics::range(cluster, topic, None, 1, 1).await?;
            oldest.first().map_or(next, |record| record.seqno)
        }
        None => from.filter(|from| *from > 0).unwrap_or(latest + 1),
    };
    if next - 1 > latest {
        let ahead = format!("topic '{topic}' has no record {next} yet; the newest is {latest}");
        return Err(if cursor.is_some() { recreated(topic) } else { Code::AboveTail.error(ahead) });
    }
    // A record that left the history is refused here, not in the first event.
    topics::range(cluster, topic, Some(next), 1, 1).await?;
    Ok(respond(session, Tail { access, topic: topic.into(), next }))
}

fn recreated(topic: &str) -> Error {
    Code::TopicRecreated.error(format!("topic '{topic}' was removed and recreated"))
}

impl Source for Tail {
    fn cursor(&self) -> String {
        self.next.to_string()
    }

    async fn grown(&mut self) -> Result<()> {
        let cluster = self.access.topics(Right::Read, &self.topic)?;
        let latest = topics::latest(cluster, &self.topic, self.next - 1, HEARTBEAT).await?;
        if latest < self.next - 1 { Err(recreated(&self.topic)) } else { Ok(()) }
    }

    async fn read(&mut self) -> Result<(Vec<u8>, Option<Reservation>)> {
        loop {
            let cluster = self.access.topics(Right::Read, &self.topic)?;
            let from = Some(self.next);
            let (records, next) = topics::range(cluster, &self.topic, from, STEP_RECORDS, STEP_BYTES).await?;
            let mut text = Vec::new();
            for record in &records {
                write(&mut text, record.seqno.saturating_add(1), &TopicRecordDoc::of(&self.topic, record))?;
            }
            match Reservation::of(text.len()) {
                Ok(reserved) => {
                    self.next = next;
                    return Ok((text, reserved));
                }
                Err(_) => {
                    let bytes = text.len();
                    drop((records, text));
                    memory::room_for(bytes).await?;
                }
            }
        }
    }
}
