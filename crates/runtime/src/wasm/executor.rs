//! Runs a WebAssembly function: a fresh instance per run, on the caller's thread.

use super::{
    engine::WasmFunction,
    host::State,
    lend::{Work, lend},
    slots::Slot,
    trap::{self, Exit},
};
use crate::{
    Code, Completion, Error, Executor, Limits, Outcome, Progress, Rest, Result, Run, StepCalls, StepWork, Stepper,
    Watch, Watching, output::head, step::StepHost,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use wasmtime::{Instance, Store, Trap, UpdateDeadline};

/// Runs a WebAssembly function.
pub struct WasmExecutor {
    function: Arc<WasmFunction>,
    limits: Limits,
}

/// The instance of an ended run. Dropping it clears its memory, which should not delay the answer.
struct Spent<'s> {
    _store: Store<State>,
    /// Released after the instance is dropped.
    _slot: Slot<'s>,
}

impl WasmExecutor {
    /// An executor of the function. It keeps no state between runs.
    pub fn new(function: Arc<WasmFunction>, limits: Limits) -> Self {
        Self { function, limits }
    }

    fn run_one<'a>(&self, work: Work<'a>, watch: &'a mut dyn Watch) -> (Completion, Rest, Spent<'_>) {
        let slot = self.function.slots.take();
        let begun = Instant::now();
        let _ticking = self.function.ticker.running();
        let (outcome, output, rest, store) = lend(work, watch, |lent| {
            let mut store = Store::new(&self.function.engine, State::new(lent, self.limits));
            store.limiter(|state| &mut state.memory);
            let timeout = self.limits.timeout;
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(move |mut store| {
                if begun.elapsed() >= timeout {
                    return Err(Trap::Interrupt.into());
                }
                store.data_mut().tick().map_err(wasmtime::Error::new)?;
                Ok(UpdateDeadline::Continue(1))
            });
            let outcome = match self.instantiate(&mut store) {
                Ok(instance) => {
                    let returned = instance.and_then(|instance| self.enter(&mut store, instance));
                    let state = store.data_mut();
                    let outcome = match returned {
                        Ok(status) => trap::status(status),
                        Err(error) => trap::outcome(&error, &self.limits, state.memory.denied),
                    };
                    state.conclude(outcome, &self.limits)
                }
                Err(error) => Outcome::CannotStart(error),
            };
            let state = store.data_mut();
            (outcome, state.output.take(), state.rest, store)
        });
        (Completion { outcome, output, elapsed: begun.elapsed() }, rest, Spent { _store: store, _slot: slot })
    }

    /// An instance, or the failure of the module during instantiation.
    ///
    /// # Errors
    ///
    /// Causes outside the module: for instance, the pool has no room for tables of its size.
    fn instantiate(&self, store: &mut Store<State>) -> Result<wasmtime::Result<Instance>, Error> {
        self.function.pre.instantiate(&mut *store).map(Ok).or_else(|error| {
            let by_module = error.is::<Trap>() || error.is::<Error>() || error.is::<Exit>();
            if by_module || store.data().memory.denied {
                return Ok(Err(error));
            }
            Err(Code::RuntimeUnavailable.error(head(&format!("cannot instantiate: {error:#}"), 500)))
        })
    }

    fn enter(&self, store: &mut Store<State>, instance: Instance) -> wasmtime::Result<i32> {
        let function = |store: &mut Store<State>, export| {
            instance.get_module_export(store, export).and_then(wasmtime::Extern::into_func)
        };
        if let Some(initialize) = self.function.initialize.as_ref().and_then(|export| function(store, export)) {
            initialize.typed::<(), ()>(&*store)?.call(&mut *store, ())?;
        }
        let handler = function(store, &self.function.handler).expect("loading found the handler to be a function");
        handler.typed::<(), i32>(&*store)?.call(&mut *store, ())
    }
}

impl Executor for WasmExecutor {
    fn run(&mut self, batch: &mut [Run<'_>], progress: &mut dyn Progress) {
        let (mut rest, mut spent) = (Rest::Run, None::<Spent<'_>>);
        for (i, run) in batch.iter_mut().enumerate() {
            let completion = if rest == Rest::Run {
                drop(spent.take()); // A thread must not keep one instance while it waits for another.
                let work = Work { invocation: run.invocation, host: run };
                let (completion, then, instance) = self.run_one(work, &mut Watching(progress));
                (rest, spent) = (then, Some(instance));
                completion
            } else {
                Completion { outcome: Outcome::NotStarted, output: Vec::new(), elapsed: Duration::ZERO }
            };
            progress.ended(i, completion);
        }
        progress.over();
        drop(spent);
    }
}

impl Stepper for WasmExecutor {
    fn step(&mut self, step: &StepWork<'_>, calls: &mut dyn StepCalls, watch: &mut dyn Watch) -> Result<Vec<u8>> {
        let mut host = StepHost::new(calls);
        let work = Work { invocation: step.invocation(), host: &mut host };
        let outcome = self.run_one(work, watch).0.outcome;
        host.end(outcome)
    }
}
