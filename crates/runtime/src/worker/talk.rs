//! The streams of a worker: what its frames mean, and which frames go to it. It has no descriptor and no clock.
//!
//! ```text
//!  frames of the worker --hear--> StreamCalls::{put ended}         DATA only as far as CREDIT allows, in both directions
//!  frames for the worker <--say-- StreamCalls::{room take}         in turn, so that no stream keeps the others waiting
//! ```

use super::{
    frame::{self, DATA_MAX_BYTES, Frame, Kind},
    run::stated_by,
};
use crate::{Code, Completion, Error, Outcome, StreamCalls, StreamEnd, Taken, WorkId, output::Output};
use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

/// The most bytes that go to one stream before it is another one's turn.
const TURN_BYTES: usize = 256 << 10;
/// The most bytes that a worker lets the host send: a worker that allows more has lost count.
const CREDIT_MAX_BYTES: usize = 1 << 30;
/// How long a worker may take to end a stream that was cancelled.
const GRACE: Duration = Duration::from_secs(1);

/// The open streams of one worker.
#[derive(Default)]
pub(super) struct Talk {
    streams: BTreeMap<u32, Stream>,
    /// The stream that had the last turn.
    last: u32,
}

struct Stream {
    id: WorkId,
    calls: Box<dyn StreamCalls>,
    begun: Instant,
    output: Output,
    /// Bytes that the host may still send, and whether it has more.
    credit: usize,
    is_sending: bool,
    /// Bytes that the worker may still send, and whether it has more.
    granted: usize,
    is_receiving: bool,
    /// By when a cancelled stream has to end.
    until: Option<Instant>,
}

/// A rule that the worker has broken, and by which work.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) work: u32,
    pub(super) error: Error,
}

impl Talk {
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn open(&mut self, work: u32, id: WorkId, calls: Box<dyn StreamCalls>, output: Output, now: Instant) {
        let stream = Stream {
            id,
            calls,
            begun: now,
            output,
            credit: 0,
            is_sending: true,
            granted: 0,
            is_receiving: true,
            until: None,
        };
        self.streams.insert(work, stream);
    }

    /// Does what a frame says. The stream, if it has ended.
    pub(super) fn hear(&mut self, frame: &Frame<'_>, now: Instant) -> Result<Option<(WorkId, Completion)>, Broken> {
        let work = frame.work;
        let wrong = |what: &str| {
            let error = Code::WorkerProtocol.error(format!("a {:?} frame of stream {work}, {what}", frame.kind));
            Err(Broken { work, error })
        };
        let Some(stream) = self.streams.get_mut(&work) else {
            if frame.kind != Kind::Output {
                return wrong("which is not open");
            }
            // The worker does not know whose it is, or a thread of a stream has outlived it.
            self.printed(frame.payload);
            return Ok(None);
        };
        match frame.kind {
            Kind::Output => stream.output.push(frame.payload),
            Kind::Credit => {
                stream.credit += frame.number as usize;
                if stream.credit > CREDIT_MAX_BYTES {
                    return wrong("which allows too much");
                }
            }
            Kind::Data | Kind::End | Kind::Reset if !stream.is_receiving => return wrong("whose bytes have ended"),
            Kind::Data if frame.payload.len() > stream.granted.min(DATA_MAX_BYTES) => {
                return wrong("which is longer than the host allows");
            }
            Kind::Data => {
                stream.granted -= frame.payload.len();
                stream.calls.put(frame.payload);
            }
            Kind::End => stream.receives_no_more(StreamEnd::Whole),
            Kind::Reset => stream.receives_no_more(StreamEnd::Reset(stated_by(frame))),
            Kind::Done => {
                let outcome = match frame.name {
                    b"" => Outcome::Done,
                    _ => Outcome::Failed(stated_by(frame)),
                };
                let mut stream = self.streams.remove(&work).expect("it is open");
                if outcome == Outcome::Done {
                    stream.calls.returned(frame.payload);
                }
                return Ok(Some(stream.complete(outcome, now)));
            }
            _ => return wrong("which a stream does not have"),
        }
        Ok(None)
    }

