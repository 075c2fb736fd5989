//! Following a topic. A cursor has the number of the topic, which another topic of the name does not have, and the index of the next record.

use super::{HEARTBEAT, STEP_BYTES, STEP_RECORDS, Source, last_event, memory, no_cursor, respond, write};
use crate::{
    cluster::topics,
    documents::{Query, whole_number},
    http::{api::topics::topic_record, response::Response, session::Session},
    memory::Reservation,
};
use hyper::Request;
use millrace_node::{Access, Right, cluster::Cluster};
use millrace_wire::{Code, Error, Result};
use std::time::Duration;

/// How often a tail of all records looks for the oldest one, while older ones leave the history.
const OLDEST_MAX: usize = 100;

struct Tail {
    access: Access,
    topic: String,
    /// Which of the topics that have had the name; 0 if its records are kept outside the cluster.
    born: u64,
    next: u64,
    /// Whether it begins with the oldest record, whichever that is at its first read.
    from_oldest: bool,
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
    let born = born(cluster, topic);
    let cursor = last_event(request.headers())?;
    let from_oldest = cursor.is_none() && from == Some(1);
    let next = match cursor {
        Some(cursor) => resumed(cursor, topic, born, latest)?,
        None if from_oldest => topics::earliest(cluster, topic).await?,
        None => from.filter(|from| *from > 0).unwrap_or(latest + 1),
    };
    if !from_oldest {
        if next - 1 > latest {
            let ahead = format!("topic '{topic}' has no record {next} yet; the newest is {latest}");
            return Err(Code::AboveTail.error(ahead));
        }
        // A record that left the history is refused here, not in the first event.
        topics::range(cluster, topic, Some(next), 1, 1).await?;
    }
    Ok(respond(session, Tail { access, topic: topic.into(), born, next, from_oldest }))
}

/// Where a client with this cursor continues.
fn resumed(cursor: &str, topic: &str, born: u64, latest: u64) -> Result<u64> {
    let parts = cursor.split_once(':').and_then(|(born, next)| Some((whole_number(born)?, whole_number(next)?)));
    let Some((of, next)) = parts.filter(|(_, next)| *next > 0) else { return Err(no_cursor(cursor)) };
    if of == born && next - 1 <= latest { Ok(next) } else { Err(recreated(topic)) }
}

fn born(cluster: &Cluster, topic: &str) -> u64 {
    cluster.born(topic).unwrap_or(0)
}

fn recreated(topic: &str) -> Error {
    Code::TopicRecreated.error(format!("topic '{topic}' was removed and recreated"))
}

impl Source for Tail {
    fn cursor(&self) -> Option<String> {
        Some(format!("{}:{}", self.born, self.next))
    }

    async fn grown(&mut self) -> Result<()> {
        let cluster = self.access.topics(Right::Read, &self.topic)?;
        let latest = topics::latest(cluster, &self.topic, self.next - 1, HEARTBEAT).await?;
        if latest < self.next - 1 { Err(recreated(&self.topic)) } else { Ok(()) }
    }

    async fn read(&mut self) -> Result<(Vec<u8>, Option<Reservation>)> {
        let mut left = if self.from_oldest { OLDEST_MAX } else { 0 };
        loop {
            let cluster = self.access.topics(Right::Read, &self.topic)?;
            let read = topics::range(cluster, &self.topic, Some(self.next), STEP_RECORDS, STEP_BYTES).await;
            // Records of another topic of the name are not sent.
            if born(cluster, &self.topic) != self.born {
                return Err(recreated(&self.topic));
            }
            let (records, next) = match read {
                Err(error) if error.code() == Code::BelowHistory && left > 0 => {
                    left -= 1;
                    self.next = topics::earliest(cluster, &self.topic).await?;
                    continue;
                }
                read => read?,
            };
            let mut text = Vec::new();
            for record in &records {
                let cursor = format_args!("{}:{}", self.born, record.seqno.saturating_add(1));
                write(&mut text, cursor, &topic_record(&self.topic, record))?;
            }
            match Reservation::of(text.len()) {
                Ok(reserved) => {
                    self.next = next;
                    self.from_oldest &= records.is_empty();
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
