//! Functions that are invoked: the record is appended, and the caller waits for the end of its run.

use millrace_node::{Access, AppendOptions, Durability, Receipt, RunView, invoke::WAIT_MAX};
use millrace_wire::{EventId, Hlc, Result, protocol::InvokeFunction};
use std::{future::Future, time::Duration};
use tokio::time::{Instant, timeout_at};

/// A request that runs a function. `data` also has the memory that it takes.
pub(crate) struct Invocation<D> {
    pub function: String,
    pub log: Option<String>,
    pub data: D,
    pub durability: Option<Durability>,
    pub key: Option<String>,
    pub cause: EventId,
    pub clock: Hlc,
}

/// What came of it.
pub(crate) struct Invoked {
    pub log: String,
    pub receipt: Receipt,
    pub run: RunView,
}

/// Appends the record, waits until its run has ended, the time is up or the host stops, and reads the run through the gate.
pub(crate) async fn invoke<D: AsRef<[u8]> + Send + 'static>(
    access: &Access,
    invocation: Invocation<D>,
    wait: Duration,
    stops: impl Future,
) -> Result<Invoked> {
    let until = Instant::now() + wait.min(WAIT_MAX);
    let function = invocation.function.clone();
    let append = move |access: &Access| {
        let Invocation { function, log, data, durability, key, cause, clock } = &invocation;
        let (log, data, key) = (log.as_deref(), data.as_ref(), key.as_deref());
        let invoke = InvokeFunction { function, data, log, durability: *durability, key, wait_ms: 0 };
        access.invoke_function(&invoke, AppendOptions { cause: *cause, clock: *clock, ..AppendOptions::default() })
    };
    let (log, receipt) = access.submit(append).await.await?;
    let (run, end) = match access.invoked(&function, receipt.id) {
        Ok(invoked) => invoked,
        Err(error) => return access.refuse(error, None).await,
    };
    tokio::select! {
        _ = timeout_at(until, end) => {}
        _ = stops => {}
    }
    // The caller may have lost the right to run the function meanwhile: then this refuses.
    let run = access.invoked_run(&function, run).await?;
    Ok(Invoked { log, receipt, run })
}
