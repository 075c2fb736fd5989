//! One connection: bytes in, bytes out, and the limits between them.
//!
//! An idle connection has no buffer: it reads into the buffer of its thread, and keeps only incomplete frames, and answers that the other
//! end has not received. Beyond a few KiB, this memory is counted ([`crate::memory`]).
//!
//! Connections share their thread: each does a bounded amount of work before the next one continues.

use super::{
    REQUESTS_MAX,
    asking::Asking,
    commits::{self, Commits},
    devices::{Attachment, DeviceCommands, DeviceRequest},
    refusal,
    requests::{Answer, Rationed, answer},
    waits::Waits,
};
use crate::{
    Hosted,
    admission::Identity,
    memory::{self, Account, Reservation, SMALL_BYTES},
    server::Stream,
};
use millrace_node::{Access, Gated, manage::uploads::Uploads};
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

/// The maximum size of one read.
const READ_BYTES: usize = 256 << 10;
/// The same while memory is short.
const READ_SHORT_BYTES: usize = 16 << 10;
/// How much a connection does before it is another's turn: requests taken and answers given, each with its bytes.
const TURN_WORK: usize = 512;
/// This many bytes of a request or an answer cost as much work as the rest of it.
const WORK_BYTES: usize = 4 << 10;
/// About what a request takes while it waits.
const WAITING_BYTES: usize = 256;
/// How often memory for a large frame is asked for, while others have it.
const MEMORY_RETRY: Duration = Duration::from_millis(50);
/// For this part of the connection's patience: 5 s, half of what a client waits for the answer to a PING.
const STARVED_PART: u32 = 6;
/// More than this waits to be taken by the other end: then nothing more is read from it.
const OUT_MAX_BYTES: usize = 1 << 20;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT_BYTES: usize = 16 << 10;
/// Of answers that are many, this part must be taken within the connection's patience; so none takes longer than ten times that.
const GOOD_PART: usize = 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

pub(super) struct Connection {
    stream: Stream,
    pub hosted: Arc<Hosted>,
    /// The caller at the other end.
    pub identity: Identity,
    /// The namespace as slot 0 may use it, once the handshake is over.
    pub access: Option<Access>,
    /// The same for slots 1 to 15, as far as they are filled.
    pub slots: Vec<Option<Access>>,
    /// The largest clock that the other end has shown.
    pub clock: Hlc,
    input: Vec<u8>,
    pub out: Vec<u8>,
    sent: usize,
    /// All of it was written, and some of that may still have to be sent.
    unflushed: bool,
    /// Requests that are to be committed.
    pub commits: Commits,
    /// Answers at the gate, and their bytes. They are released in the order in which they were committed.
    held: VecDeque<(u64, Gated<Answer>, usize)>,
    held_bytes: usize,
    pub waits: Waits,
    /// Streams from other namespaces, by the request that opened them, and the epoch of where they come from.
    pub inbound: HashMap<u64, commits::Stream>,
    /// The device whose journal comes over this connection.
    pub device: Option<Attachment>,
    /// The commands for it.
    pub commands: Option<DeviceCommands>,
    /// What others ask the device.
    pub asking: Option<Asking>,
    /// Files of a deployment that come over this connection; they go with it.
    pub uploads: Arc<Uploads>,
    /// The other end sends no more. Its complete requests are still answered.
    ended: bool,
    /// Nothing more is read; the connection ends when everything is answered and sent.
    closing: bool,
    /// The host is stopping, and informs the other end once everything is answered.
    parting: bool,
    refused: bool,
    /// The deadline for the other end's next step, and how many bytes it must have received by then.
    deadline: Option<(Pin<Box<Sleep>>, usize)>,
    /// The time for the other end's next step: the rest of a frame, or a considerable part of its answers.
    patience: Duration,
    /// Bytes that the other end has taken since the deadline was set.
    taken: usize,
    /// Whose memory it uses.
    account: Account,
    /// The counted memory of the buffers and of waiting answers.
    counted: Reservation,
    /// Room for a large frame that has begun, all of it: so what has begun can be finished.
    coming: Option<Reservation>,
    /// While there is no such room.
    starved: Option<Pin<Box<Sleep>>>,
    /// Since when there is none for a frame that has begun.
    starved_since: Option<Instant>,
    /// The remaining budget of this turn.
    turn: usize,
}

/// The reason for the end of a poll of a connection.
pub(super) enum Over {
    /// It has done its share. There may be more to do once the others have had their turn.
    Turn,
    Connection(Result<()>),
}

