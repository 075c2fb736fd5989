//! One connection: bytes in, bytes out, and what is bounded in between.
//!
//! A connection that has nothing to do holds no buffer: it reads into its thread's, and keeps for itself only what is not
//! a whole frame yet, and what the other end has not taken yet.

use super::{
    REQUESTS_MAX, refusal,
    requests::{Answer, answer},
    waits::Waits,
};
use crate::{Hosted, server::Stream};
use millrace_node::{Door, Held, Principal, links::Inbound};
use millrace_wire::{
    Code, Error, Hlc, Result,
    protocol::{FRAME_MAX_BYTES, HELLO_MAX_BYTES, Heading, split},
};
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// What one read takes at most.
const READ_BYTES: usize = 256 << 10;
/// More than this waits to be taken by the other end: then nothing more is read from it.
const OUT_MAX_BYTES: usize = 1 << 20;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT_BYTES: usize = 16 << 10;
/// A frame that has begun must be complete, and answers must be taken, within this.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

pub(super) struct Connection {
    stream: Stream,
    pub hosted: Arc<Hosted>,
    pub principal: Principal,
    /// The namespace, once the handshake is over.
    pub door: Option<Door>,
    /// The largest clock that the other end has shown.
    pub clock: Hlc,
    input: Vec<u8>,
    pub out: Vec<u8>,
    sent: usize,
    /// Answers at the gate. They are released in the order in which they were committed.
    held: VecDeque<(u64, Held<Answer>)>,
    pub waits: Waits,
    /// Streams from other namespaces, by the request that opened them, and the epoch of where they come from.
    pub inbound: HashMap<u64, (Inbound, u32)>,
    /// Nothing more is read; the connection ends when everything is answered and sent.
    closing: bool,
    refused: bool,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub fn new(stream: Stream, principal: Principal, hosted: Arc<Hosted>) -> Self {
        Self {
            stream,
            hosted,
            principal,
            door: None,
            clock: Hlc::default(),
            input: Vec::new(),
            out: Vec::new(),
            sent: 0,
            held: VecDeque::new(),
            waits: Waits::default(),
            inbound: HashMap::new(),
            closing: false,
            refused: false,
            deadline: None,
        }
    }

    /// Does what can be done now. Ready when the connection is over.
    pub fn poll(&mut self, cx: &mut Context<'_>, stopping: Pin<&mut impl Future>) -> Poll<Result<()>> {
        if !self.closing && (self.hosted.is_draining() || stopping.poll(cx).is_ready()) {
            self.closing = true;
            self.waits.end();
        }
        loop {
            let before = (self.out.len(), self.sent);
            self.poll_held(cx);
            self.poll_waits(cx);
            // What was read and put off for want of room may go on.
            let resumed = self.resume();
            let wrote = self.poll_write(cx)?;
            let read = self.poll_read(cx)?;
            if self.closing && self.is_done() {
                return Poll::Ready(Ok(()));
            }
            if !(resumed || wrote || read || before != (self.out.len(), self.sent)) {
                break;
            }
        }
        self.poll_deadline(cx)
    }

    /// The stream of a connection that was refused, whose client may not have noticed yet.
    pub fn refused(self) -> Option<Stream> {
        self.refused.then_some(self.stream)
    }

    fn is_done(&self) -> bool {
        self.out.is_empty() && self.held.is_empty() && self.waits.is_empty()
    }

    /// Takes what the gate has released.
    fn poll_held(&mut self, cx: &mut Context<'_>) {
        while self.has_room()
            && let Some((request, held)) = self.held.front_mut()
        {
            let Poll::Ready(outcome) = Pin::new(held).poll(cx) else { break };
            let request = *request;
            self.held.pop_front();
            self.reply(request, outcome);
        }
    }

    fn poll_waits(&mut self, cx: &mut Context<'_>) {
        while self.has_room()
            && let Poll::Ready(Some((request, outcome))) = self.waits.poll_next(cx)
        {
            self.reply(request, outcome);
        }
    }

    fn has_room(&self) -> bool {
        self.out.len() - self.sent < OUT_MAX_BYTES
    }

