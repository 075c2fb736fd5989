//! Runs functions for replays of ended runs, with executors of their own.

use crate::{
    publish::DeadLetter,
    starter::{Environment, Starter},
    worker::CANCEL_LOOK,
};
use millrace_namespace::{Definition, Namespace};
use millrace_runtime::{Completion, Executor, Invocation, LogCalls, Outcome, Progress, Rest, Run};
use millrace_wire::{Code, Error, EventId, Result};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Executors of any definitions that a namespace has had.
pub struct Again {
    namespace_dir: PathBuf,
    environment: Environment,
    /// By what defines the function.
    running: HashMap<String, (Starter, Box<dyn Executor>)>,
}

impl Again {
    /// None was started yet.
    pub fn new(namespace: &Namespace, environment: Environment) -> Self {
        Self { namespace_dir: namespace.dir().to_owned(), environment, running: HashMap::new() }
    }

    /// Runs a function by this definition, and ends its run soon after `goes_on` has become false. An error if its code or its secrets no longer
    /// exist.
    pub fn run(
        &mut self,
        definition: &Arc<Definition>,
        invocation: Invocation<'_>,
        calls: &mut dyn LogCalls,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Completion> {
        let key = definition.to_attributes();
        if !self.running.contains_key(&key) {
            let starter = Starter::new(&self.namespace_dir, definition.clone(), self.environment.clone());
            let cannot =
                |error: Error| Code::RepairUnsupported.error(format!("its function cannot be started: {error}"));
            starter.check().map_err(cannot)?;
            let (_, mut executor) = starter.executor().map_err(cannot)?;
            executor.get_ready().map_err(cannot)?;
            self.running.insert(key.clone(), (starter, executor));
        }
        let (starter, executor) = self.running.get_mut(&key).expect("it was just put there");
        let mut logs = WithSecrets { calls, starter };
        let completion = Completion { outcome: Outcome::NotStarted, output: Vec::new(), elapsed: Duration::ZERO };
        let mut one = One { completion, goes_on, look_at: Instant::now() + CANCEL_LOOK };
        executor.run(&mut [Run { invocation, logs: &mut logs, objects: None }], &mut one);
        Ok(one.completion)
    }
}

/// One run, which ends once it is not wanted any more.
struct One<'a> {
    completion: Completion,
    goes_on: &'a dyn Fn() -> bool,
    look_at: Instant,
}

impl Progress for One<'_> {
    fn ended(&mut self, _: usize, completion: Completion) {
        self.completion = completion;
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.look_at)
    }

    fn wake(&mut self) -> Rest {
        self.look_at = Instant::now() + CANCEL_LOOK;
        if (self.goes_on)() { Rest::Run } else { Rest::Stop }
    }
}

/// The calls of a run, which asks for secrets here.
struct WithSecrets<'a> {
    calls: &'a mut dyn LogCalls,
    starter: &'a Starter,
}

impl LogCalls for WithSecrets<'_> {
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        self.calls.append(log, payload)
    }

    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>> {
        self.calls.get(log, seqno)
    }

    fn latest(&mut self, log: &str) -> Result<u64> {
        self.calls.latest(log)
    }

    fn table(&mut self, table: &str, request: &[u8]) -> Result<Vec<u8>> {
        self.calls.table(table, request)
    }

    fn now_ns(&mut self) -> u64 {
        self.calls.now_ns()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.calls.random(bytes);
    }

    fn secret(&mut self, name: &str) -> Result<Vec<u8>> {
        self.starter.secret(name)
    }
}

/// The dead letter of a run of this record (its log, seqno and bytes) that is given up.
pub fn dead_letter(
    run: EventId,
    function: &str,
    (log, seqno, payload): (&str, u64, &[u8]),
    attempt: u32,
    error: &Error,
) -> Vec<u8> {
    DeadLetter::new(run, function, (log, seqno, Some(payload)), attempt, error).to_bytes()
}