impl Connection {
    pub fn new(stream: Stream, identity: Identity, hosted: Arc<Hosted>, patience: Duration) -> Self {
        let account = identity.account();
        Self {
            stream,
            hosted,
            identity,
            access: None,
            slots: Vec::new(),
            clock: Hlc::default(),
            input: Vec::new(),
            out: Vec::new(),
            sent: 0,
            unflushed: false,
            commits: Commits::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            waits: Waits::default(),
            inbound: HashMap::new(),
            device: None,
            commands: None,
            asking: None,
            uploads: Arc::default(),
            ended: false,
            closing: false,
            parting: false,
            refused: false,
            deadline: None,
            patience,
            taken: 0,
            account,
            counted: Reservation::default(),
            coming: None,
            starved: None,
            starved_since: None,
            turn: TURN_WORK,
        }
    }

    /// Does the work that is possible now, within the budget of one turn.
    pub fn poll(&mut self, cx: &mut Context<'_>, stopping: Pin<&mut impl Future>) -> Poll<Over> {
        let mut account = std::mem::take(&mut self.account);
        let polled = account.around(|| self.poll_within(cx, stopping));
        if !self.counted.is_of(&account) {
            self.counted.charge_to(&account);
        }
        self.account = account;
        polled
    }

    fn poll_within(&mut self, cx: &mut Context<'_>, stopping: Pin<&mut impl Future>) -> Poll<Over> {
        if !self.closing && (self.hosted.is_draining() || stopping.poll(cx).is_ready()) {
            (self.closing, self.parting) = (true, true);
            self.waits.end();
        }
        self.turn = TURN_WORK;
        while self.turn > 0 {
            let before = (self.out.len(), self.sent);
            self.poll_commits(cx);
            self.poll_held(cx);
            self.poll_waits(cx);
            // Requests that were deferred for lack of memory may continue.
            let resumed = self.resume();
            self.use_up();
            let moved = self.poll_write(cx).and_then(|wrote| Ok(self.poll_read(cx)? || wrote));
            let moved = match moved {
                Ok(moved) => moved,
                Err(error) => return Poll::Ready(Over::Connection(Err(error))),
            };
            if self.closing && self.is_done() {
                if !self.parting {
                    return Poll::Ready(Over::Connection(Ok(())));
                }
                self.part();
                continue;
            }
            if !(resumed || moved || before != (self.out.len(), self.sent)) {
                break;
            }
        }
        self.hosted.worked(TURN_WORK - self.turn);
        self.count();
        if self.turn == 0 {
            return Poll::Ready(Over::Turn);
        }
        if !self.closing
            && self.out.is_empty()
            && self.commits.is_empty()
            && self.held.is_empty()
            && !self.accepts()
            && memory::allowance() < usize::MAX
        {
            // It has nothing to wait for but others.
            self.starve(cx);
        }
        self.poll_deadline(cx).map(Over::Connection)
    }

    /// Records work for this connection of this many bytes.
    fn work(&mut self, bytes: usize) {
        self.turn = self.turn.saturating_sub(1 + bytes / WORK_BYTES);
    }

    /// Bytes of answers that are on their way, and of requests that wait.
    fn outstanding(&self) -> usize {
        let waiting = self.commits.len() + self.held.len() + self.waits.len();
        self.out.len() - self.sent + self.commits.bytes() + self.held_bytes + waiting * WAITING_BYTES
    }

    fn count(&mut self) {
        // A frame that is coming has room of its own.
        let put_off = if self.coming.is_some() { 0 } else { self.input.len() };
        // The sent part of the buffer takes memory until the whole buffer is sent.
        self.counted.count(self.outstanding() + self.sent + put_off);
    }

    /// The stream of a connection that was refused, whose client may not have noticed yet.
    pub fn refused(self) -> Option<Stream> {
        self.refused.then_some(self.stream)
    }

    fn is_done(&self) -> bool {
        let answered = self.commits.is_empty() && self.held.is_empty() && self.waits.is_empty();
        answered && self.out.is_empty() && !self.unflushed
    }

    /// Takes what was committed, and gives up what waited for that for too long.
    fn poll_commits(&mut self, cx: &mut Context<'_>) {
        while self.turn > 0
            && self.has_room()
            && let Poll::Ready((request, held)) = self.commits.poll_next(cx)
        {
            self.answer(request, held);
        }
        while let Some(request) = self.commits.poll_overdue(cx) {
            let blocked = self.access.as_ref().map_or_else(|| Code::JournalBlocked.error(""), Access::blocked);
            self.reply(request, Err(blocked));
        }
    }

