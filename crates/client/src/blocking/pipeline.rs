//! Many appends in flight over one connection, from one thread.

use super::socket::Socket;
use crate::{AppendOptions, Receipt, ask};
use millrace_wire::{EventId, Result};
use std::{collections::VecDeque, time::Instant};

/// Appends are sent together once they have this many bytes.
const SEND_BYTES: usize = 32 << 10;

/// Appends that are sent without waiting for the answers before.
pub struct Pipeline {
    socket: Socket,
    window: usize,
    cause: EventId,
    /// In the order in which they were sent; an answer waits here until all before it have come.
    flying: VecDeque<Flying>,
    flying_bytes: usize,
    unanswered: usize,
}

struct Flying {
    request: u64,
    bytes: usize,
    outcome: Option<Result<Receipt>>,
}

impl Pipeline {
    pub(super) fn new(socket: Socket, window: u32, cause: EventId) -> Self {
        let window = window.min(socket.host.requests_max).max(1) as usize;
        Self { socket, window, cause, flying: VecDeque::new(), flying_bytes: 0, unanswered: 0 }
    }

    /// Appends a record without waiting for the answer, unless the window is full. It is sent at the latest when
    /// something is waited for; see [`Pipeline::flush`].
    ///
    /// # Errors
    ///
    /// Of the connection, never of the append: that comes out of [`Pipeline::next`].
    pub fn append(&mut self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<()> {
        let bytes_max = self.socket.options.in_flight_bytes_max;
        while self.unanswered >= self.window || (self.unanswered > 0 && self.flying_bytes + data.len() > bytes_max) {
            self.await_one()?;
        }
        let cause = if options.cause.is_none() { self.cause } else { options.cause };
        let request = self.socket.put(&ask::append(log, data, &options), data.len(), cause)?;
        self.flying.push_back(Flying { request, bytes: data.len(), outcome: None });
        self.flying_bytes += data.len();
        self.unanswered += 1;
        if self.socket.unsent_bytes() >= SEND_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends what was not sent yet.
    pub fn flush(&mut self) -> Result<()> {
        let until = self.due();
        self.socket.flush(until)
    }

    /// How many appends were begun whose outcome was not taken.
    pub fn len(&self) -> usize {
        self.flying.len()
    }

    /// Whether the caller has received the outcome of every append.
    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// The outcome of the oldest append, if it has arrived.
    pub fn ready(&mut self) -> Option<Result<Receipt>> {
        self.flying.front()?.outcome.as_ref()?;
        self.flying.pop_front()?.outcome
    }

    /// Waits for the outcome of the oldest append; none if there is none.
    ///
    /// # Errors
    ///
    /// The outer error is the connection's: appends without an outcome may or may not have happened. The inner error is the append's.
    #[allow(clippy::should_implement_trait, reason = "a for loop would end at the first lull")]
    pub fn next(&mut self) -> Result<Option<Result<Receipt>>> {
        while !self.flying.is_empty() {
            if let Some(outcome) = self.ready() {
                return Ok(Some(outcome));
            }
            self.await_one()?;
        }
        Ok(None)
    }

    /// Waits for all outcomes.
    ///
    /// # Errors
    ///
    /// The connection's, or the first append's that failed.
    pub fn drain(&mut self) -> Result<Vec<Receipt>> {
        let mut receipts = Vec::with_capacity(self.flying.len());
        while let Some(outcome) = self.next()? {
            receipts.push(outcome?);
        }
        Ok(receipts)
    }

    fn due(&self) -> Option<Instant> {
        self.socket.options.patience(0).map(|patience| Instant::now() + patience)
    }

    /// Waits for an answer, and takes all that came with it.
    fn await_one(&mut self) -> Result<()> {
        self.socket.listen_from_now();
        self.flush()?;
        let until = self.due();
        let first = self.flying.front().map_or(0, |oldest| oldest.request);
        let Self { socket, flying, flying_bytes, unanswered, .. } = self;
        socket.answers(until, |frame| {
            // Requests have consecutive numbers, so a number says where in the queue it is.
            let at = frame.heading.request.checked_sub(first).and_then(|at| usize::try_from(at).ok());
            let Some(one) = at.and_then(|at| flying.get_mut(at)).filter(|one| one.outcome.is_none()) else {
                return Ok(false);
            };
            one.outcome = Some(ask::answer(frame));
            *flying_bytes -= one.bytes;
            *unanswered -= 1;
            Ok(true)
        })
    }
}
