//! What answers the calls of code in progress: of a run, or of a step, which reaches no log.

use crate::{Code, Error, Invocation, LogCalls, ObjectCalls, Outcome, Result, Run, StepCalls, StepWork, StreamWork};

/// What answers the calls of the code that runs now.
pub(crate) trait Host {
    /// Answers its calls to logs.
    fn logs(&mut self) -> &mut dyn LogCalls;
    /// Answers its calls to shared objects.
    fn objects(&mut self) -> Option<&mut dyn ObjectCalls>;
    /// The same, to look only.
    fn look_at_objects(&self) -> Option<&dyn ObjectCalls>;
    /// The step, if it is one.
    fn step(&mut self) -> Option<&mut dyn StepAnswers> {
        None
    }
}

/// What a step asks for, and what it has come to.
pub(crate) trait StepAnswers {
    fn fields(&mut self) -> Result<Vec<u8>>;
    fn class(&mut self, number: u64) -> Result<Vec<u8>>;
    fn returned(&mut self, result: &[u8]);
}

impl Host for Run<'_> {
    fn logs(&mut self) -> &mut dyn LogCalls {
        self.logs
    }

    fn objects(&mut self) -> Option<&mut dyn ObjectCalls> {
        // Not `as_deref_mut`, which would keep the longer lifetime of the trait object.
        match &mut self.objects {
            Some(objects) => Some(&mut **objects),
            None => None,
        }
    }

    fn look_at_objects(&self) -> Option<&dyn ObjectCalls> {
        match &self.objects {
            Some(objects) => Some(&**objects),
            None => None,
        }
    }
}

/// Where a module that was compiled for the worker protocol 3 leaves the result of a step.
const OLD_RESULT: &str = "_step/result";

impl<'a> StepWork<'a> {
    /// What the worker gets: in place of a log, the name of the pool.
    pub(crate) fn invocation(&self) -> Invocation<'a> {
        Invocation { log: self.pool, seqno: 0, payload: self.request, run: self.id, attempt: 1, streamed: false }
    }
}

impl<'a> StreamWork<'a> {
    /// What the worker gets: in place of a log, the name of the work.
    pub(crate) fn invocation(&self) -> Invocation<'a> {
        Invocation { log: self.name, seqno: 0, payload: self.request, run: self.id, attempt: 1, streamed: false }
    }
}

/// The host of one step.
pub(crate) struct StepHost<'a> {
    calls: &'a mut dyn StepCalls,
    result: Option<Vec<u8>>,
}

impl<'a> StepHost<'a> {
    pub(crate) fn new(calls: &'a mut dyn StepCalls) -> Self {
        Self { calls, result: None }
    }

    /// The result, once the step has ended.
    pub(crate) fn end(self, outcome: Outcome) -> Result<Vec<u8>> {
        match outcome {
            Outcome::Done => self
                .result
                .filter(|result| !result.is_empty())
                .ok_or_else(|| Code::WorkerProtocol.error("the worker returned no result of the step")),
            Outcome::Failed(error) | Outcome::CannotStart(error) => Err(error),
            Outcome::NotStarted => Err(Code::WorkerDied.error("the worker had ended")),
        }
    }
}

fn not_here(what: &str) -> Error {
    Code::RightMissing.error(format!("a method of a shared object {what}"))
}

impl Host for StepHost<'_> {
    fn logs(&mut self) -> &mut dyn LogCalls {
        self
    }

    fn objects(&mut self) -> Option<&mut dyn ObjectCalls> {
        Some(self.calls)
    }

    fn look_at_objects(&self) -> Option<&dyn ObjectCalls> {
        Some(self.calls)
    }

    fn step(&mut self) -> Option<&mut dyn StepAnswers> {
        Some(self)
    }
}

impl StepAnswers for StepHost<'_> {
    fn fields(&mut self) -> Result<Vec<u8>> {
        self.calls.fields()
    }

    fn class(&mut self, number: u64) -> Result<Vec<u8>> {
        self.calls.class(number)
    }

    fn returned(&mut self, result: &[u8]) {
        self.result = Some(result.to_vec());
    }
}

impl LogCalls for StepHost<'_> {
    fn append(&mut self, log: &str, _: &[u8]) -> Result<Option<u64>> {
        if log == OLD_RESULT {
            return Err(Code::WorkerTooOld.error("the class was compiled with an older millrace_class.h"));
        }
        Err(not_here("appends to no log"))
    }

    fn get(&mut self, _: &str, _: u64) -> Result<Vec<u8>> {
        Err(not_here("reads no log"))
    }

    fn latest(&mut self, _: &str) -> Result<u64> {
        Err(not_here("reads no log"))
    }

    fn now_ns(&mut self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn random(&mut self, bytes: &mut [u8]) {
        // Linux refuses this only before 3.17, which has no futexes that we need either.
        getrandom::fill(bytes).expect("the operating system has a random source");
    }
}
