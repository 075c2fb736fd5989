//! Tails: the host sends records as they come, as many as it has credit for.

use super::{
    Handle,
    state::{Shared, State, Waiting},
};
use crate::{Batch, Cursor, Record, TailOptions};
use millrace_wire::{
    Code, EventId, Result,
    protocol::{self, Credit},
};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// The first credit; how much more there can be is known when records have shown their size.
const FIRST_CREDIT: u32 = 64;
/// The memory of a record besides its bytes.
const RECORD_BYTES: usize = 64;

/// Received records of a tail that its reader has not taken yet.
pub struct Queue {
    batches: VecDeque<Batch>,
    /// Records that were sent or may be sent still, and were not taken.
    granted: u32,
    /// Of these, those that may be sent still.
    credit: u32,
    held_bytes: usize,
    ended: Option<Result<()>>,
    waker: Option<Waker>,
}

impl Queue {
    fn new(credit: u32) -> Self {
        Self { batches: VecDeque::new(), granted: credit, credit, held_bytes: 0, ended: None, waker: None }
    }

    /// Bytes of records that are held.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Takes in what came; returns how many bytes it is.
    pub fn take_in(&mut self, records: protocol::Records<'_>) -> Result<usize> {
        let batch = Batch::from(records);
        let Some(credit) = self.credit.checked_sub(batch.records.len() as u32) else {
            return Err(Code::AnswerUnasked.error("a tail sent more records than it had credit for"));
        };
        self.credit = credit;
        let bytes = bytes_of(&batch);
        self.held_bytes += bytes;
        match self.batches.back_mut() {
            // Only a cursor: such messages cannot pile up.
            Some(last) if batch.records.is_empty() => last.cursor = batch.cursor,
            _ => self.batches.push_back(batch),
        }
        self.wake();
        Ok(bytes)
    }

    /// Nothing more will come.
    pub fn end(&mut self, how: Result<()>) {
        self.ended.get_or_insert(how);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

fn bytes_of(batch: &Batch) -> usize {
    batch.records.iter().map(|record| record.data.len() + RECORD_BYTES).sum()
}

/// How many records may be kept, if the next ones are as long as these.
pub fn target(batch: &Batch, options: &TailOptions) -> u32 {
    let mean = bytes_of(batch) / batch.records.len().max(1);
    ((options.bytes_max / mean.max(1)) as u32).clamp(1, options.records_max.max(1))
}

/// The credit that a tail begins with.
pub fn first_credit(options: &TailOptions) -> u32 {
    options.records_max.clamp(1, FIRST_CREDIT)
}

/// Follows a log. Dropping it ends it.
pub struct Tail {
    handle: Arc<Handle>,
    request: u64,
    options: TailOptions,
    cursor: Cursor,
    taken: std::vec::IntoIter<Record>,
    after_taken: Cursor,
}

impl Tail {
    pub(super) async fn start(handle: Arc<Handle>, log: &str, from: u64, options: TailOptions) -> Result<Tail> {
        let credit = first_credit(&options);
        let TailOptions { incarnation, durability, .. } = options;
        let message = protocol::Tail { log, from, incarnation, credit, durability };
        let queue = |_| Waiting::Tail(Queue::new(credit));
        let request = handle.shared.send(&message, log.len(), EventId::NONE, queue).await?;
        let cursor = Cursor { incarnation, next: from };
        Ok(Tail { handle, request, options, cursor, taken: Vec::new().into_iter(), after_taken: cursor })
    }

    /// Where another tail would have to begin, to bring what this one has not.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The next record.
    ///
    /// # Errors
    ///
    /// What the host says of the log; `ConnectionLost`; `TailEnded` after the end.
    pub async fn next(&mut self) -> Result<Record> {
        loop {
            if let Some(record) = self.taken.next() {
                self.cursor = Cursor { incarnation: self.after_taken.incarnation, next: record.seqno + 1 };
                if self.taken.len() == 0 {
                    self.cursor = self.after_taken;
                }
                return Ok(record);
            }
            let batch = poll_fn(|cx| self.poll_batch(cx)).await?;
            self.after_taken = batch.cursor;
            self.taken = batch.records.into_iter();
            if self.taken.len() == 0 {
                self.cursor = self.after_taken;
            }
        }
    }

    /// The next records, as many as came together; at least one.
    pub async fn next_batch(&mut self) -> Result<Batch> {
        loop {
            let rest: Vec<Record> = std::mem::take(&mut self.taken).collect();
            let batch = if rest.is_empty() {
                poll_fn(|cx| self.poll_batch(cx)).await?
            } else {
                Batch { records: rest, cursor: self.after_taken }
            };
            self.cursor = batch.cursor;
            if !batch.records.is_empty() {
                return Ok(batch);
            }
        }
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Batch>> {
        let shared = self.handle.shared.clone();
        let mut state = shared.state();
        let ended = || Code::TailEnded.error("the tail has ended");
        let Some(Waiting::Tail(queue)) = state.waiting.get_mut(&self.request) else {
            return Poll::Ready(Err(state.closed.clone().unwrap_or_else(ended)));
        };
        let Some(batch) = queue.batches.pop_front() else {
            if let Some(how) = queue.ended.take() {
                shared.settle(&mut state, self.request);
                return Poll::Ready(Err(how.err().unwrap_or_else(ended)));
            }
            queue.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let bytes = bytes_of(&batch);
        queue.held_bytes -= bytes;
        queue.granted -= batch.records.len() as u32;
        let more = target(&batch, &self.options).saturating_sub(queue.granted);
        let due = !batch.records.is_empty() && queue.ended.is_none() && more > queue.granted;
        if due {
            queue.granted += more;
            queue.credit += more;
        }
        self.took(&shared, &mut state, bytes, due.then_some(more));
        Poll::Ready(Ok(batch))
    }

    fn took(&self, shared: &Shared, state: &mut State, bytes: usize, more: Option<u32>) {
        state.held_bytes -= bytes;
        if let Some(records) = more
            && state.closed.is_none()
        {
            state.push(shared.heading(self.request, EventId::NONE), &Credit { records });
        }
        state.wake_driver(); // It may have stopped reading because too much was held.
    }

    /// Ends the tail: what was sent before the host heard of it still comes, then `TailEnded`.
    pub fn cancel(&self) {
        let shared = &self.handle.shared;
        let mut state = shared.state();
        if state.closed.is_none() && matches!(state.waiting.get(&self.request), Some(Waiting::Tail(_))) {
            state.push(shared.heading(self.request, EventId::NONE), &protocol::Cancel {});
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.handle.shared.forget_tail(self.request);
    }
}
