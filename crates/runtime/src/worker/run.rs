//! The work in progress: interprets its frames.

use super::frame::{Frame, Kind, put_answer};
use crate::{
    Asked, Code, Completion, Error, Later, Limits, Outcome, Result,
    appends::Appends,
    calls::no_objects,
    output::{Output, head},
    step::Host,
};
use std::time::Instant;

/// The most random bytes of one call.
const RANDOM_MAX_BYTES: usize = 64 << 10;
/// The most requests of one work that wait at the same time.
const REQUESTS_MAX: usize = 256;
/// The longest message a worker may give for a failure.
const MESSAGE_MAX_BYTES: usize = 8 << 10;

pub(super) struct Open {
    work: u32,
    pub(super) begun: Instant,
    pub(super) output: Output,
    appends: Appends,
    /// The answers that are to come, by the numbers of their requests.
    pub(super) later: Vec<(u32, Box<dyn Later>)>,
}

impl Open {
    pub(super) fn new(work: u32, limits: &Limits) -> Self {
        Self {
            work,
            begun: Instant::now(),
            output: Output::new(limits.output_max_bytes),
            appends: Appends::new(limits),
            later: Vec::new(),
        }
    }

    pub(super) fn work(&self) -> u32 {
        self.work
    }

    pub(super) fn complete(mut self, outcome: Outcome) -> Completion {
        Completion { outcome, output: self.output.take(), elapsed: self.begun.elapsed() }
    }

    /// Does what a frame asks for; an answer goes to `outbox`. The outcome, if the frame is the work's DONE.
    pub(super) fn handle(
        &mut self,
        frame: &Frame<'_>,
        (host, streamed): (&mut dyn Host, bool),
        outbox: &mut Vec<u8>,
    ) -> Result<Option<Outcome>> {
        match frame.kind {
            // A thread of the function may outlive its run, and print.
            Kind::Output => {
                self.output.push(frame.payload);
                host.logs().printed(frame.payload);
                return Ok(None);
            }
            // The same: the call has failed with the step that it was a part of.
            Kind::CalledBack => {
                if let (true, Some(objects)) = (frame.work == self.work, host.objects()) {
                    objects.called_back(frame.number, frame.payload);
                }
                return Ok(None);
            }
            Kind::Hello | Kind::Refuse => {
                return Err(Code::WorkerProtocol.error(format!("a {:?} frame in the middle of a run", frame.kind)));
            }
            kind if frame.work != self.work => {
                let detail = format!("{kind:?} of work {}, while work {} is in progress", frame.work, self.work);
                return Err(Code::WorkerProtocol.error(detail));
            }
            Kind::Done => return self.done(frame, host).map(Some),
            Kind::Append => {
                let appended = self.appends.append(host.logs(), text(frame.name)?, frame.payload);
                // In an atomic run the worker does not wait for an answer: a refusal appears when the run ends.
                if streamed {
                    let seqno = appended.map(|seqno| seqno.unwrap_or(0).to_le_bytes());
                    put_answer(outbox, (frame.work, frame.number), seqno.as_ref().map(|seqno| &seqno[..]));
                }
                return Ok(None);
            }
            _ => {}
        }
        if self.later.iter().any(|(number, _)| *number == frame.number) {
            return Err(
                Code::WorkerProtocol.error("a request before the answer to the previous request of the same number")
            );
        }
        if self.later.len() >= REQUESTS_MAX {
            return Err(Code::WorkerProtocol.error(format!("more than {REQUESTS_MAX} requests wait at the same time")));
        }
        if frame.kind == Kind::Call {
            let asked =
                host.objects().map_or_else(|| Asked::Now(Err(no_objects())), |objects| objects.call(frame.payload));
            match asked {
                Asked::Now(answer) => put_answer(outbox, (frame.work, frame.number), answer.as_deref()),
                Asked::Later(later) => self.later.push((frame.number, later)),
            }
            return Ok(None);
        }
        let about = (frame.work, frame.number);
        match frame.kind {
            Kind::Now => put_answer(outbox, about, Ok(&host.logs().now_ns().to_le_bytes())),
            Kind::Latest => {
                let latest = host.logs().latest(text(frame.name)?).map(u64::to_le_bytes);
                put_answer(outbox, about, latest.as_ref().map(|seqno| &seqno[..]));
            }
            _ => put_answer(outbox, about, ask(frame, host)?.as_deref()),
        }
        Ok(None)
    }

