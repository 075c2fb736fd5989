//! Runs a WebAssembly function: a fresh instance per run, on the caller's thread.

use super::{
    engine::WasmFunction,
    host::State,
    lend::lend,
    ticker,
    trap::{self, Exit},
};
use crate::{Call, Code, Completion, Error, Executor, Limits, Outcome, output::head};
use std::{sync::Arc, time::Instant};
use wasmtime::{Store, Trap};

/// Runs a WebAssembly function.
pub struct WasmExecutor {
    function: Arc<WasmFunction>,
    limits: Limits,
}

impl WasmExecutor {
    /// An executor of the function. It holds nothing between runs.
    pub fn new(function: Arc<WasmFunction>, limits: Limits) -> Self {
        Self { function, limits }
    }

    fn run_one(&self, call: &mut Call<'_>) -> Completion {
        let begun = Instant::now();
        let _ticking = self.function.ticker.running();
        let (outcome, output) = lend(call, |lent| {
            let mut store = Store::new(&self.function.engine, State::new(lent, self.limits));
            store.limiter(|state| &mut state.memory);
            store.set_epoch_deadline(ticker::ticks(self.limits.timeout));
            let returned = self.enter(&mut store);
            let state = store.data_mut();
            let outcome = match returned {
                Ok(status) => trap::status(status),
                Err(error) => trap::outcome(&error, &self.limits, state.memory.denied),
            };
            (state.conclude(outcome, &self.limits), state.output.take())
        });
        Completion { outcome, output, elapsed: begun.elapsed() }
    }

    fn enter(&self, store: &mut Store<State>) -> wasmtime::Result<i32> {
        let instance = self.function.pre.instantiate(&mut *store).map_err(|error| {
            let by_module = error.is::<Trap>() || error.is::<Error>() || error.is::<Exit>();
            if by_module || store.data().memory.denied {
                return error;
            }
            // More instances at once than the pool has, or larger tables.
            Code::RuntimeUnavailable.error(head(&format!("cannot instantiate: {error:#}"), 500)).into()
        })?;
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
    fn run(&mut self, batch: &mut [Call<'_>], done: &mut dyn FnMut(usize, Completion)) {
        for (i, call) in batch.iter_mut().enumerate() {
            let completion = self.run_one(call);
            debug_assert_ne!(completion.outcome, Outcome::NotStarted);
            done(i, completion);
        }
    }
}