    /// Takes what the gate has released.
    fn poll_held(&mut self, cx: &mut Context<'_>) {
        while self.turn > 0
            && self.has_room()
            && let Some((request, held, bytes)) = self.held.front_mut()
        {
            let Poll::Ready(outcome) = Pin::new(held).poll(cx) else { break };
            let request = *request;
            self.held_bytes -= *bytes;
            self.held.pop_front();
            self.reply(request, outcome);
        }
    }

    fn poll_waits(&mut self, cx: &mut Context<'_>) {
        while self.turn > 0
            && self.has_room()
            && let Poll::Ready(Some((request, outcome))) = self.waits.poll_next(cx)
        {
            self.reply(request, outcome);
        }
    }

    /// Whether more answers may be left for the other end to take.
    fn has_room(&self) -> bool {
        self.out.len() - self.sent < OUT_MAX_BYTES.min(memory::allowance())
    }

    /// Answers, now or as soon as the gate lets it out.
    pub fn answer(&mut self, request: u64, held: Gated<Answer>) {
        let Rationed { held, bytes, reserved: _reserved } = Rationed::of(held);
        match held.now() {
            Ok(outcome) => self.reply(request, outcome),
            Err(held) => {
                self.held_bytes += bytes;
                self.held.push_back((request, held, bytes));
                self.count();
            }
        }
    }

    /// Writes an answer.
    pub fn reply(&mut self, request: u64, outcome: Result<Answer>) {
        let clock = self.access.as_ref().map_or(Hlc::default(), Access::clock);
        let heading = Heading { request, hlc: clock.max(self.clock), ..Heading::default() };
        self.hosted.counters.wire_requests.fetch_add(1, Ordering::Relaxed);
        if let (Ok(answer), Some(access)) = (&outcome, &self.access)
            && let Some(took) = answer.took()
        {
            access.served().facts().append_took(took);
        }
        let outcome = outcome.map_err(|error| match &self.access {
            Some(access) => access.hinted_topic(error),
            None => error,
        });
        if let Err(error) = &outcome {
            tracing::debug!(target: "requests", protocol = "wire", code = error.code().id(), "refused: {}", error.detail());
        }
        if matches!(outcome, Err(_) | Ok(Answer::Refused(..))) {
            self.hosted.counters.failures.fetch_add(1, Ordering::Relaxed);
        }
        match &outcome {
            Ok(Answer::Attached(_)) => {
                self.begin_commands();
                self.begin_asking();
            }
            Ok(Answer::ToDevice(DeviceRequest::Asked { .. })) => self.await_question(),
            Ok(Answer::ToDevice(asked)) => self.asked(request, asked),
            _ => {}
        }
        let before = self.out.len();
        if outcome.is_err() && self.inbound.get(&request).is_some_and(|stream| stream.get().is_none()) {
            self.inbound.remove(&request);
        }
        answer(&mut self.out, heading, outcome);
        self.work(self.out.len() - before);
        self.count();
    }

    /// The last word to a client that did nothing wrong: what it asked and was not answered was not taken.
    fn part(&mut self) {
        self.parting = false;
        self.out.extend_from_slice(&refusal(&Code::HostStopping.error("the host is stopping")));
    }

