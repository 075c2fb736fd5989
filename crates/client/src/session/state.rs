//! The state that the users of a connection and its driver share: bytes to be sent, and waiting requests.

use super::tail::Queue;
use crate::{Host, Options, ask};
use bytes::Bytes;
use millrace_wire::{
    Code, Error, EventId, Hlc, Result,
    protocol::{Cancel, Heading, Message, encode},
};
use std::{
    collections::HashMap,
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, oneshot};

/// A frame, or why there is none.
pub type Arrival = Result<Bytes>;

/// The waiter for the answers to a request.
pub enum Waiting {
    /// A task, for one answer.
    One { sender: oneshot::Sender<Arrival>, due: Option<Instant>, bytes: usize },
    /// A tail.
    Tail(Queue),
    /// No task any longer; the answer is discarded.
    Nobody { bytes: usize },
}

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Waiting::One { bytes, .. } | Waiting::Nobody { bytes } => *bytes,
            Waiting::Tail(_) => 0,
        }
    }
}

/// One connection.
pub struct Shared {
    pub host: Host,
    pub options: Options,
    state: Mutex<State>,
    /// The largest clock seen.
    hlc: AtomicU64,
    /// Told when a request fewer is in flight.
    room: Notify,
    requests_max: usize,
}

/// The state that the lock protects.
pub struct State {
    /// Frames to be sent.
    pub out: Vec<u8>,
    /// By request number.
    pub waiting: HashMap<u64, Waiting>,
    /// The reason why the connection accepts no more requests.
    pub closed: Option<Error>,
    /// How many users there are; without any the driver ends.
    pub users: usize,
    /// Bytes of records that tails hold.
    pub held_bytes: usize,
    /// The driver, while it sleeps.
    pub driver: Option<Waker>,
    in_flight_bytes: usize,
    last_request: u64,
}

impl Shared {
    pub fn new(host: Host, hlc: Hlc, options: Options) -> Self {
        let state = State {
            out: Vec::with_capacity(16 << 10),
            waiting: HashMap::new(),
            closed: None,
            users: 0,
            held_bytes: 0,
            driver: None,
            in_flight_bytes: 0,
            last_request: ask::HANDSHAKE,
        };
        Self {
            requests_max: host.requests_max.min(options.requests_max).max(1) as usize,
            host,
            options,
            state: Mutex::new(state),
            hlc: AtomicU64::new(hlc.get()),
            room: Notify::new(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a clock that was received.
    pub fn saw(&self, hlc: Hlc) {
        if hlc.get() > self.hlc.load(Ordering::Relaxed) {
            self.hlc.fetch_max(hlc.get(), Ordering::Relaxed);
        }
    }

    pub fn heading(&self, request: u64, cause: EventId) -> Heading {
        Heading { request, hlc: Hlc::from_bits(self.hlc.load(Ordering::Relaxed)), cause, slot: 0 }
    }

    /// Sends a request once there is room for it; `bytes` is about how long its payload is.
    pub async fn send<M: Message>(
        &self,
        message: &M,
        bytes: usize,
        cause: EventId,
        wait: impl FnOnce(usize) -> Waiting,
    ) -> Result<u64> {
        ask::check_size(&self.host, bytes)?;
        let bytes = bytes + ask::SURROUNDINGS_BYTES;
        loop {
            let room = self.room.notified();
            {
                let mut state = self.state();
                if let Some(error) = &state.closed {
                    return Err(error.clone());
                }
                if self.has_room(&state, bytes) {
                    return Ok(self.begin(&mut state, message, bytes, cause, wait(bytes)));
                }
            }
            room.await;
        }
    }

    fn has_room(&self, state: &State, bytes: usize) -> bool {
        let fits = state.in_flight_bytes == 0 || state.in_flight_bytes + bytes <= self.options.in_flight_bytes_max;
        state.waiting.len() < self.requests_max && fits
    }

    fn begin<M: Message>(&self, state: &mut State, message: &M, bytes: usize, cause: EventId, one: Waiting) -> u64 {
        state.last_request += 1;
        let request = state.last_request;
        state.in_flight_bytes += one.bytes();
        state.out.reserve(bytes);
        state.push(self.heading(request, cause), message);
        state.waiting.insert(request, one);
        if self.has_room(state, 0) {
            self.room.notify_one(); // One woken hands on to the next.
        }
        request
    }

    /// The last answer to a request has come.
    pub fn settle(&self, state: &mut State, request: u64) -> Option<Waiting> {
        let waiting = state.waiting.remove(&request)?;
        state.in_flight_bytes -= waiting.bytes();
        self.room.notify_one();
        Some(waiting)
    }

    /// No task waits for this request any longer; if the host may be waiting for it too, it is notified.
    pub fn abandon(&self, request: u64, cancel: bool) {
        let mut state = self.state();
        let Some(waiting) = state.waiting.get_mut(&request) else { return };
        let bytes = waiting.bytes();
        if let Waiting::Tail(queue) = mem::replace(waiting, Waiting::Nobody { bytes }) {
            state.held_bytes -= queue.held_bytes();
        }
        if cancel && state.closed.is_none() {
            state.push(self.heading(request, EventId::NONE), &Cancel {});
        }
    }

    /// A tail that is no longer read: the host is notified, unless the tail has ended.
    pub fn forget_tail(&self, request: u64) {
        let mut state = self.state();
        let Some(Waiting::Tail(queue)) = state.waiting.get(&request) else { return };
        let (over, held) = (queue.is_over(), queue.held_bytes());
        if over || state.closed.is_some() {
            state.held_bytes -= held;
            self.settle(&mut state, request);
        } else {
            drop(state);
            self.abandon(request, true);
        }
    }

    /// Gives up what is overdue.
    pub fn expire(&self, now: Instant) {
        let mut state = self.state();
        for waiting in state.waiting.values_mut() {
            let bytes = waiting.bytes();
            if matches!(waiting, Waiting::One { due: Some(due), .. } if *due <= now)
                && let Waiting::One { sender, .. } = mem::replace(waiting, Waiting::Nobody { bytes })
            {
                let late = format!("no answer in {} ms", self.options.request_timeout_ms);
                let _ = sender.send(Err(Code::RequestTimeout.error(late)));
            }
        }
    }

    /// Ends the connection for all its users; the first reason is kept.
    pub fn close(&self, error: &Error) {
        let mut state = self.state();
        if state.closed.is_some() {
            return;
        }
        state.closed = Some(error.clone());
        state.out = Vec::new();
        let (mut tails, mut ones) = (HashMap::new(), Vec::new());
        for (request, waiting) in mem::take(&mut state.waiting) {
            match waiting {
                Waiting::One { sender, .. } => ones.push(sender),
                Waiting::Tail(mut queue) => {
                    queue.end(Err(error.clone()));
                    tails.insert(request, Waiting::Tail(queue));
                }
                Waiting::Nobody { .. } => {}
            }
        }
        state.waiting = tails; // They may still bring what had come.
        drop(state);
        for sender in ones {
            let _ = sender.send(Err(error.clone()));
        }
        self.room.notify_waiters();
    }
}

impl State {
    /// Adds a frame to those to be sent, and wakes the driver if it is the first.
    pub fn push<M: Message>(&mut self, heading: Heading, message: &M) {
        let first = self.out.is_empty();
        encode(&mut self.out, heading, message);
        if first {
            self.wake_driver();
        }
    }

    /// Wakes the driver.
    pub fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

/// The deadline of an answer that may take this long.
pub fn due(patience: Option<Duration>) -> Option<Instant> {
    patience.map(|patience| Instant::now() + patience)
}