    /// Answers, now or as soon as the gate lets it out.
    pub fn answer(&mut self, request: u64, held: Held<Answer>) {
        match held.now() {
            Ok(outcome) => self.reply(request, outcome),
            Err(held) => self.held.push_back((request, held)),
        }
    }

    /// Writes an answer.
    pub fn reply(&mut self, request: u64, outcome: Result<Answer>) {
        let clock = self.door.as_ref().map_or(Hlc::default(), Door::clock);
        let heading = Heading { request, hlc: clock.max(self.clock), ..Heading::default() };
        self.hosted.counters.wire_requests.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            self.hosted.counters.failures.fetch_add(1, Ordering::Relaxed);
        }
        answer(&mut self.out, heading, outcome);
    }

    /// Says why, and ends the connection.
    pub fn close(&mut self, error: &Error) {
        self.out.extend_from_slice(&refusal(error));
        self.hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
        self.closing = true;
        self.refused = true;
        self.input = Vec::new();
        self.held.clear();
        self.waits = Waits::default();
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let mut progress = false;
        while self.sent < self.out.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.out[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(broken(&io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    self.hosted.counters.sent_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    progress = true;
                }
                Poll::Ready(Err(error)) => return Err(broken(&error)),
                Poll::Pending => break,
            }
        }
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            release(&mut self.out);
        }
        if progress {
            self.deadline = None;
        }
        Ok(progress)
    }

    fn may_take(&self) -> bool {
        !self.closing && self.has_room() && self.held.len() + self.waits.len() < REQUESTS_MAX
    }

    /// Reads once, and handles every whole frame.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        if !self.may_take() {
            return Ok(false);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Err(error)) => return Err(broken(&error)),
                Poll::Ready(Ok(())) => {}
            }
            let bytes = buffer.filled();
            if bytes.is_empty() {
                // The other end has closed, or at least will send no more: it may still read answers.
                self.closing = true;
                self.waits.end();
                return Ok(true);
            }
            self.hosted.counters.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if self.input.is_empty() {
                let used = self.take(bytes);
                if !self.closing {
                    self.input.extend_from_slice(&bytes[used..]);
                }
            } else {
                self.input.extend_from_slice(bytes);
                self.resume();
            }
            Ok(true)
        })
    }

    /// Handles whole frames that were put off.
    fn resume(&mut self) -> bool {
        if self.input.is_empty() || !self.may_take() {
            return false;
        }
        let input = std::mem::take(&mut self.input);
        let used = self.take(&input);
        if self.closing {
            return true;
        }
        self.input = input;
        self.input.drain(..used);
        release(&mut self.input);
        if used > 0 {
            self.deadline = None;
        }
        used > 0
    }

    /// Handles the whole frames at the start of `bytes`, as long as there is room; returns how many bytes they were.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.may_take() {
            let max_bytes = if self.door.is_some() { FRAME_MAX_BYTES } else { HELLO_MAX_BYTES };
            match split(&bytes[used..], max_bytes) {
                Ok(Some((frame, length))) => {
                    used += length;
                    self.clock = self.clock.max(frame.heading.hlc);
                    self.request(&frame);
                }
                Ok(None) => break,
                Err(error) => {
                    self.close(&error);
                    break;
                }
            }
        }
        used
    }

    /// Whether the other end owes something: the rest of a frame, or to take what it asked for.
    fn owes(&self) -> bool {
        !self.out.is_empty() || (self.may_take() && (!self.input.is_empty() || self.door.is_none()))
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if !self.owes() {
            self.deadline = None;
            return Poll::Pending;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + PATIENCE)));
        if deadline.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(Code::ConnectionIdle.error("nothing moved for 30 s")))
    }
}

/// Gives the memory of a large empty buffer back.
fn release(buffer: &mut Vec<u8>) {
    if buffer.is_empty() && buffer.capacity() > KEPT_BYTES {
        *buffer = Vec::new();
    }
}

fn broken(error: &io::Error) -> Error {
    Code::ConnectionIdle.error(format!("the connection broke: {error}"))
}
