//! Following a log. All records are read through the gate.

use super::{STEP_BYTES, STEP_RECORDS, Source, last_event, memory, no_cursor, respond, write};
use crate::{
    documents::{Query, whole_number},
    http::{
        api::{Rationed, bytes_of, durability, rationed},
        response::Response,
        session::Session,
    },
    memory::Reservation,
};
use hyper::Request;
use millrace_node::{Access, Durability, Log, documents::whole_record};
use millrace_wire::{Code, Result};

struct Tail {
    access: Access,
    name: String,
    log: Log,
    next: u64,
    durability: Option<Durability>,
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
    let from = match last_event(request.headers())? {
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
    Ok(respond(session, Tail { access, name: name.into(), log, next, durability }))
}

/// Where a client with this cursor continues.
fn resumed(cursor: &str, name: &str, log: &Log) -> Result<u64> {
    let parts = cursor.split_once(':').and_then(|(log, next)| Some((whole_number(log)?, whole_number(next)?)));
    let Some((incarnation, next)) = parts.filter(|(_, next)| *next > 0) else {
        return Err(no_cursor(cursor));
    };
    if incarnation != u64::from(log.id()) {
        return Err(Code::CursorIncarnation.error(format!("log '{name}' was deleted and recreated")));
    }
    Ok(next)
}

impl Source for Tail {
    fn cursor(&self) -> Option<String> {
        Some(format!("{}:{}", self.log.id(), self.next))
    }

    async fn grown(&mut self) -> Result<()> {
        self.next = self.access.beyond_voids(&self.log, self.next)?;
        if self.log.latest() < self.next {
            self.access.growth(&self.log, self.next - 1).await;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(Vec<u8>, Option<Reservation>)> {
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
                write(&mut text, format_args!("{}:{next}", self.log.id()), &whole_record(&self.name, record))?;
            }
            match Reservation::of(text.len()) {
                Ok(reserved) => {
                    self.next = next;
                    return Ok((text, reserved));
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
}
