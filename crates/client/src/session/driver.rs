//! The one task of a connection: it writes what users queued, reads, and passes answers to the users that wait for them.

use super::{
    state::{Shared, Waiting},
    stream::{Greeted, Stream, broken, closed},
};
use crate::ask;
use bytes::BytesMut;
use millrace_wire::{
    Code, Error, EventId, Result,
    protocol::{Ended, FRAME_MAX_BYTES, Failure, Frame, Message, Ping, Pong, Records, split},
};
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    time::{Interval, MissedTickBehavior},
};

/// How much is read at once, if there is so much.
const READ_BYTES: usize = 64 << 10;
/// Tails that hold more than this keep the connection from being read.
const HELD_MAX_BYTES: usize = 64 << 20;
/// After this many reads in a row, other tasks of the runtime run.
const READS_MAX: u32 = 16;

pub struct Driver {
    shared: Arc<Shared>,
    stream: Stream,
    received: BytesMut,
    sending: Vec<u8>,
    sent: usize,
    ticks: Interval,
    heard: Instant,
    pinged: bool,
    /// Since when something is waited for; silence counts from then on.
    waiting_since: Option<Instant>,
}

impl Driver {
    pub fn new(shared: Arc<Shared>, greeted: Greeted) -> Self {
        let mut ticks = tokio::time::interval(shared.options.tick());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            stream: greeted.stream,
            received: greeted.received,
            sending: Vec::new(),
            sent: 0,
            ticks,
            heard: Instant::now(),
            pinged: false,
            waiting_since: None,
            shared,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>> {
        let idle = {
            let mut state = self.shared.state();
            if !state.driver.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.driver = Some(cx.waker().clone());
            }
            state.users == 0 && state.out.is_empty() && self.sending.is_empty()
        };
        if idle {
            return Ok(Poll::Ready(()));
        }
        self.write(cx)?;
        for _ in 0..READS_MAX {
            if !self.read(cx)? {
                self.keep_alive(cx)?;
                return Ok(Poll::Pending);
            }
            self.write(cx)?;
        }
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Writes until nothing is left or the host takes no more.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<()> {
        loop {
            if self.sent == self.sending.len() {
                self.sending.clear();
                self.sent = 0;
                let mut state = self.shared.state();
                if state.out.is_empty() {
                    drop(state);
                    // Encrypted bytes may not be sent yet. A task that has to wait is woken.
                    return match Pin::new(&mut self.stream).poll_flush(cx) {
                        Poll::Ready(Err(error)) => Err(self.last_words(cx).unwrap_or_else(|| broken(&error))),
                        _ => Ok(()),
                    };
                }
                std::mem::swap(&mut state.out, &mut self.sending);
            }
            match Pin::new(&mut self.stream).poll_write(cx, &self.sending[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(closed()),
                Poll::Ready(Ok(count)) => self.sent += count,
                // The host may have said why it closed, before it did.
                Poll::Ready(Err(error)) => return Err(self.last_words(cx).unwrap_or_else(|| broken(&error))),
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn last_words(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        loop {
            match self.read(cx) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return (error.code() != Code::ConnectionLost).then_some(error),
            }
        }
    }

    /// Reads once; whether there may be more.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        self.dispatch()?;
        if self.shared.state().held_bytes > HELD_MAX_BYTES {
            self.heard = Instant::now(); // It is we who do not listen. Whoever takes records wakes us.
            return Ok(false);
        }
        self.received.reserve(READ_BYTES);
        let read = pin!(self.stream.read_buf(&mut self.received)).poll(cx);
        match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(closed()),
            Poll::Ready(Ok(count)) => {
                self.heard = Instant::now();
                self.pinged = false;
                self.dispatch()?;
                Ok(count > 0) // Only a read that finds nothing leaves word to be woken.
            }
            Poll::Ready(Err(error)) => Err(broken(&error)),
        }
    }

    /// Hands out every frame that is complete.
    fn dispatch(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        let mut state = shared.state();
        loop {
            let Some((frame, used)) = split(&self.received, FRAME_MAX_BYTES)? else { return Ok(()) };
            let (request, kind) = (frame.heading.request, frame.kind);
            shared.saw(frame.heading.hlc);
            if kind == Ping::TYPE {
                state.push(shared.heading(request, EventId::NONE), &Pong {});
            } else if request == 0 {
                connection_wide(&frame)?;
            } else {
                match state.waiting.get_mut(&request) {
                    None => return Err(ask::unasked(&frame)),
                    Some(Waiting::One { .. }) => {
                        let Some(Waiting::One { sender, .. }) = shared.settle(&mut state, request) else {
                            return Err(ask::unasked(&frame));
                        };
                        let _ = sender.send(Ok(self.received.split_to(used).freeze()));
                        continue;
                    }
                    Some(Waiting::Nobody { .. }) => {
                        if kind != Records::TYPE {
                            shared.settle(&mut state, request);
                        }
                    }
                    Some(Waiting::Tail(queue)) => match kind {
                        Records::TYPE => state.held_bytes += queue.take_in(frame.message()?)?,
                        Ended::TYPE => queue.end(Ok(())),
                        _ => queue.end(Err(ask::answer::<Ended>(&frame).err().unwrap_or_else(|| ask::unasked(&frame)))),
                    },
                }
            }
            let _handed_out = self.received.split_to(used);
        }
    }

    /// While something is waited for: gives up what is overdue, pings a silent host, takes a dead one for dead.
    fn keep_alive(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.shared.state().waiting.is_empty() {
            self.waiting_since = None;
            return Ok(());
        }
        if self.waiting_since.is_none() {
            self.waiting_since = Some(Instant::now());
            self.pinged = false;
        }
        while self.ticks.poll_tick(cx).is_ready() {
            let now = Instant::now();
            self.shared.expire(now);
            let silent_since = self.waiting_since.map_or(self.heard, |since| since.max(self.heard));
            let (silent, most) = (now - silent_since, self.shared.options.silence_max());
            if silent >= most {
                return Err(Code::PeerSilent.error(format!("the host has been silent for {} ms", silent.as_millis())));
            }
            if silent >= most / 2 && !self.pinged {
                self.pinged = true;
                self.ping();
                self.write(cx)?;
            }
        }
        Ok(())
    }

    fn ping(&self) {
        let mut state = self.shared.state();
        let heading = self.shared.heading(0, EventId::NONE);
        state.push(heading, &Ping {});
    }
}

/// A frame under request 0: the answer to a ping, or the last word of the host.
fn connection_wide(frame: &Frame<'_>) -> Result<()> {
    match frame.kind {
        Pong::TYPE => Ok(()),
        Failure::TYPE => Err(ask::failure(&frame.message()?)),
        _ => Err(ask::unasked(frame)),
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.turn(cx) {
            Ok(poll) => poll,
            Err(error) => {
                self.shared.close(&error);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Driver {
    /// However the driver ends, even by a panic or with its runtime, no request keeps waiting for it.
    fn drop(&mut self) {
        self.shared.close(&Code::ConnectionLost.error("the task that serves the connection has ended"));
    }
}
