//! Functions that are invoked: the record is appended, and the caller waits for the end of its run.

use millrace_node::{Access, AppendOptions, Durability, Receipt, RunView, invoke::WAIT_MAX};
use millrace_wire::{EventId, Hlc, Result, protocol::InvokeFunction};
use std::{future::Future, time::Duration};
use tokio::time::{Instant, timeout_at};

/// How often the right to run the function is checked again while its caller waits.
const LOOK: Duration = Duration::from_secs(2);

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
    let (run, _) = match access.invoked(&function, receipt.id) {
        Ok(invoked) => invoked,
        Err(error) => return access.refuse(error, None).await,
    };
    let ended = async {
        loop {
            // Without the right, the read below refuses.
            let Ok((_, end)) = access.invoked(&function, receipt.id) else { return };
            let step = until.min(Instant::now() + LOOK);
            if timeout_at(step, end).await.is_ok() || step == until {
                return;
            }
        }
    };
    tokio::select! {
        () = ended => {}
        _ = stops => {}
    }
    let run = access.invoked_run(&function, run).await?;
    Ok(Invoked { log, receipt, run })
}