    /// Writes what there is to send, up to about this many bytes.
    pub(super) fn say(&mut self, to: &mut Vec<u8>, bytes_max: usize) {
        let most = to.len() + bytes_max;
        let mut quiet = 0;
        while quiet < self.streams.len() && to.len() < most {
            let behind = self.streams.range(self.last.saturating_add(1)..).next();
            let Some((work, _)) = behind.or_else(|| self.streams.iter().next()) else { return };
            self.last = *work;
            let before = to.len();
            self.streams.get_mut(&self.last).expect("it is open").say(self.last, to, most);
            quiet = if to.len() == before { quiet + 1 } else { 0 };
        }
    }

    /// Asks the worker to end a stream, if it is open.
    pub(super) fn cancel(&mut self, id: WorkId, to: &mut Vec<u8>, now: Instant) {
        if let Some((work, stream)) = self.streams.iter_mut().find(|(_, stream)| stream.id == id)
            && stream.until.is_none()
        {
            stream.until = Some(now + GRACE);
            stream.is_sending = false;
            frame::put_cancel(to, *work);
        }
    }

    /// When the first of the streams that were cancelled has to have ended.
    pub(super) fn until(&self) -> Option<Instant> {
        self.streams.values().filter_map(|stream| stream.until).min()
    }

    /// What tells that there may be something to send.
    pub(super) fn ready(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let is_of_use = |stream: &&Stream| stream.is_sending || stream.is_receiving;
        self.streams.values().filter(is_of_use).map(|stream| stream.calls.ready())
    }

    /// What the process has printed belongs to the stream that has been open longest, since nothing says whose it is.
    pub(super) fn printed(&mut self, bytes: &[u8]) {
        if let Some(stream) = self.streams.values_mut().min_by_key(|stream| stream.id) {
            stream.output.push(bytes);
        }
    }

    /// Ends all streams, because their process has ended. `of` says why, for each: its work, and whether it was cancelled and has not ended
    /// in time.
    pub(super) fn fail(&mut self, of: impl Fn(u32, bool) -> Error, now: Instant) -> Vec<(WorkId, Completion)> {
        let mut ended = Vec::new();
        for (work, stream) in std::mem::take(&mut self.streams) {
            let is_late = stream.until.is_some_and(|until| until <= now);
            ended.push(stream.complete(Outcome::Failed(of(work, is_late)), now));
        }
        ended
    }
}

impl Stream {
    /// Writes what there is to send of one stream, for one turn.
    fn say(&mut self, work: u32, to: &mut Vec<u8>, most: usize) {
        if self.is_receiving {
            let room = self.calls.room();
            if room > 0 {
                self.granted += room as usize;
                frame::put_bare(to, Kind::Credit, work, room);
            }
        }
        if !self.is_sending {
            return;
        }
        let bytes_max = self.credit.min(TURN_BYTES).min(most.saturating_sub(to.len()));
        match self.calls.take(bytes_max) {
            Taken::Bytes([]) => {}
            Taken::Bytes(bytes) => {
                assert!(bytes.len() <= bytes_max, "{} bytes for a stream that takes {bytes_max}", bytes.len());
                self.credit -= bytes.len();
                frame::put_data(to, work, bytes);
            }
            Taken::End(how) => {
                self.is_sending = false;
                match how {
                    StreamEnd::Whole => frame::put_bare(to, Kind::End, work, 0),
                    StreamEnd::Reset(error) => frame::put_reset(to, work, &error),
                }
            }
        }
    }

    fn receives_no_more(&mut self, how: StreamEnd) {
        self.is_receiving = false;
        self.calls.ended(how);
    }

    fn complete(mut self, outcome: Outcome, now: Instant) -> (WorkId, Completion) {
        if self.is_receiving {
            self.receives_no_more(match &outcome {
                Outcome::Failed(error) | Outcome::CannotStart(error) => StreamEnd::Reset(error.clone()),
                Outcome::Done | Outcome::NotStarted => StreamEnd::Whole,
            });
        }
        let elapsed = now.saturating_duration_since(self.begun);
        (self.id, Completion { outcome, output: self.output.take(), elapsed })
    }
}

#[cfg(test)]
mod tests;
