//! A step, as its worker sees it: a run for a record of a log that does not exist, which reads and appends to logs that do not exist either.

use crate::{Code, Error, Invocation, LogCalls, ObjectCalls, Outcome, Result, Run, StepCalls, StepWork};

/// What answers the calls of the code that runs now.
pub(crate) trait Host {
    /// Answers its calls to logs.
    fn logs(&mut self) -> &mut dyn LogCalls;
    /// Answers its calls to shared objects.
    fn objects(&mut self) -> Option<&mut dyn ObjectCalls>;
    /// The same, to look only.
    fn look_at_objects(&self) -> Option<&dyn ObjectCalls>;
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

/// The log in which a worker's handler sees a step.
const STEPS: &str = "_steps/";
/// The names of a step's requests and results, which are no names of logs.
const FIELDS: &str = "_step/fields";
const RESULT: &str = "_step/result";
const BODIES: &str = "_bodies/";

impl<'a> StepWork<'a> {
    /// The name of the log in which the worker sees it.
    pub(crate) fn log(&self) -> String {
        format!("{STEPS}{}", self.pool)
    }

    /// What the worker runs, in this log.
    pub(crate) fn invocation(&self, log: &'a str) -> Invocation<'a> {
        Invocation { log, seqno: 0, payload: self.request, run: self.id, attempt: 1, streamed: false }
    }
}

/// The host of one step.
pub(crate) struct StepHost<'a> {
    work: StepWork<'a>,
    calls: &'a mut dyn StepCalls,
    result: Option<Vec<u8>>,
}

impl<'a> StepHost<'a> {
    pub(crate) fn new(work: &StepWork<'a>, calls: &'a mut dyn StepCalls) -> Self {
        Self { work: *work, calls, result: None }
    }

    /// The result, once the step has ended.
    pub(crate) fn end(self, outcome: Outcome) -> Result<Vec<u8>> {
        match outcome {
            Outcome::Done => {
                self.result.ok_or_else(|| Code::WorkerProtocol.error("the worker returned no result of the step"))
            }
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
}

impl LogCalls for StepHost<'_> {
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        if log != RESULT {
            return Err(not_here("appends to no log"));
        }
        self.result = Some(payload.to_vec());
        Ok(None)
    }

    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>> {
        if log == FIELDS {
            return self.calls.fields();
        }
        if log.strip_prefix(BODIES) != Some(self.work.pool) {
            return Err(not_here("reads no log"));
        }
        self.calls.class(seqno)
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