    /// Answers one of the requests that wait, if there is one whose answer has come.
    pub(super) fn look(&mut self, outbox: &mut Vec<u8>) -> bool {
        let answered = |(at, (_, later)): (usize, &mut (u32, Box<dyn Later>))| Some((at, later.take()?));
        let Some((at, answer)) = self.later.iter_mut().enumerate().find_map(answered) else { return false };
        let (number, _) = self.later.remove(at);
        put_answer(outbox, (self.work, number), answer.as_deref());
        true
    }

    fn done(&mut self, frame: &Frame<'_>, host: &mut dyn Host) -> Result<Outcome> {
        if let Some(refused) = self.appends.take_refused() {
            return Ok(Outcome::Failed(refused));
        }
        match frame.name {
            b"" => {
                if let Some(step) = host.step() {
                    step.returned(frame.payload);
                } else if !frame.payload.is_empty() {
                    host.logs().result(frame.payload);
                }
                Ok(Outcome::Done)
            }
            _ => Ok(Outcome::Failed(stated_by(frame))),
        }
    }
}

/// The answer to a request for bytes that does not wait.
fn ask(frame: &Frame<'_>, host: &mut dyn Host) -> Result<Result<Vec<u8>>> {
    Ok(match frame.kind {
        Kind::Get => match frame.payload.try_into() {
            Ok(seqno) => host.logs().get(text(frame.name)?, u64::from_le_bytes(seqno)),
            Err(_) => return Err(malformed(frame)),
        },
        Kind::Table => host.logs().table(text(frame.name)?, frame.payload),
        Kind::Random => {
            let count = frame.payload.try_into().map_err(|_| malformed(frame))?;
            match u32::from_le_bytes(count) as usize {
                count @ ..=RANDOM_MAX_BYTES => {
                    let mut bytes = vec![0; count];
                    host.logs().random(&mut bytes);
                    Ok(bytes)
                }
                count => {
                    let detail = format!("{count} random bytes at once; the limit is {RANDOM_MAX_BYTES}");
                    Err(Code::HostCallInvalid.error(detail))
                }
            }
        }
        Kind::Fields => host.step().ok_or_else(|| malformed(frame))?.fields(),
        Kind::Class => {
            let number = frame.payload.try_into().map_err(|_| malformed(frame))?;
            host.step().ok_or_else(|| malformed(frame))?.class(u64::from_le_bytes(number))
        }
        _ => return Err(malformed(frame)),
    })
}

fn malformed(frame: &Frame<'_>) -> Error {
    let (kind, bytes) = (frame.kind, frame.payload.len());
    Code::WorkerProtocol.error(format!("a {kind:?} frame with {bytes} bytes, which this work does not have"))
}

/// The error that a frame states: its name is the code.
pub(super) fn stated_by(frame: &Frame<'_>) -> Error {
    let number = std::str::from_utf8(frame.name).ok().and_then(|id| id.strip_prefix("MR")?.parse().ok());
    stated(number.unwrap_or(0), frame.payload, Code::FunctionFailed)
}

/// The error that a worker states by the number of its code; only codes of functions and runs are its to state.
pub(super) fn stated(number: u32, message: &[u8], otherwise: Code) -> Error {
    let code = (3000..4000).contains(&number).then(|| Code::from_id(&format!("MR{number}"))).flatten();
    code.unwrap_or(otherwise).error(head(&String::from_utf8_lossy(message), MESSAGE_MAX_BYTES))
}

fn text(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name).map_err(|_| Code::WorkerProtocol.error("a log name is not UTF-8"))
}
