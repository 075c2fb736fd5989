//! Streams of a worker, over its wires.

use super::{Fault, OUTBOX_MAX_BYTES, Session, Wires, frame};
use crate::{
    Code, Completion, Limits, Result, StreamCalls, StreamWork, WorkId, cancelled,
    child::readable,
    output::Output,
    worker::{
        frame::{Frame, WorkKind},
        talk::{Broken, Talk},
    },
};
use std::time::{Duration, Instant};

/// What a failed worker printed last, for the message.
const PRINTED_MAX_BYTES: usize = 16 << 10;
/// No stream has a time limit of its own: whoever opened it cancels it.
const NEVER: Duration = Duration::from_secs(1 << 30);

/// The streams that have ended.
type EndedStreams = Vec<(WorkId, Completion)>;

/// Why a worker's streams cannot go on.
enum Stopped {
    Fault(Fault),
    /// One of them broke a rule.
    Broken(Broken),
    /// One that was cancelled has not ended in time.
    Late,
}

impl Session {
    /// Sends a stream's work.
    pub(in crate::worker) fn open(
        &mut self,
        talk: &mut Talk,
        (id, work): (WorkId, &StreamWork<'_>),
        calls: Box<dyn StreamCalls>,
        limits: &Limits,
    ) -> Result<()> {
        self.check_knows(WorkKind::Stream)?;
        if talk.len() >= usize::from(self.hello.works) {
            let detail = format!("the worker has {} streams open, and takes no more at once", talk.len());
            return Err(Code::Busy.error(detail));
        }
        self.last = self.last.wrapping_add(1);
        frame::put_work(&mut self.wires.outbox.bytes, self.last, WorkKind::Stream, &work.invocation());
        talk.open(self.last, id, calls, Output::new(limits.output_max_bytes), Instant::now());
        Ok(())
    }

    pub(in crate::worker) fn cancel(&mut self, talk: &mut Talk, id: WorkId) {
        talk.cancel(id, &mut self.wires.outbox.bytes, Instant::now());
    }

    /// Moves bytes until streams have ended, or until it is time. With an error, which has all streams, the session is of no more use.
    pub(in crate::worker) fn drive(
        &mut self,
        talk: &mut Talk,
        until: Option<Instant>,
    ) -> Result<EndedStreams, EndedStreams> {
        let (mut ended, mut printed) = (Vec::new(), Output::new(PRINTED_MAX_BYTES));
        let Err(stopped) = self.wires.drive(talk, until, &mut ended, &mut printed) else { return Ok(ended) };
        let now = Instant::now();
        let (fault, culprit, why) = match stopped {
            Stopped::Fault(fault) => (fault, None, ""),
            Stopped::Broken(broken) => (Fault::Error(broken.error), Some(broken.work), "broke the protocol"),
            Stopped::Late => (Fault::Error(cancelled()), None, "was cancelled and did not end"),
        };
        let error = self.wires.explain(fault, &mut printed, Code::WorkerDied);
        let of_others = Code::WorkerDied.error(format!("the process was stopped, because another stream {why}"));
        ended.extend(talk.fail(
            |work, is_late| match culprit {
                _ if why.is_empty() => error.clone(),
                Some(culprit) if culprit == work => error.clone(),
                None if is_late => error.clone(),
                _ => of_others.clone(),
            },
            now,
        ));
        Err(ended)
    }
}

impl Wires {
    fn drive(
        &mut self,
        talk: &mut Talk,
        until: Option<Instant>,
        ended: &mut EndedStreams,
        printed: &mut Output,
    ) -> Result<(), Stopped> {
        loop {
            let now = Instant::now();
            while let Some((frame, bytes)) =
                Frame::parse(self.inbox.unread()).map_err(|error| Stopped::Fault(error.into()))?
            {
                ended.extend(talk.hear(&frame, now).map_err(Stopped::Broken)?);
                self.inbox.consume(bytes);
            }
            if !ended.is_empty() || talk.len() == 0 {
                self.inbox.shrink();
                return Ok(());
            }
            if talk.until().is_some_and(|until| until <= now) {
                return Err(Stopped::Late);
            }
            if until.is_some_and(|until| until <= now) {
                return Ok(());
            }
            // With less than what makes it full, so that the worker is heard while it takes nothing.
            let room = (OUTBOX_MAX_BYTES / 2).saturating_sub(self.outbox.unsent_bytes());
            talk.say(&mut self.outbox.bytes, room);
            let wake_at = until.into_iter().chain(talk.until()).min();
            let ready: Vec<_> = talk.ready().map(|fd| (fd, None)).collect();
            let exchanged = self.exchange(printed, (now + NEVER, NEVER), wake_at, &ready);
            talk.printed(&self.heard);
            self.heard.clear();
            exchanged.map_err(Stopped::Fault)?;
            for fd in talk.ready().filter(|fd| readable(*fd, Duration::ZERO)) {
                // What is new is asked for in the next turn.
                let _ = rustix::io::read(fd, &mut [0; 64]);
            }
        }
    }
}
