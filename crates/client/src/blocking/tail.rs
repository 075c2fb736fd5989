//! Follows a log from one thread, and reconnects when a connection is lost.

use super::{Client, socket::Socket};
use crate::{
    Batch, Cursor, Record, TailOptions, ask,
    resilient::{Backoff, is_lost},
    session::{first_credit, target},
};
use millrace_wire::{
    Code, EventId, Result,
    protocol::{self, Credit, Message, Records},
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Records of one log as they come. Dropping it ends it.
pub struct Tail {
    client: Client,
    log: String,
    options: TailOptions,
    open: Option<Open>,
    /// Records that came and were not taken.
    held: VecDeque<Record>,
    /// The positions of the tail: after the records that were taken, and after those that have arrived.
    taken: Cursor,
    came: Cursor,
}

/// A tail on one connection.
struct Open {
    socket: Socket,
    request: u64,
    /// How many records the host may send still.
    credit: u32,
}

impl Tail {
    pub(super) fn start(client: Client, log: &str, from: u64, options: TailOptions) -> Result<Tail> {
        let cursor = Cursor { incarnation: options.incarnation, next: from };
        let socket = client.connect_now()?;
        let mut tail =
            Tail { client, log: log.into(), options, open: None, held: VecDeque::new(), taken: cursor, came: cursor };
        tail.ask(socket)?;
        Ok(tail)
    }

    /// Where another tail would have to begin, to bring what was not taken from this one.
    pub fn cursor(&self) -> Cursor {
        self.taken
    }

    fn ask(&mut self, mut socket: Socket) -> Result<()> {
        let credit = first_credit(&self.options);
        let (Cursor { incarnation, next: from }, durability) = (self.came, self.options.durability);
        let message = protocol::Tail { log: &self.log, from, incarnation, credit, durability };
        let request = socket.put(&message, self.log.len(), EventId::NONE)?;
        socket.flush(None)?;
        self.open = Some(Open { socket, request, credit });
        Ok(())
    }

    /// The next record. Waits for it as long as it takes.
    #[allow(clippy::should_implement_trait, reason = "it does not end; errors are not its last item")]
    pub fn next(&mut self) -> Result<Record> {
        loop {
            if let Some(record) = self.next_within(Duration::from_secs(3600))? {
                return Ok(record);
            }
        }
    }

    /// The next record, if it comes within this time.
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<Record>> {
        if self.held.is_empty() {
            self.receive(Instant::now() + patience)?;
        }
        let Some(record) = self.held.pop_front() else { return Ok(None) };
        self.taken = if self.held.is_empty() {
            self.came
        } else {
            Cursor { incarnation: self.came.incarnation, next: record.seqno + 1 }
        };
        Ok(Some(record))
    }

    /// The next records, as many as came together, if any come within this time.
    pub fn batch_within(&mut self, patience: Duration) -> Result<Option<Batch>> {
        if self.held.is_empty() {
            self.receive(Instant::now() + patience)?;
        }
        self.taken = self.came;
        let records: Vec<Record> = std::mem::take(&mut self.held).into();
        Ok((!records.is_empty()).then_some(Batch { records, cursor: self.taken }))
    }

    /// Waits until something came or the time is over; connects again as often as need be.
    fn receive(&mut self, until: Instant) -> Result<()> {
        let mut backoff = Backoff::new(&self.client.inner.options);
        while self.held.is_empty() {
            match self.receive_once(until) {
                Ok(()) => {}
                Err(error) if error.code() == Code::RequestTimeout => return Ok(()),
                Err(error) if is_lost(&error) => {
                    self.open = None;
                    let socket = self.client.reconnect(&mut backoff, error)?;
                    self.ask(socket)?;
                }
                Err(error) => {
                    if error.code() != Code::CallInterrupted {
                        self.open = None; // The host has ended it.
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn receive_once(&mut self, until: Instant) -> Result<()> {
        let Some(open) = &mut self.open else { return Err(Code::TailEnded.error("the tail has ended")) };
        let wanted = self.options.records_max.max(1);
        let Open { socket, request, credit } = open;
        let (held, came) = (&mut self.held, &mut self.came);
        let mut goal = wanted;
        socket.answers(Some(until), |frame| {
            if frame.heading.request != *request {
                return Ok(false);
            }
            if frame.kind != Records::TYPE {
                return Err(ask::answer::<Records<'_>>(frame).err().unwrap_or_else(|| ask::unasked(frame)));
            }
            let batch = ask::batch(frame)?;
            let Some(rest) = credit.checked_sub(batch.records.len() as u32) else {
                return Err(Code::AnswerUnasked.error("a tail sent more records than it had credit for"));
            };
            *credit = rest;
            if !batch.records.is_empty() {
                goal = goal.min(target(&batch, &self.options));
            }
            *came = batch.cursor;
            held.extend(batch.records);
            Ok(true)
        })?;
        // The records of the previous call are gone by now, so only those of this call are kept.
        let more = goal.saturating_sub(*credit);
        if more > goal / 2 {
            *credit += more;
            socket.put_under(*request, &Credit { records: more }, EventId::NONE);
            socket.flush(Some(until))?;
        }
        if held.is_empty() {
            self.taken = self.came;
        }
        Ok(())
    }
}
