//! The run in progress: interprets its frames.

use super::frame::{Frame, Kind, put_answer, put_return};
use crate::{
    Asked, Code, Completion, Error, Later, Limits, Outcome, Result,
    appends::Appends,
    calls::no_objects,
    output::{Output, head},
    step::Host,
};
use std::time::Instant;

/// The most random bytes of one call.
const RANDOM_MAX_BYTES: u64 = 64 << 10;
/// The most calls of objects that wait at the same time.
const CALLS_MAX: usize = 256;
/// The longest message a worker may give for a failure.
const MESSAGE_MAX_BYTES: usize = 8 << 10;

pub(super) struct Open {
    serial: u64,
    pub(super) begun: Instant,
    pub(super) output: Output,
    appends: Appends,
    /// The answers that are to come, by the numbers of their calls; 0 for the call after which the worker waits.
    pub(super) later: Vec<(u64, Box<dyn Later>)>,
}

impl Open {
    pub(super) fn new(serial: u64, limits: &Limits) -> Self {
        Self {
            serial,
            begun: Instant::now(),
            output: Output::new(limits.output_max_bytes),
            appends: Appends::new(limits),
            later: Vec::new(),
        }
    }

    pub(super) fn complete(mut self, outcome: Outcome) -> Completion {
        Completion { outcome, output: self.output.take(), elapsed: self.begun.elapsed() }
    }

    /// Does what a frame asks for; an answer goes to `outbox`. The outcome, if the frame is the run's DONE.
    pub(super) fn handle(
        &mut self,
        frame: &Frame<'_>,
        (host, streamed): (&mut dyn Host, bool),
        outbox: &mut Vec<u8>,
    ) -> Result<Option<Outcome>> {
        match frame.kind {
            Kind::Append => {
                let appended = self.appends.append(host.logs(), text(frame.name)?, frame.payload);
                // In an atomic run the worker does not wait for an answer: a refusal appears when the run ends.
                if streamed {
                    let seqno = appended.map(|seqno| seqno.unwrap_or(0).to_le_bytes());
                    put_answer(outbox, seqno.as_ref().map(|seqno| &seqno[..]).map_err(Clone::clone));
                }
            }
            Kind::Done => return self.done(frame, host).map(Some),
            Kind::Output => self.output.push(frame.payload),
            Kind::Get => {
                let got = host.logs().get(text(frame.name)?, frame.number);
                put_answer(outbox, got.as_deref().map_err(Clone::clone));
            }
            Kind::Latest => {
                let latest = host.logs().latest(text(frame.name)?).map(u64::to_le_bytes);
                put_answer(outbox, latest.as_ref().map(|seqno| &seqno[..]).map_err(Clone::clone));
            }
            Kind::Now => put_answer(outbox, Ok(&host.logs().now_ns().to_le_bytes())),
            Kind::Random => {
                if frame.number > RANDOM_MAX_BYTES {
                    let detail = format!("{} random bytes at once; the limit is {RANDOM_MAX_BYTES}", frame.number);
                    put_answer(outbox, Err(Code::HostCallInvalid.error(detail)));
                } else {
                    let mut bytes = vec![0; frame.number as usize];
                    host.logs().random(&mut bytes);
                    put_answer(outbox, Ok(&bytes));
                }
            }
            Kind::Call if self.later.iter().any(|(number, _)| *number == frame.number) => {
                return Err(Code::WorkerProtocol.error("a call before the answer to the previous call"));
            }
            Kind::Call if self.later.len() >= CALLS_MAX => {
                return Err(Code::WorkerProtocol.error(format!("more than {CALLS_MAX} calls wait at the same time")));
            }
            Kind::Call => match host
                .objects()
                .map_or_else(|| Asked::Now(Err(no_objects())), |objects| objects.call(frame.payload))
            {
                Asked::Now(answer) => put_called(outbox, frame.number, &answer),
                Asked::Later(later) => self.later.push((frame.number, later)),
            },
            Kind::Reentered => {
                if let (Some(objects), Ok(number)) = (host.objects(), u32::try_from(frame.number)) {
                    objects.called_back(number, frame.payload);
                }
            }
            Kind::Hello | Kind::Refuse => {
                return Err(Code::WorkerProtocol.error(format!("a {:?} frame in the middle of a run", frame.kind)));
            }
        }
        Ok(None)
    }

    /// Answers one of the calls that wait, if there is one whose answer has come.
    pub(super) fn look(&mut self, outbox: &mut Vec<u8>) -> bool {
        let answered = |(at, (_, later)): (usize, &mut (u64, Box<dyn Later>))| Some((at, later.take()?));
        let Some((at, answer)) = self.later.iter_mut().enumerate().find_map(answered) else { return false };
        let (number, _) = self.later.remove(at);
        put_called(outbox, number, &answer);
        true
    }

    fn done(&mut self, frame: &Frame<'_>, host: &mut dyn Host) -> Result<Outcome> {
        if frame.number != self.serial {
            let detail = format!("DONE of run {}, while run {} is in progress", frame.number, self.serial);
            return Err(Code::WorkerProtocol.error(detail));
        }
        if let Some(refused) = self.appends.take_refused() {
            return Ok(Outcome::Failed(refused));
        }
        Ok(match frame.name {
            b"" => {
                if !frame.payload.is_empty() {
                    host.logs().result(frame.payload);
                }
                Outcome::Done
            }
            code => {
                let number = std::str::from_utf8(code).ok().and_then(|id| id.strip_prefix("MR")?.parse().ok());
                Outcome::Failed(stated(number.unwrap_or(0), frame.payload, Code::FunctionFailed))
            }
        })
    }
}

/// Writes the answer to a call of an object.
fn put_called(outbox: &mut Vec<u8>, number: u64, answer: &Result<Vec<u8>>) {
    let answer = answer.as_deref().map_err(Clone::clone);
    if number == 0 { put_answer(outbox, answer) } else { put_return(outbox, number, answer) }
}

/// The error that a worker states by the number of its code; only codes of functions and runs are its to state.
pub(super) fn stated(number: u64, message: &[u8], otherwise: Code) -> Error {
    let code = (3000..4000).contains(&number).then(|| Code::from_id(&format!("MR{number}"))).flatten();
    code.unwrap_or(otherwise).error(head(&String::from_utf8_lossy(message), MESSAGE_MAX_BYTES))
}

fn text(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name).map_err(|_| Code::WorkerProtocol.error("a log name is not UTF-8"))
}