    /// Says why, and ends the connection.
    pub fn close(&mut self, error: &Error) {
        self.out.extend_from_slice(&refusal(error));
        tracing::debug!(target: "connections", protocol = "wire", code = error.code().id(), "closed: {}", error.detail());
        self.hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
        (self.closing, self.parting, self.refused) = (true, false, true);
        self.input = Vec::new();
        (self.coming, self.starved, self.starved_since, self.deadline) = (None, None, None, None);
        self.commits = Commits::default();
        self.held.clear();
        self.held_bytes = 0;
        self.waits = Waits::default();
        self.asking = None;
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let mut progress = false;
        while self.sent < self.out.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.out[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(broken(&io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    self.taken += count;
                    self.unflushed = true;
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
            if progress {
                self.deadline = None;
            }
        }
        // Encrypted bytes follow the bytes that were already written.
        if self.unflushed
            && self.out.is_empty()
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed.map_err(|error| broken(&error))?;
            self.unflushed = false;
        }
        Ok(progress)
    }

    /// Whether another request would be taken if it were this connection's turn.
    fn accepts(&self) -> bool {
        let most = memory::allowance().min(OUT_MAX_BYTES + REQUESTS_MAX * WAITING_BYTES);
        !self.closing
            && self.has_room()
            && self.outstanding() < most
            && !self.commits.is_full()
            && self.commits.len() + self.held.len() + self.waits.len() < REQUESTS_MAX
    }

    fn may_take(&self) -> bool {
        self.turn > 0 && self.accepts()
    }

    /// Whether there is room for the frame that has begun; if not, asks again after a while.
    fn may_come(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(length) = self.input.first_chunk::<4>() else { return true };
        let length = u32::from_le_bytes(*length) as usize + 4;
        let free = SMALL_BYTES.min(memory::allowance());
        if self.coming.is_some() || length <= free || length <= self.input.len() {
            (self.starved, self.starved_since) = (None, None);
            return true;
        }
        if self.starved.as_mut().is_some_and(|starved| starved.as_mut().poll(cx).is_pending()) {
            return false;
        }
        match Reservation::of(length) {
            Ok(room) if room.is_some() => {
                (self.coming, self.starved, self.starved_since) = (room, None, None);
                // No more than it needs, and not before it comes: what is not touched is not there.
                self.input.reserve_exact(length - self.input.len() + READ_BYTES);
                true
            }
            _ => {
                self.starved_since.get_or_insert_with(Instant::now);
                self.starve(cx);
                false
            }
        }
    }

    /// Has this connection looked at again when there may be memory.
    fn starve(&mut self, cx: &mut Context<'_>) {
        let mut again = Box::pin(sleep_until(Instant::now() + MEMORY_RETRY));
        let _ = again.as_mut().poll(cx);
        self.starved = Some(again);
    }

    /// Reads once, and handles every whole frame.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        if self.ended || !self.may_take() || !self.may_come(cx) {
            return Ok(false);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let most = if memory::is_short() { READ_SHORT_BYTES } else { READ_BYTES };
            let mut buffer = ReadBuf::new(&mut scratch[..most]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Err(error)) => return Err(broken(&error)),
                Poll::Ready(Ok(())) => {}
            }
            let bytes = buffer.filled();
            if bytes.is_empty() {
                // The other end has closed, or at least will send no more: it may still read answers.
                self.ended = true;
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

    /// Once the other end sends no more, its waiting requests end, and when no complete frame is deferred, the connection ends.
    fn use_up(&mut self) {
        if self.ended && !self.closing {
            self.asking = None;
            self.waits.end();
            self.closing = matches!(split(&self.input, FRAME_MAX_BYTES), Ok(None));
        }
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
        used > 0
    }

    /// Handles the whole frames at the start of `bytes`, as long as there is room; returns how many bytes they were.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.may_take() {
            let max_bytes = if self.access.is_some() { FRAME_MAX_BYTES } else { HELLO_MAX_BYTES };
            match split(&bytes[used..], max_bytes) {
                Ok(Some((frame, length))) => {
                    let raw = &bytes[used..used + length];
                    used += length;
                    self.coming = None;
                    self.work(length);
                    self.clock = self.clock.max(frame.heading.hlc);
                    self.request(&frame, raw);
                }
                Ok(None) => break,
                Err(error) => {
                    self.close(&error);
                    break;
                }
            }
        }
        let owed_frame = self.deadline.as_ref().is_none_or(|(_, due)| *due == 0);
        if used > 0 && (owed_frame || self.out.is_empty()) {
            self.deadline = None;
        }
        used
    }

    /// Whether the other end has to act: to send the rest of a frame, or to receive its answers.
    fn owes(&self) -> bool {
        !self.out.is_empty() || self.unflushed || (self.accepts() && (!self.input.is_empty() || self.access.is_none()))
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if !self.owes() {
                self.deadline = None;
                return Poll::Pending;
            }
            // Behind the frame there may be a PING, which the client wants answered: it gets to know why it waits before it takes the host
            // for dead.
            if let Some(waited) =
                self.starved_since.map(|since| since.elapsed()).filter(|it| *it >= self.patience / STARVED_PART)
            {
                let waited = waited.as_secs();
                self.close(
                    &Code::HttpMemoryShort.error(format!("no memory became free for a request within {waited} s")),
                );
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let left = self.out.len() - self.sent;
            let (deadline, due) = self.deadline.get_or_insert_with(|| {
                self.taken = 0;
                (Box::pin(sleep_until(Instant::now() + self.patience)), left.min(SMALL_BYTES).max(left / GOOD_PART))
            });
            if deadline.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if *due > 0 && self.taken >= *due {
                self.deadline = None;
                continue;
            }
            self.hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
            let waited = self.patience.as_secs();
            tracing::debug!(target: "connections", protocol = "wire", "closed: no progress for {waited} s");
            return Poll::Ready(Err(
                Code::ConnectionIdle.error(format!("the other side sent or read too little in {waited} s"))
            ));
        }
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
